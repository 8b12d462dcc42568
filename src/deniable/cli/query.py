"""`deniable query`: ask in SQL, get noisy numbers with their error; or only see what it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker, open_curator, stress
from deniable.errors import NOTHING_CHARGED, ParameterError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from deniable.curator import Curator
    from deniable.curator.query.sql import QueryAnswer
    from deniable.release.record import Record

EXAMPLES = """\b
Examples:
  deniable query "SELECT sex, COUNT(*) FROM visits GROUP BY sex" --epsilon 0.5
  deniable query "SELECT AVG(charge) FROM visits" --epsilon 1 --explain
  deniable query "SELECT COUNT(*) FROM visits WITHIN 100 CONFIDENCE 0.95"
  deniable query --together "SELECT COUNT(*) FROM visits" "SELECT sex, COUNT(*) FROM visits GROUP BY sex" --epsilon 1
  deniable query --together dashboard.sql --epsilon 1 --explain       # statements separated by semicolons
  deniable query --together dashboard.sql --epsilon 1 --out answers   # answers/question-1.csv and so on
"""


def query(
    sql: Annotated[list[str], typer.Argument(help="A SELECT statement, or a .sql file; several with --together.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 0.5.")] = None,
    delta: Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")] = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    together: Annotated[
        bool, typer.Option("--together", help="Answer several questions with one budget, measured together.")
    ] = False,
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
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write rows and statement to a file; with --together, a folder of files."),
    ] = None,
    ledger: LedgerOption = None,
    analyst: Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)] = "",
    purpose: Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Ask a question in SQL; the answer has noise, and says how much."""
    from deniable.curator.query.sql import write_answer
    from deniable.outputs import claim_outputs

    who = name_asker(analyst, purpose)
    if together:
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "who": who}
        unfit = {"--curve": curve, "--consistent": consistent, "--bias-share": bias_share}
        _refuse_beside_together([name for name, value in unfit.items() if value])
        shown: dict[str, Any] = {"confidence": confidence, "nonnegative": nonnegative}
        with open_curator(policy, ledger, charges=not explain) as curator:
            if explain:
                _explain_together(curator, sql, asked, as_json)
            else:
                _ask_together(curator, sql, asked, shown, out, as_json)
        return
    question = _read_one(sql)
    explain = explain or question.lstrip().upper().startswith("EXPLAIN")
    with (
        open_curator(policy, ledger, charges=not explain and curve is None) as curator,
        claim_outputs(out, pages=[curve], beside=[policy], rows=True),
    ):
        if curve is not None:
            rows = curator.error_curve(question, delta=delta, confidence=confidence, who=who)
            emit(
                {"curve": [row.to_dict() for row in rows]},
                as_json,
                lambda console: _print_curve_file(console, _write_curve_page(question, rows, curve)),
            )
            return
        if explain:
            _explain_question(curator, question, as_json, epsilon=epsilon, delta=delta, rho=rho, who=who)
            return
        shown = {
            "confidence": confidence,
            "nonnegative": nonnegative,
            "consistent": consistent,
            "bias_share": bias_share,
        }
        answer = curator.query(question, epsilon=epsilon, delta=delta, rho=rho, who=who, **shown)
        if out is not None:
            write_answer(curator.context, answer, out)
        more = _count_more_like_this(curator, answer, question, epsilon=epsilon, delta=delta, rho=rho, who=who)
        shape = {"columns": answer.rows.column_names, "rows": answer.to_pylist(), "repeated": answer.repeated}
        document = {**shape, **dict(answer.release.details), "more_like_this": more}
        emit(document, as_json, lambda console: _print_answer(console, answer, more))


def _explain_question(curator: Curator, sql: str, as_json: bool, **asked: Any) -> None:
    """Print what a question would measure and cost."""
    told = curator.explain(sql, **asked)
    left = curator.context.speak_for(asked["who"]).state_left()
    emit(told.to_dict(), as_json, lambda console: _print_plan(console, told, left))


def _read_one(questions: list[str]) -> str:
    """The only question; several are refused, since it was not said that they share one budget."""
    if len(questions) == 1 and not questions[0].endswith(".sql"):
        return questions[0]
    from deniable.curator.query.batch import read_questions

    found = read_questions(questions)
    if len(found) != 1:
        raise ParameterError(
            f"there are {len(found)} questions here, and one is answered at a time",
            expected="One SELECT statement",
            remedy="With --together several are answered with one budget",
            charge=NOTHING_CHARGED,
        )
    return found[0]


def _refuse_beside_together(names: list[str]) -> None:
    if names:
        raise ParameterError(
            f"{names[0]} is for one question, and --together asks several",
            remedy="Leave one of the two out",
            charge=NOTHING_CHARGED,
        )


def _explain_together(curator: Curator, texts: list[str], asked: dict[str, Any], as_json: bool) -> None:
    """Print what a batch of questions would measure and cost."""
    from deniable.curator.query.batch import read_questions

    told = curator.explain_batch(read_questions(texts), **asked)
    left = curator.context.speak_for(asked["who"]).state_left()
    emit(told.to_dict(), as_json, lambda console: _print_batch_plan(console, told, left))


def _ask_together(
    curator: Curator, texts: list[str], asked: dict[str, Any], shown: dict[str, Any], out: Path | None, as_json: bool
) -> None:
    """Answer a batch of questions, and write each answer to a file if that is asked for."""
    from deniable.curator.query.batch import place_answers, read_questions, write_answers
    from deniable.outputs import claim_outputs

    questions = read_questions(texts)
    files = [] if out is None else place_answers(out, len(questions))
    with claim_outputs(*(file for file in files if file.parent.is_dir())):
        answers = curator.query_batch(questions, **shown, **asked)
        if files:
            write_answers(curator.context, answers, files)
    more = curator.explain_batch(questions, **asked).more_like_this if answers[0].release.details["left"] else None
    told = answers.to_dict() | {"more_like_this": more}
    for document, file in zip(told["answers"], files, strict=False):
        document["file"] = str(file)
    emit(told, as_json, lambda console: _print_batch(console, questions, answers, more, files))


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
EpsilonOrRho = Annotated[str | None, typer.Option("--epsilon", help="Epsilon to spend, such as 0.5.")]
Rho = Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")]
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
    with open_for_answer(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_top(table, keys, count, **asked), as_json)
        else:
            emit_answer(curator, curator.top(table, keys, count, **asked), out, as_json)


MARGINS_EXAMPLES = "Example: deniable margins visits sex,payer payer,diagnosis -p clinic.yaml --epsilon 1"


def margins(
    table: TableArgument,
    columns: Annotated[list[str], typer.Argument(help="Each table of counts: its columns, separated by commas.")],
    policy: PolicyOption = Path("policy.yaml"),
    epsilon: EpsilonOrRho = None,
    delta: Delta = "0",
    rho: Rho = None,
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
    with open_for_answer(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_margins(table, listed, **asked), as_json)
        else:
            emit_answer(curator, curator.margins(table, listed, **asked), out, as_json)


WEIGHTED_EXAMPLES = """\b
Examples:
  deniable weighted survey works --weight weight --by sex --epsilon 1      # how many work, in the population
  deniable weighted survey wage --weight weight --mean --where "works = 1" --epsilon 2
  deniable weighted survey --weight weight --by sex --epsilon 0.5          # how many people there are
"""


def weighted(
    table: TableArgument,
    column: Annotated[str, typer.Argument(help="What is added up.  [default: people are counted]")] = "",
    weight: Annotated[str, typer.Option(help="The column of weights: how many people one stands for.")] = "weight",
    policy: PolicyOption = Path("policy.yaml"),
    epsilon: EpsilonOrRho = None,
    delta: Delta = "0",
    rho: Rho = None,
    by: Annotated[str, typer.Option(help="Columns of groups, separated by commas.")] = "",
    where: Annotated[str, typer.Option(help="A condition in SQL: of whom.")] = "",
    mean: Annotated[bool, typer.Option("--mean", help="The weighted mean instead of the total.")] = False,
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    explain: Explain = False,
    out: Out = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with the estimates and their error (HTML).")] = None,
    ledger: LedgerOption = None,
    analyst: Analyst = "",
    purpose: Purpose = "",
    as_json: JsonFlag = False,
) -> None:
    """Estimate a total or mean of the population from a survey with weights; the error is of sample and noise."""
    from deniable.curator.query.hierarchy import MEAN, TOTAL, ask_weighted

    groups, statistic = [each.strip() for each in by.split(",") if each.strip()], MEAN if mean else TOTAL
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "who": name_asker(analyst, purpose)}
    with open_for_answer(policy, ledger, out, explain, report) as curator:
        more: dict[str, Any] = {"weight": weight, "by": groups, "where": where, "statistic": statistic}
        if explain:
            sql, _ = ask_weighted(curator.context, table, column, **more)
            _explain_question(curator, sql, as_json, **asked)
            return
        answer = curator.weighted(table, column, confidence=confidence, **more, **asked)
        if report is not None:
            _write_weighted_page(answer, report)
        emit_answer(curator, answer, out, as_json)


def _write_weighted_page(answer: QueryAnswer, path: Path) -> None:
    from deniable.release.record import to_plain
    from deniable.reports.page import write
    from deniable.reports.stream import build_weighted_page

    protects = f"The noise hides {answer.release.guarantee.unit}, in the survey or not in it."
    told = {**answer.release.details, "rows": answer.to_pylist(), "protects": protects}
    write(build_weighted_page(to_plain(told)), path)


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
    with open_for_answer(policy, ledger, None, explain) as curator:
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
    with open_for_answer(policy, ledger, out, explain) as curator:
        if explain:
            _emit_explanation(curator.explain_sample_and_aggregate(table, aggregate=aggregate, **asked), as_json)
            return
        call = find_function(function)
        answer = curator.sample_and_aggregate(call, table, aggregate=aggregate, frames=frames, **asked)
        emit_answer(curator, answer, out, as_json)


@contextmanager
def open_for_answer(
    policy: Path, ledger: str | None, out: Path | None, explain: bool, report: Path | None = None
) -> Iterator[Curator]:
    """The curator of a command that answers or only explains, with the files that it writes."""
    from deniable.outputs import claim_outputs

    with (
        open_curator(policy, ledger, charges=not explain) as opened,
        claim_outputs(out, pages=[report], beside=[policy], rows=True),
    ):
        yield opened


def emit_answer(curator: Curator, answer: QueryAnswer, out: Path | None, as_json: bool) -> None:
    """Print an answer, and write it to a file if one is named."""
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
    from deniable.policy.budget import describe_amounts

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
    _print_rows(console, answer)
    _print_cost(console, answer, more)
    details = answer.release.details
    for found in details.get("bias", ()):
        console.print(f"Bias: about {found['units']:,} ± {found['error']:,.4g} {found['counts']}")
    for note in details["notes"]:
        console.print(f"Note: {note}", style="dim")


def _print_batch(
    console: Console, questions: list[str], answers: Any, more: int | None, files: Sequence[Path] = ()
) -> None:
    """Each question with its rows; then what all of them cost together, and each note once."""
    for place, (sql, answer) in enumerate(zip(questions, answers, strict=True), start=1):
        console.print(stress(f"{place}. ", " ".join(sql.split())))
        _print_rows(console, answer)
        console.print("")
    _print_cost(console, answers.paid, more)
    if files:
        last = f" to {files[-1]}" if len(files) > 1 else ""
        console.print(f"Wrote {files[0]}{last}, each with its statement.", markup=False)
    notes: dict[str, list[int]] = {}
    for place, answer in enumerate(answers, start=1):
        for note in answer.release.details["notes"]:
            notes.setdefault(note, []).append(place)
    for note, places in notes.items():
        of = "" if len(places) == len(answers) else f" ({', '.join(map(str, places))})"
        console.print(f"Note{of}: {note}", style="dim", markup=False)


def _print_batch_plan(console: Console, told: Mapping[str, Any], left: str) -> None:
    from deniable.policy.budget import describe_amounts

    console.print(f"Cost of all: {describe_amounts(told['cost'])}  (protects {told['unit']})", markup=False)
    if left:
        more = told["more_like_this"]
        fits = f", enough for about {more:,} like this" if more is not None else ""
        console.print(f"Left before these questions: {left}{fits}", markup=False)
    for place, each in enumerate(told["questions"], start=1):
        console.print(stress(f"{place}. ", " ".join(each["sql"].split())))
        others = ", ".join(str(other) for other in each["together"] if other != place)
        how = f"alone: {each['alone']}" if each["alone"] else f"together with {others}" if others else "alone"
        console.print(f"  measured {how}; share {each['share']} of the budget", markup=False)
        for row in each["aggregates"]:
            for part in row["measurements"]:
                console.print(f"  {row['aggregate']}: {_render_measurement(part)}", highlight=False, markup=False)
    for note in dict.fromkeys([*told["notes"], *(note for each in told["questions"] for note in each["notes"])]):
        console.print(f"Note: {note}", style="dim", markup=False)


def _print_rows(console: Console, answer: Any) -> None:
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


def _print_cost(console: Console, answer: Any, more: int | None) -> None:
    from deniable.policy.budget import describe_amounts, shorten_left

    details = answer.release.details
    enough = (
        "" if more is None else f", enough for about {more:,} more like this" if more else ", too little for another"
    )
    told = str(details.get("left") or "")
    left = f"; {shorten_left(told)} is left{enough}" if told else ""
    cost = (
        "A stored answer: nothing was charged"
        if answer.repeated
        else f"Cost: {describe_amounts(details['cost'] or {})}"
    )
    console.print(f"{cost}{left}", markup=False)
    if str(details["epoch"]) != "1":
        console.print(f"Epoch: {details['epoch']}", style="dim", markup=False)


def _format_cell(row: dict[str, Any], name: str) -> str | Text:
    from deniable.release.display import show_number

    number, mark, error = show_number(row, name).partition(" ± ")
    return stress(f"± {error}", style="dim", before=f"{number} ") if mark else number


def _print_plan(console: Console, told: Mapping[str, Any], left: str) -> None:
    from deniable.policy.budget import describe_amounts, shorten_left

    cost = describe_amounts(told["cost"])
    console.print(f"Cost: {cost}  (protects {told['unit']})", markup=False)
    if left:
        more = told.get("more_like_this")
        fits = f", enough for about {more:,} like this" if more is not None else ""
        told_left = left if float(told["cost"].get("delta", 0)) or "rho" in told["cost"] else shorten_left(left)
        console.print(f"Left before this question: {told_left}{fits}", markup=False)
    for stage in told.get("bounds") or []:
        console.print(f"First: find {stage['finds']}, for {describe_amounts(stage['cost'])}", markup=False)
    console.print("Steps: " + " -> ".join(f"{row['step']} ({row['tag']})" for row in told["relations"]))
    for row in told["aggregates"]:
        console.print(stress(row["aggregate"], f"  groups: {row['keys']}"))
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
    share = "" if part["share"] == "1" else f"; {float(part['share']):.3g} of the budget"
    return (
        f"{part['measures']}; one unit: at most {part['stability']}, and {part['moves']:,.6g}{unit} in a group; "
        f"{part['mechanism']}{scale}; error at most {part['error']:,.4g}{unit} with {part['confidence']:.0%} "
        f"confidence{share}"
    )
