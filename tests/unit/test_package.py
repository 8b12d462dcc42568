"""The package itself: what importing it costs, and what the repository may not say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "numba", "pyarrow", "duckdb", "sqlglot", "scipy", "pandas", "polars", "starlette", "cryptography")


def _loaded_after(code: str) -> set[str]:
    report = f"{code}\nimport sys; print(*(m for m in {HEAVY!r} if m in sys.modules))"
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
    code = f"import sys; sys.argv = {words!r}\nfrom deniable.cli.main import run\ntry: run()\nexcept SystemExit: pass"
    printed = _loaded_after(code)
    assert (tmp_path / "o.csv.release.json").exists()
    assert {"numpy", "duckdb"} <= printed
    assert not printed & {"numba", "scipy", "pandas"}


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
