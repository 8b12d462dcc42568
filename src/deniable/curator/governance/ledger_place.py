"""Where the ledger of a policy is: as told, else beside the policy file. Whoever withdrew is known there alone."""

from __future__ import annotations

from pathlib import Path

from deniable.policy.document import read


def ledger_of(policy: Path, ledger: str | None) -> str:
    """Where the ledger of a policy is: as told, else beside the policy file."""
    return ledger or str(policy.with_suffix(".ledger.sqlite"))


def find_ledger(policy: Path, ledger: str | Path | None) -> str | None:
    """The ledger as told, else the one beside the policy if there is one already."""
    beside = ledger_of(policy, None)
    return str(ledger) if ledger else beside if Path(beside).exists() else None


def ledger_for_charges(policy: Path, ledger: str | None) -> str | None:
    """The ledger that a charge goes to: as told, else beside the policy, where it is made if the policy needs one.

    A budget that a process kept in its memory would be whole again for the next command, and an earlier release that
    the policy says to refuse a second beside would be forgotten.
    """
    found = find_ledger(policy, ledger)
    if found is not None:
        return found
    known = read(policy)
    asked = known.release.anonymize
    needed = known.budgets is not None or (asked is not None and asked.second_release == "refuse")
    return ledger_of(policy, None) if needed else None
