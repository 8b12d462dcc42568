"""From a statement and a policy to a plan. This room sees no data and makes every refusal.

Each strategy that the budget allows is tried, and the one with the least noise is taken. What comes out is checked by
double entry before anybody sees it.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction

from deniable.dp.accounting import NoOpEvent
from deniable.dp.mechanisms.quantile_tree import ordered
from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, Amount, Budget, PureDP
from deniable.policy.budget import budget as budget_of
from deniable.policy.schema import TableSchema
from deniable.policy.unit import Neighboring, PrivacyUnit
from deniable.query import bias, calibrate
from deniable.query.bias import share_of
from deniable.query.calibrate import Spending
from deniable.query.contributions import bounded_unit, limits_of, single
from deniable.query.double_entry import check, composed, price
from deniable.query.keys import Keys, PrivateKeys, PublicKeys, keys_of
from deniable.query.limits import Limits
from deniable.query.measure import Measurement, Ordered, Recipe, Rows, Units, measurements
from deniable.query.plan import NodePlan, Placed, QueryPlan, Step
from deniable.query.relation import Measured, Relation, measured
from deniable.query.sensitivity import sensitivity_of
from deniable.query.shares import Weights, shares, weights_of
from deniable.query.sql.bind import statement
from deniable.query.sql.clauses import Clauses
from deniable.query.stability import multiplicity, one_row

LARGEST_DELTA = Fraction(1, 100)


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
    recipes: tuple[Recipe, ...]

    @property
    def parts(self) -> int:
        """How many shares of the budget it takes."""
        return len(self.loads)

    @property
    def loads(self) -> tuple[int, ...]:
        """How many rounds of noise each share is for."""
        chosen = isinstance(self.keys, PrivateKeys) and self.reused is None
        rounds = (ordered(m.quantiles).choices if isinstance(m, Ordered) else 1 for m in self.measurements)
        return (*rounds, 1) if chosen else tuple(rounds)


def compile_query(
    text: str,
    tables: tuple[TableSchema, ...],
    budget: Budget | None = None,
    *,
    weights: Weights = None,
    bias_share: Amount | None = None,
) -> QueryPlan:
    """The plan of a statement under a budget stated beside it or inside it."""
    relation, clauses = statement(text, tables)
    if bias_share is not None:
        clauses = replace(clauses, options={**clauses.options, "bias_share": str(bias_share)})
    asked = stated_budget(clauses, budget)
    weights = weights if weights is not None else weights_of(clauses.options.get("weights"))
    if clauses.within is not None:
        from deniable.query.accuracy import cheapest

        return cheapest(text, relation, clauses, asked, weights)
    return plan_for(text, relation, clauses, asked, weights)


def plan_for(
    text: str, relation: Relation, clauses: Clauses, asked: Budget | None, weights: Weights = None
) -> QueryPlan:
    """The plan of a bound statement."""
    nodes, extra = measured(relation), share_of(clauses.options.get("bias_share"))
    if extra:
        nodes += tuple(found for node in nodes for found in _bias_checks(node, clauses))
    drafts, recipes = _drafts(nodes, clauses)
    unit = _unit(nodes, clauses)
    canonical = _canonical(relation, asked, clauses, weights)
    if not any(draft.parts for draft in drafts):
        empty = tuple(_node(node, drafts, recipes, []) for node in nodes)
        return QueryPlan(text, relation, empty, unit, asked, NoOpEvent(), PureDP(Fraction(0)), "free", canonical)
    if asked is None:
        raise QueryRefused("no budget was stated", expected="epsilon (and delta), or rho, or WITHIN an error")
    _positive(asked)
    steps, spending = _best(drafts, asked, weights, extra)
    event = composed(tuple(steps))
    plans = tuple(_node(node, drafts, recipes, steps) for node in nodes)
    plan = QueryPlan(text, relation, plans, unit, asked, event, price(event, asked), spending.strategy, canonical)
    check(plan)
    return plan


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
    if asked.delta > LARGEST_DELTA:
        raise QueryRefused(
            "delta is above 0.01: with that probability anything may be shown", expected="delta such as 1e-6"
        )


def _unit(nodes: tuple[Measured, ...], clauses: Clauses) -> PrivacyUnit | None:
    units = [bounded_unit(node, clauses) for node in nodes]
    if not units:
        return None
    replaced = any(unit.neighboring is Neighboring.REPLACE for unit in units)
    return replace(units[0], neighboring=Neighboring.REPLACE) if replaced else units[0]


def _drafts(nodes: tuple[Measured, ...], clauses: Clauses) -> tuple[list[Draft], dict[str, tuple[Recipe, ...]]]:
    drafts, recipes = [], {}
    for node in nodes:
        unit = bounded_unit(node, clauses)
        found, recipes[node.name] = measurements(node, clauses.text, unit.is_row)
        drafts += [_draft(node, places, found, unit, recipes[node.name]) for places in node.grouping_sets]
    return drafts, recipes


def _draft(
    node: Measured,
    places: tuple[int, ...],
    found: tuple[Measurement, ...],
    unit: PrivacyUnit,
    recipes: tuple[Recipe, ...],
) -> Draft:
    keys = keys_of(node, places)
    factor = 2 if unit.neighboring is Neighboring.REPLACE else 1
    if unit.is_row:
        limits, groups = Limits(None, multiplicity(node.input), by_row=True), 1
        if limits.rows != 1 and isinstance(keys, PrivateKeys):
            raise _copied(keys)
    else:
        if one_row(node.input):
            unit = single(unit)
        limits, groups = limits_of(places, keys, unit, found)
    return Draft(node, places, keys, limits, found, groups, factor, _reusable(keys, found, limits), recipes)


def _copied(keys: PrivateKeys) -> QueryRefused:
    """A threshold counts units, and copies of one row cannot be told from rows of several people."""
    return QueryRefused(
        f"a row of one table appears several times in this question, and {keys.reason}",
        expected="Public keys, or each table once in the UNION ALL",
        remedy="Declare the key's categories in the policy, or the table's unit by an id column",
    )


def _reusable(keys: Keys, found: tuple[Measurement, ...], limits: Limits) -> int | None:
    """Private keys are chosen by a noisy count of units; if that is asked too, it is not paid for twice."""
    if isinstance(keys, PublicKeys):
        return None
    counts: tuple[Measurement, ...] = (Units(None),)
    if limits.by_row and limits.rows == 1:
        counts += (Rows(None, None),)
    return next((i for i, m in enumerate(found) if m in counts), None)


def _bias_checks(node: Measured, clauses: Clauses) -> tuple[Measured, ...]:
    unit = bounded_unit(node, clauses)
    found, recipes = measurements(node, clauses.text, unit.is_row)
    return bias.checks(node, found, recipes, unit)


def _split(drafts: list[Draft], weights: Weights, strategy: str, extra: Fraction) -> list[list[Fraction]]:
    """Shares of all drafts; estimates of bias, which come last, have `extra` of the budget together."""
    asked = [draft for draft in drafts if bias.MARK not in draft.node.name]
    beside = drafts[len(asked) :]
    kept = 1 - extra if beside else Fraction(1)
    parts = [[share * kept for share in each] for each in shares(asked, weights, strategy)]
    return parts + [[share * extra for share in each] for each in shares(beside, None, strategy)]


def _best(drafts: list[Draft], asked: Budget, weights: Weights, extra: Fraction) -> tuple[list[Step], Spending]:
    thresholds = sum(isinstance(draft.keys, PrivateKeys) for draft in drafts)
    ranks = any(isinstance(m, Ordered) for draft in drafts for m in draft.measurements)
    tried, hindered = [], None
    for spending in calibrate.spendings(asked, thresholds, ranks):
        split = _split(drafts, weights, spending.strategy, extra)
        try:
            steps = [_step(draft, part, spending) for draft, part in zip(drafts, split, strict=True)]
        except ParameterError as mistake:  # noise too large to be drawn, a choice too sharp
            hindered = mistake
            continue
        tried.append((_noise(steps), steps, spending))
    if not tried:
        assert hindered is not None
        raise QueryRefused(hindered.happened, expected=hindered.expected, remedy=hindered.remedy)
    _, steps, spending = min(tried, key=lambda trial: trial[0])
    return steps, spending


def _step(draft: Draft, split: list[Fraction], spending: Spending) -> Step:
    if draft.limits.scaled and spending.strategy == "pure":
        # Laplace noise is made for the L1 norm, so that is the norm which contributions are scaled to.
        draft = replace(draft, limits=replace(draft.limits, norm=1))
    placed = tuple(_placed(draft, i, split[i], spending) for i in range(len(draft.measurements)))
    if isinstance(draft.keys, PublicKeys):
        return Step(draft.places, draft.keys, draft.limits, placed)
    share = split[draft.reused] if draft.reused is not None else split[-1]
    threshold = calibrate.threshold(draft.groups, draft.factor, spending, share, draft.limits.norm == 2)
    if draft.reused is not None:
        # The threshold's own noise answers this measurement, so its error is that noise's.
        counted = replace(placed[draft.reused], mechanism=threshold.noise)
        placed = (*placed[: draft.reused], counted, *placed[draft.reused + 1 :])
    return Step(draft.places, draft.keys, draft.limits, placed, threshold, share, draft.reused)


def _placed(draft: Draft, place: int, share: Fraction, spending: Spending) -> Placed:
    measurement, limits = draft.measurements[place], draft.limits
    if limits.scaled and isinstance(measurement, Ordered):
        raise QueryRefused("quantiles cannot be scaled to a norm", remedy="Declare bounding: sample for this table")
    # A count that the threshold answers is one of whole units.
    sensitivity = sensitivity_of(measurement, limits, draft.groups, draft.factor == 2, whole=place == draft.reused)
    gaussian, one_group = limits.norm == 2, not draft.places
    mechanism = calibrate.mechanism(measurement, sensitivity, spending, share, gaussian, one_group)
    return Placed(f"m{place}", measurement, sensitivity, mechanism, share)


def _noise(steps: list[Step]) -> float:
    """The mean logarithm of all deviations: a strategy that halves the noise of one and keeps the others wins."""
    found = [math.log(p.deviation) for step in steps for p in step.placed]
    found += [math.log(step.threshold.threshold) for step in steps if step.threshold is not None]
    return sum(found) / max(len(found), 1)


def _node(node: Measured, drafts: list[Draft], recipes: dict[str, tuple[Recipe, ...]], steps: list[Step]) -> NodePlan:
    mine = [i for i, draft in enumerate(drafts) if draft.node == node]
    made = tuple(steps[i] for i in mine) if steps else tuple(
        Step(drafts[i].places, drafts[i].keys, drafts[i].limits, ()) for i in mine
    )  # fmt: skip
    return NodePlan(node, drafts[mine[0]].measurements, recipes[node.name], made)


def _canonical(relation: Relation, asked: Budget | None, clauses: Clauses, weights: Weights) -> str:
    """A digest of the bound relation and the budget: spacing and case do not matter, meaning does."""
    options = sorted((k, v) for k, v in clauses.options.items() if k.startswith(("max_", "bias_")))
    return hashlib.sha256(repr((relation, asked, options, weights)).encode()).hexdigest()


__all__ = ["compile_query", "plan_for", "price", "stated_budget"]
