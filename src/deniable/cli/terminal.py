"""What every command shares: options, how results and refusals are printed, and how long work shows that it goes on.

Results go to standard output, everything else (progress, notes, refusals) to standard error, so that output can be
piped. Progress is drawn only on a terminal. Where standard output is full, closed or a pipe that nobody reads any more,
standard error says what was charged and written; where that cannot be written either, the exit code says it."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.errors import (
    CHARGED,
    NO_BUDGET,
    NOTHING_CHARGED,
    UNSURE,
    WATCH,
    Cancelled,
    ChargeWatch,
    DeniableError,
    StorageError,
)
from deniable.outputs import WRITTEN, settle_outputs
from deniable.storage import describe_refusal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from deniable.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.release.record import Record


JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Encoding = Annotated[str | None, typer.Option(help="Encoding of a CSV file that is not UTF-8, such as latin-1.")]
Progress = Callable[[float], None]


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


def open_output() -> Console:
    """The console for results; it prints texts as they are, since many of them are not ours."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, markup=False, emoji=False)


def open_errors() -> Console:
    """The console for progress, notes and refusals."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


def stress(text: str, rest: str = "", style: str = "bold", before: str = "") -> Text:
    """A text that stands out, between others as they are."""
    from rich.text import Text

    return Text.assemble(before, (text, style), rest)


def emit(document: dict[str, Any] | list[Any], as_json: bool, human: Callable[[Console], None]) -> None:
    """Print a result: as one JSON document, or by the function that knows how people read it."""
    settle_outputs()
    if as_json:
        sys.stdout.write(json.dumps(document, indent=2, default=str, ensure_ascii=False) + "\n")
    else:
        human(open_output())


def emit_lines(result: Record, as_json: bool, lines: Callable[[], Iterable[str]], **more: Any) -> None:
    """Print a result as one JSON document, with what else is to stand in it, or line by line as people read it."""
    settle_outputs()
    if as_json:
        sys.stdout.write(json.dumps({**result.to_dict(), **more}, indent=2, default=str, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines())


def refuse(refusal: DeniableError, as_json: bool) -> int:
    """Print a refusal in its canonical shape, and say the exit code."""
    if as_json and not find_lost_output():
        told = refusal.as_dict() | {"message": refusal.message}  # as the server answers
        with suppress(OSError):
            sys.stdout.write(json.dumps(told, indent=2, default=str, ensure_ascii=False) + "\n")
    lost = find_lost_output()
    if not as_json or (lost and (not is_pipe_closed(lost) or _is_charged())):
        with suppress(OSError):
            open_errors().print(stress(type(refusal).__name__, f"  {refusal}", "bold red"))
    return refusal.exit_code


@contextmanager
def show_progress(title: str) -> Iterator[Progress]:
    """A bar that is told the share done, between 0 and 1; silent when standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _share: None
        return
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=open_errors(), transient=True) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


PolicyOption = Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DENIABLE_LEDGER",
        help="The ledger: a file or a postgresql:// address. [default: POLICY.ledger.sqlite beside the policy]",
        show_default=False,
    ),
]
DEFAULT_POLICY = Path("policy.yaml")


_process: list[tuple[ChargeWatch, list[str]]] = []
"""What this process has charged, and the files it has written."""


@contextmanager
def watch_process() -> Iterator[None]:
    """Note what a whole command charges and writes, so that it can be told wherever it is stopped."""
    watch, files = ChargeWatch(seen=ChargeWatch.tried), list[str]()
    _process[:] = [(watch, files)]
    tokens = WATCH.set(watch), WRITTEN.set(files)
    try:
        yield
    finally:
        WATCH.reset(tokens[0])
        WRITTEN.reset(tokens[1])


def tell_stop() -> Cancelled:
    """What Control-C says of the command of this process, wherever it came."""
    watch, files = _process[0] if _process else (ChargeWatch(seen=ChargeWatch.tried), [])
    if watch.charged is False and watch.seen != ChargeWatch.tried:  # other work of this process charged, or tried to
        watch.charged = None
    return _tell_stopped(watch, files)


@contextmanager
def open_curator(policy: Path, ledger: str | None, *, charges: bool = True, keeps: bool = True) -> Iterator[Curator]:
    """The curator of a policy with its ledger: every command opens a policy here, so that whoever withdrew is left out.

    A command that charges nothing makes no ledger where there is none. Control-C tells whether something was charged;
    without `keeps`, that no answer is kept, and which files were written.
    """
    with watch_stop(keeps=keeps):
        from deniable.curator.context import find_ledger, ledger_of
        from deniable.curator.curator import Curator

        with Curator.open(policy, ledger=(ledger_of if charges else find_ledger)(policy, ledger)) as curator:
            yield curator


@contextmanager
def watch_stop(*, keeps: bool = False) -> Iterator[None]:
    """Control-C, and a refusal that knows of no charge, tell what was charged and which files were written."""
    watch, files = WATCH.get() or ChargeWatch(), WRITTEN.get()
    files = [] if files is None else files
    watch.keeps = keeps
    tokens = WATCH.set(watch), WRITTEN.set(files)
    try:
        yield
    except KeyboardInterrupt:
        raise _tell_stopped(watch, files) from None
    except DeniableError as refusal:
        if watch.charged and refusal.charged in (NOTHING_CHARGED, NO_BUDGET):
            refusal.charged = CHARGED
        raise
    finally:
        WATCH.reset(tokens[0])
        WRITTEN.reset(tokens[1])


def tell_lost(lost: OSError, as_json: bool) -> int:
    """Say that a result was not printed, with what was charged and written, and the exit code.

    Where a pipe was closed by whoever read it and nothing was charged, there is nothing to say.
    """
    if is_pipe_closed(lost) and not _is_charged():
        return StorageError.exit_code
    watch, files = _process[0]
    reason = {errno.EPIPE: "nobody reads the pipe any more", errno.EBADF: "it is closed"}.get(lost.errno or 0)
    there = f"; {', '.join(files)} {'was' if len(files) == 1 else 'were'} written whole" if files else ""
    remedy = "Print to a place that can be written"
    if files:
        remedy = "Read the result there"
    elif watch.charged:
        again = "is not charged again where its answer was kept" if watch.keeps else "is charged again"
        remedy = f"See the entry with `deniable ledger show`; running it again {again}"
    happened = f"the result could not be printed on standard output: {reason or describe_refusal(lost)}{there}"
    charge = UNSURE if watch.charged is None else CHARGED if watch.charged else NOTHING_CHARGED
    return refuse(StorageError(happened, remedy=remedy, charge=charge), as_json)


def _is_charged() -> bool:
    """Whether this process charged something, or may have."""
    return bool(_process) and _process[0][0].charged is not False


def _tell_stopped(watch: ChargeWatch, files: list[str]) -> Cancelled:
    there = f", and {', '.join(files)} {'was' if len(files) == 1 else 'were'} written whole" if files else ""
    if watch.charged is False and watch.recorded:
        from deniable.curator.publish import RECORDED

        happened = f"stopped after the ledger noted the release{there or ', and no file of it is left'}"
        return Cancelled(happened, remedy="Run it again", charge=NOTHING_CHARGED if files else RECORDED)
    if watch.charged is False:
        return Cancelled(f"stopped before anything was charged{there}", remedy="Run it again", charge=NOTHING_CHARGED)
    happened = "stopped after it was charged" if watch.charged else "stopped while the ledger was written"
    if files:
        happened += there
    elif not watch.keeps:
        happened += ", and no file of it is left"
    again = "is charged unless its answer was kept" if watch.keeps else "is charged again"
    return Cancelled(
        happened,
        remedy=f"See the entry with `deniable ledger show`; running it again {again}",
        charge=CHARGED if watch.charged else UNSURE,
    )


def name_asker(name: str, purpose: str) -> Asker | None:
    """Who asks at the command line; nobody named is the steward."""
    from deniable.governance.grants import Asker, Role

    if not name and not purpose:
        return None
    return Asker(name, purpose, Role.ANALYST if name else Role.STEWARD)
