"""Answers that were deleted behind a ledger's back are missed: by the process that stored them, and at every start.

Whoever forges the counts of the store with its values meets the counts that charges sealed, and what a process saw.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deniable import Curator
from deniable.curator.governance import withdrawals
from deniable.errors import IntegrityError
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.answer_store import AnswerStore, MemoryShelf
from ledgers import charge, plain

POLICY = """
version: 1
dataset: {dataset}
tables:
  visits:
    source: visits.csv
    unit: {{column: id, max_groups: 1, max_rows_per_group: 1}}
    columns: {{id: {{type: integer, role: identifier}}, age: {{type: integer, between: [0, 99]}}}}
budgets: {{dataset: {{epsilon: 3}}}}
"""
DELETE = (
    "DELETE FROM {table} WHERE {mine} drawer = '{drawer}' AND name IN"
    " (SELECT name FROM {table} WHERE {mine} drawer = '{drawer}' ORDER BY name LIMIT {many})"
)
FORGE = (
    "UPDATE {table} SET value = CAST(CAST((SELECT count(*) FROM {table} WHERE {mine} drawer {which}) AS TEXT)"
    " AS {bytes}) WHERE {mine} drawer = 'count' AND name = '{name}'"
)
OTHERS = "NOT IN ('seen', 'seal', 'count')"


class Kept:
    """A policy with a ledger of a kind, and its answer store, which can be changed behind its back."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self.policy, self.address, self.dataset = folder / "policy.yaml", address, f"kept-{folder.name}"
        self.policy.write_text(POLICY.format(dataset=self.dataset))
        (folder / "visits.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(30)))

    def open(self) -> Curator:
        return Curator.open(self.policy, ledger=self.address or self.policy.with_suffix(".ledger.sqlite"))

    def delete(self, drawer: str, many: int) -> None:
        """Delete values of a collection, and forge its count and the total."""
        mine = f"dataset = '{self.dataset}' AND" if self.address else ""
        named = {"table": "deniable_kept" if self.address else "kept", "mine": mine, "drawer": drawer, "many": many}
        kind = "bytea" if self.address else "BLOB"
        counts = [(drawer, f"= '{drawer}'"), ("", OTHERS)]
        statements = [DELETE.format(**named)]
        statements += [FORGE.format(**named, name=name, which=which, bytes=kind) for name, which in counts]
        if self.address:
            import psycopg

            with psycopg.connect(self.address) as database:
                for sql in statements:
                    database.execute(sql)
            return
        with closing(sqlite3.connect(self.policy.with_suffix(".ledger.kept.sqlite"))) as file, file:
            for sql in statements:
                file.execute(sql)


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    return Kept(tmp_path, request.getfixturevalue("postgres_address") if request.param == "postgres" else None)


def ask(curator: Curator, number: int) -> int:
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE age >= {number}"
    return int(curator.query(sql, epsilon="1/10", request=f"r{number}", intervals=False).to_pylist()[0]["n"])


@pytest.mark.parametrize(("asked", "deleted"), [(3, 3), (3, 1), (1, 1)])
def test_answers_deleted_under_a_running_process_are_not_measured_anew(kept: Kept, asked: int, deleted: int) -> None:
    """Noise was drawn twice for one charge, and the next charge sealed that there were fewer."""
    with kept.open() as curator:
        for number in range(asked):
            ask(curator, number)
        kept.delete("answers", deleted)
        before = curator.ledger.store.last()
        found = []
        for number in range(asked + 1):
            try:
                found.append(ask(curator, number))
            except IntegrityError as refused:
                assert "were stored" in refused.message  # noqa: PT017
        assert len(found) <= asked - deleted, "stored answers alone"
        assert curator.ledger.store.last() == before
    if deleted > 1:  # the last charge sealed all answers but its own
        with pytest.raises(IntegrityError, match="were stored"):
            kept.open()


def test_an_answer_deleted_after_the_last_charge_is_missed_at_the_next_start(kept: Kept) -> None:
    with kept.open() as curator:
        ask(curator, 0)
    kept.delete("answers", 1)
    with pytest.raises(IntegrityError, match="has 0 values of 'answers', and 1 were stored"):
        kept.open()


def test_who_withdrew_is_not_forgotten_by_a_running_process(kept: Kept) -> None:
    with kept.open() as curator:
        withdrawals.withdraw(curator.context, "id", "7")
        kept.delete("withdrawn", 1)
        with pytest.raises(IntegrityError, match="'withdrawn'"):
            ask(curator, 0)


def test_sealed_counts_that_fall_are_refused_at_the_start_unless_an_entry_forgot_them() -> None:
    ledger, counts = Ledger("clinic", plain(1)), {"answers": 2, "withdrawn": 1}
    ledger.count_stored = lambda *_: dict(counts)
    charge(ledger, "1/10", analyst="", purpose="")
    counts["answers"] = 1
    ledger.record(Posting(Act.EXPIRE, details={"answers": 2}))
    charge(ledger, "1/10", analyst="", purpose="")
    assert Ledger("clinic", plain(1), ledger.store).head() == ledger.head()
    ledger.record(Posting(Act.EXPIRE, details={"answers": 1}))
    counts["withdrawn"] = 0
    with pytest.raises(IntegrityError, match="entry 5 of the ledger says that fewer"):
        charge(ledger, "1/10", analyst="", purpose="")


def test_a_store_that_forgot_answers_by_an_entry_counts_anew() -> None:
    store = AnswerStore(MemoryShelf())
    for name in "abc":
        store.keep("answers", name, name, b"1")
    assert store.recount({"answers": 3}) == {"answers": 3}
    with pytest.raises(IntegrityError, match="has 3 values of 'answers', and 4 were stored"):
        store.recount({"answers": 4})
    store.empty("answers")
    assert store.recount({}, 7)["answers"] == 0
