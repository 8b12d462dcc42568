"""MST and AIM as private-pgm has them, on its library `mbi` 2; run by bench/synth.py in an environment of its own.

    python _private_pgm.py mst|aim coded.csv domain.json made.csv RHO

The mechanisms are scripts of its repository and not of its package; they are written here over the package's own
estimation, with the settings of those scripts (MST: 2,500 and 10,000 iterations; AIM: 1,000 a round, 80 MB). Writes the
synthetic table, and prints one line of JSON: the CPU seconds.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")
MOST_MAPS = 40_000
"""Of the 65,530 that a process may have; a run on 15 columns ended with "Cannot allocate memory" in LLVM."""


def main(which: str, real: str, sizes: str, made: str, rho: str) -> None:
    """Learn and draw as many rows as there are."""
    from mbi import Dataset, Domain

    table = np.loadtxt(real, delimiter=",", skiprows=1, dtype=np.int64)
    domain = Domain.fromdict(json.loads(Path(sizes).read_text()))
    data = Dataset({name: table[:, place] for place, name in enumerate(domain.attributes)}, domain)
    before = _seconds()
    drawn = {"mst": mst, "aim": aim}[which](data, float(rho))
    taken = _seconds() - before
    columns = [drawn.to_dict()[name] for name in domain.attributes]
    np.savetxt(
        made, np.stack(columns, axis=1), fmt="%d", delimiter=",", header=",".join(domain.attributes), comments=""
    )
    print(json.dumps({"seconds": taken}))


def mst(data, rho):
    """A tree of pairs, after rare values of each column are joined; a third of rho for each of three steps."""
    sigma = np.sqrt(3 / (2 * rho))
    single = measure(data, [(name,) for name in data.domain.attributes], sigma)
    joined = {}
    for one in single:
        kept = np.asarray(one.noisy_measurement) >= 3 * one.stddev
        if not kept.all():
            joined[one.clique[0]] = np.where(kept, np.cumsum(kept) - 1, kept.sum())
    small = data.compress(joined)
    single = [one.compress(joined, data.domain) for one in single]
    pairs = choose_tree(small, rho / 3, estimate(small.domain, single, 2_500))
    model = estimate(small.domain, single + measure(small, pairs, sigma), 10_000)
    return model.synthetic_data(rows=data.records).decompress(joined)


def choose_tree(data, rho, model):
    """Edges of a spanning tree, each by the exponential mechanism on the error of its pair."""
    candidates = list(itertools.combinations(data.domain.attributes, 2))
    scores = {e: float(np.abs(counts(data, e) - counts(model, e)).sum()) for e in candidates}
    part = {name: name for name in data.domain.attributes}
    epsilon, edges = np.sqrt(8 * rho / (len(part) - 1)), []
    while len(edges) < len(part) - 1:
        apart = [e for e in candidates if part[e[0]] != part[e[1]]]
        edges.append(choose([scores[e] for e in apart], apart, epsilon, 1.0))
        old, new = (part[name] for name in edges[-1])
        part = {name: new if where == old else where for name, where in part.items()}
    return edges


def aim(data, rho, megabytes=80, iterations=1_000):
    """Rounds that measure the worst pair so far, and halve the noise when a round has taught nothing."""
    from mbi import junction_tree

    names = data.domain.attributes
    pairs = [pair for pair in itertools.combinations(names, 2) if data.domain.size(pair) <= 10_000]
    cliques = [*((name,) for name in names), *pairs]
    weights = {c: float(sum(len(set(c) & set(pair)) for pair in pairs)) for c in cliques}
    answers, rounds = {c: counts(data, c) for c in cliques}, 16 * len(names)
    sigma, epsilon = np.sqrt(rounds / (1.8 * rho)), np.sqrt(0.8 * rho / rounds)
    measured = [measure_one(answers[(name,)], (name,), sigma) for name in names]
    used, last = len(names) * 0.5 / sigma**2, False
    model = estimate(data.domain, measured, iterations)
    while not last:
        if rho - used < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon, last = np.sqrt(1 / (1.8 * (rho - used))), np.sqrt(0.8 * (rho - used)), True
        used += epsilon**2 / 8 + 0.5 / sigma**2
        have = [one.clique for one in measured]
        inside = {part for c in have for size in (1, 2) for part in itertools.combinations(c, size)}
        limit = megabytes * used / rho
        fits = [c for c in cliques if c in inside
                or junction_tree.hypothetical_model_size(data.domain, [*have, c]) <= limit]  # fmt: skip
        bias = np.sqrt(2 / np.pi) * sigma
        errors = [weights[c] * (np.abs(answers[c] - counts(model, c)).sum() - bias * answers[c].size) for c in fits]
        chosen = choose(errors, fits, epsilon, max(weights[c] for c in fits))
        earlier = counts(model, chosen)
        measured.append(measure_one(answers[chosen], chosen, sigma))
        drop_compiled()
        model = estimate(data.domain, measured, iterations, warm_start=model)
        if np.abs(counts(model, chosen) - earlier).sum() <= bias * earlier.size:
            sigma, epsilon = sigma / 2, epsilon * 2
    return model.synthetic_data(rows=data.records)


def drop_compiled():
    """Let go of what JAX compiled for earlier rounds, before the process has as many memory maps as Linux allows."""
    import jax

    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


def estimate(domain, measured, iterations, **more):
    """Mirror descent, as both scripts do."""
    from mbi import estimation

    return estimation.MirrorDescent().estimate(domain, measured, iters=iterations, **more)


def measure(data, cliques, sigma):
    """Counts with Gaussian noise, the budget shared evenly."""
    return [measure_one(counts(data, c), c, sigma * np.sqrt(len(cliques))) for c in cliques]


def measure_one(exact, clique, sigma):
    """One marginal with noise."""
    from mbi import LinearMeasurement

    return LinearMeasurement(exact + np.random.normal(0, sigma, exact.size), clique, float(sigma))


def counts(source, clique):
    """The marginal of a table or of a model."""
    return np.asarray(source.project(clique).datavector(), dtype=np.float64)


def choose(scores, options, epsilon, sensitivity):
    """The exponential mechanism."""
    scaled = 0.5 * epsilon / sensitivity * np.asarray(scores)
    chances = np.exp(scaled - scaled.max())
    return options[np.random.choice(len(options), p=chances / chances.sum())]


def _seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:6])
