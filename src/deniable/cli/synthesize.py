"""`deniable synthesize`, `describe`, `generate`: synthetic rows in place of people's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.attack import print_attacks, read_limits
from deniable.cli.inspect import print_utility
from deniable.cli.terminal import JsonFlag, LedgerOption, emit, open_curator, show_progress, watch_stop
from deniable.errors import pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.synthesize.gate import GateVerdict
    from deniable.release import Release

EXAMPLES = """\b
Examples:
  deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-6 -o synthetic.parquet
  deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-6 --method mst --rows 1000 -o few.csv
  deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-6 --assess -o synthetic.parquet
  deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-6 --attack --report proof.html -o out.csv
  deniable synthesize visits -p town/policy.yaml --epsilon 1 --delta 1e-6 --linked -o histories.parquet
  deniable synthesize patients -p town/policy.yaml --epsilon 1 --delta 1e-6 --linked -o made/patients.parquet
  deniable describe visits -p town/policy.yaml --epsilon 1 --delta 1e-6 -o visits.model.json
  deniable generate visits.model.json --rows 5000 --seed 7 -o more.parquet
  deniable generate visits.model.json --where sex=F,payer=private --rows 500 -o women.csv
"""

TableName = Annotated[str, typer.Argument(help="The table's name in the policy.")]
PolicyFile = Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")]
Epsilon = Annotated[str | None, typer.Option(help="Epsilon to spend, such as 1.")]
Delta = Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")]
Rho = Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")]
MethodName = Annotated[
    str, typer.Option(help="auto, mst, correlated, independent, mwem, hierarchical, or random (costs nothing).")
]
WorkloadNames = Annotated[
    list[str] | None, typer.Option("--workload", help="Columns to see together: age,sex,ward. May be repeated.")
]
AreasName = Annotated[str | None, typer.Option(help="The column whose areas add up (hierarchical).")]
Columns = Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")]
Rows = Annotated[int | None, typer.Option(min=0, help="How many rows. [default: as many as estimated]")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the drawing (never of the noise).")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write.")]
Linked = Annotated[
    bool, typer.Option("--linked", help="People with their rows (of a parent: in all children); --rows counts people.")
]

Memory = Annotated[int, typer.Option(min=1, help="With --linked: how many rows before a row it depends on.")]

MOSTLY_NOISE = 0.25
"""The part of a column's rows beyond which noise is what the rows show."""


def synthesize(
    table: TableName,
    out: Out,
    policy: PolicyFile = Path("policy.yaml"),
    epsilon: Epsilon = None,
    delta: Delta = "0",
    rho: Rho = None,
    method: MethodName = "auto",
    columns: Columns = None,
    workload: WorkloadNames = None,
    areas: AreasName = None,
    rows: Rows = None,
    seed: Seed = 0,
    linked: Linked = False,
    memory: Memory = 1,
    assess: Annotated[bool, typer.Option("--assess", help="Also compare with the real rows, for the steward.")] = False,
    attack: Annotated[bool, typer.Option("--attack", help="Attack the rows first, and stop at a limit.")] = False,
    held_out: Annotated[float, typer.Option(help="Share of people the model never sees: the control group.")] = 0.1,
    control: Annotated[
        str | None, typer.Option(help="Rows of other people (of linked tables, a folder) instead.")
    ] = None,
    attacks: Annotated[int, typer.Option(min=1, help="Targets for each attack.")] = 1000,
    most: Annotated[list[str] | None, typer.Option(help="ATTACK=SHARE: stop when more people are exposed.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the steward's page (HTML).")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write synthetic rows of a table with differential privacy, with their model and their statement.

    With --attack, membership, singling out, linkability and inference are tried first, each beside a control group. A
    limit that is passed (release: attack: most, or --most) stops the release: nothing is written, exit code 2.
    """
    from deniable.curator.synthesize import gate, inspect, run
    from deniable.outputs import claim_outputs

    with (
        open_curator(policy, ledger, keeps=False) as curator,
        claim_outputs(out, pages=[report], beside=[policy], rows=True),
        show_progress("Drawing rows") as tick,
    ):
        order = _build_order(
            table, (epsilon, delta, rho), method, columns, workload, areas, linked=linked, memory=memory
        )
        drawing: dict[str, Any] = {"rows": rows, "seed": seed, "progress": tick}
        proof = gate.Proof(held_out, control, attacks, read_limits(most)) if attack else None
        release, proved = gate.synthesize_checked(curator.context, order, out, proof, **drawing)
        # What compares with real rows is shown, and never sealed.
        view = inspect.steward(curator.context, run.model_path(out), table) if assess and release else None
        told = _build_document(out, release, proved, view)
        if report is not None:
            from deniable.reports import synthesis as drawn
            from deniable.reports.page import write

            write(drawn.build_release_page(told, view), report)
    emit(told, as_json, lambda console: _print_release(console, out, told))
    if release is None:
        raise typer.Exit(2)


def describe(
    table: TableName,
    out: Out,
    policy: PolicyFile = Path("policy.yaml"),
    epsilon: Epsilon = None,
    delta: Delta = "0",
    rho: Rho = None,
    method: MethodName = "auto",
    columns: Columns = None,
    workload: WorkloadNames = None,
    areas: AreasName = None,
    linked: Linked = False,
    memory: Memory = 1,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Learn a table's model within a budget; the file holds no row and may be shared."""
    from deniable.curator.sources import note_rows_learned
    from deniable.curator.synthesize import run

    with open_curator(policy, ledger) as curator:
        order = _build_order(
            table, (epsilon, delta, rho), method, columns, workload, areas, linked=linked, memory=memory
        )
        details = dict(run.describe_to_file(curator.context, order, out))
        schema, sources = curator.context.policy.table(table), curator.context.scope.sources
    if brought := note_rows_learned(schema, sources, order.columns, linked):
        details["notes"] = brought
    emit({"file": str(out), **details}, as_json, lambda console: _print_details(console, out, details))


def generate(
    model: Annotated[Path, typer.Argument(help="A model file.")],
    out: Out,
    rows: Rows = None,
    seed: Seed = 0,
    where: Annotated[str | None, typer.Option(help="Only rows with these values: sex=F,payer=private.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw rows from a model: no data is touched, nothing is charged."""
    from deniable.curator.synthesize import run

    with watch_stop(), show_progress("Drawing rows") as tick:
        made = run.generate(model, out, rows=rows, seed=seed, where=where, progress=tick)
    beside = _list_beside(model, out)
    also = f", and beside it {', '.join(path.name for path in beside)}" if beside else ""
    told = {"file": str(out), "rows": made} | ({"beside": [str(path) for path in beside]} if beside else {})
    emit(told, as_json, lambda console: console.print(f"Wrote {made:,} rows to {out}{also}", markup=False))


def _list_beside(model: Path, out: Path) -> list[Path]:
    """The files of the other tables of a model of people with their rows."""
    from deniable.curator.synthesize.run import name_model_files
    from deniable.synth.linked import is_linked_file, load_linked

    return [path for path in name_model_files(load_linked(model), out) if path != out] if is_linked_file(model) else []


def _build_order(
    table: str, stated: tuple[str | None, str, str | None], method: str, columns: str | None,
    workload: list[str] | None, areas: str | None, *, linked: bool, memory: int,
) -> Any:  # fmt: skip
    from deniable.curator.synthesize.run import place_order

    asked = [_split_names(names) for names in workload or ()]
    named = _split_names(columns) if columns else None
    rest: Any = {"method": method, "columns": named, "workload": asked, "areas": areas}
    return place_order(table, *stated, **rest, linked=linked, memory=memory)


def _split_names(listed: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in listed.split(","))


def _build_document(
    out: Path, release: Release | None, proved: GateVerdict | None, view: Mapping[str, Any] | None
) -> dict[str, Any]:
    """All that is reported to the steward; without a release, why there is none."""
    told = {"file": str(out) if release else None, **(release.details if release else {})}
    told |= {"utility": view["utility"]} if view is not None else {}
    return told | ({"attack": proved.to_dict()} if proved is not None else {})


def _print_release(console: Console, out: Path, told: Mapping[str, Any]) -> None:
    if told["file"] is not None:
        _print_details(console, out, told)
    if "attack" in told:
        _print_attack(console, told["attack"])


def _print_attack(console: Console, found: Mapping[str, Any]) -> None:
    console.print("\nAttacked before release (for the steward, not for release)", style="bold")
    console.print(f"Control group: {found['control']}; {found['people_held_out']:,} rows on each side.", markup=False)
    print_attacks(console, found)
    for name in found["untried"]:
        console.print(f"FAILED: the policy limits {name}, which could not be tried", markup=False)
    for name, reason in found["inapplicable"].items():
        console.print(f"not limited here: {name} does not apply: {reason}", markup=False)
    console.print(found["remark"], markup=False, style="dim")
    if found["failed"]:
        stands = f"Nothing was written. The charge stands, because the data were touched: {found['charged']}."
        console.print(f"NOT RELEASED. {stands}", markup=False, style="bold red")


def _print_details(console: Console, out: Path, details: Mapping[str, Any]) -> None:
    if "rows" in details:
        console.print(f"Wrote {details['rows']:,} synthetic rows to {out}")
    columns, tables = pluralize(len(details["columns"]), "column"), len(details["measured"])
    joint = f"and {pluralize(tables, 'combination')} of two or three" if tables else "each by itself"
    console.print(f"Method {details['method']}: measured {columns}, {joint}")
    console.print(f"Why: {details['reason']}", markup=False)
    for note in details.get("notes", ()):
        console.print(f"Note: {note}", markup=False)
    for clique in details["measured"][:12]:
        console.print(f"  {clique}", markup=False)
    if len(details["measured"]) > 12:
        console.print(f"  ... and {len(details['measured']) - 12} more")
    for entry in details.get("asked", ()):
        console.print(f"Asked for {entry['table']}: {entry['how']}", markup=False)
    if details["made_anew"]:
        listed = ", ".join(details["made_anew"])
        console.print(f"Random new values, nothing learned from the data: {listed}", markup=False)
    noise = details["noise_in_a_table"]
    if noise is None:
        console.print("No table of several columns was measured: columns are drawn independently.")
    else:
        console.print(f"Noise alone moves such a table by about {noise:.1%} of the rows.")
    column = details["noise_in_a_column"]
    if column is not None:
        console.print(f"Noise alone moves a typical column by about {column:.1%} of the rows.")
    if column is not None and column > MOSTLY_NOISE:
        console.print("These rows are mostly noise: spend more, or describe fewer columns.")
    if "utility" in details:
        print_utility(console, details["utility"])
