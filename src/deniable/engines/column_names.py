"""Column names that every engine can hold: not empty, different whatever the case, free of control characters.

The rule depends on the names alone, so the same file always has the same columns: outer white space is dropped,
control characters become spaces, an empty name is called by its position, and a name that was there before (compared
without case, as SQL compares) gets the first free number."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from deniable.errors import DataError, nearest


def normalize_names(raw: Iterable[object]) -> tuple[str, ...]:
    """The names under which columns are held.

    >>> normalize_names(["id", "ID", "", " id ", None])
    ('id', 'ID_2', 'column_3', 'id_3', 'column_5')
    """
    taken: set[str] = set()
    names = []
    for position, name in enumerate(raw, start=1):
        chosen = _find_free_name(_clean_name(name) or f"column_{position}", taken)
        taken.add(chosen.casefold())
        names.append(chosen)
    return tuple(names)


def require_columns(present: Sequence[str], declared: Iterable[str], source: str) -> None:
    """Refuse when a declared column is not among those present (compared exactly)."""
    for name in declared:
        if name not in present:
            raise DataError(
                f"column '{name}' is declared, but {source} has no such column",
                expected=f"It has {_join_names(present)}",
                remedy=nearest(name, present) or "Correct the policy, or the file",
                column=name,
            )


def _clean_name(name: object) -> str:
    if name is None:
        return ""
    text = unicodedata.normalize("NFC", str(name)).lstrip("\ufeff")
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text).strip()


def _find_free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _join_names(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
