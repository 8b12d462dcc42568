"""`deniable train` and `predict`: models that may be shared, learned from people who stay deniable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, open_curator, open_errors, show_progress, watch_stop
from deniable.errors import ParameterError
from deniable.outputs import claim_outputs

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  deniable train visits -p town/policy.yaml --target charge --epsilon 1 -o charge.json
  deniable train visits -p town/policy.yaml --target diagnosis --positive I10 --features birth_date,sex --epsilon 1 -o i10.json
  deniable train visits -p town/policy.yaml --target charge --method boosted --epsilon 1 --evaluate --report charge.html -o charge.json
  deniable train visits -p town/policy.yaml --method kmeans --count 4 --features birth_date,charge --epsilon 1 -o groups.json
  deniable train visits -p town/policy.yaml --method pca --features birth_date,charge,sex --epsilon 1 -o axes.json
  deniable train visits -p town/policy.yaml --target charge --choose method=linear,boosted --epsilon 1 -o best.json
  deniable predict charge.json new-visits.csv -o predicted.csv
"""  # noqa: E501  an example is one line
SHOWN = 15


def train(
    table: Annotated[str, typer.Argument(help="The table's name in the policy.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the model (JSON).")],
    target: Annotated[
        str | None,
        typer.Option(help="The column to predict: bounded, or with declared categories. kmeans and pca have none."),
    ] = None,
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    features: Annotated[
        str | None, typer.Option(help="Columns to learn from, separated by commas. [default: all usable ones]")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 1.")] = None,
    delta: Annotated[str | None, typer.Option(help="Delta to spend. [default: 1e-6]")] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto (linear or logistic), linear, logistic, poisson, boosted, multinomial, bayes, mlp, kmeans "
            "or pca."
        ),
    ] = "auto",
    count: Annotated[
        int | None, typer.Option(min=1, help="How many groups (kmeans) or components (pca; 2 by default) to find.")
    ] = None,
    positive: Annotated[str | None, typer.Option(help="The value to tell from all others.")] = None,
    penalty: Annotated[float | None, typer.Option(min=0, help="How strongly coefficients are pulled to 0.")] = None,
    turns: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Passes over the rows. [default: 20 for logistic and multinomial, 30 for poisson, 8 for boosted, "
            "300 for mlp, 6 for kmeans]",
        ),
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(
            help="Largest part of a row's gradient that counts, 0 to 1; of mlp, the longest gradient of a person. "
            "[default: the method's own]"
        ),
    ] = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Hidden units of mlp. [default: 16]")] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Chance of a person to be in a turn of mlp, up to 1. [default: 1/10, or 1 without a delta]"),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(min=0, help="How far a turn of mlp goes. [default: 0.03]")
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(help="Values to choose among privately, such as penalty=1e-5,1e-2; may be repeated."),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Hold out a fifth of the people, and test on them, for the steward.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Write a page with effects, errors and price (HTML); if evaluated, for the steward."),
    ] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Learn a model within a budget: coefficients, features and guarantee in one file that holds no row."""
    from deniable.curator import train as curator_train

    chosen = [name.strip() for name in features.split(",")] if features else None
    settings: dict[str, Any] = {
        "method": method,
        "positive": positive,
        "penalty": penalty,
        "turns": turns,
        "clip": clip,
    }
    settings |= {"hidden": hidden, "rate": rate, "learning_rate": learning_rate}
    settings |= {"count": count, "choose": read_choices(choose or [])}
    budget = {"epsilon": epsilon, "delta": delta, "rho": rho}
    with (
        open_curator(policy, ledger, keeps=False) as curator,
        claim_outputs(out, pages=[report], beside=[policy]),
        show_progress("Learning") as tick,
    ):
        rest: dict[str, Any] = {
            "features": chosen,
            **budget,
            **settings,
            "evaluate": evaluate,
            "out": out,
            "progress": tick,
        }
        trained = curator.train(table, target, **rest)
        if report is not None:
            from deniable.reports.page import write
            from deniable.reports.tradeoffs import build_training_page

            write(build_training_page(curator_train.describe_model(trained)), report)
    details = curator_train.describe_training(trained)
    emit({"file": str(out), **details.to_dict()}, as_json, lambda console: _print_model(console, out, details))
    for note in () if as_json else details.notes or ():
        open_errors().print(note, markup=False)


def read_choices(given: list[str]) -> dict[str, list[Any]]:
    """Settings with their values, from words such as turns=5,20.

    >>> read_choices(["turns=5,20", "method=logistic,boosted"])
    {'turns': [5, 20], 'method': ['logistic', 'boosted']}
    """
    kinds: dict[str, Callable[[str], Any]] = {"turns": int, "penalty": float, "hidden": int, "learning_rate": float}
    found: dict[str, list[Any]] = {}
    for words in given:
        name, _, values = words.partition("=")
        try:
            found[name.strip()] = [kinds.get(name.strip(), str)(value.strip()) for value in values.split(",")]
        except ValueError:
            raise ParameterError(
                f"the values of '{name.strip()}' cannot be read as numbers", expected="--choose turns=5,20"
            ) from None
    return found


def predict(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    table: Annotated[str, typer.Argument(help="A file, folder, pattern or duckdb:FILE#TABLE.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the rows with their predictions.")],
    as_json: JsonFlag = False,
) -> None:
    """Add a prediction to every row of a table. Nothing is charged; the rows stay as private as they were."""
    from deniable.curator import train as curator_train

    with watch_stop(), show_progress("Predicting") as tick:
        made = curator_train.predict(model, table, out, tick)
    emit({"file": str(out), "rows": made}, as_json, lambda console: console.print(f"Wrote {made:,} rows to {out}"))


def _print_model(console: Console, out: Path, details: Mapping[str, Any]) -> None:
    if "shares" in details:
        _print_structure(console, out, details)
        return
    goal = f"{details['target']} = {details['positive']}" if "positive" in details else details["target"]
    features = ", ".join(details["features"])
    console.print(f"Wrote {out}: {details['method']} model of {goal} from {features}", markup=False)
    console.print(f"Learned from about {details['estimated_rows']:,} rows (a noisy count).")
    if "chosen" in details:
        told = ", ".join(f"{name} {value}" for name, value in details["chosen"].items())
        console.print(f"Chosen, within the same budget: {told}", markup=False)
    entries = details["coefficients"]
    largest = sorted(entries, key=lambda entry: -abs(entry["coefficient"]) / (entry["error"] or 1.0))[:SHOWN]
    for entry in largest:
        error = "" if entry["error"] is None else f" ± {entry['error']:.4g}"
        console.print(f"  {entry['feature']:40s} {entry['coefficient']:+.4g}{error}", markup=False)
    if any(entry["error"] is not None for entry in largest):
        console.print("  (± one standard deviation, of noise, sample and what shrinking may hide)")
    if len(entries) > len(largest):
        console.print(f"  ... and {len(entries) - len(largest)} more in the file")
    if "evaluation" in details:
        _print_evaluation(console, details["evaluation"])


def _print_structure(console: Console, out: Path, details: Mapping[str, Any]) -> None:
    """Each group with its means, or each component with its loadings."""
    shares, entries, features = details["shares"], details["coefficients"], ", ".join(details["features"])
    kind, whole = details["target"], "rows" if details["target"] == "group" else "variance"
    console.print(f"Wrote {out}: {len(shares)} {kind}s, from {features}", markup=False)
    console.print(f"Learned from about {details['estimated_rows']:,} rows (a noisy count).")
    for number, share in enumerate(shares, start=1):
        name = f"{kind} {number}: "
        console.print(f"  {kind} {number}: {share:.1%} of the {whole}")
        own = [each for each in entries if each["feature"].startswith(name)][1 : SHOWN + 1]
        for each in own:
            told = f"{each['coefficient']:,.4g} ± {each['error']:.2g}"
            console.print(f"    {each['feature'].removeprefix(name):38s} {told}", markup=False)
    console.print("  (± one standard deviation, of noise and sample)")
    if "evaluation" in details:
        _print_evaluation(console, details["evaluation"])


def _print_evaluation(console: Console, figures: Mapping[str, Any] | None) -> None:
    if figures is None:
        console.print("No row was held out to test on.")
        return
    shown = ", ".join(f"{name.replace('_', ' ')} {_render_figure(value)}" for name, value in figures.items())
    console.print(f"On people it has not seen (for the steward, not to be released): {shown}")


def _render_figure(value: float | None) -> str:
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
