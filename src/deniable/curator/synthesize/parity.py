"""Parity: findings on the real rows, and on synthetic ones of every method and epsilon, many times over.

Nothing is charged, because nothing leaves: the outcome is for the steward, to choose a method and an epsilon by. Runs
are shared out to processes, which get the rows through a pipe, and finished ones are written to a journal, so that a
stopped comparison goes on where it was."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context
from deniable.curator.sources import refuse_rows_here
from deniable.curator.synthesize.run import find_source, read_bounded, select_all
from deniable.errors import DeniableError, IntegrityError, ParameterError, Stopped
from deniable.policy.budget import budget
from deniable.release.record import Record
from deniable.storage import storage_errors, write_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.parity import Conclusion, Finding, Kept
    from deniable.policy.schema import Spec, TableSchema
    from deniable.synth.model import SynthModel


RunKey = tuple[str, float, int]
"""Method, epsilon and number of the run."""


@dataclass(frozen=True, slots=True, eq=False)
class FinishedRun(Record):
    """What every finding said of one synthetic table."""

    method: str
    epsilon: float
    run: int
    said: Mapping[str, Any]


class Journal:
    """What every finished turn said; on disk where a path is given."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path = path
        self.turns: dict[RunKey, Mapping[str, Any]] = {}
        if path is None:
            return
        with storage_errors(path):
            lines = (
                path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if path.exists() else []
            )
            whole = [line for line in lines if line.endswith("}\n")]
            self._read([json.loads(line) for line in whole], key)
            # Rewritten before anything is added: a line that was cut off must not swallow the next one.
            write_whole(path, ("".join(whole) or json.dumps({"comparison": key}) + "\n").encode())

    def _read(self, held: list[dict[str, Any]], key: str) -> None:
        if held and held[0].get("comparison") != key:
            raise IntegrityError(
                "the journal belongs to another comparison",
                expected="The same rows, policy, findings and delta",
                remedy="Name another file with --journal, or remove this one",
            )
        self.turns = {(line["method"], line["epsilon"], line["run"]): line["said"] for line in held[1:]}

    def left(self, turns: list[RunKey]) -> list[RunKey]:
        """The turns that are not finished."""
        return [turn for turn in turns if turn not in self.turns]

    def keep(self, turn: RunKey, said: Mapping[str, Any]) -> None:
        """Write down a finished turn."""
        self.turns[turn] = said
        if self._path is not None:
            with storage_errors(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(FinishedRun(*turn, said).to_dict()) + "\n")

    def rows(self, turns: list[RunKey]) -> list[FinishedRun]:
        """What these turns said."""
        return [FinishedRun(*turn, self.turns[turn]) for turn in turns]


Progress = Callable[[float], None]
ALL = ("all",)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which findings are tried on which synthetic tables; `all` stands for every method that suits the table."""

    table: str | None
    findings: tuple[Path, ...]
    methods: tuple[str, ...] = ALL
    epsilons: tuple[str, ...] = ("0.5", "1", "2", "4", "10")
    delta: str = "1e-9"
    runs: int = 20
    journal: Path | None = None
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """How often each finding was kept; names, texts and what they say of the real rows; methods that do not suit."""

    kept: tuple[Kept, ...]
    findings: tuple[tuple[str, str, Conclusion], ...]
    averages: dict[tuple[str, float], float]
    unsuited: tuple[tuple[str, str], ...] = ()


def compare(context: Context, wanted: Comparison, progress: Progress | None = None) -> Compared:
    """The share of runs in which each finding is kept, by method and epsilon."""
    from deniable.assess.parity import average_shares, require_conclusions, tally_runs

    table = context.policy.table(context.only_private_table(wanted.table))
    refuse_rows_here(table, context.scope.sources)
    findings = read_findings(wanted.findings, table.name)
    bench = _bench(context, table, wanted, findings)
    methods, unsuited = _methods(bench, wanted.methods)
    turns = _plan_runs(wanted, methods)
    real = require_conclusions(findings, context.scope.attach(table.name).run(select_all(table)))
    journal = Journal(wanted.journal, _comparison_key(context, table, wanted))
    done = [turn for turn in turns if turn in journal.turns]
    for number, (turn, said) in enumerate(
        perform_runs(bench, journal.left(turns), wanted.workers), start=len(done) + 1
    ):
        journal.keep(turn, said)
        if progress is not None:
            progress(number / len(turns))
    kept = tally_runs(real, journal.rows(turns))
    told = tuple((finding.name, finding.text, real[finding.name]) for finding in findings)
    return Compared(kept, told, average_shares(kept), unsuited)


def read_findings(paths: Iterable[Path], table: str) -> tuple[Finding, ...]:
    """The findings of several files about a table; two of one name are refused."""
    from deniable.assess.parity import load_findings

    findings = tuple(finding for path in paths for finding in load_findings(path, table))
    names = [finding.name for finding in findings]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ParameterError(f"there are two findings '{twice}'", expected="A name for each")
    return findings


def _bench(context: Context, table: TableSchema, wanted: Comparison, findings: tuple[Finding, ...]) -> RunInputs:
    """What every turn is made from: the rows as `synthesize` would see them, and what the findings ask for."""
    from deniable.assess.parity import derive_workload
    from deniable.synth.describe import domain_of
    from deniable.synth.domain import attributes_of

    source = find_source(context, table.name)
    truths = context.policy.release.truths
    names = domain_of(attributes_of(table)).names
    asked = derive_workload([finding.function for finding in findings], names)
    asked = tuple(dict.fromkeys((*asked, *context.policy.release.synthesize.select_workload(names))))
    return RunInputs(
        read_bounded(context, table.name), table, wanted.findings, wanted.delta, source.most_rows, truths, asked
    )


def _methods(bench: RunInputs, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The methods to compare; of `all`, those that suit the table, and why the others do not."""
    from deniable.synth.describe import find_method
    from deniable.synth.methods import METHODS

    if wanted != ALL:
        return tuple(find_method(name).name for name in wanted), ()
    unsuited = {}
    for name in METHODS:
        try:
            bench.nobody(name)
        except DeniableError as refusal:
            unsuited[name] = refusal.happened
    return tuple(name for name in METHODS if name not in unsuited), tuple(unsuited.items())


def _plan_runs(wanted: Comparison, methods: tuple[str, ...]) -> list[RunKey]:
    if wanted.runs < 1 or wanted.workers < 1:
        raise ParameterError("a comparison needs at least one run and one worker")
    for epsilon in wanted.epsilons:
        budget(epsilon, wanted.delta)
    named = [(method, float(epsilon)) for method in methods for epsilon in wanted.epsilons]
    return [(method, epsilon, run) for run in range(wanted.runs) for method, epsilon in named]


def _comparison_key(context: Context, table: TableSchema, wanted: Comparison) -> str:
    """What a journal belongs to: these rows, under this policy, with these findings and this delta."""
    texts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wanted.findings]
    # A journal holds figures of real rows and is the steward's own, as this version of them is.
    rows = context.scope.attach(table.name).data_version(table.name)
    held = [context.policy.hash, rows, texts, wanted.delta]
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()


Conclusions = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RunInputs:
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
        from deniable.synth.describe import describe_table

        rest: Any = {"most_rows": self.most_rows, "truths": self.truths, "workload": self.workload}
        return describe_table(rows, self.table, budget(epsilon, self.delta), method, **rest)

    def nobody(self, method: str) -> None:
        """Try a method on no rows: a refusal tells that it does not suit the table."""
        self.model(self.rows.slice(0, 0), method, 1.0)

    def turn(self, turn: RunKey, findings: Sequence[Finding]) -> Conclusions:
        """What all findings say of one synthetic table."""
        from deniable.assess.parity import evaluate_finding
        from deniable.synth.generate import generate

        method, epsilon, run = turn
        made = generate(self.model(self.rows, method, epsilon), seed=run)
        return {finding.name: evaluate_finding(finding, made) for finding in findings}


def perform_runs(bench: RunInputs, turns: Sequence[RunKey], workers: int) -> Iterator[tuple[RunKey, Conclusions]]:
    """Every turn with what was said, as they finish."""
    if min(workers, len(turns)) > 1:
        yield from _share_runs(bench, turns, min(workers, len(turns)))
        return
    findings = _read_findings(bench) if turns else ()
    for turn in turns:
        yield turn, bench.turn(turn, findings)


def _share_runs(bench: RunInputs, turns: Sequence[RunKey], workers: int) -> Iterator[tuple[RunKey, Conclusions]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    held = [getattr(bench, name) for name in RunInputs.__slots__]
    # Forked processes would inherit the locks of the engine's threads: they are started anew.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_start_worker, initargs=(held,))
    try:
        with _without_the_script():
            waiting = {pool.submit(_perform_run, turn): turn for turn in turns}
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


_WORKER: list[tuple[RunInputs, tuple[Finding, ...]]] = []
"""In a process of the pool: its bench, and the findings read from their files."""


def _start_worker(held: list[Any]) -> None:
    bench = RunInputs(*held)
    _WORKER.append((bench, _read_findings(bench)))


def _perform_run(turn: RunKey) -> Conclusions:
    bench, findings = _WORKER[-1]
    return bench.turn(turn, findings)


def _read_findings(bench: RunInputs) -> tuple[Finding, ...]:
    return read_findings(bench.findings, bench.table.name)
