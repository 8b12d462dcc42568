"""The plan: what happens to each column of a table, decided from the policy and the file's columns before any row.

A column that the policy does not declare is not released: a file may have grown a column since the policy was written.
An identifier without a mask is refused. Every key that the plan needs is opened here, so that a missing or wrong key
stops the work before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from deniable.errors import AccessRefused, DataError, ParameterError, nearest
from deniable.masking import format_preserving, generalization, perturbation, pseudonyms, replacement, vault
from deniable.masking.keys import Key
from deniable.masking.perturbation import Projection
from deniable.masking.text_search import Span
from deniable.policy.layout.masks import MASKS
from deniable.policy.schema import Column, Role, Spec, TableSchema, is_hidden, is_removed


class Mask(Protocol):
    """What every mask of one column can do."""

    def apply(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        """The masked column; `rows` is the whole batch, for masks that look at other columns."""


OpenKey = Callable[[str], Key]


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One released column: its mask in the policy's words, and the deed."""

    name: str
    spec: Spec | None
    mask: Mask | None = field(repr=False, default=None)

    @property
    def described(self) -> str:
        """The mask as reports show it; the name of its key, never the key."""
        if self.spec is None:
            return "kept as it is"
        options = ", ".join(f"{name}: {value}" for name, value in self.spec.options.items())
        return f"{self.spec.kind} ({options})" if options else self.spec.kind


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table: its columns, those that stay behind, and the projection of several into one."""

    table: str
    columns: tuple[ColumnPlan, ...]
    withheld: tuple[str, ...] = ()
    projection: Projection | None = None
    unit: str | None = None

    @property
    def described(self) -> dict[str, str]:
        """The mask of each released column in words."""
        return {column.name: column.described for column in self.columns}

    @property
    def knowable(self) -> list[str]:
        """Released columns of which somebody may know a value from elsewhere."""
        return [each.name for each in self.columns if not is_hidden(each.spec)]

    @property
    def linking(self) -> list[str]:
        """Columns that nobody knows, and by whose equal values rows are still seen to belong together, as tokens."""
        return [each.name for each in self.columns if is_hidden(each.spec) and not is_removed(each.spec)]

    @property
    def masks(self) -> dict[str, Spec | None]:
        """The mask of each released column."""
        return {column.name: column.spec for column in self.columns}


@dataclass(frozen=True, slots=True)
class MaskContext:
    """What masks are built from: how keys are opened, where the policy's relative paths begin, the year of release,
    and a searcher of free text beside our own, if one is wanted.
    """

    open_key: OpenKey
    folder: Path
    year: int = 0
    searcher: Callable[[Sequence[str]], list[list[Span]]] | None = None


def specs_of(schema: TableSchema, present: Sequence[str], only: Sequence[str] | None = None) -> dict[str, Spec | None]:
    """The masks of the columns that will be released, in the file's order; an identifier without one is refused."""
    _require_declared(schema, present)
    for name in only or ():
        if name not in schema.names:
            remedy = nearest(name, schema.names)
            raise ParameterError(f"'{name}' is not a column of '{schema.name}'", remedy=remedy, column=name)
    released = {}
    for name in present:
        column = schema.column(name)
        if column is not None and (only is None or name in only):
            released[name] = column.mask
    return released


def require_masks(schema: TableSchema, masks: Mapping[str, Spec | None]) -> None:
    """Refuse an identifier that would leave as it is."""
    for name, mask in masks.items():
        column = schema.column(name)
        if mask is None and column is not None and column.role is Role.IDENTIFIER:
            raise ParameterError(
                f"column '{name}' of '{schema.name}' is an identifier and has no mask",
                remedy=f"Give it one in the policy, such as {name}: {{role: identifier, mask: redact}}",
                table=schema.name,
                column=name,
            )


def plan_table(
    schema: TableSchema, present: Sequence[str], masks: Mapping[str, Spec | None], context: MaskContext
) -> TablePlan:
    """The plan of one table for the masks given."""
    require_masks(schema, masks)
    _require_one_bound(schema.name, masks)
    projected = _projection(schema, masks, context)
    gone = set(projected.columns) if projected else set()
    columns = tuple(
        ColumnPlan(name, spec, build_mask(spec, schema, name, context) if spec else None)
        for name, spec in masks.items()
        if name not in gone
    )
    unit = schema.unit.column if schema.unit else None
    withheld = tuple(name for name in present if name not in masks)
    return TablePlan(schema.name, columns, withheld, projected, unit)


def _require_one_bound(table: str, masks: Mapping[str, Spec | None]) -> None:
    """Refuse two bounds of shifted dates under one key: a person would have two offsets, which give each other away."""
    bounds: dict[object, object] = {}
    for spec in masks.values():
        if spec is not None and spec.kind == "shift_dates":
            days = spec.options.get("days", perturbation.DAYS)
            if bounds.setdefault(spec.options.get("key"), days) != days:
                raise ParameterError(
                    f"dates of '{table}' are to be shifted by two bounds under one key",
                    expected="One `days` for all dates that one key shifts",
                    remedy="Write the same days, or use another key",
                )


def build_mask(spec: Spec, schema: TableSchema, column: str, context: MaskContext) -> Mask:
    """The mask that a Spec means on a column."""
    if spec.kind == "hash":
        raise ParameterError(
            f"column '{column}' asks for a plain hash, which a dictionary of guesses turns back",
            expected="A keyed mask: token, format_preserving or codebook",
            remedy=f"Write {column}: {{mask: {{token: {{key: people}}}}}}",
            column=column,
        )
    if spec.kind not in MASKERS:
        known = sorted(MASKERS)
        raise ParameterError(
            f"there is no mask '{spec.kind}'", expected=f"One of {', '.join(known)}", remedy=nearest(spec.kind, known)
        )
    _check_options(spec, column)
    return MASKERS[spec.kind](spec.options, schema, context)


Options = Mapping[str, object]
Builder = Callable[[Options, TableSchema, MaskContext], Mask]


def _redact(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    return replacement.Redact(
        str(options.get("put", replacement.PUT)), _whole(options, "keep_first", 0), _whole(options, "keep_last", 0)
    )


def _constant(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    return replacement.Constant(options["value"])


def _codebook(options: Options, _schema: TableSchema, context: MaskContext) -> Mask:
    path = context.folder / str(options["vault"])
    vault.refuse_shared(path)
    key = context.open_key(str(options["key"]))
    length = _whole(options, "length", vault.LENGTH)
    normalize = str(options["normalize"]) if "normalize" in options else None
    domain, prefix = str(options.get("domain", key.name)), str(options.get("prefix", ""))
    return vault.Codebook(path, key, domain, length, prefix, normalize)


def _regex(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    if "preset" in options:
        return replacement.make_preset(str(options["preset"]), str(options.get("unmatched", "redact")))
    return replacement.Rewrite(str(options["find"]), str(options["put"]), str(options.get("unmatched", "keep")))


def _scrub(options: Options, schema: TableSchema, context: MaskContext) -> Mask:
    put = options.get("put")
    own = {each.name for each in schema.with_role(Role.IDENTIFIER)} | {schema.unit.column if schema.unit else None}
    named = tuple(name for name in schema.names if name in own)
    return replacement.Scrub(_names(options, "find"), None if put is None else str(put), context.searcher, named)


def _token(options: Options, _schema: TableSchema, context: MaskContext) -> Mask:
    key = context.open_key(str(options["key"]))
    length = _whole(options, "length", pseudonyms.LENGTH)
    normalize = str(options.get("normalize", key.normalize))
    return pseudonyms.make_token_mask(key, str(options.get("domain", key.name)), length, normalize=normalize)


def _format_preserving(options: Options, _schema: TableSchema, context: MaskContext) -> Mask:
    key = context.open_key(str(options["key"]))
    return format_preserving.make_format_mask(key, str(options.get("domain", key.name)), options.get("check") == "luhn")


def _fake(options: Options, _schema: TableSchema, context: MaskContext) -> Mask:
    return pseudonyms.make_fake_mask(context.open_key(str(options["key"])), str(options["kind"]))


def _shift(options: Options, schema: TableSchema, context: MaskContext) -> Mask:
    by = options.get("by") or (schema.unit.column if schema.unit else None)
    if not by:
        raise ParameterError(
            f"dates of '{schema.name}' are to be shifted by person, and nothing says who a row's person is",
            remedy="Name the column: {shift_dates: {key: people, by: patient_id}}, or declare the table's unit",
        )
    return perturbation.make_date_shift(
        context.open_key(str(options["key"])), str(by), _whole(options, "days", perturbation.DAYS)
    )


def _generalize(options: Options, _schema: TableSchema, context: MaskContext) -> Mask:
    match str(options["to"]):
        case "age_over_89":
            return generalization.AgeOver89()
        case "zip3":
            return generalization.Zip3()
        case _:
            return generalization.Year(context.year)


def _round(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    return generalization.Round(_amount(options["to"]))


def _noise(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    return perturbation.Noise(_amount(options["scale"]), str(options.get("shape", "gaussian")))


def _shuffle(options: Options, _schema: TableSchema, _shop: MaskContext) -> Mask:
    return perturbation.Shuffle(_names(options, "within"))


MASKERS: Mapping[str, Builder] = {
    "redact": _redact,
    "nullify": lambda _options, _schema, _shop: replacement.Nullify(),
    "constant": _constant,
    "codebook": _codebook,
    "regex": _regex,
    "scrub": _scrub,
    "token": _token,
    "format_preserving": _format_preserving,
    "fake": _fake,
    "shift_dates": _shift,
    "generalize": _generalize,
    "round": _round,
    "noise": _noise,
    "shuffle": _shuffle,
    "projection": lambda _options, _schema, _shop: replacement.Nullify(),  # the table's plan projects; see _projection
}
"""How each kind of the policy's grammar is built; a test holds the two lists equal."""


def _projection(schema: TableSchema, masks: Mapping[str, Spec | None], context: MaskContext) -> Projection | None:
    asked = [(name, spec) for name, spec in masks.items() if spec is not None and spec.kind == "projection"]
    if not asked:
        return None
    if len(asked) > 1:
        raise ParameterError(
            f"'{schema.name}' asks for {len(asked)} projections", expected="One, naming the columns projected together"
        )
    name, spec = asked[0]
    names = tuple(dict.fromkeys((name, *_names(spec.options, "columns"))))
    for each in names:
        if each not in masks:
            raise AccessRefused(
                f"the projection of '{name}' carries '{each}' of '{schema.name}', which may not leave or was not named",
                expected=f"All of its columns are released: {', '.join(names)}",
                remedy=f"Leave out '{name}', or let '{each}' out as well",
                column=name,
            )
    bounds = tuple(_bounds(schema, each) for each in names)
    dimensions = _whole(spec.options, "dimensions", len(names))
    noise = float(_amount(spec.options.get("scale", 0)))
    return perturbation.make_projection(context.open_key(str(spec.options["key"])), names, bounds, dimensions, noise)


def _bounds(schema: TableSchema, name: str) -> tuple[float, float]:
    column: Column | None = schema.column(name)
    if column is None or column.bounds is None or not column.type.numeric:
        raise ParameterError(
            f"column '{name}' of '{schema.name}' is to be projected and has no numeric bounds",
            remedy=f"Declare them in the policy: {name}: {{type: decimal, between: [0, 250]}}",
            column=name,
        )
    return float(column.bounds.lower), float(column.bounds.upper)  # type: ignore[arg-type]


def _check_options(spec: Spec, column: str) -> None:
    """Options outside the grammar are refused, for plans that do not come from a policy file."""
    kind = MASKS.kind(spec.kind)
    known = [option.name for option in kind.fields] if kind else []
    for name in spec.options:
        if name not in known:
            raise ParameterError(
                f"the mask '{spec.kind}' on '{column}' has no option '{name}'", remedy=nearest(name, known)
            )
    for option in kind.fields if kind else ():
        if option.required and option.name not in spec.options:
            raise ParameterError(
                f"the mask '{spec.kind}' on '{column}' lacks its option '{option.name}'",
                remedy=f"Say {{{spec.kind}: {{{option.name}: ...}}}} in the policy",
            )


def _require_declared(schema: TableSchema, present: Sequence[str]) -> None:
    for name in schema.names:
        if name not in present:
            raise DataError(
                f"column '{name}' of '{schema.name}' is declared, and the source has no such column",
                remedy=nearest(name, present) or "Correct the policy, or the file",
                column=name,
            )


def _whole(options: Options, name: str, default: int) -> int:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or Fraction(value).denominator != 1:
        raise ParameterError(f"the option '{name}' of a mask is something else", expected="A whole number")
    return int(value)


def _amount(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction | str):
        raise ParameterError("an amount of a mask is something else", expected="A number")
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _names(options: Options, name: str) -> tuple[str, ...]:
    value = options.get(name, ())
    return (value,) if isinstance(value, str) else tuple(map(str, value))  # type: ignore[call-overload]
