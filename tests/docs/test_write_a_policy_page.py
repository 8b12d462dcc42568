"""The how-to page on policies runs as it is printed: its files, programs and commands, and its output."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from forked_commands import program

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-policy.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs_and_its_output_is_as_printed(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{program().parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    shown = ""
    for kind, block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "yaml":
            (tmp_path / block.split("\n")[0].removeprefix("# ")).write_text(block)
        elif kind == "text":
            assert block in shown
        else:
            command = ["python", "-c", block] if kind == "python" else ["sh", "-ec", block]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            drafts = "".join(path.read_text() for path in tmp_path.glob("draft.yaml"))
            shown = done.stdout + drafts
