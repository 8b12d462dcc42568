"""Curator: the policy, the engine and the ledger in one hand; each journey is a few lines and no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deniable.curator.advanced import Advanced
from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    from deniable.curator.asking import QueryAnswer
    from deniable.curator.tables import Tables
    from deniable.curator.training import Trained
    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance, Receipt
    from deniable.policy.budget import Amount, Budget
    from deniable.query.plan import QueryPlan
    from deniable.release import Release


class Curator(Advanced):
    """Stands between the respondents and the analysts.

    `sources` replaces the policy's sources by rows at hand (pandas, Polars, Arrow) or other paths, by table name.
    `ledger` is where charges are written: the path of a file, or a `postgresql://` address; without one they are
    kept in memory. `who` names who asks and for what purpose; left out, it is the steward.

    >>> curator = Curator.open("policy.yaml")                                             # doctest: +SKIP
    >>> curator.query("SELECT sex, COUNT(*) FROM visits GROUP BY sex", epsilon=0.5)       # doctest: +SKIP
    """

    def __init__(
        self,
        policy: Policy,
        *,
        sources: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        from deniable.curator.governing import Governor
        from deniable.curator.memo import Memo
        from deniable.curator.scope import Scopes
        from deniable.ledger.opening import open_cabinet, open_ledger

        self.policy = policy
        self.ledger = open_ledger(ledger, policy)
        self.cabinet = open_cabinet(ledger, policy.dataset)
        self.scopes = Scopes(policy, self.cabinet, engine, dict(sources or {}))
        self.governor = Governor(self.ledger)
        self.plans: Memo[QueryPlan] = Memo()
        self.shown: Memo[tuple[Budget | None, Release]] = Memo()

    @property
    def tables(self) -> Tables:
        """The policy's tables, without the people who withdrew."""
        return self.scopes.tables()

    @classmethod
    def open(cls, path: str | Path, **rest: Any) -> Self:
        """The curator of a policy file."""
        return cls(read(path), **rest)

    def query(
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None, **rest: Any
    ) -> QueryAnswer:
        """Answer a question in SQL with noise; see `deniable.curator.asking.query`."""
        from deniable.curator import asking

        return asking.query(self, sql, asking.stated(epsilon, delta, rho), **rest)

    def explain(
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None, **rest: Any
    ) -> dict[str, Any]:
        """What a question would measure and cost, without touching data."""
        from deniable.curator import asking

        return asking.explain(self, sql, asking.stated(epsilon, delta, rho), **rest)

    def error_curve(self, sql: str, **rest: Any) -> list[dict[str, Any]]:
        """The expected error of a question against epsilon; see `deniable.curator.asking.error_curve`."""
        from deniable.curator import asking

        return asking.error_curve(self, sql, **rest)

    def mask(self, table: str, **rest: Any) -> Release:
        """Mask one table as the policy says, in memory; see `deniable.curator.masking.mask_rows`."""
        from deniable.curator import masking

        return masking.mask_rows(self, table, **rest)

    def train(self, table: str, target: str, **rest: Any) -> Trained:
        """Learn a model of a column within a budget; see `deniable.curator.training.trained`."""
        from deniable.curator import training

        return training.trained(self, table, target, **rest)

    def anonymize(self, table: str, out: str | Path | None = None, **asked: Any) -> Release:
        """Make one table k-anonymous, in memory or into a file; see `deniable.curator.anonymizing.anonymize_rows`."""
        from deniable.curator import anonymizing

        return anonymizing.anonymize_rows(self, table, out, **asked)

    def check(self, table: str, *columns: Sequence[str]) -> dict[str, Any]:
        """Measure k, l, t and the risks of a table as it stands; see `deniable.curator.checking.check_rows`."""
        from deniable.curator import checking

        return checking.check_rows(self, table, *columns)

    def record(self, technique: str, event: Event | None = None, **rest: Any) -> Receipt:
        """Write a release of any technique to the ledger; see `deniable.curator.recording.record`."""
        from deniable.curator import recording

        return recording.record(self.ledger, technique, event, **rest)

    def balance(self, who: Asker | None = None) -> tuple[Balance, ...]:
        """What is spent and left, from the dataset down to the one who asks."""
        return self.ledger.balance(*_path(who))

    def remaining(self, who: Asker | None = None) -> Budget | None:
        """The least that is left from the dataset down to the one who asks; None where the policy sets no budget."""
        return self.ledger.remaining(*_path(who))

    def interrupt(self, thread: int) -> None:
        """Stop what the engine does for a thread; whatever was charged stays charged."""
        self.scopes.interrupt(thread)

    def close(self) -> None:
        """Let go of the tables and the ledger."""
        self.scopes.close()
        self.ledger.close()
        self.cabinet.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _path(who: Asker | None) -> tuple[str, str]:
    return ("", "") if who is None else (who.purpose, who.analyst)
