"""A ledger that lives as long as its process: for notebooks, demos and tests, where nothing needs to survive.

It refuses before a budget would be overspent, like every ledger; it keeps no record beyond the process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from deniable.dp.accounting import Event, accountant_for
from deniable.policy.access import Budgets
from deniable.policy.budget import Budget


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a charge leaves behind: its number, and what the dataset's budget still allows (None without a limit)."""

    number: int
    remaining: Budget | None


class SessionLedger:
    """Charges the dataset's budget of a policy, in memory; without budgets it only adds up."""

    def __init__(self, budgets: Budgets | None = None) -> None:
        limit = budgets.dataset if budgets else None
        self._accountant = accountant_for(budgets.accounting if budgets else "pure", limit)
        self._events: list[Event] = []
        self._lock = threading.Lock()

    def charge(self, event: Event) -> Receipt:
        """Write an event, or refuse with BudgetExceeded and change nothing."""
        with self._lock:
            self._accountant = self._accountant.compose(event)
            self._events.append(event)
            return Receipt(len(self._events), self._accountant.remaining())

    def remaining(self) -> Budget | None:
        """What is left of the dataset's budget."""
        with self._lock:
            return self._accountant.remaining()
