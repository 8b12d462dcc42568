"""`deniable release`: check a released file, and read what is promised of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import Encoding, JsonFlag, LedgerOption, emit, show_progress
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Check a released file, and read what is promised of it.")

ReleasedFile = Annotated[Path, typer.Argument(help="The released file, or its statement NAME.release.json.")]


@app.command(epilog="Example: deniable release verify out.parquet --key 1f0c...  # the key stands in the register")
def verify(
    file: ReleasedFile,
    key: Annotated[str | None, typer.Option(help="The curator's public key, as its register shows it.")] = None,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="Also look the file up in its ledger.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a released file and its statement, and say what that proves (exit code 2 when something is wrong)."""
    from deniable.curator.governance.reports import verify_file as workflow

    if key is not None and not key.strip():
        raise ParameterError("the key is empty", remedy="Give the key of the register, or leave --key out")
    key = key or ""
    if policy is None:
        found = workflow(file, key)
    else:
        from deniable.curator.governance.steward import read_ledger

        with read_ledger(policy, ledger) as known:
            found = workflow(file, key, known)
    emit(found.to_dict(), as_json, lambda console: _print_verification(console, found))


@app.command(epilog="Example: deniable release show out.parquet")
def show(file: ReleasedFile, as_json: JsonFlag = False) -> None:
    """Say in plain words what a release promises, and where it came from."""
    from deniable.curator.governance.reports import show_statement as workflow

    statement = workflow(file)
    found = {**statement.body, "words": list(statement.words), "statement_sha256": statement.sha256}
    found["signed_by"] = statement.key or None
    emit(found, as_json, lambda console: _print_statement(console, found))


def _print_verification(console: Console, found: Mapping[str, Any]) -> None:
    proven = found["known_key"] or found["in_ledger"]
    words = "are what the curator wrote" if proven else "agree with each other; who made them is not proven"
    console.print(f"'{found['file']}' and its statement {words}.", markup=False)
    console.print(f"file       sha256 {found['sha256']}", markup=False)
    console.print(f"statement  sha256 {found['statement_sha256']}", markup=False)
    console.print(f"signed by  {found['signed_by'] or 'nobody'}", markup=False)
    for sentence in found["proves"]:
        console.print(f"- {sentence}", markup=False)


def _print_statement(console: Console, found: Mapping[str, Any]) -> None:
    origin = found["provenance"]
    console.print(f"{found['file']['name']}: {found['guarantee']['technique']}", style="bold", markup=False)
    for sentence in found["words"]:
        console.print(f"- {sentence}", markup=False)
    signed = found["signed_by"] or "nobody: whoever can write both files could have made this pair"
    console.print(f"\nSigned by {signed}.", markup=False)
    console.print(f"\nWritten {origin['time']} by {origin['code_version']}.", markup=False)
    console.print(f"Policy {origin['policy_hash'] or 'none'}", markup=False)
    if origin.get("epoch"):
        console.print(f"Epoch {origin['epoch']}", markup=False)
    for table, version in origin["data_versions"].items():
        console.print(f"Data {table} {version}", markup=False)
    for name, value in (origin["parameters"] | found["details"]).items():
        console.print(f"{name}: {value}", markup=False)


TABLES_EXAMPLES = """\b
Examples:
  deniable release tables wards.csv totals.csv --counts people --suppressed 1-4
  deniable release tables by_age.csv by_sex.csv by_age_and_sex.csv --counts n --small 4 --json
"""


@app.command(epilog=TABLES_EXAMPLES)
def tables(
    files: Annotated[list[str], typer.Argument(help="Tables of counts, as they would be published.")],
    counts: Annotated[str, typer.Option(help="The column of counts; empty or '*' where one is suppressed.")] = "count",
    suppressed: Annotated[str | None, typer.Option(help="Limits of suppressed counts, such as 4 or 1-4.")] = None,
    small: Annotated[int, typer.Option(help="Cells of at most so many people must not be certain.", min=0)] = 2,
    absent: Annotated[bool, typer.Option(help="Combinations that are not listed were suppressed too.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long; bounds found by then hold.")] = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Check tables of counts that will be published without noise: what do they reveal together?

    Every cell is bounded exactly. A row whose cell of a column is empty or says Total is a sum over that column. Exit
    code 2 when a suppressed cell can be worked out, or a cell of few people is certain.
    """
    from deniable.curator.attack import Order
    from deniable.curator.release_reports import check_tables

    order = Order("", counts=counts, suppressed=suppressed, absent=absent, seconds=seconds, encoding=encoding)
    found = check_tables(files, order, small)
    emit(found.to_dict(), as_json, lambda console: _print_tables(console, found, small))
    if found.failed:
        raise typer.Exit(2)


def _print_tables(console: Console, found: Mapping[str, Any], small: int) -> None:
    from deniable.cli.attack import MOST_CELLS, describe_cell

    told = f"{found['cells']} cells of {found['people']} people, {found['given_away']} of them certain"
    console.print(
        f"{told}; {found['recovered']} of {found['suppressed']} suppressed cells can be worked out", markup=False
    )
    for one in found["hidden"][:MOST_CELLS]:
        word = "worked out" if one["low"] == one["high"] else "suppressed"
        console.print(f"  {word}: {describe_cell(one)}", markup=False)
    few = [one for one in found["pinned"] if one["low"] <= small]
    for one in few[:MOST_CELLS]:
        console.print(f"  few, and certain: {describe_cell(one)}", markup=False)
    for warning in found["warnings"]:
        console.print(f"  beware: {warning}", markup=False)
    verdict = "Do not publish these tables together as they are." if found["failed"] else "Nothing small is certain."
    console.print(verdict, markup=False, style="bold")


CATALOG_EXAMPLES = """\b
Examples:
  deniable release catalog released.parquet -o catalog.html
  deniable release catalog released.csv --json > catalog.json
"""


@app.command(epilog=CATALOG_EXAMPLES)
def catalog(
    file: ReleasedFile,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page is written.")] = Path("catalog.html"),
    as_json: JsonFlag = False,
) -> None:
    """Write a searchable page of what a k-anonymous release holds: columns, values and groups, and no row.

    Values and groups are listed where at least k rows have them. The page works without a network. With --json the
    catalog is printed and no page is written.
    """
    from deniable.curator.release_reports import build_catalog
    from deniable.storage import refuse_other_than_page

    refuse_other_than_page(None if as_json else out)
    found = build_catalog(file)
    if not as_json:
        from deniable.reports.page import write
        from deniable.reports.tradeoffs import build_catalog_page

        write(build_catalog_page(found.to_dict()), out)
    told = f"{len(found.groups)} groups and {len(found.columns)} columns of {found.rows} rows are listed in {out}"
    emit(found.to_dict(), as_json, lambda console: console.print(told, markup=False))


EXPERT_EXAMPLES = """\b
Examples:
  deniable release expert released.parquet -p policy.yaml --original visits.parquet --recipient "University of X"
  deniable release expert released.parquet -p policy.yaml --register voters.parquet --most linkage=0.01 -o report.html
  deniable release expert released.csv --knows zip,birth_date,sex --json
"""


@app.command(epilog=EXPERT_EXAMPLES)
def expert(
    file: Annotated[str, typer.Argument(help="The released file.")],
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="The policy file.")] = None,
    table: Annotated[str | None, typer.Option(help="Which table of the policy the file is.")] = None,
    recipient: Annotated[list[str] | None, typer.Option(help="Who will hold the data; may be repeated.")] = None,
    knows: Annotated[str | None, typer.Option(help="Columns the intruder knows, separated by commas.")] = None,
    sensitive: Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")] = None,
    original: Annotated[str | None, typer.Option(help="The original rows, to score attacks on a release.")] = None,
    control: Annotated[str | None, typer.Option(help="Rows of other people of the same kind.")] = None,
    register: Annotated[str | None, typer.Option(help="A table with names, which the intruder may hold.")] = None,
    others: Annotated[
        list[str] | None, typer.Option("--with", help="Another release of the same people; may be repeated.")
    ] = None,
    most: Annotated[list[str] | None, typer.Option(help="ATTACK=SHARE: fail when more people are exposed.")] = None,
    attacks: Annotated[int, typer.Option(help="Targets for each attack.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Same seed, same outcome.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the page is written.")] = Path("expert.html"),
    ledger: LedgerOption = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Write what HIPAA's second route asks for, an expert determination, ready for the expert to judge and sign.

    The page has the data flow, the recipients, a motivated-intruder test with intervals, the measured and the residual
    risk, method, limits and signature lines. Exit code 2 when a threshold of the policy or of --most is passed.
    """
    from deniable.cli.attack import read_limits, split_names
    from deniable.curator.attack import Order
    from deniable.curator.release_reports import document_risk
    from deniable.outputs import claim_outputs

    order = Order(
        file, split_names(knows), register, original, control, None, split_names(sensitive), None, (),
        tuple(others or ()), policy, table, read_limits(most), True, attacks, seed, seconds, None, encoding, ledger,
    )  # fmt: skip
    with claim_outputs(pages=[] if as_json else [out]), show_progress("Testing") as told:
        found = document_risk(order, recipient or (), told)
        if not as_json:
            from deniable.reports.attacks import build_expert_page
            from deniable.reports.page import write

            write(build_expert_page(found.to_dict()), out)
    emit(found.to_dict(), as_json, lambda console: console.print(f"{found.verdict} Written to {out}.", markup=False))
    if found.failed:
        raise typer.Exit(2)
