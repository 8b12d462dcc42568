"""The statement beside a released file: any change of either is found, and told apart."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from datetime import date, datetime, timedelta
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deniable import Curator, outputs
from deniable.assess.released_rows import read_released
from deniable.curator.mask.run import mask, request_for
from deniable.curator.query.sql import write_answer
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import DataError, IntegrityError, ParameterError, StorageError
from deniable.policy.budget import budget
from deniable.policy.document import parse
from deniable.release import Guarantee, Provenance, Release, Technique, seal, statement_path, verify, write_release

release = import_module("deniable.release.release")
GUARANTEE = Guarantee.differential(Technique.DP_QUERY, "one row", budget("0.5", "1e-6"))
PROVENANCE = Provenance("abc", {"visits": "v1"}, {"sql": "SELECT count(*) FROM visits", "epsilon": "0.5"})


@pytest.fixture
def released(tmp_path: Path) -> Path:
    path = tmp_path / "answer.csv"
    path.write_text("n\n42\n")
    seal(path, GUARANTEE, PROVENANCE, {"rows": 1})
    return path


def test_a_release_that_was_not_changed_verifies_by_file_and_by_statement(released: Path) -> None:
    statement = verify(released)
    assert verify(statement_path(released)) == statement
    assert statement.body["guarantee"]["epsilon"] == "0.5"
    assert statement.body["provenance"]["data_versions"] == {"visits": "v1"}
    assert any("epsilon 0.5" in line for line in statement.words)


def test_a_changed_file_is_found(released: Path) -> None:
    released.write_text("n\n43\n")
    with pytest.raises(IntegrityError, match="the file of the release") as refusal:
        verify(released)
    assert refusal.value.fields["changed"] == "file"


def test_a_changed_claim_is_found(released: Path) -> None:
    beside = statement_path(released)
    beside.write_text(beside.read_text().replace('"epsilon": "0.5"', '"epsilon": "0.1"'))
    with pytest.raises(IntegrityError, match="the statement of the release") as refusal:
        verify(released)
    assert refusal.value.fields["changed"] == "statement"


def test_both_changed_are_both_told(released: Path) -> None:
    beside = statement_path(released)
    beside.write_text(beside.read_text() + " ")
    released.write_text("")
    with pytest.raises(IntegrityError, match="the statement and the file"):
        verify(released)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7), which=st.booleans())
def test_any_flipped_bit_is_found(tmp_path: Path, released: Path, position: int, bit: int, which: bool) -> None:
    path = released if which else statement_path(released)
    before = path.read_bytes()
    changed = bytearray(before)
    changed[position % len(before)] ^= 1 << bit
    path.write_bytes(changed)
    with pytest.raises(IntegrityError):
        verify(released)
    path.write_bytes(before)
    verify(released)


def test_a_second_key_of_the_same_name_is_found(released: Path) -> None:
    """JSON readers disagree on which of two equal keys counts."""
    beside = statement_path(released)
    beside.write_text(beside.read_text().replace('"sha256"', '"sha256": "",\n  "sha256"', 1))
    with pytest.raises(IntegrityError):
        verify(released)


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"statement": {}, "sha256": ""}', "[" * 100_000])
def test_what_is_no_statement_is_refused(released: Path, content: str) -> None:
    statement_path(released).write_text(content)
    with pytest.raises(IntegrityError, match="not a statement"):
        verify(released)


def test_a_missing_part_is_told(released: Path) -> None:
    statement = statement_path(released).read_bytes()
    statement_path(released).unlink()
    with pytest.raises(IntegrityError, match="there is no statement"):
        verify(released)
    statement_path(released).write_bytes(statement)
    released.unlink()
    with pytest.raises(IntegrityError, match="is not there"):
        verify(released)


def test_a_file_that_is_not_there_cannot_be_sealed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be read"):
        seal(tmp_path / "nothing.csv", GUARANTEE, PROVENANCE)


def test_a_moved_pair_still_verifies(released: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for path in (released, statement_path(released)):
        path.rename(tmp_path / "elsewhere" / path.name)
    verify(tmp_path / "elsewhere" / released.name)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_rows_are_written_with_their_statement(tmp_path: Path, ending: str) -> None:
    release = Release(pa.table({"n": [42, None]}), GUARANTEE, PROVENANCE, {"error": 3.5})
    with DuckDBEngine() as engine:
        written = write_release(release, tmp_path / f"out.{ending}", engine)
        assert verify(tmp_path / f"out.{ending}") == written
        engine.attach("out", tmp_path / f"out.{ending}")
        assert engine.count("out") == 2
    assert written.body["details"] == {"error": 3.5, "rows": 2}


def test_a_statement_stands_beside_the_file_that_it_is_about(tmp_path: Path) -> None:
    release, path = Release(pa.table({"n": [1]}), GUARANTEE, PROVENANCE), tmp_path / "out.csv"

    class Broken:
        def write(self, *_: object) -> None:
            (tmp_path / "new").write_text("half")
            (tmp_path / "new").replace(path)
            raise StorageError("the disk is full")

    with pytest.raises(StorageError):
        write_release(release, path, Broken())
    assert not list(tmp_path.iterdir())
    with DuckDBEngine() as engine:
        stated = write_release(release, path, engine)
    with pytest.raises(StorageError):
        write_release(release, path, Broken())
    assert verify(path) == stated


def test_rows_that_are_a_file_already_are_sealed_instead(tmp_path: Path) -> None:
    with DuckDBEngine() as engine, pytest.raises(ParameterError, match="Use seal"):
        write_release(Release(tmp_path / "x.csv", GUARANTEE, PROVENANCE), tmp_path / "y.csv", engine)


def test_the_same_release_has_the_same_statement(released: Path) -> None:
    first = statement_path(released).read_bytes()
    seal(released, GUARANTEE, PROVENANCE, {"rows": 1})
    assert statement_path(released).read_bytes() == first
    assert list(json.loads(first)) == sorted(json.loads(first))


TYPES = """
version: 1
dataset: d
tables:
  t:
    source: t.parquet
    unit: row
    columns:
      at: {type: datetime, between: ["2020-02-26T00:00:00", "2020-02-28T00:00:00"], step: 3600}
      day: {type: date, between: [2020-01-01, 2020-01-31]}
      whole: {type: integer, between: [0, 5]}
      exact: {type: decimal, between: [0, 1], step: 0.5}
      sick: {type: boolean}
      town: {categories: [north, south]}
budgets:
  dataset: {epsilon: 90, delta: 1e-4, accounting: zcdp}
release:
  truths:
    - impossible: {when: {town: north, sick: true}}
"""
MOMENT = datetime(2020, 2, 27, 3)
ROWS = [
    {"at": MOMENT, "day": date(2020, 1, 1 + i % 30), "whole": i % 6, "exact": i % 3 / 2, "sick": i % 2 > 0,
     "town": "south"}
    for i in range(90)
]  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_synthetic_rows_of_every_type_can_be_written_to_every_kind_of_file(tmp_path: Path, ending: str) -> None:
    with Curator(parse(TYPES), sources={"t": pa.table({name: [row[name] for row in ROWS] for name in ROWS[0]})}) as c:
        made = c.synthesize("t", tmp_path / f"made.{ending}", epsilon=1, delta=1e-6)
    assert read_released(tmp_path / f"made.{ending}").num_rows == made.details["rows"]
    verify(tmp_path / f"made.{ending}")


MOMENTS = [None, *(MOMENT + timedelta(hours=i) for i in range(40))]


@pytest.mark.parametrize(
    "kind", [pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("ns"), pa.date64(), pa.date32()]
)
def test_times_that_a_parquet_file_has_in_finer_units_leave_as_they_are(tmp_path: Path, kind: pa.DataType) -> None:
    whole = pa.array(MOMENTS).cast(pa.timestamp("s"))
    if pa.types.is_date(kind):
        whole = whole.cast(pa.date32())
    elif kind.tz:
        whole = whole.cast(kind)
    rows = pa.table({"pid": range(41), "sex": ["F"] * 41, "at": whole.cast(kind)})
    columns = {"pid": {"role": "identifier"}, "sex": {"role": "quasi-identifier"}, "at": {"role": "insensitive"}}
    tables = {"t": {"source": "t.parquet", "unit": {"column": "pid"}, "columns": columns}}
    policy = {"version": 1, "dataset": "d", "tables": tables, "budgets": {"dataset": {"epsilon": 1}}}
    with Curator(parse(json.dumps(policy)), sources={"t": rows}) as curator:
        curator.anonymize("t", tmp_path / "of.parquet", k=3)
    assert sorted(map(str, read_released(tmp_path / "of.parquet")["at"].cast(kind))) == sorted(map(str, rows["at"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table, its policy, and a folder with an earlier output of every name."""
    rows = {"pid": range(40), "age": [20 + i % 8 for i in range(40)], "sex": ["f", "m"] * 20}
    pq.write_table(pa.table({name: list(values) for name, values in rows.items()}), tmp_path / "visits.parquet")
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ndataset: d\ntables:\n  visits:\n    source: visits.parquet\n    unit: {column: pid, max_rows: 1}\n"
        "    columns:\n      pid: {type: integer, role: identifier, mask: redact}\n"
        "      age: {type: integer, between: [0, 99], role: quasi-identifier, hierarchy: {intervals: {widths: [50]}}}\n"
        "      sex: {categories: [f, m], role: insensitive}\n"
        "release: {anonymize: {k: 2, suppress: 0.5}}\naccepts: [much-loss, large-delta]\n"
        "budgets: {dataset: {epsilon: 1000, delta: 1e-2, accounting: zcdp}}\n"
    )
    out = tmp_path / "out"
    out.mkdir()
    for name in ("x.csv", "x.csv.release.json", *GONE, "x.json", "x.json.release.json"):
        (out / name).write_text(json.dumps({"form": f"deniable synthetic model, earlier {name}"}))
    return tmp_path


def list_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with what it holds."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GONE = {"x.csv.model.json": ("synthesize", "train"), "x.csv.recoding.json": ("anonymize", "train")}
"""What may stand beside an output, and what makes it or leaves that output alone."""
MAKERS: dict[str, Callable[[Curator, Path], object]] = {
    "query": lambda curator, out: write_answer(
        curator.context, curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1), out / "x.csv"
    ),
    "mask": lambda curator, out: mask(request_for(out.parent / "policy.yaml", None, "visits", out / "x.csv")),
    "anonymize": lambda curator, out: curator.anonymize("visits", out / "x.csv"),
    "synthesize": lambda curator, out: curator.synthesize("visits", out / "x.csv", epsilon=1, delta="1e-6"),
    "train": lambda curator, out: curator.train(
        "visits", "sex", features=["age"], positive="f", out=out / "x.json", epsilon=1
    ),
}


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt(), SystemExit(143)], ids=repr)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("links", [True, False])
def test_an_output_that_fails_at_its_end_leaves_the_earlier_one_as_it_was(
    folder: Path, maker: str, failure: BaseException, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, reached = folder / "out", list[str]()

    def fail(*_: object) -> None:
        reached.append(maker)
        raise failure

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no second names")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", refuse)
    before = list_files(out)
    with Curator.open(folder / "policy.yaml") as curator:
        monkeypatch.setattr(release, "_render_statement", fail)
        with pytest.raises(BaseException) as refusal:  # noqa: PT011  a refusal, or the interruption itself
            MAKERS[maker](curator, out)
        assert reached, refusal.value
        assert list_files(out) == before
        assert sorted(path.name for path in out.iterdir()) == sorted(before)  # no folder is left either
        monkeypatch.undo()
        MAKERS[maker](curator, out)
        changed = "x.json" if maker == "train" else "x.csv"
        assert verify(out / changed)
        gone = {name for name, makers in GONE.items() if maker not in makers}  # it was of the earlier file
        assert {path.name for path in out.iterdir()} == set(before) - gone
        assert not [path for path in out.iterdir() if path.is_dir()]


def test_what_cannot_be_held_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second file of a release cannot be held, as in a folder that is full; one is a link to elsewhere."""
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "real.csv").write_text("earlier")
    (out / "x.csv").symlink_to(tmp_path / "real.csv")
    (out / "x.json").write_text("earlier")
    before, replace = list_files(tmp_path), Path.replace

    def refuse_json(path: Path, target: Path) -> Path:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "full")
        return replace(path, target)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    monkeypatch.setattr(Path, "replace", refuse_json)
    with pytest.raises(StorageError, match="the disk is full"), outputs.replace_files(out / "x.csv", out / "x.json"):
        raise AssertionError("nothing may be written then")
    assert list_files(tmp_path) == before
    assert (out / "x.csv").is_symlink()


def test_earlier_files_are_put_back_though_that_is_interrupted_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / "x.csv", tmp_path / "x.json"]
    for path in paths:
        path.write_text("earlier")
    before, replace, interrupted = list_files(tmp_path), Path.replace, list[Path]()

    def interrupt(path: Path, target: Path) -> Path:
        interrupted.append(target)
        if len(interrupted) in (1, 3):
            raise KeyboardInterrupt
        return replace(path, target)

    def write() -> None:
        for path in paths:
            path.unlink()
            path.write_text("new")
        statement_path(paths[0]).write_text("new")
        monkeypatch.setattr(Path, "replace", interrupt)
        raise StorageError("the disk is full")

    with pytest.raises(StorageError), outputs.replace_files(*paths):
        write()
    assert len(interrupted) > len(paths)
    assert list_files(tmp_path) == before
