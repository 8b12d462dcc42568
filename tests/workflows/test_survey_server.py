"""The survey server as a process: hostile clients, the Python client file, and a kill that loses nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256, sha384
from pathlib import Path

import pytest

from deniable.curator.survey import invite, open_service, page_of
from deniable.localdp import client
from deniable.localdp.serialization import FORMAT

pytest.importorskip("uvicorn", reason="the server extra is not installed")

SURVEY = """\
survey: ward
title: A <b>ward</b> survey & more
questions:
  smoker: {ask: Do you smoke?, type: yes-no, method: two-coins}
  ward: {ask: Which ward?, type: choice, options: [A, B, C], epsilon: 1}
"""


@contextmanager
def served(folder: Path, survey: str = SURVEY) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server process on a free port, until the block ends."""
    (folder / "survey.yaml").write_text(survey)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = "import sys; from deniable.cli.main import main; sys.argv[0] = 'deniable'; main()"
    command = [sys.executable, "-c", start, "survey", "serve", str(folder / "survey.yaml"), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/survey.json", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, process.stderr.read().decode()
                time.sleep(0.1)
        yield address, process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("survey")
    with served(folder) as (address, _):
        yield address, folder


def post(address: str, body: bytes) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body), timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


def test_the_python_client_file_answers_a_survey(server):
    address, _ = server
    survey = client.Survey.fetch(address)
    assert survey.submit({"smoker": "yes", "ward": "C"}) == {"received": True}
    with pytest.raises(client.Refused, match="no question"):
        survey.submit({"smokes": "yes"})
    with pytest.raises(client.Refused, match="is one of"):
        survey.submit({"ward": "D"})


def test_duplicates_replays_and_forgeries_get_their_own_answers(server):
    address, _ = server
    survey = client.Survey.fetch(address)
    ticket = os.urandom(32).hex()
    body = {"format": FORMAT, "survey": survey.description["survey"], "ticket": ticket, "responses": {"ward": [[1]]}}
    assert post(f"{address}/responses", json.dumps(body).encode())[0] == 201
    status, refusal = post(f"{address}/responses", json.dumps(body).encode())
    assert (status, refusal["error"]) == (409, "access")
    assert post(f"{address}/responses", json.dumps(body | {"ticket": "A" * 43}).encode())[0] == 403
    assert post(f"{address}/responses", json.dumps(body | {"responses": {"ward": [[9]]}}).encode())[0] == 422
    assert post(f"{address}/responses", b"not json")[0] == 422
    assert post(f"{address}/responses", b"x" * 100_000)[0] == 422


def test_the_page_is_escaped_and_forbids_other_hosts(server):
    address, _ = server
    with urllib.request.urlopen(address, timeout=20) as answer:
        page, headers = answer.read().decode(), answer.headers
    assert "A &lt;b&gt;ward&lt;/b&gt; survey &amp; more" in page
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "server" not in {name.lower() for name in headers}
    assert "set-cookie" not in {name.lower() for name in headers}
    assert "http" not in page.replace("http-equiv", "").replace(address, "")


def test_the_client_files_are_served_as_they_are(server):
    address, _ = server
    for name in ("client.py", "client.mjs", "vectors.json"):
        with urllib.request.urlopen(f"{address}/sdk/{name}", timeout=20) as answer:
            assert answer.read() == (Path(client.__file__).parent / name).read_bytes()


async def _flood(address: str, survey: str, tickets: list[str], thanked: list[str]) -> None:
    """Send responses over some connections until the server is gone; note every ticket that was acknowledged."""
    port = int(address.rsplit(":", 1)[1])

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await send_all(reader, writer)
        finally:
            writer.close()

    async def send_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while tickets:
            ticket = tickets.pop()
            body = {"format": FORMAT, "survey": survey, "ticket": ticket, "responses": {"ward": [[1]]}}
            raw = json.dumps(body).encode()
            head = f"POST /responses HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
            writer.write(head.encode() + raw)
            status = int((await reader.readline()).split()[1])
            length = 0
            while (line := await reader.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
            if status == 201:
                thanked.append(ticket)

    await asyncio.gather(*(one_connection() for _ in range(32)), return_exceptions=True)


def test_a_kill_in_the_middle_of_a_flood_loses_nothing_that_was_acknowledged(tmp_path):
    with served(tmp_path) as (address, process):
        service = open_service(tmp_path / "survey.yaml")
        survey, tickets, thanked = service.survey.identity, [os.urandom(32).hex() for _ in range(20_000)], []

        def kill_soon() -> None:
            while len(thanked) < 500:
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill_soon)
        killer.start()
        asyncio.run(_flood(address, survey, tickets, thanked))
        killer.join()
    service = open_service(tmp_path / "survey.yaml")
    assert len(thanked) >= 500
    assert tickets  # it really was cut short
    assert service.store.count() >= len(thanked)
    again = [service.check(_message(survey, ticket)) for ticket in thanked]
    assert not any(service.store.add(again))  # every acknowledged ticket is known as used
    service.store.close()


def _message(survey: str, ticket: str) -> bytes:
    return json.dumps({"format": FORMAT, "survey": survey, "ticket": ticket, "responses": {"ward": [[1]]}}).encode()


def place_of(content: bytes, records: list[bytes]) -> list[int]:
    """Where each record lies in a file."""
    places = [content.find(record) for record in records]
    assert min(places) >= 0
    return places


def count_joined(invitations: list[int], responses: list[int]) -> int:
    """How many people are joined with their own response by an intruder who pairs both files in their order."""
    first, second = (sorted(range(len(places)), key=places.__getitem__) for places in (invitations, responses))
    return sum(left == right for left, right in zip(first, second, strict=True))


def correlate_with_arrival(places: list[int]) -> float:
    """Spearman's correlation of place and arrival, in standard deviations of chance."""
    n = len(places)
    rank = {place: at for at, place in enumerate(sorted(places))}
    distance = sum((rank[place] - at) ** 2 for at, place in enumerate(places))
    return (1 - 6 * distance / (n * (n * n - 1))) * (n - 1) ** 0.5


def answer_in_turn(folder: Path, count: int) -> tuple[list[bytes], list[bytes], list[str]]:
    """So many invited people answer one after the other, and the server is killed.

    For each person: what is stored of the invitation, what is stored of the ticket, and secrets no file may hold.
    """
    used, stubs, secrets = [], [], []
    with served(folder, SURVEY + "respondents: invited\n") as (address, process):
        for link in invite(folder / "survey.yaml", count, address):
            survey, memory = client.Survey.fetch(link), client.Memory()
            modulus = int(survey.description["key"]["modulus"], 16)
            serial, secret = memory.ticket(survey.invitation, modulus)
            assert survey.submit({"smoker": "yes", "ward": "C"}, memory) == {"received": True}
            drawn = base64.urlsafe_b64decode(survey.invitation + "=")[:16]
            used.append(sha256(b"used" + drawn).digest())
            stubs.append(sha256(b"used" + serial).digest())
            blinded = client.blind(serial, secret, modulus, 65537)
            secrets += [survey.invitation, serial.hex(), f"{blinded:x}", f"{secret:x}"]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    return used, stubs, secrets


def test_a_ticket_that_was_taken_before_is_sent_without_asking_for_another(tmp_path, monkeypatch):
    asked, exchange = [], client._exchange
    with served(tmp_path, SURVEY + "respondents: invited\n") as (address, _):
        survey, memory = client.Survey.fetch(*invite(tmp_path / "survey.yaml", 1, address)), client.Memory()
        ticket = survey.take_ticket(memory)
        monkeypatch.setattr(client, "_exchange", lambda url, *more: asked.append(url) or exchange(url, *more))
        assert survey.submit({"smoker": "yes", "ward": "C"}, memory, ticket) == {"received": True}
    assert [url.rsplit("/", 1)[1] for url in asked] == ["responses"]


def try_to_join(folder: Path, count: int) -> None:
    used, stubs, secrets = answer_in_turn(folder, count)
    files = {path.name: path.read_bytes() for path in (folder / "survey.responses").iterdir()}
    assert set(files) == {"survey.json", "responses", "invitations", "lock"}  # no log, no journal
    everything = b"".join(files.values())
    assert not any(secret.encode() in everything or bytes.fromhex(secret) in everything for secret in secrets[1::4])
    assert not any(secret.encode() in everything for secret in secrets)
    assert not any(each in files["responses"] for each in used)
    assert not any(each in files["invitations"] for each in stubs)
    invitations, responses = place_of(files["invitations"], used), place_of(files["responses"], stubs)
    # By chance one is right; 15 or more are with probability 3e-13, 6 standard deviations with 2e-9.
    assert count_joined(invitations, responses) < 15
    assert abs(correlate_with_arrival(invitations)) < 6
    assert abs(correlate_with_arrival(responses)) < 6
    ordered = list(range(count))  # the same intruder on files that keep the order of arrival
    assert count_joined(ordered, ordered) == count
    assert correlate_with_arrival(ordered) > 6


def test_the_files_of_a_killed_server_do_not_join_invitations_and_responses(tmp_path):
    try_to_join(tmp_path, 100)


@pytest.mark.slow
def test_the_files_of_a_killed_server_do_not_join_a_thousand_invitations_and_responses(tmp_path):
    try_to_join(tmp_path, 1000)


def test_a_second_server_of_a_survey_and_one_on_a_taken_port_are_refused_before_they_name_an_address(server, tmp_path):
    address, folder = server
    (tmp_path / "other.yaml").write_text(SURVEY)
    start = "import sys; from deniable.cli.main import main; sys.argv[0] = 'deniable'; main()"
    taken = address.rsplit(":", 1)[1]
    for file, port, words in ((folder / "survey.yaml", "1", "in use"), (tmp_path / "other.yaml", taken, "port")):
        command = [sys.executable, "-c", start, "survey", "serve", str(file), "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode
        assert words in done.stderr
        assert "Survey at" not in done.stderr


def test_a_link_that_was_made_for_another_survey_is_refused_by_the_client(server):
    address, folder = server
    service = open_service(folder / "survey.yaml")
    assert client.Survey.fetch(f"{address}/#{page_of(service).pin}").description["survey"] == service.survey.identity
    with pytest.raises(client.Refused, match="another survey"):
        client.Survey.fetch(f"{address}/#{client.pin(b'another')}")


def test_the_pages_files_have_the_hashes_that_are_published(server):
    address, _ = server
    published = (Path(__file__).parents[2] / "docs" / "reference" / "survey-files.md").read_text()
    with urllib.request.urlopen(address, timeout=20) as answer:
        page = answer.read().decode()
    for name in ("static/survey.css", "static/survey.mjs", "static/wording.mjs", "sdk/client.mjs"):
        with urllib.request.urlopen(f"{address}/{name}", timeout=20) as answer:
            integrity = f"sha384-{base64.b64encode(sha384(answer.read()).digest()).decode()}"
        assert f'"/{name}" integrity="{integrity}"' in page
        assert integrity in published, f"{name} is published with another hash: write {integrity}"
    with urllib.request.urlopen(f"{address}/sdk/client.py", timeout=20) as answer:
        assert f"sha384-{base64.b64encode(sha384(answer.read()).digest()).decode()}" in published


@pytest.mark.parametrize("name", ["responses", "lock"])
def test_a_store_that_is_changed_under_the_server_is_not_written_to_and_names_no_file(name, tmp_path):
    with served(tmp_path) as (address, _):
        survey = client.Survey.fetch(address)
        identity = survey.description["survey"]
        assert post(f"{address}/responses", _message(identity, os.urandom(32).hex()))[0] == 201
        store = tmp_path / "survey.responses"
        if name == "responses":
            os.truncate(store / name, (store / name).stat().st_size // 2)
        else:
            (store / name).unlink()
            second = open_service(tmp_path / "survey.yaml")
            second.store.claim()
        left = (store / "responses").read_bytes()
        status, told = post(f"{address}/responses", _message(identity, os.urandom(32).hex()))
        assert status == 503
        assert str(tmp_path) not in json.dumps(told)
        assert (store / "responses").read_bytes() == left
        if name == "lock":
            second.store.close()
            assert post(f"{address}/responses", _message(identity, os.urandom(32).hex()))[0] == 201
