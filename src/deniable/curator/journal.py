"""A journal of finished turns: one line each, so that a comparison that was stopped goes on where it was.

The first line says what the journal belongs to; a line that was cut off by a kill is dropped, and its turn runs again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deniable.errors import IntegrityError
from deniable.storage import storage_errors, write_whole

Turn = tuple[str, float, int]
"""Method, epsilon and number of the run."""


class Journal:
    """What every finished turn said; on disk where a path is given."""

    def __init__(self, path: Path | None, key: str) -> None:
        self._path = path
        self.turns: dict[Turn, Mapping[str, Any]] = {}
        if path is None:
            return
        with storage_errors(path):
            lines = (
                path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True) if path.exists() else []
            )
            whole = [line for line in lines if line.endswith("}\n")]
            self._read([json.loads(line) for line in whole], key)
            # Rewritten before anything is added: a line that was cut off must not swallow the next one.
            write_whole(path, ("".join(whole) or json.dumps({"comparison": key}) + "\n").encode())

    def _read(self, held: list[dict[str, Any]], key: str) -> None:
        if held and held[0].get("comparison") != key:
            raise IntegrityError(
                "the journal belongs to another comparison",
                expected="The same rows, policy, findings and delta",
                remedy="Name another file with --journal, or remove this one",
            )
        self.turns = {(line["method"], line["epsilon"], line["run"]): line["said"] for line in held[1:]}

    def left(self, turns: list[Turn]) -> list[Turn]:
        """The turns that are not finished."""
        return [turn for turn in turns if turn not in self.turns]

    def keep(self, turn: Turn, said: Mapping[str, Any]) -> None:
        """Write down a finished turn."""
        self.turns[turn] = said
        if self._path is not None:
            with storage_errors(self._path), self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**_plain(turn), "said": said}) + "\n")

    def rows(self, turns: list[Turn]) -> list[dict[str, Any]]:
        """What these turns said."""
        return [{**_plain(turn), "said": self.turns[turn]} for turn in turns]


def _plain(turn: Turn) -> dict[str, Any]:
    return dict(zip(("method", "epsilon", "run"), turn, strict=True))
