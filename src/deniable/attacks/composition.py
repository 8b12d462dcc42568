"""Composition attacks: what an intruder learns who holds several releases of the same people.

A k-anonymous release leaves the values of a class, a masked one those of the rows that fit, a differentially private
synthetic one only a likelihood. Each may leave enough; crossed, subtracted or joined they may leave one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import Codes, deduplicate_columns, encode_column, require_column
from deniable.attacks.generalized_cells import find_containing
from deniable.attacks.linkage import link_register
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.solvers import find_determined, solve_least_squares
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
        value[atoms] = solve_least_squares(part * root, totals[rows]) * root / sizes[atoms]
        exact[atoms] = find_determined(part) & (sizes[atoms] == 1)
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
    linked = link_register(first, second, shared, truth=truth, seed=seed, seconds=seconds)
    return replace(linked, name="joined releases", scenario="Joining two releases")


BLOCK = 128
Values = NDArray[np.int64]
Weights = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ShownRelease:
    """One release to be crossed. A `noisy` one (synthetic, or with noise) may lack what is true, and rules nothing out.

    `columns` are those of the intruder's knowledge that this release shows.
    """

    table: pa.Table
    columns: tuple[str, ...]
    noisy: bool = False


def prepare_releases(
    tables: Sequence[pa.Table], knows: Sequence[str], noisy: Sequence[bool] = ()
) -> tuple[ShownRelease, ...]:
    """The releases with what each shows of what the intruder knows; each must show something."""
    flags = [*noisy, *[False] * (len(tables) - len(noisy))]
    made = [
        ShownRelease(table, tuple(name for name in deduplicate_columns(knows) if name in table.column_names), flag)
        for table, flag in zip(tables, flags, strict=True)
    ]
    if len(made) < 2 or not all(one.columns for one in made):
        raise ParameterError(
            "Releases cannot be crossed", expected="Two or more, each with a column the intruder knows"
        )
    return tuple(made)


def cross_releases(
    releases: Sequence[ShownRelease],
    targets: pa.Table,
    sensitive: str,
    *,
    scored: bool = True,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[Outcome, ...]:
    """Cross what several releases tell of the same people.

    **Scenario.** The intruder knows some columns of each target and that the target is in all releases; success is the
    sensitive value. `scored` says that `targets` holds the true values.
    **Method.** In each release, the values of all rows that fit the target. First, values that every exact release has
    are crossed: one left is certain. Second, the shares of values are multiplied and divided by the prior (releases are
    taken as independent given the value); a noisy release counts with one more row drawn from the prior, so that it
    rules nothing out.
    **Outcome.** Targets with one value left (rightly), and targets guessed rightly; the control is the best release by
    itself, in either sense.
    """
    parts = [require_column(one.table, sensitive) for one in releases]
    whole = encode_column([*parts, *([require_column(targets, sensitive)] if scored else [])], missing=True)
    codes = np.split(whole, np.cumsum([len(part) for part in parts]))
    seen = np.concatenate(codes[: len(releases)])
    prior = np.asarray(np.bincount(seen, minlength=int(whole.max(initial=0)) + 1) + 0.5, np.float64)
    count, deadline = targets.num_rows, Deadline(seconds)
    left, guess = np.zeros((len(releases) + 1, count), np.int64), np.full((len(releases) + 1, count), -1, np.int64)
    for start in range(0, count, BLOCK):
        deadline.check()
        part = targets.slice(start, BLOCK)
        told = [_candidates(shown, part, mine) for shown, mine in zip(releases, codes, strict=False)]
        for row in range(part.num_rows):
            beliefs = [tell_of[row] for tell_of in told]
            _conclude(beliefs, releases, prior / prior.sum(), left[:, start + row], guess[:, start + row])
        tell(progress, (start + part.num_rows) / count)
    return _outcomes(left, guess, codes[-1] if scored else None, prior, len(releases))


def _candidates(shown: ShownRelease, targets: pa.Table, codes: Values) -> list[tuple[Values, Weights]]:
    """For each target the values of the rows that fit, and how often each occurs."""
    of_row, within = find_containing(shown.table, targets, shown.columns)
    order = np.argsort(of_row, kind="stable")
    starts = np.searchsorted(of_row[order], np.arange(len(within) + 1))
    found = []
    for target in range(targets.num_rows):
        fits = np.flatnonzero(within[:, target])
        rows = [order[starts[c] : starts[c + 1]] for c in fits]
        values, times = np.unique(codes[np.concatenate(rows)] if rows else codes[:0], return_counts=True)
        found.append((values, times.astype(np.float64)))
    return found


def _conclude(
    beliefs: Sequence[tuple[Values, Weights]],
    releases: Sequence[ShownRelease],
    prior: Weights,
    left: Values,
    guess: Values,
) -> None:
    """How many values each release leaves and which is likeliest; in the last place, all of them together."""
    log = np.log(prior)
    together, possible = -log * (len(beliefs) - 1), np.ones(len(prior), np.bool_)
    for place, ((values, times), shown) in enumerate(zip(beliefs, releases, strict=True)):
        share = prior.copy() if shown.noisy or not len(values) else np.zeros(len(prior))
        share[values] += times
        with np.errstate(divide="ignore"):
            belief = np.log(share / share.sum())
        together = together + belief
        left[place], guess[place] = len(values) if not shown.noisy else len(prior), int(np.argmax(belief))
        if not shown.noisy and len(values):
            possible &= np.isin(np.arange(len(prior)), values)
    left[-1] = int(possible.sum())
    # Releases that contradict each other (a person missing from one) leave nothing: then no claim is made.
    guess[-1] = int(np.argmax(together)) if possible.any() else -1


def _outcomes(left: Values, guess: Values, truth: Values | None, prior: Weights, many: int) -> tuple[Outcome, ...]:
    certain = left == 1
    right = certain if truth is None else certain & (guess == truth)
    alone = int(right[:-1].sum(axis=1).max(initial=0))
    count = left.shape[1]
    base = float(prior.max() / prior.sum()) if truth is None else _commonest(truth)
    precision = None if truth is None else Rate(int(right[-1].sum()), int(certain[-1].sum()))
    warned = () if truth is not None else ("no original rows to check against: certain people are counted as they are",)
    figures = {"releases": many, "mean_values_left": float(left[-1].mean()) if count else 0.0}
    crossed = Outcome("crossed releases", f"Crossing {many} releases", Rate(int(right[-1].sum()), count), base,
                      Rate(alone, count), precision, figures, warned, int(certain[-1].sum()))  # fmt: skip
    if truth is None:
        return (crossed,)
    hits = (guess == truth).sum(axis=1)
    guessed = Outcome("guessed from releases", f"Guessing from {many} releases together", Rate(int(hits[-1]), count),
                      base, Rate(int(hits[:-1].max()), count), figures={"releases": many})  # fmt: skip
    return crossed, guessed


def _commonest(truth: Values) -> float:
    return float(np.bincount(truth).max() / len(truth)) if len(truth) else 0.0


def publishes_means(releases: Sequence[ShownRelease], sensitive: str) -> bool:
    """Whether every release shows one number for each class, which is then its mean."""
    return all(
        pa.types.is_floating(one.table[sensitive].type) and _is_constant(one, sensitive)
        for one in releases
        if sensitive in one.table.column_names
    )


def _is_constant(shown: ShownRelease, sensitive: str) -> bool:
    columns = list(shown.columns)
    apart = shown.table.group_by([*columns, sensitive]).aggregate([]).num_rows
    classes = shown.table.group_by(columns).aggregate([]).num_rows
    return bool(apart == classes < shown.table.num_rows)


def subtract_means(
    releases: Sequence[ShownRelease], people: pa.Table, sensitive: str, *, within: float = 0.005
) -> Outcome:
    """Subtract class means of several releases from each other.

    **Scenario.** Each release shows the mean of every class, such as a microaggregated table; the intruder knows who is
    in the table (`people`, all of them) and so in which class. Success is one person's number.
    **Method.** A class mean times its size is a sum over people; sums of several releases are solved together.
    **Outcome.** People whose number is exact; the control is the best release by itself. Figures name their positions.
    """
    told = [_find_classes(one, people, sensitive) for one in releases]
    found = combine_means(told)
    truth = people[sensitive].to_numpy() if sensitive in people.column_names else None
    exact = found.exact if truth is None else found.exact & (np.abs(found.value - truth) <= within)
    alone = max(int(combine_means([one]).exact.sum()) for one in told)
    count = people.num_rows
    figures = {"releases": len(releases), "positions": (np.flatnonzero(exact) + 1).tolist()[:20]}
    warned = (f"{found.unknown} people were in groups too entangled to solve",) if found.unknown else ()
    precision = None if truth is None else Rate(int(exact.sum()), int(found.exact.sum()))
    return Outcome("subtracted means", f"Subtracting the means of {len(releases)} releases",
                   Rate(int(exact.sum()), count), 0.0, Rate(alone, count), precision, figures, warned)  # fmt: skip


def _find_classes(shown: ShownRelease, people: pa.Table, sensitive: str) -> tuple[Values, dict[int, float]]:
    """Everybody's class in a release, and the mean of each class; refused where the people do not fill the classes."""
    of_row, within = find_containing(shown.table, people, shown.columns)
    means = shown.table[sensitive].to_numpy()
    if not (within.sum(axis=0) == 1).all() or not np.array_equal(within.sum(axis=1), np.bincount(of_row)):
        raise ParameterError("The people and the classes of a release do not agree",
                             expected="Exactly the people of the release, each in one class")  # fmt: skip
    mine = within.argmax(axis=0).astype(np.int64)
    return mine, {int(c): float(means[np.flatnonzero(of_row == c)[0]]) for c in range(len(within))}
