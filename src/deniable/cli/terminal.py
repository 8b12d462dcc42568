"""What every command shares: options, how results and refusals are printed, and how long work shows that it goes on.

Results go to standard output, everything else (progress, notes, refusals) to standard error, so that output can be
piped. Progress is drawn only on a terminal."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.streams import find_lost_output, is_pipe_closed
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
