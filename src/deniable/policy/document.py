"""The policy: one YAML file says what is protected, for whom, and how much.

`read` and `parse` give a frozen Policy, or one PolicyError that lists every mistake with its line. Nothing here sees
data: a policy is decided by its own text and by the public lists that it names.

Releases and ledgers cite the hash of the canonical form. That form does not depend on formatting, comments, the order
of keys, the machine or the folder: records become sorted JSON, exact numbers become text, and what equals its default
is left out, so that a later version of the layout with further optional keys gives old policies their old hash. Other
lists, such as categories, keep their order, since it may mean something."""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import shlex
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.errors import ParameterError, Place, PolicyError, nearest
from deniable.policy import access, release_settings, tables
from deniable.policy.access import Budgets, Epochs, KeyPlace, ReleaseSettings
from deniable.policy.check import tree_checker
from deniable.policy.check.tree_checker import Checker, Section
from deniable.policy.diff import list_loosened
from deniable.policy.layout import policy_file
from deniable.policy.schema import ColumnType, TableSchema
from deniable.policy.stream import Stream, build_streams
from deniable.policy.yaml_tree import MOST_BYTES, Mistakes, parse_tree
from deniable.storage import ACCEPTED, place_state, storage_errors, write_whole

if TYPE_CHECKING:
    from deniable.policy.tabulation import Tabulation


@dataclass(frozen=True, slots=True)
class Policy:
    """A checked policy. `folder` is where its relative paths begin; it is no part of what is declared."""

    version: int
    dataset: str
    tables: tuple[TableSchema, ...]
    budgets: Budgets | None = None
    release: ReleaseSettings = field(default_factory=ReleaseSettings)
    expires: date | None = None
    keys: tuple[KeyPlace, ...] = ()
    epochs: Epochs | None = None
    accepts: tuple[str, ...] = ()
    witness: str | None = None
    streams: tuple[Stream, ...] = ()
    stewards: tuple[str, ...] = ()
    tabulations: tuple[Tabulation, ...] = ()
    folder: Path = field(default=Path(), compare=False, repr=False)

    @property
    def hash(self) -> str:
        """What releases and ledger entries cite: equal for equal meaning, however the file is written."""
        return digest(self)

    @property
    def private(self) -> tuple[TableSchema, ...]:
        """The tables that protect somebody."""
        return tuple(table for table in self.tables if not table.public)

    def table(self, name: str) -> TableSchema:
        """The table of that name."""
        for table in self.tables:
            if table.name == name:
                return table
        known = [table.name for table in self.tables]
        expected = f"The policy has: {', '.join(known)}"
        raise ParameterError(f"the policy has no table '{name}'", expected=expected, remedy=nearest(name, known))

    def stream(self, name: str) -> Stream:
        """The stream of that name."""
        return _find_named(self.streams, name, "stream")

    def tabulation(self, name: str) -> Tabulation:
        """The tabulation of that name."""
        return _find_named(self.tabulations, name, "tabulation")

    def same_people(self, column: str) -> tuple[str, ...]:
        """All columns that hold the same people's values as this unit column does, through declared links.

        Equal names are one; a link joins two names.
        """
        names = {table.name: table.unit.column for table in self.private if table.unit and table.unit.column}
        links = [(names[t.name], names[t.same_people_as]) for t in self.private
                 if t.name in names and t.same_people_as in names]  # fmt: skip
        found = [column]
        for name in found:  # grows while it is read: whatever is linked to a name that was found is found too
            found += sorted({other for link in links if name in link for other in link} - {*found})
        return tuple(found)

    def has_numbered_people(self, column: str) -> bool:
        """Whether people may be numbers by this unit column, or one linked to it: texts of it are then read as such.

        They are not where each is declared as something else. Where no type is declared, a file decides how it holds
        the values, and another file may hold them otherwise: 7, 007 or 7.0.
        """
        units = {(t, t.unit.column) for t in self.private if t.unit and t.unit.column in self.same_people(column)}
        columns = [table.column(name) for table, name in units if name]
        kinds = {own.type if own and own.typed else None for own in columns}
        return bool(kinds & {ColumnType.INTEGER, ColumnType.DECIMAL, None})

    def is_expired(self, today: date) -> bool:
        """Whether the last day on which anything may be released has passed."""
        return self.expires is not None and today > self.expires

    def path(self, written: str) -> Path:
        """A path of the policy, from where the policy file stands."""
        return self.folder / written


def read(path: str | Path) -> Policy:
    """The policy in a file; refused where it protects less than the one that the steward accepted last."""
    policy = read_unaccepted(path)
    loosened = compare_with_accepted(policy, path)
    if loosened:
        mistakes = Mistakes(str(path))
        for words in loosened:
            mistakes.add(Place(str(path), 1), words)
        accept = f"Let the steward look at it and say: deniable policy accept {shlex.quote(str(path))} --by NAME"
        happened = f"{path} protects less than the policy that was accepted last"
        raise PolicyError(happened, remedy=accept, mistakes=tuple(mistakes.found))
    return policy


def compare_with_accepted(policy: Policy, path: str | Path) -> tuple[str, ...]:
    """What a policy protects less than those that were accepted for the same rows; nothing where none was.

    They are found by the policy's file, by the sources of its private tables, and by its dataset in its folder, so that
    neither a copy nor a new name begins anew. A policy that protects no less than one of them was accepted with it.
    """
    found = [_parse_accepted(one) for one in _read_accepted() if _is_about(one, policy, path)]
    if not found or policy.hash in {before.hash for before in found}:
        return ()
    return min((list_loosened(before, policy) for before in found), key=len)


def keep_accepted(policy: Policy, path: str | Path, by: str, on: date) -> None:
    """Keep a policy as accepted, in place of the one that was accepted last in its file."""
    text = Path(path).read_bytes().decode("utf-8-sig")
    one = {"file": os.path.realpath(path), "dataset": policy.dataset, "sources": _name_sources(policy), "by": by,
           "on": str(on), "folder": os.path.realpath(policy.folder), "hash": policy.hash, "text": text}  # fmt: skip
    kept = [other for other in _read_accepted() if other["file"] != one["file"]]
    place = place_state(ACCEPTED)
    with storage_errors(place):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(place, json.dumps([*kept, one], indent=1, ensure_ascii=False).encode())


def find_acceptance(digest: str) -> str | None:
    """Who accepted the policy of this digest, as the user's state tells; None where it does not."""
    kept = (one for one in _read_accepted() if one.get("hash") == digest and _parse_accepted(one))
    return next((str(one["by"]) for one in kept), None)


def find_accepted(*files: Any) -> str | None:
    """The policy that was accepted last for one of these files of rows, or for a copy of it; None where none was."""
    places = [os.path.realpath(each) for each in files if isinstance(each, str | Path) and os.path.isfile(each)]
    for one in reversed(_read_accepted()) if places else ():
        if any(_hold_the_same(place, own) for place in places for own in one["sources"]):
            return str(one["file"])
    return None


def list_accepted() -> dict[str, Policy]:
    """Every policy that was accepted, by its file, the last one last."""
    return {str(one["file"]): _parse_accepted(one) for one in _read_accepted()}


def _hold_the_same(one: str, other: str) -> bool:
    if one == other:
        return True
    alike = os.path.isfile(other) and os.path.getsize(one) == os.path.getsize(other) > 0
    return alike and filecmp.cmp(one, other, shallow=False)


def _read_accepted() -> list[dict[str, Any]]:
    place = place_state(ACCEPTED)
    try:
        return list(json.loads(place.read_bytes())) if place.exists() else []
    except (OSError, ValueError):
        remedy = "Put it back from a copy, or remove it and accept the policies again"
        raise PolicyError(f"the accepted policies in '{place}' cannot be read", remedy=remedy) from None


def _parse_accepted(one: Mapping[str, Any]) -> Policy:
    """An accepted policy; refuses one whose text is another than the one that was accepted."""
    policy = parse(one["text"], folder=one["folder"])
    if policy.hash != one["hash"]:
        raise PolicyError(
            f"an accepted policy in '{place_state(ACCEPTED)}' was changed",
            remedy="Put the file back from a copy, or remove it and accept the policies again",
        )
    return policy


def _is_about(one: Mapping[str, Any], policy: Policy, path: str | Path) -> bool:
    same_place = one["dataset"] == policy.dataset and one["folder"] == os.path.realpath(policy.folder)
    shared = set(one["sources"]) & set(_name_sources(policy))
    return one["file"] == os.path.realpath(path) or same_place or bool(shared)


def _name_sources(policy: Policy) -> list[str]:
    """The sources of private tables, each as one text wherever the policy stands."""
    return sorted({os.path.realpath(policy.path(table.source)) for table in policy.private})


def read_unaccepted(path: str | Path) -> Policy:
    """The policy in a file, whatever was accepted before."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else "not a path"
        remedy = "Draft one with: deniable policy init TABLE"
        raise PolicyError(f"the policy '{path}' cannot be read: {reason}", remedy=remedy) from None
    text = _decode_text(raw, path)
    return parse(text, source=str(path), folder=path.parent)


def _decode_text(raw: bytes, path: Path) -> str:
    if len(raw) > MOST_BYTES:
        return "#" * len(raw)  # refused for its size, whatever it holds
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        place = Place(str(path), raw.count(b"\n", 0, failure.start) + 1)
        raise PolicyError(
            "the file is not UTF-8",
            remedy="Save it as UTF-8 text; for a table, draft a policy first: deniable policy init TABLE",
            place=place,
        ) from None


def parse(text: str, source: str = "policy", folder: str | Path = ".") -> Policy:
    """The policy in a text; relative paths begin at the folder.

    >>> parse("{version: 1, dataset: demo, tables: {t: {source: t.csv, public: true}}}").dataset
    'demo'
    """
    mistakes = Mistakes(source)
    root = parse_tree(text, mistakes)
    _refuse_marked(text, mistakes)
    checker = Checker(mistakes)
    found = checker.check(policy_file.POLICY, root, "the policy") if root is not None else None
    tree_checker.resolve_mentions(checker, mistakes)
    policy = _build_policy(Section(found), Path(folder), mistakes) if found is not None else None
    mistakes.check()
    assert policy is not None
    return policy


READ_FROM_DATA = "read from the data"
"""The words in a draft's comments that mark what only the data says. A declaration may not stand beside them."""


def _refuse_marked(text: str, mistakes: Mistakes) -> None:
    """Refuse declarations that a draft read from the data and nobody confirmed: bounds and categories are public."""
    for number, line in enumerate(text.splitlines(), start=1):
        declared, _, comment = line.partition(" #")
        if comment.strip().startswith(READ_FROM_DATA) and declared.strip() and not declared.lstrip().startswith("#"):
            remedy = "Replace it by what you know of the subject, and delete the comment"
            place = Place(mistakes.source, number, len(declared) - len(declared.lstrip()) + 1)
            mistakes.add(place, "a declaration is still marked as read from the data", "Public knowledge", remedy)


def _build_policy(entry: Section, folder: Path, mistakes: Mistakes) -> Policy:
    known = tables.build_tables(entry.section("tables"), folder, mistakes)
    budgets = access.build_budgets(entry.section("budgets"), mistakes)
    return Policy(
        entry.get("version", 1),
        entry.get("dataset", ""),
        known,
        budgets,
        release_settings.build_release_settings(entry.section("release"), known, mistakes),
        entry.get("expires", None),
        release_settings.build_key_places(entry.section("keys")),
        access.build_epochs(entry.section("epochs"), mistakes),
        entry.get("accepts", ()),
        entry.get("witness", None),
        build_streams(entry.section("stream"), known, mistakes) if "stream" in entry else (),
        access.check_stewards(entry, budgets, mistakes),
        _build_tabulations(entry, known, mistakes) if "tabulation" in entry else (),
        folder,
    )


def _build_tabulations(entry: Section, known: tuple[TableSchema, ...], mistakes: Mistakes) -> tuple[Tabulation, ...]:
    from deniable.policy.tabulation import build_tabulations  # most policies have none

    return build_tabulations(entry.section("tabulation"), known, mistakes)


Named = TypeVar("Named", bound="Stream | Tabulation")


def _find_named(among: tuple[Named, ...], name: str, what: str) -> Named:
    known = [each.name for each in among]
    for each in among:
        if each.name == name:
            return each
    expected = f"The policy has: {', '.join(known)}" if known else f"The policy has none: write {what}: into it"
    raise ParameterError(f"the policy has no {what} '{name}'", expected=expected, remedy=nearest(name, known))


UNORDERED = frozenset(
    {"tables", "columns", "purposes", "analysts", "keys", "accepts", "streams", "questions", "stewards", "tabulations"}
)
"""Fields whose order means nothing: entries that stand under names in the file, and lists that are sets of names."""


def digest(value: object) -> str:
    """The SHA-256 of the canonical form, with the name of the method in front."""
    text = json.dumps(canonicalize(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def canonicalize(value: object) -> object:
    """A value as plain JSON, alike for all ways of writing it."""
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    if isinstance(value, Mapping):
        return {str(name): canonicalize(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [canonicalize(each) for each in value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else {"number": f"{value.numerator}/{value.denominator}"}
    return value


def _record(value: object) -> dict[str, object]:
    shown: dict[str, object] = {"is": type(value).__name__}
    stated = (each for each in fields(value) if each.init and each.compare)  # type: ignore[arg-type]
    for own in stated:  # the rest follows from it, or is another way to write the same
        here = getattr(value, own.name)
        if not isinstance(here, Path) and here != _default(own):
            form = canonicalize(here)
            if own.name in UNORDERED and isinstance(form, list):
                form = sorted(form, key=lambda each: json.dumps(each, sort_keys=True))
            shown[own.name] = form
    return shown


def _default(field: Field[object]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
