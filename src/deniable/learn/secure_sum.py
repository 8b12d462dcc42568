"""Secure sums: clients send masked vectors, and the server learns their sum alone (after Bonawitz and others 2017).

Four steps, each with the messages of all clients that are still there:

1. **keys**: each client sends a fresh X25519 key.
2. **shares**: each two clients agree on a channel key and a mask seed. A client draws a seed of its own mask and a key
   that locks the list of its pair seeds, and deals both to all others as Shamir shares, encrypted (ChaCha20-Poly1305);
   it publishes hashes of everything that may be opened later.
3. **vectors**: a client sends its vector plus its own mask, plus the masks of its pairs, which one of both clients adds
   and the other takes away (ChaCha20 as a stream): in the sum the pair masks cancel.
4. **opening**: for a client that sent a vector, shares of the seed of its own mask; for one that dropped out before,
   shares of the key of its pair seeds. A client opens one of both and never the other, once, and only when at least
   `least` clients have sent a vector. The server takes all masks off, and has the exact sum.

**Promises.** A server that follows the steps, together with fewer than `threshold` clients, sees nothing but the sum of
at least `least` vectors. More than two thirds are needed to open: as long as fewer than a third of the clients help it,
a server that tells clients different lists cannot open both secrets of one client. A share or seed that does not fit
its published hash is thrown away, and whose it was is named. **Never.** It does not tell whether a client told the
truth of its own numbers, nor who a client is: a server that invents clients, or keys of clients, is not found out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import uniform_below
from deniable.errors import DataError, MissingExtra, ParameterError

PRIME = (1 << 16) + 1
"""Secrets are shared in limbs of 16 bits, modulo this prime."""
LIMBS, SHARE = 16, 64
"""Limbs of a secret of 32 bytes, and bytes of a share of it."""
BITS = (32, 64)
MOST_CLIENTS = 10_000

Vector = NDArray[Any]
"""Numbers of 32 or 64 bits without a sign, as the terms say; sums wrap around."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What all clients of a round agree on before it: public.

    `threshold` shares open a secret; it is more than two thirds of the clients. The sum has at least `least` vectors.
    """

    name: str
    clients: int
    least: int
    threshold: int
    length: int
    bits: int = 64

    def __post_init__(self) -> None:
        enough = 2 * self.clients // 3 + 1
        if not (
            2 <= self.clients <= MOST_CLIENTS
            and enough <= self.threshold <= self.least <= self.clients
            and self.length >= 1
            and self.bits in BITS
        ):
            raise ParameterError(
                "the terms of the sum cannot be used",
                expected=f"2 to {MOST_CLIENTS} clients, of whom at least {enough} open and answer; 32 or 64 bits",
            )

    @property
    def kind(self) -> type[np.uint32] | type[np.uint64]:
        """The type of a vector's numbers: sums are taken modulo 2 to the number of bits."""
        return np.uint32 if self.bits == 32 else np.uint64


@lru_cache(maxsize=1)
def _load() -> Any:
    try:
        import cryptography.hazmat.primitives.asymmetric.x25519 as exchange
        import cryptography.hazmat.primitives.ciphers as ciphers
        import cryptography.hazmat.primitives.ciphers.aead as aead
    except ImportError:
        raise MissingExtra(
            "secure sums need the library cryptography",
            remedy="Install it with: pip install 'deniable[vault]'",
            extra="vault",
        ) from None
    return exchange, ciphers, aead


def _derive(key: bytes, *words: bytes) -> tuple[bytes, bytes]:
    """Two independent keys of 32 bytes: the halves of one HMAC-SHA512."""
    whole = hmac.digest(key, b"\x00".join(words), "sha512")
    return whole[:32], whole[32:]


def commit(*parts: bytes) -> bytes:
    """The published hash of something that may be opened later; all of it has 32 random bytes or more."""
    return hashlib.sha256(b"deniable secure sum\x00" + b"\x00".join(parts)).digest()


@lru_cache(maxsize=8)
def _list_powers(clients: int, threshold: int) -> NDArray[np.float64]:
    """The powers 0 to threshold - 1 of the places 1, 2, ..., modulo the prime."""
    places, found = np.arange(1, clients + 1), [np.ones(clients, np.int64)]
    for _ in range(threshold - 1):
        found.append(found[-1] * places % PRIME)
    return np.column_stack(found).astype(np.float64)


def deal_shares(secret: bytes, clients: int, threshold: int) -> list[bytes]:
    """Shamir shares of 32 bytes, for the places 1 to `clients`: any `threshold` of them open it, fewer say nothing."""
    limbs = np.frombuffer(secret, "<u2").astype(np.int64)
    rest = uniform_below(PRIME, (threshold - 1) * LIMBS).reshape(threshold - 1, LIMBS)
    # Products are below 2**34 and at most 10,000 are added: exact in 64-bit floating point, whose products are faster.
    values = (_list_powers(clients, threshold) @ np.vstack([limbs, rest]).astype(np.float64)) % PRIME
    whole = values.astype("<u4").tobytes()
    return [whole[at : at + SHARE] for at in range(0, len(whole), SHARE)]


@lru_cache(maxsize=64)
def _weigh_places(places: tuple[int, ...]) -> NDArray[np.int64]:
    """The weights of Lagrange's interpolation at 0."""
    found = []
    for one in places:
        above, below = 1, 1
        for other in places:
            if other != one:
                above, below = above * other % PRIME, below * (other - one) % PRIME
        found.append(above * pow(below, -1, PRIME) % PRIME)
    return np.array(found, np.int64)


def open_shares(shares: Mapping[int, bytes], threshold: int) -> bytes | None:
    """The secret that shares by place stand for; None where there are too few, or they are of no secret."""
    places = tuple(sorted(shares))[:threshold]
    if len(places) < threshold:
        return None
    values = np.array([np.frombuffer(shares[place], "<u4") for place in places], np.int64)
    # Products are below 2**34, and there are at most 10,000 of them: exact.
    limbs = _weigh_places(places) @ values % PRIME
    return None if (limbs >= 1 << 16).any() else limbs.astype("<u2").tobytes()


def expand_mask(seed: bytes, terms: Terms) -> Vector:
    """A mask from its seed: the key stream of ChaCha20. A seed is used for one mask, so the nonce may be 0."""
    _, ciphers, _ = _load()
    stream = ciphers.Cipher(ciphers.algorithms.ChaCha20(seed, bytes(16)), None).encryptor()
    return np.frombuffer(stream.update(_list_zeros(terms.length * terms.bits // 8)), terms.kind)


@lru_cache(maxsize=2)
def _list_zeros(count: int) -> bytes:
    return bytes(count)


@dataclass(frozen=True, slots=True)
class Dealt:
    """What a client sends in the step of the shares."""

    boxes: dict[int, bytes]
    """For each other client, encrypted for it: a share of the seed of the own mask, and one of the locking key."""
    hashes: dict[int, tuple[bytes, bytes]]
    """For each other client, the hashes of these two shares."""
    seeds: dict[int, bytes]
    """For each other client, the hash of the pair seed: both must say the same."""
    locked: bytes
    """The pair seeds, encrypted with the locking key."""
    own: tuple[bytes, bytes]
    """The hashes of the seed of the own mask and of the locking key."""


class SumClient:
    """One client in one round; its vector leaves it masked."""

    def __init__(self, terms: Terms, place: int) -> None:
        """`place` is the client's number in the round, from 1."""
        exchange, _, self._aead = _load()
        self.terms, self.place = terms, place
        self._key = exchange.X25519PrivateKey.generate()
        self._own_key = bytes(self._key.public_key().public_bytes_raw())
        self._public = exchange.X25519PublicKey
        self._own, self._lock = _draw(), _draw()
        self._pairs: dict[int, bytes] = {}
        self._channels: dict[int, bytes] = {}
        self._held: dict[int, tuple[bytes, bytes]] = {}
        self._sent = self._opened = False

    @property
    def key(self) -> bytes:
        """The public key: the message of the first step."""
        return self._own_key

    @property
    def sent(self) -> bool:
        """Whether its masked vector was made."""
        return self._sent

    def save(self) -> bytes:
        """All of this client, for a program that ends between two steps. As secret as its vector."""
        held = {
            "place": self.place,
            "key": self._key.private_bytes_raw().hex(),
            "own": self._own.hex(),
            "lock": self._lock.hex(),
            "pairs": {str(place): seed.hex() for place, seed in self._pairs.items()},
            "channels": {str(place): key.hex() for place, key in self._channels.items()},
            "held": {str(place): [share.hex() for share in pair] for place, pair in self._held.items()},
            "sent": self._sent,
            "opened": self._opened,
        }
        return json.dumps(held).encode()

    @classmethod
    def restore(cls, terms: Terms, text: bytes) -> SumClient:
        """The client that was saved. It masks and opens once in all, so only its last state may be restored."""
        exchange, _, _ = _load()
        saved = json.loads(text)
        made = cls(terms, saved["place"])
        made._key = exchange.X25519PrivateKey.from_private_bytes(bytes.fromhex(saved["key"]))
        made._own_key = bytes(made._key.public_key().public_bytes_raw())
        made._own, made._lock = bytes.fromhex(saved["own"]), bytes.fromhex(saved["lock"])
        made._pairs = {int(place): bytes.fromhex(seed) for place, seed in saved["pairs"].items()}
        made._channels = {int(place): bytes.fromhex(key) for place, key in saved["channels"].items()}
        pairs = {int(place): [bytes.fromhex(share) for share in pair] for place, pair in saved["held"].items()}
        made._held = {place: (own, lock) for place, (own, lock) in pairs.items()}
        made._sent, made._opened = saved["sent"], saved["opened"]
        return made

    def deal(self, keys: Mapping[int, bytes]) -> Dealt:
        """Agree with all whose keys these are, and deal shares: the message of the second step."""
        terms = self.terms
        if keys.get(self.place) != self.key or len(set(keys.values())) < len(keys) or self._channels:
            raise DataError("the list of keys is not that of this round", remedy="Leave the round; nothing was sent")
        if len(keys) < terms.least or not all(1 <= place <= terms.clients for place in keys):
            raise DataError("too few clients have joined, or more than were agreed", remedy="Join another round")
        for place, key in keys.items():
            if place != self.place:
                self._agree(place, key)
        dealt = [deal_shares(secret, terms.clients, terms.threshold) for secret in (self._own, self._lock)]
        shares = {place: (dealt[0][place - 1], dealt[1][place - 1]) for place in self._channels}
        self._held[self.place] = (dealt[0][self.place - 1], dealt[1][self.place - 1])
        return Dealt(
            {place: self._seal(place, b"".join(pair)) for place, pair in shares.items()},
            {place: _commit_pair(self.place, place, pair) for place, pair in (shares | self._held).items()},
            {place: commit(b"seed", seed) for place, seed in self._pairs.items()},
            self._aead.ChaCha20Poly1305(self._lock).encrypt(bytes(12), _pack_seeds(self._pairs), terms.name.encode()),
            (commit(b"own", self._own), commit(b"lock", self._lock)),
        )

    def _agree(self, place: int, key: bytes) -> None:
        shared = self._key.exchange(self._public.from_public_bytes(key))
        keys = _derive(shared, self.terms.name.encode(), *sorted([self._own_key, key]))
        self._channels[place], self._pairs[place] = keys

    def _seal(self, place: int, text: bytes) -> bytes:
        # A channel key seals one message each way; the nonce says which way.
        cipher = self._aead.ChaCha20Poly1305(self._channels[place])
        return bytes(cipher.encrypt(self.place.to_bytes(12, "big"), text, self.terms.name.encode()))

    def receive(self, boxes: Mapping[int, bytes], hashes: Mapping[int, tuple[bytes, bytes]]) -> None:
        """Take the boxes that were dealt to this client, once, before its vector is known.

        A box that does not open, or whose shares do not fit their hashes, ends the round for this client: nothing has
        been sent that tells of its vector.
        """
        if len(boxes) + 1 < self.terms.least or not set(boxes) <= set(self._channels) or len(self._held) > 1:
            raise DataError("the list of clients is not that of this round", remedy="Leave the round")
        self._held |= {place: self._open_box(place, box, hashes[place]) for place, box in boxes.items()}

    def mask(self, vector: NDArray[np.int64]) -> bytes:
        """The masked vector: the message of the third step. Once: two vectors under one mask would tell apart."""
        terms = self.terms
        if len(vector) != terms.length or len(self._held) < terms.least or self._sent:
            raise DataError("this vector is not one of the round", remedy="Leave the round")
        self._sent = True
        total = np.asarray(vector, np.int64).astype(terms.kind) + expand_mask(self._own, terms)
        for place in set(self._held) - {self.place}:
            (np.add if self.place < place else np.subtract)(total, expand_mask(self._pairs[place], terms), out=total)
        return bytes(total.tobytes())

    def _open_box(self, place: int, box: bytes, hashes: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        try:
            cipher = self._aead.ChaCha20Poly1305(self._channels[place])
            text = cipher.decrypt(place.to_bytes(12, "big"), box, self.terms.name.encode())
        except Exception:
            text = b""
        pair = (text[:SHARE], text[SHARE:])
        if len(text) != 2 * SHARE or _commit_pair(place, self.place, pair) != tuple(hashes):
            raise DataError(f"the shares of client {place} were changed on their way", remedy="Leave the round")
        return pair

    def open(self, answered: Sequence[int]) -> dict[int, bytes]:
        """Shares for all that dealt: of the mask's seed where the vector came, else of the locking key. Once."""
        came = set(answered)
        if self._opened or len(came) < self.terms.least or not came <= set(self._held):
            raise DataError("this opening is not one that was agreed on", remedy="Leave the round")
        self._opened = True
        return {place: pair[0 if place in came else 1] for place, pair in self._held.items()}


def _draw() -> bytes:
    """32 random bytes."""
    return uniform_below(256, 32).astype(np.uint8).tobytes()


def _commit_pair(dealer: int, holder: int, pair: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    where = dealer.to_bytes(4, "big") + holder.to_bytes(4, "big")
    return commit(b"share own", where, pair[0]), commit(b"share lock", where, pair[1])


def _pack_seeds(seeds: Mapping[int, bytes]) -> bytes:
    return b"".join(place.to_bytes(4, "big") + seed for place, seed in sorted(seeds.items()))


def _unpack_seeds(text: bytes) -> dict[int, bytes]:
    return {int.from_bytes(text[at : at + 4], "big"): text[at + 4 : at + 36] for at in range(0, len(text), 36)}


@dataclass(slots=True, eq=False)
class SumServer:
    """The server of one round: takes the messages of each step, and in the end the masks off the sum.

    The caller decides when a step ends: when all have sent, or after a while. What does not have the shape that an
    honest client sends is refused.
    """

    terms: Terms
    keys: dict[int, bytes] = field(default_factory=dict)
    dealt: dict[int, Dealt] = field(default_factory=dict)
    vectors: dict[int, bytes] = field(default_factory=dict)
    openings: dict[int, dict[int, bytes]] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    """Clients that opened a share which does not fit its hash."""

    def take_key(self, place: int, key: bytes) -> None:
        """A key of the first step. One that agrees with nobody (a point of low order) is refused."""
        exchange, _, _ = _load()
        if not 1 <= place <= self.terms.clients or place in self.keys or key in self.keys.values():
            raise DataError("this place or key is taken, or is none of the round", remedy="Join once")
        try:
            exchange.X25519PrivateKey.generate().exchange(exchange.X25519PublicKey.from_public_bytes(key))
        except ValueError:
            raise DataError("this is not a key of X25519", remedy="Join with the client of this program") from None
        self.keys[place] = key

    def take_shares(self, place: int, dealt: Dealt) -> None:
        """The shares of the second step."""
        others = set(self.keys) - {place}
        fits = (
            place in self.keys
            and place not in self.dealt
            and set(dealt.boxes) == set(dealt.seeds) == others
            and set(dealt.hashes) == set(self.keys)
            and len(dealt.locked) == 36 * len(others) + 16
        )
        if not fits:
            raise DataError("these shares are not those of a client of this round", remedy="Deal once, to all")
        self.dealt[place] = dealt

    def find_unequal_pairs(self) -> set[int]:
        """Clients whose hash of a pair seed differs from that of the other one: one of both lies.

        They are left out before any vector is sent: whoever is in most of the unequal pairs first.
        """
        left: set[int] = set()
        while True:
            kept = [place for place in self.dealt if place not in left]
            unequal = [one for one in kept for two in kept if one != two and not self._agree(one, two)]
            if not unequal:
                return left
            left.add(max(set(unequal), key=lambda place: (unequal.count(place), place)))

    def _agree(self, one: int, two: int) -> bool:
        return self.dealt[one].seeds[two] == self.dealt[two].seeds[one]

    def leave_out(self, places: set[int]) -> None:
        """Go on without these, as if they had not dealt."""
        for place in places:
            self.dealt.pop(place, None)

    def list_boxes(self, place: int) -> tuple[dict[int, bytes], dict[int, tuple[bytes, bytes]]]:
        """What was dealt to a client, with the hashes."""
        others = [one for one in self.dealt if one != place]
        boxes = {one: self.dealt[one].boxes[place] for one in others}
        return boxes, {one: self.dealt[one].hashes[place] for one in others}

    def take_vector(self, place: int, vector: bytes) -> None:
        """A masked vector of the third step."""
        size = self.terms.length * self.terms.bits // 8
        if place not in self.dealt or place in self.vectors or len(vector) != size:
            raise DataError("this vector is not one of the round", remedy="Send one vector of the agreed length")
        self.vectors[place] = vector

    def take_opening(self, place: int, shares: Mapping[int, bytes]) -> None:
        """Shares of the last step; one that does not fit its hash is thrown away, and its sender remembered."""
        if place not in self.vectors or place in self.openings:
            raise DataError("this opening is not one of the round", remedy="Open once")
        kept = {}
        for dealer, share in shares.items():
            if dealer not in self.dealt:
                continue
            which = 0 if dealer in self.vectors else 1
            label = (b"share own", b"share lock")[which]
            where = dealer.to_bytes(4, "big") + place.to_bytes(4, "big")
            if commit(label, where, share) == self.dealt[dealer].hashes[place][which]:
                kept[dealer] = share
            else:
                self.rejected.add(place)
        self.openings[place] = kept

    @property
    def can_sum(self) -> bool:
        """Whether enough have opened to take all masks off."""
        held = [sum(dealer in kept for kept in self.openings.values()) for dealer in self.dealt]
        return len(self.vectors) >= self.terms.least and min(held, default=0) >= self.terms.threshold

    def total(self) -> NDArray[np.int64]:
        """The exact sum of all vectors that came."""
        terms = self.terms
        if not self.can_sum:
            raise DataError("too few clients are left to open the sum", remedy="Start another round")
        found = np.zeros(terms.length, terms.kind)
        for vector in self.vectors.values():
            found = found + np.frombuffer(vector, terms.kind)
        for place in self.vectors:
            found = found - expand_mask(self._open(place, 0), terms)
        for gone in set(self.dealt) - set(self.vectors):
            seeds = self._open_seeds(gone)
            for place in self.vectors:
                mask = expand_mask(seeds[place], terms)
                found = found + mask if gone < place else found - mask
        signed = found.view(np.int32 if terms.bits == 32 else np.int64)
        return signed.astype(np.int64)

    def _open(self, dealer: int, which: int) -> bytes:
        shares = {place: kept[dealer] for place, kept in self.openings.items() if dealer in kept}
        secret = open_shares(shares, self.terms.threshold)
        if secret is None or commit((b"own", b"lock")[which], secret) != self.dealt[dealer].own[which]:
            raise DataError(f"client {dealer} dealt shares of no secret", remedy="Start another round without it")
        return secret

    def _open_seeds(self, gone: int) -> dict[int, bytes]:
        _, _, aead = _load()
        try:
            text = aead.ChaCha20Poly1305(self._open(gone, 1)).decrypt(
                bytes(12), self.dealt[gone].locked, self.terms.name.encode()
            )
            seeds = _unpack_seeds(text)
            fits = all(commit(b"seed", seeds[place]) == self.dealt[place].seeds[gone] for place in self.vectors)
        except DataError:
            raise
        except Exception:
            fits = False
        if not fits:
            raise DataError(f"client {gone} locked other seeds than it used", remedy="Start another round without it")
        return seeds
