"""The whole training pipeline is audited on worst-case neighbors: claims hold, and broken twins are caught.

The intruder is the strongest one: it sees every noisy release of a training, not only the model. The neighbors are a
table of a few rows with and without one person, whose values are at their bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.attacks.dp_audit import audit, audit_one_run
from deniable.attacks.membership import claim_membership
from deniable.attacks.outcome import lower_bound, upper_bound
from deniable.dp.accounting.analytic_gaussian import epsilon_of_gaussian
from deniable.dp.mechanisms import GaussianMechanism
from deniable.learn import (
    boosting,
    calibration,
    features,
    linear,
    logistic,
    perceptron,
    structure,
    torch_module,
    training,
)
from deniable.learn.boosting import BoostedPlan
from deniable.learn.features import STEPS, Fit, encode_rows, encode_target
from deniable.learn.perceptron import PerceptronPlan
from deniable.learn.training import Planned, Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from learning import ROW, Pooled, Witness, rows_of, table, witnessed

EPSILON, DELTA = 1.0, 0.05
"""A large delta: there the curve of Gaussian noise is tight where runs are frequent, so that few runs show a break."""
CONFIDENCE = 1 - 1e-6
"""A sound pipeline is accused with probability at most 1e-6, by the audit's own proof."""
RUNS = 2000
CATCHING = {"confidence": 0.999, "runs": 2000}
"""For twins, which nobody can accuse falsely. With all clips, clamps or scales gone the person moves the releases by
three deviations or more: measured bounds are 3.1 and above, with a deviation of 0.16 at most."""
OTHERS = [{"age": 20, "charge": 100.0, "ill": True, "town": "Ada"}]
WORST = {"age": 100, "charge": 1000.0, "ill": False, "town": "Cole"}
FAR = {"age": 10**9, "charge": 1000.0, "ill": False}


Run = Callable[[], list[np.ndarray]]


def _plan(target: str, method: str = "auto") -> Planned:
    # Two turns are enough to compose. A clip of 1/2 is reached by a row whose probability is 1/2, as all are at first;
    # the worst row of boosted shapes reaches theirs without one, and three releases compose in one turn.
    task = Task(target, ("age",), method, turns=2, clip="1/2")
    if (target, method) == ("charge", "auto"):
        task = Task(target, ("age",))  # linear: one release, and nothing to clip
    if method in ("kmeans", "pca"):
        task = Task(None, ("age", "town"), method, count=2, turns=2 if method == "kmeans" else None)
    if method == "boosted":
        task = Task(target, ("town",), method, turns=1)
    return plan_training(table(), ROW, task, ApproxDP(Fraction(1), Fraction("0.05")))


def _training(what: Planned, rows: pa.Table, **twin: Any) -> Run:
    """A training to be run again and again, and what it releases; encoding has no noise, and is done once.

    The last steps are left out, and audited by themselves: how a person moves them depends on the noise before.
    """
    encode = training.encode_codes if isinstance(what.plan, BoostedPlan) else training.encode_rows
    plan: Any = what.plan
    steps = getattr(plan, "steps", STEPS)
    entries, (wanted, known) = encode(what.design, rows), training.encode_target(what.target, rows, steps)
    pooled = Pooled(replace(plan.mechanism, **twin))
    own = {"last": None} if hasattr(plan, "last") else {}

    def run() -> list[np.ndarray]:
        witness = Witness(pooled)
        replace(plan, mechanism=witness, **own).fit(entries[known], wanted[known])
        return witness.released

    return run


def _audited(
    target: str,
    person: dict[str, Any] = WORST,
    others: list[dict[str, Any]] = OTHERS,
    runs: int = RUNS,
    confidence: float = CONFIDENCE,
    method: str = "auto",
    **twin: Any,
) -> Any:
    what, tables = _plan(target, method), (rows_of(others), rows_of([*others, person]))
    with pytest.MonkeyPatch.context() as quiet:  # of so few people noise hides the shares of values
        quiet.setattr(logistic, "clip_shares", lambda shares, _: np.full(len(shares), 0.5))
        still = [_training(what, rows, variance=Fraction(1, 1000))() for rows in tables]
    direction = [
        there.astype(float) - here for here, there in zip(*still, strict=True)
    ]  # in which the person moves the releases
    trainings = [_training(what, rows, **twin) for rows in tables]

    def told(run: Run) -> Callable[[int], np.ndarray]:
        once = lambda: sum(seen @ toward for seen, toward in zip(run(), direction, strict=True))  # noqa: E731
        return lambda count: np.array([once() for _ in range(count)])

    # Solving is left out to save time: it sees the releases alone, as this intruder does.
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr(
            linear, "solve_ridge", lambda design, *_: Fit(np.zeros(design.width), np.zeros(design.width), 1.0)
        )
        quick.setattr(structure, "imagine_rows", lambda design, _: np.ones((2, design.width)))
        quick.setattr(structure, "place_centers", lambda imagined, count: np.vstack([imagined[0], -imagined[0]]))
        quick.setattr(structure, "find_components", lambda design, *_: Fit(np.zeros(design.width), None, 1.0))
        quick.setattr(boosting, "smooth", lambda seen, variance, _: (np.clip(seen, -1, 1), variance))
        return audit(*map(told, trainings), epsilon=EPSILON, delta=DELTA, runs=runs, confidence=confidence)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("charge", "auto"),
        ("ill", "auto"),
        ("charge", "boosted"),
        ("ill", "boosted"),
        pytest.param("charge", "poisson", marks=pytest.mark.slow),
        ("", "kmeans"),
        ("", "pca"),
    ],
)
def test_a_training_stays_under_its_claim(target: str, method: str) -> None:
    found = _audited(target, method=method)
    assert not found.violated, found


@pytest.mark.parametrize("target", ["charge", pytest.param("ill", marks=pytest.mark.slow)])
def test_half_the_noise_is_caught(target: str) -> None:
    # Half the deviation doubles the distance of the neighbors: ten audits measured bounds of 1.96 on average with a
    # deviation of 0.13, which is seven of them above the claim.
    variance = _plan(target).plan.mechanism.variance / 4  # type: ignore[attr-defined]
    assert _audited(target, variance=variance, runs=8000, confidence=0.999).violated


def test_a_forgotten_clip_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.plan_logistic
    monkeypatch.setattr(training, "plan_logistic", lambda *given, **own: honest(*given[:-1], "1/8", **own))
    assert not _audited("ill").violated
    monkeypatch.setattr(logistic, "clip_residuals", lambda residuals, most: residuals)
    assert _audited("ill", **CATCHING).violated


def _audit_perceptron(method: dict[str, Any] | None = None, **audited: Any) -> Any:
    """Four turns on samples of an eighth; the steps are so short that a person moves all of them in one direction.

    Four audits of each twin measured bounds of 2.7 to 3.0.
    """
    own = method or {"method": "mlp", "hidden": 1}
    task = Task("ill", ("age",), turns=4, rate="1/8", clip="1/64", learning_rate=1e-9, **own)
    what = plan_training(table(), ROW, task, ApproxDP(Fraction(1), Fraction("0.05")))
    tables, plan = (rows_of(OTHERS), rows_of([*OTHERS, WORST])), what.plan
    assert isinstance(plan, PerceptronPlan)
    held = [(encode_rows(what.design, rows), encode_target(what.target, rows)[0]) for rows in tables]
    sums = [plan.sum_gradients(plan.place_weights(), *each, np.arange(len(each[1]))) for each in held]
    direction = (sums[1] - sums[0]).astype(np.float64)
    pooled, counted = Pooled(plan.mechanism), Pooled(plan.counting)

    def tell(entries: np.ndarray, truth: np.ndarray) -> Callable[[int], np.ndarray]:
        def once() -> float:
            witness = Witness(pooled)
            replace(plan, mechanism=witness, counting=counted).fit(entries, truth)  # type: ignore[arg-type]
            return float(sum(seen @ direction for seen in witness.released))

        return lambda count: np.array([once() for _ in range(count)])

    rest = {"runs": RUNS // 2, "confidence": CONFIDENCE} | audited
    return audit(*(tell(*each) for each in held), epsilon=EPSILON, delta=DELTA, **rest)


def test_a_perceptron_from_samples_stays_under_its_claim() -> None:
    found = _audit_perceptron()
    assert not found.violated, found


def test_a_perceptron_that_is_priced_for_samples_and_takes_everyone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perceptron, "draw_sample", lambda persons, *_: np.arange(len(persons)))
    assert _audit_perceptron(**CATCHING).violated


def test_a_perceptron_that_forgets_the_clip_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perceptron, "clip_errors", lambda inner, outer, *_: (inner, outer))
    assert _audit_perceptron(**CATCHING).violated


@pytest.mark.filterwarnings("ignore")  # torch and Opacus warn about themselves
def test_a_module_of_torch_stays_under_its_claim_and_twins_without_samples_or_clip_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch", reason="the extra ml is not installed: `make test-ml` installs it")
    pytest.importorskip("opacus", reason="the extra ml is not installed: `make test-ml` installs it")
    module = {"module": lambda inputs, outputs: torch.nn.Linear(inputs, outputs)}
    found = _audit_perceptron(module)
    assert not found.violated, found
    with monkeypatch.context() as broken:
        broken.setattr(perceptron, "draw_sample", lambda persons, *_: np.arange(len(persons)))
        assert _audit_perceptron(module, **CATCHING).violated
    whole = torch_module.UNIT
    monkeypatch.setattr(torch_module, "clip_persons", lambda rows, *_: np.rint(rows * whole).astype(np.int64))
    assert _audit_perceptron(module, **CATCHING).violated


@pytest.mark.slow
def test_a_poisson_twin_that_forgets_the_clip_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.plan_poisson
    monkeypatch.setattr(training, "plan_poisson", lambda *given, **own: honest(*given[:-1], "1/8", **own))
    monkeypatch.setattr(logistic, "clip_residuals", lambda residuals, most: residuals)
    assert _audited("charge", method="poisson", **CATCHING).violated


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("target", ["charge", "ill"])
def test_a_boosted_twin_that_sums_larger_residuals_than_it_states_is_caught(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is priced as if a row could move a histogram by an eighth of what it can."""
    honest = boosting.build_loss

    def understated(*given: Any) -> boosting.Loss:
        loss = honest(*given)
        return replace(loss, most_squared=loss.most_squared // 64)

    monkeypatch.setattr(boosting, "build_loss", understated)
    assert _audited(target, method="boosted", **CATCHING).violated


def test_groups_whose_squared_lengths_are_not_divided_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin sums squared lengths as they are: a row moves them by far more than its price says."""
    honest = structure.sum_groups

    def undivided(design: features.Design, entries: np.ndarray, centers: np.ndarray) -> np.ndarray:
        found = honest(design, entries, centers)
        found[:, -1] *= STEPS
        return found

    monkeypatch.setattr(structure, "sum_groups", undivided)
    assert _audited("", method="kmeans", runs=300, confidence=0.999).violated


def test_components_that_are_priced_for_fewer_columns_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = structure.bound_products
    monkeypatch.setattr(structure, "bound_products", lambda p, rows: honest(1, rows) / 4)
    assert _audited("", method="pca", runs=300, confidence=0.999).violated


def test_a_forgotten_clamp_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclamped(number: features.Number, values: pa.Array, steps: int = STEPS) -> tuple[np.ndarray, np.ndarray]:
        plain = np.asarray(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        entry = np.rint((plain - float(number.middle)) / float(number.half) * steps)
        return np.clip(entry, -31 * steps, 31 * steps).astype(np.int64), np.isnan(plain)

    assert not _audited("charge", FAR).violated
    monkeypatch.setattr(features, "steps_of", unclamped)
    assert _audited("charge", FAR, **CATCHING).violated


def test_scaling_by_what_is_in_the_data_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = training.encode_rows

    def standardized(made: features.Design, rows: pa.Table) -> np.ndarray:
        """The largest age that occurs is 1: one old person moves everybody else."""
        entries = honest(made, rows)
        entries[:, 1] = np.rint(entries[:, 1].astype(float) / np.abs(entries[:, 1]).max() * features.STEPS)
        return entries

    monkeypatch.setattr(training, "encode_rows", standardized)
    assert _audited("charge", others=[{"age": 55, "charge": 1000.0}] * 20, **CATCHING).violated


def test_one_run_with_many_canaries_stays_under_the_claim() -> None:
    """Canaries in columns of their own values: each has an entry to itself, and its coefficient is its score."""
    count = 300
    names = tuple(range(count))
    columns = (Column("who", ColumnType.INTEGER, categories=names, nullable=False), *table().columns[6:7])
    declared = TableSchema("canaries", "canaries.csv", columns, ROW)
    what = plan_training(declared, ROW, Task("charge"), ApproxDP(2, "1e-5"))

    def run(inside: np.ndarray) -> np.ndarray:
        rows = pa.table({"who": np.flatnonzero(inside), "charge": np.full(int(inside.sum()), 1000.0)})
        with witnessed(what) as (watched, witness):
            train_model(watched, rows)
        # Of all moments, those of the intercept with each canary's entry: its count.
        return witness.released[0][1 : count + 1]

    found = audit_one_run(run, count, epsilon=2, delta=1e-5, confidence=CONFIDENCE)
    assert not found.violated, found


MANY = tuple(f"v{number}" for number in range(60))
WIDE = TableSchema(
    "wide",
    "wide.csv",
    (
        *(Column(name, categories=MANY, nullable=False) for name in ("a", "b", "c")),
        Column("y", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1))),
    ),
    ROW,
)


def _strangers(count: int, seed: int) -> pa.Table:
    """Rows whose target has nothing to do with their features: whoever predicts it has memorized it."""
    draw = np.random.default_rng(seed)
    columns = {name: np.array(MANY)[draw.integers(0, len(MANY), count)] for name in ("a", "b", "c")}
    return pa.table({**columns, "y": draw.random(count)})


def test_members_of_an_overfitted_twin_are_found_and_those_of_the_private_model_are_not() -> None:
    members, others = _strangers(120, 1), _strangers(2000, 2)
    what = plan_training(WIDE, ROW, Task("y", penalty=1e-9), ApproxDP(1, "1e-6"))
    with witnessed(what, variance=Fraction(1, 1000)) as (exact, _):
        leaky = train_model(exact, members)
    found = claim_membership(-leaky.losses(members), -leaky.losses(others))
    assert found.attack.share > 0.5  # 178 coefficients for 120 rows: they fit nearly exactly
    assert found.figures["area"] > 0.9
    private = train_model(what, members)
    kept = claim_membership(-private.losses(members), -private.losses(others))
    assert kept.control is not None
    # Found at most e^1 times as often as others are falsely accused, plus delta; bounds at 1e-6 each.
    low = lower_bound(kept.attack.successes, kept.attack.trials, CONFIDENCE)
    high = upper_bound(kept.control.successes, kept.control.trials, CONFIDENCE)
    assert low <= np.e * high + 1e-6
    assert kept.attack.share < 0.25


def test_members_of_groups_without_noise_are_found_and_those_of_private_groups_are_not() -> None:
    """As many groups as a few rows: without noise each center is a row."""
    columns = tuple(
        Column(name, ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1)), nullable=False) for name in "abcd"
    )
    declared, draw = TableSchema("points", "points.csv", columns, ROW), np.random.default_rng(3)
    members, others = (pa.table(dict(zip("abcd", draw.random((4, count)), strict=True))) for count in (40, 2000))
    what = plan_training(declared, ROW, Task(method="kmeans", count=40, turns=10), ApproxDP(1, "1e-6"))
    with witnessed(what, variance=Fraction(1, 1000)) as (exact, _):
        leaky = train_model(exact, members)
    found = claim_membership(-leaky.losses(members), -leaky.losses(others))
    assert found.figures["area"] > 0.9
    private = train_model(what, members)
    kept = claim_membership(-private.losses(members), -private.losses(others))
    # The area of 40 members errs by about 0.05; epsilon 1 allows at most e / (1 + e) = 0.73.
    assert kept.figures["area"] < 0.73


@pytest.mark.parametrize("numeric", [False, True])
def test_the_last_release_of_the_level_stays_under_its_claim_and_an_understated_one_is_caught(numeric: bool) -> None:
    """The worst row: its value is at a bound, or is never expected. The twin is priced for a tenth of what it moves."""
    where = np.array([1, -1, -1])
    if numeric:
        sums = [
            calibration.sum_missed(STEPS * where[:count], -STEPS * where[:count], 0, STEPS // 2) for count in (2, 3)
        ]
    else:
        expected = perceptron.expect_classes(where[:, None] * 2.0**40)
        sums = [calibration.sum_classes(np.zeros(count, np.int64), expected[:count]) for count in (2, 3)]
    budget = ApproxDP(Fraction(25), Fraction("0.05"))  # of which a 25th is left for it, in squared deviations

    def measure(mechanism: GaussianMechanism, **audited: Any) -> Any:
        pooled, toward = Pooled(mechanism), (sums[1] - sums[0]).astype(np.float64)
        tellers = [
            lambda count, held=held: np.array([pooled.release(held) @ toward for _ in range(count)])  # type: ignore[misc]
            for held in sums
        ]
        return audit(*tellers, epsilon=claimed, delta=DELTA, **{"runs": RUNS, "confidence": CONFIDENCE} | audited)

    honest = calibration.plan_calibration(budget, 1, numeric=numeric)
    told = epsilon_of_gaussian(honest.variance / honest.sensitivity_squared, Fraction(DELTA))
    claimed = float(told or 0)
    assert not measure(honest).violated
    assert measure(replace(honest, variance=honest.variance / 100), **CATCHING).violated
