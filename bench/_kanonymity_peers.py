"""What anonypy, pycanon and anjana do with adult; run by bench/kanonymity.py with the Python of their environment.

    python _kanonymity_peers.py {anonypy|pycanon|anjana} adult.csv

Prints one line of JSON: CPU seconds, and the loss of what they release by the same definition as ours.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402


def anonypy(frame: Any) -> dict[str, Any]:
    """Mondrian with k = 5 over all columns but the salary class."""
    import anonypy

    for name in frame.columns:
        if frame[name].dtype == object or str(frame[name].dtype) in ("str", "string"):
            frame[name] = frame[name].astype("category")
    columns = [n for n in frame.columns if n != "salary-class"]
    begun = time.process_time()
    rows = anonypy.Preserver(frame, columns, "salary-class").anonymize_k_anonymity(k=5)
    spent = time.process_time() - begun
    lost = sum(_share(frame[name], row[name]) * row["count"] for row in rows for name in columns)
    return {"seconds": spent, "loss": lost / sum(row["count"] for row in rows) / len(columns)}


def _share(column: Any, held: Any) -> float:
    """The share of a column's values that a released cell leaves open."""
    held = held if isinstance(held, list) else [held]
    text = str(held[0])
    if column.dtype.name == "category":
        size = len(set(text.split(","))) if len(held) == 1 else len(held)
        return (size - 1) / (column.nunique() - 1)
    ends = [float(e) for e in text.split("-")] if "-" in text else [float(text)] * 2
    values = np.sort(column.unique())
    return float(((values >= ends[0]) & (values <= ends[-1])).sum() - 1) / (len(values) - 1)


def pycanon(frame: Any) -> dict[str, Any]:
    """k, l and t of the table as it is, each with its seconds."""
    from pycanon import anonymity

    known = [n for n in frame.columns if n != "occupation"]
    works = {
        "k": lambda: anonymity.k_anonymity(frame, known),
        "l": lambda: anonymity.l_diversity(frame, known, ["occupation"]),
        "t": lambda: anonymity.t_closeness(frame, known, ["occupation"]),
    }
    out = {}
    for name, work in works.items():
        begun = time.process_time()
        value = work()
        out[name] = [float(value), time.process_time() - begun]
    return out


def anjana(frame: Any, folder: Path) -> dict[str, Any]:
    """Its greedy search with k = 5 and 4% suppression."""
    from anjana.anonymity import k_anonymity

    names = list(frame.columns)
    trees = {name: _tree(folder / f"adult_hierarchy_{name}.csv", int if name == "age" else str) for name in names}
    begun = time.process_time()
    made = k_anonymity(frame.copy(), [], names, 5, 4, trees)
    spent = time.process_time() - begun
    lost = sum(_lost(made[name], trees[name]) for name in names)
    loss = (lost + (len(frame) - len(made)) * len(names)) / len(frame) / len(names)
    return {"seconds": spent, "loss": loss, "rows": len(made)}


def _tree(path: Path, kind: type) -> dict[int, Any]:
    rows = [row.split(";") for row in path.read_text().splitlines()]
    return {n: pd.Series([kind(r[n]) if n == 0 else r[n] for r in rows]) for n in range(len(rows[0]))}


def _lost(column: Any, tree: dict[int, Any]) -> float:
    released = column.astype(str)
    for level in tree.values():
        labels = level.astype(str)
        if set(released) <= set(labels):
            return float(released.map((labels.value_counts() - 1) / (len(labels) - 1)).sum())
    return 0.0


if __name__ == "__main__":
    what, path = sys.argv[1], Path(sys.argv[2])
    table = pd.read_csv(path, sep=";")
    runs = {"anonypy": lambda: anonypy(table), "pycanon": lambda: pycanon(table)}
    print(json.dumps(runs.get(what, lambda: anjana(table, path.parent))()))
