"""The survey service and its store: what is malformed, replayed or forged is turned away; what is kept names nobody."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from deniable.cli.survey import _build_document
from deniable.curator.survey import SurveyReport, page_of
from deniable.errors import AccessRefused, DataError, IntegrityError, StorageError
from deniable.localdp import client
from deniable.localdp.numeric.scale import mean_among, mean_of
from deniable.localdp.serialization import FORMAT
from deniable.localdp.survey.definition import parse_survey
from deniable.localdp.survey.results import contrast_groups, estimate_results
from deniable.localdp.survey.service import SurveyService, _parse_message, open_service, open_store
from deniable.localdp.survey.store import Arrival
from seeded import SeededEntropy

SURVEY = parse_survey(
    "{survey: ward, title: Ward, questions: {"
    "smoker: {ask: Smoker?, type: yes-no, epsilon: 2},"
    "ward: {ask: Ward?, type: choice, options: [A, B, C], epsilon: 2},"
    "hours: {ask: Hours?, type: number, between: [0, 12], epsilon: 2}}}"
)
CLIENT = client.Survey(SURVEY.describe())


@pytest.fixture
def survey_service(tmp_path: Path) -> SurveyService:
    return open_service(SURVEY, tmp_path / "store")


def message(survey_service: SurveyService, **changes: object) -> bytes:
    responses = CLIENT.responses({"smoker": "no", "ward": "B", "hours": 7}, client.Memory())
    body = {
        "format": FORMAT,
        "survey": SURVEY.identity,
        "ticket": os.urandom(32).hex(),
        "responses": responses,
    } | changes
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
        {"format": FORMAT + 1},
        {"format": float(FORMAT)},
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


def test_a_message_with_a_key_that_stands_twice_is_turned_away(survey_service):
    sent = message(survey_service)
    twice = sent.replace(b'{"format"', b'{"format": 1, "format"', 1)
    assert json.loads(twice) == json.loads(sent)
    with pytest.raises(DataError):
        survey_service.check(twice)


@pytest.mark.parametrize(
    "ticket", ["", "x", "A" * 64, None, 7, "é" * 64, "a" * 10_000, ["a"], "0" * 64 + ".1", "0" * 63]
)
def test_what_is_no_serial_is_no_ticket(survey_service, ticket):
    with pytest.raises(AccessRefused):
        survey_service.check(message(survey_service, ticket=ticket))


INVITED = parse_survey(
    "{survey: w, title: W, respondents: invited, questions: {q: {ask: Q?, type: yes-no, epsilon: 1}}}"
)


@pytest.fixture(scope="module")
def invited(tmp_path_factory: pytest.TempPathFactory) -> SurveyService:
    return open_service(INVITED, tmp_path_factory.mktemp("invited") / "w.responses")


def blinded_for(invited: SurveyService, invitation: str, memory: client.Memory) -> bytes:
    modulus = invited.signer.modulus
    serial, secret = memory.ticket(invitation, modulus)
    body = {"survey": INVITED.identity, "invitation": invitation}
    return json.dumps(body | {"blinded": f"{client.blind(serial, secret, modulus, 65537):x}"}).encode()


def ticket_for(invited: SurveyService, invitation: str, memory: client.Memory) -> str:
    signed = int(invited.exchange(blinded_for(invited, invitation, memory)), 16)
    modulus = invited.signer.modulus
    serial, secret = memory.ticket(invitation, modulus)
    return f"{serial.hex()}.{client.unblind(serial, secret, signed, modulus, 65537):x}"


def answer_with(invited: SurveyService, ticket: str) -> bool:
    body = {"format": FORMAT, "survey": INVITED.identity, "ticket": ticket, "responses": {"q": [[1]]}}
    return invited.store.add([invited.check(json.dumps(body).encode())]) == [True]


def test_an_invitation_lets_one_response_in_and_a_lost_signature_is_given_again(invited):
    (invitation,), memory = invited.invitations(1), client.Memory()
    asked = blinded_for(invited, invitation, memory)
    assert invited.exchange(asked) == invited.exchange(asked)  # the first answer may have been lost
    ticket = ticket_for(invited, invitation, memory)
    assert answer_with(invited, ticket)
    assert not answer_with(invited, ticket)
    with pytest.raises(AccessRefused, match="used before"):
        invited.exchange(blinded_for(invited, invitation, client.Memory()))  # another device, another serial


def test_without_an_invitation_there_is_no_ticket(invited, survey_service):
    memory = client.Memory()
    for forged in ("", "x", "A" * 43, "é" * 43, open_service_elsewhere(invited)):
        with pytest.raises(AccessRefused, match="by invitation"):
            invited.exchange(blinded_for(invited, forged, memory))
    with pytest.raises(DataError):
        survey_service.exchange(b'{"survey": "ward", "invitation": "", "blinded": "1"}')
    for blinded in (0, 1, "zz", None, "f" * 2000, f"{invited.signer.modulus:x}", f"{invited.signer.p:x}", "0", "1"):
        (invitation,) = invited.invitations(1)
        body = {"survey": INVITED.identity, "invitation": invitation, "blinded": blinded}
        with pytest.raises(DataError):
            invited.exchange(json.dumps(body).encode())


def open_service_elsewhere(invited: SurveyService) -> str:
    """An invitation under another key."""
    from deniable.localdp.survey.service import issue_invitation

    return issue_invitation(b"another key" * 3, INVITED.identity)


@pytest.mark.parametrize("ticket", ["", "x", "0" * 64, "0" * 64 + ".", "0" * 64 + ".1", "0" * 64 + ".zz", None, 7])
def test_forged_tickets_are_refused(invited, ticket):
    with pytest.raises(AccessRefused):
        answer_with(invited, ticket)


def test_a_ticket_of_another_key_or_serial_is_refused(invited):
    (invitation,), memory = invited.invitations(1), client.Memory()
    serial, _, signature = ticket_for(invited, invitation, memory).partition(".")
    with pytest.raises(AccessRefused):
        answer_with(invited, f"{'0' * 64}.{signature}")
    with pytest.raises(AccessRefused):
        answer_with(invited, f"{serial}.{int(signature, 16) + invited.signer.modulus:x}")  # the same number, twice


def test_a_ticket_is_a_signature_as_cryptography_checks_it(invited):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import padding, rsa
    from cryptography.hazmat.primitives.hashes import SHA384

    public = rsa.RSAPublicNumbers(65537, invited.signer.modulus).public_key()
    (invitation,) = invited.invitations(1)
    serial, _, signature = ticket_for(invited, invitation, client.Memory()).partition(".")
    raw = int(signature, 16).to_bytes(256, "big")
    public.verify(raw, bytes.fromhex(serial), padding.PSS(padding.MGF1(SHA384()), 0), SHA384())
    with pytest.raises(InvalidSignature):
        public.verify(raw, bytes(32), padding.PSS(padding.MGF1(SHA384()), 0), SHA384())


def test_every_blinded_ticket_could_be_any_serial_so_the_service_cannot_know_one_again(invited):
    """For each pair of a blinded ticket and a serial there is exactly one secret that joins them: none is likelier."""
    modulus, private = invited.signer.modulus, invited.signer._raise_private
    tickets = [client.Memory().ticket("x", modulus) for _ in range(3)]
    for _, secret in tickets:
        for serial, _ in tickets:
            blinded = client.blind(tickets[0][0], secret, modulus, 65537)
            encoded = client.encode_serial(serial, modulus.bit_length())
            joining = private(blinded * pow(encoded, -1, modulus) % modulus)
            assert client.blind(serial, joining, modulus, 65537) == blinded


def test_a_survey_whose_key_is_weak_or_whose_signature_is_wrong_is_refused_by_the_client(invited):
    modulus, memory = invited.signer.modulus, client.Memory()
    serial, secret = memory.ticket("x", modulus)
    for weak, exponent in ((modulus >> 8 | 1, 65537), (modulus + 1, 65537), (modulus, 3)):
        with pytest.raises(client.Refused, match="key"):
            client.blind(serial, secret, weak, exponent)
    with pytest.raises(client.Refused, match="signature"):
        client.unblind(serial, secret, 12345, modulus, 65537)


def test_the_files_keep_no_ticket_no_time_no_order_and_are_the_owners(survey_service, tmp_path):
    sent = [message(survey_service) for _ in range(600)]  # more than fit at first
    for one in sent:
        survey_service.store.add([survey_service.check(one)])
    survey_service.store.close()
    folder = tmp_path / "store"
    assert all(file.stat().st_mode & 0o077 == 0 for file in (folder, *folder.iterdir()))
    content = b"".join(file.read_bytes() for file in folder.iterdir())
    assert not any(json.loads(one)["ticket"].encode() in content for one in sent)
    assert not any(bytes.fromhex(json.loads(one)["ticket"]) in content for one in sent)
    stored = [json.loads(body) for body in open_store(folder, SURVEY, writable=False).bodies()]
    arrived = [json.loads(one)["responses"] for one in sent]
    assert sorted(map(json.dumps, stored)) == sorted(json.dumps(one, sort_keys=True) for one in arrived)


def test_a_store_that_cannot_be_used_is_refused_in_words(tmp_path):
    with pytest.raises(StorageError, match="no store"):
        open_store(tmp_path / "absent", SURVEY, writable=False)
    with pytest.raises(StorageError):
        open_store(tmp_path / "no-such-folder" / "s", SURVEY)
    (tmp_path / "notes.txt").write_text("not a store at all, " * 100)
    with pytest.raises(IntegrityError, match="not a store"):
        open_store(tmp_path / "notes.txt", SURVEY)


def test_a_store_of_another_version_of_the_survey_is_refused(survey_service, tmp_path):
    survey_service.store.add([survey_service.check(message(survey_service))])
    survey_service.store.close()
    edited = parse_survey("{survey: ward, title: Ward, questions: {smoker: {ask: Smoker?, type: yes-no, epsilon: 1}}}")
    with pytest.raises(IntegrityError, match="another version"):
        open_service(edited, tmp_path / "store")


def test_a_disk_that_refuses_loses_nothing_that_was_filed(tmp_path, monkeypatch):
    store = open_store(tmp_path / "s", SURVEY)
    assert store.add([Arrival(b"a" * 32, "{}")]) == [True]
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuse_to_flush)
        with pytest.raises(StorageError, match="disk is full"):
            store.add([Arrival(os.urandom(32), "{}")])
    assert Arrival(b"a" * 32, "{}").stub in store._responses.records
    assert store.add([Arrival(b"a" * 32, "{}")]) == [False]
    store.close()


def refuse_to_flush(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, "")


def test_results_recover_shares_and_means_within_their_intervals(survey_service):
    people = [("yes" if i % 4 == 0 else "no", "AAB"[i % 3], 6 + i % 5) for i in range(3000)]
    batch = []
    for smoker, ward, hours in people:
        told = CLIENT.responses({"smoker": smoker, "ward": ward, "hours": hours}, client.Memory())
        body = {"format": FORMAT, "survey": SURVEY.identity, "ticket": os.urandom(32).hex(), "responses": told}
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


HIDING = parse_survey(
    "{survey: hiding, title: Hiding, unanswered: randomized, questions: {"
    "smoker: {ask: Smoker?, type: yes-no, epsilon: 2},"
    "uses: {ask: Uses?, type: several, options: [A, B], epsilon: 4},"
    "hours: {ask: Hours?, type: number, between: [0, 12], epsilon: 4},"
    "drug: {ask: Drug?, type: word, epsilon: 4, longest: 6}}}"
)
ANSWERED: dict[str, Any] = {"smoker": "yes", "uses": ["A"], "hours": 11, "drug": "Aspirin"}


def respond_in_part(count: int, keep: Any) -> list[str]:
    """Responses of people who leave out what is not kept; noise is drawn from a seed."""
    asked, rng = client.Survey(json.loads(json.dumps(HIDING.describe()))), random.Random(5)
    people = ({name: value for name, value in ANSWERED.items() if keep(name, person)} for person in range(count))
    told = (asked.responses(each, client.Memory(allowance=20), rng.randrange) for each in people)
    return [json.dumps(each) for each in told]


def test_where_it_is_hidden_no_response_shows_which_questions_were_left_out(tmp_path):
    silent, all_of_it = respond_in_part(1, lambda *_: False), respond_in_part(1, lambda *_: True)
    assert [set(json.loads(body)) for body in silent + all_of_it] == [set(ANSWERED)] * 2
    assert [len(part) for part in json.loads(silent[0]).values()] == [
        len(part) for part in json.loads(all_of_it[0]).values()
    ]
    service = open_service(HIDING, tmp_path / "store")
    responses = json.loads(silent[0])
    sent = {"format": FORMAT, "survey": HIDING.identity, "ticket": "0" * 64, "responses": responses}
    assert service.check(json.dumps(sent).encode())
    for name in ANSWERED:
        fewer = {other: parts for other, parts in responses.items() if other != name}
        with pytest.raises(DataError, match="lacks a response"):
            service.check(json.dumps(sent | {"responses": fewer}).encode())


def test_questions_left_out_are_counted_and_the_mean_is_that_of_those_who_answered():
    found = estimate_results(HIDING, respond_in_part(2000, lambda name, person: person % 5 < 3), 0.99999)
    by_name = {one.question: one for one in found.findings}
    shares = {one.question: {share.answer: share for share in one.shares} for one in found.findings}
    for question, answer, truth in (
        ("smoker", "no answer", 0.4), ("smoker", "yes", 0.6), ("smoker", "no", 0.0), ("uses", "A", 0.6),
        ("uses", "no answer", 0.4), ("drug", "aspiri", 0.6), ("drug", "no answer", 0.4),
    ):  # fmt: skip
        assert shares[question][answer].low <= truth <= shares[question][answer].high, (question, answer)
    low, high = by_name["hours"].mean.interval(0.99999)
    assert 6 < low < 11 <= high <= 12
    assert all(one.responses == 2000 and one.moved_by_one > 0 for one in found.findings)
    json.dumps(_build_document(SurveyReport(found)))


@pytest.mark.parametrize("answered", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("people", [20, 200])
def test_the_mean_of_those_who_answered_is_covered_from_twenty_on(answered, people):
    question, rng = HIDING.question("hours"), np.random.default_rng(7)
    part, bit = question.parts
    runs, hits = 150, 0
    for run in range(runs):
        says = rng.random(people) < answered
        mean = mean_of(part, part.randomize(np.where(says, 11, 6), SeededEntropy(run)))
        told = bit.tally(bit.randomize(says.astype(np.int64), SeededEntropy(1000 + run)))[1]
        low, high = mean_among(mean, question.scale, int(told), float(bit.p)).interval(0.95)
        hits += (low <= 11 <= high) if answered else (low, high) == (0, 12) or low <= high
    assert hits >= 0.95 * runs


def test_results_of_nothing_are_empty_and_not_an_error(survey_service):
    found = estimate_results(SURVEY, [])
    assert found.responses == 0
    assert found.amplified is None
    assert all(one.responses == 0 for one in found.findings)


def tamper(name: str, part: int | None = None, **changes: object) -> dict[str, Any]:
    """The survey with a question whose fields, or those of one of its recipes, were changed."""
    described = json.loads(json.dumps(SURVEY.describe()))
    question = next(one for one in described["questions"] if one["name"] == name)
    (question if part is None else question["parts"][part]).update(changes)
    return described


SKETCH = {"protocol": "count-mean-sketch", "width": 4, "hashes": 2, "odds": [1, 1], "flip": 0}
WINDOW = {"protocol": "window", "places": 4, "width": 2, "odds": [2, 1], "scale": {"steps": 1}}
TAMPERED = {
    "a domain of two options": tamper("ward", 0, protocol="k-ary", domain=2, odds=[2, 1]),
    "a domain in text": tamper("ward", 0, domain="3"),
    "a domain of another protocol": tamper("ward", parts=[WINDOW | {"domain": 3}]),
    "strings for options": tamper("ward", parts=[SKETCH | {"flip": 9}]),
    "more steps than the recipe": tamper("hours", steps=24000),
    "steps below zero": tamper("hours", steps=-24),
    "steps in parts": tamper("hours", steps=24.7),
    "no width": tamper("hours", lower=3, upper=3),
    "an end in text": tamper("hours", lower="0"),
    "an end without end": tamper("hours", upper=1e400),
    "an epsilon in text": tamper("ward", epsilon="9"),
    "no epsilon": tamper("ward", epsilon=None),
    "options twice": tamper("ward", options=["A", "A", "B"]),
    "options by name": tamper("ward", options={"A": 1, "B": 2, "C": 3}),
    "fewer recipes": tamper("ward", parts=[]),
    "a limit in text": tamper("ward") | {"most_answers": "x"},
    "a limit below one": tamper("ward") | {"most_answers": -1},
}
ANSWERS = [{"ward": ward} for ward in "ABC"] + [{"hours": hours} for hours in (0, 6, 12)] + [{"smoker": "yes"}]
IN_NODE = """
import { readFileSync } from "node:fs";
const { Refused, checkSurvey } = await import(process.argv[1]);
const refuses = (survey) => {
  try { checkSurvey(survey); return false; } catch (error) { return error instanceof Refused; }
};
console.log(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).map(refuses)));
"""


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_survey_is_refused_whatever_the_answer(name):
    """Were only some answers refused, the arrival of a response would prove the others."""
    for answers in ANSWERS:
        with pytest.raises(client.Refused):
            client.Survey(TAMPERED[name]).responses(answers, client.Memory())


def test_the_browsers_client_refuses_the_same_surveys():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    told = json.dumps([*TAMPERED.values(), SURVEY.describe()]).replace("Infinity", "1e400")
    path = Path(client.__file__).with_name("client.mjs").as_uri()
    words = [node, "--input-type=module", "-e", IN_NODE, path]
    done = subprocess.run(words, input=told, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True] * len(TAMPERED) + [False]


def test_the_loss_of_a_recipe_is_that_of_the_numbers_that_are_run():
    with pytest.raises(client.Refused):
        client.privacy_loss(SKETCH)  # its odds are never drawn, and without flips it tells everything


def test_an_invitation_without_a_pinned_survey_is_refused_before_anything_is_asked():
    with pytest.raises(client.Refused, match="for which survey"):
        client.Survey.fetch("http://127.0.0.1:9/#.INVITATION")


@pytest.mark.parametrize("status", [404, 500, None])
def test_a_server_that_refuses_or_cannot_be_reached_is_told_in_words(status):
    class Refuse(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Refuse) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        answering = Thread(target=server.handle_request) if status else None
        if answering:
            answering.start()
        else:
            server.server_close()
        with pytest.raises(client.Refused, match=f"HTTP status {status} at" if status else "cannot be reached at"):
            client.Survey.fetch(f"{address}/#pinned")
        if answering:
            answering.join()
    with pytest.raises(client.Refused, match="cannot be reached"):
        client.Survey.fetch("http://no such host/")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_a_message_in_an_encoding_that_no_client_sends_is_refused(encoding):
    written = json.dumps({"format": 2, "survey": "s"})
    assert _parse_message(written.encode("utf-8"), {"format", "survey"}) == {"format": 2, "survey": "s"}
    with pytest.raises(DataError, match="not JSON"):
        _parse_message(written.encode(encoding), {"format", "survey"})


def test_an_answer_of_the_wrong_type_is_refused_before_anything_is_counted():
    memory = client.Memory()
    with pytest.raises(client.Refused):
        CLIENT.responses({"smoker": "no", "ward": "B", "hours": "seven"}, memory)
    with pytest.raises(client.Refused, match="has no question 'shoe'"):
        CLIENT.responses({"smoker": "no", "shoe": 41}, memory)
    assert memory.state["spent"] == {}
    assert memory.state["questions"] == {}


def test_a_response_that_is_refused_as_a_whole_uses_up_nothing(tmp_path):
    memory, answers = client.Memory(str(tmp_path / "memory.json")), {"smoker": "no", "ward": "B", "hours": 7}
    CLIENT.responses(answers, memory)
    before, stored = json.dumps(memory.state), (tmp_path / "memory.json").read_text()
    with pytest.raises(client.Refused, match="this device has told"):
        CLIENT.responses(answers | {"ward": "C", "smoker": "yes"}, memory)
    assert json.dumps(memory.state) == before
    assert (tmp_path / "memory.json").read_text() == stored
    assert CLIENT.responses({"smoker": "yes"}, memory)  # what is left can still be told


@pytest.mark.parametrize("content", ["[]", "null", '"x"', "{", ""])
def test_a_memory_whose_file_is_damaged_refuses_to_answer(tmp_path, content):
    (tmp_path / "memory.json").write_text(content)
    with pytest.raises(client.Refused, match="is damaged"):
        client.Memory(str(tmp_path / "memory.json"))


SIGNATURES = ["zz", 5, None, [], "", "-1", "0x"]


@pytest.mark.parametrize("answer", [{"signed": each} for each in SIGNATURES] + [{}, [], None, "x"], ids=json.dumps)
def test_a_server_that_answers_with_no_signature_is_refused(invited, monkeypatch, answer):
    monkeypatch.setattr(client, "_exchange", lambda *_: json.dumps(answer).encode())
    description = json.loads(page_of(invited).document)
    asked = client.Survey(description, "http://127.0.0.1:9", invited.invitations(1)[0])
    with pytest.raises(client.Refused, match="signature"):
        asked.submit({"q": "no"}, client.Memory())


NO_OBJECTS = [b"", b"<!doctype html><p>Sign in</p>", b'{"survey": "h', b"[]", b"null", b"[" * 100_000, b"\xff\xfe"]


@pytest.mark.parametrize("answer", NO_OBJECTS, ids=lambda answer: answer[:12].decode("latin-1"))
def test_a_server_whose_answer_is_no_json_object_is_refused_in_words(monkeypatch, answer):
    monkeypatch.setattr(client, "_exchange", lambda *_: answer)
    for pinned in ("", f"#{client.pin(answer)}"):
        with pytest.raises(client.Refused, match="is not a survey"):
            client.Survey.fetch(f"http://127.0.0.1:9/{pinned}")
    with pytest.raises(client.Refused, match="was sent, but the answer is not a receipt"):
        client.Survey(SURVEY.describe(), "http://127.0.0.1:9").submit({"smoker": "no"})


NO_SIGNATURES = """
import { readFileSync } from "node:fs";
const client = await import(process.argv[1]);
const { key, signed } = JSON.parse(readFileSync(0, "utf8"));
const cases = [...signed.map((each) => [key, each]), [{ ...key, modulus: "zz" }, "1"]];
console.log(JSON.stringify(cases.map(([used, each]) => {
  try {
    return client.finishTicket(used, "x", new client.Memory(), each);
  } catch (refusal) {
    return refusal instanceof client.Refused;
  }
})));
"""


def test_the_client_for_browsers_refuses_what_is_no_signature(invited):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    told = {"key": {"modulus": f"{invited.signer.modulus:x}", "exponent": 65537}, "signed": SIGNATURES}
    path = Path(client.__file__).with_name("client.mjs").as_uri()
    words = [node, "--input-type=module", "-e", NO_SIGNATURES, path]
    done = subprocess.run(words, input=json.dumps(told), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True] * (len(SIGNATURES) + 1)
