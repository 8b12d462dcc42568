"""Asking a question: compile, charge, execute, release. A repeated question is answered from the stored answer."""

from __future__ import annotations

import html
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import after_the_charge, still_charged
from deniable.errors import NOTHING_CHARGED, ParameterError, Stopped
from deniable.policy.budget import ZCDP, Amount, Budget, budget, exact

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.charge import StoredAnswer
    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.ledger import Receipt
    from deniable.query.execute import Presentation
    from deniable.query.plan import QueryPlan
    from deniable.release import Guarantee, Release

EPSILONS = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10")
"""Where the curve of errors is drawn, unless other epsilons are named."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A release of noisy numbers, easy to look at and to carry on with."""

    release: Release
    repeated: bool = False
    """Whether it is the stored answer of an earlier equal question, at no further cost."""
    receipt: Receipt | None = None
    """What the charge left behind; None where nothing was charged."""

    @property
    def rows(self) -> pa.Table:
        """The answer as an Arrow table; `name_low` and `name_high` enclose `name` but for the stated confidence."""
        return self.release.rows

    def to_pandas(self) -> Any:
        """The answer as a pandas DataFrame."""
        return self.rows.to_pandas()

    def to_polars(self) -> Any:
        """The answer as a Polars DataFrame."""
        import polars

        return polars.from_arrow(self.rows)

    def to_pylist(self) -> list[dict[str, Any]]:
        """The answer as a list of rows."""
        listed: list[dict[str, Any]] = self.rows.to_pylist()
        return listed

    def _repr_html_(self) -> str:
        """For notebooks: numbers with their error, and what they cost."""
        shown = [name for name in self.rows.column_names if not name.endswith(("_low", "_high"))]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown)
        body = "".join(f"<tr>{''.join(_cell(row, name) for name in shown)}</tr>" for row in self.to_pylist()[:200])
        cost = html.escape(str(self.release.details.get("cost", "")))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>Cost: {cost}</p>"


def _cell(row: dict[str, Any], name: str) -> str:
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    value = html.escape(f"{row[name]:,.6g}" if isinstance(row[name], float) else str(row[name]))
    if low is None or high is None:
        return f"<td>{value}</td>"
    return f"<td>{value} <small>&plusmn; {(high - low) / 2:,.4g}</small></td>"


def state_budget(epsilon: Amount | None, delta: Amount, rho: Amount | None) -> Budget | None:
    """The budget stated beside a question, if any; a delta alone goes with an accuracy that is asked for."""
    if epsilon is None and rho is None:
        return budget(0, delta) if exact(delta, "delta") else None
    return budget(epsilon, delta, rho)


def compile_sql(
    curator: Curator, sql: str, asked: Budget | None, who: Asker | None = None, bias_share: Amount | None = None
) -> QueryPlan:
    """The plan of a question under the curator's policy, with the columns that the asker may name."""
    from deniable.curator.governance.requests import refuse_expired
    from deniable.curator.scope import columns_for
    from deniable.query.compile import compile_query

    refuse_expired(curator)
    if who is not None:
        curator.ledger.admit(who.purpose, who.analyst)
    name = who.name if who else ""
    key = (sql, asked, name, None if bias_share is None else str(bias_share))
    return curator.plans.get(key, lambda: compile_query(sql, columns_for(curator, who), asked, bias_share=bias_share))


def explain(curator: Curator, sql: str, asked: Budget | None, *, who: Asker | None = None) -> dict[str, Any]:
    """What a question would measure and cost, what would be left, and how many more like it fit; no row is read."""
    from deniable.query.explain import describe_budget
    from deniable.query.explain import explain as explained
    from deniable.query.sql.auto_clamp import find_auto_clamps

    if calls := find_auto_clamps(sql):
        from deniable.curator.query import auto_bounds

        return auto_bounds.explain(curator, sql, calls, asked, who)
    plan, left = compile_sql(curator, sql, asked, who), curator.remaining(who)
    path = (who.purpose, who.analyst) if who else ("", "")
    more = None if plan.free else curator.ledger.fits(plan.event, *path)
    return explained(plan) | {"remaining": describe_budget(left) if left is not None else None, "more_like_this": more}


def error_curve(
    curator: Curator,
    sql: str,
    *,
    epsilons: tuple[Amount, ...] = EPSILONS,
    delta: Amount = 0,
    confidence: float = 0.95,
    who: Asker | None = None,
) -> list[dict[str, Any]]:
    """The expected error of each measurement of a question at each epsilon; no row is read and nothing is charged."""
    from deniable.query.explain import compute_error_curve

    _check_confidence(confidence)
    plans = ((epsilon, compile_sql(curator, sql, state_budget(epsilon, delta, None), who)) for epsilon in epsilons)
    return compute_error_curve(plans, confidence)


def query(
    curator: Curator,
    sql: str,
    asked: Budget | None,
    *,
    who: Asker | None = None,
    request: str = "",
    confidence: float = 0.95,
    intervals: bool = True,
    nonnegative: bool = False,
    consistent: bool = False,
    bias_share: Amount | None = None,
    seconds: float | None = None,
    stop: Event | None = None,
) -> QueryAnswer:
    """Answer a question: charged before the data is touched, and never refunded after.

    `nonnegative` cuts counts off at 0, and `consistent` makes the levels of a ROLLUP add up: both are free.
    `bias_share` is a part of the budget for estimating how many units clamping and contribution bounds have cut.
    `request` is the asker's id of this attempt: asked again under it, the question is not charged again.
    `stop` is set when the question is taken back: before the charge it ends uncharged; what the engine does after it
    is stopped by `Curator.interrupt`, and the charge stands.
    """
    from deniable.curator.charge import all_tables, find_answer, private_tables, store_answer
    from deniable.query.execute import Presentation
    from deniable.query.sql.auto_clamp import find_auto_clamps

    if calls := find_auto_clamps(sql):
        from deniable.curator.query import auto_bounds

        shown = {"confidence": confidence, "intervals": intervals, "nonnegative": nonnegative, "consistent": consistent}
        return auto_bounds.query(curator, sql, calls, asked, who, request=request, seconds=seconds, **shown)
    plan = compile_sql(curator, sql, asked, who, bias_share)
    how = Presentation(_check_confidence(confidence), intervals, nonnegative, _check_consistency(plan, consistent))
    names = private_tables(plan)
    curator.scopes.refresh(curator.governor.withdrawals())
    tables = curator.scopes.tables(who)
    engine, versions = tables.attach(*all_tables(plan)), tables.version(*names)
    key = f"{plan.canonical}:{sorted(versions.items())}:{curator.ledger.policy}"
    known = curator.shown.find((key, plan.text, how, who))
    if known is not None and known[0] == curator.remaining(who):
        return QueryAnswer(known[1], repeated=True)
    stored, receipt = find_answer(curator.cabinet, key), None
    repeated = stored is not None
    if stored is None and not plan.free:
        _refuse_cancelled(stop)
        receipt = _charge(curator, plan, names, who, request, key)
        stored = find_answer(curator.cabinet, receipt.release) if receipt.repeated else None
    if stored is None:
        stored = store_answer(curator.cabinet, key, _measure(plan, engine, seconds, receipt))
    rows, left = _present(plan, stored, engine, how, seconds), _balance_after(curator, who, receipt)
    release = _build_release(curator, plan, rows, stored, versions, confidence, left, receipt)
    if repeated:
        curator.shown.put((key, plan.text, how, who), (left, release))
    return QueryAnswer(release, repeated, receipt)


def _refuse_cancelled(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise Stopped("the question was cancelled before it was charged", remedy="Ask again", charge=NOTHING_CHARGED)


def _charge(
    curator: Curator, plan: QueryPlan, names: tuple[str, ...], who: Asker | None, request: str, key: str
) -> Receipt:
    from deniable.release import Technique

    question = f"{key}:{plan.text}"
    unit, details = str(plan.unit or ""), {"asked": plan.text}
    return curator.record(
        Technique.DP_QUERY, plan.event, tables=names, unit=unit, who=who, request=request, question=question, **details
    )


def _balance_after(curator: Curator, who: Asker | None, receipt: Receipt | None) -> Budget | None:
    """What is left after a question: a charge has just reckoned it."""
    return curator.remaining(who) if receipt is None or receipt.repeated else receipt.remaining


def _measure(plan: QueryPlan, engine: Any, seconds: float | None, receipt: Receipt | None) -> StoredAnswer:
    """The noisy measurements; whatever fails now is one fixed sentence, since the data had been touched."""
    from datetime import UTC, datetime
    from secrets import token_hex

    from deniable.curator.charge import StoredAnswer
    from deniable.query.execute import measure

    with after_the_charge():
        measured = measure(plan, engine, seconds=seconds)
    return StoredAnswer(
        measured, receipt.release if receipt else token_hex(12), datetime.now(UTC).replace(microsecond=0)
    )


def _present(plan: QueryPlan, stored: StoredAnswer, engine: Any, how: Presentation, seconds: float | None) -> pa.Table:
    from deniable.query.execute import present

    with after_the_charge():
        return present(plan, stored.measured, engine, how, seconds=seconds)


def _check_confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ParameterError("the confidence is not between 0 and 1", expected="A confidence such as 0.95")
    return confidence


def _check_consistency(plan: QueryPlan, consistent: bool) -> bool:
    from deniable.query.execute import refuse_inconsistent

    if consistent:
        refuse_inconsistent(plan)
    return consistent


def write_answer(curator: Curator, answer: QueryAnswer, path: Path) -> None:
    """Write an answer and its statement to files."""
    from deniable.release import write_release

    with still_charged() if answer.receipt is not None else nullcontext():
        write_release(answer.release, path, curator.tables.engine)


def _build_release(
    curator: Curator,
    plan: QueryPlan,
    rows: pa.Table,
    stored: StoredAnswer,
    versions: dict[str, str],
    confidence: float,
    left: Budget | None,
    receipt: Receipt | None,
) -> Release:
    from deniable.query.bias import report_estimates
    from deniable.query.explain import describe_budget, summarize_plan
    from deniable.release import Provenance, Release

    details = {**summarize_plan(plan, confidence), "confidence": confidence,
               "remaining": describe_budget(left) if left is not None else None, "release": stored.release,
               "receipt": receipt.as_dict() if receipt else None,
               "bias": report_estimates(plan, stored.measured, confidence)}  # fmt: skip
    parameters = {"sql": plan.text, "strategy": plan.strategy}
    provenance = Provenance(curator.ledger.policy, versions, parameters, time=stored.time)
    return Release(rows, _guarantee(plan), provenance, details)


def _guarantee(plan: QueryPlan) -> Guarantee:
    from deniable.curator.charge import display_delta
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.release import Guarantee, Technique

    unit = plan.unit
    if unit is None or plan.free:
        return Guarantee.differential(Technique.DP_QUERY, str(unit or "nobody"), budget(0))
    if isinstance(plan.cost, ZCDP):
        delta = plan.cost.delta + display_delta()
        epsilon = epsilon_of_zcdp(plan.cost.rho, display_delta())
        return Guarantee.differential(
            Technique.DP_QUERY, unit, plan.cost, unit.neighboring, epsilon=epsilon, delta=delta
        )
    return Guarantee.differential(Technique.DP_QUERY, unit, plan.cost, unit.neighboring)
