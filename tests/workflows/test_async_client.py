"""The client for `async` code: questions run beside each other, and one that is cancelled is taken back."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pyarrow as pa
import pytest

import deniable
from deniable.errors import AccessRefused, Cancelled, DeniableError, QueryRefused
from deniable.server.scheduler import ThreadPool


def test_questions_are_awaited_together_and_cost_what_they_cost_one_by_one(served: Any) -> None:
    server = deniable.connect_async(served.http, served.tokens["ana"], purpose="research")
    texts = [f"SELECT COUNT(*) AS n FROM people WHERE age < {age}" for age in (20, 40, 60)]

    async def ask() -> Any:
        before = await server.balance()
        answers = await asyncio.gather(*(server.query(text, epsilon=1) for text in texts))
        return before, answers, await server.balance(), await server.schema(), await server.register()

    before, answers, after, tables, register = asyncio.run(ask())
    assert [answer.scalar() for answer in answers] == [pytest.approx(3 * age, abs=25) for age in (20, 40, 60)]
    assert float(before[-1]["remaining"]["epsilon"]) - float(after[-1]["remaining"]["epsilon"]) == pytest.approx(3)
    assert "is left" in repr(answers[0])
    assert pa.table(answers[0]).num_rows == 1, "the answer speaks Arrow"
    assert any("people" in table.values() for table in tables)
    assert len(register["releases"]) >= 3


def test_refusals_are_those_of_a_curator(served: Any) -> None:
    server = deniable.connect_async(served.http, served.tokens["ana"])
    with pytest.raises(QueryRefused):
        asyncio.run(server.query("SELECT note FROM people", epsilon=1))
    with pytest.raises(AccessRefused):
        asyncio.run(deniable.connect_async(served.http, "deniable_wrong").balance())


def test_a_question_whose_task_is_cancelled_is_taken_back_at_the_server(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = deniable.connect_async(served.http, served.tokens["ana"])
    taken: list[str] = []
    monkeypatch.setattr(deniable.client.Connection, "cancel", lambda _self, request: taken.append(request) or True)
    monkeypatch.setattr(deniable.client.Connection, "query", lambda *_given, **_named: __import__("time").sleep(0.5))

    async def ask() -> None:
        task = asyncio.create_task(server.query("SELECT COUNT(*) FROM people", epsilon=1, request="mine"))
        await asyncio.sleep(0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask())
    assert taken == ["mine"]


def test_a_question_that_was_taken_back_is_not_asked_again(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks again after an answer that is late, and a question taken back has none."""
    before = len(list(served.curator.ledger.entries(acts=("charge",))))
    server = deniable.connect(served.http, served.tokens["ana"])
    monkeypatch.setattr(ThreadPool, "_find_next", lambda _self: None)  # every place is taken: it waits
    told: list[BaseException] = []

    def ask() -> None:
        try:
            server.query("SELECT COUNT(*) FROM people WHERE age > 43", epsilon=1, request="taken back")
        except DeniableError as refusal:
            told.append(refusal)

    asking = threading.Thread(target=ask)
    asking.start()
    until = time.monotonic() + 30
    while not server.cancel("taken back"):
        assert time.monotonic() < until, "the question does not wait"
        time.sleep(0.01)
    monkeypatch.undo()
    asking.join(30)
    assert [type(each) for each in told] == [Cancelled]
    assert len(list(served.curator.ledger.entries(acts=("charge",)))) == before
