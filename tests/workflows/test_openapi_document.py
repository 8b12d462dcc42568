"""The OpenAPI document is what the server does: schemathesis asks everything it says, and more."""

from __future__ import annotations

import httpx
import pytest

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402


def walk(address: str, token: str, examples: int) -> int:
    """Ask every operation with generated bodies and parameters; no answer is a fault of the server."""
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def try_case(case: object) -> None:
            nonlocal asked
            asked += 1
            response = case.call(headers={"authorization": f"Bearer {token}"})  # type: ignore[attr-defined]
            assert response.status_code != 500, response.text
            assert "Traceback" not in response.text
            assert "CANARY" not in response.text
            if response.status_code >= 400:
                assert {"error", "happened", "remedy", "charged"} <= set(response.json())

        try_case()
    return asked


def test_the_document_names_every_operation(served):
    document = httpx.get(served.http + "/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    assert {"/v1/query", "/v1/explain", "/v1/preview", "/v1/remaining", "/v1/register"} <= set(document["paths"])
    for methods in document["paths"].values():
        for operation in methods.values():
            assert operation["summary"]
            assert "200" in operation["responses"] or "201" in operation["responses"]


def test_a_few_generated_requests_find_no_fault(served):
    assert walk(served.http, served.tokens["ana"], 4) > 20
    assert walk(served.steward, served.tokens["steward"], 3) > 15


@pytest.mark.slow
def test_many_generated_requests_find_no_fault(served):
    assert walk(served.http, served.tokens["ana"], 300) > 1000
    assert walk(served.steward, served.tokens["steward"], 100) > 500
