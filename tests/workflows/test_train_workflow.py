"""Training and predicting from the command line: a sealed model, a table with predictions, refusals that help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forked_commands import run_command


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    assert run_command("world", "make", "hospital", "--people", "1500", "-o", ".", cwd=folder).returncode == 0
    return folder


def test_a_model_is_trained_sealed_charged_and_predicts(town: Path) -> None:
    words = ("--target", "charge", "--features", "birth_date,diagnosis", "--epsilon", "1", "--delta", "1e-7")
    done = run_command("train", "visits", *words, "--evaluate", "-o", "model.json", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["method"] == "linear"
    assert told["features"] == ["birth_date", "diagnosis"]
    assert told["evaluation"]["rows"] > 0
    assert run_command("release", "verify", "model.json", cwd=town).returncode == 0
    statement = json.loads((town / "model.json.release.json").read_text())["statement"]
    assert statement["provenance"]["parameters"]["held_out"] == 0.2
    ledger = json.loads(run_command("ledger", "show", "--last", "1000", "--json", cwd=town).stdout)
    assert any("differentially private model" in json.dumps(entry) for entry in ledger["entries"])
    made = run_command("predict", "model.json", "visits.parquet", "-o", "predicted.parquet", "--json", cwd=town)
    assert made.returncode == 0, made.stderr
    rows = pq.read_table(town / "predicted.parquet")
    assert rows.num_rows == json.loads(made.stdout)["rows"] == pq.read_table(town / "visits.parquet").num_rows
    assert all(0 <= value <= 250_000 for value in rows["predicted_charge"].to_pylist())
    again = run_command("predict", "model.json", "predicted.parquet", "-o", "twice.parquet", cwd=town)
    assert again.returncode != 0
    assert "a column 'predicted_charge' already" in again.stderr
    assert not (town / "twice.parquet").exists()


def test_one_diagnosis_against_the_others_is_told_in_words(town: Path) -> None:
    words = ("--target", "diagnosis", "--positive", "I10", "--features", "birth_date,sex", "--epsilon", "1")
    done = run_command("train", "visits", *words, "--delta", "1e-7", "--evaluate", "-o", "i10.json", cwd=town)
    assert done.returncode == 0, done.stderr
    assert "logistic model of diagnosis = I10" in done.stdout
    assert "for the steward" in done.stdout
    (town / "few.csv").write_text("birth_date,sex\n1950-05-05,F\n,\n")
    assert run_command("predict", "i10.json", "few.csv", "-o", "few-out.csv", cwd=town).returncode == 0
    chances = [float(line.split(",")[-1]) for line in (town / "few-out.csv").read_text().splitlines()[1:]]
    assert len(chances) == 2
    assert all(0 <= chance <= 1 for chance in chances)


def test_groups_are_found_told_and_predicted(town: Path) -> None:
    words = (
        "--method",
        "kmeans",
        "--count",
        "2",
        "--features",
        "birth_date,sex",
        "--epsilon",
        "0.5",
        "--delta",
        "1e-7",
    )
    done = run_command("train", "visits", *words, "--report", "groups.html", "-o", "groups.json", cwd=town)
    assert done.returncode == 0, done.stderr
    assert "2 groups, from birth_date, sex" in done.stdout
    assert "group 2: " in done.stdout
    assert "How large each is" in (town / "groups.html").read_text()
    assert run_command("release", "verify", "groups.json", cwd=town).returncode == 0
    assert run_command("predict", "groups.json", "visits.parquet", "-o", "grouped.parquet", cwd=town).returncode == 0
    assert set(pq.read_table(town / "grouped.parquet")["group"].to_pylist()) <= {1, 2}
    again = run_command("predict", "groups.json", "grouped.parquet", "-o", "twice.parquet", cwd=town)
    assert "a column 'group' already" in again.stderr


def test_shapes_of_a_number_are_trained_and_predict_numbers(town: Path) -> None:
    words = ("--target", "charge", "--method", "boosted", "--turns", "2", "--features", "birth_date,diagnosis")
    done = run_command("train", "visits", *words, "--epsilon", "1", "--delta", "1e-7", "-o", "shapes.json", cwd=town)
    assert done.returncode == 0, done.stderr
    assert "boosted model of charge" in done.stdout
    made = run_command("predict", "shapes.json", "visits.parquet", "-o", "shaped.parquet", "--json", cwd=town)
    assert made.returncode == 0, made.stderr
    assert all(
        0 <= value <= 250_000 for value in pq.read_table(town / "shaped.parquet")["predicted_charge"].to_pylist()
    )


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("visits", "--target", "chrge", "--epsilon", "1"), "Did you mean 'charge'"),
        (("visits", "--target", "charge"), "epsilon or rho"),
        (("visits", "--target", "charge", "--epsilon", "99"), "BudgetExceeded"),
        (("visits", "--target", "charge", "--epsilon", "1", "--method", "linaer"), "Did you mean 'linear'"),
        (("visits", "--target", "charge", "--epsilon", "1", "--features", "note"), "no public categories"),
        (("voters", "--target", "charge", "--epsilon", "1"), "public"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_no_file(town: Path, words: tuple[str, ...], message: str) -> None:
    done = run_command("train", *words, "-o", "refused.json", cwd=town)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (town / "refused.json").exists()


def test_predicting_refuses_what_is_no_model_and_rows_that_lack_a_column(town: Path) -> None:
    (town / "no-model.json").write_text("{}")
    refused = run_command("predict", "no-model.json", "visits.parquet", "-o", "never.csv", cwd=town)
    assert refused.returncode == 2
    assert "not a learned model" in refused.stderr
    words = ("--target", "charge", "--features", "sex", "--epsilon", "0.1", "--delta", "1e-8")
    assert run_command("train", "visits", *words, "-o", "sex.json", cwd=town).returncode == 0
    (town / "lacking.csv").write_text("age\n5\n")
    refused = run_command("predict", "sex.json", "lacking.csv", "-o", "never.csv", cwd=town)
    assert refused.returncode == 2
    assert "sex" in refused.stderr
    assert not (town / "never.csv").exists()


@pytest.mark.parametrize(
    ("where", "told", "entries"),
    [
        ("deniable.curator.train._split_rows", ("stopped after it was charged", "charge stands", "ledger show"), 1),
        ("deniable.curator.train.plan_training", ("stopped before anything was charged", "Nothing was charged"), 0),
    ],
)
def test_control_c_says_whether_something_was_charged_and_how_to_go_on(
    town: Path, where: str, told: tuple[str, ...], entries: int
) -> None:
    def count() -> int:
        """How many models the ledger has; there is none before the first charge."""
        shown = json.loads(run_command("ledger", "show", "--last", "1000", "--json", cwd=town).stdout)
        return len([each for each in shown.get("entries", []) if "model" in json.dumps(each)])

    module, name = where.rsplit(".", 1)
    script = f"""
import os, signal, sys, time
import {module} as patched
from deniable.cli.main import main

def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

patched.{name} = interrupt
sys.argv = ["deniable", *sys.argv[1:]]
main()
"""
    before = count()
    words = ("train", "visits", "--target", "charge", "--features", "sex", "--epsilon", "0.1", "--delta", "1e-8")
    done = subprocess.run(
        [sys.executable, "-c", script, *words, "-o", "stopped.json"],
        cwd=town, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    assert all(word in done.stderr for word in told), done.stderr
    assert count() == before + entries
    assert not (town / "stopped.json").exists()


STOP = """
import os, signal, sys, time
from deniable.cli import synthesize, train
from deniable.cli.main import main

place = int(sys.argv[1])
def interrupt(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

if place < 0:  # while the result is printed
    train.emit = synthesize.emit = interrupt
calls, replace = [], os.replace
def count_and_stop(*given):
    if str(given[1]).endswith(".journal"):  # of what was there before
        return replace(*given)
    calls.append(given)
    if len(calls) == place:
        interrupt()
    replace(*given)
    if len(calls) == -place:
        interrupt()

os.replace = count_and_stop
sys.argv = ["deniable", *sys.argv[2:]]
main()
"""
TRAIN = ("train", "visits", "--target", "charge", "--features", "sex", "--epsilon", "0.1", "--delta", "1e-8")
SYNTHESIZE = ("synthesize", "visits", "--columns", "sex", "--epsilon", "0.1", "--delta", "1e-8")


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize(("words", "files"), [(TRAIN, 1), (SYNTHESIZE, 2)], ids=["train", "synthesize"])
def test_control_c_between_the_files_of_a_release_leaves_none_of_them(
    town: Path, words: tuple[str, ...], files: int, place: int
) -> None:
    folder = town / f"halves-{words[0]}-{place}"
    folder.mkdir()
    out = folder.relative_to(town) / "out.json" if files == 1 else folder.relative_to(town) / "out.csv"
    done = subprocess.run(
        [sys.executable, "-c", STOP, str(place), *words, "-o", str(out)],
        cwd=town, capture_output=True, text=True, check=False,
    )  # fmt: skip
    left = sorted(path.name for path in folder.iterdir())
    if place > files + 1:  # no file more is replaced
        assert done.returncode == 0
        assert len(left) == files + 1
        return
    assert done.returncode == 130, done.stderr
    assert left == []
    told = " ".join(done.stderr.split())
    assert "stopped after it was charged, and no file of it is left" in told
    assert "running it again is charged again" in told


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("words", [TRAIN, SYNTHESIZE], ids=["train", "synthesize"])
def test_control_c_while_a_result_is_printed_names_what_was_charged_and_written(
    town: Path, words: tuple[str, ...], as_json: bool
) -> None:
    out = f"late-{words[0]}-{as_json}.{'json' if words is TRAIN else 'csv'}"
    done = subprocess.run(
        [sys.executable, "-c", STOP, "-99", *words, "-o", out, *(["--json"] if as_json else [])],
        cwd=town, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 130, done.stderr
    told = " ".join((done.stdout if as_json else done.stderr).split())
    assert "stopped after it was charged, and " + out in told
    assert "written whole" in told
    assert "is charged again" in told
    assert (town / out).exists()
    assert (town / f"{out}.release.json").exists()
