"""`deniable` and Python as forks of one process that has imported the package: the same code, without its imports.

Tests and documentation pages run hundreds of commands, and most of the time of a short one goes into imports.
`folder_of_commands` makes a folder for PATH in which `deniable` and `python` hand their arguments, folder, environment
and open files to that process. It forks, and the fork goes on as the command would: with signals, an exit code and a
normal end. `run_command` runs one command so, and `program` is the one to start where more is asked for.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deniable
from deniable.errors import DeniableError

CLIENT = """#!{python} -IS
import array, json, os, signal, socket, sys
peer = socket.socket(socket.AF_UNIX)
peer.connect({address!r})
place = {{"folder": os.getcwd(), "environment": dict(os.environ)}}
body = json.dumps({{"run": {run!r}, "arguments": sys.argv[1:], **place}}).encode()
files = array.array("i", [0, 1, 2])
peer.sendmsg([len(body).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
peer.sendall(body)
child = int.from_bytes(peer.recv(4), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, frame: os.kill(child, number))
code = peer.recv(4)
os._exit(int.from_bytes(code, "big") if code else 255)
"""


def folder_of_commands(folder: Path) -> Path:
    """A folder with the commands `deniable` and `python`, served by this process's own server."""
    folder.mkdir()
    for run in ("deniable", "python"):
        script = folder / run
        script.write_text(CLIENT.format(python=sys.executable, address=_serve(), run=run))
        script.chmod(0o755)
    return folder


def program() -> Path:
    """The file to run for `deniable`; its folder can stand in PATH."""
    return _make_folder(os.getpid()) / "deniable"


def run_command(
    *words: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `deniable WORDS` to its end, and keep what it printed."""
    return subprocess.run(
        [program(), *map(str, words)],
        cwd=cwd,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@functools.cache
def _make_folder(_process: int) -> Path:
    return folder_of_commands(Path(_serve()).parent / "bin")


_ADDRESSES: dict[int, str] = {}


def _serve() -> str:
    """The address of the server; it is started once for a process, and ends with it."""
    if os.getpid() not in _ADDRESSES:
        address = f"{tempfile.mkdtemp(prefix='deniable-forks-')}/socket"
        command = [sys.executable, __file__, address]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        atexit.register(_end, server, Path(address).parent, os.getpid())
        _ADDRESSES[os.getpid()] = address
    return _ADDRESSES[os.getpid()]


def _end(server: subprocess.Popen[bytes], folder: Path, process: int) -> None:
    if os.getpid() == process:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _answer(server: socket.socket) -> dict[str, Any]:
    """Fork for each request, until the tests end; what is returned is the request that this fork is to run."""
    while True:
        if sys.stdin in select.select([server, sys.stdin], [], [])[0]:
            sys.exit()
        peer, _ = server.accept()
        if os.fork() == 0:
            server.close()
            return _become(peer)
        peer.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _become(peer: socket.socket) -> dict[str, Any]:
    """Read a request and fork: the child runs it, and this process tells the caller how it ended."""
    files = array.array("i")
    length, sent, *_ = peer.recvmsg(4, socket.CMSG_SPACE(3 * files.itemsize))
    for _level, _type, data in sent:
        files.frombytes(data)
    body = b""
    while len(body) < int.from_bytes(length, "big"):
        body += peer.recv(1 << 20)
    child = os.fork()
    if child:
        _wait(peer, child, files)
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    peer.close()
    return dict(json.loads(body))


def _wait(peer: socket.socket, child: int, files: array.array[int]) -> None:
    for each in (*files, 0, 1):
        os.close(each)
    peer.sendall(child.to_bytes(4, "big"))
    threading.Thread(target=_end_with_caller, args=(peer, child), daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        peer.sendall((code if code >= 0 else 128 - code).to_bytes(4, "big"))
    os._exit(0)


def _end_with_caller(peer: socket.socket, child: int) -> None:
    """A caller that was killed takes its command with it."""
    with contextlib.suppress(OSError):
        if not peer.recv(1):
            os.kill(child, signal.SIGKILL)


def _run(request: dict[str, Any]) -> None:
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    # Python looks at the files behind its streams once, when it makes them.
    sys.stdin, sys.stdout = os.fdopen(0, encoding="utf-8", closefd=False), _open_stream(1)
    sys.stderr = _open_stream(2)
    arguments = request["arguments"]
    try:
        if request["run"] == "deniable":
            from deniable.cli.main import run

            sys.argv = ["deniable", *arguments]
            run()
        else:
            assert arguments[0] == "-c", "only `python -c` is run in a fork"
            sys.argv = arguments[:1] + arguments[2:]
            sys.path[0] = ""
            exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    finally:
        gc.unfreeze()


def _open_stream(number: int) -> io.TextIOWrapper:
    return open(
        number,
        "w",
        buffering=1 if number == 2 or os.isatty(number) else -1,
        encoding="utf-8",
        errors="backslashreplace" if number == 2 else "strict",
        closefd=False,
    )


def _listen(address: str) -> dict[str, Any]:
    """Import whatever a command may need, and fork for each; no thread may run here, so no engine is opened."""
    for each in pkgutil.walk_packages(deniable.__path__, "deniable."):
        with contextlib.suppress(ImportError):  # what needs an extra that is not installed
            importlib.import_module(each.name)
    with contextlib.suppress(DeniableError):  # what reads a policy is imported when one is read
        importlib.import_module("deniable.policy.document").parse("version: 1")
    importlib.import_module("rich.console").Console()
    importlib.import_module("sqlglot").transpile("SELECT 1", write="duckdb")
    gc.collect()
    gc.freeze()  # no fork looks through what they all share
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(64)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    return _answer(server)


if __name__ == "__main__":
    _run(_listen(sys.argv[1]))
