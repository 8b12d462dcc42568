"""Sample and aggregate: any function of a table, computed on disjoint blocks of units, combined with noise.

The function runs in ordinary Python and may be anything: one unit is in one block only, so it moves one of the blocks'
results, wherever it likes between the public bounds. A function that fails on a block, or gives something else than a
finite number, counts as a fixed default there; nothing else of a failure is seen.

**Guarantee.** epsilon-DP for adding, removing or replacing one unit (Nissim, Raskhodnikova, Smith 2007). Blocks are
chosen by a hash with a fresh secret salt, independently for each unit. Results are clamped and rounded to steps; one
changed result moves their sum by at most (upper - lower), and the values for a median by one taken away and one added.
**Utility.** The error of the blocks' spread, and noise of (upper - lower) / (blocks epsilon) for the mean.
**Runtime.** One run of the function for each block.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import LaplaceMechanism, QuantileMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import NOTHING_CHARGED, InternalError, ParameterError
from deniable.policy.budget import Amount, PureDP, exact, refuse_extreme
from deniable.query.builder import require_package
from deniable.query.explain import BlocksSummary

STEPS = 1 << 20
"""Results are rounded to this many steps between the bounds."""
AGGREGATES = ("median", "mean")
FRAMES = ("arrow", "pandas")


@dataclass(frozen=True, slots=True)
class BlocksPlan:
    """How many blocks, which public bounds, which mechanism combines them."""

    blocks: int
    lower: Fraction
    upper: Fraction
    aggregate: str
    mechanism: LaplaceMechanism | QuantileMechanism
    cost: PureDP
    default: Fraction
    """What a block counts as on which the function fails."""

    @property
    def step(self) -> Fraction:
        """What one step of a result is worth."""
        return (self.upper - self.lower) / STEPS

    def error(self, alpha: float) -> float:
        """The noise of the answer that is passed with probability alpha; for the median it is one of rank."""
        if isinstance(self.mechanism, QuantileMechanism):
            return float(self.mechanism.accuracy(alpha))
        return float(self.mechanism.accuracy(alpha) * self.step) / self.blocks


def describe_blocks(plan: BlocksPlan, confidence: float) -> BlocksSummary:
    """The plan in plain values, for explaining it without data."""
    ranks = isinstance(plan.mechanism, QuantileMechanism)
    return BlocksSummary(
        blocks=plan.blocks,
        aggregate=plan.aggregate,
        bounds=[float(plan.lower), float(plan.upper)],
        sensitivity="one block, since a unit is in one of them",
        mechanism="exponential" if ranks else "discrete Laplace",
        error=plan.error(1 - confidence),
        error_in="ranks of blocks" if ranks else "the function's own unit",
        confidence=confidence,
    )


def check_frames(frames: str) -> None:
    """Refuse a kind of table that blocks cannot be handed over as."""
    if frames not in FRAMES:
        raise ParameterError(
            "blocks are handed over as tables of Arrow or pandas", expected="frames='arrow' or 'pandas'"
        )
    if frames != "arrow":
        require_package(frames, NOTHING_CHARGED)


def plan_blocks(
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    aggregate: str = "median",
    default: Amount | None = None,
) -> BlocksPlan:
    """The plan of a sample-and-aggregate release; refuses what makes no sense before anything runs."""
    if isinstance(blocks, bool) or not isinstance(blocks, int) or not 2 <= blocks <= 100_000:
        raise ParameterError("blocks is not a whole number from 2 to 100,000", expected="blocks such as 50")
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or len(bounds) != 2:
        raise ParameterError("the bounds are not two numbers", expected="bounds=(0, 100)")
    lower, upper = (exact(end, "bound") for end in bounds)
    if lower >= upper:
        raise ParameterError("the bounds are not lower < upper", expected="bounds=(0, 100)")
    if aggregate not in AGGREGATES:
        raise ParameterError(f"there is no aggregate '{aggregate}'", expected="median or mean")
    budget = PureDP(exact(epsilon, "epsilon"))
    refuse_extreme(budget)
    if aggregate == "mean":
        mechanism: LaplaceMechanism | QuantileMechanism = LaplaceMechanism.within(budget, STEPS)
    else:
        # A changed result is one value less and one value more.
        mechanism = QuantileMechanism.within(budget, (Fraction(1, 2),), 0, STEPS, rows_per_unit=2)
    fallback = exact(default, "default") if default is not None else (lower + upper) / 2
    plan = BlocksPlan(blocks, lower, upper, aggregate, mechanism, budget, min(max(fallback, lower), upper))
    check(plan)
    return plan


def check(plan: BlocksPlan) -> None:
    """Double entry: one result may move from one bound to the other."""
    noise = plan.mechanism
    enough = noise.rows_per_unit >= 2 if isinstance(noise, QuantileMechanism) else noise.sensitivity >= STEPS
    from deniable.query.double_entry import price

    if not enough or price(noise.event, plan.cost) != plan.cost:
        raise InternalError("sample and aggregate is not made for what it combines", remedy="Nothing was run")


def release_blocks(
    plan: BlocksPlan,
    function: Callable[[Any], float],
    table: pa.Table,
    unit: str | None,
    *,
    frames: str = "arrow",
    entropy: Entropy = SYSTEM,
    hidden: Sequence[str] = (),
) -> float:
    """Run the function on every block and combine the results with noise; it does not see `hidden` columns."""
    check(plan)
    results = np.array(
        [
            _run_on_block(plan, function, _convert_block(block.drop_columns(list(hidden)), frames))
            for block in split_units(table, unit, plan.blocks, entropy)
        ],
        dtype=np.int64,
    )
    if isinstance(plan.mechanism, QuantileMechanism):
        steps = Fraction(int(plan.mechanism.release(results, entropy)[0]))
    else:
        steps = Fraction(int(plan.mechanism.release(np.array([results.sum()]), entropy)[0]), plan.blocks)
    return float(min(max(plan.lower + steps * plan.step, plan.lower), plan.upper))


def split_units(table: pa.Table, unit: str | None, blocks: int, entropy: Entropy) -> list[pa.Table]:
    """The table in disjoint blocks; rows of one unit stay together. Rows without a unit are left out."""
    if unit is None:
        words = np.frombuffer(entropy.take(8 * table.num_rows), dtype=np.uint64)
        places = (words % np.uint64(blocks)).astype(np.int64)
    else:
        places = _assign_blocks(table, unit, blocks, entropy.take(16))
    return [table.take(pa.array(np.flatnonzero(places == block))) for block in range(blocks)]


def _assign_blocks(table: pa.Table, unit: str, blocks: int, salt: bytes) -> NDArray[np.int64]:
    """Each unit's block follows from its own id and the salt, so no other unit can move it."""
    if unit not in table.column_names:
        raise ParameterError(f"there is no column '{unit}'", expected=f"One of {', '.join(table.column_names)}")
    coded = table.column(unit).combine_chunks().dictionary_encode()
    homes = np.array(
        [
            -1
            if value is None
            else int.from_bytes(hashlib.blake2b(_write_id(value).encode(), key=salt).digest()[:8]) % blocks
            for value in coded.dictionary.to_pylist()
        ],
        dtype=np.int64,
    )
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.where(codes < 0, -1, homes[codes]) if homes.size else np.full(table.num_rows, -1)


def _write_id(value: object) -> str:
    """An id as text, the same for ids that are equal: 0.0 and -0.0 are written differently and are one unit."""
    return repr(value + 0.0) if isinstance(value, float) else repr(value)


def _run_on_block(plan: BlocksPlan, function: Callable[[Any], float], block: Any) -> int:
    try:
        value = float(function(block))
    except Exception:  # whatever a block does to the function must not be told apart
        value = math.nan
    number = Fraction(value) if math.isfinite(value) else plan.default
    clamped = min(max(number, plan.lower), plan.upper)
    return round((clamped - plan.lower) / plan.step)


def _convert_block(block: pa.Table, frames: str) -> Any:
    return block.to_pandas() if frames == "pandas" else block
