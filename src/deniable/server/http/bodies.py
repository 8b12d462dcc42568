"""Bodies of requests: frozen dataclasses are their one description, which reads them and documents them.

`read_body` turns JSON into a dataclass and refuses unknown names, wrong types and values outside their limits, each
with the name of the field. `derive_schema` is the same rules as a JSON Schema, for the OpenAPI document."""

# ruff: noqa: RUF009  (described() makes a dataclass field, as field() does)

from __future__ import annotations

import dataclasses
import functools
import json
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints

from deniable.errors import ParameterError, nearest
from deniable.server.refusals import UnsupportedMedia

MOST_DIGITS = 400
"""Of a whole number in a body."""

Body = TypeVar("Body")
Amount = str | int | float
"""A privacy parameter: a decimal text is exact, a number is taken by its decimal form."""


def describe_field(text: str, default: Any = dataclasses.MISSING, **rules: Any) -> Any:
    """A field with its description and its limits in the words of JSON Schema."""
    metadata = {"description": text, **rules}
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    return field(metadata=metadata) if default is dataclasses.MISSING else field(default=default, metadata=metadata)


_PRIVACY = {"maxLength": 60, "examples": ["0.5"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBody:
    """A question in SQL, with its budget."""

    sql: str = describe_field("One SELECT statement.", minLength=1, maxLength=100_000)
    epsilon: Amount | None = describe_field("Epsilon to spend.", None, **_PRIVACY)
    delta: Amount = describe_field("Delta to spend.", "0", **_PRIVACY)
    rho: Amount | None = describe_field("Zero-concentrated budget, instead of epsilon.", None, **_PRIVACY)
    purpose: str = describe_field(
        "The purpose it is charged to; left out where the token has one only.", "", maxLength=200
    )
    parameters: list[Any] = describe_field(
        'Values of $1, $2, ...; of another type than JSON has: {"timestamp": text}, date or decimal.', [], maxItems=1000
    )
    confidence: float = describe_field("Confidence of the intervals.", 0.95, exclusiveMinimum=0, exclusiveMaximum=1)
    intervals: bool = describe_field("Whether name_low and name_high stand beside each number.", True)
    nonnegative: bool = describe_field("Whether counts are cut off at 0.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBody:
    """Several questions in SQL, with one budget for all of them."""

    questions: list[Any] = describe_field("SELECT statements, each a text.", minItems=1, maxItems=100)
    epsilon: Amount | None = describe_field("Epsilon to spend on all of them.", None, **_PRIVACY)
    delta: Amount = describe_field("Delta to spend on all of them.", "0", **_PRIVACY)
    rho: Amount | None = describe_field("Zero-concentrated budget, instead of epsilon.", None, **_PRIVACY)
    purpose: str = describe_field("The purpose it is charged to.", "", maxLength=200)
    confidence: float = describe_field("Confidence of the intervals.", 0.95, exclusiveMinimum=0, exclusiveMaximum=1)
    intervals: bool = describe_field("Whether name_low and name_high stand beside each number.", True)
    nonnegative: bool = describe_field("Whether counts are cut off at 0.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesBody:
    """A map of places, or flows between regions, with its budget."""

    table: str = describe_field("The table.", minLength=1, maxLength=200)
    at: list[Any] = describe_field("The columns of latitude and longitude.", minItems=2, maxItems=2)
    to: list[Any] | None = describe_field("Those of the other end: flows between regions.", None, maxItems=2)
    epsilon: Amount | None = describe_field("Epsilon to spend.", None, **_PRIVACY)
    delta: Amount = describe_field("Delta to spend.", "0", **_PRIVACY)
    rho: Amount | None = describe_field("Zero-concentrated budget, instead of epsilon.", None, **_PRIVACY)
    purpose: str = describe_field("The purpose it is charged to.", "", maxLength=200)
    time: str | None = describe_field("The column of the time, for slots.", None, maxLength=200)
    slots: str | None = describe_field("Count by hour, part (of a day), weekday or month.", None, maxLength=40)
    box: list[Any] | None = describe_field("South, west, north, east in degrees.", None, maxItems=4)
    per_person: int | None = describe_field("Rows of one person that count.", None, maximum=10_000)
    grid: str = describe_field("Of a map: adaptive or uniform.", "adaptive", maxLength=40)
    confidence: float = describe_field("Confidence of the intervals.", 0.95, exclusiveMinimum=0, exclusiveMaximum=1)
    nonnegative: bool = describe_field("Whether counts are cut off at 0.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBody:
    """A statistic of a table of edges, with its budget."""

    table: str = describe_field("The table of edges.", minLength=1, maxLength=200)
    statistic: str = describe_field(
        "edges, degrees, triangles, stars, clustering, mixing, assortativity, degree-assortativity, graph or spread.",
        minLength=1,
        maxLength=40,
    )
    epsilon: Amount = describe_field("Epsilon to spend.", **_PRIVACY)
    purpose: str = describe_field("The purpose it is charged to.", "", maxLength=200)
    by: str | None = describe_field("The column of groups in the table of nodes.", None, maxLength=200)
    star: int | None = describe_field("Edges of a star.", None, maximum=100)
    direction: str | None = describe_field("Of a directed network: all, out or in.", None, maxLength=10)
    max_degree: int | None = describe_field("The most edges of a node that count.", None, maximum=1_000_000)
    passing: float | None = describe_field("Of a rumor: how likely a neighbor is told.", None, minimum=0, maximum=1)
    stopping: float | None = describe_field("Of a rumor: how likely telling stops.", None, minimum=0, maximum=1)
    steps: int | None = describe_field("Of a rumor: how many steps.", None, maximum=1000)
    confidence: float = describe_field("Confidence of the intervals.", 0.95, exclusiveMinimum=0, exclusiveMaximum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    """A request for a release that the steward decides."""

    technique: str = describe_field("mask, anonymize or synthesize.", minLength=1, maxLength=100)
    tables: list[Any] = describe_field("The names of the tables.", maxItems=100, minItems=1)
    purpose: str = describe_field("The purpose.", "", maxLength=200)
    parameters: dict[str, Any] = describe_field("What the technique needs to know.", {}, maxProperties=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionBody:
    """Why a request is approved or declined, or an epoch begins."""

    reason: str = describe_field("The reason, which the record keeps.", minLength=1, maxLength=2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBody:
    """Whom a token is for."""

    name: str = describe_field("The name of the one who will use it.", minLength=1, maxLength=200)
    role: str = describe_field("steward, analyst, auditor or respondent.", "analyst", maxLength=40)
    purposes: list[Any] | None = describe_field("The purposes it grants; all of them if left out.", None, maxItems=100)
    days: float = describe_field("How many days it is good for.", 90.0, exclusiveMinimum=0, maximum=3650)
    column: str = describe_field("For a respondent: the column that tells people apart.", "", maxLength=200)
    value: str = describe_field("For a respondent: the person's value in it.", "", maxLength=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TermsBody:
    """The terms that an asker acknowledges, in the wording that was read."""

    digest: str = describe_field("The digest that GET /v1/terms showed.", minLength=1, maxLength=100)
    purpose: str = describe_field("The purpose.", "", maxLength=200)


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonBody:
    """One person in the data."""

    column: str = describe_field("The column that tells people apart.", minLength=1, maxLength=200)
    value: str = describe_field("The person's value in it.", minLength=1, maxLength=1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReinstatementBody(PersonBody):
    """A person who agreed again after a withdrawal."""

    reason: str = describe_field("How the person agreed, which the record keeps.", minLength=1, maxLength=2000)


def read_body(kind: type[Body], raw: bytes) -> Body:
    """The body in some bytes of JSON."""
    try:
        document = json.loads(
            raw.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_refuse_duplicates,
            parse_int=_read_whole,
        )  # fmt: skip
    except (ValueError, RecursionError):
        raise UnsupportedMedia("the body is not JSON", expected="A JSON object in UTF-8") from None
    if not isinstance(document, dict):
        raise ParameterError("the body is not a JSON object", expected="An object such as {...}")
    return build_body(kind, document)


def _read_whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ParameterError(f"a number has more than {MOST_DIGITS} digits")
    return int(text)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are all different: of two budgets none is the one that was meant."""
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ParameterError("a name of the JSON object stands there twice", expected="Each name once")
    return document


def build_body(kind: type[Body], document: dict[str, Any]) -> Body:
    """The body in the fields of a JSON object or of a form."""
    fields = {each.name: each for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in document:
        if name not in fields:
            raise ParameterError("the body has an unknown field", expected=f"Known are {', '.join(fields)}",
                                 remedy=nearest(name[:100], fields))  # fmt: skip
    for name, each in fields.items():
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if required and name not in document:
            raise ParameterError(f"the field '{name}' is missing")
    rules = derive_schema(kind)["properties"]  # type: ignore[arg-type]  # a class is hashable
    for name, value in document.items():
        _check_field(name, value, rules[name])
    return kind(**document)


# a dictionary: JSON in the words of JSON Schema
@functools.cache
def derive_schema(kind: type[Any]) -> dict[str, Any]:
    """The JSON Schema of a body."""
    hints = get_type_hints(kind)
    properties, required = {}, []
    for each in dataclasses.fields(kind):
        rules = dict(each.metadata) | {"type": _list_json_types(str(hints[each.name]))}
        if each.default is not dataclasses.MISSING:
            rules["default"] = each.default
        elif each.default_factory is dataclasses.MISSING:
            required.append(each.name)
        properties[each.name] = rules
    title = (kind.__doc__ or "").strip()
    made = {"type": "object", "description": title, "properties": properties, "additionalProperties": False}
    return made | {"required": required} if required else made


_JSON_TYPES = {"str": "string", "float": "number", "bool": "boolean", "list": "array", "dict": "object",
               "None": "null", "int": "number"}  # fmt: skip


def _list_json_types(hint: str) -> list[str]:
    """The JSON types of a type hint, such as `str | int | None`."""
    words = hint.replace("<class '", "").replace("'>", "").split(" | ")
    return sorted({_JSON_TYPES[word.split("[")[0].replace("NoneType", "None")] for word in words})


_WORDS = {"string": "a text", "number": "a number", "boolean": "true or false", "array": "a list",
          "object": "an object with fields", "null": "null"}  # fmt: skip


def _check_field(name: str, value: Any, rules: dict[str, Any]) -> None:
    kinds: dict[str, Any] = {"string": str, "number": int | float, "boolean": bool, "array": list, "object": dict,
                             "null": type(None)}  # fmt: skip
    allowed = rules["type"]
    fits = any(isinstance(value, kinds[kind]) for kind in allowed)
    if not fits or (isinstance(value, bool) and "boolean" not in allowed):
        words = " or ".join(_WORDS[kind] for kind in allowed if kind != "null" or len(allowed) == 1)
        raise ParameterError(f"the field '{name}' is of another type", expected=f"It is {words}")
    size = len(value) if isinstance(value, str | list | dict) else 0
    longest = rules.get("maxLength", rules.get("maxItems", rules.get("maxProperties", math.inf)))
    if isinstance(value, str | list | dict) and not rules.get("minLength", rules.get("minItems", 0)) <= size <= longest:
        least = rules.get("minLength", rules.get("minItems", 0))
        told = "is empty" if not size else "is too short" if size < least else "is too long"
        raise ParameterError(f"the field '{name}' {told}", expected=f"{least} to {longest} characters or items")
    if isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(name, value, rules)


def _check_number(name: str, value: float, rules: dict[str, Any]) -> None:
    low, high = rules.get("exclusiveMinimum", -math.inf), rules.get("exclusiveMaximum", math.inf)
    if not low < value < high or value > rules.get("maximum", math.inf) or not -1e300 < value < 1e300:
        high = min(high, rules.get("maximum", math.inf))
        said = [f"above {low:g}" if low > -math.inf else "", f"at most {high:g}" if high < math.inf else ""]
        if rules.get("exclusiveMaximum", math.inf) == high:
            said[1] = said[1].replace("at most", "below")
        raise ParameterError(
            f"the field '{name}' is out of range", expected=f"A number {' and '.join(filter(None, said))}".rstrip()
        )


def _refuse_constant(_word: str) -> float:
    raise ValueError  # NaN and Infinity are not JSON
