"""`deniable audit`: sound mechanisms stand, broken twins are refuted with exit code 2, the game is drawn on a page.

Noise comes from the operating system. At confidence 1 - 1e-9 a sound mechanism is refuted once in a billion runs.
"""

import itertools
import json
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from deniable.assess.mechanism_audit import MECHANISMS
from deniable.cli.main import app
from deniable.dp.samplers import discrete_laplace
from deniable.errors import DataError, ParameterError
from deniable.learn import logistic

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


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("name", "claim", "spends"),
    [("training", 1, 60), ("training:boosted", 1, 60), ("training:multinomial", 1, 60), ("synthesis", "0.05", 20)],
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


def test_a_newton_step_with_noise_for_a_hundredth_of_a_person_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """All else of the training is honest: it is the release of the last step that tells."""
    honest = logistic.bound_class_step
    monkeypatch.setattr(logistic, "bound_class_step", lambda *given: honest(*given) // 100**2)
    code, found = audit("training:multinomial", "--epsilon", 1, "--delta", "1e-6", confidence="0.999")
    assert code == 2
    assert found["audit"]["correct"] >= 38, "what one person adds is more than ten deviations: all 40 calls are right"


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
    code, found = audit("laplace", "--mu", "0.2", "--spends", 1, "--runs", 4000, "--report", page)
    assert code == 2
    assert found["claimed"] == "mu 0.2"
    assert found["game"]["most"] == pytest.approx(0.539828)  # Phi(0.1)
    # Phi(Phi^-1(a) + 0.2), which at a = 1/2 is Phi(0.2); the bound of epsilon 1 would be 0.82 there.
    assert all(point["bound"] <= point["false_alarms"] + 0.08 for point in found["game"]["points"])
    assert "The claim of mu 0.2 is refuted: mu is at least" in page.read_text()
    assert audit("laplace", "--mu", 1, "--spends", 1, "--runs", 1000)[1]["blind"][0].startswith("a true mu below 1.")
    assert "more runs are needed" in audit("laplace", "--mu", 39, "--spends", 1, "--runs", 400)[1]["blind"][0]
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
        (("laplace", "--tries", 5), "--tries"),
        (("laplace", "--canaries", 100), "--canaries"),
        (("outputs", "--world", "a.csv", "--world", "b.csv", "--runs", 500), "--runs"),
        (("audited:show_canaries", "--canaries", 500, "--runs", 900), "--runs"),
        (("training", "--delta", "1e-5", "--runs", 900), "--runs"),
        (("training", "--delta", "1e-5", "--mu", 1), "--mu"),
        (("SELECT COUNT(*) FROM visits", "--tries", 3), "--tries"),
    ],
)
def test_what_would_change_nothing_is_refused(words, option, functions):
    with pytest.raises(ParameterError, match=f"^{option} has no meaning in an audit of"):
        audit(*words)


@pytest.mark.parametrize("words", [("--epsilon", "1e400"), ("--spends", "1e400"), ("--mu", "1e400", "--spends", 1)])
def test_a_claim_beyond_all_floats_is_refused(words):
    with pytest.raises(ParameterError, match="too large for an audit"):
        audit("laplace", *words)


def test_pairs_are_named_in_one_way(functions):
    with pytest.raises(ParameterError, match="--world or --neighbors, not both"):
        audit("audited:noisy_sum", "--world", "[1]", "--world", "[]", "--neighbors", "audited:lose_one")
    with pytest.raises(ParameterError, match="--tries has no meaning where the pairs are given"):
        audit("audited:noisy_sum", "--world", "[1]", "--world", "[]", "--tries", 5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("laplace", "--mu", 1, "--spends", 1, "--epsilon", 1), "--epsilon has no meaning beside --mu"),
        (("laplace", "--mu", 1), "for which epsilon the noise is made"),
        (("gaussian", "--mu", "0.5", "--delta", "0.1"), "for which epsilon the noise is made"),
        (("audited:noisy_length", "--world", "[1]", "--world", "[]", "--mu", 1, "--delta", "0.1"), "beside --mu"),
    ],
)
def test_a_claim_is_an_epsilon_with_a_delta_or_a_mu(words, told, functions):
    with pytest.raises(ParameterError, match=told):
        audit(*words)


def test_noise_for_an_epsilon_and_a_delta_is_judged_by_a_mu():
    """At epsilon 1 and delta 0.1 mu is 0.9; so many runs bound it by 0.7 from below, far from 0.5 even when so sure."""
    words = ("gaussian", "--spends", 1, "--delta", "0.1", "--runs", 30_000)
    assert audit(*words, "--mu", "0.5")[0] == 2
    assert audit(*words, "--mu", 2)[0] == 0


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


def test_a_number_of_runs_that_has_a_default_is_said_all_the_same(functions):
    code, found = audit("audited:noisy_length_five_times", "--world", "[1,2]", "--world", "[1]", "--runs", 2000)
    assert code == 0
    assert found["game"]["wins"]["share"] < 0.76  # one output of the five would win 73%, all five more
    assert " entr" not in found["audit"]["feature"]


def test_a_function_that_remembers_its_answer_is_told_to_give_the_same_output_in_every_run(functions):
    code, found = audit("audited:remember_length", "--world", "[1,2]", "--world", "[1]", "--runs", 400)
    assert code == 2
    assert "every run of a world gave the same output" in found["audit"]["sentence"]


@pytest.mark.slow
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
    with pytest.raises(ParameterError, match=r"raised ZeroDivisionError in every run\. No world was named"):
        audit("audited:always_fail", "--runs", 400)


@pytest.mark.parametrize("name", ["fail_in_one_world", "fail_many_in_one_world", "tell_by_failing", "count_wrongly"])
def test_a_function_that_always_fails_in_one_world_is_refuted(name, functions):
    code, found = audit(f"audited:{name}", "--world", "0", "--world", "1", "--runs", 400, confidence="0.999")
    assert code == 2, found["audit"]["sentence"]


@pytest.mark.parametrize(
    "name",
    [
        *("cut_the_world", "cut_the_world_many", "fill_the_same_list", "fill_the_same_array"),
        *("exit_in_one_world", "exit_by_world"),
        *("raise_other_types", "raise_other_words", "raise_other_words_many"),
    ],
)
def test_every_run_has_a_world_and_an_output_of_its_own_and_failures_that_differ_are_leaks(name, functions):
    words = (f"audited:{name}", "--world", "[1,2,3]", "--world", "[1,2]", "--runs", 400)
    code, found = audit(*words, confidence="0.999")
    assert code == 2, found["audit"]["sentence"]


def test_failures_that_do_not_tell_the_worlds_apart_are_refused(functions):
    with pytest.raises(ParameterError, match="Every run failed, in more than one way"):
        audit("audited:raise_by_chance", "--world", "[1,2,3]", "--world", "[1,2]", "--runs", 400)


def test_a_world_that_cannot_be_copied_is_refused(functions):
    from deniable.curator.audit import AuditOrder
    from deniable.curator.audit import audit as audited

    with pytest.raises(ParameterError, match="cannot be copied"):
        audited(AuditOrder("f", worlds=(threading.Lock(), threading.Lock()), runs=400, function=lambda _: 1))


def test_a_module_that_ends_when_it_is_imported_is_told(functions, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text, told in (("ending", "import sys; sys.exit(0)", "SystemExit"), ("broken", "1/0", "ZeroDivision")):
        (tmp_path / f"{name}_module.py").write_text(text)
        with pytest.raises(ParameterError, match=f"raised {told}"):
            audit(f"{name}_module:f", "--runs", 400)


def test_who_was_in_is_not_changed_by_the_function_that_scores(functions):
    assert audit("audited:forget_canaries", "--canaries", 2000, "--epsilon", 1)[0] == 2


@pytest.mark.parametrize("name", ["fail_now_and_then", "give_other_types"])
def test_a_batch_that_fails_is_one_observation(name, functions):
    """Whether a batch fails, or which type its array has, is chance alone: single runs fail alike in both worlds."""
    assert audit(f"audited:{name}", "--world", "0", "--world", "1", "--runs", 400, confidence="0.999")[0] == 0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("give_nothing", ("--world", 0, "--world", 0, "--runs", 400)),
        ("give_empty_array", ("--world", 0, "--world", 0, "--runs", 400)),
    ],
)
def test_outputs_without_numbers_stand(name, words, functions):
    assert audit(f"audited:{name}", *words)[0] == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("audited:score_in_words", "--canaries", 200), "are not numbers"),
        (("audited:fail_to_score", "--canaries", 200), "raised ValueError"),
        (("audited:exit_scoring", "--canaries", 200), "raised SystemExit"),
        (("audited:needs_a_list", "--runs", 400), "No world was named"),
        (("audited:noisy_length", "--neighbors", "audited:always_fail", "--runs", 400), "raised ZeroDivisionError"),
        (("audited:noisy_length", "--neighbors", "audited:no_pair", "--runs", 400), "no pair of worlds"),
        (("audited:always_fail", "--timed", "--runs", 400), "No world was named"),
    ],
)
def test_mistakes_of_a_function_are_told_as_such(words, told, functions):
    with pytest.raises(ParameterError, match=told):
        audit(*words)


def test_an_audit_that_was_not_made_has_an_exit_code_of_its_own(functions):
    program = Path(sys.executable).parent / "deniable"
    for words in (["laplace", "--tries", "5"], ["laplace", "--runs", "5"], ["laplace", "--nonsense"], ["laplac"]):
        done = subprocess.run([program, "audit", *words], capture_output=True, text=True)
        assert done.returncode == 1, done.stderr


def test_what_a_program_prints_need_not_be_utf_8(tmp_path):
    latin = "printf 'caf\\351 {world}'"
    assert audit(latin, "--world", "1", "--world", "1", "--runs", 400)[0] == 0


FAILING = """bad=$1; runs=$2; line=1
[ $bad$kind = 0spaces ] && line="a b"
[ $bad$kind = 1spaces ] && line="a  b"
[ $bad$kind = 0digits ] && line=0.1
[ $bad$kind = 1digits ] && line=0.10
[ $bad$kind = 1type ] && line=true
[ $bad$kind = 1lines ] && runs=$((runs + 1))
while [ $runs -gt 0 ]; do echo "$line"; runs=$((runs - 1)); done
[ $bad$kind != 1code ]
"""


@pytest.mark.parametrize("kind", ["code", "lines", "spaces", "type", "digits"])
def test_a_program_tells_by_failing_and_by_how_it_prints(kind, tmp_path, monkeypatch):
    """At 100 runs each the claim of epsilon 0.1 is refuted by an event that always tells."""
    monkeypatch.setattr("deniable.curator.audit.MANY_RUNS", 100)
    program = tmp_path / "program.sh"
    program.write_text(f"kind={kind}\n{FAILING}")
    words = (f"sh {program} {{world}} {{runs}}", "--world", "0", "--world", "1", "--epsilon", "0.1")
    assert audit(*words, confidence="0.999")[0] == 2


@pytest.mark.parametrize("runs", ["", " {runs}"], ids=["one by one", "at once"])
@pytest.mark.parametrize(("code", "refuted"), [("$(($1 + 3))", True), ("3", False)], ids=["differ", "alike"])
def test_exit_codes_that_differ_between_the_worlds_are_a_leak(code, refuted, runs, tmp_path, monkeypatch):
    monkeypatch.setattr("deniable.curator.audit.MANY_RUNS", 100)
    program = tmp_path / "program.sh"
    program.write_text(f"exit {code}\n")
    words = (f"sh {program} {{world}}{runs}", "--world", "0", "--world", "1", "--epsilon", "0.1")
    if refuted:
        assert audit(*words, confidence="0.999")[0] == 2
    else:
        with pytest.raises(DataError, match="ended with exit code 3"):
            audit(*words, confidence="0.999")


@pytest.mark.parametrize(
    ("suffix", "one", "other"),
    [
        (".txt", "true", "1"),
        (".txt", "x y", "x  y"),
        (".jsonl", "true", "1"),
        (".jsonl", "null", '"nan"'),
        (".jsonl", '{"a": {"b": 1}}', '{"a.b": 1}'),
        (".jsonl", '{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        (".csv", "1", "1.0"),
    ],
)
def test_files_of_outputs_that_are_written_otherwise_are_told_apart(suffix, one, other, tmp_path):
    files = [tmp_path / f"{place}{suffix}" for place in range(2)]
    for file, text in zip(files, (one, other), strict=True):
        file.write_text(("answer\n" if suffix == ".csv" else "") + f"{text}\n" * 400)
    words = ("outputs", "--world", files[0], "--world")
    assert audit(*words, files[1])[0] == 2
    assert audit(*words, files[0])[0] == 0


def test_what_a_file_is_as_a_whole_accuses_nobody(tmp_path):
    """One row of 400 decides which type a reader gives a column, and the order of columns is no output."""
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("a,b\n" + "1,x\n" * 400)
    second.write_text("b,a\n" + "x,1\n" * 399 + "x,0.5\n")
    assert audit("outputs", "--world", first, "--world", second)[0] == 0


PROGRAM = """import sys, random
people = open(sys.argv[1]).read().split()
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 1):
    print(len(people) + random.choice([-1, 0, 1]), "many" if len(people) > 2 else "few")
"""


@pytest.mark.slow
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
    with pytest.raises(DataError, match="1 outputs for 4 runs"):
        audit("echo {world} {runs}", "--world", "a", "--world", "b", "--runs", 400)
    with pytest.raises(ParameterError, match="one output for each run"):
        audit("audited:one_number", "--runs", 400)


@pytest.mark.parametrize(("noisy", "failed"), [(True, False), (False, True)])
def test_times_and_numbers_of_runs_refute_no_sound_mechanism_and_hide_no_leak(noisy, failed):
    """All runs of one world were made before those of the other, so that a clock told them apart."""
    from deniable.curator.audit import AuditOrder
    from deniable.curator.audit import audit as audited

    numbers = itertools.count()

    def stamp(world):
        return [next(numbers), time.time(), world + (int(discrete_laplace(Fraction(1), 1)[0]) if noisy else 0)]

    order = AuditOrder("f", worlds=(0, 1), runs=1_000, function=stamp, confidence=float(SURE))
    assert audited(order).failed is failed


@pytest.mark.parametrize(("seed", "failed"), [(None, False), (7, True)], ids=["drawn anew", "the same in every call"])
def test_runs_of_one_call_that_share_their_noise_accuse_nobody_and_a_seed_is_found(seed, failed):
    """In one batch of each world all runs had one noise, which told the worlds apart; a seed seemed to be new noise."""
    from deniable.curator.audit import AuditOrder
    from deniable.curator.audit import audit as audited

    def share(world, runs):
        drawn = np.random.default_rng(seed).geometric(-np.expm1(-1), 2)
        return np.full(runs, world + drawn[0] - drawn[1])

    assert audited(AuditOrder("f", worlds=(0, 1), runs=1_000, function=share, confidence=float(SURE))).failed is failed
