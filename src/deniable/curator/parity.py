"""The parity journey: findings on the real rows, and on synthetic ones of every method and epsilon, many times over.

Nothing is charged, because nothing leaves: the outcome is for the steward, to choose a method and an epsilon by.
Finished runs are kept in a file, so that a stopped comparison goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.policy.budget import budget

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.parity import Conclusion, Finding, Kept
    from deniable.curator.hall import Curator
    from deniable.policy.schema import TableSchema

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which findings are tried on which synthetic tables."""

    table: str
    findings: Path
    methods: tuple[str, ...]
    epsilons: tuple[str, ...]
    delta: str = "1e-9"
    runs: int = 10
    journal: Path | None = None


def compare(curator: Curator, wanted: Comparison, progress: Progress | None = None) -> tuple[Kept, ...]:
    """The share of runs in which each finding is kept, by method and epsilon."""
    from deniable.assess.parity import conclusions, findings_in, tallied

    findings = findings_in(wanted.findings)
    table = curator.policy.table(wanted.table)
    rows = curator.tables.attach(table.name).run(everything(table))
    real = conclusions(findings, rows)
    done = _journal(wanted.journal)
    turns = list(_turns(wanted))
    for number, turn in enumerate(turns, start=1):
        if not any((row["method"], row["epsilon"], row["run"]) == turn for row in done):
            fresh = _turn(rows, table, findings, real, turn, wanted.delta)
            done += fresh
            _keep(wanted.journal, fresh)
        if progress is not None:
            progress(number / len(turns))
    return tallied(done)


def _turns(wanted: Comparison) -> Iterator[tuple[str, float, int]]:
    from deniable.synth.describing import method_named

    for method in wanted.methods:
        method_named(method)
    if wanted.runs < 1:
        raise ParameterError("a comparison needs at least one run")
    for method in wanted.methods:
        for epsilon in wanted.epsilons:
            for run in range(wanted.runs):
                yield method, float(epsilon), run


def _turn(rows: pa.Table, table: TableSchema, findings: tuple[Finding, ...], real: dict[str, Conclusion],
          turn: tuple[str, float, int], delta: str) -> list[dict[str, Any]]:  # fmt: skip
    from deniable.assess.parity import concluded, same
    from deniable.synth.describing import model_of
    from deniable.synth.generate import generate

    method, epsilon, run = turn
    made = generate(model_of(rows, table, budget(epsilon, delta), method), seed=run)
    turned = {"method": method, "epsilon": epsilon, "run": run}
    return [{"finding": f.name, **turned, "kept": same(real[f.name], concluded(f, made))} for f in findings]


def everything(table: TableSchema) -> str:
    """The statement that reads every column of a table, in the policy's order."""
    from deniable.engines.base import quote

    return f"SELECT {', '.join(quote(name) for name in table.names)} FROM {quote(table.name)}"  # noqa: S608  our own words


def _journal(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def _keep(path: Path | None, rows: list[dict[str, Any]]) -> None:
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
