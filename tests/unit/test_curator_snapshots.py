"""Copies of an epoch: with `epochs: {copies: folder}` data are read as they were when the epoch began.

Whatever happens to the files inside an epoch, every process answers as if nothing had: changed, malformed or deleted.
"""

from __future__ import annotations

import gzip
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.governance import epochs, withdrawals
from deniable.curator.mask.run import Request as MaskRequest
from deniable.curator.mask.run import mask_tables
from deniable.engines.sources import keep_copy
from deniable.errors import DataError, StorageError
from deniable.governance.grants import Asker, Role

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: "{source}"
    unit: {{column: id, max_groups: 1, max_rows_per_group: 1}}
    columns:
      id: {{type: integer, role: identifier, mask: redact}}
      sex: {{categories: [F, M], role: quasi-identifier, mask: redact}}
budgets:
  dataset: {{epsilon: 100000}}
  purposes: {{research: {{epsilon: 90000}}}}
  analysts: {{ana: {{purposes: [research]}}}}
epochs: {{copies: kept}}
"""
ANA = Asker("ana", "research", Role.ANALYST)
MUCH = 500  # noise is 0 but for a probability below 1e-200


def make_rows(people: int) -> pa.Table:
    return pa.table({"id": list(range(people)), "sex": ["FM"[i % 2] for i in range(people)]})


def write_csv(folder: Path, people: int) -> None:
    pa_csv.write_csv(make_rows(people), folder / "visits.csv")


def write_gzip(folder: Path, people: int) -> None:
    write_csv(folder, people)
    (folder / "visits.csv.gz").write_bytes(gzip.compress((folder / "visits.csv").read_bytes()))


def write_parquet(folder: Path, people: int) -> None:
    pq.write_table(make_rows(people), folder / "visits.parquet")


def write_parts(folder: Path, people: int) -> None:
    """Two files of one name in two folders."""
    for part, rows in (("a", make_rows(people).slice(0, 3)), ("b", make_rows(people).slice(3))):
        (folder / part).mkdir(exist_ok=True)
        pq.write_table(rows, folder / part / "rows.parquet")


def write_database(folder: Path, people: int) -> None:
    (folder / "visits.duckdb").unlink(missing_ok=True)
    rows = make_rows(people)
    with duckdb.connect(folder / "visits.duckdb") as connection:
        connection.register("rows", rows)
        connection.execute("CREATE TABLE visits AS SELECT * FROM rows")


def write_unlike_names(folder: Path, people: int) -> None:
    """Parquet files of which one does not say so in its name."""
    (folder / "parts").mkdir(exist_ok=True)
    for name, rows in (("a.parquet", make_rows(people).slice(0, 3)), ("part-00001", make_rows(people).slice(3))):
        pq.write_table(rows, folder / "parts" / name)


SOURCES: dict[str, Callable[[Path, int], None]] = {
    "visits.csv": write_csv,
    "visits.csv.gz": write_gzip,
    "visits.parquet": write_parquet,
    "?/rows.parquet": write_parts,
    "visits.duckdb#visits": write_database,
    "parts/*": write_unlike_names,
}


def open_curator(folder: Path) -> Curator:
    return Curator.open(folder / "policy.yaml", ledger=folder / "ledger.sqlite")


def count(curator: Curator, at_least: int = 0) -> int:
    """How many people have an id of at least so much; each bound is another question."""
    sql = f"SELECT COUNT(*) AS n FROM visits WHERE id >= {at_least}"
    return int(curator.query(sql, epsilon=MUCH, intervals=False, who=ANA).to_pylist()[0]["n"]) + at_least


def make_dataset(folder: Path, source: str = "visits.csv", people: int = 20) -> None:
    (folder / "policy.yaml").write_text(POLICY.format(source=source))
    SOURCES[source](folder, people)


@pytest.mark.parametrize("source", SOURCES)
def test_a_new_question_reads_the_rows_of_the_epoch_in_every_process(source: str, tmp_path: Path) -> None:
    make_dataset(tmp_path, source)
    with open_curator(tmp_path) as first:
        assert count(first) == 20
        SOURCES[source](tmp_path, 33)
        assert count(first, 1) == 20
        with open_curator(tmp_path) as second:
            assert count(second, 2) == 20
            second.new_epoch("more people")
            assert count(second, 3) == 33
        assert count(first, 3) == 33


def test_a_malformed_line_or_a_missing_file_is_not_seen_inside_an_epoch(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as first:
        count(first)
    with (tmp_path / "visits.csv").open("a") as file:
        file.write('x,"F,\n1,2,3,4,5\n')
    with open_curator(tmp_path) as second:
        assert count(second, 1) == 20
    (tmp_path / "visits.csv").unlink()
    with open_curator(tmp_path) as third:
        assert count(third, 2) == 20


def test_a_question_that_began_in_the_epoch_before_reads_its_rows(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
        write_csv(tmp_path, 33)
        curator.new_epoch("more people")
        scope = curator.context.scope
        assert [scope.attach("visits", epoch=each).count("visits") for each in ("1", "2", "1")] == [20, 33, 20]


def test_masked_rows_are_those_of_the_epoch(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
        write_csv(tmp_path, 33)
        out = tmp_path / "out.csv"
        mask_tables(curator.context, MaskRequest(tmp_path / "policy.yaml", {"visits": out}, fresh=True))
    assert len(out.read_text().splitlines()) == 21


def test_another_file_that_is_passed_for_a_table_is_read_as_it_is(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        assert count(curator) == 20
    pq.write_table(make_rows(5), tmp_path / "other.parquet")
    policy = tmp_path / "policy.yaml"
    with Curator.open(policy, ledger=None, sources={"visits": tmp_path / "other.parquet"}) as other:
        assert count(other) == 5


def test_who_withdraws_is_left_out_of_the_copy_at_once(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        assert count(curator) == 20
        withdrawals.withdraw(curator.context, "id", "3")
        assert count(curator, 1) == 19


def test_only_the_owner_can_open_the_copies_and_those_of_two_epochs_are_kept(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    mine = tmp_path / "kept" / "clinic" / "my notes"
    mine.mkdir(parents=True)
    with open_curator(tmp_path) as curator:
        for epoch in range(4):
            count(curator, epoch)
            curator.new_epoch("again")
    kept = [each for each in (tmp_path / "kept" / "clinic").iterdir() if each != mine]
    assert mine.is_dir()
    assert sorted(each.name.split("-")[0] for each in kept) == ["4", "5"]
    for path in (path for each in kept for path in each.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 or path.is_dir()
    assert {stat.S_IMODE(path.stat().st_mode) for each in kept for path in each.glob("*/files")} == {0o700}


def test_many_threads_that_are_first_make_one_copy(tmp_path: Path) -> None:
    make_dataset(tmp_path, people=20_000)
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(keep_copy("visits.csv", tmp_path, tmp_path / "kept" / "one")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len(found) == 8
    assert [each.name for each in (tmp_path / "kept").iterdir()] == ["one"]
    assert Path(found[0].removeprefix("csv:")).read_bytes() == (tmp_path / "visits.csv").read_bytes()


def test_two_policies_with_one_folder_and_one_name_have_copies_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, people in (("one", 20), ("other", 33)):
        (tmp_path / name).mkdir()
        make_dataset(tmp_path / name, people=people)
        policy = tmp_path / name / "policy.yaml"
        policy.write_text(policy.read_text().replace("copies: kept", "copies: ../kept"))
    for name, people in (("one", 20), ("other", 33)):
        monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / f"state of {name}"))
        with open_curator(tmp_path / name) as curator:
            assert count(curator) == people


def test_another_source_in_the_policy_is_another_copy(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
    make_dataset(tmp_path, "visits.parquet", 33)
    with open_curator(tmp_path) as curator:
        assert count(curator, 1) == 33


def test_a_release_before_the_first_question_leaves_the_mark_of_its_copy(tmp_path: Path) -> None:
    """The first question once read the file itself: it failed where the file was gone, and a change went unnoticed."""
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        mask_tables(curator.context, MaskRequest(tmp_path / "policy.yaml", {"visits": tmp_path / "m.csv"}, fresh=True))
        write_csv(tmp_path, 33)
        assert count(curator) == 20
        assert epochs.show_epoch(curator.context).tables[0].source == epochs.CHANGED
        (tmp_path / "visits.csv").unlink()
        assert count(curator, 1) == 20


def test_an_epoch_that_cannot_be_copied_does_not_begin(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
        (tmp_path / "visits.csv").rename(tmp_path / "gone")
        with pytest.raises(DataError):
            curator.new_epoch("too early")
        assert curator.epoch == "1"
        assert count(curator, 1) == 20
        write_csv(tmp_path, 33)
        curator.new_epoch("complete")
        assert (curator.epoch, count(curator, 2)) == ("2", 33)


@pytest.mark.parametrize("broken", ["a loop", "no description"])
def test_copies_that_cannot_be_used_are_refused_in_words(broken: str, tmp_path: Path) -> None:
    make_dataset(tmp_path)
    if broken == "a loop":
        (tmp_path / "kept").symlink_to(tmp_path / "kept")
    else:
        with open_curator(tmp_path) as curator:
            count(curator)
        next(tmp_path.glob("kept/clinic/*/*/source.txt")).unlink()
    with open_curator(tmp_path) as curator, pytest.raises(DataError, match="cannot be read as the policy declares it"):
        count(curator, 1)


def test_a_person_is_told_of_the_copy(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
        write_csv(tmp_path, 3)
        assert curator.context.scope.tables_holding(["19"], {"visits": "id"}) == ["visits"]


def test_a_file_that_is_being_written_to_is_not_copied(tmp_path: Path) -> None:
    make_dataset(tmp_path, "visits.duckdb#visits")
    (tmp_path / "visits.duckdb.wal").write_bytes(b"")
    with pytest.raises(DataError, match="being written to"):
        keep_copy("visits.duckdb#visits", tmp_path, tmp_path / "kept" / "one")
    assert list((tmp_path / "kept").iterdir()) == []


def test_where_no_copy_can_be_made_the_steward_is_told_why_and_nothing_is_charged(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    (tmp_path / "kept").write_text("a file where the folder should be")
    with open_curator(tmp_path) as curator:
        left = curator.remaining()
        with pytest.raises(DataError, match="cannot be read as the policy declares it"):
            count(curator)
        with pytest.raises(StorageError):
            curator.query("SELECT COUNT(*) FROM visits", epsilon=1)
        assert curator.remaining() == left


def test_the_steward_is_told_that_a_changed_source_is_not_read_yet(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    with open_curator(tmp_path) as curator:
        count(curator)
        write_csv(tmp_path, 33)
        assert "read the copy of this epoch" in epochs.show_epoch(curator.context).warnings[0]
