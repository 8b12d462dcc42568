"""Our audit on networks: sound statistics stay under their claim; no projection, or rungs too narrow, are caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.assess.mechanism_audit import Claim, Subject, audit_subject
from deniable.dp.mechanisms import LadderMechanism
from deniable.graphs.network import Network, make_complete
from deniable.graphs.statistics import (
    EDGE,
    NODE,
    NetworkPlan,
    Shape,
    build_rungs,
    count_exactly,
    count_for_ladder,
    measure,
    plan_network,
)
from seeded import SeededEntropy

EPSILON = Fraction(1)
NODES = 12


def make_star() -> tuple[Network, Network]:
    """One node that all others are joined to, and nothing else; and the network without it."""
    empty, keys = np.zeros(0, np.int64), np.arange(NODES, dtype=np.uint64)
    ends = np.arange(NODES - 1)
    star = Network(NODES, ends, np.full(NODES - 1, NODES - 1), keys, np.zeros(NODES, np.int64))
    return star, Network(NODES - 1, empty, empty, keys[:-1], np.zeros(NODES - 1, np.int64))


def count_without_projection(name: str, plan: NetworkPlan, network: Network, entropy: Any) -> Any:
    """The broken twin: noise for a bounded node, on the counts of all edges."""
    noise = plan.mechanism(plan.parts[0])
    return noise.release(count_exactly(name, replace(plan, bound=NODES), network)[: plan.bound], entropy)  # type: ignore[call-arg,arg-type]


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "without a projection"])
@pytest.mark.parametrize("name", ["edges", "degrees"])
def test_a_node_that_is_not_bounded_is_caught(name: str, broken: bool) -> None:
    plan, entropy = plan_network(name, Shape(NODE, listed=True), EPSILON, 2), SeededEntropy(4)

    def run(network: Network, runs: int) -> Any:
        if broken:
            return np.array([count_without_projection(name, plan, network, entropy) for _ in range(runs)])
        return np.array([measure(plan, network, entropy)[name] for _ in range(runs)])

    found = audit_subject(Subject("a network", run, (make_star(),)), Claim("network", EPSILON, runs=1_500))
    assert found.failed is broken, found.audit["sentence"]


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "rungs of one edge"])
def test_a_sum_of_products_whose_rungs_forget_the_neighbors_is_caught(broken: bool) -> None:
    """All of twelve nodes are joined: an edge moves the degrees that 22 other edges are counted by."""
    epsilon, entropy = Fraction(3, 2), SeededEntropy(8)
    plan = plan_network("degree assortativity", Shape(EDGE), epsilon, None)
    whole, made = make_complete(NODES), LadderMechanism(epsilon)
    pair = (whole, whole.keep(np.arange(whole.size) > 0))

    def run(network: Network, runs: int) -> Any:
        value = count_for_ladder("products", plan, network)
        mine = [NODES] * made.rungs if broken else build_rungs("products", plan, network, made.rungs)
        return np.array([[made.release(value, mine, entropy)] for _ in range(runs)])

    found = audit_subject(Subject("products", run, (pair,)), Claim("network", epsilon, runs=400))
    assert found.failed is broken, found.audit["sentence"]


@pytest.mark.parametrize("broken", [False, True], ids=["sound", "rungs of one triangle"])
def test_rungs_that_are_too_narrow_are_caught(broken: bool) -> None:
    """All of twelve nodes are joined, so that one edge is in ten triangles; the twin takes it to be in one."""
    epsilon, entropy = Fraction(3, 2), SeededEntropy(6)
    plan = plan_network("triangles", Shape(EDGE), epsilon, None)
    whole, made = make_complete(NODES), LadderMechanism(epsilon)
    pair = (whole, whole.keep(np.arange(whole.size) > 0))

    def run(network: Network, runs: int) -> Any:
        value = count_for_ladder("triangles", plan, network)
        mine = [1] * made.rungs if broken else build_rungs("triangles", plan, network, made.rungs)
        return np.array([[made.release(value, mine, entropy)] for _ in range(runs)])

    found = audit_subject(Subject("triangles", run, (pair,)), Claim("network", epsilon, runs=400))
    assert found.failed is broken, found.audit["sentence"]
