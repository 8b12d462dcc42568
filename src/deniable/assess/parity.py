"""Epistemic parity: would the conclusions have been the same on synthetic rows?

A finding is a function from a table to yes or no, or to a signed effect. It is kept by a synthetic table when the yes
or no is the same, or the effect has the same sign. Over many runs the share of kept findings is estimated with an
interval. The comparison looks at the real rows, so it is for the steward's eyes and is never released.
"""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.attacks.confidence import interval
from deniable.errors import DataError, ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

Conclusion = bool | float


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


def findings_in(path: Path) -> tuple[Finding, ...]:
    """The public functions of one argument in a Python file of the steward's own."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.exists():
        raise ParameterError(
            f"there are no findings at '{path.name}'", expected="A Python file with functions of a table"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    found = sorted((f for f in own if _takes_a_table(f)), key=lambda f: f.__code__.co_firstlineno)
    if not found:
        raise ParameterError(
            f"'{path.name}' has no finding", expected="Functions such as def women_wait_longer(rows): ..."
        )
    return tuple(Finding(f.__name__, (inspect.getdoc(f) or f.__name__).split("\n")[0], f) for f in found)


def _takes_a_table(function: Callable[..., Any]) -> bool:
    return not function.__name__.startswith("_") and len(inspect.signature(function).parameters) == 1


def concluded(finding: Finding, rows: pa.Table) -> Conclusion | None:
    """What a finding says of a table; None where it cannot be said (an empty group, a missing value)."""
    try:
        said = finding.function(rows)
    except (ZeroDivisionError, ValueError, TypeError, IndexError, KeyError, ArithmeticError):
        return None
    if said is None or said != said:
        return None
    return bool(said) if isinstance(said, bool) or type(said).__name__ == "bool" else float(said)


def conclusions(findings: Sequence[Finding], rows: pa.Table) -> dict[str, Conclusion]:
    """What all findings say of the real table; each must say something, or there is nothing to compare with."""
    said = {finding.name: concluded(finding, rows) for finding in findings}
    silent = [name for name, conclusion in said.items() if conclusion is None]
    if silent:
        raise DataError(f"the finding '{silent[0]}' says nothing of the real table", remedy="Correct the function")
    return {name: conclusion for name, conclusion in said.items() if conclusion is not None}


def same(real: Conclusion, made: Conclusion | None) -> bool:
    """Whether a conclusion was kept: the same answer, or an effect of the same sign."""
    if made is None:
        return False
    if isinstance(real, bool) or isinstance(made, bool):
        return bool(real) == bool(made)
    return (real > 0) == (made > 0) and (real < 0) == (made < 0)


def tallied(rows: Sequence[dict[str, Any]]) -> tuple[Kept, ...]:
    """Runs (finding, method, epsilon, kept) added up, each with an interval of 95%."""
    groups: dict[tuple[str, str, float], list[bool]] = {}
    for row in rows:
        groups.setdefault((row["finding"], row["method"], float(row["epsilon"])), []).append(bool(row["kept"]))
    return tuple(_kept(*key, kept) for key, kept in groups.items())


def _kept(finding: str, method: str, epsilon: float, kept: list[bool]) -> Kept:
    bounds = interval(sum(kept), len(kept))
    return Kept(finding, method, epsilon, sum(kept), len(kept), bounds.low, bounds.high)
