"""The file of a linked model: data, never code, checked when it is read; it holds no row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deniable.storage import write_whole
from deniable.synth.linked import LinkedModel
from deniable.synth.links import Link
from deniable.synth.model import (
    LINKED,
    attribute_of,
    attribute_plain,
    from_plain,
    only_models,
    to_plain,
    truths_of,
    truths_plain,
)


def is_linked_file(path: Path) -> bool:
    """Whether a file says that it is a linked model."""
    try:
        with path.open(encoding="utf-8") as file:
            return LINKED in file.read(len(LINKED) + 20)
    except (OSError, UnicodeDecodeError):
        return False


def save_linked(model: LinkedModel, path: Path) -> None:
    """Write a model file, whole or not at all."""
    write_whole(path, json.dumps(linked_plain(model), separators=(",", ":")).encode())


def load_linked(path: Path) -> LinkedModel:
    """Read a model file; anything that is not one is refused."""
    with only_models(path):
        return linked_of(json.loads(path.read_text(encoding="utf-8")))


def linked_plain(model: LinkedModel) -> dict[str, Any]:
    """A model as plain values."""
    link = model.link
    return {
        "form": LINKED,
        "child": link.child,
        "parent": link.parent,
        "key": link.key,
        "most": link.most,
        "sequence": link.sequence,
        "after": list(link.after),
        "columns": {
            "people": [attribute_plain(a) for a in link.people],
            "rows": [attribute_plain(a) for a in link.rows],
        },
        "types": {"people": list(model.people_types), "rows": list(model.row_types)},
        "truths": truths_plain(model.truths),
        "people": to_plain(model.people),
        "rows": to_plain(model.rows),
    }


def linked_of(held: dict[str, Any]) -> LinkedModel:
    """The model that plain values stand for."""
    if held["form"] != LINKED or int(held["most"]) < 1:
        raise ValueError
    people, rows = (tuple(attribute_of(entry) for entry in held["columns"][part]) for part in ("people", "rows"))
    parent = None if held["parent"] is None else str(held["parent"])
    sequence = None if held["sequence"] is None else str(held["sequence"])
    after = tuple(map(str, held["after"]))
    link = Link(str(held["child"]), parent, str(held["key"]), int(held["most"]), people, rows, sequence, after)
    types = (tuple(map(str, held["types"][part])) for part in ("people", "rows"))
    return LinkedModel(link, from_plain(held["people"]), from_plain(held["rows"]), truths_of(held["truths"]), *types)
