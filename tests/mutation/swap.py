"""Puts the code of a mutant into the live process: every function object that runs the old code runs the new one.

Decorated functions, methods, properties, cached functions and functions in tables are all found, because functions are
looked up by their code object and not by their name.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType


class NotSwapped(Exception):
    """The change is in no function of the live process: the source is newer, or the code runs at import only."""


def codes_of(code: CodeType) -> Iterator[CodeType]:
    """The functions of a module and of its classes, outermost ones only, in the order of the source."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if _is_class_body(constant):
                yield from codes_of(constant)
            else:
                yield constant


def _is_class_body(code: CodeType) -> bool:
    return "__module__" in code.co_names and "__qualname__" in code.co_names and not code.co_argcount


def compile_pairs(source: str, tree: ast.Module, path: Path) -> list[tuple[CodeType, CodeType]]:
    """The code objects that a change makes different: old and new."""
    old = compile(source, str(path), "exec", dont_inherit=True)
    new = compile(tree, str(path), "exec", dont_inherit=True)
    return [(a, b) for a, b in zip(codes_of(old), codes_of(new), strict=True) if a != b]


def swap(source: str, tree: ast.Module, path: Path) -> int:
    """Make the change in this process; gives how many function objects were changed."""
    pairs = compile_pairs(source, tree, path)
    if not pairs:
        raise NotSwapped("the change makes no difference in any function")
    live = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
    changed = 0
    for old, new in pairs:
        for function in live:
            if function.__code__ == old and Path(function.__code__.co_filename) == path:
                function.__code__ = new
                changed += 1
    if not changed:
        raise NotSwapped("no live function runs this code")
    return changed
