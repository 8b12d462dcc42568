"""Synthesis at size: a wide real table end to end, a hundred columns, and ten million rows to Parquet.

The floor for describing is counting every pair of columns once; that for writing is writing a table of constants of the
same width. The real table is Census-Income (KDD), 299,285 x 41 (its weight and its train/test mark left out): its
categories are the codebook's, its bounds round numbers that hold them.

    python bench/synth_large.py [census] [wide] [rows]
"""

from __future__ import annotations

import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _generated import find_data, say_source

from deniable.engines.sources import write_rows
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.synth.describe import describe_table
from deniable.synth.domain import Domain
from deniable.synth.encode import encode_column
from deniable.synth.generate import generate_batches
from deniable.synth.marginal import count, index_cells
from deniable.synth.model import SynthModel

BUDGET = ApproxDP(1, "1e-9")
LEFT_OUT = ("instance_weight", "part")
NUMBERS = {
    "age": 90,
    "wage_per_hour": 9_999,
    "capital_gains": 99_999,
    "capital_losses": 9_999,
    "dividends_from_stocks": 99_999,
    "weeks_worked_in_year": 52,
}
MOST_SECONDS, MOST_MEGABYTES = 60.0, 4096.0
ROWS = 10_000_000


def main(names: list[str]) -> int:
    """Run the parts that are named, or all; the exit code counts the bars that were missed."""
    parts: dict[str, Callable[[], bool]] = {"census": census, "wide": wide, "rows": many_rows}
    return sum(not part() for name, part in parts.items() if not names or name in names)


def census() -> bool:
    """The default method on the census table, from the table to a Parquet file."""
    print(say_source("census_kdd/all"))
    real = pq.read_table(find_data("census_kdd/all") / "census_income_kdd_1994_1995.parquet")
    real = real.drop_columns([name for name in LEFT_OUT if name in real.column_names])
    table = _declared(real)
    start = time.process_time()
    model = describe_table(real, table, BUDGET)
    described = time.process_time() - start
    made, written = _written(model, None)
    codes, domain = _coded(real, model)
    twin, _ = _coded(made, model)
    floor = _seconds(lambda: [count(codes, domain, pair) for pair in itertools.combinations(range(len(domain)), 2)])
    two, three = (_error(codes, twin, domain, way) for way in (2, 3))
    print(f"census {codes.shape[1]:,} x {len(domain)}: describe {described:.1f}, generate {written:.1f} CPU s "
          f"= {(described + written) / floor:.0f} x counting pairs; 2-way {two:.4f}, 3-way {three:.4f}")  # fmt: skip
    print(f"  {model.description.reason}")
    return _held(described + written, MOST_SECONDS)


def wide() -> bool:
    """A hundred generated columns, each hanging on an earlier one, 20,000 rows, at epsilon 1 and 10."""
    return all([_wide(ApproxDP(1, "1e-9")), _wide(ApproxDP(10, "1e-9"))])


def _wide(budget: ApproxDP) -> bool:
    generator = np.random.default_rng(5)
    columns: list[np.ndarray] = []
    for place in range(100):
        fresh = generator.integers(0, 2 + place % 15, 20_000)
        kept = generator.random(20_000) < 0.6
        earlier = columns[place // 3] % (2 + place % 15) if columns else fresh
        columns.append(np.where(kept, earlier, fresh))
    real = pa.table({f"c{place}": column for place, column in enumerate(columns)})
    declared = [Column(f"c{i}", ColumnType.INTEGER, categories=tuple(range(2 + i % 15))) for i in range(100)]
    table = TableSchema("wide", "wide.parquet", tuple(declared), PrivacyUnit())
    start = time.process_time()
    model = describe_table(real, table, budget)
    described = time.process_time() - start
    _, written = _written(model, None)
    print(f"wide 20,000 x 100: describe {described:.1f}, generate and write {written:.1f} CPU s")
    return _held(described + written, MOST_SECONDS)


def many_rows() -> bool:
    """Ten million rows of the clinic's visits from a model, streamed to Parquet."""
    from deniable import world
    from deniable.policy.document import parse

    table = parse(world.policy("hospital")).table("visits")
    model = describe_table(world.make("hospital", people=20_000)["visits"], table, ApproxDP(1, "1e-6"), most_rows=3)
    before = _megabytes()
    _, written = _written(model, ROWS, read=False)
    floor = _floor(len(model.attributes))
    print(f"rows {ROWS:,} x {len(model.attributes)}: {written:.1f} CPU s = {written / floor:.0f} x writing constants, "
          f"{_megabytes() - before:,.0f} MB more than before")  # fmt: skip
    return _held(written, MOST_SECONDS)


def _declared(real: pa.Table) -> TableSchema:
    """The census table as a policy would declare it."""
    columns = [_column(name, real.column(name)) for name in real.column_names]
    return TableSchema("census", "census.parquet", tuple(columns), PrivacyUnit())


def _column(name: str, values: pa.ChunkedArray) -> Column:
    if name in NUMBERS:
        return Column(name, ColumnType.INTEGER, bounds=Bounds(0, NUMBERS[name]), nullable=False)
    kind = ColumnType.INTEGER if pa.types.is_integer(values.type) else ColumnType.TEXT
    listed = tuple(sorted(value for value in values.unique().to_pylist() if value is not None))
    return Column(name, kind, categories=listed, nullable=values.null_count > 0)


def _written(model: SynthModel, rows: int | None, *, read: bool = True) -> tuple[pa.Table | None, float]:
    """What was written, if it is to be read again, and the CPU seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.parquet"
        seconds = _seconds(lambda: write_rows(generate_batches(model, rows), path))
        return pq.read_table(path) if read else None, seconds


def _floor(columns: int) -> float:
    """CPU seconds of writing as many constants."""
    names = [f"c{place}" for place in range(columns)]
    batch = pa.record_batch([pa.array(np.zeros(500_000, dtype=np.int64)) for _ in names], names=names)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "floor.parquet"
        return _seconds(lambda: write_rows((batch for _ in range(ROWS // batch.num_rows)), path))


def _coded(rows: pa.Table, model: SynthModel) -> tuple[np.ndarray, Domain]:
    """Codes of a table's columns, and their domain."""
    domain = model.description.domain
    coded = [attribute for attribute in model.attributes if attribute.name in domain.names]
    return np.stack([encode_column(attribute, rows.column(attribute.name)) for attribute in coded]), domain


def _error(real: np.ndarray, made: np.ndarray, domain: Domain, way: int) -> float:
    """The mean total variation of marginals of so many columns: all pairs, or 2,000 threes by lot."""
    cliques = list(itertools.combinations(range(len(domain)), way))
    chosen = np.random.default_rng(0).permutation(len(cliques))[:2000]
    return float(np.mean([_distance(real, made, domain, cliques[i]) for i in chosen]))


def _distance(real: np.ndarray, made: np.ndarray, domain: Domain, clique: tuple[int, ...]) -> float:
    a, b = (_shares(codes, domain, clique) for codes in (real, made))
    return sum(abs(a.get(cell, 0.0) - b.get(cell, 0.0)) for cell in a.keys() | b.keys()) / 2


def _shares(codes: np.ndarray, domain: Domain, clique: tuple[int, ...]) -> dict[int, float]:
    cells, counts = np.unique(index_cells(codes, domain, clique), return_counts=True)
    return dict(zip(cells.tolist(), (counts / codes.shape[1]).tolist(), strict=True))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _held(seconds: float, most: float) -> bool:
    """Whether the bars are met, said aloud."""
    met = seconds <= most and _megabytes() <= MOST_MEGABYTES
    verdict = "bar met" if met else "BAR MISSED"
    print(f"  {seconds:.1f} of {most:.0f} CPU s, peak {_megabytes():,.0f} of {MOST_MEGABYTES:,.0f} MB: {verdict}")
    return met


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
