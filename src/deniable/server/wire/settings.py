"""The settings of one session: the budget of its questions, and the few that clients of PostgreSQL expect to exist.

SET deniable.epsilon = 0.5;   SET deniable.intervals = on;   SHOW deniable.purpose;   SHOW ALL;
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from zoneinfo import available_timezones

from deniable.errors import ParameterError, nearest
from deniable.policy.budget import LEAST, MOST, MOST_DELTA, exact
from deniable.query.sql.lexer import Kind, Statement, Token
from deniable.server.service import refuse_request_id
from deniable.server.wire.codec import WireRefusal

LONGEST_VALUE = 1000
"""Characters of a value."""
MOST_SAVED_BYTES = 4_000_000
"""Of the values that the savepoints of one transaction keep."""

OWN: Mapping[str, tuple[str, str]] = {
    "deniable.epsilon": ("", "epsilon that each question may spend"),
    "deniable.delta": ("0", "delta that each question may spend"),
    "deniable.rho": ("", "zero-concentrated budget of each question, instead of epsilon"),
    "deniable.intervals": ("off", "whether name_low and name_high stand beside each number"),
    "deniable.confidence": ("0.95", "confidence of the intervals"),
    "deniable.nonnegative": ("off", "whether counts are cut off at 0"),
    "deniable.purpose": ("", "the purpose that questions are charged to"),
    "deniable.request": ("", "request id of the next question: the same id never charges twice"),
}
REPORTED: Mapping[str, str] = {
    "server_version": "15.0 (deniable)",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "session_authorization": "",
    "application_name": "",
    "in_hot_standby": "off",
    "default_transaction_read_only": "on",
    "scram_iterations": "4096",
}
"""What is reported at the start of a session, as PostgreSQL does."""

TOLERATED: Mapping[str, str] = {
    "extra_float_digits": "1",
    "search_path": '"$user", public',
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_isolation": "repeatable read",
    "transaction isolation level": "repeatable read",
    "default_transaction_isolation": "repeatable read",
    "transaction_read_only": "on",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "row_security": "on",
    "max_identifier_length": "63",
    "server_version_num": "150000",
    "lc_collate": "C",
    "lc_ctype": "C",
    "role": "none",
    "jit": "off",
    "max_index_keys": "32",
    "standard_conforming_strings": "on",
    "ssl_renegotiation_limit": "0",
    "synchronize_seqscans": "on",
    "password_encryption": "scram-sha-256",
}
"""Settings that tools set or ask for; of these `statement_timeout` alone changes something."""

FIXED = ("server_version", "server_encoding", "integer_datetimes", "is_superuser", "session_authorization",
         "in_hot_standby", "scram_iterations", "server_version_num")  # fmt: skip
_DEFAULTS: dict[str, str] = {name.lower(): value for name, value in {**REPORTED, **TOLERATED}.items()} | {
    name: value for name, (value, _) in OWN.items()
}
_SPELLED = {name.lower(): name for name in REPORTED}
_TRUTHS = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_SWITCHES = ("deniable.intervals", "deniable.nonnegative", "standard_conforming_strings", "jit", "row_security",
             "default_transaction_read_only", "transaction_read_only", "synchronize_seqscans")  # fmt: skip
_AMOUNT = (LEAST, Fraction(MOST), "Write a number above 0, at most 10,000, such as 0.5")
_NUMBERS = {
    "deniable.epsilon": _AMOUNT,
    "deniable.rho": _AMOUNT,
    "deniable.delta": (Fraction(0), MOST_DELTA, "Write a number from 0 to 0.01, such as 1e-6"),
    "deniable.confidence": (LEAST, 1 - LEAST, "Write a number between 0 and 1, such as 0.95"),
}
"""The least and the most, and what to write."""
_ORDERS = {"mdy": "MDY", "us": "MDY", "dmy": "DMY", "european": "DMY", "ymd": "YMD"}
_DURATIONS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_UNITS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}
_DURATION = re.compile(r"\s*(\d{1,12})\s*(d|h|min|s|ms|)\s*")
_STYLES = ("postgres", "postgres_verbose", "sql_standard", "iso_8601")


@dataclass(frozen=True, slots=True)
class _SavedSettings:
    """The values at the start of a transaction or at a savepoint, and the bytes that they take beside earlier ones."""

    name: str
    values: dict[str, str]
    local: dict[str, str]
    size: int


class Settings:
    """The values in force in one session: they follow its transactions as PostgreSQL's do.

    RESET goes back to the values that the session was opened with; ROLLBACK undoes SET; SET LOCAL ends with its
    transaction.
    """

    def __init__(self, analyst: str, purpose: str) -> None:
        self._start = _DEFAULTS | {"session_authorization": analyst, "deniable.purpose": purpose}
        self._values, self._local = dict(self._start), dict[str, str]()
        self._saved: list[_SavedSettings] = []
        """The values at the start of the transaction, and at its savepoints: one copy where nothing was set between."""
        self._told: dict[str, str] = {}

    def open(self) -> None:
        """The session begins: its values are those to which RESET goes back."""
        self._start = dict(self._values)

    def get(self, name: str) -> str:
        """The value of a setting, or a refusal with the nearest known name."""
        key = name.lower()
        if key in self._local:
            return self._local[key]
        if key not in self._values:
            remedy = nearest(key, self._values) or "SHOW ALL lists the settings"
            raise WireRefusal("42704", f'unrecognized configuration parameter "{name}"', remedy)
        return self._values[key]

    def put(self, name: str, value: str, *, local: bool = False) -> None:
        """Change a setting, for the session or until the transaction ends."""
        key = name.lower()
        self.get(name)
        if key in FIXED:
            raise WireRefusal("55P02", f'parameter "{name}" cannot be changed')
        if len(value) > LONGEST_VALUE:
            raise WireRefusal("22023", f'the value of parameter "{key}" has more than {LONGEST_VALUE} characters')
        normal = self._normalize(name, value)
        if not local:
            self._values[key] = normal
            self._local.pop(key, None)
        elif self._saved:
            self._local[key] = normal

    def _normalize(self, name: str, value: str) -> str:
        """A value as PostgreSQL reports it; what would not be kept to is refused."""
        key = name.lower()
        if key in _SWITCHES:
            if value.lower() not in _TRUTHS:
                raise WireRefusal("22023", f'parameter "{name}" requires a Boolean value', "Write on or off")
            value = "on" if _TRUTHS[value.lower()] else "off"
        if key in _DURATIONS:
            number = _parse_milliseconds(value)
            if number is None:
                raise _build_value_refusal(name, value, "Write milliseconds, or '5s', '2min'")
            return next((f"{number // ms}{unit}" for unit, ms in _UNITS.items() if number and not number % ms), "0")
        if key in _NUMBERS and (value or _DEFAULTS[key]):
            low, high, hint = _NUMBERS[key]
            try:
                fits = low <= exact(value, key) <= high and not (key == "deniable.confidence" and "/" in value)
            except ParameterError:
                fits = False
            if not fits:
                raise _build_value_refusal(name, value, hint)
        match key:
            case "client_encoding":
                if value.replace("-", "").replace("_", "").upper() not in ("UTF8", "UNICODE"):
                    raise WireRefusal("22023", "only the encoding UTF8 is spoken", "SET client_encoding = 'UTF8'")
                return "UTF8"
            case "datestyle":
                words = [word.strip().lower() for word in value.split(",")]
                order = next((_ORDERS[word] for word in words if word in _ORDERS), self.get(name)[-3:])
                if not set(words) <= {"iso", *_ORDERS}:
                    raise _build_value_refusal(name, value, "Dates are written in the style ISO")
                return f"ISO, {order}"
            case "timezone":
                found = _find_zones().get(value.strip().lower())
                if found is None:
                    raise _build_value_refusal(name, value, "Write the name of a time zone, such as UTC")
                return found
            case "intervalstyle" if value.lower() not in _STYLES:
                raise _build_value_refusal(name, value, f"There are {', '.join(_STYLES)}")
            case "standard_conforming_strings" if value == "off":
                raise _build_value_refusal(name, value, "A backslash in a text is a backslash")
            case "deniable.request":
                try:
                    refuse_request_id(value)
                except ParameterError as refusal:
                    raise _build_value_refusal(name, value, f"A printable text. {refusal.expected}") from None
            case "role" if value.lower() not in ("none", self._start["session_authorization"].lower()):
                raise WireRefusal("42501", "there is no other role to take", "Connect with another token")
        return value

    def reset(self, name: str) -> None:
        """Put a setting, or ALL, back to how the session began."""
        if name.lower() == "all":
            self._values, self._local = dict(self._start), {}
            return
        self.get(name)
        self._values[name.lower()] = self._start[name.lower()]
        self._local.pop(name.lower(), None)

    def forget(self, name: str) -> None:
        """Take a value away for good, whatever a transaction says: a request id is used once."""
        for values in (self._values, *(saved.values for saved in self._saved)):
            values[name] = ""
        for local in (self._local, *(saved.local for saved in self._saved)):
            local.pop(name, None)

    def begin(self) -> None:
        """A transaction begins."""
        self._saved = [self._copy("")]

    def commit(self) -> None:
        """It ends: what was set for it alone ends too."""
        self._saved, self._local = [], {}

    def roll_back(self) -> None:
        """It is undone, and what was set in it."""
        if self._saved:
            self._values = self._saved[0].values
        self.commit()

    def save(self, name: str) -> None:
        """A savepoint of a transaction."""
        if not self._saved:
            raise WireRefusal("25P01", "SAVEPOINT can only be used in transaction blocks", "Write BEGIN before it")
        last, found = self._saved[-1], self._copy(name)
        if (found.values, found.local) == (last.values, last.local):  # drivers set one before each statement
            found = _SavedSettings(name, last.values, last.local, sys.getsizeof(name))
        if found.size + sum(each.size for each in self._saved) > MOST_SAVED_BYTES:
            happened = f"savepoints keep more than {MOST_SAVED_BYTES} bytes"
            raise WireRefusal("53400", happened, "RELEASE some, or end the transaction")
        self._saved.append(found)

    def _copy(self, name: str) -> _SavedSettings:
        values, local = dict(self._values), dict(self._local)
        texts = (name, *values.values(), *local.values())
        return _SavedSettings(name, values, local, sum(map(sys.getsizeof, (values, local, *texts))))

    def roll_back_to(self, name: str) -> None:
        """Undo what was set since a savepoint, which stays."""
        place = self._find_savepoint(name)
        self._values, self._local = dict(self._saved[place].values), dict(self._saved[place].local)
        del self._saved[place + 1 :]

    def release(self, name: str) -> None:
        """Forget a savepoint and those after it."""
        del self._saved[self._find_savepoint(name) :]

    def _find_savepoint(self, name: str) -> int:
        for place in range(len(self._saved) - 1, 0, -1):
            if self._saved[place].name == name:
                return place
        raise WireRefusal("3B001", f'savepoint "{name}" does not exist')

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return _TRUTHS[self.get(name).lower()]

    def read_seconds(self, name: str) -> float:
        """A duration in seconds; 0 where there is none."""
        return (_parse_milliseconds(self.get(name)) or 0) / 1000

    def list_all(self) -> list[tuple[str, str, str]]:
        """Name, value and description of all settings."""
        named = {name: told for name, (_, told) in OWN.items()}
        return [(_SPELLED.get(key, key), self.get(key), named.get(key, "")) for key in sorted(self._values)]

    def take_reports(self) -> list[tuple[str, str]]:
        """What the client must be told: at the start of a session all that is reported, later what has changed."""
        now = {name: self.get(name) for name in REPORTED}
        changed = [each for each in now.items() if self._told.get(each[0]) != each[1]]
        self._told = now
        return changed


def _build_value_refusal(name: str, value: str, remedy: str) -> WireRefusal:
    return WireRefusal("22023", f'invalid value for parameter "{name}": "{value}"', remedy)


def _parse_milliseconds(text: str) -> int | None:
    """A duration as PostgreSQL reads it: milliseconds, unless it names another unit; None for anything else."""
    found = _DURATION.fullmatch(text)
    number = int(found[1]) * _UNITS[found[2] or "ms"] if found else -1
    return number if 0 <= number < 2**31 else None


@cache
def _find_zones() -> dict[str, str]:
    """The names of time zones, by their lower case."""
    return {name.lower(): name for name in available_timezones()} | {
        "utc": "UTC", "gmt": "GMT", "z": "UTC", "0": "UTC", "+00": "UTC", "+00:00": "UTC", "etc/utc": "Etc/UTC",
    }  # fmt: skip


def parse_assignment(statement: Statement) -> tuple[str, str]:
    """Name and value of a SET statement; RESET and SET ... TO DEFAULT give the value 'default'."""
    words = [each for each in statement.tokens[1:] if each.value not in ("session", "local") or each.kind != Kind.WORD]
    values = [token.value for token in words]
    if values[:1] == ["time"] and values[1:2] == ["zone"]:
        zone = "".join(values[2:])
        return "TimeZone", zone if zone not in ("", "local") else "default"
    if values[:1] in (["transaction"], ["characteristics"]):
        return "transaction isolation level", " ".join(values[1:])
    if values[:1] == ["authorization"]:
        return "session_authorization", values[1] if len(values) > 1 else "default"
    if values[:1] == ["role"] and len(values) == 2:
        return "role", values[1]
    if values[:1] == ["names"]:
        return "client_encoding", values[1] if len(values) > 1 else "UTF8"
    cut = next((i for i, token in enumerate(words) if token.text == "=" or token.value == "to"), len(words))
    name = "".join(values[:cut])
    if not name or cut + 1 >= len(words):
        raise WireRefusal("42601", "SET needs a name and a value", "Write: SET deniable.epsilon = 0.5")
    return name, _join_value(words[cut + 1 :])


def _join_value(words: list[Token]) -> str:
    """The value as one text: -1 is written together, two words with a space between; names of a list keep quotes."""
    items: list[list[Token]] = [[]]
    for word in words:
        if word.text == "," and word.kind is Kind.SIGN:
            items.append([])
        else:
            items[-1].append(word)
    written = []
    for item in items:
        joint = "" if any(word.kind is Kind.SIGN for word in item) else " "
        kept = len(items) > 1
        written.append(joint.join(word.text if kept and word.kind is Kind.NAME else word.value for word in item))
    return ", ".join(written)
