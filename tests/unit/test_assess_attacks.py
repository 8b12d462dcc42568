"""The motivated intruder: what policies limit is what runs; linkage with errors, density, classes, logs of answers."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from deniable.assess.evidence import Evidence, Settings, run_trials
from deniable.assess.query_log import attack_log, find_members
from deniable.assess.trials import CONTROLLED, GENERATED, TRIALS
from deniable.attacks.aggregates.reconstruction import measure_excess, solve_noisy_answers
from deniable.errors import DataError
from deniable.policy.layout.release import ATTACKS

LOGGED, SOLVED = {"differencing", "auditing", "reconstruction"}, {"tables"}


def test_every_attack_that_a_policy_limits_is_run_and_every_attack_that_is_run_can_be_limited():
    assert set(ATTACKS) == {trial.name for trial in TRIALS} | LOGGED | SOLVED


PEOPLE = pa.table({"name": ["Ann", "Freddie", "Bo", "Cy"]})
EVERYBODY, BUT_FREDDIE = {}, {"name": {"not": "Freddie"}}


def ask(aggregate, answers, **more):
    """Lines of a log: everybody, and everybody but Freddie."""
    groups = (EVERYBODY, BUT_FREDDIE)
    return [
        json.dumps({"where": where, "of": "pay", "aggregate": aggregate, "answer": answer, **more})
        for where, answer in zip(groups, answers, strict=True)
    ]


def outcomes(lines, original=None):
    return {made.name: made.outcomes for made in attack_log(lines, PEOPLE, original)}


def test_sums_between_known_limits_determine_whom_subtracting_does_not():
    # 300 of at most 100 each but for Freddie, who has nothing: all three have exactly 100.
    lines = ask("sum", (300, 300), low=0, high=100)
    found = outcomes(lines)
    assert found["differencing"][0].attack.successes == 1
    assert found["auditing"][0].attack.successes == 4
    assert "auditing" not in outcomes(ask("sum", (300, 300)))


def test_a_mean_is_audited_as_the_sum_it_amounts_to():
    found = outcomes(ask("mean", (75, 100), low=0, high=100))
    assert found["auditing"][0].attack.successes == 4


def test_maxima_tell_who_alone_can_have_the_largest():
    found = outcomes(ask("max", (90, 70)))
    assert found["auditing"][0].attack.successes == 1  # Freddie has 90; of the others somebody has 70
    assert found.keys() == {"auditing"}


def test_what_an_audit_determines_wrongly_is_no_success():
    truth = PEOPLE.append_column("pay", pa.array([90.0, 20.0, 100.0, 100.0]))
    found = outcomes(ask("sum", (300, 300), low=0, high=100), truth)
    assert found["auditing"][0].attack.successes == 2  # Bo and Cy; the answers were not exact


def test_answers_that_no_values_give_determine_nobody():
    """Each answer is possible, and both are not: Freddie would have 250."""
    assert "auditing" not in outcomes(ask("sum", (350, 100), low=0, high=100))


GOOD = {"where": {"name": "Bo"}, "of": "pay", "aggregate": "sum", "answer": 5}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"deviatoin": 1}, "unknown key 'deviatoin'.*Did you mean 'deviation'"),
        ({"where": {"age": {"foo": 41}}}, "condition on 'age' that is not understood: 'foo'.*between"),
        ({"where": {"age": {"betwen": [1, 2]}}}, "Did you mean 'between'"),
        ({"where": {"age": {"between": [41]}}}, "not understood"),
        ({"where": {"age": {"between": [45, 40]}}}, "nobody can meet"),
        ({"where": {"age": {"min": 5, "max": 4}}}, "nobody can meet"),
        ({"where": {"age": {}}}, "not understood"),
        ({"where": {"age": None}}, "not understood"),
        ({"where": {"age": [[1]]}}, "not understood"),
        ({"where": {"age": "old"}}, "does not fit a column"),
        ({"where": {"aeg": 41}}, "no column 'aeg'"),
        ({"where": ["Bo"]}, "`where` is an object"),
        ({"of": 3}, "`of` a text"),
        ({"aggregate": "min"}, "unknown aggregate"),
        ({"aggregate": ["sum"]}, "unknown aggregate"),
        ({"answer": "NaN"}, "no finite number as its `answer`"),
        ({"answer": float("nan")}, "no finite number as its `answer`"),
        ({"answer": float("inf")}, "no finite number as its `answer`"),
        ({"answer": True}, "no finite number as its `answer`"),
        ({"answer": 10**400}, "no finite number as its `answer`"),
        ({"low": None}, "no finite number as its `low`"),
        ({"deviation": -1}, "noise below 0"),
        ({"scale": -1}, "noise below 0"),
        ({"deviation": 1, "scale": 1}, "both a deviation and a scale"),
        ({"low": 3, "high": 2}, "`low` above its `high`"),
        ({"high": 3}, "no values within the limits give"),
        ({"aggregate": "mean", "high": 3}, "no values within the limits give"),
        ({"aggregate": "max", "high": 3}, "no values within the limits give"),
        ({"aggregate": "count"}, "no values within the limits give"),
        ({"aggregate": "count", "answer": -1}, "no values within the limits give"),
        ({"where": {"name": "Zoe"}}, "sum of a group of nobody"),
        ({"where": {"name": "Zoe"}, "aggregate": "mean"}, "mean of a group of nobody"),
        ({"where": {"name": "Zoe"}, "deviation": 0.1}, "sum of a group of nobody"),
    ],
)
def test_a_line_that_is_not_understood_or_cannot_be_is_refused_by_its_number(change, told):
    people = PEOPLE.append_column("age", pa.array([34, 41, 29, 30]))
    attack_log([json.dumps(GOOD)], people)
    with pytest.raises(DataError, match=f"^Line 2 of the log.*{told}"):
        attack_log([json.dumps(GOOD | {"of": "height"}), json.dumps(GOOD | change)], people)


def test_a_key_that_stands_twice_is_refused_and_so_is_what_is_no_object():
    for line in ('{"where": {}, "of": "pay", "of": "age", "aggregate": "sum", "answer": 1}', "[1]", "7", "{"):
        with pytest.raises(DataError, match=r"^Line 1 of the log"):
            attack_log([line], PEOPLE)


def test_between_means_from_and_to():
    people = PEOPLE.append_column("age", pa.array([34, 41, 29, 45]))
    line = GOOD | {"where": {"age": {"between": [40, 45]}}}
    found = find_members(line["where"], people)
    assert found.tolist() == [False, True, False, True]


def test_noise_that_is_not_stated_may_leave_the_limits():
    """Counts from -1 to 2 of one person: they contradict each other, so that they are noisy, and not impossible."""
    lines = [json.dumps(GOOD | {"aggregate": "count", "answer": answer}) for answer in (-1, 0, 2, 1)]
    assert attack_log(lines, PEOPLE)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("stated", [0.3, 2.0])
def test_a_log_that_understates_its_noise_is_found_out_and_claims_little(stated):
    """Noise of 4, stated as less; of what is then claimed with 95% certainty, at least that share is right."""
    sure = right = 0
    for seed in range(12):
        lines, original = noisy_log(4.0, 200, 1, seed, deviation=stated)
        found = solve_log(lines, original)
        assert any("more than the stated noise allows" in warning for warning in found.warnings)
        sure, right = sure + found.precision.trials, right + found.precision.successes
    assert right >= 0.95 * sure


def test_a_log_that_states_its_noise_truly_is_believed():
    told = [solve_log(noisy_log(2.0, 120, 1, seed, deviation=2.0)[0]).warnings for seed in range(12)]
    rng = np.random.default_rng(4)
    groups = rng.random((120, 40)) < 0.3
    laplace = [measure_excess(groups, groups.sum(axis=1) + rng.laplace(0, 1, 120), np.full(120, 2**0.5))
               for _ in range(200)]  # fmt: skip
    assert not any(told)
    assert sum(times > 1 for times in laplace) <= 3


STAFF = pa.table({"person": np.arange(60), "age": np.arange(60) % 12, "sex": np.arange(60) % 2})


def noisy_log(noise, questions, repeats, seed=1, **more):
    """Counts of a secret bit over random sets of people, with normal noise, each asked several times."""
    rng = np.random.default_rng(seed)
    secret = rng.integers(0, 2, 60)
    lines = []
    for _ in range(questions):
        chosen = rng.choice(60, 20, replace=False)
        for _ in range(repeats):
            answer = float(secret[chosen].sum() + rng.normal(0, noise))
            lines.append(json.dumps({"where": {"person": chosen.tolist()}, "of": "ill", "aggregate": "count",
                                     "answer": answer, **more}))  # fmt: skip
    return lines, STAFF.append_column("ill", pa.array(secret))


def solve_log(lines, original=None):
    found = {made.name: made.outcomes for made in attack_log(lines, STAFF, original)}
    return next(one for one in found["reconstruction"] if "noisy" in one.scenario)


def test_noisy_counts_are_averaged_and_solved_and_nobody_is_called_sure_wrongly_too_often():
    lines, original = noisy_log(2.0, 100, 40)
    found = solve_log(lines, original)
    assert found.figures["deviation"] == pytest.approx(2.0, rel=0.05)  # measured by the repetitions
    assert found.attack.share > 0.9
    assert found.precision.share > 0.95
    once = solve_log(noisy_log(2.0, 100, 1, deviation=2.0)[0], original)
    assert once.figures["sure"] < found.figures["sure"] / 2  # averaging is what gives people away
    assert 0.5 < once.figures["certainty"] < found.figures["certainty"]


def test_certainty_is_as_often_right_as_it_says():
    """Over many logs, of those claimed with 95% and more at least that share is right."""
    sure = right = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        secret, groups = rng.integers(0, 2, 40).astype(float), rng.random((80, 40)) < 0.3
        answers = groups @ secret + rng.normal(0, 1.0, 80)
        found = solve_noisy_answers(groups, answers, np.full(80, 1.0), whole=True, secret=secret)
        sure, right = sure + found.precision.trials, right + found.precision.successes
    assert sure > 1000
    assert right / sure > 0.95


def test_the_lines_that_gave_somebody_away_are_named():
    """One person is asked about alone, forty times, with the Laplace scale told; all others are in one large group."""
    alone = {"where": {"person": 7}, "of": "ill", "aggregate": "count", "scale": 1.0}
    rng = np.random.default_rng(5)
    lines = [json.dumps(alone | {"answer": float(1 + rng.laplace())}) for _ in range(40)]
    lines.append(json.dumps(alone | {"where": {}, "answer": 31.0}))
    found = solve_log(lines)
    assert found.attack.successes == found.figures["sure"] == 1
    assert 1 <= found.figures["telling"][0]["line"] <= 40


@pytest.mark.parametrize(("noise", "sure"), [(900.0, 60), (400_000.0, 0)])
def test_noisy_sums_without_limits_are_averaged_too(noise, sure):
    """Each person's pay, asked twenty times: known within a twentieth of the largest, or drowned in noise."""
    rng = np.random.default_rng(8)
    pay = rng.integers(30_000, 90_000, 60).astype(float)
    asked = {"of": "pay", "aggregate": "sum", "deviation": noise}
    lines = [
        json.dumps(asked | {"where": {"person": person}, "answer": pay[person] + rng.normal(0, noise)})
        for person in range(60)
        for _ in range(20)
    ]
    found = solve_log(lines, STAFF.append_column("pay", pa.array(pay)))
    assert found.figures["sure"] == sure
    assert found.attack.successes == sure


def test_noisy_sums_between_limits_come_with_their_error():
    rng = np.random.default_rng(6)
    pay = rng.integers(0, 101, 60).astype(float)
    lines = []
    for person in range(60):
        where = {"person": {"not": person}}
        for chosen, total in ((where, pay.sum() - pay[person]), ({}, pay.sum())):
            entry = {"where": chosen, "of": "pay", "aggregate": "sum", "answer": total + rng.normal(0, 1)}
            lines.append(json.dumps(entry | {"deviation": 1.0, "low": 0, "high": 100}))
    found = solve_log(lines, STAFF.append_column("pay", pa.array(pay)))
    assert found.attack.share > 0.95
    assert found.precision.share > 0.95


@pytest.mark.slow
def test_noisy_sums_of_yes_and_no_are_solved_as_the_counts_they_are():
    """Known to be whole, because the log says so or because all true values are; else within a twentieth."""
    rng = np.random.default_rng(9)
    secret = (rng.random(60) < 0.4).astype(float)
    lines = {False: [], True: [], None: []}
    for _ in range(1200):
        chosen = np.flatnonzero(rng.random(60) < 0.5)
        entry = {"where": {"person": chosen.tolist()}, "of": "ill", "aggregate": "sum", "low": 0, "high": 1,
                 "scale": 1.0, "answer": float(secret[chosen].sum() + rng.laplace())}  # fmt: skip
        lines[False].append(json.dumps(entry))
        lines[True].append(json.dumps(entry | {"whole": True}))
        lines[None].append(json.dumps(entry | {"aggregate": "count"}))
    original = STAFF.append_column("ill", pa.array(secret))
    counted = solve_log(lines[None], original)
    assert counted.attack.successes > 55
    assert solve_log(lines[False], original).attack == solve_log(lines[True], original).attack == counted.attack
    assert solve_log(lines[False], original).excess == counted.excess > 0.9
    assert solve_log(lines[True]).figures["sure"] == counted.figures["sure"]
    assert solve_log(lines[False]).figures["sure"] == 0


@pytest.mark.parametrize("low", [0, 3])
def test_whole_numbers_are_found_when_the_nearest_is_right_and_guessed_by_the_commonest(low):
    rng = np.random.default_rng(10)
    rank = low + np.minimum(rng.integers(0, 8, 60), 4).astype(float)
    asked = {"of": "rank", "aggregate": "sum", "deviation": 0.9, "low": low, "high": low + 4, "whole": True}
    lines = [
        json.dumps(asked | {"where": {"person": person}, "answer": rank[person] + rng.normal(0, 0.9)})
        for person in range(60)
        for _ in range(20)
    ]
    found = solve_log(lines, STAFF.append_column("rank", pa.array(rank)))
    assert found.attack.successes > 55  # the deviation of a mean is 0.2: within a half, and not within a twentieth
    assert found.baseline == pytest.approx((rank == low + 4).mean())


def test_whole_is_yes_or_no():
    with pytest.raises(DataError, match="whole"):
        solve_log([json.dumps({"where": {}, "of": "a", "aggregate": "sum", "answer": 1, "whole": 1})])


EXACT = [{"where": {"person": person}, "of": "ill", "aggregate": "count", "answer": 0} for person in range(4)]


@pytest.mark.parametrize("ill", [24, 1])
def test_the_truth_that_scores_a_log_does_not_hide_whom_it_gives_away(ill):
    """Four people's bits are answered exactly: a guess about all sixty is no measure for these four."""
    secret = np.arange(60) >= 60 - ill
    original = STAFF.append_column("ill", pa.array(secret))
    lines = [json.dumps(entry) for entry in EXACT]
    for table in (None, original):
        found = {made.name: made.exposed for made in attack_log(lines, STAFF, table)}
        assert found["differencing"] == pytest.approx(4 / 60)
        assert found["auditing"] == pytest.approx(4 / 60)
    often = [json.dumps(EXACT[0] | {"answer": float(x)}) for x in np.random.default_rng(3).laplace(size=300)]
    found = solve_log([*often, json.dumps(EXACT[0] | {"where": {}, "answer": float(ill), "deviation": 9.0})], original)
    assert found.precision.successes == found.precision.trials == found.figures["sure"] >= 1
    assert found.excess == pytest.approx(found.attack.share)


def test_exact_answers_are_not_called_noisy():
    found = outcomes(ask("sum", (300, 300), low=0, high=100))
    assert "reconstruction" not in found


def misspell(name: str) -> str:
    return name[:2] + name[3:] if len(name) > 4 else name


@pytest.fixture(scope="module")
def register() -> pa.Table:
    rng = np.random.default_rng(3)
    letters = np.array(list("aeioulmnrst"))
    names = ["".join(letters[rng.integers(0, len(letters), 9)]) for _ in range(600)]
    born = pa.array(rng.integers(-7_000, 8_000, 600).astype(np.int32)).cast(pa.date32())
    return pa.table({"name": names, "born": born, "age": rng.integers(20, 70, 600), "sex": ["F", "M"] * 300})


def run_one(name: str, evidence: Evidence) -> object:
    (made,) = run_trials(evidence, Settings(attacks=300), (name,), trials=TRIALS)
    return made


def test_names_with_typos_are_linked_where_exact_linkage_finds_nobody(register):
    release = register.set_column(0, "name", pa.array([misspell(n) for n in register["name"].to_pylist()]))
    # Six people on average share an age and a sex: only the likeness of names tells them apart.
    evidence = Evidence(release, ("name", "age", "sex"), register=register, truth=np.arange(600))
    assert run_one("linkage", evidence).exposed < 0.01
    assert run_one("fuzzy_linkage", evidence).exposed > 0.9


def test_strangers_are_not_linked(register):
    rng = np.random.default_rng(4)
    mixed = pa.table({n: register[n].take(pa.array(rng.permutation(600))) for n in register.column_names})
    evidence = Evidence(mixed, ("name", "born", "age", "sex"), register=register, truth=np.arange(600))
    assert run_one("fuzzy_linkage", evidence).exposed < 0.05


def test_columns_of_other_types_are_not_compared(register):
    release = pa.table({"born": ["1950s"] * 600})
    assert "same type" in run_one("fuzzy_linkage", Evidence(release, ("born",), register=register)).skipped


def crowd(seed: int, rows: int = 600) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"x": rng.normal(size=rows), "y": rng.normal(size=rows)})


def test_membership_is_told_by_density_too_in_a_copy_and_not_in_a_fresh_sample():
    members, others = crowd(1), crowd(2, 2000)
    copied = run_one("membership", Evidence(members, original=members, control=others))
    assert [one.name for one in copied.outcomes] == ["membership", "membership by density"]
    assert len({one.scenario for one in copied.outcomes}) == 2, "each says what it is"
    assert copied.outcomes[1].figures["area"] > 0.85
    fresh = run_one("membership", Evidence(crowd(3), original=members, control=others))
    assert abs(fresh.outcomes[1].figures["area"] - 0.5) < 0.07


def test_the_ways_in_which_a_class_gives_away_are_counted():
    table = pa.table({"class": [1, 1, 1, 2, 2, 2, 2], "ill": ["flu"] * 4 + ["gout", "cold", "cold"]})
    found = run_one("inference", Evidence(table, ("class",), ("ill",)))
    ways = found.outcomes[0].figures["disclosed"]
    assert ways == {"rows": 7, "homogeneous": 3, "background": 3, "skewed": 0, "similar": 3}


@pytest.mark.parametrize("trials", [GENERATED, CONTROLLED, TRIALS])
def test_who_is_attacked_does_not_depend_on_the_order_of_any_table(trials):
    def people(seed):
        draw = np.random.default_rng(seed)
        ages, pays = draw.integers(18, 90, 400), draw.normal(50, 20, 400)
        return pa.table({"town": [f"t{n}" for n in draw.integers(0, 9, 400)], "age": ages, "pay": pays})

    def find(*tables):
        release, original, control = tables
        evidence = Evidence(release, ("town", "age"), ("pay",), original=original, control=control)
        return [
            outcome.as_dict() for made in run_trials(evidence, Settings(60), trials=trials) for outcome in made.outcomes
        ]

    tables = [people(0), pa.concat_tables([people(0).slice(0, 150), people(1)]), people(2)]
    mixed = [table.take(np.random.default_rng(3).permutation(table.num_rows)) for table in tables]
    assert find(*tables) == find(*mixed)
