"""What a model file must be, before anything is made of it: types, lengths, and numbers that counts can be.

Everything raises `ValueError`, of which the reader makes a refusal: the file is not a model of ours, or was changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from deniable.policy.release_settings import PARTS, find_wrong_types
from deniable.policy.schema import Column, Spec
from deniable.synth.constraints import ConstraintEngine, select_constraints
from deniable.synth.domain import LARGEST, Attribute, Domain, Labels, ShapedText, Surrogate, arrow_type
from deniable.synth.encode import convert_steps


def check_attributes(attributes: Sequence[Attribute], held: Iterable[Mapping[str, Any]]) -> None:
    """Names that differ, labels of the column's type that differ, and texts where texts belong."""
    _require(len({attribute.name for attribute in attributes}) == len(attributes) > 0)
    for attribute, entry in zip(attributes, held, strict=True):
        check_text(attribute.name)
        _require(isinstance(entry.get("nullable", False), bool))
        match attribute:
            case Labels(_, _, labels):
                _require(0 < len(labels) == len({(type(label), label) for label in labels}))
                _require(pa.array(labels, arrow_type(attribute)).null_count == 0)
            case ShapedText():
                _require(_is_list(entry["shapes"]))
                for shape in entry["shapes"]:
                    check_text(shape)
            case Surrogate(_, _, prefix):
                check_text(prefix)
            case _:
                _check_whole(entry["cuts"], LARGEST)
                _require(attribute.step > 0 and len(attribute.cuts) > 1)
                last = attribute.lower + (attribute.steps - 1) * attribute.step
                width = (last - attribute.lower) * attribute.step.denominator
                _require(max(abs(attribute.lower), abs(last), width) <= LARGEST)
                ends = np.array([0, attribute.steps - 1], dtype=np.int64)
                convert_steps(attribute, ends, np.zeros(2, dtype=bool)).to_pylist()  # raises for what is no date


def check_truths(truths: Sequence[Spec], attributes: Sequence[Attribute]) -> None:
    """Truths as a policy has them, which the columns that they speak of can keep."""
    for truth in truths:
        options: Mapping[str, Any] = truth.options
        _require(truth.kind in PARTS and options.keys() >= PARTS[truth.kind])
        for part in {"from", "to", "parts", "columns"} & options.keys():
            _require(_is_list(options[part]) and len(options[part]) > 0)
            for name in options[part]:
                check_text(name)
        for part in {"total", "condition"} & options.keys():
            check_text(options[part])
        _require(isinstance(options.get("strict", False), bool))
        if truth.kind == "impossible":
            _check_impossible(options["when"])
    columns = [Column(attribute.name, attribute.type) for attribute in attributes]
    for truth in select_constraints(truths, [column.name for column in columns]):
        _require(not find_wrong_types(truth, columns))
    ConstraintEngine(truths, attributes)


def _check_impossible(when: Any) -> None:
    _require(isinstance(when, Mapping) and len(when) > 0)
    for values in when.values():
        for value in values if _is_list(values) else [values]:
            _require(type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value)))


def check_text(held: Any) -> None:
    """A text that can be written."""
    _require(isinstance(held, str) and "\0" not in held)
    held.encode()  # raises for half a sign


def check_described(held: Mapping[str, Any], domain: Domain, joined: Domain) -> None:
    """All that was measured and estimated, of a domain and of the same with rare values joined."""
    for name in ("table", "method", "reason"):
        check_text(held[name])
    for name in ("ordered", "given"):
        _check_whole(held.get(name, ()), len(domain))
    for column, size in zip(held["columns"], domain.sizes, strict=bool(held["columns"])):
        _check_measured(column, size)
    for mapping in held["collapsed"]:
        _check_whole(mapping, len(mapping))
        _require(set(mapping) == set(range(max(mapping) + 1)))
    for entry in held["cliques"]:
        shape = _check_clique(entry["clique"], joined)
        if groups := entry.get("groups"):
            for own, size in zip(groups, shape, strict=True):
                _check_whole(own, size)
                _require(len(own) == size)
            shape = tuple(max(own) + 1 for own in groups)
        _require(tuple(entry["shape"]) == shape)
        _check_measured(entry, math.prod(shape))
    _check_estimates(held["estimates"], held["cliques"], joined)


def _check_estimates(held: Mapping[str, Any], cliques: Sequence[Mapping[str, Any]], joined: Domain) -> None:
    _check_counts([held["total"], held["noise"]], 2)
    _require(held["total"] < LARGEST)
    for column, size in zip(held["columns"], joined.sizes, strict=True):
        _check_shares(column, size)
    for counts, entry in zip(held["cliques"], cliques, strict=True):
        _check_shares(counts, joined.cells(tuple(entry["clique"])))
    for entry in held.get("further", []):
        shape = _check_clique(entry["clique"], joined)
        _require(tuple(entry["shape"]) == shape)
        _check_shares(entry["counts"], math.prod(shape))


def _check_clique(clique: Any, domain: Domain) -> tuple[int, ...]:
    _check_whole(clique, len(domain))
    _require(len(clique) > 0 and all(before < after for before, after in pairwise(clique)))
    return domain.shape(tuple(clique))


def _check_measured(held: Mapping[str, Any], size: int) -> None:
    _check_numbers(held["counts"], size)
    _check_numbers([held["variance"]], 1)
    _require(held["variance"] > 0)


def _check_counts(held: Any, size: int) -> None:
    _check_numbers(held, size)
    _require(min(held, default=0) >= 0)


def _check_shares(held: Any, size: int) -> None:
    """Counts of which records can be drawn."""
    _check_counts(held, size)
    _require(sum(held) > 1e-9)


def _check_numbers(held: Any, size: int) -> None:
    _require(_is_list(held) and len(held) == size)
    _require(all(type(value) in (int, float) and math.isfinite(value) and abs(value) < LARGEST for value in held))


def _check_whole(held: Any, below: int) -> None:
    _require(_is_list(held) and all(type(value) is int and 0 <= value <= below for value in held))


def _is_list(held: Any) -> bool:
    return isinstance(held, list | tuple)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError
