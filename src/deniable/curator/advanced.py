"""More that a curator can be asked: bounds, largest groups, watches, blocks, hierarchies, questions by method.

Each is a thin door: the work is in `bounding`, `ranking`, `watching`, `blocks` and `hierarchies`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable.curator.asking import QueryAnswer
    from deniable.curator.hall import Curator
    from deniable.curator.watching import LiveWatch
    from deniable.policy.budget import Amount, Budget
    from deniable.query.builder import Question


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
        from deniable.curator import bounding

        return bounding.find_bounds(self, table, column, epsilon, confidence=confidence, **rest)

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
        from deniable.curator import ranking

        listed = [keys] if isinstance(keys, str) else list(keys)
        return ranking.top(self, source, listed, k, ranking.money(epsilon, delta), **rest)

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
        from deniable.curator import ranking

        listed = [keys] if isinstance(keys, str) else list(keys)
        return ranking.explain(self, source, listed, k, ranking.money(epsilon, delta), **rest)

    def watch(self: Curator, sql: str, threshold: int, epsilon: Amount, **rest: Any) -> LiveWatch:  # type: ignore[misc]
        """A handle that tells when a count passes a threshold; charged once, now."""
        from deniable.curator import watching

        return watching.watch(self, sql, threshold, epsilon, **rest)

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
        from deniable.curator import blocks as blockwise

        return blockwise.release(self, function, table, blocks, bounds, epsilon, **rest)

    def hierarchy(self: Curator, source: str, levels: Sequence[str], **rest: Any) -> QueryAnswer:  # type: ignore[misc]
        """A tree of counts or sums, from the total down, in which children add up to their parents.

        The budget is `epsilon`, `delta` or `rho`; `aggregate`, `importance`, `nonnegative`, `confidence` as wanted.
        """
        from deniable.curator import hierarchies

        return hierarchies.hierarchy(self, source, levels, _budget(rest), **rest)

    def margins(  # type: ignore[misc]
        self: Curator, source: str, margins: Sequence[Sequence[str]], **rest: Any
    ) -> QueryAnswer:
        """A set of margins, measured together, that agree with each other; keywords as for `hierarchy`."""
        from deniable.curator import hierarchies

        return hierarchies.margins(self, source, margins, _budget(rest), **rest)

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
        from deniable.curator import hierarchies

        asked = _budget(budget)
        statement = hierarchies.tree_statement(source, levels, aggregate)
        return hierarchies.explain(hierarchies.plan(self, statement, levels, asked, importance, None, tree=True))

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
        from deniable.curator import hierarchies

        asked = _budget(budget)
        statement, columns = hierarchies.margin_statement(source, margins, aggregate)
        return hierarchies.explain(hierarchies.plan(self, statement, columns, asked, importance, None, tree=False))

    def explain_watch(  # type: ignore[misc]
        self: Curator, sql: str, threshold: int, epsilon: Amount, **rest: Any
    ) -> dict[str, Any]:
        """What a watch would compare and cost, without touching data."""
        from deniable.curator import watching

        return watching.explain(self, sql, threshold, epsilon, **rest)

    def explain_sample_and_aggregate(  # type: ignore[misc]
        self: Curator, table: str, *, blocks: int, bounds: tuple[Amount, Amount], epsilon: Amount, **rest: Any
    ) -> dict[str, Any]:
        """What a function on disjoint blocks would cost, and its error, without touching data."""
        from deniable.curator import blocks as blockwise

        return blockwise.explain(self, table, blocks, bounds, epsilon, **rest)


def _budget(stated: dict[str, Any]) -> Budget | None:
    """Takes `epsilon`, `delta` and `rho` out of the keywords of a question: the budget they state."""
    from deniable.curator import asking

    return asking.stated(stated.pop("epsilon", None), stated.pop("delta", 0), stated.pop("rho", None))
