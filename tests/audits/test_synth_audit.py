"""The whole description is audited on neighbors: the claim holds, and broken twins are caught."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.attacks.dp_audit import audit
from deniable.policy.budget import ApproxDP
from deniable.synth.domain import Areas, Domain
from deniable.synth.marginal import GaussianBudget, convert_budget
from deniable.synth.methods import METHODS, run_method

DOMAIN = Domain(("a", "b"), (2, 2))
RUNS = 1000
ACCUSED = pytest.mark.statistical(false_alarm=1e-3)
"""An audit accuses a sound method with probability one less its confidence of 0.999 at most."""


def _with() -> np.ndarray:
    return np.zeros((2, 1), dtype=np.int32)


def _without() -> np.ndarray:
    return np.zeros((2, 0), dtype=np.int32)


def _statistic(codes: np.ndarray, method: str, spend: GaussianBudget) -> float:
    """What an intruder looks at: everything that was measured of the cell where the one record may be."""
    description = run_method(codes, DOMAIN, METHODS[method], spend, areas=Areas(0, (np.arange(2),)))
    if not description.one_way:
        return 0.0
    told = [m.counts.ravel()[0] / m.variance for m in (*description.one_way, *description.cliques)]
    return float(sum(told) * np.sqrt(description.one_way[0].variance))


@ACCUSED
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("mwem", "hierarchical", "auto"))) for name in METHODS],
)
def test_a_description_stays_under_its_claim(method: str) -> None:
    spend = convert_budget(ApproxDP(1, 1e-5), 1)
    found = audit(
        lambda runs: [_statistic(_without(), method, spend) for _ in range(runs)],
        lambda runs: [_statistic(_with(), method, spend) for _ in range(runs)],
        epsilon=1,
        delta=1e-5,
        runs=RUNS,
    )
    assert not found.violated


def test_a_description_that_spends_ten_times_its_budget_is_caught() -> None:
    honest = convert_budget(ApproxDP(1, 1e-5), 1)
    twin = GaussianBudget(honest.amount * 100, 1, smoothed=False)
    found = audit(
        lambda runs: [_statistic(_without(), "mst", twin) for _ in range(runs)],
        lambda runs: [_statistic(_with(), "mst", twin) for _ in range(runs)],
        epsilon=1,
        delta=1e-5,
        runs=RUNS,
    )
    assert found.violated
