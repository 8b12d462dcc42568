"""The analyst's page: a question, its plan or its answer with errors, what is left; and the public register."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deniable.curator import serving
from deniable.governance.grants import Action, Grant
from deniable.server.desk import Desk, Question
from deniable.server.limits import even
from deniable.server.messages import told
from deniable.server.pages import Pages, form_of
from deniable.server.wire.explaining import plan_lines

SHOWN_ROWS = 200


class AnalystPages:
    """The pages of the analysts' port."""

    def __init__(self, desk: Desk, secure: bool) -> None:
        self._desk = desk
        self._pages = Pages(desk, "deniable_analyst", secure)

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/", self._pages.inside(self._home), methods=["GET"]),
            Route("/ask", self._pages.inside(self._ask, form=True), methods=["POST"]),
            Route("/register", self._register, methods=["GET"]),
            *self._pages.routes(),
        ]

    async def _home(self, request: Request, grant: Grant) -> Response:
        return await self._shown(grant, {"purpose": request.query_params.get("purpose", "")[:200]})

    async def _ask(self, request: Request, grant: Grant) -> Response:
        since = time.monotonic()
        form = await form_of(request, self._desk.limits.body)
        values: dict[str, Any] = {}
        try:
            question = _question(form)
            if form.get("deed") == "explain":
                values["plan"] = plan_lines(await self._desk.explain(grant, question))
            else:
                values["answer"] = _shown_answer(await self._desk.answer(grant, question))
        except Exception as failure:
            values["refusal"] = told(failure).message
        await even(since, self._desk.limits.quantum)
        return await self._shown(grant, form, **values)

    async def _shown(self, grant: Grant, form: dict[str, str], **values: Any) -> Response:
        who = self._desk.asker(grant, Action.EXPLAIN, _purpose(grant, form))
        curator = self._desk.curator
        tables = await self._desk.hall(grant, lambda: serving.schema(curator, who))
        balance = await self._desk.hall(grant, lambda: serving.balance(curator, who))
        shown = {"plan": None, "answer": None} | values
        defaults = {"sql": _example(tables), "epsilon": "0.1", "purpose": who.purpose}
        form = defaults | {name: value for name, value in form.items() if value}
        purposes = grant.purposes or ()
        return self._pages.render(
            "analyst.html", name=grant.name, form=form, tables=tables, balance=balance, purposes=purposes, **shown
        )

    async def _register(self, _request: Request) -> Response:
        curator = self._desk.curator
        work = self._desk.workshop.run("register", lambda: serving.register(curator), "register")
        try:
            return self._pages.render("register.html", register=await asyncio.wait_for(work, 30))
        except Exception as failure:
            return self._pages.refused(told(failure))


def _purpose(grant: Grant, form: dict[str, str]) -> str:
    return form.get("purpose", "") or (grant.purposes[0] if grant.purposes else "")


def _question(form: dict[str, str]) -> Question:
    return Question(sql=form.get("sql", ""), epsilon=form.get("epsilon") or None, delta=form.get("delta") or "0",
                    rho=form.get("rho") or None, purpose=form.get("purpose", ""))  # fmt: skip


def _example(tables: list[dict[str, Any]]) -> str:
    private = [table["table"] for table in tables if not table["public"]]
    return f"SELECT COUNT(*) AS n FROM {(private or ['...'])[0]}"  # noqa: S608  shown, and run by nobody


def _shown_answer(answer: Any) -> dict[str, Any]:
    """The numbers with their errors, as the page shows them."""
    names = [name for name in answer.rows.column_names if not name.endswith(("_low", "_high"))]
    rows = answer.rows.slice(0, SHOWN_ROWS).to_pylist()
    return {
        "names": names,
        "rows": [[_cell(row, name) for name in names] for row in rows],
        "more": max(0, answer.rows.num_rows - SHOWN_ROWS),
        "details": answer.release.details,
        "repeated": answer.repeated,
    }


def _cell(row: dict[str, Any], name: str) -> dict[str, str]:
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    error = "" if low is None or high is None else f"{(high - low) / 2:,.4g}"
    return {"text": text, "error": error}
