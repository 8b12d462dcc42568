"""Stored answers: the same question has one answer, for every process, until the data, the policy or its term ends.

What is stored are the noisy measurements, which are public; how they are presented may differ from asker to asker. An
answer leaves only after it was stored, and what leaves is what is stored. So a question that was charged and whose
process died can be asked again under its request id: it runs under the old charge, and at most one answer of it is
ever seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.ledger.cabinet import Cabinet
    from deniable.query.execute import Measurements

DRAWER = "answers"


@dataclass(frozen=True, slots=True)
class Stored:
    """The noisy measurements of a question, with the id and time of their release."""

    measured: Measurements = field(repr=False)
    release: str
    time: datetime


def find(cabinet: Cabinet, name: str) -> Stored | None:
    """The answer stored under a key or a release id."""
    value = cabinet.find(DRAWER, name)
    return None if value is None else _read(value)


def keep(cabinet: Cabinet, key: str, answer: Stored) -> Stored:
    """Store an answer; gives the one that is stored, which may have come first from elsewhere."""
    text = _written(answer)
    kept = cabinet.keep(DRAWER, key, answer.release, text)
    return answer if kept == text else _read(kept)


def _written(answer: Stored) -> bytes:
    """A line of JSON that says what follows, then two Arrow streams for each measured step: its keys, its values."""
    streams = [
        _stream(table)
        for parts in answer.measured.values()
        for part in parts
        for table in (part.keys, _values(part.values))
    ]
    steps = {name: len(parts) for name, parts in answer.measured.items()}
    head = {"release": answer.release, "time": answer.time.isoformat(), "steps": steps}
    return json.dumps(head | {"lengths": [len(each) for each in streams]}).encode() + b"\n" + b"".join(streams)


def _read(value: bytes) -> Stored:
    from deniable.query.execute import Noisy

    start = value.index(b"\n") + 1
    head, tables = json.loads(value[:start]), []
    for length in head["lengths"]:
        tables.append(_table(value, start, length))
        start += length
    parts = iter([Noisy(keys, _arrays(values)) for keys, values in zip(tables[::2], tables[1::2], strict=True)])
    measured = {name: tuple(next(parts) for _ in range(count)) for name, count in head["steps"].items()}
    return Stored(measured, head["release"], datetime.fromisoformat(head["time"]))


def _stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _table(value: bytes, start: int, length: int) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(value)[start : start + length]) as reader:
        return reader.read_all()


def _values(values: tuple[object, ...]) -> pa.Table:
    import pyarrow as pa

    return pa.table({f"v{place}": pa.array(each) for place, each in enumerate(values)})


def _arrays(table: pa.Table) -> tuple[Any, ...]:
    return tuple(column.combine_chunks().to_numpy(zero_copy_only=False) for column in table.columns)
