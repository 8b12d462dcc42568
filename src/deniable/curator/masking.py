"""The journey of a masked release: policy and keys, plan, parts, one file with its statement, joins checked.

Nothing is written before every key was opened and compared with what is remembered of it. Each output appears whole
or not at all; a killed run goes on where it was when it is started again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import AccessRefused, IntegrityError, ParameterError, nearest
from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.masking.keyring import Keyring
    from deniable.masking.keys import Key
    from deniable.masking.plan import TablePlan

MODES = ("pseudonymize", "safe-harbor")
SAMPLE_ROWS = 100_000

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: a policy file, which tables go where, and how."""

    policy: Path
    outputs: Mapping[str, Path]
    sources: Mapping[str, str] = field(default_factory=dict)
    mode: str = "pseudonymize"
    keys: Sequence[str] = ()
    columns: Sequence[str] | None = None
    fresh: bool = False
    presidio: bool = False


def mask(request: Request, progress: Progress | None = None) -> dict[str, Any]:
    """Mask the tables of a request; the report is plain values."""
    from deniable.engines.duckdb import DuckDBEngine

    policy = _policy(request)
    with DuckDBEngine(root=policy.folder, memory="600MB") as engine:
        for name in request.outputs:
            _attach(engine, policy, name, request)
        plans, opened, checklist = _planned(engine, policy, request)
        _confirm(request, opened)
        tables = {
            name: _one_table(engine, policy, plans[name], request, opened, _share(progress, i, len(plans)))
            for i, name in enumerate(plans)
        }
        joins = _joins(engine, plans)
    return {"mode": request.mode, "tables": tables, "joins": joins, "safe_harbor": checklist}


def request_for(policy: Path, source: str | None, table: str | None, out: Path, **rest: Any) -> Request:
    """The request that a command line means: one file to one file, or all private tables into a folder."""
    known = read(policy)
    if source is None and table is None:
        outputs = {each.name: out / f"{each.name}.parquet" for each in known.private}
        return Request(policy, outputs, **rest)
    name = known.table(table).name if table else _table_of(known, source)
    return Request(policy, {name: out}, {name: str(Path(source).absolute())} if source else {}, **rest)


def keyring_for(policy: Policy, places: Sequence[str]) -> Keyring:
    """Where the keys of a policy are: as the command line says, else as the policy says, else the key folder."""
    from deniable.masking.keyring import Keyring, parse_places

    declared = {}
    for place in policy.keys:
        at = shlex.join(place.at) if place.kind == "command" else place.at[0]
        declared[place.name] = f"{place.kind}:{policy.path(at) if place.kind == 'file' else at}"
    return Keyring(declared | parse_places(places))


def _policy(request: Request) -> Policy:
    policy = read(request.policy)
    if request.mode not in MODES:
        raise ParameterError(
            f"there is no mode '{request.mode}'",
            expected=f"One of {', '.join(MODES)}",
            remedy=nearest(request.mode, MODES),
        )
    if policy.expired(date.today()):
        raise AccessRefused(
            f"the policy expired on {policy.expires}", remedy="Nothing may be released under it anymore"
        )
    return policy


def _table_of(policy: Policy, source: str | None) -> str:
    """The table whose source has the file's name, or the only one there is."""
    named = [table.name for table in policy.private if Path(table.source).name == Path(source or "").name]
    if len(named) == 1:
        return named[0]
    if len(policy.private) == 1:
        return policy.private[0].name
    known = ", ".join(table.name for table in policy.private)
    raise ParameterError("it is not clear which table of the policy this file is", remedy=f"Say --table: {known}")


def _attach(engine: Engine, policy: Policy, name: str, request: Request) -> None:
    schema = policy.table(name)
    if schema.public:
        raise ParameterError(f"table '{name}' is public and needs no mask", remedy="Copy it as it is")
    engine.attach(name, request.sources.get(name, schema.source), schema)


def _planned(
    engine: Engine, policy: Policy, request: Request
) -> tuple[dict[str, TablePlan], dict[str, Key], list[dict[str, object]]]:
    """The plan of every table, the keys they need, and in safe-harbor mode the checklist."""
    from deniable.masking import plan, safe_harbor
    from deniable.masking.detect import detect

    ring = keyring_for(policy, request.keys)
    opened: dict[str, Key] = {}

    def open_key(name: str) -> Key:
        opened[name] = opened.get(name) or ring.open(name)
        return opened[name]

    shop = plan.Workshop(open_key, policy.folder, date.today().year, _searcher(request))
    plans, findings = {}, {}
    for name in request.outputs:
        schema, present = policy.table(name), [column.name for column in engine.describe(name)]
        masks = plan.specs_of(schema, present, request.columns)
        if request.mode == "safe-harbor":
            findings[name] = detect(sample(engine, name))
            masks = safe_harbor.completed(findings[name], masks)
        plans[name] = plan.plan(schema, present, masks, shop)
    lines = safe_harbor.checklist(findings, {name: made.masks for name, made in plans.items()}) if findings else ()
    return plans, opened, [line.as_dict() for line in lines]


def _searcher(request: Request) -> Any:
    if not request.presidio:
        return None
    from deniable.masking.presidio import searcher

    return searcher()


def sample(engine: Engine, name: str, columns: Sequence[str] | None = None, rows: int = SAMPLE_ROWS) -> Any:
    """Rows from all over a table, about so many: the whole of a small one, random blocks of a large one."""
    from deniable.engines.base import quote

    count = engine.count(name)
    listed = ", ".join(map(quote, columns)) if columns else "*"
    part = f" USING SAMPLE {100 * rows / count:.6f} PERCENT (SYSTEM)" if count > rows else ""
    return engine.run(f"SELECT {listed} FROM {quote(name)}{part}")  # noqa: S608  our own words and quoted names


def _confirm(request: Request, opened: Mapping[str, Key]) -> None:
    from deniable.masking.keyring import confirm

    confirm(opened.values(), checks_path(request.policy))


def checks_path(policy: Path) -> Path:
    """Where the check values of a policy's keys are remembered."""
    return policy.with_suffix(".keys.json")


def _one_table(
    engine: Engine,
    policy: Policy,
    made: TablePlan,
    request: Request,
    opened: Mapping[str, Key],
    progress: Progress | None,
) -> dict[str, Any]:
    from deniable.masking import claims, journal, parts
    from deniable.release import Provenance, seal
    from deniable.release.statement import withdraw

    target = request.outputs[made.table]
    masks = {column.name: column.described for column in made.columns}
    job = _job(engine, policy, made, request, opened)
    with journal.opened(target, job, f".{job.format}", fresh=request.fresh) as work:
        withdraw(target)
        rows = parts.write_masked(engine, made.table, made, target, work, progress)
    measured = _measured(engine, policy, made, target)
    unit = str(policy.table(made.table).unit or "one row")
    details = {
        "rows": rows,
        "mode": request.mode,
        "remaining_attacks": claims.remaining_attacks(made),
        "singling_out": [one.as_dict() for one in measured],
        "token_collision_probability": claims.collisions(made, rows),
        "withheld": list(made.withheld),
    }
    provenance = Provenance(policy.hash, {made.table: job.data_version}, {"masks": masks, "keys": dict(job.keys)})
    claim = claims.guarantee(request.mode, measured, unit)
    seal(target, claim, provenance, details)
    return {"output": str(target), "masks": masks, "guarantee": claim.reason} | details


def _job(engine: Engine, policy: Policy, made: TablePlan, request: Request, opened: Mapping[str, Key]) -> Any:
    from deniable import __version__
    from deniable.masking import journal, parts

    return journal.Job(
        made.table,
        policy.hash,
        engine.data_version(made.table),
        {column.name: column.described for column in made.columns},
        {name: key.check for name, key in opened.items()},
        parts.format_of(request.outputs[made.table]),
        parts.PART_ROWS,
        __version__,
    )


def _measured(engine: Engine, policy: Policy, made: TablePlan, target: Path) -> tuple[Any, ...]:
    """How many people the released columns single out: the quasi-identifiers together, then the smallest sets."""
    from deniable.masking import singling
    from deniable.policy.roles import Role

    released = f"released {made.table}"
    engine.attach(released, target.absolute())
    schema = policy.table(made.table)
    quasi = {column.name for column in schema.with_role(Role.QUASI_IDENTIFIER)}
    gone = {
        column.name for column in made.columns if column.spec and column.spec.kind in ("redact", "nullify", "constant")
    }
    names = tuple(column.name for column in made.columns if column.name in quasi - gone)
    unit = made.unit if made.unit in {column.name for column in made.columns} - gone else None
    if not names:
        return ()
    rows = sample(engine, released, [*names, *([unit] if unit and unit not in names else [])])
    together = singling.Singling(names, singling.share_singled_out(rows, names, unit))
    return (together, *singling.smallest_sets(rows, names, unit))


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
