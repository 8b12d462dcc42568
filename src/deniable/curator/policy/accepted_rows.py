"""Which accepted policy rows have, by what they hold: in another order, format or file, in part, or under other names.

When a policy is accepted, keyed marks of some rows of each of its private files are kept in the user's state beside
those by which ledgers know theirs (`ledger.witness`). Without the key they tell nothing of a row."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import AccessRefused, DeniableError
from deniable.policy.document import Policy, find_accepted, list_accepted
from deniable.policy.schema import CsvDialect, TableSchema, make_dialect

if TYPE_CHECKING:
    from deniable.ledger.same_rows import Sketch

MARKED = 128
"""So many rows are marked: enough to know a fifth of them again."""


def note_accepted_rows(policy: Policy, path: str | Path) -> None:
    """Keep marks of the rows of an accepted policy's private files; of those that cannot be read now, none."""
    from deniable.ledger.witness import Witness

    sketches = {table.name: _sketch(policy.path(table.source), table.csv) for table in policy.private}
    kept = {name: sketch for name, sketch in sketches.items() if sketch is not None}
    Witness().note_accepted(os.path.realpath(path), kept)


def find_policy_of(*sources: Any, encoding: str | None = None) -> str | None:
    """The policy that was accepted for the rows of one of these sources; None where none was."""
    if (named := find_accepted(*sources)) is not None:
        return named
    found = (each for source in sources if source is not None for each, _ in _find(source, make_dialect(encoding)))
    return next(found, None)


def refuse_less_protected(policy: Policy, sources: Mapping[str, Any] | None = None) -> None:
    """Refuse to release rows under a policy that protects them less than the one that was accepted for them."""
    from deniable.policy.diff import list_loosened

    known = list_accepted()
    if not known or policy.hash in {each.hash for each in known.values()}:
        return
    for table in policy.private:
        source = (sources or {}).get(table.name, policy.path(table.source))
        for file, name in _find(source, table.csv):
            before = known[file]
            own = _name_alike(before.table(name), table)
            if loosened := list_loosened(before, replace(policy, tables=(own,))):
                raise AccessRefused(
                    f"the rows of '{table.name}' have a policy that was accepted, {file}, and this one protects them "
                    f"less: {'; '.join(loosened[:3])}",
                    expected="Rows leave as their policy lets them, in whichever file they are",
                    remedy="Use that policy, or let the steward look at this one and accept it: deniable policy accept",
                )


def _name_alike(before: TableSchema, table: TableSchema) -> TableSchema:
    """A table under the name and source of the accepted one, to be compared with it."""
    return replace(table, name=before.name, source=before.source)


def _find(source: Any, csv: CsvDialect | None) -> Sequence[tuple[str, str]]:
    """The accepted policies for the rows of a source, the last one first, each with its table."""
    from deniable.ledger.witness import Witness

    files, witness = list(list_accepted()), Witness()
    if not files or witness.is_blank or not witness.has_accepted():
        return ()
    sketch = _sketch(source, csv)
    found = [] if sketch is None else [each for each in witness.find_accepted(sketch) if each[0] in files]
    return sorted(found, key=lambda each: -files.index(each[0]))


def _sketch(source: Any, csv: CsvDialect | None) -> Sketch[int] | None:
    """Hashes of some rows; None where rows are elsewhere, or cannot be read."""
    from deniable.engines.base import is_elsewhere, sketch_rows
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.ledger.same_rows import FEW_ROWS, Sketch

    if is_elsewhere(source):
        return None
    # Types are found out, not declared: the same rows have then the same ones in every file.
    with suppress(DeniableError, OSError), DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach("table", source, None, csv=csv)
        return Sketch(*sketch_rows(engine, "table", MARKED, FEW_ROWS))
    return None
