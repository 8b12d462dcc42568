"""The survey server as a process: hostile clients, the Python client file, and a kill that loses nothing."""

from __future__ import annotations

import asyncio
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
from pathlib import Path

import pytest

from deniable.curator.survey import open_service
from deniable.localdp import client

pytest.importorskip("uvicorn", reason="the server extra is not installed")

SURVEY = """\
survey: ward
title: A <b>ward</b> survey & more
questions:
  smoker: {ask: Do you smoke?, type: yes-no, method: two-coins}
  ward: {ask: Which ward?, type: choice, options: [A, B, C], epsilon: 1}
"""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server process on a free port, until the block ends."""
    (folder / "survey.yaml").write_text(SURVEY)
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
    ticket = post(f"{address}/ticket", b"")[1]["ticket"]
    body = {"format": 1, "survey": survey.description["survey"], "ticket": ticket, "responses": {"ward": [[1]]}}
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
            body = {"format": 1, "survey": survey, "ticket": ticket, "responses": {"ward": [[1]]}}
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
        survey, tickets, thanked = service.survey.identity, service.invitations(20_000), []
        service.store.close()

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
    return json.dumps({"format": 1, "survey": survey, "ticket": ticket, "responses": {"ward": [[1]]}}).encode()
