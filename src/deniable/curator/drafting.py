"""Drafting a policy from a table: types, suspected roles with their reasons, and nothing decided silently.

What is read from the data (bounds, categories) is written as a comment marked as such and never as a declaration:
public bounds come from knowledge of the subject. A draft is a file for the steward alone.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.clues import SHAPES, Clue, Profile, clue
from deniable.errors import ParameterError
from deniable.policy.dialect import written_in
from deniable.policy.roles import Role
from deniable.policy.schema import ColumnType

if TYPE_CHECKING:
    from deniable.engines.base import Field
    from deniable.engines.duckdb import DuckDBEngine

MARK = "# read from the data: not public"
FEW_CATEGORIES = 20
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[ -][A-Za-z0-9_]+)*")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Values read from the data, as policy text: shown only inside comments."""

    between: str = ""
    step: str = ""
    categories: str = ""


def draft(
    source: str,
    folder: Path | None = None,
    *,
    suggest: bool = True,
    encoding: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> str:
    """The text of a policy for one table; `folder` is where the policy file will stand."""
    from deniable.engines.duckdb import DuckDBEngine

    with DuckDBEngine() as engine:
        engine.attach("table", source, csv=written_in(encoding))
        fields = engine.describe("table")
        columns = []
        for done, field in enumerate(fields, start=1):
            columns.append(_inspect(engine, field, suggest))
            if progress:
                progress(done / len(fields))
    return _document(_table_name(source), _relative(source, folder), encoding, columns)


def save(text: str, path: Path, *, replace_it: bool = False) -> None:
    """Write a draft where no file stands yet, or where it may be replaced; readable by its owner alone."""
    from deniable.storage import whole_file

    if path.exists() and not replace_it:
        raise ParameterError(f"'{path}' is there already", remedy="Choose another name, or say --force")
    with whole_file(path) as file:
        file.write(text.encode())


def _inspect(engine: DuckDBEngine, field: Field, suggest: bool) -> tuple[Profile, Clue, Suggestion]:
    profile = _profile(engine, field)
    found = clue(profile)
    return profile, found, _suggestion(engine, profile, found) if suggest else Suggestion()


def _profile(engine: DuckDBEngine, field: Field) -> Profile:
    """Counts over the whole column, in one statement."""
    from deniable.engines.base import quote

    name, text = quote(field.name), f"CAST({quote(field.name)} AS VARCHAR)"
    shapes = [
        f"avg(CASE WHEN regexp_matches({text}, '{pattern}') THEN 1.0 ELSE 0.0 END)" for pattern in SHAPES.values()
    ]
    wanted = ["count(*)", f"count({name})", f"count(DISTINCT {name})", f"avg(length({text}))", *shapes]
    # Patterns and words are our own, the column's name is quoted.
    listed = ", ".join(f"{expression} AS c{i}" for i, expression in enumerate(wanted))
    row = [column[0].as_py() for column in engine.run(f'SELECT {listed} FROM "table" WHERE {name} IS NOT NULL').columns]  # noqa: S608
    rows = engine.count("table")
    shares = {shape: float(share or 0) for shape, share in zip(SHAPES, row[4:], strict=True)}
    is_text = field.type is ColumnType.TEXT
    return Profile(field.name, field.type, rows, row[1], row[2], float(row[3] or 0), shares if is_text else {})


def _suggestion(engine: DuckDBEngine, profile: Profile, found: Clue) -> Suggestion:
    """Bounds or categories as the data has them; nothing for identifiers, whose values are persons."""
    from deniable.engines.base import quote

    name = quote(profile.name)
    if found.role is Role.IDENTIFIER or not profile.present or profile.type is ColumnType.BOOLEAN:
        return Suggestion()
    if profile.type is ColumnType.TEXT:
        if profile.distinct > FEW_CATEGORIES or profile.distinct_ratio > 0.5:
            return Suggestion()
        rows = engine.run(f'SELECT DISTINCT {name} AS v FROM "table" WHERE {name} IS NOT NULL ORDER BY v')  # noqa: S608
        return Suggestion(categories=f"[{', '.join(word(v) for v in rows['v'].to_pylist())}]")
    ends = engine.run(f'SELECT min({name}) AS lo, max({name}) AS hi FROM "table"')  # noqa: S608
    low, high = ends["lo"][0].as_py(), ends["hi"][0].as_py()
    step = "0.01" if profile.type is ColumnType.DECIMAL else ""
    return Suggestion(between=f"[{_endpoint(low)}, {_endpoint(high)}]", step=step)


def _endpoint(value: Any) -> str:
    """A bound as policy text; times to the second."""
    return str(value.replace(microsecond=0, tzinfo=None)) if hasattr(value, "hour") else str(value)


def word(text: object) -> str:
    """Text as YAML writes it: plain where nothing can be misread, quoted elsewhere.

    >>> word("Oslo"), word("NO"), word("02138")
    ('Oslo', '"NO"', '"02138"')
    """
    shown = str(text)
    plain = _PLAIN.fullmatch(shown) and shown.lower() not in _RESERVED
    return shown if plain else json.dumps(shown, ensure_ascii=not shown.isprintable())


def _table_name(source: str) -> str:
    path, _, inner = source.rpartition("#") if "#" in source else (source, "", "")
    stem = inner or Path(path).name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_") or "table"


def _relative(source: str, folder: Path | None) -> str:
    if folder is None or re.match(r"[a-z]{2,}:", source):
        return source
    return os.path.relpath(source, folder)


def _document(table: str, source: str, encoding: str | None, columns: list[tuple[Profile, Clue, Suggestion]]) -> str:
    dataset = table if table[0].isalpha() else f"data_{table}"
    lines = [
        "# A draft: confirm every role, and fill in the bounds from what you know of the subject.",
        f"# Lines marked '{MARK[2:]}' show values of the data: delete them, or replace them, before sharing.",
        "version: 1",
        f"dataset: {word(dataset[:64])}",
        "tables:",
        f"  {word(table)}:",
        f"    source: {word(source)}",
        *([f"    csv: {{encoding: {word(encoding)}}}"] if encoding else []),
        *_unit(columns),
        "    columns:",
    ]
    for profile, found, suggestion in columns:
        lines += _column(profile, found, suggestion)
    return "\n".join([*lines, *_BUDGETS]) + "\n"


def _unit(columns: list[tuple[Profile, Clue, Suggestion]]) -> list[str]:
    """An identifier that repeats tells persons apart; without one each row is taken for a person."""
    for profile, found, _ in columns:
        if found.role is Role.IDENTIFIER and found.mask.startswith("{token") and 0 < profile.distinct_ratio < 1:
            return [
                f"    unit: {{column: {word(profile.name)}}}  # confirm: all rows of one value belong to one person",
                "    # also say how much one person may contribute, as in: max_groups: 5, max_rows_per_group: 2",
            ]
    return ["    unit: row  # confirm: each row is another person; else say {column: NAME}"]


def _column(profile: Profile, found: Clue, suggestion: Suggestion) -> list[str]:
    lines = [f"      {word(profile.name)}:", f"        type: {profile.type}"]
    lines.append(f"        role: {found.role}  # suspected by: {found.reason}")
    if profile.present == profile.rows and profile.rows:
        lines.append(f"        # nullable: false  {MARK}")
    if found.mask:
        lines.append(f"        mask: {found.mask}")
    if hierarchy := _hierarchy(profile, found):
        lines.append(f"        hierarchy: {hierarchy}")
    return lines + _suggested(suggestion)


def _hierarchy(profile: Profile, found: Clue) -> str:
    """What suits the column's type: a hierarchy suspected by name may not."""
    if found.role is not Role.QUASI_IDENTIFIER:
        return ""
    if profile.type in (ColumnType.DATE, ColumnType.DATETIME):
        return "{dates: [month, year, decade]}"
    fits = {"{redact: right}": ColumnType.TEXT, "{brackets: ages}": ColumnType.INTEGER}
    return found.hierarchy if fits.get(found.hierarchy) is profile.type else ""


def _suggested(suggestion: Suggestion) -> list[str]:
    pairs = (("between", suggestion.between), ("categories", suggestion.categories))
    lines = [f"        # {name}: {text}  {MARK}" for name, text in pairs if text]
    return [*lines, f"        # step: {suggestion.step}  # values are rounded to it"] if suggestion.step else lines


_BUDGETS = [
    "# How much may be asked, by whom, for what:",
    "# budgets:",
    "#   dataset: {epsilon: 1, delta: 1e-6, accounting: zcdp}",
    "#   purposes: {research: {epsilon: 0.5}}",
    "#   analysts: {ana: {purposes: [research], epsilon: 0.1}}",
    "# expires: 2030-12-31",
]
