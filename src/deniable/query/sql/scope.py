"""How a statement is read: what names mean at one place, how a refusal points to it, and that nothing is passed over.

A word that is not read would be answered as another question. So there are two looks before anything is bound. Of each
node of the parsed statement only parts may be set that the binder reads. And whatever the parser itself leaves out of
the tree (a third argument, the end of an interval) is missed there: every number, text and column that was written
must stand in the tree as often as in the statement."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlglot import expressions as exp
from sqlglot.errors import ErrorLevel
from sqlglot.tokens import Token, TokenType

from deniable.errors import QueryRefused, nearest
from deniable.query.algebra.expression import ColumnRef, Expression, Kind
from deniable.query.algebra.intervals import Mismatch
from deniable.query.algebra.relation import MOST_TERMS, Field
from deniable.query.sql.clauses import LESS_DEEP, Clauses, place_at, refuse
from deniable.query.sql.lexer import parse_array

SIGNS: dict[type[exp.Expression], str] = {
    exp.Add: "'+'", exp.Sub: "'-'", exp.Mul: "'*'", exp.Div: "'/'", exp.Mod: "'%'", exp.EQ: "'='", exp.NEQ: "'<>'",
    exp.LT: "'<'", exp.LTE: "'<='", exp.GT: "'>'", exp.GTE: "'>='", exp.DPipe: "'||'", exp.Neg: "'-'",
    exp.Rand: "RANDOM", exp.GroupConcat: "STRING_AGG",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place of a statement.

    `special` is asked first about every node: it is how aggregates and group keys become fields of a noisy relation.
    """

    clauses: Clauses
    fields: tuple[Field, ...]
    special: Callable[[exp.Expression], Expression | None] | None = None
    subquery: Callable[[exp.Expression, Scope], Expression] | None = None
    """What a sub-query in an expression becomes: a field of a relation that is joined; None where it cannot stand."""

    def refusal(self, node: exp.Expression, happened: str, **rest: str) -> QueryRefused:
        """A refusal that points to a node."""
        return QueryRefused(happened, place=place_at(self.clauses.text, offset_of(node)), **rest)

    def refuse_large(self, node: exp.Expression, found: Expression) -> Expression:
        """The expression of a node; one in which parts are repeated too often is refused."""
        if found.size > MOST_TERMS:
            happened = f"the expression has {found.size:,} terms once it is written out, and {MOST_TERMS:,} is the most"
            raise self.refusal(node, happened, remedy=LESS_DEEP)
        return found

    def column(self, node: exp.Column) -> ColumnRef:
        """The field a column name means, without regard to case."""
        name, table, above = node.name.lower(), fold_alias(node.table), fold_alias(node.db)
        wanted = f"{table}.{name}" if table else name
        found = [
            field
            for field in self.fields
            if field.name.lower() == wanted or (not table and field.name.lower().split(".", 1)[-1] == name)
        ]
        if table and not found:  # a column or a table whose own name has a dot
            dotted = {f"{above}.{wanted}", f"{above}:{wanted}"}
            found = [field for field in self.fields if field.name.lower() in dotted
                     or (not above and field.name.lower().split(".", 1)[-1] == wanted)]  # fmt: skip
        if len(found) == 1:
            return ColumnRef(found[0].name, found[0].facts)
        known = [field.name.split(".", 1)[-1] for field in self.fields]
        if not found:
            raise self.refusal(node, f"there is no column '{wanted}' here", expected=describe_columns(known),
                               remedy=nearest(name, known), unknown="column")  # fmt: skip
        raise self.refusal(node, f"the column '{name}' is in more than one table", remedy="Write table.column")


def fold_alias(name: str) -> str:
    """The first part of the names of a table's fields, in which a dot ends that part: a dot of its own is a colon."""
    return name.lower().replace(".", ":")


def fold_names(items: Iterable[tuple[str, Expression]]) -> dict[str, Expression]:
    """Items under their names in small letters: a question may write a name in either case."""
    return {name.lower(): expression for name, expression in items}


def describe_columns(names: list[str]) -> str:
    """A sentence that lists what exists, shortened."""
    shown = ", ".join(sorted(set(names))[:20])
    return f"The columns here are {shown}" if shown else ""


def offset_of(node: exp.Expression) -> int:
    """Where a node starts in the statement, as far as the parser kept it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts) if starts else 0


def spell_text(node: exp.Expression) -> str:
    """An expression as it is shown to people; what another dialect cannot say is left out without a word."""
    return str(node.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE))


def spell_name(node: exp.Expression) -> str:
    """The construct's name as the analyst knows it."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    if type(node) in SIGNS:
        return SIGNS[type(node)]
    name = str(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())
    return TYPED.get(name, name)


TYPED = {"LOGICAL_OR": "BOOL_OR", "LOGICAL_AND": "BOOL_AND", "APPROX_DISTINCT": "APPROX_COUNT_DISTINCT",
         "STR_POSITION": "POSITION", "TUPLE": "a list of values"}  # fmt: skip
"""Functions that the parser calls otherwise than those who ask."""
_ROWS = "this expression"
_PARTS: dict[str, str] = {
    "Select": "expressions from_ joins where group having qualify order limit offset distinct with_ kind hint "
              "operation_modifiers laterals windows distribute sort cluster pivots match into sample locks settings "
              "format connect prewhere options exclude",
    "Subquery": "this alias order limit offset with_", "Union": "this expression distinct order limit offset with_",
    "With": "expressions recursive", "CTE": "this alias materialized", "TableAlias": "this columns", "From": "this",
    "Join": "this side kind method on using", "Table": "this alias db catalog", "Where": "this", "Having": "this",
    "Qualify": "this", "Group": "expressions rollup cube grouping_sets all totals", "Rollup": "expressions",
    "Cube": "expressions", "GroupingSets": "expressions", "Tuple": "expressions", "Order": "expressions",
    "Ordered": "this desc nulls_first with_fill", "Limit": "expression", "Offset": "expression",
    "Fetch": "direction count limit_options", "LimitOptions": "rows", "Distinct": "expressions on",
    "Alias": "this alias", "Filter": _ROWS, "WithinGroup": _ROWS,
    "Window": "this partition_by order spec over", "WindowSpec": "kind start start_side end end_side exclude",
    "Count": "this expressions big_int", "Quantile": "this quantile", "ApproxQuantile": "this quantile",
    "PercentileCont": _ROWS, "PercentileDisc": _ROWS, "Grouping": "expressions", "Ntile": "this",
    "RowNumber": "", "Rank": "", "DenseRank": "", "PercentRank": "", "CumeDist": "",
    "Lag": "this offset default", "Lead": "this offset default", "FirstValue": "this", "LastValue": "this",
    "Exists": "this", "Any": "this", "Array": "expressions",
}  # fmt: skip
_ONE = ("CountIf", "ApproxDistinct", "Sum", "Avg", "Min", "Max", "Median", "Variance", "VariancePop", "Stddev",
        "StddevSamp", "StddevPop")  # fmt: skip
_TWO = ("Corr", "CovarPop", "CovarSamp", "RegrSlope", "RegrIntercept", "RegrR2", "RegrCount", "RegrAvgx", "RegrAvgy",
        "RegrSxx", "RegrSyy", "RegrSxy")  # fmt: skip
READ_PARTS: dict[type[exp.Expression], frozenset[str]] = {
    getattr(exp, name): frozenset(parts.split())
    for name, parts in {**_PARTS, **dict.fromkeys(_ONE, "this"), **dict.fromkeys(_TWO, _ROWS)}.items()
}
"""Of each clause and aggregate, the parts that are read or refused in words of their own; functions of a row have
theirs in `scalar`."""
WORDS = {"limit_options": "PERCENT or WITH TIES", "percent": "PERCENT", "with_ties": "WITH TIES", "sample": "SAMPLE",
         "pivots": "PIVOT", "by_name": "BY NAME", "count": "a second argument", "expressions": "arguments or BY",
         "null_on_zero_variance": "a third argument", "accuracy": "a second argument"}  # fmt: skip
_INTERVAL = re.compile(r"\s*([+-]?\d+)\s*([A-Za-z]+)?\s*")


def refuse_unread_part(node: exp.Expression, scope: Scope) -> None:
    """Refuse a node of which something is set that nobody reads."""
    read = READ_PARTS.get(type(node))
    if read is None:
        return
    unread = next((name for name, held in node.args.items() if held and name not in read), None)
    if unread is not None:
        told = WORDS.get(unread, f"'{unread.strip('_').upper()}'")
        raise scope.refusal(node, f"{_name(node)} is not understood with {told}", remedy="Leave it out, or write it "
                            "in another way: what is not understood is not passed over")  # fmt: skip


def _name(node: exp.Expression) -> str:
    plain = {exp.LimitOptions: "LIMIT", exp.Ordered: "ORDER BY", exp.Subquery: "a query in brackets",
             exp.Table: "a table"}  # fmt: skip
    return plain.get(type(node)) or spell_name(node)


def refuse_unread_words(
    statement: exp.Expression, text: str, tokens: Iterable[Token], columns: Collection[str]
) -> None:
    """Refuse a statement of which the parser left out a number, a text or a column."""
    held = Counter(_list_texts(statement))
    tokens = list(tokens)
    for place, token in enumerate(tokens):
        if _is_fixed_length(tokens, place):
            raise refuse(text, token.start, FIXED_LENGTH, remedy=CAST_TO_TEXT)
        if _is_second_text(tokens, place, text):
            raise refuse(text, token.start, "two texts stand side by side", remedy="Join them with ||")
        for word in _list_words(tokens, place, columns, text):
            held[word] -= 1
            if held[word] < 0:
                raise refuse(text, token.start, f"'{token.text[:40]}' is not understood here",
                             remedy="Leave it out, or write it in another way")  # fmt: skip


FIXED_LENGTH = "a cast to a text of a fixed length is not supported"
CAST_TO_TEXT = "Cast to TEXT, or take the first letters: LEFT(x, 3)"
_FIXED = ("char", "character", "nchar", "bpchar")
_VARYING = ("varchar", "nvarchar")


def _is_second_text(tokens: list[Token], place: int, text: str) -> bool:
    """Whether a text follows another one in the same line: on a line of its own it continues it, as in PostgreSQL."""
    texts = place and tokens[place].token_type is tokens[place - 1].token_type is TokenType.STRING
    return bool(texts) and "\n" not in text[tokens[place - 1].end : tokens[place].start]


def _is_fixed_length(tokens: list[Token], place: int) -> bool:
    """Whether a cast to `char`, which PostgreSQL cuts or pads, stands here; the parser takes it for TEXT."""
    if tokens[place].text.lower() not in (*_FIXED, *_VARYING):
        return False
    around = [tokens[at].token_type if 0 <= at < len(tokens) else None for at in (place - 1, place + 1)]
    cast = around[0] is TokenType.DCOLON or around == [TokenType.ALIAS, TokenType.R_PAREN]
    cast = cast or (around == [TokenType.ALIAS, TokenType.L_PAREN])
    if tokens[place].text.lower() in _VARYING:
        return cast and around[1] is TokenType.L_PAREN
    longer = place + 1 < len(tokens) and tokens[place + 1].text.lower() == "varying"
    written = tokens[place - 2] if cast and place > 1 else None  # what drivers write: 'x'::bpchar is 'x'
    plain = written is not None and written.token_type is TokenType.STRING and not written.text.endswith(" ")
    return cast and not longer and not (plain and tokens[place].text.lower() == "bpchar")


def _list_words(tokens: list[Token], place: int, columns: Collection[str], text: str) -> Iterator[str]:
    """What of a token must stand in the tree: nothing for keywords, signs and names of functions."""
    token = tokens[place]
    if token.token_type is TokenType.STRING and place and tokens[place - 1].token_type is TokenType.INTERVAL:
        found = _INTERVAL.fullmatch(token.text)
        if found is None:
            raise _refuse_interval(token, text)
        yield found[1]
    elif token.token_type in (TokenType.STRING, TokenType.NUMBER):
        dotted = place and tokens[place - 1].token_type is TokenType.DOT  # .5 is 0.5
        yield f"{'0.' if dotted else ''}{token.text.lower()}"
    elif token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and token.text.lower() in columns:
        called = place + 1 < len(tokens) and tokens[place + 1].token_type is TokenType.L_PAREN
        if not called:
            yield token.text.lower()


def _refuse_interval(token: Token, text: str) -> QueryRefused:
    return refuse(text, token.start, "this interval cannot be read",
                  expected="A whole number and one unit, as in INTERVAL '3 months'")  # fmt: skip


def _list_texts(statement: exp.Expression) -> Iterator[str]:
    for node in statement.walk():
        if isinstance(node, exp.Literal | exp.Identifier | exp.Var | exp.Anonymous):
            yield str(node.this).lower()


_ARRAY_TYPES = {Kind.INTEGER: "BIGINT", Kind.DECIMAL: "DOUBLE", Kind.BOOLEAN: "BOOLEAN"}


_is_number = re.compile(r"\s*[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\s*").fullmatch


def read_array(node: exp.Expression, kind: Kind) -> exp.Array | None:
    """`'{1,2}'::bigint[]`, as drivers write lists; without a type it has that of what is compared with its members."""
    target = _read_member_type(node) if isinstance(node, exp.Cast) else None
    text = node.this if target is not None else node
    if isinstance(text, exp.Array) and target is not None:
        return exp.Array(expressions=[exp.cast(each, target) for each in text.expressions])
    if not isinstance(text, exp.Literal) or not text.is_string:
        return None
    try:
        members = parse_array(text.name)
    except ValueError:
        raise Mismatch("takes a list of values; write IN (...), or ANY ('{a,b}')") from None
    target = target or exp.DataType.build(_ARRAY_TYPES.get(kind, "TEXT"), dialect="duckdb")
    if target.this in exp.DataType.NUMERIC_TYPES and not all(each is None or _is_number(each) for each in members):
        raise Mismatch("takes a list of numbers here")
    listed = [exp.Null() if each is None else exp.cast(exp.Literal.string(each), target) for each in members]
    return exp.Array(expressions=listed)


def _read_member_type(node: exp.Cast) -> exp.DataType | None:
    """The type of the members of an array: `int4[]`, or `_int4` as PostgreSQL itself calls it."""
    if node.to.is_type("array") and node.to.expressions:
        return node.to.expressions[0]
    own = str(node.to.args.get("kind") or "").lower().removeprefix("pg_catalog.")
    return exp.DataType.build(own[1:], dialect="duckdb", udt=True) if own[:1] == "_" else None


_SUMS: dict[type[exp.Expression], Callable[[int, int], int]] = {
    exp.Add: operator.add, exp.Sub: operator.sub, exp.Mul: operator.mul,
}  # fmt: skip


def read_whole(node: exp.Expression) -> int | None:
    """A whole number of 64 bits that is written out, also as a sum, difference or product of such; else None."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.is_type("bigint") and isinstance(node.this, exp.Literal):
        node = exp.Literal.number(node.this.name)
    if type(node) in _SUMS:
        sides = [read_whole(each) for each in (node.this, node.expression)]
        found = None if sides[0] is None or sides[1] is None else _SUMS[type(node)](sides[0], sides[1])
    elif isinstance(node, exp.Neg):
        found = None if (number := read_whole(node.this)) is None else -number
    elif isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal() and len(node.name) < 20:
        return int(node.name)
    else:
        return None
    if found is not None and not -(2**63) <= found < 2**63:
        raise Mismatch("has a number that is too large, from 2^63 on")
    return found


def is_common_table(table: exp.Table) -> bool:
    """Whether a name after FROM is that of a WITH around it; inside a part of a WITH, of the parts before it."""
    inside: exp.Expression | None = table
    while inside is not None:
        before, inside = inside, inside.parent
        if isinstance(inside, exp.With):
            listed = inside.expressions[: next(at for at, each in enumerate(inside.expressions) if each is before)]
            before, inside = inside, inside.parent
        else:
            listed = (inside.args.get("with_") or exp.With()).expressions if isinstance(inside, exp.Query) else []
        if any(each.alias.lower() == table.name.lower() for each in listed):
            return True
    return False


def read_type(target: exp.DataType) -> exp.DataType:
    """PostgreSQL's own types under their usual names: `pg_catalog.int8` is BIGINT, `name` and `unknown` are texts."""
    own = str(target.args.get("kind") or "").lower().removeprefix("pg_catalog.")
    if own == "name" or target.is_type("unknown"):
        return exp.DataType.build("TEXT", dialect="duckdb")
    return exp.DataType.build(own, dialect="duckdb", udt=True) if own else target


BARE = frozenset({
    "current_user", "session_user", "user", "current_role", "current_catalog", "current_schema", "current_timestamp",
    "current_date", "localtimestamp",
})  # fmt: skip
"""Functions without brackets."""


def spell_type(kind: Any) -> str:
    """PostgreSQL's own name of a type, with [] for an array of it."""
    if isinstance(kind, exp.DataType) and kind.this == exp.DataType.Type.ARRAY:
        return f"{spell_type(kind.expressions[0])}[]" if kind.expressions else "text[]"
    word = kind.args.get("kind") or kind.this
    word = str(getattr(word, "value", None) or getattr(word, "name", None) or word).lower().split(".")[-1].strip('"')
    return {"int": "int4", "bigint": "int8", "smallint": "int2", "double": "float8", "float": "float4", "decimal":
            "numeric", "boolean": "bool", "char": "bpchar", "nchar": "bpchar", "regprocedure":
            "regproc", "regoperator": "regproc"}.get(word, word)  # fmt: skip


def name_column(node: Any) -> Any:
    """A column of a SELECT under the name that PostgreSQL gives it."""
    if isinstance(node, exp.Alias | exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        return node
    if isinstance(node, exp.Column) and (not node.this.quoted or node.table) and node.name.lower() not in BARE:
        return node
    return exp.alias_(node, _figure_name(node) or "?column?", quoted=True)


def _figure_name(node: Any) -> str:
    """The name of a column without an alias: of the column, the function or the type that it is made of."""
    inner = node.unnest() if isinstance(node, exp.Paren) else node
    match inner:
        case exp.Column():
            return str(inner.name if inner.this.quoted else inner.name.lower())
        case exp.Anonymous():
            return str(inner.name.lower())
        case exp.Dot():
            return str(inner.expression.name.lower())
        case exp.Cast():
            word = spell_type(inner.to)
            return _figure_name(inner.this) or word.removesuffix("[]")
        case exp.Case():
            return (_figure_name(inner.args["default"]) if inner.args.get("default") else "") or "case"
        case exp.Exists() | exp.Array() | exp.Extract() | exp.Substring() | exp.Overlay():
            return type(inner).__name__.lower()
        case exp.StrPosition():
            return "position"
        case exp.AtTimeZone():
            return "timezone"
        case exp.Interval():
            return "interval"
        case exp.Trim():
            return {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(inner.args.get("position") or ""), "btrim")
        case exp.Window() | exp.Filter() | exp.Bracket() | exp.Collate():
            return _figure_name(inner.this)
        case exp.Subquery() | exp.Select():
            first = (inner.this if isinstance(inner, exp.Subquery) else inner).expressions[:1]
            return "" if not first else str(first[0].alias or "") or _figure_name(first[0])
        case _:
            return ""
