"""From the words of a policy to builders, and back to words that a saved recoding keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.builders.categories import Order, Tree, Withhold, grouped, nested, read_tree
from deniable.kanonymity.builders.dates import Dates
from deniable.kanonymity.builders.numbers import AGES, Brackets, Intervals, Quantiles, Rounding, TailCoded
from deniable.kanonymity.builders.places import Coordinates, Geohash
from deniable.kanonymity.builders.strings import Prefix, Redact
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.policy.schema import Column, Spec


class Builder(Protocol):
    """Turns the distinct values of a column into its hierarchy."""

    def hierarchy(self, column: str, values: pa.Array, /) -> Hierarchy:
        """The hierarchy over these distinct values."""


Options = Mapping[str, Any]


def _floats(numbers: Sequence[Any]) -> tuple[float, ...]:
    return tuple(float(n) for n in numbers)


def _intervals(options: Options) -> Builder:
    if options.get("quantiles"):
        return Quantiles(tuple(options["quantiles"]))
    return Intervals(_floats(options["widths"]), float(options.get("start") or 0))


def _brackets(options: Options) -> Builder:
    if options.get("levels"):
        return Brackets(tuple(_floats(edges) for edges in options["levels"]))
    edges = options["edges"]
    return Brackets((_floats(AGES if edges == "ages" else edges),))


def _tree(options: Options) -> Builder:
    if options.get("rows"):
        return Tree(tuple(tuple(row) for row in options["rows"]))
    if options.get("inline"):
        return nested(options["inline"])
    return read_tree(Path(options["file"]), options.get("separator"))


def _redact(options: Options) -> Builder:
    side, put = options.get("from") or "right", options.get("put") or "*"
    return Redact(side, put, int(options.get("keep") or 0), int(options.get("width") or 0))


def _order(options: Options) -> Builder:
    if options.get("groups"):
        return grouped(options["groups"])
    return Order(tuple(options["sizes"]), tuple(options.get("categories") or ()))


BUILDERS: tuple[tuple[str, Callable[[Options], Builder]], ...] = (
    ("intervals", _intervals),
    ("brackets", _brackets),
    ("redact", _redact),
    ("prefix", lambda o: Prefix(tuple(o["lengths"]))),
    ("dates", lambda o: Dates(tuple(o["levels"]))),
    ("order", _order),
    ("tree", _tree),
    ("coordinates", lambda o: Coordinates(tuple(o["digits"]))),
    ("geohash", lambda o: Geohash(tuple(o["lengths"]))),
    ("rounding", lambda o: Rounding(_floats(o["to"]))),
    ("withhold", lambda _: Withhold()),
)
"""Every kind of hierarchy with the builder it means; the names are those of the policy's grammar."""


def builder(spec: Spec) -> Builder:
    """The builder that a policy's `hierarchy:` means."""
    for kind, make in BUILDERS:
        if kind == spec.kind:
            tails = {end: float(spec.options[end]) for end in ("bottom", "top") if spec.options.get(end) is not None}  # type: ignore[arg-type]
            return TailCoded(make(spec.options), **tails) if tails else make(spec.options)
    known = [kind for kind, _ in BUILDERS]
    raise ParameterError(
        f"'{spec.kind}' is no kind of hierarchy",
        expected=f"One of {', '.join(known)}",
        remedy=nearest(spec.kind, known),
    )


def declared(column: Column, others: Mapping[str, Column]) -> Spec | None:
    """The hierarchy a policy declares for a column, that of another column where it says `like`."""
    spec = column.hierarchy
    if spec is not None and spec.kind == "like":
        return declared(others[str(spec.options["column"])], others)
    if spec is not None and spec.kind == "order" and column.categories and not spec.options.get("groups"):
        return Spec("order", {**spec.options, "categories": tuple(map(str, column.categories))})
    return spec


def fixed(spec: Spec, built: Hierarchy, values: pa.Array) -> Spec:
    """The same hierarchy in words that no longer depend on the data, so that rows to come are recoded alike.

    Quantiles become the brackets they gave; groups by order become the tree they gave, unless their categories were
    declared. Everything else means the same for any value.
    """
    if spec.kind == "intervals" and spec.options.get("quantiles"):
        made = Quantiles(tuple(spec.options["quantiles"])).brackets(built.column, values)  # type: ignore[arg-type]
        return Spec("brackets", {"levels": made.levels})
    if spec.kind == "redact":
        return Spec("redact", {**spec.options, "width": max((len(leaf or "") for leaf in built.leaves), default=0)})
    if spec.kind == "tree" or (spec.kind == "order" and not spec.options.get("categories")):
        return Spec("tree", {"rows": tuple(row for row in built.rows() if row[0] is not None)})
    return spec
