"""The settings of one session: the budget of its questions, and the few that clients of PostgreSQL expect to exist.

SET deniable.epsilon = 0.5;   SET deniable.intervals = on;   SHOW deniable.purpose;   SHOW ALL;
"""

from __future__ import annotations

from collections.abc import Mapping

from deniable.errors import nearest
from deniable.server.wire.codec import WireRefusal
from deniable.server.wire.lexer import Kind, Statement, Token

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
"""Settings that tools set or ask for, and that change nothing here."""

FIXED = ("server_version", "server_encoding", "integer_datetimes", "is_superuser", "session_authorization",
         "in_hot_standby", "scram_iterations", "server_version_num")  # fmt: skip
_DEFAULTS: dict[str, str] = {name.lower(): value for name, value in {**REPORTED, **TOLERATED}.items()} | {
    name: value for name, (value, _) in OWN.items()
}
_SPELLED = {name.lower(): name for name in REPORTED}
_TRUTHS = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_SWITCHES = ("deniable.intervals", "deniable.nonnegative")


class Settings:
    """The values in force in one session."""

    def __init__(self, analyst: str, purpose: str) -> None:
        self._start = _DEFAULTS | {"session_authorization": analyst, "deniable.purpose": purpose}
        self._values = dict(self._start)

    def get(self, name: str) -> str:
        """The value of a setting, or a refusal with the nearest known name."""
        key = name.lower()
        if key not in self._values:
            remedy = nearest(key, self._values) or "SHOW ALL lists the settings"
            raise WireRefusal("42704", f'unrecognized configuration parameter "{name}"', remedy)
        return self._values[key]

    def put(self, name: str, value: str) -> str | None:
        """Change a setting; what comes back is the spelling under which the client must be notified, if it must."""
        key = name.lower()
        self.get(name)
        if key in FIXED:
            raise WireRefusal("55P02", f'parameter "{name}" cannot be changed')
        if key in _SWITCHES and value.lower() not in _TRUTHS:
            raise WireRefusal("22023", f'parameter "{name}" requires a Boolean value', "Write on or off")
        if key == "client_encoding" and value.replace("-", "").replace("_", "").upper() not in ("UTF8", "UNICODE"):
            raise WireRefusal("22023", "only the encoding UTF8 is spoken", "SET client_encoding = 'UTF8'")
        self._values[key] = value
        return _SPELLED.get(key)

    def reset(self, name: str) -> str | None:
        """Put a setting, or ALL, back to how the session began."""
        if name.lower() == "all":
            self._values = dict(self._start)
            return None
        self.get(name)
        self._values[name.lower()] = self._start[name.lower()]
        return _SPELLED.get(name.lower())

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return _TRUTHS[self.get(name).lower()]

    def list_all(self) -> list[tuple[str, str, str]]:
        """Name, value and description of all settings."""
        named = {name: told for name, (_, told) in OWN.items()}
        return [(_SPELLED.get(key, key), self._values[key], named.get(key, "")) for key in sorted(self._values)]

    def list_reported(self) -> list[tuple[str, str]]:
        """What is reported at the start of a session."""
        return [(name, self._values[name.lower()]) for name in REPORTED]


def parse_assignment(statement: Statement) -> tuple[str, str]:
    """Name and value of a SET statement; RESET and SET ... TO DEFAULT give the value 'default'."""
    words = [each for each in statement.tokens[1:] if each.value not in ("session", "local") or each.kind != Kind.WORD]
    values = [token.value for token in words]
    if values[:1] == ["time"] and values[1:2] == ["zone"]:
        return "TimeZone", "".join(values[2:]) or "UTC"
    if values[:1] in (["transaction"], ["characteristics"]):
        return "transaction isolation level", " ".join(values[1:])
    if values[:1] == ["names"]:
        return "client_encoding", values[1] if len(values) > 1 else "UTF8"
    cut = next((i for i, token in enumerate(words) if token.text == "=" or token.value == "to"), len(words))
    name = "".join(values[:cut])
    if not name or cut + 1 >= len(words):
        raise WireRefusal("42601", "SET needs a name and a value", "Write: SET deniable.epsilon = 0.5")
    return name, _join_value(words[cut + 1 :])


def _join_value(words: list[Token]) -> str:
    """The value as one text: 'ISO, MDY' and -1 are written together, two words with a space between."""
    joint = "" if any(word.kind is Kind.SIGN for word in words) else " "
    return joint.join(word.value for word in words)
