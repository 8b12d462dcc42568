"""Rows that stay in a PostgreSQL database: questions, releases of rows, refusals and failures, from the policy on."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import clinic
from deniable.cli.main import app
from deniable.curator import Curator
from deniable.curator.federate import RoundClient, plan_round
from deniable.curator.sources import hash_content, stamp_content
from deniable.curator.train import describe_training
from deniable.engines.adbc import DIALECTS, AdbcEngine, read_rows
from deniable.engines.adbc import connect as connect_by_adbc
from deniable.engines.postgresql.engine import PostgreSQLEngine, write_table
from deniable.engines.postgresql.tables import list_tables
from deniable.errors import (
    DataError,
    DeniableError,
    ExecutionFailed,
    ParameterError,
    PolicyError,
    QueryRefused,
    StorageError,
)
from deniable.governance.grants import Asker, Role
from deniable.ledger.ledger import verify
from deniable.policy.document import parse
from deniable.policy.tables import BY_ADBC
from deniable.query.sql.dialects import _render_cached
from deniable.query.sql.warehouses import POSTGRES
from engines_elsewhere import write_profile

NUMBERS = itertools.count()
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: "{address}#care.{table}"
    rows_out: {rows_out}
    unit: {{column: pid, max_groups: 2, max_rows_per_group: 3}}
    columns:
      pid: {{type: integer, role: identifier, mask: redact}}
      sex: {{categories: [F, M], role: quasi-identifier}}
      age: {{type: integer, between: [0, 100], role: quasi-identifier, hierarchy: {{intervals: {{widths: [10, 50]}}}}}}
      city: {{role: insensitive}}
      charge: {{type: decimal, between: [0, 250], step: 0.5, role: sensitive}}
  regions:
    source: regions.csv
    public: true
release: {{anonymize: {{k: 3, suppress: 1}}}}
budgets: {{dataset: {{epsilon: 100, delta: 1e-5, accounting: zcdp}}}}
"""


QUESTIONS = (
    "SELECT sex, COUNT(*) AS n, COUNT(DISTINCT pid) AS people FROM visits GROUP BY sex",
    "SELECT SUM(charge) AS s FROM visits WHERE city = 'Ada'",
    "SELECT COUNT(*) AS n FROM (SELECT pid, COUNT(*) AS v, AVG(charge) AS c FROM visits GROUP BY pid) p WHERE v > 3",
)


@pytest.fixture(scope="module")
def database(postgres_address: str) -> str:
    """A database with a schema of its own, and a role that may read it and nothing else."""
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS care")
        connection.execute("DROP ROLE IF EXISTS curator_reader")
        connection.execute("CREATE ROLE curator_reader LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA care TO curator_reader")
        connection.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA care GRANT SELECT ON TABLES TO curator_reader")
    return postgres_address


@pytest.fixture
def table(database: str) -> Iterator[str]:
    """A table of visits; its name."""
    name = f"visits_{os.getpid()}_{next(NUMBERS)}"
    write_table(clinic.people(count=150, rows=600).drop_columns(["seen", "note"]), f"{database}#care.{name}")
    yield name
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'DROP TABLE IF EXISTS care."{name}" CASCADE')


def as_reader(address: str) -> str:
    """The same database, as the role that may read."""
    return address.replace("deniable@", "curator_reader@")


def write_policy(folder: Path, address: str, table: str, rows_out: int = 1_000) -> Path:
    """A policy over the table, as the least-privileged role."""
    (folder / "regions.csv").write_text("city,region\nAda,north\nBrin,south\n")
    path = folder / "clinic.yaml"
    path.write_text(POLICY.format(address=as_reader(address), table=table, rows_out=rows_out))
    return path


def test_questions_are_answered_where_the_rows_are(
    database: str, table: str, tmp_path: Path, silence: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    run = PostgreSQLEngine.run
    monkeypatch.setattr(
        PostgreSQLEngine, "run", lambda self, *a, **k: (fetched.append((r := run(self, *a, **k)).num_rows), r)[1]
    )
    rows = clinic.people(count=150, rows=600)
    path = write_policy(tmp_path, database, table)
    with Curator.open(path) as there, Curator(there.policy, sources={"visits": rows}) as here:
        for asked in QUESTIONS:
            assert there.query(asked, epsilon=1).to_pylist() == here.query(asked, epsilon=1).to_pylist()
        stay = "the rows of visits stay where they are"
        assert any(note.startswith(stay) for note in there.explain(asked, epsilon=1).notes)
        assert not any(note.startswith(stay) for note in here.explain(asked, epsilon=1).notes)
    assert 0 < max(fetched) <= 2  # no more than the groups that are asked for


def test_the_command_line_asks_a_database(database: str, table: str, tmp_path: Path) -> None:
    path = write_policy(tmp_path, database, table)
    asked = ["query", "-p", str(path), "SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", "--epsilon", "5", "--json"]
    found = CliRunner().invoke(app, asked)
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert {row["sex"] for row in rows} == {"F", "M"}


def test_a_table_is_masked_by_the_address_that_the_policy_has(database: str, table: str, tmp_path: Path) -> None:
    path, out = write_policy(tmp_path, database, table), tmp_path / "out.parquet"
    address = f"{as_reader(database)}#care.{table}"
    found = CliRunner().invoke(app, ["mask", address, "-p", str(path), "-o", str(out)])
    assert found.exit_code == 0, found.output
    assert pq.read_table(out).num_rows == 600
    found = CliRunner().invoke(app, ["mask", address + "x", "-p", str(path), "-o", str(tmp_path / "x.parquet")])
    assert isinstance(found.exception, ParameterError)
    assert "the address is not the source of a private table of the policy" in str(found.exception)


def test_a_draft_is_made_from_a_table_and_a_view_of_a_database(database: str, table: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'CREATE VIEW care."{table}_view" AS SELECT pid, age FROM care."{table}"')
    assert {f"care.{table}", f"care.{table}_view"} <= set(list_tables(as_reader(database)))
    found = CliRunner().invoke(app, ["policy", "init", f"{as_reader(database)}#care.{table}_view"])
    assert found.exit_code == 0, found.output
    assert "age:" in found.output
    assert "postgresql:" in found.output


def test_tables_of_different_places_are_not_joined_and_nothing_is_charged(
    database: str, table: str, tmp_path: Path
) -> None:
    with Curator.open(write_policy(tmp_path, database, table)) as curator:
        before = curator.remaining()
        with pytest.raises(QueryRefused, match="different places"):
            curator.query("SELECT region, COUNT(*) AS n FROM visits JOIN regions ON visits.city = regions.city "
                          "GROUP BY region", epsilon=1)  # fmt: skip
        with pytest.raises(QueryRefused, match="cannot be computed in PostgreSQL"):
            curator.query("SELECT COUNT(*) AS n FROM visits WHERE REGEXP_REPLACE(city, 'a', 'b') = 'x'", epsilon=1)
        assert curator.remaining() == before
        assert curator.query("SELECT region, COUNT(*) AS n FROM regions GROUP BY region").rows.num_rows == 2


@pytest.mark.parametrize("address", ["ana:secret@db/clinic", "ana@db/clinic?sslmode=require&password=secret"])
def test_a_password_does_not_stand_in_a_policy(address: str) -> None:
    text = POLICY.format(address=f"postgresql://{address}", table="t", rows_out=1)
    with pytest.raises(PolicyError, match="holds a password"):
        parse(text)


def test_rows_are_brought_out_for_k_anonymity_up_to_the_limit(database: str, table: str, tmp_path: Path) -> None:
    path = write_policy(tmp_path, database, table)
    with Curator.open(path) as curator:
        made = curator.anonymize("visits", tmp_path / "out.csv")
        assert made is not None
        assert (tmp_path / "out.csv").exists()
    few = write_policy(tmp_path, database, table, rows_out=599)
    with Curator.open(few, ledger=None) as curator, pytest.raises(DataError, match="more than 599 rows"):
        curator.anonymize("visits", tmp_path / "more.csv")
    assert not (tmp_path / "more.csv").exists()


ONE_EACH = """
version: 1
dataset: clinic
tables:
  visits:
    source: "{source}"
    rows_out: {rows_out}
    unit: {{column: pid}}
    columns:
      pid: {{type: text, role: identifier}}
      sex: {{categories: [F, M], role: quasi-identifier}}
      age: {{type: integer, between: [0, 100], role: quasi-identifier, hierarchy: {{intervals: {{widths: [10, 50]}}}}}}
      city: {{role: insensitive}}
release: {{anonymize: {{k: 3, suppress: 1}}}}
budgets: {{dataset: {{epsilon: 100, delta: 1e-5, accounting: zcdp}}}}
"""


def one_row_each(rows: int, names: str = "p{}") -> pa.Table:
    """People with one row each, with few combinations of what is not their name."""
    return pa.table({
        "pid": [names.format(place) for place in range(rows)],
        "sex": ["FM"[place % 2] for place in range(rows)],
        "age": [20 + place % 7 * 5 if place % 11 else None for place in range(rows)],
        "city": ["Ada" if place % 3 else "Brin" for place in range(rows)],
    })  # fmt: skip


def released(path: Path) -> list[str]:
    """The lines of a file, in an order of their own."""
    return sorted(path.read_text().splitlines())


@pytest.mark.parametrize("method", ["optimal", "mondrian"])
def test_k_anonymity_counts_where_the_rows_are_and_releases_the_same_rows(
    database: str, table: str, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.engines.postgresql.engine.fetch_table", lambda *_: pytest.fail("rows were copied"))
    rows, source = one_row_each(400), f"{database}#care.{table}_one"
    write_table(rows, source)
    with Curator(parse(ONE_EACH.format(source=source, rows_out=400), folder=tmp_path)) as there:
        made = there.anonymize("visits", tmp_path / "there.csv", method=method)
        assert not [each for each in made.details["warnings"] if "brought here" in each]
    with Curator(parse(ONE_EACH.format(source="x.csv", rows_out=1), folder=tmp_path), sources={"visits": rows}) as here:
        here.anonymize("visits", tmp_path / "here.csv", method=method)
    assert released(tmp_path / "there.csv") == released(tmp_path / "here.csv")
    assert len(released(tmp_path / "there.csv")) > 300
    with (
        Curator(parse(ONE_EACH.format(source=source, rows_out=10), folder=tmp_path)) as few,
        pytest.raises(DataError, match="by the columns asked for, has more than 10 rows"),
    ):
        few.anonymize("visits", tmp_path / "more.csv")


@pytest.mark.parametrize("names", ["p{}", "ä{}"], ids=["somebody has two rows", "names that could be one"])
def test_k_anonymity_brings_rows_here_and_says_so_where_people_may_have_several(
    database: str, table: str, tmp_path: Path, names: str
) -> None:
    rows, source = one_row_each(60, names), f"{database}#care.{table}_one"
    write_table(pa.concat_tables([rows, rows.slice(0, 1)]) if names == "p{}" else rows, source)
    with Curator(parse(ONE_EACH.format(source=source, rows_out=100), folder=tmp_path)) as there:
        made = there.anonymize("visits", tmp_path / "there.csv")
    told = "the rows of visits are brought here from where they are, 100 of them at most (rows_out in the policy)"
    assert told in made.details["warnings"]


def test_identifiers_are_still_looked_for_in_what_was_counted_elsewhere(
    database: str, table: str, tmp_path: Path
) -> None:
    rows, source = one_row_each(400, "person-{}-x"), f"{database}#care.{table}_one"
    write_table(rows.set_column(3, "city", rows["pid"]), source)
    with (
        Curator(parse(ONE_EACH.format(source=source, rows_out=1_000), folder=tmp_path)) as there,
        pytest.raises(Exception, match="column 'city' has the values of the identifier 'pid'"),
    ):
        there.anonymize("visits", tmp_path / "there.csv")


BROUGHT = "the rows of visits are brought here from where they are (rows_out: 0 in the policy forbids it)"


def test_synthesis_counts_where_the_rows_are_and_else_says_that_rows_are_brought_here(
    database: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = PostgreSQLEngine.run
    monkeypatch.setattr(
        PostgreSQLEngine, "run", lambda self, sql, *a, **k: (asked.append(sql), run(self, sql, *a, **k))[1]
    )
    with Curator.open(write_policy(tmp_path, database, table, rows_out=5)) as curator:
        kept = {"epsilon": 5, "delta": "1e-7", "columns": ("sex", "age", "charge")}
        made = curator.synthesize("visits", tmp_path / "made.csv", rows=20, **kept)
        assert asked
        assert all("GROUPING SETS" in each for each in asked)
        assert "notes" not in made.details
        told = curator.explain_sample_and_aggregate("visits", blocks=5, bounds=(0, 10), epsilon=1)
        assert told.notes == [BROUGHT]
        made = curator.synthesize(
            "visits", tmp_path / "text.csv", epsilon=5, delta="1e-7", rows=20, columns=("sex", "city")
        )
        assert made.details["notes"] == [BROUGHT], "how many rows there are decides nothing after a charge"


def test_describe_says_that_rows_are_brought_here(database: str, table: str, tmp_path: Path) -> None:
    policy, told = write_policy(tmp_path, database, table, rows_out=5), {}
    for columns in ("sex,age", "sex,city"):
        words = ["describe", "visits", "-p", str(policy), "-o", str(tmp_path / columns), "--epsilon", "5"]
        run = CliRunner().invoke(app, [*words, "--delta", "1e-7", "--columns", columns, "--json"])
        assert run.exit_code == 0, run.output
        told[columns] = json.loads(run.output).get("notes")
    assert told == {"sex,age": None, "sex,city": [BROUGHT]}


def test_where_no_row_may_leave_what_needs_rows_is_refused_before_a_charge(
    database: str, table: str, tmp_path: Path
) -> None:
    with Curator.open(write_policy(tmp_path, database, table, rows_out=0)) as curator:
        before = curator.ledger.head()
        needs: list[Callable[[], object]] = [
            lambda: curator.describe("visits", epsilon=1, delta="1e-7", columns=("sex", "city")),
            lambda: curator.sample_and_aggregate(len, "visits", blocks=5, bounds=(0, 10), epsilon=1),
            lambda: curator.train("visits", "charge", features=["age"], epsilon=1),
            lambda: curator.randomize("visits", tmp_path / "told.csv", epsilon=1),
            lambda: curator.check("visits", ["sex"]),
        ]
        for need in needs:
            with pytest.raises(QueryRefused, match=r"lets none leave \(rows_out: 0\).*Nothing was charged"):
                need()
        assert curator.ledger.head() == before
        curator.describe("visits", epsilon=1, delta="1e-7", columns=("sex", "age"))
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1)


def break_off(address: str, kill: str) -> threading.Thread:
    """End the statement of the curator's role as soon as one runs, by the given function of the server."""

    def watch() -> None:
        with psycopg.connect(address, autocommit=True) as connection:
            for _ in range(400):
                found = connection.execute(
                    f"SELECT {kill}(pid) FROM pg_stat_activity WHERE usename = 'curator_reader'"
                    " AND state = 'active' AND query LIKE '%_slow%'"
                ).fetchall()
                if found:
                    return
                time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("kill", "cause"),
    [
        ("pg_terminate_backend", "the connection to the database was lost"),
        ("pg_cancel_backend", "the work was stopped before it ended"),
        ("", "the work was stopped before it ended"),
    ],
    ids=["the server ends the connection", "the statement is canceled", "the time is over"],
)
def test_what_fails_in_the_database_stays_charged_and_only_the_steward_learns_why(
    database: str, table: str, tmp_path: Path, kill: str, cause: str
) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'CREATE VIEW care."{table}_slow" AS SELECT * FROM care."{table}"')
    path = write_policy(tmp_path, database, f"{table}_slow")
    asked = "SELECT COUNT(*) AS n FROM visits"
    with Curator.open(path) as curator:
        curator.query("SELECT COUNT(*) AS n FROM visits WHERE age > 1", epsilon=1)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                f'CREATE OR REPLACE VIEW care."{table}_slow" AS SELECT * FROM care."{table}"'
                " WHERE (SELECT pg_sleep(20)::text) IS NOT NULL"
            )
        before, ana = curator.remaining(), Asker("ana", role=Role.ANALYST)
        watcher = break_off(database, kill) if kill else None
        with pytest.raises(ExecutionFailed) as refusal:
            curator.query(asked, epsilon=1, who=ana, seconds=None if kill else 0.3)
        if watcher is not None:
            watcher.join()
        assert str(refusal.value) == str(ExecutionFailed())
        assert curator.remaining() != before
        failed = [entry for entry in curator.ledger.entries() if entry.act == "fail"]
        assert [entry.details["cause"] for entry in failed] == [cause]
        verify(curator.ledger)
    with psycopg.connect(database) as connection:
        left = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"
        assert connection.execute(left).fetchone() == (0,)


def test_a_connection_that_the_server_ended_between_questions_is_opened_again(
    database: str, table: str, tmp_path: Path
) -> None:
    with Curator.open(write_policy(tmp_path, database, table)) as curator:
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        with psycopg.connect(database, autocommit=True) as connection:
            ended = connection.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'curator_reader'"
            ).fetchone()
        assert ended
        assert ended[0]
        assert curator.query("SELECT COUNT(*) AS n FROM visits WHERE age > 2", epsilon=1).rows.num_rows == 1


def test_a_database_that_cannot_be_reached_is_refused_before_a_charge(tmp_path: Path, database: str) -> None:
    path = write_policy(tmp_path, "postgresql://deniable@/postgres?host=/nowhere", "visits")
    with Curator.open(path) as curator:
        before = curator.remaining()
        with pytest.raises(StorageError, match="cannot be reached") as refusal:
            curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        assert "nowhere" not in str(refusal.value)
        assert curator.remaining() == before


@pytest.fixture
def by_adbc(database: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy over the same table by ADBC, with the address in the environment, as a secret would be."""
    monkeypatch.setenv("ADBC_PROFILE_PATH", str(tmp_path))
    monkeypatch.setenv("CLINIC", as_reader(database))
    (tmp_path / "clinic.toml").write_text('profile_version = 1\n[Options]\nuri = "{{ env_var(CLINIC) }}"\n')
    return write_policy(tmp_path, "postgresql+adbc://clinic", table)


def test_the_same_questions_are_answered_by_adbc(
    database: str, table: str, by_adbc: Path, tmp_path: Path, silence: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[int] = []
    run = AdbcEngine._run_there
    monkeypatch.setattr(
        AdbcEngine, "_run_there", lambda self, *a: (fetched.append((r := run(self, *a)).num_rows), r)[1]
    )
    rows = clinic.people(count=150, rows=600)
    with Curator.open(by_adbc) as there, Curator(there.policy, sources={"visits": rows}) as here:
        for asked in QUESTIONS:
            assert there.query(asked, epsilon=1).to_pylist() == here.query(asked, epsilon=1).to_pylist()
        assert any(note.startswith("the rows of visits stay") for note in there.explain(asked, epsilon=1).notes)
        assert 0 < max(fetched) <= 8  # groups, and probes over rows that are written out
        before = there.remaining()
        with pytest.raises(QueryRefused, match="cannot be computed in PostgreSQL"):
            there.query("SELECT COUNT(*) AS n FROM visits WHERE UPPER(city) = 'ADA'", epsilon=1)
        assert there.remaining() == before
        assert there.anonymize("visits", tmp_path / "out.csv") is not None
        model = there.describe("visits", epsilon=5, delta="1e-7", columns=("sex", "age"), method="independent")
        assert there.generate(model, 10).num_rows == 10
    source = f"postgresql+adbc://clinic#care.{table}"
    place, version = stamp_content(source, tmp_path)
    assert hash_content(source, tmp_path) == version
    assert place == stamp_content(f"{as_reader(database)}#care.{table}", tmp_path)[0]
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'UPDATE care."{table}" SET age = age + 1 WHERE pid = 3')
    assert hash_content(source, tmp_path) != version


@pytest.mark.parametrize("door", ["its own driver", "adbc"])
def test_every_technique_reads_a_database(
    database: str, table: str, tmp_path: Path, door: str, request: pytest.FixtureRequest
) -> None:
    """What computes there, and what brings rows here, both end in a release."""
    path = request.getfixturevalue("by_adbc") if door == "adbc" else write_policy(tmp_path, database, table)
    with Curator.open(path) as curator:
        assert curator.query("SELECT SUM(AUTO_CLAMP(age)) AS s FROM visits", epsilon=5).rows.num_rows == 1
        rolled = curator.query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY ROLLUP(sex)", epsilon=5)
        assert rolled.rows.num_rows == 3
        assert 0 < curator.top("visits", "city", 2, epsilon=5, delta="1e-6").rows.num_rows <= 2
        mean = curator.sample_and_aggregate(
            lambda rows: 1.0 * len(rows), "visits", blocks=5, bounds=(0, 1000), epsilon=5
        )
        assert mean.rows.num_rows == 1
        assert curator.hierarchy("visits", ["sex"], epsilon=5).rows.num_rows == 3
        assert curator.margins("visits", [["sex"]], epsilon=5).rows.num_rows >= 2
        assert curator.watch("SELECT COUNT(*) AS n FROM visits WHERE age > 20", 20, 5).check()
        model = curator.describe("visits", epsilon=5, delta="1e-7", columns=("sex", "age"), method="independent")
        assert curator.generate(model, 10).num_rows == 10
        masked = curator.mask("visits")
        assert masked.rows.num_rows == 600
        assert curator.check("visits", ("sex", "age")).rows == 600


def test_a_session_by_adbc_only_reads(by_adbc: Path, table: str) -> None:
    connection = connect_by_adbc("postgresql", "clinic")
    try:
        with pytest.raises(Exception, match="read-only"):
            read_rows(connection, f'DELETE FROM care."{table}"')
    finally:
        connection.close()


def test_a_place_that_computes_otherwise_is_refused_before_a_charge(
    by_adbc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POSTGRES, "cut", "CEIL({a})")  # a rounding of its own
    _render_cached.cache_clear()
    try:
        with Curator.open(by_adbc) as curator:
            before = curator.remaining()
            with pytest.raises(DataError, match="does not compute as postgresql is known to"):
                curator.query(QUESTIONS[0], epsilon=1)
            assert curator.remaining() == before
    finally:
        _render_cached.cache_clear()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("snowflake+adbc://ana:secret@account/db#visits", "holds a password, or a key in place of one"),
        ("snowflake+adbc://account/db#visits", "names a profile and a table, and no address"),
        ("trino+adbc://clinic", "names a profile and a table, and no address"),
        ("mysql+adbc://clinic#visits", "'mysql\\+adbc:' is not a kind of source"),
    ],
)
def test_a_source_by_adbc_names_a_known_dialect_a_profile_and_a_table(source: str, told: str) -> None:
    text = POLICY.format(address="x", table="y", rows_out=1).replace("x#care.y", source)
    with pytest.raises(PolicyError, match=told) as refusal:
        parse(text)
    assert "secret" not in str(refusal.value)


def test_a_profile_that_leads_nowhere_is_refused_before_a_charge(by_adbc: Path, tmp_path: Path) -> None:
    (tmp_path / "clinic.toml").unlink()
    with Curator.open(by_adbc) as curator, pytest.raises(StorageError, match="cannot be reached"):
        curator.query(QUESTIONS[0], epsilon=1)
    assert tuple(DIALECTS) == BY_ADBC


PLACES = """
version: 1
dataset: town
tables:
  visits:
    source: {source}
    unit: {{column: who, max_groups: 2, max_rows_per_group: 2}}
    columns:
      who: {{type: integer, role: identifier}}
      lat: {{type: decimal, between: [10, 12], step: 0.00001}}
      lon: {{type: decimal, between: [20, 22], step: 0.00001}}
      sex: {{categories: [F, M]}}
      day: {{type: date}}
stream:
  daily:
    table: visits
    time: day
    every: day
    start: 2026-01-01
    periods: 6
    epsilon: 1
    questions: {{some: {{count: rows, where: "REGEXP_REPLACE(sex, 'F', 'M') = 'M'"}}}}
budgets: {{dataset: {{epsilon: 10}}}}
"""


def test_an_explanation_says_which_rows_are_brought_out_and_by_adbc_it_is_refused(tmp_path: Path) -> None:
    there = Curator(parse(PLACES.format(source="postgresql://ana@db/town#visits"), folder=tmp_path))
    told = there.explain_places("visits", ("lat", "lon"), epsilon=1).notes
    assert [note for note in told if note.startswith("the rows of visits are brought here")]
    sets = there.explain_hierarchy("visits", ["sex"], epsilon=1).notes
    assert [note for note in sets if note.startswith("the rows of visits stay where they are")]
    here = Curator(parse(PLACES.format(source="visits.parquet"), folder=tmp_path))
    assert not [note for note in here.explain_places("visits", ("lat", "lon"), epsilon=1).notes if "brought" in note]
    with pytest.raises(QueryRefused, match="'regexp_replace' of these arguments cannot be computed in PostgreSQL"):
        there.explain_publish("daily")
    by_adbc = Curator(parse(PLACES.format(source="trino+adbc://town#visits"), folder=tmp_path))
    with pytest.raises(QueryRefused, match="reached by ADBC"):
        by_adbc.explain_places("visits", ("lat", "lon"), epsilon=1)


def test_fewer_identifiers_than_there_are_are_not_taken_for_all_in_the_search_for_copies(
    database: str, table: str, tmp_path: Path
) -> None:
    """A lower limit of rows switched the search off, and identifiers left."""
    rows, source = one_row_each(300, "person-{}-x"), f"{database}#care.{table}_copies"
    copied = pa.array([f"person-{place % 60}-x" for place in range(300)])
    alike = {"sex": pa.array(["F"] * 300), "age": pa.array([30] * 300), "city": copied}
    write_table(pa.table({"pid": rows["pid"], **alike}), source)
    told = r"values of 'pid', which are looked for|the values of the identifier 'pid'"
    for most in (130, 1_000):
        policy = parse(ONE_EACH.format(source=source, rows_out=most), folder=tmp_path)
        with Curator(policy) as there, pytest.raises(DeniableError, match=told):
            there.anonymize("visits", tmp_path / f"{most}.csv")
        assert not (tmp_path / f"{most}.csv").exists()


@pytest.mark.parametrize("door", ["postgresql", "adbc"])
@pytest.mark.parametrize("least", [100000000000000000, 2**63 - 40, -(2**63)])
def test_long_whole_numbers_of_numeric_columns_stay_apart(
    database: str, table: str, tmp_path: Path, least: int, door: str
) -> None:
    """By way of doubles, sixteen people became one."""
    rows, source = one_row_each(40), f"{database}#care.{table}_long"
    write_table(rows, source)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE care.{table}_long ALTER COLUMN pid TYPE numeric(20,0)"
                           f" USING substring(pid from 2)::numeric + {least}")  # fmt: skip
    if door == "adbc":
        source = f"postgresql+adbc://{write_profile(database)}#care.{table}_long"
    text = ONE_EACH.format(source=source, rows_out=1_000).replace("pid: {type: text", "pid: {type: integer")
    with Curator(parse(text, folder=tmp_path)) as there:
        assert there.query("SELECT COUNT(DISTINCT pid) AS n FROM visits", epsilon=90).scalar() == 40


@pytest.mark.parametrize("door", ["postgresql", "adbc"])
@pytest.mark.parametrize("people", ["one row each", "several rows"])
def test_numbers_in_single_precision_leave_as_a_file_of_the_same_rows_gives_them(
    database: str, table: str, tmp_path: Path, people: str, door: str
) -> None:
    rows, place = one_row_each(60), f"{table}_{people[:3]}{door[:1]}"
    rows = rows if people == "one row each" else pa.concat_tables([rows, rows.slice(0, 2)])
    numbers = pa.array([0.1 * (each % 4) - 10.1 for each in range(rows.num_rows)], pa.float32())
    rows = rows.append_column("share", numbers)
    write_table(rows, f"{database}#care.{place}")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE care.{place} ALTER COLUMN share TYPE float4")
    source = f"{database}#care.{place}"
    if door == "adbc":
        source = f"postgresql+adbc://{write_profile(database)}#care.{place}"
    text = ONE_EACH.replace("city: {{role: insensitive}}", "share: {{type: decimal, role: insensitive}}")
    text = text.replace(
        "release: {{anonymize: {{k: 3, suppress: 1}}}}", "release: {{anonymize: {{k: 2, suppress: 1}}}}"
    )
    with Curator(parse(text.format(source=source, rows_out=400), folder=tmp_path)) as there:
        there.anonymize("visits", tmp_path / "there.csv")
    with Curator(parse(text.format(source="x", rows_out=1), folder=tmp_path), sources={"visits": rows}) as here:
        here.anonymize("visits", tmp_path / "here.csv")
    assert released(tmp_path / "there.csv") == released(tmp_path / "here.csv")
    assert ",-10.1" in (tmp_path / "there.csv").read_text()


def test_a_domain_over_a_domain_is_read_as_the_type_below(database: str, table: str, tmp_path: Path) -> None:
    source = f"{database}#care.{table}_domain"
    write_table(one_row_each(40), source)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE DOMAIN care.{table}_a AS int4; CREATE DOMAIN care.{table}_b AS care.{table}_a;"
                           f" CREATE DOMAIN care.{table}_c AS numeric(20,0); CREATE DOMAIN care.{table}_d AS"
                           f" care.{table}_c; ALTER TABLE care.{table}_domain ALTER COLUMN age TYPE care.{table}_b,"
                           f" ALTER COLUMN pid TYPE care.{table}_d"
                           " USING substring(pid from 2)::numeric + 100000000000000000")  # fmt: skip
    text = ONE_EACH.format(source=source, rows_out=1_000).replace("pid: {type: text", "pid: {type: integer")
    with Curator(parse(text, folder=tmp_path)) as there:
        assert there.query("SELECT COUNT(DISTINCT pid) AS n FROM visits", epsilon=90).scalar() == 40
        assert there.query("SELECT COUNT(DISTINCT pid) AS n FROM visits WHERE age > 99", epsilon=9).scalar() < 9


def test_people_and_combinations_are_counted_over_the_same_rows(
    database: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second row of somebody that came in between was released as if it were another person's."""
    source, run = f"{database}#care.{table}_between", PostgreSQLEngine.run
    write_table(one_row_each(60), source)

    def run_and_add(self: PostgreSQLEngine, sql: str, *given: object, **options: object) -> pa.Table:
        found = run(self, sql, *given, **options)  # type: ignore[arg-type]
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"INSERT INTO care.{table}_between VALUES ('p1', 'M', 25, 'Ada')")
        return found

    monkeypatch.setattr(PostgreSQLEngine, "run", run_and_add)
    with Curator(parse(ONE_EACH.format(source=source, rows_out=400), folder=tmp_path)) as there:
        made = there.anonymize("visits", tmp_path / "there.csv")
    told = [each for each in made.details["warnings"] if "brought here" in each]
    assert told or len(released(tmp_path / "there.csv")) <= 61  # sixty rows and the names of columns


STREAM = """
stream:
  daily:
    table: visits
    time: day
    every: day
    start: 2020-01-01
    periods: 3
    max_periods: {most}
    epsilon: 1
    questions: {{all: {{count: rows}}}}
budgets:"""


@pytest.mark.parametrize("most", [2, 3])
def test_streams_that_count_the_periods_of_people_say_that_rows_are_brought_here(
    database: str, table: str, tmp_path: Path, most: int
) -> None:
    """One row of each person is, unless people may be in all periods."""
    dated = POLICY.replace("      city:", "      day: {{type: date, role: insensitive}}\n      city:")
    dated = dated.replace("\nbudgets:", STREAM.replace("{most}", str(most)))
    (tmp_path / "regions.csv").write_text("city,region\nAda,north\n")

    def opened(rows_out: int) -> Curator:
        text = dated.format(address=as_reader(database), table=table, rows_out=rows_out)
        return Curator(parse(text, folder=tmp_path))

    with opened(0) as none:
        before = none.ledger.head()
        if most == 3:
            assert none.publish("daily").notes == ()
        else:
            for ask in (none.explain_publish, none.publish):
                with pytest.raises(QueryRefused, match=r"lets none leave \(rows_out: 0\).*Nothing was charged"):
                    ask("daily")
            assert none.ledger.head() == before
            with opened(5) as few:
                assert few.explain_publish("daily").notes == (BROUGHT,)
                assert few.publish("daily").notes == (BROUGHT,)


def test_training_and_federated_clients_say_that_rows_are_brought_here(
    database: str, table: str, tmp_path: Path
) -> None:
    path = write_policy(tmp_path, database, table, rows_out=5)
    with Curator.open(path) as curator:
        trained = curator.train("visits", "charge", features=["age"], epsilon=1)
        assert trained.release.details["notes"] == [BROUGHT]
        assert describe_training(trained).notes == [BROUGHT]
        made = plan_round(curator.context, "visits", "means", features=["age"], clients=3, epsilon=1)
        assert RoundClient(curator.context, "visits", made).notes == [BROUGHT]


@pytest.mark.parametrize("people", ["one row each", "several rows"])
def test_decimals_and_times_in_a_zone_leave_in_the_types_of_a_file(
    database: str, table: str, tmp_path: Path, people: str
) -> None:
    rows = one_row_each(60)
    rows = rows if people == "one row each" else pa.concat_tables([rows, rows.slice(0, 2)])
    places = range(rows.num_rows)
    begun = datetime(2024, 1, 1, 12, tzinfo=UTC)
    wages = pa.array([Decimal(f"{each % 4}.1{each % 2}") for each in places], pa.decimal128(10, 2))
    times = pa.array([begun + timedelta(hours=each % 3) for each in places], pa.timestamp("us", "UTC"))
    rows = rows.drop_columns(["city"]).append_column("wage", wages).append_column("seen", times)
    source = f"{database}#care.{table}_typed"
    write_table(rows, source)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER TABLE care.{table}_typed ALTER COLUMN wage TYPE numeric(10,2), ALTER COLUMN seen"
                           " TYPE timestamptz USING seen AT TIME ZONE 'UTC'")  # fmt: skip
    more = "wage: {{type: decimal, role: insensitive}}\n      seen: {{type: datetime, role: insensitive}}"
    text = ONE_EACH.replace("city: {{role: insensitive}}", more).replace("k: 3", "k: 2")
    pq.write_table(rows, tmp_path / "rows.parquet")
    made = []
    for place in (source, "rows.parquet"):
        with Curator(parse(text.format(source=place, rows_out=400), folder=tmp_path)) as curator:
            curator.anonymize("visits", tmp_path / f"out{len(made)}.parquet")
        made.append(pq.read_table(tmp_path / f"out{len(made)}.parquet"))
    assert made[0].schema.types == made[1].schema.types
    assert made[0].schema.field("wage").type == pa.decimal128(10, 2)
    assert sorted(map(repr, made[0].to_pylist())) == sorted(map(repr, made[1].to_pylist()))
