"""What a release must meet: privacy models, minimization, attack thresholds, truths and tables for synthetic rows."""

from __future__ import annotations

from fractions import Fraction

from deniable.policy.grammar import (
    COLUMN,
    POSITIVE,
    SHARE,
    Amount,
    Choice,
    Either,
    Field,
    Flag,
    Kind,
    Kinds,
    ListOf,
    Named,
    Record,
    Text,
    Whole,
    Written,
)

ATTACKS = (
    "uniqueness",
    "linkage",
    "fuzzy_linkage",
    "ratings",
    "traces",
    "network",
    "singling_out",
    "linkability",
    "inference",
    "membership",
    "reconstruction",
    "tables",
    "differencing",
    "auditing",
    "tokens",
    "projection",
    "combining",
    "minimality",
    "downcoding",
)

_AT_LEAST_ONE = Amount(least=Fraction(1))
_MORE_THAN_ONE = Amount(above=Fraction(1))
_COLUMN = Field("column", COLUMN, "the sensitive column", required=True)

MODELS = Kinds(
    "privacy model",
    (
        Kind(
            "k_map",
            "Each class has at least k people in the population, estimated from its size.",
            (Field("k", Whole(1), "people", required=True), Field("population", Whole(1), "its size", required=True)),
            example="{k_map: {k: 5, population: 54000}}",
        ),
        Kind(
            "entropy_diversity",
            "The entropy of the sensitive values in each class is at least log l.",
            (_COLUMN, Field("l", _AT_LEAST_ONE, "the effective number of values", required=True)),
            example="{entropy_diversity: {column: diagnosis, l: 3}}",
        ),
        Kind(
            "recursive_diversity",
            "The most frequent value is rarer than c times all from the l-th on.",
            (
                _COLUMN,
                Field("c", POSITIVE, "the factor", required=True),
                Field("l", Whole(1), "the rank", required=True),
            ),
            example="{recursive_diversity: {column: diagnosis, c: 3, l: 3}}",
        ),
        Kind(
            "closeness",
            "The values of each class are distributed nearly as in the table (t-closeness), by a distance of choice.",
            (
                _COLUMN,
                Field("t", SHARE, "the distance from the table", required=True),
                Field(
                    "distance",
                    Choice(("equal", "ordered", "hierarchical")),
                    "how far two values are apart: all alike, by their order, or along the column's hierarchy",
                    default="equal",
                ),
            ),
            example="{closeness: {column: diagnosis, t: 0.2, distance: hierarchical}}",
        ),
        Kind(
            "delta_presence",
            "The probability that somebody of the population is in the table stays within limits.",
            (Field("least", SHARE, "lower limit", default="0"), Field("most", SHARE, "upper limit", required=True)),
            example="{delta_presence: {most: 0.2}}",
        ),
        Kind(
            "delta_disclosure",
            "In each class the share of every value stays within a factor of its share in the table.",
            (_COLUMN, Field("delta", POSITIVE, "log of the factor", required=True)),
            example="{delta_disclosure: {column: diagnosis, delta: 1}}",
        ),
        Kind(
            "beta_likeness",
            "In each class the share of a value grows by at most the factor 1 + beta.",
            (
                _COLUMN,
                Field("beta", POSITIVE, "the growth", required=True),
                Field("enhanced", Flag(), "limit the growth of frequent values further", default="false"),
            ),
            example="{beta_likeness: {column: diagnosis, beta: 2}}",
        ),
        Kind(
            "average_risk",
            "The average probability of re-identification stays under a limit.",
            (Field("most", SHARE, "the limit", required=True),),
            short="most",
            example="{average_risk: 0.05}",
        ),
    ),
)

ANONYMIZE = Record(
    "anonymize",
    (
        Field("k", Whole(2, 10**9), "rows that look alike in every class", default="5"),
        Field("l", Named(_MORE_THAN_ONE, refers="column"), "distinct sensitive values in every class, by column"),
        Field("t", Named(SHARE, refers="column"), "distance of a class from the whole table, by column (t-closeness)"),
        Field("models", ListOf(MODELS), "further privacy models"),
        Field("suppress", SHARE, "the share of rows that may be left out", default="0"),
        Field(
            "second_release",
            Choice(("warn", "refuse")),
            "what happens to a release that, with an earlier one of the same table, shows groups under k",
            default="warn",
        ),
    ),
    meaning="What a k-anonymous release must meet.",
)

MINIMIZE = Record(
    "minimize",
    (
        Field("sample", Amount(above=Fraction(0), most=Fraction(1)), "the share of units kept", default="1"),
        Field("columns", ListOf(COLUMN, distinct=True), "the columns kept", default="all"),
    ),
    meaning="What a record-level release is cut down to before anything else.",
)

ATTACK = Record(
    "attack",
    (
        Field("knows", ListOf(COLUMN, distinct=True), "what the intruder knows", default="the quasi-identifiers"),
        Field(
            "most",
            Record(
                "attack thresholds", tuple(Field(a, SHARE, f"share of people that {a} may expose") for a in ATTACKS)
            ),
            "the share of people an attack may expose; mask, anonymize, attack, start and synthesize --attack refuse "
            "what is above it",
        ),
        Field(
            "accepted_by",
            Text("a person's name"),
            "who stands for masked and k-anonymous rows beyond it; the name is in their statements and in the ledger",
            default="nobody: such rows are refused",
        ),
    ),
    meaning="How a release is attacked before it leaves, and what it must withstand.",
)

JOINT = Record(
    "joint",
    (
        Field("most", SHARE, "the share of people that all released columns together may single out", required=True),
        Field(
            "accepted_by",
            Text("a person's name"),
            "who stands for releases beyond it; the name is in their statements and in the ledger",
            default="nobody: such a release is refused",
        ),
    ),
    meaning="A limit on what somebody could do who knows all released columns of a person.",
)

TRUTHS = Kinds(
    "truth",
    (
        Kind(
            "determines",
            "A functional dependency: equal values in `from` mean equal values in `to`.",
            (
                Field("from", ListOf(COLUMN, distinct=True), "the determining columns", required=True),
                Field("to", ListOf(COLUMN, distinct=True), "the determined columns", required=True),
            ),
            example="{determines: {from: [zip], to: [city]}}",
        ),
        Kind(
            "impossible",
            "A combination that never occurs: a value, or a list of values, for each column.",
            (
                Field(
                    "when",
                    Named(Either((Written(), ListOf(Written()))), refers="column", least=1),
                    "the combination",
                    required=True,
                ),
            ),
            example="{impossible: {when: {sex: M, diagnosis: pregnancy}}}",
        ),
        Kind(
            "holds",
            "A condition in SQL that no row breaks; as in SQL, a null breaks none.",
            (Field("condition", Text("a condition in SQL"), "the condition", required=True),),
            short="condition",
            example='{holds: "age >= 18 OR married = false"}',
        ),
        Kind(
            "order",
            "Columns whose values never fall from left to right, such as admission and discharge.",
            (
                Field("columns", ListOf(COLUMN, least=2, distinct=True), "the columns", required=True),
                Field("strict", Flag(), "they always rise", default="false"),
            ),
            short="columns",
            example="{order: [admitted, discharged]}",
        ),
        Kind(
            "sum",
            "Columns that add up to another.",
            (
                Field("parts", ListOf(COLUMN, least=1, distinct=True), "the columns added", required=True),
                Field("total", COLUMN, "their sum", required=True),
            ),
            example="{sum: {parts: [room, drugs], total: charge}}",
        ),
    ),
)

SYNTHESIZE = Record(
    "synthesize",
    (
        Field(
            "workload",
            ListOf(ListOf(COLUMN, least=2, distinct=True)),
            "tables that matter: lists of columns of one table that synthetic rows should get right together, such as "
            "`[[age, sex, ward], [payer, charge]]`",
        ),
    ),
    meaning="What synthetic rows are for. A request may ask for further tables.",
)

RELEASE = Record(
    "release",
    (
        Field("anonymize", ANONYMIZE, "privacy models of k-anonymous releases"),
        Field("minimize", MINIMIZE, "columns and sample of record-level releases"),
        Field("attack", ATTACK, "thresholds that a release must stay under"),
        Field("joint", JOINT, "how many people all released columns together may single out", default="no limit"),
        Field("truths", ListOf(TRUTHS), "public truths that synthetic rows must keep exactly"),
        Field("synthesize", SYNTHESIZE, "what synthetic rows are for"),
    ),
    meaning="Defaults for releases, which a command or a request may tighten but not loosen.",
)
