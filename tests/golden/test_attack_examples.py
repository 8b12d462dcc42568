"""The worked examples of attacks, by name."""

import itertools
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.io import loadmat

from deniable import world
from deniable.attacks.aggregates.cell_bounds import Margin, bound_cells, bound_two_way_cells
from deniable.attacks.aggregates.differencing import isolate_people
from deniable.attacks.aggregates.published_tables import Attribute, Statistic, find_worlds
from deniable.attacks.aggregates.reconstruction import reconstruct
from deniable.attacks.class_disclosure import count_class_disclosure
from deniable.attacks.composition import combine_means
from deniable.attacks.linkage import find_links
from deniable.attacks.uniqueness import measure_uniqueness
from deniable.world.hospital import GOVERNOR


def test_two_releases_of_body_mass_index_give_person_four_exactly():
    bmi = np.array([24, 35, 41, 43, 44, 48, 50.0])
    first, second = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 0, 0, 1, 1, 1, 1])
    found = combine_means([(first, {0: 35.75, 1: 142 / 3}), (second, {0: 100 / 3, 1: 46.25})])
    assert found.exact.tolist() == [False, False, False, True, False, False, False]
    assert [f"{value:.2f}" for value in found.value] == ["33.33"] * 3 + ["43.00"] + ["47.33"] * 3
    assert found.value[3] == pytest.approx(bmi[3])


def test_march_and_april_whoever_left_is_rich():
    everybody = np.ones(3005, bool)
    without_the_last = np.arange(3005) < 3004
    found = isolate_people(np.array([everybody, without_the_last]), np.array([202.0, 201.0]))
    assert np.flatnonzero(found.by_pair).tolist() == [3004]
    assert found.value[3004] == pytest.approx(1)


def test_freddies_status_is_the_difference_of_two_counts():
    names = np.array(["Ann", "Freddie", "Bo", "Cy"])
    positive = np.array([1.0, 1.0, 0.0, 1.0])
    masks = np.array([np.ones(4, bool), names != "Freddie"])
    found = isolate_people(masks, masks @ positive)
    assert found.by_pair.tolist() == [False, True, False, False]
    assert found.value[1] == pytest.approx(1)


def test_a_resignation_between_two_means_gives_the_salary():
    pays = np.array([51_000, 64_500, 70_250, 48_900.0])
    masks = np.array([[True] * 4, [True, True, True, False]])
    totals = np.array([4 * pays.mean(), 3 * pays[:3].mean()])
    assert isolate_people(masks, totals).value[3] == pytest.approx(48_900)


def test_the_cohort_of_three_with_low_scores_is_certain():
    rows = [(50, 3, "Low", 52), (50, 3, "Low", 34), (50, 3, "Low", 41), (40, 4, "High", 23), (40, 4, "Medium", 46)]
    table = pa.table(dict(zip(("age", "limbs", "iq", "mobility"), zip(*rows, strict=True), strict=True)))
    assert count_class_disclosure(table, ["age", "limbs"], "iq").homogeneous == 3
    merged = table.set_column(0, "age", pa.array([1] * 5)).set_column(1, "limbs", pa.array([1] * 5))
    assert count_class_disclosure(merged, ["age", "limbs"], "iq").homogeneous == 0


def test_the_governor_is_found_by_zip_birth_date_and_sex():
    town = world.make("hospital", 5_000)
    links = find_links(town["visits"], town["voters"], ["zip", "birth_date", "sex"])
    names = town["voters"]["name"].to_pylist()
    his = {row for row, entry in enumerate(links.row.tolist()) if entry >= 0 and names[entry] == GOVERNOR.name}
    assert GOVERNOR.diagnosis in {town["visits"]["diagnosis"][row].as_py() for row in his}


def test_most_of_a_town_is_singled_out_by_zip_birth_date_and_sex():
    voters = world.make("hospital", 54_000)["voters"]
    assert measure_uniqueness(voters, ["zip", "birth_date", "sex"]).attack.share > 0.8


def test_hair_and_eyes_are_bounded_by_their_margins():
    solved = bound_cells((2, 2), [Margin.of((0,), [12, 18]), Margin.of((1,), [14, 16]), Margin.of((), 30)])
    for bounds in (bound_two_way_cells([12, 18], [14, 16]), solved):
        assert bounds.high.reshape(-1).tolist() == [12, 12, 14, 16]
        assert bounds.low.reshape(-1).tolist() == [0, 0, 2, 4]
        truth = np.array([[2, 10], [12, 6]])
        assert ((bounds.low <= truth) & (truth <= bounds.high)).all()


DIFFIX = re.compile(r"floor\((\d+) \* pow\(\(client_id \* (\d+)\),([\d.]+)\).*?answer => (\d+)", re.DOTALL)
ANSWERS = Path(__file__).parents[2].parent / "shared" / "data" / "diffix"


def groups_of(people, questions):
    """Who is in the group of each question: those for whom floor(o (id m)^p + 1/2) = floor(o (id m)^p)."""
    spread = np.array([o * (people * m) ** p for o, m, p in questions])
    return np.floor(spread + 0.5) == np.floor(spread)


def test_answers_like_those_of_a_production_system_give_everybody_away():
    """The questions of Cohen and Nissim, put to a service that adds noise of standard deviation 2 and rounds."""
    rng = np.random.default_rng(7)
    people = np.sort(rng.choice(np.arange(2000, 3000), 73, replace=False)).astype(float)
    secret = rng.random(73) < 0.65
    offsets, multiples = (5, 10, 50, 100, 500, 1000, 5000), (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
    powers = (0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)
    groups = groups_of(people, list(itertools.product(offsets, multiples, powers)))
    answers = np.round(groups @ secret.astype(float) + rng.normal(0, 2, len(groups)))
    outcome = reconstruct(groups, answers, secret)
    assert outcome.attack.share == 1
    assert outcome.baseline_share < 0.7
    assert reconstruct(groups[:20], answers[:20], secret).attack.share < 0.9


if ANSWERS.exists():  # real answers, where they are beside the project

    @pytest.mark.parametrize("area", ["2000_3000", "3000_5000"])
    def test_the_answers_of_a_production_system_give_everybody_away(area):
        def column(name):
            found = loadmat(ANSWERS / f"{name}_{area}_ordered.mat")
            return next(value for key, value in found.items() if not key.startswith("_")).reshape(-1)

        people, secret = column("client_id").astype(float), column("true_status_client_id").astype(bool)
        log = DIFFIX.findall((ANSWERS / f"aircloak_output_cleaned_{area}.txt").read_text())
        groups = groups_of(people, [(float(o), float(m), float(p)) for o, m, p, _ in log])
        outcome = reconstruct(groups, np.array([float(answer) for *_, answer in log]), secret)
        assert outcome.attack.share == 1
        assert outcome.baseline_share < 0.7


def test_every_subset_count_within_e_errs_in_at_most_four_e_positions():
    rng = np.random.default_rng(1)
    secret = rng.random(10) < 0.5
    groups = (np.arange(1, 1024)[:, None] >> np.arange(10) & 1).astype(bool)
    answers = groups @ secret.astype(float) + rng.integers(-1, 2, len(groups))  # within E = 1
    worlds = (np.arange(1024)[:, None] >> np.arange(10) & 1).astype(bool)
    fits = (np.abs(worlds.astype(float) @ groups.T - answers) <= 1).all(axis=1)
    assert fits.any()
    assert all((world != secret).sum() <= 4 for world in worlds[fits])


FEMALE, MALE, BLACK, WHITE = {"female": (1, 1)}, {"female": (0, 0)}, {"black": (1, 1)}, {"black": (0, 0)}
BLOCK = [Attribute("age", 0, 115), Attribute("female", 0, 1), Attribute("black", 0, 1), Attribute("married", 0, 1)]


def block_table():
    """The published table of the seven-person block (Garfinkel, Abowd and Martindale, ACM Queue 16(5), 2018)."""

    def told(where, count, median, mean):
        return Statistic(where, count, "age", Decimal(mean), Decimal(median))

    return [
        told({}, 7, "30", "38.0"), told(FEMALE, 4, "30", "33.5"), told(MALE, 3, "30", "44.0"),
        told(BLACK, 4, "51", "48.5"), told(WHITE, 3, "24", "24.0"), told({"married": (1, 1)}, 4, "51", "54.0"),
        told(FEMALE | BLACK, 3, "36", "36.7"), Statistic({"married": (0, 0), "age": (18, 115)}),
        Statistic(MALE | BLACK), Statistic(MALE | WHITE), Statistic(FEMALE | WHITE), Statistic({"age": (0, 4)}),
        Statistic({"age": (0, 17)}), Statistic({"age": (64, 115)}),
        Statistic({"age": (0, 17), "married": (1, 1)}, 0),
    ]  # fmt: skip


def test_the_seven_person_block_has_one_world():
    found = find_worlds(BLOCK, block_table())
    assert found.unique
    assert [record[0] for record in found.certain] == [8, 18, 24, 30, 36, 66, 84]
    assert found.outcome().attack.share == 1
