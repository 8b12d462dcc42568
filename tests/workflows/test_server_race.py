"""Many clients race for an exact budget: exactly as many questions are granted as fit, not one more, not one less."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

POLICY = """\
version: 1
dataset: DATASET
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      age: {type: integer, between: [0, 100]}
budgets:
  dataset: {epsilon: GRANTED, accounting: pure}
  purposes:
    research: {epsilon: GRANTED}
    care: {epsilon: GRANTED}
  analysts:
    ana: {purposes: [research], epsilon: GRANTED}
    ben: {purposes: [research], epsilon: GRANTED}
"""
SERVER = """
import asyncio, contextlib, sys
from pathlib import Path
from deniable.curator import Curator
from deniable.server.worker_pool import WorkerPool
from deniable.server.limits import Limits
from deniable.server.serve import ServerOptions, run, start

async def main(policy, ledger, processes):
    limits = Limits(rate=1e6, burst=1e6, at_once=64, quantum=0.005, seconds=120)
    workers = WorkerPool(Path(policy), ledger, processes) if processes else None
    with Curator.open(policy, ledger=ledger) as curator:
        async with contextlib.AsyncExitStack() as stack:
            options = ServerOptions(port=0, steward="127.0.0.1:0", postgres=None)
            running = await start(stack, curator, options, limits, pool=workers)
            print(running.http, flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


def ask_all(addresses: Sequence[str], token: str, clients: int, questions: int) -> list[int]:
    """The statuses of different questions of one tenth of epsilon each, asked by clients spread over the servers."""
    statuses: list[int] = []
    left, lock = iter(range(questions)), threading.Lock()

    def work(address: str) -> None:
        with httpx.Client(timeout=300, headers={"authorization": f"Bearer {token}"}) as client:
            while True:
                with lock:
                    number = next(left, None)
                if number is None:
                    return
                sql = f"SELECT COUNT(*) FROM people WHERE age + {number} > 50"
                status = 503
                while status == 503:  # busy: nothing was charged, ask again
                    status = client.post(f"{address}/v1/query", json={"sql": sql, "epsilon": "0.1"}).status_code
                statuses.append(status)

    threads = [threading.Thread(target=work, args=(addresses[i % len(addresses)],)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


def exactly(statuses: list[int], ledger: Any, questions: int, granted: int) -> None:
    """As many answers as fit, as many charges as answers, and a chain that verifies."""
    from deniable.curator.governance import reports

    assert statuses.count(200) == granted
    assert statuses.count(402) == questions - granted
    assert len(list(ledger.entries(acts=("charge",)))) == granted
    reports.verify_ledger(ledger)


def race(serve: Any, clients: int, questions: int, granted: int) -> None:
    """One server over SQLite, in this process."""
    policy = POLICY.replace("GRANTED", str(granted / 10)).replace("DATASET", "clinic")
    with serve(policy=policy) as served:
        statuses = ask_all([served.http], served.tokens["ana"], clients, questions)
        exactly(statuses, served.curator.ledger, questions, granted)


@contextlib.contextmanager
def servers(policy: Path, ledger: str, count: int, processes: int) -> Iterator[list[str]]:
    """Server processes of their own over one ledger."""
    script = policy.with_name("serve.py")
    script.write_text(SERVER)
    command = [sys.executable, str(script), str(policy), ledger, str(processes)]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)
        for _ in range(count)
    ]
    try:
        yield [f"http://127.0.0.1:{int(each.stdout.readline())}" for each in running]
        for each in running:
            each.communicate("stop\n", timeout=60)
    finally:
        for each in running:
            each.kill()
            each.wait()
            each.stdin.close()
            each.stdout.close()


def shared_race(
    folder: Path, write_policy: Any, ledger: str, clients: int, questions: int, granted: int, processes: int = 0
) -> None:
    """Two server processes over one ledger."""
    pytest.importorskip("uvicorn", reason="the server extra is not installed")
    from deniable.curator import Curator
    from deniable.curator.governance import requests

    dataset = f"d{uuid.uuid4().hex[:12]}"
    policy = write_policy(folder)
    policy.write_text(POLICY.replace("GRANTED", str(granted / 10)).replace("DATASET", dataset))
    with Curator.open(policy, ledger=ledger) as curator:
        token, _ = requests.issue(curator.context, "ana", purposes=["research"])
        with servers(policy, ledger, 2, processes) as addresses:
            statuses = ask_all(addresses, token, clients, questions)
        exactly(statuses, curator.ledger, questions, granted)


def test_a_few_clients_get_exactly_what_fits(serve):
    race(serve, clients=8, questions=40, granted=15)


def test_two_servers_over_one_postgres_grant_exactly_what_fits(tmp_path, write_policy, postgres_address):
    shared_race(tmp_path, write_policy, postgres_address, clients=8, questions=40, granted=15)


def test_two_servers_with_crews_over_one_sqlite_file_grant_exactly_what_fits(tmp_path, write_policy):
    ledger = str(tmp_path / "shared.sqlite")
    shared_race(tmp_path, write_policy, ledger, clients=8, questions=40, granted=15, processes=1)


@pytest.mark.slow
def test_sixty_four_clients_get_exactly_a_thousand_of_ten_thousand(serve):
    race(serve, clients=64, questions=10_000, granted=1000)


@pytest.mark.slow
def test_sixty_four_clients_of_two_servers_get_exactly_a_thousand_on_postgres(tmp_path, write_policy, postgres_address):
    shared_race(tmp_path, write_policy, postgres_address, clients=64, questions=10_000, granted=1000)
