"""SynthModel: all that is needed to draw rows, and all that was learned, in one JSON file that holds no row.

Its `Description` is what a method learned of the coded table: public, whatever the method. A model file is data, never
code: numbers, texts and lists, checked when they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from deniable.dp.accounting import Event, GaussianEvent, from_dict, to_dict
from deniable.errors import DataError, DeniableError, IntegrityError, ParameterError
from deniable.policy.budget import read_rational
from deniable.policy.schema import ColumnType, Spec
from deniable.storage import write_whole
from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Attribute, Bins, Domain, Labels, ShapedText, Surrogate, build_domain, equal_cuts
from deniable.synth.estimate import Estimates
from deniable.synth.estimate.residuals import Residuals, compute_collapsed_residuals
from deniable.synth.marginal import Marginal
from deniable.synth.model_check import check_attributes, check_described, check_truths

FITTED_METHODS = frozenset({"hierarchical"})
"""Methods whose tables were fitted to one another before they are reported: their errors are no longer independent."""


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What was learned of a coded table: public. The event is what it cost."""

    method: str
    domain: Domain
    collapsed: CollapsedDomain
    one_way: tuple[Marginal, ...]
    cliques: tuple[Marginal, ...]
    """Of two columns or more, over the collapsed domain."""
    estimates: Estimates
    event: Event
    reason: str = ""
    """Why these cliques."""

    @property
    def residuals(self) -> Residuals | None:
        """All that was measured over joined values, joined; none where its errors are not independent."""
        fitted = self.method in FITTED_METHODS
        return None if fitted else compute_collapsed_residuals(self.collapsed, self.one_way, self.cliques)


FORM = "deniable synthetic model, version 3"
SECOND = "deniable synthetic model, version 2"
"""Knew equal bins only; still read."""
FIRST = "deniable synthetic model, version 1"
"""Knew pairs only, called them so, and gave no reason; still read."""
LINKED = "deniable linked model, version 1"
FAMILY = "deniable family model, version 1"
"""The forms of models of people with their rows, in one table or in several (`linked`)."""


@dataclass(frozen=True, slots=True, eq=False)
class SynthModel:
    """Attributes of the table, and the description of the coded ones."""

    table: str
    attributes: tuple[Attribute, ...]
    description: Description
    truths: tuple[Spec, ...] = ()
    """Public rules that drawn rows keep exactly."""


def write_bytes(model: SynthModel) -> bytes:
    """A model as bytes that may be stored: all of it is public."""
    return json.dumps(to_plain(model), separators=(",", ":")).encode()


def read_bytes(stored: bytes) -> SynthModel:
    """The model in stored bytes."""
    return from_plain(json.loads(stored))


def save(model: SynthModel, path: str | Path) -> None:
    """Write a model file, whole or not at all."""
    write_whole(Path(path), json.dumps(to_plain(model), separators=(",", ":")).encode())


def load(path: str | Path) -> SynthModel:
    """Read a model file; anything that is not one is refused."""
    path = Path(path)
    with refuse_other_files(path):
        held = json.loads(path.read_text(encoding="utf-8"))
        if held["form"] not in (LINKED, FAMILY):
            return from_plain(held)
    raise ParameterError(f"'{path.name}' is a model of people with their rows", remedy="Draw them: generate")


UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
              AssertionError, DeniableError)  # fmt: skip
"""How reading ends of a file that is no model, or was changed."""


@contextmanager
def refuse_other_files(path: Path) -> Iterator[None]:
    """Whatever goes wrong in reading means that the file is no model of ours."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file '{path.name}'", remedy="Name a model that was written before") from None
    except UNREADABLE:
        raise IntegrityError(
            f"'{path.name}' is not a model of ours, or was changed", remedy="Describe the table again"
        ) from None


# a dictionary: the model's file, which `from_plain` reads back
def to_plain(model: SynthModel) -> dict[str, Any]:
    """A model as plain values."""
    d = model.description
    return {
        "form": FORM,
        "table": model.table,
        "attributes": [attribute_to_plain(attribute) for attribute in model.attributes],
        "truths": constraints_to_plain(model.truths),
        "method": d.method,
        "columns": [_marginal_to_plain(marginal) for marginal in d.one_way],
        "collapsed": [mapping.tolist() for mapping in d.collapsed.maps],
        "ordered": sorted(d.domain.ordered),
        "given": sorted(d.domain.given),
        "reason": d.reason,
        "cliques": [
            {"clique": m.clique, "shape": m.counts.shape, "groups": m.maps, **_marginal_to_plain(m)} for m in d.cliques
        ],
        "estimates": {
            "total": d.estimates.total,
            "noise": d.estimates.noise,
            "columns": [_round_values(column) for column in d.estimates.columns],
            "cliques": [_round_values(d.estimates.tables[m.clique]) for m in d.cliques],
            "further": [
                {"clique": list(clique), "shape": list(table.shape), "counts": _round_values(table)}
                for clique, table in d.estimates.tables.items()
                if all(clique != m.clique for m in d.cliques)
            ],
        },
        "event": to_dict(d.event),
    }  # fmt: skip


def _marginal_to_plain(marginal: Marginal) -> dict[str, Any]:
    counts = _round_values(marginal.counts)
    return {"counts": counts, "variance": marginal.variance, "event": to_dict(marginal.event)}


def from_plain(held: dict[str, Any]) -> SynthModel:
    """The model that plain values stand for."""
    held = _upgrade_form(held)
    attributes = tuple(attribute_from_plain(entry) for entry in held["attributes"])
    check_attributes(attributes, held["attributes"])
    coded = [attribute for attribute in attributes if not isinstance(attribute, Surrogate)]
    ordered, given = frozenset(held["ordered"]), frozenset(held.get("given", ()))
    domain = build_domain(coded, ordered, given)
    one_way = tuple(
        Marginal((place,), np.array(c["counts"], dtype=np.float64), float(c["variance"]), _parse_event(c["event"]))
        for place, c in enumerate(held["columns"])
    )
    maps = tuple(np.array(mapping, dtype=np.int32) for mapping in held["collapsed"])
    if len(one_way) not in (0, len(domain)) or any(m.size != s for m, s in zip(maps, domain.sizes, strict=True)):
        raise ValueError
    collapsed = CollapsedDomain(domain.resize(tuple(int(m.max()) + 1 for m in maps)), maps)
    check_described(held, domain, collapsed.domain)
    cliques = tuple(
        Marginal(
            tuple(p["clique"]),
            np.array(p["counts"], dtype=np.float64).reshape(p["shape"]),
            float(p["variance"]),
            _parse_event(p["event"]),
            tuple(tuple(int(group) for group in groups) for groups in p.get("groups", [])),
        )
        for p in held["cliques"]
    )
    told = held["estimates"]
    tables = {
        m.clique: np.array(v, dtype=np.float64).reshape(collapsed.domain.shape(m.clique))
        for m, v in zip(cliques, told["cliques"], strict=True)
    }
    tables |= {tuple(t["clique"]): np.array(t["counts"]).reshape(t["shape"]) for t in told.get("further", [])}
    columns = tuple(np.array(column, dtype=np.float64) for column in told["columns"])
    estimates = Estimates(float(told["total"]), columns, tables, float(told["noise"]))
    event, reason = from_dict(held["event"]), str(held["reason"])
    description = Description(held["method"], domain, collapsed, one_way, cliques, estimates, event, reason)
    truths = constraints_from_plain(held["truths"], coded)
    return SynthModel(held["table"], attributes, description, truths)


def _upgrade_form(held: dict[str, Any]) -> dict[str, Any]:
    """The same in the present form."""
    if held["form"] == FIRST:
        estimates = {**held["estimates"], "cliques": held["estimates"]["pairs"]}
        held = {**held, "form": SECOND, "reason": "", "cliques": held["pairs"], "estimates": estimates}
    if held["form"] == SECOND:
        return {**held, "form": FORM, "attributes": [_add_cuts(entry) for entry in held["attributes"]]}
    if held["form"] != FORM:
        raise ValueError
    return held


def _add_cuts(entry: dict[str, Any]) -> dict[str, Any]:
    if entry["kind"] != "bins":
        return entry
    return {**entry, "cuts": equal_cuts(int(entry["steps"]), int(entry["bins"]))}


def _parse_cuts(held: Any) -> tuple[int, ...]:
    cuts = tuple(int(cut) for cut in held)
    if cuts[0] != 0 or any(after <= before for before, after in pairwise(cuts)):
        raise ValueError
    return cuts


# a dictionary: a part of the model's file
def constraints_to_plain(truths: Iterable[Spec]) -> list[dict[str, Any]]:
    """Truths as plain values."""
    return [{"kind": truth.kind, "options": _value_to_plain(truth.options)} for truth in truths]


def constraints_from_plain(held: Iterable[dict[str, Any]], *tables: Sequence[Attribute]) -> tuple[Spec, ...]:
    """The truths that plain values stand for, checked against the columns of each table that they may speak of."""
    truths = tuple(Spec(entry["kind"], dict(entry["options"])) for entry in held)
    for attributes in tables:
        check_truths(truths, attributes)
    return truths


def _value_to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _value_to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value_to_plain(item) for item in value]
    return str(value) if isinstance(value, Fraction | date) else value  # read by the column's type


def _parse_event(entry: dict[str, Any]) -> GaussianEvent:
    event = from_dict(entry)
    if not isinstance(event, GaussianEvent):
        raise ValueError
    return event


def _round_values(values: Any) -> list[float]:
    return [round(float(value), 3) for value in np.asarray(values).ravel()]


# a dictionary: a part of the model's file, with other fields for each kind
def attribute_to_plain(attribute: Attribute) -> dict[str, Any]:
    """An attribute as plain values."""
    match attribute:
        case Labels(name, kind, labels, nullable):
            return {"kind": "labels", "name": name, "type": kind.value, "labels": list(labels), "nullable": nullable}
        case Bins(name, kind, lower, step, cuts, nullable):
            return {
                "kind": "bins",
                "name": name,
                "type": kind.value,
                "lower": str(lower),
                "step": str(step),
                "cuts": list(cuts),
                "nullable": nullable,
            }
        case ShapedText(name, kind, shapes, nullable):
            return {"kind": "shapes", "name": name, "type": kind.value, "shapes": list(shapes), "nullable": nullable}
        case Surrogate(name, kind, prefix):
            return {"kind": "made", "name": name, "type": kind.value, "prefix": prefix}


def attribute_from_plain(entry: dict[str, Any]) -> Attribute:
    """The attribute that plain values stand for."""
    kind = ColumnType(entry["type"])
    match entry["kind"]:
        case "labels":
            return Labels(entry["name"], kind, tuple(entry["labels"]), bool(entry["nullable"]))
        case "bins":
            return Bins(
                entry["name"],
                kind,
                read_rational(entry["lower"]),
                read_rational(entry["step"]),
                _parse_cuts(entry["cuts"]),
                bool(entry["nullable"]),
            )
        case "shapes":
            return ShapedText(entry["name"], kind, tuple(map(str, entry["shapes"])), bool(entry["nullable"]))
        case "made":
            return Surrogate(entry["name"], kind, entry["prefix"])
        case _:
            raise ValueError
