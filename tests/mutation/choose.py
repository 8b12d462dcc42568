"""Which tests are run on a mutant, and in which order: those that run the changed line, quick and near ones first."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mutation.operators import Mutant
from mutation.record import ROOT, functions_of, load

SLOWEST = 8.0
"""CPU seconds of the slowest test that is used where none is named."""


@dataclass(slots=True)
class Known:
    """One recorded test."""

    node: str
    seconds: float
    breadth: int
    """How many functions of the targets it runs: tests of a whole journey say little about one of them, and late."""


@dataclass(slots=True)
class Records:
    """All that was recorded, the other way round: from functions and lines to tests."""

    tests: dict[str, Known] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    """Modules that tests imported while they ran; importing them before forking saves each child the time."""
    failing: list[str] = field(default_factory=list)
    _ran: dict[str, list[tuple[str, str, frozenset[int]]]] = field(default_factory=lambda: defaultdict(list))
    """By the name of a function: test, digest of the function's source then, lines from its beginning."""
    _imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By the name of a function: test files that run it when they are imported."""
    _functions: dict[str, dict[str, tuple[int, int, str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, test_files: list[Path]) -> Records:
        """The records of these test files."""
        records = cls()
        for path in test_files:
            found = load(path)
            if found is not None:
                records._add(str(path.relative_to(ROOT)), found)
        return records

    def _add(self, name: str, found: dict[str, Any]) -> None:
        self.modules |= set(found["modules"])
        for place in found["import"]:
            self._imports[place.split(" ")[1]].add(name)
        for node, each in found["tests"].items():
            if not each["passed"]:
                self.failing.append(node)
                continue
            self.tests[node] = Known(node, each["seconds"], len(each["lines"]))
            if each["seconds"] <= SLOWEST:
                for place, (digest, *lines) in each["lines"].items():
                    self._ran[place.split(" ")[1]].append((node, digest, frozenset(lines)))

    def functions(self, file: str) -> dict[str, tuple[int, int, str]]:
        """The functions of a module as they are now."""
        if file not in self._functions:
            self._functions[file] = functions_of(ROOT / file)
        return self._functions[file]

    def covering(self, mutant: Mutant) -> list[Known]:
        """Tests that run the mutant's lines, in the order in which they are tried.

        A function is known by its name and its source, so records stay good when it moves to another module. One that
        has changed is run by those who ran it before; one that is new, by those who ran anything beside it.
        """
        if mutant.tests:
            return [test for test in self.tests.values() if test.node.startswith(mutant.tests)]
        first, _, digest = self.functions(mutant.file)[mutant.function]
        wanted = range(mutant.line - first, mutant.last - first + 1)
        ran = self._ran.get(mutant.function, [])
        same = [(node, lines) for node, then, lines in ran if then == digest]
        if same:
            nodes = {node for node, lines in same if not lines.isdisjoint(wanted)}
        elif ran:
            nodes = {node for node, *_ in ran}
        elif self._is_changed(mutant.file):
            nodes = {node for name in self.functions(mutant.file) for node, *_ in self._ran.get(name, [])}
        else:
            nodes = set()
        return order([self.tests[node] for node in nodes])

    def _is_changed(self, file: str) -> bool:
        """Whether some function of a module is not as it was recorded, so that others may be new."""
        return any(
            all(then != digest for _, then, _ in self._ran[name])
            for name, (_, _, digest) in self.functions(file).items()
            if name in self._ran
        )

    def importing(self, mutant: Mutant) -> list[Known]:
        """Tests whose file runs the mutant's function while it is imported."""
        files = self._imports.get(mutant.function, set())
        quick = [test for test in self.tests.values() if test.seconds <= SLOWEST]
        return order([test for test in quick if test.node.split("::")[0] in files])


def order(tests: list[Known]) -> list[Known]:
    """Quick ones first; of one test with many cases first one case, then those of all others, then its second."""
    by_function: dict[str, list[Known]] = defaultdict(list)
    for test in sorted(tests, key=_rank):
        by_function[test.node.split("[")[0]].append(test)
    rounds = [(place, test) for cases in by_function.values() for place, test in enumerate(cases)]
    return [test for _, test in sorted(rounds, key=lambda each: (each[0], _rank(each[1])))]


def _rank(test: Known) -> tuple[float, str]:
    return (test.seconds + 0.01) * test.breadth**0.5, test.node


def within(tests: list[Known], seconds: float) -> list[Known]:
    """As many of them as fit, at least the first."""
    chosen, total = [], 0.0
    for test in tests:
        if total + test.seconds <= seconds or not chosen:
            chosen.append(test)
            total += test.seconds
    return chosen
