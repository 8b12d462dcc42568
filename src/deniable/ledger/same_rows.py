"""Which tables hold the same rows: by marks of a few rows, whatever columns are called and in which order they stand.

A sketch is made of hashes. With a key that only the user can read they become marks, which are kept; without the key
they tell nothing of a row.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

SHARED = 0.2
"""Two tables with so large a share of marks in common hold the same rows: one has grown, or is a sample."""
AGREED = 0.5
"""How much of what could agree beside equal keys must agree."""
FEW_ROWS = 8
"""Tables with fewer different rows are not compared: such rows are alike by chance."""
MARKED_ROWS = 32
"""How many rows are marked: those whose hashes are least, so that the same rows of a table are always chosen."""
SURE = 14.0
"""How unlikely it must be that rows with equal keys agree by chance in their other columns: less than exp(-14)."""

Mark = TypeVar("Mark", int, str)
Keys = Mapping[Mark, Sequence[Mark | None]]
"""Values of one column, each with the least hash of every other column in its rows (None is no value)."""


@dataclass(frozen=True, slots=True)
class Sketch(Generic[Mark]):
    """Some rows of a table, by hashes or by keyed marks of them.

    `rows` are whole rows, whatever the order of their columns. `keys` are values of the columns with the most values:
    they know the table again where columns were dropped.
    """

    rows: Sequence[Mark] = ()
    keys: Sequence[Keys[Mark]] = ()


def mark_sketch(key: bytes, sketch: Sketch[int] | None) -> Sketch[str]:
    """A sketch with a keyed mark for each hash."""
    if not sketch:
        return Sketch()

    def mark(hashed: int, size: int = 8) -> str:
        return hashlib.blake2b(str(hashed).encode(), key=key, digest_size=size).hexdigest()

    keys = [
        {mark(value): [None if cell is None else mark(cell, 4) for cell in cells] for value, cells in each.items()}
        for each in sketch.keys
    ]
    return Sketch([mark(row) for row in sketch.rows], keys)


def write_marks(marked: Sketch[str]) -> str:
    """Marks as they are kept."""
    return json.dumps({"rows": marked.rows, "keys": marked.keys})


def read_marks(kept: str) -> Sketch[str]:
    """The marks of a source; none where an earlier version wrote them, which marked rows otherwise."""
    return Sketch(**json.loads(kept)) if kept.startswith("{") else Sketch()


def hold_same_rows(marks: Sketch[str], known: Sketch[str]) -> bool:
    """Whether two tables hold the same rows: as whole rows, or by the columns that both have."""
    return _share_many(marks.rows, known.rows) or any(
        _share_many([*one], [*other]) and _agree_beyond_chance(one, other) for one in marks.keys for other in known.keys
    )


def _share_many(marks: Sequence[str], known: Sequence[str]) -> bool:
    """Whether enough of the least hashes of two tables are the same."""
    least = min(len(marks), len(known))
    return least >= FEW_ROWS and len({*marks} & {*known}) >= SHARED * least


def _agree_beyond_chance(one: Keys[str], other: Keys[str]) -> bool:
    """Whether rows with equal keys have equal values in other columns too, more often than by chance.

    Ids that count from one are the same in every table. So each column is laid beside the column of the other table
    with which it agrees best; by chance, two values are equal as often as rows with different keys are.
    """
    shared = sorted(one.keys() & other.keys())
    narrow, wide = sorted(([*zip(*(each[key] for key in shared), strict=True)] for each in (one, other)), key=len)
    gained = possible = evidence = 0.0
    for column in narrow:
        chance, agreed = max((_compare_columns(column, each) for each in wide), key=lambda both: both[1] - both[0])
        gained, possible = gained + max(0.0, agreed - chance), possible + 1 - chance
        evidence += max(0.0, len(shared) * _measure_surprise(agreed, chance) - math.log(len(wide)))
    return possible > 0 and gained >= AGREED * possible and evidence >= SURE


def _compare_columns(one: Sequence[str | None], other: Sequence[str | None]) -> tuple[float, float]:
    """How often two columns agree by chance, and how often they do in the same rows."""
    many, counts = len(one), Counter(other)
    together = sum(mine == theirs for mine, theirs in zip(one, other, strict=True))
    across = sum(counts[mine] for mine in one) - together
    return across / (many * (many - 1)), together / many


def _measure_surprise(agreed: float, chance: float) -> float:
    """How unlikely it is, for each row, that so many agree where the chance is this (Chernoff's bound); 0 if fewer."""
    if agreed <= chance:
        return 0.0
    chance = max(chance, 1e-3)  # a chance that was never seen among a thousand pairs is not nothing
    terms = ((agreed, chance), (1 - agreed, 1 - chance))
    return sum(share * math.log(share / by_chance) for share, by_chance in terms if share > 0)
