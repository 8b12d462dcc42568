"""Tabulations: counts by area and cell, as of a census, that are whole, add up, and cost what their plan says.

The order is that of every charge: admit, price, charge, measure, store, release. The plan (`policy/tabulation.py`) is
priced from public facts alone: areas and cells are listed, so every one of them is measured, also where nobody lives. A
run that was killed is started again under its old charge, and at most one result of it is ever seen: the charge has the
name of the plan, the policy and the epoch, and what is published is stored before it is shown.

**Invariants** are exact numbers of the rows. They are not private, and no noise makes them so: the ledger records them
as a release without guarantee. The noise beside them is made for a person whose values change, since with exact totals
nobody can come or go unseen; the guarantee speaks of such changes that leave the exact numbers as they are.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.curator.charge import BEGIN_EPOCH, Form, Job, charge, find_answer, guarantee_of, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.publish import MEASURED, find_signing_key, note_published
from deniable.engines.base import is_elsewhere, quote
from deniable.errors import AccessRefused, InternalError, ParameterError, QueryRefused
from deniable.outputs import claim_outputs, replace_files
from deniable.policy.budget import ZCDP, Budget, PureDP, say_budget
from deniable.policy.document import digest
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.policy.tabulation import COUNT, ROOT, Tabulation, check_tabulation, list_labels, read_tabulation

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.released_rows import CertifiedCounts
    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.geography.published import Published, TabulationPlanReport, TabulationReport
    from deniable.geography.spine import Cells, Design, Spine, Table
    from deniable.query.plan import QueryPlan
    from deniable.release import Guarantee

STRUCTURE = ZCDP(Fraction(1), Fraction(1, 10**6))
"""The budget that the question is compiled with: any will do, since what it reads does not depend on it."""
BATCH = 1 << 20
MOST_TOTALS = 1_000
"""Areas whose totals stand in the report; a file has them all."""
MOST_CELLS = 1_000_000
"""Cells that are given at once other than as a file."""
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Plan:
    """A tabulation that fits its tables, with its areas, cells, noise and price; it has seen no private row."""

    tabulation: Tabulation
    table: TableSchema
    question: QueryPlan
    design: Design
    unit: PrivacyUnit
    reach: int
    weight: int
    """How many people one stands for, where a secret sample is counted."""
    event: Event
    cost: Budget

    @property
    def spine(self) -> Spine:
        """The areas."""
        return self.design.spine

    @property
    def fixed(self) -> tuple[tuple[str, ...] | None, ...]:
        """For each level the margin that is exact."""
        return self.tabulation.find_fixed()

    @property
    def declared(self) -> str:
        """The digest of everything that its meaning depends on, but for what the public table holds."""
        return digest({"tabulation": replace(self.tabulation, name=""), "table": self.table}).removeprefix("sha256:")


def find_plan(context: Context, wanted: str | Path | Tabulation) -> Tabulation:
    """A plan: one given, the policy's of that name, or one in a file of its own (.yaml, .yml or .json)."""
    if isinstance(wanted, Tabulation):
        check_tabulation(wanted, context.policy.tables)
        return wanted
    if not isinstance(wanted, str | Path):
        raise ParameterError("this is not a plan", expected="A name in the policy, a file, or a Tabulation")
    path = Path(wanted)
    if path.suffix.lower() not in (".yaml", ".yml", ".json"):
        return context.policy.tabulation(str(wanted))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ParameterError(f"there is no file '{path}' that can be read", expected="A YAML or JSON file") from None
    return replace(read_tabulation(text, str(path), context.policy.tables), name=path.stem)


def explain(context: Context, wanted: str | Path | Tabulation) -> TabulationPlanReport:
    """What each operator would cost, and how far the numbers of each level would be off."""
    from deniable.geography.published import TabulationPlanReport, expect_errors, price_operators

    plan = plan_tabulation(context, wanted)
    design, cells = plan.design, plan.design.cells.count
    return TabulationPlanReport(
        plan.tabulation.name,
        state_protection(plan),
        say_budget(plan.tabulation.allowance),
        cells,
        cells * plan.spine.sizes[-1],
        tuple(price_operators(plan.tabulation, design, plan.weight, _name_invariants(plan))),
        tuple(expect_errors(design, plan.fixed, plan.weight, plan.reach)),
    )


def tabulate(
    context: Context,
    wanted: str | Path | Tabulation,
    *,
    out: str | Path | None = None,
    totals: str | Path | None = None,
    shares: str | Path | None = None,
    of: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> TabulationReport:
    """Measure a plan once, and publish it: `out` gets the cells that are not empty, `totals` those of all areas.

    `shares` gets the smoothed share of people `of` some values in every area. Asked again in the same epoch, it gives
    what it gave, and charges nothing.
    """
    from deniable.geography.published import choose_cells

    places = [None if each is None else Path(each) for each in (out, totals, shares)]
    plan = plan_tabulation(context, wanted)
    if shares is not None or of:
        choose_cells(plan.design, of or {})
    if shares is None and of:
        raise ParameterError("shares of some people are wanted, and no file of them", expected="shares='shares.csv'")
    with claim_outputs(*places, rows=True):
        job = _job_of(context, plan, progress or (lambda _: None))
        result = run_job(context, job, request=_name_request(context, plan))
        published: Published = result.measured
        charged = result.receipt is not None and not result.receipt.repeated
        report = _report(plan, published, result.release, charged)
        with still_charged(), replace_files(*places):
            return _write_files(context, plan, published, report, places, of or {})


def show_tabulation(context: Context, name: str) -> TabulationReport:
    """What a tabulation of the policy published in this epoch, for whoever may read it; nothing is charged."""
    plan, published, release = _find_published(context, name)
    return _report(plan, published, release, charged=False)


def show_cells(context: Context, name: str) -> pa.Table:
    """The cells of it that are not empty, as its file has them."""
    import pyarrow as pa

    from deniable.geography.published import list_batches

    plan, published, _ = _find_published(context, name)
    if len(published.table.count) > MOST_CELLS:
        raise ParameterError(
            f"'{name}' has more than {MOST_CELLS:,} cells that are not empty", remedy="Ask the steward for the file"
        )
    return pa.Table.from_batches(list(list_batches(plan.design, published.table, COUNT)))


def _find_published(context: Context, name: str) -> tuple[Plan, Published, str]:
    plan = plan_tabulation(context, context.policy.tabulation(name))
    request = _name_request(context, plan)
    paid = next((each for each in context.ledger.entries(acts=("charge",)) if each.request == request), None)
    found = None if paid is None else find_answer(context.store, paid.release, _make_form())
    if found is None:
        raise ParameterError(
            f"nothing of '{name}' was published in this epoch", remedy=f"The steward runs: deniable tabulate {name}"
        )
    return plan, found.measured, found.release


def _make_form() -> Form:
    from deniable.geography.published import read_published, write_published

    return Form(write_published, read_published)


def _name_request(context: Context, plan: Plan) -> str:
    """The name of the charge: one for each plan, list of areas and epoch."""
    return f"tabulation {plan.declared} {_name_areas(context, plan)} {context.epoch}"


def plan_tabulation(context: Context, wanted: str | Path | Tabulation) -> Plan:
    """The plan with its noise and price; refuses what cannot be published. Public rows are read, private ones not."""
    from deniable.geography.spine import plan_noise
    from deniable.query.double_entry import price

    if context.asker is not None:
        raise AccessRefused("tabulations are published by the steward", remedy="Ask the steward for the file")
    tables = context.admit_tables()
    tabulation = find_plan(context, wanted)
    table = context.scope.private_table(tabulation.table, linked=True)
    if is_elsewhere(context.scope.sources.get(table.name, table.source)):
        raise QueryRefused(
            f"the rows of '{table.name}' are in a database, and a tabulation reads a file",
            remedy="Export the table to Parquet, and name that as its source",
        )
    question = _compile_question(tabulation, table, tables)
    cells = _list_cells(tabulation, table)
    spine = _list_areas(context, tabulation, table)
    unit, reach = _bound_unit(tabulation, question, table)
    weight, inner = _plan_sample(tabulation, unit)
    design = plan_noise(
        inner, spine, cells, tabulation.margins, tabulation.weights,
        reach=reach, replaced=unit.neighboring is Neighboring.REPLACE,
    )  # fmt: skip
    _check_noise(design, reach, unit)
    event = design.event if weight == 1 else _amplify(design, tabulation.allowance, weight)
    cost = price(event, tabulation.allowance)
    _check_accounting(context, event)
    return Plan(tabulation, table, question, design, unit, reach, weight, event, cost)


def _check_accounting(context: Context, event: Event) -> None:
    """Refuse what the ledger cannot price, before it is asked to."""
    from deniable.dp.accounting import pure_cost
    from deniable.dp.accounting.composition import compose_dominating_pairs
    from deniable.ledger.budget_tree import choose_accounting

    accounting = choose_accounting(context.policy.budgets)
    if {"pure": pure_cost, "pld": compose_dominating_pairs}.get(accounting, lambda _: True)(event) is None:
        raise ParameterError(
            f"{accounting} accounting cannot price the Gaussian noise of this plan", expected="epsilon alone",
            remedy="State epsilon without delta and rho, or set accounting: zcdp under budgets",
        )  # fmt: skip


def _plan_sample(tabulation: Tabulation, unit: PrivacyUnit) -> tuple[int, Budget]:
    """How many people one of a secret sample stands for, and what the noise may cost among those who are in it."""
    from deniable.geography.survey import find_inner, read_weight

    weight, allowance = read_weight(tabulation.sample), tabulation.allowance
    if weight == 1 or not isinstance(allowance, PureDP):
        return 1, allowance
    if unit.neighboring is not Neighboring.ADD_REMOVE:
        raise QueryRefused(
            "a secret sample saves noise where one unit is added or removed, and the policy replaces units",
            expected="neighboring: add-remove", remedy="Drop sample, or change the unit in the policy",
        )  # fmt: skip
    return weight, PureDP(find_inner(allowance.epsilon, weight))


def _amplify(design: Design, allowance: Budget, weight: int) -> Event:
    """The event of noise after a secret sample; double entry: it costs no more than was asked."""
    from deniable.dp.accounting import PureEvent, pure_cost
    from deniable.geography.survey import amplify

    inside = pure_cost(design.event)
    if not isinstance(allowance, PureDP) or inside is None or amplify(inside.amount, weight) > allowance.epsilon:
        raise InternalError("a sample does not pay for the noise after it", remedy="Nothing was run")
    return PureEvent(allowance.epsilon)


def _bound_unit(tabulation: Tabulation, question: QueryPlan, table: TableSchema) -> tuple[PrivacyUnit, int]:
    """Who is protected, and how many rows of one unit are counted in all; with invariants, whose values change."""
    limits = question.nodes[0].steps[0].limits
    unit = table.unit or PrivacyUnit()
    if limits.scaled:
        raise QueryRefused(
            "a tabulation counts whole people, and the unit's contributions are scaled to fractions",
            expected="bounding: sample or rows", remedy="Change the unit's bounding in the policy",
        )  # fmt: skip
    reach = (limits.rows or 1) * (1 if limits.by_row or limits.in_all else limits.groups or 1)
    if tabulation.invariants:
        unit = replace(unit, neighboring=Neighboring.REPLACE)
    return unit, reach


def _check_noise(design: Design, reach: int, unit: PrivacyUnit) -> None:
    """Double entry: each measured number has noise made for what one unit moves, whatever the plan was made from."""
    from deniable.dp.mechanisms import GaussianMechanism

    times = 2 if unit.neighboring is Neighboring.REPLACE else 1
    for level in (each for each in design.noises if each is not None):
        for noise in level:
            made, moved = noise.sensitivity, reach
            if isinstance(noise, GaussianMechanism):
                made, moved = noise.sensitivity_squared, reach**2
            if made != times * moved:
                raise InternalError("noise is not made for what one unit moves", remedy="Nothing was run")
    if sum(sum(level) for level in design.shares) != 1:
        raise InternalError("the shares of a tabulation are not its budget", remedy="Nothing was run")


def _compile_question(tabulation: Tabulation, table: TableSchema, tables: tuple[TableSchema, ...]) -> QueryPlan:
    """The counts as a question, which proves how one unit's rows are bounded; its own noise is not used."""
    from deniable.policy.tabulation import widen_bounds
    from deniable.query.compile import compile_query

    name, partition = quote(table.name), tabulation.partition
    areas = [] if partition.areas is None else [partition.areas.column]
    keys = [quote(column) for column in (*areas, *partition.cells)]
    wider, ends = widen_bounds(table, partition.cells)
    inside = [f"{quote(name)} BETWEEN {low} AND {high}" for name, (low, high) in ends.items()]
    tables = tuple(wider if each.name == table.name else each for each in tables)
    if tabulation.where:  # by itself first: what is no condition alone could end the parentheses around it
        compile_query(f"SELECT COUNT(*) FROM {name} WHERE {tabulation.where}", tables, STRUCTURE)  # noqa: S608  parsed
    where = " AND ".join([*(f"{key} IS NOT NULL" for key in keys), *inside,
                          *([f"(\n{tabulation.where}\n)"] if tabulation.where else [])])  # fmt: skip
    text = f"SELECT {', '.join(keys)}, COUNT(*) AS n FROM {name} WHERE {where} GROUP BY {', '.join(keys)}"  # noqa: S608
    found = compile_query(text, tables, STRUCTURE)
    if len(found.nodes) != 1 or len(found.nodes[0].steps) != 1:
        raise QueryRefused(
            f"the condition of tabulation '{tabulation.name}' asks another question inside",
            expected="A condition on the rows of one table",
        )
    return found


def _list_cells(tabulation: Tabulation, table: TableSchema) -> Cells:
    from deniable.geography.spine import Cells

    partition = tabulation.partition
    labels = []
    for name in partition.cells:
        column = table.column(name)
        assert column is not None
        labels.append(list_labels(column, partition.breaks.get(name, ())))
    return Cells(partition.cells, tuple(labels))


def _list_areas(context: Context, tabulation: Tabulation, table: TableSchema) -> Spine:
    """The areas from the public list."""
    from deniable.geography.spine import Spine

    areas = tabulation.partition.areas
    if areas is None:
        return Spine.of((), [])
    column = table.column(areas.column)
    assert column is not None
    if not areas.table:
        codes = [str(each) for each in column.categories or ()]
    else:
        wanted = areas.levels[-1:] if areas.prefixes else areas.levels
        engine = context.scope.attach_public(areas.table)
        present = {field.name: field.type for field in engine.describe(areas.table)}
        missing = [name for name in wanted if name not in present]
        if missing:
            raise ParameterError(
                f"the public table '{areas.table}' has no column '{missing[0]}'", expected="A column for each level"
            )
        if present[wanted[-1]] is not column.type:  # 7 in one would never be "007" in the other
            raise ParameterError(
                f"'{wanted[-1]}' is {present[wanted[-1]]} in '{areas.table}', and '{areas.column}' is {column.type} in "
                f"'{table.name}'",
                expected="One type for both", remedy="Declare it under columns: of the public table",
            )  # fmt: skip
        shown = ", ".join(quote(name) for name in wanted)
        listed = engine.run(f"SELECT {shown} FROM {quote(areas.table)}")  # noqa: S608  quoted names of a public table
        columns = [[None if v is None else str(v) for v in each.to_pylist()] for each in listed.columns]
        if not areas.prefixes:
            return Spine.of(areas.levels, columns)
        codes = [code or "" for code in columns[0]]
    short = [code for code in codes if areas.prefixes and len(code) < areas.prefixes[-1]]
    if short or not all(codes):
        raise ParameterError("a listed code is shorter than its prefixes", expected="Codes of full length")
    return Spine.of(areas.levels, [[code[:size] for code in codes] for size in areas.prefixes] + [codes])


def _name_areas(context: Context, plan: Plan) -> str:
    """The version of the public list of areas: another list is another question."""
    areas = plan.tabulation.partition.areas
    return context.scope.public_versions(areas.table)[areas.table][:16] if areas is not None and areas.table else "-"


def state_protection(plan: Plan) -> str:
    """Whom the release protects, in plain words."""
    rows = "one row" if plan.reach == 1 else f"{plan.reach} rows"
    who = (
        "one row, whoever it belongs to" if plan.unit.is_row else f"what {plan.unit} say, {rows} at most being counted"
    )
    if not plan.tabulation.invariants:
        how = "came or went" if plan.unit.neighboring is Neighboring.ADD_REMOVE else "had other values"
        return f"It is hidden {who}: the release is almost as likely if they {how}."
    told = "; ".join(_name_invariants(plan))
    return (
        f"It is hidden {who}, among all values that leave these exact numbers as they are: {told}. "
        "The exact numbers themselves are not private. Whoever knows everybody but one person learns from them what "
        "they say of that person; beyond that, the guarantee holds."
    )


def _name_invariants(plan: Plan) -> list[str]:
    places = {level: "of everybody" if level == ROOT else f"of each {level}" for level in plan.tabulation.invariants}
    return [f"the numbers {places[level]} by {', '.join(by)}" if by else f"the total {places[level]}"
            for level, by in plan.tabulation.invariants.items()]  # fmt: skip


def claim_guarantee(plan: Plan) -> Guarantee:
    """The guarantee of the noise, with what it does not cover said in it."""
    from deniable.release import Technique

    found = guarantee_of(Technique.DP_QUERY, plan.unit, plan.cost)
    if not plan.tabulation.invariants:
        return found
    told = "; ".join(_name_invariants(plan))
    return replace(found, unit=f"{found.unit}, but for what exact numbers tell ({told})")


def _job_of(context: Context, plan: Plan, tell: Progress) -> Job[Published]:
    from deniable.release import Technique

    tabulation, areas = plan.tabulation, plan.tabulation.partition.areas
    text = (
        f"tabulation of {tabulation.table}: {plan.spine.sizes[-1]} areas on {plan.spine.depth} levels, "
        f"{plan.design.cells.count} cells, {len(plan.design.margins)} margins"
    )
    exactly = _name_invariants(plan)
    details = {"asked": text, "tabulation": tabulation.name, "declared": plan.declared, "invariants": exactly}
    return Job(
        Technique.DP_QUERY, text, plan.event, plan.unit, (plan.table.name,),
        lambda engine: _measure(context, plan, engine, tell),
        public=(areas.table,) if areas is not None and areas.table else (),
        cost=plan.cost, details={**details, "protects": state_protection(plan)},
        form=_make_form(), anew=BEGIN_EPOCH,
    )  # fmt: skip


def _measure(context: Context, plan: Plan, engine: Engine, tell: Progress) -> Published:
    """Read the rows once, add noise, and infer what is published; the last sight of the data."""
    from deniable.geography import spine as tree
    from deniable.geography.published import Published, estimate_totals, imitate, weigh

    if plan.tabulation.invariants:
        _note_exact(context, plan)
    design = plan.design
    exact = read_counts(engine, plan)
    tell(0.1)
    fixed = [
        None if by is None else tree.Invariant(by, tree.sum_level(design, exact, level, by))
        for level, by in enumerate(plan.fixed)
    ]
    noises = [None if level is None else list(level) for level in design.noises]
    noisy = tree.measure(design, exact, noises, lambda share: tell(0.1 + 0.2 * share))
    del exact
    estimates = tree.estimate(design, noisy)
    table, totals = tree.infer(design, estimates, fixed, lambda share: tell(0.3 + 0.6 * share))
    unbiased = estimate_totals(design, estimates, fixed)
    del estimates, noisy
    exactly = tuple(None if each is None else each.values for each in fixed)
    shown = weigh(Published(table, tuple(totals), unbiased, (), exactly), plan.weight, plan.reach)
    errors = imitate(design, shown.table, plan.fixed, plan.weight)
    tell(0.95)
    return replace(shown, errors=tuple(errors))


def _note_exact(context: Context, plan: Plan) -> None:
    """Record in the ledger that exact numbers leave, which have no guarantee."""
    from deniable.release import Technique

    told = "; ".join(_name_invariants(plan))
    text = f"exact numbers beside a tabulation of {plan.table.name}: {told}"
    job: Job[None] = Job(
        Technique.DP_QUERY, text, None, plan.unit, (plan.table.name,),
        details={"asked": text, "tabulation": plan.tabulation.name, "declared": plan.declared}, anew=BEGIN_EPOCH,
    )  # fmt: skip
    charge(context, job, request=f"invariants {plan.declared} {_name_areas(context, plan)} {context.epoch}")


def read_counts(engine: Engine, plan: Plan) -> Table:
    """The exact counts of bounded rows by smallest area and cell, sorted by area; rows elsewhere count nowhere."""
    from deniable.geography.spine import Table, encode_column, make_encoder

    partition = plan.tabulation.partition
    place = {str(name): i for i, name in enumerate(plan.spine.names[-1])}
    cells = plan.design.cells.count
    keys, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for batch in _stream_counts(engine, plan):
        columns = list(batch.columns)
        inside = np.zeros(batch.num_rows, np.int64)
        if partition.areas is not None:
            inside = encode_column(columns.pop(0), lambda value: place.get(str(value), -1))
        for column, name, labels in zip(columns, partition.cells, plan.design.cells.labels, strict=False):
            code = encode_column(column, make_encoder(labels, partition.breaks.get(name, ())))
            inside = np.where((inside < 0) | (code < 0), -1, inside * len(labels) + code)
        kept = inside >= 0
        keys.append(inside[kept])
        counts.append(batch.column(len(batch.columns) - 1).to_numpy(zero_copy_only=False)[kept].astype(np.int64))
    listed, at = np.unique(np.concatenate(keys), return_inverse=True)
    summed = np.bincount(at, weights=np.concatenate(counts), minlength=len(listed))
    return Table((listed // cells).astype(np.int32), (listed % cells).astype(np.int32), summed.astype(np.int32))


def _stream_counts(engine: Engine, plan: Plan) -> Iterator[pa.RecordBatch]:
    """Keys and the number of bounded rows that have them; of a secret sample, where there is one."""
    import pyarrow as pa

    from deniable.geography.survey import draw_sample
    from deniable.query.keys import PrivateKeys
    from deniable.query.sql.private_sql import render_totals, render_unit_entries, select_additive

    node, step, salt = plan.question.nodes[0], plan.question.nodes[0].steps[0], secrets.randbits(63)
    step = replace(step, keys=PrivateKeys("areas are found here"))
    wanted = dict(list(select_additive(step.placed, threshold=False).items())[:1])
    if plan.weight == 1 or step.limits.by_row:
        for batch in engine.stream(render_totals(node.node, step.places, wanted, step.limits, step.keys, salt), BATCH):
            counts = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False).astype(np.int64)
            if plan.weight > 1:  # each row is a unit, and has a coin of its own
                ends = np.append(0, np.cumsum(draw_sample(int(counts.sum()), plan.weight)))
                counts = np.diff(ends[np.append(0, np.cumsum(counts))])
            yield pa.RecordBatch.from_arrays([*batch.columns[:-1], pa.array(counts)], names=batch.schema.names)
        return
    rows = pa.Table.from_batches(list(engine.stream(render_unit_entries(node.node, step, salt), BATCH)))
    units = rows.column("_unit").combine_chunks().dictionary_encode()
    taken = draw_sample(len(units.dictionary), plan.weight)[units.indices.to_numpy(zero_copy_only=False)]
    yield from rows.drop_columns(["_unit"]).filter(pa.array(taken)).to_batches()


def _report(plan: Plan, published: Published, release: str, charged: bool) -> TabulationReport:
    from deniable.geography.published import CONFIDENCE, NOTES, SAMPLED, TabulationReport, expect_errors, list_totals

    guarantee = claim_guarantee(plan)
    assert guarantee.epsilon is not None
    assert guarantee.delta is not None
    sizes, steps = plan.spine.sizes, (plan.weight, plan.reach)
    shown = sum(sum(sizes[: level + 1]) <= MOST_TOTALS for level in range(len(sizes)))
    return TabulationReport(
        plan.tabulation.name, state_protection(plan), guarantee.epsilon, guarantee.delta, release, charged,
        int(published.totals[0][0]), sizes[-1], plan.design.cells.count, len(published.table.count), CONFIDENCE,
        tuple(expect_errors(plan.design, plan.fixed, plan.weight, plan.reach)),
        tuple(asdict(each.round()) for each in published.errors),
        tuple(row for level in range(shown) for row in list_totals(plan.design, published, level, *steps)),
        NOTES + ((SAMPLED,) if plan.weight > 1 else ()),
    )  # fmt: skip


def _write_files(
    context: Context, plan: Plan, published: Published, report: TabulationReport,
    places: Sequence[Path | None], of: Mapping[str, str],
) -> TabulationReport:  # fmt: skip
    """The files that are wanted: those of numbers are read back and certified by other code than wrote them."""
    import pyarrow as pa

    from deniable.assess.released_rows import certify_cells, certify_totals
    from deniable.geography.published import list_batches, list_exact, list_paths, list_shares, list_totals

    (out, totals, shares), design, spine, steps = places, plan.design, plan.spine, (plan.weight, plan.reach)
    if out is not None:
        paths = list_paths(spine, spine.depth - 1)
        names = dict(zip(spine.levels[1:], zip(*paths, strict=True), strict=True))
        labels = dict(zip(design.cells.columns, design.cells.labels, strict=True))
        exact = list_exact(design, published, plan.fixed)
        rows = list_batches(design, published.table, COUNT)
        report = _write_file(context, plan, report, out, rows, lambda: certify_cells(out, names, labels, exact, COUNT))
    if totals is not None:
        told = (row for level in range(spine.depth) for row in list_totals(design, published, level, *steps))
        sizes = dict(zip(spine.levels, spine.sizes, strict=True))
        table = pa.Table.from_pylist([row.to_dict() for row in told])
        report = _write_file(context, plan, report, totals, table, lambda: certify_totals(totals, sizes))
    if shares is not None:
        listed = [row.to_dict() for row in list_shares(design, published, of, *steps, plan.fixed)]
        report = _write_file(context, plan, report, shares, pa.Table.from_pylist(listed), None)
    return report


def _write_file(
    context: Context, plan: Plan, report: TabulationReport, path: Path, rows: Any,
    certify: Callable[[], CertifiedCounts] | None,
) -> TabulationReport:  # fmt: skip
    """One file with its statement."""
    from deniable.release import Provenance, seal

    context.scope.engine.write(rows, path)
    found = None if certify is None else certify()
    if found is not None and found.broken:
        raise InternalError(
            f"what was written is not what is claimed of it: {'; '.join(found.broken)}",
            remedy="It was removed, and nothing left. Please report it",
        )
    parameters = {"tabulation": plan.tabulation.name, "levels": list(plan.spine.levels), "cells": report.cells}
    versions = {plan.table.name: f"epoch {context.epoch}"}
    certified = {} if found is None else {MEASURED: found.to_dict()}
    details = {
        "protects": report.protects, "invariants": _name_invariants(plan), "notes": list(report.notes),
        "confidence": report.confidence, "errors": list(report.errors), **certified,
    }  # fmt: skip
    sealed = seal(path, claim_guarantee(plan), Provenance(context.policy.hash, versions, parameters), details,
                  key=find_signing_key(context))  # fmt: skip
    note_published(context, sealed, report.release)
    told = report.certified or {}
    return report if found is None else replace(report, certified={**told, path.name: found.to_dict()})
