"""The same store in PostgreSQL, for a survey served from several machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from deniable.dp.samplers import permutation, salt
from deniable.errors import MissingExtra, StorageError
from deniable.localdp.survey.store import Arrival

SCHEMA = (
    "create table if not exists deniable_survey_facts (survey text, name text, value bytea not null,"
    " primary key (survey, name))",
    "create table if not exists deniable_survey_tickets (survey text, stub bytea, primary key (survey, stub))",
    "create table if not exists deniable_survey_responses (survey text, place bigint, body text not null,"
    " primary key (survey, place))",
)


class PostgresStore:
    """Responses in three tables of a PostgreSQL database; the address is a `postgresql://` URL."""

    def __init__(self, address: str, survey: str) -> None:
        try:
            import psycopg
        except ImportError:
            raise MissingExtra(
                "PostgreSQL needs psycopg", remedy="Install it with: pip install 'deniable[postgres]'"
            ) from None
        self._error = psycopg.Error
        self._survey = survey
        try:
            self._connection = psycopg.connect(address, autocommit=True)
            with self._connection.transaction():
                for statement in SCHEMA:
                    self._connection.execute(statement)
        except psycopg.Error as failure:
            raise self._refused(failure) from None

    def fact(self, name: str, fresh: bytes) -> bytes:
        """A lasting fact of the survey; the fresh value is kept if there was none."""
        with self._guarded() as run:
            run(
                "insert into deniable_survey_facts values (%s, %s, %s) on conflict do nothing",
                (self._survey, name, fresh),
            )
            where = (self._survey, name)
            found = run("select value from deniable_survey_facts where survey = %s and name = %s", where).fetchone()
        return bytes(found[0])

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """File a batch in one durable transaction, responses in shuffled order."""
        with self._guarded() as run:
            ticket = "insert into deniable_survey_tickets values (%s, %s) on conflict do nothing"
            new = [run(ticket, (self._survey, arrival.stub)).rowcount == 1 for arrival in batch]
            bodies = [arrival.body for arrival, fresh in zip(batch, new, strict=True) if fresh]
            for index in permutation(len(bodies)).tolist():
                place = int.from_bytes(salt(8), "big") >> 1
                run("insert into deniable_survey_responses values (%s, %s, %s)", (self._survey, place, bodies[index]))
        return new

    def count(self) -> int:
        """How many responses there are."""
        with self._guarded() as run:
            query = "select count(*) from deniable_survey_responses where survey = %s"
            return int(run(query, (self._survey,)).fetchone()[0])

    def bodies(self) -> Iterator[str]:
        """What the responses say, by their random places."""
        with self._guarded() as run:
            query = "select body from deniable_survey_responses where survey = %s order by place"
            rows = run(query, (self._survey,)).fetchall()
        for (body,) in rows:
            yield body

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def _guarded(self) -> _Guarded:
        return _Guarded(self)

    def _refused(self, failure: Any) -> StorageError:
        kind = getattr(failure, "sqlstate", None) or "no connection"
        return StorageError(f"PostgreSQL refused the store ({kind})", remedy="Check address, rights and disk")


class _Guarded:
    """One transaction; what the database refuses becomes a StorageError without its text."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._transaction = store._connection.transaction()

    def __enter__(self) -> Any:
        try:
            self._transaction.__enter__()
        except self._store._error as failure:
            raise self._store._refused(failure) from None
        return self._store._connection.execute

    def __exit__(self, kind: Any, failure: Any, trace: Any) -> None:
        try:
            self._transaction.__exit__(kind, failure, trace)
        except self._store._error as broken:
            raise self._store._refused(broken) from None
        if isinstance(failure, self._store._error):
            raise self._store._refused(failure) from None
