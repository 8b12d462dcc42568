"""Draft a policy from a table: types, suspected roles with their reasons, and nothing decided silently."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.policy.schema import ColumnType, Role, make_dialect

if TYPE_CHECKING:
    from deniable.engines.base import Field
    from deniable.engines.duckdb import DuckDBEngine


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """What was counted in one column: rows, values present, distinct ones, and shares of values of known shapes."""

    name: str
    type: ColumnType
    rows: int
    present: int
    distinct: int
    mean_length: float
    shapes: dict[str, float]

    @property
    def distinct_ratio(self) -> float:
        """Distinct values for each value present."""
        return self.distinct / self.present if self.present else 0.0


@dataclass(frozen=True, slots=True)
class RoleGuess:
    """A suspected role, its reason, and a mask or hierarchy that would suit, as policy text."""

    role: Role
    reason: str
    mask: str = ""
    hierarchy: str = ""


SHAPES = {
    "e-mail address": r"^[^@\s]+@[^@\s]+\.[A-Za-z]{2,}$",
    "social security number": r"^[0-9]{3}-[0-9]{2}-[0-9]{4}$",
    "phone number": r"^\+?[0-9]{0,3}[ .-]?\(?[0-9]{3}\)?[ .-][0-9]{3}[ .-]?[0-9]{4}$",
    "card number": r"^[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{1,7}$",
    "network address": r"^([0-9]{1,3}\.){3}[0-9]{1,3}$",
    "ZIP code": r"^[0-9]{5}(-[0-9]{4})?$",
}
"""Shapes of values; each pattern is understood alike by Python and by the engines."""

_PSEUDONYM = "{token: {key: people}}"
_NAMED = "its name"
_NAMES: tuple[tuple[str, RoleGuess], ...] = (
    (
        r"((first|last|middle|given|family|full|maiden|sur)_?)?names?|phones?|mobile|fax|telephone|(street_?)?address"
        r"|street|ip(_?address)?|url|login|user_?name|vin|plate",
        RoleGuess(Role.IDENTIFIER, _NAMED, "redact"),
    ),
    (
        r"e_?mail|ssn|passport|licen[sc]e|mrn|iban|(credit_?)?card|account|id|uuid|guid|(user|person|patient|customer)"
        r"|(.+_)?(id|uuid|key|number|no|nr|nbr)",
        RoleGuess(Role.IDENTIFIER, _NAMED, _PSEUDONYM),
    ),
    (r"zip(_?code)?|post(al)?_?code", RoleGuess(Role.QUASI_IDENTIFIER, _NAMED, hierarchy="{redact: right}")),
    (r"age", RoleGuess(Role.QUASI_IDENTIFIER, _NAMED, hierarchy="{brackets: ages}")),
    (
        r"dob|birth.*|.*birth(_?(date|day|year))?|sex|gender|race|ethnicity|nationality|(native_?)?country|state|county"
        r"|city|town|village|region|marital.*|work_?class|education.*|occupation|job.*|profession|language|lat(itude)?"
        r"|lon(gitude)?|lng",
        RoleGuess(Role.QUASI_IDENTIFIER, _NAMED),
    ),
    (
        r"diagnos[ie]s|icd.*|disease|condition|medication|drug|hiv|religion|party|orientation|salary|income|wage"
        r"|charges?|bmi|iq|grade|score|rating|debt|balance|treatment|test_?result|capital_?(gain|loss)",
        RoleGuess(Role.SENSITIVE, _NAMED),
    ),
)
"""Names of columns, as snake case without regard to case; the first that fits counts."""

UNIQUE = 0.95
CODES = 0.01
FEWEST_ROWS = 20
LONG_TEXT = 40
LINKS = "nearly every value occurs once, so that it finds the row: generalize (quasi-identifier) or mask it"


def guess_role(profile: ColumnProfile) -> RoleGuess:
    """The role a column is suspected of; insensitive if nothing speaks against it."""
    found = _by_name(profile) or _by_shape(profile) or _by_counts(profile)
    found = found or RoleGuess(Role.INSENSITIVE, "nothing, so confirm it")
    shown = found.role in (Role.SENSITIVE, Role.INSENSITIVE) and not found.mask
    return replace(found, reason=f"{found.reason}; {LINKS}") if shown and _nearly_unique(profile) else found


def _nearly_unique(profile: ColumnProfile) -> bool:
    return profile.present >= FEWEST_ROWS and profile.distinct_ratio > UNIQUE


def _by_name(profile: ColumnProfile) -> RoleGuess | None:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", profile.name).lower()
    words = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    for pattern, found in _NAMES:
        # A qualified name, such as patient_zip, counts as its last words do.
        if re.fullmatch(rf"(.+_)?({pattern})(_(class|group|level|band))?", words):
            return None if found.mask == _PSEUDONYM and _is_code(profile) else found
    return None


def _is_code(profile: ColumnProfile) -> bool:
    """Whether few values differ: a column such as admission_type_id names types, not persons."""
    return profile.rows >= FEWEST_ROWS and profile.distinct_ratio < CODES


def _by_shape(profile: ColumnProfile) -> RoleGuess | None:
    for shape, share in profile.shapes.items():
        if share < 0.9:
            continue
        if shape == "ZIP code":
            return RoleGuess(Role.QUASI_IDENTIFIER, "its values look like a ZIP code", hierarchy="{redact: right}")
        return RoleGuess(Role.IDENTIFIER, f"its values look like a {shape}", _PSEUDONYM)
    return None


def _by_counts(profile: ColumnProfile) -> RoleGuess | None:
    if profile.type in (ColumnType.DATE, ColumnType.DATETIME):
        return RoleGuess(Role.QUASI_IDENTIFIER, "dates are often known from elsewhere")
    if profile.type is ColumnType.TEXT and profile.mean_length > LONG_TEXT:
        return RoleGuess(Role.SENSITIVE, "it looks like free text, which may name people", "scrub")
    if _nearly_unique(profile) and profile.type in (ColumnType.TEXT, ColumnType.INTEGER):
        return RoleGuess(Role.IDENTIFIER, "nearly every value occurs once", _PSEUDONYM)
    return None


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
        engine.attach("table", source, csv=make_dialect(encoding))
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


def _inspect(engine: DuckDBEngine, field: Field, suggest: bool) -> tuple[ColumnProfile, RoleGuess, Suggestion]:
    profile = _profile(engine, field)
    found = guess_role(profile)
    return profile, found, _suggestion(engine, profile, found) if suggest else Suggestion()


def _profile(engine: DuckDBEngine, field: Field) -> ColumnProfile:
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
    return ColumnProfile(field.name, field.type, rows, row[1], row[2], float(row[3] or 0), shares if is_text else {})


def _suggestion(engine: DuckDBEngine, profile: ColumnProfile, found: RoleGuess) -> Suggestion:
    """Bounds or categories as the data has them; nothing for identifiers, whose values are persons."""
    from deniable.engines.base import quote

    name = quote(profile.name)
    if found.role is Role.IDENTIFIER or not profile.present or profile.type is ColumnType.BOOLEAN:
        return Suggestion()
    if profile.type is ColumnType.TEXT:
        if profile.distinct > FEW_CATEGORIES or profile.distinct_ratio > 0.5:
            return Suggestion()
        rows = engine.run(f'SELECT DISTINCT {name} AS v FROM "table" WHERE {name} IS NOT NULL ORDER BY v')  # noqa: S608
        return Suggestion(categories=f"[{', '.join(yaml_word(v) for v in rows['v'].to_pylist())}]")
    ends = engine.run(f'SELECT min({name}) AS lo, max({name}) AS hi FROM "table"')  # noqa: S608
    low, high = ends["lo"][0].as_py(), ends["hi"][0].as_py()
    step = "0.01" if profile.type is ColumnType.DECIMAL else ""
    return Suggestion(between=f"[{_endpoint(low)}, {_endpoint(high)}]", step=step)


def _endpoint(value: Any) -> str:
    """A bound as policy text; times to the second."""
    return str(value.replace(microsecond=0, tzinfo=None)) if hasattr(value, "hour") else str(value)


def yaml_word(text: object) -> str:
    """Text as YAML writes it: plain where nothing can be misread, quoted elsewhere.

    >>> yaml_word("Oslo"), yaml_word("NO"), yaml_word("02138")
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


def _document(
    table: str, source: str, encoding: str | None, columns: list[tuple[ColumnProfile, RoleGuess, Suggestion]]
) -> str:
    dataset = table if table[0].isalpha() else f"data_{table}"
    lines = [
        "# A draft: confirm every role, and fill in the bounds from what you know of the subject.",
        f"# Lines marked '{MARK[2:]}' show values of the data: delete them, or replace them, before sharing.",
        "version: 1",
        f"dataset: {yaml_word(dataset[:64])}",
        "tables:",
        f"  {yaml_word(table)}:",
        f"    source: {yaml_word(source)}",
        *([f"    csv: {{encoding: {yaml_word(encoding)}}}"] if encoding else []),
        *_unit(columns),
        "    columns:",
    ]
    for profile, found, suggestion in columns:
        lines += _column(profile, found, suggestion)
    return "\n".join([*lines, *_BUDGETS]) + "\n"


def _unit(columns: list[tuple[ColumnProfile, RoleGuess, Suggestion]]) -> list[str]:
    """An identifier that repeats tells persons apart; without one each row is taken for a person."""
    for profile, found, _ in columns:
        if found.role is Role.IDENTIFIER and found.mask.startswith("{token") and 0 < profile.distinct_ratio < 1:
            return [
                f"    unit: {{column: {yaml_word(profile.name)}}}  # confirm: all rows of one value belong to one person",  # noqa: E501
                "    # also say how much one person may contribute, as in: max_groups: 5, max_rows_per_group: 2",
            ]
    return ["    unit: row  # confirm: each row is another person; else say {column: NAME}"]


def _column(profile: ColumnProfile, found: RoleGuess, suggestion: Suggestion) -> list[str]:
    lines = [f"      {yaml_word(profile.name)}:", f"        type: {profile.type}"]
    lines.append(f"        role: {found.role}  # suspected by: {found.reason}")
    if profile.present == profile.rows and profile.rows:
        lines.append(f"        # nullable: false  {MARK}")
    if found.mask:
        lines.append(f"        mask: {found.mask}")
    if hierarchy := _hierarchy(profile, found):
        lines.append(f"        hierarchy: {hierarchy}")
    return lines + _suggestion_lines(suggestion)


def _hierarchy(profile: ColumnProfile, found: RoleGuess) -> str:
    """What suits the column's type: a hierarchy suspected by name may not."""
    if found.role is not Role.QUASI_IDENTIFIER:
        return ""
    if profile.type in (ColumnType.DATE, ColumnType.DATETIME):
        return "{dates: [month, year, decade]}"
    fits = {"{redact: right}": ColumnType.TEXT, "{brackets: ages}": ColumnType.INTEGER}
    return found.hierarchy if fits.get(found.hierarchy) is profile.type else ""


def _suggestion_lines(suggestion: Suggestion) -> list[str]:
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
