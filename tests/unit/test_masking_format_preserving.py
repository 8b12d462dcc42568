"""Format-preserving tokens: FF1 to the bit, bijections on every format, formats kept, Luhn kept."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.masking import checksums, format_preserving, keys

KEY = keys.Key("people", bytes(range(32)))
SHORT = "2B7E151628AED2A6ABF7158809CF4F3C"
MIDDLE = SHORT + "EF4359D8D580AA4F"
LONG = MIDDLE + "7F036D6F04FC6A94"
TWEAK, WIDE = "39383736353433323130", "3737373770717273373737"
SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"

# NIST, "FF1 samples", example values of SP 800-38G.
SAMPLES = [
    (SHORT, 10, "", "0123456789", "2433477484"),
    (SHORT, 10, TWEAK, "0123456789", "6124200773"),
    (SHORT, 36, WIDE, "0123456789abcdefghi", "a9tv40mll9kdu509eum"),
    (MIDDLE, 10, "", "0123456789", "2830668132"),
    (MIDDLE, 10, TWEAK, "0123456789", "2496655549"),
    (MIDDLE, 36, WIDE, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"),
    (LONG, 10, "", "0123456789", "6657667009"),
    (LONG, 10, TWEAK, "0123456789", "1001623463"),
    (LONG, 36, WIDE, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"),
]


@pytest.mark.parametrize(("key", "radix", "tweak", "plain", "expected"), SAMPLES)
def test_ff1_gives_the_samples_of_nist(key: str, radix: int, tweak: str, plain: str, expected: str) -> None:
    cipher = format_preserving.Cipher(bytes.fromhex(key))
    numerals = np.array([[SIGNS.index(sign) for sign in plain]])
    done = format_preserving.encrypt(cipher, numerals, [radix] * len(plain), bytes.fromhex(tweak))
    assert "".join(SIGNS[i] for i in done[0]) == expected
    back = format_preserving.decrypt(cipher, done, [radix] * len(plain), bytes.fromhex(tweak))
    assert np.array_equal(back, numerals)


def _naive_ff1(key: bytes, digits: list[int], radix: int) -> list[int]:
    """FF1 in Python integers, one value at a time, straight from the standard (without tweak)."""
    cipher = format_preserving.Cipher(key)
    n, u = len(digits), len(digits) // 2
    v = n - u

    def number(part: list[int]) -> int:
        total = 0
        for digit in part:
            total = total * radix + digit
        return total

    a, b = digits[:u], digits[u:]
    size = -(-(radix**v - 1).bit_length() // 8)
    d = 4 * -(-size // 4) + 4
    p = bytes([1, 2, 1, 0, 0, radix, 10, u % 256]) + n.to_bytes(4, "big") + bytes(4)

    def aes(block: bytes) -> bytes:
        return cipher.blocks(np.frombuffer(block, dtype=np.uint8).reshape(1, 16)).tobytes()

    for i in range(10):
        q = bytes((-size - 1) % 16) + bytes([i]) + number(b).to_bytes(size, "big")
        r = aes(p)
        for at in range(0, len(q), 16):
            r = aes(bytes(x ^ y for x, y in zip(r, q[at : at + 16], strict=True)))
        s = r
        for j in range(1, -(-d // 16)):
            s += aes(bytes(x ^ y for x, y in zip(r, j.to_bytes(16, "big"), strict=True)))
        m = u if i % 2 == 0 else v
        c = (number(a) + int.from_bytes(s[:d], "big")) % radix**m
        a, b = b, [c // radix ** (m - 1 - k) % radix for k in range(m)]
    return a + b


@pytest.mark.parametrize("length", [6, 7, 18, 19, 20, 33, 34, 40, 61])
def test_the_column_at_once_equals_the_standard_value_by_value(length: int) -> None:
    rng = np.random.default_rng(length)
    numerals = rng.integers(0, 10, (20, length))
    done = format_preserving.encrypt(format_preserving.Cipher(KEY.secret), numerals, [10] * length)
    assert done.tolist() == [_naive_ff1(KEY.secret, row.tolist(), 10) for row in numerals]


def test_a_mixed_format_is_permuted_without_collision_over_its_whole_domain() -> None:
    radices = (3, 7, 2, 5, 4, 3)
    everything = np.array(list(itertools.product(*map(range, radices))))
    done = format_preserving.encrypt(format_preserving.Cipher(KEY.secret), everything, radices, b"format")
    assert len({tuple(row) for row in done.tolist()}) == len(everything)
    assert (done < np.array(radices)).all()
    assert np.array_equal(
        format_preserving.decrypt(format_preserving.Cipher(KEY.secret), done, radices, b"format"), everything
    )


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_small_formats_are_permuted_without_collision_over_their_whole_domain(digits: int) -> None:
    everything = pa.array([f"{i:0{digits}d}" for i in range(10**digits)])
    masked = format_preserving.make_format_mask(KEY, "people").apply(everything)
    assert sorted(masked.to_pylist()) == everything.to_pylist()


def test_whole_numbers_stay_whole_numbers_of_as_many_digits_and_never_meet() -> None:
    everything = pa.array([*range(-120, 0), *range(0, 1000)])
    masked = format_preserving.make_format_mask(KEY, "people").apply(everything)
    assert masked.type == everything.type
    assert len(masked.unique()) == len(everything)
    assert [len(str(v)) for v in masked.to_pylist()] == [len(str(v)) for v in everything.to_pylist()]
    assert format_preserving.make_format_mask(KEY, "people").reveal(masked).equals(everything)


def _shape(value: str) -> str:
    return re.sub("[a-z]", "a", re.sub("[A-Z]", "A", re.sub(r"[0-9]", "9", value)))


@given(st.lists(st.from_regex(r"[A-Z]{0,3}-?\(?[0-9]{0,12}\)? ?[a-z]{0,4}", fullmatch=True), min_size=1, max_size=20))
@settings(max_examples=60, deadline=None)
def test_any_value_keeps_its_format_and_comes_back_with_the_key(values: list[str]) -> None:
    mask = format_preserving.make_format_mask(KEY, "people")
    masked = mask.apply(pa.array(values))
    assert [_shape(value) for value in masked.to_pylist()] == [_shape(value) for value in values]
    assert mask.reveal(masked).to_pylist() == values
    assert len(set(masked.to_pylist())) == len(set(values))


def test_separators_do_not_change_the_digits_of_a_number() -> None:
    masked = (
        format_preserving.make_format_mask(KEY, "phones")
        .apply(pa.array(["(202) 224-3121", "202-224-3121"]))
        .to_pylist()
    )
    assert [re.sub(r"\D", "", value) for value in masked] == [re.sub(r"\D", "", masked[0])] * 2


def test_valid_card_numbers_stay_valid_and_invalid_ones_invalid() -> None:
    rng = np.random.default_rng(3)
    bodies = rng.integers(0, 10, (200, 15))
    right = np.column_stack([bodies, format_preserving.luhn_digit(bodies)])
    wrong = np.column_stack([bodies, (format_preserving.luhn_digit(bodies) + 1) % 10])
    mask = format_preserving.make_format_mask(KEY, "cards", luhn=True)
    for numbers, valid in ((right, True), (wrong, False)):
        column = pa.array(["".join(map(str, row)) for row in numbers])
        masked = mask.apply(column)
        digits = [[int(sign) for sign in value] for value in masked.to_pylist()]
        assert all(checksums._passes_luhn(row) is valid for row in digits)
        assert mask.reveal(masked).equals(column)


def test_letters_that_no_format_knows_are_redacted_and_never_pass_through() -> None:
    masked = format_preserving.make_format_mask(KEY, "people").apply(pa.array(["Zoë 12", "Müller", "abc"])).to_pylist()
    assert masked[:2] == ["***", "***"]
    assert masked[2] != "abc"


def test_another_key_or_domain_gives_other_tokens() -> None:
    values = pa.array([f"{i:09d}" for i in range(500)])
    one = format_preserving.make_format_mask(KEY, "people").apply(values).to_pylist()
    for other in (
        format_preserving.make_format_mask(KEY, "doctors"),
        format_preserving.make_format_mask(keys.generate_key("k"), "people"),
    ):
        same = sum(a == b for a, b in zip(one, other.apply(values).to_pylist(), strict=True))
        assert same <= 2


@pytest.mark.parametrize("values", [[], [None], ["", None], ["---"]])
def test_empty_and_missing_values_pass(values: list[str | None]) -> None:
    column = pa.array(values, pa.string())
    assert format_preserving.make_format_mask(KEY, "people").apply(column).to_pylist() == values
