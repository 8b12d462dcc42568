"""Singling out: predicates that hold for exactly one person (the first criterion of WP29, Opinion 05/2014)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from deniable.attacks import predicates
from deniable.attacks.base import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.predicates import Predicates, Values, single_out

TRIES = 200
"""So many predicates are tried for each that is wanted before the search is given up."""
ALIKE = 0.1
"""A control that is smaller than the original by more than this share draws a warning."""


def singling_out(
    original: pa.Table,
    released: pa.Table,
    *,
    control: pa.Table | None = None,
    columns: Sequence[str] | None = None,
    attacks: int = 500,
    width: int = 3,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Guess predicates that single out one person of the original table.

    **Scenario.** The intruder has a released or synthetic table and guesses predicates such as "age at least 90 and
    ZIP code 69503"; success is a predicate that holds for exactly one person of the original table.
    **Method.** Predicates of `width` columns that hold for exactly one released row, made around random released rows:
    equality for categories, and for numbers the direction away from the median; the same predicates are put to a
    control table of other people. With `width` 1, values that occur once, least and greatest values.
    **Outcome.** Predicates that single out; the baseline makes them from random values of each column.

    A predicate of weight w singles out in a table of n people with chance n w (1 - w)^(n - 1) (Cohen and Nissim 2020):
    tables of different size are not comparable. So a larger control is cut to the size of the original by a random
    sample, and a smaller one draws a warning: no sample can make it larger.
    """
    chosen = tuple(columns or [name for name in released.column_names if name in original.column_names])
    tables = [released, original, *([control] if control is not None else [])]
    rows, ordered = predicates.as_numbers(tables, chosen)
    generator, width = np.random.default_rng(seed), min(width, len(chosen))
    source = (
        predicates.of_single_values(rows[0], ordered)
        if width == 1
        else predicates.around_rows(rows[0], ordered, width, generator)
    )
    guessed = _different(source, rows[0], width, attacks, Deadline(seconds), progress)
    naive = predicates.blind(rows[0], ordered, width, len(guessed) or attacks, generator)
    others = _cut(rows[2], len(rows[1]), generator) if control is not None else None
    warnings = () if len(guessed) >= attacks else (f"only {len(guessed)} predicates single out a released row",)
    return Outcome(
        "singling out", f"Guessing what is true of one person only ({width} columns)", _rate(guessed, rows[1]),
        _rate(naive, rows[1]), None if others is None else _rate(guessed, others), figures={"width": width},
        warnings=(*warnings, *_smaller(others, rows[1])),
    )  # fmt: skip


def _different(
    source: Iterable[Predicates],
    rows: Values,
    width: int,
    attacks: int,
    deadline: Deadline,
    progress: Progress | None,
) -> Predicates:
    """Different predicates that hold for one released row, as many as wanted if the search finds them."""
    found: list[Predicates] = []
    seen: set[bytes] = set()
    tried = 0
    for batch in source:
        deadline.check()
        fresh = []
        alone = batch.take(single_out(batch, rows))
        for place, key in enumerate(alone.keys()):
            if key not in seen and len(seen) < attacks:
                seen.add(key)
                fresh.append(place)
        found.append(alone.take(np.array(fresh, np.int64)))
        tell(progress, len(seen) / attacks)
        tried += len(batch)
        if len(seen) >= attacks or tried >= TRIES * attacks:
            break
    return Predicates.of(found, width)


def _cut(control: Values, size: int, generator: np.random.Generator) -> Values:
    if len(control) <= size:
        return control
    return control[np.sort(generator.choice(len(control), size, replace=False))]


def _smaller(control: Values | None, original: Values) -> tuple[str, ...]:
    if control is None or len(control) >= (1 - ALIKE) * len(original):
        return ()
    told = f"the control has {len(control):,} rows and the original {len(original):,}"
    return (f"{told}: what is rare singles out less often in a smaller table; bring a control as large",)


def _rate(guessed: Predicates, rows: Values) -> Rate:
    return Rate(int(single_out(guessed, rows).sum()), len(guessed))
