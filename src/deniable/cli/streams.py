"""Standard output and standard error, of which either may be full, closed, or a pipe that nobody reads any more.

What cannot be told never changes what was done: a command says on standard error what it charged and wrote, and where
that cannot be written either, its exit code says it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any


class Told(io.RawIOBase):
    """A standard stream that remembers why it failed, and takes all that comes later as written."""

    def __init__(self, stream: Any, *, loud: bool) -> None:
        super().__init__()
        self.failure: OSError | None = None
        self._stream, self._loud = stream, loud  # it is held: else Python closes it
        self._raw = getattr(stream.buffer, "raw", stream.buffer)

    def write(self, content: Any) -> int:
        """Write it; a first failure is raised where it is heard of, as for results."""
        if self.failure is None:
            try:
                return int(self._raw.write(content) or 0)
            except OSError as failure:
                self.failure = failure
                if self._loud:
                    raise
        return len(content)

    def writable(self) -> bool:
        """Whether it is one to be written to."""
        return True

    def fileno(self) -> int:
        """The descriptor."""
        return int(self._raw.fileno())

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return bool(self._raw.isatty())


_watched: dict[str, Told] = {}


def watch_streams() -> None:
    """Let both streams be there and remember their failures; consoles of few letters must not fail after a charge."""
    _open_closed()
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream: Any = getattr(sys, name) or open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        with suppress(OSError):
            stream.flush()
        _watched[name] = told = Told(stream, loud=name == "stdout")
        lines = stream.line_buffering or name == "stderr"
        watched = io.TextIOWrapper(
            io.BufferedWriter(told),
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=lines,
            write_through=stream.write_through,
        )
        setattr(sys, name, watched)


def _open_closed() -> None:
    """Open what was closed, so that no file of ours gets its number: standard output so that writing to it fails."""
    for number, way in enumerate((os.O_RDONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, way)


def find_lost_output() -> OSError | None:
    """Why what was printed did not arrive on standard output, if it did not."""
    told = _watched.get("stdout")
    if told is not None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    return told.failure if told else None


def is_pipe_closed(failure: OSError) -> bool:
    """Whether whoever read a pipe does not read any more, which is no failure of theirs or ours."""
    return failure.errno == errno.EPIPE
