"""What is asked of an anonymization: columns, privacy models, limits; and the table prepared for the search.

A request is made of conditions. They are read from the specifications of a policy, and written as specifications that a
recoding keeps. Preparing codes the table, collapses it to distinct tuples and states the problem to solve."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from deniable.errors import Infeasible, ParameterError, nearest
from deniable.kanonymity.encoding import (
    NAME_THEM,
    Coded,
    Collapsed,
    Counts,
    Declared,
    Held,
    add_population,
    collapse,
    column_of,
    encode_column,
    encode_table,
    factorize,
    number_rows,
    unify_spellings,
)
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.models import (
    AverageRisk,
    BetaLikeness,
    Closeness,
    DeltaDisclosure,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    PrivacyModel,
    RecursiveDiversity,
)
from deniable.kanonymity.models.base import Reference, build_reference, name_pairs, name_weights
from deniable.kanonymity.quality import Loss, Measure
from deniable.kanonymity.search.problem import Levels, Problem
from deniable.policy.schema import Anonymize, Spec

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

    @property
    def person(self) -> str | None:
        """The column that tells people apart, where a model counts people; it is counted, and never kept."""
        return next((str(name) for model in self.models if (name := getattr(model, "person", None))), None)

    def __post_init__(self) -> None:
        if not self.quasi_identifiers:
            raise ParameterError("No quasi-identifier is named", remedy=NAME_THEM)
        if not 0 <= self.suppress <= 1:
            raise ParameterError(f"The share to suppress is {self.suppress}", expected="A share between 0 and 1")
        if not self.models:
            raise ParameterError("No privacy model is asked", expected="At least one, such as k-anonymity with k = 5")
        roles = [*self.quasi_identifiers, *self.identifiers]
        if len(set(roles)) < len(roles):
            raise ParameterError(
                "A column is named twice among quasi-identifiers and identifiers",
                remedy="Name it once: as a quasi-identifier it leaves coarser, as an identifier not at all",
            )
        if len({name for model in self.models if (name := getattr(model, "person", None))}) > 1:
            raise ParameterError("Privacy models name different columns of people", expected="One column for all")
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
    held: tuple[Held, ...]
    """What is counted of every row, in the order of the problem's histograms."""

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
    columns = (
        encode_table(table, request.quasi_identifiers, declared)
        if population is None
        else _encode_with_population(table, population, request, declared)
    )
    # A sensitive column needs no levels; only a declared hierarchy gives one, for distances along it.
    sensitive = tuple(_encode_sensitive(table, name, declared.get(name)) for name in request.sensitive)
    weights = table[counts].to_numpy() if counts else None
    sizes = [c.hierarchy.size for c in columns]
    trees = {n: c.hierarchy for n, c in zip(request.sensitive, sensitive, strict=True) if declared.get(n) is not None}
    people = _hold_people(table, request, sensitive, weights, trees)
    held = (*(Held(c.codes, c.hierarchy.size) for c in sensitive), *(each for each, _ in people.values()))
    collapsed = collapse([c.codes for c in columns], sizes, held, weights)
    refuse_too_few(collapsed.tuples.rows, request)
    tuples = collapsed.tuples
    if population is not None:
        others = encode_table(population, request.quasi_identifiers, {c.hierarchy.column: c.hierarchy for c in columns})
        known = collapse([c.codes for c in others], sizes).tuples
        tuples = add_population(tuples, known.codes, known.counts, sizes)
    references = {
        name: build_reference(told.total(), trees.get(name), missing=_find_missing(coded))
        for name, told, coded in zip(request.sensitive, tuples.sensitive, sensitive, strict=False)
    } | {name: reference for name, (_, reference) in people.items()}
    problem = Problem(
        tuples,
        tuple(_limit_levels(c.hierarchy, request) for c in columns),
        tuple(model for model in request.models if not isinstance(model, AverageRisk)),
        request.measure,
        int(np.floor(request.suppress * tuples.rows + 1e-9)),
        (*request.sensitive, *people),
        references,
        tuple(model for model in request.models if isinstance(model, AverageRisk)),
    )
    return Prepared(request, columns, sensitive, collapsed, problem, held)


def _hold_people(
    table: pa.Table,
    request: Request,
    sensitive: tuple[Coded, ...],
    rows: Counts | None,
    trees: Mapping[str, Hierarchy],
) -> dict[str, tuple[Held, Reference]]:
    """What models count of people, by the name of its histograms: people, their values, and rows by their weight."""
    if request.person is None:
        return {}
    person = code_people(column_of(table, request.person))
    none = Reference(np.zeros(0), ())
    made = {name_pairs(request.person): (person, none)}
    totals = np.bincount(person.codes, weights=rows, minlength=person.size).astype(np.int64)
    parts = weigh_rows(totals)
    values = {n: Held(c.codes, c.hierarchy.size) for n, c in zip(request.sensitive, sensitive, strict=True)}
    missing = {n: _find_missing(c) for n, c in zip(request.sensitive, sensitive, strict=True)}
    for model in request.models:
        column = getattr(model, "column", None)
        if getattr(model, "person", None) is None or column is None:
            continue
        if isinstance(model, DistinctDiversity):
            made[name_pairs(column)] = pair_with_people(values[column], person, missing[column])
        else:
            weighed = values[column]._replace(weight=parts[person.codes])
            total = weighed.tally(np.zeros(len(person.codes), np.int64), 1, rows).total()
            heaviest = int(parts[totals > 0].max(initial=1))
            reference = build_reference(total, trees.get(column), heaviest, missing[column])
            made[name_weights(column, request.person)] = weighed, reference
    return made


def _find_missing(coded: Coded) -> int:
    return coded.hierarchy.code_of.get(None, -1)


def code_people(column: pa.ChunkedArray) -> Held:
    """A code for every person, in whatever spelling; all rows without one have one code, which is the last."""
    values, codes = factorize(unify_spellings(column))
    return Held(np.where(codes < 0, len(values), codes).astype(np.int32), len(values) + 1)


def pair_with_people(values: Held, person: Held, missing: int) -> tuple[Held, Reference]:
    """Values together with the person who has them, as codes; and the value and the person of each code."""
    many, first, number = number_rows([values.codes, person.codes], [values.size, person.size])
    pairs = values.codes[first], person.codes[first]
    return Held(number.astype(np.int32), many), Reference(np.zeros(0), (), pairs=pairs, missing=missing)


MOST_PARTS = 2**53
"""Sums of whole numbers up to here are exact in floating point, by which they are added."""


def weigh_rows(totals: Counts) -> Counts:
    """What a row weighs of a person who has so many in the table, as whole parts of a person.

    A person is as many parts as all numbers of rows divide, where the parts of all people can be added exactly. Else a
    person is as many parts as can be, and a row's weight is rounded down, the same for all rows of a person.
    """
    there = totals[totals > 0]
    many = max(len(there), 1)
    parts = math.lcm(*np.unique(there).tolist())
    weights: Counts = np.maximum(min(parts, MOST_PARTS // many) // np.maximum(totals, 1), 1)
    return weights


def _encode_sensitive(table: pa.Table, name: str, declared: Declared) -> Coded:
    return encode_column(name, unify_spellings(column_of(table, name)), declared or Spec("order", {"sizes": (2,)}))


def _limit_levels(whole: Hierarchy, request: Request) -> Hierarchy:
    """The levels that a request allows."""
    return whole.between(request.lowest.get(whole.column, 0), request.highest.get(whole.column, whole.height - 1))


def _encode_with_population(
    table: pa.Table, population: pa.Table, request: Request, declared: dict[str, Declared]
) -> tuple[Coded, ...]:
    """The table's columns against hierarchies over the values of both tables, and the words that made them."""
    both = pa.concat_tables(
        [t.select(list(request.quasi_identifiers)) for t in (table, population)], promote_options="permissive"
    )
    known = encode_table(both, request.quasi_identifiers, declared)
    coded = encode_table(table, request.quasi_identifiers, {c.hierarchy.column: c.hierarchy for c in known})
    return tuple(replace(own, spec=c.spec, values=c.values) for own, c in zip(coded, known, strict=True))


def refuse_too_few(rows: int, request: Request, told: str = "") -> None:
    """Refuse a k that is larger than the table; `told` says how many rows there are, to whoever may know it."""
    for model in request.models:
        if isinstance(model, KAnonymity) and model.k > rows and (rows == 0 or request.suppress < 1):
            raise refuse_large_k(model.k, rows, told)


def refuse_large_k(k: int, rows: int, told: str = "") -> Infeasible:
    """The refusal of a k that no class can have; without words for how many rows there are, it does not tell it."""
    return Infeasible(
        f"k is {k}, and {told or 'there are fewer rows'}",
        expected=f"k is at most {rows}" if told and rows else "At least k rows",
        remedy="Ask for a smaller k, or add rows",
    )


def needs_population(models: tuple[Condition, ...]) -> bool:
    """Whether a model compares the table with the population it was drawn from."""
    return any(isinstance(model, KMap | DeltaPresence) for model in models)


KINDS: tuple[tuple[str, type[Any]], ...] = (
    ("k_anonymity", KAnonymity),
    ("k_map", KMap),
    ("distinct_diversity", DistinctDiversity),
    ("entropy_diversity", EntropyDiversity),
    ("recursive_diversity", RecursiveDiversity),
    ("closeness", Closeness),
    ("delta_presence", DeltaPresence),
    ("delta_disclosure", DeltaDisclosure),
    ("beta_likeness", BetaLikeness),
    ("average_risk", AverageRisk),
)
"""Every model with the name by which a policy and a recoding know it."""

_RENAMED = {("average_risk", "most"): "risk"}
_DEFAULTS: Mapping[str, dict[str, object]] = {"delta_presence": {"least": 0}}


def parse_condition(spec: Spec) -> Condition:
    """The model that words mean.

    >>> str(parse_condition(Spec("entropy_diversity", {"column": "diagnosis", "l": "3"})))
    'entropy 3-diversity of diagnosis'
    """
    for kind, model in KINDS:
        if kind == spec.kind:
            given = _DEFAULTS.get(kind, {}) | dict(spec.options)
            renamed = {_RENAMED.get((kind, name), name): value for name, value in given.items()}
            _refuse_lacking(kind, model, renamed)
            return model(**{name: _parse_option(kind, model, name, value) for name, value in renamed.items()})  # type: ignore[no-any-return]
    known = [kind for kind, _ in KINDS]
    expected = f"One of {', '.join(known)}"
    raise ParameterError(
        f"There is no privacy model '{spec.kind}'", expected=expected, remedy=nearest(spec.kind, known)
    )


def _refuse_lacking(kind: str, model: type[Any], given: Mapping[str, object]) -> None:
    needed = [f.name for f in fields(model) if f.default is MISSING and f.default_factory is MISSING]
    if absent := [name for name in needed if name not in given]:
        said = {new: old for (of, old), new in _RENAMED.items() if of == kind}
        raise ParameterError(
            f"The privacy model '{kind}' lacks '{said.get(absent[0], absent[0])}'",
            expected=f"Options: {', '.join(said.get(f.name, f.name) for f in fields(model))}",
        )


def _parse_option(kind: str, model: type[Any], name: str, value: object) -> object:
    kinds = {field.name: str(field.type) for field in fields(model)}
    if name not in kinds:
        expected = f"Options: {', '.join(kinds)}"
        raise ParameterError(f"The privacy model '{kind}' has no option '{name}'", expected=expected)
    if kinds[name] not in _READ:
        return value
    read, wanted = _READ[kinds[name]]
    try:
        return read(value)
    except (KeyError, ValueError, OverflowError):
        raise ParameterError(f"The option '{name}' of '{kind}' is '{value}'", expected=wanted) from None


def _parse_truth(value: object) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[str(value).lower()]


_READ: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "Distance": (lambda value: Distance(str(value)), "One of equal, ordered, hierarchical"),
    "int": (lambda value: math.ceil(float(value)), "A number"),
    "float": (float, "A number"),
    "bool": (_parse_truth, "true or false"),
}
"""How an option of each type is read from words, and what it must be."""


def to_spec(model: Condition) -> Spec:
    """The words that mean a model."""
    kind = next(kind for kind, known in KINDS if isinstance(model, known))
    given = {field.name: getattr(model, field.name) for field in fields(model)}  # type: ignore[arg-type]
    told = {name: str(v) if isinstance(v, Distance) else v for name, v in given.items() if v is not None}
    return Spec(kind, told)


def build_conditions(
    asked: Anonymize, rows: int, distances: Mapping[str, Distance] | None = None, person: str | None = None
) -> tuple[Condition, ...]:
    """The models that a policy's `anonymize:` means for a table of so many rows.

    With `person`, the column that tells people apart, they count people wherever they can. A k-map whose population is
    given by its size alone is estimated: a class of n rows stands for n N / rows people, so it asks for classes of
    k rows / N.
    """
    models: list[Condition] = [KAnonymity(asked.k, person)]
    models += [DistinctDiversity(column, math.ceil(least), person) for column, least in asked.l.items()]
    chosen = distances or {}
    models += [Closeness(column, float(t), chosen.get(column, Distance.EQUAL), person) for column, t in asked.t.items()]
    for spec in asked.models:
        if spec.kind == "k_map" and spec.options.get("population"):
            needed = int(str(spec.options["k"])) * rows / int(str(spec.options["population"]))
            models.append(KAnonymity(max(1, math.ceil(needed))))
        else:
            models.append(count_people(parse_condition(spec), person))
    return tuple(models)


def count_people(model: Condition, person: str | None) -> Condition:
    """A model that counts people if it can, where it names no column of people itself."""
    if person is None or getattr(model, "person", "") is not None:
        return model
    return replace(model, person=person)  # type: ignore[type-var]
