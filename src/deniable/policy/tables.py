"""Checked entries made into tables: units, bounds, categories, hierarchies, and the checks that need more than one key.

Values will be clamped to the bounds and counted in steps, as integers: so a lower bound is a whole multiple of the
step, and whole steps lead from it to the upper one. Columns that borrow from one another (`like`) are followed to the
one that states it, and never in a circle. A table may name a parent with one row for each unit, and the column in whose
order a unit's rows follow one another."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from deniable.errors import Place, nearest
from deniable.policy import side_files
from deniable.policy.check import tree_checker
from deniable.policy.check.patterns import find_template_mistake
from deniable.policy.check.tree_checker import Chosen, Item, Section, build_spec, strip_places
from deniable.policy.grammar import Kinds
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.layout.masks import MASKS
from deniable.policy.schema import (
    BadRows,
    Bounding,
    Bounds,
    Column,
    ColumnType,
    CsvDialect,
    DateOrder,
    Edges,
    Endpoint,
    Link,
    Neighboring,
    PrivacyUnit,
    Role,
    Spec,
    TableSchema,
    find_codec,
    holds_secret,
)
from deniable.policy.yaml_tree import Leaf, Mistakes

BY_ADBC = ("postgresql", "snowflake", "bigquery", "databricks", "redshift", "trino", "sqlserver")
"""The dialects of tables that are reached by ADBC, as in `trino+adbc://PROFILE#schema.table`."""
SCHEMES = ("duckdb", "postgresql", "spark", *(f"{dialect}+adbc" for dialect in BY_ADBC))
"""Sources that are no files begin with one of these and a colon."""

Category = str | int | bool
T = TypeVar("T")


def build_tables(entries: Section, folder: Path, mistakes: Mistakes) -> tuple[TableSchema, ...]:
    """All tables of a policy."""
    read = tuple(_table(name, entries.section(name), folder, mistakes) for name in entries)
    found = tuple(_follow_links(table, read, entries.section(table.name), mistakes) for table in read)
    for table in found:
        check_links(table, found, entries.section(table.name), mistakes)
        _check_edges(table, found, entries.section(table.name), mistakes)
        _check_people(table, entries.section(table.name), mistakes)
    _check_public_sources(found, entries, folder, mistakes)
    return found


def _check_people(table: TableSchema, entry: Section, mistakes: Mistakes) -> None:
    """Refuse what would publish people by a slip: a public table of people, and a unit's column that tells nothing."""
    columns = entry.section("columns")
    about_people = (*table.with_role(Role.IDENTIFIER, Role.QUASI_IDENTIFIER, Role.SENSITIVE),)
    if table.public and about_people:
        first = about_people[0]
        happened = f"table '{table.name}' is public, and its column '{first.name}' is declared as {first.role}"
        remedy = "Say unit: instead of public: true; or, if the table is about nobody, role: insensitive"
        mistakes.add(columns.section(first.name).place, happened, "A public table protects nobody", remedy)
    unit = table.column(_who(table) or "")
    if unit is not None and unit.mask is None and unit.role in (Role.SENSITIVE, Role.INSENSITIVE):
        happened = f"column '{unit.name}' tells people apart, and is declared as {unit.role}"
        mistakes.add(columns.section(unit.name).place, happened, "Expected: role: identifier, or a mask")


def _check_public_sources(tables: tuple[TableSchema, ...], entries: Section, folder: Path, mistakes: Mistakes) -> None:
    """Refuse a source that is declared both as private and as public: its rows would be free under the other name."""
    private = {_locate(table.source, folder): table.name for table in tables if not table.public}
    for table in tables:
        protected = private.get(_locate(table.source, folder)) if table.public else None
        if protected is not None and table.source:
            happened = f"table '{table.name}' is public, and its source is that of the private table '{protected}'"
            expected, place = "A source is private or public", entries.section(table.name).place_of("source")
            mistakes.add(place, happened, expected, f"Drop '{table.name}', or give it another source")


def _locate(source: str, folder: Path) -> tuple[str, str]:
    """Where a source is, however its path is written, and which table of it is meant."""
    scheme, colon, rest = source.partition(":")
    path, _, table = (rest if colon and scheme in SCHEMES else source).partition("#")
    if colon and scheme in SCHEMES and scheme != "duckdb":
        return source.casefold(), ""
    return os.path.realpath(folder / path), table.casefold()


def _table(name: str, entry: Section, folder: Path, mistakes: Mistakes) -> TableSchema:
    public = entry.get("public", False)
    _check_protected(name, entry, public, mistakes)
    _source(entry, mistakes)
    columns = _columns(entry.section("columns"), folder, mistakes)
    unit = None if public else _unit(entry, mistakes)
    parent, sequence = entry.get("parent", None), entry.get("sequence", None)
    dialect = _dialect(entry.section("csv"), mistakes)
    same = entry.get("same_people_as", None)
    source, out = entry.get("source", ""), entry.get("rows_out", 1_000_000)
    edges = _read_edges(entry)
    return TableSchema(name, source, columns, unit, public, parent, sequence, same, dialect, out, edges)


def _read_edges(entry: Section) -> Edges | None:
    told = entry.section("edges")
    if "from" not in told or "to" not in told:
        return None
    table, _, key = str(told.get("nodes", "")).partition(".")
    nodes = (table, key) if table else None
    return Edges(
        told.get("from", ""), told.get("to", ""), told.get("directed", False), nodes, told.get("max_degree", None)
    )


def _check_protected(name: str, entry: Section, public: bool, mistakes: Mistakes) -> None:
    if public and "unit" in entry:
        happened = f"table '{name}' is public and has a unit"
        mistakes.add(entry.place_of("unit"), happened, remedy="A public table protects nobody: drop one of the two")
    if not public and not entry.was_given("unit"):
        expected = (
            "Say unit: row if each row is another person, or unit: {column: NAME} for the column that tells them apart"
        )
        mistakes.add(entry.place, f"table '{name}' does not say whom it protects", expected)
    if not public and not entry.was_given("columns"):
        mistakes.add(entry.place, f"table '{name}' lists no columns", "A private table lists its columns")


def _unit(entry: Section, mistakes: Mistakes) -> PrivacyUnit:
    unit = entry.section("unit")
    max_rows = unit.get("max_rows", None)
    bounding = Bounding(unit.get("bounding", "sample" if max_rows is None else "rows"))
    if max_rows is not None and bounding is not Bounding.ROWS:
        happened = f"max_rows bounds rows in all, and bounding is {bounding}"
        mistakes.add(unit.place_of("max_rows"), happened, remedy="Say bounding: rows, or drop one of the two")
        max_rows = None
    return PrivacyUnit(
        unit.get("column", None),
        unit.get("max_groups", None),
        unit.get("max_rows_per_group", None),
        Neighboring(unit.get("neighboring", "add-remove")),
        bounding,
        max_rows,
        tuple(_parse_link(str(each)) for each in strip_places(unit.get("via", None) or [])),
        word if (word := entry.get("unit", "")) in ("edge", "node") else "",
    )


def _parse_link(text: str) -> Link:
    """A step as it is written: `column = table.key`, or `table.key` where both columns have one name."""
    column, _, target = text.replace(" ", "").rpartition("=")
    table, _, key = target.partition(".")
    return Link(column or key, table, key)


def _follow_links(
    table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes
) -> TableSchema:
    """The table with the column of the person at the end of its steps; each step leads from a column to a column."""
    if table.unit is None or not table.unit.via:
        return table
    place, known, at = entry.section("unit").place_of("via"), {each.name: each for each in tables}, table
    for link in table.unit.via:
        below = known.get(link.table)
        for owner, name in ((at, link.column), (below, link.key)):
            if owner is None or owner.column(name) is None or owner.public:
                where = owner.name if owner is not None else link.table
                happened = f"the steps from '{table.name}' to its people name '{where}.{name}'"
                mistakes.add(place, happened, "Columns of private tables, each step from the table before to another")
                return table
        assert below is not None
        kinds = {column.type for column in (at.column(link.column), below.column(link.key)) if column is not None}
        if len(kinds) > 1 or not kinds <= {ColumnType.INTEGER, ColumnType.TEXT}:
            happened = f"'{at.name}.{link.column}' and '{below.name}.{link.key}' cannot be compared exactly"
            mistakes.add(place, happened, "Both of type integer, or both of type text")
            return table
        at = below
    if at.unit is None or at.unit.column is None or at.name == table.name:
        happened = f"the steps from '{table.name}' end at '{at.name}', which has no column that tells people apart"
        mistakes.add(place, happened, "A table with unit: {column: NAME}")
        return table
    return replace(table, unit=replace(table.unit, column=f"{at.name}.{at.unit.column}"))


def _source(entry: Section, mistakes: Mistakes) -> None:
    """Refuse unknown schemes, and passwords, which have no place in a file that is shared and hashed."""
    source = entry.get("source", "")
    if holds_secret(source):
        remedy = "Leave it to PGPASSFILE or PGPASSWORD"
        mistakes.add(entry.place_of("source"), "the source holds a password, or a key in place of one", remedy=remedy)
        return
    scheme, colon, rest = source.partition(":")
    if not colon or len(scheme) < 2 or not scheme.replace("+", "").strip().isalnum():
        return  # a path; a single letter is a drive
    place = entry.place_of("source")
    if scheme.strip() in SCHEMES and scheme != scheme.strip():
        mistakes.add(place, "the source begins with a space", remedy="Leave the space out")
    elif scheme not in SCHEMES:
        expected = "A path, or one of duckdb:, postgresql:, spark:, DIALECT+adbc:"
        if scheme.endswith("+adbc"):
            expected = f"One of {', '.join(BY_ADBC)} before +adbc:"
        mistakes.add(place, f"'{scheme}:' is not a kind of source", expected, nearest(scheme, SCHEMES))
    elif scheme.endswith("+adbc") and not re.fullmatch(r"//[A-Za-z0-9_-]+#.+", rest):
        happened = "a source that is reached by ADBC names a profile and a table, and no address"
        mistakes.add(place, happened, f"Such as {scheme}://PROFILE#schema.table")
    elif not rest.strip("/"):
        mistakes.add(place, f"'{scheme}:' names no database", f"Such as {scheme}:NAME#TABLE")


def _dialect(entry: Section, mistakes: Mistakes) -> CsvDialect:
    encoding = entry.get("encoding", None)
    if encoding is not None and find_codec(encoding) is None:
        expected = "An encoding is named as in utf-8, latin-1, cp1252, utf-16"
        mistakes.add(entry.place_of("encoding"), f"there is no encoding '{encoding}'", expected)
    decimal, thousands = entry.get("decimal", "."), entry.get("thousands", None)
    if decimal == thousands:
        expected = 'Two signs, such as 1.234,50 with decimal: "," and thousands: "."'
        mistakes.add(entry.place_of("thousands"), "decimals and thousands have the same sign", expected)
    return CsvDialect(
        entry.get("delimiter", None),
        entry.get("quote", None),
        entry.get("header", None),
        encoding,
        entry.get("null", ""),
        BadRows(entry.get("bad_rows", "refuse")),
        decimal,
        thousands,
        DateOrder(entry.get("dates", "year-first")),
    )


def _columns(entries: Section, folder: Path, mistakes: Mistakes) -> tuple[Column, ...]:
    sections = {name: entries.section(name) for name in entries}
    categories = {name: _categories(entry, folder, mistakes) for name, entry in sections.items()}
    hierarchies = {name: _spec(entry, "hierarchy", HIERARCHIES, folder, mistakes) for name, entry in sections.items()}
    places = {name: entry.place for name, entry in sections.items()}
    categories |= follow_likes(_find_borrowed_categories(sections), categories, "categories", places, mistakes)
    hierarchies |= follow_likes(_find_borrowed_hierarchies(hierarchies), hierarchies, "hierarchy", places, mistakes)
    return tuple(
        _column(name, entry, categories[name], hierarchies[name], folder, mistakes) for name, entry in sections.items()
    )


def _find_borrowed_categories(sections: dict[str, Section]) -> dict[str, str]:
    likes = {name: entry.section("categories").get("like", None) for name, entry in sections.items()}
    return {name: like for name, like in likes.items() if like is not None}


def _find_borrowed_hierarchies(hierarchies: dict[str, Spec | None]) -> dict[str, str]:
    stated = {name: each for name, each in hierarchies.items() if each is not None and each.kind == "like"}
    return {name: str(each.options["column"]) for name, each in stated.items() if "column" in each.options}


def _column(
    name: str,
    entry: Section,
    categories: tuple[Category, ...] | None,
    hierarchy: Spec | None,
    folder: Path,
    mistakes: Mistakes,
) -> Column:
    return Column(
        name,
        ColumnType(entry.get("type", "text")),
        Role(entry.get("role", "undecided")),
        entry.get("nullable", True),
        build_bounds(entry, mistakes),
        categories,
        _spec(entry, "mask", MASKS, folder, mistakes),
        hierarchy,
        typed="type" in entry,
        longest=_read_longest(entry, mistakes),
    )


def _read_longest(entry: Section, mistakes: Mistakes) -> int | None:
    if "longest" not in entry:
        return None
    if entry.get("type", "text") != "text" or "categories" in entry:
        mistakes.add(entry.place_of("longest"), "a longest text of something else", "It is for text without categories")
    return int(entry.get("longest", 0))


def _categories(entry: Section, folder: Path, mistakes: Mistakes) -> tuple[Category, ...] | None:
    if "categories" not in entry:
        return None
    kind, item = ColumnType(entry.get("type", "text")), entry["categories"]
    if kind not in (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN):
        mistakes.add(item.place, f"categories for type {kind}", "Categories are for text, integer and boolean columns")
        return None
    if "between" in entry:
        mistakes.add(item.place, "a column has both bounds and categories", "Expected: one of the two")
    leaves = _from_file(Section(item), folder, mistakes) if isinstance(item.value, dict) else _inline(item)
    return tuple(value for leaf in leaves if (value := _category(leaf, kind, mistakes)) is not None)


def _inline(item: Item) -> list[Leaf]:
    assert isinstance(item.value, tuple)
    return [each.value for each in item.value]


def _from_file(entry: Section, folder: Path, mistakes: Mistakes) -> list[Leaf]:
    if "file" not in entry:
        return []
    name, place = entry.get("file", ""), entry.place_of("file")
    text = side_files.read_side_file(folder, name, place, mistakes)
    values = (
        () if text is None else side_files.parse_category_column(text, name, entry.get("column", None), place, mistakes)
    )
    return [Leaf(value, False, place) for value in values]


LARGEST_CATEGORY = (1 << 63) - 1
"""Engines read a larger constant, or -2**63, as another type than the column has."""


def _category(leaf: Leaf, kind: ColumnType, mistakes: Mistakes) -> Category | None:
    try:
        value = tree_checker.read_typed(leaf, kind)
    except tree_checker.Misread as misread:
        expected = f"The column's type is {kind}: {misread.wanted[:1].lower()}{misread.wanted[1:]}"
        mistakes.add(leaf.place, f"a category cannot be read as {kind}", expected, misread.remedy)
        return None
    assert not isinstance(value, (Fraction, date, datetime))
    if isinstance(value, int) and abs(value) > LARGEST_CATEGORY:
        expected = "At most 2**63 - 1, and at least its negative"
        mistakes.add(leaf.place, "a category has more than 64 bits", expected, "If it is a code, say type: text")
        return None
    return value


def _spec(entry: Section, what: str, grammar: Kinds, folder: Path, mistakes: Mistakes) -> Spec | None:
    """A mask or hierarchy, if it suits the column's type; a tree's file is read into its rows."""
    if what not in entry:
        return None
    item = entry[what]
    chosen, kind = item.value, ColumnType(entry.get("type", "text"))
    assert isinstance(chosen, Chosen)
    allowed = getattr(grammar.kind(chosen.kind), "types", ())
    if allowed and kind not in allowed:
        happened = f"{what} '{chosen.kind}' does not suit type {kind}"
        mistakes.add(
            item.place, happened, f"It is for {' or '.join(allowed)}", "Declare the column's type, or choose another"
        )
    if what == "hierarchy" and chosen.kind == "tree":
        return Spec("tree", strip_places({"rows": _tree(chosen.options, folder, item.place, mistakes)}))
    bottom, top = (chosen.options[end].value if end in chosen.options else None for end in ("bottom", "top"))
    if isinstance(bottom, int | Fraction) and isinstance(top, int | Fraction) and bottom >= top:
        mistakes.add(item.place, "the bottom is not below the top", "What lies between them is kept")
    if what == "mask" and {"find", "put"} <= chosen.options.keys():
        _check_template(chosen.options["find"].value, chosen.options["put"], mistakes)
    return build_spec(chosen)


def _check_template(find: object, put: Item, mistakes: Mistakes) -> None:
    """The replacement of a regular expression speaks of groups that the expression has."""
    if isinstance(find, str) and isinstance(put.value, str) and (trouble := find_template_mistake(find, put.value)):
        mistakes.add(put.place, f"'put' does not fit 'find': {trouble}", r"\1 stands for the first group of 'find'")


def _tree(options: dict[str, Item], folder: Path, place: Place, mistakes: Mistakes) -> object:
    if "inline" in options:
        return options["inline"].value
    if "file" not in options:
        return ()
    name, place = str(options["file"].value), options["file"].place
    separator = str(options["separator"].value) if "separator" in options else None
    text = side_files.read_side_file(folder, name, place, mistakes)
    return () if text is None else side_files.parse_tree_rows(text, name, separator, place, mistakes)


MOST_STEPS = 1 << 62
"""So that a clamped value, counted in steps, fits a signed 64-bit integer."""


def build_bounds(entry: Section, mistakes: Mistakes) -> Bounds | None:
    """The bounds of a column entry, or None if it has none or they are refused."""
    if "between" not in entry:
        if "step" in entry:
            mistakes.add(entry.place_of("step"), "a step without bounds", "Expected: between: [lowest, highest]")
        return None
    kind = _require_ordered_type(entry, mistakes)
    if kind is None:
        return None
    ends = [_read_end(item.value, kind, mistakes) for item in entry["between"].value]  # type: ignore[attr-defined]
    if len(ends) < 2 or ends[0] is None or ends[1] is None:
        return None
    return _check_bounds(entry, kind, ends[0], ends[1], mistakes)


def _require_ordered_type(entry: Section, mistakes: Mistakes) -> ColumnType | None:
    kind = ColumnType(entry.get("type", "text"))
    if kind in (ColumnType.TEXT, ColumnType.BOOLEAN):
        happened = f"bounds for type {kind}" if "type" in entry else "bounds without a type"
        mistakes.add(entry.place_of("between"), happened, "Expected: type: integer, decimal, date or datetime")
        return None
    return kind


def _read_end(leaf: object, kind: ColumnType, mistakes: Mistakes) -> Endpoint | None:
    assert isinstance(leaf, Leaf)
    try:
        value = tree_checker.read_typed(leaf, kind)
    except tree_checker.Misread as misread:
        wanted = f"Expected: {misread.wanted[:1].lower()}{misread.wanted[1:]}"
        mistakes.add(leaf.place, f"bound `{leaf.text[:40]}` cannot be read as {kind}", wanted, misread.remedy)
        return None
    assert not isinstance(value, (str, bool))
    return value


def _check_bounds(
    entry: Section, kind: ColumnType, lower: Endpoint, upper: Endpoint, mistakes: Mistakes
) -> Bounds | None:
    place = entry.place_of("between")
    span = _measure_span(lower, upper)
    if span < 0:
        mistakes.add(place, "the bounds are reversed", "Expected: [lowest, highest]", "Swap them")
        return None
    if kind is ColumnType.DECIMAL and "step" not in entry:
        mistakes.add(
            place, "bounds of a decimal column without a step", "Such as step: 0.01", "Values are rounded to it"
        )
        return None
    step: Fraction = entry.get("step", Fraction(1))
    if kind is not ColumnType.DECIMAL and step.denominator != 1:
        mistakes.add(entry.place_of("step"), f"the step of a column of type {kind} is a fraction", "A whole number")
    elif (span / step).denominator != 1 or (kind.numeric and (_count_units(lower) / step).denominator != 1):
        at = entry.place_of("step") if "step" in entry else place
        mistakes.add(at, "the step does not divide the bounds", "Both bounds are whole multiples of the step")
    elif max(span, *map(abs, (_count_units(lower), _count_units(upper)))) / step > MOST_STEPS:
        mistakes.add(
            place,
            "the bounds are too far apart to add up exactly",
            "At most 2**62 steps of its size",
            "Use a larger step: the numbers are rounded to it",
        )
    else:
        return Bounds(lower, upper, step)
    return None


def _count_units(end: Endpoint) -> Fraction:
    return Fraction(0) if isinstance(end, date) else Fraction(end)


def _measure_span(lower: Endpoint, upper: Endpoint) -> Fraction:
    """The distance between two bounds, in units, days or seconds."""
    if isinstance(lower, datetime) and isinstance(upper, datetime):
        apart = upper - lower
        return Fraction(apart.days * 86_400 + apart.seconds) + Fraction(apart.microseconds, 1_000_000)
    if isinstance(lower, date) and isinstance(upper, date):
        return Fraction((upper - lower).days)
    return _count_units(upper) - _count_units(lower)


def follow_likes(
    likes: Mapping[str, str], stated: Mapping[str, T], what: str, places: Mapping[str, Place], mistakes: Mistakes
) -> dict[str, T]:
    """For each borrowing column what the column at the end of its chain states; unknown names are left to others."""
    found: dict[str, T] = {}
    for name in likes:
        path, here = [name], likes[name]
        while here in likes and here not in path:
            path.append(here)
            here = likes[here]
        if here in path:
            circle = path[path.index(here) :]
            if name == min(circle):  # a circle is one mistake, whoever leads into it
                way = " -> ".join([*circle, here])
                mistakes.add(places[name], f"column '{name}' takes its {what} from itself: {way}", "One states its own")
        elif here in stated and stated[here] is None:
            mistakes.add(places[name], f"column '{name}' takes its {what} from '{here}', which has none")
        elif here in stated:
            found[name] = stated[here]
    return found


def check_links(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    """Check what a table says of its parent, of its sequence, and of another table with the same people."""
    if table.parent is not None:
        _check_parent(table, tables, entry, mistakes)
    if table.same_people_as is not None:
        _check_same_people(table, tables, entry, mistakes)
    if table.sequence is not None:
        _check_sequence(table, entry, mistakes)


def _check_edges(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    """Check what a table says of its edges: its unit, the types of both ends, and the table of nodes."""
    edges, hidden = table.edges, table.unit.network if table.unit is not None else ""
    if edges is None:
        if hidden and not entry.was_given("edges"):
            happened = f"unit: {hidden} of a table that does not say which columns are the ends of edges"
            mistakes.add(entry.place_of("unit"), happened, "Such as edges: {from: COLUMN, to: COLUMN}")
        return
    place = entry.place_of("edges")
    if not hidden:
        expected = "unit: edge hides one connection, unit: node a node with all its connections"
        mistakes.add(place, f"table '{table.name}' has edges, and its unit is neither edge nor node", expected)
        return
    if table.parent or table.sequence or table.same_people_as:
        mistakes.add(place, "a table of edges has no parent, sequence or same_people_as", "Leave them out")
    ends = [table.column(name) for name in (edges.first, edges.second)]
    kinds = {column.type for column in ends if column is not None}
    if edges.first == edges.second:
        mistakes.add(place, "both ends of an edge are one column", "Two columns: from and to")
    if edges.nodes is not None:
        kinds |= _check_nodes(table, tables, place, mistakes)
    if len(kinds) > 1 or not kinds <= {ColumnType.INTEGER, ColumnType.TEXT}:
        expected = "All of type integer, or all of type text"
        mistakes.add(place, "the columns that name nodes cannot be compared exactly", expected)


def _check_nodes(
    table: TableSchema, tables: tuple[TableSchema, ...], place: Place, mistakes: Mistakes
) -> set[ColumnType]:
    """Check the table of nodes; gives the type of its names."""
    assert table.edges is not None
    assert table.edges.nodes is not None
    assert table.unit is not None
    name, key = table.edges.nodes
    known = {each.name: each for each in tables if each.name != table.name}
    found = known.get(name)
    column = found.column(key) if found is not None else None
    if found is None or column is None:
        expected = f"A declared column of another table: {', '.join(known) or 'there is none'}"
        mistakes.add(place, f"the nodes of '{table.name}' are in '{name}.{key}', which is not there", expected)
        return set()
    if table.unit.network == "edge" and not found.public:
        expected = "A public table: unit: edge hides connections, and neither who is there nor what they are"
        remedy = "Say unit: node, or public: true if the nodes are known to everybody"
        mistakes.add(place, f"'{name}' is private, and the unit of '{table.name}' is an edge", expected, remedy)
    if table.unit.network == "node" and _who(found) != key:
        expected = f"unit: {{column: {key}}} of '{name}': a node is hidden with its row and its edges"
        mistakes.add(place, f"the nodes of '{table.name}' are not the unit of '{name}'", expected)
    return {column.type}


def _check_parent(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    place, known = entry.place_of("parent"), {each.name: each for each in tables if each.name != table.name}
    found = known.get(str(table.parent))
    if found is None:
        happened = f"the parent '{table.parent}' of '{table.name}' is not another table"
        mistakes.add(place, happened, f"Known: {', '.join(known)}", nearest(str(table.parent), known))
    elif _who(table) is None or _who(found) != _who(table):
        happened = f"'{table.name}' and its parent '{found.name}' do not have the same unit column"
        mistakes.add(place, happened, "Both private, with unit: {column: NAME} of one name")
    above, seen = found, {table.name}
    while above is not None and above.name not in seen:
        seen.add(above.name)
        above = next((each for each in tables if each.name == above.parent), None) if above.parent else None
    if above is not None and above.name == table.name:
        mistakes.add(
            place, f"the parents of '{table.name}' lead back to it", "A table of people at the top, without one"
        )


def _check_same_people(table: TableSchema, tables: tuple[TableSchema, ...], entry: Section, mistakes: Mistakes) -> None:
    place = entry.place_of("same_people_as")
    known = {each.name: each for each in tables if each.name != table.name and _who(each) is not None}
    if table.same_people_as not in known:
        happened = f"'{table.same_people_as}' is not another table that tells people apart by a column"
        mistakes.add(place, happened, f"Known: {', '.join(known)}", nearest(str(table.same_people_as), known))
    elif _who(table) is None:
        happened = f"the rows of '{table.name}' are each their own unit, so nobody can be found in them"
        mistakes.add(place, happened, "unit: {column: NAME}")


def _check_sequence(table: TableSchema, entry: Section, mistakes: Mistakes) -> None:
    column = table.column(str(table.sequence))
    if _who(table) is None:
        happened = f"table '{table.name}' has a sequence, and each row is its own unit"
        mistakes.add(entry.place_of("sequence"), happened, "A unit with a column, whose rows follow one another")
    elif column is not None and column.bounds is None:
        happened = f"the sequence '{column.name}' has no bounds"
        mistakes.add(entry.place_of("sequence"), happened, "A number, date or datetime with between")


def _who(table: TableSchema) -> str | None:
    return table.unit.column if table.unit else None
