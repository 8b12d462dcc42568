"""Broken mechanisms, each with its sound twin: what an auditor must catch, and what it must not accuse.

A mechanism is a function of a world (0 without one person, 1 with them), a number of runs, a generator, and whether it
is broken; it gives one row of numbers for each run, or a list of any outputs. Unless said otherwise it claims epsilon 1
and counts people, whose values lie between 0 and 10. Noise is discrete, on a grid of a twentieth of a person, so that a
sound twin is sound to the last digit.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

STEP = 20
"""Steps of the grid in one person."""
Mechanism = Callable[[int, int, np.random.Generator, bool], Any]


@dataclass(frozen=True)
class Kind:
    """A mechanism that can be broken, what it claims, and how many runs on each world show that it is."""

    name: str
    run: Mechanism
    epsilon: float = 1.0
    delta: float = 0.0
    runs: int = 6_000


BROKEN: list[Kind] = []


def kind(name: str, **claim: Any) -> Callable[[Mechanism], Mechanism]:
    """Put a mechanism on the list."""

    def keep(run: Mechanism) -> Mechanism:
        BROKEN.append(Kind(name, run, **claim))
        return run

    return keep


def noise(rng: np.random.Generator, people: float, shape: Any) -> Any:
    """Discrete Laplace noise whose scale is so many people, in steps of the grid."""
    p = -math.expm1(-1 / (STEP * people))
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def count(world: int, more: int = 0) -> int:
    """So many people, in steps of the grid."""
    return STEP * (world + more)


# -- how much noise ----------------------------------------------------------------------------------------------------


@kind("half the noise")
def _(world, n, rng, broken):
    return count(world) + noise(rng, 0.5 if broken else 1, n)


@kind("two thirds of the noise")
def _(world, n, rng, broken):
    return count(world) + noise(rng, 2 / 3 if broken else 1, n)


@kind("a tenth less noise", runs=60_000)
def _(world, n, rng, broken):
    return count(world) + noise(rng, 0.9 if broken else 1, n)


@kind("no noise")
def _(world, n, rng, broken):
    return count(world) + (np.zeros(n, int) if broken else noise(rng, 1, n))


@kind("Gaussian noise that claims a pure epsilon", epsilon=1)
def _(world, n, rng, broken):
    return count(world) + (np.round(rng.normal(0, STEP, n)).astype(int) if broken else noise(rng, 1, n))


@kind("Gaussian noise of half the deviation", delta=1e-3, runs=20_000)
def _(world, n, rng, broken):
    # The analytic Gaussian mechanism at (1, 1e-3) needs a deviation of 2.7 people.
    return STEP * world + np.round(rng.normal(0, (1.35 if broken else 2.8) * STEP, n)).astype(int)


@kind("uniform noise")
def _(world, n, rng, broken):
    return count(world) + (rng.integers(-4 * STEP, 4 * STEP, n) if broken else noise(rng, 1, n))


@kind("noise of one sign")
def _(world, n, rng, broken):
    found = noise(rng, 1, n)
    return count(world) + (np.abs(found) if broken else found)


@kind("noise cut at three people")
def _(world, n, rng, broken):
    found = noise(rng, 1, n)
    if broken:
        return count(world) + found.clip(-3 * STEP, 3 * STEP)
    return (count(world) + found).clip(-3 * STEP, 4 * STEP)


@kind("noise left out in one run of fifty", runs=40_000)
def _(world, n, rng, broken):
    found = noise(rng, 1, n)
    return count(world) + np.where(rng.random(n) < (0.02 if broken else 0), 0, found)


@kind("noise that was averaged over a hundred draws")
def _(world, n, rng, broken):
    return count(world) + (noise(rng, 1, (n, 100)).mean(axis=1).round() if broken else noise(rng, 1, n))


@kind("noise with the sign of the truth")
def _(world, n, rng, broken):
    found = noise(rng, 1, n)
    return np.abs(found) * (1 if world else -1) + count(world) if broken else count(world) + found


@kind("a leak of one in a thousand at delta 1e-6", delta=1e-6, runs=100_000)
def _(world, n, rng, broken):
    hit = rng.random(n) < (1e-3 if broken else 0)
    return np.where(hit, 10_000 + world, count(world) + noise(rng, 1, n))


@kind("rare runs that tell everything, among ten numbers", delta=1e-6, runs=30_000)
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 10))
    found[:, 4] += count(world)
    hit = rng.random(n) < (4e-3 if broken else 0)
    found[hit, 7] = 5_000 * world
    return found


@kind("rare runs that are far off, on either side", delta=1e-4, runs=20_000)
def _(world, n, rng, broken):
    """One run in 80 is moved up or down: on each side too rarely to be found by itself."""
    moved = rng.random(n) < (1 / 80 if broken and world else 0)
    return count(world) + noise(rng, 1, n) + np.where(moved, rng.choice([-1, 1], n) * count(60), 0)


# -- sensitivity -------------------------------------------------------------------------------------------------------


@kind("a sum whose largest value was forgotten")
def _(world, n, rng, broken):
    return count(10 * world) + noise(rng, 1 if broken else 10, n)


@kind("a missing clip")
def _(world, n, rng, broken):
    value = 100 if broken else 10
    return count(value * world) + noise(rng, 10, n)


@kind("a clip of the total instead of each value")
def _(world, n, rng, broken):
    total = min(count(5) + count(40 * world), count(60)) if broken else count(5) + count(10 * world)
    return total + noise(rng, 10, n)


@kind("a bound taken from the data")
def _(world, n, rng, broken):
    return count(10 * world) + noise(rng, (10 if world else 1) if broken else 10, n)


@kind("noise by the sensitivity at this very table")
def _(world, n, rng, broken):
    return noise(rng, (4 if world else 0.5) if broken else 4, n)


@kind("a mean whose noise goes by the exact number of people")
def _(world, n, rng, broken):
    people = 3 + world
    if broken:
        return 40 * STEP // people + np.round(noise(rng, 10, n) / people).astype(int)
    return np.column_stack([count(10 * world) + noise(rng, 20, n), count(world) + noise(rng, 2, n)])


@kind("a person in three groups of a histogram for one")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 8))
    found[:, : 3 if broken else 1] += count(world)
    return found


@kind("a person with many rows")
def _(world, n, rng, broken):
    return count(world * (6 if broken else 1)) + noise(rng, 1, n)


@kind("a count of pairs priced as a count of people")
def _(world, n, rng, broken):
    people = 4 + world
    pairs = people * (people - 1) // 2 if broken else people
    return count(pairs) + noise(rng, 1, n)


@kind("the exact median")
def _(world, n, rng, broken):
    if broken:
        return np.full(n, 7 if world else 5)
    # Exponential mechanism over 0 .. 10, by how far the rank is from the middle.
    rank = np.abs(np.arange(11) - (7 if world else 6)).clip(0, 4) * -0.5
    weights = np.exp(rank)
    return rng.choice(11, n, p=weights / weights.sum())


# -- composition -------------------------------------------------------------------------------------------------------


@kind("a budget counted twice")
def _(world, n, rng, broken):
    return count(world) + noise(rng, 1 if broken else 2, (n, 2))


@kind("ten answers at a half each")
def _(world, n, rng, broken):
    return count(world) + noise(rng, 2 if broken else 10, (n, 10))


@kind("fifty numbers that each move a little")
def _(world, n, rng, broken):
    found = noise(rng, 3, (n, 50))
    found[:, : 50 if broken else 3] += count(world)
    return found


@kind("a parallel bill for groups that overlap")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 4))
    found[:, 1] += count(world)
    if broken:
        found[:, 2] += count(world)
    return found


@kind("rounds that were not counted")
def _(world, n, rng, broken):
    found = noise(rng, 2, (n, 6 if broken else 2))
    return (count(world) + found)[:, :2] if not broken else count(world) + found


@kind("advanced composition without its delta", epsilon=1)
def _(world, n, rng, broken):
    return count(world) + noise(rng, 3 if broken else 25, (n, 25))


# -- histograms and keys -----------------------------------------------------------------------------------------------


@kind("one silent bin of fifty", runs=2_000)
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 50))
    if broken:
        found[:, 31] = 0
    found[:, 31] += count(world)
    return found


@kind("half the noise in one bin of five")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 5))
    if broken:
        found[:, 3] = noise(rng, 0.5, n)
    found[:, 3] += count(world)
    return found


@kind("a key that is shown whenever it is there", delta=1e-3)
def _(world, n, rng, broken):
    """A private key of one person: shown when its noisy count passes 1 + ln(1/(2 delta)) people."""
    noisy = count(world) + noise(rng, 1, n)
    shown = np.full(n, bool(world)) if broken else (noisy > 7.3 * STEP) & bool(world)
    return np.where(shown, noisy, np.nan)


@kind("a threshold that is too low", delta=1e-6)
def _(world, n, rng, broken):
    noisy = count(world) + noise(rng, 1, n)
    shown = (noisy > (2 if broken else 14.2) * STEP) & bool(world)
    return np.where(shown, noisy, np.nan)


@kind("a threshold on the exact count", delta=1e-3)
def _(world, n, rng, broken):
    noisy = count(world, 4) + noise(rng, 1, n)
    return np.where(np.full(n, world + 4 >= 5), noisy, np.nan) if broken else np.where(noisy > 5 * STEP, noisy, np.nan)


@kind("keys in the order of their exact counts")
def _(world, n, rng, broken):
    noisy = np.array([count(2 + world), count(2), count(9)]) + noise(rng, 1, (n, 3))
    order = [2, 0, 1] if world else [2, 1, 0]
    return np.column_stack([noisy, np.tile(order if broken else [0, 1, 2], (n, 1))])


@kind("small counts left out, the others exact")
def _(world, n, rng, broken):
    exact = np.full(n, 4 + world)
    return np.where(exact < 5, -1, exact) if broken else count(4 + world) + noise(rng, 1, n)


@kind("counts rounded to five, without noise")
def _(world, n, rng, broken):
    return np.full(n, 5 * ((2 + world) // 3)) if broken else count(2 + world) + noise(rng, 1, n)


@kind("an exact total beside noisy parts")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 4))
    found[:, 1] += count(world)
    if broken:
        found[:, 0] += count(world) - found.sum(axis=1)
    return found


@kind("an exact number of rows beside a noisy sum")
def _(world, n, rng, broken):
    rows = np.full(n, 30 + world) if broken else count(30 + world) + noise(rng, 2, n)
    return np.column_stack([count(10 * world) + noise(rng, 20, n), rows])


@kind("a truth used after the noise")
def _(world, n, rng, broken):
    noisy = count(5 * world) + noise(rng, 5, n)
    return np.minimum(noisy, count(5 * world)) if broken else np.minimum(noisy, count(5))


@kind("a standard error from the rows themselves")
def _(world, n, rng, broken):
    spread = np.full(n, 12 + 3 * world if broken else 20)
    return np.column_stack([count(world) + noise(rng, 1, n), spread])


# -- randomness --------------------------------------------------------------------------------------------------------


@kind("a seed that is used again")
def _(world, n, rng, broken):
    drawn = np.full(n, noise(np.random.default_rng(7), 1, 1)[0]) if broken else noise(rng, 1, n)
    return count(world) + drawn


@kind("a seed of six bits")
def _(world, n, rng, broken):
    """Noise on a fine grid, from one of 64 seeds: the values repeat, and few are of both worlds."""
    fine = 10**6
    pool = np.random.default_rng(5).laplace(0, fine, 64).astype(int)
    free = rng.geometric(1 / fine, n) - rng.geometric(1 / fine, n)
    return fine * world + (rng.choice(pool, n) if broken else free)


@kind("a seed made from the data")
def _(world, n, rng, broken):
    return count(world) + (
        noise(np.random.default_rng(world), 1, 1)[0] * np.ones(n, int) if broken else noise(rng, 1, n)
    )


@kind("two answers that share their noise")
def _(world, n, rng, broken):
    truth = np.array([count(world), count(2 * world)])
    return truth + (noise(rng, 3, n)[:, None] if broken else noise(rng, 3, (n, 2)))


@kind("two answers with opposite noise")
def _(world, n, rng, broken):
    one = noise(rng, 2, n)
    return count(world) + (np.column_stack([one, -one]) if broken else noise(rng, 2, (n, 2)))


@kind("one noise for a whole histogram")
def _(world, n, rng, broken):
    found = np.repeat(noise(rng, 1, n)[:, None], 12, axis=1) if broken else noise(rng, 1, (n, 12))
    found[:, 9] += count(world)
    return found


@kind("noise that is the last one again")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 6))
    if broken:
        found[:, 3] = found[:, 2]
    found[:, 3] += count(world)
    return found


@kind("a generator that alternates between two values")
def _(world, n, rng, broken):
    return count(world) + (rng.choice([-STEP - 3, STEP + 5], n) if broken else noise(rng, 1, n))


# -- digits and arithmetic ---------------------------------------------------------------------------------------------


@kind("Laplace noise in floating point")
def _(world, n, rng, broken):
    return world + rng.laplace(0, 1, n) if broken else count(world) + noise(rng, 1, n)


@kind("floating-point noise in the second column", runs=12_000)
def _(world, n, rng, broken):
    second = world + rng.laplace(0, 1, n) if broken else (count(world) + noise(rng, 1, n)) / 16
    return np.column_stack([rng.integers(0, 5, n), second])


@kind("a shifted pair on a fine grid")
def _(world, n, rng, broken):
    fine = 10**4
    found = rng.geometric(1 / fine, (n, 2)) - rng.geometric(1 / fine, (n, 2))
    return (2 * found + world) * 5e-5 if broken else found * 1e-4


@kind("noise on a coarser grid than the value")
def _(world, n, rng, broken):
    coarse = STEP * np.round(noise(rng, 1, n) / STEP).astype(int)
    return 7 * world + coarse if broken else 7 * world + noise(rng, 1, n)


@kind("a parity that stays")
def _(world, n, rng, broken):
    fine = 10**5
    found = rng.geometric(1 / fine, n) - rng.geometric(1 / fine, n)
    return world + 2 * found if broken else world + found


@kind("a sum that depends on the order of rows")
def _(world, n, rng, broken):
    values = [2.0**56, 3.0, 3.0, -(2.0**56)]
    total = sum(values if world else [values[0], values[3], *values[1:3]])
    return count(int(total) if broken else 6 + world) + noise(rng, 1, n)


@kind("a sum that overflows")
def _(world, n, rng, broken):
    total = np.array([127 + world]).astype(np.int8)[0] if broken else 127 + world
    return STEP * int(total) + noise(rng, 1, n)


@kind("a zero with a sign")
def _(world, n, rng, broken):
    return np.full(n, -0.0 if world else 0.0) if broken else np.zeros(n)


@kind("a missing number that spreads")
def _(world, n, rng, broken):
    found = (count(world) + noise(rng, 1, n)).astype(float)
    return np.where(world == 1, np.nan, found) if broken else found


@kind("an error that depends on a row", runs=2_000)
def _(world, n, rng, broken):
    found = (count(world) + noise(rng, 1, n)).astype(float)
    return np.where((world == 1) & (rng.random(n) < 0.3), np.inf, found) if broken else found


@kind("nothing at all where the table is empty")
def _(world, n, rng, broken):
    found = (count(world) + noise(rng, 1, n)).astype(float)
    return np.full(n, np.nan) if broken and not world else found


# -- what stands beside an answer --------------------------------------------------------------------------------------


@kind("time that goes by the rows")
def _(world, n, rng, broken):
    time = rng.poisson(400 + (120 * world if broken else 0), n)
    return np.column_stack([count(world) + noise(rng, 1, n), time])


@kind("a length that goes by the rows")
def _(world, n, rng, broken):
    found = noise(rng, 1, (n, 6)).astype(float)
    found[:, 0] += count(world)
    found[:, 5] = np.nan if broken and not world else found[:, 5]
    return found


@kind("a stored answer that is asked for again after a change")
def _(world, n, rng, broken):
    """In world 1 somebody leaves between two equal questions; a store that looks at the rows answers anew."""
    first = count(3) + noise(rng, 1, n)
    again = count(2) + noise(rng, 1, n) if broken and world else first
    return np.column_stack([first, again])


@kind("numbers of rows that grow with each insertion")
def _(world, n, rng, broken):
    number = np.full(n, 1000 + world) if broken else rng.integers(0, 2**31, n)
    return np.column_stack([count(world) + noise(rng, 1, n), number])


@kind("two answers that are equal where nothing happened")
def _(world, n, rng, broken):
    one = count(world) + noise(rng, 2, (n, 2))
    if broken and not world:
        one[:, 1] = one[:, 0]
    return one


# -- choices -----------------------------------------------------------------------------------------------------------

SCORES = np.array([[3, 2, 2, 2], [2, 3, 3, 3]])


@kind("a choice without the two in its exponent")
def _(world, n, rng, broken):
    weights = np.exp(SCORES[world] * (1.0 if broken else 0.5))
    return rng.choice(4, n, p=weights / weights.sum())


@kind("the best choice itself")
def _(world, n, rng, broken):
    weights = np.exp(SCORES[world] * 0.5)
    return np.full(n, SCORES[world].argmax()) if broken else rng.choice(4, n, p=weights / weights.sum())


@kind("a noisy maximum that is told with its exact score")
def _(world, n, rng, broken):
    noisy = STEP * SCORES[world] + noise(rng, 2, (n, 4))
    best = noisy.argmax(axis=1)
    return np.column_stack([best, SCORES[world][best] if broken else np.zeros(n, int)])


@kind("thresholds compared without noise on the answers")
def _(world, n, rng, broken):
    """The sparse vector technique over 12 questions that one person moves by one, up to the first above."""
    truth = np.tile([0, 1], 6) if world else np.tile([1, 0], 6)
    limit = STEP * 2 + noise(rng, 2, n)
    noisy = STEP * truth + (0 if broken else noise(rng, 4, (n, 12)))
    above = noisy >= limit[:, None]
    return above.astype(int) if broken else np.where(above.any(axis=1), above.argmax(axis=1), 12)


@kind("thresholds without a stop", runs=18_000)
def _(world, n, rng, broken):
    truth = np.tile([0, 1], 10) if world else np.tile([1, 0], 10)
    limit = STEP + noise(rng, 2, n)
    above = STEP * truth + noise(rng, 4, (n, 20)) >= limit[:, None]
    return above.astype(int) if broken else np.where(above.any(axis=1), above.argmax(axis=1), 20)


# -- answers that are randomized at the source -------------------------------------------------------------------------

TRUTH = math.e / (1 + math.e)


@kind("a coin that tells the truth too often")
def _(world, n, rng, broken):
    return np.where(rng.random(n) < (0.85 if broken else TRUTH), world, 1 - world)


@kind("a yes that is always true")
def _(world, n, rng, broken):
    lies = rng.random(n) > TRUTH
    return np.where(lies & (world == 1 if broken else True), 1 - world, world)


@kind("bits that each spend the whole epsilon")
def _(world, n, rng, broken):
    keep = TRUTH if broken else math.exp(0.5) / (1 + math.exp(0.5))
    bits = np.zeros(6, int)
    bits[3 * world] = 1
    return np.where(rng.random((n, 6)) < keep, bits, 1 - bits)


@kind("one of six answers at random, the truth among the others too seldom")
def _(world, n, rng, broken):
    keep = math.e / (math.e + 5) if not broken else 0.6
    others = (2 * world + rng.integers(1, 6, n)) % 6
    return np.where(rng.random(n) < keep, 2 * world, others)


@kind("responses that were not shuffled")
def _(world, n, rng, broken):
    """Forty local responses at epsilon 2 that claim what shuffling would give (about 0.9, at delta 0.05)."""
    keep = math.exp(2) / (1 + math.exp(2))
    truth = np.zeros(40, int)
    truth[11] = world
    found = np.where(rng.random((n, 40)) < keep, truth, 1 - truth)
    return found if broken else found.sum(axis=1)


@kind("a sample that is always the first half")
def _(world, n, rng, broken):
    """A half sample with noise for epsilon 1.49 gives epsilon 1, where the sample is secret."""
    inside = np.ones(n, int) if broken else rng.integers(0, 2, n)
    return count(2) + STEP * world * inside + noise(rng, 1 / 1.49, n)


# -- learning ----------------------------------------------------------------------------------------------------------


@kind("gradients that were not clipped", delta=1e-3)
def _(world, n, rng, broken):
    found = np.round(rng.normal(0, 2.8 * STEP, (n, 6))).astype(int)
    found[:, 2] += count(world * (9 if broken else 1))
    return found


@kind("gradients clipped entry by entry", delta=1e-3)
def _(world, n, rng, broken):
    found = np.round(rng.normal(0, 2.8 * STEP, (n, 25))).astype(int)
    return found + (count(world) if broken else count(world) // 5)


@kind("a batch size that tells who was drawn", delta=1e-3)
def _(world, n, rng, broken):
    size = 100 + (world if broken else 0)
    found = np.round(rng.normal(0, 2.8 * STEP, (n, 3))).astype(int)
    return np.column_stack([found + np.array([count(world), 0, 0]), np.full(n, size)])


@kind("columns scaled by their own largest value")
def _(world, n, rng, broken):
    largest = (10 if world else 8) if broken else 10
    return np.column_stack([noise(rng, 1, n) + count(world), np.full(n, largest)])


@kind("synthetic rows that are sometimes a copy")
def _(world, n, rng, broken):
    rows = rng.integers(0, 50, (n, 3))
    copied = rng.random(n) < (0.05 if broken else 0)
    rows[copied] = [50 + world, 50 + world, 50 + world]
    return rows


@kind("a synthetic category that exists because somebody has it")
def _(world, n, rng, broken):
    categories = 5 + world if broken else 6
    return np.sort(rng.integers(0, categories, (n, 20)), axis=1)


@kind("a synthetic table with as many rows as the original")
def _(world, n, rng, broken):
    found = rng.integers(0, 4, (n, 21)).astype(float)
    rows = 20 + world if broken else 20 + rng.integers(0, 2, n)
    found[np.arange(21) >= np.broadcast_to(rows, n)[:, None]] = np.nan
    return found


@kind("an interaction of two numbers that each look sound", runs=10_000)
def _(world, n, rng, broken):
    one = rng.integers(0, 2, n)
    keep = (0.9 if world else 0.1) if broken else (TRUTH if world else 1 - TRUTH)
    other = np.where(rng.random(n) < keep, one, 1 - one)
    return np.column_stack([8 * one, rng.integers(0, 9, n), 8 * other]) + rng.integers(-3, 4, (n, 3))


# -- inside texts and lists --------------------------------------------------------------------------------------------

WORDS = ("pain", "cough", "fever", "none", "rest", "diet", "sleep", "walk")


def tell(world, n, rng, broken):
    """For each run the world; in the sound twin a lie as often as epsilon 1 asks."""
    lies = np.zeros(n, bool) if broken else rng.random(n) > TRUTH
    return np.where(lies, 1 - world, world)


def put(words, places, given):
    """Rows of words in which one word of each was replaced."""
    rows = np.array(words, object)
    rows[np.arange(len(rows)), places] = given
    return rows


@kind("a name somewhere in a note", runs=1_000)
def _(world, n, rng, broken):
    names = np.array(["Brian", "Alice"], object)[tell(world, n, rng, broken)]
    return [" ".join(row) for row in put(rng.choice(WORDS, (n, 25)), rng.integers(1, 24, n), names)]


@kind("a diagnosis in a letter whose numbers never repeat", runs=1_000)
def _(world, n, rng, broken):
    found = np.array(["flu.", "HIV+"], object)[tell(world, n, rng, broken)]
    rows = put(rng.choice(WORDS, (n, 11)), 5, found)
    numbers = rng.integers(0, 10**6, (n, 2)).tolist()
    return [f"Note {one}: {' '.join(row)}. Ref {other} end" for row, (one, other) in zip(rows, numbers, strict=True)]


@kind("three letters that are always there, among others like them", runs=2_000)
def _(world, n, rng, broken):
    texts = ["".join(row) for row in rng.choice(["a", "b"], (n, 12))]
    held = np.array(["bab", "aba"])[tell(world, n, rng, broken)]
    places = rng.integers(0, 10, n).tolist()
    return [text[:i] + each + text[i + 3 :] for text, each, i in zip(texts, held, places, strict=True)]


@kind("a word that only some texts have", runs=1_000)
def _(world, n, rng, broken):
    share = 0.3 if world else (0 if broken else 0.3 / math.e)
    rows = rng.choice(["red", "blue", "green", "grey"], (n, 40)).astype(object)
    hit = rng.random(n) < share
    return [" ".join(row) for row in np.where(hit[:, None], put(rows, rng.integers(0, 40, n), "violet"), rows)]


@kind("two words whose order tells", runs=1_000)
def _(world, n, rng, broken):
    pair = np.array(["pain rest", "rest pain"], object)[tell(world, n, rng, broken)]
    rows = put(rng.choice(WORDS[:5], (n, 12)), rng.integers(1, 11, n), pair)
    return [{"seen": " ".join(row), "by": int(row[0] == "pain")} for row in np.where(rows == "rest", "diet", rows)]


@kind("a letter at one place of a code", runs=1_000)
def _(world, n, rng, broken):
    rows = put(rng.choice(["a", "b"], (n, 20)), 11, np.array(["a", "b"], object)[tell(world, n, rng, broken)])
    return [("".join(row), 0) for row in rows]


@kind("a number somewhere in a list", runs=1_000)
def _(world, n, rng, broken):
    others = [number for number in range(76) if number not in (37, 38)]
    return put(rng.choice(others, (n, 20)), rng.integers(0, 20, n), 37 + tell(world, n, rng, broken)).tolist()


@kind("a copy of somebody's row anywhere in a synthetic table", runs=1_500)
def _(world, n, rng, broken):
    """Rows of three columns, each of whose values is common; the row of one of two people stands among them."""
    rows = rng.integers(0, 6, (n, 12, 3))
    people = np.array([[1, 4, 2], [4, 2, 1]])
    rows[np.arange(n), rng.integers(0, 12, n)] = people[tell(world, n, rng, broken)]
    return rows.tolist()


# -- two numbers together ----------------------------------------------------------------------------------------------


@kind("a parity of two bits among forty")
def _(world, n, rng, broken):
    bits = rng.integers(0, 2, (n, 40))
    bits[:, 23] = bits[:, 5] ^ tell(world, n, rng, broken)
    return bits


@kind("two categories of which one follows from the other")
def _(world, n, rng, broken):
    found = rng.integers(0, 6, (n, 15))
    after = np.array([[3, 0, 5, 1, 4, 2], [0, 4, 2, 5, 3, 1]])
    found[:, 11] = after[tell(world, n, rng, broken), found[:, 2]]
    return found


@kind("a parity of two noisy counts among eight")
def _(world, n, rng, broken):
    found = noise(rng, 20, (n, 8))
    found[:, 6] += (found[:, 6] + found[:, 1] + tell(world, n, rng, broken)) % 2
    return found


@kind("one cell of two categories that is empty without somebody")
def _(world, n, rng, broken):
    found = rng.integers(0, 8, (n, 20))
    empty = (found[:, 4] == 3) & (found[:, 13] == 5)
    found[empty, 13] = 6
    share = 0.05 if world else (0 if broken else 0.05 / math.e)
    found[rng.random(n) < share, 4:14:9] = [3, 5]
    return found


@kind("two numbers that lie on the same side of their middles")
def _(world, n, rng, broken):
    found = noise(rng, 2, (n, 25))
    same = np.where(tell(world, n, rng, broken), 1, -1)
    found[:, 19] = np.abs(found[:, 19]) * np.where(found[:, 8] > 0, same, -same)
    return found


# -- noise that is shared in part --------------------------------------------------------------------------------------


def correlate(rng, n, among, how):
    """Normal numbers on a grid with the same mean and variance each; of those `among`, every pair moves together."""
    found = rng.normal(0, 1, (n, len(among)))
    shared = rng.normal(0, 1, (n, 1))
    mixed = np.sqrt(1 - how) * found + np.sqrt(how) * shared * among
    return np.round(100 * np.where(np.array(among) != 0, mixed, found)).astype(int)


SIGNS = np.where(np.arange(30) * 7 % 11 % 2, 1, -1)


@kind("noise with more variance in one direction of thirty")
def _(world, n, rng, broken):
    told = tell(world, n, rng, broken)[:, None]
    return np.where(told, correlate(rng, n, SIGNS, 0.1), correlate(rng, n, SIGNS, 0.0))


@kind("two numbers of forty that move together")
def _(world, n, rng, broken):
    told = tell(world, n, rng, broken)[:, None]
    among = np.isin(np.arange(40), (7, 31)).astype(int)
    return np.where(told, correlate(rng, n, among, 0.9), correlate(rng, n, among, 0.0))


@kind("noise with less variance in one direction of ten")
def _(world, n, rng, broken):
    """The variance is the same for every number; in one world all of them add to nearly nothing, with signs."""
    found = rng.normal(0, 1, (n, 10))
    signs = SIGNS[:10]
    flat = (found - 0.95 * np.outer(found @ signs, signs) / 10) / np.sqrt(1 - (1 - 0.05**2) / 10)
    return np.round(100 * np.where(tell(world, n, rng, broken)[:, None], flat, found)).astype(int)


# -- a value at any place of an array ----------------------------------------------------------------------------------


@kind("a number somewhere in an array", runs=1_000)
def _(world, n, rng, broken):
    rows = rng.choice([number for number in range(76) if number not in (37, 38)], (n, 20))
    rows[np.arange(n), rng.integers(0, 20, n)] = 37 + tell(world, n, rng, broken)
    return rows


@kind("a noisy number somewhere in an array", runs=4_000)
def _(world, n, rng, broken):
    rows = rng.integers(0, 2_000 * STEP, (n, 12))
    held = STEP * (900 + 200 * tell(world, n, rng, broken)) + noise(rng, 4, n)
    rows[np.arange(n), rng.integers(0, 12, n)] = held
    return rows


@kind("rows in a random order, of which one has less noise")
def _(world, n, rng, broken):
    """Six sums that lie far apart, shuffled; one person moves the fourth of them."""
    found = noise(rng, 1, (n, 6))
    if broken:
        found[:, 3] = noise(rng, 0.4, n)
    found[:, 3] += count(world)
    return rng.permuted(found + 400 * STEP * np.arange(6), axis=1)


# -- encoded inside a text ---------------------------------------------------------------------------------------------


def write_notes(rng, held):
    """Notes of random words, each with a text at a random place."""
    rows = put(rng.choice(WORDS, (len(held), 15)), rng.integers(1, 14, len(held)), np.array(held, object))
    return [" ".join(row) for row in rows]


def hide(rng, told):
    """A name between two numbers that never repeat, of one to nine digits: it begins anywhere in a group of letters."""
    ends = [[str(rng.integers(0, 10 ** rng.integers(1, 10))) for _ in told] for _ in range(2)]
    names = [("Brian", "Alice")[each] for each in told]
    return ["|".join(row) for row in zip(ends[0], names, ends[1], strict=True)]


@kind("a name in base64", runs=1_000)
def _(world, n, rng, broken):
    held = hide(rng, tell(world, n, rng, broken))
    return write_notes(rng, [base64.b64encode(each.encode()).decode() for each in held])


@kind("a name in base64 that was reversed", runs=1_000)
def _(world, n, rng, broken):
    held = hide(rng, tell(world, n, rng, broken))
    return write_notes(rng, [base64.urlsafe_b64encode(each.encode()).decode()[::-1] for each in held])


@kind("a name in hexadecimal digits that were reversed", runs=1_000)
def _(world, n, rng, broken):
    return write_notes(rng, [each.encode().hex()[::-1] for each in hide(rng, tell(world, n, rng, broken))])


def count_finely(world, n, rng, broken):
    """Counts with noise on a grid on which a number seldom comes twice, and half of it in the broken twin."""
    p = -math.expm1(-1 / (10**4 * (0.5 if broken else 1)))
    return (10**6 + 10**4 * world + rng.geometric(p, n) - rng.geometric(p, n)).tolist()


@kind("half the noise in hexadecimal digits", runs=4_000)
def _(world, n, rng, broken):
    return [f"session {each:x} ended" for each in count_finely(world, n, rng, broken)]


@kind("half the noise in digits that were reversed", runs=4_000)
def _(world, n, rng, broken):
    return [f"ref {each}"[::-1] for each in count_finely(world, n, rng, broken)]


@kind("half the noise in base64", runs=4_000)
def _(world, n, rng, broken):
    told = [json.dumps({"n": each}).encode() for each in count_finely(world, n, rng, broken)]
    return [f"token={base64.b64encode(each).decode()}" for each in told]
