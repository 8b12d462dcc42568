"""The words an analyst may use, as they are written: what the reference page lists and the tests try one by one.

In the forms x and y are numbers, t is a text, d a date, c a condition.
"""

from __future__ import annotations

from deniable.query.texts_and_dates import PARTS, TRUNCATIONS

FORMS: dict[str, str] = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "modulo": "x % y", "negate": "-x",
    "abs": "ABS(x)", "floor": "FLOOR(x)", "ceil": "CEIL(x)", "round": "ROUND(x, 2)", "sqrt": "SQRT(x)",
    "exp": "EXP(x)", "ln": "LN(x)", "least": "LEAST(x, y)", "greatest": "GREATEST(x, y)",
    "clamp": "CLAMP(x, 0, 100)", "eq": "x = y", "ne": "x <> y", "lt": "x < y", "le": "x <= y", "gt": "x > y",
    "ge": "x >= y", "in": "x IN (1, 2)", "and": "c AND c", "or": "c OR c", "not": "NOT c", "is_null": "x IS NULL",
    "is_true": "c IS TRUE", "is_false": "c IS FALSE", "like": "t LIKE 'a%'", "ilike": "t ILIKE 'A_'",
    "starts_with": "STARTS_WITH(t, 'a')", "ends_with": "ENDS_WITH(t, 'a')", "contains": "CONTAINS(t, 'a')",
    "coalesce": "COALESCE(x, 0)", "nullif": "NULLIF(x, 0)", "case": "CASE WHEN c THEN x ELSE y END",
    "lower": "LOWER(t)", "upper": "UPPER(t)", "trim": "TRIM(t)", "substring": "SUBSTRING(t, 1, 3)",
    "left": "LEFT(t, 3)", "right": "RIGHT(t, 3)", "replace": "REPLACE(t, 'a', 'b')", "concat": "CONCAT(t, '-', t)",
    "length": "LENGTH(t)", "year": "YEAR(d)", "date_diff": "DATE_DIFF('day', d, d)",
    "cast_integer": "CAST(x AS INTEGER)", "cast_decimal": "CAST(x AS DOUBLE)", "cast_text": "CAST(x AS TEXT)",
    "cast_boolean": "CAST(t AS BOOLEAN)", "cast_date": "CAST(t AS DATE)", "cast_datetime": "CAST(t AS TIMESTAMP)",
}  # fmt: skip
FORMS |= {f"part_{part}": f"EXTRACT({part} FROM d)" for part in PARTS}
FORMS |= {f"trunc_{unit}": f"DATE_TRUNC('{unit}', d)" for unit in TRUNCATIONS}

AGGREGATES: tuple[tuple[str, str, str], ...] = (
    ("COUNT(*)", "how many rows", "one count"),
    ("COUNT(x)", "how many rows have a value", "one count"),
    ("COUNT_IF(c)", "how many rows satisfy a condition", "one count"),
    ("COUNT(DISTINCT x)", "how many different values; of the unit's own column, how many units", "one count"),
    ("SUM(x)", "the sum of clamped values", "one sum"),
    ("AVG(x)", "the mean of clamped values", "a sum and a count"),
    ("VARIANCE(x)", "the sample variance; VAR_POP for that of the rows themselves", "a sum, a sum of squares, a count"),
    ("STDDEV(x)", "the root of VARIANCE; STDDEV_POP of VAR_POP", "a sum, a sum of squares, a count"),
    ("MIN(x)", "a value near the least, by rank", "one choice in each group"),
    ("MAX(x)", "a value near the greatest, by rank", "one choice in each group"),
    ("MEDIAN(x)", "a value near the middle, by rank", "one choice in each group"),
    (
        "QUANTILE(x, 0.9)",
        "a value near that rank; QUANTILE(x, [0.1, 0.9]) for several",
        "one choice for a rank; two for three ranks, four for nine",
    ),
    ("HISTOGRAM(x, 10)", "counts in so many equal bins between the bounds", "one count for all bins"),
)
"""Each aggregate with its meaning, and what is measured for it; any of them takes FILTER (WHERE ...)."""
