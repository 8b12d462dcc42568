"""Synthesizing from the command line: a release with model and statement, rows from the model alone, refusals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from forked_commands import run_command

BUDGET = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("town")
    assert run_command("world", "make", "hospital", "--people", "2000", "-o", ".", cwd=folder).returncode == 0
    return folder


def test_a_synthetic_table_is_written_with_its_model_and_verifies(town: Path) -> None:
    done = run_command("synthesize", "visits", *BUDGET, "-o", "made.parquet", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    made, real = pq.read_table(town / "made.parquet"), pq.read_table(town / "visits.parquet")
    assert made.num_rows == told["rows"]
    assert set(made.column_names) == set(real.column_names)
    assert set(made["sex"].to_pylist()) <= {"F", "M", None}
    assert not set(made["patient_id"].to_pylist()) & set(real["patient_id"].to_pylist())
    assert run_command("release", "verify", "made.parquet", cwd=town).returncode == 0
    drawn = run_command("generate", "made.parquet.model.json", "--rows", "10", "-o", "ten.csv", cwd=town)
    assert drawn.returncode == 0, drawn.stderr
    assert len((town / "ten.csv").read_text().splitlines()) == 11


def test_rows_with_given_values_alone_are_drawn_from_a_model(town: Path) -> None:
    done = run_command("describe", "visits", *BUDGET, "-o", "v.json", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reason"]
    drawn = run_command("generate", "v.json", "--where", "sex=F", "--rows", "20", "-o", "women.parquet", cwd=town)
    assert drawn.returncode == 0, drawn.stderr
    assert pq.read_table(town / "women.parquet")["sex"].to_pylist() == ["F"] * 20
    refused = run_command("generate", "v.json", "--where", "sex=Q", "-o", "none.parquet", cwd=town)
    assert refused.returncode == 2
    assert not (town / "none.parquet").exists()


def test_a_workload_of_the_policy_is_measured_and_told_and_another_word_is_refused(town: Path) -> None:
    text = (town / "policy.yaml").read_text()
    asked = text.replace("  truths:", "  synthesize: {workload: [[sex, ethnicity, payer]]}\n  truths:", 1)
    (town / "asked.yaml").write_text(asked)
    words = ("-p", "asked.yaml", "--epsilon", "3", "--delta", "1e-6", "--columns", "sex,ethnicity,payer,diagnosis")
    done = run_command("describe", "visits", *words, "-o", "asked.json", "--json", cwd=town)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["asked"][0]["table"] == "sex x ethnicity x payer"
    assert told["asked"][0]["how"].startswith("measured")
    assert "sex x ethnicity x payer" in told["measured"]
    shown = run_command("describe", "visits", *words, "-o", "again.json", cwd=town)
    assert "Asked for sex x ethnicity x payer: measured" in shown.stdout
    without = run_command("describe", "visits", *words[:-1], "sex,payer", "-o", "two.json", "--json", cwd=town)
    assert json.loads(without.stdout)["asked"] == []
    (town / "wrong.yaml").write_text(asked.replace("ethnicity, payer]]", "ethnicty, payer]]"))
    refused = run_command("describe", "visits", "-p", "wrong.yaml", *BUDGET, "-o", "w.json", cwd=town)
    assert refused.returncode == 2
    assert "Did you mean 'ethnicity'" in refused.stderr


def test_the_budget_is_charged_and_a_second_release_beyond_it_is_refused(town: Path) -> None:
    words = ("--epsilon", "9", "--delta", "4e-7", "--ledger", "ledger.db")
    first = run_command("synthesize", "visits", *words, "-o", "a.parquet", cwd=town)
    assert first.returncode == 0, first.stderr
    second = run_command("synthesize", "visits", *words, "-o", "b.parquet", cwd=town)
    assert second.returncode == 2
    assert "BudgetExceeded" in second.stderr
    assert not (town / "b.parquet").exists()


def test_without_a_delta_nothing_is_read_or_written(town: Path) -> None:
    done = run_command("synthesize", "visits", "--epsilon", "1", "-o", "c.parquet", cwd=town)
    assert done.returncode == 2
    assert "needs a delta" in done.stderr
    assert not (town / "c.parquet").exists()


def test_a_public_table_is_refused(town: Path) -> None:
    done = run_command("synthesize", "voters", *BUDGET, "-o", "d.parquet", cwd=town)
    assert done.returncode == 2
    assert "public" in done.stderr


def test_an_expired_policy_is_refused_before_anything_is_charged_or_written(town: Path) -> None:
    text = (town / "policy.yaml").read_text().replace("expires: 2036-12-31", "expires: 2020-01-01")
    (town / "expired.yaml").write_text(text)
    done = run_command("synthesize", "visits", "-p", "expired.yaml", *BUDGET, "-o", "e.parquet", cwd=town)
    assert done.returncode == 2
    assert "expired" in done.stderr
    assert not (town / "e.parquet").exists()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_leaves_nothing_half_written(town: Path, number: signal.Signals) -> None:
    done = run_command("describe", "visits", *BUDGET, "-o", f"{number}.json", cwd=town)
    assert done.returncode == 0, done.stderr
    words = ("generate", f"{number}.json", "--rows", "900000000", "-o", f"{number}.csv")
    with subprocess.Popen([sys.executable, "-m", "deniable", *words], cwd=town, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 120
        while not [*town.glob(f".{number}.csv.*.part")] and process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert [*town.glob(f".{number}.csv.*.part")]
        process.send_signal(number)
        assert b"Traceback" not in process.communicate(timeout=120)[1]
    assert process.returncode
    assert not [*town.glob(f".{number}.csv*")]
    assert not (town / f"{number}.csv").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_told_to_end_does_not_wait_for_the_end_of_a_statement(
    tmp_path: Path, number: signal.Signals
) -> None:
    """DuckDB hears of signals between parts of its work; one part of a join may take minutes."""
    words = (
        "import pyarrow as pa, signal, sys",
        "from deniable.cli import main",
        "from deniable.engines.duckdb import DuckDBEngine",
        "def work():",
        "    engine = DuckDBEngine()",
        "    engine.attach('t', pa.table({'a': list(range(300_000))}))",
        "    print('started', flush=True)",
        "    engine.run('SELECT count(*) AS n FROM t AS x, t AS y WHERE x.a * y.a % 7 = 3')",
        "main.main = work",
        "try:",
        "    main.run()",
        "except KeyboardInterrupt:",
        "    print('stopped', flush=True)",
    )
    with subprocess.Popen([sys.executable, "-c", "\n".join(words)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(0.5)
        process.send_signal(number)
        try:
            assert process.communicate(timeout=60)[0] == "stopped\n"
        finally:
            process.kill()
