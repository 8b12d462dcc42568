"""Start: from a stranger's table to a first release, step by step, by the workflows that every command uses.

The steps look at the table, attack it as it stands, learn what is not public with noise, release, attack what was
released and read it back. Decisions are in `curator.policy.decisions`. What is stored between steps is for the steward
alone, and holds names, counts and shares: no row of the table, and no value that was not declared or learned with
noise."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator import attack, audit
from deniable.curator.anonymize.request import refuse_accepted
from deniable.curator.policy import compose, decisions
from deniable.curator.policy.compose import Step, name_step
from deniable.curator.policy.decisions import K_ANONYMITY, LEARN, MASKED, QUERIES, SYNTHETIC, Decisions, Question
from deniable.curator.policy.draft import Draft, Drafted, draft_table, save
from deniable.curator.sources import hash_content
from deniable.errors import DataError, Infeasible, ParameterError
from deniable.policy.schema import Role
from deniable.release.record import Record
from deniable.storage import remove_unfinished, storage_errors, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator import Curator

Progress = Callable[[float], None]
ATTACKS = 500
FEWEST_GUESSES = 20
KEEP = "for the steward alone"


@dataclass(frozen=True, slots=True)
class Place:
    """Which table, and the folder where everything about its release is kept."""

    source: str
    folder: Path
    encoding: str | None = None

    @property
    def policy(self) -> Path:
        """The policy file."""
        return self.folder / "policy.yaml"

    @property
    def decisions(self) -> Path:
        """What was decided so far, in the form that can be given as answers."""
        return self.folder / "decisions.yaml"

    @property
    def state(self) -> Path:
        """What the steps found, so that a run can go on; for the steward alone."""
        return self.folder / "start.json"

    @property
    def page(self) -> Path:
        """The page for the data officer."""
        return self.folder / "report.html"

    def release(self, decided: Decisions) -> Path:
        """The file that leaves: CSV where the table is one, so that its owner can read it."""
        plain = self.encoding is None and self.source.lower().endswith((".csv", ".tsv", ".csv.gz"))
        if decided.technique == QUERIES:
            return self.folder / "answers.csv"
        return self.folder / ("release.csv" if plain else "release.parquet")

    @property
    def options(self) -> tuple[str, ...]:
        """What commands must say to read the table."""
        return ("--encoding", self.encoding) if self.encoding else ()


@dataclass(frozen=True, slots=True, eq=False)
class Findings(Record):
    """What the steps found so far, as it is stored: empty where a step was not made yet.

    `version` tells the table apart from a changed one, `basis` the decisions that what follows was made from. `before`
    and `after` are attacks, `learned` the values that were learned with noise, `verified` what was read back.
    """

    version: str = ""
    before: dict[str, Any] = field(default_factory=dict)
    basis: str = ""
    learned: dict[str, Any] = field(default_factory=dict)
    release: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    verified: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    """The basis of a release that an attack passed a limit of: the same decisions are not tried until one passes."""


@dataclass(frozen=True, slots=True, eq=False)
class StartReport(Record):
    """A first release from beginning to end: what was found, decided, released and attacked, and how to repeat it.

    `before` and `after` are attacks; they and everything else in the report are for the steward and the data officer.
    """

    title: str
    table: str
    rows: int
    recipient: str
    technique: str
    decisions: dict[str, Any]
    columns: list[dict[str, str]]
    before: dict[str, Any]
    release: dict[str, Any]
    after: dict[str, Any]
    verified: dict[str, Any]
    files: dict[str, str]
    commands: list[dict[str, str]]

    @property
    def failed(self) -> bool:
        """Whether an attack on what was released passes a limit."""
        return bool(self.after["failed"])


# Looking, and attacking what is there


def look(place: Place, progress: Progress | None = None) -> Draft:
    """The table's columns with their roles as far as the evidence goes; a table of nobody is refused."""
    refuse_accepted(place.source, place.state.name, place.encoding)
    made = draft_table(place.source, place.folder, encoding=place.encoding, progress=progress)
    if not made.rows:
        raise DataError("the table has no rows", remedy="There is nobody to protect, and nothing to release")
    return replace(made, columns=tuple(_doubt_texts(column) for column in made.columns))


def _doubt_texts(column: Drafted) -> Drafted:
    """A column of sentences is undecided, whatever its role: names and places may be written in it."""
    if not column.reason.startswith("free text"):
        return column
    return replace(column, role=Role.UNDECIDED, reason=f"sentences, in which people may be named ({column.reason})")


def name_version(place: Place) -> str:
    """A fingerprint of the table's content: another one means that the table was changed."""
    return hash_content(place.source, Path.cwd()) or ""


def attack_before(place: Place, made: Draft, found: Findings, progress: Progress | None = None) -> Findings:
    """What an intruder could do if the table were given away as it is, knowing what was found to be known."""
    order = attack.Order(
        place.source, _list_drafted(made, Role.QUASI_IDENTIFIER), sensitive=_list_drafted(made, Role.SENSITIVE),
        unit=made.unit, attacks=ATTACKS, encoding=place.encoding,
    )  # fmt: skip
    return replace(found, before=_drop_unclear(attack.attack(order, progress).to_dict()))


def _list_drafted(made: Draft, role: Role) -> tuple[str, ...]:
    return tuple(column.name for column in made.columns if column.role is role and column.name != made.unit)


def _drop_unclear(found: Mapping[str, Any]) -> dict[str, Any]:
    """Findings without positions of rows, which lead to them, and without rates of few guesses, which tell nothing."""
    clear = {**found, "attacks": [_doubt_rates(made) for made in found["attacks"]]}
    return {name: value for name, value in clear.items() if name != "weakest"}


def _doubt_rates(made: Mapping[str, Any]) -> dict[str, Any]:
    """An attempt to single out without rates of fewer than so many predicates: one of one would be everybody."""
    few = [one for one in made["outcomes"] if one["exposed"]["trials"] < FEWEST_GUESSES]
    if made["attack"] != "singling_out" or not few:
        return dict(made)
    kept = [one for one in made["outcomes"] if one not in few]
    told = f"fewer than {FEWEST_GUESSES} predicates single out a released row, which is too few to tell"
    return {**made, "outcomes": kept, "skipped": made["skipped"] or ("" if kept else told)}


# What is stored between steps


def read_state(place: Place) -> Findings:
    """What earlier runs found; nothing where there was none, or where the file is not ours."""
    remove_unfinished(place.state, place.decisions, place.policy, place.page)
    try:
        state = json.loads(place.state.read_text(encoding="utf-8"))
        return Findings(**state) if set(state) <= {each.name for each in fields(Findings)} else Findings()
    except (OSError, ValueError, TypeError):
        return Findings()


def begin_epoch(place: Place) -> None:
    """Say to the ledger, where there is one, that the data is new: questions have new answers, and are charged anew."""
    from deniable.curator.context import find_ledger

    if place.policy.exists() and find_ledger(place.policy, None) is not None:
        with _open_curator(place) as curator:
            curator.new_epoch("the table was changed")


def _make_folder(place: Place) -> None:
    with storage_errors(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)


def save_state(place: Place, found: Findings) -> None:
    """Keep what the steps found."""
    _make_folder(place)
    write_whole(place.state, json.dumps(found.to_dict(), indent=1, default=str, ensure_ascii=False).encode())


def name_basis(decided: Decisions) -> str:
    """What a release was made from: other decisions have another name."""
    return hashlib.sha256(json.dumps(decided.to_dict(), sort_keys=True).encode()).hexdigest()


def read_decisions(made: Draft, path: Path, *, known_only: bool = False) -> Decisions:
    """The decisions in a file of answers, YAML or JSON; wrong keys and words are refused with the nearest.

    With `known_only`, decisions on columns that the table no longer has are left out.
    """
    from deniable.policy.yaml_tree import Mistakes, parse_tree

    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise ParameterError(f"the answers in '{path}' cannot be read", expected="A YAML or JSON file") from None
    mistakes = Mistakes(path.name)
    tree = parse_tree(text, mistakes) if text.strip() else None
    mistakes.check()
    given = _to_plain(tree) if tree is not None else {}
    if not isinstance(given, Mapping):
        raise ParameterError(f"'{path.name}' holds no decisions", expected="Lines such as recipient: public")
    names = {column.name for column in made.columns}
    parts = {name: given.get(name) for name in decisions.PARTS if known_only and isinstance(given.get(name), Mapping)}
    still = {part: {n: v for n, v in listed.items() if n in names} for part, listed in parts.items()}  # type: ignore[union-attr]
    gone = {"unit": None} if known_only and given.get("unit") not in (*names, decisions.ROW) else {}
    return decisions.read_answers(made, {**given, **still, **gone})


def _to_plain(tree: Any) -> Any:
    """A tree of YAML as lists, dictionaries and texts."""
    from deniable.policy.yaml_tree import Entries, Items

    if isinstance(tree, Entries):
        return {key.text: _to_plain(value) for key, value in tree.entries}
    if isinstance(tree, Items):
        return [_to_plain(item) for item in tree.items]
    return None if tree.missing else tree.text


def save_decisions(place: Place, decided: Decisions) -> None:
    """Keep what was decided so far, in the form that --answers takes."""
    head = ("Decisions of deniable start. Delete a line to be asked again.",)
    _make_folder(place)
    save(compose.write_decisions(decided, head), place.decisions, replace_it=True)


# Learning, releasing, attacking what was released


def learn_values(
    place: Place, made: Draft, decided: Decisions, found: Findings, progress: Progress | None = None
) -> Findings:
    """Learn with noise which values are public, charged column by column; what did not rise above it is empty.

    The policy as it is written for learning stays the same, so that a run that was interrupted pays for nothing twice.
    """
    wanted = [column for column in made.columns if decided.values.get(column.name) == LEARN]
    if not wanted:
        return replace(found, learned={})
    save(compose.write_policy(made, decided), place.policy, replace_it=True)
    learned: dict[str, Any] = {}
    with _open_curator(place) as curator:
        for number, column in enumerate(wanted, start=1):
            learned[column.name] = _learn_column(curator, made, column, compose.state_costs(decided)["each"])
            if progress:
                progress(number / len(wanted))
    return replace(found, learned=learned)


def _learn_column(curator: Curator, made: Draft, column: Any, epsilon: str) -> dict[str, Any]:
    if compose.is_listed(column):
        asked = compose.write_learning(made, column)
        answer = curator.query(asked, epsilon=epsilon, delta=compose.DELTA_OF_LEARNING)
        values = sorted(value for value in answer.rows.column(0).to_pylist() if value is not None)
        return {"categories": values} if values else {}
    (row,) = curator.find_bounds(made.table, column.name, epsilon).to_pylist()
    kind = int if str(column.type) == "integer" else float
    return {"between": [kind(row["lower"]), kind(row["upper"])]} if row["found"] else {}


def _open_curator(place: Place) -> Curator:
    from deniable.curator import Curator

    return Curator.open(place.policy)


def make_release(
    place: Place, made: Draft, decided: Decisions, found: Findings, progress: Progress | None = None
) -> Findings:
    """Write the policy and release by it: certified as written, stated beside the file, noted in the ledger."""
    refuse_nothing(made, decided)
    save(compose.write_policy(made, decided, found.learned), place.policy, replace_it=True)
    ways = {K_ANONYMITY: _anonymize, MASKED: _mask, SYNTHETIC: _synthesize, QUERIES: _answer}
    released = ways[str(decided.technique)](place, made, decided, found.learned, progress)
    return replace(found, release=released, after={}, verified={})


def refuse_nothing(made: Draft, decided: Decisions) -> None:
    """Refuse, before anything is read or charged, decisions by which nothing could leave."""
    anonymous = decided.technique == K_ANONYMITY
    known = decisions.list_role(made, decided, Role.QUASI_IDENTIFIER)
    if known if anonymous else decisions.list_released(made, decided):
        return
    raise Infeasible(
        "no column is a quasi-identifier" if anonymous else "no column leaves: all are undecided, or identifiers",
        expected="Columns that others may know of a person, such as an age, a place or a date",
        remedy="Decide on columns: change their roles in decisions.yaml, or delete the lines to be asked again",
    )


def _anonymize(
    place: Place, made: Draft, decided: Decisions, _learned: Mapping[str, Any], progress: Progress | None
) -> dict[str, Any]:
    from deniable.curator.anonymize import run
    from deniable.curator.anonymize.request import Order
    from deniable.curator.context import ledger_of

    out = place.release(decided)
    order = Order(None, out, place.policy, made.table, ledger=ledger_of(place.policy, None))
    told = run.anonymize(order, progress).to_dict()
    told.pop("lattice", None)
    kept = {name: told[name] for name in ("rows", "released", "suppressed", "classes", "models", "levels", "joint",
                                          "risk", "warnings", "words") if told.get(name) is not None}  # fmt: skip
    return {"file": out.name, **kept, **_read_recoding(out)}


# a dictionary: a part of the report
def _read_recoding(out: Path) -> dict[str, Any]:
    """What became of each column that others may know, and how large the classes are."""
    from deniable.kanonymity.recoding import path_of_recoding, read_recoding, to_document

    document = to_document(read_recoding(path_of_recoding(out)))
    return {"became": {one.pop("name"): one for one in document["columns"]}, "sizes": document["classes"]["sizes"]}


def _mask(
    place: Place, made: Draft, decided: Decisions, _learned: Mapping[str, Any], progress: Progress | None
) -> dict[str, Any]:
    from deniable.curator.context import ledger_of
    from deniable.curator.mask import keys, run

    out, key = place.release(decided), place.folder / compose.KEY_FILE
    if not key.exists():
        keys.new(compose.KEY, key)
    told = run.mask(run.Request(place.policy, {made.table: out}, ledger=ledger_of(place.policy, None)), progress)
    table = told.tables[made.table]
    return {"file": out.name, "released": table["rows"], "masks": table["masks"], "joint": table["joint"],
            "words": _read_words(out)}  # fmt: skip


def _synthesize(
    place: Place, made: Draft, decided: Decisions, learned: Mapping[str, Any], progress: Progress | None
) -> dict[str, Any]:
    from deniable.curator.synthesize import gate, run
    from deniable.policy.budget import budget

    out, columns = place.release(decided), compose.list_drawn(made, decided, learned)
    spent = budget(compose.state_costs(decided)["release"], compose.DELTA_OF_RELEASE)
    order = run.Order(made.table, spent, columns=columns)
    proof = gate.Proof(attacks=2 * ATTACKS) if compose.list_attacks(made, decided, learned) else None
    with _open_curator(place) as curator:
        release, verdict = gate.synthesize_checked(curator.context, order, out, proof, progress=progress)
    if release is None:
        assert verdict is not None
        over = [f"{one['attack']} exposes {one['exposed']:.1%}" for one in verdict.verdicts if one["failed"]]
        raise Infeasible(
            f"the synthetic rows do not leave: {', '.join([*over, *verdict.untried])}",
            expected=f"At most {decided.risk:.1%} of the people",
            remedy="Release fewer columns, spend less, or allow more risk: change decisions.yaml, and start again",
            charge=f"Charged: {verdict.charged}, because the data were touched.",
        )
    kept = {"released": release.details["rows"], "columns": list(columns), "method": release.details["method"]}
    spent_in_all = compose.state_costs(decided)["release"]
    noise = {"noise_in_a_table": release.details["noise_in_a_table"], "epsilon": spent_in_all}
    attacked = {"attack": verdict.to_dict()} if verdict is not None else {}
    return {"file": out.name, **kept, **noise, **attacked, "words": [*_read_words(out), *_say_learning(decided)]}


def _say_learning(decided: Decisions) -> list[str]:
    """What was spent beside the release itself, in words."""
    learned = [name for name, said in decided.values.items() if said == LEARN]
    each = compose.state_costs(decided)["each"]
    told = f"Learning which values are public cost epsilon {each} for each of {len(learned)} columns beside that"
    return [f"{told}; the ledger holds both, within epsilon {decided.epsilon:g} in all."] if learned else []


def _answer(
    place: Place, made: Draft, decided: Decisions, _learned: Mapping[str, Any], _progress: Progress | None
) -> dict[str, Any]:
    from deniable.curator.query.sql import write_answer

    out, asked = place.release(decided), compose.write_first_question(made, decided)
    spent = compose.state_costs(decided)["release"]
    with _open_curator(place) as curator:
        answer = curator.query(asked, epsilon=spent, delta=compose.DELTA_OF_RELEASE)
        write_answer(curator.context, answer, out)
    details: Any = answer.release.details
    mechanism = details["aggregates"][0]["measurements"][0]["mechanism"]
    told = {"released": answer.rows.num_rows, "question": asked, "epsilon": spent, "mechanism": mechanism}
    return {"file": out.name, **told, "words": _read_words(out)}


def _read_words(out: Path) -> list[str]:
    from deniable.curator.governance.reports import show_statement

    return list(show_statement(out).words)


def find_culprit(place: Place, made: Draft, decided: Decisions) -> str | None:
    """Of the columns that leave as they are, the one without which fewest people stand alone; None where none is."""
    from deniable.attacks.uniqueness import measure_joint_risk

    names = list(compose.list_kept(made, decided))
    if not names:
        return None
    rows = attack.table_at(place.source, place.encoding)
    unit = decided.unit if decided.technique == MASKED and decided.unit != decisions.ROW else None  # its token leaves
    measure = partial(measure_joint_risk, rows, unit=unit, sizes=(), links=[unit] if unit else ())
    alone = {name: measure([n for n in names if n != name]).worst if len(names) > 1 else 0.0 for name in names}
    distinct = {column.name: column.distinct for column in made.columns}
    return min(names, key=lambda name: (alone[name], -distinct[name]))


def ask_left_out(place: Place, made: Draft, decided: Decisions, refusal: Infeasible) -> Question | None:
    """Which column to leave out of a release that was refused; None where no column is the reason.

    What is recommended is the one without which fewest people stand alone.
    """
    culprit = find_culprit(place, made, decided) if refusal.fields.get("limit") == "joint" else None
    if culprit is None:
        return None
    reason = "Without it fewest people stand alone. Its values are kept in the table; they do not leave."
    about = (f"{refusal.happened}.", "Nothing was released.")
    return Question(
        "leave_out", "Which column shall be left out?", about, compose.list_kept(made, decided), culprit, reason
    )


def attack_after(
    place: Place, made: Draft, decided: Decisions, found: Findings, progress: Progress | None = None
) -> Findings:
    """The attacks on what was released, with the policy's limits and whether they are met."""
    if decided.technique == QUERIES:
        return replace(found, after=_audit_answer(found.release, progress))
    if "attack" in found.release:
        return replace(found, after=_drop_unclear(found.release["attack"]))
    out = place.release(decided)
    order = attack.Order(str(out), original=place.source, policy=place.policy, table=made.table, everything=True,
                         attacks=ATTACKS, encoding=place.encoding)  # fmt: skip
    return replace(found, after=_drop_unclear(attack.attack(order, progress).to_dict()))


def _audit_answer(released: Mapping[str, Any], progress: Progress | None) -> dict[str, Any]:
    """The distinguishing game against the noise of the answer: is its epsilon what is claimed?"""
    name, delta = _name_mechanism(released)
    found = audit.audit(audit.AuditOrder(name, str(released["epsilon"]), delta), progress)
    return {"failed": found.failed, "audit": found.to_dict()}


def _name_mechanism(released: Mapping[str, Any]) -> tuple[str, str]:
    gaussian = "gaussian" in str(released["mechanism"]).lower()
    return ("gaussian", compose.DELTA_OF_RELEASE) if gaussian else ("laplace", "0")


def read_back(place: Place, decided: Decisions, found: Findings) -> Findings:
    """The released file, its statement and the ledger, read again and compared."""
    from deniable.curator.governance.reports import verify_file
    from deniable.curator.governance.steward import read_ledger

    with read_ledger(place.policy, None) as known:
        return replace(found, verified=verify_file(place.release(decided), "", known).to_dict())


def remove_release(place: Place, decided: Decisions, found: Findings) -> None:
    """Remove a release that an attack passed a limit of, with all that was written beside it; it is not made anew."""
    out = place.release(decided)
    for path in (out, *out.parent.glob(f"{glob.escape(out.name)}.*.json")):
        path.unlink(missing_ok=True)
    save_state(place, replace(found, release={}, after={}, verified={}, refused=found.basis))


def refuse_again(place: Place, found: Findings) -> None:
    """Refuse decisions whose release was attacked and removed: attacks draw their targets, and the next may miss."""
    if found.refused and found.refused == found.basis:
        raise Infeasible(
            "a release by these decisions was attacked, passed a limit and was removed",
            expected="Other decisions: the same rows are not released again until an attack misses them",
            remedy=f"Change {place.decisions}: fewer columns, a larger k, or more risk",
        )


def preview_release(place: Place, decided: Decisions, rows: int = 5) -> pa.Table:
    """The first rows of what was released: to be shown, and stored nowhere."""
    return attack.table_at(str(place.release(decided))).slice(0, rows)


# Telling


def list_steps(place: Place, made: Draft, decided: Decisions, found: Findings) -> tuple[Step, ...]:
    """Every step as a command that works when it is pasted where this one was given."""
    policy, out, each = place.policy, place.release(decided), compose.state_costs(decided)["each"]
    known = [name for name in _list_drafted(made, Role.QUASI_IDENTIFIER) if "," not in name]
    knows = ("--knows", ",".join(known)) if known else ()
    wanted = [column for column in made.columns if decided.values.get(column.name) == LEARN]
    steps = [
        name_step("Look at the table", "scan", place.source, *place.options),
        name_step("Attack it as it stands", "attack", place.source, *knows, *place.options),
        *(compose.name_learning(made, column, each, policy) for column in wanted),
        name_step("Check the policy", "policy", "check", policy),
    ]
    again = ("start", place.source, "--out", place.folder, "--yes", *place.options)
    if found.after.get("failed"):  # what was removed is not made by hand either
        return (*steps, name_step("Release by other decisions, once decisions.yaml is changed", *again))
    accepting = "Accept the policy: one that protects less is refused from then on"
    steps += _list_release_steps(place, made, decided, found)
    steps.append(name_step("Read it back", "release", "verify", out, "-p", policy))
    steps.append(name_step(accepting, "policy", "accept", policy, "--by", "A. Steward"))
    return (*steps, name_step("Release again by the same decisions, when the table was changed", *again))


def _list_release_steps(place: Place, made: Draft, decided: Decisions, found: Findings) -> list[Step]:
    released, learned = found.release, found.learned
    policy, out, spent = place.policy, place.release(decided), compose.state_costs(decided)["release"]
    budget = ("--epsilon", spent, "--delta", compose.DELTA_OF_RELEASE)
    if decided.technique == QUERIES:
        name, delta = _name_mechanism(released)
        return [
            name_step("Ask the first question", "query", released["question"], "-p", policy, *budget, "-o", out),
            name_step("Attack its noise", "audit", name, "--epsilon", spent, "--delta", delta),
        ]
    page = ("--report", place.folder / "attack.html")
    attacked = ("attack", out, "--original", place.source, "-p", policy, "--all", *page, *place.options)
    after = name_step("Attack what was released", *attacked)
    if decided.technique in decisions.TRUE_ROWS:
        word = "anonymize" if decided.technique == K_ANONYMITY else "mask"
        return [name_step("Release", word, "-p", policy, "--table", made.table, "-o", out), after]
    columns = ("--columns", ",".join(compose.list_drawn(made, decided, learned)))
    gated = ("--attack", "--attacks", 2 * ATTACKS) if "attack" in released else ()
    made_by = ("synthesize", made.table, "-p", policy, *budget, *columns, *gated, "-o", out)
    title = "Release, after attacking the rows beside people who were held out" if gated else "Release"
    return [name_step(title, *made_by), *([] if gated else [after])]


def list_files(place: Place, decided: Decisions) -> dict[str, str]:
    """Every file of the folder that is there, and for whom it is."""
    from deniable.curator.context import ledger_of

    out = place.release(decided)
    given = f"for the {decided.recipient}"
    about = {
        out: given,
        out.with_name(f"{out.name}.release.json"): f"{given}: what is promised of it, signed",
        out.with_name(f"{out.name}.model.json"): f"{given}, if you like: more rows can be drawn from it",
        out.with_name(f"{out.name}.recoding.json"): f"{KEEP}: how rows were made coarser, with counts of secrets",
        place.folder / compose.KEY_FILE: f"{KEEP}: the key by which identifiers were replaced",
        place.page: "for the data officer",
        place.policy: "for the steward: what is protected, and how much",
        place.decisions: f"{KEEP}: to do all of it again",
        place.state: f"{KEEP}: what the steps found",
        Path(ledger_of(place.policy, None)): f"{KEEP}: what was released and spent; keep it with the policy",
    }
    return {path.name: words for path, words in about.items() if path.exists() or path == place.page}


def build_report(place: Place, made: Draft, decided: Decisions, found: Findings) -> StartReport:
    """All of a first release in plain values, from what the steps found."""
    columns = []
    for column in made.columns:
        became = found.release.get("became", {}).get(column.name)
        before, after = compose.describe_change(column, decided, found.learned, became)
        role = str(decisions.role_of(column, replace(decided, left_out={})))
        columns.append({"column": column.name, "role": role, "before": before, "after": after, "why": column.reason})
    steps = list_steps(place, made, decided, found)
    released = {name: value for name, value in found.release.items() if name != "attack"}
    title = f"{decisions.NAMES[str(decided.technique)]} of {made.table}, for the {decided.recipient}"
    return StartReport(
        title, made.table, made.rows, str(decided.recipient), str(decided.technique), decided.to_dict(), columns,
        found.before, released, found.after, found.verified, list_files(place, decided),
        [{"step": step.title, "command": step.command} for step in steps],
    )  # fmt: skip
