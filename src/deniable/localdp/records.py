"""A table made deniable record by record: every column that leaves is randomized as if each person had done it.

Categories go through k-ary randomized response, bounded numbers through Laplace noise of their whole range, so the
released table looks like the original and each row of it is epsilon-private on its own. Declared nulls are an answer
like any other: one more category, or, beside a number, a randomized "was it given".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError, nearest
from deniable.localdp import wire
from deniable.localdp.direct import Direct
from deniable.localdp.numeric.laplace import BoundedLaplace
from deniable.localdp.numeric.scale import Scale
from deniable.policy.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class CategoryPlan:
    """A column of categories: its labels (None stands for missing) and the randomizer over them."""

    name: str
    labels: tuple[str | int | bool | None, ...]
    protocol: Direct


@dataclass(frozen=True, slots=True)
class NumberPlan:
    """A column of numbers: its randomizer and, where values may be missing, that of "was it given"."""

    name: str
    protocol: BoundedLaplace
    given: Direct | None = None


ColumnPlan = CategoryPlan | NumberPlan


@dataclass(frozen=True, slots=True)
class RecordPlan:
    """Which columns leave, and how.

    **Guarantee**: epsilon-local DP of each record (replace one row), epsilon the sum over columns.
    **Utility**: counts and means of any column, and joint ones, by inverting the randomizers (see recover).
    **Runtime**: one draw a value.
    """

    columns: tuple[ColumnPlan, ...]
    epsilon: Fraction

    def column(self, name: str) -> ColumnPlan:
        """The plan of one column."""
        for column in self.columns:
            if column.name == name:
                return column
        names = [column.name for column in self.columns]
        raise ParameterError(
            f"column '{name}' was not randomized",
            expected=f"There are: {', '.join(names)}",
            remedy=nearest(name, names),
        )


def plan(
    schema: TableSchema,
    epsilon: Fraction,
    names: Sequence[str] | None = None,
    own: Mapping[str, Fraction] | None = None,
) -> RecordPlan:
    """A plan that spends epsilon on each record: the columns' own parts, and even parts of what is left.

    Without names, every column with declared categories or numeric bounds leaves; all others stay behind.
    """
    chosen = [_declared(schema, name) for name in names] if names else [c for c in schema.columns if _randomizable(c)]
    if not chosen:
        raise ParameterError(
            f"no column of '{schema.name}' can be randomized",
            expected="Columns with declared categories, or numbers with bounds",
            remedy="Declare categories or between in the policy",
        )
    given = dict(own or {})
    open_ = [column.name for column in chosen if column.name not in given]
    left = epsilon - sum(given.values(), Fraction(0))
    if left < 0 or (open_ and left <= 0):
        raise ParameterError("the columns' own epsilons use up the whole", remedy="Raise --epsilon or lower theirs")
    parts = given | {name: left / len(open_) for name in open_}
    return RecordPlan(tuple(_plan_column(column, parts[column.name]) for column in chosen), epsilon)


def _randomizable(column: Column) -> bool:
    return column.categories is not None or (column.bounds is not None and column.type.numeric)


def _declared(schema: TableSchema, name: str) -> Column:
    column = schema.column(name)
    if column is None:
        expected = f"It has: {', '.join(schema.names)}"
        raise ParameterError(
            f"'{schema.name}' has no column '{name}'", expected=expected, remedy=nearest(name, schema.names)
        )
    if not _randomizable(column):
        raise ParameterError(
            f"column '{name}' has neither categories nor numeric bounds", remedy="Declare them in the policy"
        )
    return column


def _plan_column(column: Column, epsilon: Fraction) -> ColumnPlan:
    if column.categories is not None:
        labels = (*column.categories, None) if column.nullable else column.categories
        return CategoryPlan(column.name, labels, Direct.calibrated(len(labels), epsilon))
    assert column.bounds is not None
    lower, upper = column.bounds.lower, column.bounds.upper
    if not isinstance(lower, int | Fraction) or not isinstance(upper, int | Fraction):
        raise ParameterError(f"column '{column.name}' has bounds that are not numbers")
    scale = Scale.between(lower, upper, column.bounds.step)
    if not column.nullable:
        return NumberPlan(column.name, BoundedLaplace.calibrated(scale, epsilon))
    return NumberPlan(column.name, BoundedLaplace.calibrated(scale, epsilon / 2), Direct.calibrated(2, epsilon / 2))


def randomize(made: RecordPlan, table: pa.Table, entropy: Entropy = SYSTEM) -> pa.Table:
    """The table with every planned column randomized, rows in their order, and nothing else."""
    arrays: dict[str, pa.Array] = {}
    for column in made.columns:
        if column.name not in table.column_names:
            raise DataError(f"the table has no column '{column.name}'", remedy="Check the policy against the table")
        values = table.column(column.name).combine_chunks()
        arrays |= _randomized(column, values, entropy)
    return pa.table(arrays)


def _randomized(column: ColumnPlan, values: pa.Array, entropy: Entropy) -> dict[str, pa.Array]:
    if isinstance(column, CategoryPlan):
        (told,) = column.protocol.randomize(codes(column, values), entropy)
        return {column.name: pa.array(column.labels).take(pa.array(told))}
    present = np.asarray(pc.is_valid(values))
    middle = (float(column.protocol.scale.lower) + float(column.protocol.scale.upper)) / 2
    if not present.all() and column.given is None:
        raise DataError(f"column '{column.name}' has missing values", remedy="Declare it nullable in the policy")
    numbers = pc.fill_null(pc.cast(values, pa.float64()), middle).to_numpy(zero_copy_only=False)
    positions = column.protocol.scale.position_of(numbers)
    noisy = column.protocol.positions(column.protocol.randomize(positions, entropy))
    told_values = {column.name: pa.array(column.protocol.scale.value_of(noisy))}
    if column.given is None:
        return told_values
    (given,) = column.given.randomize(present.astype(np.int64), entropy)
    return told_values | {given_name(column.name): pa.array(given == 1)}


def given_name(name: str) -> str:
    """The column that tells, through randomized response, whether a number was given."""
    return f"{name}_given"


def codes(column: CategoryPlan, values: pa.Array) -> NDArray[np.int64]:
    """Values as indexes of labels; what is not a declared category counts as missing."""
    known = [label for label in column.labels if label is not None]
    text = pc.cast(values, pa.string())
    found = pc.index_in(text, value_set=pa.array([_text(label) for label in known], pa.string()))
    if None not in column.labels and found.null_count:
        raise DataError(
            f"column '{column.name}' has values that are missing or outside its declared categories",
            remedy="Declare the categories, or let the column be nullable",
        )
    indexes: NDArray[np.int64] = pc.fill_null(found, len(known)).to_numpy(zero_copy_only=False).astype(np.int64)
    return indexes


def _text(label: str | int | bool | None) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def described(made: RecordPlan) -> dict[str, Any]:
    """The plan as plain values, for the statement beside a released table."""
    columns = {}
    for column in made.columns:
        entry: dict[str, Any] = {"recipe": wire.recipe(column.protocol)}
        if isinstance(column, CategoryPlan):
            entry["labels"] = list(column.labels)
        elif column.given is not None:
            entry["given"] = wire.recipe(column.given)
        columns[column.name] = entry
    return {"columns": columns, "epsilon": str(made.epsilon)}


def planned(document: Mapping[str, Any]) -> RecordPlan:
    """The plan that a statement describes."""
    try:
        columns = tuple(_read(name, entry) for name, entry in document["columns"].items())
        return RecordPlan(columns, Fraction(document["epsilon"]))
    except (KeyError, TypeError, AttributeError):
        raise DataError(
            "the statement does not describe a randomized table", remedy="Name a file that `deniable randomize` wrote"
        ) from None


def _read(name: str, entry: Mapping[str, Any]) -> ColumnPlan:
    protocol = wire.protocol_of(entry["recipe"])
    if "labels" in entry:
        return CategoryPlan(name, tuple(entry["labels"]), protocol)
    return NumberPlan(name, protocol, wire.protocol_of(entry["given"]) if "given" in entry else None)
