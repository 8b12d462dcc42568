"""Decoders accept exactly what an honest client can send: by enumeration where it is small, by forgeries where not.

The oracle is not the layout: for small parameters it is the list of responses with a positive probability, for large
ones `can_be_sent`, which reads the recipe as the wire format's page states it."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from deniable.errors import DataError
from deniable.localdp import client, serialization
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.numeric.mechanisms import TURNS, BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale, mean_of

SCALE = Scale.between(0, 5)
ODDS = Fraction(5, 2)
BIT, CELLS = Duchi(SCALE, ODDS), Window(SCALE, 7, 3, ODDS)
SMALL: dict[str, Any] = {
    "coins": two_coins(),
    "k-ary": Direct(5, ODDS),
    "unary": Unary.calibrate(4, 1),
    "hadamard": Hadamard(5, 1, ODDS),
    "hadamard in blocks": Hadamard(5, 4, ODDS),
    "subset": Subset(6, 3, ODDS),
    "subset of all but one": Subset(4, 3, ODDS),
    "count mean sketch": CountMeanSketch.calibrate(1, hashes=3, width=4),
    "hadamard sketch": HadamardSketch.calibrate(1, hashes=3, width=4),
    "prefix tree": PrefixTree("fi", 4, 2, 3, HadamardSketch.calibrate(1, hashes=3, width=4)),
    "rappor": Rappor.calibrate(1, width=4, hashes=1, cohorts=2),
    "duchi": BIT,
    "window": CELLS,
    "hybrid": Hybrid(BIT, CELLS, 26000),
    "hybrid that is always the bit": Hybrid(BIT, CELLS, 0),
    "hybrid that is always the window": Hybrid(BIT, CELLS, TURNS),
}


def accepts(protocol: Any, message: object) -> bool:
    try:
        serialization.check(protocol.layout, message)
    except DataError:
        return False
    return True


def honest(protocol: Any) -> set[Any]:
    """Every response that leaves with a positive probability under some answer."""
    words = isinstance(protocol, CountMeanSketch | HadamardSketch | PrefixTree | Rappor)
    scale = getattr(protocol, "scale", None)
    answers = ["fig", "plum"] if words else range(scale.steps + 1 if scale else protocol.domain)
    return {outcome for answer in answers for outcome, likelihood in protocol.likelihoods(answer) if likelihood > 0}


def written(outcome: Any) -> list[Any]:
    """An outcome as the wire has it: bit strings in hexadecimal, sets as lists."""
    return [_write(entry) for entry in outcome]


def _write(entry: Any) -> Any:
    if not isinstance(entry, tuple):
        return entry
    return list(entry)


def entries(protocol: Any) -> list[list[Any]]:
    """For each field of a response more values than it can have."""
    whole = list(range(-1, 24 if len(protocol.layout) < 4 else 9))
    sets = [list(chosen) for size in range(5) for chosen in product(range(7), repeat=size)]
    bits = [tuple(string) for string in product((0, 1), repeat=4)]
    kinds = {"Whole": whole, "Selected": whole, "Chosen": sets, "Bits": bits}
    return [kinds[type(field).__name__] for field in protocol.layout]


def _on_the_wire(protocol: Any, message: tuple[Any, ...]) -> list[Any]:
    return [
        f"{sum(bit << place for place, bit in enumerate(entry)):02x}" if type(field).__name__ == "Bits" else entry
        for field, entry in zip(protocol.layout, message, strict=True)
    ]


@pytest.mark.parametrize("name", SMALL)
def test_of_all_messages_exactly_those_are_accepted_that_an_honest_client_can_send(name):
    protocol = SMALL[name]
    known = {repr(written(outcome)) for outcome in honest(protocol)}
    for message in product(*entries(protocol)):
        assert accepts(protocol, _on_the_wire(protocol, message)) == (repr(written(message)) in known), message


@pytest.mark.parametrize("name", ["duchi", "window", "hybrid", "hybrid that is always the bit"])
def test_bytes_are_read_exactly_where_the_same_message_in_json_is(name):
    protocol = SMALL[name]
    entries = [*range(64), *range(254, 256)]  # every bound is below 64
    for message in product(entries, repeat=len(protocol.layout)):
        try:
            columns = serialization.from_bytes(protocol.layout, bytes(message))
        except DataError:
            assert not accepts(protocol, list(message))
        else:
            assert serialization.to_json(protocol.layout, columns) == [list(message)]
            assert accepts(protocol, list(message))


def test_one_forged_response_no_longer_destroys_a_mean():
    scale = Scale.between(0, 80)
    protocol = Hybrid.calibrate(scale, 1)
    told = serialization.to_json(protocol.layout, protocol.randomize(np.full(50, 38)))
    with pytest.raises(DataError):
        serialization.from_json(protocol.layout, [*told, [0, 1585]])


NUMERIC: dict[str, Any] = {
    "duchi": BIT,
    "window": CELLS,
    "hybrid": Hybrid(BIT, CELLS, 26000),
    "laplace": BoundedLaplace.calibrate(SCALE, 1),
    "laplace, clamped": BoundedLaplace.calibrate(SCALE, 1, clamped=True),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_no_accepted_response_moves_a_mean_further_than_the_worst_honest_one(name):
    protocol, told = NUMERIC[name], [1] * 30
    columns = protocol.randomize(np.full(len(told), 2))
    others = serialization.to_json(protocol.layout, columns)
    reach = 600
    messages = product(*([range(reach)] if len(protocol.layout) == 1 else [range(2), range(reach)]))
    forged = [list(message) for message in messages if accepts(protocol, list(message))]
    moved = [mean_of(protocol, serialization.from_json(protocol.layout, [*others, one])).value for one in forged]
    low, high = protocol.range_of(len(others) + 1)
    base = float(np.clip(protocol.positions(columns), low, high).sum())
    ends = [protocol.scale.value_of((base + end) / (len(others) + 1)) for end in (low, high)]
    assert min(moved) == pytest.approx(float(ends[0]))
    assert max(moved) == pytest.approx(float(ends[1]))
    assert high - low <= protocol.scale.steps * (1 + 2 * (np.log(31) + 4)) / 1


def test_a_far_laplace_response_counts_no_more_than_noise_ever_does():
    protocol = BoundedLaplace.calibrate(Scale.between(0, 100), 1)
    others = np.full(999, 50 + protocol.reach)
    far = np.append(others, 100 + 2 * protocol.reach)  # 44 scales: a chance of 10^-19 for anybody honest
    moved = mean_of(protocol, (far,)).value - 50
    assert moved < 100 * (np.log(1000) + 5) / 1000


LARGE: dict[str, Any] = {
    "coins": two_coins(),
    "k-ary": Direct.calibrate(1000, 1),
    "unary": Unary.calibrate(100, 1),
    "hashing": LocalHashing.calibrate(1000, 1),
    "hadamard": Hadamard.calibrate(1000, 3),
    "subset": Subset.calibrate(200, 2),
    "rappor": Rappor.calibrate(2),
    "count-mean-sketch": CountMeanSketch.calibrate(2, width=256),
    "hadamard-sketch": HadamardSketch.calibrate(2),
    "prefix-tree": PrefixTree.calibrate(2),
    "duchi": Duchi.calibrate(Scale.between(0, 80), 1),
    "window": Window.square_wave(Scale.between(0, 80), 1),
    "hybrid": Hybrid.calibrate(Scale.between(0, 80), 1),
    "laplace": BoundedLaplace.calibrate(Scale.between(0, 80), 1),
}


def _reach(recipe: dict[str, Any]) -> int:
    """How many steps beyond the scale a response with Laplace noise may be: 44 scales of the noise, rounded up."""
    numerator, denominator = recipe["claimed"]
    return 0 if recipe["clamped"] else math.ceil(44 * recipe["scale"]["steps"] * Fraction(denominator, numerator))


def can_be_sent(recipe: dict[str, Any], message: Any) -> bool:
    """Whether the wire format's page lets an honest client send this; written from the page, not from the layouts."""
    rules: dict[str, Any] = {
        "coins": lambda r, m: _whole(m, 2),
        "k-ary": lambda r, m: _whole(m, r["domain"]),
        "unary": lambda r, m: _bits(m[0], r["domain"]) and len(m) == 1,
        "hashing": lambda r, m: _whole(m, 2**32, r["buckets"]),
        "hadamard": lambda r, m: _whole(m, r["blocks"] * 2 ** (-(-r["domain"] // r["blocks"])).bit_length()),
        "subset": lambda r, m: len(m) == 1 and _set(m[0], r["count"], r["domain"]),
        "rappor": lambda r, m: len(m) == 2 and _whole(m[:1], r["cohorts"]) and _bits(m[1], r["width"]),
        "count-mean-sketch": lambda r, m: len(m) == 2 and _whole(m[:1], r["hashes"]) and _bits(m[1], r["width"]),
        "hadamard-sketch": lambda r, m: _whole(m, r["hashes"], r["width"], 2),
        "prefix-tree": lambda r, m: _whole(m, _turns(r), r["sketch"]["hashes"], r["sketch"]["width"], 2),
        "duchi": lambda r, m: _whole(m, 2),
        "window": lambda r, m: _whole(m, r["places"] + r["width"]),
        "hybrid": lambda r, m: (_whole(m, 2, 2) and m[0] == 0) or (_whole(m, 2, _cells(r)) and m[0] == 1),
        "laplace": lambda r, m: _whole(m, r["scale"]["steps"] + 2 * _reach(r) + 1),
    }
    return isinstance(message, list) and len(message) > 0 and bool(rules[recipe["protocol"]](recipe, message))


def _turns(recipe: dict[str, Any]) -> int:
    return recipe["longest"] // recipe["step"] + recipe["counting"]


def _cells(recipe: dict[str, Any]) -> int:
    return recipe["window"]["places"] + recipe["window"]["width"] if recipe["window_turns"] else 0


def _whole(message: list[Any], *bounds: int) -> bool:
    return len(message) == len(bounds) and all(
        type(entry) is int and entry in range(bound) for entry, bound in zip(message, bounds, strict=True)
    )


def _bits(entry: object, length: int) -> bool:
    if not isinstance(entry, str) or len(entry) != -(-length // 8) * 2 or entry != entry.lower():
        return False
    try:
        raw = bytes.fromhex(entry)
    except ValueError:
        return False
    return len(raw) * 2 == len(entry) and int.from_bytes(raw, "little") < 2**length


def _set(entry: object, count: int, domain: int) -> bool:
    if not isinstance(entry, list) or any(type(each) is not int for each in entry):
        return False
    return len(entry) == count and entry == sorted(set(entry)) and set(entry) <= set(range(domain))


def forge(rng: random.Random, message: list[Any]) -> Any:
    """An honest message spoiled in one place, or in none."""
    forged: list[Any] = [list(entry) if isinstance(entry, list) else entry for entry in message]
    place = rng.randrange(len(forged))
    forged[place] = _spoil(rng, forged[place])
    return rng.choice([forged, forged, forged, forged, forged[:-1], [*forged, 0], tuple(forged), forged[place]])


def _spoil(rng: random.Random, entry: Any) -> Any:
    if isinstance(entry, int):
        far = [entry ^ 1 << rng.randrange(40), -entry, entry + 1, rng.randrange(2**12), 2**63, True, 1.0, str(entry)]
        return rng.choice([*far, None, [entry], rng.randrange(3)])
    if isinstance(entry, str):
        place = rng.randrange(len(entry))
        letter = rng.choice("0123456789abcdefABCDEFxz \n")
        return rng.choice([entry[:place] + letter + entry[place + 1 :], entry[2:], entry + "00", entry.upper(), 0])
    place = rng.randrange(len(entry))
    changed = [*entry[:place], _spoil(rng, entry[place]), *entry[place + 1 :]]
    return rng.choice([changed, changed, sorted(entry, reverse=True), entry[1:], [*entry, entry[-1] + 1], tuple(entry)])


def count_wrong(name: str, forgeries: int, seed: int) -> int:
    """How many forged messages a decoder judges other than the oracle."""
    protocol, rng = LARGE[name], random.Random(seed)
    recipe = serialization.recipe(protocol)
    texts = name in ("rappor", "count-mean-sketch", "hadamard-sketch", "prefix-tree")
    genuine = [client.randomize(recipe, "fig" if texts else 1) for _ in range(50)]
    assert all(accepts(protocol, message) for message in genuine)
    messages = (forge(rng, rng.choice(genuine)) for _ in range(forgeries))
    return sum(accepts(protocol, message) != can_be_sent(recipe, message) for message in messages)


@pytest.mark.parametrize("name", LARGE)
def test_forged_messages_are_accepted_only_where_an_honest_client_can_send_them(name):
    assert count_wrong(name, 4000, seed=1) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_million_forged_messages_a_protocol(name):
    assert count_wrong(name, 1_000_000, seed=2) == 0
