"""Questions about PostgreSQL's catalogs, from PostgreSQL's language to that of the engine that holds them.

Tools ask the catalogs in SQL of every tool's own making. A question is parsed and passes a gate: one SELECT, of parts,
functions and relations that are listed. Then it is written in the engine's language: functions by a table of them,
casts to `regclass` and the like by names of the catalog, columns under the names of PostgreSQL. What the catalogs hold
is said by a `Catalog`; nothing here knows a row."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from decimal import InvalidOperation
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects import DuckDB, Postgres
from sqlglot.errors import SqlglotError

from deniable.query.algebra.functions import TRUTHS
from deniable.query.sql.clauses import refuse_compiled_build
from deniable.query.sql.lexer import parse_array, write_out_escapes
from deniable.query.sql.scope import BARE, is_common_table, name_column, spell_type

ROWS = 100_000
LONGEST = 60_000
"""Characters of a rewritten statement: by them the parser of the engine takes time and memory, without a limit."""
MOST_GROWING = 100
"""Calls in a statement whose texts or lists may be longer than those they are made of."""
SCHEMAS = ("pg_catalog", "information_schema")


class CatalogRefusal(Exception):
    """A question about the catalog that has no answer, with PostgreSQL's code of the reason."""

    def __init__(
        self, state: str = "0A000", happened: str = "this question about the catalog is not supported", hint: str = ""
    ) -> None:
        self.state, self.happened = state, happened
        self.hint = hint or ("Tables and columns: \\d" if state == "0A000" else "")
        super().__init__(happened)


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a question about the catalog may name, and what its names stand for."""

    relations: Collection[str]
    functions: Mapping[str, str]
    """Functions of PostgreSQL in the language of the engine; {0} is an argument, {last} the last one."""
    plain: Collection[str]
    """Functions that the engine computes as PostgreSQL does."""
    growing: Collection[str]
    """Functions whose results may be longer than their arguments."""
    longer: Collection[str]
    """Functions that take further arguments, which change nothing here."""
    as_relations: Mapping[str, str]
    """Functions after FROM that are relations of the catalog."""
    lists: Collection[str]
    """Columns that hold lists of numbers."""
    settings: Collection[str]
    """The names of settings, in lower case."""
    find: Callable[[str, str], int | None]
    """The number of what has a name: of a kind such as `regclass`."""
    known: Mapping[str, str]
    """Values that functions name: {dataset}, {analyst}."""
    process: int


TYPES: Mapping[str, str] = {
    "oid": "BIGINT", "name": "VARCHAR", "char": "VARCHAR", "int2vector": "BIGINT", "oidvector": "BIGINT", "cstring":
    "VARCHAR", "xid": "BIGINT", "sql_identifier": "VARCHAR", "character_data": "VARCHAR", "cardinal_number": "BIGINT",
    "yes_or_no": "VARCHAR", "aclitem": "VARCHAR", "text": "VARCHAR", "varchar": "VARCHAR", "bpchar": "VARCHAR", "int2":
    "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "numeric": "DECIMAL",
    "bool": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "unknown": "VARCHAR",
    "time": "TIME", "uuid": "UUID", "interval": "INTERVAL", "json": "JSON",
}  # fmt: skip
"""Types of PostgreSQL, by their own names, with those that hold their values in the engine."""
NOUNS = {
    "regclass": ("relation", "42P01"), "regtype": ("type", "42704"), "regproc": ("function", "42883"),
    "regnamespace": ("schema", "3F000"), "regrole": ("role", "42704"),
}  # fmt: skip


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
    Add Alias All And Anonymous Any Array AtTimeZone Between Boolean Bracket CTE Case Cast Collate Column
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


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A question as the catalog's engine understands it, what it sets, and which of its columns are JSON."""

    sql: str
    assignments: tuple[Assignment, ...] = ()
    json: frozenset[int] = frozenset()


def rewrite(text: str, catalog: Catalog, *, rows: bool = True) -> Rewritten:
    """A question as the catalog's engine understands it, or a refusal."""
    try:
        tree = _parse(text)
        _check_parts(tree, catalog)
        _check_relations(tree, catalog.relations)
        json = frozenset(place for place, each in enumerate(tree.expressions) if _is_json(each.unalias().unnest()))
        assignments = _Translation(tree, catalog).run()
        _limit_rows(tree, rows)
        written = _Writer(dialect=DuckDB, identify=True, catalog=catalog, normalize_functions=False).generate(tree)
    except (SqlglotError, RecursionError, InvalidOperation):
        raise CatalogRefusal from None
    return Rewritten(_refuse_long(written), assignments, json)


def _refuse_long(written: str) -> str:
    if len(written) > LONGEST:
        raise CatalogRefusal("54001", "the statement about the catalog is too long")
    return written


def _is_json(node: Any) -> bool:
    named = isinstance(node, exp.Anonymous) and node.name.lower() in ("row_to_json", "to_json", "json_build_object")
    return named or (isinstance(node, exp.Cast) and spell_type(node.to) == "json")


def _parse(text: str) -> Any:
    refuse_compiled_build()
    found = _Read().parse(write_out_escapes(text))
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise CatalogRefusal()
    tree = found[0]
    if isinstance(tree, exp.Values):
        names = [exp.to_identifier(f"column{i + 1}") for i in range(len(tree.expressions[0].expressions))]
        shown = exp.TableAlias(this=exp.to_identifier("values"), columns=names)
        return exp.select("*").from_(exp.Values(expressions=tree.expressions, alias=shown))
    return tree


def _check_parts(tree: Any, catalog: Catalog) -> None:
    growing = 0
    for node in tree.walk():
        if isinstance(node, exp.DPipe) or (isinstance(node, exp.Anonymous) and node.name.lower() in catalog.growing):
            growing += max(1, len(node.expressions) - 3)
        if growing > MOST_GROWING:
            raise CatalogRefusal("54001", f"more than {MOST_GROWING} texts are put together")
        if type(node).__name__ not in PARTS or (isinstance(node, exp.With) and node.args.get("recursive")):
            raise CatalogRefusal()
        if not isinstance(node, exp.Anonymous):
            continue
        relation = isinstance(node.parent, exp.Table) and node.name.lower() in catalog.as_relations
        if not relation and node.name.lower() not in catalog.functions and node.name.lower() not in catalog.plain:
            raise CatalogRefusal(happened=f"the function {node.name.lower()} is not known to the catalog")


def _check_relations(tree: Any, known: Collection[str]) -> None:
    """What stands after FROM or JOIN is a relation of the catalog, a function, or what the statement itself names."""
    for table in (each for each in tree.find_all(exp.Table) if not isinstance(each.this, exp.Anonymous)):
        schema, name = table.db.lower(), table.name
        if not isinstance(table.this, exp.Identifier) or table.catalog or schema not in ("", "public", *SCHEMAS):
            raise CatalogRefusal("42P01", f'relation "{name}" does not exist in the catalog')
        name = name if table.this.quoted else name.lower()
        full = f"information_schema_{name}" if schema == "information_schema" else name
        if not (full in known or (not schema and is_common_table(table))):
            raise CatalogRefusal("42P01", f'relation "{name}" does not exist in the catalog')
        if schema == "information_schema":
            table.this.set("this", full)
            if not table.alias:
                table.set("alias", exp.TableAlias(this=exp.to_identifier(name)))
        table.set("db", None)


def _limit_rows(tree: Any, rows: bool) -> None:
    """Let the statement give no more rows than are ever given."""
    limit = tree.args.get("limit")
    asked = limit and (limit.args.get("expression") or limit.args.get("count"))
    while isinstance(asked, exp.Cast | exp.Paren):
        asked = asked.this
    if asked is not None and not (isinstance(asked, exp.Literal) and asked.name.isdigit()):
        raise CatalogRefusal(happened="LIMIT takes a whole number here")
    least = min(ROWS if rows else 0, int(asked.name) if asked else ROWS)
    tree.set("limit", exp.Limit(expression=exp.Literal.number(least)))


_TRANSACTIONS = ("xmin", "xid", "transactionid")
"""Columns that hold numbers of transactions."""


class _Translation:
    """The steps from PostgreSQL's meaning to the engine's, on the tree of one statement."""

    def __init__(self, tree: Any, catalog: Catalog) -> None:
        self._tree, self._catalog = tree, catalog

    def run(self) -> tuple[Assignment, ...]:
        """Change the tree in place; what `set_config` sets is given back."""
        for dot in list(self._tree.find_all(exp.Dot)):
            if isinstance(dot.expression, exp.Anonymous) and isinstance(dot.this, exp.Identifier):
                dot.replace(dot.expression)
        for select in self._tree.find_all(exp.Select):
            select.set("expressions", [name_column(each) for each in select.expressions])
        named = {table.alias_or_name.lower(): table.name for table in self._tree.find_all(exp.Table)}
        for column in list(self._tree.find_all(exp.Column)):
            self._read_column(column, named)
        for name in self._tree.find_all(exp.Identifier):
            if not name.quoted:
                name.set("this", name.this.lower())
        assignments = self._take_assignments()
        for table in list(self._tree.find_all(exp.Table, exp.Unnest)):
            _read_table(table, self._catalog.as_relations)
        # Inner ones first: what is around them then sees what they have become.
        for node in reversed(list(self._tree.walk(bfs=False))):
            self._replace(node)
        self._show_registered()
        return assignments

    def _read_column(self, column: Any, named: Mapping[str, str]) -> None:
        """`public.people.sex` is `people.sex`; `current_user` is a function; `c.tableoid` is its table's number."""
        if column.name.lower() == "tableoid" and column.table.lower() in named:
            column.replace(exp.Literal.number(self._find_registered("regclass", named[column.table.lower()])))
            return
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
                    raise CatalogRefusal(happened="set_config takes a name and a value as they are")
                found.append(Assignment(name.name, value.name, isinstance(local, exp.Boolean) and bool(local.this)))
                call.replace(exp.Literal.string(value.name))
        if any(call.name.lower() == "set_config" for call in self._tree.find_all(exp.Anonymous)):
            raise CatalogRefusal(happened="set_config stands among the columns of a statement")
        return tuple(found)

    def _replace(self, node: Any) -> None:
        """One part, whose inner parts were replaced already."""
        if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
            escaped = exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))
            node.replace(escaped)
        elif isinstance(node, exp.Collate):
            node.replace(node.this)
        elif isinstance(node, exp.Operator):
            node.replace(_read_operator(node.args["operator"], node.this, node.expression))
        elif isinstance(node, exp.DPipe) and not isinstance(node.parent, exp.DPipe):
            node.replace(_call_function("put_together", *_list_joined(node)))
        elif isinstance(node, exp.Div):
            node.replace(_divide(node))
        elif isinstance(node, exp.Cast):
            node.replace(self._cast(node))
        elif isinstance(node, exp.Any):
            inner = node.this.unnest()
            if isinstance(inner, exp.Literal) and inner.is_string:
                node.set("this", exp.Paren(this=_read_array(inner.name)))
        elif isinstance(node, exp.EQ | exp.NEQ) and node.this.name in self._catalog.lists:
            if isinstance(node.expression, exp.Literal) and node.expression.is_string:
                node.set("expression", _read_array(node.expression.name, "int8"))
        elif isinstance(node, exp.Anonymous) and node.name.lower() in COMPUTED:
            node.replace(self._compute(node))

    def _cast(self, node: Any) -> Any:
        """A cast to a type that the engine has, or to a number of the catalog."""
        kind = spell_type(node.to)
        inner = node.this
        literal = isinstance(inner, exp.Literal) and inner.is_string
        if kind in NOUNS:
            if literal and not inner.name.isdigit():
                return _mark(exp.Literal.number(self._find_registered(kind, inner.name)), kind)
            return _mark(exp.Anonymous(this=f"{kind}in", expressions=[inner.copy()]), kind)
        registered = _registered_kind(inner)
        if registered and kind in ("text", "varchar", "name"):
            return exp.Anonymous(this=f"{registered}out", expressions=[_unmark(inner)])
        if isinstance(inner, exp.Literal) and (known := _read_constant(inner.name.strip(), kind, literal)) is not None:
            return known
        if kind == "bpchar" and literal and inner.name.endswith(" "):
            raise CatalogRefusal(happened="spaces at the end of a text of type character are not supported")
        if kind.endswith("[]") and literal:
            return _read_array(inner.name, kind[:-2])
        if kind == "numeric" and not node.to.expressions:
            return _write_numeric(inner)
        if kind in ("varchar", "bpchar") and node.to.expressions:
            return _call_function("left_of", inner, node.to.expressions[0].this)
        written = TYPES.get(kind.removesuffix("[]"))
        if written is None:
            raise CatalogRefusal("42704", f'type "{kind}" does not exist in the catalog')
        size = ", ".join(each.name for each in node.to.expressions) if kind == "numeric" else ""
        ending = "[]" if kind.endswith("[]") else f"({size})" if size else ""
        return exp.Cast(this=inner.copy(), to=exp.DataType.build(written + ending, dialect=DuckDB, udt=True))

    def _find_registered(self, kind: str, name: str) -> int:
        found = self._catalog.find(kind, name)
        if found is None:
            noun, state = NOUNS[kind]
            raise CatalogRefusal(state, f'{noun} "{name}" does not exist in the catalog')
        return found

    def _compute(self, node: Any) -> Any:
        """A call whose meaning follows from its words: of a format, of a setting's name, of a column."""
        first = node.expressions[0] if node.expressions else None
        word = first.name if isinstance(first, exp.Literal) and first.is_string else None
        match node.name.lower():
            case "format":
                if word is None:
                    raise CatalogRefusal(happened="format takes its pattern as it is")
                return _format_pattern(word, node.expressions[1:])
            case "pg_typeof" if word is not None:
                return exp.Literal.string("unknown")
            case "age" if not isinstance(first, exp.Column) or not first.name.endswith(_TRANSACTIONS):
                raise CatalogRefusal(happened="age takes the number of a transaction")
            case "current_setting" if word is not None:
                if word.lower() not in self._catalog.settings and len(node.expressions) == 1:
                    raise CatalogRefusal("42704", f'unrecognized configuration parameter "{word}"')
            case "round" if len(node.expressions) == 1 and isinstance(first, exp.Cast) and first.is_type(*_FLOATING):
                return _call_function("round_even", first, exp.Literal.number(0))  # halves to even, as in PostgreSQL
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


COMPUTED = ("format", "pg_typeof", "age", "current_setting", "round")
"""Calls whose meaning follows from their words."""
_FLOATING = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)


def _list_joined(node: Any) -> list[Any]:
    """The parts of a || b || c, from left to right, so that they are put together at once."""
    found, rest = [], node
    while isinstance(rest, exp.DPipe):
        found.append(rest.expression)
        rest = rest.this
    return [rest, *reversed(found)]


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


def _read_table(table: Any, as_relations: Mapping[str, str]) -> None:
    """A function after FROM is a relation of that name, or a selection of what it gives."""
    if isinstance(table, exp.Table) and not isinstance(table.this, exp.Anonymous):
        return
    if not isinstance(table.parent, exp.From | exp.Join | exp.Lateral):
        return
    alias = table.args.get("alias")
    word = table.this.name.lower() if isinstance(table, exp.Table) else "unnest"
    name = alias.name if alias is not None and alias.name else word
    columns = [each.name for each in alias.args.get("columns") or []] if alias is not None else []
    if word in as_relations:
        shown = exp.TableAlias(
            this=exp.to_identifier(name, quoted=True), columns=alias.args.get("columns") if alias else None
        )
        table.replace(exp.Table(this=exp.to_identifier(as_relations[word], quoted=True), alias=shown))
        return
    called = isinstance(table, exp.Table)
    given = [table.this.copy()] if called else [_call_function("unnest", each) for each in table.expressions]
    ordinal = table.args.get("ordinality" if called else "offset")
    names = [*columns, *[name] * len(given)][: len(given)]
    shown = [exp.alias_(each, one, quoted=True) for each, one in zip(given, names, strict=True)]
    if ordinal:
        numbered = ordinal.name if isinstance(ordinal, exp.Identifier) else (*columns[len(given) :], "ordinality")[0]
        counted = _call_function("ordinality_of", given[0].expressions[0])
        shown.append(exp.alias_(counted, numbered, quoted=True))
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
    sides = node.this, node.expression
    return _call_function("divide_whole" if all(map(_is_whole, sides)) else "divide", *sides)


_BITS = {"int2": 15, "int4": 31, "int8": 63}


def _read_constant(text: str, kind: str, quoted: bool) -> Any:
    """A constant that is cast to a truth value; a whole number that cannot be read, or does not fit, is refused."""
    if kind == "bool" and quoted:
        if text.lower() not in TRUTHS:
            raise CatalogRefusal("22P02", "invalid input syntax for type boolean")
        return exp.Boolean(this=TRUTHS[text.lower()])
    whole = re.fullmatch("[+-]?[0-9]{1,30}", text)
    if kind in _BITS and quoted and whole is None:
        raise CatalogRefusal("22P02", f"invalid input syntax for type {kind}")
    if kind in _BITS and whole is not None and not -(1 << _BITS[kind]) <= int(text) < 1 << _BITS[kind]:
        raise CatalogRefusal("22003", f"the number is out of range for type {kind}")
    return None


def _write_numeric(inner: Any) -> Any:
    """A value of type numeric: a constant has the digits that it is written with, anything else is a double."""
    bare = inner.unnest()
    held = bare.this if isinstance(bare, exp.Neg) else bare
    text = ("-" if held is not bare else "") + held.name.strip() if isinstance(held, exp.Literal) else ""
    if (digits := re.fullmatch(r"[+-]?[0-9]{1,22}(?:\.([0-9]{1,15}))?", text)) is not None:
        kind = f"DECIMAL(38, {len(digits[1] or '')})"
        return exp.Cast(this=exp.Literal.number(text), to=exp.DataType.build(kind, dialect=DuckDB))
    return inner if text and not held.is_string else _call_function("to_double", inner)


def _read_array(text: str, inner: str = "text") -> Any:
    """An array that is written as a text."""
    try:
        members = parse_array(text)
    except ValueError:
        raise CatalogRefusal("22P02", "malformed array literal", "Write: '{a,b}'") from None
    listed = exp.Array(expressions=[exp.convert(each) for each in members])
    return exp.Cast(this=listed, to=exp.DataType.build(TYPES.get(inner, "VARCHAR") + "[]", dialect=DuckDB))


_PLACE = re.compile(r"\{(\w+|\*)\}")


class _Writer(DuckDB.Generator):  # type: ignore[misc]
    """The language of the engine; functions are written by the table of them."""

    def __init__(self, *arguments: Any, catalog: Catalog, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._catalog = catalog

    def anonymous_sql(self, expression: Any) -> str:
        """A call: by its form in the table, or as it is."""
        arguments = [self.sql(each) for each in expression.expressions]
        name = expression.name.lower()
        form = self._catalog.functions.get(name, f"{name}({{*}})")
        places = [each for each in _PLACE.findall(form) if each not in self._catalog.known]
        numbered = bool(places) and all(map(str.isdigit, places)) and name not in self._catalog.longer
        if numbered and len(arguments) > max(map(int, places)) + 1:  # one that is passed over would mean something
            raise CatalogRefusal("42883", f"the function {name} with {len(arguments)} arguments is not known here")
        return _refuse_long(_PLACE.sub(lambda place: self._fill(place.group(1), arguments), form))

    def _fill(self, place: str, arguments: list[str]) -> str:
        if place == "*":
            return ", ".join(arguments)
        if place == "rest":
            return ", ".join(arguments[1:])
        if place == "process":
            return str(self._catalog.process)
        if place in ("pairs", "joined", "sizes"):
            return {"pairs": _write_object, "joined": " || ".join, "sizes": _add_sizes}[place](arguments)
        if place in self._catalog.known:
            return "'" + self._catalog.known[place].replace("'", "''") + "'"
        at = {"last": len(arguments) - 1, "before": len(arguments) - 2}.get(place, place)
        return f"({arguments[int(at)]})" if 0 <= int(at) < len(arguments) else "NULL"


def _add_sizes(arguments: list[str]) -> str:
    return " + ".join(f"length(CAST({each} AS VARCHAR))" for each in arguments)


def _write_object(arguments: list[str]) -> str:
    """`json_build_object` as PostgreSQL writes it."""
    if len(arguments) % 2:
        raise CatalogRefusal("22023", "json_build_object takes names and values in pairs")
    pairs = [
        f"CAST(to_json(CAST({name} AS VARCHAR)) AS VARCHAR) || ' : ' || "
        f"coalesce(CAST(to_json({value}) AS VARCHAR), 'null')"
        for name, value in zip(arguments[::2], arguments[1::2], strict=True)
    ]
    return "('{' || " + " || ', ' || ".join(pairs or ["''"]) + " || '}')"


def _call_function(name: str, *arguments: Any) -> Any:
    """A call of a function of the table."""
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


_OPERATORS: Mapping[str, Any] = {
    "~": exp.RegexpLike, "~*": exp.RegexpILike, "=": exp.EQ, "<>": exp.NEQ, "~~": exp.Like, "~~*": exp.ILike,
    "<": exp.LT, ">": exp.GT, "<=": exp.LTE, ">=": exp.GTE, "||": exp.DPipe, "+": exp.Add, "-": exp.Sub,
}  # fmt: skip


def _read_operator(operator: Any, left: Any, right: Any) -> Any:
    """OPERATOR(pg_catalog.~) is ~."""
    word = str(operator).replace(" ", "").removeprefix("pg_catalog.")
    negated = word.startswith("!~")
    made = _OPERATORS.get(word.removeprefix("!") if negated else word)
    if made is None:
        raise CatalogRefusal()
    if made is exp.DPipe:
        return _call_function("put_together", left, right)
    inner = made(this=left.copy(), expression=right.copy())
    if isinstance(inner, exp.Like | exp.ILike):
        inner = exp.Escape(this=inner, expression=exp.Literal.string("\\"))
    return exp.Not(this=exp.Paren(this=inner)) if negated else inner


_FORMAT = re.compile(r"%(?:(\d+)\$)?([sIL%])|%")


def _format_pattern(pattern: str, arguments: list[Any]) -> Any:
    """`format('%I.%s', a, b)`: the pieces of the pattern and the arguments between them."""
    pieces, at, following = [], 0, 0
    for found in _FORMAT.finditer(pattern):
        pieces.append(exp.Literal.string(pattern[at : found.start()]))
        at, kind = found.end(), found.group(2)
        if kind == "%":
            pieces.append(exp.Literal.string("%"))
            continue
        following = int(found.group(1)) if found.group(1) else following + 1
        if kind is None or not 0 < following <= len(arguments):
            raise CatalogRefusal(
                "22023", "the pattern of format asks for what was not given", "There are %s, %I, %L, %%"
            )
        given = arguments[following - 1]
        pieces.append(
            given.copy() if kind == "s" else _call_function({"I": "quote_ident", "L": "quote_nullable"}[kind], given)
        )
    return _call_function("concat", *pieces, exp.Literal.string(pattern[at:]))
