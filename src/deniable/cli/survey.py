"""`deniable survey`: ask people who randomize their own answers; check, serve, invite, and read the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, emit, open_errors, stress
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.survey import SurveyReport

app = typer.Typer(no_args_is_help=True, help="Ask people whose answers are randomized on their own device.")

SurveyFile = Annotated[Path, typer.Argument(help="The survey file (YAML).", show_default=False)]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", help="The folder of the responses.", show_default="beside the survey file"),
]


@app.command(epilog="Example: deniable survey check staff.yaml --respondents 400")
def check(
    file: SurveyFile,
    respondents: Annotated[int, typer.Option("--respondents", "-n", help="How many people may answer.", min=1)] = 1000,
    as_json: JsonFlag = False,
) -> None:
    """Say what each question sends, costs and finds; or list every mistake with its line."""
    from deniable.curator.survey import check_survey as checked

    found = checked(file, respondents).to_dict()
    emit(found, as_json, lambda console: _print_check(console, found))


@app.command(epilog="Example: deniable survey serve staff.yaml --port 8765")
def serve(
    file: SurveyFile,
    store: StoreOption = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535)] = 8765,
    certificate: Annotated[
        Path | None, typer.Option(help="A PEM certificate, to serve https.", exists=True, show_default=False)
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="The certificate's key.", exists=True, show_default="in the certificate")
    ] = None,
) -> None:
    """Serve the survey's page: the respondent's browser randomizes, and only that is sent."""
    from deniable.curator.survey import describe_damage, link_to, open_service
    from deniable.server.serve import serve_survey as served

    service = open_service(file, store)
    link = link_to(service, f"{'https' if certificate else 'http'}://{host}:{port}")
    console = open_errors()
    if sum(service.store.damaged):
        console.print(stress("Caution:", f" {describe_damage(*service.store.damaged)}", "yellow"))
    told = f"Survey at {link}  (stop with Ctrl-C). No visitor is logged."
    served(service, host, port, certificate, key, lambda: console.print(told, markup=False))


@app.command(epilog="Example: deniable survey invite staff.yaml --count 120 --address https://survey.clinic.example")
def invite(
    file: SurveyFile,
    count: Annotated[int, typer.Option("--count", "-n", help="How many people to invite.", min=1)],
    address: Annotated[str, typer.Option(help="Where the survey will be served.")] = "http://127.0.0.1:8765",
    store: StoreOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print one link for each person: it pins the survey and lets one response in; nothing joins it to a response."""
    from deniable.curator.survey import invite as invited

    links = invited(file, count, address, store)
    emit(links, as_json, lambda console: console.print("\n".join(links), markup=False))


@app.command(epilog="Example: deniable survey results staff.yaml -o results.html --policy policy.yaml")
def results(
    file: SurveyFile,
    store: StoreOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a page.", show_default=False)] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    by: Annotated[str | None, typer.Option(help="A question that forms groups.", show_default=False)] = None,
    of: Annotated[str | None, typer.Option(help="The question to compare between them.", show_default=False)] = None,
    before: Annotated[
        str | None, typer.Option(help="The store of an earlier round, to compare with.", show_default=False)
    ] = None,
    joint: Annotated[
        str | None, typer.Option(help="Two or three questions, with commas: their combinations.", show_default=False)
    ] = None,
    totals: Annotated[
        str | None,
        typer.Option(help="Known totals of the groups of --by, with commas: --of is weighted.", show_default=False),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(help="Record the results in the ledger of this policy.", show_default=False)
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(help="That ledger, if it is not beside the policy.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Estimate what people answered, with intervals that account for the noise they added."""
    from deniable.curator.survey import read_results as told
    from deniable.curator.survey import record_results
    from deniable.outputs import claim_outputs

    together = [name.strip() for name in (joint or "").split(",") if name.strip()]
    with claim_outputs(pages=[out]):
        estimated = told(file, store, confidence, by, of, before, together, _read_totals(totals or ""))
        if policy is not None:
            record_results(estimated, file, policy, ledger)
        shown = _build_document(estimated)
        if out is not None:
            from deniable.reports.page import write
            from deniable.reports.survey import build_survey_page

            write(build_survey_page(shown), out)
    emit(shown, as_json, lambda console: _print_results(console, shown, out))


def _read_totals(written: str) -> list[float]:
    try:
        return [float(part) for part in written.split(",") if part.strip()]
    except ValueError:
        raise ParameterError("the totals are not numbers", expected="Numbers with commas, such as 120,80") from None


def _build_document(told: SurveyReport) -> dict[str, Any]:
    """The results as one JSON document."""
    from dataclasses import asdict

    from deniable.curator.survey import describe_damage

    shown = asdict(told.results)
    for found, known in zip(shown["findings"], told.results.findings, strict=True):
        if known.mean is not None:
            found["mean"]["interval"] = list(known.mean.interval(told.results.confidence))
    shown["contrasts"] = [
        {
            "question": contrast.question,
            "answer": contrast.answer,
            "between": list(contrast.between),
            "difference": contrast.difference.value,
            "low": contrast.difference.interval(told.results.confidence)[0],
            "high": contrast.difference.interval(told.results.confidence)[1],
            "p_value": contrast.difference.p_value,
        }
        for contrast in told.contrasts
    ]
    shown["damage"] = describe_damage(told.results.damaged)
    shown["joint"] = [asdict(cell) for cell in told.joint]
    shown["weighted"] = [asdict(cell) for cell in told.weighted]
    return shown


def _print_check(console: Console, found: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table("question", "protocol", "epsilon", "bytes", f"error with {found['respondents']:,} people", box=None)
    for row in found["questions"]:
        number = f"{row['error']:.1%}" if row["error_of"].startswith("share") else f"{row['error']:,.3g}"
        achieved = f"{row['epsilon']:.4g} ({row['achieved']:.9f} achieved)"
        table.add_row(row["question"], row["protocol"], achieved, str(row["bytes"]), f"{number} ({row['error_of']})")
    console.print(stress(found["title"], f"  epsilon {found['epsilon']:.4g} for a whole response"))
    if found["caution"]:
        console.print(stress("Caution:", f" {found['caution']}.", "yellow"))
    console.print(table)
    for row in found["questions"]:
        console.print(stress(row["question"], f"  {row['leaves']} {row['deniable']}", before="\n"))
        if row["caution"]:
            console.print(stress("Caution:", f" {row['caution']}.", "yellow"))


def _describe_poisoning(found: Mapping[str, Any]) -> str:
    """What hostile respondents could do to a finding, in a line."""
    number = found["mean"] is not None
    moved = f"{found['moved_by_one']:.3g} {found['unit']}".strip() if number else f"{found['moved_by_one']:.2%}"
    one = f"one hostile respondent can move this by {moved}"
    if found["overturned_by"] is None:
        return one
    done = "move the mean out of its interval" if number else "put another answer first"
    return f"{one}; {found['overturned_by']:,} of {found['responses']:,} could {done}"


def _print_results(console: Console, shown: Mapping[str, Any], out: Path | None) -> None:
    amplified = shown["amplified"]
    central = f", central {amplified['epsilon']:.3g} (delta {amplified['delta']:g}) if shuffled" if amplified else ""
    console.print(stress(shown["title"], f"  {shown['responses']:,} responses"))
    console.print(f"epsilon: local {shown['local_epsilon']:.3g}{central}")
    if shown["damage"]:
        console.print(stress("Caution:", f" {shown['damage']}", "yellow"))
    for found in shown["findings"]:
        console.print(stress(found["ask"], f"  ({found['responses']:,} responses)", before="\n"))
        if found["mean"]:
            low, high = found["mean"]["interval"]
            console.print(
                f"  mean {found['mean']['value']:,.4g} {found['unit']}  [{low:,.4g}, {high:,.4g}]", markup=False
            )
        if found["moved_by_one"] is not None:
            console.print(f"  {_describe_poisoning(found)}", markup=False)
        for share in found["shares"]:
            line = f"  {share['share']:7.1%}  [{share['low']:.1%}, {share['high']:.1%}]  {share['answer']}"
            console.print(line, markup=False)
    for contrast in shown["contrasts"]:
        ends = f"[{contrast['low']:.3g}, {contrast['high']:.3g}]"
        line = f"{contrast['answer']}: {' less '.join(contrast['between'])} {contrast['difference']:.3g} {ends}"
        console.print(f"  {line}  p = {contrast['p_value']:.3g}", markup=False)
    for cell in (*shown["weighted"], *shown["joint"]):
        ends = f"[{cell['low']:.1%}, {cell['high']:.1%}]"
        console.print(f"  {cell['share']:7.1%}  {ends}  {' and '.join(cell['answers'])}", markup=False)
    if out is not None:
        console.print(f"\nPage written to {out}", markup=False)
