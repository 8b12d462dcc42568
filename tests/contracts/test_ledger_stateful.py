"""A ledger against a model of a dozen lines: any mix of charges, retries, months, restarts and policies."""

from __future__ import annotations

import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from deniable.errors import AccessRefused, BudgetExceeded
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import SqliteStore
from deniable.policy.budget import ApproxDP
from ledgers import Clock, charge, tree

AMOUNTS = st.sampled_from(["1/10", "1/3", "1/7", "1/2", "1"])
DELTAS = st.sampled_from(["0", "1e-7", "4e-7"])
GRANTS = {("ana", "research"), ("ben", "research"), ("ben", "operations"), ("cyd", "operations")}
GRANTED = st.sampled_from([*sorted(GRANTS), ("", "research"), ("", "")])
ANYBODY = st.tuples(
    st.sampled_from(["ana", "ben", "cyd", "eve", ""]), st.sampled_from(["research", "operations", "marketing", ""])
)
LIMITS = {"dataset": Fraction(2), "research": Fraction(5, 4), "operations": Fraction(1), "analyst": Fraction(3, 4)}
BUDGETS = tree(*(ApproxDP(limit, Fraction("1e-6")) for limit in LIMITS.values()))


class LedgerMachine(RuleBasedStateMachine):
    """Every step is done to the ledger and to a model that adds up fractions in a Counter."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock(2026, 11, 15)
        self.spent: Counter[tuple[object, ...]] = Counter()
        self.requests: dict[tuple[str, str], tuple[object, ...]] = {}
        self.written = 0
        self.restart()

    @rule()
    def restart(self) -> None:
        if hasattr(self, "ledger"):
            self.ledger.close()
        self.ledger = Ledger("d", BUDGETS, SqliteStore(Path(self.folder.name) / "l.sqlite"), clock=self.clock)

    @rule(month=st.integers(1, 12), year=st.integers(2026, 2027))
    def set_clock(self, month: int, year: int) -> None:
        self.clock.set(year, month, 15)

    @rule(who=GRANTED, epsilon=AMOUNTS, delta=DELTAS)
    def charge_as_granted(self, who: tuple[str, str], epsilon: str, delta: str) -> None:
        self.charge(who, epsilon, delta, "")

    @rule(who=ANYBODY, epsilon=AMOUNTS, delta=DELTAS, request=st.sampled_from(["", "r1", "r2"]))
    def charge(self, who: tuple[str, str], epsilon: str, delta: str, request: str) -> None:
        analyst, purpose = who
        expected = self._expected(analyst, purpose, epsilon, delta, request)
        try:
            receipt = charge(
                self.ledger, epsilon, analyst=analyst, purpose=purpose, delta=Fraction(delta), request=request
            )
            found = "again" if receipt.repeated else "charged"
        except BudgetExceeded:
            found = "over"
        except AccessRefused:
            found = "refused"
        assert found == expected
        if found == "charged":
            self._add(analyst, purpose, epsilon, delta, request)

    @rule()
    def record(self) -> None:
        self.ledger.record(Posting(Act.RELEASE, technique="masking"))
        self.written += 1

    @invariant()
    def sums_agree(self) -> None:
        if hasattr(self, "ledger"):
            spent = self.ledger.balance()[0].spent
            assert spent is not None
            assert (spent.epsilon, spent.delta) == (self.spent["dataset", 0], self.spent["dataset", 1])
            assert self.ledger.store.last() == self.written

    def teardown(self) -> None:
        if hasattr(self, "ledger"):
            assert verify(self.ledger).entries == self.written
            self.ledger.close()
            self.folder.cleanup()

    def _expected(self, analyst: str, purpose: str, epsilon: str, delta: str, request: str) -> str:
        asked = (purpose, epsilon, delta)
        if request and (analyst, request) in self.requests:
            return "again" if self.requests[analyst, request] == asked else "refused"
        if (analyst or purpose) and (analyst, purpose) not in GRANTS | {("", "research"), ("", "operations")}:
            return "refused"
        for node, limit in self._nodes(analyst, purpose).items():
            if self.spent[node, 0] + Fraction(epsilon) > limit or self.spent[node, 1] + Fraction(delta) > Fraction(
                "1e-6"
            ):
                return "over"
        return "charged"

    def _nodes(self, analyst: str, purpose: str) -> dict[object, Fraction]:
        now = self.clock.now
        nodes: dict[object, Fraction] = {"dataset": LIMITS["dataset"]}
        if purpose:
            period = (now.year, now.month) if purpose == "operations" else None
            nodes[purpose, period] = LIMITS[purpose]
            if analyst:
                nodes[purpose, period, analyst] = LIMITS["analyst"]
        return nodes

    def _add(self, analyst: str, purpose: str, epsilon: str, delta: str, request: str) -> None:
        for node in self._nodes(analyst, purpose):
            self.spent[node, 0] += Fraction(epsilon)  # type: ignore[assignment]
            self.spent[node, 1] += Fraction(delta)  # type: ignore[assignment]
        self.written += 1
        if request:
            self.requests[analyst, request] = (purpose, epsilon, delta)


TestLedgerAgainstItsModel = LedgerMachine.TestCase
TestLedgerAgainstItsModel.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
