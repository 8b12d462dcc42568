"""Numbers that follow from stored measurements: which earlier questions answer this one, and how.

What is asked follows where its vector (`atoms`) is a combination of measured ones. Of all combinations the one with the
least noise is taken: weighted least squares over the numbers as they got their noise. The groups of a question with
other keys are conditions like others, where each unit has one row.

**Which price.** A question that follows is free where its budget is no larger than that of each that it follows from,
or where it would buy no less noise. With a larger budget it is measured anew. Its error is that of what was measured.

Nothing here reads a row: plans and noisy numbers are public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import LaplaceMechanism
from deniable.policy.budget import ZCDP, Budget, add, covers
from deniable.query.algebra.functions import test_key
from deniable.query.atoms import (
    Atoms,
    Floats,
    Number,
    Truth,
    Vector,
    View,
    count_released,
    list_asked,
    list_measured,
)
from deniable.query.canonical import find_columns
from deniable.query.execute import Noisy, NoisyResults, Reader, read_public_keys
from deniable.query.joint import LARGEST, reconstruct, solve_block
from deniable.query.keys import PublicKeys
from deniable.query.measurements import Ordered, Rows, Total, Units
from deniable.query.plan import Mixture, NodePlan, Placed, QueryPlan, Step, deviation

Groups = list[tuple[Any, ...]]
MOST_NUMBERS = 2_000
"""Measured numbers, over all groups, that a question may be computed from."""
MOST_ENTRIES = 4_000_000
"""Entries of the matrix of measured and asked numbers over atoms."""
TOLERANCE = 1e-8
"""What rounding may leave of a vector that is a combination of others."""
SAME = 1e-6
"""What rounding may do to a deviation."""
ALPHAS = (0.5, 0.1, 0.05, 0.01, 1e-4)
"""Where errors are compared: the chances with which they are passed."""
MOST_TRIED = 16
"""Stored questions, alone or together, that are looked at closely: it takes time, and that is the asker's."""
MOST_TOGETHER = 8
"""Stored questions that one is computed from together."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What one question measured: its plan, its noisy numbers under the plan's names, and its release."""

    plan: QueryPlan
    measured: NoisyResults
    release: str
    time: datetime
    cost: Budget


@dataclass(frozen=True, slots=True)
class Derived:
    """A question as it follows from stored measurements: with their errors, at the price that was paid for them."""

    plan: QueryPlan
    measured: NoisyResults
    sources: tuple[Stored, ...]


# -- combinations ------------------------------------------------------------------------------------------------------


def _combine(numbers: Sequence[Number], asked: Sequence[Vector], *, alone: bool) -> Floats | None:
    """What each asked vector takes of each measured number, with the least noise; None where one does not follow.

    What one question `alone` said is taken as it was said.
    """
    own = [i for i, each in enumerate(numbers) if not each.computed]
    found = _solve([numbers[i] for i in own], asked)
    if found is None:
        return None
    taken = np.zeros((len(asked), len(numbers)))
    taken[:, own] = found
    said = dict[Any, int]()
    for i, each in enumerate(numbers if alone else ()):
        if each.placed is not None:
            said.setdefault(_name_vector(each.vector), i)
    for place, vector in enumerate(asked if said else ()):
        if (first := said.get(_name_vector(vector))) is not None:
            taken[place], taken[place, first] = 0.0, 1.0
    return taken


def _name_vector(vector: Vector) -> frozenset[tuple[Any, bytes]]:
    return frozenset((key, (part + 0.0).tobytes()) for key, part in vector.items())  # zero has one sign


def _solve(numbers: Sequence[Number], asked: Sequence[Vector]) -> Floats | None:
    measured, noise = [each.vector for each in numbers], np.array([each.deviation for each in numbers])
    keys = list(dict.fromkeys(key for vector in (*measured, *asked) for key in vector))
    if not keys or not measured:
        return None
    empty = np.zeros(len(next(part for vector in measured for part in vector.values())))
    if len(keys) * len(empty) * (len(measured) + len(asked)) > MOST_ENTRIES:
        return None
    both = np.array([np.concatenate([vector.get(key, empty) for key in keys]) for vector in (*measured, *asked)])
    both = np.unique(both, axis=1)
    given, wanted = both[: len(measured)], both[len(measured) :]
    taken: Floats = np.linalg.lstsq((given / noise[:, None]).T, wanted.T, rcond=1e-12)[0].T / noise
    size = np.abs(wanted).max(axis=1, initial=0.0)
    taken[np.abs(taken) * np.abs(given).max(axis=1) < TOLERANCE * size[:, None]] = 0.0
    near = np.rint(taken)
    taken = np.where(np.abs(taken - near) < TOLERANCE * np.abs(near), near, taken)
    left = np.abs(taken @ given - wanted).max(axis=1, initial=0.0)
    if np.any(left > TOLERANCE * size):
        return None
    return taken


@dataclass(frozen=True, slots=True)
class _Given:
    """A measured number with its values: one for each group of what is asked, or the one of a group of its own."""

    number: Number
    values: NDArray[Any]
    source: Stored
    ranks: tuple[NDArray[Any], ...] = ()
    """The further ranks of one that was measured at several."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A grouping set as it follows: with its errors, its numbers, and what they were taken from."""

    step: Step
    noisy: Noisy
    sources: tuple[Stored, ...]


def _place(own: Placed, given: Sequence[_Given], taken: Floats) -> Placed:
    """A measurement with the error of the combination that it follows by."""
    used = [(given[i].number, float(taken[i])) for i in np.flatnonzero(taken).tolist()]
    if not used:
        return replace(own, mixed=Mixture(0.0))
    first, part = used[0]
    if len(used) == 1 and part == 1 and first.placed is not None:
        return replace(first.placed, column=own.column, measurement=own.measurement, share=own.share)
    named = next((each for each, _ in used if isinstance(each.mechanism, LaplaceMechanism)), first)
    unit = deviation(named.mechanism) / named.sensitivity.parts or 1e-9
    squares = sum((part * each.deviation / unit) ** 2 for each, part in used)
    only = part if len(used) == 1 and first.placed is None else None
    return Placed(own.column, own.measurement, named.sensitivity, named.mechanism, own.share, Mixture(squares, only))


def _add_up(given: Sequence[_Given], taken: Floats) -> NDArray[np.int64]:
    """A combination of measured numbers in whole steps; one number alone is taken as it is."""
    used: list[int] = np.flatnonzero(taken).tolist()
    if len(used) == 1 and taken[used[0]] == 1 and given[used[0]].number.scale == 1:
        return np.asarray(given[used[0]].values, dtype=np.int64)
    parts = [taken[i] / given[i].number.scale * given[i].values.astype(np.float64) for i in used]
    whole: NDArray[np.int64] = np.rint(np.clip(sum(parts, np.zeros(len(given[0].values))), -LARGEST, LARGEST)).astype(
        np.int64
    )
    return whole


def _finish(view: View, keys: pa.Table, given: Sequence[_Given], taken: Sequence[Floats]) -> _Found:
    """A grouping set from the numbers that it takes: by one combination for all groups, or by one for each."""
    step, alike = view.step, len(given[0].values) != 1 or len(taken) == 1
    columns, ranks = list[NDArray[Any]](), list[NDArray[Any]]()
    for place, measurement in enumerate(view.measurements):
        parts = [_add_up(given, each[place]) for each in taken]
        columns.append(parts[0] if alike else np.concatenate(parts))
        if isinstance(measurement, Ordered):
            ranks += given[int(np.flatnonzero(taken[0][place])[0])].ranks
    placed = tuple(
        max((_place(own, given, each[place]) for each in taken), key=lambda made: made.deviation)
        for place, own in enumerate(step.placed)
    )
    used = np.any(np.concatenate(taken) != 0, axis=0)
    sources = {id(each.source): each.source for each, yes in zip(given, used, strict=True) if yes}
    made = replace(step, placed=placed, joints=(), counted_by_threshold=None)
    return _Found(made, Noisy(keys, (*columns, *ranks)), tuple(sources.values()))


Source = tuple[View, Stored]


def _read_keys(keys: pa.Table, names: Sequence[str]) -> Groups:
    """The keys of each group; without keys there is one."""
    return list(zip(*(keys.column(name).to_pylist() for name in names), strict=True)) if names else [()]


def _follow_alike(view: View, sources: Sequence[Source], reader: Reader) -> _Found | None:
    """A grouping set from others with the same keys: every group in the same way."""
    atoms = Atoms(each for other in (view, *(other for other, _ in sources)) for each in other.conditions)
    if not atoms.usable:
        return None
    numbers = [list(list_measured(other, atoms)) for other, _ in sources]
    measured_numbers = [each for some in numbers for each in some]
    taken = _combine(measured_numbers, list_asked(view, atoms), alone=len(sources) == 1)
    if taken is None:
        return None
    names, given = [f"k{i}" for i in view.step.places], list[_Given]()
    orders = [[f"k{other.step.places[other.keys.index(key)]}" for key in view.keys] for other, _ in sources]
    measured = [stored.measured[other.node.node.name][other.place] for other, stored in sources]
    if isinstance(view.step.keys, PublicKeys):
        keys = read_public_keys(view.step, reader)
    elif len(sources) == 1 and np.array_equal(atoms.test(view.where), atoms.test(sources[0][0].where)):
        keys = measured[0].keys.select(orders[0]).rename_columns(names)  # those that were found to be shown
    else:
        return None
    wanted = _read_keys(keys, names)
    for (other, stored), some, noisy, order in zip(sources, numbers, measured, orders, strict=True):
        known = {key: i for i, key in enumerate(_read_keys(noisy.keys, order))}
        if not all(key in known for key in wanted):
            return None
        at, columns = np.array([known[key] for key in wanted], dtype=np.int64), find_columns(other.node.measurements)
        for number in some:
            ranks = () if number.placed is None else tuple(noisy.values[i][at] for i in columns[number.column][1:])
            given.append(_Given(number, noisy.values[number.column][at], stored, ranks))
    return _finish(view, keys, given, [taken])


def _follow_groups(view: View, sources: Sequence[Source], reader: Reader) -> _Found | None:
    """A grouping set from others with other keys: each group is a condition."""
    views = [view, *(other for other, _ in sources)]
    if not all(each.single and each.listed and _is_linear(each) for each in views):
        return None
    keys = read_public_keys(view.step, reader)
    wanted = _read_keys(keys, [f"k{i}" for i in view.step.places])
    groups: list[tuple[View, Groups]] = [(view, wanted)]
    for other, stored in sources:
        noisy = stored.measured[other.node.node.name][other.place]
        groups.append((other, _read_keys(noisy.keys, [f"k{i}" for i in other.step.places])))
    if sum(len(known) for _, known in groups) > MOST_NUMBERS:
        return None
    written = {(each, value): test_key(each, value) for other, known in groups for group in known
               for each, value in zip(other.keys, group, strict=True)}  # fmt: skip
    atoms = Atoms([*written.values(), *(each for other in views for each in other.conditions)])
    if not atoms.usable:
        return None

    def within(other: View, group: tuple[Any, ...]) -> Truth:
        held = np.full(atoms.count, True)
        for each, value in zip(other.keys, group, strict=True):
            held &= atoms.test(written[each, value])
        return held

    given = list[_Given]()
    for (other, known), (_, stored) in zip(groups[1:], sources, strict=True):
        noisy, numbers = stored.measured[other.node.node.name][other.place], list(list_measured(other, atoms))
        if sum(not each.computed for each in numbers) * len(known) > MOST_NUMBERS:
            return None
        for place, group in enumerate(known):
            held = within(other, group)
            for each in numbers:
                narrowed = replace(each, vector=_narrow(each.vector, held))
                given.append(_Given(narrowed, noisy.values[each.column][place : place + 1], stored))
    asked, taken = list_asked(view, atoms), list[Floats]()
    for group in wanted:
        held = within(view, group)
        wanted_here = [_narrow(vector, held) for vector in asked]
        part = _combine([one.number for one in given], wanted_here, alone=len(sources) == 1)
        if part is None:
            return None
        taken.append(part)
    return _finish(view, keys, given, taken) if taken else None


def _narrow(vector: Vector, held: Truth) -> Vector:
    return {key: part * held for key, part in vector.items()}


def _is_linear(view: View) -> bool:
    """Whether all its numbers are sums over rows."""
    linear = (isinstance(each, Rows | Units) or (isinstance(each, Total) and each.per_group is None)
              for each in view.measurements)  # fmt: skip
    return all(linear) and not view.step.limits.scaled


def _may_follow(view: View, sources: Sequence[View]) -> bool:
    """Whether all that a grouping set adds up and compares was added up and compared: the rest is not looked at."""
    if len(sources) == 1:
        (other,) = sources
        values, keyed, marks = other.values, other.keyed, other.marks
    else:
        values, keyed, marks = (frozenset[Any]().union(*each) for each in zip(
            *((other.values, other.keyed, other.marks) for other in sources), strict=True))  # fmt: skip
    if not view.values <= values or not (view.keyed <= keyed or view.listed):
        return False
    missing = view.divisions - marks  # sets know the hashes of what they hold: no expression is hashed anew
    return not missing or (bool(keyed) and all(mark[0] in keyed for mark in missing))


def _follow(view: View, sources: Sequence[Source], reader: Reader) -> _Found | None:
    same = all({*other.keys} == {*view.keys} and len(other.keys) == len(view.keys) for other, _ in sources)
    found = _follow_alike(view, sources, reader) if same else None
    return found or _follow_groups(view, sources, reader)


def _find_step(view: View, sources: Sequence[Source], reader: Reader, asked: Budget) -> _Found | None:
    """A grouping set from the first that it follows from, if that cost or tells enough; else from the first several."""
    over = [each for each in sources if each[0].base == view.base and each[0].is_public == view.is_public]
    for some in islice(_list_chances(view, over), MOST_TRIED):
        found = _follow(view, some, reader)
        if found is not None and _suffices(found, view.step, asked):
            return found
    return None


def _list_chances(view: View, sources: Sequence[Source]) -> Iterator[Sequence[Source]]:
    """What a grouping set may follow from: one that was measured, or with it the first several that tell no more apart.

    What was measured later comes later, so that the answer stays what it was.
    """
    marks, alike = {*view.needs, *view.marks}, list[Source]()
    for each in sources:
        if _may_follow(view, [each[0]]):
            yield [each]
        if each[0].keyed == view.keyed and marks.issuperset(each[0].needs) and len(alike) < MOST_TOGETHER:
            alike.append(each)
            if len(alike) > 1 and _may_follow(view, [other for other, _ in alike]):
                yield alike


def _suffices(found: _Found, step: Step, asked: Budget) -> bool:
    """Whether all that a grouping set follows from cost no less than was asked, or it errs no more than anew."""
    if _add_costs(found.sources) is None:
        return False
    if all(
        isinstance(each.cost, ZCDP) is isinstance(asked, ZCDP) and covers(each.cost, asked) for each in found.sources
    ):
        return True
    both = list(zip(found.step.placed, step.placed, strict=True))
    return all(new.accuracy(a) <= old.accuracy(a) * (1 + SAME) for new, old in both for a in ALPHAS)


def _add_costs(sources: Sequence[Stored]) -> Budget | None:
    """What several questions cost together; None where some are counted in rho and others in epsilon."""
    if not sources or len({isinstance(each.cost, ZCDP) for each in sources}) > 1:
        return None
    total = sources[0].cost
    for each in sources[1:]:
        total = add(total, each.cost)
    return total


def derive(plan: QueryPlan, asked: Sequence[View], sources: Sequence[Source], reader: Reader) -> Derived | None:
    """A question from stored measurements, earlier ones first; None where it does not follow, or asks for less noise.

    `asked` are the plan's own grouping sets. The reader is asked for public keys alone.
    """
    found = list[_Found]()
    for view in asked:
        one = _find_step(view, sources, reader, plan.cost)
        if one is None:
            return None
        found.append(one)
    used = list({id(each): each for one in found for each in one.sources}.values())
    nodes, measured, left = list[NodePlan](), NoisyResults(), iter(found)
    for node in plan.nodes:
        mine = [next(left) for _ in node.steps]
        nodes.append(replace(node, steps=tuple(each.step for each in mine)))
        measured[node.node.name] = tuple(each.noisy for each in mine)
    cost = _add_costs(used)
    return None if cost is None else Derived(replace(plan, nodes=tuple(nodes), cost=cost), measured, tuple(used))


def is_whole(plan: QueryPlan, measured: NoisyResults) -> bool:
    """Whether stored numbers are there in the order of this plan: answers follow from what was released with noise.

    Numbers may have been stored first by an equal question in other words.
    """
    for node in plan.nodes:
        for step, noisy in zip(node.steps, measured[node.node.name], strict=True):
            column = count_released(node)
            for joint in step.joints:
                size = joint.block.kinds * len(joint.strategy.matrix)
                raw = noisy.values[column : column + size]
                if len(raw) < size:
                    return False
                found = reconstruct(
                    np.stack(raw, axis=1), solve_block(joint.block, joint.strategy), joint.sensitivity.parts
                )
                both = zip(joint.block.places, found, strict=True)
                if not all(np.array_equal(noisy.values[place], each) for place, each in both):
                    return False
                column += size
    return True
