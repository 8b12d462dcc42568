"""Record what tools say to a PostgreSQL server, and say it again without the tool.

A recording is a text file: the parameters of the start-up message, then each batch of messages that a client sent
before it waited (`> Q 'SELECT 1'`), and what the server answered (`< T D C Z`; an error with its code, `E:42601`).
Rows are counted and not kept: they are noisy. The token never passes through a recording.

    python tests/wire_recorder.py        record every tool that is installed anew, into tests/golden/wire
"""

from __future__ import annotations

import ast
import contextlib
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden" / "wire"
NO_TLS = {80877103, 80877104}
BY_SEX = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex ORDER BY sex"
REFUSED = "SELECT id FROM people"


@dataclass
class Recording:
    """One session: how it began, and its turns."""

    options: dict[str, str] = field(default_factory=dict)
    turns: list[tuple[list[tuple[str, bytes]], str]] = field(default_factory=list)

    def to_text(self) -> str:
        """As it is kept."""
        lines = [f"= {name} {value}" for name, value in sorted(self.options.items())]
        for sent, answered in self.turns:
            lines += [f"> {letter} {content!r}" for letter, content in sent] + [f"< {answered}"]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> Recording:
        """As it was kept."""
        found, sent = cls(), []
        for line in text.splitlines():
            mark, _, rest = line.partition(" ")
            if mark == "=":
                name, _, value = rest.partition(" ")
                found.options[name] = value
            elif mark == ">":
                letter, _, content = rest.partition(" ")
                sent.append((letter, ast.literal_eval(content)))
            elif mark == "<":
                found.turns.append((sent, rest))
                sent = []
        return found


def read_exactly(line: socket.socket, size: int) -> bytes:
    """So many bytes, or an end of the connection."""
    found = b""
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise ConnectionError
        found += part
    return found


def read_message(line: socket.socket) -> tuple[str, bytes]:
    """The next message: its letter and its content."""
    head = read_exactly(line, 5)
    return chr(head[0]), read_exactly(line, struct.unpack("!i", head[1:])[0] - 4)


def describe_answers(messages: list[tuple[str, bytes]]) -> str:
    """What a server answered: letters, errors with their codes, rows only if there were any.

    Notices and settings are left out: they may come at any time.
    """
    words = []
    for letter, content in messages:
        if letter == "E":
            fields = {part[:1]: part[1:].decode() for part in content.split(b"\0") if part}
            words.append(f"E:{fields[b'C']}")
        elif letter not in "NSK":
            words.append(letter)
    return " ".join(word for word, _ in groupby(words))


def replay(port: int, token: str, recording: Recording) -> list[tuple[str, str]]:
    """What is answered now to each turn, beside what was answered when it was recorded."""
    with socket.create_connection(("127.0.0.1", port), 60) as line:
        options = {"user": "a name without a token", "database": "clinic"} | recording.options
        pairs = b"".join(f"{name}\0{value}\0".encode() for name, value in options.items())
        start = struct.pack("!i", 196608) + pairs + b"\0"
        line.sendall(struct.pack("!i", len(start) + 4) + start)
        assert read_message(line) == ("R", struct.pack("!i", 3)), "the token is asked for in clear text"
        line.sendall(b"p" + struct.pack("!i", len(token) + 5) + token.encode() + b"\0")
        collect_until_ready(line)
        return [(describe_answers(_say(line, sent)), answered) for sent, answered in recording.turns]


def _say(line: socket.socket, sent: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    for letter, content in sent:
        line.sendall(letter.encode() + struct.pack("!i", len(content) + 4) + content)
    waits = sum(letter in "QS" for letter, _ in sent)
    return [message for _ in range(waits) for message in collect_until_ready(line)]


def collect_until_ready(line: socket.socket) -> list[tuple[str, bytes]]:
    """The messages up to the one that says that the server waits."""
    found = [read_message(line)]
    while found[-1][0] != "Z":
        found.append(read_message(line))
    return found


class Recorder:
    """A proxy before a server that keeps what passes through; each connection is a recording."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.recordings: list[Recording] = []
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self._threads[-1].start()

    def close(self) -> None:
        """Take no more connections, and wait until those that were open have ended."""
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(ConnectionError, OSError):
            content = self._begin(client)
            with socket.create_connection(("127.0.0.1", self._target)) as server:
                server.sendall(struct.pack("!i", len(content) + 4) + content)
                self._pass_on(client, server, _read_options(content))

    def _begin(self, client: socket.socket) -> bytes:
        while True:
            content = read_exactly(client, struct.unpack("!i", read_exactly(client, 4))[0] - 4)
            if struct.unpack("!i", content[:4])[0] not in NO_TLS:
                return content
            client.sendall(b"N")

    def _pass_on(self, client: socket.socket, server: socket.socket, options: dict[str, str]) -> None:
        recording = Recording(options)
        sent: list[tuple[str, bytes]] = []
        answered: list[tuple[str, bytes]] = []
        lock = threading.Lock()

        def answer() -> None:
            with contextlib.suppress(ConnectionError, OSError):
                while True:
                    letter, content = read_message(server)
                    with lock:
                        answered.append((letter, content))
                        waits = sum(each in "QS" for each, _ in sent)
                        if letter == "Z" and sum(each == "Z" for each, _ in answered) >= waits:
                            if waits:
                                recording.turns.append((sent[:], describe_answers(answered)))
                            sent.clear()
                            answered.clear()
                    client.sendall(letter.encode() + struct.pack("!i", len(content) + 4) + content)
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=answer, daemon=True).start()
        try:
            while True:
                letter, content = read_message(client)
                with lock:
                    if letter not in "pX":
                        sent.append((letter, content))
                server.sendall(letter.encode() + struct.pack("!i", len(content) + 4) + content)
        finally:
            if recording.turns:
                self.recordings.append(recording)


def _read_options(content: bytes) -> dict[str, str]:
    words = [each.decode() for each in content[4:].split(b"\0")]
    pairs = dict(zip(words[::2], words[1::2], strict=False))
    return {name: value for name, value in pairs.items() if name and name not in ("user", "database")}


def talk_psql(port: int, token: str) -> None:
    """psql: its listings, a question, a refusal, a cursor and a copy."""
    script = (
        "\\dt\n\\d people\n\\l\n\\dn\n\\df\n\\du\nSET deniable.epsilon = 1;\n"
        f"{BY_SEX};\n{BY_SEX} \\gdesc\n{REFUSED};\n\\copy ({BY_SEX}) to stdout csv\n\\set FETCH_COUNT 1\n{BY_SEX};\n"
    )
    place = f"host=127.0.0.1 port={port} dbname=clinic user=ana password={token}"
    subprocess.run(["psql", place, "-AtqX"], input=script, text=True, capture_output=True, check=False, timeout=120)


def talk_psycopg(port: int, token: str) -> None:
    """psycopg 3: parameters in both formats, a server-side cursor, a refusal inside a transaction, copies."""
    import psycopg

    place = f"host=127.0.0.1 port={port} dbname=clinic user=ana password={token}"
    with psycopg.connect(place) as connection:
        connection.execute("SET deniable.epsilon = 1")
        connection.commit()
        for binary in (False, True):
            asked = "SELECT COUNT(*) AS n FROM people WHERE age > %s AND sex = ANY(%s)"
            connection.execute(asked, (50, ["F"]), binary=binary, prepare=binary).fetchall()
        with connection.cursor("pieces") as cursor:
            cursor.itersize = 1
            list(cursor.execute(BY_SEX))
        with contextlib.suppress(psycopg.Error):
            connection.execute(REFUSED)
        connection.rollback()
        for form in ("text", "csv", "binary"):
            with connection.cursor() as cursor, cursor.copy(f"COPY ({BY_SEX}) TO STDOUT (FORMAT {form})") as copy:
                list(copy)


def talk_sqlalchemy(port: int, token: str) -> None:
    """SQLAlchemy: reflection, and an expression of its own making."""
    import sqlalchemy as sa

    engine = sa.create_engine(f"postgresql+psycopg://ana:{token}@127.0.0.1:{port}/clinic")
    people = sa.Table("people", sa.MetaData(), autoload_with=engine)
    inspector = sa.inspect(engine)
    for look in (inspector.get_pk_constraint, inspector.get_foreign_keys, inspector.get_indexes):
        look("people")
    inspector.get_table_names()
    with engine.connect() as connection:
        connection.execute(sa.text("SET deniable.epsilon = 1"))
        asked = sa.select(people.c.sex, sa.func.count()).where(people.c.age > 50).group_by(people.c.sex)
        connection.execute(asked).fetchall()
    engine.dispose()


def talk_asyncpg(port: int, token: str) -> None:
    """asyncpg: a pool, parameters, a cursor, an error."""
    import asyncio

    import asyncpg

    async def talk() -> None:
        place = {"host": "127.0.0.1", "port": port, "user": "ana", "password": token, "database": "clinic"}
        async with asyncpg.create_pool(min_size=1, max_size=1, ssl=False, **place) as pool:
            async with pool.acquire() as connection:
                await connection.execute("SET deniable.epsilon = 1")
                await connection.fetch("SELECT COUNT(*) AS n FROM people WHERE age > $1 AND sex = ANY($2)", 50, ["F"])
                async with connection.transaction():
                    async for _ in connection.cursor(BY_SEX):
                        pass
                with contextlib.suppress(asyncpg.PostgresError):
                    await connection.fetch(REFUSED)
            async with pool.acquire() as connection:
                await connection.execute("SET deniable.epsilon = 1")
                await connection.fetch(BY_SEX)

    asyncio.run(talk())


def talk_jdbc(port: int, token: str) -> None:
    """The calls of JDBC that the tests make, by the driver itself."""
    drivers = sorted(Path("/usr/share/java").glob("postgresql*.jar"))
    program = Path(__file__).parent / "workflows" / "JdbcCalls.java"
    words = ["java", "-cp", str(drivers[-1]), str(program), str(port), "ana", token]
    subprocess.run(words, capture_output=True, check=True, timeout=300)


def talk_odbc(port: int, token: str) -> None:
    """ODBC: parameters, listings, and cursors that the driver declares by itself."""
    import pyodbc

    place = f"Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={port};Database=clinic;Uid=ana;Pwd={token};"
    for options in ("", "UseDeclareFetch=1;UseServerSidePrepare=1"):
        with contextlib.closing(pyodbc.connect(place + options)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET deniable.epsilon = 1")
            connection.commit()
            cursor.execute("SELECT COUNT(*) AS n FROM people WHERE age > ?", 50).fetchall()
            cursor.execute("SELECT COUNT(*) AS n FROM people WHERE sex = ?", "F").fetchall()
            cursor.execute(BY_SEX).fetchall()
            for look in (cursor.tables, cursor.columns):
                look(table="people").fetchall()
            for call in (cursor.primaryKeys, cursor.foreignKeys, cursor.statistics, cursor.rowIdColumns):
                call("people").fetchall()
            with contextlib.suppress(pyodbc.Error):
                cursor.execute(REFUSED).fetchall()
            connection.rollback()
            cursor.execute(BY_SEX).fetchall()
            connection.commit()


TOOLS: dict[str, Callable[[int, str], None]] = {
    "psql": talk_psql,
    "psycopg": talk_psycopg,
    "sqlalchemy": talk_sqlalchemy,
    "asyncpg": talk_asyncpg,
    "jdbc": talk_jdbc,
    "odbc": talk_odbc,
}


@contextlib.contextmanager
def serve() -> Iterator[Any]:
    """The server of the workflow tests."""
    sys.path.insert(0, str(Path(__file__).parent / "workflows"))
    from conftest import serving  # type: ignore[attr-defined]

    with tempfile.TemporaryDirectory() as folder:
        os.environ["DENIABLE_STATE"] = f"{folder}/state"
        with serving(Path(folder)) as served:
            yield served


def main() -> None:
    """Record what is installed."""
    with serve() as served:
        for name, talk in TOOLS.items():
            recorder = Recorder(served.postgres)
            try:
                talk(recorder.port, served.tokens["ana"])
            except (ImportError, OSError, IndexError, subprocess.SubprocessError) as failure:
                print(f"{name}: left as it is ({type(failure).__name__})")
                continue
            finally:
                recorder.close()
            for file in FOLDER.glob(f"{name}_*.txt"):
                file.unlink()
            for number, recording in enumerate(recorder.recordings, start=1):
                (FOLDER / f"{name}_{number}.txt").write_text(recording.to_text(), encoding="utf-8")
            print(
                f"{name}: {len(recorder.recordings)} sessions, {sum(len(r.turns) for r in recorder.recordings)} turns"
            )


if __name__ == "__main__":
    if shutil.which("psql") is None:
        print("psql is not installed")
    main()
