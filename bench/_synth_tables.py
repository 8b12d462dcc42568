"""Twelve tables for synthesis: categorical, continuous, small and wide ones, real where they are at hand. And three
that are made, a chain of columns and two stars: a tree of pairs says all of them.

Each is declared as a policy would: categories from the codebook (here, from the rows), bounds as round numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from deniable import world
from deniable.policy.document import parse
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, TableSchema

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
Table = tuple[pa.Table, TableSchema]


def _declare(rows: pa.Table, numbers: dict[str, tuple[int, int]]) -> Table:
    """Numbers with their bounds, and every other column with its categories."""
    columns, arrays = [], []
    for name in rows.column_names:
        values = rows[name]
        if name in numbers:
            values = pc.cast(pc.round(pc.cast(values, pa.float64())), pa.int64())
            bounds = Bounds(*numbers[name])
            columns.append(Column(name, ColumnType.INTEGER, bounds=bounds, nullable=values.null_count > 0))
        else:
            values = pc.cast(values, pa.string())
            listed = tuple(sorted(value for value in values.unique().to_pylist() if value is not None))
            columns.append(Column(name, ColumnType.TEXT, categories=listed, nullable=values.null_count > 0))
        arrays.append(values)
    return pa.table(arrays, rows.column_names), TableSchema("t", "t.csv", tuple(columns), PrivacyUnit())


def _sample(rows: pa.Table, size: int) -> pa.Table:
    return rows.take(np.random.default_rng(0).permutation(rows.num_rows)[:size])


def _adult(size: int) -> Table:
    rows = pyarrow.csv.read_csv(DATA / "adult" / "adult.csv", parse_options=pyarrow.csv.ParseOptions(delimiter=";"))
    return _declare(_sample(rows, size), {"age": (0, 99)})


def _adult14() -> Table:
    rows = _sample(pyarrow.csv.read_csv(DATA / "adult14" / "adult.csv"), 20_000)
    return _declare(rows, {})


def _census(size: int, columns: int) -> Table:
    rows = pq.read_table(DATA / "census_kdd" / "census_income_kdd_1994_1995.parquet")
    rows = _sample(rows.drop_columns(["instance_weight", "part"]), size)
    numbers = {"age": (0, 99), "wage_per_hour": (0, 9_999), "capital_gains": (0, 99_999), "capital_losses": (0, 9_999),
               "dividends_from_stocks": (0, 99_999), "weeks_worked_in_year": (0, 52)}  # fmt: skip
    return _declare(rows.select(rows.column_names[:columns]), numbers)


def _acs(place: str, file: str) -> Table:
    told = pyarrow.csv.ConvertOptions(null_values=["N"], strings_can_be_null=True)
    rows = pyarrow.csv.read_csv(DATA / "nist_acs" / place / file, convert_options=told)
    rows = rows.drop_columns(["PWGTP", "WGTP", "INDP", "PINCP_DECILE", "DENSITY"])
    return _declare(rows, {"AGEP": (0, 99), "PINCP": (-20_000, 1_500_000), "POVPIP": (0, 501)})


def _diabetes() -> Table:
    rows = pq.read_table(DATA / "diabetes130" / "diabetic_data.parquet", columns=[
        "race", "gender", "age", "admission_type_id", "time_in_hospital", "payer_code", "num_lab_procedures",
        "num_procedures", "num_medications", "number_inpatient", "number_diagnoses", "A1Cresult", "insulin", "change",
        "readmitted"])  # fmt: skip
    return _declare(_sample(rows, 10_000), {"num_lab_procedures": (0, 150), "num_medications": (0, 100)})


def _flights() -> Table:
    rows = pq.read_table(DATA / "flights" / "nycflights13_flights.parquet")
    names = ["month", "dep_time", "dep_delay", "arr_delay", "carrier", "origin", "air_time", "distance", "hour"]
    rows = rows.select(names)
    return _declare(_sample(rows, 10_000), {"dep_time": (0, 2400), "dep_delay": (-60, 1440), "arr_delay": (-120, 1440),
                                            "air_time": (0, 720), "distance": (0, 5000)})  # fmt: skip


def _military() -> Table:
    rows = pq.read_table(DATA / "military" / "openintro_military.parquet").drop_columns(["rownames"])
    return _declare(_sample(rows, 20_000), {})


def _officials() -> Table:
    rows = pyarrow.csv.read_csv(DATA / "officials" / "congress-terms.csv")
    rows = rows.select(["congress", "chamber", "state", "party", "incumbent", "age"])
    return _declare(rows, {"congress": (80, 113), "age": (0, 110)})


def _titanic() -> Table:
    """1,304 passengers as there might have been: fares of a few pence to hundreds, many ages unknown."""
    lots, size = np.random.default_rng(7), 1304
    grade = lots.choice(3, size, p=[0.25, 0.21, 0.54])
    sex = (lots.random(size) < 0.36).astype(int)
    age = np.clip(lots.normal(39 - 7 * grade, 13), 0, 80).astype(int)
    fare = np.exp(lots.normal(np.array([4.1, 2.9, 2.3])[grade], 0.6)).astype(int).clip(0, 600)
    lived = lots.random(size) < np.array([0.35, 0.2, 0.13])[grade] + 0.5 * sex
    rows = pa.table({"grade": grade, "sex": sex, "age": pa.array(age, mask=lots.random(size) < 0.2), "fare": fare,
                     "port": lots.choice(3, size, p=[0.1, 0.2, 0.7]), "relatives": lots.poisson(0.8, size).clip(0, 9),
                     "lived": lived.astype(int)})  # fmt: skip
    return _declare(rows, {"age": (0, 99), "fare": (0, 999)})


def _world(name: str, table: str, people: int) -> Table:
    declared = parse(world.policy(name)).table(table)
    kept = [column for column in declared.columns
            if column.role is not Role.IDENTIFIER and (column.categories or column.bounds)]  # fmt: skip
    rows = world.make(name, people=people)[table].select([column.name for column in kept])
    return rows, TableSchema(table, "t.csv", tuple(kept), PrivacyUnit())


def _chain(size: int, columns: int) -> Table:
    """Each column is the one before with a chance of 0.7, and else any of four values."""
    lots = np.random.default_rng(11)
    made = [lots.integers(0, 4, size)]
    for _ in range(columns - 1):
        made.append(np.where(lots.random(size) < 0.7, made[-1], lots.integers(0, 4, size)))
    return _declare(pa.table({f"c{place}": values for place, values in enumerate(made)}), {})


def _star(size: int, columns: int) -> Table:
    """Each column is the first with a chance of 0.6, and else any of four values."""
    lots = np.random.default_rng(6)
    first = lots.integers(0, 4, size)
    others = {f"c{i}": np.where(lots.random(size) < 0.6, first, lots.integers(0, 4, size)) for i in range(1, columns)}
    return _declare(pa.table({"c0": first, **others}), {})


def _hub(size: int, columns: int) -> Table:
    """Each column is a function of the first, of twenty values, with a chance of 0.8, and else any of four values."""
    lots = np.random.default_rng(7)
    first, others = lots.integers(0, 20, size), {}
    for place in range(1, columns):
        told = lots.integers(0, 4, 20)[first]
        others[f"c{place}"] = np.where(lots.random(size) < 0.8, told, lots.integers(0, 4, size))
    return _declare(pa.table({"c0": first, **others}), {})


TABLES: dict[str, Callable[[], Table]] = {
    "adult": lambda: _adult(30_162),
    "adult14": _adult14,
    "census": lambda: _census(20_000, 20),
    "wide": lambda: _census(10_000, 41),
    "acs-texas": lambda: _acs("texas", "tx2019.csv"),
    "acs-massachusetts": lambda: _acs("massachusetts", "ma2019.csv"),
    "diabetes": _diabetes,
    "flights": _flights,
    "military": _military,
    "officials": _officials,
    "titanic": _titanic,
    "salaries": lambda: _world("salaries", "salaries", 4000),
    "chain": lambda: _chain(3000, 10),
    "star": lambda: _star(4000, 10),
    "hub": lambda: _hub(4000, 10),
}
