"""Where the tables of a policy are: which engine reads them, and by what their content is known."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import DataError, ParameterError, PolicyError, QueryRefused, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines import Engine
    from deniable.engines.adbc import AdbcEngine
    from deniable.engines.base import Restriction
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema


def make_engine_for(policy: Policy, sources: Mapping[str, Any], rows: bool, **limits: Any) -> Engine:
    """An engine for the policy's tables: the one where they are, or for work on `rows` one that has them here."""
    from deniable.engines.base import is_elsewhere
    from deniable.engines.duckdb import DuckDBEngine

    away = [each for table in policy.tables if is_elsewhere(each := sources.get(table.name, table.source))]
    if not away:
        return DuckDBEngine(root=policy.folder, **limits)
    if rows:
        from deniable.engines.fetching import FetchingEngine

        def open_there(source: str) -> Engine:
            return _open_engine(source.partition(":")[0], policy.folder)

        return FetchingEngine(open_there=open_there, root=policy.folder, **limits)
    kinds = sorted({each.partition(":")[0] for each in away})
    if len(kinds) > 1:
        raise PolicyError(
            f"this policy has tables in {' and tables in '.join(map(_name_kind, kinds))}",
            expected="Tables in one of them, and files",
            remedy="Write one policy for each",
        )
    return _open_engine(kinds[0], policy.folder, **limits)


def _name_kind(scheme: str) -> str:
    return {"postgresql": "PostgreSQL", "spark": "Spark"}.get(scheme, scheme)


def _open_engine(scheme: str, folder: Path, **limits: Any) -> Engine:
    if scheme == "spark":
        from deniable.engines.spark.engine import SparkEngine
        from deniable.query.sql.dialects import render_for_spark

        return SparkEngine(render=render_for_spark, root=folder, **limits)
    if scheme != "postgresql":
        return _open_adbc(folder, **limits)
    from deniable.engines.postgresql.engine import PostgreSQLEngine
    from deniable.query.sql.dialects import render_for_postgresql

    return PostgreSQLEngine(render=render_for_postgresql, root=folder, **limits)


def _open_adbc(folder: Path, **limits: Any) -> AdbcEngine:
    from deniable.engines.adbc import AdbcEngine
    from deniable.query.sql.dialects import render_for_warehouse

    return AdbcEngine(render=render_for_warehouse, root=folder, **limits)


def find_table_at(policy: Policy, source: str, name: str | None) -> str:
    """The private table of the policy whose source is an address, or a refusal."""
    from deniable.policy.schema import refuse_secret

    refuse_secret(source)
    for table in policy.private:
        if table.source == source and name in (None, table.name):
            return table.name
    raise ParameterError(
        "the address is not the source of a private table of the policy" + (f" '{name}'" if name else ""),
        expected="An address as the policy has it",
        remedy="Leave the address out, and name a table of the policy with --table",
    )


def note_rows_out(table: TableSchema, sources: Mapping[str, Any]) -> list[str]:
    """That rows are brought here from where they are, for what is not computed there."""
    told = f"the rows of {table.name} are brought here from where they are (rows_out: 0 in the policy forbids it)"
    return [told] if _is_elsewhere(table, sources) else []


def _is_elsewhere(table: TableSchema, sources: Mapping[str, Any]) -> bool:
    from deniable.engines.base import is_elsewhere

    return is_elsewhere(sources.get(table.name, table.source))


def note_rows_learned(
    table: TableSchema, sources: Mapping[str, Any], columns: tuple[str, ...] | None, attacked: bool
) -> list[str]:
    """That rows are brought here to be described: shapes of texts are learned here, and attacks made."""
    from deniable.synth.describe import can_count_elsewhere

    return [] if not attacked and can_count_elsewhere(table, columns) else note_rows_out(table, sources)


def note_rows_fetched(table: TableSchema, sources: Mapping[str, Any]) -> list[str]:
    """That all rows are brought here from where they are, up to the policy's limit."""
    most = f"{table.rows_out:,} of them at most (rows_out in the policy)"
    told = f"the rows of {table.name} are brought here from where they are, {most}"
    return [told] if _is_elsewhere(table, sources) else []


def refuse_rows_here(table: TableSchema, sources: Mapping[str, Any]) -> None:
    """Refuse, before a charge, what adds noise to rows that it brings here, where the policy lets none leave.

    Only the policy decides. A limit of so many rows would make such a release fail or not by one person's rows.
    """
    if not table.rows_out and _is_elsewhere(table, sources):
        raise QueryRefused(
            f"this brings rows of '{table.name}' here from where they are; the policy lets none leave (rows_out: 0)",
            remedy="Ask in SQL, which brings out none; or the steward sets rows_out of the table higher",
        )


def refuse_by_adbc(table: TableSchema, sources: Mapping[str, Any]) -> None:
    """Refuse what is neither a question in SQL nor a release of rows where a table is reached by ADBC."""
    from deniable.engines.base import is_by_adbc

    refuse_rows_here(table, sources)
    if is_by_adbc(sources.get(table.name, table.source)):
        raise QueryRefused(
            f"the rows of '{table.name}' are reached by ADBC, where this is not computed",
            remedy="Ask in SQL, or export the table to Parquet and name that as its source",
        )


def table_at(source: str, encoding: str | None = None, left_out: tuple[Restriction, ...] = ()) -> pa.Table:
    """The rows of a file; a CSV file may be in another encoding than UTF-8. Some rows may be left out."""
    from deniable.engines.fetching import FetchingEngine
    from deniable.policy.schema import make_dialect

    with FetchingEngine(root=Path.cwd()) as engine:
        engine.attach("table", source, csv=make_dialect(encoding))
        present = {field.name for field in engine.describe("table")}
        engine.restrict("table", *(each for each in left_out if each.column in present))
        return engine.run('SELECT * FROM "table"')


def name_source(source: Any) -> str:
    """What a source is called in reports and refusals: a file by its path, and rows at hand never by what they hold."""
    return str(source) if isinstance(source, str | Path) else "the table at hand"


def refuse_no_rows(rows: pa.Table, source: Any) -> None:
    """Refuse to measure a table without rows: whatever is asked of nobody holds, and nothing would be said by it."""
    if not rows.num_rows:
        raise DataError(
            f"'{name_source(source)}' has no rows, and nothing was measured",
            expected="A table with rows",
            remedy="See whether it is the right file, and whether it was written to its end",
        )


def hold_frames(sources: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The sources, with rows that another library offers as a stream held as a table, since they are read again."""
    from deniable.engines.sources import as_arrow, is_stream
    from deniable.policy.schema import refuse_secret

    if sources is None:
        return None
    for source in sources.values():
        if isinstance(source, str | Path):
            refuse_secret(source)
    return {name: as_arrow(source) if is_stream(source) else source for name, source in sources.items()}


def hash_content(source: Any, folder: Path) -> str | None:
    """The fingerprint of all that a source holds, wherever it is; None for rows that can be read only once."""
    from deniable.engines.base import is_by_adbc, is_elsewhere, is_in_spark
    from deniable.engines.sources import hash_source

    if not is_elsewhere(source):
        return hash_source(source, folder)
    if is_in_spark(source):
        from deniable.engines.spark.engine import version_source as version_in_spark

        return version_in_spark(source, folder)
    if is_by_adbc(source):
        return _stamp_by_adbc(source, folder)[1]
    from deniable.engines.postgresql.tables import version_source

    return version_source(source)


def stamp_content(source: Any, folder: Path, lasting: bool = True) -> tuple[str, str]:
    """Where a source is, by one name however it is written, and what changes when its rows may have changed.

    Rows in memory have no place: they are named by what they hold, under the witness's key. A curator that keeps
    nothing (not `lasting`) does not begin a witness for them.
    """
    from deniable.engines.base import is_by_adbc, is_elsewhere, is_in_spark
    from deniable.engines.sources import is_frame, stamp_source

    if is_frame(source):
        named = _name_frame(source, folder, lasting)
        return named, named
    if not is_elsewhere(source):
        return stamp_source(source, folder)
    if is_in_spark(source):
        from deniable.engines.spark.engine import stamp_table as stamp_in_spark

        return stamp_in_spark(source, folder)
    if is_by_adbc(source):
        return _stamp_by_adbc(source, folder)
    from deniable.engines.postgresql.tables import stamp_table

    return stamp_table(source)


def _stamp_by_adbc(source: str, folder: Path) -> tuple[str, str]:
    with _open_adbc(folder) as engine:
        engine.attach("rows", source)
        return engine.find_place("rows"), engine.data_version("rows")


def _name_frame(source: Any, folder: Path, lasting: bool) -> str:
    from deniable.ledger.witness import Witness

    witness, content = Witness(), hash_content(source, folder)
    if content is None or (witness.is_blank and not lasting):
        raise DataError("these rows are not compared with those of other ledgers", remedy="Pass a table and a ledger")
    return witness.name_frame(content, empty=hasattr(source, "__len__") and not len(source))


def refuse_private_as_public(policy: Policy, sources: Mapping[str, Any] | None = None) -> None:
    """Refuse a public table that holds a file of a private one, under whichever name the copy stands.

    And two private tables over one file that protect different units: what is spent on rows does not add up to people.
    """
    private = [(table, path) for table in policy.private for path in list_files(policy, table, sources)]
    by_size: dict[int, list[tuple[TableSchema, Path]]] = {}
    for table, path in private:
        same_size = by_size.setdefault(path.stat().st_size, [])
        for other, known in same_size:
            if not _share_unit(other, table) and path.samefile(known):
                raise PolicyError(
                    f"the tables '{other.name}' and '{table.name}' read the same file and protect different units",
                    expected="One unit for one source, whatever its tables are called",
                    remedy=f"Drop '{table.name}' from the policy, or give it the unit of '{other.name}'",
                )
        same_size.append((table, path))
    for table in (each for each in policy.tables if each.public):
        for path in list_files(policy, table, sources):
            for owner, own in by_size.get(path.stat().st_size, ()):
                if _hold_the_same(path, own):
                    raise PolicyError(
                        f"the public table '{table.name}' holds the rows of the private table '{owner.name}'",
                        expected="A source is private or public, whatever its name",
                        remedy=f"Drop '{table.name}' from the policy, or give it another source",
                    )
    with suppress(DataError, StorageError):  # what cannot be reached now is compared before it is read
        refuse_private_elsewhere(policy, sources or {})


def refuse_private_elsewhere(
    policy: Policy,
    sources: Mapping[str, Any],
    name: str | None = None,
    places: dict[str, tuple[str, frozenset[str]]] | None = None,
) -> None:
    """The same for tables elsewhere, or for one: what reads a private one is private, and one table has one unit.

    `places` keeps what was found, so that each table is looked up once.
    """
    from deniable.engines.base import is_elsewhere, is_in_spark

    at = {table.name: sources.get(table.name, table.source) for table in policy.tables}
    away = [table for table in policy.tables if is_elsewhere(at[table.name])]
    compared = [
        (one, other)
        for one, other in itertools.combinations(away, 2)
        if name in (None, one.name, other.name)
        and is_in_spark(at[one.name]) == is_in_spark(at[other.name])  # else they are two places
        and (one.public != other.public or (not one.public and not _share_unit(one, other)))
    ]
    places = {} if places is None else places
    for table in itertools.chain.from_iterable(compared):
        if table.name not in places:
            places[table.name] = _list_places(at[table.name], policy.folder)
    for one, other in compared:
        hidden, shown = (other, one) if one.public else (one, other)
        if shown.public and places[hidden.name][0] in places[shown.name][1]:
            raise PolicyError(
                f"the public table '{shown.name}' holds the rows of the private table '{hidden.name}'",
                expected="A source is private or public, whatever its name",
                remedy=f"Drop '{shown.name}' from the policy, or give it another source",
            )
        if not shown.public and places[one.name][0] == places[other.name][0]:
            raise PolicyError(
                f"the tables '{one.name}' and '{other.name}' read the same table and protect different units",
                expected="One unit for one source, whatever its tables are called",
                remedy=f"Drop '{other.name}' from the policy, or give it the unit of '{one.name}'",
            )


def _list_places(source: str, folder: Path) -> tuple[str, frozenset[str]]:
    """Where a table elsewhere is, and the places of all that it reads, as far as they can be known."""
    from deniable.engines.base import is_in_database, is_in_spark
    from deniable.engines.postgresql.tables import list_places
    from deniable.engines.spark.engine import find_place

    if is_in_database(source):
        return list_places(source)
    if is_in_spark(source):
        place = find_place(source, folder)
    else:
        with _open_adbc(folder) as engine:
            engine.attach("rows", source)
            place = engine.find_place("rows")
    return place, frozenset([place])


def _share_unit(one: TableSchema, other: TableSchema) -> bool:
    """Whether two tables protect the same: as declared, or as edges and nodes of one network in two tables."""
    if str(one.unit) == str(other.unit):
        return True
    both = ((one, other), (other, one))
    joined = any(a.edges is not None and a.edges.nodes == (b.name, b.person) and a.person for a, b in both)
    return joined and one.source != other.source


def list_files(policy: Policy, table: TableSchema, sources: Mapping[str, Any] | None) -> Sequence[Path]:
    """The files of a table that are there; none for frames and databases elsewhere."""
    from deniable.engines.base import is_elsewhere
    from deniable.engines.sources import is_frame, resolve_source

    source = (sources or {}).get(table.name, table.source)
    if is_frame(source) or is_elsewhere(source):
        return ()
    try:
        return [path for path in resolve_source(source, policy.folder).paths if path.stat().st_size]
    except (DataError, ParameterError, OSError):
        return ()  # refused with its reason when the table is attached


def _hold_the_same(path: Path, other: Path) -> bool:
    """Whether two files of one size hold the same bytes."""
    from deniable.engines.sources import hash_file

    return path.samefile(other) or hash_file(path) == hash_file(other)


def refuse_linked(table: TableSchema) -> None:
    """Refuse to use the rows of a table that does not itself say whose they are for anything but questions in SQL.

    Rows that are edges of a network belong to two nodes each: only statistics of networks may use them.
    """
    if table.edges is not None:
        raise ParameterError(
            f"the rows of '{table.name}' are edges of a network",
            expected="Statistics of networks, and networks made from them: deniable network, or Curator.network",
        )
    if table.unit is not None and table.unit.via:
        raise ParameterError(
            f"whose rows those of '{table.name}' are is said by another table",
            expected="A table with unit: {column: NAME}; steps to another table are followed by questions in SQL alone",
            remedy="Ask in SQL, or add the person's column to the table's source",
        )
