"""The package itself: what importing it costs, and what the repository may not say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

ROOT = Path(__file__).parents[2]
HEAVY = (
    *("numpy", "numba", "pyarrow", "duckdb", "sqlglot", "scipy", "pandas", "polars", "starlette", "cryptography"),
    *("pydantic", "pyarrow.dataset", "numpy.random", "numpy.ma.core"),
)
OF_OTHERS = (
    *("deniable.cli.query", "deniable.cli.start", "deniable.policy.access", "deniable.policy.document"),
    *("deniable.kanonymity.builders.library", "deniable.kanonymity.builders.numbers"),
)
"""Modules that other commands need, or other columns."""


def _loaded_after(code: str) -> set[str]:
    report = f"{code}\nimport sys; print(*(m for m in {HEAVY + OF_OTHERS!r} if m in sys.modules))"
    return set(
        subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()
    )


def test_importing_deniable_loads_nothing_heavy() -> None:
    assert _loaded_after("import deniable") == set()


def test_the_command_line_loads_nothing_heavy_before_a_command_runs() -> None:
    assert _loaded_after("import deniable.cli.main") == set()


def test_anonymizing_a_file_loads_no_compiler_no_linear_algebra_and_no_frames(tmp_path: Path) -> None:
    rows = "".join(f"{20 + n % 30},{n % 4}\n" for n in range(200))
    (tmp_path / "people.csv").write_text("age,ward\n" + rows)
    words = ["deniable", "anonymize", str(tmp_path / "people.csv"), "--qi", "age,ward", "-o", str(tmp_path / "o.csv")]
    code = f"import sys; sys.argv = {words!r}\nfrom deniable.cli.main import load_less, main\nload_less(sys.argv[1:])\n"
    code += "try: main()\nexcept SystemExit: pass"
    printed = _loaded_after(code)
    assert (tmp_path / "o.csv.release.json").exists()
    assert {"numpy", "duckdb"} <= printed
    assert not printed & {"numba", "scipy", "pandas", "pydantic", "pyarrow.dataset", "numpy.random", "numpy.ma.core"}


def test_a_command_loads_no_module_of_another(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("ward\n" + "north\nsouth\n" * 50)
    (tmp_path / "wards.csv").write_text("north,town\nsouth,town\n")
    tree = ["--hierarchy", f"ward={tmp_path / 'wards.csv'}", "-o", str(tmp_path / "o.csv")]
    words = ["deniable", "anonymize", str(tmp_path / "people.csv"), "--qi", "ward", *tree]
    code = f"import sys; sys.argv = {words!r}\nfrom deniable.cli.main import load_less, main\nload_less(sys.argv[1:])\n"
    code += "try: main()\nexcept SystemExit: pass"
    printed = _loaded_after(code)
    assert (tmp_path / "o.csv.release.json").exists()
    assert not printed & {*OF_OTHERS}
    assert {*OF_OTHERS} - {"deniable.policy.document"} <= _loaded_after(
        "from deniable.cli.main import app; import deniable.policy.access, deniable.kanonymity.builders.library\n"
        "import deniable.kanonymity.builders.numbers"
    )


def test_masked_arrays_are_there_for_a_command_that_makes_one() -> None:
    code = "from deniable.cli.main import load_less\nload_less(['check'])\nimport numpy as np\nimport pyarrow as pa\n"
    plain = "assert np.ma and pa.array(np.arange(2)).null_count == 0 and len(np.unique(np.ones(3))) == 1\n"
    masked = "assert pa.array(np.ma.array([1, 2], mask=[True, False])).null_count == 1"
    assert "numpy.ma.core" not in _loaded_after(code + plain)
    assert "numpy.ma.core" in _loaded_after(code + plain + masked)


ENDING = """
import sys, tempfile, threading
from pathlib import Path
from deniable.cli import main
place, threads, code = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
kept = tempfile.TemporaryDirectory()
place.write_text(kept.name)
if threads == "busy":
    threading.Timer(0.2, lambda: place.with_suffix(".done").write_text("")).start()
main.main = lambda: (print("told"), sys.exit(code))
main.run()
"""


@pytest.mark.parametrize("threads", ["idle", "busy"])
@pytest.mark.parametrize("code", [0, 2])
def test_a_command_ends_with_its_code_after_all_that_was_to_be_done(tmp_path: Path, threads: str, code: int) -> None:
    words = [sys.executable, "-c", ENDING, str(tmp_path / "kept"), threads, str(code)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "told\n", "")
    assert not Path((tmp_path / "kept").read_text()).exists(), "what is removed at the end was left"
    assert (tmp_path / "kept.done").exists() == (threads == "busy"), "a thread that worked was cut off"


def test_a_command_says_nothing_of_its_own_end(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("age\n" + "30\n" * 20)
    words = [sys.executable, "-m", "deniable", "check", str(tmp_path / "people.csv"), "--qi", "age"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def list_parameters(command: Any) -> Iterator[Any]:
    """The parameters of a command and of all under it."""
    yield from command.params
    for each in getattr(command, "commands", {}).values():
        yield from list_parameters(each)


def list_commands(command: Any, name: str = "deniable") -> Iterator[tuple[str, Any]]:
    """A command and all under it, by their words."""
    yield name, command
    for word, each in getattr(command, "commands", {}).items():
        yield from list_commands(each, f"{name} {word}")


def test_every_example_in_a_help_text_stands_on_a_line_of_its_own() -> None:
    from deniable.cli.main import app

    seen = 0
    for name, command in list_commands(typer.main.get_command(app)):
        shown = command.get_help(typer.Context(command, info_name=name))
        assert "\\b" not in shown, name
        if "Examples:" in shown:
            below = shown.split("Examples:")[1].splitlines()[1:]
            assert any(line.strip().startswith("deniable ") for line in below[:2]), name
            seen += 1
    assert seen > 15


def test_no_command_of_a_list_is_told_in_words_that_are_cut_off() -> None:
    from deniable.cli.main import app, narrow_app

    for words in (["--help"], ["ledger"], ["policy"]):
        shown = typer.main.get_command(narrow_app(words))
        found = [(name, each.get_short_help_str()) for name, each in list_commands(shown) if name != "deniable"]
        assert len(found) > 5
        assert [(name, told) for name, told in found if told.endswith(("...", ".", ":")) or len(told.split()) < 2] == []
    whole = list_commands(typer.main.get_command(app))
    below = [(name, "Example" in str(each.help), "xample" in str(each.epilog)) for name, each in whole]
    assert [name for name, above, _ in below if above] == [], "examples stand below the options"
    assert sum(under for _, _, under in below) > 60


def read_value(reader: Any, value: object, param: Any) -> object:
    """What an option makes of a value, or that it refuses it, and how."""
    try:
        return reader.coerce(value, param=param, ctx=None)
    except typer.BadParameter as refusal:
        return "refused", refusal.message


WRITTEN = (
    "5",
    "-5",
    "05",
    "5.0",
    "0.04",
    "1e-3",
    ".5",
    "abc",
    "",
    " 7 ",
    "nan",
    "9" * 30,
    "a,b",
    ".",
    "/no/where",
)


def test_every_option_of_every_command_reads_values_as_typer_does() -> None:
    from typer._coercion import build_runtime_param

    from deniable.cli.main import PlainValue, app

    seen = set()
    for param in list_parameters(typer.main.get_command(app)):
        described = param.type_descriptor
        if described.annotation is bool:
            continue  # a flag has no value
        several = param.multiple or param.nargs == -1
        for value in (None, param.default, *([[text] for text in WRITTEN] if several else WRITTEN)):
            if callable(value):
                continue
            expected = read_value(build_runtime_param(described), value, param)
            found = read_value(PlainValue(), value, param)
            refused = [
                isinstance(each, tuple) and each[:1] == ("refused",) for each in (found, expected)
            ]  # in words of ours
            assert all(refused) or (found, type(found)) == (expected, type(expected)) or found != found, (
                param.name,
                value,
            )
            seen.add(described.annotation)
    assert {str, int, float, Path, list[str]} <= seen


@pytest.mark.parametrize("written", ["1_0", "1_000", "\uff11"])
def test_a_number_that_only_python_reads_as_one_is_refused(written: str) -> None:
    from deniable.cli.main import PlainValue, app
    from deniable.errors import ParameterError
    from deniable.policy.budget import exact

    command = typer.main.get_command(app)
    for param in list_parameters(command):
        if param.type_descriptor.annotation in (int, float):
            with pytest.raises(typer.BadParameter):
                PlainValue().coerce(written, param, typer.Context(command))
    with pytest.raises(ParameterError, match="not a finite number"):
        exact(written)


def test_a_file_that_may_not_be_read_is_refused_as_typer_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.cli.main import PlainValue, app

    monkeypatch.setattr("os.access", lambda *_: False)  # whoever runs the tests may read every file
    param = next(p for p in list_parameters(typer.main.get_command(app)) if p.type_descriptor.annotation is Path)
    assert "not readable" in str(read_value(PlainValue(), str(tmp_path), param))


def test_the_check_sees_a_heavy_import() -> None:
    assert "numpy" in _loaded_after("import numpy")


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    import deniable

    with pytest.raises(AttributeError, match="no attribute 'Curate'"):
        _ = deniable.Curate


def test_every_module_has_a_docstring() -> None:
    import ast

    bare = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "src").rglob("*.py")
        if path.stat().st_size and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not bare
