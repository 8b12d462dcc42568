"""Files are whole or not there: after failures, full disks and killed processes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deniable.engines.duckdb.connection import SCRATCH, make_scratch, remove_scratch, sweep_scratch
from deniable.engines.sources import write_rows
from deniable.errors import ParameterError, StorageError
from deniable.storage import (
    escape_formula,
    hold_inputs,
    refuse_unwritable,
    release_inputs,
    unescape_formula,
    whole_file,
    write_whole,
)


def test_the_name_appears_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    with whole_file(path) as file:
        file.write(b"half")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    write_whole(path, b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"new" * (1 // 0))
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_only_the_owner_can_read_a_file_unless_said_otherwise(tmp_path: Path) -> None:
    write_whole(tmp_path / "private", b"")
    write_whole(tmp_path / "public", b"", 0o644)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "public").stat().st_mode & 0o044 == 0o044


@pytest.mark.parametrize(
    ("place", "words"), [("nowhere/out", "folder does not exist"), ("file/out", "a part of the path is a file")]
)
def test_a_place_that_is_not_there_is_refused_with_the_remedy(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=words):
        write_whole(tmp_path / place, b"x")


def test_a_folder_of_that_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(StorageError, match="folder of that name"):
        write_whole(tmp_path / "out", b"x")
    assert os.listdir(tmp_path) == ["out"]


@pytest.fixture
def small_disk() -> Iterator[int]:
    """A limit of one megabyte on the size of files, as a disk that fills up while a file is written."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    yield 1_000_000
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_a_disk_that_fills_up_is_refused_and_leaves_nothing(tmp_path: Path, small_disk: int, ending: str) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [os.urandom(16).hex() for _ in range(20_000)]})
    with pytest.raises(StorageError, match="could not be written"):
        write_rows([batch] * 20, tmp_path / f"out.{ending}")
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_refused_in_plain_words() -> None:
    """The device that is always full: the refusal names the disk, not the data."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    from deniable.storage import storage_errors

    with pytest.raises(StorageError, match="the disk is full"), storage_errors(full), full.open("wb", 0) as file:
        file.write(b"secret")


def test_a_real_full_disk_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    """A disk of one megabyte in memory, mounted in a namespace of its own, which ends with the process in it."""
    program = """
        import os, pathlib, sys
        import pyarrow as pa
        from deniable.engines.sources import write_rows
        from deniable.errors import StorageError

        folder = pathlib.Path(sys.argv[1])
        try:
            write_rows(pa.table({"x": [os.urandom(16).hex() for _ in range(100_000)]}), folder / "out.csv")
        except StorageError as refusal:
            print(refusal.happened.partition(": ")[2], os.listdir(folder))
    """
    mounted = 'mount -t tmpfs -o size=1m tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    arguments = ["sh", "-c", mounted, "sh", str(tmp_path), sys.executable, textwrap.dedent(program)]
    try:
        ran = subprocess.run(
            ["unshare", "--mount", "--map-root-user", *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("this system has no unshare")
    if "unshare" in ran.stderr or ran.returncode == 77:
        pytest.skip("this process may not mount a small disk")
    assert (ran.stdout, ran.returncode) == ("the disk is full []\n", 0)


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    program = """
        import pathlib, sys
        import pyarrow as pa
        from deniable.engines.sources import write_rows

        def endless():
            while True:
                yield pa.RecordBatch.from_pydict({"x": list(range(10_000))})
                print("written", flush=True)

        write_rows(endless(), pathlib.Path(sys.argv[1]))
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "written\n"
    child.kill()
    child.wait()
    child.stdout.close()
    assert path.read_text() == "old"


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_uses_is_not(tmp_path: Path) -> None:
    program = (
        "import sys, time; from deniable.engines.duckdb.connection import make_scratch;"
        " print(make_scratch(sys.argv[1]), flush=True); time.sleep(60)"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    dead, living = (Path(child.stdout.readline().strip()) for child in children)  # type: ignore[union-attr]
    children[0].kill()
    children[0].wait()
    stranger = tmp_path / f"{SCRATCH}not-ours"
    stranger.mkdir()
    sweep_scratch(tmp_path)
    assert dead.exists(), "it is too young"
    for folder in (dead, living, stranger):
        os.utime(folder, (0, 0))
    sweep_scratch(tmp_path)
    assert not dead.exists()
    assert living.exists()
    assert stranger.exists(), "it has no lock of ours"
    children[1].kill()
    for child in children:
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]


def test_a_private_folder_ends_with_its_lock(tmp_path: Path) -> None:
    folder = make_scratch(str(tmp_path))
    assert folder.stat().st_mode & 0o777 == 0o700
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    for _ in range(20):
        remove_scratch(make_scratch(str(tmp_path)))
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    assert after == before
    remove_scratch(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_private_folder_that_cannot_be_made_is_refused_with_the_way_on(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no private folder can be made") as refused:
        make_scratch(str(tmp_path / "missing"))
    assert "TMPDIR" in refused.value.message


def test_files_that_are_read_are_held_until_they_are_let_go_of_or_their_owner_is_gone(tmp_path: Path) -> None:
    class Owner:
        pass

    path, owner, other = tmp_path / "table.csv", Owner(), Owner()
    path.write_text("a\n1\n")
    hold_inputs(owner, [path])
    hold_inputs(other, [path])
    release_inputs(owner)
    with pytest.raises(ParameterError, match="is read by this work"):
        write_whole(path, b"lost")
    del other
    write_whole(path, b"written")
    assert path.read_bytes() == b"written"


QUOTED = st.text(st.sampled_from("'=+-@\t\r\n1.,eE a"), max_size=6)


@given(text=QUOTED, other=QUOTED)
@example(text="=1", other="'=1")
@example(text="-\n=1", other="'-\n=1")
def test_the_quote_before_a_formula_can_be_undone(text: str, other: str) -> None:
    """Else two values of a release are one in its CSV file, or a value that was read back is another."""
    written = escape_formula(text)
    assert unescape_formula(written) == text
    assert (written == escape_formula(other)) == (text == other)
    assert written[:1] not in ("=", "@", "\t", "\r")


@pytest.mark.parametrize("name", ["x" * 197 + ".csv", "é" * 99 + ".csv", "🙂" * 50 + ".csv"], ids=("x", "e", "smile"))
def test_names_that_leave_no_room_for_what_stands_beside_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ParameterError, match="more than 200 bytes"):
        refuse_unwritable(tmp_path / name)
    short = tmp_path / (name[: len(name) - 8] + ".csv")
    refuse_unwritable(short)
    with whole_file(short) as file:
        file.write(b"1")
    assert short.read_bytes() == b"1"
