"""Every HTTP route that may charge tells the truth of it: at a deadline, when it is taken back, when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

httpx = pytest.importorskip("httpx", reason="the server extra is not installed")
pytest.importorskip("starlette", reason="the server extra is not installed")

from deniable.engines.duckdb import DuckDBEngine  # noqa: E402
from deniable.errors import ParameterError  # noqa: E402
from deniable.server import scheduler as scheduler_module  # noqa: E402
from deniable.server.http import analyst_api, steward_api  # noqa: E402

CASES = ("late", "early", "broken after", "broken before", "refused after", "stored", "body", "used", "other")
POLICY = """
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {role: identifier}, sex: {categories: [F, M]}, seen: {type: date}}
  friends:
    source: friends.csv
    unit: node
    edges: {from: one, to: other, nodes: people.id}
    columns: {one: {}, other: {}}
  visits:
    source: visits.csv
    unit: row
    columns:
      lat: {type: decimal, between: [10, 12], step: 0.001, role: quasi-identifier}
      lon: {type: decimal, between: [20, 22], step: 0.001, role: quasi-identifier}
budgets:
  dataset: {epsilon: 10000, accounting: pure}
  purposes: {research: {epsilon: 5000}, care: {epsilon: 1}}
  analysts: {ana: {purposes: [research]}, ben: {purposes: [care]}}
tabulation:
%(tabulations)s
stream:
%(streams)s
"""
TABULATION = "  %s: {table: people, cells: [sex], epsilon: %d}\n"
STREAM = (
    "  %s: {table: people, time: seen, every: day, start: 2025-01-01, periods: 2, epsilon: %d, max_periods: 1,"
    " questions: {n: {count: people}}}\n"
)


@dataclass(frozen=True)
class Asking:
    """A route, how it is asked so that each case is a question of its own, and the function behind it."""

    path: Callable[[str], str]
    body: Callable[[str], Any]
    behind: tuple[Any, str]
    who: str = "ana"


def amount(case: str) -> str:
    return str(CASES.index(case) + 1)


def count_seen(case: str) -> dict[str, str]:
    """A question that does not follow from those of other cases."""
    day = f"DATE '2025-01-{int(amount(case)) + 1:02}'"
    return {"sql": f"SELECT COUNT(*) AS n FROM people WHERE seen > {day}", "epsilon": amount(case)}


def find_routes() -> dict[str, Asking]:
    from deniable.curator import Curator
    from deniable.curator.query import batch, network, places, tabulate

    spots: dict[str, Any] = {"table": "visits", "at": ["lat", "lon"]}
    edges: dict[str, Any] = {"table": "friends", "statistic": "edges", "max_degree": 5}
    count = {"sql": "SELECT COUNT(*) AS n FROM people"}
    return {
        "query": Asking(lambda _: "query", count_seen, (Curator, "query")),
        "batch": Asking(
            lambda _: "batch", lambda case: {"questions": list(count.values()), "epsilon": f"0.{amount(case)}"},
            (batch, "query_batch"),
        ),
        "places": Asking(
            lambda _: "places", lambda case: spots | {"epsilon": amount(case)}, (places, "answer_places")
        ),
        "network": Asking(
            lambda _: "network", lambda case: edges | {"epsilon": amount(case)}, (network, "answer_network")
        ),
        "tabulate": Asking(
            lambda case: f"tabulations/{name(case)}", lambda _: None, (tabulate, "tabulate"), "steward"
        ),
        "publish": Asking(
            lambda case: f"streams/{name(case)}", lambda _: None, (steward_api, "publish"), "steward"
        ),
    }  # fmt: skip


def name(case: str) -> str:
    return case.replace(" ", "_")


ROUTES = find_routes()


def test_every_route_that_may_charge_is_in_this_list() -> None:
    operations = (*analyst_api.OPERATIONS, *steward_api.OPERATIONS)
    assert {each.name for each in operations if each.charges} == set(ROUTES)
    # the ways of the service on which a charge is watched and goes on
    waiting = {"charge_for", "answer", "answer_batch"}
    charging = {each.name for each in operations if waiting & set(each.act.__code__.co_names)}
    assert charging == set(ROUTES)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Any) -> Iterator[Any]:
    folder: Path = tmp_path_factory.mktemp("charging")
    (folder / "friends.csv").write_text("one,other\n" + "".join(f"p{i},p{i + 1}\n" for i in range(200)))
    spots = "".join(f"{10 + i % 20 / 10},{20 + i % 7 / 10}\n" for i in range(200))
    (folder / "visits.csv").write_text("lat,lon\n" + spots)
    named = [(name(case), place) for place, case in enumerate(CASES, start=1)]  # each a plan of its own
    written = {"tabulations": "".join(TABULATION % each for each in named)}
    with serving_clinic(folder, POLICY % (written | {"streams": "".join(STREAM % each for each in named)})) as served:
        yield served


def ask(up: Any, route: str, case: str, **headers: str) -> httpx.Response:
    asking = ROUTES[route]
    place = up.steward if asking.who == "steward" else up.http
    headers["authorization"] = f"Bearer {up.tokens[asking.who]}"
    body = asking.body(case)
    given = {} if body is None else {"json": body}
    return httpx.post(f"{place}/v1/{asking.path(case)}", headers=headers, timeout=120, **given)


def count_charges(up: Any) -> int:
    return len(list(up.curator.ledger.entries(acts=("charge",))))


@dataclass
class Gate:
    """Holds work up at some place until it is let go on; `reached` is set by the first that comes there."""

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(120)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate, at which the time of the scheduler is up as soon as work has come to it."""
    found = Gate()

    @contextlib.asynccontextmanager
    async def until_reached(_seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(None) as limit:

            async def look() -> None:
                while not found.reached.is_set() or found.opened.is_set():
                    await asyncio.sleep(0.01)
                limit.reschedule(0)

            looking = asyncio.create_task(look())
            try:
                yield
            finally:
                looking.cancel()

    class Asyncio:
        timeout = staticmethod(until_reached)

        def __getattr__(self, wanted: str) -> Any:
            return getattr(asyncio, wanted)

    monkeypatch.setattr(scheduler_module, "asyncio", Asyncio())
    yield found
    found.opened.set()


def hold_engine(up: Any, monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Hold the engine up once a further charge stands in the ledger."""
    before = count_charges(up)
    for method in ("run", "stream"):
        honest = getattr(DuckDBEngine, method)

        def held(engine: DuckDBEngine, *given: Any, _honest: Any = honest, **rest: Any) -> Any:
            if not gate.opened.is_set() and count_charges(up) > before:
                gate.wait()
            return _honest(engine, *given, **rest)

        monkeypatch.setattr(DuckDBEngine, method, held)


@pytest.mark.parametrize("route", ROUTES)
def test_a_deadline_after_the_charge_says_that_it_stands_and_the_answer_is_found_later(
    up: Any, monkeypatch: pytest.MonkeyPatch, gate: Gate, route: str
) -> None:
    before = count_charges(up)
    hold_engine(up, monkeypatch, gate)
    late = ask(up, route, "late")
    assert count_charges(up) == before + 1
    assert (late.status_code, late.json()["charged"]) == (504, True)
    assert "Nothing was charged" not in late.text
    gate.opened.set()
    again = ask(up, route, "late")
    assert again.status_code == 200, again.text
    assert count_charges(up) == before + 1, "it went on, and its answer was stored"


@pytest.mark.parametrize("route", ROUTES)
def test_a_deadline_before_the_charge_does_not_say_that_nothing_is_charged(
    up: Any, monkeypatch: pytest.MonkeyPatch, gate: Gate, route: str
) -> None:
    from deniable.ledger import Act

    before, ledger = count_charges(up), type(up.curator.ledger)
    honest = ledger.record

    def held(self: Any, posting: Any, *given: Any, **rest: Any) -> Any:
        if posting.act is Act.CHARGE:
            gate.wait()
        return honest(self, posting, *given, **rest)

    monkeypatch.setattr(ledger, "record", held)
    early = ask(up, route, "early")
    assert count_charges(up) == before
    assert (early.status_code, early.json()["charged"]) == (504, None)
    assert "Whether it was charged is not known." in early.json()["message"]
    gate.opened.set()
    assert ask(up, route, "early").status_code == 200
    assert count_charges(up) == before + 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("case", "charged"), [("broken after", True), ("broken before", False), ("refused after", True)]
)
def test_what_fails_says_whether_it_was_charged(
    up: Any, monkeypatch: pytest.MonkeyPatch, route: str, case: str, charged: bool
) -> None:
    owner, function = ROUTES[route].behind
    honest, before = getattr(owner, function), count_charges(up)

    def failing(*given: Any, **rest: Any) -> Any:
        if charged:
            honest(*given, **rest)
        raise ParameterError("a later check") if case == "refused after" else KeyError("a value of a row")

    monkeypatch.setattr(owner, function, failing)
    failed = ask(up, route, case)
    assert count_charges(up) == before + charged
    assert failed.status_code == (400 if case == "refused after" else 500)
    assert failed.json()["charged"] is charged
    assert ("The charge stands" in failed.json()["message"]) is charged
    assert ("Nothing was charged." in failed.json()["message"]) is not charged
    assert "a value of a row" not in failed.text


@pytest.mark.parametrize("route", ROUTES)
def test_the_header_says_whether_this_request_was_charged(up: Any, route: str) -> None:
    before = count_charges(up)
    told = [ask(up, route, "stored").headers["x-deniable-charged"] for _ in range(2)]
    assert told == ["true", "false"]
    assert count_charges(up) == before + 1


@pytest.mark.parametrize("route", [route for route in ROUTES if ROUTES[route].who == "ana"])
def test_a_request_id_serves_one_question_also_where_the_answer_of_another_is_stored(up: Any, route: str) -> None:
    one, other = ({"x-request-id": f"{route} {word}"} for word in ("of one", "of other"))
    assert [ask(up, route, "used", **one).status_code, ask(up, route, "other", **other).status_code] == [200, 200]
    before = count_charges(up)
    for _ in range(2):  # the second time nothing that the server remembers for a moment answers it either
        refused = ask(up, route, "other", **one)
        assert (refused.status_code, refused.json()["charged"]) == (403, False), refused.text
        assert f"request id '{route} of one' was used for another question" in refused.json()["message"]
        assert "entry" in refused.json()["charged_before"]
        assert [ask(up, route, "used", **one).status_code, ask(up, route, "other", **other).status_code] == [200, 200]
    assert count_charges(up) == before


@pytest.mark.parametrize("route", ["query", "places", "network"])
def test_a_running_question_is_taken_back_by_its_request_id(
    up: Any, monkeypatch: pytest.MonkeyPatch, gate: Gate, route: str
) -> None:
    gate.opened.set()  # no deadline here
    held = Gate()
    hold_engine(up, monkeypatch, held)
    up.curator.new_epoch("a question of its own")
    found: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: found.append(ask(up, route, "late", **{"x-request-id": f"{route} one"})))
    asking.start()
    assert held.reached.wait(60)
    headers = {"authorization": f"Bearer {up.tokens['ana']}"}
    told = httpx.delete(f"{up.http}/v1/queries/{route} one", headers=headers, timeout=60).json()
    assert told == {"cancelled": True, "begun": True, "charged": True}
    held.opened.set()
    asking.join(60)
    assert found[0].status_code == 200 or found[0].json()["charged"] is True


@pytest.mark.parametrize("route", [route for route in ROUTES if ROUTES[route].body("body") is None])
@pytest.mark.parametrize("sent", ["[[[", '{"epsilon": 1}', "[]", "null"])
def test_a_body_that_would_not_be_read_is_refused(up: Any, route: str, sent: str) -> None:
    before = count_charges(up)
    headers = {"authorization": f"Bearer {up.tokens['steward']}"}
    refused = httpx.post(f"{up.steward}/v1/{ROUTES[route].path('body')}", headers=headers, content=sent, timeout=60)
    assert (refused.status_code, refused.json()["charged"]) == (400, False)
    assert "takes no body" in refused.json()["message"]
    assert count_charges(up) == before


@pytest.mark.parametrize("path", ["streams/late?last=xx", "tabulations/late?first=", "remaining?purpos=research"])
def test_a_parameter_of_an_address_that_would_not_be_read_is_refused(up: Any, path: str) -> None:
    headers = {"authorization": f"Bearer {up.tokens['ana']}"}
    refused = httpx.get(f"{up.http}/v1/{path}", headers=headers, timeout=60)
    assert refused.status_code == 400
    assert "a parameter of the address is not known here" in refused.json()["message"]
    assert "purpose" in refused.json()["expected"]


@pytest.mark.parametrize("path", ["streams/late", "tabulations/late", "tabulations/late/cells"])
def test_who_may_not_read_what_was_published_is_told_so(up: Any, path: str) -> None:
    refused = httpx.get(f"{up.http}/v1/{path}", headers={"authorization": f"Bearer {up.tokens['auditor']}"}, timeout=60)
    assert refused.status_code == 403
    assert "may not read what streams and tabulations published" in refused.json()["message"]


def test_a_request_id_that_is_too_long_is_refused_on_every_route(up: Any) -> None:
    for route in ROUTES:
        refused = ask(up, route, "body", **{"x-request-id": "x" * 201})
        assert refused.status_code == 400
        assert "request id" in refused.json()["message"]
