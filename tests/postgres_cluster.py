"""A private PostgreSQL for tests: its own folder, its own socket, gone afterwards.

PostgreSQL refuses to run as root, so there it is started as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

NOBODY = 65534


def program(name: str) -> str | None:
    """Where a program of PostgreSQL is, on the path or where Debian puts it."""
    found = [shutil.which(name), *sorted(glob(f"/usr/lib/postgresql/*/bin/{name}"), reverse=True)]
    return next((path for path in found if path), None)


@contextmanager
def cluster(copied: str = "") -> Iterator[str]:
    """The address of a fresh cluster, or of a copy of the one at an address, which runs on.

    Raises RuntimeError where none can be started.
    """
    initdb, control, backup = program("initdb"), program("pg_ctl"), program("pg_basebackup")
    if initdb is None or control is None or (copied and backup is None):
        raise RuntimeError("PostgreSQL is not installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # short: a socket's path has at most 107 bytes
    try:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        if copied:
            _run([str(backup), "-d", copied, "-D", f"{folder}/data", "-c", "fast", "--no-sync"])
        else:
            _run([initdb, "-D", f"{folder}/data", "-A", "trust", "-U", "deniable", "--no-sync", "-E", "UTF8"])
        options = f"-k {folder} -c listen_addresses='' -c max_connections=120"
        _run([control, "-D", f"{folder}/data", "-o", options, "-l", f"{folder}/log", "-w", "-t", "300", "start"])
        try:
            yield f"postgresql://deniable@/postgres?host={folder}"
        finally:
            _run([control, "-D", f"{folder}/data", "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str]) -> None:
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, cwd="/", **who
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")
