"""Release: rows with their claim and their origin; and writing them to a file with its statement beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deniable.errors import ParameterError
from deniable.release.guarantee import Guarantee
from deniable.release.provenance import Provenance, plain
from deniable.release.statement import Statement, seal, withdraw

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Release:
    """What leaves: an Arrow table, or the path of a file that was written, never without its guarantee.

    `details` are public facts about it, such as the accuracy of an answer or what is left of the budget. Rows are not
    shown when a release is printed: released or not, a log is no place for them.
    """

    rows: pa.Table | Path = field(repr=False)
    guarantee: Guarantee
    provenance: Provenance
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "details", plain(self.details, "details"))


class Writer(Protocol):
    """Whoever can write rows to a file, whole or not at all: every engine can."""

    def write(self, batches: Iterable[pa.RecordBatch] | pa.Table, path: str | Path, format: str | None = None) -> Any:
        """Write the rows under the path."""


def write(release: Release, path: str | Path, writer: Writer, format: str | None = None) -> Statement:
    """Write a release's rows, then its statement. An older statement goes first: no claim outlives its file."""
    if isinstance(release.rows, Path):
        raise ParameterError("the rows of this release are a file already", remedy="Use seal for a written file")
    target = Path(path)
    withdraw(target)
    writer.write(release.rows, target, format)
    return seal(target, release.guarantee, release.provenance, {"rows": release.rows.num_rows} | dict(release.details))
