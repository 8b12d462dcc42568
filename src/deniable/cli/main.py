"""`deniable`: the command line. Exit codes: 0 done, 2 refused by policy or bad input, 3 our bug,
130 stopped."""

from __future__ import annotations

import atexit
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import typer

from deniable.cli import INTERRUPTED, STOP, hear_once
from deniable.cli.terminal import find_lost_output, refuse, tell_lost, tell_stop, watch_process, watch_streams
from deniable.errors import NOTHING_CHARGED, Cancelled, DeniableError, InternalError, ParameterError
from deniable.storage import refuse_odd, refuse_pipe

EPILOG = """\b
Workflows:
  deniable demo                                      # the story of one town
  deniable learn                                     # thirteen lessons with toys, also for a class with phones
  deniable start people.csv                          # from a table to a first release, step by step
  deniable scan people.csv                           # find identifiers, draft a policy
  deniable policy check policy.yaml                  # who is protected, and how much
  deniable query "SELECT COUNT(*) FROM visits" -p policy.yaml --epsilon 0.5
  deniable publish daily -p policy.yaml -o daily.csv  # numbers every day, for one charge
  deniable network friends degrees -p policy.yaml --epsilon 1  # a table of edges: degrees, triangles, groups
  deniable places rides --at latitude,longitude --epsilon 1 -o map.geojson   # a noisy map of where people are
  deniable tabulate census -p policy.yaml -o census.parquet  # counts by area that add up, as of a census
  deniable mask people.csv -p policy.yaml -o out.parquet
  deniable anonymize patients.parquet -p policy.yaml --k 5 -o out.parquet
  deniable synthesize visits -p policy.yaml --epsilon 1 --delta 1e-6 -o synthetic.parquet
  deniable train visits -p policy.yaml --target charge --epsilon 1 -o model.json
  deniable attack out.parquet --original patients.parquet -p policy.yaml --all
  deniable serve policy.yaml                         # analysts ask over HTTP and with psql
  deniable mcp policy.yaml                           # an AI assistant asks, within a token's budget
  deniable federate join visits --server URL         # sums over tables that stay with their owners
  deniable survey serve survey.yaml                  # answers randomized in the browser

\b
Exit codes: 0 done, 2 refused by policy or bad input, 3 a bug of ours.
Every command has --help with examples; those that print results have --json.
"""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo.demo", "Example: deniable demo --out town"),
    "start": ("start.start", "EXAMPLES"),
    "learn": ("learn.learn", "EXAMPLES"),
    "query": ("query.query", "EXAMPLES"),
    "bounds": ("query.bounds", "BOUNDS_EXAMPLES"),
    "top": ("query.top", "TOP_EXAMPLES"),
    "network": ("network.network", "EXAMPLES"),
    "margins": ("query.margins", "MARGINS_EXAMPLES"),
    "weighted": ("query.weighted", "WEIGHTED_EXAMPLES"),
    "watch": ("query.watch", "WATCH_EXAMPLES"),
    "sample-and-aggregate": ("query.sample_and_aggregate", "BLOCKS_EXAMPLES"),
    "hierarchy": ("hierarchy.hierarchy", "EXAMPLES"),
    "publish": ("publish.publish", "EXAMPLES"),
    "places": ("publish.places", "PLACES_EXAMPLES"),
    "tabulate": ("tabulate.tabulate", "EXAMPLES"),
    "mask": ("mask.mask", "EXAMPLES"),
    "anonymize": ("anonymize.anonymize", "EXAMPLES"),
    "check": ("anonymize.check", "CHECK_EXAMPLES"),
    "attack": ("attack.attack", "ATTACK_EXAMPLES"),
    "audit": ("attack.audit", "AUDIT_EXAMPLES"),
    "synthesize": ("synthesize.synthesize", "EXAMPLES"),
    "describe": ("synthesize.describe", "EXAMPLES"),
    "generate": ("synthesize.generate", "EXAMPLES"),
    "train": ("train.train", "EXAMPLES"),
    "predict": ("train.predict", "EXAMPLES"),
    "parity": ("inspect.parity", "PARITY_EXAMPLES"),
    "inspect": ("inspect.inspect", "EXAMPLES"),
    "scan": ("policy.scan", "SCAN_EXAMPLES"),
    "randomize": ("randomize.randomize", "RANDOMIZE_EXAMPLES"),
    "estimate": ("randomize.estimate", "ESTIMATE_EXAMPLES"),
    "ladder": ("randomize.ladder", "LADDER_EXAMPLES"),
    "serve": ("governance.serve", "SERVE_EXAMPLES"),
    "mcp": ("governance.mcp", "MCP_EXAMPLES"),
    "request": ("governance.request", "Example: deniable request mask visits --analyst ana --purpose research"),
    "requests": ("governance.requests", "Example: deniable requests --pending"),
    "approve": ("governance.approve", "Example: deniable approve 5f0c1a --reason 'a sample, for teaching'"),
    "decline": ("governance.decline", "Example: deniable decline 5f0c1a --reason 'a query answers this'"),
    "fulfill": ("governance.fulfill", "Example: deniable fulfill 5f0c1a -o released/"),
    "terms": ("governance.terms", "Example: deniable terms --analyst ana --purpose research --acknowledge"),
    "withdraw": ("governance.withdraw", "Example: deniable withdraw 1042 --column patient_id"),
    "reinstate": (
        "governance.reinstate",
        "Example: deniable reinstate 1042 --column patient_id --reason 'signed the form again'",
    ),
    "subject": ("governance.subject", "Example: deniable subject 1042 --column patient_id"),
    "resume": ("governance.resume", "Example: deniable resume ana -p policy.yaml"),
    "purge": ("governance.purge", "Example: deniable purge -p policy.yaml"),
    "register": ("governance.register", "Example: deniable register -p policy.yaml -o register.html"),
    "estate": ("governance.estate", "Example: deniable estate policies/ -o estate.html"),
}
"""Each command with its function, and the text after its help or the name that its module has for it."""
CLASSES = {"audit": "AuditCommand"}
"""Commands that are read in a way of their own, by a class of their module."""
GROUPS: Mapping[str, str] = {
    "key": "mask.key_app",
    "ledger": "ledger.app",
    "token": "governance.token_app",
    "epoch": "governance.epoch_app",
    "vault": "mask.vault_app",
    "policy": "policy.app",
    "release": "release.app",
    "survey": "survey.app",
    "federate": "federate.app",
    "world": "demo.world_app",
}
"""Each group of commands, and where it is."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"deniable {version('deniable')}")
        raise typer.Exit


def deniable(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A privacy curator for tables: it stands between the people in the data and the people who ask."""


def _load(place: str) -> tuple[ModuleType, Any]:
    """A module of the command line, which is loaded, and the function or the group in it."""
    module, _, name = place.partition(".")
    loaded = import_module(f"deniable.cli.{module}")
    return loaded, getattr(loaded, name)


def build_app(names: Iterable[str]) -> typer.Typer:
    """The command line with these commands and groups; no module of another one is loaded."""
    found = typer.Typer(name="deniable", no_args_is_help=True, rich_markup_mode=None, epilog=EPILOG)
    found.callback()(deniable)
    for name in names:
        if name in GROUPS:
            group = _load(GROUPS[name])[1]
            for each in group.registered_commands:
                each.short_help = each.short_help or shorten(each.callback.__doc__)
            found.add_typer(group, name=name, short_help=shorten(group.info.help))
            continue
        place, text = COMMANDS[name]
        module, function = _load(place)
        own = {"cls": getattr(module, CLASSES[name])} if name in CLASSES else {}
        epilog = getattr(module, text, text) if text else None
        found.command(name=name, epilog=epilog, short_help=shorten(function.__doc__), **own)(function)
    return found


def shorten(text: str | None) -> str:
    """What a command does, for a list of all: the words before the first colon or semicolon, and never cut short.

    >>> shorten("Ask a question (in SQL: one); the answer has noise.")
    'Ask a question (in SQL: one)'
    """
    sentence = re.split(r"\.(?:\s|$)", " ".join((text or "").split()), maxsplit=1)[0]
    return re.match(r"(?:\([^)]*\)|[^:;(])*", sentence)[0].strip()  # type: ignore[index]  # it matches any text


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return globals().setdefault(name, build_app((*COMMANDS, *GROUPS)))  # type: ignore[no-any-return]


def narrow_app(words: Sequence[str]) -> typer.Typer:
    """The command line with the one command that was named: building all of them takes longer than most commands."""
    named = next(iter(words), "")
    if named in COMMANDS or named in GROUPS:
        return build_app([named])
    found = build_app((*COMMANDS, *GROUPS))
    if named in ("", "--help", "--version"):
        found.registered_commands = [_name_command(each) for each in found.registered_commands]
        found.registered_groups = [_name_group(each) for each in found.registered_groups]
    return found


def _name_command(full: Any) -> Any:
    """A command by its name and first words, for a list of all: none of its options is read."""

    def describe() -> None:
        """Nothing is run."""

    describe.__doc__ = full.callback.__doc__
    found = copy(full)
    found.callback = describe
    return found


def _name_group(full: Any) -> Any:
    """A group of commands by its name and first words."""
    found = copy(full)
    found.typer_instance = copy(full.typer_instance)
    found.typer_instance.registered_commands = []
    found.typer_instance.registered_groups = []
    return found


class PlainValue:
    """Reads what is written after an option where it can be meant in one way only; Typer reads all else.

    Typer loads a library for it and builds a reader for each option, whether it is given or not, which takes longer
    than most commands.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value as the type that the option has."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        for text in value if isinstance(value, list | tuple) else [value]:
            if param.type_descriptor.annotation in (Path, list[Path]):
                refuse_odd(Path(text))
            elif isinstance(text, str):
                refuse_pipe(text)
        for taken in _take_plainly(value, param.type_descriptor):
            return taken
        plain = not isinstance(value, str) or ("_" not in value and value.isascii())
        if not plain and param.type_descriptor.annotation in NUMBERS:  # Typer reads 1_0 as ten
            raise typer.BadParameter(f"'{value}' is not a number as it is written here, such as 10.", ctx, param)
        param._runtime_param = None
        try:
            return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
        except typer.BadParameter:
            expected = _describe_number(param.type_descriptor)
            if not expected or not isinstance(value, str):
                raise
            raise typer.BadParameter(f"'{value}' is not {expected}.", ctx, param) from None


LIMITS = ("min", "max", "exists", "writable", "resolve_path", "allow_dash", "path_type", "parser")
"""What an option may ask of its value beside a type."""
NUMBERS: dict[type, re.Pattern[str]] = {int: re.compile("[0-9]{1,9}"), float: re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")}


def _take_plainly(value: Any, described: Any) -> Iterator[Any]:
    """The value as its type, or nothing where Typer should decide."""
    kind = described.annotation
    if any(getattr(described.parameter_info, name, None) for name in LIMITS):
        return
    if kind is str and isinstance(value, str):
        yield value
    elif kind == list[str] and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        yield list(value)
    elif kind is Path and isinstance(value, str) and (not os.path.exists(value) or os.access(value, os.R_OK)):
        yield Path(value)
    elif kind in NUMBERS and isinstance(value, str) and NUMBERS[kind].fullmatch(value):
        yield kind(value)
    elif kind in NUMBERS and type(value) is kind:
        yield value


def _describe_number(described: Any) -> str:
    """The number that an option takes, in words; empty for other types."""
    if described.annotation not in NUMBERS:
        return ""
    low, high = described.parameter_info.min, described.parameter_info.max
    kind = "a whole number" if described.annotation is int else "a number"
    if low is not None and high is not None:
        return f"{kind} between {low:,g} and {high:,g}"
    return kind + ("" if low is None else f" of at least {low:,g}") + ("" if high is None else f" of at most {high:,g}")


TYPE_WORDS = {"str": "text", "int": "number", "float": "number"}


def name_type(param: Any) -> None:
    """Let an option show its type in plain words."""
    shown = param.display_type
    param.display_type = lambda ctx: put_plainly(shown(ctx))


def put_plainly(kind: str) -> str:
    """A type as help shows it, in words.

    >>> [put_plainly(each) for each in ("<list[str]>", "<int range>", "<path>", "<list[file]>")]
    ['<text>', '<number>', '<path>', '<file>']
    """
    bare = re.sub(r"<(?:list\[)?([^\]>]*?)(?: range)?\]?>", r"<\1>", kind)
    return re.sub(r"\b(str|int|float)\b", lambda found: TYPE_WORDS[found[0]], bare)


def build_command(words: Sequence[str]) -> Any:
    """What is run for these words, with its options read plainly."""
    found = typer.main.get_command(narrow_app(words))
    commands: list[Any] = [found]
    while commands:
        each = commands.pop()
        commands += getattr(each, "commands", {}).values()
        if (each.epilog or "").startswith("Example: "):
            each.epilog = "\b\nExample:\n  " + each.epilog.removeprefix(
                "Example: "
            )  # a command that is pasted is whole
        for param in each.get_params(typer.Context(each)):  # --help too
            if hasattr(param, "type_descriptor"):  # older releases of Typer read values without that library
                param._runtime_param = PlainValue()
                name_type(param)
    return found


GARBAGE = 200_000
"""Objects between two searches for garbage: while modules are loaded there is none, and they are searched each time."""

HOLLOW: dict[str, dict[str, Any]] = {
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda _text: {"Parameters": []}},
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
}
"""Modules that write help texts, which no command shows, and what is asked of them when libraries are loaded."""

MASKS = "numpy.ma"


def _load_masks(name: str) -> Any:
    """What only the whole module has: it is loaded, and takes its own place."""
    for held in (HOLLOW, sys.modules):
        held.pop(MASKS, None)
    return getattr(import_module(MASKS), name)


NO_MASKS = {"MaskedArray": type("MaskedArray", (), {}), "is_masked": lambda _array: False, "__getattr__": _load_masks}
"""Arrow and numpy ask of each array whether it has a mask, and no command makes such a one."""

WITHOUT_MATRICES = ("anonymize", "check", "mask", "scan", "policy", "hierarchy")
"""Commands that multiply no matrices: they need no threads for it, and no library that knows masks."""


class LessLoaded:
    """Keeps out what libraries load for others than a command."""

    @classmethod
    def find_spec(cls, name: str, *_rest: object) -> ModuleSpec | None:
        """Say that there is no pandas, with which Arrow only sees whether it was given a frame; the solver needs it."""
        if name == "pandas" and "ortools" not in sys.modules:
            raise ModuleNotFoundError(name, name=name)
        return ModuleSpec(name, cls) if name in HOLLOW else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(_spec: ModuleSpec) -> None:
        """Let Python make the module."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Put the little there that is asked of it."""
        vars(module).update(HOLLOW[module.__name__])


def load_less(words: Sequence[str]) -> None:
    """Keep out what libraries load or start for others than a command."""
    sys.meta_path.insert(0, LessLoaded)
    if next(iter(words), "") in WITHOUT_MATRICES:
        HOLLOW[MASKS] = NO_MASKS
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(GARBAGE)


def main() -> None:
    """Run one command; every refusal leaves as one paragraph (or one JSON document) and a documented exit code."""
    as_json = "--json" in sys.argv
    try:
        with watch_process():
            ended = build_command(sys.argv[1:])(standalone_mode=not as_json)
        if ended == INTERRUPTED:  # the library caught the interruption
            raise KeyboardInterrupt
    except BaseException as failure:
        heard = STOP.end()
        sys.exit(_tell_failure(failure, heard, as_json))
    STOP.end()
    if (lost := find_lost_output()) is not None:
        sys.exit(tell_lost(lost, as_json))
    sys.exit(ended if type(ended) is int else 0)


def _tell_failure(failure: BaseException, heard: bool, as_json: bool) -> int:
    """Print why a command ended, once, and say its exit code; after a signal that was heard, that is why."""
    exited = failure.code if isinstance(failure, SystemExit) else None
    if isinstance(failure, KeyboardInterrupt) or exited == INTERRUPTED:
        return refuse(tell_stop(), as_json)
    lost = find_lost_output()
    if lost is not None and isinstance(failure, SystemExit | OSError | typer.Abort) and exited != 2:
        return tell_lost(lost, as_json)
    if isinstance(failure, SystemExit):
        raise failure
    if isinstance(failure, typer.Abort):
        return 1
    if heard and not isinstance(failure, Cancelled):
        return refuse(tell_stop(), as_json)
    if os.environ.get("DENIABLE_DEBUG") and _is_bug(failure):
        raise failure
    if isinstance(failure, DeniableError):
        return refuse(failure, as_json)
    if hasattr(failure, "format_message"):  # words that no command has, which the library refuses
        happened = failure.format_message().rstrip(".")
        return refuse(ParameterError(happened, remedy="--help shows the options", charge=NOTHING_CHARGED), as_json)
    # The message of an unforeseen failure may quote data, so only its type is shown.
    bug = InternalError(
        f"An unforeseen {type(failure).__name__} in deniable itself",
        remedy="Please report it, with DENIABLE_DEBUG=1 set to see where it happened (that text may quote data)",
        charge="",
    )
    return refuse(bug, as_json)


def _is_bug(failure: BaseException) -> bool:
    return isinstance(failure, InternalError) or not (
        isinstance(failure, DeniableError) or hasattr(failure, "format_message")
    )


def run() -> None:
    """The program: one command in a process of its own."""
    hear_once()
    watch_streams()
    load_less(sys.argv[1:])
    if os.name == "posix":
        _hear_signals()
    try:
        main()
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        _leave(ended.code)
    _leave(0)


def _hear_signals() -> None:
    """Interrupt the engine's statement when a signal comes, of which Python hears else at the statement's end."""
    read, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)

    def interrupt() -> None:
        while os.read(read, 1):
            engines = sys.modules.get("deniable.engines.duckdb.engine")
            with suppress(RuntimeError):  # one is opened at this moment
                for each in list(getattr(engines, "OPEN", ())):  # none while it is loaded
                    each.cancel()

    threading.Thread(target=interrupt, daemon=True).start()


def _leave(code: int) -> NoReturn:
    """End the process, and let the system take its memory: Python would give it back piece by piece.

    All else that is to be done at the end is done. While another thread works, the process ends as any other.
    """
    if all(each.daemon for each in threading.enumerate() if each is not threading.main_thread()):
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # what was lost was told
                stream.flush()
        os._exit(code)
    sys.exit(code)


def leave_stopped() -> NoReturn:
    """End the process after a signal that came around the command."""
    _leave(refuse(tell_stop(), "--json" in sys.argv))
