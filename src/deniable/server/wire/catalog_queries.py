"""Questions about the catalog: which statements they are, and how they are put to the engine that holds only that.

Catalog questions come as SQL of every tool's own making, so they run as SQL: on an engine of its own, sealed, that
holds nothing but declared metadata, one for all sessions. Before that they pass a gate: one SELECT, only listed
functions, only catalog relations. What PostgreSQL has and the engine has not (its casts to `regclass`, its collations,
`pg_get_userbyid`) is rewritten word by word."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.curator.query import metadata
from deniable.errors import DeniableError
from deniable.governance.grants import Role
from deniable.server.monitoring import log_to_stderr
from deniable.server.wire.catalog_tables import (
    EMPTY,
    FIRST_TABLE,
    PublicColumn,
    PublicTable,
    build_catalog,
    build_empty,
)
from deniable.server.wire.codec import WireRefusal
from deniable.server.wire.lexer import Kind, Statement, Token
from deniable.server.wire.settings import REPORTED, TOLERATED

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker


SECONDS = 5.0
ROWS = 100_000


class CatalogEngine:
    """The catalogs that askers see: the same for all who may name the same columns."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._seen: dict[tuple[PublicTable, ...], dict[str, pa.Table]] = {}

    def ask(self, statement: Statement, analyst: str, process: int, who: Asker, rows: bool = True) -> pa.Table:
        """The answer to a question about the catalog; without rows it only has its columns."""
        context = self._curator.context
        shown = metadata.schema(context if who.role is Role.STEWARD else context.speak_for(who))
        tables = tuple(_describe_table(table) for table in shown)
        names = tuple(table.name for table in tables)
        sql = rewrite_statement(
            statement, CatalogContext(self._curator.policy.dataset, analyst, _render_version(), process, names)
        )
        held = self._find_frames(tables) | {table.name: build_empty(table) for table in tables}
        needed = {name: held[name] for name in held if name in sql}
        limited = f"SELECT * FROM ({sql}) AS asked LIMIT {ROWS if rows else 0}"  # noqa: S608  gated, and sealed
        try:
            return self._open_engine().run(limited, seconds=SECONDS, frames=needed)
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
    return WireRefusal("0A000", "this question about the catalog is not supported", "Tables and columns: \\d")


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


RELATIONS = frozenset(EMPTY) | {
    "pg_namespace", "pg_class", "pg_attribute", "pg_description", "pg_type", "pg_database", "pg_roles", "pg_user",
    "pg_tables", "pg_am", "information_schema_schemata", "information_schema_tables", "information_schema_columns",
    "information_schema_character_sets", "pg_get_keywords", "pg_settings",
}  # fmt: skip
SCHEMAS = ("pg_catalog", "information_schema")
_PLAIN = """
    coalesce nullif lower upper length char_length substring substr replace concat concat_ws trim btrim ltrim
    rtrim position strpos left right count sum min max avg bool_or bool_and array_agg string_agg array_to_string
    unnest row_number rank cast case exists any all some in and or not as on over filter when then else from where
    select join by values array distinct using with union except intersect extract abs greatest least round floor
    ceil array_length cardinality array_position lateral is between like having limit offset interval end varchar
    char numeric decimal timestamp md5 quote_literal string_to_array date_trunc regexp_replace split_part lpad rpad
    starts_with sign power mod
"""
PLAIN = frozenset(_PLAIN.split())
"""Words that may stand before a bracket: functions that only compute, and words of SQL itself."""

CALLS: Mapping[str, str] = {
    "version": "{version}",
    "current_database": "{dataset}",
    "current_catalog": "{dataset}",
    "current_schema": "'public'",
    "current_schemas": "['pg_catalog', 'public']",
    "pg_backend_pid": "{process}",
    "pg_get_userbyid": "'steward'",
    "pg_encoding_to_char": "'UTF8'",
    "pg_char_to_encoding": "6",
    "pg_my_temp_schema": "0",
    "pg_is_in_recovery": "false",
    "pg_is_other_temp_schema": "false",
    "pg_postmaster_start_time": "NULL",
    "pg_table_is_visible": "true",
    "pg_type_is_visible": "true",
    "pg_function_is_visible": "true",
    "pg_collation_is_visible": "true",
    "pg_relation_is_publishable": "false",
    "pg_stat_get_numscans": "0",
    "pg_total_relation_size": "NULL",
    "pg_relation_size": "NULL",
    "pg_table_size": "NULL",
    "pg_size_pretty": "NULL",
    "pg_relation_filenode": "NULL",
    "pg_get_partkeydef": "NULL",
    "pg_get_expr": "NULL",
    "pg_get_constraintdef": "NULL",
    "pg_get_indexdef": "NULL",
    "pg_get_viewdef": "NULL",
    "pg_get_ruledef": "NULL",
    "pg_get_triggerdef": "NULL",
    "pg_get_serial_sequence": "NULL",
    "pg_get_statisticsobjdef_columns": "NULL",
    "pg_get_function_result": "NULL",
    "pg_get_function_arguments": "NULL",
    "pg_get_function_identity_arguments": "NULL",
    "pg_tablespace_location": "NULL",
    "pg_options_to_table": "NULL",
    "shobj_description": "NULL",
    "obj_description": "(SELECT d_.description FROM pg_description d_ WHERE d_.objoid = ({0}) AND d_.objsubid = 0)",
    "col_description": "(SELECT d_.description FROM pg_description d_ WHERE d_.objoid = ({0}) AND d_.objsubid = ({1}))",
    "format_type": "(SELECT t_.written FROM pg_type t_ WHERE t_.oid = ({0}))",
    "has_table_privilege": "true",
    "has_any_column_privilege": "true",
    "has_column_privilege": "true",
    "has_schema_privilege": "true",
    "has_database_privilege": "true",
    "pg_has_role": "false",
    "to_regclass": "NULL",
    "to_regtype": "NULL",
    "quote_ident": "({0})",
    "set_config": "({1})",
    "current_setting": "{setting}",
    "txid_current": "1",
    "generate_series": "(SELECT 1 AS s WHERE false)",
    "array_upper": "0",
    "generate_subscripts": "0",
    "json_build_object": "NULL",
    "pg_sequence_parameters": "NULL",
    "pg_get_keywords": "pg_get_keywords",
    "_pg_expandarray": "struct_pack(x := NULL::BIGINT, n := NULL::BIGINT)",
    "pg_advisory_unlock_all": "NULL",
    "pg_advisory_unlock": "true",
    "pg_try_advisory_lock": "true",
    "pg_notify": "NULL",
    "pg_is_wal_replay_paused": "false",
    "pg_conf_load_time": "NULL",
    "pg_client_encoding": "'UTF8'",
    "pg_get_functiondef": "NULL",
    "pg_stat_get_live_tuples": "NULL",
    "pg_database_size": "NULL",
    "inet_server_addr": "NULL",
    "inet_server_port": "NULL",
    "inet_client_addr": "NULL",
    "age": "(0 + 0)",
    "format": "NULL::VARCHAR",
    "parse_ident": "[{0}]",
    "array_lower": "1",
    "has_function_privilege": "false",
    "has_sequence_privilege": "false",
    "has_language_privilege": "false",
    "has_tablespace_privilege": "false",
    "has_type_privilege": "true",
}
"""Functions of PostgreSQL that answer with a constant here, or with a look into the catalog; {0} is an argument."""

BARE: Mapping[str, str] = {
    "current_user": "{analyst}",
    "session_user": "{analyst}",
    "user": "{analyst}",
    "current_role": "{analyst}",
    "current_catalog": "{dataset}",
    "current_schema": "'public'",
}
TYPES: Mapping[str, str] = {
    "regclass": "BIGINT", "regtype": "BIGINT", "regproc": "VARCHAR", "regrole": "VARCHAR", "regnamespace": "BIGINT",
    "oid": "BIGINT", "name": "VARCHAR", "char": "VARCHAR", "int2vector": "BIGINT[]", "oidvector": "BIGINT[]",
    "information_schema": "VARCHAR", "cstring": "VARCHAR", "xid": "BIGINT", "sql_identifier": "VARCHAR",
}  # fmt: skip
_CATALOG_OIDS = {"pg_class": 1259, "pg_type": 1247, "pg_namespace": 2615, "pg_constraint": 2606}
_REFUSED = ("duckdb_", "pragma_", "sqlite_")
_SIGNS = {"~*": "~", "!~*": "!~", "~~": "LIKE", "!~~": "NOT LIKE", "~~*": "ILIKE", "!~~*": "NOT ILIKE"}


@dataclass(frozen=True, slots=True)
class CatalogContext:
    """The public facts that catalog questions may ask for."""

    dataset: str
    analyst: str
    version: str
    process: int
    tables: tuple[str, ...]


def is_catalog_question(statement: Statement) -> bool:
    """Whether a SELECT asks for nothing but the catalog, or for the columns of an answer that has no rows.

    It names a relation of the catalog, or no relation at all; or nothing that it could ask of people would be given,
    because its outermost condition is false or its limit is 0. Both run where no rows of people are.
    """
    if statement.words[:1] not in (("select",), ("with",), ("values",), ("table",)):
        return False
    words = statement.words
    if "from" not in words and "table" not in words[:1]:
        return True
    named = {word for i, word in enumerate(words) if i and words[i - 1] in ("from", "join", ".", ",", "table")}
    if named & RELATIONS or "information_schema" in named or asks_for_columns(statement):
        return True
    return "table" not in words[:1] and all(name in _NO_RELATIONS for name, _ in _list_relations(words))


_NO_RELATIONS = ("select", "values", "with", "unnest", "generate_series")
"""What may stand after FROM and is the name of no relation."""
_CALLS_WITH_FROM = frozenset({"trim", "extract", "substring", "overlay", "position"})
"""Functions inside whose brackets FROM names no relation."""
_FALSE = (("1", "=", "0"), ("0", "=", "1"), ("false",), ("1", "<>", "1"), ("1", "=", "2"), ("null",))


def asks_for_columns(statement: Statement) -> bool:
    """Whether a SELECT can have no rows, as tools ask to learn the columns: `WHERE 1 = 0` or `LIMIT 0` at its end."""
    words, depth = statement.words, 0
    if set(words) & {"union", "intersect", "except", "offset"}:
        return False
    if words[-2:] == ("limit", "0"):
        return True
    for i, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word == "where" and depth == 0:
            rest = words[i + 1 :]
            while rest[:1] == ("(",) and rest[-1:] == (")",):
                rest = rest[1:-1]
            return any(rest == each or (rest[:-2] == each and rest[-2:-1] == ("limit",)) for each in _FALSE)
    return False


def _list_relations(words: tuple[str, ...]) -> list[tuple[str, int]]:
    """What stands after each FROM and JOIN, with its place; the name alone, where it is qualified."""
    found, calls = [], [""]
    for i, word in enumerate(words[:-1]):
        if word == "(":
            calls.append(words[i - 1] if i else "")
        elif word == ")" and len(calls) > 1:
            calls.pop()
        if word not in ("from", "join") or calls[-1] in _CALLS_WITH_FROM:
            continue
        at = i + 1
        while words[at] in ("only", "lateral", "(") and at + 1 < len(words):
            at += 1
        qualified = at + 2 < len(words) and words[at + 1] == "."
        found.append((words[at + 2] if qualified else words[at], at))
    return found


RECEIVED = ("oid", "typname", "typreceive", "typbasetype", "typrelid", "typarray")
"""What ADBC asks of types: it knows them by the names of the functions that receive them."""


def rewrite_statement(statement: Statement, around: CatalogContext) -> str:
    """The statement as the catalog's engine understands it, or a refusal."""
    if statement.words[:3] == ("with", "recursive", "typeinfo_tree"):
        return "SELECT * FROM typeinfo_tree"  # asyncpg's question for types
    if {"typreceive", "'array_recv'"} <= set(statement.words) and statement.words[:2] == ("select", "oid"):
        columns = statement.words[1 : statement.words.index("from") : 2]
        if set(columns) <= set(RECEIVED):
            return f"SELECT {', '.join(columns)} FROM receive_tree"  # noqa: S608  ADBC's question for types
    _check_statement(statement, frozenset(around.tables) if asks_for_columns(statement) else frozenset())
    return _Rewriter(_simplify_operators(statement.tokens), around).text()


def _check_statement(statement: Statement, tables: frozenset[str]) -> None:
    words = statement.words
    if words[0] not in ("select", "with", "values") or "recursive" in words or ";" in words:
        raise _build_unsupported_refusal()
    for token, following in zip(statement.tokens, (*statement.tokens[1:], None), strict=True):
        if token.kind not in (Kind.WORD, Kind.NAME):
            continue
        if token.value.lower().startswith(_REFUSED):
            raise _build_unsupported_refusal()
        called = following is not None and following.text == "("
        if called and token.value not in PLAIN and token.value not in CALLS and not _is_alias(statement, token):
            raise _build_unsupported_refusal()
    _check_relations(statement, RELATIONS | tables)


def _is_alias(statement: Statement, token: Token) -> bool:
    """A name with a list of columns after it: `WITH x (a)`, `AS x (a)`, `OPERATOR (...)`."""
    place = statement.tokens.index(token)
    before = statement.tokens[place - 1].value if place else ""
    return token.value in ("operator", "materialized") or before in ("as", "with", ")")


def _check_relations(statement: Statement, known: frozenset[str]) -> None:
    """What stands after FROM or JOIN is a bracket, a catalog relation, or a name that the statement itself gives."""
    words = statement.words
    given = {words[i] for i in range(len(words) - 1) if words[i + 1] in ("as", "(") or (i and words[i - 1] == "as")}
    for name, at in _list_relations(words):
        qualified = words[at + 1 : at + 2] == (".",)
        if name in _NO_RELATIONS:
            continue
        if qualified and words[at] == "information_schema":
            name = f"information_schema_{name}"
        if statement.tokens[at].kind is Kind.STRING or (name not in known and (qualified or name not in given)):
            raise WireRefusal("42P01", f'relation "{name}" does not exist in the catalog')


def _build_unsupported_refusal() -> WireRefusal:
    return WireRefusal("0A000", "this question about the catalog is not supported", "Tables and columns: \\d")


def _simplify_operators(found: tuple[Token, ...]) -> list[Token]:
    """OPERATOR(pg_catalog.~) is ~, and COLLATE pg_catalog.default is nothing."""
    kept: list[Token] = []
    i = 0
    while i < len(found):
        if found[i].value == "operator" and [t.value for t in found[i + 1 : i + 4]] == ["(", "pg_catalog", "."]:
            kept.append(found[i + 4])
            i += 6
        elif found[i].value == "collate":
            i += 4 if [t.value for t in found[i + 2 : i + 3]] == ["."] else 2
        else:
            kept.append(found[i])
            i += 1
    return kept


class _Rewriter:
    """One pass over the tokens; each step gives the text for the tokens it has taken."""

    def __init__(self, found: list[Token], around: CatalogContext, *, named: bool = True) -> None:
        self._tokens = found
        self._around = around
        self._at = 0
        self._depth = 0
        self._named = named
        """Whether a call of PostgreSQL's gets its own name as a column, as PostgreSQL does: up to the first FROM."""

    def text(self) -> str:
        """The whole statement."""
        parts = []
        while self._at < len(self._tokens):
            parts.append(self._next())
        return " ".join(parts)

    def _next(self) -> str:
        token = self._take()
        self._depth += (token.text == "(") - (token.text == ")")
        self._named = self._named and token.value != "from"
        if token.kind is Kind.SIGN:
            return self._cast() if token.text == "::" else _SIGNS.get(token.text, token.text)
        if token.kind is Kind.STRING:
            return self._string(token)
        if token.kind not in (Kind.WORD, Kind.NAME):
            return token.text
        if token.value == "public" and self._peek() == ".":
            self._take()
            return self._word(self._take())
        if token.value in SCHEMAS and self._peek() == ".":
            self._take()
            name = self._take()
            if name.value in CALLS:
                return self._word(name)
            prefix = "information_schema_" if token.value == "information_schema" else ""
            return self._word(Token(Kind.WORD, prefix + name.value, name.start)) if prefix else self._word(name)
        return self._word(token)

    def _word(self, token: Token) -> str:
        if token.kind is Kind.WORD and self._peek() == "(" and token.value in CALLS:
            return self._fill_call(CALLS[token.value], self._arguments()) + self._name(token)
        if token.value == "any" and self._peek() == "(" and self._names_a_column():
            self._arguments()
            return "any([NULL])"  # columns that hold lists exist in catalogs without rows only
        before = self._tokens[self._at - 2].value if self._at > 1 else ""
        if before == "as" and self._peek() == ")" and token.value in TYPES:
            return TYPES[token.value]
        if token.kind is Kind.WORD and token.value in BARE and before != ".":
            return self._fill_call(BARE[token.value], []) + self._name(token)
        return token.text

    def _name(self, token: Token) -> str:
        alone = self._peek().lower() in (",", "from", "")
        return f" AS {token.value}" if self._named and self._depth == 0 and alone else ""

    def _names_a_column(self) -> bool:
        """Whether the bracket that follows holds nothing but a column's name."""
        inside = self._tokens[self._at + 1 : self._at + 5]
        kinds = [token.text if token.kind is Kind.SIGN else "name" for token in inside]
        return kinds[:2] == ["name", ")"] or kinds[:4] == ["name", ".", "name", ")"]

    def _cast(self) -> str:
        """A cast: PostgreSQL's own types become the nearest that the engine has."""
        token = self._take()
        if token.value in SCHEMAS and self._peek() == ".":
            self._take()
            token = self._take()
        return f":: {TYPES.get(token.value, token.text)}"

    def _string(self, token: Token) -> str:
        """A text; cast to regclass it is the number of a table."""
        following = [t.value for t in self._tokens[self._at : self._at + 5]]
        if following[:1] in (["::"], ["as"]) and "regclass" in following[1:4:2]:
            name = token.value.split(".")[-1].strip('"')
            tables = self._around.tables
            return str(FIRST_TABLE + tables.index(name)) if name in tables else str(_CATALOG_OIDS.get(name, 0))
        if "[" in following[2:5] and following[0] == "::" and token.value[:1] == "{":
            return _quote_literal(f"[{token.value[1:-1]}]")  # the engine writes lists in square brackets
        return _quote_literal(token.value)

    def _arguments(self) -> list[str]:
        """The texts of the arguments of a call, each rewritten."""
        self._take()
        depth, start, found = 1, self._at, []
        while depth:
            token = self._take()
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0 or (depth == 1 and token.text == ","):
                found.append(_Rewriter(self._tokens[start : self._at - 1], self._around, named=False).text())
                start = self._at
        return found

    def _fill_call(self, form: str, arguments: list[str]) -> str:
        around = self._around
        known = {name: _quote_literal(getattr(around, name)) for name in ("dataset", "analyst", "version")}
        if form.startswith("{") and form[1:-1] in known:
            return known[form[1:-1]]
        if form == "{process}":
            return str(around.process)
        if form == "{setting}":
            name = arguments[0].strip("'") if arguments else ""
            return _quote_literal({**REPORTED, **TOLERATED}[name]) if name in {**REPORTED, **TOLERATED} else "NULL"
        padded = [*arguments, "NULL", "NULL"]
        return form.replace("{0}", padded[0] or "NULL").replace("{1}", padded[1] or "NULL")

    def _take(self) -> Token:
        if self._at >= len(self._tokens):
            raise WireRefusal("42601", "the statement ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""


def _quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
