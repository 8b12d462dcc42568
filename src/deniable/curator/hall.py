"""Curator: the policy, the engine and the ledger in one hand; each journey is a few lines and no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    from deniable.curator.asking import QueryAnswer
    from deniable.engines.base import Engine
    from deniable.ledger.session import SessionLedger
    from deniable.policy.budget import Amount, Budget


class Curator:
    """Stands between the respondents and the analysts.

    `sources` replaces the policy's sources by rows at hand (pandas, Polars, Arrow) or other paths, by table name.

    >>> curator = Curator.open("policy.yaml")                                             # doctest: +SKIP
    >>> curator.query("SELECT sex, COUNT(*) FROM visits GROUP BY sex", epsilon=0.5)       # doctest: +SKIP
    """

    def __init__(
        self,
        policy: Policy,
        *,
        sources: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
        ledger: SessionLedger | None = None,
    ) -> None:
        from deniable.curator.tables import Tables
        from deniable.ledger.session import SessionLedger

        self.policy = policy
        self.tables = Tables(policy, engine, dict(sources or {}))
        self.ledger = ledger if ledger is not None else SessionLedger(policy.budgets)
        self.answered: dict[str, QueryAnswer] = {}

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
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None
    ) -> dict[str, Any]:
        """What a question would measure and cost, without touching data."""
        from deniable.curator import asking

        return asking.explain(self, sql, asking.stated(epsilon, delta, rho))

    def remaining(self) -> Budget | None:
        """What is left of the dataset's budget; None where the policy sets none."""
        return self.ledger.remaining()

    def close(self) -> None:
        """Let go of the tables."""
        self.tables.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
