"""Synthesizing: charge, describe (the last sight of the data), generate, release; each also by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.recording import after_the_charge, still_charged
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Budget
from deniable.policy.unit import Neighboring
from deniable.storage import refuse_missing_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.governance.grants import Asker
    from deniable.policy.schema import TableSchema
    from deniable.policy.unit import PrivacyUnit
    from deniable.release import Guarantee, Release
    from deniable.synth.model import SynthModel

Progress = Callable[[float], None]
Workload = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: of which table, by which method, within which budget."""

    table: str
    budget: Budget
    method: str = "auto"
    columns: tuple[str, ...] | None = None
    workload: tuple[tuple[str, ...], ...] = ()
    """Columns that findings are about together."""
    areas: str | None = None
    """The column whose areas add up, for the hierarchical method."""
    linked: bool = False
    """With its people, as the policy links them."""


def describe(curator: Curator, order: Order, who: Asker | None = None) -> SynthModel:
    """The model of a table: charged before the data is touched."""
    charged = charge(curator, order, who)
    with after_the_charge():
        return learned(curator, order, charged, bounded(charged, order.columns))


@dataclass(frozen=True, slots=True)
class Charged:
    """A description that is paid for: the table, its unit, the most rows a neighbor may differ by, and the engine."""

    table: TableSchema
    unit: PrivacyUnit
    most_rows: int
    engine: Any


def charge(curator: Curator, order: Order, who: Asker | None = None) -> Charged:
    """Refuse what cannot be described; then charge for it."""
    from deniable.curator.governing import refuse_expired
    from deniable.synth.describing import charged, refuse_unsuited

    refuse_expired(curator)
    table, _ = _private(curator, order.table)
    refuse_unsuited(table, order.method, order.columns, asked(curator, order), order.areas)
    source = unbilled(curator, order.table)
    event = charged(order.method, order.budget, source.most_rows)
    about = {"tables": (table.name,), "unit": str(source.unit), "question": repr(order)}
    curator.record("differentially private synthesis", event, who=who, **about)
    return source


def unbilled(curator: Curator, name: str) -> Charged:
    """The same before it is charged: enough for the steward's own eyes, as long as nothing leaves."""
    table, unit = _private(curator, name)
    most = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    curator.scopes.refresh(curator.governor.withdrawals())
    return Charged(table, unit, most, curator.scopes.tables().attach(table.name))


def bounded(charged: Charged, columns: tuple[str, ...] | None) -> pa.Table:
    """The rows, at most so many of each unit, chosen by a fresh secret salt."""
    from deniable.synth.bounding import statement

    unit = charged.unit
    rows: pa.Table = charged.engine.run(statement(charged.table, unit, unit.rows_learned, columns))
    return rows


def learned(curator: Curator, order: Order, charged: Charged, rows: pa.Table) -> SynthModel:
    """What is learned of bounded rows."""
    from deniable.synth.describing import model_of

    truths = curator.policy.release.truths
    wanted = {"workload": asked(curator, order), "areas": order.areas}
    rest = {"most_rows": charged.most_rows, "columns": order.columns, "truths": truths, **wanted}
    return model_of(rows, charged.table, order.budget, order.method, **rest)  # type: ignore[arg-type]


def asked(curator: Curator, order: Order) -> Workload:
    """The tables that are asked for: by the order, and by the policy of columns that are described."""
    table = curator.policy.table(order.table)
    described = table.names if order.columns is None else order.columns
    return tuple(dict.fromkeys((*order.workload, *curator.policy.release.synthesize.concerning(described))))


def synthesize(
    curator: Curator,
    order: Order,
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    who: Asker | None = None,
) -> Release:
    """Describe a table and write synthetic rows, the model and the statement."""
    refuse_missing_folder(out)
    if order.linked:
        from deniable.curator.linked import synthesize as synthesize_linked

        return synthesize_linked(curator, order, out, rows=rows, seed=seed, progress=progress, who=who)
    described = describe(curator, order, who)
    return written(curator, order, described, out, rows=rows, seed=seed, progress=progress)


@still_charged()
def written(
    curator: Curator, order: Order, model: SynthModel, out: Path, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, drawn: pa.Table | None = None, **further: Any,
) -> Release:  # fmt: skip
    """Write rows of a model (or those drawn from it already) as a release, with the model beside them.

    `further` are public details of the release.
    """
    from deniable.release import Provenance, Release, seal
    from deniable.synth.generate import batches
    from deniable.synth.model import save

    shown = batches(model, rows, seed, progress) if drawn is None else drawn
    made = curator.scopes.tables().engine.write(shown, out)
    save(model, model_path(out))
    versions = curator.scopes.tables().version(order.table)
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    provenance = Provenance(curator.policy.hash, versions, parameters)
    details = {"rows": made, **told(model), "asked": answered(model, asked(curator, order)), **further}
    claimed = guarantee(curator, order)
    seal(out, claimed, provenance, details)
    return Release(out, claimed, provenance, details)


def described(curator: Curator, order: Order, out: Path) -> dict[str, Any]:
    """Describe a table and keep the model in a file."""
    refuse_missing_folder(out)
    from deniable.curator.linked import described as describe_linked
    from deniable.synth.model import save

    if order.linked:
        return describe_linked(curator, order, out)
    model = describe(curator, order)
    with still_charged():
        save(model, out)
    return {**told(model), "asked": answered(model, asked(curator, order))}


def generate(
    path: Path, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows from a model file alone: no data, no budget."""
    from deniable.curator.linked import generate as generate_linked
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.condition import condition, parsed
    from deniable.synth.generate import batches
    from deniable.synth.linked_file import is_linked_file
    from deniable.synth.model import load

    if is_linked_file(path):
        return generate_linked(path, out, rows=rows, seed=seed, where=where, progress=progress)
    model = load(path)
    only = parsed(where) if where is not None else {}
    condition(model, only)
    with DuckDBEngine() as engine:
        return engine.write(batches(model, rows, seed, progress, only), out)


def model_path(out: Path) -> Path:
    """Where the model of a synthetic file stands."""
    return out.with_name(out.name + ".model.json")


def told(model: SynthModel) -> dict[str, Any]:
    """What a model says of itself: public."""
    description = model.description
    names = description.domain.names
    measured = [" x ".join(names[place] for place in marginal.clique) for marginal in description.cliques]
    made = [a.name for a in model.attributes if a.name not in names]
    return {
        "method": description.method,
        "estimated_rows": round(description.estimates.total),
        "columns": list(names),
        "made_anew": made,
        "reason": description.reason,
        "measured": measured,
        "noise_in_a_table": round(description.estimates.noise, 4),
    }


def answered(model: SynthModel, workload: Workload) -> list[dict[str, str]]:
    """Each table that was asked for, and how it was measured: public."""
    names, held = model.description.domain.names, model.description.cliques
    found = []
    for wanted in workload:
        holding = [m for m in held if {names[place] for place in m.clique}.issuperset(wanted)]
        whole = any(not marginal.maps for marginal in holding)
        how = "measured" if whole else "measured by groups of values" if holding else "not measured"
        found.append({"table": " x ".join(wanted), "how": how})
    return found


def _private(curator: Curator, name: str) -> tuple[TableSchema, PrivacyUnit]:
    table = curator.policy.table(name)
    if table.public or table.unit is None:
        raise ParameterError(f"the table '{name}' is public", remedy="A public table needs no synthetic twin")
    return table, table.unit


def guarantee(curator: Curator, order: Order) -> Guarantee:
    """What is claimed of a synthetic table."""
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.policy.budget import exact
    from deniable.release import Guarantee, Technique

    _, unit = _private(curator, order.table)
    if isinstance(order.budget, ZCDP):
        delta = exact("1e-9")
        epsilon = epsilon_of_zcdp(order.budget.rho, delta)
        stated = {"epsilon": epsilon, "delta": delta}
        return Guarantee.differential(Technique.DP_SYNTHETIC, unit, order.budget, unit.neighboring, **stated)
    return Guarantee.differential(Technique.DP_SYNTHETIC, unit, order.budget, unit.neighboring)
