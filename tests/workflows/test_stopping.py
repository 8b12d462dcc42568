"""Control-C and SIGTERM end a command with one message, exit code 130 and no traceback, wherever they come."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
budgets: {dataset: {epsilon: 50, delta: 1e-3, accounting: zcdp}}
"""
WORDS = (
    *("synthesize", "visits", "-p", "policy.yaml", "--columns", "sex", "--method", "independent"),
    *("--epsilon", "1", "--delta", "1e-6", "-o", "x.csv"),
)
BEGIN = """
import os, signal, sys
number, place = signal.Signals[sys.argv[1]], sys.argv[2]
sys.argv = ["deniable", *sys.argv[3:]]
from deniable.__main__ import run
"""
WHILE_A_MODULE_LOADS = """
class Sender:
    @staticmethod
    def find_spec(name, *_):
        if name == place:
            sys.meta_path.remove(Sender)
            os.kill(os.getpid(), number)

sys.meta_path.insert(0, Sender)
run()
"""
AT_A_CALL = """
import threading
count = 0

def send(frame, event, _):
    global count
    if any(part in frame.f_code.co_filename for part in ("deniable", "contextlib", "typer")):
        count += 1
        if count == abs(int(place)) and threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), number)

def begin_near_the_end():
    global count
    from deniable import outputs
    settle = outputs.Outputs.settle

    def settle_and_count(run):
        global count
        count = 0
        sys.setprofile(send)
        settle(run)

    outputs.Outputs.settle = settle_and_count

leave = os._exit
os._exit = lambda code: (sys.setprofile(None), leave(code))
begin_near_the_end() if int(place) < 0 else sys.setprofile(send)
run()
"""
MODULES = (
    *("deniable.cli", "deniable.cli.main", "typer", "deniable.cli.terminal", "deniable.cli.synthesize"),
    *("deniable.curator.charge", "deniable.curator.synthesize.gate", "numpy", "pyarrow", "deniable.synth.model"),
    *("deniable.curator.curator", "deniable.engines.duckdb", "deniable.release.release", "rich.console"),
)


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "state"))
    (tmp_path / "visits.csv").write_text("id,sex\n" + "".join(f"{i},{'FM'[i % 2]}\n" for i in range(40)))
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path


def stop(script: str, number: signal.Signals, place: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-c", BEGIN + script, number.name, place, *WORDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stderr.strip().splitlines()


def count_charges() -> int:
    if not Path("policy.ledger.sqlite").exists():
        return 0
    connection = sqlite3.connect("policy.ledger.sqlite")
    try:
        return int(connection.execute("SELECT count(*) FROM entries WHERE act = 'charge'").fetchone()[0])
    except sqlite3.OperationalError:  # it was stopped before its ledger had tables
        return 0
    finally:
        connection.close()


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
@pytest.mark.parametrize("module", MODULES)
def test_a_command_that_is_stopped_while_modules_load_says_so(
    clinic: Path, module: str, number: signal.Signals
) -> None:
    code, told = stop(WHILE_A_MODULE_LOADS, number, module)
    assert (code, len(told)) == (130, 1), told
    assert told[0].startswith("Cancelled  stopped")
    if not count_charges():
        assert "Nothing was charged." in told[0]
    else:
        assert "ledger show" in told[0]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("place", [*(5, 30, 300, 3_000, 20_000), *(-each for each in range(1, 400, 20))])
def test_a_command_that_is_stopped_anywhere_says_so_and_is_true_about_the_charge(clinic: Path, place: int) -> None:
    """Calls are counted from the first line of the program, or from where the files are there (below zero)."""
    code, told = stop(AT_A_CALL, signal.SIGINT, str(place))
    whole = Path("x.csv").exists()
    if code == 0:  # the signal came after the result, or there are not so many calls
        assert (told, whole, count_charges()) == ([], True, 1)
        return
    assert (code, len(told)) == (130, 1), told
    assert told[0].startswith("Cancelled  stopped")
    assert ("Nothing was charged." in told[0]) == (not count_charges())
    assert ("written whole" in told[0]) == whole
