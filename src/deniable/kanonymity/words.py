"""Privacy models in the words of a policy, both ways: what is asked becomes models, and models become words to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.models import (
    AverageRisk,
    BetaLikeness,
    Closeness,
    DeltaDisclosure,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    RecursiveDiversity,
)
from deniable.kanonymity.request import Condition
from deniable.policy.access import Anonymize
from deniable.policy.schema import Spec

KINDS: tuple[tuple[str, type[Any]], ...] = (
    ("k_anonymity", KAnonymity),
    ("k_map", KMap),
    ("distinct_diversity", DistinctDiversity),
    ("entropy_diversity", EntropyDiversity),
    ("recursive_diversity", RecursiveDiversity),
    ("closeness", Closeness),
    ("delta_presence", DeltaPresence),
    ("delta_disclosure", DeltaDisclosure),
    ("beta_likeness", BetaLikeness),
    ("average_risk", AverageRisk),
)
"""Every model with the name by which a policy and a recoding know it."""

_RENAMED = {("average_risk", "most"): "risk"}
_DEFAULTS: Mapping[str, dict[str, object]] = {"delta_presence": {"least": 0}}
_WANTED = {
    "Distance": "One of equal, ordered, hierarchical",
    "int": "A number",
    "float": "A number",
    "bool": "true or false",
}


def condition(spec: Spec) -> Condition:
    """The model that words mean.

    >>> str(condition(Spec("entropy_diversity", {"column": "diagnosis", "l": "3"})))
    'entropy 3-diversity of diagnosis'
    """
    for kind, model in KINDS:
        if kind == spec.kind:
            given = _DEFAULTS.get(kind, {}) | dict(spec.options)
            renamed = {_RENAMED.get((kind, name), name): value for name, value in given.items()}
            _refuse_lacking(kind, model, renamed)
            return model(**{name: _value(kind, model, name, value) for name, value in renamed.items()})  # type: ignore[no-any-return]
    known = [kind for kind, _ in KINDS]
    expected = f"One of {', '.join(known)}"
    raise ParameterError(
        f"There is no privacy model '{spec.kind}'", expected=expected, remedy=nearest(spec.kind, known)
    )


def _refuse_lacking(kind: str, model: type[Any], given: Mapping[str, object]) -> None:
    needed = [f.name for f in fields(model) if f.default is MISSING and f.default_factory is MISSING]
    if absent := [name for name in needed if name not in given]:
        said = {new: old for (of, old), new in _RENAMED.items() if of == kind}
        raise ParameterError(
            f"The privacy model '{kind}' lacks '{said.get(absent[0], absent[0])}'",
            expected=f"Options: {', '.join(said.get(f.name, f.name) for f in fields(model))}",
        )


def _value(kind: str, model: type[Any], name: str, value: object) -> object:
    kinds = {field.name: str(field.type) for field in fields(model)}
    if name not in kinds:
        expected = f"Options: {', '.join(kinds)}"
        raise ParameterError(f"The privacy model '{kind}' has no option '{name}'", expected=expected)
    if kinds[name] not in _READ:
        return value
    read, wanted = _READ[kinds[name]]
    try:
        return read(value)
    except (KeyError, ValueError, OverflowError):
        raise ParameterError(f"The option '{name}' of '{kind}' is '{value}'", expected=wanted) from None


def _truth(value: object) -> bool:
    return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[str(value).lower()]


_READ: Mapping[str, tuple[Callable[[Any], object], str]] = {
    "Distance": (lambda value: Distance(str(value)), "One of equal, ordered, hierarchical"),
    "int": (lambda value: math.ceil(float(value)), "A number"),
    "float": (float, "A number"),
    "bool": (_truth, "true or false"),
}
"""How an option of each type is read from words, and what it must be."""


def spelled(model: Condition) -> Spec:
    """The words that mean a model."""
    kind = next(kind for kind, known in KINDS if isinstance(model, known))
    given = {field.name: getattr(model, field.name) for field in fields(model)}  # type: ignore[arg-type]
    return Spec(kind, {name: str(v) if isinstance(v, Distance) else v for name, v in given.items()})


def conditions(asked: Anonymize, rows: int, distances: Mapping[str, Distance] | None = None) -> tuple[Condition, ...]:
    """The models that a policy's `anonymize:` means for a table of so many rows.

    A k-map whose population is given by its size alone is estimated: a class of n rows stands for n N / rows people, so
    it asks for classes of k rows / N.
    """
    models: list[Condition] = [KAnonymity(asked.k)]
    models += [DistinctDiversity(column, math.ceil(least)) for column, least in asked.l.items()]
    chosen = distances or {}
    models += [Closeness(column, float(t), chosen.get(column, Distance.EQUAL)) for column, t in asked.t.items()]
    for spec in asked.models:
        if spec.kind == "k_map" and spec.options.get("population"):
            needed = int(str(spec.options["k"])) * rows / int(str(spec.options["population"]))
            models.append(KAnonymity(max(1, math.ceil(needed))))
        else:
            models.append(condition(spec))
    return tuple(models)
