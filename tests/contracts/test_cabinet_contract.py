"""What every cabinet must do: keep the first, find by name and alias, forget when told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.ledger.answer_store import AnswerStore, SqliteAnswerStore
from deniable.ledger.ledger import open_answer_store
from ledgers import STORES


@pytest.fixture(params=STORES)
def cabinet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnswerStore]:
    place = {"memory": None, "sqlite": tmp_path / "x.sqlite"}.get(request.param)
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_address")
    opened = open_answer_store(place, uuid.uuid4().hex)
    yield opened
    opened.close()


def test_what_came_first_is_what_is_kept(cabinet: AnswerStore) -> None:
    assert cabinet.keep("answers", "question", "release 1", b"one") == b"one"
    assert cabinet.keep("answers", "question", "release 2", b"two") == b"one"
    assert cabinet.keep("answers", "other question", "release 1", b"three") == b"one"
    assert cabinet.find("answers", "question") == cabinet.find("answers", "release 1") == b"one"
    assert cabinet.find("answers", "other question") is None
    assert cabinet.find("other drawer", "question") is None
    assert cabinet.keep("answers", "nothing", "release 3", b"") == b""
    assert cabinet.keep("answers", "nothing", "release 4", b"something") == b""


def test_an_emptied_drawer_is_empty_and_others_are_not(cabinet: AnswerStore) -> None:
    cabinet.keep("answers", "a", "1", b"x")
    cabinet.keep("answers", "b", "2", b"")
    cabinet.keep("withdrawn", "c", "3", b"y")
    assert cabinet.everything("answers") == {"a": b"x", "b": b""}
    assert cabinet.empty("answers") == 2
    assert cabinet.everything("answers") == {}
    assert cabinet.everything("withdrawn") == {"c": b"y"}


def test_what_was_forgotten_is_not_left_in_the_file(tmp_path: Path) -> None:
    cabinet = open_answer_store(tmp_path / "x.sqlite", "d")
    cabinet.keep("answers", "a", "1", b"a secret answer" * 100)
    assert any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    cabinet.empty("answers")
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    cabinet.close()


def test_a_look_into_a_full_drawer_takes_no_more_steps_than_into_an_empty_one(tmp_path: Path) -> None:
    cabinet = open_answer_store(tmp_path / "x.sqlite", "d")
    assert isinstance(cabinet, SqliteAnswerStore)

    def steps(name: str) -> int:
        counted: list[None] = []
        cabinet._reader.set_progress_handler(lambda: counted.append(None), 1)  # called at each step of SQLite's machine
        cabinet.find("answers", name)
        cabinet._reader.set_progress_handler(None, 1)
        return len(counted)

    cabinet.keep("answers", "first", "first release", b"x")
    steps("first")  # the first look reads the schema as well
    before = [steps(name) for name in ("first", "first release", "nobody")]
    for place in range(300):
        cabinet.keep("answers", f"question {place}", f"release {place}", b"x")
    assert [steps(name) for name in ("first", "first release", "nobody")] == before
    cabinet.close()
