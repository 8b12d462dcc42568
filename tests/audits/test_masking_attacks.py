"""What falls and what holds: dictionary and frequency attacks against every consistent mask, in plain code.

The intruder holds the released column. In the *dictionary* attack also a list of guesses that contains every true
value, and all public algorithms; in the *frequency* attack the true frequencies of values (a census of names, say).
Success is the share of rows whose value is named. A broken twin, an unsalted hash, shows that the attacks work.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from deniable.masking import format_preserving, keys, perturbation, pseudonyms, replacement, vault

KEY = keys.generate_key("people")
Mask = Callable[[pa.Array], pa.Array]


def _population() -> pa.Array:
    """9-digit numbers, the i-th most common of which occurs about 2000/i times: known frequencies, shuffled rows."""
    rng = random.Random(11)
    values = rng.sample(range(10**8, 10**9), 40)
    rows = [str(value) for rank, value in enumerate(values, start=1) for _ in range(2000 // rank)]
    rng.shuffle(rows)
    return pa.array(rows)


PEOPLE = _population()
GUESSES = sorted(set(PEOPLE.to_pylist()) | {str(i) for i in range(5 * 10**8, 5 * 10**8 + 2000)})


def unsalted(values: pa.Array) -> pa.Array:
    """The broken twin: a plain SHA-256, which the product refuses to make."""
    return pa.array([hashlib.sha256(value.encode()).hexdigest() for value in values.to_pylist()])


def _codebook(tmp_path: Path) -> Mask:
    return vault.Codebook(tmp_path / "v", KEY, "people").apply


def consistent(tmp_path: Path) -> dict[str, Mask]:
    """The masks that give equal values equal replacements."""
    return {
        "token": pseudonyms.make_token_mask(KEY, "people").apply,
        "format_preserving": format_preserving.make_format_mask(KEY, "people").apply,
        "fake": pseudonyms.make_fake_mask(KEY, "name").apply,
        "codebook": _codebook(tmp_path),
    }


def dictionary_attack(released: list[str], true: list[str], public: list[Mask]) -> float:
    """Compute every public mask of every guess, and look the released values up."""
    known: dict[str, str] = {}
    for mask in public:
        known |= dict(zip(mask(pa.array(GUESSES)).to_pylist(), GUESSES, strict=True))
    return sum(known.get(value) == truth for value, truth in zip(released, true, strict=True)) / len(true)


def frequency_attack(released: list[str], true: list[str]) -> float:
    """Match the most common released value with the value known to be most common, and so on down the list."""
    named = dict(zip(_ranked(released), _ranked(true), strict=False))
    return sum(named.get(value) == truth for value, truth in zip(released, true, strict=True)) / len(true)


def _ranked(values: list[str]) -> list[str]:
    """Values by falling frequency; ties by the value itself, for the intruder does not know the order of rows."""
    return sorted(set(values), key=lambda value, count=Counter(values): (-count[value], value))  # type: ignore[misc]


def _public_algorithms(tmp_path: Path) -> list[Mask]:
    """Everything an intruder can run: plain hashes, and our own masks under keys of the intruder's own."""
    own = keys.generate_key("people")
    (tmp_path / "own").mkdir(exist_ok=True)
    return [
        unsalted,
        lambda v: pa.array([hashlib.md5(x.encode()).hexdigest() for x in v.to_pylist()]),
        pseudonyms.make_token_mask(own, "people").apply,
        format_preserving.make_format_mask(own, "people").apply,
        pseudonyms.make_fake_mask(own, "name").apply,
        vault.Codebook(tmp_path / "own" / "v", own, "people").apply,
    ]


def test_an_unsalted_hash_falls_to_a_dictionary_completely(tmp_path: Path) -> None:
    released = unsalted(PEOPLE).to_pylist()
    assert dictionary_attack(released, PEOPLE.to_pylist(), _public_algorithms(tmp_path)) == 1.0


@pytest.mark.parametrize("name", ["token", "format_preserving", "fake", "codebook"])
def test_keyed_masks_hold_against_a_dictionary(name: str, tmp_path: Path) -> None:
    released = consistent(tmp_path)[name](PEOPLE).to_pylist()
    assert dictionary_attack(released, PEOPLE.to_pylist(), _public_algorithms(tmp_path)) <= 0.01


@pytest.mark.parametrize("name", ["token", "format_preserving", "codebook"])
def test_whoever_has_the_key_tests_guesses_or_turns_tokens_back(name: str, tmp_path: Path) -> None:
    mask = consistent(tmp_path)[name]
    assert dictionary_attack(mask(PEOPLE).to_pylist(), PEOPLE.to_pylist(), [mask]) == 1.0


@pytest.mark.parametrize("name", ["token", "format_preserving", "fake", "codebook"])
def test_every_consistent_substitution_falls_to_known_frequencies(name: str, tmp_path: Path) -> None:
    released = consistent(tmp_path)[name](PEOPLE).to_pylist()
    assert frequency_attack(released, PEOPLE.to_pylist()) > 0.8


def test_masks_that_forget_the_value_hold_against_frequencies(tmp_path: Path) -> None:
    true = PEOPLE.to_pylist()
    most_common = Counter(true).most_common(1)[0][1] / len(true)  # what guessing the mode always gains
    assert frequency_attack(replacement.Redact().apply(PEOPLE).to_pylist(), true) <= most_common
    shuffled = perturbation.Shuffle().apply(PEOPLE).to_pylist()
    right_by_place = sum(a == b for a, b in zip(shuffled, true, strict=True)) / len(true)
    by_chance = sum((count / len(true)) ** 2 for count in Counter(true).values())
    assert right_by_place == pytest.approx(by_chance, abs=0.03)


def test_frequencies_do_not_help_where_every_value_occurs_once(tmp_path: Path) -> None:
    once = pa.array([str(i) for i in range(10**6, 10**6 + 500)])
    for mask in consistent(tmp_path).values():
        assert frequency_attack(mask(once).to_pylist(), once.to_pylist()) < 0.05


def test_tokens_of_two_domains_cannot_be_linked_even_for_the_same_people(tmp_path: Path) -> None:
    one = pseudonyms.make_token_mask(KEY, "hospital").apply(PEOPLE).to_pylist()
    two = pseudonyms.make_token_mask(KEY, "insurer").apply(PEOPLE).to_pylist()
    assert not set(one) & set(two)


def test_one_known_date_betrays_the_offset_of_its_person_and_of_nobody_else() -> None:
    from datetime import date, timedelta

    from deniable.masking import perturbation

    people = [str(i) for i in range(400) for _ in range(2)]
    days = [date(2020, 1, 1) + timedelta(days=i) for i in range(800)]
    rows = pa.record_batch({"p": people, "day": pa.array(days)})
    moved = perturbation.make_date_shift(KEY, "p", 365).apply(rows.column("day"), rows).to_pylist()
    offset = moved[0] - days[0]
    right = [new - offset == old for new, old in zip(moved, days, strict=True)]
    assert right[:2] == [True, True]
    assert sum(right[2:]) / len(right[2:]) < 0.02
