"""The store of survey responses: what is added is there once, for every process, and one process writes at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deniable.errors import IntegrityError, StorageError
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.service import open_service, open_store
from deniable.localdp.survey.store import FIRST_PLACES, HEAD, Arrival, Store

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


def change_record(file: Path, at: int) -> None:
    """Change one byte of the first record that a file of places holds."""
    content = bytearray(file.read_bytes())
    size = len(content) // (FIRST_PLACES + 2)  # the first place and the last hold no record
    start = next(place for place in range(size, len(content) - size, size) if any(content[place : place + size]))
    content[start + at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("at", [0, 20, 50, HEAD + 1], ids=["checksum", "ticket", "length", "response"])
def test_a_changed_record_is_counted_and_never_written_over(store, tmp_path, at):
    store.add([arrival('{"a":1}') for _ in range(3)])
    store.close()
    change_record(tmp_path / "s" / "responses", at)
    again = open_store(tmp_path / "s", SURVEY)
    assert (again.count(), again.damaged) == (2, (1, 0))
    again.add([arrival('{"a":1}') for _ in range(FIRST_PLACES)])  # the file grows, and holds what was damaged as before
    again.close()
    assert open_store(tmp_path / "s", SURVEY, writable=False).damaged == (1, 0)


def test_a_changed_invitation_is_counted_too(store, tmp_path):
    store.use_invitation(b"i" * 32, b"b" * 32)
    store.close()
    change_record(tmp_path / "s" / "invitations", 20)
    assert open_store(tmp_path / "s", SURVEY, writable=False).damaged == (0, 1)


@pytest.mark.parametrize("kept", [0, 1, 1 / 2, 1 / 4, 1023 / 1024, 1 / 3], ids=str)
@pytest.mark.parametrize("people", [1, 1300])
def test_a_file_that_was_cut_is_refused(store, tmp_path, kept, people):
    store.add([arrival() for _ in range(people)])
    store.close()
    file = tmp_path / "s" / "responses"
    content = file.read_bytes()
    size = len(content) // (FIRST_PLACES + 2 if people == 1 else 4 * FIRST_PLACES + 2)
    for extra in (0, size, 2 * size):
        length = int(kept * (len(content) - 2 * size)) + extra
        for left in {content[:length], content[len(content) - length :]} - {content}:
            file.write_bytes(left)
            with pytest.raises(IntegrityError, match="cut or overwritten"):
                open_store(tmp_path / "s", SURVEY, writable=False)
    file.write_bytes(content)
    assert open_store(tmp_path / "s", SURVEY, writable=False).count() == people


@pytest.mark.parametrize("end", ["first", "last"])
def test_a_changed_end_of_a_file_costs_no_response(store, tmp_path, end):
    store.add([arrival() for _ in range(3)])
    store.close()
    content = bytearray((tmp_path / "s" / "responses").read_bytes())
    content[30 if end == "first" else -1] ^= 1
    (tmp_path / "s" / "responses").write_bytes(content)
    again = open_store(tmp_path / "s", SURVEY, writable=False)
    assert (again.count(), again.damaged) == (3, (0, 0))


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "replaced"])
@pytest.mark.parametrize("more", [1, FIRST_PLACES], ids=["in place", "growing"])
def test_a_file_that_is_changed_under_a_running_server_is_not_written_to(store, tmp_path, cut, more):
    store.add([arrival() for _ in range(3)])
    file = tmp_path / "s" / "responses"
    content = file.read_bytes()
    if cut:
        os.truncate(file, len(content) // 2)
    else:
        (tmp_path / "s" / "copy").write_bytes(content)
        os.replace(tmp_path / "s" / "copy", file)
    left = file.read_bytes()
    with pytest.raises(IntegrityError, match="while it was in use"):
        store.add([arrival() for _ in range(more)])
    assert file.read_bytes() == left


@pytest.mark.parametrize("missing", ["survey.json", "responses", "invitations"])
@pytest.mark.parametrize("writable", [True, False], ids=["serve", "results"])
def test_a_store_that_lacks_a_file_is_refused_and_left_as_it_is(store, tmp_path, missing, writable):
    store.add([arrival() for _ in range(3)])
    store.use_invitation(b"i" * 32, b"b" * 32)
    store.close()
    (tmp_path / "s" / missing).unlink()
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    with pytest.raises(IntegrityError, match=f"lacks its file '{missing}'"):
        open_store(tmp_path / "s", SURVEY, writable)
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before


def test_a_store_whose_used_invitations_are_all_that_is_left_is_refused(store, tmp_path):
    store.use_invitation(b"i" * 32, b"b" * 32)
    store.close()
    for name in ("survey.json", "responses"):
        (tmp_path / "s" / name).unlink()
    with pytest.raises(IntegrityError, match=r"lacks its file 'survey\.json'"):
        open_store(tmp_path / "s", SURVEY)
    assert (tmp_path / "s" / "invitations").exists()


@pytest.mark.parametrize("made", [(), ("responses",), ("responses", "invitations")], ids=str)
def test_a_store_whose_making_was_killed_is_made_by_the_next_server(store, tmp_path, made):
    store.close()
    for name in {"survey.json", "responses", "invitations"} - {*made}:
        (tmp_path / "s" / name).unlink()
    (tmp_path / "s" / ".survey.json.new.part").write_bytes(b"{")
    assert open_store(tmp_path / "s", SURVEY).add([arrival()]) == [True]
    assert not list((tmp_path / "s").glob(".*.part"))


def test_what_a_kill_left_of_a_growing_file_is_removed_since_it_tells_what_is_older(store, tmp_path):
    store.close()
    left = tmp_path / "s" / ".responses.0123456789ab.part"
    left.write_bytes((tmp_path / "s" / "responses").read_bytes())
    open_store(tmp_path / "s", SURVEY).add([arrival()])
    assert not left.exists()


@pytest.mark.parametrize(
    "facts",
    [b"[]", b"null", b'"x"', b"1", b"", b"{", b"\xff", b"{}", b"[" * 100_000, b'{"survey": 1}', b'{"survey": null}'],
    ids=lambda facts: repr(facts[:20]),
)
@pytest.mark.parametrize("writable", [True, False], ids=["serve", "results"])
def test_a_description_of_a_store_that_is_no_such_object_is_refused_in_words(store, tmp_path, facts, writable):
    store.close()
    (tmp_path / "s" / "survey.json").write_bytes(facts)
    with pytest.raises(IntegrityError, match=r"'survey\.json' of the store .* was damaged"):
        open_store(tmp_path / "s", SURVEY, writable)


@pytest.mark.parametrize("changed", [{"invitations": "zz"}, {"invitations": "ab"}, {"p": "x"}, {"q": ""}], ids=str)
def test_keys_of_a_store_that_are_no_numbers_are_refused_in_words(tmp_path, changed):
    invited = parse_survey(TEXT.replace("title", "respondents: invited, title"))
    facts = open_store(tmp_path / "i", invited).facts
    (tmp_path / "i" / "survey.json").write_text(json.dumps(facts | changed))
    with pytest.raises(IntegrityError, match=r"'survey\.json' of the store .* was damaged"):
        open_store(tmp_path / "i", invited)


def test_keys_of_a_store_that_do_not_sign_are_refused_before_anybody_is_asked(tmp_path):
    invited = parse_survey(TEXT.replace("title", "respondents: invited, title"))
    facts = open_store(tmp_path / "i", invited).facts
    for wrong in ("0", "1", "2", "3", facts["q"], f"{int(facts['p'], 16) + 2:x}"):
        (tmp_path / "i" / "survey.json").write_text(json.dumps(facts | {"p": wrong}))
        with pytest.raises(IntegrityError, match=r"'survey\.json' of the store .* was damaged"):
            _ = open_service(invited, tmp_path / "i").signer


def test_a_server_whose_lock_was_removed_takes_it_again_or_writes_no_more(store, tmp_path):
    known = arrival()
    store.add([known])
    (tmp_path / "s" / "lock").unlink()
    assert store.add([known, arrival()]) == [False, True]  # nobody else came: it is locked anew
    (tmp_path / "s" / "lock").unlink()
    second = open_store(tmp_path / "s", SURVEY)
    late = arrival()
    assert second.add([late]) == [True]
    with pytest.raises(StorageError, match="another process"):
        store.add([arrival()])
    second.close()
    assert store.add([late, arrival()]) == [False, True]  # what the other took in is known


def test_what_was_written_while_the_lock_went_is_not_acknowledged(store, tmp_path, monkeypatch):
    flush = os.fsync

    def flush_and_lose_the_lock(descriptor: int) -> None:
        flush(descriptor)
        (tmp_path / "s" / "lock").unlink()

    store.claim()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", flush_and_lose_the_lock)
        with pytest.raises(StorageError, match=r"lock .* was removed"):
            store.add([arrival()])
    assert store.add([arrival()]) == [True]
