"""Networks from a policy to an answer: price, charge, repeats, units, odd rows, files, withdrawals and refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.curator.governance import withdrawals
from deniable.curator.governance.withdrawals import find_reach
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DeniableError,
    ExecutionFailed,
    ParameterError,
    PolicyError,
    QueryRefused,
)
from deniable.governance.grants import Asker, Role
from deniable.release import verify

POLICY = """
version: 1
dataset: school
tables:
  friends:
    source: friends.csv
    unit: {unit}
    edges: {{from: one, to: other{more}}}
    columns:
      one: {{type: integer}}
      other: {{type: integer}}
      since: {{type: integer, between: [2000, 2030]}}
  people:
    source: people.csv
    {people}
    columns:
      id: {{type: integer}}
      house: {{categories: [north, south]}}
      note: {{}}
budgets:
  dataset: {{epsilon: {epsilon}}}
  purposes: {{research: {{epsilon: {epsilon}}}}}
  analysts:
    ana: {{purposes: [research]}}
    eva: {{purposes: [research], columns: [since, one, other]}}
    joe: {{purposes: [research], columns: [since, friends.one]}}
    ben: {{purposes: [research], rows: {{house: [north]}}}}
"""
PRIVATE, PUBLIC = "unit: {column: id, max_groups: 1, max_rows_per_group: 1}", "public: true"
ANA, EVA, BEN, JOE = (Asker(name, "research", Role.ANALYST) for name in ("ana", "eva", "ben", "joe"))
PEOPLE = 80
GROUPED = ("mixing", "assortativity", "graph", "spread")
STATISTICS = ("edges", "degrees", "triangles", "stars", "clustering", "degree-assortativity", *GROUPED)


def make(folder: Path, unit: str = "node", *, nodes: bool = True, epsilon: int = 1000, more: str = "") -> Path:
    """A school: friends mostly of one house; a row to oneself, one twice in both orders, and ends that are missing."""
    random = np.random.default_rng(3)
    ends = random.integers(0, PEOPLE, (600, 2))
    kept = [(int(a), int(b)) for a, b in ends if a % 2 == b % 2 or random.random() < 0.1]
    rows = [*kept, kept[0][::-1], (5, 5), ("", 7), (8, ""), (3, 9999)]
    (folder / "friends.csv").write_text("one,other,since\n" + "".join(f"{a},{b},2020\n" for a, b in rows))
    people = "".join(f"{i},{'north' if i % 2 else 'south'},x\n" for i in range(PEOPLE))
    (folder / "people.csv").write_text("id,house,note\n" + people)
    text = POLICY.format(
        unit=unit,
        more=(", nodes: people.id" if nodes else "") + more,
        people=PRIVATE if unit == "node" else PUBLIC,
        epsilon=epsilon,
    )
    (folder / "policy.yaml").write_text(text)
    return folder


def count_edges(folder: Path) -> int:
    rows = [line.split(",")[:2] for line in (folder / "friends.csv").read_text().splitlines()[1:]]
    known = {str(i) for i in range(PEOPLE)}
    return len({frozenset(pair) for pair in rows if pair[0] != pair[1] and {*pair} <= known})


@pytest.fixture(params=["node", "edge"])
def school(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Curator]:
    make(tmp_path, request.param)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        yield curator


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Curator]:
    make(tmp_path)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        yield curator


def ask(curator: Curator, statistic: str, **more: Any) -> Any:
    by = "house" if statistic in GROUPED else None
    return curator.network("friends", statistic, **{"epsilon": 2, "by": by, "max_degree": 40} | more)


def spent(curator: Curator) -> float:
    return float(curator.context.balance()[0].spent.epsilon)  # type: ignore[union-attr]


def test_every_statistic_is_charged_once_and_says_what_it_hides(school: Curator) -> None:
    unit = str(school.policy.table("friends").unit)
    for statistic in STATISTICS:
        before = spent(school)
        answer = ask(school, statistic)
        assert spent(school) - before == (0 if statistic in ("assortativity", "spread") else 2)
        assert answer.release.guarantee.unit == unit
        assert answer.release.guarantee.epsilon == 2
        assert any(note.startswith("Hides: One") for note in answer.release.details["notes"])
        assert answer.rows.num_rows > 0
        again = ask(school, statistic)
        assert again.rows == answer.rows
        assert again.repeated
        assert spent(school) - before == (0 if statistic in ("assortativity", "spread") else 2)


def test_numbers_are_of_the_simple_network_of_listed_nodes(school: Curator, tmp_path: Path) -> None:
    found = ask(school, "edges", epsilon=100).to_pylist()[0]
    assert abs(found["edges"] - count_edges(tmp_path)) <= 8
    assert found["edges_low"] <= found["edges"] <= found["edges_high"]
    mixing = ask(school, "mixing", epsilon=300).to_pylist()
    assert sum(row["edges"] for row in mixing) == pytest.approx(count_edges(tmp_path), abs=15)
    inside = {(row["group"], row["with"]): row["density"] for row in mixing}
    assert inside["north", "north"] > 3 * inside["north", "south"]


def test_assortativity_by_degree_has_an_interval_and_says_what_it_leaves_out(school: Curator) -> None:
    answer = ask(school, "degree-assortativity", epsilon=1)
    (row,) = answer.to_pylist()
    assert list(row) == ["degree_assortativity", "degree_assortativity_low", "degree_assortativity_high"]
    notes = " ".join(answer.release.details["notes"])
    assert ("Cutting degrees off at max_degree moves this" in notes) == ("node" in str(answer.release.guarantee.unit))
    assert ("The noise is too large for this network" in notes) == (row["degree_assortativity_low"] == -1)
    with pytest.raises(ParameterError, match="no use for 'by'"):
        ask(school, "degree-assortativity", by="house")


def test_an_explanation_tells_the_price_and_reads_no_row(school: Curator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBEngine, "run", lambda *_, **__: pytest.fail("a row was read"))
    for statistic in STATISTICS:
        by = "house" if statistic in GROUPED else None
        told = school.explain_network("friends", statistic, epsilon=2, by=by, max_degree=40)
        assert told.cost == {"epsilon": "2", "delta": "0"}
        assert sum(float(part.epsilon) for part in told.measurements) == pytest.approx(2)
        assert told.more_like_this == 500
    assert spent(school) == 0


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ({"statistic": "edgess"}, ParameterError),
        ({"epsilon": 0}, ParameterError),
        ({"epsilon": -1}, ParameterError),
        ({"table": "people"}, ParameterError),
        ({"table": "nobody"}, ParameterError),
        ({"statistic": "mixing"}, ParameterError),
        ({"statistic": "mixing", "by": "note"}, QueryRefused),
        ({"statistic": "mixing", "by": "hous"}, QueryRefused),
        ({"by": "house"}, ParameterError),
        ({"star": 3}, ParameterError),
        ({"statistic": "stars", "star": 1}, ParameterError),
        ({"statistic": "stars", "star": 99}, ParameterError),
        ({"statistic": "degrees", "direction": "out"}, ParameterError),
        ({"statistic": "degrees", "direction": "up"}, ParameterError),
        ({"max_degree": 0}, ParameterError),
        ({"max_degree": True}, ParameterError),
        ({"statistic": "spread", "passing": 2.0}, ParameterError),
        ({"statistic": "spread", "steps": 0}, ParameterError),
        ({"steps": 5}, ParameterError),
        ({"confidence": 1.0}, ParameterError),
        ({"epsilon": 10_001}, ParameterError),
        ({"statistic": "triangles", "epsilon": "0.00001"}, ParameterError),
        ({"statistic": "stars", "star": 8, "max_degree": 100_000}, ParameterError),
    ],
)
def test_what_cannot_be_asked_is_refused_and_not_charged(
    nodes: Curator, words: dict[str, Any], refused: type[DeniableError]
) -> None:
    asked = {"table": "friends", "statistic": "edges", "epsilon": 1} | words
    table, statistic = asked.pop("table"), asked.pop("statistic")
    with pytest.raises(refused):
        nodes.network(table, statistic, **asked)
    assert spent(nodes) == 0


def test_rows_that_are_edges_are_used_by_networks_alone(school: Curator, tmp_path: Path) -> None:
    tries: list[Any] = [
        lambda: school.query("SELECT COUNT(*) FROM friends", epsilon=1),
        lambda: school.query("SELECT COUNT(*) FROM people JOIN friends ON id = one", epsilon=1),
        lambda: school.top("friends", "one", 1, epsilon=1),
        lambda: school.hierarchy("friends", ["one"], epsilon=1),
        lambda: school.watch("SELECT COUNT(*) FROM friends", 10, 1),
        lambda: school.sample_and_aggregate(lambda rows: 1.0, "friends", blocks=2, bounds=(0, 1), epsilon=1),
        lambda: school.find_bounds("friends", "since", 1),
        lambda: school.mask("friends"),
        lambda: school.anonymize("friends", k=2),
        lambda: school.train("friends", "since", epsilon=1, out=tmp_path / "m.json"),
        lambda: school.describe("friends", tmp_path / "d.json", epsilon=1),
    ]
    for attempt in tries:
        with pytest.raises(DeniableError, match="edges of a network"):
            attempt()
    assert spent(school) == 0


def test_whoever_withdrew_is_in_no_network(nodes: Curator, tmp_path: Path) -> None:
    before = ask(nodes, "edges", epsilon=200).to_pylist()[0]["edges"]
    for person in range(0, PEOPLE, 2):
        withdrawals.withdraw(nodes.context, "id", str(person))
    nodes.new_epoch("people left")
    after = ask(nodes, "edges", epsilon=200).to_pylist()[0]["edges"]
    assert after < 0.7 * before
    reach = find_reach(nodes.policy, "id")
    assert set(reach.left_out_of) == {"people", "friends"}


def test_a_failure_after_the_charge_is_one_sentence(nodes: Curator, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("node 17")

    monkeypatch.setattr("deniable.graphs.statistics.measure", fail)
    with pytest.raises(ExecutionFailed) as told:
        nodes.network("friends", "edges", epsilon=1, who=ANA)
    assert "17" not in str(told.value)
    assert spent(nodes) == 1


def test_a_budget_that_is_spent_answers_no_more(tmp_path: Path) -> None:
    make(tmp_path, epsilon=3)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        ask(curator, "edges")
        with pytest.raises(BudgetExceeded):
            ask(curator, "triangles")
        assert ask(curator, "edges").repeated


def test_askers_see_what_they_may(nodes: Curator) -> None:
    assert ask(nodes, "mixing", who=ANA).rows.num_rows == 3
    assert ask(nodes, "edges", who=EVA).rows.num_rows == 1
    with pytest.raises(QueryRefused, match="'other' of 'friends' is not granted"):
        ask(nodes, "edges", who=JOE)
    with pytest.raises(QueryRefused, match="is not a column"):
        ask(nodes, "mixing", who=EVA)
    with pytest.raises(AccessRefused):
        ask(nodes, "edges", who=BEN)
    with pytest.raises(AccessRefused):
        ask(nodes, "edges", who=Asker("ana", "marketing", Role.ANALYST))


@pytest.mark.parametrize("statistic", ["edges", "degrees", "stars"])
def test_without_a_table_of_nodes_what_can_be_said_is_said(tmp_path: Path, statistic: str) -> None:
    make(tmp_path, nodes=False)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        assert curator.network("friends", statistic, epsilon=1).rows.num_rows > 0
        for other in ("triangles", "degree-assortativity"):
            with pytest.raises(ParameterError, match="needs a table of nodes"):
                curator.network("friends", other, epsilon=1)


def test_directions_count_where_the_policy_says_so(tmp_path: Path) -> None:
    make(tmp_path, "edge", more=", directed: true")
    with Curator.open(tmp_path / "policy.yaml") as curator:
        both = curator.network("friends", "edges", epsilon=100).to_pylist()[0]["edges"]
        assert both > count_edges(tmp_path)
        assert curator.network("friends", "mixing", by="house", epsilon=100).rows.num_rows == 4
        out = curator.network("friends", "degrees", direction="out", epsilon=100).to_pylist()
        assert sum(row["nodes"] * row["degree"] for row in out) == pytest.approx(both, abs=20)


@pytest.mark.parametrize("directed", [False, True])
def test_a_page_of_groups_has_every_pair_once_whichever_way_edges_go(tmp_path: Path, directed: bool) -> None:
    make(tmp_path, "edge", more=", directed: true" if directed else "")
    words = ["network", "friends", "mixing", "--by", "house", "--epsilon", "9", "-p", str(tmp_path / "policy.yaml")]
    done = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "page.html"), "--json"])
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["rows"]) == (4 if directed else 3)
    assert "Edges between each two groups" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("rows", ["", "1,1,2000\n", ",,\n", "1,2,2000\n"])
def test_networks_with_hardly_an_edge_are_answered(tmp_path: Path, rows: str) -> None:
    make(tmp_path)
    (tmp_path / "friends.csv").write_text("one,other,since\n" + rows)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        for statistic in STATISTICS:
            assert ask(curator, statistic, max_degree=None).rows.column_names


def test_a_made_network_is_a_file_with_a_statement(nodes: Curator, tmp_path: Path) -> None:
    out = tmp_path / "made.csv"
    words = ["network", "friends", "graph", "--by", "house", "--epsilon", "3", "-p", str(tmp_path / "policy.yaml")]
    done = CliRunner().invoke(app, [*words, "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    stated = verify(out)
    assert stated.body["guarantee"]["unit"] == "one node with all its edges"
    assert stated.body["guarantee"]["technique"] == "differentially private synthesis"
    assert out.read_text().splitlines()[0] == '"one","other","one_house","other_house"'
    attacked = CliRunner().invoke(app, ["attack", str(out), "--edges", "one,other", "--json"])
    assert "nobody" in json.dumps(json.loads(attacked.stdout)["attacks"])
    original = ["--original", str(tmp_path / "friends.csv"), "--json"]
    attacked = CliRunner().invoke(app, ["attack", str(out), "--edges", "one,other", *original])
    outcomes = next(e for e in json.loads(attacked.stdout)["attacks"] if e["attack"] == "network")["outcomes"]
    assert outcomes[2]["exposed"]["share"] < 0.1


def test_the_command_explains_and_answers(tmp_path: Path) -> None:
    make(tmp_path)
    words = ["network", "friends", "triangles", "--epsilon", "1", "-p", str(tmp_path / "policy.yaml")]
    told = CliRunner().invoke(app, [*words, "--explain"])
    assert told.exit_code == 0, told.output
    assert "ladder" in told.output
    assert "protects one node with all its edges" in told.output
    answered = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert {"triangles", "triangles_low", "triangles_high"} <= set(answered["rows"][0])


def test_frames_can_be_the_rows(tmp_path: Path) -> None:
    make(tmp_path, "edge", nodes=False)
    with Curator.open(tmp_path / "policy.yaml") as one:
        policy = one.policy
    rows = pa.table({"one": [1, 2, 3], "other": [2, 3, 1], "since": [2020] * 3})
    with Curator(policy, sources={"friends": rows}) as curator:
        assert abs(curator.network("friends", "triangles", epsilon=200).to_pylist()[0]["triangles"] - 1) <= 1


def test_edges_and_nodes_may_be_two_tables_of_one_database(tmp_path: Path) -> None:
    import duckdb

    make(tmp_path)
    with duckdb.connect(str(tmp_path / "school.duckdb")) as made:
        for name in ("friends", "people"):
            made.execute(f"CREATE TABLE {name} AS FROM '{tmp_path / name}.csv'")
    text = (tmp_path / "policy.yaml").read_text()
    for name in ("friends", "people"):
        text = text.replace(f"source: {name}.csv", f"source: duckdb:school.duckdb#{name}")
    (tmp_path / "policy.yaml").write_text(text)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        assert abs(ask(curator, "edges", epsilon=100).to_pylist()[0]["edges"] - count_edges(tmp_path)) <= 8
    (tmp_path / "policy.yaml").write_text(text.replace("#people", "#friends"))
    with pytest.raises(PolicyError, match="different units"), Curator.open(tmp_path / "policy.yaml"):
        pass


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unit: node": "unit: row"}, "neither edge nor node"),
        ({"edges: {from": "# edges: {from"}, "does not say which columns"),
        ({"to: other": "to: one"}, "one column"),
        ({"nodes: people.id": "nodes: people.nobody"}, "not there"),
        ({"unit: node": "unit: edge"}, "is private"),
        ({PRIVATE: "unit: row"}, "not the unit"),
        ({"      id: {type: integer}": "      id: {}"}, "compared exactly"),
    ],
)
def test_a_policy_that_does_not_fit_together_is_refused(tmp_path: Path, change: dict[str, str], words: str) -> None:
    make(tmp_path)
    text = (tmp_path / "policy.yaml").read_text()
    for old, new in change.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "policy.yaml").write_text(text)
    with pytest.raises(PolicyError) as told, Curator.open(tmp_path / "policy.yaml"):
        pass
    assert words in str(told.value) + " ".join(str(each) for each in told.value.mistakes)


def test_a_unit_that_hides_less_needs_the_steward(tmp_path: Path) -> None:
    from deniable.policy.diff import list_loosened
    from deniable.policy.document import read_unaccepted

    make(tmp_path, nodes=False)
    before = read_unaccepted(tmp_path / "policy.yaml")
    make(tmp_path, "edge", nodes=False)
    text = (tmp_path / "policy.yaml").read_text().replace(PUBLIC, PRIVATE)
    (tmp_path / "policy.yaml").write_text(text)
    after = read_unaccepted(tmp_path / "policy.yaml")
    assert any("one node with all its edges" in words for words in list_loosened(before, after))


SERVED = """
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {role: identifier}, sex: {categories: [F, M]}}
  friends:
    source: friends.csv
    unit: node
    edges: {from: one, to: other, nodes: people.id}
    columns: {one: {}, other: {}}
budgets:
  dataset: {epsilon: 100}
  purposes: {research: {epsilon: 100}, care: {epsilon: 1}}
  analysts: {ana: {purposes: [research]}, ben: {purposes: [care]}}
"""


def test_an_analyst_asks_for_a_statistic_over_http(tmp_path: Path, serve: Any) -> None:
    import httpx

    rows = "".join(f"p{i},p{(i * 7 + 1) % 300}\n" for i in range(300))
    (tmp_path / "friends.csv").write_text("one,other\n" + rows)
    body = {"table": "friends", "statistic": "edges", "epsilon": "4", "max_degree": 10}
    with serve(policy=SERVED) as up:

        def ask_at(path: str, given: dict[str, Any]) -> httpx.Response:
            headers = {"authorization": f"Bearer {up.tokens['ana']}"}
            return httpx.post(up.http + path, json=given, headers=headers, timeout=60)

        told = ask_at("/v1/network/explain", body).json()
        assert (told["unit"], told["cost"]["epsilon"]) == ("one node with all its edges", "4")
        first, again = (ask_at("/v1/network", body) for _ in range(2))
        assert (first.headers["x-deniable-charged"], again.headers["x-deniable-charged"]) == ("true", "false")
        assert first.json()["rows"] == again.json()["rows"]
        mixed = ask_at("/v1/network", body | {"statistic": "mixing", "by": "sex"}).json()
        assert {"group", "with", "edges", "density"} <= set(mixed["rows"][0])
        refused = ask_at("/v1/network", body | {"statistic": "paths"})
        assert refused.status_code == 400
        assert refused.json()["charged"] is False


def test_a_rumor_that_reaches_everybody_in_every_run_has_an_interval_around_its_mean(nodes: Curator) -> None:
    rows = ask(nodes, "spread", epsilon=100, passing=1.0, steps=30).to_pylist()
    assert all(row["reached_low"] <= row["reached"] <= row["reached_high"] for row in rows)
    assert rows[-1]["reached"] > 0.5


def test_the_command_says_that_a_stored_answer_was_not_charged(tmp_path: Path) -> None:
    make(tmp_path)
    words = ["network", "friends", "edges", "-p", str(tmp_path / "policy.yaml"), "--epsilon", "1"]
    first, again = (CliRunner().invoke(app, words).output for _ in range(2))
    assert "Cost: epsilon 1" in first
    assert "Cost:" not in again
    assert "A stored answer: nothing was charged" in again


@pytest.mark.parametrize("statistic", ["edges", "degrees", "mixing", "spread"])
def test_a_statistic_has_a_page_that_says_what_is_hidden(tmp_path: Path, statistic: str) -> None:
    make(tmp_path)
    by = ["--by", "house"] if statistic in GROUPED else []
    words = ["network", "friends", statistic, *by, "-p", str(tmp_path / "policy.yaml"), "--epsilon", "5"]
    done = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "page.html")])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert "One node with all its edges" in page
    assert f"Network: {statistic}" in page
    taken = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "policy.yaml")])
    assert taken.exit_code != 0
    assert "edges:" in (tmp_path / "policy.yaml").read_text()
