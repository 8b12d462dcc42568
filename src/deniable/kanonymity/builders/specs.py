"""Specifications of hierarchies: from those of a policy to builders, back to those that a recoding keeps, and drafts.

A draft is a first hierarchy for a column, to be read and corrected by whoever knows the data. It looks at the type, the
number of distinct values and the shape of text. It uses widths and lengths that people would choose (1, 2, 5 and their
tens), never edges at values of the data, so that the draft itself can be shown.

Builders of numbers and of public standards are loaded where a column needs one: many tables have neither."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.builders.categories import (
    Order,
    Prefix,
    Redact,
    Tree,
    Withhold,
    build_groups,
    parse_tree,
    read_tree,
)
from deniable.kanonymity.hierarchy import Hierarchy, text_of
from deniable.policy.schema import Column, Spec


class Builder(Protocol):
    """Turns the distinct values of a column into its hierarchy."""

    def hierarchy(self, column: str, values: pa.Array, /) -> Hierarchy:
        """The hierarchy over these distinct values."""


Options = Mapping[str, Any]


def _make_intervals(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import Intervals, Quantiles

    if options.get("quantiles"):
        return Quantiles(tuple(options["quantiles"]))
    return Intervals(tuple(options["widths"]), options.get("start") or 0)


def _make_brackets(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import AGES, Brackets

    if options.get("levels"):
        return Brackets(tuple(tuple(edges) for edges in options["levels"]))
    edges = options["edges"]
    return Brackets((tuple(AGES if edges == "ages" else edges),))


def _make_tree(options: Options) -> Builder:
    if "rows" in options:
        return Tree(tuple(tuple(row) for row in options["rows"]))
    if options.get("inline"):
        return parse_tree(options["inline"])
    return read_tree(Path(options["file"]), options.get("separator"))


def _make_redact(options: Options) -> Builder:
    side, put = options.get("from") or "right", options.get("put") or "*"
    return Redact(side, put, int(options.get("keep") or 0), int(options.get("width") or 0))


def _make_order(options: Options) -> Builder:
    if options.get("groups"):
        return build_groups(options["groups"])
    return Order(tuple(options["sizes"]), tuple(options.get("categories") or ()))


def _make_dates(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import Dates

    return Dates(tuple(options["levels"]))


def _make_coordinates(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import Coordinates

    return Coordinates(tuple(options["digits"]))


def _make_geohash(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import Geohash

    return Geohash(tuple(options["lengths"]))


def _make_rounding(options: Options) -> Builder:
    from deniable.kanonymity.builders.numbers import Rounding

    return Rounding(tuple(options["to"]))


def _make_standard(options: Options) -> Builder:
    from deniable.kanonymity.builders.library import Classification

    return Classification(str(options["name"]), tuple(options.get("levels") or ()), bool(options.get("other")))


BUILDERS: tuple[tuple[str, Callable[[Options], Builder]], ...] = (
    ("intervals", _make_intervals),
    ("brackets", _make_brackets),
    ("redact", _make_redact),
    ("prefix", lambda o: Prefix(tuple(o["lengths"]))),
    ("dates", _make_dates),
    ("order", _make_order),
    ("tree", _make_tree),
    ("standard", _make_standard),
    ("coordinates", _make_coordinates),
    ("geohash", _make_geohash),
    ("rounding", _make_rounding),
    ("withhold", lambda _: Withhold()),
)
"""Every kind of hierarchy with the builder it means; the names are those of the policy's grammar."""


def make_builder(spec: Spec) -> Builder:
    """The builder that a policy's `hierarchy:` means."""
    spec = _expand(spec)
    for kind, make in BUILDERS:
        if kind == spec.kind:
            tails = _list_tails(spec)
            _refuse_tails(kind, tails)
            return _code_tails(make(spec.options), tails) if tails else make(spec.options)
    known = [kind for kind, _ in BUILDERS]
    raise ParameterError(
        f"'{spec.kind}' is not a kind of hierarchy",
        expected=f"One of {', '.join(known)}",
        remedy=nearest(spec.kind, known),
    )


def _expand(spec: Spec) -> Spec:
    """A standard that is a name for a hierarchy of another kind, in that kind's words; others as they are."""
    if spec.kind != "standard":
        return spec
    from deniable.kanonymity.builders.library import expand_standard

    return expand_standard(spec)


def _list_tails(spec: Spec) -> dict[str, Any]:
    return {end: spec.options[end] for end in ("bottom", "top") if spec.options.get(end) is not None}


def _code_tails(built: Any, tails: Mapping[str, Any]) -> Builder:
    from deniable.kanonymity.builders.numbers import TailCoded

    return TailCoded(None if isinstance(built, Withhold) else built, **tails)


NUMBERS = ("intervals", "brackets", "rounding", "coordinates", "withhold")
"""Kinds of hierarchy whose lowest and highest values can be one."""


def _refuse_tails(kind: str, tails: Mapping[str, Any]) -> None:
    if tails and kind not in NUMBERS:
        raise ParameterError(
            f"A hierarchy of kind '{kind}' has no top or bottom number", expected=f"One of {', '.join(NUMBERS)}"
        )
    if len(tails) > 1 and tails["bottom"] >= tails["top"]:
        raise ParameterError(
            "The bottom of a hierarchy is not below its top",
            expected="A bottom below the top: what lies between is kept",
        )


def resolve_spec(column: Column, others: Mapping[str, Column]) -> Spec | None:
    """The hierarchy a policy declares for a column, that of another column where it says `like`."""
    spec = column.hierarchy
    if spec is not None and spec.kind == "like":
        return resolve_spec(others[str(spec.options["column"])], others)
    if spec is not None and spec.kind == "order" and column.categories and not spec.options.get("groups"):
        return Spec("order", {**spec.options, "categories": tuple(map(str, column.categories))})
    return spec


def freeze_spec(spec: Spec, built: Hierarchy, values: pa.Array) -> Spec:
    """The same hierarchy in words that no longer depend on the data, so that rows to come are recoded alike.

    Quantiles become the brackets they gave; groups by order become the tree they gave, unless their categories were
    declared. Everything else means the same for any value.
    """
    spec = _expand(spec)
    if not any(leaf is not None for leaf in built.leaves):
        return spec
    if spec.kind == "intervals" and spec.options.get("quantiles"):
        from deniable.kanonymity.builders.exact import read_numbers
        from deniable.kanonymity.builders.numbers import Quantiles, TailCoded

        tails = _list_tails(spec)
        inside = np.unique(TailCoded(None, **tails).clip(read_numbers(built.column, values)[1]))
        made = Quantiles(tuple(spec.options["quantiles"])).brackets(inside)  # type: ignore[arg-type]
        return Spec("brackets", {"levels": made.levels, **tails})
    if spec.kind == "redact":
        return Spec("redact", {**spec.options, "width": max((len(leaf or "") for leaf in built.leaves), default=0)})
    if spec.kind == "tree" or (spec.kind == "order" and not spec.options.get("categories")):
        return Spec("tree", {"rows": tuple(row for row in built.rows() if row[0] is not None)})
    return spec


FEW = 12
"""Up to so many distinct values a column is taken as categories."""


def draft_column(values: pa.Array, name: str = "") -> Spec:
    """A hierarchy for a column with these distinct values: a public standard where they fit one."""
    from deniable.kanonymity.builders.library import suggest_hierarchy

    kind = values.type
    if pa.types.is_dictionary(kind):
        return draft_column(pc.unique(values.dictionary_decode()), name)
    if (standard := suggest_hierarchy(values, name)) is not None:
        return standard
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _draft_dates(values)
    if pa.types.is_integer(kind) and _are_codes(values):
        return Spec("withhold", {})
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)) and len(values) > 2:
        return _draft_numbers(values)
    return _draft_text(text_of(values))


def _draft_dates(values: pa.Array) -> Spec:
    span = pc.min_max(pc.cast(values, pa.date32(), safe=False))
    years = (span["max"].as_py() or span["min"].as_py()).year - span["min"].as_py().year if len(values) else 0
    finer = ("day",) if pa.types.is_timestamp(values.type) else ()
    return Spec("dates", {"levels": (*finer, "month", "year", "decade") if years > 1 else (*finer, "month", "quarter")})


MOST_CODES = 20
LEAST_WIDTH = 1e-300
"""Of drafted intervals: smaller ones have no power of ten that is told apart from 0."""


def _are_codes(values: pa.Array) -> bool:
    """Whether whole numbers seem to count through kinds of something (0 or 1, 2, 3, ...): between two lies nothing."""
    span = pc.min_max(values)
    if not 2 < len(values) <= MOST_CODES or span["min"].as_py() not in (0, 1):
        return False
    return bool(span["max"].as_py() < 2 * len(values))


def _draft_numbers(values: pa.Array) -> Spec:
    numbers = values.filter(pc.is_finite(values)) if pa.types.is_floating(values.type) else values
    span = pc.min_max(numbers)
    width = float(span["max"].as_py() - span["min"].as_py() if span["max"].is_valid else 0) or 1.0
    width = width if math.isfinite(width) else 1e308
    finest = _round_width(max(width / 20, LEAST_WIDTH))
    if pa.types.is_integer(values.type):
        finest = max(finest, 1.0)  # nothing lies between two whole numbers
    return Spec("intervals", {"widths": (finest, finest * 2, finest * 4, finest * 8)})


def _round_width(width: float) -> float:
    """The largest of 1, 2, 5 times a power of ten that is not above a width."""
    power = 10.0 ** math.floor(math.log10(width))
    nice = max(step for step in (1, 2, 5) if step * power <= width * (1 + 1e-9)) * power
    return float(nice) if nice < 1 else float(int(nice))


def _share_form(values: list[str]) -> bool:
    """Whether values have the same signs between letters and digits, if they have any; dates of several forms do not.

    Codes of one form that begin alike lie near each other. Of several forms, that says nothing.
    """
    return len({frozenset(c for c in value if not c.isalnum()) for value in values} - {frozenset()}) < 2


def _draft_text(values: list[str]) -> Spec:
    lengths = {len(value) for value in values}
    coded = all(any(c.isdigit() for c in value) for value in values) and _share_form(values)
    if len(values) > 1 and len(lengths) == 1 and min(lengths) > 3 and coded:
        return Spec("redact", {"from": "right"})
    if len(values) > FEW and coded:
        return Spec("prefix", {"lengths": tuple(n for n in (5, 3, 1) if n < max(lengths))})
    return Spec("withhold", {})
