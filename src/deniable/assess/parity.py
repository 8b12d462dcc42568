"""Epistemic parity: would the conclusions have been the same on synthetic rows?

A finding is a function from a table to yes or no, or to a signed effect. It is kept by a synthetic table when the yes
or no is the same, or the effect has the same sign. Over many runs the share of kept findings is estimated with an
interval. The comparison looks at the real rows, so it is for the steward's eyes and is never released.

The columns that findings name together are the workload that a synthetic table should keep together. They are read from
the code of the findings alone, never from the rows."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from deniable.attacks.outcome import compute_interval
from deniable.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pyarrow as pa


Conclusion = bool | float
HEADING = re.compile(r"^--[ \t]*([A-Za-z_]\w*):(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A named conclusion about a table; `text` is its first sentence."""

    name: str
    text: str
    function: Callable[[pa.Table], Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """How often a finding was kept by a method at an epsilon."""

    finding: str
    method: str
    epsilon: float
    kept: int
    runs: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The share of runs that kept it."""
        return self.kept / self.runs if self.runs else 0.0


def load_findings(path: Path, table: str = "rows") -> tuple[Finding, ...]:
    """The findings of a file of the steward's own: functions of a table (.py), or statements about it (.sql)."""
    if not path.is_file():
        raise ParameterError(
            f"there are no findings at '{path.name}'",
            expected="A file of Python functions (.py) or statements (.sql)",
            remedy="Write it there, or name the place where it is",
        )
    found = _load_statements(path, table) if path.suffix == ".sql" else _load_functions(path)
    if not found:
        raise ParameterError(
            f"'{path.name}' has no finding",
            expected="Functions such as def women_wait(rows): ..., or statements, each under -- women_wait: ...",
            remedy="Write at least one",
        )
    return found


def _load_functions(path: Path) -> tuple[Finding, ...]:
    """Public functions of one argument, in their order."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ParameterError(
            f"'{path.name}' is no Python file", expected="A name that ends in .py or .sql", remedy="Rename the file"
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as failure:
        where = f" in line {failure.lineno}" if isinstance(failure, SyntaxError) else ""
        raise ParameterError(
            f"'{path.name}' cannot be run: it fails with {type(failure).__name__}{where}",
            remedy="Mend the file: it must import by itself",
        ) from None
    own = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    found = sorted((f for f in own if _takes_a_table(f)), key=lambda f: f.__code__.co_firstlineno)
    return tuple(Finding(f.__name__, (inspect.getdoc(f) or f.__name__).split("\n")[0], f) for f in found)


def _takes_a_table(function: Callable[..., Any]) -> bool:
    return not function.__name__.startswith("_") and len(inspect.signature(function).parameters) == 1


def _load_statements(path: Path, table: str) -> tuple[Finding, ...]:
    """Each statement stands under a line `-- name: sentence` and gives one value."""
    from deniable.engines.duckdb import DuckDBEngine

    try:
        parts = HEADING.split(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ParameterError(f"'{path.name}' is not UTF-8 text", remedy="Save it as UTF-8") from None
    engine = DuckDBEngine()

    def make_query(statement: str) -> Callable[[pa.Table], Any]:
        def ask(rows: pa.Table) -> Any:
            return engine.run(statement, frames={table: rows})[0][0].as_py()

        return ask

    named = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return tuple(Finding(name, text.strip(), make_query(sql.strip().rstrip(";"))) for name, text, sql in named)


def evaluate_finding(finding: Finding, rows: pa.Table) -> Conclusion | None:
    """What a finding says of a table; None where it says nothing (an empty group, a missing value, a failure).

    It is the steward's own code, and a synthetic table may lack what it takes for granted: no failure of it stops us.
    """
    try:
        said = finding.function(rows)
        if said is None or said != said:
            return None
        return bool(said) if isinstance(said, bool) or type(said).__name__ == "bool" else float(said)
    except Exception:
        return None


def require_conclusions(findings: Sequence[Finding], rows: pa.Table) -> dict[str, Conclusion]:
    """What all findings say of the real table; each must say something, or there is nothing to compare with."""
    said = {finding.name: evaluate_finding(finding, rows) for finding in findings}
    silent = [name for name, conclusion in said.items() if conclusion is None]
    if silent:
        raise DataError(
            f"the finding '{silent[0]}' says nothing of the real table",
            expected="A finding gives true, false or a number",
            remedy="Try it on the table by itself",
            charge="",
        )
    return {name: conclusion for name, conclusion in said.items() if conclusion is not None}


def is_same_conclusion(real: Conclusion, made: Conclusion | None) -> bool:
    """Whether a conclusion was kept: the same answer, or an effect of the same sign."""
    if made is None:
        return False
    if isinstance(real, bool) or isinstance(made, bool):
        return bool(real) == bool(made)
    return (real > 0) == (made > 0) and (real < 0) == (made < 0)


def tally_runs(real: Mapping[str, Conclusion], turns: Iterable[Mapping[str, Any]]) -> tuple[Kept, ...]:
    """Turns (method, epsilon, what each finding said) added up by finding, each share with an interval of 95%."""
    groups: dict[tuple[str, str, float], list[bool]] = {}
    for turn in turns:
        for finding, said in turn["said"].items():
            kept = groups.setdefault((finding, turn["method"], float(turn["epsilon"])), [])
            kept.append(is_same_conclusion(real[finding], said))
    return tuple(_estimate_kept(*key, kept) for key, kept in groups.items())


def average_shares(kept: Iterable[Kept]) -> dict[tuple[str, float], float]:
    """The share of findings kept by each method at each epsilon, over all findings and runs."""
    groups: dict[tuple[str, float], list[float]] = {}
    for each in kept:
        groups.setdefault((each.method, each.epsilon), []).append(each.share)
    return {key: sum(shares) / len(shares) for key, shares in groups.items()}


def _estimate_kept(finding: str, method: str, epsilon: float, kept: list[bool]) -> Kept:
    bounds = compute_interval(sum(kept), len(kept))
    return Kept(finding, method, epsilon, sum(kept), len(kept), bounds.low, bounds.high)


MOST_COLUMNS, MOST_PAIRED = 5, 10
"""A finding that names more columns than the first asks for every two of them: the table of all would be too large to
say anything. One that names more than the second asks for nothing."""


def find_columns_named(function: Callable[..., Any], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a function, or a function of the same file that it calls, names as a word."""
    words = set(re.findall(r"\w+", " ".join(_sources(function, set()))))
    return tuple(name for name in columns if name in words)


def derive_workload(functions: Sequence[Callable[..., Any]], columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """What several findings ask for: two to five columns each, once; of more, every two."""
    found: dict[tuple[str, ...], None] = {}
    for names in (find_columns_named(function, columns) for function in functions):
        if len(names) <= MOST_COLUMNS:
            found |= {names: None} if len(names) > 1 else {}
        elif len(names) <= MOST_PAIRED:
            found |= dict.fromkeys(combinations(names, 2))
    return tuple(found)


def _sources(function: Callable[..., Any], seen: set[str]) -> list[str]:
    if not isinstance(function, FunctionType) or function.__qualname__ in seen:
        return []
    seen.add(function.__qualname__)
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    near = [other for other in called if isinstance(other, FunctionType) and other.__module__ == function.__module__]
    return [*_text(function), *(text for other in near for text in _sources(other, seen))]


def _text(function: FunctionType) -> list[str]:
    """The source without its docstring, which speaks of more than is read; what a closure holds, if it is text."""
    held = [str(cell.cell_contents) for cell in function.__closure__ or () if isinstance(cell.cell_contents, str)]
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        source = " ".join(str(constant) for constant in function.__code__.co_consts)
    return [source.replace(function.__doc__ or "\0", ""), *held]
