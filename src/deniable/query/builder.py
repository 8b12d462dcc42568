"""Questions by methods, for those who prefer them: each call adds to a statement, and `sql` is what will be asked.

    curator.table("visits").where("charge > 100").group_by("sex").count().average("charge").ask(epsilon=0.5)

Nothing is decided here: the text goes to the same compiler as any other question, which refuses what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deniable.errors import ParameterError

Ask = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Question:
    """A statement under construction; every method gives a new one.

    >>> Question("visits").where("age > 30").group_by("sex").count().sum("charge").sql
    'SELECT sex, COUNT(*) AS count, SUM(charge) AS sum_charge FROM visits WHERE (age > 30) GROUP BY sex'
    """

    source: str
    asker: Ask | None = None
    explainer: Ask | None = None
    keys: tuple[str, ...] = ()
    aggregates: tuple[tuple[str, str], ...] = ()
    conditions: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    first: int | None = None
    rolled: bool = False

    def where(self, condition: str) -> Question:
        """Keep rows that satisfy a condition; several of them must all hold."""
        return replace(self, conditions=(*self.conditions, condition))

    def join(self, table: str, on: str) -> Question:
        """Join another table of the policy."""
        return replace(self, source=f"{self.source} JOIN {table} ON {on}")

    def group_by(self, *keys: str, rollup: bool = False) -> Question:
        """One row for each combination of keys; with `rollup` also for the shorter ones."""
        return replace(self, keys=(*self.keys, *keys), rolled=rollup or self.rolled)

    def aggregate(self, expression: str, name: str) -> Question:
        """Any aggregate that SQL knows here, under a name."""
        return replace(self, aggregates=(*self.aggregates, (expression, name)))

    def count(self, column: str = "*", name: str = "") -> Question:
        """How many rows (with a value in the column)."""
        return self.aggregate(f"COUNT({column})", name or _default_name("count", column))

    def count_distinct(self, column: str, name: str = "") -> Question:
        """How many different values, or units."""
        return self.aggregate(f"COUNT(DISTINCT {column})", name or _default_name("distinct", column))

    def sum(self, column: str, name: str = "") -> Question:
        """The sum of a column with bounds."""
        return self.aggregate(f"SUM({column})", name or _default_name("sum", column))

    def average(self, column: str, name: str = "") -> Question:
        """The mean of a column with bounds."""
        return self.aggregate(f"AVG({column})", name or _default_name("average", column))

    def median(self, column: str, name: str = "") -> Question:
        """The median of a column with bounds."""
        return self.aggregate(f"MEDIAN({column})", name or _default_name("median", column))

    def quantile(self, column: str, share: float, name: str = "") -> Question:
        """The value below which a share of the rows lies."""
        return self.aggregate(f"QUANTILE({column}, {share})", name or _default_name("quantile", column))

    def having(self, condition: str) -> Question:
        """Keep noisy rows that satisfy a condition."""
        return replace(self, kept=(*self.kept, condition))

    def order_by(self, *expressions: str) -> Question:
        """Sort the noisy rows."""
        return replace(self, order=(*self.order, *expressions))

    def limit(self, rows: int) -> Question:
        """Only the first noisy rows."""
        return replace(self, first=rows)

    @property
    def sql(self) -> str:
        """The statement."""
        if not self.aggregates:
            raise ParameterError("the question has no aggregate yet", expected="count(), sum('charge'), ...")
        items = ", ".join([*self.keys, *(f"{expression} AS {name}" for expression, name in self.aggregates)])
        return " ".join(["SELECT", items, "FROM", self.source, *self._clauses()])

    def _clauses(self) -> list[str]:
        keys = ", ".join(self.keys)
        parts = [
            ("WHERE", " AND ".join(f"({condition})" for condition in self.conditions)),
            ("GROUP BY", f"ROLLUP ({keys})" if self.rolled and keys else keys),
            ("HAVING", " AND ".join(f"({condition})" for condition in self.kept)),
            ("ORDER BY", ", ".join(self.order)),
            ("LIMIT", "" if self.first is None else str(self.first)),
        ]
        return [f"{word} {text}" for word, text in parts if text]

    def ask(self, **budget: Any) -> Any:
        """Ask it: `epsilon`, `delta`, `rho` and whatever else `Curator.query` takes."""
        return _require_curator(self.asker)(self.sql, **budget)

    def explain(self, **budget: Any) -> Any:
        """What it would measure and cost, without touching data."""
        return _require_curator(self.explainer)(self.sql, **budget)


def _require_curator(deed: Ask | None) -> Ask:
    if deed is None:
        raise ParameterError("this question belongs to no curator", remedy="Start from curator.table('visits')")
    return deed


def _default_name(what: str, column: str) -> str:
    words = "".join(sign if sign.isalnum() else "_" for sign in column).strip("_").lower()
    return f"{what}_{words}" if words else what
