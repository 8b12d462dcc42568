"""Earlier k-anonymous releases of the same table, and what an intruder learns who holds one of them and a new one.

The recoding of every release under a policy is kept beside the ledger. It tells no more than the released rows do: the
levels, the classes with their sizes and their sensitive values. A new release is checked against each of them by
intersecting classes over today's rows. A release whose classes were each generalized in their own way leaves no
recoding; it is noted, and nothing can be said of it later than that it cannot be checked.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.curator.anonymize import check
from deniable.curator.anonymize.check import CompositionReport
from deniable.curator.anonymize.request import COUNT, TABLE, Order, check_columns, statement
from deniable.errors import Infeasible
from deniable.release.record import SparseRecord

if TYPE_CHECKING:
    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.kanonymity.recoding import Recoding

RECODINGS = "recodings"
UNCHECKED = b"without a recoding"
REFUSE = "refuse"


@dataclass(frozen=True, slots=True, eq=False)
class EarlierReleases(SparseRecord):
    """The worst that a release tells together with one before it, or a warning that this cannot be checked."""

    composition: CompositionReport | None = None
    earlier_releases: int | None = None
    warnings: list[str] | None = None


def remember_release(context: Context | None, table: str, recoding: Recoding | None) -> None:
    """Remember a release of a table; None is one without a recoding."""
    from deniable.kanonymity.recoding import to_document

    if context is None:
        return
    written = UNCHECKED if recoding is None else json.dumps(to_document(recoding)).encode()
    name = f"{table}/{hashlib.sha256(written).hexdigest()}"
    context.store.keep(RECODINGS, name, name, written)


def find_earlier(context: Context | None, table: str, order: Order) -> tuple[Recoding | None, ...]:
    """The releases of a table that are remembered, and the one that was named; None for each without a recoding."""
    from deniable.kanonymity.recoding import from_document, read_recoding

    kept = context.store.list_all(RECODINGS) if context else {}
    mine = [kept[name] for name in sorted(kept) if name.startswith(f"{table}/")]
    found = [None if written == UNCHECKED else from_document(json.loads(written)) for written in mine]
    return (*found, read_recoding(order.earlier)) if order.earlier else tuple(found)


def compose_with_earlier(
    engine: Engine,
    context: Context | None,
    order: Order,
    before: Sequence[Recoding | None],
    recoding: Recoding | None,
) -> EarlierReleases:
    """The worst that a new release tells together with one before; refused where the order or the policy says so."""
    if not before:
        return EarlierReleases()
    refusing = order.refuse_composition or _refuses(context)
    if recoding is None or None in before:
        return _explain_unchecked(refusing, recoding is None)
    found = [_pair(engine, each, recoding) for each in before if each is not None]
    worst = max(found, key=lambda together: (together.exposed, -together.k))
    if refusing:
        check.refuse_composition(worst)
    return EarlierReleases(worst, len(found))


def _refuses(context: Context | None) -> bool:
    asked = context.policy.release.anonymize if context else None
    return asked is not None and asked.second_release == REFUSE


def _explain_unchecked(refusing: bool, new: bool) -> EarlierReleases:
    which = "this release" if new else "an earlier release of this table"
    told = f"{which} has no recoding (its method generalizes each class in its own way)"
    if refusing:
        raise Infeasible(
            f"Two releases cannot be checked against each other: {told}",
            expected="Releases made with --method optimal",
            remedy="Release one table once, or use --method optimal each time",
        )
    return EarlierReleases(warnings=[f"not checked against earlier releases: {told}"])


def _pair(engine: Engine, before: Recoding, recoding: Recoding) -> CompositionReport:
    sensitive = tuple(dict.fromkeys((*before.sensitive, *recoding.sensitive)))
    named = check_columns(engine, tuple(dict.fromkeys((*before.names, *recoding.names, *sensitive))))
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    return check.composition(counted, before, recoding, sensitive, COUNT)
