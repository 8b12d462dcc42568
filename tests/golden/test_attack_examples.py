"""The worked examples of attacks, by name."""

import numpy as np
import pyarrow as pa
import pytest

from deniable import world
from deniable.attacks.combining import combine_means
from deniable.attacks.differencing import Published, difference, isolate
from deniable.attacks.disclosure import class_disclosure
from deniable.attacks.linkage import find_links
from deniable.attacks.uniqueness import uniqueness
from deniable.world.governor import GOVERNOR


def test_two_releases_of_body_mass_index_give_person_four_exactly():
    bmi = np.array([24, 35, 41, 43, 44, 48, 50.0])
    first, second = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1])
    found = combine_means([(first, {0: 35.75, 1: 142 / 3}), (second, {0: 100 / 3, 1: 46.25})])
    assert found.exact.tolist() == [False, False, False, True, False, False, False]
    assert [f"{value:.2f}" for value in found.value] == ["33.33"] * 3 + ["43.00"] + ["47.33"] * 3
    assert found.value[3] == pytest.approx(bmi[3])


def test_march_and_april_whoever_left_is_rich():
    left = difference(Published("March", 3005, 202), Published("April", 3004, 201))
    assert (left.size, left.each) == (1, 1)


def test_freddies_status_is_the_difference_of_two_counts():
    names = np.array(["Ann", "Freddie", "Bo", "Cy"])
    positive = np.array([1.0, 1.0, 0.0, 1.0])
    masks = np.array([np.ones(4, bool), names != "Freddie"])
    found = isolate(masks, masks @ positive)
    assert found.by_pair.tolist() == [False, True, False, False]
    assert found.value[1] == pytest.approx(1)


def test_a_resignation_between_two_means_gives_the_salary():
    pays = np.array([51_000, 64_500, 70_250, 48_900.0])
    before, after = Published.mean("May", 4, pays.mean()), Published.mean("June", 3, pays[:3].mean())
    assert difference(before, after).each == pytest.approx(48_900)


def test_the_cohort_of_three_with_low_scores_is_certain():
    rows = [(50, 3, "Low", 52), (50, 3, "Low", 34), (50, 3, "Low", 41), (40, 4, "High", 23), (40, 4, "Medium", 46)]
    table = pa.table(dict(zip(("age", "limbs", "iq", "mobility"), zip(*rows, strict=True), strict=True)))
    assert class_disclosure(table, ["age", "limbs"], "iq").homogeneous == 3
    merged = table.set_column(0, "age", pa.array([1] * 5)).set_column(1, "limbs", pa.array([1] * 5))
    assert class_disclosure(merged, ["age", "limbs"], "iq").homogeneous == 0


def test_the_governor_is_found_by_zip_birth_date_and_sex():
    town = world.make("hospital", 5_000)
    links = find_links(town["visits"], town["voters"], ["zip", "birth_date", "sex"])
    names = town["voters"]["name"].to_pylist()
    his = {row for row, entry in enumerate(links.row.tolist()) if entry >= 0 and names[entry] == GOVERNOR.name}
    assert GOVERNOR.diagnosis in {town["visits"]["diagnosis"][row].as_py() for row in his}


def test_most_of_a_town_is_singled_out_by_zip_birth_date_and_sex():
    voters = world.make("hospital", 54_000)["voters"]
    assert uniqueness(voters, ["zip", "birth_date", "sex"]).attack.share > 0.8
