"""Files larger than memory: a source streamed in parts, each masked by itself, then written one after another.

Parts have a fixed number of rows, except that a short last one is masked together with the one before it, so that
shuffling always has many rows to shuffle among. At most `IN_FLIGHT` parts are in memory.

A checkpoint, a hidden folder beside the output, holds the parts that are done, as Arrow files, so that a killed process
can go on: only masking is done once, a part that is there is read instead. A part appears whole or not at all; the
output grows inside the checkpoint and appears under its name only when it is complete. A job is its policy, masks, keys
(by check value), data version, format and order: a checkpoint of another job is never continued.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from deniable.engines.base import Engine
from deniable.errors import DataError, InternalError, KeyUnavailable, ParameterError, nearest
from deniable.masking.plan import TablePlan
from deniable.storage import LOCK, ROW_ENDINGS, escape_formula, lock_folder, storage_errors, whole_file, write_whole

PART_ROWS = 131_072
IN_FLIGHT = 3
Progress = Callable[[float], None]


def format_of(target: Path) -> str:
    """The format that an output's name asks for."""
    if target.suffix.lower() not in ROW_ENDINGS:
        raise ParameterError(
            f"'{target.name}' does not say in which format to write",
            expected="A name that ends in .csv, .parquet or .arrow",
            remedy=nearest(target.suffix, ROW_ENDINGS),
        )
    return ROW_ENDINGS[target.suffix.lower()]


def write_masked(
    engine: Engine,
    table: str,
    plan: TablePlan,
    target: Path,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
    batches: Iterable[pa.RecordBatch] | None = None,
) -> int:
    """Mask a whole table into one file, doing only the parts that the checkpoint does not have; says how many rows.

    `batches` are its rows in the order in which they leave, the same whenever the work goes on.
    """
    if format_of(target) == "csv":
        _refuse_formulas(plan)
    read = engine.stream(table, PART_ROWS) if batches is None else batches
    parts = _mask_parts(read, engine.count(table), plan, checkpoint, progress)
    rows = engine.write(parts, checkpoint.whole, format_of(target))
    with storage_errors(target):
        checkpoint.whole.replace(target)
    return rows


def _refuse_formulas(plan: TablePlan) -> None:
    """Refuse names that a CSV file holds under another spelling: what is measured on it asks for columns by name."""
    found = [each.name for each in plan.columns if escape_formula(each.name) != each.name]
    if found:
        raise DataError(
            f"a spreadsheet would run the name of column '{found[0]}' of '{plan.table}' as a formula",
            remedy="Write to a name that ends in .parquet or .arrow, or rename the column",
        )


def _mask_parts(
    batches: Iterable[pa.RecordBatch], total: int, plan: TablePlan, checkpoint: Checkpoint, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    """The masked parts in order; while one is written, the next ones are masked in threads."""
    rows = 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        waiting: deque[Future[pa.RecordBatch]] = deque()
        for number, part in enumerate(regroup_batches(batches, PART_ROWS)):
            released = mask_schema(plan, part.schema)
            if checkpoint.has(number):
                waiting.append(pool.submit(checkpoint.read, number))
            else:
                waiting.append(pool.submit(_mask_part, plan, part, released, number, checkpoint))
            rows += part.num_rows
            if len(waiting) >= IN_FLIGHT:
                yield waiting.popleft().result()
            if progress and total:
                progress(min(1.0, rows / total))
        while waiting:
            yield waiting.popleft().result()


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
    plan: TablePlan, part: pa.RecordBatch, released: pa.Schema, number: int, checkpoint: Checkpoint
) -> pa.RecordBatch:
    done = mask_batch(plan, part)
    if not done.schema.equals(released):
        raise InternalError("a part came out with other types than its table; nothing was released")
    checkpoint.keep(number, done)
    return done


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
    keep_order: bool = False

    def as_dict(self) -> dict[str, object]:
        """The plain shape that is kept in the checkpoint."""
        return {name: dict(v) if isinstance(v := getattr(self, name), Mapping) else v for name in self.__slots__}

    @property
    def fingerprint(self) -> str:
        """A digest of the whole."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The folder of one job, and how the name of its output ends."""

    folder: Path
    suffix: str

    @property
    def whole(self) -> Path:
        """Where the output grows."""
        return self.folder / f"whole{self.suffix}"

    def open_order(self) -> str:
        """The secret key of the order in which rows leave: drawn once, and the same when the work goes on."""
        path = self.folder / "order"
        if not path.exists():
            write_whole(path, secrets.token_hex(16).encode())
        return path.read_text(encoding="utf-8")

    def part(self, number: int) -> Path:
        """Where part number so-and-so is, or will be."""
        return self.folder / f"{number:06d}.arrow"

    def has(self, number: int) -> bool:
        """Whether a part is finished."""
        return self.part(number).exists()

    def keep(self, number: int, rows: pa.RecordBatch) -> None:
        """Keep a finished part."""
        options = pa.ipc.IpcWriteOptions(compression="lz4")  # next to free, and a third smaller
        with whole_file(self.part(number)) as file, pa.ipc.new_file(file, rows.schema, options=options) as writer:
            writer.write_batch(rows)

    def read(self, number: int) -> pa.RecordBatch:
        """A finished part."""
        with pa.memory_map(str(self.part(number))) as file:
            return pa.ipc.open_file(file).get_batch(0)


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
    with lock_folder(folder, f"this output (its work is in '{folder.name}')"):
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


def _empty_folder(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name != LOCK:
            path.unlink()
