"""All files of one run are anew together or as they were, wherever its process is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import ParameterError, StorageError
from deniable.outputs import claim_outputs, replace_files
from deniable.storage import (
    Locked,
    lock_output,
    refuse_other_than_json,
    refuse_other_than_page,
    refuse_unwritable,
    stage_file,
    whole_file,
    write_whole,
)

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a run is killed in a fork")
STEPS = ("open", "replace", "unlink", "link", "symlink")
TOLD = ("x.csv", "x.csv.release.json", "totals.csv", "totals.csv.release.json", "pages/x.html")


def fill(name: str, word: str) -> bytes:
    """Content that a file of this name may have; what stands beside an output is refused where it is not of ours."""
    if name.endswith(".json"):
        return json.dumps({"form": f"deniable synthetic model, {word}"}).encode()
    return f"<html>{word}".encode() if name.endswith("html") else word.encode()


def write_anew(folder: Path) -> None:
    """A run of two outputs, and a page in a folder of its own."""
    outputs, page = (folder / "x.csv", folder / "totals.csv"), folder / "pages/x.html"
    with claim_outputs(*outputs, pages=[page]):
        with replace_files(*outputs):
            for name in TOLD[:-1]:
                write_whole(folder / name, fill(name, "new"))
        with replace_files(pages=[page]):
            write_whole(page, b"<html>new")


def run_until(step: int, work: Callable[[], None]) -> bool:
    """Do it in a process that is killed at one of its steps on the disk; whether it was."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    done = [0]

    def count(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any, **more: Any) -> Any:
            done[0] += 1
            if done[0] == step:
                os._exit(9)
            return real(*given, **more)

        return counted

    for name in STEPS:
        setattr(os, name, count(getattr(os, name)))
    try:
        work()
    finally:
        os._exit(0)


def read(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def find_hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("there", [(), ("x.csv",), TOLD, ("x.csv", "x.csv.model.json", "pages/x.html")], ids=len)
@pytest.mark.parametrize("next_one", ["x.csv", "totals.csv", "pages/x.html"])
def test_after_a_kill_at_any_step_a_run_that_is_refused_finds_all_new_or_all_as_it_was(
    tmp_path: Path, there: tuple[str, ...], next_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no power is cut here
    ends = set()
    for step in range(1, 1000):
        folder = tmp_path / str(step)
        (folder / "pages").mkdir(parents=True)
        for name in there:
            (folder / name).write_bytes(fill(name, "old"))
        old = read(folder)
        killed = run_until(step, lambda at=folder: write_anew(at))
        claimed: dict[str, Any] = {"pages": [folder / next_one]} if next_one.endswith("html") else {}
        with pytest.raises(ZeroDivisionError), claim_outputs(*([] if claimed else [folder / next_one]), **claimed):
            raise ZeroDivisionError
        found = read(folder)
        new = {name: fill(name, "new") for name in TOLD}
        assert found in (old, new), (step, found)
        ends.add(found == new)
        write_anew(folder)
        assert read(folder) == new
        assert find_hidden(folder) == [], step
        if not killed:
            break
    assert ends == {True, False}
    assert step > 40


def write_own(folder: Path, how: str) -> dict[str, bytes]:
    """What a user writes after a kill under the names of the run: in new files, in those that are there, or partly."""
    own = {}
    for name in TOLD[::2] if how == "some" else TOLD:
        path, own[name] = folder / name, fill(name, "own")
        own[name] += b"" if how == "same size" else b" table"
        if how == "in place" and path.exists():
            path.write_bytes(own[name])
            continue
        (folder / "mine").write_bytes(own[name])
        (folder / "mine").replace(path)
    return own


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("there", [(), TOLD], ids=len)
@pytest.mark.parametrize("how", ["anew", "in place", "same size", "some"])
def test_what_a_user_wrote_after_a_kill_stays_as_it_is(
    tmp_path: Path, there: tuple[str, ...], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever a run was killed, the next one removes and replaces its files alone, in all folders."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    for step in range(1, 1000):
        folder = tmp_path / str(step)
        (folder / "pages").mkdir(parents=True)
        for name in there:
            (folder / name).write_bytes(fill(name, "old"))
        killed = run_until(step, lambda at=folder: write_anew(at))
        own = write_own(folder, how)
        with pytest.raises(ZeroDivisionError), claim_outputs(folder / "x.csv"):
            raise ZeroDivisionError
        found = read(folder)
        assert {name: found[name] for name in own} == own, step
        with claim_outputs(folder / "totals.csv", pages=[folder / "pages/x.html"]):
            pass
        found = read(folder)
        assert {name: found[name] for name in own} == own, step
        if not killed:
            break


def test_a_folder_or_a_link_that_a_user_made_after_a_kill_stays(tmp_path: Path) -> None:
    def write_and_be_killed() -> None:
        with replace_files(tmp_path / "x.csv", tmp_path / "y.csv", tmp_path / "z.csv"):
            for name in "xyz":
                write_whole(tmp_path / f"{name}.csv", b"new")
            os._exit(9)

    (tmp_path / "x.csv").write_bytes(b"old")
    assert run_until(0, write_and_be_killed)
    for name in "xy":
        (tmp_path / f"{name}.csv").unlink()
    (tmp_path / "x.csv").mkdir()
    (tmp_path / "y.csv").symlink_to("mine")
    with claim_outputs(tmp_path / "z.csv"):
        pass
    assert (tmp_path / "x.csv").is_dir()
    assert os.readlink(tmp_path / "y.csv") == "mine"
    assert not (tmp_path / "z.csv").exists()


def test_a_run_that_goes_on_is_not_put_back_by_another_one(tmp_path: Path) -> None:
    with replace_files(tmp_path / "x.csv"):
        for name in TOLD[:2]:
            write_whole(tmp_path / name, fill(name, "new"))

        def claim_the_statement() -> None:
            try:
                with claim_outputs(tmp_path / "x.csv.release.json"):
                    os._exit(1)
            except Locked:
                os._exit(9)

        from deniable import outputs

        token = outputs._run.set(None)
        try:
            assert run_until(0, claim_the_statement)
        finally:
            outputs._run.reset(token)
    assert read(tmp_path) == {name: fill(name, "new") for name in TOLD[:2]}


def test_a_journal_names_no_file_of_a_folder_that_has_no_part_of_it(tmp_path: Path) -> None:
    """Whoever unpacks an archive with a journal in it loses no file elsewhere."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/x.csv").write_bytes(b"mine")
    (tmp_path / "out").mkdir()
    folders = [("elsewhere", "elsewhere", 0), ("../mine", str(tmp_path / "mine"), 0)]
    for files in ({"../mine/x.csv": False}, {"x.csv": False}):
        body = {"folders": folders, "place": 0, "files": files}
        (tmp_path / "out/.outputs-00.journal").write_text(json.dumps(body))
        with suppress(StorageError), claim_outputs(tmp_path / "out/x.csv"):
            pass
        assert (tmp_path / "mine/x.csv").read_bytes() == b"mine"


def write_apart(folder: Path) -> None:
    """A run with an output and a page in two folders."""
    output, page = folder / "a/x.csv", folder / "b/x.html"
    with claim_outputs(output, pages=[page]), replace_files(output, pages=[page]):
        write_whole(output, b"new")
        write_whole(page, b"<html>new")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("begun", ["a/x.csv", "b/x.html"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("moved", ["both", "a", "b"])
def test_folders_that_were_moved_after_a_kill_are_found_or_the_repair_waits_for_them(
    tmp_path: Path, moved: str, there: bool, begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    waited = 0
    for step in range(1, 1000):
        folder, now = tmp_path / str(step), tmp_path / f"{step} now"
        for name in "ab":
            (folder / name).mkdir(parents=True)
        if there:
            (folder / "a/x.csv").write_bytes(b"old")
            (folder / "b/x.html").write_bytes(b"<html>old")
        old = read(folder)
        killed = run_until(step, lambda at=folder: write_apart(at))
        if moved == "both":
            folder.rename(now)
        else:
            now = folder
            (folder / moved).rename(folder / "moved")
            (folder / moved).mkdir()
        if (now / begun).parent.exists() and moved != begun[0]:
            claimed: dict[str, Any] = {"pages": [now / begun]} if begun.endswith("html") else {}
            before = read(now)
            try:
                with claim_outputs(*([] if claimed else [now / begun]), **claimed):
                    pass
            except StorageError as refusal:
                refused = str(refusal)
                waited += 1
                assert (moved != "both", "together with files in" in refused, read(now)) == (True, True, before)
        if moved != "both":
            (folder / moved).rmdir()
            (folder / "moved").rename(folder / moved)
        with claim_outputs(now / "a/x.csv", pages=[now / "b/x.html"]):
            pass
        assert read(now) in (old, {"a/x.csv": b"new", "b/x.html": b"<html>new"}), step
        assert find_hidden(now) == [], step
        if not killed:
            break
    assert waited > 3 or moved in ("both", begun[0])


def test_what_killed_processes_were_writing_goes_and_what_others_write_stays(tmp_path: Path) -> None:
    left = [".0123456789ab.part", ".x.csv.0123456789ab.part", ".x.csv.release.json.0123456789ab.part"]
    left += ["..x.csv.unreleased.csv.0123456789ab.part"]
    for name in left:
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".mine.part").write_bytes(b"mine")
    with whole_file(tmp_path / "x.csv.release.json") as held:
        held.write(b"held")

        def claim() -> None:
            with claim_outputs(tmp_path / "x.csv"):
                pass

        run_until(0, claim)
    assert sorted(os.listdir(tmp_path)) == [".mine.part", "x.csv.release.json"]
    assert (tmp_path / "x.csv.release.json").read_bytes() == b"held"


@pytest.mark.parametrize("name", ["a.csv", "a"])
def test_a_refusal_names_the_output_and_no_file_of_ours(tmp_path: Path, name: str) -> None:
    for ending in ("", ".recoding.json"):
        staged = stage_file(tmp_path / name)
        staged = staged.with_name(staged.name + ending)
        staged.mkdir()
        with pytest.raises(StorageError, match=f"^'{name}{ending}' could not be written"):
            write_whole(staged, b"x")
        staged.rmdir()


def test_one_process_at_a_time_writes_an_output(tmp_path: Path) -> None:
    refuse_unwritable(tmp_path / "x.csv")
    with lock_output(tmp_path / "x.csv"), pytest.raises(Locked), claim_outputs(tmp_path / "x.csv"):
        pass


def test_outputs_whose_names_begin_alike_are_written_in_one_run(tmp_path: Path) -> None:
    first, second = (tmp_path / f"{'x' * 110}{end}.csv" for end in "ab")
    with claim_outputs(first, second), replace_files(first, second):
        write_whole(first, b"first")
        write_whole(second, b"second")
    with lock_output(first), lock_output(second), pytest.raises(Locked), lock_output(first):
        pass
    assert read(tmp_path) == {first.name: b"first", second.name: b"second"}
    assert find_hidden(tmp_path) == []


ODD = {"a pipe": "is no file but", "a loop": "in a circle", "a long name": "too long", "NUL": "NUL"}


def make_odd(folder: Path, kind: str) -> Path:
    path = folder / {"a pipe": "pipe.csv", "a loop": "loop.csv", "a long name": "x" * 300, "NUL": "a\0b"}[kind]
    if kind == "a pipe":
        os.mkfifo(path)
    if kind == "a loop":
        path.symlink_to(path.name)
    return path


@pytest.mark.parametrize("kind", ODD)
def test_what_can_be_no_file_is_refused_as_an_output(tmp_path: Path, kind: str) -> None:
    path = make_odd(tmp_path, kind)
    for claimed in ({"pages": [path]}, {"files": [path]}):
        with (
            pytest.raises(ParameterError, match=ODD[kind]),
            claim_outputs(*claimed.get("files", []), pages=claimed.get("pages", [])),
        ):
            pass
    with pytest.raises(ParameterError, match=ODD[kind]):
        refuse_unwritable(path)


@pytest.mark.parametrize("kind", ODD)
def test_what_can_be_no_file_is_refused_by_every_option_that_takes_a_path(tmp_path: Path, kind: str) -> None:
    import typer

    from deniable.cli.main import PlainValue, app

    path, commands, seen = make_odd(tmp_path, kind), [typer.main.get_command(app)], set[str]()
    while commands:
        command = commands.pop()
        commands += getattr(command, "commands", {}).values()
        for param in command.params:
            taken = getattr(getattr(param, "type_descriptor", None), "annotation", None)
            if taken not in (Path, list[Path]) and (taken is not str or kind != "a pipe"):
                continue
            value = [str(path)] if taken == list[Path] else str(path)
            with pytest.raises(ParameterError, match=ODD[kind]):
                PlainValue().coerce(value, param, typer.Context(command))
            seen.add(f"{command.name} {param.name}")
    assert {"attack resume", "synthesize out", "synthesize policy"} <= seen


def test_a_folder_is_no_page_and_no_state_of_attacks(tmp_path: Path) -> None:
    for refuse in (refuse_other_than_json, refuse_other_than_page):
        with pytest.raises(StorageError, match="folder of that name"):
            refuse(tmp_path)
