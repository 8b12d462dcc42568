"""Connections to PostgreSQL: read-only sessions that are set alike on every server, and errors that quote no value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deniable.engines import base
from deniable.errors import DataError, InternalError, StorageError

WAIT_SECONDS = 10
"""How long connecting, or waiting for a lock, may take."""


def is_alive(connection: Any) -> bool:
    """Whether a connection that was kept can be used: a server may have ended it since."""
    import psycopg

    try:
        connection.execute("SELECT")
    except psycopg.Error:
        connection.close()
    return not connection.closed


SETTINGS = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "extra_float_digits": "1",
    "search_path": "pg_catalog",
    "standard_conforming_strings": "on",
    "lock_timeout": f"{WAIT_SECONDS}s",
    "idle_in_transaction_session_timeout": "0",
    "synchronize_seqscans": "off",
    "jit": "off",
}
"""How every session is set: the same answers whatever the server's own settings are, and no name found by a path."""


SINCE_14 = {"client_connection_check_interval": "1s"}
"""A statement ends with the process that asked for it, even if that was killed."""


def connect(address: str, *, read_only: bool = True) -> Any:
    """A connection to a database; a refusal says what failed, without the address."""
    import psycopg

    try:
        connection: Any = psycopg.connect(
            address, connect_timeout=WAIT_SECONDS, application_name="deniable", client_encoding="utf8", autocommit=True
        )
    except psycopg.Error:
        raise StorageError(
            "the database of a source cannot be reached",
            expected="A server that is running, and a role that may connect",
            remedy="Look at the address, at PGPASSFILE or PGPASSWORD, and at the server's log",
        ) from None
    with translate_errors():
        for name, value in (SETTINGS | (SINCE_14 if connection.info.server_version >= 140000 else {})).items():
            connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", (name, value))
        if connection.info.parameter_status("server_encoding") == "SQL_ASCII":
            raise DataError("the database has no encoding of texts", remedy="Make a database with encoding UTF8")
        connection.autocommit = False
        connection.read_only = read_only
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


@contextmanager
def translate_errors(about: str = "a table of the database", *, writes: bool = False) -> Iterator[None]:
    """Turn PostgreSQL's errors into refusals of ours. Their own text may quote a value, so it is dropped."""
    import psycopg

    try:
        yield
    except psycopg.Error as failure:
        state = failure.sqlstate or ("22" if isinstance(failure, psycopg.DataError) else "")
        told = WRITING.get(state) or WRITING.get(state[:2])
        if writes and told is not None:
            raise DataError(f"{about} cannot be written: {told[0]}", remedy=told[1]) from None
        raise _translate_error(failure, about) from None


WRITING = {
    "42501": ("the role may not make a table there", "Grant it CREATE on the schema, and USAGE"),
    "3F000": ("there is no such schema", "Make the schema first"),
    "22": ("a value does not fit the type of its column", "Look at numbers out of range, and at texts with zero signs"),
}
"""What the classes and states of errors mean while a table of its own is written; nothing of it is left."""


def _translate_error(failure: Any, about: str) -> Exception:
    from psycopg import InterfaceError, errors

    state = failure.sqlstate or ""
    if state == "57014":
        return base.refuse_late()
    if state == "55P03":
        return StorageError(f"{about} is locked by somebody else", remedy="Wait until it is free, and ask again")
    if state == "42501":
        return DataError(
            f"the role may not read {about}", remedy="Grant it SELECT on the table and USAGE on its schema"
        )
    if state in ("42P01", "42703", "3F000", "55000"):
        return DataError(f"{about} is gone, or has other columns than before", remedy="Look at it in the database")
    if state in ("53100", "53200", "54000"):
        return StorageError("the database has no room for this statement", remedy="Allow it more memory or disk")
    if state[:2] in ("42", "25", "0A"):
        return InternalError("SQL of our own making was not accepted by the database")
    lost = isinstance(failure, errors.OperationalError | InterfaceError) or state[:2] in ("08", "57", "53", "58", "40")
    if lost:
        return StorageError("the connection to the database was lost", remedy="Look at the server's log, and ask again")
    return base.refuse_values(about)


def open_cursor(connection: Any) -> Any:
    """A cursor that takes parameters as the server numbers them, so that no sign of a statement is read otherwise."""
    import psycopg

    return psycopg.RawCursor(connection)


COLLATIONS = ("C.utf8", "C.UTF-8", "pg_c_utf8", "en_US.utf8", "en_US.UTF-8", "und-x-icu")
"""Collations that know the letters of Unicode, the best first."""


def describe_server(connection: Any) -> tuple[int, str]:
    """The version of a server, and its collation that knows the letters of Unicode."""
    with translate_errors():
        found = connection.execute(
            "SELECT collname FROM pg_collation WHERE collname = ANY(%s) ORDER BY array_position(%s, collname::text)",
            (list(COLLATIONS), list(COLLATIONS)),
        ).fetchone()
    return connection.info.server_version, found[0] if found else "default"
