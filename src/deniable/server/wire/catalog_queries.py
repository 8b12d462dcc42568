"""Questions about the catalog: which statements they are, and how they are put to the engine that holds only that.

Catalog questions come as SQL of every tool's own making, so they run as SQL: on an engine of its own, sealed, that
holds nothing but declared metadata, one for all sessions. Before that they are parsed and pass a gate: one SELECT, of
parts, functions and relations that are listed. Then they are written in the language of that engine: functions by the
table `FUNCTIONS`, casts to `regclass` and the like by names of the catalog, columns under the names of PostgreSQL."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import InvalidOperation
from typing import TYPE_CHECKING, Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from deniable.curator.query import metadata
from deniable.errors import DeniableError
from deniable.governance.grants import Role
from deniable.server.monitoring import log_to_stderr
from deniable.server.wire import values as v
from deniable.server.wire.catalog_functions import (
    AS_RELATIONS,
    BARE,
    FUNCTIONS,
    GROWING,
    NOUNS,
    PLAIN,
    RELATIONS,
    RESERVED,
    SCHEMAS,
    TYPES,
    asks_for_columns,
    build_unsupported_refusal,
    call_function,
    format_pattern,
    name_column,
    name_type,
    parse_identifier,
    read_operator,
    write_object,
)
from deniable.server.wire.catalog_tables import (
    LISTS,
    REGISTERED,
    PublicColumn,
    PublicTable,
    build_catalog,
    build_empty,
    build_session_catalog,
    list_registered,
)
from deniable.server.wire.codec import WireRefusal
from deniable.server.wire.lexer import Kind, Statement

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker


SECONDS = 5.0
ROWS = 100_000
LONGEST = 1_000_000
"""Characters of a rewritten statement: functions within functions may name their arguments several times."""
MOST_ASKED, MOST_WORDS, DEEPEST = 30_000, 6_000, 60
"""Characters, words and brackets within brackets of a question about the catalog."""
MOST_GROWING = 100
"""Calls in a statement whose texts or lists may be longer than those they are made of."""


@dataclass(frozen=True, slots=True)
class CatalogContext:
    """The public facts that catalog questions may ask for."""

    dataset: str
    analyst: str
    process: int
    settings: Mapping[str, str]
    """The settings of the session, by their names in lower case."""
    tables: tuple[str, ...] = ()
    started: str = ""


class CatalogEngine:
    """The catalogs that askers see: the same for all who may name the same columns."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._started = datetime.now(UTC).isoformat(sep=" ")
        self._seen: dict[tuple[PublicTable, ...], dict[str, pa.Table]] = {}

    def ask(
        self, statement: Statement, analyst: str, process: int, settings: Mapping[str, str], who: Asker, rows: bool
    ) -> tuple[pa.Table, tuple[Assignment, ...]]:
        """The answer to a question about the catalog, and what it sets; without rows it only has its columns."""
        context = self._curator.context
        shown = metadata.schema(context if who.role is Role.STEWARD else context.speak_for(who))
        tables = tuple(_describe_table(table) for table in shown)
        names, dataset = tuple(table.name for table in tables), self._curator.policy.dataset
        around = CatalogContext(dataset, analyst, process, settings, names, self._started)
        sql, assignments = rewrite_statement(statement, around, rows=rows)
        held = self._find_frames(tables) | {table.name: build_empty(table) for table in tables}
        held |= build_session_catalog(dataset, analyst, process, settings, tables)
        needed = {name: held[name] for name in held if name in sql}
        try:
            return self._open_engine().run(sql, seconds=SECONDS, frames=needed), assignments
        except DeniableError as refusal:
            raise _translate_refusal(refusal) from None

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()

    def _open_engine(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = metadata.bare_engine()
            return self._engine

    def _find_frames(self, tables: tuple[PublicTable, ...]) -> dict[str, pa.Table]:
        with self._lock:
            if tables not in self._seen:
                self._seen[tables] = build_catalog(self._curator.policy.dataset, tables)
            return self._seen[tables]


def _render_version() -> str:
    from importlib.metadata import version

    return f"PostgreSQL 15.0 (deniable {version('deniable')}: answers have noise)"


def _translate_refusal(refusal: DeniableError) -> WireRefusal:
    if refusal.code == "stopped":
        return WireRefusal("57014", "the question about the catalog took too long")
    log_to_stderr("a question about the catalog was not understood")
    return build_unsupported_refusal()


def _describe_table(table: metadata.TableSummary) -> PublicTable:
    columns = [PublicColumn(each.column, each.type, each.nullable, _describe_column(each)) for each in table.columns]
    comment = "public: rows may be read as they are" if table.public else f"protects {table.unit}"
    return PublicTable(table.table, tuple(columns), comment)


def _describe_column(column: metadata.ColumnSummary) -> str:
    parts = [column.role]
    if column.between:
        parts.append(f"between {column.between[0]} and {column.between[1]}")
    if column.categories:
        parts.append(f"{len(column.categories)} categories")
    return ", ".join(parts)


class _Parser(Postgres.Parser):  # type: ignore[misc]
    """PostgreSQL's grammar; a function is its name and its arguments, and means nothing yet."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: Postgres.Parser.FUNCTION_PARSERS[name]
        for name in ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")
        if name in Postgres.Parser.FUNCTION_PARSERS
    }


class _Read(Postgres):  # type: ignore[misc]
    Parser = _Parser


_PARTS = """
    Add Alias All And Anonymous Any Array AtTimeZone Between Boolean Bracket ByteString CTE Case Cast Collate Column
    DPipe DataType DataTypeParam Distinct Div Dot EQ Escape Except Exists Extract Filter From GT GTE Group Having ILike
    Identifier If In Intersect Interval Is Join LT LTE Lateral Like Limit Literal Mod Mul NEQ Neg Not Null NullSafeEQ
    NullSafeNEQ ObjectIdentifier Offset Operator Or Order Ordered Overlay Paren Pow RegexpILike RegexpLike Select Star
    StrPosition Sub Subquery Substring Table TableAlias Trim Tuple Union Unnest Values Var Where Window WindowSpec With
    Fetch BitwiseAnd BitwiseOr BitwiseLeftShift BitwiseRightShift
"""
PARTS = frozenset(_PARTS.split())
"""What a question about the catalog may be made of."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What `set_config` sets once its question is answered."""

    name: str
    value: str
    local: bool


def rewrite_statement(
    statement: Statement, around: CatalogContext, *, rows: bool = True
) -> tuple[str, tuple[Assignment, ...]]:
    """The statement as the catalog's engine understands it and what it sets, or a refusal."""
    if statement.words[:3] == ("with", "recursive", "typeinfo_tree"):
        return "SELECT * FROM typeinfo_tree", ()  # asyncpg's question for types
    _check_size(statement)
    try:
        tree = _parse(_spell_out(statement))
        _check_parts(tree)
        known = RELATIONS | set(around.tables if asks_for_columns(statement) else ())
        _check_relations(tree, known)
        assignments = _Translation(tree, around).run()
        tree = _limit_rows(tree, rows)
        text = _Writer(dialect=DuckDB, identify=True, around=around, normalize_functions=False).generate(tree)
    except (SqlglotError, RecursionError, InvalidOperation):
        raise build_unsupported_refusal() from None
    return text, assignments


def _check_size(statement: Statement) -> None:
    """What is free may not hold up others: only short statements are read at all."""
    depth = deepest = 0
    for word in statement.words:
        depth += (word in ("(", "[", "case")) - (word in (")", "]", "end"))
        deepest = max(deepest, depth)
    if len(statement.text) > MOST_ASKED or len(statement.tokens) > MOST_WORDS or deepest > DEEPEST:
        raise WireRefusal("54001", "the question about the catalog is too long or nested too deeply")


def _spell_out(statement: Statement) -> str:
    """The text in spellings that the parser takes: `AS select` is `AS "select"`, `oid[]` is an array of numbers."""
    tokens, pieces, end = statement.tokens, [], 0
    for i, token in enumerate(tokens):
        following = statement.words[i + 1 : i + 3]
        if token.kind is not Kind.WORD or not i:
            continue
        if statement.words[i - 1] == "as" and token.value in RESERVED and following[:1] != ("materialized",):
            spelled = f'"{token.value}"'
        elif token.value in _NUMBERS and following == ("[", "]"):
            spelled = "int8"
        else:
            continue
        pieces += [statement.text[end : token.start], spelled]
        end = token.end
    return "".join([*pieces, statement.text[end:]])


_NUMBERS = ("oid", "xid", *REGISTERED)


def _parse(text: str) -> Any:
    found = _Read().parse(text)
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise build_unsupported_refusal()
    tree = found[0]
    if isinstance(tree, exp.Values):
        width = len(tree.expressions[0].expressions)
        names = [exp.to_identifier(f"column{i + 1}") for i in range(width)]
        shown = exp.TableAlias(this=exp.to_identifier("values"), columns=names)
        return exp.select("*").from_(exp.Values(expressions=tree.expressions, alias=shown))
    return tree


def _check_parts(tree: Any) -> None:
    growing = 0
    for node in tree.walk():
        if isinstance(node, exp.DPipe) or (isinstance(node, exp.Anonymous) and node.name.lower() in GROWING):
            growing += max(1, len(node.expressions) - 3)
        if growing > MOST_GROWING:
            raise WireRefusal("54001", f"more than {MOST_GROWING} texts are put together")
        if type(node).__name__ not in PARTS or (isinstance(node, exp.With) and node.args.get("recursive")):
            raise build_unsupported_refusal()
        if not isinstance(node, exp.Anonymous):
            continue
        relation = isinstance(node.parent, exp.Table) and node.name.lower() in AS_RELATIONS
        if not relation and node.name.lower() not in FUNCTIONS and node.name.lower() not in PLAIN:
            raise build_unsupported_refusal(f"the function {node.name.lower()} is not known to the catalog")


def _check_relations(tree: Any, known: frozenset[str] | set[str]) -> None:
    """What stands after FROM or JOIN is a relation of the catalog, a function, or what the statement itself names."""
    given = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Anonymous):
            continue
        schema, name = table.db.lower(), table.name
        if not isinstance(table.this, exp.Identifier) or table.catalog or schema not in ("", "public", *SCHEMAS):
            raise WireRefusal("42P01", f'relation "{name}" does not exist in the catalog')
        name = name if table.this.quoted else name.lower()
        full = f"information_schema_{name}" if schema == "information_schema" else name
        if not (full in known or (not schema and name.lower() in given)):
            raise WireRefusal("42P01", f'relation "{name}" does not exist in the catalog')
        if schema == "information_schema":
            table.this.set("this", full)
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.set("db", None)


def _limit_rows(tree: Any, rows: bool) -> Any:
    """The statement with no more rows than are ever given."""
    most = ROWS if rows else 0
    limit = tree.args.get("limit")
    asked = limit.expression if isinstance(limit, exp.Limit) else None
    if limit is None or not rows or (isinstance(asked, exp.Literal) and int(asked.name) > most):
        tree.set("limit", exp.Limit(expression=exp.Literal.number(most)))
    return tree


_TRANSACTIONS = ("xmin", "xid", "transactionid")
"""Columns that hold numbers of transactions."""


class _Translation:
    """The steps from PostgreSQL's meaning to the engine's, on the tree of one statement."""

    def __init__(self, tree: Any, around: CatalogContext) -> None:
        self._tree, self._around = tree, around

    def run(self) -> tuple[Assignment, ...]:
        """Change the tree in place; what `set_config` sets is given back."""
        for dot in list(self._tree.find_all(exp.Dot)):
            if isinstance(dot.expression, exp.Anonymous) and isinstance(dot.this, exp.Identifier):
                dot.replace(dot.expression)
        for select in self._tree.find_all(exp.Select):
            select.set("expressions", [name_column(each) for each in select.expressions])
        for column in list(self._tree.find_all(exp.Column)):
            self._read_column(column)
        for name in self._tree.find_all(exp.Identifier):
            if not name.quoted:
                name.set("this", name.this.lower())
        assignments = self._take_assignments()
        for table in list(self._tree.find_all(exp.Table, exp.Unnest)):
            _read_table(table)
        # Inner ones first: what is around them then sees what they have become.
        for node in reversed(list(self._tree.walk(bfs=False))):
            self._replace(node)
        self._show_registered()
        return assignments

    def _read_column(self, column: Any) -> None:
        """`public.people.sex` is `people.sex`; `current_user` is a function."""
        if column.args.get("db") is not None:
            column.set("db", None)
        plain = isinstance(column.this, exp.Identifier) and not column.this.quoted and not column.table
        if plain and column.name.lower() in BARE:
            column.replace(exp.Anonymous(this=column.name.lower()))

    def _take_assignments(self) -> tuple[Assignment, ...]:
        """`set_config` of plain values among the columns of the statement; elsewhere it is refused."""
        found = []
        for each in self._tree.expressions:
            call = each.unalias()
            if isinstance(call, exp.Anonymous) and call.name.lower() == "set_config":
                name, value, local = (*call.expressions, None, None, None)[:3]
                if not all(isinstance(one, exp.Literal) for one in (name, value)):
                    raise build_unsupported_refusal("set_config takes a name and a value as they are")
                found.append(Assignment(name.name, value.name, isinstance(local, exp.Boolean) and bool(local.this)))
                call.replace(exp.Literal.string(value.name))
        if any(call.name.lower() == "set_config" for call in self._tree.find_all(exp.Anonymous)):
            raise build_unsupported_refusal("set_config stands among the columns of a statement")
        return tuple(found)

    def _replace(self, node: Any) -> None:
        """One part, whose inner parts were replaced already."""
        if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
            escaped = exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
            node.replace(escaped)
        elif isinstance(node, exp.Collate):
            node.replace(node.this)
        elif isinstance(node, exp.Operator):
            node.replace(read_operator(node))
        elif isinstance(node, exp.DPipe):
            node.replace(call_function("put_together", node.this, node.expression))
        elif isinstance(node, exp.Div):
            node.replace(_divide(node))
        elif isinstance(node, exp.Cast):
            node.replace(self._cast(node))
        elif isinstance(node, exp.ByteString):
            node.replace(exp.Literal.string(node.name))
        elif isinstance(node, exp.Any):
            inner = node.this.unnest()
            if isinstance(inner, exp.Literal) and inner.is_string:
                node.set("this", exp.Paren(this=_read_array(inner.name, v.TEXT)))
        elif isinstance(node, exp.EQ | exp.NEQ) and isinstance(node.this, exp.Column) and node.this.name in LISTS:
            if isinstance(node.expression, exp.Literal) and node.expression.is_string:
                node.set("expression", _read_array(node.expression.name, v.INT8))
        elif isinstance(node, exp.Anonymous) and node.name.lower() in ("format", "pg_typeof", "age", "current_setting"):
            node.replace(self._compute(node))

    def _cast(self, node: Any) -> Any:
        """A cast to a type that the engine has, or to a number of the catalog."""
        kind = name_type(node.to)
        inner = node.this
        literal = isinstance(inner, exp.Literal) and inner.is_string
        if kind in REGISTERED:
            if literal and not inner.name.isdigit():
                return _mark(exp.Literal.number(self._find_registered(kind, inner.name)), kind)
            return _mark(exp.Anonymous(this=f"{kind}in", expressions=[inner.copy()]), kind)
        registered = _registered_kind(inner)
        if registered and kind in ("text", "varchar", "name"):
            return exp.Anonymous(this=f"{registered}out", expressions=[_unmark(inner)])
        if kind.endswith("[]") and literal:
            return _read_array(inner.name, v.OID_OF_NAME.get(kind[:-2], v.TEXT))
        if kind == "numeric" and not node.to.expressions:
            return (
                inner if isinstance(inner, exp.Literal) and not inner.is_string else call_function("to_double", inner)
            )
        if kind in ("varchar", "bpchar") and node.to.expressions:
            return call_function("left_of", inner, node.to.expressions[0].this)
        written = TYPES.get(kind.removesuffix("[]"))
        if written is None:
            raise WireRefusal("42704", f'type "{kind}" does not exist in the catalog')
        size = ", ".join(each.name for each in node.to.expressions) if kind == "numeric" else ""
        ending = "[]" if kind.endswith("[]") else f"({size})" if size else ""
        return exp.Cast(this=inner.copy(), to=exp.DataType.build(written + ending, dialect=DuckDB, udt=True))

    def _find_registered(self, kind: str, name: str) -> int:
        for known, oid in list_registered(kind, self._around.tables, self._around.analyst):
            if known == ".".join(parse_identifier(name)):
                return oid
        noun, state = NOUNS[kind]
        raise WireRefusal(state, f'{noun} "{name}" does not exist in the catalog')

    def _compute(self, node: Any) -> Any:
        """A call whose meaning follows from its words: of a format, of a setting's name, of a column."""
        first = node.expressions[0] if node.expressions else None
        word = first.name if isinstance(first, exp.Literal) and first.is_string else None
        match node.name.lower():
            case "format":
                if word is None:
                    raise build_unsupported_refusal("format takes its pattern as it is")
                return format_pattern(word, node.expressions[1:])
            case "pg_typeof" if word is not None:
                return exp.Literal.string("unknown")
            case "age" if not isinstance(first, exp.Column) or not first.name.endswith(_TRANSACTIONS):
                raise build_unsupported_refusal("age takes the number of a transaction")
            case "current_setting" if word is not None:
                missing, known = len(node.expressions) > 1, {name.lower() for name in self._around.settings}
                if word.lower() not in known and not missing:
                    raise WireRefusal("42704", f'unrecognized configuration parameter "{word}"')
        return node

    def _show_registered(self) -> None:
        """What is a table's number in the catalog is shown by its name in an answer, as PostgreSQL does."""
        for select in _list_selects(self._tree):
            for each in getattr(select, "expressions", []):
                inner = each.unalias()
                if kind := _registered_kind(inner):
                    alias = each.alias or inner.name
                    shown = exp.Anonymous(this=f"{kind}out", expressions=[_unmark(inner)])
                    each.replace(exp.alias_(shown, alias, quoted=True))


def _list_selects(tree: Any) -> list[Any]:
    """The selections whose rows are those of a statement."""
    if isinstance(tree, exp.SetOperation):
        return [*_list_selects(tree.left), *_list_selects(tree.right)]
    return [tree]


def _mark(node: Any, kind: str) -> Any:
    node.meta["registered"] = kind
    return node


def _unmark(node: Any) -> Any:
    copied = node.copy()
    copied.meta.pop("registered", None)
    return copied


def _registered_kind(node: Any) -> str:
    """Whether a part is the number of a relation, a type or a function: what it is then, else nothing."""
    inner = node.unnest()
    if isinstance(inner, exp.Anonymous) and inner.name.lower().startswith("to_reg"):
        return str(inner.name.lower().removeprefix("to_"))
    if isinstance(inner, exp.Column) and inner.name in ("typinput", "typoutput", "typreceive", "typsend"):
        return "regproc"
    return str(inner.meta.get("registered", "")) if inner.meta else ""


def _read_table(table: Any) -> None:
    """A function after FROM is a relation of that name, or a selection of what it gives."""
    if isinstance(table, exp.Table) and not isinstance(table.this, exp.Anonymous):
        return
    if not isinstance(table.parent, exp.From | exp.Join | exp.Lateral):
        return
    alias = table.args.get("alias")
    word = table.this.name.lower() if isinstance(table, exp.Table) else "unnest"
    name = alias.name if alias is not None and alias.name else word
    columns = [each.name for each in alias.args.get("columns") or []] if alias is not None else []
    if word in AS_RELATIONS:
        shown = exp.TableAlias(
            this=exp.to_identifier(name, quoted=True), columns=alias.args.get("columns") if alias else None
        )
        table.replace(exp.Table(this=exp.to_identifier(AS_RELATIONS[word], quoted=True), alias=shown))
        return
    if isinstance(table, exp.Table):
        given = [table.this.copy()]
        ordinal = table.args.get("ordinality")
    else:
        given = [call_function("unnest", each) for each in table.expressions]
        ordinal = table.args.get("offset")
    names = [*columns, *[name] * len(given)][: len(given)]
    shown = [exp.alias_(each, one, quoted=True) for each, one in zip(given, names, strict=True)]
    if ordinal:
        numbered = ordinal.name if isinstance(ordinal, exp.Identifier) else (*columns[len(given) :], "ordinality")[0]
        shown.append(
            exp.alias_(
                exp.Anonymous(this="ordinality_of", expressions=[given[0].expressions[0].copy()]), numbered, quoted=True
            )
        )
    table.replace(
        exp.Subquery(this=exp.select(*shown), alias=exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
    )


_WHOLE_CALLS = frozenset(
    {"count", "length", "char_length", "array_length", "array_upper", "array_lower", "cardinality"}
)


def _is_whole(node: Any) -> bool:
    """Whether a part is a whole number by its words."""
    inner = node.unnest()
    if isinstance(inner, exp.Literal):
        return not inner.is_string and inner.name.isdigit()
    if isinstance(inner, exp.Cast):
        return inner.to.this in exp.DataType.INTEGER_TYPES
    if isinstance(inner, exp.Anonymous):
        return inner.name.lower() in (*_WHOLE_CALLS, "divide_whole")
    if isinstance(inner, exp.Add | exp.Sub | exp.Mul | exp.Mod):
        return _is_whole(inner.this) and _is_whole(inner.expression)
    return isinstance(inner, exp.Neg) and _is_whole(inner.this)


def _divide(node: Any) -> Any:
    """Whole numbers are divided as such."""
    whole = _is_whole(node.this) and _is_whole(node.expression)
    return call_function("divide_whole" if whole else "divide", node.this, node.expression)


def _read_array(text: str, inner: int) -> Any:
    """An array that is written as a text."""
    try:
        members = v.decode_text_array(text, inner)
    except (ValueError, KeyError):
        raise WireRefusal("22P02", "malformed array literal", "Write: '{a,b}'") from None
    listed = exp.Array(expressions=[exp.convert(each) for each in members])
    kind = exp.DataType.build(TYPES.get(v.TYPE_NAMES[inner], "VARCHAR") + "[]", dialect=DuckDB)
    return exp.Cast(this=listed, to=kind)


_PLACE = re.compile(r"\{(\w+|\*)\}")


class _Writer(DuckDB.Generator):  # type: ignore[misc]
    """The language of the engine; functions are written by the table of them."""

    def __init__(self, *arguments: Any, around: CatalogContext, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._known = {
            "dataset": around.dataset, "analyst": around.analyst, "version": _render_version(),
            "started": around.started,
        }  # fmt: skip
        self._process = around.process

    def anonymous_sql(self, expression: Any) -> str:
        """A call: by its form in the table, or as it is."""
        arguments = [self.sql(each) for each in expression.expressions]
        form = FUNCTIONS.get(expression.name.lower(), f"{expression.name.lower()}({{*}})")
        written = _PLACE.sub(lambda place: self._fill(place.group(1), arguments), form)
        if len(written) > LONGEST:
            raise build_unsupported_refusal("the statement about the catalog is too long")
        return written

    def _fill(self, place: str, arguments: list[str]) -> str:
        if place == "*":
            return ", ".join(arguments)
        if place == "rest":
            return ", ".join(arguments[1:])
        if place == "process":
            return str(self._process)
        if place == "pairs":
            return write_object(arguments)
        if place in self._known:
            return "'" + self._known[place].replace("'", "''") + "'"
        at = {"last": len(arguments) - 1, "before": len(arguments) - 2}.get(place)
        at = int(place) if at is None else at
        return f"({arguments[at]})" if 0 <= at < len(arguments) else "NULL"
