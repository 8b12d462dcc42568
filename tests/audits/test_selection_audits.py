"""Audits of what is chosen: which pairs and cliques are measured, where numbers are cut, which texts and keys are kept.

A choice is the easiest thing to make without noise: it is no number, and nobody misses the noise in it. Each audit
takes two neighbors on which the choice without noise differs, makes it many times on both, and bounds how much likelier
any outcome is under one than under the other, against what the step itself is priced for. All that went before a step
is given to both neighbors alike: its noisy answers are public. Every step has two broken twins that must be caught: one
without noise, one with half of it.

Bounds are Clopper and Pearson's, for all outcomes at once: a sound step is accused with a probability below ALARM.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.attacks.outcome import lower_bound, upper_bound
from deniable.dp import samplers
from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from deniable.dp.samplers import SYSTEM, discrete_gaussian, discrete_laplace
from deniable.policy.schema import ColumnType
from deniable.synth import measure
from deniable.synth.bins import CollapsedDomain, collapse_domain, cut_bins
from deniable.synth.domain import Bins, Domain, equal_cuts
from deniable.synth.marginal import Codes, GaussianBudget, Marginal
from deniable.synth.measure import measure_columns, score_distances, score_pairs
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.published import correlated, mst
from deniable.synth.select import Selection, SelectionProblem, discount_noise, select_larger_cliques, select_pairs
from deniable.synth.text_shapes import learn_shapes
from noise_spy import put_twin

AUTO, MWEM, AREAS = (
    importlib.import_module(f"deniable.synth.methods.{name}") for name in ("auto", "published", "hierarchical")
)
ALARM = 1e-7
EPSILON = 1.0
MU = 2.0
"""How many deviations one unit moves what is looked at: at epsilon 1 that is worth a delta of 0.51. A choice at the
middle is right with 0.841 and wrong with 0.159, which needs 0.41; with half the noise 0.977 and 0.023, which needs
0.91. Of 600 runs at ALARM at least 0.70 is seen then, and 0.51 would take seven deviations of bad luck."""
ROWS = 40
"""Of one unit: so many that whole records are a fine scale."""
RUNS = 600

Outcome = Hashable
Runs = Callable[[bool, int], Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Audit:
    """A step, run so many times without or with the unit, and what it is priced for."""

    run: Runs
    epsilon: float
    delta: float
    possible: int = 2
    """How many outcomes there are."""
    runs: int = RUNS

    def accuse(self) -> list[str]:
        """The outcomes that are likelier under one neighbor than the price allows, beyond chance."""
        left, right = (Counter(self.run(unit, self.runs)) for unit in (False, True))
        assert len(left | right) <= self.possible
        sure = 1 - ALARM / (4 * self.possible)  # two bounds for each outcome and each way
        found = []
        for likely, rare in ((left, right), (right, left)):
            for outcome in left | right:
                low = lower_bound(likely[outcome], self.runs, sure)
                high = upper_bound(rare[outcome], self.runs, sure)
                if low > math.exp(self.epsilon) * high + self.delta:
                    found.append(f"{outcome}: {likely[outcome]} against {rare[outcome]} of {self.runs}")
        return found


def gaussian_delta(mu: float, epsilon: float) -> float:
    """What Gaussian noise needs where one unit moves a number by mu deviations (Balle and Wang 2018)."""
    below = NormalDist().cdf
    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


DELTA = gaussian_delta(MU, EPSILON) + 1e-3  # the noise is on whole numbers: its deviation is 20 of them


def _spend(share: float, measured: int = 1) -> GaussianBudget:
    """The budget of which a share buys noise that one unit moves so many numbers by MU deviations each."""
    return GaussianBudget(Fraction(MU) ** 2 * measured / Fraction(share).limit_denominator(10**6), ROWS, False)


def _many(choose: Callable[[bool], Outcome]) -> Runs:
    return lambda unit, runs: [choose(unit) for _ in range(runs)]


def _find_flip(chosen: Callable[[float], bool], low: float = 0.0, high: float = 1e6) -> float:
    """The score from which on something is chosen."""
    assert not chosen(low)
    assert chosen(high)
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if chosen(middle) else (middle, high)
    return high


# Pairs: two columns of two values, with margins that are known; only how strongly they go together is not.

RECORDS = 8000
PAIR = Domain(("a", "b"), (2, 2))


def _table(cells: dict[tuple[int, ...], int]) -> Codes:
    return np.repeat(np.array(list(cells), dtype=np.int32), list(cells.values()), axis=0).T


def _columns(domain: Domain) -> tuple[CollapsedDomain, list[Marginal]]:
    """Columns as they were measured before: known, with hardly any noise."""
    known = [Marginal((j,), np.full(2, RECORDS / 2), 1.0, GaussianEvent(1)) for j in range(len(domain))]
    return CollapsedDomain(domain, tuple(np.arange(2, dtype=np.int32) for _ in known)), known


def _audit_pairs(share: float, left: float, choose: Callable[[SelectionProblem], Selection]) -> Audit:
    """Whether the one pair is measured: at a distance between that of the table without and with the unit."""
    spend, (collapsed, known) = _spend(share), _columns(PAIR)

    def pose(codes: Codes) -> SelectionProblem:
        return score_pairs(codes, collapsed, known, spend, share, left, SYSTEM)[0]

    def chosen(problem: SelectionProblem) -> bool:
        return (0, 1) in choose(problem).cliques

    with pytest.MonkeyPatch.context() as patch:
        put_twin(patch, score_distances, lambda d, *_: (np.zeros(1), _deviation(spend, share), None))
        problem = pose(_associate(0, 0))
    middle = _find_flip(lambda score: chosen(replace(problem, scores=np.array([score])))) - float(problem.scores[0])
    tables = [_associate(middle - ROWS / 2, extra) for extra in (0, ROWS)]
    return Audit(_many(lambda unit: chosen(pose(tables[unit]))), EPSILON, DELTA)


def _deviation(spend: GaussianBudget, share: float, tables: int = 1) -> float:
    return math.sqrt(float(spend.variance(share, (ROWS * measure.FINENESS) ** 2 * tables))) / measure.FINENESS


def _associate(distance: float, extra: int) -> Codes:
    """Two columns so far from independence, and the rows of one unit where they agree."""
    more = round(distance / 4)
    equal, other = RECORDS // 4 + more, RECORDS // 4 - more
    return _table({(0, 0): equal + extra, (1, 1): equal, (0, 1): other, (1, 0): other})


def _audit_worst_clique() -> Audit:
    """Which of two cliques is answered worst: the unit's rows agree in the first pair and not in the second."""
    share = MWEM.MWEM_SCORES / 2  # of two rounds
    spend = _spend(share)  # each of two scores moves, in opposite ways: MU deviations of their difference
    domain, workload = Domain(("a", "b", "c"), (2, 2, 2)), ((0, 1), (1, 2))
    tables = [_associate_two(400 - ROWS // 2, 400 + ROWS // 2, extra) for extra in (0, ROWS)]
    step = Step(
        MWEM, "measure_cliques", lambda codes: run_method(codes, domain, METHODS["mwem"], spend, workload=workload)
    )
    answers = step.answer_exactly(tables[0], len(domain))
    return Audit(_many(lambda unit: step.reach(tables[unit], answers)[3].cliques), EPSILON, DELTA)


def _associate_two(first: int, second: int, extra: int) -> Codes:
    """Three columns: the first two, and the last two, so far from independence."""
    x, y = first // 4, second // 4
    rest = (RECORDS - 4 * x - 4 * y) // 8
    cells = {(a, b, c): rest + x * (a == b) + y * (b == c) for a in range(2) for b in range(2) for c in range(2)}
    cells[0, 0, 1] += extra
    return _table(cells)


def _audit_clique_of_three() -> Audit:
    """Whether three columns are measured together: pairs tell nothing of them, and are all measured already."""
    spend, domain = _spend(AUTO.CLIQUE_SCORES), Domain(("a", "b", "c"), (2, 2, 2))
    step = Step(AUTO, "discount_noise", lambda codes: run_method(codes, domain, METHODS["auto"], spend))
    # Three columns, the scores of three pairs, all high, and the three pairs.
    answers = step.answer_exactly(_entangle(0, 0), 7, scores_at=3)
    cliques, _, deviation, pairs = step.reach(_entangle(0, 0), answers)
    assert [one.clique for one in cliques] == [(0, 1, 2)]
    last = Step(AUTO, "select_larger_cliques", step.run)
    _, _, sized, forecast = last.reach(_entangle(0, 0), answers)

    def chosen(score: float) -> bool:
        gains = discount_noise(cliques, np.array([score]), deviation, pairs)
        return bool(select_larger_cliques(cliques, gains, sized, forecast)[0])

    middle = _find_flip(chosen)
    tables = [_entangle(middle - ROWS / 2, extra) for extra in (0, ROWS)]
    return Audit(_many(lambda unit: chosen(float(step.reach(tables[unit], answers)[1][0]))), EPSILON, DELTA)


def _entangle(distance: float, extra: int) -> Codes:
    """Three columns of which any two are independent, and all three so far from what pairs tell."""
    more = 2 * round(distance / 8)
    rest = (RECORDS - 4 * more) // 8
    cells = {(a, b, c): rest + more * ((a + b + c) % 2 == 0) for a in range(2) for b in range(2) for c in range(2)}
    cells[0, 0, 0] += extra
    return _table(cells)


class StoppedError(Exception):
    """A run that has come to its choice, and need not go on."""


@dataclass(frozen=True, slots=True)
class Step:
    """The point of a run at which a function of a module is called: what it is called with, and what was before."""

    module: Any
    name: str
    run: Callable[[Codes], Any]

    def reach(self, codes: Codes, answers: Sequence[Any]) -> tuple[Any, ...]:
        """What the function is called with, if the first measurements give these answers, and the others are live."""
        waiting = iter(answers)

        def release(mechanism: GaussianMechanism, values: Any, entropy: Any) -> Any:
            given = next(waiting, None)
            return HONEST_RELEASE(mechanism, values, entropy) if given is None else given

        return self._stop(codes, release)

    def answer_exactly(self, codes: Codes, steps: int, scores_at: int | None = None) -> list[Any]:
        """The first answers of a run as if noise had been zero; scores, if any, are high for every pair."""
        answers: list[Any] = []

        def release(_: GaussianMechanism, values: Any, __: Any) -> Any:
            high = np.full(len(values), 10**9)
            answers.append(high if len(answers) == scores_at else np.array(values))
            return answers[-1]

        self._stop(codes, release)
        return answers[:steps]

    def _stop(self, codes: Codes, release: Callable[..., Any]) -> tuple[Any, ...]:
        def stop(*args: Any) -> None:
            raise StoppedError(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GaussianMechanism, "release", release)
            patch.setattr(self.module, self.name, stop)
            try:
                self.run(codes)
            except StoppedError as stopped:
                return stopped.args
        raise AssertionError("the run ended without a choice")


HONEST_RELEASE = GaussianMechanism.release


def _audit_cuts() -> Audit:
    """Whether a bin of a number is cut: it is where its noisy count passes four and a half deviations."""
    share = 0.05
    number = Bins("age", ColumnType.INTEGER, Fraction(0), Fraction(1), equal_cuts(4096, 256), False)
    spend = _spend(share / 2)  # in two rounds
    places = [np.full(_between(4.5) + extra, 1605) for extra in (0, ROWS)]

    def choose(unit: bool) -> Outcome:
        cuts = cut_bins(number, places[unit], spend, share, SYSTEM)[0].cuts
        return any(1600 < cut < 1616 for cut in cuts)

    return Audit(_many(choose), EPSILON, DELTA)


def _between(deviations: float) -> int:
    """A count that the unit lifts from half of its rows below so many deviations to half of them above."""
    return round(ROWS / MU * deviations - ROWS / 2)


def _audit_shapes() -> Audit:
    """Whether a shape of texts is kept: it is where its noisy count passes four and a half deviations."""
    share = 0.1
    spend = _spend(share / 8)  # in eight runs
    texts = [pa.array(["Q7"] * (_between(4.5) + extra)) for extra in (0, ROWS)]
    return Audit(
        _many(lambda unit: any(s.startswith("A") for s in learn_shapes(texts[unit], spend, share, SYSTEM)[0])),
        EPSILON,
        DELTA,
    )


def _audit_joined_values() -> Audit:
    """Whether a value keeps a code of its own: it does where its noisy count passes three deviations."""
    domain = Domain(("ward",), (5,))
    tables = [_table({(0,): 3000, (1,): 3000, (4,): _between(3) + extra}) for extra in (0, ROWS)]

    def choose(unit: bool) -> Outcome:
        codes = collapse_domain(domain, measure_columns(tables[unit], domain, _spend(1.0), 1.0, SYSTEM)).maps[0]
        return bool(codes[4] != codes[3])

    return Audit(_many(choose), EPSILON, DELTA)


SYNTHESIS: dict[str, Callable[[], Audit]] = {
    "a pair of the spanning tree": lambda: _audit_pairs(mst.scores, 1 - mst.columns - mst.scores, mst.choose),
    "a family of the network": lambda: _audit_pairs(
        correlated.scores, 1 - correlated.columns - correlated.scores, correlated.choose
    ),
    "a pair that pays": lambda: _audit_pairs(AUTO.PAIR_SCORES, 1 - AUTO.COLUMNS - AUTO.PAIR_SCORES, select_pairs),
    "a pair beside areas": lambda: _audit_pairs(
        AREAS.SCORES, 1 - AREAS.COLUMNS - AREAS.SCORES - AREAS.AREAS, select_pairs
    ),
    "the clique that is answered worst": _audit_worst_clique,
    "a clique of three": _audit_clique_of_three,
    "a cut": _audit_cuts,
    "a shape": _audit_shapes,
    "values that are joined": _audit_joined_values,
}
STEPS = [pytest.param(name, marks=[pytest.mark.slow] * (name == "a clique of three")) for name in SYNTHESIS]


def _no_noise(scale: Any, size: int, **_: Any) -> Any:
    return np.zeros(size, dtype=np.int64)


def _half_gaussian(variance: Fraction, size: int, **rest: Any) -> Any:
    return discrete_gaussian(variance / 4, size, **rest)


def _half_laplace(scale: Fraction, size: int, **rest: Any) -> Any:
    return discrete_laplace(scale / 2, size, **rest)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_selects_keeps_its_price(name: str) -> None:
    assert SYNTHESIS[name]().accuse() == []


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "twin", [pytest.param(_no_noise, marks=pytest.mark.slow), _half_gaussian], ids=["no noise", "half the noise"]
)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_selects_with_too_little_noise_is_caught(
    name: str, twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = SYNTHESIS[name]()
    put_twin(monkeypatch, samplers.discrete_gaussian, twin)
    assert audit.accuse()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", [name for name in SYNTHESIS if "pair" in name or "family" in name])
def test_scores_made_for_one_row_of_a_unit_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = SYNTHESIS[name]()

    def narrow(distances: Any, spend: GaussianBudget, *rest: Any) -> Any:
        found, _, event = score_distances(distances, replace(spend, rows=1), *rest)
        return found, _deviation(spend, rest[0]), event

    put_twin(monkeypatch, score_distances, narrow)
    assert audit.accuse()


# Mechanisms that choose, at a pure epsilon: without noise they choose one thing of the one table, another of the other.

PURE = 2
CHOOSING, VECTORIZED = 4000, 6000
"""So many that half the noise is seen unless luck is six deviations bad."""


def _choose(mechanism: Any, scores: tuple[Sequence[int], Sequence[int]], possible: int) -> Audit:
    values = [np.array(each, dtype=np.int64) for each in scores]
    return Audit(_many(lambda unit: mechanism.release(values[unit])), PURE, 0.0, possible, CHOOSING)


def _choose_rank(flips: bool) -> Audit:
    """The median of 0 and 1, and of 0, 1 and 1, in many groups at once."""
    mechanism = QuantileMechanism(("1/2",), 0, 1, PURE, flips=flips)

    def run(unit: bool, runs: int) -> Sequence[Outcome]:
        values = np.tile(np.array([0, 1, 1][: 2 + unit]), runs)
        group = np.repeat(np.arange(runs), 2 + unit)
        return list(mechanism.release_groups(values, np.ones_like(values), group, runs)[:, 0].tolist())

    return Audit(run, PURE, 0.0, 2, VECTORIZED)


def _show_key(mechanism: KeyThreshold, epsilon: float, delta: float) -> Audit:
    """Whether a key is shown that has one unit less than the threshold, or as many: many keys at once."""

    def run(unit: bool, runs: int) -> Sequence[Outcome]:
        shown, _ = mechanism.release(np.full(runs, mechanism.threshold - 1 + unit))
        return [True] * shown.size + [False] * (runs - shown.size)

    return Audit(run, epsilon, delta, 2, VECTORIZED)


def discrete_gaussian_delta(variance: float, epsilon: float) -> float:
    """What discrete Gaussian noise needs where one unit moves a whole number by one, summed up naively."""
    line = np.arange(-200, 201)
    law = np.exp(-(line**2) / (2 * variance))
    law /= law.sum()
    return float(np.maximum(law[1:] - math.exp(epsilon) * law[:-1], 0).sum())


def _find_first(unit: bool) -> Outcome:
    found = AboveThreshold(1, PURE).release(np.array([1, 1, 1, 0] if unit else [0, 0, 0, 1]))
    return int(found[0]) if found.size else None


MECHANISMS: dict[str, Callable[[], Audit]] = {
    "the exponential mechanism": lambda: _choose(ExponentialMechanism(PURE), ([1, 0, 0, 0], [0, 1, 1, 1]), 4),
    "the exponential mechanism over counts": lambda: _choose(
        ExponentialMechanism(PURE, monotonic=True), ([0, 0], [0, 1]), 2
    ),
    "noisy max": lambda: _choose(NoisyMaxMechanism(PURE), ([1, 0, 0, 0], [0, 1, 1, 1]), 4),
    "noisy max over counts": lambda: _choose(NoisyMaxMechanism(PURE, monotonic=True), ([0, 0], [0, 1]), 2),
    "a median by coins": lambda: _choose_rank(True),
    "a median by weights": lambda: _choose_rank(False),
    "a key with Laplace noise": lambda: _show_key(KeyThreshold(LaplaceMechanism(Fraction(1, PURE)), "1e-3"), PURE, 0.0),
    "a key with Gaussian noise": lambda: _show_key(
        KeyThreshold(GaussianMechanism(1), "1e-3"), EPSILON, discrete_gaussian_delta(1, EPSILON)
    ),
    "the first above a threshold": lambda: Audit(_many(_find_first), PURE, 0.0, 5, CHOOSING),
}


def _cheapest(costs: Any, *_: Any, **__: Any) -> Any:
    return np.array([int(np.argmin(costs))])


def _cheapest_of_rows(costs: Any, *_: Any, **__: Any) -> Any:
    return np.argmin(costs, axis=1)


def _cheapest_of_groups(costs: Any, unit: Any, widths: Any, group: Any, groups: int, **_: Any) -> Any:
    order = np.lexsort((np.arange(group.size), costs, group))
    return order[np.unique(group[order], return_index=True)[1]]


WITHOUT_NOISE = {
    "discrete_laplace": _no_noise,
    "discrete_gaussian": _no_noise,
    "exponential_choice": _cheapest,
    "permute_and_flip": _cheapest,
    "permute_and_flip_rows": _cheapest_of_rows,
    "exponential_choice_groups": _cheapest_of_groups,
}
SHARP = {name: getattr(samplers, name) for name in WITHOUT_NOISE if "choice" in name or "flip" in name}
WITH_HALF: dict[str, Callable[..., Any]] = {
    "discrete_laplace": _half_laplace,
    "discrete_gaussian": _half_gaussian,
    # The unit of a choice is one over its scale.
    **{name: lambda costs, unit, *rest, n=name, **more: SHARP[n](costs, 2 * unit, *rest, **more) for name in SHARP},
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_that_selects_keeps_its_epsilon(name: str) -> None:
    assert MECHANISMS[name]().accuse() == []


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "twins", [pytest.param(WITHOUT_NOISE, marks=pytest.mark.slow), WITH_HALF], ids=["no noise", "half the noise"]
)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_that_selects_with_too_little_noise_is_caught(
    name: str, twins: dict[str, Callable[..., Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = MECHANISMS[name]()
    for sampler, twin in twins.items():
        put_twin(monkeypatch, getattr(samplers, sampler), twin)
    assert audit.accuse()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SYNTHESIS, *MECHANISMS])
def test_long_audits_accuse_no_sound_choice(name: str) -> None:
    audit = (SYNTHESIS | MECHANISMS)[name]()
    assert replace(audit, runs=20 * audit.runs).accuse() == []
