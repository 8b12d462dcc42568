"""Runs tests on mutants: one forked child for each, in which the code is swapped and the first failing test ends it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from mutation.choose import Known, Records, within
from mutation.handwritten import substitute_file
from mutation.operators import Mutant, mutate
from mutation.record import ROOT
from mutation.swap import NotSwapped, swap

PATIENCE = 3
"""CPU seconds that a test may take beyond five times its usual ones; a mutant that takes more hangs, and is killed."""
NAMED_SECONDS = 150
"""CPU seconds of tests for a mutant whose tests are named: they are all run."""
WALL = 240
"""Seconds after which a child that only waits is ended."""
MEMORY = 4 << 30
"""Bytes that a mutant may ask for beyond what the parent has."""
OPTIONS = [
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:rerunfailures"),
    *("--no-header", "--no-summary"),
    *("-m", "not slow", "--tb=no", "--doctest-modules", "--continue-on-collection-errors"),
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    outcome: str
    """killed, survived, uncovered (no test runs the line) or skipped."""
    why: str = ""
    seconds: float = 0.0


@dataclass(slots=True)
class Trials:
    """A pytest plugin: it lets pytest collect, and then runs mutants in place of the tests."""

    records: Records
    mutants: list[Mutant]
    seconds: float
    """CPU seconds of tests that a mutant must survive."""
    tell: Callable[[Verdict], None]
    verdicts: list[Verdict] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _sound: dict[str, bool] = field(default_factory=dict)
    """Tests that were seen to pass, or not, in a child without any change."""

    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", derandomize=True, database=None, deadline=None, phases=phases)
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        warm(self.records.modules)
        for mutant in self.mutants:
            verdict = self.judge(mutant)
            self.verdicts.append(verdict)
            self.tell(verdict)
        return True

    def judge(self, mutant: Mutant) -> Verdict:
        """Run what should notice; a test that fails without the change too is left out from then on."""
        start = time.monotonic()
        chosen = self._chosen(self.records.covering(mutant), NAMED_SECONDS if mutant.tests else self.seconds)
        verdict = Verdict(mutant, "uncovered", "no test runs this line")
        if chosen:
            verdict = self._run(mutant, chosen, _run_items)
        if verdict.outcome in ("survived", "uncovered") and (
            importing := self._chosen(self.records.importing(mutant), self.seconds)
        ):
            verdict = self._run(mutant, importing, _run_afresh)
        return Verdict(mutant, verdict.outcome, verdict.why, round(time.monotonic() - start, 2))

    def _chosen(self, tests: list[Known], seconds: float) -> list[Known]:
        usable = [each for each in tests if each.node in self._items and self._sound.get(each.node, True)]
        return within(usable, seconds)

    def _run(self, mutant: Mutant, tests: list[Known], how: Runner) -> Verdict:
        while tests:
            outcome, why = self._fork(mutant, tests, how)
            if outcome != "failed":
                return Verdict(mutant, outcome, why)
            if why not in self._sound:
                again, _ = self._fork(None, [each for each in tests if each.node == why] or tests, how)
                self._sound[why] = again == "survived"
            if self._sound[why]:
                return Verdict(mutant, "killed", why)
            tests = [each for each in tests if each.node != why]
        return Verdict(mutant, "uncovered", "no sound test runs this line")

    def _fork(self, mutant: Mutant | None, tests: list[Known], how: Runner) -> tuple[str, str]:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _live(mutant, [(self._items[each.node], each.seconds) for each in tests], how, writer)
        os.close(writer)
        return _wait(child, reader)


Runner = Callable[[list[tuple[pytest.Item, float]], Callable[[str, str], None]], None]


def _wait(child: int, reader: int) -> tuple[str, str]:
    """What a child tells before it ends; one that ends without a word was stopped by a limit, or crashed."""
    with os.fdopen(reader) as told:
        ready, _, _ = select.select([told], [], [], WALL)
        line = told.readline() if ready else ""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if line:
        outcome, why = json.loads(line)
        return outcome, why
    signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return "killed", "ran out of time" if signalled in (signal.SIGXCPU, signal.SIGKILL) else f"crashed ({status})"


def _live(mutant: Mutant | None, items: list[tuple[pytest.Item, float]], how: Runner, writer: int) -> None:
    """The life of a child; it never returns."""

    def end(outcome: str, why: str) -> None:
        os.write(writer, (json.dumps([outcome, why]) + "\n").encode())
        os._exit(0)

    try:
        os.setpgrp()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        _limit_memory()
        if mutant is not None:
            make(mutant)
        how(items, end)
        end("survived", f"{len(items)} tests")
    except NotSwapped as reason:
        end("skipped", str(reason))
    except BaseException as error:  # a child must never fall back into the parent's loop
        end("failed", f"{type(error).__name__} outside a test")


def make(mutant: Mutant) -> None:
    """Make the change in this process."""
    path = ROOT / mutant.file
    if path.suffix != ".py":
        return substitute_file(mutant)
    source = path.read_text(encoding="utf-8")
    swap(source, mutate(source, mutant), path)
    return None


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) if sys.platform == "linux" else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def _allow(seconds: float) -> None:
    """From now on this process may use so many CPU seconds more."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + 5 * seconds + PATIENCE) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _run_items(items: list[tuple[pytest.Item, float]], end: Callable[[str, str], None]) -> None:
    """Run tests as they were collected by the parent."""
    for place, (item, seconds) in enumerate(items):
        following = items[place + 1][0] if place + 1 < len(items) else None
        _allow(seconds)
        if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
            end("failed", item.nodeid)


def _run_afresh(items: list[tuple[pytest.Item, float]], end: Callable[[str, str], None]) -> None:
    """Import the test files again under the change, for what they compute at import, and run their tests."""
    files = {str(item.path) for item, _ in items}
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) in files:
            del sys.modules[name]
    _allow(sum(seconds for _, seconds in items) + 5)
    code = pytest.main(["-x", *OPTIONS, *(item.nodeid for item, _ in items)])
    if code != pytest.ExitCode.OK:
        end("failed", " ".join(sorted(os.path.relpath(file, ROOT) for file in files)) + " imported again")


def warm(modules: Iterable[str]) -> None:
    """Import beforehand what tests import while they run."""
    for name in sorted(modules):
        if name.split(".")[0] in ("deniable", "scipy", "numpy", "pyarrow", "sqlglot", "duckdb", "numba", "pandas"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def run(records: Records, mutants: list[Mutant], seconds: float, tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Judge all mutants."""
    trials = Trials(records, mutants, seconds, tell)
    nodes = {
        each.node.split("::")[0]
        for mutant in mutants
        for each in [*records.covering(mutant), *records.importing(mutant)]
    }
    with open(os.devnull, "w", encoding="utf-8") as quiet, contextlib.redirect_stdout(quiet):
        pytest.main([*OPTIONS, *sorted(nodes)], plugins=[trials])
    return trials.verdicts
