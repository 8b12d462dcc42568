"""Places and times of people: noisy maps, flows between regions, and new traces; charged before a row is read.

Rows outside the declared box, or without a place (null, NaN) or a time, count nowhere, and use up nobody's rows. A
person counts with so many rows at most, chosen by a fresh secret salt; of a trace with its first points. What is stored
are the noisy counts, so that a repeated question, another confidence or more drawn traces cost nothing."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.curator.charge import Job, after_the_charge, recalls_charge, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.publish import find_signing_key, note_published
from deniable.curator.query import sql
from deniable.curator.query.sql import QueryAnswer, answer_job, check_confidence, is_pure
from deniable.curator.sources import note_rows_out, refuse_by_adbc
from deniable.errors import InternalError, ParameterError, nearest
from deniable.outputs import claim_outputs, replace_files
from deniable.policy.budget import Amount, Budget, budget, refuse_extreme
from deniable.policy.schema import Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.release.record import Record
from deniable.storage import write_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.geography.grids import Box, Counted, MapPlan, Noise, Reach, Regions
    from deniable.geography.traces import FlowPlan, Points, TracePlan
    from deniable.query.execute import Noisy, NoisyResults

GRIDS = ("adaptive", "uniform")
MOST_ROWS = 10_000
"""One person may count with so many rows at most."""
GEOJSON = ".geojson"


@dataclass(frozen=True, slots=True)
class PlacesOrder:
    """What is wanted: a map of places `at`, flows from there `to` others, or a model of traces in order of `time`."""

    table: str
    at: tuple[str, ...]
    budget: Budget
    to: tuple[str, ...] | None = None
    time: str | None = None
    slots: str | None = None
    box: tuple[float, ...] | None = None
    per_person: int | None = None
    grid: str = "adaptive"
    longest: int | None = None
    """The most points of a trace; a model of traces is wanted where it is said."""

    @property
    def kind(self) -> str:
        """Map, flows or traces."""
        return "traces" if self.longest is not None else "map" if self.to is None else "flows"


def order_places(
    table: str, at: Sequence[str], to: Sequence[str] | None = None, epsilon: Amount | None = None, delta: Amount = 0,
    rho: Amount | None = None, time: str | None = None, slots: str | None = None, box: Sequence[float] | None = None,
    per_person: int | None = None, grid: str = "adaptive", longest: int | None = None,
) -> PlacesOrder:  # fmt: skip
    """An order in plain values."""
    for name, columns in (("at", at), ("to", to)):
        if columns is not None and (isinstance(columns, str) or not all(isinstance(each, str) for each in columns)):
            raise ParameterError(f"'{name}' is not a list of names", expected="A latitude and a longitude")
    end, ends = None if to is None else tuple(to), None if box is None else tuple(box)
    asked = budget(epsilon, delta, rho)
    return PlacesOrder(table, tuple(at), asked, end, time or None, slots, ends, per_person, grid, longest)


@dataclass(frozen=True, slots=True)
class PlacesPlan:
    """An order that fits its table, with the points that count, and the noise; it has seen no row."""

    order: PlacesOrder
    table: TableSchema
    points: Points
    measured: MapPlan | FlowPlan | TracePlan

    @property
    def unit(self) -> PrivacyUnit:
        """Who is protected."""
        return self.table.unit or PrivacyUnit()

    @property
    def box(self) -> Box:
        """Where points count."""
        return self.points.box

    @property
    def rows(self) -> int:
        """How many points of a trace, or else rows, of one unit count."""
        return self.points.rows

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots of time; one without a name where rows are not told apart by time."""
        from deniable.geography.traces import SLOTS

        return SLOTS[self.order.slots][1] if self.order.slots else ("",)

    @property
    def text(self) -> str:
        """What was asked, as the ledger shows it."""
        order = self.order
        words = [f"{order.kind} of {order.table}", f"at {', '.join(order.at)}"]
        words += [f"to {', '.join(order.to)}"] if order.to else []
        words += [f"by {order.slots} of {order.time}"] if order.slots else []
        words += [f"in order of {order.time}"] if order.longest is not None else []
        return f"{', '.join(words)}; at most {self.rows} rows of each unit"

    @property
    def canonical(self) -> str:
        """Equal for equal questions."""
        told = repr((self.order.budget, self.points, self.measured))
        return hashlib.sha256(f"places:{told}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class PlacesExplanation(Record):
    """What a map, flows or traces would measure and cost; no row is read.

    `deviations` are the standard deviations of the noise in one count of each step, before steps are joined.
    """

    kind: str
    cost: dict[str, str]
    unit: str
    neighbors: str
    remaining: dict[str, str] | None
    box: tuple[float, ...]
    slots: tuple[str, ...]
    rows_of_a_person: int
    mechanism: str
    deviations: dict[str, float]
    notes: list[str]


STEPS = {
    "map": ("total", "cell of the first grid", "part of a cell"),
    "flows": ("total of ends", "cell of the first grid", "part of a cell", "flow between two regions"),
    "traces": ("total of points", "cell of the first grid", "part of a cell", "length", "pair of ends", "step"),
}
"""What is measured of each kind, in the order of its noise."""


class PlacesAnswer(QueryAnswer):
    """A map, flows or traces as rows."""

    __slots__ = ()

    @property
    def regions(self) -> list[list[float]]:
        """South, west, north and east of each region of flows or traces, by its number."""
        found: Any = self.release.details.get("regions", [])
        return list(found)

    def count_in(self, south: float, west: float, north: float, east: float) -> tuple[float, float]:
        """The points of a map inside a box, and a bound on the standard deviation of the noise in that number.

        Points are taken to be spread evenly inside a cell that the box cuts; that error is not in the deviation. Cells
        of a map lean against each other, so that the noise of several is at most what it would be if they did not. A
        box that reaches beyond the map is refused: nothing was measured there.
        """
        from deniable.geography.grids import Box, sum_within

        rows = self.rows
        if "south" not in rows.column_names:
            raise ParameterError("only a map counts points in a box", remedy="Ask for a map: without to=")
        found, parts = sum_within(_stack_edges(rows), rows["count"].to_numpy(), Box(south, west, north, east))
        return found, float(np.sqrt((parts**2) @ rows["deviation"].to_numpy() ** 2))


def plan_places(context: Context, order: PlacesOrder) -> PlacesPlan:
    """The plan of an order; refuses what the table does not have or declare. No row is read."""
    from deniable.geography.grids import MapPlan, Reach
    from deniable.geography.traces import SLOTS, FlowPlan, Points, TracePlan

    context.admit()
    table = context.scope.private_table(order.table)
    refuse_by_adbc(table, context.scope.sources)
    refuse_extreme(order.budget)
    _check_words(order)
    for name in (*order.at, *(order.to or ())):
        _require_column(table, name, (ColumnType.DECIMAL, ColumnType.INTEGER), "degrees as numbers")
    _check_time(table, order)
    unit, pure = table.unit or PrivacyUnit(), is_pure(context)
    if order.longest is not None and unit.is_row:
        raise ParameterError(
            f"rows of '{order.table}' do not tell whose they are, so there are no traces",
            expected="A unit with a column that tells people apart",
        )
    box, rows = _find_box(table, order), _bound_person(unit, order)
    replaced = unit.neighboring is Neighboring.REPLACE
    slots, reach = len(SLOTS[order.slots][1]) if order.slots else 1, Reach.of(rows, replaced)
    measured: MapPlan | FlowPlan | TracePlan
    if order.kind == "map":
        measured = MapPlan.within(order.budget, box, slots, reach, adaptive=order.grid == "adaptive", pure=pure)
    elif order.kind == "flows":
        measured = FlowPlan.within(order.budget, box, slots, rows, replaced=replaced, pure=pure)
    else:
        measured = TracePlan.within(order.budget, box, rows, replaced=replaced, pure=pure)
    ordered = order.kind == "traces"
    points = Points(table.name, unit.column, box, rows, order.at, order.to, order.time, order.slots, ordered)
    return PlacesPlan(order, table, points, measured)


def _check_words(order: PlacesOrder) -> None:
    from deniable.geography.traces import SLOTS

    for what, columns in (("at", order.at), ("to", order.to)):
        if columns is not None and len(set(columns)) != 2:
            raise ParameterError(
                f"{len(set(columns))} columns are named for a place ('{what}')",
                expected="Latitude and longitude, once each",
            )
    for what, said, known in (("slots", order.slots, tuple(SLOTS)), ("grid", order.grid, GRIDS)):
        if said is not None and said not in known:
            raise ParameterError(
                f"'{said}' is not a kind of {what}", expected=", ".join(known), remedy=nearest(said, known)
            )
    if order.kind != "map" and order.grid != "adaptive":
        raise ParameterError("a uniform grid is a choice of maps alone", remedy="Leave the grid out")
    if order.kind == "traces" and (order.slots is not None or order.to is not None or order.per_person is not None):
        raise ParameterError(
            "traces have no slots of time, no second place and no number of rows beside their length",
            expected="A place, a time that orders the points, and the most points of a trace",
        )


def _require_column(table: TableSchema, name: str, types: Sequence[ColumnType], expected: str) -> Column:
    column = table.column(name)
    if column is None or column.opaque:
        known = [each.name for each in table.columns if not each.opaque]
        raise ParameterError(f"'{name}' is not a column of '{table.name}'", remedy=nearest(name, known))
    if column.type not in types:
        raise ParameterError(f"column '{name}' of '{table.name}' is declared as {column.type}", expected=expected)
    return column


def _check_time(table: TableSchema, order: PlacesOrder) -> None:
    from deniable.geography.traces import SLOTS

    if order.time is None and (order.slots is not None or order.kind == "traces"):
        raise ParameterError("no column is named that tells the time", remedy="Name one: --time, or time=")
    if order.time is None:
        return
    if order.slots is None and order.kind != "traces":
        raise ParameterError("a time without slots changes nothing", expected=f"--slots {' or '.join(SLOTS)}")
    column = _require_column(table, order.time, (ColumnType.DATE, ColumnType.DATETIME), "a date or datetime")
    if column.type is ColumnType.DATE and order.slots in ("hour", "part"):
        raise ParameterError(f"column '{order.time}' has days and no hours", expected="--slots weekday or month")


def _find_box(table: TableSchema, order: PlacesOrder) -> Box:
    """The box that was asked for, or that the policy's bounds of the columns declare."""
    from deniable.geography.grids import BOX_WORDS, Box
    from deniable.policy.schema import number_of

    if order.box is not None:
        if len(order.box) != 4 or not all(isinstance(end, int | float) for end in order.box):
            raise ParameterError("a box has four ends", expected=BOX_WORDS)
        return Box(*(float(end) for end in order.box))
    bounds = [column.bounds for name in (*order.at, *(order.to or ())) if (column := table.column(name)) is not None]
    ends = [(float(number_of(b.lower)), float(number_of(b.upper))) for b in bounds if b is not None]
    if len(ends) < len(bounds):
        raise ParameterError(
            f"the places of '{order.table}' have no declared bounds",
            expected=f"between: in the policy for each of {', '.join((*order.at, *(order.to or ())))}; or a box",
            remedy=f"Declare bounds, or say --box: {BOX_WORDS}",
        )
    y, x = ends[::2], ends[1::2]
    south, north = min(low for low, _ in y), max(high for _, high in y)
    return Box(south, min(low for low, _ in x), north, max(high for _, high in x))


def _bound_person(unit: PrivacyUnit, order: PlacesOrder) -> int:
    """How many rows of one person count."""
    from deniable.geography.traces import LONGEST

    said, most, what = (order.per_person, MOST_ROWS, "rows of one person") if order.longest is None else (
        order.longest, LONGEST, "points of one trace"
    )  # fmt: skip
    if said is not None and (isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= most):
        raise ParameterError(f"the number of {what} is not a whole number from 1 to {most:,}")
    if unit.is_row:
        if said not in (None, 1):
            raise ParameterError("a row is one row", remedy="Leave out how many rows of one person count")
        return 1
    return said or unit.rows_in_all or unit.rows_learned


def list_noises(plan: PlacesPlan) -> list[tuple[Noise, Reach]]:
    """Every noise of a plan, with what one unit moves there by the rows that the statement lets through."""
    from deniable.geography.grids import Reach
    from deniable.geography.traces import FlowPlan, TracePlan, list_reaches

    replaced = plan.unit.neighboring is Neighboring.REPLACE
    points = Reach.of(plan.rows * (2 if plan.order.kind == "flows" else 1), replaced)
    first = plan.measured.map if isinstance(plan.measured, FlowPlan | TracePlan) else plan.measured
    found = [(noise, points) for noise in first.noises]
    if isinstance(plan.measured, FlowPlan):
        found.append((plan.measured.noise, Reach.of(plan.rows, replaced)))
    elif isinstance(plan.measured, TracePlan):
        found += list(zip(plan.measured.noises, list_reaches(plan.rows, replaced), strict=True))
    return found


def price_places(plan: PlacesPlan) -> Budget:
    """Double entry: every noise is made for what the statement lets through, and the bill is that of all of them."""
    from deniable.dp.accounting import ComposedEvent
    from deniable.geography.grids import find_reach
    from deniable.query.double_entry import price

    noises = list_noises(plan)
    told = ComposedEvent(tuple(noise.event for noise, _ in noises))
    if told != plan.measured.event or not all(find_reach(noise, reach) for noise, reach in noises):
        raise InternalError("the noise of places is not made for what it hides", remedy="Nothing was run")
    return price(told, plan.order.budget)


def _make_job(context: Context, order: PlacesOrder) -> tuple[PlacesPlan, Job[NoisyResults]]:
    """The plan of an order, and its job of the charging path."""
    from deniable.release import Technique

    plan = plan_places(context, order)
    technique = Technique.DP_SYNTHETIC if order.kind == "traces" else Technique.DP_QUERY
    return plan, Job(
        technique, plan.text, plan.measured.event, plan.unit, (plan.table.name,),
        lambda engine: _measure(plan, engine), canonical=plan.canonical, cost=price_places(plan),
        details={"asked": plan.text},
    )  # fmt: skip


def explain(context: Context, order: PlacesOrder) -> PlacesExplanation:
    """What an order would measure and cost, and the noise in its counts; nothing is read or charged."""
    from deniable.geography.grids import find_deviation

    plan = plan_places(context, order)
    cost = sql.describe_cost(context, price_places(plan), plan.unit)
    noises = [noise for noise, _ in list_noises(plan)]
    steps = STEPS[order.kind]
    told = dict(zip(steps, (find_deviation(noise) for noise in noises), strict=False))
    mechanism = "discrete Laplace" if "Laplace" in type(noises[0]).__name__ else "discrete Gaussian"
    box = (plan.box.south, plan.box.west, plan.box.north, plan.box.east)
    return PlacesExplanation(
        order.kind, cost["cost"], cost["unit"], cost["neighbors"], cost["remaining"], box,
        plan.slots if order.slots else (), plan.rows, mechanism, told, _note_rules(context, plan),
    )  # fmt: skip


def _note_rules(context: Context, plan: PlacesPlan) -> list[str]:
    notes = ["Rows outside the box, and rows without a place or time, count nowhere."]
    if not plan.unit.is_row and plan.order.kind == "traces":
        notes.append(f"The first {plan.rows} points of each person count.")
    elif not plan.unit.is_row:
        notes.append(f"At most {plan.rows} rows of each person count, chosen at random: numbers are of those rows.")
    away = note_rows_out(plan.table, context.scope.sources)
    return [*notes, *away, *sql.note_missing_ids(context, (plan.table.name,))]


@recalls_charge
def answer_places(
    context: Context, order: PlacesOrder, *, confidence: float = 0.95, nonnegative: bool = False,
    out: Path | None = None, request: str = "", stop: Flag | None = None,
) -> PlacesAnswer:  # fmt: skip
    """A map, or flows between regions: each number with its interval of the noise."""
    check_confidence(confidence)
    if order.kind == "traces":
        raise ParameterError("traces are drawn, not counted", remedy="Call traces instead")
    plan, job = _make_job(context, order)
    with claim_outputs(out, rows=True, also=(GEOJSON,)):
        result = run_job(context, job, request=request, stop=stop)
        with after_the_charge():
            told = _tabulate_map if order.kind == "map" else _tabulate_flows
            rows, about = told(plan, result.measured, confidence, nonnegative)
        about |= {"notes": _note_rules(context, plan), "confidence": confidence, "rows_of_a_person": plan.rows}
        return _finish(context, answer_job(context, job, result, rows, kind=order.kind, **about), out)


def draw_people(
    context: Context, order: PlacesOrder, *, people: int | None = None, seed: int = 0, out: Path | None = None
) -> PlacesAnswer:
    """New traces from a model that was measured once: drawing more of them, or others, costs nothing."""
    from deniable.geography.traces import MOST_DRAWN, build_model, draw_traces

    whole = isinstance(people, int) and not isinstance(people, bool)
    if people is not None and not (whole and 1 <= people <= MOST_DRAWN):
        raise ParameterError(f"the number of people is not a whole number from 1 to {MOST_DRAWN:,}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ParameterError("the seed is not a whole number of at least 0")
    if order.kind != "traces":
        raise ParameterError("no length of traces is said", expected="longest, the most points of a trace")
    plan, job = _make_job(context, order)
    with claim_outputs(out, rows=True, also=(GEOJSON,)):
        result = run_job(context, job)
        with after_the_charge():
            model = build_model(plan.measured, _read_traces(result.measured))  # type: ignore[arg-type]
            made = min(model.people, MOST_DRAWN) if people is None else people
            rows = _tabulate_traces(plan, draw_traces(model, made, seed))
        about: dict[str, Any] = {"people": made, "seed": seed, "longest": plan.rows}
        about |= {"regions": _list_boxes(model.regions), "notes": [*_note_rules(context, plan), ONE_POINT]}
        return _finish(context, answer_job(context, job, result, rows, kind=order.kind, **about), out)


ONE_POINT = "Traces remember one point: what depends on more is not kept."


def _finish(context: Context, answer: QueryAnswer, out: Path | None) -> PlacesAnswer:
    found = PlacesAnswer(answer.release, answer.repeated, answer.receipt)
    if out is not None:
        write_places(context, found, out)
    return found


def _measure(plan: PlacesPlan, engine: Engine) -> NoisyResults:
    """The noisy counts of the rows that count: the last sight of them."""
    from deniable.geography.traces import FlowPlan, TracePlan, measure_flows, measure_traces, render_points

    found = engine.run(render_points(plan.points))
    y, x = (np.asarray(found.column(name).to_numpy(), np.float64) for name in ("_y", "_x"))
    if isinstance(plan.measured, TracePlan):
        person = np.asarray(found.column("_person").to_numpy(), np.int64)
        counts = measure_traces(plan.measured, y, x, person)
        parts = (counts.lengths, counts.ends, counts.steps)
        return {"places": (*_store_map(counts.map), *(_store(each) for each in parts))}
    slot = np.asarray(found.column("_slot").to_numpy(), np.int64)
    if isinstance(plan.measured, FlowPlan):
        end = tuple(np.asarray(found.column(name).to_numpy(), np.float64) for name in ("_y2", "_x2"))
        counted, pairs = measure_flows(plan.measured, (y, x), (end[0], end[1]), slot)
        return {"places": (*_store_map(counted), _store(pairs))}
    from deniable.geography.grids import measure_map

    return {"places": _store_map(measure_map(plan.measured, y, x, slot))}


def _store(values: Any, **keys: Any) -> Noisy:
    import pyarrow as pa

    from deniable.query.execute import Noisy

    return Noisy(pa.table(keys or {"place": np.arange(len(values))}), (values,))


def _store_map(counted: Counted) -> tuple[Noisy, ...]:
    """The counts of a map as the answer store takes them: every array is public."""
    return (
        _store(counted.totals, side=counted.sides),
        _store(counted.cells, divided=counted.divided),
        _store(counted.parts),
    )


def _read_map(measured: NoisyResults) -> Counted:
    from deniable.geography.grids import Counted

    totals, cells, parts = measured["places"][:3]
    sides, divided = (each.keys.column(0).to_numpy() for each in (totals, cells))
    return Counted(totals.values[0], sides, cells.values[0], divided, parts.values[0])


def _read_traces(measured: NoisyResults) -> Any:
    from deniable.geography.traces import TraceCounts

    return TraceCounts(_read_map(measured), *(each.values[0] for each in measured["places"][3:]))


def _tabulate_map(
    plan: PlacesPlan, measured: NoisyResults, confidence: float, nonnegative: bool
) -> tuple[pa.Table, dict[str, Any]]:
    import pyarrow as pa

    from deniable.geography.grids import EDGES, bound_errors, bound_leaves, estimate_map

    grid: Any = plan.measured
    found = estimate_map(grid, _read_map(measured))
    columns: dict[str, Any] = {plan.order.slots: _name_slots(plan, found.slot)} if plan.order.slots else {}
    columns |= {name: found.edges[:, place] for place, name in enumerate(EDGES)}
    columns |= _state_counts(found.points, found.deviations, bound_leaves(grid, found, confidence), nonnegative)
    totals = [
        {"slot": name, "count": float(total), "low": float(total - off), "high": float(total + off)}
        for name, total, off in zip(
            plan.slots, found.totals, bound_errors(found.total_deviations, confidence), strict=True
        )
    ]
    return pa.table(columns), {"totals": totals, "cells": len(found.points)}


def _state_counts(counts: Any, deviations: Any, off: Any, nonnegative: bool) -> dict[str, Any]:
    least = 0.0 if nonnegative else -math.inf
    told = {"count": counts, "count_low": counts - off, "count_high": counts + off}
    return {name: np.maximum(each, least) for name, each in told.items()} | {"deviation": deviations}


def _name_slots(plan: PlacesPlan, slot: Any) -> Any:
    import pyarrow as pa

    return pa.array(np.array(plan.slots, dtype=object)[slot], pa.string())


def _tabulate_flows(
    plan: PlacesPlan, measured: NoisyResults, confidence: float, nonnegative: bool
) -> tuple[pa.Table, dict[str, Any]]:
    import pyarrow as pa

    from deniable.geography.grids import EDGES, estimate_map, find_deviation
    from deniable.geography.traces import ENDS

    flows: Any = plan.measured
    found = estimate_map(flows.map, _read_map(measured))
    regions = flows.choose_regions(found)
    counts = measured["places"][3].values[0].astype(np.float64)
    slot, pair = np.divmod(np.arange(len(counts)), regions.count**2)
    origin, destination = np.divmod(pair, regions.count)
    middle, boxes = regions.find_middles(found), _list_boxes(regions)
    columns: dict[str, Any] = {plan.order.slots: _name_slots(plan, slot)} if plan.order.slots else {}
    for name, region in zip(ENDS, (origin, destination), strict=True):
        columns |= {name: region, f"{name}_latitude": middle[region, 0], f"{name}_longitude": middle[region, 1]}
        columns |= {f"{name}_{edge}": np.array(boxes)[region, place] for place, edge in enumerate(EDGES)}
    deviations = np.full(len(counts), find_deviation(flows.noise))
    columns |= _state_counts(counts, deviations, flows.noise.accuracy(1 - confidence), nonnegative)
    return pa.table(columns), {"regions": boxes}


def _tabulate_traces(plan: PlacesPlan, drawn: Any) -> pa.Table:
    import pyarrow as pa

    from deniable.geography.grids import turn_back

    person, step, region, places = drawn
    latitude, longitude = plan.order.at
    columns = {plan.unit.column: person, "step": step, "region": region, latitude: places[:, 0]}
    return pa.table(columns | {longitude: turn_back(places[:, 1])})


def _list_boxes(regions: Regions) -> list[list[float]]:
    return [[round(each, 6) for each in edges] for edges in regions.edges.tolist()]


def draw_cells(answer: PlacesAnswer) -> list[dict[str, float]]:
    """What a page draws, from the answer alone: a map as a raster of the part that holds nearly all of it.

    Of flows the regions, with the rows that begin there; of traces the points on such a raster.
    """
    from deniable.geography.grids import EDGES, paint_raster

    rows, details = answer.rows, answer.release.details
    if details["kind"] == "flows":
        boxes: Any = details["regions"]
        begun = np.bincount(rows["origin"].to_numpy(), rows["count"].to_numpy(), minlength=len(boxes))
        told = [(*box, round(count, 1)) for box, count in zip(boxes, begun.tolist(), strict=True)]
        return [dict(zip((*EDGES, "count"), each, strict=True)) for each in told]
    if details["kind"] == "traces":
        y, x = (rows[name].to_numpy() for name in rows.column_names[-2:])
        return paint_raster(np.column_stack([y, x, y + 1e-9, x + 1e-9]), np.ones(len(y)))
    counts = rows["count"].to_numpy()
    return paint_raster(_stack_edges(rows), counts, sure=counts > 3 * rows["deviation"].to_numpy())


def _stack_edges(rows: pa.Table) -> Any:
    from deniable.geography.grids import EDGES

    return np.column_stack([rows[name].to_numpy() for name in EDGES])


def write_places(context: Context, answer: PlacesAnswer, path: Path) -> None:
    """Write a map, flows or traces, with their statement: GeoJSON by its ending, or a table in any other format."""
    if path.suffix.lower() != GEOJSON:
        sql.write_answer(context, answer, path)
        return
    from deniable.geography.traces import collect_features
    from deniable.release import seal

    release = answer.release
    with still_charged() if answer.receipt is not None else nullcontext(), replace_files(path):
        drawn = collect_features(str(release.details["kind"]), answer.to_pylist(), answer.regions)
        write_whole(path, json.dumps(drawn, separators=(",", ":")).encode())
        sealed = seal(path, release.guarantee, release.provenance, release.details, key=find_signing_key(context))
        note_published(context, sealed, answer.receipt.release if answer.receipt is not None else "")
