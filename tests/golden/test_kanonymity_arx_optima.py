"""Optima that ARX found on an extract of the adult table, and those that its own regression tests state for the whole.

The extract and the optima stand in tests/data/adult, with their sources; the searches were made by ARX itself, through
`bench/_arx_optima.py`. Where the whole table is beside the project (../shared/data/adult) the published optima are
checked too: the settings are those of ARX's tests TestAnonymizationHeuristic, -TCloseness and -EntropyLDiversity, and
figures and levels are facts that its authors published there (Apache-2.0, github.com/arx-deidentifier/arx). Its entropy
is in bits and not divided by anything.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from deniable.kanonymity.anonymize import Anonymized, anonymize
from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.models import Closeness, Distance, EntropyDiversity, KAnonymity, PrivacyModel
from deniable.kanonymity.quality import Discernibility, Loss, Mean, Measure, NonUniformEntropy
from deniable.kanonymity.request import Request, parse_condition
from deniable.policy.schema import Spec

EXTRACT = Path(__file__).parents[1] / "data" / "adult"
WHOLE = Path(__file__).parents[2].parent / "shared" / "data" / "adult"
OPTIMA: list[dict[str, Any]] = json.loads((EXTRACT / "arx_optima.json").read_text())
MEASURES = {str(measure): measure for measure in (Loss(), Loss(mean=Mean.GEOMETRIC), Discernibility())}


@cache
def adult(folder: Path = EXTRACT) -> pa.Table:
    return csv.read_csv(folder / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))


def solve(
    table: pa.Table, models: tuple[PrivacyModel, ...], share: float, measure: Measure, sensitive: tuple[str, ...] = ()
) -> Anonymized:
    names = tuple(table.column_names)
    built = {name: read_tree(EXTRACT / f"hierarchy_{name}.csv").hierarchy(name, None) for name in names}
    columns = tuple(name for name in names if name not in sensitive)
    return anonymize(table, Request(columns, models, sensitive, suppress=share, measure=measure), built)


def setting(case: dict[str, Any]) -> str:
    """A case in a few words: `k_anonymity 3, closeness occupation 0.2, at most 0.04, loss`."""
    asked = [" ".join([kind, *map(str, o.values())]) for model in case["models"] for kind, o in model.items()]
    return ", ".join([*asked, f"at most {case['suppress']:g}", case["measure"]])


@pytest.mark.quick_cases(18)
@pytest.mark.parametrize("case", OPTIMA, ids=setting)
def test_our_optimum_is_that_of_arx(case: dict[str, Any]) -> None:
    models = tuple(parse_condition(Spec(kind, options)) for model in case["models"] for kind, options in model.items())
    sensitive = tuple(model.column for model in models if hasattr(model, "column"))
    found = solve(adult(), models, case["suppress"], MEASURES[case["measure"]], sensitive).solution
    assert found.cost == pytest.approx(case["loss"], rel=1e-9)
    assert found.levels == tuple(case["levels"])
    assert found.suppressed == case["suppressed"]
    assert found.proof.complete


def test_the_optima_cover_every_model_and_differ_by_setting() -> None:
    kinds = {kind for case in OPTIMA for model in case["models"] for kind in model}
    assert kinds >= {"k_anonymity", "distinct_diversity", "entropy_diversity", "recursive_diversity", "closeness"}
    assert {case["measure"] for case in OPTIMA} == set(MEASURES)
    assert len({tuple(case["levels"]) for case in OPTIMA}) > 20


def whole_bits(table: pa.Table) -> float:
    """The bits of all cells of the eight columns."""
    total = 0.0
    for name in table.column_names:
        if name != "occupation":
            counts = np.array([row["counts"] for row in table[name].value_counts().to_pylist()])
            total += float((counts * np.log2(counts.sum() / counts)).sum())
    return total


if WHOLE.exists():  # what ARX's authors published; a clone without the whole table has the searches above

    @pytest.mark.parametrize(
        ("measure", "share", "levels", "loss"),
        [
            (Loss(), 0.02, (0, 3, 0, 2, 2, 1, 1, 2, 0), 0.35748249),
            (Loss(), 0.04, (0, 3, 0, 1, 1, 1, 1, 2, 0), 0.29281588),
            (Loss(mean=Mean.GEOMETRIC), 0.04, (0, 3, 0, 1, 1, 1, 1, 2, 0), 0.26611081915757495),
            (Loss(mean=Mean.GEOMETRIC), 1.0, (0, 3, 0, 0, 2, 1, 1, 1, 0), 0.22041192847984292),
        ],
    )
    def test_five_anonymity_of_the_whole_table(
        measure: Measure, share: float, levels: tuple[int, ...], loss: float
    ) -> None:
        found = solve(adult(WHOLE), (KAnonymity(5),), share, measure).solution
        assert found.levels == levels
        assert found.cost == pytest.approx(loss, abs=1e-8)
        assert found.proof.complete

    def test_closeness_of_the_whole_table_by_discernibility_without_suppression() -> None:
        models = (Closeness("occupation", 0.2), KAnonymity(5))
        found = solve(adult(WHOLE), models, 0.0, Discernibility(), ("occupation",)).solution
        assert (found.levels, found.cost) == ((1, 4, 1, 1, 3, 2, 2, 1), 456853172.0)

    @pytest.mark.parametrize(
        ("k", "share", "levels", "bits"),
        [
            (5, 0.0, (0, 4, 1, 1, 3, 2, 2, 1), 398400.0741806447),
            (100, 0.0, (0, 4, 1, 1, 3, 2, 2, 1), 398400.0741806447),
            (5, 0.04, (1, 4, 0, 0, 3, 2, 2, 1), 377622.78458729305),
        ],
    )
    def test_closeness_of_the_whole_table_along_the_hierarchy_by_entropy(
        k: int, share: float, levels: tuple[int, ...], bits: float
    ) -> None:
        models = (Closeness("occupation", 0.2, Distance.HIERARCHICAL), KAnonymity(k))
        made = solve(adult(WHOLE), models, share, NonUniformEntropy(), ("occupation",))
        assert made.solution.levels == levels
        base = next(v.base for v in made.verdicts if v.levels == levels)  # theirs leaves suppressed rows as generalized
        assert base * whole_bits(adult(WHOLE)) == pytest.approx(bits, rel=1e-9)

    def test_entropy_diversity_of_the_whole_table_with_suppression() -> None:
        models = (EntropyDiversity("occupation", 5),)
        found = solve(adult(WHOLE), models, 0.04, NonUniformEntropy(), ("occupation",)).solution
        assert found.levels == (1, 0, 1, 1, 2, 2, 2, 1)
