"""Audit anything that claims an epsilon: a mechanism of ours, a question, a function, a program, outputs at hand.

What is audited is told apart by how it is written. Functions and programs are run as they are, with the rights of
whoever asks; their worlds are values or files that the caller names. A question is measured over made-up rows. Nothing
is read from the policy's private tables, and nothing is charged.
"""

from __future__ import annotations

import importlib
import inspect
import json
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

from deniable.curator.attack import RUNS, WORLD, run_program, table_at
from deniable.errors import DataError, ParameterError

if TYPE_CHECKING:
    from deniable.assess.mechanism_audit import AuditReport, Claim, Subject
    from deniable.policy.document import Policy

Progress = Callable[[float], None]
FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
QUESTION = re.compile(r"\s*(SELECT|WITH)\s", re.IGNORECASE)
OUTPUTS = "outputs"
"""The word for outputs that are at hand: one file for each world."""


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """What was asked: the subject, what is claimed of it, its worlds, and how hard to try.

    The first world is compared with each of the others; one world alone with itself without each of its rows, or
    without `tries` of them by chance. `neighbors` names a function that gives a pair of worlds for each number from 0
    to `tries` - 1.
    """

    subject: str
    epsilon: str = "1"
    delta: str = "0"
    mu: str | None = None
    spends: str | None = None
    worlds: tuple[Any, ...] = ()
    neighbors: str | None = None
    tries: int = 20
    policy: Path | Policy | None = None
    canaries: int | None = None
    timed: bool = False
    runs: int = 20_000
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


USED: dict[str, tuple[str, ...]] = {
    "one run with canaries": (),
    "a function": ("--world", "--neighbors", "--timed", "--mu"),
    "a question": ("--policy", "--mu"),
    "outputs at hand": ("--world", "--mu"),
    "a program": ("--world", "--neighbors", "--mu"),
    "a mechanism of ours": ("--spends", "--mu"),
}
"""What may be said of each kind of subject, beside the claim and how hard to try."""


def _refuse_unused(order: AuditOrder) -> None:
    """Refuse what was said and would change nothing: whoever said it would take the result for another one."""
    given = {"--world": order.worlds, "--neighbors": order.neighbors, "--timed": order.timed, "--mu": order.mu,
             "--spends": order.spends, "--policy": isinstance(order.policy, Path)}  # fmt: skip
    kind = _tell_kind(order)
    for option, said in given.items():
        if said and option not in USED[kind]:
            raise ParameterError(
                f"{option} has no meaning in an audit of {kind}",
                expected=", ".join(USED[kind]) or "--epsilon, --delta and --confidence",
                remedy=f"Leave {option} out",
            )
    if order.worlds and order.neighbors is not None:
        raise ParameterError(
            "Both worlds and a function that gives them were named", remedy="Say --world or --neighbors, not both"
        )


def _tell_kind(order: AuditOrder) -> str:
    if order.canaries is not None:
        return "one run with canaries"
    if order.function is not None:
        return "a function"
    if QUESTION.match(order.subject):
        return "a question"
    if order.subject == OUTPUTS:
        return "outputs at hand"
    if WORLD in order.subject:
        return "a program"
    return "a function" if FUNCTION.fullmatch(order.subject) and _is_module(order.subject) else "a mechanism of ours"


def _read_claim(order: AuditOrder) -> Claim:
    from deniable.assess.mechanism_audit import Claim
    from deniable.policy.budget import exact

    spent, mu = (None if text is None else exact(text, name) for text, name in
                 ((order.spends, "spends"), (order.mu, "mu")))  # fmt: skip
    epsilon, delta = exact(order.epsilon, "epsilon"), exact(order.delta, "delta")
    return Claim(order.subject, epsilon, delta, spent, order.runs, order.confidence, mu)


def _find_subject(order: AuditOrder, folder: Path) -> Subject | None:
    """What the words name; None where they name a mechanism of ours."""
    makers: dict[str, Callable[[AuditOrder], Subject]] = {
        "a function": _make_function,
        "a question": _make_question,
        "outputs at hand": _make_outputs,
        "a program": partial(_make_program, folder=folder),
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
    return make_question_subject(order.subject, policy.tables, budget(order.epsilon, order.delta), pure=pure)


def _list_pairs(order: AuditOrder, worlds: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """Pairs that a function proposes; or the first world with each of the others, or one without each of its rows."""
    if order.neighbors is not None:
        propose = find_function(order.neighbors)
        return tuple(tuple(propose(number)) for number in range(order.tries))
    if len(worlds) == 1:
        return tuple((worlds[0], _leave_out(worlds[0], place)) for place in _choose_places(order, worlds[0]))
    return tuple((worlds[0], other) for other in worlds[1:])


def _leave_out(rows: Sequence[Any], place: int) -> list[Any]:
    return [*rows[:place], *rows[place + 1 :]]


def _choose_places(order: AuditOrder, rows: Any) -> list[int]:
    """Which rows of one world are left out in turn: all, or so many by chance, the same each time."""
    if not isinstance(rows, list) or not rows:
        raise ParameterError(
            "One world has no neighbors that could be made of it", expected="A list of rows, or two worlds",
            remedy="Say --world A --world B",
        )  # fmt: skip
    return sorted(random.Random(len(rows)).sample(range(len(rows)), min(order.tries, len(rows))))  # noqa: S311


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
    from deniable.assess.mechanism_audit import Subject

    function = order.function or find_function(order.subject)
    several = len(_list_places(function)) > 1
    worlds = [_parse_world(text) for text in order.worlds] or [0, 1]
    pairs = _list_pairs(order, worlds)
    places = _choose_places(order, worlds[0]) if len(worlds) == 1 else ()

    def run(world: Any, runs: int) -> Any:
        if several and not order.timed:
            return _check_several(function(world, runs), runs)
        call = partial(_time, several=several) if order.timed else _call
        found = [call(function, world) for _ in range(runs)]
        if all(isinstance(each, str) and each.startswith(RAISED) for each in found):
            raise ParameterError(f"The function {found[0]} in every run", expected="A function of a world")
        return found

    return Subject("worlds of a function", run, pairs, _label_pairs(order, pairs, places))


RAISED = "raised "


def _call(function: Callable[..., Any], world: Any) -> Any:
    """One output; that a function fails is an output too, since it may fail for some people only."""
    try:
        return function(world)
    except Exception as failure:  # whatever a stranger's function raises
        return f"{RAISED}{type(failure).__name__}"


def _check_several(found: Any, runs: int) -> Any:
    if not hasattr(found, "__len__") or len(found) != runs:
        raise ParameterError("The function did not give one output for each run", expected="As many outputs as runs")
    return found


def _list_places(function: Callable[..., Any]) -> list[str]:
    try:
        every = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [each.name for each in every if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]


def _time(function: Callable[..., Any], world: Any, several: bool) -> list[Any]:
    """One output, and the nanoseconds of work that it took."""
    start = time.process_time_ns()
    found = function(world, 1) if several else function(world)
    return [found, time.process_time_ns() - start]


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
    if not callable(found):
        raise ParameterError(f"'{name}' is not a function", expected="module:function")
    return found  # type: ignore[no-any-return]


def _make_program(order: AuditOrder, folder: Path) -> Subject:
    """Another program: run once for each output, or once for all of them where its words have {runs}."""
    from deniable.assess.mechanism_audit import Subject

    words, places = shlex.split(order.subject), list[int]()
    if len(order.worlds) == 1 and order.neighbors is None:
        pairs, places = _write_neighbors(order, Path(order.worlds[0]), folder)
    else:
        _require_worlds(order)
        pairs = _list_pairs(order, order.worlds)

    def run(world: str, runs: int) -> list[Any]:
        if any(RUNS in word for word in words):
            return _read_lines(run_program(words, world, runs), runs)
        return [_read_output(run_program(words, world, runs)) for _ in range(runs)]

    return Subject("files given to a program", run, pairs, _label_pairs(order, pairs, places))


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


def _read_lines(text: str, runs: int) -> list[Any]:
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != runs:
        raise DataError(
            f"The program printed {len(lines)} outputs for {runs} runs", expected="One line for each run", charge=""
        )
    return [_read_output(line) for line in lines]


def _read_output(text: str) -> Any:
    """What was printed: JSON, else numbers and words that are parted by commas or spaces, else the lines of a table."""
    try:
        return json.loads(text)
    except ValueError:
        stripped = text.strip()
        return stripped if "\n" in stripped else re.split(r"[,\s]+", stripped)


def _make_outputs(order: AuditOrder) -> Subject:
    """Outputs that are at hand: a file for each world, with one output a row (or a line)."""
    from deniable.assess.mechanism_audit import Subject

    _require_worlds(order)
    pairs = _list_pairs(order, order.worlds)
    if len(pairs) != 1:
        raise ParameterError("Outputs at hand are of one pair of worlds", remedy="Say --world twice")
    return Subject("two files of outputs", lambda world, _: _read_outputs(world), pairs, _label_pairs(order, pairs))


def _read_outputs(path: str) -> list[Any]:
    if path.endswith((".jsonl", ".ndjson", ".txt")):
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            raise DataError(f"The outputs {Path(path).name} cannot be read", charge="") from None
        return _mix([_read_output(line) for line in lines if line.strip()])
    return _mix(table_at(path).to_pylist())


def _mix(outputs: list[Any]) -> list[Any]:
    """Outputs in an order that tells nothing: half of them teach, and a file may be sorted."""
    random.Random(len(outputs)).shuffle(outputs)  # noqa: S311  no secret
    return outputs
