"""From a statement and a policy to a plan. This room sees no data and makes every refusal.

The compiled measurements are priced again as events, by the accountants and not by the code that chose them, and the
price must be the budget that was asked (double entry). A mismatch is our bug, and nothing runs.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from deniable.dp.accounting import ComposedEvent, Event, NoOpEvent, ZCDPAccountant, cheap_epsilon, pure_cost, zcdp_cost
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, exact
from deniable.policy.budget import budget as budget_of
from deniable.policy.schema import TableSchema
from deniable.policy.unit import Bounding, Neighboring, PrivacyUnit
from deniable.query import calibrate
from deniable.query.calibrate import Spending
from deniable.query.keys import Keys, PrivateKeys, PublicKeys, keys_of
from deniable.query.measure import Measurement, Ordered, Recipe, Rows, Units, measurements
from deniable.query.plan import NodePlan, Placed, QueryPlan, Step
from deniable.query.relation import Measured, Relation, measured
from deniable.query.sensitivity import sensitivity_of
from deniable.query.sql.bind import statement
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.exact import Limits
from deniable.query.stability import multiplicity, one_unit, unit_of

SHORTFALL = Fraction(1, 10**6)
"""A plan may cost this share less than asked, for roundings that always err to more noise; never more."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A grouping set before its mechanisms are chosen."""

    node: Measured
    places: tuple[int, ...]
    keys: Keys
    limits: Limits
    measurements: tuple[Measurement, ...]
    groups: int
    factor: int
    reused: int | None

    @property
    def parts(self) -> int:
        """How many shares of the budget it takes."""
        return len(self.measurements) + (isinstance(self.keys, PrivateKeys) and self.reused is None)


def compile_query(
    text: str,
    tables: tuple[TableSchema, ...],
    budget: Budget | None = None,
    *,
    weights: tuple[Fraction, ...] | None = None,
) -> QueryPlan:
    """The plan of a statement under a budget stated beside it or inside it."""
    relation, clauses = statement(text, tables)
    asked = stated_budget(clauses, budget)
    if clauses.within is not None:
        from deniable.query.accuracy import cheapest

        return cheapest(text, relation, clauses, asked)
    return plan_for(text, relation, clauses, asked, weights)


def plan_for(
    text: str, relation: Relation, clauses: Clauses, asked: Budget | None, weights: tuple[Fraction, ...] | None = None
) -> QueryPlan:
    """The plan of a bound statement."""
    nodes = measured(relation)
    drafts, recipes = _drafts(nodes, clauses)
    unit = _unit(nodes, clauses)
    canonical = _canonical(relation, asked, clauses)
    if not any(draft.parts for draft in drafts):
        empty = tuple(_node(node, drafts, recipes, []) for node in nodes)
        return QueryPlan(text, relation, empty, unit, asked, NoOpEvent(), PureDP(Fraction(0)), "free", canonical)
    if asked is None:
        raise QueryRefused("no budget was stated", expected="epsilon (and delta), or rho, or WITHIN an error")
    _positive(asked)
    best = _best(drafts, asked, weights)
    steps, spending = best
    event = ComposedEvent(tuple(event for step in steps for event in _events(step)))
    plans = tuple(_node(node, drafts, recipes, steps) for node in nodes)
    return QueryPlan(text, relation, plans, unit, asked, event, price(event, asked), spending.strategy, canonical)


def stated_budget(clauses: Clauses, beside: Budget | None) -> Budget | None:
    """The budget a question states, inside the statement or beside it, not both."""
    inside = {name: clauses.options[name] for name in ("epsilon", "delta", "rho") if name in clauses.options}
    if not inside:
        return beside
    if beside is not None and ("epsilon" in inside or "rho" in inside):
        raise QueryRefused("the budget is stated twice", remedy="State it in OPTIONS or beside the question, not both")
    try:
        return budget_of(inside.get("epsilon"), inside.get("delta", 0), inside.get("rho"))
    except ParameterError as mistake:
        raise QueryRefused(mistake.happened, expected=mistake.expected) from None


def _positive(asked: Budget) -> None:
    amount = asked.rho if isinstance(asked, ZCDP) else asked.epsilon
    if amount <= 0:
        raise QueryRefused("the budget is 0", expected="A budget above 0")
    if amount > 10_000:
        raise QueryRefused("the budget is above 10,000, which protects nobody", expected="epsilon around 1")


def _unit(nodes: tuple[Measured, ...], clauses: Clauses) -> PrivacyUnit | None:
    units = [_bounded_unit(node, clauses) for node in nodes]
    if not units:
        return None
    replaced = any(unit.neighboring is Neighboring.REPLACE for unit in units)
    return replace(units[0], neighboring=Neighboring.REPLACE) if replaced else units[0]


def _bounded_unit(node: Measured, clauses: Clauses) -> PrivacyUnit:
    """The unit with its contribution bounds; a question may tighten what the policy states, and never loosen it."""
    if not one_unit(node.input):
        raise QueryRefused("the tables of this question protect different units: rows in one, ids in another")
    unit = unit_of(node.input)
    named = clauses.options.get("privacy_unit_column")
    if named is not None and named.lower() != (unit.column or "").lower():
        raise QueryRefused("the privacy unit is the policy's to choose", expected=f"The unit is {unit}")
    if unit.is_row:
        return unit
    groups = _tightened(clauses, "max_groups_contributed", unit.max_groups)
    rows = _tightened(clauses, "max_rows_contributed", unit.max_rows_per_group)
    return replace(unit, max_groups=groups, max_rows_per_group=rows)


def _tightened(clauses: Clauses, option: str, allowed: int | None) -> int | None:
    if option not in clauses.options:
        return allowed
    asked = _natural(clauses.options[option], option)
    return asked if allowed is None else min(asked, allowed)


def _natural(text: str, name: str) -> int:
    try:
        number = exact(text, name)
    except ParameterError:
        number = Fraction(0)
    if number.denominator != 1 or not 1 <= number <= 10**9:
        raise QueryRefused(f"{name} is not a whole number from 1 up")
    return int(number)


def _drafts(nodes: tuple[Measured, ...], clauses: Clauses) -> tuple[list[Draft], dict[str, tuple[Recipe, ...]]]:
    drafts, recipes = [], {}
    for node in nodes:
        found, recipes[node.name] = measurements(node, clauses.text)
        unit = _bounded_unit(node, clauses)
        drafts += [_draft(node, places, found, unit) for places in node.grouping_sets]
    return drafts, recipes


def _draft(node: Measured, places: tuple[int, ...], found: tuple[Measurement, ...], unit: PrivacyUnit) -> Draft:
    keys = keys_of(node, places)
    factor = 2 if unit.neighboring is Neighboring.REPLACE else 1
    if unit.is_row:
        limits, groups = Limits(None, multiplicity(node.input), by_row=True), 1
    else:
        limits, groups = _limits(places, keys, unit, found)
    return Draft(node, places, keys, limits, found, groups, factor, _reusable(keys, found, limits))


def _limits(
    places: tuple[int, ...], keys: Keys, unit: PrivacyUnit, found: tuple[Measurement, ...]
) -> tuple[Limits, int]:
    cells = keys.cells if isinstance(keys, PublicKeys) else None
    groups = 1 if not places else unit.max_groups
    if groups is None:
        raise _missing("max_groups", unit)
    groups = min(groups, cells) if cells else groups
    rows = unit.max_rows_per_group
    if rows is None:
        if any(not isinstance(m, Units) for m in found):
            raise _missing("max_rows_per_group", unit)
        rows = 1
    scaled = unit.bounding is Bounding.SCALE and bool(places)
    chooses = bool(places) and (cells is None or groups < cells)
    return Limits(groups if chooses or scaled else None, rows, scaled=scaled), groups


def _missing(name: str, unit: PrivacyUnit) -> QueryRefused:
    option = {"max_groups": "max_groups_contributed", "max_rows_per_group": "max_rows_contributed"}[name]
    return QueryRefused(
        f"the policy does not bound {name} of {unit}",
        remedy=f"Declare {name} in the policy, or write OPTIONS ({option} = 5) in the question",
    )


def _reusable(keys: Keys, found: tuple[Measurement, ...], limits: Limits) -> int | None:
    """Private keys are chosen by a noisy count of units; if that is asked too, it is not paid for twice."""
    if isinstance(keys, PublicKeys):
        return None
    counts: tuple[Measurement, ...] = (Units(None),)
    if limits.by_row and limits.rows == 1:
        counts += (Rows(None, None),)
    return next((i for i, m in enumerate(found) if m in counts), None)


def _best(drafts: list[Draft], asked: Budget, weights: tuple[Fraction, ...] | None) -> tuple[list[Step], Spending]:
    thresholds = sum(isinstance(draft.keys, PrivateKeys) for draft in drafts)
    ordered = any(isinstance(m, Ordered) for draft in drafts for m in draft.measurements)
    scaled = any(draft.limits.scaled for draft in drafts)
    shares = _shares(drafts, weights)
    tried = []
    for spending in calibrate.spendings(asked, thresholds, ordered, scaled):
        steps = [_step(draft, part, spending) for draft, part in zip(drafts, shares, strict=True)]
        tried.append((_noise(steps), steps, spending))
    _, steps, spending = min(tried, key=lambda trial: trial[0])
    return steps, spending


def _shares(drafts: list[Draft], weights: tuple[Fraction, ...] | None) -> list[list[Fraction]]:
    """Each measurement's part of the budget: equal, or by the weights of the statement's measurements in order."""
    wanted = [
        weights[: draft.parts] if weights and len(weights) >= draft.parts else (Fraction(1),) * draft.parts
        for draft in drafts
    ]
    if weights is not None and any(w <= 0 for w in weights):
        raise QueryRefused("weights are positive numbers")
    total = sum((w for each in wanted for w in each), Fraction(0))
    return [[w / total for w in each] for each in wanted]


def _step(draft: Draft, shares: list[Fraction], spending: Spending) -> Step:
    scaled = draft.limits.scaled
    placed = []
    for i, measurement in enumerate(draft.measurements):
        sensitivity = sensitivity_of(measurement, draft.limits.rows, draft.groups, draft.factor == 2)
        if scaled and isinstance(measurement, Ordered):
            raise QueryRefused("quantiles cannot be scaled to a norm", remedy="Declare bounding: sample for this table")
        made, event = calibrate.mechanism(measurement, sensitivity, spending, shares[i], scaled)
        placed.append(Placed(f"m{i}", measurement, sensitivity, made, shares[i], event))
    if isinstance(draft.keys, PublicKeys):
        return Step(draft.places, draft.keys, draft.limits, tuple(placed))
    share = shares[draft.reused] if draft.reused is not None else shares[-1]
    threshold = calibrate.threshold(draft.groups, draft.factor, spending, share, scaled)
    return Step(draft.places, draft.keys, draft.limits, tuple(placed), threshold, share, draft.reused)


def _noise(steps: list[Step]) -> float:
    """The mean logarithm of all deviations: a strategy that halves the noise of one and keeps the others wins."""
    found = [math.log(calibrate.deviation(p.mechanism)) for step in steps for p in step.placed]
    found += [math.log(step.threshold.threshold) for step in steps if step.threshold is not None]
    return sum(found) / max(len(found), 1)


def _events(step: Step) -> list[Event]:
    events = [p.event for i, p in enumerate(step.placed) if i != step.counted_by_threshold]
    return [*events, step.threshold.event] if step.threshold is not None else events


def price(event: Event, asked: Budget) -> Budget:
    """The double entry: what the measurements cost by the accountants, which must be what was asked."""
    match asked:
        case ZCDP(rho, delta):
            cost = zcdp_cost(event)
            priced: Budget = ZCDP(cost.amount, cost.delta) if cost is not None and cost.private else ZCDP(rho + 1)
            fits = (
                isinstance(priced, ZCDP)
                and priced.rho <= rho
                and priced.delta <= delta
                and priced.rho >= rho * (1 - SHORTFALL)
            )
        case PureDP(epsilon) | ApproxDP(epsilon):
            priced = _priced(event, asked)
            fits = (
                priced.epsilon <= epsilon
                and priced.delta <= asked.delta
                and priced.epsilon >= epsilon * (1 - SHORTFALL)
            )
    if not fits:
        raise InternalError("the compiled measurements do not cost what was asked", remedy="Nothing was run")
    return priced


def _priced(event: Event, asked: PureDP | ApproxDP) -> PureDP | ApproxDP:
    pure = pure_cost(event)
    if pure is not None and pure.private and pure.amount <= asked.epsilon and pure.delta <= asked.delta:
        return PureDP(pure.amount) if pure.delta == 0 else ApproxDP(pure.amount, pure.delta)
    epsilon = cheap_epsilon(event, asked.delta)
    return ApproxDP(asked.epsilon + 1, asked.delta) if epsilon is None else ApproxDP(epsilon, asked.delta)


def _node(node: Measured, drafts: list[Draft], recipes: dict[str, tuple[Recipe, ...]], steps: list[Step]) -> NodePlan:
    mine = [i for i, draft in enumerate(drafts) if draft.node == node]
    made = tuple(steps[i] for i in mine) if steps else tuple(
        Step(drafts[i].places, drafts[i].keys, drafts[i].limits, ()) for i in mine
    )  # fmt: skip
    return NodePlan(node, drafts[mine[0]].measurements, recipes[node.name], made)


def _canonical(relation: Relation, asked: Budget | None, clauses: Clauses) -> str:
    """A digest of the bound relation and the budget: spacing and case do not matter, meaning does."""
    options = sorted((k, v) for k, v in clauses.options.items() if k.startswith("max_"))
    return hashlib.sha256(repr((relation, asked, options)).encode()).hexdigest()


__all__ = ["ZCDPAccountant", "compile_query", "plan_for", "price", "stated_budget"]
