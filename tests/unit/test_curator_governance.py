"""The curator at work: who sees which columns and rows, what is stored and forgotten, who is left out, what is told."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from secrets import token_hex
from typing import Any

import pyarrow as pa
import pytest

from deniable import Curator
from deniable.assess.utility import count_unique_rows
from deniable.curator import charge
from deniable.curator.charge import watch_charges
from deniable.curator.context import ANSWERS, forget_answers
from deniable.curator.governance import reports, requests, withdrawals
from deniable.curator.query import sql as query_sql
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    CHARGED,
    NOTHING_CHARGED,
    AccessRefused,
    ChargeWatch,
    ExecutionFailed,
    ParameterError,
    QueryRefused,
)
from deniable.governance import requests as rules
from deniable.governance.grants import Action, Asker, Role
from deniable.ledger import Act, Posting
from deniable.ledger.answer_store import AnswerStore
from deniable.ledger.ledger import verify
from deniable.policy.budget import PureDP
from deniable.query import execute
from deniable.query.execute import measure

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
      zip: {role: quasi-identifier}
      charge: {type: integer, between: [0, 1000]}
budgets:
  dataset: {epsilon: 20000}
  purposes:
    research: {epsilon: 9000}
    operations: {epsilon: 2000, every: month}
  analysts:
    ana: {purposes: [research], columns: [sex]}
    ben: {purposes: [research, operations], rows: {sex: [F]}}
"""
ANA = Asker("ana", "research", Role.ANALYST)
BEN = Asker("ben", "research", Role.ANALYST)
COUNT = "SELECT COUNT(*) AS n FROM visits"
MUCH = 500  # an epsilon at which noise is 0 but for a probability below 1e-200, so that answers show what was counted


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    rows = "".join(f"{i},{'FM'[i % 2]},z{i % 7},{i}\n" for i in range(40))
    (tmp_path / "visits.csv").write_text("id,sex,zip,charge\n" + rows)
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path / "policy.yaml"


@pytest.fixture
def curator(policy: Path) -> Iterator[Curator]:
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as opened:
        yield opened


def count(curator: Curator, who: Asker | None = None, sql: str = COUNT, **rest: object) -> int:
    return int(curator.query(sql, epsilon=MUCH, who=who, intervals=False, **rest).to_pylist()[0]["n"])


def test_a_column_outside_the_allow_list_does_not_exist_for_the_analyst(curator: Curator) -> None:
    with pytest.raises(QueryRefused, match="no column 'charge'"):
        curator.query("SELECT SUM(charge) FROM visits", epsilon=1, who=ANA)
    assert count(curator, ANA, "SELECT COUNT(*) AS n FROM visits WHERE sex = 'F'") == 20
    assert curator.query("SELECT SUM(charge) AS n FROM visits", epsilon=1, who=BEN)


def test_rows_outside_the_allow_list_are_never_counted(curator: Curator) -> None:
    assert count(curator, BEN) == 20
    assert count(curator, BEN, "SELECT COUNT(*) AS n FROM visits WHERE sex = 'M' OR sex = 'F'") == 20
    assert count(curator, ANA) == 40
    assert count(curator) == 40


def test_a_purpose_outside_the_grant_is_refused_even_for_a_stored_answer(curator: Curator) -> None:
    count(curator, ANA)
    with pytest.raises(AccessRefused):
        count(curator, Asker("ana", "operations", Role.ANALYST))
    with pytest.raises(AccessRefused):
        count(curator, Asker("eve", "research", Role.ANALYST))


def test_a_repeated_question_has_one_answer_and_costs_nothing(policy: Path, curator: Curator) -> None:
    first = curator.query(COUNT, epsilon="1/10", who=ANA)
    left = curator.remaining(ANA)
    again = curator.query("select count(*) as n   from VISITS", epsilon="1/10", who=ANA)
    third = curator.query(COUNT, epsilon="1/10", who=ANA, confidence=0.5)
    assert again.repeated
    assert third.repeated
    assert {answer.to_pylist()[0]["n"] for answer in (first, again, third)} == {first.to_pylist()[0]["n"]}
    assert curator.remaining(ANA) == left
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as other:
        shared = other.query(COUNT, epsilon="1/10", who=ANA)
        assert (shared.repeated, shared.to_pylist()) == (True, first.to_pylist())
        assert shared.release.provenance.time == first.release.provenance.time


def test_a_new_epoch_or_policy_makes_a_new_question(policy: Path) -> None:
    ledger = policy.with_suffix(".sqlite")
    with Curator.open(policy, ledger=ledger) as curator:
        assert count(curator) == 40
    with (policy.parent / "visits.csv").open("a") as file:
        file.write("99,F,z1,5\n")
    with Curator.open(policy, ledger=ledger) as curator:
        assert count(curator) == 40
        curator.new_epoch("one more visit")
        assert count(curator) == 41
    policy.write_text(POLICY.replace("[F, M]", "[F, M, X]"))
    with Curator.open(policy, ledger=ledger) as curator:
        assert not curator.query(COUNT, epsilon=MUCH).repeated


def test_a_charge_whose_answer_was_lost_is_answered_under_the_old_charge_and_once(
    curator: Curator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(charge, "store_answer", killed)
        with pytest.raises(KeyboardInterrupt):
            curator.query(COUNT, epsilon="1/10", who=ANA, request="r1")
    left = curator.remaining(ANA)
    first = curator.query(COUNT, epsilon="1/10", who=ANA, request="r1")
    assert curator.remaining(ANA) == left
    assert first.receipt is not None
    assert first.receipt.repeated
    found = {str(curator.query(COUNT, epsilon="1/10", who=ANA, request="r1").to_pylist()) for _ in range(5)}
    assert found == {str(first.to_pylist())}


def test_two_processes_that_finish_one_question_give_one_answer(curator: Curator) -> None:
    plan = query_sql.compile_sql(curator.context, COUNT, PureDP(Fraction(1, 10)))
    engine, now = curator.context.scope.attach("visits"), datetime.now(UTC)
    made = (charge.StoredAnswer(measure(plan, engine), token_hex(12), now) for _ in range(8))
    kept = [charge.store_answer(curator.context.store, "key", one) for one in made]
    assert len({one.release for one in kept}) == 1
    assert len({str([part.values for parts in one.measured.values() for part in parts]) for one in kept}) == 1


def test_a_person_who_withdrew_is_left_out_in_every_process(policy: Path, curator: Curator) -> None:
    assert count(curator) == 40
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as other:
        receipt = withdrawals.withdraw(other.context, "id", "12")
        assert withdrawals.withdraw(other.context, "id", "12").number == receipt.number
        assert count(other) == 40, "what was answered in this epoch is public and stays as it is"
        assert count(other, None, f"{COUNT} WHERE charge >= 0") == 39
    assert count(curator, BEN) == 19
    assert count(curator, None, "SELECT COUNT(*) AS n FROM visits WHERE id = 12") == 0
    curator.new_epoch("somebody left")
    assert count(curator) == 39


def test_the_record_does_not_hold_the_value_of_a_person_who_withdrew(policy: Path, curator: Curator) -> None:
    withdrawals.withdraw(curator.context, "id", "31415926")
    assert "31415926" not in json.dumps([entry.as_dict() for entry in curator.ledger.entries()])
    assert withdrawals.withdrawal_time(curator.context, "id", "31415926") is not None
    assert withdrawals.withdrawal_time(curator.context, "id", "31415927") is None


def test_withdrawing_by_a_column_that_tells_nobody_apart_is_refused(curator: Curator) -> None:
    with pytest.raises(ParameterError, match="told apart by: id"):
        withdrawals.withdraw(curator.context, "sex", "F")


def test_a_person_is_told_the_releases_that_came_before_the_withdrawal(curator: Curator) -> None:
    count(curator, ANA)
    curator.record("masking", tables=("visits",), unit="one id")
    withdrawals.withdraw(curator.context, "id", "3")
    count(curator, ANA, "SELECT COUNT(*) AS n FROM visits WHERE sex = 'F'")
    mine, others = (reports.subject_report(curator.context, "id", value) for value in ("3", "4"))
    assert [len(told["releases"]) for told in (mine, others)] == [2, 3]
    assert mine["withdrawn"]
    assert mine["purposes"] == ["research"]
    nobody = reports.subject_report(curator.context, "id", "123456")
    assert (nobody.tables, nobody.withdrawn, nobody.purposes, nobody.releases, nobody.proof) == ([], None, [], [], None)


def test_a_request_id_gets_no_second_answer_once_the_first_was_forgotten(policy: Path) -> None:
    """After a purge, or under a wrong clock, one charge gave any number of answers with noise of their own."""
    ledger, asked = policy.with_suffix(".sqlite"), "SELECT COUNT(*) AS n FROM visits"
    with Curator.open(policy, ledger=ledger) as curator:
        curator.query(asked, epsilon="1/2", who=ANA, request="r1")
        recorded = curator.record("survey", request="survey of staff")  # as results of a survey are: nothing is stored
    policy.write_text(POLICY + "expires: 2020-01-01\n")
    with Curator.open(policy, ledger=ledger) as curator:
        assert forget_answers(curator.context) == 1
    policy.write_text(POLICY)
    with Curator.open(policy, ledger=ledger) as curator:
        again = curator.record("survey", request="survey of staff")
        assert (again.repeated, again.number) == (True, recorded.number)
        told = r"was forgotten.*under a new request id.*charged before: entry 1, epsilon 0\.5"
        with pytest.raises(AccessRefused, match=told):
            curator.query(asked, epsilon="1/2", who=ANA, request="r1")
        assert not curator.query(asked, epsilon="1/2", who=ANA, request="r2").repeated
        assert len(list(curator.ledger.entries(acts=("charge",)))) == 2


def test_what_is_charged_while_answers_are_forgotten_does_not_make_the_store_look_robbed(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last questions before midnight are charged while another process forgets: their counts are of before."""
    ledger = policy.with_suffix(".sqlite")
    with Curator.open(policy, ledger=ledger) as curator:
        count(curator, ANA)
        curator.query("SELECT COUNT(*) AS n FROM visits WHERE sex = 'F'", epsilon="1/10", who=ANA)
    policy.write_text(POLICY + "expires: 2020-01-01\n")
    with Curator.open(policy, ledger=ledger) as curator:
        ledger_of, empty = curator.ledger, curator.context.store.empty

        def charge_and_empty(_: object, collection: str) -> int:
            if collection == ANSWERS:
                ledger_of.record(Posting(Act.RELEASE, analyst="steward"))
            return empty(collection)

        monkeypatch.setattr(type(curator.context.store), "empty", charge_and_empty)
        assert forget_answers(curator.context) == 2
    with Curator.open(policy, ledger=ledger) as curator:
        assert [entry.act for entry in curator.ledger.entries()][-3:] == ["expire", "release", "expire"]


def test_a_ledger_that_is_opened_while_answers_are_forgotten_is_not_taken_for_robbed(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is read before the entry that says so, and the answers are counted after they are gone."""
    ledger, count_values, forgotten = policy.with_suffix(".sqlite"), AnswerStore.count_values, list[int]()
    with Curator.open(policy, ledger=ledger) as curator:
        count(curator, ANA)
        curator.query("SELECT COUNT(*) AS n FROM visits WHERE sex = 'F'", epsilon="1/10", who=ANA)  # seals the first
    policy.write_text(POLICY + "expires: 2020-01-01\n")
    with Curator.open(policy, ledger=ledger) as purging:

        def forget_and_count(store: AnswerStore) -> dict[str, int]:
            if not forgotten and store is not purging.context.store:
                forgotten.append(0)
                forgotten[0] = forget_answers(purging.context)
            return count_values(store)

        monkeypatch.setattr(AnswerStore, "count_values", forget_and_count)
        with Curator.open(policy, ledger=ledger) as curator:
            assert [entry.act for entry in curator.ledger.entries()] == ["charge", "charge", "expire"]
        assert forgotten == [2]


def test_an_expired_policy_refuses_and_forgets_answers_and_keeps_the_ledger(policy: Path) -> None:
    ledger = policy.with_suffix(".sqlite")
    with Curator.open(policy, ledger=ledger) as curator:
        count(curator, ANA)
        assert forget_answers(curator.context) == 0
    policy.write_text(POLICY + "expires: 2020-01-01\n")
    with Curator.open(policy, ledger=ledger) as curator:
        for asks in (
            lambda: count(curator, ANA),
            lambda: requests.ask(curator.context.speak_for(ANA), "mask", ["visits"]),
        ):
            with pytest.raises(AccessRefused, match="expired"):
                asks()
        assert forget_answers(curator.context) == 0  # the first question that was refused did it
        assert curator.context.store.list_all(charge.ANSWERS) == {}
        assert [entry.act for entry in curator.ledger.entries()] == ["charge", "expire"]
        assert verify(curator.ledger).entries == 2


def test_tokens_are_seen_and_revoked_across_processes(policy: Path, curator: Curator) -> None:
    text, grant = requests.issue(curator.context, "ana", Role.ANALYST, ["research"], days=1)
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as server:
        found = requests.authenticate(server.context, text)
        who = requests.authorize(server.context, found, Action.QUERY, "research")
        assert count(server, who) == 40
        with pytest.raises(AccessRefused, match="outside the grant"):
            requests.authorize(server.context, found, Action.QUERY, "operations")
        with pytest.raises(AccessRefused, match="may not"):
            requests.authorize(server.context, found, Action.AUDIT)
        requests.revoke(curator.context, grant.id)
        with pytest.raises(AccessRefused, match="not valid"):
            requests.authenticate(server.context, text)
    expired, _ = requests.issue(curator.context, "ana", Role.ANALYST, ["research"], days=1e-9)
    with pytest.raises(AccessRefused, match="grant expired"):
        requests.authorize(curator.context, requests.authenticate(curator.context, expired), Action.QUERY, "research")
    with pytest.raises(ParameterError, match="no purpose"):
        requests.issue(curator.context, "ana", Role.ANALYST, ["reserch"])


@pytest.mark.parametrize("asked", ["query", "batch"])
@pytest.mark.parametrize("end", ["revoke", "pause", "expire"])
def test_a_grant_that_ends_while_a_question_is_compiled_charges_nothing(
    policy: Path, curator: Curator, monkeypatch: pytest.MonkeyPatch, end: str, asked: str
) -> None:
    days = 1 if end != "expire" else 2 / 86_400
    text, grant = requests.issue(curator.context, "ana", Role.ANALYST, ["research"], days=days)
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as server:
        who = requests.authorize(server.context, requests.authenticate(server.context, text), Action.QUERY, "research")
        real = charge.charge

        def end_first(*given: Any, **named: Any) -> Any:
            if end == "expire":
                time.sleep(2.1)
            else:
                {"revoke": requests.revoke, "pause": requests.pause}[end](curator.context, grant.id)
            return real(*given, **named)

        monkeypatch.setattr(charge, "charge", end_first)
        sql = "SELECT COUNT(*) FROM visits"
        told = {"revoke": "not valid", "pause": "paused", "expire": "expired"}[end]
        with pytest.raises(AccessRefused, match=told) as refusal:
            server.query(sql, epsilon=1, who=who) if asked == "query" else server.query_batch([sql], epsilon=1, who=who)
        assert refusal.value.charged == NOTHING_CHARGED
        assert not list(server.ledger.entries(acts=("charge",)))


@pytest.mark.parametrize(
    ("technique", "parameters", "told"),
    [
        ("anonymize", {"k": 2, "t": {"diagnosis": 2}}, "t of 'diagnosis' is 2. A number from 0 to 1"),
        ("anonymize", {"k": 2, "l": {"diagnosis": 0}}, "l of 'diagnosis' is 0. A number from 1 up"),
        ("anonymize", {"k": 2, "suppress": 1.5}, "rows to leave out is 1.5. A number from 0 to 1"),
        ("synthesize", {"epsilon": 0, "delta": "1e-6"}, "the budget is 0"),
    ],
    ids=str,
)
def test_numbers_that_no_release_can_have_are_refused_when_they_are_asked(
    curator: Curator, technique: str, parameters: dict[str, Any], told: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        requests.ask(curator.context.speak_for(ANA), technique, ["visits"], parameters)
    assert told in str(refused.value)


def test_a_request_names_who_asks(curator: Curator) -> None:
    with pytest.raises(AccessRefused, match="nobody is named who asks"):
        requests.ask(curator.context, "mask", ["visits"])
    assert not curator.context.state.requests()


def test_a_request_is_decided_once_with_a_reason_and_fulfilled_once(curator: Curator) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"])
    assert "risk" not in request.as_dict()
    assert requests.measure_risk(curator.context, request.tables)["visits"]["columns"] == ["zip"]
    with pytest.raises(AccessRefused, match="pending"):
        requests.find_approved(curator.context, request.id)
    with pytest.raises(ParameterError, match="reason"):
        requests.decide(curator.context, request.id, True, "  ")
    assert requests.decide(curator.context, request.id, True, "a sample").status == "approved"
    with pytest.raises(ParameterError, match=r"already.*deniable requests"):
        requests.decide(curator.context, request.id, True, "once more")
    receipt = curator.record("masking", tables=request.tables, who=ANA, request_id=request.id)
    assert requests.mark_fulfilled(curator.context, request.id, receipt.release).status == "released"
    with pytest.raises(AccessRefused, match="fulfilled already"):
        requests.find_approved(curator.context, request.id)
    with pytest.raises(ParameterError, match="pure accounting cannot price"):  # so it is not filed
        requests.ask(curator.context.speak_for(ANA), "synthesize", ["visits"], {"epsilon": 2, "delta": "1e-6"})
    declined = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"])
    assert requests.decide(curator.context, declined.id, False, "a query answers this").reason == "a query answers this"
    with pytest.raises(ParameterError, match="masque"):
        requests.ask(curator.context.speak_for(ANA), "masque", ["visits"])


def test_of_stewards_who_decide_at_once_one_is_told_yes_and_everybody_sees_that_decision(
    curator: Curator, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = requests.ask(curator.context.speak_for(ANA), "mask", ["visits"])
    barrier, check = threading.Barrier(4), rules.check_decidable

    def check_together(*words: Any, **more: Any) -> None:
        check(*words, **more)
        barrier.wait(20)

    def decide(number: int) -> str | None:
        with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as own:
            try:
                return str(requests.decide(own.context, request.id, number % 2 == 0, f"reason {number}").reason)
            except AccessRefused as refusal:
                return None if "somebody else was first" in refusal.message else refusal.message

    monkeypatch.setattr(rules, "check_decidable", check_together)
    with ThreadPoolExecutor(4) as pool:
        told = [reason for reason in pool.map(decide, range(4)) if reason is not None]
    assert len(told) == 1
    found = curator.context.state.requests()[request.id]
    assert (found.reason, found.status) == (told[0], ("approved", "declined")[int(told[0][-1]) % 2])
    assert len(list(curator.ledger.entries(acts=("approve", "decline")))) == 4


def test_of_those_who_fulfill_at_once_one_is_told_so_and_a_declined_request_is_never_released(curator: Curator) -> None:
    reasons = ("one study", "another study")
    made = [
        requests.ask(curator.context.speak_for(ANA), "mask", ["visits"], {"justification": each}) for each in reasons
    ]
    requests.decide(curator.context, made[0].id, True, "fine")
    requests.decide(curator.context, made[1].id, False, "no")
    for identity, releases in ((made[0].id, ("a", "b")), (made[1].id, ("c",))):
        for release in releases:  # what processes write that passed the check at the same time
            curator.ledger.record(Posting(Act.FULFILL, analyst="s", details={"id": identity, "release": release}))
    found = curator.context.state.requests()
    assert [(found[each.id].status, found[each.id].release) for each in made] == [("released", "a"), ("declined", "")]


def test_the_register_names_every_release_and_no_person_and_no_question(curator: Curator) -> None:
    curator.query("SELECT COUNT(*) FROM visits WHERE zip = 'a private thought'", epsilon="1/2", who=BEN)
    curator.record("masking", tables=("visits",), unit="all rows of one id")
    found = reports.register(curator.ledger)["releases"]
    today = datetime.now(UTC).date().isoformat()
    assert [(each["technique"], each["epsilon"], each["guarantee"]) for each in found] == [
        ("differentially private query", 0.5, "differential privacy"),
        ("masking", None, "none"),
    ]
    places = {(each["date"], each["unit"], *each["tables"]) for each in found}
    assert places == {(today, "all rows of one id", "visits")}
    written = json.dumps([each.to_dict() for each in found])
    assert "ben" not in written
    assert "thought" not in written
    standing = reports.summarize_budget(curator.ledger)
    assert (standing["charged"], standing["without_guarantee"], standing["spent"]["epsilon"]) == (1, 1, "0.5")
    trail = reports.trail(curator.ledger)
    assert "thought" in json.dumps([each.to_dict() for each in trail])
    assert trail[0]["analyst"] == "ben"


def test_what_another_analyst_has_left_is_not_told_with_a_repeated_answer(curator: Curator) -> None:
    first = curator.query(COUNT, epsilon="1/10", who=Asker("", "research"))
    again = curator.query(COUNT, epsilon="1/10", who=Asker("", "operations"))
    assert again.repeated
    assert first.release.details["receipt"] is not None
    assert again.release.details["receipt"] is None
    assert again.release.details["remaining"] != first.release.details["remaining"]


def test_a_repeated_answer_tells_what_is_left_now_and_a_charged_one_what_its_charge_left(curator: Curator) -> None:
    first = curator.query(COUNT, epsilon=1, who=ANA)
    again = [curator.query(COUNT, epsilon=1, who=ANA) for _ in range(3)]
    assert [each.repeated for each in again] == [True] * 3
    curator.query(COUNT, epsilon=3, who=BEN)
    later = curator.query(COUNT, epsilon=1, who=ANA)
    told = [float(each.release.details["remaining"]["epsilon"]) for each in (first, *again, later)]
    assert told == [8999, 8999, 8999, 8999, 8996]
    assert later.rows.equals(first.rows)


def test_a_plan_that_is_kept_for_one_asker_does_not_serve_another(curator: Curator) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits WHERE charge >= 0"
    curator.query(sql, epsilon=MUCH)
    assert curator.query(sql, epsilon=MUCH).repeated
    with pytest.raises(QueryRefused):
        curator.query(sql, epsilon=MUCH, who=ANA)
    narrow = curator.query(sql, epsilon=MUCH, who=BEN)
    assert not narrow.repeated
    assert narrow.to_pylist()[0]["n"] == 20, "ben's rows only"


def test_a_file_that_changes_under_a_curator_is_counted_anew_in_the_next_epoch(policy: Path, curator: Curator) -> None:
    assert curator.query(COUNT, epsilon=MUCH).to_pylist()[0]["n"] == 40
    with (policy.parent / "visits.csv").open("a") as file:
        file.write("40,F,z1,7\n41,M,z1,7\n")
    again = curator.query(COUNT, epsilon=MUCH)
    assert (again.repeated, again.to_pylist()[0]["n"]) == (True, 40)
    curator.new_epoch("two more visits")
    anew = curator.query(COUNT, epsilon=MUCH)
    assert (anew.repeated, anew.to_pylist()[0]["n"]) == (False, 42)


@pytest.mark.parametrize("ends", ["answers", "dies"])
@pytest.mark.parametrize("kept", ["sqlite", "postgresql"])
def test_equal_questions_of_two_processes_at_one_moment_are_charged_once_and_have_one_answer(
    policy: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kept: str, ends: str
) -> None:
    """The second asks while the first has charged, and not stored its answer yet; or after it died there."""
    ledger = str(policy.with_suffix(".sqlite")) if kept == "sqlite" else request.getfixturevalue("postgres_address")
    policy.write_text(POLICY.replace("dataset: clinic", f"dataset: clinic{token_hex(4)}"))
    asked: dict[str, Any] = {"epsilon": "1/2", "intervals": False}
    found = []
    with Curator.open(policy, ledger=ledger) as first, Curator.open(policy, ledger=ledger) as second:

        def ask_meanwhile(*given: Any, **settings: Any) -> Any:
            monkeypatch.setattr(execute, "measure", measure)
            if ends == "dies":
                raise KeyboardInterrupt
            found.append(second.query("SELECT COUNT(*) AS m FROM visits", **asked))
            return measure(*given, **settings)

        monkeypatch.setattr(execute, "measure", ask_meanwhile)
        with pytest.raises(KeyboardInterrupt) if ends == "dies" else nullcontext():
            found.append(first.query(COUNT, who=ANA, **asked))
        found += [first.query(COUNT, **asked), second.query(COUNT, who=ANA, request="r", **asked)]
        assert len({next(iter(each.to_pylist()[0].values())) for each in found}) == 1
        assert len({each.release.details["release"] for each in found}) == 1
        assert [each.repeated for each in found] == ([True, False, True, True] if ends == "answers" else [True, True])
        assert [each.receipt is None for each in found] == [each.repeated for each in found]
        (charged,) = second.ledger.entries(acts=("charge",))
        assert (charged.analyst, second.ledger.find_remaining()) == ("ana", PureDP(Fraction(39999, 2)))


def test_a_question_that_another_charged_and_that_fails_is_not_told_as_charged(
    policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Curator.open(policy, ledger=policy.with_suffix(".sqlite")) as curator:
        for who, told in ((None, CHARGED), (ANA, NOTHING_CHARGED), (ANA, CHARGED)):  # failures of analysts are counted
            monkeypatch.setattr(execute, "measure", lambda *_, **__: 1 / 0)
            with charge.watch_charges(watch := ChargeWatch()), pytest.raises(ExecutionFailed) as failed:
                curator.query(COUNT, epsilon="1/2", who=who)
            assert (failed.value.charged, watch.charged) == (told, told == CHARGED)
        assert [each.analyst for each in curator.ledger.entries(acts=("charge",))] == ["steward", "ana"]


@pytest.mark.parametrize("kept", ["sqlite", "postgresql"])
def test_equal_requests_that_are_filed_at_one_moment_are_one_and_asked_anew_after_the_decision_another(
    policy: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, kept: str
) -> None:
    """The second files while the first has looked for an equal one, and has not written yet."""
    ledger = str(policy.with_suffix(".sqlite")) if kept == "sqlite" else request.getfixturevalue("postgres_address")
    policy.write_text(POLICY.replace("dataset: clinic", f"dataset: clinic{token_hex(4)}"))
    with Curator.open(policy, ledger=ledger) as first, Curator.open(policy, ledger=ledger) as second:
        one, other = first.context.speak_for(BEN), second.context.speak_for(BEN)
        record, filed = first.ledger.record, []

        def file_meanwhile(posting: Posting) -> Any:
            filed.append(requests.ask(other, "mask", ["visits"]))
            return record(posting)

        for round in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(first.ledger, "record", file_meanwhile)
                filed.append(requests.ask(one, "mask", ["visits"]))
            assert len({each.id for each in filed}) == len(list(first.ledger.entries(acts=("request",)))) == round
            requests.decide(first.context, filed[-1].id, False, "not needed")
        operations = first.context.speak_for(Asker("ben", "operations", Role.ANALYST))
        waits = [requests.ask(each, "mask", ["visits"]) for each in (one, operations, one)]
        assert waits[0].id == waits[2].id != waits[1].id, "what is asked for another purpose is another request"
        assert [each.purpose for each in waits] == ["research", "operations", "research"]
        verify(second.ledger)


def test_what_a_steward_charges_on_a_page_names_the_steward(curator: Curator) -> None:
    with watch_charges(ChargeWatch(by="sam")):
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon="0.1")
    curator.query("SELECT COUNT(*) AS n FROM visits WHERE zip = 'x'", epsilon="0.1")
    charged = list(curator.ledger.entries(acts=("charge",)))[-2:]
    assert [(each.analyst, each.details.get("by")) for each in charged] == [("steward", "sam"), ("steward", None)]


@pytest.mark.parametrize("seed", range(6))
def test_people_who_are_alone_are_counted_and_not_their_rows(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    who, x = [None, *range(30)], [None, "a", "b", "c"]
    rows = [(drawn.choice(who), drawn.choice(x), drawn.randrange(5)) for _ in range(80)]
    rows += rows  # everybody has each row twice
    with DuckDBEngine(root=tmp_path) as engine:
        engine.attach("t", pa.table(dict(zip(("who", "x", "y"), map(list, zip(*rows, strict=True)), strict=True))))
        found = count_unique_rows(engine, "t", ("x", "y"), "who")
        assert count_unique_rows(engine, "t", ("x", "y")).alone == 0
    by = {key: {who for who, *rest in rows if tuple(rest) == key and who is not None} for key in {r[1:] for r in rows}}
    alone = {who for people in by.values() for who in people if len(people) == 1}
    few = {who for people in by.values() for who in people if len(people) <= 5}
    assert (found.rows, found.alone, found.few) == (len({r[0] for r in rows} - {None}), len(alone), len(few))
