"""Data versions: a fingerprint of a source's whole content, at the speed of the disk.

Every byte counts: a sampled fingerprint would miss the one corrected record that matters. Files are hashed in blocks
by several threads (SHA-256 releases the interpreter) and the block digests are hashed in order. A file whose size,
time of change and place are what they were is not read again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from deniable.engines.sources import as_arrow, is_frame, resolve_source

BLOCK = 8 << 20
SLICE_ROWS = 65_536


def hash_file(path: Path) -> str:
    """The fingerprint of one file's bytes."""
    with path.open("rb") as file, ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        return combine_hashes(digest.hex() for digest in _hash_in_order(pool, iter(lambda: file.read(BLOCK), b"")))


def hash_source(source: Any, root: Path) -> str | None:
    """The fingerprint of all that a source holds, read anew each time; None for rows that can be read only once."""
    if not is_frame(source):
        return combine_hashes(hash_file(path) for path in resolve_source(source, root).paths)
    rows = as_arrow(source)
    return hash_table(rows) if isinstance(rows, pa.Table) else None


def hash_table(table: pa.Table) -> str:
    """The fingerprint of rows in memory, the same however they are cut into chunks."""
    digest = hashlib.sha256(str(table.schema.remove_metadata()).encode())
    for start in range(0, table.num_rows, SLICE_ROWS):
        sink = pa.BufferOutputStream()
        piece = table.slice(start, SLICE_ROWS).combine_chunks().replace_schema_metadata(None)
        with pa.ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        digest.update(sink.getvalue())
    return digest.hexdigest()


def combine_hashes(parts: Iterable[str]) -> str:
    """One fingerprint of several, in their order.

    >>> combine_hashes(["a", "b"]) == combine_hashes(["ab"])
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def _hash_in_order(pool: ThreadPoolExecutor, blocks: Iterator[bytes]) -> Iterator[bytes]:
    # At most a handful of blocks are in flight, so that a large file does not queue up in memory.
    waiting = []
    for block in blocks:
        waiting.append(pool.submit(_hash_block, block))
        if len(waiting) == 8:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def _hash_block(block: bytes) -> bytes:
    return hashlib.sha256(block).digest()
