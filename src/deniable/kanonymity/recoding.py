"""A recoding: what was done to each column, in words that recode rows to come, and the classes that were released.

It is what `NAME.recoding.json` holds. It names no suppressed row and no value that the release does not show: for each
released class its generalized tuple, its size and the histogram of its sensitive values. That is enough to recode new
rows the same way, and to check what adding them does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from deniable.errors import DataError
from deniable.kanonymity.hierarchy import Label
from deniable.policy.frozen import Frozen
from deniable.policy.schema import Spec
from deniable.storage import whole_file

FORMAT = "deniable recoding 1"


class Form(StrEnum):
    """How generalized values are written."""

    TEXT = "text"
    """As people read them: [20, 30), 0213*, 1987-05."""
    BOUNDS = "bounds"
    """Intervals as two columns of numbers, NAME_low and NAME_high; everything else as text."""
    SETS = "sets"
    """Categories as sets of values, {Bergen, Oslo}: those of the group, or in a local recoding those of the class."""
    JSON = "json"
    """Intervals as {"low": 20, "high": 30} and groups of categories as lists of their members."""


class Suppressed(StrEnum):
    """What becomes of suppressed rows."""

    DROP = "drop"
    """They are left out (the default): what is released meets the models as it stands."""
    STAR = "star"
    """They stay, with * in every quasi-identifier and nothing in sensitive columns."""


@dataclass(frozen=True, slots=True)
class ColumnRecoding:
    """One quasi-identifier: the words of its hierarchy and the level it was generalized to."""

    name: str
    spec: Spec
    level: int
    height: int


@dataclass(frozen=True, slots=True)
class ReleasedClasses:
    """The classes that were released, as the release itself shows them."""

    tuples: tuple[tuple[Label, ...], ...]
    sizes: tuple[int, ...]
    values: Mapping[str, tuple[Mapping[str, int], ...]] = field(default_factory=Frozen)


@dataclass(frozen=True, slots=True)
class Recoding:
    """Everything needed to recode rows the same way, and to judge rows that are added.

    `shown` are the columns that leave as they are; a later table may have more, which are left out. None shows all but
    those `removed`.
    """

    columns: tuple[ColumnRecoding, ...]
    classes: ReleasedClasses
    sensitive: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    models: tuple[Spec, ...] = ()
    rows: int = 0
    suppressed: int = 0
    limit: float = 0.0
    form: Form = Form.TEXT
    suppressed_rows: Suppressed = Suppressed.DROP
    shown: tuple[str, ...] | None = None

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of each quasi-identifier."""
        return tuple(column.level for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The quasi-identifiers."""
        return tuple(column.name for column in self.columns)


def write(recoding: Recoding, path: Path) -> None:
    """Write a recoding as JSON, for its owner only, whole or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(as_document(recoding), indent=1, ensure_ascii=False).encode())


def read(path: Path) -> Recoding:
    """Read a recoding that was written."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise ValueError
        return from_document(document)
    except FileNotFoundError:
        raise DataError(
            f"There is no recoding {path.name}", remedy="Point to the NAME.recoding.json written beside a release"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise DataError(
            f"{path.name} is not a recoding of this version", expected=f"A file of format '{FORMAT}'"
        ) from None


def as_document(recoding: Recoding) -> dict[str, Any]:
    """A recoding as plain JSON values."""
    return {
        "format": FORMAT,
        "columns": [
            {
                "name": column.name,
                "hierarchy": {column.spec.kind: _plain(column.spec.options)},
                "level": column.level,
                "levels": column.height,
            }
            for column in recoding.columns
        ],
        "sensitive": list(recoding.sensitive),
        "removed": list(recoding.removed),
        "shown": None if recoding.shown is None else list(recoding.shown),
        "models": [{model.kind: _plain(model.options)} for model in recoding.models],
        "rows": recoding.rows,
        "suppressed": recoding.suppressed,
        "limit": recoding.limit,
        "form": str(recoding.form),
        "suppressed_rows": str(recoding.suppressed_rows),
        "classes": {
            "tuples": [list(labels) for labels in recoding.classes.tuples],
            "sizes": list(recoding.classes.sizes),
            "values": {name: [dict(h) for h in held] for name, held in recoding.classes.values.items()},
        },
    }


def from_document(document: Mapping[str, Any]) -> Recoding:
    """A recoding from what `as_document` gave."""
    columns = tuple(
        ColumnRecoding(column["name"], _spec(column["hierarchy"]), column["level"], column["levels"])
        for column in document["columns"]
    )
    held = document["classes"]
    values = {name: tuple(dict(h) for h in histograms) for name, histograms in held["values"].items()}
    classes = ReleasedClasses(tuple(tuple(t) for t in held["tuples"]), tuple(held["sizes"]), values)
    return Recoding(
        columns,
        classes,
        tuple(document["sensitive"]),
        tuple(document["removed"]),
        tuple(_spec(model) for model in document["models"]),
        document["rows"],
        document["suppressed"],
        document["limit"],
        Form(document["form"]),
        Suppressed(document["suppressed_rows"]),
        None if document.get("shown") is None else tuple(document["shown"]),
    )


def _spec(written: Mapping[str, Any]) -> Spec:
    ((kind, options),) = written.items()
    return Spec(kind, options)


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
