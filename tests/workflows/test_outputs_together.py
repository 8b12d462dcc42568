"""All files of a run are checked and locked before a charge, and are anew together or as they were."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deniable import outputs, storage
from deniable.cli.main import app
from deniable.errors import CHARGED, NOTHING_CHARGED, Cancelled, DeniableError, ParameterError, StorageError
from deniable.outputs import COMPANIONS, claim_outputs, replace_files
from deniable.release import verify
from deniable.reports import page
from deniable.storage import Locked, lock_output

release = import_module("deniable.release.release")
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      old: {type: boolean, role: quasi-identifier}
tabulation:
  census: {table: visits, areas: {levels: [sex]}, cells: [old], epsilon: 1}
release: {anonymize: {k: 2}}
budgets: {dataset: {epsilon: 50, delta: 1e-3, accounting: zcdp}}
"""
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
COMMANDS = {
    "query": ("query", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1"),
    "top": ("top", "visits", "sex", "--epsilon", "1"),
    "tabulate": ("tabulate", "census"),
    "mask": ("mask", "visits.csv"),
    "anonymize": ("anonymize", "visits.csv"),
    "synthesize": ("synthesize", "visits", *BUDGET),
    "describe": ("describe", "visits", *BUDGET),
    "together": ("query", "--together", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "1"),
    "train": ("train", "visits", "--target", "sex", "--positive", "F", "--features", "old", "--epsilon", "1"),
    "randomize": ("randomize", "visits.csv", "--epsilon", "1"),
}
EARLIER = '{"form": "deniable synthetic model, version 1"}'
PAGED = ("tabulate", "train", "synthesize", "anonymize")


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "state"))
    (tmp_path / "visits.csv").write_text("id,sex,old\n" + "".join(f"{i},{'FM'[i % 2]},true\n" for i in range(40)))
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "out").mkdir()
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words])


def write(command: str, out: str = "out/x.csv", *more: str) -> Any:
    return run(*COMMANDS[command], "-p", "policy.yaml", "-o", out, *more)


def count_charges() -> int:
    if not Path("policy.ledger.sqlite").exists():
        return 0
    import sqlite3

    connection = sqlite3.connect("policy.ledger.sqlite")
    try:
        return int(connection.execute("SELECT count(*) FROM entries WHERE act IN ('charge', 'release')").fetchone()[0])
    finally:
        connection.close()


def list_out() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no such pipes")
    os.mkfifo(path)


def make_link_to_pipe(path: Path) -> None:
    make_pipe(path.with_name("pipe"))
    path.symlink_to("pipe")


OBSTACLES: list[tuple[str, Callable[[Path], None], str]] = [
    (COMPANIONS[0], make_folder, "folder of that name"),
    (COMPANIONS[1], make_folder, "folder of that name"),
    (COMPANIONS[2], make_folder, "folder of that name"),
    ("", make_pipe, "is no file"),
    ("", make_link_to_pipe, "is no file"),
    (COMPANIONS[2], make_pipe, "is no file"),
]


@pytest.mark.quick_cases(18)
@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda each: f"{each[0]} {each[1].__name__}")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_cannot_be_written_with_its_companions_is_refused_before_a_charge(
    clinic: Path, command: str, obstacle: tuple[str, Callable[[Path], None], str]
) -> None:
    ending, make, words = obstacle
    make(clinic / f"out/{'x-1' if command == 'together' else 'x'}.csv{ending}")
    done = write(command)
    assert isinstance(done.exception, StorageError | ParameterError), done.output
    assert words in str(done.exception)
    assert not done.exception.charged.startswith(CHARGED)
    assert count_charges() == 0


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_run_on_the_same_file_is_refused_before_a_charge(clinic: Path, command: str) -> None:
    with lock_output(clinic / f"out/{'x-1' if command == 'together' else 'x'}.csv"):
        done = write(command)
    assert isinstance(done.exception, Locked), done.output
    assert count_charges() == 0


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("failure", [StorageError, KeyboardInterrupt])
@pytest.mark.parametrize("command", PAGED)
def test_a_page_that_fails_leaves_all_files_as_they_were_and_tells_the_charge(
    clinic: Path, command: str, failure: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("x.csv", "x.csv.release.json", "x.csv.recoding.json", "x.html"):
        (clinic / "out" / name).write_text("<html>" if name == "x.html" else EARLIER)
    before = list_out()

    def fail(*_: object) -> None:
        raise failure("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(page, "write_whole", fail)
        done = write(command, "out/x.csv", "--report", "out/x.html")
    assert isinstance(done.exception, DeniableError), done.output
    told = "names a release that did not leave" if command == "anonymize" else CHARGED
    assert told in done.exception.charged
    assert list_out() == before
    assert count_charges() == 1
    again = write(command, "out/x.csv", "--report", "out/x.html")
    assert again.exit_code == 0, again.output
    assert b"doctype" in (clinic / "out/x.html").read_bytes()[:20]
    assert "x.csv.recoding.json" in list_out() or command != "anonymize"


@pytest.mark.parametrize("command", ["mask", "anonymize"])
@pytest.mark.parametrize(("where", "told"), [("stage_file", NOTHING_CHARGED), ("seal", "did not leave")])
def test_a_release_without_a_price_that_is_stopped_says_what_the_ledger_holds(
    clinic: Path, command: str, where: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    if where == "seal":
        monkeypatch.setattr(release, "_render_statement", stop)
    else:
        for name in ("mask.run", "anonymize.output"):
            monkeypatch.setattr(import_module(f"deniable.curator.{name}"), "stage_file", stop)
    done = write(command)
    assert isinstance(done.exception, Cancelled), done.output
    assert done.exception.exit_code == 130
    assert told in done.exception.charged
    assert count_charges() == (0 if where == "stage_file" else 1)
    assert list_out() == {}


def test_a_run_that_is_stopped_at_its_end_names_the_file_that_is_whole(
    clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("deniable.curator.synthesize.run"), "describe_to_file", stop_after_writing)
    done = write("describe")
    assert isinstance(done.exception, Cancelled), done.output
    assert "out/x.csv was written whole" in str(done.exception)


def stop_after_writing(context: Any, order: Any, out: Path) -> None:
    import_module("deniable.curator.synthesize.run").learn_and_keep(context, order, out)
    raise KeyboardInterrupt


def test_a_failing_rename_of_masked_rows_is_a_refusal_in_words(clinic: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = Path.replace

    def refuse(path: Path, target: Path) -> Path:
        if path.name.startswith("whole"):
            raise OSError(errno.ENOSPC, "full")
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", refuse)
    done = write("mask")
    assert isinstance(done.exception, StorageError), done.output
    assert "the disk is full" in str(done.exception)


class FullFile:
    """A file on a disk that has a place for names and none for bytes."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, content: bytes) -> int:
        if content:
            raise OSError(errno.ENOSPC, "full")
        return 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> FullFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@pytest.mark.parametrize("command", ["query", "synthesize"])
def test_a_full_disk_is_refused_before_a_charge(clinic: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "open", lambda *at: FullFile(open(*at)), raising=False)  # noqa: SIM115
    done = write(command)
    assert isinstance(done.exception, StorageError), done.output
    assert "the disk is full" in str(done.exception)
    assert count_charges() == 0
    assert not list((clinic / "out").iterdir())


def test_what_stood_beside_an_earlier_output_goes_with_it(clinic: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert write("synthesize").exit_code == 0
    drawn = run("generate", "out/x.csv.model.json", "--rows", "5", "-o", "out/x.csv")
    assert drawn.exit_code == 0, drawn.output
    assert set(list_out()) == {"x.csv", "x.csv.model.json"}  # of which the rows are
    assert "Removed out/x.csv.release.json" in caplog.text
    assert write("query").exit_code == 0
    assert set(list_out()) == {"x.csv", "x.csv.release.json"}
    assert verify(clinic / "out/x.csv")
    assert write("describe").exit_code == 0
    assert set(list_out()) == {"x.csv"}
    assert write("anonymize").exit_code == 0
    assert set(list_out()) == {"x.csv", "x.csv.release.json", "x.csv.recoding.json"}
    assert write("mask").exit_code == 0
    assert set(list_out()) == {"x.csv", "x.csv.release.json"}


@pytest.mark.parametrize("target", ["elsewhere.csv", "gone/elsewhere.csv"])
def test_a_link_is_as_it_was_after_a_failure(clinic: Path, target: str) -> None:
    out = clinic / "out/x.csv"
    out.symlink_to(clinic / target)

    def write_over() -> None:
        storage.write_whole(out, b"new")
        raise RuntimeError

    with pytest.raises(RuntimeError), replace_files(out):
        write_over()
    assert os.readlink(out) == str(clinic / target)
    (clinic / "out/x.csv.release.json").mkdir()
    assert write("synthesize").exception
    assert os.readlink(out) == str(clinic / target)
    assert sorted(path.name for path in (clinic / "out").iterdir()) == ["x.csv", "x.csv.release.json"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a run is killed in a fork")
@pytest.mark.parametrize("names", [("x.csv",), ("x.csv", "x.csv.release.json"), (), ("x.csv.release.json",)])
def test_what_a_killed_run_left_is_put_back_by_the_next_one(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Whatever of an output was replaced when a process was killed, both files are again of one run."""
    for name in ("x.csv", "x.csv.release.json"):
        (tmp_path / name).write_text(EARLIER)
    if not (child := os.fork()):
        try:
            with replace_files(tmp_path / "x.csv"):
                for name in names:
                    storage.write_whole(tmp_path / name, b"new")
                storage.stage_file(tmp_path / "x.csv").write_text("not to leave")
                os._exit(9)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(list(tmp_path.iterdir())) == 7  # with lock, journal, two earlier files, and the rows that wait
    with claim_outputs(tmp_path / "x.csv"):
        found = {path.name: path.read_text() for path in tmp_path.iterdir() if not path.name.endswith(".lock")}
        assert found == {"x.csv": EARLIER, "x.csv.release.json": EARLIER}


def test_what_a_run_left_that_was_killed_at_its_end_is_removed(tmp_path: Path) -> None:
    for name in ("x.csv", "x.csv.release.json"):
        (tmp_path / name).write_text(EARLIER)
    kept = outputs._place_earlier(tmp_path / "x.csv.release.json")
    kept.write_text("earlier")  # that of the output was let go of first
    with claim_outputs(tmp_path / "x.csv"):
        assert not kept.exists()
    assert (tmp_path / "x.csv.release.json").read_text() == EARLIER


OWN = ("my own notes", "", '{"my": "own model"}', '{"sha256": "of my own"}', "[1]", '{"form": "mine"}')


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("ending", COMPANIONS)
@pytest.mark.parametrize("content", OWN)
@pytest.mark.parametrize("command", ["query", "anonymize", "synthesize"])
def test_an_own_file_beside_a_new_output_is_refused_before_a_charge_and_stays(
    clinic: Path, command: str, content: str, ending: str
) -> None:
    (clinic / f"out/x.csv{ending}").write_text(content)
    before = list_out()
    done = write(command)
    assert isinstance(done.exception, ParameterError), done.output
    assert f"'x.csv{ending}' exists, and is no file that deniable wrote" in str(done.exception)
    assert "choose another name for the output" in str(done.exception)
    assert count_charges() == 0
    assert list_out() == before


def test_a_link_beside_a_new_output_that_leads_nowhere_is_refused(clinic: Path) -> None:
    (clinic / "out/x.csv.model.json").symlink_to("later.json")
    assert isinstance(write("query").exception, ParameterError)
    assert (clinic / "out/x.csv.model.json").is_symlink()


STOP = """
import os, signal, sys, threading, time
import deniable.curator.query.sql as patched
from deniable.cli.main import run

def send():
    for _ in range(40):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

def interrupt(*_, **__):
    threading.Thread(target=send, daemon=True).start()
    time.sleep(60)

patched.write_answer = interrupt
sys.argv = ["deniable", *sys.argv[1:]]
run()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_many_signals_stop_a_command_as_one_does(clinic: Path) -> None:
    words = (*COMMANDS["query"], "-p", "policy.yaml", "-o", "out/x.csv")
    done = subprocess.run([sys.executable, "-c", STOP, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert done.stderr.count("stopped after it was charged") == 1
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert count_charges() == 1
    assert list_out() == {}


@pytest.fixture(autouse=True)
def _leave_no_run() -> Iterator[None]:
    yield
    assert outputs._run.get() is None
