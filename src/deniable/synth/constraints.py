"""Constraints: the policy's truths, which synthetic rows keep exactly and all together, at no cost.

They are post-processing: enforced on rows that are drawn, and known to the estimates as cells that are empty for sure.
Columns that truths join are one part, and parts are independent. A row that breaks a truth is changed in steps, each of
which is taken only if the row then keeps everything: totals are added up and orders sorted, single values are taken
from rows that keep all truths, then an exact search looks for the nearest row (`policy.truths.find_row`). A row for
which nothing is found becomes a copy, in these columns, of one that keeps all. Where there is none, it is said.

A dependency is decided by the rows of the first batch that have a combination, and holds for all batches after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import Infeasible
from deniable.policy.conditions import Both, Linear, Member, Missing, Not, Tree, list_columns
from deniable.policy.schema import Spec
from deniable.policy.truths import (
    Box,
    Declared,
    Effort,
    Rules,
    SearchTooLong,
    columns_of,
    compile_rules,
    find_any_row,
    find_row,
    list_names,
    tighten_boxes,
)
from deniable.synth.domain import Attribute, Bins, Labels, arrow_type
from deniable.synth.encode import convert_steps, encode_column, find_steps, to_array

NULL = -1
REDRAWN_ROUNDS = 12
"""How often a row gets values of rows that keep all truths, before it is searched for."""
MOST_SEARCHED, SEARCH_STEPS = 3_000, 400
"""Different rows of a batch that are searched for, and the steps of each search."""
SEARCH_WORK = 200_000
"""Truths that are judged for all rows of a batch, which takes seconds: the rest become copies of rows that keep all."""
KEPT_ROWS = 1_000
"""Rows that keep all truths, remembered for batches in which none does."""

Places = NDArray[np.int64]
Matrix = NDArray[np.int64]
"""One row a column, one column a record: the place of each value among those of its column, or `NULL`."""
Bools = NDArray[np.bool_]
Proposal = Callable[[Matrix, Matrix, np.random.Generator], Matrix]
"""Changed records, from records that break a truth, records that break none, and lots."""
Numbers = Mapping[str, tuple[NDArray[Any], Bools]]
"""The whole number of each value, as rules have it, and which values are null."""


def select_constraints(truths: Sequence[Spec], columns: Sequence[str]) -> tuple[Spec, ...]:
    """The truths about columns that are there."""
    return tuple(truth for truth in truths if columns_of(truth) <= set(columns))


class ConstraintEngine:
    """Enforces truths on batches of rows; what one batch decided about a dependency holds for the next.

    Columns that are `fixed` are never changed: those of a condition, or of the person that a row belongs to.
    """

    def __init__(
        self, truths: Sequence[Spec], attributes: Sequence[Attribute], fixed: frozenset[str] = frozenset()
    ) -> None:
        held = select_constraints(truths, [attribute.name for attribute in attributes])
        named = frozenset().union(*(columns_of(truth) for truth in held))
        columns = [_Column(attribute) for attribute in attributes if attribute.name in named]
        rules = compile_rules(held, [column.declared for column in columns])
        self._columns = {column.name: column for column in columns}
        for column in columns:
            column.number_values(rules)
        self._parts = [_Part(names, held, rules, self._columns, fixed) for names in _join_columns(held)]

    def enforce(self, rows: pa.RecordBatch, generator: np.random.Generator) -> pa.RecordBatch:
        """The rows with every truth kept."""
        arrays = dict(zip(rows.schema.names, rows.columns, strict=True))
        for part in self._parts:
            drawn = np.stack([self._columns[name].read(arrays[name]) for name in part.names])
            kept = part.enforce(drawn, generator)
            for name, before, after in zip(part.names, drawn, kept, strict=True):
                if not np.array_equal(before, after):
                    arrays[name] = self._columns[name].write(after).cast(arrays[name].type)
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=rows.schema)


def _join_columns(truths: Sequence[Spec]) -> list[tuple[str, ...]]:
    """The columns that truths join, in parts that no truth joins."""
    parts: list[set[str]] = []
    for truth in truths:
        joined = set(columns_of(truth))
        for part in [part for part in parts if part & joined]:
            joined |= part
            parts.remove(part)
        parts.append(joined)
    return [tuple(sorted(part)) for part in parts]


def declare_attribute(attribute: Attribute) -> Declared:
    """An attribute as the solver sees it."""
    match attribute:
        case Bins():
            grid = (attribute.lower, attribute.step, attribute.steps)
            return Declared(attribute.name, attribute.type, attribute.nullable, grid=grid)
        case Labels():
            listed = tuple(value if isinstance(value, str) else Fraction(value) for value in attribute.labels)
            return Declared(attribute.name, attribute.type, attribute.nullable, listed=listed)
        case _:
            return Declared(attribute.name, attribute.type, True)


class _Column:
    """A column as places of values: steps of a number, places of a label, and texts as they come."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute, self.name, self.declared = attribute, attribute.name, declare_attribute(attribute)
        self.nullable = self.declared.nullable
        self._seen: dict[Any, int] = {}
        self._start, self._step = 0, 1
        self._table: NDArray[Any] | None = None

    def read(self, values: pa.Array) -> Places:
        """The place of each value."""
        match self.attribute:
            case Bins():
                steps, null = find_steps(self.attribute, to_array(values))
                return np.where(null, NULL, steps)
            case Labels():
                codes = encode_column(self.attribute, values).astype(np.int64)
                return np.where(codes >= len(self.attribute.labels), NULL, codes)
        encoded = to_array(values).dictionary_encode()
        table = [self._seen.setdefault(value, len(self._seen)) for value in encoded.dictionary.to_pylist()]
        at = encoded.indices.fill_null(len(table)).to_numpy(zero_copy_only=False).astype(np.int64)
        places: Places = np.array([*table, NULL], dtype=np.int64)[at]
        return places

    def write(self, places: Places) -> pa.Array:
        """The values at places."""
        match self.attribute:
            case Bins():
                return convert_steps(self.attribute, np.maximum(places, 0), places == NULL)
            case Labels():
                listed = pa.array(list(self.attribute.labels), arrow_type(self.attribute))
            case _:
                listed = pa.array(list(self._seen))
        return listed.take(pa.array(np.maximum(places, 0), mask=places == NULL))

    def number_values(self, rules: Rules) -> None:
        """Learn the whole numbers of the values, where truths about one row speak of the column."""
        if self.name not in rules.boxes:
            return
        if isinstance(self.attribute, Bins):
            self._start, self._step = rules.number(self.attribute.lower), rules.number(self.attribute.step)
        else:
            self._table = np.array([rules.number(value) for value in self.declared.listed or ()])

    def to_numbers(self, places: Places, kind: Any) -> NDArray[Any]:
        """The whole numbers of places; of null, any."""
        if self._table is not None:
            return self._table.astype(kind)[np.maximum(places, 0)]
        found: NDArray[Any] = self._start + np.maximum(places, 0).astype(kind) * self._step
        return found

    def to_places(self, numbers: NDArray[Any]) -> tuple[Places, Bools]:
        """The places of whole numbers, and which of them are values of the column."""
        if self._table is None:
            assert isinstance(self.attribute, Bins)
            places = ((numbers - self._start) // self._step).astype(np.int64)
            inside = (places >= 0) & (places < self.attribute.steps)
            return places, inside & (self._start + places * self._step == numbers).astype(bool)
        order = np.argsort(self._table, kind="stable")
        at = np.minimum(np.searchsorted(self._table[order], numbers.astype(np.int64)), order.size - 1)
        return order[at].astype(np.int64), (self._table[order[at]] == numbers).astype(bool)

    @property
    def largest(self) -> int:
        """The largest whole number, without its sign."""
        if self._table is not None:
            return int(np.abs(self._table).max(initial=0))
        steps = self.attribute.steps if isinstance(self.attribute, Bins) else 0
        return max(abs(self._start), abs(self._start + steps * self._step))


@dataclass(frozen=True, slots=True, eq=False)
class _Dependency:
    """Places in the matrix that determine others, and what was decided so far."""

    source: list[int]
    target: list[int]
    decided: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)

    def find_meant(self, matrix: Matrix, among: Bools) -> tuple[Matrix, Bools]:
        """What each record should have, by what was decided, else by what suits some records; where that is known."""
        group, first = _number_groups(matrix[self.source])
        meant, known = np.zeros((len(self.target), first.size), np.int64), np.zeros(first.size, dtype=bool)
        for place, key in enumerate(matrix[self.source][:, first].T.tolist()):
            if (held := self.decided.get(tuple(key))) is not None:
                meant[:, place], known[place] = held, True
        values, chosen = self._choose(matrix, group, known, among)
        found = np.flatnonzero(chosen >= 0)
        meant[:, found], known[found] = values[:, chosen[found]], True
        return meant[:, group], known[group]

    def _choose(self, matrix: Matrix, group: Places, known: Bools, among: Bools) -> tuple[Matrix, Places]:
        """The different values that are determined, and for each group that is not known yet the place of its own; -1
        for none.

        Groups choose one after the other, the largest first: among the values that some of their records have, one that
        most of them have, and of which as many records are left as the group has. So where a value was drawn with what
        determines it, the noise in single records decides nothing; and where it was drawn by itself, each value goes on
        to have about its share of the records, instead of the most frequent one all.
        """
        value, at = _number_groups(matrix[self.target])
        sizes, left = np.bincount(group, minlength=known.size), np.bincount(value[~known[group]], minlength=at.size)
        some = among & ~known[group]
        pairs, counts = np.unique(group[some] * max(at.size, 1) + value[some], return_counts=True)
        owners, values = np.divmod(pairs, max(at.size, 1))
        chosen = np.full(known.size, -1, dtype=np.int64)
        waiting, starts = np.unique(owners, return_index=True)
        ends = np.append(starts[1:], owners.size)
        for turn in np.argsort(-sizes[waiting], kind="stable"):
            here, size = slice(starts[turn], ends[turn]), sizes[waiting[turn]]
            gains = counts[here] + np.clip(left[values[here]], 0, size)
            best = values[here][int(np.argmax(gains))]
            chosen[waiting[turn]] = best
            left[best] -= size
        return matrix[self.target][:, at], chosen

    def find_agreeing(self, matrix: Matrix, among: Bools) -> Bools:
        """Of some records, those that have what they should have."""
        meant, known = self.find_meant(matrix, among)
        agreeing: Bools = among & known & (matrix[self.target] == meant).all(axis=0)
        return agreeing

    def decide(self, matrix: Matrix, among: Bools) -> None:
        """Keep what some records, which agree, have."""
        some = np.flatnonzero(among)
        if some.size:
            _, first = _number_groups(matrix[self.source][:, some])
            at = some[first]
            pairs = zip(matrix[self.source][:, at].T.tolist(), matrix[self.target][:, at].T.tolist(), strict=True)
            self.decided.update((tuple(key), tuple(value)) for key, value in pairs)


def _find_places(listed: Any, names: Sequence[str]) -> list[int]:
    return [names.index(name) for name in list_names(listed)]


def _number_groups(rows: Matrix) -> tuple[Places, Places]:
    """The group of each record by its values, and the first record of each group."""
    group: Places = np.zeros(rows.shape[1], dtype=np.int64)
    first: Places = np.zeros(min(rows.shape[1], 1), dtype=np.int64)
    for values in rows:
        codes = np.unique(values, return_inverse=True)[1]
        _, first, group = np.unique(group * (codes.max(initial=0) + 1) + codes, return_index=True, return_inverse=True)
    return group, first


def _ease_search(rules: Rules) -> Rules:
    """The rules, with narrower boxes where a row is hard to find: each search is short, and there are many."""
    try:
        find_row(rules, {}, most=SEARCH_STEPS)
    except SearchTooLong:
        return replace(rules, boxes=tighten_boxes(rules, rules.boxes) or rules.boxes)
    return rules


class _Part:
    """Columns that truths join: what must hold of them within a row and between rows."""

    def __init__(
        self, names: tuple[str, ...], truths: Sequence[Spec], rules: Rules, columns: Mapping[str, _Column],
        fixed: frozenset[str],
    ) -> None:  # fmt: skip
        self.names, self._columns = names, columns
        own = [i for i, tree in enumerate(rules.trees) if set(list_columns(tree)) <= set(names)]
        boxes = {name: box for name, box in rules.boxes.items() if name in names}
        trees = tuple(rules.trees[i] for i in own)
        self._rules = _ease_search(Rules(boxes, trees, tuple(rules.truths[i] for i in own), rules.unit, rules.ranks))
        self._ruled = [name for name in names if name in boxes]
        self._fixed = [place for place, name in enumerate(names) if name in fixed]
        listed = [t for t in truths if t.kind == "determines" and columns_of(t) <= set(names)]
        self._dependencies = [
            _Dependency(_find_places(truth.options["from"], names), _find_places(truth.options["to"], names))
            for truth in listed
        ]
        factors = [abs(int(f)) for tree in trees for each in _list_sums(tree) for _, f in each.terms]
        most = max(factors, default=1) * max((columns[n].largest for n in self._ruled), default=1) * (len(names) + 1)
        self._kind: Any = np.int64 if most < 2**62 else object
        self._kept: Matrix = np.zeros((len(names), 0), dtype=np.int64)

    def enforce(self, drawn: Matrix, generator: np.random.Generator) -> Matrix:
        """The records with every truth kept."""
        matrix = drawn.copy()
        good = self._admit(matrix)
        for propose in self._list_proposals():
            bad = np.flatnonzero(~good)
            if not bad.size:
                break
            trial = propose(matrix[:, bad], self._find_donors(matrix, good), generator)
            trial[self._fixed] = matrix[self._fixed][:, bad]
            fits = self._admit(trial)
            matrix[:, bad[fits]] = trial[:, fits]
            good[bad[fits]] = True
        if not good.all():
            self._copy_donors(matrix, good, generator)
        self._kept = np.concatenate([matrix, self._kept], axis=1)[:, :KEPT_ROWS]
        return matrix

    def _list_proposals(self) -> Iterator[Proposal]:
        """Ways to change records, from gentle to thorough."""
        if self._dependencies:
            yield lambda trial, _donors, _lots: self._follow(trial)
        if self._ruled:
            for steps in ((self._add_up,), (self._sort,), (self._complete,), (self._sort, self._add_up)):
                yield partial(self._take_steps, steps)
        for turn in range(REDRAWN_ROUNDS):
            yield partial(self._redraw, turn)
        if self._ruled:
            yield partial(self._take_steps, (self._search,))
            yield lambda trial, _donors, _lots: self._search(self._follow(trial), hold=True)

    def _take_steps(
        self, steps: Sequence[Callable[[Matrix], Matrix]], trial: Matrix, _donors: Matrix, _lots: np.random.Generator
    ) -> Matrix:
        for step in steps:
            trial = step(trial)
        return self._follow(trial)

    def _admit(self, matrix: Matrix) -> Bools:
        """Which records keep everything, also with one another; they decide what is not decided yet."""
        numbers = self._to_numbers(matrix)
        good = np.ones(matrix.shape[1], dtype=bool)
        for tree in self._rules.trees:
            good &= ~evaluate(tree, numbers)[1]
        for dependency in self._dependencies:
            good = dependency.find_agreeing(matrix, good)
        for dependency in self._dependencies:
            dependency.decide(matrix, good)
        return good

    def _to_numbers(self, matrix: Matrix) -> Numbers:
        places = {name: matrix[self.names.index(name)] for name in self._ruled}
        return {n: (self._columns[n].to_numbers(own, self._kind), own == NULL) for n, own in places.items()}

    def _find_donors(self, matrix: Matrix, good: Bools) -> Matrix:
        """Records that keep everything: of this batch, or of those before."""
        return matrix[:, good] if good.any() else self._kept

    def _follow(self, trial: Matrix) -> Matrix:
        """Values that are determined, as decided: again and again, for one dependency may feed another."""
        for _ in self._dependencies:
            for dependency in self._dependencies:
                meant, known = dependency.find_meant(trial, np.ones(trial.shape[1], dtype=bool))
                trial[dependency.target] = np.where(known, meant, trial[dependency.target])
        return trial

    def _sums(self) -> list[Linear]:
        return [each for tree in self._rules.trees for each in _list_sums(tree) if each.sign == "="]

    def _add_up(self, trial: Matrix) -> Matrix:
        """Totals as the sums of their parts: the last column of each sum."""
        for _ in self._sums():
            for each in self._sums():
                self._solve_sum(trial, each, len(each.terms) - 1)
        return trial

    def _complete(self, trial: Matrix) -> Matrix:
        """The largest part of each sum as what the others leave of the total."""
        for each in self._sums():
            for place in range(len(each.terms) - 1):
                self._solve_sum(trial, each, place)
        return trial

    def _solve_sum(self, trial: Matrix, each: Linear, place: int) -> None:
        """One column of a sum from the others, where that is a value of it; null where one of them is."""
        name, factor = each.terms[place]
        if not factor:
            return
        numbers, at = self._to_numbers(trial), self.names.index(name)
        rest = [numbers[n] for n, _ in each.terms if n != name]
        others: Any = sum((int(f) * numbers[n][0] for n, f in each.terms if n != name), np.zeros_like(numbers[name][0]))
        null = np.any([missing for _, missing in rest], axis=0) if rest else np.zeros(trial.shape[1], dtype=bool)
        wanted = int(each.constant) - others
        found, inside = self._columns[name].to_places(wanted // int(factor))
        inside &= (wanted % int(factor) == 0).astype(bool) & ~null
        trial[at] = np.where(inside, found, np.where(null & self._columns[name].nullable, NULL, trial[at]))

    def _sort(self, trial: Matrix) -> Matrix:
        """Neighbors in an order that fall are swapped, where each is a value of the other's column."""
        steps = [e for tree in self._rules.trees for e in _list_sums(tree) if e.sign == "<=" and len(e.terms) == 2]
        for _ in range(len(steps) + 1):
            for each in steps:
                numbers = self._to_numbers(trial)
                (a, _), (b, _) = each.terms
                _, broken = evaluate(each, numbers)
                first, of_a = self._columns[a].to_places(numbers[b][0])
                second, of_b = self._columns[b].to_places(numbers[a][0])
                swap = broken & of_a & of_b
                at, other = self.names.index(a), self.names.index(b)
                trial[at], trial[other] = np.where(swap, first, trial[at]), np.where(swap, second, trial[other])
        return trial

    def _redraw(self, turn: int, trial: Matrix, donors: Matrix, generator: np.random.Generator) -> Matrix:
        """Some values of each record from a record that keeps everything: one column at first, later about half."""
        free = [place for place in range(len(self.names)) if place not in self._fixed]
        if not donors.shape[1] or not free:
            return trial
        chosen = donors[:, generator.integers(0, donors.shape[1], trial.shape[1])]
        lots = generator.random((len(free), trial.shape[1]))
        most = np.sort(lots, axis=0)[0 if turn < REDRAWN_ROUNDS // 2 else (len(free) - 1) // 2]
        trial[free] = np.where(lots <= most, chosen[free], trial[free])
        return self._follow(self._add_up(trial) if self._ruled else trial)

    def _search(self, trial: Matrix, *, hold: bool = False) -> Matrix:
        """The nearest row that keeps what is within a row, for each different record; `hold` keeps dependencies."""
        at = [self.names.index(name) for name in self._ruled]
        group, first = _number_groups(trial[at])
        held = {self.names[p] for d in self._dependencies for p in (*d.source, *d.target)} if hold else set()
        held |= {self.names[place] for place in self._fixed}
        numbers = self._to_numbers(trial[:, first[:MOST_SEARCHED]])
        effort = Effort(SEARCH_WORK)
        for place in range(min(first.size, MOST_SEARCHED)):
            wanted = {n: None if null[place] else int(values[place]) for n, (values, null) in numbers.items()}
            found = self._find_row(wanted, held, effort)
            self._write_row(trial, group == place, found or {})
        return trial

    def _write_row(self, trial: Matrix, which: Bools, found: Mapping[str, int | None]) -> None:
        for name, value in found.items():
            own = np.array([0 if value is None else value], dtype=self._kind)
            moved = NULL if value is None else int(self._columns[name].to_places(own)[0][0])
            trial[self.names.index(name), which] = moved

    def _find_row(
        self, wanted: Mapping[str, int | None], held: set[str], effort: Effort
    ) -> Mapping[str, int | None] | None:
        """The nearest row; one with a null that was not drawn only where there is no other; None after much effort."""
        fixed: dict[str, Box] = {n: ((), True) if v is None else ((v,), False) for n, v in wanted.items() if n in held}
        valued: dict[str, Box] = {n: (v, null and wanted[n] is None) for n, (v, null) in self._rules.boxes.items()}
        for boxes in (valued | fixed, fixed):
            with suppress(SearchTooLong):
                if (found := find_row(self._rules, wanted, boxes, SEARCH_STEPS, effort)) is not None:
                    return found
        return None

    def _copy_donors(self, matrix: Matrix, good: Bools, generator: np.random.Generator) -> None:
        """Records for which nothing was found become copies of ones that keep everything, with equal fixed values."""
        donors = self._find_donors(matrix, good)
        together = np.concatenate([matrix, donors], axis=1)
        group = _number_groups(together[self._fixed])[0] if self._fixed else np.zeros(together.shape[1], dtype=np.int64)
        theirs = group[matrix.shape[1] :]
        for each in np.unique(group[: matrix.shape[1]][~good]):
            bad, pool = np.flatnonzero(~good & (group[: matrix.shape[1]] == each)), np.flatnonzero(theirs == each)
            copied = donors[:, pool] if pool.size else self._find_donor(matrix[:, bad[:1]])
            if not copied.shape[1]:
                raise Infeasible(
                    f"no row was found that keeps all truths about {', '.join(self.names)}",
                    remedy="Check the truths of the policy, and the condition if there is one",
                )
            matrix[:, bad] = copied[:, generator.choice(copied.shape[1], bad.size)]

    def _find_donor(self, record: Matrix) -> Matrix:
        """A record with the fixed values of this one that keeps everything, from a longer search; or none."""
        trial, numbers = record.copy(), self._to_numbers(record)
        held = {self.names[place] for place in self._fixed}
        fixed: dict[str, Box] = {
            n: ((), True) if null[0] else ((int(v[0]),), False) for n, (v, null) in numbers.items() if n in held
        }
        with suppress(SearchTooLong):
            self._write_row(trial, np.ones(1, dtype=bool), find_any_row(self._rules, {}, fixed) or {})
        return trial[:, self._admit(trial)]


def _list_sums(tree: Tree) -> Iterator[Linear]:
    """The sums of columns that stand in a tree without a choice."""
    if isinstance(tree, Linear):
        yield tree
    elif isinstance(tree, Both) and not tree.any:
        for part in tree.parts:
            yield from _list_sums(part)


def evaluate(tree: Tree, numbers: Numbers) -> tuple[Bools, Bools]:
    """Of each record, whether a tree is true, and whether it is false; with a null it may be neither."""
    match tree:
        case Linear(terms, sign, constant):
            total: Any = sum(int(factor) * numbers[name][0] for name, factor in terms)
            known = ~np.any([numbers[name][1] for name, _ in terms], axis=0)
            holds = (total == int(constant) if sign == "=" else total <= int(constant)).astype(bool)
            return holds & known, ~holds & known
        case Member(column, wanted):
            values, null = numbers[column]
            inside = np.isin(values, [int(value) for value in wanted])
            return inside & ~null, ~inside & ~null
        case Missing(column):
            return numbers[column][1], ~numbers[column][1]
        case Not(part):
            true, false = evaluate(part, numbers)
            return false, true
    assert isinstance(tree, Both)
    found = [evaluate(part, numbers) for part in tree.parts]
    one, every = (np.logical_or, np.logical_and) if tree.any else (np.logical_and, np.logical_or)
    return one.reduce([each[0] for each in found]), every.reduce([each[1] for each in found])
