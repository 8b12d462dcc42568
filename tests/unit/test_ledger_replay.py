"""What a ledger makes of entries that are there already: whose dataset they are of, and what they add up to."""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from deniable.dp.accounting import ComposedEvent, LaplaceEvent, PureEvent
from deniable.errors import AccessRefused, BudgetExceeded
from deniable.ledger import Act, Ledger, Posting, open_ledger
from deniable.ledger.budget_tree import STEWARD
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import SqliteStore
from deniable.policy.access import Accounting, Analyst, Budgets, Purpose
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.document import parse
from ledgers import Clock, charge, plain, tree

POLICY = """
version: 1
dataset: {dataset}
tables: {{t: {{source: t.csv, unit: row, columns: {{a: {{}}}}}}}}
budgets: {{dataset: {{epsilon: 1}}}}
"""


# ---- a ledger belongs to one dataset


def test_a_ledger_of_another_dataset_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "l.sqlite"
    mine, other = (parse(POLICY.format(dataset=name)) for name in ("clinic", "school"))
    with_entries = open_ledger(path, mine)
    charge(with_entries, "1/2", analyst="", purpose="")
    with_entries.close()
    with pytest.raises(AccessRefused, match="belongs to dataset 'clinic', not to 'school'"):
        open_ledger(path, other)
    again = open_ledger(path, mine)
    assert again.find_remaining() == PureDP(Fraction(1, 2))
    again.close()


ASKED: dict[str, Callable[[Ledger], object]] = {
    "a charge": lambda ledger: charge(ledger, "1/10"),
    "the charge of a request that was charged there": lambda ledger: charge(ledger, "1/2", request="r"),
    "an act": lambda ledger: ledger.record(Posting(Act.TOKEN, analyst="steward", details={"id": "t"})),
    "what is left": lambda ledger: ledger.find_remaining("research", "ana"),
    "the balance": lambda ledger: ledger.balance(),
    "how many fit": lambda ledger: ledger.fits(PureEvent("1/10")),
    "the head": lambda ledger: ledger.head(),
}


@pytest.mark.parametrize("name", ASKED)
def test_nothing_is_charged_to_or_told_of_a_ledger_of_another_dataset(name: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "l.sqlite")
    mine = Ledger("clinic", tree(), store, clock=Clock(2026, 11, 15))
    head = charge(mine, "1/2", request="r").head
    with pytest.raises(AccessRefused, match="belongs to dataset 'clinic', not to 'school'"):
        ASKED[name](Ledger("school", tree(), store, clock=Clock(2026, 11, 15)))
    assert verify(mine, head, 1).entries == 1
    assert mine.balance()[0].spent == PureDP(Fraction(1, 2))
    store.close()


# ---- totals are what the entries add up to, whoever asked

PEOPLE = [
    ("ana", "research"),
    ("ben", "operations"),
    ("", "research"),
    (STEWARD, "operations"),
    ("", ""),
    (STEWARD, ""),
]
AMOUNTS = [Fraction(1, 7), Fraction(1, 10), Fraction(1, 3), Fraction(1, 9), Fraction(1, 11), Fraction(1, 13)]


def write(ledger: Ledger) -> Counter[str]:
    """Charges of everybody, acts between them; what each of them adds up to."""
    spent: Counter[str] = Counter()
    for (analyst, purpose), amount in zip(PEOPLE, AMOUNTS, strict=True):
        charge(ledger, amount, analyst=analyst, purpose=purpose)
        ledger.record(Posting(Act.RELEASE, technique="masking", analyst=analyst))
        for node in ("the dataset", f"purpose '{purpose}'" if purpose else "", f"analyst '{analyst}'"):
            spent[node] += amount  # type: ignore[assignment]
    return spent


LARGE = PureDP(Fraction(9))


def told(ledger: Ledger) -> dict[str, Any]:
    paths = [("research", "ana"), ("operations", "ben"), ("", "")]
    return {each.node: each.spent.epsilon for path in paths for each in ledger.balance(*path)}  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["the same policy", "another policy", "no policy before"])
def test_running_totals_are_rebuilt_from_the_entries_of_everybody(how: str, tmp_path: Path) -> None:
    store, clock = SqliteStore(tmp_path / "l.sqlite"), Clock(2026, 11, 15)
    budgets = tree(LARGE, LARGE, LARGE, LARGE)
    before = {"another policy": plain(9), "no policy before": None}.get(how, budgets)
    if before is None:
        odometer = Ledger("d", None, store, clock=clock)
        spent = write(odometer)
    else:
        spent = write(Ledger("d", before, store, clock=clock))
    ledger = Ledger("d", budgets, store, clock=clock)
    expected = {node: spent[node] for node in ("the dataset", "purpose 'research'", "purpose 'operations'")}
    assert told(ledger) == expected | {"analyst 'ana'": AMOUNTS[0], "analyst 'ben'": AMOUNTS[1]}
    assert expected["the dataset"] == sum(AMOUNTS)
    assert verify(ledger).entries == 2 * len(PEOPLE)
    store.close()


@pytest.mark.parametrize("steward", ["", STEWARD])
def test_what_the_steward_asked_is_not_free_after_a_restart(steward: str, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "l.sqlite")
    charge(Ledger("d", plain(5), store), "3/4", analyst=steward, purpose="")
    for _ in range(2):
        ledger = Ledger("d", plain(1), store)
        assert ledger.find_remaining() == PureDP(Fraction(1, 4))
        with pytest.raises(BudgetExceeded):
            charge(ledger, "1/2", analyst=steward, purpose="")
    store.close()


def test_an_analyst_who_is_called_steward_is_held_to_a_limit_and_the_totals_agree() -> None:
    purposes = (Purpose("research", PureDP(Fraction(2))),)
    named = Budgets(LARGE, Accounting.PURE, purposes, (Analyst(STEWARD, ("research",), PureDP(Fraction(1))),))
    ledger = Ledger("d", named)
    charge(ledger, "3/4", analyst=STEWARD)
    with pytest.raises(BudgetExceeded, match="analyst 'steward'"):
        charge(ledger, "1/2", analyst=STEWARD)
    assert ledger.find_remaining("research", STEWARD) == PureDP(Fraction(1, 4))
    assert verify(ledger).entries == 1


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [
        (Budgets(ZCDP(Fraction(2)), Accounting.ZCDP), ZCDP(Fraction(1, 200) + Fraction(1, 50), Fraction(0))),
        (Budgets(ApproxDP(Fraction(3), Fraction(1, 10**6)), Accounting.PURE), PureDP(Fraction(3, 10))),
    ],
    ids=["zcdp", "pure"],
)
def test_another_accounting_prices_the_same_entries_anew(budgets: Budgets, expected: object, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "l.sqlite")
    first = Ledger("d", plain(5), store)
    for event in (LaplaceEvent(10), LaplaceEvent(10, 2)):
        first.charge(Posting(Act.CHARGE, event, "query", ("t",), analyst=STEWARD))
    assert Ledger("d", budgets, store).balance()[0].spent == expected
    store.close()


# ---- a large charge holds up nobody else


def count_calls(work: Callable[[], object]) -> int:
    """How many functions of Python some work calls."""
    calls = itertools.count()

    def count(_frame: object, event: str, _argument: object) -> None:
        if event == "call":
            next(calls)

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return next(calls)


def test_what_another_process_charged_for_many_sums_is_added_up_in_few_steps(tmp_path: Path) -> None:
    mine, other = (Ledger("d", plain(1), SqliteStore(tmp_path / "l.sqlite")) for _ in range(2))
    many = ComposedEvent((LaplaceEvent(10**6, 3),) * 3000)
    writing = count_calls(lambda: other.charge(Posting(Act.CHARGE, many)))
    following = count_calls(mine.find_remaining)
    assert mine.find_remaining() == other.find_remaining() == PureDP(1 - Fraction(9, 1000))
    assert following < 20_000  # few calls for each sum: that they are equal is all that is looked at
    assert writing < 100_000
    mine.close()
    other.close()
