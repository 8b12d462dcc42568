"""Hierarchies of text: redaction character by character, and prefixes (ZIP codes, diagnoses, phones)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from deniable.errors import ParameterError
from deniable.kanonymity.builders.leaves import sorted_leaves, text_of
from deniable.kanonymity.hierarchy import TOP, Hierarchy, hierarchy, labelled


@dataclass(frozen=True, slots=True)
class Redact:
    """One more character replaced at each level, from the right or the left, down to `keep` characters.

    Shorter texts are padded first, so that all have the same number of levels; `width` is the length to reach, when it
    was found on other rows.

    >>> redact = Redact()
    >>> list(redact.hierarchy("zip", pa.array(["02139", "02144"])).rows())[0]
    ('02139', '0213*', '021**', '02***', '0****', '*')
    """

    side: str = "right"
    put: str = "*"
    keep: int = 0
    width: int = 0

    def __post_init__(self) -> None:
        if self.side not in ("right", "left") or len(self.put) != 1 or self.keep < 0:
            raise ParameterError(
                "Redaction is described wrongly", expected="side 'right' or 'left', one character to put, keep >= 0"
            )

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sorted_leaves(values))
        width = max(self.width, max(map(len, leaves), default=0))
        hidden = range(1, max(width - max(self.keep, 0), 0) + (1 if self.keep else 0))
        levels = [labelled([self._hide(leaf, count, width) for leaf in leaves]) for count in hidden]
        return hierarchy(column, leaves, [labelled(leaves), *levels])

    def _hide(self, text: str, count: int, width: int) -> str:
        if self.side == "right":
            shown = text.ljust(width)[: width - count]
            return (shown + self.put * count).rstrip() if width else TOP
        return (self.put * count + text.rjust(width)[count:]).lstrip()


@dataclass(frozen=True, slots=True)
class Prefix:
    """Only the first characters, fewer at each level.

    >>> list(Prefix((3, 1)).hierarchy("code", pa.array(["E11.9", "E66.0"])).rows())[0]
    ('E11.9', 'E11', 'E', '*')
    """

    lengths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.lengths or any(a <= b for a, b in zip(self.lengths, self.lengths[1:], strict=False)):
            raise ParameterError("Prefix lengths do not fall", expected="Falling lengths such as [5, 3, 1]")

    def hierarchy(self, column: str, values: pa.Array) -> Hierarchy:
        """The hierarchy over these distinct values."""
        leaves = text_of(sorted_leaves(values))
        kept = [length for length in self.lengths if length > 0]
        return hierarchy(column, leaves, [labelled(leaves), *(labelled([x[:n] for x in leaves]) for n in kept)])
