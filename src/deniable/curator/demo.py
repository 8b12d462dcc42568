"""The demo: one generated town, in chapters, each by a capability of deniable at work; and worlds by themselves."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deniable.curator.context import ledger_of
from deniable.curator.curator import Curator
from deniable.curator.policy import check
from deniable.errors import BudgetExceeded, QueryRefused
from deniable.policy.budget import ApproxDP, exact, shorten_left
from deniable.release.record import Record
from deniable.storage import write_whole

SURVEY = """\
survey: taxes
title: A question about taxes
about: Asked of a generated town, to show that whoever answers can deny it.
questions:
  evaded_taxes:
    ask: Did you ever evade taxes?
    type: yes-no
    method: two-coins
"""
"""The survey of the last chapter, which its commands check and serve."""


def show_coins(stage: Stage) -> Chapter:
    """Two coins: each answer can be denied, and the share is still found."""
    import numpy as np

    from deniable import world
    from deniable.localdp.frequency.randomized_response import two_coins

    write_whole(stage.folder / "survey.yaml", SURVEY.encode())
    table = world.make("survey", min(stage.people, 20_000))["survey"]
    truth = np.array([answer == "yes" for answer in table["evaded_taxes"].to_pylist()])
    design = two_coins()
    answers = design.randomize(truth.astype(np.int64))
    tally = design.tally(answers)
    told = design.estimate(tally, truth.size)
    low, high = (float(end[1]) / truth.size for end in told.interval(0.95))
    return Chapter(
        "A question that nobody need answer truly",
        (
            f"{truth.size:,} people are asked whether they evaded taxes. Each tosses a coin: tails, they tell the "
            "truth; heads, a second coin answers. Whatever they said, they can deny it: epsilon is ln 3.",
            f"{tally[1] / truth.size:.1%} said yes; from that follows {told.counts[1] / truth.size:.1%}, between "
            f"{low:.1%} and {high:.1%}. In truth it is {truth.mean():.1%}.",
        ),
        commands=(
            f"deniable survey check {stage.at('survey.yaml')}",
            f"deniable survey serve {stage.at('survey.yaml')}",
        ),
    )


# ruff: noqa: S608  (statements here are made of our own words; no user text)


KNOWN = ("zip", "birth_date", "sex")


def show_linkage(stage: Stage) -> Chapter:
    """The voter roll is joined to the nameless visits on what both have."""
    from deniable.world.hospital import GOVERNOR

    engine = stage.curator.context.scope.attach("voters", "visits")
    matched = ", ".join(f"v.{name} = h.{name}" for name in KNOWN).replace(", ", " AND ")
    found = engine.run(
        f"SELECT DISTINCT v.name AS name, h.diagnosis AS diagnosis FROM voters v JOIN visits h ON {matched} "
        "WHERE v.birth_date = ? AND v.zip = ? AND v.sex = 'M'",
        [GOVERNOR.birth_date, GOVERNOR.zip],
    ).to_pylist()
    count = "SELECT count(*) AS n FROM voters WHERE birth_date = ?"
    same_day = engine.run(count, [GOVERNOR.birth_date])["n"][0].as_py()
    men = engine.run(count + " AND sex = 'M'", [GOVERNOR.birth_date])["n"][0].as_py()
    named = ", ".join(sorted({row["name"] for row in found})) or "nobody"
    ills = ", ".join(sorted({row["diagnosis"] for row in found})) or "nothing"
    return Chapter(
        "An intruder with the voter roll",
        (
            "The newspaper wrote that the governor collapsed. His birthday is public.",
            f"{same_day} voters share it, {men} of them are men, and one of those lives in his ZIP code: {named}.",
            f"The nameless visits give away his diagnoses: {ills}. Removing names was not enough.",
        ),
    )


def show_uniqueness(stage: Stage) -> Chapter:
    """How many others could be found the same way."""
    from deniable.assess.utility import count_unique_rows as measured

    engine = stage.curator.context.scope.attach("voters")
    sets = (("birth_date",), ("zip", "sex"), ("birth_date", "sex"), KNOWN)
    found = [measured(engine, "voters", columns) for columns in sets]
    rows = tuple({"who knows": " + ".join(u.columns), "finds of 1,000": u.per_thousand} for u in found)
    last = found[-1]
    return Chapter(
        "He is no exception",
        (f"ZIP code, birth date and sex single out {last.alone:,} of {last.rows:,} people of the town.",),
        rows,
        (last.per_thousand, "of 1,000 people can be found by ZIP code, birth date and sex"),
    )


BUDGET = ApproxDP(exact(1), exact("1e-7"))


def show_masking(stage: Stage) -> Chapter:
    """Identifiers are masked; what is left still singles people out."""
    from deniable.assess.utility import count_unique_rows
    from deniable.curator.mask import keys, run
    from deniable.engines.duckdb import DuckDBEngine

    out, key = stage.folder / "masked.parquet", stage.folder / "people.key"
    if not key.exists():
        keys.new("people", key)
    places = (f"people=file:{key}",)
    run.mask(run.Request(stage.folder / "policy.yaml", {"visits": out}, keys=places, fresh=True, ledger=stage.ledger))
    with DuckDBEngine() as engine:
        engine.attach("masked", str(out))
        kept, rows = ", ".join(field.name for field in engine.describe("masked")), engine.count("masked")
        left = count_unique_rows(engine, "masked", KNOWN)
    return Chapter(
        "Masked rows",
        (
            f"Identifiers are removed or become keyed tokens, and the policy asks for no more than is needed: {rows:,} "
            f"rows of a sample of patients, with {kept}.",
            f"ZIP code, birth date and sex are among them, and still single out {left.per_thousand} of 1,000 rows: "
            "masking has no formal guarantee, and its statement says so.",
        ),
        commands=(
            f"deniable mask -p {stage.at('policy.yaml')} --table visits --key people=file:{stage.at('people.key')} "
            f"-o {stage.at('masked.parquet')}",
        ),
    )


def show_anonymity(stage: Stage) -> Chapter:
    """Quasi-identifiers are generalized until every row has four lookalikes."""
    from deniable.curator.anonymize import run
    from deniable.curator.anonymize.request import Order

    out = stage.folder / "anonymous.parquet"
    order = Order(None, out, stage.folder / "policy.yaml", "visits", ledger=stage.ledger)
    told = run.anonymize(order)
    return Chapter(
        "k-anonymous rows",
        (
            "Columns that the voter roll shares are made coarser until every row looks like four others, with three "
            "different diagnoses among them, at the least loss of information.",
            _proof(told),
        ),
        commands=(
            f"deniable anonymize -p {stage.at('policy.yaml')} --table visits --k 5 -o {stage.at('anonymous.parquet')}",
        ),
    )


def _proof(told: Mapping[str, Any]) -> str:
    proof, risk = told["proof"], told["risk"]
    return (
        f"{told['released']:,} rows are released, {told['suppressed']:,} left out: the best of {proof['nodes']:,} "
        f"ways, proven with {proof['checks']} checks. At risk were {risk['before']['prosecutor']['at_risk']:.0%} of "
        f"the rows, and are {risk['after']['prosecutor']['at_risk']:.0%}. It holds against the voter roll, not against "
        "all that may be known."
    )


def show_synthesis(stage: Stage) -> Chapter:
    """Rows of nobody, drawn from noisy marginals."""
    from deniable.curator.synthesize import run

    out = stage.folder / "synthetic.parquet"
    details = run.synthesize(stage.curator.context, run.Order("visits", BUDGET), out).details
    pairs, rows = details["measured"], details["rows"]
    assert isinstance(pairs, list)
    assert isinstance(rows, int)
    return Chapter(
        "Synthetic rows",
        (
            f"{rows:,} rows of nobody are drawn from noisy counts, for epsilon 1 of the budget. "
            + (
                f"{len(pairs)} tables were worth their noise, such as {', '.join(str(pair) for pair in pairs[:4])}."
                if pairs
                else "Beyond single columns no table was worth its noise."
            ),
        ),
        commands=(
            f"deniable synthesize visits -p {stage.at('policy.yaml')} --epsilon 1 --delta 1e-7 "
            f"-o {stage.at('synthetic.parquet')}",
        ),
    )


QUESTION = "SELECT sex, COUNT(*) AS visits FROM visits WHERE diagnosis = 'I10' GROUP BY sex"


def show_price(stage: Stage) -> Chapter:
    """Explain first: no data is touched."""
    told = stage.curator.explain(QUESTION, epsilon="0.5")
    part = told["aggregates"][0]["measurements"][0]
    try:
        stage.curator.explain("SELECT patient_id, diagnosis FROM visits", epsilon="0.5")
        refusal = ""
    except QueryRefused as refused:
        refusal = refused.message
    row: Row = {
        "measures": part["measures"],
        "sensitivity": part["sensitivity"],
        "mechanism": part["mechanism"],
        "scale": f"{part['scale']:.3g}",
        "error (95%)": f"{part['error']:.3g}",
        "epsilon": told["cost"]["epsilon"],
    }
    return Chapter(
        "What a question costs",
        (
            f"An analyst asks: {QUESTION}",
            f"It protects {told['unit']}; one person can move a count by {part['sensitivity']}, and noise hides that.",
            f"Asking for rows instead is refused: {refusal}",
        ),
        (row,),
        commands=(f'deniable query "{QUESTION}" -p {stage.at("policy.yaml")} --epsilon 0.5 --explain',),
    )


def show_answer(stage: Stage) -> Chapter:
    """The noisy answer, with its error and what is left."""
    answered = stage.curator.query(QUESTION, epsilon="0.5")
    rows = tuple(
        {"sex": row["sex"], "visits": row["visits"], "at least": row["visits_low"], "at most": row["visits_high"]}
        for row in answered.to_pylist()
    )
    left = shorten_left(str(answered.release.details["left"]))
    more = stage.curator.explain(QUESTION, epsilon="0.5")["more_like_this"]
    return Chapter(
        "The answer",
        (
            "Every number says between what the truth lies, in 95 of 100 answers.",
            f"And it says what is left of the budget: {left}, enough for about {more} more like it.",
        ),
        rows,
        bars=("sex", "visits", "at least", "at most"),
        commands=(f'deniable query "{QUESTION}" -p {stage.at("policy.yaml")} --epsilon 0.5',),
    )


def show_averaging(stage: Stage) -> Chapter:
    """The same question again: the stored answer, at no cost."""
    first = stage.curator.query(QUESTION, epsilon="0.5")
    again = [stage.curator.query(QUESTION, epsilon="0.5") for _ in range(20)]
    same = all(answer.rows.equals(first.rows) for answer in again)
    return Chapter(
        "Asking again",
        (
            f"Asked 20 times more, the question has {'the same answer' if same else 'other answers'}, at no further "
            "cost: averaging gains nothing.",
        ),
    )


RELEASES = {
    "the visits as they are": "visits",
    "masked": "masked",
    "k-anonymous": "anonymous",
    "synthetic": "synthetic",
}


def show_attacks(stage: Stage) -> Chapter:
    """The intruder of the beginning comes back with the same voter roll, to what was released."""
    rows = tuple({"rows": told, "named of 1,000": _count_named(stage, file)} for told, file in RELEASES.items())
    return Chapter(
        "The intruder comes back",
        (
            "With the same voter roll the intruder tries every release before it leaves. Where one name alone fits a "
            "row, a person is named.",
        ),
        rows,
        bars=("rows", "named of 1,000"),
        commands=(
            f"deniable attack {stage.at('masked.parquet')} --knows {','.join(KNOWN)} "
            f"--register {stage.at('voters.parquet')}",
            f"deniable attack {stage.at('anonymous.parquet')} --policy {stage.at('policy.yaml')} --table visits --all "
            f"--report {stage.at('report.html')}",
        ),
    )


def _count_named(stage: Stage, file: str) -> int:
    from deniable.curator.attack import Order, attack

    found = attack(Order(str(stage.folder / f"{file}.parquet"), KNOWN, str(stage.folder / "voters.parquet")))
    share: float = found["exposed"]["linkage"]
    return round(1000 * share)


def show_ledger(stage: Stage) -> Chapter:
    """What was released, what was spent, and that it cannot be overspent."""
    from deniable.curator.governance import reports, steward

    policy, place = stage.folder / "policy.yaml", str(stage.ledger)
    register = steward.register(policy, place)
    proven = reports.verify_ledger(stage.curator.ledger, None, None)
    releases = tuple(_entry(release) for release in register["releases"])
    return Chapter(
        "The ledger",
        (
            f"Each release stands in a ledger whose {proven['entries']} entries are chained: a change to any is found. "
            "Masked and k-anonymous rows have no formal guarantee, and it says so.",
            _refusal(stage),
        ),
        releases,
        commands=(
            f"deniable ledger verify -p {stage.at('policy.yaml')}",
            f"deniable register -p {stage.at('policy.yaml')} -o {stage.at('register.html')}",
        ),
    )


def _entry(release: Mapping[str, Any]) -> Row:
    """A line of the register."""
    epsilon, delta = release["epsilon"], release["delta"]
    if epsilon is None:
        return {"technique": release["technique"], "epsilon": "no guarantee", "delta": ""}
    return {"technique": release["technique"], "epsilon": f"{epsilon:.3g}", "delta": f"{delta:g}"}


def _refusal(stage: Stage) -> str:
    """Ask for more than is left: refused, whatever the rows are."""
    try:
        stage.curator.query("SELECT COUNT(*) AS visits FROM visits", epsilon="100")
    except BudgetExceeded as refused:
        return f"A question for epsilon 100 is refused: {refused.message}"
    raise AssertionError("a question beyond the budget was answered")


def show_stream(stage: Stage) -> Chapter:
    """A number every week for one charge; the county is made here, and serves three chapters more."""
    with stage.visit("county") as (curator, folder, at):
        found = curator.publish("weekly", out=folder / "weekly.csv")
    weeks = [row for row in found.rows if row.span == "period" and row.group == {"reason": "water"}]
    rows = sorted(weeks, key=lambda row: -row.value)[:3]
    return Chapter(
        "A number every week",
        (
            f"A county publishes each week how many people call its help line: {found.closed} weeks for one charge of "
            f"epsilon {float(found.epsilon):g}. A person counts in at most 4 weeks, and their whole year is hidden.",
            f"In the week from {rows[0].first} something happened to the water.",
        ),
        tuple({"calls about water, week from": str(row.first), "calls": round(row.value), "at least": round(row.low),
               "at most": round(row.high)} for row in rows),
        bars=("calls about water, week from", "calls", "at least", "at most"),
        commands=(f"deniable publish weekly -p {at}/policy.yaml -o {at}/weekly.csv --report {at}/weekly.html",),
    )  # fmt: skip


def show_census(stage: Stage) -> Chapter:
    """Whole numbers that add up, by block, sex and age."""
    with stage.visit("county") as (curator, folder, at):
        found = curator.tabulate("census", out=folder / "census.csv")
    return Chapter(
        "A census",
        (
            f"{found.total:,} people of the county are counted by block, sex and age: {found.areas:,} blocks with "
            f"{found.cells} cells each. All numbers are whole, none is negative, and they add up; the total is exact.",
        ),
        tuple({"level": each.level, "areas": each.areas, "standard deviation of a total": f"{each.total_deviation:.1f}"}
              for each in found.levels),
        commands=(f"deniable tabulate census -p {at}/policy.yaml -o {at}/census.csv --report {at}/census.html",),
    )  # fmt: skip


def show_poll(stage: Stage) -> Chapter:
    """A poll with weights: what it says of everybody, with the error of the sample and of the noise."""
    with stage.visit("county") as (curator, _, at):
        (found,) = curator.weighted("poll", "bus", weight="weight", epsilon="0.5").to_pylist()
    told = (
        "One in four of the county was asked whether they ride the bus, and one in two of those from 65 on. With "
        f"weights {found['total']:,.0f} of all do, {found['total_low']:,.0f} to {found['total_high']:,.0f}: that "
        "holds both the error of the sample and the noise, which hides each one who was asked."
    )
    command = f"deniable weighted poll bus -p {at}/policy.yaml --epsilon 0.5 --report {at}/poll.html"
    return Chapter("A poll", (told,), commands=(command,))


def show_network(stage: Stage) -> Chapter:
    """A network without names, and what can be said of it with noise."""
    from deniable.curator.attack import Order, attack

    with stage.visit("county") as (curator, folder, at):
        exposed = attack(Order(str(folder / "friends.parquet"), edges=("one", "other")))["exposed"]["network"]
        (found,) = curator.network("friends", "assortativity", epsilon=1, by="club").to_pylist()
    return Chapter(
        "Who knows whom",
        (
            f"In a list of friendships without names, {1000 * exposed:.0f} of 1,000 are found by how many friends they "
            "and their friends have.",
            f"With noise that hides a person with all friendships: {found['inside']:.0%} of them are inside a club "
            f"({found['inside_low']:.0%} to {found['inside_high']:.0%}), and by chance {found['inside_by_chance']:.0%} "
            "would be. People befriend those who are like them.",
        ),
        commands=(
            f"deniable attack {at}/friends.parquet --edges one,other",
            f"deniable network friends assortativity --by club -p {at}/policy.yaml --epsilon 1",
            f"deniable network friends spread -p {at}/policy.yaml --epsilon 0.5 --passing 0.2",
        ),
    )


def show_places(stage: Stage) -> Chapter:
    """Four points name a rider; a map with noise names nobody."""
    from deniable.curator.attack import Order, attack

    trace, ends = ("rider_id", "pickup_latitude", "pickup_longitude", "pickup_time"), ("pickup", "dropoff")
    with stage.visit("taxi") as (curator, folder, at):
        order = Order(str(folder / "rides.parquet"), trace=trace, resolutions=((2, "hour"),))
        exposed = attack(order)["exposed"]["traces"]
        found: Any = curator.places("rides", trace[1:3], epsilon=1, per_person=5)
    (total,) = found.release.details["totals"]
    options = " ".join(f"--{word} {end}_latitude,{end}_longitude" for word, end in zip(("at", "to"), ends, strict=True))
    return Chapter(
        "Where people go",
        (
            f"Four points of a taxi rider's month, to a kilometer and an hour, name {1000 * exposed:.0f} of 1,000.",
            f"A map with noise counts {total['count']:,.0f} rides ({total['low']:,.0f} to {total['high']:,.0f}) in "
            f"{found.release.details['cells']:,} cells, fine where many rides are and coarse where few are, and names "
            "nobody.",
        ),
        commands=(
            f"deniable attack {at}/rides.parquet --trace {','.join(trace)} --resolution 2,hour",
            f"deniable places rides --at {trace[1]},{trace[2]} -p {at}/policy.yaml --epsilon 1 --per-person 5 "
            f"-o {at}/map.geojson --report {at}/map.html",
            f"deniable places rides {options} -p {at}/policy.yaml --epsilon 0.5 --per-person 5 -o {at}/flows.csv",
        ),
    )


Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one chapter has to say: sentences, figures worth a table, and those worth a plot."""

    title: str
    sentences: tuple[str, ...]
    table: tuple[Row, ...] = ()
    people: tuple[int, str] | None = None
    """So many of 1,000 people, and what they are."""
    bars: tuple[str, ...] = ()
    """Columns of the table that make bars on the page: their names, their lengths, and perhaps low and high ends."""
    commands: tuple[str, ...] = ()
    """How to do it yourself."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: the folder of the town, its size, its hospital's ledger and curator."""

    folder: Path
    people: int
    ledger: Path
    curator: Curator = field(repr=False)
    visited: list[Path] = field(default_factory=list)

    def at(self, name: str) -> str:
        """A file of the town as a command names it."""
        return shlex.quote(str(self.folder / name))

    @contextmanager
    def visit(self, kind: str) -> Iterator[tuple[Curator, Path, str]]:
        """Another world beside the town, made when it is first visited; its folder, and as a command names it."""
        folder = self.folder / kind
        if folder not in self.visited:
            make_world(kind, min(self.people, 10_000), None, folder)
            _remove_old_ledger(folder)
            self.visited.append(folder)
        with Curator.open(folder / "policy.yaml", ledger=ledger_of(folder / "policy.yaml", None)) as curator:
            yield curator, folder, self.at(kind)


ChapterMaker = Callable[[Stage], Chapter]


def chapters() -> tuple[ChapterMaker, ...]:
    """The chapters in the order in which they are told."""
    return (
        show_linkage, show_uniqueness, show_masking, show_anonymity, show_price, show_answer, show_averaging,
        show_synthesis, show_attacks, show_ledger, show_stream, show_census, show_poll, show_network, show_places,
        show_coins,
    )  # fmt: skip


def run_demo(folder: Path, people: int, progress: Callable[[float], None] | None = None) -> Iterator[Chapter]:
    """Make the town and tell the story, chapter by chapter."""
    yield make_town(folder, people, progress)
    ledger = _remove_old_ledger(folder)
    with Curator.open(folder / "policy.yaml", ledger=ledger) as curator:
        stage = Stage(folder, people, ledger, curator)
        for scene in chapters():
            yield scene(stage)


def _remove_old_ledger(folder: Path) -> Path:
    """The story's own ledger. A new town is nobody yet: what an earlier telling spent on another town is not kept."""
    from deniable.ledger.witness import Witness, name_place

    ledger = Path(ledger_of(folder / "policy.yaml", None))
    for left in folder.glob(f"{ledger.stem}*"):
        left.unlink()
    Witness().forget(name_place(ledger, ""))
    return ledger


def make_town(folder: Path, people: int, progress: Callable[[float], None] | None) -> Chapter:
    """The town and its policy."""
    told = make_world("hospital", people, None, folder, progress)
    checked = check.check_policy(folder / "policy.yaml")
    rows = told["rows"]
    assert isinstance(rows, dict)
    protects = next(table["protects"] for table in checked["tables"] if table["name"] == "visits")
    return Chapter(
        "A town and its hospital",
        (
            f"A town of {people:,} voters is generated; nobody in it exists.",
            f"Its hospital recorded {rows['visits']:,} visits, without names. Its voter roll has names and is public.",
            f"One policy file says what is protected: {protects}; the whole budget is {checked['budgets']['dataset']}.",
        ),
        commands=(
            f"deniable world make hospital --people {people} -o {shlex.quote(str(folder))}",
            f"deniable policy check {shlex.quote(str(folder / 'policy.yaml'))}",
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)
class WorldReport(Record):
    """A world that was written: its kind, size and seed, the folder, the rows of each table, and the policy file."""

    world: str
    people: int
    seed: int
    folder: str
    rows: Mapping[str, int]
    policy: str = "policy.yaml"


@dataclass(frozen=True, slots=True, eq=False)
class WorldKind(Record):
    """A kind of world: what it is about, its tables and lists, and how many people it usually has."""

    world: str
    summary: str
    tables: list[str]
    lists: list[str]
    usual_people: int


def make_world(
    kind: str, people: int | None, seed: int | None, folder: Path, progress: Callable[[float], None] | None = None
) -> WorldReport:
    """Write a world to a folder, and say what was written."""
    from deniable import world

    chosen, start = world.find_kind(kind), world.SEED if seed is None else seed
    size = chosen.usual if people is None else people
    made = WorldReport(kind, size, start, str(folder), world.write(kind, size, start, folder, progress))
    _note_world(folder / made.policy)
    return made


def _note_world(policy: Path) -> None:
    """Tell the witness of ledgers that nobody is in a world's tables, and that a ledger which was there is gone."""
    from deniable.engines.sources import stamp_source
    from deniable.ledger.witness import Source, Witness, name_place
    from deniable.policy.document import read

    known, ledger = read(policy), ledger_of(policy, None)
    witness = Witness()
    witness.note_generated([Source(*stamp_source(table.source, known.folder)) for table in known.private])
    if not Path(ledger).exists():
        witness.forget(name_place(ledger, known.dataset))


def world_kinds() -> list[WorldKind]:
    """The worlds there are."""
    from deniable import world

    return [
        WorldKind(kind.name, kind.summary, list(kind.tables), list(kind.reference), kind.usual) for kind in world.KINDS
    ]
