"""Engines whose rows are elsewhere: what is attached is uploaded first, so that the same tests run on all."""

from __future__ import annotations

import atexit
import itertools
import math
import os
import re
import shutil
import tempfile
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import clinic
from deniable.engines.adbc import AdbcEngine
from deniable.engines.base import is_elsewhere, normalize_names
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.postgresql.connection import connect
from deniable.engines.postgresql.engine import PostgreSQLEngine, write_table
from deniable.engines.spark.engine import SparkEngine
from deniable.policy.schema import PrivacyUnit, TableSchema
from deniable.query.execute import measure
from deniable.query.sql.dialects import render_for_postgresql, render_for_spark, render_for_warehouse

NUMBERS = itertools.count()
MOST_COLLECTED = "2m"
"""How much Spark lets be brought to this process."""


def start_spark() -> Any:
    """Spark, started once in a process, for many small statements; a refusal where it cannot run.

    `SPARK_REMOTE` and `SPARK_MASTER` choose a Connect server or a cluster, which must see the folders of the tests.
    """
    from deniable.engines.sources import require_driver
    from deniable.engines.spark.session import STARTED_HERE, STARTED_WITH, open_session, require_java

    require_driver("pyspark")
    if os.environ.get("SPARK_REMOTE"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Spark says of pandas
            return open_session()
    require_java()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.master(os.environ.get("SPARK_MASTER", "local[2]"))
    quick = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.maxResultSize": MOST_COLLECTED,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.warehouse.dir": tempfile.mkdtemp(),
    }
    for name, value in (STARTED_WITH | STARTED_HERE | quick).items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Spark says of pandas, which is not used with it
        builder.getOrCreate()
        return open_session()


class UploadingSpark(SparkEngine):
    """An engine that puts each source into a folder of Parquet files, and attaches that."""

    def __init__(self, session: Any, folder: Path, **limits: Any) -> None:
        super().__init__(render=render_for_spark, root=folder, session=session, threads=1, memory="512MB", **limits)
        self.folder = folder

    def attach(self, name: str, source: Any, schema: Any = None, *, csv: Any = None) -> None:
        """Write what a source holds, as the embedded engine reads it, and attach the folder."""
        if isinstance(source, str) and source.startswith("spark:"):
            super().attach(name, source, schema, csv=csv)
            return
        with DuckDBEngine(root=self.folder, threads=1) as reader:
            reader.attach("rows", source, schema, csv=csv)
            rows = reader.run("SELECT * FROM rows")
            rows = rows.rename_columns([field.name for field in reader.describe("rows")])
        super().attach(name, write_parquet(rows, self.folder), schema)


def write_parquet(rows: pa.Table, folder: Path) -> str:
    """Put rows into a new folder of two files; gives the source that it is."""
    inside = folder / f"t{os.getpid()}_{next(NUMBERS)}"
    inside.mkdir()
    half = (rows.num_rows + 1) // 2
    for place, part in enumerate((rows.slice(0, half), rows.slice(half))):
        pq.write_table(part, inside / f"{place}.parquet")
    return f"spark:{inside}"


class Uploading:
    """What puts each source into a table of its own in a PostgreSQL, and drops them in the end."""

    address: str
    uploaded: list[str]
    _root: Path | str

    def attach(self, name: str, source: Any, schema: Any = None, *, csv: Any = None) -> None:
        """Upload what a source holds, as the embedded engine reads it, and attach the table."""
        self._require_open()
        if is_elsewhere(source):
            super().attach(name, source, schema, csv=csv)
            return
        if isinstance(source, pa.Table) and schema is None and not any(map(pa.types.is_nested, source.schema.types)):
            super().attach(name, self.upload(source.rename_columns(list(normalize_names(source.schema.names)))))
            return
        with DuckDBEngine(root=self._root, threads=1) as reader:
            reader.attach("rows", source, schema, csv=csv)
            rows = reader.run("SELECT * FROM rows")
            rows = rows.rename_columns([field.name for field in reader.describe("rows")])
        super().attach(name, self.upload(rows), schema)

    def upload(self, rows: pa.Table) -> str:
        """Put rows into a new table; gives the source that it is."""
        source = f"{self.address}#public.t{os.getpid()}_{next(NUMBERS)}"
        write_table(rows.rename_columns([name[:60] for name in rows.column_names]), source)
        self.uploaded.append(source.rpartition("#")[2])
        return self.locate(source)

    def locate(self, source: str) -> str:
        """The source by which an engine reaches a table."""
        return source

    def close(self) -> None:
        """Drop what was uploaded."""
        super().close()
        if self.uploaded:
            with suppress(Exception):
                connection = connect(self.address, read_only=False)
                connection.execute(f"DROP TABLE IF EXISTS {', '.join(self.uploaded)}")
                connection.commit()
                connection.close()
            self.uploaded = []


class UploadingPostgreSQL(Uploading, PostgreSQLEngine):
    """The engine over PostgreSQL, with uploaded tables."""

    def __init__(self, address: str, root: Path | str = ".", **limits: Any) -> None:
        super().__init__(render=render_for_postgresql, root=root, threads=1, memory="512MB", **limits)
        self.address, self.uploaded, self._root = address, [], root


class UploadingAdbc(Uploading, AdbcEngine):
    """The engine over ADBC, with tables uploaded to a PostgreSQL that a profile leads to."""

    def __init__(self, address: str, root: Path | str = ".", **limits: Any) -> None:
        super().__init__(render=render_for_warehouse, root=root, threads=1, memory="512MB", **limits)
        self.address, self.uploaded, self._root = address, [], root
        self.profile = write_profile(address)

    def locate(self, source: str) -> str:
        """The same table by ADBC."""
        return f"postgresql+adbc://{self.profile}#{source.rpartition('#')[2]}"


def write_profile(address: str) -> str:
    """A profile of ADBC that leads to a PostgreSQL; the address comes from the environment, as a secret would."""
    folder, name = Path(tempfile.gettempdir()) / f"profiles{os.getpid()}", f"clinic{os.getpid()}"
    folder.mkdir(exist_ok=True)
    os.environ |= {"ADBC_PROFILE_PATH": str(folder), "CLINIC_ADDRESS": address}
    text = 'profile_version = 1\n[Options]\nuri = "{{ env_var(CLINIC_ADDRESS) }}"\n'
    (folder / f"{name}.toml").write_text(text)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return name


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999999999999994, 4503599627370497.5, 1e15, 1e308, -1e308,
         1.7976931348623157e308, 8.98846567431158e307, 1e-300, 5e-324, math.inf, -math.inf, math.nan, 2.0**63, 1e-9,
         709.78, 709.79, -745.0, -746.0, 9.5e-5]  # fmt: skip
"""Numbers on which engines differ."""
TEXTS = ["", "a", "hello", "ẞtraße", "e\u0301e", "🙂x", "a_b", "100%", "a\\b", "Ä"]
"""Texts on which engines differ."""
FAR = (-(2**62), -(2**31) - 1, -(2**31), -(2**31) + 1, -1_500_000_000, -(2**30), -5, -1, 0, 1, 2, 2**30, 2**31 - 2,
       2**31 - 1, 2**31, 2**62)  # fmt: skip
"""Numbers of characters, up to where 32 bits end, and beyond."""
CUTS = {
    "left": "left(s, TRY_CAST(n AS INTEGER))",
    "right": "right(s, TRY_CAST(n AS INTEGER))",
    "the rest": "substr(s, TRY_CAST(n AS INTEGER))",
    "a part": "substr(s, TRY_CAST(n AS INTEGER), TRY_CAST(m AS INTEGER))",
}
"""Cuts of a text s by numbers n and m."""
NAMES = {"x": "ratio", "y": "score", "t": "note", "d": "day", "m": "seen", "c": "insured"}
TABLE = TableSchema(
    "visits",
    "",
    tuple(replace(column, longest=50) for column in clinic.COLUMNS if column.name in {"pid", *NAMES.values()}),
    PrivacyUnit("pid", max_groups=1_000, max_rows_per_group=1_000),
)


def write_form(form: str) -> str:
    """A form of a function over the columns of the table."""
    return "".join(NAMES.get(word, word) for word in re.split(r"\b", form))


def read_exactly(plan: Any, engine: Any) -> list[list[dict[str, Any]]]:
    """The exact numbers that a plan reads."""
    found: list[list[dict[str, Any]]] = []

    class Spy:
        def run(self, sql: str, parameters: Any = None, **options: Any) -> pa.Table:
            table = engine.run(sql, parameters, **{**options, "one_row": False})
            found.append(table.to_pylist())
            return table

    measure(plan, Spy())
    return found
