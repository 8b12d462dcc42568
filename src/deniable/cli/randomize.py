"""`deniable randomize`, `estimate` and `ladder`: a table made deniable record by record, and what it still says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, show_progress, stress, watch_stop
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

Source = Annotated[str | None, typer.Argument(help="The table's file.", show_default="as the policy says")]
RequiredPolicy = Annotated[Path, typer.Option("--policy", "-p", help="The policy file.", show_default=False)]
TableOption = Annotated[str | None, typer.Option("--table", help="A table of the policy.", show_default=False)]
RANDOMIZE_EXAMPLES = (
    "Example: deniable randomize salaries.parquet --policy salaries.yaml --epsilon 2 -c job -c salary -o told.parquet"
)
ESTIMATE_EXAMPLES = "Example: deniable estimate told.parquet --mean salary --by job"
LADDER_EXAMPLES = (
    "Example: deniable ladder salaries.parquet -p salaries.yaml --label job -f salary --accuracy 0.6 -o ladder.html"
)


def randomize(
    policy: RequiredPolicy,
    out: Annotated[Path, typer.Option("--out", "-o", help="A .parquet or .csv file to write.", show_default=False)],
    epsilon: Annotated[
        str,
        typer.Option("--epsilon", "-e", help="Privacy loss of one record; all records of a person are charged."),
    ],
    source: Source = None,
    table: TableOption = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", "-c", help="NAME, or NAME=EPSILON.", show_default="all declared"),
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Randomize a table record by record: categories by k-ary randomized response, bounded numbers by Laplace noise."""
    names, own = _read_columns(column or [])
    with watch_stop(keeps=True):
        from deniable.curator.context import ledger_of
        from deniable.curator.survey import randomize as randomized

        done = randomized(source, policy, out, epsilon, table, names or None, own, ledger_of(policy, ledger))
    emit(done.to_dict(), as_json, lambda console: _print_randomized(console, done))


def estimate(
    file: Annotated[Path, typer.Argument(help="A table that `randomize` wrote.", show_default=False)],
    mean: Annotated[str | None, typer.Option("--mean", help="A number to average.", show_default=False)] = None,
    by: Annotated[str | None, typer.Option("--by", help="The column that forms groups.", show_default=False)] = None,
    regress: Annotated[
        str | None, typer.Option("--regress", help="A number to explain by others.", show_default=False)
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", help="The columns to explain it by, with commas.", show_default=False)
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    as_json: JsonFlag = False,
) -> None:
    """Recover counts and means from a randomized table, with intervals that account for the noise."""
    from deniable.curator.survey import estimate_released as estimated

    features = [name.strip() for name in (on or "").split(",") if name.strip()]
    found = estimated(file, confidence, mean, by, regress, features)
    emit(found.to_dict(), as_json, lambda console: _print_estimates(console, found))


def ladder(
    policy: RequiredPolicy,
    label: Annotated[str, typer.Option("--label", help="The column to predict.", show_default=False)],
    feature: Annotated[list[str], typer.Option("--feature", "-f", help="A column to predict by.", show_default=False)],
    acceptable: Annotated[float, typer.Option("--accuracy", help="The accuracy that is good enough, from 0 to 1.")],
    source: Source = None,
    table: TableOption = None,
    epsilons: Annotated[str, typer.Option(help="The epsilons to try, separated by commas.")] = "16,8,4,2,1,0.5,0.25",
    repeats: Annotated[int, typer.Option(help="Runs at each epsilon.", min=1)] = 5,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a page.", show_default=False)] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Train on randomized records at decreasing epsilon; keep the smallest that is accurate enough."""
    from deniable.curator.survey import sweep_epsilon as climbed
    from deniable.storage import refuse_other_than_page

    refuse_other_than_page(out)
    with show_progress("Training at each epsilon") as told:
        rungs = [part.strip() for part in epsilons.split(",") if part.strip()]
        done = asdict(climbed(source, policy, label, feature, rungs, acceptable, table, repeats, told, ledger))
    if out is not None:
        from deniable.reports.page import write
        from deniable.reports.survey import build_sweep_page

        write(build_sweep_page(done), out)
    emit(done, as_json, lambda console: _print_sweep(console, done, out))


def _read_columns(written: list[str]) -> tuple[list[str], dict[str, str]]:
    """Names, and the epsilons given with some of them."""
    pairs = [part.partition("=") for part in written]
    if any(not name for name, _, _ in pairs):
        raise ParameterError("a column has no name", expected="NAME or NAME=EPSILON")
    return [name for name, _, _ in pairs], {name: amount for name, _, amount in pairs if amount}


def _print_randomized(console: Console, done: Mapping[str, Any]) -> None:
    console.print(f"{done['rows']:,} records written to {done['written']}", markup=False)
    for sentence in done["words"]:
        console.print(f"  {sentence}", markup=False)


def _print_estimates(console: Console, found: Mapping[str, Any]) -> None:
    console.print(f"{found['rows']:,} records, epsilon {found['epsilon']:g} each; {found['confidence']:.0%} intervals")
    for column in found["columns"]:
        console.print(stress(column["column"], before="\n"))
        if "mean" in column:
            console.print(f"  mean {_render_interval(column['mean'], 'mean')}", markup=False)
        for row in column.get("counts", ()):
            label = "(missing)" if row["label"] is None else row["label"]
            console.print(f"  {label}: {_render_interval(row, 'count')}", markup=False)
    for row in found.get("means", ()):
        group = "(missing)" if row["group"] is None else row["group"]
        console.print(f"  mean of {group}: {_render_interval(row, 'mean')}", markup=False)

    for row in found.get("coefficients", ()):
        console.print(f"  {row['term']}: {_render_interval(row, 'value')}", markup=False)


def _render_interval(row: Mapping[str, Any], key: str) -> str:
    value = "unknown" if row[key] is None else f"{row[key]:,.2f}"
    if row["low"] is None:
        return f"{value}  (no interval: too few records for this noise)"
    return f"{value}  [{row['low']:,.2f}, {row['high']:,.2f}]"


def _print_sweep(console: Console, done: Mapping[str, Any], out: Path | None) -> None:
    console.print(f"accuracy without noise {done['baseline']:.1%}, by guessing {done['majority']:.1%}")
    for rung in done["rungs"]:
        mark = "keep" if rung["epsilon"] == done["chosen"] else ""
        console.print(f"  epsilon {rung['epsilon']:<7g} accuracy {rung['accuracy']:.1%}  {mark}")
    if done["chosen"] is None:
        console.print("No epsilon is accurate enough.")
    else:
        console.print(f"Smallest acceptable epsilon: {done['chosen']:g}")
    if out is not None:
        console.print(f"Page written to {out}", markup=False)
