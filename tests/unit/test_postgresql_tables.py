"""How tables of PostgreSQL are shown: as the role may read them, the same whatever its settings are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from deniable import Curator
from deniable.engines.adbc import AdbcEngine
from deniable.engines.base import Listed
from deniable.engines.postgresql import tables
from deniable.engines.postgresql.engine import PostgreSQLEngine
from deniable.engines.postgresql.tables import version_source
from deniable.errors import NOTHING_CHARGED, DataError, DeniableError, ExecutionFailed, PolicyError
from deniable.policy.document import parse
from deniable.policy.schema import Column, ColumnType, TableSchema
from deniable.query.sql.dialects import render_for_postgresql, render_for_warehouse
from engines_elsewhere import write_profile

ROLE = "shown_reader"
POLICY = """
version: 1
dataset: shown
tables:
  visits:
    source: {source}
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer, role: identifier}}
      age: {{type: integer, between: [0, 100]}}
budgets: {{dataset: {{epsilon: 100}}}}
"""


@pytest.fixture
def database(postgres_address: str) -> Iterator[tuple[Any, str]]:
    """A connection of an owner, and the address of a role that may see a schema and nothing else yet."""
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute("CREATE SCHEMA shown")
        owner.execute(f"CREATE ROLE {ROLE} LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA shown TO {ROLE}")
        owner.execute("CREATE TABLE shown.visits AS SELECT i::int AS pid, i % 90 AS age, 's' || i AS secret,"
                      " make_interval(days => i) AS stay FROM generate_series(1, 50) AS i")  # fmt: skip
        yield owner, postgres_address.replace("deniable@", f"{ROLE}@")
        owner.execute(f"DROP SCHEMA shown CASCADE; DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


def test_a_role_needs_the_right_to_the_columns_that_are_declared_and_no_other(
    database: tuple[Any, str], tmp_path: Path
) -> None:
    owner, address = database
    policy = parse(POLICY.format(source=f"{address}#shown.visits"), folder=tmp_path)
    for granted, told in (("", "Grant the role SELECT"), ("(pid)", "age")):
        owner.execute(f"GRANT SELECT {granted} ON shown.visits TO {ROLE}" if granted else "SELECT 1")
        with Curator(policy) as curator:
            with pytest.raises(DeniableError, match=told):
                curator.query("SELECT COUNT(*) FROM visits WHERE age < 200", epsilon=50)
            assert not list(curator.context.ledger.entries(0, ("charge",)))
    owner.execute(f"GRANT SELECT (age) ON shown.visits TO {ROLE}")
    with Curator(policy) as curator:
        assert curator.query("SELECT COUNT(*) FROM visits WHERE age < 200", epsilon=50).scalar() == 50


def test_a_materialized_view_without_rows_is_refused_before_a_charge(database: tuple[Any, str], tmp_path: Path) -> None:
    owner, address = database
    owner.execute("CREATE MATERIALIZED VIEW shown.later AS SELECT * FROM shown.visits WITH NO DATA")
    owner.execute(f"GRANT SELECT ON shown.later TO {ROLE}")
    with Curator(parse(POLICY.format(source=f"{address}#shown.later"), folder=tmp_path)) as curator:
        with pytest.raises(DataError, match="without rows yet"):
            curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
        assert not list(curator.context.ledger.entries(0, ("charge",)))


def test_the_settings_of_a_role_change_no_text(database: tuple[Any, str]) -> None:
    owner, address = database
    owner.execute(f"GRANT SELECT ON shown.visits TO {ROLE}")
    found = []
    for style in ("postgres", "iso_8601"):
        owner.execute(f"ALTER ROLE {ROLE} SET IntervalStyle = '{style}'")
        with PostgreSQLEngine(render=render_for_postgresql) as engine:
            columns = (Column("pid", ColumnType.INTEGER), Column("stay", ColumnType.TEXT))
            engine.attach("visits", f"{address}#shown.visits", TableSchema("visits", "", columns))
            found.append(engine.run('SELECT pid, stay FROM "visits" ORDER BY pid').to_pylist())
    assert found[0] == found[1]


def test_a_column_named_rows_does_not_hide_changes_of_the_others(database: tuple[Any, str]) -> None:
    owner, address = database
    owner.execute("CREATE TABLE shown.counted AS SELECT 1 AS rows, 2 AS other")
    owner.execute(f"GRANT SELECT ON shown.counted TO {ROLE}")
    owner.execute(f"ALTER ROLE {ROLE} SET track_counts = 'off'")  # rows are hashed where the database counts nothing
    before = version_source(f"{address}#shown.counted")
    owner.execute("UPDATE shown.counted SET other = 3")
    assert version_source(f"{address}#shown.counted") != before


@pytest.mark.parametrize("door", ["its own driver", "adbc"])
def test_what_is_gone_since_it_was_attached_is_refused_before_a_charge(
    database: tuple[Any, str], tmp_path: Path, door: str
) -> None:
    owner, address = database
    place = address if door != "adbc" else f"postgresql+adbc://{write_profile(address)}"
    owner.execute(f"GRANT SELECT ON shown.visits TO {ROLE}")
    with Curator(parse(POLICY.format(source=f"{place}#shown.visits"), folder=tmp_path)) as curator:
        curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
        back_to_int = "ALTER TABLE shown.visits ALTER age TYPE int USING age::int"
        for change, back, told in (
            ("ALTER TABLE shown.visits RENAME TO gone", "ALTER TABLE shown.gone RENAME TO visits", "gone|not there"),
            ("ALTER TABLE shown.visits RENAME age TO years", "ALTER TABLE shown.visits RENAME years TO age", "columns"),
            ("ALTER TABLE shown.visits ALTER age TYPE text", back_to_int, "others of their"),
            ("ALTER TABLE shown.visits ALTER age TYPE numeric", back_to_int, "others of their"),
            (
                "ALTER TABLE shown.visits ALTER age TYPE date USING date '2024-01-01' + age",
                "ALTER TABLE shown.visits ALTER age TYPE int USING age - date '2024-01-01'",
                "others of their",
            ),
            (f"REVOKE SELECT ON shown.visits FROM {ROLE}", f"GRANT SELECT ON shown.visits TO {ROLE}", "may not read"),
            (f"ALTER ROLE {ROLE} NOLOGIN", f"ALTER ROLE {ROLE} LOGIN", "cannot be reached"),
        ):
            owner.execute(change)
            owner.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", (ROLE,))
            with pytest.raises(DeniableError, match=told) as refused:
                curator.query("SELECT COUNT(*) FROM visits WHERE age < 9", epsilon=1)
            assert refused.value.charged == NOTHING_CHARGED
            owner.execute(back)
        assert len(list(curator.context.ledger.entries(0, ("charge",)))) == 1
        owner.execute("ALTER TABLE shown.visits ADD later int")  # what is new is not read
        curator.query("SELECT COUNT(*) FROM visits WHERE age < 9", epsilon=1)


def test_the_ledger_names_the_cause_of_what_failed_for_the_steward(database: tuple[Any, str], tmp_path: Path) -> None:
    owner, address = database
    owner.execute("CREATE VIEW shown.slow AS SELECT pid, age + 0 * length(pg_sleep(1)::text) AS age FROM shown.visits")
    owner.execute(f"GRANT SELECT ON shown.slow TO {ROLE}")
    with Curator(parse(POLICY.format(source=f"{address}#shown.slow"), folder=tmp_path)) as curator:
        for least in range(4):  # failures of a steward are told, and pause nobody
            with pytest.raises(ExecutionFailed):
                curator.query(f"SELECT COUNT(*) FROM visits WHERE age > {least}", epsilon=1, seconds=0.2)
        failed = list(curator.context.ledger.entries(0, ("fail",)))
        assert len(failed) == 4
        assert failed[0].details["cause"] == "the work was stopped before it ended"


def test_a_type_of_ones_own_with_the_name_of_a_builtin_is_read_as_text(database: tuple[Any, str]) -> None:
    owner, address = database
    owner.execute("CREATE TYPE shown.date AS ENUM ('early', 'late')")
    owner.execute("CREATE TABLE shown.own AS SELECT 1 AS pid, 'late'::shown.date AS hour")
    owner.execute(f"GRANT SELECT ON shown.own TO {ROLE}")
    with PostgreSQLEngine(render=render_for_postgresql) as engine:
        engine.attach("own", f"{address}#shown.own")
        assert engine.run('SELECT hour FROM "own"').to_pylist() == [{"hour": "late"}]


@pytest.mark.parametrize("spelled", ['#"shown"."visits"', "&connect_timeout=9#shown.visits", "#shown.through"])
def test_a_private_table_is_no_public_one_however_it_is_spelled(
    database: tuple[Any, str], tmp_path: Path, spelled: str
) -> None:
    owner, address = database
    owner.execute("CREATE VIEW shown.through AS SELECT * FROM shown.visits")
    owner.execute(f"GRANT SELECT ON shown.visits, shown.through TO {ROLE}")
    private = POLICY.format(source=f"{address}#shown.visits")
    public = private.replace("budgets:", f"  shared: {{public: true, source: '{address}{spelled}'}}\nbudgets:")
    with pytest.raises(PolicyError, match="'shared' holds the rows of the private table 'visits'"):
        Curator(parse(public, folder=tmp_path))
    owner.execute(f"ALTER ROLE {ROLE} NOLOGIN")  # what cannot be compared when it is opened is compared when it is read
    with Curator(parse(public, folder=tmp_path)) as curator:
        owner.execute(f"ALTER ROLE {ROLE} LOGIN")
        for asked in ("SELECT pid FROM shared", "SELECT COUNT(*) FROM visits"):
            with pytest.raises(PolicyError, match="'shared' holds the rows of the private table 'visits'"):
                curator.query(asked, epsilon=1)
        assert not list(curator.context.ledger.entries(0, ("charge",)))
    owner.execute("CREATE TABLE shown.lookup AS SELECT 1 AS code")
    owner.execute(f"GRANT SELECT ON shown.lookup TO {ROLE}")
    Curator(parse(public.replace(spelled, "#shown.lookup"), folder=tmp_path)).close()


def test_one_table_has_one_unit_however_it_is_spelled(database: tuple[Any, str], tmp_path: Path) -> None:
    owner, address = database
    owner.execute(f"GRANT SELECT ON shown.visits TO {ROLE}")
    text = POLICY.format(source=f"{address}#shown.visits")
    other = f"  others: {{source: '{address}#\"shown\".visits', unit: row, columns: {{age: {{type: integer}}}}}}"
    with pytest.raises(PolicyError, match="protect different units"):
        Curator(parse(text.replace("budgets:", f"{other}\nbudgets:"), folder=tmp_path))


def test_tables_elsewhere_are_compared_once_for_all_askers(
    database: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, address = database
    owner.execute("CREATE TABLE shown.lookup AS SELECT 1 AS code")
    owner.execute("CREATE TABLE shown.other AS SELECT 1 AS pid, 2 AS age")
    owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA shown TO {ROLE}")
    lookup = f"  lookup: {{public: true, source: '{address}#shown.lookup'}}"
    other = f"  other: {{source: '{address}#shown.other', unit: row, columns: {{age: {{type: integer}}}}}}"
    text = POLICY.format(source=f"{address}#shown.visits").replace("budgets:", f"{lookup}\n{other}\nbudgets:")
    looked, find = list[str](), tables.list_places
    with Curator(parse(text, folder=tmp_path)) as curator:
        monkeypatch.setattr(tables, "list_places", lambda source: (looked.append(source), find(source))[1])
        for asked in ("SELECT code FROM lookup", "SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM other"):
            curator.query(asked, epsilon=1)
    assert len(looked) == len(set(looked)) == 3


@pytest.mark.parametrize("door", ["postgresql", "adbc"])
def test_people_who_withdrew_are_left_out_also_where_their_numbers_are_in_single_precision(
    database: tuple[Any, str], postgres_address: str, door: str
) -> None:
    owner, address = database
    owner.execute(
        "CREATE TABLE shown.single AS SELECT CAST(n AS float4) AS n FROM unnest('{0.1,7.5,3}'::float8[]) AS n"
    )
    owner.execute(f"GRANT SELECT ON shown.single TO {ROLE}")
    source, engine = f"{address}#shown.single", PostgreSQLEngine(render=render_for_postgresql)
    if door == "adbc":
        source = f"postgresql+adbc://{write_profile(postgres_address)}#shown.single"
        engine = AdbcEngine(render=render_for_warehouse)
    with engine:
        engine.attach("single", source, TableSchema("single", "", (Column("n", ColumnType.DECIMAL),)))
        engine.restrict("single", Listed("n", ("0.1", "1e99", "x"), keep=False))
        assert sorted(engine.run('SELECT n FROM "single"')["n"].to_pylist()) == [3.0, 7.5]


@pytest.mark.parametrize("door", ["postgresql", "adbc"])
def test_numerics_are_whole_numbers_to_the_last_digit_and_what_is_no_number_is_null(
    database: tuple[Any, str], postgres_address: str, door: str
) -> None:
    owner, address = database
    source, engine = f"{address}#shown.whole", PostgreSQLEngine(render=render_for_postgresql)
    if door == "adbc":
        source = f"postgresql+adbc://{write_profile(postgres_address)}#shown.whole"
        engine = AdbcEngine(render=render_for_warehouse)
    schema = TableSchema("whole", "", (Column("n", ColumnType.INTEGER),))
    listed = [2**63 - 1, 2**63 - 2, -(2**63), 7]
    owner.execute("CREATE TABLE shown.whole (n numeric)")
    owner.execute(f"GRANT SELECT ON shown.whole TO {ROLE}")
    for value in (*listed, "NaN", "Infinity", "-Infinity", None):
        owner.execute("INSERT INTO shown.whole VALUES (CAST(%s AS text)::numeric)", (value,))
    with engine:
        engine.attach("whole", source, schema)
        found = engine.run('SELECT n FROM "whole"')["n"].to_pylist()
        assert sorted(each for each in found if each is not None) == sorted(listed)
        assert found.count(None) == 4
        for odd in ("0.5", "9223372036854775808"):
            owner.execute("UPDATE shown.whole SET n = CAST(%s AS numeric) WHERE n = 7", (odd,))
            with pytest.raises(DataError, match=r"1 value of column 'n' .* not of the declared type 'integer'"):
                engine.attach("whole", source, schema)
            owner.execute("UPDATE shown.whole SET n = 7 WHERE n = CAST(%s AS numeric)", (odd,))
