"""All files of one run are one set: anew together, or all as they were, also where a process is killed.

What was there before has a second, hidden name while a run writes. A journal, a hidden file in each folder of the run,
names what the run writes there and whether it was there before, and gets a mark of each new file before that gets its
name. The one in the first folder decides: it is written before the first change, and the set counts from the step that
removes it. The next run that writes to any file of a journal puts all of them back where that one is still there. What
has no mark there is not of the killed run: somebody else wrote it since, and it stays.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from deniable.errors import ParameterError, StorageError
from deniable.storage import (
    POSIX,
    Locked,
    flush_folder,
    is_own,
    lock_descriptor,
    lock_output,
    refuse_input,
    refuse_name,
    refuse_odd,
    refuse_other_than_page,
    refuse_place,
    refuse_unwritable,
    remove_unfinished,
    stage_file,
    storage_errors,
    watch_place,
    write_whole,
)

LOG = logging.getLogger(__name__)
COMPANIONS = (".release.json", ".recoding.json", ".model.json")
"""How the names of files end that stand beside an output: its statement, its recoding, its model."""
WRITTEN: ContextVar[list[str] | None] = ContextVar("deniable_written", default=None)
"""Where whoever watches is told of the outputs that were written whole."""


_FORM = re.compile(rb'\s*\{\s*"form(at)?"\s*:\s*"deniable ')
_DIGEST = re.compile(rb'\s*\{\s*"sha256"\s*:')
"""How recodings and models begin, and statements, which the rest of them tells from other files."""


def list_companions(path: Path) -> list[Path]:
    """The files that may stand beside an output."""
    return [path.with_name(path.name + ending) for ending in COMPANIONS]


Mark = tuple[str, int, int, int, int]
"""A new file: its name, and the device, the number, the size and the time of change that it had as it waited."""


def _refuse_other_companion(path: Path, output: Path) -> None:
    """Refuse a file beside an output that deniable did not write, as its content shows: it would be lost."""
    if os.path.lexists(path) and not (path.exists() and _is_companion(path)):
        raise ParameterError(
            f"'{path.name}' exists, and is no file that deniable wrote beside an output: it would be lost",
            expected=f"That name is for a file that belongs to '{output.name}'",
            remedy="Give it another name, or choose another name for the output",
        )


def _is_companion(path: Path) -> bool:
    with storage_errors(path), path.open("rb") as file:
        start = file.read(100)
        if _FORM.match(start):
            return True
        if _DIGEST.match(start):
            with suppress(ValueError, RecursionError):
                body = json.loads(start + file.read())
                return isinstance(body.get("statement"), dict)
    return False


class Journal:
    """What a run writes, by folder, and what of it was there before; while its first part is there, nothing counts."""

    def __init__(self) -> None:
        self.name = f".outputs-{secrets.token_hex(8)}.journal"
        self._folders: list[Path] = []
        self._marks: dict[Path, list[Mark]] = {}
        self._lock: int | None = None

    def write(self, files: Mapping[Path, bool]) -> None:
        """Note all files that a run has held so far, before it changes any of the new ones."""
        parts: dict[Path, dict[str, bool]] = {folder: {} for folder in self._folders}
        for path, there in files.items():
            parts.setdefault(Path(os.path.realpath(path.parent)), {})[path.name] = there
        self._folders = list(parts)
        for place, (folder, held) in reversed(list(enumerate(parts.items()))):
            body = {"folders": [_describe_folder(each, folder) for each in parts], "place": place, "files": held}
            if not place:
                self._let_go()
            lines = (json.dumps(each) for each in (body, *self._marks.get(folder, ())))
            write_whole(folder / self.name, "".join(f"{line}\n" for line in lines).encode())
        first = self._folders[0] / self.name
        self._lock = _hold_part(first)
        if self._lock is None:  # another process puts it back
            raise _refuse_busy(next(iter(files)))

    def mark(self, path: Path, waiting: Path) -> None:
        """Note by what a new file is known again that is about to get its name."""
        folder, found = Path(os.path.realpath(path.parent)), waiting.stat()
        mark: Mark = (path.name, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        self._marks.setdefault(folder, []).append(mark)
        with storage_errors(path), open(os.open(folder / self.name, os.O_WRONLY | os.O_APPEND), "ab") as part:
            part.write(f"{json.dumps(mark)}\n".encode())
            part.flush()
            os.fsync(part.fileno())

    def find_marks(self, path: Path) -> Sequence[Mark]:
        """The marks of new files in the folder of this one."""
        return self._marks.get(Path(os.path.realpath(path.parent)), ())

    def remove(self, *, whole: bool) -> None:
        """Let the set count where it is `whole`: from the first step on; else forget it, after all was put back."""
        self._let_go()
        for folder in self._folders if whole else reversed(self._folders):
            (folder / self.name).unlink(missing_ok=True)
            flush_folder(folder)
        self._folders = []

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def _hold_part(part: Path) -> int | None:
    """The descriptor of a part of a journal that this process alone holds now; None while another one does."""
    descriptor = os.open(part, os.O_RDWR)
    try:
        lock_descriptor(descriptor)
    except BaseException as refusal:
        os.close(descriptor)
        if isinstance(refusal, BlockingIOError):
            return None
        raise
    return descriptor


def _refuse_busy(path: Path) -> Locked:
    return Locked(f"another process writes '{path.name}'", remedy="Wait for it to end, or write to another file")


def _read_part(part: Path) -> Mapping[str, Any]:
    """What a part of a journal says; one of another user, or of no journal of ours, says nothing."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        if not part.is_symlink() and is_own(part.stat()):
            first, *lines = part.read_bytes().splitlines()
            body = json.loads(first)
            names = list(body["files"])
            folders = [(str(way), str(whole), int(number)) for way, whole, number in body["folders"]]
            if all(Path(name).name == name for name in names) and len(folders) > body["place"] >= 0:
                return {**body, "marks": list(_read_marks(lines))}
    return {"folders": [], "place": 0, "files": {}, "marks": []}


def _read_marks(lines: Iterable[bytes]) -> Iterator[Mark]:
    for line in lines:
        with suppress(ValueError):  # a process was killed within the last line: its file has no name yet
            name, device, number, size, changed = json.loads(line)
            yield str(name), int(device), int(number), int(size), int(changed)


def _describe_folder(folder: Path, start: Path) -> tuple[str, str, int]:
    """The way to a folder from another one, its whole path, and its number on the disk."""
    try:
        way = os.path.relpath(folder, start)
    except ValueError:  # on another drive of Windows
        way = str(folder)
    return way, str(folder), folder.stat().st_ino


def _find_folders(part: Path, body: Mapping[str, Any], path: Path) -> list[Path]:
    """Where the folders of a journal are by now, from the folder of one part, which may have been moved with them."""
    own, found = Path(os.path.realpath(part.parent)), list[Path]()
    for place, (way, whole, number) in enumerate(body["folders"]):
        tried = [own] if place == body["place"] else [Path(os.path.realpath(own / way)), Path(whole)]
        there = [each for each in tried if each == own or os.path.lexists(each / part.name)]
        there += [each for each in tried if each.is_dir() and each.stat().st_ino == number]  # its part is gone
        if not there:
            raise StorageError(
                f"a run that was killed wrote '{path.name}' together with files in '{whole}', which is not there now",
                expected="All of them are to be put back together, and what was there before is kept until then",
                remedy=f"Move that folder back, or remove '{part}' to keep the files that are there now",
            )
        found.append(there[0])
    return found


def _finish_journal(part: Path, path: Path) -> None:
    """Put back all files of a killed run, by one part of its journal, or forget that part where they all count."""
    folders = _find_folders(part, _read_part(part), path)
    try:
        lock = _hold_part(first := folders[0] / part.name)
    except FileNotFoundError:
        part.unlink(missing_ok=True)
        return
    if lock is None:
        raise _refuse_busy(path)
    try:
        if not os.fstat(lock).st_nlink:  # another run has put all back meanwhile
            return
        folders = _find_folders(first, _read_part(first), path)
        for folder in reversed(folders):
            told = _read_part(folder / part.name)
            for name, there in reversed(told["files"].items()):
                _undo(folder / name, there, told["marks"])
            flush_folder(folder)
            if folder != folders[0]:
                (folder / part.name).unlink(missing_ok=True)
        if POSIX:  # while it is held, so that nobody takes it for one that is to be put back
            first.unlink(missing_ok=True)
    finally:
        os.close(lock)
    first.unlink(missing_ok=True)


class Outputs:
    """All files that one run writes: anew together, or all as they were."""

    def __init__(self) -> None:
        self._locks = ExitStack()
        self._files: dict[Path, list[Path]] = {}
        self._inputs: list[Path] = []
        self._held: dict[Path, bool] = {}
        self._journal = Journal()
        self._dropped: dict[Path, Path] = {}

    def claim(self, files: Sequence[Path], pages: Sequence[Path], beside: Iterable[Path], **form: Any) -> None:
        """Refuse files that cannot be written, with what stands beside them; take their locks."""
        self._inputs += [each.absolute() for each in beside]
        before = set(self._files)
        for place, path in enumerate((*files, *pages)):
            refuse_odd(path)
            refuse_input(path)
            group, asked = (list_companions(path), form) if place < len(files) else ([], {})
            if path.absolute() in before and len(self._files[path.absolute()]) == 1 + len(group):
                continue
            refuse_name(path, (each for claimed in self._files.values() for each in claimed))
            refuse_unwritable(path, beside=self._inputs, **asked)
            if place >= len(files):
                refuse_other_than_page(path)
            for each in group:
                refuse_name(each, self._files)
                refuse_input(each)
                refuse_place(each)
            self._locks.enter_context(lock_output(path))
            self._files[path.absolute()] = [path, *group]
            _finish_killed([path, *group])
            for each in group:
                _refuse_other_companion(each, path)

    def hold(self) -> None:
        """Keep what is there of all files, and beside them, under a second name by which it can be put back."""
        groups = self._files.values()
        new = {each: os.path.lexists(each) for group in groups for each in group if each not in self._held}
        if not new:
            return
        self._held |= new
        self._journal.write(self._held)
        for path in new:
            watch_place(path, partial(self._journal.mark, path))
        for path, there in new.items():
            if there:
                _keep_earlier(path)

    def put_back(self) -> None:
        """Give files that were held their names again, and remove new ones; the next run does what the disk refuses."""
        with suppress(OSError):
            for path, there in reversed(self._held.items()):
                marks = self._journal.find_marks(path)
                _undo(path, there, marks if any(path.name == name for name, *_ in marks) else None)
            self._journal.remove(whole=False)

    def settle(self) -> None:
        """Let what is there now stay, whatever comes; where an interruption came in between, it is heard afterwards."""
        interrupted = [_persist(work) for work in (self._drop, self._count, self._tell, self._let_go)]
        if any(interrupted):
            raise KeyboardInterrupt

    def _drop(self) -> None:
        """Remove what stood beside an earlier output and is not of the new one."""
        for path, *group in self._files.values():
            if path in self._held and os.path.lexists(path) and not _is_unchanged(path):
                for each in group:
                    if _is_unchanged(each) and each.absolute() not in self._inputs:
                        self._dropped[each] = path
                        each.unlink(missing_ok=True)
        for path in self._held:
            if path not in self._dropped and not os.path.lexists(path):
                _restore(path)  # it is not there anew, and stays

    def _count(self) -> None:
        """Let the new files count, all in one step."""
        for path in list(self._held)[:1]:
            with storage_errors(path):
                self._journal.remove(whole=True)

    def _tell(self) -> None:
        """Tell whoever watches which outputs were written, and the log what was removed beside them."""
        if (told := WRITTEN.get()) is not None:
            held = (path for path, *_ in self._files.values() if path in self._held)
            written = [str(path) for path in held if path.exists() and not _is_unchanged(path)]
            told += [each for each in written if each not in told]
        for each, path in self._dropped.items():
            LOG.warning("Removed %s: deniable wrote it, and not for the new '%s'.", each, path.name)

    def _let_go(self) -> None:
        """Forget what was there before."""
        for path in self._held:
            watch_place(path, None)
            with suppress(OSError):
                _place_earlier(path).unlink(missing_ok=True)
        self._held, self._dropped, self._journal = {}, {}, Journal()

    def close(self) -> None:
        """Remove what did not leave, and let go of the locks."""
        for path in self._held:
            watch_place(path, None)
        for path, *_ in self._files.values():
            _remove_staged(path)
        self._locks.close()


_run: ContextVar[Outputs | None] = ContextVar("deniable_outputs", default=None)


@contextmanager
def claim_outputs(
    *files: Path | None, pages: Iterable[Path | None] = (), beside: Iterable[Path] = (), **form: Any
) -> Iterator[Outputs]:
    """Check all files that a run will write, and hold their locks until it ends; ask for it before a charge.

    `form` is as in `refuse_unwritable`. `beside` are files that are read. A run inside another is a part of it: where
    the outer one ends well, all files are anew with what stands beside them; where it fails, all are as they were.
    """
    if (outer := _run.get()) is not None:
        outer.claim([each for each in files if each], [each for each in pages if each], beside, **form)
        yield outer
        return
    run = Outputs()
    token = _run.set(run)
    try:
        run.claim([each for each in files if each], [each for each in pages if each], beside, **form)
        yield run
        run.settle()
    except BaseException:
        _persist(run.put_back)
        raise
    finally:
        _run.reset(token)
        _persist(run.close)


def settle_outputs() -> None:
    """Let the files of the run stay that were written so far: before anything is told of them."""
    if (run := _run.get()) is not None:
        run.settle()


@contextmanager
def replace_files(*files: Path | None, pages: Iterable[Path | None] = ()) -> Iterator[None]:
    """All files anew with what stands beside them, or all as they were, even where an interruption ends the run.

    Where a process was killed before all was there, the next run that writes to one of them puts all back.
    """
    with claim_outputs(*files, pages=pages) as run:
        run.hold()
        yield


def _place_earlier(path: Path) -> Path:
    """The hidden name of what was there before; one run at a time has it."""
    return path.with_name(f".earlier-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}")


def _keep_earlier(path: Path) -> None:
    """Give a file or a link a second name, its only one where it cannot have two."""
    kept = _place_earlier(path)
    with suppress(OSError):
        kept.symlink_to(os.readlink(path)) if path.is_symlink() else kept.hardlink_to(path)
        return
    with storage_errors(path):
        path.replace(kept)


def _restore(path: Path) -> None:
    if os.path.lexists(kept := _place_earlier(path)):
        kept.replace(path)
        kept.unlink(missing_ok=True)  # a file that was put back over itself still has both names


def _is_unchanged(path: Path) -> bool:
    """Whether what is there of a file is what was there before: nothing was written over it."""
    kept = _place_earlier(path)
    if not os.path.lexists(kept):
        return False
    if not os.path.lexists(path):
        return True
    if path.is_symlink() or kept.is_symlink():
        return path.is_symlink() and kept.is_symlink() and os.readlink(path) == os.readlink(kept)
    return path.samefile(kept)


def _undo(path: Path, there: bool, marks: Sequence[Mark] | None) -> None:
    """Let a file be as it was before a run: it may be so already. What is not of that run stays as it is.

    Without marks it is of the run: a writer that is not ours wrote it, and the run has gone on until now.
    """
    if marks is None or _is_marked(path, marks):
        path.unlink(missing_ok=True) if not there else _restore(path)
    elif not os.path.lexists(path):
        _restore(path)
    _place_earlier(path).unlink(missing_ok=True)


def _is_marked(path: Path, marks: Iterable[Mark]) -> bool:
    """Whether what is there is a new file of a run, and was not changed since.

    On another device, as after a disk was connected anew or copied, files have other numbers.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    known = (path.name, found.st_size, found.st_mtime_ns)
    return stat.S_ISREG(found.st_mode) and any(
        (name, size, changed) == known and (number == found.st_ino or device != found.st_dev)
        for name, device, number, size, changed in marks
    )


def _finish_killed(paths: Sequence[Path]) -> None:
    """Put back what a killed run held of an output, with all else of that run, and remove what it left."""
    names = {path.name for path in paths}
    with storage_errors(paths[0]):
        for part in sorted(paths[0].parent.glob(".outputs-*.journal")):
            if names & set(_read_part(part)["files"]):
                _finish_journal(part, paths[0])
    for path in paths:
        with suppress(OSError):
            _place_earlier(path).unlink(missing_ok=True)
    _remove_staged(paths[0])
    staged = stage_file(paths[0])
    begun = (each.with_name(each.name[1:].rsplit(".", 2)[0]) for each in paths[0].parent.glob("..outputs-*.part"))
    remove_unfinished(*paths, staged, *list_companions(staged), *begun)


def _remove_staged(path: Path) -> None:
    for each in (stage_file(path), *list_companions(stage_file(path))):
        with suppress(OSError):
            each.unlink(missing_ok=True)


def _persist(work: Callable[[], None]) -> bool:
    """Do to its end what may be begun again, however often it is interrupted; says whether it was."""
    interrupted = False
    while True:
        try:
            work()
            return interrupted
        except KeyboardInterrupt:
            interrupted = True
