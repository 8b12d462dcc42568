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

from deniable.attacks.confidence import lower_bound, upper_bound
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
from deniable.synth import measure
from deniable.synth.bins import CollapsedDomain, collapse_domain, cut_bins
from deniable.synth.domain import Bins, Domain, equal_cuts
from deniable.synth.marginal import Codes, GaussianBudget, Marginal
from deniable.synth.measure import measure_columns, score_distances, score_pairs
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.one_shot import correlated, mst
from deniable.synth.select import Selection, SelectionProblem, discount_noise, select_larger_cliques, select_pairs
from deniable.synth.text_shapes import learn_shapes
from deniable.policy.schema import ColumnType
from noise_spy import Measurement, Tape, put_twin, watch_noise

AUTO, MWEM, AREAS = (
    importlib.import_module(f"deniable.synth.methods.{name}") for name in ("auto", "mwem", "hierarchical")
)
ALARM = 1e-7
EPSILON = 1.0
MU = 2.0
"""How many deviations one unit moves what is looked at: at epsilon 1 that is worth a delta of 0.51. A choice at the
middle is right with 0.841 and wrong with 0.159, which needs 0.41; with half the noise 0.977 and 0.023, which needs 0.91."""
ROWS = 40
"""Of one unit: so many that whole records are a fine scale."""
RUNS = 500

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
        problem = pose(_table({(0, 0): 1}))
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
    share = MWEM.SCORES / 2  # of two rounds
    spend = _spend(share)  # each of two scores moves, in opposite ways: MU deviations of their difference
    domain, workload = Domain(("a", "b", "c"), (2, 2, 2)), ((0, 1), (1, 2))
    tables = [_associate_two(400 - ROWS // 2, 400 + ROWS // 2, extra) for extra in (0, ROWS)]
    tape = _make_tape(lambda: run_method(tables[0], domain, METHODS["mwem"], spend, workload=workload), len(domain))

    def choose(unit: bool) -> Outcome:
        with _stopping_at(MWEM, "measure_cliques", lambda *args: args[3].cliques), watch_noise(tape):
            return _run_until_stopped(
                lambda: run_method(tables[unit], domain, METHODS["mwem"], spend, workload=workload)
            )

    return Audit(_many(choose), EPSILON, DELTA)


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

    def describe(codes: Codes) -> Any:
        return run_method(codes, domain, METHODS["auto"], spend)

    empty = _entangle(0, 0)
    tape = _make_tape(lambda: describe(empty), 7, scores_at=3)
    seen: dict[str, tuple[Any, ...]] = {}
    with pytest.MonkeyPatch.context() as patch, watch_noise(tape):
        patch.setattr(AUTO, "discount_noise", lambda *args: seen.setdefault("noise", args) and discount_noise(*args))
        with _stopping_at(AUTO, "select_larger_cliques", lambda *args: seen.setdefault("choice", args)):
            _run_until_stopped(lambda: describe(empty))
    cliques, _, *rest = seen["choice"]
    assert [one.clique for one in cliques] == [(0, 1, 2)]

    def chosen(score: float) -> bool:
        gains = discount_noise(cliques, np.array([score]), *seen["noise"][2:])
        return bool(select_larger_cliques(cliques, gains, *rest)[0])

    middle = _find_flip(chosen)
    tables = [_entangle(middle - ROWS / 2, extra) for extra in (0, ROWS)]

    def choose(unit: bool) -> Outcome:
        with _stopping_at(AUTO, "select_larger_cliques", lambda *args: bool(select_larger_cliques(*args)[0])):
            with watch_noise(tape):
                return _run_until_stopped(lambda: describe(tables[unit]))

    return Audit(_many(choose), EPSILON, DELTA)


def _entangle(distance: float, extra: int) -> Codes:
    """Three columns of which any two are independent, and all three so far from what pairs tell."""
    more = 2 * round(distance / 8)
    rest = (RECORDS - 4 * more) // 8
    cells = {(a, b, c): rest + more * ((a + b + c) % 2 == 0) for a in range(2) for b in range(2) for c in range(2)}
    cells[0, 0, 0] += extra
    return _table(cells)


class Stopped(Exception):
    """A run that has chosen, and need not go on."""


class _stopping_at:
    """Stop a run where a function of a module is called, with what it would have told."""

    def __init__(self, module: Any, name: str, tell: Callable[..., Any]) -> None:
        self._patch, self._module, self._name, self._tell = pytest.MonkeyPatch(), module, name, tell

    def __enter__(self) -> None:
        def stop(*args: Any) -> None:
            raise Stopped(self._tell(*args))

        self._patch.setattr(self._module, self._name, stop)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


def _run_until_stopped(run: Callable[[], Any]) -> Outcome:
    try:
        run()
    except Stopped as stopped:
        (told,) = stopped.args
        return told
    raise AssertionError("the run ended without a choice")


def _make_tape(run: Callable[[], Any], steps: int, scores_at: int | None = None) -> Tape:
    """The first steps of a run, with answers as if noise had been zero; scores, if any, are high for every pair."""
    with watch_noise() as spy:
        run()
    made: list[Measurement] = spy.measured[:steps]
    for place, found in enumerate(made):
        found.output = np.array(found.entries) if place != scores_at else np.full(len(found.entries), 10**9)
    return Tape(tuple(made), ())


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


def _no_noise(scale: Any, size: int, **_: Any) -> Any:
    return np.zeros(size, dtype=np.int64)


def _half_gaussian(variance: Fraction, size: int, **rest: Any) -> Any:
    return discrete_gaussian(variance / 4, size, **rest)


def _half_laplace(scale: Fraction, size: int, **rest: Any) -> Any:
    return discrete_laplace(scale / 2, size, **rest)


@pytest.mark.parametrize("name", SYNTHESIS)
def test_a_step_that_selects_keeps_its_price(name: str) -> None:
    assert SYNTHESIS[name]().accuse() == []


@pytest.mark.parametrize("twin", [_no_noise, _half_gaussian], ids=["no noise", "half the noise"])
@pytest.mark.parametrize("name", SYNTHESIS)
def test_a_step_that_selects_with_too_little_noise_is_caught(
    name: str, twin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = SYNTHESIS[name]()
    put_twin(monkeypatch, samplers.discrete_gaussian, twin)
    assert audit.accuse()


@pytest.mark.parametrize("name", [name for name in SYNTHESIS if "pair" in name or "family" in name])
def test_scores_made_for_one_row_of_a_unit_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    audit = SYNTHESIS[name]()

    def narrow(distances: Any, spend: GaussianBudget, *rest: Any) -> Any:
        found, _, event = score_distances(distances, replace(spend, rows=1), *rest)
        return found, _deviation(spend, rest[0]), event

    put_twin(monkeypatch, score_distances, narrow)
    assert audit.accuse()
