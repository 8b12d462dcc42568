"""What is public is shown, documented and typed: `dir` lists it, and each name has its help."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import math
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import deniable
from deniable import Curator
from deniable.cli.main import build_command, main
from deniable.client.answer import Answer
from deniable.client.connection import AsyncConnection, Connection
from deniable.errors import (
    NOTHING_CHARGED,
    TYPES,
    UNSURE,
    BudgetExceeded,
    DataError,
    DeniableError,
    MissingExtra,
    ParameterError,
    QueryRefused,
    Stopped,
    StorageError,
    _split_union,
    guard_call,
    plain,
)

PACKAGES = ["deniable", "deniable.client", "deniable.curator", "deniable.curator.governance.steward",
            "deniable.engines", "deniable.errors",
            "deniable.ledger", "deniable.release", "deniable.world"]  # fmt: skip
"""The packages that say what of them is public."""
OPEN = {"record"}
"""Methods that take whatever public facts the caller names."""


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_is_public_and_nothing_else(name: str) -> None:
    package = importlib.import_module(name)
    assert sorted(dir(package)) == sorted(package.__all__)
    assert all(getattr(package, each) is not None for each in package.__all__)
    assert not [each for each in package.__all__ if each.startswith("_") and each != "__version__"]


def list_documented(holder: Any) -> list[tuple[str, Any]]:
    """The public methods and properties of a class."""
    return [
        (f"{holder.__name__}.{name}", inspect.getattr_static(holder, name))
        for name in dir(holder)
        if not name.startswith("_") and not isinstance(inspect.getattr_static(holder, name), type(None))
    ]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_has_its_help(name: str) -> None:
    package = importlib.import_module(name)
    found = [(each, getattr(package, each)) for each in package.__all__ if each != "__version__"]
    for each, value in found:
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            assert inspect.getdoc(value), f"{name}.{each} says nothing of itself"
    for title, member in (one for _, value in found if inspect.isclass(value) for one in list_documented(value)):
        if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
            assert inspect.getdoc(member), f"{title} says nothing of itself"


def test_methods_of_a_curator_say_which_arguments_they_take_and_of_which_type() -> None:
    for name, member in list_documented(Curator):
        method = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not inspect.isfunction(method):
            continue
        signature = inspect.signature(method)
        arguments = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        kinds = {each.kind for each in arguments}
        assert inspect.Parameter.VAR_POSITIONAL not in kinds, name
        assert inspect.Parameter.VAR_KEYWORD not in kinds or name.partition(".")[2] in OPEN, name
        assert all(each.annotation is not each.empty for each in arguments), name
        assert signature.return_annotation is not signature.empty, name


def test_the_curator_has_every_verb() -> None:
    verbs = (
        "query explain anonymize check mask scan synthesize generate inspect parity train predict attack audit "
        "randomize estimate survey margins top watch find_bounds sample_and_aggregate release register"
    )
    assert not [verb for verb in verbs.split() if not callable(getattr(Curator, verb, None))]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Curater'"):
        _ = deniable.Curater  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_library() -> None:
    heavy = "{'pyarrow', 'duckdb', 'numpy', 'pandas', 'polars', 'sqlglot', 'typer'} & set(sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, deniable; dir(deniable); print({heavy})"], capture_output=True, check=True
    )
    assert told.stdout.strip() == b"set()"


FRAME = {"id": [1, 2, 3, 4], "age": [20, 30, 40, 50], "sex": ["F", "M", "F", "M"]}


def ask_frame(**rest: Any) -> Curator:
    people = {"bounds": {"age": (np.int64(0), np.float64(120))}, "categories": {"sex": np.array(["F", "M"])}}
    return Curator.from_frame(pa.table(FRAME), unit="id", budget=np.float64(10), **people | rest)


@pytest.mark.parametrize("epsilon", [np.float64(0.5), np.float32(0.1), np.int64(1), np.linspace(0.5, 1, 2)[0]])
def test_numbers_of_numpy_mean_what_they_show(epsilon: Any) -> None:
    with ask_frame() as curator:
        answer = curator.query("SELECT COUNT(*) AS n FROM data", epsilon=epsilon)
        assert answer.release.details["cost"]["epsilon"] == str(epsilon.item() if epsilon != np.float32(0.1) else 0.1)


def test_times_and_grids_of_numpy_are_plain_too() -> None:
    day, moment = np.datetime64("2024-02-29"), np.datetime64("2024-02-29T10:00:00.5", "ns")
    assert plain({"on": (day, moment)}) == {"on": (date(2024, 2, 29), datetime(2024, 2, 29, 10, 0, 0, 500000))}
    assert plain({"hidden": np.array([4, 8])}) == {"hidden": [4, 8]}
    assert type(plain([np.bool_(True)])[0]) is bool


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (lambda curator: curator.query("SELECT 1", eps=1), "query() has no keyword 'eps'", "epsilon"),
        (lambda curator: curator.table("data").count().ask(epsilo=1), "ask() has no keyword 'epsilo'", "epsilon"),
        (lambda curator: curator.table("data").count().explain(rh=1), "explain() has no keyword 'rh'", "rho"),
        (lambda curator: curator.table("data").group_by("sex", rollu=True), "group_by() has no keyword", "rollup"),
        (lambda curator: curator.query("SELECT COUNT(*) AS n FROM data", epsilon=1).plot(kind="bar"), "plot()", ""),
        (lambda curator: curator.synthesize("data", epsilon=1), "synthesize(): missing a required argument: 'out'", ""),
        (lambda curator: curator.table("data").limit(), "limit(): missing a required argument: 'rows'", ""),
        (lambda curator: curator.table("data").limit(1, 2), "limit(): too many positional arguments", ""),
        (lambda _: deniable.connect("http://127.0.0.1:9", tokn="x"), "connect() has no keyword 'tokn'", "token"),
        (lambda _: Answer((), ()).plot(kind="bar"), "plot() has no keyword 'kind'", ""),
    ],
)
def test_a_keyword_that_is_not_there_is_refused_under_the_name_that_was_called(
    call: Any, name: str, meant: str
) -> None:
    with ask_frame() as curator, pytest.raises(ParameterError, match=re.escape(name)) as refused:
        call(curator)
    assert refused.value.charged == NOTHING_CHARGED
    assert refused.value.remedy == (f"Did you mean '{meant}'?" if meant else "")


def test_answers_of_a_curator_and_of_a_server_are_shown_and_drawn_alike(tmp_path: Path) -> None:
    sql = "SELECT sex, AVG(age) AS age, COUNT(*) AS n FROM data GROUP BY sex"
    with ask_frame() as curator:
        here = curator.query(sql, epsilon=5)
        assert repr(curator.table("data").group_by("sex").count()).startswith("<question: SELECT sex, COUNT(*)")
    there = Answer(tuple(here.to_pylist()), tuple(here.list_columns()), here.release.details)
    assert repr(there) == repr(here)
    assert there._repr_html_() == here._repr_html_()
    assert here.scalar() == here.to_pylist()[0]["age"], "a number, and no key"
    drawn = here.plot()
    assert drawn.svg == there.plot().svg
    assert all(f">{name}</text>" in drawn.svg for name in ("age", "n")), "every number is drawn"
    assert ">n</text>" not in here.plot("age").svg
    assert "0</text>" in drawn.svg, "with its axis"
    assert drawn.save(tmp_path / "a.svg").read_text() == drawn.svg
    with pytest.raises(ParameterError, match=r"cannot be written as '\.png'"):
        drawn.save(tmp_path / "a.png")
    with pytest.raises(StorageError, match="could not be written"):
        drawn.save(tmp_path / "no" / "a.svg")
    with pytest.raises(ParameterError, match="no number 'wage'"):
        here.plot("wage")
    assert not (tmp_path / "a.png").exists()


def test_rows_without_a_value_and_ends_that_are_not_known_are_drawn() -> None:
    rows = (
        {"k": "a" * 40, "n": 5, "n_low": 3, "n_high": math.inf},
        {"k": "<b>", "n": None, "n_low": None, "n_high": None},
    )
    drawn = Answer(rows, ("k", "n", "n_low", "n_high")).plot().svg
    assert "no value" in drawn
    assert "&lt;b&gt;" in drawn
    assert "inf" not in drawn
    assert "nan" not in drawn
    assert repr(Answer((), ("n",), {})).startswith("no row\n")


def test_the_asynchronous_connection_has_every_call_of_the_plain_one() -> None:
    plain_calls = {name for name, value in vars(Connection).items() if inspect.isfunction(value)}
    awaited = {name for name in dir(AsyncConnection) if not name.startswith("_")} - {"connection"}
    assert {name for name in plain_calls if not name.startswith("_")} == awaited


def test_a_server_that_does_not_answer_or_is_another_one_is_told_with_the_request_id() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        answering = threading.Thread(target=_answer_strangely, args=(other,), daemon=True)
        answering.start()
        server = deniable.connect(f"http://127.0.0.1:{other.getsockname()[1]}", "token")
        with pytest.raises(Stopped, match=r"is not a server of deniable\. .*Ask again with request='mine'") as refused:
            server.query("SELECT 1", epsilon=1, request="mine")
    assert refused.value.charged == UNSURE


def _answer_strangely(listening: socket.socket) -> None:
    while True:
        try:
            peer, _ = listening.accept()
        except OSError:
            return
        with peer:
            peer.recv(1 << 16)
            peer.sendall(b"E\0\0\0\x08other")


EXTREME = ("1e400", 1e300, "1e-400", 0, -1, float("nan"), "x", True)


@pytest.mark.parametrize("epsilon", EXTREME, ids=str)
@pytest.mark.parametrize(
    "ask",
    [
        lambda curator, **budget: curator.query("SELECT COUNT(*) AS n FROM data", **budget),
        lambda curator, **budget: curator.train("data", "age", **budget),
        lambda curator, **budget: curator.synthesize("data", "made.parquet", delta="1e-7", **budget),
        lambda curator, **budget: curator.find_bounds("data", "age", **budget),
        lambda curator, **budget: curator.sample_and_aggregate(len, "data", blocks=2, bounds=(0, 9), **budget),
    ],
    ids=["query", "train", "synthesize", "find_bounds", "sample_and_aggregate"],
)
def test_a_budget_that_is_none_is_refused_before_a_charge(ask: Any, epsilon: Any) -> None:
    with ask_frame() as curator:
        with pytest.raises((ParameterError, QueryRefused, BudgetExceeded)):
            ask(curator, epsilon=epsilon)
        assert curator.ledger.head() is None


def test_a_package_that_is_missing_is_named_before_a_charge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None)
    with ask_frame() as curator:
        with pytest.raises(MissingExtra, match="'pandas' is not installed"):
            curator.sample_and_aggregate(len, "data", blocks=2, bounds=(0, 9), epsilon=1, frames="pandas")
        assert curator.ledger.head() is None


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ({"budget": -1}, "the budget is not above 0"),
        ({"budget": "one"}, "the epsilon of the budget is not a finite number"),
        ({"max_rows": 0}, "max_rows is not a whole number"),
        ({"max_rows": 1.5}, "max_rows is not a whole number"),
        ({"bounds": {"age": (9, 1)}}, "the bounds of 'age' are not lowest, then highest"),
        ({"bounds": {"sex": (0, 1)}}, "column 'sex' is text, which has no bounds"),
        ({"bounds": (0, 1)}, "bounds is of type tuple|bounds is a tuple of int"),
        ({"categories": {"age": ["x"]}}, "the arguments cannot be used: a category cannot be read as integer"),
    ],
    ids=str,
)
def test_what_is_stated_of_a_frame_is_refused_in_the_words_of_its_arguments(stated: Any, told: str) -> None:
    with pytest.raises(ParameterError, match=told) as refused:
        Curator.from_frame(pa.table(FRAME), **{"unit": "id", "budget": 1} | stated)
    assert refused.value.place is None


def test_a_saved_policy_finds_its_file_from_another_folder_and_takes_rows_of_its_tables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.csv").write_text("id,age\n1,3\n2,4\n")
    (tmp_path / "sub").mkdir()
    with Curator.from_frame("people.csv", unit="id", budget=1) as curator:
        saved, ledger = [curator.save_policy(name) for name in ("sub/p.yaml", "p.yaml")], curator.context.place
        curator.query("SELECT COUNT(*) AS n FROM people", epsilon=0.5)
    for path in saved:
        with Curator.open(path, ledger=ledger) as again:
            assert str(again.remaining()) == "epsilon 0.5"
    assert 'source: "people.csv"' in saved[1].read_text()
    with pytest.raises(ParameterError, match=r"no table 'peple', for which rows are given.*Did you mean 'people'\?"):
        Curator.open(saved[1], sources={"peple": pa.table(FRAME)})


WRONG: dict[str, tuple[Callable[[Curator], object], str]] = {
    "who": (lambda c: c.query("SELECT COUNT(*) FROM data", epsilon=1, who="ana"), r"who is a text\. It is an Asker"),
    "sql": (lambda c: c.query(None, epsilon=1), r"sql is None\. It is a text"),  # type: ignore[arg-type]
    "epsilon": (
        lambda c: c.query("SELECT COUNT(*) FROM data", epsilon=pa.scalar(0.5)),
        "epsilon is of type DoubleScalar",
    ),
    "k": (lambda c: c.anonymize("data", k="5"), r"k is a text\. It is a whole number"),  # type: ignore[arg-type]
    "l": (lambda c: c.anonymize("data", k=5, l=2), r"l is of type int\. It is a mapping"),  # type: ignore[arg-type]
    "a text for a list": (lambda c: c.check("data", "sex"), r"quasi_identifiers is a text\. It is a list of texts"),
    "a column that is not there": (lambda c: c.check("data", ["sax"]), "no column 'sax'.*Did you mean 'sex'"),
    "no function": (
        lambda c: c.sample_and_aggregate("mean", "data", blocks=2, bounds=(0, 9), epsilon=1),  # type: ignore[arg-type]
        r"function is a text\. It is a function",
    ),
    "by its place": (lambda c: c.table("data").count().ask(0.5), "ask.*Its arguments: epsilon"),  # type: ignore[call-arg]
    "no file": (lambda c: c.generate("nothing.json"), "there is no file 'nothing.json'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_argument_of_another_type_is_refused_in_the_callers_words_and_nothing_is_charged(wrong: str) -> None:
    call, told = WRONG[wrong]
    with ask_frame() as curator:
        with pytest.raises((ParameterError, DataError), match=told):
            call(curator)
        assert curator.ledger.head() is None


def test_a_frame_where_a_name_or_a_file_belongs_is_refused_and_none_of_its_rows_is_shown() -> None:
    """Its text was taken for the name, so that refusals showed rows of people."""
    rows = pa.table({"name": ["Anna Schmidt"], "ssn": ["123-45"]})
    frames = [rows, pl.DataFrame(rows), pd.DataFrame({"name": ["Anna Schmidt"], "ssn": ["123-45"]})]
    skipped = {"from_frame", "scan", "query_batch"}
    with ask_frame() as curator:
        for name in [name for name in dir(curator) if not name.startswith("_") and name not in skipped]:
            verb = getattr(curator, name)
            if not callable(verb) or not inspect.signature(verb).parameters:
                continue
            for frame in frames:
                budget = {"epsilon": 1} if "epsilon" in inspect.signature(verb).parameters else {}
                with pytest.raises(DeniableError) as refused:
                    verb(frame, **budget)
                told = f"{refused.value} {refused.value.as_dict()}"
                assert "Schmidt" not in told, name
        assert curator.ledger.head() is None


@pytest.mark.parametrize("epsilon", ["x", -1, float("nan")])
def test_a_refused_budget_says_that_nothing_was_charged(epsilon: Any) -> None:
    with ask_frame() as curator:
        for ask in (curator.query, curator.explain):
            with pytest.raises(ParameterError, match=r"Nothing was charged\.$"):
                ask("SELECT COUNT(*) AS n FROM data", epsilon=epsilon)


def test_a_closed_curator_says_so_and_closes_twice() -> None:
    curator = ask_frame()
    curator.close()
    curator.close()
    assert "closed" in repr(curator)
    assert "closed" in curator._repr_html_()
    with pytest.raises(ParameterError, match=r"this curator was closed\. Open it again"):
        curator.query("SELECT COUNT(*) FROM data", epsilon=1)
    with pytest.raises(ParameterError, match=r"Curator\(\): missing a required argument: 'policy'"):
        Curator()  # type: ignore[call-arg]


def test_every_public_annotation_is_checked_or_let_through_by_intent() -> None:
    """A type that is written otherwise than in TYPES would silently not be checked."""
    unknown = {
        part
        for name in dir(Curator)
        if not name.startswith("_") and callable(getattr(Curator, name))
        for each in inspect.signature(getattr(Curator, name)).parameters.values()
        if isinstance(each.annotation, str)
        for part in _split_union(each.annotation)
        if part not in TYPES and part.partition("[")[0] not in TYPES
    }
    assert unknown <= LET_THROUGH


LET_THROUGH = {
    "Any", "Budget", "Engine", "Event", "Tabulation", "threading.Event",
    "tuple[Amount, Amount]", "tuple[str, Sequence[str]]", "tuple[str, str]",
}  # fmt: skip


def test_a_generator_of_names_is_not_used_up_by_the_check() -> None:
    @guard_call
    def take(names: Sequence[str]) -> list[str]:
        return list(names)

    assert take(name for name in ("a", "b")) == ["a", "b"]  # type: ignore[arg-type]


@pytest.mark.parametrize(("limit", "told"), [({"memory": "lots"}, "memory is not"), ({"threads": 0}, "less than 1")])
def test_a_limit_that_is_none_is_named(limit: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        Curator.from_frame(pa.table(FRAME), unit="id", budget=1, **limit).query("SELECT COUNT(*) FROM data", epsilon=1)


def test_a_server_that_does_not_listen_charged_nothing() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with (
        deniable.connect(f"http://127.0.0.1:{port}", "token") as server,
        pytest.raises(Stopped, match=r"no server listens at .*Nothing was charged\."),
    ):
        server.query("SELECT COUNT(*) FROM visits", epsilon=1)
    with pytest.raises(ParameterError, match=r"not the address of a server.*Curator\.open"):
        deniable.connect("town/policy.yaml")


def test_an_async_connection_is_a_context() -> None:
    async def ask() -> str:
        async with deniable.connect_async("http://127.0.0.1:1", "token") as server:
            return server.connection.url

    assert asyncio.run(ask()) == "http://127.0.0.1:1"


def test_words_that_no_command_has_are_refused_as_json_where_json_was_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in (["query", "SELECT 1", "--epsilom", "1"], ["query"], ["nothing"]):
        monkeypatch.setattr("sys.argv", ["deniable", *words, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        told = json.loads(capsys.readouterr().out)
        assert ended.value.code == 2
        assert (told["error"], told["charged"]) == ("parameter", False)


def test_an_explanation_and_a_preview_tell_what_is_charged_for_a_question_that_was_asked_before() -> None:
    with ask_frame() as curator:
        asked: dict[str, Any] = {"sql": "SELECT sex, COUNT(*) AS n FROM data GROUP BY sex", "epsilon": 0.1}
        assert curator.explain(**asked)["cost"]["epsilon"] == "0.1"
        answer = curator.query(**asked)
        head = curator.ledger.head()
        explained = curator.explain(**asked)
        assert explained["cost"]["epsilon"] == "0"
        assert any("asked before" in note for note in explained["notes"])
        assert curator.preview(**asked).takes == 0
        assert curator.query(**asked).repeated
        assert curator.ledger.head() == head
        assert answer.notes
        assert all(f"Note: {note}" in repr(answer) for note in answer.notes)


def test_examples_of_help_are_lines_that_a_shell_takes() -> None:
    """Words behind a command are comments, and nothing is broken across lines."""
    found = 0
    commands = [build_command([])]
    while commands:
        each = commands.pop()
        commands += getattr(each, "commands", {}).values()
        for line in re.sub(r"\\\n\s*", "", each.epilog or "").splitlines():
            if line.startswith("  deniable "):
                words = shlex.split(line, comments=True)
                found += 1
                assert not any(word.startswith("(") for word in words), line
                assert "\b" not in line
        assert not re.search(r"(?<!\n)\n\x08\n", (each.epilog or "").lstrip("\b\n")), each.name
    assert found > 90


def test_arrays_of_names_are_lists_of_names() -> None:
    with ask_frame() as curator:
        found = [curator.check("data", names).k for names in (["sex"], pa.array(["sex"]), pd.Series(["sex"]), ("sex",))]
        assert len(set(found)) == 1
