"""`deniable inspect` and `parity`: how near a synthetic model is to the real rows, and which findings survive on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, open_curator, show_progress

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.release.record import Record

EXAMPLES = """\b
Examples:
  deniable inspect synthetic.parquet.model.json
  deniable inspect visits.model.json --marginal sex,payer --marginal ethnicity
  deniable inspect visits.model.json --against visits -p town/policy.yaml --report visits.html
  deniable inspect visits.model.json --against visits -p town/policy.yaml --regress "charge ~ sex + birth_date"
  deniable inspect visits.model.json --against visits -p town/policy.yaml --scores
  deniable inspect visits.model.json --against visits -p town/policy.yaml --findings town/findings.py
"""
WIDTH = 30
Marginals = Annotated[list[str] | None, typer.Option(help="Columns whose table to show: sex,payer. Repeat it.")]


def inspect(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    against: Annotated[str | None, typer.Option(help="The real table's name in the policy: for the steward.")] = None,
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    marginal: Marginals = None,
    target: Annotated[str | None, typer.Option(help="The column that a classifier is to guess.")] = None,
    regress: Annotated[str | None, typer.Option(help="A regression to compare: charge ~ sex + birth_date.")] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Also SDMetrics, SDNist and TSTR scores (with --against).")
    ] = False,
    findings: Annotated[
        list[Path] | None, typer.Option(help="Conclusions to draw from both (.py or .sql, with --against). Repeat it.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a model measured and how noisy; with --against, compare with the real rows (not for release)."""
    from deniable.curator.synthesize import inspect as synthesize_inspect
    from deniable.outputs import claim_outputs
    from deniable.reports import synthesis
    from deniable.reports.page import write

    marginals = tuple(dict.fromkeys(_split_words(words, ",") for words in marginal or ()))
    question = synthesize_inspect.Question(
        marginals, target, synthesize_inspect.read_formula(regress), scores, tuple(findings or ())
    )
    with claim_outputs(pages=[report], beside=[model]):
        if against is None:
            view: Record = synthesize_inspect.public(model, question)
        else:
            with open_curator(policy, ledger, charges=False) as curator, claim_outputs(pages=[report]):
                view = synthesize_inspect.steward(curator.context, model, against, question)
        if report is not None:
            write(synthesis.build_model_page(view), report)
    emit(view.to_dict(), as_json, lambda console: _print_view(console, view))


def _split_words(words: str, between: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(between) if word.strip())


def _print_view(console: Console, view: Mapping[str, Any]) -> None:
    if "link" not in view:
        _print_model(console, view)
        return
    tables = view["tables"] if "tables" in view else {view["link"]["child"]: view["rows"]}
    for name, part in ((view["link"]["parent"] or "people", view["people"]), *tables.items()):
        console.print(f"\n{name}", style="bold underline", markup=False)
        _print_model(console, part)


def _print_model(console: Console, view: Mapping[str, Any]) -> None:
    console.print(f"Method {view['method']}, about {view['estimated_rows']:,} rows. {view['reason']}", markup=False)
    for histogram in view["histograms"]:
        console.print(f"\n{histogram['column']}", style="bold", markup=False)
        for bar in histogram["bars"]:
            _print_bar(console, bar)
    if view["associations"]:
        console.print("\nAssociations, 0 to 1", style="bold")
    for entry in sorted(view["associations"], key=lambda entry: -entry["strength"])[:12]:
        real = f"  real {entry['real']:.2f}" if "real" in entry else ""
        console.print(f"  {entry['strength']:.2f}{real}  {entry['first']} x {entry['second']}", markup=False)
    for entry in view["marginals"][: view["asked_marginals"]]:
        _print_marginal(console, entry)
    if "utility" in view:
        print_utility(console, view["utility"])


def _print_bar(console: Console, bar: dict[str, Any]) -> None:
    drawn = "#" * round(WIDTH * bar["share"])
    real = f"  real {bar['real']:.1%}" if "real" in bar else ""
    text = f"  {bar['value'][:28]:28s} {bar['share']:6.1%} +- {bar['error']:.1%}{real}  {drawn}"
    console.print(text, markup=False)


def _print_marginal(console: Console, entry: dict[str, Any]) -> None:
    console.print(f"\n{' x '.join(entry['columns'])}", style="bold", markup=False)
    by = "not measured together: drawn from what was, so no error bar is known"
    console.print(f"  {'measured in ' + ' x '.join(entry['measured']) if entry['measured'] else by}", markup=False)
    for cell in entry["cells"]:
        error = f" +- {cell['error']:.1%}" if cell["error"] is not None else ""
        real = f"  real {cell['real']:.1%}" if "real" in cell else ""
        console.print(f"  {cell['share']:6.1%}{error}{real}  {', '.join(cell['values'])}", markup=False)


def print_utility(console: Console, found: Mapping[str, Any]) -> None:
    """Print a comparison with the real rows, of people and of their rows where they are linked."""
    if "variation" not in found:
        for name, part in found.items():
            console.print(f"\n{name}", style="bold", markup=False)
            print_utility(console, part)
        return
    console.print("\nAgainst the real rows (for the steward, not for release)", style="bold")
    for entry in found["variation"]:
        names, worst = entry["worst"][0]
        text = (
            f"  {entry['way']}-way: total variation {entry['mean']:.3f}, k-marginal score {entry['score']:.0f} of 1000"
        )
        console.print(f"{text}, worst {' x '.join(names)} {worst:.3f}", markup=False)
    if found["classifier"] is not None:
        rates = found["classifier"]
        console.print(
            f"  {rates['target']} guessed on unseen real rows: {rates['on_synthetic']:.1%} trained on synthetic rows, "
            f"{rates['on_real']:.1%} on real ones, {rates['majority']:.1%} by the most frequent value",
            markup=False,
        )
    if found["workload"] is not None:
        console.print(f"  Of the marginals asked for, total variation {found['workload']['mean']:.3f} on average:")
        for names, far in found["workload"]["marginals"]:
            console.print(f"    {far:.3f}  {' x '.join(names)}", markup=False)
    if found["regression"] is not None:
        _print_regression(console, found["regression"])
    if "scores" in found:
        _print_scores(console, found["scores"])
    if "findings" in found:
        _print_findings(console, found["findings"])


def _print_findings(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    kept = sum(each["kept"] for each in found)
    console.print(f"\n{kept} of {len(found)} findings are kept (for the steward, not for release)", style="bold")
    for each in found:
        real, made = (_render_conclusion(each[side]) for side in ("real", "synthetic"))
        word = "kept" if each["kept"] else "LOST"
        console.print(f"  {word}  {each['text']} real: {real}, synthetic: {made}", markup=False)


def _render_conclusion(said: bool | float | None) -> str:
    if said is None:
        return "nothing"
    return ("yes" if said else "no") if isinstance(said, bool) else f"{said:.4g}"


WORST = 3
"""How many of a property's lowest scores are printed; `--json` has all."""


def _print_scores(console: Console, found: Mapping[str, Any]) -> None:
    console.print("\nStandard scores (for the steward, not for release)", style="bold")
    for title, report in (("quality", found["quality"]), ("diagnostic", found["diagnostic"])):
        console.print(f"  SDMetrics {title}: {_percent(report['value'])}", markup=False)
        for each in report["properties"]:
            low = [f"{' x '.join(s['columns'])} {_percent(s['value'])}" for s in each["scores"] if s["columns"]][:WORST]
            lowest = f", lowest: {', '.join(low)}" if low else ""
            console.print(f"    {each['name']} {_percent(each['value'])}{lowest}", markup=False)
    marginals = ", ".join(f"{score:.0f} with k = {k}" for k, score in found["k_marginal"].items())
    console.print(f"  SDNist k-marginal, of 1000: {marginals or 'not defined'}", markup=False)
    rates = found["tstr"]
    if rates is None:
        console.print("  TSTR: no column to predict, or too few rows", markup=False)
        return
    areas = [rates[f"area_on_{side}"] for side in ("synthetic", "real")]
    known = f" (area under ROC {areas[0]:.3f}, {areas[1]:.3f})" if None not in areas else ""
    trained = f"{rates['accuracy_on_synthetic']:.1%} trained on synthetic rows, {rates['accuracy_on_real']:.1%} on real"
    text = f"  TSTR, gradient boosting of {rates['target']}: {trained} ones{known}"
    console.print(f"{text}, {rates['majority']:.1%} by the most frequent value", markup=False)


def _percent(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.1%}"


def _print_regression(console: Console, found: dict[str, Any]) -> None:
    head = f"  {found['target']} explained by {', '.join(found['by'])}: intervals overlap by {found['overlap']:.0%}"
    console.print(f"{head}, {found['covered']:.0%} of the real coefficients lie in the synthetic ones", markup=False)
    for term in found["terms"]:
        real, made = (
            f"{e['value']:.4g} ({e['low']:.4g} to {e['high']:.4g})" for e in (term["real"], term["synthetic"])
        )
        console.print(f"    {term['name']}: real {real}, synthetic {made}, overlap {term['overlap']:.0%}", markup=False)


PARITY_EXAMPLES = """\b
Examples:
  deniable parity town/findings.py --table visits -p town/policy.yaml --methods all --epsilon 0.5,1,2,4,10 --runs 20
  deniable parity findings.sql --methods auto,mst --epsilon 1 --journal runs.jsonl --report parity.html
"""

Findings = Annotated[
    list[Path], typer.Argument(help="Python functions of a table (.py) or SQL statements (.sql): yes, no or an effect.")
]


def parity(
    findings: Findings,
    table: Annotated[str | None, typer.Option(help="The table's name in the policy, if there are several.")] = None,
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or all.")] = "all",
    epsilon: Annotated[str, typer.Option(help="Epsilons, separated by commas.")] = "0.5,1,2,4,10",
    delta: Annotated[str, typer.Option(help="Delta of every description.")] = "1e-9",
    runs: Annotated[int, typer.Option(min=1, help="Runs of each method at each epsilon.")] = 20,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes. [default: one for each core]")] = None,
    journal: Annotated[Path | None, typer.Option(help="Save finished runs in this file, and continue from it.")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Check which findings hold on synthetic rows: each is tried many times, for each method and epsilon.

    Nothing is charged, because nothing leaves: the outcome is for the steward.
    """
    import os

    from deniable.curator.synthesize.parity import Comparison, compare
    from deniable.reports.page import write
    from deniable.reports.tradeoffs import build_parity_page
    from deniable.storage import refuse_other_than_page

    refuse_other_than_page(report)
    named, epsilons = (tuple(word.strip() for word in words.split(",")) for words in (methods, epsilon))
    cores = workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or os.cpu_count()
    wanted = Comparison(table, tuple(findings), named, epsilons, delta, runs, journal, cores or 1)
    with open_curator(policy, ledger, charges=False) as curator, show_progress("Comparing") as tick:
        told = _build_document(compare(curator.context, wanted, tick))
    if report is not None:
        write(build_parity_page(told), report)
    emit(told, as_json, lambda console: _print_comparison(console, told))


def _build_document(found: Any) -> dict[str, Any]:
    """All of a comparison in plain values."""
    kept = [{"finding": k.finding, "method": k.method, "epsilon": k.epsilon, "kept": k.kept, "runs": k.runs,
             "share": k.share, "low": k.low, "high": k.high} for k in found.kept]  # fmt: skip
    findings = [{"finding": name, "text": text, "real": real} for name, text, real in found.findings]
    means = [
        {"method": method, "epsilon": epsilon, "share": share} for (method, epsilon), share in found.averages.items()
    ]
    return {"kept": kept, "averages": means, "findings": findings, "unsuited": dict(found.unsuited)}


def _print_comparison(console: Console, told: dict[str, Any]) -> None:
    from rich.table import Table

    epsilons = list(dict.fromkeys(row["epsilon"] for row in told["kept"]))
    for method in dict.fromkeys(row["method"] for row in told["kept"]):
        table = Table(
            box=None, header_style="bold", title=f"{method}: kept in this share of runs", title_justify="left"
        )
        table.add_column("finding")
        for epsilon in epsilons:
            table.add_column(f"eps {epsilon:g}", justify="right")
        for finding in told["findings"]:
            shares = {row["epsilon"]: f"{row['share']:.0%}" for row in told["kept"]
                      if (row["method"], row["finding"]) == (method, finding["finding"])}  # fmt: skip
            table.add_row(finding["finding"], *(shares.get(epsilon, "") for epsilon in epsilons))
        means = {row["epsilon"]: f"{row['share']:.0%}" for row in told["averages"] if row["method"] == method}
        table.add_row("all", *(means[epsilon] for epsilon in epsilons), style="bold")
        console.print(table)
    for method, why in told["unsuited"].items():
        console.print(f"{method} was left out: {why}", markup=False, style="dim")
    console.print("This compares with real rows: it is for the steward, not for release.", style="dim")
