"""Keyed tokens: the bits of HMAC-SHA-256, consistent, injective in practice, separate by domain."""

from __future__ import annotations

import hmac
import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, ParameterError
from deniable.masking import columns, keys, pseudonyms, sha256

KEY = keys.Key("people", bytes(range(32)))


@pytest.fixture(params=["hashlib", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of hashing a column, each forced in turn."""
    compiled = request.param == "compiled"
    monkeypatch.setattr(sha256, "_should_use_compiled", lambda rows, _size: compiled and rows > 0)
    return str(request.param)


def test_digests_are_those_of_hmac_for_every_length_up_to_three_blocks(way: str) -> None:
    rng = random.Random(1)
    rows = [rng.randbytes(length) for length in range(200)] + [rng.randbytes(5000), b"", b"x"]
    rng.shuffle(rows)
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    data = np.frombuffer(b"".join(rows), dtype=np.uint8)
    for key in (b"", b"k", bytes(32), rng.randbytes(64), rng.randbytes(65), rng.randbytes(200)):
        got = sha256.hmac_column(key, data, offsets)
        assert [row.tobytes() for row in got] == [hmac.digest(key, row, "sha256") for row in rows]


@given(st.lists(st.text(max_size=40), max_size=40), st.binary(min_size=1, max_size=80))
@settings(max_examples=50, deadline=None)
def test_any_text_hashes_as_hmac_does(values: list[str], key: bytes) -> None:
    column = pa.array(values, pa.large_string())
    expected = [hmac.digest(key, value.encode(), "sha256") for value in values]
    digests = sha256.hmac_column(key, *columns.rows_of(column))
    assert [row.tobytes() for row in digests] == expected


def test_round_constants_are_those_of_the_standard() -> None:
    assert [hex(int(k)) for k in sha256.ROUND_CONSTANTS[[0, 1, 63]]] == ["0x428a2f98", "0x71374491", "0xc67178f2"]
    assert [hex(int(h)) for h in sha256.INITIAL[[0, 7]]] == ["0x6a09e667", "0x5be0cd19"]


def test_a_token_spells_the_first_bits_of_the_digest(way: str) -> None:
    alphabet = "abcdefghijkmnpqrstuvwxyz23456789"
    digest = hmac.digest(KEY.derive("token", "people"), b"ann", "sha256")
    number = int.from_bytes(digest, "big")
    for length in (4, 16, 17, 51):
        expected = "".join(alphabet[(number >> (256 - 5 * (i + 1))) & 31] for i in range(length))
        assert pseudonyms.make_token_mask(KEY, "people", length).apply(pa.array(["Ann"])).to_pylist() == [expected]


def test_equal_values_have_equal_tokens_and_different_values_different_ones(way: str) -> None:
    values = pa.array([f"person {i % 5000}" for i in range(20_000)])
    masked = pseudonyms.make_token_mask(KEY, "people").apply(values)
    pairs = set(zip(values.to_pylist(), masked.to_pylist(), strict=True))
    assert len(pairs) == len({v for v, _ in pairs}) == len({t for _, t in pairs}) == 5000


def test_tokens_of_two_domains_or_two_keys_have_nothing_in_common() -> None:
    values = pa.array([str(i) for i in range(1000)])
    one = pseudonyms.make_token_mask(KEY, "people").apply(values).to_pylist()
    other_domain = pseudonyms.make_token_mask(KEY, "doctors").apply(values).to_pylist()
    other_key = pseudonyms.make_token_mask(keys.generate_key("people"), "people").apply(values).to_pylist()
    assert not set(one) & set(other_domain)
    assert not set(one) & set(other_key)


def test_a_number_and_its_text_have_one_token_so_that_tables_join() -> None:
    mask = pseudonyms.make_token_mask(KEY, "people")
    assert mask.apply(pa.array([42], pa.int32())).to_pylist() == mask.apply(pa.array(["42"])).to_pylist()
    coded = pa.array(["42", "42"]).dictionary_encode()
    assert mask.apply(coded).to_pylist() == mask.apply(pa.array(["42", "42"])).to_pylist()


def test_floating_point_identifiers_are_refused_because_their_text_is_not_unique() -> None:
    with pytest.raises(DataError, match="floating-point"):
        pseudonyms.make_token_mask(KEY, "people").apply(pa.array([42.0]))


@pytest.mark.parametrize("values", [[], [None], [None, "a", None], [""], ["é", "日本"]])
def test_nulls_stay_null_and_odd_columns_pass(values: list[str | None], way: str) -> None:
    column = pa.array(values, pa.string())
    masked = pseudonyms.make_token_mask(KEY, "people").apply(column)
    assert masked.type == pa.string()
    assert [value is None for value in masked.to_pylist()] == [value is None for value in values]


def test_a_slice_of_a_column_has_the_tokens_of_its_rows(way: str) -> None:
    whole = pa.array([None if i % 7 == 0 else f"v{i}" for i in range(100)])
    mask = pseudonyms.make_token_mask(KEY, "people")
    assert mask.apply(whole.slice(13, 40)).to_pylist() == mask.apply(whole).to_pylist()[13:53]


def test_normalizing_makes_spellings_of_one_value_one_token() -> None:
    mask = pseudonyms.make_token_mask(KEY, "people", normalize="text")
    assert len(set(mask.apply(pa.array([" Ann ", "ANN", "ann"])).to_pylist())) == 1
    phone = pseudonyms.make_token_mask(KEY, "people", normalize="digits")
    assert len(set(phone.apply(pa.array(["(202) 224-3121", "2022243121"])).to_pylist())) == 1


def test_the_collision_probability_is_the_birthday_probability() -> None:
    exact = 1 - math.prod(1 - i / 32**4 for i in range(500))
    assert pseudonyms.collision_probability(500, 4) == pytest.approx(exact, rel=0.01)
    assert pseudonyms.collision_probability(1, 4) == 0
    assert pseudonyms.length_for(500, exact * 1.01) == 4
    assert pseudonyms.collision_probability(10**6, pseudonyms.length_for(10**6, 1e-9)) <= 1e-9


def test_short_tokens_collide_as_often_as_announced() -> None:
    values, length, runs = 400, 4, 60
    column = pa.array([str(i) for i in range(values)])
    collided = 0
    for run in range(runs):
        masked = pseudonyms.make_token_mask(KEY, f"domain {run}", length).apply(column)
        collided += len(masked.unique()) < values
    expected = pseudonyms.collision_probability(values, length) * runs  # 4.4 of 60
    assert abs(collided - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("length", [0, 3, 52])
def test_lengths_that_cannot_be_are_refused(length: int) -> None:
    with pytest.raises(ParameterError):
        pseudonyms.make_token_mask(KEY, "people", length)


def test_tokens_look_random_flipping_one_input_bit_flips_half_of_the_output_bits() -> None:
    base, near = pa.array(["person a"], pa.large_string()), pa.array(["person c"], pa.large_string())
    secret = KEY.derive("token", "people")
    one, two = pseudonyms.digest_rows(secret, base)[0], pseudonyms.digest_rows(secret, near)[0]
    flipped = np.unpackbits(one ^ two).sum()
    assert 80 < flipped < 176  # 128 +- 6 standard deviations of a fair coin


SPELLINGS = ["Ann Smith", "ANN SMITH", "ann  smith ", "\u00a0Ann\tSmith", "\uff21nn Smith"]


def test_spellings_of_one_value_join_by_default_and_a_policy_can_say_otherwise() -> None:
    assert len(set(pseudonyms.make_token_mask(KEY, "people").apply(pa.array(SPELLINGS)).to_pylist())) == 1
    exact = pseudonyms.make_token_mask(KEY, "people", normalize="exact").apply(pa.array(SPELLINGS))
    assert len(set(exact.to_pylist())) == len(SPELLINGS)
    composed = pa.array(["Zo\u00eb", "Zoe\u0308"])
    assert len(set(pseudonyms.make_token_mask(KEY, "people").apply(composed).to_pylist())) == 1


def test_a_key_of_the_first_version_still_joins_what_was_masked_with_it() -> None:
    old = keys.decode_key(keys.encode_key(KEY).replace("deniable-key-2", "deniable-key-1"), "a test")
    assert (KEY.version, old.version, old.check) == (2, 1, KEY.check)
    digest = hmac.digest(KEY.derive("token", "people"), b"Ann Smith", "sha256")
    whole = pseudonyms.spell(np.frombuffer(digest, np.uint8)[None], 16).tobytes().decode()
    assert pseudonyms.make_token_mask(old, "people").apply(pa.array(["Ann Smith"])).to_pylist() == [whole]
    assert keys.decode_key(keys.encode_key(old), "a test").version == 1
