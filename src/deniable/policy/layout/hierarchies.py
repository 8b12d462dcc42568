"""The generalization hierarchies a quasi-identifier may declare: their words and options.

A hierarchy says how a value becomes coarser level by level, up to one that says nothing. Trees, from a file or
written inline, arrive as option `rows`: one tuple a leaf, the leaf first, then its ancestors upwards."""

from __future__ import annotations

import itertools

from deniable.policy.grammar import (
    COLUMN,
    NUMERIC,
    POSITIVE,
    Amount,
    Choice,
    Either,
    Field,
    File,
    Flag,
    Kind,
    Kinds,
    ListOf,
    Nested,
    Text,
    Whole,
)

BRACKETS = {"ages": (0, 15, 24, 35, 45, 55, 70)}
"""Named brackets: each edge begins a half-open interval, and the last is open above."""

DATE_LEVELS = (
    "hour",
    "part_of_day",
    "day",
    "weekday",
    "week",
    "month",
    "season",
    "quarter",
    "year",
    "decade",
)

STANDARD_LEVELS = {
    "icd10": ("category", "block", "chapter"),
    "icd9": ("category", "block", "chapter"),
    "countries": ("subregion", "region"),
    "us_states": ("division", "region"),
    "us_zip": ("zip4", "zip3", "state", "division", "region"),
    "nuts": ("nuts2", "nuts1", "country"),
    "isco08": ("minor", "sub_major", "major"),
    "education": ("isced", "attainment"),
    "hours": ("hour", "part_of_day"),
    "weekdays": ("part_of_week",),
    "months": ("season",),
    "ages": ("5", "10", "20"),
    "incomes": ("1000", "5000", "10000", "50000"),
    "dates": ("week", "month", "quarter", "year", "decade"),
    "times": ("hour", "part_of_day", "day", "week", "month", "quarter", "year"),
    "seasons": ("month", "season"),
    "coordinates": ("4", "3", "2", "1", "0"),
}
"""Public standards, each with the levels above the value itself, from fine to coarse."""

_EDGES = ListOf(Amount(), least=2, order="up")
_TAILS = (
    Field("bottom", Amount(), "values below are one group at every level (bottom coding)"),
    Field("top", Amount(), "values above are one group at every level (top coding)"),
)

HIERARCHIES = Kinds(
    "hierarchy",
    (
        Kind(
            "intervals",
            "Numbers in intervals of equal width, or of equal numbers of rows, one level for each.",
            (
                Field("widths", ListOf(POSITIVE, order="up"), "width of the intervals at each level"),
                Field(
                    "quantiles",
                    ListOf(Whole(1), order="down"),
                    "number of intervals at each level; their edges are read from the data and so tell about it",
                ),
                Field("start", Amount(), "where an interval begins", default="0"),
                *_TAILS,
            ),
            short="widths",
            exactly_one=(("widths",), ("quantiles",)),
            types=NUMERIC,
            example="{intervals: [5, 10, 20]}",
        ),
        Kind(
            "brackets",
            "Numbers in given brackets: each edge begins one, and the last is open above.",
            (
                Field("edges", Either((Choice(tuple(BRACKETS)), _EDGES)), "the edges, or the name of known ones"),
                Field("levels", ListOf(_EDGES), "edges for each level, from fine to coarse"),
                *_TAILS,
            ),
            short="edges",
            exactly_one=(("edges",), ("levels",)),
            types=NUMERIC,
            example="{brackets: [0, 15, 24, 35, 45, 55, 70]}",
        ),
        Kind(
            "redact",
            "Replace one more character at each level, from the right or from the left.",
            (
                Field("from", Choice(("right", "left")), "the end to begin at", default="right"),
                Field("put", Text("one character", "^.$"), "the character put instead", default="*"),
                Field("keep", Whole(0, 1000), "characters never replaced, short of the last level", default="0"),
            ),
            short="from",
            types=("text",),
            example="{redact: right}",
        ),
        Kind(
            "prefix",
            "Keep the first characters only, fewer at each level.",
            (Field("lengths", ListOf(Whole(0), order="down"), "characters kept at each level", required=True),),
            short="lengths",
            types=("text",),
            example="{prefix: [5, 3, 1]}",
        ),
        Kind(
            "dates",
            "Coarser parts of a date or time.",
            (Field("levels", ListOf(Choice(DATE_LEVELS), distinct=True), "the parts, fine to coarse", required=True),),
            short="levels",
            types=("date", "datetime"),
            example="{dates: [month, year, decade]}",
        ),
        Kind(
            "order",
            "Neighboring values in groups, in the order of the declared categories, or else of the values.",
            (
                Field("sizes", ListOf(Whole(2), order="up"), "values in a group at each level"),
                Field("groups", ListOf(ListOf(Text(empty=True))), "the groups themselves, for one level"),
            ),
            short="sizes",
            exactly_one=(("sizes",), ("groups",)),
            example="{order: [2, 4]}",
        ),
        Kind(
            "tree",
            "A tree of categories: a CSV file with one line a leaf (leaf, parent, grandparent, ...), or written here.",
            (
                Field("file", File(), "the CSV file"),
                Field("separator", Choice((",", ";", "|", "\t")), "what separates its fields", default="as found"),
                Field("inline", Nested(), "the tree as nested entries with lists of leaves"),
            ),
            exactly_one=(("file",), ("inline",)),
            example="{tree: {inline: {any: {north: [Oslo, Bergen], south: [Rome]}}}}",
        ),
        Kind(
            "standard",
            "The groups of a public standard: chapters of diagnoses, regions of countries and others.",
            (
                Field("name", Choice(tuple(STANDARD_LEVELS)), "the standard", required=True),
                Field(
                    "levels",
                    ListOf(Choice(tuple(dict.fromkeys(itertools.chain(*STANDARD_LEVELS.values())))), distinct=True),
                    "which of its levels, fine to coarse",
                    default="all",
                ),
                Field("other", Flag(), "values it does not have are one group 'other'", default="they are refused"),
            ),
            short="name",
            example="{standard: icd10}",
        ),
        Kind(
            "coordinates",
            "Coordinates cut to fewer decimals at each level.",
            (Field("digits", ListOf(Whole(0, 15), order="down"), "decimals kept at each level", required=True),),
            short="digits",
            types=("decimal",),
            example="{coordinates: [3, 2, 1]}",
        ),
        Kind(
            "geohash",
            "Geohashes cut to fewer characters at each level.",
            (Field("lengths", ListOf(Whole(0, 12), order="down"), "characters kept at each level", required=True),),
            short="lengths",
            types=("text",),
            example="{geohash: [7, 5, 3]}",
        ),
        Kind(
            "rounding",
            "Numbers rounded down to multiples, larger ones at each level: 39 to 20, -1 to -20. Cells are numbers; "
            "with a top or bottom they are texts, such as 40 and [60, inf).",
            (Field("to", ListOf(POSITIVE, order="up"), "the multiples", required=True), *_TAILS),
            short="to",
            types=NUMERIC,
            example="{rounding: [10, 100]}",
        ),
        Kind("withhold", "Keep the value, or withhold it altogether.", example="withhold"),
        Kind(
            "like",
            "The hierarchy of another column of this table.",
            (Field("column", COLUMN, "that column", required=True),),
            short="column",
            example="{like: home_zip}",
        ),
    ),
)
