"""The journeys of a table randomized record by record: make one, read one, find the epsilon worth making it with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.governing import in_force
from deniable.errors import DataError, ParameterError
from deniable.policy.budget import Amount, exact
from deniable.policy.document import Policy, read

if TYPE_CHECKING:
    from fractions import Fraction

    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.localdp.records import RecordPlan

PLAN = "randomized columns"


def randomize(
    source: str | None,
    policy_file: Path,
    out: Path,
    epsilon: Amount,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    own: Mapping[str, Amount] | None = None,
    ledger: str | None = None,
) -> dict[str, Any]:
    """Randomize a table's columns record by record, and write it with its statement beside it."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.localdp import records
    from deniable.release import Guarantee, Provenance, Release, write

    policy = in_force(read(policy_file))
    name = _table_of(policy, source, table)
    parts = {column: exact(amount, f"epsilon of {column}") for column, amount in (own or {}).items()}
    made = records.plan(policy.table(name), exact(epsilon, "epsilon"), columns, parts)
    with DuckDBEngine(root=policy.folder) as engine:
        engine.attach(name, str(Path(source).absolute()) if source else policy.table(name).source, policy.table(name))
        _governed(engine, policy, name, ledger, made.epsilon)
        rows = records.randomize(made, engine.run(_selected(made, name)))
        described = {PLAN: records.described(made)}
        provenance = Provenance(policy.hash, {name: engine.data_version(name)}, described)
        statement = write(Release(rows, Guarantee.local("one row", made.epsilon), provenance), out, engine)
    return {"written": str(out), "rows": rows.num_rows, "words": list(statement.words)} | described


def _governed(engine: Engine, policy: Policy, name: str, place: str | None, epsilon: Fraction) -> None:
    """Leave out who withdrew, and write to the ledger that rows leave under local privacy alone."""
    from contextlib import closing

    from deniable.curator.recording import record
    from deniable.curator.withdrawing import leave_out
    from deniable.ledger.opening import open_cabinet, open_ledger

    ledger, cabinet = open_ledger(place, policy), open_cabinet(place, policy.dataset)
    with closing(ledger), closing(cabinet):
        leave_out(engine, policy, cabinet, (name,))
        record(ledger, "local differential privacy", tables=(name,), unit="one row", local_epsilon=str(epsilon))


def _table_of(policy: Policy, source: str | None, table: str | None) -> str:
    """The table meant: by its name, by the file's name, or the only one there is."""
    if table is not None:
        return policy.table(table).name
    named = [each.name for each in policy.private if source and Path(each.source).name == Path(source).name]
    known = named or [each.name for each in policy.private]
    if len(known) == 1:
        return known[0]
    raise ParameterError("it is not clear which table is meant", remedy=f"Say --table: {', '.join(known)}")


def _selected(made: RecordPlan, name: str) -> str:
    from deniable.engines.base import quote

    return f"SELECT {', '.join(quote(column.name) for column in made.columns)} FROM {quote(name)}"  # noqa: S608  names


def estimate(file: Path, confidence: float = 0.95, number: str | None = None, by: str | None = None) -> dict[str, Any]:
    """Counts and means that a randomized table still tells, with intervals."""
    from deniable.localdp import recover

    made, rows = _released(file)
    found: dict[str, Any] = {"rows": rows.num_rows, "epsilon": float(made.epsilon), "confidence": confidence}
    found["columns"] = [_column(one, confidence) for one in recover.recover(made, rows)]
    if number is not None and by is not None:
        groups = recover.means_by(made, rows, number, by)
        found["means"] = [{"group": label, **_mean(mean, confidence)} for label, mean in groups]
    elif number is not None or by is not None:
        raise ParameterError("a mean by group needs two columns", expected="Both --mean and --by")
    return found


def _released(file: Path) -> tuple[RecordPlan, pa.Table]:
    """The plan in a released table's statement, and its rows, after checking that neither was changed."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.localdp.records import planned
    from deniable.release import verify

    parameters = verify(file).body["provenance"]["parameters"]
    if PLAN not in parameters:
        raise DataError("this release was not randomized record by record", remedy="Name what `randomize` wrote")
    with DuckDBEngine() as engine:
        engine.attach("released", str(file.absolute()))
        return planned(parameters[PLAN]), engine.run("SELECT * FROM released")


def _column(one: Any, confidence: float) -> dict[str, Any]:
    if one.mean is not None:
        return {"column": one.column, "mean": _mean(one.mean, confidence)}
    low, high = one.counts.interval(confidence)
    rows = zip(one.labels, one.counts.counts.tolist(), low.tolist(), high.tolist(), strict=True)
    counts = [{"label": label, "count": count, "low": lower, "high": upper} for label, count, lower, upper in rows]
    return {"column": one.column, "counts": counts}


def _mean(mean: Any, confidence: float) -> dict[str, Any]:
    low, high = mean.interval(confidence)
    return {"mean": mean.value, "low": low, "high": high}


def ladder(
    source: str | None,
    policy_file: Path,
    label: str,
    features: Sequence[str],
    epsilons: Sequence[Amount],
    acceptable: float,
    table: str | None = None,
    repeats: int = 5,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Train at decreasing epsilon; the smallest epsilon whose accuracy is acceptable."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.localdp.ladder import ladder as climbed
    from deniable.localdp.records import plan

    policy = in_force(read(policy_file))
    schema = policy.table(_table_of(policy, source, table))
    amounts = [exact(epsilon, "epsilon") for epsilon in epsilons]
    needed = plan(schema, max(amounts), (label, *features))
    with DuckDBEngine(root=policy.folder) as engine:
        engine.attach(schema.name, str(Path(source).absolute()) if source else schema.source, schema)
        rows = engine.run(_selected(needed, schema.name))
    return asdict(climbed(schema, rows, label, features, amounts, acceptable, repeats, progress=progress))
