"""`deniable attack A --with B`: releases that are each safe by themselves, combined by one who holds them all."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import world
from deniable.attacks.composition import prepare_releases, subtract_means
from deniable.cli.main import app
from deniable.errors import ParameterError


def run(*words):
    done = CliRunner().invoke(app, [*map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def attack(*words):
    code, text = run("attack", *words, "--json")
    return code, {outcome["attack"]: outcome for made in json.loads(text)["attacks"] if made["attack"] == "combining"
                  for outcome in made["outcomes"]}  # fmt: skip


BMI = pa.table({"age": [24, 31, 38, 45, 52, 59, 66], "bmi": [24.0, 35.0, 41.0, 43.0, 44.0, 48.0, 50.0]})
FIRST = pa.table({"age": ["[20, 50)"] * 4 + ["[50, 70)"] * 3, "bmi": [35.75] * 4 + [142 / 3] * 3})
SECOND = pa.table({"age": ["[20, 40)"] * 3 + ["[40, 70)"] * 4, "bmi": [100 / 3] * 3 + [46.25] * 4})


@pytest.fixture
def clinic(tmp_path):
    for name, table in (("people", BMI), ("first", FIRST), ("second", SECOND)):
        pa.csv.write_csv(table, tmp_path / f"{name}.csv")
    return tmp_path


def test_two_three_anonymous_releases_give_the_fourth_persons_body_mass_index(clinic):
    code, found = attack(
        clinic / "first.csv", "--with", clinic / "second.csv", "--original", clinic / "people.csv",
        "--knows", "age", "--sensitive", "bmi", "--most", "combining=0",
    )  # fmt: skip
    assert code == 2
    means = found["subtracted means"]
    assert (means["exposed"]["successes"], means["control"]["successes"]) == (1, 0)
    assert means["figures"]["positions"] == [4]
    assert means["precision"]["share"] == 1
    # The control group of nobody: with one release twice there is nothing to subtract.
    _, same = attack(
        clinic / "first.csv", "--with", clinic / "first.csv", "--original", clinic / "people.csv",
        "--knows", "age", "--sensitive", "bmi",
    )  # fmt: skip
    assert same["subtracted means"]["exposed"]["successes"] == 0


def test_the_value_that_follows_is_43_and_needs_exactly_the_people_of_the_release():
    wrong = BMI.set_column(1, "bmi", pa.array([24.0, 35.0, 41.0, 43.01, 44.0, 48.0, 50.0]))
    releases = prepare_releases([FIRST, SECOND], ["age"])
    assert subtract_means(releases, BMI, "bmi", within=1e-9).attack.successes == 1
    assert subtract_means(releases, wrong, "bmi", within=1e-9).attack.successes == 0
    with pytest.raises(ParameterError, match="do not agree"):
        subtract_means(releases, BMI.slice(1), "bmi")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    world.write("hospital", 1500, 7, folder)
    visits = pq.read_table(folder / "visits.parquet").select(["zip", "birth_date", "sex", "diagnosis"])
    pq.write_table(visits, folder / "rows.parquet")
    return folder


def anonymized(town, name, *words):
    out = town / name
    code, text = run("anonymize", town / "rows.parquet", "--sensitive", "diagnosis", "-o", out, *words)
    assert code == 0, text
    return out


def test_two_k_anonymous_releases_are_crossed_and_expose_more_than_either(tmp_path):
    """Four people in each ward and four of each age, no two of them the same; one release by ward, one by age."""
    illness = np.random.default_rng(1).integers(0, 20, 200)
    number = np.arange(200)
    table = pa.table({"ward": [f"w{n % 50}" for n in number], "age": 20 + number // 4, "illness": illness})
    pq.write_table(table, tmp_path / "rows.parquet")
    for kept, hidden in (("ward", "age"), ("age", "ward")):
        done, text = run("anonymize", tmp_path / "rows.parquet", "--qi", kept, "--identifier", hidden, "--sensitive",
                         "illness", "--k", 4, "-o", tmp_path / f"{kept}.parquet")  # fmt: skip
        assert done == 0, text
    words = ("--original", tmp_path / "rows.parquet", "--knows", "ward,age", "--sensitive", "illness")
    _, found = attack(tmp_path / "ward.parquet", "--with", tmp_path / "age.parquet", *words)
    crossed, guessed = found["crossed releases"], found["guessed from releases"]
    # By hand: whose class in one release shares no other illness with the class in the other.
    by_ward, by_age = ([set(illness[keys == key]) for key in keys] for keys in (number % 50, number // 4))
    alone = sum(len(one & other) == 1 for one, other in zip(by_ward, by_age, strict=True))
    assert crossed["exposed"]["successes"] == alone > 100
    assert crossed["precision"]["share"] == 1
    assert crossed["control"]["successes"] == max(sum(len(s) == 1 for s in side) for side in (by_ward, by_age)) < 10
    assert guessed["exposed"]["successes"] > guessed["control"]["successes"]
    words = (*words[:2], "--knows", "ward", *words[4:])
    _, same = attack(tmp_path / "ward.parquet", "--with", tmp_path / "ward.parquet", *words)
    same = same["crossed releases"]
    assert same["exposed"]["successes"] == same["control"]["successes"]


def test_a_k_anonymous_release_is_joined_to_a_masked_one_of_the_same_rows(town):
    rows = pq.read_table(town / "visits.parquet").select(
        ["zip", "birth_date", "sex", "admission", "diagnosis", "phone"]
    )
    pq.write_table(rows.drop_columns(["phone"]), town / "with_dates.parquet")
    hidden = town / "hidden.parquet"
    done, text = run("anonymize", town / "with_dates.parquet", "--qi", "zip,birth_date,sex", "--sensitive", "diagnosis",
                     "--keep", "admission", "--k", 5, "-o", hidden)  # fmt: skip
    assert done == 0, text
    masked = rows.drop_columns(["diagnosis"]).set_column(4, "phone", pa.array(["redacted"] * rows.num_rows))
    pq.write_table(masked, town / "masked.parquet")
    _, found = attack(hidden, "--with", town / "masked.parquet", "--knows", "zip,birth_date,sex", "--attacks", 300)
    joined = found["joined releases"]
    # Without the truth, what a shuffled release joins is taken off: half of the people are left, and no fewer.
    assert joined["figures"]["claimed"] > 0.7 * 300
    assert joined["excess"] > 0.35


def test_a_map_at_two_resolutions_betrays_the_rides_that_the_finer_one_drops(tmp_path):
    rides = world.make("taxi", 200)["rides"].select(["pickup_latitude", "pickup_longitude"])
    pq.write_table(rides, tmp_path / "rides.parquet")
    for name, digits in (("coarse", 1), ("fine", 3)):
        words = ("--grid", "pickup_latitude,pickup_longitude", "--digits", digits, "--k", 5)
        assert run("anonymize", tmp_path / "rides.parquet", *words, "-o", tmp_path / f"{name}.csv")[0] == 0
    coarse, fine = (pa.csv.read_csv(tmp_path / f"{name}.csv") for name in ("coarse", "fine"))
    words = ("--knows", "pickup_latitude,pickup_longitude")
    for first, second in (("coarse", "fine"), ("fine", "coarse")):
        _, found = attack(tmp_path / f"{first}.csv", "--with", tmp_path / f"{second}.csv", *words)
        hidden = found["subtracted maps"]["exposed"]["successes"]
        assert hidden == np.sum(coarse["count"].to_numpy()) - np.sum(fine["count"].to_numpy()) > 0


def test_a_private_twin_beside_a_k_anonymous_release_rules_nothing_out(town):
    """DP plus non-private: the twin teaches what is true of people in general, and crosses nobody out."""
    released = anonymized(town, "five.parquet", "--qi", "zip,birth_date,sex", "--k", 5)
    twin = town / "twin.parquet"
    done, text = run("synthesize", "visits", "-p", town / "policy.yaml", "--epsilon", 1, "--delta", "1e-6",
                     "--columns", "zip,birth_date,sex,diagnosis", "-o", twin)  # fmt: skip
    assert done == 0, text
    _, found = attack(released, "--with", twin, "--original", town / "rows.parquet", "--knows", "zip,birth_date,sex",
                      "--sensitive", "diagnosis", "--attacks", 400)  # fmt: skip
    crossed, guessed = found["crossed releases"], found["guessed from releases"]
    assert crossed["exposed"]["successes"] == crossed["control"]["successes"]  # exactly: only the exact one rules out
    # Noise of the twin cannot make two sources half as good as one: 400 guesses would have to lose 10 deviations.
    assert guessed["exposed"]["successes"] > guessed["control"]["successes"] / 2


def test_releases_with_nothing_in_common_are_refused_with_what_is_needed(clinic):
    pa.csv.write_csv(pa.table({"color": ["red", "blue"]}), clinic / "other.csv")
    with pytest.raises(ParameterError, match="nothing to combine"):
        attack(clinic / "first.csv", "--with", clinic / "other.csv", "--knows", "age")
