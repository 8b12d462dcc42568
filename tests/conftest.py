"""What all tests share: one engine of each kind that is installed, and a PostgreSQL where one can be started."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer.testing
from hypothesis import settings
from hypothesis.internal.conjecture import providers

from deniable.curator.scope import Scope
from deniable.engines import Engine
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import DeniableError
from deniable.policy import yaml_tree

sys.path.append(str(Path(__file__).parent))
"""Modules that tests share stand beside this one, such as clinic.py."""

import repeatable_noise  # noqa: E402  beside this module
import reruns  # noqa: E402

STATES = pytest.StashKey[str]()
NUMBERS = itertools.count()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Nothing of the tests' own state stays."""
    shutil.rmtree(config.stash[STATES], ignore_errors=True)


MAKE_FOLDER = pytest.TempPathFactory.mktemp
SKETCH_ROWS = Scope.sketch_rows
NO_CONSTANTS = providers.Constants()


def make_folder(factory: pytest.TempPathFactory, config: pytest.Config, name: str, numbered: bool = True) -> Path:
    """A folder for fixtures that several tests share: what is opened in it has a state of its own, too."""
    os.environ["DENIABLE_STATE"] = f"{config.stash[STATES]}/{os.getpid()}-{next(NUMBERS)}"
    return MAKE_FOLDER(factory, name, numbered)


def pytest_configure(config: pytest.Config) -> None:
    """Only tests that state their false-alarm rate are ever run again."""
    config.pluginmanager.register(reruns, "reruns")
    config.pluginmanager.register(repeatable_noise, "repeatable_noise")
    repeatable_noise.start(config)
    config.stash[STATES] = tempfile.mkdtemp(prefix="deniable-states-")
    os.environ["DENIABLE_STATE"] = f"{config.stash[STATES]}/shared"
    # Tests write the same small tables again and again; those about the same rows in two files use `marked_rows`.
    Scope.sketch_rows = lambda *_: None  # type: ignore[method-assign]
    pytest.TempPathFactory.mktemp = functools.partialmethod(make_folder, config)  # type: ignore[method-assign,assignment]
    # Commands are built from their signatures once, and not at each call of a runner; so is the tree of a YAML text.
    typer.testing._get_command = functools.cache(typer.testing._get_command)
    yaml_tree._compose = functools.lru_cache(50)(yaml_tree._compose)
    settings.load_profile("searching" if config.option.markexpr == "slow" else "repeatable")
    if config.option.markexpr != "slow":
        # Values that stand in the modules loaded so far are drawn too: which these are depends on the order of tests.
        providers._get_local_constants = lambda: NO_CONSTANTS  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with the mark `quick_cases(n)`, n cases spread over all are quick; the others are slow."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("quick_cases") and not item.get_closest_marker("slow") and "[" in item.name:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for of_one in cases.values():
        marker = of_one[0].get_closest_marker("quick_cases")
        assert marker is not None
        quick = {number * len(of_one) // marker.args[0] for number in range(marker.args[0])}
        for number, item in enumerate(of_one):
            if number not in quick:
                item.add_marker(pytest.mark.slow)


settings.register_profile("repeatable", derandomize=True)
settings.register_profile("searching", derandomize=False)
"""The quick tests draw the same examples on every machine, so that one commit has one result; the slow ones search."""


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "duckdb": lambda root: DuckDBEngine(root=root, threads=2, memory="512MB"),
}
"""How each engine is opened for tests; later engines add a line here, and must pass the contract suite."""


@pytest.fixture(scope="session")
def sketch_rows() -> Callable[..., Any]:
    """How rows are marked outside of tests, for fixtures that outlive a test."""
    return SKETCH_ROWS


@pytest.fixture
def marked_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are known again in other files, as they are outside of tests."""
    monkeypatch.setattr(Scope, "sketch_rows", SKETCH_ROWS)


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What is known of ledgers outside of them is each test's own."""
    # Processes that were forked count from one number on: each has its own.
    monkeypatch.setenv("DENIABLE_STATE", f"{request.config.stash[STATES]}/{os.getpid()}-{next(NUMBERS)}")


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An open engine whose relative paths start at the test's own folder."""
    with ENGINES[request.param](tmp_path) as opened:
        yield opened


@pytest.fixture
def table(engine: Engine) -> Callable[..., str]:
    """Attach a small table given by its columns, and say its name: `table(age=[30, 41], name="people")`."""

    def attach(name: str = "t", **columns: list[object]) -> str:
        engine.attach(name, pa.table(columns))
        return name

    return attach


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise, and every key is shown: what is left is the exact arithmetic."""
    from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism

    for mechanism in (LaplaceMechanism, GaussianMechanism):
        monkeypatch.setattr(mechanism, "release", lambda self, values, entropy=None: values)
    monkeypatch.setattr(KeyThreshold, "threshold", property(lambda self: 1))


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[str]:
    """The address of a private PostgreSQL; a test that needs it is skipped where none can be started."""
    from postgres_cluster import cluster

    with ExitStack() as stack:
        try:
            address = stack.enter_context(cluster())
        except RuntimeError as reason:
            pytest.skip(str(reason))
        yield address


@pytest.fixture(scope="session")
def spark_session() -> Any:
    """Spark on this machine, which lets little be collected; a test that needs it is skipped where it cannot run."""
    from engines_elsewhere import start_spark

    try:
        return start_spark()
    except DeniableError as reason:
        pytest.skip(str(reason))
