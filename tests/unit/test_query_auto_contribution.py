"""CONTRIBUTION AUTO: bounds on a person's groups, rows and values, found with noise for a share of the budget."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.curator import Curator
from deniable.curator.query import auto_bounds
from deniable.errors import BudgetExceeded, DeniableError, QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.document import parse
from deniable.query.compile import compile_query, plan_relation
from deniable.query.sql.binder import bind_statement
from deniable.query.sql.clauses import Clauses, cut_clauses
from deniable.query.techniques.contribution import EDGES, choose_bound, plan_searches

POLICY = """
version: 1
dataset: shop
tables:
  sales:
    source: sales.parquet
    unit: {column: buyer BOUNDS}
    columns:
      buyer: {type: integer}
      kind: {categories: [a, b, c, d, e, f, g, h]}
      amount: {type: decimal}
      rating: {type: integer, between: [0, 5]}
budgets: {dataset: {epsilon: 300, delta: 1e-6}}
"""
BY_KIND = "SELECT kind, COUNT(*) AS n FROM sales GROUP BY kind CONTRIBUTION AUTO"


def _sales() -> pa.Table:
    """Of 3,000 buyers each bought five things, of three kinds: two of two of them, one of the third."""
    buyers = np.repeat(np.arange(3_000), 5)
    kinds = [("abcdefgh"[(buyer + step) % 8]) for buyer in range(3_000) for step in (0, 0, 1, 1, 2)]
    return pa.table({"buyer": buyers, "kind": kinds, "amount": 3.0 + (buyers % 50), "rating": buyers % 6})


def _open(bounds: str = "") -> Curator:
    return Curator(parse(POLICY.replace("BOUNDS", bounds)), sources={"sales": _sales()})


@pytest.fixture(scope="module")
def curator() -> Iterator[Curator]:
    with _open() as opened:
        yield opened


def _chosen(answer: Any) -> dict[str, int]:
    return {each["option"]: each["value"] for each in answer.release.details["contribution"]["chosen"]}


def test_bounds_are_found_stated_and_paid_once(curator: Curator) -> None:
    before = curator.remaining()
    told = curator.explain(BY_KIND, epsilon=5)
    assert told["cost"] == {"epsilon": "5", "delta": "0"}
    assert [each["finds"] for each in told["bounds"]] == ["max_groups_contributed", "max_rows_per_group"]
    assert [each["cost"]["epsilon"] for each in told["bounds"]] == ["0.25", "0.25"]
    assert "for 0.1 of the budget" in told["notes"][0]
    assert curator.remaining() == before, "an explanation is free"
    answer = curator.query(BY_KIND, epsilon=5)
    assert _chosen(answer) == {"max_groups_contributed": 3, "max_rows_per_group": 2}
    assert answer.release.details["cost"] == {"epsilon": "5", "delta": "0"}
    assert answer.release.guarantee.epsilon == 5
    assert answer.release.details["contribution"]["share"] == "0.1"
    assert "max_groups 3 and max_rows_per_group 2" in answer.release.details["notes"][0]
    assert before.epsilon - curator.remaining().epsilon == 5
    assert all(abs(row["n"] - 15_000 / 8) < 60 for row in answer.to_pylist())
    after = curator.remaining()
    again = curator.query(BY_KIND, epsilon=5)
    assert again.repeated
    assert curator.remaining() == after
    assert again.to_pylist() == answer.to_pylist()


def test_a_share_is_stated_and_values_without_bounds_are_clamped(curator: Curator) -> None:
    answer = curator.query(
        "SELECT SUM(amount) AS s, MAX(rating) AS r FROM sales CONTRIBUTION AUTO SHARE 0.5", epsilon=20
    )
    details = answer.release.details
    assert _chosen(answer) == {"max_rows_per_group": 6}
    assert [each["of"] for each in details["bounds"]] == ["amount"]
    assert (details["bounds"][0]["lower"], details["bounds"][0]["upper"]) == (0, 64)
    assert details["contribution"]["cost"] == {
        "bounds of amount": {"epsilon": "5", "delta": "0"},
        "max_rows_per_group": {"epsilon": "5", "delta": "0"},
    }
    true = float(np.sum(_sales()["amount"].to_numpy()))
    assert abs(answer.to_pylist()[0]["s"] - true) < 0.02 * true


@pytest.mark.parametrize(
    ("bounds", "wanted"),
    [
        (", max_groups: 2, max_rows_per_group: 1", {"max_groups_contributed": 2, "max_rows_per_group": 1}),
        (", bounding: scale", {"max_groups_contributed": 3, "max_rows_per_group": 2}),
        (", max_rows: 4", {"max_rows_contributed": 4}),
        (", max_rows: 400", {"max_rows_contributed": 6}),
    ],
)
def test_no_bound_is_looser_than_the_policys(bounds: str, wanted: dict[str, int]) -> None:
    with _open(bounds) as curator:
        assert _chosen(curator.query(BY_KIND, epsilon=20)) == wanted


def test_the_columns_of_the_answer_are_known_beforehand(curator: Curator) -> None:
    """As a client of the PostgreSQL protocol asks for them."""
    from deniable.curator.query.metadata import columns
    from deniable.policy.budget import budget

    stated = "CONTRIBUTION (max_groups_contributed = 3, max_rows_per_group = 2)"
    for sql in (BY_KIND, f"SELECT kind, SUM(AUTO_CLAMP(amount)) AS n FROM sales GROUP BY kind {stated}"):
        assert [each.name for each in columns(curator.context, sql, budget(1))] == ["kind", "n"]


def test_people_are_counted_without_a_bound_on_rows(curator: Curator) -> None:
    asked = "SELECT kind, COUNT(DISTINCT buyer) AS n FROM sales GROUP BY kind CONTRIBUTION AUTO"
    assert _chosen(curator.query(asked, epsilon=5)) == {"max_groups_contributed": 3}


def test_where_nothing_rises_above_the_noise_the_answer_says_so() -> None:
    with Curator(parse(POLICY.replace("BOUNDS", "")), sources={"sales": _sales().slice(0, 5)}) as curator:
        answer = curator.query("SELECT COUNT(*) AS n FROM sales CONTRIBUTION AUTO", epsilon=1)
    assert _chosen(answer) == {"max_rows_per_group": 1}
    assert "Nothing rose above the noise for max_rows_per_group" in answer.release.details["notes"][0]


def test_what_cannot_be_paid_is_refused_before_the_first_stage(curator: Curator) -> None:
    before = curator.remaining()
    with pytest.raises(BudgetExceeded):
        curator.query(BY_KIND, epsilon=3_000)
    assert curator.remaining() == before


def test_a_refusal_after_a_stage_does_not_say_that_nothing_was_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise QueryRefused("it is refused now")

    with _open() as curator:
        monkeypatch.setattr(auto_bounds.plain, "query", refuse)
        with pytest.raises(DeniableError) as refused:
            curator.query(BY_KIND, epsilon=5)
    assert refused.value.charged != QueryRefused("x").charged


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT COUNT(*) FROM sales CONTRIBUTION AUTO SHARE 2", "not a number between 0 and 1"),
        ("SELECT COUNT(*) FROM sales CONTRIBUTION AUTO PART 0.5", "not a number between 0 and 1"),
        ("SELECT COUNT(*) FROM sales CONTRIBUTION (epsilon = 2)", "bounds alone"),
        ("SELECT COUNT(*) FROM sales WITHIN 5 CONTRIBUTION AUTO", "WITHIN finds an epsilon"),
        ("SELECT COUNT(*) FROM sales CONTRIBUTION AUTO WITHIN 5", "WITHIN finds an epsilon"),
        ("SELECT COUNT(*) FROM sales WHERE amount > (SELECT AVG(rating) FROM sales) CONTRIBUTION AUTO", "one SELECT"),
        ("SELECT COUNT(*) FROM sales", "write CONTRIBUTION AUTO"),
    ],
)
def test_refusals_of_the_clause(curator: Curator, sql: str, said: str) -> None:
    with pytest.raises(QueryRefused, match=said):
        curator.query(sql, epsilon=1)


def test_bounds_may_be_stated_in_the_clause(curator: Curator) -> None:
    one = compile_query("SELECT COUNT(*) FROM visits CONTRIBUTION (max_rows_per_group = 1)", clinic.TABLES, PureDP(1))
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_rows_per_group = 1)"
    assert one.canonical == compile_query(f"SELECT {options} COUNT(*) FROM visits", clinic.TABLES, PureDP(1)).canonical
    assert cut_clauses("SELECT COUNT(*) FROM t AS contribution").auto is None
    person = "SELECT AVG(n) FROM (SELECT buyer, CLAMP(COUNT(*), 0, 9) AS n FROM sales GROUP BY buyer) AS p"
    assert curator.explain(f"{person} CONTRIBUTION AUTO", epsilon=1)["cost"]["epsilon"] == "1"


def test_the_bound_is_where_noise_and_what_is_cut_are_least() -> None:
    """By brute force over all bins, for invented counts of people."""
    relation, clauses = bind_statement(
        "SELECT COUNT(*) FROM visits CONTRIBUTION AUTO", clinic.with_unit(max_rows_per_group=None)
    )
    (search,) = plan_searches(relation, clauses)
    plan = plan_relation("people", search.node, Clauses("people"), PureDP(100))
    question = compile_query(
        "SELECT COUNT(*) FROM visits CONTRIBUTION (max_rows_per_group = 1)", clinic.TABLES, PureDP(1)
    )
    chance = np.random.default_rng(7)
    for _ in range(50):
        people = np.zeros(len(EDGES), dtype=np.int64)
        people[: chance.integers(1, 12)] += 5
        people[chance.integers(0, 20)] += chance.integers(1, 400)
        noisy = auto_bounds_noisy(people)
        found = choose_bound(search, plan, {search.node.name: (noisy,)}, question, 0.99)
        errors = [
            2**0.5 * edge + sum(int(n) * max(each - edge, 0) for each, n in zip(EDGES, people, strict=True))
            for edge in EDGES
        ]
        assert errors[EDGES.index(found.value)] == pytest.approx(min(errors), rel=0.01)


def auto_bounds_noisy(people: Any) -> Any:
    from deniable.query.execute import Noisy

    return Noisy(pa.table({"k0": list(range(len(EDGES)))}), (people,))


def test_edges_rise_by_half_at_most() -> None:
    assert list(EDGES) == sorted(set(EDGES))
    assert all(Fraction(b, a) <= 2 if a < 2 else Fraction(b, a) <= Fraction(3, 2) for a, b in pairwise(EDGES))


MANY = """
version: 1
dataset: many
tables:
  t:
    source: t.parquet
    unit: {column: pid BOUNDING}
    columns:
      pid: {type: integer}
      g: {type: integer, between: [0, 99]}
      k: {type: integer}
      x: {type: integer, between: [0, 9]}
budgets: {dataset: {epsilon: 1, delta: 1e-6, accounting: ACCOUNTING}}
"""
IN_SIXTY = pa.table(
    {
        "pid": np.repeat(np.arange(400), 60),
        "g": (np.repeat(np.arange(400), 60) + np.tile(np.arange(60), 400)) % 100,
        "k": np.tile(np.arange(60), 400),
        "x": np.tile(np.arange(60) % 10, 400),
    }
)
ASKED = [
    ("SELECT g, COUNT(*) AS n FROM t GROUP BY g CONTRIBUTION AUTO SHARE 0.3", {"epsilon": 1, "delta": 4e-7}),
    ("SELECT g, COUNT(*) AS n, SUM(x) AS m FROM t GROUP BY g CONTRIBUTION AUTO", {"epsilon": 1, "delta": 1e-7}),
    ("SELECT k, COUNT(*) AS n FROM t GROUP BY k CONTRIBUTION AUTO", {"epsilon": 1, "delta": 1e-7}),
    ("SELECT COUNT(*) AS n FROM t CONTRIBUTION AUTO", {"epsilon": 1, "delta": 1e-7}),
    ("SELECT g, COUNT(*) AS n FROM t GROUP BY g CONTRIBUTION AUTO", {"epsilon": 1}),
    ("SELECT g, COUNT(*) AS n FROM t GROUP BY g CONTRIBUTION AUTO", {"rho": 0.01}),
    ("SELECT g, AVG(x) AS n FROM t GROUP BY g CONTRIBUTION AUTO", {"epsilon": 0.5, "delta": 1e-7}),
]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("used", [{}, {"epsilon": 0.4}, {"rho": 0.004}])
@pytest.mark.parametrize(
    ("bounding", "accounting"),
    [("", "zcdp"), (", bounding: scale", "zcdp"), (", bounding: rows", "zcdp"), (", bounding: rows", "pld")],
)
def test_what_was_admitted_is_never_refused_after_its_stages(
    bounding: str, used: dict[str, float], accounting: str
) -> None:
    policy = MANY.replace("BOUNDING", bounding).replace("ACCOUNTING", accounting)
    answered = 0
    for sql, asked in ASKED:
        with Curator(parse(policy), sources={"t": IN_SIXTY}) as curator:
            if used:
                bound = " CONTRIBUTION (max_rows_contributed = 1)" if "rows" in bounding else ""
                curator.query(f"SELECT COUNT(DISTINCT pid) AS n FROM t{bound}", **used)
            before = len(list(curator.context.ledger.entries()))
            try:
                answer = curator.query(sql, **asked)
            except BudgetExceeded:
                assert len(list(curator.context.ledger.entries())) == before, (sql, asked)
                continue
            answered += 1
            left = curator.remaining()
            assert curator.query(sql, **asked).to_pylist() == answer.to_pylist(), "it is stored, and repeated"
            assert curator.remaining() == left
    assert answered >= (1 if used else 5)


def test_a_private_key_is_answered_with_found_bounds_where_it_is_with_stated_ones() -> None:
    asked = {"epsilon": 1, "delta": 1e-7}
    for clause in ("AUTO", "(max_groups_contributed = 60, max_rows_per_group = 1)"):
        with Curator(parse(MANY.replace("BOUNDING", "").replace("ACCOUNTING", "zcdp")), sources={"t": IN_SIXTY}) as one:
            answer = one.query(f"SELECT k, COUNT(*) AS n FROM t GROUP BY k CONTRIBUTION {clause}", **asked)
            assert answer.release.details["cost"] == {"epsilon": "1", "delta": "1e-07"}


def test_what_is_charged_in_all_is_what_was_asked() -> None:
    from deniable.dp.accounting import rho_within

    policy = parse(MANY.replace("BOUNDING", "").replace("ACCOUNTING", "zcdp"))
    sql, asked = ASKED[0]
    with Curator(policy, sources={"t": IN_SIXTY}) as curator:
        curator.query(sql, **asked)
        _, spent = curator.context.ledger.find_spent()
        assert spent is not None
        assert spent.cost.amount == rho_within(Fraction(1), Fraction("4e-7"))
    with Curator(policy, sources={"t": IN_SIXTY}) as curator:
        curator.query(ASKED[4][0], epsilon=0.7)
        assert curator.remaining().epsilon == Fraction("0.3")


SIGNED = MANY.replace("BOUNDING", "").replace("x: {type: integer, between: [0, 9]}", "x: {type: integer}")


def _ask_signed(values: np.ndarray[Any, Any], text: str, epsilon: float) -> Any:
    people = np.arange(len(values))
    table = pa.table({"pid": people, "g": people % 4, "k": people, "x": values})
    policy = parse(SIGNED.replace("epsilon: 1,", "epsilon: 200,").replace("ACCOUNTING", "pure"))
    with Curator(policy, sources={"t": table}) as curator:
        return curator.query(f"SELECT {text} AS n FROM t CONTRIBUTION AUTO", epsilon=epsilon)


def test_sums_of_signed_values_are_near_the_truth_with_bounds_that_were_found() -> None:
    """The noise of a sum between -128 and 128 has the scale 128 / 18, and passes 40 of them with a chance of e^-40."""
    values = (np.arange(2_000) * 37) % 201 - 100
    for text, truth in (("SUM(x)", values.sum()), ("SUM(CASE WHEN x < 0 THEN x ELSE 0 END)", values[values < 0].sum())):
        answer = _ask_signed(values, text, 20)
        (bounds,) = answer.release.details["bounds"]
        assert (bounds["lower"], bounds["upper"]) == ((-128, 128) if text == "SUM(x)" else (-128, 0))
        assert abs(answer.to_pylist()[0]["n"] - truth) < 40 * 128 / 18


def test_values_that_are_nearly_all_zero_are_not_bound_to_zero() -> None:
    answer = _ask_signed((np.arange(2_000) < 3) * 50, "SUM(x)", 5)
    (bounds,) = answer.release.details["bounds"]
    assert (bounds["lower"], bounds["upper"], bounds["found"]) == (0, 1, False)
    assert any("nothing rose above the noise" in note for note in answer.release.details["notes"])


OPEN_ENDED = """
version: 1
dataset: open
tables:
  t:
    source: t.parquet
    unit: {column: pid, max_groups: 4, max_rows_per_group: 1}
    columns:
      pid: {type: integer}
      g: {type: integer, between: [0, 3]}
      f: {type: boolean}
      d: {type: date}
      x: {type: integer}
      y: {type: decimal}
      b: {type: integer, between: [0, 9]}
budgets: {dataset: {epsilon: 2000, accounting: pure}}
"""


@pytest.fixture(scope="module")
def open_ended() -> Iterator[Curator]:
    n = np.arange(400)
    days = pa.array((n % 300 + 18_000).astype("int32")).cast(pa.date32())
    columns = {"pid": n, "g": n % 4, "f": n % 3 == 0, "d": days, "x": n * 37 % 201 - 100, "y": n % 50 / 2, "b": n % 10}
    with Curator(parse(OPEN_ENDED), sources={"t": pa.table(columns)}) as curator:
        yield curator


@pytest.mark.parametrize(
    ("asked", "bounded"),
    [
        ("SELECT g, SUM(x) AS n FROM t GROUP BY g ORDER BY SUM(x)", ["x"]),
        ("SELECT SUM(x) AS n, SUM( t.x ) AS m, AVG(x) AS a FROM t", ["x", "t.x"]),
        ("SELECT g, SUM(x) AS n FROM t GROUP BY g HAVING SUM(x) > 100 AND MAX(y) > 3", ["x", "y"]),
        ("SELECT MIN(x) AS a, MAX(y) AS n FROM t", ["x", "y"]),
        ("SELECT SUM(DISTINCT x) AS n, MAX(DISTINCT x) AS m FROM t", ["x"]),
        ("SELECT MEDIAN(x) AS n, QUANTILE(x, 0.9) AS m FROM t", ["x"]),
        ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x DESC) AS n FROM t", ["x"]),
        ("SELECT g, SUM(x) AS n, SUM(x) / SUM(SUM(x)) OVER () AS share FROM t GROUP BY g", ["x"]),
        ("SELECT g, RANK() OVER (ORDER BY SUM(x) DESC) AS r, SUM(x) AS n FROM t GROUP BY g", ["x"]),
        ("SELECT CORR(x, y) AS n FROM t", ["x", "y"]),
        ("SELECT\n  REGR_SLOPE(b, y) AS n,\n COVAR_POP(x, b) AS m\nFROM t", ["y", "x"]),
        ("SELECT SUM(AUTO_CLAMP(x)) AS n, SUM(x) AS m, SUM(b) AS k FROM t", ["x"]),
        ("SELECT MAX((x + 1) * 2) AS n, SUM(CASE WHEN f THEN x ELSE 0 END) AS m FROM t", None),
    ],
)
def test_every_value_without_bounds_is_bounded(open_ended: Curator, asked: str, bounded: list[str] | None) -> None:
    """The same aggregate may stand in several places; a value with public bounds needs none."""
    told = open_ended.explain(f"{asked} CONTRIBUTION AUTO", epsilon=1)
    found = [stage["finds"].removeprefix("bounds of ") for stage in told["bounds"] if "bounds of" in stage["finds"]]
    assert bounded is None or found == bounded
    assert found


def test_a_question_over_no_rows_is_free_with_bounds_to_be_found(open_ended: Curator) -> None:
    before = open_ended.remaining()
    answer = open_ended.query("SELECT COUNT(*) AS n, SUM(x) AS m FROM t WHERE FALSE CONTRIBUTION AUTO", epsilon=1)
    assert answer.to_pylist()[0]["n"] == 0
    assert open_ended.remaining() == before


REFUSED = {
    "COUNT(*) FROM t CONTRIBUTION AUTO SHARE 25%": "Write CONTRIBUTION AUTO SHARE 0.25",
    "COUNT(*) FROM t CONTRIBUTION AUTO SHARE 1/4": "Write CONTRIBUTION AUTO SHARE 0.25",
    "COUNT(*) FROM t CONTRIBUTION AUTO SHARE -0.1": "Write CONTRIBUTION AUTO SHARE 0.2",
    "COUNT(*) FROM t CONTRIBUTION AUTO SHARE 1": "Write CONTRIBUTION AUTO SHARE 0.2",
    "COUNT(*) FROM t CONTRIBUTION AUTO SHARE": "Write CONTRIBUTION AUTO SHARE 0.2",
    "COUNT(*) FROM t CONTRIBUTION AUTO 0.2": "Write CONTRIBUTION AUTO SHARE 0.2",
    "g, COUNT(*) AS n FROM t CONTRIBUTION AUTO GROUP BY g": "Write GROUP BY g CONTRIBUTION AUTO",
    "g, COUNT(*) AS n FROM t GROUP BY g CONTRIBUTION (max_rows_per_group = 1) ORDER BY n LIMIT 2":
        "Write ORDER BY n LIMIT 2 CONTRIBUTION (max_rows_per_group = 1)",
    "COUNT(*) FROM t CONTRIBUTION (max_groups = 1)": "Did you mean 'max_groups_contributed'",
    "COUNT(*) FROM t CONTRIBUTION (max_rows = 1)": "Did you mean 'max_rows_contributed'",
    ",COUNT(*) FROM t": "1:8: nothing stands before this comma",
    "COUNT(*),, SUM(b) FROM t": "1:17: two commas stand side by side",
    "COUNT(*) FROM t WHERE g IN (,1)": "nothing stands before this comma",
    "g, COUNT(*) FROM t GROUP BY ,g": "nothing stands before this comma",
    "SUM(b,) FROM t": "nothing stands after this comma",
    "COUNT(*) FROM t WHERE g IN ()": "the list after IN is empty",
    "MEDIAN(DISTINCT b) FROM t": "Write MEDIAN(x), of all rows",
    "QUANTILE(DISTINCT b, 0.5) FROM t": "Write QUANTILE(x, 0.9), of all rows",
    "STDDEV(DISTINCT b) FROM t": "Write STDDEV(x), of all rows",
    "AVG(DISTINCT b) FROM t": "Write SUM(DISTINCT x) / COUNT(DISTINCT x)",
    "g, COUNT(*) AS n FROM t GROUP BY n": "GROUP BY n names an aggregate",
    "g, COUNT(*) AS n FROM t GROUP BY 7": "There are 2 items. Write GROUP BY 1",
    "APPROX_COUNT_DISTINCT(b, 5) FROM t": "APPROX_COUNT_DISTINCT is not understood with a second argument",
    "VAR(b) FROM t": "Use VARIANCE",
    "BOOL_OR(f) FROM t": "BOOL_OR is not one of the aggregates that can be released with noise. Count with COUNT_IF(x)",
    "MAX(d) FROM t": "MAX(CLAMP(d, DATE '2020-01-01', DATE '2029-12-31'))",
    "QUANTILE(x, 0.9) FROM t": "QUANTILE(CLAMP(x, 0, 100), 0.9)",
    "SUM(b, contribution_bounds_per_group => (20, 0)) FROM t": "The lower bound, then the upper",
    "SUM(x) AS n FROM t UNION ALL SELECT SUM(y) AS n FROM t CONTRIBUTION AUTO": "Ask each SELECT by itself",
}  # fmt: skip


@pytest.mark.parametrize("asked", REFUSED)
def test_refusals_say_the_nearest_question_that_is_answered(open_ended: Curator, asked: str) -> None:
    with pytest.raises(QueryRefused) as refusal:
        open_ended.explain(f"SELECT {asked}", epsilon=1)
    assert REFUSED[asked] in str(refusal.value)


@pytest.mark.parametrize(
    "asked",
    [
        "SELECT COUNT(*) AS n, FROM t WHERE g IN (1, 2,) GROUP BY g, ORDER BY n,",
        "SELECT SUM(q.n) AS m FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g,) AS q",
        "SELECT g, RANK() OVER (ORDER BY COUNT(*) DESC,) AS r FROM t GROUP BY g",
        "SELECT COUNT(*) AS n FROM t CONTRIBUTION AUTO SHARE .25",
        "SELECT COUNT(*) AS n FROM t CONTRIBUTION AUTO SHARE 2.5e-1",
        "SELECT COUNT(*) AS n FROM t contribution",
        "SELECT COUNT(*) AS contribution FROM t contribution ORDER BY contribution",
        "SELECT STDDEV(b) AS n FROM t",
        "SELECT MAX(CLAMP(d, DATE '2020-01-01', DATE '2029-12-31')) AS n FROM t",
    ],
)
def test_what_a_refusal_must_not_take_for_a_mistake(open_ended: Curator, asked: str) -> None:
    assert open_ended.explain(asked, epsilon=1)["cost"]["epsilon"] == "1"


# Bounds that the question cannot be planned with

AGGREGATES = [
    "SUM(AUTO_CLAMP(big))", "SUM(EXP(AUTO_CLAMP(big)))", "AVG(AUTO_CLAMP(big))", "VARIANCE(AUTO_CLAMP(big))",
    "STDDEV(AUTO_CLAMP(big))", "MAX(AUTO_CLAMP(big))", "MEDIAN(AUTO_CLAMP(big))", "SUM(DISTINCT AUTO_CLAMP(big))",
    "COUNT(DISTINCT AUTO_CLAMP(big))", "CORR(AUTO_CLAMP(big), AUTO_CLAMP(-big))", "SUM(POWER(AUTO_CLAMP(big), 2))",
    "SUM(AUTO_CLAMP(big) * AUTO_CLAMP(big))", "SUM(SQRT(AUTO_CLAMP(big)))", "SUM(SQRT(AUTO_CLAMP(-big)))",
]  # fmt: skip


@pytest.fixture(scope="module")
def huge() -> Iterator[Curator]:
    """Of 4,000 people each has two values above 2^53: all of them are in the outermost bin."""
    people = np.repeat(np.arange(4_000), 2)
    rows = pa.table({"person": people, "big": 2**53 + people * 2**40})
    with Curator.from_frame(rows, unit="person", budget=10_000, name="events", max_rows_per_group=8) as opened:
        yield opened


def _ask(curator: Curator, sql: str, epsilon: str) -> Any:
    before = curator.remaining()
    answer = curator.query(sql, epsilon=epsilon)
    spent = before.epsilon - curator.remaining().epsilon
    assert spent <= Fraction(epsilon), "less where a stage was measured for another question"
    assert answer.release.details["cost"]["epsilon"] == epsilon
    return answer.release


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "100"])
@pytest.mark.parametrize("clause", ["CONTRIBUTION (max_rows_per_group = 1)", "CONTRIBUTION AUTO"])
def test_whatever_bounds_are_found_the_question_is_answered(huge: Curator, clause: str, epsilon: str) -> None:
    narrowed = {}
    for aggregate in AGGREGATES if epsilon != "0.5" else AGGREGATES[:2]:
        release = _ask(huge, f"SELECT {aggregate} AS q FROM events {clause}", epsilon)
        narrowed[aggregate] = auto_bounds.NARROWED in release.details["notes"]
    assert narrowed["SUM(AUTO_CLAMP(big))"] == (epsilon != "100"), "2^52 / 90 can be drawn"
    assert narrowed["SUM(EXP(AUTO_CLAMP(big)))"]


def test_bounds_are_narrowed_no_more_than_the_noise_demands(huge: Curator) -> None:
    """Epsilon 0.45 is left: 2^50 / 0.45 is below 2^52, and 2^51 / 0.45 is above it."""
    release = _ask(huge, "SELECT SUM(AUTO_CLAMP(big)) AS q FROM events CONTRIBUTION (max_rows_per_group = 1)", "0.5")
    assert f"CLAMP(big, 0, {2**50})" in release.provenance.parameters["sql"]
    assert release.details["bounds"][0]["upper"] == 2**50
    release = _ask(huge, "SELECT SUM(AUTO_CLAMP(big)) AS q FROM events CONTRIBUTION (max_rows_per_group = 1)", "90")
    assert release.details["bounds"][0]["upper"] == 2**52
    assert "No wider ones are looked for" in release.details["notes"][0]


def test_a_function_of_values_of_both_signs_is_asked_of_those_above_zero(curator: Curator) -> None:
    value = "amount * CASE WHEN rating < 3 THEN -1 ELSE 1 END"
    release = _ask(curator, f"SELECT SUM(SQRT(AUTO_CLAMP({value}))) AS q FROM sales CONTRIBUTION AUTO", "20")
    assert (release.details["bounds"][0]["lower"], release.details["bounds"][0]["upper"]) == (0, 64)
    assert auto_bounds.NARROWED in release.details["notes"]


def test_what_cannot_be_planned_with_the_narrowest_bounds_is_refused_before_the_first_charge(huge: Curator) -> None:
    """2^52 fits the whole budget, and nine tenths of it leave 2^52 / 0.9."""
    before = huge.remaining()
    with pytest.raises(QueryRefused, match="above 2"):
        huge.query(
            f"SELECT SUM(AUTO_CLAMP(big) + {2**52 - 1}) AS q FROM events CONTRIBUTION (max_rows_per_group = 1)",
            epsilon=1,
        )
    assert huge.remaining() == before


# Rows that no aggregate reads


def _sell_apart() -> Curator:
    """Each of 400 buyers has four rows, of which one has a rating of 5."""
    buyers = np.repeat(np.arange(400), 4)
    table = {
        "buyer": buyers,
        "kind": ["a", "b", "c", "d"] * 400,
        "amount": 1.0 * (buyers % 9),
        "rating": [0, 1, 2, 5] * 400,
    }
    return Curator(parse(POLICY.replace("BOUNDS", "")), sources={"sales": pa.table(table)})


@pytest.mark.parametrize(
    ("select", "wanted"),
    [
        ("SUM(rating) AS n FROM sales WHERE rating > 4", 1),
        ("SUM(rating) FILTER (WHERE rating > 4) AS n FROM sales", 1),
        ("SUM(rating) FILTER (WHERE rating > 4) AS n, COUNT(*) FILTER (WHERE rating = 2) AS m FROM sales", 2),
        ("SUM(rating) FILTER (WHERE rating > 4) AS n, COUNT(*) AS m FROM sales", 4),
    ],
)
def test_rows_that_no_filter_keeps_are_not_counted(select: str, wanted: int) -> None:
    with _sell_apart() as curator:
        assert _chosen(curator.query(f"SELECT {select} CONTRIBUTION AUTO", epsilon=50)) == {
            "max_rows_per_group": wanted
        }


def test_groups_of_rows_that_no_filter_keeps_count_only_where_keys_are_chosen_by_them() -> None:
    """Whether a key that is not public is shown follows from all people who have it."""
    asked = "COUNT(*) FILTER (WHERE rating > 4) AS n FROM sales GROUP BY 1 CONTRIBUTION AUTO"
    with _sell_apart() as curator:
        assert _chosen(curator.query(f"SELECT kind, {asked}", epsilon=50))["max_groups_contributed"] == 1
        shown = curator.query(f"SELECT UPPER(kind || 'x'), {asked}", epsilon=50, delta="1e-7")
        assert _chosen(shown)["max_groups_contributed"] > 1
