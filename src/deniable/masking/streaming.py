"""Files larger than memory: a source streamed in parts, each masked and written by itself, then joined into one file.

Parts have a fixed number of rows, except that a short last one is masked together with the one before it, so that
shuffling always has many rows to shuffle among. At most `IN_FLIGHT` parts are in memory.

A checkpoint, a hidden folder beside the output, says which parts are done, so that a killed process can go on. Parts
and receipts appear whole or not at all, the receipt last; the output appears under its name only when all parts are
there. A job is its policy, masks, keys (by check value), data version and format: a checkpoint of another job is never
continued."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deniable.engines.base import Engine
from deniable.errors import InternalError, KeyUnavailable, ParameterError, StorageError, nearest
from deniable.masking import parquet_merge
from deniable.masking.plan import TablePlan
from deniable.storage import storage_errors, write_whole

PART_ROWS = 131_072
IN_FLIGHT = 3
FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}

Progress = Callable[[float], None]


def format_of(target: Path) -> str:
    """The format that an output's name asks for."""
    if target.suffix.lower() not in FORMATS:
        raise ParameterError(
            f"'{target.name}' does not say in which format to write",
            expected="A name that ends in .csv, .parquet or .arrow",
            remedy=nearest(target.suffix, FORMATS),
        )
    return FORMATS[target.suffix.lower()]


def write_masked(
    engine: Engine, table: str, plan: TablePlan, target: Path, checkpoint: Checkpoint, progress: Progress | None = None
) -> int:
    """Mask a whole table into one file, doing only the parts that the checkpoint does not have; says how many rows."""
    total = engine.count(table)
    reader = engine.stream(table, PART_ROWS)
    numbers, rows = [], 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        waiting: deque[Future[int]] = deque()
        for number, part in enumerate(regroup_batches(reader, PART_ROWS)):
            numbers.append(number)
            if checkpoint.count_finished_rows(number) is None:
                released = mask_schema(plan, part.schema)
                waiting.append(pool.submit(_mask_part, engine, plan, part, number, checkpoint, released))
            rows += part.num_rows
            while len(waiting) >= IN_FLIGHT:
                waiting.popleft().result()
            if progress and total:
                progress(min(1.0, rows / total))
        while waiting:
            waiting.popleft().result()
    _join_parts(engine, [checkpoint.part(number) for number in numbers], target)
    return rows


def regroup_batches(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Batches of any size regrouped into parts of `size` rows, of which the last has half to one and a half times as
    many (or whatever there is); at least one part, perhaps empty, so that the columns are always known.
    """
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        while count >= size + (size + 1) // 2:
            whole = pa.Table.from_batches(held)
            yield _combine_batch(whole.slice(0, size))
            held, count = whole.slice(size).to_batches() or [batch.slice(0, 0)], count - size
    if held:
        yield _combine_batch(pa.Table.from_batches(held))


def _mask_part(
    engine: Engine, plan: TablePlan, part: pa.RecordBatch, number: int, checkpoint: Checkpoint, released: pa.Schema
) -> int:
    done = mask_batch(plan, part)
    if not done.schema.equals(released):
        raise InternalError("a part came out with other types than its table; nothing was released")
    path = checkpoint.part(number)
    engine.write(pa.Table.from_batches([done]), path, FORMATS[path.suffix])
    checkpoint.finish(number, done.num_rows)
    return int(done.num_rows)


def _join_parts(engine: Engine, files: list[Path], target: Path) -> None:
    """All parts as one file. A single part is moved, Parquet and CSV are merged, Arrow is streamed."""
    kind = format_of(target)
    if len(files) == 1:
        files[0].replace(target)
    elif kind == "parquet":
        parquet_merge.merge_parquet(files, target)
    elif kind == "csv":
        parquet_merge.concatenate_csv(files, _measure_header(files[0]), target)
    else:
        engine.write(_read_batches(files), target, kind)


def _measure_header(file: Path) -> int:
    """Where the first row begins: after the first line break outside quotes."""
    quoted, at = False, 0
    with file.open("rb") as open_file:
        while byte := open_file.read(1):
            at += 1
            if byte == b'"':
                quoted = not quoted
            if byte == b"\n" and not quoted:
                break
    return at


def _read_batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pa.memory_map(str(file)) as source, suppress(StopIteration):
            reader = pa.ipc.open_file(source)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


def _combine_batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks().to_batches()
    return (
        whole[0]
        if whole
        else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    )


def mask_batch(plan: TablePlan, rows: pa.RecordBatch) -> pa.RecordBatch:
    """The released columns of a batch, masked.

    Masks that look at other columns (the person whose dates are shifted) see them as they were, never masked.
    """
    names, columns = [], []
    for column in plan.columns:
        values = rows.column(column.name)
        names.append(column.name)
        columns.append(values if column.mask is None else column.mask.apply(values, rows))
    if plan.projection:
        names += plan.projection.names
        columns += plan.projection.project(rows)
    return pa.RecordBatch.from_arrays(columns, names=names)


def mask_schema(plan: TablePlan, schema: pa.Schema) -> pa.Schema:
    """The columns and types that come out, known before any row is read."""
    empty = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return mask_batch(plan, empty).schema


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
        """The plain shape that is kept in the checkpoint."""
        return {name: dict(v) if isinstance(v := getattr(self, name), Mapping) else v for name in self.__slots__}

    @property
    def fingerprint(self) -> str:
        """A digest of the whole."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of one job."""

    folder: Path
    suffix: str

    def part(self, number: int) -> Path:
        """Where part number so-and-so is, or will be."""
        return self.folder / f"{number:06d}{self.suffix}"

    def count_finished_rows(self, number: int) -> int | None:
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
    """Where the checkpoint of an output lives while the work lasts."""
    return target.with_name(f".{target.name}.work")


@contextmanager
def open_checkpoint(target: Path, job: Job, suffix: str, *, fresh: bool = False) -> Iterator[Checkpoint]:
    """The checkpoint of a job: continued if it is this job's, begun anew if not; removed when the work is complete.

    A second process on the same output is refused while the first one works.
    """
    folder = folder_for(target)
    with storage_errors(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _lock_folder(folder):
        if fresh or not _is_same_job(folder, job):
            _empty_folder(folder)
            write_whole(folder / "job.json", json.dumps(job.as_dict(), indent=2).encode())
        yield Checkpoint(folder, suffix)
    shutil.rmtree(folder, ignore_errors=True)


def _is_same_job(folder: Path, job: Job) -> bool:
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
def _lock_folder(folder: Path) -> Iterator[None]:
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


def _empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != "lock":
            path.unlink()
