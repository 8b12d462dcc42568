"""Ratings: a handful of dated opinions finds one record among millions (Narayanan and Shmatikov 2008).

The inner loops are compiled: ratings sorted by item, and every record scored against the facts known of each target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numba as nb
import numpy as np
from numpy.typing import NDArray

from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError

RATING_SCALE, DAY_SCALE = 1.5, 30.0  # as published by Narayanan and Shmatikov


@nb.njit(cache=True, nogil=True)
def sort_by_item(item, starts):  # type: ignore[no-untyped-def]
    """Places in the order of items (counting sort: a hundred million ratings need no comparison)."""
    free = starts[:-1].copy()
    order = np.empty(len(item), np.int64)
    for i in range(len(item)):
        order[free[item[i]]] = i
        free[item[i]] += 1
    return order


@nb.njit(cache=True, nogil=True)
def score_targets(  # type: ignore[no-untyped-def]
    starts, person, rating, day, weight,
    target, item, stars, when,
    days, reach, needed,
    scores, hits, best, lead, absent,
):  # fmt: skip
    """Fill best, lead and absent for each target; `scores` and `hits` are working space of one number a person."""
    people = len(scores)
    for t in range(len(target)):
        scores[:] = 0.0
        hits[:] = 0
        for f in range(item.shape[1]):
            if item[t, f] < 0:
                continue
            for p in range(starts[item[t, f]], starts[item[t, f] + 1]):
                apart = abs(rating[p] - stars[t, f])
                if apart > reach:
                    continue
                gain = np.exp(-apart / RATING_SCALE)
                if days >= 0:
                    distance = abs(day[p] - when[t, f])
                    if distance > days:
                        continue
                    gain += np.exp(-distance / DAY_SCALE)
                scores[person[p]] += weight[item[t, f]] * gain
                hits[person[p]] += 1
        deviation = scores.std()
        if deviation == 0:
            continue
        first, second, third = -1, -1, -1
        for p in range(people):
            if hits[p] < needed:
                continue
            if first < 0 or scores[p] > scores[first]:
                first, second, third = p, first, second
            elif second < 0 or scores[p] > scores[second]:
                second, third = p, second
            elif third < 0 or scores[p] > scores[third]:
                third = p
        best[t] = first
        if first >= 0:
            lead[t] = (scores[first] - (scores[second] if second >= 0 else 0.0)) / deviation
        up, down = first, second
        if first == target[t]:
            up, down = second, third
        elif second == target[t]:
            down = third
        if up >= 0:
            absent[t] = (scores[up] - (scores[down] if down >= 0 else 0.0)) / deviation


ECCENTRICITY = 1.5
EVER = 2**31
"""More days apart than any two are."""
_STEP = 64


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """Sparse dated records, by item: who rated it, how, on which day. People and items are numbered from 0."""

    starts: NDArray[np.int64]
    person: NDArray[np.int32]
    rating: NDArray[np.float32]
    day: NDArray[np.int32]
    people: int

    @property
    def items(self) -> int:
        """How many items there are."""
        return len(self.starts) - 1

    @classmethod
    def of(
        cls, person: NDArray[np.int64], item: NDArray[np.int64], rating: NDArray[np.float64], day: NDArray[np.int64]
    ) -> Records:
        """From columns whose people and items are numbered from 0 without gaps."""
        if len({len(part) for part in (person, item, rating, day)}) != 1:
            raise ParameterError("The columns of the ratings are not of one length")
        items, people = int(item.max(initial=-1)) + 1, int(person.max(initial=-1)) + 1
        starts = np.concatenate([[0], np.cumsum(np.bincount(item, minlength=items))]).astype(np.int64)
        order = sort_by_item(item.astype(np.int32), starts)
        return cls(starts, person[order].astype(np.int32), rating[order].astype(np.float32),
                   day[order].astype(np.int32), people)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Facts:
    """What the intruder knows of some targets: one row a target, one column a fact; an item of -1 is no fact."""

    target: NDArray[np.int64]
    item: NDArray[np.int64]
    rating: NDArray[np.float32]
    day: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Knowledge:
    """How much an intruder knows: so many items, some of them wrong, days and ratings within limits.

    `days` None means that dates are not known at all; `unpopular` asks that many of the known items be outside the
    `popular` most rated ones.
    """

    facts: int = 8
    wrong: int = 2
    days: int | None = 14
    stars: float = 0.0
    unpopular: int = 0
    popular: int = 500

    def __post_init__(self) -> None:
        if not 0 <= self.wrong <= self.facts or self.facts < 1:
            raise ParameterError(
                f"{self.wrong} of {self.facts} facts are wrong", expected="0 <= wrong <= facts, facts >= 1"
            )


def draw_facts(records: Records, knowledge: Knowledge, targets: int, seed: int = 0) -> Facts:
    """Facts about people drawn at random among those with enough ratings, blurred and partly wrong as asked."""
    generator = np.random.default_rng(seed)
    right = knowledge.facts - knowledge.wrong
    own, first = _sort_by_person(records)
    counts = np.diff(first)
    able = np.flatnonzero(counts >= max(1, right))
    chosen = np.sort(generator.choice(able, min(targets, len(able)), replace=False)) if len(able) else able
    popularity = np.argsort(np.argsort(-np.diff(records.starts), kind="stable"), kind="stable")
    shape = (len(chosen), knowledge.facts)
    item, place = np.full(shape, -1, np.int64), np.zeros(shape, np.int64)
    for row, person in enumerate(chosen):
        mine = own[first[person] : first[person + 1]]
        taken = _pick(
            generator, mine, popularity[_items_of(records, mine)] >= knowledge.popular, right, knowledge.unpopular
        )
        place[row, :right], item[row, :right] = taken, _items_of(records, taken)
    lie = np.s_[:, right:]
    if records.items:
        place[lie] = generator.integers(0, max(1, len(records.person)), item[lie].shape)
        item[lie] = generator.integers(0, records.items, item[lie].shape)
    rating = records.rating[place] + np.round(generator.uniform(-knowledge.stars, knowledge.stars, shape))
    blur = 0 if knowledge.days is None else knowledge.days
    day = records.day[place].astype(np.int64) + generator.integers(-blur, blur + 1, shape)
    return Facts(chosen.astype(np.int64), item, rating.astype(np.float32), day)


def _pick(
    generator: np.random.Generator,
    mine: NDArray[np.int64],
    rare: NDArray[np.bool_],
    count: int,
    unpopular: int,
) -> NDArray[np.int64]:
    """So many of a person's ratings, as many as possible of the wanted unpopular ones first."""
    shuffled = generator.permutation(len(mine))
    preferred = shuffled[rare[shuffled]][:unpopular]
    rest = shuffled[~np.isin(shuffled, preferred)]
    return np.asarray(mine[np.concatenate([preferred, rest])[:count]], np.int64)


def _sort_by_person(records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    order = np.argsort(records.person, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(records.person, minlength=records.people))])
    return order, first.astype(np.int64)


def _items_of(records: Records, places: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.asarray(np.searchsorted(records.starts, places, side="right") - 1, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Scoreboard:
    """For each target the best record, by how many deviations it leads, and the lead when its own record is absent."""

    best: NDArray[np.int64]
    lead: NDArray[np.float64]
    absent_lead: NDArray[np.float64]


def score_records(
    records: Records,
    facts: Facts,
    *,
    needed: int = 1,
    days: int | None = 14,
    stars: float = 0.0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Scoreboard:
    """Score every record against the facts: similar ratings of rare items, on close days, weigh most.

    An item in s records weighs 1/ln(s + 1). A fact adds its weight times exp(-|stars apart|/1.5) and, where days are
    known, exp(-|days apart|/30); one that is further off than the intruder allows for adds nothing. Records that agree
    with fewer than `needed` facts are out: the intruder knows how many of the facts are right.
    """
    weight = 1 / np.log1p(np.maximum(1, np.diff(records.starts)))
    count = len(facts.target)
    best, lead, absent = np.full(count, -1, np.int64), np.zeros(count), np.zeros(count)
    deadline, size = Deadline(seconds), max(1, records.people)
    scores, hits = np.zeros(size), np.zeros(size, np.int32)
    for start in range(0, count, _STEP):
        deadline.check()
        part = slice(start, min(count, start + _STEP))
        score_targets(
            records.starts, records.person, records.rating, records.day, weight,
            facts.target[part], facts.item[part], facts.rating[part], facts.day[part],
            -1 if days is None else days, stars + 1e-6, needed,
            scores, hits, best[part], lead[part], absent[part],
        )  # fmt: skip
        tell(progress, part.stop / count)
    return Scoreboard(best, lead, absent)


def find_by_ratings(
    records: Records,
    knowledge: Knowledge | None = None,
    *,
    targets: int = 1000,
    threshold: float = ECCENTRICITY,
    plain: bool = False,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Find people's records by a few of their ratings.

    **Scenario.** The intruder knows a few films somebody saw, roughly how they liked them and roughly when (from a
    chat, a public profile), some of it wrongly; success is that person's record.
    **Method.** The weighted scoreboard; the best record is named when it leads the second by `threshold` standard
    deviations of all scores. The `plain` score is that of Narayanan and Shmatikov, which takes every fact as it is.
    The stronger intruder also knows how many of the facts are wrong and how far off the others can be, and passes over
    records that do not fit. The control takes the target's own record out: whoever is named then is named falsely.
    **Outcome.** Targets named rightly, precision, and the false names of the control.
    """
    known = knowledge or Knowledge()
    facts = draw_facts(records, known, targets, seed)
    board = score_records(
        records,
        facts,
        needed=1 if plain else known.facts - known.wrong,
        days=EVER if plain and known.days is not None else known.days,
        stars=math.inf if plain else known.stars,
        seconds=seconds,
        progress=progress,
    )
    named = board.lead >= threshold
    right = named & (board.best == facts.target)
    count = len(facts.target)
    scenario = f"Knowing {known.facts} ratings ({known.wrong} of them wrong)"
    assumes = "nothing more (the plain score)" if plain else "how many are wrong, and how far off the others can be"
    scenario += ", by the plain score," if plain else " and how many are wrong"
    return Outcome(
        "ratings", scenario, Rate(int(right.sum()), count), 1 / records.people if records.people else 0.0,
        Rate(int((board.absent_lead >= threshold).sum()), count), Rate(int(right.sum()), int(named.sum())),
        {"assumes": assumes, "facts": known.facts, "wrong": known.wrong, "days": known.days, "people": records.people,
         "best_is_right": int((board.best == facts.target).sum())}, claimed=int(named.sum()),
    )  # fmt: skip


def sweep_facts(
    records: Records,
    facts: Sequence[int],
    *,
    wrong_share: float = 0.25,
    targets: int = 300,
    plain: bool = False,
    seed: int = 0,
    **rest: int,
) -> tuple[Outcome, ...]:
    """Share identified against the number of facts known, a quarter of them wrong."""
    known = [Knowledge(count, int(count * wrong_share), **rest) for count in facts]
    return tuple(find_by_ratings(records, each, targets=targets, plain=plain, seed=seed) for each in known)
