"""The HTTP API: forms of answers, one shape of refusals, idempotent requests, limits, pages."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import threading
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow as pa
import pytest

import deniable
from deniable.client import dbapi
from deniable.curator.governance import requests
from deniable.curator.query.metadata import QuestionPreview
from deniable.errors import AccessRefused, BudgetExceeded, ParameterError, QueryRefused
from deniable.governance.grants import Role
from deniable.server.service import refuse_request_id

OLD = "SELECT COUNT(*) AS n FROM people WHERE age"
COUNT = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"


def ask(
    served: Any, body: dict[str, Any], name: str = "ana", path: str = "/v1/query", **headers: str
) -> httpx.Response:
    """Post a question."""
    headers = {"authorization": f"Bearer {served.tokens[name]}"} | headers
    return httpx.post(served.http + path, json=body, headers=headers, timeout=60)


def get(served: Any, path: str, name: str = "ana", port: str = "http") -> httpx.Response:
    """Get a document."""
    headers = {"authorization": f"Bearer {served.tokens[name]}"}
    return httpx.get(getattr(served, port) + path, headers=headers, timeout=60)


def test_one_answer_in_three_forms(served):
    body = {"sql": COUNT, "epsilon": "50"}
    told = ask(served, body).json()
    assert [row["sex"] for row in told["rows"]] == ["F", "M"]
    assert all(row["n_low"] <= row["n"] <= row["n_high"] for row in told["rows"])
    written = ask(served, body, accept="text/csv").text.splitlines()
    assert written[0] == "sex,n,n_low,n_high"
    arrow = ask(served, body, accept="application/vnd.apache.arrow.stream")
    table = pa.ipc.open_stream(io.BytesIO(arrow.content)).read_all()
    assert table.to_pylist() == told["rows"]
    assert json.loads(table.schema.metadata[b"deniable"])["repeated"] is True
    assert ask(served, body, accept="image/png").status_code == 406


def test_every_refusal_has_one_shape_and_charges_nothing(served):
    before = served.curator.ledger.head().sequence
    cases = [
        ask(served, {"sql": "SELECT * FROM people", "epsilon": "1"}),
        ask(served, {"sql": COUNT}),
        ask(served, {"sql": COUNT, "epsilon": "1e6"}),
        ask(served, {"sql": COUNT, "epsilon": "50000"}, name="ben"),
        ask(served, {"sql": COUNT, "epsilon": "-1"}),
        ask(served, {"sql": COUNT, "epsilon": "1", "purpose": "care"}),
        ask(served, {"sql": COUNT, "epsilonn": "1"}),
        ask(served, {"epsilon": "1"}),
        ask(served, {"sql": COUNT, "epsilon": "1"}, name="auditor"),
        httpx.post(served.http + "/v1/query", json={"sql": COUNT}),
        httpx.get(served.http + "/v1/nothing"),
        httpx.put(served.http + "/v1/query"),
        httpx.post(
            served.http + "/v1/query", content=b"{", headers={"authorization": f"Bearer {served.tokens['ana']}"}
        ),
    ]
    for refused in cases:
        told = refused.json()
        assert refused.status_code >= 400
        assert {"error", "happened", "expected", "remedy", "charged", "message"} <= set(told)
        assert told["charged"] is False
        assert "Traceback" not in refused.text
    assert [each.status_code for each in cases] == [400, 400, 400, 400, 400, 403, 400, 400, 403, 401, 404, 405, 415]
    assert served.curator.ledger.head().sequence == before


def test_the_budget_is_refused_as_such(served):
    refused = ask(served, {"sql": f"{OLD} > 97", "epsilon": "11"}, name="ben")
    assert refused.status_code == 402
    assert refused.json()["error"] == "budget"


def test_a_request_id_is_charged_once_even_when_sent_at_once(served):
    body = {"sql": "SELECT COUNT(*) AS n FROM people WHERE age > 77", "epsilon": "0.5"}
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(ask(served, body, **{"x-request-id": "same"}))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {each.status_code for each in found} == {200}
    assert len({json.dumps(each.json()["rows"]) for each in found}) == 1
    assert sum(entry.request == "same" for entry in served.curator.ledger.entries(acts=("charge",))) == 1
    assert sorted(each.headers["x-deniable-charged"] for each in found) == ["false"] * 5 + ["true"]
    other = ask(served, {"sql": COUNT, "epsilon": "0.125"}, **{"x-request-id": "same"})
    assert other.status_code == 403


def test_another_question_under_the_same_id_at_once_does_not_get_its_answer(served):
    texts, found = [f"SELECT COUNT(*) AS n FROM people WHERE age < {age}" for age in (31, 67)], []

    def send(text: str) -> None:
        found.append((text, ask(served, {"sql": text, "epsilon": "0.125"}, **{"x-request-id": "of two"})))

    senders = [threading.Thread(target=send, args=(texts[i % 2],)) for i in range(6)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    answered = {text for text, response in found if response.status_code == 200}
    assert len(answered) == 1
    assert {response.status_code for text, response in found if text not in answered} == {403}


def test_cost_remaining_schema_dummies_and_receipts(served):
    priced = ask(served, {"sql": f"{OLD} > 96", "epsilon": "10"}, path="/v1/preview").json()
    assert priced["takes"] == 10
    assert priced["in_words"].startswith("Budget of ")
    assert "this takes 10; about " in priced["in_words"]
    assert set(priced) == set(QuestionPreview.__dataclass_fields__)
    assert next(each["node"] for each in get(served, "/v1/remaining").json()["balance"]) == "the dataset"
    tables = {each["table"]: each for each in get(served, "/v1/schema").json()["tables"]}
    assert tables["people"]["columns"][2]["between"] == [0, 100]
    made = get(served, "/v1/schema/people/dummies?rows=50")
    assert "CANARY" not in made.text
    assert {row["sex"] for row in made.json()["rows"]} == {"F", "M"}
    assert get(served, "/v1/schema/nothing/dummies").status_code == 400
    release = ask(served, {"sql": f"{OLD} > 96", "epsilon": "7"}).json()["release"]
    receipt = get(served, f"/v1/receipts/{release}").json()
    assert receipt["release"] == release
    assert get(served, f"/v1/receipts/{release}", name="ben").status_code == 404


def test_the_register_is_public_and_names_nobody(served):
    ask(served, {"sql": COUNT, "epsilon": "3"})
    told = httpx.get(served.http + "/v1/register")
    assert told.status_code == 200
    assert told.json()["releases"]
    assert "ana" not in told.text
    assert "SELECT" not in told.text


def test_stewards_routes_are_not_on_the_analysts_port(served):
    for path in ("/v1/tokens", "/v1/audit", "/v1/budgets", "/metrics", "/v1/verify"):
        assert get(served, path, name="steward").status_code == 404
        assert get(served, path, name="steward", port="steward").status_code == 200
    assert get(served, "/v1/tokens", name="ana", port="steward").status_code == 403
    assert get(served, "/v1/audit", name="auditor", port="steward").status_code == 200
    assert get(served, "/v1/tokens", name="auditor", port="steward").status_code == 403


def test_the_steward_begins_an_epoch_over_http_and_every_analyst_sees_it(served):
    before = ask(served, {"sql": COUNT, "epsilon": "6"}).json()["epoch"]
    path, header = served.steward + "/v1/epoch", {"authorization": f"Bearer {served.tokens['steward']}"}
    for name, port in (("ana", "steward"), ("steward", "http"), ("auditor", "steward")):
        refused = {"authorization": f"Bearer {served.tokens[name]}"}
        told = httpx.post(getattr(served, port) + "/v1/epoch", json={"reason": "new load"}, headers=refused)
        assert told.status_code in (403, 404)
    begun = httpx.post(path, json={"reason": "new load"}, headers=header)
    assert begun.status_code == 201
    assert begun.json()["reason"] == "new load"
    assert httpx.get(path, headers=header).json()["epoch"] == begun.json()["epoch"] != before
    after = ask(served, {"sql": COUNT, "epsilon": "6"}).json()
    assert (after["epoch"], after["repeated"]) == (begun.json()["epoch"], False)
    never = httpx.post(served.steward + "/v1/analysts/ana/resume", headers=header)
    assert never.status_code == 400
    assert "no failures" in never.text


def send_raw(served: Any, head: bytes) -> bytes:
    """What the server sends back for some bytes after which nothing follows, before it closes."""
    host, _, port = served.http.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(head)
        return line.recv(65_536)


def test_what_is_too_long_or_no_request_is_refused_before_more_of_it_comes(served):
    start = f"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {served.tokens['ana']}\r\n"
    kind = "Content-Type: application/json\r\n"
    for _ in range(2):  # the second time the token is remembered, and answers to it may be
        assert ask(served, {"sql": COUNT, "epsilon": "5"}).status_code == 200
        told = send_raw(served, f"{start}{kind}Content-Length: 99999999999999\r\n\r\n".encode())
        assert told.startswith(b"HTTP/1.1 413")
    assert send_raw(served, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").startswith(b"HTTP/1.1 400")


def test_fields_after_a_body_are_no_headers(served):
    body = json.dumps({"sql": COUNT, "epsilon": "5"}).encode()
    chunked = b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    start = b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    token = f"Authorization: Bearer {served.tokens['ana']}\r\n".encode()
    close = b"Connection: close\r\nTransfer-Encoding: chunked\r\n"
    assert send_raw(served, start + token + close + b"\r\n" + chunked + b"\r\n").startswith(b"HTTP/1.1 200")
    told = send_raw(served, start + close + b"\r\n" + chunked + token + b"\r\n")
    assert told.startswith(b"HTTP/1.1 401")


def test_an_offer_of_another_protocol_is_ignored_and_what_is_no_request_is_refused_as_all_is(served):
    body = json.dumps({"sql": COUNT, "epsilon": "5"})
    headers = {"authorization": f"Bearer {served.tokens['ana']}", "content-type": "application/json"}
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2-settings": "AAMAAABkAAQAoAAAAAIAAAAA"}
    with httpx.Client(base_url=served.http, timeout=60) as client:
        for _ in range(2):  # on one connection
            assert client.post("/v1/query", content=body, headers=headers | offer).status_code == 200
    told = send_raw(served, b"POST /v1/query HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    head, _, shown = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert b"x-content-type-options: nosniff" in head
    assert json.loads(shown)["charged"] is False


def test_parameters_beyond_those_of_the_question_and_endless_numbers_are_refused(served):
    asked = {"sql": OLD + " > $1", "epsilon": "0.5"}
    refused = ask(served, {**asked, "parameters": [1, 2, 3]})
    assert (refused.status_code, refused.json()["charged"]) == (400, False)
    assert "3 parameters were given, and the question has 1" in refused.json()["message"]
    assert ask(served, {**asked, "parameters": [1]}).status_code == 200
    header = {"authorization": f"Bearer {served.tokens['ana']}", "content-type": "application/json"}
    raw = b'{"sql": "SELECT 1", "epsilon": ' + b"9" * 5000 + b"}"
    refused = httpx.post(served.http + "/v1/query", content=raw, headers=header, timeout=60)
    assert refused.status_code == 400
    assert "digits" in refused.json()["message"]


REFUSED = [b"a", object(), timedelta(1), float("nan"), np.float32("inf"), [1], np.array([1, 2])]


@pytest.mark.parametrize("value", REFUSED)
def test_values_that_no_column_has_are_refused_before_they_are_sent(served, value):
    connection = deniable.connect(served.http, served.tokens["ana"], timeout=60)
    with pytest.raises(ParameterError, match="a parameter is"):
        connection.query("SELECT COUNT(*) AS n FROM people WHERE age > $1", [value], epsilon=1)


def test_numbers_of_numpy_are_numbers_on_the_way_to_a_server(served):
    connection = deniable.connect(served.http, served.tokens["ana"], timeout=60)
    sql = "SELECT COUNT(*) AS n FROM people WHERE age > -1 AND 2 < $1"
    for large, small in (
        (np.int64(3), np.int64(1)),
        (np.float32(2.5), np.float32(1.5)),
        (np.longdouble(3), np.longdouble(1)),
    ):
        assert connection.query(sql, [large], epsilon=50).scalar() > 0
        assert connection.query(sql, [small], epsilon=50).scalar() == 0


def test_values_of_python_keep_their_types_on_the_way_to_a_server(served):
    """A moment beside a day is compared as a moment, as in this process; a text would be read as a day."""
    day, berlin = date(2024, 3, 31), timezone(timedelta(hours=2))
    connection = deniable.connect(served.http, served.tokens["ana"], timeout=60)
    everybody = connection.query("SELECT COUNT(*) AS n FROM people WHERE age > -1", epsilon=50).scalar()
    with dbapi.connect(served.http, served.tokens["ana"], epsilon=50) as database:
        for constant, value, holds in (
            (f"DATE '{day}'", datetime(2024, 3, 31, 7, 3), True),
            (f"DATE '{day}'", datetime(2024, 3, 31, 1, 3, tzinfo=berlin), False),
            (f"DATE '{day}'", day, False),
            (f"TIMESTAMP '{day} 00:00:01'", day, False),
            ("0.1", Decimal("0.100000000000001"), True),
        ):
            sql = f"SELECT COUNT(*) AS n FROM people WHERE {constant} < $1 AND age > -1"
            assert connection.query(sql, [value], epsilon=50).scalar() == (everybody if holds else 0)
            (told,) = database.cursor().execute(sql.replace("$1", "?"), [value]).fetchone()[:1]
            assert told == (everybody if holds else 0)
    asked = {"sql": OLD + " > $1", "epsilon": "0.5"}
    for odd in (
        {"timestamp": "soon"},
        {"timestamp": "2024-W01-1"},
        {"date": "20240101"},
        {"decimal": 1.5},
        {"decimal": "1_000"},
        {"decimal": " 5 "},
        {"decimal": "\u0665"},
        {"date": 5},
        {"decimal": "a"},
        {"text": "a"},
        {},
        [1],
        {"date": "2024-01-01", "x": 1},
    ):
        refused = ask(served, {**asked, "parameters": [odd]})
        assert (refused.status_code, refused.json()["charged"]) == (400, False)
        assert "a parameter is none that can be read" in refused.json()["message"]


def test_metrics_and_health_say_nothing_about_data(served):
    ask(served, {"sql": COUNT, "epsilon": "5"})
    assert httpx.get(served.http + "/health").json() == {"status": "ok"}
    for path in ("/health", "/ready"):
        assert httpx.get(served.steward + path).json() == {"status": "ok"}
    assert httpx.get(served.http + "/ready").json() == {"status": "ok"}
    text = httpx.get(served.steward + "/metrics", headers={"authorization": f"Bearer {served.tokens['auditor']}"}).text
    assert 'deniable_requests_total{operation="query",status="200"}' in text
    for word in ("ana", "people", "SELECT", "sex", "CANARY"):
        assert word not in text


def test_every_response_has_security_headers(served):
    for address in (served.http + "/", served.http + "/nothing", served.steward + "/", served.http + "/v1/query"):
        headers = httpx.get(address).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_a_token_is_slowed_down_when_it_asks_too_often(serve):
    from deniable.server.limits import Limits

    with serve(limits=Limits(rate=0.001, burst=3, quantum=0.001)) as slow:
        found = [get(slow, "/v1/remaining").status_code for _ in range(5)]
        assert found[:3] == [200] * 3
        assert 429 in found[3:]


def test_the_client_asks_explains_and_gets_refusals_as_exceptions(served):
    server = deniable.connect(served.http, served.tokens["ana"])
    answer = server.query("SELECT COUNT(*) AS n FROM people WHERE sex = $1", ["F"], epsilon=50)
    assert abs(answer.scalar() - 200) < 10
    assert "&plusmn;" in answer._repr_html_()
    assert list(answer.to_pandas().columns) == ["n", "n_low", "n_high"]
    assert server.explain(f"{OLD} > 95", epsilon=1)["cost"]["epsilon"] == "1"
    assert server.preview(f"{OLD} > 95", epsilon=1)["fits"] > 100
    follows = server.explain("SELECT COUNT(*) FILTER (WHERE sex = 'F') AS n FROM people", epsilon=1)
    assert follows["cost"] == {"epsilon": "0", "delta": "0"}
    assert "follows from what was measured" in follows["notes"][0]
    assert {table["table"] for table in server.schema()} == {"people", "towns"}
    assert len(server.dummies("people", 7)) == 7
    assert server.releases()
    with pytest.raises(QueryRefused, match="rows of people"):
        server.query("SELECT * FROM people", epsilon=1)
    with pytest.raises(BudgetExceeded):
        deniable.connect(served.http, served.tokens["ben"]).query(f"{OLD} > 94", epsilon=11)
    with pytest.raises(AccessRefused, match="not valid"):
        deniable.connect(served.http, "deniable_wrong").balance()
    with pytest.raises(ParameterError, match="unencrypted"):
        deniable.connect("http://data.example", "t")


NETWORK = {"table": "people", "statistic": "edges", "epsilon": "0.1"}
PLACES = {"table": "people", "at": ["age", "age"], "epsilon": "0.1"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/query", {"sql": "SELECT COUNT(*) FROM people", "epsilon": "0.1"}),
        ("/v1/explain", {"sql": "SELECT COUNT(*) FROM people", "epsilon": "0.1"}),
        ("/v1/preview", {"sql": "SELECT COUNT(*) FROM people", "epsilon": "0.1"}),
        ("/v1/batch", {"questions": ["SELECT COUNT(*) FROM people"], "epsilon": "0.1"}),
        ("/v1/batch/explain", {"questions": ["SELECT COUNT(*) FROM people"], "epsilon": "0.1"}),
        ("/v1/network", NETWORK), ("/v1/network/explain", NETWORK),
        ("/v1/places", PLACES), ("/v1/places/explain", PLACES),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("name", "purpose"), [("boss", ""), ("boss", "nothing"), ("steward", "nothing")])
def test_a_steward_without_a_budget_is_charged_nothing_whatever_is_asked(served, path, body, name, purpose):
    """The one who is called steward has that of the dataset, for no purpose."""
    before = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))
    if name not in served.tokens:
        served.tokens[name], _ = requests.issue(served.curator.context, name, Role.STEWARD)
    refused = ask(served, body | {"purpose": purpose}, name=name, path=path)
    assert (refused.status_code, refused.json()["error"], refused.json()["charged"]) == (403, "access", False)
    assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == before


def test_the_client_sends_again_under_the_same_id(served, monkeypatch):
    import urllib.error
    import urllib.request

    real, seen = urllib.request.urlopen, []

    def flaky(request: Any, **rest: Any) -> Any:
        seen.append(request.get_header("X-request-id"))
        response = real(request, **rest)
        if len(seen) < 3:  # the answer was given and is lost on its way
            response.close()
            raise urllib.error.URLError("lost")
        return response

    monkeypatch.setattr(urllib.request, "urlopen", flaky)
    deniable.connect(served.http, served.tokens["ana"]).query(
        "SELECT COUNT(*) FROM people WHERE age > 31", epsilon=0.75
    )
    assert len(seen) == 3
    assert len(set(seen)) == 1
    charged = [entry for entry in served.curator.ledger.entries(acts=("charge",)) if entry.request == seen[0]]
    assert len(charged) == 1


def test_the_db_api_connection(served):
    with dbapi.connect(served.http, served.tokens["ana"], epsilon=50) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT sex, COUNT(*) AS n FROM people WHERE sex <> ? AND age >= ? GROUP BY sex", ["?", 0])
        assert [column[0] for column in cursor.description] == ["sex", "n"]
        assert cursor.rowcount == 2
        assert cursor.fetchone()[0] in ("F", "M")
        assert len(cursor.fetchall()) == 1
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute("SELECT nothing FROM people")
    with pytest.raises(dbapi.InterfaceError):
        connection.cursor().execute("SELECT 1")


def test_pages_work_without_scripts_and_refuse_forms_of_other_sites(served):
    with httpx.Client(base_url=served.http, follow_redirects=True) as browser:
        assert "Enter with your token" in browser.get("/").text
        home = browser.post("/enter", data={"token": served.tokens["ana"]})
        assert "What is left" in home.text
        assert "<script>" not in home.text
        answer = browser.post("/ask", data={"sql": COUNT, "epsilon": "50", "deed": "ask"}).text
        assert '<td data-sort="F">F</td>' in answer
        assert "±" in answer
        plan = browser.post("/ask", data={"sql": COUNT, "epsilon": "50", "deed": "explain"}).text
        assert "discrete Laplace" in plan
        refused = browser.post("/ask", data={"sql": "SELECT '<script>' FROM people", "deed": "ask"}).text
        assert 'role="alert"' in refused
        assert "<script>" not in refused
        foreign = browser.post("/ask", data={"sql": COUNT}, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403


def test_a_revoked_token_is_refused_within_a_moment(served):
    import time

    from deniable.server.limits import REPEAT_SECONDS

    token, grant = requests.issue(served.curator.context, "ana", purposes=["research"])
    headers = {"authorization": f"Bearer {token}"}
    assert httpx.get(served.http + "/v1/remaining", headers=headers).status_code == 200
    requests.revoke(served.curator.context, grant.id)
    time.sleep(2 * REPEAT_SECONDS)
    assert httpx.get(served.http + "/v1/remaining", headers=headers).status_code == 401


TERMS = """\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
      seen: {role: insensitive, type: date, between: [2025-01-01, 2025-12-31]}
      note: {role: sensitive}
budgets:
  dataset: {epsilon: 100, accounting: pure}
  purposes:
    research: {epsilon: 50, terms: "Do not try to find out who somebody is."}
    care: {epsilon: 10}
  analysts:
    ana: {purposes: [research], epsilon: 20}
    ben: {purposes: [care], epsilon: 10}
expires: 2099-12-31
"""


def test_terms_are_acknowledged_before_the_first_question(serve):
    with serve(policy=TERMS) as up:
        ana = {"authorization": f"Bearer {up.tokens['ana']}"}
        asked = {"sql": COUNT, "epsilon": "1"}
        assert httpx.post(up.http + "/v1/query", json=asked, headers=ana).status_code == 403
        shown = httpx.get(up.http + "/v1/terms", headers=ana).json()
        assert "who somebody is" in shown["terms"]
        wrong = httpx.post(up.http + "/v1/terms", json={"digest": "0" * 64}, headers=ana)
        assert wrong.status_code == 400
        noted = httpx.post(up.http + "/v1/terms", json={"digest": shown["digest"]}, headers=ana)
        assert noted.json()["acknowledged"]
        assert httpx.post(up.http + "/v1/query", json=asked, headers=ana).status_code == 200


def test_the_steward_sees_risk_and_incidents_and_holds_tokens_up(serve):
    with serve() as up:
        ana, steward = ({"authorization": f"Bearer {up.tokens[who]}"} for who in ("ana", "steward"))
        asked = {"technique": "mask", "tables": ["people"]}
        assert httpx.post(up.http + "/v1/requests", json=asked, headers=ana).status_code == 201
        [request] = httpx.get(up.steward + "/v1/requests", headers=steward).json()["requests"]
        assert request["risk"]["people"]["rows"] == 300
        [own] = httpx.get(up.http + "/v1/requests", headers=ana).json()["requests"]
        assert "risk" not in own, "what is read off the rows is for the steward"
        session = up.session("steward")
        assert "of 300 people are the only ones" in httpx.get(up.steward + "/requests", cookies=session).text
        assert httpx.post(up.http + "/v1/query", json={"sql": COUNT, "epsilon": "1"}, headers=ana).status_code == 200
        found = httpx.get(up.steward + "/v1/incidents", headers=steward).json()
        assert [each["who"] for each in found["usage"]] == ["ana"]
        assert httpx.get(up.steward + "/v1/incidents", headers=ana).status_code == 403
        tokens = httpx.get(up.steward + "/v1/tokens", headers=steward).json()["tokens"]
        identity = next(each["id"] for each in tokens if each["name"] == "ana")
        for act, status in (("pause", 401), ("unpause", 200)):
            path = f"{up.steward}/v1/tokens/{identity}/{act}"
            assert httpx.post(path, json={"reason": "looked at"}, headers=steward).status_code == 200
            time.sleep(0.3)
            assert httpx.get(up.http + "/v1/remaining", headers=ana).status_code == status


SECOND_TRIES = ({"purpose": "nothing like it"}, {"epsilon": "-1"}, {"colour": "red"}, {"sql": "SELEC"}, {"rho": "1"})


@pytest.mark.parametrize("place", range(len(SECOND_TRIES)))
def test_whatever_a_second_try_is_refused_for_it_says_what_the_first_one_charged(served, place):
    again, own = SECOND_TRIES[place], f"paid once {place}"
    headers = {"authorization": f"Bearer {served.tokens['ana']}", "x-request-id": own}
    asked = {"sql": f"SELECT COUNT(*) AS n FROM people WHERE age > {60 + place}", "epsilon": "0.01"}
    assert httpx.post(served.http + "/v1/query", json=asked, headers=headers).status_code == 200
    told = httpx.post(served.http + "/v1/query", json=asked | again, headers=headers)
    assert 400 <= told.status_code < 500
    assert "entry" in told.json()["charged_before"]
    other = httpx.post(served.http + "/v1/query", json=asked | again,
                       headers=headers | {"authorization": f"Bearer {served.tokens['ben']}"})  # fmt: skip
    assert "charged_before" not in other.json(), "it is the asker's own"


def test_taking_back_a_question_says_what_was_charged_under_its_id(served):
    own = "taken back too late"
    headers = {"authorization": f"Bearer {served.tokens['ana']}"}
    asked = {"sql": "SELECT COUNT(*) AS n FROM people WHERE age > 71", "epsilon": "0.01"}
    nothing = httpx.delete(f"{served.http}/v1/queries/{own}", headers=headers).json()
    assert nothing == {"cancelled": False, "charged": None}
    answered = httpx.post(served.http + "/v1/query", json=asked, headers=headers | {"x-request-id": own})
    assert answered.status_code == 200
    told = httpx.delete(f"{served.http}/v1/queries/{own}", headers=headers).json()
    assert (told["cancelled"], told["charged"]) == (False, True)
    assert told["charged_before"].startswith("entry ")
    assert "epsilon 0.01" in told["charged_before"]
    other = {"authorization": f"Bearer {served.tokens['ben']}"}
    assert httpx.delete(f"{served.http}/v1/queries/{own}", headers=other).json() == nothing, "it is the asker's own"


def test_a_question_whose_id_has_a_slash_can_be_taken_back(served):
    for age, own in enumerate(("a/b", "a//b/", "../a", "é ü"), 71):
        headers = {"authorization": f"Bearer {served.tokens['ana']}", "x-request-id": own.encode("latin-1")}
        asked = {"sql": f"SELECT COUNT(*) AS n FROM people WHERE age <> {age}", "epsilon": "0.01"}
        assert httpx.post(served.http + "/v1/query", json=asked, headers=headers, timeout=120).status_code == 200
        del headers["x-request-id"]
        told = httpx.delete(f"{served.http}/v1/queries/{quote(own, safe='')}", headers=headers, timeout=120).json()
        assert told.get("charged_before", "").startswith("entry "), (own, told)
    rules = httpx.get(served.http + "/openapi.json").json()["paths"]["/v1/query"]["post"]["parameters"]
    pattern = next(each["schema"]["pattern"] for each in rules if each["name"] == "X-Request-Id")
    for place in range(256):
        with contextlib.suppress(ParameterError):
            refuse_request_id(chr(place))
            assert re.fullmatch(pattern, chr(place)), place
        if re.fullmatch(pattern, chr(place)):
            refuse_request_id(chr(place))


def test_a_balance_is_told_for_granted_purposes_alone(served):
    assert get(served, "/v1/remaining?purpose=research").status_code == 200
    refused = get(served, "/v1/remaining?purpose=care")
    assert (refused.status_code, refused.json()["happened"]) == (403, "purpose 'care' is outside the grant")


@pytest.mark.parametrize("own", ["", "batches at once"])
def test_equal_batches_at_once_say_one_charge(served, own):
    from concurrent.futures import ThreadPoolExecutor

    texts = [f"SELECT COUNT(*) AS n FROM people WHERE age > {age + len(own)}" for age in (20, 40)]
    asked = {"questions": texts, "epsilon": "0.01"}
    headers = {"authorization": f"Bearer {served.tokens['ana']}"} | ({"x-request-id": own} if own else {})
    before = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))

    def send(_: int) -> httpx.Response:
        return httpx.post(served.http + "/v1/batch", json=asked, headers=headers, timeout=120)

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(send, range(6)))
    assert [each.status_code for each in found] == [200] * 6
    assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == before + 1
    assert sum(each.headers["x-deniable-charged"] == "true" for each in found) == 1
    assert sum(each.json()["repeated"] for each in found) == 5
    assert len({json.dumps([part["rows"] for part in each.json()["answers"]]) for each in found}) == 1


def test_one_question_in_other_words_under_one_id_at_once_says_one_charge(served):
    from concurrent.futures import ThreadPoolExecutor

    def ask(turn: int, words: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {served.tokens['ana']}", "x-request-id": f"words {turn}"}
        asked = {"sql": words.format(30 + turn), "epsilon": "0.01"}
        return httpx.post(served.http + "/v1/query", json=asked, headers=headers, timeout=120)

    worded = ("SELECT COUNT(*) AS n FROM people WHERE age * 7 < {}", "select count(*) as n from people where age*7<{}")
    for turn in range(8):
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(lambda words, turn=turn: ask(turn, words), worded))
        assert [each.status_code for each in found] == [200, 200]
        assert sorted(each.headers["x-deniable-charged"] for each in found) == ["false", "true"]
        assert sorted(each.json()["repeated"] for each in found) == [False, True]
        assert found[0].json()["rows"] == found[1].json()["rows"]


def test_one_batch_in_two_orders_under_one_id_at_once_says_one_charge(served):
    from concurrent.futures import ThreadPoolExecutor

    def ask(turn: int, step: int) -> httpx.Response:
        headers = {"authorization": f"Bearer {served.tokens['ana']}", "x-request-id": f"orders {turn}"}
        texts = [f"SELECT COUNT(*) AS n FROM people WHERE age * 11 <= {age + turn}" for age in (30, 60)]
        asked = {"questions": texts[::step], "epsilon": "0.01"}
        return httpx.post(served.http + "/v1/batch", json=asked, headers=headers, timeout=120)

    for turn in range(6):
        before = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))
        with ThreadPoolExecutor(2) as threads:
            found = list(threads.map(lambda step, turn=turn: ask(turn, step), (1, -1)))
        assert [each.status_code for each in found] == [200, 200]
        assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == before + 1
        assert sorted(each.json()["repeated"] for each in found) == [False, True]


def test_equal_questions_at_once_say_one_charge(served):
    from concurrent.futures import ThreadPoolExecutor

    asked = {"sql": "SELECT sex, COUNT(*) AS n FROM people WHERE age > 17 GROUP BY sex", "epsilon": "0.01"}
    headers = {"authorization": f"Bearer {served.tokens['ana']}"}
    before = sum(1 for _ in served.curator.ledger.entries(acts=("charge",)))
    with ThreadPoolExecutor(6) as threads:
        found = list(
            threads.map(lambda _: httpx.post(served.http + "/v1/query", json=asked, headers=headers), range(6))
        )
    assert [each.status_code for each in found] == [200] * 6
    assert sum(1 for _ in served.curator.ledger.entries(acts=("charge",))) == before + 1
    assert sum(each.headers["x-deniable-charged"] == "true" for each in found) == 1
    assert len({json.dumps(each.json()["rows"]) for each in found}) == 1


def test_a_name_that_stands_twice_in_a_body_is_refused(served):
    body = '{"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": "0.01", "epsilon": "5"}'
    headers = {"authorization": f"Bearer {served.tokens['ana']}", "content-type": "application/json"}
    refused = httpx.post(served.http + "/v1/query", content=body, headers=headers)
    assert (refused.status_code, refused.json()["charged"]) == (400, False)
    assert "twice" in refused.json()["happened"]


def test_two_tokens_are_refused(served):
    headers = [("authorization", f"Bearer {served.tokens[name]}") for name in ("ana", "ben")]
    refused = httpx.get(served.http + "/v1/remaining", headers=headers)
    assert refused.status_code == 401
