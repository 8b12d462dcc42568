"""Checked entries made into tables: bounds, categories and units, with the checks that need more than one key."""

from __future__ import annotations

from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from deniable.errors import Place, nearest
from deniable.policy import scalars, sidefiles
from deniable.policy.bounds import bounds
from deniable.policy.checking import Chosen, Item
from deniable.policy.dialect import BadRows, CsvDialect, codec
from deniable.policy.grammar import Kinds
from deniable.policy.hierarchies import HIERARCHIES
from deniable.policy.likeness import follow
from deniable.policy.linking import linked
from deniable.policy.masks import MASKS
from deniable.policy.mistakes import Mistakes
from deniable.policy.plain import Section, plain, spec
from deniable.policy.reading import Leaf
from deniable.policy.roles import Role
from deniable.policy.schema import Column, ColumnType, Spec, TableSchema
from deniable.policy.unit import Bounding, Neighboring, PrivacyUnit

SCHEMES = ("duckdb", "postgresql", "spark")
"""Sources that are no files begin with one of these and a colon."""

Category = str | int | bool
T = TypeVar("T")


def tables(entries: Section, folder: Path, mistakes: Mistakes) -> tuple[TableSchema, ...]:
    """All tables of a policy."""
    found = tuple(_table(name, entries.section(name), folder, mistakes) for name in entries)
    for table in found:
        linked(table, found, entries.section(table.name), mistakes)
    return found


def _table(name: str, entry: Section, folder: Path, mistakes: Mistakes) -> TableSchema:
    public = entry.get("public", False)
    _who_is_protected(name, entry, public, mistakes)
    _source(entry, mistakes)
    columns = _columns(entry.section("columns"), folder, mistakes)
    unit = None if public else _unit(entry, mistakes)
    parent, sequence = entry.get("parent", None), entry.get("sequence", None)
    dialect = _dialect(entry.section("csv"), mistakes)
    return TableSchema(name, entry.get("source", ""), columns, unit, public, parent, sequence, dialect)


def _who_is_protected(name: str, entry: Section, public: bool, mistakes: Mistakes) -> None:
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
    )


def _source(entry: Section, mistakes: Mistakes) -> None:
    """Refuse unknown schemes, and passwords, which have no place in a file that is shared and hashed."""
    source = entry.get("source", "")
    scheme, colon, rest = source.partition(":")
    if not colon or len(scheme) < 2 or not scheme.isalnum():
        return  # a path; a single letter is a drive
    place = entry.place_of("source")
    if scheme not in SCHEMES:
        expected = f"A path, or one of {', '.join(s + ':' for s in SCHEMES)}"
        mistakes.add(place, f"'{scheme}:' is no kind of source", expected, nearest(scheme, SCHEMES))
    elif ":" in rest.partition("//")[2].partition("@")[0] and "@" in rest:
        mistakes.add(place, "the source holds a password", remedy="Leave it to PGPASSFILE or PGPASSWORD")
    elif not rest.strip("/"):
        mistakes.add(place, f"'{scheme}:' names no database", f"Such as {scheme}:NAME#TABLE")


def _dialect(entry: Section, mistakes: Mistakes) -> CsvDialect:
    encoding = entry.get("encoding", None)
    if encoding is not None and codec(encoding) is None:
        expected = "An encoding is named as in utf-8, latin-1, cp1252, utf-16"
        mistakes.add(entry.place_of("encoding"), f"there is no encoding '{encoding}'", expected)
    return CsvDialect(
        entry.get("delimiter", None),
        entry.get("quote", None),
        entry.get("header", None),
        encoding,
        entry.get("null", ""),
        BadRows(entry.get("bad_rows", "refuse")),
    )


def _columns(entries: Section, folder: Path, mistakes: Mistakes) -> tuple[Column, ...]:
    sections = {name: entries.section(name) for name in entries}
    categories = {name: _categories(entry, folder, mistakes) for name, entry in sections.items()}
    hierarchies = {name: _spec(entry, "hierarchy", HIERARCHIES, folder, mistakes) for name, entry in sections.items()}
    places = {name: entry.place for name, entry in sections.items()}
    categories |= follow(_liked_categories(sections), categories, "categories", places, mistakes)
    hierarchies |= follow(_liked_hierarchies(hierarchies), hierarchies, "hierarchy", places, mistakes)
    return tuple(
        _column(name, entry, categories[name], hierarchies[name], folder, mistakes) for name, entry in sections.items()
    )


def _liked_categories(sections: dict[str, Section]) -> dict[str, str]:
    likes = {name: entry.section("categories").get("like", None) for name, entry in sections.items()}
    return {name: like for name, like in likes.items() if like is not None}


def _liked_hierarchies(hierarchies: dict[str, Spec | None]) -> dict[str, str]:
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
        Role(entry.get("role", "insensitive")),
        entry.get("nullable", True),
        bounds(entry, mistakes),
        categories,
        _spec(entry, "mask", MASKS, folder, mistakes),
        hierarchy,
    )


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
    text = sidefiles.content(folder, name, place, mistakes)
    values = () if text is None else sidefiles.column(text, name, entry.get("column", None), place, mistakes)
    return [Leaf(value, False, place) for value in values]


def _category(leaf: Leaf, kind: ColumnType, mistakes: Mistakes) -> Category | None:
    try:
        value = scalars.typed(leaf, kind)
    except scalars.Misread as misread:
        expected = f"The column's type is {kind}: {misread.wanted[:1].lower()}{misread.wanted[1:]}"
        mistakes.add(leaf.place, f"a category cannot be read as {kind}", expected, misread.remedy)
        return None
    assert not isinstance(value, (Fraction, date, datetime))
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
        return Spec("tree", plain({"rows": _tree(chosen.options, folder, item.place, mistakes)}))
    return spec(chosen)


def _tree(options: dict[str, Item], folder: Path, place: Place, mistakes: Mistakes) -> object:
    if "inline" in options:
        return options["inline"].value
    if "file" not in options:
        return ()
    name, place = str(options["file"].value), options["file"].place
    separator = str(options["separator"].value) if "separator" in options else None
    text = sidefiles.content(folder, name, place, mistakes)
    return () if text is None else sidefiles.leaves(text, name, separator, place, mistakes)
