"""Files that are damaged, and dates that no answer holds, are refused in plain words before anything is charged."""

from __future__ import annotations

import gzip
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import DataError
from deniable.policy.schema import Column, ColumnType, TableSchema

ROWS = pa.table({"p": range(20_000), "v": [i % 9 for i in range(20_000)]})
POLICY = """\
version: 1
dataset: damaged
tables:
  t:
    source: {name}
    unit: {{column: p, max_rows_per_group: 1}}
    columns: {{p: {{type: integer}}, v: {{type: {kind}}}}}
budgets: {{dataset: {{epsilon: 100}}}}
accepts: [much-loss]
"""


def refuse(folder: Path, name: str, words: str, kind: str = "integer") -> None:
    """A question of a file is refused in these words, and nothing is charged."""
    (folder / "policy.yaml").write_text(POLICY.format(name=name, kind=kind))
    with Curator.open(folder / "policy.yaml") as curator:
        with pytest.raises(DataError, match=rf"(?s){words}.*Nothing was charged"):
            curator.query("SELECT COUNT(v) AS n FROM t", epsilon=1)
        assert not [entry for entry in curator.ledger.entries() if entry.act in ("charge", "fail")]


def packed() -> bytes:
    return gzip.compress(("p,v\n" + "".join(f"{i},{i % 9}\n" for i in range(20_000))).encode())


DAMAGES = {
    "cut": lambda whole: whole[:-2_000],
    "tail": lambda whole: whole[:-5],
    "start": lambda whole: whole[:5],
    "middle": lambda whole: whole[:3_000] + b"\0\1\2\3" * 5 + whole[3_020:],
    "checksum": lambda whole: whole[:-8] + b"abcd" + whole[-4:],
    "plain": gzip.decompress,
    "more": lambda whole: whole + b"more",
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["t.csv.gz", "T.TSV.GZ"])
def test_a_damaged_packed_file_is_refused(tmp_path: Path, name: str, damage: str) -> None:
    (tmp_path / name).write_bytes(DAMAGES[damage](packed()))
    refuse(tmp_path, name, f"'{name}' is not a whole gzip file. Pack it again")


def test_a_packed_file_in_another_encoding_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(packed()[:-2_000])
    schema = TableSchema("t", "", (Column("v", ColumnType.INTEGER),))
    from deniable.engines import CsvDialect

    with DuckDBEngine(root=tmp_path) as engine, pytest.raises(DataError, match="is not a whole gzip file"):
        engine.attach("t", "t.csv.gz", schema, csv=CsvDialect(encoding="cp1252"))


def test_the_command_line_refuses_a_damaged_packed_file(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(packed()[:-2_000])
    (tmp_path / "policy.yaml").write_text(POLICY.format(name="t.csv.gz", kind="integer"))
    words = ["query", "SELECT COUNT(*) FROM t", "--epsilon", "1", "--policy", "policy.yaml"]
    done = subprocess.run([sys.executable, "-m", "deniable", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert "is not a whole gzip file" in done.stderr
    assert "Aborted" not in done.stdout + done.stderr


def write_database(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS p, range % 9 AS v FROM range(20000)")


def write_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as writer:
        writer.write_table(ROWS, max_chunksize=1_000)


WRITE = {
    "t.parquet": lambda path: pq.write_table(ROWS, path),
    "t.arrow": lambda path: pyarrow.feather.write_feather(ROWS, path, compression="lz4"),
    "t.arrows": write_stream,
    "t.duckdb": write_database,
}


@pytest.mark.parametrize("damage", ["cut", "middle", "empty"])
@pytest.mark.parametrize("name", WRITE)
def test_another_damaged_file_is_refused_before_a_charge(tmp_path: Path, name: str, damage: str) -> None:
    WRITE[name](tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    begin = len(whole) // 2
    if damage == "middle" and name == "t.arrows":
        begin = 0  # numbers that are held as they are have no check
    left = {"cut": whole[: -len(whole) // 3], "middle": whole[:begin] + b"\xff" * 9_000 + whole[begin + 9_000 :]}
    (tmp_path / name).write_bytes(left.get(damage, b""))
    refuse(tmp_path, name, f"'{name}' (is not a whole|could not be read)")


DAYS = {"early": [18_262, -800_000], "late": [18_262, 3_000_000]}
TIMES = {"early": [0, -(2**57)], "late": [0, 2**58], "endless": [0, 2**63 - 1]}


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("when", ["early", "late", "endless"])
@pytest.mark.parametrize("kind", ["days", "times", "zoned", "days of times"])
def test_dates_that_no_answer_holds_are_refused_before_a_charge(
    tmp_path: Path, kind: str, when: str, ending: str
) -> None:
    if kind == "days":
        values = pa.array(DAYS.get(when, [0, 2**31 - 1]), pa.date32())
    else:
        values = pa.array(TIMES[when], pa.timestamp("us", "UTC" if kind == "zoned" else None))
    rows, path = pa.table({"p": [1, 2], "v": values}), tmp_path / f"t.{ending}"
    if ending == "parquet":
        pq.write_table(rows, path)
    else:
        pyarrow.feather.write_feather(rows, path)
    refuse(tmp_path, f"t.{ending}", "column 'v'", "date" if kind.startswith("days") else "datetime")


@pytest.mark.parametrize(
    "value", ["0000-01-01", "10000-01-01", "0001-01-01T00:00:00+05:00", "9999-12-31T23:00:00-05:00"]
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_texts_of_dates_that_no_answer_holds_are_refused_before_a_charge(
    tmp_path: Path, value: str, ending: str
) -> None:
    rows = pa.table({"p": [1, 2], "v": ["2020-01-01T00:00:00Z", value]})
    write: Any = pyarrow.csv.write_csv if ending == "csv" else pq.write_table
    write(rows, tmp_path / f"t.{ending}")
    refuse(tmp_path, f"t.{ending}", "1 value of column 'v' of .* is not of the declared type 'datetime'", "datetime")


def test_the_first_and_the_last_moment_are_read(tmp_path: Path) -> None:
    times = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None]
    schema = TableSchema("t", "", (Column("v", ColumnType.DATETIME),))
    for zone in (None, "UTC"):
        pq.write_table(pa.table({"v": pa.array(times, pa.timestamp("us", zone))}), tmp_path / "t.parquet")
        with DuckDBEngine(root=tmp_path) as engine:
            engine.attach("t", "t.parquet", schema)
            assert engine.run("SELECT count(v) AS n FROM t").to_pylist() == [{"n": 2}]


def test_a_text_of_the_year_0_is_no_date_where_nothing_is_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("v\n2020-01-01\n0000-01-01\n")
    with DuckDBEngine(root=tmp_path) as engine:
        engine.attach("t", "t.csv")
        assert engine.describe("t")[0].type is ColumnType.TEXT


def test_a_remedy_ends_with_one_full_stop(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("p,v\n1,true\n2,maybe\n")
    words = r"1 value of column 'v' of 't.csv' is not of .* csv: \{bad_rows: skip\}\. (?=Nothing)"
    refuse(tmp_path, "t.csv", words, "boolean")
