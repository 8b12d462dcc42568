"""Automatic bounds: found at a stated cost, as a question of their own or inside one that leaves them open.

`query` and `explain` are those of `sql`, and see to AUTO_CLAMP and CONTRIBUTION AUTO first.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import (
    after_the_charge,
    charge,
    guarantee_of,
    job_of,
    open_job,
    recalls_charge,
    run_job,
    still_charged,
)
from deniable.curator.context import Context
from deniable.curator.query import sql as plain
from deniable.curator.query.derived import Recompile
from deniable.curator.query.sql import QueryAnswer, answer_job, compile_sql
from deniable.errors import QueryRefused, check_seconds, nearest
from deniable.policy.budget import ZCDP, Amount, Budget, budget, split

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deniable.dp.accounting import Event
    from deniable.policy.schema import Column, TableSchema
    from deniable.query.execute import NoisyResults
    from deniable.query.explain import QuestionExplanation
    from deniable.query.plan import QueryPlan
    from deniable.query.sql.auto_clamp import AutoClamp, FoundBounds
    from deniable.query.sql.clauses import Auto
    from deniable.query.techniques.contribution import FoundBound, Search
    from deniable.release import Release

CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Stage:
    """A question that is asked first, and what it finds: bounds of values for some calls, or one on contributions."""

    plan: QueryPlan
    calls: tuple[AutoClamp, ...] = ()
    search: Search | None = None

    @property
    def finds(self) -> str:
        """What it finds, in words."""
        return self.search.option if self.search is not None else f"bounds of {self.calls[0].argument}"


@dataclass(frozen=True, slots=True)
class Staged:
    """A statement that leaves bounds to be found: its first stages, and what is left of the budget for itself."""

    sql: str
    auto: Auto | None
    stages: tuple[Stage, ...]
    fixed: Mapping[str, int]
    """Bounds that can be only one number."""
    share: Fraction
    asked: Budget
    left: Budget
    """What the question itself may cost; it is written so that it allows one kind of noise, whatever is found."""
    thresholds: bool = False
    """Whether keys are private, so that the question spends the delta of what is left."""

    def fill(self, clamps: Mapping[AutoClamp, tuple[str, str]], bounds: Mapping[str, int]) -> str:
        """The statement with bounds in the places where they are to be found."""
        from deniable.query.sql.auto_clamp import insert_bounds
        from deniable.query.techniques.contribution import write_bounds

        text = self.sql
        if self.auto is not None:
            stated = write_bounds({**self.fixed, **bounds})
            text = text[: self.auto.start] + stated + text[self.auto.end :]
        return insert_bounds(text, clamps)

    @property
    def placeholder(self) -> str:
        """The statement with bounds that are still to be found."""
        calls = [call for stage in self.stages for call in stage.calls]
        options = [stage.search.option for stage in self.stages if stage.search is not None]
        return self.fill(dict.fromkeys(calls, ("0", "1")), dict.fromkeys(options, 1))

    @property
    def note(self) -> str:
        """What an explanation says of the stages."""
        shown = "bounds 0 and 1" if self.auto is None else "bounds 0 and 1, and 1 group and row of each person"
        return f"Bounds are found first, for {float(self.share):.3g} of the budget; errors are shown for {shown}."


@dataclass(frozen=True, slots=True)
class Found:
    """What the stages found."""

    clamps: dict[AutoClamp, FoundBounds]
    bounds: tuple[FoundBound, ...]
    narrowed: bool = False
    """Whether wider bounds were found, for which the question could not be planned with what is left."""


def find_bounds(
    context: Context,
    table: str,
    column: str,
    epsilon: Amount,
    *,
    delta: Amount = 0,
    confidence: float = CONFIDENCE,
) -> QueryAnswer:
    """One row: lower, upper, and whether anything rose above the noise."""
    import pyarrow as pa

    plain.check_confidence(confidence)
    if not isinstance(table, str) or not isinstance(column, str):
        raise QueryRefused("the table and the column are given by their names", expected="Such as 'visits', 'charge'")
    schema, known = _find_column(context.admit_tables(), column, table)
    plan = _plan(context, schema, known, budget(epsilon, delta))
    job = job_of(plan)
    result = run_job(context, job)
    with after_the_charge():
        found = _read(plan, result.measured, known.type == "integer", confidence)
    row = {"lower": float(found.lower), "upper": float(found.upper), "found": found.found}
    return answer_job(context, job, result, pa.Table.from_pylist([row]), **_describe_bounds(found))


@recalls_charge
def query(context: Context, sql: str, asked: Budget | None, **rest: Any) -> QueryAnswer:
    """Answer a question; bounds that it leaves open are found first, for a share of its budget."""
    from deniable.query.execute import refuse_inconsistent

    plain.refuse_explanation(sql)
    staged = _plan_stages(context, sql, asked)
    if not isinstance(staged, Staged):
        return plain.query(context, staged, asked, **rest)
    rest.pop("bias_share", None)
    plain.check_confidence(rest.get("confidence", CONFIDENCE))
    check_seconds(rest.get("seconds"))  # before the stages are charged
    if rest.get("consistent"):
        refuse_inconsistent(compile_sql(context, staged.placeholder, staged.left))
    unpaid = _list_unpaid(context, staged)
    if unpaid:  # where all bounds are known, the question itself is repeated, or refused by its own price
        _refuse_unaffordable(context, staged, unpaid)
        open_job(context, job_of(unpaid[0].plan), rest.get("request", ""))  # an id that was used, was for another
    measured = [run_job(context, job_of(stage.plan), stop=rest.get("stop")).measured for stage in staged.stages]
    with after_the_charge():
        found = _read_stages(context, staged, measured)
    with still_charged() if unpaid else nullcontext():
        answer = plain.query(context, _fill_found(staged, found), staged.left, **(rest | {"recompile": None}))
    return replace(answer, release=_state_whole(answer.release, found, staged))


def _read_stages(context: Context, staged: Staged, measured: list[NoisyResults]) -> Found:
    """What was found, from the noisy numbers of the stages."""
    from deniable.query.sql.auto_clamp import read_clamp, round_bounds
    from deniable.query.techniques.contribution import choose_bound

    clamps: dict[AutoClamp, FoundBounds] = {}
    bounds: list[FoundBound] = []
    final = compile_sql(context, staged.placeholder, staged.left)
    for stage, results in zip(staged.stages, measured, strict=True):
        if stage.search is None:
            found = round_bounds(read_clamp(stage.plan, results, CONFIDENCE), stage.plan)
            clamps |= dict.fromkeys(stage.calls, found)
        else:
            bounds.append(choose_bound(stage.search, stage.plan, results, final, CONFIDENCE))
    return _narrow(context, staged, Found(clamps, tuple(bounds)))


def _narrow(context: Context, staged: Staged, found: Found) -> Found:
    """What was found, or the widest bounds within it for which the question can be planned with what is left.

    Wide bounds may need more noise than can be drawn, and a function may be unbounded there. Plans depend on no row, so
    this is post-processing. Values are cut first; contributions where that does not help; then both.
    """
    from deniable.query.sql.auto_clamp import list_narrower as narrow_values
    from deniable.query.techniques.contribution import list_narrower as narrow_contributions

    def can_be_planned(each: Found) -> bool:
        return _find_refusal(context, _fill_found(staged, each), staged.left) is None

    if can_be_planned(found):
        return found
    both, above = (
        [dict(zip(found.clamps, each, strict=True)) for each in narrow_values(tuple(found.clamps.values()), signed)]
        for signed in (True, False)
    )
    counts = narrow_contributions(found.bounds)
    ways = (
        [Found(each, found.bounds, narrowed=True) for each in both],
        [Found(each, found.bounds, narrowed=True) for each in above],
        [Found(found.clamps, each, narrowed=True) for each in counts],
        [Found(each, counts[-1], narrowed=True) for each in above],
    )
    for way in ways:
        first = bisect_left(way, True, key=can_be_planned)
        if first < len(way):
            return way[first]
    return ways[-1][-1]  # 0 and 1, and one group and row: planned before the charge


def _find_refusal(context: Context, sql: str, asked: Budget) -> QueryRefused | None:
    """Why a question cannot be planned; None where it can."""
    try:
        compile_sql(context, sql, asked)
    except QueryRefused as refusal:
        return refusal
    return None


def _fill_found(staged: Staged, found: Found) -> str:
    clamps = {call: each.written for call, each in found.clamps.items()}
    return staged.fill(clamps, {each.option: each.value for each in found.bounds})


def _state_whole(release: Release, found: Found, staged: Staged) -> Release:
    """The release with what all stages cost together, and with the bounds that were found."""
    from deniable.query.explain import describe_budget
    from deniable.release import Technique

    first = {call.meant: (call, each) for call, each in found.clamps.items()}.values()
    told = [
        {"of": call.argument, "lower": float(each.lower), "upper": float(each.upper),
         "threshold": each.threshold, "found": each.found} for call, each in first
    ]  # fmt: skip
    said: Any = release.details["notes"]
    notes = [*(_tell_bounds(call, each) for call, each in first), *([NARROWED] if found.narrowed else []), *said]
    details = {**release.details, "cost": describe_budget(staged.asked), "bounds": told, "notes": notes}
    if staged.auto is not None:
        cost = {stage.finds: describe_budget(stage.plan.cost) for stage in staged.stages}
        chosen: list[dict[str, Any]] = [asdict(each) for each in found.bounds]
        chosen += [{"option": name, "value": value, "stated": True} for name, value in staged.fixed.items()]
        details |= {"contribution": {"share": str(float(staged.share)), "chosen": chosen, "cost": cost}}
        details |= {"notes": [_tell_contribution(staged, found), *notes]}
    guarantee = guarantee_of(Technique.DP_QUERY, staged.stages[0].plan.unit, staged.asked)
    return replace(release, guarantee=guarantee, details=details)


NARROWED = (
    "The question cannot be planned with bounds as wide as those that were found: noise of that size cannot be drawn, "
    "or an expression has no bounds there. They were narrowed to those stated here, and what is beyond them is cut. "
    "Ask for more epsilon, or for larger units, such as AUTO_CLAMP(x / 1000)."
)
BOUNDS = {
    "max_groups_contributed": "max_groups {}",
    "max_rows_per_group": "max_rows_per_group {}",
    "max_rows_contributed": "max_rows {}",
}


def _tell_contribution(staged: Staged, found: Found) -> str:
    """What was chosen, and what it cost."""
    values = {each.option: str(each.value) for each in found.bounds}
    values |= {name: f"{value} (by policy or keys)" for name, value in staged.fixed.items()}
    listed = " and ".join(BOUNDS[name].format(values[name]) for name in BOUNDS if name in values) or "all rows"
    lost = ", ".join(each.option for each in found.bounds if not each.found)
    more = f" Nothing rose above the noise for {lost}: state it by hand, or ask for more epsilon." if lost else ""
    spent = f"{float(staged.share):.3g} of the budget"
    return f"CONTRIBUTION AUTO: the bounds of each person are {listed}; bounds were found with noise for {spent}.{more}"


def _tell_bounds(call: AutoClamp, found: FoundBounds) -> str:
    low, high = found.written
    if found.found:
        more = " No wider ones are looked for: values beyond them are cut." if found.widest else ""
        told = f"values were clamped to the bounds {low} and {high}, found with noise"
        return f"AUTO_CLAMP({call.argument}): {told}.{more}"
    return (
        f"AUTO_CLAMP({call.argument}): nothing rose above the noise, so values were clamped to {low} and {high}, which "
        "says nothing of them. Clamp by hand, or ask for more epsilon or more rows."
    )


def explain(
    context: Context, sql: str, asked: Budget | None, recompile: Recompile = plain.recompile_question
) -> QuestionExplanation:
    """What a question would measure and cost, without data; where it leaves bounds open, with the stages before it."""
    from deniable.query.explain import BoundsExplanation, StagedExplanation, describe_budget
    from deniable.query.explain import explain as explain_plan

    staged = _plan_stages(context, sql, asked)
    if not isinstance(staged, Staged):
        return plain.explain(context, staged, asked, recompile)
    final = plain.explain(context, staged.placeholder, staged.left, None)
    event = _compose(staged, staged.stages)
    more = context.ledger.fits(event, *context.path)
    first = [BoundsExplanation(**explain_plan(stage.plan), finds=stage.finds) for stage in staged.stages]
    rest = {"cost": describe_budget(staged.asked), "more_like_this": more, "notes": [staged.note, *final.notes]}
    return StagedExplanation(**(final | rest), bounds=first)


def write_placeholders(context: Context, sql: str, asked: Budget | None) -> str:
    """The question with some bounds where it leaves them open: it has the same columns."""
    staged = _plan_stages(context, sql, asked)
    return staged.placeholder if isinstance(staged, Staged) else staged


def refuse_open_bounds(context: Context, sql: str, asked: Budget) -> None:
    """Refuse a question whose bounds are found first, where several questions are measured at once."""
    if isinstance(_plan_stages(context, sql, asked), Staged):
        raise QueryRefused(
            "its bounds are found first (AUTO_CLAMP, CONTRIBUTION AUTO), and a batch is measured at once",
            remedy="State the bounds: CLAMP(x, 0, 100), CONTRIBUTION (max_groups_contributed = 3); or ask it alone",
        )


def find_charge(context: Context, sql: str, asked: Budget | None, recompile: Recompile) -> Event | None:
    """What a question would be charged if it were asked now; None where it is free, stored, or follows from others."""
    staged = _plan_stages(context, sql, asked)
    if isinstance(staged, Staged):
        known = [plain.find_stored(context, stage.plan) for stage in staged.stages]
        unpaid = [stage for stage, measured in zip(staged.stages, known, strict=True) if measured is None]
        if unpaid:
            return _compose(staged, unpaid)
        final = _compile_found(context, staged, [measured for measured in known if measured is not None])
    else:
        final = compile_sql(context, staged, asked)
        if plain.find_following(context, final, recompile) is not None:
            return None
    return None if final.free or plain.find_stored(context, final) is not None else final.event


def _may_call(sql: str) -> bool:
    """Whether a word that leaves bounds open stands anywhere in a statement, so that it is worth reading."""
    return isinstance(sql, str) and ("AUTO_CLAMP" in sql.upper() or "CONTRIBUTION" in sql.upper())


def _plan(context: Context, table: TableSchema, column: Column, asked: Budget) -> QueryPlan:
    from deniable.query.compile import compile_query
    from deniable.query.sql.auto_clamp import write_bounds_query

    return compile_query(write_bounds_query(table, column), (table,), asked, pure=plain.is_pure(context))


def _read(plan: QueryPlan, measured: NoisyResults, whole: bool, confidence: float) -> FoundBounds:
    from deniable.query.sql.auto_clamp import read_bounds

    return read_bounds(plan, measured, whole, confidence)


def _describe_bounds(found: FoundBounds) -> dict[str, Any]:
    note = f"Bins with fewer than {found.threshold} units (with noise) were taken for empty; values there are clamped."
    return {"threshold": found.threshold, "notes": [note]}


def _find_column(tables: tuple[TableSchema, ...], column: str, table: str) -> tuple[TableSchema, Column]:
    """The private table and the column meant."""
    from deniable.query.sql.auto_clamp import find_numeric_column

    named = [each for each in tables if each.name.lower() == table.lower()]
    if not named:
        raise QueryRefused(
            f"there is no table '{table}'", remedy=nearest(table, [t.name for t in tables]) or "Use its own name"
        )
    return named[0], find_numeric_column(named[0], column)


def _plan_stages(context: Context, sql: str, asked: Budget | None) -> Staged | str:
    """The stages before a question that leaves bounds open; else the question, in which nothing is left open."""
    from deniable.query.algebra.relation import tables_of
    from deniable.query.plan import GROUPS
    from deniable.query.sql.auto_clamp import SHARE, find_auto_clamps
    from deniable.query.sql.clauses import cut_clauses

    if not _may_call(sql):
        return sql
    searches: tuple[Search, ...] = ()
    if cut_clauses(sql).auto is not None:
        sql, searches = _plan_searches(context, sql)
    auto, calls = cut_clauses(sql).auto, find_auto_clamps(sql)
    if auto is None and not calls:
        return sql
    if asked is None:
        word = "AUTO_CLAMP" if auto is None else "CONTRIBUTION AUTO"
        raise QueryRefused(f"{word} shares a budget stated beside the question", remedy="State epsilon beside it")
    meant: dict[tuple[str, ...], list[AutoClamp]] = {}
    for call in calls:
        meant.setdefault(call.meant, []).append(call)
    fixed = {search.option: search.edges[0] for search in searches if len(search.edges) == 1}
    sought = [search for search in searches if len(search.edges) > 1]
    count, share = len(meant) + len(sought), SHARE if auto is None else auto.share
    bare = Staged(sql, auto, (), fixed, share, asked, asked)
    clamps = dict.fromkeys(calls, ("0", "1"))
    written = bare.fill(clamps, {search.option: 1 for search in sought})
    rehearsed = compile_sql(context, written, asked)  # what is wrong with the question is told in its own words
    if not count or not tables_of(rehearsed.relation):  # nothing is left open, or it takes no rows
        return written
    widest = {search.option: min(search.edges[-1], WIDEST) if search.option == GROUPS else 1 for search in sought}
    final = compile_sql(context, bare.fill(clamps, widest), asked)
    found = []
    for form in _list_forms(context, final, asked):
        *parts, left = split(_set_delta(form), (*(share / count for _ in range(count)), Fraction(1) - share))
        stages = [_plan_clamp(context, tuple(mine), part) for mine, part in zip(meant.values(), parts, strict=False)]
        for search, part in zip(sought, parts[len(meant) :], strict=True):
            stages.append(Stage(_plan_search(context, search, part), search=search))
        left = _set_delta(left, form.delta)
        found.append(replace(bare, stages=tuple(stages), left=left, thresholds=_has_thresholds(final)))
    return _choose_form(context, _keep_plannable(context, found))


WIDEST = 1_000
"""The kind of noise is chosen for a bound on groups of at most so many; beyond it Gaussian noise is the lesser."""


def _list_forms(context: Context, widest: QueryPlan, asked: Budget) -> tuple[Budget, ...]:
    """The budget, written so that it allows one kind of noise; that which is less for the widest bounds comes first.

    What the stages find must not change the kind of noise, since each kind is counted in its own way by the ledger: a
    question that was admitted for one could be refused for the other, after its stages were charged.
    """
    from deniable.dp.accounting import rho_within
    from deniable.ledger.budget_tree import choose_accounting
    from deniable.policy.access import Accounting
    from deniable.query.measurements import Ordered

    if plain.is_pure(context) or isinstance(asked, ZCDP) or not asked.delta:
        forms: tuple[Budget, ...] = (asked,)
    else:
        thresholds = _has_thresholds(widest)
        rest = asked.delta / 2 if thresholds else asked.delta
        rho = rho_within(asked.epsilon, rest)
        forms = (ZCDP(rho, asked.delta - rest),) if rho else ()
        if not thresholds:
            forms = (budget(asked.epsilon), *forms) if widest.strategy == "pure" else (*forms, budget(asked.epsilon))
    if choose_accounting(context.policy.budgets) == Accounting.PLD:
        ordered = any(isinstance(m, Ordered) for node in widest.nodes for m in node.measurements)
        forms = tuple(form for form in forms if not isinstance(form, ZCDP) or not (ordered or form.rho > 4))
    if not forms:
        raise QueryRefused(
            "bounds cannot be found under this budget: what the question costs would depend on them",
            remedy="State the bounds: CONTRIBUTION (max_groups_contributed = 3), CLAMP(x, 0, 9)",
        )
    return forms


def _keep_plannable(context: Context, forms: Sequence[Staged]) -> Sequence[Staged]:
    """The forms whose question can be planned with what is left for it, at least with the narrowest bounds."""
    refusals = [_find_refusal(context, each.placeholder, each.left) for each in forms]
    if None not in refusals:
        assert refusals[0] is not None
        raise refusals[0]
    return [each for each, refusal in zip(forms, refusals, strict=True) if refusal is None]


def _choose_form(context: Context, forms: Sequence[Staged]) -> Staged:
    """The form whose answer is stored; else the first that the ledger admits as a whole; else the first."""
    for staged in forms if len(forms) > 1 else ():
        known = [plain.find_stored(context, stage.plan) for stage in staged.stages]
        measured = [each for each in known if each is not None]
        if len(measured) == len(known):
            final = _compile_found(context, staged, measured)
            if plain.find_stored(context, final) is not None:
                return staged
    fitting = (each for each in forms if _fits(context, _compose(each, _list_unpaid(context, each))))
    return forms[0] if len(forms) == 1 else next(fitting, forms[0])


def _compile_found(context: Context, staged: Staged, measured: list[NoisyResults]) -> QueryPlan:
    """The question itself, with what its stages found."""
    return compile_sql(context, _fill_found(staged, _read_stages(context, staged, measured)), staged.left)


def _list_unpaid(context: Context, staged: Staged) -> list[Stage]:
    return [stage for stage in staged.stages if plain.find_stored(context, stage.plan) is None]


def _set_delta(whole: Budget, delta: Fraction = Fraction(0)) -> Budget:
    return ZCDP(whole.rho, delta) if isinstance(whole, ZCDP) else budget(whole.epsilon, delta)


def _has_thresholds(plan: QueryPlan) -> bool:
    return any(step.threshold is not None for node in plan.nodes for step in node.steps)


def _plan_searches(context: Context, sql: str) -> tuple[str, tuple[Search, ...]]:
    """The bounds on contributions that are to be found; and the question, with AUTO_CLAMP where values have none."""
    from deniable.query.sql.auto_clamp import wrap_unbounded
    from deniable.query.sql.binder import bind_statement
    from deniable.query.sql.clauses import cut_clauses
    from deniable.query.techniques.contribution import plan_searches

    tables, clauses = context.admit_tables(), cut_clauses(sql)
    if clauses.within is not None:
        raise QueryRefused(
            "WITHIN finds an epsilon, and CONTRIBUTION AUTO takes a share of a stated one", remedy="Leave one out"
        )
    wrapped, relation = wrap_unbounded(sql, lambda text: bind_statement(text, tables)[0])
    return wrapped, plan_searches(relation, clauses)


def _plan_clamp(context: Context, calls: tuple[AutoClamp, ...], part: Budget) -> Stage:
    from deniable.query.sql.auto_clamp import write_bounds_query_over

    plan = compile_sql(context, write_bounds_query_over(*calls[0].meant), part)
    if plan.free:
        raise QueryRefused("AUTO_CLAMP is over public rows, whose bounds need no privacy")
    return Stage(plan, calls)


def _plan_search(context: Context, search: Search, part: Budget) -> QueryPlan:
    """The plan of a histogram of people by how much they contribute."""
    from deniable.query.compile import plan_relation
    from deniable.query.sql.clauses import Clauses

    text = f"people by {search.option}"
    plan = plan_relation(text, search.node, Clauses(text, pure=plain.is_pure(context)), part)
    return plain.refuse_elsewhere(context, plan)


def _refuse_unaffordable(context: Context, staged: Staged, stages: Sequence[Stage]) -> None:
    """Refuse before the first stage what the last could not pay, whatever the stages find."""
    whole = _compose(staged, stages)
    if not _fits(context, whole):
        final = compile_sql(context, staged.placeholder, staged.left)
        charge(context, replace(job_of(final), event=whole, cost=staged.asked))


def _fits(context: Context, event: Event) -> bool:
    fits = context.ledger.fits(event, *context.path)
    return fits is None or fits > 0


def _compose(staged: Staged, stages: Sequence[Stage]) -> Event:
    """What some stages and the question itself cost at most, whatever bounds are found.

    A question with Laplace noise costs no more than one pure event of its epsilon, by epsilon and by rho: the rhos of
    parts add up to no more than that of the whole. One with a rho costs no more than Gaussian noise of that rho.
    """
    from deniable.dp.accounting import ComposedEvent, GaussianEvent, PureEvent, ThresholdEvent

    left = staged.left
    own: Event = GaussianEvent(1 / (2 * left.rho)) if isinstance(left, ZCDP) else PureEvent(left.epsilon)
    shown = (ThresholdEvent(left.delta),) if staged.thresholds else ()
    return ComposedEvent((*(stage.plan.event for stage in stages), own, *shown))
