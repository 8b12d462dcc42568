"""The site: every page is in its menu, it is built strictly, and its search works from a disk."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]


def _list_pages(nav: Any) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for each in nav:
                yield from _list_pages(each)
        case dict():
            yield from _list_pages(list(nav.values()))


def test_every_page_is_in_the_menu_once() -> None:
    listed = sorted(_list_pages(YAML(typ="safe").load(ROOT / "mkdocs.yml")["nav"]))
    assert listed == sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = ROOT / ".venvs" / "docs" / "bin" / "zensical"
    if not builder.exists():
        pytest.skip("the site's builder is not installed: make docs")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "mkdocs.yml", folder)
    done = subprocess.run([builder, "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_search_of_the_site_works_from_a_disk_and_asks_the_network_for_nothing(site: Path) -> None:
    play = pytest.importorskip("playwright.sync_api")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no browser is installed")
    outside: list[str] = []
    with play.sync_playwright() as started:
        page = started.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        page.on("request", lambda sent: outside.append(sent.url) if sent.url.startswith("http") else None)
        page.goto(f"file://{site}/index.html")
        page.keyboard.press("/")
        page.keyboard.type("suppression")
        page.wait_for_selector("a[href*='k-anonymity.html?h=suppression']", state="attached", timeout=30_000)
    assert outside == []


def test_the_site_needs_no_dependency_of_the_product() -> None:
    named = (ROOT / "requirements-docs.lock").read_text(encoding="utf-8")
    assert "zensical==" in named
    assert "zensical" not in (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    assert sys.prefix != str(ROOT / ".venvs" / "docs")
