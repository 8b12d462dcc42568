"""k-anonymous releases through the Python API: frames in, releases out, and warnings about what k does not cover."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from deniable import Curator
from deniable.curator.anonymize.request import Asked, Order, _tell_rows
from deniable.errors import AccessRefused, Infeasible
from deniable.kanonymity.models import KAnonymity
from deniable.kanonymity.request import Request, refuse_too_few
from deniable.policy.document import parse
from deniable.policy.schema import Spec
from deniable.release import verify

ROWS = 400
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: row
    columns:
      name:      {role: identifier}
      zip:       {role: quasi-identifier, hierarchy: {redact: right}}
      age:       {role: quasi-identifier, type: integer, between: [0, 120], hierarchy: {intervals: [10, 20, 40]}}
      diagnosis: {role: sensitive, categories: [flu, cold, gout]}
      note:      {role: sensitive}
      charge:    {role: insensitive, type: integer, between: [0, 1000000]}
      ward:      {role: insensitive, categories: [a, b]}
release:
  anonymize: {k: 5, suppress: 0.05}
"""


def frame(rows: int = ROWS) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "name": [f"person {n}" for n in range(rows)],
            "zip": [f"0213{n % 7}" for n in range(rows)],
            "age": [20 + n * 7 % 60 for n in range(rows)],
            "diagnosis": [("flu", "cold", "gout")[n % 3] for n in range(rows)],
            "note": [f"said {n}" if n % 2 else None for n in range(rows)],
            "charge": [1000 + 13 * n for n in range(rows)],
            "ward": ["ab"[n % 2] for n in range(rows)],
        }
    )


def curator(text: str = POLICY, rows: int = ROWS) -> Curator:
    return Curator(parse(text), sources={"visits": frame(rows)})


def test_a_release_in_memory_has_rows_a_claim_and_a_proof() -> None:
    with curator() as held:
        release = held.anonymize("visits")
        assert isinstance(release.rows, pa.Table)
        assert release.rows.column_names == ["zip", "age", "diagnosis", "note", "charge", "ward"]
        sizes = release.rows.group_by(["zip", "age"]).aggregate([([], "count_all")])["count_all"].to_pylist()
        assert min(sizes) >= 5
        assert release.details["proof"]["optimal"]  # type: ignore[index]
        assert [entry.technique for entry in held.ledger.entries()] == ["k-anonymity"]


def test_a_release_into_a_file_has_its_statement_and_its_recoding(tmp_path: Path) -> None:
    with curator() as held:
        release = held.anonymize("visits", tmp_path / "out.parquet", k=8, l={"diagnosis": 2})
    assert release.rows == tmp_path / "out.parquet"
    assert any("8" in sentence for sentence in verify(tmp_path / "out.parquet").words)
    assert (tmp_path / "out.parquet.recoding.json").exists()


@pytest.mark.parametrize("method", ["mondrian", "cells", "local"])
def test_local_methods_give_rows_too(method: str) -> None:
    with curator() as held:
        release = held.anonymize("visits", method=method)
        assert isinstance(release.rows, pa.Table)
        assert release.rows.num_rows == release.details["released"]


def test_asking_for_less_than_the_policy_is_refused_and_nothing_is_recorded_as_released() -> None:
    with curator() as held, pytest.raises(AccessRefused, match="k is asked to be 2"):
        held.anonymize("visits", k=2)


def test_closeness_along_a_hierarchy_can_be_said_in_a_policy() -> None:
    tree = "hierarchy: {tree: {inline: {respiratory: [flu, cold], other: [gout]}}}"
    text = POLICY.replace("categories: [flu, cold, gout]", "categories: [flu, cold, gout], " + tree)
    text = text.replace(
        "suppress: 0.05}",
        "suppress: 0.05, models: [{closeness: {column: diagnosis, t: 0.3, distance: hierarchical}}]}",
    )
    with curator(text) as held:
        assert "hierarchical distance" in str(held.anonymize("visits").details["models"])


def test_nearly_unique_columns_are_named_and_their_values_are_not() -> None:
    with curator() as held:
        (warning,) = held.anonymize("visits").details["warnings"]  # type: ignore[misc]
    assert "note (50% of the rows), charge (100% of the rows)" in warning
    assert "identifier" in warning
    assert "quasi-identifier" in warning
    for absent in ("diagnosis", "ward", "said", "1013"):
        assert absent not in warning


def test_a_column_that_may_leave_masked_only_is_left_out_and_named() -> None:
    with curator(POLICY.replace("note:      {role: sensitive}", "note:      {role: sensitive, mask: scrub}")) as held:
        release = held.anonymize("visits")
        assert isinstance(release.rows, pa.Table)
        assert "note" not in release.rows.column_names
        assert any("masked only: note." in told for told in release.details["warnings"])  # type: ignore[attr-defined]


def test_a_table_without_such_columns_is_released_without_a_warning() -> None:
    text = POLICY.replace("note:      {role: sensitive}", "note:      {role: identifier}")
    text = text.replace("charge:    {role: insensitive,", "charge:    {role: identifier,")
    with curator(text) as held:
        assert held.anonymize("visits").details["warnings"] == []


def test_a_quasi_identifier_that_is_not_asked_for_is_left_out_rather_than_shown_as_it_is() -> None:
    with curator() as held:
        release = held.anonymize("visits", quasi_identifiers=("zip",))
        assert isinstance(release.rows, pa.Table)
        assert "age" not in release.rows.column_names


def test_check_measures_the_columns_of_the_roles() -> None:
    with curator() as held:
        found = held.check("visits")
        assert found["rows"] == ROWS
        assert [column["column"] for column in found["sensitive"]] == ["diagnosis", "note"]
        assert held.check("visits", ["zip"], ["diagnosis"])["k"] == ROWS // 7


def test_a_table_of_one_row_is_refused_and_one_that_may_all_go_is_empty() -> None:
    with curator(rows=1) as held, pytest.raises(Infeasible, match="there is 1 row to release"):
        held.anonymize("visits")
    with curator(POLICY.replace("suppress: 0.05", "suppress: 1"), rows=1) as held:
        release = held.anonymize("visits")
        assert isinstance(release.rows, pa.Table)
        assert release.rows.num_rows == 0
        assert "zip" in release.rows.column_names


def test_an_empty_table_is_refused() -> None:
    with curator(rows=0) as held, pytest.raises(Infeasible, match="0 rows"):
        held.anonymize("visits", models=(Spec("average_risk", {"most": "0.5"}),))


LOADED = """
import sys
from deniable.cli.main import app
app(sys.argv[1:], standalone_mode=False)
print("loaded", *(name for name in sys.modules if name.startswith("deniable.")))
"""


def test_a_command_without_a_policy_loads_nothing_that_reads_policies_or_ledgers(tmp_path: Path) -> None:
    """A cold start is mostly modules that are loaded: those that are not needed are not."""
    (tmp_path / "people.csv").write_text("sex\n" + "F\nM\n" * 10)
    (tmp_path / "tree.csv").write_text("F,*\nM,*\n")
    words = ["anonymize", "people.csv", "--qi", "sex", "--k", "2", "--hierarchy", "sex=tree.csv", "-o", "out.csv"]
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "deniable.curator.anonymize.run" in loaded
    assert not loaded & {f"deniable.policy.{name}" for name in ("document", "grammar", "tables", "yaml_tree")}
    assert not loaded & {"deniable.curator.context", "deniable.curator.scope", "deniable.ledger"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", r"there are 400 rows to release\. k is at most 400"),
        ("  minimize: {sample: 0.5}\n", r"there are \d+ rows to release, the sample that the policy draws"),
    ],
)
def test_a_steward_is_told_how_many_rows_there_are_for_a_k_and_which(more: str, words: str) -> None:
    with curator(POLICY + more) as held, pytest.raises(Infeasible, match=words):
        held.anonymize("visits", k=1000)


def test_nobody_else_is_told_how_many_rows_there_are() -> None:
    ask = Order(None, None, parse(POLICY), "visits", asked=Asked(1000))
    told = set()
    for order, asker in ((ask, SimpleNamespace()), (replace(ask, identity="an id"), None)):
        seen: Any = SimpleNamespace(policy=parse(POLICY), asker=asker)
        for rows in (20, 400):
            with pytest.raises(Infeasible) as refused:
                refuse_too_few(rows, Request(("age",), (KAnonymity(1000),)), _tell_rows(rows, seen, order))
            told.add(str(refused.value))
    assert len(told) == 1
