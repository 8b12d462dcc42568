"""A maximum spanning tree of pairs (McKenna, Miklau and Sheldon 2021): the strongest pairs that hold all together."""

from __future__ import annotations

from deniable.synth.choose import Chosen, Problem, spanning_tree
from deniable.synth.once import ChoosesOnce


def tree(problem: Problem) -> Chosen:
    """A spanning tree, every pair with the same share."""
    cliques = spanning_tree(len(problem.domain), problem.pairs, problem.scores)
    shares = tuple(1.0 / len(cliques) for _ in cliques)
    return Chosen(cliques, shares, f"a spanning forest of {len(cliques)} pairs, the strongest that hold together")


mst = ChoosesOnce("mst", columns=1 / 3, scores=0.05, choose=tree)
