"""Training: from a declared table and a budget to a learned model.

    task -> design and target (from the policy) -> plan (priced) -> encode -> fit -> LearnedModel

`plan_training` touches no row and makes every refusal; `train_model` is the last sight of the data. The caller has
bounded the rows of each unit."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from deniable.dp.accounting import cheap_epsilon, epsilon_of_zcdp, zcdp_cost
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError, nearest
from deniable.learn.boosting import BoostedPlan, plan_boosted
from deniable.learn.classes import BayesPlan, plan_bayes, plan_multinomial
from deniable.learn.features import (
    ClassTarget,
    Design,
    LabelsTarget,
    NumberTarget,
    Plan,
    Progress,
    Target,
    build_design,
    build_labels_target,
    build_target,
    encode_codes,
    encode_rows,
    encode_target,
)
from deniable.learn.linear import plan_linear
from deniable.learn.logistic import plan_logistic, plan_poisson
from deniable.learn.model import LearnedModel
from deniable.learn.structure import plan_components, plan_groups
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, exact
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.release import Guarantee, Technique

METHODS = ("auto", "linear", "logistic", "boosted", "poisson", "bayes", "multinomial", "kmeans", "pca")
UNTARGETED = ("kmeans", "pca")
"""Methods that predict no column."""
SHOWN_DELTA = exact("1e-9")
"""The delta at which a rho is shown as an epsilon."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be learned, and how; all of it public.

    `penalty` pulls coefficients toward 0 (per row), for all methods but boosted and bayes. `turns` (passes over the
    rows) is for all that descend, `clip` (the largest part of a row's gradient that counts) for the logistic, poisson
    and boosted ones: see there. None is the method's own. `count` is how many groups (kmeans) or components (pca) to
    find; these have no target.
    """

    target: str | None = None
    features: tuple[str, ...] | None = None
    method: str = "auto"
    positive: str | None = None
    penalty: float | None = None
    turns: int | None = None
    clip: Amount | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A task that can be carried out within its budget: what is released is known, and no row was seen."""

    method: str
    table: str
    design: Design
    target: Target
    plan: Plan
    guarantee: Guarantee


def plan_training(table: TableSchema, unit: PrivacyUnit, task: Task, budget: Budget) -> Planned:
    """Design, target and priced plan of a task, or a refusal. A replaced unit counts for two."""
    made = build_design(table, task.features, task.target)
    if task.penalty is not None and not 0 <= task.penalty < float("inf"):
        raise ParameterError("the penalty is not a number from 0 up", expected="A penalty such as 1e-4")
    _require_gaussian(budget)
    rows = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    method, goal, plan = _build_method(table, made, task, budget, rows)
    _verify_price(plan, budget)
    return Planned(method, table.name, plan.design, goal, plan, _state_guarantee(unit, budget))


def _build_method(table: TableSchema, made: Design, task: Task, budget: Budget, rows: int) -> tuple[str, Target, Plan]:
    """The method with its target and its plan."""
    _require_method(task.method)
    if task.method in UNTARGETED:
        _refuse_settings(task)
        if task.method == "kmeans":
            groups = plan_groups(made, task.count, budget, rows, task.turns)
            return task.method, groups.target, groups
        components = plan_components(made, task.count, budget, rows)
        return task.method, components.target, components
    if task.count is not None:
        raise ParameterError("count is for kmeans and pca", remedy="Leave count out")
    if task.target is None:
        raise ParameterError(
            "no target is stated",
            expected="The column to predict; only kmeans and pca have none",
            remedy="State a target (--target COLUMN), or use kmeans or pca",
        )
    goal = _build_goal(table, task.target, task)
    method = _choose_method(task.method, goal)
    _refuse_unused(method, task)
    return method, goal, _build_plan(method, made, goal, task, budget, rows)


def _refuse_settings(task: Task) -> None:
    """Refuse what a method without a target does not use, rather than ignore it."""
    given = {"target": task.target, "positive": task.positive, "penalty": task.penalty, "clip": task.clip}
    if task.method == "pca":
        given["turns"] = task.turns
    for name, value in given.items():
        if value is not None:
            raise ParameterError(f"{task.method} has no {name}", remedy=f"Leave {name} out")


def train_model(
    what: Planned, rows: pa.Table, entropy: Entropy = SYSTEM, progress: Progress | None = None
) -> LearnedModel:
    """Learn from rows of which each unit has no more than `most_rows`. Rows without a target are left out."""
    wanted, known = encode_target(what.target, rows)
    encode = encode_codes if isinstance(what.plan, BoostedPlan | BayesPlan) else encode_rows
    fit = what.plan.fit(encode(what.design, rows)[known], wanted[known], entropy, progress)
    errors = None if fit.errors is None else tuple(fit.errors.tolist())
    learned = (tuple(fit.coefficients.tolist()), errors, fit.rows, what.guarantee, what.plan.event)
    return LearnedModel(what.method, what.table, what.design, what.target, *learned, fit.shares)


def _build_goal(table: TableSchema, name: str, task: Task) -> ClassTarget | NumberTarget | LabelsTarget:
    """The target as the method sees it: a number, one value against all others, or all values."""
    if task.method not in ("bayes", "multinomial"):
        return build_target(table, name, task.positive)
    if task.positive is not None:
        raise ParameterError(f"{task.method} tells all values apart", remedy="Leave positive out")
    return build_labels_target(table, name)


def _require_method(name: str) -> None:
    if name not in METHODS:
        raise ParameterError(
            f"there is no method '{name}'", expected=f"One of {', '.join(METHODS)}", remedy=nearest(name, METHODS)
        )


def _choose_method(name: str, goal: ClassTarget | NumberTarget | LabelsTarget) -> str:
    if isinstance(goal, LabelsTarget):
        return name
    fitting = "linear" if isinstance(goal, NumberTarget) else "logistic"
    if name == "boosted" or (name == "poisson" and fitting == "linear"):
        return name
    if name not in ("auto", fitting):
        kind = "a bounded number" if fitting == "linear" else "one of listed values"
        raise ParameterError(
            f"the {name} method cannot predict '{goal.name}', which is {kind}", remedy=f"Use {fitting}, boosted or auto"
        )
    return fitting


USED = {
    "turns": ("logistic", "poisson", "boosted", "multinomial"),
    "clip": ("logistic", "poisson", "boosted"),
    "penalty": ("linear", "logistic", "poisson", "multinomial"),
}
"""The settings that not every method with a target has, each with those that have it."""


def _refuse_unused(method: str, task: Task) -> None:
    """Refuse a setting that the method does not have, rather than charge as if it counted."""
    for name, methods in USED.items():
        if getattr(task, name) is not None and method not in methods:
            raise ParameterError(
                f"{method} has no {name}",
                expected=f"It is for {', '.join(methods)}",
                remedy=f"Leave {name} out, or choose another method",
            )


def _build_plan(
    method: str,
    made: Design,
    goal: ClassTarget | NumberTarget | LabelsTarget,
    task: Task,
    budget: Budget,
    rows: int,
) -> Plan:
    own = {} if task.penalty is None else {"penalty": float(task.penalty)}
    if isinstance(goal, LabelsTarget):
        if method == "bayes":
            return plan_bayes(made, goal, budget, rows)
        return plan_multinomial(made, goal, budget, rows, task.turns, **own)
    if method == "boosted":
        return plan_boosted(made, goal, budget, rows, task.turns, task.clip)
    if isinstance(goal, NumberTarget) and method == "poisson":
        return plan_poisson(made, goal, budget, rows, task.turns, task.clip, **own)
    if isinstance(goal, NumberTarget):
        return plan_linear(made, goal, budget, rows, **own)
    return plan_logistic(made, budget, rows, task.turns, task.clip, **own)


def _require_gaussian(budget: Budget) -> None:
    """Refuse a budget that buys no Gaussian noise."""
    if (isinstance(budget, ZCDP) and budget.rho > 0) or (
        isinstance(budget, ApproxDP) and budget.epsilon > 0 and budget.delta > 0
    ):
        return
    if (budget.rho if isinstance(budget, ZCDP) else budget.epsilon) <= 0:
        raise ParameterError("the budget is 0", expected="A budget above 0", remedy="State an epsilon such as 1")
    raise ParameterError(
        "a model is learned with Gaussian noise, which needs a delta",
        expected="epsilon and delta above 0, or rho",
        remedy="State a delta such as 1e-6",
    )


def _verify_price(plan: Plan, budget: Budget) -> None:
    """What will be released is priced again, by the accountants; more than the budget is our bug."""
    match budget:
        case ZCDP(rho):
            cost = zcdp_cost(plan.event)
            held = cost is not None and cost.private and cost.amount <= rho
        case _:
            spent = cheap_epsilon(plan.event, budget.delta)
            held = spent is not None and spent <= budget.epsilon
    if not held:
        raise InternalError("a plan of learning costs more than its budget", remedy="Nothing was run")


def _state_guarantee(unit: PrivacyUnit, budget: Budget) -> Guarantee:
    if isinstance(budget, ZCDP):
        stated = {"epsilon": epsilon_of_zcdp(budget.rho, SHOWN_DELTA), "delta": SHOWN_DELTA + budget.delta}
        return Guarantee.differential(Technique.DP_MODEL, unit, budget, unit.neighboring, **stated)
    return Guarantee.differential(Technique.DP_MODEL, unit, budget, unit.neighboring)
