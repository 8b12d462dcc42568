"""`deniable query`: ask in SQL, get noisy numbers with their error; or only see what it would cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker, open_curator

if TYPE_CHECKING:
    from rich.console import Console

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
        str | None, typer.Option(help="Part of the budget for counting who was clamped or cut, such as 0.1.")
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
            emit(told.to_dict(), as_json, lambda console: _print_plan(console, told))
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
    cost = _render_cost(details["cost"])
    emit({**row, **details}, as_json, lambda console: console.print(f"{told}\nCost: {cost}"))


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
    console.print(
        f"Cost: {_render_cost(details['cost']) or 'nothing'}"
        + (f"; left: {_render_cost(details['remaining'])}{enough}" if details.get("remaining") else "")
    )
    console.print(f"Epoch: {details['epoch']}", style="dim", markup=False)
    for found in details["bias"]:
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


def _render_cost(cost: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in cost.items() if value != "0") or "nothing"


def _print_plan(console: Console, told: Mapping[str, Any]) -> None:
    console.print(f"Cost: {_render_cost(told['cost'])}  (strategy: {told['strategy']}; protects {told['unit']})")
    if told.get("remaining"):
        more = told.get("more_like_this")
        fits = f"; {more:,} more like this would fit" if more is not None else ""
        console.print(f"Left before this question: {_render_cost(told['remaining'])}{fits}")
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
