"""`deniable start`: from a table to a first release in one conversation, one decision a screen.

What is decided and found is kept after each step, so that a conversation that was broken off goes on where it was."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import Encoding, JsonFlag, emit, open_errors, open_output, show_progress
from deniable.errors import Infeasible, ParameterError, pluralize

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.policy.decisions import Decisions, Question
    from deniable.curator.policy.draft import Draft
    from deniable.curator.start import Findings, Place, StartReport

EXAMPLES = """\b
Examples:
  deniable start visits.csv
  deniable start visits.parquet --yes --out clinic-release
  deniable start visits.csv --answers decisions.yaml --yes
  deniable start visits.csv --yes --unit patient_id
  deniable start duckdb:clinic.duckdb#visits
"""
MOST_COLUMNS, MOST_TOLD = 40, 12
"""So many columns are listed on a screen, or told in a few words; the others are counted."""


def start(
    table: Annotated[str, typer.Argument(help="A file, folder, pattern or duckdb:FILE#TABLE.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder for everything that is made.", show_default="TABLE-release"),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Take what is recommended wherever nothing is decided.")
    ] = False,
    answers: Annotated[Path | None, typer.Option(help="Decisions in a YAML or JSON file.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="The column that tells people apart, or row where each row is another person.")
    ] = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Go from a table to a first safe release: look, attack, decide, preview, release, attack again, report.

    Every decision has a recommended answer and its reason. If it is stopped, the next run continues. No row of the
    table is written anywhere but into the release that you decide on.
    """
    from deniable.curator import start as steps

    place = steps.Place(table, out or Path(f"{_name_table(table)}-release"), encoding)
    screen = open_errors() if as_json else open_output()
    talk = Talk(place, screen, yes)
    with _keep_going(talk):
        made, found, changed = _look(talk)
        decided = _decide(talk, made, _gather(talk, made, answers, unit, changed), found)
        decided, found = _release(talk, made, decided, found)
    report = steps.build_report(place, made, decided, found)
    _write_page(place, report)
    emit(report.to_dict(), as_json, lambda console: _print_end(console, talk, report))
    if report.failed:
        raise typer.Exit(2)


REMOVED = "A limit is passed: the release was removed. Change decisions.yaml, or delete lines of it, and start again."


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: about which table, on which screen, and whether recommended answers are taken unasked."""

    place: Place
    screen: Console
    yes: bool

    def say(self, text: str = "", style: str = "") -> None:
        """Print one paragraph."""
        self.screen.print(text, markup=False, style=style)

    def title(self, text: str) -> None:
        """Begin a screen."""
        self.say(f"\n{text}", "bold")

    def hear(self) -> str:
        """One line that was typed; the end of input breaks the conversation off."""
        self.screen.print("> ", end="")
        self.screen.file.flush()
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.strip()


def _name_table(table: str) -> str:
    """A name for the folder, from the table's own."""
    last = Path(table.rsplit("#", 1)[-1].rstrip("/")).name.split(".")[0]
    return re.sub(r"[^\w-]+", "-", last).strip("-") or "table"


@contextmanager
def _keep_going(talk: Talk) -> Iterator[None]:
    """Say how to go on when the conversation is broken off."""
    import shlex

    try:
        yield
    except (EOFError, KeyboardInterrupt):
        option = ("--encoding", talk.place.encoding) if talk.place.encoding else ()
        again = shlex.join(["deniable", "start", talk.place.source, "--out", str(talk.place.folder), *option])
        talk.say(f"\nBroken off. What was decided is kept in {talk.place.decisions}. Go on with:\n  {again}")
        raise typer.Exit(2) from None


# 1 and 2: what is there, and who is exposed


def _look(talk: Talk) -> tuple[Draft, Findings, bool]:
    """What was found of the table, by this run or by an earlier one, and whether it was changed in between."""
    from deniable.curator import start as steps

    place, known = talk.place, steps.read_state(talk.place)
    if place.policy.exists() and not place.state.exists():
        raise ParameterError(
            f"'{place.policy}' is there, and deniable start did not write it", remedy="Choose another --out"
        )
    with show_progress("Looking at the table") as told:
        made, version = steps.look(place, told), steps.name_version(place)
    _print_columns(talk, made)
    changed = bool(known.version) and known.version != version
    if changed:
        talk.say("The table was changed since the last run. It is attacked and released anew; look at its roles again.")
        steps.begin_epoch(place)
        known = steps.Findings()
    found = replace(known, version=version)
    if not found.before:
        talk.title("Attacking the table as it stands")
        with show_progress("Attacking") as told:
            found = steps.attack_before(place, made, found, told)
    steps.save_state(place, found)
    _print_exposure(talk, found.before)
    return made, found, changed


EXAMPLES_OF_DATES = {"year-first": "2024-12-31", "day-first": "31.12.2024", "month-first": "12/31/2024"}


def _print_columns(talk: Talk, made: Draft) -> None:
    from rich.table import Table

    talk.title(f"What is in {Path(talk.place.source).name}")
    talk.say(
        f"{pluralize(made.rows, 'row')}, {pluralize(len(made.columns), 'column')}. No value is shown; the evidence is "
        "names, forms and counts."
    )
    if made.csv is not None and made.csv.spelling:
        number = f"1{made.csv.thousands or ''}234{made.csv.decimal}50"
        day = EXAMPLES_OF_DATES[made.csv.dates]
        talk.say(f"Numbers are read as {number}, dates as {day}. If that is wrong, correct csv in the policy.")
    for doubt in made.doubtful:
        talk.say(f"Please check: {doubt} in the policy.")
    shown = Table("column", "type", "role", "because", box=None, pad_edge=False)
    for column in made.columns[:MOST_COLUMNS]:
        shown.add_row(str(column.name), str(column.type), str(column.role), str(column.reason))
    talk.screen.print(shown)
    if len(made.columns) > MOST_COLUMNS:
        talk.say(f"... and {len(made.columns) - MOST_COLUMNS} more columns")


def _print_exposure(talk: Talk, before: Mapping[str, Any]) -> None:
    talk.title("Who is exposed, if it were given away as it is")
    for outcome in (one for made in before["attacks"] for one in made["outcomes"]):
        talk.say(outcome["sentence"])
    for one in before.get("identifying_sets", [])[:3]:
        talk.say(f"Whoever knows {' + '.join(one['columns'])} singles out {one['share']:.1%} of the people.")
    if before.get("joint"):
        talk.say(before["joint"]["words"].replace(" released", ""))
    if not before["knows"]:
        talk.say("No column was found that others would know; decide on the columns below before you trust that.")


# 3: decisions


def _gather(talk: Talk, made: Draft, answers: Path | None, unit: str | None, changed: bool) -> Decisions:
    """What is decided already: kept from an earlier run, in the file of answers, which goes before, and by an option.

    What was found of a table that was changed is to be confirmed again.
    """
    from deniable.curator import start as steps
    from deniable.curator.policy.decisions import Decisions, doubt_roles, merge_decisions, read_answers

    kept = Decisions()
    if talk.place.decisions.exists():
        kept = steps.read_decisions(made, talk.place.decisions, known_only=True)
        kept = doubt_roles(made, kept) if changed and not talk.yes else kept
        talk.say(f"\nGoing on with the decisions in {talk.place.decisions}.")
    given = [steps.read_decisions(made, answers)] if answers is not None else []
    for each in (*given, read_answers(made, {"unit": unit})):
        kept = merge_decisions(kept, each)
    return kept


def _decide(talk: Talk, made: Draft, decided: Decisions, found: Findings) -> Decisions:
    """Ask what is still open, one decision a screen, and keep each."""
    from deniable.curator import start as steps
    from deniable.curator.policy.decisions import next_question

    number, columns = 0, Counter[str]()
    while (question := next_question(made, decided)) is not None:
        number += 1
        if talk.yes:
            decided = _take_recommended(talk, made, decided, question, columns)
            continue  # what is recommended is found again
        decided = _ask(talk, made, decided, question, number)
        steps.save_decisions(talk.place, decided)
    steps.save_decisions(talk.place, decided)
    _preview(talk, made, decided)
    done = found.release and found.basis == steps.name_basis(decided)
    if not talk.yes and not done:
        talk.title("Release it now?")
        talk.say("Enter releases; anything else stops here, and what you decided is kept.")
        if talk.hear().lower() not in ("", "y", "yes"):
            raise EOFError
    return decided


def _take_recommended(
    talk: Talk, made: Draft, decided: Decisions, question: Question, columns: Counter[str]
) -> Decisions:
    """Take what is recommended, and say so; of questions about one column, which are counted, the first ones."""
    from deniable.curator.policy.decisions import take_answer

    word, column, _ = question.key.partition(".")
    columns[word] += bool(column)
    if columns[word] <= MOST_TOLD:
        talk.say(f"{question.title} {question.recommended}" + ("" if column else f". {question.reason}"))
    elif columns[word] == MOST_TOLD + 1:
        talk.say("... and so on for every other column that is open")
    for line in () if column or question.key == "roles" else question.about:
        talk.say(f"  {line}")
    return take_answer(made, decided, question, "")


def _ask(talk: Talk, made: Draft, decided: Decisions, question: Question, number: int) -> Decisions:
    """Ask one question until the answer fits."""
    from deniable.curator.policy.decisions import take_answer

    _print_question(talk, question, number)
    while True:
        try:
            return take_answer(made, decided, question, talk.hear())
        except ParameterError as refusal:
            talk.say(f"{refusal.happened}. {refusal.expected}. {refusal.remedy}".strip())


def _print_question(talk: Talk, question: Question, number: int) -> None:
    talk.title(f"Decision {number}: {question.title}" if number else question.title)
    for line in question.about:
        talk.say(f"  {line}")
    width = max(map(len, question.choices), default=0)
    for word, meaning in list(question.choices.items())[:MOST_COLUMNS]:
        talk.say(f"  {word:<{width}}  {meaning}")
    if question.expected:
        talk.say(f"  Answer: {question.expected}")
    talk.say(f"Recommended: {question.recommended}. {question.reason}")


def _preview(talk: Talk, made: Draft, decided: Decisions) -> None:
    """Columns before and after; no value of the table."""
    from rich.table import Table

    from deniable.curator.policy.compose import describe_change
    from deniable.curator.policy.decisions import TECHNIQUES, role_of

    talk.title("What will leave")
    talk.say(f"For {decided.recipient}: {TECHNIQUES[str(decided.technique)]}.")
    shown = Table("column", "role", "before", "after", box=None, pad_edge=False)
    changes = [(column, describe_change(column, decided)) for column in made.columns]
    lost = ("withheld", "removed", "left out")
    kept = [(column, change) for column, change in changes if change[1].split(":")[0] not in lost]
    for column, (before, after) in kept[:MOST_COLUMNS]:
        shown.add_row(str(column.name), str(role_of(column, decided)), str(before), str(after))
    talk.screen.print(shown if kept else "No column.")
    for word in lost:
        if named := [column.name for column, change in changes if change[1].split(":")[0] == word]:
            talk.say(f"{word.capitalize()}: {_list_names(named)}")


def _list_names(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_TOLD]) + (f" and {len(names) - MOST_TOLD} more" if len(names) > MOST_TOLD else "")


# 4 to 7: release, attack, read back


def _release(talk: Talk, made: Draft, decided: Decisions, found: Findings) -> tuple[Decisions, Findings]:
    """Make the release, attack it and read it back; what an earlier run did by the same decisions stands."""
    from deniable.curator import start as steps

    place = talk.place
    if found.basis != (basis := steps.name_basis(decided)):
        found = replace(found, basis=basis, learned={}, release={}, after={}, verified={})
    steps.refuse_again(place, found)
    if found.release and place.release(decided).exists():
        found = steps.read_back(place, decided, found)  # a file that was changed since is refused
        talk.say("\nThe release was made already, by these decisions. Nothing was read or charged.")
    else:
        decided, found = _make(talk, made, decided, found)
    _print_release(talk, decided, found)
    if not found.after or not found.verified:
        talk.title("Attacking what was released")
        with show_progress("Attacking") as told:
            found = steps.attack_after(place, made, decided, found, told)
        found = steps.read_back(place, decided, found)
        steps.save_state(place, found)
    if found.after["failed"]:
        steps.remove_release(place, decided, found)
    return decided, found


def _make(talk: Talk, made: Draft, decided: Decisions, found: Findings) -> tuple[Decisions, Findings]:
    from deniable.curator import start as steps

    place = talk.place
    steps.refuse_nothing(made, decided)
    if not found.learned:
        with show_progress("Learning values with noise") as told:
            found = steps.learn_values(place, made, decided, found, told)
        steps.save_state(place, found)
    talk.title("Releasing")
    while True:
        try:
            with show_progress("Releasing") as told:
                found = steps.make_release(place, made, decided, found, told)
            break
        except Infeasible as refusal:
            if refusal.fields.get("limit") == "attack":
                steps.remove_release(place, decided, found)
            decided = _leave_out(talk, made, decided, refusal)
            found = replace(found, basis=steps.name_basis(decided))
            steps.save_decisions(place, decided)
    steps.save_state(place, found)
    return decided, found


def _leave_out(talk: Talk, made: Draft, decided: Decisions, refusal: Infeasible) -> Decisions:
    """The decisions without a column that singles people out; a refusal for another reason stands."""
    from deniable.curator import start as steps
    from deniable.curator.policy import compose

    question = steps.ask_left_out(talk.place, made, decided, refusal)
    if question is None:
        talk.say(f"Delete a line of {talk.place.decisions} to decide on it again.")
        raise refusal
    if talk.yes:
        talk.say(f"{question.about[0]}\n{question.title} {question.recommended}. {question.reason}")
        return compose.leave_out(decided, question, question.recommended)
    _print_question(talk, question, 0)
    while True:
        try:
            return compose.leave_out(decided, question, talk.hear() or question.recommended)
        except ParameterError as wrong:
            talk.say(f"{wrong.happened}.")


def _print_release(talk: Talk, decided: Decisions, found: Findings) -> None:
    """What left, and its first rows, which are the release's own."""
    from rich.table import Table

    from deniable.curator import start as steps
    from deniable.kanonymity.recoding import name_level

    told = found.release
    talk.say(f"Rows in {talk.place.release(decided)}: {told['released']:,}")
    if "suppressed" in told:
        left, alike = f"{told['suppressed']:,} of {pluralize(told['rows'], 'row')}", pluralize(told["classes"], "group")
        talk.say(f"Left out: {left}. {alike} of rows that look alike.")
        named = {name: name_level(one["level"], one) for name, one in told.get("became", {}).items()}
        talk.say(f"Shown: {', '.join(f'{name} {words}' for name, words in named.items())}")
    for name, why in decided.left_out.items():
        talk.say(f"{name} does not leave. {why}")
    lost = [name for name, public in found.learned.items() if not public]
    if lost:
        talk.say(
            f"No value of {_list_names(lost)} rose above the noise: texts keep their form alone, numbers are left out."
        )
        talk.say(f"To change that, declare values that you know in {talk.place.decisions}, and start again.")
    rows = steps.preview_release(talk.place, decided).to_pylist()
    names = list(rows[0])[:8] if rows else []
    shown = Table(*map(str, names), box=None, pad_edge=False)
    for row in rows:
        shown.add_row(*("" if row[name] is None else str(row[name]) for name in names))
    talk.screen.print(shown)


# 8 and 9: the page, the files and the commands


def _write_page(place: Place, report: StartReport) -> None:
    from deniable.reports.attacks import build_start_page
    from deniable.reports.page import write

    write(build_start_page(report.to_dict()), place.page)


def _print_end(console: Console, talk: Talk, report: StartReport) -> None:
    from deniable.cli.attack import print_attacks

    if "audit" in report.after:
        console.print(report.after["audit"]["audit"]["sentence"], markup=False)
    else:
        tried = [made for made in report.after["attacks"] if made["outcomes"]]
        print_attacks(console, {**report.after, "attacks": tried, "identifying_sets": [], "blame": []})
    talk.say(REMOVED if report.failed else "Every limit of the policy is met.", "bold")
    if not report.failed:  # nothing is promised of what was removed
        talk.title("What is promised of it")
        for sentence in report.release["words"]:
            talk.say(f"- {sentence}")
    talk.title(f"What is in {talk.place.folder}")
    for name, words in report.files.items():
        talk.say(f"  {name:<34}{words}")
    talk.title("The same by hand")
    for step in report.commands:
        talk.say(f"  # {step['step']}", "dim")
        talk.say(f"  {step['command']}")
