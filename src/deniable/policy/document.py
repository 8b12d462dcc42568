"""The policy: one YAML file says what is protected, for whom, and how much.

`read` and `parse` give a frozen Policy, or one PolicyError that lists every mistake with its line. Nothing here sees
data: a policy is decided by its own text and by the public lists that it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from deniable.errors import ParameterError, Place, PolicyError, nearest
from deniable.policy import allowances, layout, references, settings, tables
from deniable.policy.access import Budgets, KeyPlace, ReleaseSettings
from deniable.policy.canonical import digest
from deniable.policy.checking import Checker
from deniable.policy.mistakes import Mistakes
from deniable.policy.plain import Section
from deniable.policy.reading import MOST_BYTES, tree
from deniable.policy.schema import TableSchema


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

    def expired(self, today: date) -> bool:
        """Whether the last day on which anything may be released has passed."""
        return self.expires is not None and today > self.expires

    def path(self, written: str) -> Path:
        """A path of the policy, from where the policy file stands."""
        return self.folder / written


def read(path: str | Path) -> Policy:
    """The policy in a file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else "not a path"
        remedy = "Draft one with: deniable policy init TABLE"
        raise PolicyError(f"the policy '{path}' cannot be read: {reason}", remedy=remedy) from None
    text = _decoded(raw, path)
    return parse(text, source=str(path), folder=path.parent)


def _decoded(raw: bytes, path: Path) -> str:
    if len(raw) > MOST_BYTES:
        return "#" * len(raw)  # refused for its size, whatever it holds
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        place = Place(str(path), raw.count(b"\n", 0, failure.start) + 1)
        raise PolicyError("the file is not UTF-8", remedy="Save it as UTF-8 text", place=place) from None


def parse(text: str, source: str = "policy", folder: str | Path = ".") -> Policy:
    """The policy in a text; relative paths begin at the folder.

    >>> parse("{version: 1, dataset: demo, tables: {t: {source: t.csv, public: true}}}").dataset
    'demo'
    """
    mistakes = Mistakes(source)
    root = tree(text, mistakes)
    checker = Checker(mistakes)
    found = checker.check(layout.POLICY, root, "the policy") if root is not None else None
    references.resolve(checker, mistakes)
    policy = _policy(Section(found), Path(folder), mistakes) if found is not None else None
    mistakes.check()
    assert policy is not None
    return policy


def _policy(entry: Section, folder: Path, mistakes: Mistakes) -> Policy:
    known = tables.tables(entry.section("tables"), folder, mistakes)
    return Policy(
        entry.get("version", 1),
        entry.get("dataset", ""),
        known,
        allowances.budgets(entry.section("budgets"), mistakes),
        settings.settings(entry.section("release"), known, mistakes),
        entry.get("expires", None),
        settings.keys(entry.section("keys")),
        folder,
    )
