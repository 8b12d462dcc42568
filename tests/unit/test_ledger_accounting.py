"""Totals under pure, zCDP and PLD accounting, what is left in words, exports, and the field's mistakes."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    PureEvent,
    UnsupportedEvent,
    ZCDPAccountant,
    accountant_for,
)
from deniable.errors import NOTHING_CHARGED, AccessRefused, BudgetExceeded, DeniableError, ParameterError
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.budget_tree import (
    FINEST,
    describe_spent,
    is_covered,
    period_of,
    say_least,
    settle_account,
    subtract_spent,
)
from deniable.ledger.entry import ANSWER, LOST, LOST_BETWEEN, SETTLES
from deniable.ledger.export import export
from deniable.ledger.ledger import verify
from deniable.policy.access import Accounting, Budgets, Period
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from ledgers import Clock, charge, plain, tree

MILLIONTH = Fraction("1e-6")
PRIMES = (
    10007, 10009, 10037, 10039, 10061, 10067, 10069, 10079, 10091, 10093, 10099, 10103, 10111, 10133, 10139, 10141,
)  # fmt: skip
ONE_TABLE = """
version: 1
dataset: d
tables: {t: {source: t.csv, unit: row, columns: {a: {}}}}
budgets: {dataset: {epsilon: 1}}
"""


def posting(event: object) -> Posting:
    return Posting(Act.CHARGE, event, "query", ("visits",))  # type: ignore[arg-type]


@pytest.mark.parametrize("accounting", ["pure", "zcdp", "pld"])
def test_accounts_agree_with_an_accountant_that_composes_from_the_start(accounting: str) -> None:
    limit = ApproxDP(Fraction(2), MILLIONTH)
    ledger = Ledger("d", Budgets(limit, Accounting(accounting)))
    naive = accountant_for(accounting, limit)
    events = [LaplaceEvent(10), PureEvent("1/7"), LaplaceEvent(10, 2)]
    events += [] if accounting == "pure" else [GaussianEvent(900)]
    for event in events:
        ledger.charge(posting(event))
        naive = naive.compose(event)
        assert ledger.find_remaining() == naive.compute_remaining()
    found = ledger.fits(LaplaceEvent(20))
    assert found is not None
    assert found == most(naive, LaplaceEvent(20), found - 1)
    assert verify(ledger).entries == len(events)


def most(accountant: object, event: object, count: int) -> int:
    """How often an event fits, counted up from so many that do: what fits once more fits once less."""
    while accountant.fits(event, count + 1):  # type: ignore[attr-defined]
        count += 1
    return count


def test_about_forty_more_counts_like_this() -> None:
    ledger = Ledger("d", plain(5))
    charge(ledger, 1)
    assert ledger.fits(LaplaceEvent(10)) == 40
    assert ledger.fits(PureEvent(5)) == 0
    assert Ledger("d").fits(PureEvent(1)) is None


def test_a_rho_budget_counts_in_rho() -> None:
    ledger = Ledger("d", Budgets(ZCDP(Fraction(1, 10)), Accounting.ZCDP))
    for _ in range(10):
        receipt = ledger.charge(posting(GaussianEvent(50)))
    assert receipt.remaining == ZCDP(Fraction(0))
    with pytest.raises(BudgetExceeded):
        ledger.charge(posting(GaussianEvent(10**9)))


def test_without_budgets_an_odometer_runs_and_prices_every_mechanism() -> None:
    ledger = Ledger("d")
    ledger.charge(posting(ComposedEvent((GaussianEvent(50), LaplaceEvent(10)))))
    balance = ledger.balance()[0]
    assert balance.limit is None
    assert balance.spent == ZCDP(Fraction(1, 100) + Fraction(1, 200))


@pytest.mark.parametrize("event", [GaussianEvent(50), UnsupportedEvent("a model"), NonPrivateEvent()])
def test_what_an_accountant_cannot_price_is_refused_and_not_written(event: object) -> None:
    ledger = Ledger("d", plain(5))
    with pytest.raises(DeniableError, match=r"Nothing was charged|without a formal guarantee"):
        ledger.charge(posting(event))
    assert ledger.head() is None


def test_three_thirds_are_one_and_very_many_fractions_stay_short_and_never_below() -> None:
    ledger = Ledger("d", plain(1))
    for _ in range(3):
        charge(ledger, "1/3")
    assert ledger.find_remaining() == PureDP(Fraction(0))
    total, exact = accountant_for("pure"), Fraction(0)
    for prime in PRIMES:
        total = settle_account(total.compose(PureEvent(Fraction(1, prime))))  # type: ignore[assignment]
        exact += Fraction(1, prime)
    spent = total.compute_spent(None).epsilon  # type: ignore[union-attr, arg-type]
    assert exact <= spent < exact + Fraction(20, FINEST)
    assert spent.denominator <= FINEST


def test_periods_follow_the_calendar() -> None:
    at = datetime(2027, 1, 2, tzinfo=UTC)
    expected = ["", "2027-01-02", "2026-W53", "2027-01", "2027-Q1", "2027"]
    assert [period_of(every, at) for every in (None, *Period)] == expected


def test_receipts_name_the_head_of_the_chain() -> None:
    ledger = Ledger("d", tree(), clock=Clock(2026, 11, 15))
    receipt = charge(ledger, "1/10", request="r1")
    head = ledger.head()
    assert head is not None
    assert receipt.as_dict() == {
        "number": 1, "head": head.hash, "time": "2026-11-15T00:00:00.000000+00:00",
        "release": receipt.release, "request": "r1",
    }  # fmt: skip


# ---- mistakes the field has made


def test_a_failed_question_is_not_free() -> None:
    """Seen in a query server: charged after the run, so that failed queries cost nothing."""
    import pyarrow as pa

    from deniable import Curator
    from deniable.errors import ExecutionFailed
    from deniable.policy.document import parse

    with Curator(parse(ONE_TABLE), sources={"t": pa.table({"a": ["x"]})}) as curator:
        engine = curator.context.scope.attach("t")

        def fails(*_: object, **__: object) -> None:
            raise ParameterError("the disk broke")

        engine.run = fails  # type: ignore[method-assign]
        with pytest.raises(ExecutionFailed, match="The charge stands"):
            curator.query("SELECT COUNT(*) FROM t", epsilon=0.5)
        assert curator.remaining() == PureDP(Fraction(1, 2))


def test_epsilon_and_delta_are_one_write() -> None:
    """Seen in a query server: epsilon and delta in two writes, so that a crash between them gave one away."""
    ledger = Ledger("d", plain(1, "1e-6"))
    charge(ledger, "1/2", delta="1e-7")
    entries = list(ledger.entries())
    assert len(entries) == 1
    assert [part["kind"] for part in entries[0].event["events"]] == ["pure", "threshold"]


# ---- exports


def exported(form: str) -> tuple[Ledger, str]:
    ledger = Ledger("d", Budgets(ApproxDP(Fraction(9), MILLIONTH), Accounting.ZCDP))
    ledger.charge(posting(LaplaceEvent(10)))
    ledger.charge(posting(ComposedEvent((GaussianEvent(50), LaplaceEvent(2)))))
    ledger.record(Posting(Act.RELEASE, NonPrivateEvent(), "masking", ("visits", "drugs"), analyst="=cmd()"))
    ledger.record(Posting(Act.TOKEN, details={"id": "t"}))
    return ledger, "".join(export(ledger.entries(), form))


def test_csv_has_a_line_for_each_entry_with_its_price_and_no_formula() -> None:
    _, text = exported("csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["act"] for row in rows] == ["charge", "charge", "release", "token"]
    assert (rows[0]["epsilon"], rows[0]["delta"]) == ("0.1", "0")
    assert float(rows[1]["rho"]) == pytest.approx(1 / 100 + 1 / 8)
    assert (rows[2]["epsilon"], rows[2]["tables"], rows[2]["analyst"]) == ("", "visits drugs", "'=cmd()")


def test_json_lines_give_the_entries_back() -> None:
    ledger, text = exported("jsonl")
    assert [json.loads(line) for line in text.splitlines()] == [entry.as_dict() for entry in ledger.entries()]


def test_googles_accountants_read_the_export_and_price_no_better_than_ours() -> None:
    events = pytest.importorskip("dp_accounting.dp_event")
    _, text = exported("google")
    form = json.loads(text)

    def built(event: dict[str, object]) -> object:
        kind = getattr(events, str(event["class_name"]))
        rest = {name: value for name, value in event.items() if name not in ("module_name", "class_name")}
        if "events" in rest:
            rest["events"] = [built(part) for part in rest["events"]]  # type: ignore[union-attr, arg-type]
        return kind(**rest)

    from dp_accounting.pld import PLDAccountant

    account = PLDAccountant().compose(built(form))
    assert account.get_epsilon(1e-6) == float("inf")
    private = built(form | {"events": form["events"][:2]})
    assert 0 < PLDAccountant().compose(private).get_epsilon(1e-6) < 2


def test_an_unknown_form_is_refused_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match="csv"):
        export([], "csw")


@pytest.mark.parametrize(
    ("kept", "lost"),
    [(("0.5",), ("1",)), (("0.25", "0.25", "0.5", "0.3"), ("0.25",)), (("0.1", "3"), ("0.7", "1.5")), (("3",), ("3",))],
)
def test_what_pure_charges_spent_beyond_a_part_is_no_more_than_their_epsilons(
    kept: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    """A root was rounded up: the true epsilon of what was lost was refused as less than what is proven."""
    part, whole = (_compose_pure(each) for each in (kept, (*kept, *lost)))
    found = subtract_spent("zcdp", describe_spent("zcdp", whole), describe_spent("zcdp", part))
    total = sum(map(Fraction, lost), Fraction(0))
    assert is_covered("zcdp", found, PureEvent(total))
    assert not is_covered("zcdp", found, PureEvent(total - Fraction(1, 10**9)))
    assert abs(ZCDPAccountant().compose(found).cost.amount - _compose_pure(lost).cost.amount) < Fraction(1, 10**27)


def _compose_pure(epsilons: tuple[str, ...]) -> ZCDPAccountant:
    account = ZCDPAccountant()
    for each in epsilons:
        account = account.compose(PureEvent(each))
    return account


EPSILON_AND_DELTA = ApproxDP(Fraction(2), Fraction(1, 10**6))


@pytest.mark.parametrize("known", [True, False], ids=["while it is open", "when it is opened"])
def test_a_ledger_that_was_charged_under_another_accounting_is_read_and_verified_and_not_charged(known: bool) -> None:
    """A policy's accounting was edited from zcdp to pure, which has no price for Gaussian noise."""
    before = Ledger("d", Budgets(EPSILON_AND_DELTA, Accounting.ZCDP))
    edited = Ledger("d", Budgets(EPSILON_AND_DELTA, Accounting.PURE), before.store)
    before.charge(Posting(Act.CHARGE, PureEvent("1/10")))
    if known:
        assert edited.find_remaining() == ApproxDP(Fraction(19, 10), Fraction(1, 10**6))
    before.charge(Posting(Act.CHARGE, GaussianEvent(900)))
    assert verify(edited).entries == 2
    (balance,) = edited.balance()
    assert balance.spent == ZCDP(Fraction(1, 200) + Fraction(1, 1800))
    assert (edited.find_remaining(), edited.fits(PureEvent("1/10"))) == (PureDP(0), 0)
    assert "pure accounting cannot price entry 2" in say_least((balance,), edited.find_remaining())
    assert edited.find_spent()[0] == "zcdp"
    for spend in (edited.charge, lambda posting: edited.foresee_balance(posting.event)):
        with pytest.raises(AccessRefused, match="cannot price entry 2") as told:
            spend(Posting(Act.CHARGE, PureEvent("1/10")))
        assert told.value.charged == NOTHING_CHARGED
    assert edited.record(Posting(Act.WITHDRAW)).number == 3
    before.charge(Posting(Act.CHARGE, GaussianEvent(900)))
    assert edited.balance()[0].spent == ZCDP(Fraction(1, 200) + Fraction(2, 1800))
    assert before.charge(Posting(Act.CHARGE, PureEvent("1/10"))).number == 5


def test_what_lost_entries_spent_counts_in_the_periods_in_which_they_were_written() -> None:
    clock = Clock(2026, 11, 20)
    ledger = Ledger("d", tree(), clock=clock)
    ledger.record(Posting(Act.SEPARATE, details={LOST: {}}))
    clock.set(2026, 12, 3)
    span = {LOST_BETWEEN: ["2026-10-30T12:00:00+00:00", "2026-11-20T00:00:00+00:00"]}
    ledger.charge(Posting(Act.CHARGE, PureEvent(1), analyst="steward", details={SETTLES: 1, **span}))
    ledger.record(Posting(Act.SETTLE, details={SETTLES: 1}))
    again = Ledger("d", tree(), ledger.store, clock=clock)
    for opened in (ledger, again):
        for month, fits in ((9, True), (10, False), (11, False), (12, True)):
            clock.set(2026, month, 15)
            left = opened.find_remaining("operations", "cyd")
            assert left == PureDP(1 if fits else 0), (month, left)
        assert opened.find_remaining() == PureDP(3)
        assert opened.find_remaining("research", "ana") == PureDP(0), "what is not renewed counts too"


def test_while_a_loss_is_not_settled_nothing_is_left_and_that_is_told() -> None:
    ledger = Ledger("d", tree())
    charge(ledger, "1/10")
    assert ledger.find_remaining("research", "ana") == PureDP("9/10")
    ledger.record(Posting(Act.SEPARATE, details={LOST: {}}))
    path = ledger.balance("research", "ana")
    assert {each.remaining for each in path} == {ledger.find_remaining("research", "ana")} == {PureDP(0)}
    assert all("entry 2" in each.closed and "deniable ledger settle" in each.closed for each in path)
    assert say_least(path, PureDP(0)).startswith("nothing: the ledger is closed")
    ledger.record(Posting(Act.SETTLE, details={SETTLES: 2}))
    assert ledger.find_remaining("research", "ana") == PureDP("9/10")
    assert not any(each.closed for each in ledger.balance("research", "ana"))


def test_one_answer_is_charged_once_whoever_asks_until_it_may_be_gone() -> None:
    ledger = Ledger("d", tree())

    def ask(analyst: str, event: PureEvent = PureEvent("1/10"), opened: Ledger = ledger, name: str = "a"):  # noqa: B008
        posting = Posting(Act.CHARGE, event, analyst=analyst, purpose="research", details={ANSWER: name})
        receipt = opened.charge(posting)
        assert receipt.repeated == receipt.shared
        return receipt.number

    other = Ledger("d", tree(), ledger.store)
    assert [ask("ana"), ask("ana"), ask("ben"), ask("ben", opened=other)] == [1, 1, 1, 1]
    assert [ask("ana", PureEvent("1/5")), ask("ana", name="b")] == [2, 3], "another price, another answer"
    assert ledger.find_remaining() == PureDP(4 - Fraction(4, 10))
    for gone in (Posting(Act.EXPIRE), Posting(Act.SEPARATE, details={LOST: {}})):
        number = ledger.record(gone).number
        if gone.act is Act.SEPARATE:
            with pytest.raises(AccessRefused, match="are lost"):
                ask("ana", name="b")
            number = ledger.record(Posting(Act.SETTLE, details={SETTLES: number})).number
        assert [ask("ana", opened=other, name="b"), ask("ana", name="b")] == [number + 1, number + 1]
    assert [ask("ana", opened=Ledger("d", tree(), ledger.store), name="b")] == [number + 1]
    ledger.record(Posting(Act.FAIL, analyst="ana", details={ANSWER: "b"}))
    assert [ask("ben", opened=other, name="b"), ask("ana", name="b")] == [number + 3] * 2, "a failure told a little"
