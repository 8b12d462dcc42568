"""Results of workflows: records whose JSON has exactly the keys that apply, in the order of the fields."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from deniable.curator.anonymize.run import AnonymizeReport
from deniable.curator.attack import AttackReport
from deniable.curator.governance.requests import TableRisk, TokenReport
from deniable.curator.mask.keys import KeyRotation
from deniable.curator.survey import PLAN, ColumnEstimate, MeanEstimate, RandomizeReport
from deniable.release.record import SparseRecord

TOKEN: dict[str, Any] = {
    "id": "5f0c1a", "name": "ana", "role": "analyst", "purposes": None, "issued": "2026-01-01", "expires": None,
    "revoked": None,
}  # fmt: skip
ANONYMOUS: dict[str, Any] = {"rows": 9, "released": 8, "suppressed": 1, "classes": 2, "models": ["4-anonymity"]}
ATTACKED: dict[str, Any] = {"subject": "log.jsonl", "knows": [], "rows": 3, "attacks": [], "exposed": {}}
JUDGED: dict[str, Any] = {"limits": {}, "verdicts": [], "untried": [], "inapplicable": {}, "measured": True}
JUDGED |= {"failed": False}
EXAMPLES: tuple[tuple[SparseRecord, dict[str, Any]], ...] = (
    (TableRisk([]), {"columns": [], "per_thousand": 0}),
    (TableRisk(["zip"], 4, 0, 0), {"columns": ["zip"], "rows": 4, "alone": 0, "per_thousand": 0}),
    (TokenReport(**TOKEN), TOKEN),
    (TokenReport(token="deniable_x", **TOKEN), {"token": "deniable_x", **TOKEN}),
    (KeyRotation("k", "a", "b", "old"), {"key": "k", "check": "a", "old_check": "b", "old_key": "old"}),
    (ColumnEstimate("pay", MeanEstimate(2.0, 1.0, 3.0)),
     {"column": "pay", "mean": {"mean": 2.0, "low": 1.0, "high": 3.0}}),
    (AnonymizeReport(**ANONYMOUS, quality={"entropy": 0.5}, warnings=[], lattice=[]),
     {**ANONYMOUS, "entropy": 0.5, "warnings": [], "lattice": []}),
    (AttackReport(**ATTACKED, **JUDGED), {**ATTACKED, **JUDGED}),
    (AttackReport(**ATTACKED, **JUDGED, because=""), {**ATTACKED, "because": "", **JUDGED}),
)  # fmt: skip


@pytest.mark.parametrize(("record", "plain"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_the_json_of_a_record_has_the_keys_that_apply_in_their_order(record: SparseRecord, plain: Any) -> None:
    assert json.dumps(record.to_dict()) == json.dumps(plain)


@pytest.mark.parametrize(("record", "plain"), EXAMPLES, ids=lambda each: type(each).__name__)
def test_a_record_is_a_mapping_of_the_same_keys(record: SparseRecord, plain: dict[str, Any]) -> None:
    assert list(record) == list(plain)
    assert len(record) == len(plain)
    assert all(record[name] == value for name, value in plain.items())
    assert record.get("no such key") is None
    with pytest.raises(KeyError):
        record["no such key"]


def test_a_field_that_does_not_apply_can_be_read_and_is_no_key() -> None:
    rotated = KeyRotation("k", "a", "b", "old")
    assert rotated.map is None
    assert "map" not in rotated
    with pytest.raises(KeyError):
        rotated["map"]


def test_the_measure_of_a_release_stands_under_its_own_name_alone() -> None:
    made = AnonymizeReport(**ANONYMOUS, quality={"ncp": 0.25}, warnings=[], lattice=[])
    assert made["ncp"] == 0.25
    assert "quality" not in made


def test_a_randomized_tables_plan_is_called_in_json_as_in_its_statement() -> None:
    told = RandomizeReport("out.parquet", 3, ["words"], {"epsilon": "2"})
    assert told.to_dict() == {"written": "out.parquet", "rows": 3, "words": ["words"], PLAN: {"epsilon": "2"}}


@pytest.mark.parametrize("record", [record for record, _ in EXAMPLES], ids=lambda each: type(each).__name__)
def test_a_record_travels_between_processes(record: SparseRecord) -> None:
    assert pickle.loads(pickle.dumps(record)) == record
