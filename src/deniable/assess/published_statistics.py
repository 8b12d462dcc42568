"""The risk of published statistics: the records behind counts, means and medians, and the cells behind margins.

A JSON file says what was published. `attributes` names whole-number columns (categories by number) with the least and
the greatest value, `statistics` lists what was printed of groups: `where` (an attribute is one value, or from and to),
`count` (left out where it was suppressed, at most `suppressed`, 2 unless said), and `of` with `mean` and `median` as
printed. `cells` is a table of counts: `axes` names the values of each, `margins` lists what was published `over` some
of them, as nested `counts`. A file may have either part, or both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from deniable.assess.risk import Attempt
from deniable.attacks.aggregates.published_tables import Attribute, CellBounds, Statistic, bound_margins, find_worlds
from deniable.attacks.outcome import Outcome, Rate
from deniable.errors import DataError

SMALL = 2
"""Cells of so few people are what suppression hides."""
SECONDS = 60.0
"""What finding all worlds may take where nobody says."""
EXPECTED = (
    '{"attributes": {"age": [0, 115]}, "statistics": [{"count": 7, "of": "age", "mean": 38.0}]}, or '
    '{"cells": {"axes": {"sex": ["F", "M"], "area": ["N", "S"]}, "margins": [{"over": ["sex"], "counts": [12, 18]}]}}'
)


def attack_statistics(text: str, seconds: float | None = None) -> tuple[Attempt, ...]:
    """Solve what a file says was published: one attempt, `tables`, with an outcome for records and one for cells.

    >>> told = '{"attributes": {"age": [0, 99]}, "statistics": [{"count": 1, "of": "age", "mean": 41}]}'
    >>> attack_statistics(told)[0].exposed
    1.0
    """
    try:
        told = json.loads(text, parse_float=Decimal)
        records, cells = _parse_records(told), _parse_cells(told)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise DataError("The file does not say what was published", expected=EXPECTED, charge="") from None
    found = []
    if records is not None:
        found.append(find_worlds(*records, seconds=seconds or SECONDS).outcome())
    if cells is not None:
        found.append(_count_small_cells(bound_margins(*cells, seconds=seconds)))
    if not found:
        raise DataError("The file has neither statistics nor cells", expected=EXPECTED, charge="")
    return (Attempt("tables", tuple(found)),)


def _parse_records(told: Mapping[str, Any]) -> tuple[list[Attribute], list[Statistic]] | None:
    if "statistics" not in told:
        return None
    attributes = [Attribute(name, int(low), int(high)) for name, (low, high) in told["attributes"].items()]
    return attributes, [_parse_statistic(one) for one in told["statistics"]]


def _parse_statistic(one: Mapping[str, Any]) -> Statistic:
    where = {name: _parse_limits(limits) for name, limits in one.get("where", {}).items()}
    count = one.get("count")
    mean, median = (None if one.get(name) is None else Decimal(str(one[name])) for name in ("mean", "median"))
    suppressed = int(one.get("suppressed", SMALL))
    return Statistic(where, None if count is None else int(count), str(one.get("of", "")), mean, median, suppressed)


def _parse_limits(limits: Any) -> tuple[int, int]:
    low, high = limits if isinstance(limits, list) else (limits, limits)
    return int(low), int(high)


def _parse_cells(told: Mapping[str, Any]) -> tuple[tuple[int, ...], list[tuple[tuple[int, ...], Any]]] | None:
    if "cells" not in told:
        return None
    names: Sequence[str] = list(told["cells"]["axes"])
    shape = tuple(len(values) for values in told["cells"]["axes"].values())
    margins = [
        (tuple(names.index(name) for name in margin["over"]), np.array(margin["counts"], np.int64))
        for margin in told["cells"]["margins"]
    ]
    return shape, margins


def _count_small_cells(bounds: CellBounds) -> Outcome:
    """People in cells of one or two that the margins give away; whoever knows a row and a column knows the rest."""
    known = bounds.given_away
    few = known & (bounds.high <= SMALL)
    people = int(bounds.total)
    figures = {"cells": int(known.size), "given_away": int(known.sum()), "small": int((few & (bounds.high > 0)).sum())}
    return Outcome(
        "cells", "Solving the published margins", Rate(int(bounds.high[few].sum()), people), 0.0, figures=figures
    )
