"""Files that are whole or not there: every file deniable writes comes into being here.

A file is written under a temporary name in its own folder, flushed to the disk, and renamed at the end. A killed
process, a full disk or a failing producer therefore leaves the old file, or none, under the final name; never half of
one. A refusal of the disk becomes a StorageError that names the folder and the remedy, and no content.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NoReturn

from deniable.errors import ParameterError, StorageError, nearest

try:
    import fcntl
except ImportError:  # Windows: nothing is swept there
    fcntl = None  # type: ignore[assignment]

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
    errno.EIO: ("the disk reported an error", "Check the disk"),
}


_FORMULA = re.compile(r"[=@\t\r]|[+-].")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?")


def escape_formula(text: str) -> str:
    """A text as a CSV file may hold it: one that a spreadsheet would run as a formula gets a quote before it.

    >>> escape_formula("=1+1"), escape_formula("-5"), escape_formula("plain")
    ("'=1+1", '-5', 'plain')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


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
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    with storage_errors(path):
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with open(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            _flush_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a refusal of the disk inside the block into a StorageError about this path."""
    try:
        yield
    except OSError as refusal:
        _refuse(refusal, path)


def refuse_unwritable(path: Path | None, *, rows: bool = False) -> None:
    """Refuse a place where no file can be written: asked before a charge, so that nothing is paid for in vain.

    For `rows` the name must also say in which format. None is no file, and fine.
    """
    if path is None:
        return
    if rows and path.suffix.lower() not in ROW_ENDINGS:
        raise ParameterError(
            f"'{path.name}' cannot be written",
            expected="Files are written as .csv, .parquet or .arrow",
            remedy=nearest(path.suffix, [*ROW_ENDINGS]),
        )
    if not path.parent.is_dir():
        _refuse(OSError(errno.ENOENT, ""), path)
    if path.is_dir():
        _refuse(OSError(errno.EISDIR, ""), path)
    probe = path.with_name(f".{secrets.token_hex(6)}.part")
    with storage_errors(path):
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        probe.unlink()


def write_whole(path: Path, content: bytes, mode: int = PRIVATE_FILE) -> None:
    """Write a small file in one piece."""
    with whole_file(path, mode) as file:
        file.write(content)


def _refuse(refusal: OSError, path: Path) -> NoReturn:
    reason, remedy = _REASONS.get(refusal.errno or 0, ("the system refused", "Write to another folder"))
    raise StorageError(f"'{path.name}' could not be written in '{path.parent}': {reason}", remedy=remedy) from None


def _flush_folder(folder: Path) -> None:
    # The rename itself lives in the folder; some systems cannot open folders, and there the rename is already safe.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


SCRATCH = "deniable-"
"""How the names of private folders begin."""
SETTLING_SECONDS = 60
"""A folder that is younger may still be without its lock."""
_locks: dict[Path, int] = {}
_swept: set[Path] = set()


def make_scratch(parent: str | None = None) -> Path:
    """A folder for copies and for what does not fit into memory, which only its owner can enter.

    It is locked for as long as the process lives. What killed processes left behind is removed.
    """
    with storage_errors(Path(parent or tempfile.gettempdir()) / SCRATCH):
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH, dir=parent))
        if fcntl is not None:
            if folder.parent not in _swept:
                _swept.add(folder.parent)
                sweep_scratch(folder.parent)
            _locks[folder] = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            fcntl.flock(_locks[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder


def remove_scratch(folder: Path) -> None:
    """Remove a private folder and let go of its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    descriptor = _locks.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def sweep_scratch(parent: Path) -> None:
    """Remove the private folders of ours whose processes ended without doing so: nobody holds their locks."""
    for folder in parent.glob(f"{SCRATCH}*"):
        with suppress(OSError):
            kept = folder.stat(follow_symlinks=False)
            old = time.time() - kept.st_mtime > SETTLING_SECONDS
            if stat.S_ISDIR(kept.st_mode) and kept.st_uid == os.geteuid() and old:
                _remove_unlocked(folder)


def _remove_unlocked(folder: Path) -> None:
    descriptor = os.open(folder / ".lock", os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)
