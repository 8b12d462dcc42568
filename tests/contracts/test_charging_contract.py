"""One contract over every entry point that charges or releases: what is checked before, read, written, and told after.

Each way in is tried with a wrong grant, an expired policy, a person who withdrew, an engine that fails, data that
changed with and without a new epoch, the analyst's own balance, a spent budget, and the same request again. Tests watch
what ran: which rows an engine showed while a statement ran, and what the ledger holds.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deniable import Curator
from deniable.curator.anonymize.request import Order as AnonymizeOrder
from deniable.curator.anonymize.run import anonymize_table
from deniable.curator.charge import still_charged
from deniable.curator.governance import withdrawals
from deniable.curator.governance.fulfill import fulfill
from deniable.curator.governance.requests import ask, decide
from deniable.curator.mask.run import Request as MaskRequest
from deniable.curator.mask.run import mask_tables
from deniable.curator.synthesize.run import Order, describe_to_file, synthesize
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DeniableError,
    ExecutionFailed,
    InternalError,
    ParameterError,
    QueryRefused,
)
from deniable.governance.grants import Asker, Role
from deniable.policy.budget import budget

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {categories: [F, M], role: quasi-identifier}
      ward: {categories: [a, b, c], role: quasi-identifier}
      charge: {type: integer, between: [1, 100], role: insensitive}
  staff:
    source: staff.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      wage: {type: integer, between: [0, 100], role: insensitive}
budgets:
  dataset: {epsilon: 1000, delta: 1e-3, accounting: zcdp}
  purposes:
    research: {epsilon: 900, delta: 1e-3}
    operations: {epsilon: 100}
  analysts:
    ana: {purposes: [research], epsilon: %(epsilon)s, delta: 1e-3}
    ben: {purposes: [research], rows: {sex: [F]}}
    eva: {purposes: [research], columns: [sex, charge]}
release:
  anonymize: {k: 2}
"""
ANA, BEN, EVA = (Asker(name, "research", Role.ANALYST) for name in ("ana", "ben", "eva"))
PEOPLE = 40
FEMALE = 20


@dataclass(frozen=True)
class Way:
    """A way in: the call, whether it is charged, and whether asking again is free."""

    call: Callable[[Curator, Asker | None, Path], Any]
    charged: bool = True
    stored: bool = False


def _count(rows: Any) -> float:
    return float(rows.num_rows)


def _watch(curator: Curator, who: Asker | None, _: Path) -> Any:
    return curator.watch("SELECT COUNT(*) FROM visits", 10_000, 1, who=who).check()


def _synthesize(curator: Curator, who: Asker | None, folder: Path) -> Any:
    order = Order("visits", budget(1, "1e-6"), "independent")
    return synthesize(curator.context.speak_for(who), order, folder / "made.parquet")


def _describe(curator: Curator, who: Asker | None, folder: Path) -> Any:
    order = Order("visits", budget(1, "1e-6"), "independent")
    return describe_to_file(curator.context.speak_for(who), order, folder / "model.json")


def _train(curator: Curator, who: Asker | None, folder: Path) -> Any:
    return curator.train("visits", "charge", features=["sex"], epsilon=1, who=who, out=folder / "trained.json")


def _mask_files(curator: Curator, who: Asker | None, folder: Path) -> Any:
    request = MaskRequest(folder / "policy.yaml", {"visits": folder / "masked.parquet"}, fresh=True)
    return mask_tables(curator.context.speak_for(who), request)


def _anonymize_file(curator: Curator, who: Asker | None, folder: Path) -> Any:
    order = AnonymizeOrder(None, folder / "k.parquet", curator.policy, "visits")
    return anonymize_table(curator.context.speak_for(who), order)


AT, BOX = ("charge", "id"), (0, 0, 90, 100)
WAYS = {
    "query": Way(lambda c, who, _: c.query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", epsilon=1, who=who),
                 stored=True),
    "query_batch": Way(lambda c, who, _: c.query_batch(
        ["SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", "SELECT MEDIAN(charge) FROM visits"],
        epsilon=1, who=who), stored=True),
    "auto_clamp": Way(lambda c, who, _: c.query("SELECT SUM(AUTO_CLAMP(charge)) FROM visits", epsilon=1, who=who),
                      stored=True),
    "contribution": Way(lambda c, who, _: c.query(
        "SELECT ward, COUNT(*) FROM visits GROUP BY ward CONTRIBUTION AUTO", epsilon=1, who=who), stored=True),
    "find_bounds": Way(lambda c, who, _: c.find_bounds("visits", "charge", 1, who=who), stored=True),
    "top": Way(lambda c, who, _: c.top("visits", "ward", 1, epsilon=1, who=who), stored=True),
    "margins": Way(lambda c, who, _: c.margins("visits", [["sex"], ["ward"]], epsilon=1, who=who), stored=True),
    "weighted": Way(lambda c, who, _: c.weighted("visits", "charge", weight="charge", epsilon=1, who=who), stored=True),
    "hierarchy": Way(lambda c, who, _: c.hierarchy("visits", ["sex", "ward"], epsilon=1, who=who), stored=True),
    "places": Way(lambda c, who, _: c.places("visits", AT, epsilon=1, box=BOX, who=who), stored=True),
    "flows": Way(lambda c, who, _: c.places("visits", AT, AT[::-1], epsilon=1, box=BOX, who=who), stored=True),
    "watch": Way(_watch),
    "sample_and_aggregate": Way(lambda c, who, _: c.sample_and_aggregate(
        _count, "visits", blocks=2, bounds=(0, 50), epsilon=1, who=who)),
    "synthesize": Way(_synthesize),
    "describe": Way(_describe),
    "train": Way(_train),
    "mask": Way(lambda c, who, _: c.mask("visits", who=who), charged=False),
    "mask_files": Way(_mask_files, charged=False),
    "anonymize": Way(lambda c, who, _: c.anonymize("visits", who=who), charged=False),
    "anonymize_file": Way(_anonymize_file, charged=False),
}  # fmt: skip
CHARGED = [name for name, way in WAYS.items() if way.charged]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make(tmp_path)


def make(folder: Path, *, epsilon: str = "500", more: str = "", skip: int = 0) -> Path:
    (folder / "policy.yaml").write_text(POLICY % {"epsilon": epsilon} + more)
    lines = [f"{i},{'FM'[i % 2]},{'abc'[i % 3]},{i}" for i in range(skip, PEOPLE)]
    (folder / "visits.csv").write_text("\n".join(["id,sex,ward,charge", *lines]) + "\n")
    (folder / "staff.csv").write_text("\n".join(["id,wage", *(f"{i},{i}" for i in range(PEOPLE))]) + "\n")
    return folder


@contextmanager
def opened(folder: Path) -> Iterator[Curator]:
    with Curator.open(folder / "policy.yaml", ledger=folder / "policy.ledger.sqlite") as curator:
        yield curator


def entries(curator: Curator) -> list[Any]:
    return [entry for entry in curator.ledger.entries() if entry.act in ("charge", "release")]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows of `visits` an engine showed whenever a statement ran on it or its rows were streamed."""
    shown: list[int] = []
    run, stream = DuckDBEngine.run, DuckDBEngine.stream

    def note(engine: DuckDBEngine) -> None:
        names = [name for name in ("visits", "table") if name in engine._scans]
        shown.extend(int(run(engine, f'SELECT COUNT(*) FROM "{name}"').column(0)[0].as_py()) for name in names)

    def spied_run(engine: DuckDBEngine, *given: Any, **rest: Any) -> Any:
        note(engine)
        return run(engine, *given, **rest)

    def spied_stream(engine: DuckDBEngine, *given: Any, **rest: Any) -> Any:
        note(engine)
        return stream(engine, *given, **rest)

    monkeypatch.setattr(DuckDBEngine, "run", spied_run)
    monkeypatch.setattr(DuckDBEngine, "stream", spied_stream)
    return shown


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("who", [Asker("ana", "operations", Role.ANALYST), Asker("eve", "research", Role.ANALYST)])
def test_whoever_has_no_grant_is_refused_and_reads_nothing(
    folder: Path, seen: list[int], name: str, who: Asker
) -> None:
    with opened(folder) as curator:
        with pytest.raises(DeniableError, match=r"granted|analyst|purpose"):
            WAYS[name].call(curator, who, folder)
        assert entries(curator) == []
    assert seen == [] or not WAYS[name].charged


@pytest.mark.parametrize("name", WAYS)
def test_an_expired_policy_refuses_and_reads_nothing(folder: Path, seen: list[int], name: str) -> None:
    make(folder, more="expires: 2020-01-01\n")
    for who in (None, ANA):
        with opened(folder) as curator:
            with pytest.raises(AccessRefused, match="expired"):
                WAYS[name].call(curator, who, folder)
            assert entries(curator) == []
    assert seen == []


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", WAYS)
def test_whoever_withdrew_is_read_by_nothing_even_where_the_table_was_attached_before(
    folder: Path, seen: list[int], name: str
) -> None:
    with opened(folder) as curator, opened(folder) as other:
        WAYS[name].call(curator, None, folder)
        curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
        withdrawals.withdraw(other.context, "id", "12")
        other.new_epoch("somebody left")  # within an epoch stored answers are repeated, and nothing is read
        seen.clear()
        WAYS[name].call(curator, None, folder)
    assert seen
    assert set(seen) == {PEOPLE - 1}


@pytest.mark.parametrize("name", CHARGED)
def test_what_fails_after_a_charge_is_one_fixed_sentence_and_the_charge_stands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    honest = {each: getattr(DuckDBEngine, each) for each in ("run", "stream")}
    with opened(folder) as curator:

        def failing(each: str) -> Callable[..., Any]:
            def called(engine: DuckDBEngine, *given: Any, **rest: Any) -> Any:
                if entries(curator):
                    raise ParameterError("row P3 is on fire")
                return honest[each](engine, *given, **rest)

            return called

        for each in honest:
            monkeypatch.setattr(DuckDBEngine, each, failing(each))
        before = curator.remaining(ANA)
        with pytest.raises(ExecutionFailed) as told:
            WAYS[name].call(curator, ANA, folder)
        assert "P3" not in str(told.value)
        assert str(told.value) == str(ExecutionFailed())
        assert len(entries(curator)) == 1
        assert curator.remaining(ANA) != before


@pytest.mark.parametrize("name", CHARGED)
def test_a_charge_is_the_analysts_own(folder: Path, name: str) -> None:
    with opened(folder) as curator:
        before, other = curator.balance(ANA)[-1].spent, curator.balance(BEN)[-1].spent
        WAYS[name].call(curator, ANA, folder)
        made = entries(curator)
        assert made
        assert {(entry.act, entry.analyst, entry.purpose) for entry in made} == {("charge", "ana", "research")}
        assert all(entry.tables == ("visits",) for entry in made)
        assert curator.balance(ANA)[-1].spent != before
        assert curator.balance(BEN)[-1].spent == other
        WAYS[name].call(curator, None, folder)
        assert {entry.analyst for entry in entries(curator)[len(made) :]} <= {"steward"}


@pytest.mark.parametrize("name", CHARGED)
def test_a_spent_budget_refuses_before_anything_is_read(folder: Path, seen: list[int], name: str) -> None:
    make(folder, epsilon="0.01")
    with opened(folder) as curator:
        with pytest.raises(BudgetExceeded, match=r"Nothing was (run|charged)"):
            WAYS[name].call(curator, ANA, folder)
        assert entries(curator) == []
    assert seen == []


@pytest.mark.parametrize("name", CHARGED)
def test_asking_again_is_free_where_the_answer_is_stored_and_charged_where_it_is_not(folder: Path, name: str) -> None:
    with opened(folder) as curator:
        first = WAYS[name].call(curator, ANA, folder)
        once = len(entries(curator))
        again = WAYS[name].call(curator, ANA, folder)
        assert len(entries(curator)) == (once if WAYS[name].stored else 2 * once)
        if WAYS[name].stored:
            assert again.repeated
            assert again.to_pylist() == first.to_pylist()


@pytest.mark.parametrize("name", CHARGED)
def test_changed_data_is_another_question_in_a_new_epoch_and_not_before(folder: Path, name: str) -> None:
    with opened(folder) as curator:
        WAYS[name].call(curator, ANA, folder)
        once = len(entries(curator))
    make(folder, skip=2)
    with opened(folder) as curator:
        WAYS[name].call(curator, ANA, folder)
        repeated = len(entries(curator))
        assert repeated == (once if WAYS[name].stored else 2 * once)
        curator.new_epoch("two people left")
        WAYS[name].call(curator, ANA, folder)
        assert len(entries(curator)) == repeated + once


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.stored])
def test_a_repeated_answer_touches_no_private_source(folder: Path, seen: list[int], name: str) -> None:
    with opened(folder) as curator:
        first = WAYS[name].call(curator, ANA, folder)
    (folder / "visits.csv").unlink()
    seen.clear()
    with opened(folder) as curator:
        again = WAYS[name].call(curator, ANA, folder)
    assert again.repeated
    assert again.to_pylist() == first.to_pylist()
    assert seen == []


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.stored])
def test_an_answer_of_other_rows_is_not_repeated(folder: Path, name: str) -> None:
    with opened(folder) as curator:
        WAYS[name].call(curator, ANA, folder)
        assert not WAYS[name].call(curator, BEN, folder).repeated


@pytest.mark.parametrize("name", WAYS)
def test_rows_are_those_that_the_analyst_may_see(folder: Path, seen: list[int], name: str) -> None:
    with opened(folder) as curator:
        WAYS[name].call(curator, BEN, folder)
    assert seen
    assert set(seen) == {FEMALE}


def _released_columns(name: str, made: Any, folder: Path) -> set[str]:
    import pyarrow.parquet as pq

    files = {"mask_files": "masked.parquet", "anonymize_file": "k.parquet", "synthesize": "made.parquet"}
    return set(pq.read_schema(folder / files[name]).names) if name in files else set(made.rows.column_names)


@pytest.mark.parametrize("name", ["mask", "mask_files", "anonymize", "anonymize_file", "synthesize"])
def test_columns_are_those_that_the_analyst_may_name(folder: Path, name: str) -> None:
    with opened(folder) as curator:
        made = WAYS[name].call(curator, EVA, folder)
    assert _released_columns(name, made, folder) <= {"sex", "charge"}


@pytest.mark.parametrize("name", ["margins", "top", "hierarchy"])
def test_a_column_that_the_analyst_may_not_name_is_unknown(folder: Path, name: str) -> None:
    with opened(folder) as curator, pytest.raises(QueryRefused, match="ward"):
        WAYS[name].call(curator, EVA, folder)


REFUSED_FOR_EVA = (
    "SELECT COUNT(*) FROM visits WHERE id = 3",
    "SELECT COUNT(*) FROM visits WHERE id IN (3, 4)",
    "SELECT COUNT(*) FROM visits WHERE id IS NULL",
    "SELECT SUM(CASE WHEN id = 3 THEN 1 ELSE 0 END) FROM visits",
    "SELECT MAX(id) FROM visits",
    "SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM visits GROUP BY id) AS q WHERE id = 3",
    "SELECT COUNT(*) FROM (SELECT id AS who, sex FROM visits) AS q WHERE who = 3",
    "SELECT COUNT(*) FROM (SELECT id FROM visits UNION ALL SELECT id FROM visits) AS q WHERE id = 3",
    "SELECT COUNT(*) FROM visits AS a JOIN visits AS b ON a.id = b.id AND a.id = b.charge",
    "SELECT b.id, COUNT(*) FROM visits AS a LEFT JOIN visits AS b ON a.id = b.id GROUP BY b.id",
    "SELECT COUNT(*) FROM visits WHERE ward = 'a'",
)


@pytest.mark.parametrize("sql", REFUSED_FOR_EVA)
def test_an_analyst_cannot_look_at_an_identifier_that_is_not_allowed(folder: Path, sql: str) -> None:
    with opened(folder) as curator:
        with pytest.raises(QueryRefused):
            curator.query(sql, epsilon=1, delta="1e-6", who=EVA)
        assert entries(curator) == []


def test_an_analyst_may_count_people_without_naming_them(folder: Path) -> None:
    with opened(folder) as curator:
        found = curator.query("SELECT COUNT(DISTINCT id) AS n FROM visits", epsilon=100, who=EVA).to_pylist()
        assert abs(found[0]["n"] - PEOPLE) <= 2
        joined = "SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b ON a.id = b.id WHERE b.sex = 'F'"
        assert abs(curator.query(joined, epsilon=100, who=EVA).to_pylist()[0]["n"] - FEMALE) <= 2


@pytest.mark.parametrize("call", [
    lambda c, f: c.query("SELECT COUNT(*) FROM staff", epsilon=1, who=BEN),
    lambda c, f: c.train("staff", "wage", epsilon=1, who=BEN),
    lambda c, f: c.mask("staff", who=BEN),
    lambda c, f: c.anonymize("staff", who=BEN),
    lambda c, f: c.sample_and_aggregate(_count, "staff", blocks=2, bounds=(0, 9), epsilon=1, who=BEN),
    lambda c, f: synthesize(c.context.speak_for(BEN), Order("staff", budget(1, "1e-6")), f / "s.parquet"),
    lambda c, f: ask(c.context.speak_for(BEN), "mask", ["staff"]),
])  # fmt: skip
def test_a_table_without_the_column_that_chooses_an_analysts_rows_is_closed(
    folder: Path, seen: list[int], call: Callable[[Curator, Path], Any]
) -> None:
    with opened(folder) as curator:
        with pytest.raises((AccessRefused, QueryRefused), match="staff"):
            call(curator, folder)
        assert entries(curator) == []


@pytest.mark.parametrize("technique", ["mask", "anonymize", "synthesize"])
@pytest.mark.parametrize(("who", "rows"), [(BEN, FEMALE), (EVA, PEOPLE)])
def test_an_approved_request_is_made_of_what_its_analyst_may_see(
    folder: Path, seen: list[int], technique: str, who: Asker, rows: int
) -> None:
    import pyarrow.parquet as pq

    parameters = {"epsilon": 1, "delta": "1e-6"} if technique == "synthesize" else {}
    with opened(folder) as curator:
        request = ask(curator.context.speak_for(who), technique, ["visits"], parameters)
        decide(curator.context, request.id, True, "a reason")
    seen.clear()
    fulfill(folder / "policy.yaml", None, request.id, folder / "out")
    assert seen
    assert set(seen) == {rows}
    if who is EVA:
        assert set(pq.read_schema(folder / "out" / "visits.parquet").names) <= {"sex", "charge"}


def test_a_check_of_real_rows_is_for_the_steward_alone(folder: Path) -> None:
    with opened(folder) as curator:
        assert curator.check("visits")
        with pytest.raises(AccessRefused, match="steward"):
            curator.check("visits", who=ANA)


CHARGING = {
    "charge.py": {"run_job"},
    "curator.py": {"record"},
    "query/sql.py": {"query"},
    "query/batch.py": {"query_batch"},
    "query/auto_bounds.py": {"find_bounds", "query", "_refuse_unaffordable"},
    "query/top_k.py": {"top"},
    "query/watch.py": {"watch"},
    "query/sample_aggregate.py": {"release"},
    "query/stream/run.py": {"_open_stream"},
    "query/tabulate.py": {"tabulate", "_note_exact"},
    "query/hierarchy.py": {"hierarchy", "margins"},
    "query/network.py": {"answer_network"},
    "query/places.py": {"answer_places", "draw_people"},
    "mask/run.py": {"_record"},
    "anonymize/output.py": {"record_release"},
    "synthesize/run.py": {
        "synthesize",
        "learn_and_keep",
        "_synthesize_linked",
    },
    "synthesize/gate.py": {"_describe_and_attack", "_synthesize_linked"},
    "train.py": {"train"},
    "federate.py": {"_measure_vector"},
    "survey.py": {"randomize_rows", "record_results"},
}
"""Every function of the curator that charges: reached by a way above, or the linked, checked or local twin of one.

A stream is the steward's alone, and so is a tabulation; what it charges and when is held by its own workflow tests. So
is a federated round, which needs a server (`workflows/test_federate_workflow.py`). A network is of a table of edges,
which has tests of its own (`workflows/test_network_workflow.py`)."""


def test_every_function_that_charges_is_known_to_this_contract() -> None:
    import deniable.curator

    root = Path(str(deniable.curator.__file__)).parent
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            if any(isinstance(call, ast.Name) and call.id in ("run_job", "charge") for call in calls):
                found.setdefault(str(path.relative_to(root)), set()).add(function.name)
    assert found == CHARGING


def test_nothing_but_the_charging_path_and_governance_writes_to_the_ledger() -> None:
    import deniable.curator

    root = Path(str(deniable.curator.__file__)).parent
    writers = {
        str(path.relative_to(root)) for path in root.rglob("*.py") if ".ledger.record(" in path.read_text("utf-8")
    }
    governing = {f"governance/{name}.py" for name in ("epochs", "losses", "requests", "steward", "withdrawals")}
    assert writers == {"charge.py", "context.py", "publish.py", *governing}


def test_nothing_but_the_gate_attaches_a_table_of_a_policy() -> None:
    """Files that anybody hands in are attached where they are examined; a policy's tables only in `scope`."""
    import deniable.curator

    root = Path(str(deniable.curator.__file__)).parent
    attaching = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "attach"
        and not ast.unparse(node.func.value).endswith("scope")
    }  # fmt: skip
    outside = {"sources.py", "policy/accepted_rows.py", "anonymize/request.py", "anonymize/check.py",
               "anonymize/run.py", "anonymize/output.py", "mask/run.py", "policy/draft.py", "policy/scan.py",
               "train.py", "mask/keys.py", "mask/linked.py", "demo.py", "frames.py", "survey.py"}  # fmt: skip
    assert attaching <= {"scope.py", *outside}


def test_what_fails_in_an_unforeseen_way_after_a_charge_does_not_say_that_nothing_was_charged() -> None:
    with pytest.raises(InternalError) as failed, still_charged():
        raise KeyError("a value of a row")
    assert failed.value.as_dict()["charged"] is True
    assert "a value of a row" not in failed.value.message
    assert InternalError("something unforeseen happened", charge="").as_dict()["charged"] is None, "it is not known"
    assert InternalError("a check of our own did not hold").as_dict()["charged"] is False
