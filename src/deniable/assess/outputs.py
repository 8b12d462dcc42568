"""What an audit runs, and its outputs as tables of numbers: numbers, texts, lists, mappings, and what is inside them.

No two outputs that differ become the same row. Besides the numbers of an output, its types, the order of its keys and
the way it was printed have columns where they vary; if all these still leave two different outputs alike, a column
numbers the outputs themselves. That a run failed is an output too."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deniable.assess.inside_texts import Inside, count_inside, decode_texts
from deniable.dp.samplers import permutation
from deniable.errors import DeniableError, ParameterError

Outputs = Sequence[Any] | NDArray[Any]
MOST_COLUMNS, FEW_COLUMNS = 1000, 64
"""Of outputs with more entries, those that occur most are looked at."""


@dataclass(frozen=True, slots=True)
class Printed:
    """An output as it was printed, and the value that it was read as."""

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """A run (or a batch of runs) that failed: in words that may be shown, and what it told, which is not shown."""

    words: str
    told: str = ""
    error: type[DeniableError] = ParameterError


class Tabulated(NamedTuple):
    """Outputs of two inputs as tables with the same columns, and what each column is.

    The last `inside` columns count what is inside texts and lists; `unread` says what was not looked at there. Of each
    input the outputs came in so many `batches`, one after the other; 0 where each is of a run of its own.
    """

    first: NDArray[Any]
    second: NDArray[Any]
    names: tuple[str, ...]
    inside: int = 0
    unread: tuple[str, ...] = ()
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run: on a world, so many times; and the worlds that are neighbors, each pair with its name.

    Runs of one batch may share what the mechanism drew once for all of them: they are no independent observations.
    So a subject that can be run `alone`, by one call for each output, is run so where that does not take long; the
    calls are of one world or the other in a random order, so that a time or a number of the run, which an output may
    hold, is no event of one world. Else it is run in BATCHES of each world, in a random order too. Where a batch fails,
    or arrays have more than one type, the subject is run alone as well. A subject that has no `alone` is one of ours,
    whose batches draw anew for each run.
    """

    words: str
    run: Callable[[Any, int], Outputs | Failed] | None
    pairs: tuple[tuple[Any, Any], ...]
    labels: tuple[str, ...] = ("",)
    alone: Callable[[Any], Callable[[], Any]] | None = None
    advice: str = "Try it by itself first"
    started_anew: bool = False
    """A call starts a program of its own, which takes long."""

    def sample(self, place: int, runs: int, screened: bool = False) -> tuple[Tabulated, DeniableError | None]:
        """Outputs of a pair as numbers, and the refusal that is due if failures are all there is.

        Failures that tell the worlds apart are a leak: only those that do not are a mistake of whoever asks. What is
        `screened` chooses among pairs and proves nothing: one batch of each world is enough.
        """
        worlds, batches = self.pairs[place], 0
        if self.run is None or (self.alone is not None and not screened and self._is_quick(worlds[0], runs)):
            first, second = self._run_mixed(worlds, runs)
        else:
            batches = min(BATCHES, runs) if self.alone is not None and not screened else 0
            first, second = self._run_batches(worlds, runs, max(1, batches))
            if self.alone is not None and _differ_as_batches(first, second):
                (first, second), batches = self._run_mixed(worlds, runs), 0
        for one in (first, second):
            if isinstance(one, Failed):
                raise one.error(one.words, remedy=self.advice, charge="")
        assert not isinstance(first, Failed)
        assert not isinstance(second, Failed)
        failed = [one for side in (first, second) if isinstance(side, list) for one in side if isinstance(one, Failed)]
        refusal = None
        if failed and len(failed) == len(first) + len(second):
            alike = len({one.words for one in failed}) == 1
            words = f"{failed[0].words} in every run" if alike else "Every run failed, in more than one way"
            refusal = failed[0].error(words, remedy=self.advice, charge="")
        return tabulate_outputs(first, second, batches), refusal

    def _run_mixed(self, worlds: tuple[Any, Any], runs: int) -> tuple[Outputs, Outputs]:
        assert self.alone is not None
        calls = [self.alone(world) for world in worlds]
        found: tuple[list[Any], list[Any]] = ([], [])
        for side in permutation(2 * runs) % 2:
            found[side].append(calls[side]())
        return _stack(found[0]), _stack(found[1])

    def _is_quick(self, world: Any, runs: int) -> bool:
        """Whether one call for each output takes no longer than QUICK, by the quickest of a few calls."""
        assert self.alone is not None
        if self.started_anew:
            return False
        call, taken = self.alone(world), []
        for _ in range(TIMED):  # the first one may import something
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        return min(taken) * 2 * runs <= QUICK

    def _run_batches(self, worlds: tuple[Any, Any], runs: int, batches: int) -> tuple[Any, Any]:
        """All batches of each world, joined; or what failed, where not all of them gave outputs of one type."""
        assert self.run is not None
        sizes = [len(part) for part in np.array_split(np.arange(runs), batches)]
        found: tuple[list[Any], list[Any]] = ([], [])
        for side in permutation(2 * batches) % 2:
            found[side].append(self.run(worlds[side], sizes[len(found[side])]))
        return _join_batches(found[0]), _join_batches(found[1])


BATCHES, QUICK, TIMED = 100, 60.0, 3
"""Batches of each world; seconds that calls for one output each may take; and how many calls are timed before."""
SOME_FAILED = "Some batches failed, or gave outputs of another type"


def _stack(outputs: list[Any]) -> Outputs:
    """Outputs that are all numbers or arrays of NumPy of one type and shape, as one array."""
    alike = {(each.dtype, each.shape) if isinstance(each, np.generic | np.ndarray) else None for each in outputs}
    return np.array(outputs) if len(alike) == 1 and None not in alike else outputs


def _join_batches(parts: Sequence[Outputs | Failed]) -> Outputs | Failed:
    failed = [part for part in parts if isinstance(part, Failed)]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if failed:
        return failed[0] if len(failed) == len(parts) else Failed(SOME_FAILED)
    if not arrays:
        return [output for part in parts if not isinstance(part, Failed) for output in part]
    alike = len(arrays) == len(parts) and len({(each.dtype.kind, each.shape[1:]) for each in arrays}) == 1
    return np.concatenate(arrays) if alike else Failed(SOME_FAILED)


def _differ_as_batches(first: Outputs | Failed, second: Outputs | Failed) -> bool:
    if isinstance(first, Failed) and isinstance(second, Failed):
        return SOME_FAILED in (first.words, second.words) or (first.words, first.told) != (second.words, second.told)
    if isinstance(first, Failed) or isinstance(second, Failed):
        return True
    kinds = [side.dtype.kind if isinstance(side, np.ndarray) else "" for side in (first, second)]
    return kinds[0] != kinds[1]


def tabulate_outputs(first: Outputs, second: Outputs, batches: int = 0) -> Tabulated:
    """Outputs as two tables of numbers with the same columns.

    Lists have a column for each place and mappings one for each key, missing where an output has none; texts that are
    no numbers become numbers of their own, beside their length, their letters, their ends and the numbers inside them,
    and a text of several lines counts each of its lines. What a float cannot hold of a number has a column of its own.
    Words and characters of texts, what is encoded in them, and entries of lists are counted where the runs that an
    audit learns from differ.

    >>> tabulate_outputs([{"a": 1}, {"a": 2, "b": "x"}], [{"a": 0}]).names
    ('output a', 'output b', 'output b first', 'output b last', 'output b length', 'output b letters', 'output entries')
    >>> tabulate_outputs([True], [1]).names
    ('output', 'output type')
    """
    arrays = [side for side in (first, second) if isinstance(side, np.ndarray) and side.dtype.kind in "iufb"]
    arrays = [side for side in arrays if side.dtype.kind == "f" or not (np.abs(side.astype(float)) > LARGEST).any()]
    if len(arrays) == 2 and arrays[0].shape[1:] == arrays[1].shape[1:] and arrays[0].ndim <= 2 and arrays[0].size:
        left, right = (side.reshape(len(side), -1) for side in arrays)
        return Tabulated(left, right, (), batches=batches)
    read = [[_read(output) for output in side] for side in (first, second)]
    _add_varying(read)
    listed = [[output.numbers for output in side] for side in read]
    seen = Counter(name for side in listed for output in side for name in output)
    once = 1 if len(seen) > FEW_COLUMNS else 0  # of many entries, those that are seen once say nothing
    names = sorted(name for name, times in seen.most_common(MOST_COLUMNS) if times > once)
    tables = [_build_table(side, names) for side in listed]
    if tables[0].dtype != tables[1].dtype or tables[0].dtype.kind == "O":
        rounded = sorted({name for side in listed for output in side for name in names if _rest(output.get(name))})
        floats = [[[_round(output.get(name)) for name in names] for output in side] for side in listed]
        rests = [[[_rest(output.get(name)) for name in rounded] for output in side] for side in listed]
        tables = [np.hstack((np.array(f, float), np.array(r, float))) for f, r in zip(floats, rests, strict=True)]
        names += [f"{name} beyond 53 bits" for name in rounded]
    if any(count < sum(map(len, listed)) for count in seen.values()):
        lengths = [np.array([[len(output)] for output in side], tables[0].dtype) for side in listed]
        names, tables = [*names, "entries"], [np.hstack(pair) for pair in zip(tables, lengths, strict=True)]
    numbers = [[_number_text(_write_exactly(output)) for output in side] for side in (first, second)]
    if not _tell_apart(tables, numbers):
        columns = [np.array(side, tables[0].dtype).reshape(-1, 1) for side in numbers]
        names, tables = [*names, "as a whole"], [np.hstack(pair) for pair in zip(tables, columns, strict=True)]
    counted = count_inside([[output.inside for output in side] for side in read], batches)
    tables = [np.hstack((table, more.astype(table.dtype))) for table, more in zip(tables, counted.tables, strict=True)]
    told = tuple(f"output {name}".strip() for name in (*names, *counted.names))
    return Tabulated(tables[0], tables[1], told, len(counted.names), counted.unread, batches)


def _tell_apart(tables: Sequence[NDArray[Any]], numbers: Sequence[Sequence[int]]) -> bool:
    """Whether outputs that differ have rows that differ."""
    known: dict[bytes, int] = {}
    rows = ((row.tobytes(), number) for table, side in zip(tables, numbers, strict=True)
            for row, number in zip(np.ascontiguousarray(table), side, strict=True))  # fmt: skip
    return all(known.setdefault(row, number) == number for row, number in rows)


Exact = int | float | Fraction
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
DIGITS = re.compile(r"\d+")
WORD = re.compile(r"\w+")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d.*)?")
MOST_INSIDE = 64
"""Of the numbers inside a text, so many are looked at one by one."""
MOST_DECODED = 8
"""Of the numbers that are read in another way, reversed or decoded, so many of each."""
HEXADECIMAL = re.compile(r"\b(?:0[xX])?[0-9a-fA-F]{3,16}\b")
LARGEST = 2**53
"""Up to here a float holds every whole number."""


def _build_table(side: Sequence[Mapping[str, Exact]], names: Sequence[str]) -> NDArray[Any]:
    """Whole numbers as such, where there is nothing else."""
    table = np.array([[output.get(name, np.nan) for name in names] for output in side], object)
    whole = all(isinstance(value, int) and abs(value) <= LARGEST for value in table.flat)
    return table.astype(np.int64) if whole else table


def _round(value: Exact | None) -> float:
    """The nearest float; beyond all of them, the infinite one."""
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value is not None and value > 0 else -math.inf


def _rest(value: Exact | None) -> float:
    """What a number has beyond its nearest float; of one beyond all floats, its lowest digits."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST):
        return 0.0
    nearest_float = _round(value)
    return float(value - Fraction(nearest_float)) if math.isfinite(nearest_float) else float(value % 2**48)


@dataclass(slots=True)
class _Read:
    """What an output has, each with the way to it: numbers; types; of mappings, their keys in order; how printed."""

    numbers: dict[str, Exact] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    orders: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    layouts: dict[str, tuple[int, str]] = field(default_factory=dict)
    inside: Inside = field(default_factory=Inside)

    def add(self, name: str, number: Exact) -> None:
        """Keep a number; where two ways are written alike, the later one has a mark."""
        while name in self.numbers:
            name += "'"
        self.numbers[name] = number


def _add_varying(read: Sequence[Sequence[_Read]]) -> None:
    """Types, orders of keys and layouts become numbers where they are not the same in all outputs."""
    every = [output for side in read for output in side]
    types, orders, layouts = defaultdict(set), defaultdict(set), defaultdict(set)
    for output in every:
        for name, told in output.types.items():
            types[name].add(told)
        for name, keys in output.orders.items():
            orders[name, frozenset(keys)].add(keys)
        for name, shape in output.layouts.items():
            layouts[name].add(shape)
    ordered = {name for (name, _), ways in orders.items() if len(ways) > 1}
    spread = {name for name, ways in layouts.items() if len(ways) > 1 or any(name not in o.layouts for o in every)}
    for output in every:
        for name, told in output.types.items():
            if len(types[name]) > 1:
                output.add(f"{name} type".strip(), _number_text(told))
        for name in ordered & output.orders.keys():
            output.add(f"{name} order".strip(), _number_text(repr(output.orders[name])))
        for name, (length, layout) in output.layouts.items():
            if name in spread:
                output.add(f"{name} printed length".strip(), length)
                output.add(f"{name} printed layout".strip(), _number_text(layout))


def _read(output: Any) -> _Read:
    found = _Read()
    _flatten(found, "", output)
    return found


def _flatten(found: _Read, name: str, output: Any, way: str = "") -> None:
    """Add the numbers of an output, each with the way to it; `way` is the name without places in lists."""
    if isinstance(output, Printed):
        if output.text != _spell(output.value):
            found.layouts[name] = len(output.text), WORD.sub("w", output.text)
        if not isinstance(output.value, str):
            found.inside.texts.append((way, output.text))
        return _flatten(found, name, output.value, way)
    if isinstance(output, np.generic):
        output = output.item()
    found.types[name] = type(output).__name__
    if isinstance(output, Failed):
        output = {"failed": output.words, "told": output.told}
    if isinstance(output, Mapping):
        found.orders[name] = tuple(output)
        others = sorted({type(key).__name__ for key in output} - {"str"})
        found.types[name] += f" of {', '.join(others)}" if others else ""
        keys = [str(key).replace(".", "\\.") for key in output]
        inside = [
            (key, value, f"{way}.{key}" if way else key) for key, value in zip(keys, output.values(), strict=True)
        ]
        found.inside.lists.append((f"{way} keys".strip(), keys))
    elif isinstance(output, list | tuple | np.ndarray):
        inside = [(str(place + 1), value, way) for place, value in enumerate(output)]
        found.inside.lists.append((way, [str(value) for value in output if not isinstance(value, NESTED)]))
        found.inside.lists.append((f"{way} row".strip(), [_write_exactly(v) for v in output if isinstance(v, NESTED)]))
    else:
        if isinstance(output, str):
            found.inside.texts.append((way, output))
            found.inside.texts += [(f"{way} decoded".strip(), text) for text in decode_texts(output)]
        numbers = _read_text(name, output) if isinstance(output, str) else ((name, _convert(output)),)
        for each, number in numbers:
            found.add(each, number)
        return None
    if not inside:
        found.add(name, 0)
    for key, value, there in inside:
        _flatten(found, f"{name}.{key}" if name else key, value, there)
    return None


NESTED = (Mapping, list, tuple, np.ndarray, Printed, Failed)


def _spell(value: Any) -> str:
    """How a value is usually printed: JSON, or words with a space between."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return json.dumps(value, ensure_ascii=False)


def _write_exactly(output: Any) -> str:
    """An output as a text that no other output has: types, keys in order, and values as they are."""
    if isinstance(output, Printed):
        return f"printed {output.text!r}"
    if isinstance(output, Mapping):
        inside = ",".join(f"{_write_exactly(key)}:{_write_exactly(value)}" for key, value in output.items())
        return f"{{{inside}}}"
    if isinstance(output, list | tuple | np.ndarray):
        return f"{type(output).__name__}[{','.join(map(_write_exactly, output))}]"
    value = output.item() if isinstance(output, np.generic) else output
    return f"{type(value).__name__} {value!r}"


def _read_text(name: str, text: str) -> Iterator[tuple[str, Exact]]:
    """A text as the number it is; or as a number of its own (or how often it has each line) and all numbers inside."""
    number = _parse_number(text)
    if number is not None:
        yield name, number
        if str(number) == text:
            return
    elif "\n" in text.strip():
        for line, times in Counter(text.strip().splitlines()).items():
            yield f"{name} lines '{line}'".strip(), times
    else:
        yield name, _number_text(text)
        for end, character in (("first", text[:1]), ("last", text[-1:])):
            yield f"{name} {end}".strip(), ord(character or "\0")
    yield f"{name} length".strip(), len(text)
    yield f"{name} letters".strip(), _number_text(DIGITS.sub("", text))  # 'Ann123' and 'Ann456' are alike
    if number is not None:
        return
    if DATE.fullmatch(text) and (day := _parse_date(text)) is not None:
        yield f"{name} date".strip(), _convert(day)
    yield from _read_numbers(f"{name} number".strip(), text, MOST_INSIDE)
    yield from _read_numbers(f"{name} reversed number".strip(), text[::-1], MOST_DECODED)
    for place, each in enumerate(islice(decode_texts(text), MOST_DECODED)):
        yield from _read_numbers(f"{name} decoded {place + 1} number".strip(), each, MOST_DECODED)
    for place, found in enumerate(islice(HEXADECIMAL.finditer(text), MOST_DECODED)):
        yield f"{name} hexadecimal {place + 1}".strip(), int(found[0], 16)


def _read_numbers(name: str, text: str, most: int) -> Iterator[tuple[str, Exact]]:
    for place, found in enumerate(islice(NUMBER.finditer(text), most)):
        inside = _parse_number(found[0])
        if inside is not None:
            yield f"{name} {place + 1}", inside


def _number_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).digest(), "big")


def _parse_number(text: str) -> int | float | None:
    try:
        return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None


def _parse_date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


DAY = 86_400_000_000


def _convert(value: Any) -> Exact:
    if value is None:
        return math.nan
    if isinstance(value, datetime):
        passed = value.replace(tzinfo=None) - datetime(value.year, value.month, value.day)
        micro = (passed.seconds * 1_000_000) + passed.microseconds
        return value.toordinal() + Fraction(micro, DAY) if micro else value.toordinal()
    if isinstance(value, date):
        return value.toordinal()
    if isinstance(value, Decimal):
        return Fraction(value) if value.is_finite() else float(value)
    if isinstance(value, int | float | Fraction):
        return int(value) if isinstance(value, bool) else value
    raise ParameterError(
        "an output is not made of numbers and texts",
        expected="Numbers, texts, lists or mappings",
        remedy="Let the program give those",
    )
