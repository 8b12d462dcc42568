"""Ask ARX itself for the optima that `tests/golden/test_kanonymity_arx_optima.py` checks, and write them down.

`python bench/_arx_optima.py libarx.jar` searches the extract of the adult table (tests/data/adult) with ARX once for
every case and writes arx_optima.json beside it. Nothing of ours decides what is written: the loss, the levels and the
suppressed rows are ARX's own words; a line says whether our checker reckons the same loss.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _arx
import pyarrow.csv as csv

from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.quality import Discernibility, Loss, Mean
from deniable.kanonymity.request import Prepared, Request, parse_condition, prepare
from deniable.policy.schema import Spec

ADULT = Path(__file__).parents[1] / "tests" / "data" / "adult"
OPTIMA = ADULT / "arx_optima.json"
MEASURES = {str(m): m for m in (Loss(), Loss(mean=Mean.GEOMETRIC), Discernibility())}
SECRET = "occupation"


def cases() -> Iterator[dict[str, Any]]:
    """What is asked: k alone, then l and t on top of a small k, each with several limits of suppression."""
    for k in (2, 5, 10, 50):
        for suppress in (0.0, 0.01, 0.04, 0.1, 1.0):
            yield {"models": [{"k_anonymity": {"k": k}}], "suppress": suppress, "measure": "loss"}
    for k, suppress in ((3, 0.0), (5, 0.02), (5, 0.2)):
        for measure in ("geometric-loss", "discernibility"):
            yield {"models": [{"k_anonymity": {"k": k}}], "suppress": suppress, "measure": measure}
    conditions: list[dict[str, dict[str, Any]]] = [
        *({"distinct_diversity": {"column": SECRET, "l": l}} for l in (2, 4)),  # noqa: E741
        # Not l = 2: the entropy of a class with two values twice each is log 2 exactly, which ARX rounds below it.
        *({"entropy_diversity": {"column": SECRET, "l": l}} for l in (2.1, 3.5)),  # noqa: E741
        {"recursive_diversity": {"column": SECRET, "c": 2, "l": 3}},
        *({"closeness": {"column": SECRET, "t": t}} for t in (0.2, 0.4)),
        *({"closeness": {"column": SECRET, "t": t, "distance": "hierarchical"}} for t in (0.1, 0.3)),
    ]
    for condition in conditions:
        for suppress in (0.0, 0.04, 0.2):
            yield {"models": [{"k_anonymity": {"k": 3}}, condition], "suppress": suppress, "measure": "loss"}


def pose(case: dict[str, Any]) -> Prepared:
    """The problem of a case, on the extract."""
    table = csv.read_csv(ADULT / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))
    models = tuple(parse_condition(Spec(kind, options)) for asked in case["models"] for kind, options in asked.items())
    sensitive = tuple(model.column for model in models if hasattr(model, "column"))
    columns = tuple(name for name in table.column_names if name not in sensitive)
    request = Request(columns, models, sensitive, suppress=case["suppress"], measure=MEASURES[case["measure"]])
    trees = {n: read_tree(ADULT / f"hierarchy_{n}.csv").hierarchy(n, None) for n in table.column_names}
    return prepare(table, request, trees)


def main(jar: Path) -> None:
    """Ask every case."""
    written = []
    for case in cases():
        ready = pose(case)
        found = _arx.run(jar, ready, seconds=600, times=1)
        if found is None:
            print("no answer", case)
            continue
        same = abs(found.loss - found.ours) <= 1e-9 * max(1, abs(found.ours))
        print(f"{'same loss' if same else f'OUR LOSS {found.ours}'} {found.loss} {found.levels} {case}", flush=True)
        written.append(case | {"levels": found.levels, "loss": found.loss, "suppressed": found.suppressed})
    OPTIMA.write_text("[\n" + ",\n".join(json.dumps(one) for one in written) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
