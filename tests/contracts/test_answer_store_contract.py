"""What every answer store must do: keep the first, find by name and alias, forget when told."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.ledger.answer_store import AnswerStore, SqliteShelf
from deniable.ledger.ledger import open_answer_store
from ledgers import STORES


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnswerStore]:
    place = {"memory": None, "sqlite": tmp_path / "x.sqlite"}.get(request.param)
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_address")
    opened = open_answer_store(place, uuid.uuid4().hex)
    yield opened
    opened.close()


def test_what_came_first_is_what_is_kept(store: AnswerStore) -> None:
    assert store.keep("answers", "question", "release 1", b"one") == b"one"
    assert store.keep("answers", "question", "release 2", b"two") == b"one"
    assert store.keep("answers", "other question", "release 1", b"three") == b"one"
    assert store.find("answers", "question") == store.find("answers", "release 1") == b"one"
    assert store.find("answers", "other question") is None
    assert store.find("other collection", "question") is None
    assert store.keep("answers", "nothing", "release 3", b"") == b""
    assert store.keep("answers", "nothing", "release 4", b"something") == b""


def test_an_emptied_collection_is_empty_and_others_are_not(store: AnswerStore) -> None:
    store.keep("answers", "a", "1", b"x")
    store.keep("answers", "b", "2", b"")
    store.keep("withdrawn", "c", "3", b"y")
    assert store.list_all("answers") == {"a": b"x", "b": b""}
    assert store.empty("answers") == 2
    assert store.list_all("answers") == {}
    assert store.list_all("withdrawn") == {"c": b"y"}


def test_what_was_forgotten_is_not_left_in_the_file(tmp_path: Path) -> None:
    store = open_answer_store(tmp_path / "x.sqlite", "d")
    store.keep("answers", "a", "1", b"a secret answer" * 100)
    assert any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    store.empty("answers")
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.iterdir())
    store.close()


def test_a_look_into_a_full_drawer_takes_no_more_steps_than_into_an_empty_one(tmp_path: Path) -> None:
    store = SqliteShelf(tmp_path / "x.sqlite")

    def steps(name: str) -> int:
        counted: list[None] = []
        store._reader.set_progress_handler(lambda: counted.append(None), 1)  # called at each step of SQLite's machine
        store.find("answers", name)
        store._reader.set_progress_handler(None, 1)
        return len(counted)

    store.keep("answers", "first", "first release", b"x")
    steps("first")  # the first look reads the schema as well
    before = [steps(name) for name in ("first", "first release", "nobody")]
    for place in range(300):
        store.keep("answers", f"question {place}", f"release {place}", b"x")
    assert [steps(name) for name in ("first", "first release", "nobody")] == before
    store.close()
