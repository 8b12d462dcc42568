"""`deniable attack` and `deniable audit`: attacks on tables and releases, and on our own mechanisms."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from deniable.cli.terminal import Encoding, JsonFlag, LedgerOption, emit, show_progress
from deniable.errors import DeniableError, ParameterError
from deniable.storage import refuse_other_than_json, refuse_other_than_page

if TYPE_CHECKING:
    from fractions import Fraction

    from rich.console import Console


ATTACK_EXAMPLES = """\b
Examples:
  deniable attack visits.parquet --knows zip,birth_date,sex
  deniable attack released.parquet --knows zip,birth_date,sex --register voters.parquet --sensitive diagnosis
  deniable attack synthetic.parquet --original visits.parquet --control others.parquet --policy policy.yaml --all
  deniable attack bought.csv --synthetic --original visits.parquet --control others.parquet --knows zip,sex
  deniable attack visits.csv --generator "./make-rows {world}"   # membership, by shadow tables of any generator
  deniable attack ratings.parquet --ratings viewer_id,film_id,rating,day
  deniable attack rides.parquet --trace rider_id,pickup_latitude,pickup_longitude,pickup_time --resolution 2,hour
  deniable attack friends.csv --edges from,to                    # a published graph without names
  deniable attack spring.parquet --with autumn.parquet --original visits.parquet --policy policy.yaml
  deniable attack answers.jsonl --register staff.csv             # a log of answered questions
  deniable attack released.csv --knows zip,sex --fail-above 0.05 # exit code 2 when more than 5% are exposed
  deniable attack block.json --most tables=0.1                   # published counts, means, medians and margins
  deniable attack hair.csv --with eyes.csv --counts people       # published tables: which cells are certain
"""

MOST_CELLS = 20
"""So many cells of each kind are printed; --json has more."""

Source = Annotated[str, typer.Argument(help="A table, a release, a log (.jsonl), or published statistics (.json).")]
Listed = Annotated[str | None, typer.Option(help="Columns, separated by commas.")]


def attack(
    source: Source,
    knows: Annotated[
        str | None,
        typer.Option(
            help="Columns the intruder knows, separated by commas; all: every released one but the sensitive."
        ),
    ] = None,
    register: Annotated[str | None, typer.Option(help="A table with names, which the intruder may hold.")] = None,
    original: Annotated[str | None, typer.Option(help="The original rows, to score attacks on a release.")] = None,
    control: Annotated[str | None, typer.Option(help="Rows of other people of the same kind.")] = None,
    truth: Annotated[str | None, typer.Option(help="Maps a column of the release to one of the register.")] = None,
    sensitive: Annotated[str | None, typer.Option(help="Sensitive columns, separated by commas.")] = None,
    unit: Annotated[str | None, typer.Option(help="The column that tells people apart, if rows do not.")] = None,
    ratings: Annotated[str | None, typer.Option(help="PERSON,ITEM,RATING,DAY: columns of dated ratings.")] = None,
    others: Annotated[
        list[str] | None, typer.Option("--with", help="Another release of the same people; may be repeated.")
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="The policy file.")] = None,
    table: Annotated[str | None, typer.Option(help="Which table of the policy the file is.")] = None,
    most: Annotated[list[str] | None, typer.Option(help="ATTACK=SHARE: fail when more people are exposed.")] = None,
    fail_above: Annotated[
        float | None, typer.Option(help="SHARE: fail when any attack exposes more people.", min=0, max=1)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="The motivated-intruder test: every attack.")] = False,
    attacks: Annotated[int, typer.Option(help="Targets for each attack.", min=1)] = 500,
    seed: Annotated[int, typer.Option(help="Same seed, same outcome.")] = 0,
    seconds: Annotated[float | None, typer.Option(help="Stop after so long.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Save finished attacks here, and continue from it.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write the page of the test (HTML).")] = None,
    counts: Annotated[str | None, typer.Option(help="The files are tables of counts, in this column.")] = None,
    suppressed: Annotated[str | None, typer.Option(help="Limits of suppressed counts, such as 1-4.")] = None,
    absent: Annotated[bool, typer.Option(help="Combinations that are not listed were suppressed too.")] = False,
    synthetic: Annotated[
        bool, typer.Option("--synthetic", help="The rows are generated: judged against --control.")
    ] = False,
    generator: Annotated[
        str | None, typer.Option(help="A program with {world}: it is run on halves of the rows, and prints CSV.")
    ] = None,
    tables: Annotated[int, typer.Option(help="How many tables to ask of --generator.", min=4)] = 16,
    trace: Annotated[
        str | None, typer.Option(help="PERSON,LATITUDE,LONGITUDE[,TIME]: who is named by a few points of a trace.")
    ] = None,
    resolution: Annotated[
        list[str] | None,
        typer.Option(help="With --trace: DECIMALS,UNIT such as 2,hour (or minute, day, week, never); may be repeated."),
    ] = None,
    edges: Annotated[
        str | None, typer.Option(help="FROM,TO: the rows are edges; who is found by degree and by neighborhood.")
    ] = None,
    ledger: LedgerOption = None,
    encoding: Encoding = None,
    as_json: JsonFlag = False,
) -> None:
    """Attack a table, a release, a log or statistics, and say how many people would be exposed, knowing what.

    Exit code 2 when an attack exposes more than the policy (release: attack: most), --most or --fail-above allows,
    when a limited attack could not be measured, or when nothing at all could.
    """
    from deniable.curator import attack as curator_attack

    limits = read_limits([*(most or ()), *([] if fail_above is None else [f"every={fail_above}"])])
    order = curator_attack.Order(
        source, split_names(knows), register, original, control, truth, split_names(sensitive), unit,
        split_names(ratings), tuple(others or ()), policy, table, limits, everything, attacks, seed, seconds,
        resume, encoding, ledger, counts, suppressed, absent, synthetic, generator, tables, split_names(trace),
        _read_resolutions(resolution, trace), split_names(edges),
    )  # fmt: skip
    page = report or (Path("exposure.html") if everything and not as_json else None)
    refuse_other_than_page(page)
    refuse_other_than_json(resume)
    with show_progress("Attacking") as told:
        found = curator_attack.attack(order, told)
    _write_exposure_page(page, found)
    emit(found.to_dict(), as_json, lambda console: print_attacks(console, found))
    if found["failed"]:
        raise typer.Exit(2)


def _read_resolutions(pairs: list[str] | None, trace: str | None) -> tuple[tuple[int, str], ...]:
    if pairs and trace is None:
        raise ParameterError("--resolution has no meaning without --trace", remedy="Say --trace, or leave it out")
    try:
        return tuple((int(digits), time.strip()) for digits, time in (pair.split(",") for pair in pairs or ()))
    except ValueError:
        raise ParameterError("--resolution was given wrongly", expected="--resolution DECIMALS,UNIT: 2,hour") from None


def split_names(text: str | None) -> tuple[str, ...]:
    """The names in a list that is separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip()) if text else ()


def read_limits(pairs: list[str] | None) -> dict[str, Fraction]:
    """Limits by attack, from words such as linkage=0.01."""
    from fractions import Fraction

    try:
        return {name: Fraction(share) for name, share in (pair.split("=", 1) for pair in pairs or ())}
    except (ValueError, ZeroDivisionError):
        raise ParameterError("--most was given wrongly", expected="--most ATTACK=SHARE, such as linkage=0.01") from None


def _write_exposure_page(path: Path | None, found: Mapping[str, Any]) -> None:
    if path is not None:
        from deniable.reports.attacks import build_exposure_page
        from deniable.reports.page import write

        write(build_exposure_page(found), path)


def print_attacks(console: Console, found: Mapping[str, Any]) -> None:
    """Print what the attacks found, and the verdicts."""
    for made in found["attacks"]:
        for outcome in made["outcomes"]:
            _print_outcome(console, outcome)
    skipped = [f"{made['attack']} ({made['skipped']})" for made in found["attacks"] if made["skipped"]]
    if skipped:
        console.print(f"Not tried: {'; '.join(skipped)}", markup=False, style="dim")
    for one in found.get("identifying_sets", [])[:3]:
        console.print(f"Whoever knows {' + '.join(one['columns'])} singles out {one['share']:.1%}", markup=False)
    for one in found.get("blame", [])[:3]:
        console.print(f"Unique if {one['column']} is not known: {one['unique_without']:.1%}", markup=False)
    if found.get("joint"):
        console.print(found["joint"]["words"], markup=False)
    if found.get("because"):
        console.print(found["because"], markup=False)
    if found.get("policy"):
        console.print(f"These rows have a policy that was accepted, {found['policy']}; what it limits was not judged: "
                      f"say --policy {shlex.quote(found['policy'])}", markup=False)  # fmt: skip
    why = {made["attack"]: made["skipped"] for made in found["attacks"]}
    for name in found["untried"]:
        reason = why.get(name) or "it gave no figure for what was attacked"
        console.print(f"FAILED: {name} is limited but was not measured: {reason}", markup=False)
    for name, reason in found.get("inapplicable", {}).items():
        console.print(f"not limited here: {name} does not apply: {reason}", markup=False)
    if not found["measured"]:
        console.print("FAILED: nothing could be measured: every attack lacks something, as said above. Begin with "
                      "--knows, the columns an intruder knows of people", markup=False)  # fmt: skip
    for one in found["verdicts"]:
        word = "FAILED" if one["failed"] else "met"
        console.print(f"{word}: {one['attack']} exposes {one['exposed']:.1%}, allowed {one['most']:.1%}", markup=False)


def _print_outcome(console: Console, outcome: Mapping[str, Any]) -> None:
    rate = outcome["exposed"]
    console.print(outcome["sentence"], markup=False, style="bold" if outcome["per_thousand"] else "")
    parts = [f"  {rate['successes']} of {rate['trials']} ({rate['low']:.1%} to {rate['high']:.1%})"]
    if outcome["control"]:
        parts.append(f"control {outcome['control']['share']:.1%}")
    if outcome["precision"]:
        parts.append(f"precision {outcome['precision']['share']:.1%}")
    console.print(", ".join(parts), markup=False)
    if ways := outcome["figures"].get("disclosed"):
        told = f"  rows that look alike have one value: {ways['homogeneous']}; two values: {ways['background']}"
        far = f"a value far likelier than in the table: {ways['skewed']}; similar values: {ways['similar']}"
        console.print(f"{told}; {far}", markup=False)
    for one in outcome["figures"].get("hidden", [])[:MOST_CELLS]:
        console.print(f"  suppressed: {describe_cell(one)}", markup=False)
    for one in outcome["figures"].get("pinned", [])[:MOST_CELLS]:
        console.print(f"  certain: {describe_cell(one)}", markup=False)
    for warning in outcome["warnings"]:
        console.print(f"  beware: {warning}", markup=False)


def describe_cell(found: Mapping[str, Any]) -> str:
    """A cell of published tables in words, with what it can be."""
    named = ", ".join(f"{name} {value}" for name, value in found["cell"].items()) or "everybody"
    low, high = found["low"], found["high"]
    return f"{named}: {low}" if low == high else f"{named}: {low} " + ("or more" if high is None else f"to {high}")


class AuditCommand(TyperCommand):
    """A command whose exit code 2 is a verdict: where it could not judge, it ends with 1."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        """Read the words; a mistake in them is no verdict."""
        try:
            return super().make_context(*given, **named)
        except Exception as mistake:
            _mark(mistake)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a refusal is no verdict."""
        try:
            return super().invoke(ctx)
        except DeniableError as refusal:
            _mark(refusal)
            raise


NOT_JUDGED = 1


def _mark(mistake: Any) -> None:
    if getattr(mistake, "exit_code", 0) == 2:
        mistake.exit_code = NOT_JUDGED


AUDIT_EXAMPLES = """\b
Examples:
  deniable audit laplace --epsilon 1
  deniable audit gaussian --epsilon 1 --delta 1e-3 --runs 100000 --report audit.html
  deniable audit local:optimized-unary --epsilon 0.5 --json
  deniable audit laplace --epsilon 1 --spends 3          # a broken twin: it is caught
  deniable audit laplace --mu 0.2 --spends 1             # a claim of mu, of noise that is made for epsilon 1
  deniable audit training --epsilon 1 --delta 1e-5       # too slow for many runs: one run, many people
  deniable audit synthesis:mst --epsilon 1 --delta 1e-5
  deniable audit "SELECT sex, COUNT(*) FROM visits GROUP BY sex" --policy policy.yaml --epsilon 1 --runs 1000
  deniable audit mine:noisy_mean --world "[1,2,3]" --world "[1,2]" --epsilon 1     # a function of a world
  deniable audit mine:noisy_mean --world "[1,2,3,90]"                              # one world: each row left out
  deniable audit mine:noisy_mean --neighbors mine:random_pair --tries 50           # the worst pair is found
  deniable audit mine:train_and_score --canaries 1000 --epsilon 2 --delta 1e-5     # one run, many canaries
  deniable audit "./other-product --data {world}" --world with.csv --world without.csv --runs 500
  deniable audit outputs --world with.csv --world without.csv --epsilon 1          # outputs at hand, one a row
"""


def audit(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT",
            help="A mechanism (laplace, gaussian, exponential, response, local:NAME, training, synthesis:NAME), a "
            "question, module:function, a program with {world}, or the word outputs.",
        ),
    ],
    epsilon: Annotated[str | None, typer.Option(help="The epsilon that is claimed. [default: 1]")] = None,
    delta: Annotated[str | None, typer.Option(help="The delta that is claimed. [default: 0]")] = None,
    mu: Annotated[str | None, typer.Option(help="The mu that is claimed instead (Gaussian privacy).")] = None,
    spends: Annotated[
        str | None,
        typer.Option(help="The epsilon our own noise is made for, where it is not the claim: a false claim is found."),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(help="An input to tell apart: a value or a file. Repeat it, or give one list of rows."),
    ] = None,
    neighbors: Annotated[str | None, typer.Option(help="module:function that gives a pair for a number.")] = None,
    tries: Annotated[
        int | None, typer.Option(help="How many pairs to try, of --neighbors or of one world. [default: 20]", min=1)
    ] = None,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="The policy of a question.")] = None,
    canaries: Annotated[
        int | None, typer.Option(help="One run: the function scores so many added records.", min=2)
    ] = None,
    timed: Annotated[bool, typer.Option("--timed", help="The time of each run is an output too.")] = False,
    runs: Annotated[int | None, typer.Option(help="Runs on each input. [default: 20000]", min=400)] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of all lower bounds together.")] = 0.999,
    report: Annotated[Path | None, typer.Option(help="Write the page with the game (HTML).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Test a claimed epsilon: try to tell two neighboring inputs apart, and prove a lower bound on the real epsilon.

    No private table is read and nothing is charged. Exit code 0 when the claim stands, 2 when it is refuted, 1 when
    the audit could not be made: what was asked has no meaning, or something cannot be read or run.
    """
    from deniable.curator.audit import AuditOrder
    from deniable.curator.audit import audit as run_audit

    order = AuditOrder(
        subject, epsilon, delta, mu, spends, tuple(world or ()), neighbors, tries, policy, canaries, timed, runs,
        confidence,
    )  # fmt: skip
    refuse_other_than_page(report)
    with show_progress("Auditing") as told:
        found = run_audit(order, told)
    if report is not None:
        from deniable.reports.attacks import build_audit_page
        from deniable.reports.page import write

        write(build_audit_page(found), report)
    emit(found.to_dict(), as_json, lambda console: _print_audit(console, found))
    if found["failed"]:
        raise typer.Exit(2)


def _print_audit(console: Console, found: Mapping[str, Any]) -> None:
    wins = found["game"]["wins"]
    console.print(f"{found['mechanism']}: {found['neighbors']}", markup=False)
    told = f"the best attacker wins {wins['share']:.1%} of games ({wins['low']:.1%} to {wins['high']:.1%})"
    console.print(f"{told}; {found['claimed']} allows {found['game']['most']:.1%}", markup=False)
    console.print(found["audit"]["sentence"], markup=False)
    proof = found["audit"]
    if "delta_bound" in proof:
        at = f"at epsilon {proof['epsilon']:g}"
        told = f"delta is at least {proof['delta_bound']:.2g} {at}, mu at least {proof['mu_bound']:.3f}"
        if proof["mu"] is not None:
            told = f"epsilon is at least {proof['epsilon_bound']:.3f} at delta {proof['delta']:g}, {told.split(',')[0]}"
        console.print(f"{told}; all with confidence {proof['confidence']:g}", markup=False)
    for one in found["blind"]:
        console.print(f"  not seen: {one}", markup=False, style="dim")


def describe_limited(found: Mapping[str, Any] | None) -> Iterator[str]:
    """What was found of rows that left by the attacks that the policy limits, one line each; none without a limit."""
    if found is None:
        return
    for name, exposed in found["exposed"].items():
        yield f"attacked by {name}: exposes {exposed:.1%} of the people, {found['limits'][name]:.1%} at most"
    if found["accepted_by"]:
        yield f"beyond the limit, accepted by {found['accepted_by']}"
    for name, why in found["unmeasured"].items():
        yield f"not measured: {name} {why}. The policy limits it: try it with deniable attack before you hand rows on"
    for name, why in found.get("inapplicable", {}).items():
        yield f"not limited here: {name} does not apply: {why}"
