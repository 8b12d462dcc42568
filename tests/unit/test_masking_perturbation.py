"""Random projection: distances stay, single values cannot be had back, and the attack that does succeed is named."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.masking import keys, perturbation

KEY = keys.Key("people", bytes(range(32)))
COLUMNS = tuple(f"c{i}" for i in range(30))
BOUNDS = tuple((0.0, 1.0) for _ in COLUMNS)


def _rows(people: int, seed: int = 0) -> tuple[pa.RecordBatch, np.ndarray]:
    values = np.random.default_rng(seed).random((people, len(COLUMNS)))
    batch = pa.RecordBatch.from_arrays([pa.array(values[:, i]) for i in range(len(COLUMNS))], names=list(COLUMNS))
    return batch, values * 2 - 1


def _projected(dimensions: int, batch: pa.RecordBatch) -> np.ndarray:
    made = perturbation.make_projection(KEY, COLUMNS, BOUNDS, dimensions)
    return np.column_stack([column.to_numpy() for column in made.project(batch)])


def test_distances_are_kept_on_average_and_spread_as_the_lemma_says() -> None:
    batch, scaled = _rows(60)
    pairs = np.triu_indices(60, 1)
    true = ((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)[pairs]
    for dimensions in (10, 25):
        ratios = []
        for run in range(20):
            made = perturbation.make_projection(keys.Key("people", bytes([run]) * 32), COLUMNS, BOUNDS, dimensions)
            done = np.column_stack([column.to_numpy() for column in made.project(batch)])
            ratios.append(((done[:, None] - done[None]) ** 2).sum(axis=2)[pairs] / true)
        assert np.mean(ratios) == pytest.approx(1, abs=0.05)
        assert np.std(ratios) == pytest.approx(np.sqrt(2 / dimensions), rel=0.15)


def test_the_matrix_is_normal_and_depends_on_the_key() -> None:
    entries = perturbation.derive_matrix(KEY.secret, 100, 100).ravel() * 10
    assert abs(entries.mean()) < 0.05
    assert entries.std() == pytest.approx(1, abs=0.03)
    assert ((entries**4).mean() / (entries**2).mean() ** 2) == pytest.approx(3, abs=0.25)
    assert not np.allclose(
        perturbation.derive_matrix(b"another", 100, 100), perturbation.derive_matrix(KEY.secret, 100, 100)
    )


def _share_explained(truth: np.ndarray, guess: np.ndarray) -> float:
    return 1 - ((truth - guess) ** 2).sum() / ((truth - truth.mean(axis=0)) ** 2).sum()


def test_even_with_the_key_the_inverse_regains_only_dimensions_over_columns_of_the_variance() -> None:
    batch, scaled = _rows(2000)
    dimensions = 10
    done = _projected(dimensions, batch)
    secret = perturbation.derive_matrix(KEY.derive("projection", "\x1f".join(COLUMNS)), len(COLUMNS), dimensions)
    guess = done @ np.linalg.pinv(secret)
    assert _share_explained(scaled, guess) == pytest.approx(dimensions / len(COLUMNS), abs=0.03)


def test_without_the_key_a_guessed_matrix_is_worse_than_knowing_nothing() -> None:
    batch, scaled = _rows(2000)
    for dimensions in (10, 30):
        done = _projected(dimensions, batch)
        for run in range(5):
            wrong = perturbation.derive_matrix(bytes([run]) * 32, len(COLUMNS), dimensions)
            assert _share_explained(scaled, done @ np.linalg.pinv(wrong)) < 0.05


def test_as_many_known_people_as_columns_give_the_matrix_away_and_fewer_do_not() -> None:
    batch, scaled = _rows(500)
    done = _projected(30, batch)

    def attack(known: int) -> float:
        solved = np.linalg.lstsq(scaled[:known], done[:known], rcond=None)[0]
        return _share_explained(scaled[200:], done[200:] @ np.linalg.pinv(solved))

    assert attack(30) > 0.99
    assert attack(10) < 0.5


def test_missing_values_do_not_stand_out_and_values_beyond_the_bounds_are_clamped() -> None:
    made = perturbation.make_projection(KEY, ("a", "b"), ((0.0, 10.0), (0.0, 10.0)), 2)
    rows = pa.record_batch({"a": [None, 5.0, 99.0, 10.0], "b": [5, 5, 5, 5]})
    done = np.column_stack([column.to_numpy() for column in made.project(rows)])
    assert np.allclose(done[0], done[1])
    assert np.allclose(done[2], done[3])
    assert made.names == ("projection_1", "projection_2")


@pytest.mark.parametrize("dimensions", [0, 3])
def test_dimensions_that_cannot_be_are_refused(dimensions: int) -> None:
    with pytest.raises(ParameterError):
        perturbation.make_projection(KEY, ("a", "b"), ((0.0, 1.0), (0.0, 1.0)), dimensions)


def test_empty_bounds_are_refused() -> None:
    with pytest.raises(ParameterError, match="bounds"):
        perturbation.make_projection(KEY, ("a",), ((1.0, 1.0),), 1)
