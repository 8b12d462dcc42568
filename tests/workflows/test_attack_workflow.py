"""`deniable attack` end to end: a table, releases of our own making, a log, thresholds, the page, resuming."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from counting_service import bound_correct_bits
from deniable import world
from deniable.attacks.aggregates.differencing import isolate_people
from deniable.attacks.outcome import Rate
from deniable.cli.main import app, main
from deniable.curator import Curator
from deniable.curator import attack as curator_attack
from deniable.errors import DataError, ParameterError

KNOWS = "zip,birth_date,sex"
PEOPLE = 1500


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    folder = tmp_path_factory.mktemp("town")
    world.write("hospital", PEOPLE, 7, folder)
    return folder


def attack(*words):
    done = CliRunner().invoke(app, ["attack", *map(str, words), "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)


def exposed(found, name):
    return next(made for made in found["attacks"] if made["attack"] == name)["outcomes"]


def test_the_nameless_visits_are_named_by_the_voter_roll_and_scored_by_the_truth(town):
    code, found = attack(
        town / "visits.parquet", "--policy", town / "policy.yaml", "--knows", KNOWS,
        "--register", town / "voters.parquet", "--truth", town / "truth.parquet",
    )  # fmt: skip
    assert code == 0
    (linked,) = exposed(found, "linkage")
    assert linked["exposed"]["share"] > 0.85
    assert linked["precision"]["share"] > 0.95
    assert linked["control"]["share"] < 0.05
    assert exposed(found, "uniqueness")[0]["exposed"]["share"] > 0.95
    assert {"birth_date"} in [set(one["columns"]) for one in found["identifying_sets"]]
    assert found["blame"][0]["column"] == "birth_date"


def test_what_is_rare_among_synthetic_rows_is_nobodys_weakness(town, tmp_path):
    released = tmp_path / "synthetic.parquet"
    money = ["--epsilon", "1", "--delta", "1e-7", "--ledger", str(tmp_path / "ledger.sqlite")]
    done = CliRunner().invoke(
        app, ["synthesize", "visits", "-p", str(town / "policy.yaml"), *money, "-o", str(released)]
    )
    assert done.exit_code == 0, done.output
    code, found = attack(released, "--knows", KNOWS, "--register", town / "voters.parquet", "--sensitive", "diagnosis")
    assert code == 0
    skipped = {one["attack"]: one["skipped"] for one in found["attacks"]}
    assert "nobody's" in skipped["uniqueness"]
    assert "nobody's" in skipped["inference"]
    assert found["exposed"].keys() == {"linkage"}
    assert "blame" not in found


@pytest.fixture(scope="module")
def halves(town, tmp_path_factory):
    """People of a census: half of them are in the data, half are others of the same kind."""
    folder = tmp_path_factory.mktemp("halves")
    rng = np.random.default_rng(3)
    every = pa.table({
        "age": rng.integers(18, 90, 2000), "zip": rng.integers(0, 60, 2000), "pay": rng.integers(0, 500, 2000) * 100,
        "job": rng.choice(list("abcdefgh"), 2000),
    })  # fmt: skip
    pq.write_table(every.slice(0, 1000), folder / "original.parquet")
    pq.write_table(every.slice(1000), folder / "control.parquet")
    return folder


LIMITS = ("--most", "membership=0.02", "--most", "singling_out=0.02", "--most", "linkability=0.02",
          "--most", "inference=0.02")  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_columns_are_nobody_and_copies_are_people(halves, tmp_path, seed):
    """Rows without any link between columns expose nobody, though each of them is rare; copied rows expose many."""
    rng, original = np.random.default_rng(seed), pq.read_table(halves / "original.parquet")
    shuffled = pa.table({n: original[n].take(pa.array(rng.permutation(1000))) for n in original.column_names})
    copied = pa.concat_tables([shuffled.slice(0, 500), original.slice(0, 500)])
    words = ("--synthetic", "--original", halves / "original.parquet", "--control", halves / "control.parquet",
             "--knows", "age,zip", "--sensitive", "pay", "--seed", seed, *LIMITS)  # fmt: skip
    for rows, code in ((shuffled, 0), (copied, 2)):
        pq.write_table(rows, tmp_path / "made.parquet")
        ended, found = attack(tmp_path / "made.parquet", *words)
        assert ended == code, found["exposed"]
        assert "uniqueness" not in found["exposed"]


def test_generated_rows_without_a_control_are_not_judged(halves):
    _, found = attack(halves / "original.parquet", "--synthetic", "--original", halves / "original.parquet")
    assert not found["exposed"]
    assert all("--control" in made["skipped"] for made in found["attacks"])


@pytest.mark.parametrize("words", [("--synthetic",), ("--all",), ()])
def test_a_limit_of_the_command_that_was_not_measured_is_not_met(halves, tmp_path, words):
    original = halves / "original.parquet"
    asked = ("--original", original, "--knows", "age,zip", "--most", "membership=0.05", "--report",
             tmp_path / "page.html")  # fmt: skip
    code, found = attack(original, *words, *asked)
    assert (code, found["untried"], found["verdicts"]) == (2, ["membership"], [])
    shown = CliRunner().invoke(app, ["attack", str(original), *map(str, (*words, *asked))]).output
    assert "membership is limited but was not measured: needs rows of other people (--control)" in " ".join(
        shown.split()
    )


def test_a_limit_of_the_policy_that_was_not_measured_is_not_met(town, tmp_path):
    """Of its limits for other things than rows (here: tables of counts) nothing is said."""
    policy = tmp_path / "policy.yaml"
    limits = "  attack: {knows: [sex], most: {membership: 0.05, tables: 0.1, uniqueness: 1}}\n"
    policy.write_text((town / "policy.yaml").read_text().replace("release:\n", "release:\n" + limits))
    page = tmp_path / "page.html"
    code, found = attack(town / "visits.parquet", "--policy", policy, "--table", "visits", "--report", page)
    assert (code, found["untried"]) == (2, ["membership"])
    assert "not measured" in page.read_text()


@pytest.mark.parametrize("shared", [1000, 50, 0])
def test_a_control_of_the_same_people_is_refused(halves, tmp_path, shared):
    original, others = (pq.read_table(halves / f"{name}.parquet") for name in ("original", "control"))
    mixed = pa.concat_tables([original.slice(0, shared), others.slice(shared)])
    pq.write_table(mixed, tmp_path / "control.parquet")
    words = ("--synthetic", "--original", halves / "original.parquet", "--control", tmp_path / "control.parquet",
             "--knows", "age,zip", "--most", "membership=0.05")  # fmt: skip
    if not shared:
        assert attack(halves / "original.parquet", *words)[0] == 2
        return
    with pytest.raises(DataError, match="more than chance"):
        attack(halves / "original.parquet", *words)


def test_rows_that_are_alike_by_chance_are_no_shared_people(tmp_path):
    rng = np.random.default_rng(5)
    for name in ("original", "control"):
        drawn = {"sex": rng.integers(0, 2, 800), "ward": rng.integers(0, 150, 800), "ill": rng.integers(0, 4, 800)}
        pq.write_table(pa.table(drawn), tmp_path / f"{name}.parquet")
    code, _ = attack(
        tmp_path / "original.parquet", "--synthetic", "--original", tmp_path / "original.parquet", "--control",
        tmp_path / "control.parquet", "--knows", "sex,ward", "--most", "membership=1",
    )  # fmt: skip
    assert code == 0


GENERATOR = """import csv, random, sys
names, *rows = list(csv.reader(open(sys.argv[1])))
columns = [random.sample(column, len(column)) for column in zip(*rows)]
made = rows if sys.argv[2] == "copy" else list(zip(*columns))
csv.writer(sys.stdout).writerows([names, *made])
"""


def test_membership_in_what_any_program_generates_is_attacked_by_shadow_tables(halves, tmp_path):
    program = tmp_path / "generate.py"
    program.write_text(GENERATOR)
    for way, code in (("copy", 2), ("shuffle", 0)):
        words = ("--generator", f"{sys.executable} {program} {{world}} {way}", "--tables", 6, "--attacks", 300)
        ended, found = attack(halves / "original.parquet", *words, "--most", "membership=0.05")
        assert ended == code, found["exposed"]
        assert exposed(found, "membership")[0]["figures"]["tables"] == 6


def test_a_k_anonymous_release_names_nobody_and_still_tells_by_class(town, tmp_path):
    released = tmp_path / "released.parquet"
    done = CliRunner().invoke(
        app,
        ["anonymize", str(town / "visits.parquet"), "-p", str(town / "policy.yaml"), "--qi", KNOWS, "--sensitive",
         "diagnosis", "-o", str(released)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    code, found = attack(
        released, "--knows", KNOWS, "--register", town / "voters.parquet", "--sensitive", "diagnosis",
        "--original", town / "visits.parquet", "--most", "linkage=0.001", "--most", "uniqueness=0",
    )  # fmt: skip
    assert code == 0
    assert exposed(found, "linkage")[0]["exposed"]["successes"] == 0
    assert found["before"]["linkage"]["exposed"]["share"] > 0.8
    assert not found["failed"]


def test_a_threshold_that_is_passed_stops_a_pipeline_with_exit_code_two(town, tmp_path):
    policy = tmp_path / "policy.yaml"
    text = (town / "policy.yaml").read_text()
    limits = "  attack: {knows: [zip, birth_date, sex], most: {uniqueness: 0.05}}\n"
    policy.write_text(text.replace("release:\n", "release:\n" + limits))
    page = tmp_path / "page.html"
    code, found = attack(town / "visits.parquet", "--policy", policy, "--table", "visits", "--report", page)
    assert code == 2
    assert found["verdicts"] == [
        {"attack": "uniqueness", "exposed": pytest.approx(1, abs=0.05), "most": 0.05, "failed": True}
    ]
    html = page.read_text()
    assert "must not leave" in html
    assert "of 1,000 people are exposed" in html
    assert "http://" not in html.split("<body")[1].split("<script")[0]


def test_a_command_may_tighten_a_policys_limit_but_not_loosen_it(town, tmp_path):
    policy = tmp_path / "policy.yaml"
    limits = "  attack: {knows: [sex], most: {uniqueness: 0.05}}\n"
    policy.write_text((town / "policy.yaml").read_text().replace("release:\n", "release:\n" + limits))
    order = curator_attack.Order(
        str(town / "visits.parquet"),
        policy=policy,
        table="visits",
        limits={"uniqueness": 1},
        knows=("zip", "birth_date"),
    )
    assert curator_attack.attack(order)["failed"]


def test_every_attack_runs_on_a_synthetic_copy_and_the_page_is_whole(town, tmp_path):
    visits = pq.read_table(town / "visits.parquet").select(["zip", "birth_date", "sex", "diagnosis", "charge", "phone"])
    half = visits.num_rows // 2
    tokens = [hashlib.sha256(phone.encode()).hexdigest() for phone in visits["phone"].to_pylist()]
    released = visits.set_column(5, "phone", pa.array(tokens))
    for name, table in (("in", visits.slice(0, half)), ("out", visits.slice(half)), ("copy", released.slice(0, half))):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    page = tmp_path / "exposure.html"
    code, found = attack(
        tmp_path / "copy.parquet", "--original", tmp_path / "in.parquet", "--control", tmp_path / "out.parquet",
        "--knows", KNOWS, "--sensitive", "diagnosis", "--all", "--attacks", 200, "--report", page,
    )  # fmt: skip
    assert code == 0
    ran = {made["attack"] for made in found["attacks"] if made["outcomes"]}
    assert {"uniqueness", "inference", "singling_out", "linkability", "membership", "tokens"} <= ran
    assert exposed(found, "tokens")[0]["exposed"]["share"] == 1
    assert exposed(found, "membership")[0]["excess"] > 0.9
    assert exposed(found, "inference")[1]["excess"] > 0.5
    skipped = {made["attack"]: made["skipped"] for made in found["attacks"] if made["skipped"]}
    assert "--register" in skipped["linkage"]
    assert all(word in page.read_text() for word in ("Weakest records", "What was not tried", "to blame"))


def test_ratings_are_attacked_by_facts(tmp_path):
    pq.write_table(world.make("ratings", 300)["ratings"], tmp_path / "ratings.parquet")
    _, found = attack(tmp_path / "ratings.parquet", "--ratings", "viewer_id,film_id,rating,day", "--attacks", 100)
    shares = [outcome["exposed"]["share"] for outcome in exposed(found, "ratings")]
    assert [shares[:3], shares[3:]] == [sorted(shares[:3]), sorted(shares[3:])]  # with and without more assumptions
    assert shares[-1] > 0.95


STAFF = pa.table({"name": ["Ann", "Freddie", "Bo", "Cy"], "pay": [51.0, 64.5, 70.25, 48.9], "hiv": [1, 1, 0, 1]})
LOG = [
    {"where": {}, "of": "hiv", "aggregate": "count", "answer": 3},
    {"where": {"name": {"not": "Freddie"}}, "of": "hiv", "aggregate": "count", "answer": 2},
    {"where": {}, "of": "pay", "aggregate": "mean", "answer": 58.6625},
    {"where": {"name": ["Ann", "Freddie", "Bo"]}, "of": "pay", "aggregate": "mean", "answer": 185.75 / 3},
]


def test_a_log_gives_freddie_and_whoever_resigned_away(tmp_path):
    pq.write_table(STAFF, tmp_path / "staff.parquet")
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, LOG)))
    _, found = attack(log, "--register", tmp_path / "staff.parquet", "--original", tmp_path / "staff.parquet")
    by_name = {made["attack"]: made["outcomes"] for made in found["attacks"]}
    assert [one["exposed"]["successes"] for one in by_name["differencing"]] == [1, 1]
    assert by_name["auditing"][0]["exposed"]["successes"] == 1  # only Freddie's bit follows from the two counts
    assert "reconstruction" in by_name


def test_published_statistics_are_solved_and_limited_by_the_policy(tmp_path):
    told = {"attributes": {"age": [0, 99]}, "statistics": [{"count": 1, "of": "age", "mean": 41}]}
    (tmp_path / "block.json").write_text(json.dumps(told))
    code, found = attack(tmp_path / "block.json")
    assert (code, found["exposed"]) == (0, {"tables": 1.0})
    (tmp_path / "policy.yaml").write_text(POLICY + "release: {attack: {most: {tables: 0.5}}}\n")
    code, found = attack(tmp_path / "block.json", "--policy", tmp_path / "policy.yaml")
    assert (code, found["failed"], found["limits"]) == (2, True, {"tables": 0.5})
    assert attack(tmp_path / "block.json", "--most", "tables=1")[0] == 0
    with pytest.raises(DataError, match="cannot be read"):
        attack(tmp_path / "nowhere.json")


def test_an_audit_of_a_log_is_limited_by_the_policy(tmp_path):
    pq.write_table(STAFF, tmp_path / "staff.parquet")
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, LOG)))
    (tmp_path / "policy.yaml").write_text(POLICY + "release: {attack: {most: {auditing: 0.1}}}\n")
    code, found = attack(
        tmp_path / "log.jsonl", "--register", tmp_path / "staff.parquet", "--policy", tmp_path / "policy.yaml"
    )
    assert code == 2
    assert [one["attack"] for one in found["verdicts"] if one["failed"]] == ["auditing"]


POLICY = """
version: 1
dataset: staff
tables:
  staff:
    source: staff.parquet
    unit: row
    columns: {name: {role: identifier}, hiv: {role: sensitive, type: integer, between: [0, 1], step: 1}}
budgets: {dataset: {epsilon: 10}}
"""


@pytest.mark.slow
def test_differencing_our_own_answers_wins_no_more_than_epsilon_allows(tmp_path):
    """Freddie's two questions, answered by a curator at 1/2 each, afresh every time: epsilon 1 in total.

    The difference of two noises of scale 2 is not negative with a chance of 0.56, and 67 of 80 wins would ring: less
    than once in a million.
    """
    pq.write_table(STAFF.select(["name", "hiv"]), tmp_path / "staff.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    asked = "SELECT SUM(hiv) AS n FROM staff", "SELECT SUM(hiv) AS n FROM staff WHERE name <> 'Freddie'"
    won = 0
    for _ in range(80):
        with Curator.open(tmp_path / "policy.yaml", ledger=None) as curator:
            x, y = (curator.query(sql, epsilon="0.5").to_pylist()[0]["n"] for sql in asked)
        won += x - y > 0.5
    assert Rate(won, 80).interval.low <= bound_correct_bits(1.0, 0.5)
    groups = np.array([[True] * 4, [True, False, True, True]])
    exact = isolate_people(groups, np.array([3.0, 2.0]))
    assert exact.value[1] == pytest.approx(1)


def test_a_killed_run_goes_on_from_its_state(town, tmp_path):
    state = tmp_path / "state.json"
    order = curator_attack.Order(str(town / "visits.parquet"), knows=("zip", "birth_date", "sex"), state=state)
    first = curator_attack.attack(order)
    kept = json.loads(state.read_text())
    kept["attempts"]["uniqueness"]["exposed"] = 0.123
    state.write_text(json.dumps(kept))
    assert curator_attack.attack(order)["exposed"]["uniqueness"] == 0.123
    changed = curator_attack.Order(str(town / "visits.parquet"), knows=("zip", "sex"), state=state)
    assert curator_attack.attack(changed)["exposed"]["uniqueness"] != 0.123
    other = pq.read_table(town / "visits.parquet")
    pq.write_table(other.take(pa.array(range(other.num_rows - 1, -1, -1))), tmp_path / "visits.parquet")
    assert curator_attack._key(order, curator_attack._evidence(order, None)) == kept["key"]
    turned = curator_attack.Order(str(tmp_path / "visits.parquet"), knows=order.knows)
    rows = [curator_attack._fingerprint(curator_attack._evidence(one, None).release) for one in (order, turned)]
    assert rows[0] != rows[1]
    state.write_text("{ not json")
    assert curator_attack.attack(order)["exposed"] == first["exposed"]


def test_what_a_newcomer_mistypes_is_answered_with_help(town, tmp_path):
    visits = str(town / "visits.parquet")
    with pytest.raises(DataError, match="Did you mean 'zip'"):
        curator_attack.attack(curator_attack.Order(visits, knows=("zipp",)))
    with pytest.raises(ParameterError, match="Did you mean 'linkage'"):
        curator_attack.attack(curator_attack.Order(visits, knows=("zip",), limits={"linkag": 0}))
    with pytest.raises(ParameterError, match="--register"):
        curator_attack.attack(curator_attack.Order(str(tmp_path / "log.jsonl")))
    with pytest.raises(ParameterError, match="person,item,rating,day"):
        curator_attack.attack(curator_attack.Order(visits, ratings=("a", "b")))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"where": {}}\n')
    with pytest.raises(DataError, match="Line 1"):
        curator_attack.attack(curator_attack.Order(str(broken), register=visits))
    done = CliRunner().invoke(app, ["attack", visits, "--most", "linkage"])
    assert isinstance(done.exception, ParameterError)
    assert main.__module__ == "deniable.cli.main"


def test_nothing_heavy_is_loaded_for_help():
    code = (
        "import sys; from deniable.cli.main import app; print(sorted({'numpy','pyarrow','numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert Path(curator_attack.__file__).exists()


def test_columns_that_were_left_as_they_are_are_named_in_one_sentence(town, tmp_path):
    """A k-anonymous release that still carries the free text and the charge to the cent."""
    released, page = tmp_path / "released.parquet", tmp_path / "page.html"
    rows = pq.read_table(town / "visits.parquet").select(["zip", "birth_date", "sex", "diagnosis", "charge", "note"])
    pq.write_table(rows, tmp_path / "rows.parquet")
    words = ["--qi", KNOWS, "--sensitive", "diagnosis", "--keep", "charge,note", "--k", "5", "-o", str(released)]
    assert CliRunner().invoke(app, ["anonymize", str(tmp_path / "rows.parquet"), *words]).exit_code == 0
    given = (released, "--knows", KNOWS, "--sensitive", "diagnosis", "--original", tmp_path / "rows.parquet")
    _, found = attack(*given, "--report", page)
    assert {one["column"] for one in found["untouched"]} == {"charge", "note"}
    assert all(f"{name} (" in found["because"] for name in ("charge", "note"))
    assert "Leave them out" in page.read_text()
    pq.write_table(pq.read_table(released).drop_columns(["charge", "note"]), released)
    _, found = attack(*given)
    assert (found["untouched"], found["because"]) == ([], "")


def test_a_column_that_somebody_adds_is_noticed_by_who_is_taken_to_know_all_of_them(town, tmp_path):
    visits = pq.read_table(town / "visits.parquet")
    few = pa.table({"sex": visits["sex"], "diagnosis": visits["diagnosis"]})
    pq.write_table(few, tmp_path / "few.parquet")
    pq.write_table(few.append_column("phone", pa.array(range(few.num_rows))), tmp_path / "more.parquet")
    limits = ("--sensitive", "diagnosis", "--fail-above", "0.5")
    assert attack(tmp_path / "few.parquet", "--knows", "all", *limits)[0] == 0
    assert attack(tmp_path / "more.parquet", "--knows", "sex", *limits)[0] == 0, "nobody is taken to know it"
    code, found = attack(tmp_path / "more.parquet", "--knows", "all", *limits)
    assert (code, found["knows"]) == (2, ["sex", "phone"])
    pq.write_table(few.rename_columns(["all", "diagnosis"]), tmp_path / "named.parquet")
    assert attack(tmp_path / "named.parquet", "--knows", "all", *limits)[1]["knows"] == ["all"]
