"""Draft a policy from a table: types, roles where the evidence is strong, and undecided where it is not.

The evidence is names, values and joint uniqueness. A draft never calls a column insensitive: that is for a person to
say, and until then the column is withheld. No value of the data stands in a draft unless the steward asks for it, and
what is shown then is marked: a policy in which a marked line was taken over as it is is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import DataError, ParameterError
from deniable.policy.document import READ_FROM_DATA
from deniable.policy.layout.masks import MASKS
from deniable.policy.schema import Column, ColumnType, CsvDialect, Role, Spec, TableSchema, make_dialect

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.attacks.uniqueness import JointRisk
    from deniable.engines.base import Engine, Field
    from deniable.masking.detectors import Profile
    from deniable.masking.identifiers import Finding
    from deniable.masking.person_column import PersonColumn

MARK = f"# {READ_FROM_DATA}: not public"
DRAFT_ROWS = 50_000
FEW_VALUES = 20
FILE_SCHEMES = ("file:", "csv:", "parquet:", "arrow:", "duckdb:")
REPEATED = 0.05
"""A number with fewer distinct values for each row than this is a code of something, not of a person."""
Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Drafted:
    """One column of a draft: its type, role and reason, a mask and a hierarchy that would suit, and lines of policy.

    `lines` are declared; `marked` ones are comments that show values. `shape` tells in words what the column holds,
    `distinct` how many values of it were seen, `commonest` the share of rows that have the commonest of them,
    `missing` that of rows without one, `code` whether its numbers seem to stand for something else, and `kind` what
    names or values show it to be, as in 'birth date'.
    """

    name: str
    type: ColumnType
    role: Role
    reason: str
    mask: Spec | None = None
    hierarchy: str = ""
    marked: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    shape: str = ""
    distinct: int = 0
    commonest: float = 0.0
    missing: float = 0.0
    code: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A policy in the making: one table, its source as the policy's folder sees it, and its columns.

    `unit` is the column that seems to tell people apart; None where each row is taken for a person. `unit_reason` says
    why, and `unit_sure` whether its name or values say so; else it is only suspected.
    """

    table: str
    source: str
    csv: CsvDialect | None
    unit: str | None
    rows: int
    columns: tuple[Drafted, ...]
    unit_reason: str = ""
    unit_sure: bool = True
    doubtful: tuple[str, ...] = ()
    """What numbers or dates look like that can be read in two ways, for the steward to decide."""


_QUASI_NAMES = (
    r"zip( ?code)?|post(al)? ?code|dob|birth.*|.*birth( ?(date|day|year))?|sex|gender|race|ethnicity|nationality"
    r"|(native )?country|state|county|city|town|village|region|marital.*|work ?class|education.*|occupation|job.*"
    r"|profession|language|lat(itude)?|lon(gitude)?|lng|ages?"
)
_SENSITIVE_NAMES = (
    r"diagnos[ie]s|icd.*|disease|condition|medication|drug|hiv|religion|party|orientation|salary|income|wage|charges?"
    r"|bmi|iq|score|rating|debt|balance|treatment|test ?result|capital ?(gain|loss)(es|s)?"
)
_IDENTIFIER_NAMES = r"(user|person|patient|customer)|(.+ )?(id|uuid|key|number|no|nr|nbr)|login|user ?name|mrn|ssn"


def draft(source: str, folder: Path | None = None, **asked: Any) -> str:
    """The text of a policy for one table; `folder` is where the policy file will stand, the rest as `draft_table`."""
    made = draft_table(source, folder, **asked)
    columns = tuple(_protect_unit(column) if column.name == made.unit else column for column in made.columns)
    return write_document(replace(made, columns=columns), _write_unit(made))


def draft_table(
    source: str,
    folder: Path | None = None,
    *,
    unit: str | None = None,
    show_values: bool = False,
    encoding: str | None = None,
    progress: Progress | None = None,
    policy: TableSchema | None = None,
) -> Draft:
    """Look at a table: its columns with their roles as far as the evidence goes, and who seems to be a person.

    What a `policy` says of the table holds: how its file is written, and the names of its columns, which are names
    even where a row holds the same word.
    """
    from deniable.engines.fetching import FetchingEngine
    from deniable.masking.detectors import profile_columns

    written = is_csv(source)
    csv = policy.csv if policy is not None else make_dialect(encoding)
    doubtful: tuple[str, ...] = ()
    with FetchingEngine() as engine:
        engine.attach("table", source, csv=csv)
        if written and policy is None:
            csv, doubtful = read_as_spelled(engine, source, csv)
        fields, count = engine.describe("table"), engine.count("table")
        # One statement: a table of thousands of columns takes seconds to bind.
        rows = engine.run(f'SELECT * FROM "table" USING SAMPLE reservoir({DRAFT_ROWS} ROWS) REPEATABLE (1)')  # noqa: S608
    _refuse_unseen_names(rows)
    if written:
        _refuse_row_as_names(rows, () if policy is None else policy.names)
    _tell(progress, 0.4)
    if unit is not None and unit not in rows.column_names:
        raise ParameterError(f"the table has no column '{unit}'", expected=f"One of {', '.join(rows.column_names)}")
    profiles = profile_columns(rows)
    columns = draft_columns(rows, fields, profiles, show_values=show_values)
    found = None if unit is not None else _find_unit(rows, profiles, columns)
    _tell(progress, 1.0)
    made = Draft(name_table(source), relate(source, folder), csv, unit, count, columns, doubtful=doubtful)
    if found is None:
        return made
    decided = tuple(_name_people(column, found) for column in columns)
    return replace(made, unit=found.name, columns=decided, unit_reason=found.reason, unit_sure=found.sure)


def is_csv(source: Any) -> bool:
    """Whether a source is a file of text, whose numbers and dates may be spelled in several ways."""
    return isinstance(source, str) and source.lower().endswith((".csv", ".tsv", ".csv.gz"))


def read_as_spelled(engine: Engine, source: str, csv: CsvDialect | None) -> tuple[CsvDialect | None, tuple[str, ...]]:
    """Attach a file of text anew if its numbers and dates are spelled in another way, with what stays doubtful."""
    from deniable.engines.base import quote
    from deniable.engines.duckdb.csv import find_spelling

    names = {kind: [f.name for f in engine.describe("table") if f.type is kind] for kind in SPELLED}
    texts = tuple(Column(name) for name in names[ColumnType.TEXT] + names[ColumnType.DECIMAL])
    if not names[ColumnType.TEXT] and not names[ColumnType.DECIMAL]:
        return csv, ()
    engine.attach("text", source, TableSchema("text", source, texts), csv=csv)
    listed = ", ".join(quote(column.name) for column in texts)
    rows = engine.run(f'SELECT {listed} FROM "text" LIMIT {SPELLED_ROWS}')  # noqa: S608
    found, doubtful = find_spelling(rows, names[ColumnType.DECIMAL])
    if not found:
        return csv, doubtful
    before, plain = engine.describe("table"), csv
    csv = replace(csv or CsvDialect(), **found)
    engine.attach("table", source, csv=csv)
    if engine.describe("table") == before:  # no column of the whole file is spelled so
        engine.attach("table", source, csv=plain)
        return plain, doubtful
    return csv, doubtful


SPELLED = (ColumnType.TEXT, ColumnType.DECIMAL)
SPELLED_ROWS = 10_000
"""Rows from which the spelling of numbers and dates is found. Whether it holds is then checked in all of them."""


def _refuse_unseen_names(rows: pa.Table) -> None:
    """Refuse names that no policy can hold, before anything is asked about their columns."""
    from deniable.policy.yaml_tree import reveal

    for place, name in enumerate(rows.column_names, start=1):
        if not name.strip() or not name.isprintable():
            raise DataError(
                f"the name of column {place} is empty or holds invisible characters: '{reveal(name)}'",
                expected="Names that can be seen and typed",
                remedy="Type the name anew on the first line of the file, or rename the column in its database",
            )


def _refuse_row_as_names(rows: pa.Table, declared: Sequence[str] = ()) -> None:
    """Refuse a file whose first line is a row: it would name the columns, which are shown and kept as no value may be.

    It shows where what stands in it stands in other rows of its column, too.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [name for name in rows.column_names if name not in declared and pa.types.is_string(rows[name].type)]
    if any(pc.any(pc.equal(rows[name], name)).as_py() for name in texts):
        raise DataError(
            "the first line of the file looks like a row: what stands in it stands in other rows, too",
            expected="Names of columns on the first line",
            remedy="Write them there, and try again",
        )


def save(text: str, path: Path, *, replace_it: bool = False) -> None:
    """Write a draft where no file stands yet, or where it may be replaced; readable by its owner alone."""
    from deniable.storage import ROW_ENDINGS, whole_file

    if path.exists() and path.suffix.lower() in ROW_ENDINGS:
        raise ParameterError(f"'{path.name}' exists, and looks like a table", remedy="Choose another name")
    if path.exists() and not replace_it:
        raise ParameterError(
            f"'{path}' already exists", remedy="Choose another name, or remove the file (--force replaces it)"
        )
    with whole_file(path) as file:
        file.write(text.encode())


def draft_columns(
    rows: pa.Table, fields: Sequence[Field], profiles: Sequence[Profile], *, show_values: bool = False
) -> tuple[Drafted, ...]:
    """Every column with its role as far as the evidence goes."""
    from deniable.masking.identifiers import judge

    findings = {profile.name: judge(profile) for profile in profiles}
    decided = {p.name: decide_role(p, findings[p.name]) for p in profiles}
    told = _tell_together(rows, decided)
    found = []
    for profile, field in zip(profiles, fields, strict=True):
        role, reason, mask = decided[profile.name]
        reason = "; ".join(filter(None, (reason, told.get(profile.name, ""))))
        marked = _show_values(profile, field.type) if show_values and role is not Role.IDENTIFIER else ()
        hierarchy = _choose_hierarchy(profile, findings[profile.name], field.type, role)
        shape, commonest = _describe_values(profile), _share_commonest(rows[field.name])
        seen: dict[str, Any] = {"distinct": profile.distinct, "commonest": commonest, "code": is_code(profile),
                                "missing": rows[field.name].null_count / max(rows.num_rows, 1),
                                "kind": finding.kind if (finding := findings[profile.name]) else ""}  # fmt: skip
        suited = _suit(mask, field.type)
        found.append(Drafted(profile.name, field.type, role, reason, suited, hierarchy, marked, shape=shape, **seen))
    return tuple(found)


def _share_commonest(column: pa.ChunkedArray) -> float:
    """The share of the rows that have the commonest value."""
    import pyarrow.compute as pc

    counts = pc.value_counts(column.drop_null()).field("counts")
    return float(pc.max(counts).as_py() or 0) / max(len(column), 1)


def decide_role(profile: Profile, finding: Finding | None) -> tuple[Role, str, Spec | None]:
    """The role of a column, why, and the mask that its kind usually has; undecided where the evidence is weak."""
    by_name = _decide_by_name(profile)
    if finding is not None and not (finding.kind == "record id" and _names_few(profile)):
        words = f"{finding.kind}: {'; '.join(map(str, finding.evidence))}"
        # What is written in a text is what its author knew of somebody.
        role = Role.SENSITIVE if finding.kind == "free text" else finding.about.role
        return (by_name if by_name is Role.SENSITIVE else role), words, finding.about.usual
    if by_name is not None and not (by_name is Role.IDENTIFIER and _names_few(profile)):
        mask = Spec("token", {"key": "people"}) if by_name is Role.IDENTIFIER else None
        return by_name, "its name", mask
    return Role.UNDECIDED, _describe_values(profile), None


def _decide_by_name(profile: Profile) -> Role | None:
    """What a name says whose last words are known, as in patient_zip."""
    named = (
        (_QUASI_NAMES, Role.QUASI_IDENTIFIER),
        (_SENSITIVE_NAMES, Role.SENSITIVE),
        (_IDENTIFIER_NAMES, Role.IDENTIFIER),
    )
    for pattern, role in named:
        if re.fullmatch(rf"(.+ )?({pattern})( (class|group|level|band))?", profile.words):
            return role
    return None


def _names_few(profile: Profile) -> bool:
    """Whether few values differ: admission_type_id names types, not persons; but a person may have many rows."""
    from deniable.masking.person_column import names_people

    return profile.filled >= FEW_VALUES and profile.ratio < REPEATED and not names_people(profile)


def _describe_values(profile: Profile) -> str:
    """What an undecided column holds, without any value of it."""
    from deniable.masking.detectors import is_missing, is_numeric

    if not profile.filled:
        return "it is empty"
    if len(profile.present) <= 1:
        return "all values are alike"
    if is_code(profile):
        kind = "numbers that may be codes"
    elif is_numeric(profile):
        kind = "numbers"
    else:
        kind = "words" if profile.textual else "values"
    markers = ", and markers of missing ones" if any(map(is_missing, profile.values)) else ""
    return f"{len(profile.present)} different {kind}{markers}" if profile.distinct <= FEW_VALUES else f"{kind}{markers}"


def is_code(profile: Profile) -> bool:
    """Whether numbers seem to stand for something else than an amount, as 1 to 9 may stand for races.

    Codes are few, or written with leading zeros; what lies between two codes means nothing.
    """
    from deniable.masking.detectors import is_numeric

    if not is_numeric(profile) or not profile.present or (profile.numeric and not profile.whole):
        return False
    zeros = any(len(value) > 1 and value[0] == "0" and value[1] != "." for value in profile.present)
    return zeros or (len(profile.present) <= FEW_VALUES and all(value.isdigit() for value in profile.present))


def _tell_together(rows: pa.Table, decided: Mapping[str, tuple[Role, str, Spec | None]]) -> dict[str, str]:
    """For each column of a set that singles out many: with which others it does so. Identifiers do so by themselves."""
    from deniable.attacks.uniqueness import measure_joint_risk

    names = [name for name, (role, _, _) in decided.items() if role is not Role.IDENTIFIER]
    if not names or not rows.num_rows:
        return {}
    return _name_others(measure_joint_risk(rows, names))


def _name_others(risk: JointRisk) -> dict[str, str]:
    told: dict[str, str] = {}
    for one in (one for one in risk.sets if one.share >= REPEATED):
        for name in one.columns:
            others = ", ".join(yaml_word(other) for other in one.columns if other != name)
            told.setdefault(name, f"with {others} it singles out {one.share:.0%} of the rows looked at")
    return told


def _suit(mask: Spec | None, kind: ColumnType) -> Spec | None:
    """A mask that suits the column's type, or none."""
    known = MASKS.kind(mask.kind) if mask is not None else None
    return mask if known is not None and (not known.types or str(kind) in known.types) else None


def _choose_hierarchy(profile: Profile, finding: Finding | None, kind: ColumnType, role: Role) -> str:
    """A public standard where the values fit one, else what suits the column's kind."""
    if role is not Role.QUASI_IDENTIFIER:
        return ""
    if kind in (ColumnType.DATE, ColumnType.DATETIME):
        return "{dates: [month, year, decade]}"
    if standard := _suggest_standard(profile):
        return standard
    about = finding.kind if finding is not None else ""
    postal = about == "postal code" or re.search(r"\bzip\b|\bpost(al)? ?code\b", profile.words)
    if kind is ColumnType.TEXT and postal:
        return "{redact: right}"
    if kind is ColumnType.TEXT:
        return _draft_codes(profile)
    return "{standard: ages}" if about == "age" and kind is ColumnType.INTEGER else ""


def _draft_codes(profile: Profile) -> str:
    """Codes of one form by what they begin with."""
    import pyarrow as pa

    from deniable.kanonymity.builders.specs import draft_column

    spec = draft_column(pa.array(profile.values, pa.string()))
    if spec.kind == "prefix":
        return f"{{prefix: {list(spec.options['lengths'])}}}"  # type: ignore[call-overload]
    return "{redact: right}" if spec.kind == "redact" else ""


def _suggest_standard(profile: Profile) -> str:
    import pyarrow as pa

    from deniable.kanonymity.builders.library import suggest_hierarchy

    if not (profile.textual or profile.whole or pa.types.is_floating(profile.type)):
        return ""
    found = suggest_hierarchy(pa.array(profile.values, pa.string()).cast(profile.type), profile.name)
    if found is None:
        return ""
    name = found.options["name"]
    return f"{{standard: {{name: {name}, other: true}}}}" if found.options.get("other") else f"{{standard: {name}}}"


def _show_values(profile: Profile, kind: ColumnType) -> tuple[str, ...]:
    """Bounds or categories as the data has them, as policy text: shown only when asked for, in marked comments."""
    lines = ["nullable: false"] if not profile.nulls and profile.rows else []
    if not profile.values or kind is ColumnType.BOOLEAN:
        return tuple(lines)
    if kind is ColumnType.TEXT or (is_code(profile) and kind is not ColumnType.DECIMAL):
        if profile.distinct <= FEW_VALUES and profile.ratio <= 0.5:
            lines.append(f"categories: [{', '.join(_write_category(v, kind) for v in sorted(profile.values))}]")
        return tuple(lines)
    values = profile.values if not kind.numeric else sorted(profile.values, key=float)
    low, high = (_write_end(value) for value in (min(values, key=_order(kind)), max(values, key=_order(kind))))
    lines.append(f"between: [{low}, {high}]")
    return (*lines, "step: 0.01") if kind is ColumnType.DECIMAL else tuple(lines)


def _order(kind: ColumnType) -> Callable[[str], Any]:
    return float if kind.numeric else str


def _write_end(value: str) -> str:
    """A bound as policy text; times to the second, without a zone."""
    return re.sub(r"(\d\d:\d\d:\d\d)\.\d+", r"\1", value).removesuffix("Z")


def _write_category(value: str, kind: ColumnType) -> str:
    return yaml_word(value) if kind is ColumnType.TEXT else value


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[ -][A-Za-z0-9_]+)*")
_RESERVED = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def yaml_word(text: object) -> str:
    """Text as YAML writes it: plain where nothing can be misread, quoted elsewhere.

    >>> yaml_word("Oslo"), yaml_word("NO"), yaml_word("02138")
    ('Oslo', '"NO"', '"02138"')
    """
    shown = str(text)
    plain = _PLAIN.fullmatch(shown) and shown.lower() not in _RESERVED
    return shown if plain else json.dumps(shown, ensure_ascii=not shown.isprintable())


def write_spec(spec: Spec) -> str:
    """A mask as the policy writes it."""
    if not spec.options:
        return spec.kind
    options = ", ".join(f"{name}: {value}" for name, value in spec.options.items())
    return f"{{{spec.kind}: {{{options}}}}}"


def name_table(source: str) -> str:
    """A table's name from the name of its file."""
    path, _, inner = source.rpartition("#") if "#" in source else (source, "", "")
    stem = inner or Path(path).name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_") or "table"


def relate(source: str, folder: Path | None) -> str:
    """A file as it is found from the policy's folder, also one with its format before it; other sources as they are.

    >>> relate("postgresql+adbc://clinic#care.visits", Path("policies"))
    'postgresql+adbc://clinic#care.visits'
    """
    scheme, path = m.groups() if (m := re.match(r"([a-z][a-z0-9+]+:)(.*)", source, re.DOTALL)) else ("", source)
    if folder is None or scheme not in ("", *FILE_SCHEMES):
        return source
    return scheme + os.path.relpath(path, folder)


def _find_unit(rows: pa.Table, profiles: Sequence[Profile], columns: Sequence[Drafted]) -> PersonColumn | None:
    """The column that tells people apart, known or suspected; without one each row is taken for a person."""
    from deniable.masking.person_column import find_person_column

    kinds = {column.name: column.kind for column in columns}
    return find_person_column(rows, profiles, {column.name: column.role for column in columns}, kinds)


def _name_people(column: Drafted, found: PersonColumn) -> Drafted:
    """A column as an identifier where its rows show that it names people, whatever its values look like."""
    if column.name != found.name or column.role is Role.IDENTIFIER or not found.sure:
        return column
    mask = _suit(Spec("token", {"key": "people"}), column.type)
    return replace(column, role=Role.IDENTIFIER, reason=found.reason, mask=mask, hierarchy="", kind="record id")


def _protect_unit(column: Drafted) -> Drafted:
    """The column that tells people apart as an identifier, where its values alone would let it leave."""
    if column.role in (Role.IDENTIFIER, Role.UNDECIDED):
        return column
    mask = _suit(Spec("token", {"key": "people"}), column.type)
    return replace(column, role=Role.IDENTIFIER, reason=f"the unit; else {column.reason}", mask=mask, hierarchy="")


def _write_unit(made: Draft) -> list[str]:
    if made.unit is None:
        return ["    unit: row  # confirm: each row is another person; else say {column: NAME}"]
    told = "confirm: all rows of one value belong to one person"
    if not made.unit_sure:
        told = f"suspected, confirm: {made.unit_reason}; if each row is another person, say row"
    return [
        f"    unit: {{column: {yaml_word(made.unit)}}}  # {told}",
        "    # also say how much one person may contribute, as in: max_groups: 5, max_rows_per_group: 2",
    ]


def write_document(
    made: Draft, unit: Sequence[str], head: Sequence[str] = (), rest: Sequence[str] = (), dataset: str = ""
) -> str:
    """The text of a policy: what was drafted, with the lines that say whom it protects, and those around the table."""
    dataset = dataset or (made.table if made.table[0].isalpha() else f"data_{made.table}")
    lines = [
        *(head or _HEAD),
        "version: 1",
        f"dataset: {yaml_word(dataset[:64])}",
        "tables:",
        f"  {yaml_word(made.table)}:",
        f"    source: {yaml_word(made.source)}",
        *_write_csv(made),
        *unit,
        "    columns:",
    ]
    for column in made.columns:
        lines += _write_column(column)
    return "\n".join([*lines, *(rest or _REST)]) + "\n"


def _write_csv(made: Draft) -> list[str]:
    csv = made.csv or CsvDialect()
    said = {"encoding": csv.encoding} if csv.encoding else {}
    words = ", ".join(f"{word}: {yaml_word(value)}" for word, value in (said | csv.spelling).items())
    confirm = "  # confirm: numbers and dates are spelled so" if csv.spelling else ""
    return [*([f"    csv: {{{words}}}{confirm}"] if words else []), *(f"    # {each}" for each in made.doubtful)]


def _write_column(column: Drafted) -> list[str]:
    lines = [f"      {yaml_word(column.name)}:", f"        type: {column.type}"]
    lines.append(f"        role: {column.role}  # {column.reason}")
    if column.mask is not None:
        lines.append(f"        mask: {write_spec(column.mask)}")
    if column.hierarchy:
        lines.append(f"        hierarchy: {column.hierarchy}")
    lines += [f"        {line}" for line in column.lines]
    return [*lines, *(f"        # {line}  {MARK}" for line in column.marked)]


_HEAD = [
    "# A draft: confirm every role, decide on every column, and fill in bounds from what you know of the subject.",
    "# An undecided column is withheld from releases of rows.",
]
_REST = [
    "release:",
    "  joint: {most: 0.05}  # the share of people that all released columns together may single out",
    "# How much may be asked, by whom, for what:",
    "# budgets:",
    "#   dataset: {epsilon: 1, delta: 1e-6, accounting: zcdp}",
    "#   purposes: {research: {epsilon: 0.5}}",
    "#   analysts: {ana: {purposes: [research], epsilon: 0.1}}",
    "# expires: 2030-12-31",
]


def _tell(progress: Progress | None, share: float) -> None:
    if progress:
        progress(share)
