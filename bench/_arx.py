"""ARX beside us: the same codes, hierarchies, models, limit and measure, handed over as files to a small Java driver.

Everything is written as integer codes, so that both programs see the same leaves and groups whatever their labels. The
loss of what ARX found is also reckoned by our own checker: programs that agree on the loss of a node compare fairly.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.models import Closeness, DistinctDiversity, EntropyDiversity, KAnonymity, RecursiveDiversity
from deniable.kanonymity.request import Prepared
from deniable.kanonymity.search.check import Checker

DRIVER = Path(__file__).with_name("ArxDriver.java")
HEURISTICS = ("BEST_EFFORT_BOTTOM_UP", "BEST_EFFORT_TOP_DOWN", "BEST_EFFORT_GENETIC")
"""Its searches for lattices too large to list. The first is Lightning (Prasser et al. 2016), the last is genetic."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best of several runs of ARX: levels by column, loss by its own reckoning and by ours, rows, seconds."""

    levels: tuple[int, ...]
    loss: float
    ours: float
    suppressed: int
    cpu: float
    wall: float


def available(jar: Path | None) -> bool:
    """Whether ARX can be run; a sentence where it cannot."""
    if jar is None:
        print("ARX is not run: name its archive with --arx libarx.jar (it is on no registry; build it from its source)")
        return False
    if not jar.is_file() or shutil.which("java") is None:
        print(f"ARX is not run: {'there is no java' if jar.is_file() else f'there is no file {jar}'}")
        return False
    return True


def run(jar: Path, ready: Prepared, algorithm: str = "OPTIMAL", seconds: float = 30.0, times: int = 3) -> Found | None:
    """Search with ARX several times in one process, so that its last runs are warm; the best counts."""
    with tempfile.TemporaryDirectory() as folder:
        export(ready, Path(folder))
        asked = [
            _k(ready),
            str(ready.request.suppress),
            algorithm,
            str(int(1000 * seconds)),
            str(times),
            str(ready.request.measure),
            *_model(ready),
        ]
        command = ["java", "-Xmx3g", "-cp", str(jar), str(DRIVER), folder, *asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    runs = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
    if done.returncode or not runs or runs[-1]["levels"] is None:
        print(f"  ARX {algorithm} found nothing: {(done.stderr.strip().splitlines() or ['no message'])[-1][:160]}")
        return None
    return _found(ready, min(runs, key=lambda held: (float(held["loss"]), float(held["cpu"]))))


def _found(ready: Prepared, best: dict[str, Any]) -> Found:
    levels = tuple(int(best["levels"][c.hierarchy.column]) for c in ready.columns)
    verdict = Checker(ready.problem).check(levels)
    assert verdict.acceptable
    suppressed = int(best["suppressed"])
    return Found(levels, float(best["loss"]), verdict.cost, suppressed, float(best["cpu"]), float(best["wall"]))


def _k(ready: Prepared) -> str:
    return str(next(model.k for model in ready.request.models if isinstance(model, KAnonymity)))


def _model(ready: Prepared) -> Sequence[str]:
    for model in ready.request.models:
        match model:
            case DistinctDiversity():
                return "distinct", model.column, str(model.l)
            case EntropyDiversity():
                return "entropy", model.column, str(model.l)
            case RecursiveDiversity():
                return "recursive", model.column, str(model.c), str(model.l)
            case Closeness():
                return str(model.distance), model.column, str(model.t)
    return ()


def export(ready: Prepared, folder: Path) -> None:
    """Write the table of codes and one hierarchy a column that has one, in the form ARX reads."""
    columns = (*ready.columns, *ready.sensitive)
    codes = np.stack([c.codes for c in columns], axis=1).astype(str)
    rows = [";".join(c.hierarchy.column for c in columns), *(";".join(row) for row in codes.tolist())]
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    for column in columns:
        (folder / f"{column.hierarchy.column}.hierarchy.csv").write_text(tree(column.hierarchy))


def tree(built: Hierarchy) -> str:
    """One row a leaf; groups are numbered, except that the value itself is its code."""
    assert built.levels[0].size == built.size  # level 0 is the value itself, as it must be for ARX
    rows = (
        ";".join([str(code), *(f"{n}.{level.groups[code]}" for n, level in enumerate(built.levels[1:], start=1))])
        for code in range(built.size)
    )
    return "\n".join(rows) + "\n"
