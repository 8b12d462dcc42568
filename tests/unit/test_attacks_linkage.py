"""Linkage by hand on four rows, against a brute-force twin, and on generalized cells."""

import itertools
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.generalized_cells import parse_cell
from deniable.attacks.linkage import (
    NAMES_CLOSE,
    Field,
    Like,
    compare_ages,
    compare_dates,
    compare_names,
    find_links,
    grade_pairs,
    link_register,
    link_with_errors,
    score_pairs,
)
from deniable.attacks.uniqueness import blame_columns, find_identifying_sets, find_weakest_rows, measure_uniqueness
from deniable.errors import DataError, ParameterError

REGISTER = pa.table({"name": ["Ann", "Bob", "Cas", "Dee"], "zip": ["1", "1", "2", "2"], "sex": ["F", "M", "M", "M"]})
RELEASE = pa.table({"zip": ["1", "2", "1", None], "sex": ["M", "M", "F", "F"], "ill": ["flu", "cold", "gout", "flu"]})


def test_four_rows_by_hand():
    links = find_links(RELEASE, REGISTER, ["zip", "sex"])
    assert links.row.tolist() == [1, -1, 0, -1]
    assert links.candidates.tolist() == [1, 2, 1, 0]


def test_precision_is_measured_with_the_truth_and_estimated_without():
    truth = np.array([1, 2, 3, -1])
    outcome = link_register(RELEASE, REGISTER, ["zip", "sex"], truth=truth)
    assert (outcome.attack.successes, outcome.attack.trials) == (1, 4)
    assert (outcome.precision.successes, outcome.precision.trials) == (1, 2)
    assert "estimated" in link_register(RELEASE, REGISTER, ["zip", "sex"]).trusted[0]


def test_several_rows_of_a_person_count_once():
    release = pa.table({"id": [7, 7, 8], "zip": ["1", "1", "1"], "sex": ["F", "F", "M"]})
    outcome = link_register(release, REGISTER, ["zip", "sex"], truth=np.array([0, 0, 1]), unit="id")
    assert (outcome.attack.successes, outcome.attack.trials) == (2, 2)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_join_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    tables = [
        pa.table({"a": rng.integers(0, 4, n), "b": [["x", "y", None][k] for k in rng.integers(0, 3, n)]})
        for n in (17, 23)
    ]
    links = find_links(*tables, ["a", "b"])
    ours, theirs = (t.to_pylist() for t in tables)
    for row, mine in enumerate(ours):
        fit = [j for j, other in enumerate(theirs) if mine["b"] is not None and mine == other]
        assert links.candidates[row] == len(fit)
        assert links.row[row] == (fit[0] if len(fit) == 1 else -1)


@pytest.mark.parametrize(
    ("cell", "inside", "outside"),
    [
        ("*", "anything", None),
        ("[30, 40)", "30", "40"),
        ("(-inf, 10)", "-3", "10"),
        ("[30, 40]", "40", "41"),
        ("30-39", "39", "40"),
        (">= 90", "90", "89"),
        ("1980s", "1989-12-31", "1990-01-01"),
        ("1980", "1980-06-01", "1981-06-01"),
        ("1980-06", "1980-06-30", "1980-07-01"),
        ("1980-Q2", "1980-06-30", "1980-07-01"),
        ("2025-W01", "2024-12-30", "2024-12-29"),
        ("695**", "69501", "69401"),
        ("{a, b}", "b", "c"),
    ],
)
def test_generalized_cells_are_read_as_an_intruder_reads_them(cell, inside, outside):
    assert parse_cell(cell)(inside)
    assert outside is None or not parse_cell(cell)(outside)


def test_a_plain_value_is_not_generalized():
    assert parse_cell("flu") is None


def test_a_generalized_release_is_linked_by_containment():
    register = pa.table({"born": [date(1981, 1, 1), date(1985, 5, 5), date(1990, 1, 1)], "zip": [69501, 69502, 69501]})
    release = pa.table({"born": ["1980s", "1980s", "1990s", "*"], "zip": ["6950*", "69502", "69501", "*"]})
    links = find_links(release, register, ["born", "zip"])
    assert links.row.tolist() == [-1, 1, 2, -1]
    assert links.candidates.tolist() == [2, 1, 1, 3]


def test_uniqueness_by_hand():
    outcome = measure_uniqueness(REGISTER, ["zip", "sex"])
    assert (outcome.attack.successes, outcome.attack.trials) == (2, 4)
    assert outcome.figures["expected_right_guesses"] == 3.0  # 1 + 1 + two halves
    assert dict(blame_columns(REGISTER, ["zip", "sex"])) == {"zip": 0.25, "sex": 0.0}
    assert find_weakest_rows(REGISTER, ["zip", "sex"], 2) == ((1, 1), (2, 1))


def test_a_person_with_two_rows_is_alone_by_either():
    table = pa.table({"id": [1, 1, 2, 3], "zip": ["a", "b", "a", "c"]})
    assert measure_uniqueness(table, ["zip"], unit="id").attack.successes == 2


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.2, 0.5, 0.9]))
def test_the_smallest_identifying_sets_are_those_of_brute_force(seed, share):
    rng = np.random.default_rng(seed)
    table = pa.table({name: rng.integers(0, size, 30) for name, size in zip("abcd", (2, 3, 6, 12), strict=True)})
    enough = [
        set(s)
        for n in (1, 2, 3, 4)
        for s in itertools.combinations("abcd", n)
        if measure_uniqueness(table, s).attack.share >= share
    ]
    smallest = [s for s in enough if not any(other < s for other in enough)]
    found = find_identifying_sets(table, share=share)
    assert sorted(map(sorted, smallest)) == sorted(sorted(one.columns) for one in found)


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_one_row_tables_are_taken(rows):
    small = REGISTER.slice(0, rows)
    assert link_register(small, REGISTER, ["zip", "sex"]).attack.trials == rows
    assert link_register(RELEASE, small, ["zip", "sex"]).attack.trials == 4
    assert measure_uniqueness(small, ["zip"]).attack.trials == rows


def test_a_misspelled_column_is_refused_with_the_nearest():
    with pytest.raises(DataError, match="Did you mean 'zip'"):
        link_register(RELEASE, REGISTER, ["zipp"])
    with pytest.raises(ParameterError, match="No column"):
        measure_uniqueness(REGISTER, [])


PEOPLE = pa.table(
    {
        "name": ["jonathan smith", "maria gonzalez", "peter jansen", "wilhelmina schmidt"],
        "born": ["1961-10-09", "1975-03-12", "1980-01-31", "1990-07-04"],
        "sex": ["M", "F", "M", "F"],
    }
)


def test_typos_and_swapped_dates_do_not_save_anybody():
    mistyped = pa.table(
        {
            "name": ["jonathon smith", "maria gonzales", "peter jansen", "wilhelmina schmitt"],
            "born": ["1961-09-10", "1975-03-12", "1980-01-30", "1990-07-04"],
            "sex": ["M", "F", "M", "F"],
        }
    )
    fields = [Field("name", Like.NAME), Field("born", Like.DATE), Field("sex")]
    pairs = score_pairs(mistyped, PEOPLE, fields)
    best = {a: max((w, b) for x, b, w in zip(pairs.release, pairs.register, pairs.weight, strict=True) if x == a)[1]
            for a in pairs.release.tolist()}  # fmt: skip
    assert all(best[row] == row for row in best)


def jaro_winkler(a: str, b: str) -> float:
    """Jaro's and Winkler's measure as Winkler wrote it down in 1990: half the swapped letters are rounded down."""
    reach = max(0, max(len(a), len(b)) // 2 - 1)
    left, right, taken = [], {}, set()
    for i, letter in enumerate(a):
        place = next(
            (j for j in range(max(0, i - reach), i + reach + 1) if j not in taken and b[j : j + 1] == letter), -1
        )
        if place >= 0:
            taken.add(place)
            left.append(letter)
            right[place] = letter
    if not left:
        return 0.0
    swapped = sum(x != y for x, y in zip(left, (right[j] for j in sorted(right)), strict=True)) // 2
    shared = len(left)
    jaro = (shared / len(a) + shared / len(b) + (shared - swapped) / shared) / 3
    prefix = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y or i == 4), min(4, len(a), len(b)))
    return jaro + 0.1 * prefix * (1 - jaro)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("abé", min_size=1, max_size=9), min_size=2, max_size=12, unique=True))
def test_names_are_close_where_a_plain_jaro_winkler_says_so(words):
    pairs = [(i, j) for i in range(-1, len(words)) for j in range(-1, len(words))]
    left, right = np.array(pairs).T
    degrees = grade_pairs(left, right, compare_names(pa.array(words)))
    for (i, j), degree in zip(pairs, degrees, strict=True):
        close = i >= 0 and j >= 0 and jaro_winkler(words[i], words[j])
        if abs(close - NAMES_CLOSE) > 1e-9:  # at the edge the order of summing decides
            assert degree == (0 if i < 0 or j < 0 else 3 if i == j else 2 if close >= NAMES_CLOSE else 1), (i, j)


@pytest.mark.parametrize(
    ("one", "other", "degree"),
    [
        ("1987-03-09", "1987-09-03", 2),  # day and month swapped
        ("1987-03-09", "1987-03-19", 2),  # another day
        ("1987-03-09", "1978-03-09", 2),  # another year
        ("1987-03-09", "1978-09-03", 1),  # another year, and swapped
        ("1987-03-09", "1986-04-09", 1),
        ("9 March", "9 Merch", 2),  # one sign mistyped
        ("9 March", "9 Merck", 1),
        ("9 March", "09 March", 1),
        ("1987-03-09", None, 0),
        (None, None, 0),
    ],
)
def test_dates_are_close_when_swapped_or_off_in_one_part(one, other, degree):
    values = pa.array([one, other]).drop_null()
    left, right = (-1 if value is None else values.index(value).as_py() for value in (one, other))
    assert grade_pairs(np.array([left]), np.array([right]), compare_dates(values.cast(pa.string()))).tolist() == [
        degree
    ]


def test_ages_are_close_within_a_year_and_values_never():
    left, right = np.array([0, 0, 0, -1]), np.array([0, 1, 2, 1])
    assert grade_pairs(left, right, compare_ages(pa.array(["40", "41", "42"]))).tolist() == [3, 2, 1, 0]
    assert grade_pairs(left, right).tolist() == [3, 1, 1, 0]


def test_fuzzy_linkage_finds_a_mistyped_copy_and_not_strangers():
    rng = np.random.default_rng(3)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    names = ["".join(rng.choice(letters, 12)) for _ in range(400)]
    born = [f"{rng.integers(1930, 2005)}-{rng.integers(1, 13):02}-{rng.integers(1, 29):02}" for _ in range(400)]
    town = rng.integers(0, 20, 400)
    register = pa.table({"name": names, "born": born, "town": town})
    typed = [name[:5] + "x" + name[6:] for name in names]
    release = pa.table({"name": typed, "born": born, "town": town})
    fields = [Field("name", Like.NAME), Field("born", Like.DATE), Field("town")]
    found = link_with_errors(release, register, fields, truth=np.arange(400))
    assert found.attack.share > 0.97
    assert found.precision.share > 0.99
    strangers = pa.table({"name": ["".join(rng.choice(letters, 12)) for _ in range(400)],
                          "born": born[200:] + born[:200], "town": rng.permutation(town)})  # fmt: skip
    assert link_with_errors(strangers, register, fields, truth=np.arange(400)).attack.share < 0.02


def test_ages_are_compared_with_birth_dates_in_their_year():
    register = pa.table({"name": ["ann", "bob"], "born": pa.array([date(1950, 1, 1), date(1990, 1, 1)])})
    release = pa.table({"name": ["ann", "bob"], "age": [75, 35]})
    pairs = score_pairs(release, register, [Field("name", Like.NAME), Field("age", Like.AGE, "born")], year=2025)
    assert set(zip(pairs.release.tolist(), pairs.register.tolist(), strict=True)) == {(0, 0), (1, 1)}
    with pytest.raises(ParameterError, match="year"):
        score_pairs(release, register, [Field("age", Like.AGE, "born")])
