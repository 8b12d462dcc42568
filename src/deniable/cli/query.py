"""`deniable query`: ask in SQL, get noisy numbers with their error; or only see what it would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker, open_curator

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator import Curator
    from deniable.curator.query.sql import QueryAnswer
    from deniable.release.record import Record

EXAMPLES = """\b
Examples:
  deniable query "SELECT sex, COUNT(*) FROM visits GROUP BY sex" --epsilon 0.5
  deniable query "SELECT AVG(charge) FROM visits" --epsilon 1 --explain
  deniable query "SELECT COUNT(*) FROM visits WITHIN 100 CONFIDENCE 0.95"
"""


def query(
    sql: Annotated[str, typer.Argument(help="One SELECT statement.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 0.5.")] = None,
    delta: Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")] = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Only explain: no data is touched.")] = False,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="Cut counts off at 0 (biases sums).")] = False,
    consistent: Annotated[
        bool, typer.Option("--consistent", help="Let the levels of ROLLUP add up, at no cost.")
    ] = False,
    bias_share: Annotated[
        str | None, typer.Option(help="Share of the budget for counting who was clamped or cut off, such as 0.1.")
    ] = None,
    curve: Annotated[
        Path | None, typer.Option("--curve", help="Only write a page of expected error against epsilon.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write rows and statement to a file.")] = None,
    ledger: LedgerOption = None,
    analyst: Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)] = "",
    purpose: Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Ask a question in SQL; the answer has noise, and says how much."""
    from deniable.curator.query.sql import write_answer
    from deniable.storage import refuse_unwritable

    refuse_unwritable(out, rows=True)
    refuse_unwritable(curve)
    who = name_asker(analyst, purpose)
    explain = explain or sql.lstrip().upper().startswith("EXPLAIN")
    with open_curator(policy, ledger, charges=not explain and curve is None) as curator:
        refuse_unwritable(out or curve)  # once more, since the files that are read are known by now
        if curve is not None:
            rows = curator.error_curve(sql, delta=delta, confidence=confidence, who=who)
            emit(
                {"curve": [row.to_dict() for row in rows]},
                as_json,
                lambda console: _print_curve_file(console, _write_curve_page(sql, rows, curve)),
            )
            return
        if explain:
            told = curator.explain(sql, epsilon=epsilon, delta=delta, rho=rho, who=who)
            left = curator.context.speak_for(who).state_left()
            emit(told.to_dict(), as_json, lambda console: _print_plan(console, told, left))
            return
        shown: dict[str, Any] = {
            "confidence": confidence,
            "nonnegative": nonnegative,
            "consistent": consistent,
            "bias_share": bias_share,
        }
        answer = curator.query(sql, epsilon=epsilon, delta=delta, rho=rho, who=who, **shown)
        if out is not None:
            write_answer(curator.context, answer, out)
        more = _count_more_like_this(curator, answer, sql, epsilon=epsilon, delta=delta, rho=rho, who=who)
        document = {"rows": answer.to_pylist(), **dict(answer.release.details), "more_like_this": more}
        emit(document, as_json, lambda console: _print_answer(console, answer, more))


BOUNDS_EXAMPLES = "Example: deniable bounds visits charge -p clinic.yaml --epsilon 0.1"


def bounds(
    table: Annotated[str, typer.Argument(help="The table's name in the policy.")],
    column: Annotated[str, typer.Argument(help="A column of numbers without declared bounds.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    epsilon: Annotated[str, typer.Option(help="Epsilon to spend.")] = "0.1",
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Find bounds of a column with noise, within a budget: powers of two between which most values lie."""
    with open_curator(policy, ledger) as curator:
        answer = curator.find_bounds(table, column, epsilon)
    (row,) = answer.to_pylist()
    told = (
        f"between: [{row['lower']:g}, {row['upper']:g}]"
        if row["found"]
        else "Nothing rose above the noise: spend more, or declare bounds from what you know of the subject."
    )
    details: dict[str, Any] = dict(answer.release.details)
    emit({**row, **details}, as_json, lambda console: console.print(f"{told}\n{answer.cost}", markup=False))


TableArgument = Annotated[str, typer.Argument(help="The table's name in the policy.")]
PolicyOption = Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")]
Epsilon = Annotated[str, typer.Option(help="Epsilon to spend, such as 0.5.")]
Delta = Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")]
Explain = Annotated[bool, typer.Option("--explain", help="Only explain: no data is touched.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Write rows and statement to a file.")]
Analyst = Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)]
Purpose = Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)]

TOP_EXAMPLES = "Example: deniable top visits diagnosis --count 5 -p clinic.yaml --epsilon 0.5"


def top(
    table: TableArgument,
    keys: Annotated[list[str], typer.Argument(help="The columns that form groups.")],
    epsilon: Epsilon,
    policy: PolicyOption = Path("policy.yaml"),
    count: Annotated[int, typer.Option("--count", "-k", min=1, help="How many groups.")] = 10,
    delta: Delta = "0",
    where: Annotated[str, typer.Option(help="A condition on rows, as in SQL.", show_default=False)] = "",
    explain: Explain = False,
    out: Out = None,
    ledger: LedgerOption = None,
    analyst: Analyst = "",
    purpose: Purpose = "",
    as_json: JsonFlag = False,
) -> None:
    """Find the largest groups by number of people, with noisy counts."""
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "where": where, "who": name_asker(analyst, purpose)}
    with _open(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_top(table, keys, count, **asked), as_json)
        else:
            _emit_answer(curator, curator.top(table, keys, count, **asked), out, as_json)


MARGINS_EXAMPLES = "Example: deniable margins visits sex,payer payer,diagnosis -p clinic.yaml --epsilon 1"


def margins(
    table: TableArgument,
    columns: Annotated[list[str], typer.Argument(help="Each table of counts: its columns, separated by commas.")],
    policy: PolicyOption = Path("policy.yaml"),
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 0.5.")] = None,
    delta: Delta = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    aggregate: Annotated[str, typer.Option(help="What is added up: COUNT(*) or SUM of a column.")] = "COUNT(*)",
    explain: Explain = False,
    out: Out = None,
    ledger: LedgerOption = None,
    analyst: Analyst = "",
    purpose: Purpose = "",
    as_json: JsonFlag = False,
) -> None:
    """Release several tables of counts or sums, measured together, that agree with each other."""
    listed = [[name.strip() for name in each.split(",") if name.strip()] for each in columns]
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "aggregate": aggregate}
    asked["who"] = name_asker(analyst, purpose)
    with _open(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_margins(table, listed, **asked), as_json)
        else:
            _emit_answer(curator, curator.margins(table, listed, **asked), out, as_json)


WATCH_EXAMPLES = 'Example: deniable watch "SELECT COUNT(*) FROM visits" --threshold 5000 --epsilon 1 --every 3600'


def watch(
    sql: Annotated[str, typer.Argument(help="One SELECT statement with one count.")],
    threshold: Annotated[int, typer.Option(help="The count that is waited for.")],
    epsilon: Epsilon,
    policy: PolicyOption = Path("policy.yaml"),
    every: Annotated[float, typer.Option(min=0, help="Seconds between two looks.")] = 60.0,
    checks: Annotated[int, typer.Option(min=1, help="How often to look, at most.")] = 1,
    explain: Explain = False,
    ledger: LedgerOption = None,
    analyst: Analyst = "",
    purpose: Purpose = "",
    as_json: JsonFlag = False,
) -> None:
    """Tell when a count passes a threshold: charged once, however often it looks."""
    import time

    who = name_asker(analyst, purpose)
    with _open(policy, ledger, None, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_watch(sql, threshold, epsilon, who=who), as_json)
            return
        held, looked = curator.watch(sql, threshold, epsilon, who=who), 0
        while looked < checks and not held.passed:
            time.sleep(every if looked else 0)
            held.check()
            looked += 1
    found = {"passed": held.passed, "threshold": threshold, "checks": looked, "error": held.error}
    told = f"The count has {'' if held.passed else 'not '}passed {threshold:,} (within about {held.error:,})."
    emit(found, as_json, lambda console: console.print(told, markup=False))


BLOCKS_EXAMPLES = (
    "Example: deniable sample-and-aggregate visits mine:slope --blocks 100 --between 0,10 -p clinic.yaml --epsilon 1"
)


def sample_and_aggregate(
    table: TableArgument,
    function: Annotated[str, typer.Argument(help="module:function of a table's rows, which gives a number.")],
    blocks: Annotated[int, typer.Option(min=1, help="How many disjoint groups of people it is computed on.")],
    between: Annotated[str, typer.Option(help="Least and largest value that it may give, such as 0,100.")],
    epsilon: Epsilon,
    policy: PolicyOption = Path("policy.yaml"),
    aggregate: Annotated[str, typer.Option(help="How the blocks are combined: median or mean.")] = "median",
    frames: Annotated[str, typer.Option(help="What the function is given: arrow, pandas or polars.")] = "arrow",
    explain: Explain = False,
    out: Out = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Compute any function on disjoint blocks of people and combine the results with noise; for the steward."""
    from deniable.curator.audit import find_function

    low, _, high = between.partition(",")
    asked: dict[str, Any] = {"blocks": blocks, "bounds": (low.strip(), high.strip()), "epsilon": epsilon}
    with _open(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_sample_and_aggregate(table, aggregate=aggregate, **asked), as_json)
            return
        call = find_function(function)
        answer = curator.sample_and_aggregate(call, table, aggregate=aggregate, frames=frames, **asked)
        _emit_answer(curator, answer, out, as_json)


def _open(policy: Path, ledger: str | None, out: Path | None, explain: bool) -> Curator:
    """The curator of a command that answers or only explains."""
    from deniable.storage import refuse_unwritable

    refuse_unwritable(out, rows=True)
    opened = open_curator(policy, ledger, charges=not explain)
    refuse_unwritable(out)  # once more, since the files that are read are known by now
    return opened


def _emit_answer(curator: Curator, answer: QueryAnswer, out: Path | None, as_json: bool) -> None:
    from deniable.curator.query.sql import write_answer

    if out is not None:
        write_answer(curator.context, answer, out)
    document = {"rows": answer.to_pylist(), **dict(answer.release.details)}
    emit(document, as_json, lambda console: _print_answer(console, answer, None))


def _emit_explanation(told: Record, as_json: bool) -> None:
    """Print an explanation, one line for each thing that it tells; statements stand in the JSON document."""
    document = told.to_dict()
    shown = {name: value for name, value in document.items() if name != "statement" and not isinstance(value, list)}
    lines = [f"{name.replace('_', ' ')}: {_say(value)}" for name, value in shown.items() if value is not None]
    emit(document, as_json, lambda console: console.print("\n".join(lines), markup=False))


def _say(value: Any) -> str:
    from deniable.curator.query.sql import describe_amounts

    return describe_amounts(value) if isinstance(value, Mapping) else str(value)


def _count_more_like_this(curator: Any, answer: Any, sql: str, **asked: Any) -> int | None:
    """How often the question would still fit: what is left, in words that need no epsilon; None without a limit."""
    if not answer.release.details.get("remaining"):
        return None
    more: int | None = curator.explain(sql, **asked)["more_like_this"]
    return more


def _write_curve_page(sql: str, rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    from deniable.reports.page import write
    from deniable.reports.tradeoffs import build_error_page

    return write(build_error_page(sql, rows), path)


def _print_curve_file(console: Console, path: Path) -> None:
    console.print(f"Wrote {path}: the expected error of each number against epsilon. No data was touched.")


def _print_answer(console: Console, answer: Any, more: int | None) -> None:
    from rich.table import Table

    from deniable.curator.query.sql import describe_amounts

    names = [name for name in answer.rows.column_names if not name.endswith(("_low", "_high"))]
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if f"{name}_low" in answer.rows.column_names else "left")
    for row in answer.to_pylist()[:50]:
        table.add_row(*(_format_cell(row, name) for name in names))
    console.print(table)
    if answer.rows.num_rows > 50:
        console.print(f"... and {answer.rows.num_rows - 50:,} more rows; write them with --out")
    details = answer.release.details
    enough = (
        "" if more is None else f", enough for about {more:,} more like this" if more else ", too little for another"
    )
    left = f"; {details['left']} is left{enough}" if details.get("left") else ""
    console.print(f"Cost: {describe_amounts(details['cost'] or {})}{left}", markup=False)
    console.print(f"Epoch: {details['epoch']}", style="dim", markup=False)
    for found in details.get("bias", ()):
        console.print(f"Bias: about {found['units']:,} ± {found['error']:,.4g} {found['counts']}")
    for note in details["notes"]:
        console.print(f"Note: {note}", style="dim")


def _format_cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return text
    return f"{text} [dim]± {(high - low) / 2:,.4g}[/]"


def _print_plan(console: Console, told: Mapping[str, Any], left: str) -> None:
    from deniable.curator.query.sql import describe_amounts

    cost = describe_amounts(told["cost"])
    console.print(f"Cost: {cost}  (strategy: {told['strategy']}; protects {told['unit']})", markup=False)
    if left:
        more = told.get("more_like_this")
        fits = f"; {more:,} more like this would fit" if more is not None else ""
        console.print(f"Left before this question: {left}{fits}", markup=False)
    console.print("Way: " + " -> ".join(f"{row['step']} ({row['tag']})" for row in told["relations"]))
    for row in told["aggregates"]:
        console.print(f"[bold]{row['aggregate']}[/]  keys {row['keys']}")
        for part in row["measurements"]:
            console.print(f"  {_render_measurement(part)}", highlight=False)
    for text in told["statements"]:
        console.print("Will run: " + text, style="dim", markup=False)
    for note in told["notes"]:
        console.print(f"Note: {note}", style="dim")


def _render_measurement(part: Mapping[str, Any]) -> str:
    """One line of an explanation: what is measured, how far one unit moves it, which noise, and how large."""
    scale = "" if part["scale"] is None else f" of scale {part['scale']:,.4g}"
    unit = " ranks" if part["error_in"] == "ranks" else ""
    return (
        f"{part['measures']}; stability: {part['stability']}; sensitivity {part['sensitivity']:,} in a group; "
        f"{part['mechanism']}{scale}; error at most {part['error']:,.4g}{unit} with {part['confidence']:.0%} "
        f"confidence; share {part['share']}"
    )
