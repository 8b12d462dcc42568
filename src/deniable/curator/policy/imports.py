"""Draft a policy from another tool's file: SmartNoise's metadata, or DataSynthesizer's description of a table.

Bounds in SmartNoise's metadata were declared by somebody, and are declared again. DataSynthesizer reads its bounds and
values from the rows without noise: they are shown in marked comments, as every draft shows what it read, and a policy
that takes them over as they are is refused. Roles are not part of either file, so the steward decides on them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deniable.curator.policy.draft import Draft, Drafted, write_document, yaml_word
from deniable.errors import DataError, ParameterError
from deniable.policy.schema import ColumnType, Role, Spec

MOST_BYTES = 20 << 20
SMARTNOISE_TYPES = {
    "int": ColumnType.INTEGER,
    "float": ColumnType.DECIMAL,
    "string": ColumnType.TEXT,
    "boolean": ColumnType.BOOLEAN,
    "datetime": ColumnType.DATETIME,
}
DATASYNTHESIZER_TYPES = {
    "Integer": ColumnType.INTEGER,
    "Float": ColumnType.DECIMAL,
    "DateTime": ColumnType.DATETIME,
}
MOST_CATEGORIES = 50
OTHERWISE = "From other tools begin with the table itself: deniable policy init TABLE; see docs/compare/index.md"
DECIDE = "decide: the imported file says nothing of roles"
TOKEN = Spec("token", {"key": "people"})


def import_metadata(file: Path, source: str | None = None, table: str | None = None, folder: Path | None = None) -> str:
    """The text of a policy drafted from another tool's file.

    `source` is where the rows are, `table` which table of the file is meant if it has several, `folder` where the
    policy will stand.
    """
    document = _read(file)
    if isinstance(document.get("attribute_description"), Mapping):
        found, unit = _read_description(document, table or file.stem)
    else:
        found, unit = _read_smartnoise(document, table)
    where = source or f"{found.table}.csv"
    placed = os.path.relpath(where, folder) if folder is not None and source is not None else where
    return write_document(replace(found, source=placed), [f"    unit: {unit}"])


def _read(file: Path) -> Mapping[str, Any]:
    """A file of JSON or YAML, as plain values."""
    from ruamel.yaml import YAML, YAMLError

    try:
        text = file.read_bytes()[:MOST_BYTES].decode()
        document = YAML(typ="safe", pure=True).load(text)
    except OSError as refusal:
        raise DataError(f"'{file}' cannot be read: {refusal.strerror}", remedy="Name a file that can be read") from None
    except (UnicodeDecodeError, ValueError, YAMLError):
        document = None
    if not isinstance(document, Mapping):
        raise DataError(
            f"'{file.name}' is not metadata that can be imported",
            expected="SmartNoise's metadata (YAML) or DataSynthesizer's description (JSON)",
            remedy=OTHERWISE,
        )
    return document


def _read_smartnoise(document: Mapping[str, Any], wanted: str | None) -> tuple[Draft, str]:
    tables = {
        str(name): body
        for schemas in document.values()
        if isinstance(schemas, Mapping)
        for schema in schemas.values()
        if isinstance(schema, Mapping)
        for name, body in schema.items()
        if isinstance(body, Mapping)
    }
    name = _choose_table(tables, wanted)
    columns = {str(key): value for key, value in tables[name].items() if isinstance(value, Mapping)}
    people = [key for key, value in columns.items() if value.get("private_id")]
    if len(people) > 1:
        raise ParameterError(
            f"the file has {len(people)} columns with private_id: {', '.join(people)}",
            expected="One column tells people apart",
            remedy="Leave private_id with that one, and import the file again",
        )
    person = next(iter(people), None)
    drafted = tuple(_draft_declared(key, value) for key, value in columns.items())
    whole = tables[name].get("row_privacy") or person is None
    bound = f", max_rows: {int(tables[name].get('max_ids', 1))}"
    unit = "row" if whole else f"{{column: {yaml_word(person)}{bound}}}"
    return Draft(name, "", None, person, int(tables[name].get("rows", 0)), drafted), unit


def _choose_table(tables: Mapping[str, Any], wanted: str | None) -> str:
    if wanted in tables:
        return str(wanted)
    if wanted is None and len(tables) == 1:
        return next(iter(tables))
    if not tables:
        expected = "SmartNoise's metadata, or DataSynthesizer's description"
        raise ParameterError("the file describes no table", expected=expected, remedy=OTHERWISE)
    raise ParameterError(
        "the file has no table of that name" if wanted else f"the file has {len(tables)} tables",
        remedy=f"Name one with --table: {', '.join(sorted(tables))}",
    )


def _draft_declared(name: str, about: Mapping[str, Any]) -> Drafted:
    written = str(about.get("type", "string"))
    kind, reason = SMARTNOISE_TYPES.get(written, ColumnType.TEXT), DECIDE
    if written not in SMARTNOISE_TYPES:
        reason = f"{DECIDE}; its type is none of SmartNoise's and is taken for text: confirm"
    if about.get("private_id"):
        return Drafted(name, kind, Role.IDENTIFIER, "private_id in the imported file", TOKEN)
    low, high = about.get("lower"), about.get("upper")
    if isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        raise ParameterError(f"the bounds of '{name}' are not lowest, then highest", remedy="Correct the file")
    lines = [f"between: [{low}, {high}]"] if kind.numeric and low is not None and high is not None else []
    if lines and kind is ColumnType.DECIMAL:
        lines.append("step: 0.01  # confirm: the finest difference that matters")
    return Drafted(name, kind, Role.UNDECIDED, reason, lines=tuple(lines))


def _read_description(document: Mapping[str, Any], name: str) -> tuple[Draft, str]:
    columns = tuple(_draft_described(str(key), about) for key, about in document["attribute_description"].items())
    rows = int(document.get("meta", {}).get("num_tuples", 0))
    return Draft(name, "", None, None, rows, columns), "row  # confirm: DataSynthesizer knows no other unit"


def _draft_described(name: str, about: Mapping[str, Any]) -> Drafted:
    said = str(about.get("data_type", "String"))
    kind = DATASYNTHESIZER_TYPES.get(said, ColumnType.TEXT)
    if about.get("is_candidate_key") or said == "SocialSecurityNumber":
        mask = TOKEN if kind is ColumnType.TEXT or kind is ColumnType.INTEGER else None
        return Drafted(name, kind, Role.IDENTIFIER, "a candidate key in the imported file", mask)
    return Drafted(name, kind, Role.UNDECIDED, DECIDE, marked=_show_read(kind, about))


def _show_read(kind: ColumnType, about: Mapping[str, Any]) -> tuple[str, ...]:
    """What the other tool read from the rows, as policy text for marked comments."""
    bins = [value for value in about.get("distribution_bins", ()) if value is not None]
    if about.get("is_categorical") and kind is not ColumnType.DATETIME:
        shown = [yaml_word(value) if kind is ColumnType.TEXT else str(value) for value in bins[:MOST_CATEGORIES]]
        return (f"categories: [{', '.join(shown)}]",) if shown else ()
    if not kind.numeric or about.get("min") is None:
        return ()
    bounds = f"between: [{about['min']}, {about.get('max')}]"
    return (bounds, "step: 0.01") if kind is ColumnType.DECIMAL else (bounds,)
