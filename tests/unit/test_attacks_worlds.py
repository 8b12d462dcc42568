"""Table reconstruction, minimality and downcoding against brute force over all small worlds."""

import itertools
from collections import Counter
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.aggregates.published_tables import Attribute, Statistic, Worlds, find_worlds
from deniable.attacks.minimality import assume_class_shares, infer_within_classes, score_beliefs
from deniable.errors import ParameterError
from every_world import infer_by_minimality

SMALL = [Attribute("age", 0, 4), Attribute("sex", 0, 1)]


def statistics_of(rows, mean=True):
    told = [Statistic({}, len(rows), "age", Decimal(f"{np.mean([r[0] for r in rows]):.1f}") if mean else None)]
    for sex in (0, 1):
        ages = sorted(r[0] for r in rows if r[1] == sex)
        if len(ages) > 1:
            told.append(Statistic({"sex": (sex, sex)}, len(ages), "age", None, Decimal(str(float(np.median(ages))))))
        else:
            told.append(Statistic({"sex": (sex, sex)}, suppressed=1))
    return told


def fits(rows, told):
    for one in told:
        inside = [r for r in rows if all(lo <= r[{"age": 0, "sex": 1}[n]] <= hi for n, (lo, hi) in one.where.items())]
        if one.count is None:
            if len(inside) > one.suppressed:
                return False
            continue
        ages = [r[0] for r in inside]
        if len(inside) != one.count:
            return False
        if one.mean is not None and abs(Decimal(sum(ages)) - one.mean * len(ages)) > Decimal("0.05") * len(ages):
            return False
        if one.median is not None and Decimal(str(float(np.median(ages)))) != one.median:
            return False
    return True


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_all_worlds_of_brute_force_are_found_and_no_others(seed):
    rng = np.random.default_rng(seed)
    rows = [(int(rng.integers(0, 5)), int(rng.integers(0, 2))) for _ in range(4)]
    told = statistics_of(rows)
    kinds = list(itertools.product(range(5), range(2)))
    every = [w for w in itertools.combinations_with_replacement(kinds, 4) if fits(w, told)]
    found = find_worlds(SMALL, told)
    assert found.complete
    assert found.found == len(every)
    common = Counter(every[0])
    for world in every[1:]:
        common &= Counter(world)
    assert Counter(found.certain) == common


def test_suppression_leaks_that_a_count_is_small():
    told = [Statistic({}, 4), Statistic({"sex": (1, 1)}, suppressed=2), Statistic({"age": (0, 3)}, suppressed=0)]
    found = find_worlds(SMALL, told)
    assert set(found.certain) == {(4, 0)}  # all are four, and at least two of them of sex 0
    assert found.found == 3


def test_statistics_that_contradict_each_other_leave_no_world():
    assert find_worlds(SMALL, [Statistic({}, 2), Statistic({"sex": (0, 0)}, 3)]).found == 0


def test_a_world_that_is_not_alone_is_not_called_so():
    found = find_worlds(SMALL, [Statistic({}, 3)], most=5)
    assert (found.found, found.complete, found.proven, found.certain) == (5, False, True, ())
    assert not found.outcome().warnings
    assert "may not be" in Worlds(1, False, ((0, 0),), 1, False).outcome().warnings[0]


def test_certain_rows_are_proven_however_many_worlds_there_are():
    """Two of age 4 follow from the sum; the other two can be anything that fits, which leaves many worlds."""
    wide = [Attribute("age", 0, 4), Attribute("town", 0, 99)]
    told = [Statistic({}, 4), Statistic({"age": (4, 4), "town": (7, 7)}, 2)]
    found = find_worlds(wide, told, most=50)
    assert (found.found, found.complete, found.proven) == (50, False, True)
    assert found.certain == ((4, 7), (4, 7))


def test_statistics_of_nothing_are_refused():
    with pytest.raises(ParameterError, match="total"):
        find_worlds(SMALL, [Statistic({"sex": (0, 0)}, 3)])
    with pytest.raises(ParameterError, match="'agee'"):
        find_worlds(SMALL, [Statistic({"agee": (0, 0)}, 3)])
    with pytest.raises(ParameterError, match="mean or median"):
        find_worlds(SMALL, [Statistic({}, 3, "", Decimal(1))])


def star_only_if_needed(world):
    """The minimal anonymizer: classes by the one quasi-identifier; if some class has one sensitive value, star all."""
    seen = {}
    for zone, ill in world:
        seen.setdefault(zone, set()).add(ill)
    diverse = all(len(ills) > 1 for ills in seen.values())
    return [(zone if diverse else "*", ill) for zone, ill in world]


PEOPLE = [("a",), ("a",), ("b",), ("b",)]
TRUTH = ("flu", "flu", "cold", "gout")


def infer(people, ills, most=1_000):
    """What the product infers of a release that is one class: all values are dealt out to all people."""
    released = star_only_if_needed([(*person, ill) for person, ill in zip(people, ills, strict=True)])
    assert {row[0] for row in released} == {"*"}

    def same_release(deal):
        made = star_only_if_needed([(*person, ill) for person, ill in zip(people, deal, strict=True)])
        return Counter(made) == Counter(released)

    return infer_within_classes(np.zeros(len(people), np.int64), ills, same_release, most=most), released


def test_minimality_tells_why_a_release_was_generalized():
    knowing, _ = infer(PEOPLE, TRUTH)
    # Starred only because one zone had flu twice: both of a, or both of b, have flu, and nobody else does.
    assert knowing.complete
    assert (knowing.worlds, knowing.tried) == (4, 12)
    assert knowing.share[0] == knowing.share[1]
    assert knowing.share[0]["flu"] == pytest.approx(0.5)
    naive = assume_class_shares(np.zeros(4, np.int64), TRUTH)
    assert naive.share[0]["flu"] == pytest.approx(0.5)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_minimality_is_that_of_all_worlds(seed):
    rng = np.random.default_rng(seed)
    people = [(zone,) for zone in rng.choice(["a", "b", "c"], 5).tolist()]
    ills = tuple(rng.choice(["flu", "cold", "gout"], 5).tolist())
    if {row[0] for row in star_only_if_needed([(*p, i) for p, i in zip(people, ills, strict=True)])} != {"*"}:
        return  # nothing was generalized
    found, released = infer(people, ills)
    assert found.complete
    assert [dict(share) for share in found.share] == infer_by_minimality(people, released, star_only_if_needed)


def test_too_many_worlds_are_sampled_and_said_to_be():
    people = [(str(i % 3),) for i in range(12)]
    ills = tuple("aaaa" + "bc" * 4)
    found, _ = infer([(zone,) for (zone,) in sorted(people)], ills, most=500)
    assert not found.complete
    assert found.tried == 500
    assert "sampled" in score_beliefs(found, None, ills).warnings[0]
