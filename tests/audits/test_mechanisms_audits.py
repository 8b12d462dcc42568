"""Our audit on our mechanisms: every sound one stays under its claim, every broken twin is caught."""

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable.attacks.dp_audit import audit, audit_outputs
from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from deniable.dp.samplers import discrete_laplace
from deniable.localdp import client
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.survey.definition import parse_survey
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from seeded import SeededEntropy


def numbers(mechanism, value: int, seed: int):
    """Many independent one-number releases: one long vector."""
    return lambda runs: mechanism.release(np.full(runs, value, dtype=np.int64), SeededEntropy(seed))


def choices(mechanism, values, seed: int, none: int = -1):
    """Many releases of a mechanism that answers with positions; the first one counts, or `none`."""
    entropy = SeededEntropy(seed)

    def once() -> int:
        answer = np.atleast_1d(mechanism.release(values, entropy))
        return int(answer[0]) if answer.size else none

    return lambda runs: np.array([once() for _ in range(runs)])


def keys(mechanism, count: int, seed: int):
    """Many releases of one key: its noisy count, or -10**6 when it is not shown; an absent key is never shown."""

    def run(runs: int):
        answer = np.full(runs, -(10**6))
        if count:
            shown, noisy = mechanism.release(np.full(runs, count, dtype=np.int64), SeededEntropy(seed))
            answer[shown] = noisy
        return answer

    return run


def cases():
    """Mechanism on two worst-case neighbors, the claim, and the runs it takes to see most of it."""
    laplace, gaussian = LaplaceMechanism.within(PureDP(1), 2), GaussianMechanism.within(ApproxDP(1, "0.01"), 20)
    yield "laplace", numbers(laplace, 0, 1), numbers(laplace, 2, 2), 1.0, 0.0, 20_000
    yield "gaussian", numbers(gaussian, 0, 3), numbers(gaussian, 20, 4), 1.0, 0.01, 40_000
    for name, kind in (("exponential", ExponentialMechanism), ("noisy max", NoisyMaxMechanism)):
        chooser = kind(1)
        yield name, choices(chooser, [1, 0, 0, 0], 5), choices(chooser, [0, 1, 1, 1], 6), 1.0, 0.0, 2_000
        counter = kind(1, monotonic=True)
        yield f"{name}, monotonic", choices(counter, [0, 0], 7), choices(counter, [1, 0], 8), 1.0, 0.0, 2_000
    median = QuantileMechanism(("1/2",), 0, 1, 1)
    yield "quantile", choices(median, [0, 1], 9), choices(median, [0, 1, 1], 10), 1.0, 0.0, 2_000
    shown = KeyThreshold.within(PureDP(1), "0.02")
    yield "laplace keys", keys(shown, 0, 11), keys(shown, 1, 12), 1.0, 0.02, 40_000
    shown = KeyThreshold.within(ZCDP("1/20"), "0.02", gaussian=True)
    yield "gaussian keys", keys(shown, 0, 13), keys(shown, 1, 14), 1.0, 0.02, 40_000
    sparse = AboveThreshold(0, 1)
    yield "sparse vector", choices(sparse, [0] * 3 + [1], 15), choices(sparse, [1] * 3 + [0], 16), 1.0, 0.0, 2_000


CASES = list(cases())
NAMES, CLAIMS = [case[0] for case in CASES], [case[1:] for case in CASES]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("left", "right", "epsilon", "delta", "runs"), CLAIMS, ids=NAMES)
def test_a_sound_mechanism_is_not_accused(left, right, epsilon, delta, runs):
    assert not audit(left, right, epsilon=epsilon, delta=delta, runs=runs).violated


def test_the_audit_comes_close_to_the_truth():
    mechanism = LaplaceMechanism.within(PureDP(1), 1)
    outcome = audit(numbers(mechanism, 0, 1), numbers(mechanism, 1, 2), epsilon=1, runs=100_000)
    assert 0.93 < outcome.epsilon_bound <= 1


@pytest.mark.parametrize("half", [LaplaceMechanism(1, 2), GaussianMechanism(18, 4)], ids=["laplace", "gaussian"])
def test_half_the_noise_is_caught(half):
    """Claimed: scale 2 for sensitivity 2; and the variance of (1, 0.01) at sensitivity 2, here cut to a quarter."""
    delta = 0.01 if isinstance(half, GaussianMechanism) else 0.0
    sound = GaussianMechanism.within(ApproxDP(1, "0.01"), 2).variance if delta else None
    broken = GaussianMechanism(sound / 4, 4) if sound else half
    assert audit(numbers(broken, 0, 1), numbers(broken, 2, 2), epsilon=1, delta=delta, runs=10_000).violated


def test_half_noise_laplace_is_caught_by_a_thousand_runs():
    broken = LaplaceMechanism(Fraction(1, 2))
    assert audit(numbers(broken, 0, 1), numbers(broken, 1, 2), epsilon=1, runs=1000).violated


def test_a_sensitivity_off_by_one_is_caught():
    """A sum that one unit moves by 3, calibrated for 2."""
    broken = LaplaceMechanism.within(PureDP(1), 2)
    assert audit(numbers(broken, 0, 1), numbers(broken, 3, 2), epsilon=1, runs=20_000).violated


def test_a_choice_with_twice_the_unit_is_caught():
    broken = ExponentialMechanism(1, monotonic=True)  # its scores do not move one way
    outcome = audit(choices(broken, [1, 0, 0, 0], 1), choices(broken, [0, 1, 1, 1], 2), epsilon=1, runs=2_400)
    assert outcome.violated


def test_floating_point_laplace_is_caught_by_its_lowest_digits():
    """The scale is right; only the binary digits of the sum betray the input (Mironov 2012)."""
    generator = np.random.default_rng(1)

    def runs_of(value, digits):
        return lambda runs: np.round((value + generator.laplace(size=runs)) * 2.0**digits) / 2.0**digits

    outcome = audit(runs_of(0.0, 60), runs_of(1.0, 60), epsilon=1)
    assert outcome.violated
    assert outcome.epsilon_bound > 4
    assert not audit(runs_of(0.0, 8), runs_of(1.0, 8), epsilon=1).violated  # without its low digits it is sound


def test_releasing_one_random_row_is_caught():
    """Statistical distance 1/n, and no privacy at all."""
    generator = np.random.default_rng(2)
    full, short = (lambda runs: generator.integers(0, 100, runs)), (lambda runs: generator.integers(0, 99, runs))
    assert audit(full, short, epsilon=1, runs=40_000).violated


def test_a_laplace_threshold_with_gaussian_noise_is_caught():
    """At the same epsilon, Gaussian noise reaches a threshold made for Laplace noise too often."""
    noise = GaussianMechanism.within(ApproxDP(1, "0.001"), 1)
    right, wrong = KeyThreshold(noise, "0.001"), KeyThreshold.within(PureDP(1), "0.001")

    def shown(threshold: int, count: int, seed: int):
        return lambda runs: (
            (noise.release(np.full(runs, count, dtype=np.int64), SeededEntropy(seed)) >= threshold)
            if count
            else np.zeros(runs, dtype=bool)
        )

    claim = {"epsilon": 1.0, "delta": 0.001, "runs": 60_000}
    assert audit(shown(wrong.threshold, 0, 1), shown(wrong.threshold, 1, 2), **claim).violated
    assert not audit(shown(right.threshold, 0, 3), shown(right.threshold, 1, 4), **claim).violated


def test_a_sparse_vector_that_goes_on_after_a_find_is_caught():
    """The broken twin answers all questions under one noisy threshold, and pays once."""

    def broken(answers: list[int], seed: int):
        entropy = SeededEntropy(seed)
        scale = AboveThreshold(0, 1).scale

        def run(runs: int):
            threshold = discrete_laplace(scale, runs, entropy=entropy)[:, None]
            noise = discrete_laplace(scale, runs * len(answers), entropy=entropy).reshape(runs, -1)
            half = len(answers) // 2
            above = (np.array(answers) + noise) >= threshold
            return above[:, :half].sum(axis=1) - above[:, half:].sum(axis=1)

        return run

    assert audit(broken([0] * 20 + [1] * 20, 1), broken([1] * 20 + [0] * 20, 2), epsilon=1, runs=20_000).violated


@pytest.mark.slow
def test_sound_mechanisms_are_rarely_accused_over_many_seeds():
    """At confidence 0.95, at most 2 of 40 audits may err; at a bound this close, none or few do."""
    mechanism = LaplaceMechanism(1)
    accused = sum(
        audit(
            numbers(mechanism, 0, 2 * seed), numbers(mechanism, 1, 2 * seed + 1), epsilon=1, runs=2000, confidence=0.95
        ).violated
        for seed in range(40)
    )
    assert accused <= 5


@pytest.mark.slow
def test_without_splitting_a_sound_mechanism_would_be_accused():
    """The reason for the split: the best of many events on the runs that chose it is far too good."""
    generator = np.random.default_rng(3)
    accused = 0
    for _ in range(40):
        left, right = generator.integers(0, 300, 1000), generator.integers(0, 300, 1000)
        ones, others = np.bincount(left, minlength=300), np.bincount(right, minlength=300)
        picked = ones > others
        accused += math.log((ones[picked].sum() / 1000) / (others[picked].sum() / 1000)) > 0.2
    assert accused == 40
    fair = [
        audit(lambda n: generator.integers(0, 300, n), lambda n: generator.integers(0, 300, n), epsilon=0.0, runs=2000)
        for _ in range(40)
    ]
    assert sum(outcome.violated for outcome in fair) <= 1


TREE = PrefixTree("ab", 2, 1, 1, HadamardSketch.calibrate(1, 1, 4))
HOURS = parse_survey(
    "{survey: h, title: H, unanswered: randomized,"
    " questions: {h: {ask: H?, type: number, between: [0, 4], epsilon: 1}}}"
).questions[0]


def tell_word(word: str, seed: int, runs: int):
    """Responses about a word that nobody listed."""
    return np.column_stack(TREE.randomize([word] * runs, SeededEntropy(seed)))


def tell_word_at_its_end(word: str, seed: int, runs: int):
    """Broken: who has a short word is asked for it at the level where it ends."""
    turns, *sketch = TREE.randomize([word] * runs, SeededEntropy(seed))
    return np.column_stack([np.where(len(word) < 2, 0, turns), *sketch])


def tell_every_level(word: str, seed: int, runs: int):
    """Broken: every level is told, each at the whole epsilon."""
    parts = [TREE.sketch.randomize([TREE.cut(word, turn)] * runs, SeededEntropy(seed + turn)) for turn in range(3)]
    return np.column_stack([column for part in parts for column in part])


def tell_hours(answer: int | None, seed: int, runs: int):
    """Responses about a number, or about having none."""
    given = client.encode(HOURS.describe(), answer)
    parts = [part.randomize(np.full(runs, each), SeededEntropy(seed + place))
             for place, (part, each) in enumerate(zip(HOURS.parts, given, strict=True))]  # fmt: skip
    return np.column_stack([column for part in parts for column in part])


def tell_hours_if_any(answer: int | None, seed: int, runs: int):
    """Broken: whether there is an answer is told as it is."""
    told = tell_hours(answer, seed, runs)
    told[:, -1] = answer is not None
    return told


@pytest.mark.parametrize(
    ("tell", "one", "other", "broken"),
    [
        (tell_word, "ab", "ba", False),
        (tell_word, "", "ab", False),
        (tell_word_at_its_end, "a", "ab", True),
        (tell_every_level, "ab", "ba", True),
        (tell_hours, None, 4, False),
        (tell_hours, 0, 4, False),
        (tell_hours_if_any, None, 4, True),
    ],
)
def test_responses_about_unlisted_words_and_questions_left_out_keep_to_epsilon(tell, one, other, broken):
    found = audit_outputs(tell(one, 1, 8_000), tell(other, 50, 8_000), epsilon=1.0, confidence=1 - 1e-6)
    assert found.violated is broken
