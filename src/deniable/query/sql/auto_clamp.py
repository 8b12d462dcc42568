"""AUTO_CLAMP(x): where it stands in a statement, the rows that its bounds are found over, and the statement with them.

The rows are those that the aggregate around it sees: FROM, JOIN and WHERE of the SELECT it stands in, and the FILTER of
the aggregate. They are written anew as the source of a question of its own, which goes through the same compiler as any
other.

**The bounds.** A noisy histogram over powers of two, of both signs, finds where a column's values are.

Bounds that were read from the data would leak its extremes. So a share of the budget buys a histogram with fixed bins
(0, then (1, 2], (2, 4], ... and the same below zero): an ordinary question, compiled, priced and charged like any.
The bounds are the outer edges of the bins that rise above what noise alone reaches, so single extreme rows are clamped.

**Guarantee.** That of the question: each unit is in one bin. The rest is post-processing.
**Utility.** With the stated confidence no empty bin is taken for a full one; a bin is found once it has about twice the
threshold of units. Bounds are powers of two, at most twice as wide as needed.
"""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from deniable.errors import QueryRefused, nearest
from deniable.policy.schema import Column, TableSchema
from deniable.query.algebra.expression import Call, Expression, Kind
from deniable.query.execute import NoisyResults
from deniable.query.plan import QueryPlan
from deniable.query.sql.aggregates import has_aggregate
from deniable.query.sql.clauses import cut_clauses, place_at
from deniable.query.sql.scope import offset_of

NAME = "AUTO_CLAMP"
MOST_CALLS = 20


@dataclass(frozen=True, slots=True)
class AutoClamp:
    """One call: its argument as it was typed, the rows it is over, and the part of the text it takes."""

    argument: str
    named: str
    """WITH and what follows it, where the statement has it."""
    rows: str
    """FROM and JOIN."""
    condition: str
    """WHERE and FILTER, or nothing."""
    start: int
    end: int

    @property
    def meant(self) -> tuple[str, str, str, str]:
        """What is to be bounded, over which rows: equal for calls that have the same bounds."""
        return self.argument, self.rows, self.condition, self.named


def find_auto_clamps(text: str) -> tuple[AutoClamp, ...]:
    """Every call in a statement; one that is not over rows is refused."""
    try:
        tokens = sqlglot.tokenize(text, read="duckdb")
    except SqlglotError:
        return ()
    spans = [
        _find_span(text, tokens, i) for i, token in enumerate(tokens) if _is_auto_clamp(token) and _opens(tokens, i + 1)
    ]
    if not spans:
        return ()
    nodes = _parse_calls(text)
    if len(nodes) != len(spans) or any(a < c < b for a, b in spans for c, _ in spans):
        raise _refuse_call(text, spans[0][0], "AUTO_CLAMP cannot be read here")
    return tuple(_read_call(text, span, node) for span, node in zip(spans, nodes, strict=True))


def _is_auto_clamp(token: Token) -> bool:
    return token.token_type is not TokenType.STRING and token.text.upper() == NAME


def _opens(tokens: list[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN


def _find_span(text: str, tokens: list[Token], at: int) -> tuple[int, int]:
    """From the name to the bracket that closes the call."""
    depth = 0
    for token in tokens[at + 1 :]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return tokens[at].start, token.end + 1
    raise _refuse_call(text, tokens[at].start, "AUTO_CLAMP is not closed")


def _parse_calls(text: str) -> list[exp.Anonymous]:
    """The calls as the parser sees them, in the order of the text."""
    try:
        tree = sqlglot.parse_one(cut_clauses(text).text, read="duckdb")
    except (SqlglotError, RecursionError):
        raise QueryRefused("the statement cannot be read as SQL") from None
    found = [node for node in tree.find_all(exp.Anonymous) if node.name.upper() == NAME]
    if len(found) > MOST_CALLS:
        raise QueryRefused(f"a question has at most {MOST_CALLS} AUTO_CLAMP", remedy="Clamp by hand: CLAMP(x, 0, 100)")
    return sorted(found, key=offset_of)


def _read_call(text: str, span: tuple[int, int], node: exp.Anonymous) -> AutoClamp:
    try:
        return _read_parts(text, span, node)
    except RecursionError:
        raise QueryRefused("the statement is nested too deeply") from None


def _read_parts(text: str, span: tuple[int, int], node: exp.Anonymous) -> AutoClamp:
    if len(node.expressions) != 1 or has_aggregate(node.expressions[0]):
        raise _refuse_call(text, span[0], "AUTO_CLAMP takes one expression over rows")
    if node.find_ancestor(exp.Where, exp.Join, exp.Group) is not None and not _is_inside_select(node):
        raise _refuse_call(text, span[0], "AUTO_CLAMP chooses no rows and no groups")
    select = node.find_ancestor(exp.Select)
    parts = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or [])] if select else []
    if select is None or not parts or parts[0] is None:
        raise _refuse_call(text, span[0], "there are no rows to find bounds of")
    rows, where = " ".join(part.sql(dialect="duckdb") for part in parts), select.args.get("where")
    filtered = node.find_ancestor(exp.Filter, exp.Select)
    tests = [where.this] if where is not None else []
    tests += [filtered.expression.this] if isinstance(filtered, exp.Filter) else []
    condition = " AND ".join(f"({test.sql(dialect='duckdb')})" for test in tests)
    above = node.root().args.get("with_") or node.root().args.get("with")
    named = above.sql(dialect="duckdb") if above is not None and select is node.root() else ""
    if NAME in (rows + condition + named).upper():
        raise _refuse_call(text, span[0], "the rows that AUTO_CLAMP is over are bounded by AUTO_CLAMP themselves")
    return AutoClamp(node.expressions[0].sql(dialect="duckdb"), named, rows, condition, *span)


def _is_inside_select(node: exp.Expression) -> bool:
    """Whether the nearest of WHERE, JOIN, GROUP BY and a SELECT around a call is the SELECT."""
    nearest = node.find_ancestor(exp.Where, exp.Join, exp.Group, exp.Select)
    return isinstance(nearest, exp.Select)


def _refuse_call(text: str, at: int, happened: str) -> QueryRefused:
    return QueryRefused(
        happened,
        place=place_at(text, at),
        expected="SUM(AUTO_CLAMP(charge)), or of any expression over the rows",
        remedy="Clamp by hand: CLAMP(x, 0, 100)",
    )


def insert_bounds(text: str, bounds: Mapping[AutoClamp, tuple[str, str]]) -> str:
    """The statement with CLAMP and bounds for each call."""
    for call in sorted(bounds, key=lambda each: -each.start):
        low, high = bounds[call]
        text = f"{text[: call.start]}CLAMP({call.argument}, {low}, {high}){text[call.end :]}"
    return text


LARGEST = 52
"""The outermost edge is 2^52; beyond it values count as in the outermost bin."""
FINEST = {True: 0, False: -10}
"""The innermost edge by whether the column holds whole numbers: 2^0 = 1, or 2^-10."""
LEAST = 10
"""A bin needs more units than this, however little noise there is: bounds are for the many, not for an outlier."""
SHARE = Fraction(1, 10)
"""The part of a question's budget that AUTO_CLAMP spends on finding bounds."""


@dataclass(frozen=True, slots=True)
class FoundBounds:
    """Noisy bounds: public, like any answer. `found` is false where no bin rose above the noise."""

    lower: Fraction
    upper: Fraction
    threshold: int
    """A bin counted from so many units (with noise) on."""
    found: bool = True

    @property
    def written(self) -> tuple[str, str]:
        """Both ends as SQL numbers."""
        return _render_number(self.lower), _render_number(self.upper)


def _render_number(value: Fraction) -> str:
    return str(int(value)) if value.denominator == 1 else f"{float(value):.10f}".rstrip("0")


def bin_edges(whole: bool) -> tuple[Fraction, ...]:
    """The positive edges of the bins, rising."""
    return tuple(Fraction(2) ** power for power in range(FINEST[whole], LARGEST + 1))


def write_bounds_query(table: TableSchema, column: Column) -> str:
    """The question whose answer has one row for each bin: its number (0 around zero, negative below) and its units."""
    name = f'"{column.name}"'
    unit = table.unit.column if table.unit else None
    counted = f'COUNT(DISTINCT "{unit}")' if unit else "COUNT(*)"
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) " if unit else ""
    bins = _render_bins(name, column.type == "integer")
    return f'SELECT {options}{bins} AS bin, {counted} AS units FROM "{table.name}" WHERE {name} IS NOT NULL GROUP BY 1'


def write_bounds_query_over(argument: str, rows: str, condition: str, named: str = "") -> str:
    """The same for an expression over the rows of FROM, JOIN and WHERE: each unit counts once, by one of its rows."""
    select = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1, max_rows_per_group = 1)"
    where = f"({condition}) AND ({argument}) IS NOT NULL" if condition else f"({argument}) IS NOT NULL"
    bins = _render_bins(f"({argument})", whole=False)
    return f"{named} {select} {bins} AS bin, COUNT(*) AS units {rows} WHERE {where} GROUP BY 1".strip()


def _render_bins(name: str, whole: bool) -> str:
    rising, zero = bin_edges(whole), "0" if whole else _render_number(bin_edges(False)[0] / 2)
    above = [f"WHEN {name} > {_render_number(edge)} THEN {i + 2}" for i, edge in reversed(list(enumerate(rising[:-1])))]
    below = [
        f"WHEN {name} < {_render_number(-edge)} THEN {-(i + 2)}" for i, edge in reversed(list(enumerate(rising[:-1])))
    ]
    inner = [f"WHEN {name} > {zero} THEN 1", f"WHEN {name} < -{zero} THEN -1"]
    return f"CASE {' '.join([*above, *below, *inner])} ELSE 0 END"


def find_numeric_column(table: TableSchema, name: str) -> Column:
    """The column to be bounded, or a refusal that names the nearest."""
    known = {column.name.lower(): column for column in table.columns}
    column = known.get(name.lower())
    if column is None:
        raise QueryRefused(f"there is no column '{name}' in '{table.name}'", remedy=nearest(name, known))
    if not column.type.numeric:
        raise QueryRefused(f"bounds are found for numbers, and '{column.name}' is {column.type}")
    if table.public:
        raise QueryRefused(f"'{table.name}' is public: its bounds need no privacy")
    return column


def read_bounds(plan: QueryPlan, measured: NoisyResults, whole: bool, confidence: float) -> FoundBounds:
    """The outer edges of the bins that rise above the noise; those of whole numbers begin at 1."""
    node = plan.nodes[0]
    noisy = measured[node.node.name][0]
    bins = np.array(noisy.keys.column(0).to_pylist(), dtype=np.int64)
    threshold = max(node.steps[0].placed[0].accuracy(1 - confidence, max(bins.size, 1)), LEAST)
    full = np.sort(bins[noisy.values[0] > threshold])
    if not full.size:
        return FoundBounds(Fraction(0), Fraction(1), threshold, found=False)
    return FoundBounds(_lower_edge(int(full[0]), whole), _upper_edge(int(full[-1]), whole), threshold)


def round_bounds(found: FoundBounds, plan: QueryPlan) -> FoundBounds:
    """Bounds of an expression that has whole numbers are whole numbers too."""
    (_, bins), *_ = plan.nodes[0].node.keys
    if not any(ref.facts.kind is Kind.INTEGER for ref in _find_compared(bins)):
        return found
    return replace(found, lower=Fraction(math.floor(found.lower)), upper=Fraction(math.ceil(found.upper)))


def _find_compared(bins: Expression) -> Iterator[Expression]:
    """What the first condition of the CASE compares with an edge."""
    if isinstance(bins, Call) and isinstance(bins.arguments[0], Call):
        yield bins.arguments[0].arguments[0]


def _upper_edge(number: int, whole: bool) -> Fraction:
    """The upper edge of a bin: 0 is around zero, 1 ends at the first edge, -1 at zero."""
    if number <= 0:
        return Fraction(0) if number == 0 or number == -1 else -bin_edges(whole)[-number - 2]
    return bin_edges(whole)[number - 1]


def _lower_edge(number: int, whole: bool) -> Fraction:
    return -_upper_edge(-number, whole)
