"""Questions by methods are the questions in SQL: the same plans, and no value or name becomes part of the statement."""

from __future__ import annotations

import datetime as dt
import math
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import Dialect, exp
from sqlglot.errors import ParseError

import clinic
import deniable
from deniable import Curator, col, count, count_distinct, mean, median, quantile
from deniable.errors import MissingExtra, ParameterError, QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.query.builder import PLAIN, RESERVED, Question, write_value
from deniable.query.compile import compile_query
from deniable.query.explain import explain

ASKED = ApproxDP(Fraction(1), Fraction(1, 10**6))
FILTERS = {
    "age > 30": col("age") > 30,
    "age >= 18 AND age < 65": (col("age") >= 18) & (col("age") < 65),
    "sex = 'F'": col("sex") == "F",
    "sex IN ('F', 'M')": col("sex").is_in(["F", "M"]),
    "age BETWEEN 20 AND 40": col("age").is_between(20, 40),
    "NOT (age = 3 OR sex <> 'M')": ~((col("age") == 3) | (col("sex") != "M")),
    "age IS NOT NULL": col("age").is_not_null(),
    "age IS NULL": col("age") == None,  # noqa: E711  the builder's way to say it
    "age * 2 + 1 > 9": col("age") * 2 + 1 > 9,
    "1 - age < 3 + 2 * age": 1 - col("age") < 3 + 2 * col("age"),
    "0 - age > 9 / age": -col("age") > 9 / col("age"),
    "age % 2 = 1": col("age") % 2 == 1,
}
AGGREGATES = {
    "COUNT(*) AS n": count(name="n"),
    "COUNT(age) AS ages": count("age", name="ages"),
    "COUNT(DISTINCT pid) AS people": count_distinct("pid", name="people"),
    "SUM(age) AS total": deniable.sum("age", name="total"),
    "AVG(age) AS mean_age": mean("age"),
    "SUM(CLAMP(score, 0, 100)) AS s": deniable.sum(col("score").clamp(0, 100), name="s"),
    "AVG(age + 1) AS more": mean(col("age") + 1).alias("more"),
    "MEDIAN(age) AS middle": median("age", name="middle"),
    "QUANTILE(age, 0.9) AS ninth": quantile("age", 0.9, name="ninth"),
}


def outline(sql: str) -> Any:
    """All that a plan says, but for where in the text something stands; or the refusal without its place."""
    try:
        plan = compile_query(sql, clinic.TABLES, ASKED)
    except QueryRefused as refusal:
        return refusal.happened
    return explain(plan).to_dict(), plan.event, [field.name for field in plan.relation.fields]


@given(
    st.lists(st.sampled_from(sorted(FILTERS)), max_size=3, unique=True),
    st.lists(st.sampled_from(["sex", "city"]), max_size=2, unique=True),
    st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=3, unique=True),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_builder_and_sql_give_equal_plans(
    filters: list[str], keys: list[str], aggregates: list[str], ordered: bool
) -> None:
    built = Question("visits").filter(*(FILTERS[each] for each in filters)).group_by(*keys)
    built = built.agg(*(AGGREGATES[each] for each in aggregates))
    where = f" WHERE {' AND '.join(f'({each})' for each in filters)}" if filters else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    written = f"SELECT {', '.join([*keys, *aggregates])} FROM visits{where}{group}"
    if ordered and keys:
        built, written = built.order_by(keys[0], descending=True).limit(3), f"{written} ORDER BY {keys[0]} DESC LIMIT 3"
    assert outline(built.sql) == outline(written)


VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
    st.sampled_from(["'; DROP TABLE visits; --", "a' OR '1'='1", '"', "\\'", "''", "/* */", "$1", "?", "\n"]),
)


@given(VALUES)
@settings(max_examples=150, deadline=None)
def test_a_text_stays_one_value_whatever_stands_in_it(value: str) -> None:
    sql = Question("visits").filter(sex=value).count().sql
    (parsed,) = sqlglot.parse(sql, read="duckdb")
    assert parsed is not None
    assert [each.this for each in parsed.find_all(exp.Literal)] == [value]
    assert [type(each) for each in parsed.find_all(exp.EQ, exp.Or, exp.And)] == [exp.EQ]


@given(VALUES.filter(bool))
@settings(max_examples=150, deadline=None)
def test_a_name_stays_one_name_whatever_stands_in_it(name: str) -> None:
    sql = Question("visits").group_by(name).count().sql
    (parsed,) = sqlglot.parse(sql, read="duckdb")
    assert parsed is not None
    assert [each.name for each in parsed.args["group"].find_all(exp.Column)] == [
        name.rpartition(".")[2] if PLAIN.fullmatch(name) else name
    ]
    assert len(list(parsed.find_all(exp.Table))) == 1


DUCKDB = Dialect.get_or_raise("duckdb")
WORDS = {
    word.lower() for word in (*DUCKDB.tokenizer_class.KEYWORDS, *DUCKDB.parser_class.FUNCTIONS) if word.isidentifier()
}
WORDS |= {each.name.lower() for each in DUCKDB.parser_class.NO_PAREN_FUNCTIONS}


def test_words_of_sql_are_names_where_a_name_is_meant() -> None:
    """Every word that the parser knows, in every place where the builder writes a name."""
    assert len(WORDS) > 900
    wrong = []
    for word in sorted(WORDS | RESERVED):
        built = Question(word).filter(col(word) > 3, col(f"t.{word}").is_null(), col(word).is_between(1, 2))
        sql = built.group_by(word).agg(count(name=word), mean(col(word), name="x")).order_by(word).sql
        try:
            (parsed,) = sqlglot.parse(sql, read="duckdb")
        except ParseError:
            wrong.append(word)
            continue
        assert parsed is not None
        names = {each.name for each in parsed.find_all(exp.Column, exp.Table)}
        columns = [each.name for each in parsed.find_all(exp.Column)]
        places = 6 if word == "all" else 7  # the parser takes even a quoted "all" for ORDER BY ALL, which is refused
        if (
            names != {word}
            or len(columns) != places
            or [each.alias_or_name for each in parsed.selects] != [word, word, "x"]
        ):
            wrong.append(word)
    assert not wrong


NUMBERS = {0.1: "0.1", 1e-7: "1e-07", 10**20: str(10**20), Decimal("1.50"): "1.50", Fraction(1, 4): "0.25",
           Fraction(3): "3", True: "TRUE", dt.date(2026, 1, 31): "DATE '2026-01-31'", None: "NULL",
           dt.datetime(2026, 1, 31, 8, 5): "TIMESTAMP '2026-01-31 08:05:00'"}  # fmt: skip


@pytest.mark.parametrize("value", NUMBERS)
def test_values_are_written_as_sql_reads_them(value: Any) -> None:
    assert write_value(value) == NUMBERS[value]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: write_value(float("nan")),
        lambda: write_value(float("inf")),
        lambda: write_value([1]),
        lambda: write_value("a\0b"),
        lambda: col(""),
        lambda: col("a\0"),
        lambda: col("sex").is_in("FM"),
        lambda: col("sex").is_in([]),
        lambda: Question("visits").agg("COUNT(*)"),  # type: ignore[arg-type]
        lambda: Question("visits").agg(n="COUNT(*)"),  # type: ignore[arg-type]
        lambda: Question("visits").filter(True),  # type: ignore[arg-type]
        lambda: Question("visits").count().limit(0),
        lambda: Question("visits").filter(col("a") > 1 and col("b") > 1),
        lambda: Question("visits").sql,
        lambda: Question("visits").count().ask(epsilon=1),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError):
        wrong()


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_told_before_anything_is_charged(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": range(40), "age": [n % 90 for n in range(40)]})
    with Curator.from_frame(rows, unit="id", budget=2) as curator:
        question = curator.table("data").count()
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtra, match=f"pip install {package}"):
            getattr(question, f"to_{package}")(epsilon=1)
        assert curator.remaining().epsilon == 2  # type: ignore[union-attr]
        answer = question.ask(epsilon=1)
        with pytest.raises(MissingExtra, match="the same question gives it again at no cost"):
            getattr(answer, f"to_{package}")()
        monkeypatch.undo()
        assert len(getattr(question, f"to_{package}")(epsilon=1)) == 1
        assert curator.remaining().epsilon == 1  # type: ignore[union-attr]


def test_an_answer_shows_its_numbers_with_their_error_and_its_cost_in_words() -> None:
    rows = pa.table({"id": range(40), "sex": ["F", "M"] * 20})
    with Curator.from_frame(rows, unit="id", budget=2, categories={"sex": ["F", "M", "<b>"]}) as curator:
        assert repr(curator).splitlines() == [
            "Curator of 'frame'", "  data: protects all rows of one id, at most 1 row of each counted",
            "  2 of epsilon 2 is left",
        ]  # fmt: skip
        question = curator.table("data").group_by("sex").count()
        answer = question.ask(epsilon=0.5)
        assert answer.cost == "Cost: epsilon 0.5; 1.5 of epsilon 2 is left."
        assert "sex F  count " in repr(answer)
        assert " ± " in repr(answer)
        assert "&lt;b&gt;" in answer._repr_html_()
        assert "<b>" not in answer._repr_html_()
        drawn = answer.plot()._repr_svg_()
        assert drawn.count("<rect") == 3
        assert "&lt;b&gt;" in drawn
        assert pa.table(answer).equals(answer.rows), "the answer speaks Arrow"
        again = question.ask(epsilon=0.5)
        assert again.cost == "A stored answer: nothing was charged; 1.5 of epsilon 2 is left."


def test_scalars_of_numpy_are_written_as_the_values_they_hold() -> None:
    import numpy as np

    age = col("age")
    assert (age > np.int64(3)).text == (age > 3).text
    assert (age > np.float64(0.5)).text == (age > 0.5).text
    assert (age == np.bool_(True)).text == (age == True).text  # noqa: E712
    assert (age == np.str_("x")).text == (age == "x").text
    for moment in ("2026-01-31T10:00:00.5", "2026-01-31T10:00:00.500000000"):
        assert (age < np.datetime64(moment)).text == (age < dt.datetime(2026, 1, 31, 10, 0, 0, 500_000)).text
    assert (age < np.datetime64("2026-01-31")).text == (age < dt.date(2026, 1, 31)).text
    assert age.is_in(np.array([1, 2])).text == age.is_in([1, 2]).text
    assert Question("visits").agg(quantile("age", np.float32(0.5))).limit(np.int32(4)).sql.endswith("LIMIT 4")


@pytest.mark.parametrize(
    ("value", "error", "shown"),
    [
        (33962.48, 32330.0, "33,962 ± 32,330"),
        (15000912345.5, 5991000.0, "15,000,912,346 ± 5,991,000"),
        (43.8725, 3.142, "43.9 ± 3.1"),
        (0.5, 0.0123, "0.500 ± 0.012"),
        (2037, 36, "2,037 ± 36"),
        (12.25, 0.0, "12.25 ± 0"),
        (12.25, math.inf, "12.25 ± inf"),
    ],
)
def test_a_number_has_as_many_digits_as_its_error_leaves(value: float, error: float, shown: str) -> None:
    from deniable.release.display import show_number

    assert show_number({"n": value, "n_low": value - error, "n_high": value + error}, "n") == shown


def test_keys_and_values_may_be_given_as_lists() -> None:
    asked = Question("visits").filter(sex=["F", "M"]).group_by(["sex", "age"]).agg(count()).sort("count")
    assert asked.sql == (
        "SELECT sex, age, COUNT(*) AS count FROM visits WHERE (sex IN ('F', 'M')) GROUP BY sex, age ORDER BY count"
    )
    with pytest.raises(ParameterError, match="one or more values"):
        col("sex").is_in([])


def test_a_question_lists_its_steps_and_not_its_parts() -> None:
    assert {"filter", "agg", "sql", "ask", "table"} <= set(dir(Question("visits")))
    assert not {"asker", "kept", "conditions", "joins"} & set(dir(Question("visits")))
