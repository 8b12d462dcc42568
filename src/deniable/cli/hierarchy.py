"""`deniable hierarchy`: a tree of counts or sums in which children add up to their parents; and the public standards by
which values are generalized."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker, open_curator, stress
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.kanonymity.builders.library import Standard

EXAMPLES = """\b
Examples:
  deniable hierarchy visits payer sex diagnosis --epsilon 1
  deniable hierarchy visits payer sex --epsilon 1 --explain
  deniable hierarchy visits payer --aggregate "SUM(charge)" --epsilon 1 -o totals.csv
  deniable hierarchy --standards
  deniable hierarchy --standard icd10 E11.9 I10
"""


def hierarchy(
    source: Annotated[
        str, typer.Argument(help="A table of the policy, or tables joined: a JOIN b ON a.x = b.x.", show_default=False)
    ] = "",
    levels: Annotated[
        list[str] | None, typer.Argument(help="Columns, from the coarsest to the finest.", show_default=False)
    ] = None,
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 1.")] = None,
    delta: Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")] = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    aggregate: Annotated[str, typer.Option(help="What is added up: COUNT(*) or SUM of a column.")] = "COUNT(*)",
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="No cell below 0 (biases small cells).")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only explain: no private row is read.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write rows and statement to a file.")] = None,
    ledger: LedgerOption = None,
    analyst: Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)] = "",
    purpose: Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)] = "",
    standards: Annotated[bool, typer.Option("--standards", help="List the public standards for `hierarchy:`.")] = False,
    standard: Annotated[
        str, typer.Option(help="Show a standard, and the groups of values given as arguments.", show_default=False)
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Release a tree of counts or sums: total, groups, groups of groups; children add up to their parents exactly.

    With --standards or --standard: which public hierarchies a policy may name. Nothing is read or charged.
    """
    from deniable.curator.query.sql import write_answer
    from deniable.outputs import claim_outputs

    if standards or standard:
        _show_standards(standard, [source, *(levels or ())] if source else [], as_json)
        return
    if not levels:
        raise ParameterError(
            "A hierarchy needs a table and at least one column",
            expected="deniable hierarchy TABLE COLUMN COLUMN",
            remedy="Name them, or list the public standards with --standards",
        )
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "aggregate": aggregate}
    with open_curator(policy, ledger, charges=not explain) as curator, claim_outputs(out, rows=True):
        if explain:
            told = curator.explain_hierarchy(source, levels, **budget)
            emit(told.to_dict(), as_json, lambda console: _print_sets(console, told))
            return
        who = name_asker(analyst, purpose)
        answer = curator.hierarchy(source, levels, nonnegative=nonnegative, who=who, **budget)
        if out is not None:
            write_answer(curator.context, answer, out)
        document = {"rows": answer.to_pylist(), **dict(answer.release.details)}
        emit(document, as_json, lambda console: _print_tree(console, answer, levels))


def _show_standards(name: str, values: list[str], as_json: bool) -> None:
    """All standards, or one with its groups and those of given values."""
    from deniable.kanonymity.builders.library import STANDARDS, find_standard, list_groups

    if not name:
        shown = [{"name": s.name, "title": s.title, "levels": s.levels, "source": s.source} for s in STANDARDS.values()]
        emit(shown, as_json, lambda console: _print_standards(console, shown))
        return
    known = find_standard(name)
    document = {
        "name": known.name,
        "title": known.title,
        "levels": known.levels,
        "source": known.source,
        "example": known.example,
        "groups": list_groups(known),
        "values": _group_values(known, values),
    }
    emit(document, as_json, lambda console: _print_standard(console, document))


def _group_values(standard: Standard, values: list[str]) -> list[list[str]]:
    """Each value given with what it becomes, level by level."""
    import pyarrow as pa

    from deniable.kanonymity.builders.specs import make_builder
    from deniable.policy.schema import Spec

    options = {"name": standard.name, **({"other": True} if standard.find else {})}
    built = make_builder(Spec("standard", options)).hierarchy(
        "value", pa.array(list(dict.fromkeys(values)), pa.string())
    )
    return [[str(leaf), *map(str, row[1:-1])] for leaf, row in zip(built.leaves, built.rows(), strict=True)]


def _print_standards(console: Console, shown: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("name", "what", "levels, fine to coarse", box=None, header_style="bold")
    for each in shown:
        table.add_row(each["name"], each["title"], ", ".join(each["levels"]))
    console.print(table)
    console.print("Write hierarchy: {standard: NAME} in a policy, or --hierarchy COLUMN=standard:NAME", style="dim")


def _print_standard(console: Console, shown: Mapping[str, Any]) -> None:
    console.print(f"{shown['title']}, such as {shown['example']}", markup=False)
    console.print(f"Source: {shown['source']}", style="dim", markup=False)
    console.print(f"Levels, fine to coarse: {', '.join(shown['levels'])}", markup=False)
    for path in dict.fromkeys(groups[-2:] for groups in shown["groups"]) if not shown["values"] else ():
        console.print(f"  {' < '.join(path)}", markup=False)
    for row in shown["values"]:
        console.print(f"  {' < '.join(row)}", markup=False)


def _print_tree(console: Console, answer: Any, levels: list[str]) -> None:
    from rich.table import Table

    names = [level.rsplit(".", 1)[-1] for level in levels]
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name)
    table.add_column("value", justify="right")
    rows = answer.to_pylist()
    for row in rows[:60]:
        reach = (row["value_high"] - row["value_low"]) / 2
        value = stress(f"± {reach:,.4g}", style="dim", before=f"{row['value']:,} ")
        table.add_row(*(str(row[name] or "") for name in names), value)
    console.print(table)
    if len(rows) > 60:
        console.print(f"... and {len(rows) - 60:,} more rows; write them with --out")
    _print_sets(console, dict(answer.release.details))


def _print_sets(console: Console, told: Mapping[str, Any]) -> None:
    cost = ", ".join(f"{name} {value}" for name, value in told["cost"].items() if value != "0")
    console.print(f"Cost: {cost}")
    for part in told["sets"]:
        console.print(
            f"{part['name']}: {part['cells']:,} cells, share {part['share']} of the budget, standard error "
            f"{part['error_fitted']:,.4g} (as measured {part['error_measured']:,.4g})",
            style="dim",
        )
