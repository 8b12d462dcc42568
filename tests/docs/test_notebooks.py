"""The notebooks in examples/ are those that the pages make, with outputs, and give nothing of the machine away."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks_build", ROOT / "examples" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BUILD = _load()
NOTEBOOKS = sorted(path.stem for path in (ROOT / "examples").glob("*.ipynb"))


def _read(name: str) -> Any:
    return json.loads((ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8"))


def _list_code(notebook: Any) -> list[str]:
    cells = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [re.sub(r"^%%[^\n]*\n", "", cell) for cell in cells]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS
    assert set(NOTEBOOKS) <= set(BUILD.PAGES)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_has_the_blocks_of_its_page_and_was_run(name: str) -> None:
    text = (BUILD.DOCS / BUILD.PAGES[name]).read_text(encoding="utf-8")
    blocks = [block[2].rstrip("\n") for block in BUILD.BLOCK.finditer(text) if _is_run(block)]
    notebook = _read(name)
    assert _list_code(notebook) == blocks, "run: python examples/build.py"
    assert any(cell.get("outputs") for cell in notebook["cells"])


def _is_run(block: re.Match[str]) -> bool:
    return block[1] in ("sh", "python") or (block[1] == "yaml" and BUILD.FILE_NAME.match(block[2]) is not None)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_holds_no_token_and_no_path_of_a_machine(name: str) -> None:
    text = json.dumps(_read(name))
    assert not BUILD.TOKEN.search(text)
    assert not re.search(r"/(tmp|home|root|work|Users)/", text)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_a_notebook(name: str) -> None:
    pytest.importorskip("nbformat").validate(_read(name))


@pytest.mark.slow
def test_a_notebook_is_made_anew_as_it_is(tmp_path: Path) -> None:
    made = BUILD.build(BUILD.DOCS / BUILD.PAGES["from-arx"])
    assert _list_code(made) == _list_code(_read("from-arx"))
    assert sys.executable not in json.dumps(made)
