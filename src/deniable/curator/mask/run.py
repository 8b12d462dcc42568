"""Masked releases: policy and keys, plan, parts, one file with its statement, joins checked.

Nothing is written before every key was opened and compared with what is remembered of it. Each output appears whole
or not at all; a killed run goes on where it was when it is started again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize.request import refuse_order
from deniable.curator.charge import FILE_ANEW, Job, charge
from deniable.curator.context import Context, find_ledger, open_context
from deniable.curator.mask.keys import confirm, open_keyring, own_vault
from deniable.curator.mask.linked import gate_linked_releases
from deniable.curator.policy.accepted_rows import refuse_less_protected
from deniable.curator.publish import (
    MEASURED,
    certify_rows,
    gate_attacks,
    gate_joint_exposure,
    note_acceptance,
    publish_staged,
    tell_charge,
)
from deniable.curator.scope import refuse_expired
from deniable.curator.sources import find_table_at
from deniable.errors import AccessRefused, IntegrityError, ParameterError, nearest
from deniable.outputs import claim_outputs
from deniable.policy.document import Policy, read
from deniable.policy.schema import is_hidden, is_removed
from deniable.release.record import Record
from deniable.storage import stage_file, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.certificate import Measurements
    from deniable.assess.exposure import Whose
    from deniable.assess.released_rows import Claim
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.masking.keys import Key
    from deniable.masking.plan import TablePlan
    from deniable.policy.schema import Spec, TableSchema
    from deniable.release import Guarantee, Provenance, Release

MODES = ("pseudonymize", "safe-harbor")
SAMPLE_ROWS = 200_000
MEMORY = "400MB"  # what the engine may hold; parts and masks come to it, and stay below 1 GB together

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: a policy file, which tables go where, and how."""

    policy: Path
    outputs: Mapping[str, Path]
    sources: Mapping[str, str] = field(default_factory=dict)
    mode: str = "pseudonymize"
    keys: Sequence[str] = ()
    columns: Sequence[str] | Mapping[str, Sequence[str] | None] | None = None
    """The columns to release, of each table or by table; None is all that may leave."""
    fresh: bool = False
    keep_order: bool = False
    """Whether rows leave in the order in which they stand in the table."""
    presidio: bool = False
    ledger: str | Path | None = None
    identity: str = ""
    """The id of the approved request that this fulfills: under it the release is recorded once."""
    folder: Path | None = None
    """A folder for all tables, which is made if it is not there."""


@dataclass(frozen=True, slots=True, eq=False)
class MaskReport(Record):
    """What was masked: each table with its masks and what was measured on it, joins, and the Safe Harbor checklist."""

    mode: str
    tables: dict[str, dict[str, Any]]
    joins: list[dict[str, object]]
    safe_harbor: list[dict[str, object]]


@tell_charge()
def mask(request: Request, progress: Progress | None = None, *, asker: Asker | None = None) -> MaskReport:
    """Mask the tables of a request; people who withdrew are not in the outputs."""
    policy = check_mode(read(request.policy), request.mode)
    with tell_charge():
        refuse_less_protected(policy, request.sources)
    ledger = find_ledger(request.policy, request.ledger)
    rest: dict[str, Any] = {"sources": request.sources, "ledger": ledger, "memory": MEMORY}
    with closing(open_context(policy, asker=asker, **rest)) as context:
        return mask_tables(context, request, progress)


@tell_charge()
def mask_tables(context: Context, request: Request, progress: Progress | None = None) -> MaskReport:
    """Mask the tables of a request as the asker may see them, into files."""
    check_mode(context.policy, request.mode)
    refuse_order(context, request.keep_order)
    _make_folder(request)
    tables, files = {name: name for name in request.outputs}, request.outputs.values()
    with context.scope.open_rows(tables) as engine, claim_outputs(*files, rows=True):
        plans, opened, checklist = _plan_tables(engine, context, request)
        with confirm(request.policy, plans.values(), opened.values()):
            _own_vaults(context, request, plans)
            made = [
                _mask_table(engine, context, plan, request, opened, _share(progress, i, len(plans)))
                for i, plan in enumerate(plans.values())
            ]
            joins = _joins(engine, plans)
            linked = gate_linked_releases(engine, context, list(plans.values()), opened, request.keys)
            for each in made:
                _tell_linked(each.plan, each.details, linked)
            recorded = _record(context, request)
            released = {each.plan.table: _publish_table(context, each, recorded) for each in made}
    return MaskReport(request.mode, released, joins, checklist)


def _own_vaults(context: Context, request: Request, plans: Mapping[str, TablePlan]) -> None:
    """Tie the vaults of a release to the ledger that recorded it, where that one is kept."""
    from deniable.masking.vault import Codebook

    if find_ledger(request.policy, request.ledger) is None:
        return
    for column in (column for made in plans.values() for column in made.columns):
        if isinstance(column.mask, Codebook):
            own_vault(column.mask, context.ledger)


def _make_folder(request: Request) -> None:
    """Make the folder for all tables."""
    if request.folder is not None:
        with storage_errors(request.folder):
            request.folder.mkdir(exist_ok=True)


@tell_charge()
def mask_rows(
    context: Context,
    table: str,
    *,
    mode: str = "pseudonymize",
    keys: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    keep_order: bool = False,
) -> Release:
    """Mask one table in memory: for frames, and for tables that fit. Rows leave in a random order, or in their own."""
    import pyarrow as pa

    from deniable.masking import streaming
    from deniable.release import Release

    policy = check_mode(context.policy, mode)
    refuse_less_protected(policy, context.scope.sources)
    refuse_order(context, keep_order)
    request = Request(policy.folder, {table: Path()}, mode=mode, keys=keys, columns=columns, keep_order=keep_order)
    with context.scope.open_rows({table: table}) as engine:
        plans, opened, checklist = _plan_tables(engine, context, request)
        read = _Read(engine, plans[table], "" if keep_order else secrets.token_hex(16))
        batches = streaming.regroup_batches(read.stream(), streaming.PART_ROWS)
        rows = pa.Table.from_batches([streaming.mask_batch(plans[table], batch) for batch in batches])
        claim, origin, details = _state(context, read, rows, rows.num_rows, mode, opened)
        found = certify_rows(rows, _claim_columns(policy.table(table), read))
        details[MEASURED] = found.to_dict()
        _tell_linked(plans[table], details, gate_linked_releases(engine, context, [plans[table]], opened, keys))
        _record(context, request)
    return Release(rows, claim, origin, details | {"safe_harbor": checklist})


@tell_charge()
def request_for(policy: Path, source: str | None, table: str | None, out: Path, **rest: Any) -> Request:
    """The request that a command line means: one file to one file, or all private tables into a folder."""
    from deniable.engines.base import is_elsewhere

    known = read(policy)
    if is_elsewhere(source):
        source, table = None, find_table_at(known, str(source), table)
    if source is None and table is None:
        outputs = {each.name: out / f"{each.name}.parquet" for each in known.private}
        return Request(policy, outputs, folder=out, **rest)
    name = known.table(table).name if table else _table_of(known, source)
    return Request(policy, {name: out}, {name: str(Path(source).absolute())} if source else {}, **rest)


def check_mode(policy: Policy, mode: str) -> Policy:
    """The policy, unless it has expired; a mode that does not exist is refused on the way."""
    if mode not in MODES:
        raise ParameterError(
            f"there is no mode '{mode}'",
            expected=f"One of {', '.join(MODES)}",
            remedy=nearest(mode, MODES),
        )
    return refuse_expired(policy)


def _table_of(policy: Policy, source: str | None) -> str:
    """The table whose source has the file's name, or the only one there is."""
    named = [table.name for table in policy.private if Path(table.source).name == Path(source or "").name]
    if len(named) == 1:
        return named[0]
    if len(policy.private) == 1:
        return policy.private[0].name
    known = ", ".join(table.name for table in policy.private)
    raise ParameterError("it is not clear which table of the policy this file is", remedy=f"Say --table: {known}")


def _record(context: Context, request: Request) -> str:
    """Write to the ledger that tables leave without a formal guarantee, before any has its own name; says its id."""
    job: Job[None] = Job(
        "masking", "", None, None, tuple(request.outputs),
        details={"mode": request.mode, **note_acceptance(context)}, anew=FILE_ANEW,
    )  # fmt: skip
    return charge(context, job, request=request.identity).release


def draft_rows(context: Context, table: str, mode: str, columns: Sequence[str] | None) -> tuple[pa.Table, pa.Table]:
    """The rows of a table before and after masking, in one order, for the steward who decides on a request.

    Where people are told apart, those after it have a further column, PERSON: whose they are. Keys are drawn for it and
    forgotten, so that no token is one that leaves; nothing is recorded, and no vault written.
    """
    import pyarrow as pa

    from deniable.engines.base import PERSON
    from deniable.masking import streaming

    request = Request(check_mode(context.policy, mode).folder, {table: Path()}, mode=mode, columns=columns)
    with context.scope.open_rows({table: table}) as engine:
        plans, _, _ = _plan_tables(engine, context, request, draft=True)
        read = _Read(engine, plans[table], "")
        batches = list(streaming.regroup_batches(read.stream(), streaming.PART_ROWS))
        masked = pa.Table.from_batches([streaming.mask_batch(plans[table], batch) for batch in batches])
    whose = pa.chunked_array(read.whose, pa.uint64())
    return pa.Table.from_batches(batches), masked.append_column(PERSON, whose) if plans[table].unit else masked


def _draw_key(name: str) -> Key:
    from deniable.masking.keys import SECRET_BYTES, Key

    return Key(name, secrets.token_bytes(SECRET_BYTES))


def _draft_mask(spec: Spec | None) -> Spec | None:
    """The mask of a draft: a token by a key in place of one of a vault, which would remember it."""
    from deniable.policy.schema import Spec

    return Spec("token", {"key": spec.options["key"]}) if spec is not None and spec.kind == "codebook" else spec


def _plan_tables(
    engine: Engine, context: Context, request: Request, *, draft: bool = False
) -> tuple[dict[str, TablePlan], dict[str, Key], list[dict[str, object]]]:
    """The plan of every table, the keys they need, and in safe-harbor mode the checklist."""
    from deniable.engines.base import refuse_inexact
    from deniable.masking import plan, safe_harbor
    from deniable.masking.identifiers import detect

    policy = context.policy
    open_one = _draw_key if draft else open_keyring(policy, request.keys).open
    opened: dict[str, Key] = {}

    def open_key(name: str) -> Key:
        opened[name] = opened.get(name) or open_one(name)
        return opened[name]

    shop = plan.MaskContext(open_key, policy.folder, date.today().year, _searcher(request))
    plans, findings = {}, {}
    for name in request.outputs:
        schema, present = _private(policy, name), [column.name for column in engine.describe(name)]
        masks = plan.specs_of(schema, present, context.scope.columns_to_release(name, _columns_asked(request, name)))
        if request.mode == "safe-harbor":
            findings[name] = detect(sample(engine, name))
            masks = safe_harbor.complete_masks(findings[name], masks)
        masks = {column: _draft_mask(spec) for column, spec in masks.items()} if draft else masks
        if not masks:
            raise AccessRefused(
                f"no column of '{name}' may leave",
                expected="A column within analysts: columns and release: minimize: columns",
                remedy="Ask the steward to change the policy, or leave the table out",
            )
        refuse_inexact(engine, name, [column for column, spec in masks.items() if not is_removed(spec)])
        plans[name] = plan.plan_table(schema, present, masks, shop)
    lines = (
        safe_harbor.build_checklist(findings, {name: made.masks for name, made in plans.items()}) if findings else ()
    )
    return plans, opened, [line.as_dict() for line in lines]


def _columns_asked(request: Request, name: str) -> Sequence[str] | None:
    return request.columns.get(name) if isinstance(request.columns, Mapping) else request.columns


def _private(policy: Policy, name: str) -> TableSchema:
    schema = policy.table(name)
    if schema.public:
        raise ParameterError(f"table '{name}' is public and needs no mask", remedy="Copy it as it is")
    return schema


def _searcher(request: Request) -> Any:
    if not request.presidio:
        return None
    from deniable.masking.text_search import make_presidio_searcher

    return make_presidio_searcher()


def sample(
    engine: Engine,
    name: str,
    columns: Sequence[str] | None = None,
    rows: int = SAMPLE_ROWS,
    whole: str | None = None,
) -> Any:
    """Rows from all over a table, about so many: the whole of a small one, random blocks of a large one.

    `whole` are words of a query for the table with more columns.
    """
    from deniable.engines.base import quote

    count = engine.count(name)
    listed = ", ".join(map(quote, columns)) if columns else "*"
    part = f" USING SAMPLE {100 * rows / count:.6f} PERCENT (SYSTEM)" if count > rows else ""
    return engine.run(f"SELECT {listed} FROM {whole or quote(name)}{part}")  # noqa: S608  our own words, quoted names


@dataclass(frozen=True, slots=True)
class _Read:
    """How a table is read to be masked: in the order of a secret key, or in its own; and whose its rows are.

    In the table's own order, releases of one column each could be pasted together past every limit of all of them.
    """

    engine: Engine
    plan: TablePlan
    key: str = field(repr=False)
    whose: list[pa.Array] = field(default_factory=list, repr=False)

    def stream(self) -> Iterator[pa.RecordBatch]:
        """The rows in the order in which they leave; whose they are is kept behind, as a number."""
        from deniable.engines.base import PERSON, read_rows, tell_apart
        from deniable.masking.streaming import PART_ROWS

        table, unit = self.plan.table, self.plan.unit
        told = None if unit is None else tell_apart(self.engine, table, unit)
        for batch in self.engine.stream(read_rows(table, "*", self.key, told), PART_ROWS):
            if told is not None:
                self.whose.append(batch.column(PERSON))
            yield batch if told is None else batch.drop_columns([PERSON])

    def stream_originals(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns as they were, in the order in which the rows left."""
        from deniable.engines.base import quote, read_rows

        return self.engine.stream(read_rows(self.plan.table, ", ".join(map(quote, names)), self.key))

    def attach_people(self) -> Whose | None:
        """Whose the masked rows are, by the table's own column: a mask may remove it, or make several people one."""
        import pyarrow as pa

        from deniable.assess.exposure import Whose
        from deniable.engines.base import PERSON

        if self.plan.unit is None:
            return None
        name = f"people of {self.plan.table}"
        self.engine.attach(name, pa.table({PERSON: pa.chunked_array(self.whose, pa.uint64())}))
        return Whose(name, PERSON)


def _mask_table(
    engine: Engine,
    context: Context,
    made: TablePlan,
    request: Request,
    opened: Mapping[str, Key],
    progress: Progress | None,
) -> _Masked:
    """Mask a table into a file that waits under another name, pass the gates, and certify it."""
    from deniable.masking import streaming

    target = request.outputs[made.table]
    staged = stage_file(target)
    job = _job(engine, context.policy, made, request, opened)
    with streaming.open_checkpoint(target, job, f".{job.format}", fresh=request.fresh) as work:
        read = _Read(engine, made, "" if request.keep_order else work.open_order())
        rows = streaming.write_masked(engine, made.table, made, staged, work, progress, read.stream())
    claim, origin, details = _state(context, read, staged.absolute(), rows, request.mode, opened)
    found = certify_rows(staged, _claim_columns(context.policy.table(made.table), read))
    return _Masked(made, target, staged, claim, origin, details, found)


@dataclass(frozen=True, slots=True)
class _Masked:
    """A masked table that waits for the others: its plan, the file, and what is stated of it."""

    plan: TablePlan
    target: Path
    staged: Path
    claim: Guarantee
    origin: Provenance
    details: dict[str, Any]
    found: Measurements


def _publish_table(context: Context, made: _Masked, recorded: str) -> dict[str, Any]:
    """Let a masked table leave under its own name, with its statement."""
    staged = {made.staged: made.target}
    publish_staged(context, made.target, staged, made.found, made.claim, made.origin, made.details, release=recorded)
    told = {"output": str(made.target), "masks": made.plan.described, "guarantee": made.claim.reason}
    return told | made.details | {MEASURED: made.found.to_dict()}


def _state(
    context: Context, read: _Read, released: Any, rows: int, mode: str, opened: Mapping[str, Key]
) -> tuple[Guarantee, Provenance, dict[str, Any]]:
    """What is claimed of a masked table, where it came from, and what was measured on it."""
    from deniable.masking import residual_risk
    from deniable.masking.streaming import PART_ROWS
    from deniable.release import Provenance

    engine, made, whose = read.engine, read.plan, read.attach_people()
    policy, table = context.policy, made.table
    measured = _measure(engine, policy, made, released, whose)
    names, links = made.knowable, made.linking
    joint = gate_joint_exposure(context, engine, f"released {table}", names, whose, links=links)
    details = {
        "rows": rows,
        "mode": mode,
        "remaining_attacks": list(residual_risk.list_remaining_attacks(made, in_order=not read.key)),
        "singling_out": [one.as_dict() for one in measured],
        "singling_out_rows": min(rows, SAMPLE_ROWS),
        "token_collision_probability": dict(residual_risk.estimate_collisions(made, rows)),
        "withheld": list(made.withheld),
        "joint": None if joint is None else joint.to_dict(),
        "placeholder_dates": residual_risk.count_placeholders(made, engine.stream(f"released {table}", PART_ROWS)),
        **_attack(context, read, whose),
    }
    checks = {name: key.check for name, key in opened.items()}
    parameters = {"masks": made.described, "keys": checks}
    # A digest without a key would let whoever can guess the rest of the rows try every value of a masked one.
    version = context.scope.seal_version(table, engine.data_version(table))
    origin = Provenance(policy.hash, {table: version}, parameters, epoch=context.epoch)
    unit = str(policy.table(table).unit or "one row")
    names = names if joint is None or joint.columns <= FEW_NAMES else [f"all {joint.columns} of them"]
    told = [] if joint is None else [residual_risk.SinglingOut(tuple(names), joint.together)]
    return residual_risk.state_guarantee(mode, [*told, *measured], unit), origin, details


def _tell_linked(made: TablePlan, details: dict[str, Any], linked: Mapping[str, Mapping[str, Any]]) -> None:
    """Say in a table's statement what others with the same tokens add, and which could not be measured."""
    from deniable.masking import residual_risk

    found = dict(linked.get(made.table, {}))
    details["remaining_attacks"] += residual_risk.list_unmeasured_joins(made, found.pop("not_measured_with", []))
    details.update(found)


FEW_NAMES = 8


def _attack(context: Context, read: _Read, whose: Whose | None) -> dict[str, Any]:
    """What the attacks expose that the policy limits; refused beyond a limit."""
    from deniable.assess.exposure import tell_people
    from deniable.engines.base import read_rows

    engine, table = read.engine, read.plan.table

    def read_both() -> Mapping[str, Any]:
        whole, unit = tell_people(engine, f"released {table}", whose)
        rows = engine.run(f"SELECT * FROM {whole}")  # noqa: S608  quoted names
        return {"release": rows, "original": engine.run(read_rows(table, "*", read.key)), "unit": unit}

    found = gate_attacks(context, table, read_both)
    return {} if found is None else {"attacks": found.to_dict()}


LONG_TOKEN = 12
"""Tokens of so many characters are no value of the table by chance."""
MOST_SECRETS = 1_000_000


def _claim_columns(schema: TableSchema, read: _Read) -> Claim:
    """What is claimed of masked rows: every row is there, in these columns, and no token is a value of the table."""
    from deniable.assess.released_rows import Claim
    from deniable.engines.base import quote
    from deniable.policy.schema import Role

    engine, made = read.engine, read.plan
    table = quote(made.table)
    shape = engine.run(f"SELECT * FROM {table} LIMIT 0").schema  # noqa: S608  quoted names
    columns = {each.name: shape.field(each.name).type if each.mask is None else None for each in made.columns}
    columns |= dict.fromkeys(made.projection.names if made.projection else ())
    tokens = tuple(each.name for each in made.columns if _is_long_token(each.spec))

    def read_distinct(name: str) -> pa.Array:
        limited = f"SELECT DISTINCT {quote(name)} FROM {table} LIMIT {MOST_SECRETS}"  # noqa: S608  quoted names
        return engine.run(limited).column(0).combine_chunks()

    secrets, doubtful = {name: read_distinct(name) for name in tokens}, _list_doubtful(schema, made)
    left = {name: read_distinct(name) for name in doubtful}
    moved = tuple(name for name, mask in doubtful.items() if mask.kind in MOVING)
    originals = (lambda: read.stream_originals(list(left))) if left else None
    rows, there = engine.count(made.table), set(shape.names)
    named = [each.name for each in schema.with_role(Role.IDENTIFIER) if each.name in there]
    hidden = {name: secrets[name] if name in secrets else read_distinct(name) for name in named}
    return Claim(
        columns, rows, secrets=secrets, searched=tokens, identifiers=left, moved=moved, originals=originals,
        hidden=hidden,
    )  # fmt: skip


MOVING = ("shift_dates",)
"""Masks whose values are those of others by chance."""


def _list_doubtful(schema: TableSchema, made: TablePlan) -> dict[str, Spec]:
    """Identifiers whose mask may leave them as they are or recognizable, which only the written file shows."""
    from deniable.policy.schema import Role

    named = {column.name for column in schema.with_role(Role.IDENTIFIER)} | {made.unit}
    masked = {each.name: each.spec for each in made.columns if each.name in named and each.spec is not None}
    return {name: spec for name, spec in masked.items() if not is_hidden(spec)}


def _is_long_token(spec: Spec | None) -> bool:
    from deniable.masking.pseudonyms import LENGTH

    return spec is not None and spec.kind == "token" and int(str(spec.options.get("length", LENGTH))) >= LONG_TOKEN


def _job(engine: Engine, policy: Policy, made: TablePlan, request: Request, opened: Mapping[str, Key]) -> Any:
    from importlib.metadata import version

    from deniable.masking import streaming

    return streaming.Job(
        made.table,
        policy.hash,
        f"{engine.data_version(made.table)} {engine.count(made.table)}",
        made.described,
        {name: key.check for name, key in opened.items()},
        streaming.format_of(request.outputs[made.table]),
        streaming.PART_ROWS,
        version("deniable"),
        request.keep_order,
    )


def _measure(engine: Engine, policy: Policy, made: TablePlan, source: Any, whose: Whose | None) -> tuple[Any, ...]:
    """How many people the released columns single out: the quasi-identifiers together, then the smallest sets."""
    from deniable.assess.exposure import tell_people
    from deniable.masking import residual_risk
    from deniable.policy.schema import Role

    released = f"released {made.table}"
    engine.attach(released, source)
    schema = policy.table(made.table)
    quasi = {column.name for column in schema.with_role(Role.QUASI_IDENTIFIER)}
    names = tuple(each.name for each in made.columns if each.name in quasi and not is_removed(each.spec))
    if not names:
        return ()
    whole, unit = tell_people(engine, released, whose)
    rows = sample(engine, released, [*names, *([unit] if unit else [])], whole=whole)
    together = residual_risk.SinglingOut(names, residual_risk.measure_singling_out(rows, names, unit))
    return (together, *residual_risk.find_smallest_sets(rows, names, unit))


def _joins(engine: Engine, plans: Mapping[str, TablePlan]) -> list[dict[str, object]]:
    from deniable.masking.joins import check_joins

    checks = check_joins(engine, plans, {name: f"released {name}" for name in plans})
    broken = [f"{check.left} and {check.right}" for check in checks if not check.kept]
    if broken:
        raise IntegrityError(
            f"masked tables do not join as their sources do: {'; '.join(broken)}",
            remedy="Give the columns one type and one spelling, or longer tokens; then mask again with --fresh",
        )
    return [check.as_dict() for check in checks]


def _share(progress: Progress | None, i: int, of: int) -> Progress | None:
    return None if progress is None else lambda share: progress((i + share) / of)
