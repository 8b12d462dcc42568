"""The store of survey responses: what is added is there once, for every process, and one process writes at a time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.errors import StorageError
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.service import open_store
from deniable.localdp.survey.store import FIRST_PLACES, Arrival, Store

SURVEY = parse_survey("{survey: ward, title: Ward, questions: {q: {ask: Q?, type: yes-no, epsilon: 1}}}")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "s", SURVEY)
    yield opened
    opened.close()


def arrival(body: str = "{}") -> Arrival:
    return Arrival(os.urandom(32), body)


def test_a_batch_is_filed_and_its_tickets_count_once(store):
    first, second = arrival('{"a":1}'), arrival('{"b":2}')
    assert store.add([first, second, first]) == [True, True, False]
    assert store.add([second]) == [False]
    assert store.count() == 2
    assert list(store.bodies()) == ['{"a":1}', '{"b":2}']


def test_an_empty_batch_is_nothing(store):
    assert store.add([]) == []
    assert store.count() == 0


def test_facts_are_kept_as_they_were_first_given(store, tmp_path):
    assert open_store(tmp_path / "s", SURVEY).facts == store.facts


def test_an_invitation_is_for_one_blinded_ticket(store):
    assert store.use_invitation(b"i" * 32, b"b" * 32)
    assert store.use_invitation(b"i" * 32, b"b" * 32)
    assert not store.use_invitation(b"i" * 32, b"c" * 32)


def test_a_growing_store_keeps_everything_and_reads_the_same_from_the_disk(store, tmp_path):
    batches = [[arrival(f'{{"q":{i}}}') for i in range(start, start + 90)] for start in range(0, 20 * 90, 90)]
    for batch in batches:
        assert all(store.add(batch))
    assert store.count() == 1800 > FIRST_PLACES
    again = open_store(tmp_path / "s", SURVEY, writable=False)
    assert list(again.bodies()) == list(store.bodies())
    store.close()
    assert not any(open_store(tmp_path / "s", SURVEY).add(batches[0]))


def test_threads_cannot_both_take_one_ticket(store):
    batch, taken = [arrival() for _ in range(200)], []
    threads = [threading.Thread(target=lambda: taken.append([store.add([one])[0] for one in batch])) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [left + right for left, right in zip(*taken, strict=True)] == [1] * 200


HOLD = """
import sys
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.service import open_store
store = open_store(sys.argv[1], parse_survey(sys.argv[2]))
store.claim()
print("held", flush=True)
sys.stdin.read()
"""
TEXT = "{survey: ward, title: Ward, questions: {q: {ask: Q?, type: yes-no, epsilon: 1}}}"


def test_a_second_process_may_read_and_may_not_write(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "s"), TEXT]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        other = open_store(tmp_path / "s", SURVEY)
        assert other.count() == 0
        with pytest.raises(StorageError, match="another process"):
            other.add([arrival()])
    finally:
        holder.communicate()
    assert open_store(tmp_path / "s", SURVEY).add([arrival()]) == [True]
