"""Secure sums: 100 clients with 10,000 numbers each, of whom 10 drop out after dealing their shares.

Bars: the sum is exact, and a client takes at most 20 CPU milliseconds (keys, shares, masks and opening; its share of
the noise is printed beside). All clients and the server run in one process, one after the other, without a network; CPU
milliseconds are those of the process. The message sizes are what a client sends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.dp.mechanisms import GaussianMechanism
from deniable.learn.secure_sum import SumClient, SumServer, Terms

CLIENTS, LENGTH, GONE, RUNS, BAR = 100, 10_000, 10, 5, 20.0


class Clock:
    """CPU seconds by what they were for."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def time(self, name: str, run: Callable[[], Any]) -> Any:
        """Run, and add the CPU seconds."""
        start = time.process_time()
        found = run()
        self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - start
        return found


def mask_vector(client: SumClient, vector: np.ndarray, boxes: Any) -> bytes:
    """Open the boxes and mask."""
    client.receive(*boxes)
    return client.mask(vector)


def run_round(terms: Terms, seed: int) -> tuple[bool, Clock, int]:
    """Whether the sum is exact, CPU seconds, and the bytes that one client sends."""
    clock, server, draw = Clock(), SumServer(terms), np.random.default_rng(seed)
    places = range(1, terms.clients + 1)
    clients = {place: clock.time("keys", lambda place=place: SumClient(terms, place)) for place in places}
    vectors = {place: draw.integers(-(2**20), 2**20, terms.length) for place in places}
    for place, client in clients.items():
        clock.time("server", lambda place=place, client=client: server.take_key(place, client.key))
    size = 0
    for place, client in clients.items():
        dealt = clock.time("shares", lambda client=client: client.deal(server.keys))
        size = 32 + sum(len(box) + 96 for box in dealt.boxes.values()) + len(dealt.locked)
        clock.time("server", lambda place=place, dealt=dealt: server.take_shares(place, dealt))
    clock.time("server", server.find_unequal_pairs)
    gone = set(draw.choice(terms.clients, GONE, replace=False) + 1)
    for place in set(places) - gone:
        boxes = server.list_boxes(place)
        masked = clock.time(
            "masks", lambda place=place, boxes=boxes: mask_vector(clients[place], vectors[place], boxes)
        )
        server.take_vector(place, masked)
    answered = list(server.vectors)
    for place in answered:
        shares = clock.time("opening", lambda place=place: clients[place].open(answered))
        clock.time("server", lambda place=place, shares=shares: server.take_opening(place, shares))
    found = clock.time("server", server.total)
    exact = bool((found == np.sum([vectors[place] for place in answered], axis=0)).all())
    return exact, clock, size + terms.length * terms.bits // 8


def main() -> int:
    """Print figures; the exit code counts bars that were missed."""
    missed = 0
    for bits in (64, 32):
        terms = Terms("bench", CLIENTS, CLIENTS - GONE, 2 * CLIENTS // 3 + 1, LENGTH, bits)
        runs = [run_round(terms, seed) for seed in range(RUNS)]
        exact = all(found for found, _, _ in runs)
        spent = [
            1000 * sum(each for name, each in clock.spent.items() if name != "server") / CLIENTS for _, clock, _ in runs
        ]
        parts = {name: min(1000 * clock.spent[name] / CLIENTS for _, clock, _ in runs) for name in runs[0][1].spent}
        server = parts.pop("server") * CLIENTS
        told = ", ".join(f"{name} {each:.2f}" for name, each in parts.items())
        print(f"{CLIENTS} clients x {LENGTH:,} numbers of {bits} bits, {GONE} drop out, {RUNS} runs")
        print(f"  a client sends {runs[0][2] / 1000:.0f} kB")
        print(
            f"  client {min(spent):.1f} to {max(spent):.1f} CPU ms (least of each part: {told}); server {server:.0f} ms"
        )
        print(f"  {'pass' if exact else 'MISS'}  the sum is exact")
        print(f"  {'pass' if min(spent) <= BAR else 'MISS'}  at most {BAR:g} CPU ms a client")
        missed += (not exact) + (min(spent) > BAR)
    mechanism, start = GaussianMechanism(Fraction(10**7), Fraction(10**6)), time.process_time()
    for _ in range(20):
        mechanism.release(np.zeros(LENGTH, np.int64))
    print(f"  a share of the noise on {LENGTH:,} numbers: {50 * (time.process_time() - start):.1f} CPU ms")
    return missed


if __name__ == "__main__":
    sys.exit(main())
