"""Shapes of texts and cuts of numbers: learned within the budget, protected by noise, and nothing else is learned."""

from __future__ import annotations

import json
import random
import string
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import GaussianEvent
from deniable.dp.samplers import SYSTEM
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, TableSchema
from deniable.synth import text_shapes
from deniable.synth.bins import cut_bins
from deniable.synth.describe import CUT_SHARE, SHAPE_SHARE, describe_table, learn_open_columns
from deniable.synth.domain import Bins, ShapedText, Surrogate, attributes_of, equal_cuts
from deniable.synth.encode import decode_column, encode_column
from deniable.synth.generate import generate
from deniable.synth.marginal import convert_budget
from deniable.synth.model import from_plain, load, save, to_plain

LOUD = convert_budget(ZCDP(10_000), 1)
"""So much budget that noise is below one: what is learned is what is there."""


def _table(*columns: Column) -> TableSchema:
    return TableSchema("t", "t.csv", columns, PrivacyUnit())


@given(st.text(max_size=30))
@settings(max_examples=200, deadline=None)
def test_a_made_text_has_the_shape_it_was_made_for(text: str) -> None:
    found = text_shapes.split_runs(text)
    if found[-1] == text_shapes.END:
        shape = "".join(found)
        (made,) = text_shapes.generate_texts(shape, 1, np.random.default_rng(1)).to_pylist()
        # Anything unlisted is written as a question mark, which is itself unlisted, so the shape comes back.
        assert text_shapes.split_runs(made) == found


def test_shapes_that_stand_out_are_learned_and_texts_of_them_are_made() -> None:
    phones = [f"({i % 1000:03d}) {i % 997:03d}-{i % 9973:04d}" for i in range(3000)]
    found, measured = text_shapes.learn_shapes(pa.array(phones + [None] * 9 + ["once!"]), LOUD, 1.0, SYSTEM)
    assert "(999) 999-9999" in found
    assert len(measured) <= text_shapes.RUNS
    attribute = ShapedText("phone", ColumnType.TEXT, ("(999) 999-9999",), True)
    codes = encode_column(attribute, pa.array(["(617) 555-1234", "elsewhere", None]))
    assert codes.tolist() == [0, 1, 2]
    made = decode_column(attribute, np.array([0, 1, 2, 0], dtype=np.int32), np.random.default_rng(0)).to_pylist()
    assert text_shapes.split_runs(made[0]) == text_shapes.split_runs("(617) 555-1234")
    assert made[1].startswith("synthetic-phone-")
    assert made[2] is None


def test_a_beginning_without_a_common_end_ends_there() -> None:
    letters = random.Random(4)
    texts = ["Room " + "".join(letters.choice(string.printable) for _ in range(9)) for _ in range(2000)]
    spend = convert_budget(ZCDP(2), 1)
    found, _ = text_shapes.learn_shapes(pa.array(texts), spend, 1.0, SYSTEM)
    assert any(shape.startswith("Aaaa ") and shape.endswith(text_shapes.OPEN) for shape in found)
    assert text_shapes.match_shapes(pa.array(["Room %!x"]), ("Aaaa " + text_shapes.OPEN,)).tolist() == [0]


def test_a_text_that_one_person_has_stays_below_the_noise() -> None:
    # A count of 1 would have to pass 4.5 deviations of at least 20: a Gaussian tail below 5e-6 a cell. Three cells in
    # turn must pass it before a shape begins with these runs: below 1e-15.
    rows = pa.array(["abc"] * 4000 + ["Zq9-Zq9-Zq9"])
    spend = convert_budget(ApproxDP(1, 1e-6), 1)
    found, measured = text_shapes.learn_shapes(rows, spend, 0.1, SYSTEM)
    assert all(marginal.variance > 20**2 for marginal in measured)
    assert not [shape for shape in found if shape.startswith("Aa9")]


def test_what_learning_takes_and_what_it_leaves_add_up_to_the_budget() -> None:
    table = _table(
        Column("note"),
        Column("income", ColumnType.INTEGER, bounds=Bounds(0, 99_999)),
        Column("sex", categories=("F", "M")),
    )
    rows = {
        "note": pa.chunked_array([["a b", "c"] * 500]),
        "income": pa.chunked_array([[0, 5000] * 500]),
        "sex": pa.chunked_array([["F", "M"] * 500]),
    }
    for budget, most in ((ApproxDP(1, 1e-6), 1), (ApproxDP(3, 1e-9), 4), (ZCDP("0.3"), 2)):
        whole = convert_budget(budget, most)
        learned = learn_open_columns(attributes_of(table), rows, whole)
        worth = sum((e.sensitivity_squared / e.variance for e in learned.events), Fraction(0))
        assert worth + learned.spend.amount <= whole.amount
        assert learned.spend.amount >= whole.amount * Fraction(1 - CUT_SHARE - SHAPE_SHARE - 0.001)


@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=60), st.integers(0, 59))
@settings(max_examples=40, deadline=None)
def test_one_record_moves_the_counts_of_a_cutting_round_by_at_most_one(values: list[int], gone: int) -> None:
    """Sensitivity by brute force: the exact counts of every round, with and without one record."""
    from deniable.synth import bins as cutting

    attribute = Bins("x", ColumnType.INTEGER, Fraction(0), Fraction(1), equal_cuts(100_000, 256), False)
    learned, _ = cut_bins(attribute, np.array(values), LOUD, 0.9, SYSTEM)
    edges = np.array(learned.cuts)
    fewer = np.delete(np.array(values), gone % len(values))
    with_it, without = (cutting._count_parts(places, edges[:-1], edges[1:]) for places in (np.array(values), fewer))
    assert np.abs(with_it - without).sum() == 1


def test_a_value_that_many_share_gets_a_bin_of_its_own_and_comes_back() -> None:
    rng = np.random.default_rng(3)
    values = np.where(rng.random(20_000) < 0.7, 0, rng.integers(1, 100_000, 20_000))
    attribute = Bins("x", ColumnType.INTEGER, Fraction(0), Fraction(1), equal_cuts(100_000, 256), False)
    learned, measured = cut_bins(attribute, values, LOUD, 0.9, SYSTEM)
    assert learned.span(0, 0) == (0, 0)
    assert len(measured) == 3  # bins of 391 steps, then parts of 24, then of one or two
    model = describe_table(
        pa.table({"x": values}),
        _table(Column("x", ColumnType.INTEGER, bounds=Bounds(0, 99_999), nullable=False)),
        ApproxDP(2, 1e-6),
    )
    made = np.array(generate(model, 10_000, 1)["x"].to_pylist())
    # 14,000 of 20,000 are zero; the noise on that bin has a deviation below 20 of 20,000 records.
    assert np.mean(made == 0) == pytest.approx(0.7, abs=0.02)


@given(
    st.integers(1, 5000).flatmap(
        lambda steps: st.tuples(st.just(steps), st.lists(st.integers(1, max(steps - 1, 1)), max_size=20, unique=True))
    ),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_codes_of_any_cuts_decode_into_their_own_bin(case: tuple[int, list[int]], nullable: bool) -> None:
    steps, inner = case
    cuts = tuple(sorted({0, steps, *(c for c in inner if c < steps)}))
    attribute = Bins("x", ColumnType.DECIMAL, Fraction(-3), Fraction(1, 4), cuts, nullable)
    codes = np.arange(attribute.size, dtype=np.int32)
    values = decode_column(attribute, codes, np.random.default_rng(2))
    assert encode_column(attribute, values).tolist() == codes.tolist()


ORIGINAL = pa.schema(
    [
        ("small", pa.int16()),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("naive", pa.timestamp("ms")),
        ("flag", pa.bool_()),
        ("ratio", pa.float32()),
        ("code", pa.large_string()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("number", pa.int32()),
    ]
)
DECLARED = (
    Column("small", ColumnType.INTEGER, bounds=Bounds(0, 100)),
    Column("price", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(999), Fraction(1, 100))),
    Column("day", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2024, 12, 31))),
    Column("moment", ColumnType.DATETIME, bounds=Bounds(datetime(2020, 1, 1), datetime(2020, 12, 31), Fraction(60))),
    Column("naive", ColumnType.DATETIME, bounds=Bounds(datetime(2020, 1, 1), datetime(2020, 1, 2))),
    Column("flag", ColumnType.BOOLEAN),
    Column("ratio", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1), Fraction(1, 8))),
    Column("code"),
    Column("kind", categories=("a", "b")),
    Column("number", ColumnType.INTEGER, Role.IDENTIFIER),
)


def _typed_rows(count: int) -> pa.Table:
    plain = [
        {
            "small": i % 101,
            "price": Decimal(i % 90_000) / 100,
            "day": date(2021, 1 + i % 12, 1 + i % 28),
            "moment": datetime(2020, 1 + i % 12, 1, i % 24, i % 60),
            "naive": datetime(2020, 1, 1, i % 24),
            "flag": i % 2 == 0,
            "ratio": (i % 9) / 8,
            "code": f"{i:05d}",
            "kind": "ab"[i % 2],
            "number": i,
        }
        for i in range(count)
    ]
    nulled = [
        {k: None if (i + j) % 11 == 0 else v for j, (k, v) in enumerate(row.items())} for i, row in enumerate(plain)
    ]
    return pa.Table.from_pylist(nulled, schema=ORIGINAL)


@pytest.mark.parametrize("rows", [0, 1, 2000])
def test_declared_types_formats_and_nulls_come_back_whatever_types_the_rows_had(rows: int, tmp_path: Path) -> None:
    model = describe_table(_typed_rows(rows), _table(*DECLARED), ApproxDP(2, 1e-6))
    save(model, tmp_path / "m.json")
    made = generate(load(tmp_path / "m.json"), 400, 3)
    kinds = {"price": "double", "day": "date32[day]", "moment": "timestamp[s]", "naive": "timestamp[s]", "flag": "bool"}
    kinds |= {"ratio": "double", "code": "string", "kind": "string"}
    assert [str(kind) for kind in made.schema.types] == [kinds.get(name, "int64") for name in ORIGINAL.names]
    assert made["number"].to_pylist() == list(range(1, 401))
    for name, low, high in (("small", 0, 100), ("price", 0, 999), ("day", date(2020, 1, 1), date(2024, 12, 31))):
        assert all(v is None or low <= v <= high for v in made[name].to_pylist())
    assert all(v is None or v.second == 0 for v in made["moment"].to_pylist())
    assert all(v is None or v == round(v, 2) for v in made["price"].to_pylist())
    if rows == 2000:
        # 181 records of each column are null, and the noise on that count has a deviation below 30: one column without
        # a null is 6 deviations, and all nine would have to be.
        assert sum(made[name].null_count for name in ORIGINAL.names) > 0


def test_a_policy_of_texts_alone_never_fails_whatever_the_rows_say() -> None:
    table = _table(Column("note", nullable=False))
    for rows in ([], ["x"], [f"{i}-{'ab'[i % 2]}" for i in range(3000)]):
        made = generate(describe_table(pa.table({"note": pa.array(rows, pa.string())}), table, ApproxDP(1, 1e-6)), 20)
        assert made.num_rows == 20
        assert made["note"].null_count == 0


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("method", ["auto", "mst", "correlated", "independent"])
def test_edge_tables_are_described_and_drawn(rows: int, method: str) -> None:
    constant = _table(Column("only", categories=("x",), nullable=False))
    wide = _table(
        Column("many", ColumnType.INTEGER, categories=tuple(range(1000))),
        Column("same", categories=("x",), nullable=False),
    )
    for table, plain in ((constant, {"only": ["x"] * rows}), (wide, {"many": list(range(rows)), "same": ["x"] * rows})):
        columns = {n: pa.array(v, pa.int64() if n == "many" else pa.string()) for n, v in plain.items()}
        made = generate(describe_table(pa.table(columns), table, ApproxDP(1, 1e-6), method), 50)
        assert made.num_rows == 50
        assert all(value in (None, "x", *range(1000)) for column in made.columns for value in column.to_pylist())


SECRETS = ("xk-canary-7719", "Ünïque Ñame", "4111-1111-1111-1111", "zz@secret.example")


def test_planted_unique_texts_are_nowhere_in_the_model_file(tmp_path: Path) -> None:
    table = _table(Column("id", role=Role.IDENTIFIER), Column("note"), Column("kind", categories=("a", "b")))
    rows = pa.table(
        {
            "id": [f"{SECRETS[0]}-{i}" for i in range(300)],
            "note": [SECRETS[i % 4] if i < 4 else f"ordinary {i % 10}" for i in range(300)],
            "kind": ["c" if i < 4 else "ab"[i % 2] for i in range(300)],
        }
    )
    model = describe_table(rows, table, ApproxDP(1, 1e-6))
    save(model, tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert not [secret for secret in SECRETS if secret in text or json.dumps(secret)[1:-1] in text]
    assert "ordinary" not in text
    made = json.dumps(generate(model, 200).to_pylist())
    assert not [secret for secret in (*SECRETS, "ordinary") if secret in made]


def test_models_with_equal_bins_of_the_second_form_are_still_read() -> None:
    table = _table(Column("age", ColumnType.INTEGER, bounds=Bounds(0, 999), nullable=False))
    plain = to_plain(describe_table(pa.table({"age": [1, 2, 3]}), table, ZCDP("0.001")))
    entry = plain["attributes"][0]
    old = {**entry, "steps": 1000, "bins": 256}
    del old["cuts"]
    held = {**plain, "form": "deniable synthetic model, version 2", "attributes": [old]}
    (attribute,) = from_plain(held).attributes
    assert isinstance(attribute, Bins)
    assert attribute.cuts == equal_cuts(1000, 256)


def test_learning_runs_gaussian_measurements_alone() -> None:
    rows = {"note": pa.chunked_array([["a"] * 50])}
    learned = learn_open_columns(
        attributes_of(_table(Column("note", nullable=False))), rows, convert_budget(ZCDP("0.1"), 3)
    )
    assert learned.events
    assert all(isinstance(e, GaussianEvent) and e.sensitivity_squared == 9 for e in learned.events)
    assert isinstance(learned.attributes[0], ShapedText | Surrogate)
