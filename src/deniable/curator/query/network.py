"""Networks: statistics of a table of edges, with noise made for one edge or one node, and networks made from them.

One measurement serves several statistics: mixing and assortativity are of the same noisy table, and the spread of a
rumor is of the same made network, so that the second is answered from the first at no cost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.curator.charge import Job, after_the_charge, recalls_charge, run_job
from deniable.curator.context import Context
from deniable.curator.query.sql import QueryAnswer, answer_job, check_confidence
from deniable.curator.sources import note_rows_out, refuse_by_adbc
from deniable.engines.base import quote
from deniable.errors import ParameterError, QueryRefused, nearest
from deniable.policy.budget import Amount, PureDP, exact, refuse_extreme
from deniable.policy.schema import Column, ColumnType, Edges, PrivacyUnit, TableSchema
from deniable.release.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.graphs.network import Network
    from deniable.graphs.statistics import NetworkPlan, Shape
    from deniable.query.execute import NoisyResults

MEASURED = {
    "edges": "edges",
    "degrees": "degrees",
    "triangles": "triangles",
    "stars": "stars",
    "clustering": "clustering",
    "mixing": "mixing",
    "assortativity": "mixing",
    "degree-assortativity": "degree assortativity",
    "graph": "graph",
    "spread": "graph",
}
"""What is measured for each statistic."""
LARGEST_STAR, MOST_STEPS, RUNS = 8, 1000, 40
TOO_NOISY = "The noise is too large for this network: the number can be any. Ask with a larger epsilon."
MOST_GROUPS = 100


@dataclass(frozen=True, slots=True)
class NetworkOrder:
    """What is asked of a network; what a statistic has no use for is refused."""

    table: str
    statistic: str
    epsilon: Amount
    by: str | None = None
    """The column of the table of nodes whose categories are the groups."""
    star: int | None = None
    """Edges of a star."""
    direction: str | None = None
    """Which degree of a directed network: all, out or in."""
    max_degree: int | None = None
    """Instead of the policy's."""
    passing: float | None = None
    stopping: float | None = None
    steps: int | None = None
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class PartExplanation(Record):
    """One measurement: how far one unit moves it, the noise, and its error where that is known before."""

    measures: str
    epsilon: str
    mechanism: str
    sensitivity: int | None
    scale: float | None
    error: float | None
    note: str


@dataclass(frozen=True, slots=True, eq=False)
class NetworkExplanation(Record):
    """What a statistic of a network would measure and cost, and whom it protects; no row is read."""

    statistic: str
    table: str
    unit: str
    neighbors: str
    hides: str
    max_degree: str
    cost: dict[str, str]
    remaining: dict[str, str] | None
    more_like_this: int | None
    confidence: float
    measurements: list[PartExplanation]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class Asked:
    """An order that may run: its tables, what is measured, and its price."""

    order: NetworkOrder
    table: TableSchema
    edges: Edges
    nodes: TableSchema | None
    by: Column | None
    plan: NetworkPlan
    cost: PureDP

    @property
    def unit(self) -> PrivacyUnit:
        """What is hidden."""
        assert self.table.unit is not None
        return self.table.unit


@recalls_charge
def answer_network(
    context: Context, order: NetworkOrder, *, request: str = "", stop: Flag | None = None
) -> QueryAnswer:
    """A statistic of a network, charged before a row is read; asked again, it is the stored answer."""
    asked = _check(context, order)
    job = _job_of(asked)
    result = run_job(context, job, request=request, stop=stop)
    with after_the_charge():
        measured = {name: parts[0].values[0] for name, parts in result.measured.items()}
        rows, told = _present(asked, measured)
    details = {"statistic": order.statistic, "hides": _state_hidden(asked), "confidence": order.confidence}
    return answer_job(context, job, result, rows, **details, notes=[*_state_notes(asked, measured), *told])


def explain_network(context: Context, order: NetworkOrder) -> NetworkExplanation:
    """What a statistic would measure and cost; no row is read and nothing is charged."""
    from deniable.query.explain import describe_budget

    asked = _check(context, order)
    return NetworkExplanation(
        order.statistic,
        asked.table.name,
        str(asked.unit),
        asked.unit.neighboring.value,
        _state_hidden(asked),
        _state_bound(asked),
        describe_budget(asked.cost),
        context.name_left(),
        context.ledger.fits(asked.plan.event, *context.path),
        order.confidence,
        _explain_parts(asked),
        [*_state_notes(asked, {}), *note_rows_out(asked.table, context.scope.sources)],
    )


def _check(context: Context, order: NetworkOrder) -> Asked:
    """Every refusal about an order: they depend on the policy and the order alone."""
    from deniable.graphs.statistics import list_bounds, plan_network
    from deniable.query.double_entry import price

    context.admit()
    check_confidence(order.confidence)
    if order.statistic not in MEASURED:
        raise ParameterError(
            f"there is no statistic '{order.statistic}' of networks",
            expected=f"One of {', '.join(MEASURED)}",
            remedy=nearest(order.statistic, MEASURED),
        )
    cost = PureDP(exact(order.epsilon, "epsilon"))
    refuse_extreme(cost)
    table = context.scope.private_table(order.table, linked=True)
    refuse_by_adbc(table, context.scope.sources)
    if table.edges is None:
        raise ParameterError(
            f"'{table.name}' is not a table of edges",
            expected="A table with edges: {from: COLUMN, to: COLUMN} and unit: edge or unit: node in the policy",
        )
    ends = [name for name in (table.edges.first, table.edges.second) if table.column(name) is None]
    if ends:
        raise QueryRefused(
            f"column '{ends[0]}' of '{table.name}' is not granted, and an edge has both of its ends",
            remedy="Ask the steward to grant both columns of the edges",
        )
    _check_settings(order, table.edges)
    nodes, by = _find_nodes(context, order, table)
    table = context.scope.find_table(table.name)
    assert table.edges is not None
    shape = _shape_of(table, by)
    _require_nodes(order, table, by)
    measured = MEASURED[order.statistic]
    measured = "grouped graph" if measured == "graph" and by is not None else measured
    bound = order.max_degree if order.max_degree is not None else table.edges.max_degree
    settings = {"star": order.star or 2, "direction": order.direction or "all"}
    plan = plan_network(measured, shape, cost.epsilon, bound, **settings)  # type: ignore[arg-type]
    if plan.bound is not None:
        for part in plan.parts:
            plan.mechanism(part)
    elif not list_bounds(plan):
        raise ParameterError(
            "the noise would be too large for every max_degree",
            remedy="Ask with a larger epsilon, or for smaller stars",
        )
    price(plan.event, cost)
    return Asked(order, table, table.edges, nodes, by, plan, cost)


def _check_settings(order: NetworkOrder, edges: Edges) -> None:
    """Refuse settings out of their range, and those that a statistic has no use for."""

    def refuse(happened: str, expected: str) -> None:
        raise ParameterError(happened, expected=expected)

    used = {
        "star": ("stars",),
        "direction": ("degrees",),
        "by": ("mixing", "assortativity", "graph", "spread"),
        "passing": ("spread",),
        "stopping": ("spread",),
        "steps": ("spread",),
    }
    for name, statistics in used.items():
        if getattr(order, name) is not None and order.statistic not in statistics:
            refuse(f"{order.statistic} has no use for '{name}'", f"It is for {', '.join(statistics)}")
    if order.star is not None and not (_is_whole(order.star) and 2 <= order.star <= LARGEST_STAR):
        refuse("the number of edges of a star is out of range", f"2 to {LARGEST_STAR}")
    if order.direction is not None and order.direction not in ("all", "out", "in"):
        refuse(f"there is no direction '{order.direction}'", "all, out or in")
    if order.direction in ("out", "in") and not edges.directed:
        refuse("the edges of this network have no direction", "directed: true under edges in the policy")
    if order.max_degree is not None and not (_is_whole(order.max_degree) and 1 <= order.max_degree <= 1_000_000):
        refuse("the largest degree is out of range", "max_degree from 1 to 1,000,000")
    for name in ("passing", "stopping"):
        value = getattr(order, name)
        if value is not None and not (isinstance(value, int | float) and 0 <= value <= 1):
            refuse(f"'{name}' is not a probability", "0 to 1")
    if order.steps is not None and not (_is_whole(order.steps) and 1 <= order.steps <= MOST_STEPS):
        refuse("the number of steps is out of range", f"1 to {MOST_STEPS}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _find_nodes(context: Context, order: NetworkOrder, table: TableSchema) -> tuple[TableSchema | None, Column | None]:
    """The table of nodes as the asker may name it, and the column of groups."""
    assert table.edges is not None
    if table.edges.nodes is None:
        return None, None
    declared = context.scope.find_table(table.edges.nodes[0])
    nodes = declared if declared.public else context.scope.private_table(declared.name)
    if order.by is None:
        return declared, None
    column, known = nodes.column(order.by), [each.name for each in nodes.columns if each.categories and not each.opaque]
    if column is None or column.opaque or not column.categories:
        raise QueryRefused(
            f"'{order.by}' is not a column of '{nodes.name}' with declared categories",
            expected=f"Columns with categories: {', '.join(known) or 'none'}",
            remedy=nearest(order.by, known),
        )
    if len(column.categories) > MOST_GROUPS:
        raise QueryRefused(f"'{order.by}' has {len(column.categories)} categories", expected=f"{MOST_GROUPS} at most")
    return declared, column


def _shape_of(table: TableSchema, by: Column | None) -> Shape:
    from deniable.graphs.statistics import Shape

    assert table.unit is not None
    assert table.edges is not None
    groups = tuple(by.categories or ()) if by is not None else ()
    return Shape(table.unit.network, table.edges.directed, table.edges.nodes is not None, groups)


def _require_nodes(order: NetworkOrder, table: TableSchema, by: Column | None) -> None:
    assert table.unit is not None
    assert table.edges is not None
    listed = table.edges.nodes is not None
    if order.statistic in ("mixing", "assortativity") and by is None:
        remedy = (
            "Say --by COLUMN" if listed else "Declare edges: {nodes: TABLE.COLUMN} in the policy, and say --by COLUMN"
        )
        raise ParameterError(f"{order.statistic} is between groups of nodes, and none are named", remedy=remedy)
    if order.by is not None and not listed:
        raise ParameterError("the policy names no table of nodes", remedy="Declare edges: {nodes: TABLE.COLUMN}")
    if (
        table.unit.network == "node"
        and not listed
        and MEASURED[order.statistic] in ("triangles", "clustering", "degree assortativity", "graph")
    ):
        raise ParameterError(
            f"{order.statistic} with unit: node needs a table of nodes: how far one node moves the number depends on "
            "how many there are",
            remedy="Declare edges: {nodes: TABLE.COLUMN} in the policy",
        )


def _job_of(asked: Asked) -> Job[NoisyResults]:
    from deniable.release import Technique

    order, plan = asked.order, asked.plan
    measured = MEASURED[order.statistic]
    settings = [measured, order.by, plan.star if measured == "stars" else None, plan.direction, plan.bound]
    text = f"network {asked.table.name}: {order.statistic}" + (f" by {order.by}" if order.by else "")
    private = [asked.table.name, *([asked.nodes.name] if asked.nodes is not None and not asked.nodes.public else [])]
    public = [asked.nodes.name] if asked.nodes is not None and asked.nodes.public else []
    technique = Technique.DP_SYNTHETIC if measured == "graph" else Technique.DP_QUERY
    return Job(
        technique, text, plan.event, asked.unit, tuple(private), lambda engine: _measure(asked, engine), tuple(public),
        json.dumps(["network", asked.table.name, settings, str(asked.cost.epsilon)]), asked.cost,
        details={"asked": text, "hides": str(asked.unit)},
    )  # fmt: skip


def _measure(asked: Asked, engine: Engine) -> NoisyResults:
    import pyarrow as pa

    from deniable.graphs.statistics import measure
    from deniable.query.execute import Noisy

    found = measure(asked.plan, _read_network(asked, engine))
    return {name: (Noisy(pa.table({"_": pa.nulls(values.size)}), (values,)),) for name, values in found.items()}


def _read_network(asked: Asked, engine: Engine) -> Network:
    """The network of the rows that the asker may count, with a fresh secret order of its edges."""
    from deniable.dp.samplers import salt
    from deniable.graphs.network import build_network

    edges, nodes = asked.edges, None
    rows = _read_columns(engine, asked.table, (edges.first, edges.second))
    if asked.nodes is not None and edges.nodes is not None:
        listed = (edges.nodes[1], *((asked.by.name,) if asked.by is not None else ()))
        nodes = _read_columns(engine, asked.nodes, listed, rows.schema.field(0).type)
    categories = None if asked.by is None else asked.by.categories
    return build_network(rows, nodes, categories, directed=edges.directed, salt=salt(32))


def _read_columns(engine: Engine, table: TableSchema, names: tuple[str, ...], kind: Any = None) -> pa.Table:
    """Columns of an attached table, each combination once; an empty text is nobody."""
    import pyarrow as pa

    terms = []
    for place, name in enumerate(names):
        column = table.column(name)
        is_text = column is None or column.type is ColumnType.TEXT
        terms.append(f"{f'NULLIF({quote(name)}, {EMPTY})' if is_text else quote(name)} AS c{place}")
    read = engine.run(f"SELECT DISTINCT {', '.join(terms)} FROM {quote(table.name)}")  # noqa: S608  quoted names
    first = pa.int64() if pa.types.is_integer(read.schema.field(0).type) else pa.string()
    ends = 2 if kind is None else 1
    return pa.table([read.column(i).cast(kind or first) if i < ends else read.column(i) for i in range(len(names))],
                    names=[f"c{i}" for i in range(len(names))])  # fmt: skip


EMPTY = "''"


def _state_hidden(asked: Asked) -> str:
    if asked.unit.network == "edge":
        return (
            "One edge: it is hidden whether two nodes are connected. Which nodes there are is not hidden, and a node "
            "with many edges is protected less, the less the more it has."
        )
    return "One node with all its edges: it is hidden whether a node is there, and whom it is connected to."


def _state_bound(asked: Asked) -> str:
    from deniable.graphs.statistics import BOUND_SHARE

    if asked.plan.bound is None:
        return f"chosen with {BOUND_SHARE.numerator}/{BOUND_SHARE.denominator} of the budget"
    return str(asked.plan.bound)


def _state_notes(asked: Asked, measured: Mapping[str, Any]) -> list[str]:
    """What a reader must know of the numbers: the unit, and what a projection leaves out."""
    notes = [f"Hides: {_state_hidden(asked)}"]
    statistic = asked.order.statistic
    if asked.unit.network == "node":
        bound = f"{int(measured['bound'][0]):,}" if "bound" in measured else _state_bound(asked)
        pairs = " in each pair of groups" if MEASURED[statistic] == "mixing" else ""
        notes.append(
            f"Of each node at most max_degree edges count{pairs} (max_degree: {bound}), chosen by lot. The numbers are "
            "of that smaller network: too small where nodes have more edges. Intervals do not include this."
        )
    elif statistic == "degrees":
        notes.append(f"Degrees from {asked.plan.bound} up are counted together.")
    if asked.edges.directed and statistic not in ("edges", "mixing", "assortativity") and asked.plan.direction == "all":
        notes.append("Directions do not count here: two nodes are connected if there is an edge in any direction.")
    return notes


def _explain_parts(asked: Asked) -> list[PartExplanation]:
    from deniable.dp.mechanisms import LadderMechanism, LaplaceMechanism
    from deniable.graphs.statistics import MOMENTS, PARTS

    plan, found = asked.plan, []
    for part in plan.parts:
        epsilon, words = f"{float(part.epsilon):.6g}", PARTS[part.name]
        if plan.bound is None and part.name not in ("bound", "triangles", *MOMENTS):
            note = "the noise follows the largest degree, which is chosen first"
            kind = "sparse vector" if part.name.endswith("rungs") else "discrete Laplace"
            found.append(PartExplanation(words, epsilon, kind, None, None, None, note))
            continue
        made = plan.mechanism(part)
        if isinstance(made, LaplaceMechanism):
            error = made.accuracy(1 - asked.order.confidence)
            told = PartExplanation(
                words, epsilon, "discrete Laplace", int(made.sensitivity), float(made.scale), error, ""
            )
        elif isinstance(made, LadderMechanism):
            note = "the noise follows how far one unit moves this network; the answer tells its error"
            told = PartExplanation(words, epsilon, "ladder", None, None, None, note)
        else:
            told = PartExplanation(words, epsilon, "sparse vector", 1, float(made.scale), None, "")
        found.append(told)
    return found


def _present(asked: Asked, measured: dict[str, Any]) -> tuple[pa.Table, list[str]]:
    """The rows of a statistic from its noisy numbers, with intervals; and what there is to say of them."""
    import pyarrow as pa

    from deniable.graphs.statistics import settle_bound

    plan = settle_bound(asked.plan, measured)
    made, notes = PRESENT[asked.order.statistic](asked, plan, measured)
    return (made if isinstance(made, pa.Table) else pa.Table.from_pylist(made)), notes


def _enclose(name: str, value: float, error: float) -> dict[str, float]:
    """A number with the ends of its interval; a noisy number may be below 0."""
    return {name: value, f"{name}_low": value - error, f"{name}_high": value + error}


def _present_count(name: str, asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    from deniable.graphs.statistics import find_error

    value = int(measured[name][0])
    return [_enclose(name, value, find_error(name, plan, measured, asked.order.confidence))], []


def _present_degrees(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    """Nodes with at least each degree, and with exactly it; the intervals hold each by itself."""
    from deniable.graphs.statistics import find_error, fit_degrees

    tails = fit_degrees(plan, measured)
    error = find_error("degrees", plan, measured, asked.order.confidence)
    both = 2 * find_error("degrees", plan, measured, (1 + asked.order.confidence) / 2)
    least = 0 if "nodes" in measured or (plan.shape.unit == "node" and plan.shape.listed) else 1
    last = int(np.flatnonzero(tails).max(initial=least))
    exactly = tails - np.append(tails[1:], 0)
    # Of listed nodes that are private, "at least k" is a difference of two noisy numbers.
    ends = both if plan.shape.unit == "node" and plan.shape.listed else error
    rows = []
    for degree in range(least, last + 1):
        known = degree == 0 and "nodes" in measured
        told = _enclose("nodes_at_least", int(tails[degree]), 0 if known else ends)
        rows.append({"degree": degree} | told | _enclose("nodes", int(exactly[degree]), both))
    notes = ["The numbers are fitted so that fewer nodes have more edges; intervals are of the noise, each by itself."]
    return rows or [{"degree": least, **_enclose("nodes_at_least", 0, ends), **_enclose("nodes", 0, both)}], notes


def _present_clustering(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    """Three times the triangles by the paths of two edges; ends from those of both."""
    from deniable.graphs.statistics import find_error
    from deniable.graphs.synthesis import enclose_clustering

    level = (1 + asked.order.confidence) / 2
    triangles, paths = (
        _enclose(name, int(measured[name][0]), find_error(name, plan, measured, level))
        for name in ("triangles", "stars")
    )
    found = enclose_clustering(*(tuple(each.values()) for each in (triangles, paths)))  # type: ignore[arg-type]
    told = dict(zip(("clustering", "clustering_low", "clustering_high"), found, strict=True))
    two = {f"paths{name.removeprefix('stars')}": value for name, value in paths.items()}
    notes = ["Clustering is 3 * triangles / paths of two edges, of the whole network."]
    return [told | triangles | two], notes + ([TOO_NOISY] if found[1:] == (0.0, 1.0) else [])


def _present_mixing(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    """Edges between groups, and their density: edges by pairs of nodes that could have one."""
    from deniable.graphs.statistics import find_error
    from deniable.graphs.synthesis import enclose_densities, list_sizes

    error = find_error("cells", plan, measured, asked.order.confidence)
    names, groups = ("from", "to") if plan.shape.directed else ("group", "with"), plan.shape.groups
    densities = enclose_densities(plan, measured, asked.order.confidence)
    rows: list[dict[str, Any]] = []
    for pair, value, density in zip(plan.shape.cells, measured["cells"].tolist(), densities, strict=True):
        told = dict(zip(("density", "density_low", "density_high"), density, strict=True))
        ends = {name: str(groups[place]) for name, place in zip(names, pair, strict=True)}
        rows.append({**ends, **_enclose("edges", int(value), error), **told})
    notes = ["Edges of nodes without a declared category are not counted."]
    if plan.shape.unit == "node":
        shown = ", ".join(f"{group} {size:,}" for group, size in zip(groups, list_sizes(measured), strict=True))
        notes.append(f"Densities are by noisy sizes of groups ({shown}); their intervals include that noise.")
    return rows, notes


def _present_assortativity(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    """Newman's coefficient, the share of edges inside groups, and that share by chance, with intervals."""
    from deniable.graphs.synthesis import estimate_assortativity, find_seed

    found = estimate_assortativity(plan, measured, asked.order.confidence, find_seed(measured)).T.tolist()
    row: dict[str, float] = {}
    for name, (value, low, high) in zip(("assortativity", "inside", "inside_by_chance"), found, strict=True):
        row |= {name: value, f"{name}_low": low, f"{name}_high": high}
    note = (
        "Assortativity: 1 if all edges are inside groups, 0 if groups play no part, below 0 if edges avoid their own "
        "group. Intervals are estimates, from noise drawn once more on the noisy numbers."
    )
    return [row], [note]


def _present_correlation(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    from deniable.graphs.synthesis import enclose_correlation

    value, low, high = enclose_correlation(plan, measured, asked.order.confidence)
    name = "degree_assortativity"
    notes = [
        "Assortativity by degree: above 0 if nodes with many edges are joined to one another, below 0 if they are "
        "joined to nodes with few, -1 to 1. The interval holds the noise of all sums that it is made of."
    ]
    if (low, high) == (-1.0, 1.0):
        notes.append(TOO_NOISY)
    if plan.shape.unit == "node":
        notes.append("Cutting degrees off at max_degree moves this coefficient, up or down, and can move it far.")
    return [{name: value, f"{name}_low": low, f"{name}_high": high}], notes


def _present_graph(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    import pyarrow as pa

    from deniable.graphs.network import count_triangles
    from deniable.graphs.synthesis import make_from_counts

    made = make_from_counts(plan, measured)
    ends = {asked.edges.first: made.first, asked.edges.second: made.second}
    columns: dict[str, Any] = dict(ends)
    if "cells" in measured:
        names = np.array([str(each) for each in plan.shape.groups], object)
        columns |= {f"{end}_{asked.order.by}": names[made.groups[nodes]] for end, nodes in ends.items()}
    wanted = max(0, int(measured["triangles"][0]))
    told = (
        f"A made network: {made.nodes:,} nodes (numbers from 0, nobody's), {made.size:,} edges, "
        f"{count_triangles(made):,} triangles; {wanted:,} were measured."
    )
    return pa.table(columns), [told]


def _present_spread(asked: Asked, plan: NetworkPlan, measured: dict[str, Any]) -> tuple[Any, list[str]]:
    from deniable.graphs.synthesis import find_seed, make_from_counts, spread_rumor

    order = asked.order
    passing, stopping = (0.05 if order.passing is None else order.passing), order.stopping or 0.0
    runs = spread_rumor(
        make_from_counts(plan, measured), passing, stopping, order.steps or 20, runs=RUNS, seed=find_seed(measured)
    )
    sides = [(1 - order.confidence) / 2, (1 + order.confidence) / 2]
    low, high = np.quantile(runs, sides, axis=0)
    means = np.clip(runs.mean(axis=0), low, high)  # equal runs have a mean that is off in its last digit
    rows = [{"step": step, "reached": float(mean), "reached_low": float(low[step]), "reached_high": float(high[step])}
            for step, mean in enumerate(means)]  # fmt: skip
    note = (
        f"The share of nodes of the made network that a rumor has reached: the mean of {RUNS} runs from one node, and "
        "the range of runs. How far the made network is from the real one is not in the range."
    )
    return rows, [note]


PRESENT: dict[str, Any] = {
    "edges": lambda *given: _present_count("edges", *given),
    "triangles": lambda *given: _present_count("triangles", *given),
    "stars": lambda *given: _present_count("stars", *given),
    "degrees": _present_degrees,
    "clustering": _present_clustering,
    "mixing": _present_mixing,
    "assortativity": _present_assortativity,
    "degree-assortativity": _present_correlation,
    "graph": _present_graph,
    "spread": _present_spread,
}
"""How each statistic is shown."""
