"""The policy's layout as JSON Schema, for editors that complete and check while a steward types.

It says what a shape can say. What needs several keys at once (reversed bounds, unknown columns) is left to
`deniable policy check`. An editor reads YAML with its own guesses at types, so a text is let through as a number too.
"""

from __future__ import annotations

from fractions import Fraction

from deniable.policy.grammar import (
    Amount,
    Choice,
    Day,
    Either,
    Field,
    File,
    Flag,
    Kind,
    Kinds,
    ListOf,
    Named,
    Nested,
    Record,
    Reference,
    Regex,
    Scalar,
    Shape,
    Text,
    Whole,
    Written,
)

Schema = dict[str, object]

_ANY_SINGLE: Schema = {"type": ["string", "number", "boolean"]}


def build_json_schema(root: Record) -> Schema:
    """A JSON Schema (2020-12) of a layout."""
    head: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "deniable policy",
        "$defs": {"tree": _tree()},
    }
    return head | _record(root.fields, root.exactly_one, root.meaning)


def _schema(shape: Shape) -> Schema:
    match shape:
        case Record():
            return _record(shape.fields, shape.exactly_one, shape.meaning)
        case Named(item, least=least):
            return {"type": "object", "additionalProperties": _schema(item), "minProperties": least}
        case Nested():
            return {"$ref": "#/$defs/tree"}
        case ListOf():
            return _list(shape)
        case Either(shapes):
            return {"anyOf": [_schema(each) for each in shapes]}
        case Kinds(kinds=kinds):
            return {"anyOf": [form for kind in kinds for form in _kind(kind)]}
        case _:
            return _single(shape)


def _single(shape: Shape) -> Schema:
    match shape:
        case Choice(words):
            return {"enum": [str(word) for word in words]}
        case Whole(least, most):
            limits = {"minimum": least, "maximum": most}
            return {"type": "integer"} | {name: limit for name, limit in limits.items() if limit is not None}
        case Amount():
            return _amount(shape)
        case Flag():
            return {"type": "boolean"}
        case Day():
            return {"type": "string", "format": "date"}
        case Regex():
            return {"type": "string", "format": "regex"}
        case Text(pattern=pattern) if pattern:
            return {"type": ["string", "number"], "pattern": pattern}
        case Text() | File() | Reference() | Scalar() | Written():
            return dict(_ANY_SINGLE)
    raise AssertionError(f"{type(shape).__name__} is not a shape of single values")


def _amount(shape: Amount) -> Schema:
    named = (
        ("minimum", shape.least),
        ("exclusiveMinimum", shape.above),
        ("maximum", shape.most),
        ("exclusiveMaximum", shape.below),
    )
    return {"type": "number"} | {name: _number(limit) for name, limit in named if limit is not None}


def _number(limit: Fraction) -> int | float:
    return limit.numerator if limit.denominator == 1 else float(limit)


def _list(shape: ListOf) -> Schema:
    found: Schema = {"type": "array", "items": _schema(shape.item), "minItems": shape.least}
    if shape.most is not None:
        found["maxItems"] = shape.most
    if shape.distinct:
        found["uniqueItems"] = True
    return found


def _record(fields: tuple[Field, ...], exactly_one: tuple[tuple[str, ...], ...], meaning: str) -> Schema:
    found: Schema = {
        "type": "object",
        "description": meaning,
        "properties": {field.name: _property(field) for field in fields},
        "additionalProperties": False,
    }
    if required := [field.name for field in fields if field.required]:
        found["required"] = required
    if exactly_one:
        found["oneOf"] = [{"required": list(names)} for names in exactly_one]
    return found


def _property(field: Field) -> Schema:
    default = f" Default: {field.default}." if field.default else ""
    return _schema(field.shape) | {"description": f"{field.meaning}.{default}"}


def _kind(kind: Kind) -> list[Schema]:
    """The ways to write one kind: its word, its word with the short form, its word with options."""
    forms: list[Schema] = [{"const": kind.name, "description": kind.meaning}] if kind.bare else []
    inner: list[Schema] = [_record(kind.fields, kind.exactly_one, kind.meaning)]
    if kind.short:
        inner.append(_schema(kind.option(kind.short).shape))
    if kind.bare:
        inner.append({"type": "null"})
    entry: Schema = {"anyOf": inner, "description": kind.meaning}
    return [
        *forms,
        {"type": "object", "properties": {kind.name: entry}, "required": [kind.name], "additionalProperties": False},
    ]


def _tree() -> Schema:
    branch: Schema = {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "array", "items": _ANY_SINGLE}]}
    return {"type": "object", "additionalProperties": branch}
