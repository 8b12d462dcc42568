"""The lattice of a table by hand: losses, classes, the model that fails, rows before and after; nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.curator.anonymize import explore
from deniable.curator.anonymize.request import Asked
from deniable.errors import AccessRefused, ParameterError, Stopped
from deniable.governance.grants import Asker

POLICY = """\
version: 1
dataset: ward
tables:
  visits:
    source: visits.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      zip: {role: quasi-identifier, hierarchy: {redact: {from: right}}}
      sex: {role: quasi-identifier, categories: [F, M]}
      diagnosis: {role: sensitive}
budgets:
  dataset: {epsilon: 1}
  purposes:
    research: {epsilon: 1}
  analysts:
    ana: {purposes: [research], epsilon: 1}
expires: 2099-12-31
"""


@pytest.fixture
def ward(tmp_path: Path) -> Iterator[Curator]:
    rows = {
        "id": ["a", "b", "c", "d"],
        "zip": ["11", "12", "21", "22"],
        "sex": ["F", "F", "M", "M"],
        "diagnosis": ["flu", "flu", "flu", "burn"],
    }
    pq.write_table(pa.table(rows), tmp_path / "visits.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    with Curator.open(tmp_path / "policy.yaml", ledger=str(tmp_path / "ledger.sqlite")) as curator:
        yield curator


def test_every_node_is_judged_and_the_one_that_loses_least_is_chosen(ward: Curator) -> None:
    view = explore.explore_lattice(ward.context, "visits", Asked(k=2))
    assert (view.rows, view.total, len(view.nodes)) == (4, 6, 6)
    assert [column.examples for column in view.columns] == [("21", "2*", "*"), ("M", "*")]
    assert view.chosen is not None
    assert view.chosen.levels == (1, 0)
    assert (view.chosen.classes, view.chosen.risk) == (2, 0.5)
    assert {node.levels for node in view.nodes if not node.acceptable} == {(0, 0), (0, 1)}
    assert all(node.risk is None or 0 <= node.risk <= 1 for node in view.nodes), "a mean chance"


def test_a_node_tells_which_model_fails_and_shows_rows_before_and_after(ward: Curator) -> None:
    node = explore.explore_node(ward.context, "visits", Asked(k=2, l={"diagnosis": Fraction(2)}), (1, 0))
    assert [(each.failing_classes, each.failing_rows) for each in node.verdicts] == [(0, 0), (1, 2)]
    assert [each.model for each in node.failing] == ["distinct 2-diversity of diagnosis"]
    assert not node.acceptable
    assert (node.sizes, node.suppressed) == ((2,), 2)
    first, last = node.rows[0], node.rows[-1]
    assert (first.before, first.after) == (("11", "F", "flu"), ("1*", "F", "flu"))
    assert (first.alike, first.released, last.released) == (2, False, True)
    assert (node.above, node.below) == (((2, 0), (1, 1)), ((0, 0),))


def test_stricter_models_lose_no_less_and_what_no_table_meets_is_said(ward: Curator) -> None:
    points = explore.explore_strictness(ward.context, "visits", Asked(k=2))
    by_k = {point.value: point for point in points if point.model == "k"}
    assert by_k[2].loss < by_k[3].loss
    assert by_k[2].mean_risk > by_k[3].mean_risk
    assert by_k[5].loss is None
    assert "4 rows" in by_k[5].refusal
    assert {(point.model, point.column) for point in points} == {("k", ""), ("l", "diagnosis"), ("t", "diagnosis")}


def test_only_the_steward_looks_and_nothing_is_recorded_or_charged(ward: Curator) -> None:
    before = len(list(ward.ledger.entries()))
    analyst = ward.context.speak_for(Asker("ana", "research"))
    for look in (
        lambda context: explore.explore_lattice(context, "visits", Asked(k=2)),
        lambda context: explore.explore_node(context, "visits", Asked(k=2), (0, 0)),
        lambda context: explore.explore_strictness(context, "visits", Asked(k=2)),
    ):
        with pytest.raises(AccessRefused, match="steward"):
            look(analyst)
        look(ward.context)
    assert len(list(ward.ledger.entries())) == before


def test_a_node_that_is_not_there_is_refused_and_a_look_can_be_stopped(ward: Curator) -> None:
    for levels in ((3, 0), (0,), (0, -1)):
        with pytest.raises(ParameterError):
            explore.explore_node(ward.context, "visits", Asked(k=2), levels)

    def stop(_share: float) -> None:
        raise Stopped("stopped")

    with pytest.raises(Stopped):
        explore.explore_lattice(ward.context, "visits", Asked(k=2), stop)


def test_a_node_that_leaves_no_row_has_no_risk(ward: Curator) -> None:
    view = explore.explore_lattice(ward.context, "visits", Asked(k=7, suppress=Fraction(1)))
    empty = [node for node in view.nodes if node.suppressed == view.rows]
    assert empty
    assert {node.risk for node in empty} == {None}
    assert all(node.risk is not None for node in view.nodes if node not in empty)


def test_what_a_release_would_let_out_is_attacked_before_it_is_approved(ward: Curator) -> None:
    release = explore.preview_release(ward.context, "visits", Asked(k=2))
    assert release.attacks[0].startswith("Knowing the columns of one person (zip, sex) exposes no one")
    as_it_is = explore.preview_masked(with_mask(ward, "redact").context, "visits", "pseudonymize")
    assert "exposes 1,000 of 1,000;" in as_it_is.attacks[0], "masking the name alone leaves everybody alone"


def test_attacks_before_an_approval_count_people_and_not_their_rows(ward: Curator) -> None:
    """Everybody has each row twice: no row is alone, and everybody is."""
    path = ward.context.policy.folder / "visits.parquet"
    rows = pq.read_table(path)
    pq.write_table(pa.concat_tables([rows, rows]), path)
    curator = with_mask(ward, "redact")
    masked = explore.preview_masked(curator.context, "visits", "pseudonymize")
    assert "exposes 1,000 of 1,000;" in masked.attacks[0]
    assert "__person" not in masked.columns
    without = explore.preview_masked(curator.context, "visits", "pseudonymize", ["zip", "sex", "diagnosis"])
    assert "exposes 1,000 of 1,000;" in without.attacks[0], "also where what tells people apart does not leave"
    fine = explore.preview_release(curator.context, "visits", Asked(k=2))
    assert fine.sizes == (4, 4), "k counts people, who have two rows each"
    assert "exposes no one" in fine.attacks[0]


@pytest.mark.parametrize("mask", ["{token: {key: people}}", "{codebook: {key: people, vault: ids.vault}}"])
def test_rows_that_are_masked_to_be_looked_at_leave_no_trace(ward: Curator, mask: str) -> None:
    curator = with_mask(ward, mask)
    before = {path.name for path in curator.context.policy.folder.iterdir()}
    entries = len(list(curator.context.ledger.entries()))
    views = [explore.preview_masked(curator.context, "visits", "pseudonymize", ["id", "sex"]) for _ in range(2)]
    assert views[0].columns == ("id", "sex")
    assert [row.before for row in views[0].rows] == [("a", "F"), ("b", "F"), ("c", "M"), ("d", "M")]
    tokens = [row.after[0] for view in views for row in view.rows]
    assert len(set(tokens)) == 8, "no token is one of a key that is kept"
    assert {path.name for path in curator.context.policy.folder.iterdir()} == before
    assert len(list(curator.context.ledger.entries())) == entries
    with pytest.raises(AccessRefused, match="Only the steward"):
        explore.preview_masked(curator.context.speak_for(Asker("ana", "research")), "visits", "pseudonymize")


def with_mask(ward: Curator, mask: str) -> Curator:
    """The same ward under a policy that masks the identifier."""
    path = ward.context.policy.folder / "policy.yaml"
    path.write_text(POLICY.replace("id: {role: identifier}", f"id: {{role: identifier, mask: {mask}}}"))
    return Curator.open(path, ledger=str(path.with_name("ledger.sqlite")))
