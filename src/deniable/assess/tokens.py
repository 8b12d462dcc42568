"""Tokens in a masked release: inverted by a dictionary, matched by their counts and by what stands beside them.

A column is taken for tokens where the release and a table in clear text both have it and next to no value is the same.
The clear table is the intruder's: rows of other people (`--control`), a register, or at worst the original rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.attacks.base import Outcome
from deniable.attacks.codes import Codes, dense, together
from deniable.attacks.generalized import fits
from deniable.attacks.tokens import MOST_ASSIGNED, SHORTEST, dictionary, matching

if TYPE_CHECKING:
    from deniable.assess.risk import Evidence, Settings

MOST_KEPT = 0.01
"""A column with a larger share of values in clear text was not replaced by tokens."""
MOST_BESIDE = 2_000
"""What stands beside a token is counted in so many kinds at most: more would be seen once each."""


def clear_table(evidence: Evidence) -> pa.Table | None:
    """The table in clear text that an intruder is taken to hold; other people's before these people's own."""
    tables = (evidence.control, evidence.register, evidence.original)
    return next((table for table in tables if table is not None and _shared(evidence, table)), None)


def lacks(evidence: Evidence) -> str:
    """Why tokens cannot be attacked; empty when they can."""
    return "" if clear_table(evidence) is not None else "needs a column of tokens, and a table that has it in clear"


def attack_tokens(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Every attack on every column of tokens that applies."""
    found: list[Outcome] = []
    for table in (evidence.register, evidence.original):
        if table is not None and not found:
            names = [name for name in _shared(evidence, table) if _digests(evidence.release[name])]
            found = [_inverted(evidence.release[name], table, name, settings) for name in names]
    known = clear_table(evidence)
    assert known is not None
    for name in _shared(evidence, known):
        found += _matched(evidence, known, name)
    return tuple(found)


def _inverted(tokens: pa.ChunkedArray, clear: pa.Table, name: str, settings: Settings) -> Outcome:
    guesses = [value for value in clear[name].unique().cast(pa.string()).to_pylist() if value is not None]
    found = dictionary(tokens.to_pylist(), guesses, seconds=settings.seconds)
    return replace(found, name=f"dictionary of {name}")


def _matched(evidence: Evidence, known: pa.Table, name: str) -> list[Outcome]:
    """By counts, and by counts beside columns that both tables show in clear; scored by the original, row by row."""
    release, truth = evidence.release, evidence.original
    if truth is None or truth.num_rows != release.num_rows or name not in truth.column_names:
        return []
    words = () if known is not truth else ("the intruder was given the original's own counts: the worst case",)
    texts = [table[name].cast(pa.string()) for table in (known, truth)]
    held = [table.filter(pc.is_valid(table[name])) for table in (release, known)]
    kept = pc.is_valid(release[name])
    tokens, clear, secret = held[0][name], held[1][name].cast(pa.string()), texts[1].filter(kept)
    found = [_named(matching(tokens, clear, secret), f"counting {name}", words)]
    beside = _beside(held[0], held[1], evidence, name)
    few = max(len(tokens.unique()), len(pa.chunked_array([*clear.chunks, *secret.chunks]).unique())) <= MOST_ASSIGNED
    if beside is not None and few:
        found.append(_named(matching(tokens, clear, secret, beside=beside), f"counting {name} beside others", words))
    return found


def _named(outcome: Outcome, name: str, words: tuple[str, ...]) -> Outcome:
    return replace(outcome, name=name, warnings=(*outcome.warnings, *words))


def _beside(release: pa.Table, known: pa.Table, evidence: Evidence, name: str) -> tuple[Codes, Codes] | None:
    """The known columns that both tables show, as many of them as have few enough combinations."""
    chosen: list[str] = []
    best: tuple[Codes, Codes] | None = None
    hidden = _shared(evidence, known)
    for other in evidence.knows:
        shown = all(other in table.column_names for table in (release, known))
        if other == name or other in hidden or not shown:
            continue
        codes = dense(np.concatenate(together([release, known], [*chosen, other], missing=True)))
        if codes.max(initial=0) < MOST_BESIDE:
            chosen.append(other)
            best = codes[: release.num_rows], codes[release.num_rows :]
    return best


def _shared(evidence: Evidence, clear: pa.Table) -> tuple[str, ...]:
    """Columns of the release that hold tokens of what the other table has in clear text."""
    both = [name for name in evidence.release.column_names if name in clear.column_names]
    return tuple(name for name in both if _tokenized(evidence.release[name], clear[name]))


def _tokenized(released: pa.ChunkedArray, clear: pa.ChunkedArray) -> bool:
    if not (pa.types.is_string(released.type) or pa.types.is_large_string(released.type)) or not len(released):
        return False
    tokens, values = (pa.array(part.unique()).cast(pa.string()).drop_null() for part in (released, clear))
    if len(tokens) < 2 or not len(values):
        return False
    same = pc.sum(pc.is_in(tokens, values)).as_py() or 0
    return same <= MOST_KEPT * len(tokens) and not any(fits(cell) for cell in tokens.slice(0, 50).to_pylist())


def _digests(values: pa.ChunkedArray) -> bool:
    """Whether values look like hexadecimal digests."""
    sample = [value for value in values.slice(0, 200).to_pylist() if value]
    hexadecimal = set("0123456789abcdefABCDEF")
    return bool(sample) and all(len(value) >= SHORTEST and set(value) <= hexadecimal for value in sample)
