"""A batch of questions: right numbers, one price, and never more noise than each alone with an equal share."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import clinic
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.dp.samplers import SYSTEM
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, add, covers, split
from deniable.policy.schema import Bounding, Neighboring, TableSchema
from deniable.query.batch import BatchPart, Question, count_paid, plan_batch, read_answer, show_plan
from deniable.query.compile import compile_query
from deniable.query.execute import Presentation, Reader, execute, measure, present
from deniable.query.plan import GROUPS, IN_ALL, IN_EACH, QueryPlan
from deniable.query.sql.clauses import cut_clauses, split_statements
from guarantee_fuzzer import Worlds, hand_over, judge, measure_all

ONE = PureDP(Fraction(1))
BUDGETS = (ONE, ApproxDP(Fraction(1), Fraction(1, 10**6)), ZCDP(Fraction(1, 8)))
WHERES = ["", "age > 20", "age BETWEEN 10 AND 60", "sex = 'F'", "insured", "NOT insured AND age < 50", "day IS NULL",
          "city IN ('Ada', 'Brin')", "age < 20 OR age > 80"]  # fmt: skip
KEYS = ["", "", "sex", "insured", "sex, insured", "EXTRACT(quarter FROM day)", "ROLLUP(sex, insured)"]
ITEMS = ["COUNT(*) AS n", "COUNT(age) AS n", "SUM(age) AS s", "AVG(age) AS m", "COUNT(*) AS n, SUM(delta) AS s",
         "COUNT(*) FILTER (WHERE age > 30) AS n", "MEDIAN(age) AS q", "COUNT(DISTINCT pid) AS u"]  # fmt: skip


def plan(texts: Sequence[str], asked: Budget = ONE, tables: Any = clinic.TABLES) -> tuple[list[QueryPlan], Any]:
    """The questions of a batch as each is asked alone with an equal share, and the parts of the batch."""
    count = count_paid(compile_query(text, tables, asked) for text in texts)
    part = split(asked, (Fraction(1),) * max(count, 1))[0]
    questions = []
    for text in texts:
        options = cut_clauses(text).options
        stated = tuple(sorted((name, options[name]) for name in (GROUPS, IN_EACH, IN_ALL) if name in options))
        questions.append(Question(compile_query(text, tables, part), stated, "weights" in options))
    return [question.plan for question in questions], plan_batch(questions, asked)


def draw_batch(draw: random.Random, table: str, size: int, listed: Sequence[str] = ITEMS) -> list[str]:
    """Questions over one table, in several wordings."""
    texts = []
    for _ in range(size):
        where, key, items = draw.choice(WHERES), draw.choice(KEYS), draw.choice(listed)
        source = draw.choice([table, f"{table} AS t", f"(SELECT * FROM {table}) AS t"])
        grouping = f" GROUP BY {key}" if key else ""
        texts.append(f"SELECT {items} FROM {source}{f' WHERE {where}' if where else ''}{grouping}")
    return texts


def find_part(parts: Sequence[BatchPart], place: int) -> BatchPart:
    (found,) = [part for part in parts if place in part.questions]
    return found


def answer(plans: list[QueryPlan], parts: Sequence[BatchPart], engine: DuckDBEngine) -> list[Any]:
    measured = {id(part): measure(part.plan, engine) for part in parts}
    reader, shown = Reader(engine, SYSTEM, None, {}), []
    for place, question in enumerate(plans):
        part = find_part(parts, place)
        found = read_answer(question, place, part, measured[id(part)], reader)
        told = show_plan(question, place, part, ONE)
        shown.append(present(told, found, engine, Presentation(intervals=False)).to_pylist())
    return shown


@pytest.fixture(scope="module")
def world() -> Iterator[DuckDBEngine]:
    with clinic.engine() as engine:
        yield engine


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (LaplaceMechanism, GaussianMechanism):
        monkeypatch.setattr(kind, "release", lambda self, values, entropy: values)


JOINED = [item for item in ITEMS if "MEDIAN" not in item]


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "delta", "rho"])
@pytest.mark.parametrize("seed", [0, 3])
def test_without_noise_each_answer_is_that_of_the_question_alone(
    world: DuckDBEngine, seed: int, budget: Budget
) -> None:
    """Each row is a unit, so that no bound cuts anything off."""
    texts = draw_batch(random.Random(seed), "answers", 5, JOINED)
    plans, parts = plan(texts, budget)
    assert any(not part.alone for part in parts)
    for text, alone, found in zip(texts, plans, answer(plans, parts, world), strict=True):
        wanted = execute(alone, world, intervals=False).to_pylist()
        order = [name for name in (wanted[0] if wanted else {}) if name not in ("n", "s", "m", "u")]
        for rows in (wanted, found):
            rows.sort(key=lambda row: [str(row[name]) for name in order])
        assert found == [pytest.approx(row, rel=1e-2) for row in wanted], text


@pytest.mark.parametrize("budget", BUDGETS, ids=["pure", "delta", "rho"])
@pytest.mark.parametrize("form", [{}, {"max_groups": 1}, {"bounding": Bounding.SCALE},
                                  {"bounding": Bounding.ROWS, "max_rows": 4}], ids=str)  # fmt: skip
def test_no_number_has_more_noise_than_alone_with_an_equal_share(form: dict[str, Any], budget: Budget) -> None:
    draw, tables = random.Random(str(form)), clinic.with_unit(**form)
    for table in ("visits", "answers") if not form else ("visits",):
        texts = draw_batch(draw, table, 4)
        plans, parts = plan(texts, budget, tables)
        assert sorted(place for part in parts for place in part.questions) == list(range(4))
        for place, question in enumerate(plans):
            shown = show_plan(question, place, find_part(parts, place), budget)
            for before, now in zip(question.nodes[0].steps, shown.nodes[0].steps, strict=True):
                for alone, joined in zip(before.placed, now.placed, strict=True):
                    assert joined.deviation <= alone.deviation * (1 + 1e-9)
        whole = [part.plan.cost for part in parts]
        total = whole[0]
        for cost in whole[1:]:
            total = add(total, cost)
        assert covers(budget, total)
        assert sum(part.share for part in parts) == 1


TILES = [
    *(f"age < {6 * i + 6}" for i in range(16)),
    *(f"age >= {6 * i} AND age < {6 * i + 6}" for i in range(16)),
    *(f"city = '{city}'" for city in "ABCDEFGH"),
]


def test_forty_tiles_are_the_one_question_that_has_them_as_columns() -> None:
    texts = [f"SELECT COUNT(*) AS n FROM answers WHERE {tile}" for tile in TILES]
    plans, (part,) = plan(texts)
    columns = ", ".join(f"COUNT(*) FILTER (WHERE {tile}) AS t{i}" for i, tile in enumerate(TILES))
    single = compile_query(f"SELECT {columns} FROM answers", clinic.TABLES, ONE)
    assert part.plan.canonical == single.canonical
    for place, placed in enumerate(single.nodes[0].steps[0].placed):
        shown = show_plan(plans[place], place, part, ONE).nodes[0].steps[0].placed[0]
        assert shown.deviation == pytest.approx(placed.deviation)
        assert shown.deviation < 0.2 * plans[place].nodes[0].steps[0].placed[0].deviation


def test_the_order_and_the_words_of_a_batch_change_nothing_about_what_is_measured() -> None:
    texts = draw_batch(random.Random(5), "answers", 5)
    told = [part.plan.canonical for part in plan(texts)[1]]
    assert [part.plan.canonical for part in plan(texts[::-1])[1]] == told
    again = [*texts, f"{texts[0]} LIMIT 1", texts[3]]
    assert [part.plan.canonical for part in plan(again)[1]] == told, "an equal question has no share of its own"


def test_joined_questions_may_take_the_time_of_a_batch_and_not_only_of_one_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tests = ("age < 9", "age < 20", "age BETWEEN 9 AND 19")
    share = split(ONE, (Fraction(1),) * 3)[0]
    texts = [f"SELECT COUNT(*) FROM answers WHERE {test}" for test in tests]
    asked = [Question(compile_query(text, clinic.TABLES, share)) for text in texts]
    monkeypatch.setattr("deniable.query.sql.clauses.COMPILE_SECONDS", -1)
    (part,) = plan_batch(asked, ONE)
    assert set(part.questions) == {0, 1, 2}
    monkeypatch.setattr("deniable.query.batch.PLAN_SECONDS", -1)
    with pytest.raises(QueryRefused, match="seconds of computing"):
        plan_batch(asked, ONE)


@pytest.mark.parametrize(("other", "why"), [
    ("SELECT MEDIAN(age) FROM visits", "only COUNT"),
    ("SELECT COUNT(DISTINCT pid) FROM visits", "only COUNT"),
    ("SELECT charge, COUNT(*) FROM visits GROUP BY charge", "more than 4,096|not listed"),
    ("SELECT region, COUNT(*) FROM visits JOIN regions USING (city) GROUP BY region", "not listed"),
    ("SELECT COUNT(*) FROM stays", "same rows and bounds"),
    ("SELECT COUNT(*) FROM visits WHERE age > (SELECT AVG(age) FROM visits)", "several steps"),
    ("SELECT COUNT(*) FROM visits CONTRIBUTION (max_rows_per_group = 1)", "same rows and bounds"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (weights = (2, 1)) COUNT(*), SUM(age) FROM visits", "weights"),
])  # fmt: skip
def test_what_cannot_be_joined_is_measured_alone_with_its_share(other: str, why: str) -> None:
    import re

    asked = ApproxDP(Fraction(1), Fraction(1, 10**6))
    _, parts = plan(["SELECT COUNT(*) FROM visits WHERE age < 9", "SELECT COUNT(*) FROM visits WHERE age > 50", other],
                    asked)  # fmt: skip
    together, alone = sorted(parts, key=lambda part: bool(part.alone))
    assert set(together.questions) == {0, 1}
    assert set(alone.questions) == {2}
    assert alone.share == Fraction(1, 3)
    assert re.search(why, alone.alone)


@pytest.mark.parametrize("items", ["COUNT(*)", "SUM(age)", "AVG(age)", "sex, COUNT(*)"])
def test_questions_whose_contributions_are_scaled_are_measured_alone(items: str) -> None:
    grouping = " GROUP BY sex" if items.startswith("sex") else ""
    texts = [f"SELECT {items} FROM visits WHERE age {test}{grouping}" for test in ("< 9", "< 20", "BETWEEN 9 AND 20")]
    _, parts = plan(texts, ONE, clinic.with_unit(bounding=Bounding.SCALE))
    assert [part.alone for part in parts] == ["contributions are scaled (bounding: scale)"] * 3


def test_a_question_by_groups_is_joined_under_the_rows_that_it_counts_in_all() -> None:
    """Two groups of three rows: six rows of a person count over all cells together."""
    texts = [f"SELECT sex, COUNT(*) FROM visits WHERE age {test} GROUP BY sex" for test in ("< 9", "BETWEEN 9 AND 20")]
    _, (part,) = plan(texts)
    limits = part.plan.nodes[0].steps[0].limits
    assert (limits.rows, limits.in_all) == (6, True)


def _neighbors(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A world, and the rows of one person in it who has many rows in every cell."""
    draw = random.Random(seed)
    pick = {"sex": ["F", "M", "X"], "age": [0, 5, 15, 33, 60, 100], "delta": [-20, 0, 10], "city": ["Ada", "Brin"],
            "insured": [True, False, None]}  # fmt: skip

    def record(pid: int) -> dict[str, Any]:
        return {"pid": pid, **{name: draw.choice(values) for name, values in pick.items()}}

    return [record(draw.randrange(4)) for _ in range(12)], [record(9) for _ in range(30)]


def judge_batch(texts: Sequence[str], budget: Budget, tables: tuple[TableSchema, ...], seed: int) -> list[str]:
    _, parts = plan(texts, budget, tables)
    few, many = _neighbors(seed)
    worlds, wrong = Worlds(), []
    with hand_over():
        for part in parts:
            first, second = (
                measure_all(worlds, {"visits": rows, "stays": [], "answers": []}, [(part.plan, None)])[0]
                for rows in (few, few + many)
            )
            wrong += judge(part.plan, first, second)
    return wrong


FORMS: list[dict[str, Any]] = [
    {},
    {"max_groups": 3, "max_rows_per_group": 1},
    {"bounding": Bounding.ROWS, "max_rows": 4},
    {"neighboring": Neighboring.REPLACE},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_taking_a_person_away_moves_a_random_batch_no_further_than_it_is_priced_for(form: dict[str, Any]) -> None:
    draw, tables = random.Random(str(form)), clinic.with_unit(**form)
    budget = BUDGETS[FORMS.index(form) % len(BUDGETS)]
    assert judge_batch(draw_batch(draw, "visits", 4), budget, tables, FORMS.index(form)) == []


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_hundreds_of_random_batches_keep_their_sensitivity(form: dict[str, Any]) -> None:
    draw, tables = random.Random(str(form)), clinic.with_unit(**form)
    for seed in range(60):
        texts = draw_batch(draw, "visits", draw.randint(2, 7))
        assert judge_batch(texts, draw.choice(BUDGETS), tables, seed) == [], texts


def test_the_check_of_neighbors_finds_a_batch_that_counts_more_rows_than_it_pays_for() -> None:
    """The broken twin: six rows of a person are let in where noise is made for one."""
    texts = [f"SELECT sex, COUNT(*) FROM visits WHERE age {test} GROUP BY sex" for test in ("< 9", "> 50")]
    tables = clinic.with_unit(max_groups=2, max_rows_per_group=1)
    _, (part,) = plan(texts, ONE, tables)
    step = part.plan.nodes[0].steps[0]
    loose = replace(step, limits=replace(step.limits, rows=6))
    broken = replace(part.plan, nodes=(replace(part.plan.nodes[0], steps=(loose,)),))
    few, many = _neighbors(1)
    worlds = Worlds()
    with hand_over(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("deniable.query.execute.check", lambda plan: None)
        first, second = (
            measure_all(worlds, {"visits": rows, "stays": [], "answers": []}, [(broken, None)])[0]
            for rows in (few, few + many)
        )
    assert judge(broken, first, second)


def test_statements_are_split_at_semicolons_outside_of_quotes_and_comments() -> None:
    text = "-- a; b\nSELECT ';' AS a; /* ; */ SELECT \"x;y\" FROM t;;\n-- the end;"
    assert split_statements(text) == ["SELECT ';' AS a", 'SELECT "x;y" FROM t']
    assert split_statements(" ; ") == []


@pytest.mark.parametrize(
    "clause", ["CONTRIBUTION AUTO", "CONTRIBUTION AUTO SHARE 0.2", "contribution (max_rows_per_group = 2)"]
)
def test_a_comma_before_contribution_is_named(clause: str) -> None:
    for text in ("SELECT sex, COUNT(*) FROM visits GROUP BY sex, ", "SELECT COUNT(*) FROM visits WHERE age > 3, "):
        with pytest.raises(QueryRefused, match=r"a comma stands before CONTRIBUTION.*Leave the comma out") as told:
            compile_query(text + clause, clinic.TABLES, ONE)
        assert told.value.place is not None
        assert told.value.place.column == len(text) - 1
