"""Laws of masks that move values, without a sample: every keyed number, every order and every draw is tried."""

from __future__ import annotations

import hmac
from collections import Counter
from datetime import date, timedelta
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from deniable.masking import keys, perturbation, pseudonyms
from deniable.masking.perturbation import Noise, Shuffle

KEY = keys.Key("people", bytes(range(32)))


def tell_numbers(monkeypatch: pytest.MonkeyPatch, numbers: NDArray[np.uint64]) -> None:
    """Let the keyed numbers of people be these."""
    monkeypatch.setattr(pseudonyms, "derive_numbers", lambda secret, text: numbers[: len(text)])


# ---- dates

DAYS = [1, 2, 3, 10, 30, 182, 365, 1000]


@pytest.mark.parametrize("start", [0, 17, 2**64 - 2**20])
@pytest.mark.parametrize("days", DAYS)
def test_every_offset_of_dates_is_taken_equally_often_and_none_is_zero(
    days: int, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many keyed numbers in a row as there are offsets, three times over, wherever they begin."""
    turns = 3
    numbers = np.array([start + i for i in range(2 * days * turns)], dtype=np.uint64)
    tell_numbers(monkeypatch, numbers)
    offsets = perturbation.derive_offsets(KEY.secret, pa.array([""] * numbers.size), days)
    wanted = [*range(-days, 0), *range(1, days + 1)]
    assert Counter(offsets.tolist()) == Counter(dict.fromkeys(wanted, turns))


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), pa.timestamp("us"), pa.timestamp("ns"), pa.string()], ids=str
)
@pytest.mark.parametrize("days", [1, 3, 365])
def test_no_date_of_any_type_stays_where_it_was(days: int, kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_numbers(monkeypatch, np.arange(2 * days, dtype=np.uint64))
    day = date(2024, 2, 29)
    rows = pa.record_batch(
        {"person": pa.array([str(i) for i in range(2 * days)]), "day": pa.array([day] * 2 * days).cast(kind)}
    )
    moved = perturbation.make_date_shift(KEY, "person", days).apply(rows.column("day"), rows)
    assert moved.type == kind
    distances = [(each - day).days for each in moved.cast(pa.date32()).to_pylist()]
    assert sorted(distances) == [*range(-days, 0), *range(1, days + 1)]


def test_the_offset_of_a_person_is_that_of_the_persons_own_keyed_number() -> None:
    """The twin takes the first 64 bits of the HMAC from the standard library."""
    people, day = [str(i) for i in range(2000)], date(2000, 1, 1)
    secret = KEY.derive("shift", "dates")
    digests = [hmac.digest(secret, person.encode(), "sha256") for person in people]
    rows = pa.record_batch({"person": pa.array(people), "day": pa.array([day] * len(people))})
    moved = perturbation.make_date_shift(KEY, "person", 2).apply(rows.column("day"), rows).to_pylist()
    offsets = [(-2, -1, 1, 2)[int.from_bytes(digest[:8], "big") % 4] for digest in digests]
    assert moved == [day + timedelta(days=offset) for offset in offsets]


# ---- shuffling


@pytest.mark.parametrize(
    ("classes", "ways"), [("aaaa", 24), ("aabb", 4), ("abab", 4), ("abba", 4), ("abcd", 1), ("aaab", 6)]
)
def test_every_order_within_classes_comes_equally_often(
    classes: str, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All orders of the rows are tried: each arrangement within classes comes in as many of them."""
    values = pa.array([10, 20, 30, 40])
    rows = pa.record_batch({"class": pa.array(list(classes))})
    seen: Counter[tuple[int, ...]] = Counter()
    for order in permutations(range(4)):
        monkeypatch.setattr(perturbation.samplers, "permutation", lambda size, order=order: np.array(order))
        shuffled = Shuffle(("class",)).apply(values, rows).to_pylist()
        assert sorted(zip(classes, shuffled, strict=True)) == sorted(zip(classes, values.to_pylist(), strict=True))
        seen[tuple(shuffled)] += 1
    assert sorted(seen.values()) == [24 // ways] * ways


# ---- noise


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(5, 2), Fraction(7)], ids=str)
def test_uniform_noise_takes_every_size_up_to_its_scale_equally_often(
    scale: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = max(1, int(scale))
    monkeypatch.setattr(perturbation.samplers, "uniform_below", lambda bound, size: np.arange(size) % bound)
    noisy = Noise(scale, "uniform").apply(pa.array([100] * 3 * (2 * most + 1)))
    wanted = dict.fromkeys(range(100 - most, 101 + most), 3)
    assert Counter(noisy.to_pylist()) == Counter(wanted)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("shape", "power"), [("laplace", 1), ("gaussian", 2)])
def test_noise_is_drawn_at_its_scale_and_in_steps_of_it(
    shape: str, power: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers get noise of the scale itself, others in steps of a 1024th of it: the sampler is asked for that."""
    asked: list[Fraction] = []

    def draw(parameter: Fraction, size: int) -> NDArray[np.int64]:
        asked.append(parameter)
        return np.arange(size)

    for name in ("discrete_laplace", "discrete_gaussian"):
        monkeypatch.setattr(perturbation.samplers, name, draw)
    noisy = Noise(Fraction(12), shape).apply(pa.array([1, 2, 3] if whole else [1.0, 2.0, 3.0])).to_pylist()
    scale = Fraction(12) if whole else Fraction(1024)
    assert asked == [scale**power]
    assert noisy == ([1, 3, 5] if whole else [1.0, 2.0 + 12 / 1024, 3.0 + 24 / 1024])


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint8(), pa.int32(), pa.uint32()], ids=str)
def test_noise_past_the_ends_of_a_type_stays_at_the_ends(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = np.iinfo(kind.to_pandas_dtype())
    values = [limits.min, limits.min + 1, 5, limits.max - 1, limits.max, None]
    noise = [-3, -1, 0, 1, 3]
    pairs = list(product(values, noise))
    monkeypatch.setattr(perturbation.samplers, "discrete_laplace", lambda scale, size: np.array([n for _, n in pairs]))
    noisy = Noise(Fraction(9), "laplace").apply(pa.array([value for value, _ in pairs], kind))
    held = [None if value is None else min(max(value + n, limits.min), limits.max) for value, n in pairs]
    assert noisy.to_pylist() == held
