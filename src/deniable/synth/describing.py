"""Describe a table: encode it by the policy, measure it within a budget, and keep what was learned as a model.

This is the last sight of the data: everything after works on the model alone. Domains, bounds and categories come from
the policy; the number of records is measured; no seed reaches the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from deniable.dp.accounting import ComposedEvent, Event, NoOpEvent, cheap_epsilon, zcdp_cost
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import InternalError, ParameterError, nearest
from deniable.policy.budget import ZCDP, ApproxDP, Budget
from deniable.policy.schema import Spec, TableSchema
from deniable.synth import originals
from deniable.synth.areas import areas_of, no_areas
from deniable.synth.attributes import Attribute, Bins, Coded, Made, attributes
from deniable.synth.coding import encode
from deniable.synth.domain import Clique, Domain
from deniable.synth.learning import Learned, learn, settled
from deniable.synth.marginal import Codes
from deniable.synth.methods import METHODS, Method, describe
from deniable.synth.model import SynthModel, from_plain, to_plain
from deniable.synth.spending import NOTHING, spending
from deniable.synth.truths import concerning

Workload = tuple[tuple[str, ...], ...]
"""Columns, by name, that somebody wants to see together."""


def method_named(name: str) -> Method:
    """A method by its name."""
    if name not in METHODS:
        raise ParameterError(
            f"there is no method '{name}'", expected=f"One of {', '.join(METHODS)}", remedy=nearest(name, METHODS)
        )
    return METHODS[name]


def domain_of(chosen: tuple[Attribute, ...]) -> Domain:
    """The domain of the attributes that are coded."""
    coded = [attribute for attribute in chosen if not isinstance(attribute, Made)]
    if not coded:
        raise ParameterError("no column can be synthesized", expected="Columns with declared categories or bounds")
    ordered = frozenset(i for i, attribute in enumerate(coded) if isinstance(attribute, Bins))
    return Domain(tuple(a.name for a in coded), tuple(a.size for a in coded), ordered)


def cliques_of(workload: Workload, domain: Domain) -> tuple[Clique, ...]:
    """Columns by name as places; a column by itself asks for nothing."""
    return tuple(clique for clique in (_clique(names, domain) for names in workload) if len(clique) > 1)


def _clique(names: tuple[str, ...], domain: Domain) -> Clique:
    unknown = [name for name in names if name not in domain.names]
    if unknown:
        raise ParameterError(
            f"the workload asks for '{unknown[0]}', which is not described",
            expected=f"Columns among {', '.join(domain.names)}",
            remedy=nearest(unknown[0], domain.names),
        )
    return tuple(sorted({domain.names.index(name) for name in names}))


def refuse_unsuited(
    table: TableSchema, method: str, columns: tuple[str, ...] | None, workload: Workload, areas: str | None
) -> None:
    """Refuse, before anything is charged, what could not be described: from the policy alone."""
    chosen = attributes(table, columns)
    cliques_of(workload, domain_of(chosen))
    if areas_of(table, chosen, areas) is None and method_named(method).areas:
        raise no_areas()


def charged(method: str, budget: Budget, most_rows: int) -> Event:
    """What a description is charged for before any record is seen."""
    return NoOpEvent() if method_named(method).free else spending(budget, most_rows).event


def model_of(
    rows: pa.Table,
    table: TableSchema,
    budget: Budget,
    method: str = "auto",
    *,
    most_rows: int = 1,
    columns: tuple[str, ...] | None = None,
    truths: tuple[Spec, ...] = (),
    workload: Workload = (),
    areas: str | None = None,
    entropy: Entropy = SYSTEM,
) -> SynthModel:
    """The model of a table whose units have at most `most_rows` rows each (the caller has bounded them).

    `workload` lists columns that findings are about together; `areas` names the column whose areas are kept.
    """
    chosen, way = attributes(table, columns), method_named(method)
    cliques_of(workload, domain_of(chosen))
    learned = _learned(rows, chosen, way, budget, most_rows, entropy)
    coded = [attribute for attribute in learned.attributes if not isinstance(attribute, Made)]
    codes, domain = encoded(rows, coded), domain_of(learned.attributes)
    asked, places = cliques_of(_described(workload, domain), domain), areas_of(table, learned.attributes, areas)
    description = describe(codes, domain, way, learned.spend, entropy, workload=asked, areas=places)
    description = replace(description, event=ComposedEvent((*learned.events, description.event)))
    if not way.free:
        double_entry(description.event, budget)
    kept = concerning(truths, [attribute.name for attribute in coded])
    types = tuple(originals.kept(rows.schema.field(attribute.name).type) for attribute in chosen)
    # The model is what its file says, to the last digit written.
    return from_plain(to_plain(SynthModel(table.name, learned.attributes, description, kept, types)))


def encoded(rows: pa.Table, coded: Sequence[Coded]) -> Codes:
    """The codes of a table's columns."""
    return np.stack([encode(attribute, rows.column(attribute.name)) for attribute in coded])


def _learned(
    rows: pa.Table, chosen: tuple[Attribute, ...], method: Method, budget: Budget, most_rows: int, entropy: Entropy
) -> Learned:
    if method.free:
        return Learned(settled(chosen), NOTHING, ())
    columns = {attribute.name: rows.column(attribute.name) for attribute in chosen}
    return learn(chosen, columns, spending(budget, most_rows), entropy)


def _described(workload: Workload, domain: Domain) -> Workload:
    """The workload without texts of which nothing was learned."""
    return tuple(tuple(name for name in names if name in domain.names) for names in workload)


def double_entry(event: object, budget: Budget) -> None:
    """What was measured is priced again, by the accountants; more than the budget is our bug."""
    match budget:
        case ZCDP(rho):
            cost = zcdp_cost(event)  # type: ignore[arg-type]
            held = cost is not None and cost.private and cost.amount <= rho
        case ApproxDP(epsilon, delta):
            spent = cheap_epsilon(event, delta)  # type: ignore[arg-type]
            held = spent is not None and spent <= epsilon
        case _:
            held = False
    if not held:
        raise InternalError(
            "the measurements of a description cost more than its budget", remedy="Nothing was released"
        )
