"""The journey of a k-anonymous release: roles, counts by quasi-identifiers, search, recoding in a stream, statement.

The rows are counted by the engine and streamed through the recoding, so that memory is bounded by the distinct
combinations of quasi-identifiers and not by the rows. Local recodings need the rows at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize_order import (
    TABLE,
    Roles,
    drafted,
    known_columns,
    policy_of,
    population_of,
    refuse_unknown,
    request_for,
    roles_of,
    rows_to_release,
    statement,
)
from deniable.curator.anonymize_order import Order as Order
from deniable.policy.document import Policy

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.kanonymity.anonymize import Anonymized
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Prepared, Request

METHODS = ("optimal", "mondrian", "mondrian-relaxed", "local", "cells", "microaggregate")
COUNT = "__rows"

Progress = Callable[[float], None]


def anonymize(order: Order, progress: Progress | None = None) -> dict[str, Any]:
    """Make the release, write it with its statement and its recoding, and report in plain values."""
    from deniable.engines.duckdb import DuckDBEngine

    refuse_unknown("method", order.method, METHODS)
    policy = policy_of(order)
    with DuckDBEngine(root=policy.folder if policy else Path.cwd()) as engine:
        roles = roles_of(engine, policy, order)
        _governed(engine, policy, order, roles)
        known_columns(engine, (order.target,) if order.target else ())
        request = request_for(engine, policy, order, roles)
        population = population_of(engine, order, request)
        if order.method == "optimal":
            return _globally(engine, policy, order, roles, request, population, progress)
        return _locally(engine, policy, order, roles, request)


def _governed(engine: Engine, policy: Policy | None, order: Order, roles: Roles) -> None:
    """Leave out who withdrew or is not in the sample, and write to the ledger that rows leave without a guarantee."""
    from deniable.curator.minimizing import restrictions
    from deniable.curator.recording import record
    from deniable.ledger.opening import open_cabinet, open_ledger

    if policy is None or roles.schema is None:
        return
    ledger, cabinet = open_ledger(order.ledger, policy), open_cabinet(order.ledger, policy.dataset)
    with closing(ledger), closing(cabinet):
        engine.restrict(TABLE, *restrictions(policy, cabinet, roles.schema.name))
        unit = str(roles.schema.unit or "one row")
        record(ledger, "k-anonymity", tables=(roles.schema.name,), unit=unit, method=order.method)


def draft(source: Any, columns: tuple[str, ...] = ()) -> dict[str, Any]:
    """Hierarchies to begin with, as a policy would declare them; None for a column without structure.

    Such a column is shown or withheld, for which a policy needs no words.
    """
    from deniable.engines.duckdb import DuckDBEngine

    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source)
        names = known_columns(engine, columns) or tuple(f.name for f in engine.describe(TABLE))
        specs = {name: drafted(engine, name) for name in names}
    words = {name: {spec.kind: _plain(spec.options)} for name, spec in specs.items()}
    return {"hierarchies": {name: None if specs[name].kind == "withhold" else words[name] for name in words}}


def _globally(
    engine: Engine,
    policy: Policy | None,
    order: Order,
    roles: Roles,
    request: Request,
    population: pa.Table | None,
    progress: Progress | None,
) -> dict[str, Any]:
    """One level for each column: counted, searched, streamed."""
    from deniable.kanonymity.anonymize import anonymize as search
    from deniable.kanonymity.recode import Recoder
    from deniable.kanonymity.recoding import Form, Suppressed

    named = (*request.quasi_identifiers, *request.sensitive)
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    found = search(
        counted,
        request,
        roles.hierarchies,
        population=population,
        counts=COUNT,
        form=Form(order.form),
        suppressed_rows=Suppressed(order.suppressed_rows),
        seconds=order.seconds,
        progress=None if progress is None else lambda share: progress(0.5 * share),
    )
    composed = _composed(engine, order, found.recoding) | _warned(roles)
    written = engine.write(Recoder(found.recoding).stream(engine.stream(rows_to_release(roles))), order.out)
    _keep(found.recoding, order.out)
    details = _details(found, request, written) | _risk(counted, found, request) | composed
    details |= _usefulness(engine, order, request)
    return _sealed(engine, policy, order, request, details) | {"lattice": _points(found, request)}


def _warned(roles: Roles) -> dict[str, Any]:
    """Where a person has several rows, a class of k rows may be fewer than k people."""
    unit = roles.schema.unit if roles.schema else None
    if unit is None or unit.is_row:
        return {}
    return {"warning": f"k counts rows; the policy protects {unit}, who may have several rows in one class"}


def _composed(engine: Engine, order: Order, recoding: Recoding) -> dict[str, Any]:
    """What an intruder learns who also holds an earlier release of the same people."""
    if order.earlier is None:
        return {}
    from deniable.curator import checking
    from deniable.kanonymity.recoding import read as read_recoding

    earlier = read_recoding(order.earlier)
    sensitive = tuple(dict.fromkeys((*earlier.sensitive, *recoding.sensitive)))
    named = known_columns(engine, tuple(dict.fromkeys((*earlier.names, *recoding.names, *sensitive))))
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    together = checking.composition(counted, earlier, recoding, sensitive, COUNT)
    if order.refuse_composition:
        checking.refuse_composition(together)
    return {"composition": together}


def _locally(engine: Engine, policy: Policy | None, order: Order, roles: Roles, request: Request) -> dict[str, Any]:
    """Each class in its own way: the rows are read, split or staged, and written."""
    from deniable.kanonymity.local import local_loss, write_local
    from deniable.kanonymity.recoding import Form
    from deniable.kanonymity.request import prepare

    table = engine.run(rows_to_release(roles))
    if order.method == "microaggregate":
        return _aggregated(engine, policy, order, request, table)
    prepared = prepare(table, request, roles.hierarchies)
    release, form = _local(prepared, order), Form(order.form)
    written = engine.write(write_local(table, prepared, release, form), order.out)
    details = {
        "rows": table.num_rows,
        "released": written,
        "suppressed": table.num_rows - written,
        "classes": release.classes,
        "models": [str(model) for model in request.models],
        "loss": local_loss(prepared, release, form),
    }
    details |= _usefulness(engine, order, request)
    return _sealed(engine, policy, order, request, details) | {"lattice": []}


def _aggregated(
    engine: Engine, policy: Policy | None, order: Order, request: Request, table: pa.Table
) -> dict[str, Any]:
    """Numbers replaced by the means of groups of k."""
    from deniable.errors import ParameterError
    from deniable.kanonymity.microaggregate import microaggregate
    from deniable.kanonymity.models import KAnonymity

    first, *others = request.models
    if others or not isinstance(first, KAnonymity):
        raise ParameterError("Microaggregation knows k-anonymity only", remedy="Use --method mondrian for other models")
    made = microaggregate(table, request.quasi_identifiers, first.k)
    written = engine.write(made.table.drop_columns(list(request.identifiers)), order.out)
    details = {
        "rows": written,
        "released": written,
        "suppressed": 0,
        "classes": int(made.group_of.max(initial=-1)) + 1,
        "models": [str(first)],
        "lost_variance": made.lost_variance,
    }
    return _sealed(engine, policy, order, request, details) | {"lattice": []}


def _risk(counted: pa.Table, found: Anonymized, request: Request) -> dict[str, Any]:
    """The risks of the table as it was and as it is released."""
    from dataclasses import asdict

    import numpy as np

    from deniable.kanonymity.risk import risks

    before = counted.group_by(list(request.quasi_identifiers)).aggregate([(COUNT, "sum")])[f"{COUNT}_sum"].to_numpy()
    after = np.array(found.recoding.classes.sizes, np.int64)
    return {"risk": {"before": asdict(risks(before)), "after": asdict(risks(after))}}


def _usefulness(engine: Engine, order: Order, request: Request) -> dict[str, Any]:
    """What a classifier learns from the release, beside the original."""
    if order.target is None:
        return {}
    from deniable.kanonymity.usefulness import usefulness

    engine.attach("released", order.out.absolute())
    original, released = (engine.run(statement("SELECT * FROM {}", name)) for name in (TABLE, "released"))
    found = usefulness(original, released, order.target, request.quasi_identifiers)
    accuracy = {"original": found.original, "released": found.released, "commonest": found.commonest}
    return {"accuracy": accuracy | {"target": order.target, "kept": found.kept}}


def _local(prepared: Prepared, order: Order) -> Any:
    from deniable.kanonymity.search.mondrian import mondrian
    from deniable.kanonymity.search.stages import optimal_then_local, suppress_cells

    if order.method == "cells":
        return suppress_cells(prepared)
    if order.method == "local":
        return optimal_then_local(prepared)
    return mondrian(prepared, relaxed=order.method == "mondrian-relaxed", sets=order.form == "sets")


def recoding_path(out: Path) -> Path:
    """Where the recoding of a release is kept, for its owner only."""
    return out.with_name(out.name + ".recoding.json")


def _keep(recoding: Recoding, out: Path) -> None:
    from deniable.kanonymity.recoding import write

    write(recoding, recoding_path(out))


def _details(found: Anonymized, request: Request, written: int) -> dict[str, Any]:
    solution, recoding = found.solution, found.recoding
    proof = solution.proof
    return {
        "rows": recoding.rows,
        "released": written,
        "suppressed": solution.suppressed,
        "classes": solution.classes,
        "models": [str(model) for model in request.models],
        str(request.measure): solution.cost,
        "levels": dict(zip(recoding.names, recoding.levels, strict=True)),
        "proof": {
            "optimal": proof.complete,
            "nodes": proof.nodes,
            "checks": proof.checks,
            "checked": proof.checked,
            "excluded_as_failing": proof.failing,
            "excluded_as_costlier": proof.costly,
            "gap": solution.gap,
        },
    }


def _sealed(
    engine: Engine, policy: Policy | None, order: Order, request: Request, details: dict[str, Any]
) -> dict[str, Any]:
    """State what is claimed, beside the file."""
    from deniable.kanonymity.words import spelled
    from deniable.release import Guarantee, Property, Provenance, seal

    properties = []
    for model in request.models:
        spec = spelled(model)
        given = tuple((name, str(value)) for name, value in spec.options.items())
        properties.append(Property(spec.kind.replace("_", "-"), given))
    parameters = {"method": order.method, "quasi_identifiers": list(request.quasi_identifiers), "form": order.form}
    provenance = Provenance(policy.hash if policy else None, {TABLE: engine.data_version(TABLE)}, parameters)
    stated = {name: value for name, value in details.items() if name != "composition"}
    sealed = seal(order.out, Guarantee.syntactic(tuple(properties)), provenance, stated)
    return details | {"output": str(order.out), "statement": str(sealed.path), "words": list(sealed.words)}


def _points(found: Anonymized, request: Request) -> list[dict[str, Any]]:
    """The lattice as data for a picture."""
    from dataclasses import asdict

    from deniable.kanonymity.picture import lattice_points

    rows = found.recoding.rows
    names = request.quasi_identifiers
    points = [asdict(point) for point in lattice_points(found.verdicts, found.solution, rows)]
    return [point | {"levels": dict(zip(names, point["levels"], strict=True))} for point in points]


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
