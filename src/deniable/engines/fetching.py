"""Rows that are brought here: the embedded engine, for what works on rows, over tables that are elsewhere.

A table elsewhere is looked at when it is attached, and read when a statement needs it: all its rows, or only how many
rows have each combination of some columns, counted where they are (`hold_counts`)."""

# ruff: noqa: S608  (statements here are made of our own words and of quoted names)

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deniable.engines.base import (
    BATCH_ROWS,
    Engine,
    Field,
    Parameters,
    Restriction,
    Sampled,
    Source,
    is_by_adbc,
    is_elsewhere,
    is_in_spark,
    quote,
)
from deniable.engines.duckdb.engine import DuckDBEngine
from deniable.engines.remote import count_rows_out, find_arrow_type, refuse_rows_out
from deniable.policy.schema import ColumnType, CsvDialect, TableSchema, refuse_secret

COUNTED = "__rows"
"""The column that says how many rows a combination has."""


@dataclass(frozen=True, slots=True)
class _Away:
    """A table elsewhere: the engine that counts there, and which rows may be seen."""

    source: str
    schema: TableSchema | None
    engine: Engine
    restrictions: tuple[Restriction, ...] = ()


class FetchingEngine(DuckDBEngine):
    """The embedded engine; the rows of a table elsewhere are copied when a statement first needs them.

    They are held in the engine's private folder, which is gone with it. More rows than the policy's `rows_out` of the
    table are refused. `open_there` opens the engine that counts at a source; without it, all rows are copied at once.
    """

    reads_once = True

    def __init__(self, *, open_there: Callable[[str], Engine] | None = None, **limits: Any) -> None:
        super().__init__(**limits)
        self._open_there = open_there
        self._away: dict[str, _Away] = {}
        self.counted: dict[str, _Away] = {}
        """Of which tables combinations are held, and not rows."""

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; a table elsewhere is looked at, and copied when it is needed."""
        self._let_go(name)
        if not is_elsewhere(source):
            super().attach(name, source, schema, csv=csv)
        elif self._open_there is None:
            self._fetch_rows(name, source, schema)
        else:
            there = self._open_there(source)
            self._away[name] = _Away(source, schema, there)
            there.attach(name, source, schema)

    def reach(self, *names: str) -> None:
        """Refuse sources that are gone: files, and tables elsewhere that are still to be read."""
        for name in names:
            away = self._away.get(name)
            if away is None:
                super().reach(name)
            else:
                away.engine.reach(name)

    def _let_go(self, name: str) -> None:
        for held in (self._away, self.counted):
            if name in held:
                held.pop(name).engine.close()

    def _fetch_rows(self, name: str, source: str, schema: TableSchema | None) -> None:
        refuse_secret(source)
        with _fetch(source, schema) as rows:
            super().attach(name, rows, schema)

    def _settle(self) -> None:
        """Copy the rows of all tables that were only looked at."""
        for name in list(self._away):
            away = self._away.pop(name)
            away.engine.close()
            self._fetch_rows(name, away.source, away.schema)
            super().restrict(name, *away.restrictions)

    def restrict(self, name: str, *restrictions: Restriction) -> None:
        """Show only some rows of a source from now on."""
        away = self._away.get(name)
        if away is None:
            super().restrict(name, *restrictions)
            return
        away.engine.restrict(name, *restrictions)
        self._away[name] = _Away(away.source, away.schema, away.engine, restrictions)

    def find_counting(self, name: str) -> Engine | None:
        """The engine that can count the rows of a table where they are, none of which was copied yet.

        None also where a sample is shown: which people are in it is decided by the engine that reads.
        """
        away = self._away.get(name)
        if away is None or any(isinstance(each, Sampled) for each in away.restrictions):
            return None
        return away.engine

    def hold_counts(self, name: str, columns: Collection[str], person: str | None = None) -> bool:
        """Hold of a table what some columns say: combinations, counted where they are. All other columns are null.

        As many rows are shown as there are. More combinations than `rows_out` are refused. False, and nothing is held,
        where a person may have several rows.
        """
        away = self._away[name]
        most, fields = count_rows_out(away.schema), away.engine.describe(name)
        named = [field.name for field in fields if field.name in columns]
        counted = count_combinations(away.engine, name, named, COUNTED, most + 1, person)
        if person is not None:
            if any(counted[each][0].as_py() for each in SEVERAL if counted.num_rows):
                return False
            counted = counted.drop_columns(list(SEVERAL))
        if counted.num_rows > most:
            raise refuse_rows_out(f"'{away.schema.name if away.schema else name}', by the columns asked for,", most)
        super().attach(name, _repeat_rows(counted, fields), away.schema)
        self.counted[name] = self._away.pop(name)
        return True

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""
        away = self._away.get(name)
        return super().describe(name) if away is None else away.engine.describe(name)

    def refuse_inexact(self, name: str, columns: Collection[str]) -> None:
        """Refuse a file with values that no row could be released with as they are; a table elsewhere is not read."""
        if name not in self._away:
            super().refuse_inexact(name, columns)

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out of a file; of a table elsewhere nothing is."""
        return () if name in self._away else super().notes(name)

    def run(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement here, over rows that are copied first."""
        self._settle()
        return super().run(sql, parameters, seconds=seconds, frames=frames, one_row=one_row)

    def count(self, name: str) -> int:
        """How many rows a source has."""
        self._settle()
        return super().count(name)

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Batches of a statement or of a source, over rows that are copied first."""
        self._settle()
        return super().stream(sql_or_table, batch_rows, parameters)

    def list_values(self, name: str, column: str, most: int) -> pa.Array:
        """The different values of a column, at most so many; of a table that was counted, from where it is."""
        self._settle()
        counted = self.counted.get(name)
        engine: Engine = self if counted is None else counted.engine
        limit = most if counted is None else count_rows_out(counted.schema)
        found = engine.run(f"SELECT DISTINCT {quote(column)} FROM {quote(name)} LIMIT {min(most, limit + 1)}")
        if found.num_rows > limit:
            raise refuse_rows_out(f"'{name}', by the values of '{column}', which are looked for in what leaves,", limit)
        return found.column(0).combine_chunks()

    def data_version(self, name: str) -> str:
        """A fingerprint of the content of a source and of how it is read."""
        if name in self.counted:
            return self.counted[name].engine.data_version(name)
        self._settle()
        return super().data_version(name)

    def close(self) -> None:
        """Let go of all sources, here and elsewhere."""
        for name in (*self._away, *self.counted):
            self._let_go(name)
        super().close()


def count_combinations(
    engine: Engine, name: str, columns: Sequence[str], counted: str, most: int, person: str | None = None
) -> pa.Table:
    """How many rows have each combination of some columns, counted by the engine; at most so many combinations.

    Where people are told apart by a column, it is counted in the same statement, and so over the same rows, whether
    somebody has several rows (`SEVERAL`): 0 in both columns of every combination where nobody has.
    """
    named = ", ".join(map(quote, columns))
    shown, by = (f"{named}, ", f" GROUP BY {named}") if columns else ("", "")
    combined = f"SELECT {shown}count(*) AS {quote(counted)} FROM {quote(name)}{by}"
    if person is not None:
        told = ", ".join(f"p.{quote(each)}" for each in SEVERAL)
        shown = "".join(f"c.{quote(each)}, " for each in (*columns, counted))
        combined = (
            f"SELECT {shown}{told} FROM ({combined}) AS c CROSS JOIN ({_count_several(engine, name, person)}) AS p"
        )
    return engine.run(f"{combined} LIMIT {most}")


ASCII = "".join(map(chr, range(33, 127))).replace("'", "''")
"""The characters of plain texts, which differ from one another's spelling by case alone."""
SEVERAL = ("__twice", "__odd")
"""The columns that say how many rows are of a person who has another, and how many could be spellings of one."""


def _count_several(engine: Engine, name: str, column: str) -> str:
    kind = next(field.type for field in engine.describe(name) if field.name == column)
    text, odd = quote(column), "0"
    if kind is ColumnType.TEXT:
        odd = f"count(CASE WHEN translate({text}, '{ASCII}', '') <> '' THEN 1 END)"
        text = f"nullif(lower({text}), '')"
    twice = f"count(*) - count(DISTINCT {text}) AS {quote(SEVERAL[0])}"
    return f"SELECT {twice}, {odd} AS {quote(SEVERAL[1])} FROM {quote(name)}"


def _repeat_rows(counted: pa.Table, fields: Sequence[Field]) -> pa.RecordBatchReader:
    """Combinations as the rows that they were counted from, in batches; columns that were not counted are null."""
    import numpy as np

    schema = pa.schema([(field.name, find_arrow_type(field)) for field in fields])
    times, combined = counted[COUNTED].to_numpy().astype(np.int64), counted.combine_chunks()

    def batches() -> Iterator[pa.RecordBatch]:
        ends = np.cumsum(times)
        for begin in range(0, int(times.sum()), BATCH_ROWS):
            rows = np.arange(begin, min(begin + BATCH_ROWS, int(ends[-1])))
            part = combined.take(pa.array(np.searchsorted(ends, rows, side="right"))).combine_chunks()
            columns = [
                part[each.name].cast(each.type) if each.name in counted.column_names else pa.nulls(len(rows), each.type)
                for each in schema
            ]
            yield from pa.table(columns, schema=schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


@contextmanager
def _fetch(source: Any, schema: TableSchema | None) -> Iterator[pa.RecordBatchReader]:
    if is_in_spark(source):
        from deniable.engines.spark.engine import fetch_table as fetch_from_spark

        with fetch_from_spark(source, schema) as rows:
            yield rows
    elif is_by_adbc(source):
        from deniable.engines.adbc import fetch_table as fetch_by_adbc

        with fetch_by_adbc(source, schema) as rows:
            yield rows
    else:
        from deniable.engines.postgresql.engine import fetch_table

        with fetch_table(source, schema) as rows:
            yield rows
