"""Describe a table: encode it by the policy, measure it within a budget, and keep what was learned as a model.

This is the last sight of the data: everything after works on the model alone. Domains, bounds and categories come from
the policy; the number of records is measured; no seed reaches the noise. A unit's rows are bounded first, chosen by a
hash with a fresh secret salt; units can be held out as a control group for attacks, by secret lot.

What the policy leaves open about single columns (where numbers are cut, which shapes texts have) is learned first, paid
from the budget. What that does not need goes to the description: all measurements are Gaussian, and such may be chosen
one after another as long as their total is fixed (Smith and Thakurta 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent, NoOpEvent, keeps_limit, zcdp_cost
from deniable.dp.accounting.analytic_gaussian import SMOOTHING
from deniable.dp.samplers import SYSTEM, Entropy, salt
from deniable.engines.base import quote
from deniable.errors import InternalError, ParameterError, nearest
from deniable.policy.budget import ZCDP, ApproxDP, Budget
from deniable.policy.conditions import list_columns
from deniable.policy.schema import PrivacyUnit, Spec, TableSchema
from deniable.policy.truths import (
    FALSE,
    Box,
    Rules,
    columns_of,
    compile_rules,
    describe_contradiction,
    describe_truth,
    judge,
    list_names,
)
from deniable.synth import text_shapes
from deniable.synth.bins import CollapsedDomain, count_rounds, cut_bins
from deniable.synth.constraints import declare_attribute, select_constraints
from deniable.synth.domain import (
    Attribute,
    Bins,
    Clique,
    Coded,
    Domain,
    ShapedText,
    Surrogate,
    areas_refusal,
    attributes_of,
    build_domain,
    find_areas,
    surrogate_prefix,
)
from deniable.synth.encode import RowsElsewhere, encode_column, find_steps, is_counted_elsewhere, to_array
from deniable.synth.estimate import Estimates, margins_within
from deniable.synth.estimate.residuals import broadcast_axes, fit_margins
from deniable.synth.marginal import NO_BUDGET, Codes, GaussianBudget, Marginal, Records, convert_budget
from deniable.synth.methods import METHODS, Method, run_method
from deniable.synth.model import SynthModel, from_plain, to_plain

Workload = tuple[tuple[str, ...], ...]
"""Columns, by name, that somebody wants to see together."""


def find_method(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        raise ParameterError(
            f"there is no method '{name}'", expected=f"One of {', '.join(METHODS)}", remedy=nearest(name, METHODS)
        )
    return METHODS[name]


def domain_of(chosen: tuple[Attribute, ...]) -> Domain:
    """The domain of the attributes that are coded."""
    coded = [attribute for attribute in chosen if not isinstance(attribute, Surrogate)]
    if not coded:
        raise ParameterError("no column can be synthesized", expected="Columns with declared categories or bounds")
    return build_domain(coded)


def cliques_of(workload: Workload, domain: Domain) -> tuple[Clique, ...]:
    """Columns by name as places; a column by itself asks for nothing."""
    return tuple(clique for clique in (_clique_of(names, domain) for names in workload) if len(clique) > 1)


def _clique_of(names: tuple[str, ...], domain: Domain) -> Clique:
    unknown = [name for name in names if name not in domain.names]
    if unknown:
        raise ParameterError(
            f"the workload asks for '{unknown[0]}', which is not described",
            expected=f"Columns among {', '.join(domain.names)}",
            remedy=nearest(unknown[0], domain.names),
        )
    return tuple(sorted({domain.names.index(name) for name in names}))


MOST_PAIRS = 300
"""Of columns that mwem chooses among by itself."""


def refuse_unsuited(
    table: TableSchema, method: str, columns: tuple[str, ...] | None, workload: Workload, areas: str | None,
    truths: Sequence[Spec] = (),
) -> None:  # fmt: skip
    """Refuse, before anything is charged, what could not be described or drawn: from the policy alone."""
    chosen = attributes_of(table, columns)
    refuse_unkept(truths, table, chosen)
    asked = cliques_of(workload, domain_of(chosen))
    if method == "mwem" and not asked and math.comb(len(chosen), 2) > MOST_PAIRS:
        raise ParameterError(
            f"mwem looks at each pair of {len(chosen)} columns in each of its rounds, which takes minutes",
            remedy="Name the tables that are wanted with a workload, or take auto, which has no such limit",
        )
    if find_areas(table, chosen, areas) is None and find_method(method).areas:
        raise areas_refusal()


def refuse_unkept(truths: Sequence[Spec], table: TableSchema, chosen: Sequence[Attribute]) -> None:
    """Refuse truths about columns that are described which no synthetic row could keep."""
    own = select_constraints(truths, [attribute.name for attribute in chosen])
    if words := describe_contradiction(own, table.columns, doubtful=False):
        raise ParameterError(words, remedy="Correct the truths of the policy")
    open_ones = {attribute.name for attribute in chosen if isinstance(attribute, Surrogate | ShapedText)}
    for truth in (each for each in own if each.kind != "determines"):
        if made := sorted(open_ones & columns_of(truth)):
            raise ParameterError(
                f"'{made[0]}' has no declared values, so rows cannot be made to keep: {describe_truth(truth)}",
                remedy="Declare its categories or bounds, remove the truth, or leave the column out with --columns",
            )
    anew = {attribute.name for attribute in chosen if isinstance(attribute, Surrogate)}
    for truth in (each for each in own if each.kind == "determines"):
        made = sorted(anew.intersection(list_names(truth.options["to"])))
        if made and not anew.intersection(list_names(truth.options["from"])):
            raise ParameterError(
                f"'{made[0]}' is made anew for every row, so nothing can determine it",
                remedy="Remove it from the truth, or leave the column out with --columns",
            )


def price_description(method: str, budget: Budget, most_rows: int) -> Event:
    """What a description is charged for before any record is seen."""
    return NoOpEvent() if find_method(method).free else convert_budget(budget, most_rows).event


def can_count_elsewhere(table: TableSchema, columns: tuple[str, ...] | None) -> bool:
    """Whether all that is measured of a table can be counted where its rows are: not shapes of texts."""
    return all(map(is_counted_elsewhere, attributes_of(table, columns)))


def describe_table(
    rows: pa.Table | RowsElsewhere,
    table: TableSchema,
    budget: Budget,
    method: str = "auto",
    *,
    most_rows: int = 1,
    columns: tuple[str, ...] | None = None,
    truths: tuple[Spec, ...] = (),
    workload: Workload = (),
    areas: str | None = None,
    entropy: Entropy = SYSTEM,
) -> SynthModel:
    """The model of a table whose units have at most `most_rows` rows each (the caller has bounded them).

    `workload` lists columns that findings are about together; `areas` names the column whose areas are kept.
    """
    chosen, way = attributes_of(table, columns), find_method(method)
    cliques_of(workload, domain_of(chosen))
    learned = _learn_unless_free(rows, chosen, way, budget, most_rows, entropy)
    coded = [attribute for attribute in learned.attributes if not isinstance(attribute, Surrogate)]
    codes: Records = rows.encode(coded) if isinstance(rows, RowsElsewhere) else encode_table(rows, coded)
    domain = domain_of(learned.attributes)
    asked, places = (
        cliques_of(_restrict_workload(workload, domain), domain),
        find_areas(table, learned.attributes, areas),
    )
    description = run_method(codes, domain, way, learned.spend, entropy, workload=asked, areas=places)
    description = replace(description, event=ComposedEvent((*learned.events, description.event)))
    if not way.free:
        check_double_entry(description.event, budget)
    kept = select_constraints(truths, [attribute.name for attribute in coded])
    certain = apply_structural_zeros(description.estimates, description.collapsed, coded, kept)
    description = replace(description, estimates=certain)
    # The model is what its file says, to the last digit written.
    return from_plain(to_plain(SynthModel(table.name, learned.attributes, description, kept)))


def encode_table(rows: pa.Table, coded: Sequence[Coded]) -> Codes:
    """The codes of a table's columns."""
    return np.stack([encode_column(attribute, rows.column(attribute.name)) for attribute in coded])


def _learn_unless_free(
    rows: pa.Table | RowsElsewhere, chosen: tuple[Attribute, ...], method: Method, budget: Budget, most_rows: int,
    entropy: Entropy,
) -> LearnedAttributes:  # fmt: skip
    if method.free:
        return LearnedAttributes(replace_empty_texts(chosen), NO_BUDGET, ())
    if isinstance(rows, RowsElsewhere):
        return learn_open_columns(chosen, rows, convert_budget(budget, most_rows), entropy)
    columns = {attribute.name: rows.column(attribute.name) for attribute in chosen}
    return learn_open_columns(chosen, columns, convert_budget(budget, most_rows), entropy)


def _restrict_workload(workload: Workload, domain: Domain) -> Workload:
    """The workload without texts of which nothing was learned."""
    return tuple(tuple(name for name in names if name in domain.names) for names in workload)


def check_double_entry(event: object, budget: Budget) -> None:
    """What was measured is priced again, by the accountants; more than the budget is our bug."""
    match budget:
        case ZCDP(rho):
            cost = zcdp_cost(event)  # type: ignore[arg-type]
            held = cost is not None and cost.private and cost.amount <= rho
        case ApproxDP(epsilon, delta):
            held = keeps_limit(event, epsilon, delta)  # type: ignore[arg-type]
        case _:
            held = False
    if not held:
        raise InternalError(
            "the measurements of a description cost more than its budget", remedy="Nothing was released"
        )


CUT_SHARE, SHAPE_SHARE = 0.05, 0.1
"""The most that cutting all numbers, and learning the shapes of all texts, may take of the amount."""


@dataclass(frozen=True, slots=True)
class LearnedAttributes:
    """Attributes with nothing left open, what is left to spend, and what was run."""

    attributes: tuple[Attribute, ...]
    spend: GaussianBudget
    events: tuple[GaussianEvent, ...]


def learn_open_columns(
    attributes: tuple[Attribute, ...],
    rows: Mapping[str, pa.ChunkedArray] | RowsElsewhere,
    spend: GaussianBudget,
    entropy: Entropy = SYSTEM,
) -> LearnedAttributes:
    """Learn the open columns of rows that are bounded already."""
    numbers = [a for a in attributes if isinstance(a, Bins) and count_rounds(a)]
    texts = [a for a in attributes if isinstance(a, ShapedText) and not a.shapes]
    found: dict[str, Attribute] = {}
    measured: list[Marginal] = []
    for number in numbers:
        places = rows.count_parts(number) if isinstance(rows, RowsElsewhere) else _find_places(number, rows)
        found[number.name], run = cut_bins(number, places, spend, CUT_SHARE / len(numbers), entropy)
        measured += run
    for text in texts:
        if isinstance(rows, RowsElsewhere):
            raise InternalError("shapes of texts were to be learned where rows are; nothing was read")
        learned, run = text_shapes.learn_shapes(_to_strings(rows[text.name]), spend, SHAPE_SHARE / len(texts), entropy)
        found[text.name] = replace(text, shapes=learned)
        measured += run
    events = tuple(marginal.event for marginal in measured)
    known = replace_empty_texts(tuple(found.get(a.name, a) for a in attributes))
    return LearnedAttributes(known, _subtract_events(spend, events), events)


def _find_places(number: Bins, rows: Mapping[str, pa.ChunkedArray]) -> NDArray[np.int64]:
    steps, null = find_steps(number, to_array(rows[number.name]))
    return steps[~null]


def replace_empty_texts(attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    """Texts of which there is nothing to code are made anew, unless nothing at all would be left to code."""
    anew = tuple(_to_surrogate(a) if isinstance(a, ShapedText) and a.size == 1 else a for a in attributes)
    return attributes if all(isinstance(a, Surrogate) for a in anew) else anew


def _to_surrogate(attribute: ShapedText) -> Surrogate:
    return Surrogate(attribute.name, attribute.type, surrogate_prefix(attribute.name))


def _to_strings(column: pa.ChunkedArray) -> pa.Array:
    return to_array(column).cast(pa.string())


def _subtract_events(spend: GaussianBudget, events: tuple[GaussianEvent, ...]) -> GaussianBudget:
    """The spending without what the events took of it: their squared sensitivity over their variance, summed.

    With smoothing a variance is a little larger than its share needs, so this counts less than was handed out; the
    whole shares that were used are taken off instead by counting the variance without it.
    """
    smoothing = SMOOTHING if spend.smoothed else 0
    spent = sum((e.sensitivity_squared / (e.variance - smoothing) for e in events), Fraction(0))
    return replace(spend, amount=spend.amount - spent)


def split_rows(rows: pa.Table, unit: str | None, share: float) -> tuple[pa.Table, pa.Table]:
    """The rows to describe, and those of about a share of the units (of the rows, where a row is a unit) held out."""
    people = np.arange(rows.num_rows) if unit is None else _number_units(rows.column(unit))
    lots = np.random.default_rng(int.from_bytes(salt(16), "little")).random(int(people.max(initial=-1)) + 1)
    held = lots[people] < share
    return rows.filter(pa.array(~held)), rows.filter(pa.array(held))


def split_people(
    people: pa.Table | None, tables: Sequence[pa.Table], key: str, share: float
) -> tuple[tuple[pa.Table | None, list[pa.Table]], tuple[pa.Table | None, list[pa.Table]]]:
    """The same of people with their rows: whoever is held out is so in all tables."""
    if people is None:
        seen, held = split_rows(tables[0], key, share)
        return (None, [seen]), (None, [held])
    chosen, others = split_rows(people, key, share)
    return (chosen, [_rows_of(each, chosen, key) for each in tables]), (
        others,
        [_rows_of(each, others, key) for each in tables],
    )


def _rows_of(rows: pa.Table, people: pa.Table, key: str) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(key), value_set=people.column(key).combine_chunks().cast(rows[key].type)))


def _number_units(names: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A number for each unit; a row that names nobody counts as one person among others."""
    encoded = names.combine_chunks().dictionary_encode()
    places = encoded.indices.fill_null(len(encoded.dictionary))
    return np.asarray(places.to_numpy(zero_copy_only=False), dtype=np.int64)


def render_bounded_select(table: TableSchema, unit: PrivacyUnit, most: int, columns: tuple[str, ...] | None) -> str:
    """The statement that reads the bounded rows. The choice depends on the unit's own rows and the salt alone."""
    names = [column.name for column in table.columns if columns is None or column.name in columns]
    shown = ", ".join(quote(name) for name in names)
    source = quote(table.name)
    if unit.column is None:
        return f"SELECT {shown} FROM {source}"  # noqa: S608  quoted names
    who, secret = quote(unit.column), int.from_bytes(salt(8), "little") >> 1
    every = ", ".join(quote(column.name) for column in table.columns)
    # Rows that are alike are numbered, so that each of them is as likely to be chosen as any other row.
    copies = f"row_number() OVER (PARTITION BY {every} ORDER BY {who}) AS _copy"
    numbered = f"SELECT *, {copies} FROM {source} WHERE {who} IS NOT NULL"  # noqa: S608  quoted names
    rank = f"row_number() OVER (PARTITION BY {who} ORDER BY hash(hash(CAST({secret} AS UBIGINT), {every}, _copy)))"
    ranked = f"SELECT *, {rank} AS _rank FROM ({numbered}) AS n"  # noqa: S608  our own words
    return f"SELECT {shown} FROM ({ranked}) AS t WHERE _rank <= {most}"  # noqa: S608  our own words


def apply_structural_zeros(
    estimates: Estimates, collapsed: CollapsedDomain, coded: Sequence[Coded], truths: Sequence[Spec]
) -> Estimates:
    """The estimates with nothing in cells that no record can have: what noise put there goes to the others."""
    rules = compile_rules(truths, [declare_attribute(attribute) for attribute in coded])
    if not rules.trees:
        return estimates
    boxes = {a.name: _list_boxes(a, collapsed, place, rules) for place, a in enumerate(coded) if a.name in rules.boxes}
    names = [attribute.name for attribute in coded]
    tables = dict(estimates.tables)
    for clique, table in sorted(estimates.tables.items(), key=lambda each: len(each[0])):
        empty = _find_empty_cells(clique, names, table.shape, rules, boxes)
        if empty is not None and empty.any() and not empty.all():
            margins = margins_within(clique, estimates.columns, tables if len(clique) > 2 else {})
            tables[clique] = fit_margins(np.where(empty, 0.0, table), margins)
    return replace(estimates, tables=tables)


def _list_boxes(attribute: Coded, collapsed: CollapsedDomain, place: int, rules: Rules) -> list[Box]:
    """The values behind each joined code of a column."""
    found: list[Box] = []
    for code in range(collapsed.domain.sizes[place]):
        members = collapsed.members(place, code)
        null = attribute.nullable and int(members[-1]) == attribute.size - 1
        own = members[:-1] if null else members
        if isinstance(attribute, Bins):
            start, step = rules.number(attribute.lower), rules.number(attribute.step)
            ends = (attribute.cuts[own[0]], attribute.cuts[own[-1] + 1]) if own.size else (0, 0)
            found.append((range(start + step * ends[0], start + step * ends[1], step), null))
        else:
            listed = declare_attribute(attribute).listed or ()
            found.append((tuple(sorted(rules.number(listed[member]) for member in own)), null))
    return found


def _find_empty_cells(
    clique: Clique, names: Sequence[str], shape: tuple[int, ...], rules: Rules, boxes: Mapping[str, list[Box]]
) -> NDArray[np.bool_] | None:
    """The cells of a clique in which some truth is false whatever the other columns are; None without such truths."""
    found: NDArray[np.bool_] | None = None
    for tree in rules.trees:
        axes = tuple(axis for axis, place in enumerate(clique) if names[place] in set(list_columns(tree)))
        if not axes:
            continue
        sizes = tuple(shape[axis] for axis in axes)
        cells = np.zeros(sizes)
        for cell in np.ndindex(*sizes):
            held = {
                names[clique[axis]]: boxes[names[clique[axis]]][code] for axis, code in zip(axes, cell, strict=True)
            }
            cells[cell] = judge(tree, {**rules.boxes, **held}) == FALSE
        spread: NDArray[np.bool_] = np.broadcast_to(broadcast_axes(cells, axes, len(shape)), shape).astype(bool)
        found = spread if found is None else found | spread
    return found
