"""Curator: the public object. Each method builds a request and calls a workflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    from deniable.curator.query.sql import QueryAnswer
    from deniable.curator.query.watch import LiveWatch
    from deniable.curator.scope import Tables
    from deniable.curator.train import Trained
    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance, Receipt
    from deniable.policy.budget import Amount, Budget
    from deniable.query.builder import Question
    from deniable.query.plan import QueryPlan
    from deniable.release import Release


class Advanced:
    """The doors of a curator beyond plain questions; `Curator` has them all."""

    def table(self: Curator, source: str) -> Question:  # type: ignore[misc]
        """A question by methods: `curator.table("visits").group_by("sex").count().ask(epsilon=0.5)`."""
        from deniable.query.builder import Question

        return Question(source, self.query, self.explain)

    def find_bounds(  # type: ignore[misc]
        self: Curator, table: str, column: str, epsilon: Amount, *, confidence: float = 0.99, **rest: Any
    ) -> QueryAnswer:
        """Bounds of a column that has none declared, found by a noisy histogram over powers of two."""
        from deniable.curator.query import auto_bounds

        return auto_bounds.find_bounds(self, table, column, epsilon, confidence=confidence, **rest)

    def top(  # type: ignore[misc]
        self: Curator,
        source: str,
        keys: str | Sequence[str],
        k: int,
        *,
        epsilon: Amount,
        delta: Amount = 0,
        **rest: Any,
    ) -> QueryAnswer:
        """The k largest groups by number of units, with noisy counts."""
        from deniable.curator.query import top_k

        listed = [keys] if isinstance(keys, str) else list(keys)
        return top_k.top(self, source, listed, k, top_k.budget_of(epsilon, delta), **rest)

    def explain_top(  # type: ignore[misc]
        self: Curator,
        source: str,
        keys: str | Sequence[str],
        k: int,
        *,
        epsilon: Amount,
        delta: Amount = 0,
        **rest: Any,
    ) -> dict[str, Any]:
        """What `top` would choose, measure and cost, without touching data."""
        from deniable.curator.query import top_k

        listed = [keys] if isinstance(keys, str) else list(keys)
        return top_k.explain(self, source, listed, k, top_k.budget_of(epsilon, delta), **rest)

    def watch(self: Curator, sql: str, threshold: int, epsilon: Amount, **rest: Any) -> LiveWatch:  # type: ignore[misc]
        """A handle that tells when a count passes a threshold; charged once, now."""
        from deniable.curator.query import watch as query_watch

        return query_watch.watch(self, sql, threshold, epsilon, **rest)

    def sample_and_aggregate(  # type: ignore[misc]
        self: Curator,
        function: Callable[[Any], float],
        table: str,
        *,
        blocks: int,
        bounds: tuple[Amount, Amount],
        epsilon: Amount,
        **rest: Any,
    ) -> QueryAnswer:
        """Any function of a table's rows, computed on disjoint blocks of units and combined with noise."""
        from deniable.curator.query import sample_aggregate as blockwise

        return blockwise.release(self, function, table, blocks, bounds, epsilon, **rest)

    def hierarchy(self: Curator, source: str, levels: Sequence[str], **rest: Any) -> QueryAnswer:  # type: ignore[misc]
        """A tree of counts or sums, from the total down, in which children add up to their parents.

        The budget is `epsilon`, `delta` or `rho`; `aggregate`, `importance`, `nonnegative`, `confidence` as wanted.
        """
        from deniable.curator.query import hierarchy as query_hierarchy

        return query_hierarchy.hierarchy(self, source, levels, _budget(rest), **rest)

    def margins(  # type: ignore[misc]
        self: Curator, source: str, margins: Sequence[Sequence[str]], **rest: Any
    ) -> QueryAnswer:
        """A set of margins, measured together, that agree with each other; keywords as for `hierarchy`."""
        from deniable.curator.query import hierarchy as query_hierarchy

        return query_hierarchy.margins(self, source, margins, _budget(rest), **rest)

    def explain_hierarchy(  # type: ignore[misc]
        self: Curator,
        source: str,
        levels: Sequence[str],
        *,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        **budget: Any,
    ) -> dict[str, Any]:
        """What a hierarchy would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy as query_hierarchy

        asked = _budget(budget)
        statement = query_hierarchy.tree_statement(source, levels, aggregate)
        return query_hierarchy.explain(
            query_hierarchy.plan(self, statement, levels, asked, importance, None, tree=True)
        )

    def explain_margins(  # type: ignore[misc]
        self: Curator,
        source: str,
        margins: Sequence[Sequence[str]],
        *,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        **budget: Any,
    ) -> dict[str, Any]:
        """What a set of margins would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy as query_hierarchy

        asked = _budget(budget)
        statement, columns = query_hierarchy.margin_statement(source, margins, aggregate)
        return query_hierarchy.explain(
            query_hierarchy.plan(self, statement, columns, asked, importance, None, tree=False)
        )

    def explain_watch(  # type: ignore[misc]
        self: Curator, sql: str, threshold: int, epsilon: Amount, **rest: Any
    ) -> dict[str, Any]:
        """What a watch would compare and cost, without touching data."""
        from deniable.curator.query import watch as query_watch

        return query_watch.explain(self, sql, threshold, epsilon, **rest)

    def explain_sample_and_aggregate(  # type: ignore[misc]
        self: Curator, table: str, *, blocks: int, bounds: tuple[Amount, Amount], epsilon: Amount, **rest: Any
    ) -> dict[str, Any]:
        """What a function on disjoint blocks would cost, and its error, without touching data."""
        from deniable.curator.query import sample_aggregate as blockwise

        return blockwise.explain(self, table, blocks, bounds, epsilon, **rest)


def _budget(stated: dict[str, Any]) -> Budget | None:
    """Takes `epsilon`, `delta` and `rho` out of the keywords of a question: the budget they state."""
    from deniable.curator.query import sql as query_sql

    return query_sql.state_budget(stated.pop("epsilon", None), stated.pop("delta", 0), stated.pop("rho", None))


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
        from deniable.curator.governance.requests import Governor
        from deniable.curator.scope import Memo, Scopes
        from deniable.ledger.ledger import open_answer_store, open_ledger

        self.policy = policy
        self.ledger = open_ledger(ledger, policy)
        self.cabinet = open_answer_store(ledger, policy.dataset)
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
        """Answer a question in SQL with noise; see `deniable.curator.query.sql.query`."""
        from deniable.curator.query import sql as query_sql

        return query_sql.query(self, sql, query_sql.state_budget(epsilon, delta, rho), **rest)

    def explain(
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None, **rest: Any
    ) -> dict[str, Any]:
        """What a question would measure and cost, without touching data."""
        from deniable.curator.query import sql as query_sql

        return query_sql.explain(self, sql, query_sql.state_budget(epsilon, delta, rho), **rest)

    def error_curve(self, sql: str, **rest: Any) -> list[dict[str, Any]]:
        """The expected error of a question against epsilon; see `deniable.curator.query.sql.error_curve`."""
        from deniable.curator.query import sql as query_sql

        return query_sql.error_curve(self, sql, **rest)

    def mask(self, table: str, **rest: Any) -> Release:
        """Mask one table as the policy says, in memory; see `deniable.curator.mask.run.mask_rows`."""
        from deniable.curator.mask import run

        return run.mask_rows(self, table, **rest)

    def train(self, table: str, target: str, **rest: Any) -> Trained:
        """Learn a model of a column within a budget; see `deniable.curator.train.train_model`."""
        from deniable.curator import train as curator_train

        return curator_train.train_model(self, table, target, **rest)

    def anonymize(self, table: str, out: str | Path | None = None, **asked: Any) -> Release:
        """Make one table k-anonymous, in memory or into a file; see `deniable.curator.anonymize.run.anonymize_rows`."""
        from deniable.curator.anonymize import run

        return run.anonymize_rows(self, table, out, **asked)

    def check(self, table: str, *columns: Sequence[str]) -> dict[str, Any]:
        """Measure k, l, t and the risks of a table as it stands; see `deniable.curator.anonymize.check.check_rows`."""
        from deniable.curator.anonymize import check as anonymize_check

        return anonymize_check.check_rows(self, table, *columns)

    def record(self, technique: str, event: Event | None = None, **rest: Any) -> Receipt:
        """Write a release of any technique to the ledger; see `deniable.curator.charge.record`."""
        from deniable.curator import charge

        return charge.record(self.ledger, technique, event, **rest)

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
