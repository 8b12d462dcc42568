"""Making a world: a generated population in a folder, with its policy, for demos and trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def make(
    kind: str, people: int | None, seed: int | None, folder: Path, progress: Callable[[float], None] | None = None
) -> dict[str, object]:
    """Write a world to a folder, and say what was written."""
    from deniable import world

    chosen, start = world.kind(kind), world.SEED if seed is None else seed
    size = chosen.usual if people is None else people
    rows = world.write(kind, size, start, folder, progress)
    return {"world": kind, "people": size, "seed": start, "folder": str(folder), "rows": rows, "policy": "policy.yaml"}


def kinds() -> list[dict[str, object]]:
    """The worlds there are."""
    from deniable import world

    return [
        {
            "world": kind.name,
            "summary": kind.summary,
            "tables": list(kind.tables),
            "lists": list(kind.reference),
            "usual_people": kind.usual,
        }
        for kind in world.KINDS
    ]
