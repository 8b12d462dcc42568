"""Functions that the audit workflow names: mechanisms of a world, neighbors for a number, scores of canaries."""

import time

import numpy as np

GENERATOR = np.random.default_rng(5)


def _noise(scale, runs):
    p = 1 - np.exp(-1 / scale)
    return GENERATOR.geometric(p, runs) - GENERATOR.geometric(p, runs)


def noisy_length(world, runs):
    return len(world) + _noise(1, runs)


def noisy_sum(world):
    return {"sum": int(sum(world) + _noise(1, 1)[0]), "of": "values"}


def lose_one(number):
    world = [1, 1, 1, 30 if number == 3 else 1]
    return world, world[:-1]


def slow_length(world):
    end = time.process_time() + 0.0004 * len(world)
    while time.process_time() < end:
        pass
    return int(noisy_length([], 1)[0])


def score_canaries(inside):
    return inside + 0.1 * _noise(1, len(inside))


def one_number(world, runs):
    return world


NOT_A_FUNCTION = 3


def show_canaries(inside):
    """Who was in, as it is."""
    return inside.astype(float)


def fail_for_one(world):
    """Nothing but that it fails for one world, three times in ten."""
    if world and GENERATOR.random() < 0.3:
        raise ValueError
    return 1


def always_fail(world):
    return world / 0
