"""Time tells nothing: refusals have one duration, and so have answers with and without a person, to the test's power.

The test compares two samples of durations by the difference of their medians in units of a permutation test. Its power
is stated by its own broken twin: without padding, a delay of a few milliseconds for one of the two is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from deniable.curator import Curator, governing
from deniable.errors import DeniableError
from deniable.server.desk import Desk, Question
from deniable.server.limits import Limits, even

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


def p_value(first: list[float], second: list[float], rounds: int = 2000) -> float:
    """How often a random split of both samples differs as much in its means: a permutation test."""
    rng = random.Random(1)
    pooled, size = first + second, len(first)
    seen = abs(statistics.fmean(first) - statistics.fmean(second))
    larger = 0
    for _ in range(rounds):
        rng.shuffle(pooled)
        larger += abs(statistics.fmean(pooled[:size]) - statistics.fmean(pooled[size:])) >= seen
    return (larger + 1) / (rounds + 1)


def ticks(durations: list[float]) -> list[float]:
    """Durations in whole quanta: what can be read off a clock beside the jitter of the machine itself."""
    return [round(duration / QUANTUM) for duration in durations]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("timing")
    pq.write_table(pa.table({"id": [f"p{i}" for i in range(400)], "age": [i % 90 for i in range(400)]}),
                   folder / "people.parquet")  # fmt: skip
    (folder / "policy.yaml").write_text(POLICY)
    desk = Desk(Curator.open(folder / "policy.yaml"), Limits(quantum=QUANTUM, rate=1e6, burst=1e6, guesses=1e6))
    yield desk
    desk.close()


async def timed(desk: Desk, token: str, sql: str, padded: bool = True, delay: float = 0.0) -> float:
    """How long one question takes, with the padding that the doors apply."""
    since = time.monotonic()
    with contextlib.suppress(DeniableError):
        await desk.answer(desk.admit(token, "here"), Question(sql, epsilon="1"))
    await asyncio.sleep(delay)
    if padded:
        await even(since, QUANTUM)
    return time.monotonic() - since


def alternately(desk: Desk, first: object, second: object) -> tuple[list[float], list[float]]:
    """Samples of two kinds of request, taken in random order, so that the machine's mood is the same for both."""

    async def run() -> tuple[list[float], list[float]]:
        found: tuple[list[float], list[float]] = ([], [])
        order = [0, 1] * ROUNDS
        random.Random(2).shuffle(order)
        for number, which in enumerate(order):
            found[which].append(await (first, second)[which](number))  # type: ignore[operator]
        return found

    return asyncio.run(run())


def test_answers_for_present_and_absent_people_take_the_same_time(desk):
    token, _ = governing.issue(desk.curator, "ana", purposes=["research"])

    def about(person: str):
        return lambda i: timed(desk, token, f"SELECT COUNT(*) FROM people WHERE id = '{person}' AND age + {i} > 3")

    present, absent = alternately(desk, about("p7"), about("nobody"))
    assert p_value(ticks(present), ticks(absent)) > 0.001


def test_refusals_take_the_same_time_whatever_their_reason(desk):
    token, _ = governing.issue(desk.curator, "ana", purposes=["research"])
    unknown, known = alternately(
        desk,
        lambda i: timed(desk, f"deniable_{i}", "SELECT COUNT(*) FROM people"),
        lambda i: timed(desk, token, f"SELECT id FROM people WHERE age > {i}"),
    )
    assert p_value(ticks(unknown), ticks(known)) > 0.001


def test_the_test_has_power_a_delay_without_padding_is_found(desk):
    token, _ = governing.issue(desk.curator, "ana", purposes=["research"])

    def slow(delay: float):
        return lambda i: timed(desk, token, f"SELECT id FROM people WHERE age > {i}", padded=False, delay=delay)

    fast, late = alternately(desk, slow(0.0), slow(QUANTUM))
    assert p_value(fast, late) < 0.001
    hidden, shown = alternately(
        desk,
        lambda i: timed(desk, token, f"SELECT id FROM people WHERE age > {i}"),
        lambda i: timed(desk, token, f"SELECT id FROM people WHERE age > {i}", delay=0.004),
    )
    assert p_value(ticks(hidden), ticks(shown)) > 0.001
