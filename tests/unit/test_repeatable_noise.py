"""Quick tests draw the same noise on every machine; forked processes and reruns draw other noise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import repeatable_noise
from deniable.dp.samplers.entropy import SYSTEM
from repeatable_noise import Stream

repeatable = pytest.mark.skipif(
    os.environ.get(repeatable_noise.VARIABLE) == "fresh", reason="this run draws from the operating system"
)


def test_a_name_decides_the_stream() -> None:
    one, again, other = (Stream(name).random.randbytes(32) for name in ("one", "one", "other"))
    assert one == again
    assert one != other


@repeatable
def test_a_test_draws_from_the_stream_of_its_name(request: pytest.FixtureRequest) -> None:
    first = SYSTEM.take(32)
    assert first == Stream(f"{request.node.nodeid}#1").random.randbytes(32)
    assert SYSTEM.take(32) != first


@repeatable
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_processes_draw_other_noise(tmp_path: Path) -> None:
    for i in range(2):
        if (child := os.fork()) == 0:
            (tmp_path / str(i)).write_bytes(SYSTEM.take(32))
            os._exit(0)
        os.waitpid(child, 0)
    drawn = {SYSTEM.take(32), *(path.read_bytes() for path in tmp_path.iterdir())}
    assert len(drawn) == 3


def test_a_program_draws_from_the_operating_system() -> None:
    code = "from deniable.dp.samplers.entropy import SYSTEM; print(SYSTEM.take(16).hex())"
    first, second = (subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(2))
    assert len(first.stdout.strip()) == 32
    assert first.stdout != second.stdout
