"""Which grouping sets to measure how well: shares of one budget that make the error of a whole workload least.

A tree (nation, state, county) or a set of margins (age by sex, sex by ward) is asked as grouping sets, each measured
with noise of its own, and then fitted so that all of them agree. The error after fitting has a closed form in the
variances of the sets, so the best shares are found before any data is read: the matrix mechanism (Li et al. 2010)
restricted to weighted grouping sets, as HDMM (McKenna et al. 2018) and the residual planner (Xiao et al. 2023) do.

**Tree.** For a regular tree with fan-out f and measurement variances v, best estimates are combined from the leaves up
(inverse variances add) and corrected from the top down; `predict_tree_variances` follows Hay et al. 2010 with weights.

**Margins.** The space of tables splits into orthogonal parts, one for each set A of columns (the interactions of A). A
margin over S with variance v carries information (product of the sizes not in S) / v about every A inside S; the
variance of a margin T after fitting adds up over the A inside T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

Margin = tuple[int, ...]
"""The places of the columns of a margin."""
ROUNDS = 200
FINENESS = 10_000
LEAST_SHARE = 0.002
"""Every grouping set is measured with at least this part of the budget, so that none is lost to a poor model."""


def predict_tree_variances(sizes: Sequence[int], measured: Sequence[float]) -> list[float]:
    """The variance of one cell of each level after fitting a regular tree, from the measured variances."""
    fans = [sizes[i + 1] / sizes[i] for i in range(len(sizes) - 1)]
    upward = [float(measured[-1])]
    for level in range(len(sizes) - 2, -1, -1):
        upward.insert(0, 1 / (1 / measured[level] + 1 / (fans[level] * upward[0])))
    fitted = [upward[0]]
    for level, fan in enumerate(fans):
        alone = upward[level + 1]
        fitted.append(alone - alone / fan + fitted[-1] / fan**2)
    return fitted


def predict_margin_variances(sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[float]) -> list[float]:
    """The variance of one cell of each margin after fitting all of them together."""
    parts = {part for margin in margins for part in list_subsets(margin)}
    known = compute_information(sizes, margins, measured, parts)
    found = []
    for margin in margins:
        rest, cells = math.prod(_other_sizes(sizes, margin)), math.prod(sizes[i] for i in margin)
        total = sum(_degrees_of_freedom(sizes, part) * rest / known[part] for part in list_subsets(margin))
        found.append(total / cells)
    return found


def compute_information(
    sizes: Sequence[int], margins: Sequence[Margin], measured: Sequence[float], parts: set[Margin]
) -> dict[Margin, float]:
    """How much all measured margins together say about each interaction."""
    return {
        part: sum(
            math.prod(_other_sizes(sizes, margin)) / variance
            for margin, variance in zip(margins, measured, strict=True)
            if set(part) <= set(margin)
        )
        for part in parts
    }


def list_subsets(margin: Margin) -> list[Margin]:
    """All sets of columns inside a margin, with the empty one and itself."""
    return [part for count in range(len(margin) + 1) for part in combinations(margin, count)]


def _other_sizes(sizes: Sequence[int], margin: Margin) -> list[int]:
    return [size for i, size in enumerate(sizes) if i not in margin]


def _degrees_of_freedom(sizes: Sequence[int], part: Margin) -> int:
    return math.prod(sizes[i] - 1 for i in part)


def find_best_shares(
    fitted: Callable[[Sequence[float]], Sequence[float]],
    sensitivities: Sequence[float],
    importance: Sequence[float],
    *,
    gaussian: bool,
) -> tuple[Fraction, ...]:
    """Shares of the budget, one for each grouping set, that make the weighted mean variance after fitting least.

    `fitted` maps measured variances to fitted ones; `sensitivities` are L1 norms, or L2 norms for Gaussian noise, whose
    variance falls with the share where Laplace noise's falls with its square. Found by exponentiated gradient descent
    with step halving; a poor optimum costs accuracy, never privacy.
    """
    power = 1 if gaussian else 2
    count = len(sensitivities)

    def error(shares: Sequence[float]) -> float:
        measured = [s * s / share**power for s, share in zip(sensitivities, shares, strict=True)]
        return math.log(sum(w * v for w, v in zip(importance, fitted(measured), strict=True)))

    shares, step = [1 / count] * count, 1.0
    now = error(shares)
    for _ in range(ROUNDS):
        slope = _estimate_slope(error, shares, now)
        trial = _normalize([share * math.exp(-step * g) for share, g in zip(shares, slope, strict=True)])
        then = error(trial)
        if then < now:
            shares, now, step = trial, then, step * 1.5
        elif (step := step / 2) < 1e-9:
            break
    return _round_shares(shares)


def _estimate_slope(error: Callable[[Sequence[float]], float], shares: Sequence[float], now: float) -> list[float]:
    """The derivative along the logarithm of each share, the others giving way in proportion."""
    hair = 1e-5
    return [
        (error(_normalize([s * (1 + hair) if i == j else s for j, s in enumerate(shares)])) - now) / hair
        for i in range(len(shares))
    ]


def _normalize(shares: Sequence[float]) -> list[float]:
    kept = [max(share, LEAST_SHARE * sum(shares)) for share in shares]
    return [share / sum(kept) for share in kept]


def _round_shares(shares: Sequence[float]) -> tuple[Fraction, ...]:
    whole = [max(1, round(share * FINENESS)) for share in shares]
    return tuple(Fraction(part, sum(whole)) for part in whole)
