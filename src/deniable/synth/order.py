"""In which order cliques are drawn: each next one hangs on one that is drawn already, the strongest first.

Drawing the new columns of a clique given its old ones keeps the clique's table exactly if the old ones stand in one
clique that was kept exactly: then the order has the running intersection property, and the cliques a junction tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from deniable.synth.domain import Clique


def drawing_order(cliques: Collection[Clique], strengths: Mapping[Clique, float]) -> list[Clique]:
    """The cliques that add columns, as Prim would take them: first those that can be drawn exactly, by strength.

    For pairs this is a spanning tree of the largest total strength.

    >>> drawing_order([(0, 1), (0, 2), (1, 2)], {(0, 1): 1.0, (0, 2): 3.0, (1, 2): 2.0})
    [(0, 2), (1, 2)]
    """
    order: list[Clique] = []
    done: set[int] = set()
    while adding := [clique for clique in cliques if not done.issuperset(clique)]:
        best = max(adding, key=lambda clique: (_rank(clique, done, order), strengths[clique]))
        order.append(best)
        done.update(best)
    return order


def _rank(clique: Clique, done: set[int], order: list[Clique]) -> int:
    """2 if it hangs on a drawn clique, 1 if it is loose, 0 if no drawn clique holds together what is known of it."""
    known = done.intersection(clique)
    if not known:
        return 1
    return 2 if any(known.issubset(drawn) for drawn in order) else 0


def not_drawn(cliques: Collection[Clique], order: list[Clique]) -> list[Clique]:
    """The cliques whose tables are not kept by drawing in this order."""
    done: set[int] = set()
    kept: list[Clique] = []
    for clique in order:
        known = done.intersection(clique)
        if len(known) <= 1 or any(known.issubset(drawn) for drawn in kept):
            kept.append(clique)
        done.update(clique)
    return [clique for clique in cliques if not any(set(clique).issubset(drawn) for drawn in kept)]
