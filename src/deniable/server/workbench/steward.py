"""The pages of the steward's port: standing, approvals, budgets, the ledger, people, incidents, tokens, the estate.

The auditor sees what is looked at, and no form that changes anything. A one-time link lets the steward in at the first
start. The policy editor and the guided start are in modules of their own."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator.anonymize import explore
from deniable.curator.governance import estate, reports, requests, withdrawals
from deniable.errors import AccessRefused, DeniableError, ParameterError
from deniable.governance.grants import Action, Asker, Grant, Role
from deniable.policy.budget import ZCDP
from deniable.policy.schema import Role as ColumnRole
from deniable.server.limits import wait_for_quantum
from deniable.server.refusals import translate_failure
from deniable.server.service import Service
from deniable.server.workbench.charts import COLORS, Spending, draw_spending
from deniable.server.workbench.guided_start import GuidedStart
from deniable.server.workbench.labs import Laboratories
from deniable.server.workbench.labs.anonymity import LatticeLab, TradeoffLab
from deniable.server.workbench.labs.attack import AttackLab
from deniable.server.workbench.labs.models import ModelLab, SyntheticLab
from deniable.server.workbench.labs.survey import SurveyLab
from deniable.server.workbench.pages import Pages, read_fields, read_form, refuse_foreign_form
from deniable.server.workbench.policy_editor import PolicyEditor

if TYPE_CHECKING:
    from deniable.curator.context import Context
    from deniable.policy.schema import Column

LINKS = (
    ("/", "Overview"),
    ("/requests", "Approvals"),
    ("/budgets", "Budgets"),
    ("/policy", "Policy"),
    ("/tokens", "Tokens"),
    ("/people", "People"),
    ("/ledger", "Ledger"),
    ("/incidents", "Incidents"),
    ("/estate", "Estate"),
    ("/labs", "Laboratories"),
    ("/start", "New table"),
)
ROLES = frozenset({Role.STEWARD, Role.AUDITOR})
LABS = (LatticeLab, TradeoffLab, AttackLab, SyntheticLab, ModelLab, SurveyLab)
NEWEST = 50
REFERENCE = 8
"""Letters of a keyed digest by which a report names its person."""
MOST_DAYS = 60
LINK_SECONDS = 15 * 60.0
"""How long the link of a first start is good for."""


class OneTimeKey:
    """A key that opens the steward's page once within some minutes, and is then nothing."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text
        self._made = time.monotonic()

    @classmethod
    def new(cls) -> tuple[OneTimeKey, str]:
        """A key and its text, which is shown once."""
        text = secrets.token_urlsafe(24)
        return cls(text), text

    def fits(self, text: str) -> bool:
        """Whether it opens."""
        if self._text is None or time.monotonic() - self._made > LINK_SECONDS:
            return False
        return hmac.compare_digest(self._text.encode(), text.encode("utf-8", "replace"))

    def use(self, text: str) -> None:
        """Open once, or refuse."""
        if not self.fits(text):
            raise AccessRefused(
                "this link was used, is over, or never existed", remedy="Issue a token: deniable token --help"
            )
        self._text = None


def has_steward(context: Context) -> bool:
    """Whether somebody holds a steward's token."""
    listed = requests.list_tokens(context).values()
    return any(each["role"] == Role.STEWARD and not each["revoked"] for each in listed)


class StewardPages:
    """The pages of the steward's port."""

    def __init__(self, service: Service, first: OneTimeKey, secure: bool) -> None:
        self._service = service
        self._first = first
        self.pages = Pages(service, "steward", secure, LINKS, ROLES)

    def routes(self) -> list[Route]:
        """All of them."""
        inside = self.pages.require_session
        shown = {"/": self._show_overview, "/requests": self._show_requests, "/budgets": self._show_budgets,
                 "/tokens": self._show_tokens, "/people": self._show_people, "/ledger": self._show_ledger,
                 "/incidents": self._show_incidents, "/estate": self._show_estate}  # fmt: skip
        forms = {"/requests/{request}/{decision}": self._decide, "/tokens": self._issue,
                 "/tokens/{token}/{act}": self._change_token, "/people/{act}": self._act_on_person}  # fmt: skip
        return [
            *(Route(path, inside(page), methods=["GET"]) for path, page in shown.items()),
            *(Route(path, inside(page, form=True), methods=["POST"]) for path, page in forms.items()),
            Route("/first/{key}", self._first_page, methods=["GET"]),
            Route("/first/{key}", self._first_entry, methods=["POST"]),
            *PolicyEditor(self._service, self.pages).routes(),
            *GuidedStart(self._service, self.pages).routes(),
            *Laboratories(self._service, self.pages, [lab(self._service, self.pages) for lab in LABS]).routes(),
            *self.pages.routes(),
        ]

    # The first start

    async def _first_page(self, request: Request) -> Response:
        """A button, so that a preview of the link does not use it up."""
        key = str(request.path_params["key"])
        if not self._first.fits(key):
            return self.pages.render("enter.html", 403, refusal="This link was used, is over, or never existed.")
        return self.pages.render("first.html", key=key)

    async def _first_entry(self, request: Request) -> Response:
        since = time.monotonic()
        try:
            refuse_foreign_form(request)
            self._first.use(str(request.path_params["key"]))
            token = await self._service.scheduler.run("steward", self._issue_first_token)
        except Exception as failure:
            await wait_for_quantum(since, self._service.limits.quantum)
            return self.pages.show_refusal(request, translate_failure(failure))
        return self.pages.start_session(request, token)

    def _issue_first_token(self) -> str:
        """The first steward's token; refuses where another steward came first, by whichever way."""
        context = self._service.curator.context
        if has_steward(context):
            raise AccessRefused("there is a steward already", remedy="Ask the steward for a token")
        return requests.issue(context, "steward", Role.STEWARD, None, 30)[0]

    # Looking

    async def _show_overview(self, _request: Request, grant: Grant) -> Response:
        found = await self._look(grant, _summarize)
        return self._render("overview.html", "/", grant, **found)

    async def _show_requests(self, _request: Request, grant: Grant) -> Response:
        return await self._render_requests(grant)

    async def _render_requests(
        self,
        grant: Grant,
        refusal: str | None = None,
        attacks: Mapping[str, Sequence[str]] | None = None,
        previews: Mapping[str, Sequence[Any]] | None = None,
    ) -> Response:
        steward = grant.role is Role.STEWARD
        found = await self._look(grant, lambda context: _describe_requests(context, risk=steward))
        more = {"attacks": attacks or {}, "previews": previews or {}}
        shown = [each | {name: told.get(each["request"].id) for name, told in more.items()} for each in found[:NEWEST]]
        return self._render("approvals.html", "/requests", grant, requests=shown, refusal=refusal)

    async def _show_budgets(self, _request: Request, grant: Grant) -> Response:
        found = await self._look(grant, _describe_budgets)
        return self._render("budgets.html", "/budgets", grant, **found)

    async def _show_tokens(self, _request: Request, grant: Grant) -> Response:
        return await self._render_tokens(grant)

    async def _render_tokens(
        self,
        grant: Grant,
        token: str = "",
        refusal: str | None = None,
        given: Sequence[tuple[str, str]] = (),
        unlisted: str = "",
    ) -> Response:
        self._service.authorize(grant, Action.GRANT)
        context = self._service.curator.context
        listed = await self._service.read_record(lambda: _list_newest_tokens(context))
        return self._render(
            "tokens.html", "/tokens", grant, tokens=listed, purposes=_list_purposes(context), token=token,
            used={name: time.isoformat() for name, time in self._service.used.items()},
            given=dict(given), unlisted=unlisted, chosen=[value for name, value in given if name == "purpose"],
            refusal=refusal, roles=[str(each) for each in Role if each is not Role.RESPONDENT],
        )  # fmt: skip

    async def _show_people(self, _request: Request, grant: Grant) -> Response:
        return await self._render_people(grant)

    async def _render_people(
        self, grant: Grant, told: Sequence[str] = (), refusal: str | None = None, column: str = ""
    ) -> Response:
        self._service.authorize(grant, Action.SUBJECT_REPORT)
        withdrawn, columns = await self._look(grant, _list_withdrawn)
        return self._render(
            "people.html", "/people", grant, withdrawn=withdrawn, columns=columns, told=told, refusal=refusal,
            column=column,
        )  # fmt: skip

    async def _show_ledger(self, request: Request, grant: Grant) -> Response:
        after = request.query_params.get("after", "")
        start = int(after) if after.isascii() and after.isdigit() and len(after) < 13 else None
        found = await self._look(grant, lambda context: _read_ledger(context, start))
        return self._render("ledger.html", "/ledger", grant, **found)

    async def _show_incidents(self, _request: Request, grant: Grant) -> Response:
        found, failed = await self._look(
            grant, lambda context: (estate.list_incidents(context.ledger), reports.find_failures(context))
        )
        return self._render("incidents.html", "/incidents", grant, found=found, failed=failed)

    async def _show_estate(self, _request: Request, grant: Grant) -> Response:
        self._service.authorize(grant, Action.AUDIT)  # what is refused below is told on the page itself
        try:
            ledger = self._service.ledger
            found = await self._look(grant, lambda context: estate.survey_estate(context.policy.folder, ledger))
        except DeniableError as refusal:
            return self._render("estate.html", "/estate", grant, found=None, refusal=translate_failure(refusal).message)
        return self._render("estate.html", "/estate", grant, found=found)

    # Deciding

    async def _decide(self, request: Request, grant: Grant) -> Response:
        form = await read_form(request, self._service.limits.body)
        identity, decision = (str(request.path_params[name]) for name in ("request", "decision"))
        try:
            if decision == "attack":
                return await self._attack(grant, identity)
            if decision == "preview":
                return await self._preview(grant, identity)
            if decision == "again":
                await self._service.make_again(grant, identity)
                return RedirectResponse("/requests", 303)
            if decision not in ("approve", "decline"):
                raise ParameterError("a request is approved or declined")
            await self._service.decide(grant, identity, decision == "approve", form.get("reason", "")[:2000])
        except DeniableError as refusal:
            return await self._render_requests(grant, translate_failure(refusal).message)
        return RedirectResponse("/requests", 303)

    async def _attack(self, grant: Grant, identity: str) -> Response:
        """The approvals, with what an intruder could do to the tables of one request as they stand."""
        self._service.authorize(grant, Action.DECIDE)
        context = self._service.curator.context
        asked = await self._service.read_record(lambda: requests.find_request(context, identity))
        told = await self._service.run_for(grant, lambda: requests.attack_tables(context, asked.tables))
        return await self._render_requests(grant, attacks={identity: told})

    async def _preview(self, grant: Grant, identity: str) -> Response:
        """The approvals, with what would leave if one request were approved: real rows, for the steward alone.

        Beside it stands what an intruder could do to the table as it stands: before and after together.
        """
        self._service.authorize(grant, Action.DECIDE)
        context = self._service.curator.context
        asked = await self._service.read_record(lambda: requests.find_request(context, identity))
        told = await self._service.run_for(grant, lambda: _preview_request(context, asked))
        before = await self._service.run_for(grant, lambda: requests.attack_tables(context, asked.tables))
        return await self._render_requests(grant, attacks={identity: before}, previews={identity: told})

    async def _issue(self, request: Request, grant: Grant) -> Response:
        fields = await read_fields(request, self._service.limits.body)
        form, purposes = dict(fields), [value for name, value in fields if name == "purpose" and value]
        self._service.authorize(grant, Action.GRANT)
        context, name = self._service.curator.context, form.get("name", "").strip()[:200]
        try:
            role, days = _read_role(form.get("role", Role.ANALYST)), _read_days(form.get("days", "90"))
            if role is Role.ANALYST and not purposes and _list_purposes(context):
                raise ParameterError("no purpose is chosen", remedy="Choose what the analyst may ask for")
            token, _ = await self._service.run_for(
                grant, lambda: requests.issue(context, name, role, purposes or None, days, grant)
            )
        except DeniableError as refusal:
            return await self._render_tokens(grant, refusal=translate_failure(refusal).message, given=fields)
        budgets = context.policy.budgets
        unknown = role is Role.ANALYST and budgets and budgets.analysts and budgets.find_analyst(name) is None
        return await self._render_tokens(grant, token=token, unlisted=name if unknown else "")

    async def _change_token(self, request: Request, grant: Grant) -> Response:
        self._service.authorize(grant, Action.GRANT)
        context, identity = self._service.curator.context, str(request.path_params["token"])
        acts: dict[str, Callable[[], Any]] = {
            "revoke": lambda: requests.revoke(context, identity, grant.name),
            "pause": lambda: requests.pause(context, identity, "on the steward's page", grant.name),
            "resume": lambda: requests.unpause(context, identity, "on the steward's page", grant.name),
        }
        try:
            act = acts.get(str(request.path_params["act"]))
            if act is None:
                raise ParameterError("a token is revoked, paused or resumed")
            await self._service.run_for(grant, act)
        except DeniableError as refusal:
            return await self._render_tokens(grant, refusal=translate_failure(refusal).message)
        return RedirectResponse("/tokens", 303)

    async def _act_on_person(self, request: Request, grant: Grant) -> Response:
        form = await read_form(request, self._service.limits.body)
        column, value, reason = (form.get(name, "").strip()[:2000] for name in ("column", "value", "reason"))
        act = str(request.path_params["act"])
        try:
            told = await self._do_to_person(grant, act, column, value, reason)
        except DeniableError as refusal:
            return await self._render_people(grant, refusal=translate_failure(refusal).message, column=column)
        context = self._service.curator.context
        person = await self._service.run_for(grant, lambda: withdrawals.commit_subject(context, column, value))
        about = (
            f"About the person whose {column} you named, reference {person.commitments[0][:REFERENCE]}."
            " The same person has the same reference; it tells nobody who that is."
        )
        return await self._render_people(grant, [about, *told], column=column)

    async def _do_to_person(self, grant: Grant, act: str, column: str, value: str, reason: str) -> list[str]:
        context, run = self._service.curator.context, self._service.run_for
        if act == "withdraw":
            self._service.authorize(grant, Action.WITHDRAW)
            noted = await run(grant, lambda: withdrawals.withdraw(context, column, value, grant.name))
            return [f"Left out from now on: entry {noted.number} of the ledger."]
        if act == "reinstate":
            self._service.authorize(grant, Action.REINSTATE)
            noted = await run(grant, lambda: withdrawals.reinstate(context, column, value, reason, grant.name))
            return [f"Taken in again: entry {noted.number} of the ledger."]
        self._service.authorize(grant, Action.SUBJECT_REPORT)
        found = await run(grant, lambda: reports.subject_report(context, column, value))
        return [sentence.replace(" (deniable withdraw)", "") for sentence in found.words]  # a button stands below

    async def _look(self, grant: Grant, read: Callable[[Context], Any]) -> Any:
        """What the steward and the auditor may see, read off the event loop."""
        self._service.authorize(grant, Action.AUDIT)
        context = self._service.curator.context
        return await self._service.run_for(grant, lambda: read(context))

    def _render(self, template: str, here: str, grant: Grant, **values: Any) -> Response:
        steward = grant.role is Role.STEWARD
        return self.pages.render(template, here=here, steward=steward, grant=grant, **values)


def _list_purposes(context: Context) -> list[str]:
    return [each.name for each in context.policy.budgets.purposes] if context.policy.budgets else []


def _list_newest_tokens(context: Context) -> list[requests.TokenReport]:
    return list(requests.list_tokens(context).values())[::-1][:NEWEST]


def _read_role(word: str) -> Role:
    known = [str(each) for each in Role]
    if word not in known:
        raise ParameterError("there is no such role", expected=", ".join(known))
    return Role(word)


def _read_days(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError("the number of days is not a number", expected="Such as 90") from None


def _summarize(context: Context) -> dict[str, Any]:
    """What a steward looks at first."""
    register = reports.register(context.ledger)
    waiting = [each for each in reports.requests(context) if each.status == "pending"]
    alerts = estate.list_incidents(context.ledger).alerts
    tokens = [each for each in requests.list_tokens(context).values() if not each["revoked"]]
    return {
        "balance": reports.state_plainly(context.ledger.balance()),
        "waiting": len(waiting),
        "alerts": alerts[::-1][:5],
        "tokens": len(tokens),
        "register": register,
        "releases": register.releases[::-1][:10],
        "expires": context.policy.expires,
        "epoch": context.epoch,
    }


def _describe_requests(context: Context, risk: bool) -> list[dict[str, Any]]:
    """All requests, each with the columns that would leave."""
    return [{"request": each, "leaves": _list_leaving(context, each)} for each in reports.requests(context, risk=risk)]


def _preview_request(context: Context, asked: Any) -> list[dict[str, Any]]:
    """What would leave of each table of a request: k-anonymous rows before and after, or what becomes of columns."""
    columns = _find_columns(context, asked)
    if asked.technique == "anonymize":
        demanded = requests.read_demands(asked.parameters)
        return [{"table": name, "node": explore.preview_release(context, name, demanded, columns[name])}
                for name in asked.tables]  # fmt: skip
    if asked.technique == "mask":
        mode = requests.read_mode(asked.parameters)
        masked = {name: explore.preview_masked(context, name, mode, columns[name]) for name in asked.tables}
        return [{"table": name, "masks": _list_masks(context, name, columns[name]), "masked": view}
                for name, view in masked.items()]  # fmt: skip
    return [{"table": name} for name in asked.tables]


def _list_masks(context: Context, table: str, columns: Sequence[str] | None) -> list[tuple[str, str]]:
    """What masking does to each column that leaves."""
    return [
        (
            each.name,
            "does not leave" if not leaves_by("mask", each)
            else f"masked by {each.mask.kind}" if each.mask is not None else "leaves as it is",
        )
        for each in context.policy.table(table).columns
        if columns is None or each.name in columns
    ]  # fmt: skip


def _list_leaving(context: Context, request: requests.RequestReport) -> dict[str, list[str]]:
    """The columns of each table that a request would release; none where that is refused by now."""
    try:
        asked = _find_columns(context, request)
    except DeniableError:
        return {}
    return {
        table: [each.name for each in context.policy.table(table).columns
                if (columns is None or each.name in columns) and leaves_by(request.technique, each)]
        for table, columns in asked.items()
    }  # fmt: skip


def _find_columns(context: Context, request: Any) -> dict[str, tuple[str, ...] | None]:
    """The columns of each table that a request would release, within what the asker may have; None is all."""
    asked = requests.columns_by_table(context, request.technique, request.tables, request.parameters)
    scope = context.speak_for(Asker(request.analyst, request.purpose)).scope
    allowed = scope.columns_to_describe if request.technique == "synthesize" else scope.columns_to_release
    return {name: allowed(name, columns) for name, columns in asked.items()}


def leaves_by(technique: str, column: Column) -> bool:
    """Whether a column that is asked for leaves by a technique, as it is made.

    Synthetic identifiers are invented. Of masked rows an identifier leaves masked. k-anonymous rows have no identifier,
    and nothing that the policy lets out only masked.
    """
    if technique == "synthesize":
        return True
    if not column.decided:
        return False
    masked = column.mask is not None
    if technique == "mask":
        return masked or column.role is not ColumnRole.IDENTIFIER
    return column.role is ColumnRole.QUASI_IDENTIFIER or not (masked or column.role is ColumnRole.IDENTIFIER)


def _describe_budgets(context: Context) -> dict[str, Any]:
    """What is left at every node in the policy's own units, and what was spent in all, day by day."""
    dataset = reports.state_plainly(context.ledger.balance())
    analysts = []
    for each in reports.budgets(context).analysts:
        path = context.speak_for(Asker(each.analyst, each.purpose)).balance()
        analysts.append((each.analyst, each.purpose, reports.state_plainly(path)))
    askers = {name: [each for each, purpose, _ in analysts if purpose == name] for name in _list_purposes(context)}
    purposes = [(name, reports.state_plainly(context.ledger.balance(name))[-1], who) for name, who in askers.items()]
    charges = _list_charges(context)
    by_purpose, by_analyst = (_sum_by_day(charges, place) for place in (1, 2))
    drawn = {"purpose": by_purpose, "analyst": by_analyst}
    if len(by_purpose[0]) == len(by_analyst[0]) == 1:  # two equal pictures would say nothing more
        drawn = {"purpose and analyst": ([f"{by_purpose[0][0]}, {by_analyst[0][0]}"], by_purpose[1])}
    limit = _find_limit(context)
    charts = [draw_spending(f"Spent in all, by {what}: epsilon at the end of each day", *parts, limit=limit)
              for what, parts in drawn.items()]  # fmt: skip
    exact = {node.node: node for node in (*(each[1] for each in purposes), *(each[2][-1] for each in analysts))}
    shown = [(one.day, one.total, one.parts + two.parts) for one, two in zip(by_purpose[1], by_analyst[1], strict=True)]
    spent = {"names": by_purpose[0] + by_analyst[0], "days": shown}
    return {"whole": dataset, "purposes": purposes, "analysts": analysts, "charts": charts, "spent": spent,
            "exact": list(exact.values()), "standing": reports.summarize_budget(context.ledger)}  # fmt: skip


def _find_limit(context: Context) -> float | None:
    """The limit of the dataset where the policy states it in epsilon."""
    limit = context.policy.budgets.dataset if context.policy.budgets is not None else None
    return None if limit is None or isinstance(limit, ZCDP) else float(limit.epsilon)


Charge = tuple[str, str, str, float]
"""A day, a purpose, an analyst, and the epsilon."""


def _list_charges(context: Context) -> list[Charge]:
    return [
        (told.date, entry.purpose or "without a purpose", entry.analyst or "nobody", told.epsilon)
        for entry, told in _list_releases(context)
        if told.epsilon
    ]


def _list_releases(context: Context) -> list[tuple[reports.TrailEntry, reports.RegisterEntry]]:
    """Each release as the auditor and as the public see it."""
    entries = [entry for entry in reports.trail(context.ledger) if entry.act in reports.RELEASES]
    return list(zip(entries, reports.register(context.ledger).releases, strict=False))  # one may have come between


def _sum_by_day(charges: Sequence[Charge], place: int) -> tuple[list[str], list[Spending]]:
    """Who spent, and the sums at the end of each day; those who spent least are put together."""
    sums: dict[str, float] = {}
    for each in charges:
        sums[str(each[place])] = sums.get(str(each[place]), 0.0) + each[3]
    largest = sorted(sums, key=lambda name: -sums[name])
    names = largest if len(largest) <= COLORS else [*largest[: COLORS - 1], "all others"]
    totals, days = [0.0] * len(names), {}
    for each in charges:
        name = str(each[place])
        totals[names.index(name) if name in names else -1] += each[3]
        days[each[0]] = Spending(each[0], tuple(totals))
    return names, list(days.values())[-MOST_DAYS:]


def _list_withdrawn(context: Context) -> tuple[list[Any], list[str]]:
    """When people withdrew or were taken in again, without who, and the columns that tell people apart."""
    acts = context.ledger.entries(acts=("withdraw", "reinstate"))
    noted = [(each.time.isoformat(timespec="seconds"), each.act, each.details.get("column", ""), each.sequence)
             for each in acts]  # fmt: skip
    units = {table.unit.column for table in context.policy.private if table.unit is not None and table.unit.column}
    return noted[::-1][:NEWEST], sorted(units)


def _read_ledger(context: Context, after: int | None) -> dict[str, Any]:
    """The newest entries, or those after a number, and whether the chain is what was written."""
    try:
        proof, broken = reports.verify_ledger(context.ledger), ""
    except DeniableError as refusal:
        proof, broken = None, refusal.happened
    entries = reports.trail(context.ledger) if not broken else []
    last = entries[-1].sequence if entries else 0
    start = max(0, last - NEWEST) if after is None else after
    shown = [each for each in entries if each.sequence > start][:NEWEST]
    costs = {entry.sequence: told.epsilon for entry, told in _list_releases(context)} if shown else {}
    return {"proof": proof, "broken": broken, "costs": costs, "entries": shown[::-1], "last": last, "start": start,
            "step": NEWEST}  # fmt: skip
