"""What every ledger must do, whatever it is kept in: one suite over memory, SQLite and PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from deniable.dp.accounting import PureEvent
from deniable.errors import AccessRefused, BudgetExceeded
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.entry import Line
from deniable.ledger.ledger import verify
from deniable.policy.access import Budgets
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import PrivacyUnit
from ledgers import STORES, Clock, charge, open_store, plain, tree

Opening = Callable[..., Ledger]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opening]:
    """Open ledgers over one kind of store; asked for the same name, over the same store."""
    address = request.getfixturevalue("postgres_address") if request.param == "postgres" else None
    made: dict[str, tuple[object, str]] = {}
    clock = Clock(2026, 11, 15, 12)

    def opening(budgets: Budgets | None = None, name: str = "one", clock: Clock = clock) -> Ledger:
        if name not in made:
            made[name] = open_store(request.param, tmp_path, address)
        store, dataset = made[name]
        return Ledger(dataset, budgets, store, clock=clock)  # type: ignore[arg-type]

    yield opening
    for store, _ in made.values():
        store.close()  # type: ignore[attr-defined]


def test_ten_charges_of_one_tenth_are_exactly_one(opened: Opening) -> None:
    ledger = opened(plain(1))
    for _ in range(10):
        left = charge(ledger, 0.1).remaining
    assert left == PureDP(Fraction(0))
    with pytest.raises(BudgetExceeded):
        charge(ledger, "1/1000000000000")


def test_a_refused_charge_leaves_no_trace(opened: Opening) -> None:
    ledger = opened(plain(1))
    charge(ledger, "9/10")
    before, head = ledger.balance(), ledger.head()
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        charge(ledger, "2/10", request="r")
    assert (ledger.balance(), ledger.head()) == (before, head)
    assert charge(ledger, "1/10", request="r").number == 2


def test_epsilon_and_delta_move_together_or_not_at_all(opened: Opening) -> None:
    ledger = opened(plain(1, "1e-6"))
    charge(ledger, "1/2", delta="6e-7")
    for epsilon, delta in (("1/2", "6e-7"), ("6/10", "4e-7")):
        with pytest.raises(BudgetExceeded):
            charge(ledger, epsilon, delta=delta)
    charge(ledger, "1/2", delta="4e-7")
    assert ledger.balance()[0].spent == ApproxDP(Fraction(1), Fraction("1e-6"))


def test_a_request_is_charged_once_and_its_id_serves_no_other_question(opened: Opening) -> None:
    ledger = opened(plain(1))
    first = charge(ledger, "1/2", request="r1")
    again = charge(ledger, "1/2", request="r1")
    assert (again.number, again.head, again.release, again.repeated) == (1, first.head, first.release, True)
    with pytest.raises(AccessRefused, match="another question"):
        charge(ledger, "1/2", request="r1", question="how much?")
    with pytest.raises(AccessRefused, match="another question"):
        charge(ledger, "1/3", request="r1")
    assert charge(ledger, "1/2", request="r1", analyst="ben").number == 2
    asked = Posting(
        Act.CHARGE, PureEvent("1/2"), "query", ("visits",), "", "ana", "research", request="r1", question="how many?"
    )
    for fine in (asked, replace(asked, request="new"), replace(asked, analyst="cyd", question="how much?")):
        ledger.refuse_reused(fine)
    for other in ({"question": "how much?"}, {"event": PureEvent("1/3")}, {"purpose": "care"}, {"act": Act.RELEASE}):
        with pytest.raises(AccessRefused, match="'r1' was used for another question"):
            ledger.refuse_reused(replace(asked, **other))
    assert ledger.head().sequence == 2


def test_the_tree_holds_at_every_node(opened: Opening) -> None:
    ledger = opened(tree(dataset=PureDP(Fraction(5, 2)), research=PureDP(Fraction(3, 2))))
    charge(ledger, 1, analyst="ana")
    with pytest.raises(BudgetExceeded, match="analyst 'ana'"):
        charge(ledger, "1/10", analyst="ana")
    charge(ledger, "1/2", analyst="ben")
    with pytest.raises(BudgetExceeded, match="purpose 'research'"):
        charge(ledger, "1/10", analyst="ben")
    charge(ledger, 1, analyst="cyd", purpose="operations")
    with pytest.raises(BudgetExceeded, match="the dataset"):
        charge(ledger, "1/10", analyst="", purpose="")


def test_a_purpose_outside_the_grant_is_refused(opened: Opening) -> None:
    ledger = opened(tree())
    for analyst, purpose in (("ana", "operations"), ("ana", "marketing"), ("ana", ""), ("eve", "research")):
        with pytest.raises(AccessRefused):
            charge(ledger, "1/10", analyst=analyst, purpose=purpose)
    assert ledger.head() is None


def test_a_period_renews_the_purpose_and_its_analysts_but_not_the_dataset(opened: Opening) -> None:
    clock = Clock(2026, 11, 30, 23)
    ledger = opened(tree(dataset=PureDP(2)), clock=clock)
    charge(ledger, 1, analyst="ben", purpose="operations")
    with pytest.raises(BudgetExceeded):
        charge(ledger, "1/10", analyst="ben", purpose="operations")
    clock.set(2026, 12, 1)
    charge(ledger, 1, analyst="ben", purpose="operations")
    clock.set(2027, 1, 1)
    with pytest.raises(BudgetExceeded, match="the dataset"):
        charge(ledger, "1/10", analyst="ben", purpose="operations")


def test_a_clock_that_is_set_back_renews_nothing_twice(opened: Opening) -> None:
    clock = Clock(2026, 11, 15)
    ledger = opened(tree(), clock=clock)
    charge(ledger, 1, analyst="ben", purpose="operations")
    clock.set(2026, 12, 15)
    charge(ledger, 1, analyst="ben", purpose="operations")
    for month in (11, 12, 11):
        clock.set(2026, month, 15)
        with pytest.raises(BudgetExceeded):
            charge(ledger, "1/10", analyst="ben", purpose="operations")
        assert ledger.find_remaining("operations", "ben") == PureDP(Fraction(0))


def test_a_charge_under_a_clock_of_next_year_does_not_shut_the_months_until_then(opened: Opening) -> None:
    clock = Clock(2027, 11, 15)
    ledger = opened(tree(dataset=PureDP(9)), clock=clock)
    charge(ledger, 1, analyst="ben", purpose="operations")
    for month in (11, 12):
        clock.set(2026, month, 15)
        assert ledger.find_remaining("operations", "ben") == PureDP(1)
        charge(ledger, 1, analyst="ben", purpose="operations")
        with pytest.raises(BudgetExceeded):
            charge(ledger, "1/10", analyst="ben", purpose="operations")
    again = opened(tree(dataset=PureDP(9)), clock=clock)
    assert again.find_remaining("operations", "ben") == PureDP(0)
    clock.set(2027, 11, 20)
    with pytest.raises(BudgetExceeded):
        charge(again, "1/10", analyst="ben", purpose="operations")


def test_releases_without_a_guarantee_stand_beside_the_total_and_do_not_change_it(opened: Opening) -> None:
    from deniable.dp.accounting import NonPrivateEvent

    ledger = opened(plain(1))
    charge(ledger, "1/2")
    ledger.record(Posting(Act.RELEASE, NonPrivateEvent(), "masking", ("visits",)))
    charge(ledger, "1/2")
    assert [entry.private for entry in ledger.entries()] == [True, False, True]
    assert ledger.balance()[0].spent == PureDP(Fraction(1))
    assert verify(ledger).entries == 3


def test_another_ledger_over_the_same_store_goes_on_where_the_first_was(opened: Opening) -> None:
    charge(opened(tree(), "one"), "1/2")
    other = opened(tree(ana=PureDP(Fraction(3, 4))), "one")
    with pytest.raises(BudgetExceeded):
        charge(other, "1/2")
    charge(other, "1/4")
    assert verify(other).entries == 2


def test_a_changed_policy_adds_the_past_up_anew(opened: Opening) -> None:
    charge(opened(plain(1)), "1/2")
    now = opened(tree())
    assert now.balance("research", "ana")[1].spent == PureDP(Fraction(1, 2))
    charge(now, "1/2")
    with pytest.raises(BudgetExceeded, match="analyst 'ana'"):
        charge(now, "1/10")
    assert verify(now).entries == 2


def test_threads_never_overspend_together(opened: Opening) -> None:
    ledger = opened(plain(2))
    granted: list[int] = []

    def ask() -> None:
        for _ in range(8):
            with suppress(BudgetExceeded):
                granted.append(charge(ledger, 0.1).number)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == list(range(1, 21))
    assert verify(ledger).entries == 20


def test_a_block_that_fails_writes_nothing(opened: Opening) -> None:
    ledger = opened(plain(1))
    charge(ledger, "1/2")
    with suppress(ZeroDivisionError), ledger.store.begin_write() as book:
        book.append(Line(2, "charge", "eve", "r9", "a text"))
        raise ZeroDivisionError
    assert ledger.store.last() == 1
    assert charge(ledger, "1/2").number == 2
    assert verify(ledger).entries == 2


def test_charges_for_rows_and_for_people_are_not_added_up(opened: Opening) -> None:
    """Epsilon 0.4 for a row is up to 3.2 for a person with eight: a total of both would tell too little."""
    rows, people = (
        Posting(Act.CHARGE, PureEvent("2/5"), "query", ("visits",), unit)
        for unit in (str(PrivacyUnit()), str(PrivacyUnit("id", 1, 8)))
    )
    ledger = opened(plain(3))
    ledger.charge(rows)
    for again in (ledger, opened(plain(3))):
        with pytest.raises(AccessRefused, match="and would now be as"):
            again.charge(people)
        assert again.find_remaining() == PureDP(Fraction(13, 5))
    ledger.charge(replace(people, tables=("patients",)))
    ledger.charge(rows)
    assert ledger.find_remaining() == PureDP(Fraction(9, 5))


def test_acts_can_be_read_apart_from_charges(opened: Opening) -> None:
    ledger = opened(plain(1))
    charge(ledger)
    ledger.record(Posting(Act.TOKEN, analyst="steward", details={"id": "t"}))
    charge(ledger)
    assert [entry.sequence for entry in ledger.entries(acts=("token",))] == [2]
    assert [entry.sequence for entry in ledger.entries(after=2)] == [3]
