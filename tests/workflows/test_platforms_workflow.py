"""The commands on a system without POSIX, simulated: see tests/without_posix.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from deniable import world
from deniable.storage import give_name, is_open_to_others, lock_descriptor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="open files are seen in /proc")
PROGRAM = [sys.executable, "-X", "warn_default_encoding", str(Path(__file__).parents[1] / "without_posix.py")]
POLICY = ["-p", "town/policy.yaml"]
QI, K = ["--qi", "zip,sex,ethnicity"], ["--sensitive", "diagnosis", "--k", "3"]
SURVEY = """\
survey: wellbeing
title: Wellbeing
questions:
  harassed: {ask: "Have you been harassed at work?", type: yes-no, method: two-coins}
"""
COMMANDS = [
    ["world", "make", "hospital", "--people", "300", "-o", "town"],
    ["policy", "check", "town/policy.yaml"],
    ["scan", "town/visits.parquet"],
    ["key", "new", "people"],
    ["mask", "town/visits.parquet", *POLICY, "-o", "masked.parquet"],
    ["key", "rotate", "people"],
    ["anonymize", "town/visits.parquet", *QI, *K, "--suppress", "0.2", "-o", "k.csv"],
    ["check", "k.csv", *QI, *K],
    ["query", "SELECT sex, COUNT(*) FROM visits GROUP BY sex", *POLICY, "--epsilon", "0.5"],
    ["synthesize", "visits", *POLICY, "--epsilon", "0.3", "--delta", "1e-8", "--method", "independent", "-o", "s.csv"],
    ["describe", "visits", *POLICY, "--epsilon", "0.5", "--delta", "1e-8", "--method", "independent", "-o", "m.json"],
    ["generate", "m.json", "--rows", "50", "-o", "more.csv"],
    ["train", "visits", *POLICY, "--target", "charge", "--features", "sex,payer", "--epsilon", "0.5", "-o", "t.json"],
    ["predict", "t.json", "town/visits.parquet", "-o", "predicted.parquet"],
    ["attack", "town/visits.parquet", "--knows", "zip,birth_date,sex", "--register", "town/voters.parquet"],
    ["randomize", "town/visits.parquet", *POLICY, "--epsilon", "0.5", "-c", "sex", "-o", "told.parquet"],
    ["estimate", "told.parquet"],
    ["survey", "check", "survey.yaml", "--respondents", "100"],
    ["token", "new", "ana", "--purpose", "research", *POLICY],
    ["ledger", "verify", *POLICY],
    ["ledger", "backup", "backup.sqlite", *POLICY],
    ["start", "town/visits.parquet", "--yes", "--out", "first"],
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DENIABLE_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "survey.yaml").write_text(SURVEY)
    return tmp_path


def _run_all(place: Path, commands: list[list[str]]) -> dict[str, int]:
    lines = "".join(f"{json.dumps(each)}\n" for each in commands)
    done = subprocess.run(PROGRAM, input=lines, cwd=place, capture_output=True, text=True, check=False)
    ends = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert len(ends) == len(commands), done.stderr
    codes = {" ".join(each): int(line.rpartition(" ")[2]) for each, line in zip(commands, ends, strict=True)}
    assert not any(codes.values()), f"{[each for each in codes if codes[each]]}\n{done.stdout}\n{done.stderr}"
    return codes


def test_the_data_commands_work_without_posix(place: Path) -> None:
    assert len(_run_all(place, COMMANDS)) == len(COMMANDS)
    assert not [*place.rglob("*.part")]
    assert not [*place.glob("deniable-*")], "private folders are removed, though locked until then"


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "town/policy.yaml", "--postgres", "0", "--steward", "127.0.0.1:0", "--processes", "1"],
        ["survey", "serve", "survey.yaml"],
    ],
    ids=["a policy", "a survey"],
)
def test_a_server_starts_answers_and_stops_without_posix(place: Path, command: list[str]) -> None:
    world.write("hospital", 200, world.SEED, place / "town")
    arguments = [*PROGRAM, *command, "--port", str(_find_port())]
    with subprocess.Popen(arguments, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = ""
        while "Ctrl-C" not in said or "http" not in said:
            said += server.stdout.readline() or pytest.fail(said)
        _wait_for(said[said.index("http") :].split()[0])
        server.send_signal(signal.SIGINT)
        said += server.stdout.read()
    assert server.returncode in (0, 130), said


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def _wait_for(address: str) -> None:
    for _ in range(100):
        with contextlib.suppress(urllib.error.URLError):
            assert urllib.request.urlopen(address, timeout=20).status == 200
            return
        time.sleep(0.1)
    pytest.fail(f"nobody answers at {address}")


def test_a_console_of_few_letters_shows_others_escaped(tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("Łódź,age\nx,1\ny,2\n", encoding="utf-8")
    program = Path(sys.executable).with_name("deniable")
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run(
        [program, "policy", "init", "towns.csv"], cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"\\u0141\xf3d\\u017a" in done.stdout


def test_a_locked_file_is_locked_for_others(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    lock_descriptor(first)
    with pytest.raises(BlockingIOError):
        lock_descriptor(second)
    os.close(first)
    lock_descriptor(second)
    os.close(second)


def test_a_second_name_is_given_without_links_and_never_takes_a_name_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old").write_bytes(b"secret")
    monkeypatch.delattr(os, "link")
    give_name(tmp_path / "old", tmp_path / "new")
    assert (tmp_path / "new").read_bytes() == b"secret"
    assert not is_open_to_others((tmp_path / "new").stat())
    with pytest.raises(FileExistsError):
        give_name(tmp_path / "old", tmp_path / "new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new", "old"]
