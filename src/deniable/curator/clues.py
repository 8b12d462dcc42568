"""Which role a column seems to have: by its name, the shape of its values, and how many of them differ.

A clue is a suspicion with its reason, for a steward to confirm. It rests on names and on counts over the whole
column, so no message made of it holds a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from deniable.policy.roles import Role
from deniable.policy.schema import ColumnType


@dataclass(frozen=True, slots=True)
class Profile:
    """What was counted in one column: rows, values present, distinct ones, and shares of values of known shapes."""

    name: str
    type: ColumnType
    rows: int
    present: int
    distinct: int
    mean_length: float
    shapes: dict[str, float]

    @property
    def distinct_ratio(self) -> float:
        """Distinct values for each value present."""
        return self.distinct / self.present if self.present else 0.0


@dataclass(frozen=True, slots=True)
class Clue:
    """A suspected role, its reason, and a mask or hierarchy that would suit, as policy text."""

    role: Role
    reason: str
    mask: str = ""
    hierarchy: str = ""


SHAPES = {
    "e-mail address": r"^[^@\s]+@[^@\s]+\.[A-Za-z]{2,}$",
    "social security number": r"^[0-9]{3}-[0-9]{2}-[0-9]{4}$",
    "phone number": r"^\+?[0-9]{0,3}[ .-]?\(?[0-9]{3}\)?[ .-][0-9]{3}[ .-]?[0-9]{4}$",
    "card number": r"^[0-9]{4}[ -][0-9]{4}[ -][0-9]{4}[ -][0-9]{1,7}$",
    "network address": r"^([0-9]{1,3}\.){3}[0-9]{1,3}$",
    "ZIP code": r"^[0-9]{5}(-[0-9]{4})?$",
}
"""Shapes of values; each pattern is understood alike by Python and by the engines."""

_PSEUDONYM = "{token: {key: people}}"
_NAMED = "its name"
_NAMES: tuple[tuple[str, Clue], ...] = (
    (
        r"((first|last|middle|given|family|full|maiden|sur)_?)?names?|phones?|mobile|fax|telephone|(street_?)?address"
        r"|street|ip(_?address)?|url|login|user_?name|vin|plate",
        Clue(Role.IDENTIFIER, _NAMED, "redact"),
    ),
    (
        r"e_?mail|ssn|passport|licen[sc]e|mrn|iban|(credit_?)?card|account|id|uuid|guid|(user|person|patient|customer)"
        r"|(.+_)?(id|uuid|key|number|no|nr|nbr)",
        Clue(Role.IDENTIFIER, _NAMED, _PSEUDONYM),
    ),
    (r"zip(_?code)?|post(al)?_?code", Clue(Role.QUASI_IDENTIFIER, _NAMED, hierarchy="{redact: right}")),
    (r"age", Clue(Role.QUASI_IDENTIFIER, _NAMED, hierarchy="{brackets: ages}")),
    (
        r"dob|birth.*|.*birth(_?(date|day|year))?|sex|gender|race|ethnicity|nationality|(native_?)?country|state|county"
        r"|city|town|village|region|marital.*|work_?class|education.*|occupation|job.*|profession|language|lat(itude)?"
        r"|lon(gitude)?|lng",
        Clue(Role.QUASI_IDENTIFIER, _NAMED),
    ),
    (
        r"diagnos[ie]s|icd.*|disease|condition|medication|drug|hiv|religion|party|orientation|salary|income|wage"
        r"|charges?|bmi|iq|grade|score|rating|debt|balance|treatment|test_?result|capital_?(gain|loss)",
        Clue(Role.SENSITIVE, _NAMED),
    ),
)
"""Names of columns, as snake case without regard to case; the first that fits counts."""

UNIQUE = 0.95
CODES = 0.01
FEWEST_ROWS = 20
LONG_TEXT = 40
LINKS = "nearly every value occurs once, so that it finds the row: generalize (quasi-identifier) or mask it"


def clue(profile: Profile) -> Clue:
    """The role a column is suspected of; insensitive if nothing speaks against it."""
    found = _by_name(profile) or _by_shape(profile) or _by_counts(profile)
    found = found or Clue(Role.INSENSITIVE, "nothing, so confirm it")
    shown = found.role in (Role.SENSITIVE, Role.INSENSITIVE) and not found.mask
    return replace(found, reason=f"{found.reason}; {LINKS}") if shown and _nearly_unique(profile) else found


def _nearly_unique(profile: Profile) -> bool:
    return profile.present >= FEWEST_ROWS and profile.distinct_ratio > UNIQUE


def _by_name(profile: Profile) -> Clue | None:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", profile.name).lower()
    words = re.sub(r"[^a-z0-9]+", "_", words).strip("_")
    for pattern, found in _NAMES:
        # A qualified name, such as patient_zip, counts as its last words do.
        if re.fullmatch(rf"(.+_)?({pattern})(_(class|group|level|band))?", words):
            return None if found.mask == _PSEUDONYM and _is_code(profile) else found
    return None


def _is_code(profile: Profile) -> bool:
    """Whether few values differ: a column such as admission_type_id names types, not persons."""
    return profile.rows >= FEWEST_ROWS and profile.distinct_ratio < CODES


def _by_shape(profile: Profile) -> Clue | None:
    for shape, share in profile.shapes.items():
        if share < 0.9:
            continue
        if shape == "ZIP code":
            return Clue(Role.QUASI_IDENTIFIER, "its values look like a ZIP code", hierarchy="{redact: right}")
        return Clue(Role.IDENTIFIER, f"its values look like a {shape}", _PSEUDONYM)
    return None


def _by_counts(profile: Profile) -> Clue | None:
    if profile.type in (ColumnType.DATE, ColumnType.DATETIME):
        return Clue(Role.QUASI_IDENTIFIER, "dates are often known from elsewhere")
    if profile.type is ColumnType.TEXT and profile.mean_length > LONG_TEXT:
        return Clue(Role.SENSITIVE, "it looks like free text, which may name people", "scrub")
    if _nearly_unique(profile) and profile.type in (ColumnType.TEXT, ColumnType.INTEGER):
        return Clue(Role.IDENTIFIER, "nearly every value occurs once", _PSEUDONYM)
    return None
