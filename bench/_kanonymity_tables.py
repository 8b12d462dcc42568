"""The tables that bench/kanonymity.py measures: adult, a million rows like it, the census, the community survey.

They lie beside the project (see docs/testing.md); where they do not, generated ones of their shape are measured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
from _generated import find_data

from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.request import Request
from deniable.policy.schema import Spec

ADULT = find_data("adult")
FOUR = 0.04
"""The share of rows that may be suppressed, in all of them."""


def read_adult() -> pa.Table:
    """The adult table from its CSV file."""
    return csv.read_csv(ADULT / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))


def trees(table: pa.Table) -> dict[str, Any]:
    """Its hierarchies from their files."""
    return {n: read_tree(ADULT / f"adult_hierarchy_{n}.csv").hierarchy(n, None) for n in table.column_names}


def million(table: pa.Table, rows: int = 1_000_000) -> pa.Table:
    """A large table like a small one: its rows drawn again, with one cell in ten taken from another row."""
    chance = np.random.default_rng(1)
    drawn = chance.integers(0, table.num_rows, rows)
    columns = {}
    for name in table.column_names:
        values = table[name].combine_chunks().dictionary_encode()
        codes = values.indices.to_numpy()
        mixed = np.where(chance.random(rows) < 0.1, codes[chance.integers(0, len(codes), rows)], codes[drawn])
        columns[name] = values.dictionary.take(pa.array(mixed))
    return pa.table(columns)


def census() -> tuple[pa.Table, Request, dict[str, Spec]]:
    """63,000 rows and eight columns of the census table, with hierarchies that make a lattice of 45,000 nodes."""
    specs = {
        "age": Spec("intervals", {"widths": (5, 10, 20, 40)}),
        "weeks_worked_in_year": Spec("intervals", {"widths": (4, 13, 26)}),
        "detailed_industry_recode": Spec("order", {"sizes": (2, 4, 8)}),
        "detailed_occupation_recode": Spec("order", {"sizes": (2, 4, 8)}),
        "education": Spec("order", {"sizes": (2, 4, 8)}),
        "marital_stat": Spec("order", {"sizes": (2,)}),
        "sex": Spec("withhold", {}),
        "race": Spec("withhold", {}),
    }
    specs["weeks_worked_in_year"] = Spec("intervals", {"widths": (13, 26, 52)})
    table = pq.read_table(find_data("census_kdd") / "census_income_kdd_1994_1995.parquet", columns=list(specs))
    return table.slice(0, 63_000), Request(tuple(specs), suppress=FOUR), specs


def wide() -> tuple[pa.Table, Request]:
    """30,000 rows of the American Community Survey with all 24 columns as quasi-identifiers."""
    options = csv.ConvertOptions(include_columns=None)
    parts = [csv.read_csv(p, convert_options=options) for p in sorted(find_data("nist_acs").glob("*/*2019.csv"))]
    table = pa.concat_tables([p.cast(pa.schema([(f.name, pa.string()) for f in p.schema])) for p in parts])
    for name in ("AGEP", "DENSITY", "PINCP", "PWGTP", "WGTP"):
        numbers = pa.array([float(v) if v not in ("N", "") else None for v in table[name].to_pylist()])
        table = table.set_column(table.column_names.index(name), name, numbers)
    chosen = np.random.default_rng(0).permutation(table.num_rows)[:30_000]
    return table.take(pa.array(chosen)), Request(tuple(table.column_names), suppress=FOUR)
