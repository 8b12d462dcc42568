"""The risk of published statistics: the records behind counts, means and medians, and the cells behind margins.

A JSON file says what was published. `attributes` names whole-number columns (categories by number) with the least and
the greatest value, `statistics` lists what was printed of groups: `where` (an attribute is one value, or from and to),
`count` (left out where it was suppressed, at most `suppressed`, 2 unless said), and `of` with `mean` and `median` as
printed: a mean with decimals was rounded to the last of them, a whole number is exact, unless `rounded` says to what
it was rounded (such as 1). `cells` is a table of counts: `axes` names the values of each, `margins` lists what was
published `over` some of them, as nested `counts`, null where one was suppressed, and within which limits it then is
(`suppressed`, such as [1, 4]). A file may have either part, or both.

Tables of counts are read as they are printed too: one column of counts, and columns that say what was counted. A row
whose cell of a column is empty or says Total is a sum over that column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.assess.evidence import Attempt
from deniable.attacks.aggregates.cell_bounds import FAR, CellBounds, Margin, bound_margins
from deniable.attacks.aggregates.published_tables import Attribute, Statistic, find_worlds
from deniable.attacks.outcome import Outcome, Rate
from deniable.errors import DataError, ParameterError, nearest

SMALL = 2
"""Cells of so few people are what suppression hides."""
SECONDS = 60.0
"""What finding all worlds, or bounding all cells, may take where nobody says."""
TOTAL = "total"
"""What a cell says in a row that is a sum, in upper or lower case."""
MOST_NAMED = 200
"""So many cells are named at most."""
EXPECTED = (
    '{"attributes": {"age": [0, 115]}, "statistics": [{"count": 7, "of": "age", "mean": 38.0}]}, or '
    '{"cells": {"axes": {"sex": ["F", "M"], "area": ["N", "S"]}, "margins": [{"over": ["sex"], "counts": [12, 18]}]}}'
)


def _keep_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise DataError("The file has a key twice", expected="Each key once", remedy="Leave one out", charge="")
    return dict(pairs)


def attack_statistics(text: str, seconds: float | None = None) -> tuple[Attempt, ...]:
    """Solve what a file says was published: one attempt, `tables`, with an outcome for records and one for cells.

    >>> told = '{"attributes": {"age": [0, 99]}, "statistics": [{"count": 1, "of": "age", "mean": 41}]}'
    >>> attack_statistics(told)[0].exposed
    1.0
    """
    try:
        told = json.loads(text, parse_float=Decimal, object_pairs_hook=_keep_once)
        records, cells = _parse_records(told), _parse_cells(told)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError):
        raise DataError(
            "The file does not say what was published",
            expected=EXPECTED,
            remedy="Write it in one of these forms",
            charge="",
        ) from None
    found = []
    if records is not None:
        worlds = find_worlds(*records, seconds=seconds or SECONDS)
        if worlds.found == 0 and worlds.complete:
            raise _refuse_contradiction("statistics")
        found.append(worlds.outcome())
    if cells is not None:
        found.append(bound_published(cells, seconds or SECONDS))
    if not found:
        raise DataError(
            "The file has neither statistics nor cells", expected=EXPECTED, remedy="Add what was published", charge=""
        )
    return (Attempt("tables", tuple(found)),)


def _refuse_contradiction(what: str) -> DataError:
    return DataError(
        f"The published {what} contradict each other: there is no table that fits all of them",
        expected="Numbers that were computed from the same people",
        remedy="Look for a typing error, or say to what a mean was rounded",
        charge="",
    )


PARTS = ("attributes", "statistics", "cells")
OF_STATISTIC = ("where", "count", "of", "mean", "median", "suppressed", "rounded")
OF_CELLS, OF_MARGIN = ("axes", "margins"), ("over", "counts", "suppressed")


def _refuse_unknown(told: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in told:
        if key not in known:
            raise DataError(f"{where} has an unknown key '{key}'", expected=f"Keys are {', '.join(known)}",
                            remedy=nearest(key, known) or "Leave it out", charge="")  # fmt: skip


def _read_whole(told: Any) -> int:
    """A whole number, as it was written; 5.7 is none."""
    if isinstance(told, bool) or int(told) != Decimal(str(told)):
        raise ValueError
    return int(told)


def _parse_records(told: Mapping[str, Any]) -> tuple[list[Attribute], list[Statistic]] | None:
    _refuse_unknown(told, PARTS, "The file")
    if "statistics" not in told:
        return None
    attributes = [Attribute(name, *_parse_limits(list(limits))) for name, limits in told["attributes"].items()]
    return attributes, [_parse_statistic(one, place) for place, one in enumerate(told["statistics"], start=1)]


def _parse_statistic(one: Mapping[str, Any], place: int) -> Statistic:
    _refuse_unknown(one, OF_STATISTIC, f"Statistic {place}")
    where = {name: _parse_limits(limits) for name, limits in one.get("where", {}).items()}
    count = one.get("count")
    mean, median = (None if one.get(name) is None else Decimal(str(one[name])) for name in ("mean", "median"))
    suppressed = _read_whole(one.get("suppressed", SMALL))
    rounded = None if one.get("rounded") is None else Decimal(str(one["rounded"]))
    told = None if count is None else _read_whole(count)
    if (told or 0) < 0 or suppressed < 0 or not all(each is None or each.is_finite() for each in (mean, median)):
        raise ValueError
    return Statistic(where, told, str(one.get("of", "")), mean, median, suppressed, rounded)


def _parse_limits(limits: Any) -> tuple[int, int]:
    low, high = (_read_whole(limit) for limit in (limits if isinstance(limits, list) else (limits, limits)))
    if low > high:
        raise DataError(f"Limits go from {low} to {high}", expected="The least value first", remedy="Turn them round",
                        charge="")  # fmt: skip
    return low, high


@dataclass(frozen=True, slots=True)
class Cells:
    """Published tables of counts: the values of each column, and what was published over which of them.

    `suppressed` says which counts were withheld; others that have no one value were never to be published.
    """

    axes: Mapping[str, tuple[str, ...]]
    margins: tuple[Margin, ...]
    suppressed: tuple[NDArray[np.bool_], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many values each column has."""
        return tuple(len(values) for values in self.axes.values())


def _parse_cells(told: Mapping[str, Any]) -> Cells | None:
    if "cells" not in told:
        return None
    _refuse_unknown(told["cells"], OF_CELLS, "`cells`")
    axes = {str(name): tuple(map(str, values)) for name, values in told["cells"]["axes"].items()}
    names, margins = list(axes), []
    for place, margin in enumerate(told["cells"]["margins"], start=1):
        _refuse_unknown(margin, OF_MARGIN, f"Margin {place}")
        least, most = parse_suppressed(margin.get("suppressed"))
        margins.append(Margin.of([names.index(name) for name in margin["over"]], margin["counts"], (least, most)))
    return Cells(axes, tuple(margins), tuple(margin.hidden for margin in margins))


def parse_suppressed(told: Any) -> tuple[int, int]:
    """Within which limits a suppressed count lies: at most a number, from one to another, or (None) any.

    >>> parse_suppressed("1-4"), parse_suppressed(4), parse_suppressed(None)[0]
    ((1, 4), (0, 4), 0)
    """
    if told is None:
        return 0, FAR
    parts = told if isinstance(told, list) else str(told).split("-")
    try:
        limits = [int(part) for part in (parts if len(parts) == 2 else (0, *parts))]
        least, most = limits
    except (ValueError, TypeError):
        raise ParameterError(
            "Suppressed counts have no limits", expected="Such as 4, or 1-4", remedy="Say --suppressed 1-4"
        ) from None
    return least, most


def read_published(
    tables: Sequence[pa.Table], counts: str, *, suppressed: tuple[int, int] = (0, FAR), absent: bool = False
) -> Cells:
    """Published tables as margins of one table over all their columns.

    A count that is missing or no whole number was suppressed. A combination that a table does not list counted nobody,
    or was suppressed too where `absent`.
    """
    listed = [part for table in tables for part in _split_totals(table, counts)]
    axes: dict[str, dict[str, int]] = {}
    for part in listed:
        for place, name in enumerate(part.columns):
            known = axes.setdefault(name, {})
            for key in part.rows:
                known.setdefault(key[place], len(known))
    made = [_make_margin(part, axes, suppressed, absent) for part in listed]
    margins, withheld = (tuple(each) for each in zip(*made, strict=True)) if made else ((), ())
    return Cells({name: tuple(known) for name, known in axes.items()}, margins, withheld)


@dataclass(frozen=True, slots=True)
class _Part:
    """Rows of a published table over the same columns, None where a count was suppressed; `whole` if these are all."""

    columns: tuple[str, ...]
    whole: bool
    rows: dict[tuple[str, ...], int | None] = field(default_factory=dict)


def _make_margin(
    part: _Part, axes: Mapping[str, Mapping[str, int]], suppressed: tuple[int, int], absent: bool
) -> tuple[Margin, NDArray[np.bool_]]:
    """A part as a margin, and which of its counts were suppressed; of a sum that is not listed nothing is known."""
    shape = tuple(len(axes[name]) for name in part.columns)
    unlisted = (0, FAR) if not part.whole else suppressed if absent else (0, 0)
    low, high = (np.full(shape, limit, np.int64) for limit in unlisted)
    withheld = np.full(shape, part.whole and absent)
    for key, count in part.rows.items():
        at = tuple(axes[name][cell] for name, cell in zip(part.columns, key, strict=True))
        low[at], high[at] = suppressed if count is None else (count, count)
        withheld[at] = count is None
    return Margin(tuple(list(axes).index(name) for name in part.columns), low, high), withheld


def _split_totals(table: pa.Table, counts: str) -> list[_Part]:
    """The rows of a published table, by the columns over which they are not sums."""
    if counts not in table.column_names:
        known = ", ".join(table.column_names)
        raise ParameterError(
            f"There is no column of counts '{counts}'", expected=f"One of {known}", remedy="Name it with --counts"
        )
    columns = tuple(name for name in table.column_names if name != counts)
    found: dict[tuple[str, ...], _Part] = {}
    cells = [table[name].cast(pa.string()).to_pylist() for name in columns]
    for place, count in enumerate(table[counts].cast(pa.string()).to_pylist()):
        told = {name: column[place] for name, column in zip(columns, cells, strict=True)}
        kept = {name: cell for name, cell in told.items() if cell is not None and cell.strip().lower() != TOTAL}
        part, key = found.setdefault(tuple(kept), _Part(tuple(kept), len(kept) == len(columns))), tuple(kept.values())
        if key in part.rows:
            raise DataError(
                "A published table lists a combination twice",
                expected="One row for each",
                remedy="Leave one of the rows out, or add the column that tells them apart",
                charge="",
            )
        part.rows[key] = _parse_count(count)
    return list(found.values())


def _parse_count(text: str | None) -> int | None:
    """A count as it was printed; None where it was suppressed."""
    try:
        number = Decimal((text or "").replace(",", "").strip())
    except ArithmeticError:
        return None
    return int(number) if number.is_finite() and number == int(number) else None


def bound_published(cells: Cells, seconds: float | None = None, small: int = SMALL) -> Outcome:
    """Bound every cell behind published tables, and name those that are given away.

    People are exposed in cells of at most `small` people that are known exactly, and in suppressed cells that can be
    worked out; whoever knows all columns but one then knows the last.
    """
    bounds = bound_margins(cells.shape, cells.margins, seconds=seconds)
    pinned = _name_cells(cells, range(len(cells.shape)), bounds.low, bounds.high, bounds.low == bounds.high)
    hidden, exposed = [], [_count_exposed(bounds.low, bounds.high, small)]
    for margin, withheld, (low, high) in zip(cells.margins, cells.suppressed, bounds.margins, strict=True):
        hidden += _name_cells(cells, margin.axes, low, high, withheld)
        exposed.append(int(low[withheld & (low == high)].sum()))
    few = bounds.given_away & (bounds.high <= small) & (bounds.high > 0)
    figures = {
        "cells": bounds.low.size, "given_away": int(bounds.given_away.sum()), "small": int(few.sum()),
        "suppressed": len(hidden), "recovered": sum(one["low"] == one["high"] for one in hidden),
        "exact": int(bounds.exact.sum()), "searched": int(bounds.searched.sum()),
        "pinned": [one for one in pinned if one["low"]][:MOST_NAMED], "hidden": hidden[:MOST_NAMED],
    }  # fmt: skip
    people = bounds.total[1] if bounds.total[1] < FAR else bounds.total[0]
    return Outcome(
        "cells", "Solving the published margins", Rate(min(max(exposed), people), people), 0.0, figures=figures,
        warnings=_warn(bounds),
    )  # fmt: skip


def _warn(bounds: CellBounds) -> tuple[str, ...]:
    loose = int((~bounds.exact).sum())
    return (f"the bounds of {loose} cells hold, but better ones may exist",) if loose else ()


def _count_exposed(low: Any, high: Any, small: int) -> int:
    return int(high[(low == high) & (high <= small)].sum())


def _name_cells(cells: Cells, axes: Sequence[int], low: Any, high: Any, chosen: Any) -> list[dict[str, Any]]:
    """The chosen cells by the values of their columns, with their bounds; no limit is None."""
    names = list(cells.axes)
    every = product(*(cells.axes[names[axis]] for axis in axes))
    return [
        {"cell": {names[axis]: value for axis, value in zip(axes, values, strict=True)}, "low": int(least),
         "high": None if most >= FAR else int(most)}
        for values, least, most, told in zip(every, low.flat, high.flat, chosen.flat, strict=True) if told
    ]  # fmt: skip
