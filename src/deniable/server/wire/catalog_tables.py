"""The catalog tables of PostgreSQL: the policy's tables and columns, and nothing that was read from data.

Tools ask `pg_class`, `pg_attribute`, `information_schema.columns` and the like to draw a tree of tables. These are
made from declared metadata alone; the description of a column says its role and bounds. Catalogs of things that do not
exist here (indexes, triggers) are there and empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deniable.server.wire import values as v
from deniable.server.wire.settings import REPORTED, TOLERATED

if TYPE_CHECKING:
    import pyarrow as pa

PG_CATALOG, PUBLIC, INFORMATION_SCHEMA = 11, 2200, 13_000
FIRST_TABLE = 16_384
OWNER = 10
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
        "receive_tree": [_type_for_adbc(oid, name) for oid, name in v.TYPE_NAMES.items()],
        "typeinfo_tree": [_array_for_asyncpg(*each) for each in v.ARRAYS.items()],
        "pg_database": [_database(dataset)],
        "pg_roles": [_role("analyst")],
        "pg_user": [{"usename": "analyst", "usesysid": OWNER, "usesuper": False, "usecreatedb": False}],
        "pg_tables": [_table(table) for table in listed],
        "pg_am": [{"oid": 2, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"}],
        "information_schema_schemata": [_schema(dataset, name) for _, name in _SCHEMAS],
        "information_schema_tables": [_information_table(dataset, table) for table in listed],
        "information_schema_columns": [row for table in listed for row in _information_columns(dataset, table)],
        "pg_settings": [_setting(*each) for each in ({**REPORTED, **TOLERATED}).items()],
        "information_schema_character_sets": [{"character_set_name": "UTF8", "default_collate_name": "C"}],
        "pg_get_keywords": [{"word": word, "catcode": "R", "catdesc": "reserved"} for word in KEYWORDS],
    }
    return {name: _build_frame(rows, EMPTY.get(name)) for name, rows in filled.items()} | {
        name: _build_frame([], shape) for name, shape in EMPTY.items() if name not in filled
    }


_KEYWORDS = """
    all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
    current_catalog current_date current_role current_time current_timestamp current_user default deferrable desc
    distinct do else end except false fetch for foreign from grant group having in initially intersect into lateral
    leading limit localtime localtimestamp not null offset on only or order placing primary references returning
    select session_user some symmetric table then to trailing true union unique user using variadic when where
    window with
"""
KEYWORDS = tuple(_KEYWORDS.split())
"""The reserved words of PostgreSQL, which tools quote."""


def build_empty(table: PublicTable) -> pa.Table:
    """A table without rows: its columns as the policy declares them."""
    import pyarrow as pa

    kinds = {
        "integer": pa.int64(), "decimal": pa.float64(), "text": pa.string(), "boolean": pa.bool_(),
        "date": pa.date32(), "datetime": pa.timestamp("us"),
    }  # fmt: skip
    return pa.table({column.name: pa.array([], kinds[column.kind]) for column in table.columns})


def _setting(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "setting": value, "unit": None, "category": "", "short_desc": "", "context": "internal"}


_SCHEMAS = ((PG_CATALOG, "pg_catalog"), (PUBLIC, "public"), (INFORMATION_SCHEMA, "information_schema"))


def _namespace(oid: int, name: str) -> dict[str, Any]:
    return {"oid": oid, "nspname": name, "nspowner": OWNER, "nspacl": None}


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
        "typbyval": True, "typtype": "b", "typcategory": category, "typispreferred": False, "typisdefined": True,
        "typdelim": ",", "typrelid": 0, "typelem": 0, "typarray": 0, "typinput": f"{name}in", "typoutput":
        f"{name}out", "typreceive": 0, "typbasetype": 0, "typtypmod": -1, "typnotnull": False,
        "typcollation": 0, "typdefault": None, "typndims": 0, "written": _SPELLINGS[oid],
    }  # fmt: skip


def _array(oid: int, inner: int) -> dict[str, Any]:
    """The type of an array."""
    scalar = _type(inner, v.TYPE_NAMES[inner])
    own = {"oid": oid, "typname": f"_{scalar['typname']}", "typelem": inner, "typlen": -1, "typcategory": "A"}
    return scalar | own | {"typinput": "array_in", "typoutput": "array_out", "written": f"{scalar['written']}[]"}


def _array_for_asyncpg(oid: int, inner: int) -> dict[str, Any]:
    """The type of an array as asyncpg asks for it, in a recursive question that is answered as a whole."""
    name = v.TYPE_NAMES[inner]
    return {
        "oid": oid, "ns": "pg_catalog", "name": f"_{name}", "kind": "b", "basetype": None, "elemtype": inner,
        "elemdelim": ",", "range_subtype": None, "attrtypoids": None, "attrnames": None, "depth": 0,
        "basetype_name": None, "elemtype_name": _SPELLINGS[inner], "range_subtype_name": None,
    }  # fmt: skip


def _type_for_adbc(oid: int, name: str) -> dict[str, Any]:
    """A type as ADBC asks for it: by the name of the function that receives it."""
    receive = f"{name}_recv" if oid in (v.DATE, v.TIMESTAMP, v.TIMESTAMPTZ, v.NUMERIC) else f"{name}recv"
    return {
        "oid": oid, "typname": name, "typreceive": receive, "typbasetype": 0, "typrelid": 0,
        "typarray": v.ARRAY_OF.get(oid, 0),
    }  # fmt: skip


def _database(dataset: str) -> dict[str, Any]:
    return {
        "oid": 1, "datname": dataset, "datdba": OWNER, "encoding": 6, "datcollate": "C", "datctype": "C",
        "datistemplate": False, "datallowconn": True, "datconnlimit": -1, "dattablespace": 0, "datacl": None,
        "datlocprovider": "c", "daticulocale": None,
    }  # fmt: skip


def _role(name: str) -> dict[str, Any]:
    return {
        "oid": OWNER, "rolname": name, "rolsuper": False, "rolinherit": True, "rolcreaterole": False,
        "rolcreatedb": False, "rolcanlogin": True, "rolreplication": False, "rolbypassrls": False, "rolconnlimit": -1,
        "rolvaliduntil": None,
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
            v.TYPE_NAMES[kind], "character_maximum_length": None, "numeric_precision": None, "numeric_scale": None,
            "datetime_precision": None, "is_identity": "NO", "is_generated": "NEVER", "is_updatable": "NO",
            "collation_name": None, "column_comment": column.comment,
        }  # fmt: skip


EMPTY: Mapping[str, str] = {
    "pg_index": "indexrelid indrelid indnatts indnkeyatts indisunique indisprimary indisexclusion indimmediate "
    "indisclustered indisvalid indcheckxmin indisready indislive indisreplident indkey indcollation indclass indoption "
    "indexprs indpred indnullsnotdistinct",
    "pg_constraint": "oid conname connamespace contype condeferrable condeferred convalidated conrelid contypid "
    "conindid conparentid confrelid confupdtype confdeltype confmatchtype conislocal coninhcount connoinherit conkey "
    "confkey conpfeqop conbin consrc",
    "pg_attrdef": "oid adrelid adnum adbin adsrc",
    "pg_inherits": "inhrelid inhparent inhseqno inhdetachpending",
    "pg_proc": "oid proname pronamespace proowner prolang prokind proretset provolatile pronargs prorettype "
    "proargtypes proargnames proallargtypes proargmodes prosrc proacl prosecdef",
    "pg_trigger": "oid tgrelid tgparentid tgname tgfoid tgtype tgenabled tgisinternal tgconstraint tgdeferrable "
    "tginitdeferred tgnargs tgattr tgargs tgqual",
    "pg_policy": "oid polname polrelid polcmd polpermissive polroles polqual polwithcheck",
    "pg_rewrite": "oid rulename ev_class ev_type ev_enabled is_instead",
    "pg_depend": "classid objid objsubid refclassid refobjid refobjsubid deptype",
    "pg_enum": "oid enumtypid enumsortorder enumlabel",
    "pg_range": "rngtypid rngsubtype rngmultitypid rngcollation rngsubopc rngcanonical rngsubdiff",
    "pg_collation": "oid collname collnamespace collowner collprovider collcollate collctype",
    "pg_tablespace": "oid spcname spcowner spcacl spcoptions",
    "pg_extension": "oid extname extowner extnamespace extversion",
    "pg_statistic_ext": "oid stxrelid stxname stxnamespace stxowner stxkind stxkeys stxstattarget",
    "pg_publication": "oid pubname pubowner puballtables pubinsert pubupdate pubdelete pubtruncate",
    "pg_publication_rel": "oid prpubid prrelid prqual prattrs",
    "pg_publication_namespace": "oid pnpubid pnnspid",
    "pg_foreign_table": "ftrelid ftserver ftoptions",
    "pg_foreign_server": "oid srvname srvowner srvfdw srvoptions",
    "pg_foreign_data_wrapper": "oid fdwname",
    "pg_partitioned_table": "partrelid partstrat partnatts partdefid",
    "pg_sequence": "seqrelid seqtypid seqstart seqincrement seqmax seqmin seqcache seqcycle",
    "pg_sequences": "schemaname sequencename sequenceowner",
    "pg_matviews": "schemaname matviewname matviewowner definition",
    "pg_views": "schemaname viewname viewowner definition",
    "pg_shdescription": "objoid classoid description",
    "pg_auth_members": "roleid member grantor admin_option",
    "pg_language": "oid lanname",
    "pg_opclass": "oid opcname opcmethod opcnamespace opcdefault",
    "pg_event_trigger": "oid evtname",
    "pg_stat_activity": "datid datname pid usename state query backend_start",
    "pg_locks": "locktype database relation pid mode granted transactionid",
    "pg_stat_gssapi": "pid gss_authenticated principal encrypted",
    "pg_stat_ssl": "pid ssl version cipher bits",
    "pg_stat_database": "datid datname numbackends xact_commit xact_rollback blks_read blks_hit",
    "pg_cast": "oid castsource casttarget castfunc castcontext castmethod",
    "pg_operator": "oid oprname oprnamespace oprleft oprright oprresult oprcode",
    "pg_aggregate": "aggfnoid aggkind aggtransfn",
    "pg_conversion": "oid conname connamespace conforencoding",
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
    "information_schema_sequences": "sequence_schema sequence_name",
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


def _choose_type(name: str) -> Any:
    import pyarrow as pa

    numbers = ("oid", "relid", "id", "num", "subtype", "relnamespace", "namespace", "classid", "position")
    flags = (
        "indis",
        "indnulls",
        "is_instead",
        "condefer",
        "convalid",
        "conislocal",
        "tgisinternal",
        "polpermissive",
        "pubins",
    )
    if name.startswith(flags) or name in (
        "puballtables",
        "inhdetachpending",
        "prosecdef",
        "proretset",
        "granted",
        "opcdefault",
    ):
        return pa.bool_()
    if name in ("indkey", "conkey", "confkey", "proargtypes", "prattrs", "indclass", "indoption", "indcollation"):
        return pa.list_(pa.int64())
    if name in ("reloptions", "relacl", "nspacl", "attacl", "attoptions", "attfdwoptions", "datacl", "stxkind"):
        return pa.list_(pa.string())
    return pa.int64() if name.endswith(numbers) else pa.string()
