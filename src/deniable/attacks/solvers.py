"""The optional solvers: HiGHS (through scipy) for linear programs, CP-SAT (OR-tools) for whole numbers."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from deniable.errors import MissingExtra


def scipy_optimize() -> Any:
    """scipy.optimize, or a refusal that names the extra."""
    return _module("scipy.optimize", "scipy")


def scipy_sparse() -> Any:
    """scipy.sparse, or a refusal that names the extra."""
    return _module("scipy.sparse", "scipy")


def cp_sat() -> Any:
    """The CP-SAT module of OR-tools, or a refusal that names the extra."""
    return _module("ortools.sat.python.cp_model", "ortools")


def _module(name: str, package: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingExtra(
            f"This attack needs '{package}', which is not installed",
            remedy="Install it with: pip install 'deniable[solvers]'",
            charge="",
            extra="solvers",
        ) from None
