"""What all tests share: one engine of each kind that is installed, and the real tables where they are present."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from deniable.engines import Engine
from deniable.engines.duckdb import DuckDBEngine

sys.path.append(str(Path(__file__).parent))
"""Modules that tests share stand beside this one, such as clinic.py."""

DRAWING = ("statistical", "audits")
"""Folders of tests that draw real noise and may ring falsely, each with its stated small chance."""
NOISY = (
    *("test_query_", "test_synth_", "test_learn_", "test_localdp_", "test_masking_", "test_assess_", "test_attacks_"),
    *("test_curator_query", "test_curator_train", "test_curator_mask"),
)
"""Packages whose other tests run whole mechanisms too, mostly with so much budget that noise is a rounding error."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An alarm of a test that draws noise counts when three independent draws ring.

    Noise comes from the operating system and has no seed, so a test with a chance of 1e-3 to ring falsely would stop
    one landing in dozens; three in a row have 1e-9. What is truly broken rings each time.
    """
    for item in items:
        if item.path.parent.name in DRAWING or item.path.name.startswith(NOISY):
            item.add_marker(pytest.mark.flaky(reruns=2))


ENGINES: dict[str, Callable[[Path], Engine]] = {
    "duckdb": lambda root: DuckDBEngine(root=root, threads=2, memory="512MB"),
}
"""How each engine is opened for tests; later engines add a line here, and must pass the contract suite."""


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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real tables beside the project; a test that needs it is skipped where it is absent."""
    folder = Path(__file__).parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real tables (../shared/data) are not here")
    return folder


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
