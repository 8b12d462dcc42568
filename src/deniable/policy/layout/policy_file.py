"""The layout of a policy file: which keys stand where, and what they mean. Everything else is derived from it."""

from __future__ import annotations

from fractions import Fraction

from deniable.policy.access import Accounting, Period
from deniable.policy.grammar import (
    COLUMN,
    POSITIVE,
    Amount,
    Choice,
    Day,
    Either,
    Field,
    File,
    Flag,
    ListOf,
    Named,
    Record,
    Reference,
    Text,
    Whole,
    Written,
)
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.layout.masks import MASKS
from deniable.policy.layout.release import RELEASE
from deniable.policy.schema import THOUSANDS, BadRows, Bounding, ColumnType, DateOrder, Neighboring, Role

DOUBTS = ("much-loss", "large-delta")
"""What a policy may say only if its steward says so twice: in its place, and under accepts."""

CATEGORIES = Record(
    "categories",
    (
        Field("file", File(), "a CSV file with a header"),
        Field("column", Text("a column of that file"), "the column of the file", default="the first one"),
        Field("like", COLUMN, "another column of this table with the same categories"),
    ),
    exactly_one=(("file",), ("like",)),
    meaning="Public categories that stand elsewhere.",
)

LINK = Text("a column, or a column = table.column of another table", pattern=r"(\w+ *= *)?\w+\.\w+")

UNIT = Record(
    "unit",
    (
        Field("column", COLUMN, "the column that tells persons apart"),
        Field(
            "via",
            ListOf(LINK),
            "the steps to the table that tells persons apart: [order_id = orders.id]; only "
            "questions in SQL follow them",
        ),
        Field("max_groups", Whole(1, 10**9), "groups of one answer that a unit may contribute to"),
        Field("max_rows_per_group", Whole(1, 10**9), "rows that a unit may contribute to one group"),
        Field("max_rows", Whole(1, 10**9), "rows that a unit may contribute in all (implies bounding: rows)"),
        Field("neighboring", Choice(tuple(Neighboring)), "which pairs of tables must look alike", default="add-remove"),
        Field("bounding", Choice(tuple(Bounding)), "how a unit's contribution is limited", default="sample"),
    ),
    exactly_one=(("column",), ("via",)),
    meaning="The privacy unit: all rows that share a value of one column belong to one person.",
)

EDGES = Record(
    "edges",
    (
        Field("from", COLUMN, "the column with one end of each edge", required=True),
        Field("to", COLUMN, "the column with the other end", required=True),
        Field("directed", Flag(), "whether an edge from a to b is another than one from b to a", default="false"),
        Field(
            "nodes",
            Text("a column of another table", pattern=r"\w+\.\w+"),
            "the table that lists the nodes, as TABLE.COLUMN: public for unit: edge, private for unit: node, with "
            "this column as its unit",
            default="the ends of edges",
        ),
        Field(
            "max_degree",
            Whole(1, 1_000_000),
            "the most edges of one node that count, for unit: node; the largest degree that is told apart, for "
            "unit: edge",
            default="chosen with a share of each budget (unit: node), or 1024",
        ),
    ),
    meaning="The rows as edges of a network, for `deniable network`. Rows that name the same two nodes are one edge.",
)

ONE_CHARACTER = Text("one character", pattern="(?s).")

CSV = Record(
    "csv",
    (
        Field("encoding", Text("an encoding"), "such as latin-1, cp1252, utf-16", default="utf-8"),
        Field("delimiter", ONE_CHARACTER, "what stands between values", default="found out"),
        Field("quote", ONE_CHARACTER, "what stands around values", default="found out"),
        Field("header", Flag(), "whether the first line names the columns", default="found out"),
        Field("null", Text("a word"), "how a missing value is written, beside an empty one", default="empty"),
        Field("bad_rows", Choice(tuple(BadRows)), "whether lines that do not fit are refused", default="refuse"),
        Field("decimal", Choice((".", ",")), "what stands before the decimals of a number", default="."),
        Field("thousands", Choice(THOUSANDS), "what stands between the thousands of a number", default="nothing"),
        Field(
            "dates", Choice(tuple(DateOrder)), "the order of 2024-12-31, 31.12.2024, 12/31/2024", default="year-first"
        ),
    ),
    meaning="How a CSV file is written, where the file itself does not tell.",
)

COLUMN_ENTRY = Record(
    "column",
    (
        Field("type", Choice(tuple(ColumnType)), "the type of the values", default="text"),
        Field(
            "role",
            Choice(tuple(Role)),
            "what the column is to an intruder; an undecided column is withheld from releases of rows",
            default="undecided",
        ),
        Field("nullable", Flag(), "whether values may be missing", default="true"),
        Field(
            "between",
            ListOf(Written(), least=2, most=2),
            "public bounds [lowest, highest]: from knowledge of the subject, never read from the data",
        ),
        Field(
            "step",
            POSITIVE,
            "values are rounded to multiples of it (of days for a date, of seconds for a datetime)",
            default="1; a bounded decimal must state it",
        ),
        Field(
            "categories",
            Either((ListOf(Written(), distinct=True), CATEGORIES)),
            "all public values, in their order; any other value counts as missing",
        ),
        Field("longest", Whole(1, 65_536), "characters of a text that questions see; the rest is cut", default="65536"),
        Field("mask", MASKS, "how values are masked in a record-level release"),
        Field("hierarchy", HIERARCHIES, "how values are generalized in a k-anonymous release"),
    ),
    meaning="One column, as the steward declares it. `{}` takes every default: such a column can be asked about with "
    "noise, and is withheld from releases of rows.",
)

TABLE = Record(
    "table",
    (
        Field(
            "source",
            Text("a source"),
            "a file, a folder of files, a pattern such as `visits/*.parquet` (relative to the policy file), "
            "`duckdb:FILE#TABLE`, `postgresql://HOST/DATABASE#TABLE`, `spark:TABLE` or `DIALECT+adbc://PROFILE#TABLE`",
            required=True,
        ),
        Field("csv", CSV, "how the file is written, where it does not tell by itself"),
        Field("public", Flag(), "true if the table protects nobody: its rows may be used as they are", default="false"),
        Field(
            "unit",
            Either((Choice(("row", "edge", "node")), UNIT)),
            "whose presence is hidden: `row` if each row is another person, or a column; of a network `edge` or `node` "
            "(with edges:); every private table states it",
        ),
        Field("edges", EDGES, "how the rows are edges of a network; with unit: edge or unit: node"),
        Field("columns", Named(COLUMN_ENTRY, declares="column", least=1), "the columns; a private table lists them"),
        Field(
            "parent",
            Text("a table"),
            "a private table with one row for each unit and the same unit column, or one with several that shares one "
            "more identifier: synthetic rows of both are linked",
        ),
        Field(
            "sequence",
            COLUMN,
            "the bounded number, date or datetime in whose order a unit's rows follow one another; synthetic rows do "
            "so too",
        ),
        Field(
            "same_people_as",
            Text("a table"),
            "a private table whose unit column holds the same people's values under another name: who withdraws from "
            "one is left out of both",
        ),
        Field(
            "rows_out",
            Whole(0),
            "of a table in a database: the most rows that are brought to this machine for what works on rows, such as "
            "k-anonymity and masking; 0 also refuses synthesis, learning and maps that need rows. SQL brings out none",
            default="1000000",
        ),
    ),
    meaning="One table.",
)

_EPSILON = Field("epsilon", POSITIVE, "the privacy loss allowed, in total")
_RHO = Field("rho", POSITIVE, "the same for zero-concentrated privacy, instead of epsilon")
_DELTA = Amount(least=Fraction(0), most=Fraction(1, 10))

DATASET_BUDGET = Record(
    "dataset budget",
    (
        _EPSILON,
        _RHO,
        Field("delta", _DELTA, "the probability with which the promise may fail", default="0"),
        Field(
            "accounting",
            Choice(tuple(Accounting)),
            "how answers are composed: pure adds amounts up, zcdp and pld count more tightly",
            default="pure; zcdp with rho",
        ),
    ),
    exactly_one=(("epsilon",), ("rho",)),
    meaning="What all answers together may cost a person, whoever asks.",
)

PURPOSE = Record(
    "purpose",
    (
        _EPSILON,
        _RHO,
        Field("delta", _DELTA, "its delta", default="the dataset's"),
        Field("every", Choice(tuple(Period)), "how often the allowance is renewed", default="never"),
        Field("approvals", Whole(1, 9), "different stewards who must approve a release of rows", default="1"),
        Field("justify", Flag(), "whether a request for a release must say what it is needed for", default="false"),
        Field("terms", Text("terms of use"), "what an analyst must acknowledge, once for each wording, before asking"),
    ),
    exactly_one=(("epsilon",), ("rho",)),
    meaning="Why somebody asks, with an allowance inside the dataset's.",
)

ANALYST = Record(
    "analyst",
    (
        Field("purposes", ListOf(Reference("purpose"), distinct=True), "the purposes granted", required=True),
        Field("epsilon", POSITIVE, "the allowance inside each purpose", default="the dataset's"),
        Field("rho", POSITIVE, "the same for zero-concentrated privacy"),
        Field("delta", _DELTA, "its delta", default="the dataset's"),
        Field(
            "columns",
            ListOf(COLUMN, distinct=True),
            "the columns that may be named, as COLUMN or TABLE.COLUMN",
            default="all",
        ),
        Field(
            "rows",
            Named(ListOf(Written(), least=1, distinct=True), refers="column"),
            "the rows that count, by column: only those with one of the values listed",
            default="all",
        ),
        Field("until", Day(), "the last day of the grant", default="the policy's"),
        Field(
            "members",
            ListOf(Text("a name"), least=1, distinct=True),
            "the people of a group: each asks under their own name, and all share what the group is allowed",
            default="nobody but the analyst",
        ),
    ),
    meaning="Somebody who asks, or a group of people who do.",
)

BUDGETS = Record(
    "budgets",
    (
        Field("dataset", DATASET_BUDGET, "the total", required=True),
        Field("purposes", Named(PURPOSE, declares="purpose"), "allowances by purpose"),
        Field("analysts", Named(ANALYST, declares="analyst"), "allowances and grants by analyst"),
    ),
    meaning="Budgets form a tree: the dataset contains its purposes, which contain their analysts.",
)

KEY_ENTRY = Record(
    "key",
    (
        Field("file", File(must_exist=False), "a file that only its owner may read"),
        Field("env", Text("a variable's name", r"^[A-Za-z_][A-Za-z0-9_]*$"), "an environment variable"),
        Field("command", ListOf(Text(), least=1), "a command that prints the key, as a list of words"),
    ),
    exactly_one=(("file",), ("env",), ("command",)),
    meaning="Where a masking key is kept. The key itself never stands in the policy.",
    secret=True,
)

EPOCHS = Record(
    "epochs",
    (
        Field(
            "every", Choice(tuple(Period)), "a new epoch each day, week, month, quarter or year of the calendar (UTC)"
        ),
        Field(
            "manifest",
            File(must_exist=False),
            "a file whose text names the epoch, such as a load number; its text is shown to whoever asks",
        ),
        Field(
            "copies",
            File(must_exist=False),
            "a folder that holds a copy of each private file as it was when the epoch began; it is read instead",
            default="files are read as they are",
        ),
    ),
    meaning="What begins an epoch of the data, beside `deniable epoch new`. Within one, a question has one answer.",
)

STREAM_QUESTION = Record(
    "stream question",
    (
        Field("count", Choice(("rows", "people")), "how many rows, or how many people"),
        Field("sum", COLUMN, "the sum of a bounded column"),
        Field("mean", COLUMN, "the mean of a bounded column"),
        Field(
            "by",
            ListOf(COLUMN, distinct=True),
            "columns with declared categories: a number for each of them",
            default="one number",
        ),
        Field("levels", Flag(), "whether totals are measured too, level by level, and all add up", default="false"),
        Field("where", Text("a condition"), "the rows that count, as in SQL: sex = 'F'", default="all"),
    ),
    exactly_one=(("count",), ("sum",), ("mean",)),
    meaning="What is asked of every period.",
)

STREAM = Record(
    "stream",
    (
        Field("table", Text("a table"), "the private table", required=True),
        Field(
            "time",
            COLUMN,
            "the date or datetime that a row is counted by; that of its arrival, if late rows are to count",
            required=True,
        ),
        Field("every", Choice(tuple(Period)), "how long a period is", required=True),
        Field("start", Day(), "the first day of the first period", required=True),
        Field("periods", Whole(1, 4096), "how many periods there will be", required=True),
        _EPSILON,
        _RHO,
        Field("delta", _DELTA, "the probability with which the promise may fail; needed beside epsilon", default="0"),
        Field(
            "max_periods",
            Whole(1, 4096),
            "periods in which one person is counted, the first ones in which they appear; the noise is made for them",
            default="all periods",
        ),
        Field("wait", Whole(0, 366), "periods that pass before one is read, so that late rows are there", default="0"),
        Field(
            "totals",
            Choice(("prefixes", "ranges", "windows")),
            "which totals over time are made most accurate: since the start, between any two periods, or sliding ones",
            default="ranges",
        ),
        Field("window", Whole(2, 4096), "periods of a sliding window that is published too", default="none"),
        Field("questions", Named(STREAM_QUESTION, least=1), "what is asked of every period, by name", required=True),
    ),
    exactly_one=(("epsilon",), ("rho",)),
    meaning="Numbers that are published every period (`deniable publish`), within one budget for all periods together.",
)

AREAS = Record(
    "areas",
    (
        Field(
            "levels", ListOf(Text("a level"), distinct=True), "the levels from large to small, all but everybody",
            required=True,
        ),
        Field("column", COLUMN, "the column of the private table with the smallest area", default="the last level"),
        Field("table", Text("a table"), "a public table that lists every area, with a column for each level"),
        Field(
            "prefixes", ListOf(Whole(1, 64), order="up"),
            "characters of the smallest area's code that name the larger ones, for all levels but the last",
            default="the table has a column for each level",
        ),
    ),
    meaning="A tree of areas, all of them public, also those where nobody lives.",
)  # fmt: skip

TABULATION_MARGIN = Record(
    "measured margin",
    (
        Field("by", ListOf(COLUMN, least=0, distinct=True), "columns among the cells", default="the total"),
        Field("weight", POSITIVE, "its part of the budget, beside the others", default="1"),
    ),
    meaning="What is measured in every area. All cells are always measured too, with weight 1 if not said.",
)

TABULATION = Record(
    "tabulation",
    (
        Field("table", Text("a table"), "the private table", required=True),
        Field("areas", AREAS, "the areas that are counted in", default="everybody together"),
        Field(
            "cells", ListOf(COLUMN, distinct=True),
            "columns of which every combination is counted: with categories, true or false, or bounded whole numbers",
            required=True,
        ),
        Field("breaks", Named(ListOf(Whole(), order="up")), "where numbers are cut, by column: {age: [0, 18, 65]}"),
        Field("where", Text("a condition"), "the rows that count, as in SQL: age >= 18", default="all"),
        Field(
            "sample",
            Amount(above=Fraction(0), most=Fraction(1)),
            "the share of all people in a secret random sample, one in a whole number: 0.1; with epsilon alone",
            default="everybody",
        ),
        Field(
            "measure", ListOf(TABULATION_MARGIN), "margins that are measured in every area beside all cells",
            default="the total",
        ),
        Field(
            "levels", Named(POSITIVE), "how much of the budget each level gets, as weights: {all: 1, block: 3}",
            default="chosen by expected error",
        ),
        Field(
            "invariants", Named(Either((Choice(("total",)), ListOf(COLUMN, distinct=True)))),
            "numbers that are published exactly, without noise, by level: {state: total}; they are not private",
            default="none",
        ),
        _EPSILON,
        _RHO,
        Field("delta", _DELTA, "the probability with which it may fail; with it, noise is Gaussian", default="0"),
    ),
    exactly_one=(("epsilon",), ("rho",)),
    meaning="Counts by area and cell that add up (`deniable tabulate`), within one budget.",
)  # fmt: skip

POLICY = Record(
    "policy",
    (
        Field("version", Whole(1, 1), "the version of this layout", required=True),
        Field(
            "dataset",
            Text("a name of letters, digits, - and _", r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"),
            "the name of what is protected",
            required=True,
        ),
        Field("tables", Named(TABLE, declares="table", least=1), "the tables, by name", required=True),
        Field("budgets", BUDGETS, "how much may be asked, by whom, for what", default="no private answers"),
        Field(
            "stewards",
            ListOf(Text("a name"), least=1, distinct=True),
            "the people who decide on requests, each by name (`deniable approve --by NAME`)",
            default="those with a steward's token",
        ),
        Field("release", RELEASE, "what releases of records must meet"),
        Field(
            "keys", Named(KEY_ENTRY, declares="key"), "where masking keys are kept", default="the key store's folder"
        ),
        Field("epochs", EPOCHS, "when equal questions are answered anew", default="when the steward says so"),
        Field("stream", Named(STREAM), "numbers that are published every day, week or month, by name"),
        Field("tabulation", Named(TABULATION), "counts by area and cell that add up, as of a census, by name"),
        Field("expires", Day(), "the day after which nothing is answered or released", default="never"),
        Field(
            "witness",
            Text("a file or an address"),
            "a file elsewhere, or an http(s) address, that is told the signed head of the ledger once an hour of use",
            default="none",
        ),
        Field(
            "accepts",
            ListOf(Choice(DOUBTS), distinct=True),
            "what the steward stands for although it protects little; `deniable policy check` says by which name",
            default="nothing",
        ),
    ),
    meaning="One policy file.",
)
