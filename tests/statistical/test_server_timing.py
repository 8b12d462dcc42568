"""Time tells nothing: refusals have one duration, and so have answers with and without a person, to the test's power.

Two kinds of request are made in random order, so that whatever else the machine does falls on both alike: under the
null hypothesis every order of the durations is equally likely, on a quiet machine and on a busy one. Their ranks are
compared (Wilcoxon's rank sum, corrected for ties). The test's power is stated by its own broken twin: the same samples,
one of them delayed by a known time, are told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import statistics
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from deniable.curator import Curator
from deniable.curator.governance import requests
from deniable.errors import DeniableError
from deniable.server import limits
from deniable.server.limits import Limits, wait_for_quantum
from deniable.server.service import Question, Service

QUANTUM = 0.05
ROUNDS = 60
POLICY = """\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {role: identifier}, age: {type: integer, between: [0, 100]}}
budgets: {dataset: {epsilon: 1000000}, purposes: {research: {epsilon: 1000000}},
          analysts: {ana: {purposes: [research], epsilon: 1000000}}}
"""


ALARM = 5.0
"""Standard deviations of a rank sum under the null: beyond them with probability 6e-7, and the ranks of 60 against 60
have lighter tails than the normal distribution. So no test here alarms falsely more often than once in a million."""


def apart(first: list[float], second: list[float]) -> float:
    """How many standard deviations the rank sum of a sample is from what a random order would give."""
    pooled = sorted(first + second)
    places: dict[float, list[int]] = {}
    for place, value in enumerate(pooled, 1):
        places.setdefault(value, []).append(place)
    ranks = {value: statistics.fmean(found) for value, found in places.items()}
    n, m, total = len(first), len(second), len(pooled)
    ties = sum(len(found) ** 3 - len(found) for found in places.values())
    variance = n * m / 12 * ((total + 1) - ties / (total * (total - 1)))
    if variance == 0:
        return 0.0
    return abs(sum(ranks[value] for value in first) - n * (total + 1) / 2) / math.sqrt(variance)


def ticks(durations: list[float]) -> list[float]:
    """Durations in whole quanta: what can be read off a clock beside the jitter of the machine itself."""
    return [round(duration / QUANTUM) for duration in durations]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("timing")
    pq.write_table(pa.table({"id": [f"p{i}" for i in range(400)], "age": [i % 90 for i in range(400)]}),
                   folder / "people.parquet")  # fmt: skip
    (folder / "policy.yaml").write_text(POLICY)
    service = Service(Curator.open(folder / "policy.yaml"), Limits(quantum=QUANTUM, rate=1e6, burst=1e6, guesses=1e6))
    yield service
    service.close()


async def timed(service: Service, token: str, sql: str, padded: bool = True, delay: float = 0.0) -> float:
    """How long one question takes, with the padding that the entry points apply."""
    since = time.monotonic()
    with contextlib.suppress(DeniableError):
        await service.answer(await service.admit(token, "here"), Question(sql, epsilon="1"))
    await asyncio.sleep(delay)
    if padded:
        await wait_for_quantum(since, QUANTUM)
    return time.monotonic() - since


def alternately(service: Service, first: object, second: object) -> tuple[list[float], list[float]]:
    """Samples of two kinds of request, taken in random order, so that the machine's mood is the same for both."""

    async def run() -> tuple[list[float], list[float]]:
        found: tuple[list[float], list[float]] = ([], [])
        order = [0, 1] * ROUNDS
        random.Random(2).shuffle(order)
        for number, which in enumerate(order):
            found[which].append(await (first, second)[which](number))  # type: ignore[operator]
        return found

    return asyncio.run(run())


def test_answers_for_present_and_absent_people_take_the_same_time(service):
    token, _ = requests.issue(service.curator.context, "ana", purposes=["research"])

    def about(person: str):
        return lambda i: timed(service, token, f"SELECT COUNT(*) FROM people WHERE id = '{person}' AND age + {i} > 3")

    present, absent = alternately(service, about("p7"), about("nobody"))
    assert apart(ticks(present), ticks(absent)) < ALARM


def test_refusals_take_the_same_time_whatever_their_reason(service):
    token, _ = requests.issue(service.curator.context, "ana", purposes=["research"])
    unknown, known = alternately(
        service,
        lambda i: timed(service, f"deniable_{i}", "SELECT COUNT(*) FROM people"),
        lambda i: timed(service, token, f"SELECT id FROM people WHERE age > {i}"),
    )
    assert apart(ticks(unknown), ticks(known)) < ALARM


def test_the_test_has_power_a_delay_is_found_where_nothing_pads_it(service):
    token, _ = requests.issue(service.curator.context, "ana", purposes=["research"])

    def asked(i: int):
        return timed(service, token, f"SELECT id FROM people WHERE age > {i}", padded=False)

    first, second = alternately(service, asked, asked)
    # A delay of twice the machine's own jitter, whatever that is now: nine in ten pairs are then in the delayed order.
    cuts = statistics.quantiles(first + second, n=10)
    late = [duration + max(QUANTUM, 2 * (cuts[8] - cuts[0])) for duration in second]
    assert apart(first, second) < ALARM < apart(first, late)


def test_padding_hides_all_but_whole_quanta(monkeypatch):
    now = [100.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(limits.asyncio, "sleep", sleep)

    def shown(work: float) -> float:
        since, now[0] = 100.0, 100.0 + work
        asyncio.run(wait_for_quantum(since, QUANTUM))
        return now[0] - since

    for quanta in range(4):
        inside = [quanta * QUANTUM + share * QUANTUM for share in (0.01, 0.2, 0.5, 0.8, 0.99)]
        assert {round(shown(work), 9) for work in inside} == {round((quanta + 1) * QUANTUM, 9)}
