"""A PostgreSQL ledger that stalls is given up on, and one that is there needs no right to make tables."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest

from deniable.curator import Curator
from deniable.curator.governance import steward
from deniable.errors import NOTHING_CHARGED, UNKNOWN, AccessRefused, IntegrityError, StorageError
from deniable.ledger import Ledger, postgres
from deniable.ledger.backup import holds_entries
from deniable.ledger.ledger import verify
from deniable.ledger.postgres import Database, PostgresShelf, PostgresStore
from deniable.policy.budget import PureDP
from ledgers import charge, plain

psycopg = pytest.importorskip("psycopg")


def test_a_lock_that_another_session_holds_is_waited_for_and_then_refused(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 1)
    store = PostgresStore(postgres_address, "stalled")
    ledger = Ledger("stalled", plain(1), store)
    charge(ledger, "1/10")
    database = Database(postgres_address, "stalled")
    database.close()
    with psycopg.connect(postgres_address) as other:
        other.execute("SELECT pg_advisory_lock(%s)", (database.key,))
        with pytest.raises(StorageError, match="could not be used"):
            charge(ledger, "1/10")
        assert ledger.find_remaining() == PureDP(Fraction(9, 10)), "readers do not wait"
    charge(ledger, "1/10")
    assert verify(ledger).entries == 2
    store.close()


def test_a_server_that_accepts_and_never_answers_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(StorageError, match="could not be used"):
            PostgresStore(f"postgresql://somebody@127.0.0.1:{port}/ledger", "silent")


def test_a_role_that_may_not_make_tables_can_charge_and_one_that_only_reads_can_verify(postgres_address: str) -> None:
    first = PostgresStore(postgres_address, "roles")
    charge(Ledger("roles", plain(1), first), "1/10")
    PostgresShelf(postgres_address, "roles").close()
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        for role, rights in (("server", "SELECT, INSERT"), ("auditor", "SELECT")):
            owner.execute(f"DROP ROLE IF EXISTS {role}")
            owner.execute(f"CREATE ROLE {role} LOGIN")
            owner.execute(f"GRANT {rights} ON deniable_entries TO {role}")
    try:
        address = postgres_address.replace("deniable@", "server@")
        serving = Ledger("roles", plain(1), PostgresStore(address, "roles"))
        assert charge(serving, "1/10").number == 2
        serving.close()
        reading = Ledger("roles", plain(1), PostgresStore(postgres_address.replace("deniable@", "auditor@"), "roles"))
        assert verify(reading).entries == 2
        with pytest.raises(AccessRefused, match=r"GRANT SELECT ON public\.deniable_kept TO auditor"):
            charge(reading, "1/10")
        reading.close()
    finally:
        with psycopg.connect(postgres_address, autocommit=True) as owner:
            for role in ("server", "auditor"):
                owner.execute(f"DROP OWNED BY {role}")
                owner.execute(f"DROP ROLE {role}")
        first.close()


def test_a_commit_whose_reply_is_lost_is_not_called_uncharged_and_is_settled_by_the_request_id(
    postgres_address: str,
) -> None:
    store = PostgresStore(postgres_address, "lost reply")
    ledger = Ledger("lost reply", plain(1), store)
    charge(ledger, "1/10", request="first")

    def append_and_lose_the_connection() -> None:
        with store.begin_write() as book, psycopg.connect(postgres_address, autocommit=True) as other:
            (pid,) = book._run("SELECT pg_backend_pid()").fetchone()
            other.execute("SELECT pg_terminate_backend(%s)", (pid,))

    with pytest.raises(StorageError) as told:
        append_and_lose_the_connection()
    assert told.value.charged == UNKNOWN
    assert told.value.as_dict()["charged"] is None
    assert charge(ledger, "1/10", request="first").repeated
    assert charge(ledger, "1/10", request="second").number == 2
    store.close()


ATTACKS = {
    "not logged": "ALTER TABLE deniable_{0} SET UNLOGGED",
    "a child table": "CREATE TABLE child () INHERITS (deniable_{0})",
    "a parent table": "CREATE TABLE parent (LIKE deniable_{0}); ALTER TABLE deniable_{0} INHERIT parent",
    "a further column": "ALTER TABLE deniable_{0} ADD COLUMN more text",
    "a generated column": "ALTER TABLE deniable_{0} ADD COLUMN more text GENERATED ALWAYS AS (dataset || 'x') STORED",
    "a default": "ALTER TABLE deniable_{0} ALTER COLUMN dataset SET DEFAULT 'x'",
    "a column that may be empty": "ALTER TABLE deniable_{0} ALTER COLUMN {1} DROP NOT NULL",
    "another type": "ALTER TABLE deniable_{0} ALTER COLUMN dataset TYPE varchar(99)",
    "another collation": 'ALTER TABLE deniable_{0} ALTER COLUMN dataset TYPE text COLLATE "C"',
    "columns renamed": "ALTER TABLE deniable_{0} RENAME COLUMN {1} TO other",
    "a check": "ALTER TABLE deniable_{0} ADD CHECK (dataset <> 'x')",
    "a unique constraint gone": "ALTER TABLE deniable_{0} DROP CONSTRAINT {2}",
    "a foreign key to it": "CREATE TABLE other (a text, b {3}, FOREIGN KEY (a, b{4}) REFERENCES deniable_{0})",
    "an index": "CREATE INDEX more ON deniable_{0} (lower(dataset))",
    "a trigger": "CREATE TRIGGER mine AFTER INSERT ON deniable_{0} EXECUTE FUNCTION deniable_entries_are_final()",
    "row security": "ALTER TABLE deniable_{0} ENABLE ROW LEVEL SECURITY",
}
ON_ENTRIES = {
    "our trigger under a condition": "CREATE OR REPLACE TRIGGER deniable_final BEFORE UPDATE OR DELETE ON"
    " deniable_entries FOR EACH ROW WHEN (false) EXECUTE FUNCTION deniable_entries_are_final()",
    "our trigger on fewer changes": "CREATE OR REPLACE TRIGGER deniable_final BEFORE UPDATE ON deniable_entries"
    " FOR EACH ROW EXECUTE FUNCTION deniable_entries_are_final()",
    "partitions": "DROP TABLE deniable_entries; CREATE TABLE deniable_entries (dataset text, sequence bigint, act text,"
    " analyst text, request text, text text) PARTITION BY LIST (dataset)",
    "a trigger on the layout": "CREATE TRIGGER mine AFTER INSERT ON deniable_layout EXECUTE FUNCTION"
    " deniable_entries_are_final()",
}
ENTRIES = ("entries", "text", "deniable_entries_dataset_analyst_request_key", "bigint", "")
KEPT = ("kept", "value", "deniable_kept_dataset_drawer_alias_key", "text, c text", ", c")
CHANGES = ON_ENTRIES | {
    f"{what}, {each[0]}": sql.format(*each) for what, sql in ATTACKS.items() for each in (ENTRIES, KEPT)
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_table_that_is_not_exactly_ours_is_refused(postgres_address: str, change: str) -> None:
    PostgresStore(postgres_address, "attacked").close()
    with psycopg.connect(postgres_address) as database:
        postgres._refuse_foreign(database.execute)
        database.execute(change)
        with pytest.raises(IntegrityError, match=r"deniable_\w+ in the ledger's database is not laid out"):
            postgres._refuse_foreign(database.execute)
        database.rollback()


def test_a_database_with_an_event_trigger_is_refused_by_its_name(postgres_address: str) -> None:
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute("CREATE DATABASE events")
    address = psycopg.conninfo.make_conninfo(postgres_address, dbname="events")
    PostgresStore(address, "clinic").close()
    with psycopg.connect(address, autocommit=True) as foreign:
        foreign.execute(
            "CREATE FUNCTION mine() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';"
            " CREATE EVENT TRIGGER somebodys ON ddl_command_end EXECUTE FUNCTION mine()"
        )
    with pytest.raises(IntegrityError, match="event triggers: somebodys"):
        PostgresStore(address, "clinic")


CLERK_POLICY = """
version: 1
dataset: DATASET
tables:
  visits:
    source: visits.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
budgets: {dataset: {epsilon: 40}}
"""


@pytest.fixture
def clerk(tmp_path: Path, postgres_address: str) -> Iterator[tuple[Path, str, psycopg.Connection]]:
    """A policy whose ledger is laid out by its owner, the address of a role with nothing but SELECT, and the owner."""
    name = f"rights{uuid.uuid4().hex[:8]}"
    (tmp_path / "visits.csv").write_text("pid,sex\n" + "".join(f"{n},{'FM'[n % 2]}\n" for n in range(40)))
    (tmp_path / "policy.yaml").write_text(CLERK_POLICY.replace("DATASET", name))
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {name}")
        owner.execute(f"CREATE ROLE {name} LOGIN")
    base = postgres_address.replace("/postgres?", f"/{name}?")
    with Curator.open(tmp_path / "policy.yaml", ledger=base) as curator:
        curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
    with psycopg.connect(base, autocommit=True) as owner:
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        owner.execute(f"GRANT SELECT ON deniable_entries, deniable_kept TO {name}")
        yield tmp_path / "policy.yaml", base.replace("deniable@", f"{name}@"), owner
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute(f"DROP DATABASE {name} WITH (FORCE)")
        owner.execute(f"DROP ROLE {name}")


def test_a_role_that_could_charge_and_not_store_is_refused_before_with_the_grant_that_it_lacks(
    clerk: tuple[Path, str, psycopg.Connection],
) -> None:
    policy, address, owner = clerk
    asked = iter(range(100))

    def ask() -> None:
        with Curator.open(policy, ledger=address) as curator:
            curator.query(f"SELECT COUNT(*) FROM visits WHERE pid > {next(asked)}", epsilon=1)

    def grant(told: pytest.ExceptionInfo[AccessRefused]) -> None:
        assert told.value.charged == NOTHING_CHARGED
        owner.execute(str(told.value.remedy).partition("run: ")[2])  # what is advised is enough

    with pytest.raises(AccessRefused, match=r"lacks INSERT on .*entries and INSERT, UPDATE on .*kept") as told:
        ask()
    assert steward.verify(policy, address, None, None).entries == steward.show(policy, address, 9).standing.charged == 1
    grant(told)
    for table, right in (("entries", "INSERT"), ("kept", "INSERT"), ("kept", "UPDATE")):
        owner.execute(f"REVOKE {right} ON deniable_{table} FROM {name_role(address)}")
        with pytest.raises(AccessRefused, match=rf"lacks {right} on public\.deniable_{table}\.") as told:
            ask()
        grant(told)
    ask()
    with Curator.open(policy, ledger=address) as curator:  # rights that are taken away later
        owner.execute(f"REVOKE UPDATE ON deniable_kept FROM {name_role(address)}")
        with pytest.raises(AccessRefused, match=r"lacks UPDATE on public\.deniable_kept") as told:
            curator.query(f"SELECT COUNT(*) FROM visits WHERE pid > {next(asked)}", epsilon=1)
        assert told.value.charged == NOTHING_CHARGED
    assert steward.verify(policy, address, None, None).entries == 2


def test_a_role_that_may_not_read_the_stored_answers_is_told_what_it_lacks(
    clerk: tuple[Path, str, psycopg.Connection],
) -> None:
    policy, address, owner = clerk
    owner.execute(f"REVOKE SELECT ON deniable_kept FROM {name_role(address)}")
    with pytest.raises(AccessRefused, match=r"GRANT SELECT ON public\.deniable_kept TO"):
        steward.verify(policy, address, None, None)


READERS: dict[str, Callable[[Path, str], object]] = {
    "ledger show": lambda policy, at: steward.show(policy, at, 9),
    "ledger verify": lambda policy, at: steward.verify(policy, at, None, None),
    "ledger head": lambda policy, at: steward.show_head(policy, at),
    "ledger export": lambda policy, at: list(steward.export(policy, at, "csv", None)),
    "ledger incidents": lambda policy, at: steward.incidents(policy, at),
    "register": lambda policy, at: steward.register(policy, at),
    "epoch show": lambda policy, at: steward.show_epoch(policy, at),
    "token list": lambda policy, at: steward.list_tokens(policy, at),
    "requests": lambda policy, at: steward.requests(policy, at),
    "subject": lambda policy, at: steward.subject(policy, at, "pid", "7"),
}


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("look", READERS.values(), ids=READERS)
def test_a_role_that_may_only_read_can_look_and_is_told_what_it_lacks(
    clerk: tuple[Path, str, psycopg.Connection], look: Callable[[Path, str], object]
) -> None:
    policy, address, owner = clerk
    role, seen = name_role(address), steward.verify(policy, address, None, None).head
    look(policy, address)
    assert steward.verify(policy, address, None, None).head == seen
    lacking = (
        ("USAGE ON SCHEMA public", "PUBLIC"),
        ("SELECT ON public.deniable_kept", role),
        ("SELECT ON public.deniable_entries", role),
        ("SELECT ON public.deniable_layout", "PUBLIC"),
    )
    for right, whose in lacking:
        owner.execute(f"REVOKE {right} FROM {whose}")
        with pytest.raises(AccessRefused, match=re.escape(f"GRANT {right} TO {role};")) as told:
            look(policy, address)
        owner.execute(str(told.value.remedy).partition("run: ")[2])  # what is advised is enough
    look(policy, address)


def test_a_role_that_may_not_enter_or_make_the_tables_is_told_what_it_lacks(
    clerk: tuple[Path, str, psycopg.Connection],
) -> None:
    policy, address, owner = clerk
    role, database = name_role(address), owner.info.dbname
    owner.execute("CREATE SCHEMA empty")
    owner.execute(f"ALTER ROLE {role} SET search_path = empty")
    for right in ("USAGE, CREATE ON SCHEMA empty", "CREATE ON SCHEMA empty"):
        with pytest.raises(AccessRefused, match=re.escape(f"GRANT {right} TO {role};")):
            PostgresStore(address, "other")
        owner.execute(f"GRANT USAGE ON SCHEMA empty TO {role}")
    owner.execute(f"GRANT CREATE ON SCHEMA empty TO {role}")
    PostgresStore(address, "other").close()
    owner.execute(f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    with pytest.raises(AccessRefused, match=f'GRANT CONNECT ON DATABASE "{database}" TO "{role}";'):
        steward.verify(policy, address, None, None)


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    with pytest.raises(StorageError, match="could not be used") as told:
        PostgresStore("postgresql://ana:secret@localhost/ledger?nonsense=1", "other")
    assert told.value.__cause__ is None
    assert told.value.__suppress_context__


def test_rights_that_are_taken_away_while_a_ledger_is_open_are_named_and_hide_no_ledger(
    clerk: tuple[Path, str, psycopg.Connection],
) -> None:
    _, address, owner = clerk
    role, dataset = name_role(address), owner.info.dbname
    with closing(PostgresStore(address, dataset)) as store:
        for right, whose in (("SELECT ON public.deniable_entries", role), ("USAGE ON SCHEMA public", "PUBLIC")):
            owner.execute(f"REVOKE {right} FROM {whose}")
            for look in (store.last, lambda: list(store.lines()), lambda: holds_entries(address, dataset)):
                with pytest.raises(AccessRefused, match=re.escape(f"GRANT {right} TO {role};")):
                    look()
            owner.execute(f"GRANT {right} TO {role}")
        assert store.last() == 1
    assert holds_entries(address, dataset)


def name_role(address: str) -> str:
    return address.partition("://")[2].partition("@")[0]
