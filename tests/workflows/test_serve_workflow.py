"""The whole workflow through `deniable serve`: policy, first link, token, questions, request, approval, expiry."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

import deniable
from deniable.errors import AccessRefused

pytest.importorskip("uvicorn", reason="the server extra is not installed")
START = "import sys; from deniable.cli.main import main; sys.argv[0] = 'deniable'; main()"


@contextmanager
def process(policy: Path) -> Iterator[tuple[dict[str, str], subprocess.Popen[str]]]:
    """`deniable serve` on free ports, and what it printed."""
    import socket

    free = []
    for _ in range(3):
        with socket.socket() as each:
            each.bind(("127.0.0.1", 0))
            free.append(str(each.getsockname()[1]))
    command = [sys.executable, "-c", START, "serve", str(policy), "--port", free[0], "--postgres", free[2]]
    running = subprocess.Popen([*command, "--steward", f"127.0.0.1:{free[1]}"], stderr=subprocess.PIPE, text=True)
    found = {"http": f"http://127.0.0.1:{free[0]}", "steward": f"http://127.0.0.1:{free[1]}", "postgres": free[2]}
    try:
        for _ in range(600):
            try:
                httpx.get(found["http"] + "/health", timeout=120)
                break
            except httpx.HTTPError:
                assert running.poll() is None, running.stderr.read()
                time.sleep(0.1)
        yield found, running
    finally:
        if running.poll() is None:
            running.kill()
        running.wait()
        running.stderr.close()


def stopped(running: subprocess.Popen[str]) -> str:
    """Stop politely, and give the log."""
    running.send_signal(signal.SIGTERM)
    log = running.stderr.read()
    assert running.wait(60) == 0
    return log


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda each: each.name)
@pytest.mark.parametrize("at", [0.5, *range(1, 9), "ready"])
def test_a_server_ends_with_its_processes_at_any_moment_of_its_start(tmp_path, request, at, number):
    policy = request.getfixturevalue("write_policy")(tmp_path)
    command = [sys.executable, "-m", "deniable", "serve", str(policy), "--port", "0", "--postgres", "0"]
    running = subprocess.Popen(
        [*command, "--steward", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        if at == "ready":
            running.stderr.readline()
        else:
            time.sleep(at)
        os.killpg(running.pid, number)  # as Control-C and systemd do: to every process
        time.sleep(0.3)
        with suppress(ProcessLookupError):
            running.send_signal(number)
        told = running.communicate(timeout=30)[0]
        assert running.returncode in (0, 130, -number), told
        for _ in range(300):
            try:
                os.killpg(running.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.1)
        else:
            pytest.fail("a process of the server goes on")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        running.stderr.close()


def test_from_the_policy_to_the_expiry(tmp_path, request):
    clinic = request.getfixturevalue("write_policy")
    policy = clinic(tmp_path)
    with process(policy) as (ports, running):
        lines = [running.stderr.readline() for _ in range(5)]
        link = re.search(r"http://\S+/first/\S+", "".join(lines)).group()
        with httpx.Client(base_url=ports["steward"], follow_redirects=True, timeout=120) as steward:
            assert "works once" in steward.get(link).text
            assert "<h1>Overview</h1>" in steward.post(link).text
            assert httpx.post(link, timeout=120).status_code == 403
            page = steward.post("/tokens", data={"name": "ana", "purpose": "research"}).text
            token = re.search(r"deniable_[\w-]{40,}", page).group()

            analyst = deniable.connect(ports["http"], token)
            answer = analyst.query("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", epsilon=40)
            assert {row["sex"] for row in answer} == {"F", "M"}
            assert analyst.query("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", epsilon=40).repeated
            if shutil.which("psql"):
                place = ["-h", "127.0.0.1", "-p", ports["postgres"], "-U", "ana", "clinic"]
                asked = ["-c", "SET deniable.epsilon = 40", "-Atc", "SELECT COUNT(*) FROM people"]
                environment = os.environ | {"PGPASSWORD": token}
                done = subprocess.run(
                    ["psql", *place, *asked], env=environment, capture_output=True, text=True, timeout=60
                )
                assert abs(int(done.stdout.split()[-1]) - 300) < 10, done.stderr

            filed = analyst.request("anonymize", ["people"], k=5)
            assert filed["status"] == "pending"
            assert "</strong> asks for k-anonymous rows of people" in steward.get("/requests").text
            steward.post(f"/requests/{filed['id']}/approve", data={"reason": "for the ward"})
            assert analyst.requests()[0]["status"] == "approved"
            assert analyst.requests()[0]["reason"] == "for the ward"
        log = stopped(running)
    assert "CANARY" not in log
    assert "SELECT" not in log
    assert token not in log

    policy.write_text(policy.read_text().replace("2099-12-31", "2020-12-31"))
    with process(policy) as (ports, running):
        late = deniable.connect(ports["http"], token)
        with pytest.raises(AccessRefused, match="expired"):
            late.query("SELECT sex, COUNT(*) AS n FROM people GROUP BY sex", epsilon=40)
        assert late.register()["releases"], "the record outlives the data"
        log = "".join(running.stderr.readline() for _ in range(4))
        log += stopped(running)
    assert "first start" not in log
    assert "stored answers were forgotten" in log


def test_another_address_needs_tls(tmp_path, request):
    policy = request.getfixturevalue("write_policy")(tmp_path)
    command = [sys.executable, "-c", START, "serve", str(policy), "--host", "0.0.0.0", "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "unencrypted" in done.stderr
