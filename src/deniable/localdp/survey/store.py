"""Where responses are kept: a folder of files that hold no order of arrival, not even when the server is killed.

A log, a journal, a B-tree and a row number all tell which record came when; two stores that do can be joined by order.
Here each record goes to a random free place of a file whose places are of one size and were all written when the file
was made: one write and one flush, after which the file is a set. It is whole or absent, since a place counts only with
its checksum. A full file is copied to a larger one, places drawn anew. Its first and last place say how many there are
between them, so that a file that was cut is known as such.

What stands at a place and is not whole was cut short by a kill, before anybody was thanked, or was changed afterwards.
Nobody can say which: such places are never used again, are counted, and every reader of results is told how many.

Invitations and responses are files of their own. What joins them is known to the respondent alone: see `service`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from deniable.dp.samplers import permutation, uniform_below
from deniable.errors import NO_BUDGET, IntegrityError, StorageError
from deniable.storage import give_name, lock_descriptor, storage_errors, whole_file, write_whole

KEY, CHECK, LENGTH, COUNT = 32, 16, 4, 8
HEAD = CHECK + KEY + LENGTH
FIRST_PLACES = 1024
FACTS, RESPONSES, INVITATIONS, LOCK = "survey.json", "responses", "invitations", "lock"
ENDS = ("first", "last")
"""The places of a file that hold no record."""
OWNER_ONLY = 0o700
WRITE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Arrival:
    """A checked response: the digest of its ticket, and what it says."""

    stub: bytes
    body: str


class PlaceFile:
    """Records of at most `size` bytes, each under a key of 32 bytes, at random places of a file."""

    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size = path, HEAD + size
        self._load()
        if self.damaged:  # a server may have been writing just then
            time.sleep(WRITE_SECONDS)
            self._load()

    def _load(self) -> None:
        try:
            with open(self._path, "rb") as file:
                self._seen = _identify(os.fstat(file.fileno()))
                content = file.read()
        except FileNotFoundError:
            raise _refuse_incomplete(self._path) from None
        except OSError as refusal:
            raise _refuse_store(self._path.parent, refusal) from None
        count = len(content) // self._size - len(ENDS)
        ends = (content[: self._size], content[-self._size :])
        whole = count > 0 and len(content) == (count + len(ENDS)) * self._size
        if not whole or _build_end(self._path.name, count, self._size) not in ends:  # one of them may be damaged
            raise _refuse_cut(self._path)
        places = [content[at * self._size : (at + 1) * self._size] for at in range(1, count + 1)]
        read = [_read_place(place) for place in places]
        blank = [record is None and not any(place) for record, place in zip(read, places, strict=True)]
        self._free = [place for place, empty in enumerate(blank, start=1) if empty]
        self.records: dict[bytes, bytes] = dict(record for record in read if record is not None)
        self.damaged = [p for p, r, empty in zip(places, read, blank, strict=True) if r is None and not empty]
        """What stands at places that hold no whole record."""
        self._places = count

    def add(self, records: Mapping[bytes, bytes]) -> None:
        """Keep new records: durable when this returns."""
        new = {key: value for key, value in records.items() if key not in self.records}
        filled_places = len(self.records) + len(new) + len(self.damaged)
        if filled_places > self._places // 2:
            needed = 2 * filled_places
            filled = [self._build_place(key, value) for key, value in (self.records | new).items()] + self.damaged
            with storage_errors(self._path):
                self._check_same(os.stat(self._path))
            write_places(self._path, self._path.name, filled, 1 << (needed - 1).bit_length(), self._size)
            self._load()
            return
        try:
            with storage_errors(self._path), open(self._path, "r+b") as file:
                self._check_same(os.fstat(file.fileno()))
                for key, value in new.items():
                    self._put(file, key, value)
                file.flush()
                os.fsync(file.fileno())
        except StorageError:
            self._load()  # some of them may have got there: nobody was thanked, and a ticket counts once
            raise
        self.records |= new

    def _check_same(self, found: os.stat_result) -> None:
        """Refuse to write to another file than was read: its free places are others."""
        if _identify(found) != self._seen:
            raise IntegrityError(
                f"'{self._path}' was cut or replaced while it was in use",
                expected="Only the server that holds the store writes to it",
                remedy="Stop the server, bring back a copy of the whole folder, and serve the survey again",
                charge=NO_BUDGET,
            )

    def _put(self, file: BinaryIO, key: bytes, value: bytes) -> None:
        """Write a record to a place drawn among all that are free."""
        drawn = int(uniform_below(len(self._free), 1)[0])
        self._free[drawn], self._free[-1] = self._free[-1], self._free[drawn]
        file.seek(self._free.pop() * self._size)
        file.write(self._build_place(key, value))

    def _build_place(self, key: bytes, value: bytes) -> bytes:
        content = key + len(value).to_bytes(LENGTH, "big") + value.ljust(self._size - HEAD, b"\0")
        return _compute_check(content) + content


def make_places(path: Path, size: int) -> None:
    """A file without records, under a name that no file has."""
    fresh = path.with_name(f".{path.name}.new.part")
    write_places(fresh, path.name, [], FIRST_PLACES, HEAD + size)
    _name_new(fresh, path)


def write_places(path: Path, name: str, filled: Sequence[bytes], count: int, size: int) -> None:
    """Write every place of a file in random order, so that the disk gives out all of them now and none later."""
    empty, end = bytes(size), _build_end(name, count, size)
    with whole_file(path) as file:
        file.write(end)
        for place in permutation(count).tolist():
            file.write(filled[place] if place < len(filled) else empty)
        file.write(end)


def _name_new(fresh: Path, path: Path) -> None:
    """Give a file that was just written its name; a file that has the name is never written over."""
    try:
        with storage_errors(path):
            give_name(fresh, path)
    finally:
        with suppress(OSError):
            fresh.unlink()


def _build_end(name: str, count: int, size: int) -> bytes:
    """What the first and the last place of a file say: which file it is, and how many places are between them."""
    content = name.encode().ljust(KEY, b"\0") + count.to_bytes(COUNT, "big")
    content = content.ljust(size - CHECK, b"\0")
    return _compute_check(content) + content


def _identify(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, status.st_size


def _compute_check(content: bytes) -> bytes:
    return blake2b(content, digest_size=CHECK).digest()


def _read_place(place: bytes) -> tuple[bytes, bytes] | None:
    """The record at a place; None where there is none, or none that is whole."""
    content = place[CHECK:]
    if not any(place[:CHECK]) or _compute_check(content) != place[:CHECK]:
        return None
    length = int.from_bytes(content[KEY : KEY + LENGTH], "big")
    return content[:KEY], content[KEY + LENGTH : KEY + LENGTH + length]


class Store:
    """The folder of one survey: its facts, its responses, and its used invitations. One process at a time writes."""

    def __init__(self, folder: Path, size: int, facts: Mapping[str, str], writable: bool = True) -> None:
        self.folder, self._size, self._lock, self._turn = folder, size, -1, Lock()
        known = os.path.exists(folder / FACTS)
        if not known and writable:
            self._make(facts)
        elif not known and any(os.path.exists(folder / name) for name in (RESPONSES, INVITATIONS)):
            raise _refuse_incomplete(folder / FACTS)
        elif not known:
            raise StorageError(f"there is no store at '{folder}'", remedy="Serve the survey first, or name its store")
        self.facts = self._read_facts()
        if self.facts.get("survey") != facts["survey"]:
            raise IntegrityError(
                f"the store '{folder}' holds responses to another version of this survey",
                expected="Responses fit only the questions they were asked with",
                remedy="Name a new folder with --store, or bring the old survey file back",
            )
        self._open_files()

    def _make(self, facts: Mapping[str, str]) -> None:
        """Make an empty store; the facts last that were given first."""
        if self.folder.is_file():
            raise _refuse_foreign(self.folder)
        try:
            self.folder.mkdir(mode=OWNER_ONLY, exist_ok=True)
        except OSError as refusal:
            raise _refuse_store(self.folder, refusal) from None
        with self._hold_lock():
            if os.path.exists(self.folder / FACTS):
                return
            for name, size in ((RESPONSES, self._size), (INVITATIONS, KEY)):
                self._make_places(self.folder / name, size)
            fresh = self.folder / f".{FACTS}.new.part"
            write_whole(fresh, json.dumps(facts).encode())
            _name_new(fresh, self.folder / FACTS)

    def _make_places(self, path: Path, size: int) -> None:
        """Make a file of places. One that is there must be empty: the facts, which are missing, are made last."""
        if not os.path.exists(path):
            return make_places(path, size)
        with suppress(IntegrityError):
            found = PlaceFile(path, size)
            if not found.records and not found.damaged:
                return None
        raise _refuse_incomplete(self.folder / FACTS)

    def _read_facts(self) -> dict[str, str]:
        try:
            found = json.loads((self.folder / FACTS).read_bytes())
        except OSError as refusal:
            raise _refuse_store(self.folder, refusal) from None
        except (ValueError, RecursionError):
            raise refuse_facts(self.folder) from None
        if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
            raise refuse_facts(self.folder)
        if "survey" not in found:
            raise refuse_facts(self.folder)
        return found

    def _open_files(self) -> None:
        self._responses = PlaceFile(self.folder / RESPONSES, self._size)
        self._invitations = PlaceFile(self.folder / INVITATIONS, KEY)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        self._lock = _lock_folder(self.folder)
        try:
            yield
        finally:
            self.close()

    def claim(self) -> None:
        """Be the one process that writes here, until it ends; refused while there is another."""
        if self._lock >= 0 and _is_file_at(self._lock, self.folder / LOCK):
            return
        self.close()  # somebody may have removed the lock, and another process may hold the one that is there now
        self._lock = _lock_folder(self.folder)
        try:
            self._remove_parts()
            self._open_files()  # another may have written since they were read
        except BaseException:
            self.close()
            raise

    def _remove_parts(self) -> None:
        """Remove what a kill left of a file that was being written: beside the whole one it tells what is newer."""
        for name in (RESPONSES, INVITATIONS, FACTS):
            for part in self.folder.glob(f".{name}.*.part"):
                with storage_errors(part):
                    part.unlink()

    @contextmanager
    def _write(self) -> Iterator[None]:
        """Write as the only one. What is written without the lock is not acknowledged: another may not have read it."""
        with self._turn:
            self.claim()
            yield
            if not _is_file_at(self._lock, self.folder / LOCK):
                raise StorageError(
                    f"the lock of the store '{self.folder}' was removed while the store was in use",
                    remedy="Leave the files of a store alone while it is served; send the response again",
                    charge=NO_BUDGET,
                )

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """Keep a batch durably; for each response whether it was new (True) or its ticket was used before (False)."""
        with self._write():
            fresh: dict[bytes, bytes] = {}
            new = []
            for arrival in batch:
                new.append(arrival.stub not in self._responses.records and arrival.stub not in fresh)
                fresh.setdefault(arrival.stub, arrival.body.encode())
            self._responses.add(fresh)
            return new

    def use_invitation(self, invitation: bytes, blinded: bytes) -> bool:
        """Note that an invitation was used for one blinded ticket; False where it was used for another before."""
        with self._write():
            if invitation not in self._invitations.records:
                self._invitations.add({invitation: blinded})
            return self._invitations.records[invitation] == blinded

    def count(self) -> int:
        """How many responses there are."""
        return len(self._responses.records)

    @property
    def damaged(self) -> tuple[int, int]:
        """How many places hold no whole response, and no whole used invitation, although something stands there."""
        return len(self._responses.damaged), len(self._invitations.damaged)

    def bodies(self) -> Iterator[str]:
        """What the responses say, ordered by what they say."""
        return iter(sorted(body.decode(errors="replace") for body in self._responses.records.values()))

    def close(self) -> None:
        """Let another server in."""
        if self._lock >= 0:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = -1


def _lock_folder(folder: Path) -> int:
    while True:
        with storage_errors(folder / LOCK):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_descriptor(descriptor)
        except OSError:
            os.close(descriptor)
            raise StorageError(
                f"the store '{folder}' is in use by another process",
                remedy="Stop that one first: two writers could let one ticket in twice",
                charge=NO_BUDGET,
            ) from None
        if _is_file_at(descriptor, folder / LOCK):
            return descriptor
        os.close(descriptor)  # it was removed before it was locked


def _is_file_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _refuse_store(folder: Path, refusal: OSError) -> StorageError:
    return StorageError(
        f"the store '{folder}' cannot be used: {refusal.strerror or 'refused'}",
        remedy="Free the disk or name another --store",
        charge=NO_BUDGET,
    )


def _refuse_cut(file: Path) -> IntegrityError:
    return IntegrityError(
        f"'{file}' is not as long as a store writes it: it was cut or overwritten",
        expected="A file of places of one size, as many as its first and its last place say",
        remedy="Bring back a copy of the whole folder; what was cut off cannot be known",
        charge=NO_BUDGET,
    )


def _refuse_incomplete(missing: Path) -> IntegrityError:
    return IntegrityError(
        f"the store '{missing.parent}' lacks its file '{missing.name}'",
        expected="All files of a store: without one, the others are not used and not written over",
        remedy="Bring back a copy of the whole folder, or name another folder with --store",
        charge=NO_BUDGET,
    )


def refuse_facts(folder: Path) -> IntegrityError:
    """What is said of a store whose description or keys were changed."""
    return IntegrityError(
        f"the file '{FACTS}' of the store '{folder}' was damaged",
        expected="A JSON object with the survey's name and its keys, as it was written when the store was made",
        remedy="Bring back a copy of the whole folder, or name another folder with --store",
        charge=NO_BUDGET,
    )


def _refuse_foreign(folder: Path) -> IntegrityError:
    return IntegrityError(f"'{folder}' is not a store of survey responses", remedy="Name another folder with --store")
