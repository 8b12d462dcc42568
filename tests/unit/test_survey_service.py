"""The survey service and its store: what is malformed, replayed or forged is turned away; what is kept names nobody."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pytest

from deniable.errors import AccessRefused, DataError, IntegrityError, StorageError
from deniable.localdp import client
from deniable.localdp.survey import service
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.results import contrast_groups, estimate_results
from deniable.localdp.survey.service import SurveyService, open_service, open_store
from deniable.localdp.survey.store import Arrival, SqliteStore

SURVEY = parse_survey(
    "{survey: ward, title: Ward, questions: {"
    "smoker: {ask: Smoker?, type: yes-no, epsilon: 2},"
    "ward: {ask: Ward?, type: choice, options: [A, B, C], epsilon: 2},"
    "hours: {ask: Hours?, type: number, between: [0, 12], epsilon: 2}}}"
)
CLIENT = client.Survey(SURVEY.describe())


@pytest.fixture
def survey_service(tmp_path: Path) -> SurveyService:
    return open_service(SURVEY, tmp_path / "store.sqlite")


def message(survey_service: SurveyService, **changes: object) -> bytes:
    responses = CLIENT.responses({"smoker": "no", "ward": "B", "hours": 7}, client.Memory())
    body = {"format": 1, "survey": SURVEY.identity, "ticket": survey_service.ticket(), "responses": responses} | changes
    return json.dumps(body).encode()


def test_a_good_message_is_filed_once(survey_service):
    sent = message(survey_service)
    arrival = survey_service.check(sent)
    assert survey_service.store.add([arrival]) == [True]
    assert survey_service.store.add([survey_service.check(sent)]) == [False]  # a replay
    assert survey_service.store.add([arrival, arrival]) == [False, False]
    assert survey_service.store.count() == 1


def test_two_copies_in_one_batch_count_once(survey_service):
    arrival = survey_service.check(message(survey_service))
    assert survey_service.store.add([arrival, arrival]) == [True, False]


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"survey": "another"},
        {"responses": {}},
        {"responses": []},
        {"responses": {"smoker": [[0]], "unknown": [[0]]}},
        {"responses": {"smoker": [[2]]}},
        {"responses": {"smoker": [[0], [0]]}},
        {"responses": {"smoker": [0]}},
        {"responses": {"smoker": "no"}},
        {"responses": {"ward": [["B"]]}},
        {"answers": {"smoker": "no"}},
        {"name": "somebody"},
    ],
)
def test_malformed_messages_are_turned_away(survey_service, changes):
    with pytest.raises(DataError) as refusal:
        survey_service.check(message(survey_service, **changes))
    assert "somebody" not in str(refusal.value)


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"{", b"\xff\xfe", b'{"format": NaN}', b"[" * 100_000, b'"' + b"x" * 70_000 + b'"', b"1e999"],
)
def test_what_is_not_even_a_document_is_turned_away(survey_service, raw):
    with pytest.raises(DataError):
        survey_service.check(raw)


@pytest.mark.parametrize("ticket", ["", "x", "A" * 43, None, 7, "é" * 43, "A" * 10_000, ["A"]])
def test_forged_tickets_are_refused(survey_service, ticket):
    with pytest.raises(AccessRefused):
        survey_service.check(message(survey_service, ticket=ticket))


def test_a_ticket_of_another_survey_or_key_is_refused(survey_service):
    with pytest.raises(AccessRefused):
        survey_service.check(message(survey_service, ticket=service.issue_ticket(survey_service.key, "another")))
    forged = service.issue_ticket(service.make_ticket_key(), SURVEY.identity)
    with pytest.raises(AccessRefused):
        survey_service.check(message(survey_service, ticket=forged))


def test_an_invited_survey_hands_out_no_tickets_but_takes_invitations(tmp_path):
    invited = parse_survey(
        "{survey: w, title: W, respondents: invited, questions: {q: {ask: Q?, type: yes-no, epsilon: 1}}}"
    )
    survey_service = open_service(invited, tmp_path / "s.sqlite")
    with pytest.raises(AccessRefused, match="invitation"):
        survey_service.ticket()
    links = survey_service.invitations(3)
    assert len(set(links)) == 3
    body = {"format": 1, "survey": invited.identity, "ticket": links[0], "responses": {"q": [[1]]}}
    assert survey_service.store.add([survey_service.check(json.dumps(body).encode())]) == [True]


def test_the_file_keeps_no_ticket_no_time_no_order_and_is_the_owners(survey_service, tmp_path):
    sent = [message(survey_service) for _ in range(50)]
    for one in sent:
        survey_service.store.add([survey_service.check(one)])
    survey_service.store.close()
    path = tmp_path / "store.sqlite"
    assert path.stat().st_mode & 0o077 == 0
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not any(json.loads(one)["ticket"].encode() in content for one in sent)
    connection = sqlite3.connect(path)
    columns = [
        row[1] for table in ("tickets", "responses") for row in connection.execute(f"pragma table_info({table})")
    ]
    assert columns == ["stub", "place", "body"]
    stored = [json.loads(body) for (body,) in connection.execute("select body from responses order by place")]
    arrived = [json.loads(one)["responses"] for one in sent]
    connection.close()
    assert stored != arrived
    assert sorted(map(json.dumps, stored)) == sorted(json.dumps(one, sort_keys=True) for one in arrived)


def test_a_store_that_cannot_be_used_is_refused_in_words(tmp_path):
    with pytest.raises(StorageError, match="no store"):
        open_store(tmp_path / "absent.sqlite", SURVEY, writable=False)
    with pytest.raises(StorageError):
        SqliteStore(tmp_path / "no-such-folder" / "s.sqlite")
    (tmp_path / "notes.txt").write_text("not a database at all, " * 100)
    with pytest.raises(IntegrityError, match="not a store"):
        SqliteStore(tmp_path / "notes.txt")


def test_a_store_of_another_version_of_the_survey_is_refused(survey_service, tmp_path):
    survey_service.store.add([survey_service.check(message(survey_service))])
    survey_service.store.close()
    edited = parse_survey("{survey: ward, title: Ward, questions: {smoker: {ask: Smoker?, type: yes-no, epsilon: 1}}}")
    with pytest.raises(IntegrityError, match="another version"):
        open_service(edited, tmp_path / "store.sqlite")


def test_a_full_disk_refuses_the_batch_and_keeps_what_was_filed(tmp_path):
    store = SqliteStore(tmp_path / "s.sqlite")
    assert store.add([Arrival(b"a", "{}")]) == [True]
    pages = store._connection.execute("pragma page_count").fetchone()[0]
    store._connection.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(StorageError):
        store.add([Arrival(os.urandom(32), "x" * 5000) for _ in range(10)])
    assert store.count() == 1
    store.close()


def test_results_recover_shares_and_means_within_their_intervals(survey_service):
    people = [("yes" if i % 4 == 0 else "no", "AAB"[i % 3], 6 + i % 5) for i in range(3000)]
    batch = []
    for smoker, ward, hours in people:
        told = CLIENT.responses({"smoker": smoker, "ward": ward, "hours": hours}, client.Memory())
        body = {"format": 1, "survey": SURVEY.identity, "ticket": survey_service.ticket(), "responses": told}
        batch.append(survey_service.check(json.dumps(body).encode()))
    assert all(survey_service.store.add(batch))
    found = estimate_results(SURVEY, survey_service.store.bodies(), confidence=0.9999999)
    by_name = {one.question: one for one in found.findings}
    smoking = {share.answer: share for share in by_name["smoker"].shares}
    assert smoking["yes"].low <= 0.25 <= smoking["yes"].high
    wards = {share.answer: share for share in by_name["ward"].shares}
    assert wards["A"].low <= 2 / 3 <= wards["A"].high
    assert wards["C"].low <= 0 <= wards["C"].high
    assert sum(share.consistent for share in wards.values()) == pytest.approx(1)
    low, high = by_name["hours"].mean.interval(0.9999999)
    assert low <= 8 <= high
    assert found.local_epsilon == 6
    assert found.amplified.epsilon <= 6
    differences = contrast_groups(SURVEY, survey_service.store.bodies(), by="smoker", of="hours")
    assert differences[0].difference.p_value > 1e-7


def test_results_of_nothing_are_empty_and_not_an_error(survey_service):
    found = estimate_results(SURVEY, [])
    assert found.responses == 0
    assert found.amplified is None
    assert all(one.responses == 0 for one in found.findings)
