"""Secure sums: exact with dropouts, nothing but the sum without all shares, and every dishonest message refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from deniable.errors import DataError, ParameterError
from deniable.learn.secure_sum import (
    PRIME,
    SHARE,
    Dealt,
    SumClient,
    SumServer,
    Terms,
    deal_shares,
    open_shares,
)

TERMS = Terms("round", 6, 5, 5, 40)
LOW_ORDER = bytes(32)


class Run:
    """A round in one process: clients, server and the vectors that they have."""

    def __init__(self, terms: Terms = TERMS, seed: int = 0) -> None:
        self.terms, self.server = terms, SumServer(terms)
        self.clients = {place: SumClient(terms, place) for place in range(1, terms.clients + 1)}
        draw = np.random.default_rng(seed)
        self.vectors = {place: draw.integers(-(2**30), 2**30, terms.length) for place in self.clients}

    def deal(self, without: Iterable[int] = ()) -> None:
        for place, client in self.clients.items():
            self.server.take_key(place, client.key)
        for place in set(self.clients) - set(without):
            self.server.take_shares(place, self.clients[place].deal(self.server.keys))

    def send(self, without: Iterable[int] = ()) -> None:
        for place in set(self.server.dealt) - set(without):
            self.clients[place].receive(*self.server.list_boxes(place))
            self.server.take_vector(place, self.clients[place].mask(self.vectors[place]))

    def open(self, without: Iterable[int] = ()) -> None:
        for place in set(self.server.vectors) - set(without):
            self.server.take_opening(place, self.clients[place].open(list(self.server.vectors)))

    @property
    def truth(self) -> np.ndarray:
        return np.sum([self.vectors[place] for place in self.server.vectors], axis=0)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("dealing", "sending", "opening"),
    [((), (), ()), ((2,), (), ()), ((), (1,), ()), ((), (6,), ()), ((), (), (3,)), ((), (4,), ())],
)
def test_the_sum_is_exact_whoever_drops_out_and_when(
    bits: int, dealing: tuple[int, ...], sending: tuple[int, ...], opening: tuple[int, ...]
) -> None:
    run = Run(replace(TERMS, bits=bits))
    run.vectors = {place: vector // 64 for place, vector in run.vectors.items()}
    run.deal(dealing)
    run.send(sending)
    run.open(opening)
    assert (run.server.total() == run.truth).all()
    assert not run.server.rejected


def test_a_masked_vector_looks_uniform_and_the_same_vector_is_never_the_same() -> None:
    sent = []
    for _ in range(40):
        run = Run(Terms("round", 3, 3, 3, 200))
        run.vectors = dict.fromkeys(run.vectors, np.zeros(200, np.int64))
        run.deal()
        run.send()
        sent += [np.frombuffer(vector, np.uint64) for vector in run.server.vectors.values()]
    assert len({vector.tobytes() for vector in sent}) == len(sent)
    # 24,000 numbers: the share of each bit is one half within 6 deviations of 1 / sqrt(96,000).
    bits = np.unpackbits(np.concatenate(sent).view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 / np.sqrt(4 * len(bits))


def test_a_client_that_is_saved_and_restored_between_steps_is_the_same_and_sends_once() -> None:
    run = Run()

    def restart() -> None:
        run.clients = {place: SumClient.restore(run.terms, client.save()) for place, client in run.clients.items()}

    for step in (run.deal, lambda: run.send({6}), run.open):
        restart()
        step()
    restart()
    assert (run.server.total() == run.truth).all()
    with pytest.raises(DataError, match="not one of the round"):
        run.clients[1].mask(run.vectors[1])
    with pytest.raises(DataError, match="not one that was agreed"):
        run.clients[1].open(list(run.server.vectors))


def test_with_too_few_vectors_or_openings_there_is_no_sum() -> None:
    run = Run()
    run.deal()
    run.send({1, 2})
    with pytest.raises(DataError, match="not one that was agreed"):
        run.open()
    run = Run()
    run.deal()
    run.send()
    run.open({1, 2})
    assert not run.server.can_sum
    with pytest.raises(DataError, match="too few clients"):
        run.server.total()


def test_shares_below_the_threshold_say_nothing_and_at_it_everything() -> None:
    secret = bytes(range(32))
    shares = dict(enumerate(deal_shares(secret, 7, 4), start=1))
    assert all(len(share) == SHARE for share in shares.values())
    for places in ((1, 2, 3, 4), (4, 5, 6, 7), (1, 3, 5, 7)):
        assert open_shares({place: shares[place] for place in places}, 4) == secret
    assert open_shares({place: shares[place] for place in (1, 2, 3)}, 4) is None
    # Three of four: for every other secret there is a fourth share that fits, so they say nothing.
    for wanted in (0, 1, 65535):
        others = [int(np.frombuffer(shares[place], "<u4")[0]) for place in (1, 2, 3)]
        fits = [
            fourth
            for fourth in range(PRIME)
            if (4 * others[0] - 6 * others[1] + 4 * others[2] - fourth) % PRIME == wanted
        ]
        assert len(fits) == 1


def test_a_changed_share_is_rejected_its_sender_named_and_the_sum_still_exact() -> None:
    run = Run(Terms("round", 7, 6, 5, 40))
    run.deal()
    run.send({3})
    for place in run.server.vectors:
        shares = run.clients[place].open(list(run.server.vectors))
        if place == 2:
            shares = {dealer: bytes([share[0] ^ 1]) + share[1:] for dealer, share in shares.items()}
        run.server.take_opening(place, shares)
    assert run.server.rejected == {2}
    assert (run.server.total() == run.truth).all()


def test_a_box_that_was_changed_on_its_way_ends_the_round_for_that_client_before_it_sends() -> None:
    run = Run()
    run.deal()
    boxes, hashes = run.server.list_boxes(1)
    for change in (boxes[2][:-1] + bytes([boxes[2][-1] ^ 1]), boxes[3], b""):
        client = run.clients[1]
        with pytest.raises(DataError, match="shares of client 2 were changed"):
            client.receive({**boxes, 2: change}, hashes)
    with pytest.raises(DataError, match="shares of client 2 were changed"):
        run.clients[1].receive(boxes, {**hashes, 2: hashes[3]})
    with pytest.raises(DataError, match="list of clients"):
        run.clients[1].receive({2: boxes[2]}, hashes)
    with pytest.raises(DataError, match="not one of the round"):
        run.clients[1].mask(run.vectors[1])


def _lie_about_seeds(dealt: Dealt) -> Dealt:
    return replace(dealt, seeds={place: bytes(32) for place in dealt.seeds})


def test_a_client_whose_seeds_agree_with_nobody_is_left_out_before_vectors_are_sent() -> None:
    run = Run()
    for place, client in run.clients.items():
        run.server.take_key(place, client.key)
    for place, client in run.clients.items():
        dealt = client.deal(run.server.keys)
        run.server.take_shares(place, _lie_about_seeds(dealt) if place == 4 else dealt)
    assert run.server.find_unequal_pairs() == {4}
    run.server.leave_out({4})
    run.send()
    run.open()
    assert (run.server.total() == run.truth).all()


@pytest.mark.parametrize("lie", ["own", "locked"])
def test_a_dealer_of_shares_of_nothing_is_named(lie: str) -> None:
    run = Run()
    for place, client in run.clients.items():
        run.server.take_key(place, client.key)
    for place, client in run.clients.items():
        dealt = client.deal(run.server.keys)
        if place == 5:
            change = {"own": (bytes(32), bytes(32))} if lie == "own" else {"locked": bytes(len(dealt.locked))}
            dealt = replace(dealt, **change)
        run.server.take_shares(place, dealt)
    run.send({5} if lie == "locked" else ())
    run.open()
    with pytest.raises(DataError, match="client 5"):
        run.server.total()


def test_messages_that_no_honest_client_sends_are_refused() -> None:
    run = Run()
    with pytest.raises(DataError, match="not a key"):
        run.server.take_key(1, LOW_ORDER)
    with pytest.raises(DataError, match="not a key"):
        run.server.take_key(1, b"short")
    run.deal()
    for place in (0, 7, 1):
        with pytest.raises(DataError, match="taken"):
            run.server.take_key(place, SumClient(TERMS, 1).key)
    with pytest.raises(DataError, match="Deal once"):
        run.server.take_shares(1, run.server.dealt[1])
    run.send({6})
    for place, vector in ((1, b"x" * 320), (6, b"x"), (99, b"x" * 320)):
        with pytest.raises(DataError, match="one vector of the agreed length"):
            run.server.take_vector(place, vector)
    with pytest.raises(DataError, match="Open once"):
        run.server.take_opening(6, {})


def test_a_server_that_lies_to_a_client_gets_nothing() -> None:
    run = Run()
    run.deal()
    lone = SumClient(TERMS, 1)
    keys = {**run.server.keys, 1: lone.key}
    with pytest.raises(DataError, match="list of keys"):
        SumClient(TERMS, 1).deal(run.server.keys)
    with pytest.raises(DataError, match="too few"):
        lone.deal({1: lone.key, 2: run.server.keys[2]})
    with pytest.raises(DataError, match="list of keys"):
        lone.deal({**keys, 2: keys[3]})
    run.send()
    client = run.clients[2]
    with pytest.raises(DataError, match="not one of the round"):
        client.mask(run.vectors[2])  # twice under one mask: the difference would be plain
    with pytest.raises(DataError, match="list of clients"):
        client.receive(*run.server.list_boxes(2))
    with pytest.raises(DataError, match="agreed"):
        client.open([1, 2, 3, 4])  # fewer than the least number: their sum would be of too few
    client.open([1, 2, 3, 4, 5])
    with pytest.raises(DataError, match="agreed"):
        client.open([1, 2, 3, 4, 6])  # once: both secrets of one client must never be open


@pytest.mark.parametrize(
    "change",
    [{"clients": 1}, {"threshold": 4}, {"least": 4}, {"least": 7}, {"length": 0}, {"bits": 16}, {"clients": 10**6}],
)
def test_terms_that_would_not_protect_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ParameterError, match="terms of the sum"):
        replace(TERMS, **change)
