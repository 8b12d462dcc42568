"""Which lines of the targets each test runs, and how long it takes: recorded once, kept in `.mutation-cache`.

A record belongs to one test file and is taken again when that file changes. When a function under test has changed
since, its lines are no longer known, and every test that ran the function counts as running each of its lines.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".mutation-cache"
QUIET_CALLS = 60
"""After so many calls of a function without a new line, a test is no longer watched in it."""
IMPORT = "(import)"
"""Stands for the import of a test file, which computes tables of cases before any test runs."""

Lines = dict[str, set[int]]
"""Lines that were run, by file and outermost function."""


@dataclass(slots=True)
class Bucket:
    """What one test runs."""

    codes: dict[int, list[Any]] = field(default_factory=dict)
    """By the id of a code object: the code, its lines, calls since the last new line, its trace function."""


class Tracer:
    """Watches lines of the targets only; every other function costs one look at its file name."""

    def __init__(self, files: Iterable[str]) -> None:
        self.files = set(files)
        self.bucket = Bucket()

    def start(self) -> None:
        threading.settrace(self.trace)
        sys.settrace(self.trace)

    def trace(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if code.co_filename not in self.files:
            return None
        codes = self.bucket.codes
        known = codes.get(id(code))
        if known is None:
            known = codes[id(code)] = _watch(code)
        known[2] += 1
        return known[3] if known[2] < QUIET_CALLS else None


def _watch(code: CodeType) -> list[Any]:
    lines: set[int] = set()
    known = [code, lines, 0, None]

    def trace_lines(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            known[2] = 0
        return trace_lines

    known[3] = trace_lines
    return known


class Recorder:
    """A pytest plugin: one bucket for each test, which includes those of the wider fixtures that it uses."""

    def __init__(self, targets: Iterable[Path], test_files: Iterable[Path]) -> None:
        self.digests = {path: digest_of(path) for path in test_files}
        self.places = Places(targets)
        self.tracer = Tracer(self.places.functions)
        self.tests: dict[str, dict[str, Any]] = {}
        self.imports: dict[Path, list[Bucket]] = {}
        self._fixtures: dict[int, list[Bucket]] = {}
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        before, self.tracer.bucket = self.tracer.bucket, Bucket()
        answer = yield
        if isinstance(collector, pytest.Module):
            self.imports.setdefault(collector.path, []).append(self.tracer.bucket)
        self.tracer.bucket = before
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outer, self.tracer.bucket = self.tracer.bucket, Bucket()
        try:
            return (yield)
        finally:
            self._fixtures.setdefault(id(fixturedef), []).append(self.tracer.bucket)
            self.tracer.bucket = outer

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        self.tracer.bucket, self._failed, start = Bucket(), False, _cpu_seconds()
        answer = yield
        buckets = [self.tracer.bucket]
        info = getattr(item, "_fixtureinfo", None)
        for definitions in info.name2fixturedefs.values() if info is not None else ():
            for definition in definitions:
                buckets += self._fixtures.get(id(definition), [])
        seconds, lines = round(_cpu_seconds() - start, 4), self.places.told(buckets)
        self.tests[item.nodeid] = {"seconds": seconds, "passed": not self._failed, "lines": lines}
        if nextitem is None or nextitem.path != item.path:
            self.keep(item.path)
        return answer

    def keep(self, path: Path) -> None:
        """A file is done: what its tests ran goes to the disk."""
        at_import = self.places.told(self.imports.get(path, []))
        kept = {
            "digest": self.digests.get(path, ""),
            "tests": self.tests,
            "import": at_import,
            "modules": sorted(sys.modules),
        }
        _cache_file(path).write_text(json.dumps(kept), encoding="utf-8")
        self.tests = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= not report.passed


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def functions_of(path: Path) -> dict[str, tuple[int, int, str]]:
    """The outermost functions of a module: first line, last line, and a digest of their source."""
    source = path.read_text(encoding="utf-8")
    lines, found = source.splitlines(), {}

    def visit(body: list[ast.stmt], above: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{above}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
                found[f"{above}{node.name}"] = (node.lineno, node.end_lineno or node.lineno, digest)

    visit(ast.parse(source).body, "")
    return found


class Places:
    """From a file and a line to the outermost function there, with the line counted from its beginning."""

    def __init__(self, files: Iterable[Path]) -> None:
        self.functions = {str(path): functions_of(path) for path in files}
        self._by_line = {
            path: {
                line: (name, line - first)
                for name, (first, last, _) in found.items()
                for line in range(first, last + 1)
            }
            for path, found in self.functions.items()
        }

    def told(self, buckets: Iterable[Bucket]) -> dict[str, list[Any]]:
        """By `file function`: the digest of the function, then the lines that were run."""
        lines: dict[str, set[int]] = {}
        digests: dict[str, str] = {}
        for bucket in buckets:
            for code, seen, *_ in bucket.codes.values():
                for line in seen:
                    place = self._by_line[code.co_filename].get(line)
                    if place is not None:
                        key = f"{Path(code.co_filename).relative_to(ROOT)} {place[0]}"
                        lines.setdefault(key, set()).add(place[1])
                        digests[key] = self.functions[code.co_filename][place[0]][2]
        return {key: [digests[key], *sorted(seen)] for key, seen in lines.items()}


def record(test_files: list[Path], targets: list[Path], options: list[str]) -> None:
    """Run test files under the tracer and keep what each test ran; meant for a process of its own."""
    for path in targets:
        importlib.import_module(module_of(path))
    recorder = Recorder(targets, test_files)
    recorder.tracer.start()
    code = pytest.main([*map(str, test_files), *options], plugins=[recorder])
    if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        for path in test_files:
            if load(path) is None:
                recorder.keep(path)  # a file without any test


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def digest_of(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def _cache_file(path: Path) -> Path:
    CACHE.mkdir(exist_ok=True)
    return CACHE / (str(path.relative_to(ROOT)).replace(os.sep, "+") + ".json")


def load(path: Path) -> dict[str, Any] | None:
    """The record of a test file, unless the file has changed since."""
    kept = _cache_file(path)
    if not kept.exists():
        return None
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found if found["digest"] == digest_of(path) else None


def refresh(test_files: list[Path], again: bool = False) -> None:
    """Record what is not recorded, in a process of its own."""
    stale = [str(path) for path in test_files if again or load(path) is None]
    if stale:
        print(f"recording {len(stale)} test files", flush=True)
        subprocess.run([sys.executable, "-m", "mutation", "--record-files", *stale], cwd=ROOT, check=False)
