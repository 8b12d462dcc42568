"""Double entry: what a plan would do is derived and priced a second time, apart from the code that chose it.

The events are priced by the accountants and must cost what was asked, no more and hardly less. Each mechanism must be
made for the sensitivity that follows from its measurement and from the contribution bounds that the rendered SQL
enforces. A mismatch is our bug: nothing runs, and nothing is charged.
"""

from __future__ import annotations

from fractions import Fraction

from deniable.dp.accounting import (
    ComposedEvent,
    Event,
    SelfComposedEvent,
    cheap_epsilon,
    epsilon_of_zcdp,
    pure_cost,
    zcdp_cost,
)
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from deniable.errors import InternalError
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Neighboring
from deniable.query.algebra.expression import Call, Literal
from deniable.query.keys import PrivateKeys
from deniable.query.measurements import Distinct, Ordered, Total
from deniable.query.plan import (
    Joint,
    NodePlan,
    Placed,
    QueryPlan,
    Step,
    is_bounded_in_each_group,
    parts_for,
    reach_of,
)

SHORTFALL = Fraction(1, 10**6)
"""A plan may cost this share less than asked, for roundings that always err to more noise; never more."""


def check(plan: QueryPlan) -> None:
    """Raise InternalError unless the plan is what it says it is."""
    factor = 2 if plan.unit is not None and plan.unit.neighboring is Neighboring.REPLACE else 1
    for node in plan.nodes:
        for step in node.steps:
            _require(_is_covered(node, step, factor), "a mechanism is not made for what it measures")
    event = compose_event(tuple(step for node in plan.nodes for step in node.steps))
    if plan.free:
        return
    _require(event == plan.event, "the plan's event is not that of its mechanisms")
    assert plan.asked is not None
    _require(price(event, plan.asked) == plan.cost, "the plan's cost is not that of its mechanisms")


def compose_event(steps: tuple[Step, ...]) -> ComposedEvent:
    """All that the steps of a plan release, as one event."""
    return ComposedEvent(tuple(event for step in steps for event in _list_events(step)))


def _list_events(step: Step) -> list[Event]:
    alone = [p for i, p in enumerate(step.placed) if i != step.counted_by_threshold and p.mixed is None]
    events = [*(event_of(p) for p in alone), *(joint.mechanism.event for joint in step.joints)]
    return [*events, step.threshold.event] if step.threshold is not None else events


def event_of(placed: Placed) -> Event:
    """What a placed mechanism releases over all groups; a choice is made anew in each group that a unit is in."""
    if isinstance(placed.mechanism, QuantileMechanism):
        factor = 1 if placed.mechanism.exchanged else placed.sensitivity.factor
        return SelfComposedEvent(placed.mechanism.event, placed.sensitivity.groups * factor)
    return placed.mechanism.event


def _is_covered(node: NodePlan, step: Step, factor: int) -> bool:
    groups = count_enforced_groups(step)
    if groups is None or len(step.placed) != (len(node.measurements) if step.placed else 0):
        return False
    if step.threshold is not None and step.threshold.max_groups < groups * factor:
        return False
    if isinstance(step.keys, PrivateKeys) is not (step.threshold is not None):
        return False
    if not all(_is_joint_enough(joint, step, groups, factor) for joint in step.joints):
        return False
    joined = [place for joint in step.joints for place in joint.block.places]
    if sorted(joined) != [place for place, p in enumerate(step.placed) if p.mixed is not None]:
        return False
    return all(_is_enough(p, step, groups, factor) for p in step.placed if p.mixed is None)


def _is_joint_enough(joint: Joint, step: Step, groups: int, factor: int) -> bool:
    """Whether a joint release has noise for all that one unit can move in it.

    A row gives at most `reach` to the parts of the one cell that it is in, and none of them is negative; so what a unit
    moves is at most that of its bounded rows in the column of the strategy with the largest norm.
    """
    sensitivity, limits, parts = joint.sensitivity, step.limits, joint.block.parts
    if limits.scaled or not _are_disjoint(joint) or len({part.reach for part in parts}) != 1:
        return False
    cut = 1 if limits.by_row or limits.in_all else parts_for(reach_of(parts[0], limits))
    columns = list(zip(*joint.strategy.matrix, strict=True))
    if len(columns) != joint.block.cells.count or any(entry < 0 for column in columns for entry in column):
        return False
    times, moved = factor * (1 if limits.in_all else groups), cut * reach_of(parts[0], limits)
    if sensitivity.parts != cut:
        return False
    match joint.mechanism:
        case LaplaceMechanism() as noise:
            return bool(noise.sensitivity >= times * moved * max(sum(column) for column in columns))
        case GaussianMechanism() as noise:
            widest = max(sum(entry**2 for entry in column) for column in columns)
            return bool(noise.sensitivity_squared >= times * moved**2 * widest)


def _are_disjoint(joint: Joint) -> bool:
    """Whether the parts of each kind ask one column for different numbers, and count their rows together."""
    block, count = joint.block, joint.block.cells.count
    tests = [part.condition for part in block.parts]
    if any(not isinstance(test, Call) or test.name != "eq" or test.arguments[0] != block.cells.index for test in tests):
        return False
    numbers = [test.arguments[1] for test in tests if isinstance(test, Call)]
    kinds = [numbers[i : i + count] for i in range(0, len(numbers), count)]
    orders = [block.parts[i].order for i in range(0, len(numbers), count)]
    degree = block.parts[0].degree
    counted = {f"n{i}" for i, part in enumerate(block.parts) if part.order in (0, -1)}
    named = {f"n{each.rsplit('_', 1)[-1]}" for part in block.parts for each in part.among}
    return (
        all(len(set(kind)) == count and all(isinstance(each, Literal) for each in kind) for kind in kinds)
        and sorted(each for each in orders if each >= 0) == list(range(degree + 1))
        and orders.count(-1) <= 1
        and len({part.among for part in block.parts}) == 1
        and counted == named
    )


def count_enforced_groups(step: Step) -> int | None:
    """In how many groups of a step one unit can be, by what the rendered SQL enforces; None when in any number."""
    if not step.places or step.limits.by_row:
        # A vector is scaled to the norm of so many groups, also where there is one.
        return step.limits.groups if step.limits.scaled else 1
    cells = None if isinstance(step.keys, PrivateKeys) else step.keys.cells
    if step.limits.scaled and isinstance(step.keys, PrivateKeys):
        return None
    if step.limits.in_all:
        assert step.limits.rows is not None
        return step.limits.rows if cells is None else min(step.limits.rows, cells)
    return cells if step.limits.groups is None else step.limits.groups


def _is_enough(placed: Placed, step: Step, groups: int, factor: int) -> bool:
    sensitivity, limits = placed.sensitivity, step.limits
    reach = reach_of(placed.measurement, limits) * sensitivity.parts
    at_once = limits.in_all and not is_bounded_in_each_group(placed.measurement)
    if sensitivity.groups < (1 if at_once else groups) or sensitivity.factor < factor or sensitivity.per_group < reach:
        return False
    if sensitivity.parts != _count_rendered_parts(placed, step):
        return False
    match placed.mechanism:
        case LaplaceMechanism() as noise:
            return (limits.norm in (None, 1) or not step.places) and noise.sensitivity >= sensitivity.l1
        case GaussianMechanism() as noise:
            # Both norms are one where a question has one group; an L1 norm bounds the L2 norm, but not by its own root.
            return (limits.norm in (None, 2) or groups == 1) and noise.sensitivity_squared >= sensitivity.l2_squared
        case QuantileMechanism() as choice:
            if choice.exchanged and step.places:
                return False
            return choice.rows_per_unit >= sensitivity.per_group and _is_same_choice(choice, placed)


def _count_rendered_parts(placed: Placed, step: Step) -> int:
    """Into how many parts the rendered SQL cuts a step of a measurement."""
    limits, measurement = step.limits, placed.measurement
    if step.counted_by_threshold is not None and step.placed[step.counted_by_threshold] is placed:
        return 1
    if limits.scaled:
        cut = not isinstance(measurement, Distinct | Ordered)
    else:
        cut = isinstance(measurement, Total) and measurement.per_group is None and not (limits.by_row or limits.in_all)
    return parts_for(reach_of(measurement, limits)) if cut else 1


def _is_same_choice(choice: QuantileMechanism, placed: Placed) -> bool:
    """Whether a choice is the one that its measurement speaks of; its ranks, bounds and price hang together."""
    found = placed.measurement
    return isinstance(found, Ordered) and (choice.quantiles, choice.lower, choice.upper) == (
        found.quantiles, found.lower, found.upper)  # fmt: skip


def price(event: Event, asked: Budget) -> Budget:
    """What the measurements cost by the accountants, which must be what was asked."""
    match asked:
        case ZCDP(rho, delta):
            cost = zcdp_cost(event)
            priced: Budget = ZCDP(cost.amount, cost.delta) if cost is not None and cost.private else ZCDP(rho + 1)
            assert isinstance(priced, ZCDP)
            fits = rho * (1 - SHORTFALL) <= priced.rho <= rho and priced.delta <= delta
        case PureDP(epsilon) | ApproxDP(epsilon):
            # One of the accountants calibrated the plan and finds what was asked; another may find that it costs less.
            prices = [p for p in _list_prices(event, asked) if p.epsilon <= epsilon and p.delta <= asked.delta]
            priced = min(prices, key=lambda p: p.epsilon, default=PureDP(epsilon + 1))
            # With an epsilon far below delta the delta pays for nearly all, and epsilon moves fast with the variance:
            # what the rounding leaves over is a share of both together.
            least = epsilon - SHORTFALL * (epsilon + asked.delta)
            fits = any(least <= p.epsilon for p in prices)
    _require(fits, "the compiled measurements do not cost what was asked")
    return priced


def _list_prices(event: Event, asked: PureDP | ApproxDP) -> list[PureDP | ApproxDP]:
    found: list[PureDP | ApproxDP] = []
    pure, concentrated = pure_cost(event), zcdp_cost(event)
    if pure is not None and pure.private:
        found.append(PureDP(pure.amount) if pure.delta == 0 else ApproxDP(pure.amount, pure.delta))
    if concentrated is not None and concentrated.private and concentrated.delta < asked.delta:
        epsilon = epsilon_of_zcdp(concentrated.amount, asked.delta - concentrated.delta)
        found.append(ApproxDP(epsilon, asked.delta))
    if asked.delta > 0 and (least := cheap_epsilon(event, asked.delta)) is not None:
        found.append(ApproxDP(least, asked.delta))
    return found


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InternalError(otherwise, remedy="Nothing was run; please report it")
