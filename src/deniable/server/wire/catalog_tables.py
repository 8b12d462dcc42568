"""The catalog tables of PostgreSQL: the policy's tables and columns, and nothing that was read from data.

Tools ask `pg_class`, `pg_attribute`, `information_schema.columns` and the like to draw a tree of tables. These are
made from declared metadata alone; the description of a column says its role and bounds. Catalogs of things that do not
exist here (indexes, triggers) are there and empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from deniable.server.wire import values as v

if TYPE_CHECKING:
    import pyarrow as pa

PG_CATALOG, PUBLIC, INFORMATION_SCHEMA = 11, 2200, 13_000
FIRST_TABLE = 16_384
OWNER, ASKER = 10, 16_000
_SPELLINGS = {v.BOOL: "boolean", v.INT8: "bigint", v.INT2: "smallint", v.INT4: "integer", v.TEXT: "text", v.OID: "oid",
            v.FLOAT4: "real", v.FLOAT8: "double precision", v.VARCHAR: "character varying", v.BPCHAR: "character",
            v.NAME: "name", v.CHAR: '"char"', v.DATE: "date", v.TIMESTAMP: "timestamp without time zone",
            v.TIMESTAMPTZ: "timestamp with time zone", v.NUMERIC: "numeric", v.UNKNOWN: "unknown"}  # fmt: skip
_CATEGORY = {v.BOOL: "B", v.DATE: "D", v.TIMESTAMP: "D", v.TIMESTAMPTZ: "D"}
_NUMERIC = (v.INT2, v.INT4, v.INT8, v.FLOAT4, v.FLOAT8, v.NUMERIC, v.OID)


@dataclass(frozen=True, slots=True)
class PublicColumn:
    """A column as the policy declares it: `kind` is the policy's word for its type."""

    name: str
    kind: str
    nullable: bool
    comment: str


@dataclass(frozen=True, slots=True)
class PublicTable:
    """A table as the policy declares it."""

    name: str
    columns: tuple[PublicColumn, ...]
    comment: str


def build_catalog(dataset: str, tables: Iterable[PublicTable]) -> dict[str, pa.Table]:
    """Every catalog as rows, by the name under which statements are rewritten to ask for it."""
    listed = tuple(tables)
    filled: dict[str, list[dict[str, Any]]] = {
        "pg_namespace": [_namespace(oid, name) for oid, name in _SCHEMAS],
        "pg_class": [_relation(FIRST_TABLE + i, table) for i, table in enumerate(listed)],
        "pg_attribute": [row for i, table in enumerate(listed) for row in _attributes(FIRST_TABLE + i, table)],
        "pg_description": [row for i, table in enumerate(listed) for row in _descriptions(FIRST_TABLE + i, table)],
        "pg_type": [_type(oid, name) for oid, name in v.TYPE_NAMES.items()]
        + [_array(*each) for each in v.ARRAYS.items()],
        "pg_proc": [_function(oid, name) for name, oid in _PROCEDURES.items()],
        "typeinfo_tree": [_array_for_asyncpg(*each) for each in v.ARRAYS.items()],
        "pg_database": [_database(dataset)],
        "pg_tables": [_table(table) for table in listed],
        "pg_am": [{"oid": 2, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}],
        "information_schema_schemata": [_schema(dataset, name) for _, name in _SCHEMAS],
        "information_schema_tables": [_information_table(dataset, table) for table in listed],
        "information_schema_columns": [row for table in listed for row in _information_columns(dataset, table)],
        "information_schema_character_sets": [{"character_set_name": "UTF8", "default_collate_name": "C"}],
        "pg_tablespace": [
            {"oid": oid, "spcname": name, "spcowner": OWNER, "spcacl": None, "spcoptions": None}
            for oid, name in ((1663, "pg_default"), (1664, "pg_global"))
        ],
        "information_schema_information_schema_catalog_name": [{"catalog_name": dataset}],
        "pg_get_keywords": [
            {"word": word, "catcode": code, "catdesc": told} for code, told, words in KEYWORDS for word in words.split()
        ],
    }
    return {name: _build_frame(rows, EMPTY.get(name)) for name, rows in filled.items()} | {
        name: _build_frame([], shape) for name, shape in EMPTY.items() if name not in filled
    }


@cache
def list_column_types() -> dict[str, set[int]]:
    """The types of the columns of all catalogs, by name."""
    sample = (PublicTable("sample", (PublicColumn("sample", "text", True, ""),), ""),)
    frames = build_catalog("", sample) | build_session_catalog("", "", 1, {"": ""}, sample)
    found: dict[str, set[int]] = {}
    for frame in frames.values():
        for column in frame.schema:
            oid = v.OID if column.name.endswith("oid") else v.choose_oid(str(column.type))
            found.setdefault(column.name, set()).add(oid)
    numbers = ("attrelid", "atttypid", "relnamespace", "typnamespace", "relowner")
    return found | {name: {v.OID} for name in numbers}


_FILLED = """
    pg_namespace pg_class pg_attribute pg_description pg_type pg_proc pg_database pg_roles pg_user pg_tables pg_am
    information_schema_schemata information_schema_tables information_schema_columns pg_get_keywords pg_settings
    information_schema_character_sets information_schema_information_schema_catalog_name pg_stat_activity
    information_schema_table_privileges information_schema_role_table_grants information_schema_enabled_roles
    information_schema_applicable_roles
"""
FILLED = frozenset(_FILLED.split())
"""Catalogs with rows."""


def build_session_catalog(
    dataset: str, analyst: str, process: int, settings: Mapping[str, str], tables: tuple[PublicTable, ...]
) -> dict[str, pa.Table]:
    """The catalogs that differ between sessions: who asks, what is set, which sessions are seen (one's own)."""
    roles = {"steward": OWNER, analyst: ASKER} if analyst != "steward" else {"steward": OWNER}
    grants = [
        {
            "grantor": "steward", "grantee": analyst, "table_catalog": dataset, "table_schema": "public", "table_name":
            table.name, "privilege_type": "SELECT", "is_grantable": "NO", "with_hierarchy": "YES",
        }
        for table in tables
    ]  # fmt: skip
    activity = {
        "datid": 1, "datname": dataset, "pid": process, "leader_pid": None, "usesysid": roles[analyst], "usename":
        analyst, "application_name": settings.get("application_name", ""), "client_addr": None, "client_hostname": None,
        "client_port": None, "backend_start": None, "xact_start": None, "query_start": None, "state_change": None,
        "wait_event_type": None, "wait_event": None, "state": "active", "backend_xid": None, "backend_xmin": None,
        "query_id": None, "query": "", "backend_type": "client backend",
    }  # fmt: skip
    names = tuple(table.name for table in tables)
    registered = [
        {"r_kind": kind, "r_known": known, "r_oid": oid, "r_shown": _show_registered(kind, known, oid)}
        for kind in REGISTERED
        for known, oid in list_registered(kind, names, analyst)
    ]
    filled: dict[str, list[dict[str, Any]]] = {
        "pg_roles": [_role(oid, name) for name, oid in roles.items()],
        "pg_user": [_user(oid, name) for name, oid in roles.items()],
        "pg_settings": [_setting(*each) for each in settings.items()],
        "pg_stat_activity": [activity],
        "information_schema_table_privileges": grants,
        "information_schema_role_table_grants": grants,
        "information_schema_enabled_roles": [{"role_name": analyst}],
        "registered_names": registered,
        "held_settings": [{"s_name": name.lower(), "s_value": value} for name, value in settings.items()],
        "held_comments": [
            {"d_oid": row["objoid"], "d_place": row["objsubid"], "d_text": row["description"]}
            for place, table in enumerate(tables)
            for row in _descriptions(FIRST_TABLE + place, table)
        ],
    }
    return {name: _build_frame(rows, EMPTY.get(name)) for name, rows in filled.items()}


REGISTERED = ("regclass", "regtype", "regproc", "regnamespace", "regrole")
"""Types whose values are numbers of the catalog and are written as names."""
_CATALOG_OIDS = {"pg_class": 1259, "pg_type": 1247, "pg_namespace": 2615, "pg_constraint": 2606, "pg_proc": 1255,
                 "pg_attribute": 1249, "pg_database": 1262, "pg_authid": 1260}  # fmt: skip
_SPELLED = {"int": v.INT4, "integer": v.INT4, "bigint": v.INT8, "smallint": v.INT2, "boolean": v.BOOL, "real": v.FLOAT4,
            "float": v.FLOAT8, "decimal": v.NUMERIC}  # fmt: skip


def list_registered(kind: str, tables: tuple[str, ...], analyst: str) -> Iterable[tuple[str, int]]:
    """The names under which a kind of things is known in the catalog, with their numbers; the shortest first."""
    match kind:
        case "regclass":
            for place, name in enumerate(tables):
                yield from ((name, FIRST_TABLE + place), (f"public.{name}", FIRST_TABLE + place))
            for place, name in enumerate(sorted({*FILLED, *EMPTY, *_CATALOG_OIDS} - set(tables))):
                oid = _CATALOG_OIDS.get(name, 12_000 + place)
                if name.startswith("information_schema_"):
                    yield name.replace("information_schema_", "information_schema.", 1), oid
                else:
                    yield from ((name, oid), (f"pg_catalog.{name}", oid))
        case "regtype":
            for name, oid in ({name: oid for oid, name in v.TYPE_NAMES.items()} | _SPELLED).items():
                yield from ((name, oid), (f"pg_catalog.{name}", oid))
            for oid, spelled in _SPELLINGS.items():
                yield spelled, oid
            for oid, inner in v.ARRAYS.items():
                yield from ((f"_{v.TYPE_NAMES[inner]}", oid), (f"{_SPELLINGS[inner]}[]", oid))
        case "regproc":
            for name, oid in _PROCEDURES.items():
                yield from ((name, oid), (f"pg_catalog.{name}", oid))
        case "regnamespace":
            yield from ((name, oid) for oid, name in _SCHEMAS)
        case _:
            yield from {"steward": OWNER, analyst: OWNER if analyst == "steward" else ASKER}.items()


def _show_registered(kind: str, known: str, oid: int) -> str:
    """How PostgreSQL writes what has this number."""
    if kind == "regtype":
        return _SPELLINGS[oid] if oid in _SPELLINGS else f"{_SPELLINGS[v.ARRAYS[oid]]}[]"
    return known.removeprefix("public.").removeprefix("pg_catalog.")


KEYWORDS = (
    (
        "R", "reserved",
        "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create "
        "current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc "
        "distinct do else end except false fetch for foreign from grant group having in initially intersect into "
        "lateral leading limit localtime localtimestamp not null offset on only or order placing primary references "
        "returning select session_user some symmetric table then to trailing true union unique user using variadic "
        "when where window with",
    ),
    (
        "C", "unreserved (cannot be function or type name)",
        "between bigint bit boolean char character coalesce dec decimal exists extract float greatest grouping inout "
        "int integer interval least national nchar none normalize nullif numeric out overlay position precision real "
        "row setof smallint substring time timestamp treat trim values varchar xmlattributes xmlconcat xmlelement "
        "xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable",
    ),
    (
        "T", "reserved (can be function or type name)",
        "authorization binary collation concurrently cross current_schema freeze full ilike inner is isnull join left "
        "like natural notnull outer overlaps right similar tablesample verbose",
    ),
)  # fmt: skip
"""The words of PostgreSQL that must be quoted as names."""


def build_empty(table: PublicTable) -> pa.Table:
    """A table without rows: its columns as the policy declares them."""
    import pyarrow as pa

    kinds = {
        "integer": pa.int64(), "decimal": pa.float64(), "text": pa.string(), "boolean": pa.bool_(),
        "date": pa.date32(), "datetime": pa.timestamp("us"),
    }  # fmt: skip
    return pa.table({column.name: pa.array([], kinds[column.kind]) for column in table.columns})


def _setting(name: str, value: str) -> dict[str, Any]:
    return {
        "name": name, "setting": value, "unit": None, "category": "", "short_desc": "", "extra_desc": None, "context":
        "user", "vartype": "string", "source": "default", "min_val": None, "max_val": None, "enumvals": None,
        "boot_val": value, "reset_val": value, "sourcefile": None, "sourceline": None, "pending_restart": False,
    }  # fmt: skip


_SCHEMAS = ((PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema"))


def _namespace(oid: int, name: str) -> dict[str, Any]:
    return {"oid": oid, "nspname": name, "nspowner": OWNER, "nspacl": None, "xmin": 0}


def _relation(oid: int, table: PublicTable) -> dict[str, Any]:
    return {
        "oid": oid, "relname": table.name, "relnamespace": PUBLIC, "reltype": 0, "reloftype": 0, "relowner": OWNER,
        "relam": 2, "relfilenode": 0, "reltablespace": 0, "relpages": 0, "reltuples": -1.0, "relallvisible": 0,
        "reltoastrelid": 0, "relhasindex": False, "relisshared": False, "relpersistence": "p", "relkind": "r",
        "relnatts": len(table.columns), "relchecks": 0, "relhasrules": False, "relhastriggers": False,
        "relhassubclass": False, "relrowsecurity": False, "relforcerowsecurity": False, "relispopulated": True,
        "relreplident": "n", "relispartition": False, "relacl": None, "reloptions": None, "relpartbound": None,
        "relhasoids": False, "xmin": 0,
    }  # fmt: skip


def _attributes(oid: int, table: PublicTable) -> Iterable[dict[str, Any]]:
    for place, column in enumerate(table.columns, start=1):
        kind = v.OID_OF_KIND[column.kind]
        yield {
            "attrelid": oid, "attname": column.name, "atttypid": kind, "attstattarget": -1, "attlen":
            v.SIZES.get(kind, -1), "attnum": place, "attndims": 0, "atttypmod": -1, "attbyval": True, "attalign": "i",
            "attstorage": "p", "attcompression": "", "attnotnull": not column.nullable, "atthasdef": False,
            "atthasmissing": False, "attidentity": "", "attgenerated": "", "attisdropped": False, "attislocal": True,
            "attinhcount": 0, "attcollation": 0, "attacl": None, "attoptions": None, "attfdwoptions": None,
            "xmin": 0,
        }  # fmt: skip


def _descriptions(oid: int, table: PublicTable) -> Iterable[dict[str, Any]]:
    comments = [table.comment, *(column.comment for column in table.columns)]
    return [
        {"objoid": oid, "classoid": 1259, "objsubid": place, "description": text} for place, text in enumerate(comments)
    ]


def _type(oid: int, name: str) -> dict[str, Any]:
    category = _CATEGORY.get(oid, "N" if oid in _NUMERIC else "S")
    return {
        "oid": oid, "typname": name, "typnamespace": PG_CATALOG, "typowner": OWNER, "typlen": v.SIZES.get(oid, -1),
        "typbyval": True, "typtype": "p" if oid == v.UNKNOWN else "b", "typcategory": category, "typispreferred": False,
        "typisdefined": True,
        "typdelim": ",", "typrelid": 0, "typsubscript": 0, "typelem": 0, "typarray": v.ARRAY_OF.get(oid, 0),
        **_procedures(name), "typmodin": 0, "typmodout": 0, "typanalyze": 0, "typalign": "i", "typstorage": "p",
        "typbasetype": 0, "typtypmod": -1, "typnotnull": False, "typcollation": 0, "typdefault": None, "typndims": 0,
        "typdefaultbin": None, "typacl": None, "xmin": 0,
    }  # fmt: skip


_UNDERSCORED = ("date", "timestamp", "timestamptz", "numeric", "array")
_STEPS = {"typinput": "in", "typoutput": "out", "typreceive": "recv", "typsend": "send"}


def _name_procedure(name: str, step: str) -> str:
    return f"{name}_{step}" if name in _UNDERSCORED else f"{name}{step}"


_PROCEDURES = {
    _name_procedure(name, step): 2_400 + 4 * place + i
    for place, name in enumerate(("array", *v.TYPE_NAMES.values()))
    for i, step in enumerate(_STEPS.values())
}
"""The functions that read and write values of each type, by which clients know the types."""


def _procedures(name: str) -> dict[str, int]:
    return {column: _PROCEDURES[_name_procedure(name, step)] for column, step in _STEPS.items()}


def _function(oid: int, name: str) -> dict[str, Any]:
    return {
        "oid": oid, "proname": name, "pronamespace": PG_CATALOG, "proowner": OWNER, "prolang": 12, "procost": 1.0,
        "prorows": 0.0, "provariadic": 0, "prosupport": 0, "prokind": "f", "prosecdef": False, "proleakproof": False,
        "proisstrict": True, "proretset": False, "provolatile": "i", "proparallel": "s", "pronargs": 1,
        "pronargdefaults": 0, "prorettype": 0, "proargtypes": [0], "proallargtypes": None, "proargmodes": None,
        "proargnames": None, "proargdefaults": None, "protrftypes": None, "prosrc": name, "probin": None,
        "prosqlbody": None, "proconfig": None, "proacl": None,
    }  # fmt: skip


def _array(oid: int, inner: int) -> dict[str, Any]:
    """The type of an array."""
    scalar = _type(inner, v.TYPE_NAMES[inner])
    own = {"oid": oid, "typname": f"_{scalar['typname']}", "typelem": inner, "typlen": -1, "typcategory": "A"}
    return scalar | own | {"typarray": 0, "typbyval": False} | _procedures("array")


def _array_for_asyncpg(oid: int, inner: int) -> dict[str, Any]:
    """The type of an array as asyncpg asks for it, in a recursive question that is answered as a whole."""
    name = v.TYPE_NAMES[inner]
    return {
        "oid": oid, "ns": "pg_catalog", "name": f"_{name}", "kind": "b", "basetype": None, "elemtype": inner,
        "elemdelim": ",", "range_subtype": None, "attrtypoids": None, "attrnames": None, "depth": 0,
        "basetype_name": None, "elemtype_name": _SPELLINGS[inner], "range_subtype_name": None,
    }  # fmt: skip


def _database(dataset: str) -> dict[str, Any]:
    return {
        "oid": 1, "datname": dataset, "datdba": OWNER, "encoding": 6, "datcollate": "C", "datctype": "C",
        "datistemplate": False, "datallowconn": True, "datconnlimit": -1, "dattablespace": 1663, "datacl": None,
        "datlocprovider": "c", "daticulocale": None, "xmin": 0, "datfrozenxid": 0,
    }  # fmt: skip


def _user(oid: int, name: str) -> dict[str, Any]:
    return {
        "usename": name, "usesysid": oid, "usecreatedb": False, "usesuper": False, "userepl": False, "usebypassrls":
        False, "passwd": "********", "valuntil": None, "useconfig": None,
    }  # fmt: skip


def _role(oid: int, name: str) -> dict[str, Any]:
    return {
        "oid": oid, "rolname": name, "rolsuper": False, "rolinherit": True, "rolcreaterole": False,
        "rolcreatedb": False, "rolcanlogin": True, "rolreplication": False, "rolbypassrls": False, "rolconnlimit": -1,
        "rolvaliduntil": None, "rolpassword": "********", "rolconfig": None,
    }  # fmt: skip


def _table(table: PublicTable) -> dict[str, Any]:
    return {
        "schemaname": "public", "tablename": table.name, "tableowner": "steward", "tablespace": None,
        "hasindexes": False, "hasrules": False, "hastriggers": False, "rowsecurity": False,
    }  # fmt: skip


def _schema(dataset: str, name: str) -> dict[str, Any]:
    return {"catalog_name": dataset, "schema_name": name, "schema_owner": "steward"}


def _information_table(dataset: str, table: PublicTable) -> dict[str, Any]:
    return {
        "table_catalog": dataset, "table_schema": "public", "table_name": table.name, "table_type": "BASE TABLE",
        "is_insertable_into": "NO", "is_typed": "NO", "commit_action": None, "table_comment": table.comment,
    }  # fmt: skip


def _information_columns(dataset: str, table: PublicTable) -> Iterable[dict[str, Any]]:
    for place, column in enumerate(table.columns, start=1):
        kind = v.OID_OF_KIND[column.kind]
        yield {
            "table_catalog": dataset, "table_schema": "public", "table_name": table.name, "column_name": column.name,
            "ordinal_position": place, "column_default": None, "is_nullable": "YES" if column.nullable else "NO",
            "data_type": _SPELLINGS[kind], "udt_catalog": dataset, "udt_schema": "pg_catalog", "udt_name":
            v.TYPE_NAMES[kind], "character_maximum_length": None, "character_octet_length": 1 << 30 if kind == v.TEXT
            else None, **_PRECISIONS.get(kind, _NO_PRECISION), "is_identity": "NO", "is_generated": "NEVER",
            "is_self_referencing": "NO", "is_updatable": "NO", "collation_name": None, "collation_schema": None,
            "domain_schema": None, "domain_name": None, "identity_generation": None, "generation_expression": None,
            "dtd_identifier": str(place), "interval_type": None, "column_comment": column.comment,
        }  # fmt: skip


_NO_PRECISION = dict.fromkeys(("numeric_precision", "numeric_precision_radix", "numeric_scale", "datetime_precision"))
_PRECISIONS: Mapping[int, Mapping[str, int | None]] = {
    v.INT8: {**_NO_PRECISION, "numeric_precision": 64, "numeric_precision_radix": 2, "numeric_scale": 0},
    v.FLOAT8: {**_NO_PRECISION, "numeric_precision": 53, "numeric_precision_radix": 2},
    v.DATE: {**_NO_PRECISION, "datetime_precision": 0},
    v.TIMESTAMP: {**_NO_PRECISION, "datetime_precision": 6},
}

EMPTY: Mapping[str, str] = {
    "pg_index": "indexrelid indrelid indnatts indnkeyatts indisunique indisprimary indisexclusion indimmediate "
    "indisclustered indisvalid indcheckxmin indisready indislive indisreplident indkey indcollation indclass indoption "
    "indexprs indpred indnullsnotdistinct",
    "pg_constraint": "oid conname connamespace contype condeferrable condeferred convalidated conrelid contypid "
    "conindid conparentid confrelid confupdtype confdeltype confmatchtype conislocal coninhcount connoinherit conkey "
    "confkey conpfeqop conbin consrc",
    "pg_attrdef": "oid adrelid adnum adbin adsrc",
    "pg_inherits": "inhrelid inhparent inhseqno inhdetachpending",
    "pg_trigger": "oid tgrelid tgparentid tgname tgfoid tgtype tgenabled tgisinternal tgconstraint tgdeferrable "
    "tginitdeferred tgnargs tgattr tgargs tgqual",
    "pg_policy": "oid polname polrelid polcmd polpermissive polroles polqual polwithcheck",
    "pg_rewrite": "oid rulename ev_class ev_type ev_enabled is_instead",
    "pg_depend": "classid objid objsubid refclassid refobjid refobjsubid deptype",
    "pg_enum": "oid enumtypid enumsortorder enumlabel",
    "pg_range": "rngtypid rngsubtype rngmultitypid rngcollation rngsubopc rngcanonical rngsubdiff",
    "pg_tablespace": "oid spcname spcowner spcacl spcoptions",
    "pg_extension": "oid extname extowner extnamespace extversion",
    "pg_statistic_ext": "oid stxrelid stxname stxnamespace stxowner stxkind stxkeys stxstattarget",
    "pg_publication_rel": "oid prpubid prrelid prqual prattrs",
    "pg_publication_namespace": "oid pnpubid pnnspid",
    "pg_foreign_table": "ftrelid ftserver ftoptions",
    "pg_foreign_server": "oid srvname srvowner srvfdw srvoptions",
    "pg_foreign_data_wrapper": "oid fdwname fdwowner fdwhandler fdwvalidator fdwacl fdwoptions",
    "pg_partitioned_table": "partrelid partstrat partnatts partdefid",
    "pg_sequence": "seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle",
    "pg_sequences": "schemaname sequencename sequenceowner",
    "pg_matviews": "schemaname matviewname matviewowner definition",
    "pg_views": "schemaname viewname viewowner definition",
    "pg_shdescription": "objoid classoid description",
    "pg_auth_members": "roleid member grantor admin_option",
    "pg_opclass": "oid opcname opcmethod opcnamespace opcowner opcfamily opcintype opckeytype opcdefault",
    "pg_stats": "schemaname tablename attname inherited null_frac avg_width n_distinct most_common_vals correlation",
    "pg_event_trigger": "oid evtname evtevent evtowner evtfoid evtenabled evttags",
    "pg_collation": "oid collname collnamespace collowner collprovider collisdeterministic "
    "collencoding collcollate collctype colliculocale",
    "pg_language": "oid lanname lanowner lanispl lanpltrusted lanplcallfoid laninline lanvalidator lanacl",
    "pg_publication": "oid pubname pubowner puballtables pubinsert pubupdate pubdelete pubtruncate pubviaroot",
    "pg_conversion": "oid conname connamespace conowner conforencoding contoencoding conproc condefault",
    "pg_subscription": "oid subdbid subname subowner subenabled subpublications "
    "subbinary substream subtwophasestate subdisableonerr subsynccommit subconninfo subskiplsn",
    "pg_subscription_rel": "srsubid srrelid srsubstate srsublsn",
    "pg_parameter_acl": "oid parname paracl",
    "pg_partition_tree": "relid parentrelid isleaf level",
    "pg_amproc": "oid amprocfamily amproclefttype amprocrighttype amprocnum amproc",
    "pg_ts_dict": "oid dictname dictnamespace dictowner dicttemplate dictinitoption",
    "pg_ts_parser": "oid prsname prsnamespace prsstart prstoken prsend prsheadline prslextype",
    "pg_ts_template": "oid tmplname tmplnamespace tmplinit tmpllexize",
    "pg_ts_config_map": "mapcfg maptokentype mapseqno mapdict",
    "pg_transform": "oid trftype trflang trffromsql trftosql",
    "pg_largeobject_metadata": "oid lomowner lomacl",
    "pg_ts_config": "oid cfgname cfgnamespace cfgowner cfgparser",
    "pg_statistic": "starelid staattnum stanullfrac stadistinct",
    "pg_authid": "oid rolname rolsuper",
    "pg_rules": "schemaname tablename rulename definition",
    "pg_policies": "schemaname tablename policyname permissive roles cmd qual with_check",
    "pg_cursors": "name statement is_holdable is_binary is_scrollable creation_time",
    "pg_prepared_statements": "name statement prepare_time parameter_types from_sql",
    "pg_default_acl": "oid defaclrole defaclnamespace defaclobjtype defaclacl",
    "pg_seclabel": "objoid classoid objsubid provider label",
    "pg_db_role_setting": "setdatabase setrole setconfig",
    "pg_amop": "oid amopfamily amoplefttype amoprighttype amopstrategy amoppurpose amopopr amopmethod amopsortfamily",
    "pg_opfamily": "oid opfmethod opfname opfnamespace opfowner",
    "pg_stat_all_tables": "relid schemaname relname seq_scan n_live_tup n_dead_tup last_vacuum last_analyze",
    "pg_statio_user_tables": "relid schemaname relname heap_blks_read heap_blks_hit",
    "pg_options_to_table": "option_name option_value",
    "aclexplode": "grantor grantee privilege_type is_grantable",
    "pg_locks": "locktype database relation pid mode granted transactionid",
    "pg_stat_gssapi": "pid gss_authenticated principal encrypted",
    "pg_stat_ssl": "pid ssl version cipher bits",
    "pg_stat_database": "datid datname numbackends xact_commit xact_rollback blks_read blks_hit",
    "pg_cast": "oid castsource casttarget castfunc castcontext castmethod",
    "pg_operator": "oid oprname oprnamespace oprowner oprkind oprleft oprright oprresult oprcode",
    "pg_aggregate": "aggfnoid aggkind aggtransfn",
    "pg_indexes": "schemaname tablename indexname tablespace indexdef",
    "pg_prepared_xacts": "transaction gid prepared owner database",
    "pg_available_extensions": "name default_version installed_version comment",
    "pg_user_mappings": "umid srvid srvname umuser usename",
    "pg_shadow": "usename usesysid usesuper",
    "pg_group": "groname grosysid",
    "pg_timezone_names": "name abbrev utc_offset is_dst",
    "pg_stat_user_tables": "relid schemaname relname n_live_tup",
    "information_schema_views": "table_catalog table_schema table_name view_definition",
    "information_schema_table_constraints": "constraint_catalog constraint_schema constraint_name table_catalog "
    "table_schema table_name constraint_type is_deferrable initially_deferred",
    "information_schema_key_column_usage": "constraint_catalog constraint_schema constraint_name table_catalog "
    "table_schema table_name column_name ordinal_position position_in_unique_constraint",
    "information_schema_constraint_column_usage": "table_catalog table_schema table_name column_name "
    "constraint_catalog constraint_schema constraint_name",
    "information_schema_check_constraints": "constraint_catalog constraint_schema constraint_name check_clause",
    "information_schema_referential_constraints": "constraint_catalog constraint_schema constraint_name "
    "unique_constraint_catalog unique_constraint_schema unique_constraint_name match_option update_rule delete_rule",
    "information_schema_table_privileges": "grantor grantee table_catalog table_schema table_name privilege_type",
    "information_schema_column_privileges": "grantor grantee table_schema table_name column_name privilege_type",
    "information_schema_parameters": "specific_schema specific_name ordinal_position parameter_name data_type",
    "information_schema_triggers": "trigger_schema trigger_name event_object_table action_statement",
    "information_schema_routines": "routine_schema routine_name routine_type data_type",
    "information_schema_sequences": "sequence_catalog sequence_schema sequence_name data_type start_value",
    "information_schema_domains": "domain_catalog domain_schema domain_name data_type domain_default",
    "information_schema_element_types": "object_catalog object_schema object_name object_type data_type "
    "collection_type_identifier",
    "information_schema_constraint_table_usage": "table_catalog table_schema table_name constraint_catalog "
    "constraint_schema constraint_name",
    "information_schema_view_column_usage": "view_schema view_name table_schema table_name column_name",
    "information_schema_view_table_usage": "view_schema view_name table_schema table_name",
    "information_schema_role_column_grants": "grantor grantee table_schema table_name column_name privilege_type",
    "information_schema_usage_privileges": "grantor grantee object_schema object_name object_type privilege_type",
    "information_schema_applicable_roles": "grantee role_name is_grantable",
    "information_schema_attributes": "udt_schema udt_name attribute_name data_type",
    "information_schema_user_defined_types": "user_defined_type_schema user_defined_type_name",
    "information_schema_collations": "collation_schema collation_name pad_attribute",
    "information_schema_foreign_tables": "foreign_table_schema foreign_table_name foreign_server_name",
}
"""Catalogs without rows, with the columns that tools name."""


def _build_frame(rows: list[dict[str, Any]], shape: str | None) -> pa.Table:
    import pyarrow as pa

    if rows:
        table = pa.Table.from_pylist(rows)
        # A column that is null in every row would have no type, and could not be compared with text.
        kinds = [pa.field(f.name, _choose_type(f.name) if pa.types.is_null(f.type) else f.type) for f in table.schema]
        return table.cast(pa.schema(kinds))
    names = (shape or "nothing").split()
    return pa.table({name: pa.array([], _choose_type(name)) for name in names})


LISTS = frozenset({
    "indkey", "conkey", "confkey", "proargtypes", "prattrs", "indclass", "indoption", "indcollation", "polroles",
    "conpfeqop", "proallargtypes", "stxkeys", "tgattr",
})  # fmt: skip
"""Columns of lists of numbers."""
_FLAGS = frozenset({
    "puballtables", "pubupdate", "pubdelete", "pubtruncate", "pubviaroot", "inhdetachpending", "prosecdef", "proretset",
    "granted", "opcdefault", "isleaf", "lanispl", "lanpltrusted", "condefault", "subenabled", "subbinary",
    "subdisableonerr", "collisdeterministic",
})  # fmt: skip
_TEXT_LISTS = frozenset({
    "reloptions", "relacl", "nspacl", "attacl", "attoptions", "attfdwoptions", "datacl", "stxkind", "evttags", "paracl",
    "lanacl", "typacl", "spcacl", "fdwacl", "srvacl", "proacl", "setconfig", "lomacl", "defaclacl", "subpublications",
})  # fmt: skip
_NUMBERS = frozenset({
    "level", "collencoding", "conforencoding", "contoencoding", "castsource", "casttarget", "castfunc", "oprleft",
    "oprright", "oprresult", "oprcode", "opfmethod", "opcmethod", "opcintype", "opckeytype", "opcfamily", "amopfamily",
    "amoplefttype", "amoprighttype", "amopstrategy", "amopopr", "amopmethod", "amopsortfamily", "amprocfamily",
    "amproclefttype", "amprocrighttype", "amproc", "cfgparser", "dicttemplate", "mapcfg", "maptokentype", "mapseqno",
    "mapdict", "prsstart", "prstoken", "prsend", "prsheadline", "prslextype", "tmplinit", "tmpllexize", "conproc",
    "laninline", "lanvalidator", "trftype", "trflang",
})  # fmt: skip


def _choose_type(name: str) -> Any:
    import pyarrow as pa

    numbers = ("oid", "relid", "id", "num", "subtype", "relnamespace", "namespace", "classid", "position")
    flags = ("indis", "indnulls", "is_instead", "condefer", "convalid", "conislocal", "tgisinternal", "polpermissive",
             "pubins")  # fmt: skip
    if name.startswith(flags) or name in _FLAGS:
        return pa.bool_()
    if name in LISTS:
        return pa.list_(pa.int64())
    if name in _TEXT_LISTS:
        return pa.list_(pa.string())
    return pa.int64() if name.endswith((*numbers, "owner")) or name in _NUMBERS else pa.string()
