"""Training: from a declared table and a budget to a learned model.

    task -> design and target (from the policy) -> plan (priced) -> encode -> fit -> LearnedModel

`plan_training` touches no row and makes every refusal; `train_model` is the last sight of the data. The caller has
bounded the rows of each unit.

**Choosing among settings** (`plan_selection`). Units are dealt into parts by their own coins, before anything is looked
at. Each candidate is trained, with noise, on a part of its own; one more part scores them all, and one is chosen by the
exponential mechanism. Then the chosen settings are trained on all rows with the rest of the budget. A unit is in one
part, so choosing costs the largest price of one part and not their sum; the final training is added to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.accounting import (
    ComposedEvent,
    Event,
    ParallelEvent,
    epsilon_of_zcdp,
    keeps_limit,
    rho_within,
    zcdp_cost,
)
from deniable.dp.mechanisms import ExponentialMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError, nearest
from deniable.learn.boosting import BayesPlan, BoostedPlan, plan_bayes, plan_boosted
from deniable.learn.features import (
    STEPS,
    ClassTarget,
    Design,
    Labels,
    LabelsTarget,
    NumberTarget,
    Plan,
    Progress,
    Structure,
    Target,
    build_design,
    build_feature,
    build_labels_target,
    build_target,
    encode_codes,
    encode_rows,
    encode_target,
    encode_units,
    find_column,
)
from deniable.learn.linear import LinearPlan, plan_linear
from deniable.learn.logistic import PoissonPlan, plan_logistic, plan_multinomial, plan_poisson
from deniable.learn.model import LearnedModel, convert_to_units
from deniable.learn.perceptron import Goal, PerceptronPlan, plan_perceptron
from deniable.learn.structure import plan_components, plan_groups
from deniable.learn.torch_module import TorchPlan, plan_torch
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, exact
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.release import Guarantee, Technique

METHODS = ("auto", "linear", "logistic", "boosted", "poisson", "bayes", "multinomial", "mlp", "torch", "kmeans", "pca")
UNTARGETED = ("kmeans", "pca")
"""Methods that predict no column."""
SHOWN_DELTA = exact("1e-9")
"""The delta at which a rho is shown as an epsilon."""


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be learned, and how; all of it public.

    `penalty` pulls coefficients toward 0 (per row), for all methods but boosted, bayes and mlp. `turns` (passes over
    the rows) is for all that descend, `clip` (the largest part of a row's gradient that counts; of mlp, the longest
    gradient of a person) for the logistic, poisson, boosted and mlp ones: see there. `hidden` (units), `rate` (the
    chance that a person is in the sample of a turn) and `learning_rate` (how far a turn goes) are for mlp. None is the
    method's own. `count` is how many groups (kmeans) or components (pca) to find; these have no target. `module` is a
    module of torch, or a function that makes one of the numbers of inputs and outputs; it has the settings of mlp but
    for `hidden`.
    """

    target: str | None = None
    features: tuple[str, ...] | None = None
    method: str = "auto"
    positive: str | None = None
    penalty: float | None = None
    turns: int | None = None
    clip: Amount | None = None
    count: int | None = None
    hidden: int | None = None
    rate: Amount | None = None
    learning_rate: float | None = None
    module: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no method can take, before anything is planned or charged."""
        for name in ("turns", "count", "hidden"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ParameterError(f"{name} is not a whole number from 0 up", expected="Such as 10")
        for name in ("penalty", "learning_rate"):
            value = getattr(self, name)
            if value is not None and (type(value) not in (int, float) or not 0 <= value <= LARGEST_SETTING):
                expected = f"A number such as 0.001, at most {LARGEST_SETTING:g}"
                raise ParameterError(f"the {name.replace('_', ' ')} is not a number from 0 up", expected=expected)
        for name, value in (("target", self.target), ("method", self.method or ()), ("positive", self.positive)):
            if value is not None and not isinstance(value, str):
                raise ParameterError(f"{name} is not given as text", expected="A text in quotes")
        if any(not isinstance(each, str) for each in self.features or ()):
            raise ParameterError("features are not names of columns", expected='Such as features=["age", "sex"]')


LARGEST_SETTING = 1e100
"""Its square is still a number."""


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
    _require_gaussian(budget)
    task = replace(task, method="torch") if task.module is not None and task.method == "auto" else task
    method, goal, plan = _build_method(table, made, task, budget, unit)
    _verify_price(plan.event, budget)
    return Planned(method, table.name, plan.design, goal, plan, _state_guarantee(unit, budget))


def _build_method(
    table: TableSchema, made: Design, task: Task, budget: Budget, unit: PrivacyUnit
) -> tuple[str, Target, Plan]:
    """The method with its target and its plan."""
    _require_method(task.method)
    rows = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
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
    if method in ("mlp", "torch"):
        return method, goal, _plan_network(made, goal, task, budget, unit)
    return method, goal, _build_plan(method, made, goal, task, budget, rows)


def _plan_network(made: Design, goal: Goal, task: Task, budget: Budget, unit: PrivacyUnit) -> PerceptronPlan:
    own: dict[str, Any] = {"turns": task.turns, "rate": task.rate, "clip": task.clip, "pace": task.learning_rate}
    if task.method == "mlp":
        return plan_perceptron(made, goal, budget, unit, hidden=task.hidden, **own)
    if task.module is None:
        raise ParameterError(
            "the torch method learns a module, and there is none", remedy="Give one in Python: train(..., module=...)"
        )
    told = _state_guarantee(unit, budget)
    stated = float(told.epsilon or 0), float(told.delta or 0)
    return plan_torch(made, goal, budget, unit, task.module, stated, **own)


def _refuse_settings(task: Task) -> None:
    """Refuse what a method without a target does not use, rather than ignore it."""
    given = {"target": task.target, "positive": task.positive, "penalty": task.penalty, "clip": task.clip}
    given |= {"hidden": task.hidden, "rate": task.rate, "learning_rate": task.learning_rate, "module": task.module}
    if task.method == "pca":
        given["turns"] = task.turns
    for name, value in given.items():
        if value is not None:
            raise ParameterError(f"{task.method} has no {name}", remedy=f"Leave {name} out")


def train_model(
    what: Planned, rows: pa.Table, entropy: Entropy = SYSTEM, progress: Progress | None = None
) -> LearnedModel:
    """Learn from rows of which each unit has no more than `most_rows`. Rows without a target are left out."""
    steps = what.plan.steps if isinstance(what.plan, LinearPlan | PoissonPlan) else STEPS
    wanted, known = encode_target(what.target, rows, steps)
    encode = encode_codes if isinstance(what.plan, BoostedPlan | BayesPlan) else encode_rows
    held: NDArray[Any] = encode(what.design, rows)[known]
    if isinstance(what.plan, PerceptronPlan):
        units = None if what.plan.unit is None else encode_units(rows, what.plan.unit)[known]
        fit = what.plan.fit(held, wanted[known], entropy, progress, units)
    else:
        fit = what.plan.fit(held, wanted[known], entropy, progress)
    errors = None if fit.errors is None else tuple(fit.errors.tolist())
    learned = (tuple(fit.coefficients.tolist()), errors, fit.rows, what.guarantee, what.plan.event)
    module = what.plan.module if isinstance(what.plan, TorchPlan) else None
    return LearnedModel(what.method, what.table, what.design, what.target, *learned, fit.shares, module)


def _build_goal(table: TableSchema, name: str, task: Task) -> ClassTarget | NumberTarget | LabelsTarget:
    """The target as the method sees it: a number, one value against all others, or all values."""
    several = task.method in ("bayes", "multinomial")
    if task.method in ("mlp", "torch") and task.positive is None:
        column = build_feature(find_column(table, name), table)
        several = isinstance(column, Labels) and len(column.labels) > 2
    if not several:
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
    if name in ("boosted", "mlp", "torch") or (name == "poisson" and fitting == "linear"):
        return name
    if name not in ("auto", fitting):
        kind = "a bounded number" if fitting == "linear" else "one of listed values"
        raise ParameterError(
            f"the {name} method cannot predict '{goal.name}', which is {kind}",
            remedy=f"Use {fitting}, boosted, mlp or auto",
        )
    return fitting


USED = {
    "turns": ("logistic", "poisson", "boosted", "multinomial", "mlp", "torch"),
    "clip": ("logistic", "poisson", "boosted", "mlp", "torch"),
    "penalty": ("linear", "logistic", "poisson", "multinomial"),
    **dict.fromkeys(("rate", "learning_rate"), ("mlp", "torch")),
    "hidden": ("mlp",),
    "module": ("torch",),
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
    own: dict[str, Any] = {} if task.penalty is None else {"penalty": float(task.penalty)}
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


def _verify_price(event: Event, budget: Budget) -> None:
    """What will be released is priced again, by the accountants; more than the budget is our bug."""
    match budget:
        case ZCDP(rho, delta):
            cost = zcdp_cost(event)
            held = cost is not None and cost.within(rho, delta)
        case _:
            held = keeps_limit(event, budget.epsilon, budget.delta)
    if not held:
        raise InternalError("a plan of learning costs more than its budget", remedy="Nothing was run")


def _state_guarantee(unit: PrivacyUnit, budget: Budget) -> Guarantee:
    if isinstance(budget, ZCDP):
        stated = {"epsilon": epsilon_of_zcdp(budget.rho, SHOWN_DELTA), "delta": SHOWN_DELTA + budget.delta}
        return Guarantee.differential(Technique.DP_MODEL, unit, budget, unit.neighboring, **stated)
    return Guarantee.differential(Technique.DP_MODEL, unit, budget, unit.neighboring)


CHOOSABLE = ("method", "penalty", "turns", "clip", "hidden", "learning_rate")
MOST_CANDIDATES = 16
SPENT = Fraction(1, 8)
"""The share of the budget (of its rho) that choosing costs."""
SCORE = 1 << 10
"""The score of a row that is told perfectly; the worst is 0."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings, with the training that tries them and the one that follows if they are chosen."""

    settings: dict[str, Any]
    tried: Planned
    final: Planned


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among candidates, and then a training: what is released is known, and no row was seen.

    **Guarantee.** Trials and choice run on disjoint sets of units, the split being made by coins: the worst of them
    counts. The final training sees all units, and is composed with it. **Utility.** The chosen score is within
    ln(candidates / alpha) rows of the best, divided by the choice's epsilon, for units of one row, with probability
    1 - alpha. **Runtime.** That of the trials, each on a part of the rows, and of one training.
    """

    candidates: tuple[Candidate, ...]
    choice: ExponentialMechanism
    guarantee: Guarantee

    @property
    def event(self) -> ComposedEvent:
        """The worst part of the choice, then the dearest of the trainings of which one follows."""
        choosing = ParallelEvent((*(each.tried.plan.event for each in self.candidates), self.choice.event))
        return ComposedEvent((choosing, ParallelEvent(tuple(each.final.plan.event for each in self.candidates))))

    @property
    def parts(self) -> int:
        """How many parts the units are dealt into: the first one scores."""
        return 1 + len(self.candidates)

    def run(
        self, parts: Sequence[pa.Table], rows: pa.Table, entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> tuple[LearnedModel, dict[str, Any]]:
        """Try, score, choose and train: the model, and the settings that were chosen."""
        models = [train_model(each.tried, part, entropy) for each, part in zip(self.candidates, parts[1:], strict=True)]
        scores = np.array([int(score_rows(model, parts[0]).sum()) for model in models])
        best = self.candidates[self.choice.release(scores, entropy)]
        model = train_model(best.final, rows, entropy, progress)
        return replace(model, guarantee=self.guarantee, event=self.event), best.settings


def plan_selection(
    table: TableSchema, unit: PrivacyUnit, task: Task, budget: Budget, choose: Mapping[str, Sequence[Any]]
) -> Selection:
    """The candidates are all combinations of the listed values; every refusal is made here."""
    listed = _list_combinations(choose)
    if unit.neighboring is Neighboring.REPLACE:
        raise ParameterError(
            "settings are chosen on disjoint parts, and a replaced unit may be in two of them",
            expected="neighbors that differ by a unit added or removed",
            remedy="Train with settings of your own",
        )
    whole = plan_training(table, unit, replace(task, **listed[0]), budget).guarantee
    rho = budget.rho if isinstance(budget, ZCDP) else rho_within(budget.epsilon, getattr(budget, "delta", Fraction(0)))
    spent = SPENT * rho
    candidates = tuple(
        Candidate(
            settings,
            plan_training(table, unit, replace(task, **settings), ZCDP(spent)),
            plan_training(table, unit, replace(task, **settings), ZCDP(rho - spent)),
        )
        for settings in listed
    )
    if isinstance(candidates[0].final.target, Structure):
        raise ParameterError("groups and components have no score to choose by", remedy="Train with one setting")
    # Scores are sums of what is never negative, so a unit moves all of them up, each by SCORE for each of its rows.
    choice = ExponentialMechanism.within(ZCDP(spent), sensitivity=SCORE * unit.rows_learned, monotonic=True)
    found = Selection(candidates, choice, whole)
    _verify_price(found.event, budget)
    return found


def _list_combinations(choose: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the listed values.

    >>> _list_combinations({"turns": [5, 20], "method": ["logistic"]})
    [{'turns': 5, 'method': 'logistic'}, {'turns': 20, 'method': 'logistic'}]
    """
    unknown = [name for name in choose if name not in CHOOSABLE]
    twice = next((name for name, values in choose.items() if len(set(values)) < len(values)), None)
    if twice is not None and not unknown:
        raise ParameterError(f"a value of '{twice}' is listed twice", remedy="List each value once")
    found = [dict(zip(choose, values, strict=True)) for values in itertools.product(*choose.values())]
    if unknown or not 2 <= len(found) <= MOST_CANDIDATES:
        raise ParameterError(
            f"'{unknown[0]}' cannot be chosen" if unknown else f"there are {len(found)} combinations to choose from",
            expected=f"Values of {', '.join(CHOOSABLE)}, in 2 to {MOST_CANDIDATES} combinations",
        )
    return found


def score_rows(model: LearnedModel, rows: pa.Table) -> NDArray[np.int64]:
    """How well each row is told, in whole steps from 0 to SCORE: from the row and the public model alone.

    One less the squared error: of the probabilities (half the sum over all values, Brier 1950), or of a number as a
    share of its range. A row without a target scores 0.
    """
    guess, (known, has) = model.predict(rows), encode_target(model.target, rows)
    if isinstance(model.target, NumberTarget):
        reach = 2 * float(model.target.column.half)
        missed = ((guess - convert_to_units(model.target, known)) / reach) ** 2
    elif isinstance(model.target, LabelsTarget):
        wanted = (known[:, None] == np.arange(guess.shape[1])).astype(np.float64)
        missed = ((guess - wanted) ** 2).sum(axis=1) / 2
    else:
        missed = (guess - known) ** 2
    return np.where(has, np.floor(SCORE * (1 - np.clip(missed, 0.0, 1.0))), 0.0).astype(np.int64)
