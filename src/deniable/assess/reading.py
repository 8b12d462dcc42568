"""Which columns a finding is about: those that its own text names. Read from the code alone, never from the rows.

The columns that findings name together are the workload that a synthetic table should keep together.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

MOST = 5
"""A finding that names more columns than this asks for nothing: their table would be too large to say anything."""


def columns_named(function: Callable[..., Any], columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that a function, or a function of the same file that it calls, names as a word."""
    words = set(re.findall(r"\w+", " ".join(_sources(function, set()))))
    return tuple(name for name in columns if name in words)


def workload(functions: Sequence[Callable[..., Any]], columns: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """What several findings ask for: two to five columns each, once."""
    named = (columns_named(function, columns) for function in functions)
    return tuple(dict.fromkeys(names for names in named if 1 < len(names) <= MOST))


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
