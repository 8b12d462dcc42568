"""Run `deniable` as a system without POSIX would: the command in the arguments, or commands as JSON lines of the input.

What our own modules import is stripped of the names that only POSIX has; the standard library and other packages keep
theirs, because they have code of their own for such systems. Locks are those of Windows (`msvcrt`). As there, a file
that this process holds open can neither be removed nor replaced, event loops take no signal handlers, and a text file
that is opened without naming its encoding is an error.
"""

from __future__ import annotations

import asyncio
import builtins
import fcntl
import importlib
import json
import os
import re
import signal
import socket
import sys
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ABSENT = {"fcntl", "grp", "pwd", "pty", "resource", "syslog", "termios", "tty", "uvloop"}
GONE = {
    os: r"(register_at_)?fork|forkpty|(set|get)?(e|re|res)?[ug]id|[gs]et(pgid|pgrp|sid|groups|priority|loadavg)"
    r"|sched_.*|nice|uname|f?chown|lchown|fchmod|statvfs|f?pathconf|sysconf|mkfifo|mknod|killpg|wait[34]?|p(read|write)v?"
    r"|posix_.*|fdatasync|sendfile|ctermid|memfd_create|O_(NOFOLLOW|DIRECTORY|CLOEXEC|NONBLOCK|SYNC|DSYNC|PATH)|PRIO_.*",
    signal: r"SIG(HUP|KILL|QUIT|USR[12]|ALRM|CHLD|PIPE|CONT|STOP|TSTP|XCPU|XFSZ)|alarm|pause|setitimer"
    r"|sig(wait|pending)|pthread_.*|siginterrupt",
    socket: r"AF_UNIX|AF_NETLINK|socketpair_unix|SO_REUSEPORT|SCM_RIGHTS|send_fds|recv_fds",
}


class Stripped(types.ModuleType):
    """A module as our code sees it: all of the real one but what its pattern names."""

    def __init__(self, real: types.ModuleType, gone: str) -> None:
        super().__init__(real.__name__)
        self.__dict__.update(real=real, gone=re.compile(gone))

    def __getattr__(self, name: str) -> Any:
        if self.__dict__["gone"].fullmatch(name):
            raise AttributeError(f"a system without POSIX has no {self.__name__}.{name}")
        return getattr(self.__dict__["real"], name)


def _lock(descriptor: int, _mode: int, _bytes: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(13, "Permission denied") from None


STRIPPED = {real.__name__: Stripped(real, gone) for real, gone in GONE.items()}
MSVCRT = types.ModuleType("msvcrt")
MSVCRT.__dict__.update(LK_NBLCK=2, LK_UNLCK=0, locking=_lock)
_import = builtins.__import__


def _import_stripped(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    ours = str((globals or {}).get("__name__", "")).partition(".")[0] == "deniable" and level == 0
    if ours and name in ABSENT:
        raise ModuleNotFoundError(f"a system without POSIX has no module '{name}'", name=name)
    if ours and name == "msvcrt":
        return MSVCRT
    found = _import(name, globals, locals, fromlist, level)
    return STRIPPED.get(found.__name__, found) if ours else found


def _list_open() -> Iterator[str]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        if b"/" in line:
            yield line[line.index(b"/") :].decode(errors="replace")


def _refuse_open(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: what is to be removed or replaced must not be open."""
    if event not in ("os.rename", "os.remove"):
        return
    paths = arguments[:1] if event == "os.remove" else arguments[:2]
    folders = arguments[1:] if event == "os.remove" else arguments[2:]
    for path, folder in zip(paths, folders, strict=True):
        start = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()
        whole = os.path.join(start, os.fsdecode(path))
        held = [each for each in _list_open() if each == whole or each.startswith(f"{whole}/")]
        if any(os.path.isfile(each) for each in held):
            raise PermissionError(13, f"the file is open ({event})", whole)


def _take_no_handler(*_: object) -> None:
    raise NotImplementedError


def strip() -> None:
    """From now on this process is without POSIX, as far as our modules can tell."""
    assert not any(name.partition(".")[0] == "deniable" for name in sys.modules)
    builtins.__import__ = _import_stripped
    asyncio.SelectorEventLoop.add_signal_handler = _take_no_handler  # type: ignore[assignment,method-assign]
    warnings.filterwarnings("error", category=EncodingWarning, module="deniable")
    sys.addaudithook(_refuse_open)


def run(arguments: list[str]) -> int:
    """Run one command in this process; its exit code."""
    sys.argv = ["deniable", *arguments]
    try:
        importlib.import_module("deniable.cli.main").main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 70
    return 0


if __name__ in ("__main__", "__mp_main__"):  # also in the processes that a server starts: they import this file again
    strip()

if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(run(sys.argv[1:]))
    for line in sys.stdin:
        print(f"\n== {line.strip()} -> {run(json.loads(line))}", flush=True)
