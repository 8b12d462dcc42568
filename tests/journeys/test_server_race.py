"""Many clients race for an exact budget: exactly as many questions are granted as fit, not one more, not one less."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

POLICY = """\
version: 1
dataset: clinic
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


def race(serve: Any, clients: int, questions: int, granted: int) -> None:
    """Clients that each ask different questions of one tenth of epsilon, until all are asked."""
    policy = POLICY.replace("GRANTED", str(granted / 10))
    statuses: list[int] = []
    with serve(policy=policy) as served:
        left = iter(range(questions))
        lock = threading.Lock()

        def work() -> None:
            with httpx.Client(timeout=120, headers={"authorization": f"Bearer {served.tokens['ana']}"}) as client:
                while True:
                    with lock:
                        number = next(left, None)
                    if number is None:
                        return
                    sql = f"SELECT COUNT(*) FROM people WHERE age + {number} > 50"
                    status = 503
                    while status == 503:  # busy: nothing was charged, ask again
                        status = client.post(f"{served.http}/v1/query", json={"sql": sql, "epsilon": "0.1"}).status_code
                    statuses.append(status)

        threads = [threading.Thread(target=work) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert statuses.count(200) == granted
        assert statuses.count(402) == questions - granted
        charges = list(served.curator.ledger.entries(acts=("charge",)))
        assert len(charges) == granted
        from deniable.curator import telling

        telling.verify(served.curator.ledger)


def test_a_few_clients_get_exactly_what_fits(serve):
    race(serve, clients=8, questions=40, granted=15)


@pytest.mark.slow
def test_sixty_four_clients_get_exactly_a_thousand_of_ten_thousand(serve):
    race(serve, clients=64, questions=10_000, granted=1000)
