"""Kernels over classes: grouping tuples by their generalized key, summing histograms, comparing distributions.

Grouping is the inner loop of every check. A tuple's key is the sum of one table entry for each column: the entry holds
the column's generalized group times the stride of its place, so that different tuples of groups have different sums.
Keys that do not fit 64 bits are spread over several words, each exact by itself; hashing decides only where to look,
never whether two keys are equal."""

from __future__ import annotations

import numba as nb
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads sums that differ in few bits


@nb.njit(cache=True, nogil=True)
def group_one(codes, first, entries, keys, slots, epochs, epoch, group_of, sample):  # type: ignore[no-untyped-def]
    """Number the groups of tuples whose keys fit one word; returns how many there are.

    `slots` and `keys` are a hash table that is emptied by raising `epoch`. `group_of[i]` becomes the group of tuple i
    and `sample[g]` one tuple of group g.
    """
    count, width = codes.shape
    size = 64
    while size < 2 * count:
        size *= 2
    mask = np.uint64(size - 1)
    groups = 0
    for i in range(count):
        key = np.uint64(0)
        for q in range(width):
            key += entries[0, first[q] + codes[i, q]]
        place = ((key * GOLDEN) >> np.uint64(20)) & mask
        while True:
            if epochs[place] != epoch:
                epochs[place] = epoch
                keys[place, 0] = key
                slots[place] = groups
                sample[groups] = i
                group_of[i] = groups
                groups += 1
                break
            if keys[place, 0] == key:
                group_of[i] = slots[place]
                break
            place = (place + np.uint64(1)) & mask
    return groups


@nb.njit(cache=True, nogil=True)
def group_many(codes, first, entries, keys, slots, epochs, epoch, group_of, sample):  # type: ignore[no-untyped-def]
    """As `group_one`, for keys of several words; all words are compared."""
    count, width = codes.shape
    words = entries.shape[0]
    size = 64
    while size < 2 * count:
        size *= 2
    mask = np.uint64(size - 1)
    key = np.zeros(words, np.uint64)
    groups = 0
    for i in range(count):
        mixed = np.uint64(0)
        for w in range(words):
            total = np.uint64(0)
            for q in range(width):
                total += entries[w, first[q] + codes[i, q]]
            key[w] = total
            mixed = (mixed ^ total) * GOLDEN
        place = (mixed >> np.uint64(20)) & mask
        while True:
            if epochs[place] != epoch:
                epochs[place] = epoch
                for w in range(words):
                    keys[place, w] = key[w]
                slots[place] = groups
                sample[groups] = i
                group_of[i] = groups
                groups += 1
                break
            same = True
            for w in range(words):
                if keys[place, w] != key[w]:
                    same = False
                    break
            if same:
                group_of[i] = slots[place]
                break
            place = (place + np.uint64(1)) & mask
    return groups


@nb.njit(cache=True, nogil=True)
def sum_groups(group_of, amounts, groups):  # type: ignore[no-untyped-def]
    """The sum of the amounts in every group."""
    out = np.zeros(groups, np.int64)
    for i in range(group_of.shape[0]):
        out[group_of[i]] += amounts[i]
    return out


@nb.njit(cache=True, nogil=True)
def merge_histograms(group_of, groups, starts, values, counts, size):  # type: ignore[no-untyped-def]
    """Histograms of tuples added up to histograms of groups, each as a run of (value, count).

    Tuples are visited group by group (a counting sort), so that one scratch array of `size` values serves all.
    """
    tuples = group_of.shape[0]
    begin = np.zeros(groups + 1, np.int64)
    for i in range(tuples):
        begin[group_of[i] + 1] += 1
    for g in range(groups):
        begin[g + 1] += begin[g]
    cursor = begin[:groups].copy()
    order = np.empty(tuples, np.int32)
    for i in range(tuples):
        order[cursor[group_of[i]]] = i
        cursor[group_of[i]] += 1
    slot = np.full(size, -1, np.int64)
    out_starts = np.zeros(groups + 1, np.int64)
    out_values = np.empty(values.shape[0], np.int32)
    out_counts = np.empty(values.shape[0], np.int64)
    used = 0
    for g in range(groups):
        out_starts[g] = used
        for j in range(begin[g], begin[g + 1]):
            t = order[j]
            for e in range(starts[t], starts[t + 1]):
                value = values[e]
                if slot[value] < out_starts[g]:
                    slot[value] = used
                    out_values[used] = value
                    out_counts[used] = counts[e]
                    used += 1
                else:
                    out_counts[slot[value]] += counts[e]
    out_starts[groups] = used
    return out_starts, out_values[:used].copy(), out_counts[:used].copy()


@nb.njit(cache=True, nogil=True)
def measure_along_tree(starts, values, counts, sizes, groups, shares, steps):  # type: ignore[no-untyped-def]
    """Earth mover's distance of every class when moving between two values costs the height of their lowest ancestor.

    On a tree with `steps` equal steps from leaf to root, mass leaves each group of each level through one edge of
    weight 1/(2 steps), so the distance is the mean over levels of the positive part of the differences.
    """
    levels, size = groups.shape
    held = np.zeros(size, np.float64)
    out = np.zeros(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        total = 0.0
        for level in range(levels):
            for e in range(starts[c], starts[c + 1]):
                held[groups[level, values[e]]] += counts[e] / sizes[c]
            for e in range(starts[c], starts[c + 1]):
                g = groups[level, values[e]]
                if held[g] > shares[level, g]:
                    total += held[g] - shares[level, g]
                held[g] = 0.0
        out[c] = total / steps
    return out


@nb.njit(cache=True, nogil=True)
def measure_along_order(starts, values, counts, sizes, shares):  # type: ignore[no-untyped-def]
    """Earth mover's distance of every class when values are equally spaced in their order.

    Between two neighbors flows the difference of the cumulative shares.
    """
    size = shares.shape[0]
    held = np.zeros(size, np.float64)
    out = np.zeros(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        for e in range(starts[c], starts[c + 1]):
            held[values[e]] += counts[e] / sizes[c]
        flow, total = 0.0, 0.0
        for v in range(size):
            flow += held[v] - shares[v]
            total += abs(flow)
        for e in range(starts[c], starts[c + 1]):
            held[values[e]] = 0.0
        out[c] = total / (size - 1) if size > 1 else 0.0
    return out


@nb.njit(cache=True, nogil=True)
def measure_tails(starts, counts, rank):  # type: ignore[no-untyped-def]
    """For every class the most frequent value's count over the sum of all from the `rank`-th most frequent on."""
    out = np.empty(starts.shape[0] - 1, np.float64)
    for c in range(out.shape[0]):
        descending = -np.sort(-counts[starts[c] : starts[c + 1]])
        tail = 0
        for i in range(rank - 1, descending.shape[0]):
            tail += descending[i]
        out[c] = descending[0] / tail if tail > 0 else np.inf
    return out
