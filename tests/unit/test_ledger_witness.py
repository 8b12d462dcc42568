"""A budget belongs to people: no copy of a policy, a table or a ledger gives it anew, from whichever entry point."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.demo import make_world
from deniable.curator.governance.steward import register, separate, settle, show, verify
from deniable.dp.accounting import PureEvent
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DeniableError,
    IntegrityError,
    ParameterError,
    PolicyError,
    StorageError,
)
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.ledger import open_answer_store, open_ledger
from deniable.ledger.same_rows import FEW_ROWS, Sketch
from deniable.ledger.witness import FILE, Source, Witness, name_place, state_folder
from deniable.policy.document import read
from ledgers import change_behind
from postgres_cluster import cluster

pytestmark = pytest.mark.usefixtures("marked_rows")
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier}, age: {type: integer, between: [0, 99], role: quasi-identifier}}
budgets: {dataset: {epsilon: 1}}
"""
PEOPLE = 60


def rows(start: int = 0, count: int = PEOPLE) -> pa.Table:
    ids = range(start, start + count)
    return pa.table({"id": ids, "age": [(7 * n) % 90 for n in ids]})


def spend(curator: Curator, name: str = "n") -> None:
    curator.query(f"SELECT COUNT(*) FROM visits WHERE age < {sum(name.encode()) % 97}", epsilon=1)


def spend_all(policy: Path) -> int:
    """Ask once for all of the budget; how many charges the ledger has then."""
    with Curator.open(policy) as curator:
        spend(curator)
        return len(list(curator.context.ledger.entries(0, ("charge",))))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A policy whose budget was spent."""
    (tmp_path / "clinic").mkdir()
    csv.write_csv(rows(), tmp_path / "clinic" / "visits.csv")
    path = tmp_path / "clinic" / "policy.yaml"
    path.write_text(POLICY)
    spend_all(path)
    return path


def copy_policy(policy: Path) -> Path:
    return Path(shutil.copy(policy, policy.with_name("copy.yaml")))


def rename_dataset(policy: Path) -> Path:
    path = policy.with_name("other.yaml")
    path.write_text(POLICY.replace("clinic", "study").replace("visits:", "stays:"))
    return path


def copy_folder(policy: Path) -> Path:
    folder = policy.parent.with_name("copy")
    folder.mkdir()
    for name in ("policy.yaml", "visits.csv"):
        shutil.copy(policy.with_name(name), folder / name)
    return folder / "policy.yaml"


def shuffle_rows(policy: Path) -> Path:
    path = copy_folder(policy)
    table = rows()
    csv.write_csv(table.take(list(reversed(range(len(table))))), path.with_name("visits.csv"))
    return path


def add_people(policy: Path) -> Path:
    path = copy_folder(policy)
    csv.write_csv(rows(0, PEOPLE + 5), path.with_name("visits.csv"))
    return path


def write_parquet(policy: Path) -> Path:
    path = copy_folder(policy)
    pq.write_table(rows(), path.with_name("visits.parquet"))
    path.write_text(POLICY.replace("visits.csv", "visits.parquet"))
    return path


def link_file(policy: Path) -> Path:
    folder = policy.parent.with_name("links")
    folder.mkdir()
    (folder / "visits.csv").symlink_to(policy.with_name("visits.csv"))
    (folder / "policy.yaml").write_text(POLICY)
    return folder / "policy.yaml"


def change_unit(policy: Path) -> Path:
    path = policy.with_name("rows.yaml")
    path.write_text(POLICY.replace("{column: id, max_groups: 1, max_rows_per_group: 1}", "row"))
    return path


WAYS = [copy_policy, rename_dataset, copy_folder, shuffle_rows, add_people, write_parquet, link_file, change_unit]


@pytest.mark.parametrize("way", WAYS)
def test_another_policy_over_the_same_rows_has_no_budget_of_its_own(policy: Path, way: Callable[[Path], Path]) -> None:
    other = way(policy)
    with pytest.raises(AccessRefused, match="have a budget already, in the ledger") as refusal:
        Curator.open(other)
    assert str(policy.with_name("policy.ledger.sqlite")) in refusal.value.message
    with Curator.open(other, ledger=None) as curator, pytest.raises(DeniableError):
        curator.query("SELECT COUNT(*) FROM " + ("stays" if way is rename_dataset else "visits"), epsilon=1)


def test_the_refusal_says_how_to_share_and_that_works(policy: Path) -> None:
    other = copy_policy(policy)
    with (
        Curator.open(other, ledger=policy.with_name("policy.ledger.sqlite")) as curator,
        pytest.raises(BudgetExceeded),
    ):
        spend(curator, "m")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("way", WAYS)
def test_the_steward_may_give_a_budget_of_its_own_and_the_ledger_says_so(
    policy: Path, way: Callable[[Path], Path]
) -> None:
    other = way(policy)
    with pytest.raises(ParameterError, match="needs a reason"):
        separate(other, None, "ana", "  ")
    done = separate(other, None, "ana", "another study")
    assert done.beside == [str(policy.with_name("policy.ledger.sqlite"))]
    with Curator.open(other) as curator:
        (entry,) = curator.context.ledger.entries(0, ("separate",))
    assert (entry.analyst, entry.details["reason"], entry.details["beside"]) == ("ana", "another study", done.beside)


def test_a_ledger_in_memory_has_no_budget_for_rows_that_a_ledger_on_disk_protects(policy: Path) -> None:
    with Curator(read(policy)) as curator, pytest.raises(AccessRefused, match="have a budget already"):
        spend(curator)
    with Curator(read(policy), sources={"visits": rows(1000)}) as curator:
        spend(curator)


def test_the_file_of_a_private_table_is_public_in_no_other_policy(policy: Path) -> None:
    """Raw rows were answered at no cost to whoever declared the file as public in a policy of their own."""
    other = policy.with_name("public.yaml")
    other.write_text("version: 1\ndataset: open\ntables:\n  t: {source: visits.csv, public: true}\n")
    with pytest.raises(PolicyError, match=r"is declared public, and the ledger .* protects people in its file"):
        Curator.open(other)


@pytest.mark.parametrize("link", [shutil.copy, os.link])
def test_a_copy_of_a_private_table_is_public_in_no_other_policy(
    policy: Path, tmp_path: Path, link: Callable[[Path, Path], object]
) -> None:
    (tmp_path / "published").mkdir()
    link(policy.with_name("visits.csv"), tmp_path / "published" / "rows.csv")
    other = tmp_path / "published" / "policy.yaml"
    other.write_text("version: 1\ndataset: open\ntables:\n  rows: {source: rows.csv, public: true}\n")
    for _ in range(2):  # what was found once is found again
        with pytest.raises(PolicyError, match=r"is declared public, and the ledger .* protects people"):
            Curator.open(other, ledger=other.with_suffix(".ledger.sqlite"))
    csv.write_csv(rows(500), tmp_path / "published" / "rows.csv")
    for _ in range(2):
        Curator.open(other, ledger=other.with_suffix(".ledger.sqlite")).close()


def test_reading_the_record_finds_what_was_cut_off_too(policy: Path) -> None:
    with change_behind(policy.with_suffix(".ledger.sqlite")) as connection:
        connection.execute("DELETE FROM entries")
    for look in (
        lambda: verify(policy, None, None, None),
        lambda: show(policy, None, 10),
        lambda: register(policy, None),
    ):
        with pytest.raises(IntegrityError, match="entries when it was last used"):
            look()


def test_other_people_have_a_budget_of_their_own(policy: Path) -> None:
    other = copy_folder(policy)
    csv.write_csv(rows(5000), other.with_name("visits.csv"))
    assert spend_all(other) == 1


def test_tables_of_a_few_rows_are_alike_by_chance_and_not_compared(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(POLICY)
        csv.write_csv(rows(0, FEW_ROWS - 1), tmp_path / name / "visits.csv")
        assert spend_all(tmp_path / name / "policy.yaml") == 1


def test_a_source_that_changes_keeps_its_ledger(policy: Path) -> None:
    csv.write_csv(rows(9000), policy.with_name("visits.csv"))
    with Curator.open(policy) as curator, pytest.raises(BudgetExceeded):
        spend(curator, "m")
    other = copy_folder(policy)
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(other)


WIDE = """
version: 1
dataset: {dataset}
tables:
  {table}:
    source: {source}
    unit: {unit}
    columns: {columns}
budgets: {{dataset: {{epsilon: 5}}}}
"""


def people(count: int = 300, seed: int = 1, start: int = 1) -> pa.Table:
    """Visits of people with serial ids, from 1 to 3 each, and columns of few and of many values."""
    draw, columns = random.Random(seed), ("id", "born", "zip", "sex", "ward", "smokes", "cost")
    found = []
    for n in range(start, start + count):
        who = (n, f"{draw.randint(1930, 2010)}-0{draw.randint(1, 9)}-1{draw.randint(0, 9)}", draw.randint(10000, 99999))
        for _ in range(draw.randint(1, 3)):
            visit = (draw.choice("FM"), draw.choice("abcdef"), draw.random() < 0.1, draw.randint(0, 999))
            found += [(*who, *visit)]
    return pa.table({name: [row[place] for row in found] for place, name in enumerate(columns)})


def write_wide(folder: Path, table: pa.Table, unit: str = "row", name: str = "t", dataset: str = "clinic") -> Path:
    folder.mkdir(exist_ok=True)
    csv.write_csv(table, folder / f"{name}.csv")
    columns = "{" + ", ".join(f"{each}: {{}}" for each in table.column_names) + "}"
    text = WIDE.format(dataset=dataset, table=name, source=f"{name}.csv", unit=unit, columns=columns)
    (folder / f"{name}.yaml").write_text(text)
    return folder / f"{name}.yaml"


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "columns reversed": lambda table: table.select(table.column_names[::-1]),
    "the last column dropped": lambda table: table.select(table.column_names[:-1]),
    "the id dropped": lambda table: table.drop_columns(["id"]),
    "the id and the zip dropped": lambda table: table.drop_columns(["id", "zip"]),
    "two columns left": lambda table: table.select(["cost", "id"]),
    "an id and a column of six values left": lambda table: table.select(["ward", "id"]),
    "columns renamed and others added": lambda table: table.rename_columns([f"c{n}" for n in range(7)]).append_column(
        "more", [[*range(len(table))]]
    ),
    "a third of the rows dropped": lambda table: table.slice(len(table) // 3).drop_columns(["sex"]),
}


QUICK = ("columns reversed", "the id and the zip dropped", "an id and a column of six values left")


@pytest.mark.parametrize(
    "change", [pytest.param(each, marks=[] if each in QUICK else pytest.mark.slow) for each in CHANGES]
)
def test_dropped_renamed_and_reordered_columns_give_no_budget_of_their_own(tmp_path: Path, change: str) -> None:
    with Curator.open(write_wide(tmp_path / "one", people())) as curator:
        curator.query("SELECT COUNT(*) AS n FROM t", epsilon="0.01")
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(write_wide(tmp_path / "two", CHANGES[change](people()), dataset="other"))


@pytest.mark.parametrize("columns", [["id", "ward", "sex", "smokes"], None])
def test_other_people_with_the_same_serial_ids_and_columns_have_a_budget_of_their_own(
    tmp_path: Path, columns: list[str] | None
) -> None:
    for seed in range(2):
        table = people(seed=seed)
        made = write_wide(tmp_path / str(seed), table.select(columns or table.column_names), dataset=f"d{seed}")
        with Curator.open(made) as curator:
            assert list(curator.ledger.entries(acts=("charge",))) == []
            curator.query("SELECT COUNT(*) AS n FROM t", epsilon="0.01")


def test_one_file_under_two_names_and_units_does_not_share_one_total(tmp_path: Path) -> None:
    """A person with three rows would lose three times what a total of both says."""
    ledger, person = tmp_path / "ledger.sqlite", "{column: id, max_groups: 1, max_rows_per_group: 3}"
    first = write_wide(tmp_path, people(), person, "visits")
    second = tmp_path / "rows.yaml"
    second.write_text(first.read_text().replace("  visits:", "  stays:").replace(person, "row"))
    with Curator.open(first, ledger=ledger) as one, Curator.open(second, ledger=ledger) as other:
        one.query("SELECT COUNT(*) AS n FROM visits", epsilon=1)
        with pytest.raises(AccessRefused, match="protected as all rows of one id before, and would now be as one row"):
            other.query("SELECT COUNT(*) AS n FROM stays", epsilon=1)
    with pytest.raises(AccessRefused, match="protected as all rows of one id before, and would now be as one row"):
        Curator.open(second, ledger=ledger)
    copied = write_wide(tmp_path / "copy", people().drop_columns(["sex"]), "row", "copied")
    with pytest.raises(AccessRefused, match="protected as all rows of one id before, and would now be as one row"):
        Curator.open(copied, ledger=ledger)
    Curator.open(write_wide(tmp_path / "others", people(seed=2), "row", "others"), ledger=ledger).close()


def test_a_unit_may_be_corrected_before_anything_is_charged(tmp_path: Path) -> None:
    policy = write_wide(tmp_path, people())
    Curator.open(policy).close()
    policy.write_text(policy.read_text().replace("unit: row", "unit: {column: id}"))
    with Curator.open(policy) as curator:
        assert curator.policy.table("t").unit.column == "id"


def test_a_file_changed_in_place_with_its_size_and_time_put_back_is_looked_at_again(policy: Path) -> None:
    source = policy.with_name("visits.csv")
    before, other = source.stat(), copy_folder(policy)
    header, *lines = source.read_text().splitlines(keepends=True)
    people = [line.replace(str(n), str(99 - n), 1) for n, line in enumerate(lines) if n >= 10]
    other.with_name("visits.csv").write_text("".join([header, *people]).ljust(before.st_size, "\n"))
    source.write_bytes(other.with_name("visits.csv").read_bytes())
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (source.stat().st_size, source.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    Curator.open(policy).close()
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(other)


def test_a_generated_world_is_nobody_and_may_be_made_as_often_as_one_likes(tmp_path: Path) -> None:
    question = "SELECT COUNT(*) AS n FROM visits"
    for name in ("one", "two", "one"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
        make_world("hospital", 200, None, tmp_path / name)
        with Curator.open(tmp_path / name / "policy.yaml") as curator:
            curator.query(question, epsilon=1, delta="1e-7")
    table = pq.read_table(tmp_path / "two" / "visits.parquet")
    pq.write_table(table.slice(1), tmp_path / "two" / "visits.parquet")
    spend_world = Curator.open(tmp_path / "two" / "policy.yaml")
    spend_world.close()
    shutil.copytree(tmp_path / "two", tmp_path / "three", ignore=shutil.ignore_patterns("*.sqlite*"))
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(tmp_path / "three" / "policy.yaml")


def list_files(policy: Path) -> list[Path]:
    return sorted(policy.parent.glob("policy.ledger*"))


def test_older_copies_of_ledger_and_answers_together_are_refused(policy: Path, tmp_path: Path) -> None:
    text = POLICY.replace("epsilon: 1}", "epsilon: 3}")
    policy.write_text(text)
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in list_files(policy):
        shutil.copy(path, kept / path.name)
    with Curator.open(policy) as curator:
        spend(curator, "m")
    for path in list_files(policy):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy(path, policy.parent / path.name)
    with pytest.raises(IntegrityError, match="the ledger had 2 entries when it was last used"):
        Curator.open(policy)


def test_a_ledger_that_is_gone_with_its_answers_gives_no_new_budget_until_the_steward_says_that_it_is_lost(
    policy: Path,
) -> None:
    for path in list_files(policy):
        path.unlink()
    with pytest.raises(IntegrityError, match="deniable ledger separate --lost"):
        Curator.open(policy)
    for path in list_files(policy):
        path.unlink()
    assert separate(policy, None, "ana", "disk broke", lost=True).entries_lost == 1
    with Curator.open(policy) as curator:
        (entry,) = curator.context.ledger.entries(0, ("separate",))
        assert entry.details["entries_lost"] == 1
        with pytest.raises(AccessRefused, match="entries of this ledger are lost"):
            spend(curator)
    settle(policy, None, "ana", "it was one question", spent=(1, None, None), entered=True)
    with Curator.open(policy) as curator, pytest.raises(BudgetExceeded):
        spend(curator)


def test_nothing_of_a_row_can_be_read_from_the_witness(policy: Path) -> None:
    path = state_folder() / FILE
    assert path.stat().st_mode & 0o077 == 0
    with sqlite3.connect(path) as connection:
        marks = json.loads(connection.execute("SELECT marks FROM sources").fetchone()[0])["rows"]
        (key,) = connection.execute("SELECT key FROM secret").fetchone()
    assert len(marks) == 32
    assert all(len(mark) == 16 for mark in marks)
    assert len(key) == 32


def test_two_users_draw_their_own_keys(tmp_path: Path) -> None:
    source = [Source("x", "1", Sketch(range(10)))]
    seen = set()
    for name in "ab":
        Witness(tmp_path / name).claim("place", source)
        with sqlite3.connect(tmp_path / name / FILE) as connection:
            seen.add(connection.execute("SELECT marks FROM sources").fetchone()[0])
    assert len(seen) == 2


@pytest.mark.parametrize(("common", "same"), [(7, True), (6, False), (32, True), (0, False)])
def test_tables_are_the_same_when_a_fifth_of_their_marks_are(tmp_path: Path, common: int, same: bool) -> None:
    witness = Witness(tmp_path)
    witness.claim("one", [Source("x", "1", Sketch(range(32)))])
    other = [Source("y", "1", Sketch(range(32 - common, 64 - common)))]
    if same:
        with pytest.raises(AccessRefused):
            witness.claim("two", other)
    else:
        witness.claim("two", other)


def test_a_look_at_the_record_leaves_the_locks_of_this_process(tmp_path: Path) -> None:
    """The file was opened and closed once more, which drops every lock: another process then removed the log in use."""
    witness = Witness(tmp_path)
    witness.claim("one", [])
    with closing(sqlite3.connect(tmp_path / FILE)) as kept:
        kept.execute("SELECT count(*) FROM ledgers").fetchone()
        witness.claim("two", [])
        look = f"c = sqlite3.connect({str(tmp_path / FILE)!r}); c.execute('SELECT * FROM ledgers'); c.close()"
        subprocess.run([sys.executable, "-c", f"import sqlite3; {look}"], check=True)
        assert (tmp_path / f"{FILE}-wal").exists()


def test_a_state_folder_that_cannot_be_written_is_refused_in_words(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="in the environment variable DENIABLE_STATE"):
        Curator.open(policy)


def test_a_database_is_known_without_who_enters_it() -> None:
    one = name_place("postgresql://ana:x@db.example:5433/clinic?sslmode=require", "visits")
    assert one == name_place("postgres://ben:y@db.example:5433/clinic", "visits")
    assert one != name_place("postgresql://db.example:5433/clinic", "labs")


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("way", WAYS)
def test_a_ledger_in_postgresql_holds_the_budget_of_its_rows_too(
    policy: Path, way: Callable[[Path], Path], postgres_address: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another state"))
    name = f"clinic{way.__name__}"
    policy.write_text(POLICY.replace("dataset: clinic", f"dataset: {name}"))
    with Curator.open(policy, ledger=postgres_address) as curator:
        spend(curator)
    for path in list_files(policy):
        path.unlink()
    other = way(policy)
    held = name_place(postgres_address, name)
    for ledger in (other.with_suffix(".sqlite"), None):
        with (
            pytest.raises(AccessRefused, match="have a budget already") as refusal,
            Curator.open(other, ledger=ledger) as curator,
        ):
            curator.query("SELECT COUNT(*) FROM " + ("stays" if way is rename_dataset else "visits"), epsilon=1)
        assert held in refusal.value.message


def test_a_folder_and_the_files_in_it_have_one_budget(tmp_path: Path) -> None:
    """Each file holds less than half of the folder's rows, so that only the path tells."""
    for part in range(4):
        (tmp_path / "all").mkdir(exist_ok=True)
        pq.write_table(rows(part * PEOPLE), tmp_path / "all" / f"p{part}.parquet")
    whole, part = tmp_path / "whole.yaml", tmp_path / "part.yaml"
    whole.write_text(POLICY.replace("visits.csv", "all"))
    part.write_text(POLICY.replace("visits.csv", "all/p2.parquet"))
    assert spend_all(whole) == 1
    with pytest.raises(AccessRefused, match="have a budget already"):
        spend_all(part)
    (tmp_path / "beside").mkdir()
    pq.write_table(rows(9000), tmp_path / "beside" / "rows.parquet")
    part.write_text(POLICY.replace("visits.csv", "beside/rows.parquet"))
    assert spend_all(part) == 1


def place_links(policy: Path) -> list[str]:
    """The ledger's path in other spellings: relative, through a folder and back, a link to it, a link to its folder."""
    ledger, links = policy.with_name("policy.ledger.sqlite"), policy.parent.with_name("links")
    links.mkdir()
    (links / "one.sqlite").symlink_to(ledger)
    (links / "folder").symlink_to(policy.parent)
    back = policy.parent / ".." / policy.parent.name / ledger.name
    return [os.path.relpath(ledger), str(back), str(links / "one.sqlite"), str(links / "folder" / ledger.name)]


def test_a_ledger_is_the_same_however_its_path_is_spelled(policy: Path) -> None:
    for place in place_links(policy):
        with Curator.open(policy, ledger=place) as curator, pytest.raises(BudgetExceeded):
            spend(curator, "m")
        show(policy, place, 1)


def test_an_older_copy_is_refused_in_whichever_place_it_stands(policy: Path, tmp_path: Path) -> None:
    """A copy elsewhere showed what was spent when it was made."""
    with Curator.open(policy) as curator:
        curator.new_epoch("so that the ledger goes on")
    for name in ("policy.ledger.sqlite", "policy.ledger.kept.sqlite"):
        shutil.copy(policy.with_name(name), tmp_path / name)
    show(policy, str(tmp_path / "policy.ledger.sqlite"), 1)
    with Curator.open(policy) as curator:
        curator.new_epoch("and on")
    for use in (lambda place: show(policy, place, 1), lambda place: Curator.open(policy, ledger=place)):
        with pytest.raises(IntegrityError, match="had 3 entries when it was last used"):
            use(str(tmp_path / "policy.ledger.sqlite"))


def test_a_ledger_that_was_moved_goes_on_and_one_that_was_copied_does_not(policy: Path, tmp_path: Path) -> None:
    copy, moved = tmp_path / "copy.sqlite", tmp_path / "moved.sqlite"
    for ending in (".sqlite", ".kept.sqlite"):
        shutil.copy(policy.with_name("policy.ledger" + ending), copy.with_suffix(ending))
    with pytest.raises(AccessRefused, match="have a budget already"):
        Curator.open(policy, ledger=copy)
    for ending in (".sqlite", ".kept.sqlite"):
        shutil.move(policy.with_name("policy.ledger" + ending), moved.with_suffix(ending))
    with Curator.open(policy, ledger=moved) as curator, pytest.raises(BudgetExceeded):
        spend(curator, "m")


def test_a_database_is_the_same_under_whichever_name_of_its_host(policy: Path, postgres_address: str) -> None:
    """One database, two spellings of its address; the witness knew it by the letters."""
    other = postgres_address.replace("/postgres?", "/?dbname=postgres&")
    assert name_place(other, "pg") != name_place(postgres_address, "pg")
    path = policy.with_name("pg.yaml")
    path.write_text(POLICY.replace("clinic", "pg").replace("visits.csv", "pg.csv"))
    csv.write_csv(rows(9000), path.with_name("pg.csv"))
    with Curator.open(path, ledger=postgres_address) as curator:
        spend(curator)
        curator.new_epoch("so that the ledger goes on")
    with Curator.open(path, ledger=other) as curator, pytest.raises(BudgetExceeded):
        spend(curator, "m")
    import psycopg

    with psycopg.connect(postgres_address) as database:
        database.execute("ALTER TABLE deniable_entries DISABLE TRIGGER USER")
        database.execute("DELETE FROM deniable_entries WHERE dataset = 'pg' AND sequence = 2")
        database.execute("ALTER TABLE deniable_entries ENABLE TRIGGER USER")
    for place in (postgres_address, other):
        with pytest.raises(IntegrityError, match="had 2 entries when it was last used"):
            show(path, place, 1)


def begin_database(policy: Path, dataset: str) -> Path:
    """A policy over other people, for a ledger in a database."""
    path = policy.with_name(f"{dataset}.yaml")
    path.write_text(POLICY.replace("clinic", dataset).replace("visits.csv", f"{dataset}.csv"))
    csv.write_csv(rows(70000), path.with_name(f"{dataset}.csv"))
    return path


def ask_under(curator: Curator, most: int) -> None:
    curator.query(f"SELECT COUNT(*) FROM visits WHERE age < {most}", epsilon=0.25)


def test_a_copy_of_a_database_that_is_open_beside_it_does_not_give_the_budget_twice(
    policy: Path, postgres_address: str
) -> None:
    """A copied cluster has the same identity; each of two processes spent the whole budget until the next start."""
    path = begin_database(policy, "twice")
    with Curator.open(path, ledger=postgres_address) as curator:
        ask_under(curator, 10)
    with (
        cluster(postgres_address) as copied,
        Curator.open(path, ledger=postgres_address) as one,
        Curator.open(path, ledger=copied) as other,
    ):
        ask_under(one, 20)
        with pytest.raises(IntegrityError, match=r"had 2 entries when it was last used, at postgresql.*Nothing was"):
            ask_under(other, 30)
        ask_under(one, 40)
        assert [len(list(each.context.ledger.entries())) for each in (one, other)] == [3, 1]


def test_two_servers_of_one_database_go_on_in_turn(policy: Path, postgres_address: str) -> None:
    path = begin_database(policy, "shared")
    other = postgres_address.replace("/postgres?", "/?dbname=postgres&")
    with Curator.open(path, ledger=postgres_address) as one, Curator.open(path, ledger=other) as two:
        for most, curator in ((10, one), (20, two), (30, one), (40, two)):
            ask_under(curator, most)
        with pytest.raises(BudgetExceeded):
            ask_under(one, 50)


@pytest.fixture
def copies(policy: Path, tmp_path: Path) -> Iterator[list[Ledger]]:
    """A ledger and a copy of its file under the same name elsewhere, as two containers see it, both open."""
    known = replace(read(policy), budgets=None)
    place = policy.with_name("policy.ledger.sqlite")
    copy = Path(shutil.copy(place, tmp_path))
    shutil.copy(place.with_name("policy.ledger.kept.sqlite"), tmp_path)
    with ExitStack() as stack:
        opened = []
        for at in (place, copy):
            opened.append(stack.enter_context(closing(open_ledger(at, known))))
            store = stack.enter_context(closing(open_answer_store(at, known.dataset)))
            Witness().compare(str(place), opened[-1], store)
        yield opened


def spend_on(ledger: Ledger) -> None:
    ledger.charge(Posting(Act.CHARGE, PureEvent(1)))


def test_a_copy_of_a_file_under_the_same_path_is_found_with_the_next_entry(copies: list[Ledger]) -> None:
    one, copy = copies
    spend_on(one)
    with pytest.raises(IntegrityError, match="had 2 entries when it was last used, and those are not"):
        spend_on(copy)
    spend_on(one)
    assert [len(list(each.entries())) for each in copies] == [3, 1]


def test_a_process_that_is_killed_has_told_how_far_its_ledger_was(copies: list[Ledger], policy: Path) -> None:
    """Only the end of a process told it: an older copy was taken after a crash."""
    spend_on(copies[0])
    assert Witness().count_entries(str(policy.with_name("policy.ledger.sqlite"))) == 2
