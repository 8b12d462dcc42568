"""AI assistants over the Model Context Protocol: the SDK's own client, by both transports, and hostile calls."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the agents extra is not installed")
import httpx2
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from deniable.curator.governance import requests
from deniable.governance.grants import Role

CANARY = "CANARY"
BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


async def call(client: Client, tool: str, **given: Any) -> tuple[bool, Any]:
    """Whether a call was refused, and what it told."""
    done = await client.call_tool(tool, given)
    text = done.content[0].text
    return bool(done.is_error), json.loads(text) if text.startswith(("{", "[")) else text


def with_http(served: Any, token: str, work: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(served.http + "/mcp", http_client=http)) as client,
        ):
            return await work(client)

    return asyncio.run(run())


def test_an_assistant_looks_explains_asks_and_requests_over_http(served: Any) -> None:
    async def work(client: Client) -> None:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert set(tools) == {
            "list_tables", "explain_query", "ask_query", "explain_batch", "ask_batch", "show_budget", "list_questions",
            "list_requests", "request_release",
        }  # fmt: skip
        assert all(each.description and each.annotations is not None for each in tools.values())
        assert "SELECT" in tools["ask_query"].input_schema["properties"]["sql"]["description"]
        _, tables = await call(client, "list_tables")
        assert [each["table"] for each in tables] == ["people", "towns"]
        before = len(list(served.curator.ledger.entries(acts=("charge",))))
        refused, plan = await call(client, "explain_query", sql=BY_SEX, epsilon="1")
        assert not refused
        assert plan["cost"]["epsilon"] == "1"
        assert len(list(served.curator.ledger.entries(acts=("charge",)))) == before, "explaining is free"
        refused, answer = await call(client, "ask_query", sql=BY_SEX, epsilon="1", request_id="mine")
        assert not refused
        assert answer["charged"]
        assert {row["sex"] for row in answer["rows"]} == {"F", "M"}
        _, again = await call(client, "ask_query", sql=BY_SEX, epsilon=1)  # a number, as models write it
        assert (again["charged"], again["rows"]) == (False, answer["rows"])
        refused, told = await call(client, "ask_query", sql=BY_SEX, epsilon="1", purpose="care", request_id="mine")
        assert (refused, told["charged"]) == (True, False)
        assert told["charged_before"].startswith("entry "), "whatever it is refused for"
        body, headers = {"sql": BY_SEX, "epsilon": "1"}, {"authorization": f"Bearer {served.tokens['ana']}"}
        ask = partial(httpx2.post, served.http + "/v1/query")
        under_mine = ask(json=body | {"epsilon": "2"}, headers=headers | {"X-Request-Id": "mine"})
        assert (under_mine.status_code, under_mine.json()["charged"]) == (403, False), "ids are one name space"
        body["sql"] = "SELECT COUNT(*) AS n FROM people WHERE age > 44"
        assert ask(json=body, headers=headers | {"X-Request-Id": "theirs"}).status_code == 200
        refused, told = await call(client, "ask_query", sql=BY_SEX + " LIMIT 1", epsilon="2", request_id="theirs")
        assert (refused, told["error"]) == (True, "access")
        assert "'theirs'" in told["message"]
        _, asked = await call(client, "list_questions")
        assert [each["request"] for each in asked[:2]] == ["theirs", "mine"]
        entries = {each.request: each.details.get("by") for each in served.curator.ledger.entries(acts=("charge",))}
        assert (entries["mine"], entries["theirs"]) == ("assistant", None)
        _, budget = await call(client, "show_budget")
        assert len(budget) == 3
        refused, told = await call(client, "ask_batch", questions=["SELECT COUNT(*) AS n FROM people WHERE age > 3"])
        assert "together: the argument epsilon, such as 0.5" in told["remedy"]
        refused, told = await call(client, "ask_query", sql="SELECT COUNT(*) AS n FROM people WHERE age > 3")
        assert refused
        assert "the argument epsilon" in told["remedy"]
        assert "psql" not in told["message"]
        refused, filed = await call(
            client, "request_release", technique="anonymize", tables=["people"], justification="for the yearly report"
        )
        assert not refused, filed
        assert (filed["status"], filed["justification"]) == ("pending", "for the yearly report")
        _, listed = await call(client, "list_requests")
        assert listed[0]["id"] == filed["id"]
        shown = [each.uri for each in (await client.list_resources()).resources]
        assert {str(each) for each in shown} == {"deniable://sql", "deniable://words"}
        assert "COUNT(DISTINCT x)" in (await client.read_resource("deniable://sql")).contents[0].text

    with_http(served, served.tokens["ana"], work)
    charges = list(served.curator.ledger.entries(acts=("charge",)))
    assert (charges[-1].analyst, charges[-1].purpose) == ("ana", "research")


def test_an_assistant_asks_several_questions_with_one_charge(served: Any) -> None:
    texts = [f"SELECT COUNT(*) AS n FROM people WHERE age < {age}" for age in (31, 62)]

    def count() -> int:
        return len(list(served.curator.ledger.entries(acts=("charge",))))

    async def work(client: Client) -> None:
        before = count()
        refused, told = await call(client, "explain_batch", questions=texts, epsilon="1")
        assert not refused, told
        assert [each["together"] for each in told["questions"]] == [[1, 2], [1, 2]]
        assert count() == before
        refused, found = await call(client, "ask_batch", questions=texts, epsilon=1, request_id="several")
        assert (refused, found["charged"], found["repeated"]) == (False, True, False)
        assert [each["sql"] for each in found["answers"]] == texts
        assert count() == before + 1
        _, asked = await call(client, "list_questions")
        assert asked[0]["request"] == "several"
        _, again = await call(client, "ask_batch", questions=texts, epsilon="1")
        assert (again["charged"], again["repeated"]) == (False, True)
        assert [each["rows"] for each in again["answers"]] == [each["rows"] for each in found["answers"]]
        refused, why = await call(client, "ask_batch", questions=[*texts, "SELECT note FROM people"], epsilon="1")
        assert (refused, why["charged"], why["question"]) == (True, False, 3)
        assert count() == before + 1

    with_http(served, served.tokens["ana"], work)


@pytest.mark.parametrize(
    ("tool", "given", "happened", "expected"),
    [
        ("ask_qery", {}, "there is no tool called 'ask_qery'", "ask_query"),
        ("ask_query", {"sql": BY_SEX, "epsilom": "1"}, "there is no argument of ask_query called 'epsilom'", "epsilon"),
        ("ask_query", {"epsilon": "1"}, "arguments are missing: 'sql'", ""),
        ("ask_query", {"sql": ["CANARY"], "epsilon": {}}, "arguments are not of their type: 'epsilon', 'sql'", ""),
        ("ask_query", {"sql": BY_SEX, "epsilon": True}, "arguments are not of their type: 'epsilon'", ""),
        ("list_requests", {"purpose": "x"}, "there is no argument of list_requests called 'purpose'", "takes none"),
    ],
)
def test_a_wrong_call_is_refused_in_the_usual_shape_and_charges_nothing(served, tool, given, happened, expected):
    before = len(list(served.curator.ledger.entries(acts=("charge",))))
    refused, told = with_http(served, served.tokens["ana"], lambda client: call(client, tool, **given))
    assert refused
    assert (told["error"], told["happened"], told["charged"]) == ("parameter", happened, False)
    assert expected in told["expected"]
    assert told["message"].endswith("Nothing was charged.")
    assert CANARY not in str(told)
    assert len(list(served.curator.ledger.entries(acts=("charge",)))) == before


def test_without_a_valid_token_nothing_is_told(served: Any) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"accept": "application/json, text/event-stream"}
    for headers in ({}, {"authorization": "Bearer deniable_guess"}):
        refused = httpx2.post(served.http + "/mcp", json=body, headers=headers | accept)
        assert refused.status_code == 401
        assert "clinic" not in refused.text


def test_a_body_that_does_not_arrive_is_not_waited_for(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    from deniable.server.http import endpoints

    monkeypatch.setattr(endpoints, "BODY_SECONDS", 0.1)
    host, port = served.http.removeprefix("http://").split(":")
    head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {served.tokens['ana']}\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as wire:
        wire.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n ".encode())
        assert wire.recv(100).startswith(b"HTTP/1.1 504 ")


def test_a_token_that_is_revoked_stops_the_assistant_at_its_next_call(served: Any) -> None:
    token, grant = requests.issue(served.curator.context, "ana", Role.ANALYST, ["research"])

    async def work(client: Client) -> str:
        assert not (await call(client, "list_tables"))[0]
        requests.revoke(served.curator.context, grant.id)
        await asyncio.sleep(0.3)
        with pytest.raises(Exception) as refused:  # noqa: PT011  the SDK's own, or one of its HTTP client
            await call(client, "list_tables")
        return repr(refused.value)

    assert with_http(served, token, work)


HOSTILE = (
    "SELECT note FROM people", "SELECT * FROM people", "SELECT MIN(note) FROM people", "SELECT COUNT(*) FROM secret",
    "SELECT COUNT(*) FROM people; DROP TABLE people", "SELECT * FROM read_csv('secret.csv')", "",
    "SELECT id, COUNT(*) FROM people GROUP BY id", "SELECT COUNT(*) FROM people WHERE note = 'CANARY 7'", "'", "\x00",
)  # fmt: skip
AMOUNTS = ("0.5", "1", "2", "9", "11", "1e9", "1e999", "-1", "nan", "", "inf", "0", "1/0", "20001")
PURPOSES = ("care", "care", "", "", "research", "everything", "care' OR 1=1", "steward")


def test_two_hundred_hostile_calls_stay_within_grant_purpose_and_budget(served: Any) -> None:
    """Ben may spend 10 for care; whatever an assistant with his token is tricked into, it is never more."""
    draw = random.Random(7)
    told: list[str] = []

    async def work(client: Client) -> None:
        for i in range(200):
            tool = draw.choice(("ask_query",) * 6 + ("explain_query", "request_release", "list_tables", "approve"))
            given: dict[str, Any] = {"purpose": draw.choice(PURPOSES)}
            if tool in ("ask_query", "explain_query"):
                good = f"SELECT COUNT(*) AS n FROM people WHERE age < {draw.randrange(100)}"
                given |= {"sql": draw.choice((*HOSTILE, good, good, good)), "epsilon": draw.choice(AMOUNTS)}
                given |= {"rho": draw.choice(AMOUNTS)} if draw.random() < 0.1 else {}
                given |= {"request_id": f"r{i % 5}"} if tool == "ask_query" and draw.random() < 0.3 else {}
            if tool == "request_release":
                given |= {"technique": draw.choice(("mask", "grant", "synthesize")), "tables": ["people"]}
                given |= {"parameters": {"epsilon": draw.choice(AMOUNTS)}}
            try:
                told.append(json.dumps((await client.call_tool(tool, given)).model_dump(mode="json")))
            except Exception as refusal:
                told.append(repr(refusal))

    with_http(served, served.tokens["ben"], work)
    entries = [each for each in served.curator.ledger.entries() if each.analyst == "ben"]
    charged = [each for each in entries if each.act == "charge"]
    assert charged, "some of the calls were honest"
    assert {each.purpose for each in entries} <= {"care"}
    assert {each.act for each in entries} <= {"charge", "request", "fail"}
    left = served.curator.ledger.balance("care", "ben")[-1]
    assert left.spent is not None
    assert left.spent.epsilon <= 10
    assert len(told) == 200
    assert not any(CANARY in each and "said" in each for each in told)
    assert not any("Traceback" in each for each in told)


def test_the_same_over_standard_streams_as_a_real_process(tmp_path: Path, write_policy: Any) -> None:
    from deniable.curator import Curator

    policy = write_policy(tmp_path)
    with Curator.open(policy, ledger=str(tmp_path / "policy.ledger.sqlite")) as curator:
        token, _ = requests.issue(curator.context, "ana", Role.ANALYST, ["research"])
    environment = {**os.environ, "DENIABLE_TOKEN": token}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "deniable", "mcp", str(policy)], env=environment, cwd=tmp_path
    )

    async def run() -> tuple[bool, Any]:
        async with Client(server) as client:
            return await call(client, "ask_query", sql=BY_SEX, epsilon="5")

    refused, answer = asyncio.run(run())
    assert not refused, answer
    assert answer["charged"]
    with Curator.open(policy, ledger=str(tmp_path / "policy.ledger.sqlite")) as curator:
        assert [each.analyst for each in curator.ledger.entries(acts=("charge",))] == ["ana"]


def test_without_a_token_the_command_says_what_is_missing(tmp_path: Path, write_policy: Any) -> None:
    import subprocess

    environment = {name: value for name, value in os.environ.items() if name != "DENIABLE_TOKEN"}
    done = subprocess.run(
        [sys.executable, "-m", "deniable", "mcp", str(write_policy(tmp_path))],
        capture_output=True, text=True, env=environment, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "DENIABLE_TOKEN" in done.stderr
