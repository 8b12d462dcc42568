"""Where responses are kept: a folder of files that hold no order of arrival, not even when the server is killed.

A log, a journal, a B-tree and a row number all tell which record came when; two stores that do can be joined by order.
Here each record goes to a random free place of a file whose places are of one size and were all written when the file
was made: one write and one flush, after which the file is a set. It is whole or absent, since a place counts only with
its checksum. A full file is copied to a larger one, places drawn anew.

Invitations and responses are files of their own. What joins them is known to the respondent alone: see `service`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from deniable.dp.samplers import permutation, uniform_below
from deniable.errors import NO_BUDGET, IntegrityError, StorageError
from deniable.storage import lock_descriptor, storage_errors, whole_file, write_whole

KEY, CHECK, LENGTH = 32, 16, 4
HEAD = CHECK + KEY + LENGTH
FIRST_PLACES = 1024
FACTS, RESPONSES, INVITATIONS, LOCK = "survey.json", "responses", "invitations", "lock"
OWNER_ONLY = 0o700


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

    def _load(self) -> None:
        try:
            content = self._path.read_bytes()
        except OSError as refusal:
            raise _refuse_store(self._path.parent, refusal) from None
        count = len(content) // self._size
        if count * self._size != len(content):
            raise _refuse_foreign(self._path.parent)
        places = [content[at * self._size : (at + 1) * self._size] for at in range(count)]
        read = [_read_place(place) for place in places]
        self._free = [place for place, record in enumerate(read) if record is None]
        self.records: dict[bytes, bytes] = dict(record for record in read if record is not None)
        self._places = count

    def add(self, records: Mapping[bytes, bytes]) -> None:
        """Keep new records: durable when this returns."""
        new = {key: value for key, value in records.items() if key not in self.records}
        if len(self.records) + len(new) > self._places // 2:
            needed = 2 * (len(self.records) + len(new))
            filled = [self._build_place(key, value) for key, value in (self.records | new).items()]
            write_places(self._path, filled, 1 << (needed - 1).bit_length(), self._size)
            self._load()
            return
        try:
            with storage_errors(self._path), open(self._path, "r+b") as file:
                for key, value in new.items():
                    self._put(file, key, value)
                file.flush()
                os.fsync(file.fileno())
        except StorageError:
            self._load()  # some of them may have got there: nobody was thanked, and a ticket counts once
            raise
        self.records |= new

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
    """A file without records."""
    write_places(path, [], FIRST_PLACES, HEAD + size)


def write_places(path: Path, filled: Sequence[bytes], count: int, size: int) -> None:
    """Write every place of a file in random order, so that the disk gives out all of them now and none later."""
    empty = bytes(size)
    with whole_file(path) as file:
        for place in permutation(count).tolist():
            file.write(filled[place] if place < len(filled) else empty)


def _compute_check(content: bytes) -> bytes:
    return blake2b(content, digest_size=CHECK).digest()


def _read_place(place: bytes) -> tuple[bytes, bytes] | None:
    """The record at a place; None where there is none, or only half of one."""
    content = place[CHECK:]
    if not any(place[:CHECK]) or _compute_check(content) != place[:CHECK]:
        return None
    length = int.from_bytes(content[KEY : KEY + LENGTH], "big")
    return content[:KEY], content[KEY + LENGTH : KEY + LENGTH + length]


class Store:
    """The folder of one survey: its facts, its responses, and its used invitations. One process at a time writes."""

    def __init__(self, folder: Path, size: int, facts: Mapping[str, str], writable: bool = True) -> None:
        self._folder, self._size, self._lock, self._turn = folder, size, -1, Lock()
        if writable and not (folder / FACTS).exists():
            self._make(facts)
        if not (folder / FACTS).exists():
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
        if self._folder.is_file():
            raise _refuse_foreign(self._folder)
        try:
            self._folder.mkdir(mode=OWNER_ONLY, exist_ok=True)
        except OSError as refusal:
            raise _refuse_store(self._folder, refusal) from None
        with self._hold_lock():
            if not (self._folder / FACTS).exists():
                make_places(self._folder / RESPONSES, self._size)
                make_places(self._folder / INVITATIONS, KEY)
                write_whole(self._folder / FACTS, json.dumps(facts).encode())

    def _read_facts(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads((self._folder / FACTS).read_bytes())
        except (OSError, ValueError):
            raise _refuse_foreign(self._folder) from None
        return found

    def _open_files(self) -> None:
        self._responses = PlaceFile(self._folder / RESPONSES, self._size)
        self._invitations = PlaceFile(self._folder / INVITATIONS, KEY)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        self._lock = _lock_folder(self._folder)
        yield
        self.close()

    def claim(self) -> None:
        """Be the one process that writes here, until it ends; refused while there is another."""
        if self._lock < 0:
            self._lock = _lock_folder(self._folder)
            self._open_files()  # another may have written since they were read

    def add(self, batch: Sequence[Arrival]) -> list[bool]:
        """Keep a batch durably; for each response whether it was new (True) or its ticket was used before (False)."""
        with self._turn:
            self.claim()
            fresh: dict[bytes, bytes] = {}
            new = []
            for arrival in batch:
                new.append(arrival.stub not in self._responses.records and arrival.stub not in fresh)
                fresh.setdefault(arrival.stub, arrival.body.encode())
            self._responses.add(fresh)
            return new

    def use_invitation(self, invitation: bytes, blinded: bytes) -> bool:
        """Note that an invitation was used for one blinded ticket; False where it was used for another before."""
        with self._turn:
            self.claim()
            if invitation not in self._invitations.records:
                self._invitations.add({invitation: blinded})
            return self._invitations.records[invitation] == blinded

    def count(self) -> int:
        """How many responses there are."""
        return len(self._responses.records)

    def bodies(self) -> Iterator[str]:
        """What the responses say, ordered by what they say."""
        return iter(sorted(body.decode() for body in self._responses.records.values()))

    def close(self) -> None:
        """Let another server in."""
        if self._lock >= 0:
            with suppress(OSError):
                os.close(self._lock)
            self._lock = -1


def _lock_folder(folder: Path) -> int:
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
    return descriptor


def _refuse_store(folder: Path, refusal: OSError) -> StorageError:
    return StorageError(
        f"the store '{folder}' cannot be used: {refusal.strerror or 'refused'}",
        remedy="Free the disk or name another --store",
        charge=NO_BUDGET,
    )


def _refuse_foreign(folder: Path) -> IntegrityError:
    return IntegrityError(f"'{folder}' is not a store of survey responses", remedy="Name another folder with --store")
