"""Forms of contribution bounds: what each keeps, what it costs, and who decides."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import clinic
from deniable.errors import ParameterError, PolicyError, QueryRefused
from deniable.policy.budget import ZCDP, Budget, PureDP
from deniable.policy.document import parse
from deniable.policy.schema import Bounding, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.explain import explain
from deniable.query.plan import Placed, QueryPlan
from deniable.query.sql.clauses import cut_clauses

SURE = PureDP(Fraction(10_000))
COUNTS = "SELECT city, COUNT(*) AS n, SUM(age) AS s FROM visits GROUP BY city"
CITIES = ("Ada", "Brin", "Cole")


def public_city(**changes: Any) -> TableSchema:
    from dataclasses import replace

    table = clinic.with_unit(**changes)[0]
    cities = tuple(replace(c, categories=CITIES) if c.name == "city" else c for c in table.columns)
    return replace(table, columns=cities)


def in_all(rows: int) -> dict[str, Any]:
    return {"bounding": Bounding.ROWS, "max_groups": None, "max_rows_per_group": None, "max_rows": rows}


def answered(sql: str, records: list[dict[str, Any]], budget: Budget = SURE, **unit: Any) -> list[dict[str, Any]]:
    """The answer under so much budget that noise is a rounding error."""
    with clinic.engine(visits=clinic.rows_of(records)) as engine:
        rows: list[dict[str, Any]] = execute(
            compile_query(sql, (public_city(**unit),), budget), engine, intervals=False
        ).to_pylist()
        return rows


def placed(sql: str, budget: Budget, **unit: Any) -> Placed:
    return compile_query(sql, (public_city(**unit),), budget).nodes[0].steps[0].placed[0]


EVERYWHERE = [{"pid": 1, "city": city, "age": 50} for city in CITIES for _ in range(2)]


def total(rows: list[dict[str, Any]], name: str = "n") -> int:
    return sum(row[name] for row in rows)


def test_rows_in_all_are_kept_in_whichever_groups_they_are() -> None:
    for _ in range(5):
        assert total(answered(COUNTS, EVERYWHERE, **in_all(5))) == 5
        assert total(answered(COUNTS, EVERYWHERE, **in_all(6))) == 6
    assert total(answered(COUNTS, EVERYWHERE, max_groups=2, max_rows_per_group=3)) == 4


def test_rows_in_all_follow_from_groups_and_rows_in_each() -> None:
    unit = {"bounding": Bounding.ROWS, "max_groups": 2, "max_rows_per_group": 2}
    assert total(answered(COUNTS, EVERYWHERE, **unit)) == 4


def test_rows_in_all_bound_medians_and_distinct_values_too() -> None:
    many = [{"pid": 1, "city": "Ada", "age": age} for age in range(40)]
    records = many + [{"pid": pid, "city": "Ada", "age": 90} for pid in (2, 3, 4)]
    (row, *_) = answered("SELECT city, COUNT(DISTINCT age) AS d FROM visits GROUP BY city", records, **in_all(3))
    assert row["d"] == 4
    (row, *_) = answered("SELECT city, MEDIAN(age) AS m FROM visits GROUP BY city", records, **in_all(2))
    assert row["m"] == 90


OFTEN = [{"pid": pid, "age": age} for pid in range(2_000) for age in (1, 1, 1, 0)]
ONE_EACH = {"max_groups": 1, "max_rows_per_group": 1}


def test_a_sum_alone_loses_nothing_to_rounding_where_rows_are_cut() -> None:
    """A person with ages 1, 1, 1, 0 counts for 0.75, and not for nothing."""
    for text, expected in (("SUM(age)", 1_500), ("SUM(delta)", -1_500), ("SUM(age / 2)", 750)):
        records = [{**each, "delta": -each["age"]} for each in OFTEN]
        assert total(answered(f"SELECT {text} AS n FROM visits", records, **ONE_EACH)) == expected
    rows = [{"pid": pid, "age": 1 if row else 0} for pid in range(2_000) for row in range(3)]
    assert abs(total(answered("SELECT SUM(age) AS n FROM visits", rows, **ONE_EACH)) - 2_000 * 2 / 3) <= 1


@pytest.mark.parametrize("unit", [ONE_EACH, in_all(1)], ids=["in each group", "in all"])
@pytest.mark.parametrize(("text", "share"), [("AVG(age)", 0.75), ("SUM(age) / 2000.0", 0.75)])
def test_each_row_of_a_person_is_as_likely_as_another(unit: dict[str, Any], text: str, share: float) -> None:
    """A value that a person has three times is chosen three times as often; 0.05 are five deviations."""
    (row,) = answered(f"SELECT {text} AS n FROM visits", OFTEN, **unit)
    assert abs(row["n"] - share) < 0.05


@pytest.mark.parametrize("form", ["groups", "rows in all"])
def test_every_group_is_kept_by_as_many_people(form: str) -> None:
    """Everybody is in eight groups and keeps two: each group keeps a quarter; 0.05 are five deviations."""
    records = [{"pid": pid, "age": age} for pid in range(2_000) for age in range(8)]
    unit = {"max_groups": 2, "max_rows_per_group": 1} if form == "groups" else in_all(2)
    sql = "SELECT age % 8 AS k, COUNT(*) AS n FROM visits GROUP BY age % 8"
    for _ in range(3):
        rows = answered(sql, records, ZCDP(Fraction(100), Fraction(1, 10**6)), **unit)
        shares = [row["n"] / 2_000 for row in rows if row["k"] in range(8)]
        assert len(shares) == 8
        assert all(abs(share - 0.25) < 0.05 for share in shares)


def test_people_choose_their_rows_for_themselves() -> None:
    """With everybody's same ten ages, a median of one row each lies in the middle, whatever the salt."""
    records = [{"pid": pid, "city": "Ada", "age": 10 * age} for pid in range(500) for age in range(10)]
    for unit in (ONE_EACH, in_all(1)):
        (row,) = answered("SELECT MEDIAN(age) AS m FROM visits", records, **unit)
        assert 30 <= row["m"] <= 60
        (row,) = answered("SELECT COUNT(DISTINCT age) AS d FROM visits", records, **unit)
        assert row["d"] == 10


def test_values_are_bounded_in_each_of_the_groups_that_a_person_keeps() -> None:
    """Ages 0 of one person with a thousand rows in each city, and 90 of three with one: two rows of the first count."""
    many = [{"pid": 1, "city": city, "age": 0} for city in CITIES for _ in range(1_000)]
    records = many + [{"pid": pid, "city": city, "age": 90} for pid in (2, 3, 4) for city in CITIES]
    sql = "SELECT city, MEDIAN(age) AS m, COUNT(DISTINCT age) AS d FROM visits GROUP BY city"
    for row in answered(sql, records, max_groups=3, max_rows_per_group=2):
        assert (row["m"], row["d"]) == (90, 2)


def test_every_choice_of_rows_is_fresh() -> None:
    records = [{"pid": 1, "city": city, "age": 50} for city in CITIES]
    wanted, kept = {(1, 0, 0), (0, 1, 0), (0, 0, 1)}, set[tuple[int, ...]]()
    # Each of three rows is kept with probability 1/3: one is missed in 60 answers with probability 3 (2/3)^60 < 1e-10.
    for _ in range(60):
        kept.add(tuple(r["n"] for r in answered(COUNTS, records, **in_all(1))))
        if kept >= wanted:
            break
    assert kept == wanted


@pytest.mark.parametrize(("budget", "error"), [(SURE, 3), (ZCDP(Fraction(10_000)), 45)], ids=["L1", "L2"])
def test_scaling_keeps_whoever_is_within_the_norm_as_he_is(budget: Budget, error: int) -> None:
    """The sums have Laplace noise of scale 0.12, Gaussian noise of deviation 4.3: errors are passed at below 1e-10."""
    unit = {"bounding": Bounding.SCALE, "max_groups": 2, "max_rows_per_group": 3}
    rows = answered(COUNTS, EVERYWHERE, budget, **unit)
    assert [row["n"] for row in rows] == [2, 2, 2]
    assert all(abs(row["s"] - 100) <= error for row in rows)


def test_scaling_shrinks_a_whole_vector_in_parts_of_a_row() -> None:
    """Two hundred people with one row in each of three cities, at most two: two thirds of each row are left."""
    records = [{"pid": pid, "city": city, "age": 50} for pid in range(200) for city in CITIES]
    unit = {"bounding": Bounding.SCALE, "max_groups": 2, "max_rows_per_group": 1}
    for row in answered(COUNTS, records, **unit):
        assert abs(row["n"] - 400 / 3) <= 1
        assert abs(row["s"] - 200 * 50 * min(1, 200 / 150)) <= 10
    # In the L2 norm three ones are sqrt(3) long, and sqrt(2) is allowed.
    for row in answered(COUNTS, records, ZCDP(Fraction(10_000)), **unit):
        assert abs(row["n"] - 200 * (2 / 3) ** 0.5) <= 1


SCALED = {"bounding": Bounding.SCALE, "max_groups": 2, "max_rows_per_group": 2}


def test_a_sum_without_groups_is_scaled_by_the_persons_sum() -> None:
    """Ten rows of 15 are 150, within two rows of 100; ten rows of 50 are 500, which are scaled down to 200."""
    small = [{"pid": pid, "age": 15} for pid in range(200) for _ in range(10)]
    for budget in (SURE, ZCDP(Fraction(10_000), Fraction(1, 10**6))):
        (row,) = answered("SELECT SUM(age) AS s FROM visits", small, budget, **SCALED)
        assert abs(row["s"] - 200 * 150) <= 20
        (row,) = answered("SELECT SUM(age) AS s FROM visits", [{**r, "age": 50} for r in small], budget, **SCALED)
        assert abs(row["s"] - 200 * 200) <= 20
    (row,) = answered("SELECT SUM(age) AS s FROM visits", small, max_rows_per_group=2)
    assert abs(row["s"] - 200 * 30) <= 20, "the twin that bounds rows"


@pytest.mark.parametrize(
    "sql", ["SELECT SUM(delta) AS s FROM visits", "SELECT city, SUM(delta) AS s FROM visits GROUP BY 1"]
)
def test_rows_of_opposite_signs_are_scaled_by_their_sum(sql: str) -> None:
    """Twenty rows of 10 and ten of -20 are nothing together, and one row more is all that counts."""
    signs = [{"pid": pid, "city": "Ada", "delta": d} for pid in range(200) for d in [10] * 21 + [-20] * 10]
    assert abs(answered(sql, signs, **SCALED)[0]["s"] - 2_000) <= 10


@pytest.mark.parametrize("sql", ["SELECT {} AS a FROM visits", "SELECT city, {} AS a FROM visits GROUP BY city"])
@pytest.mark.parametrize("aggregate", ["AVG(age)", "VAR_POP(age)", "REGR_AVGX(age, age)"])
def test_averages_of_scaled_people_are_those_of_their_rows(sql: str, aggregate: str) -> None:
    """Sums that are scaled less than the counts they are divided by would be far from the middle of the bounds."""
    records = [{"pid": pid, "city": "Ada", "age": age} for pid in range(300) for age in (58, 62) * 15]
    found = answered(sql.format(aggregate), records, **SCALED)[0]["a"]
    assert abs(found - (4 if aggregate.startswith("VAR") else 60)) <= 1


def test_quantiles_and_values_are_sampled_under_scaling() -> None:
    many = [{"pid": 1, "city": city, "age": age} for city in CITIES for age in range(40)]
    records = many + [{"pid": pid, "city": "Ada", "age": 90} for pid in (2, 3, 4, 5)]
    for sql in ("SELECT MEDIAN(age) AS m FROM visits", "SELECT city, MEDIAN(age) AS m FROM visits GROUP BY city"):
        assert answered(sql, records, **SCALED)[0]["m"] == 90


def test_rows_that_no_aggregate_reads_use_up_no_bound() -> None:
    """Of each person one row in one city has an age; the others have none, and are in other cities too."""
    records = [{"pid": pid, "city": "Ada", "age": 50} for pid in range(50)]
    records += [{"pid": pid, "city": city} for pid in range(50) for city in CITIES for _ in range(4)]
    wanted = [
        "COUNT(age)",
        "SUM(age)",
        "COUNT(*) FILTER (WHERE age > 3)",
        "AVG(age)",
        "COUNT(DISTINCT age)",
        "MEDIAN(age)",
    ]
    expected = dict(zip(wanted, (50, 2_500, 50, 50, 1, 50), strict=True))
    for form in (in_all(1), {"max_groups": 1, "max_rows_per_group": 1}, {**SCALED, "max_groups": 1}):
        for aggregate, value in expected.items():
            (row, *_) = answered(f"SELECT city, {aggregate} AS n FROM visits GROUP BY city", records, **form)
            assert abs(row["n"] - value) <= 1, (form, aggregate)
    (row, *_) = answered("SELECT city, COUNT(*) AS n FROM visits GROUP BY city", records, **in_all(1))
    assert row["n"] < 50, "all rows are read by COUNT(*)"


def test_bounds_of_a_persons_sum_are_not_bounds_of_rows() -> None:
    """Rows of 100 and -90 are 10 together, within 0 and 20, whether or not the column has bounds of its own."""
    records = [{"pid": pid, "score": score} for pid in range(100) for score in (100, -90)]
    sql = "SELECT SUM(score, contribution_bounds_per_group => (0, 20)) AS s FROM visits"
    (row,) = answered(sql, records)
    assert abs(row["s"] - 1_000) <= 5
    (row,) = answered(sql, [{"pid": pid, "score": 2**62} for pid in range(100)])
    assert abs(row["s"] - 2_000) <= 5


def test_the_same_l1_norm_costs_the_same_laplace_noise_in_every_form() -> None:
    forms = ({"max_groups": 2, "max_rows_per_group": 3}, in_all(6), {"bounding": Bounding.SCALE})
    found = [placed("SELECT city, COUNT(*) FROM visits GROUP BY city", PureDP(Fraction(1)), **form) for form in forms]
    assert [p.deviation for p in found] == pytest.approx([found[0].deviation] * 3)
    assert [p.error(0.05) for p in found] == pytest.approx([found[0].error(0.05)] * 3, abs=1)


def test_rows_in_all_cost_more_gaussian_noise_than_groups() -> None:
    sql, rho = "SELECT city, COUNT(*) FROM visits GROUP BY city", ZCDP(Fraction(1, 100))
    assert placed(sql, rho, **in_all(6)).deviation > placed(sql, rho).deviation


def test_explain_tells_the_form() -> None:
    for form, words in ((in_all(4), "4 rows in all"), ({"bounding": Bounding.SCALE}, "as an L1 norm")):
        told = explain(compile_query(COUNTS, (public_city(**form),), PureDP(Fraction(1))))
        assert words in told["aggregates"][0]["measurements"][0]["stability"]
        assert any("totals may be low" in note for note in told["notes"])


def limits_of(options: str, **unit: Any) -> Any:
    sql = f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, {options}) city, COUNT(*) FROM visits GROUP BY city"
    plan: QueryPlan = compile_query(sql, (public_city(**unit),))
    return plan.nodes[0].steps[0].limits


def test_a_question_tightens_rows_in_all_and_never_loosens_them() -> None:
    assert limits_of("max_rows_contributed = 2", **in_all(4)).rows == 2
    assert limits_of("max_rows_contributed = 9", **in_all(4)).rows == 4
    found = limits_of("max_rows_contributed = 9", max_groups=2, max_rows_per_group=2)
    assert (found.in_all, found.rows) == (True, 4)


@pytest.mark.parametrize("options", ["max_groups_contributed = 2", "max_rows_per_group = 2", "max_rows_per_group = 9"])
def test_bounds_of_groups_stay_within_the_rows_that_the_policy_allows(options: str) -> None:
    found = limits_of(options, **in_all(4))
    assert not found.in_all
    assert (found.groups or 3) * found.rows <= 4


def test_rows_in_all_and_bounds_of_groups_exclude_each_other() -> None:
    with pytest.raises(QueryRefused, match="cannot stand beside"):
        limits_of("max_rows_contributed = 2, max_rows_per_group = 1")
    with pytest.raises(ParameterError, match="goes with bounding"):
        PrivacyUnit("pid", max_rows=3)


def test_tables_with_different_forms_are_bounded_by_the_tightest_of_all() -> None:
    from dataclasses import replace

    stays = replace(clinic.stays(), unit=PrivacyUnit("pid", bounding=Bounding.ROWS, max_rows=3))
    sql = "SELECT COUNT(*) FROM (SELECT * FROM visits UNION ALL SELECT * FROM stays) AS u"
    limits = compile_query(sql, (clinic.visits(), stays), PureDP(Fraction(1))).nodes[0].steps[0].limits
    assert (limits.in_all, limits.rows) == (True, 3)


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: pid, BOUNDS}
    columns:
      pid: {type: integer}
"""


def test_a_policy_says_rows_in_all() -> None:
    unit = parse(POLICY.replace("BOUNDS", "max_rows: 10")).tables[0].unit
    assert unit == PrivacyUnit("pid", bounding=Bounding.ROWS, max_rows=10)
    assert unit.rows_in_all == 10


def test_a_policy_that_says_two_forms_is_refused_with_its_line() -> None:
    with pytest.raises(PolicyError, match=r"7.*max_rows bounds rows in all, and bounding is scale"):
        parse(POLICY.replace("BOUNDS", "max_rows: 10, bounding: scale"))


def test_what_nobody_can_move_is_compiled_and_answered_under_scaling() -> None:
    scaled = {"bounding": Bounding.SCALE, "max_groups": 2, "max_rows_per_group": 2}
    asked = "SELECT city, SUM(CLAMP(1, 0, 0)) AS s, COUNT(*) AS n FROM visits GROUP BY city"
    rows = answered(asked, EVERYWHERE, **scaled)
    assert [row["s"] for row in rows] == [0, 0, 0]


def test_a_sum_of_different_values_counts_each_of_them_once() -> None:
    records = [{"pid": pid, "city": "Ada", "age": age} for pid in range(20) for age in (10, 10, 30)]
    records += [{"pid": 30, "city": "Brin", "age": 500}, {"pid": 31, "city": "Brin"}]
    sql = "SELECT city, SUM(DISTINCT age) AS s, MAX(DISTINCT age) AS m FROM visits GROUP BY city"
    for form in ({"max_groups": 1, "max_rows_per_group": 2}, in_all(2), SCALED):
        found = {row["city"]: row["s"] for row in answered(sql, records, **form)}
        assert (found["Ada"], found["Brin"], found["Cole"]) == (40, 100, 0)
    for bad in ("SUM(DISTINCT age, delta)", "AVG(DISTINCT age)"):
        with pytest.raises(QueryRefused, match="DISTINCT"):
            answered(f"SELECT {bad} FROM visits", records)


@pytest.mark.parametrize(
    "where",
    [
        "SUM(DISTINCT age, {bounds})",
        "COUNT(age, {bounds})",
        "COUNT(*, {bounds})",
        "MEDIAN(age, {bounds})",
        "MAX(age, {bounds})",
        "SUM(ABS(age, {bounds}))",
        "SUM(age, {bounds}, {bounds})",
    ],
)
def test_bounds_per_group_that_nothing_would_read_are_refused(where: str) -> None:
    bounds = "contribution_bounds_per_group => (0, 20)"
    with pytest.raises(QueryRefused, match="contribution_bounds_per_group"):
        cut_clauses(f"SELECT {where.format(bounds=bounds)} FROM visits")
    assert cut_clauses(f"SELECT SUM(age, {bounds}), AVG(age, {bounds}) FROM visits").per_group
