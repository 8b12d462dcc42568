"""Private selection: the best of several settings, chosen with noise, and the price of all of it known beforehand.

Units are dealt into parts by their own coins, before anything is looked at. Each candidate is trained, with noise, on a
part of its own; one more part scores them all, and one is chosen by the exponential mechanism. Then the chosen settings
are trained on all rows with the rest of the budget. A unit is in one part, so what is spent on choosing is the largest
price of one part and not their sum; the final training is added to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, ParallelEvent, cheap_epsilon, rho_within, zcdp_cost
from deniable.dp.mechanisms import ExponentialMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError
from deniable.learn.features import LabelsTarget, NumberTarget, Progress, Structure, encode_target
from deniable.learn.model import LearnedModel, convert_to_units
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ZCDP, Budget
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.release import Guarantee

CHOOSABLE = ("method", "penalty", "turns", "clip")
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
    _verify_price(found, budget)
    return found


def _verify_price(found: Selection, budget: Budget) -> None:
    """What will be released is priced again, by the accountants; more than the budget is our bug."""
    if isinstance(budget, ZCDP):
        cost = zcdp_cost(found.event)
        held = cost is not None and cost.private and cost.amount <= budget.rho
    else:
        spent = cheap_epsilon(found.event, getattr(budget, "delta", Fraction(0)))
        held = spent is not None and spent <= budget.epsilon
    if not held:
        raise InternalError("a choice among settings costs more than its budget", remedy="Nothing was run")


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
