"""From a statement and a policy to a plan. This module sees no data and makes every refusal.

Each strategy that the budget allows is tried, and the one with the least noise is taken. What comes out is checked by
double entry before anybody sees it.

WITHIN goes the other way round, from the error an analyst accepts to the least epsilon: WITHIN 100 asks that each count
or sum err by at most 100, with the stated confidence for each number. WITHIN 5% needs a public size, since what 5% is
of must not be read from the data: WITHIN 5% OF 20000 says that a group has about 20,000 rows, and means 5% of 20,000
for a count, of 20,000 times the largest value for a sum, and of the width between the bounds for an average."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np

from deniable.dp.accounting import NoOpEvent
from deniable.dp.mechanisms.quantile import plan_order
from deniable.errors import BudgetUnstated, InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, Amount, Budget, PureDP, budget, refuse_extreme
from deniable.policy.budget import budget as budget_of
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.query import bias, calibration
from deniable.query.algebra.relation import Measure, Measured, Relation, find_noisy_nodes, has_one_row, multiplicity
from deniable.query.answers import refuse_taken_names
from deniable.query.bias import parse_bias_share
from deniable.query.calibration import Spending, Weights, parse_weights, split_shares
from deniable.query.canonical import digest_measurements
from deniable.query.double_entry import check, compose_event, price
from deniable.query.joint import Block, list_blocks, solve_block
from deniable.query.keys import MOST_CELLS, Keys, PrivateKeys, PublicKeys, keys_of
from deniable.query.measurements import Measurement, Ordered, Recipe, Rows, Total, Units, decompose_aggregates
from deniable.query.plan import (
    Joint,
    Limits,
    Mixture,
    NodePlan,
    Placed,
    QueryPlan,
    Step,
    bound_to_one_row,
    bound_unit,
    limits_of,
    sensitivity_of,
)
from deniable.query.sql.binder import bind_statement
from deniable.query.sql.clauses import Clauses, Within, refuse_depth
from deniable.query.techniques.least_squares import choose_strategy

MOST_MEASUREMENTS = 4_000
LEAST_GAIN = 1e-6
"""The mean logarithm of deviations that measuring together must gain."""


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
    blocks: tuple[Block, ...] = ()
    """What is measured together."""

    @property
    def alone(self) -> tuple[int, ...]:
        """The places of measurements with noise of their own."""
        joined = {place for block in self.blocks for place in block.places}
        return tuple(place for place in range(len(self.measurements)) if place not in joined)

    @property
    def parts(self) -> int:
        """How many shares of the budget it takes."""
        return len(self.loads)

    @property
    def loads(self) -> tuple[int, ...]:
        """How many rounds of noise each share is for: of measurements alone, then of blocks, then of a threshold."""
        chosen = isinstance(self.keys, PrivateKeys) and self.reused is None
        found = (self.measurements[place] for place in self.alone)
        rounds = (plan_order(m.quantiles).choices if isinstance(m, Ordered) else 1 for m in found)
        return (*rounds, *(1 for _ in self.blocks), *([1] if chosen else []))


def compile_query(
    text: str,
    tables: tuple[TableSchema, ...],
    budget: Budget | None = None,
    *,
    weights: Weights = None,
    bias_share: Amount | None = None,
    pure: bool = False,
) -> QueryPlan:
    """The plan of a statement under a budget stated beside it or inside it.

    `pure` takes only noise that has a price in pure epsilon, for budgets that are accounted for so.
    """
    try:
        return _compile(text, tables, budget, weights, bias_share, pure)
    except RecursionError:
        raise refuse_depth() from None


def _compile(
    text: str,
    tables: tuple[TableSchema, ...],
    budget: Budget | None,
    weights: Weights,
    bias_share: Amount | None,
    pure: bool,
) -> QueryPlan:
    relation, clauses = bind_statement(text, tables)
    refuse_taken_names(relation)
    clauses = replace(clauses, pure=pure)
    if bias_share is not None:
        clauses = replace(clauses, options={**clauses.options, "bias_share": str(bias_share)})
    asked = read_budget(clauses, budget)
    weights = weights if weights is not None else parse_weights(clauses.options.get("weights"))
    if clauses.within is not None:
        return find_cheapest_plan(text, relation, clauses, asked, weights)
    return plan_relation(text, relation, clauses, asked, weights)


def plan_relation(
    text: str, relation: Relation, clauses: Clauses, asked: Budget | None, weights: Weights = None
) -> QueryPlan:
    """The plan of a bound statement."""
    if clauses.auto is not None:
        raise QueryRefused("CONTRIBUTION AUTO is not understood here", remedy="State the bounds: CONTRIBUTION "
                           "(max_groups_contributed = 3, max_rows_per_group = 2)")  # fmt: skip
    nodes, share = find_noisy_nodes(relation), clauses.options.get("bias_share")
    extra = parse_bias_share(share) if share is not None else Fraction(0)
    if extra:
        nodes += tuple(found for node in nodes for found in _plan_bias_checks(node, clauses))
    drafts, recipes = _draft_nodes(nodes, clauses)
    unit = _find_unit(nodes, clauses)
    if not any(draft.parts for draft in drafts):
        canonical = hashlib.sha256(repr(relation).encode()).hexdigest()
        empty = tuple(_build_node(node, drafts, recipes, []) for node in nodes)
        return QueryPlan(text, relation, empty, unit, asked, NoOpEvent(), PureDP(Fraction(0)), "free", canonical)
    if asked is None:
        raise BudgetUnstated
    _refuse_extreme_budget(asked)
    variants = list_variants(drafts) if weights in (None, calibration.OPTIMAL) else [drafts]
    steps, spending, cost = _choose_strategy(variants, asked, weights, extra, clauses)
    event = compose_event(tuple(steps))
    plans = tuple(_build_node(node, drafts, recipes, steps) for node in nodes)
    key = digest_measurements(plans)
    plan = QueryPlan(text, relation, plans, unit, asked, event, cost, spending.strategy, key)
    check(plan)
    return plan


def read_budget(clauses: Clauses, beside: Budget | None) -> Budget | None:
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


def _refuse_extreme_budget(asked: Budget) -> None:
    try:
        refuse_extreme(asked)
    except ParameterError as mistake:
        raise QueryRefused(mistake.happened, expected=mistake.expected) from None


def _find_unit(nodes: tuple[Measured, ...], clauses: Clauses) -> PrivacyUnit | None:
    units = [bound_unit(node, clauses) for node in nodes]
    if not units:
        return None
    replaced = any(unit.neighboring is Neighboring.REPLACE for unit in units)
    return replace(units[0], neighboring=Neighboring.REPLACE) if replaced else units[0]


def _draft_nodes(nodes: tuple[Measured, ...], clauses: Clauses) -> tuple[list[Draft], dict[str, tuple[Recipe, ...]]]:
    drafts, recipes = [], {}
    for node in nodes:
        unit = bound_unit(node, clauses)
        found, recipes[node.name] = decompose_aggregates(node, clauses.text, unit)
        _refuse_many_measurements(len(node.grouping_sets) * len(found))
        for places in node.grouping_sets:
            clauses.refuse_late()
            drafts.append(_draft_grouping_set(node, places, found, unit, recipes[node.name]))
    _refuse_many_cells(drafts)
    return drafts, recipes


def list_variants(drafts: list[Draft]) -> list[list[Draft]]:
    """The drafts as they are, and with what can be measured together: counts beside sums, and apart from them.

    Where contributions are scaled to a norm, each measurement has a norm of its own and is measured by itself.
    """
    if all(len(draft.measurements) < 2 for draft in drafts):
        return [drafts]
    made: dict[tuple[object, ...], tuple[tuple[Block, ...], ...]] = {}
    for draft in drafts:
        key = (draft.measurements, draft.reused, draft.limits.scaled)
        if key not in made:
            made[key] = ((), ()) if draft.limits.scaled else list_blocks(draft.measurements, draft.reused)
    found = [drafts]
    keys = [(draft.measurements, draft.reused, draft.limits.scaled) for draft in drafts]
    for way in range(2 if any(len(set(both)) > 1 for both in made.values()) else 1):
        blocks = [made[key][way] for key in keys]
        found += [[replace(d, blocks=b) for d, b in zip(drafts, blocks, strict=True)]] if any(blocks) else []
    return found


def _refuse_many_measurements(count: int) -> None:
    """Each aggregate is measured in each grouping set and priced by itself; explanations of that are free."""
    if count > MOST_MEASUREMENTS:
        raise QueryRefused(
            f"the question has {count:,} measurements in its grouping sets, and {MOST_MEASUREMENTS:,} is the most",
            remedy="Ask for fewer aggregates or fewer grouping sets at once",
        )


def _refuse_many_cells(drafts: list[Draft]) -> None:
    """All public groups appear, so their number is what a question costs, whoever is in them."""
    cells = sum(draft.keys.cells or 0 for draft in drafts if isinstance(draft.keys, PublicKeys))
    if cells > MOST_CELLS:
        raise QueryRefused(
            f"the question has {cells:,} public groups in all its grouping sets, and {MOST_CELLS:,} is the most",
            remedy="Group by fewer columns, or by coarser values",
        )


def _draft_grouping_set(
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
            raise _refuse_copies(keys)
    else:
        if has_one_row(node.input):
            unit = bound_to_one_row(unit)
        limits, groups = limits_of(places, keys, unit, found)
    return Draft(node, places, keys, limits, found, groups, factor, _find_reusable_count(keys, found, limits), recipes)


def _refuse_copies(keys: PrivateKeys) -> QueryRefused:
    """A threshold counts units, and copies of one row cannot be told from rows of several people."""
    return QueryRefused(
        f"a row of one table appears several times in this question, and {keys.reason}",
        expected="Public keys, or each table once in the UNION ALL",
        remedy="Declare the key's categories in the policy, or the table's unit by an id column",
    )


def _find_reusable_count(keys: Keys, found: tuple[Measurement, ...], limits: Limits) -> int | None:
    """Private keys are chosen by a noisy count of units; if that is asked too, it is not paid for twice."""
    if isinstance(keys, PublicKeys):
        return None
    counts: tuple[Measurement, ...] = (Units(None),)
    if limits.by_row and limits.rows == 1:
        counts += (Rows(None, None),)
    return next((i for i, m in enumerate(found) if m in counts), None)


def _plan_bias_checks(node: Measured, clauses: Clauses) -> tuple[Measured, ...]:
    unit = bound_unit(node, clauses)
    found, recipes = decompose_aggregates(node, clauses.text, unit)
    return bias.plan_checks(node, found, recipes, unit)


def _split_budget(drafts: list[Draft], weights: Weights, strategy: str, extra: Fraction) -> list[list[Fraction]]:
    """Shares of all drafts; estimates of bias, which come last, have `extra` of the budget together."""
    asked = [draft for draft in drafts if bias.MARK not in draft.node.name]
    beside = drafts[len(asked) :]
    kept = 1 - extra if beside else Fraction(1)
    parts = [[share * kept for share in each] for each in split_shares(asked, weights, strategy)]
    return parts + [[share * extra for share in each] for each in split_shares(beside, None, strategy)]


def _choose_strategy(
    variants: list[list[Draft]], asked: Budget, weights: Weights, extra: Fraction, clauses: Clauses
) -> tuple[list[Step], Spending, Budget]:
    """The steps with the least noise of those that cost what was asked; how they spend, and what they cost."""
    drafts = variants[0]
    thresholds = sum(isinstance(draft.keys, PrivateKeys) for draft in drafts)
    ranks = any(isinstance(m, Ordered) for draft in drafts for m in draft.measurements)
    tried, hindered = [], None
    allowed = calibration.list_spendings(asked, thresholds, ranks)
    pure = [each for each in allowed if each.strategy == "pure"] if clauses.pure else []
    for spending, variant in product(pure or allowed, variants):
        split = _split_budget(variant, weights, spending.strategy, extra)
        try:
            steps = [_build_step(draft, part, spending, clauses) for draft, part in zip(variant, split, strict=True)]
        except ParameterError as mistake:  # noise too large to be drawn, a choice too sharp
            hindered = mistake
            continue
        # Where joining changes nothing, measurements are left as they are.
        tried.append((_score_noise(steps) + LEAST_GAIN * (variant is not drafts), steps, spending))
    if not tried:
        assert hindered is not None
        raise QueryRefused(hindered.happened, expected=hindered.expected, remedy=hindered.remedy)
    failed: InternalError | None = None
    for _, steps, spending in sorted(tried, key=lambda trial: trial[0]):
        try:
            return steps, spending, price(compose_event(tuple(steps)), asked)
        except InternalError as mistake:  # it would cost other than what was asked
            failed = failed or mistake
    assert failed is not None
    raise failed


def _build_step(draft: Draft, split: list[Fraction], spending: Spending, clauses: Clauses) -> Step:
    clauses.refuse_late()
    if draft.limits.scaled and spending.strategy == "pure":
        # Laplace noise is made for the L1 norm, so that is the norm which contributions are scaled to.
        draft = replace(draft, limits=replace(draft.limits, norm=1))
    alone = draft.alone
    mine = {place: _place_measurement(draft, place, split[i], spending) for i, place in enumerate(alone)}
    joints = tuple(_place_block(draft, block, split[len(alone) + i], spending) for i, block in enumerate(draft.blocks))
    mine |= {place: each for joint in joints for place, each in _place_jointly(draft, joint).items()}
    placed = tuple(mine[place] for place in range(len(draft.measurements)))
    if isinstance(draft.keys, PublicKeys):
        return Step(draft.places, draft.keys, draft.limits, placed, joints=joints)
    share = placed[draft.reused].share if draft.reused is not None else split[-1]
    threshold = calibration.calibrate_threshold(draft.groups, draft.factor, spending, share, draft.limits.norm == 2)
    if draft.reused is not None:
        # The threshold's own noise answers this measurement, so its error is that noise's.
        counted = replace(placed[draft.reused], mechanism=threshold.noise)
        placed = (*placed[: draft.reused], counted, *placed[draft.reused + 1 :])
    return Step(draft.places, draft.keys, draft.limits, placed, threshold, share, draft.reused, joints)


def _place_measurement(draft: Draft, place: int, share: Fraction, spending: Spending) -> Placed:
    measurement, limits = draft.measurements[place], draft.limits
    # A count that the threshold answers is one of whole units.
    sensitivity = sensitivity_of(measurement, limits, draft.groups, draft.factor == 2, whole=place == draft.reused)
    gaussian, one_group = limits.norm == 2, not draft.places
    mechanism = calibration.choose_mechanism(measurement, sensitivity, spending, share, gaussian, one_group)
    return Placed(f"m{place}", measurement, sensitivity, mechanism, share)


def _place_block(draft: Draft, block: Block, share: Fraction, spending: Spending) -> Joint:
    strategy = choose_strategy(block.workload, 1 if spending.strategy == "pure" else 2, block.cells.groups)
    sensitivity = replace(
        sensitivity_of(block.parts[0], draft.limits, draft.groups, draft.factor == 2),
        weight=strategy.weight,
        weight_squared=strategy.weight_squared,
    )
    return Joint(block, strategy, sensitivity, calibration.calibrate_noise(sensitivity, spending, share), share)


def _place_jointly(draft: Draft, joint: Joint) -> dict[int, Placed]:
    """The measurements that follow from a joint release, each with its own error."""
    found = {}
    for place, taken in zip(joint.block.places, solve_block(joint.block, joint.strategy), strict=True):
        some = taken[taken != 0]
        mixed = Mixture(float(np.sum(some**2)), float(some[0]) if some.size == 1 else None)
        measurement = draft.measurements[place]
        found[place] = Placed(f"m{place}", measurement, joint.sensitivity, joint.mechanism, joint.share, mixed)
    return found


def _score_noise(steps: list[Step]) -> float:
    """The mean logarithm of all deviations: a strategy that halves the noise of one and keeps the others wins."""
    found = [math.log(p.deviation) for step in steps for p in step.placed if p.deviation]
    found += [math.log(step.threshold.threshold) for step in steps if step.threshold is not None]
    return sum(found) / max(len(found), 1)


def _build_node(
    node: Measured, drafts: list[Draft], recipes: dict[str, tuple[Recipe, ...]], steps: list[Step]
) -> NodePlan:
    mine = [i for i, draft in enumerate(drafts) if draft.node == node]
    made = tuple(steps[i] for i in mine) if steps else tuple(
        Step(drafts[i].places, drafts[i].keys, drafts[i].limits, ()) for i in mine
    )  # fmt: skip
    return NodePlan(node, drafts[mine[0]].measurements, recipes[node.name], made)


LEAST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**6), Fraction(1000)
BISECTIONS = 24
"""Bisections on a logarithmic grid: epsilon is found within a factor of 1.0000013."""


def find_cheapest_plan(
    text: str, relation: Relation, clauses: Clauses, asked: Budget | None, weights: Weights = None
) -> QueryPlan:
    """The plan with the least epsilon that meets the WITHIN clause; a budget stated beside it is the most to spend."""
    within = clauses.within
    assert within is not None
    if isinstance(asked, ZCDP):
        raise QueryRefused(
            "WITHIN finds an epsilon, and the budget is stated in rho", remedy="State a delta, or nothing"
        )
    delta = asked.delta if asked is not None else Fraction(clauses.options.get("delta", 0))

    def plan(epsilon: Fraction) -> QueryPlan:
        return plan_relation(text, relation, clauses, budget(epsilon, delta), weights)

    most = asked.epsilon if asked is not None and asked.epsilon > 0 else LARGEST_EPSILON
    best = plan(most)
    if best.free:
        return best
    if not _meets_accuracy(best, within):
        raise QueryRefused(
            f"no epsilon up to {float(most):g} reaches the accuracy that was asked",
            remedy="Allow a larger error, or narrow the bounds of what is summed",
        )
    return _bisect_epsilon(plan, best, most, within)


def _bisect_epsilon(plan: object, best: QueryPlan, most: Fraction, within: Within) -> QueryPlan:
    """Shrink epsilon by powers of two, then refine: noise falls as epsilon grows, so the condition is monotone."""
    assert callable(plan)
    low, high = LEAST_EPSILON, most
    for _ in range(BISECTIONS):
        middle = Fraction(round(float(low * high) ** 0.5, 9)).limit_denominator(10**9)
        if not low < middle < high:
            break
        trial = plan(middle)
        if _meets_accuracy(trial, within):
            best, high = trial, middle
        else:
            low = middle
    return best


def _meets_accuracy(plan: QueryPlan, within: Within) -> bool:
    alpha = float(1 - within.confidence)
    return all(
        _expect_error(recipe, step, alpha, within) <= _limit_error(recipe, node, within)
        for node in plan.nodes
        for step in node.steps
        for recipe in node.recipes
    )


def _limit_error(recipe: Recipe, node: NodePlan, within: Within) -> float:
    if not within.relative:
        return float(within.error)
    if within.relative_to is None:
        raise QueryRefused(
            "WITHIN a percentage needs to know of what, and that must not be read from the data",
            remedy="Write WITHIN 5% OF 20000, with the number of rows you expect in a group",
        )
    share = within.error / 100
    measurement = node.measurements[recipe.places[0]]
    match recipe.measure:
        case Measure.SUM:
            most = max(abs(measurement.lower), abs(measurement.upper)) if isinstance(measurement, Total) else 1
            return float(share * within.relative_to * most * recipe.step)
        case Measure.AVG:
            assert recipe.lower is not None
            assert recipe.upper is not None
            return float(share * (recipe.upper - recipe.lower))
        case _:
            return float(share * within.relative_to)


def _expect_error(recipe: Recipe, step: Step, alpha: float, within: Within) -> float:
    """The error that the aggregate passes with probability alpha."""
    placed = [step.placed[place] for place in recipe.places]
    match recipe.measure:
        case Measure.COUNT:
            return placed[0].error(alpha)
        case Measure.SUM:
            return float(placed[0].accuracy(alpha) * recipe.step)
        case Measure.AVG if within.relative_to is not None:
            # |mean - noisy mean| <= (error of the sum + half the width * error of the count) / rows
            assert recipe.lower is not None
            assert recipe.upper is not None
            half = float(recipe.upper - recipe.lower) / 2
            return (placed[0].error(alpha / 2) + half * placed[1].error(alpha / 2)) / float(within.relative_to)
        case _:
            raise QueryRefused(
                f"WITHIN cannot promise an error for {recipe.measure.value} without reading the data",
                remedy="Use it with COUNT and SUM; for AVG write WITHIN 1 OF 20000, the rows expected in a group",
            )
