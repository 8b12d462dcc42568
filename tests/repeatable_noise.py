"""Quick tests draw the same noise on every machine, so that one commit has one result.

Each test has a stream of bytes that its name decides, and so has each fixture that several tests share; a rerun and a
forked process have streams of their own. `DENIABLE_TEST_NOISE=fresh` draws from the operating system instead, and so do
the slow tests. Programs that a test starts (servers, commands in another process) draw from the operating system, too.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from deniable.dp.samplers.entropy import SystemEntropy
from deniable.localdp import client

VARIABLE = "DENIABLE_TEST_NOISE"


class Stream:
    """Bytes that a name decides."""

    def __init__(self, name: str) -> None:
        self.name, self.forks, self.random = name, 0, Random(name)

    def branch(self) -> Stream:
        """The stream of the next forked process."""
        return Stream(f"{self.name}/{self.forks}")


current = Stream("collection")


def take(count: int) -> bytes:
    """The next bytes of the stream of what runs now."""
    return current.random.randbytes(count)


def start(config: pytest.Config) -> None:
    """Replace the operating system's entropy by streams, unless the run asks for fresh noise."""
    if os.environ.get(VARIABLE) == "fresh" or config.option.markexpr == "slow":
        return
    SystemEntropy.take = lambda _, count: take(count)  # type: ignore[method-assign]
    client.system_draw.__defaults__ = (take,)
    os.register_at_fork(before=_count_fork, after_in_child=_begin_branch)


def _count_fork() -> None:
    current.forks += 1


def _begin_branch() -> None:
    global current
    current = current.branch()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test begins its stream; each rerun another one."""
    global current
    current = Stream(f"{item.nodeid}#{getattr(item, 'execution_count', 1)}")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, object, object]:
    """What several tests share does not depend on which of them asks first."""
    global current
    before = current
    if fixturedef.scope != "function":
        current = Stream(f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]")
    try:
        return (yield)
    finally:
        current = before
