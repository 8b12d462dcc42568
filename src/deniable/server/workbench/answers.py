"""Answers as the workbench shows them: numbers with their intervals, charts, files, and the same question elsewhere.

Answers that were shown are kept for a while in memory, so that their files can be loaded without asking again: a file
is never a second question."""

from __future__ import annotations

import io
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache
from markupsafe import Markup

from deniable.curator.query.metadata import format_figure
from deniable.server.formats import ARROW, CSV, PARQUET, encode_json, encode_rows
from deniable.server.service import build_not_found
from deniable.server.workbench.charts import MOST_ROWS, Interval, draw_intervals

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.query.sql import QueryAnswer
    from deniable.governance.grants import Grant
    from deniable.server.service import Question

SHOWN_ROWS = 200
MOST_CHARTS = 3
MOST_KEPT = 64
KEPT_SECONDS = 3600.0
MOST_KEPT_ROWS = 100_000
FILES = {"csv": CSV, "parquet": PARQUET, "arrow": ARROW}


@dataclass(frozen=True, slots=True)
class Cell:
    """One value as it is shown: its text, its interval in words, and the number by which its column is sorted."""

    text: str
    reach: str = ""
    sort: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True)
class AnswerView:
    """An answer on a page."""

    release: str
    names: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    more: int
    charts: Sequence[Markup]
    drawn: int
    """How many rows the charts draw, from the first on."""
    total: int
    repeated: bool
    cost: Mapping[str, str]
    confidence: int
    notes: Sequence[str]
    intervals: bool
    one_sided: bool
    bare: Sequence[str]
    """Measured numbers that have no interval."""
    files: bool


def view_answer(answer: QueryAnswer) -> AnswerView:
    """The numbers with their intervals, as the page shows them."""
    details: Any = answer.release.details
    names = _list_shown(answer.rows)
    rows = answer.rows.slice(0, SHOWN_ROWS).to_pylist()
    cells = [[_format_cell(row, name) for name in names] for row in rows]
    return AnswerView(
        release=str(details.get("release", "")),
        names=names,
        rows=cells,
        more=max(0, answer.rows.num_rows - SHOWN_ROWS),
        charts=list(_draw_charts(names, rows[:MOST_ROWS], details.get("grouped_by", ()))),
        drawn=min(answer.rows.num_rows, MOST_ROWS),
        total=answer.rows.num_rows,
        repeated=answer.repeated,
        cost=details.get("cost", {}),
        confidence=round(details.get("confidence", 0.95) * 100),
        notes=details.get("notes", ()),
        intervals=any(cell.reach for row in cells for cell in row),
        one_sided=any(cell.reach.startswith("at ") for row in cells for cell in row),
        bare=_list_bare(names, cells, details.get("grouped_by", ())),
        files=answer.rows.num_rows <= MOST_KEPT_ROWS,
    )


def _list_shown(rows: pa.Table) -> list[str]:
    """The columns without the ends of intervals, which stand beside their numbers."""
    known = set(rows.column_names)
    ends = {f"{name}{end}" for name in known for end in ("_low", "_high") if {f"{name}_low", f"{name}_high"} <= known}
    return [name for name in rows.column_names if name not in ends]


def _list_bare(names: Sequence[str], rows: Sequence[Sequence[Cell]], keys: Sequence[str]) -> list[str]:
    """The columns of numbers without an interval in any row, keys aside."""
    shown = [(name, [row[place] for row in rows]) for place, name in enumerate(names) if name not in keys]
    return [name for name, cells in shown if any(each.number for each in cells) and not any(e.reach for e in cells)]


def _format_cell(row: Mapping[str, Any], name: str) -> Cell:
    value = row[name]
    if value is None:
        return Cell("—")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(str(value), sort=str(value))
    return Cell(_format_number(value), _say_reach(value, *_find_ends(row, name)), repr(value), True)


def _format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}" if abs(value) >= 0.1 else f"{value:.4g}"


def _find_ends(row: Mapping[str, Any], name: str) -> tuple[float | None, float | None]:
    """The ends of a number's interval; None where it has none, or is open there."""
    found = (row.get(f"{name}_low"), row.get(f"{name}_high"))
    low, high = (end if isinstance(end, int | float) and math.isfinite(end) else None for end in found)
    return low, high


def _say_reach(value: float, low: float | None, high: float | None) -> str:
    """An interval in words: one with two equal halves as ±, others by their ends, open ones as such."""
    if low is None and high is None:
        return ""
    if low is None or high is None:
        return f"at most {format_figure(high or 0.0)}" if low is None else f"at least {format_figure(low)}"
    if math.isclose(high - value, value - low, rel_tol=1e-6, abs_tol=1e-9):
        return f"± {format_figure(high - value)}"
    return f"{format_figure(low)} to {format_figure(high)}"


def _draw_charts(names: Sequence[str], rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> Iterator[Markup]:
    """One chart for each of the first numbers that have an interval, labeled by keys and texts alone."""
    drawn, labels = 0, [name for name in names if name in keys or not any(_is_number(row[name]) for row in rows)]
    for name in names:
        intervals = [_read_interval(labels, row, name) for row in rows if _is_number(row[name])]
        measured = any(f"{name}_low" in row for row in rows)
        if measured and intervals and drawn < MOST_CHARTS:
            drawn += 1
            yield draw_intervals(f"{name}, with the interval of its noise", intervals)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _read_interval(labels: Sequence[str], row: Mapping[str, Any], name: str) -> Interval:
    label = ", ".join("none" if row[each] is None else str(row[each]) for each in labels if each != name) or name
    return Interval(label, float(row[name]), *_find_ends(row, name))


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer that was shown, with its question."""

    rows: pa.Table
    view: AnswerView
    question: Question


class KeptAnswers:
    """Answers that were shown, for whoever asked them, until they are old or too many."""

    def __init__(self) -> None:
        self._kept: TTLCache[tuple[str, str], KeptAnswer] = TTLCache(MOST_KEPT, KEPT_SECONDS)

    def keep(self, grant: Grant, answer: QueryAnswer, view: AnswerView, question: Question) -> None:
        """Keep an answer for its files, and for when its asker comes back to the page."""
        if view.release and view.files:
            self._kept[grant.name, view.release] = KeptAnswer(answer.rows, view, question)

    def find(self, grant: Grant, release: str) -> KeptAnswer:
        """A kept answer; refused where there is none of this asker's."""
        kept = self._kept.get((grant.name, release))
        if kept is None:
            missing = build_not_found("answer")
            missing.remedy = "Ask again: the stored answer of an equal question is free"
            raise missing
        return kept

    def encode(self, grant: Grant, release: str, form: str) -> tuple[bytes, str]:
        """A kept answer as a file, and its media type; refused where there is none of this asker's."""
        rows = self.find(grant, release if form in FILES else "").rows
        if form == "parquet":
            return _encode_parquet(rows), PARQUET
        return encode_rows(rows, {"release": release}, FILES[form]), FILES[form]


def _encode_parquet(rows: pa.Table) -> bytes:
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


def write_elsewhere(question: Question, address: str, dataset: str, postgres: int | None) -> dict[str, str]:
    """The same question in Python, R, curl and, where the server speaks PostgreSQL at a port, psql.

    Tokens are left to whoever runs them.
    """
    budget = {"epsilon": question.epsilon} if question.epsilon else {"rho": question.rho} if question.rho else {}
    budget |= {"delta": question.delta} if question.delta != "0" else {}
    given = {"sql": question.sql, **budget} | ({"purpose": question.purpose} if question.purpose else {})
    body = encode_json(given).decode()
    amounts = "".join(f", {name}={value!r}" for name, value in given.items() if name != "sql")
    settings = [f"SET deniable.{name} = {_quote_sql(value)}" for name, value in given.items() if name != "sql"]
    commands = "".join(f" \\\n  -c {_quote_shell(each)}" for each in (*settings, question.sql))
    host = address.split("//")[-1].split("/")[0].rsplit(":", 1)[0]
    told = {
        "Python": f"import deniable\n\nanalyst = deniable.connect({address!r}, TOKEN)\n"
        f"answer = analyst.query({question.sql!r}{amounts})",
        "psql": f"PGPASSWORD=$TOKEN psql -h {shlex.quote(host)} -p {postgres} -U NAME {shlex.quote(dataset)}{commands}",
        "R": "library(httr2)\n\n"
        f"answer <- request({_quote_r(address + '/v1/query')}) |>\n"
        '  req_auth_bearer_token(Sys.getenv("TOKEN")) |>\n'
        f"  req_body_raw({_quote_r(body)}, type = \"application/json\") |>\n"
        "  req_perform() |> resp_body_json()",
        "curl": f"curl -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \\\n"
        f"  -d {_quote_shell(body)} \\\n  {shlex.quote(address + '/v1/query')}",
    }  # fmt: skip
    return {name: text for name, text in told.items() if name != "psql" or postgres is not None}


def _quote_shell(text: str) -> str:
    """A text as a shell reads it, in the quotes that leave it readable."""
    plain = "'" in text and not set(text) & set('"$`\\!')
    return f'"{text}"' if plain else shlex.quote(text)


def _quote_sql(value: Any) -> str:
    doubled = str(value).replace("'", "''")
    return f"'{doubled}'"


def _quote_r(text: str) -> str:
    """A text as R reads it: what JSON escapes, R escapes in the same way."""
    return json.dumps(text, ensure_ascii=False)
