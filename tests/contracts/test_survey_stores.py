"""One suite for every store of survey responses: SQLite, and PostgreSQL where its programs are installed."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.errors import StorageError
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.service import open_store
from deniable.localdp.survey.store import Arrival, Store

SURVEY = parse_survey("{survey: ward, title: Ward, questions: {q: {ask: Q?, type: yes-no, epsilon: 1}}}")


def _programs() -> Path | None:
    """Where initdb and pg_ctl are."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in folders if (folder / "pg_ctl").exists()), None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server of our own, without a port, for this module."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    programs = _programs()
    if programs is None:
        pytest.skip("the PostgreSQL server programs are not installed")
    # PostgreSQL refuses to run as root, so that then the least privileged account runs it.
    owner = {"user": "nobody"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="survey-pg-") as folder:
        if owner:
            os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)
        data, quiet = f"{folder}/data", {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        options = f"-k {folder} -c listen_addresses='' -F"
        subprocess.run([programs / "initdb", "-D", data, "-A", "trust", "-U", "steward"], **quiet, **owner)
        subprocess.run([programs / "pg_ctl", "-D", data, "-w", "-o", options, "start"], **quiet, **owner)
        try:
            yield f"postgresql://steward@/postgres?host={folder}"
        finally:
            subprocess.run([programs / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **quiet, **owner)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "s.sqlite") if request.param == "sqlite" else request.getfixturevalue("postgres")


@pytest.fixture
def store(address: str) -> Iterator[Store]:
    opened = open_store(address, SURVEY)
    yield opened
    opened.close()


def arrival(body: str = "{}") -> Arrival:
    return Arrival(os.urandom(32), body)


def test_a_batch_is_filed_and_its_tickets_count_once(store):
    first, second = arrival('{"a":1}'), arrival('{"b":2}')
    before = store.count()
    assert store.add([first, second, first]) == [True, True, False]
    assert store.add([second]) == [False]
    assert store.count() == before + 2
    assert {'{"a":1}', '{"b":2}'} <= set(store.bodies())


def test_an_empty_batch_is_nothing(store):
    before = store.count()
    assert store.add([]) == []
    assert store.count() == before


def test_a_fact_is_kept_as_it_was_first_given(store, address):
    key = store.fact("key of a test", b"one")
    assert store.fact("key of a test", b"two") == key
    other = open_store(address, SURVEY)
    assert other.fact("key of a test", b"three") == key
    other.close()


def test_two_desks_cannot_both_take_one_ticket(store, address):
    batch = [arrival() for _ in range(200)]
    other, taken = open_store(address, SURVEY), []
    threads = [
        threading.Thread(target=lambda s=s: taken.append([s.add([one])[0] for one in batch])) for s in (store, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.close()
    assert [left + right for left, right in zip(*taken, strict=True)] == [1] * 200


def test_a_database_that_is_not_there_is_refused_without_its_address():
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(StorageError) as refusal:
        open_store("postgresql://secret-password@127.0.0.1:1/x", SURVEY)
    assert "secret" not in str(refusal.value)
