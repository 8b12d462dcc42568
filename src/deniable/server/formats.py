"""Forms of an answer: JSON for people and scripts, CSV for spreadsheets, Arrow for notebooks; and a plan as text.

An `Accept` header chooses the form of an answer; without one it is JSON. CSV and Arrow carry the facts of the release
in headers and, in Arrow, in the metadata of the schema. The privacy plan is written as lines where PostgreSQL's EXPLAIN
shows the plan of execution, and on the analyst's page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from deniable.policy.budget import describe_amounts
from deniable.server.refusals import NotAcceptable
from deniable.storage import escape_formula

if TYPE_CHECKING:
    import pyarrow as pa


JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
FORMS = (JSON, CSV, ARROW)
PARQUET = "application/vnd.apache.parquet"
"""The form of rows that are released as files."""


def choose_format(accept: str) -> str:
    """The form that an Accept header wants most.

    >>> choose_format("text/csv;q=0.5, application/vnd.apache.arrow.stream")
    'application/vnd.apache.arrow.stream'
    """
    wanted = sorted(_parse_accept(accept), key=lambda each: -each[1])
    for kind, quality in wanted:
        matching = [form for form in FORMS if kind in (form, "*/*", form.split("/")[0] + "/*")]
        if matching and quality > 0:
            return matching[0]
    if not accept.strip():
        return JSON
    raise NotAcceptable("no form of an answer is acceptable", expected=f"Accept one of {', '.join(FORMS)}")


def _parse_accept(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(",")[:50]:
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            found.append((kind, float(quality)))
        except ValueError:
            found.append((kind, 0.0))
    return found


def encode_rows(rows: pa.Table, details: dict[str, Any], form: str) -> bytes:
    """Rows and the facts about them in a form."""
    if form == JSON:
        return encode_json({"rows": rows.to_pylist(), "columns": rows.column_names} | details)
    return _encode_csv(rows) if form == CSV else _encode_arrow(rows, details)


def encode_json(document: Any) -> bytes:
    """A document in UTF-8; numbers that are not finite become null, since JSON has none."""
    try:
        text = json.dumps(document, default=_to_json_value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_drop_infinite(document), default=_to_json_value, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _to_json_value(value: Any) -> Any:
    from fractions import Fraction

    if hasattr(value, "isoformat"):
        return value.isoformat()
    return float(value) if isinstance(value, Fraction) or hasattr(value, "as_tuple") else str(value)


def _drop_infinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_infinite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_infinite(each) for each in value]
    unknown = isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))
    return None if unknown else value


def _encode_csv(rows: pa.Table) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_escape_formula(name) for name in rows.column_names])
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        writer.writerow(["" if value is None else _escape_formula(value) for value in row])
    return out.getvalue().encode("utf-8")


def _escape_formula(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a quote before it."""
    return escape_formula(value) if isinstance(value, str) else value


def _encode_arrow(rows: pa.Table, details: dict[str, Any]) -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    schema = rows.schema.with_metadata({"deniable": encode_json(details)})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


def render_plan(told: Mapping[str, Any]) -> list[str]:
    """The plan from the tables up, then each measurement with its noise, then the price."""
    lines = [f"Protects {told['unit']}"]
    lines += [f"  -> {step['step']}  ({step['tag']})" for step in told["relations"]]
    for aggregate in told["aggregates"]:
        lines.append(f"Measure {aggregate['aggregate']}; groups: {aggregate['keys']}")
        lines += list(_render_measurements(aggregate["measurements"]))
    lines.append(f"Cost: {describe_amounts(told['cost'])}")
    if told.get("remaining"):
        lines.append(f"Left before this question: {describe_amounts(told['remaining'])}")
    if told.get("more_like_this") is not None:
        lines.append(f"Enough for about {told['more_like_this']:,} like this")
    return lines + [f"Note: {note}" for note in told["notes"]]


def _render_measurements(parts: list[Mapping[str, Any]]) -> Iterator[str]:
    for part in parts:
        noise = part["mechanism"] if part["scale"] is None else f"{part['mechanism']}, scale {part['scale']:,.4g}"
        reach = f"{part['error']:,.4g} {'ranks ' if part['error_in'] == 'ranks' else ''}"
        yield f"  {part['measures']}: {noise}; error below {reach.strip()} with {part['confidence']:.0%} confidence"
