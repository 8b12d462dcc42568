"""One text for one meaning: the canonical form of a policy, and the hash that releases and ledgers refer to.

The form does not depend on formatting, comments, the order of keys, the machine or the folder: records become sorted
JSON, exact numbers become text, and what equals its default is left out, so that a later version of the layout with
further optional keys gives old policies their old hash. Other lists, such as categories, keep their order, since it
may mean something.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from pathlib import Path

UNORDERED = frozenset({"tables", "columns", "purposes", "analysts", "keys"})
"""Fields whose order means nothing: entries that stand under names in the file, and lists that are sets of names."""


def digest(value: object) -> str:
    """The SHA-256 of the canonical form, with the name of the method in front."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def canonical(value: object) -> object:
    """A value as plain JSON, alike for all ways of writing it."""
    if is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    if isinstance(value, Mapping):
        return {str(name): canonical(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [canonical(each) for each in value]
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else {"number": f"{value.numerator}/{value.denominator}"}
    return value


def _record(value: object) -> dict[str, object]:
    shown: dict[str, object] = {"is": type(value).__name__}
    for field in fields(value):  # type: ignore[arg-type]
        here = getattr(value, field.name)
        if not isinstance(here, Path) and here != _default(field):
            form = canonical(here)
            if field.name in UNORDERED and isinstance(form, list):
                form = sorted(form, key=lambda each: json.dumps(each, sort_keys=True))
            shown[field.name] = form
    return shown


def _default(field: Field[object]) -> object:
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else MISSING
