"""The structure that docs/architecture.md describes: few modules, no circles, verbs, short ways through the code."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
FILES = {path: path.read_text(encoding="utf-8") for path in sorted((SRC / "deniable").rglob("*.py"))}


@functools.cache
def parse_all() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in FILES.items()}


NOT_PARTICIPLES = frozenset(
    (
        "need",
        "feed",
        "seed",
        "embed",
        "string",
        "ring",
        "bring",
        "spring",
        "thing",
        "red",
        "hundred",
        "exceed",
        "proceed",
        "speed",
        "succeed",
        "shed",
        "sing",
        "ping",
        "indeed",
        "everything",
        "anything",
        "nothing",
    )
)
"""Words that end like a participle and are none."""
IRREGULAR = frozenset(
    (
        "told",
        "kept",
        "drawn",
        "written",
        "known",
        "shown",
        "given",
        "taken",
        "chosen",
        "held",
        "said",
        "sent",
        "made",
        "built",
        "left",
        "spent",
        "seen",
        "done",
        "gone",
        "lost",
        "paid",
        "met",
        "thrown",
        "grown",
        "broken",
        "spoken",
        "hidden",
        "forbidden",
        "meant",
        "felt",
        "brought",
        "thought",
        "caught",
        "bought",
        "sought",
        "taught",
        "laid",
        "led",
        "fed",
        "begun",
        "stood",
        "torn",
        "frozen",
        "stolen",
        "proven",
        "dealt",
        "lent",
        "bent",
        "swept",
        "hung",
        "won",
        "rewritten",
        "withdrawn",
        "rebuilt",
    )
)


def _module(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports() -> dict[str, set[str]]:
    """Every module with those it imports: at its top, inside functions, and for types only."""
    modules, found = {_module(path) for path in FILES}, defaultdict(set)
    for path, tree in parse_all().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                named = (f"{node.module}.{alias.name}" for alias in node.names)
                targets = {name if name in modules else node.module for name in named}
            elif isinstance(node, ast.Import):
                targets = {alias.name for alias in node.names}
            else:
                continue
            found[_module(path)] |= {target for target in targets if target in modules and target != _module(path)}
    return found


def _circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules of which each reaches all others: by cutting off leaves until nothing changes."""
    left = {module: set(targets) for module, targets in graph.items()}
    while leaves := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in leaves:
            del left[module]
    return [set(left)] if left else []


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _is_value(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = {ast.unparse(mark) for mark in function.decorator_list}
    return bool({mark for mark in marks if mark.endswith(("property", ".setter"))})


def _is_participle(name: str) -> bool:
    word = name.lstrip("_").split("_")[0]
    if name.startswith("__") or word in NOT_PARTICIPLES:
        return False
    return word in IRREGULAR or (len(word) > 3 and word.endswith(("ed", "ing")))


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert _circles(_imports()) == []


def test_a_circle_would_be_found() -> None:
    assert _circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})


def test_there_are_few_modules_and_few_small_ones() -> None:
    copied = SRC / "deniable" / "world" / "findings"  # files that a world is written with; nothing imports them
    assert len([path for path in FILES if path.parent != copied]) <= 494
    lengths = {path: text.count("\n") for path, text in FILES.items() if path.name != "__init__.py"}
    assert len([path for path, lines in lengths.items() if lines < 60]) <= 40
    assert {path.name: lines for path, lines in lengths.items() if lines > 600} == {}


def test_statements_have_plain_places_which_every_python_takes_from_a_sequence() -> None:
    """Python 3.12.0 to 3.12.3 warns of `?4` beside a sequence, as of a name."""
    kept = {path: text for path, text in FILES.items() if "sqlite3" in text}
    numbered = [path.name for path, text in kept.items() if re.search(r"[(, +]\?[1-9]", text)]
    assert len(kept) >= 2
    assert numbered == []


def test_no_folder_shows_more_than_twenty_two_entries() -> None:
    entries: Counter[Path] = Counter()
    for path in (each for each in FILES if each.name != "__main__.py"):  # the name that `python -m` asks for
        entries[path.parent.parent if path.name == "__init__.py" else path.parent] += 1
    packages = entries.pop(SRC / "deniable")  # one for each capability
    assert packages <= 26
    assert {str(folder): number for folder, number in entries.items() if number > 23} == {}


def test_functions_are_named_by_verbs_and_not_by_participles() -> None:
    every = [function for tree in parse_all().values() for function in _functions(tree)]
    named = [function.name for function in every if _is_participle(function.name) and not _is_value(function)]
    assert len(named) < 0.03 * len(every), named


DOCUMENTS = {
    "client/connection.py": "what a server sent, handed to its caller as it is",
    "learn/federated.py": "the file of a round",
    "server/federated.py": "the JSON of a round's messages",
    "curator/federate.py": "the JSON of a round's messages",
    "server/http/bodies.py": "JSON Schema",
    "server/http/endpoints.py": "OpenAPI",
    "server/refusals.py": "the JSON of an error",
    "server/service.py": "keyword arguments of a question",
    "reports/attacks.py": "Vega-Lite",
    "reports/page.py": "Vega-Lite",
    "synth/model.py": "a model file",
    "synth/linked/__init__.py": "a model file",
    "learn/model.py": "a model file",
    "localdp/client.py": "what a client sends",
    "localdp/serialization.py": "what a client is sent",
}
"""Modules that read or write documents whose words are not ours to type: files, and messages between programs."""
CROSSING = {
    ("curator/attack.py", "attempt_as_dict"): "a line of the state file that a killed attack goes on from",
    ("curator/attack.py", "judge_limits"): "findings as they stand in that file, with verdicts",
    ("curator/estimators.py", "get_params"): "parameters by name, as scikit-learn asks for them",
    ("curator/query/sql.py", "to_pylist"): "rows of an answer, as Arrow gives them",
    ("dp/accounting/serialization.py", "to_google"): "an event in the words of another library",
    ("governance/requests.py", "facts"): "details of an entry in the ledger",
    ("ledger/loss.py", "facts"): "details of an entry in the ledger",
    ("kanonymity/recoding.py", "to_document"): "a recoding file",
    ("localdp/records.py", "describe_plan"): "parameters in a statement",
    ("localdp/survey/definition.py", "describe"): "the survey that clients are sent",
}
"""Public functions that give other packages a dictionary without types, each with its reason."""


def test_few_dictionaries_without_types_cross_a_package() -> None:
    found = {
        (str(path.relative_to(SRC / "deniable").as_posix()), function.name)
        for path, tree in parse_all().items()
        for function in _functions(tree)
        if function.returns is not None
        and re.fullmatch(r"(list\[)?dict\[str, (Any|object)\]\]?( \| None)?", ast.unparse(function.returns))
        and not function.name.startswith("_")
        and function.name not in ("to_dict", "as_dict")
    }
    crossing = {(path, name) for path, name in found if path not in DOCUMENTS}
    assert crossing == set(CROSSING)
    assert len(crossing) <= 10


ENTERED = """
import sys
entered = set()
def watch(frame, event, argument):
    code = frame.f_code
    called = code.co_flags & 1 and not code.co_name.startswith("<")  # a function, no class body or comprehension
    if event == "call" and called and "/deniable/" in code.co_filename:
        entered.add(code.co_filename)
    return None
import threading
import typer.testing
from deniable.cli.main import app
threading.setprofile(watch); sys.setprofile(watch)
done = typer.testing.CliRunner().invoke(app, {arguments!r})
sys.setprofile(None)
assert done.exit_code == 0, done.output
print(len(entered))
"""


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("query 'SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex' --epsilon 0.5", 77),
        ("synthesize visits --epsilon 1 --delta 1e-7 -o {folder}/made.parquet", 81),
    ],
)
def test_one_command_enters_few_files(tmp_path: Path, words: str, most: int) -> None:
    import shlex

    from deniable import world

    world.write("hospital", 300, 7, tmp_path)
    arguments = [*shlex.split(words.format(folder=tmp_path)), "--policy", str(tmp_path / "policy.yaml")]
    run = subprocess.run(
        [sys.executable, "-c", ENTERED.format(arguments=arguments)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout.split()[-1]) <= most


def test_only_the_application_imports_what_answers_over_http() -> None:
    """Other protocols share the service; what two of them need belongs there."""
    routes = {"deniable.server.http.analyst_api", "deniable.server.http.steward_api"}
    found = {module for module, targets in _imports().items() if targets & routes}
    assert found - routes == {"deniable.server.http.app"}
