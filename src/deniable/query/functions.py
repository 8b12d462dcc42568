"""The allow-list: every function a question may use on a row, with the rule of its facts and its engine form.

All of them are total. In the engine arithmetic runs in DOUBLE, where overflow is infinity and not an error; divisors
pass through NULLIF; casts are TRY_CAST. So no value of a row can make a query fail, and a refusal never depends on
rows. A row's rounding errors do no harm: what is summed is clamped and rounded to whole steps afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from deniable.query import intervals as rule
from deniable.query import texts_and_dates as word
from deniable.query.expression import Call, Expression, Kind, literal
from deniable.query.intervals import Mismatch, Rule
from deniable.query.texts_and_dates import PARTS, TRUNCATIONS


@dataclass(frozen=True, slots=True)
class Function:
    """One allow-listed function: how many arguments, what follows for the result, and how the engine spells it."""

    name: str
    least: int
    most: int
    rule: Rule
    template: str
    """With {0}, {1} ... for arguments as they are, {n0} ... for arguments as DOUBLE, {*} for all, comma-separated."""


def _table() -> dict[str, Function]:
    floor, ceil = (lambda x: Fraction(math.floor(x))), (lambda x: Fraction(math.ceil(x)))
    one = Fraction(1)
    listed = [
        Function("add", 2, 2, rule.addition(1), "({n0} + {n1})"),
        Function("subtract", 2, 2, rule.addition(-1), "({n0} - {n1})"),
        Function("multiply", 2, 2, rule.multiplication, "({n0} * {n1})"),
        Function("divide", 2, 2, rule.division, "({n0} / NULLIF({n1}, 0))"),
        Function("modulo", 2, 2, rule.modulo, "({n0} % NULLIF({n1}, 0))"),
        Function("negate", 1, 1, rule.negation, "(-{n0})"),
        Function("abs", 1, 1, rule.absolute, "abs({n0})"),
        Function("floor", 1, 1, rule.monotone(floor, Kind.INTEGER, one), "floor({n0})"),
        Function("ceil", 1, 1, rule.monotone(ceil, Kind.INTEGER, one), "ceil({n0})"),
        Function("round", 1, 2, rule.rounded, "round({n0}{, int1})"),
        Function("sqrt", 1, 1, rule.smooth(math.sqrt, 0.0), "sqrt({n0})"),
        Function("exp", 1, 1, rule.smooth(math.exp), "exp({n0})"),
        Function("ln", 1, 1, rule.smooth(math.log, 1e-300), "ln(NULLIF(greatest({n0}, 0), 0))"),
        Function("least", 1, 9, rule.extreme(least=True), "least({*})"),
        Function("greatest", 1, 9, rule.extreme(least=False), "greatest({*})"),
        Function("clamp", 3, 3, rule.clamp, "(CASE WHEN {0} IS NOT NULL THEN greatest({1}, least({2}, {0})) END)"),
        Function("eq", 2, 2, rule.comparison, "({0} = {1})"),
        Function("ne", 2, 2, rule.comparison, "({0} <> {1})"),
        Function("lt", 2, 2, rule.comparison, "({0} < {1})"),
        Function("le", 2, 2, rule.comparison, "({0} <= {1})"),
        Function("gt", 2, 2, rule.comparison, "({0} > {1})"),
        Function("ge", 2, 2, rule.comparison, "({0} >= {1})"),
        Function("in", 2, 10_000, rule.comparison, "({0} IN ({rest}))"),
        Function("and", 2, 2, rule.logic, "({0} AND {1})"),
        Function("or", 2, 2, rule.logic, "({0} OR {1})"),
        Function("not", 1, 1, rule.logic, "(NOT {0})"),
        Function("is_null", 1, 1, rule.truth, "({0} IS NULL)"),
        Function("is_true", 1, 1, rule.logic, "({0} IS TRUE)"),
        Function("is_false", 1, 1, rule.logic, "({0} IS FALSE)"),
        Function("like", 2, 2, word.text_test, "({0} LIKE {1})"),
        Function("ilike", 2, 2, word.text_test, "({0} ILIKE {1})"),
        Function("starts_with", 2, 2, word.text_test, "starts_with({0}, {1})"),
        Function("ends_with", 2, 2, word.text_test, "ends_with({0}, {1})"),
        Function("contains", 2, 2, word.text_test, "contains({0}, {1})"),
        Function("coalesce", 1, 20, rule.coalesce, "COALESCE({*})"),
        Function("nullif", 2, 2, rule.nullif, "NULLIF({0}, {1})"),
        Function("case", 3, 2_001, rule.branches, "{case}"),
        Function("lower", 1, 1, word.text(1), "lower({0})"),
        Function("upper", 1, 1, word.text(1), "upper({0})"),
        Function("trim", 1, 1, word.text(1), "trim({0})"),
        Function("substring", 2, 3, word.text(1), "substr({0}, {int1}{, int2})"),
        Function("left", 2, 2, word.text(1), "left({0}, {int1})"),
        Function("right", 2, 2, word.text(1), "right({0}, {int1})"),
        Function("replace", 3, 3, word.text(3), "replace({0}, {1}, {2})"),
        Function("concat", 2, 20, word.text(20), "concat({*})"),
        Function("length", 1, 1, word.length, "length({0})"),
        Function("year", 1, 1, word.year, "year({0})"),
        Function("date_diff", 2, 2, word.day_difference, "date_diff('day', {0}, {1})"),
        Function("cast_integer", 1, 1, word.cast(Kind.INTEGER), "TRY_CAST(round(TRY_CAST({0} AS DOUBLE)) AS BIGINT)"),
        Function("cast_decimal", 1, 1, word.cast(Kind.DECIMAL), "TRY_CAST({0} AS DOUBLE)"),
        Function("cast_text", 1, 1, word.cast(Kind.TEXT), "TRY_CAST({0} AS VARCHAR)"),
        Function("cast_boolean", 1, 1, word.cast(Kind.BOOLEAN), "TRY_CAST({0} AS BOOLEAN)"),
        Function("cast_date", 1, 1, word.cast(Kind.DATE), "TRY_CAST({0} AS DATE)"),
        Function("cast_datetime", 1, 1, word.cast(Kind.DATETIME), "TRY_CAST({0} AS TIMESTAMP)"),
    ]
    listed += [Function(f"part_{part}", 1, 1, word.part(part), f"extract({part} FROM {{0}})") for part in PARTS]
    for unit in TRUNCATIONS:
        kind = "TIMESTAMP" if unit in ("hour", "minute") else "DATE"
        template = f"CAST(date_trunc('{unit}', {{0}}) AS {kind})"
        listed.append(Function(f"trunc_{unit}", 1, 1, word.truncation(unit), template))
    return {function.name: function for function in listed}


FUNCTIONS: dict[str, Function] = _table()


STRICT = ("year", "part_", "trunc_", "date_diff", "lower", "upper", "trim", "substring", "left", "right", "replace",
          "length", "like", "ilike", "starts_with", "ends_with", "contains")  # fmt: skip
"""Functions of texts and dates that are null where an argument is; a bare NULL has no type the engine could go by."""


def call(name: str, *arguments: Expression) -> Expression:
    """Apply an allow-listed function; Mismatch says what does not fit."""
    function = FUNCTIONS[name]
    if not function.least <= len(arguments) <= function.most:
        raise Mismatch(f"takes {function.least} to {function.most} arguments, not {len(arguments)}")
    facts = function.rule(tuple(argument.facts for argument in arguments))
    if name.startswith(STRICT) and any(argument.facts.kind is Kind.NULL for argument in arguments):
        return literal(None)
    return Call(name, arguments, facts)
