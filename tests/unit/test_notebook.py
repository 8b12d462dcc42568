"""`%%deniable`: a cell of SQL is asked of a curator, and the answer is what the cell shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import deniable
from deniable import Curator
from deniable.client.notebook import ask_cell
from deniable.errors import ParameterError

SQL = "\nSELECT COUNT(*) AS n FROM data\n"


class Shell:
    """What IPython offers to an extension."""

    def __init__(self) -> None:
        self.user_ns: dict[str, Any] = {}
        self.magics: dict[str, Callable[..., Any]] = {}

    def register_magic_function(self, function: Callable[..., Any], magic_kind: str, magic_name: str) -> None:
        assert magic_kind == "cell"
        self.magics[magic_name] = function


@pytest.fixture
def shell() -> Iterator[Shell]:
    made = Shell()
    deniable.load_ipython_extension(made)
    rows = pa.table({"id": range(40), "sex": ["F", "M"] * 20})
    with Curator.from_frame(rows, unit="id", budget=2) as curator:
        made.user_ns["curator"] = curator
        yield made


def test_a_cell_is_asked_and_its_answer_shown(shell: Shell) -> None:
    answer = shell.magics["deniable"]("curator --epsilon 0.5 --confidence=0.9", SQL)
    assert answer.release.details["confidence"] == 0.9
    assert "Cost: epsilon 0.5" in answer._repr_html_()
    assert shell.user_ns["curator"].remaining().epsilon == 1.5


def test_a_cell_may_only_be_explained_or_kept_in_a_variable(shell: Shell) -> None:
    told = shell.magics["deniable"]("curator --epsilon 0.5 --explain", SQL)
    assert told["cost"]["epsilon"] == "0.5"
    assert shell.user_ns["curator"].remaining().epsilon == 2
    assert shell.magics["deniable"]("curator --epsilon 0.5 --into answer", SQL) is None
    assert shell.user_ns["answer"].to_pylist()[0]["n"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("", "no curator is named"),
        ("--epsilon 1", "no curator is named"),
        ("nobody --epsilon 1", "no curator 'nobody'"),
        ("number --epsilon 1", "no curator 'number'"),
        ("curator --epsilom 1", "Did you mean '--epsilon'"),
        ("curator epsilon 1", "not an option"),
        ("curator --epsilon '1", "not closed"),
        ("curator --epsilon 1 --confidence much", "not a number"),
        ("curator --epsilon 1 --into 'a b'", "not the name of a variable"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused_and_nothing_is_asked(shell: Shell, line: str, told: str) -> None:
    shell.user_ns["number"] = 7
    with pytest.raises(ParameterError, match=told):
        ask_cell(line, SQL, shell.user_ns)
    assert shell.user_ns["curator"].remaining().epsilon == 2


def test_every_report_is_a_table_in_a_notebook_and_markup_in_it_is_shown_as_text():
    rows = pa.table({"pid": range(200), "sex": ["F", "<b>"] * 100})
    curator = Curator.from_frame(rows, unit="pid", budget=10, categories={"sex": ["F", "<b>"]})
    sql = "SELECT sex, COUNT(*) AS n FROM data GROUP BY sex"
    with curator:
        reports = [
            curator.preview(sql, epsilon=1),
            curator.explain(sql, epsilon=1),
            curator.scan(rows, "pid"),
            curator.query_batch([sql, "SELECT COUNT(*) AS n FROM data"], epsilon=1),
            curator.register(),
            curator.check("data", ["sex"]),
        ]
    for report in reports:
        shown = report._repr_html_()
        assert "<table>" in shown
        assert "<b>" not in shown
    assert "<th>aggregate</th>" in reports[0]._repr_html_()


def test_a_batch_shows_each_question_with_its_numbers_and_the_cost_once():
    with Curator.from_frame(pa.table({"pid": range(200)}), unit="pid", budget=10) as curator:
        sql = ["SELECT COUNT(*) AS n FROM data", "SELECT COUNT(*) AS m FROM data WHERE pid > 5"]
        batch = curator.query_batch(sql, epsilon=1)
    told = repr(batch)
    assert told.count("is left") == 1
    assert told.splitlines()[-1] == batch.cost
    assert [told.count(question) for question in sql] == [1, 1]
    assert batch.remaining == batch[0].remaining == {"epsilon": "9", "delta": "0"}
    assert batch[1].columns == ("m", "m_low", "m_high")
    assert batch[1].details["notes"] == batch[1].notes
