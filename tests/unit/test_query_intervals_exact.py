"""Facts of functions by brute force: over whole arguments the told interval is the least that holds every result."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from deniable.query.algebra import intervals
from deniable.query.algebra.expression import Facts, Kind, calendar_range, to_number
from deniable.query.algebra.intervals import Mismatch

RANGES = [(-3, 4), (0, 2), (1, 3), (-5, -2), (2, 2)]


def _whole(low: int, high: int, **rest: Any) -> Facts:
    return Facts(Kind.INTEGER, Fraction(low), Fraction(high), Fraction(1), **rest)


def _remainder(x: int, y: int) -> int | None:
    return None if y == 0 else int(math.fmod(x, y))


TWO: dict[str, tuple[intervals.Rule, Callable[[int, int], Any]]] = {
    "sum": (intervals.addition(1), lambda x, y: x + y),
    "difference": (intervals.addition(-1), lambda x, y: x - y),
    "product": (intervals.multiplication, lambda x, y: x * y),
    "least": (intervals.extreme(least=True), min),
    "greatest": (intervals.extreme(least=False), max),
}


@pytest.mark.parametrize("name", TWO)
def test_the_interval_of_two_numbers_is_that_of_all_their_results(name: str) -> None:
    rule, naive = TWO[name]
    for (a, b), (c, d) in product(RANGES, RANGES):
        told = rule((_whole(a, b, nullable=False), _whole(c, d, nullable=False)))
        found = [naive(x, y) for x in range(a, b + 1) for y in range(c, d + 1)]
        assert (told.lower, told.upper) == (min(found), max(found)), (a, b, c, d)
        assert (told.kind, told.step) == (Kind.INTEGER, 1)


@pytest.mark.parametrize("rule", [*(rule for rule, _ in TWO.values()), intervals.division, intervals.modulo])
def test_a_result_is_public_only_if_all_its_arguments_are(rule: intervals.Rule) -> None:
    public, private = _whole(1, 3, public=True), _whole(1, 3)
    assert rule((public, public)).public
    for facts in ((public, private), (private, public), (private, private)):
        assert not rule(facts).public


def test_quotients_are_bounded_where_the_divisor_keeps_away_from_zero() -> None:
    for (a, b), (c, d) in product(RANGES, RANGES):
        told = intervals.division((_whole(a, b), _whole(c, d)))
        if c <= 0 <= d:
            assert told.lower is None
            assert told.upper is None
            continue
        found = [Fraction(x, y) for x in range(a, b + 1) for y in range(c, d + 1)]
        assert (told.lower, told.upper) == (min(found), max(found))
        assert told.step == (Fraction(1, abs(c)) if c == d else None)


def test_remainders_lie_within_the_divisor_and_have_the_sign_of_the_dividend() -> None:
    for (a, b), (c, d) in product(RANGES, RANGES):
        told = intervals.modulo((_whole(a, b), _whole(c, d)))
        assert told.lower is not None
        assert told.upper is not None
        found = [_remainder(x, y) for x in range(a, b + 1) for y in range(c, d + 1) if y]
        assert all(told.lower <= each <= told.upper for each in found if each is not None)
        reach = max(abs(c), abs(d), 1) - 1
        assert (told.lower, told.upper) == (-min(reach, max(-a, 0)), min(reach, max(b, 0)))
    open_end = intervals.modulo((Facts(Kind.INTEGER), _whole(1, 7)))
    assert (open_end.lower, open_end.upper) == (-6, 6)
    decimals = intervals.modulo((Facts(Kind.DECIMAL), _whole(1, 7)))
    assert (decimals.lower, decimals.upper) == (-7, 7)


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_one_number_mirrored_or_folded(low: int, high: int) -> None:
    told = intervals.negation((_whole(low, high),))
    assert (told.lower, told.upper) == (-high, -low)
    told = intervals.absolute((_whole(low, high),))
    found = [abs(x) for x in range(low, high + 1)]
    assert (told.lower, told.upper) == (min(found), max(found))


def test_nothing_is_told_of_what_is_open() -> None:
    half = Facts(Kind.INTEGER, lower=Fraction(0), step=Fraction(1))
    ones = (intervals.negation, intervals.absolute, intervals.monotone(lambda x: x, None, None))
    found = [rule((half,)) for rule in ones] + [rule((half, _whole(0, 1))) for rule, _ in TWO.values()]
    assert all(told.lower is None and told.upper is None for told in found)


def test_an_end_is_held_only_by_arguments_that_are_certainly_there() -> None:
    wide, narrow = _whole(0, 10), _whole(5, 6)
    sure = _whole(5, 6, nullable=False)
    least, greatest = intervals.extreme(least=True), intervals.extreme(least=False)
    for rule, other, ends in (
        (least, sure, (0, 6)), (least, narrow, (0, 10)), (greatest, sure, (5, 10)), (greatest, narrow, (0, 10)),
    ):  # fmt: skip
        told = rule((wide, other))
        assert (told.lower, told.upper) == ends


# One of several


def test_one_of_several_is_in_the_hull_of_all_and_public_only_if_all_are() -> None:
    public, secret = _whole(0, 3, public=True), _whole(5, 9, opaque=True)
    told = intervals.union((public, secret, Facts(Kind.NULL)), nullable=False)
    assert (told.lower, told.upper, told.step, told.public, told.opaque, told.nullable) == (0, 9, 1, False, True, False)
    assert intervals.union((public, public)).public
    assert not intervals.union((public, Facts(Kind.INTEGER))).bounded
    words = (Facts(Kind.TEXT, domain=("a", "b"), longest=1), Facts(Kind.TEXT, domain=("b", "ccc"), longest=3))
    assert (intervals.union(words).domain, intervals.union(words).longest) == (("a", "b", "ccc"), 3)
    assert intervals.union((*words, Facts(Kind.TEXT))).domain is None
    assert intervals.union((Facts(Kind.NULL),)) == Facts(Kind.NULL, public=False)


@pytest.mark.parametrize(
    ("nullable", "expected"), [((True, False), False), ((True, True), True), ((False, True), False)]
)
def test_the_first_that_is_there_is_null_only_if_all_may_be(nullable: tuple[bool, ...], expected: bool) -> None:
    assert intervals.coalesce(tuple(_whole(0, 1, nullable=each) for each in nullable)).nullable is expected


def test_which_branch_is_taken_is_public_only_if_the_conditions_are() -> None:
    for public, told in (
        ((True, True, True), True),
        ((False, True, True), False),
        ((True, False, True), False),
        ((True, True, False), False),
    ):
        condition, then, otherwise = public
        facts = (
            Facts(Kind.BOOLEAN, public=condition), _whole(1, 2, public=then), _whole(7, 8, public=otherwise),
        )  # fmt: skip
        found = intervals.branches(facts)
        assert found.public is told
        assert (found.lower, found.upper) == (1, 8)
    with pytest.raises(Mismatch):
        intervals.branches((_whole(0, 1), _whole(0, 1), _whole(0, 1)))


def test_a_condition_is_null_where_an_argument_may_be_and_public_where_all_are() -> None:
    sure, unsure = _whole(0, 1, nullable=False, public=True), _whole(0, 1, public=False)
    assert not intervals.comparison((sure, sure)).nullable
    assert intervals.comparison((sure, unsure)).nullable
    assert intervals.comparison((sure, sure)).public
    assert not intervals.comparison((sure, unsure)).public
    assert intervals.nullif((sure, sure)).nullable
    with pytest.raises(Mismatch, match="mixes"):
        intervals.comparison((sure, Facts(Kind.TEXT)))
    for rule, facts in ((intervals.logic, (sure,)), (intervals.nullif, (sure, Facts(Kind.TEXT)))):
        with pytest.raises(Mismatch):
            rule(facts)


# Clamping, rounding, casts


def test_clamping_keeps_what_is_known_and_refuses_what_is_no_bound() -> None:
    for (a, b), (c, d) in product(RANGES, RANGES):
        told = intervals.clamp((_whole(a, b), _whole(c, c), _whole(d, d)))
        found = [min(max(x, c), d) for x in range(a, b + 1)]
        assert (told.lower, told.upper) == (min(found), max(found))
    told = intervals.clamp((Facts(Kind.INTEGER), _whole(1, 1), _whole(5, 5)))
    assert (told.lower, told.upper, told.step) == (1, 5, 1)
    assert intervals.clamp((Facts(Kind.DECIMAL), _whole(1, 1), _whole(5, 5))).step is None
    for x, low, high, words in (
        (_whole(0, 9), _whole(5, 5), _whole(4, 4), "reversed"),
        (_whole(0, 9), _whole(4, 5), _whole(6, 6), "literals"),
        (_whole(0, 9), _whole(4, 4), _whole(6, 7), "literals"),
        (Facts(Kind.TEXT), _whole(4, 4), _whole(6, 6), "a number or a date"),
    ):
        with pytest.raises(Mismatch, match=words):
            intervals.clamp((x, low, high))


@pytest.mark.parametrize("places", [-2, -1, 0, 1, 3])
def test_rounding_to_places_tells_the_step_and_the_ends_outwards(places: int) -> None:
    facts = Facts(Kind.DECIMAL, Fraction(-1234567, 1000), Fraction(7654321, 10000))
    told = intervals.round_to_places((facts, _whole(places, places)))
    step = Fraction(10) ** -places
    assert told.step == step
    assert told.lower == math.floor(Fraction(-1234567, 1000) / step) * step
    assert told.upper == math.ceil(Fraction(7654321, 10000) / step) * step
    assert told.kind is (Kind.INTEGER if places <= 0 else Kind.DECIMAL)


def test_rounding_takes_a_few_places_only() -> None:
    number = Facts(Kind.DECIMAL)
    for places in (-9, 9):
        intervals.round_to_places((number, _whole(places, places)))
    for low, high in ((-10, -10), (10, 10), (1, 2)):
        with pytest.raises(Mismatch, match="literal number of places"):
            intervals.round_to_places((number, _whole(low, high)))
    assert intervals.round_to_places((number,)).step == 1


def test_a_cast_to_whole_numbers_rounds_the_ends_outwards() -> None:
    told = intervals.cast(Kind.INTEGER)((Facts(Kind.DECIMAL, Fraction(-3, 2), Fraction(5, 2), public=True),))
    assert (told.lower, told.upper, told.step, told.nullable, told.public) == (-2, 3, 1, True, True)
    assert intervals.cast(Kind.DECIMAL)((_whole(1, 2),)).step == 1
    assert not intervals.cast(Kind.INTEGER)((Facts(Kind.TEXT),)).bounded
    assert intervals.cast(Kind.TEXT)((_whole(1, 2),)).longest == 40
    assert intervals.cast(Kind.TEXT)((Facts(Kind.TEXT, longest=7, domain=("a",)),)).longest == 7
    assert intervals.cast(Kind.TEXT)((Facts(Kind.TEXT, longest=7, domain=("a",)),)).domain == ("a",)
    assert intervals.cast(Kind.TEXT)((_whole(1, 2, domain=(1, 2)),)).domain is None


def test_common_steps_divide_both() -> None:
    assert intervals.common_step(Fraction(3, 4), Fraction(1, 2)) == Fraction(1, 4)
    assert intervals.common_step(Fraction(6), Fraction(4), Fraction(10)) == 2
    assert intervals.common_step(Fraction(6), None) is None
    assert intervals.common_step(Fraction(6), Fraction(0)) is None


# Texts


def _text(longest: int | None = None, **rest: Any) -> Facts:
    return Facts(Kind.TEXT, longest=longest, **rest)


def test_lengths_of_texts_are_bounded_by_their_parts() -> None:
    assert intervals.first_length((_text(10), _whole(0, 4))) == 4
    assert intervals.first_length((_text(10), _whole(0, 40))) == 10
    assert intervals.first_length((_text(10), _whole(-1, 4))) == 10, "a length below 0 cuts at the other end"
    assert intervals.first_length((_text(10), Facts(Kind.INTEGER, upper=Fraction(4)))) == 10
    assert intervals.first_length((_text(10), Facts(Kind.INTEGER, lower=Fraction(4)))) == 10
    assert intervals.cut_length((_text(10), _whole(1, 1), _whole(3, 3))) == 3
    assert intervals.cut_length((_text(10), _whole(1, 1))) == 10
    assert intervals.add_lengths((_text(10), _text(5), _whole(1, 1))) == 15


@pytest.mark.parametrize(("source", "old", "new"), [(7, "ab", 5), (7, "abc", 1), (7, "a", 0), (0, "a", 9), (7, "", 9)])
def test_a_replaced_text_is_as_long_as_its_longest_result(source: int, old: str, new: int) -> None:
    told = intervals.replace_length((_text(source), _text(domain=(old,)), _text(new)))
    pieces = range(source // len(old) + 1) if old else [0]
    assert told == max(source + count * (new - len(old)) for count in pieces)


def test_texts_have_a_longest_result_that_is_still_taken() -> None:
    rule = intervals.text(1, lambda facts: int(facts[1].upper or 0))
    most = intervals.LONGEST_RESULT
    assert rule((_text(1, public=True), _whole(most, most, public=True))).public
    assert not rule((_text(1, public=True), _whole(most, most))).public
    with pytest.raises(Mismatch, match="could make a text"):
        rule((_text(1), _whole(most + 1, most + 1)))
    with pytest.raises(Mismatch):
        rule((_whole(1, 1), _whole(1, 1)))


# Dates

FIRST, LAST = date(2019, 12, 25), date(2021, 2, 3)
DAYS = Facts(Kind.DATE, to_number(FIRST), to_number(LAST), Fraction(1))


def _every_day() -> list[date]:
    return [FIRST + timedelta(days=i) for i in range((LAST - FIRST).days + 1)]


@pytest.mark.parametrize("unit", ["year", "quarter", "month", "week", "day"])
def test_truncated_days_are_listed_once_and_in_order(unit: str) -> None:
    naive = sorted({intervals.truncate_date(day, unit) for day in _every_day()})
    assert intervals.truncation(unit)((DAYS,)).domain == tuple(naive)
    assert all(start <= day for day in _every_day() for start in [intervals.truncate_date(day, unit)])


def test_truncation_by_hand() -> None:
    day = date(2020, 8, 20)
    starts = {unit: intervals.truncate_date(day, unit) for unit in ("year", "quarter", "month", "week", "day")}
    assert starts == {
        "year": date(2020, 1, 1), "quarter": date(2020, 7, 1), "month": date(2020, 8, 1),
        "week": date(2020, 8, 17), "day": day,
    }  # fmt: skip
    assert intervals.truncation("hour")((DAYS,)).kind is Kind.DATETIME
    assert intervals.truncation("month")((Facts(Kind.DATE),)).domain is None
    end = Facts(Kind.DATE, to_number(date(9999, 11, 30)), to_number(date.max))
    assert intervals.truncation("month")((end,)).domain == (date(9999, 11, 1), date(9999, 12, 1))


def test_parts_of_days_lie_between_their_least_and_largest() -> None:
    year = intervals.year((DAYS,))
    assert (year.lower, year.upper) == (2019, 2021)
    assert not intervals.year((Facts(Kind.DATE),)).bounded
    for name, of in (
        ("quarter", lambda d: (d.month + 2) // 3),
        ("isodow", date.isoweekday),
        ("doy", lambda d: d.timetuple().tm_yday),
    ):
        told = intervals.part(name)((DAYS,))
        found = [of(day) for day in _every_day()]
        assert (told.lower, told.upper) == (min(found), max(found))


def test_days_move_by_a_bounded_number_of_days_within_the_calendar() -> None:
    moved = intervals.addition(-1)((DAYS, _whole(1, 3)))
    assert (moved.lower, moved.upper) == (to_number(FIRST) - 3, to_number(LAST) - 1)
    apart = intervals.addition(-1)((DAYS, DAYS))
    assert (apart.kind, apart.lower, apart.upper) == (Kind.INTEGER, -(LAST - FIRST).days, (LAST - FIRST).days)
    late = Facts(Kind.DATE, to_number(LAST), to_number(LAST) + 10)
    difference = intervals.day_difference((DAYS, late))
    assert (difference.lower, difference.upper) == (0, (LAST - FIRST).days + 10)
    most = intervals.MOST_DAYS
    assert intervals.addition(1)((DAYS, _whole(-most, most))).bounded
    for days in (_whole(0, most + 1), _whole(-most - 1, 0), Facts(Kind.INTEGER)):
        with pytest.raises(Mismatch, match="moves a date"):
            intervals.addition(1)((DAYS, days))


def test_moved_days_stay_within_the_calendar() -> None:
    first, last = calendar_range(Kind.DATE)
    for sign, day in ((1, last - 5), (-1, first + 5)):
        moved = intervals.addition(sign)((Facts(Kind.DATE, day, day, Fraction(1)), _whole(0, 100)))
        assert (moved.lower, moved.upper) == ((day, last) if sign > 0 else (first, day))


NUMBER, TEXT, TRUTH = _whole(1, 3), Facts(Kind.TEXT, longest=3), Facts(Kind.BOOLEAN)
DAY = Facts(Kind.DATE, to_number(date(2020, 1, 1)), to_number(date(2020, 3, 1)), Fraction(1))
TAKES: dict[str, tuple[intervals.Rule, tuple[Facts, ...], tuple[Facts, ...]]] = {
    "sum": (intervals.addition(1), (NUMBER, NUMBER), (TEXT, TRUTH)),
    "difference": (intervals.addition(-1), (NUMBER, NUMBER), (TEXT, TRUTH)),
    "product": (intervals.multiplication, (NUMBER, NUMBER), (TEXT, TRUTH, DAY)),
    "quotient": (intervals.division, (NUMBER, NUMBER), (TEXT, TRUTH, DAY)),
    "remainder": (intervals.modulo, (NUMBER, NUMBER), (TEXT, TRUTH, DAY)),
    "monotone": (intervals.monotone(lambda x: x, None, None), (NUMBER,), (TEXT, TRUTH, DAY)),
    "negation": (intervals.negation, (NUMBER,), (TEXT, TRUTH, DAY)),
    "absolute": (intervals.absolute, (NUMBER,), (TEXT, TRUTH, DAY)),
    "smooth": (intervals.smooth(math.exp), (NUMBER,), (TEXT, TRUTH, DAY)),
    "rounded": (intervals.round_to_places, (NUMBER, _whole(1, 1)), (TEXT, TRUTH, DAY)),
    "logic": (intervals.logic, (TRUTH, TRUTH), (TEXT, NUMBER, DAY)),
    "text test": (intervals.text_test, (TEXT, TEXT), (NUMBER, TRUTH, DAY)),
    "length": (intervals.length, (TEXT,), (NUMBER, TRUTH, DAY)),
    "two texts": (intervals.text(2, intervals.add_lengths), (TEXT, TEXT), (NUMBER, TRUTH, DAY)),
    "part": (intervals.part("month"), (DAY,), (NUMBER, TRUTH, TEXT)),
    "year": (intervals.year, (DAY,), (NUMBER, TRUTH, TEXT)),
    "truncated": (intervals.truncation("month"), (DAY,), (NUMBER, TRUTH, TEXT)),
    "days": (intervals.day_difference, (DAY, DAY), (NUMBER, TRUTH, TEXT, Facts(Kind.DATETIME))),
    "compared": (intervals.comparison, (NUMBER, NUMBER), (TEXT, TRUTH, DAY)),
    "null if": (intervals.nullif, (NUMBER, NUMBER), (TEXT, TRUTH, DAY)),
}
"""A rule, arguments that it takes, and what it takes in the place of none of them."""


@pytest.mark.parametrize("name", TAKES)
def test_a_function_takes_its_kinds_in_every_place_and_null_in_any(name: str) -> None:
    rule, good, wrong = TAKES[name]
    rule(good)
    for place in range(len(good)):
        for other in wrong:
            with pytest.raises(Mismatch):
                rule((*good[:place], other, *good[place + 1 :]))
        if name != "rounded":
            rule((*good[:place], Facts(Kind.NULL), *good[place + 1 :]))


def test_texts_come_before_numbers_and_conditions_stand_before_values() -> None:
    rule = intervals.text(1, intervals.first_length)
    assert rule((TEXT, _whole(1, 2))).longest == 2
    for wrong in ((TEXT, TEXT), (NUMBER, NUMBER)):
        with pytest.raises(Mismatch):
            rule(wrong)
    told = intervals.branches((TRUTH, _whole(0, 3), TRUTH, _whole(7, 9), _whole(5, 5)))
    assert (told.lower, told.upper) == (0, 9)
    for place in (0, 2):
        facts = [TRUTH, NUMBER, TRUTH, NUMBER, NUMBER]
        facts[place] = NUMBER
        with pytest.raises(Mismatch, match="takes boolean"):
            intervals.branches(tuple(facts))


@pytest.mark.parametrize(("low", "high"), RANGES)
def test_a_function_that_keeps_the_order_is_applied_to_both_ends(low: int, high: int) -> None:
    rule = intervals.monotone(lambda x: 2 * x + 1, None, None)
    told = rule((_whole(low, high),))
    assert (told.kind, told.lower, told.upper, told.step) == (Kind.INTEGER, 2 * low + 1, 2 * high + 1, 1)
    other = intervals.monotone(lambda x: x / 2, Kind.DECIMAL, Fraction(1, 2))((_whole(low, high),))
    assert (other.kind, other.lower, other.upper) == (Kind.DECIMAL, Fraction(low, 2), Fraction(high, 2))
    assert other.step == Fraction(1, 2)


def test_a_real_function_is_bounded_where_it_is_defined_at_both_ends() -> None:
    told = intervals.smooth(math.exp)((_whole(0, 2),))
    assert (told.kind, told.lower, told.upper, told.step) == (Kind.DECIMAL, 1, Fraction(math.exp(2)), None)
    root = intervals.smooth(math.sqrt, 0.0)
    assert (root((_whole(0, 9),)).lower, root((_whole(0, 9),)).upper) == (0, 3)
    half = Facts(Kind.INTEGER, lower=Fraction(1))
    for rule, facts in (
        (root, _whole(-1, 9)),
        (root, half),
        (intervals.smooth(math.sqrt), _whole(-1, 9)),
        (intervals.smooth(math.exp), _whole(0, 10**6)),
    ):
        assert (rule((facts,)).lower, rule((facts,)).upper, rule((facts,)).kind) == (None, None, Kind.DECIMAL)


def test_differences_of_days_are_days_and_sums_of_days_are_none() -> None:
    told = intervals.addition(-1)((DAY, DAY))
    assert (told.kind, told.lower, told.upper, told.step) == (Kind.INTEGER, -60, 60, 1)
    with pytest.raises(Mismatch):
        intervals.addition(1)((DAY, DAY))
    between = intervals.day_difference(
        (DAY, Facts(Kind.DATE, to_number(date(2020, 4, 1)), to_number(date(2020, 4, 2))))
    )
    assert (between.lower, between.upper) == (31, 92)


def test_the_kind_of_a_result_is_whole_only_if_all_are() -> None:
    half = Facts(Kind.DECIMAL, Fraction(0), Fraction(1), Fraction(1, 2))
    for rule in (intervals.addition(1), intervals.multiplication, intervals.modulo, intervals.extreme(least=True)):
        assert rule((NUMBER, NUMBER)).kind is Kind.INTEGER
        assert rule((NUMBER, half)).kind is Kind.DECIMAL
        assert rule((Facts(Kind.NULL), NUMBER)).kind is Kind.INTEGER
    assert intervals.division((NUMBER, NUMBER)).kind is Kind.DECIMAL
    assert intervals.multiplication((half, half)).step == Fraction(1, 4)
    assert intervals.multiplication((half, Facts(Kind.DECIMAL))).step is None
    assert intervals.addition(1)((half, NUMBER)).step == Fraction(1, 2)
