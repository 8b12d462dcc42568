"""Identifiers in released rows: values that were left, copied elsewhere, or are recognized in what became of them.

Nothing here comes from the code that masks: what was written is compared with what was read."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.assess.released_rows import Claim, is_text, to_floats, write_texts, write_values

LEAST_LETTERS = 6
"""Shorter values are found by chance in columns of other things."""


def find_secrets(batch: pa.Table, claim: Claim) -> list[str]:
    """Values that must not leave, found as whole cells."""
    found = []
    for name, values in claim.secrets.items():
        texts = write_texts(pa.chunked_array([values])).drop_null()
        long = texts.filter(pc.greater_equal(pc.utf8_length(texts), LEAST_LETTERS))
        for other in claim.searched if len(long) else ():
            cells = pc.unique(write_texts(batch[other])) if other in batch.column_names else long[:0]
            if bool(pc.any(pc.is_in(cells, value_set=long.combine_chunks())).as_py()):
                found.append(f"values of column '{name}' stand in column '{other}'")
    return found


def find_identifiers(batch: pa.Table, claim: Claim) -> list[str]:
    """The columns in which values of an identifier were left as they are."""
    found = []
    for name, values in ((name, claim.identifiers[name]) for name in claim.identifiers if name not in claim.moved):
        telling = write_values(pa.chunked_array([values])).drop_null().combine_chunks()
        if bool(pc.any(pc.is_in(write_values(batch[name]), value_set=telling)).as_py()):
            found.append(name)
    return found


LEAST_COPIED, SHARE_COPIED = 10, 0.5
"""A column is a copy of an identifier when so many of its values, and this share of them, are values of it."""
LOOKED, COMPARED = 100_000, 2_000
"""So many rows are looked at, and so many different values of each column, of which these many signs."""
LONGEST, LIKELY = 200, 0.05
"""Of a value so many signs are searched; what is found by chance with this probability is not taken for found."""


FEWEST_LETTERS = 3
"""Shorter values are compared with nothing; those from here to LEAST_LETTERS only where few of their kind are used."""


class CopyCheck:
    """Which columns are copies of which identifiers, by the first rows of many.

    Letters and digits are compared alone, without accents: whatever stands before, behind or between them, a copy is a
    copy. So is one that was turned around, that lost a character or two at an end, or whose words stand in another
    order.
    """

    def __init__(self, claim: Claim) -> None:
        self._known, self._left, self.found = dict[str, _Known](), LOOKED, list[str]()
        for name, values in claim.hidden.items():
            known = _Known(pa.chunked_array([values]))
            if len(known.long) >= LEAST_COPIED or len(known.changed) >= LEAST_COPIED:
                self._known[name] = known

    def add(self, batch: pa.Table) -> None:
        """Compare the values of each column with those of each identifier."""
        if self._left <= 0 or not self._known:
            return
        self._left -= batch.num_rows
        for other in batch.column_names:
            shown = pc.unique(write_texts(batch[other])).drop_null()
            spread = pa.array(np.linspace(0, len(shown) - 1, min(len(shown), COMPARED)).astype(np.int64))
            column = pa.chunked_array([shown.take(spread)])
            cells, words = _keep_letters(column), _split_words(column)
            self.found += [
                f"column '{other}' has the values of the identifier '{name}'"
                for name, known in self._known.items()
                if name != other and _is_copy(cells, words, known)
            ]


class _Known:
    """The values of an identifier in the forms in which they are looked for.

    `long` are those that may stand inside a longer text; `changed` are short ones, and forms of all that cells are
    compared with as a whole; `words` are values of several words, in the order of the alphabet.
    """

    def __init__(self, values: pa.ChunkedArray) -> None:
        texts = pc.unique(_keep_letters(values))
        sizes = pc.utf8_length(texts)
        self.long = texts.filter(pc.greater_equal(sizes, LEAST_LETTERS))
        short = texts.filter(pc.and_(pc.less(sizes, LEAST_LETTERS), pc.greater_equal(sizes, FEWEST_LETTERS)))
        cut = [
            pc.utf8_slice_codeunits(self.long, begin, end)
            for lost in range(1, MOST_CUT + 1)
            for begin, end in ((0, -lost), (lost, None))
        ]
        turned = pc.utf8_reverse(self.long)
        self.changed = _keep_rare(pc.unique(pa.concat_arrays([short, turned, *cut])))
        self.words = {tuple(sorted(told)) for told in _split_words(values) if 1 < len(told) <= MOST_WORDS}


MOST_WORDS, LONGEST_TEXT = 4, 8
"""Names have so many words at most; they are looked for in texts of so many."""


def _keep_rare(texts: pa.Array) -> pa.Array:
    """The texts of those lengths of which few are used: others are met by chance."""
    sizes = pc.utf8_length(texts)
    counted = pc.value_counts(sizes).to_pylist()
    rare = [each["values"] for each in counted if each["counts"] <= LIKELY * 10.0 ** each["values"]]
    return texts.filter(pc.is_in(sizes, value_set=pa.array(rare, sizes.type)))


def _drop_accents(column: pa.ChunkedArray) -> pa.Array:
    """Values in one spelling, letters apart from their accents, without a zero behind a decimal point."""
    texts = pc.replace_substring_regex(write_values(column), r"\.0$", "").combine_chunks().drop_null()
    return pc.utf8_normalize(texts, form="NFKD")


def _keep_letters(column: pa.ChunkedArray) -> pa.Array:
    """Values as their letters and digits, without zeros before them and after a decimal point."""
    return pc.utf8_ltrim(pc.replace_substring_regex(_drop_accents(column), r"[^\pL\pN]", ""), "0")


def _split_words(column: pa.ChunkedArray) -> list[list[str]]:
    """The words of each value: letters and digits that nothing but an accent stands between."""
    plain = pc.replace_substring_regex(_drop_accents(column), r"\pM", "")
    return [text.split() for text in pc.replace_substring_regex(plain, r"[^\pL\pN]+", " ").to_pylist()]


def _is_copy(cells: pa.Array, words: list[list[str]], known: _Known) -> bool:
    """Whether so many cells are, or hold, a value of an identifier."""
    values = pa.concat_arrays([known.long, known.changed])
    whole = pc.is_in(cells, value_set=values).to_numpy(False)
    whole |= pc.is_in(pc.utf8_rtrim(cells, "0"), value_set=known.changed).to_numpy(False)  # zeros first, turned around
    named = np.array([_holds_words(each, known.words) for each in words], np.bool_)
    same = int((whole | named | _find_held(cells, known.long)).sum())
    return same >= LEAST_COPIED and same >= SHARE_COPIED * len(cells)


def _holds_words(words: list[str], known: set[tuple[str, ...]]) -> bool:
    """Whether the words of an identifier are among those of a cell, in any order."""
    if not known or not 1 < len(words) <= LONGEST_TEXT:
        return False
    ordered = sorted(words)
    sizes = range(2, min(len(ordered), MOST_WORDS) + 1)
    return any(each in known for size in sizes for each in itertools.combinations(ordered, size))


def _find_held(cells: pa.Array, telling: pa.Array) -> NDArray[np.bool_]:
    """Which cells hold an identifier: where one begins as it does, the whole of it is looked up."""
    if not len(telling):
        return np.zeros(len(cells), np.bool_)
    sizes = {each["values"]: each["counts"] for each in pc.value_counts(pc.utf8_length(telling)).to_pylist()}
    texts = [text[:LONGEST] for text in cells.to_pylist()]
    places = [(at, i) for at, text in enumerate(texts) for i in range(len(text) - LEAST_LETTERS + 1)]
    begun = pa.array([texts[at][i : i + LEAST_LETTERS] for at, i in places], pa.string())
    begins = pc.unique(pc.utf8_slice_codeunits(telling, 0, LEAST_LETTERS))
    parts = [
        (at, texts[at][i : i + size])
        for at, i in itertools.compress(places, pc.is_in(begun, value_set=begins).to_pylist())
        for size, many in sizes.items()
        if i + size <= len(texts[at]) and (len(texts[at]) - size) * many <= LIKELY * 10.0**size
    ]
    found = np.zeros(len(texts), np.bool_)
    held = pc.is_in(pa.array([part for _, part in parts], pa.string()), value_set=telling).to_numpy(False)
    found[np.array([at for at, _ in parts], np.int64)[held.astype(np.bool_)]] = True
    return found


LEAST_RECOGNIZED, SHARE_RECOGNIZED = 3, 0.1
"""An identifier is recognized when more than so many values, and this share of them, lead back to their own."""
SHARE_RECAST = 0.01
"""Of all rows, so many may hold a value whose characters were only reordered or cut, as happens by chance."""
PAIRED, LISTED = 1_000, 5_000
"""So many rows, drawn from the whole table, are compared with a list of so many identifiers."""
MOST_CUT = 2


class IdentifierCheck:
    """Which masked identifiers are found again by whoever has a list of them, over rows that come in parts.

    Every row is compared with the one that it was made from, for characters that were reordered or cut from an end. Of
    rows drawn at random from the whole table the nearest identifier is looked up: by insertions and deletions, also
    after turning the value around or sorting its characters, by what both begin or end with, and by the distance of
    numbers and dates.
    """

    def __init__(self, claim: Claim) -> None:
        self._known, rows = claim.identifiers, claim.rows_read or 0
        self._parts = iter(claim.originals() if claim.originals is not None else ())
        self._held, self._at = pa.table({}), 0
        drawn = self._draw.choice(rows, min(PAIRED, rows), replace=False) if self._known and rows else np.zeros(0)
        self._drawn = np.sort(drawn)
        self._recast = dict.fromkeys(claim.identifiers, 0)
        self._pairs: dict[str, list[pa.Table]] = {name: [] for name in claim.identifiers}

    @cached_property
    def _draw(self) -> np.random.Generator:
        """From the system's entropy, so that nobody can tell which rows are looked at."""
        return np.random.default_rng(secrets.randbits(128))

    def add(self, batch: pa.Table) -> None:
        """Compare more rows with those they were made from."""
        if not self._known:
            return
        before = self._read_originals(batch.num_rows)
        chosen = self._drawn[(self._drawn >= self._at) & (self._drawn < self._at + before.num_rows)] - self._at
        self._at += before.num_rows
        for name in self._known:
            own = before[name]
            own = own.cast(own.type.value_type) if pa.types.is_dictionary(own.type) else own
            pairs = pa.table({"written": batch[name].slice(0, before.num_rows), "own": own})
            self._pairs[name].append(pairs.take(pa.array(chosen, pa.int64())))
            if is_text(pairs["own"].type):
                self._recast[name] += _count_recast(pairs)

    def _read_originals(self, count: int) -> pa.Table:
        """The next rows of the table, as many as were written."""
        while self._held.num_rows < count and (part := next(self._parts, None)) is not None:
            more = pa.Table.from_batches([part])
            self._held = pa.concat_tables([self._held, more]) if self._held.num_rows else more
        taken, self._held = self._held.slice(0, count), self._held.slice(count)
        return taken

    def find(self) -> list[str]:
        """The columns in which identifiers are found again."""
        return [name for name in self._known if self._is_recast(name) or self._is_recognized(name)]

    def _is_recast(self, name: str) -> bool:
        found = self._recast[name]
        return found >= max(min(LEAST_RECOGNIZED, self._at), 1) and found > SHARE_RECAST * self._at

    def _is_recognized(self, name: str) -> bool:
        """Whether drawn values lead back to their own, more often than by chance, which is once in all identifiers."""
        if not any(part.num_rows for part in self._pairs[name]):
            return False
        pairs, known = pa.concat_tables(self._pairs[name]).combine_chunks(), self._known[name]
        written, own = (write_values(pairs[side]).to_pylist() for side in ("written", "own"))
        telling = {(w, o) for w, o in zip(written, own, strict=True) if w and o}
        listed = known.take(pa.array(self._draw.permutation(len(known))[:LISTED]))
        texts = {text for text in write_values(pa.chunked_array([listed])).to_pylist() if text}
        texts |= {o for _, o in telling}
        counts = [_count_recognized(telling, texts, view) for view in VIEWS]
        right = max(*counts, _count_same_end(telling, texts), _count_nearest(pairs, known))
        least = max(SHARE_RECOGNIZED, LEAST_RECOGNIZED / max(len(texts), 1))
        return right >= LEAST_RECOGNIZED and right > len(telling) * least


def _count_recast(pairs: pa.Table) -> int:
    """How many values are their own original, with characters reordered or a few cut from an end."""
    written, own = (write_values(pairs[side]).to_pylist() for side in ("written", "own"))
    return sum(_is_recast(w, o) for w, o in zip(written, own, strict=True) if w and o)


def _is_recast(written: str, own: str) -> bool:
    if len(own) < LEAST_LETTERS:
        return False
    if 0 < len(own) - len(written) <= MOST_CUT and (own.startswith(written) or own.endswith(written)):
        return True
    letters = _sort_letters(written)
    return len(letters) >= LEAST_LETTERS and letters == _sort_letters(own)


def _sort_letters(text: str) -> str:
    """Letters and digits in their order, so that values that differ by the places of characters are one."""
    return "".join(sorted(filter(str.isalnum, text.casefold())))


VIEWS: tuple[Callable[[str], str], ...] = (str, lambda text: text[::-1], _sort_letters)
"""How a written value is read before it is compared; the last one reads the identifiers in the same way."""


def _count_recognized(pairs: Iterable[tuple[str, str]], known: Iterable[str], view: Callable[[str], str]) -> int:
    """How many written values are nearer to the value they were made from than to any other."""
    from rapidfuzz.distance import Indel
    from rapidfuzz.process import cdist

    same = view if view is _sort_letters else str
    place = {text: i for i, text in enumerate(sorted({same(text) for text in known}))}
    told = sorted({(view(written), place[same(own)]) for written, own in pairs})
    if not told:
        return 0
    apart = cdist([written for written, _ in told], list(place), scorer=Indel.distance, dtype=np.int32)
    own = apart[np.arange(len(told)), [at for _, at in told]]
    return int((np.count_nonzero(apart <= own[:, None], axis=1) == 1).sum())


def _count_same_end(pairs: Iterable[tuple[str, str]], known: Iterable[str]) -> int:
    """How many written values share more first characters, or more last ones, with their own than with any other."""
    from rapidfuzz.distance import Postfix, Prefix
    from rapidfuzz.process import cdist

    told, place = sorted(pairs), {text: i for i, text in enumerate(sorted(known))}
    right = [0]
    for scorer in (Prefix, Postfix) if told else ():
        shared = cdist([written for written, _ in told], list(place), scorer=scorer.similarity, dtype=np.int32)
        own = shared[np.arange(len(told)), [place[text] for _, text in told]]
        right.append(int((np.count_nonzero(shared >= own[:, None], axis=1) == 1).sum()))
    return max(right)


def _count_nearest(pairs: pa.Table, known: pa.Array) -> int:
    """How many written numbers or dates are nearer to the one they were made from than to any other of the table."""
    kind = known.type
    sides = [_read_numbers(column, kind) for column in (pairs["written"], pairs["own"], pa.chunked_array([known]))]
    if any(side is None for side in sides):
        return 0
    written, own, every = (np.asarray(side, np.float64) for side in sides)
    every = np.unique(every[np.isfinite(every)])
    told = np.unique(np.column_stack([written, own])[np.isfinite(written) & np.isfinite(own)], axis=0)
    if len(told) == 0 or len(every) < 2:
        return 0
    at = np.clip(np.searchsorted(every, told[:, 0]), 1, len(every) - 1)
    below, above = (np.abs(told[:, 0] - every[at - step]) for step in (1, 0))
    nearest = np.where(below < above, every[at - 1], every[at])
    return int(((nearest == told[:, 1]) & (below != above)).sum())


def _read_numbers(column: pa.ChunkedArray, kind: pa.DataType) -> NDArray[np.float64] | None:
    """Numbers or times as floating point, missing ones as no number; None where they are neither."""
    if not (
        pa.types.is_temporal(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
    ):
        return None
    try:
        typed = column.cast(kind if pa.types.is_temporal(kind) else pa.float64()) if is_text(column.type) else column
        return np.asarray(to_floats(typed).to_numpy(), np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
