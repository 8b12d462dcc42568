"""Attack a table, a release, statistics or a log with what is at hand, before anything leaves."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context, find_ledger, open_context
from deniable.curator.policy.accepted_rows import find_policy_of
from deniable.curator.scope import refuse_expired, withdrawn_rows
from deniable.curator.sources import refuse_no_rows
from deniable.curator.sources import table_at as table_at
from deniable.errors import DataError, ParameterError, check_seconds, nearest
from deniable.policy.document import Policy, read
from deniable.policy.schema import Role
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.evidence import Attempt, Evidence, Settings
    from deniable.attacks.outcome import Outcome
    from deniable.policy.schema import TableSchema


Progress = Callable[[float], None]
ALL = "all"  # in place of columns that an intruder knows: all that were released, but the sensitive ones
LOGS = (".jsonl", ".ndjson")
STATISTICS = ".json"
TABLE = "table"
WORLD, RUNS = "{world}", "{runs}"
PROGRAM_SECONDS = 600.0
"""A program may take so long for one world."""
PRINTED: Any = {"capture_output": True, "text": True, "errors": "backslashreplace"}
USUAL = ("uniqueness", "linkage", "inference", "ratings", "traces", "network", "tokens", "projection", "combining")


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked: what is attacked, what the intruder knows and holds, and what the steward adds to score it."""

    source: str
    knows: tuple[str, ...] = ()
    register: str | None = None
    original: str | None = None
    control: str | None = None
    truth: str | None = None
    sensitive: tuple[str, ...] = ()
    unit: str | None = None
    ratings: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    policy: Path | None = None
    table: str | None = None
    limits: Mapping[str, Fraction] = field(default_factory=dict)
    everything: bool = False
    attacks: int = 500
    seed: int = 0
    seconds: float | None = None
    state: Path | None = None
    encoding: str | None = None
    ledger: str | None = None
    counts: str | None = None
    suppressed: str | None = None
    absent: bool = False
    synthetic: bool = False
    generator: str | None = None
    tables: int = 16
    trace: tuple[str, ...] = ()
    resolutions: tuple[tuple[int, str], ...] = ()
    edges: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_seconds(self.seconds)


@dataclass(frozen=True, slots=True, eq=False)
class Judgment(Record):
    """What may be exposed by each attack, whether it is, and whether any limit is passed.

    `untried` attacks have a limit and were not measured: such a limit is not met. Limited attacks that do not apply are
    `inapplicable`, with the reason. Where nothing at all was `measured`, nothing is known of the risk: a failure too.
    """

    limits: dict[str, float]
    verdicts: list[dict[str, Any]]
    untried: list[str]
    inapplicable: dict[str, str]
    measured: bool
    failed: bool


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AttackReport(SparseRecord):
    """How many people the attacks exposed, by whom and knowing what; of a table also which columns are to blame.

    `before` is the same intruder against the original rows, where they are at hand. `policy` was accepted for the rows
    and was not named: what it limits was not judged.
    """

    subject: str
    knows: list[str]
    rows: int
    attacks: list[dict[str, Any]]
    exposed: dict[str, float]
    untouched: list[dict[str, Any]] | None = None
    because: str | None = None
    joint: dict[str, Any] | None = None
    identifying_sets: list[dict[str, Any]] | None = None
    curve: list[dict[str, Any]] | None = None
    blame: list[dict[str, Any]] | None = None
    weakest: list[dict[str, Any]] | None = None
    before: dict[str, Any] | None = None
    limits: dict[str, float]
    verdicts: list[dict[str, Any]]
    untried: list[str]
    inapplicable: dict[str, str]
    measured: bool
    failed: bool
    policy: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LimitedAttacks(Record):
    """What the attacks that a policy limits expose of rows that leave: shares of people, beside those allowed.

    `unmeasured` says of limited attacks what they lacked, `inapplicable` why there is nothing that they could find.
    `accepted_by` is who stands for a limit that is passed.
    """

    exposed: dict[str, float]
    limits: dict[str, float]
    unmeasured: dict[str, str]
    accepted_by: str | None = None
    inapplicable: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> list[str]:
        """The attacks that expose more than they may."""
        return [name for name, share in self.exposed.items() if share > self.limits[name]]


def attack(order: Order, progress: Progress | None = None, given: Context | None = None) -> AttackReport:
    """Attack what was named, with all that applies; the findings are plain values, and none is a row."""
    with nullcontext(given) if given is not None else _open_policy(order) as context:
        policy = context.policy if context else None
        if order.counts is not None or order.source.endswith(STATISTICS):
            found = _attack_statistics(order)
        elif order.generator is not None:
            found = _attack_generator(order, context, progress)
        else:
            logged = order.source.endswith(LOGS)
            found = _attack_log(order, context, progress) if logged else _attack_table(order, context, progress)
        named = None if policy is not None else find_policy_of(order.source, order.original, encoding=order.encoding)
        return AttackReport(**found, **_judge(found, policy, order.limits), policy=named)


@contextmanager
def _open_policy(order: Order) -> Iterator[Context | None]:
    """The context of the policy and its ledger, if one is named and has not expired: it tells who withdrew."""
    if order.policy is None:
        yield None
        return
    policy = refuse_expired(read(order.policy))
    with closing(open_context(policy, ledger=find_ledger(order.policy, order.ledger))) as context:
        yield context


def _attack_table(order: Order, context: Context | None, progress: Progress | None) -> dict[str, Any]:
    from deniable.assess.evidence import Settings

    evidence = _evidence(order, context)
    refuse_no_rows(evidence.release, order.source)
    settings = Settings(order.attacks, order.seed, order.seconds, beyond_chance=order.synthetic)
    limited = _combine_limits(context.policy if context else None, order.limits)
    names = None if order.everything or order.synthetic else (*USUAL, *limited)
    attempts = _attempts(order, evidence, settings, names, progress)
    found = {"subject": Path(order.source).name, "knows": list(evidence.knows), "rows": evidence.release.num_rows}
    found |= {"attacks": attempts, "exposed": {one["attack"]: one["exposed"] for one in attempts if one["outcomes"]}}
    return {**found, **_details(order, evidence), **_before(evidence)}


def _attempts(
    order: Order,
    evidence: Evidence,
    settings: Settings,
    names: tuple[str, ...] | None,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Every attempt as plain values; those that an earlier, killed run had finished are taken from its state."""
    from deniable.assess.evidence import run_trials
    from deniable.assess.trials import GENERATED, TRIALS

    key, kept = _key(order, evidence), _read_state(order, evidence)

    def save_attempt(made: Attempt) -> None:
        kept[made.name] = attempt_as_dict(made)
        if order.state is not None:
            _write_state(order.state, key, kept)

    trials = GENERATED if order.synthetic else TRIALS
    run_trials(evidence, settings, names, trials=trials, done=kept, finished=save_attempt, progress=progress)
    return list(kept.values())


def attempt_as_dict(made: Attempt) -> dict[str, Any]:
    """An attempt as plain values."""
    outcomes = [outcome.as_dict() for outcome in made.outcomes]
    return {"attack": made.name, "exposed": made.exposed, "skipped": made.skipped, "outcomes": outcomes}


def _key(order: Order, evidence: Evidence) -> str:
    """What a state belongs to: the same question about the same rows."""
    asked = {name: str(value) for name, value in asdict(order).items() if name not in ("state", "limits")}
    tables = (evidence.release, evidence.original, evidence.control, evidence.register, *evidence.others)
    rows = [None if table is None else _fingerprint(table) for table in tables]
    return hashlib.sha256(json.dumps([asked, rows], sort_keys=True).encode()).hexdigest()


def _fingerprint(table: pa.Table) -> str:
    """A digest of the content as it lies in memory: a change of any cell gives another, so nothing stale is kept."""
    digest = hashlib.sha256(str(table.schema).encode())
    for batch in table.to_batches():
        for column in batch.columns:
            for buffer in column.buffers():
                digest.update(buffer or b"-")
    return digest.hexdigest()


def _read_state(order: Order, evidence: Evidence) -> dict[str, Any]:
    if order.state is None or not order.state.exists():
        return {}
    try:
        state = json.loads(order.state.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return dict(state.get("attempts", {}) if state.get("key") == _key(order, evidence) else {})


def _write_state(path: Path, key: str, attempts: Mapping[str, Any]) -> None:
    from deniable.storage import write_whole

    write_whole(path, json.dumps({"key": key, "attempts": attempts}, default=str).encode())


def _evidence(order: Order, context: Context | None) -> Evidence:
    from deniable.assess.evidence import Evidence, refuse_shared_people
    from deniable.attacks.traces import Resolution

    policy = context.policy if context else None
    schema = find_schema(order, policy)
    release = _read_rows(order.source, order, context)
    sensitive = order.sensitive or columns_with_role(schema, release, "sensitive")
    register = table_at(order.register, order.encoding) if order.register else None
    unit = order.unit or (schema.unit.column if schema and schema.unit else None)
    knows = order.knows or columns_known(policy, schema, release)
    if order.knows == (ALL,) and ALL not in release.column_names:
        knows = tuple(name for name in release.column_names if name not in (unit, *sensitive))
    _refuse_misnamed(order, schema, release)
    ratings = order.ratings or None
    if ratings is not None and len(ratings) != 4:
        raise ParameterError("--ratings names other than four columns", expected="person,item,rating,day")
    resolutions = tuple(Resolution(*each) for each in order.resolutions)
    original, control = (_read_rows(path, order, context) if path else None for path in (order.original, order.control))
    if original is not None and control is not None:
        refuse_shared_people(original, control, release.column_names, unit)
    truth = _truth(order, release, register) if register is not None and order.truth else None
    others, paths = tuple(table_at(path, order.encoding) for path in order.others), (order.source, *order.others)
    noisy = tuple(_claims_noise(path) for path in paths)
    noisy = (noisy[0] or order.synthetic, *noisy[1:])
    shown = _columns_shown(knows, release, others)
    return Evidence(release, shown, sensitive, unit, original, control, register, truth, ratings, others, noisy, knows,
                    _read_recoding(order.source), order.trace or None, resolutions, order.edges or None)  # fmt: skip


def _refuse_misnamed(order: Order, schema: TableSchema | None, release: pa.Table) -> None:
    """Refuse names that would be ignored, or say two things of one column."""
    if order.unit is not None and order.unit not in release.column_names:
        raise ParameterError(f"The rows have no column '{order.unit}' that could tell people apart",
                             expected="--unit names a column of the rows that are attacked",
                             remedy=nearest(order.unit, release.column_names))  # fmt: skip
    unit = schema.unit.column if schema is not None and schema.unit is not None else None
    if order.unit is not None and unit not in (None, order.unit):
        raise ParameterError(f"People are to be told apart by '{order.unit}', and the policy does so by '{unit}'",
                             remedy="Leave --unit out, or change the policy's unit")  # fmt: skip
    if schema is None and order.table is not None:
        raise ParameterError("A table of a policy is named, and no policy", remedy="Say --policy, or no --table")
    for name in (name for name in order.knows if name in order.sensitive):
        raise ParameterError(f"Column '{name}' is known to the intruder, and is what the intruder wants to learn",
                             expected="One of the two", remedy="Name it with --knows or with --sensitive")  # fmt: skip


def _read_recoding(source: str) -> Any:
    """How a k-anonymous release was made, where its recoding lies beside it; None where it does not."""
    from deniable.kanonymity.recoding import path_of_recoding, read_recoding

    path = path_of_recoding(Path(source))
    return read_recoding(path) if path.exists() else None


def _columns_shown(knows: tuple[str, ...], release: pa.Table, others: tuple[pa.Table, ...]) -> tuple[str, ...]:
    """What the release itself shows of the intruder's knowledge; another release may show the rest, a typo none."""
    elsewhere = {name for other in others for name in other.column_names}
    return tuple(name for name in knows if name in release.column_names or name not in elsewhere)


def _claims_noise(source: str) -> bool:
    """Whether a released file is stated to have a formal guarantee; no, where its statement is missing or changed."""
    from deniable.errors import DeniableError
    from deniable.release import verify

    try:
        body = verify(source).body
    except DeniableError:
        return False
    return {**body["guarantee"], **body["provenance"]["parameters"]}.get("formal") is True


def find_schema(order: Order, policy: Policy | None) -> TableSchema | None:
    """The table of the policy that the attacked file is, or was made from."""
    if policy is None:
        return None
    if order.table:
        return policy.table(order.table)
    named = [table for table in policy.private if Path(table.source).stem == Path(order.source).stem]
    found = named or policy.private
    if len(found) != 1:
        known = ", ".join(table.name for table in policy.private)
        raise ParameterError("It is not clear which table of the policy this file is", remedy=f"Say --table: {known}")
    return found[0]


def columns_known(policy: Policy | None, schema: TableSchema | None, release: pa.Table) -> tuple[str, ...]:
    """What the policy takes an intruder to know, of what the release shows."""
    settings = policy.release.attack if policy else None
    if settings is not None and settings.knows is not None:
        return _list_shown(settings.knows, release)
    return _list_shown((each.name for each in schema.with_role(Role.QUASI_IDENTIFIER)) if schema else (), release)


def _list_shown(names: Iterable[str], release: pa.Table) -> tuple[str, ...]:
    """The columns of a release that show these columns: themselves, or the two ends in which numbers are written."""
    shown = set(release.column_names)
    ways = ((name,) if name in shown else (f"{name}_low", f"{name}_high") for name in names)
    return tuple(column for way in ways for column in way if column in shown)


def columns_with_role(schema: TableSchema | None, release: pa.Table, role: str) -> tuple[str, ...]:
    """The columns of a role that the release shows."""
    columns = schema.with_role(Role(role)) if schema else ()
    return tuple(column.name for column in columns if column.name in release.column_names)


def _truth(order: Order, release: pa.Table, register: pa.Table) -> Any:
    """The register's entry of every released row, by a table that maps a column of one to a column of the other."""
    from deniable.assess.evidence import match_true_entries

    assert order.truth is not None
    return match_true_entries(release, register, table_at(order.truth, order.encoding))


def read_release(order: Order) -> pa.Table:
    """The rows that are attacked, without people who withdrew where the file is none of our releases."""
    with _open_policy(order) as context:
        return _read_rows(order.source, order, context)


def _read_rows(source: str, order: Order, context: Context | None) -> pa.Table:
    """The rows of a file, without whoever withdrew; what was released is read as it was released."""
    from deniable.release.release import statement_path

    if context is None or statement_path(source).exists():
        return table_at(source, order.encoding)
    tables = (table.name for table in context.policy.private)
    left_out = (
        each
        for name in tables
        for each in withdrawn_rows(context.policy, context.store, name, context.state.withdrawals()[1])
    )
    return table_at(source, order.encoding, tuple(dict.fromkeys(left_out)))


def _details(order: Order, evidence: Evidence) -> dict[str, Any]:
    """What to do about it: smallest sets, the curve of knowledge, column blame, weakest records."""
    from deniable.assess import exposure

    columns = [] if evidence.of_nobody else exposure.find_untouched_columns(evidence)
    told: dict[str, Any] = {"untouched": columns, "because": exposure.explain_columns(columns)}
    if not evidence.of_nobody:
        told["joint"] = exposure.describe_joint_exposure(evidence)
    if evidence.of_nobody or not evidence.knows:
        return told
    more = exposure.describe_exposure(evidence.release, evidence.knows, unit=evidence.unit, seconds=order.seconds)
    return {**told, **more}


def _before(evidence: Evidence) -> dict[str, Any]:
    """The same intruder against the original rows, had they been released as they are."""
    if evidence.original is None or not evidence.knows:
        return {}
    from deniable.assess.exposure import attack_original

    return {"before": attack_original(evidence)}


def _attack_generator(order: Order, context: Context | None, progress: Progress | None) -> dict[str, Any]:
    """Membership in what a program generates: it is run on random halves of the rows, and each table is attacked."""
    import tempfile

    import numpy as np
    import pyarrow as pa

    from deniable.assess.evidence import Attempt
    from deniable.attacks.membership import claim_by_shadow_tables, score_closeness

    people = _read_rows(order.source, order, context)
    generator = np.random.default_rng(order.seed)
    inside = np.array([generator.permutation(people.num_rows) % 2 == 0 for _ in range(order.tables)])
    chosen = np.sort(generator.choice(people.num_rows, min(order.attacks, people.num_rows), replace=False))
    targets, scores = people.take(pa.array(chosen)), []
    with tempfile.TemporaryDirectory() as folder:
        for number, half in enumerate(inside):
            made = _generate(order.generator or "", people.filter(pa.array(half)), Path(folder) / f"{number}.csv")
            scores.append(score_closeness(targets, made, [n for n in made.column_names if n in targets.column_names]))
            if progress is not None:
                progress((number + 1) / order.tables)
    outcome = claim_by_shadow_tables(np.array(scores), inside[:, chosen])
    attempt = attempt_as_dict(Attempt("membership", (outcome,), beyond_chance=True))
    exposed = {"membership": attempt["exposed"]}
    return {"subject": Path(order.source).name, "knows": [], "rows": people.num_rows, "attacks": [attempt],
            "exposed": exposed}  # fmt: skip


def _generate(words: str, rows: pa.Table, path: Path) -> pa.Table:
    """The table that a program prints (CSV with a first line of names) when it is given a file of rows."""
    import shlex

    import pyarrow.csv

    pyarrow.csv.write_csv(rows, path)
    printed = path.with_suffix(".made.csv")
    printed.write_text(run_program(shlex.split(words), str(path), 1), encoding="utf-8")
    return table_at(str(printed))


def call_program(words: Sequence[str], world: str, runs: int) -> tuple[int, str]:
    """The exit code of a program, and what it prints, when {world} in its words is a file, and {runs} a number."""
    filled = [word.replace(WORLD, str(world)).replace(RUNS, str(runs)) for word in words]
    try:
        done = subprocess.run(filled, timeout=PROGRAM_SECONDS, check=False, **PRINTED)  # noqa: S603  asked for
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise DataError(
            f"The program '{words[0]}' did not run to its end",
            expected=f"At most {PROGRAM_SECONDS:g} seconds for a world", charge="",
        ) from None  # fmt: skip
    return done.returncode, str(done.stdout)


def run_program(words: Sequence[str], world: str, runs: int) -> str:
    """What a program prints that must not fail."""
    code, printed = call_program(words, world, runs)
    if code:
        raise DataError(
            f"The program '{words[0]}' ended with exit code {code}", remedy="Try it by itself first", charge=""
        )
    return printed


def _attack_log(order: Order, context: Context | None, progress: Progress | None) -> dict[str, Any]:
    from deniable.assess.query_log import attack_log

    if order.register is None:
        raise ParameterError("A log is attacked by one who knows who is in each group", remedy="Say --register FILE")
    try:
        lines = Path(order.source).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise DataError(f"The log {Path(order.source).name} cannot be read", charge="") from None
    original = _read_rows(order.original, order, context) if order.original else None
    attempts = [
        attempt_as_dict(made)
        for made in attack_log(
            lines, table_at(order.register, order.encoding), original, seconds=order.seconds, progress=progress
        )
    ]
    exposed = {one["attack"]: one["exposed"] for one in attempts}
    subject = Path(order.source).name
    return {"subject": subject, "knows": [], "rows": len(lines), "attacks": attempts, "exposed": exposed}


def _attack_statistics(order: Order) -> dict[str, Any]:
    """Solve published statistics: those that a file describes, or tables of counts as they were printed."""
    from deniable.assess.evidence import Attempt
    from deniable.assess.published_statistics import attack_statistics

    path = Path(order.source)
    if order.counts is not None:
        made: tuple[Attempt, ...] = (Attempt("tables", (bound_tables((order.source, *order.others), order),)),)
    else:
        made = attack_statistics(_read_text(path), order.seconds)
    attempts = [attempt_as_dict(one) for one in made]
    rows = attempts[0]["outcomes"][0]["exposed"]["trials"]
    exposed = {one["attack"]: one["exposed"] for one in attempts}
    return {"subject": path.name, "knows": [], "rows": rows, "attacks": attempts, "exposed": exposed}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise DataError(f"The statistics {path.name} cannot be read", charge="") from None


def bound_tables(sources: Sequence[str], order: Order, small: int | None = None) -> Outcome:
    """What can be said of every cell of published tables of counts."""
    from deniable.assess.published_statistics import (
        SECONDS,
        SMALL,
        bound_published,
        parse_suppressed,
        read_published,
    )

    tables = [table_at(source, order.encoding) for source in sources]
    limits = parse_suppressed(order.suppressed)
    cells = read_published(tables, order.counts or "", suppressed=limits, absent=order.absent)
    return bound_published(cells, order.seconds or SECONDS, SMALL if small is None else small)


def attack_rows(
    policy: Policy, schema: TableSchema, release: pa.Table, unit: str | None, **more: Any
) -> LimitedAttacks:
    """The attacks that the policy limits, on rows that are about to leave: what each exposes at worst.

    `unit` says whose each row is, and does not leave: rows are attacked with it, which counts people, and without it,
    as `attack` reads them once they have left. `more` is further evidence."""
    left = release if unit is None else release.drop_columns([unit])
    ways = [(left, schema.unit.column if schema.unit else None), *([] if unit is None else [(release, unit)])]
    attempts = [one for rows, whose in ways for one in _attack_once(policy, schema, rows, whose, more)]
    ranked = sorted(attempts, key=lambda one: one["exposed"])  # of two the worse is last, and stands
    exposed = {one["attack"]: one["exposed"] for one in ranked if one["outcomes"]}
    judged = _judge({"attacks": attempts, "exposed": exposed}, policy, {})
    shares, limits = ({one["attack"]: one[part] for one in judged.verdicts} for part in ("exposed", "most"))
    lacking = {one["attack"]: one["skipped"] for one in attempts if one["attack"] in judged.untried}
    return LimitedAttacks(shares, limits, lacking, inapplicable=judged.inapplicable)


def _attack_once(
    policy: Policy, schema: TableSchema, release: pa.Table, unit: str | None, more: Mapping[str, Any]
) -> list[dict[str, Any]]:
    from deniable.assess.evidence import Evidence, Settings, run_trials
    from deniable.assess.trials import TRIALS

    knows, sensitive = columns_known(policy, schema, release), columns_with_role(schema, release, "sensitive")
    evidence = Evidence(release, knows, sensitive, unit, **more)
    made = run_trials(evidence, Settings(), tuple(_combine_limits(policy, {})), trials=TRIALS)
    return [attempt_as_dict(one) for one in made]


def judge_limits(found: Mapping[str, Any], policy: Policy | None, further: Mapping[str, Fraction]) -> dict[str, Any]:
    """Findings with the verdicts on them: the policy's limits, tightened by those of the command."""
    return {**found, **_judge(found, policy, further)}


def _judge(found: Mapping[str, Any], policy: Policy | None, further: Mapping[str, Fraction]) -> Judgment:
    from deniable.assess.evidence import judge, sort_unmeasured, spread_limit

    limits = spread_limit(_combine_limits(policy, further), found["exposed"])
    verdicts = [asdict(one) | {"failed": one.failed} for one in judge(found["exposed"], limits)]
    allowed = {name: float(most) for name, most in limits.items()}
    untried, inapplicable = sort_unmeasured(found["attacks"], limits, further)
    measured = any(one["exposed"]["trials"] for made in found["attacks"] for one in made["outcomes"])
    failed = bool(untried) or not measured or any(one["failed"] for one in verdicts)
    return Judgment(allowed, verdicts, untried, inapplicable, measured, failed)


def _combine_limits(policy: Policy | None, further: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The policy's limits, tightened by those of the command."""
    settings = policy.release.attack if policy else None
    limits: dict[str, Fraction] = dict(settings.most) if settings is not None else {}
    for name, most in further.items():
        _check_word(name)
        limits[name] = min(most, limits.get(name, most))
    return limits


def _check_word(name: str) -> None:
    from deniable.assess.evidence import EVERY
    from deniable.policy.layout.release import ATTACKS

    if name not in (*ATTACKS, EVERY):
        raise ParameterError(
            f"There is no attack '{name}'", expected=f"One of {', '.join(ATTACKS)}", remedy=nearest(name, ATTACKS)
        )
