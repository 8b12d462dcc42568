"""Turns of a comparison: describe, draw, conclude; one after another, or shared out to processes.

Processes are started anew and get the rows through a pipe: nothing of them is written to a disk.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.journal import Turn
from deniable.errors import Stopped
from deniable.policy.budget import budget

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.parity import Finding
    from deniable.policy.schema import Spec, TableSchema
    from deniable.synth.model import SynthModel

Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bench:
    """All that a turn needs. It holds rows, so it is never shown or written."""

    rows: pa.Table
    table: TableSchema
    findings: tuple[Path, ...]
    delta: str
    most_rows: int
    truths: tuple[Spec, ...] = ()
    workload: tuple[tuple[str, ...], ...] = ()
    """The columns that findings name together: what methods that can be asked are asked for."""

    def model(self, rows: pa.Table, method: str, epsilon: float) -> SynthModel:
        """The model of rows, as `synthesize` would learn it."""
        from deniable.synth.describing import model_of

        rest: Any = {"most_rows": self.most_rows, "truths": self.truths, "workload": self.workload}
        return model_of(rows, self.table, budget(epsilon, self.delta), method, **rest)

    def nobody(self, method: str) -> None:
        """Try a method on no rows: a refusal tells that it does not suit the table."""
        self.model(self.rows.slice(0, 0), method, 1.0)

    def turn(self, turn: Turn, findings: Sequence[Finding]) -> Said:
        """What all findings say of one synthetic table."""
        from deniable.assess.parity import concluded
        from deniable.synth.generate import generate

        method, epsilon, run = turn
        made = generate(self.model(self.rows, method, epsilon), seed=run)
        return {finding.name: concluded(finding, made) for finding in findings}


def taken(bench: Bench, turns: Sequence[Turn], workers: int) -> Iterator[tuple[Turn, Said]]:
    """Every turn with what was said, as they finish."""
    if min(workers, len(turns)) > 1:
        yield from _shared(bench, turns, min(workers, len(turns)))
        return
    findings = _findings(bench) if turns else ()
    for turn in turns:
        yield turn, bench.turn(turn, findings)


def _shared(bench: Bench, turns: Sequence[Turn], workers: int) -> Iterator[tuple[Turn, Said]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    held = [getattr(bench, name) for name in Bench.__slots__]
    # Forked processes would inherit the locks of the engine's threads: they are started anew.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_ready, initargs=(held,))
    try:
        with _without_the_script():
            waiting = {pool.submit(_take, turn): turn for turn in turns}
        for finished in as_completed(waiting):
            yield waiting[finished], finished.result()
    except BrokenProcessPool:
        remedy = "Say --journal to keep finished turns, or fewer --workers if memory is short"
        raise Stopped("a process of the comparison was ended from outside", remedy=remedy, charge="") from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_the_script() -> Iterator[None]:
    """Hide the script that was started while processes are.

    They would run it again to learn its names, of which ours need none; one without a guard would start itself over.
    """
    script = sys.modules["__main__"]
    held = {name: vars(script).get(name) for name in ("__file__", "__spec__")}
    vars(script).update(__file__=None, __spec__=None)
    try:
        yield
    finally:
        vars(script).update(held)


_AT_WORK: list[tuple[Bench, tuple[Finding, ...]]] = []
"""In a process of the pool: its bench, and the findings read from their files."""


def _ready(held: list[Any]) -> None:
    bench = Bench(*held)
    _AT_WORK.append((bench, _findings(bench)))


def _take(turn: Turn) -> Said:
    bench, findings = _AT_WORK[-1]
    return bench.turn(turn, findings)


def _findings(bench: Bench) -> tuple[Finding, ...]:
    from deniable.assess.parity import findings_in

    return tuple(finding for path in bench.findings for finding in findings_in(path, bench.table.name))
