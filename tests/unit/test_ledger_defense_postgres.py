"""Whoever may write every table of a PostgreSQL ledger, as a superuser, gets no budget, answers or people back by it.

Edits at random, by SQL, with the triggers off: of single values, of rows, of whole tables, of the layout. Each is found
when the ledger is opened, before anything is served. What is left unfound would be an edit that changes nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deniable import Curator
from deniable.curator.governance import withdrawals
from deniable.errors import DeniableError
from deniable.ledger.entry import decode_entry, encode_entry, seal_entry

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier}, age: {type: integer, between: [0, 99], role: quasi-identifier}}
budgets: {dataset: {epsilon: 3000}}
"""
PEOPLE, MUCH = 30, 500
EDITS = 200  # in all, with the slow ones
ENTRIES, KEPT = "deniable_entries", "deniable_kept"


@dataclass(frozen=True)
class Tables:
    """A ledger in a database of its own: older copies of its tables, and entries made elsewhere, in other schemas."""

    folder: Path
    address: str

    def open(self) -> Curator:
        return Curator.open(self.folder / "policy.yaml", ledger=self.address)

    @property
    def name(self) -> str:
        return urlsplit(self.address).path.lstrip("/")

    def copy(self, name: str) -> Tables:
        """A copy in another database, which replaces what is there."""
        with self._enter("/postgres") as run:
            run(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            run(f"CREATE DATABASE {name} TEMPLATE {self.name}")
        return replace(self, address=urlsplit(self.address)._replace(path=f"/{name}").geturl())

    def run(self, *statements: str) -> list[Any]:
        """What the last statement gives; the triggers of the ledger are off, which leaves no trace."""
        with self._enter() as run:
            run("SET session_replication_role = replica")
            for sql in statements:
                done = run(sql)
            return list(done.fetchall()) if done.description else []

    @contextmanager
    def _enter(self, path: str = "") -> Iterator[Callable[..., Any]]:
        import psycopg

        address = urlsplit(self.address)._replace(path=path).geturl() if path else self.address
        with psycopg.connect(address, autocommit=True) as connection:
            yield connection.execute


def ask(curator: Curator, at_least: int) -> int:
    answer = curator.query(f"SELECT COUNT(*) AS n FROM visits WHERE age >= {at_least}", epsilon=MUCH, intervals=False)
    return int(answer.to_pylist()[0]["n"])


def make_tables(folder: Path, address: str) -> Tables:
    """Three answers of 500, a withdrawal between the second and the third. Also for bench/ledger.py --edits."""
    folder.mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "visits.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(PEOPLE)))
    empty = Tables(folder, urlsplit(address)._replace(path="/template1").geturl())
    made, elsewhere = empty.copy("edited"), empty.copy("elsewhere")
    for step in range(3):
        with made.open() as curator:
            if step == 2:
                withdrawals.withdraw(curator.context, "id", "29")
            assert ask(curator, step) == PEOPLE - step - (step == 2)
        made.run(f"CREATE SCHEMA before{step}", *(
            f"CREATE TABLE before{step}.{name} AS TABLE {name}" for name in (ENTRIES, KEPT)
        ))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DENIABLE_STATE", str(folder / "another user"))
        with elsewhere.open() as curator:
            ask(curator, 9)
    rows = elsewhere.run(f"SELECT * FROM {ENTRIES}")
    made.run("CREATE SCHEMA elsewhere", f"CREATE TABLE elsewhere.{ENTRIES} (LIKE {ENTRIES})", *(
        f"INSERT INTO elsewhere.{ENTRIES} VALUES ({', '.join(quote(each) for each in row)})" for row in rows
    ))  # fmt: skip
    return made


def quote(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def change_value(tables: Tables, draw: random.Random) -> None:
    name = draw.choice(("act", "analyst", "request", "text", "dataset", "sequence"))
    change = f"{name} + 100" if name == "sequence" else f"{name} || 'x'"
    tables.run(f"UPDATE {ENTRIES} SET {name} = {change} WHERE sequence = {draw.randint(1, 4)}")


def make_charge_small(tables: Tables, draw: random.Random) -> None:
    number = draw.choice((1, 2, 4))
    tables.run(f"UPDATE {ENTRIES} SET text = replace(text, '1/500', '1') WHERE sequence = {number}")


def forge_chain(tables: Tables, draw: random.Random) -> None:
    """A charge of less, and every hash after it made anew: only the seals, and what was seen outside, tell."""
    first, before = draw.choice((1, 2, 4)), ""
    for number, text in tables.run(f"SELECT sequence, text FROM {ENTRIES} ORDER BY sequence"):
        entry = decode_entry(text, number)
        if number == first:
            entry = seal_entry(replace(entry, event={"kind": "pure", "epsilon": "1/1000"}))
        elif before:
            entry = seal_entry(replace(entry, previous=before))
        before = entry.hash if number >= first else ""
        tables.run(f"UPDATE {ENTRIES} SET text = {quote(encode_entry(entry))} WHERE sequence = {number}")


def delete_entries(tables: Tables, draw: random.Random) -> None:
    which = draw.choice((f"> {draw.randint(1, 3)}", f"= {draw.randint(1, 4)}", f"< {draw.randint(2, 4)}"))
    tables.run(f"DELETE FROM {ENTRIES} WHERE sequence {which}")


def swap_entries(tables: Tables, draw: random.Random) -> None:
    one, other = draw.sample(range(1, 5), 2)
    moves = ((one, 99), (other, one), (99, other))
    tables.run(*(f"UPDATE {ENTRIES} SET sequence = {after} WHERE sequence = {before}" for before, after in moves))


def set_numbers_back(tables: Tables, draw: random.Random) -> None:
    """Some first entries are gone, and the others have their numbers: the count begins anew."""
    gone = draw.randint(1, 3)
    tables.run(
        f"DELETE FROM {ENTRIES} WHERE sequence <= {gone}",
        f"UPDATE {ENTRIES} SET sequence = sequence - {gone + 100}",
        f"UPDATE {ENTRIES} SET sequence = sequence + 100",
    )


def put_before_the_first(tables: Tables, draw: random.Random) -> None:
    number = draw.choice((0, -1, -(2**62)))
    tables.run(
        f"INSERT INTO {ENTRIES} SELECT dataset, {number}, act, analyst, 'r{draw.random()}', text FROM {ENTRIES}"
        " WHERE sequence = 1"
    )


def append_by_hand(tables: Tables, draw: random.Random) -> None:
    """An entry at the end with the right hash: an answer that was forgotten, or somebody who was taken in again."""
    ((text,),) = tables.run(f"SELECT text FROM {ENTRIES} ORDER BY sequence DESC LIMIT 1")
    last = decode_entry(text, 4)
    act = draw.choice(("expire", "reinstate", "settle"))
    entry = replace(last, sequence=5, previous=last.hash, act=act, request=f"r{draw.random()}", event={"kind": "no op"})
    written = encode_entry(seal_entry(entry))
    values = ", ".join(quote(each) for each in ("clinic", 5, act, entry.analyst, entry.request, written))
    tables.run(f"INSERT INTO {ENTRIES} VALUES ({values})")


def empty_entries(tables: Tables, draw: random.Random) -> None:
    tables.run(draw.choice((f"TRUNCATE {ENTRIES}", f"DELETE FROM {ENTRIES}")))


def roll_entries_back(tables: Tables, draw: random.Random) -> None:
    before = draw.choice(("before0", "before1", "elsewhere"))
    tables.run(f"TRUNCATE {ENTRIES}", f"INSERT INTO {ENTRIES} SELECT * FROM {before}.{ENTRIES}")


def roll_store_back(tables: Tables, draw: random.Random) -> None:
    tables.run(f"TRUNCATE {KEPT}", f"INSERT INTO {KEPT} SELECT * FROM before{draw.randint(0, 1)}.{KEPT}")


def change_stored(tables: Tables, draw: random.Random) -> None:
    change = draw.choice(("value || '\\x00'::bytea", "''::bytea", "substr(value, 2)", "'\\x7b7d0a'::bytea || value"))
    drawer = draw.choice(("answers", "withdrawn", "keys"))
    tables.run(f"UPDATE {KEPT} SET value = {change} WHERE drawer = '{drawer}'")


def swap_stored(tables: Tables, draw: random.Random) -> None:
    rows = tables.run(f"SELECT drawer, name, encode(value, 'hex') FROM {KEPT} WHERE drawer IN ('answers', 'withdrawn')")
    one, other = draw.sample(rows, 2)
    for (drawer, name, _), (_, _, value) in ((one, other), (other, one)):
        where = f"drawer = {quote(drawer)} AND name = {quote(name)}"
        tables.run(f"UPDATE {KEPT} SET value = decode('{value}', 'hex') WHERE {where}")


def rename_stored(tables: Tables, draw: random.Random) -> None:
    name = draw.choice(("name", "alias", "drawer"))
    tables.run(f"UPDATE {KEPT} SET {name} = {name} || 'x' WHERE drawer = '{draw.choice(('answers', 'withdrawn'))}'")


def delete_stored(tables: Tables, draw: random.Random) -> None:
    """Values of the store, and perhaps every count made anew: only the ledger knows that there were more."""
    drawer = draw.choice(("answers", "withdrawn", "keys"))
    tables.run(f"DELETE FROM {KEPT} WHERE drawer = '{drawer}'")
    if draw.random() < 0.5:
        tables.run(
            f"DELETE FROM {KEPT} WHERE drawer = 'count'",
            f"INSERT INTO {KEPT} SELECT dataset, 'count', coalesce(drawer, ''), coalesce(drawer, ''),"
            f" count(*)::text::bytea FROM {KEPT} WHERE drawer NOT IN ('seen', 'seal')"
            " GROUP BY GROUPING SETS ((dataset, drawer), (dataset))",
        )


def lose_own(tables: Tables, draw: random.Random) -> None:
    """What the store holds for itself: its key, its counts, or how far it saw the ledger."""
    tables.run(f"DELETE FROM {KEPT} WHERE drawer = '{draw.choice(('seal', 'count', 'seen'))}'")


def edit_own(tables: Tables, draw: random.Random) -> None:
    """A row that the store holds for itself has another name, or a second one stands beside it."""
    own = draw.choice(("seal", "seen", "count"))
    name = draw.choice(("name", "alias"))
    added = f"INSERT INTO {KEPT} SELECT dataset, drawer, name || 'x', alias || 'x', value FROM {KEPT}"
    edit = draw.choice((f"UPDATE {KEPT} SET {name} = {name} || 'x'", added))
    tables.run(f"{edit} WHERE drawer = '{own}'")


def edit_layout_number(tables: Tables, draw: random.Random) -> None:
    """The number of the layout is gone, or there are two."""
    added = "INSERT INTO deniable_layout SELECT version - 1 FROM deniable_layout"
    tables.run(draw.choice(("DELETE FROM deniable_layout", added)))


def change_mark(tables: Tables, draw: random.Random) -> None:
    change = draw.choice(
        ("'\\x00'::bytea", "'x'::bytea", "convert_to(replace(convert_from(value, 'UTF8'), '4 ', '3 '), 'UTF8')")
    )
    tables.run(f"UPDATE {KEPT} SET value = {change} WHERE drawer = 'seen'")


def empty_store(tables: Tables, draw: random.Random) -> None:
    tables.run(draw.choice((f"TRUNCATE {KEPT}", f"DELETE FROM {KEPT}")))


def change_layout(tables: Tables, draw: random.Random) -> None:
    """A trigger is dropped, off or does nothing; or something was added that could drop or invent rows."""
    tables.run(draw.choice((
        f"DROP TRIGGER deniable_final ON {ENTRIES}",
        f"DROP TRIGGER deniable_whole ON {ENTRIES}",
        f"ALTER TABLE {ENTRIES} DISABLE TRIGGER ALL",
        f"CREATE RULE quiet AS ON INSERT TO {ENTRIES} DO INSTEAD NOTHING",
        f"ALTER TABLE {ENTRIES} ADD COLUMN more text",
        f"ALTER TABLE {KEPT} ENABLE ROW LEVEL SECURITY",
        f"CREATE TABLE child () INHERITS ({ENTRIES})",
        f"ALTER TABLE {ENTRIES} DROP CONSTRAINT deniable_entries_dataset_analyst_request_key",
        "CREATE OR REPLACE FUNCTION deniable_entries_are_final() RETURNS trigger LANGUAGE plpgsql"
        " AS $$BEGIN RETURN NEW; END$$",
    )))  # fmt: skip


def lose_tables(tables: Tables, draw: random.Random) -> None:
    tables.run(f"DROP TABLE {draw.choice((ENTRIES, KEPT))}")


def set_layout_back(tables: Tables, draw: random.Random) -> None:
    """An earlier layout knew no counts: with that number, values are gone and are to be counted anew."""
    drawer = draw.choice(("answers", "keys"))
    tables.run(
        f"UPDATE deniable_layout SET version = {draw.choice((0, 1, 2, 3, 9))}",
        f"DELETE FROM {KEPT} WHERE drawer IN ('{drawer}', 'count')",
    )


Edit = Callable[[Tables, random.Random], None]
KINDS: dict[str, Edit] = {
    "a value of an entry changed": change_value,
    "a charge made small": make_charge_small,
    "a chain forged to its end": forge_chain,
    "entries deleted": delete_entries,
    "entries swapped": swap_entries,
    "numbers set back": set_numbers_back,
    "an entry before the first": put_before_the_first,
    "an entry appended by hand": append_by_hand,
    "the entries emptied": empty_entries,
    "older entries, or some made elsewhere": roll_entries_back,
    "an older store": roll_store_back,
    "something stored changed": change_stored,
    "two stored things swapped": swap_stored,
    "something stored renamed": rename_stored,
    "something stored deleted": delete_stored,
    "the store's own rows deleted": lose_own,
    "the store's own rows renamed or added": edit_own,
    "the number of the layout gone, or two": edit_layout_number,
    "the mark of the ledger changed": change_mark,
    "the store emptied": empty_store,
    "a trigger dropped, or the layout changed": change_layout,
    "a table dropped": lose_tables,
    "the layout set back": set_layout_back,
}
EACH = -(-EDITS // len(KINDS))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres_address: str) -> Tables:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("tables")
        patch.setenv("DENIABLE_STATE", str(folder / "state"))
        return make_tables(folder / "clinic", postgres_address)


def test_an_untouched_copy_is_served(whole: Tables) -> None:
    with whole.copy("untouched").open() as curator:
        before = curator.remaining()
        assert [ask(curator, at_least) for at_least in range(3)] == [30, 29, 27]
        assert curator.remaining() == before


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize(
    "numbers", [range(1), pytest.param(range(1, EACH), marks=pytest.mark.slow)], ids=["one", "more"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_by_a_superuser_is_found_at_the_start_and_nothing_is_served(
    kind: str, numbers: range, whole: Tables
) -> None:
    for number in numbers:
        edited = whole.copy("copied")
        KINDS[kind](edited, random.Random(f"{kind} {number}"))
        with pytest.raises(DeniableError), edited.open():
            pass
