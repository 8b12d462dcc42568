"""Long files: parts regrouped, written as one file, the checkpoint that a killed job goes on from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.engines import Engine
from deniable.errors import DataError, KeyUnavailable, ParameterError, StorageError
from deniable.masking import streaming
from deniable.masking.plan import ColumnPlan, TablePlan
from deniable.masking.replacement import Redact
from deniable.masking.streaming import Job
from deniable.policy.schema import Spec


def _rows(start: int, count: int) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "text": pa.array([f"x{i % 7}" for i in ids], pa.string()),
            "long": pa.array([None if i % 5 == 0 else f"token {i}" for i in ids], pa.string()),
            "share": pa.array([i / 3 for i in ids], pa.float64()),
            "day": pa.array([i % 9000 for i in ids], pa.int32()).cast(pa.date32()),
            "nothing": pa.nulls(count, pa.string()),
            "yes": pa.array([i % 2 == 0 for i in ids], pa.bool_()),
        }
    )


@given(st.lists(st.integers(0, 37), min_size=1, max_size=20), st.integers(1, 25))
@settings(max_examples=80, deadline=None)
def test_parts_hold_all_rows_in_order_and_none_is_short_but_a_short_whole(sizes: list[int], size: int) -> None:
    ends = np.cumsum(sizes)
    batches = [
        pa.record_batch({"i": pa.array(range(end - n, end), pa.int64())}) for n, end in zip(sizes, ends, strict=True)
    ]
    made = list(streaming.regroup_batches(iter(batches), size))
    assert [i for part in made for i in part.column("i").to_pylist()] == list(range(ends[-1]))
    assert all(part.num_rows == size for part in made[:-1])
    if len(made) > 1:
        assert size / 2 <= made[-1].num_rows <= 1.5 * size


JOB = Job("people", "policy", "data", {"name": "redact"}, {"people": "aa"}, "parquet", 10, "1")
PLAN = TablePlan("t", (ColumnPlan("id", None), ColumnPlan("text", Spec("redact"), Redact())), ("long",))


def _mask(engine: Engine, target: Path, job: Job = JOB, plan: TablePlan = PLAN) -> int:
    with streaming.open_checkpoint(target, job, target.suffix) as work:
        return streaming.write_masked(engine, "t", plan, target, work)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow"])
def test_a_table_in_many_parts_comes_out_as_one_file(
    engine: Engine, tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "PART_ROWS", 100)
    engine.attach("t", _rows(0, 1234))
    target = tmp_path / f"out{suffix}"
    assert _mask(engine, target) == 1234
    read = {".parquet": pq.read_table, ".csv": csv.read_csv, ".arrow": lambda p: pa.ipc.open_file(p).read_all()}[suffix]
    whole = read(target)
    assert whole["id"].to_pylist() == list(range(1234))
    assert set(whole["text"].to_pylist()) == {"***"}
    assert whole.schema.names == ["id", "text"]
    assert not streaming.folder_for(target).exists()


def test_an_empty_table_keeps_its_columns(engine: Engine, tmp_path: Path) -> None:
    engine.attach("t", _rows(0, 0))
    assert _mask(engine, tmp_path / "out.parquet") == 0
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["id", "text"]


class _Breaks:
    """A mask that fails at a certain row, as a killed process would."""

    def apply(self, values: pa.Array, rows: pa.RecordBatch) -> pa.Array:
        if 700 in rows.column("id").to_pylist():
            raise KeyboardInterrupt
        return values


def test_a_job_that_broke_goes_on_with_the_parts_it_has(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "PART_ROWS", 100)
    engine.attach("t", _rows(0, 1000))
    target = tmp_path / "out.parquet"
    broken = TablePlan("t", (ColumnPlan("id", None), ColumnPlan("text", Spec("redact"), _Breaks())))
    with pytest.raises(KeyboardInterrupt):
        _mask(engine, target, plan=broken)
    assert not target.exists()
    done = sorted(path.name for path in streaming.folder_for(target).glob("0*.arrow"))
    assert 5 <= len(done) < 10
    before = {name: (streaming.folder_for(target) / name).stat().st_mtime_ns for name in done}
    masked: list[int] = []
    real = streaming._mask_part
    monkeypatch.setattr(streaming, "_mask_part", lambda *a: masked.append(a[3]) or real(*a))
    assert _mask(engine, target) == 1000
    assert len(masked) == 10 - len(before)
    assert pq.read_table(target)["id"].to_pylist() == list(range(1000))


def test_a_checkpoint_of_another_job_is_not_continued_and_of_another_key_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"

    def begin(job: Job, fresh: bool = False) -> None:
        with streaming.open_checkpoint(target, job, ".parquet", fresh=fresh) as work:
            known = work.has(0)
            work.keep(0, _rows(0, 5).to_batches()[0])
            raise InterruptedError(str(known))  # leave the checkpoint as a killed process would

    def known(job: Job, fresh: bool = False) -> bool:
        with pytest.raises(InterruptedError) as left:
            begin(job, fresh)
        return str(left.value) == "True"

    assert not known(JOB)
    assert known(JOB)
    other_key = Job(**{**JOB.as_dict(), "keys": {"people": "bb"}})  # type: ignore[arg-type]
    with pytest.raises(KeyUnavailable, match="wrong key 'people'"):
        begin(other_key)
    assert not known(other_key, fresh=True)
    other_data = Job(**{**other_key.as_dict(), "data_version": "changed"})  # type: ignore[arg-type]
    assert not known(other_data)


def test_a_job_killed_after_its_last_step_is_simply_done_again(engine: Engine, tmp_path: Path) -> None:
    """The output was moved to its final name, and the process died before it could clear its checkpoint away."""
    engine.attach("t", _rows(0, 10))
    target = tmp_path / "out.parquet"

    def killed_at_the_end() -> None:
        with streaming.open_checkpoint(target, JOB, ".parquet") as work:
            streaming.write_masked(engine, "t", PLAN, target, work)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        killed_at_the_end()
    assert streaming.folder_for(target).exists()
    assert _mask(engine, target) == 10
    assert pq.read_table(target).num_rows == 10


def test_two_processes_cannot_write_one_output(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    with (
        streaming.open_checkpoint(target, JOB, ".parquet"),
        pytest.raises(StorageError, match="another process"),
        streaming.open_checkpoint(target, JOB, ".parquet"),
    ):
        pass


def test_a_name_without_a_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"\.parquet"):
        streaming.format_of(tmp_path / "out.parqet")


def test_a_column_that_a_spreadsheet_would_run_is_refused_in_csv_and_written_in_parquet(
    engine: Engine, tmp_path: Path
) -> None:
    engine.attach("t", pa.table({"=1+1": ["a", "b"]}))
    plan = TablePlan("t", (ColumnPlan("=1+1", None),))
    for ending in ("csv", "parquet"):
        target = tmp_path / f"t.{ending}"
        job = Job("t", "", "", {}, {}, ending, streaming.PART_ROWS, "1")
        with streaming.open_checkpoint(target, job, f".{ending}") as work:
            if ending == "csv":
                with pytest.raises(DataError, match=r"as a formula.*Write to a name that ends in \.parquet"):
                    streaming.write_masked(engine, "t", plan, target, work)
            else:
                assert streaming.write_masked(engine, "t", plan, target, work) == 2
