"""The lessons as files: every part is there, nothing is fetched, only their own script runs, and their commands run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.reports.lessons import LESSONS, build_pages, read_commands
from forked_commands import folder_of_commands

PAGES = build_pages(served=True)
PARTS = (
    "<h1>",
    '<p class="question">',
    '<section class="toy"',
    "<summary>The mathematics</summary>",
    '<p class="source">',
    "<h2>Exercise</h2>",
    "<summary>Answer</summary>",
    "<h2>Do it for real</h2>",
)


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_all_its_parts_in_their_order(name: str) -> None:
    places = [PAGES[f"{name}.html"].index(part) for part in PARTS]
    assert places == sorted(places)
    assert read_commands(name).startswith(("deniable ", "cat > "))


def hash_text(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_allows_its_own_script_and_style_and_nothing_else(name: str) -> None:
    html = PAGES[name]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    scripts, styles = (
        re.findall(r"<script>(.*?)</script>", html, re.DOTALL),
        re.findall(r"<style>(.*?)</style>", html, re.DOTALL),
    )
    allowed = dict(part.split(" ", 1) for part in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert (
        allowed["script-src"] == " ".join(f"'{hash_text(text)}'" for text in scripts)
        or allowed["script-src"] == "'none'"
    )
    assert allowed["style-src"] == " ".join(f"'{hash_text(text)}'" for text in styles)
    assert "unsafe" not in policy
    assert ("connect-src" in allowed) == (name in ("join.html", "class.html"))
    assert not re.findall(r"\s(?:on\w+|style)=", re.sub(r"<(script|style|pre).*?</\1>", "", html, flags=re.DOTALL))
    assert not re.findall(r'(?:src|href)="(?!#|[a-z]+\.html)', html)
    assert len(html.encode()) < 100_000


def test_texts_are_only_ever_set_as_text() -> None:
    for html in PAGES.values():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)


def test_the_command_writes_every_page_and_says_which_to_open(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["learn", "--out", str(tmp_path / "course"), "--json"])
    told = json.loads(done.stdout)
    assert done.exit_code == 0
    assert told["open"] == str(tmp_path / "course" / "index.html")
    assert {Path(file).name for file in told["files"]} == set(build_pages())
    assert all(Path(file).stat().st_size > 5_000 for file in told["files"])
    assert list(told["lessons"]) == list(LESSONS)
    again = CliRunner().invoke(app, ["learn", "--out", str(tmp_path / "course")])
    assert "Two releases of one table: Doug's 43" in again.stdout


def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    from deniable.errors import StorageError

    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        CliRunner().invoke(app, ["learn", "--out", str(tmp_path / "file" / "x")], catch_exceptions=False)


SAYS = {
    "coins": "truth in 2 of 4 cases",
    "game": "epsilon is at least",
    "homogeneity": "l = 1",
    "releases": "exposes",
    "newspapers": "exposes",
    "auditing": "exposes 1,000 of 1,000",
    "block": "5 of 5",
    "trust": "faculty",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LESSONS)
def test_the_commands_of_a_lesson_run_as_printed(name: str, tmp_path: Path) -> None:
    commands = folder_of_commands(tmp_path / "bin")
    environment = {"PATH": f"{commands}:/usr/bin:/bin", "NO_COLOR": "1", "DENIABLE_STATE": str(tmp_path / "state")}
    script = unescape(read_commands(name))
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert SAYS.get(name, "") in done.stdout


def test_the_solver_is_found_by_the_program_although_it_needs_pandas() -> None:
    pytest.importorskip("ortools")
    program = (
        "import sys; from deniable.cli.main import LessLoaded; sys.meta_path.insert(0, LessLoaded)\n"
        "from deniable.attacks.solvers import _load_module\n"
        "_load_module('ortools.sat.python.cp_model', 'ortools')"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0
