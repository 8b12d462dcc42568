"""Generated tables for benchmarks: the shape of the real ones, the same every time, with columns that hang together."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow.parquet as pq
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def generated(tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated", BENCH / "_generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.REAL, module.MADE = tmp_path / "none", tmp_path / "made"
    return module


def test_the_coded_table_has_the_shape_that_its_domain_says(generated: ModuleType) -> None:
    folder = generated.find_data("adult14")
    sizes = json.loads((folder / "adult-domain.json").read_text())
    codes = np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=int)
    assert codes.shape == (48_842, len(sizes))
    assert (codes.max(axis=0) < list(sizes.values())).all()
    assert "generated" in generated.say_source("adult14")
    assert generated.find_data("adult14") == folder


def test_columns_hang_together_and_a_seed_gives_the_same_rows(generated: ModuleType) -> None:
    first, again = (generated.draw_codes({"a": 4, "b": 4}, 20_000, seed=3) for _ in range(2))
    assert all((first[name] == again[name]).all() for name in first)
    joint = np.histogram2d(first["a"], first["b"], bins=4)[0] / 20_000
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.abs(joint - apart).sum() / 2 > 0.03


def test_one_real_table_may_have_two_generated_shapes(generated: ModuleType) -> None:
    generated.CENSUS_ROWS = generated.WIDE_ROWS = 300
    whole, few = (
        pq.read_table(generated.find_data(name) / "census_income_kdd_1994_1995.parquet")
        for name in ("census_kdd/all", "census_kdd")
    )
    assert (few.shape, whole.shape) == ((300, 12), (300, 41))
    assert {"sex", "income", "class_of_worker"} <= set(few.column_names), "what the attacks know of a person"
    generated.REAL.mkdir()
    (generated.REAL / "census_kdd").mkdir()
    assert generated.find_data("census_kdd/all") == generated.find_data("census_kdd") == generated.REAL / "census_kdd"


@pytest.fixture
def record() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record", BENCH / "_record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_readme_show_the_figures_of_the_last_runs_and_no_others(record: ModuleType) -> None:
    layout, runs, root = record.read_layout(), record.read_runs(), BENCH.parent
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert (root / "docs" / "benchmarks.md").read_text(encoding="utf-8") == record.write_page(layout, runs), "make docs"
    assert record.write_readme(readme, layout, runs) == readme, "make docs"
    assert len(runs) >= 3
    rows = [row for section in layout["section"] for row in section["row"]]
    assert [row["cells"][0] for row in rows if "{" in row["cells"][0]] == [], "a row that was not run has no figures"
    assert {len(row["cells"]) - len(section["head"]) for section in layout["section"] for row in section["row"]} == {0}


def test_every_command_of_the_benchmarks_names_a_script_and_every_script_that_measures_is_run(
    record: ModuleType,
) -> None:
    commands = record.list_commands(record.read_layout())
    scripts = {path.stem for path in BENCH.glob("[!_]*.py")}
    assert {command.split()[0] for command in commands} == scripts - {"run", "train_names"}
    assert set(record.read_runs()) <= set(commands), "a run that nothing shows"


LAYOUT = {
    "title": "Figures",
    "words": "Printed.",
    "readme": {"head": ["what", "ours"], "words": "More."},
    "section": [
        {
            "title": "Speed",
            "head": ["what", "ours", "theirs"],
            "row": [
                {"run": "a", "find": [r"ours (\d+)", r"theirs (\d+)"], "cells": ["a", "{1}", "{2}"],
                 "readme": ["A", "{1}"]},
                {"run": "a", "find": r"peer (\d+)", "cells": ["b", "{1}", ""], "otherwise": ["", "no peer"],
                 "readme": ["B", "{1}"]},
                {"run": "b --full", "find": r"x", "cells": ["c", "{1}", ""], "readme": ["C", "{1}"]},
            ],
        }
    ],
}  # fmt: skip
RUN = {"date": "2026-01-02", "machine": "Linux, 2 cores", "python": "3.11", "deniable": "0.2.0", "cpu_seconds": 3.0,
       "exit_code": 0}  # fmt: skip


def test_a_row_shows_what_its_run_printed_what_is_missing_and_what_was_not_run(record: ModuleType) -> None:
    page = record.write_page(LAYOUT, {"a": {**RUN, "lines": ["ours 12", "and theirs 30"]}})
    assert "| a | 12 | 30 |\n| b |  | no peer |\n| c | not run yet | not run yet |" in page
    assert "`python bench/a.py`: 2026-01-02, Linux, 2 cores" in page
    assert "`python bench/b.py --full`: not run yet." in page
    readme = f"# Title\n{record.BEGIN}\nold 99\n{record.END}\nrest\n"
    written = record.write_readme(readme, LAYOUT, {"a": {**RUN, "lines": ["ours 12", "theirs 30"]}})
    assert "| A | 12 |\n\nMore. Measured 2026-01-02 on Linux, 2 cores." in written, "rows without figures are left out"
    assert "99" not in written
    assert written.startswith("# Title\n")
    assert written.endswith("\nrest\n")


def test_a_figure_that_the_run_did_not_print_is_refused(record: ModuleType) -> None:
    with pytest.raises(record.NotPrinted, match="theirs"):
        record.write_page(LAYOUT, {"a": {**RUN, "lines": ["ours 12"]}})


def test_a_run_that_broke_off_is_told_and_one_that_is_whole_is_not(record: ModuleType) -> None:
    assert "theirs" in record.find_missing(LAYOUT, "a", {**RUN, "lines": ["ours 12"]})
    assert record.find_missing(LAYOUT, "a", {**RUN, "lines": ["ours 12", "theirs 3"]}) == ""
    told = LAYOUT["section"][0]["row"][1:2]
    peer = {**LAYOUT, "section": [{**LAYOUT["section"][0], "row": told}]}
    assert record.find_missing(peer, "a", {**RUN, "lines": ["no peer is there"]}) == ""
    assert "nothing" in record.find_missing(peer, "a", {**RUN, "lines": []}), (
        "it broke off, though a peer may be missing"
    )
    assert record.find_missing(LAYOUT, "world", {**RUN, "lines": []}) == "", "no page shows it"


def test_a_run_replaces_its_own_last_one_and_no_other(record: ModuleType, tmp_path: Path) -> None:
    kept = tmp_path / "runs.json"
    for command, line in (("a", "1"), ("b", "2"), ("a", "3")):
        record.keep_run(command, {**RUN, "lines": [line]}, kept)
    assert {command: run["lines"] for command, run in record.read_runs(kept).items()} == {"a": ["3"], "b": ["2"]}


def test_a_name_chooses_all_commands_of_a_script_and_an_unknown_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location("bench_run", BENCH / "run.py")
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    commands = ["query", "query --workloads", "learn"]
    assert run.choose(commands, []) == commands
    assert run.choose(commands, ["learn", "query"]) == ["learn", "query", "query --workloads"]
    assert run.choose(commands, ["query --workloads"]) == ["query --workloads"]
    assert run.choose(commands, ["synth --tables all"]) == ["synth --tables all"], "options that no page shows"
    with pytest.raises(SystemExit, match="There is no benchmark 'quarry'"):
        run.choose(commands, ["quarry"])


FRAMES = ("acs", "diabetes", "flights", "officials")


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("_held_out")


@pytest.mark.parametrize("frame", FRAMES)
def test_every_finding_about_a_frame_names_the_publication_it_comes_from(held_out: ModuleType, frame: str) -> None:
    findings = held_out.read_findings(frame)
    assert len(findings) >= 6
    sources = [held_out.SOURCES[held_out.find_source(finding)] for finding in findings]
    assert all("http" in source for source in sources)


def test_a_finding_without_a_source_stops_the_benchmark(held_out: ModuleType) -> None:
    with pytest.raises(SystemExit, match="names no source"):
        held_out.find_source(held_out.Finding("odd", "Somebody said so. [nobody]", len))


@pytest.mark.parametrize("frame", FRAMES)
def test_every_published_finding_holds_in_the_real_rows(held_out: ModuleType, frame: str) -> None:
    if not held_out.DATA.is_dir():
        pytest.skip(f"the real tables are not at {held_out.DATA.name}")
    rows, _ = held_out.FRAMES[frame]()
    findings = held_out.read_findings(frame)
    held_out.require_true(findings, rows)
    untrue = held_out.Finding("odd", "Wrong. [crs]", lambda rows: -1.0)
    with pytest.raises(SystemExit, match="odd"):
        held_out.require_true((*findings, untrue), rows)
