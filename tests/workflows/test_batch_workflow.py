"""A batch of questions from the command line, in Python and over HTTP: one charge, all or nothing, free again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import csv, parquet
from typer.testing import CliRunner

from deniable import Curator, connect, connect_async
from deniable.cli.main import app
from deniable.dp.accounting import from_dict
from deniable.errors import BudgetExceeded, DeniableError, ParameterError, QueryRefused, StorageError
from noise_spy import additive_noise, check_noise_was_added, drawn_noise, flatten, watch_noise

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier}
      sex: {categories: [F, M]}
      ward: {categories: [a, b, c]}
      charge: {type: integer, between: [0, 100]}
  answers:
    source: answers.csv
    unit: row
    columns: {ward: {categories: [a, b, c]}}
budgets:
  dataset: {epsilon: 100, delta: 1e-5}
"""
BY_WARD = "SELECT ward, COUNT(*) AS n, SUM(charge) AS s FROM visits GROUP BY ward"
SOME = "SELECT ward, COUNT(*) AS n, SUM(charge) AS s FROM visits WHERE ward <> 'c' GROUP BY ward ORDER BY n"
TILES = [
    "SELECT COUNT(*) AS n FROM visits WHERE charge < 20",
    "SELECT COUNT(*) AS n FROM visits WHERE charge < 60",
    "SELECT COUNT(*) AS n FROM visits v WHERE v.charge BETWEEN 20 AND 59",
    BY_WARD,
    SOME,
    "SELECT MEDIAN(charge) AS m FROM visits",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    rows = "".join(f"{i},{'FM'[i % 2]},{'abc'[i % 3]},{i % 100}\n" for i in range(300))
    (tmp_path / "visits.csv").write_text(f"id,sex,ward,charge\n{rows}")
    (tmp_path / "answers.csv").write_text("ward\na\nb\n")
    return tmp_path


@pytest.fixture
def curator(folder: Path) -> Iterator[Curator]:
    with Curator.open(folder / "policy.yaml") as opened:
        yield opened


def charges(curator: Curator) -> list[Any]:
    return list(curator.ledger.entries(acts=("charge",)))


def test_one_charge_pays_for_all_noise_of_a_batch(curator: Curator) -> None:
    with watch_noise() as spy:
        found = curator.query_batch(TILES, epsilon=1)
    (entry,) = charges(curator)
    bill = flatten(entry.event if not isinstance(entry.event, dict) else from_dict(entry.event))
    additive = [draw for draw in spy.draws if draw.sampler in ("discrete_laplace", "discrete_gaussian")]
    assert drawn_noise(additive) == additive_noise(bill)
    assert len(spy.measured) == len(bill) == 3, "a block of three counts, one of two tables, and a median"
    check_noise_was_added(spy)
    assert {answer.release.guarantee.epsilon for answer in found} == {1}
    assert found[0].release.details["batch"]["together"] == [1, 2, 3]
    assert "whole batch of 6 questions" in found[0].release.details["notes"][0]


def test_answers_of_a_batch_agree_and_are_in_the_order_of_the_questions(curator: Curator) -> None:
    low, both, middle, wards, some, _ = curator.query_batch(TILES, epsilon=50)
    assert low.to_pylist()[0]["n"] + middle.to_pylist()[0]["n"] == both.to_pylist()[0]["n"]
    known = {row["ward"]: row for row in wards.to_pylist()}
    assert set(known) == {"a", "b", "c"}
    assert sorted(some.to_pylist(), key=lambda row: str(row["ward"])) == [known["a"], known["b"]]
    assert [row["n"] for row in some.to_pylist()] == sorted(row["n"] for row in some.to_pylist())
    # noise of this size is exceeded with a probability below 1e-6
    assert low.to_pylist()[0]["n"] == pytest.approx(60, abs=20)
    assert all(row["n"] == pytest.approx(100, abs=40) for row in known.values())


def test_the_same_batch_in_other_words_is_free_and_the_same(curator: Curator) -> None:
    first = curator.query_batch(TILES, epsilon=1)
    with watch_noise() as spy:
        others = [text.replace("AS n", "AS total").replace("BY n", "BY total") for text in TILES[::-1]]
        again = curator.query_batch(others, epsilon=1)
    assert (first.repeated, again.repeated, again.receipt) == (False, True, None)
    assert "nothing was charged" in again.cost
    assert again[5].to_pylist()[0]["total"] == first[0].to_pylist()[0]["n"]
    assert len(charges(curator)) == 1
    assert not spy.draws


def test_a_batch_and_the_question_that_has_it_as_columns_are_one(curator: Curator) -> None:
    found = curator.query_batch(TILES[:3], epsilon=1)
    tests = ("charge < 20", "charge < 60", "charge BETWEEN 20 AND 59")
    items = ", ".join(f"COUNT(*) FILTER (WHERE {test}) AS t{i}" for i, test in enumerate(tests))
    single = curator.query(f"SELECT {items} FROM visits", epsilon=1)
    assert single.repeated
    assert [single.to_pylist()[0][f"t{i}"] for i in range(3)] == [each.to_pylist()[0]["n"] for each in found]


REFUSED = [
    ("SELECT id FROM visits", "question 2 of the batch"),
    ("SELECT COUNT(*) FROM visits WITHIN 10", "WITHIN"),
    ("EXPLAIN SELECT COUNT(*) FROM visits", "EXPLAIN"),
    ("SELECT SUM(AUTO_CLAMP(charge)) FROM visits", "bounds are found first"),
    ("SELECT ward, COUNT(*) FROM visits GROUP BY ward CONTRIBUTION AUTO", "bounds are found first"),
    ("SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1) COUNT(*) FROM visits", "budget of its own"),
    ("SELECT ward, COUNT(*) FROM answers GROUP BY ward", "another unit"),
    ("SELECT SUM(id) FROM visits", "question 2 of the batch.*no declared bounds"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_a_batch_with_a_question_that_is_refused_costs_nothing(curator: Curator, text: str, why: str) -> None:
    for ask in (curator.query_batch, curator.explain_batch):
        with pytest.raises(QueryRefused, match=why) as told:
            ask([TILES[0], text], epsilon=1)
        assert told.value.as_dict()["question"] == 2
        assert told.value.as_dict()["charged"] is False
    assert charges(curator) == []


SHOP = """
version: 1
dataset: shop
tables:
  customers:
    source: customers.csv
    unit: {column: customer, max_groups: 2, max_rows_per_group: 1}
    columns: {customer: {type: integer}, age: {type: integer, between: [0, 99]}}
  orders:
    source: orders.csv
    unit: {column: buyer, max_groups: 2, max_rows_per_group: 2}
    columns: {number: {type: integer}, buyer: {type: integer}}
  lines:
    source: lines.csv
    unit: {via: [number = orders.number], max_groups: 2, max_rows_per_group: 4}
    columns: {number: {type: integer}, pieces: {type: integer, between: [0, 9]}}
  replaced:
    source: replaced.csv
    unit: {column: customer, max_groups: 1, max_rows_per_group: 1, neighboring: replace}
    columns: {customer: {type: integer}}
  doctors:
    source: doctors.csv
    unit: {column: doctor, max_groups: 1, max_rows_per_group: 1}
    columns: {doctor: {type: integer}}
budgets: {dataset: {epsilon: 100}}
"""
LINES, ORDERS, CUSTOMERS = (f"SELECT COUNT(*) AS n FROM {name}" for name in ("lines", "orders", "customers"))
JOINED = "SELECT COUNT(*) AS n FROM orders JOIN customers ON buyer = customer"


def test_questions_over_tables_of_the_same_people_are_one_batch(tmp_path: Path) -> None:
    for name, rows in {"customers": "customer,age\n1,30\n", "orders": "number,buyer\n7,1\n",
                       "lines": "number,pieces\n7,2\n", "replaced": "customer\n1\n",
                       "doctors": "doctor\n1\n"}.items():  # fmt: skip
        (tmp_path / f"{name}.csv").write_text(rows)
    (tmp_path / "shop.yaml").write_text(SHOP)
    turned = "SELECT COUNT(*) AS n FROM customers JOIN orders ON buyer = customer"
    with Curator.open(tmp_path / "shop.yaml") as curator:
        for texts in ([LINES, ORDERS], [JOINED, turned], [CUSTOMERS, ORDERS, JOINED], [LINES, CUSTOMERS, turned]):
            assert curator.explain_batch(texts, epsilon=1).cost["epsilon"] == "1", texts
        assert len(curator.query_batch([LINES, CUSTOMERS, JOINED], epsilon=30)) == 3
        assert len(charges(curator)) == 1
        with pytest.raises(QueryRefused, match=r"question 2 .*neighboring: replace, and question 1 .*add-remove"):
            curator.explain_batch([CUSTOMERS, "SELECT COUNT(*) FROM replaced"], epsilon=1)
        for texts in ([CUSTOMERS, ORDERS], [ORDERS, "SELECT COUNT(*) FROM doctors"]):
            with pytest.raises(QueryRefused, match=r"question 2 of the batch protects another unit.*same_people_as"):
                curator.explain_batch(texts, epsilon=1)
    linked = SHOP.replace("source: orders.csv", "source: orders.csv\n    same_people_as: customers")
    (tmp_path / "shop.yaml").write_text(linked)
    with Curator.open(tmp_path / "shop.yaml") as curator:
        assert curator.explain_batch([CUSTOMERS, LINES], epsilon=1).cost["epsilon"] == "1"


@pytest.mark.parametrize("questions", ["SELECT COUNT(*) FROM visits", [], [3], None, [TILES[0]] * 101])
def test_what_is_no_batch_is_refused(curator: Curator, questions: Any) -> None:
    with pytest.raises((ParameterError, QueryRefused), match="Nothing was charged"):
        curator.query_batch(questions, epsilon=1)
    with pytest.raises(DeniableError, match="budget"):
        curator.query_batch(TILES)


def test_a_batch_that_cannot_be_paid_as_a_whole_is_not_paid_in_part(curator: Curator) -> None:
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        curator.query_batch(TILES, epsilon=101)
    assert charges(curator) == []


def test_an_explanation_names_shares_and_reasons_and_charges_nothing(curator: Curator) -> None:
    told = curator.explain_batch([*TILES, "SELECT COUNT(*) AS n FROM visits WHERE FALSE"], epsilon=1)
    assert (told.cost["epsilon"], told.more_like_this) == ("1", 100)
    shares = [question.share for question in told.questions]
    assert shares == ["0.5", "0.5", "0.5", "0.333333", "0.333333", "0.166667", "0"]
    assert [bool(question.alone) for question in told.questions] == [False] * 5 + [True] * 2
    answers = curator.query_batch(TILES, epsilon=1)
    for question, answer in zip(told.questions, answers, strict=False):
        (number, *_) = question.aggregates[0].measurements
        assert answer.release.details["aggregates"][0]["measurements"][0]["error"] == number.error
    assert len(charges(curator)) == 1


def test_joined_questions_say_that_they_share_one_bound_on_rows(curator: Curator) -> None:
    told = curator.explain_batch(TILES, epsilon=1)
    shared = [next((note for note in each.notes if "measured together" in note), "") for each in told.questions]
    assert ["at most 1 of its rows" in note for note in shared] == [True] * 3 + [False] * 3
    assert ["at most 2 of its rows" in note for note in shared] == [False] * 3 + [True] * 2 + [False]
    answers = curator.query_batch(TILES, epsilon=1)
    for note, answer in zip(shared[:5], answers, strict=False):
        assert note in answer.release.details["notes"]
    rows = ["SELECT COUNT(*) AS n FROM answers WHERE ward = 'a'", "SELECT COUNT(*) AS n FROM answers WHERE ward < 'c'"]
    notes = [note for each in curator.explain_batch(rows, epsilon=1).questions for note in each.notes]
    assert not any("of its rows" in note for note in notes), "where each row is a unit, nothing is cut off"


def ask(folder: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["query", *words, "-p", str(folder / "policy.yaml")])


def test_the_command_asks_several_statements_together(folder: Path) -> None:
    (folder / "tiles.sql").write_text(";\n".join(TILES) + ";\n-- the end\n")
    file = str(folder / "tiles.sql")
    told = json.loads(ask(folder, "--together", file, "--epsilon", "1", "--explain", "--json").stdout)
    assert [each["together"] for each in told["questions"]] == [[1, 2, 3]] * 3 + [[4, 5]] * 2 + [[6]]
    shown = ask(folder, "--together", file, "--epsilon", "1", "--explain")
    assert "measured together with 2, 3" in shown.output
    assert "measured alone: only COUNT, SUM, AVG and VARIANCE" in shown.output
    first = ask(folder, "--together", file, "--epsilon", "1")
    assert first.exit_code == 0, first.output
    assert "Cost: epsilon 1; 99 of epsilon 100" in first.output
    again = json.loads(ask(folder, "--together", *TILES, "--epsilon", "1", "--json").stdout)
    assert again["repeated"]
    assert (again["cost"]["epsilon"], again["remaining"]["epsilon"]) == ("1", "99"), "of all questions together"
    assert [each["sql"] for each in again["answers"]] == TILES
    assert len(again["answers"][3]["rows"]) == 3


@pytest.mark.parametrize(("out", "names"), [
    ("answers", ["answers/question-1.csv", "answers/question-2.csv", "answers/question-3.csv"]),
    ("tiles.parquet", ["tiles-1.parquet", "tiles-2.parquet", "tiles-3.parquet"]),
])  # fmt: skip
def test_each_answer_of_a_batch_is_written_with_its_statement(folder: Path, out: str, names: list[str]) -> None:
    words = ("--together", *TILES[2:5], "--epsilon", "1", "--out", str(folder / out))
    assert ask(folder, *words, "--explain").exit_code == 0
    assert not (folder / "answers").exists(), "nothing is written where it is only explained"
    shown = ask(folder, *words)
    assert "each with its statement" in shown.output
    told = json.loads(ask(folder, *words, "--json").stdout)
    assert [each["file"] for each in told["answers"]] == [str(folder / name) for name in names]
    for name, text, answer in zip(names, TILES[2:5], told["answers"], strict=True):
        checked = CliRunner().invoke(app, ["release", "verify", str(folder / name)])
        assert checked.exit_code == 0, checked.output
        stated = json.loads((folder / f"{name}.release.json").read_text())["statement"]
        assert stated["provenance"]["parameters"]["sql"] == text
        assert stated["guarantee"]["epsilon"] == "1"
        read = csv.read_csv(folder / name) if name.endswith(".csv") else parquet.read_table(folder / name)
        assert read.to_pylist() == answer["rows"]


@pytest.mark.parametrize(
    "out", ["missing/tiles.csv", "missing/answers", "tiles.txt", "visits.csv", "policy.yaml", "in"]
)
def test_a_batch_that_cannot_be_written_is_not_charged(folder: Path, out: str) -> None:
    (folder / "visits-1.csv").mkdir()
    (folder / "in" / "question-2.csv").mkdir(parents=True)
    done = ask(folder, "--together", *TILES[:2], "--epsilon", "1", "--out", str(folder / out))
    assert isinstance(done.exception, ParameterError | StorageError), done.output
    assert done.exception.as_dict()["charged"] is False
    with Curator.open(folder / "policy.yaml") as curator:
        assert charges(curator) == []


def test_files_of_ten_answers_sort_by_their_numbers(folder: Path) -> None:
    texts = [f"SELECT COUNT(*) AS n FROM visits WHERE charge < {limit}" for limit in range(10, 20)]
    assert ask(folder, "--together", *texts, "--epsilon", "1", "-o", str(folder / "all")).exit_code == 0
    written = sorted(each.name for each in (folder / "all").glob("*.csv"))
    assert written == [f"question-{place:02d}.csv" for place in range(1, 11)]


@pytest.mark.parametrize(("words", "why"), [
    ((TILES[0], TILES[1]), "--together"),
    (("--together", TILES[0], TILES[1], "--curve", "page.html"), "--curve is for one question"),
    (("--together", TILES[0], TILES[1], "--bias-share", "0.1"), "--bias-share is for one question"),
    (("--together", "missing.sql"), "cannot be read"),
])  # fmt: skip
def test_the_command_refuses_what_it_cannot_ask_together(folder: Path, words: tuple[str, ...], why: str) -> None:
    done = ask(folder, *words, "--epsilon", "1")
    assert isinstance(done.exception, ParameterError)
    assert why in str(done.exception)
    assert "Nothing was charged" in str(done.exception)


def test_one_question_may_stand_in_a_file(folder: Path) -> None:
    (folder / "one.sql").write_text(f"{TILES[0]};\n")
    done = ask(folder, str(folder / "one.sql"), "--epsilon", "1")
    assert done.exit_code == 0, done.output


def test_an_analyst_asks_a_batch_over_http(serve: Any) -> None:
    httpx = pytest.importorskip("httpx", reason="the server extra is not installed")
    texts = ["SELECT COUNT(*) AS n FROM people WHERE age < 30", "SELECT COUNT(*) AS n FROM people WHERE age < 60"]
    body = {"questions": texts, "epsilon": "2"}
    with serve() as up:

        def post(path: str, given: dict[str, Any]) -> Any:
            headers = {"authorization": f"Bearer {up.tokens['ana']}"}
            return httpx.post(up.http + path, json=given, headers=headers, timeout=60)

        told = post("/v1/batch/explain", body).json()
        assert [each["together"] for each in told["questions"]] == [[1, 2], [1, 2]]
        first, again = (post("/v1/batch", body) for _ in range(2))
        assert (first.headers["x-deniable-charged"], again.headers["x-deniable-charged"]) == ("true", "false")
        assert [each["rows"] for each in first.json()["answers"]] == [each["rows"] for each in again.json()["answers"]]
        assert [each["sql"] for each in first.json()["answers"]] == texts
        refused = post("/v1/batch", body | {"questions": [*texts, "SELECT id FROM people"]})
        assert (refused.status_code, refused.json()["charged"], refused.json()["question"]) == (400, False, 3)
        assert post("/v1/batch", {"questions": [], "epsilon": "1"}).status_code == 400


def test_the_client_asks_a_batch(serve: Any) -> None:
    texts = ["SELECT COUNT(*) AS n FROM people WHERE age < 30", "SELECT COUNT(*) AS n FROM people WHERE age < 60"]
    with serve() as up:
        server = connect(up.http, up.tokens["ana"], purpose="research")
        told = server.explain_batch(texts, epsilon=2)
        assert [each["together"] for each in told["questions"]] == [[1, 2], [1, 2]]
        first = server.query_batch(texts, epsilon=2, request="mine", confidence=0.9)
        assert len(first) == 2
        assert [answer.details["sql"] for answer in first] == texts
        assert all(answer.columns == ("n", "n_low", "n_high") for answer in first)
        assert (first.repeated, first[1].repeated, first.cost["epsilon"]) == (False, False, "2")
        assert first.receipt is not None
        assert first.remaining is not None
        assert first[0].details["confidence"] == 0.9
        assert repr(first).startswith("SELECT COUNT(*) AS n FROM people WHERE age < 30\nn ")
        assert "\nCost: epsilon 2;" in repr(first)
        assert first._repr_html_().count("<table>") == 2
        left = server.balance()
        awaited = connect_async(up.http, up.tokens["ana"], purpose="research")
        again = asyncio.run(awaited.query_batch(texts[::-1], epsilon=2))
        assert (again.repeated, again[0].repeated) == (True, True)
        assert [answer.scalar() for answer in again] == [answer.scalar() for answer in first][::-1]
        assert "nothing was charged" in repr(again)
        assert server.balance() == left
        with pytest.raises(QueryRefused, match="question 3 of the batch") as refused:
            server.query_batch([*texts, "SELECT id FROM people"], epsilon=1)
        assert refused.value.as_dict()["question"] == 3
        for wrong in (texts[0], [], [3]):
            with pytest.raises(DeniableError, match="Nothing was charged"):
                server.query_batch(wrong, epsilon=1)  # type: ignore[arg-type]
        with pytest.raises(QueryRefused, match="question 2"):
            asyncio.run(awaited.explain_batch([texts[0], "SELECT id FROM people"], epsilon=1))
