"""Random projection and shifted dates: what stays, what cannot be had back, and the attack that does succeed."""

from __future__ import annotations

from datetime import date, datetime
from zoneinfo import ZoneInfo

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


PERSONS = [f"p{i}" for i in range(300)]
SENTINELS = [date(9999, 12, 31), date(1900, 1, 1), date(1970, 1, 1), date(2999, 12, 31), date(1, 1, 1)]


def _shift(values: pa.Array, people: list[str], days: int = 365) -> pa.Array:
    batch = pa.record_batch({"day": values, "person": people})
    return perturbation.make_date_shift(KEY, "person", days).apply(batch.column("day"), batch)


KINDS = [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ms", "UTC")]


@pytest.mark.parametrize("kind", KINDS)
def test_placeholders_stay_and_give_no_offset_away(kind: pa.DataType) -> None:
    true = date(2020, 5, 6)
    days = [SENTINELS[i % len(SENTINELS)] if i % 2 else true for i in range(len(PERSONS))]
    values = pa.array(days, pa.date32()).cast(kind)
    moved = _shift(values, PERSONS)
    for i, (before, after) in enumerate(zip(values.to_pylist(), moved.to_pylist(), strict=True)):
        assert (before == after) == bool(i % 2)  # what an intruder sees of a placeholder is what everybody knows
    assert perturbation.is_placeholder(values).sum() == len(PERSONS) // 2


def test_text_dates_keep_their_placeholders_too() -> None:
    moved = _shift(pa.array(["9999-12-31", "2020-05-06", None]), PERSONS[:3]).to_pylist()
    assert moved[0] == "9999-12-31"
    assert moved[1] not in ("2020-05-06", None)
    assert moved[2] is None


def test_the_hour_stays_when_a_shift_crosses_summer_time() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    seen = [datetime(2024, 7, 1, 9, 30, tzinfo=berlin)] * len(PERSONS)
    moved = _shift(pa.array(seen, pa.timestamp("us", "Europe/Berlin")), PERSONS).to_pylist()
    assert {(one.hour, one.minute) for one in moved} == {(9, 30)}
    assert len({one.utcoffset() for one in moved}) == 2  # some are in winter now
    offsets = perturbation.derive_offsets(KEY.derive("shift", "dates"), pa.array(PERSONS), 365)
    assert [(one.date() - date(2024, 7, 1)).days for one in moved] == offsets.tolist()


def test_an_hour_that_summer_time_skips_becomes_the_next_one() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    values = pa.array([datetime(2024, 3, 30, 2, 30, tzinfo=berlin)] * 40, pa.timestamp("us", "Europe/Berlin"))
    moved = _shift(values, PERSONS[:40], 1).to_pylist()
    assert {(one.day, one.hour) for one in moved} == {(29, 2), (31, 3)}


def test_times_in_nanoseconds_never_wrap_around() -> None:
    ends = [np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max]
    values = pa.array([ends[0]] * len(PERSONS), pa.int64()).cast(pa.timestamp("ns"))
    moved = _shift(values, PERSONS).cast(pa.int64()).to_pylist()
    assert all(one is None or ends[0] <= one < ends[0] + 400 * perturbation.NANOSECONDS_OF_A_DAY for one in moved)
    assert None in moved
    last = pa.array([ends[1]] * len(PERSONS), pa.int64()).cast(pa.timestamp("ns"))
    assert _shift(last, PERSONS).equals(last)  # the year 2262 is a placeholder


def test_one_person_in_two_spellings_has_one_offset() -> None:
    values = pa.array([date(2020, 1, 1)] * 4)
    assert len(set(_shift(values, ["P7", "p7", " p7 ", "P7"]).to_pylist())) == 1
