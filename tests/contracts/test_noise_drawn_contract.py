"""What the ledger says was run is what ran: techniques are watched at the samplers, and bills compared with draws.

For every technique that charges: each event in the entry drew noise of its scale, as often as it says and for as many
numbers as the question has, and no draw is without its event. Given the same noisy answers, two neighbors get the same
release, so nothing of the rows leaves beside them; and no exact value moves farther than its noise was made for.
What is expected of each case (how many numbers, how far one unit moves a score) is written here by hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.curator import Curator
from deniable.dp.accounting import (
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    PureEvent,
    SampledGaussianEvent,
    SelectionEvent,
    ThresholdEvent,
    from_dict,
)
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
from deniable.errors import QueryRefused
from deniable.learn import logistic
from deniable.learn.features import STEPS
from deniable.policy.access import Accounting, Budgets
from deniable.policy.budget import ZCDP
from deniable.policy.document import Policy
from deniable.policy.schema import Neighboring
from deniable.query.execute import measure
from deniable.query.techniques.watch import Watch
from noise_spy import Measurement, Spy, check_noise_was_added, flatten, put_twin, share_of_claim, watch_noise

HALF = Fraction(1, 2)
GROUPS, ROWS = clinic.UNIT.max_groups, clinic.UNIT.max_rows_per_group
assert (GROUPS, ROWS) == (2, 3)

LAPLACE, GAUSSIAN = "discrete_laplace", "discrete_gaussian"
CHOICE, FLIP, WEIGHT = "exponential_choice", "permute_and_flip_rows", "exponential_choice_groups"


@dataclass(frozen=True, slots=True)
class Case:
    """A question to a curator, and what must be drawn for it."""

    ask: Callable[[Curator], Any]
    drawn: tuple[tuple[str, int], ...]
    """Each draw: the sampler, and how many numbers."""
    reach: int = 1
    """How far one unit moves a score that is chosen by, and whether all scores the same way."""
    one_way: bool = True
    shares: tuple[Fraction, ...] = ()
    """Of each choice of a rank: its share of the rows among which it is chosen."""
    levels: int = 1
    """In how many choices one row takes part."""
    rows: int = ROWS
    """How many rows of one unit a choice of a rank is made among."""
    groups: int = 1
    """In how many groups one unit is."""
    by_row: bool = False
    """Whether it is about the table whose every row is a unit."""
    replaced: bool = False
    """Whether neighbors have one unit replaced."""


def _sql(text: str, *drawn: tuple[str, int], shares: tuple[Any, ...] = (), **rest: Any) -> Case:
    told = {key: rest.pop(key) for key in ("levels", "groups", "rows", "replaced") if key in rest}
    return Case(lambda curator: curator.query(text, **rest), drawn, shares=tuple(map(Fraction, shares)), **told)


def _watched(curator: Curator) -> list[bool]:
    """Three looks at a count that is far from its threshold."""
    watch = curator.watch("SELECT COUNT(*) FROM visits", 10**6, 1)
    return [watch.check() for _ in range(3)]


def _count_rows(block: pa.Table) -> float:
    return block.num_rows


def _top(k: int, keys: str | list[str], table: str = "visits", **rest: Any) -> Callable[[Curator], Any]:
    return lambda curator: curator.top(table, keys, k, **rest)


PERCEPTRON: dict[str, Any] = {"epsilon": 1, "turns": 3, "hidden": 2}


CASES = {
    "a count": _sql("SELECT COUNT(*) FROM visits", (LAPLACE, 1), epsilon=1),
    "counts by a declared key": _sql("SELECT sex, COUNT(*) FROM visits GROUP BY sex", (LAPLACE, 2), epsilon=1),
    "counts by a public table": _sql(
        "SELECT region, COUNT(*) FROM visits JOIN regions ON visits.city = regions.city GROUP BY region",
        (LAPLACE, 4), epsilon=1,
    ),
    "count, sum and average": _sql(
        "SELECT COUNT(*), SUM(age), AVG(charge) FROM visits", (LAPLACE, 2), (LAPLACE, 3), epsilon=1
    ),
    "a batch": Case(
        lambda curator: curator.query_batch([
            "SELECT COUNT(*) FROM visits WHERE age < 20", "SELECT COUNT(*) FROM visits WHERE age < 60",
            "SELECT sex, COUNT(*) FROM visits GROUP BY sex",
        ], epsilon=1).to_pylist(),
        ((LAPLACE, 2), (LAPLACE, 2)),
    ),
    "a variance": _sql("SELECT VARIANCE(age) FROM visits", (LAPLACE, 3), epsilon=1),
    "units and values": _sql("SELECT COUNT(DISTINCT pid), COUNT(DISTINCT age) FROM visits", *[(LAPLACE, 1)] * 2,
                             epsilon=1),
    "sums with a rho": _sql(
        "SELECT sex, COUNT(*), SUM(age) FROM visits GROUP BY sex", (GAUSSIAN, 6), rho=HALF
    ),
    "a rollup": _sql(
        "SELECT sex, insured, COUNT(*) FROM visits GROUP BY ROLLUP(sex, insured)",
        (LAPLACE, 4), (LAPLACE, 2), (LAPLACE, 1), epsilon=2,
    ),
    "an average of noisy counts": _sql(
        "SELECT AVG(n) FROM (SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex) AS t", (LAPLACE, 2), epsilon=2
    ),
    "a share for what was cut": _sql("SELECT SUM(age) FROM visits", *[(LAPLACE, 1)] * 3, epsilon=1, bias_share="0.1"),
    "private keys with Laplace noise": _sql(
        "SELECT city, COUNT(DISTINCT pid), SUM(age) FROM visits GROUP BY city",
        (LAPLACE, 5), (LAPLACE, 5), epsilon=2, delta="1e-3",
    ),
    "private keys with Gaussian noise": _sql(
        "SELECT city, COUNT(*) FROM visits GROUP BY city", (GAUSSIAN, 5), (GAUSSIAN, 5), rho=2, delta="1e-3"
    ),
    "a median": _sql("SELECT MEDIAN(age) FROM visits", (FLIP, 1), shares=(HALF,), epsilon=1),
    "medians by key": _sql(
        "SELECT sex, MEDIAN(age) FROM visits GROUP BY sex", (FLIP, 2), shares=(HALF,), groups=GROUPS, epsilon=1
    ),
    "a median of many steps": _sql(
        "SELECT MEDIAN(CLAMP(ratio, -2, 2)) FROM visits", (WEIGHT, 1), shares=(HALF,), epsilon=1
    ),
    "quartiles": _sql(
        "SELECT QUANTILE(age, 0.25), MEDIAN(age), QUANTILE(age, 0.75) FROM visits",
        (FLIP, 1), (LAPLACE, 1), (FLIP, 1), (FLIP, 1), shares=(HALF,) * 3, levels=2, epsilon=1,
    ),
    "quartiles with a rho": _sql(
        "SELECT QUANTILE(CLAMP(ratio, -2, 2), 0.25), QUANTILE(CLAMP(ratio, -2, 2), 0.75) FROM visits",
        (WEIGHT, 1), (LAPLACE, 1), (WEIGHT, 1), (WEIGHT, 1), shares=(HALF,) * 3, levels=2, rho=1,
    ),
    "least and greatest": _sql(
        "SELECT MIN(age), MAX(age) FROM visits", (FLIP, 1), (FLIP, 1), shares=(0, 1), levels=2, epsilon=1
    ),
    "the largest group": Case(_top(1, "sex", epsilon=1), ((CHOICE, 1), (LAPLACE, 1))),
    "the largest groups of rows": Case(
        _top(2, "sex", "answers", epsilon=1), ((CHOICE, 1), (CHOICE, 1), (LAPLACE, 2)), by_row=True
    ),
    "the largest groups with a delta": Case(
        _top(3, ["sex", "insured"], epsilon=1, delta="1e-6"), (*[(CHOICE, 1)] * 3, (GAUSSIAN, 3))
    ),
    "the largest groups of private keys": Case(_top(2, "city", epsilon=1, delta="1e-3"), ((LAPLACE, 5),)),
    "margins": Case(
        lambda curator: curator.margins("visits", [["sex"], ["insured"]], epsilon=1), ((LAPLACE, 2), (LAPLACE, 2))
    ),
    "a hierarchy": Case(
        lambda curator: curator.hierarchy("visits", ["sex", "insured"], rho=1),
        ((GAUSSIAN, 4), (GAUSSIAN, 2), (GAUSSIAN, 1)),
    ),
    "a watch": Case(_watched, ((LAPLACE, 1),) * 4, reach=ROWS),
    "found bounds": Case(lambda curator: curator.find_bounds("visits", "score", 1), ((LAPLACE, 2 * 53 + 1),)),
    "bounds found in a question": _sql(
        "SELECT SUM(AUTO_CLAMP(score)) FROM visits", (LAPLACE, 2 * 63 + 1), (LAPLACE, 1), epsilon=1
    ),
    "a median of blocks": Case(
        lambda curator: curator.sample_and_aggregate(_count_rows, "visits", blocks=10, bounds=(0, 500), epsilon=1),
        ((WEIGHT, 1),), shares=(HALF,), rows=2,
    ),
    "a mean of blocks": Case(
        lambda curator: curator.sample_and_aggregate(
            _count_rows, "answers", blocks=10, bounds=(0, 500), epsilon=1, aggregate="mean"
        ),
        ((LAPLACE, 1),), by_row=True,
    ),
    "a linear model": Case(
        # One, age with "is it given", and three values of sex: six entries, and the target: 7 * 8 / 2 products.
        lambda curator: curator.train("visits", "charge", features=["age", "sex"], epsilon=1), ((GAUSSIAN, 28),)
    ),
    "a logistic model": Case(
        # One, ten knots of age with "is it given", and three values of sex: counted, with the target, then a gradient
        # in each turn; the two last steps have 15 * 16 / 2 products beside it.
        lambda curator: curator.train("visits", "insured", features=["age", "sex"], epsilon=1, turns=5),
        ((GAUSSIAN, 16), *[(GAUSSIAN, 15)] * 5, *[(GAUSSIAN, 135)] * 2),
    ),
    "a Poisson model": Case(
        # The target is summed beside the counts; the two last steps have 4 * 5 / 2 products and four sums.
        lambda curator: curator.train("visits", "charge", features=["sex"], method="poisson", epsilon=1, turns=3),
        ((GAUSSIAN, 5), *[(GAUSSIAN, 4)] * 3, *[(GAUSSIAN, 14)] * 2),
    ),
    "a naive Bayes model": Case(
        # Two values, each with the intercept and three values of sex.
        lambda curator: curator.train("visits", "insured", features=["sex"], method="bayes", epsilon=1),
        ((GAUSSIAN, 8),),
    ),
    "a multinomial model": Case(
        # Values are counted, too; the two last steps have 4 * 5 / 2 products of the only two, and four sums of each.
        lambda curator: curator.train("visits", "insured", features=["sex"], method="multinomial", epsilon=1, turns=3),
        ((GAUSSIAN, 6), *[(GAUSSIAN, 8)] * 3, *[(GAUSSIAN, 18)] * 2),
    ),
    "a perceptron": Case(
        # The intercept and three values of sex are counted; then two hidden units of four weights, and three outside;
        # at the end the rows of each of two values, and those that are expected.
        lambda curator: curator.train("visits", "insured", features=["sex"], method="mlp", rate=1, **PERCEPTRON),
        ((GAUSSIAN, 4), *[(GAUSSIAN, 11)] * 3, (GAUSSIAN, 4)),
    ),
    "a boosted model": Case(
        # The count, and then residuals with curvatures: of the intercept, and twice of the three values of sex.
        lambda curator: curator.train("visits", "insured", features=["sex"], method="boosted", epsilon=1, turns=2),
        ((GAUSSIAN, 1), (GAUSSIAN, 2), *[(GAUSSIAN, 6)] * 2),
    ),
    "a boosted model of a number": Case(
        # The same, and at the end four sums of what is missed and of predictions.
        lambda curator: curator.train("visits", "charge", features=["sex"], method="boosted", epsilon=1, turns=2),
        ((GAUSSIAN, 1), (GAUSSIAN, 2), *[(GAUSSIAN, 6)] * 2, (GAUSSIAN, 4)),
    ),
    "groups of rows": Case(
        # Sixteen stretches of age and "is it given", three values of sex, and all rows; then, for each of two groups,
        # one, age with "is it given", three values of sex, and the squared length.
        lambda curator: curator.train(
            "visits", features=["age", "sex"], method="kmeans", count=2, epsilon=1, turns=2
        ),
        ((GAUSSIAN, 21), *[(GAUSSIAN, 14)] * 2),
    ),
    "components of columns": Case(
        # Six entries: 6 * 7 / 2 products.
        lambda curator: curator.train("visits", features=["age", "sex"], method="pca", epsilon=1), ((GAUSSIAN, 21),)
    ),
    "a count where people are replaced": _sql("SELECT COUNT(*) FROM visits", (LAPLACE, 1), epsilon=1, replaced=True),
    "keys where people are replaced": _sql(
        "SELECT city, COUNT(*) FROM visits GROUP BY city", (GAUSSIAN, 5), (GAUSSIAN, 5), epsilon=2, delta="1e-3",
        replaced=True,
    ),
    "the largest groups where people are replaced": Case(
        _top(2, ["sex", "insured"], epsilon=1), ((CHOICE, 1), (CHOICE, 1), (LAPLACE, 2)), one_way=False, replaced=True
    ),
    "a watch where people are replaced": Case(
        _watched, ((LAPLACE, 1),) * 4, reach=2 * ROWS, one_way=False, replaced=True
    ),
}  # fmt: skip
SALTING = {
    "deniable.query.execute._draw_salt",
    "deniable.query.techniques.watch.read_count",
    "deniable.query.techniques.sample_aggregate.split_units",
    "deniable.synth.describe.render_bounded_select",
}
"""Where bytes are taken beside the samplers: to choose, in secret, which rows of a unit count, or in which block."""


def _visits(*more: dict[str, Any]) -> pa.Table:
    return pa.concat_tables([clinic.people(), clinic.rows_of(list(more))])


def _patient(age: int, *stays: tuple[int, str, bool, str]) -> list[dict[str, Any]]:
    """One patient with so many rows of each kind, in more groups and with more rows than count."""
    fixed = {"pid": 999, "age": age, "charge": 250.0, "day": date(2020, 5, 5), "seen": datetime(2020, 5, 5)}
    fixed |= {"delta": 10, "score": 900, "ratio": 1.5, "note": "ok"}
    return [
        fixed | {"sex": sex, "insured": insured, "city": city}
        for times, sex, insured, city in stays
        for _ in range(times)
    ]


BUSY = _patient(100, (5, "F", True, "Ada"), (4, "M", False, "Brin"), (2, "F", False, "Cole"))
OTHER = _patient(0, (1, "M", True, "Dorn"))
QUIET = _patient(50, (1, "F", True, "Ada"))[0] | {"pid": 998}


AMPLE = Budgets(ZCDP(Fraction(10**9), Fraction(1, 2)), Accounting.ZCDP)
"""A budget that ends no test."""


@contextmanager
def _curator(case: Case, rows: pa.Table) -> Iterator[Curator]:
    tables = clinic.with_unit(neighboring=Neighboring.REPLACE) if case.replaced else clinic.TABLES
    sources = {"visits": rows, "stays": clinic.people(seed=2), "answers": rows, "regions": clinic.REGION_ROWS}
    with Curator(Policy(1, "clinic", tables, AMPLE), sources=sources) as curator:
        yield curator


def _bill(curator: Curator) -> list[Event]:
    """The single events of all that was charged."""
    entries = [entry for entry in curator.ledger.entries() if entry.act == "charge"]
    return flatten(ComposedEvent(tuple(from_dict(entry.event) for entry in entries)))


Line = tuple[Any, ...]


def _read_bill(events: list[Event]) -> Counter[Line]:
    """What a bill says was done, in words that can be compared with draws."""

    def line(event: Event) -> Line:
        match event:
            case LaplaceEvent(scale):
                return LAPLACE, scale
            case GaussianEvent(variance):
                return GAUSSIAN, variance
            case SelectionEvent(epsilon, bounded):
                return "choice", epsilon, bounded
            case PureEvent(epsilon):
                return "watch", epsilon
            case ThresholdEvent(delta):
                return "keys", delta
        raise AssertionError(f"an event that no draw can explain: {event}")

    return Counter(line(event) for event in events)


def _read_draws(spy: Spy, case: Case) -> Counter[Line]:
    """What the draws say was done, in the same words; an epsilon follows from a draw and from what one unit moves."""
    lines: list[Line] = []
    for found in spy.measured:
        match found.mechanism:
            case LaplaceMechanism() | GaussianMechanism():
                lines += [(draw.sampler, draw.parameter) for draw in found.draws]
            case ExponentialMechanism():
                (draw,) = found.draws
                lines.append(("choice", draw.parameter * case.reach * (1 if case.one_way else 2), True))
            case QuantileMechanism():
                lines += _read_ranks(found, case)
            case AboveThreshold():
                assert [draw.sampler for draw in found.draws] == [LAPLACE]
    watches = [found for found in spy.measured if isinstance(found.mechanism, AboveThreshold)]
    scales = {draw.parameter for found in watches for draw in found.draws}
    loose = [draw for draw in spy.loose if draw.by.startswith("deniable.query.techniques.watch.")]
    assert len(loose) == len(spy.loose), "a draw that no mechanism made"
    assert {draw.parameter for draw in loose} == scales
    # The threshold's noise and the count's have one scale, which is two or three times what one unit moves.
    lines += [("watch", (2 if case.one_way else 3) * case.reach / draw.parameter) for draw in loose]
    return Counter(lines) + Counter(("keys", found.mechanism.delta) for found in spy.thresholds)


def _read_ranks(found: Measurement, case: Case) -> list[Line]:
    """The epsilons of a tree of choices: all of one kind, and each row of a unit pays on each level, in each group."""
    chosen = [draw for draw in found.draws if draw.sampler in (FLIP, WEIGHT)]
    divided = [draw for draw in found.draws if draw.sampler == LAPLACE]
    assert len(chosen) == len(case.shares)
    weigh = [q.denominator * case.rows * max(q, 1 - q) for q in case.shares]
    epsilons = {2 * w * draw.parameter for w, draw in zip(weigh, chosen, strict=True)}
    ties = {w / draw.parameter for w, draw in zip(weigh, divided, strict=False)}
    assert len(epsilons) == 1
    assert len(ties) <= 1
    levels = [("choice", *epsilons, chosen[0].sampler == WEIGHT)] * case.levels
    return [*levels, *[("choice", *ties, False)] * (case.levels - 1 if ties else 0)] * case.groups


def _check_keys(spy: Spy) -> None:
    """Of private keys those are shown whose noisy count reaches the threshold, and no other."""
    for found in spy.thresholds:
        inner = next(m for m in spy.measured if m.mechanism is found.mechanism.noise)
        noisy = np.asarray(inner.output)
        shown, counts = found.output
        assert shown.tolist() == [i for i, count in enumerate(noisy.tolist()) if count >= found.mechanism.threshold]
        assert counts.tolist() == noisy[shown].tolist()


def _check(spy: Spy, bill: list[Event], case: Case) -> None:
    drawn = tuple((draw.sampler, draw.size) for draw in spy.draws if draw.sampler != "uniform_below_each")
    assert sorted(drawn) == sorted(case.drawn)
    # A run of integers is chosen by weight, and then one of it at random: nothing of the rows is in that.
    assert len(spy.draws) - len(drawn) == sum(sampler == WEIGHT for sampler, _ in drawn)
    assert _read_draws(spy, case) == _read_bill(bill), "the ledger does not list the draws that were made"
    assert {by for by, _ in spy.salts} <= SALTING
    check_noise_was_added(spy)
    _check_keys(spy)


def _shown(answer: Any) -> Any:
    """All of an answer that leaves as rows."""
    return answer if isinstance(answer, list) else answer.release.rows.to_pylist()


@pytest.mark.parametrize("name", CASES)
def test_each_event_in_the_ledger_drew_its_noise_and_no_draw_is_without_an_event(name: str) -> None:
    case = CASES[name]
    with _curator(case, _visits(QUIET)) as curator:
        with watch_noise() as spy:
            case.ask(curator)
        _check(spy, _bill(curator), case)


@pytest.mark.quick_cases(15)
@pytest.mark.parametrize("name", CASES)
def test_neighbors_with_the_same_noisy_answers_get_the_same_release(name: str) -> None:
    """And no value moves farther than its noise was made for: one patient more, or another in her place."""
    case = CASES[name]
    here = _visits(QUIET, *(OTHER if case.replaced else ()))
    there = _visits(QUIET, *(BUSY[:1] if case.by_row else BUSY))
    with _curator(case, here) as curator, watch_noise() as spy:
        told = _shown(case.ask(curator))
    with _curator(case, there) as curator, watch_noise(spy.recorded()) as again:
        assert _shown(case.ask(curator)) == told
        assert len(again.measured) == len(spy.measured)
    shares = [share_of_claim(a, b) for a, b in zip(spy.measured, again.measured, strict=True)]
    assert 0 < max(shares) <= 1


def test_a_perceptron_tosses_the_coins_of_its_samples_and_draws_the_noise_that_they_are_priced_with() -> None:
    case = CASES["a perceptron"]
    with _curator(case, _visits(QUIET)) as curator:
        with watch_noise() as spy:
            curator.train("visits", "insured", features=["sex"], method="mlp", rate="1/2", **PERCEPTRON)
        counted, sampled, level = _bill(curator)
    assert isinstance(counted, GaussianEvent)
    assert isinstance(sampled, SampledGaussianEvent)
    assert isinstance(level, GaussianEvent)
    assert (sampled.rate, sampled.count) == (HALF, 3)
    coins = [draw for draw in spy.loose if draw.sampler == "bernoulli"]
    assert [draw.parameter for draw in coins] == [HALF] * 3
    assert len({draw.size for draw in coins}) == 1  # one for each patient
    noise = [draw.parameter for draw in spy.draws if draw.sampler == GAUSSIAN]
    assert noise == [counted.variance, *[sampled.variance] * 3, level.variance]
    assert len(spy.draws) == 8
    check_noise_was_added(spy)


def test_a_repeated_question_draws_nothing_and_is_not_charged() -> None:
    case = CASES["counts by a declared key"]
    with _curator(case, _visits()) as curator:
        first, charged = _shown(case.ask(curator)), _bill(curator)
        with watch_noise() as spy:
            assert _shown(case.ask(curator)) == first
        assert _bill(curator) == charged
        assert not spy.draws
        assert not spy.measured


def test_explaining_and_refusing_draw_nothing() -> None:
    with _curator(CASES["a count"], _visits()) as curator, watch_noise() as spy:
        curator.explain("SELECT sex, COUNT(*), MEDIAN(age) FROM visits GROUP BY sex", epsilon=1)
        with pytest.raises(QueryRefused):
            curator.query("SELECT age FROM visits", epsilon=1)
        assert not _bill(curator)
    assert not spy.draws
    assert not spy.salts


def test_a_sparse_vector_draws_anew_for_the_threshold_and_every_answer_after_each_find() -> None:
    mechanism = AboveThreshold(0, 1, times=2)
    with watch_noise() as spy:
        found = mechanism.release(np.array([-(10**6), 10**6, -(10**6), 10**6, 0]))
    assert found.tolist() == [1, 3]
    assert flatten(mechanism.event) == [PureEvent(1)] * 2
    # One unit may move the threshold's answer and the others by one each, both ways: three for the noise of each.
    assert [(draw.sampler, draw.parameter) for draw in spy.draws] == [(LAPLACE, 3)] * 4
    assert [draw.size for draw in spy.draws] == [1, 5, 1, 3]


def test_noisy_max_makes_the_one_choice_that_it_is_priced_for() -> None:
    for monotonic, factor in ((False, 2), (True, 1)):
        mechanism = NoisyMaxMechanism(HALF, 3, monotonic)
        with watch_noise() as spy:
            mechanism.release([1, 2, 3])
        (draw,) = spy.draws
        assert (draw.sampler, draw.size) == ("permute_and_flip", 1)
        assert flatten(mechanism.event) == [SelectionEvent(draw.parameter * factor * 3, bounded_range=False)]


# Broken twins: the ledger has the right bill each time, and what ran is something else.


def _release_exactly(self: Any, values: Any, *_: Any) -> Any:
    return np.array(values)


def _release_half(self: LaplaceMechanism, values: Any, *_: Any) -> Any:
    return np.array(values) + discrete_laplace(self.scale / 2, len(values))


def _draw_and_forget(self: LaplaceMechanism, values: Any, *_: Any) -> Any:
    discrete_laplace(self.scale, len(values))
    return np.array(values)


def _draw_once_for_all(self: LaplaceMechanism, values: Any, *_: Any) -> Any:
    """One number of noise for all groups: their differences are exact."""
    return np.array(values) + discrete_laplace(self.scale, 1)[0]


_honest_release = GaussianMechanism.release


def _release_the_newton_step_exactly(self: GaussianMechanism, values: Any, *rest: Any) -> Any:
    return np.array(values) if len(values) == 18 else _honest_release(self, values, *rest)


def _choose_the_best(self: Any, values: Any, *_: Any) -> int:
    return int(np.argmax(values))


def _show_every_key(self: KeyThreshold, values: Any, *rest: Any) -> Any:
    noisy = self.noise.release(values, *rest)
    return np.arange(noisy.size), noisy


def _compare_exactly(self: Watch, count: int) -> bool:
    return count >= self._height


TWINS = {
    "no noise": ("counts by a declared key", LaplaceMechanism, "release", _release_exactly),
    "half the noise": ("counts by a declared key", LaplaceMechanism, "release", _release_half),
    "noise that is not added": ("counts by a declared key", LaplaceMechanism, "release", _draw_and_forget),
    "one noise for all groups": ("counts by a declared key", LaplaceMechanism, "release", _draw_once_for_all),
    "no noise in a model": ("a linear model", GaussianMechanism, "release", _release_exactly),
    "no noise in a Newton step": (
        "a multinomial model",
        GaussianMechanism,
        "release",
        _release_the_newton_step_exactly,
    ),
    "the best group": ("the largest group", ExponentialMechanism, "release", _choose_the_best),
    "every private key": ("private keys with Laplace noise", KeyThreshold, "release", _show_every_key),
    "a watch over the exact count": ("a watch", Watch, "compare", _compare_exactly),
}


@pytest.mark.parametrize("twin", TWINS)
def test_a_mechanism_that_cheats_is_caught(twin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, kind, method, broken = TWINS[twin]
    case = CASES[name]
    monkeypatch.setattr(kind, method, broken)
    with _curator(case, _visits(*(QUIET | {"pid": 900 + i, "city": f"Lone {i}"} for i in range(3)))) as curator:
        with watch_noise() as spy:
            case.ask(curator)
        # Three more private keys, of one patient each: at most one in a thousand of such may be shown.
        drawn = tuple((sampler, 8 if size == 5 else size) for sampler, size in case.drawn)
        with pytest.raises(AssertionError):
            _check(spy, _bill(curator), replace(case, drawn=drawn))


def test_intervals_that_are_told_from_the_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every draw and the bill are right. With the same noisy answers, neighbors get other intervals of coefficients."""
    exact: list[Any] = []
    sum_exactly, solve = logistic.sum_class_step, logistic.solve_class_step

    def keep(*given: Any) -> Any:
        exact.append(sum_exactly(*given))
        return exact[-1]

    def solve_for_rows(design: Any, noisy: Any, *rest: Any) -> Any:
        return solve(design, noisy, *rest)[0], solve(
            design, exact[-1].astype(float) / (logistic.FINEST * STEPS**2), *rest
        )[1]

    monkeypatch.setattr(logistic, "sum_class_step", keep)
    monkeypatch.setattr(logistic, "solve_class_step", solve_for_rows)
    case = CASES["a multinomial model"]
    with _curator(case, _visits(QUIET)) as curator, watch_noise() as spy:
        told = _shown(case.ask(curator))
        _check(spy, _bill(curator), case)
    with _curator(case, _visits(QUIET, *BUSY)) as curator, watch_noise(spy.recorded()):
        assert _shown(case.ask(curator)) != told


def test_a_question_that_is_measured_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(*args: Any, **rest: Any) -> Any:
        measure(*args, **rest)
        return measure(*args, **rest)

    put_twin(monkeypatch, measure, twice)
    case = CASES["a count"]
    with _curator(case, _visits()) as curator:
        with watch_noise() as spy:
            case.ask(curator)
        with pytest.raises(AssertionError):
            _check(spy, _bill(curator), case)


def test_a_release_that_holds_a_digit_of_an_exact_number_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tape shows it: the noisy answers are the same, and the rows are not."""

    def peek(plan: Any, engine: Any, **rest: Any) -> Any:
        found = measure(plan, engine, **rest)
        digit = engine.run("SELECT COUNT(*) AS n FROM visits").column("n")[0].as_py() % 10
        return {
            name: tuple(replace(part, values=tuple(v // 10 * 10 + digit for v in part.values)) for part in parts)
            for name, parts in found.items()
        }

    put_twin(monkeypatch, measure, peek)
    case = CASES["counts by a declared key"]
    with _curator(case, _visits()) as curator, watch_noise() as spy:
        told = _shown(case.ask(curator))
    with _curator(case, _visits(*BUSY)) as curator, watch_noise(spy.recorded()):
        assert _shown(case.ask(curator)) != told
