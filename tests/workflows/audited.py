"""Functions that the audit workflow names: mechanisms of a world, neighbors for a number, scores of canaries."""

import sys
import time

import numpy as np

GENERATOR = np.random.default_rng(5)


def _noise(scale, runs):
    p = 1 - np.exp(-1 / scale)
    return GENERATOR.geometric(p, runs) - GENERATOR.geometric(p, runs)


def noisy_length(world, runs):
    return len(world) + _noise(1, runs)


def noisy_length_five_times(world, runs=5):
    """So many outputs, five where nobody says."""
    return list(noisy_length(world, runs))


REMEMBERED = {}


def remember_length(world):
    """The first answer about a world, each time."""
    return REMEMBERED.setdefault(str(world), float(noisy_length(world, 1)[0] + 0.5 * len(world)))


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


def fail_in_one_world(world):
    if world:
        raise ValueError
    return 1


def fail_many_in_one_world(world, runs):
    if world:
        raise ValueError
    return [1] * runs


def tell_by_failing(world):
    """Three runs in ten fail in both worlds, in other words."""
    if GENERATOR.random() < 0.3:
        raise ValueError("rows" if world else "columns")
    return 1


def count_wrongly(world, runs):
    return [1] * (runs + world)


def fail_now_and_then(world, runs):
    """A batch of many fails in one world and not in the other, by chance; single runs fail alike."""
    if (world and runs > 1) or GENERATOR.random() < 0.05:
        raise ValueError
    return [1] * runs


def give_other_types(world, runs):
    """One output in a thousand is no whole number; an array of many then has another type."""
    return np.array([0.5, *[1] * (runs - 1)] if world and runs > 1 else [1] * runs)


def give_nothing(world, runs):
    return [[] for _ in range(runs)]


def give_empty_array(world, runs):
    return np.empty((runs, 0))


def score_in_words(inside):
    return ["in" if each else "out" for each in inside]


def fail_to_score(inside):
    raise ValueError


def needs_a_list(world, runs):
    return [len(world)] * runs


def no_pair(number):
    return number


def cut_the_world(world):
    """The exact length; later runs would find the same two rows, were they given the same list."""
    length = len(world)
    del world[2:]
    return length


def cut_the_world_many(world, runs):
    found = [len(world)] * runs
    del world[2:]
    return found


SHARED = [0]
SHARED_ARRAY = np.zeros(400)


def fill_the_same_list(world):
    SHARED[0] = len(world)
    return SHARED


def fill_the_same_array(world, runs):
    SHARED_ARRAY[:] = len(world)
    return SHARED_ARRAY[:runs]


def exit_in_one_world(world):
    if len(world) == 3:
        sys.exit(0)
    return 1


def exit_by_world(world):
    sys.exit(len(world))


def raise_other_types(world):
    raise ValueError if len(world) == 3 else KeyError


def raise_other_words(world):
    raise ValueError(f"n={len(world)}")


def raise_other_words_many(world, runs):
    raise ValueError(f"n={len(world)}")


def raise_by_chance(world):
    raise ValueError if GENERATOR.random() < 0.5 else KeyError


def forget_canaries(inside):
    """The scores of who was in, and then nobody was."""
    scores = inside.astype(float)
    inside[:] = False
    return scores


def exit_scoring(inside):
    sys.exit(0)
