"""Same-class disclosure: what people who look alike in a release give away about each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import (
    Codes,
    deduplicate_columns,
    encode_column,
    encode_combinations,
    pack_codes,
    require_column,
)
from deniable.attacks.outcome import Outcome, Rate

SCENARIO = "Knowing somebody's class and guessing its commonest"
SKEWED = 2.0
SIMILAR = 0.1


@dataclass(frozen=True, slots=True)
class ClassDisclosure:
    """People (rows) whose sensitive value their class gives away, by the way it does.

    `homogeneous`: the class has one value. `background`: it has at most one more value than an intruder can rule out.
    `skewed`: the person's value is at least twice as likely in the class as in the table, and likelier than not.
    `similar`: all values of the class are in one group, or within a tenth of the table's range.
    """

    rows: int
    homogeneous: int
    background: int
    skewed: int
    similar: int


@dataclass(frozen=True, eq=False, repr=False)
class _Histogram:
    """Values by class: for every row its class, its value, and how often that pair occurs."""

    group: Codes
    value: Codes
    pair: Codes
    pair_class: Codes
    pair_value: Codes
    times: NDArray[np.int64]
    size: NDArray[np.int64]
    overall: NDArray[np.int64]


def _histogram(table: pa.Table, quasi_identifiers: Sequence[str], sensitive: str) -> _Histogram:
    group = pack_codes(encode_combinations([table], deduplicate_columns(quasi_identifiers), missing=True)[0])
    value = pack_codes(encode_column([require_column(table, sensitive)], missing=True))
    width = int(value.max(initial=0)) + 1
    keys, pair, times = np.unique(group * width + value, return_inverse=True, return_counts=True)
    return _Histogram(group, value, pair.reshape(-1), keys // width, keys % width, times.astype(np.int64),
                      np.bincount(group), np.bincount(value))  # fmt: skip


def count_class_disclosure(
    table: pa.Table,
    quasi_identifiers: Sequence[str],
    sensitive: str,
    *,
    rules_out: int = 1,
    group_of: Callable[[object], object] | None = None,
) -> ClassDisclosure:
    """Count the people whom homogeneity, background knowledge, skewness and similarity expose.

    `rules_out` is how many values the intruder can exclude for a person; `group_of` maps a value to its group (an ICD
    code to its chapter), for similarity; numbers are similar when they lie close together.
    """
    if not table.num_rows:
        return ClassDisclosure(0, 0, 0, 0, 0)
    seen = _histogram(table, quasi_identifiers, sensitive)
    distinct = np.bincount(seen.pair_class, minlength=len(seen.size))
    own = seen.times[seen.pair] / seen.size[seen.group]
    prior = seen.overall[seen.value] / table.num_rows
    alike = _find_similar_classes(table, sensitive, seen, group_of)
    return ClassDisclosure(
        rows=table.num_rows,
        homogeneous=int((distinct == 1)[seen.group].sum()),
        background=int((distinct <= 1 + rules_out)[seen.group].sum()),
        skewed=int(((own >= SKEWED * prior) & (own > 0.5)).sum()),
        similar=int(alike[seen.group].sum()),
    )


def _find_similar_classes(
    table: pa.Table, sensitive: str, seen: _Histogram, group_of: Callable[[object], object] | None
) -> NDArray[np.bool_]:
    """Which classes hold values of one kind only."""
    values = require_column(table, sensitive)
    kind = values.type
    if group_of is None and (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
        low, high = (np.full(len(seen.size), end) for end in (np.inf, -np.inf))
        np.fmin.at(low, seen.group, numbers)
        np.fmax.at(high, seen.group, numbers)
        reach = np.nanmax(numbers, initial=-np.inf) - np.nanmin(numbers, initial=np.inf)
        return np.asarray(high - low <= SIMILAR * reach)
    if group_of is None:
        return np.asarray(np.bincount(seen.pair_class, minlength=len(seen.size)) == 1)
    first = np.zeros(int(seen.value.max(initial=0)) + 1, np.int64)
    numbered: dict[object, int] = {}
    listed = values.to_pylist()
    for code, row in zip(*np.unique(seen.value, return_index=True), strict=True):
        first[code] = numbered.setdefault(group_of(listed[row]), len(numbered))
    groups = np.unique(np.column_stack([seen.pair_class, first[seen.pair_value]]), axis=0)
    return np.asarray(np.bincount(groups[:, 0], minlength=len(seen.size)) == 1)


def guess_from_class(table: pa.Table, quasi_identifiers: Sequence[str], sensitive: str) -> Outcome:
    """Guess everybody's sensitive value from the class they are in.

    **Scenario.** The intruder knows the quasi-identifiers of somebody in the table, hence the class; success is the
    right sensitive value.
    **Method.** The class's shares are the posterior, the table's the prior; the likeliest value is guessed, and of f
    records that fit each is right with 1/f. The control guesses from the class without the person's own row: what
    would be learned had the person stayed away.
    **Outcome.** People guessed rightly; figures hold the mean prior and posterior of people's true values, and how many
    are `disclosed` in which way (`ClassDisclosure`).
    """
    scenario = f"{SCENARIO} {sensitive}"
    if not table.num_rows:
        return Outcome("same class", scenario, Rate(0, 0), 0.0)
    seen = _histogram(table, quasi_identifiers, sensitive)
    top, second, holders = _leaders(seen)
    own = seen.times[seen.pair]
    # Ties are broken at random: a person whose value shares the lead is guessed with one over the number of leaders.
    right = np.where(own == top[seen.group], 1 / holders[seen.group], 0.0)
    without = np.where(own == top[seen.group], np.where(holders[seen.group] > 1, 0.0, own - 1 > second[seen.group]), 0)
    rows = table.num_rows
    figures = {
        "mean_prior": float((seen.overall[seen.value] / rows).mean()),
        "mean_posterior": float((own / seen.size[seen.group]).mean()),
        "certain": int((seen.times[seen.pair] == seen.size[seen.group]).sum()),
        "expected_records_found": float((1 / seen.size[seen.group]).sum()),
        "classes": len(seen.size),
        "disclosed": asdict(count_class_disclosure(table, quasi_identifiers, sensitive)),
    }
    return Outcome(
        "same class", scenario, Rate(round(float(right.sum())), rows), Rate(int(seen.overall.max()), rows),
        Rate(int(without.sum()), rows), figures=figures,
    )  # fmt: skip


def _leaders(seen: _Histogram) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each class the highest count, the next lower one (0 if none), and how many values share the highest."""
    classes = len(seen.size)
    top, second = np.zeros(classes, np.int64), np.zeros(classes, np.int64)
    np.maximum.at(top, seen.pair_class, seen.times)
    leads = seen.times == top[seen.pair_class]
    np.maximum.at(second, seen.pair_class[~leads], seen.times[~leads])
    return top, second, np.bincount(seen.pair_class[leads], minlength=classes)
