"""Questions about the catalog: which statements they are, what they may say, and the engine that answers them.

They run as SQL on an engine of its own, sealed, that holds nothing but declared metadata, one for all sessions;
`query.sql.catalogs` checks them and writes them in its language. Functions of PostgreSQL are computed, or they are
refused: none answers with a constant that is not true of these catalogs. What is NULL below is so because nothing of
its kind exists here (indexes, rules, sizes that are told)."""

# ruff: noqa: S608  (statements here are made of our own words; what is asked was parsed, and runs where no rows are)

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deniable.curator.query import metadata
from deniable.errors import DeniableError, ParameterError
from deniable.governance.grants import Role
from deniable.query.sql.catalogs import Catalog, CatalogRefusal, Rewritten, rewrite
from deniable.query.sql.lexer import Kind, Statement
from deniable.server.monitoring import log_to_stderr
from deniable.server.wire.catalog_tables import (
    EMPTY,
    FILLED,
    KEYWORDS,
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

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.governance.grants import Asker

SECONDS = 5.0
MOST_BYTES = 8_000_000
"""Of all rows of an answer about the catalog: half a million cells of up to 16 bytes."""
MOST_ASKED, MOST_WORDS, DEEPEST = 30_000, 6_000, 60
"""Characters, words and brackets within brackets of a question about the catalog."""

_PLAIN = """
    abs any_value array_position ascii avg bool_and bool_or ceil ceiling
    chr coalesce count date_part date_trunc dense_rank exp first_value floor greatest lag last_value
    lead least left length ln log lower ltrim max md5 min mod now ntile nullif power rank reverse right
    round row_number rtrim sign split_part sqrt starts_with stddev strpos substr
    sum translate trunc unnest upper variance
"""
PLAIN = frozenset(_PLAIN.split())
"""Functions that the engine computes as PostgreSQL does."""


MOST_CHARACTERS = 2_000
"""Of a text that is put together here, and members of a list: free questions may not fill the memory."""


def _bound(argument: str, size: str) -> str:
    """An argument, unless what is made with it would be too large: before it is made, even of constants."""
    return f"CASE WHEN {size} > {MOST_CHARACTERS} THEN error('too long') ELSE {argument} END"


LONGER = frozenset({"obj_description", "current_setting", "generate_subscripts", "parse_ident"})
"""Functions that take further arguments, which change nothing here."""
GROWING: Mapping[str, str] = {
    "lpad": f"lpad({{0}}, CAST({_bound('{1}', '{1}')} AS INTEGER), coalesce({{2}}, ' '))",
    "rpad": f"rpad({{0}}, CAST({_bound('{1}', '{1}')} AS INTEGER), coalesce({{2}}, ' '))",
    "repeat": f"repeat({{0}}, {_bound('{1}', 'length({0}) * {1}')})",
    "replace": f"replace({_bound('{0}', '(length({0}) + 1) * (length({2}) + 1)')}, {{1}}, {{2}})",
    "regexp_replace": f"regexp_replace({_bound('{0}', '(length({0}) + 1) * (length({2}) + 1)')}, {{rest}})",
    "concat": _bound("concat({*})", "length(concat({*}))"),
    "concat_ws": _bound("concat_ws({*})", "length(concat_ws({*}))"),
    "put_together": _bound("({joined})", "{sizes}"),
    "array_cat": f"list_concat({_bound('{0}', 'len({0}) + len({1})')}, {{1}})",
    "array_append": f"list_append({_bound('{0}', 'len({0})')}, {{1}})",
    "array_prepend": f"list_prepend({{0}}, {_bound('{1}', 'len({1})')})",
    "array_agg": "array_agg({*})",
    "string_agg": "string_agg({*})",
    "generate_series": f"unnest(generate_series({{0}}, {_bound('{1}', 'abs({1} - {0})')}, coalesce({{2}}, 1)))",
}
"""Functions whose results may be longer than their arguments."""


def _find_number(kind: str) -> str:
    """The number of what has a name, as the casts to `regclass` and the like give it; what is a number stays one."""
    found = f"(SELECT min(r_.r_oid) FROM registered_names r_ WHERE r_.r_kind = '{kind}' AND r_.r_known = {_WHOLE_NAME})"
    return f"coalesce(TRY_CAST(CAST({{0}} AS VARCHAR) AS BIGINT), {found})"


def _show(kind: str) -> str:
    named = f"r_.r_kind = '{kind}' AND r_.r_oid = CAST({{0}} AS BIGINT)"
    return f"(SELECT min(r_.r_shown) FROM registered_names r_ WHERE {named})"


def _find_name(kind: str) -> str:
    otherwise = "CASE WHEN CAST({0} AS BIGINT) = 0 THEN '-' ELSE CAST({0} AS VARCHAR) END"
    return f"coalesce({_show(kind)}, {otherwise})"


_NAME_PARTS = (
    'list_transform(regexp_extract_all({0}, \'("([^"]|"")*"|[^."]+)\'), lambda p_: CASE WHEN starts_with(p_, \'"\') '
    "THEN replace(substr(p_, 2, length(p_) - 2), '\"\"', '\"') ELSE lower(trim(p_)) END)"
)
_WHOLE_NAME = f"array_to_string({_NAME_PARTS.replace('{0}', 'CAST({0} AS VARCHAR)')}, '.')"
_QUOTED = ", ".join(f"'{word}'" for _, _, words in KEYWORDS for word in words.split())
RESERVED = frozenset(KEYWORDS[0][2].split())


def _hold(*privileges: str) -> str:
    """Whether one of the privileges that the last argument lists is held here."""
    listed = "list_transform(string_split(upper({last}), ','), lambda p_: trim(p_))"
    return f"list_has_any({listed}, [{', '.join(repr(each) for each in privileges)}])"


def _hold_on(kind: str, *privileges: str) -> str:
    """The same, for something that must exist: its name or number is the argument before the last one."""
    known = _find_number(kind).replace("{0}", "{before}")
    exists = f"EXISTS (SELECT 1 FROM registered_names r_ WHERE r_.r_kind = '{kind}' AND r_.r_oid = {known})"
    return f"CASE WHEN {exists} THEN {_hold(*privileges)} ELSE error('there is no such thing') END"


def _comment(place: str) -> str:
    return f"(SELECT min(d_.d_text) FROM held_comments d_ WHERE d_.d_oid = {{0}} AND d_.d_place = {place})"


_MODIFIED = (
    "CASE WHEN {0} IN (1042, 1043) AND {1} >= 4 THEN '(' || ({1} - 4) || ')' WHEN {0} = 1700 AND {1} >= 4 "
    "THEN '(' || (({1} - 4) >> 16) || ',' || (({1} - 4) & 65535) || ')' ELSE '' END"
)
_PRETTY = " ".join(
    f"WHEN abs({{0}}) < {10 * 1024 ** (power + 1)} THEN CAST(round({{0}} / {1024**power}) AS BIGINT) || ' {unit}'"
    for power, unit in enumerate(("bytes", "kB", "MB", "GB"))
)
_TYPE_NAMES = (
    "CASE typeof({0}) WHEN 'VARCHAR' THEN 'text' WHEN 'VARCHAR[]' THEN 'text[]' WHEN 'DOUBLE' THEN 'double precision' "
    "WHEN 'FLOAT' THEN 'real' WHEN 'TIMESTAMP' THEN 'timestamp without time zone' WHEN 'HUGEINT' THEN 'bigint' ELSE "
    "lower(regexp_replace(typeof({0}), '^DECIMAL.*', 'numeric')) END"
)
_VISIBLE = """
    table type function collation conversion opclass operator opfamily statistics_obj ts_config ts_dict ts_parser
    ts_template
"""
_NO_TEXT, _NO_NUMBER = "CAST(NULL AS VARCHAR)", "CAST(NULL AS BIGINT)"

FUNCTIONS: Mapping[str, str] = {
    **GROWING,
    "version": "{version}",
    "current_database": "{dataset}",
    "current_catalog": "{dataset}",
    "current_user": "{analyst}",
    "session_user": "{analyst}",
    "user": "{analyst}",
    "current_role": "{analyst}",
    "getpgusername": "{analyst}",
    "current_schema": "'public'",
    "current_schemas": "CASE WHEN {0} THEN ['pg_catalog', 'public'] ELSE ['public'] END",
    "current_timestamp": "now()",
    "clock_timestamp": "now()",
    "statement_timestamp": "now()",
    "transaction_timestamp": "now()",
    "localtimestamp": "CAST(now() AS TIMESTAMP)",
    "current_date": "CAST(now() AS DATE)",
    "pg_backend_pid": "CAST({process} AS INTEGER)",
    "pg_get_userbyid": f"coalesce({_show('regrole')}, 'unknown (OID=' || {{0}} || ')')",
    "pg_encoding_to_char": "CASE WHEN {0} = 6 THEN 'UTF8' ELSE '' END",
    "pg_char_to_encoding": "CASE WHEN upper(replace({0}, '-', '')) = 'UTF8' THEN 6 ELSE -1 END",
    "pg_client_encoding": "'UTF8'",
    "pg_my_temp_schema": "CAST(0 AS BIGINT)",
    "pg_is_in_recovery": "false",
    "pg_is_wal_replay_paused": "false",
    "pg_is_other_temp_schema": "false",
    "pg_postmaster_start_time": "CAST({started} AS TIMESTAMPTZ)",
    "pg_conf_load_time": "CAST({started} AS TIMESTAMPTZ)",
    **{f"pg_{kind}_is_visible": "({0} IS NOT NULL)" for kind in _VISIBLE.split()},
    "getdatabaseencoding": "'UTF8'",
    "pg_relation_is_publishable": "false",
    "pg_stat_get_numscans": "CAST(0 AS BIGINT)",
    "pg_size_pretty": f"CASE {_PRETTY} ELSE CAST(round({{0}} / {1024**4}) AS BIGINT) || ' TB' END",
    "obj_description": _comment("0"),
    "col_description": _comment("{1}"),
    "format_type": f"CASE WHEN {{0}} IS NULL THEN NULL ELSE coalesce({_show('regtype')} || {_MODIFIED}, '???') END",
    "has_table_privilege": _hold_on("regclass", "SELECT"),
    "has_any_column_privilege": _hold_on("regclass", "SELECT"),
    "has_column_privilege": _hold("SELECT"),
    "has_schema_privilege": _hold_on("regnamespace", "USAGE"),
    "has_database_privilege": _hold("CONNECT"),
    "has_function_privilege": _hold("EXECUTE"),
    "has_type_privilege": _hold("USAGE"),
    "has_language_privilege": _hold(""),
    "has_sequence_privilege": _hold(""),
    "has_tablespace_privilege": _hold(""),
    "pg_has_role": f"({_find_number('regrole').replace('{0}', '{before}')} = "
    f"{_find_number('regrole').replace('{0}', '{analyst}')})",
    "to_regclass": _find_number("regclass"),
    "to_regtype": _find_number("regtype"),
    "to_regproc": _find_number("regproc"),
    "to_regnamespace": _find_number("regnamespace"),
    "to_regrole": _find_number("regrole"),
    **{
        f"{kind}in": f"CASE WHEN {{0}} IS NOT NULL THEN coalesce({_find_number(kind)}, error('no such thing')) END"
        for kind in REGISTERED
    },
    **{f"{kind}out": _find_name(kind) for kind in REGISTERED},
    # The argument is named once: what is written for calls within calls would grow with each of them.
    "quote_ident": "list_transform([CAST({0} AS VARCHAR)], lambda q_: CASE WHEN regexp_full_match(q_, "
    f"'[a-z_][a-z0-9_]*') AND q_ NOT IN ({_QUOTED}) THEN q_ ELSE '\"' || replace(q_, '\"', '\"\"') || '\"' END)[1]",
    "quote_literal": "('''' || replace(CAST({0} AS VARCHAR), '''', '''''') || '''')",
    "quote_nullable": "coalesce('''' || replace(CAST({0} AS VARCHAR), '''', '''''') || '''', 'NULL')",
    "parse_ident": _NAME_PARTS,
    "format": "concat({*})",
    "set_config": "{1}",
    "current_setting": "(SELECT min(s_.s_value) FROM held_settings s_ WHERE s_.s_name = lower({0}))",
    "txid_current": "CAST(1 AS BIGINT)",
    "age": "CAST(2147483647 AS INTEGER)",
    "pg_typeof": _TYPE_NAMES,
    "generate_subscripts": "unnest(CASE WHEN {1} = 1 THEN generate_series(1, len({0})) ELSE [] END)",
    "ordinality_of": "generate_subscripts({0}, 1)",
    "array_upper": "CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) END",
    "array_lower": "CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 END",
    "array_length": "CASE WHEN {1} = 1 AND len({0}) > 0 THEN CAST(len({0}) AS INTEGER) END",
    "array_ndims": "CASE WHEN len({0}) > 0 THEN 1 END",
    "cardinality": "CAST(len({0}) AS INTEGER)",
    "array_remove": "list_filter({0}, lambda m_: m_ IS DISTINCT FROM {1})",
    "array_to_string": "array_to_string(list_transform({0}, lambda e_: coalesce(CAST(e_ AS VARCHAR), {2})), {1})",
    "array": "array({*})",
    "all": "ALL ({*})",
    "row": "row({*})",
    "string_to_array": "list_transform(CASE WHEN {0} = '' THEN CAST([] AS VARCHAR[]) WHEN {1} = '' THEN [{0}] "
    "ELSE string_split({0}, coalesce({1}, '')) END, lambda e_: CASE WHEN e_ IS DISTINCT FROM {2} THEN e_ END)",
    "char_length": "length({0})",
    "character_length": "length({0})",
    "btrim": "trim({*})",
    "every": "bool_and({0})",
    "_pg_expandarray": "unnest(list_transform({0}, lambda x_, n_: struct_pack(x := x_, n := n_)))",
    "row_to_json": "CAST(to_json({0}) AS VARCHAR)",
    "to_json": "CAST(to_json({0}) AS VARCHAR)",
    "json_build_object": "{pairs}",
    "divide": "({0} / {1})",
    "divide_whole": "({0} // {1})",
    "to_double": "CAST({0} AS DOUBLE)",
    "left_of": "left(CAST({0} AS VARCHAR), {1})",
    "pg_advisory_unlock_all": "''",
    **{f"pg_advisory_{lock}": "''" for lock in ("lock", "lock_shared", "xact_lock", "xact_lock_shared")},
    **{f"pg_try_advisory_{lock}": "true" for lock in ("lock", "lock_shared", "xact_lock", "xact_lock_shared")},
    **{f"pg_advisory_{unlock}": "true" for unlock in ("unlock", "unlock_shared")},
    "pg_cancel_backend": "false",
    "pg_terminate_backend": "false",
    "inet_server_addr": _NO_TEXT,
    "inet_server_port": _NO_NUMBER,
    "inet_client_addr": _NO_TEXT,
    "inet_client_port": _NO_NUMBER,
    **dict.fromkeys(
        (
            "pg_total_relation_size", "pg_relation_size", "pg_table_size", "pg_indexes_size", "pg_database_size",
            "pg_relation_filenode", "pg_stat_get_live_tuples", "pg_tablespace_size",
        ),
        _NO_NUMBER,
    ),
    **dict.fromkeys(
        (
            "pg_get_partkeydef", "pg_get_expr", "pg_get_constraintdef", "pg_get_indexdef", "pg_get_viewdef",
            "pg_get_ruledef", "pg_get_triggerdef", "pg_get_serial_sequence", "pg_get_statisticsobjdef_columns",
            "pg_get_function_result", "pg_get_function_arguments", "pg_get_function_identity_arguments",
            "pg_tablespace_location", "pg_get_functiondef", "pg_get_function_sqlbody", "shobj_description", "pg_notify",
        ),
        _NO_TEXT,
    ),
}  # fmt: skip
"""Functions of PostgreSQL in the language of the engine; {0} is an argument, {last} the last one."""

AS_RELATIONS = {
    "pg_show_all_settings": "pg_settings", "pg_get_keywords": "pg_get_keywords", "aclexplode": "aclexplode",
    "pg_options_to_table": "pg_options_to_table", "pg_partition_tree": "pg_partition_tree",
}  # fmt: skip
"""Functions after FROM that are relations of the catalog."""
RELATIONS = frozenset(EMPTY) | FILLED


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
    relations = _list_relations(words)
    return any(name.startswith("pg_") for name in relations) or ("table" not in words[:1] and not relations)


_QUERIES = frozenset(("select", "values", "with", "("))
_CALLS = frozenset(("unnest", *FUNCTIONS, *PLAIN))
"""What may stand after FROM and a bracket, or before one, and is the name of no relation."""
_CALLS_WITH_FROM = frozenset({"trim", "extract", "substring", "overlay", "position"})
"""Functions inside whose brackets FROM names no relation."""
_FALSE = (("1", "=", "0"), ("0", "=", "1"), ("false",), ("1", "<>", "1"), ("1", "=", "2"), ("null",))


def asks_for_columns(statement: Statement) -> bool:
    """Whether a SELECT can have no rows, as tools ask to learn the columns: `WHERE 1 = 0` or `LIMIT 0` at its end."""
    return drop_emptiness(statement) != statement.text


def drop_emptiness(statement: Statement) -> str:
    """The question without the condition or limit by which it can have no rows.

    >>> from deniable.query.sql.lexer import split_statements
    >>> drop_emptiness(split_statements("SELECT a, 'WHERE' FROM t WHERE (1 = 0) LIMIT 5")[0])
    "SELECT a, 'WHERE' FROM t"
    """
    words, tokens = statement.words, statement.tokens
    if set(words) & {"union", "intersect", "except", "offset"}:
        return statement.text
    place = _find_false(words)
    if place < 0 and words[-2:] == ("limit", "0"):
        place = len(words) - 2
    return statement.text if place < 0 else statement.text[: tokens[place].start].rstrip()


def _find_false(words: tuple[str, ...]) -> int:
    """Where the outermost condition stands if it is false, and only limits follow; else -1."""
    depth = 0
    for i, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word == "where" and depth == 0:
            rest = words[i + 1 : -2] if words[-2:-1] == ("limit",) else words[i + 1 :]
            while rest[:1] == ("(",) and rest[-1:] == (")",):
                rest = rest[1:-1]
            return i if rest in _FALSE else -1
    return -1


def _list_relations(words: tuple[str, ...]) -> list[str]:
    """The relations after FROM and JOIN, neither queries in brackets nor calls; the name alone of a qualified one."""
    found, calls = [], [""]
    for i, word in enumerate(words[:-1]):
        if word == "(":
            calls.append(words[i - 1] if i else "")
        elif word == ")" and len(calls) > 1:
            calls.pop()
        compared = word == "from" and words[max(0, i - 1)] == "distinct" and words[max(0, i - 2)] in ("is", "not")
        if word not in ("from", "join") or compared or calls[-1] in _CALLS_WITH_FROM:
            continue
        at = i + 1
        while words[at] in ("only", "lateral", "(") and at + 1 < len(words):
            at += 1
        qualified, inside = words[at + 1 : at + 2] == (".",) and at + 2 < len(words), words[at - 1] == "("
        at += 2 * qualified
        called = words[at] in _CALLS and words[at + 1 : at + 2] == ("(",)
        if not called and not (inside and not qualified and words[at] in _QUERIES):
            found.append(words[at])
    return found


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

    def find_registered(self, kind: str, name: str) -> int | None:
        """The number of what has a name in the catalog."""
        wanted = ".".join(_parse_identifier(name))
        return next((oid for known, oid in list_registered(kind, self.tables, self.analyst) if known == wanted), None)


class CatalogEngine:
    """The catalogs that askers see: the same for all who may name the same columns."""

    def __init__(self, curator: Curator) -> None:
        self._curator = curator
        self._lock = threading.Lock()
        self._engine: DuckDBEngine | None = None
        self._started = datetime.now(UTC).isoformat(sep=" ")
        self._seen: dict[tuple[PublicTable, ...], dict[str, pa.Table]] = {}

    def ask(
        self, statement: Statement, analyst: str, process: int, settings: Mapping[str, str], who: Asker, rows: bool
    ) -> tuple[pa.Table, Rewritten]:
        """The answer to a question about the catalog, and what it sets; without rows it only has its columns."""
        context = self._curator.context
        shown = metadata.schema(context if who.role is Role.STEWARD else context.speak_for(who))
        tables = tuple(_describe_table(table) for table in shown)
        names, dataset = tuple(table.name for table in tables), self._curator.policy.dataset
        around = CatalogContext(dataset, analyst, process, settings, names, self._started)
        asked = rewrite_statement(statement, around, rows=rows)
        held = self._find_frames(tables) | {table.name: build_empty(table) for table in tables}
        held |= build_session_catalog(dataset, analyst, process, settings, tables)
        needed = {name: held[name] for name in held if name in asked.sql}
        try:
            found = self._open_engine().run_within(asked.sql, MOST_BYTES, seconds=SECONDS, frames=needed)
        except DeniableError as refusal:
            raise _translate_refusal(refusal) from None
        if any("struct<" in str(each.type) or "map<" in str(each.type) for each in found.schema):
            raise WireRefusal("0A000", "a row cannot be a column of an answer", "Name the parts of the row")
        return found, asked

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()

    def _open_engine(self) -> DuckDBEngine:
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
    if isinstance(refusal, ParameterError):
        return WireRefusal("54000", "the answer about the catalog is too long", "Ask for fewer rows or columns")
    log_to_stderr("a question about the catalog was not understood")
    refused = CatalogRefusal()
    return WireRefusal(refused.state, refused.happened, refused.hint)


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


def rewrite_statement(statement: Statement, around: CatalogContext, *, rows: bool = True) -> Rewritten:
    """The statement as the catalog's engine understands it and what it sets, or a refusal."""
    if statement.words[:3] == ("with", "recursive", "typeinfo_tree"):
        return Rewritten("SELECT * FROM typeinfo_tree")  # asyncpg's question for types
    _check_size(statement)
    known = RELATIONS | set(around.tables if asks_for_columns(statement) else ())
    catalog = Catalog(
        relations=known, functions=FUNCTIONS, plain=PLAIN, growing=GROWING, as_relations=AS_RELATIONS, lists=LISTS,
        longer=LONGER,
        settings={name.lower() for name in around.settings}, find=around.find_registered, process=around.process,
        known={
            "dataset": around.dataset, "analyst": around.analyst, "version": _render_version(),
            "started": around.started,
        },
    )  # fmt: skip
    try:
        return rewrite(_spell_out(statement), catalog, rows=rows)
    except CatalogRefusal as refusal:
        raise WireRefusal(refusal.state, refusal.happened, refusal.hint) from None


_IDENTIFIER = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^."\s]+))\s*(?:\.|$)')


def _parse_identifier(text: str) -> Iterator[str]:
    """The parts of a name as it is written: `public."People"`."""
    for quoted, plain in _IDENTIFIER.findall(text):
        yield quoted.replace('""', '"') if quoted else plain.lower()


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
        last = token
        if token.value == "interval" and i + 1 < len(tokens) and tokens[i + 1].kind is Kind.STRING:
            if statement.words[i + 2 : i + 3] in [(unit,) for unit in _UNITS]:
                continue
            last = tokens[i + 1]
            spelled = f"{last.text}::interval"  # the parser would leave out what follows the first unit
        elif statement.words[i - 1] == "as" and token.value in RESERVED and following[:1] != ("materialized",):
            spelled = f'"{token.value}"'
        elif token.value in _NUMBERS and following == ("[", "]"):
            spelled = "int8"
        else:
            continue
        pieces += [statement.text[end : token.start], spelled]
        end = last.end
    return "".join([*pieces, statement.text[end:]])


_UNITS = ("year", "month", "day", "hour", "minute", "second")
_NUMBERS = ("oid", "xid", *REGISTERED)
