"""A world written to a folder: Parquet for its tables, CSV for its public lists, and a policy and findings.

Tables are streamed chunk by chunk, so that ten million people pass through little memory, and are written under a
temporary name: whoever stops halfway leaves nothing that looks finished."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from deniable.errors import StorageError
from deniable.world.kinds import Kind

Progress = Callable[[float], None]


def write_files(
    kind: Kind, people: int, seed: int, folder: Path, texts: Mapping[str, str], progress: Progress | None
) -> dict[str, int]:
    """Write all files of a world; say how many rows each table has."""
    suffix = f".{os.getpid()}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rows = _write_tables(kind, people, seed, folder, suffix, progress) | _write_lists(kind, folder, suffix)
        for name, text in texts.items():
            (folder / f"{name}{suffix}").write_text(text, encoding="utf-8")
        for unfinished in sorted(folder.glob(f"*{suffix}")):
            unfinished.replace(unfinished.with_name(unfinished.name.removesuffix(suffix)))
    except OSError as refused:
        raise _describe_failure(folder, refused) from refused
    finally:
        _remove_partial(folder, suffix)
    return rows


def _write_tables(
    kind: Kind, people: int, seed: int, folder: Path, suffix: str, progress: Progress | None
) -> dict[str, int]:
    rows = dict.fromkeys(kind.tables, 0)
    chunks = max(1, -(-people // kind.chunk))
    with ExitStack() as open_files:
        writers: dict[str, pq.ParquetWriter] = {}
        for done, batch in enumerate(kind.batches(people, seed), start=1):
            for name, table in batch.items():
                if name not in writers:
                    target = pq.ParquetWriter(folder / f"{name}.parquet{suffix}", table.schema, compression="zstd")
                    writers[name] = open_files.enter_context(target)
                writers[name].write_table(table)
                rows[name] += table.num_rows
            if progress:
                progress(done / chunks)
    return rows


def _write_lists(kind: Kind, folder: Path, suffix: str) -> dict[str, int]:
    listed = kind.lists()
    for name, table in listed.items():
        pa.csv.write_csv(table, folder / f"{name}.csv{suffix}")
    return {name: table.num_rows for name, table in listed.items()}


def _remove_partial(folder: Path, suffix: str) -> None:
    if folder.is_dir():
        for left in folder.glob(f"*{suffix}"):
            left.unlink(missing_ok=True)


def _describe_failure(folder: Path, refused: OSError) -> StorageError:
    full = refused.errno == errno.ENOSPC
    reason = "the disk is full" if full else refused.strerror or "the disk refused"
    remedy = "Make room, or ask for fewer people" if full else "Choose another folder with -o"
    return StorageError(f"The world could not be written to '{folder}': {reason}", remedy=remedy, charge="")
