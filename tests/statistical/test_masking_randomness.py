"""Random masks follow their laws: the right scale passes and thirty percent more or less fails."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from deniable.masking import keys, lexicon, perturbation, pseudonyms

KEY = keys.Key("people", bytes(range(32)))
N = 20_000


def _deviations(shape: str, scale: Fraction, kind: pa.DataType) -> np.ndarray:
    before = pa.array(np.full(N, 1000)).cast(kind)
    after = perturbation.Noise(scale, shape).apply(before)
    return np.asarray(after.cast(pa.float64()).to_pylist()) - 1000


LAWS = {
    "gaussian": lambda scale: stats.norm(0, scale),
    "laplace": lambda scale: stats.laplace(0, scale),
    "uniform": lambda scale: stats.uniform(-scale, 2 * scale),
}


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
@pytest.mark.parametrize("shape", list(LAWS))
def test_noise_has_its_scale_and_no_other(shape: str, kind: pa.DataType) -> None:
    deviations = _deviations(shape, Fraction(200), kind)

    def distance(scale: float) -> float:
        return float(stats.kstest(deviations, LAWS[shape](scale).cdf).statistic)

    # Kolmogorov's bound 2 exp(-2 * 2.75^2): a false alarm once in two million runs. Whole steps add up to 0.003.
    assert distance(200) < 2.75 / np.sqrt(N) + 0.003
    assert distance(200 * 1.3) > 0.03
    assert distance(200 / 1.3) > 0.03


def test_offsets_of_dates_are_uniform_and_never_zero() -> None:
    people = pa.array([str(i) for i in range(N)])
    drawn = perturbation.derive_offsets(KEY.secret, people, 10)
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [*range(-10, 0), *range(1, 11)]
    assert stats.chisquare(counts).pvalue > 1e-4
    skewed = np.where(drawn == 10, 9, drawn)  # one value lost: must be seen
    assert stats.chisquare(np.unique(skewed, return_counts=True)[1]).pvalue < 1e-4


def test_token_signs_are_uniform() -> None:
    column = pa.array([str(i) for i in range(N)])
    signs = np.frombuffer(
        "".join(pseudonyms.make_token_mask(KEY, "d", 16).apply(column).to_pylist()).encode(), dtype=np.uint8
    )
    counts = np.array([(signs == sign).sum() for sign in pseudonyms.ALPHABET])
    assert counts.sum() == 16 * N
    assert stats.chisquare(counts).pvalue > 1e-4


def test_fake_names_are_drawn_evenly_from_their_list() -> None:
    names = pseudonyms.make_fake_mask(KEY, "first_name").apply(pa.array([str(i) for i in range(N)])).to_pylist()
    known = lexicon.load_words("given_names")
    counts = np.array([names.count(name) for name in known[:50]])
    assert stats.chisquare(counts, np.full(50, counts.sum() / 50)).pvalue > 1e-4
    assert len(set(names)) > 0.99 * len(known)


def test_shuffling_sends_every_row_everywhere() -> None:
    places = np.zeros((6, 6))
    column = pa.array(range(6))
    for _ in range(3000):
        for place, value in enumerate(perturbation.Shuffle().apply(column).to_pylist()):
            places[place, value] += 1
    assert stats.chisquare(places.ravel()).pvalue > 1e-7  # rows and columns add up, so it rings even less often
