"""`deniable audit`: sound mechanisms stand, broken twins are refuted with exit code 2, the game is drawn on a page.

Noise comes from the operating system. At confidence 1 - 1e-9 a sound mechanism is refuted once in a billion runs.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.assess.mechanism_audit import MECHANISMS
from deniable.cli.main import app
from deniable.errors import DataError, ParameterError

SURE = "0.999999999"


def audit(*words, confidence=SURE):
    done = CliRunner().invoke(app, ["audit", *map(str, words), "--confidence", confidence, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize(("name", "more"), [("laplace", ()), ("gaussian", ("--delta", "0.001")), ("response", ())])
def test_a_sound_mechanism_stands_and_its_twin_with_a_sixth_of_the_noise_is_refuted(name, more):
    code, found = audit(name, "--epsilon", 1, *more)
    assert code == 0
    assert found["audit"]["epsilon_bound"] <= 1
    # At epsilon 6 for a claim of 1 the bound is 2.7 and more, and the games won 79% and more of 20,000, where 73.1% are
    # allowed: over ten standard deviations.
    code, found = audit(name, "--epsilon", 1, "--spends", 6, *more)
    assert code == 2
    assert found["audit"]["epsilon_bound"] > 1
    assert found["game"]["wins"]["share"] > found["game"]["most"]


@pytest.mark.parametrize(
    ("name", "claim", "spends"), [("training", 1, 60), ("training:boosted", 1, 60), ("synthesis", "0.05", 20)]
)
def test_what_is_too_slow_for_many_runs_is_audited_by_one(name, claim, spends, tmp_path):
    words = (name, "--epsilon", claim, "--delta", "1e-6")
    code, found = audit(*words)
    assert code == 0
    assert found["runs"] == 1
    # Training: noise of a third of what one person adds, and 38 of 40 calls are enough. Synthesis: what one person adds
    # is half a deviation, 76% of 400 calls are right on average, and 60% are enough.
    twin = ("--spends", spends, "--report", tmp_path / "audit.html")
    code, found = audit(*words, *twin, confidence="0.999")
    assert code == 2
    assert found["audit"]["epsilon_bound"] > found["epsilon"]
    assert "calls about" in (tmp_path / "audit.html").read_text()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if each == "local:optimized-local-hashing" else pytest.mark.slow)
        for each in MECHANISMS
        if each.startswith("local:")
    ],
)
def test_a_randomizer_that_tells_five_times_as_much_is_refuted(name):
    """A seed that never comes twice hides nothing: what a response says of each answer is looked at."""
    assert audit(name, "--runs", 3000)[0] == 0
    assert audit(name, "--runs", 3000, "--spends", 5, confidence="0.999")[0] == 2


def test_a_choice_stands():
    assert audit("exponential", "--runs", 1000)[0] == 0


def test_the_page_draws_the_game_beside_the_bound_and_tells_the_verdict(tmp_path):
    page = tmp_path / "audit.html"
    audit("laplace", "--report", page)
    html = page.read_text()
    assert all(word in html for word in ("best attacker", "bound of the claim", "The claim of epsilon 1 stands"))
    audit("laplace", "--spends", 5, "--report", page)
    assert "is refuted" in page.read_text()
    assert "http://" not in html.split("<body")[1].split("<script")[0]


def test_a_claim_of_mu_is_judged_as_such_and_its_page_says_so(tmp_path):
    page = tmp_path / "audit.html"
    code, found = audit("laplace", "--mu", "0.2", "--runs", 4000, "--report", page)
    assert code == 2
    assert found["claimed"] == "mu 0.2"
    assert found["game"]["most"] == pytest.approx(0.539828)  # Phi(0.1)
    # Phi(Phi^-1(a) + 0.2), which at a = 1/2 is Phi(0.2); the bound of epsilon 1 would be 0.82 there.
    assert all(point["bound"] <= point["false_alarms"] + 0.08 for point in found["game"]["points"])
    assert "The claim of mu 0.2 is refuted: mu is at least" in page.read_text()
    assert audit("laplace", "--mu", 1, "--runs", 1000)[1]["blind"][0].startswith("a true mu below 1.")
    assert "more runs are needed" in audit("laplace", "--mu", 39, "--runs", 400)[1]["blind"][0]
    assert "more runs are needed" in audit("laplace", "--epsilon", 30, "--runs", 400)[1]["blind"][0]


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("audited:show_canaries", "--canaries", 100, "--mu", 1), "--mu"),
        (("audited:show_canaries", "--canaries", 100, "--world", 1), "--world"),
        (("audited:noisy_length", "--world", "[1]", "--world", "[]", "--spends", 2), "--spends"),
        (("audited:noisy_length", "--world", "[1]", "--world", "[]", "--policy", "policy.yaml"), "--policy"),
        (("laplace", "--world", 0, "--world", 1), "--world"),
        (("laplace", "--timed"), "--timed"),
        (("SELECT COUNT(*) FROM visits", "--neighbors", "audited:lose_one"), "--neighbors"),
        (("outputs", "--world", "a.csv", "--world", "b.csv", "--timed"), "--timed"),
        (("echo {world}", "--world", "a", "--world", "b", "--timed"), "--timed"),
    ],
)
def test_what_would_change_nothing_is_refused(words, option, functions):
    with pytest.raises(ParameterError, match=f"^{option} has no meaning in an audit of"):
        audit(*words)


def test_pairs_are_named_in_one_way(functions):
    with pytest.raises(ParameterError, match="--world or --neighbors, not both"):
        audit("audited:noisy_sum", "--world", "[1]", "--world", "[]", "--neighbors", "audited:lose_one")
    with pytest.raises(ParameterError, match="not a mu"):
        audit("training", "--delta", "1e-5", "--mu", 1)


def test_what_a_newcomer_mistypes_is_answered_with_help():
    with pytest.raises(ParameterError, match="Did you mean 'laplace'"):
        audit("laplac")
    with pytest.raises(ParameterError, match="without a delta"):
        audit("gaussian")
    with pytest.raises(ParameterError, match="without a delta"):
        audit("training")


@pytest.fixture
def functions(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_a_function_of_a_world_is_audited_and_its_worst_neighbors_are_found(functions):
    assert audit("audited:noisy_length", "--world", "[1,2]", "--world", "[1]", "--runs", 2000)[0] == 0
    code, found = audit("audited:noisy_sum", "--neighbors", "audited:lose_one", "--tries", 5, "--runs", 1000)
    assert code == 2
    assert "the worst of 5 pairs: that of number 3" in found["neighbors"]
    assert "30" not in found["neighbors"]


def test_neighbors_of_one_world_leave_out_each_of_its_rows(functions, tmp_path):
    """A sum whose noise is for values up to 10: the row of 30 is found, and its value is not shown."""
    words = ("audited:noisy_sum", "--world", "[1, 2, 30, 4]", "--runs", 1000)
    code, found = audit(*words)
    assert code == 2
    assert "the worst of 4 pairs: that without row 3" in found["neighbors"]
    assert "30" not in found["neighbors"]
    assert len(audit(*words, "--tries", 2)[1]["neighbors"].split("of 2 pairs")) == 2
    program, world = tmp_path / "sum.py", tmp_path / "rows.csv"
    program.write_text(SUMS)
    world.write_text("pay\n1\n30\n2\n")
    words = (f"{sys.executable} {program} {{world}} {{runs}}", "--world", world, "--runs", 1000)
    code, found = audit(*words)
    assert code == 2
    assert "the worst of 3 pairs: that without row 2" in found["neighbors"]
    with pytest.raises(ParameterError, match="each line is a row"):
        audit(words[0], "--world", tmp_path / "rows.parquet")
    with pytest.raises(ParameterError, match="no neighbors that could be made"):
        audit("audited:noisy_length", "--world", "7")


SUMS = """import random, sys
total = sum(map(float, open(sys.argv[1]).read().split()[1:]))
for _ in range(int(sys.argv[2])):
    print(total + random.expovariate(1) - random.expovariate(1))
"""


def test_time_is_an_output_where_it_is_asked_for(functions):
    words = ("audited:slow_length", "--world", "[]", "--world", "[1,1,1]", "--runs", 400)
    assert audit(*words)[0] == 0
    assert audit(*words, "--timed", confidence="0.999")[0] == 2


def test_a_function_that_scores_canaries_is_audited_in_one_run(functions):
    code, found = audit("audited:score_canaries", "--canaries", 2000, "--epsilon", 1)
    assert code == 2
    assert found["runs"] == 1
    assert found["audit"]["canaries"] == 2000


def test_so_many_calls_are_made_that_the_claim_could_be_refuted(functions):
    """A tenth of 1,000 canaries, all called right, proves 1.8: a claim of 2 would stand whatever was printed."""
    words = ("audited:show_canaries", "--delta", "1e-5", "--epsilon", 2)
    code, found = audit(*words, "--canaries", 1000, confidence="0.999")
    assert code == 2
    assert found["audit"]["guesses"] > 100
    assert any("a true epsilon above" in each for each in found["blind"])
    code, found = audit(*words, "--canaries", 20)
    assert code == 0
    assert "even if every call had been right" in found["blind"][0]


def test_a_function_that_fails_for_some_people_is_refuted_and_one_that_always_fails_is_refused(functions):
    assert audit("audited:fail_for_one", "--world", "0", "--world", "1", "--runs", 2000)[0] == 2
    with pytest.raises(ParameterError, match="raised ZeroDivisionError in every run"):
        audit("audited:always_fail", "--runs", 400)


def test_what_a_program_prints_need_not_be_utf_8(tmp_path):
    latin = f"{sys.executable} -c \"import sys; sys.stdout.buffer.write(b'caf\\xe9 ' + b'{{world}}')\""
    assert audit(latin, "--world", "1", "--world", "1", "--runs", 400)[0] == 0


PROGRAM = """import sys, random
people = open(sys.argv[1]).read().split()
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
    print(len(people) + random.choice([-1, 0, 1]), "many" if len(people) > 2 else "few")
"""


def test_another_program_is_audited_by_what_it_prints_and_so_are_files_of_its_outputs(tmp_path):
    program, left, right = tmp_path / "program.py", tmp_path / "left.csv", tmp_path / "right.csv"
    program.write_text(PROGRAM)
    left.write_text("a b")
    right.write_text("a b c")
    worlds = ("--world", left, "--world", right)
    code, found = audit(f"{sys.executable} {program} {{world}} {{runs}}", *worlds, "--runs", 1000)
    assert code == 2
    assert found["audit"]["tested"] == 500
    assert audit(f"{sys.executable} {program} {{world}} {{runs}}", "--world", left, "--world", left)[0] == 0
    files = []
    for world in (left, right):
        out = world.with_suffix(".txt")
        out.write_text(subprocess.run([sys.executable, program, world, "300"], capture_output=True, text=True).stdout)
        files += ["--world", out]
    assert audit("outputs", *files)[0] == 2
    table = tmp_path / "outputs.csv"
    table.write_text("answer,kind\n" + "".join(f"{n % 7},x\n" for n in range(400)))
    assert audit("outputs", "--world", table, "--world", table)[0] == 0


POLICY = """version: 1
dataset: clinic
tables:
  visits:
    source: nowhere.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {type: integer}
      sex: {type: text, categories: [F, M]}
"""


def test_a_question_is_audited_under_a_policy_without_its_data(tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    code, found = audit("SELECT COUNT(*) FROM visits", "--policy", policy, "--runs", 400)
    assert code == 0
    assert "made-up rows" in found["neighbors"]


def test_what_cannot_be_audited_says_why(functions, tmp_path):
    with pytest.raises(ParameterError, match="under a policy"):
        audit("SELECT COUNT(*) FROM visits")
    with pytest.raises(ParameterError, match="no function 'nothing'"):
        audit("audited:nothing")
    with pytest.raises(ParameterError, match="not a function"):
        audit("audited:NOT_A_FUNCTION")
    for words in (("outputs",), ("program {world}", "--world", "one")):
        with pytest.raises(ParameterError, match="two worlds"):
            audit(*words)
    with pytest.raises(DataError, match="exit code"):
        audit(f"{sys.executable} missing.py {{world}}", "--world", "a", "--world", "b")
    with pytest.raises(DataError, match="did not run"):
        audit("no-such-program {world}", "--world", "a", "--world", "b")
    with pytest.raises(DataError, match="cannot be read"):
        audit("outputs", "--world", tmp_path / "a.txt", "--world", tmp_path / "b.txt")
    with pytest.raises(DataError, match="1 outputs for 400 runs"):
        audit("echo {world} {runs}", "--world", "a", "--world", "b", "--runs", 400)
    with pytest.raises(ParameterError, match="one output for each run"):
        audit("audited:one_number", "--runs", 400)
