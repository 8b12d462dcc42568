"""Exporting a ledger: CSV for people and spreadsheets, JSON lines for programs, Google's DP events for accountants."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from deniable.dp.accounting import to_google
from deniable.errors import ParameterError, nearest
from deniable.ledger.entry import Act, Entry
from deniable.ledger.pricing import price_of

COLUMNS = (
    "sequence", "time", "act", "analyst", "purpose", "tables", "technique", "epsilon", "delta", "rho", "unit",
    "release", "request", "policy", "event", "details", "hash",
)  # fmt: skip


def export(entries: Iterable[Entry], form: str) -> Iterator[str]:
    """The entries as pieces of text in a form: csv, jsonl or google."""
    if form not in FORMS:
        expected = f"One of {', '.join(FORMS)}"
        raise ParameterError(f"a ledger has no form '{form}'", expected=expected, remedy=nearest(form, FORMS))
    return FORMS[form](entries)


def _csv(entries: Iterable[Entry]) -> Iterator[str]:
    yield _line(COLUMNS)
    for entry in entries:
        shown = _row(entry)
        yield _line(tuple(shown[name] for name in COLUMNS))


def _row(entry: Entry) -> dict[str, Any]:
    price = price_of(entry)
    plain = entry.as_dict() | {"tables": " ".join(entry.tables)}
    plain |= {name: json.dumps(plain[name], sort_keys=True) for name in ("event", "details")}
    return plain | {name: _number(getattr(price, name)) for name in ("epsilon", "delta", "rho")}


def _number(amount: Fraction | None) -> str:
    return "" if amount is None else f"{float(amount):.12g}"


def _line(cells: Iterable[object]) -> str:
    # A cell that a spreadsheet would take for a formula is made plain text.
    safe = [f"'{cell}" if str(cell)[:1] in ("=", "+", "-", "@", "\t", "\r") else cell for cell in cells]
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(safe)
    return line.getvalue()


def _jsonl(entries: Iterable[Entry]) -> Iterator[str]:
    return (json.dumps(entry.as_dict(), sort_keys=True) + "\n" for entry in entries)


def _google(entries: Iterable[Entry]) -> Iterator[str]:
    """One ComposedDpEvent of all releases; one without a guarantee is a NonPrivateDpEvent, which makes it infinite."""
    events = [to_google(entry.priced) for entry in entries if entry.act in (Act.CHARGE, Act.RELEASE)]
    whole = {"module_name": "dp_accounting.dp_event", "class_name": "ComposedDpEvent", "events": events}
    yield json.dumps(whole, indent=1) + "\n"


FORMS: dict[str, Callable[[Iterable[Entry]], Iterator[str]]] = {"csv": _csv, "jsonl": _jsonl, "google": _google}
