"""Attacks by nearest released records: linkability and inference, the second and third criterion of WP29.

Two halves of a person's columns are put together by a released table; a secret is guessed from the nearest record."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import draw_places, encode_column, require_column
from deniable.attacks.nearest_records import convert_to_floats, is_number, list_equally_near, scale_tables
from deniable.attacks.outcome import Outcome, Progress, Rate

TOLERANCE = 0.05


def infer_secret(
    original: pa.Table,
    released: pa.Table,
    knows: Sequence[str],
    secret: str,
    *,
    control: pa.Table | None = None,
    attacks: int = 500,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Guess somebody's secret from the released record that is most like them.

    **Scenario.** The intruder knows some columns of a person in the original table and has a released or synthetic
    table; success is the secret value (a number within `tolerance` of the true one, relatively).
    **Method.** The secret of the nearest released row; where several are equally near, of any of them, and successes
    are counted by their chance, so that the order of rows changes nothing. The control attacks people who were not in
    the original table: what succeeds there was learned about people in general, not about this person.
    **Outcome.** Targets guessed rightly, as many as are expected; the baseline guesses values at random, as often as
    they are released.
    """
    generator = np.random.default_rng(seed)
    rates: list[Rate] = []
    base = 0.0
    for table in (original, control):
        if table is None:
            continue
        targets = draw_places(table, (*knows, secret), attacks, generator)
        theirs, ours = scale_tables([table, released], knows)
        near = list_equally_near(theirs.take(targets), ours, seconds=seconds, progress=progress)
        true, shown = _secrets(table, released, secret)
        if not rates:
            base = _guess_blindly(true[targets], shown, tolerance if is_number(released[secret].type) else 0.0)
        right = math.fsum(
            float(_are_same(true[[t]], shown[places], released, secret, tolerance).mean()) if len(places) else 0.0
            for t, places in zip(targets, near, strict=True)
        )
        rates.append(Rate(round(right), len(targets)))
    return Outcome(
        f"inference of {secret}", f"Guessing {secret} from the most similar record", rates[0], base,
        rates[1] if control is not None else None, figures={"knows": list(knows), "secret": secret},
    )  # fmt: skip


def _secrets(table: pa.Table, released: pa.Table, secret: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    parts = [require_column(table, secret), require_column(released, secret)]
    if all(is_number(part.type) for part in parts):
        return convert_to_floats(parts[0]), convert_to_floats(parts[1])
    codes = encode_column(parts, missing=True).astype(np.float64)
    return codes[: len(parts[0])], codes[len(parts[0]) :]


def _guess_blindly(true: NDArray[np.float64], shown: NDArray[np.float64], tolerance: float) -> float:
    """How often a released value that is drawn at random is near enough to a target's own."""
    if not len(true) or not len(shown):
        return 0.0
    ordered, reach = np.sort(shown), tolerance * np.maximum(np.abs(true), 1e-12)
    last, first = np.searchsorted(ordered, true + reach, "right"), np.searchsorted(ordered, true - reach, "left")
    return float((last - first).mean() / len(shown))


def _are_same(
    true: NDArray[np.float64], guess: NDArray[np.float64], released: pa.Table, secret: str, tolerance: float
) -> NDArray[np.bool_]:
    if is_number(released[secret].type):
        near = np.abs(guess - true) <= tolerance * np.maximum(np.abs(true), 1e-12)
        return np.asarray(near | (np.isnan(true) & np.isnan(guess)))
    return np.asarray(true == guess)


def link_halves(
    original: pa.Table,
    released: pa.Table,
    columns: tuple[Sequence[str], Sequence[str]],
    *,
    control: pa.Table | None = None,
    attacks: int = 500,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Tell which rows of two registers are the same person, through a released table.

    **Scenario.** One register holds some columns of people, another holds others; neither has names in common. The
    intruder puts two entries together when both are nearest to the same released row. Success is the right pair.
    **Method.** The nearest neighbor in the released table by either set of columns; a link where both are one row. Of
    rows that are equally near any is taken, for either side by itself, and links are counted by their chance: were the
    first of them taken on both sides, common values would meet in the first rows, and chance would look like a link.
    The control does so for people who were not in the original table.
    **Outcome.** Targets linked, as many as are expected; the baseline is what rows drawn blindly would give. The order
    of rows changes nothing.
    """
    generator = np.random.default_rng(seed)
    rates, rows = [], max(1, released.num_rows)
    for table in (original, control):
        if table is None:
            continue
        targets = draw_places(table, (*columns[0], *columns[1]), attacks, generator)
        sides = [scale_tables([table, released], part) for part in columns]
        known = sides[0][0].take(targets), sides[1][0].take(targets)
        near = [
            list_equally_near(one, side[1], seconds=seconds, progress=progress)
            for one, side in zip(known, sides, strict=True)
        ]
        met = math.fsum(
            len(np.intersect1d(a, b, assume_unique=True)) / max(1, len(a) * len(b)) for a, b in zip(*near, strict=True)
        )
        rates.append(Rate(round(met), len(targets)))
    return Outcome(
        "linkability", "Putting two half-known records together", rates[0], 1 / rows,
        rates[1] if control is not None else None, figures={"neighbors": 1},
    )  # fmt: skip
