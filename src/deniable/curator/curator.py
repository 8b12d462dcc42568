"""Curator: the public object. Each method states a budget or a request and calls a workflow with a `Context`."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deniable.curator.verbs import ReleaseVerbs
from deniable.errors import NOTHING_CHARGED, ParameterError, guard_arguments, guard_call, nearest
from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    import threading

    from deniable.curator.context import Context
    from deniable.curator.governance.epochs import EpochReport
    from deniable.curator.query.batch import BatchAnswer
    from deniable.curator.query.metadata import QuestionPreview
    from deniable.curator.query.network import NetworkExplanation
    from deniable.curator.query.sql import QueryAnswer
    from deniable.curator.query.watch import LiveWatch
    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance, Ledger, Receipt
    from deniable.policy.budget import Amount, Budget
    from deniable.policy.schema import TableSchema
    from deniable.query.builder import Question
    from deniable.query.explain import (
        BatchExplanation,
        BlocksExplanation,
        ErrorPoint,
        PrivateTopExplanation,
        QuestionExplanation,
        SetsExplanation,
        TopExplanation,
        WatchExplanation,
    )

BESIDE = "beside the policy"
"""The ledger of a policy file where none is named."""


class Curator(ReleaseVerbs):
    """Answers questions about private tables, makes releases, and keeps the privacy budget.

    `sources` replaces the policy's sources by rows at hand (pandas, Polars, Arrow) or other paths, by table name.
    `ledger` is where charges are written: the path of a file, or a `postgresql://` address; without one they are
    kept in memory. `who` names who asks and for what purpose; left out, it is the steward. `memory` and `threads`
    limit the engine.

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
        memory: str | None = None,
        threads: int | None = None,
    ) -> None:
        from deniable.curator.context import open_context
        from deniable.curator.sources import hold_frames

        if not isinstance(policy, Policy):
            raise ParameterError(
                f"Curator takes a policy that was read, not a {type(policy).__name__}",
                remedy=f"Open the file: Curator.open({str(policy)!r})"
                if isinstance(policy, str | Path)
                else "For a table at hand: Curator.from_frame(table, unit=..., budget=...)",
            )
        tables = [table.name for table in policy.tables]
        for name in sources or ():
            if name not in tables:
                raise ParameterError(
                    f"the policy has no table '{name}', for which rows are given",
                    expected=f"Tables: {', '.join(tables)}",
                    remedy=nearest(name, tables),
                )
        given = (("memory", memory), ("threads", threads))
        limits: dict[str, Any] = {name: value for name, value in given if value is not None}
        self._text = ""
        self.context: Context = open_context(
            policy, sources=hold_frames(sources), engine=engine, ledger=ledger, **limits
        )

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        sources: Mapping[str, Any] | None = None,
        engine: Engine | None = None,
        ledger: str | Path | None = BESIDE,
        memory: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """The curator of a policy file, with the ledger beside it; `ledger=None` keeps charges in memory instead."""
        from deniable.curator.context import ledger_of

        place = ledger_of(Path(path), None) if ledger is BESIDE else ledger
        return cls(read(path), sources=sources, engine=engine, ledger=place, memory=memory, threads=threads)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        unit: str,
        budget: Amount | Mapping[str, Amount] | Budget,
        *,
        name: str = "",
        bounds: Mapping[str, tuple[Any, Any] | tuple[Any, Any, Any]] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        max_rows: int | None = None,
        max_groups: int | None = None,
        max_rows_per_group: int | None = None,
        ledger: str | Path | None = None,
        encoding: str | None = None,
        memory: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """The curator of a table at hand, without a policy file; `save_policy` writes one.

        `frame` is a pandas or Polars DataFrame, an Arrow table, an object with `__arrow_c_stream__`, or a file's path.
        `unit` is the column that tells people apart ("row" if each row is another person), `budget` the epsilon that
        all answers together may cost, or a mapping such as {"epsilon": 1, "delta": 1e-6}. `bounds` and `categories`
        are what is publicly known of columns, never read off the data: {"age": (0, 120)}, {"sex": ["F", "M"]}. At most
        `max_rows` rows of one person count (one, if nothing is said). The table is called `name` in questions: "data",
        or as its file is.

        The budget is kept in a ledger that is found again by the rows: the same rows have one budget, and a higher one
        than at their first charge is refused.

        >>> import pyarrow as pa
        >>> people = pa.table({"id": [1, 2, 3], "age": [30, 40, 50]})
        >>> curator = Curator.from_frame(people, unit="id", budget=1, bounds={"age": (0, 120)})  # doctest: +SKIP
        >>> curator.query("SELECT AVG(age) FROM data", epsilon=0.5)                              # doctest: +SKIP
        """
        from deniable.curator.frames import Wanted, describe_frame

        wanted = Wanted(
            unit, budget, name, bounds, categories, max_rows, max_groups, max_rows_per_group, encoding
        )  # fmt: skip
        made = describe_frame(frame, wanted, ledger)
        curator = cls(made.policy, sources=made.sources, ledger=made.ledger, memory=memory, threads=threads)
        curator._text = made.text
        return curator

    def save_policy(self, path: str | Path) -> Path:
        """Write the policy of `from_frame` to a new file, to be read, changed and opened with `Curator.open`."""
        from deniable.curator.frames import write_policy

        if not self._text:
            raise ParameterError("this curator was opened from a policy file", remedy="Copy that file")
        return write_policy(self._text, self.context.place, Path(path))

    @property
    def policy(self) -> Policy:
        """What is protected, for whom, and how much."""
        return self.context.policy

    @property
    def ledger(self) -> Ledger:
        """What was spent, and everything else that was done."""
        return self.context.ledger

    @property
    def epoch(self) -> str:
        """The public name of the state of the data: within one epoch a question has one answer."""
        return self.context.epoch

    def new_epoch(self, reason: str, *, who: Asker | None = None) -> EpochReport:
        """Begin a new epoch, for every asker at once; for the steward."""
        from deniable.curator.governance.epochs import declare_epoch

        return declare_epoch(self._for(who), reason)

    def resume(self, analyst: str, *, who: Asker | None = None) -> int:
        """Let an asker go on who was paused after failures; for the steward. Says how many failures there were."""
        from deniable.curator.governance.steward import resume_asker

        return resume_asker(self._for(who), analyst)

    # Questions

    def query(
        self,
        sql: str,
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
        confidence: float = 0.95,
        intervals: bool = True,
        nonnegative: bool = False,
        consistent: bool = False,
        bias_share: Amount | None = None,
        request: str = "",
        seconds: float | None = None,
        stop: threading.Event | None = None,
    ) -> QueryAnswer:
        """Answer a question in SQL with noise: charged before the data is touched, and never refunded after.

        `nonnegative` cuts counts off at 0, `consistent` makes the levels of a ROLLUP add up: both are free.
        `bias_share` is a part of the budget for estimating how many units clamping and contribution bounds have cut.
        Asked again under the same `request` id, a question is not charged again. `seconds` limits the work after the
        charge; `stop` (a threading.Event) cancels the question: uncharged if it has not begun.
        """
        from deniable.curator.query import auto_bounds, batch

        return auto_bounds.query(
            self._for(who), sql, _budget(epsilon, delta, rho), confidence=confidence, intervals=intervals,
            nonnegative=nonnegative, consistent=consistent, bias_share=bias_share, request=request, seconds=seconds,
            stop=stop, recompile=batch.recompile,
        )  # fmt: skip

    def query_batch(
        self, questions: Sequence[str], *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None,
        who: Asker | None = None, confidence: float = 0.95, intervals: bool = True, nonnegative: bool = False,
        request: str = "", seconds: float | None = None, stop: threading.Event | None = None,
    ) -> BatchAnswer:  # fmt: skip
        """Answer several questions with one budget and one charge: what they have in common is measured once.

        The answers come in the order of the questions. No number has more noise than if each question were asked alone
        with an equal share of the budget. If one question is refused, nothing is charged. Keywords as for `query`.
        """
        from deniable.curator.query import batch

        return batch.query_batch(
            self._for(who), questions, _budget(epsilon, delta, rho), confidence=confidence, intervals=intervals,
            nonnegative=nonnegative, request=request, seconds=seconds, stop=stop,
        )  # fmt: skip

    def explain_batch(
        self, questions: Sequence[str], *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None,
        who: Asker | None = None,
    ) -> BatchExplanation:  # fmt: skip
        """What a batch would cost, which of its questions are measured together, and each error; no row is read."""
        from deniable.curator.query import batch

        return batch.explain_batch(self._for(who), questions, _budget(epsilon, delta, rho))

    def explain(
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None,
        who: Asker | None = None,
    ) -> QuestionExplanation:  # fmt: skip
        """What a question would measure and cost, without touching data."""
        from deniable.curator.query import auto_bounds, batch

        return auto_bounds.explain(self._for(who), sql, _budget(epsilon, delta, rho), batch.recompile)

    def preview(
        self, sql: str, *, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None,
        who: Asker | None = None,
    ) -> QuestionPreview:  # fmt: skip
        """What a question would take of the asker's budget, and the error to expect; no row is read."""
        from deniable.curator.query import metadata

        return metadata.preview(self._for(who), sql, _budget(epsilon, delta, rho))

    def error_curve(
        self, sql: str, *, epsilons: Sequence[Amount] | None = None, delta: Amount = 0, confidence: float = 0.95,
        who: Asker | None = None,
    ) -> list[ErrorPoint]:  # fmt: skip
        """The expected error of each number of a question at each epsilon; no row is read, nothing is charged."""
        from deniable.curator.query import sql as questions

        chosen = questions.EPSILONS if epsilons is None else tuple(epsilons)
        return questions.error_curve(self._for(who), sql, epsilons=chosen, delta=delta, confidence=confidence)

    def table(self, source: str) -> Question:
        """A question by methods: `curator.table("visits").group_by("sex").count().ask(epsilon=0.5)`."""
        from deniable.query.builder import Question

        return Question(source, self.query, self.explain)

    def find_bounds(
        self, table: str, column: str, epsilon: Amount, *, delta: Amount = 0, confidence: float = 0.99,
        who: Asker | None = None,
    ) -> QueryAnswer:  # fmt: skip
        """Bounds of a column that has none declared, found by a noisy histogram over powers of two."""
        from deniable.curator.query import auto_bounds

        return auto_bounds.find_bounds(self._for(who), table, column, epsilon, delta=delta, confidence=confidence)

    def top(
        self, source: str, keys: str | Sequence[str], k: int, *, epsilon: Amount, delta: Amount = 0, where: str = "",
        confidence: float = 0.95, who: Asker | None = None,
    ) -> QueryAnswer:  # fmt: skip
        """The k largest groups by number of units, with noisy counts; `where` is a condition on rows."""
        from deniable.curator.query import top_k
        from deniable.policy.budget import budget

        asked = budget(epsilon, delta)
        return top_k.top(self._for(who), source, _listed(keys), k, asked, where=where, confidence=confidence)

    def explain_top(
        self, source: str, keys: str | Sequence[str], k: int, *, epsilon: Amount, delta: Amount = 0, where: str = "",
        who: Asker | None = None,
    ) -> TopExplanation | PrivateTopExplanation:  # fmt: skip
        """What `top` would choose, measure and cost, without touching data."""
        from deniable.curator.query import top_k
        from deniable.policy.budget import budget

        return top_k.explain(self._for(who), source, _listed(keys), k, budget(epsilon, delta), where=where)

    def network(
        self, table: str, statistic: str, *, epsilon: Amount, by: str | None = None, star: int | None = None,
        direction: str | None = None, max_degree: int | None = None, passing: float | None = None,
        stopping: float | None = None, steps: int | None = None, confidence: float = 0.95, who: Asker | None = None,
    ) -> QueryAnswer:  # fmt: skip
        """A statistic of a table of edges with noise: what `deniable network --help` lists, with the same settings."""
        from deniable.curator.query.network import NetworkOrder, answer_network

        more = (by, star, direction, max_degree, passing, stopping, steps, confidence)
        return answer_network(self._for(who), NetworkOrder(table, statistic, epsilon, *more))

    def explain_network(
        self, table: str, statistic: str, *, epsilon: Amount, by: str | None = None, star: int | None = None,
        direction: str | None = None, max_degree: int | None = None, confidence: float = 0.95, who: Asker | None = None,
    ) -> NetworkExplanation:  # fmt: skip
        """What `network` would measure and cost, and whom it protects, without touching data."""
        from deniable.curator.query.network import NetworkOrder, explain_network

        order = NetworkOrder(table, statistic, epsilon, by, star, direction, max_degree, confidence=confidence)
        return explain_network(self._for(who), order)

    def watch(self, sql: str, threshold: int, epsilon: Amount, *, who: Asker | None = None) -> LiveWatch:
        """A handle that tells when a count passes a threshold; charged once, now."""
        from deniable.curator.query import watch

        return watch.watch(self._for(who), sql, threshold, epsilon)

    def explain_watch(
        self, sql: str, threshold: int, epsilon: Amount, *, confidence: float = 0.95, who: Asker | None = None
    ) -> WatchExplanation:
        """What a watch would compare and cost, without touching data."""
        from deniable.curator.query import watch

        return watch.explain(self._for(who), sql, threshold, epsilon, confidence=confidence)

    def sample_and_aggregate(
        self,
        function: Callable[[Any], float],
        table: str,
        *,
        blocks: int,
        bounds: tuple[Amount, Amount],
        epsilon: Amount,
        aggregate: str = "median",
        default: Amount | None = None,
        frames: str = "arrow",
        who: Asker | None = None,
    ) -> QueryAnswer:
        """Any function of a table's rows, computed on disjoint blocks of units and combined with noise.

        `aggregate` is median or mean, `default` counts where the function fails, `frames` is what the function gets:
        arrow, pandas or polars. The function sees rows: only the steward should hand one in.
        """
        from deniable.curator.query import sample_aggregate

        return sample_aggregate.release(
            self._for(who), function, table, blocks, bounds, epsilon, aggregate=aggregate, default=default,
            frames=frames,
        )  # fmt: skip

    def explain_sample_and_aggregate(
        self,
        table: str,
        *,
        blocks: int,
        bounds: tuple[Amount, Amount],
        epsilon: Amount,
        aggregate: str = "median",
        default: Amount | None = None,
        confidence: float = 0.95,
        who: Asker | None = None,
    ) -> BlocksExplanation:
        """What a function on disjoint blocks would cost, and its error, without touching data."""
        from deniable.curator.query import sample_aggregate

        return sample_aggregate.explain(
            self._for(who), table, blocks, bounds, epsilon, aggregate=aggregate, default=default, confidence=confidence
        )

    def hierarchy(
        self,
        source: str,
        levels: Sequence[str],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        nonnegative: bool = False,
        confidence: float = 0.95,
        who: Asker | None = None,
    ) -> QueryAnswer:
        """A tree of counts or sums in which children add up to their parents; `importance` weighs levels by name."""
        from deniable.curator.query import hierarchy

        return hierarchy.hierarchy(
            self._for(who), source, levels, _budget(epsilon, delta, rho), aggregate=aggregate, importance=importance,
            nonnegative=nonnegative, confidence=confidence,
        )  # fmt: skip

    def weighted(
        self, table: str, of: str = "", *, weight: str, by: Sequence[str] = (), where: str = "",
        statistic: str = "total", epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None,
        confidence: float = 0.95, who: Asker | None = None,
    ) -> QueryAnswer:  # fmt: skip
        """A total or a mean of the population from a survey whose people stand for `weight` people each."""
        from deniable.curator.query import hierarchy

        return hierarchy.weighted(self._for(who), table, of, weight=weight, by=by, where=where, statistic=statistic,
                                  epsilon=epsilon, delta=delta, rho=rho, confidence=confidence)  # fmt: skip

    def margins(
        self,
        source: str,
        margins: Sequence[Sequence[str]],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        confidence: float = 0.95,
        who: Asker | None = None,
    ) -> QueryAnswer:
        """A set of margins, measured together, that agree with each other; keywords as for `hierarchy`."""
        from deniable.curator.query import hierarchy

        return hierarchy.margins(
            self._for(who), source, margins, _budget(epsilon, delta, rho), aggregate=aggregate, importance=importance,
            confidence=confidence,
        )  # fmt: skip

    def explain_hierarchy(
        self,
        source: str,
        levels: Sequence[str],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        who: Asker | None = None,
    ) -> SetsExplanation:
        """What a hierarchy would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy

        asked = _budget(epsilon, delta, rho)
        return hierarchy.explain_tree(self._for(who), source, levels, asked, aggregate=aggregate, importance=importance)

    def explain_margins(
        self,
        source: str,
        margins: Sequence[Sequence[str]],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        aggregate: str = "COUNT(*)",
        importance: Mapping[str, float] | None = None,
        who: Asker | None = None,
    ) -> SetsExplanation:
        """What a set of margins would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy

        asked = _budget(epsilon, delta, rho)
        return hierarchy.explain_margins(
            self._for(who), source, margins, asked, aggregate=aggregate, importance=importance
        )

    # What was done

    def record(
        self,
        technique: str,
        event: Event | None = None,
        *,
        tables: Sequence[str] = (),
        unit: str = "",
        who: Asker | None = None,
        request: str = "",
        question: str = "",
        **details: Any,
    ) -> Receipt:
        """Write a release of any technique to the ledger, before the data is touched.

        With an event it is charged, and refused where it does not fit; without one it is recorded as what it is, a
        release without a formal guarantee. `details` are public facts in plain values.
        """
        from deniable.curator.charge import Job, charge

        job: Job[None] = Job(technique, question, event, unit, tuple(tables), details=details)
        return charge(self._for(who), job, request=request, question=question)

    # The budget

    def balance(self, who: Asker | None = None) -> tuple[Balance, ...]:
        """What is spent and left, from the dataset down to the one who asks."""
        return self._for(who).balance()

    def remaining(self, who: Asker | None = None) -> Budget | None:
        """The budget that is left for who asks: the least of dataset, purpose and analyst. None without a budget.

        Nothing is left while a loss of the ledger is not settled: `balance` says why, in `closed`.
        """
        return self._for(who).remaining()

    def _for(self, who: Asker | None) -> Context:
        return self.context.speak_for(who)

    def __repr__(self) -> str:
        return "\n".join(self._describe())

    def _repr_html_(self) -> str:
        """For notebooks: the tables, whom they protect, and what is left."""
        return "<p>" + "<br>".join(html.escape(line) for line in self._describe()) + "</p>"

    def _describe(self) -> list[str]:
        tables = [
            f"  {table.name}: public" if table.public else f"  {table.name}: protects {table.unit}{_say_bound(table)}"
            for table in self.policy.tables
        ]
        if isinstance(self.context, _Closed):
            return [f"{self.policy.dataset}: closed", *tables]
        left, closed = self.context.state_left(), any(each.closed for each in self.context.balance())
        told = f"  left is {left}" if closed else f"  {left} is left" if left else "  no budget is set"
        return [f"Curator of '{self.policy.dataset}'", *tables, told]

    def interrupt(self, thread: int) -> None:
        """Stop what the engine does for a thread; whatever was charged stays charged."""
        self.context.scope.interrupt(thread)

    def close(self) -> None:
        """Close the tables and the ledger."""
        if not isinstance(self.context, _Closed):
            self.context.close()
            self.context = _Closed(self.context.policy)  # type: ignore[assignment]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _say_bound(table: TableSchema) -> str:
    most = table.unit.rows_in_all if table.unit is not None and not table.unit.is_row else None
    return "" if most is None else f", at most {most} row{'s' if most > 1 else ''} of each counted"


def _budget(epsilon: Amount | None, delta: Amount, rho: Amount | None) -> Budget | None:
    from deniable.curator.query.sql import state_budget

    return state_budget(epsilon, delta, rho)


def _listed(keys: str | Sequence[str]) -> list[str]:
    if not isinstance(keys, Sequence):
        raise ParameterError("columns are given as a name or a list of names", expected='Such as ["sex", "town"]')
    return [keys] if isinstance(keys, str) else list(keys)


class _Closed:
    """What a closed curator has instead of its tables and ledger."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __getattr__(self, name: str) -> Any:
        raise ParameterError(
            "this curator was closed", remedy="Open it again: Curator.open(...)", charge=NOTHING_CHARGED
        )


guard_arguments(Curator)
Curator.__init__ = guard_call(Curator.__init__, "Curator")  # type: ignore[method-assign]
