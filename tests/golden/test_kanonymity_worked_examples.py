"""The worked examples of k-anonymity: a class that leaks, its remedy, and releases that do not compose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deniable.attacks.aggregates.differencing import subtract_maps
from deniable.kanonymity.composition import compose, infer_means
from deniable.kanonymity.microaggregation import release_grid
from deniable.kanonymity.risk import examine

COHORTS = pa.table(
    {
        "decade": [50, 50, 50, 40, 40],
        "limbs": [3, 3, 3, 4, 4],
        "iq": ["Low", "Low", "Low", "High", "Medium"],
        "mobility": [52, 34, 41, 23, 46],
    }
)


def test_a_class_of_three_whose_iq_is_always_low_leaks_it_with_certainty() -> None:
    first = examine(COHORTS.slice(0, 3), ("decade", "limbs"), ("iq",))
    assert (first.k, first.sensitive[0].distinct_l, first.sensitive[0].certain) == (3, 1, 1.0)


def test_merging_the_cohorts_gives_one_class_of_five_with_three_values() -> None:
    merged = COHORTS.set_column(0, "decade", pa.array(["[40, 50]"] * 5)).set_column(
        1, "limbs", pa.array(["[3, 4]"] * 5)
    )
    found = examine(merged, ("decade", "limbs"), ("iq",))
    assert (found.k, found.sensitive[0].distinct_l) == (5, 3)


def test_most_mobility_scores_of_the_merged_class_still_lie_below_45_which_closeness_measures() -> None:
    scores = np.array(COHORTS["mobility"].to_pylist())
    assert (scores < 45).sum() > len(scores) / 2
    wider = pa.concat_tables(
        [
            pa.table({"class": ["merged"] * 5, "mobility": scores}),
            pa.table({"class": ["others"] * 20, "mobility": np.arange(60, 80)}),
        ]
    )
    found = examine(wider, ("class",), ("mobility",)).sensitive[0]
    assert found.ordered_t is not None
    assert found.ordered_t > 0.4


BMI = np.array([24, 35, 41, 43, 44, 48, 50], float)
FIRST, SECOND = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1])


def test_two_three_anonymous_releases_give_the_bmi_of_person_4_exactly() -> None:
    means = [np.bincount(c, BMI) / np.bincount(c) for c in (FIRST, SECOND)]
    assert np.round(means[0][FIRST], 2).tolist() == [35.75] * 4 + [47.33] * 3
    assert np.round(means[1][SECOND], 2).tolist() == [33.33] * 3 + [46.25] * 4
    inferred = infer_means(FIRST, SECOND, *means)
    assert np.round(inferred, 2).tolist() == [33.33, 33.33, 33.33, 43.00, 47.33, 47.33, 47.33]


def test_the_two_bmi_releases_are_reported_as_singling_one_person_out() -> None:
    together = compose(FIRST, SECOND, 3)
    assert (together.k, together.exposed, together.singled_out) == (1, 1, 1)


def rides(lone: int) -> pa.Table:
    """Rides in one coarse cell: five and three in two fine cells, and some elsewhere in it."""
    return pa.table(
        {
            "lat": [40.711] * 5 + [40.761] * 3 + [40.745] * lone,
            "lon": [-73.981] * 5 + [-73.951] * 3 + [-73.921] * lone,
        }
    )


def test_the_taxi_map_at_two_resolutions_betrays_the_suppressed_rides() -> None:
    fine, coarse = (release_grid(rides(2), "lat", "lon", digits=digits, k=3) for digits in (2, 1))
    assert sorted(fine.cells["count"].to_pylist()) == [3, 5]
    assert fine.dropped == 2
    assert coarse.cells["count"].to_pylist() == [10]
    assert subtract_maps(coarse.cells, fine.cells, ["lat", "lon"], "count").attack.successes == 2


def test_maps_that_agree_betray_nothing() -> None:
    fine, coarse = (release_grid(rides(0), "lat", "lon", digits=digits, k=3) for digits in (2, 1))
    assert subtract_maps(coarse.cells, fine.cells, ["lat", "lon"], "count").attack.successes == 0


@pytest.mark.parametrize("age", [0, 14, 15, 23, 24, 34, 35, 44, 45, 54, 55, 69, 70, 120])
def test_the_age_brackets(age: int) -> None:
    from deniable.kanonymity.builders.numbers import Brackets

    edges = [0, 15, 24, 35, 45, 55, 70]
    low = max(edge for edge in edges if edge <= age)
    high = next((str(edge) for edge in edges if edge > age), "inf")
    label = next(iter(Brackets().hierarchy("age", pa.array([age])).rows()))[1]
    assert label == f"[{low}, {high})"
