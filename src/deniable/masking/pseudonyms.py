"""Keyed pseudonyms: tokens, and made-up names, addresses, e-mails and telephones; the same for the same value.

A token is the beginning of HMAC-SHA-256(sub-key of the domain, value), written in 32 letters and digits; values that
differ in case, spaces or Unicode form only are equal unless told otherwise (`columns.normalize_text`). Equal values
join across all tables whose columns share key and domain, and nowhere else. What a token does not hide is *how often*
a value occurs. Without the key no token can be recomputed.

A fake is chosen from lists by the same keyed bits: plausible to read, and nobody's. Fakes are not injective, so nothing
should be joined by them. E-mails end in domains that RFC 2606 reserves, telephones lie in the 555-01XX numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.masking import columns, lexicon, sha256
from deniable.masking.keys import Key
from deniable.policy.layout.masks import FAKES

# 32 characters without l, o, 0 and 1, which are misread; each carries 5 bits.
ALPHABET = np.frombuffer(b"abcdefghijkmnpqrstuvwxyz23456789", dtype=np.uint8)
PAIRS = np.array([[a, b] for a in ALPHABET for b in ALPHABET], dtype=np.uint8).view(np.uint16).ravel()
BITS = 5
LENGTH = 16
SHORTEST, LONGEST = 4, 51


@dataclass(frozen=True, slots=True)
class Token:
    """Replace values by keyed pseudonyms.

    **Holds:** equal values, equal tokens; hard to invert without the key even for guessed values (the security of
    HMAC-SHA-256 as a pseudorandom function). **Falls to:** whoever has the key; frequency matching; linking by the
    other columns. **Collisions:** `collision_probability(values, length)`.
    """

    secret: bytes = field(repr=False)
    length: int = LENGTH
    prefix: str = ""
    normalize: columns.Normal = "exact"

    def __post_init__(self) -> None:
        if not SHORTEST <= self.length <= LONGEST:
            raise ParameterError(
                f"a token of {self.length} characters was asked for", expected=f"{SHORTEST} to {LONGEST} characters"
            )

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The tokens of a column; null stays null."""
        text = columns.normalize_text(columns.as_text(values), self.normalize)
        signs = spell(digest_rows(self.secret, text), self.length)
        if self.prefix:
            lead = np.frombuffer(self.prefix.encode("ascii"), dtype=np.uint8)
            signs = np.concatenate([np.broadcast_to(lead, (len(signs), len(lead))), signs], axis=1)
        return columns.restore_type(columns.from_fixed_rows(signs, text), values.type)


def make_token_mask(key: Key, domain: str, length: int = LENGTH, **options: str) -> Token:
    """The token mask of one domain under a key, which says how values are compared unless the options do."""
    return Token(key.derive("token", domain), length, **{"normalize": key.normalize, **options})


def digest_rows(secret: bytes, text: pa.Array) -> NDArray[np.uint8]:
    """HMAC-SHA-256 of every row of a large_string column: an array of rows of 32 bytes."""
    return sha256.hmac_column(secret, *columns.rows_of(text))


def derive_numbers(secret: bytes, text: pa.Array) -> NDArray[np.uint64]:
    """The first 64 bits of every row's HMAC, as a number: where masks take their keyed choices from."""
    leading = np.ascontiguousarray(digest_rows(secret, text)[:, :8])
    return leading.view(">u8").ravel().astype(np.uint64)


def spell(digest: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    """The first 5 x length bits of each digest in the token alphabet, one row of ASCII bytes each."""
    groups = -(-length // 8)
    used = np.zeros((len(digest), groups * 5), dtype=np.uint8)
    taken = min(used.shape[1], digest.shape[1])
    used[:, :taken] = digest[:, :taken]
    pairs = np.empty((len(digest), groups * 4), dtype=PAIRS.dtype)
    # Five bytes are eight characters, looked up two at a time: a 40-bit number in base 1024, most significant first.
    for group in range(groups):
        high = np.ascontiguousarray(used[:, group * 5 : group * 5 + 4]).view(">u4").ravel().astype(np.uint64)
        number = (high << np.uint64(8)) | used[:, group * 5 + 4]
        for place in range(4):
            pairs[:, group * 4 + place] = PAIRS[(number >> np.uint64(30 - 10 * place)) & np.uint64(1023)]
    return pairs.view(np.uint8)[:, :length]


def collision_probability(values: int, length: int) -> float:
    """The probability that any two of so many different values share a token (birthday bound, upper end).

    1 - exp(-n(n-1) / 2^(b+1)) with b = 5 bits a character; written with expm1 to stay exact when tiny.

    >>> f"{collision_probability(1_000_000, 16):.1e}"
    '4.1e-13'
    """
    pairs = values * (values - 1) / 2
    return -math.expm1(-pairs / 2.0 ** (BITS * length))


def length_for(values: int, probability: float = 1e-6) -> int:
    """The shortest token length at which a collision among so many values is at most so probable.

    >>> length_for(1_000_000)
    12
    """
    for length in range(SHORTEST, LONGEST + 1):
        if collision_probability(values, length) <= probability:
            return length
    raise ParameterError(
        "no token is long enough for this many values and this probability",
        remedy="Allow a larger probability that two values share a token",
    )


STREETS = ("Street", "Avenue", "Road", "Lane", "Drive", "Court", "Place", "Way")
MAIL = ("example.com", "example.net", "example.org")
FIRMS = ("and Sons", "Partners", "Works", "Trading", "Group", "Holdings", "Brothers", "Supply")
TREES = ("Oak", "Maple", "Cedar", "Elm", "Birch", "Pine", "Willow", "Ash", "Walnut", "Chestnut", "Hazel", "Linden")


@dataclass(frozen=True, slots=True)
class Fake:
    """Replace values by made-up ones of a kind.

    **Holds:** equal values, equal fakes; without the key a fake says nothing about its value. **Falls to:** frequency
    matching; whoever has the key and a list of guesses. Not injective.
    """

    secret: bytes = field(repr=False)
    kind: str = "name"

    def __post_init__(self) -> None:
        if self.kind not in FAKES:
            raise ParameterError(
                f"there are no fakes of the kind '{self.kind}'",
                expected=f"One of {', '.join(FAKES)}",
                remedy=nearest(self.kind, FAKES),
            )

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The fakes of a column; null stays null."""
        encoded = columns.normalize_text(columns.as_text(values), "text").dictionary_encode()
        draws = digest_rows(self.secret, encoded.dictionary).view(">u8").astype(np.uint64)
        made = _MAKERS[self.kind](draws)
        return columns.restore_type(made.take(encoded.indices), values.type)


def make_fake_mask(key: Key, kind: str) -> Fake:
    """The mask that makes up values of a kind under a key."""
    return Fake(key.derive("fake", kind), kind)


Draws = NDArray[np.uint64]  # one row a value, four numbers of 64 bits each


def _pick(draws: Draws, which: int, among: tuple[str, ...]) -> pa.Array:
    at = (draws[:, which] % np.uint64(len(among))).astype(np.int64)
    return pa.array(among, pa.large_string()).take(pa.array(at))


def _number(draws: Draws, which: int, least: int, most: int) -> pa.Array:
    # The low bits chose from a list already, so numbers come from the high ones.
    at = (draws[:, which] >> np.uint64(20)) % np.uint64(most - least + 1)
    return pa.array(at.astype(np.int64) + least).cast(pa.large_string())


def _join(*parts: pa.Array | str, between: str = "") -> pa.Array:
    texts = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar(between, pa.large_string()))


def _first_name(draws: Draws) -> pa.Array:
    return _pick(draws, 0, lexicon.load_words("given_names"))


def _last_name(draws: Draws) -> pa.Array:
    return _pick(draws, 1, lexicon.load_words("surnames"))


def _name(draws: Draws) -> pa.Array:
    return _join(_first_name(draws), _last_name(draws), between=" ")


def _street(draws: Draws) -> pa.Array:
    return _join(_number(draws, 2, 1, 999), _pick(draws, 2, TREES), _pick(draws, 3, STREETS), between=" ")


def _city(draws: Draws) -> pa.Array:
    return _pick(draws, 0, lexicon.load_words("cities"))


def _address(draws: Draws) -> pa.Array:
    state = tuple(line.split(" ", 1)[0] for line in lexicon.load_words("states"))
    return _join(_street(draws), _join(_city(draws), _pick(draws, 1, state), between=" "), between=", ")


def _email(draws: Draws) -> pa.Array:
    person = pc.utf8_lower(_join(_first_name(draws), _last_name(draws), between="."))
    return _join(person, _number(draws, 2, 10, 9999), "@", _pick(draws, 3, MAIL))


def _phone(draws: Draws) -> pa.Array:
    return _join(_number(draws, 0, 201, 989), "-555-01", _number(draws, 1, 10, 99))


def _company(draws: Draws) -> pa.Array:
    return _join(_last_name(draws), _pick(draws, 3, FIRMS), between=" ")


_MAKERS: dict[str, Callable[[Draws], pa.Array]] = {
    "name": _name,
    "first_name": _first_name,
    "last_name": _last_name,
    "street": _street,
    "address": _address,
    "city": _city,
    "email": _email,
    "phone": _phone,
    "company": _company,
}
