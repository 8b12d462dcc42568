"""Neighbors at scale: one person with very many rows and keys moves exact totals by no more than was priced.

Each pair is a crowd with and without one large person. The statements are those of a plan, with one salt for both, so
that what is compared is exactly what noise is added to. Brute force over small tables is in
`test_query_sensitivity_by_brute_force`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.errors import InternalError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query import compile as compiler
from deniable.query.compile import compile_query
from deniable.query.joint import apply_strategy, name_part
from deniable.query.keys import PrivateKeys
from deniable.query.measurements import Distinct, Ordered
from deniable.query.plan import Joint, Placed, QueryPlan, Step
from deniable.query.sql import private_sql
from deniable.query.sql.render import UNIT, render_relation

PURE, SMALL_DELTA = PureDP(Fraction(1)), ApproxDP(Fraction(1), Fraction(1, 10**6))
CONCENTRATED = ZCDP(Fraction(1, 10), Fraction(1, 10**6))
WHOLE = ColumnType.INTEGER
LETTERS = tuple("abcdefgh")
LARGE_PERSON = -1
WIDE_KEYS = 1_000
Vector = dict[tuple[Any, ...], int]


def make_schemas(unit: PrivacyUnit) -> tuple[TableSchema, ...]:
    """The table t with a private key, a public one of 1,000 values and one of eight, and b beside it."""
    columns = (
        Column("u", WHOLE),
        Column("hidden", WHOLE),
        Column("wide", WHOLE, bounds=Bounds(0, WIDE_KEYS - 1)),
        Column("letter", categories=LETTERS),
        Column("v", WHOLE, bounds=Bounds(-5, 10)),
        Column("x", ColumnType.DECIMAL, bounds=Bounds(Fraction(-1), Fraction(2), Fraction(1, 10))),
    )
    beside = (Column("u", WHOLE), Column("z", WHOLE, bounds=Bounds(0, 3)))
    return TableSchema("t", "", columns, unit), TableSchema("b", "", beside, unit)


def make_rows(units: Any, keys: Any, seed: int) -> pa.Table:
    """Rows of t with the given units and keys; other values are drawn, some outside their bounds."""
    draw, size = np.random.default_rng(seed), len(units)
    numbers = draw.choice([0.1, 0.2, 0.3, -7.0, 2.0, 9.0, np.nan, np.inf], size)
    return pa.table(
        {
            "u": pa.array(units, pa.int64()),
            "hidden": pa.array(keys, pa.int64()),
            "wide": pa.array(np.asarray(keys) % WIDE_KEYS, pa.int64()),
            "letter": pa.array([LETTERS[key % 8] for key in np.asarray(keys).tolist()]),
            "v": pa.array(draw.choice([-9, -5, 0, 1, 10, 10, 10, 99], size), pa.int64()),
            "x": pa.array(numbers, pa.float64()),
        }
    )


def make_crowd(people: int = 2_000) -> pa.Table:
    draw = np.random.default_rng(5)
    return make_rows(np.repeat(np.arange(people), 3), draw.integers(0, 50, 3 * people), 6)


def make_large_person(rows: int, keys: int, seed: int = 8) -> pa.Table:
    """One person with so many rows over so many keys, none of which the crowd has beyond the first fifty."""
    return make_rows(np.full(rows, LARGE_PERSON), np.arange(rows) % keys, seed)


def make_beside(people: int, copies: int) -> pa.Table:
    units = [*range(people), *([LARGE_PERSON] * copies)]
    return pa.table({"u": pa.array(units, pa.int64()), "z": pa.array([1] * len(units), pa.int64())})


CROWD = make_crowd()


# -- exact totals, without noise --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moved:
    """What one measurement of a step gives with the large person and without."""

    step: Step
    column: str
    one: Vector
    other: Vector

    @property
    def changes(self) -> list[int]:
        """By how much each group moved, where it did."""
        keys = self.one.keys() | self.other.keys()
        return [change for key in keys if (change := self.one.get(key, 0) - self.other.get(key, 0))]


def read_vectors(plan: QueryPlan, connection: duckdb.DuckDBPyConnection, salt: int) -> list[tuple[Step, str, Vector]]:
    """For each step and measurement the exact numbers by group."""
    found = []
    for node in plan.nodes:
        for step in node.steps:
            wanted = private_sql.select_additive(step.placed, threshold=step.threshold is not None)
            sql = private_sql.render_step(node.node, step, salt)
            if sql is not None:
                table = connection.sql(sql).to_arrow_table()
                found += [(step, column, read_vector(table, step, column)) for column in wanted]
                found += [(step, f"joint {i}", read_joint(table, step, i)) for i in range(len(step.joints))]
            for placed in step.placed:
                if isinstance(placed.measurement, Distinct):
                    sql = private_sql.render_value_counts(
                        node.node, step.places, placed.measurement, step.limits, step.keys, salt
                    )
                    found.append((step, placed.column, read_vector(connection.sql(sql).to_arrow_table(), step, "v")))
    return found


def read_vector(table: pa.Table, step: Step, column: str) -> Vector:
    names = private_sql.key_names(step.places)
    values = table.column(column).to_pylist()
    keys = list(zip(*(table.column(name).to_pylist() for name in names), strict=True)) if names else [()]
    assert len(set(keys)) == len(keys), "a group must appear once"
    return {key: int(value) for key, value in zip(keys, values, strict=True)}


def read_joint(table: pa.Table, step: Step, number: int) -> Vector:
    """All that a joint release has noise on, by group and place."""
    joint, places = step.joints[number], range(len(step.joints[number].block.parts))
    columns = [read_vector(table, step, name_part(number, i)) for i in places]
    exact = np.array([list(column.values()) for column in columns], dtype=np.int64).T
    measured = apply_strategy(exact, joint.strategy.matrix)
    return {(*key, i): int(value) for key, row in zip(columns[0], measured, strict=True) for i, value in enumerate(row)}


def compare_pair(plan: QueryPlan, person: pa.Table, copies: int, salt: int) -> list[Moved]:
    """The measurements of a plan over the crowd with the large person, and without."""
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.register("t", pa.concat_tables([CROWD, person]))
        connection.register("b", make_beside(2_000, copies))
        one = read_vectors(plan, connection, salt)
        connection.register("t", CROWD)
        connection.register("b", make_beside(2_000, 0))
        other = read_vectors(plan, connection, salt)
    return [Moved(step, column, a, b) for (step, column, a), (_, _, b) in zip(one, other, strict=True)]


def check_pair(plan: QueryPlan, person: pa.Table, copies: int = 1, salt: int = 20_260_511) -> None:
    """No measurement moves further than its noise is made for, and few keys are there because of one person."""
    for moved in compare_pair(plan, person, copies, salt):
        if moved.step.threshold is not None:
            check_keys(moved)
        if moved.column != private_sql.THRESHOLD:
            joints = {f"joint {i}": joint for i, joint in enumerate(moved.step.joints)}
            check_distance(moved, joints.get(moved.column) or _find_placed(moved))


def _find_placed(moved: Moved) -> Placed:
    return next(p for p in moved.step.placed if p.column == moved.column)


def check_keys(moved: Moved) -> None:
    assert moved.step.threshold is not None
    if moved.column.startswith("joint"):
        return  # the keys are those of the other columns
    assert len(moved.one.keys() ^ moved.other.keys()) <= moved.step.threshold.max_groups
    if moved.column == private_sql.THRESHOLD:
        assert len(moved.changes) <= moved.step.threshold.max_groups
        assert all(abs(change) <= 1 for change in moved.changes)


def check_distance(moved: Moved, placed: Placed | Joint) -> None:
    l1, squared = sum(map(abs, moved.changes)), sum(change**2 for change in moved.changes)
    match placed.mechanism:
        case LaplaceMechanism(sensitivity=priced):
            assert l1 <= placed.sensitivity.l1 <= priced, (moved.column, l1, placed)
        case GaussianMechanism(sensitivity_squared=priced):
            assert squared <= placed.sensitivity.l2_squared <= priced, (moved.column, squared, placed)
        case _:
            raise AssertionError("no sum is released by another mechanism")


# -- questions --------------------------------------------------------------------------------------------------------

ASKED = (
    "COUNT(*), SUM(v), AVG(x)",
    "COUNT(DISTINCT u), SUM(v, contribution_bounds_per_group => (-4, 8)), COUNT(DISTINCT v), VARIANCE(v)",
)


def write_question(form: str, key: str, asked: str) -> str:
    """A question over the rows, over each person's rows summarized, or over a join of two private tables."""
    if form == "rows":
        return f"SELECT {key}, {asked} FROM t GROUP BY {key}"
    if form == "join":
        return f"SELECT {key}, {asked.replace('(DISTINCT u)', '(z)')} FROM t JOIN b ON t.u = b.u GROUP BY {key}"
    # A key that a sub-query hands on is public where its values are listed once more, or follow from bounds.
    again = {"wide": "CLAMP(wide, 0, 499)", "letter": "m", "hidden": "hidden"}[key]
    inner = f"SELECT u, {key}, SUM(v * x) AS s, MAX(v) AS m FROM t GROUP BY u, {key} HAVING SUM(v * x) <> 0.3"
    return f"SELECT {again} AS g, COUNT(*), SUM(CLAMP(s, -20, 20)), SUM(m) FROM ({inner}) q GROUP BY {again}"


UNITS = {
    Bounding.SAMPLE: PrivacyUnit("u", max_groups=5, max_rows_per_group=2),
    Bounding.SCALE: PrivacyUnit("u", max_groups=5, max_rows_per_group=2, bounding=Bounding.SCALE),
    Bounding.ROWS: PrivacyUnit("u", max_rows=10, bounding=Bounding.ROWS),
}


def compile_for(unit: PrivacyUnit, text: str, budget: Budget) -> QueryPlan | None:
    """The plan, or None where the question needs a delta that the budget has not."""
    try:
        return compile_query(text, make_schemas(unit), budget)
    except QueryRefused:
        return None


BUDGETS = {"laplace": PURE, "gaussian": CONCENTRATED, "delta": SMALL_DELTA}
PAIRS = [
    (bounding, form, key, name)
    for bounding in Bounding
    for form in ("rows", "person", "join")
    for key in ("hidden", "wide", "letter")
    for name in BUDGETS
    if not (key == "hidden" and name == "laplace") and not (key == "letter" and name == "delta")
]
HEAVY = make_large_person(100_000, 100_000)


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize(("bounding", "form", "key", "name"), PAIRS)
def test_a_person_with_a_hundred_thousand_rows_moves_totals_by_what_was_priced(
    bounding: Bounding, form: str, key: str, name: str
) -> None:
    place = PAIRS.index((bounding, form, key, name))
    plan = compile_for(UNITS[bounding], write_question(form, key, ASKED[place % 2]), BUDGETS[name])
    assert plan is not None
    # In a join this person has two hundred thousand pairs of rows, or so many that the join leaves them out.
    check_pair(plan, HEAVY, copies=2 if place % 2 else 20)


@pytest.mark.parametrize("bounding", list(Bounding))
@pytest.mark.parametrize("keys", [10, 1_000, 100_000])
def test_few_private_keys_are_there_because_of_one_person(bounding: Bounding, keys: int) -> None:
    check_own_keys(bounding, keys)


@pytest.mark.slow
@pytest.mark.parametrize("bounding", list(Bounding))
def test_few_of_a_million_private_keys_are_there_because_of_one_person(bounding: Bounding) -> None:
    check_own_keys(bounding, 1_000_000)


def check_own_keys(bounding: Bounding, keys: int) -> None:
    """Keys that nobody else has: exactly as many as the threshold was made for, so the bound is both kept and used."""
    person = make_rows(np.full(keys, LARGE_PERSON), np.arange(keys) + 1_000, 3)
    plan = compile_for(UNITS[bounding], "SELECT hidden, COUNT(*) FROM t GROUP BY hidden", SMALL_DELTA)
    assert plan is not None
    for moved in compare_pair(plan, person, 0, 77):
        assert moved.step.threshold is not None
        assert len(moved.one.keys() - moved.other.keys()) == moved.step.threshold.max_groups
        check_keys(moved)


@pytest.mark.parametrize("form", ["rows", "person", "join"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_large_person_leaves_the_rows_of_all_others_as_they_were(form: str, threads: int) -> None:
    """Bit for bit, although the large person makes another table the larger one, and takes threads of its own."""
    plan = compile_for(UNITS[Bounding.SAMPLE], write_question(form, "letter", ASKED[0]), PURE)
    assert plan is not None
    sql = render_relation(plan.nodes[0].node.input)
    found = []
    for rows, copies in ((CROWD, 0), (pa.concat_tables([HEAVY, CROWD]), 2), (pa.concat_tables([CROWD, HEAVY]), 9_000)):
        with duckdb.connect(config={"threads": threads}) as connection:
            connection.register("t", rows)
            connection.register("b", make_beside(2_000, copies))
            others = f"SELECT * FROM ({sql}) AS q WHERE {UNIT} <> {LARGE_PERSON} ORDER BY ALL"
            found.append(connection.sql(others).to_arrow_table())
    assert len(found[0]) > 1_000
    assert [repr(each.to_pylist()) for each in found[1:]] == [repr(found[0].to_pylist())] * 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_thousands_of_pairs_are_as_close_as_was_priced(seed: int) -> None:
    draw, compared = random.Random(seed), 0
    while compared < 50:
        unit = draw_unit(draw)
        text = write_question(
            draw.choice(["rows", "person", "join"]), draw.choice(["hidden", "letter", "letter"]), draw.choice(ASKED)
        )
        plan = compile_for(unit, text, draw.choice(list(BUDGETS.values())))
        if plan is None:
            continue
        rows = int(10 ** draw.uniform(0, 4.3))
        person = make_large_person(rows, max(1, int(rows ** draw.uniform(0, 1))), draw.randrange(10**6))
        check_pair(plan, person, draw.choice([1, 3]), draw.randrange(2**62))
        compared += 1


def draw_unit(draw: random.Random) -> PrivacyUnit:
    bounding = draw.choice(list(Bounding))
    if bounding is Bounding.ROWS:
        return PrivacyUnit("u", max_rows=draw.choice([1, 3, 10, 100]), bounding=bounding)
    return PrivacyUnit("u", draw.choice([1, 2, 5, 60]), draw.choice([1, 2, 7]), bounding=bounding)


# -- the tests can fail -----------------------------------------------------------------------------------------------

BY_HIDDEN_KEY = "SELECT hidden, COUNT(*), SUM(v) FROM t GROUP BY hidden"


def scale_all_keys(limits_of: Callable[..., Any]) -> Callable[..., Any]:
    """The broken twin: vectors over private keys are scaled to a norm, which leaves a person in all of them."""

    def broken(places: Any, keys: Any, unit: PrivacyUnit, found: Any) -> Any:
        limits, groups = limits_of(places, keys, unit, found)
        scaled = unit.bounding is Bounding.SCALE and isinstance(keys, PrivateKeys)
        return (replace(limits, norm=2), groups) if scaled else (limits, groups)

    return broken


def test_private_keys_that_are_scaled_are_refused_by_double_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_for(UNITS[Bounding.SCALE], BY_HIDDEN_KEY, CONCENTRATED) is not None
    monkeypatch.setattr(compiler, "limits_of", scale_all_keys(compiler.limits_of))
    with pytest.raises(InternalError):
        compile_for(UNITS[Bounding.SCALE], BY_HIDDEN_KEY, CONCENTRATED)


@pytest.mark.parametrize("keys", [10, 1_000, 100_000])
def test_private_keys_that_are_scaled_are_caught_by_neighbors(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "limits_of", scale_all_keys(compiler.limits_of))
    monkeypatch.setattr(compiler, "check", lambda plan: None)
    plan = compile_for(UNITS[Bounding.SCALE], BY_HIDDEN_KEY, CONCENTRATED)
    assert plan is not None
    with pytest.raises(AssertionError):
        check_pair(plan, make_rows(np.full(keys, LARGE_PERSON), np.arange(keys) + 1_000, 3))


@pytest.mark.parametrize("name", ["laplace", "gaussian"])
def test_a_person_whose_groups_are_not_chosen_is_caught(name: str) -> None:
    """The broken twin of sampling: the noise is made for five groups, and eight are kept."""
    plan = compile_for(UNITS[Bounding.SAMPLE], write_question("rows", "letter", "COUNT(*)"), BUDGETS[name])
    assert plan is not None
    check_pair(plan, HEAVY)
    step = plan.nodes[0].steps[0]
    loose = replace(step, limits=replace(step.limits, groups=None))
    with pytest.raises(AssertionError):
        check_pair(replace(plan, nodes=(replace(plan.nodes[0], steps=(loose,)),)), HEAVY)


def test_every_measurement_of_these_questions_is_compared() -> None:
    """Ranks are compared by brute force over small tables; here everything else is."""
    for form in ("rows", "person", "join"):
        for asked in ASKED:
            plan = compile_for(UNITS[Bounding.SAMPLE], write_question(form, "letter", asked), PURE)
            assert plan is not None
            assert not any(isinstance(p.measurement, Ordered) for p in plan.nodes[0].steps[0].placed)
