"""Inference: a secret value guessed from the nearest released record (the third criterion of WP29)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import encode_column, require_column
from deniable.attacks.nearest_records import convert_to_floats, find_nearest, is_number, scale_tables
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
