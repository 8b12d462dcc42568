"""The generated world: people who do not exist, for demos, docs and tests.

Same kind, size and seed: same rows, on every machine. What is planted in a world, so that it can be found again, stands
in the docstring of the module that makes it, and in `docs/topics/world.md`. Names are common given names and surnames
of our own making; numbers, codes and addresses come from ranges that are given to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.world.kinds import KINDS, Kind, check_size, find_kind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KINDS", "SEED", "Kind", "find_kind", "findings_of", "make", "policy", "write"]

SEED = 2026


def make(name: str, people: int | None = None, seed: int = SEED) -> dict[str, pa.Table]:
    """A world in memory: its tables and public lists by name.

    >>> make("salaries", 100)["salaries"].num_rows
    100
    """
    import pyarrow as pa

    chosen = find_kind(name)
    size = chosen.usual if people is None else people
    check_size(size, seed)
    chunks = list(chosen.batches(size, seed))
    return {table: pa.concat_tables([chunk[table] for chunk in chunks]) for table in chosen.tables} | chosen.lists()


def write(
    name: str,
    people: int | None,
    seed: int,
    folder: str | Path,
    progress: Callable[[float], None] | None = None,
) -> dict[str, int]:
    """A world in a folder, with its policy and findings; the number of rows of each table is returned."""
    from deniable.world import export

    chosen = find_kind(name)
    size = chosen.usual if people is None else people
    check_size(size, seed)
    texts = {"policy.yaml": policy(name)} | ({"findings.py": found} if (found := findings_of(name)) else {})
    return export.write_files(chosen, size, seed, Path(folder), texts, progress)


def policy(name: str) -> str:
    """The text of a policy for a world, with comments; it refers to the files that `write` makes."""
    return (files("deniable.world") / "policies" / f"{find_kind(name).name}.yaml").read_text(encoding="utf-8")


def findings_of(name: str) -> str:
    """The text of a file of findings about a world, for `deniable parity`; empty for a world without."""
    file = files("deniable.world") / "findings" / f"{find_kind(name).name}.py"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
