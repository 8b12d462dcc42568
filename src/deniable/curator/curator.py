"""Curator: the public object. Each method states a budget or a request and calls a workflow with a `Context`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import ParameterError
from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.anonymize.check import CheckReport
    from deniable.curator.context import Context
    from deniable.curator.governance.epochs import EpochReport
    from deniable.curator.query.sql import QueryAnswer
    from deniable.curator.query.watch import LiveWatch
    from deniable.curator.synthesize.inspect import LinkedView, ModelView
    from deniable.curator.train import Trained
    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance, Ledger, Receipt
    from deniable.policy.budget import Amount, Budget
    from deniable.query.builder import Question
    from deniable.query.explain import (
        BlocksExplanation,
        ErrorPoint,
        PrivateTopExplanation,
        QuestionExplanation,
        SetsExplanation,
        TopExplanation,
        WatchExplanation,
    )
    from deniable.release import Release
    from deniable.synth.linked import LinkedModel
    from deniable.synth.model import SynthModel


class Curator:
    """Stands between the respondents and the analysts.

    `sources` replaces the policy's sources by rows at hand (pandas, Polars, Arrow) or other paths, by table name.
    `ledger` is where charges are written: the path of a file, or a `postgresql://` address; without one they are
    kept in memory. `who` names who asks and for what purpose; left out, it is the steward. `limits` are those of
    engines: `memory`, `threads`.

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
        **limits: Any,
    ) -> None:
        from deniable.curator.context import open_context

        self.context: Context = open_context(policy, sources=sources, engine=engine, ledger=ledger, **limits)

    @classmethod
    def open(cls, path: str | Path, **rest: Any) -> Self:
        """The curator of a policy file, with the ledger beside it; `ledger=None` keeps charges in memory instead."""
        from deniable.curator.context import ledger_of

        if "ledger" not in rest:
            rest["ledger"] = ledger_of(Path(path), None)
        return cls(read(path), **rest)

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
        from deniable.curator.charge import resume_asker

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
        **rest: Any,
    ) -> QueryAnswer:
        """Answer a question in SQL with noise; see `deniable.curator.query.sql.query`."""
        from deniable.curator.query import auto_bounds

        return auto_bounds.query(self._for(who), sql, _budget(epsilon, delta, rho), **rest)

    def explain(
        self,
        sql: str,
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
    ) -> QuestionExplanation:
        """What a question would measure and cost, without touching data."""
        from deniable.curator.query import auto_bounds

        return auto_bounds.explain(self._for(who), sql, _budget(epsilon, delta, rho))

    def error_curve(self, sql: str, *, who: Asker | None = None, **rest: Any) -> list[ErrorPoint]:
        """The expected error of a question against epsilon; see `deniable.curator.query.sql.error_curve`."""
        from deniable.curator.query import sql as questions

        return questions.error_curve(self._for(who), sql, **rest)

    def table(self, source: str) -> Question:
        """A question by methods: `curator.table("visits").group_by("sex").count().ask(epsilon=0.5)`."""
        from deniable.query.builder import Question

        return Question(source, self.query, self.explain)

    def find_bounds(
        self, table: str, column: str, epsilon: Amount, *, who: Asker | None = None, **rest: Any
    ) -> QueryAnswer:
        """Bounds of a column that has none declared, found by a noisy histogram over powers of two."""
        from deniable.curator.query import auto_bounds

        return auto_bounds.find_bounds(self._for(who), table, column, epsilon, **rest)

    def top(
        self,
        source: str,
        keys: str | Sequence[str],
        k: int,
        *,
        epsilon: Amount,
        delta: Amount = 0,
        who: Asker | None = None,
        **rest: Any,
    ) -> QueryAnswer:
        """The k largest groups by number of units, with noisy counts."""
        from deniable.curator.query import top_k
        from deniable.policy.budget import budget

        return top_k.top(self._for(who), source, _listed(keys), k, budget(epsilon, delta), **rest)

    def explain_top(
        self,
        source: str,
        keys: str | Sequence[str],
        k: int,
        *,
        epsilon: Amount,
        delta: Amount = 0,
        who: Asker | None = None,
        **rest: Any,
    ) -> TopExplanation | PrivateTopExplanation:
        """What `top` would choose, measure and cost, without touching data."""
        from deniable.curator.query import top_k
        from deniable.policy.budget import budget

        return top_k.explain(self._for(who), source, _listed(keys), k, budget(epsilon, delta), **rest)

    def watch(self, sql: str, threshold: int, epsilon: Amount, *, who: Asker | None = None) -> LiveWatch:
        """A handle that tells when a count passes a threshold; charged once, now."""
        from deniable.curator.query import watch

        return watch.watch(self._for(who), sql, threshold, epsilon)

    def explain_watch(
        self, sql: str, threshold: int, epsilon: Amount, *, who: Asker | None = None, **rest: Any
    ) -> WatchExplanation:
        """What a watch would compare and cost, without touching data."""
        from deniable.curator.query import watch

        return watch.explain(self._for(who), sql, threshold, epsilon, **rest)

    def sample_and_aggregate(
        self,
        function: Callable[[Any], float],
        table: str,
        *,
        blocks: int,
        bounds: tuple[Amount, Amount],
        epsilon: Amount,
        who: Asker | None = None,
        **rest: Any,
    ) -> QueryAnswer:
        """Any function of a table's rows, computed on disjoint blocks of units and combined with noise."""
        from deniable.curator.query import sample_aggregate

        return sample_aggregate.release(self._for(who), function, table, blocks, bounds, epsilon, **rest)

    def explain_sample_and_aggregate(
        self,
        table: str,
        *,
        blocks: int,
        bounds: tuple[Amount, Amount],
        epsilon: Amount,
        who: Asker | None = None,
        **rest: Any,
    ) -> BlocksExplanation:
        """What a function on disjoint blocks would cost, and its error, without touching data."""
        from deniable.curator.query import sample_aggregate

        return sample_aggregate.explain(self._for(who), table, blocks, bounds, epsilon, **rest)

    def hierarchy(
        self,
        source: str,
        levels: Sequence[str],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
        **rest: Any,
    ) -> QueryAnswer:
        """A tree of counts or sums, from the total down, in which children add up to their parents.

        `aggregate`, `importance`, `nonnegative` and `confidence` as wanted.
        """
        from deniable.curator.query import hierarchy

        return hierarchy.hierarchy(self._for(who), source, levels, _budget(epsilon, delta, rho), **rest)

    def margins(
        self,
        source: str,
        margins: Sequence[Sequence[str]],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
        **rest: Any,
    ) -> QueryAnswer:
        """A set of margins, measured together, that agree with each other; keywords as for `hierarchy`."""
        from deniable.curator.query import hierarchy

        return hierarchy.margins(self._for(who), source, margins, _budget(epsilon, delta, rho), **rest)

    def explain_hierarchy(
        self,
        source: str,
        levels: Sequence[str],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
        **rest: Any,
    ) -> SetsExplanation:
        """What a hierarchy would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy

        return hierarchy.explain_tree(self._for(who), source, levels, _budget(epsilon, delta, rho), **rest)

    def explain_margins(
        self,
        source: str,
        margins: Sequence[Sequence[str]],
        *,
        epsilon: Amount | None = None,
        delta: Amount = 0,
        rho: Amount | None = None,
        who: Asker | None = None,
        **rest: Any,
    ) -> SetsExplanation:
        """What a set of margins would measure and cost, without touching private rows."""
        from deniable.curator.query import hierarchy

        return hierarchy.explain_margins(self._for(who), source, margins, _budget(epsilon, delta, rho), **rest)

    # Releases

    def mask(self, table: str, *, who: Asker | None = None, **rest: Any) -> Release:
        """Mask one table as the policy says, in memory; see `deniable.curator.mask.run.mask_rows`."""
        from deniable.curator.mask.run import mask_rows

        return mask_rows(self._for(who), table, **rest)

    def anonymize(
        self, table: str, out: str | Path | None = None, *, who: Asker | None = None, **asked: Any
    ) -> Release:
        """Make one table k-anonymous, in memory or into a file; see `deniable.curator.anonymize.run.anonymize_rows`."""
        from deniable.curator.anonymize.run import anonymize_rows

        return anonymize_rows(self._for(who), table, out, **asked)

    def check(self, table: str, *columns: Sequence[str], who: Asker | None = None) -> CheckReport:
        """Measure k, l, t and the risks of a table as it stands; see `deniable.curator.anonymize.check.check_rows`."""
        from deniable.curator.anonymize.check import check_rows

        return check_rows(self._for(who), table, *columns)

    def describe(
        self, table: str, out: str | Path | None = None, *, epsilon: Amount | None = None, delta: Amount = 0,
        rho: Amount | None = None, who: Asker | None = None, **order: Any,
    ) -> SynthModel | LinkedModel:  # fmt: skip
        """Learn a table's synthetic model within a budget, and keep it in a file if one is named.

        Charged before rows are read, which are bounded to what one unit may add. `order` may name a `method`,
        `columns`, a `workload`, `areas` and `linked`; see `deniable.curator.synthesize.run.Order`.
        """
        from deniable.curator.synthesize.run import learn_and_keep, place_order

        wanted = place_order(table, epsilon, delta, rho, **order)
        return learn_and_keep(self._for(who), wanted, None if out is None else Path(out))

    def synthesize(
        self, table: str, out: str | Path, *, rows: int | None = None, seed: int = 0, epsilon: Amount | None = None,
        delta: Amount = 0, rho: Amount | None = None, who: Asker | None = None, **order: Any,
    ) -> Release:  # fmt: skip
        """Write a synthetic twin of a table, with its model and its statement; options are those of `describe`."""
        from deniable.curator.synthesize.run import place_order, synthesize

        wanted = place_order(table, epsilon, delta, rho, **order)
        return synthesize(self._for(who), wanted, Path(out), rows=rows, seed=seed)

    @staticmethod
    def generate(model: SynthModel | LinkedModel | str | Path, rows: int | None = None, **rest: Any) -> pa.Table:
        """Rows of a model, or of a model file: no data is touched, nothing is charged. `rest`: `seed`, `where`.

        Of people with their rows, so many people are drawn, and their rows come out.
        """
        from deniable.curator.synthesize.run import draw_rows

        return draw_rows(model, rows, **rest)

    def inspect(
        self, model: SynthModel | LinkedModel | str | Path, against: str | None = None, **question: Any
    ) -> ModelView | LinkedView:
        """What a model tells anyone; `against` a table, beside its real rows, for the steward alone.

        `question` may name `marginals`, a `target` and a `regression`.
        """
        from deniable.curator.synthesize.inspect import Question, public, steward

        asked = Question(**question)
        return public(model, asked) if against is None else steward(self.context, model, against, asked)

    def train(self, table: str, target: str, *, who: Asker | None = None, **rest: Any) -> Trained:
        """Learn a model of a column within a budget; see `deniable.curator.train.train_model`."""
        from deniable.curator.train import train_model

        return train_model(self._for(who), table, target, **rest)

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
        """The least that is left from the dataset down to the one who asks; None where the policy sets no budget."""
        return self._for(who).remaining()

    def interrupt(self, thread: int) -> None:
        """Stop what the engine does for a thread; whatever was charged stays charged."""
        self.context.scope.interrupt(thread)

    def close(self) -> None:
        """Let go of the tables and the ledger."""
        self.context.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _for(self, who: Asker | None) -> Context:
        return self.context.speak_for(who)


def _budget(epsilon: Amount | None, delta: Amount, rho: Amount | None) -> Budget | None:
    from deniable.curator.query.sql import state_budget

    return state_budget(epsilon, delta, rho)


def _listed(keys: str | Sequence[str]) -> list[str]:
    if not isinstance(keys, Sequence):
        raise ParameterError("columns are given as a name or a list of names", expected='Such as ["sex", "town"]')
    return [keys] if isinstance(keys, str) else list(keys)
