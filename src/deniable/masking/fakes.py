"""Made-up names, addresses, e-mails and telephones: plausible to read, nobody's, and the same for the same value.

Each part of a fake is chosen from a list by eight bytes of HMAC-SHA-256(sub-key, value). Choices repeat: two people can
get one fake name, and with 3,000 given names and 6,000 surnames they will (unlike tokens, fakes are not injective and
nothing should be joined by them). E-mails end in domains that RFC 2606 reserves, telephones lie in the 555-01XX
numbers that are never assigned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.masking import columns, lexicon, tokens
from deniable.masking.keys import Key
from deniable.policy.masks import FAKES

STREETS = ("Street", "Avenue", "Road", "Lane", "Drive", "Court", "Place", "Way")
MAIL = ("example.com", "example.net", "example.org")
FIRMS = ("and Sons", "Partners", "Works", "Trading", "Group", "Holdings", "Brothers", "Supply")
TREES = ("Oak", "Maple", "Cedar", "Elm", "Birch", "Pine", "Willow", "Ash", "Walnut", "Chestnut", "Hazel", "Linden")
CHOICES = 4


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
        encoded = columns.normalized(columns.as_text(values), "text").dictionary_encode()
        draws = tokens.digests(self.secret, encoded.dictionary).view(">u8").astype(np.uint64)
        made = _MAKERS[self.kind](draws)
        return columns.restored(made.take(encoded.indices), values.type)


def fake(key: Key, kind: str) -> Fake:
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
    return _pick(draws, 0, lexicon.words("given_names"))


def _last_name(draws: Draws) -> pa.Array:
    return _pick(draws, 1, lexicon.words("surnames"))


def _name(draws: Draws) -> pa.Array:
    return _join(_first_name(draws), _last_name(draws), between=" ")


def _street(draws: Draws) -> pa.Array:
    return _join(_number(draws, 2, 1, 999), _pick(draws, 2, TREES), _pick(draws, 3, STREETS), between=" ")


def _city(draws: Draws) -> pa.Array:
    return _pick(draws, 0, lexicon.words("cities"))


def _address(draws: Draws) -> pa.Array:
    state = tuple(line.split(" ", 1)[0] for line in lexicon.words("states"))
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
