"""What is asked of an anonymization, and the table made ready for it: coded, collapsed, with the problem to solve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.classes import reference
from deniable.kanonymity.encode import Coded, Declared, column_of, encode, encode_table
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.lattice import Levels
from deniable.kanonymity.models import AverageRisk, DeltaPresence, KAnonymity, KMap, PrivacyModel
from deniable.kanonymity.quality import Loss, Measure
from deniable.kanonymity.search.problem import Problem
from deniable.kanonymity.tuples import Collapsed, collapse, with_population
from deniable.policy.schema import Spec

Condition = PrivacyModel | AverageRisk


@dataclass(frozen=True, slots=True)
class Request:
    """Which columns play which role, which models must hold, how many rows may go, and what quality means.

    `suppress` is the share of rows that may be suppressed. `lowest` and `highest` limit the levels of named columns.
    """

    quasi_identifiers: tuple[str, ...]
    models: tuple[Condition, ...] = (KAnonymity(5),)
    sensitive: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    suppress: float = 0.0
    measure: Measure = field(default_factory=Loss)
    lowest: Mapping[str, int] = field(default_factory=dict)
    highest: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.quasi_identifiers:
            raise ParameterError("No quasi-identifier is named", remedy="Name the columns an intruder may know")
        if not 0 <= self.suppress <= 1:
            raise ParameterError(f"The share to suppress is {self.suppress}", expected="A share between 0 and 1")
        if not self.models:
            raise ParameterError("No privacy model is asked", expected="At least one, such as k-anonymity with k = 5")
        roles = [*self.quasi_identifiers, *self.identifiers]
        if len(set(roles)) < len(roles):
            raise ParameterError("A column is named twice among quasi-identifiers and identifiers")
        needed = {str(column) for model in self.models if (column := getattr(model, "column", None))}
        if absent := sorted(needed - set(self.sensitive)):
            raise ParameterError(
                f"A privacy model is about '{absent[0]}', which is not among the sensitive columns",
                expected=f"Sensitive columns: {', '.join(self.sensitive) or 'none'}",
            )


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A table ready to be searched: its coded columns and the problem they pose."""

    request: Request
    columns: tuple[Coded, ...]
    sensitive: tuple[Coded, ...]
    collapsed: Collapsed
    problem: Problem

    def absolute(self, levels: Levels) -> Levels:
        """Levels of the whole hierarchies, where a request allows only some of them."""
        lowest = (self.request.lowest.get(c.hierarchy.column, 0) for c in self.columns)
        return tuple(level + first for level, first in zip(levels, lowest, strict=True))


def prepare(
    table: pa.Table,
    request: Request,
    hierarchies: Mapping[str, Declared] | None = None,
    *,
    population: pa.Table | None = None,
    counts: str | None = None,
) -> Prepared:
    """Code a table and pose the problem; `counts` names a column that says how many rows each row stands for."""
    declared = dict(hierarchies or {})
    if population is not None:
        table, population, declared = _one_domain(table, population, request, declared)
    columns = encode_table(table, request.quasi_identifiers, declared)
    # A sensitive column needs no levels; only a declared hierarchy gives one, for distances along it.
    sensitive = tuple(_sensitive(table, name, declared.get(name)) for name in request.sensitive)
    weights = table[counts].to_numpy() if counts else None
    sizes = [c.hierarchy.size for c in columns]
    held = [(c.codes, c.hierarchy.size) for c in sensitive]
    collapsed = collapse([c.codes for c in columns], sizes, held, weights)
    _refuse_too_few(collapsed.tuples.rows, request)
    tuples = collapsed.tuples
    if population is not None:
        people = encode_table(population, request.quasi_identifiers, {c.hierarchy.column: c.hierarchy for c in columns})
        known = collapse([c.codes for c in people], sizes).tuples
        tuples = with_population(tuples, known.codes, known.counts, sizes)
    references = {
        name: reference(held.total(), coded.hierarchy if declared.get(name) is not None else None)
        for name, held, coded in zip(request.sensitive, tuples.sensitive, sensitive, strict=True)
    }
    problem = Problem(
        tuples,
        tuple(_limited(c.hierarchy, request) for c in columns),
        tuple(model for model in request.models if not isinstance(model, AverageRisk)),
        request.measure,
        int(np.floor(request.suppress * tuples.rows + 1e-9)),
        request.sensitive,
        references,
        tuple(model for model in request.models if isinstance(model, AverageRisk)),
    )
    return Prepared(request, columns, sensitive, collapsed, problem)


def _sensitive(table: pa.Table, name: str, declared: Declared) -> Coded:
    return encode(name, column_of(table, name), declared or Spec("order", {"sizes": (2,)}))


def _limited(whole: Hierarchy, request: Request) -> Hierarchy:
    """The levels that a request allows."""
    return whole.between(request.lowest.get(whole.column, 0), request.highest.get(whole.column, whole.height - 1))


def _one_domain(
    table: pa.Table, population: pa.Table, request: Request, declared: dict[str, Declared]
) -> tuple[pa.Table, pa.Table, dict[str, Declared]]:
    """Hierarchies over the values of both tables, where they are built from values."""
    both = pa.concat_tables([t.select(list(request.quasi_identifiers)) for t in (table, population)])
    coded = encode_table(both, request.quasi_identifiers, declared)
    return table, population, {**declared, **{c.hierarchy.column: c.hierarchy for c in coded}}


def _refuse_too_few(rows: int, request: Request) -> None:
    """k larger than the table can be met by no generalization; say what could."""
    for model in request.models:
        if isinstance(model, KAnonymity) and model.k > rows and (rows == 0 or request.suppress < 1):
            raise Infeasible(
                f"k is {model.k}, and the table has {rows} rows",
                expected=f"k is at most {rows}" if rows else "A table with rows",
                remedy="Ask for a smaller k, or add rows",
            )


def needs_population(models: tuple[Condition, ...]) -> bool:
    """Whether a model compares the table with the population it was drawn from."""
    return any(isinstance(model, KMap | DeltaPresence) for model in models)
