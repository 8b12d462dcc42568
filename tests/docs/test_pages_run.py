"""README and every page of the documentation run as printed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_spec = importlib.util.spec_from_file_location("pages", Path(__file__).with_name("pages.py"))
assert _spec is not None
assert _spec.loader is not None
pages = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pages)


def _has_blocks(page: Path) -> bool:
    return any(kind in ("sh", "python") for kind, _ in pages.BLOCK.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [p for p in PAGES if _has_blocks(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_of_the_page_runs(page: Path, tmp_path: Path) -> None:
    assert pages.run_page(page, tmp_path) > 0


def test_a_block_that_fails_is_reported(tmp_path: Path) -> None:
    page = tmp_path / "broken.md"
    page.write_text("```sh\nfalse\n```\n")
    with pytest.raises(AssertionError, match=r"broken\.md, block 1"):
        pages.run_page(page, tmp_path)


def test_every_link_between_pages_leads_somewhere() -> None:
    import re

    broken = [
        f"{page.name}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert not broken


def test_every_page_that_the_readme_names_exists() -> None:
    import re

    named = re.findall(r"`(docs/[^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named
    assert [page for page in named if not (ROOT / page).exists()] == []
