"""The scoreboard's inner loops: ratings sorted by item, every record scored against every target's facts."""

from __future__ import annotations

import numba as nb
import numpy as np

RATING_SCALE, DAY_SCALE = 1.5, 30.0  # as published by Narayanan and Shmatikov


@nb.njit(cache=True, nogil=True)
def by_item(item, starts):  # type: ignore[no-untyped-def]
    """Places in the order of items (counting sort: a hundred million ratings need no comparison)."""
    free = starts[:-1].copy()
    order = np.empty(len(item), np.int64)
    for i in range(len(item)):
        order[free[item[i]]] = i
        free[item[i]] += 1
    return order


@nb.njit(cache=True, nogil=True)
def score(  # type: ignore[no-untyped-def]
    starts, person, rating, day, weight,
    target, item, stars, when,
    days, reach, needed,
    scores, hits, best, lead, absent,
):  # fmt: skip
    """Fill best, lead and absent for each target; `scores` and `hits` are working space of one number a person."""
    people = len(scores)
    for t in range(len(target)):
        scores[:] = 0.0
        hits[:] = 0
        for f in range(item.shape[1]):
            if item[t, f] < 0:
                continue
            for p in range(starts[item[t, f]], starts[item[t, f] + 1]):
                apart = abs(rating[p] - stars[t, f])
                if apart > reach:
                    continue
                gain = np.exp(-apart / RATING_SCALE)
                if days >= 0:
                    distance = abs(day[p] - when[t, f])
                    if distance > days:
                        continue
                    gain += np.exp(-distance / DAY_SCALE)
                scores[person[p]] += weight[item[t, f]] * gain
                hits[person[p]] += 1
        deviation = scores.std()
        if deviation == 0:
            continue
        first, second, third = -1, -1, -1
        for p in range(people):
            if hits[p] < needed:
                continue
            if first < 0 or scores[p] > scores[first]:
                first, second, third = p, first, second
            elif second < 0 or scores[p] > scores[second]:
                second, third = p, second
            elif third < 0 or scores[p] > scores[third]:
                third = p
        best[t] = first
        if first >= 0:
            lead[t] = (scores[first] - (scores[second] if second >= 0 else 0.0)) / deviation
        up, down = first, second
        if first == target[t]:
            up, down = second, third
        elif second == target[t]:
            down = third
        if up >= 0:
            absent[t] = (scores[up] - (scores[down] if down >= 0 else 0.0)) / deviation
