"""Optima that ARX's own regression tests state for the adult table (Apache-2.0, github.com/arx-deidentifier/arx).

The settings are those of its tests TestAnonymizationHeuristic, -TCloseness and -EntropyLDiversity; figures and levels
are facts that its authors published there. Its entropy is in bits and not divided by anything.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from deniable.kanonymity.anonymize import Anonymized, anonymize
from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.models import Closeness, Distance, EntropyDiversity, KAnonymity, PrivacyModel
from deniable.kanonymity.quality import Discernibility, Loss, Mean, Measure, NonUniformEntropy
from deniable.kanonymity.request import Request

ADULT = Path(__file__).parents[2].parent / "shared" / "data" / "adult"
pytestmark = pytest.mark.skipif(not ADULT.exists(), reason="the adult table is not beside the project")


@pytest.fixture(scope="module")
def adult() -> pa.Table:
    return csv.read_csv(ADULT / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))


def solve(
    table: pa.Table, models: tuple[PrivacyModel, ...], share: float, measure: Measure, sensitive: tuple[str, ...] = ()
) -> Anonymized:
    names = tuple(table.column_names)
    built = {name: read_tree(ADULT / f"adult_hierarchy_{name}.csv").hierarchy(name, None) for name in names}
    columns = tuple(name for name in names if name not in sensitive)
    return anonymize(table, Request(columns, models, sensitive, suppress=share, measure=measure), built)


@pytest.mark.parametrize(
    ("share", "levels", "loss"),
    [(0.04, (0, 3, 0, 1, 1, 1, 1, 2, 0), 0.26611081915757495), (1.0, (0, 3, 0, 0, 2, 1, 1, 1, 0), 0.22041192847984292)],
)
def test_five_anonymity_by_the_geometric_mean_of_losses(
    adult: pa.Table, share: float, levels: tuple[int, ...], loss: float
) -> None:
    found = solve(adult, (KAnonymity(5),), share, Loss(mean=Mean.GEOMETRIC)).solution
    assert found.levels == levels
    assert found.cost == pytest.approx(loss, abs=1e-9)
    assert found.proof.complete


def test_closeness_by_discernibility_without_suppression(adult: pa.Table) -> None:
    models = (Closeness("occupation", 0.2), KAnonymity(5))
    found = solve(adult, models, 0.0, Discernibility(), ("occupation",)).solution
    assert (found.levels, found.cost) == ((1, 4, 1, 1, 3, 2, 2, 1), 456853172.0)


@pytest.mark.parametrize(
    ("k", "share", "levels", "bits"),
    [
        (5, 0.0, (0, 4, 1, 1, 3, 2, 2, 1), 398400.0741806447),
        (100, 0.0, (0, 4, 1, 1, 3, 2, 2, 1), 398400.0741806447),
        (5, 0.04, (1, 4, 0, 0, 3, 2, 2, 1), 377622.78458729305),
    ],
)
def test_closeness_along_the_hierarchy_by_entropy(
    adult: pa.Table, k: int, share: float, levels: tuple[int, ...], bits: float
) -> None:
    models = (Closeness("occupation", 0.2, Distance.HIERARCHICAL), KAnonymity(k))
    made = solve(adult, models, share, NonUniformEntropy(), ("occupation",))
    assert made.solution.levels == levels
    base = next(v.base for v in made.verdicts if v.levels == levels)  # theirs leaves suppressed rows as generalized
    assert base * whole_bits(adult) == pytest.approx(bits, rel=1e-9)


def whole_bits(table: pa.Table) -> float:
    """The bits of all cells of the eight columns."""
    total = 0.0
    for name in table.column_names:
        if name != "occupation":
            counts = np.array([row["counts"] for row in table[name].value_counts().to_pylist()])
            total += float((counts * np.log2(counts.sum() / counts)).sum())
    return total


def test_entropy_diversity_with_suppression(adult: pa.Table) -> None:
    found = solve(adult, (EntropyDiversity("occupation", 5),), 0.04, NonUniformEntropy(), ("occupation",)).solution
    assert found.levels == (1, 0, 1, 1, 2, 2, 2, 1)
