"""What the server says when it refuses: one shape, the same as everywhere in deniable, with an HTTP status.

A refusal of ours is shown as it is, but for those whose words name files of this machine; anything else that is raised
becomes one fixed sentence. No traceback and no text of another library ever leaves."""

from __future__ import annotations

import copy
import re
from typing import Any

from deniable.errors import (
    CHARGED,
    NO_BUDGET,
    UNSURE,
    AccessRefused,
    BudgetExceeded,
    DeniableError,
    InternalError,
    StorageError,
)
from deniable.server.monitoring import locate_failure, log_to_stderr

HTTP_STATUS = {
    "query": 400,
    "budget": 402,
    "access": 403,
    "token": 401,
    "data": 503,
    "parameter": 400,
    "infeasible": 422,
    "storage": 503,
    "locked": 503,
    "stopped": 504,
    "cancelled": 409,
    "execution": 500,
    "integrity": 500,
    "internal": 500,
    "extra": 501,
    "busy": 503,
    "rate": 429,
    "missing": 404,
    "method": 405,
    "form": 406,
    "size": 413,
    "media": 415,
}
"""The HTTP status of each code of a refusal."""

PRIVATE_CODES = ("storage", "data", "integrity", "key", "extra", "internal")
"""Refusals whose words are for the steward: they may name files of this machine."""


class TokenRefused(AccessRefused):
    """No token, or none that is valid."""

    code = "token"


class Busy(DeniableError):
    """Too much is being worked on; nothing was begun."""

    code = "busy"


class TooManyRequests(DeniableError):
    """One token, or one address that guesses tokens, asks too often."""

    code = "rate"


class NotFound(DeniableError):
    """There is nothing under this path or id."""

    code = "missing"
    charge = NO_BUDGET


class MethodNotAllowed(DeniableError):
    """The path is there, and cannot be asked this way."""

    code = "method"
    charge = NO_BUDGET


class NotAcceptable(DeniableError):
    """The answer cannot be written in any of the forms that the client accepts."""

    code = "form"


class ContentTooLarge(DeniableError):
    """The request has more bytes than a question needs."""

    code = "size"


class UnsupportedMedia(DeniableError):
    """The body is not the JSON that was expected."""

    code = "media"


class TimedOut(DeniableError):
    """Time is up, the client went away, or a process ended. What may be charged goes on, and its answer is stored."""

    code = "stopped"

    def __init__(self, happened: str = "the answer was not ready in time", *, charged: bool | None = False) -> None:
        """`charged` is None where it may be charged, and nobody knows yet whether it is."""
        again = "Ask the same again: a stored answer is free, and under the same request id nothing is charged twice"
        remedy = "Try again, or ask for less at once" if charged is False else again
        charge = UNSURE if charged is None else CHARGED if charged else None
        super().__init__(happened, remedy=remedy, charge=charge)


def tell_cause(failure: DeniableError) -> str:
    """What is wrong, for the steward alone, where a refusal does not say it to everybody."""
    if not isinstance(failure.__cause__, DeniableError):
        return ""
    cause = copy.copy(failure.__cause__)
    cause.charged = ""  # the refusal itself says what was charged
    return f" {cause.message}"


def translate_failure(failure: Exception) -> DeniableError:
    """The refusal that may be shown for whatever was raised."""
    if not isinstance(failure, DeniableError) or failure.code in PRIVATE_CODES:
        reason = failure.message + tell_cause(failure) if isinstance(failure, DeniableError) else ""
        log_to_stderr(f"failed: {locate_failure(failure)} {reason}".rstrip())
    if not isinstance(failure, DeniableError):
        return InternalError("something unforeseen happened in deniable itself", remedy="Tell the steward", charge="")
    if failure.code not in PRIVATE_CODES:
        return _name_routes(failure)
    kind = StorageError if failure.code in ("storage", "data", "integrity", "key") else InternalError
    return kind("deniable cannot answer now", remedy="Tell the steward, who finds the reason in the server's log",
                charge=failure.charged, **_name_earlier(failure))  # fmt: skip


def translate_for_page(failure: Exception, *, only_epsilon: bool = False) -> DeniableError:
    """The refusal that a page shows: without rho where epsilon was asked, as where a form has `only_epsilon`.

    >>> happened = "asked epsilon 9, and 0.3 of rho 1.5 is left (analyst 'ana')"
    >>> translate_for_page(BudgetExceeded(happened, remedy="Ask for at most rho 0.3")).message[:65]
    "this takes more than is left of the budget of analyst 'ana'. Choo"
    """
    refusal = translate_failure(failure)
    in_epsilon = only_epsilon or refusal.happened.startswith("asked epsilon")
    if not isinstance(refusal, BudgetExceeded) or not in_epsilon or " rho " not in f"{refusal.message} ":
        return refusal
    found = re.findall(r"\((the dataset|purpose '[^']*'|analyst '[^']*')\)", refusal.happened)
    whose = f" of {found[-1]}" if found else ""
    return BudgetExceeded(
        f"this takes more than is left of the budget{whose}",
        remedy="Choose a smaller epsilon. What is left stands beside questions, and under Budgets",
        charge=refusal.charged,
        **refusal.fields,  # type: ignore[arg-type]
    )


def _name_earlier(refusal: DeniableError) -> dict[str, Any]:
    """What was charged before under the request of a refusal, which is its asker's own."""
    return {name: value for name, value in refusal.fields.items() if name == "charged_before"}


ROUTES = {
    r"deniable terms( --[a-z]+( [^-\s]\S*)?)*": "POST /v1/terms",
    r"deniable requests": "GET /v1/requests",
    r"deniable token list": "GET /v1/tokens",
    r"deniable token resume": "POST /v1/tokens/TOKEN/unpause",
    r"deniable resume (\S+)": r"POST /v1/analysts/\1/resume",
    r"deniable subject": "POST /v1/subject",
    r"deniable ledger show": "GET /v1/audit",
    r"--([a-z]+)(-[a-z]+)?\b(?! \S+ at the command line)": r"\1\2",
}
"""What commands and their options, which refusals name, are called over HTTP."""


def _name_routes(refusal: DeniableError) -> DeniableError:
    """The refusal as somebody can follow it who has no command line."""
    expected, remedy = (_replace_commands(text) for text in (refusal.expected, refusal.remedy))
    if (expected, remedy) == (refusal.expected, refusal.remedy):
        return refusal
    said = copy.copy(refusal)
    said.expected, said.remedy = expected, remedy
    return said


def _replace_commands(text: str) -> str:
    for command, route in ROUTES.items():
        text = re.sub(command, route, text)
    return text


# a dictionary: the refusal's own JSON, which has a line and a column only for questions
def describe_refusal(refusal: DeniableError) -> dict[str, Any]:
    """The canonical JSON shape, with the whole message for people."""
    return refusal.as_dict() | {"message": refusal.message}


def find_http_status(refusal: DeniableError) -> int:
    """The HTTP status of a refusal."""
    return HTTP_STATUS.get(refusal.code, 400)
