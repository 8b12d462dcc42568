"""Which tests may be run again, and how often: those marked as statistical, with their stated chance of a false alarm.

Noise may be drawn anew (tests/repeatable_noise.py). A test whose chance to ring falsely is above one in a million
says so: `@pytest.mark.statistical(false_alarm=1e-4)`. Its alarm counts when three independent draws ring in a row; what
is truly broken rings each time. A test without the marker is never run again, so nothing else can hide a test that
fails now and then. A run tells which tests were run again, and fails when more were than the stated chances explain.
"""

from __future__ import annotations

from typing import Any

import pytest

RERUNS = 2
MOST_RERUNNABLE = 350
"""Tests that may be marked, each case of a parametrized test counted."""
MOST_RERUNS = 3
"""Alarms in one run. The stated chances add up to less than one in a run of everything."""
LEAST_RATE, MOST_RATE = 1e-6, 1e-2
"""A test that rings falsely less often needs no second run; one that rings more often is a bad test."""
COUNT = pytest.StashKey[tuple[int, int, float]]()
"""Tests that may be run again, all tests, and the alarms that their rates lead to expect."""
WORKERS = pytest.StashKey[list[tuple[int, int, float]]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let marked tests be run again, and no other."""
    if config.getoption("reruns", None):
        raise pytest.UsageError("--reruns would run every test again: mark a test as statistical instead")
    rates = {item: read_rate(item) for item in items}
    marked = {item: rate for item, rate in rates.items() if rate is not None}
    if len(marked) > MOST_RERUNNABLE:
        raise pytest.UsageError(f"{len(marked)} tests are marked as statistical, and {MOST_RERUNNABLE} may be")
    config.stash[COUNT] = len(marked), len(items), sum(marked.values())
    if config.pluginmanager.hasplugin("rerunfailures"):
        for item in marked:
            item.add_marker(pytest.mark.flaky(reruns=RERUNS))


def read_rate(item: pytest.Item) -> float | None:
    """The false-alarm rate that a test states; None where it is not marked."""
    if item.get_closest_marker("flaky") is not None:
        raise pytest.UsageError(f"{item.nodeid}: mark it as statistical with its false-alarm rate, not as flaky")
    marker = item.get_closest_marker("statistical")
    if marker is None:
        return None
    rate = marker.kwargs.get("false_alarm")
    if marker.args or list(marker.kwargs) != ["false_alarm"] or not isinstance(rate, float):
        raise pytest.UsageError(f"{item.nodeid}: say statistical(false_alarm=...), with a number")
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise pytest.UsageError(
            f"{item.nodeid}: a false-alarm rate of {rate:g} is not in [{LEAST_RATE:g}, {MOST_RATE:g}]"
        )
    return rate


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """How many of the collected tests may be run again."""
    return tell_count(config.stash.get(COUNT, (0, 0, 0.0)))


def tell_count(count: tuple[int, int, float]) -> str:
    """The count in words."""
    marked, collected, expected = count
    return f"reruns: {marked} of {collected} tests may be run again (statistical; {expected:.2g} false alarms expected)"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the count to the process that prints it; fail where more tests rang than chance explains."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["statistical"] = session.config.stash.get(COUNT, (0, 0, 0.0))
    elif len(find_reruns(session.config)) > MOST_RERUNS:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of a parallel run has ended; all of them have collected the same tests."""
    told = getattr(node, "workeroutput", {}).get("statistical")
    if told is not None:
        node.config.stash[WORKERS] = [*node.config.stash.get(WORKERS, []), tuple(told)]


def find_reruns(config: pytest.Config) -> list[str]:
    """The tests that were run again, once for each time."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return [report.nodeid for report in reporter.stats.get("rerun", [])] if reporter is not None else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the tests that were run again."""
    for count in config.stash.get(WORKERS, [])[:1]:
        terminalreporter.write_line(tell_count(count))
    found = find_reruns(config)
    if found:
        terminalreporter.section(f"{len(found)} reruns")
        for node in dict.fromkeys(found):
            terminalreporter.write_line(f"{found.count(node)} x {node}")
    if len(found) > MOST_RERUNS:
        terminalreporter.write_line(f"FAILED: more than {MOST_RERUNS} reruns are no chance", red=True)
