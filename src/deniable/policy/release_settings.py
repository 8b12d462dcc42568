"""Checked entries made into release settings and key places, and the checks between their keys."""

from __future__ import annotations

from collections.abc import Container, Sequence
from fractions import Fraction
from typing import Any

from deniable.errors import ParameterError, nearest
from deniable.policy.access import AttackLimits, JointLimit, KeyPlace, Minimize, ReleaseSettings, Synthesize
from deniable.policy.check import tree_checker
from deniable.policy.check.tree_checker import Chosen, Item, Section, build_spec, strip_places
from deniable.policy.conditions import read_condition
from deniable.policy.schema import Anonymize, Column, ColumnType, Frozen, Role, Spec, TableSchema
from deniable.policy.truths import columns_of, declare_column, describe_contradiction, list_names
from deniable.policy.yaml_tree import Leaf, Mistakes


def build_release_settings(entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> ReleaseSettings:
    """What releases must meet."""
    return ReleaseSettings(
        _anonymize(entry.section("anonymize")) if "anonymize" in entry else None,
        _minimize(entry.section("minimize")) if "minimize" in entry else None,
        _attack(entry.section("attack")) if "attack" in entry else None,
        _truths(entry["truths"], tables, mistakes) if "truths" in entry else (),
        Synthesize(_workload(entry.section("synthesize"), tables, mistakes)),
        _joint(entry.section("joint")),
    )


def _joint(entry: Section) -> JointLimit | None:
    return JointLimit(entry.get("most", Fraction(0)), entry.get("accepted_by", None)) if "most" in entry else None


def _anonymize(entry: Section) -> Anonymize:
    return Anonymize(
        entry.get("k", 5),
        entry.get("l", Frozen()),
        entry.get("t", Frozen()),
        entry.get("suppress", Fraction(0)),
        entry.get("models", ()),
        entry.get("second_release", "warn"),
    )


def _minimize(entry: Section) -> Minimize:
    return Minimize(entry.get("sample", Fraction(1)), entry.get("columns", None))


def _attack(entry: Section) -> AttackLimits:
    return AttackLimits(entry.get("knows", None), entry.get("most", Frozen()), entry.get("accepted_by", None))


def _truths(item: Item, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> tuple[Spec, ...]:
    assert isinstance(item.value, tuple)
    before = len(mistakes.found)
    truths = tuple(_truth(each, tables, mistakes) for each in item.value)
    if len(mistakes.found) == before and all(_is_whole(truth.kind, truth.options) for truth in truths):
        _refuse_contradictions(item, truths, tables, mistakes)
    return truths


def _refuse_contradictions(
    item: Item, truths: tuple[Spec, ...], tables: tuple[TableSchema, ...], mistakes: Mistakes
) -> None:
    """Truths of one table that no row can keep together are a mistake."""
    for table in tables:
        own = [truth for truth in truths if columns_of(truth) <= set(table.names)]
        if own and (words := describe_contradiction(own, table.columns)):
            mistakes.add(item.place, words, remedy="Correct or remove one of them")


def _truth(item: Item, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> Spec:
    """One truth; all its columns stand in one table, and its values have the types of their columns."""
    chosen = item.value
    assert isinstance(chosen, Chosen)
    if not _is_whole(chosen.kind, chosen.options):
        return build_spec(chosen)
    named = _list_columns(chosen, item, mistakes)
    known = {name for table in tables for name in table.names}
    home = next((table for table in tables if named <= set(table.names)), None)
    if home is None:
        if named <= known:
            mistakes.add(
                item.place, f"the columns of '{chosen.kind}' stand in different tables", "Columns of one table"
            )
        for name in sorted(named - known) if chosen.kind == "holds" else ():  # other kinds refer to columns
            mistakes.add(item.place, f"there is no column '{name}'", remedy=nearest(name, known))
        return build_spec(chosen)
    if chosen.kind != "impossible":
        return _check_types(build_spec(chosen), item, home, mistakes)
    when = Section(chosen.options["when"])
    values = {name: _values(when[name], home.column(name), mistakes) for name in when}
    return _check_types(Spec("impossible", Frozen({"when": Frozen(values)})), item, home, mistakes)


PARTS = {
    "determines": {"from", "to"}, "sum": {"parts", "total"}, "order": {"columns"}, "holds": {"condition"},
    "impossible": {"when"},
}  # fmt: skip


def _is_whole(kind: str, options: Container[str]) -> bool:
    """Whether a truth has all its parts; one that could not be read is left out, and was reported already."""
    return all(part in options for part in PARTS[kind])


def _check_types(truth: Spec, item: Item, home: TableSchema, mistakes: Mistakes) -> Spec:
    """The truth, after noting columns of types that it cannot speak of."""
    try:
        if truth.kind == "holds":
            read_condition(str(truth.options["condition"]), {column.name: column.type for column in home.columns})
        if words := find_wrong_types(truth, home.columns):
            mistakes.add(item.place, words, "Columns with values of their own: numbers, or two or more of one type")
    except ParameterError as refused:
        mistakes.add(item.place, refused.happened, refused.expected, refused.remedy)
    return truth


def _workload(entry: Section, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> tuple[tuple[str, ...], ...]:
    """Lists of columns, each list of one table; what is made anew cannot be got right."""
    asked = entry["workload"].value if "workload" in entry else ()
    assert isinstance(asked, tuple)
    for item in asked:
        _check_home(item, tables, mistakes)
    return tuple(strip_places(item) for item in asked)


def _check_home(item: Item, tables: tuple[TableSchema, ...], mistakes: Mistakes) -> None:
    names = strip_places(item)
    home = next((table for table in tables if set(names) <= set(table.names)), None)
    if home is None:
        known = {name for table in tables for name in table.names}
        if all(name in known or "." in name for name in names):  # unknown names were reported already
            happened = f"{', '.join(names)} are not columns of one table"
            mistakes.add(item.place, happened, "Columns of one table, each by its own name")
        return
    for name in names:
        column = home.column(name)
        if column is not None and column.role is Role.IDENTIFIER and column.categories is None:
            happened = f"'{name}' is an identifier, which synthetic rows make anew"
            mistakes.add(item.place, happened, remedy="Leave it out of the workload")


def _list_columns(chosen: Chosen, item: Item, mistakes: Mistakes) -> set[str]:
    """The columns that a truth names; none of a condition that cannot be read, which is noted."""
    names: set[str] = set()
    if chosen.kind == "holds":
        try:
            return set(columns_of(build_spec(chosen)))
        except ParameterError as refused:
            mistakes.add(item.place, refused.happened, refused.expected, refused.remedy)
            return names
    for item in chosen.options.values():
        value = strip_places(item)
        if isinstance(value, (tuple, Frozen)):
            names |= {str(each) for each in value}
        elif isinstance(value, str):
            names.add(value)
    return names


def _values(item: Item, column: Column | None, mistakes: Mistakes) -> tuple[tree_checker.Value, ...]:
    leaves = [each.value for each in item.value] if isinstance(item.value, tuple) else [item.value]
    found = []
    for leaf in leaves:
        assert isinstance(leaf, Leaf)
        assert column is not None
        try:
            value = tree_checker.read_typed(leaf, column.type)
        except tree_checker.Misread as misread:
            happened = f"`{leaf.text[:40]}` is not a value of column '{column.name}', which is of type {column.type}"
            mistakes.add(leaf.place, happened, misread.wanted, misread.remedy)
            continue
        if column.categories is not None and value not in column.categories:
            mistakes.add(leaf.place, f"`{leaf.text[:40]}` is none of the categories of '{column.name}'")
        found.append(value)
    return tuple(found)


def build_key_places(entry: Section) -> tuple[KeyPlace, ...]:
    """Where the masking keys are kept."""
    found = []
    for name in entry:
        for kind in entry.section(name):
            at = entry.section(name).get(kind, ())
            found.append(KeyPlace(name, kind, at if isinstance(at, tuple) else (at,)))
    return tuple(found)


def find_wrong_types(truth: Spec, columns: Sequence[Column]) -> str:
    """What is wrong with the types of a truth's columns, in words; nothing if nothing is."""
    anew = {c.name for c in columns if c.role is Role.IDENTIFIER and declare_column(c).listed is None}
    if truth.kind != "determines" and (made := sorted(columns_of(truth) & anew)):
        return f"'{made[0]}' is an identifier, which is made anew, so nothing else can be told of it"
    if truth.kind == "determines" and (both := _list_common(truth.options["from"], truth.options["to"])):
        return f"'{both[0]}' is said to be determined by itself"
    if truth.kind == "sum" and (both := _list_common(truth.options["parts"], [truth.options["total"]])):
        return f"'{both[0]}' is a part of the sum and its total"
    types = {column.name: column.type for column in columns}
    kinds = {_kind_of(types[name]) for name in columns_of(truth)}
    if truth.kind == "sum" and kinds != {"number"}:
        return "columns that are no numbers are added"
    if truth.kind == "order" and len(kinds) > 1:
        return "columns of different types are put in order"
    return ""


def _list_common(first: Any, second: Any) -> list[str]:
    return sorted(set(list_names(first)) & set(list_names(second)))


def _kind_of(kind: ColumnType) -> str:
    return "number" if kind in (ColumnType.INTEGER, ColumnType.DECIMAL) else str(kind)
