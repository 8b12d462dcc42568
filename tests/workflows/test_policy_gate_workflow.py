"""Every command that takes a policy reads rows as the policy and its ledger let it: nobody who withdrew is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator import Curator
from deniable.engines.base import quote
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import AccessRefused, ParameterError, StorageError
from deniable.governance.grants import Asker, Role
from deniable.release import verify

GONE = 7
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 2, max_rows_per_group: 1}
    columns:
      id: {type: integer, role: identifier, mask: redact}
      sex: {role: quasi-identifier, categories: [F, M]}
      lat: {type: decimal, role: quasi-identifier, between: [0, 10], step: 0.5}
      lon: {type: decimal, role: quasi-identifier, between: [0, 10], step: 0.5}
      charge: {type: integer, role: sensitive, between: [0, 1000]}
      day: {type: date, between: [2026-01-01, 2026-12-31]}
stream:
  daily: {table: visits, time: day, every: day, start: 2026-01-01, periods: 2, rho: 1, questions: {all: {count: rows}}}
tabulation:
  sexes: {table: visits, cells: [sex], rho: 1}
budgets:
  dataset: {epsilon: 500, delta: 0.01, accounting: zcdp}
  purposes: {research: {epsilon: 300, delta: 0.01}}
  analysts: {ana: {purposes: [research], epsilon: 100, delta: 0.01}}
release:
  anonymize: {k: 3, suppress: 0.5}
"""


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)
    rows = "".join(f"{i},{'FM'[i % 2]},{i % 3}.5,{i % 2}.5,{i % 1000},2026-01-01\n" for i in range(300))
    (tmp_path / "visits.csv").write_text("id,sex,lat,lon,charge,day\n" + rows)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "findings.sql").write_text(
        "-- women: women pay\nSELECT COUNT(*) FILTER (sex = 'F') > 10 FROM visits;\n"
    )
    return tmp_path


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def told(*words: str) -> Any:
    return json.loads(run(*words, "--json"))


SMALL = ("--epsilon", "1", "--delta", "1e-6")
READING = {
    ("query",): ("SELECT COUNT(*) FROM visits", "--epsilon", "1"),
    ("hierarchy",): ("visits", "sex", "--epsilon", "1"),
    ("publish",): ("daily",),
    ("tabulate",): ("sexes",),
    ("top",): ("visits", "sex", "--count", "1", "--epsilon", "1"),
    ("places",): ("visits", "--at", "lat,lon", "--epsilon", "1", "-o", "places.csv"),
    ("margins",): ("visits", "sex", "--epsilon", "1"),
    ("weighted",): ("visits", "lat", "--weight", "lon", "--mean", "--epsilon", "1"),
    ("watch",): ("SELECT COUNT(*) FROM visits", "--threshold", "10", "--epsilon", "1"),
    ("sample-and-aggregate",): ("visits", "math:prod", "--blocks", "5", "--between", "0,1", "--epsilon", "1"),
    ("mask",): ("-o", "masked.csv", "--table", "visits"),
    ("anonymize",): ("-o", "anonymous.csv", "--qi", "sex"),
    ("anonymize", "--grid"): ("lat,lon", "--digits", "0", "-o", "map.csv"),
    ("attack",): ("visits.csv", "--knows", "sex,lat"),
    ("attack", "--original"): ("visits.csv", "visits.csv", "--knows", "sex,lat"),
    ("synthesize",): ("visits", *SMALL, "-o", "made.csv", "--method", "independent"),
    ("describe",): ("visits", *SMALL, "-o", "model.json", "--method", "independent"),
    ("bounds",): ("visits", "charge", "--epsilon", "1"),
    ("train",): ("visits", "--target", "charge", "--epsilon", "1", "-o", "trained.json"),
    ("parity",): ("findings.sql", "--methods", "independent", "--epsilon", "1", "--runs", "1", "--workers", "1"),
    ("inspect",): ("known.json", "--against", "visits"),
    ("release", "expert"): ("visits.csv", "--original", "visits.csv", "--knows", "sex,lat", "-o", "expert.html"),
    ("randomize",): ("-o", "told.csv", "--epsilon", "2", "-c", "sex"),
    ("ladder",): ("--label", "sex", "-f", "charge", "--accuracy", "0.1", "--epsilons", "4", "--repeats", "1"),
    ("requests",): (),
    ("fulfill",): ("REQUEST", "-o", "released"),
}
"""Commands that read rows, some of them in two ways, with words for a run."""
READING_NO_ROWS = {
    *(("request",), ("approve",), ("decline",), ("withdraw",), ("resume",), ("purge",), ("register",)),
    *(("reinstate",), ("terms",), ("token", "pause"), ("token", "resume")),
    *(("ledger", "show"), ("ledger", "verify"), ("ledger", "export"), ("ledger", "separate")),
    *(("ledger", "head"), ("ledger", "incidents"), ("ledger", "backup"), ("ledger", "restore")),
    ("ledger", "settle"),
    *(("epoch", "new"), ("epoch", "show")),
    *(("token", "new"), ("token", "list"), ("token", "revoke"), ("key", "check"), ("key", "rotate")),
    *(("federate", "plan"), ("survey", "results"), ("release", "verify"), ("vault", "reveal"), ("audit",)),
}
OTHERWISE = {("serve",), ("mcp",), ("subject",), ("federate", "join"), ("network",)}
"""A server answers by the same curator, and tests of its own hold that; a person's report is about that person; a
federated round needs a server and other clients (`test_federate_workflow.py`); a network is of a table of edges, in
which a person has rows by two columns (`test_network_workflow.py`)."""


def list_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from list_commands(inner, (*path, name))


def test_every_command_that_takes_a_policy_is_tried_or_reads_no_rows() -> None:
    found = {
        path for path, command in list_commands(get_command(app)) if any(p.name == "policy" for p in command.params)
    }
    tried = {tuple(word for word in path if not word.startswith("-")) for path in READING}
    assert found == tried | READING_NO_ROWS | OTHERWISE


def test_commands_open_a_policy_in_one_place() -> None:
    folder = Path(__file__).parents[2] / "src" / "deniable" / "cli"
    opening = re.compile(r"Curator\.open\(|open_context\(")
    assert [file.name for file in folder.glob("*.py") if opening.search(file.read_text())] == ["terminal.py"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often rows were read, and how often the one who withdrew was among those that could be."""
    counts = {"reads": 0, "withdrawn": 0}
    run_really, stream_really = DuckDBEngine.run, DuckDBEngine.stream

    def look(engine: Any) -> None:
        for name, scan in list(engine._scans.items()):
            fields = {field.name for field in scan.fields}
            if {"id", "sex"} <= fields and not name.startswith("released"):
                counts["reads"] += 1
                who = f"SELECT count(*) FROM {quote(name)} WHERE CAST(id AS VARCHAR) = '{GONE}'"
                counts["withdrawn"] += run_really(engine, who).column(0)[0].as_py()

    def run_watched(engine: Any, *words: Any, **rest: Any) -> Any:
        look(engine)
        return run_really(engine, *words, **rest)

    def stream_watched(engine: Any, *words: Any, **rest: Any) -> Any:
        look(engine)
        return stream_really(engine, *words, **rest)

    monkeypatch.setattr(DuckDBEngine, "run", run_watched)
    monkeypatch.setattr(DuckDBEngine, "stream", stream_watched)
    return counts


def prepare(path: tuple[str, ...]) -> str:
    """What some commands need first; the id of a request that was approved, or waits."""
    if path == ("inspect",):
        run("describe", "visits", *SMALL, "-o", "known.json", "--method", "independent")
    if path in (("requests",), ("fulfill",)):
        asked = told("request", "mask", "visits", "--analyst", "ana", "--purpose", "research")
        if path == ("fulfill",):
            run("approve", asked["id"], "--reason", "a test")
        return str(asked["id"])
    return ""


@pytest.mark.parametrize("path", READING, ids=" ".join)
def test_nobody_who_withdrew_is_read_by_any_command(at: Path, seen: dict[str, int], path: tuple[str, ...]) -> None:
    identity = prepare(path)
    run("withdraw", str(GONE), "--column", "id", "-p", "policy.yaml")
    seen.update(reads=0, withdrawn=0)
    words = [identity if word == "REQUEST" else word for word in READING[path]]
    run(*path, *words, "-p", "policy.yaml")
    assert seen["reads"] > 0
    assert seen["withdrawn"] == 0


def test_a_ladder_reads_no_column_outside_the_minimization(at: Path) -> None:
    (at / "policy.yaml").write_text(POLICY + "  minimize: {columns: [sex, lat]}\n")
    with pytest.raises(AccessRefused, match="'charge' is not among those that the policy releases"):
        run("ladder", "-p", "policy.yaml", *READING[("ladder",)])


GRID = ("anonymize", "--grid", "lat,lon", "--digits", "0", "-o", "map.csv", "-p", "policy.yaml")


def test_a_map_leaves_through_the_policy_and_is_recorded(at: Path) -> None:
    run("withdraw", str(GONE), "--column", "id")
    made = told(*GRID)
    assert made["rows"] == 299
    entry = [each for each in told("ledger", "show")["entries"] if each["act"] == "release"][-1]
    assert (entry["tables"], entry["details"]["method"]) == (["visits"], "grid")
    assert verify(at / "map.csv").body["provenance"]["policy_hash"]


def test_a_map_of_columns_that_may_not_leave_is_refused_and_not_recorded(at: Path) -> None:
    (at / "policy.yaml").write_text(POLICY + "  minimize: {columns: [sex, lat]}\n")
    with pytest.raises(AccessRefused, match="'lon' is not among those"):
        run(*GRID)
    assert not (at / "map.csv").exists()
    run("token", "list")
    assert not Path("policy.ledger.sqlite").exists() or told("ledger", "show")["entries"] == []


def test_a_map_asks_for_no_less_than_the_policy(at: Path) -> None:
    with pytest.raises(AccessRefused, match="k is asked to be 2, and the policy says 3"):
        run(*GRID, "--k", "2")


@pytest.mark.parametrize("words", [GRID, ("attack", "visits.csv", "-p", "policy.yaml", "--knows", "sex")], ids=" ".join)
def test_maps_and_attacks_end_with_the_policy(at: Path, words: tuple[str, ...]) -> None:
    (at / "policy.yaml").write_text(POLICY + "expires: 2020-01-01\n")
    with pytest.raises(AccessRefused, match="the policy expired on 2020-01-01"):
        run(*words)


def test_a_map_of_one_column_twice_is_refused(at: Path) -> None:
    with pytest.raises(ParameterError, match="1 columns are named for a grid"):
        run("anonymize", "visits.csv", "--grid", "lat,lat", "-o", "map.csv")


def test_an_attack_on_a_release_reads_it_as_it_was_released(at: Path) -> None:
    run("mask", "-o", "masked.csv", "--table", "visits", "--columns", "sex,lat", "-p", "policy.yaml")
    run("withdraw", str(GONE), "--column", "id")
    assert told("attack", "masked.csv", "-p", "policy.yaml", "--knows", "sex")["rows"] == 300
    assert told("attack", "visits.csv", "-p", "policy.yaml", "--knows", "sex")["rows"] == 299


WRITING = {
    ("query",): (*READING[("query",)], "-o", "out.csv"),
    ("hierarchy",): (*READING[("hierarchy",)], "-o", "out.csv"),
    **{path: words for path, words in READING.items() if "-o" in words and path != ("fulfill",)},
}
ANY_NAME = (("describe",), ("train",), ("release", "expert"))
"""What is no rows, and may have any name."""


@pytest.mark.quick_cases(16)
@pytest.mark.parametrize("bad", ["out.xyz", "out", "nowhere/out.csv", "folder.csv"])
@pytest.mark.parametrize("path", WRITING, ids=" ".join)
def test_a_bad_output_is_refused_before_anything_is_charged_or_recorded(
    at: Path, path: tuple[str, ...], bad: str
) -> None:
    if path in ANY_NAME and bad in ("out.xyz", "out"):
        pytest.skip("a model may have any name")
    (at / "folder.csv").mkdir()
    words = list(WRITING[path])
    words[words.index("-o") + 1] = bad
    with pytest.raises((ParameterError, StorageError), match=re.escape(Path(bad).name)):
        run(*path, *words, "-p", "policy.yaml")
    run("token", "list")
    assert not Path("policy.ledger.sqlite").exists() or told("ledger", "show")["entries"] == []
    assert not (at / "nowhere").exists()


def test_a_folder_for_all_tables_is_made_beside_what_is_there_and_not_deeper(at: Path) -> None:
    run("mask", "-o", "released", "-p", "policy.yaml")
    assert (at / "released" / "visits.parquet").exists()
    with pytest.raises(StorageError, match="the folder does not exist"):
        run("mask", "-o", "a/b", "-p", "policy.yaml")


def test_a_page_that_cannot_be_written_is_refused_before_a_charge(at: Path) -> None:
    with pytest.raises(StorageError):
        run("synthesize", *READING[("synthesize",)], "-p", "policy.yaml", "--report", "nowhere/page.html")
    run("token", "list")
    assert not Path("policy.ledger.sqlite").exists() or told("ledger", "show")["entries"] == []


ANA = Asker("ana", "research", Role.ANALYST)


def test_a_projection_carries_no_column_that_is_not_the_analysts(at: Path) -> None:
    mask = "mask: {projection: {key: people, columns: [charge], dimensions: 1}}"
    text = POLICY.replace("between: [0, 10], step: 0.5}", f"between: [0, 10], step: 0.5, {mask}}}", 1)
    (at / "policy.yaml").write_text(text.replace("ana: {", "ana: {columns: [sex, lat], "))
    run("key", "new", "people", "-o", "people.key")
    with Curator.open("policy.yaml", ledger="policy.ledger.sqlite") as curator:
        assert "projection_1" in curator.mask("visits", keys=["people=file:people.key"]).rows.column_names
        with pytest.raises(AccessRefused, match="the projection of 'lat' carries 'charge'"):
            curator.mask("visits", keys=["people=file:people.key"], who=ANA)
        assert len(list(curator.ledger.entries(acts=("release",)))) == 1


def test_a_table_of_which_no_column_may_leave_is_refused_and_not_recorded(at: Path) -> None:
    (at / "policy.yaml").write_text(
        POLICY.replace("ana: {", "ana: {columns: [sex], ") + "  minimize: {columns: [lat]}\n"
    )
    with Curator.open("policy.yaml", ledger="policy.ledger.sqlite") as curator:
        with pytest.raises(AccessRefused, match="no column of 'visits' may leave"):
            curator.mask("visits", who=ANA)
        assert list(curator.ledger.entries()) == []
