"""`deniable network`: statistics of a table of edges with noise, and networks that are made from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.query import Analyst, Explain, Out, PolicyOption, Purpose, TableArgument, emit_answer, open_for_answer
from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.query.sql import QueryAnswer

EXAMPLES = """\b
Examples:
  deniable network friends edges --epsilon 0.5
  deniable network friends degrees --epsilon 1 --out degrees.csv
  deniable network friends triangles --epsilon 1 --explain
  deniable network friends stars --star 3 --epsilon 1 --max-degree 100
  deniable network friends mixing --by school --epsilon 1
  deniable network friends assortativity --by school --epsilon 1   # free after mixing: it is of the same numbers
  deniable network friends degree-assortativity --epsilon 1
  deniable network friends graph --epsilon 2 --out made.csv        # a made network, with its statement
  deniable network friends spread --epsilon 2 --passing 0.05 --steps 30 --report spread.html
"""


def network(
    table: TableArgument,
    statistic: Annotated[
        str,
        typer.Argument(
            help="edges, degrees, triangles, stars, clustering, mixing, assortativity, degree-assortativity, graph (a "
            "made network), or spread (of a rumor on it)."
        ),
    ],
    epsilon: Annotated[str, typer.Option(help="Epsilon to spend, such as 0.5.")],
    policy: PolicyOption = Path("policy.yaml"),
    by: Annotated[str | None, typer.Option(help="The column of groups in the table of nodes.")] = None,
    star: Annotated[int | None, typer.Option(help="Edges of a star.  [default: 2]", show_default=False)] = None,
    direction: Annotated[
        str | None, typer.Option(help="Which degree of a directed network: all, out, in.  [default: all]")
    ] = None,
    max_degree: Annotated[
        int | None, typer.Option(help="The most edges of a node that count.  [default: the policy's]")
    ] = None,
    passing: Annotated[
        float | None, typer.Option(help="Probability that a node tells a neighbor in a step.  [default: 0.05]")
    ] = None,
    stopping: Annotated[
        float | None, typer.Option(help="Probability that it stops telling after a step.  [default: 0]")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the rumor.  [default: 20]")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    explain: Explain = False,
    out: Out = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with the numbers and their error (HTML).")] = None,
    ledger: LedgerOption = None,
    analyst: Analyst = "",
    purpose: Purpose = "",
    as_json: JsonFlag = False,
) -> None:
    """Measure a network (a table with edges: in the policy) with noise that hides one edge, or one node."""
    asked: dict[str, Any] = {"epsilon": epsilon, "by": by, "star": star, "direction": direction}
    asked |= {"max_degree": max_degree, "confidence": confidence, "who": name_asker(analyst, purpose)}
    with open_for_answer(policy, ledger, out, explain, report) as curator:
        if explain:
            told = curator.explain_network(table, statistic, **asked)
            left = curator.context.speak_for(asked["who"]).state_left()
            emit(told.to_dict(), as_json, lambda console: _print_plan(console, told, left))
            return
        rumor: dict[str, Any] = {"passing": passing, "stopping": stopping, "steps": steps}
        answer = curator.network(table, statistic, **asked, **rumor)
        if report is not None:
            _write_page(answer, report)
        emit_answer(curator, answer, out, as_json)


def _write_page(answer: QueryAnswer, path: Path) -> None:
    from deniable.release.record import to_plain
    from deniable.reports.page import write
    from deniable.reports.stream import build_network_page

    write(build_network_page(to_plain({**answer.release.details, "rows": answer.to_pylist()})), path)


def _print_plan(console: Console, told: Any, left: str) -> None:
    from deniable.policy.budget import describe_amounts

    console.print(f"Cost: {describe_amounts(told.cost)}  (protects {told.unit})", markup=False)
    if left:
        fits = f", enough for about {told.more_like_this:,} like this" if told.more_like_this is not None else ""
        console.print(f"Left before this question: {left}{fits}", markup=False)
    console.print(f"max_degree: {told.max_degree}", markup=False)
    for part in told.measurements:
        console.print(f"  {_describe_part(part, told.confidence)}", markup=False, highlight=False)
    for note in told.notes:
        console.print(f"Note: {note}", style="dim", markup=False)


def _describe_part(part: Any, confidence: float) -> str:
    """One line: what is measured, how far one unit moves it, which noise, and how large."""
    words = [part.measures, f"epsilon {part.epsilon}"]
    if part.sensitivity is not None:
        words.append(f"sensitivity {part.sensitivity:,}")
    words.append(part.mechanism + (f" of scale {part.scale:,.4g}" if part.scale is not None else ""))
    if part.error is not None:
        words.append(f"error at most {part.error:,.4g} with {confidence:.0%} confidence")
    return "; ".join([*words, *([part.note] if part.note else [])])
