"""AUTO_CLAMP(x): where it stands in a statement, the rows that its bounds are found over, and the statement with them.

The rows are those that the aggregate around it sees: FROM, JOIN and WHERE of the SELECT it stands in, and the FILTER of
the aggregate. They are written anew as the source of a question of its own, which goes through the same compiler as any
other.

**The bounds.** A noisy histogram over powers of two, of both signs, finds where a column's values are.

Bounds that were read from the data would leak its extremes. So a share of the budget buys a histogram with fixed bins
(0, then (1, 2], (2, 4], ... and the same below zero): an ordinary question, compiled, priced and charged like any.
The bounds are the outer edges of the bins that rise above what noise alone reaches, so single extreme rows are clamped.
Those that values are clamped by contain 0, and are symmetric where values of both signs are seen.

**Guarantee.** That of the question: each unit is in one bin. The rest is post-processing.
**Utility.** With the stated confidence no empty bin is taken for a full one, but for the next beyond the outermost; a
bin is found once it has about twice the threshold of units. Bounds are powers of two, mostly at most twice as wide as
needed.
"""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import sqlglot
from numpy.typing import NDArray
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from deniable.errors import QueryRefused, nearest
from deniable.policy.schema import Column, TableSchema
from deniable.query.algebra.expression import Call, Expression, Kind
from deniable.query.algebra.relation import Measure, Relation, find_noisy_nodes
from deniable.query.execute import NoisyResults
from deniable.query.plan import QueryPlan
from deniable.query.sql.aggregates import UNBOUNDED_PAIR, has_aggregate
from deniable.query.sql.clauses import cut_clauses, find_closing, parse_tokens, place_at, refuse_depth, tokens_of
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
        plain = cut_clauses(text).text
        trees = [tree for tree in parse_tokens(tokens_of(plain), plain) if tree is not None]
    except SqlglotError:
        raise QueryRefused("the statement cannot be read as SQL") from None
    except RecursionError:
        raise refuse_depth() from None
    found = [node for tree in trees for node in tree.find_all(exp.Anonymous) if node.name.upper() == NAME]
    if len(found) > MOST_CALLS:
        raise QueryRefused(f"a question has at most {MOST_CALLS} AUTO_CLAMP", remedy="Clamp by hand: CLAMP(x, 0, 100)")
    return sorted(found, key=offset_of)


def _read_call(text: str, span: tuple[int, int], node: exp.Anonymous) -> AutoClamp:
    try:
        return _read_parts(text, span, node)
    except RecursionError:
        raise refuse_depth() from None


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


UNBOUNDED = (Measure.SUM, Measure.AVG, Measure.VARIANCE, Measure.STDDEV, Measure.MIN, Measure.MAX, Measure.QUANTILE)


Span = tuple[int, int]


def wrap_unbounded(text: str, bind: Callable[[str], Relation]) -> tuple[str, Relation]:
    """The statement with AUTO_CLAMP around what is aggregated without public bounds, where it is a number.

    Equal aggregates are bound to one, which has the place of the first; so it is bound again, with some bounds for
    those that were found, until none is without. `bind` reads a statement; what it gave last is given too.
    """
    tokens, calls = tokens_of(text), find_auto_clamps(text)
    spans: set[Span] = set()
    while True:
        shown, moved = _fill_placeholders(text, calls, spans)
        try:
            relation = bind(shown)
        except QueryRefused as refusal:
            pair = _find_pair(tokens, shown, refusal, moved) - spans
            if not pair:
                raise
            spans |= next(({each} for each in sorted(pair) if _helps(text, calls, spans | {each}, bind, pair)), pair)
            continue
        places = {_move_back(place, moved) for place in _list_open(relation)}
        found = {span for place in places if (span := _find_value(tokens, place)) is not None}
        if found <= spans or len(spans | found) > MOST_CALLS:
            return _wrap(text, spans, NAME + "(", ")")[0], relation
        spans |= found


def _helps(
    text: str, calls: Sequence[AutoClamp], spans: set[Span], bind: Callable[[str], Relation], pair: set[Span]
) -> bool:
    """Whether a pair is no longer refused once some more values have bounds."""
    shown, moved = _fill_placeholders(text, calls, spans)
    try:
        bind(shown)
    except QueryRefused as refusal:
        return not pair & _find_pair(tokens_of(text), shown, refusal, moved)
    return True


def _list_open(relation: Relation) -> Iterator[int]:
    """The places of aggregates of numbers without bounds."""
    for aggregate in (each for node in find_noisy_nodes(relation) for _, each in node.aggregates):
        facts = aggregate.argument.facts if aggregate.argument is not None else None
        open_ended = facts is not None and facts.kind.numeric and (facts.lower is None or facts.upper is None)
        if open_ended and aggregate.measure in UNBOUNDED and aggregate.per_group is None:
            yield aggregate.place


def _fill_placeholders(text: str, calls: Sequence[AutoClamp], spans: set[Span]) -> tuple[str, list[tuple[int, int]]]:
    """The statement with bounds 0 and 1, and where it became longer by how much."""
    for call in calls:
        opening = text.index("(", call.start)
        text = text[: call.start] + "CLAMP".rjust(opening - call.start) + text[opening:]
    ends = {call.end - 1: ", 0, 1" for call in calls}
    return _wrap(text, spans, "CLAMP(", ", 0, 1)", ends)


def _wrap(
    text: str, spans: set[Span], before: str, after: str, more: Mapping[int, str] | None = None
) -> tuple[str, list[tuple[int, int]]]:
    pieces = sorted([*((a, before) for a, _ in spans), *((b, after) for _, b in spans), *(more or {}).items()])
    for at, piece in reversed(pieces):
        text = text[:at] + piece + text[at:]
    return text, [(at, len(piece)) for at, piece in pieces]


def _move_back(place: int, moved: list[tuple[int, int]]) -> int:
    """A place in the longer statement as one in the statement as it was typed."""
    shift = 0
    for at, length in moved:
        shift += length if at + shift + length <= place else 0
    return place - shift


def _find_pair(tokens: list[Token], shown: str, refusal: QueryRefused, moved: list[tuple[int, int]]) -> set[Span]:
    """Both arguments of a statistic of two columns, at the place of its refusal; none where it is of something else."""
    if refusal.place is None or UNBOUNDED_PAIR not in refusal.happened:
        return set()
    above = shown.split("\n")[: refusal.place.line - 1]
    place = sum(len(line) + 1 for line in above) + refusal.place.column - 1
    return set(_list_arguments(tokens, _move_back(place, moved)))


def _find_value(tokens: list[Token], place: int) -> Span | None:
    """What the aggregate at a place is of: its first argument, or what WITHIN GROUP orders by."""
    listed = _list_arguments(tokens, place)
    return listed[0] if listed else None


def _list_arguments(tokens: list[Token], place: int) -> list[Span]:
    """The arguments of the call whose name, or whose first argument, is at a place; none where one is AUTO_CLAMP."""
    at = next((i for i, token in enumerate(tokens) if token.start == place), None)
    if at is None:
        return []
    opening = at + 1 if _opens(tokens, at + 1) else _find_opening(tokens, at)
    if opening is None or (closing := find_closing(tokens, opening)) < 0:
        return []
    within = [token.text.upper() for token in tokens[closing + 1 : closing + 6]]
    if within[:5] == ["WITHIN", "GROUP", "(", "ORDER", "BY"] or within[:4] == ["WITHIN", "GROUP", "(", "ORDER BY"]:
        opening = closing + (5 if within[3] == "ORDER" else 4)
        closing = find_closing(tokens, closing + 3)
    inside = tokens[opening + 1 : closing]
    if inside and inside[0].text.upper() == "DISTINCT":
        inside = inside[1:]
    if inside and inside[-1].text.upper() in ("ASC", "DESC"):
        inside = inside[:-1]
    return [
        (part[0].start, part[-1].end + 1) for part in _split_at_commas(inside) if part and not _is_auto_clamp(part[0])
    ]


def _find_opening(tokens: list[Token], at: int) -> int | None:
    """The bracket that a token stands in."""
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (tokens[i].token_type is TokenType.R_PAREN) - (tokens[i].token_type is TokenType.L_PAREN)
        if depth < 0:
            return i
    return None


def _split_at_commas(tokens: list[Token]) -> Iterator[list[Token]]:
    depth = 0
    part: list[Token] = []
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0 and token.token_type is TokenType.COMMA:
            yield part
            part = []
        else:
            part.append(token)
    yield part


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

    @property
    def reach(self) -> Fraction:
        """The largest value that is left as it is, of either sign."""
        return max(-self.lower, self.upper)

    @property
    def widest(self) -> bool:
        """Whether they end where the outermost bin does, in which all values beyond are counted too."""
        return self.reach >= Fraction(2) ** LARGEST


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
    """Where values are: the outer edges of the bins that rise above the noise; those of whole numbers begin at 1.

    Where a sign has no such bin, and its bins rise above the noise together, these are the bounds to clamp by.
    """
    wide = read_clamp(plan, measured, confidence, whole)
    node = plan.nodes[0]
    noisy = measured[node.node.name][0]
    bins = np.array(noisy.keys.column(0).to_pylist(), dtype=np.int64)
    threshold = max(node.steps[0].placed[0].accuracy(1 - confidence, max(bins.size, 1)), LEAST)
    full = np.sort(bins[noisy.values[0] > threshold])
    if not full.size or (wide.lower < 0 < wide.upper and not full[0] < 0 < full[-1]):
        return wide
    return FoundBounds(_lower_edge(int(full[0]), whole), _upper_edge(int(full[-1]), whole), threshold)


def read_clamp(plan: QueryPlan, measured: NoisyResults, confidence: float, whole: bool = False) -> FoundBounds:
    """Bounds to clamp values by: they contain 0, so that a value which is cut moves a sum toward 0 and never from it.

    The outer edge is that of the outermost bin that rises above the noise, of either sign; or of neighboring bins
    beyond it which do so together. Both signs have this edge, unless one of them is not seen inside it: a sum has the
    same noise for (-128, 128) as for (0, 128), and that of an average is at most twice that of the tightest bounds for
    values of one sign.
    """
    node = plan.nodes[0]
    noisy, placed = measured[node.node.name][0], node.steps[0].placed[0]
    bins = np.array(noisy.keys.column(0).to_pylist(), dtype=np.int64)
    threshold = max(placed.accuracy(1 - confidence, max(bins.size, 1)), LEAST)
    sides = np.zeros((2, len(bin_edges(whole)) + 1))  # above zero and below it, by the number of the bin
    for number, units in zip(bins.tolist(), noisy.values[0].tolist(), strict=True):
        if number:
            sides[int(number < 0), abs(number)] = units
    outer = _find_outer(sides, threshold, placed.deviation)
    if not outer:
        return FoundBounds(Fraction(0), Fraction(1), threshold, found=False)
    tails = np.cumsum(sides[:, outer:0:-1], axis=1)
    least = np.maximum(SEEN * placed.deviation * np.sqrt(np.arange(1, outer + 1)), LEAST)
    above, below = (
        bool((tail > least).any() or side.max() > threshold) for tail, side in zip(tails, sides, strict=True)
    )
    edge = _upper_edge(outer, whole)
    low, high = -edge if below or not above else Fraction(0), edge if above or not below else Fraction(0)
    return FoundBounds(low, high, threshold)


WINDOWS = (1, 2, 4)
"""So many neighboring bins, of both signs, are looked at together."""
SEEN = 3.5
"""So many deviations above 0, a sum of bins is no longer taken for noise."""
NEXT = 1.5
"""So many are enough for the bin next to one with units: a tail that is cut costs more than bounds twice as wide."""


def _find_outer(sides: NDArray[np.float64], threshold: int, deviation: float) -> int:
    """The number of the outermost bin that has units, of either sign; 0 where none rises above the noise."""
    both, alone = sides.sum(axis=0), np.flatnonzero((sides > threshold).any(axis=0))
    outer = int(alone[-1]) if alone.size else 0
    found = outer
    for width in WINDOWS:
        for start in range(outer + 1, both.size - width + 1):
            window = both[start : start + width]
            if window.sum() > 1.1 * threshold * math.sqrt(2 * width):
                high = np.flatnonzero(window > 2 * math.sqrt(2) * deviation)
                found = max(found, start + int(high[-1] if high.size else window.argmax()))
    while 0 < found < both.size - 1 and sides[:, found + 1].max() > max(NEXT * deviation, LEAST):
        found += 1
    return found


def round_bounds(found: FoundBounds, plan: QueryPlan) -> FoundBounds:
    """Bounds of an expression that has whole numbers are whole numbers too."""
    (_, bins), *_ = plan.nodes[0].node.keys
    if not any(ref.facts.kind is Kind.INTEGER for ref in _find_compared(bins)):
        return found
    return replace(found, lower=Fraction(math.floor(found.lower)), upper=Fraction(math.ceil(found.upper)))


def list_narrower(found: Sequence[FoundBounds], signed: bool) -> list[tuple[FoundBounds, ...]]:
    """The same bounds within ever smaller powers of two, the largest first and 1 last; or those from 0 to them.

    >>> of = [FoundBounds(Fraction(-4), Fraction(4), 10)]
    >>> [each.written for (each,) in list_narrower(of, True)], [each.written for (each,) in list_narrower(of, False)]
    ([('-2', '2'), ('-1', '1')], [('0', '4'), ('0', '2'), ('0', '1')])
    """
    widest = max((each.reach for each in found), default=Fraction(0))
    edges = [
        edge
        for edge in reversed(bin_edges(whole=True))
        if (edge < widest if signed else edge <= max(widest, Fraction(1)))
    ]
    return [tuple(_cut(each, edge, signed) for each in found) for edge in edges]


def _cut(found: FoundBounds, edge: Fraction, signed: bool) -> FoundBounds:
    if not signed:
        return replace(found, lower=Fraction(0), upper=min(max(found.reach, Fraction(1)), edge))
    return replace(found, lower=max(found.lower, -edge), upper=min(found.upper, edge))


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
