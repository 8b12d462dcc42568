"""The mutation runner itself: what it changes, how it swaps code, what it calls killed."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mutation.choose import Known, order, within
from mutation.handwritten import handwritten_mutants, read_entry
from mutation.operators import Mutant, generate, mutate
from mutation.record import ROOT
from mutation.swap import NotSwapped, swap

TESTS = Path(__file__).parents[1]


def mutants_of(folder: Path, source: str) -> list[Mutant]:
    path = folder / "toy.py"
    path.write_text(source, encoding="utf-8")
    return generate(path, folder)


def changed_lines(folder: Path, body: str, returns: str = "") -> set[str]:
    """All that a function with this one statement becomes."""
    source = f"def f(a, b, c){returns}:\n    {body}\n"
    found = set()
    for mutant in mutants_of(folder, source):
        function = mutate(source, mutant).body[0]
        assert isinstance(function, ast.FunctionDef)
        found.add("\n".join(ast.unparse(line) for line in function.body))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return a < b", {"return a <= b", "return a >= b"}),
        ("return a < b <= c", {"return a <= b <= c", "return a >= b <= c", "return a < b < c", "return a < b > c"}),
        ("return a is not None", {"return a is None"}),
        ("return a + b", {"return a - b"}),
        ("return a // b * c", {"return a // b / c", "return a * b * c"}),
        ("return a ** 2", {"return a * 2", "return a ** 3", "return a ** 1", "return a ** 0"}),
        ("return 0", {"return 1"}),
        ("return 1.5", {"return 3.0", "return 0.0"}),
        ("return a and (not b)", {"return a or not b", "return a and b"}),
        ("return b if a else c", {"return b if not a else c"}),
        ("return -a", {"return a"}),
        ("return max(a, b)", {"return min(a, b)"}),
        ("return math.floor(a)", {"return math.ceil(a)"}),
        ("return a.min()", {"return a.max()"}),
        ("raise ValueError(f'{a + 1}')", {"pass"}),
        ("check(a)", {"pass"}),
        ("a = clamp(a)", {"pass"}),
        ("a = clamp(b)", set()),
        ("a += b", {"pass"}),
        ("return f(True)", {"return f(False)"}),
        ("assert a > 0", set()),
        ("return f'{a + 1}'", set()),
        ("return isinstance(a, Left | Right)", set()),
        ("return (lambda x=1: x + a)()", {"return (lambda x=1: x - a)()"}),
    ],
)
def test_each_operator_makes_its_changes_and_no_other(body: str, expected: set[str], tmp_path: Path) -> None:
    assert changed_lines(tmp_path, body) == expected


def test_numbers_and_verdicts_are_returned_a_little_wrong(tmp_path: Path) -> None:
    assert changed_lines(tmp_path, "return f(a)", " -> int") == {"return f(a) + 1"}
    assert changed_lines(tmp_path, "return f(a)", " -> bool") == {"return not f(a)"}
    assert changed_lines(tmp_path, "return f(a)", " -> str") == set()


LEFT_ALONE = '''
"""A module of 1 line."""
LIMIT = 10

class Shape(Protocol):
    def area(self, n: int = 1) -> int:
        return 1 + 2

@njit(cache=True)
def compiled(a):
    return a + 1

@cached(1)
def documented(a: int = 1 + 1) -> Literal[1]:
    """Adds 1."""

class Plain:
    size: int = 3

    def __repr__(self):
        return self.size + 1
'''


def test_what_cannot_be_swapped_or_says_nothing_is_left_alone(tmp_path: Path) -> None:
    assert mutants_of(tmp_path, LEFT_ALONE) == []


def test_mutants_are_told_apart_and_keep_their_key_when_lines_move(tmp_path: Path) -> None:
    source = "def f(a):\n    return 2 * a + 2\n"
    before = mutants_of(tmp_path, source)
    after = mutants_of(tmp_path, "# a new line\n" + source)
    keys = [mutant.key for mutant in before]
    assert len(set(keys)) == len(keys)
    assert [mutant.key for mutant in after] == keys
    assert [mutant.line for mutant in after] == [mutant.line + 1 for mutant in before]


LIVE = """
from dataclasses import dataclass
from functools import cache, wraps

def wrapped(function):
    @wraps(function)
    def inner(*given):
        return function(*given)
    return inner

def plain(a):
    return a + 1

@wrapped
def decorated(a):
    return a + 2

@cache
def cached(a):
    return a + 3

def outer(a):
    def inner(b):
        return b + 4
    return inner(a)

@dataclass(frozen=True, slots=True)
class Value:
    a: int

    def method(self):
        return self.a + 5

    @property
    def prop(self):
        return self.a + 6

    @classmethod
    def made(cls, a):
        return cls(a + 7)

    @staticmethod
    def static(a):
        return a + 8

def listed(n):
    return [i + 9 for i in range(n)][0]

TABLE = {"held": plain}
"""


@pytest.fixture
def live(tmp_path: Path) -> ModuleType:
    path = tmp_path / "live_module.py"
    path.write_text(LIVE, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("live_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["live_module"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["live_module"]


CALLS = {
    1: lambda m: m.plain(10),
    2: lambda m: m.decorated(10),
    3: lambda m: m.cached(10),
    4: lambda m: m.outer(10),
    5: lambda m: m.Value(10).method(),
    6: lambda m: m.Value(10).prop,
    7: lambda m: m.Value.made(10).a,
    8: lambda m: m.Value.static(10),
    9: lambda m: m.listed(1) + 10,
}


@pytest.mark.parametrize("added", CALLS)
def test_a_swap_reaches_functions_however_they_are_held(added: int, live: ModuleType) -> None:
    path = Path(str(live.__file__))
    (chosen,) = [
        m for m in generate(path, path.parent) if m.operator == "arithmetic" and m.before.endswith(f"+ {added}")
    ]
    assert swap(LIVE, mutate(LIVE, chosen), path) == 1
    for other, call in CALLS.items():
        expected = 10 + other if other != added else 10 - other
        assert call(live) == (expected if other != 9 or added != 9 else 1)
    assert live.TABLE["held"](10) == (9 if added == 1 else 11)


def test_a_change_that_is_not_live_is_no_verdict(live: ModuleType, tmp_path: Path) -> None:
    path = Path(str(live.__file__))
    newer = LIVE.replace("a + 1", "a + 1 + 0")
    with pytest.raises(NotSwapped, match="no live function"):
        swap(newer, ast.parse(newer.replace("a + 1 + 0", "a + 100")), path)
    with pytest.raises(NotSwapped, match="no difference"):
        swap(LIVE, ast.parse(LIVE), path)


def test_quick_tests_come_first_and_cases_of_one_test_take_turns() -> None:
    tests = [Known("t::slow", 2.0, 1), Known("t::a[1]", 0.1, 1), Known("t::a[2]", 0.2, 1), Known("t::b", 0.3, 1)]
    ordered = [test.node for test in order(tests)]
    assert ordered == ["t::a[1]", "t::b", "t::slow", "t::a[2]"]
    assert [test.node for test in within(order(tests), 0.65)] == ["t::a[1]", "t::b", "t::a[2]"]
    assert [test.node for test in within([tests[0]], 0.1)] == ["t::slow"]


TOY = """
def limit(a):
    if a > 10:
        raise ValueError(a)
    return a

def untested(a):
    return a + 1

def count(n):
    i = 0
    while i < n:
        i += 1
    return i

def at_import(a):
    return a * 3
"""
TOY_TESTS = """
import pytest
from toy import at_import, count, limit

TABLE = at_import(2)

def test_limit():
    assert limit(9) == 9
    with pytest.raises(ValueError):
        limit(12)

def test_count():
    assert count(3) == 3

def test_table():
    assert TABLE == 6
"""
TRIAL = """
import json, sys
from pathlib import Path
root = Path.cwd()
import mutation.record
mutation.record.ROOT = root
mutation.record.CACHE = root / "cache"
from mutation.choose import Records
from mutation.operators import generate
from mutation.trials import OPTIONS, run
tests = [root / "test_toy.py"]
mutation.record.module_of = lambda path: path.stem
if sys.argv[1] == "record":
    mutation.record.record(tests, [root / "toy.py"], OPTIONS)
else:
    mutants = generate(root / "toy.py", root)
    verdicts = run(Records.read(tests), mutants, 5, lambda verdict: None)
    told = {f"{v.mutant.function}: {v.mutant.before} -> {v.mutant.after}": [v.outcome, v.why] for v in verdicts}
    Path("verdicts.json").write_text(json.dumps(told))
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What becomes of all mutants of a toy module under its tests."""
    folder = tmp_path_factory.mktemp("toy")
    for name, text in (("toy.py", TOY), ("test_toy.py", TOY_TESTS), ("trial.py", TRIAL)):
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    for step in ("record", "run"):
        subprocess.run(
            [sys.executable, "trial.py", step],
            cwd=folder,
            check=True,
            capture_output=True,
            env={"PYTHONPATH": f"{folder}:{TESTS}", "PATH": "/usr/bin:/bin"},
        )
    found: dict[str, list[str]] = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    return found


def test_a_change_that_a_test_notices_is_killed_by_that_test(verdicts: dict[str, list[str]]) -> None:
    assert verdicts["limit: raise ValueError(a) -> pass"] == ["killed", "test_toy.py::test_limit"]
    assert verdicts["limit: a > 10 -> a <= 10"] == ["killed", "test_toy.py::test_limit"]
    assert verdicts["count: i < n -> i <= n"] == ["killed", "test_toy.py::test_count"]


def test_a_change_that_no_test_notices_survives(verdicts: dict[str, list[str]]) -> None:
    assert verdicts["limit: a > 10 -> a >= 10"][0] == "survived"
    assert verdicts["limit: 10 -> 11"][0] == "survived"


def test_a_line_that_no_test_runs_is_uncovered(verdicts: dict[str, list[str]]) -> None:
    assert verdicts["untested: a + 1 -> a - 1"] == ["uncovered", "no test runs this line"]


def test_a_change_that_never_ends_is_killed_by_the_limit(verdicts: dict[str, list[str]]) -> None:
    assert verdicts["count: i += 1 -> pass"] == ["killed", "ran out of time"]


def test_what_a_test_file_computes_at_import_is_computed_again(verdicts: dict[str, list[str]]) -> None:
    assert verdicts["at_import: a * 3 -> a / 3"][0] == "killed"
    assert verdicts["at_import: 3 -> 4"][0] == "killed"


def test_mutants_written_by_hand_fit_the_sources_they_change() -> None:
    for mutant in handwritten_mutants():
        assert mutant.function or not mutant.file.endswith(".py"), f"{mutant} is in no function"
        assert mutant.tests or mutant.file.endswith(".py"), f"{mutant} needs a test"


def test_an_entry_whose_text_is_gone_is_refused() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        read_entry({"file": "tests/reruns.py", "old": "no such " + "text", "new": "", "about": ""})


def test_accepted_survivors_are_still_mutants_and_have_a_reason() -> None:
    accepted = json.loads((Path(__file__).parent / "accepted.json").read_text(encoding="utf-8"))
    files = {key.split(" ", 1)[0] for key in accepted}
    known = {mutant.key for file in files for mutant in generate(ROOT / file, ROOT)}
    assert set(accepted) <= known
    assert all(len(reason) > 20 for reason in accepted.values())
