"""What is public is shown, documented and typed: `dir` lists it, and each name has its help."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from typing import Any

import pytest

import deniable
from deniable import Curator

PACKAGES = ["deniable", "deniable.client", "deniable.curator", "deniable.engines", "deniable.ledger",
            "deniable.release", "deniable.world"]  # fmt: skip
"""The packages that say what of them is public."""
OPEN = {"record"}
"""Methods that take whatever public facts the caller names."""


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_shows_what_is_public_and_nothing_else(name: str) -> None:
    package = importlib.import_module(name)
    assert sorted(dir(package)) == sorted(package.__all__)
    assert all(getattr(package, each) is not None for each in package.__all__)
    assert not [each for each in package.__all__ if each.startswith("_") and each != "__version__"]


def list_documented(holder: Any) -> list[tuple[str, Any]]:
    """The public methods and properties of a class."""
    return [
        (f"{holder.__name__}.{name}", inspect.getattr_static(holder, name))
        for name in dir(holder)
        if not name.startswith("_") and not isinstance(inspect.getattr_static(holder, name), type(None))
    ]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_has_its_help(name: str) -> None:
    package = importlib.import_module(name)
    found = [(each, getattr(package, each)) for each in package.__all__ if each != "__version__"]
    for each, value in found:
        if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
            assert inspect.getdoc(value), f"{name}.{each} says nothing of itself"
    for title, member in (one for _, value in found if inspect.isclass(value) for one in list_documented(value)):
        if isinstance(member, property | staticmethod | classmethod) or inspect.isfunction(member):
            assert inspect.getdoc(member), f"{title} says nothing of itself"


def test_methods_of_a_curator_say_which_arguments_they_take_and_of_which_type() -> None:
    for name, member in list_documented(Curator):
        method = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not inspect.isfunction(method):
            continue
        signature = inspect.signature(method)
        arguments = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        kinds = {each.kind for each in arguments}
        assert inspect.Parameter.VAR_POSITIONAL not in kinds, name
        assert inspect.Parameter.VAR_KEYWORD not in kinds or name.partition(".")[2] in OPEN, name
        assert all(each.annotation is not each.empty for each in arguments), name
        assert signature.return_annotation is not signature.empty, name


def test_the_curator_has_every_verb() -> None:
    verbs = (
        "query explain anonymize check mask scan synthesize generate inspect parity train predict attack audit "
        "randomize estimate survey margins top watch find_bounds sample_and_aggregate release register"
    )
    assert not [verb for verb in verbs.split() if not callable(getattr(Curator, verb, None))]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Curater'"):
        _ = deniable.Curater  # type: ignore[attr-defined]


def test_importing_the_package_loads_no_library() -> None:
    heavy = "{'pyarrow', 'duckdb', 'numpy', 'pandas', 'polars', 'sqlglot', 'typer'} & set(sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, deniable; dir(deniable); print({heavy})"], capture_output=True, check=True
    )
    assert told.stdout.strip() == b"set()"
