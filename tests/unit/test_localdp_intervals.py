"""Intervals cover as often as they say, from twenty respondents on; estimates say what hostile respondents can do."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from deniable.errors import DataError, ParameterError
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.likelihood_ratio import odds_below
from deniable.localdp.numeric.distribution import _choose_weights, estimate_with_intervals
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale, mean_of, mean_of_readings
from deniable.localdp.protocol import estimate_from_support, student_quantile
from deniable.localdp.protocol_choice import choose
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.results import (
    contrast_groups,
    contrast_waves,
    estimate_joint,
    estimate_question,
    estimate_weighted,
)

PURE = {
    "two coins": (two_coins().p, two_coins().q),
    **{
        f"k-ary of {d} at {e}": (Direct.calibrate(d, e).p, Direct.calibrate(d, e).q) for d in (2, 9) for e in ("0.5", 4)
    },
    **{f"subset of 20 at {e}": (Subset.calibrate(20, e).p, Subset.calibrate(20, e).q) for e in ("0.5", 2, 4)},
    "one block of Hadamard at 1": (odds_below(1) / (odds_below(1) + 1), Fraction(1, 2)),
}


def binomial(n: int, chance: float) -> np.ndarray:
    """The probabilities of 0 .. n."""
    k = np.arange(n + 1)
    return np.array([math.comb(n, i) for i in k], dtype=float) * chance**k * (1 - chance) ** (n - k)


@pytest.mark.parametrize("n", [20, 45, 120])
@pytest.mark.parametrize("name", PURE)
def test_intervals_of_shares_and_of_counts_cover_at_every_truth_by_enumeration(name, n):
    """The chance of every number of supporting responses is known, so that coverage is summed, not sampled."""
    p, q = PURE[name]
    found = estimate_from_support(np.arange(n + 1), n, p, q)
    low, high = (end / n for end in found.interval(0.95, population=True))
    for share in np.linspace(0, 1, 41):
        chances = binomial(n, float(q) + share * float(p - q))
        assert chances[(low <= share) & (share <= high)].sum() >= 0.94, share
    low, high = found.interval(0.95)
    for count in range(0, n + 1, max(1, n // 20)):
        chances = np.convolve(binomial(count, float(p)), binomial(n - count, float(q)))
        assert chances[(low <= count) & (count <= high)].sum() >= 0.94, count


def test_an_interval_of_counts_among_these_respondents_is_short_where_there_is_little_noise():
    protocol = Direct.calibrate(2, 12)
    found = protocol.estimate(np.array([700, 300]), 1000)
    low, high = found.interval(0.95)
    assert high[1] - low[1] < 4
    wide = found.interval(0.95, population=True)
    assert wide[1][1] - wide[0][1] > 50


RUNS = 1500
FLOOR = 0.95 - 5.5 * math.sqrt(0.95 * 0.05 / RUNS)  # five and a half standard deviations: a false alarm in 5e-8


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("blocks", [1, 4, 16])
def test_intervals_of_hadamard_responses_cover_with_twenty_respondents(blocks, share):
    protocol, n = Hadamard(32, blocks, odds_below(2)), 20
    rng = np.random.default_rng(7)
    answers = np.where(rng.random((RUNS, n)) < share, 0, rng.integers(1, 32, (RUNS, n)))
    (columns,) = protocol.randomize(answers.ravel())
    hits = 0
    for told in columns.reshape(RUNS, n):
        low, high = protocol.estimate(protocol.tally((told,)), n).interval(0.95, population=True)
        hits += low[0] <= share * n <= high[0]
    assert hits / RUNS > FLOOR


@pytest.mark.parametrize("where", ["everybody at an end", "one in ten at the other end", "anywhere"])
@pytest.mark.parametrize("epsilon", [1, 4])
@pytest.mark.parametrize("make", [Duchi.calibrate, Hybrid.calibrate], ids=["duchi", "hybrid"])
def test_intervals_of_means_cover_with_twenty_respondents_wherever_they_stand(make, epsilon, where):
    scale, n, runs = Scale.between(0, 80), 20, 500
    protocol, rng = make(scale, epsilon), np.random.default_rng(8)
    positions, truth = {
        "everybody at an end": (np.zeros((runs, n), int), 0),
        "one in ten at the other end": (80 * (rng.random((runs, n)) < 0.1), 8),
        "anywhere": (rng.integers(0, 81, (runs, n)), 40),
    }[where]
    columns = protocol.randomize(positions.ravel())
    hits = 0
    for run in range(runs):
        low, high = mean_of(protocol, tuple(column[run * n : (run + 1) * n] for column in columns)).interval(0.95)
        hits += low <= truth <= high
    assert hits / runs > 0.95 - 5.5 * math.sqrt(0.95 * 0.05 / runs)


WAVES = {"a scale of few steps": Scale.between(0, 12), "more steps than places": Scale.between(0, 10, "0.001")}


@pytest.mark.parametrize("scale", WAVES.values(), ids=WAVES)
def test_intervals_of_bins_allow_for_the_bias_of_their_weights_at_every_distribution(scale):
    """Without noise the mean weight of a population is known: its shares must be among those that explain it."""
    protocol, bins, rng = Window.square_wave(scale, 2), 6, np.random.default_rng(9)
    weights, worst = _choose_weights(protocol, bins, 500, 0.95)
    positions = rng.integers(0, scale.steps + 1, 200)
    positions[:2] = 0, scale.steps
    parts = np.arange(protocol.cells) * len(weights) // protocol.cells
    means = protocol.chances(positions / scale.steps) @ weights[parts]
    inside = np.eye(bins)[np.minimum(positions * bins // scale.steps, bins - 1)]
    people = np.concatenate((np.eye(200), rng.dirichlet(np.full(200, 0.02), 300)))
    for mean, share in zip(people @ means, people @ inside, strict=True):
        low, high = worst.find_ends(mean, np.zeros(bins))
        assert ((low <= share + 1e-9) & (share - 1e-9 <= high)).all()


def test_intervals_of_bins_cover_where_everybody_gives_one_answer():
    """What smoothing spreads over other bins is no share of theirs: these intervals once held the truth never."""
    protocol, runs = Window.square_wave(Scale.between(0, 80), 1), 12
    hits = np.zeros(20)
    for _ in range(runs):
        shares, low, high = estimate_with_intervals(protocol, protocol.randomize(np.zeros(300, int)), 20, 0.95)
        assert ((low <= shares) & (shares <= high)).all()
        hits += (low <= np.eye(20)[0]) & (np.eye(20)[0] <= high)
    assert hits.min() > 4  # of 12, at 95%: a false alarm in 10^8


def test_intervals_of_bins_grow_short_with_many_respondents():
    protocol, answers = Window.square_wave(Scale.between(0, 80), 4), np.random.default_rng(1).integers(0, 80, 100_000)
    _, low, high = estimate_with_intervals(protocol, protocol.randomize(answers), 10, 0.95)
    assert (high - low).max() < 0.05


def test_words_have_the_intervals_of_a_pure_protocol():
    protocol = HadamardSketch.calibrate(2)
    found = protocol.estimate(protocol.tally(protocol.randomize(["fig"] * 400)), 400, ["fig", "plum"])
    low, high = found.interval(0.999999, population=True)
    assert low[0] <= 400 <= high[0]
    assert low[1] <= 0 <= high[1]


def test_students_quantile_is_that_of_the_tables():
    assert [round(student_quantile(0.95, n), 2) for n in (5, 10, 19, 30, 10**6)] == [2.57, 2.23, 2.09, 2.04, 1.96]
    assert student_quantile(0.99, 19) == pytest.approx(2.861, abs=0.002)


@pytest.mark.parametrize("epsilon", ["0.5", "1", "2", "3", "4"])
def test_the_protocol_chosen_is_within_two_percent_of_the_best_published_up_to_100_000_answers(epsilon):
    """The best published are k-ary response and subset selection, whose variance no known protocol undercuts."""
    for domain in (2, 3, 5, 9, 17, 60, 256, 341, 513, 1000, 4097, 10_000, 65_537, 100_000):
        best = min(Subset.calibrate(domain, epsilon).variance(), Direct.calibrate(domain, epsilon).variance())
        assert choose(domain, epsilon, 10_000).protocol.variance() <= 1.02 * best, domain


SURVEY = parse_survey(
    "{survey: ward, title: Ward, questions: {"
    "smoker: {ask: Smoker?, type: yes-no, epsilon: 3},"
    "ward: {ask: Ward?, type: choice, options: [A, B, C], epsilon: 3},"
    "sex: {ask: Sex?, type: yes-no, method: two-coins},"
    "hours: {ask: Hours?, type: number, between: [0, 12], epsilon: 3},"
    "uses: {ask: Uses?, type: several, options: [x, y], epsilon: 3}}}"
)


def collect(answers: dict[str, np.ndarray]) -> list[str]:
    """The bodies of people whose answers are given by question."""
    told = {}
    for name, given in answers.items():
        question = SURVEY.question(name)
        columns = question.parts[0].randomize(given.astype(np.int64))
        told[name] = list(zip(*(column.tolist() for column in columns), strict=True))
    rows = zip(*told.values(), strict=True)
    return [json.dumps({name: [list(entry)] for name, entry in zip(told, row, strict=True)}) for row in rows]


def test_joint_tables_of_two_and_three_questions_are_those_of_the_people():
    n = 6000
    rng = np.random.default_rng(3)
    smoker, ward = rng.integers(0, 2, n), rng.integers(0, 3, n)
    sex = (smoker + (rng.random(n) < 0.3)) % 2
    bodies = collect({"smoker": smoker, "ward": ward, "sex": sex})
    for names, columns in ((("smoker", "sex"), (smoker, sex)), (("smoker", "ward", "sex"), (smoker, ward, sex))):
        found = estimate_joint(SURVEY, bodies, names, confidence=0.9999999)
        options = [SURVEY.question(name).options for name in names]
        for cell in found:
            at = [labels.index(answer) for labels, answer in zip(options, cell.answers, strict=True)]
            share = np.logical_and.reduce([column == place for column, place in zip(columns, at, strict=True)]).mean()
            assert cell.low <= share <= cell.high
        assert len(found) == math.prod(map(len, options))
        assert sum(cell.share for cell in found) == pytest.approx(1)
    assert max(cell.high - cell.low for cell in estimate_joint(SURVEY, bodies, ("smoker", "sex"))) < 0.15


TRUTHS = ((0.09, 0.01, 0.09, 0.81), (1.0, 0.0, 0.0, 0.0), (0.25, 0.25, 0.25, 0.25), (0.97, 0.01, 0.01, 0.01))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("epsilon", [1, 2, 4])
def test_intervals_of_joint_tables_cover_with_twenty_respondents_by_enumeration(epsilon):
    """Two yes-no questions: of all ways in which 20 people can report, the chance and the interval are computed."""
    asked = f"{{ask: '?', type: yes-no, epsilon: {epsilon}}}"
    n, survey = 20, parse_survey(f"{{survey: two, title: Two, questions: {{one: {asked}, two: {asked}}}}}")
    p, q = (float(getattr(survey.questions[0].parts[0], name)) for name in "pq")
    cells = list(product((0, 1), repeat=2))
    told = [json.dumps({"one": [[a]], "two": [[b]]}) for a, b in cells]
    laws = [[(p if a == c else q) * (p if b == d else q) for a, b in cells] for c, d in cells]
    covered = np.zeros((len(TRUTHS), 4))
    for counts in product(range(n + 1), repeat=3):
        if sum(counts) > n:
            continue
        every = (*counts, n - sum(counts))
        found = estimate_joint(survey, [body for body, count in zip(told, every, strict=True) for _ in range(count)],
                               ("one", "two"))  # fmt: skip
        ways = math.factorial(n) // math.prod(map(math.factorial, every))
        for row, truth in zip(covered, TRUTHS, strict=True):
            chance = ways * math.prod((np.array(truth) @ laws) ** every)
            row += [chance * (cell.low <= share <= cell.high) for cell, share in zip(found, truth, strict=True)]
    assert covered.min() >= 0.94, covered


def test_weights_give_the_shares_of_a_population_whose_groups_are_known():
    rng = np.random.default_rng(11)
    ward = rng.choice(3, size=8000, p=[0.8, 0.1, 0.1])  # the population has a third in each
    smoker = rng.random(8000) < np.array([0.1, 0.5, 0.9])[ward]
    bodies = collect({"smoker": smoker, "ward": ward})
    found = estimate_weighted(SURVEY, bodies, "smoker", "ward", [1, 1, 1], confidence=0.9999999)
    yes = next(share for share in found if share.answers == ("yes",))
    assert yes.low <= 0.5 <= yes.high
    assert yes.low > smoker.mean()  # which the unweighted share estimates
    assert sum(share.share for share in found) == pytest.approx(1)
    for totals in ([1, 1], [0, 0, 0], [1, 1, -1]):
        with pytest.raises(ParameterError, match="totals"):
            estimate_weighted(SURVEY, bodies, "smoker", "ward", totals)
    with pytest.raises(ParameterError, match="weighted"):
        estimate_weighted(SURVEY, bodies, "smoker", "hours", [1])


def test_the_error_of_a_weighted_share_is_that_of_its_repetitions():
    rng, found = np.random.default_rng(12), []
    for _ in range(60):
        ward = rng.choice(3, size=1500, p=[0.6, 0.2, 0.2])
        smoker = rng.random(1500) < np.array([0.2, 0.5, 0.8])[ward]
        found.append(
            estimate_weighted(SURVEY, collect({"smoker": smoker, "ward": ward}), "smoker", "ward", [1, 1, 1])[1]
        )
    spread = np.std([each.share for each in found])
    stated = np.mean([(each.high - each.low) / 2 / 1.96 for each in found])
    assert 0.55 < spread / stated < 1.6  # of 60 repetitions: a false alarm in 10^7


def test_questions_without_a_joint_table_are_refused():
    for names in (["smoker"], ["smoker", "smoker"], ["smoker", "hours"], ["smoker", "uses"]):
        with pytest.raises(ParameterError, match="joint table"):
            estimate_joint(SURVEY, [], names)
    with pytest.raises(DataError, match="all of these"):
        estimate_joint(SURVEY, [], ["smoker", "ward"])


def test_two_rounds_of_a_survey_are_compared():
    now = collect({"hours": np.full(900, 9), "smoker": np.ones(900)})
    before = collect({"hours": np.full(900, 5), "smoker": np.ones(900)})
    (hours,) = contrast_waves(SURVEY, now, before, "hours")
    assert hours.between == ("now", "before")
    low, high = hours.difference.interval(0.9999999)
    assert low <= 4 <= high
    assert hours.difference.p_value < 1e-6
    assert all(each.difference.p_value > 1e-7 for each in contrast_waves(SURVEY, now, before, "smoker"))
    with pytest.raises(DataError, match="two rounds"):
        contrast_waves(SURVEY, now, [], "hours")


def find(name: str, told: list[list[int]]) -> object:
    bodies = [{name: [entry]} for entry in told]
    return estimate_question(SURVEY.question(name), bodies, 0.95)


def test_one_hostile_respondent_moves_a_share_as_far_as_is_said_and_no_further():
    told = [[2]] * 40 + [[0]] * 60
    before = find("ward", told)
    moves = []
    for forged in range(3):
        after = find("ward", [*told[:-1], [forged]])
        moves += [abs(x.share - y.share) for x, y in zip(before.shares, after.shares, strict=True)]
    assert max(moves) == pytest.approx(before.moved_by_one)


def test_as_many_hostile_respondents_as_is_said_put_another_answer_first_and_one_less_does_not():
    told = [[2]] * 40 + [[0]] * 60

    def leader(hostile: int) -> str:
        found = find("ward", told[: 100 - hostile] + [[2]] * hostile)
        return max(found.shares, key=lambda share: share.share).answer

    fewest = find("ward", told).overturned_by
    assert leader(fewest) == "C"
    assert leader(fewest - 1) == "A"


def test_a_mean_says_how_far_one_hostile_respondent_moves_it():
    protocol = SURVEY.question("hours").parts[0]
    columns = protocol.randomize(np.full(50, 6))
    told = [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    found, low, high = find("hours", told), *protocol.range_of(50)
    assert found.moved_by_one == pytest.approx((high - low) / 50)
    assert found.overturned_by >= 1


def test_groups_that_were_reported_with_noise_are_taken_apart():
    """Of smokers 9 in 10 are on ward A, of the others on ward C: the difference is 0.9 whatever the randomizing."""
    rng, seen, covered = np.random.default_rng(11), [], 0
    for _ in range(60):
        smoker = (rng.random(400) < 0.3).astype(int)
        ward = np.where(rng.random(400) < 0.9, np.where(smoker == 1, 0, 2), 1)
        bodies = collect({"sex": smoker, "ward": ward})
        first = contrast_groups(SURVEY, bodies, by="sex", of="ward")[0]
        assert (first.answer, first.between) == ("A", ("no", "yes"))
        seen.append(first.difference.value)
        low, high = first.difference.interval(0.95)
        covered += low <= -0.9 <= high
        weighted = estimate_weighted(SURVEY, bodies, "ward", "sex", [1, 1])
        covered += weighted[0].low <= 0.45 <= weighted[0].high
    assert np.mean(seen) == pytest.approx(-0.9, abs=0.1)  # as reported it is -0.45: two coins tell half
    assert covered >= 105  # of 120; expected are 114


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1, 4])
def test_intervals_of_differences_between_rounds_of_twenty_cover(epsilon):
    survey = parse_survey(
        f"{{survey: s, title: S, questions: {{h: {{ask: H?, type: number, between: [0, 10], epsilon: {epsilon}}}}}}}"
    )
    rng, protocol, runs, covered = np.random.default_rng(21), survey.question("h").parts[0], 600, 0
    for _ in range(runs):
        rounds = []
        for share in (0.2, 0.6):
            columns = protocol.randomize(10 * (rng.random(20) < share).astype(np.int64))
            rows = zip(*(column.tolist() for column in columns), strict=True)
            rounds.append([json.dumps({"h": [list(row)]}) for row in rows])
        low, high = contrast_waves(survey, *rounds, "h")[0].difference.interval(0.95)
        covered += low <= -4 <= high
    assert covered / runs >= 0.94 - 3 * (0.05 * 0.95 / runs) ** 0.5


@pytest.mark.parametrize(("people", "share"), list(product((20, 40), (0.04, 0.1))))
def test_means_of_randomized_records_cover_rare_extremes_where_the_noise_is_small(people, share):
    """By enumeration of how many people stand at the upper end, without noise: the limit of a large epsilon."""
    protocol = BoundedLaplace.calibrate(Scale.between(0, 100, 1), 10)
    covered = 0.0
    for above in range(people + 1):
        low, high = mean_of_readings(protocol, np.repeat([100.0, 0.0], [above, people - above])).interval(0.95)
        if low <= 100 * share <= high:
            covered += math.comb(people, above) * share**above * (1 - share) ** (people - above)
    assert covered >= 0.94
