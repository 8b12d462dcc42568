"""The certificate of a release of rows: what was written is read back, and every claim is computed anew.

Nothing here comes from the code that makes releases: files are read by Arrow's own readers, classes are counted by the
text of their cells, and each property is written out again from its definition. So what a statement says was measured
on what left, and a fault anywhere before, in the search, the recoding or the writing, shows here.

Every cell counts as it is written: an empty text and a missing value make two classes, 0 and -0 one. Readers who see
fewer differences see larger classes. Of sensitive values it is the other way round: they would see fewer of them, so
spellings of one text are one value, an empty text is a missing value, and a missing value counts as the commonest of
its class, which it may be. Rows that were suppressed and stay as `*` are a class of their own, which
must be as large as the others; nothing else is claimed of it, since it shows no sensitive value.

Who a row belongs to is in no release: where people are counted, the cells that each person's rows would have come from
the recoding, and must agree with the file, in rows and in sensitive values, before anything is counted with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.assess.left_identifiers import CopyCheck, IdentifierCheck, find_identifiers, find_secrets
from deniable.assess.released_rows import (
    COUNT,
    OF,
    PERSON,
    SLACK,
    Ancestors,
    Claim,
    Counts,
    TruthCheck,
    compare_columns,
    compare_types,
    count_people,
    count_values,
    index_of,
    open_released,
    read_types,
    spell_column,
    weigh_rows,
    write_texts,
    write_values,
)
from deniable.attacks.codes import encode_combinations, pack_codes
from deniable.release.record import SparseRecord

if TYPE_CHECKING:
    from deniable.policy.schema import Spec

STAR = "*"


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredProperty(SparseRecord):
    """One property that was claimed, what was measured in the worst class or why nothing was, and whether it holds."""

    name: str
    parameters: dict[str, str]
    measured: float | None
    holds: bool
    note: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Measurements(SparseRecord):
    """What was measured on the rows that leave, for their statement."""

    rows: int
    suppressed: int
    columns: list[str]
    classes: int | None = None
    k: int | None = None
    properties: list[MeasuredProperty] | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was measured, in words what of the claim does not hold, and the identifiers that were left as they are."""

    measured: Measurements
    broken: tuple[str, ...]
    left: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()


def certify(released: Path | pa.Table, claim: Claim) -> Certificate:
    """Read what was released, and measure everything that is claimed of it."""
    names, batches = open_released(released)
    broken, left = compare_columns(names, claim), list[str]()
    known = [part for name in claim.quasi_identifiers for part in spell_column(name, names)]
    told = [name for name in claim.sensitive if name in names]
    cells, rules = _Cells(known, told, claim.counts), TruthCheck(claim.truths, names)
    again, copies = IdentifierCheck(claim), CopyCheck(claim)
    for batch in batches:
        again.add(batch)
        copies.add(batch)
        broken += compare_types(batch, claim) + find_secrets(batch, claim)
        left += find_identifiers(batch, claim)
        typed = read_types(batch, claim)
        rules.add(typed)
        cells.add(pa.table({name: write_texts(typed[name]) for name in typed.column_names}) if names else typed)
    broken += rules.broken
    left += again.find()
    rows = cells.rows
    if claim.rows_read is not None and claim.rows_read != rows + (0 if claim.starred else claim.suppressed):
        broken.append("the rows that were read are not those written and those suppressed")
    measured = Measurements(rows, claim.suppressed, names)
    if claim.quasi_identifiers:
        stars, classes = _part_stars(cells.collect(), claim)
        broken += _compare_stars(stars, claim) + _compare_values(classes, claim) + _compare_people(classes, claim)
        sizes = np.concatenate([classes.sizes, stars])
        smallest = int(sizes.min()) if len(sizes) else None
        found = [_measure_property(spec, classes, stars, claim) for spec in claim.models]
        broken += [f"{one.name} does not hold" for one in found if not one.holds]
        measured = Measurements(rows, claim.suppressed, names, len(sizes), smallest, found)
    return Certificate(measured, *(tuple(dict.fromkeys(each)) for each in (broken, left, copies.found)))


def measure_properties(
    rows: pa.Table,
    quasi_identifiers: tuple[str, ...],
    models: tuple[Spec, ...],
    trees: Mapping[str, Ancestors] | None = None,
    population: pa.Table | None = None,
    person: str | None = None,
) -> list[MeasuredProperty]:
    """Every property of a table as it stands; closeness is that of its classes to the table itself.

    `person` names the column that tells people apart, where models count people.
    """
    about = tuple(dict.fromkeys(str(spec.options["column"]) for spec in models if "column" in spec.options))
    everyone = None if person is None else rows[person]
    whole = {name: count_values(rows[name], everyone) for name in about}
    people = None if population is None else _count_cells(population, quasi_identifiers)
    claim = Claim(
        dict.fromkeys(rows.column_names),
        quasi_identifiers=quasi_identifiers,
        sensitive=about,
        models=models,
        whole=whole,
        trees=trees or {},
        population=people,
        people=None if everyone is None else count_people(rows.select(quasi_identifiers), rows.select(about), everyone),
    )
    return certify(rows, claim).measured.properties or []


def _count_cells(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return rows.group_by(list(names)).aggregate([([], "count_all")]).rename_columns([*names, COUNT])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Histogram:
    """A sensitive column by classes: entries of (class, value, rows), and the values by number."""

    owner: Counts
    value: Counts
    rows: Counts
    texts: list[str | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Classes:
    """The classes of a release: their cells, their sizes, and their sensitive values."""

    cells: pa.Table
    sizes: Counts
    values: Mapping[str, Histogram]

    def select(self, kept: NDArray[np.bool_]) -> Classes:
        """Some of the classes."""
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        values = {}
        for name, held in self.values.items():
            there = kept[held.owner]
            owner, value, rows = held.owner[there], held.value[there], held.rows[there]
            values[name] = Histogram(place[owner], value, rows, held.texts)
        return Classes(self.cells.filter(pa.array(kept)), self.sizes[kept], values)


class _Cells:
    """Counts the combinations of cells of rows that come in parts."""

    def __init__(self, known: list[str], sensitive: list[str], counts: str | None) -> None:
        self.known, self.sensitive, self.counts = known, sensitive, counts
        self.rows = 0
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.Table) -> None:
        ones = pa.array(np.ones(batch.num_rows, np.int64)) if self.counts is None else None
        weight = pc.cast(batch[self.counts], pa.int64()) if ones is None else ones
        self.rows += int(pc.sum(weight).as_py() or 0)
        named = [name for name in dict.fromkeys((*self.known, *self.sensitive)) if name in batch.column_names]
        if named and batch.num_rows:
            self._parts.append(_sum_rows(batch.select(named).append_column(COUNT, weight), named)[0])

    def collect(self) -> Classes:
        """The classes of all parts together."""
        known = [name for name in self.known if all(name in part.column_names for part in self._parts)]
        if not self._parts or not known:
            return Classes(pa.table({}), np.zeros(0, np.int64), {})
        every = pa.concat_tables(self._parts)
        classes, owner = _sum_rows(every, known)
        weight = every[COUNT].to_numpy().astype(np.int64)
        values = {name: _tally(every[name], owner, weight) for name in self.sensitive if name in every.column_names}
        return Classes(classes.select(known), classes[COUNT].to_numpy().astype(np.int64), values)


def _sum_rows(rows: pa.Table, named: list[str]) -> tuple[pa.Table, Counts]:
    """Each combination of these columns once, with the sum of its counts; and which of them every row has."""
    owner = pack_codes(encode_combinations([rows], named, missing=True)[0])
    weight = rows[COUNT].to_numpy().astype(np.int64)
    many = int(owner.max(initial=-1)) + 1
    first, counts = np.empty(many, np.int64), np.zeros(many, np.int64)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    np.add.at(counts, owner, weight)
    return rows.select(named).take(pa.array(first)).append_column(COUNT, pa.array(counts)), owner


def _find_rows(cells: pa.Table, among: pa.Table) -> Counts:
    """The place of every row among distinct rows; -1 where it is none of them."""
    keys = np.zeros((cells.num_rows, among.num_columns), np.int64)
    known = np.zeros((among.num_rows, among.num_columns), np.int64)
    for q, name in enumerate(among.column_names):
        texts = pc.unique(among[name])
        keys[:, q], known[:, q] = index_of(cells[name], texts), index_of(among[name], texts)
    place = {tuple(row): i for i, row in enumerate(known.tolist())}
    return np.fromiter((place.get(tuple(row), -1) for row in keys.tolist()), np.int64, len(keys))


def _tally(cells: pa.ChunkedArray, owner: Counts, weight: Counts) -> Histogram:
    column = write_values(cells)
    texts = pc.unique(column)
    value = index_of(column, texts)
    keys, place = np.unique(owner * max(len(texts), 1) + value, return_inverse=True)
    rows = np.bincount(place, weights=weight, minlength=len(keys)).astype(np.int64)
    return Histogram(keys // max(len(texts), 1), keys % max(len(texts), 1), rows, texts.to_pylist())


def _part_stars(classes: Classes, claim: Claim) -> tuple[Counts, Classes]:
    """The sizes of the classes of suppressed rows, at most one, and all other classes."""
    if not claim.starred or not classes.cells.num_columns:
        return np.zeros(0, np.int64), classes
    star = np.ones(len(classes.sizes), np.bool_)
    for name in classes.cells.column_names:
        ends = name.endswith(("_low", "_high")) and name not in claim.columns
        cells = classes.cells[name]
        star &= (pc.is_null(cells) if ends else pc.fill_null(pc.equal(cells, STAR), False)).to_numpy()
    for held in classes.values.values():
        shown = np.array([text is not None for text in held.texts], np.bool_)[held.value]
        star[held.owner[shown]] = False
    return classes.sizes[star], classes.select(~star)


def _compare_stars(stars: Counts, claim: Claim) -> list[str]:
    if not claim.starred or int(stars.sum()) == claim.suppressed:
        return []
    return ["the rows that stay as * are not those that were suppressed"]


def _compare_values(classes: Classes, claim: Claim) -> list[str]:
    """No sensitive value may occur more often than in the whole table."""
    broken = []
    for name, whole in claim.whole.items():
        held = classes.values.get(name)
        most = _count_whole(whole)
        rows = np.bincount(held.value, weights=held.rows, minlength=len(held.texts)) if held else ()
        if held and any(count > most.get(text, 0) for text, count in zip(held.texts, rows, strict=True)):
            broken.append(f"values of column '{name}' occur more often than in the table")
    return broken


def _measure_property(spec: Spec, classes: Classes, stars: Counts, claim: Claim) -> MeasuredProperty:
    words = {name: str(value) for name, value in spec.options.items()}
    measured, holds = MEASURES[spec.kind](spec.options, classes, stars, claim)
    note = None if measured is not None or len(classes.sizes) else "every row was suppressed: none shows a value"
    return MeasuredProperty(spec.kind.replace("_", "-"), words, measured, holds, note)


Options = Mapping[str, Any]
Measured = tuple[float | None, bool]


def _number(options: Options, name: str, otherwise: float = 0.0) -> float:
    return float(options.get(name, otherwise))


def _flag(options: Options, name: str) -> bool:
    return str(options.get(name, False)).lower() in ("true", "yes", "1")


def _measure_k(options: Options, classes: Classes, stars: Counts, claim: Claim) -> Measured:
    if "person" in options:
        return _measure_people(options, classes, claim)
    sizes = np.concatenate([classes.sizes, stars])
    least = int(sizes.min()) if len(sizes) else None
    return least, least is None or least >= math.ceil(_number(options, "k"))


def _histogram(options: Options, classes: Classes, claim: Claim) -> Histogram:
    empty, column = np.zeros(0, np.int64), str(options["column"])
    if "person" in options and len(classes.sizes):
        held = find_holders(classes, claim, column)
        return held.weigh(claim.whole[column])
    return classes.values.get(column, Histogram(empty, empty, empty, []))


def _group(options: Options, classes: Classes, claim: Claim) -> Iterator[tuple[list[str | None], NDArray[np.float64]]]:
    """The values of each class, and how many rows have them, or how many parts of people."""
    held = _histogram(options, classes, claim)
    order = np.argsort(held.owner, kind="stable")
    cuts = np.flatnonzero(np.diff(held.owner[order])) + 1
    for part in np.split(order, cuts) if len(order) else ():
        yield [held.texts[v] for v in held.value[part]], held.rows[part].astype(np.float64)


def _group_known(options: Options, classes: Classes, claim: Claim) -> Iterator[NDArray[np.float64]]:
    """How many rows of each class have each known value; those without one have the commonest."""
    for values, rows in _group(options, classes, claim):
        known = rows[[value is not None for value in values]]
        if len(known):
            known[known.argmax()] += rows.sum() - known.sum()
        yield known if len(known) else rows


def _worst(
    figures: Iterator[float], choose: Callable[[list[float]], float], holds: Callable[[float], bool]
) -> Measured:
    every = list(figures)
    if not every:
        return None, True
    worst = choose(every)
    return (worst if math.isfinite(worst) else None), holds(worst)


def _measure_distinct(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    if "person" in options and len(classes.sizes):
        values = find_holders(classes, claim, str(options["column"])).match()
    else:
        values = (len(rows) for rows in _group_known({"column": options["column"]}, classes, claim))
    return _worst(map(float, values), min, lambda least: least >= math.ceil(_number(options, "l")))


def _measure_entropy(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    shares = (rows / rows.sum() for rows in _group_known(options, classes, claim))
    figures = (math.exp(-float((p * np.log(p)).sum())) for p in shares)
    return _worst(figures, min, lambda least: least >= _number(options, "l") * (1 - SLACK))


def _measure_recursive(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    place = math.ceil(_number(options, "l")) - 1

    def compare(rows: NDArray[np.float64]) -> float:
        falling = sorted(rows.tolist(), reverse=True)
        rest = sum(falling[place:])
        return falling[0] / rest if rest else math.inf

    figures = (compare(rows) for rows in _group_known(options, classes, claim))
    return _worst(figures, max, lambda most: most < _number(options, "c"))


def _shares(options: Options, claim: Claim) -> tuple[list[str | None], NDArray[np.float64]]:
    """The values of the whole table in their order, and their shares."""
    whole = claim.whole[str(options["column"])]
    counts = _count_whole(whole, weigh_rows(whole) if "person" in options else None)
    rows = np.array(list(counts.values()), np.float64)
    return list(counts), rows / max(rows.sum(), 1.0)


def _count_whole(whole: pa.Table, weights: Mapping[int, int] | None = None) -> dict[str | None, int]:
    """How often each value occurs in the whole table, or how many parts of people have it, in the order of values."""
    counts: dict[str | None, int] = {}
    rows = whole["count"].to_pylist()
    if weights is not None:
        rows = [count * weights[of] for count, of in zip(rows, whole[OF].to_pylist(), strict=True)]
    for text, count in zip(write_values(whole["value"]).to_pylist(), rows, strict=True):
        counts[text] = counts.get(text, 0) + count
    return {text: counts[text] for text in sorted(counts, key=lambda text: text is None)}


def _compare_with_whole(
    options: Options, classes: Classes, claim: Claim
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """For each class the shares of all values of the table, in the class and in the table."""
    texts, whole = _shares(options, claim)
    place = {text: i for i, text in enumerate(texts)}
    for values, rows in _group(options, classes, claim):
        own = np.zeros(len(texts))
        own[[place[value] for value in values if value in place]] = (
            rows[[value in place for value in values]] / rows.sum()
        )
        yield own, whole


def _measure_closeness(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    distance = str(options.get("distance", "equal"))
    texts, _ = _shares(options, claim)
    tree = _spell_tree(claim.trees.get(str(options["column"]), {}))
    levels = _read_levels(texts, tree) if distance == "hierarchical" else []

    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        if distance == "ordered":
            return float(np.abs(np.cumsum(own - whole)).sum() / (len(own) - 1)) if len(own) > 1 else 0.0
        steps = levels or [np.arange(len(own))]
        return float(sum(np.abs(np.bincount(at, own - whole)).sum() / 2 for at in steps)) / len(steps)

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most <= _number(options, "t") + SLACK)


def _spell_tree(tree: Ancestors) -> Ancestors:
    """The groups of values as they are told apart: of several spellings the first in their order decides."""
    texts = sorted(tree, key=lambda text: (text is None, text or ""), reverse=True)
    spelled = write_values(pa.chunked_array([texts], pa.string())).to_pylist()
    return {one: tree[text] for one, text in zip(spelled, texts, strict=True)}


def _read_levels(texts: list[str | None], tree: Ancestors) -> list[Counts]:
    """The group of each value at each level of its tree but the last, in which all values are one."""
    height = max((len(tree[text]) for text in texts if text in tree), default=1)
    levels = []
    for level in range(max(height - 1, 1)):
        labels = [tree[text][level] if text in tree else text for text in texts]
        number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        levels.append(np.array([number[label] for label in labels], np.int64))
    return levels


def _measure_disclosure(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        if _flag(options, "absent_violates") and bool(((own == 0) & (whole > 0)).any()):
            return math.inf
        there = own > 0
        return float(np.abs(np.log2(own[there] / whole[there])).max())

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most < _number(options, "delta"))


def _measure_likeness(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    beta = _number(options, "beta")

    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        there = own > 0
        gain = own[there] / whole[there] - 1
        allowed = np.minimum(beta, -np.log(whole[there])) if _flag(options, "enhanced") else beta
        return float((gain - allowed).max()) + beta

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most <= beta + SLACK)


def _count_people(classes: Classes, claim: Claim) -> tuple[Counts, bool]:
    """The people of the population in each class, and whether some are in no class of the release."""
    people = claim.population
    if people is None:
        return np.zeros(len(classes.sizes), np.int64), True
    names = classes.cells.column_names
    cells = pa.table({name: write_texts(people[name]) for name in names})
    place = _find_rows(cells, classes.cells)
    weight = people[COUNT].to_numpy().astype(np.int64)
    inside = place >= 0
    counts = np.bincount(place[inside], weights=weight[inside], minlength=len(classes.sizes)).astype(np.int64)
    return counts, bool((~inside).any())


def _measure_map(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    people, _ = _count_people(classes, claim)
    return _worst(iter(people.astype(float).tolist()), min, lambda least: least >= math.ceil(_number(options, "k")))


def _measure_presence(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    """The largest share of people who are in the table; the smallest must hold, too."""
    people, outside = _count_people(classes, claim)
    shares = np.where(people > 0, classes.sizes / np.maximum(people, 1), math.inf)
    least = 0.0 if outside and not claim.suppressed else float(shares.min(initial=1.0))
    most, holds = _worst(iter(shares.tolist()), max, lambda most: most <= _number(options, "most", 1.0) + SLACK)
    return most, holds and (not len(shares) or least >= _number(options, "least") - SLACK)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Holders:
    """Who has which value of a sensitive column in each class: entries of (class, value, person), in rows."""

    owner: Counts
    value: Counts
    person: Counts
    of: Counts
    rows: Counts
    texts: list[str | None]

    def weigh(self, whole: pa.Table) -> Histogram:
        """The values of each class in parts of people."""
        weights = weigh_rows(whole)
        parts = np.array([weights[of] for of in self.of.tolist()], np.int64) * self.rows
        many = max(len(self.texts), 1)
        keys, place = np.unique(self.owner * many + self.value, return_inverse=True)
        summed = np.bincount(place, weights=parts, minlength=len(keys)).astype(np.int64)
        return Histogram(keys // many, keys % many, summed, self.texts)

    def match(self) -> Iterator[int]:
        """For each class, how many of its people have different values, one each."""
        held: dict[int, dict[int, set[int]]] = {}
        for owner, value, person in zip(self.owner.tolist(), self.value.tolist(), self.person.tolist(), strict=True):
            having = held.setdefault(owner, {})
            if self.texts[value] is not None:
                having.setdefault(value, set()).add(person)
        for having in held.values():
            taken: dict[int, int] = {}
            found = (_find_person(v, having, taken, set()) for v in sorted(having, key=lambda v: len(having[v])))
            yield max(sum(found), 1)


def _find_person(value: int, having: Mapping[int, set[int]], taken: dict[int, int], seen: set[int]) -> bool:
    """Whether one more value finds a person, who may leave another value to somebody else."""
    free = next((person for person in having[value] if person not in taken), None)
    if free is not None:
        taken[free] = value
        return True
    for person in having[value] - seen:
        if person in seen:
            continue
        seen.add(person)
        if _find_person(taken[person], having, taken, seen):
            taken[person] = value
            return True
    return False


def find_holders(classes: Classes, claim: Claim, column: str | None = None) -> Holders:
    """Who has the rows of each class; where they are not the rows that were written, nobody has them."""
    known, none = claim.people, np.zeros(0, np.int64)
    if known is None:
        return Holders(none, none, none, none, none, [])
    place = _find_rows(known.select(classes.cells.column_names), classes.cells)
    there = place >= 0
    owner = place[there]
    person, of, rows = (known[name].to_numpy()[there].astype(np.int64) for name in (PERSON, OF, COUNT))
    told = classes.values.get(column) if column is not None else None
    texts: list[str | None] = [] if told is None else told.texts
    value = np.zeros_like(owner)
    if column is not None:
        value = index_of(known[column].filter(pa.array(there)), pa.array(texts, pa.string()))
    return Holders(owner, value, person, of, rows, texts)


def _compare_people(classes: Classes, claim: Claim) -> list[str]:
    """The rows that people are counted with must be those that were written, and have their values."""
    if claim.people is None or not len(classes.sizes):
        return []
    held = find_holders(classes, claim)
    counted = np.bincount(held.owner, weights=held.rows, minlength=len(classes.sizes))
    broken = [] if (counted == classes.sizes).all() else ["the rows whose people were counted are not those written"]
    for name, told in classes.values.items():
        if name in claim.people.column_names:
            held, many = find_holders(classes, claim, name), max(len(told.texts), 1)
            cells = np.bincount(held.owner * many + held.value, weights=held.rows, minlength=len(classes.sizes) * many)
            same = (held.value >= 0).all() and (cells[told.owner * many + told.value] == told.rows).all()
            broken += [] if same else [f"the people of column '{name}' were counted with other values"]
    return broken


def _measure_people(options: Options, classes: Classes, claim: Claim) -> Measured:
    """The fewest people in a class."""
    if not len(classes.sizes):
        return None, True
    held = find_holders(classes, claim)
    pairs = np.unique(np.column_stack([held.owner, held.person]), axis=0)
    least = int(np.bincount(pairs[:, 0], minlength=len(classes.sizes)).min())
    return least, least >= math.ceil(_number(options, "k"))


def _measure_average(options: Options, classes: Classes, _stars: Counts, _claim: Claim) -> Measured:
    rows = int(classes.sizes.sum())
    most = _number(options, "risk", _number(options, "most"))
    return (len(classes.sizes) / rows, len(classes.sizes) <= most * rows * (1 + SLACK)) if rows else (None, True)


MEASURES: Mapping[str, Callable[[Options, Classes, Counts, Claim], Measured]] = {
    "k_anonymity": _measure_k,
    "k_map": _measure_map,
    "distinct_diversity": _measure_distinct,
    "entropy_diversity": _measure_entropy,
    "recursive_diversity": _measure_recursive,
    "closeness": _measure_closeness,
    "delta_presence": _measure_presence,
    "delta_disclosure": _measure_disclosure,
    "beta_likeness": _measure_likeness,
    "average_risk": _measure_average,
}
"""How each model is measured, by the name under which a policy knows it."""
