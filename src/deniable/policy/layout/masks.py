"""The masks a column may ask for: their words and options. What they do to values is for the package `masking`."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from deniable.policy.grammar import (
    COLUMN,
    KEY,
    NUMERIC,
    POSITIVE,
    Amount,
    Choice,
    Field,
    File,
    Kind,
    Kinds,
    ListOf,
    Regex,
    Scalar,
    Text,
    Whole,
)


@dataclass(frozen=True, slots=True)
class Preset:
    """A regular expression with its replacement, under a name."""

    name: str
    find: str
    put: str
    meaning: str


_WORD = r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*"
PRESETS = (
    Preset(
        "first_and_last_letter", r"\B\w\B|\b\w\w?\b", "*", "keep the first and last letter of words of three or more"
    ),
    # With a comma the surname may stand first, so such a value does not match.
    Preset("first_name", rf"\A\s*({_WORD}\.?)(?:\s[^,;]*)?\Z", r"\1", "keep the first name only"),
    Preset("last_four", r"\A\D*\d{3}\D?\d{2}\D?(\d{4})\D*\Z", r"xxx-xx-\1", "last digits of a social security number"),
    Preset(
        "first_six",
        r"\A\D*(\d{4})[ -]?(\d{2})(?:[ -]?\d){6,13}\D*\Z",
        r"\1\2xxxxxxxxxx",
        "first digits of a card number",
    ),
    Preset(
        "street",
        r"\A\s*(?:\d[^\s,]*,?\s+)?((?:\d+(?:st|nd|rd|th)\b)?[^\d\n]*[^\W\d_][.]?)(?:,?\s+\d\S*)?\s*\Z",
        r"\1",
        "a street without its house number",
    ),
)
FAKES = ("name", "first_name", "last_name", "street", "address", "city", "email", "phone", "company")
FOUND_IN_TEXT = (
    "name", "place", "phone", "email", "date", "age", "address", "postcode", "url", "ip", "card", "iban", "national_id",
    "vehicle", "number",
)  # fmt: skip

_KEY = Field("key", KEY, "the secret key, by its name; tables masked with one key can be joined", required=True)
_DOMAIN = Field("domain", Text("a name"), "values get equal tokens only within one domain", default="the key's name")
_NORMALIZE = Field(
    "normalize",
    Choice(("text", "digits", "exact")),
    "which spellings are one value: text ignores case, spaces and Unicode forms; digits keeps digits alone",
    default="text (exact for keys and vaults made before version 2)",
)

MASKS = Kinds(
    "mask",
    (
        Kind(
            "redact",
            "Replace every value by the same text.",
            (
                Field("put", Text(empty=True), "what to put instead", default="***"),
                Field("keep_first", Whole(0, 100), "leading characters to keep", default="0"),
                Field("keep_last", Whole(0, 100), "trailing characters to keep", default="0"),
            ),
            short="put",
            example="redact",
        ),
        Kind("nullify", "Replace every value by null.", example="nullify"),
        Kind(
            "constant",
            "Replace every value by one of the column's own type.",
            (Field("value", Scalar(), "the value", required=True),),
            short="value",
            example="{constant: 0}",
        ),
        Kind(
            "codebook",
            "Substitute random tokens kept in an encrypted vault: reversible with the key, consistent.",
            (
                Field("vault", File(must_exist=False), "the vault's file", required=True),
                _KEY,
                _DOMAIN,
                Field("length", Whole(4, 64), "characters of a token", default="12"),
                Field("prefix", Text(), "text before each token", default="none"),
                _NORMALIZE,
            ),
            example="{codebook: {vault: names.vault, key: people}}",
        ),
        Kind(
            "regex",
            "Replace what a regular expression finds; a preset's name is short for a known pair.",
            (
                Field("find", Regex(), "the expression, in Python's syntax"),
                Field("put", Text(empty=True), r"the replacement; \1 stands for the first group"),
                Field("preset", Choice(tuple(p.name for p in PRESETS)), "a known pair of find and put"),
                Field(
                    "unmatched",
                    Choice(("keep", "redact", "nullify")),
                    "what becomes of a value without a match",
                    default="keep with find and put, redact with a preset",
                ),
            ),
            short="preset",
            exactly_one=(("find", "put"), ("preset",)),
            types=("text",),
            example=r"{regex: {find: '\d{3}-\d{2}-(\d{4})', put: 'xxx-xx-\1'}}",
        ),
        Kind(
            "scrub",
            "Find and replace identifiers inside free text, by patterns.",
            (
                Field("find", ListOf(Choice(FOUND_IN_TEXT), distinct=True), "what to look for", default="all of them"),
                Field("put", Text(empty=True), "what to put instead", default="the kind in brackets, as [phone]"),
            ),
            short="find",
            types=("text",),
            example="{scrub: [phone, email]}",
        ),
        Kind(
            "token",
            "A keyed pseudonym (HMAC): equal values get equal tokens, and without the key none can be recomputed.",
            (_KEY, Field("length", Whole(4, 64), "characters of a token", default="16"), _DOMAIN, _NORMALIZE),
            short="key",
            example="{token: {key: people}}",
        ),
        Kind(
            "format_preserving",
            "A keyed pseudonym of the same form: digits stay digits, letters letters, separators stay.",
            (
                _KEY,
                _DOMAIN,
                Field("check", Choice(("luhn",)), "keep the check digit of card numbers right", default="no check"),
            ),
            short="key",
            types=("text", "integer"),
            example="{format_preserving: {key: people}}",
        ),
        Kind(
            "fake",
            "A made-up value, the same for equal values.",
            (Field("kind", Choice(FAKES), "what to make up", required=True), _KEY),
            types=("text",),
            example="{fake: {kind: name, key: people}}",
        ),
        Kind(
            "shift_dates",
            "Move dates by one secret offset for each person: intervals within a person are kept.",
            (
                _KEY,
                Field("days", Whole(1, 36500), "the largest shift, either way", default="365"),
                Field("by", COLUMN, "the column that tells persons apart", default="the privacy unit's column"),
            ),
            types=("date", "datetime"),
            example="{shift_dates: {key: people, days: 180, by: patient_id}}",
        ),
        Kind(
            "generalize",
            "Coarsen as the HIPAA Safe Harbor rule says.",
            (
                Field(
                    "to",
                    Choice(("age_over_89", "zip3", "year")),
                    "age_over_89 groups high ages; zip3 keeps three digits, none where few people live; year of a date",
                    required=True,
                ),
            ),
            short="to",
            example="{generalize: zip3}",
        ),
        Kind(
            "round",
            "Round numbers to multiples.",
            (Field("to", POSITIVE, "the multiple", required=True),),
            short="to",
            types=NUMERIC,
            example="{round: 100}",
        ),
        Kind(
            "noise",
            "Add random noise to numbers. This is masking: no formal guarantee follows from it.",
            (
                Field("scale", POSITIVE, "the noise's scale, in the column's unit", required=True),
                Field("shape", Choice(("uniform", "laplace", "gaussian")), "its distribution", default="gaussian"),
            ),
            short="scale",
            types=NUMERIC,
            example="{noise: {scale: 5, shape: laplace}}",
        ),
        Kind(
            "shuffle",
            "Permute the column's values among the rows.",
            (
                Field(
                    "within",
                    ListOf(COLUMN, distinct=True),
                    "permute only among rows equal in these columns",
                    default="all rows",
                ),
            ),
            short="within",
            example="{shuffle: {within: [ward]}}",
        ),
        Kind(
            "projection",
            "Replace numeric columns by a secret random projection that nearly keeps distances.",
            (
                _KEY,
                Field("columns", ListOf(COLUMN, distinct=True), "the columns projected together with this one"),
                Field("dimensions", Whole(1, 10_000), "columns that come out", default="as many as go in"),
                Field("scale", Amount(above=Fraction(0)), "noise added after projecting", default="none"),
            ),
            short="key",
            types=NUMERIC,
            example="{projection: {key: people, columns: [height, weight], dimensions: 2}}",
        ),
    ),
)
