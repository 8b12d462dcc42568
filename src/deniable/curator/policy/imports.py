"""Draft a policy from another tool's file: SmartNoise's metadata, DataSynthesizer's description, or a project of ARX.

Bounds in SmartNoise's metadata were declared by somebody, and are declared again. DataSynthesizer reads its bounds and
values from the rows without noise: they are shown in marked comments, as every draft shows what it read, and a policy
that takes them over as they are is refused. Neither says anything of roles, so the steward decides on them. A project
of ARX has roles, hierarchies and the models that were asked for; its rows stay in it."""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from deniable.curator.policy.draft import Draft, Drafted, relate, save, write_document, yaml_word
from deniable.errors import DataError, ParameterError
from deniable.policy.budget import format_number
from deniable.policy.schema import ColumnType, CsvDialect, DateOrder, Role, Spec, refuse_secret

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


@dataclass(frozen=True, slots=True)
class Imported:
    """The text of a drafted policy, and files that belong beside it, by their name."""

    text: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def import_metadata(
    file: Path, source: str | None = None, table: str | None = None, folder: Path | None = None
) -> Imported:
    """The policy drafted from another tool's file.

    `source` is where the rows are, `table` which table of the file is meant if it has several, `folder` where the
    policy will stand.
    """
    if zipfile.is_zipfile(file):
        project = _read_project(file, table or file.stem)
        found, unit, files, rest = (
            project.draft,
            "row  # confirm: ARX always protects single rows",
            project.files,
            project.rest,
        )
    else:
        document, files, rest = _read(file), dict[str, bytes](), list[str]()
        if isinstance(document.get("attribute_description"), Mapping):
            found, unit = _read_description(document, table or file.stem)
        else:
            found, unit = _read_smartnoise(document, table)
    refuse_secret(source)
    placed = relate(source, folder) if source else f"{found.table}.csv"
    return Imported(write_document(replace(found, source=placed), [f"    unit: {unit}"], rest=rest), files)


def write_imported(imported: Imported, out: Path, *, replace_it: bool = False) -> None:
    """Write a drafted policy, and beside it the files that it names."""
    from deniable.storage import whole_file

    for name in imported.files:
        if (out.parent / name).exists() and not replace_it:
            raise ParameterError(f"'{out.parent / name}' already exists", remedy="Remove it, or use --force")
    save(imported.text, out, replace_it=replace_it)
    for name, content in imported.files.items():
        with whole_file(out.parent / name) as file:
            file.write(content)


def _read(file: Path) -> Mapping[str, Any]:
    """A file of JSON or YAML, as plain values."""
    from ruamel.yaml import YAML, YAMLError

    why = ""
    try:
        text = file.read_bytes()[:MOST_BYTES].decode()
        document = YAML(typ="safe", pure=True).load(text)
    except OSError as refusal:
        raise DataError(f"'{file}' cannot be read: {refusal.strerror}", remedy="Name a file that can be read") from None
    except UnicodeDecodeError:
        document, why = None, ": it is not UTF-8"
    except (ValueError, YAMLError, RecursionError) as wrong:
        document, why = None, ": a name stands twice in it" if "duplicate" in type(wrong).__name__.lower() else ""
    if not isinstance(document, Mapping):
        raise DataError(
            f"'{file.name}' is not metadata that can be imported{why}",
            expected="SmartNoise's metadata (YAML), DataSynthesizer's description (JSON), or a project of ARX (.deid)",
            remedy=OTHERWISE,
        )
    return document


def _read_smartnoise(document: Mapping[str, Any], wanted: str | None) -> tuple[Draft, str]:
    found = [
        (str(space), str(name), body)
        for schemas in document.values()
        if isinstance(schemas, Mapping)
        for space, schema in schemas.items()
        if isinstance(schema, Mapping)
        for name, body in schema.items()
        if isinstance(body, Mapping)
    ]
    often = Counter(name for _, name, _ in found)
    tables = {name if often[name] == 1 else f"{space}.{name}": body for space, name, body in found}
    name = _choose_table(tables, wanted)
    columns = {str(key): value for key, value in tables[name].items() if isinstance(value, Mapping)}
    people = [key for key, value in columns.items() if _is_set(value, "private_id")]
    if len(people) > 1:
        raise ParameterError(
            f"the file has {len(people)} columns with private_id: {', '.join(people)}",
            expected="One column tells people apart",
            remedy="Leave private_id with that one, and import the file again",
        )
    person = next(iter(people), None)
    drafted = tuple(_draft_declared(key, value) for key, value in columns.items())
    most, rows = (_read_count(tables[name], key, default) for key, default in (("max_ids", 1), ("rows", 0)))
    by_row = _is_set(tables[name], "row_privacy")
    unit = "row" if by_row else "row  # confirm: the file has no private_id, and no row_privacy"
    if person is not None and not by_row:
        unit = f"{{column: {yaml_word(person)}, max_rows: {most}}}"
    return Draft(name.rpartition(".")[2], "", None, person, rows, drafted), unit


def _is_set(about: Mapping[str, Any], name: str) -> bool:
    """Whether a flag is set, in any of the words that SmartNoise's reader knows."""
    value = about.get(name, False)
    if str(value).lower() not in ("true", "yes", "on", "false", "no", "off", "none"):
        raise ParameterError(f"{name} in the file is neither true nor false", remedy="Correct the file")
    return str(value).lower() in ("true", "yes", "on")


def _read_count(about: Mapping[str, Any], name: str, default: int) -> int:
    """A whole number of a file, of at least the default."""
    value = about.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not default <= value < 10**12:
        raise ParameterError(
            f"{name} in the file is not a whole number of at least {default}", remedy="Correct the file"
        )
    return value


def _write_bounds(name: str, kind: ColumnType, low: object, high: object) -> list[str]:
    """Bounds of a file as lines of a policy: numbers alone are taken from it, never its text."""
    ends = []
    for each in (low, high):
        if isinstance(each, bool) or not isinstance(each, int | float) or not math.isfinite(each):
            raise ParameterError(f"a bound of '{name}' in the file is not a number", remedy="Correct the file")
        if kind is ColumnType.INTEGER and each != int(each):
            raise ParameterError(f"a bound of '{name}' in the file is not whole", remedy="Correct the file")
        ends.append(Fraction(str(each)))
    if ends[0] > ends[1]:
        raise ParameterError(f"the bounds of '{name}' are not lowest, then highest", remedy="Correct the file")
    lines = [f"between: [{', '.join(map(format_number, ends))}]"]
    if kind is ColumnType.DECIMAL:
        step = Fraction(1, 100)
        while 1000 * step > ends[1] - ends[0] > 0:
            step /= 10
        lines.append(f"step: {format_number(step)}  # confirm: the finest difference that matters")
    return lines


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
    if _is_set(about, "private_id"):
        return Drafted(name, kind, Role.IDENTIFIER, "private_id in the imported file", TOKEN)
    low, high = about.get("lower"), about.get("upper")
    bounded = kind.numeric and low is not None and high is not None
    lines = _write_bounds(name, kind, low, high) if bounded else []
    return Drafted(name, kind, Role.UNDECIDED, reason, lines=tuple(lines))


def _read_description(document: Mapping[str, Any], name: str) -> tuple[Draft, str]:
    described, meta = document["attribute_description"], document.get("meta")
    if not described or not all(isinstance(about, Mapping) for about in described.values()):
        raise ParameterError("the file describes no columns", expected="DataSynthesizer's description of each column")
    columns = tuple(_draft_described(str(key), about) for key, about in described.items())
    rows = _read_count(meta if isinstance(meta, Mapping) else {}, "num_tuples", 0)
    return Draft(name, "", None, None, rows, columns), "row  # confirm: DataSynthesizer always protects single rows"


def _draft_described(name: str, about: Mapping[str, Any]) -> Drafted:
    said = str(about.get("data_type", "String"))
    kind = DATASYNTHESIZER_TYPES.get(said, ColumnType.TEXT)
    if about.get("is_candidate_key") or said == "SocialSecurityNumber":
        mask = TOKEN if kind is ColumnType.TEXT or kind is ColumnType.INTEGER else None
        return Drafted(name, kind, Role.IDENTIFIER, "a candidate key in the imported file", mask)
    return Drafted(name, kind, Role.UNDECIDED, DECIDE, marked=_show_read(name, kind, about))


def _show_read(name: str, kind: ColumnType, about: Mapping[str, Any]) -> tuple[str, ...]:
    """What the other tool read from the rows, as policy text for marked comments."""
    listed = about.get("distribution_bins")
    bins = [value for value in listed if value is not None] if isinstance(listed, list) else []
    if about.get("is_categorical") and kind is not ColumnType.DATETIME:
        plain = kind is not ColumnType.TEXT and all(isinstance(value, int | float) for value in bins)
        shown = [str(value) if plain else yaml_word(str(value)) for value in bins[:MOST_CATEGORIES]]
        return (f"categories: [{', '.join(shown)}]",) if shown else ()
    if not kind.numeric or about.get("min") is None:
        return ()
    return tuple(line.partition("  #")[0] for line in _write_bounds(name, kind, about["min"], about.get("max")))


ARX_ROLES = {
    "IDENTIFYING_ATTRIBUTE": Role.IDENTIFIER,
    "QUASI_IDENTIFYING_ATTRIBUTE": Role.QUASI_IDENTIFIER,
    "SENSITIVE_ATTRIBUTE": Role.SENSITIVE,
    "INSENSITIVE_ATTRIBUTE": Role.INSENSITIVE,
}
ARX_TYPES = {"Integer": ColumnType.INTEGER, "Decimal": ColumnType.DECIMAL, "Date/Time": ColumnType.DATE}
_K = re.compile(r"\(?(\d+)\)?-anonymity")
_L = re.compile(r"distinct-\(?(\d+)\)?-diversity for attribute '(.+)'")


@dataclass(frozen=True, slots=True)
class _Project:
    draft: Draft
    files: dict[str, bytes]
    rest: list[str]


def _read_project(file: Path, name: str) -> _Project:
    """A project of ARX (.deid): a ZIP archive of XML and CSV files. Its rows and its Java objects are not looked at."""
    try:
        with zipfile.ZipFile(file) as archive:
            held = {each.filename: each for each in archive.infolist()}
            definition, config, project = (
                _parse(_take(archive, held, part))
                for part in ("input/definition.xml", "input/config.xml", "project.xml")
            )
            separator = (project.findtext("separator") or ";") if project is not None else ";"
            locale = re.sub("[^A-Za-z_]", "", (project.findtext("locale") or "") if project is not None else "")
            listed = [] if definition is None else definition.findall("assigment")  # so it is written there
            tables = {
                each.findtext("name") or "": _take(archive, held, f"input/{each.findtext('ref')}") for each in listed
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError):
        listed = []
    if not listed:
        raise DataError(
            f"'{file.name}' is not a project of ARX",
            expected="A .deid file that ARX 3 wrote, with input/definition.xml in it",
            remedy=OTHERWISE,
        )
    files = {f"{name}-hierarchy-{n}.csv": text for n, text in enumerate(filter(None, tables.values()), start=1)}
    named = dict(zip((column for column, text in tables.items() if text), files, strict=True))
    columns = tuple(_draft_assigned(each, named, separator) for each in listed)
    columns = tuple(
        replace(each, reason=each.reason + _say_lost(told, locale)) for each, told in zip(columns, listed, strict=True)
    )
    dated = [each for each in listed if each.findtext("datatype") == "Date/Time"]
    orders = {_find_order(each.findtext("format") or "") for each in dated}
    order = next(iter(orders)) if len(orders) == 1 else DateOrder.YEAR_FIRST  # of several, the steward decides
    csv = CsvDialect(dates=order) if order is not DateOrder.YEAR_FIRST else None
    return _Project(Draft(name, "", csv, None, 0, columns), files, _write_models(config))


def _take(archive: zipfile.ZipFile, held: Mapping[str, zipfile.ZipInfo], name: str) -> bytes:
    """A file of an archive; none where it is not there, or is larger than such a file can be."""
    about = held.get(name)
    if about is None or about.file_size > MOST_BYTES:
        return b""
    with archive.open(about) as file:
        return file.read(MOST_BYTES)


def _parse(text: bytes) -> Any:
    """The root of an XML file; None where it is none. Files that declare entities are not read."""
    from xml.etree.ElementTree import ParseError, fromstring

    if not text or b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        return None
    try:
        return fromstring(text)  # noqa: S314  without entities, and of a bounded size
    except ParseError:
        return None


def _draft_assigned(assigned: Any, files: Mapping[str, str], separator: str) -> Drafted:
    name, said = assigned.findtext("name") or "", assigned.findtext("type") or ""
    kind = ARX_TYPES.get(assigned.findtext("datatype") or "", ColumnType.TEXT)
    kind = ColumnType.DATETIME if kind is ColumnType.DATE and "H" in (assigned.findtext("format") or "") else kind
    role = ARX_ROLES.get(said, Role.UNDECIDED)
    tree = f"{{tree: {{file: {yaml_word(files[name])}, separator: {yaml_word(separator)}}}}}" if name in files else ""
    mask = TOKEN if role is Role.IDENTIFIER and kind in (ColumnType.TEXT, ColumnType.INTEGER) else None
    reason = "confirm: from the imported project" if said in ARX_ROLES else DECIDE
    return Drafted(name, kind, role, reason, mask, tree if role is Role.QUASI_IDENTIFIER else "")


def _say_lost(assigned: Any, locale: str) -> str:
    """What a project says of a column and a policy does not: for the comment that the steward reads."""
    low, high = (assigned.findtext(each) or "" for each in ("min", "max"))
    found = [f"at least level {low}"] if low.isdigit() and int(low) else []
    found += [f"at most level {high}"] if high.isdigit() else []
    lost = f"; not taken over: {', '.join(found)}" if found else ""
    if assigned.findtext("datatype") == "Date/Time":
        lost += f"; dates are written {re.sub('[^A-Za-z.:/ -]', '', assigned.findtext('format') or '')}"
    other = assigned.findtext("datatype") == "Decimal" and locale and not locale.lower().startswith("en")
    return lost + (f"; numbers are written as in {locale}: say csv: decimal and thousands" if other else "")


def _find_order(written: str) -> DateOrder:
    """The order of a date that Java writes by a pattern, such as dd.MM.yyyy."""
    letters = re.sub("[^dMy]", "", written)
    first = letters[:1]
    return {"d": DateOrder.DAY_FIRST, "M": DateOrder.MONTH_FIRST}.get(first, DateOrder.YEAR_FIRST)


def _write_models(config: Any) -> list[str]:
    """What was asked of releases, as lines of a policy; models that have another form here are named in a comment."""
    models = [] if config is None else [each.text or "" for each in config.findall("criteria/criterion")]
    k = [found[1] for found in map(_K.fullmatch, models) if found]
    least = {found[2]: found[1] for found in map(_L.fullmatch, models) if found}
    other = [each for each in models if not _K.fullmatch(each) and not _L.fullmatch(each)]
    said = [f"k: {max(map(int, k))}"] if k else []
    said += [f"l: {{{', '.join(f'{yaml_word(name)}: {least[name]}' for name in least)}}}"] if least else []
    outliers = "" if config is None else config.findtext("relativeMaxOutliers") or ""
    share = float(outliers) if re.fullmatch(r"[0-9](\.[0-9]+)?(E-?[0-9]{1,3})?", outliers) else 2.0
    said += [f"suppress: {format_number(Fraction(str(share)))}"] if share <= 1 and said else []
    lines = [
        "release:",
        "  joint: {most: 0.05}  # the share of people that all released columns together may single out",
    ]
    lines += [f"  anonymize: {{{', '.join(said)}}}"] if said else []
    return [*lines, *(f"  # not taken over: {re.sub(r'[^ -~]', ' ', each)[:200]}" for each in other)]
