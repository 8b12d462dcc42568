"""Files larger than memory: a source streamed in parts, each masked and written by itself, then joined into one file.

Parts have a fixed number of rows, except that a short last one is masked together with the one before it, so that
shuffling always has many rows to shuffle among. While one part is being masked another is being written; at most
`IN_FLIGHT` are in memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from deniable.engines.base import Engine
from deniable.errors import InternalError, ParameterError, nearest
from deniable.masking import stitch
from deniable.masking.journal import Journal
from deniable.masking.mask import mask, masked_schema
from deniable.masking.plan import TablePlan

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
    engine: Engine, table: str, plan: TablePlan, target: Path, journal: Journal, progress: Progress | None = None
) -> int:
    """Mask a whole table into one file, doing only the parts that the journal does not have; says how many rows."""
    total = engine.count(table)
    reader = engine.stream(table, PART_ROWS)
    numbers, rows = [], 0
    with ThreadPoolExecutor(max_workers=2) as pool:
        waiting: deque[Future[int]] = deque()
        for number, part in enumerate(parts(reader, PART_ROWS)):
            numbers.append(number)
            if journal.done(number) is None:
                released = masked_schema(plan, part.schema)
                waiting.append(pool.submit(_one_part, engine, plan, part, number, journal, released))
            rows += part.num_rows
            while len(waiting) >= IN_FLIGHT:
                waiting.popleft().result()
            if progress and total:
                progress(min(1.0, rows / total))
        while waiting:
            waiting.popleft().result()
    _joined(engine, [journal.part(number) for number in numbers], target)
    return rows


def parts(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
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
            yield _batch(whole.slice(0, size))
            held, count = whole.slice(size).to_batches() or [batch.slice(0, 0)], count - size
    if held:
        yield _batch(pa.Table.from_batches(held))


def _one_part(
    engine: Engine, plan: TablePlan, part: pa.RecordBatch, number: int, journal: Journal, released: pa.Schema
) -> int:
    done = mask(plan, part)
    if not done.schema.equals(released):
        raise InternalError("a part came out with other types than its table; nothing was released")
    path = journal.part(number)
    engine.write(pa.Table.from_batches([done]), path, FORMATS[path.suffix])
    journal.finish(number, done.num_rows)
    return int(done.num_rows)


def _joined(engine: Engine, files: list[Path], target: Path) -> None:
    """All parts as one file. A single part is moved, Parquet and CSV are stitched, Arrow is streamed."""
    kind = format_of(target)
    if len(files) == 1:
        files[0].replace(target)
    elif kind == "parquet":
        stitch.stitch(files, target)
    elif kind == "csv":
        stitch.concatenate(files, _header_bytes(files[0]), target)
    else:
        engine.write(_arrow_batches(files), target, kind)


def _header_bytes(file: Path) -> int:
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


def _arrow_batches(files: list[Path]) -> Iterator[pa.RecordBatch]:
    for file in files:
        with pa.memory_map(str(file)) as source, suppress(StopIteration):
            reader = pa.ipc.open_file(source)
            for i in range(reader.num_record_batches):
                yield reader.get_batch(i)


def _batch(table: pa.Table) -> pa.RecordBatch:
    whole = table.combine_chunks().to_batches()
    return (
        whole[0]
        if whole
        else pa.RecordBatch.from_arrays([pa.array([], f.type) for f in table.schema], schema=table.schema)
    )
