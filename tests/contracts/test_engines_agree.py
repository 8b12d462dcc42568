"""Every engine gives the same exact numbers before noise: random questions, and the values that engines differ on."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

import clinic
from clinic import UNIT
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.fetching import SEVERAL, count_combinations
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP
from deniable.policy.schema import Bounding, ColumnType
from deniable.query.algebra.relation import tables_of
from deniable.query.compile import compile_query
from deniable.query.execute import measure
from deniable.query.keys import PublicKeys
from deniable.query.plan import QueryPlan
from deniable.query.sql.dialects import refuse_unsupported
from deniable.synth.describe import encode_table, render_bounded_select
from deniable.synth.domain import Labels, attributes_of, build_domain
from deniable.synth.encode import RowsElsewhere
from deniable.synth.marginal import count_all
from engines_elsewhere import UploadingAdbc, UploadingPostgreSQL, UploadingSpark
from sql_grammar import Grammar

QUICK_QUESTIONS = {"postgresql": 25, "spark": 5, "adbc": 15}
"""A statement takes Spark a second, however few rows there are."""
PLACES = {"adbc": "postgresql+adbc://clinic"}
"""The place of an engine's tables, where its name does not tell the language."""
# So many groups and rows that no unit has more; and so few that vectors are scaled.
TABLES = {
    "sampled": clinic.with_unit(max_groups=10_000, max_rows_per_group=1_000),
    "scaled": clinic.with_unit(bounding=Bounding.SCALE, max_groups=2, max_rows_per_group=3),
}
BUDGET = ZCDP(Fraction(1, 2), Fraction(1, 10**6))
ODD = [
    {"pid": 7, "sex": "Ü", "note": "ẞtraße ÄÖ", "city": "Ada", "charge": 250.0, "ratio": 1e308, "score": 2**62},
    {"pid": 8, "sex": "F", "note": "tab\tnew\nline", "city": "ada", "charge": 0.25, "ratio": -1e308, "score": -(2**62)},
    {"pid": 9, "sex": "M", "note": "", "city": "Ä", "charge": 0.75, "ratio": 1e-300, "score": 0},
    {"pid": 10, "sex": "F", "note": "emoji 🙂 e\u0301", "city": "a", "charge": float("nan"), "ratio": float("inf")},
    {"pid": 11, "day": date(1883, 2, 28), "seen": datetime(1969, 12, 31, 23, 59, 59, 500000), "ratio": -0.0},
    {"pid": 12, "day": date(9999, 12, 31), "seen": datetime(2020, 2, 29, 12, 30, 15), "ratio": 5e-324, "age": 200},
    {"pid": 13, "sex": None, "note": "a_b%c\\d", "city": "B", "delta": -999, "charge": -0.0, "ratio": 2.5},
    {"pid": 14, "sex": "M", "note": "abcdefgh", "city": "Brin", "ratio": -2147483649.0, "score": -(2**31)},
    {"pid": 15, "sex": "F", "note": "abcdefgh", "city": "Brin", "ratio": 2147483648.0, "score": 2**31 - 1},
    {"pid": 16, "sex": "F", "note": "abc", "city": "Brin", "ratio": -1e18, "score": -(2**63)},
    {"pid": None, "sex": "F", "age": 50},
]


def odd_rows() -> pa.Table:
    """Ordinary visits, and values that engines treat differently."""
    return pa.concat_tables([clinic.people(count=150, rows=220, seed=5), clinic.rows_of(ODD)])


@dataclass
class Both:
    """Runs each statement on two engines, and compares what they give."""

    here: DuckDBEngine
    there: Any
    compared: int = 0
    rows: int = 0
    sampling: bool = False
    """Whether units have more groups or rows than are kept."""

    def run(self, sql: str, parameters: Any = None, **options: Any) -> pa.Table:
        """What the embedded engine gives, if the other gives the same."""
        expected = self.here.run(sql, parameters, **options)
        found = self.there.run(sql, parameters, **{**options, "one_row": False})
        assert found.column_names == expected.column_names
        if not (self.sampling and "hash(" in sql):  # which groups are kept is each engine's own choice
            assert settled(found) == settled(expected), sql
            self.compared, self.rows = self.compared + 1, self.rows + expected.num_rows
        return expected


def settled(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a table, in an order of their own."""
    rows = [tuple(plain(value) for value in row.values()) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def plain(value: Any) -> object:
    """A value, equal for what is one number in whichever type."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return float(value) if hasattr(value, "as_tuple") and abs(value) < 2**53 else int(value) if hasattr(
        value, "as_tuple") else value  # fmt: skip


@pytest.fixture(scope="module", params=["postgresql", "spark", "adbc"])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The clinic in two engines."""
    rows = odd_rows()
    here = clinic.engine(visits=rows, stays=rows.slice(20, 60), answers=rows)
    if request.param == "spark":
        elsewhere: Any = UploadingSpark(request.getfixturevalue("spark_session"), tmp_path_factory.mktemp("spark"))
    else:
        kind = {"postgresql": UploadingPostgreSQL, "adbc": UploadingAdbc}[request.param]
        elsewhere = kind(request.getfixturevalue("postgres_address"))
    with here, elsewhere as there:
        for table in clinic.TABLES:
            given = clinic.REGION_ROWS if table.public else {"stays": rows.slice(20, 60)}.get(table.name, rows)
            there.attach(table.name, given, None if table.public else table)
        yield Both(here, there)


def compile_both(text: str, which: str, elsewhere: str) -> QueryPlan | None:
    """The plan of a question about rows that both engines can compute; None for another, and for one of many groups."""
    try:
        plan = compile_query(text, TABLES[which], BUDGET)
        refuse_unsupported(plan, lambda name: PLACES.get(elsewhere, elsewhere))
    except QueryRefused:
        return None
    return plan if count_cells(plan) <= 500 and any(tables_of(n.node) for n in plan.nodes) else None


def count_cells(plan: QueryPlan) -> int:
    """How many public groups a plan has."""
    return max((s.keys.cells or 0 for n in plan.nodes for s in n.steps if isinstance(s.keys, PublicKeys)), default=0)


def ask_random(both: Both, questions: int, seed: int, begin: int = 0) -> int:
    """Ask random questions up to a number, from a place on; says how many statements were compared.

    Each place has a seed of its own, so a run that was stopped goes on where it was.
    """
    before = both.compared
    for place in range(begin, questions):
        grammar, plan = Grammar(random.Random(f"{seed} {place}")), None
        while plan is None:
            text = grammar.statement()
            plan = compile_both(text, ("sampled", "scaled")[place % 2], both.there.dialect)
        both.sampling = place % 2 == 1
        try:
            measure(plan, both)
        except AssertionError as difference:
            raise AssertionError(f"{text}\n{difference}") from None
    return both.compared - before


def test_random_questions_have_equal_exact_answers(both: Both) -> None:
    questions = QUICK_QUESTIONS[both.there.dialect]
    assert ask_random(both, questions, seed=20) >= (questions + 1) // 2  # every second one has people with more rows
    assert both.rows > questions  # something was compared


FOUND = (
    "SELECT COUNT(*) AS n, SUM(CLAMP(COALESCE(NULL, EXTRACT(month FROM NULL)), 0, 100)) AS s FROM visits",
    "SELECT sex, SUM(CLAMP(COALESCE(NULL, NULL, age), 0, 100)) AS s FROM visits GROUP BY sex",
    "SELECT COUNT(*) AS n, SUM(CASE WHEN NULL THEN age ELSE 1 END) AS s FROM visits WHERE age > 1 OR NULL",
    "SELECT COUNT(*) FILTER (WHERE NULL) AS n, COUNT(*) AS m FROM visits WHERE COALESCE(NULL, NULL)",
    "SELECT delta, COUNT(*) AS n, COUNT(LEFT(city, CASE WHEN delta > 0 THEN 1 END)) AS m FROM visits GROUP BY delta",
    "SELECT COUNT(*) AS n, SUM(CLAMP(v, -10, 10)) AS s FROM (SELECT NULL AS v, sex AS t FROM visits) q WHERE t <> 'x'",
    "SELECT COUNT(*) AS n FROM (SELECT pid, SUM(age) AS v, MAX(NULL) AS c FROM visits GROUP BY pid) p WHERE v > c",
    "SELECT COUNT(*) AS n FROM visits WHERE SQRT(score) <> LEAST(NULL, DATE_DIFF('day', NULL, day))",
    "SELECT COUNT(*) AS n, SUM(CLAMP(2020 % ABS(score * score), -100, 100)) AS s FROM visits WHERE score % 7 < 3",
    "SELECT delta, COUNT(*) AS n, COUNT(RIGHT(city, CASE WHEN delta > 0 THEN 1 END)) AS m FROM visits GROUP BY delta",
    "SELECT (ratio / 2147483647) AS r, city, COUNT(*) AS n FROM visits GROUP BY (ratio / 2147483647), city",
    "SELECT COUNT(*) AS n FROM visits WHERE CLAMP(ratio, 0, 1) * CLAMP(ratio, 0, 1) > 0 OR CLAMP(ratio, -1, 1) / 3 < 0",
    "SELECT SUM(CLAMP(NULL, 0, 100)) AS s FROM visits v LEFT JOIN stays s ON v.pid = s.pid ORDER BY 1",
    "SELECT COUNT(*) AS n, SUM(CLAMP(CLAMP(ratio, 0, 1) / 1000 * 0.01, 0, 1)) AS s FROM visits",
    "SELECT COUNT(*) AS n, SUM(CLAMP(day - DATE_TRUNC('day', DATE '2020-02-29'), 0, 100)) AS s FROM visits"
    " WHERE DATE_TRUNC('month', CAST(seen AS DATE)) <> DATE_TRUNC('hour', day)",
)
"""Random questions that one engine refused once, or counted otherwise."""


@pytest.mark.parametrize("text", FOUND)
def test_questions_that_differed_once_have_equal_exact_answers(both: Both, text: str) -> None:
    plan = compile_both(text, "sampled", both.there.dialect)
    if plan is None:
        pytest.skip("refused here, before it is charged")
    both.sampling = False
    measure(plan, both)


MEASURED = ("sex", "age", "delta", "charge", "day", "insured")


def test_marginals_are_counted_in_each_engine_as_python_counts_them(both: Both) -> None:
    table = next(each for each in clinic.TABLES if each.name == "visits")
    attributes = attributes_of(table, MEASURED)
    domain, cliques = build_domain(attributes), [(0,), (1,), (3,), (4,), (0, 1), (2, 3), (4, 5), (0, 1, 3)]
    rows = both.here.run("SELECT * FROM visits WHERE pid IS NOT NULL")
    exact = count_all(encode_table(rows, attributes), domain, cliques)
    everything = render_bounded_select(table, replace(UNIT, max_rows=None), 1_000, MEASURED)
    for engine in (both.here, both.there):
        found = count_all(RowsElsewhere(everything, engine.run).encode(attributes), domain, cliques)
        for one, other in zip(exact, found, strict=True):
            assert (one == other).all()
    people = Counter(rows["pid"].to_pylist())
    few = RowsElsewhere(render_bounded_select(table, UNIT, 2, MEASURED), both.there.run).encode(attributes)
    assert count_all(few, domain, [(0,)])[0].sum() == sum(min(each, 2) for each in people.values())


def test_many_labels_are_told_apart_in_each_engine_as_in_python(both: Both) -> None:
    """They are searched by halves, in an order that is the same everywhere."""
    words = ("Ada", "ada", "a", "B", "Brin", "AA", "Z", "z", "~", " ", "", "b'c", "10", "9", *map(chr, range(97, 115)))
    attributes = (
        Labels("city", ColumnType.TEXT, tuple(dict.fromkeys(words)), True),
        Labels("age", ColumnType.INTEGER, (200, *range(60, 0, -3), -5), True),
    )
    rows, domain, cliques = both.here.run("SELECT * FROM visits"), build_domain(attributes), [(0,), (1,), (0, 1)]
    exact = count_all(encode_table(rows, attributes), domain, cliques)
    for engine in (both.here, both.there):
        there = RowsElsewhere("SELECT city, age FROM visits", engine.run).encode(attributes)
        for one, other in zip(exact, count_all(there, domain, cliques), strict=True):
            assert (one == other).all()


def test_combinations_are_counted_in_each_engine_as_python_counts_them(both: Both) -> None:
    columns = ("sex", "day", "city", "insured", "age")
    rows = both.here.run("SELECT * FROM visits").select(columns).to_pylist()
    exact = Counter(tuple(row.values()) for row in rows)
    for engine in (both.here, both.there):
        found = count_combinations(engine, "visits", columns, "n", 1_000).to_pylist()
        assert {tuple(row[name] for name in columns): row["n"] for row in found} == exact
    for person in ("pid", "note"):
        whose, told = Counter(row[person] for row in both.here.run("SELECT * FROM visits").to_pylist()), []
        for engine in (both.here, both.there):
            found = count_combinations(engine, "visits", columns, "n", 1_000, person)
            assert {tuple(row[name] for name in columns): row["n"] for row in found.to_pylist()} == exact
            told.append([found[each].unique().to_pylist() for each in SEVERAL])
        assert told[0] == told[1]
        assert max(whose.values()) > 1
        assert told[0][0][0] > 0


@pytest.mark.slow
def test_two_thousand_random_questions_have_equal_exact_answers(both: Both, request: pytest.FixtureRequest) -> None:
    """A run that is stopped goes on from pytest's cache (`.pytest_cache/v/engines_agree`), which counts what agreed."""
    cache, key = request.config.cache, f"engines_agree/{both.there.dialect}"
    assert cache is not None
    state = cache.get(key, None) or {"seed": random.SystemRandom().randrange(1 << 30), "questions": 0, "statements": 0}
    while state["questions"] < 2_000:
        upto = state["questions"] + 10
        state["statements"] += ask_random(both, upto, state["seed"], state["questions"])
        state["questions"] = upto
        cache.set(key, state)
    cache.set(key, None)  # the next run draws others
    assert state["statements"] >= 1_000, state  # of every second question the groups that are kept are the engine's own
