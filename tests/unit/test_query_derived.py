"""Questions that follow from stored measurements: free, right, with true errors; charged where they do not follow."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.curator.context import MEASURED
from deniable.curator.query import derived
from deniable.dp.samplers import SYSTEM
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import AccessRefused
from deniable.governance.grants import Asker
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query import atoms, derive
from deniable.query.compile import compile_query
from deniable.query.execute import Reader, measure
from deniable.query.plan import QueryPlan

PEOPLE = 400
ONE, MUCH = PureDP(Fraction(1)), PureDP(Fraction(9_999))
COLUMNS = (
    Column("pid", ColumnType.INTEGER, opaque=True),
    Column("kind", ColumnType.TEXT, categories=("a", "b", "c")),
    Column("sex", ColumnType.TEXT, categories=("f", "m")),
    Column("qty", ColumnType.INTEGER, bounds=Bounds(Fraction(0), Fraction(10)), nullable=False),
    Column("age", ColumnType.INTEGER, bounds=Bounds(Fraction(0), Fraction(99))),
    Column("amount", ColumnType.DECIMAL, bounds=Bounds(Fraction(-5), Fraction(100), Fraction(1, 100))),
    Column("flag", ColumnType.BOOLEAN),
)
UNITS = {
    "row": PrivacyUnit(),
    "one row": PrivacyUnit("pid", max_rows=1, bounding=Bounding.ROWS),
    "several rows": PrivacyUnit("pid", max_groups=4, max_rows_per_group=3),
    "rows in all": PrivacyUnit("pid", max_rows=3, bounding=Bounding.ROWS),
    "scaled": PrivacyUnit("pid", max_groups=4, max_rows_per_group=3, bounding=Bounding.SCALE),
}


def make_rows(several: bool, seed: int = 7, holes: bool = False) -> pa.Table:
    """People with one row each, or with up to five; with `holes`, nulls where the policy says that there are none."""
    draw = np.random.default_rng(seed)
    pid = np.repeat(np.arange(PEOPLE), draw.integers(1, 6, PEOPLE)) if several else np.arange(PEOPLE)
    size = len(pid)

    def hide(values: Any) -> pa.Array:
        return pa.array(values, mask=draw.random(size) < 0.1)

    return pa.table(
        {
            "pid": pid,
            "kind": hide(draw.choice(["a", "b", "c", "undeclared"], size)),
            "sex": hide(draw.choice(["f", "m"], size)),
            "qty": draw.integers(0, 11, size) if not holes else hide(draw.integers(0, 11, size)),
            "age": hide(draw.integers(-3, 110, size)),
            "amount": hide(np.round(draw.uniform(-9, 120, size), 2)),
            "flag": hide(draw.random(size) < 0.4),
        }
    )


def open_engine(rows: pa.Table) -> DuckDBEngine:
    engine = DuckDBEngine()
    engine.attach("t", rows)
    return engine


def schema(unit: str) -> tuple[TableSchema, ...]:
    return (TableSchema("t", "t.parquet", COLUMNS, UNITS[unit]),)


def store(plan: QueryPlan, engine: Any) -> derive.Stored:
    return derive.Stored(plan, measure(plan, engine), "release", datetime.now(UTC), plan.cost)


def follow(plan: QueryPlan, stored: Sequence[derive.Stored], engine: Any) -> derive.Derived | None:
    views = atoms.list_views(plan)
    assert views is not None
    sources = [(view, each) for each in stored for view in atoms.list_views(each.plan) or []]
    return derive.derive(plan, views, sources, Reader(engine, SYSTEM, None, {}))


def differ(left: derive.Derived, right: QueryPlan, measured: Any) -> bool:
    """Whether numbers differ by more than their noise, or have other groups."""
    for node, other in zip(left.plan.nodes, right.nodes, strict=True):
        for place, (step, twin) in enumerate(zip(node.steps, other.steps, strict=True)):
            mine, own = left.measured[node.node.name][place], measured[other.node.name][place]
            if sort_keys(mine.keys, len(mine.values[0]))[1] != sort_keys(own.keys, len(own.values[0]))[1]:
                return True
            orders = [sort_keys(each.keys, len(each.values[0]))[0] for each in (mine, own)]
            for i, (one, two) in enumerate(zip(step.placed, twin.placed, strict=True)):
                far = np.abs(mine.values[i][orders[0]].astype(float) - own.values[i][orders[1]]).max(initial=0)
                if far > one.accuracy(1e-9) + two.accuracy(1e-9) + 1:
                    return True
    return False


def sort_keys(keys: pa.Table, rows: int) -> tuple[list[int], list[str]]:
    """The order of groups by their keys, and the keys in it."""
    listed = [str(row) for row in keys.to_pylist()] if keys.num_columns else [""] * rows
    order = sorted(range(len(listed)), key=lambda i: listed[i])
    return order, [listed[i] for i in order]


# -- right numbers: noise so small that answers are exact -------------------------------------------------------------

TESTS = ["qty > 3", "qty >= 4", "qty < 8", "qty BETWEEN 4 AND 7", "kind = 'a'", "kind <> 'c'", "kind IN ('a', 'b')",
         "sex = 'f'", "flag", "NOT flag", "age IS NULL", "age < 30", "age >= 30", "amount > 20.5", "kind IS NOT NULL",
         "qty > 3 AND sex = 'f'", "qty > 3 OR flag", "CASE WHEN qty > 3 THEN TRUE ELSE FALSE END"]  # fmt: skip
ITEMS = ["COUNT(*)", "COUNT(age)", "COUNT(amount)", "SUM(amount)", "AVG(amount)", "SUM(age)", "AVG(age)", "SUM(qty)",
         "VARIANCE(age)", "STDDEV(amount)", "COUNT(DISTINCT kind)", "COUNT(DISTINCT pid)"]  # fmt: skip
KEYS = ["", "", "", "kind", "sex", "kind, sex", "qty", "sex, flag"]


Words = tuple[list[str], list[str], list[str]]


def draw_words(draw: random.Random) -> Words:
    """The conditions, aggregates and keys of some questions: few, so that one may follow from another."""
    return draw.sample(TESTS, 2), draw.sample(ITEMS, 3), draw.sample(KEYS, 2)


def draw_question(draw: random.Random, words: Words, most: int) -> str:
    tests, listed, keys = words
    items = []
    for place in range(draw.randint(1, most)):
        test = f" FILTER (WHERE {draw.choice(tests)})" if draw.random() < 0.4 else ""
        items.append(f"{draw.choice(listed)}{test} AS x{place}")
    where = f" WHERE {draw.choice(tests)}" if draw.random() < 0.3 else ""
    key = draw.choice(keys)
    grouping = f" GROUP BY {key}" if key else ""
    return f"SELECT {', '.join([*([key] if key else []), *items])} FROM t{where}{grouping}"


def count_wrong(unit: str, several: bool, questions: int, seed: int, holes: bool = False) -> tuple[int, list[str]]:
    """How many random questions followed from earlier ones, and those that came out wrong."""
    draw, engine, tables = random.Random(seed), open_engine(make_rows(several, holes=holes)), schema(unit)
    followed, wrong = 0, list[str]()
    for _ in range(questions):
        words = draw_words(draw)
        stored = [store(compile_query(draw_question(draw, words, 5), tables, MUCH), engine) for _ in range(2)]
        for _ in range(6):
            text = draw_question(draw, words, 2)
            plan = compile_query(text, tables, PureDP(Fraction(5_000)))
            found = follow(plan, stored, engine)
            if found is None:
                continue
            followed += 1
            exact = compile_query(text, tables, MUCH)
            if differ(found, exact, measure(exact, engine)):
                wrong.append(f"{text} from {'; '.join(each.plan.text for each in found.sources)}")
    return followed, wrong


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("unit", "several", "least"),
    [
        ("row", True, 20),
        ("one row", False, 20),
        ("several rows", False, 10),
        ("rows in all", False, 10),
        ("scaled", False, 2),
    ],
)
def test_what_follows_is_what_would_have_been_measured(unit: str, several: bool, least: int) -> None:
    followed, wrong = count_wrong(unit, several, 15, 1)
    assert not wrong
    assert followed >= least


def test_people_with_several_rows_are_bounded_as_they_would_have_been() -> None:
    followed, wrong = count_wrong("several rows", True, 20, 5)
    # Which rows of a person count is drawn anew for quantiles, distinct values and groups: those are not compared here.
    wrong = [each for each in wrong if "DISTINCT" not in each and "GROUP BY" not in each]
    assert followed >= 8
    assert not wrong


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("unit", ["row", "one row"])
def test_nulls_that_should_not_be_are_in_no_condition(unit: str) -> None:
    followed, wrong = count_wrong(unit, False, 15, 3, holes=True)
    assert followed >= 8
    assert not wrong


def test_numbers_that_are_not_bounded_alike_would_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoms, "_sign", lambda view, held, atoms: ())
    monkeypatch.setattr(atoms._Lowered, "view", _forget_bounds(atoms._Lowered.view))
    _, wrong = count_wrong("several rows", True, 20, 5)
    assert wrong


def _forget_bounds(view: Any) -> Any:
    return lambda self, node, place: replace(view(self, node, place), single=True)


# -- which questions follow -------------------------------------------------------------------------------------------

FILTERS = (
    "COUNT(*) FILTER (WHERE qty < 1) AS a, COUNT(*) FILTER (WHERE qty < 4) AS b, COUNT(*) FILTER (WHERE qty < 8) AS c"
)
APART = "COUNT(*) FILTER (WHERE qty < 1) AS a, COUNT(*) FILTER (WHERE qty BETWEEN 1 AND 3) AS b, " \
        "COUNT(*) FILTER (WHERE qty BETWEEN 4 AND 7) AS c"  # fmt: skip
FOLLOWING = [
    ("kind, COUNT(*) AS n, SUM(qty) AS s FROM t GROUP BY kind", "kind, COUNT(*) AS n FROM t GROUP BY kind"),
    ("VARIANCE(qty) AS v FROM t", "AVG(qty) AS m, COUNT(*) AS n FROM t"),
    ("SUM(amount) AS s, COUNT(amount) AS n FROM t", "AVG(amount) AS m FROM t"),
    ("VARIANCE(amount) AS v FROM t", "AVG(amount) AS m, COUNT(amount) AS n FROM t"),
    ("CORR(amount, qty) AS r FROM t", "COVAR_POP(amount, qty) AS c FROM t"),
    ("kind, COUNT(*) AS n, SUM(amount) AS s FROM t GROUP BY kind", "kind, COUNT(*) AS n FROM t GROUP BY kind"),
    ("kind, sex, COUNT(*) AS n FROM t GROUP BY kind, sex", "sex, kind, COUNT(*) AS n FROM t GROUP BY sex, kind"),
    (f"{FILTERS} FROM t", f"{APART} FROM t"),
    ("COUNT(*) AS n FROM t WHERE qty > 3", "COUNT(*) FILTER (WHERE qty >= 4) AS n FROM t"),
    ("COUNT(*) AS n FROM t WHERE qty > 3", "COUNT_IF(qty > 3) AS n FROM t"),
    ("COUNT(*) AS n FROM t WHERE qty > 3", "SUM(CASE WHEN qty > 3 THEN 1 ELSE 0 END) AS n FROM t"),
    ("COUNT(*) AS n FROM t WHERE qty > 3", "COUNT(qty) AS n FROM t WHERE qty BETWEEN 4 AND 10"),
    ("COUNT(*) AS n FROM t WHERE age > 3", "COUNT(age) AS n FROM t WHERE age > 3 AND age IS NOT NULL"),
    ("SUM(amount) AS s FROM t", "SUM(CLAMP(amount, -5, 100)) AS s FROM t"),
    ("MEDIAN(age) AS m, COUNT(*) AS n FROM t", "MEDIAN(age) AS m FROM t"),
    ("QUANTILE(age, 0.1) AS a, MEDIAN(age) AS m, COUNT(*) AS n FROM t",
     "QUANTILE(age, 0.1) AS a, MEDIAN(age) AS m FROM t"),
    ("COUNT(DISTINCT kind) AS d, COUNT(*) AS n FROM t", "COUNT(DISTINCT kind) AS d FROM t"),
    ("kind, COUNT(*) AS n FROM t GROUP BY ROLLUP(kind)", "kind, COUNT(*) AS n FROM t GROUP BY kind"),
    ("kind, COUNT(*) AS n FROM t GROUP BY ROLLUP(kind)", "COUNT(*) AS n FROM t"),
]  # fmt: skip
BY_CONDITION = [
    ("kind, COUNT(*) AS n FROM t GROUP BY kind", "COUNT(*) AS n FROM t WHERE kind = 'a'"),
    ("kind, COUNT(*) AS n FROM t GROUP BY kind", "COUNT(kind) AS n FROM t"),
    (
        "kind, sex, SUM(amount) AS s FROM t GROUP BY kind, sex",
        "sex, SUM(amount) AS s FROM t WHERE kind <> 'c' GROUP BY sex",
    ),
    ("qty, COUNT(*) AS n FROM t GROUP BY qty", "COUNT(*) FILTER (WHERE qty < 5) AS n FROM t"),
]
"""What follows only where each row is a person."""
BEYOND = [
    ("COUNT(*) AS n FROM t WHERE qty > 3", "COUNT(*) AS n FROM t WHERE qty > 5"),
    ("COUNT(*) AS n FROM t", "COUNT(*) AS n FROM t WHERE flag"),
    ("COUNT(*) AS n FROM t", "SUM(age) AS n FROM t"),
    ("kind, COUNT(*) AS n FROM t GROUP BY kind", "COUNT(*) AS n FROM t"),  # rows of no declared kind are in no group
    ("kind, COUNT(*) AS n FROM t GROUP BY kind", "sex, COUNT(*) AS n FROM t GROUP BY sex"),
    ("qty, COUNT(*) AS n FROM t GROUP BY qty", "COUNT(*) AS n FROM t"),
    ("COUNT(*) AS n FROM t", "COUNT(*) AS n FROM t WHERE qty BETWEEN 0 AND 10"),  # a null would be in neither
    ("AVG(age) AS m FROM t", "VARIANCE(age) AS v FROM t"),
    ("MEDIAN(age) AS m FROM t", "QUANTILE(age, 0.9) AS m FROM t"),
    ("COUNT(DISTINCT kind) AS d FROM t", "COUNT(DISTINCT kind) AS d FROM t WHERE flag"),
    ("SUM(amount) AS s FROM t", "SUM(CLAMP(amount, 0, 50)) AS s FROM t"),
    ("COUNT(*) AS n FROM t WHERE amount > 20", "COUNT(*) AS n FROM t WHERE amount >= 20"),
]


def follows(unit: str, before: str, after: str, first: Budget = ONE, then: Budget = ONE) -> derive.Derived | None:
    engine, tables = open_engine(make_rows(unit != "row")), schema(unit)
    stored = [store(compile_query(f"SELECT {before}", tables, first), engine)]
    return follow(compile_query(f"SELECT {after}", tables, then), stored, engine)


@pytest.mark.parametrize("unit", ["row", "several rows"])
@pytest.mark.parametrize(("before", "after"), FOLLOWING)
def test_a_question_follows_from_what_was_measured(before: str, after: str, unit: str) -> None:
    assert follows(unit, before, after) is not None


@pytest.mark.parametrize(("before", "after"), BY_CONDITION)
def test_groups_are_conditions_where_each_row_is_a_person(before: str, after: str) -> None:
    assert follows("row", before, after) is not None
    assert follows("several rows", before, after) is None
    assert follows("one row", before, after) is None  # one of several counts, and conditions decide which


@pytest.mark.parametrize("unit", ["row", "several rows"])
@pytest.mark.parametrize(("before", "after"), BEYOND)
def test_a_question_that_does_not_follow_is_measured(before: str, after: str, unit: str) -> None:
    assert follows(unit, before, after) is None


def test_joins_with_public_tables_and_listed_numbers_follow() -> None:
    rows = make_rows(False).append_column("code", pa.array([[10, 20, 30][i % 3] for i in range(PEOPLE)]))
    engine = open_engine(rows)
    engine.attach("p", pa.table({"kind": ["a", "b", "c"], "name": ["x", "y", "z"]}))
    code = Column("code", ColumnType.INTEGER, categories=(10, 20, 30))
    public = TableSchema(
        "p", "p.parquet", (Column("kind", ColumnType.TEXT), Column("name", ColumnType.TEXT)), public=True
    )
    tables = (TableSchema("t", "t.parquet", (*COLUMNS, code), UNITS["row"]), public)
    joined = "FROM t JOIN p ON t.kind = p.kind"
    for before, after in (
        (
            f"p.name, COUNT(*) AS n, SUM(t.qty) AS s {joined} GROUP BY p.name",
            f"p.name, AVG(t.qty) AS m {joined} GROUP BY p.name",
        ),
        (f"COUNT(*) AS n, SUM(t.qty) AS s {joined}", f"COUNT(*) AS n {joined}"),
        ("flag, code, COUNT(*) AS n FROM t GROUP BY flag, code", "COUNT(*) AS n FROM t WHERE flag AND code <> 10"),
        ("flag, code, COUNT(*) AS n FROM t GROUP BY flag, code", "flag, COUNT(code) AS n FROM t GROUP BY flag"),
    ):
        stored = store(compile_query(f"SELECT {before}", tables, MUCH), engine)
        found = follow(compile_query(f"SELECT {after}", tables, ONE), [stored], engine)
        assert found is not None
        exact = compile_query(f"SELECT {after}", tables, MUCH)
        assert not differ(found, exact, measure(exact, engine))


def test_a_larger_budget_is_measured_anew_unless_it_buys_nothing() -> None:
    both, one = "kind, COUNT(*) AS n, SUM(amount) AS s FROM t GROUP BY kind", "kind, COUNT(*) AS n FROM t GROUP BY kind"
    assert follows("row", both, one, ONE, ONE) is not None
    assert follows("row", both, one, ONE, PureDP(Fraction(11, 10))) is None
    # Joined, a sum and a count have the noise that each alone would have with half of the budget.
    assert follows("row", one, both, PureDP(Fraction(2)), ONE) is None  # no sum was measured
    gaussian = ApproxDP(Fraction(1), Fraction(1, 10**6))
    assert follows("row", one, one, ZCDP(Fraction(2)), gaussian) is not None  # other units, less noise
    assert follows("row", one, one, ZCDP(Fraction(1, 1000)), gaussian) is None


def test_a_question_follows_from_several_and_costs_what_they_cost() -> None:
    engine, tables = open_engine(make_rows(False)), schema("row")
    half = PureDP(Fraction(1, 2))
    stored = [store(compile_query(f"SELECT {item} FROM t", tables, half), engine)
              for item in ("SUM(amount) AS s", "COUNT(*) AS n", "COUNT(amount) AS n")]  # fmt: skip
    found = follow(compile_query("SELECT AVG(amount) AS m FROM t", tables, half), stored, engine)
    assert found is not None
    assert follow(compile_query("SELECT AVG(amount) AS m FROM t", tables, ONE), stored, engine) is None
    assert found.plan.cost == ONE
    assert [each.plan.text for each in found.sources] == [stored[0].plan.text, stored[2].plan.text]


@pytest.mark.slow
def test_errors_are_those_of_the_numbers_that_it_follows_from() -> None:
    """The spread of many answers is the stated deviation."""
    engine, tables = open_engine(make_rows(False)), schema("row")
    for before, after in (
        (f"{FILTERS} FROM t", f"{APART} FROM t"),
        ("VARIANCE(amount) AS v FROM t", "SUM(amount) AS s FROM t"),
        ("kind, sex, COUNT(*) AS n FROM t GROUP BY kind, sex", "COUNT(*) AS n FROM t WHERE kind <> 'c' AND sex = 'f'"),
    ):
        source, plan = (compile_query(f"SELECT {text}", tables, ONE) for text in (before, after))
        runs, placed = [], ()
        for _ in range(200):
            found = follow(plan, [store(source, engine)], engine)
            assert found is not None
            runs.append([float(column[0]) for column in found.measured["m0"][0].values])
            placed = found.plan.nodes[0].steps[0].placed
        exact = compile_query(f"SELECT {after}", tables, MUCH)
        truth = [float(column[0]) for column in measure(exact, engine)["m0"][0].values[: len(placed)]]
        for place, each in enumerate(placed):
            errors = np.array([run[place] for run in runs]) - truth[place]
            assert abs(errors.mean()) < 5 * each.deviation / 200**0.5
            assert 0.8 < errors.std() / each.deviation < 1.25
            assert np.mean(np.abs(errors) <= each.accuracy(0.05)) > 0.89


def test_numbers_stored_in_the_order_of_another_wording_are_not_used() -> None:
    engine, tables = open_engine(make_rows(False)), schema("row")
    stored = store(compile_query(f"SELECT {FILTERS} FROM t", tables, ONE), engine)
    assert derive.is_whole(stored.plan, stored.measured)
    (noisy,) = stored.measured["m0"]
    turned = replace(noisy, values=(*noisy.values[:3], *noisy.values[:2:-1]))
    assert not derive.is_whole(stored.plan, {"m0": (turned,)})
    assert not derive.is_whole(stored.plan, {"m0": (replace(noisy, values=noisy.values[:3]),)})


# -- asking -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def curator(tmp_path: Path) -> Iterator[Curator]:
    rows = make_rows(False).select(["kind", "qty", "amount"])
    bounds = {"qty": (0, 10), "amount": (-5, 100, "0.01")}
    with Curator.from_frame(
        rows, "row", 10, name="t", bounds=bounds, categories={"kind": ["a", "b", "c"]}, ledger=tmp_path / "l.sqlite"
    ) as opened:
        yield opened


def test_a_question_that_follows_reads_no_row_and_says_what_was_paid(curator: Curator, monkeypatch: Any) -> None:
    before = curator.query("SELECT kind, COUNT(*) AS n, SUM(amount) AS s FROM t GROUP BY kind", epsilon=2)
    left = curator.remaining()
    monkeypatch.setattr(type(curator.context.scope), "attach", lambda *_, **__: pytest.fail("rows were read"))
    told = curator.explain("SELECT COUNT(*) AS n FROM t WHERE kind = 'b'", epsilon="0.1")
    after = curator.query("SELECT COUNT(*) AS n FROM t WHERE kind = 'b'", epsilon="0.1")
    assert after.repeated
    assert after.receipt is None
    assert curator.remaining() == left
    known = {row["kind"]: row for row in before.to_pylist()}["b"]
    assert after.to_pylist() == [{name: known[name] for name in ("n", "n_low", "n_high")}]
    # The claim is that of the measurement: a tenth of epsilon would be said of numbers that cost two.
    assert after.release.guarantee.epsilon == 2
    assert after.release.details["cost"] == {"epsilon": "2", "delta": "0"}
    assert after.release.details["release"] == before.release.details["release"]
    assert "state a larger budget than epsilon 2" in str(after.release.details["notes"])
    assert "follows from what was measured" in told.notes[0]
    error = after.to_pylist()[0]["n_high"] - after.to_pylist()[0]["n"]
    assert told.aggregates[0].measurements[0].error == error


def test_a_batch_answers_later_questions(curator: Curator) -> None:
    tiles = ["SELECT kind, COUNT(*) AS n FROM t GROUP BY kind", "SELECT COUNT(*) AS n FROM t WHERE qty < 5",
             "SELECT SUM(amount) AS s FROM t"]  # fmt: skip
    batch = curator.query_batch(tiles, epsilon=3)
    left = curator.remaining()
    answer = curator.query("SELECT COUNT(*) FILTER (WHERE qty <= 4) AS n FROM t", epsilon="0.5")
    assert answer.repeated
    assert answer.to_pylist()[0]["n"] == batch[1].to_pylist()[0]["n"]
    by_kind = curator.query("SELECT kind, COUNT(*) AS n FROM t GROUP BY kind", epsilon="0.5", intervals=False)
    assert by_kind.to_pylist() == [{name: row[name] for name in ("kind", "n")} for row in batch[0].to_pylist()]
    assert curator.remaining() == left
    assert not curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 3", epsilon="0.5").repeated


LARGE = {
    "many values": "SELECT COUNT(*) AS n, SUM(qty) AS s FROM t WHERE qty IN (" + ", ".join(map(str, range(1100))) + ")",
    "many sums": "SELECT " + ", ".join(f"SUM(qty + {i}) AS s{i}" for i in range(65)) + " FROM t",
    "many grouping sets": "SELECT kind, COUNT(*) AS n, " + ", ".join(f"SUM(qty + {i}) AS s{i}" for i in range(40))
    + " FROM t GROUP BY GROUPING SETS ((kind), ())",
}  # fmt: skip


@pytest.mark.parametrize("asked", LARGE.values(), ids=LARGE)
def test_a_question_that_takes_long_to_read_is_read_by_nobody_else(
    asked: str, curator: Curator, monkeypatch: Any
) -> None:
    curator.query(asked, epsilon=2)
    monkeypatch.setattr(derived, "_read_source", lambda *_: pytest.fail("a large question was read again"))
    assert not curator.query("SELECT SUM(qty) AS n FROM t WHERE qty < 10", epsilon="0.5").repeated
    assert curator.query(asked, epsilon=2).repeated


def test_the_answer_stays_the_same_while_more_is_measured(curator: Curator) -> None:
    curator.query("SELECT qty, COUNT(*) AS n FROM t GROUP BY qty", epsilon=1)
    first = curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 4", epsilon=1).to_pylist()
    curator.query("SELECT qty, COUNT(*) AS n FROM t GROUP BY qty", epsilon=2)
    assert curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 4", epsilon=1).to_pylist() == first
    later = curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 4", epsilon=2)
    assert later.repeated
    assert later.release.guarantee.epsilon == 2


def test_a_difference_of_two_stays_what_it_was_when_the_same_is_measured_alone(curator: Curator) -> None:
    for test in ("< 3", "< 6"):
        curator.query(f"SELECT COUNT(*) AS n FROM t WHERE qty {test}", epsilon="0.2")
    between = "SELECT COUNT(*) AS n FROM t WHERE qty BETWEEN 3 AND 5"
    first = curator.query(between, epsilon="0.1")
    assert first.repeated
    both = "SELECT COUNT(*) FILTER (WHERE qty BETWEEN 3 AND 5) AS n, COUNT(*) FILTER (WHERE kind = 'a') AS m FROM t"
    assert not curator.query(both, epsilon="0.2").repeated
    assert curator.query(between, epsilon="0.1").to_pylist() == first.to_pylist()


def test_a_request_id_that_was_charged_keeps_its_own_answer(curator: Curator) -> None:
    curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 4", epsilon=1, request="mine")
    with pytest.raises(AccessRefused, match="another question"):
        curator.query("SELECT COUNT(*) FILTER (WHERE qty <= 3) AS n FROM t", epsilon=1, request="mine")
    assert curator.query("SELECT COUNT(*) FILTER (WHERE qty <= 3) AS n FROM t", epsilon=1, request="new").repeated


def test_a_new_epoch_or_an_open_ledger_of_before_measures_again(curator: Curator) -> None:
    curator.query("SELECT qty, COUNT(*) AS n FROM t GROUP BY qty", epsilon=1)
    curator.new_epoch("data came")
    assert not curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 4", epsilon=1).repeated
    # A question whose text cannot be read any more is passed over.
    (name, told), *_ = curator.context.store.list_all(MEASURED).items()
    broken = json.dumps(json.loads(told) | {"questions": ["SELECT gone FROM t"]}).encode()
    place = name.rpartition(":")[0]
    curator.context.store.keep(MEASURED, f"{place}:1", f"{place}:1", broken)
    assert not curator.query("SELECT COUNT(*) AS n FROM t WHERE qty < 6", epsilon=1).repeated


def test_a_question_that_estimates_its_bias_is_measured(curator: Curator) -> None:
    curator.query("SELECT SUM(qty) AS n FROM t", epsilon=1)
    assert not curator.query("SELECT SUM(qty) AS n FROM t", epsilon=1, bias_share="0.1").repeated
    before = curator.remaining()
    curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM t", epsilon=1)
    curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM t", epsilon="0.5")
    assert before is not None
    assert curator.remaining().epsilon == before.epsilon - Fraction(3, 2)
    curator.query("SELECT COUNT(*) AS n, AVG(AUTO_CLAMP(amount)) AS m FROM t WHERE qty > 2", epsilon=1)
    # Its noise was chosen by bounds that were paid for, too: what follows from it would claim too little.
    assert not curator.query("SELECT COUNT(*) AS n FROM t WHERE qty > 2", epsilon="0.1").repeated


def test_a_question_without_rows_needs_no_bounds_and_a_sum_of_one_number_errs_by_it(curator: Curator) -> None:
    left = curator.remaining()
    assert curator.query("SELECT SUM(AUTO_CLAMP(amount)) AS s FROM t WHERE FALSE", epsilon=1).to_pylist() == [
        {"s": None}
    ]
    assert curator.remaining() == left
    one, many = (
        curator.explain(f"SELECT SUM({each}) AS s FROM t", epsilon=1).aggregates[0].measurements[0].error
        for each in ("1", "1000000")
    )
    answer = curator.query("SELECT SUM(1000000) AS s FROM t", epsilon=1).to_pylist()[0]
    assert many == 1_000_000 * one == answer["s_high"] - answer["s"]


def test_stored_questions_are_read_once_and_what_one_reader_leaves_out_hides_no_other(
    curator: Curator, monkeypatch: Any
) -> None:
    from deniable.curator.query import batch, derived
    from deniable.curator.query.sql import compile_sql, find_following, recompile_question, state_budget

    curator.query("SELECT SUM(qty) AS s FROM t", epsilon="0.5")
    curator.query_batch(["SELECT COUNT(*) AS n FROM t WHERE qty > 7", "SELECT SUM(amount) AS a FROM t"], epsilon=1)
    curator.query("SELECT kind, COUNT(*) AS n FROM t GROUP BY kind", epsilon=2)
    context, read = curator.context, list[str]()
    context.plans.clear()
    inner = derived._read_source
    monkeypatch.setattr(derived, "_read_source", lambda *given: (read.append(json.dumps(given[1])), inner(*given))[1])
    plan = compile_sql(context, "SELECT COUNT(*) AS n FROM t WHERE kind = 'b'", state_budget("0.1", 0, None))
    for _ in range(2):  # one reader knows no batches: it reads that entry again, and the others once
        assert find_following(context, plan, recompile_question) is not None
    assert [sum(mark in each for each in read) for mark in ("SUM(qty)", "SUM(amount)", "GROUP BY kind")] == [1, 2, 1]
    for _ in range(2):
        assert find_following(context, plan, batch.recompile) is not None
    assert len(read) == 5
    curator.query("SELECT MAX(qty) AS m FROM t", epsilon="0.1")  # a later one is found by those who read before
    assert find_following(context, plan, batch.recompile) is not None
    assert len(read) == 6


def test_what_another_analyst_asked_at_length_costs_nobody_time(tmp_path: Path, monkeypatch: Any) -> None:
    """Questions follow from long ones of the same analyst, and from short ones of all."""
    pq.write_table(pa.table({"id": ["a", "b", "c"], "qty": [1, 2, 3]}), tmp_path / "t.parquet")
    (tmp_path / "policy.yaml").write_text(
        "{version: 1, dataset: d, tables: {t: {source: t.parquet, unit: row, columns: {id: {role: identifier}, "
        "qty: {type: integer, between: [0, 9]}}}}, budgets: {dataset: {epsilon: 100}, purposes: {p: {epsilon: 100}}, "
        "analysts: {ana: {purposes: [p], epsilon: 50}, eve: {purposes: [p], epsilon: 50}}}}"
    )
    ana, eve = Asker("ana", "p"), Asker("eve", "p")
    inner, read = derived._read_source, list[str]()
    monkeypatch.setattr(derived, "_read_source", lambda *given: (read.append(given[1]["by"]), inner(*given))[1])
    long = "SELECT " + ", ".join(f"COUNT_IF(qty > {n}) AS n{n}" for n in range(20)) + ", SUM(qty) AS s FROM t"
    assert len(long.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()) > derived.MOST_WORDS
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query(long, epsilon=5, who=eve)
        for asker, charged in ((eve, False), (ana, True)):
            answer = curator.query("SELECT COUNT_IF(qty > 4) AS n FROM t", epsilon="0.1", who=asker)
            assert (answer.receipt is not None) == charged
        assert set(read) == {"eve"}
        curator.query("SELECT SUM(qty) AS s, COUNT(*) AS n FROM t", epsilon=5, who=ana)
        assert curator.query("SELECT COUNT(*) AS n FROM t", epsilon="0.1", who=eve).receipt is None


@pytest.mark.parametrize("where", ["", " WHERE qty > 3", " WHERE amount > 20"])
def test_what_one_question_said_is_said_again(curator: Curator, where: str) -> None:
    """Counts beside sums of their rows: sums tell something of them, but their own answers stand."""
    said = curator.query(
        f"SELECT kind, COUNT(*) AS n, SUM(qty) AS s, SUM(amount) AS a FROM t{where} GROUP BY kind", epsilon="0.5"
    ).to_pylist()
    left, joined = curator.remaining(), " AND" if where else " WHERE"
    for name, aggregate in (("n", "COUNT(*)"), ("s", "SUM(qty)"), ("a", "SUM(amount)")):
        told = curator.query(f"SELECT kind, {aggregate} AS v FROM t{where} GROUP BY kind", epsilon="0.5").to_pylist()
        assert [row["v"] for row in told] == [row[name] for row in said]
        for row in said:
            one = f"SELECT {aggregate} AS v FROM t{where}{joined} kind = '{row['kind']}'"
            assert curator.query(one, epsilon="0.5").to_pylist()[0]["v"] == row[name]
    assert curator.remaining() == left
