"""What a question about the catalog may say: its functions, types and relations, and the names of its columns.

Functions of PostgreSQL are computed here, in the language of the catalog's engine, or they are refused: none answers
with a constant that is not true of these catalogs. What is NULL below is so because nothing of its kind exists here
(indexes, rules, sizes that are told)."""

# ruff: noqa: S608  (statements here are made of our own words; what is asked was parsed, and runs where no rows are)

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sqlglot import exp

from deniable.server.wire.catalog_tables import EMPTY, FILLED, KEYWORDS, REGISTERED
from deniable.server.wire.codec import WireRefusal
from deniable.server.wire.lexer import Statement

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


GROWING: Mapping[str, str] = {
    "lpad": f"lpad({{0}}, CAST({_bound('{1}', '{1}')} AS INTEGER), coalesce({{2}}, ' '))",
    "rpad": f"rpad({{0}}, CAST({_bound('{1}', '{1}')} AS INTEGER), coalesce({{2}}, ' '))",
    "repeat": f"repeat({{0}}, {_bound('{1}', 'length({0}) * {1}')})",
    "replace": f"replace({_bound('{0}', '(length({0}) + 1) * (length({2}) + 1)')}, {{1}}, {{2}})",
    "regexp_replace": f"regexp_replace({_bound('{0}', '(length({0}) + 1) * (length({2}) + 1)')}, {{rest}})",
    "concat": _bound("concat({*})", "length(concat({*}))"),
    "concat_ws": _bound("concat_ws({*})", "length(concat_ws({*}))"),
    "put_together": f"({_bound('{0}', 'length(CAST({0} AS VARCHAR)) + length(CAST({1} AS VARCHAR))')} || {{1}})",
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
    "pg_table_is_visible": "({0} IS NOT NULL)",
    "pg_type_is_visible": "({0} IS NOT NULL)",
    "pg_function_is_visible": "({0} IS NOT NULL)",
    "pg_collation_is_visible": "({0} IS NOT NULL)",
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
    "quote_ident": f"CASE WHEN regexp_full_match({{0}}, '[a-z_][a-z0-9_]*') AND {{0}} NOT IN ({_QUOTED}) THEN {{0}} "
    "ELSE '\"' || replace({0}, '\"', '\"\"') || '\"' END",
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
    "array_to_string": "array_to_string({0}, {1})",
    "array": "array({*})",
    "all": "ALL ({*})",
    "row": "row({*})",
    "string_to_array": "CASE WHEN {0} = '' THEN CAST([] AS VARCHAR[]) ELSE string_split({0}, {1}) END",
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
    "pg_advisory_unlock_all": _NO_TEXT,
    "pg_advisory_unlock": "true",
    "pg_try_advisory_lock": "true",
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
            "pg_tablespace_location", "pg_get_functiondef", "shobj_description", "pg_notify",
        ),
        _NO_TEXT,
    ),
}  # fmt: skip
"""Functions of PostgreSQL in the language of the engine; {0} is an argument, {last} the last one."""

AS_RELATIONS = {
    "pg_show_all_settings": "pg_settings", "pg_get_keywords": "pg_get_keywords", "aclexplode": "aclexplode",
    "pg_options_to_table": "pg_options_to_table",
}  # fmt: skip
"""Functions after FROM that are relations of the catalog."""
BARE = frozenset({
    "current_user", "session_user", "user", "current_role", "current_catalog", "current_schema", "current_timestamp",
    "current_date", "localtimestamp",
})  # fmt: skip
"""Functions without brackets."""
TYPES: Mapping[str, str] = {
    "oid": "BIGINT", "name": "VARCHAR", "char": "VARCHAR", "int2vector": "BIGINT", "oidvector": "BIGINT", "cstring":
    "VARCHAR", "xid": "BIGINT", "sql_identifier": "VARCHAR", "character_data": "VARCHAR", "cardinal_number": "BIGINT",
    "yes_or_no": "VARCHAR", "aclitem": "VARCHAR", "text": "VARCHAR", "varchar": "VARCHAR", "bpchar": "VARCHAR", "int2":
    "SMALLINT", "int4": "INTEGER", "int8": "BIGINT", "float4": "FLOAT", "float8": "DOUBLE", "numeric": "DECIMAL",
    "bool": "BOOLEAN", "date": "DATE", "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "unknown": "VARCHAR",
    "time": "TIME", "uuid": "UUID", "interval": "INTERVAL", "json": "VARCHAR",
}  # fmt: skip
"""Types of PostgreSQL, by their own names, with those that hold their values in the engine."""
NOUNS = {
    "regclass": ("relation", "42P01"), "regtype": ("type", "42704"), "regproc": ("function", "42883"),
    "regnamespace": ("schema", "3F000"), "regrole": ("role", "42704"),
}  # fmt: skip

RELATIONS = frozenset(EMPTY) | FILLED
SCHEMAS = ("pg_catalog", "information_schema")


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
    if any(name.startswith("pg_") for name in relations):
        return True
    return "table" not in words[:1] and all(name in _NO_RELATIONS for name in relations)


_NO_RELATIONS = frozenset(("select", "values", "with", "unnest", *FUNCTIONS, *PLAIN))
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


def _list_relations(words: tuple[str, ...]) -> list[str]:
    """What stands after each FROM and JOIN; the name alone, where it is qualified."""
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
        qualified = at + 2 < len(words) and words[at + 1] == "."
        found.append(words[at + 2] if qualified else words[at])
    return found


def name_type(kind: Any) -> str:
    """PostgreSQL's own name of a type, with [] for an array of it."""
    if isinstance(kind, exp.DataType) and kind.this == exp.DataType.Type.ARRAY:
        return f"{name_type(kind.expressions[0])}[]" if kind.expressions else "text[]"
    word = kind.args.get("kind") or kind.this
    word = getattr(word, "value", None) or getattr(word, "name", None) or word
    word = str(word).lower().split(".")[-1].strip('"')
    return {"int": "int4", "bigint": "int8", "smallint": "int2", "double": "float8", "float": "float4", "decimal":
            "numeric", "boolean": "bool", "char": "bpchar", "nchar": "bpchar"}.get(word, word)  # fmt: skip


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
            word = name_type(inner.to)
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


_IDENTIFIER = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([^."\s]+))\s*(?:\.|$)')


def parse_identifier(text: str) -> Iterator[str]:
    """The parts of a name as it is written: `public."People"`."""
    for quoted, plain in _IDENTIFIER.findall(text):
        yield quoted.replace('""', '"') if quoted else plain.lower()


def write_object(arguments: list[str]) -> str:
    """`json_build_object` as PostgreSQL writes it."""
    if len(arguments) % 2:
        raise WireRefusal("22023", "json_build_object takes names and values in pairs")
    pairs = [
        f"CAST(to_json(CAST({name} AS VARCHAR)) AS VARCHAR) || ' : ' || "
        f"coalesce(CAST(to_json({value}) AS VARCHAR), 'null')"
        for name, value in zip(arguments[::2], arguments[1::2], strict=True)
    ]
    return "('{' || " + " || ', ' || ".join(pairs or ["''"]) + " || '}')"


def build_unsupported_refusal(happened: str = "this question about the catalog is not supported") -> WireRefusal:
    """What is told of a question that has no meaning here."""
    return WireRefusal("0A000", happened, "Tables and columns: \\d")


def call_function(name: str, *arguments: Any) -> Any:
    """A call of a function of the table."""
    return exp.Anonymous(this=name, expressions=[each.copy() for each in arguments])


_OPERATORS: Mapping[str, Any] = {
    "~": exp.RegexpLike, "~*": exp.RegexpILike, "=": exp.EQ, "<>": exp.NEQ, "~~": exp.Like, "~~*": exp.ILike,
    "<": exp.LT, ">": exp.GT, "<=": exp.LTE, ">=": exp.GTE, "||": exp.DPipe, "+": exp.Add, "-": exp.Sub,
}  # fmt: skip


def read_operator(node: Any) -> Any:
    """OPERATOR(pg_catalog.~) is ~."""
    word = str(node.args["operator"]).replace(" ", "").removeprefix("pg_catalog.")
    negated = word.startswith("!~")
    made = _OPERATORS.get(word.removeprefix("!") if negated else word)
    if made is None:
        raise build_unsupported_refusal()
    inner = made(this=node.this.copy(), expression=node.expression.copy())
    if isinstance(inner, exp.Like | exp.ILike):
        inner = exp.Escape(this=inner, expression=exp.Literal.string("\\"))
    return exp.Not(this=exp.Paren(this=inner)) if negated else inner


_FORMAT = re.compile(r"%(?:(\d+)\$)?([sIL%])|%")


def format_pattern(pattern: str, arguments: list[Any]) -> Any:
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
            raise WireRefusal("22023", "the pattern of format asks for what was not given", "There are %s, %I, %L, %%")
        given = arguments[following - 1]
        pieces.append(
            given.copy() if kind == "s" else call_function({"I": "quote_ident", "L": "quote_nullable"}[kind], given)
        )
    return call_function("concat", *pieces, exp.Literal.string(pattern[at:]))
