"""Attacks by nearest released records: linkability and inference, the second and third criterion of WP29.

Two halves of a person's columns are put together by a released table; a secret is guessed from the nearest record."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import encode_column, require_column
from deniable.attacks.nearest_records import MixedRows, convert_to_floats, find_nearest, is_number, scale_tables
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
    **Method.** The secret of the nearest released row. The control attacks people who were not in the original table:
    what succeeds there was learned about people in general, not about this person.
    **Outcome.** Targets guessed rightly; the baseline guesses values at random, as often as they are released.
    """
    generator = np.random.default_rng(seed)
    rates: list[Rate] = []
    base = 0.0
    for table in (original, control):
        if table is None:
            continue
        targets = np.sort(generator.choice(table.num_rows, min(attacks, table.num_rows), replace=False))
        theirs, ours = scale_tables([table, released], knows)
        place = find_nearest(theirs.take(targets), ours, 1, seconds=seconds, progress=progress)[0]
        true, shown = _secrets(table, released, secret)
        if not rates:
            blind = generator.integers(0, max(1, len(shown)), (len(targets), 20))
            base = (
                float(_are_same(true[targets][:, None], shown[blind], released, secret, tolerance).mean())
                if len(shown)
                else 0.0
            )
        guessed = shown[place[:, 0]] if place.shape[1] else np.full(len(targets), np.nan)
        rates.append(Rate(int(_are_same(true[targets], guessed, released, secret, tolerance).sum()), len(targets)))
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
    neighbors: int = 1,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Tell which rows of two registers are the same person, through a released table.

    **Scenario.** One register holds some columns of people, another holds others; neither has names in common. The
    intruder puts two entries together when both are nearest to the same released row. Success is the right pair.
    **Method.** Nearest neighbors in the released table by either set of columns; a link where the sets of `neighbors`
    meet. Rows that are equally near are told apart by lot, for either side by itself: were the first of them taken on
    both sides, common values would meet in the first rows, and chance would look like a link. The control does so for
    people who were not in the original table.
    **Outcome.** Targets linked; the baseline is what sets of neighbors drawn blindly would give.
    """
    generator = np.random.default_rng(seed)
    rates, rows = [], max(1, released.num_rows)
    for table in (original, control):
        if table is None:
            continue
        targets = np.sort(generator.choice(table.num_rows, min(attacks, table.num_rows), replace=False))
        sides = [scale_tables([table, released], part) for part in columns]
        places = [_find_near_rows(side, targets, neighbors, generator, seconds, progress) for side in sides]
        met = (places[0][:, :, None] == places[1][:, None, :]).any(axis=(1, 2))
        rates.append(Rate(int(met.sum()), len(targets)))
    kept = min(neighbors, rows)
    blind = 1 - float(np.prod([max(0, rows - kept - i) / (rows - i) for i in range(kept)]))
    return Outcome(
        "linkability", "Putting two half-known records together", rates[0], blind,
        rates[1] if control is not None else None, figures={"neighbors": neighbors},
    )  # fmt: skip


def _find_near_rows(
    side: list[MixedRows],
    targets: NDArray[np.int64],
    neighbors: int,
    generator: np.random.Generator,
    seconds: float | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """The nearest released rows, looked for in an order drawn by lot: the first of equals is then any of them."""
    order = generator.permutation(side[1].rows)
    place = find_nearest(side[0].take(targets), side[1].take(order), neighbors, seconds=seconds, progress=progress)[0]
    return np.asarray(order[place], np.int64)
