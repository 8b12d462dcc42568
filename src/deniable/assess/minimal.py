"""What a k-anonymous release of our own making tells by having generalized no more than it had to.

Minimality asks the very search that made the release again, over every way to deal the secrets out. Downcoding reads
the ends of intervals. Both need the original rows, to know who was right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from deniable.attacks.base import Outcome
from deniable.attacks.codes import dense, together
from deniable.attacks.downcoding import downcoding, tight
from deniable.attacks.minimality import believed, by_class, reasons
from deniable.errors import Infeasible
from deniable.kanonymity.anonymize import anonymize, recoded
from deniable.kanonymity.recoding import Recoding, Suppressed
from deniable.kanonymity.request import Request
from deniable.kanonymity.words import condition

if TYPE_CHECKING:
    from deniable.assess.risk import Evidence, Settings

MOST_ROWS = 2_000
"""Larger tables are generalized because of many classes at once, which tells next to nothing about any one of them."""
MOST_WORLDS = 1_000
SOME_WORLDS = 60
"""Worlds asked of a table of more than a hundred rows, for each of which the search runs anew."""


def lacks_reasons(evidence: Evidence) -> str:
    """Why minimality cannot be tried; empty when it can."""
    if evidence.recoding is None or evidence.original is None:
        return "needs a k-anonymous release with its recoding beside it, and the original rows (--original)"
    if _secret(evidence.recoding) is None:
        return "needs a privacy model about a secret (l, t): k alone does not look at secrets, so it tells none"
    if evidence.original.num_rows != evidence.recoding.rows:
        return "needs exactly the rows that were anonymized (--original): a sample of them was, or others"
    if evidence.original.num_rows > MOST_ROWS:
        return f"needs at most {MOST_ROWS:,} rows: a larger release is generalized because of many classes at once"
    return ""


def attack_reasons(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Minimality: the release is made again from every way to deal out the values of its classes."""
    recoding, table = evidence.recoding, evidence.original
    assert recoding is not None
    assert table is not None
    secret = _secret(recoding)
    assert secret is not None
    values = table[secret].to_pylist()
    classes = _classes(recoding, table)
    # Values of suppressed rows are in no release; the intruder is given them, which is the worst case.
    classes = np.where(classes < 0, -1 - np.arange(len(classes)), classes)
    most = MOST_WORLDS if table.num_rows <= 100 else SOME_WORLDS
    place = table.column_names.index(secret)

    def same_release(deal: Sequence[Any]) -> bool:
        world = table.set_column(place, secret, pa.array(deal, table[secret].type))
        return _released(recoding, world) == (recoding.levels, sorted(recoding.classes.tuples))

    found = reasons(classes, values, same_release, most=most, seed=settings.seed, seconds=settings.seconds)
    return (believed(found, by_class(classes, values), values),)


def _secret(recoding: Recoding) -> str | None:
    """The sensitive column that a privacy model is about."""
    return next((str(spec.options["column"]) for spec in recoding.models if spec.options.get("column")), None)


def _request(recoding: Recoding) -> Request:
    models = tuple(condition(spec) for spec in recoding.models)
    return Request(recoding.names, models, recoding.sensitive, (), recoding.limit)


def _released(recoding: Recoding, world: pa.Table) -> tuple[Any, Any] | None:
    """The levels and classes that the search would choose for another world; None where there is no release."""
    named = list(dict.fromkeys((*recoding.names, *recoding.sensitive)))
    try:
        found = anonymize(world.select(named), _request(recoding), {c.name: c.spec for c in recoding.columns}).recoding
    except Infeasible:
        return None
    return found.levels, sorted(found.classes.tuples)


def _classes(recoding: Recoding, table: pa.Table) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Everybody's class in the release; -1 for those who were suppressed, whose secrets a starred row leaves empty."""
    named = [name for name in table.column_names if name in (*recoding.names, *recoding.sensitive)]
    shown = recoded(table.select(named), replace(recoding, suppressed_rows=Suppressed.STAR))
    codes = dense(together([shown], recoding.names, missing=True)[0])
    secret = _secret(recoding)
    gone = shown[secret].is_null().to_numpy() & table[secret].is_valid().to_numpy()
    return np.where(gone, -1, codes)


def lacks_ends(evidence: Evidence) -> str:
    """Why downcoding cannot be tried; empty when it can."""
    if missing := evidence.lacks("knows", "original"):
        return missing
    assert evidence.original is not None
    shown = tight(evidence.release, evidence.original, evidence.knows)
    return "" if shown else "needs numbers written as intervals from the lowest to the highest value of a class"


def attack_ends(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Downcoding: exact values at the ends of intervals."""
    assert evidence.original is not None
    known = [name for name in evidence.knows if name in evidence.original.column_names]
    return (downcoding(evidence.release, evidence.original, known, classes=settings.attacks, seed=settings.seed),)
