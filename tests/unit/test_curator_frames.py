"""A table at hand to a first answer in three lines; and no way around the budget of its people."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from deniable import Curator
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, ParameterError, QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.document import parse, read

pytestmark = pytest.mark.usefixtures("marked_rows")
CHANCE = random.Random(5)
ROWS = pa.table(
    {
        "patient_id": [number // 2 for number in range(120)],
        "sex": [CHANCE.choice("FM") for _ in range(120)],
        "age": [CHANCE.randrange(90) for _ in range(120)],
        "charge": [round(CHANCE.uniform(0, 900), 2) for _ in range(120)],
    }
)
STATED: dict[str, Any] = {
    "unit": "patient_id",
    "budget": 2,
    "bounds": {"age": (0, 120)},
    "categories": {"sex": ["F", "M"]},
}


class OnlyArrow:
    """Rows of a library that deniable does not know, and that can be read once."""

    def __init__(self, rows: pa.Table) -> None:
        self.held: list[pa.Table] = [rows]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.held.pop().__arrow_c_stream__(requested_schema)


FRAMES = {
    "arrow": lambda: ROWS,
    "batches": lambda: ROWS.to_reader(max_chunksize=7),
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.from_arrow(ROWS),
    "lazy": lambda: pl.from_arrow(ROWS).lazy(),  # type: ignore[union-attr]
    "capsule": lambda: OnlyArrow(ROWS),
    "shuffled": lambda: ROWS.to_pandas().sample(frac=1, random_state=1),
    "renamed": lambda: ROWS.to_pandas().rename(columns={"charge": "cost"}),
    "wider": lambda: ROWS.append_column("one", pa.array([1] * 120)),
    "categorical": lambda: ROWS.to_pandas().astype({"sex": "category", "age": "int16"}),
    "most of it": lambda: ROWS.slice(0, 100),
    "a third of it": lambda: ROWS.to_pandas().sample(frac=0.35, random_state=1),
}


def test_three_lines_lead_from_a_table_to_an_answer() -> None:
    curator = Curator.from_frame(ROWS.to_pandas(), unit="patient_id", budget=1)
    answer = curator.query("SELECT COUNT(*) AS n FROM data", epsilon=0.5)
    assert abs(answer.to_pylist()[0]["n"] - 60) < 60, "one row of each person counts unless more is said"
    assert curator.remaining().epsilon == 0.5  # type: ignore[union-attr]
    curator.close()


def test_a_file_is_asked_under_its_own_name(tmp_path: Path) -> None:
    csv.write_csv(ROWS, tmp_path / "visits.csv")
    with Curator.from_frame(tmp_path / "visits.csv", max_rows=2, **STATED) as curator:
        rows = curator.query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", epsilon=2).to_pylist()
        assert sum(row["n"] for row in rows) == pytest.approx(120, abs=60)


def test_the_same_rows_have_one_budget_whichever_library_holds_them() -> None:
    with Curator.from_frame(ROWS, **STATED) as first:
        first.query("SELECT COUNT(*) FROM data", epsilon=1.5)
    for name, make in FRAMES.items():
        with Curator.from_frame(make(), **STATED) as again:
            assert again.remaining().epsilon == 0.5, name  # type: ignore[union-attr]
    with Curator.from_frame(ROWS.to_pandas(), **STATED) as last, pytest.raises(BudgetExceeded):
        last.query("SELECT AVG(age) FROM data", epsilon=1)


def test_other_people_have_a_budget_of_their_own() -> None:
    with Curator.from_frame(ROWS, **STATED) as first:
        first.query("SELECT COUNT(*) FROM data", epsilon=1.5)
    others = ROWS.set_column(0, "patient_id", pa.array([f"n{n}" for n in range(120)])).set_column(
        2, "age", pa.array([(7 * n) % 100 for n in range(120)])
    )
    others = others.set_column(3, "charge", pa.array([n * 1.25 for n in range(120)]))
    with Curator.from_frame(others, **STATED) as second:
        assert second.remaining().epsilon == 2  # type: ignore[union-attr]


def test_few_rows_are_known_by_what_they_hold() -> None:
    few = ROWS.slice(0, 3)
    with Curator.from_frame(few, **STATED) as first:
        first.query("SELECT COUNT(*) FROM data", epsilon=1)
    with Curator.from_frame(few.to_pandas(), **STATED) as second:
        assert second.remaining().epsilon == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("convert", [lambda rows: rows, pa.Table.to_pandas, pl.from_arrow])
def test_tables_without_rows_are_not_the_same_people(convert: Any, tmp_path: Path) -> None:
    text = "version: 1\ndataset: {}\ntables:\n  t: {{source: t.csv, unit: row, columns: {{n: {{type: integer}}}}}}\n"
    text += "budgets: {{dataset: {{epsilon: 1}}}}\n"
    none = convert(pa.table({"n": pa.array([], pa.int64())}))
    for name in ("one", "another"):
        policy = parse(text.format(name))
        with Curator(policy, sources={"t": none}, ledger=tmp_path / f"{name}.sqlite") as curator:
            curator.query("SELECT COUNT(*) FROM t", epsilon=1)


def test_another_unit_for_rows_that_were_charged_is_refused() -> None:
    with Curator.from_frame(ROWS, **STATED) as first:
        first.query("SELECT COUNT(*) FROM data", epsilon=1)
    with pytest.raises(AccessRefused, match="and would now be as"):
        Curator.from_frame(ROWS, unit="row", budget=2)


def test_rows_under_a_policy_are_refused_as_a_table_at_hand_and_the_other_way_round(tmp_path: Path) -> None:
    with Curator.from_frame(ROWS, **STATED) as first:
        saved, place = first.save_policy(tmp_path / "policy.yaml"), first.context.place
        first.query("SELECT COUNT(*) FROM data", epsilon=1)
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(saved, sources={"data": ROWS})
    with Curator.open(saved, sources={"data": ROWS}, ledger=place) as again:
        assert again.remaining().epsilon == 1  # type: ignore[union-attr]


def test_a_table_under_a_policy_with_a_ledger_is_not_opened_without_it(tmp_path: Path) -> None:
    csv.write_csv(ROWS, tmp_path / "visits.csv")
    text = """
version: 1
dataset: clinic
tables: {visits: {source: visits.csv, unit: {column: patient_id, max_rows: 1, bounding: rows}, columns: {
  patient_id: {type: integer, role: identifier}, age: {type: integer, role: undecided}}}}
budgets: {dataset: {epsilon: 1}}
"""
    (tmp_path / "policy.yaml").write_text(text)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
    with pytest.raises(AccessRefused, match=r"budget already, in the ledger .*policy\.ledger\.sqlite.*Curator\.open"):
        Curator.from_frame(pd.read_csv(tmp_path / "visits.csv"), **STATED)


def test_a_saved_policy_says_what_the_arguments_said(tmp_path: Path) -> None:
    with Curator.from_frame(
        ROWS, unit="patient_id", budget={"epsilon": "1.5", "delta": 1e-6}, name="visits", max_groups=3,
        max_rows_per_group=2, bounds={"age": (0, 120), "charge": (0, 900, 0.5)}, categories={"sex": ["F", "M"]},
    ) as curator:  # fmt: skip
        held, path = curator.policy, curator.save_policy(tmp_path / "policy.yaml")
    assert read(path).hash == held.hash
    (table,) = held.tables
    assert (table.unit.column, table.unit.max_groups, table.unit.max_rows_per_group) == ("patient_id", 3, 2)  # type: ignore[union-attr]
    assert str(table.column("charge").bounds.step) == "1/2"  # type: ignore[union-attr]
    assert table.released_columns == ("patient_id",), "columns on which nobody decided are withheld"
    with pytest.raises(DeniableError):
        curator.save_policy(tmp_path / "policy.yaml")


def test_a_curator_of_a_policy_file_has_nothing_to_save(tmp_path: Path) -> None:
    with Curator.from_frame(ROWS, **STATED) as curator:
        path = curator.save_policy(tmp_path / "policy.yaml")
    with Curator.open(path, sources={"data": ROWS}, ledger=None) as opened, pytest.raises(ParameterError, match="Copy"):
        opened.save_policy(tmp_path / "other.yaml")


def test_bounds_are_stated_and_never_read_from_the_data() -> None:
    with Curator.from_frame(ROWS, unit="patient_id", budget=2) as curator:
        with pytest.raises(QueryRefused, match=r"bounds=\{.age.: \(0, 100\)\}"):
            curator.query("SELECT AVG(age) FROM data", epsilon=1)
        with pytest.raises(QueryRefused, match="categories="):
            curator.query("SELECT sex, COUNT(*) FROM data GROUP BY sex", epsilon=1)
        assert all(column.bounds is None and column.categories is None for column in curator.policy.tables[0].columns)


MISTAKES = {
    "no such unit": ({"unit": "patient"}, "Did you mean 'patient_id'"),
    "no unit": ({"unit": None}, 'unit="row"'),
    "no such column": ({"bounds": {"aeg": (0, 9)}}, "Did you mean 'age'"),
    "one bound": ({"bounds": {"age": (0,)}}, "not a pair"),
    "bounds the wrong way": ({"bounds": {"age": (9, 0)}}, "not lowest, then highest"),
    "one category": ({"categories": {"sex": "F"}}, "not a list"),
    "no budget": ({"budget": 0}, "budget is not above 0"),
    "no number": ({"budget": "much"}, "not a finite number"),
    "no such amount": ({"budget": {"eps": 1}}, "no 'eps'"),
    "no such bound": ({"max_rows": 0}, "max_rows"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_stated_wrongly_is_told_in_the_callers_words(name: str) -> None:
    changed, told = MISTAKES[name]
    with pytest.raises(DeniableError, match=told):
        Curator.from_frame(ROWS, **(STATED | changed))


def test_what_is_no_table_is_refused() -> None:
    for thing in ([1, 2], {"a": [1]}, 7, None):
        with pytest.raises(ParameterError, match=r"a value of type .* is not a table"):
            Curator.from_frame(thing, unit="row", budget=1)


def test_a_policy_that_was_not_read_is_refused_with_the_way_to_open_it() -> None:
    with pytest.raises(ParameterError, match=r"Curator\.open\('policy\.yaml'\)"):
        Curator("policy.yaml")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match=r"Curator\.from_frame"):
        Curator(ROWS)  # type: ignore[arg-type]


def test_a_misspelled_keyword_is_told_with_the_right_one() -> None:
    with Curator.from_frame(ROWS, **STATED) as curator:
        for call, told in (
            (lambda: curator.query("SELECT COUNT(*) FROM data", epsilson=1), "'epsilon'"),  # type: ignore[call-arg]
            (lambda: curator.train("data", "age", epsilon=1, metod="linear"), "'method'"),  # type: ignore[call-arg]
            (lambda: Curator.generate("m.json", sed=1), "'seed'"),  # type: ignore[call-arg]
            (lambda: Curator.open("p.yaml", ledgers="x"), "'ledger'"),  # type: ignore[call-arg]
        ):
            with pytest.raises(ParameterError, match=f"Did you mean {told}"):
                call()
        assert curator.remaining().epsilon == 2  # type: ignore[union-attr]


def test_another_frame_is_not_given_the_answer_of_the_first(tmp_path: Path, silence: None) -> None:
    people = pa.table({"pid": range(1_000), "sex": ["F", "M"] * 500})
    counted = []
    for rows in (people, people.slice(0, 200), people):
        with Curator.from_frame(rows, unit="pid", budget=5, categories={"sex": ["F", "M"]}) as curator:
            answer = curator.query(f"SELECT COUNT(*) AS n FROM {curator.policy.tables[0].name}", epsilon=1)
            counted.append((answer.to_pylist()[0]["n"], answer.repeated))
    assert counted == [(1_000, False), (200, False), (1_000, True)]


def test_a_budget_is_not_raised_by_asking_again() -> None:
    """Until the first charge anything may be stated; afterwards what was stated then, or less."""
    people = pa.table({"pid": range(50), "sex": ["F", "M"] * 25})
    count = "SELECT COUNT(*) AS n FROM data"
    for stated in (1, 5):
        Curator.from_frame(people, unit="pid", budget=stated).close()
    with Curator.from_frame(people, unit="pid", budget=2) as curator:
        curator.query(count, epsilon=1)
    for more in (10, {"epsilon": 2, "delta": 1e-6}, {"rho": "0.01"}):
        with pytest.raises(AccessRefused, match=r"have a budget already: epsilon 2\b.*save_policy"):
            Curator.from_frame(people, unit="pid", budget=more)
    with Curator.from_frame(people, unit="pid", budget=1) as curator, pytest.raises(BudgetExceeded):
        curator.query(f"{count} WHERE sex = 'F'", epsilon=1)
    with Curator.from_frame(people, unit="pid", budget=2) as curator:
        curator.query(f"{count} WHERE sex = 'F'", epsilon=1)


def test_texts_of_a_frame_that_look_like_dates_or_numbers_are_told() -> None:
    rows = pa.table({"pid": [1, 2], "seen": ["03/04/2020", None], "fee": ["12,50", "3"], "zip": ["02138", "10001"]})
    with pytest.warns(UserWarning, match="'seen', 'fee': texts that look like numbers or dates"):
        Curator.from_frame(rows, unit="pid", budget=1).close()


def test_a_budget_is_printed_as_people_say_it() -> None:
    with Curator.from_frame(pa.table({"pid": [1, 2]}), unit="pid", budget=1.5) as curator:
        assert str(curator.remaining()) == "epsilon 1.5"
        assert eval(repr(curator.remaining()), {"PureDP": PureDP, "Fraction": Fraction}) == curator.remaining()
