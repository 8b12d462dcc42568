"""Paid estimates of how many people clamping and contribution bounds have cut."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

import clinic
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounds
from deniable.query.bias import report_estimates
from deniable.query.compile import compile_query
from deniable.query.execute import execute, measure

SURE = ApproxDP(Fraction(9_000), Fraction(1, 1000))
ROWS = [{"pid": i, "age": 100 if i < 7 else 50, "city": "Ada"} for i in range(40)]
ROWS += [{"pid": 20, "age": 50, "city": city} for city in ("Brin", "Cole", "Dorn")]
ROWS += [{"pid": 21, "age": 50, "city": "Ada"}] * 5


def test_units_at_a_bound_and_units_that_were_cut_are_counted() -> None:
    sql = "SELECT city, SUM(age) AS s FROM visits GROUP BY city"
    plan = compile_query(sql, clinic.TABLES, SURE, bias_share="0.2")
    with clinic.engine(visits=clinic.rows_of(ROWS)) as engine:
        told = report_estimates(plan, measure(plan, engine), 0.95)
        assert execute(plan, engine).column_names == ["city", "s", "s_low", "s_high"]
    assert [(row["counts"], row["units"]) for row in told] == [
        ("units with a value at or beyond the bounds of SUM(age)", 7),
        ("units with more rows or groups than count", 2),
    ]


def test_estimates_cost_their_share_and_no_more() -> None:
    sql = "SELECT SUM(age) AS s, COUNT(*) AS n FROM visits"
    plan = compile_query(sql, clinic.TABLES, PureDP(Fraction(1)), bias_share="0.1")
    extra = [p for node in plan.nodes[1:] for step in node.steps for p in step.placed]
    assert sum(p.share for p in extra) == Fraction(1, 10)
    assert all(p.sensitivity.l1 == 1 for p in extra)
    assert plan.cost.epsilon == 1
    assert plan.canonical != compile_query(sql, clinic.TABLES, PureDP(Fraction(1))).canonical


def test_rows_as_units_have_only_values_to_clamp() -> None:
    plan = compile_query("SELECT AVG(age) FROM answers", clinic.TABLES, PureDP(Fraction(1)), bias_share="0.1")
    assert len(plan.nodes) == 2


def test_each_copy_of_a_row_that_is_a_unit_counts_in_the_noise_of_an_estimate() -> None:
    sql = "SELECT SUM(age) AS s FROM (SELECT * FROM answers UNION ALL SELECT * FROM answers) AS u"
    plan = compile_query(sql, clinic.TABLES, PureDP(Fraction(1)), bias_share="0.5")
    (estimate,) = [p for node in plan.nodes[1:] for step in node.steps for p in step.placed]
    assert estimate.sensitivity.l1 == 2


def test_nothing_is_estimated_without_a_share() -> None:
    assert len(compile_query("SELECT AVG(age) FROM visits", clinic.TABLES, PureDP(Fraction(1))).nodes) == 1


@pytest.mark.parametrize("share", ["0", "1", "-1", "much"])
def test_a_share_is_between_0_and_1(share: str) -> None:
    with pytest.raises(QueryRefused, match="share"):
        compile_query("SELECT AVG(age) FROM visits", clinic.TABLES, PureDP(Fraction(1)), bias_share=share)


def test_bounds_of_a_product_beyond_64_bits_are_compared_as_its_values_are() -> None:
    most = 1 << 40
    wide = [
        replace(
            table,
            columns=tuple(
                replace(each, bounds=Bounds(-most, most)) if each.name in ("age", "delta") else each
                for each in table.columns
            ),
        )
        for table in clinic.TABLES
    ]
    plan = compile_query("SELECT VARIANCE(age * delta) AS v FROM visits", tuple(wide), SURE, bias_share="0.2")
    rows = [{"pid": i, "age": most if i < 3 else 50, "delta": most, "city": "Ada"} for i in range(40)]
    with clinic.engine(visits=clinic.rows_of(rows)) as engine:
        told = report_estimates(plan, measure(plan, engine), 0.95)
    assert ("units with a value at or beyond the bounds of VARIANCE(age * delta)", 3) in [
        (row["counts"], row["units"]) for row in told
    ]
