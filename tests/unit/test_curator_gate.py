"""The three modules that decide whether and what: context (who is admitted), scope (what is seen), charge (the order).

Each function is held to its exact result, on tables of a few rows that are written out here."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pytest

from deniable.curator import Curator, charge, context, scope, sources
from deniable.curator.charge import Job, OpenJob, StoredAnswer
from deniable.curator.context import Context, LedgerState, open_context
from deniable.curator.governance.steward import resume_asker
from deniable.dp.accounting import LaplaceEvent, NonPrivateEvent, epsilon_of_zcdp
from deniable.dp.accounting.serialization import from_dict
from deniable.engines.base import Engine, Listed, Sampled
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.sources import stamp_file
from deniable.errors import (
    CHARGED,
    NOTHING_CHARGED,
    AccessRefused,
    BudgetExceeded,
    Cancelled,
    DataError,
    ExecutionFailed,
    IntegrityError,
    InternalError,
    ParameterError,
    Stopped,
    StorageError,
)
from deniable.governance.grants import Asker, Role
from deniable.governance.withdrawals import COLLECTION, Withdrawal
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.same_rows import MARKED_ROWS
from deniable.ledger.witness import Source, Witness
from deniable.policy.budget import ZCDP, PureDP
from deniable.policy.document import parse
from deniable.policy.schema import Neighboring, PrivacyUnit
from deniable.query.compile import compile_query
from deniable.query.execute import Noisy
from deniable.release import Technique

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {categories: [F, M], role: insensitive}
      ward: {role: insensitive}
      age: {type: integer, between: [0, 100], role: insensitive}
  beds:
    source: beds.csv
    unit: row
    columns: {ward: {role: insensitive}, bed: {type: integer, role: insensitive}}
  wards: {source: wards.csv, public: true, columns: {code: {}, region: {}}}
  codes: {source: codes.csv, public: true}
budgets:
  dataset: {epsilon: 100}
  purposes: {study: {epsilon: 50}, care: {epsilon: 50}}
  analysts:
    ana: {purposes: [study]}
    ben: {purposes: [study], rows: {sex: [F]}}
    cem: {purposes: [study], columns: [visits.sex, age]}
    dee: {purposes: [study], columns: [id, ward]}
"""
MINIMIZE = "release: {minimize: {columns: [id, sex, ward], sample: 0.5}}\n"
ANA, BEN, CEM, DEE = (Asker(name, "study", Role.ANALYST) for name in ("ana", "ben", "cem", "dee"))
SOURCES = {
    "visits": pa.table({
        "id": list(range(12)), "sex": list("FM" * 6), "ward": list("abc" * 4), "age": [20 + n for n in range(12)],
    }),
    "beds": pa.table({"ward": list("abc"), "bed": [1, 2, 3]}),
    "wards": pa.table({"code": list("abc"), "region": ["north", "north", "south"]}),
    "codes": pa.table({"code": ["a"], "meaning": [7]}),
}  # fmt: skip
EVENT = LaplaceEvent(1)
UNIT = PrivacyUnit("id", 2, 1)


def opened(text: str = POLICY, asker: Asker | None = None, **more: Any) -> Context:
    return open_context(parse(text), sources=SOURCES, asker=asker, **more)


def expired() -> Context:
    return opened(POLICY + "expires: 2020-01-01\n")


@pytest.fixture
def steward() -> Iterator[Context]:
    made = opened()
    yield made
    made.close()


def job_of(measure: Any = None, **more: Any) -> Job[Any]:
    return Job("test", "how many", EVENT, UNIT, ("visits",), measure or (lambda engine: noisy(3)), **more)


def noisy(*values: int) -> dict[str, tuple[Noisy, ...]]:
    keys = pa.table({"sex": ["F"] * len(values)})
    return {"step": (Noisy(keys, (np.array(values), np.array(values) * 0.5)), Noisy(pa.table({}), (np.array([7]),)))}


def acts(made: Context) -> list[str]:
    return [entry.act for entry in made.ledger.entries()]


# Context: what is folded from the ledger.

ACTS = [
    Posting(Act.EPOCH, analyst="steward"),
    Posting(Act.WITHDRAW, analyst="steward"),
    Posting(Act.FAIL, analyst="ana"),
    Posting(Act.FAIL, analyst="ben"),
    Posting(Act.FAIL, analyst="ana"),
    Posting(Act.RESUME, analyst="steward", details={"analyst": "ana"}),
    Posting(Act.EPOCH, analyst="steward"),
    Posting(Act.RESUME, analyst="steward", details={"analyst": "cem"}),
    Posting(Act.FAIL, analyst="ana"),
    Posting(Act.WITHDRAW, analyst="steward"),
]


def count_acts(posted: list[Posting]) -> tuple[int, int, int, int]:
    """The naive twin: declared epochs, people who withdrew, failures of ana and of ben since the steward looked."""
    found, failures = Counter(each.act for each in posted), Counter[str]()
    for each in posted:
        failures[each.analyst] += each.act is Act.FAIL
        if each.act is Act.RESUME:
            failures[each.details["analyst"]] = 0
    return found[Act.EPOCH], found[Act.WITHDRAW], failures["ana"], failures["ben"]


@pytest.mark.parametrize("at_once", [1, 2, 3])
def test_a_state_that_looks_now_and_then_counts_what_one_that_looks_once_counts(steward: Context, at_once: int) -> None:
    state = LedgerState(steward.ledger)
    for start in range(0, len(ACTS), at_once):
        for posting in ACTS[start : start + at_once]:
            steward.ledger.record(posting)
        seen = (state.epochs(), state.withdrawals()[0], state.failures("ana"), state.failures("ben"))
        assert seen == count_acts(ACTS[: start + at_once])


def test_each_look_at_the_state_reads_what_came_since_the_last_one(steward: Context) -> None:
    state = {name: LedgerState(steward.ledger) for name in ("epochs", "withdrawals", "ana", "ben")}
    assert (state["epochs"].epochs(), state["withdrawals"].withdrawals()[0], state["ana"].failures("ana")) == (0, 0, 0)
    for place, posting in enumerate(ACTS):
        steward.ledger.record(posting)
        seen = (state["epochs"].epochs(), state["withdrawals"].withdrawals()[0], state["ana"].failures("ana"),
                state["ben"].failures("ben"))  # fmt: skip
        assert seen == count_acts(ACTS[: place + 1])


# Context: who is admitted.


def test_an_asker_is_paused_from_the_third_failure_on(steward: Context) -> None:
    for _ in range(2):
        steward.ledger.record(Posting(Act.FAIL, analyst="ana", purpose="study"))
    asker = steward.speak_for(ANA)
    asker.admit()
    steward.ledger.record(Posting(Act.FAIL, analyst="ana", purpose="study"))
    for ask in (asker.admit, asker.admit_tables):
        with pytest.raises(AccessRefused, match="'ana' is paused: 3 questions failed"):
            ask()
    steward.speak_for(BEN).admit()
    steward.admit()


def test_who_is_not_granted_the_purpose_is_told_no_table(steward: Context) -> None:
    other = steward.speak_for(Asker("ana", "care", Role.ANALYST))
    for ask in (other.admit, other.admit_tables):
        with pytest.raises(AccessRefused, match="care"):
            ask()


def test_an_asker_speaks_from_its_own_place_in_the_budget(steward: Context) -> None:
    asker = steward.speak_for(ANA)
    assert asker.speak_for(ANA) is asker
    assert asker.speak_for(None).asker is None
    assert (steward.path, asker.path) == (("", ""), ("study", "ana"))
    assert [len(each.balance()) for each in (steward, asker)] == [1, 3]


def test_after_the_last_day_nobody_is_admitted_and_answers_are_forgotten() -> None:
    made = expired()
    made.store.keep(context.ANSWERS, "question", "release", b"answer")
    made.shown.put("question", "answer")
    for ask in (
        made.refuse_expired,
        made.admit,
        made.admit_tables,
        lambda: made.scope.refuse_closed("visits"),
        lambda: made.scope.attach("visits"),
        lambda: made.scope.attach(),
        lambda: charge.charge(made, job_of()),
        lambda: charge.open_job(made, job_of()),
    ):
        with pytest.raises(AccessRefused, match="expired on 2020-01-01"):
            ask()
    assert made.store.list_all(context.ANSWERS) == {}
    assert made.shown.find("question") is None
    assert [(entry.act, entry.analyst, dict(entry.details)) for entry in made.ledger.entries()] == [
        ("expire", "steward", {"answers": 1})
    ]


def test_forgetting_says_how_many_answers_there_were_and_records_it_once(steward: Context) -> None:
    made = expired()
    for name in ("a", "b"):
        made.store.keep(context.ANSWERS, name, f"release of {name}", b"answer")
        steward.store.keep(context.ANSWERS, name, f"release of {name}", b"answer")
    assert [context.forget_answers(made, "ana"), context.forget_answers(made)] == [2, 0]
    assert [(entry.act, entry.analyst) for entry in made.ledger.entries()] == [("expire", "ana")]
    assert context.forget_answers(steward) == 0
    assert len(steward.store.list_all(context.ANSWERS)) == 2
    steward.refuse_expired()
    assert acts(steward) == []


def test_the_last_day_itself_is_within_the_term(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2030, 5, 2, 23, 59, tzinfo=UTC)

    monkeypatch.setattr(scope, "datetime", Clock)
    terms = [parse(POLICY + f"expires: 2030-05-0{day}\n") for day in (1, 2, 3)]
    assert [scope.is_expired(each) for each in terms] == [True, False, False]
    assert scope.refuse_expired(terms[1]) is terms[1]


def test_a_table_need_not_be_named_where_there_is_one_private_table() -> None:
    made = opened()
    assert made.only_private_table("beds") == "beds"
    with pytest.raises(ParameterError, match="not clear which table is meant") as refused:
        made.only_private_table(None)
    assert "visits, beds" in refused.value.message
    one = opened(POLICY.replace("unit: row", "public: true"))
    assert one.only_private_table(None) == "visits"


def test_a_purpose_is_checked_only_where_the_policy_lists_some() -> None:
    with pytest.raises(ParameterError, match="no purpose 'stdy'") as refused:
        context.check_purposes(parse(POLICY), ("study", "stdy"))
    assert "study" in refused.value.remedy
    context.check_purposes(parse(POLICY), ("study", "care"))
    context.check_purposes(parse(POLICY[: POLICY.index("budgets")]), ("anything",))
    context.check_purposes(parse(POLICY[: POLICY.index("  purposes:")]), ("anything",))


def test_whatever_is_closed_cannot_be_used_again(tmp_path: Path) -> None:
    whole = DuckDBEngine(threads=1)
    made = opened(ledger=tmp_path / "ledger.sqlite", engine=whole)
    engines: list[Engine] = [
        made.scope.attach("visits"),
        made.scope.narrow_to(BEN).attach("visits"),
        made.scope.attach_public("wards"),
    ]
    assert engines[0] is whole
    assert len({id(each) for each in engines}) == 3
    made.close()
    for engine in engines:
        with pytest.raises(Exception, match=r"(?i)clos"):
            engine.run("SELECT 1")
    for use in (lambda: list(made.ledger.entries()), lambda: made.store.find(context.ANSWERS, "a")):
        with pytest.raises(StorageError, match="could not be used"):
            use()


def test_an_engine_that_was_never_used_is_closed_too() -> None:
    whole = DuckDBEngine(threads=1)
    made = opened(engine=whole)
    made.scope.interrupt(threading.get_ident())
    made.close()
    with pytest.raises(Exception, match=r"(?i)clos"):
        whole.run("SELECT 1")


def test_interrupting_a_thread_reaches_every_engine_that_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[tuple[DuckDBEngine, int | None]] = []
    monkeypatch.setattr(DuckDBEngine, "cancel", lambda self, thread=None: reached.append((self, thread)))
    made = opened()
    made.scope.interrupt(7)
    assert reached == []
    engines = [
        made.scope.attach_public("wards"),
        made.scope.attach("visits"),
        made.scope.narrow_to(BEN).attach("visits"),
    ]
    made.scope.interrupt(7)
    assert reached == [(engine, 7) for engine in engines]
    made.close()


def test_a_manifest_of_more_than_one_word_is_named_by_its_digest() -> None:
    for content in (b"two words", b"", b"x" * 65, b"-a", b"caf\xc3\xa9", b"\xff"):
        assert context.name_manifest(content) == hashlib.sha256(content).hexdigest()[:32]
    for content in (b"x" * 64, b" 2026-Q4\n", b"a.b:c_d-e"):
        assert context.name_manifest(content) == content.decode().strip()


def test_a_manifest_that_is_gone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY + "epochs: {manifest: manifest.txt}\n")
    made = open_context(parse((tmp_path / "policy.yaml").read_text(), folder=tmp_path), sources=SOURCES)
    with pytest.raises(DataError, match="manifest that names the epoch cannot be read"):
        _ = made.epoch
    (tmp_path / "manifest.txt").write_text("m" * (context.MOST_MANIFEST - 1) + "ab")
    cut = b"m" * (context.MOST_MANIFEST - 1) + b"a"
    assert made.epoch == hashlib.sha256(cut).hexdigest()[:32]


def test_a_cache_holds_what_was_put_last_until_it_is_cleared() -> None:
    cache = context.Cache(2)
    assert [cache.get("a", lambda: 1), cache.get("a", lambda: 2), cache.find("b")] == [1, 1, None]
    cache.put("a", 3)
    assert cache.find("a") == 3
    cache.put("b", 4)
    cache.put("c", 5)
    assert [cache.find(key) for key in "abc"] == [None, 4, 5]
    cache.clear()
    assert [cache.find(key) for key in "abc"] == [None, None, None]


# Context: where the ledger is.

WITHOUT_BUDGETS = POLICY[: POLICY.index("budgets")]


@pytest.mark.parametrize("text", [POLICY, WITHOUT_BUDGETS])
def test_charges_and_releases_are_written_beside_the_policy_whatever_it_says(tmp_path: Path, text: str) -> None:
    policy, beside = tmp_path / "policy.yaml", str(tmp_path / "policy.ledger.sqlite")
    policy.write_text(text)
    assert (context.ledger_of(policy, None), context.ledger_of(policy, "told")) == (beside, "told")
    assert (context.find_ledger(policy, None), context.find_ledger(policy, tmp_path)) == (None, str(tmp_path))
    Path(beside).touch()
    assert context.find_ledger(policy, None) == beside
    assert context.find_ledger(policy, "told") == "told"


# Scope: which tables, rows and columns an asker sees.


def test_the_tables_that_an_asker_may_name_have_the_columns_that_the_asker_may_name(steward: Context) -> None:
    def told(asker: Asker | None) -> dict[str, list[tuple[str, bool]]]:
        tables = steward.scope.narrow_to(asker).schemas()
        return {table.name: [(column.name, column.opaque) for column in table.columns] for table in tables}

    every = {
        "visits": [("id", False), ("sex", False), ("ward", False), ("age", False)],
        "beds": [("ward", False), ("bed", False)],
        "wards": [("code", False), ("region", False)],
        "codes": [("code", False), ("meaning", False)],
    }
    assert told(None) == told(ANA) == told(Asker("nobody", "study", Role.ANALYST)) == every
    assert told(BEN) == {name: columns for name, columns in every.items() if name != "beds"}
    assert told(CEM) == every | {"visits": [("id", True), ("sex", False), ("age", False)], "beds": []}
    assert told(DEE) == every | {"visits": [("id", False), ("ward", False)], "beds": [("ward", False)]}


def test_a_public_table_without_declared_columns_shows_its_own_and_is_described_once(steward: Context) -> None:
    shown = {table.name: table for table in steward.scope.schemas()}
    assert [(column.name, str(column.type)) for column in shown["codes"].columns] == [
        ("code", "text"), ("meaning", "integer"),
    ]  # fmt: skip
    assert shown["visits"] is steward.policy.table("visits")
    assert shown["wards"] is steward.policy.table("wards")
    again = zip(steward.scope.schemas(), steward.scope.schemas(), strict=True)
    assert all(first is second for first, second in again), "its file did not change"


def test_a_private_table_is_named_as_the_asker_may_see_it(steward: Context) -> None:
    assert steward.scope.private_table("visits") is steward.policy.table("visits")
    seen = steward.scope.narrow_to(CEM).private_table("visits")
    assert [column.name for column in seen.columns] == ["id", "sex", "age"]
    with pytest.raises(ParameterError, match="'wards' is public"):
        steward.scope.private_table("wards")
    with pytest.raises(AccessRefused, match="'beds' is not open"):
        steward.scope.narrow_to(BEN).private_table("beds")


def test_a_table_without_the_columns_that_choose_rows_is_closed_everywhere(steward: Context) -> None:
    ben = steward.scope.narrow_to(BEN)
    for ask in (
        lambda: ben.refuse_closed("beds"),
        lambda: ben.attach("visits", "beds"),
        lambda: ben.open_rows({"b": "beds"}).__enter__(),
        lambda: charge.open_job(steward.speak_for(BEN), Job("t", "q", EVENT, UNIT, ("beds",))),
        lambda: charge.open_job(steward.speak_for(BEN), Job("t", "q", EVENT, UNIT, ("visits", "beds"))),
    ):
        with pytest.raises(AccessRefused, match="'beds' is not open"):
            ask()
    for name in ("visits", "wards", "codes"):
        ben.refuse_closed(name)
    for name in ("visits", "beds", "wards"):
        steward.scope.refuse_closed(name)


def test_public_tables_alone_are_attached_as_public_ones(steward: Context) -> None:
    for names in (("visits",), ("wards", "visits"), ("visits", "wards")):
        for ask in (steward.scope.attach_public, steward.scope.public_versions):
            with pytest.raises(InternalError, match="private table was to be used as a public one"):
                ask(*names)
    engine = steward.scope.attach_public("wards", "codes")
    assert engine is steward.scope.engine
    assert [engine.count(name) for name in ("wards", "codes")] == [3, 1]
    assert steward.scope.public_versions("wards") == {"wards": engine.data_version("wards")}
    assert engine is not steward.scope.attach("visits")


def test_each_list_of_rows_has_an_engine_of_its_own_and_the_given_one_is_for_all_rows() -> None:
    whole = DuckDBEngine(threads=1)
    made = opened(engine=whole)
    assert made.scope.attach("visits") is whole
    assert made.scope.narrow_to(ANA).attach("visits") is whole
    narrow = made.scope.narrow_to(BEN).attach("visits")
    assert narrow is not whole
    assert made.scope.narrow_to(BEN).attach("visits", "wards") is narrow
    assert (whole.count("visits"), narrow.count("visits"), narrow.count("wards")) == (12, 6, 3)
    made.close()


def withdraw(made: Context, column: str, value: str) -> None:
    made.store.keep(COLLECTION, f"{column}:{value}", f"{column}={value}", Withdrawal(column, value).to_bytes())
    made.ledger.record(Posting(Act.WITHDRAW, analyst="steward"))


def test_who_withdrew_is_left_out_of_tables_that_were_attached_before(steward: Context) -> None:
    ben = steward.scope.narrow_to(BEN)
    assert (steward.scope.attach("visits").count("visits"), ben.attach("visits").count("visits")) == (12, 6)
    withdraw(steward, "id", "4")
    assert (steward.scope.attach("visits").count("visits"), ben.attach("visits").count("visits")) == (11, 5)
    withdraw(steward, "id", "5")
    assert (steward.scope.attach("visits").count("visits"), ben.attach("visits").count("visits")) == (10, 5)
    withdraw(steward, "other", "6")
    assert steward.scope.attach("visits", "beds", "wards").count("visits") == 10
    assert steward.scope.attach("beds").count("beds") == 3
    assert scope.withdrawn_rows(steward.policy, steward.store, "visits") == (
        Listed("id", ("4", "5"), keep=False, loose=True, by_number=True),
    )
    assert scope.withdrawn_rows(steward.policy, steward.store, "beds") == ()
    assert scope.withdrawn_rows(steward.policy, steward.store, "wards") == ()
    assert scope.withdrawn_rows(steward.policy, opened().store, "visits") == ()


def test_an_asker_is_found_in_the_policy_by_name_or_not_at_all() -> None:
    policy = parse(POLICY)
    found = scope.find_analyst(policy, BEN)
    assert found is not None
    assert found.name == "ben"
    assert scope.find_analyst(policy, Asker("zoe", "study", Role.ANALYST)) is None
    assert scope.find_analyst(policy, None) is None
    assert scope.find_analyst(parse(WITHOUT_BUDGETS), BEN) is None


def test_rows_that_leave_are_those_of_the_asker_without_who_withdrew_and_within_the_sample() -> None:
    made = opened(POLICY + MINIMIZE)
    withdraw(made, "id", "4")
    salt = made.store.keep(scope.SAMPLE_KEYS, "sample", "sample", bytes(range(200, 208)))
    sampled = Sampled(Fraction(1, 2), "id", int.from_bytes(salt, "big") >> 1)
    left, own = Listed("id", ("4",), keep=False, loose=True, by_number=True), Listed("sex", ("F",), keep=True)
    assert made.scope._release_restrictions("visits") == (left, sampled)
    assert made.scope.narrow_to(BEN)._release_restrictions("visits") == (left, own, sampled)
    assert made.scope._release_restrictions("beds") == (replace(sampled, column=None),)
    assert made.scope._release_restrictions("wards") == ()
    whole = opened(POLICY + MINIMIZE.replace(", sample: 0.5", ""))
    assert whole.scope._release_restrictions("visits") == ()
    with made.scope.open_rows({"v": "visits", "w": "wards"}) as engine:
        assert 0 <= engine.count("v") < 12
        assert engine.count("w") == 3


def test_the_salt_of_a_sample_is_drawn_once_and_has_eight_bytes() -> None:
    made, other = opened(POLICY + MINIMIZE), opened(POLICY + MINIMIZE)
    first, again = (made.scope._release_restrictions("visits") for _ in range(2))
    assert first == again
    assert first != other.scope._release_restrictions("visits")
    assert [len(kept) for kept in made.store.list_all(scope.SAMPLE_KEYS).values()] == [8]
    assert isinstance(first[0], Sampled)
    assert 0 <= first[0].salt < 1 << 63  # as the engines take it


def test_rows_are_opened_under_other_names_and_from_other_files(steward: Context, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("id;sex;ward;age\n1;F;a;20\n2;F;b;30\n3;M;b;30\n")
    with steward.scope.narrow_to(BEN).open_rows({"v": "visits"}, sources={"visits": tmp_path / "more.csv"}) as engine:
        assert engine.count("v") == 2
    with steward.scope.narrow_to(BEN).open_rows({"v": "visits"}) as engine:
        assert engine.count("v") == 6
        assert engine.run("SELECT sum(age) AS s FROM v").to_pylist() == [{"s": 20 + 22 + 24 + 26 + 28 + 30}]
    with pytest.raises(Exception, match=r"(?i)clos"):
        engine.run("SELECT 1")


def test_the_tables_that_hold_a_person_are_told_withdrawn_or_not(steward: Context) -> None:
    withdraw(steward, "id", "4")
    assert steward.scope.tables_holding(["4"], {"visits": "id"}) == ["visits"]
    assert steward.scope.tables_holding(["a"], {"visits": "ward", "beds": "ward"}) == ["visits", "beds"]
    assert steward.scope.tables_holding(["z"], {"visits": "ward", "beds": "ward"}) == []


NAMES = ("id", "sex", "ward", "age")
COLUMNS_TO_RELEASE: list[tuple[Asker | None, str, tuple[str, ...] | None, tuple[str, ...]]] = [
    (None, POLICY, None, NAMES),
    (None, POLICY, ("age",), ("age",)),
    (ANA, POLICY, None, NAMES),
    (CEM, POLICY, None, ("sex", "age")),
    (CEM, POLICY, ("age",), ("age",)),
    (CEM, POLICY, ("unknown",), ("unknown",)),
    (None, POLICY + MINIMIZE, None, ("id", "sex", "ward")),
    (None, POLICY + MINIMIZE, ("ward",), ("ward",)),
    (CEM, POLICY + MINIMIZE, None, ("sex",)),
    (CEM, POLICY + MINIMIZE, ("sex",), ("sex",)),
    (DEE, POLICY + MINIMIZE, None, ("id", "ward")),
]
"""Who asks, under which policy, for which columns, and which may leave."""


@pytest.mark.parametrize(("asker", "text", "asked", "told"), COLUMNS_TO_RELEASE)
def test_columns_that_leave_are_within_the_minimization_and_the_askers(
    asker: Asker | None, text: str, asked: tuple[str, ...] | None, told: tuple[str, ...]
) -> None:
    found = opened(text).scope.narrow_to(asker).columns_to_release("visits", asked)
    assert (NAMES if found is None else found) == told  # None is all


def test_a_column_beyond_what_may_leave_is_refused_by_name() -> None:
    made = opened(POLICY + MINIMIZE)
    for asker, column, rest in ((None, "age", "id, sex, ward"), (CEM, "age", "sex"), (DEE, "sex", "id, ward")):
        with pytest.raises(AccessRefused, match=f"column '{column}' is not among those") as refused:
            made.scope.narrow_to(asker).columns_to_release("visits", ("id", column) if asker is DEE else (column,))
        assert refused.value.expected == f"Columns: {rest}"
    with pytest.raises(AccessRefused) as refused:
        made.scope.narrow_to(CEM).columns_to_release("beds", ("bed",))
    assert refused.value.expected == "Columns: none"


def test_a_model_speaks_of_the_askers_columns_alone() -> None:
    made = opened(POLICY + MINIMIZE)
    assert made.scope.columns_to_describe("visits") is None
    assert made.scope.columns_to_describe("visits", ("age",)) == ("age",)
    assert made.scope.narrow_to(ANA).columns_to_describe("visits", ("age",)) == ("age",)
    cem = made.scope.narrow_to(CEM)
    assert cem.columns_to_describe("visits") == ("sex", "age")
    assert cem.columns_to_describe("visits", ("age", "unknown")) == ("age", "unknown")
    assert cem.columns_to_describe("visits", ()) == ()
    with pytest.raises(AccessRefused, match="column 'ward' of 'visits' is not among those of this analyst"):
        cem.columns_to_describe("visits", ("age", "ward"))


# Scope: digests of sources.


def test_a_source_is_marked_once_in_an_epoch_under_a_key_of_32_bytes(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("id,sex,ward,age\n1,F,a,20\n")
    made, again = (open_context(parse(POLICY, folder=tmp_path), ledger=tmp_path / "ledger.sqlite") for _ in range(2))
    assert made.scope.source_changed("1", "visits") is None
    made.scope.mark_source("1", "visits")
    (key,) = made.store.list_all(scope.SAMPLE_KEYS).values()
    assert len(key) == 32
    digest = made.scope.digest_source("visits")
    assert digest == made.scope.digest_source("visits")
    assert made.store.list_all(scope.MARKS) == {'["1", "visits"]': str(digest).encode()}
    assert len(str(digest)) == 64
    assert made.scope.source_changed("1", "visits") is False
    (tmp_path / "visits.csv").write_text("id,sex,ward,age\n1,M,a,20\n")
    made.scope.mark_source("1", "visits")
    assert made.scope.source_changed("1", "visits") is True
    assert made.scope.source_changed("2", "visits") is None
    again.scope.mark_source("1", "visits")
    assert made.store.list_all(scope.MARKS) == {'["1", "visits"]': str(digest).encode()}
    again.scope.mark_source("2", "visits")
    assert len(made.store.list_all(scope.MARKS)) == 2


def test_a_version_is_sealed_by_name_and_content_under_the_key_that_is_kept(steward: Context) -> None:
    key = steward.store.keep(scope.SAMPLE_KEYS, "sources", "sources", b"k" * 32)
    sealed = hashlib.blake2b(b"visits:v1", key=key, digest_size=32).hexdigest()
    assert steward.scope.seal_version("visits", "v1") == sealed


def test_a_source_that_was_marked_is_not_digested_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[str] = []

    def digest(self: scope.Scope, name: str, *_: Any) -> str:
        digested.append(name)
        return "digest"

    monkeypatch.setattr(scope.Scope, "digest_source", digest)
    first, second = (opened(ledger=tmp_path / "ledger.sqlite") for _ in range(2))
    for made in (first, first.speak_for(ANA), second):
        made.scope.mark_source("1", "visits")
    assert digested == ["visits"]
    second.store.empty(scope.MARKS)
    first.scope.mark_source("1", "visits")
    assert digested == ["visits"]  # this process has not forgotten that it marked the source


def test_a_source_that_can_be_read_only_once_has_no_digest_and_no_mark() -> None:
    table = SOURCES["visits"]
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches())
    made = open_context(parse(POLICY), sources={"visits": reader})
    assert made.scope.digest_source("visits") is None
    made.scope.mark_source("1", "visits")
    assert made.store.list_all(scope.MARKS) == {}


# Charge: in which order things happen.


def test_a_question_is_named_by_public_facts_alone(steward: Context) -> None:
    job = job_of(canonical="SELECT 1", public=("wards",))
    version = steward.scope.public_versions("wards")["wards"]
    first = charge.open_job(steward, job)
    assert first.versions == {"visits": "epoch 1", "wards": version}
    assert first.epoch == "1"
    policy = steward.ledger.policy
    assert first.key == f'["SELECT 1", "1", [], [["wards", "{version}"]], "{policy}"]'
    narrow = charge.open_job(steward.speak_for(BEN), job)
    assert narrow.key == f'["SELECT 1", "1", [["sex", ["F"]]], [["wards", "{version}"]], "{policy}"]'
    assert charge.open_job(steward, job_of()).key == ""


def test_an_asker_who_is_not_admitted_opens_nothing(steward: Context) -> None:
    other = steward.speak_for(Asker("ana", "care", Role.ANALYST))
    for ask in (lambda: charge.open_job(other, job_of()), lambda: charge.charge(other, job_of())):
        with pytest.raises(AccessRefused, match="care"):
            ask()
    assert acts(steward) == []


def test_a_charge_says_who_asked_what_of_which_tables(steward: Context) -> None:
    charge.charge(steward, job_of(details={"asked": "n"}))
    charge.charge(steward.speak_for(ANA), job_of(), request="r1", epoch="7")
    first, second = steward.ledger.entries()
    assert (first.act, first.analyst, first.purpose, first.unit) == ("charge", "steward", "", "all rows of one id")
    assert (first.technique, first.tables, from_dict(first.event)) == ("test", ("visits",), EVENT)
    assert dict(first.details) == {"asked": "n", "epoch": "1"}
    assert (second.analyst, second.purpose, dict(second.details)) == ("ana", "study", {"epoch": "7"})
    assert second.request == "r1"
    assert second.request != first.request


def test_a_release_without_a_price_is_recorded_as_one_and_costs_nothing(steward: Context) -> None:
    for event in (None, NonPrivateEvent()):
        charge.charge(steward, replace(job_of(), event=event, unit=None))
    assert [(each.act, from_dict(each.event), each.unit) for each in steward.ledger.entries()] == [
        ("release", NonPrivateEvent(), "")
    ] * 2
    assert steward.balance()[0].spent in (None, PureDP(Fraction(0)))


def test_without_budgets_a_release_is_recorded_and_a_price_is_refused() -> None:
    made = opened(WITHOUT_BUDGETS)
    with pytest.raises(BudgetExceeded, match="sets no budgets"):
        charge.charge(made, job_of())
    for event in (None, NonPrivateEvent()):
        charge.charge(made, replace(job_of(), event=event))
    assert acts(made) == ["release", "release"]


def test_what_binds_a_request_id_is_its_charge_and_a_free_answer_binds_none() -> None:
    rows = pa.table({"pid": list(range(40)), "x": [n % 4 for n in range(40)]})
    first, second = ("SELECT COUNT(*) FROM data WHERE x > 1", "SELECT COUNT(*) FROM data WHERE x > 2")
    with Curator.from_frame(rows, "pid", 10, bounds={"x": (0, 4)}) as curator:
        curator.query(first, epsilon=1)
        assert curator.query(first, epsilon=1, request="r1").repeated
        assert not curator.query(second, epsilon=1, request="r1").repeated, "nothing was charged under it before"
        with pytest.raises(AccessRefused, match="'r1' was used for another question"):
            curator.query(first, epsilon=1, request="r1")
        assert sum(1 for _ in curator.ledger.entries(acts=("charge",))) == 2


def test_a_request_id_serves_one_question(steward: Context) -> None:
    asker = steward.speak_for(ANA)
    first = charge.charge(asker, job_of(), request="r1")
    again = charge.charge(asker, job_of(), request="r1")
    assert (first.repeated, again.repeated, again.release) == (False, True, first.release)
    with pytest.raises(AccessRefused, match="request id 'r1' was used for another question"):
        charge.charge(asker, replace(job_of(), text="something else"), request="r1")
    with pytest.raises(AccessRefused, match="request id 'r1' was used for another question"):
        charge.charge(asker, job_of(), request="r1", question="something else")
    charge.charge(asker, job_of(), request="r2", question="q")
    assert charge.charge(asker, replace(job_of(), text="other"), request="r2", question="q").repeated
    assert acts(steward) == ["charge", "charge"]


def test_a_job_is_charged_then_measured_then_stored_and_repeated_for_nothing(steward: Context) -> None:
    seen: list[list[str]] = []

    def measure(engine: Engine) -> Any:
        seen.append([*acts(steward), f"{engine.count('visits')} rows"])
        return noisy(5, 6)

    job = job_of(measure, canonical="n")
    first = charge.run_job(steward, job)
    again = charge.run_job(steward, job)
    assert seen == [["charge", "12 rows"]]
    assert (first.repeated, again.repeated) == (False, True)
    assert first.receipt is not None
    assert again.receipt is None
    assert first.release == again.release == first.receipt.release
    assert first.time == again.time
    assert first.time.microsecond == 0
    assert first.versions == again.versions == {"visits": "epoch 1"}
    assert again.measured["step"][0].values[0].tolist() == [5, 6]
    assert list(steward.store.list_all(scope.MARKS)) in ([], ['["1", "visits"]'])


def test_a_job_that_is_no_question_is_charged_and_measured_each_time(steward: Context) -> None:
    first, again = (charge.run_job(steward, job_of(lambda engine: "made")) for _ in range(2))
    assert (first.measured, again.measured, first.repeated, again.repeated) == ("made", "made", False, False)
    assert first.release != again.release
    assert acts(steward) == ["charge", "charge"]
    assert steward.store.list_all(context.ANSWERS) == {}


def test_a_free_job_is_not_charged_and_has_a_release_of_24_digits(steward: Context) -> None:
    stop = threading.Event()
    stop.set()
    made = charge.run_job(steward, replace(job_of(canonical="n"), private=(), public=("wards",), free=True), stop=stop)
    assert (made.receipt, acts(steward)) == (None, [])
    assert len(made.release) == 24
    int(made.release, 16)


def test_what_was_taken_back_before_the_charge_is_not_charged(steward: Context) -> None:
    stop = threading.Event()
    assert charge.run_job(steward, job_of(), stop=stop).receipt is not None
    stop.set()
    with pytest.raises(Stopped, match="cancelled before it was charged") as refused:
        charge.run_job(steward, job_of(), stop=stop)
    assert refused.value.charged == NOTHING_CHARGED
    assert acts(steward) == ["charge"]


def test_a_request_whose_answer_was_lost_is_measured_again_under_its_charge(steward: Context) -> None:
    asker, job = steward.speak_for(ANA), job_of(canonical="n")
    first = charge.run_job(asker, job, request="r1")
    steward.store.empty(context.ANSWERS)
    again = charge.run_job(asker, job, request="r1")
    assert (again.release, again.repeated) == (first.release, False)
    assert again.receipt is not None
    assert again.receipt.repeated
    assert acts(steward) == ["charge"]


def test_a_request_whose_answer_is_stored_under_its_release_is_not_measured_again(steward: Context) -> None:
    asker, job = steward.speak_for(ANA), job_of(canonical="n")
    found = charge.open_job(asker, job)
    receipt = charge.charge(asker, job, request="r1", question=found.key, epoch=found.epoch)
    time = datetime(2026, 1, 2, tzinfo=UTC)
    charge.store_answer(steward.store, "another name", StoredAnswer(noisy(9), receipt.release, time))
    made = charge.run_job(asker, replace(job, measure=lambda engine: 1 / 0), request="r1")
    assert (made.measured["step"][0].values[0].tolist(), made.time, made.repeated) == ([9], time, False)
    assert made.release == receipt.release
    assert acts(steward) == ["charge"]


def test_a_job_that_was_opened_before_runs_as_it_was_opened(steward: Context) -> None:
    found = OpenJob("7", {"visits": "as told"}, "")
    made = charge.run_job(steward, job_of(), found)
    assert (made.epoch, made.versions) == ("7", {"visits": "as told"})
    (entry,) = steward.ledger.entries()
    assert dict(entry.details) == {"epoch": "7"}


def test_failures_are_written_for_all_unless_the_asker_took_the_job_back(steward: Context) -> None:
    def fail(engine: Engine) -> None:
        raise RuntimeError("value 739155 of patient CANARY")

    stop = threading.Event()

    def cancel(engine: Engine) -> None:
        stop.set()
        raise RuntimeError("interrupted")

    free = replace(job_of(fail, free=True), private=(), public=("wards",))
    asker = steward.speak_for(ANA)
    tries: list[tuple[Context, Job[Any], threading.Event | None, list[str]]] = [
        (steward, job_of(fail), None, ["charge", "fail"]),
        (asker, job_of(fail), None, ["charge", "fail"]),
        (asker, job_of(fail), threading.Event(), ["charge", "fail"]),
        (asker, job_of(cancel), stop, ["charge"]),
        (asker, free, None, []),
    ]
    for who, job, flag, written in tries:
        before = len(acts(steward))
        with pytest.raises(Cancelled if flag is stop else ExecutionFailed) as refused:
            charge.run_job(who, job, stop=flag)
        assert "CANARY" not in refused.value.message
        assert refused.value.__cause__ is None
        assert acts(steward)[before:] == written
    failed = [entry for entry in steward.ledger.entries() if entry.act == "fail"]
    assert {(entry.analyst, entry.purpose) for entry in failed} == {("", ""), ("ana", "study")}


def test_after_the_charge_without_a_context_nothing_is_counted(steward: Context) -> None:
    with pytest.raises(ExecutionFailed), charge.after_the_charge():
        raise RuntimeError
    with charge.after_the_charge(steward.speak_for(ANA)):
        pass
    stop = threading.Event()
    stop.set()
    taken_back = charge.after_the_charge(steward.speak_for(ANA), stop, charged=False)
    with pytest.raises(Cancelled, match=r"cancelled while it ran\. Nothing was charged"), taken_back:
        raise RuntimeError
    assert acts(steward) == []


def test_the_steward_alone_lets_an_asker_go_on_and_is_told_how_many_failed(steward: Context) -> None:
    for name in ("ana", "ana", "ben"):
        steward.ledger.record(Posting(Act.FAIL, analyst=name))
    with pytest.raises(AccessRefused, match="only the steward"):
        resume_asker(steward.speak_for(BEN), "ana")
    with pytest.raises(ParameterError, match="'cem' has no failures"):
        resume_asker(steward, "cem")
    assert resume_asker(steward, "ana", "dpo") == 2
    assert (steward.state.failures("ana"), steward.state.failures("ben")) == (0, 1)
    last = steward.ledger.head()
    assert last is not None
    assert (last.act, last.analyst, dict(last.details)) == ("resume", "dpo", {"analyst": "ana", "failures": 2})
    with pytest.raises(ParameterError, match="'ana' has no failures"):
        resume_asker(steward, "ana")


def test_a_disk_that_refuses_says_that_the_charge_stands() -> None:
    with pytest.raises(StorageError, match="the disk is full") as refused, charge.still_charged():
        raise StorageError("the disk is full", remedy="Make room")
    assert (refused.value.charged, refused.value.remedy) == (CHARGED, "Make room")


def test_a_table_that_cannot_be_read_is_told_to_the_steward_alone(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("id,sex,ward\n1,F,a\n")
    made = open_context(parse(POLICY, folder=tmp_path))
    with pytest.raises(DataError, match="column 'age' is declared"):
        charge.run_job(made, job_of())
    with pytest.raises(DataError, match="a table of this question cannot be read as the policy declares it"):
        charge.run_job(made.speak_for(ANA), job_of())
    assert acts(made) == []


def test_whoever_measures_first_leaves_a_mark_of_each_private_source(tmp_path: Path) -> None:
    files = {"visits": "id,sex,ward,age\n1,F,a,3\n", "beds": "ward,bed\na,1\n", "wards": "code,region\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    made = open_context(parse(POLICY, folder=tmp_path))
    engine = charge.attach_tables(made, replace(job_of(), private=("visits", "beds"), public=("wards",)), "3")
    assert sorted(made.store.list_all(scope.MARKS)) == ['["3", "beds"]', '["3", "visits"]']
    assert [engine.count(name) for name in ("visits", "beds", "wards")] == [1, 1, 0]


# Charge: what is stored, and what is claimed.


def test_a_stored_answer_is_read_as_it_was_written(steward: Context) -> None:
    measured = noisy(1, -2, 3) | {"other": (Noisy(pa.table({"k": [1.5]}), (np.array([2**62]),)),)}
    answer = StoredAnswer(measured, "r", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert charge.find_answer(steward.store, "key") is None
    assert charge.store_answer(steward.store, "key", answer) is answer
    for name in ("key", "r"):
        found = charge.find_answer(steward.store, name)
        assert found is not None
        assert (found.release, found.time) == (answer.release, answer.time)
        assert list(found.measured) == ["step", "other"]
        for step, parts in measured.items():
            assert len(found.measured[step]) == len(parts)
            for part, kept in zip(parts, found.measured[step], strict=True):
                assert kept.keys.to_pylist() == part.keys.to_pylist()
                assert [each.tolist() for each in kept.values] == [each.tolist() for each in part.values]
    later = charge.store_answer(steward.store, "key", replace(answer, measured=noisy(9), release="s"))
    assert (later.release, later.measured["step"][0].values[0].tolist()) == ("r", [1, -2, 3])


CLAIMS = [
    (None, PureDP(Fraction(1)), ("nobody", Neighboring.ADD_REMOVE, 0, 0, None)),
    (UNIT, None, ("all rows of one id", Neighboring.ADD_REMOVE, 0, 0, None)),
    ("one response", PureDP(Fraction(1)), ("one response", Neighboring.ADD_REMOVE, 0, 0, None)),
    (None, None, ("nobody", Neighboring.ADD_REMOVE, 0, 0, None)),
    (
        replace(UNIT, neighboring=Neighboring.REPLACE),
        PureDP(Fraction(2)),
        ("all rows of one id", Neighboring.REPLACE, 2, 0, None),
    ),
    (
        UNIT,
        ZCDP(Fraction(1, 10), Fraction(1, 1000)),
        (
            "all rows of one id",
            Neighboring.ADD_REMOVE,
            epsilon_of_zcdp(Fraction(1, 10), Fraction(1, 10**9)),
            Fraction(1, 1000) + Fraction(1, 10**9),
            Fraction(1, 10),
        ),
    ),
]
"""Who is protected, at which price, and what is claimed: unit, neighbors, epsilon, delta, rho."""


@pytest.mark.parametrize(("unit", "cost", "claim"), CLAIMS)
def test_the_claim_is_the_one_that_the_price_implies(unit: Any, cost: Any, claim: tuple[Any, ...]) -> None:
    made = charge.guarantee_of(Technique.DP_QUERY, unit, cost)
    assert (made.unit, made.neighbors, made.epsilon, made.delta, made.rho) == claim


def test_a_question_names_its_private_tables_and_attaches_its_public_ones(steward: Context) -> None:
    text = "SELECT region, COUNT(*) AS n FROM visits JOIN wards ON ward = code GROUP BY region"
    plan = compile_query(text, steward.policy.tables, PureDP(Fraction(1)))
    job = charge.job_of(plan)
    assert (job.private, job.public, job.free) == (("visits",), ("wards",), False)
    assert (job.text, dict(job.details), job.canonical) == (plan.text, {"asked": plan.text}, plan.canonical)
    open_plan = compile_query("SELECT COUNT(*) AS n FROM wards", steward.policy.tables)
    assert (charge.job_of(open_plan).private, charge.job_of(open_plan).public) == ((), ("wards",))


# What is remembered beside the ledger, and the names of copies.


def test_the_store_remembers_the_last_charge_with_its_answer_or_at_once_where_none_will_be_stored(
    steward: Context,
) -> None:
    assert steward.store.last_seen() == (0, ""), "it was there before the first charge"
    first = charge.charge(steward, job_of())
    assert steward.store.last_seen() == (first.number, first.head)
    charge.charge(steward, job_of(), stored=True)
    assert steward.store.last_seen() == (first.number, first.head), "the answer will bring it"
    made = charge.run_job(steward, job_of(canonical="n"))
    assert made.receipt is not None
    assert steward.store.last_seen() == (made.receipt.number, made.receipt.head)


def test_a_charge_whose_answer_was_not_stored_is_not_yet_remembered_and_a_disk_that_refuses_says_it_stands(
    steward: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(type(steward.store), "see", refuse)
    with pytest.raises(StorageError) as told:
        charge.charge(steward, job_of())
    assert told.value.charged == CHARGED
    charge.charge(steward, job_of(), stored=True)
    assert acts(steward) == ["charge", "charge"]


def test_a_ledger_that_is_older_than_its_answers_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    made = opened(ledger=place)
    charge.run_job(made, job_of(canonical="n"))
    made.close()
    opened(ledger=place).close()
    for file in tmp_path.glob("ledger.sqlite*"):
        file.unlink()
    with pytest.raises(IntegrityError, match="not the one that charged"):
        opened(ledger=place)


def test_a_store_that_lost_who_withdrew_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    made = opened(ledger=place)
    made.ledger.record(Posting(Act.WITHDRAW, analyst="steward", details={"commitment": "c"}))
    made.close()
    with pytest.raises(IntegrityError, match="people withdrew"):
        opened(ledger=place)


def test_copies_are_named_by_epoch_and_source_with_twelve_digits_of_a_digest(tmp_path: Path) -> None:
    epoch = "2026-Q4 +2/é"
    digest = hashlib.sha256(epoch.encode()).hexdigest()
    assert scope._name_folder(epoch) == f"2026-Q4_+2__-{digest[:12]}"
    source = hashlib.sha256(f"{tmp_path.resolve()}\nvisits.csv".encode()).hexdigest()
    assert scope._name_place(tmp_path.resolve(), "visits.csv") == source[:12]
    here = hashlib.sha256(f"{Path.cwd()}\nvisits.csv".encode()).hexdigest()
    assert scope._name_place(Path(), "visits.csv") == here[:12]


def test_the_copies_of_the_last_two_epochs_stay_and_nothing_that_is_not_a_copy_goes(tmp_path: Path) -> None:
    names = [scope._name_folder(str(n)) for n in range(4)]
    for age, name in enumerate([*names, "mine", "short-0123456789a", "long-0123456789abc"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.csv").write_text("x")
        os.utime(tmp_path / name, ns=(age, age))
    scope._drop_copies(tmp_path)
    kept = {"mine", "short-0123456789a", "long-0123456789abc", *names[2:]}
    assert kept <= {each.name for each in tmp_path.iterdir()}
    assert not {each.name for each in tmp_path.iterdir()} & set(names[:2])
    assert not list(tmp_path.glob("*.part"))


def test_files_of_one_size_are_compared_by_what_they_hold(tmp_path: Path) -> None:
    for name, text in (("a", "same"), ("b", "same"), ("c", "else")):
        (tmp_path / name).write_text(text)
    assert sources._hold_the_same(tmp_path / "a", tmp_path / "a")
    assert sources._hold_the_same(tmp_path / "a", tmp_path / "b")
    assert not sources._hold_the_same(tmp_path / "a", tmp_path / "c")


# Turns of an asker, and the witness outside of the ledger.


class Waits(Exception):
    """Somebody would wait for a turn."""


@pytest.mark.parametrize(("failures", "together"), [(0, 3), (1, 2), (2, 1), (3, 1), (5, 1)])
def test_an_asker_has_so_many_jobs_under_way_as_may_still_fail(
    steward: Context, failures: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(failures):
        steward.ledger.record(Posting(Act.FAIL, analyst="ana"))
    told: list[float] = []
    steward.ledger.record(Posting(Act.FAIL, analyst="ben"))

    def wait(seconds: float) -> None:
        told.append(seconds)
        raise Waits

    monkeypatch.setattr(steward.state._turns, "wait", wait)
    with ExitStack() as turns:
        for _ in range(together):
            turns.enter_context(steward.state.take_turn("ana"))
        with pytest.raises(Waits):
            turns.enter_context(steward.state.take_turn("ana", threading.Event()))
        assert told == [context.TURN_SECONDS]
        stopped = threading.Event()
        stopped.set()
        turns.enter_context(steward.state.take_turn("ana", stopped))
        turns.enter_context(steward.state.take_turn("ben"))
        assert dict(steward.state._running) == {"ana": together + 1, "ben": 1}
    assert dict(steward.state._running) == {"ana": 0, "ben": 0}


def test_who_waits_for_a_turn_is_told_when_one_ends_even_badly(
    steward: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(steward.state._turns, "notify_all", lambda: told.append(steward.state._running["ana"]))
    with pytest.raises(Waits), steward.state.take_turn("ana"):
        raise Waits
    assert told == [0]


def test_the_steward_and_free_jobs_take_no_turn(steward: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    @contextmanager
    def take(self: LedgerState, analyst: str, stop: object = None) -> Iterator[None]:
        taken.append(analyst)
        yield

    monkeypatch.setattr(LedgerState, "take_turn", take)
    charge.run_job(steward, job_of())
    charge.run_job(steward.speak_for(ANA), replace(job_of(), private=(), public=("wards",), free=True))
    assert taken == []
    charge.run_job(steward.speak_for(ANA), job_of())
    assert taken == ["ana"]


def write_visits(folder: Path, people: int = 40) -> None:
    lines = [f"{n},{'FM'[n % 2]},a,{n}" for n in range(people)]
    (folder / "visits.csv").write_text("\n".join(["id,sex,ward,age", *lines]) + "\n")


def on_disk(folder: Path, name: str | None = "ledger.sqlite", text: str = POLICY) -> Context:
    return open_context(parse(text, folder=folder), ledger=None if name is None else folder / name)


def test_private_sources_are_listed_by_their_real_place_and_when_they_changed(tmp_path: Path) -> None:
    write_visits(tmp_path)
    (tmp_path / "wards.csv").write_text("code,region\na,north\n")
    assert opened().scope.list_sources() == {}, "in memory, with no witness, frames have no name"
    made = on_disk(tmp_path)
    listed = made.scope.list_sources()
    stamp = hashlib.sha256(repr([stamp_file(tmp_path / "visits.csv")]).encode()).hexdigest()
    assert listed == {"visits": (str((tmp_path / "visits.csv").resolve()), stamp)}, "beds are gone, wards are public"
    frames = opened().scope.list_sources()
    assert all(path == stamp and re.fullmatch("frame [0-9a-f]{16}", path) for path, stamp in frames.values())
    other = open_context(parse(POLICY, folder=tmp_path), sources={"visits": SOURCES["visits"]})
    assert other.scope.list_sources() == {"visits": frames["visits"]}, "the same rows have the same name"


@pytest.mark.usefixtures("marked_rows")
def test_rows_are_known_by_their_least_hashes_whatever_their_order(tmp_path: Path) -> None:
    write_visits(tmp_path)
    made = on_disk(tmp_path)
    few, many = made.scope.sketch_rows("visits", 5), made.scope.sketch_rows("visits", 1000)
    assert few is not None
    assert many is not None
    assert (len(few.rows), len(many.rows), many.rows[:5]) == (5, 40, few.rows)
    assert many.rows == sorted(set(many.rows))
    assert [len(each) for each in many.keys] == [40, 40], "of two columns with enough values"
    header, *lines = (tmp_path / "visits.csv").read_text().splitlines()
    (tmp_path / "visits.csv").write_text("\n".join([header, *reversed(lines), lines[0]]) + "\n")
    assert made.scope.sketch_rows("visits", 1000) == many
    assert made.scope.sketch_rows("beds", 5) is None


@pytest.mark.usefixtures("marked_rows")
def test_rows_are_hashed_only_where_a_source_is_not_as_it_was(tmp_path: Path) -> None:
    write_visits(tmp_path)
    made = on_disk(tmp_path)
    ((path, stamp),) = made.scope.list_sources().values()
    sketch, unit = made.scope.sketch_rows("visits", MARKED_ROWS), str(made.policy.table("visits").unit)
    assert sketch is not None
    assert len(sketch.rows) == MARKED_ROWS
    whole = Source(path, stamp, sketch, "visits", unit)
    assert context.mark_sources(made.scope, {}) == [whole]
    assert context.mark_sources(made.scope, {path: "before"}) == [whole]
    assert context.mark_sources(made.scope, {path: stamp}) == [Source(path, stamp, None, "visits", unit)]


def test_a_ledger_in_memory_knows_of_the_one_that_holds_its_rows_and_prices_nothing(tmp_path: Path) -> None:
    write_visits(tmp_path)
    alone = on_disk(tmp_path, None)
    assert (alone.place, alone.elsewhere) == ("", "")
    holder = on_disk(tmp_path)
    assert (holder.place, holder.elsewhere) == (str((tmp_path / "ledger.sqlite").resolve()), "")
    charge.charge(holder, job_of())
    beside = on_disk(tmp_path, None)
    assert (beside.place, beside.elsewhere) == ("", holder.place)
    with pytest.raises(AccessRefused, match="have a budget already"):
        charge.charge(beside, job_of())
    charge.charge(beside, replace(job_of(), event=None))
    assert acts(beside) == ["release"]
    assert on_disk(tmp_path, None, WITHOUT_BUDGETS).elsewhere == ""


def test_a_second_ledger_over_the_same_rows_is_refused_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_visits(tmp_path)
    charge.charge(on_disk(tmp_path), job_of())
    closed: list[str] = []
    for kind in (scope.Scope, Ledger):
        close = kind.close
        monkeypatch.setattr(
            kind, "close", lambda self, close=close, kind=kind: closed.append(kind.__name__) or close(self)
        )
    with pytest.raises(AccessRefused, match="have a budget already"):
        on_disk(tmp_path, "other.sqlite")
    assert closed == ["Scope", "Ledger"]
    on_disk(tmp_path, "third.sqlite", WITHOUT_BUDGETS).close()


def test_the_witness_is_told_how_far_a_ledger_is_with_each_entry_and_when_it_is_closed(tmp_path: Path) -> None:
    write_visits(tmp_path)
    made = on_disk(tmp_path)
    charge.charge(made, job_of())
    assert Witness().forget(made.place) == 1, "before it is closed: it may be killed"
    made.close()
    assert Witness().forget(made.place) == 1


def test_a_context_is_closed_though_the_witness_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_visits(tmp_path)
    made = on_disk(tmp_path)

    def refuse(*_: Any) -> None:
        raise StorageError("no room")

    monkeypatch.setattr(Witness, "see", refuse)
    made.close()
    opened().close()


def test_an_epoch_is_named_by_the_calendar_or_the_manifest_where_the_policy_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, zone: Any = None) -> datetime:
            return datetime(2026, 11, 15, 23, 30, tzinfo=zone)

    monkeypatch.setattr(context, "datetime", Clock)
    (tmp_path / "as_of.txt").write_text("2026-11-01\n")
    named = {
        "": "",
        "epochs: {copies: kept}\n": "",
        "epochs: {every: month}\n": "2026-11",
        "epochs: {every: month, copies: kept}\n": "2026-11",
        "epochs: {manifest: as_of.txt}\n": "2026-11-01",
    }
    for text, name in named.items():
        assert context._name_period(parse(POLICY + text, folder=tmp_path)) == name


def test_of_a_private_table_columns_leave_that_were_decided_on_and_of_a_public_one_all() -> None:
    text = POLICY.replace("      ward: {role: insensitive}\n", "      ward: {}\n")
    assert text != POLICY
    every = opened(text)
    assert every.scope.columns_to_release("visits") == ("id", "sex", "age")
    assert every.scope.columns_to_release("wards") is None
    least = opened(text + "release: {minimize: {columns: [sex, ward, code]}}\n")
    assert least.scope.columns_to_release("visits") == ("sex",)
    assert least.scope.columns_to_release("wards") == ("code",)


def test_tables_are_attached_as_they_are_declared_and_a_public_one_without_columns_as_it_is(
    steward: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared: dict[str, Any] = {}
    attach = DuckDBEngine.attach

    def watched(self: DuckDBEngine, name: str, source: Any, schema: Any = None, **more: Any) -> Any:
        declared[name] = schema
        return attach(self, name, source, schema, **more)

    monkeypatch.setattr(DuckDBEngine, "attach", watched)
    steward.scope.attach("visits")
    steward.scope.attach_public("wards", "codes")
    table = steward.policy.table
    assert declared == {"visits": table("visits"), "wards": table("wards"), "codes": None}


def test_what_fails_after_the_charge_of_this_call_is_not_told_as_charged_before(tmp_path: Path) -> None:
    """A reading of the ledger that failed after the charge said that the call itself had charged nothing."""
    rows = pa.table({"u": list(range(50)), "x": [n % 10 for n in range(50)]})
    with Curator.from_frame(rows, "u", 10, bounds={"x": (0, 9)}, ledger=tmp_path / "ledger.sqlite") as curator:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("deniable.curator.query.sql.build_release", Mock(side_effect=StorageError("lost")))
            with pytest.raises(StorageError) as refused:
                curator.query("SELECT COUNT(*) FROM data", epsilon=1, request="one")
        assert refused.value.charged == CHARGED
        with pytest.raises(AccessRefused) as other:
            curator.query("SELECT SUM(x) FROM data", epsilon=1, request="one")
        assert "charged_before" in other.value.fields
        assert curator.query("SELECT COUNT(*) FROM data", epsilon=1, request="one").rows.num_rows == 1
        assert len(list(curator.context.ledger.entries(0, ("charge",)))) == 1
