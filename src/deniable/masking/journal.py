"""The work journal: what of a long job is done, so that a killed process can go on and nothing half-written is seen.

Beside the output stands a hidden folder while the work lasts: `job.json` says what job it is, and each finished part
has its file and a receipt. Parts and receipts appear whole or not at all, the receipt last; what has a receipt is done.
The output itself appears under its name only when all parts are there. A job is its policy, masks, keys (by check
value), data version and format: a journal of another job is never continued.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deniable.errors import KeyUnavailable, StorageError
from deniable.storage import storage_errors, write_whole


@dataclass(frozen=True, slots=True)
class Job:
    """What must be equal for parts to belong together; everything in it is public."""

    table: str
    policy_hash: str
    data_version: str
    masks: Mapping[str, str]
    keys: Mapping[str, str]
    format: str
    part_rows: int
    version: str

    def as_dict(self) -> dict[str, object]:
        """The plain shape that is kept in the journal."""
        return {name: dict(v) if isinstance(v := getattr(self, name), Mapping) else v for name in self.__slots__}

    @property
    def fingerprint(self) -> str:
        """A digest of the whole."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Journal:
    """The folder of one job."""

    folder: Path
    suffix: str

    def part(self, number: int) -> Path:
        """Where part number so-and-so is, or will be."""
        return self.folder / f"{number:06d}{self.suffix}"

    def done(self, number: int) -> int | None:
        """How many rows a finished part has, or None; a part that was moved away is not finished anymore."""
        if not self.part(number).exists():
            return None
        try:
            return int(json.loads(self._receipt(number).read_bytes())["rows"])
        except FileNotFoundError:
            return None

    def finish(self, number: int, rows: int) -> None:
        """Say that a part is complete."""
        write_whole(self._receipt(number), json.dumps({"rows": rows}).encode())

    def _receipt(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"


def folder_for(target: Path) -> Path:
    """Where the journal of an output lives while the work lasts."""
    return target.with_name(f".{target.name}.work")


@contextmanager
def opened(target: Path, job: Job, suffix: str, *, fresh: bool = False) -> Iterator[Journal]:
    """The journal of a job: continued if it is this job's, begun anew if not; removed when the work is complete.

    A second process on the same output is refused while the first one works.
    """
    folder = folder_for(target)
    with storage_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder):
        if fresh or not _same_job(folder, job):
            _emptied(folder)
            write_whole(folder / "job.json", json.dumps(job.as_dict(), indent=2).encode())
        yield Journal(folder, suffix)
    shutil.rmtree(folder, ignore_errors=True)


def _same_job(folder: Path, job: Job) -> bool:
    """Whether the folder holds this job. The same job under another key is refused: its parts would not join."""
    try:
        kept = json.loads((folder / "job.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    if kept == job.as_dict():
        return True
    wrong = [name for name, check in job.keys.items() if kept.get("keys", {}).get(name, check) != check]
    if wrong and {**kept, "keys": {}} == {**job.as_dict(), "keys": {}}:
        raise KeyUnavailable(
            f"wrong key '{wrong[0]}': the unfinished work on this output was begun with another one",
            remedy="Give the key it was begun with, or start over with --fresh. Nothing was written",
            key=wrong[0],
        )
    return False


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise StorageError(
            f"another process is writing this output (its work is in '{folder.name}')", remedy="Wait for it to end"
        ) from None
    finally:
        os.close(descriptor)


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "lock":
            path.unlink()
