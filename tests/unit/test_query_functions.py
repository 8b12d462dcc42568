"""Every word of the reference is understood, and every function of the allow-list is in the reference."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import clinic
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.query.algebra.dates import add_months, format_date, translate_pattern
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, literal, to_number
from deniable.query.algebra.functions import AGGREGATE_FORMS, FUNCTION_FORMS, FUNCTIONS, call
from deniable.query.algebra.intervals import Mismatch
from deniable.query.algebra.relation import find_noisy_nodes
from deniable.query.compile import compile_query
from deniable.query.sql.binder import bind_statement
from deniable.query.sql.render import render_expression
from relation_oracle import raise_to_power

NAMES = {"x": "age", "y": "delta", "t": "note", "d": "day", "m": "seen", "c": "insured"}
BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))


def written(form: str) -> str:
    """A form with columns of the clinic in the place of its letters; quoted texts stay."""
    return re.sub(r"('[^']*')|\b([xytdmc])\b", lambda m: m[1] or NAMES[m[2]], form)


def test_every_function_has_a_form() -> None:
    assert set(FUNCTION_FORMS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTION_FORMS))
def test_every_form_is_understood_as_its_function(name: str) -> None:
    form = written(FUNCTION_FORMS[name])
    if name == "cast_integer":  # of a whole number it is that number
        form = form.replace("age", "charge")
    plan = compile_query(f"SELECT COUNT({form}) FROM visits", clinic.TABLES, BUDGET)
    assert f"name='{name}'" in repr(plan.relation)


@pytest.mark.parametrize("form", [form for form, _, _ in AGGREGATE_FORMS])
def test_every_aggregate_is_understood(form: str) -> None:
    assert not compile_query(f"SELECT {written(form)} FROM visits", clinic.TABLES, BUDGET).free


@pytest.mark.parametrize("form", ["REPLACE(note, 'A')", "REPLACE(note, 'A', )", "SUBSTRING(note)"])
def test_a_function_with_too_few_arguments_is_refused(form: str) -> None:
    with pytest.raises(QueryRefused, match=r"arguments, not|nothing stands after this comma"):
        compile_query(f"SELECT COUNT({form}) FROM visits", clinic.TABLES, BUDGET)


@pytest.mark.parametrize(
    "form", ["MAX()", "SUM()", "AVG()", "MEDIAN()", "COUNT(ABS())", "COUNT(UPPER())", "QUANTILE()"]
)
def test_empty_parentheses_are_refused(form: str) -> None:
    with pytest.raises(QueryRefused):
        compile_query(f"SELECT {form} FROM visits", clinic.TABLES, BUDGET)


MOMENTS = [
    datetime(2020, 1, 31, 23, 59, 59), datetime(2019, 2, 28), datetime(2020, 2, 29, 1, 2, 3), datetime(1, 1, 1),
    datetime(9999, 12, 31, 23), datetime(1969, 12, 31, 5), datetime(2000, 12, 1, 12, 0, 30),
]  # fmt: skip
MONTHS = [0, 1, -1, 11, 12, -13, 25, 1200, -12_000, 12_000]
SECONDS = [0, 1, -1, 86_399, -86_400, 3_000_000, 32_767 * 86_400]


def move(moment: date, months: int) -> date | None:
    """The twin: day by day back from the 31st until the month has such a day; null outside the calendar."""
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    for day in range(moment.day, 27, -1) if 1 <= year <= 9999 else ():
        with suppress(ValueError):
            return moment.replace(year=year, month=month + 1, day=day)
    return moment.replace(year=year, month=month + 1) if 1 <= year <= 9999 else None


@pytest.mark.parametrize("months", MONTHS)
def test_dates_move_by_months_as_the_calendar_says_and_to_null_outside_it(months: int) -> None:
    for moment in MOMENTS:
        for value in (moment, moment.date()):
            name = "shift_months" if isinstance(value, datetime) else "add_months"
            assert evaluate(name, value, months) == move(value, months)
            assert add_months(value, months) == (move(value, months) or add_months(value, months))


@pytest.mark.parametrize("seconds", SECONDS)
def test_moments_move_by_seconds_and_to_null_outside_the_calendar(seconds: int) -> None:
    for moment in MOMENTS:
        try:
            twin = moment + timedelta(seconds=seconds)
        except OverflowError:
            twin = None
        assert evaluate("shift_seconds", moment, seconds) == twin


@pytest.mark.parametrize("pattern", ["YYYY-MM", "YYYY-MM-DD HH24:MI:SS", "DD.MM.YYYY", "MM/DD"])
def test_dates_are_written_as_their_pattern_says(pattern: str) -> None:
    written = translate_pattern(pattern)
    for moment in MOMENTS:
        assert evaluate("write_date", moment, written) == format_date(moment, written)
        assert evaluate("write_date", moment.date(), written) == format_date(moment.date(), written)


def test_a_date_that_is_written_out_lists_all_its_texts() -> None:
    day = ColumnRef("d", Facts(Kind.DATE, to_number(date(2020, 1, 15)), to_number(date(2020, 3, 2)), Fraction(1)))
    assert call("write_date", day, literal("%Y-%m")).facts.values() == ("2020-01", "2020-02", "2020-03")


CONNECTION = duckdb.connect()


def evaluate(name: str, *values: Any) -> Any:
    """A function of literals, computed by the engine."""
    tree = call(name, *(literal(value) for value in values))
    return CONNECTION.execute(f"SELECT {render_expression(tree)}").fetchall()[0][0]


NUMBERS = [0.0, 1.0, -1.0, 2.5, -2.5, 0.1, 1e300, -1e300, 7.0, -7.0]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.5])
def test_a_power_is_a_number_or_null_and_lies_within_its_interval(exponent: float) -> None:
    for base in NUMBERS:
        twin = raise_to_power(base, exponent)
        found = evaluate("power", Fraction(base), Fraction(exponent))
        assert found == twin or (found is not None and twin is not None and math.isclose(found, twin))
    for low, high in ((-3, 2), (0, 4), (-5, -1)):
        facts = call(
            "power", ColumnRef("x", Facts(Kind.INTEGER, Fraction(low), Fraction(high))), number(exponent)
        ).facts
        inside = [raise_to_power(float(base), exponent) for base in range(low, high + 1)]
        if facts.lower is not None and facts.upper is not None:
            assert all(facts.lower <= each <= facts.upper for each in inside if each is not None)


def number(value: float) -> Expression:
    exact = Fraction(value)
    return literal(int(exact) if exact.denominator == 1 else exact)


@pytest.mark.parametrize(("name", "twin"), [("log10", math.log10), ("log2", math.log2)])
def test_logarithms_are_null_where_there_is_none(name: str, twin: Callable[[float], float]) -> None:
    for value in NUMBERS:
        found = evaluate(name, Fraction(value))
        assert found is None if value <= 0 else math.isclose(found, twin(value), abs_tol=1e-12)


def test_between_symmetric_takes_its_ends_in_any_order() -> None:
    """DuckDB does not know it, and the parser does: passed over, it would be another question."""
    bound, _ = bind_statement("SELECT COUNT(*) FROM visits WHERE age BETWEEN SYMMETRIC 50 AND 20", clinic.TABLES)
    (node,) = find_noisy_nodes(bound)
    predicate = node.input.predicate
    assert predicate.name == "or"
    assert [part.name for part in predicate.arguments] == ["and", "and"]


UNREAD = [
    "FLOOR(age, 1) = 2", "ROUND(age, 1, 1) = 2", "CAST(note AS DATE FORMAT 'x') IS NULL",
    "CEIL(age, 1) = 2",
]  # fmt: skip


@pytest.mark.parametrize("condition", UNREAD)
def test_a_word_that_is_not_understood_is_refused_and_not_passed_over(condition: str) -> None:
    with pytest.raises(QueryRefused):
        compile_query(f"SELECT COUNT(*) FROM visits WHERE {condition}", clinic.TABLES, BUDGET)


WRONG_GUESSES = {"POWR(age, 2)": "POWER", "AGE(day, day)": "DATE_DIFF", "SIMILARITY(city, note)": "", "GE(age, 1)": ""}


@pytest.mark.parametrize("form", WRONG_GUESSES)
def test_a_function_that_is_not_known_suggests_what_is_meant_or_nothing(form: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        compile_query(f"SELECT COUNT({form}) FROM visits", clinic.TABLES, BUDGET)
    assert refused.value.remedy == "" if not WRONG_GUESSES[form] else WRONG_GUESSES[form] in refused.value.remedy


REGEXES = [
    "a+",
    "^https?://(?:www[.])?([^/]+)/.*$",
    "(a|b)*?c",
    "[^a-z ]",
    "\\d\\d?",
    "(x)(y)?",
    ".*",
    "",
    "a??b",
    "\\.",
]
TEXTS = ["", "abc", "https://www.shop.org/page", "a1b22.c", "xy", "aabbcc", "A b"]


@pytest.mark.parametrize("pattern", REGEXES)
def test_the_first_match_of_a_regular_expression_is_replaced(pattern: str) -> None:
    for text in TEXTS:
        assert evaluate("regexp_replace", text, pattern, "<\\0>") == re.sub(pattern, r"<\g<0>>", text, count=1)


STRANGE = ["a*+", "a**", "(a", "a)", "[a", "[z-a]", "a{2}", "(?=a)", "(?i)a", "(a)\\1", "\\b", "\\x41", "[[:alpha:]]",
           "[a--b]", "a" * 201, "*a", "\\"]  # fmt: skip


@pytest.mark.parametrize("pattern", STRANGE)
def test_a_pattern_that_the_engine_may_refuse_is_refused_before_the_charge(pattern: str) -> None:
    with pytest.raises(Mismatch, match="pattern"):
        call("regexp_replace", literal("a"), literal(pattern), literal(""))


@pytest.mark.parametrize("replacement", ["\\2", "\\", "\\x"])
def test_a_replacement_names_groups_that_are_there(replacement: str) -> None:
    with pytest.raises(Mismatch, match="replacement"):
        call("regexp_replace", literal("a"), literal("(a)"), literal(replacement))
