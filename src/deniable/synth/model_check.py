"""What a model file must be, before anything is made of it: types, lengths, and numbers that counts can be.

Everything raises `ValueError`, of which the reader makes a refusal: the file is not a model of ours, or was changed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from deniable.synth.domain import LARGEST, Attribute, Domain, Labels, ShapedText, Surrogate, arrow_type
from deniable.synth.encode import convert_steps


def check_attributes(attributes: Sequence[Attribute], held: Iterable[Mapping[str, Any]]) -> None:
    """Names that differ, labels of the column's type that differ, and texts where texts belong."""
    _require(len({attribute.name for attribute in attributes}) == len(attributes) > 0)
    for attribute, entry in zip(attributes, held, strict=True):
        _require(isinstance(attribute.name, str) and isinstance(entry.get("nullable", False), bool))
        match attribute:
            case Labels(_, _, labels):
                _require(0 < len(labels) == len({(type(label), label) for label in labels}))
                _require(pa.array(labels, arrow_type(attribute)).null_count == 0)
            case ShapedText():
                _require(_is_list(entry["shapes"]) and all(isinstance(shape, str) for shape in entry["shapes"]))
            case Surrogate(_, _, prefix):
                _require(isinstance(prefix, str))
            case _:
                _check_whole(entry["cuts"], LARGEST)
                _require(attribute.step > 0 and len(attribute.cuts) > 1)
                last = attribute.lower + (attribute.steps - 1) * attribute.step
                width = (last - attribute.lower) * attribute.step.denominator
                _require(max(abs(attribute.lower), abs(last), width) <= LARGEST)
                ends = np.array([0, attribute.steps - 1], dtype=np.int64)
                convert_steps(attribute, ends, np.zeros(2, dtype=bool)).to_pylist()  # raises for what is no date


def check_described(held: Mapping[str, Any], domain: Domain, joined: Domain) -> None:
    """All that was measured and estimated, of a domain and of the same with rare values joined."""
    _require(all(isinstance(held[name], str) for name in ("table", "method", "reason")))
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
        _check_counts(column, size)
    for counts, entry in zip(held["cliques"], cliques, strict=True):
        _check_counts(counts, joined.cells(tuple(entry["clique"])))
    for entry in held.get("further", []):
        shape = _check_clique(entry["clique"], joined)
        _require(tuple(entry["shape"]) == shape)
        _check_counts(entry["counts"], math.prod(shape))


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
