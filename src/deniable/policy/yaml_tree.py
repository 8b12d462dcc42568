"""YAML as it is written: a small tree of values that know their place, and the list of mistakes found on the way.

YAML's guesses at types are not taken. Anchors are followed, within limits: an anchor that contains itself, an alias
bomb, a file too large and a nesting too deep are refused here, so that later checks may walk the tree without a care.
Duplicate keys are reported here too, because a mapping would forget them. Mistakes are collected, so that all of them
are reported in one go."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from deniable.errors import Place, PolicyError

MOST_SHOWN = 200


class Mistakes:
    """Collects mistakes; `check` raises them together, in the order of their lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.found: list[PolicyError] = []
        self._seen: set[tuple[str, int, int, str]] = set()

    def add(self, place: Place, happened: str, expected: str = "", remedy: str = "") -> None:
        """Note one mistake."""
        self.take(PolicyError(happened, expected=expected, remedy=remedy, place=place))

    def take(self, mistake: PolicyError) -> None:
        """Note a mistake that is already made into words; what stands behind an alias is noted once."""
        place = mistake.place or Place(self.source, 1)
        identity = (place.source, place.line, place.column, mistake.happened)
        if identity not in self._seen:
            self._seen.add(identity)
            self.found.append(mistake)

    def check(self) -> None:
        """Raise one PolicyError with all mistakes, if there are any."""
        if not self.found:
            return
        ordered = sorted(self.found, key=_position)
        count = len(ordered)
        more = f"; the first {MOST_SHOWN} follow" if count > MOST_SHOWN else ""
        happened = f"{self.source} has {count} mistakes{more}" if count > 1 else f"{self.source} has one mistake"
        raise PolicyError(happened + ":", mistakes=tuple(ordered[:MOST_SHOWN]))


def _position(mistake: PolicyError) -> tuple[int, int]:
    return (mistake.place.line, mistake.place.column) if mistake.place else (0, 0)


MOST_BYTES = 4 << 20
MOST_VALUES, MOST_REPEATED = 400_000, 100_000
"""A file has at most so many values once its aliases are followed; aliases repeat at most so many of them."""
DEEPEST = 40
_INVISIBLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STANDARD = "tag:yaml.org,2002:"
_GUESSED = frozenset(["str", "int", "float", "bool", "null", "timestamp", "merge", "map", "seq"])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A single value, as written."""

    text: str
    quoted: bool
    place: Place

    @property
    def missing(self) -> bool:
        """Whether nothing is written, or YAML's word for nothing."""
        return not self.quoted and self.text in ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: tuple[Tree, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries under keys, in their order; the keys are unique."""

    entries: tuple[tuple[Leaf, Tree], ...]
    place: Place


Tree = Leaf | Items | Entries


def reveal(text: str) -> str:
    """A text whose invisible characters are shown by their numbers.

    >>> reveal("tab" + chr(9) + "here") == "tab" + chr(92) + "there"
    True
    """
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


MOST_NAME = 150
"""Bytes of a table's name: a name of a file has 255, and those of a release say more than the table."""


def judge_name(name: str, what: str) -> tuple[str, str] | None:
    """What is wrong with the name of a table, a column or another thing, and what is expected; None where nothing is.

    >>> judge_name("a/b", "table"), judge_name("a/b", "column")
    (("a table's name holds a slash", 'A name of a file: its releases have it'), None)
    """
    if not name.strip() or not name.isprintable():
        shown = f": {reveal(name)}" if name.strip() else ""
        return f"a name is empty or holds invisible characters{shown}", "A visible name"
    if what == "table" and {"/", "\\"} & set(name):
        return "a table's name holds a slash", "A name of a file: its releases have it"
    if what == "table" and name.lower().startswith(("pg_", "information_schema")):
        return "a table has the name of one of PostgreSQL's catalogs", "A name that does not begin with pg_"
    if what == "table" and len(name.encode()) > MOST_NAME:
        return "a table's name is too long for the files of its releases", f"At most {MOST_NAME} bytes"
    if what == "column" and name.startswith("."):
        return "a column's name begins with a dot", "Another name; rename the column in the data first"
    read = unicodedata.normalize("NFC", name).strip()
    if what == "column" and read != name:
        happened = "a column's name has a blank at an end, or accents apart from their letters"
        return happened, f"The name as it is read from files: '{read}'"
    return None


def reveal_controls(text: str) -> str:
    """A text of somebody else as a page may show it: controls that hide letters or turn their order are written out.

    Line breaks, tabs, and the two joiners that scripts such as Persian need stay as they are.

    >>> reveal_controls("paid" + chr(0x202e) + "txt") == "paid" + chr(92) + "u202etxt"
    True
    """
    if text.isprintable():
        return text
    hidden = {sign for sign in set(text) - _KEPT if unicodedata.category(sign) in _HIDING}
    return "".join(reveal(sign) if sign in hidden else sign for sign in text)


_HIDING = ("Cc", "Cf", "Zl", "Zp")
_KEPT = frozenset("\n\r\t\u200c\u200d")


def parse_tree(text: str, mistakes: Mistakes) -> Tree | None:
    """The tree of one YAML document, or None with the reason among the mistakes."""
    if len(text) > MOST_BYTES:
        mistakes.add(
            Place(mistakes.source, 1),
            f"the file is larger than {MOST_BYTES // 1024} KiB",
            remedy="Move long lists of categories and trees into files of their own",
        )
        return None
    if found := _INVISIBLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        place = Place(mistakes.source, line, found.start() - text.rfind("\n", 0, found.start()))
        mistakes.add(place, "an invisible character that no YAML file may hold", remedy="Delete it")
        return None
    try:
        root = _compose(text)
        if root is not None:
            return _TreeBuilder(mistakes).plant(root, 0)
        _refuse_empty(mistakes)
    except PolicyError as mistake:
        mistakes.take(mistake)
    except RecursionError:
        mistakes.add(Place(mistakes.source, 1), "the file is nested too deeply", f"At most {DEEPEST} levels")
    except Exception as failure:
        # ruamel.yaml raises errors of several families, and for some malformed input plain ones (ValueError, ...).
        _report_syntax(failure, text, mistakes)
    return None


def _compose(text: str) -> object:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).compose(text)


def _refuse_empty(mistakes: Mistakes) -> None:
    mistakes.add(
        Place(mistakes.source, 1),
        "the file is empty",
        "A policy begins with version, dataset and tables",
        "Draft one with: deniable policy init TABLE",
    )


def _report_syntax(failure: Exception, text: str, mistakes: Mistakes) -> None:
    """Report what YAML itself stumbles over; its own words describe syntax and never the data."""
    mark = getattr(failure, "problem_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 0)
    lines = text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    problem = str(getattr(failure, "problem", "") or "a character that no YAML file may hold").replace("\n", " ")
    indent = written[: len(written) - len(written.lstrip())]
    if "\t" in indent or "'\\t'" in problem:
        problem, remedy = "a tab is used for indentation", "Indent with spaces"
    elif "another document" in problem:
        problem, remedy = "a second document begins", "A policy is one document: take the --- away"
    else:
        remedy = _suggest_remedy(problem)
    place = Place(mistakes.source, line, column)
    mistakes.add(place, problem if problem.startswith("a ") else f"this is not YAML: {problem}", "", remedy)


def _suggest_remedy(problem: str) -> str:
    if "alias" in problem:
        return "An alias *name needs an anchor &name before it; quote text that begins with *"
    if "mapping values" in problem:
        return "Quote text that holds a colon"
    if "token" in problem:
        return "Quote text that begins with one of @ ` % ! & * | > [ ] { }"
    return "Check brackets, quotes, colons and indentation around this place"


def _join_pairs(text: str, place: Place) -> str:
    """A text in which each two escapes that JSON writes for one character beyond U+FFFF are that character."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        happened = "an escape stands for half of a surrogate pair, which is not a character"
        raise PolicyError(happened, remedy="Write the character itself", place=place) from None


class _TreeBuilder:
    """One walk over ruamel's nodes, which counts what aliases multiply."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.count = self.repeated = 0
        self.seen: set[int] = set()
        self.open: set[int] = set()

    def place(self, node: object) -> Place:
        mark = node.start_mark  # type: ignore[attr-defined]
        return Place(self.mistakes.source, mark.line + 1, mark.column + 1)

    def plant(self, node: object, depth: int) -> Tree:
        from ruamel.yaml.nodes import MappingNode, ScalarNode

        place = self.place(node)
        self._limits(node, place, depth)
        self._tag(node, place)
        if isinstance(node, ScalarNode):
            return Leaf(_join_pairs(node.value, place), node.style is not None, place)
        self.open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return Entries(tuple(self._entries(node, depth)), place)
            return Items(tuple(self.plant(item, depth + 1) for item in node.value), place)  # type: ignore[attr-defined]
        finally:
            self.open.discard(id(node))

    def _limits(self, node: object, place: Place, depth: int) -> None:
        self.count += 1
        if id(node) in self.open:
            raise PolicyError("an anchor contains itself", remedy="Write the inner value out", place=place)
        self.repeated += id(node) in self.seen
        self.seen.add(id(node))
        if self.count > MOST_VALUES or self.repeated > MOST_REPEATED:
            most = MOST_VALUES if self.count > MOST_VALUES else MOST_REPEATED
            raise PolicyError(
                f"the file has more than {most} values once its aliases are followed",
                remedy="Move long lists into files of their own",
                place=place,
            )
        if depth > DEEPEST:
            raise PolicyError("the file is nested too deeply", expected=f"At most {DEEPEST} levels", place=place)

    def _tag(self, node: object, place: Place) -> None:
        tag = str(node.tag)  # type: ignore[attr-defined]
        if tag.removeprefix(_STANDARD) not in _GUESSED:
            self.mistakes.add(place, "a YAML tag is used", "Plain values only", "Quote text that begins with !")

    def _entries(self, node: object, depth: int) -> Iterator[tuple[Leaf, Tree]]:
        """The entries of a mapping; those merged with `<<` give way to those written out."""
        seen: dict[str, Place] = {}
        merged: list[tuple[Leaf, Tree]] = []
        for key_node, value_node in node.value:  # type: ignore[attr-defined]
            key, value = self.plant(key_node, depth + 1), self.plant(value_node, depth + 1)
            if isinstance(value, Leaf) and not value.text:
                value = replace(value, place=key.place)  # YAML places what is not there after the line's end
            if not isinstance(key, Leaf):
                self.mistakes.add(key.place, "a list or entries stand where a key should", "A word as key")
            elif key.text == "<<" and not key.quoted:
                merged += self._merge_entries(value)
            elif key.text in seen:
                first = seen[key.text].line
                self.mistakes.add(key.place, f"'{key.text}' is given twice", f"It stands already in line {first}")
            else:
                seen[key.text] = key.place
                yield key, value
        for key, value in merged:
            if key.text not in seen:
                seen[key.text] = key.place
                yield key, value

    def _merge_entries(self, value: Tree) -> list[tuple[Leaf, Tree]]:
        parts = value.items if isinstance(value, Items) else (value,)
        for part in parts:
            if not isinstance(part, Entries):
                self.mistakes.add(part.place, "<< merges something other than entries", "An alias of entries")
        return [entry for part in parts if isinstance(part, Entries) for entry in part.entries]
