"""Run the code blocks of a documentation page in one folder, in their order: `sh` and `python` run, `yaml` is written.

A `yaml` block whose first line is a comment with a file name is written under that name. `console` and `text` blocks
are shown to readers only. A `python` block whose first line is a comment such as "# needs deniable[ml]" runs where that
extra is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

from forked_commands import folder_of_commands

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"^# ([\w.-]+\.\w+)$")
NEEDS = re.compile(r"^# needs deniable\[(\w+)\]")
EXTRAS = {"ml": ("torch", "opacus")}
"""What an extra that `make test` does not install brings."""


def run_page(page: Path, folder: Path) -> int:
    """How many blocks ran; the first that fails raises with its output."""
    commands = folder_of_commands(folder / "bin")
    environment = os.environ | {"PATH": f"{commands}:{os.environ['PATH']}", "NO_COLOR": "1"}
    ran = 0
    for kind, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind == "yaml" and (named := FILE_NAME.match(block.split("\n")[0])):
            (folder / named[1]).write_text(block, encoding="utf-8")
        elif (needed := NEEDS.match(block)) and not all(map(find_spec, EXTRAS[needed[1]])):
            continue
        elif kind in ("sh", "python"):
            command = [str(commands / "python"), "-c", block] if kind == "python" else ["sh", "-ec", block]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{page.name}, block {ran + 1}:\n{block}\n{done.stdout}\n{done.stderr}"
            ran += 1
    return ran
