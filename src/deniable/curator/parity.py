"""The parity journey: findings on the real rows, and on synthetic ones of every method and epsilon, many times over.

Nothing is charged, because nothing leaves: the outcome is for the steward, to choose a method and an epsilon by. The
turns are shared out to processes, and kept in a journal, so that a stopped comparison goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.turns import Bench, Turn, taken
from deniable.errors import DeniableError, ParameterError
from deniable.policy.budget import budget

if TYPE_CHECKING:
    from deniable.assess.parity import Conclusion, Finding, Kept
    from deniable.curator.hall import Curator
    from deniable.policy.schema import TableSchema

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


def compare(curator: Curator, wanted: Comparison, progress: Progress | None = None) -> Compared:
    """The share of runs in which each finding is kept, by method and epsilon."""
    from deniable.assess.parity import averages, conclusions, tallied
    from deniable.curator.journal import Journal

    table = curator.policy.table(wanted.table or _only(curator))
    findings = _findings(wanted, table.name)
    bench = _bench(curator, table, wanted, findings)
    methods, unsuited = _methods(bench, wanted.methods)
    turns = _turns(wanted, methods)
    real = conclusions(findings, curator.tables.attach(table.name).run(everything(table)))
    journal = Journal(wanted.journal, _key(curator, table, wanted))
    done = [turn for turn in turns if turn in journal.turns]
    for number, (turn, said) in enumerate(taken(bench, journal.left(turns), wanted.workers), start=len(done) + 1):
        journal.keep(turn, said)
        if progress is not None:
            progress(number / len(turns))
    kept = tallied(real, journal.rows(turns))
    told = tuple((finding.name, finding.text, real[finding.name]) for finding in findings)
    return Compared(kept, told, averages(kept), unsuited)


def _only(curator: Curator) -> str:
    names = [table.name for table in curator.policy.private]
    if len(names) != 1:
        raise ParameterError("it is not clear which table is meant", remedy=f"Say --table: {', '.join(names)}")
    return names[0]


def _findings(wanted: Comparison, table: str) -> tuple[Finding, ...]:
    from deniable.assess.parity import findings_in

    findings = tuple(finding for path in wanted.findings for finding in findings_in(path, table))
    names = [finding.name for finding in findings]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ParameterError(f"there are two findings '{twice}'", expected="A name for each")
    return findings


def _bench(curator: Curator, table: TableSchema, wanted: Comparison, findings: tuple[Finding, ...]) -> Bench:
    """What every turn is made from: the rows as `synthesize` would see them, and what the findings ask for."""
    from deniable.assess.reading import workload
    from deniable.curator.synthesizing import bounded, unbilled
    from deniable.synth.attributes import attributes
    from deniable.synth.describing import domain_of

    source = unbilled(curator, table.name)
    truths = curator.policy.release.truths
    names = domain_of(attributes(table)).names
    asked = workload([finding.function for finding in findings], names)
    asked = tuple(dict.fromkeys((*asked, *curator.policy.release.synthesize.concerning(names))))
    return Bench(bounded(source, None), table, wanted.findings, wanted.delta, source.most_rows, truths, asked)


def _methods(bench: Bench, wanted: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The methods to compare; of `all`, those that suit the table, and why the others do not."""
    from deniable.synth.describing import method_named
    from deniable.synth.methods import METHODS

    if wanted != ALL:
        return tuple(method_named(name).name for name in wanted), ()
    unsuited = {}
    for name in METHODS:
        try:
            bench.nobody(name)
        except DeniableError as refusal:
            unsuited[name] = refusal.happened
    return tuple(name for name in METHODS if name not in unsuited), tuple(unsuited.items())


def _turns(wanted: Comparison, methods: tuple[str, ...]) -> list[Turn]:
    if wanted.runs < 1 or wanted.workers < 1:
        raise ParameterError("a comparison needs at least one run and one worker")
    for epsilon in wanted.epsilons:
        budget(epsilon, wanted.delta)
    named = [(method, float(epsilon)) for method in methods for epsilon in wanted.epsilons]
    return [(method, epsilon, run) for run in range(wanted.runs) for method, epsilon in named]


def everything(table: TableSchema) -> str:
    """The statement that reads every column of a table, in the policy's order."""
    from deniable.engines.base import quote

    return f"SELECT {', '.join(quote(name) for name in table.names)} FROM {quote(table.name)}"  # noqa: S608  our own words


def _key(curator: Curator, table: TableSchema, wanted: Comparison) -> str:
    """What a journal belongs to: these rows, under this policy, with these findings and this delta."""
    texts = [hashlib.sha256(path.read_bytes()).hexdigest() for path in wanted.findings]
    held = [curator.policy.hash, curator.tables.version(table.name), texts, wanted.delta]
    return hashlib.sha256(json.dumps(held, sort_keys=True).encode()).hexdigest()
