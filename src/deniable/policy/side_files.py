"""Public side files that a policy names: lists of categories and trees, read relative to the policy file.

These files hold declarations, not data: a code list, a geography. They are read whole when the policy is, because
they are part of what is declared and so of the policy's hash."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from deniable.errors import Place, nearest
from deniable.policy.yaml_tree import Mistakes

MOST_BYTES = 64 << 20
REPEAT = "Repeat the label of the level below where a branch is shorter"


def read_side_file(folder: Path, name: str, place: Place, mistakes: Mistakes) -> str | None:
    """The text of a side file, or None with the reason among the mistakes."""
    try:
        path = folder / name
        if path.stat().st_size > MOST_BYTES:
            mistakes.add(place, f"file '{name}' is larger than {MOST_BYTES >> 20} MiB")
            return None
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        remedy = nearest(name, _neighbors(folder, name))
        mistakes.add(place, f"file '{name}' is not there", "A path relative to the policy file", remedy)
    except UnicodeDecodeError as failure:
        mistakes.add(place, f"file '{name}' is not UTF-8 (byte {failure.start})", remedy="Save it as UTF-8")
    except (OSError, ValueError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else "not a path"
        mistakes.add(place, f"file '{name}' cannot be read: {reason}")
    return None


def _neighbors(folder: Path, name: str) -> list[str]:
    try:
        siblings = sorted((folder / name).parent.iterdir())
        return [str(Path(name).with_name(sibling.name)) for sibling in siblings[:1000]]
    except (OSError, ValueError):
        return []


def parse_category_column(
    text: str, name: str, wanted: str | None, place: Place, mistakes: Mistakes
) -> tuple[str, ...]:
    """The values of one column of a CSV file with a header, without repetitions, in their order."""
    rows = _parse_rows(text, _guess_separator(text), name, place, mistakes)
    header = [cell.strip() for cell in rows[0]] if rows else []
    if not header:
        mistakes.add(place, f"file '{name}' is empty", "A CSV file with a header")
        return ()
    if wanted is not None and wanted not in header:
        expected = f"Its header has: {', '.join(header[:12])}"
        mistakes.add(place, f"file '{name}' has no column '{wanted}'", expected, nearest(wanted, header))
        return ()
    at = header.index(wanted) if wanted is not None else 0
    values = dict.fromkeys(row[at].strip() for row in rows[1:] if len(row) > at and row[at].strip())
    if not values:
        mistakes.add(place, f"file '{name}' lists no value", "At least one line after the header")
    return tuple(values)


def parse_tree_rows(
    text: str, name: str, separator: str | None, place: Place, mistakes: Mistakes
) -> tuple[tuple[str, ...], ...]:
    """The rows of a tree: leaf, parent, grandparent and so on; empty lines are skipped."""
    read = _parse_rows(text, separator or _guess_separator(text), name, place, mistakes)
    rows = tuple(tuple(cell.strip() for cell in row) for row in read if any(cell.strip() for cell in row))
    if not rows:
        mistakes.add(place, f"file '{name}' is empty", "One line for each leaf: leaf, parent, grandparent")
    elif len({len(row) for row in rows}) > 1:
        uneven = next(i for i, row in enumerate(rows) if len(row) != len(rows[0])) + 1
        mistakes.add(place, f"file '{name}', entry {uneven}: another number of levels than in the first")
    elif len(rows[0]) < 2:
        mistakes.add(place, f"file '{name}' has one level only", "At least a leaf and its parent in each line")
    elif unnamed := [n for n, row in enumerate(rows, start=1) if not all(row[1:])]:
        happened = f"file '{name}', entry {unnamed[0]}: a level above the leaf is empty"
        mistakes.add(place, happened, "A label for each level: an empty cell would look like a missing value", REPEAT)
    else:
        _check_contradictions(rows, name, place, mistakes)
    return rows


def _check_contradictions(rows: tuple[tuple[str, ...], ...], name: str, place: Place, mistakes: Mistakes) -> None:
    """In a tree a node of one level has one parent; a leaf that stands twice with two is a contradiction."""
    parents: dict[tuple[int, str], str] = {}
    for number, row in enumerate(rows, start=1):
        for level in range(len(row) - 1):
            if parents.setdefault((level, row[level]), row[level + 1]) != row[level + 1]:
                happened = f"file '{name}', entry {number}: level {level + 1} has two parents"
                mistakes.add(place, happened, "A tree: each node has one parent")
                return


def _guess_separator(text: str) -> str:
    first = text.split("\n", 1)[0]
    return max(",;\t|", key=first.count)


def _parse_rows(text: str, separator: str, name: str, place: Place, mistakes: Mistakes) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error:
        mistakes.add(place, f"file '{name}' is not CSV", "Fields separated by one character, quotes in pairs")
        return []
