"""Tabulations: plans of four operators, from a private table to counts by area and cell that add up.

A plan selects rows, partitions them into areas and cells, measures margins of the cells with noise, and infers whole
numbers from what was measured. Only `Measure` costs anything. Everything that the price depends on is declared: the
areas and cells are public, and so is which numbers are published exactly.

>>> from deniable.policy.budget import budget
>>> plan = Tabulation("adults", "people", budget(rho="1/2")) | Select("age >= 18")
>>> plan = plan | Partition(("sex",), Areas(("state", "town"), "town", "towns")) | Measure() | Infer({"state": ()})
>>> plan.levels, plan.margins, plan.invariants
(('all', 'state', 'town'), (((), Fraction(1, 1)), (('sex',), Fraction(1, 1))), {'state': ()})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.policy.budget import Amount, Budget, PureDP, budget, exact, refuse_extreme
from deniable.policy.schema import Column, ColumnType, Frozen, TableSchema

if TYPE_CHECKING:
    from deniable.policy.check.tree_checker import Section
    from deniable.policy.yaml_tree import Mistakes

ROOT = "all"
"""The level above all others: everybody."""
COUNT = "count"
"""The column of a published file that holds the numbers."""
MOST_CELLS = 4096
"""Cells of one area."""


def _list_names(names: object, what: str, least: int = 0) -> tuple[str, ...]:
    """Names of columns or levels as a plan holds them; refuses what a policy could not say."""
    told = tuple(names) if isinstance(names, list | tuple) else None
    if told is None or not all(isinstance(each, str) and each for each in told) or len(set(told)) < len(told):
        raise ParameterError(f"{what} are no list of different names", expected="Names, each once: ('sex', 'age')")
    if len(told) < least:
        raise ParameterError(
            f"{what} are not named", expected="One column at least",
            remedy="Name a column with few values; Measure() tells the total of each area",
        )  # fmt: skip
    return told


def _list_wholes(numbers: object, what: str) -> tuple[int, ...]:
    told = tuple(numbers) if isinstance(numbers, list | tuple) else None
    if told is None or any(isinstance(each, bool) or not isinstance(each, int) for each in told):
        raise ParameterError(f"{what} are no list of whole numbers", expected="Whole numbers that rise: (0, 18, 65)")
    return told


def _read_entries(entries: object, what: str) -> Mapping[str, Any]:
    if not isinstance(entries, Mapping) or not all(isinstance(name, str) for name in entries):
        raise ParameterError(f"{what} are not given by name", expected="A dict whose keys are names")
    return entries


def _read_positive(amount: Amount, what: str) -> Fraction:
    found = exact(amount, what)
    if found <= 0:
        raise ParameterError(f"{what} is not above 0", expected="A number above 0")
    return found


@dataclass(frozen=True, slots=True)
class Areas:
    """A tree of areas: its levels from large to small, and the column of the private table with the smallest ones.

    The areas are listed in a public `table` that has a column for each level, or one with codes of which the first
    `prefixes` characters name the larger areas. Without a table they are the declared categories of `column`.
    """

    levels: tuple[str, ...]
    column: str
    table: str = ""
    prefixes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", _list_names(self.levels, "the levels of areas"))
        object.__setattr__(self, "prefixes", _list_wholes(self.prefixes, "prefixes"))


@dataclass(frozen=True, slots=True)
class Select:
    """The rows that count, as a condition of SQL, and the share of all units that a secret sample takes. Free.

    A sample is one in a whole number of people. It is drawn anew for each release and never shown, so the noise may be
    smaller for the same epsilon; numbers are weighted, and their errors have the sample's in them.
    """

    where: str = ""
    sample: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if not isinstance(self.where, str):
            raise ParameterError("a condition is not text", expected="A condition of SQL: Select('age >= 18')")
        object.__setattr__(self, "sample", _read_positive(self.sample, "a sample"))
        if self.sample > 1:
            raise ParameterError("a sample is above 1", expected="The share of all units that is counted: 0.1")


@dataclass(frozen=True, slots=True)
class Partition:
    """Areas and cells: every combination of values of the columns, numbers cut at `breaks`. Free."""

    cells: tuple[str, ...]
    areas: Areas | None = None
    breaks: Mapping[str, tuple[int, ...]] = field(default_factory=Frozen)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", _list_names(self.cells, "the cells of a partition", least=1))
        if not isinstance(self.areas, Areas | None):
            raise ParameterError("the areas of a partition are none", expected="Areas(levels, column, table), or None")
        breaks = _read_entries(self.breaks, "breaks").items()
        cut = {name: _list_wholes(numbers, f"the breaks of '{name}'") for name, numbers in breaks}
        object.__setattr__(self, "breaks", Frozen(cut))


@dataclass(frozen=True, slots=True)
class Measure:
    """One margin of the cells, measured with noise in every area; its weight says how much of the budget it gets."""

    by: tuple[str, ...] = ()
    weight: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", _list_names(self.by, "the columns of a margin"))
        object.__setattr__(self, "weight", _read_positive(self.weight, "the weight of a margin"))


@dataclass(frozen=True, slots=True)
class Infer:
    """Whole non-negative numbers that add up. `invariants` are published exactly: by level, the columns of a margin.

    `levels` are the weights of the levels in the budget; without them they are chosen by expected error.
    """

    invariants: Mapping[str, tuple[str, ...]] = field(default_factory=Frozen)
    levels: Mapping[str, Fraction] | None = None

    def __post_init__(self) -> None:
        exactly = _read_entries(self.invariants, "invariants").items()
        told = {level: _list_names(by, f"the invariants of '{level}'") for level, by in exactly}
        object.__setattr__(self, "invariants", Frozen(told))
        if self.levels is not None:
            stated = _read_entries(self.levels, "the weights of levels").items()
            weights = {level: _read_positive(weight, f"the weight of '{level}'") for level, weight in stated}
            object.__setattr__(self, "levels", Frozen(weights))


Operator = Select | Partition | Measure | Infer


@dataclass(frozen=True, slots=True)
class Tabulation:
    """A plan: a private table, what it may cost in all, and its operators; `|` adds one."""

    name: str
    table: str
    allowance: Budget
    operators: tuple[Operator, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.table, str):
            raise ParameterError("a plan or its table has no name", expected="Tabulation('adults', 'people', budget)")
        if not isinstance(self.allowance, Budget):
            raise ParameterError("a plan has no budget", expected="budget(epsilon=1), or budget(rho=0.5)")
        if not all(isinstance(each, Operator) for each in self.operators):
            raise ParameterError(
                f"plan '{self.name}' has a part that is not an operator", expected="Select, Partition, Measure or Infer"
            )

    def __or__(self, operator: Operator) -> Tabulation:
        return replace(self, operators=(*self.operators, operator))

    @property
    def where(self) -> str:
        """All conditions together."""
        listed = [each.where for each in self.operators if isinstance(each, Select) and each.where]
        return listed[0] if len(listed) == 1 else " AND ".join(f"({each})" for each in listed)

    @property
    def sample(self) -> Fraction:
        """The share of all units that is counted."""
        found = [each.sample for each in self.operators if isinstance(each, Select) and each.sample < 1]
        if len(found) > 1:
            raise ParameterError(f"tabulation '{self.name}' draws {len(found)} samples", expected="One sample at most")
        return found[0] if found else Fraction(1)

    @property
    def partition(self) -> Partition:
        """Areas and cells; a plan has one such operator."""
        found = [each for each in self.operators if isinstance(each, Partition)]
        if len(found) != 1:
            raise ParameterError(
                f"tabulation '{self.name}' has {len(found)} partitions", expected="One Partition(cells, areas)"
            )
        return found[0]

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels from everybody to the smallest areas."""
        areas = self.partition.areas
        return (ROOT,) if areas is None else (ROOT, *areas.levels)

    @property
    def margins(self) -> tuple[tuple[tuple[str, ...], Fraction], ...]:
        """What is measured, each once, with its weight; all cells are always measured, and stand last."""
        cells = self.partition.cells
        found: dict[tuple[str, ...], Fraction] = {}
        for each in self.operators:
            if isinstance(each, Measure):
                by = tuple(column for column in cells if column in each.by)
                if len(by) != len(each.by):
                    raise ParameterError(
                        f"tabulation '{self.name}' measures what is not a margin of its cells",
                        expected=f"Columns among {', '.join(cells)}",
                    )
                found[by] = found.get(by, Fraction(0)) + each.weight
        if not found:
            found[()] = Fraction(1)
        weight = found.pop(cells, Fraction(1))
        return (*found.items(), (cells, weight))

    @property
    def _infer(self) -> Infer:
        found = [each for each in self.operators if isinstance(each, Infer)]
        if len(found) > 1:
            raise ParameterError(f"tabulation '{self.name}' infers twice", expected="One Infer(...) at most")
        return found[0] if found else Infer()

    @property
    def weights(self) -> Mapping[str, Fraction] | None:
        """The weights of the levels; None where they are chosen."""
        return self._infer.levels

    @property
    def invariants(self) -> dict[str, tuple[str, ...]]:
        """What is published exactly on which level."""
        return dict(self._infer.invariants)

    def find_fixed(self) -> tuple[tuple[str, ...] | None, ...]:
        """For each level the margin that is exact there, stated or because a level below it has one.

        An exact margin of a level has at least the columns of those below it: else two margins that cross would both be
        exact in one area, and whole numbers that meet both and add up need not exist.
        """
        found: list[tuple[str, ...] | None] = []
        below: tuple[str, ...] | None = None
        for level in reversed(self.levels):
            stated = self.invariants.get(level)
            if stated is not None and below is not None and not set(below) <= set(stated):
                raise ParameterError(
                    f"the invariants of level '{level}' leave out columns of those of a smaller level",
                    expected="On each level at least the columns of the levels below it, or no entry",
                )
            below = below if stated is None else stated
            found.insert(0, below)
        return tuple(found)


def build_tabulations(entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> tuple[Tabulation, ...]:
    """The tabulations that a policy declares; one with a mistake is left out, and the mistake is told."""
    found = [build_tabulation(name, entry.section(name), tables, mistakes) for name in entry]
    return tuple(each for each in found if each is not None)


def build_tabulation(
    name: str, entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes
) -> Tabulation | None:
    """One tabulation from its entry."""
    if any(key not in entry for key in ("table", "cells")) or not ("epsilon" in entry or "rho" in entry):
        return None  # the layout has told what is missing
    try:
        whole = budget(entry.get("epsilon", None), entry.get("delta", 0), entry.get("rho", None))
        plan = Tabulation(name, entry.get("table", ""), whole)
        if "where" in entry or "sample" in entry:
            plan = plan | Select(entry.get("where", ""), entry.get("sample", Fraction(1)))
        plan = plan | Partition(entry.get("cells", ()), _build_areas(entry), entry.get("breaks", Frozen()))
        for each in entry.get("measure", ()):
            plan = plan | Measure(each.get("by", ()), each.get("weight", Fraction(1)))
        exactly = {level: () if by == "total" else by for level, by in entry.get("invariants", {}).items()}
        plan = plan | Infer(Frozen(exactly), entry.get("levels", None))
        check_tabulation(plan, tables)
    except ParameterError as refusal:
        mistakes.add(entry.place, refusal.happened, refusal.expected, refusal.remedy)
        return None
    return plan


def _build_areas(entry: Section) -> Areas | None:
    if "areas" not in entry:
        return None
    areas = entry.section("areas")
    levels = areas.get("levels", ())
    column = areas.get("column", levels[-1] if levels else "")
    return Areas(levels, column, areas.get("table", ""), areas.get("prefixes", ()))


def check_tabulation(plan: Tabulation, tables: tuple[TableSchema, ...]) -> None:
    """Refuse a plan that does not fit the tables; nothing of it depends on a row."""
    table = next((each for each in tables if each.name == plan.table), None)
    if table is None or table.public:
        raise ParameterError(f"there is no private table '{plan.table}'", expected="A private table of the policy")
    refuse_extreme(plan.allowance)
    partition = plan.partition
    cells = 1
    for name in partition.cells:
        cells *= len(list_labels(_find_column(table, name), partition.breaks.get(name, ())))
    if cells > MOST_CELLS:
        raise ParameterError(
            f"there are {cells:,} cells in each area", expected=f"At most {MOST_CELLS:,}",
            remedy="Cut numbers at fewer breaks, or leave out a column",
        )  # fmt: skip
    shared = [name for name in (*plan.levels[1:], COUNT) if name in partition.cells]
    if shared:
        raise ParameterError(
            f"'{shared[0]}' names two columns of what is published",
            expected=f"Names of levels and cells that differ from one another and from '{COUNT}'",
        )
    unknown = [name for name in partition.breaks if name not in partition.cells]
    if unknown:
        raise ParameterError(f"breaks are given for '{unknown[0]}', which is not a cell", expected="Columns of cells")
    _check_areas(partition.areas, table, tables)
    for words, names in (("invariants", plan.invariants), ("levels", plan.weights or {})):
        wrong = [name for name in names if name not in plan.levels]
        if wrong:
            raise ParameterError(
                f"{words} name a level '{wrong[0]}' that is not there", expected=f"Levels: {', '.join(plan.levels)}"
            )
    if plan.sample < 1 and (plan.invariants or not isinstance(plan.allowance, PureDP)):
        raise ParameterError(
            "a secret sample goes with epsilon alone, and without invariants",
            expected="epsilon, no delta and no rho: what a sample saves is proven for those",
            remedy="Drop sample, or state epsilon alone",
        )
    for by in plan.invariants.values():
        if not set(by) <= set(partition.cells):
            raise ParameterError("an invariant is of a column that is not a cell", expected="Columns of cells")
    _ = plan.margins, plan.find_fixed()


def _find_column(table: TableSchema, name: str) -> Column:
    column = table.column(name)
    if column is None:
        raise ParameterError(f"'{table.name}' has no column '{name}'", expected=f"Columns: {', '.join(table.names)}")
    return column


def _check_areas(areas: Areas | None, table: TableSchema, tables: tuple[TableSchema, ...]) -> None:
    if areas is None:
        return
    column = _find_column(table, areas.column)
    if not areas.levels or ROOT in areas.levels:
        raise ParameterError("the levels of areas are not told apart", expected=f"Different names, none of them {ROOT}")
    if areas.prefixes and len(areas.prefixes) != len(areas.levels) - 1:
        raise ParameterError(
            f"there are {len(areas.prefixes)} prefixes for {len(areas.levels)} levels",
            expected="One prefix for each level but the smallest, which is the whole code",
        )
    if areas.prefixes and (list(areas.prefixes) != sorted(set(areas.prefixes)) or areas.prefixes[0] < 1):
        raise ParameterError("prefixes do not rise", expected="Numbers of characters, rising: [2, 5]")
    listed = next((each for each in tables if each.name == areas.table), None)
    if areas.table and (listed is None or not listed.public):
        raise ParameterError(
            f"there is no public table '{areas.table}'", expected="A public table that lists all areas"
        )
    if not areas.table and (column.categories is None or (len(areas.levels) > 1 and not areas.prefixes)):
        raise ParameterError(
            "the areas are not listed", expected="table: a public table with a column for each level",
            remedy="Or declare the categories of the column, and prefixes for the larger areas",
        )  # fmt: skip


def list_labels(column: Column, breaks: tuple[int, ...] = ()) -> tuple[str | int | bool, ...]:
    """The values of a cell's column as they are published; bounded whole numbers are single values or ranges.

    >>> from deniable.policy.schema import Bounds
    >>> list_labels(Column("age", ColumnType.INTEGER, bounds=Bounds(0, 99)), (0, 18, 65))
    ('0-17', '18-64', '65-99')
    """
    if column.categories is not None and not breaks:
        return column.categories
    if column.type is ColumnType.BOOLEAN and not breaks:
        return (False, True)
    bounds = column.bounds
    whole = column.type is ColumnType.INTEGER and bounds is not None and bounds.step == 1
    if bounds is None or not whole or not isinstance(bounds.lower, int) or not isinstance(bounds.upper, int):
        raise ParameterError(
            f"column '{column.name}' has no list of values that a cell could be",
            expected="categories, a boolean, or a whole number with bounds",
            remedy="Declare categories: [...], or between: [0, 99] with breaks",
        )
    if not breaks:
        if bounds.upper - bounds.lower >= MOST_CELLS:
            raise ParameterError(f"'{column.name}' has too many values", remedy="Cut it at breaks")
        return tuple(range(bounds.lower, bounds.upper + 1))
    if breaks[0] != bounds.lower or breaks[-1] > bounds.upper or list(breaks) != sorted(set(breaks)):
        raise ParameterError(
            f"the breaks of '{column.name}' do not fit its bounds",
            expected=f"Rising numbers that begin at {bounds.lower} and end at most at {bounds.upper}",
        )
    ends = (*(after - 1 for after in breaks[1:]), bounds.upper)
    return tuple(str(low) if low == high else f"{low}-{high}" for low, high in zip(breaks, ends, strict=True))


def widen_bounds(table: TableSchema, cells: tuple[str, ...]) -> tuple[TableSchema, dict[str, tuple[int, int]]]:
    """The table with a step more on both ends of the cells' numbers, and the bounds that were declared.

    A value outside its bounds is read as the nearest one inside them, which then is that step. It can be left out.
    """
    columns, ends = [], {}
    for column in table.columns:
        bounds = column.bounds
        if bounds is None or column.name not in cells or column.categories is not None:
            columns.append(column)
            continue
        low, high = bounds.lower, bounds.upper
        assert isinstance(low, int)  # list_labels refuses others
        assert isinstance(high, int)
        columns.append(replace(column, bounds=replace(bounds, lower=low - 1, upper=high + 1)))
        ends[column.name] = (low, high)
    return replace(table, columns=tuple(columns)), ends


def read_tabulation(text: str, source: str, tables: tuple[TableSchema, ...]) -> Tabulation:
    """A plan in a file of its own: YAML or JSON with the keys that a tabulation has in a policy, and its name."""
    from deniable.policy.check.tree_checker import Checker, Section
    from deniable.policy.layout.policy_file import TABULATION
    from deniable.policy.yaml_tree import Mistakes, parse_tree

    mistakes = Mistakes(source)
    root = parse_tree(text, mistakes)
    found = Checker(mistakes).check(TABULATION, root, "the plan") if root is not None else None
    mistakes.check()
    plan = build_tabulation(source, Section(found), tables, mistakes)
    mistakes.check()
    assert plan is not None
    return plan
