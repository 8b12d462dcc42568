"""Files that are whole or not there: every file deniable writes comes into being here.

A file is written under a temporary name in its own folder, flushed to the disk, and renamed at the end. A killed
process, a full disk or a failing producer therefore leaves the old file, or none, under the final name; never half of
one. A refusal of the disk becomes a StorageError that names the folder and the remedy, and no content.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn
from weakref import WeakKeyDictionary

from deniable.errors import ParameterError, StorageError, nearest

try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, FAR, os.SEEK_SET)  # behind all that is written, so that it can be read meanwhile
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError as refusal:
            raise BlockingIOError(errno.EAGAIN, refusal.strerror) from None
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)

    POSIX = False
else:

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    POSIX = True

FAR = 1 << 30
"""The place of the byte that is locked where a lock is one of bytes."""
PRIVATE_FILE = 0o600
ROW_ENDINGS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""The format of rows that the end of a file's name asks for."""
_REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space, or write to another disk"),
    errno.EDQUOT: ("the quota is used up", "Free some space, or write to another disk"),
    errno.EFBIG: ("the file would exceed the size allowed", "Raise the limit on file sizes (ulimit -f)"),
    errno.EROFS: ("the disk is read-only", "Write to another folder"),
    errno.EACCES: ("there is no permission", "Change the folder's permissions, or write to another folder"),
    errno.EPERM: ("there is no permission", "Change the folder's permissions, or write to another folder"),
    errno.ENOENT: ("the folder does not exist", "Create the folder first"),
    errno.ENOTDIR: ("a part of the path is a file", "Write to another folder"),
    errno.EISDIR: ("there is a folder of that name", "Choose another name"),
    errno.ELOOP: ("links lead to one another in a circle", "Remove the link, or choose another name"),
    errno.ENAMETOOLONG: ("the name is too long", "Choose a shorter name"),
    errno.EIO: ("the disk reported an error", "Check the disk"),
}


_FORMULA = re.compile(r"[=@\t\r]|[+-].", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?")


STATE_VARIABLE = "DENIABLE_STATE"
ACCEPTED = "accepted.json"
"""The policies that stewards accepted, in the user's own state: a file beside the policy would go when it is moved."""


def place_state(name: str) -> Path:
    """Where a file of the user's own state is."""
    told = os.environ.get(STATE_VARIABLE)
    return (Path(told) if told else Path.home() / ".deniable") / name


def escape_formula(text: str) -> str:
    """A text as a CSV file may hold it: one that a spreadsheet would run as a formula gets a quote before it.

    So does one that is such a text after quotes of its own, so that `unescape_formula` tells all of them apart.

    >>> escape_formula("=1+1"), escape_formula("'=1+1"), escape_formula("-5"), escape_formula("plain")
    ("'=1+1", "''=1+1", '-5', 'plain')
    """
    plain = text.lstrip("'")
    return f"'{text}" if _FORMULA.match(plain) and not _NUMBER.fullmatch(plain) else text


def unescape_formula(text: str) -> str:
    """The text that `escape_formula` wrote so.

    >>> unescape_formula("'=1+1"), unescape_formula("''=1+1"), unescape_formula("'-5"), unescape_formula("plain")
    ('=1+1', "'=1+1", "'-5", 'plain')
    """
    return text[1:] if text.startswith("'") and escape_formula(text[1:]) == text else text


@contextmanager
def whole_file(path: Path, mode: int = PRIVATE_FILE) -> Iterator[BinaryIO]:
    """A binary file that appears under its name only when the block ends well.

    The data and the folder entry are flushed before the block returns, so that a power cut afterwards loses nothing.
    Only the owner can read it, unless `mode` says otherwise.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "note.txt") as file:
    ...         _ = file.write(b"whole")
    ...     (Path(folder) / "note.txt").read_bytes()
    b'whole'
    """
    refuse_input(path)
    temporary = path.with_name(f".{_shorten(path.name)}.{secrets.token_hex(6)}.part")
    with storage_errors(path):
        try:
            with open(_create_held(temporary, mode), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if POSIX:  # while it is held, so that nobody takes it for one that a killed process left
                    place_file(temporary, path)
            if not POSIX:
                place_file(temporary, path)
            flush_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


_watchers: dict[tuple[str, str], Callable[[Path], None]] = {}


def _name_place(path: Path) -> tuple[str, str]:
    return os.path.realpath(path.parent), path.name


def watch_place(path: Path, watcher: Callable[[Path], None] | None) -> None:
    """From now on let somebody see each file that is to get this name before it gets it; None ends that."""
    _watchers.pop(_name_place(path), None)
    if watcher is not None:
        _watchers[_name_place(path)] = watcher


def place_file(waiting: Path, path: Path) -> None:
    """Give a file that is whole its name, instead of what has it."""
    if _watchers and (watcher := _watchers.get(_name_place(path))) is not None:
        watcher(waiting)
    os.replace(waiting, path)


def _create_held(temporary: Path, mode: int) -> int:
    """A new file that this process holds until it is closed; Windows removes no file that is open."""
    while True:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        if not POSIX:
            return descriptor
        with suppress(OSError):  # whoever removes it now holds it, or this disk knows no locks
            lock_descriptor(descriptor)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


_UNFINISHED = re.compile(r"\.[0-9a-f]{12}\.part")


def remove_unfinished(*paths: Path) -> None:
    """Remove what killed processes left of files that they were writing, and of tries of the disk beside them."""
    for path in paths:
        begun = f".{_shorten(path.name)}"
        for left in path.parent.glob(".*.part"):
            if _UNFINISHED.fullmatch(left.name.removeprefix(begun)):
                _remove_unheld(left)


def _remove_unheld(left: Path) -> None:
    """Remove a file that no process holds; Windows refuses it while one has it open."""
    with suppress(OSError):
        if not POSIX:
            left.unlink()
            return
        descriptor = os.open(left, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            lock_descriptor(descriptor)
            left.unlink()
        finally:
            os.close(descriptor)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a refusal of the disk inside the block into a StorageError about this path."""
    try:
        yield
    except OSError as refusal:
        _refuse(refusal, path)


def refuse_full(folder: Path) -> None:
    """Refuse a folder whose disk takes no more: some bytes are written there, flushed and let go of."""
    _refuse_full(folder, folder, ROOM)


ROOM = 65536
"""Bytes that some entries of a ledger need."""
PROBE = 4096
"""Bytes that no disk has room for which is full."""


LONGEST_NAME = 200
"""Bytes of the name of an output: what stands beside it, and what it is written under first, have longer ones."""


def refuse_unwritable(
    path: Path | None, *, rows: bool = False, also: Sequence[str] = (), beside: Iterable[Path] = ()
) -> None:
    """Refuse a place where no file can be written: asked before a charge, so that nothing is paid for in vain.

    For `rows` the name must also say in which format, which may `also` be one of these endings. `beside` are other
    files that the same work reads or writes. None is no file, and fine.
    """
    if path is None:
        return
    refuse_odd(path)
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise ParameterError(
            f"the name of a file has more than {LONGEST_NAME} bytes", remedy="Choose a shorter name for the output"
        )
    refuse_input(path)
    refuse_name(path, beside)
    if path.suffix.lower() in (".yaml", ".yml") and path.exists():
        raise ParameterError(f"'{path.name}' exists, and looks like a policy", remedy="Choose another name")
    if path.is_file() and _read_start(path) == SQLITE:
        raise ParameterError(f"'{path.name}' is a database, such as a ledger", remedy="Choose another name")
    endings = [*ROW_ENDINGS, *also]
    if rows and path.suffix.lower() not in endings:
        *others, last = [".csv", ".parquet", ".arrow", *also]
        raise ParameterError(
            f"'{path.name}' cannot be written",
            expected=f"Files are written as {', '.join(others)} or {last}",
            remedy=nearest(path.suffix, endings),
        )
    refuse_place(path)
    _refuse_full(path, path.parent, PROBE)


def refuse_place(path: Path) -> None:
    """Refuse a name in no folder, or one that is there and neither a regular file nor a link to one."""
    if not path.parent.is_dir():
        _refuse(OSError(errno.ENOENT, ""), path)
    if path.is_dir():
        _refuse(OSError(errno.EISDIR, ""), path)
    refuse_odd(path)
    if _is_device_folder(path.parent):
        _refuse_device(path)


def refuse_odd(path: Path) -> None:
    """Refuse a path that can be neither a file nor a folder, whether it is to be read or written; nothing is opened."""
    try:
        mode = os.stat(path).st_mode
    except ValueError:
        raise ParameterError(
            "a path holds a NUL character, which none may have", remedy="Choose another name"
        ) from None
    except OSError as refusal:
        if refusal.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            reason, remedy = _REASONS[refusal.errno]
            raise ParameterError(f"'{path.name[:60]}' can be no file: {reason}", remedy=remedy) from None
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        _refuse_device(path)


def refuse_pipe(text: str) -> None:
    """Refuse a text that is the name of a pipe, where it may be that of a file: to open it could take for ever."""
    with suppress(OSError, ValueError):
        if not stat.S_ISFIFO(os.stat(text).st_mode) or _is_device_folder(Path(text).parent):
            return
        _refuse_device(Path(text))


def _refuse_device(path: Path) -> NoReturn:
    raise ParameterError(
        f"'{path.name}' is no file but a device, a pipe or the like",
        expected="A new name, or the name of a file or of a link to one",
        remedy="Choose another name",
    )


def _is_device_folder(folder: Path) -> bool:
    """Whether names in a folder are those of devices, even where they lead to a file, as `/dev/stdout` may."""
    real = Path(os.path.realpath(folder)).as_posix()
    return real == "/dev" or real.startswith(("/proc/", "/sys/"))


def _refuse_full(path: Path, folder: Path, size: int) -> None:
    """Refuse a path where so many bytes cannot be written in a folder."""
    probe = folder / f".{secrets.token_hex(6)}.part"
    with storage_errors(path):
        try:
            with open(_create_held(probe, PRIVATE_FILE), "wb") as file:
                file.write(os.urandom(size))
                file.flush()
                os.fsync(file.fileno())
        finally:
            probe.unlink(missing_ok=True)


def refuse_other_than_page(path: Path | None) -> None:
    """Refuse a file that is there and is no page (HTML): it may be a table or a release, and would be lost."""
    _refuse_other(path, "a page (HTML)", (b"<!doctype html", b"<html"))


def refuse_other_than_json(path: Path | None) -> None:
    """Refuse a file that is there and is no JSON document: it may be a table, and would be lost."""
    _refuse_other(path, "a JSON document", (b"{", b"["))


def _refuse_other(path: Path | None, what: str, beginnings: tuple[bytes, ...]) -> None:
    if path is not None:
        refuse_place(path)
    begun = b"" if path is None or not path.is_file() else _read_start(path).strip().lower()
    if path is not None and begun and not begun.startswith(beginnings):
        raise ParameterError(
            f"'{path.name}' exists, and is not {what}: it would be lost",
            expected=f"A new name, or the name of {what} to replace",
            remedy="Choose another name",
        )


SQLITE = b"SQLite format 3\0"
"""How the files of SQLite begin."""
_inputs: WeakKeyDictionary[object, tuple[Path, ...]] = WeakKeyDictionary()


def _read_start(path: Path) -> bytes:
    with storage_errors(path), path.open("rb") as file:
        return file.read(len(SQLITE))


def hold_inputs(owner: object, paths: Iterable[Path]) -> None:
    """Note the files that somebody reads: until it lets go of them, nothing is written over them."""
    _inputs[owner] = tuple(paths)


def release_inputs(owner: object) -> None:
    """Let go of the files that somebody read."""
    _inputs.pop(owner, None)


def refuse_input(path: Path) -> None:
    """Refuse to write over what somebody reads."""
    held = (each for paths in list(_inputs.values()) for each in paths)
    if path.exists() and any(each.exists() and each.samefile(path) for each in held):
        raise ParameterError(f"'{path.name}' is read by this work, and would be lost", remedy="Choose another name")


def write_whole(path: Path, content: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a small file in one piece."""
    with whole_file(path, mode) as file:
        file.write(content)


def describe_refusal(refusal: OSError) -> str:
    """Why the system refused to write, in words."""
    return _REASONS.get(refusal.errno or 0, ("the system refused", ""))[0]


def _refuse(refusal: OSError, path: Path) -> NoReturn:
    reason, remedy = _REASONS.get(refusal.errno or 0, ("the system refused", "Write to another folder"))
    name = _STAGED.sub(r"\1\3", path.name)
    raise StorageError(f"'{name}' could not be written in '{path.parent}': {reason}", remedy=remedy) from None


def stage_file(path: Path) -> Path:
    """Where rows are written until they may leave: beside the output, with its ending, and hidden."""
    return path.with_name(f".{path.name}.unreleased{path.suffix}")


_STAGED = re.compile(r"\A\.(.*?(\.[^.]*)?)\.unreleased(?(2)\2)(.*)\Z", re.DOTALL)
"""The name of a staged file, or of what stands beside one: a refusal names the output, which the user knows."""


LOCK = ".lock"
"""The file that a process holds while it works in a folder."""


class Locked(StorageError):
    """Another process holds the lock of a file or a folder."""


@contextmanager
def lock_folder(folder: Path, what: str) -> Iterator[None]:
    """Let one process at a time work on something in a folder; the lock ends with the process."""
    busy = Locked(f"another process works on {what}", remedy="Wait for it to end")
    descriptor = _take_lock(folder / LOCK, folder, busy)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def lock_output(path: Path | None) -> Iterator[None]:
    """Let one process at a time write a file with what stands beside it; the lock ends with the process."""
    if path is None:
        yield
        return
    lock = path.with_name(f".{_shorten(path.name)}.lock")
    remedy = "Wait for it to end, or write to another file"
    descriptor = _take_lock(lock, path, Locked(f"another process writes '{path.name}'", remedy=remedy))
    try:
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _shorten(name: str) -> str:
    """A name that fits in a longer one: a long name by its beginning and its digest, so that no two have the same."""
    return name if len(name) <= 100 else f"{name[:60]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


def refuse_name(path: Path, others: Iterable[Path]) -> None:
    """Refuse a name that is that of another file of the same work."""
    if any(path.resolve() == each.resolve() for each in others):
        raise ParameterError(
            f"'{path.name}' is the name of two files of this work, and one would be lost", remedy="Choose another name"
        )


def _take_lock(lock: Path, where: Path, busy: StorageError) -> int:
    """The descriptor of a lock file that this process holds now; refuses with `busy` while another one does."""
    with storage_errors(where):
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
    try:
        lock_descriptor(descriptor)
        if not os.fstat(descriptor).st_nlink:  # whoever held it removed it: another one may hold a new file by now
            raise BlockingIOError
    except BlockingIOError:
        os.close(descriptor)
        raise busy from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def lock_descriptor(descriptor: int) -> None:
    """Hold an open file for this process alone until it is closed; a BlockingIOError says that another holds it."""
    _lock(descriptor)


def is_open_to_others(status: os.stat_result) -> bool:
    """Whether the mode of a file lets others than its owner in.

    Windows keeps no such mode: its files belong to the user whose folder they are in, and every mode it shows is open.
    """
    return hasattr(os, "geteuid") and bool(stat.S_IMODE(status.st_mode) & 0o077)


def is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to the user of this process; where files name no owner, it does."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def give_name(file: Path, name: Path) -> None:
    """Give a whole file a second name, which no file may have; on a disk without links by a copy."""
    try:
        os.link(file, name)
    except FileExistsError:
        raise
    except (OSError, AttributeError):
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))  # the name is taken, for us
        with file.open("rb") as held, whole_file(name) as copy:
            shutil.copyfileobj(held, copy)


def flush_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut."""
    # The rename itself lives in the folder; some systems cannot open folders, and there the rename is already safe.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
