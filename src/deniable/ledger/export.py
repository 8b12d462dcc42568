"""The ledger for its readers: prices of entries as epsilon and delta, and export to other programs.

CSV is for people and spreadsheets, JSON lines for programs, Google's DP events for accountants."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deniable.dp.accounting import Event, cheap_epsilon, pure_cost, to_google, zcdp_cost
from deniable.errors import ParameterError, nearest
from deniable.ledger.entry import Act, Entry
from deniable.storage import escape_formula

COLUMNS = (
    "sequence", "time", "act", "analyst", "purpose", "tables", "technique", "epsilon", "delta", "rho", "unit",
    "release", "request", "policy", "event", "details", "hash",
)  # fmt: skip


def export(entries: Iterable[Entry], form: str) -> Iterator[str]:
    """The entries as pieces of text in a form: csv, jsonl or google."""
    if form not in FORMATS:
        expected = f"One of {', '.join(FORMATS)}"
        raise ParameterError(f"a ledger has no form '{form}'", expected=expected, remedy=nearest(form, FORMATS))
    return FORMATS[form](entries)


def _write_csv(entries: Iterable[Entry]) -> Iterator[str]:
    yield _write_line(COLUMNS)
    for entry in entries:
        shown = _flatten_entry(entry)
        yield _write_line(tuple(shown[name] for name in COLUMNS))


def _flatten_entry(entry: Entry) -> dict[str, Any]:
    price = price_of(entry)
    plain = entry.as_dict() | {"tables": " ".join(entry.tables)}
    plain |= {name: json.dumps(plain[name], sort_keys=True) for name in ("event", "details")}
    return plain | {name: _format_number(getattr(price, name)) for name in ("epsilon", "delta", "rho")}


def _format_number(amount: Fraction | None) -> str:
    return "" if amount is None else f"{float(amount):.12g}"


def _write_line(cells: Iterable[object]) -> str:
    # A cell that a spreadsheet would take for a formula is made plain text.
    safe = [escape_formula(str(cell)) for cell in cells]
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(safe)
    return line.getvalue()


def _write_jsonl(entries: Iterable[Entry]) -> Iterator[str]:
    return (json.dumps(entry.as_dict(), sort_keys=True) + "\n" for entry in entries)


def _write_google(entries: Iterable[Entry]) -> Iterator[str]:
    """One ComposedDpEvent of all releases; one without a guarantee is a NonPrivateDpEvent, which makes it infinite."""
    events = [to_google(entry.priced) for entry in entries if entry.act in (Act.CHARGE, Act.RELEASE)]
    whole = {"module_name": "dp_accounting.dp_event", "class_name": "ComposedDpEvent", "events": events}
    yield json.dumps(whole, indent=1) + "\n"


FORMATS: dict[str, Callable[[Iterable[Entry]], Iterator[str]]] = {
    "csv": _write_csv,
    "jsonl": _write_jsonl,
    "google": _write_google,
}


SHOWN_DELTA = Fraction(1, 10**9)
"""The delta at which Gaussian noise is shown as an epsilon, where the event has none of its own."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a release cost: epsilon and delta, with rho where noise is Gaussian; all None without a guarantee."""

    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None


def price_of(entry: Entry) -> Price:
    """The price of an entry; nothing for an act, and no epsilon for a release without a formal guarantee."""
    if entry.act != Act.CHARGE:
        return Price()
    return price_of_event(entry.priced)


def price_of_event(event: Event) -> Price:
    """Epsilon and delta by basic composition where that is possible, else through zCDP."""
    pure = pure_cost(event)
    if pure is not None:
        return Price(pure.amount, pure.delta) if pure.private else Price()
    concentrated = zcdp_cost(event)
    if concentrated is None or not concentrated.private:
        return Price()
    delta = concentrated.delta + SHOWN_DELTA
    return Price(cheap_epsilon(event, delta), delta, concentrated.amount)
