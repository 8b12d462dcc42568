"""The k largest groups: chosen one after the other by the exponential mechanism, then counted with noise.

Choosing needs the noise of one count whatever the number of groups a unit is in: one unit moves no count of units by
more than one, and a choice pays for the largest move, not for their sum. So no unit has to be left out of any group,
and a top ten among a million declared keys costs no more than among a hundred, but for a logarithm in the error.

Keys that are not declared cannot be chosen so; they are found by a threshold, as in any question with private keys.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from deniable.dp.accounting import ComposedEvent, Event, SelfComposedEvent, rho_within
from deniable.dp.mechanisms import ExponentialMechanism, GaussianMechanism, LaplaceMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, split
from deniable.policy.schema import Neighboring
from deniable.query.double_entry import price
from deniable.query.execute import Noisy, Runner
from deniable.query.explain import TopSummary
from deniable.query.keys import PublicKeys
from deniable.query.measurements import Measurement, Rows, Units
from deniable.query.plan import Limits, QueryPlan, Step
from deniable.query.sql import private_sql

Counting = LaplaceMechanism | GaussianMechanism


@dataclass(frozen=True, slots=True)
class TopPlan:
    """What will be chosen and counted, at which price; `base` is the question whose groups are ranked."""

    base: QueryPlan
    count: int
    limits: Limits
    choice: ExponentialMechanism
    counting: Counting
    asked: Budget
    event: Event
    cost: Budget

    @property
    def step(self) -> Step:
        """The one grouping set of the base question."""
        return self.base.nodes[0].steps[0]

    @property
    def canonical(self) -> str:
        """Equal for equal questions."""
        told = repr((self.base.relation, self.count, self.asked))
        return hashlib.sha256(f"top:{told}".encode()).hexdigest()


def check_count(count: object) -> None:
    """Refuse a number of groups that is none."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1000:
        raise ParameterError("k is not a whole number from 1 to 1000", expected="k such as 10")


def plan_top(base: QueryPlan, count: int, asked: Budget, *, pure: bool = False) -> TopPlan:
    """The plan for the k largest groups of a question `SELECT keys, COUNT(...) ... GROUP BY keys` with public keys."""
    check_count(count)
    step, unit = base.nodes[0].steps[0], base.unit
    if not isinstance(step.keys, PublicKeys) or unit is None or not step.places:
        raise QueryRefused("the largest groups are chosen among public keys", remedy="State a delta for private keys")
    # A choice pays for the largest change of one score, so a unit may stay in all its groups.
    limits = Limits(None, step.limits.rows, by_row=True) if step.limits.by_row else Limits(None, 1)
    reach = Fraction(step.limits.rows or 1) if step.limits.by_row else Fraction(1)
    monotonic = unit.neighboring is Neighboring.ADD_REMOVE
    choice, counting = min(
        (_calibrate_mechanisms(money, count, reach, monotonic) for money in _list_budgets(asked, pure)),
        key=lambda pair: 1 / pair[0].unit,
    )
    event = ComposedEvent((SelfComposedEvent(choice.event, count), counting.event))
    plan = TopPlan(base, count, limits, choice, counting, asked, event, price(event, asked))
    check(plan)
    return plan


def _list_budgets(asked: Budget, pure: bool) -> list[Budget]:
    """The budget as it is, and as rho where there is a delta to convert with and prices need not be pure."""
    if isinstance(asked, ApproxDP):
        rho = None if pure else rho_within(asked.epsilon, asked.delta)
        return [PureDP(asked.epsilon), *([ZCDP(rho)] if rho else [])]
    return [asked]


def _calibrate_mechanisms(
    money: Budget, count: int, reach: Fraction, monotonic: bool
) -> tuple[ExponentialMechanism, Counting]:
    """Half of the money for the choices, half for counting what was chosen; one unit may be in all k groups."""
    choosing, counting = split(money, (Fraction(1), Fraction(1)))
    each = split(choosing, (Fraction(1),) * count)[0]
    choice = ExponentialMechanism.within(each, reach, monotonic=monotonic)
    if isinstance(counting, ZCDP):
        return choice, GaussianMechanism.within(counting, sensitivity_squared=count * reach * reach)
    return choice, LaplaceMechanism.within(counting, count * reach)


def check(plan: TopPlan) -> None:
    """Double entry: sensitivities are derived again from the limits that the rendered SQL enforces."""
    unit = plan.base.unit
    assert unit is not None
    reach = plan.limits.rows or 1 if plan.limits.by_row else 1
    one_way = unit.neighboring is Neighboring.ADD_REMOVE
    noise = plan.counting
    enough = (
        noise.sensitivity >= plan.count * reach
        if isinstance(noise, LaplaceMechanism)
        else noise.sensitivity_squared >= plan.count * reach**2
    )
    told = ComposedEvent((SelfComposedEvent(plan.choice.event, plan.count), noise.event))
    fits = plan.choice.sensitivity >= reach and (one_way or not plan.choice.monotonic) and told == plan.event
    if not (enough and fits and price(told, plan.asked) == plan.cost):
        raise InternalError("the choice of the largest groups is not made for what it ranks", remedy="Nothing was run")


def run_top(plan: TopPlan, engine: Runner, entropy: Entropy = SYSTEM) -> Noisy:
    """The chosen keys in the order of their choice, with noisy counts."""
    check(plan)
    node, step = plan.base.nodes[0].node, plan.step
    wanted: dict[str, Measurement] = {"m0": Rows(None, None) if plan.limits.by_row else Units(None)}
    exactly = engine.run(private_sql.render_totals(node, step.places, wanted, plan.limits, step.keys, 0))
    scores = np.asarray(exactly.column("m0").to_numpy(), dtype=np.int64)
    left = np.arange(scores.size)
    chosen: list[int] = []
    for _ in range(min(plan.count, scores.size)):
        place = plan.choice.release(scores[left], entropy)
        chosen.append(int(left[place]))
        left = np.delete(left, place)
    counts = plan.counting.release(scores[chosen], entropy)
    return Noisy(exactly.select(private_sql.key_names(step.places)).take(pa.array(chosen)), (counts,))


def describe_top(plan: TopPlan, confidence: float) -> TopSummary:
    """The plan in plain values, for explaining it without data."""
    assert isinstance(plan.step.keys, PublicKeys)
    cells = plan.step.keys.cells or plan.count
    return TopSummary(
        k=plan.count,
        groups=plan.step.keys.cells,
        choice="exponential mechanism, one after the other",
        choice_error=plan.choice.accuracy(1 - confidence, cells),
        count_mechanism="discrete Laplace" if isinstance(plan.counting, LaplaceMechanism) else "discrete Gaussian",
        count_error=plan.counting.accuracy(1 - confidence),
        statement=private_sql.render_totals(
            plan.base.nodes[0].node, plan.step.places, {"m0": Units(None)}, plan.limits, plan.step.keys, 0
        ),
    )
