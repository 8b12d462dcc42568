"""Combining releases: each may be safe by itself; what an intruder learns who holds several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.base import Outcome, Rate
from deniable.attacks.codes import Codes, dense
from deniable.attacks.linear import determined, solve
from deniable.attacks.linkage import linkage
from deniable.errors import ParameterError

LARGEST = 3_000


@dataclass(frozen=True, eq=False, repr=False)
class Inferred:
    """A guess for each person, and for whom it is exact; `unknown` people were in groups too entangled to solve."""

    value: NDArray[np.float64]
    exact: NDArray[np.bool_]
    unknown: int = 0


def combine_means(releases: Sequence[tuple[Codes, Mapping[int, float]]]) -> Inferred:
    """Infer people's numbers from several releases that publish the mean of each class.

    **Scenario.** Two k-anonymous releases of one table each show the mean of every class, and the intruder knows who is
    in which class of each; success is one person's exact number.
    **Method.** Classes are sums over people; people in the same classes of all releases form an atom. The sums of atoms
    follow by linear algebra, component by component; an atom of one person whose sum is determined is disclosed.
    **Outcome.** A number for each person, and whether it is exact.
    """
    if not releases or len({len(classes) for classes, _ in releases}) != 1:
        raise ParameterError(
            "Releases are not of the same people", expected="One class for each person in each release"
        )
    atom, sizes = _atoms([classes for classes, _ in releases])
    masks, totals = _questions(releases, atom, len(sizes))
    value, exact = np.zeros(len(sizes)), np.zeros(len(sizes), np.bool_)
    unknown = 0
    for atoms, rows in _components(masks):
        if len(atoms) > LARGEST:
            unknown += int(sizes[atoms].sum())
            continue
        part = masks[np.ix_(rows, atoms)]
        # Weighting an atom's column by the root of its size makes the least norm spread a sum evenly over people.
        root = np.sqrt(sizes[atoms])
        value[atoms] = solve(part * root, totals[rows]) * root / sizes[atoms]
        exact[atoms] = determined(part) & (sizes[atoms] == 1)
    return Inferred(value[atom], exact[atom], unknown)


def _atoms(classes: Sequence[Codes]) -> tuple[Codes, NDArray[np.int64]]:
    _, atom, sizes = np.unique(np.column_stack(classes), axis=0, return_inverse=True, return_counts=True)
    return atom.reshape(-1).astype(np.int64), sizes.astype(np.int64)


def _questions(
    releases: Sequence[tuple[Codes, Mapping[int, float]]], atom: Codes, atoms: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    masks, totals = [], []
    for classes, means in releases:
        for one in np.unique(classes):
            inside = classes == one
            mask = np.zeros(atoms, np.bool_)
            mask[atom[inside]] = True
            masks.append(mask)
            totals.append(means[int(one)] * inside.sum())
    return np.array(masks), np.array(totals)


def _components(masks: NDArray[np.bool_]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Atoms and questions that hang together, found by spreading the smallest atom's number until nothing changes."""
    label = np.arange(masks.shape[1])
    while True:
        lowest = np.array([label[mask].min() for mask in masks])
        spread = label.copy()
        for mask, low in zip(masks, lowest, strict=True):
            spread[mask] = np.minimum(spread[mask], low)
        if np.array_equal(spread, label):
            break
        label = spread
    of_question = np.array([label[mask][0] for mask in masks])
    return [(np.flatnonzero(label == one), np.flatnonzero(of_question == one)) for one in np.unique(label)]


def intersect(classes: Sequence[Codes], sensitive: Codes) -> Outcome:
    """Cross the sensitive values that several k-anonymous releases leave for each person.

    **Scenario.** Releases show the sensitive values of every class; the intruder knows each person's class in all of
    them. Success is that one value remains.
    **Method.** A person's value is in the class of each release, so in the intersection of their values.
    **Outcome.** People with one value left; the control is the best single release.
    """
    value = dense(np.asarray(sensitive))
    left = [_values_left([dense(np.asarray(one))], value) for one in classes]
    both = _values_left([dense(np.asarray(one)) for one in classes], value)
    single = max(int((one == 1).sum()) for one in left)
    rows = len(value)
    base = Rate(int(np.bincount(value).max()), rows) if rows else 0.0
    figures = {
        "alone": [int((one == 1).sum()) for one in left],
        "mean_values_left": float(both.mean()) if rows else 0.0,
    }
    return Outcome(
        "combining", "Crossing several releases", Rate(int((both == 1).sum()), rows), base,
        Rate(single, rows), figures=figures,
    )  # fmt: skip


def _values_left(classes: Sequence[Codes], value: Codes) -> NDArray[np.int64]:
    """For every person, in how many values the classes of all releases agree."""
    width = int(value.max(initial=0)) + 1
    shown = [np.unique(one * width + value) for one in classes]
    atom, _ = _atoms(classes)
    _, example = np.unique(atom, return_index=True)
    first = classes[0][example]
    start, stop = np.searchsorted(shown[0], first * width), np.searchsorted(shown[0], (first + 1) * width)
    whose = np.repeat(np.arange(len(first)), stop - start)
    place = np.arange(len(whose)) - np.repeat(np.cumsum(stop - start) - (stop - start), stop - start)
    candidate = shown[0][place + np.repeat(start, stop - start)] % width
    kept = np.ones(len(whose), np.bool_)
    for one, keys in zip(classes[1:], shown[1:], strict=True):
        kept &= np.isin(one[example][whose] * width + candidate, keys)
    return np.asarray(np.bincount(whose[kept], minlength=len(first))[atom], dtype=np.int64)


def join_releases(
    first: pa.Table,
    second: pa.Table,
    shared: Sequence[str],
    *,
    truth: Codes | None = None,
    seed: int = 0,
    seconds: float | None = None,
) -> Outcome:
    """Join two releases of one table on the columns both show, such as a k-anonymous and a masked one.

    **Scenario.** One release hides exact quasi-identifiers, another hides sensitive values; success is a row of the
    first put together with its own row of the second, so that both are known of one person.
    **Method.** Rows that fit exactly one row of the other release, generalized cells included. The control joins the
    second release with every column shuffled by itself: what remains is chance.
    **Outcome.** Rows joined rightly where `truth` gives the row of the second; else rows joined, less those by chance.
    """
    linked = linkage(first, second, shared, truth=truth, seed=seed, seconds=seconds)
    return replace(linked, name="joined releases", scenario="Joining two releases")
