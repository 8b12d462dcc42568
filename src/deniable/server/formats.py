"""Forms of an answer: JSON for people and scripts, CSV for spreadsheets, Arrow for notebooks. The client chooses.

An `Accept` header chooses among them; without one it is JSON. CSV and Arrow carry the facts of the release in headers
and, in Arrow, in the metadata of the schema.
"""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from deniable.server.messages import NoSuchForm

if TYPE_CHECKING:
    import pyarrow as pa

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
FORMS = (JSON, CSV, ARROW)
PARQUET = "application/vnd.apache.parquet"
"""The form of rows that are released as files."""


def chosen(accept: str) -> str:
    """The form that an Accept header wants most.

    >>> chosen("text/csv;q=0.5, application/vnd.apache.arrow.stream")
    'application/vnd.apache.arrow.stream'
    """
    wanted = sorted(_ranges(accept), key=lambda each: -each[1])
    for kind, quality in wanted:
        matching = [form for form in FORMS if kind in (form, "*/*", form.split("/")[0] + "/*")]
        if matching and quality > 0:
            return matching[0]
    if not accept.strip():
        return JSON
    raise NoSuchForm("no form of an answer is acceptable", expected=f"Accept one of {', '.join(FORMS)}")


def _ranges(accept: str) -> list[tuple[str, float]]:
    found = []
    for part in accept.split(",")[:50]:
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
        try:
            found.append((kind, float(quality)))
        except ValueError:
            found.append((kind, 0.0))
    return found


def written(rows: pa.Table, details: dict[str, Any], form: str) -> bytes:
    """Rows and the facts about them in a form."""
    if form == JSON:
        return as_json({"rows": rows.to_pylist(), "columns": rows.column_names} | details)
    return _csv(rows) if form == CSV else _arrow(rows, details)


def as_json(document: Any) -> bytes:
    """A document in UTF-8; numbers that are not finite become null, since JSON has none."""
    try:
        text = json.dumps(document, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), default=_plain, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    from fractions import Fraction

    if hasattr(value, "isoformat"):
        return value.isoformat()
    return float(value) if isinstance(value, Fraction) or hasattr(value, "as_tuple") else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    unknown = isinstance(value, float) and (value != value or value in (float("inf"), float("-inf")))
    return None if unknown else value


def _csv(rows: pa.Table) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([_safe(name) for name in rows.column_names])
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        writer.writerow(["" if value is None else _safe(value) for value in row])
    return out.getvalue().encode("utf-8")


def _safe(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a quote before it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _arrow(rows: pa.Table, details: dict[str, Any]) -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    schema = rows.schema.with_metadata({"deniable": as_json(details)})
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    return sink.getvalue()
