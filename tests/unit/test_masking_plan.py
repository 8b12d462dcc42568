"""Plans: every mask of the grammar can be built; what is undeclared stays behind; what is unsafe is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

from deniable.errors import DataError, ParameterError
from deniable.masking import keys
from deniable.masking.plan import MASKERS, MaskContext, build_mask, plan_table, specs_of
from deniable.masking.streaming import mask_batch, mask_schema
from deniable.policy.document import parse
from deniable.policy.layout.masks import MASKS
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, Spec, TableSchema

KEY = keys.Key("people", bytes(range(32)))


def _shop(tmp_path: Path) -> MaskContext:
    return MaskContext(lambda name: KEY, tmp_path, 2026)


def _schema(*columns: Column) -> TableSchema:
    return TableSchema("people", "people.csv", columns, PrivacyUnit("id"))


def test_the_masks_built_here_are_those_of_the_policys_grammar() -> None:
    assert set(MASKERS) == {kind.name for kind in MASKS.kinds}


@pytest.mark.parametrize("kind", MASKS.kinds, ids=lambda kind: kind.name)
def test_every_example_of_the_grammar_can_be_planned_and_masks_rows(kind: object, tmp_path: Path) -> None:
    example = kind.example.replace("height, weight", "b")  # type: ignore[attr-defined]
    text = f"""
version: 1
dataset: d
tables:
  t:
    source: t.csv
    unit: {{column: patient_id}}
    columns:
      patient_id: {{role: identifier, mask: {{token: {{key: people}}}}}}
      ward: {{role: insensitive}}
      b: {{type: integer, between: [0, 10]}}
      a: {{type: %s, %s mask: {example}}}
"""
    name = kind.name  # type: ignore[attr-defined]
    kinds = {
        "shift_dates": "date",
        "round": "integer",
        "noise": "integer",
        "projection": "integer",
        "constant": "integer",
    }
    text %= (kinds.get(name, "text"), "between: [0, 10]," if name == "projection" else "")
    schema = parse(text, folder=tmp_path).table("t")
    # 256 rows: noise may well leave one number as it was, and never all of them
    values = {"date": pa.array([0, 1] * 128, pa.date32()), "integer": pa.array([3, 4] * 128)}
    column = values.get(kinds.get(name, ""), pa.array(["02138", "10001"] * 128))
    people = [str(number) for number in range(256)]
    rows = pa.record_batch({"patient_id": people, "ward": ["a"] * 256, "b": [1, 2] * 128, "a": column})
    made = plan_table(schema, rows.schema.names, specs_of(schema, rows.schema.names), _shop(tmp_path))
    done = mask_batch(made, rows)
    assert done.num_rows == 256
    assert mask_schema(made, rows.schema).names == done.schema.names
    if name == "projection":
        assert done.schema.names == ["patient_id", "ward", "projection_1", "projection_2"]
    elif name not in ("shuffle", "round", "scrub", "regex"):  # these may leave what is here as it is
        assert not done.column("a").equals(column)


def test_an_unsalted_hash_is_refused_and_told_why(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="plain hash") as refusal:
        build_mask(Spec("hash", {"algorithm": "sha256"}), _schema(), "ssn", _shop(tmp_path))
    assert "token" in refusal.value.remedy


def test_an_identifier_without_a_mask_is_refused(tmp_path: Path) -> None:
    schema = _schema(Column("id"), Column("name", role=Role.IDENTIFIER))
    with pytest.raises(ParameterError, match="'name' of 'people' is an identifier and has no mask"):
        plan_table(schema, ["id", "name"], specs_of(schema, ["id", "name"]), _shop(tmp_path))


def test_columns_that_the_policy_does_not_know_are_not_released(tmp_path: Path) -> None:
    schema = _schema(Column("id"), Column("city"))
    present = ["id", "city", "secret_note"]
    made = plan_table(schema, present, specs_of(schema, present), _shop(tmp_path))
    assert made.withheld == ("secret_note",)
    rows = pa.record_batch({name: ["x"] for name in present})
    assert mask_batch(made, rows).schema.names == ["id", "city"]
    fewer = plan_table(schema, present, specs_of(schema, present, ["city"]), _shop(tmp_path))
    assert mask_batch(fewer, rows).schema.names == ["city"]


def test_a_declared_column_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Did you mean 'city'"):
        specs_of(_schema(Column("ctiy")), ["city"])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (Spec("tokn", {}), "Did you mean 'token'"),
        (Spec("token", {}), "lacks its option 'key'"),
        (Spec("token", {"key": "people", "lenght": 4}), "Did you mean 'length'"),
        (Spec("token", {"key": "people", "length": 2}), "4 to 51"),
        (Spec("token", {"key": "people", "length": Fraction(1, 2)}), "whole number"),
        (Spec("fake", {"kind": "nam", "key": "people"}), "Did you mean 'name'"),
        (Spec("noise", {"scale": 0}), "above 0"),
        (Spec("regex", {"preset": "street_name"}), "street"),
    ],
)
def test_plans_from_code_are_checked_like_policies(spec: Spec, says: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=says):
        build_mask(spec, _schema(), "x", _shop(tmp_path))


def test_dates_without_a_person_are_refused(tmp_path: Path) -> None:
    schema = TableSchema("people", "people.csv", (Column("day", ColumnType.DATE),))
    with pytest.raises(ParameterError, match="who a row's person is"):
        build_mask(Spec("shift_dates", {"key": "people"}), schema, "day", _shop(tmp_path))


def test_a_projection_needs_public_bounds_and_comes_alone(tmp_path: Path) -> None:
    spec = Spec("projection", {"key": "people"})
    bare = _schema(Column("a", ColumnType.DECIMAL, mask=spec))
    with pytest.raises(ParameterError, match="no numeric bounds"):
        plan_table(bare, ["a"], specs_of(bare, ["a"]), _shop(tmp_path))
    bounds = Bounds(0, 10)
    two = _schema(*(Column(name, ColumnType.DECIMAL, bounds=bounds, mask=spec) for name in "ab"))
    with pytest.raises(ParameterError, match="2 projections"):
        plan_table(two, ["a", "b"], specs_of(two, ["a", "b"]), _shop(tmp_path))


def test_masks_see_other_columns_as_they_were(tmp_path: Path) -> None:
    """The person whose dates are shifted is the true one, although the same plan turns the id into a token."""
    schema = _schema(
        Column("id", role=Role.IDENTIFIER, mask=Spec("token", {"key": "people"})),
        Column("day", ColumnType.DATE, mask=Spec("shift_dates", {"key": "people"})),
    )
    other = _schema(Column("id", mask=Spec("redact")), schema.columns[1])
    rows = pa.record_batch({"id": ["7", "8"], "day": pa.array([0, 0], pa.date32())})
    shifted = [
        mask_batch(plan_table(each, ["id", "day"], specs_of(each, ["id", "day"]), _shop(tmp_path)), rows).column("day")
        for each in (schema, other)
    ]
    assert shifted[0].equals(shifted[1])


def test_two_bounds_of_shifted_dates_under_one_key_are_refused(tmp_path: Path) -> None:
    shifts = [{"key": "people", "by": "who", "days": days} for days in (30, 365)]
    masks = {name: Spec("shift_dates", options) for name, options in zip("ab", shifts, strict=True)}
    table = parse(
        "version: 1\ndataset: d\ntables: {t: {source: t.csv, unit: row, columns: {a: {type: date}, b: {type: date}}}}",
        folder=tmp_path,
    ).table("t")
    with pytest.raises(ParameterError, match="two bounds"):
        plan_table(table, ["a", "b"], masks, _shop(tmp_path))
