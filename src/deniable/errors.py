"""Every refusal deniable can make: typed, with an error code and plain fields.

A refusal says four things: what happened, what was expected or exists, how to go on, and whether anything was
charged. It never holds a value taken from the data: callers pass names, positions and declared values only.
This module imports nothing else of the package, so that every module may refuse.
"""

from __future__ import annotations

import copy
import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any, ClassVar, TypeVar, cast

NOTHING_CHARGED = "Nothing was charged."
CHARGED = "The charge stands: the data had been touched."
UNKNOWN = "Whether it was charged is not known: ask again under the same request id, which is charged once."
UNSURE = "Whether it was charged is not known."
NO_BUDGET = ""  # for work that no budget belongs to, such as checking a policy file


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a text (a policy file, a SQL statement) a refusal points: 1-based line and column."""

    source: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.column else f"{self.source}:{self.line}"


class DeniableError(Exception):
    """The root of all refusals. `code` is stable and documented; `exit_code` is what the command line returns."""

    code: ClassVar[str] = "refused"
    exit_code: ClassVar[int] = 2
    charge: ClassVar[str] = NOTHING_CHARGED
    unknown: ClassVar[tuple[str, ...]] = (UNKNOWN, UNSURE)
    """What is said of a charge where it is not known whether there was one."""

    def __init__(
        self,
        happened: str,
        *,
        expected: str = "",
        remedy: str = "",
        place: Place | None = None,
        charge: str | None = None,
        **fields: str | int | float | bool | None,
    ) -> None:
        self.happened = happened
        self.expected = expected
        self.remedy = remedy
        self.place = place
        self.charged = self.charge if charge is None else charge
        self.fields = fields
        super().__init__(self.message)

    def recall_charge(self, before: str) -> None:
        """Say that this call charged nothing, and what was charged before under its request."""
        self.charged = f"This call charged nothing; its request was charged before: {before}."
        self.fields["charged_before"] = before

    def __reduce__(self) -> tuple[object, ...]:
        """Refusals cross from one process to another as they are, with a cause that is a refusal too."""
        cause = self.__cause__ if isinstance(self.__cause__, DeniableError) else None
        return _restored, (type(self), self.__dict__, self.args, cause)

    def __str__(self) -> str:
        """What is known when it is shown: a charge may be told after the refusal was made."""
        return self.message

    @property
    def message(self) -> str:
        """One paragraph: place, what happened, what was expected, how to go on, whether anything was charged."""
        where = f"{self.place}: " if self.place else ""
        parts = [where + self.happened, self.expected, self.remedy, self.charged]
        return " ".join(part if part.endswith((".", "?", "!", ":")) else part + "." for part in parts if part)

    def as_dict(self) -> dict[str, object]:
        """The canonical JSON shape, shared by the command line (`--json`) and the server."""
        shown: dict[str, object] = {
            "error": self.code,
            "happened": self.happened,
            "expected": self.expected,
            "remedy": self.remedy,
            "charged": None if self.charged in self.unknown else self.charged == CHARGED,
        }
        if self.place:
            shown |= {"source": self.place.source, "line": self.place.line, "column": self.place.column}
        return shown | dict(self.fields)


def _restored(
    kind: type[DeniableError], fields: dict[str, object], args: tuple[object, ...], cause: DeniableError | None
) -> DeniableError:
    refusal = kind.__new__(kind, *args)
    refusal.args, refusal.__cause__ = args, cause
    refusal.__dict__.update(fields)
    return refusal


class PolicyError(DeniableError):
    """A policy file that cannot be taken; `mistakes` lists all of them, each a PolicyError with its own place."""

    code = "policy"
    charge = NO_BUDGET

    def __init__(self, happened: str, *, mistakes: tuple[PolicyError, ...] = (), **rest: object) -> None:
        self.mistakes = mistakes
        super().__init__(happened, **rest)  # type: ignore[arg-type]

    @property
    def message(self) -> str:
        """One paragraph, with every mistake: what is kept or logged names them too."""
        return " ".join([super().message, *(mistake.message for mistake in self.mistakes)])

    def __str__(self) -> str:
        """All of it, a line for each mistake."""
        return "\n  ".join([super().message, *(mistake.message for mistake in self.mistakes)])

    def as_dict(self) -> dict[str, object]:
        """The canonical shape, with one entry for each mistake."""
        shown = super().as_dict()
        return shown | {"mistakes": [m.as_dict() for m in self.mistakes]} if self.mistakes else shown


class QueryRefused(DeniableError):
    """A question outside what can be answered privately: decided from text and policy, never from rows."""

    code = "query"


class BudgetUnstated(QueryRefused):
    """A question, or a batch, of which nobody said what it may spend; how that is said depends on where it is asked."""

    ways: ClassVar[dict[str, str]] = {
        "": "epsilon=0.5 in Python, --epsilon 0.5 at the command line, SET deniable.epsilon = 0.5 in psql",
        "psql": "SET deniable.epsilon = 0.5",
        "assistant": "the argument epsilon, such as 0.5",
    }

    def __init__(self, *, batch: bool = False) -> None:
        together = " on all of its questions together" if batch else ""
        allowed = "" if batch else "; or which error is allowed: WITHIN 50 after the question"
        self.spend = f"Say how much to spend{together}: {{}}{allowed}"
        happened = "no budget was stated" + (" for the batch" if batch else "")
        super().__init__(happened, remedy=self.spend.format(self.ways[""]))

    def state_by(self, way: str) -> BudgetUnstated:
        """The same, with whatever was told of charges since, for one way of asking."""
        said = copy.copy(self)
        said.fields, said.remedy = dict(self.fields), self.spend.format(self.ways[way])
        return said


class BudgetExceeded(DeniableError):
    """The ledger would be overspent: nothing was run."""

    code = "budget"


class AccessRefused(DeniableError):
    """The one who asks may not ask this: purpose, grant, token or expiry."""

    code = "access"


class DataError(DeniableError):
    """A table that cannot be read as declared: missing file or column, wrong type, bad rows (by line number only)."""

    code = "data"


class ParameterError(DeniableError):
    """An argument outside its domain, such as a negative epsilon or k = 0."""

    code = "parameter"
    charge = NO_BUDGET


class Infeasible(DeniableError):
    """No release can meet what was asked (k larger than the table, bounds that exclude each other)."""

    code = "infeasible"


class KeyUnavailable(DeniableError):
    """A masking key or vault is missing, unreadable, wrong, or readable by others."""

    code = "key"


class IntegrityError(DeniableError):
    """Something that was written is no longer what was written: a release, a ledger, a vault."""

    code = "integrity"
    charge = NO_BUDGET


class MissingExtra(DeniableError):
    """An optional dependency is not installed; the remedy names the extra."""

    code = "extra"
    charge = NO_BUDGET


class StorageError(DeniableError):
    """The disk refused: full, read-only, no permission."""

    code = "storage"


class LedgerBusy(StorageError):
    """Another process holds the ledger, so that nothing can be charged; what is free is answered."""

    code = "locked"


class Stopped(DeniableError):
    """The work was stopped or ran out of its time; what it had written under temporary names is removed."""

    code = "stopped"


class Cancelled(Stopped):
    """The asker took the question back; it is not asked again."""

    code = "cancelled"
    exit_code = 130


class ExecutionFailed(DeniableError):
    """The one sentence shown when something fails after a charge; it says nothing else on purpose."""

    code = "execution"
    charge = CHARGED

    def __init__(self, charge: str | None = None) -> None:
        happened = "The release could not be completed" + ("" if charge else " after it was charged")
        super().__init__(happened, remedy="Tell the steward", charge=charge)


class InternalError(DeniableError):
    """Our bug: a check of our own did not hold, and nothing was run because of it; or something unforeseen happened."""

    code = "internal"
    exit_code = 3
    unknown: ClassVar[tuple[str, ...]] = (UNKNOWN, UNSURE, "")


LONGEST_SECONDS = 10**8
Called = TypeVar("Called", bound=Callable[..., Any])


def check_seconds(seconds: float | None) -> float | None:
    """A time limit, or none; refuses what is no number of seconds above 0.

    >>> check_seconds(0.5)
    0.5
    """
    given: object = seconds  # callers of Python may hand over anything
    amount = float(given) if isinstance(given, Real) else None
    if given is None or (amount is not None and 0 < amount <= LONGEST_SECONDS):
        return seconds
    told = "no number of" if amount is None else f"{amount:g}"
    expected = f"More than 0 seconds, and at most {LONGEST_SECONDS:,}"
    raise ParameterError(f"A time limit of {told} seconds", expected=expected)


def pluralize(count: int, one: str, many: str = "") -> str:
    """So many of something, in words.

    >>> pluralize(1, "row"), pluralize(2000, "row"), pluralize(0, "class"), pluralize(2, "person", "people")
    ('1 row', '2,000 rows', '0 classes', '2 people')
    """
    return f"{count:,} {one if count == 1 else many or one + ('es' if one.endswith('s') else 's')}"


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint 'Did you mean ...?' for a word close to one of the known ones, else the empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{close[0]}'?" if close else ""


def guard_arguments(kind: type) -> None:
    """Let public methods of a class refuse keywords that they do not have, and take numbers of numpy as plain ones."""
    for name in [name for name in dir(kind) if not name.startswith("_")]:
        held = inspect.getattr_static(kind, name)
        bare = held.__func__ if isinstance(held, classmethod | staticmethod) else held
        if inspect.isfunction(bare):
            guarded = guard_call(bare)
            setattr(kind, name, type(held)(guarded) if bare is not held else guarded)


def guard_call(called: Called, name: str = "") -> Called:
    """A function that refuses keywords it does not have and arguments of another type, and takes numpy's numbers."""

    @functools.wraps(called)
    def call(*given: Any, **named: Any) -> Any:
        check_keywords(called, named, name or called.__name__)
        given, named = tuple(map(plain, given)), {word: plain(value) for word, value in named.items()}
        bound = _bind_places(called, given, named, name or called.__name__)
        try:
            for word, value in bound.arguments.items():
                bound.arguments[word] = value = _take_listed(called, word, value)
                _check_type(called, word, value)
            return called(*bound.args, **bound.kwargs)
        except ParameterError as refusal:
            if refusal.charged == NO_BUDGET and _takes_budget(called):  # after a charge, a refusal says so
                refusal.charged = NOTHING_CHARGED
            raise

    return cast(Called, call)


def check_keywords(called: Callable[..., Any], named: Iterable[str], name: str) -> None:
    """Refuse keywords that a function does not have by naming the one that was meant; `name` is what was called."""
    known = _list_keywords(getattr(called, "__func__", called))
    for word in named:
        if known is not None and word not in known:
            raise ParameterError(
                f"{name}() has no keyword '{word}'",
                expected=f"Its arguments: {', '.join(known)}",
                remedy=nearest(word, known),
                charge=NOTHING_CHARGED,
            )


def _bind_places(
    called: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], name: str
) -> inspect.BoundArguments:
    """The arguments by their names; refuses a call that lacks one, or has one too many or twice."""
    try:
        return _read_signature(called).bind(*given, **named)
    except TypeError as wrong:
        known = _list_keywords(called) or ["epsilon", "rho", "delta and others, by their names"]
        raise ParameterError(
            f"{name}(): {wrong}", expected=f"Its arguments: {', '.join(known)}", charge=NOTHING_CHARGED
        ) from None


BUDGETS = {"epsilon", "rho", "budget"}


@functools.cache
def _takes_budget(called: Callable[..., Any]) -> bool:
    return bool(BUDGETS & set(_read_signature(called).parameters))


def _is_number(value: Any) -> bool:
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _is_listed(value: Any) -> bool:
    is_table = hasattr(value, "columns") or hasattr(value, "schema")
    return hasattr(value, "__iter__") and not isinstance(value, str | bytes | Mapping) and not is_table


def as_list(value: Any) -> Any:
    """What lists its values in whatever form, as a list: a set, an array, a column of a frame, keys, a generator.

    >>> as_list({"M", "F"}), as_list(each for each in (2, 1)), as_list({"a": 1}.keys()), as_list("text")
    (['F', 'M'], [2, 1], ['a'], 'text')
    """
    if isinstance(value, list | tuple) or not _is_listed(value):
        return value
    listed = value.tolist() if hasattr(value, "tolist") else list(value)
    return sorted(listed, key=str) if isinstance(value, set | frozenset) else listed


def _take_listed(called: Callable[..., Any], name: str, value: Any) -> Any:
    """An argument as its function takes it: lists as lists, also in a mapping; no delta is a delta of 0."""
    written = str(_read_signature(called).parameters[name].annotation)
    if name == "delta" and value is None and written == "Amount":
        return 0
    inside = value.values() if isinstance(value, Mapping) else [value]
    if name in ORDERED and any(isinstance(each, set | frozenset) for each in inside):
        raise ParameterError(f"{called.__name__}(): {name} is a set, which has no order", expected="A list or a tuple")
    if isinstance(value, Mapping) and written.startswith("Mapping["):
        return {key: as_list(each) for key, each in value.items()}
    if written.startswith(("Sequence[Sequence[", "Iterable[Sequence[")) and _is_listed(value):
        return [as_list(each) for each in as_list(value)]
    if written.startswith("tuple[") and _is_listed(value):
        return tuple(as_list(value))
    return as_list(value) if "Sequence[" in written or "Iterable[" in written else value


ORDERED = {
    "levels",
    "at",
    "to",
    "box",
    "trace",
    "edges",
    "questions",
    "bounds",
    "totals",
    "resolutions",
    "keys",
    "joint",
}
"""Arguments whose order means something."""


TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "None": (lambda value: value is None, ""),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (_is_number, "a whole number"),
    "float": (_is_number, "a number"),
    "Amount": (lambda value: _is_number(value) or isinstance(value, str), "a number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "Path": (lambda value: isinstance(value, os.PathLike), "a path"),
    "Sequence[str]": (
        lambda value: _is_listed(value) and all(isinstance(each, str) for each in value),
        "a list of texts",
    ),
    "Sequence[str | Path]": (
        lambda value: _is_listed(value) and all(isinstance(each, str | os.PathLike) for each in value),
        "a list of files",
    ),
    "Sequence": (_is_listed, "a list"),
    "Iterable": (_is_listed, "a list"),
    "Mapping[str, str]": (
        lambda value: (
            isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair)
        ),
        "a mapping of texts, such as {'sex': 'F'}",
    ),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping, such as {'age': ...}"),
    "Callable": (callable, "a function"),
    "Asker": (lambda value: hasattr(value, "name") and hasattr(value, "purpose"), "an Asker"),
    "date": (lambda value: hasattr(value, "isoformat"), "a date"),
    "threading.Event": (lambda value: hasattr(value, "is_set"), "a threading.Event"),
    "Event": (lambda value: type(value).__name__.endswith("Event"), "an event of deniable.dp.accounting"),
    "Engine": (lambda value: hasattr(value, "attach"), "an engine"),
    "Tabulation": (lambda value: type(value).__name__ == "Tabulation", "a plan of tables"),
    "tuple[str, Sequence[str]]": (
        lambda value: isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str),
        "a pair, such as ('charge', ['sex', 'age'])",
    ),
    "SynthModel": (lambda value: type(value).__name__ == "SynthModel", "a model"),
    "LinkedModel": (lambda value: type(value).__name__ == "LinkedModel", "a model"),
    "FamilyModel": (lambda value: type(value).__name__ == "FamilyModel", "a model"),
}
"""The types of public arguments as they are written in signatures: what fits each, and what it is called."""


OWN_WORDS = {("from_frame", "unit")}
"""Arguments of which the call itself says more when they are of another type."""


def _check_type(called: Callable[..., Any], name: str, value: Any) -> None:
    """Refuse an argument of another type than its annotation tells; what TYPES does not know is let through."""
    allowed = _read_types(called).get(name, ())
    if (called.__name__, name) in OWN_WORDS or not allowed or any(fits(value) for fits, _ in allowed):
        return
    words = list(dict.fromkeys(word for _, word in allowed if word))
    raise ParameterError(
        f"{called.__name__}(): {name} is {_name_type(value)}",
        expected=f"It is {' or '.join(words)}",
        charge=NOTHING_CHARGED if _takes_budget(called) or called.__name__ in AFTER_A_CHARGE else NO_BUDGET,
    )


AFTER_A_CHARGE = {"generate"}
"""Calls that take no budget but use what was paid for, so that people ask whether they cost something again."""


def _name_type(value: Any) -> str:
    if value is None:
        return "None"
    if _is_listed(value) and isinstance(value, list | tuple | set):
        return f"a {type(value).__name__} of {', '.join(sorted({type(e).__name__ for e in value})) or 'nothing'}"
    return "a text" if isinstance(value, str) else f"of type {type(value).__name__}"


@functools.cache
def _read_types(called: Callable[..., Any]) -> dict[str, tuple[tuple[Callable[[Any], bool], str], ...]]:
    """What each argument may be, by its name; left out where any of its types is not known here."""
    found = {}
    for name, parameter in _read_signature(called).parameters.items():
        written = parameter.annotation
        if isinstance(written, str) and parameter.kind is not parameter.VAR_POSITIONAL:
            kinds = [TYPES.get(each, TYPES.get(each.partition("[")[0])) for each in _split_union(written)]
            found[name] = tuple(kind for kind in kinds if kind) if all(kinds) else ()
    return found


def _split_union(written: str) -> list[str]:
    """The types of a union, as they are written.

    >>> _split_union("Mapping[str, int | None] | None")
    ['Mapping[str, int | None]', 'None']
    """
    parts = [""]
    for word in written.split(" | "):
        open_before = parts[-1].count("[") > parts[-1].count("]")
        parts = [*parts[:-1], f"{parts[-1]} | {word}"] if open_before else [*parts, word]
    return parts[1:]


@functools.cache
def _read_signature(called: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(called)


def _list_keywords(called: Callable[..., Any]) -> list[str] | None:
    """The names of its arguments; None where it takes any keyword."""
    known = _read_signature(called).parameters
    if any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return None
    return [name for name in known if name not in ("self", "cls")]


def plain(value: Any) -> Any:
    """A number or time of numpy as the plain one that it shows, also in lists and mappings; arrays of Arrow as lists.

    >>> plain([1, {"age": (0, 120)}])
    [1, {'age': (0, 120)}]
    """
    if type(value) in (list, tuple):
        return type(value)(map(_plain_inside, value))
    if type(value) is dict:
        return {key: _plain_inside(each) for key, each in value.items()}
    if type(value).__module__.startswith("pyarrow") and hasattr(value, "to_pylist") and not hasattr(value, "schema"):
        return value.to_pylist()
    if type(value).__module__ != "numpy" or getattr(value, "shape", None) != ():
        return value
    kind, item = value.dtype.kind, value.item()
    if kind == "f":
        return float(str(value))  # 0.1 in 32 bits is meant to be 0.1
    return value.astype("datetime64[us]").item() if kind == "M" and isinstance(item, int) else item


def _plain_inside(value: Any) -> Any:
    listed = type(value).__module__ == "numpy" and getattr(value, "shape", None)
    return plain(list(value)) if listed else plain(value)


@dataclass(eq=False, slots=True)
class ChargeWatch:
    """Whether the work of one thread has charged something so far; None while, or where, that is not known."""

    charged: bool | None = False
    by: str = ""
    """The steward who does it, by name, where one is known; it stands in the entry."""
    recorded: bool = False  # whether the ledger names a release that has no price
    keeps: bool = False  # whether answers are kept, so that asking again is not charged again
    seen: int = 0
    """How many charges of `tried` it knows of."""
    tried: ClassVar[int] = 0
    """How many charges this process has tried, whoever watched."""


WATCH: ContextVar[ChargeWatch | None] = ContextVar("deniable_charge_watch", default=None)
"""Who watches the work of this thread, if anybody."""


__all__ = sorted(
    ["CHARGED", "NOTHING_CHARGED", "Place"]
    + [name for name, kind in vars().items() if isinstance(kind, type) and issubclass(kind, DeniableError)]
)


def __dir__() -> list[str]:
    """What is public here: the refusals."""
    return list(__all__)
