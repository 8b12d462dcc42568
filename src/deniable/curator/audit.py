"""Audit anything that claims an epsilon: a mechanism of ours, a question, a function, a program, outputs at hand.

What is audited is told apart by how it is written. Functions and programs are run as they are, with the rights of
whoever asks; their worlds are values or files that the caller names. A question is measured over made-up rows. Nothing
is read from the policy's private tables, and nothing is charged.
"""

from __future__ import annotations

import copy
import csv
import importlib
import inspect
import io
import json
import pickle
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.assess.outputs import Failed, Printed
from deniable.curator.attack import PRINTED, RUNS, WORLD, call_program, table_at
from deniable.errors import DataError, ParameterError

if TYPE_CHECKING:
    from deniable.assess.mechanism_audit import AuditReport, Claim
    from deniable.assess.outputs import Subject
    from deniable.policy.document import Policy

Progress = Callable[[float], None]
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
QUESTION = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)
OUTPUTS = "outputs"
"""The word for outputs that are at hand: one file for each world."""


MOST_CLAIMED = 1_000_000
"""Epsilon or mu, at most: no number of runs says anything about more."""
TRIES, MANY_RUNS = 20, 20_000
"""Pairs that are tried, and runs on each input, where nobody says."""


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """What was asked: the subject, what is claimed of it, its worlds, and how hard to try.

    The first world is compared with each of the others; one world alone with itself without each of its rows, or
    without `tries` of them by chance. `neighbors` names a function that gives a pair of worlds for each number from 0
    to `tries` - 1. What is None was not said: then epsilon is 1, delta 0, and TRIES and MANY_RUNS hold.
    """

    subject: str
    epsilon: str | None = None
    delta: str | None = None
    mu: str | None = None
    spends: str | None = None
    worlds: tuple[Any, ...] = ()
    neighbors: str | None = None
    tries: int | None = None
    policy: Path | Policy | None = None
    canaries: int | None = None
    timed: bool = False
    runs: int | None = None
    confidence: float = 0.999
    function: Callable[..., Any] | None = None
    """The subject itself, where a caller of Python has it at hand."""


def audit(order: AuditOrder, progress: Progress | None = None) -> AuditReport:
    """Audit what was named at the epsilon claimed of it."""
    from deniable.assess.mechanism_audit import audit_canaries, audit_claim, audit_subject

    claim = _read_claim(order)
    _refuse_unused(order)
    if order.canaries is not None:
        words = f"which of {order.canaries} canaries were in, by one run"
        return audit_canaries(order.function or find_function(order.subject), order.canaries, claim, words)
    with tempfile.TemporaryDirectory() as folder:  # for neighbors that are made of one file
        subject = _find_subject(order, Path(folder))
        return audit_claim(claim, progress) if subject is None else audit_subject(subject, claim, progress)


IN_ONE_RUN, A_FUNCTION, A_QUESTION = "one run with canaries", "a function", "a question"
AT_HAND, A_PROGRAM, OURS, OURS_ONCE = "outputs at hand", "a program", "a mechanism of ours", "a training or a synthesis"
USED: dict[str, tuple[str, ...]] = {
    IN_ONE_RUN: ("--canaries",),
    A_FUNCTION: ("--world", "--neighbors", "--tries", "--timed", "--mu", "--runs"),
    A_QUESTION: ("--policy", "--spends", "--mu", "--runs"),
    AT_HAND: ("--world", "--mu"),
    A_PROGRAM: ("--world", "--neighbors", "--tries", "--mu", "--runs"),
    OURS: ("--spends", "--mu", "--runs"),
    OURS_ONCE: ("--spends",),
}
"""What may be said of each kind of subject, besides --epsilon, --delta and --confidence; all else is refused."""


def _refuse_unused(order: AuditOrder) -> None:
    """Refuse what was said and would change nothing: whoever said it would take the result for another one."""
    given = {"--world": bool(order.worlds), "--neighbors": order.neighbors is not None, "--timed": order.timed,
             "--tries": order.tries is not None, "--runs": order.runs is not None, "--mu": order.mu is not None,
             "--canaries": order.canaries is not None, "--spends": order.spends is not None,
             "--policy": isinstance(order.policy, Path)}  # fmt: skip
    kind = _tell_kind(order)
    for option, said in given.items():
        if said and option not in USED[kind]:
            used = ", ".join((*USED[kind], "--epsilon, --delta and --confidence"))
            raise ParameterError(
                f"{option} has no meaning in an audit of {kind}", expected=used, remedy=f"Leave {option} out"
            )
    if order.worlds and order.neighbors is not None:
        raise ParameterError(
            "Both worlds and a function that gives them were named", remedy="Say --world or --neighbors, not both"
        )
    if order.tries is not None and order.neighbors is None and len(order.worlds) != 1:
        raise ParameterError(
            "--tries has no meaning where the pairs are given", expected="--neighbors, or one --world",
            remedy="Leave --tries out",
        )  # fmt: skip
    if order.mu is not None:
        _refuse_two_claims(order, kind)


def _refuse_two_claims(order: AuditOrder, kind: str) -> None:
    """A claim is an epsilon with a delta, or a mu. What our own noise is made for is then said by --spends."""
    spent = kind in (OURS, A_QUESTION)
    if spent and order.spends is None:
        raise ParameterError(
            "A mu is claimed, and not said for which epsilon the noise is made", expected="--mu MU --spends EPSILON",
            remedy="Say --spends, and --delta where the noise needs one",
        )  # fmt: skip
    for option, said in (("--epsilon", order.epsilon), ("--delta", None if spent else order.delta)):
        if said is not None:
            raise ParameterError(
                f"{option} has no meaning beside --mu", expected="A claim is an epsilon with a delta, or a mu",
                remedy=f"Leave {option} or --mu out",
            )  # fmt: skip


def _tell_kind(order: AuditOrder) -> str:
    from deniable.assess.mechanism_audit import ONE_RUN

    if order.function is None:
        if QUESTION.match(order.subject):
            return A_QUESTION
        if order.subject == OUTPUTS:
            return AT_HAND
        if WORLD in order.subject:
            return A_PROGRAM
        if not FUNCTION.fullmatch(order.subject) or not _is_module(order.subject):
            return OURS_ONCE if order.subject in ONE_RUN else OURS
    return A_FUNCTION if order.canaries is None else IN_ONE_RUN


def _read_claim(order: AuditOrder) -> Claim:
    from deniable.assess.mechanism_audit import Claim
    from deniable.policy.budget import exact

    spent, mu = (None if text is None else exact(text, name) for text, name in
                 ((order.spends, "spends"), (order.mu, "mu")))  # fmt: skip
    epsilon, delta = exact(order.epsilon or "1", "epsilon"), exact(order.delta or "0", "delta")
    for name, amount in (("epsilon", epsilon), ("spends", spent), ("mu", mu)):
        if amount is not None and amount > MOST_CLAIMED:
            raise ParameterError(f"{name} is too large for an audit", expected=f"At most {MOST_CLAIMED:,}")
    return Claim(order.subject, epsilon, delta, spent, order.runs or MANY_RUNS, order.confidence, mu)


def _find_subject(order: AuditOrder, folder: Path) -> Subject | None:
    """What the words name; None where they name a mechanism of ours."""
    makers: dict[str, Callable[[AuditOrder], Subject]] = {
        A_FUNCTION: _make_function,
        A_QUESTION: _make_question,
        AT_HAND: _make_outputs,
        A_PROGRAM: partial(_make_program, folder=folder),
    }
    make = makers.get(_tell_kind(order))
    return None if make is None else make(order)


def _is_module(subject: str) -> bool:
    from deniable.assess.mechanism_audit import MECHANISMS, ONE_RUN

    return subject not in MECHANISMS and subject not in ONE_RUN and not subject.startswith(("local:", "synthesis:"))


def _make_question(order: AuditOrder) -> Subject:
    from deniable.assess.mechanism_audit import make_question_subject
    from deniable.curator.scope import refuse_expired
    from deniable.ledger.budget_tree import choose_accounting
    from deniable.policy.access import Accounting
    from deniable.policy.budget import budget
    from deniable.policy.document import Policy, read

    if order.policy is None:
        raise ParameterError("A question is audited under a policy", remedy="Say --policy policy.yaml")
    policy = refuse_expired(order.policy if isinstance(order.policy, Policy) else read(order.policy))
    pure = choose_accounting(policy.budgets) == Accounting.PURE
    asked = budget(order.spends or order.epsilon or "1", order.delta or "0")
    return make_question_subject(order.subject, policy.tables, asked, pure=pure)


def _list_pairs(order: AuditOrder, worlds: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """Pairs that a function proposes; or the first world with each of the others, or one without each of its rows."""
    if order.neighbors is not None:
        propose = find_function(order.neighbors)
        return tuple(_propose_pair(propose, number) for number in range(order.tries or TRIES))
    if len(worlds) == 1:
        return tuple((worlds[0], _leave_out(worlds[0], place)) for place in _choose_places(order, worlds[0]))
    return tuple((worlds[0], other) for other in worlds[1:])


def _propose_pair(propose: Callable[..., Any], number: int) -> tuple[Any, Any]:
    found = _call(propose, number)
    if isinstance(found, Failed):
        raise ParameterError(f"{found.words} for number {number}", expected="A function that gives a pair of worlds")
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise ParameterError(
            f"The function of --neighbors gave no pair of worlds for number {number}", expected="A tuple of two worlds"
        )
    return found[0], found[1]


def _leave_out(rows: Sequence[Any], place: int) -> list[Any]:
    return [*rows[:place], *rows[place + 1 :]]


def _choose_places(order: AuditOrder, rows: Any) -> list[int]:
    """Which rows of one world are left out in turn: all, or so many by chance, the same each time."""
    if not isinstance(rows, list) or not rows:
        raise ParameterError(
            "One world has no neighbors that could be made of it", expected="A list of rows, or two worlds",
            remedy="Say --world A --world B",
        )  # fmt: skip
    return sorted(random.Random(len(rows)).sample(range(len(rows)), min(order.tries or TRIES, len(rows))))  # noqa: S311


def _label_pairs(order: AuditOrder, pairs: Sequence[tuple[Any, Any]], places: Sequence[int] = ()) -> tuple[str, ...]:
    """A pair by its place: worlds may hold rows, which no report shows."""
    if order.neighbors is not None:
        return tuple(f"that of number {number}" for number in range(len(pairs)))
    if len(order.worlds) == 1:
        return tuple(f"that without row {place + 1}" for place in places)
    return tuple(f"the first world and the {number}." for number in range(2, len(pairs) + 2))


def _require_worlds(order: AuditOrder) -> None:
    if len(order.worlds) < 2 and order.neighbors is None:
        raise ParameterError(
            "There are no two worlds to tell apart", expected="Two neighbors, which differ in one person",
            remedy="Say --world A --world B",
        )  # fmt: skip


def _make_function(order: AuditOrder) -> Subject:
    """A function of a world, or of a world and a number of runs."""
    from deniable.assess.outputs import Subject

    function = order.function or find_function(order.subject)
    several = len(_list_places(function)) > 1
    worlds = [_parse_world(text) for text in order.worlds] or [0, 1]
    pairs = _list_pairs(order, worlds)
    places = _choose_places(order, worlds[0]) if len(worlds) == 1 else ()

    def run(world: Any, runs: int) -> Any:
        found = _call(function, prepare_copies(world)(), runs)
        return found if isinstance(found, Failed) or _count(found) == runs else Failed(MISCOUNTED)

    def run_alone(world: Any) -> Callable[[], Any]:
        call = partial(_time, several=several) if order.timed else _call_once if several else _call
        copy_world = prepare_copies(world)
        return lambda: call(function, copy_world())

    named = order.worlds or order.neighbors is not None
    advice = (
        "Try it by itself first" if named else "No world was named, so it was given 0 and 1: say --world A --world B"
    )
    batched = run if several and not order.timed else None
    return Subject("worlds of a function", batched, pairs, _label_pairs(order, pairs, places), run_alone, advice)


SEVERAL = "runs"
"""A second argument of this name is the number of runs, whether or not it has a default."""
MISCOUNTED = "The function did not give one output for each run"


def prepare_copies(world: Any) -> Callable[[], Any]:
    """Copies of a world, one for each run: a function may change what it is given, and every run begins alike."""
    try:
        written = pickle.dumps(world)  # reading is faster than deepcopy
        pickle.loads(written)  # noqa: S301  written by the line before
        return lambda: pickle.loads(written)  # noqa: S301
    except Exception:  # whatever its types raise
        return partial(_copy_deeply, world)


def _copy_deeply(world: Any) -> Any:
    try:
        return copy.deepcopy(world)
    except Exception:  # whatever its types raise
        raise ParameterError(
            "A world cannot be copied, and every run needs one of its own",
            expected="Values that Python can copy",
            remedy="Give what the function opens itself, such as the path of a file",
            charge="",
        ) from None


def _call(function: Callable[..., Any], *given: Any) -> Any:
    """One output; that a function fails or ends is an output too, since it may do so for some people only.

    The output is copied: a function may fill the same list or array in every run.
    """
    try:
        found = function(*given)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # whatever a stranger's function raises, sys.exit too
        return Failed(f"The function raised {type(failure).__name__}", str(failure))
    try:
        return copy.deepcopy(found)
    except Exception:  # of types that are no outputs, which is told later
        return found


def _call_once(function: Callable[..., Any], world: Any) -> Any:
    found = _call(function, world, 1)
    if isinstance(found, Failed):
        return found
    return next(iter(found)) if _count(found) == 1 else Failed(MISCOUNTED)


def _count(found: Any) -> int | None:
    try:
        return len(found)
    except TypeError:
        return None


def _list_places(function: Callable[..., Any]) -> list[str]:
    """The arguments that are given: those without a default, and the number of runs."""
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    given = [each for each in every if each.kind is each.POSITIONAL_OR_KEYWORD]
    return [each.name for each in given if each.default is each.empty or each.name == SEVERAL]


def _time(function: Callable[..., Any], world: Any, several: bool) -> list[Any] | Failed:
    """One output, and the nanoseconds of work that it took."""
    start = time.process_time_ns()
    found = (_call_once if several else _call)(function, world)
    return found if isinstance(found, Failed) else [found, time.process_time_ns() - start]


def _parse_world(text: Any) -> Any:
    """A world as it is given to a function: a number, a list, a mapping; else the text itself, such as a file."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return text


def find_function(name: str) -> Callable[..., Any]:
    """The function that `module:function` names, importable from where the command runs."""
    module, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        raise ParameterError(
            f"There is no function '{function}' in a module '{module}'",
            expected="module:function, importable from here",
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as failure:  # whatever a stranger's module raises, sys.exit too
        raise ParameterError(
            f"The module '{module}' raised {type(failure).__name__} when it was imported",
            expected="module:function, importable from here",
            remedy="Put what it runs under: if __name__ == '__main__'",
        ) from None
    if not callable(found):
        raise ParameterError(f"'{name}' is not a function", expected="module:function")
    return found  # type: ignore[no-any-return]


def _make_program(order: AuditOrder, folder: Path) -> Subject:
    """Another program: run once for each output, or once for each batch of them where its words have {runs}."""
    from deniable.assess.outputs import Subject

    words, places = shlex.split(order.subject), list[int]()
    if len(order.worlds) == 1 and order.neighbors is None:
        pairs, places = _write_neighbors(order, Path(order.worlds[0]), folder)
    else:
        _require_worlds(order)
        pairs = _list_pairs(order, order.worlds)

    batched = any(RUNS in word for word in words)
    if not batched:
        _refuse_what_always_fails(words, pairs[0])

    def run(world: str, runs: int) -> list[Any] | Failed:
        code, printed = call_program(words, world, runs)
        return _read_lines(printed, runs) if code == 0 else _tell_failure(words, code, printed)

    def run_alone(world: str) -> Callable[[], Any]:
        return partial(_run_once, words, world)

    named = _label_pairs(order, pairs, places)
    return Subject("files given to a program", run if batched else None, pairs, named, run_alone, started_anew=True)


TRIED_FIRST = 5
"""A program that fails alike so often from the first run on, in both worlds, is taken as one that always does."""


def _refuse_what_always_fails(words: Sequence[str], worlds: tuple[str, str]) -> None:
    first = None
    for world in worlds * TRIED_FIRST:
        found = _run_once(words, world)
        if not isinstance(found, Failed) or found != (first := first or found):
            return
    if first is not None:
        raise DataError(f"{first.words} in every run", remedy="Try it by itself first", charge="")


def _tell_failure(words: Sequence[str], code: int, printed: str = "") -> Failed:
    return Failed(f"The program '{words[0]}' ended with exit code {code}", printed, DataError)


def _run_once(words: Sequence[str], world: str) -> Printed | Failed:
    """One output of a program; that it fails is an output too, since it may fail for some people only."""
    code, printed = call_program(words, world, 1)
    return _tell_failure(words, code, printed) if code else _read_output(printed)


def _write_neighbors(order: AuditOrder, file: Path, folder: Path) -> tuple[tuple[tuple[str, str], ...], list[int]]:
    """A file of lines without one of them, for each line or for some; the header of a CSV file stays."""
    if file.suffix not in LINES:
        raise ParameterError(
            "There are no two worlds to tell apart, and neighbors are made of one file only where each line is a row",
            expected=f"Two files, or one that ends in {', '.join(LINES)}",
            remedy="Say --world A --world B",
        )  # fmt: skip
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError):
        raise DataError(f"The world {file.name} cannot be read", charge="") from None
    head = 1 if file.suffix in (".csv", ".tsv") else 0
    places = _choose_places(order, lines[head:])
    for place in places:
        (folder / f"{place}{file.suffix}").write_text(
            "".join([*lines[:head], *_leave_out(lines[head:], place)]), encoding="utf-8"
        )
    return tuple((str(file), str(folder / f"{place}{file.suffix}")) for place in places), places


LINES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson")


def _read_lines(text: str, runs: int) -> list[Any] | Failed:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) != runs:
        lines = [line for line in lines if line.strip()]
    if len(lines) != runs:
        return Failed(f"The program printed {len(lines)} outputs for {runs} runs", error=DataError)
    return [_read_output(line) for line in lines]


def _read_output(text: str) -> Printed:
    """What was printed: JSON, else numbers and words that are parted by commas or spaces, else the lines of a table."""
    text = text.removesuffix("\n")
    try:
        return Printed(text, json.loads(text))
    except (ValueError, RecursionError):
        stripped = text.strip()
        return Printed(text, stripped if "\n" in stripped else re.split(r"[,\s]+", stripped))


def _make_outputs(order: AuditOrder) -> Subject:
    """Outputs that are at hand: a file for each world, with one output a row (or a line)."""
    from deniable.assess.outputs import Subject

    _require_worlds(order)
    pairs = _list_pairs(order, order.worlds)
    if len(pairs) != 1:
        raise ParameterError("Outputs at hand are of one pair of worlds", remedy="Say --world twice")
    return Subject("two files of outputs", lambda world, _: _read_outputs(world), pairs, _label_pairs(order, pairs))


def _read_outputs(path: str) -> list[Any]:
    """The outputs of a file. The types of its columns and their order are of the file, and not of its outputs."""
    if not path.endswith((".jsonl", ".ndjson", ".txt", ".csv", ".tsv")):
        rows = table_at(path).to_pylist()
        return _mix([{name: _level(row[name]) for name in sorted(row)} for row in rows])
    try:
        text = Path(path).read_text(encoding="utf-8", errors=PRINTED["errors"])
    except OSError:
        raise DataError(f"The outputs {Path(path).name} cannot be read", charge="") from None
    if path.endswith((".csv", ".tsv")):
        return _mix(_read_cells(text.removeprefix("\ufeff"), "," if path.endswith(".csv") else "\t"))
    lines = text.rstrip().split("\n") if path.endswith(".txt") else [line for line in text.split("\n") if line.strip()]
    return _mix([_read_output(line.removesuffix("\r")) for line in lines])


def _level(cell: Any) -> Any:
    """A cell of a typed column: 1 and 1.0 and true are the same number there."""
    return float(cell) if isinstance(cell, int) and abs(cell) <= 2**53 else cell


def _read_cells(text: str, separator: str) -> list[Any]:
    """Rows of a CSV file, each cell as it was printed."""
    try:
        head, *rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator)) or [[]]
    except csv.Error:
        raise DataError("A file of outputs is not CSV", expected="A first line of names, one output a row") from None
    names = [f"{name} {place + 1}" if name in head[:place] else name for place, name in enumerate(head)]
    found = []
    for row in rows:
        cells = row or [""] * len(names)
        told = {names[place] if place < len(names) else f"cell {place + 1}": cell for place, cell in enumerate(cells)}
        found.append({name: told[name] for name in sorted(told)})
    return found


def _mix(outputs: list[Any]) -> list[Any]:
    """Outputs in an order that tells nothing: half of them teach, and a file may be sorted."""
    random.Random(len(outputs)).shuffle(outputs)  # noqa: S311  no secret
    return outputs
