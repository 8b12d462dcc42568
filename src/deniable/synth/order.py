"""In which order cliques are drawn: each next one hangs on one that is drawn already, by as many columns as can be.

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
    whole = maximal(cliques)
    while adding := [clique for clique in whole if not done.issuperset(clique)]:
        best = max(adding, key=lambda clique: (_rank(clique, done, order), len(clique), strengths[clique]))
        order.append(best)
        done.update(best)
    return order


def maximal(cliques: Collection[Clique]) -> list[Clique]:
    """The cliques that no other one contains.

    >>> maximal([(0, 1), (0, 1, 2), (2, 3)])
    [(0, 1, 2), (2, 3)]
    """
    sets = [frozenset(clique) for clique in cliques]
    return [clique for clique, own in zip(cliques, sets, strict=True) if not any(own < other for other in sets)]


def _rank(clique: Clique, done: set[int], order: list[Clique]) -> tuple[int, int]:
    """Best where it hangs on a drawn clique, by the most columns; then if it is loose; last if it hangs on several.

    Taking the largest intersections first walks along a junction tree wherever the cliques have one.
    """
    known = done.intersection(clique)
    if not known:
        return 1, 0
    return (2, len(known)) if any(known.issubset(drawn) for drawn in order) else (0, 0)


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
