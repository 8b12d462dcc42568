"""Epochs: within one a question has one answer whatever happens to the files; a new one is a public event.

The game is played as an asker would play it: ask, let a record change or not, ask again, and look at everything that
can be seen. What is seen the second time must follow from what was seen the first time and from the epoch alone.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from deniable import Curator
from deniable.curator import context as context_module
from deniable.curator.anonymize.request import Order as AnonymizeOrder
from deniable.curator.anonymize.run import anonymize_table
from deniable.curator.governance import epochs, reports, withdrawals
from deniable.curator.mask.run import Request as MaskRequest
from deniable.curator.mask.run import mask_tables
from deniable.curator.query import metadata
from deniable.curator.survey import randomize
from deniable.curator.synthesize.run import Order, synthesize
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.sources import hash_file, hash_source
from deniable.errors import AccessRefused, DataError, InternalError, ParameterError, PolicyError, QueryRefused
from deniable.governance.grants import Asker, Role
from deniable.ledger.export import export
from deniable.policy.budget import budget
from deniable.policy.document import parse
from deniable.query.techniques.sample_aggregate import split_units
from deniable.release.release import write_release

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {categories: [F, M], role: quasi-identifier}
      ward: {categories: [a, b, c, d], role: quasi-identifier}
      charge: {type: integer, between: [0, 1000], role: insensitive}
  wards: {source: wards.csv, public: true, columns: {code: {}, region: {}}}
budgets:
  dataset: {epsilon: 100000, delta: 1e-3}
  purposes: {research: {epsilon: 90000, delta: 1e-3}}
  analysts: {ana: {purposes: [research]}}
release:
  anonymize: {k: 2}
"""
ANA = Asker("ana", "research", Role.ANALYST)
COUNT = "SELECT COUNT(*) AS n FROM visits"
MUCH = 500  # noise is 0 but for a probability below 1e-200
PEOPLE = 40


def write_rows(folder: Path, *, flipped: bool = False, people: int = PEOPLE) -> None:
    """The table; flipped, one person is of the other sex and everything else is the same."""
    sexes = ["FM"[(i + (flipped and i == 7)) % 2] for i in range(people)]
    lines = [f"{i},{sex},{'abc'[i % 3]},{i}" for i, sex in enumerate(sexes)]
    (folder / "visits.csv").write_text("\n".join(["id,sex,ward,charge", *lines]) + "\n")


def write_wards(folder: Path, *lines: str) -> None:
    (folder / "wards.csv").write_text("\n".join(["code,region", *lines]) + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "policy.yaml").write_text(POLICY)
    write_rows(tmp_path)
    write_wards(tmp_path, "a,north", "b,north", "c,south")
    return tmp_path


def open_curator(folder: Path) -> Curator:
    return Curator.open(folder / "policy.yaml", ledger=folder / "ledger.sqlite")


@pytest.fixture
def curator(folder: Path) -> Iterator[Curator]:
    with open_curator(folder) as opened:
        yield opened


def count(curator: Curator, sql: str = COUNT) -> int:
    return int(curator.query(sql, epsilon=MUCH, intervals=False).to_pylist()[0]["n"])


def look(curator: Curator, answer: Any, file: Path) -> dict[str, Any]:
    """Everything that an asker can see of an answer and of the dataset, as plain values."""
    statement = json.loads(write_release(answer.release, file, curator.context.scope.engine).path.read_text())
    return {
        "rows": answer.to_pylist(),
        "release": dict(answer.release.details),
        "statement": statement,
        "balance": str(curator.balance(ANA)),
        "schema": [table.to_dict() for table in metadata.schema(curator.context.speak_for(ANA))],
        "epoch": curator.epoch,
        "head": curator.ledger.head(),
    }


QUESTIONS: dict[str, Callable[[Curator, int], Any]] = {
    "query": lambda c, i: c.query(f"{COUNT} WHERE charge >= {i}", epsilon="0.001", who=ANA),
    "groups": lambda c, i: c.query(
        f"SELECT sex, COUNT(*) AS n FROM visits WHERE charge >= {i} GROUP BY sex", epsilon="0.001", who=ANA
    ),
    "top": lambda c, i: c.top("visits", "ward", 1, epsilon="0.001", where=f"charge >= {i}", who=ANA),
    "hierarchy": lambda c, i: c.hierarchy("visits", ["sex"], epsilon=f"0.001{i:03}", who=ANA),
    "margins": lambda c, i: c.margins("visits", [["sex"], ["ward"]], epsilon=f"0.001{i:03}", who=ANA),
    "find_bounds": lambda c, i: c.find_bounds("visits", "charge", f"0.001{i:03}", who=ANA),
}


@pytest.mark.parametrize("tries", [60, pytest.param(200, marks=pytest.mark.slow)])
def test_in_many_tries_nobody_is_told_that_a_record_changed(folder: Path, tries: int) -> None:
    """The epsilon of each try is 0.001: with it one bit of difference in 60 tries would be a proof."""
    secret, kinds = random.Random(1), list(QUESTIONS.values())
    told: dict[bool, set[tuple[bool, bool, str]]] = {False: set(), True: set()}
    with open_curator(folder) as first, open_curator(folder) as second:
        for i in range(tries):
            ask, flipped = kinds[i % (6 if i < 24 else 2)], bool(secret.getrandbits(1))
            before = look(first, ask(first, i), folder / "seen.parquet")
            write_rows(folder, flipped=flipped)
            asked = first if i % 4 < 2 else second
            answer = ask(asked, i)
            after = look(asked, answer, folder / "seen.parquet")
            told[flipped].add((answer.repeated, answer.receipt is None, _tell_apart(before, after)))
            write_rows(folder)
    assert told == {False: {(True, True, "")}, True: {(True, True, "")}}


def _tell_apart(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What changed from one look to the next, but for the receipt that only the first has."""
    for seen in (before, after):
        seen["release"].pop("receipt", None)
        seen["statement"]["statement"]["details"].pop("receipt", None)
        seen["statement"].pop("sha256")
    return ", ".join(name for name in before if str(before[name]) != str(after[name]))


def test_the_file_may_vanish_and_a_stored_answer_is_still_repeated(folder: Path, curator: Curator) -> None:
    first = curator.query(COUNT, epsilon=1, who=ANA)
    ordered = curator.query(f"{COUNT} ORDER BY n LIMIT 3", epsilon=1, who=ANA)
    (folder / "visits.csv").unlink()
    with open_curator(folder) as other:
        assert other.query(COUNT, epsilon=1, who=ANA).to_pylist() == first.to_pylist()
        assert other.query(f"{COUNT} ORDER BY n LIMIT 3", epsilon=1, who=ANA).to_pylist() == ordered.to_pylist()


def test_a_new_epoch_is_seen_by_every_process_and_in_every_answer(folder: Path, curator: Curator) -> None:
    with open_curator(folder) as other:
        assert (curator.epoch, other.epoch, count(curator), count(other)) == ("1", "1", PEOPLE, PEOPLE)
        write_rows(folder, people=PEOPLE + 2)
        assert count(other) == PEOPLE
        told = curator.new_epoch("two more people")
        assert (told.epoch, other.epoch) == ("2", "2")
        answer = other.query(COUNT, epsilon=MUCH)
        assert (answer.repeated, answer.to_pylist()[0]["n"]) == (False, PEOPLE + 2)
        assert answer.release.details["epoch"] == answer.release.provenance.epoch == "2"
        assert answer.release.provenance.data_versions == {"visits": "epoch 2"}
    acts = [(entry.act, entry.details.get("epoch"), entry.details.get("reason")) for entry in curator.ledger.entries()]
    assert acts == [("charge", "1", None), ("epoch", None, "two more people"), ("charge", "2", None)]


def test_an_epoch_needs_a_reason_and_the_steward(curator: Curator) -> None:
    with pytest.raises(ParameterError, match="reason"):
        curator.new_epoch("  ")
    for call in (lambda: curator.new_epoch("x", who=ANA), lambda: epochs.show_epoch(curator.context.speak_for(ANA))):
        with pytest.raises(AccessRefused, match="steward"):
            call()
    assert curator.epoch == "1"


class Clock(datetime):
    """A clock that is set by hand."""

    today_is = date(2026, 1, 1)

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return datetime(cls.today_is.year, cls.today_is.month, cls.today_is.day, 12, tzinfo=tz or UTC)


@pytest.mark.parametrize(
    ("every", "same", "later", "names"),
    [
        ("day", date(2026, 3, 1), date(2026, 3, 2), ("2026-03-01", "2026-03-02")),
        ("week", date(2026, 3, 7), date(2026, 3, 9), ("2026-W09", "2026-W11")),
        ("month", date(2026, 3, 31), date(2026, 4, 1), ("2026-03", "2026-04")),
        ("quarter", date(2026, 3, 31), date(2026, 4, 1), ("2026-Q1", "2026-Q2")),
    ],
)
def test_a_schedule_names_the_epoch_by_the_calendar(
    folder: Path, monkeypatch: pytest.MonkeyPatch, every: str, same: date, later: date, names: tuple[str, str]
) -> None:
    (folder / "policy.yaml").write_text(POLICY + f"epochs: {{every: {every}}}\n")
    monkeypatch.setattr(context_module, "datetime", Clock)
    Clock.today_is = date(2026, 3, 1)
    with open_curator(folder) as curator:
        assert curator.epoch == names[0]
        count(curator)
        write_rows(folder, people=PEOPLE + 1)
        Clock.today_is = same
        assert curator.epoch == names[0] or every in ("day", "week")
        Clock.today_is = later
        assert (curator.epoch, count(curator)) == (names[1], PEOPLE + 1)
        curator.new_epoch("a correction")
        assert curator.epoch == f"{names[1]}+1"


def test_a_manifest_names_the_epoch_by_its_text(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY + "epochs: {manifest: load.txt}\n")
    (folder / "load.txt").write_text("load-17\n")
    with open_curator(folder) as curator:
        assert (curator.epoch, count(curator)) == ("load-17", PEOPLE)
        write_rows(folder, people=PEOPLE + 1)
        assert count(curator) == PEOPLE
        (folder / "load.txt").write_text("load-18\n")
        assert (curator.epoch, count(curator)) == ("load-18", PEOPLE + 1)
        (folder / "load.txt").write_text("a long text\nof two lines")
        assert curator.epoch == hashlib.sha256(b"a long text\nof two lines").hexdigest()[:32]
        (folder / "load.txt").unlink()
        with pytest.raises(DataError, match="manifest"):
            count(curator)


@pytest.mark.parametrize("wrong", ["{every: hour}", "{every: day, manifest: x}", "{copies: []}", "7"])
def test_a_policy_that_says_nonsense_about_epochs_is_refused(wrong: str) -> None:
    with pytest.raises(PolicyError):
        parse(POLICY + f"epochs: {wrong}\n")


def test_a_policy_without_epochs_has_the_hash_that_it_had() -> None:
    assert parse(POLICY).epochs is None
    assert parse(POLICY).hash != parse(POLICY + "epochs: {every: day}\n").hash


def test_the_steward_is_told_of_a_source_that_changed_and_nobody_else(folder: Path, curator: Curator) -> None:
    def states() -> dict[str, str]:
        return {each.table: each.source for each in epochs.show_epoch(curator.context).tables}

    assert states() == {"visits": epochs.UNREAD}
    count(curator)
    assert states() == {"visits": epochs.UNCHANGED}
    withdrawals.withdraw(curator.context, "id", "12")
    assert states() == {"visits": epochs.UNCHANGED}, "who withdrew is no change of the source"
    write_rows(folder, flipped=True)
    told = epochs.show_epoch(curator.context)
    assert states() == {"visits": epochs.CHANGED}
    assert any("'visits' has changed since epoch 1 began" in warning for warning in told.warnings)
    write_rows(folder)
    assert states() == {"visits": epochs.UNCHANGED}
    write_rows(folder, flipped=True)
    assert not curator.new_epoch("a correction").warnings
    (folder / "visits.csv").unlink()
    assert states() == {"visits": epochs.UNREADABLE}


def test_the_digest_that_is_kept_of_a_source_is_another_in_every_ledger(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = set()
    for name in ("one", "two"):
        monkeypatch.setenv("DENIABLE_STATE", str(folder / f"state of {name}"))
        with Curator.open(folder / "policy.yaml", ledger=folder / f"{name}.sqlite") as curator:
            digests |= {curator.context.scope.digest_source("visits"), curator.context.scope.digest_source("visits")}
    assert len(digests) == 2
    assert hash_source("visits.csv", folder) not in digests


def test_who_withdrew_is_left_out_of_what_is_measured_from_then_on(curator: Curator) -> None:
    assert count(curator) == PEOPLE
    withdrawals.withdraw(curator.context, "id", "12")
    assert count(curator) == PEOPLE, "what was answered in this epoch is public and stays"
    assert count(curator, f"{COUNT} WHERE charge >= 0") == PEOPLE - 1


def _release_all(curator: Curator, folder: Path) -> list[Path]:
    """A file of every technique that states something of private rows."""
    made = [folder / name for name in ("q.parquet", "s.parquet", "t.json", "m.parquet", "k.parquet", "r.parquet")]
    query, synthetic, model, masked, anonymous, local = made
    write_release(curator.query(COUNT, epsilon=1).release, query, DuckDBEngine())
    synthesize(curator.context, Order("visits", budget(1, "1e-6"), "independent"), synthetic)
    curator.train("visits", "charge", features=["sex"], epsilon=1, out=model)
    mask_tables(curator.context, MaskRequest(folder / "policy.yaml", {"visits": masked}, fresh=True))
    anonymize_table(curator.context, AnonymizeOrder(None, anonymous, curator.policy, "visits"))
    randomize(None, folder / "policy.yaml", local, 1, columns=["sex"], ledger=str(folder / "ledger.sqlite"))
    return made


def test_no_statement_ledger_or_register_holds_a_digest_of_private_rows(folder: Path) -> None:
    (folder / "policy.yaml").write_text(POLICY.replace("{epsilon: 100000,", "{epsilon: 100000, accounting: zcdp,"))
    with open_curator(folder) as curator:
        made = _release_all(curator, folder)
        held = [path.with_name(path.name + ".release.json").read_text() for path in made]
        assert all('"epoch": "1"' in text for text in held)
        held += [*export(curator.ledger.entries(), "jsonl"), json.dumps(reports.register(curator.ledger).to_dict())]
    raw = (folder / "visits.csv").read_bytes()
    digests = {
        hash_file(folder / "visits.csv"),
        str(hash_source("visits.csv", folder)),
        hashlib.sha256(raw).hexdigest(),
    }
    for attached in ("visits", "table"):
        with DuckDBEngine(root=folder) as engine:
            engine.attach(attached, "visits.csv", curator.policy.table("visits"))
            digests.add(engine.data_version(attached))
    assert [digest for digest in digests for text in held if digest in text] == []


REGIONS = ("SELECT region, COUNT(*) AS n FROM visits JOIN wards ON visits.ward = wards.code "
           "GROUP BY region ORDER BY region")  # fmt: skip


def test_a_changed_public_table_is_another_question(folder: Path, curator: Curator) -> None:
    ask: list[Callable[[], Any]] = [
        lambda: curator.query(REGIONS, epsilon=MUCH, delta="1e-9"),
        lambda: curator.query("SELECT COUNT(*) AS n FROM wards"),
        lambda: curator.hierarchy(
            "visits JOIN wards ON visits.ward = wards.code", ["wards.region", "wards.code"], epsilon=MUCH
        ),
    ]
    before = [call() for call in ask]
    assert all(call().repeated for call in ask)
    write_wards(folder, "a,south", "b,north", "c,south", "d,east")
    after = [call() for call in ask]
    assert not any(answer.repeated for answer in after)
    assert after[1].to_pylist()[0]["n"] == 4
    wards = {row["code"]: row["value"] for row in after[2].to_pylist() if row["level"] == "code"}
    assert wards == {"a": 14, "b": 13, "c": 13, "d": 0}
    write_wards(folder, "a,north", "b,north", "c,south")
    assert [call().to_pylist() for call in ask] == [answer.to_pylist() for answer in before]


def test_margins_in_another_order_are_one_margin_and_paid_once(curator: Curator) -> None:
    once = curator.margins("visits", [["sex", "ward"]], epsilon=MUCH)
    left = curator.remaining()
    both = curator.margins("visits", [["sex", "ward"], ["ward", "sex"]], epsilon=MUCH)
    assert (both.repeated, both.to_pylist(), curator.remaining()) == (True, once.to_pylist(), left)


def test_a_hierarchy_without_cells_is_refused_before_the_charge(folder: Path, curator: Curator) -> None:
    write_wards(folder)
    left = curator.remaining()
    with pytest.raises(QueryRefused, match="no cells"):
        curator.hierarchy("visits JOIN wards ON visits.ward = wards.code", ["wards.region"], epsilon=1)
    assert curator.remaining() == left


def test_ids_that_are_equal_are_in_one_block_however_they_are_written() -> None:
    import pyarrow as pa

    from deniable.dp.samplers import SYSTEM

    table = pa.table({"id": pa.array([0.0, -0.0], pa.float64())})
    for _ in range(40):
        assert sorted(block.num_rows for block in split_units(table, "id", 2, SYSTEM)) == [0, 2]


def test_rows_without_an_id_are_left_out_and_that_is_said(folder: Path, curator: Curator) -> None:
    with (folder / "visits.csv").open("a") as file:
        file.write(",F,a,5\n,M,b,6\n")
    assert count(curator) == PEOPLE
    told = "Rows of 'visits' without a value of 'id' are ignored."
    assert told in curator.explain(COUNT, epsilon=1).notes
    assert told in curator.explain_hierarchy("visits", ["sex"], epsilon=1).notes
    blocks = curator.sample_and_aggregate(lambda rows: 1.0, "visits", blocks=2, bounds=(0, 9), epsilon=1)
    assert told in blocks.release.details["notes"]
    (folder / "policy.yaml").write_text(POLICY.replace("id: {type: integer,", "id: {type: integer, nullable: false,"))
    with open_curator(folder) as other:
        assert told not in other.explain(COUNT, epsilon=1).notes


def test_a_private_table_is_never_used_as_a_public_one(curator: Curator) -> None:
    for use in (curator.context.scope.attach_public, curator.context.scope.public_versions):
        with pytest.raises(InternalError):
            use("visits")
