"""Columns as they are coded, cut, joined and grouped: exact results, by hand or by a naive twin."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.dp.accounting import ComposedEvent, GaussianEvent, NonPrivateEvent, NoOpEvent
from deniable.dp.accounting.analytic_gaussian import SMOOTHING
from deniable.dp.samplers import SYSTEM
from deniable.errors import InternalError, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, Spec, TableSchema
from deniable.synth import bins, describe, domain, encode, text_shapes
from deniable.synth.domain import Areas, Bins, Domain, Labels, ShapedText, Surrogate
from deniable.synth.marginal import GaussianBudget, Marginal, convert_budget
from seeded import SeededEntropy

EVENT = GaussianEvent(Fraction(1), Fraction(1))
LOUD = GaussianBudget(Fraction(10**9), 1, False)
"""So much that noise is 0 but for a probability below 1e-100: what is measured is what is there."""


def numbers(steps: int, *, nullable: bool = False, cuts: tuple[int, ...] | None = None) -> Bins:
    chosen = cuts or domain.equal_cuts(steps, min(steps, domain.BINS))
    return Bins("n", ColumnType.INTEGER, Fraction(0), Fraction(1), chosen, nullable)


# Cutting.


def test_rounds_are_as_many_as_parts_of_sixteen_can_be_needed() -> None:
    found = {steps: bins.count_rounds(numbers(steps)) for steps in (1, 256, 257, 4096, 4097, 65536, 65537)}
    assert found == {1: 0, 256: 0, 257: 2, 4096: 2, 4097: 3, 65536: 3, 65537: 4}


def test_parts_of_bins_are_sixteen_or_single_steps() -> None:
    first, last = bins._split_parts(np.array([0, 100]), np.array([32, 103]))
    assert first.tolist() == [*range(0, 32, 2), 100, 101, 102]
    assert last.tolist() == [*range(2, 34, 2), 101, 102, 103]


def test_records_are_counted_in_the_part_that_holds_them() -> None:
    places = np.array([0, 3, 4, 9, 10, 11, 14, 15, 99])
    assert bins._count_parts(places, np.array([4, 10]), np.array([10, 15])).tolist() == [2, 3]


def twin_of_cuts(steps: int, places: np.ndarray, deviation: float) -> tuple[set[int], int]:
    """Bins with a 64th of the records that are wider than one step are cut in 16, round by round."""
    cuts, rounds = set(domain.equal_cuts(steps, 256)), 0
    parts = list(zip(sorted(cuts)[:-1], sorted(cuts)[1:], strict=True))
    for _ in range(1 + math.ceil(math.log(steps / 256, 16))):
        rounds += 1
        held = {(a, b): int(((places >= a) & (places < b)).sum()) for a, b in parts}
        enough = max(places.size / 64, 4.5 * deviation)
        heavy = [part for part in parts if held[part] >= enough and part[1] - part[0] > 1]
        if not heavy:
            break
        parts = []
        for a, b in heavy:
            edges = sorted({a + i * (b - a) // 16 for i in range(17)})
            parts += list(itertools.pairwise(edges))
        cuts |= {a for a, _ in parts}
    return cuts, rounds


@pytest.mark.parametrize("steps", [5000, 70_000, 10**6])
@pytest.mark.parametrize("seed", [1, 2])
def test_cuts_are_those_of_a_twin_without_noise(steps: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    crowded = (np.abs(generator.normal(0, steps / 300, 3000)).astype(np.int64) + steps // 3) % steps
    places = np.concatenate([crowded, np.full(400, 17), generator.integers(0, steps, 200)])
    found, run = bins.cut_bins(numbers(steps), places, LOUD, 0.5, SYSTEM)
    cuts, rounds = twin_of_cuts(steps, places, 0.0)
    assert set(found.cuts) == cuts
    assert len(run) == rounds
    each = 0.5 / bins.count_rounds(numbers(steps))
    assert {marginal.event for marginal in run} == {GaussianEvent(LOUD.variance(each), Fraction(1))}
    assert list(found.cuts) == sorted(found.cuts)


@pytest.mark.parametrize(("records", "cut"), [(90, True), (89, False)])
def test_a_bin_is_cut_only_where_it_stands_out_of_the_noise(
    records: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(exact: Any, clique: Any, variance: Fraction, rows: int, entropy: Any) -> Marginal:
        return Marginal(clique, exact.astype(float), 400.0, EVENT)

    monkeypatch.setattr(bins, "measure_counts", count)
    found, run = bins.cut_bins(numbers(5000), np.full(records, 17), LOUD, 0.5, SYSTEM)
    assert (len(run) > 1, len(found.cuts) > 257) == (cut, cut)


def test_a_bin_is_cut_from_a_64th_of_the_records_of_the_first_round_on(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [20 * 40 + 3] * 100 + [20 * 80 + 3] * 99
    rest = np.arange(6400 - 199) % 60 * 20 + 20 * 150  # about a hundred in each of sixty bins, and one of them more
    found, _ = bins.cut_bins(numbers(5120), np.array([*at, *rest.tolist()]), LOUD, 0.5, SYSTEM)
    inner = set(found.cuts) - set(domain.equal_cuts(5120, 256))
    assert any(800 < cut < 820 for cut in inner)
    assert not any(1600 < cut < 1620 for cut in inner)


# Joining.


def test_a_collapsed_table_has_the_new_codes_and_their_members() -> None:
    maps = (np.array([0, 1, 1], dtype=np.int32), np.array([0, 1], dtype=np.int32))
    held = bins.CollapsedDomain(Domain(("a", "b"), (2, 2)), maps)
    assert held.apply(np.array([[0, 1, 2], [1, 0, 1]], dtype=np.int32)).tolist() == [[0, 1, 1], [1, 0, 1]]
    with pytest.raises(ValueError, match="shorter"):
        held.apply(np.array([[0, 1, 2]], dtype=np.int32))
    assert held.members(0, 1).tolist() == [1, 2]
    assert held.sum_counts(0, Marginal((0,), np.array([5.0, 2.0, 3.0]), 1.0, EVENT)).tolist() == [5.0, 5.0]
    assert held.sizes(0).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("counts", "mapping"),
    [
        ([30, 29.9, 100, 0], [0, 2, 1, 2]),
        ([29.9, 29.9], [0, 1]),
        ([30, 30, 29], [0, 1, 2]),
        ([30, 29, 29], [0, 1, 1]),
    ],
)
def test_rare_values_are_those_below_three_deviations(counts: list[float], mapping: list[int]) -> None:
    marginal = Marginal((0,), np.array(counts, dtype=float), 100.0, EVENT)
    collapsed = bins.collapse_domain(Domain(("a",), (len(counts),)), [marginal])
    assert collapsed.maps[0].tolist() == mapping
    assert collapsed.domain.sizes == (max(mapping) + 1,)


def test_neighbors_are_joined_until_a_32nd_of_the_records_and_three_deviations() -> None:
    ordered = Domain(("a",), (6,), frozenset({0}))

    def joined(counts: list[float], variance: float) -> list[int]:
        return bins.collapse_domain(ordered, [Marginal((0,), np.array(counts), variance, EVENT)]).maps[0].tolist()

    assert joined([30.0, 29.9, 12.6, 1.0, 0.0, 100.0], 100.0) == [0, 1, 1, 2, 2, 2]
    assert joined([30.0, 29.9, 12.5, 1.0, 0.0, 100.0], 100.0) == [0, 1, 1, 1, 1, 1]
    assert joined([320.0, 10.0, 0.0, 0.0, 0.0, 0.0], 0.0) == [0, 1, 1, 1, 1, 1]
    assert joined([310.0, 10.0, 0.0, 0.0, 0.0, 0.0], 0.0) == [0, 1, 2, 2, 2, 2]


# Grouping.


def test_the_largest_column_gives_way_until_a_table_is_small_enough() -> None:
    for shape in [(2, 5, 32), (7, 7), (3, 3, 3), (40,), (2, 2), (9, 8, 1), (100, 50, 2)]:
        for most in (1, 2, 3.5, 8, 20, 60, 1000, 10**6):
            sizes = list(shape)
            while math.prod(sizes) > most and max(sizes) > 2:
                sizes[sizes.index(max(sizes))] -= 1
            found = bins.choose_resolution(shape, most)
            assert found == tuple(sizes)


def test_groups_of_an_ordered_column_hold_alike_and_of_another_the_most_frequent() -> None:
    assert bins.group_codes(np.array([4.0, 4, 4, 4, 4, 4]), True, 3) == (0, 0, 1, 1, 2, 2)
    assert bins.group_codes(np.array([-5.0, 8, 1, 1, 1, 1]), True, 2) == (0, 0, 1, 1, 1, 1)
    assert bins.group_codes(np.array([0.0, 0.0, 0.0, 0.0]), True, 2) == (0, 0, 1, 1)
    assert bins.group_codes(np.array([5.0, 9, 9, 1, 7]), False, 3) == (2, 0, 1, 2, 2)
    assert bins.group_codes(np.array([5.0, 9, 9]), False, 3) == (0, 1, 2)
    assert bins.group_codes(np.array([5.0, 9, 9]), True, 3) == (0, 1, 2)
    assert bins.group_codes(np.array([0.0, 0, 0, 0, 9]), True, 4) == (0, 0, 0, 0, 1)


def test_a_table_is_added_up_by_groups_and_spread_over_them() -> None:
    table, maps = np.arange(12, dtype=float).reshape(3, 4), ((0, 1, 0), (0, 0, 1, 1))
    assert bins.sum_by_group(table, maps).tolist() == [[0 + 1 + 8 + 9, 2 + 3 + 10 + 11], [4 + 5, 6 + 7]]
    assert bins.sum_by_group(table, ((0, 1, 2), (0, 1, 2, 3))) is table
    assert bins.spread_groups(np.array([[1.0, 2.0], [3.0, 4.0]]), maps).tolist() == [
        [1, 1, 2, 2], [3, 3, 4, 4], [1, 1, 2, 2],
    ]  # fmt: skip


def test_a_grouped_clique_counts_by_group_and_knows_whether_it_is_coarser() -> None:
    codes = np.array([[0, 1, 2, 2], [0, 0, 1, 1], [1, 0, 1, 1]], dtype=np.int32)
    one = bins.GroupedClique((0, 2), ((0, 1, 1), (0, 1)))
    assert (one.shape, one.cells, one.coarser) == ((2, 2), 4, one.maps)
    assert one.count(codes).tolist() == [[0, 1], [1, 2]]
    assert bins.GroupedClique((0, 2), ((0, 1, 2), (0, 1))).coarser == ()
    grouped = bins.group_clique(
        Domain(("a", "b"), (4, 3), frozenset({0})), [np.ones(4), np.array([1.0, 5, 2])], (0, 1), 4
    )
    assert grouped == bins.GroupedClique((0, 1), ((0, 0, 1, 1), (1, 0, 1)))


# Shapes of texts.

RUNS = {
    "": [""],
    "Ann-7": ["A", "aa", "-", "9", ""],
    "ABCDEFGHIJKLMNO": ["A" * 12, ""],
    "é x\n": ["?", " ", "a", "?", ""],
    "1a1a1a1": ["9", "a", "9", "a", "9", "a", "9", ""],
    "1a1a1a1a": ["9", "a"] * 4,
    "1a1a1a1a1": ["9", "a"] * 4,
    "²": ["?", ""],
    "@@": ["@", "@", ""],
}


@pytest.mark.parametrize(("text", "runs"), RUNS.items())
def test_texts_are_split_into_runs(text: str, runs: list[str]) -> None:
    assert text_shapes.split_runs(text) == runs


def test_every_run_has_a_place_and_the_end_comes_first() -> None:
    assert len(text_shapes.TOKENS) == 1 + 3 * 12 + len(text_shapes.SIGNS) + 1 == len(text_shapes.PLACE)
    assert text_shapes.PLACE[""] == 0


def test_shapes_of_a_column_are_those_of_a_twin_without_noise() -> None:
    texts = ["Ann"] * 30 + ["Bob"] * 20 + ["x1"] * 40 + ["x2-a"] * 9 + ["1a1a1a1a1a"] * 25 + ["only one"]
    spend = GaussianBudget(Fraction(8), 1, False)

    def count(exact: Any, clique: Any, variance: Fraction, rows: int, entropy: Any) -> Marginal:
        assert (clique, variance, rows) == ((0,), spend.variance(0.5 / 8), 1)
        return Marginal(clique, exact.astype(float), float(variance), EVENT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_shapes, "measure_counts", count)
        shapes, measured = text_shapes.learn_shapes(pa.array([*texts, None]), spend, 0.5, SYSTEM)
    assert len(measured) == 8
    # A count of 4.5 deviations stands out: 4.5 * sqrt(2) is below 9 and above 1.
    assert sorted(shapes) == sorted(["Aaa", "a9", "a9-a", "9a" * 4 + text_shapes.OPEN])


def test_only_the_24_largest_continuations_are_kept() -> None:
    counts = np.array([float(n) for n in range(100)])
    kept = text_shapes._heavy_cells(Marginal((0,), counts, 100.0, EVENT))
    assert kept.tolist() == list(range(76, 100))
    few = text_shapes._heavy_cells(Marginal((0,), np.array([44.9, 45.0, 0.0, 99.0]), 100.0, EVENT))
    assert few.tolist() == [1, 3]


def test_learning_ends_where_no_beginning_is_left() -> None:
    shapes, measured = text_shapes.learn_shapes(pa.array(["ab"] * 100), LOUD, 1.0, SYSTEM)
    assert (shapes, len(measured)) == (("aa",), 2)
    assert {marginal.event for marginal in measured} == {GaussianEvent(LOUD.variance(1 / 8), Fraction(1))}
    nothing, run = text_shapes.learn_shapes(pa.array([None], pa.string()), LOUD, 1.0, SYSTEM)
    assert (nothing, len(run)) == ((), 1)


def test_a_text_has_the_shape_that_it_ends_with_or_begins_with() -> None:
    shapes = ["Aaa", "a9" + text_shapes.OPEN, "a", ""]
    texts = ["Ann", "Anne", "x1", "x1 and more", "x", "", "é", "Ann"]
    assert text_shapes.match_shapes(pa.array(texts), shapes).tolist() == [0, 4, 1, 1, 2, 3, 4, 0]
    assert text_shapes.match_shapes(pa.array([], pa.string()), shapes).tolist() == []


def test_made_texts_use_the_letters_of_no_name() -> None:
    made = text_shapes.generate_texts("Aa9-?" + text_shapes.OPEN, 500, np.random.default_rng(1)).to_pylist()
    assert all(re.fullmatch(r"[QVWXYZ][qvwxyz][0-9]-\?", text) for text in made)
    assert {text[0] for text in made} == set("QVWXYZ")
    assert {text[2] for text in made} == set("0123456789")
    assert text_shapes.generate_texts("", 2, np.random.default_rng(1)).to_pylist() == ["", ""]


# Domains and attributes.


def test_a_domain_refuses_what_is_no_domain_and_projects() -> None:
    for names, sizes in ((("a", "a"), (1, 1)), (("a",), (1, 2)), (("a", "b"), (1,))):
        with pytest.raises(ParameterError, match="one size for each"):
            Domain(names, sizes)
    with pytest.raises(ParameterError, match="has no value"):
        Domain(("a", "b"), (1, 0))
    held = Domain(("a", "b", "c"), (2, 3, 4), frozenset({1}))
    assert held.project((0, 2)) == Domain(("a", "c"), (2, 4))
    assert held.resize((1, 1, 1)) == Domain(("a", "b", "c"), (1, 1, 1), frozenset({1}))
    assert (held.shape((2, 0)), held.cells((0, 1, 2)), len(held)) == ((4, 2), 24, 3)


SPANS = [
    (ColumnType.INTEGER, Fraction(10), Fraction(5), (10, 20), (25, 45)),
    (ColumnType.DECIMAL, Fraction(0), Fraction(1, 4), (0.0, 0.5), (0.75, 1.75)),
    (ColumnType.DATE, Fraction(10957), Fraction(1), (date(2000, 1, 1), date(2000, 1, 3)),
     (date(2000, 1, 4), date(2000, 1, 8))),
    (ColumnType.DATETIME, Fraction(86400), Fraction(60), (datetime(1970, 1, 2), datetime(1970, 1, 2, 0, 2)),
     (datetime(1970, 1, 2, 0, 3), datetime(1970, 1, 2, 0, 7))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "lower", "step", "first", "rest"), SPANS)
def test_a_bin_spans_from_its_first_to_its_last_step(
    kind: ColumnType, lower: Fraction, step: Fraction, first: Any, rest: Any
) -> None:
    held = Bins("x", kind, lower, step, (0, 3, 7, 8), True)
    assert (held.steps, held.bins, held.size, replace(held, nullable=False).size) == (8, 3, 4, 3)
    assert held.span(0, 0) == first
    assert held.span(1, 2) == rest


@pytest.mark.parametrize(("steps", "parts"), [(10, 4), (256, 256), (1000, 256), (7, 3), (1, 1)])
def test_equal_cuts_differ_by_one_step_at_most(steps: int, parts: int) -> None:
    found = domain.equal_cuts(steps, parts)
    widths = [b - a for a, b in itertools.pairwise(found)]
    assert (found[0], found[-1], len(widths)) == (0, steps, parts)
    assert max(widths) - min(widths) <= 1
    assert found == tuple(math.ceil(Fraction(place * steps, parts)) for place in range(parts + 1))


def schema(*columns: Column) -> TableSchema:
    return TableSchema("t", "t.csv", columns, PrivacyUnit("id", 1, 1))


def test_attributes_follow_from_what_the_policy_declares() -> None:
    table = schema(
        Column("flag", ColumnType.BOOLEAN, nullable=True),
        Column("sex", ColumnType.TEXT, categories=("F", "M")),
        Column("id", ColumnType.INTEGER, role=Role.IDENTIFIER),
        Column("mail", ColumnType.DATE, role=Role.IDENTIFIER),
        Column("note", ColumnType.TEXT, nullable=True),
        Column("age", ColumnType.INTEGER, bounds=Bounds(0, 99, 1)),
        Column("pay", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1000), Fraction(1, 2))),
        Column("born", ColumnType.DATE, bounds=Bounds(date(1970, 1, 3), date(1970, 1, 5), 1)),
        Column("seen", ColumnType.DATETIME, bounds=Bounds(datetime(1970, 1, 1), datetime(1970, 1, 1, 1), 60)),
    )
    found = {attribute.name: attribute for attribute in domain.attributes_of(table)}
    nullable = {column.name: column.nullable for column in table.columns}
    assert found["flag"] == Labels("flag", ColumnType.BOOLEAN, (False, True), True)
    assert found["flag"].size == 3
    assert found["sex"] == Labels("sex", ColumnType.TEXT, ("F", "M"), nullable["sex"])
    assert found["id"] == Surrogate("id", ColumnType.INTEGER, "synthetic-id-")
    assert found["mail"] == Surrogate("mail", ColumnType.TEXT, "synthetic-mail-")
    assert found["note"] == ShapedText("note", ColumnType.TEXT, (), True)
    assert (found["note"].size, found["note"].labels) == (2, ("(any other text)",))
    one = Fraction(1)
    assert found["age"] == Bins("age", ColumnType.INTEGER, Fraction(0), one, tuple(range(101)), nullable["age"])
    assert found["pay"] == Bins(
        "pay", ColumnType.DECIMAL, Fraction(0), Fraction(1, 2), domain.equal_cuts(2001, 256), nullable["pay"]
    )
    assert found["born"] == Bins("born", ColumnType.DATE, Fraction(2), one, (0, 1, 2, 3), nullable["born"])
    assert found["seen"] == Bins("seen", ColumnType.DATETIME, Fraction(0), Fraction(60), tuple(range(62)),
                                 nullable["seen"])  # fmt: skip
    assert [a.name for a in domain.attributes_of(table, ("age", "sex"))] == ["sex", "age"]
    with pytest.raises(ParameterError, match="column 'x' of 't' has no public bounds"):
        domain.attributes_of(schema(Column("x", ColumnType.INTEGER)))


def test_types_of_values_follow_from_the_declared_type() -> None:
    def kind(of: ColumnType, binned: bool = True) -> pa.DataType:
        made = Bins("x", of, Fraction(0), Fraction(1), (0, 1), False) if binned else Labels("x", of, ("a",), False)
        return domain.arrow_type(made)

    assert [kind(of) for of in (ColumnType.DATE, ColumnType.DATETIME, ColumnType.INTEGER, ColumnType.DECIMAL)] == [
        pa.date32(), pa.timestamp("s"), pa.int64(), pa.float64(),
    ]  # fmt: skip
    assert [kind(of, False) for of in (ColumnType.DATE, ColumnType.TEXT, ColumnType.BOOLEAN, ColumnType.INTEGER)] == [
        pa.string(), pa.string(), pa.bool_(), pa.int64(),
    ]  # fmt: skip


# Areas.

ZIPS = ("101", "102", "111", "200")
HIERARCHIES: dict[str, tuple[Spec, list[list[int]]]] = {
    "tree": (
        Spec("tree", {"rows": (("101", "A", "X"), ("102", "A", "X"), ("111", "B", "X"))}),
        [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]],
    ),
    "redact": (Spec("redact", {}), [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]),
    "redact from the left": (Spec("redact", {"from": "left"}), [[0, 1, 0, 2], [0, 1, 2, 3]]),
    "prefix": (Spec("prefix", {"lengths": (2, 1)}), [[0, 0, 0, 1], [0, 0, 1, 2], [0, 1, 2, 3]]),
    "order by sizes": (Spec("order", {"sizes": (2,)}), [[0, 0, 1, 1], [0, 1, 2, 3]]),
    "order by groups": (Spec("order", {"groups": (("101", "111"), ("102",))}), [[0, 1, 0, 2], [0, 1, 2, 3]]),
}


@pytest.mark.parametrize("name", HIERARCHIES)
@pytest.mark.parametrize("nullable", [False, True])
def test_levels_of_areas_follow_the_declared_hierarchy(name: str, nullable: bool) -> None:
    told, levels = HIERARCHIES[name]
    column = Column("zip", ColumnType.TEXT, categories=ZIPS, hierarchy=told, nullable=nullable)
    other = Column("sex", ColumnType.TEXT, categories=("F", "M"))
    table = schema(Column("id", ColumnType.INTEGER, role=Role.IDENTIFIER), other, column)
    found = domain.find_areas(table, domain.attributes_of(table))
    assert found is not None
    assert found.place == 1
    assert [groups.tolist() for groups in found.levels] == [
        [*level, max(level) + 1] if nullable else level for level in levels
    ]


def test_a_tree_is_taken_before_other_hierarchies_unless_another_column_is_asked_for() -> None:
    told, tree = Spec("prefix", {"lengths": (1,)}), HIERARCHIES["tree"][0]
    a = Column("a", ColumnType.TEXT, categories=ZIPS, hierarchy=told)
    b = Column("b", ColumnType.TEXT, categories=ZIPS, hierarchy=tree)
    c = Column("c", ColumnType.TEXT, categories=ZIPS, hierarchy=tree)
    d = Column("d", ColumnType.TEXT, categories=ZIPS)
    table = schema(a, b, c, d)

    def place(name: str | None = None, *, of: TableSchema = table) -> int | None:
        found = domain.find_areas(of, domain.attributes_of(of), name)
        return None if found is None else found.place

    assert (place(), place("a"), place("c"), place(of=schema(d))) == (1, 0, 2, None)
    with pytest.raises(ParameterError, match="values of 'd' do not lie in one another") as refused:
        place("d")
    assert refused.value.remedy == "Declare them in the policy, or take 'a'"
    with pytest.raises(ParameterError) as refused:
        place("d", of=schema(d))
    assert refused.value.remedy == "Declare them in the policy"


def test_areas_that_cross_are_refused() -> None:
    with pytest.raises(ParameterError, match="an area lies in two others"):
        Areas(0, (np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]), np.arange(4)))
    assert Areas(0, (np.array([0, 0, 1]), np.arange(3))).place == 0


# Encoding.


def test_values_outside_the_declaration_are_null_or_the_first_code() -> None:
    labels = Labels("x", ColumnType.TEXT, ("a", "b"), True)
    values = pa.chunked_array([pa.array(["b", None]), pa.array(["z", "a"])])
    assert encode.encode_column(labels, values).tolist() == [1, 2, 2, 0]
    assert encode.encode_column(replace(labels, nullable=False), values).tolist() == [1, 0, 0, 0]
    assert encode.encode_column(labels, values.combine_chunks().dictionary_encode()).tolist() == [1, 2, 2, 0]
    shaped = ShapedText("x", ColumnType.TEXT, ("a", "A"), True)
    assert encode.encode_column(shaped, pa.array(["x", "X", "1", None, ""])).tolist() == [0, 1, 2, 3, 2]
    assert encode.encode_column(replace(shaped, nullable=False), pa.array(["X", None])).tolist() == [1, 0]


def test_numbers_are_coded_by_the_nearest_step_inside_their_bounds() -> None:
    held = Bins("x", ColumnType.DECIMAL, Fraction(10), Fraction(1, 2), (0, 2, 5), True)
    values = pa.array([9.0, 10.0, 10.7, 10.8, 12.0, 99.0, None, math.nan, -math.inf])
    steps, null = encode.find_steps(held, values)
    assert steps.tolist() == [0, 0, 1, 2, 4, 4, 0, 0, 0]
    assert null.tolist() == [False] * 6 + [True, True, False]
    assert encode.encode_column(held, values).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 0]
    assert encode.encode_column(replace(held, nullable=False), values).tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    days = Bins("x", ColumnType.DATE, Fraction(1), Fraction(1), (0, 1, 2), False)
    assert encode.encode_column(days, pa.array([date(1970, 1, 2), date(1970, 1, 3)])).tolist() == [0, 1]
    times = Bins("x", ColumnType.DATETIME, Fraction(0), Fraction(60), (0, 1, 2, 3), False)
    moments = pa.array([datetime(1970, 1, 1, 0, 0, 29), datetime(1970, 1, 1, 0, 1, 31)], pa.timestamp("us"))
    assert encode.encode_column(times, moments).tolist() == [0, 2]


def test_codes_become_values_of_their_own_type_again() -> None:
    generator = np.random.default_rng(1)
    codes = np.array([0, 1, 2, 1], dtype=np.int32)
    held = Bins("x", ColumnType.INTEGER, Fraction(10), Fraction(5), (0, 1, 4), True)
    made = [encode.decode_column(held, codes, generator).to_pylist() for _ in range(60)]
    assert {row[0] for row in made} == {10}
    assert {row[1] for row in made} == {15, 20, 25}
    assert {row[2] for row in made} == {None}
    place, missing = np.array([0, 3]), np.array([False, True])
    for kind, values in (
        (ColumnType.DATE, [date(1970, 1, 11), None]),
        (ColumnType.DATETIME, [datetime(1970, 1, 1, 0, 0, 10), None]),
        (ColumnType.DECIMAL, [10.0, None]),
        (ColumnType.INTEGER, [10, None]),
    ):
        assert encode.convert_steps(replace(held, type=kind), place, missing).to_pylist() == values
    hundredths = Bins("x", ColumnType.DECIMAL, Fraction(0), Fraction(1, 100), (0, 300), False)
    assert encode.convert_steps(hundredths, np.array([29, 57]), np.array([False, False])).to_pylist() == [0.29, 0.57]
    labels = Labels("x", ColumnType.TEXT, ("a", "b"), True)
    assert encode.decode_column(labels, codes, generator).to_pylist() == ["a", "b", None, "b"]
    shaped = ShapedText("x", ColumnType.TEXT, ("a9", "A"), True)
    texts = encode.decode_column(shaped, np.array([3, 1, 2, 0, 2], dtype=np.int32), generator).to_pylist()
    assert texts[0] is None
    assert re.fullmatch("[QVWXYZ]", texts[1])
    assert re.fullmatch(r"synthetic-x-\d{9}", texts[2])
    assert re.fullmatch("[qvwxyz][0-9]", texts[3])
    assert texts[2] != texts[4]


def test_surrogates_are_numbered_on_with_as_many_digits_as_the_total_has() -> None:
    whole = Surrogate("id", ColumnType.INTEGER, "p-")
    assert encode.generate_surrogates(whole, 3, 2, 100).to_pylist() == [4, 5]
    named = replace(whole, type=ColumnType.TEXT)
    assert encode.generate_surrogates(named, 8, 3, 100).to_pylist() == ["p-009", "p-010", "p-011"]
    assert encode.generate_surrogates(named, 0, 1, 0).to_pylist() == ["p-1"]


# Describing.


def test_a_description_costs_what_is_charged_before_and_no_more() -> None:
    budget = ZCDP(Fraction(1, 8))
    assert describe.price_description("auto", budget, 3) == GaussianEvent(Fraction(36), Fraction(9))
    assert describe.price_description("random", budget, 3) == NoOpEvent()
    whole = GaussianEvent(Fraction(4), Fraction(1))
    describe.check_double_entry(whole, budget)
    describe.check_double_entry(ComposedEvent((GaussianEvent(Fraction(8), Fraction(1)),) * 2), budget)
    spent = convert_budget(ApproxDP(1, 1e-6), 1)
    within = GaussianEvent(spent.variance(1.0), Fraction(1))
    describe.check_double_entry(within, ApproxDP(1, 1e-6))
    for event, held in (
        (GaussianEvent(Fraction(3999, 1000), Fraction(1)), budget),
        (GaussianEvent(within.variance / 2, Fraction(1)), ApproxDP(1, 1e-6)),
        (NonPrivateEvent(), budget),
        (NonPrivateEvent(), ApproxDP(1, 1e-6)),
        (NoOpEvent(), PureDP(1)),
    ):
        with pytest.raises(InternalError, match="cost more than its budget"):
            describe.check_double_entry(event, held)


def test_a_method_is_found_by_name_and_areas_are_asked_for_before_the_charge() -> None:
    assert describe.find_method("mst").name == "mst"
    with pytest.raises(ParameterError, match="no method 'mts'"):
        describe.find_method("mts")
    plain = schema(Column("a", ColumnType.TEXT, categories=("x", "y")), Column("b", ColumnType.BOOLEAN))
    describe.refuse_unsuited(plain, "auto", None, (("a", "b"),), None)
    with pytest.raises(ParameterError, match="no column's values lie in one another"):
        describe.refuse_unsuited(plain, "hierarchical", None, (), None)
    told = Column("zip", ColumnType.TEXT, categories=ZIPS, hierarchy=HIERARCHIES["prefix"][0])
    describe.refuse_unsuited(schema(told, Column("b", ColumnType.BOOLEAN)), "hierarchical", None, (), None)
    with pytest.raises(ParameterError, match="asks for 'c', which is not described"):
        describe.refuse_unsuited(plain, "auto", None, (("a", "c"),), None)


def test_a_workload_is_places_in_rising_order_and_single_columns_ask_for_nothing() -> None:
    held = Domain(("a", "b", "c"), (2, 2, 2))
    assert describe.cliques_of((("c", "a"), ("b",), ("b", "b"), ("a", "b", "c")), held) == ((0, 2), (0, 1, 2))
    assert describe._restrict_workload((("a", "z"), ("b", "c")), held) == (("a",), ("b", "c"))
    sexes = Labels("sex", ColumnType.TEXT, ("F", "M"), False)
    made = describe.domain_of((sexes, Surrogate("id", ColumnType.TEXT, ""), numbers(3)))
    assert made == Domain(("sex", "n"), (2, 3), frozenset({1}))
    with pytest.raises(ParameterError, match="no column can be synthesized"):
        describe.domain_of((Surrogate("id", ColumnType.TEXT, ""),))


def test_learning_takes_its_shares_and_leaves_the_rest() -> None:
    spend = GaussianBudget(Fraction(10**6), 1, False)
    rows = {
        "n": pa.chunked_array([pa.array([17] * 900 + [None] * 100)]),
        "m": pa.chunked_array([pa.array(range(1000))]),
        "t": pa.chunked_array([pa.array(["ab"] * 1000)]),
        "e": pa.chunked_array([pa.array([None] * 1000, pa.string())]),
    }
    few, shaped = numbers(10), ShapedText("t", ColumnType.TEXT, (), False)
    attributes = (replace(numbers(5000), name="n"), replace(numbers(5000), name="m"), shaped, replace(few, name="k"),
                  ShapedText("e", ColumnType.TEXT, (), False))  # fmt: skip
    found = describe.learn_open_columns(attributes, rows, spend, SeededEntropy(1))
    assert found.attributes[2] == replace(shaped, shapes=("aa",))
    assert found.attributes[3] == attributes[3]
    assert found.attributes[4] == Surrogate("e", ColumnType.TEXT, "synthetic-e-")
    cut = GaussianEvent(spend.variance(0.05 / 2 / 3), Fraction(1))
    shape = GaussianEvent(spend.variance(0.1 / 2 / 8), Fraction(1))
    told = Counter(found.events)
    assert set(told) == {cut, shape}
    assert told[shape] == 2 + 1
    spent = sum((event.sensitivity_squared / event.variance for event in found.events), Fraction(0))
    assert found.spend == replace(spend, amount=spend.amount - spent)
    smooth = replace(spend, smoothed=True)
    event = GaussianEvent(SMOOTHING + 2, Fraction(1))
    assert describe._subtract_events(smooth, (event,)).amount == spend.amount - Fraction(1, 2)


def test_texts_of_which_nothing_was_learned_are_made_anew_unless_nothing_is_left() -> None:
    empty = ShapedText("t", ColumnType.TEXT, (), False)
    anew = Surrogate("t", ColumnType.TEXT, "synthetic-t-")
    held = Labels("x", ColumnType.TEXT, ("a",), False)
    nullable, known = replace(empty, nullable=True), replace(empty, shapes=("a",))
    assert describe.replace_empty_texts((held, empty)) == (held, anew)
    assert describe.replace_empty_texts((held, nullable, known)) == (held, nullable, known)
    assert describe.replace_empty_texts((empty, anew)) == (empty, anew)


def test_people_are_held_out_with_all_their_rows() -> None:
    people = pa.table({"id": [*range(400), None], "x": range(401)})
    rows = pa.table({"id": pa.array([n % 401 for n in range(2000)], pa.int64()), "y": range(2000)})
    seen, held = describe.split_rows(rows, "id", 0.25)
    assert seen.num_rows + held.num_rows == 2000
    assert not set(seen["id"].to_pylist()) & set(held["id"].to_pylist())
    assert 40 < len(set(held["id"].to_pylist())) < 170
    alone, none = describe.split_rows(rows, None, 0.0)
    assert (alone.num_rows, none.num_rows) == (2000, 0)
    one_by_one = describe.split_rows(rows, None, 0.5)
    assert 800 < one_by_one[1].num_rows < 1200
    assert describe.split_rows(rows.slice(0, 0), "id", 0.5)[0].num_rows == 0
    (chosen, [theirs]), (others, [of_others]) = describe.split_people(people, [rows], "id", 0.5)
    assert chosen is not None
    assert others is not None
    assert set(theirs["id"].to_pylist()) <= set(chosen["id"].to_pylist())
    assert set(of_others["id"].to_pylist()) <= set(others["id"].to_pylist())
    (nobody, [some]), (no_other, [rest]) = describe.split_people(None, [rows], "id", 0.5)
    assert (nobody, no_other) == (None, None)
    assert some.num_rows + rest.num_rows == 2000
    assert describe._number_units(pa.chunked_array([pa.array(["b", None, "a", "b"])])).tolist() == [0, 2, 1, 0]


def test_rows_are_bounded_by_a_rank_under_a_secret() -> None:
    table = schema(Column("id", ColumnType.INTEGER), Column('a"b', ColumnType.TEXT), Column("c", ColumnType.TEXT))
    assert describe.render_bounded_select(table, PrivacyUnit(), 3, ("c",)) == 'SELECT "c" FROM "t"'
    made = {describe.render_bounded_select(table, PrivacyUnit("id", 1, 1), 3, None) for _ in range(3)}
    assert len(made) == 3
    pattern = re.escape(
        'SELECT "id", "a""b", "c" FROM (SELECT *, row_number() OVER (PARTITION BY "id" ORDER BY '
        'hash(hash(CAST(SECRET AS UBIGINT), "id", "a""b", "c", _copy))) AS _rank FROM (SELECT *, row_number() OVER '
        '(PARTITION BY "id", "a""b", "c" ORDER BY "id") AS _copy FROM "t" WHERE "id" IS NOT NULL) AS n) AS t '
        "WHERE _rank <= 3"
    ).replace("SECRET", r"(\d+)")
    for text in made:
        found = re.fullmatch(pattern, text)
        assert found is not None
        assert int(found[1]) < 1 << 63
    many = [int(re.findall(r"CAST\((\d+)", describe.render_bounded_select(table, PrivacyUnit("id", 1, 1), 3, None))[0])
            for _ in range(40)]  # fmt: skip
    assert max(many) > 1 << 61


@pytest.mark.parametrize(("lower", "upper", "step"), [(0, 100, 1), (0, 2**60, 1), (-(2**60) + 1, 2**60, 1), (0, 96, 8)])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.int8()])
def test_whole_numbers_of_any_size_are_clamped_and_coded_exactly(
    lower: int, upper: int, step: int, kind: pa.DataType
) -> None:
    held = np.iinfo(str(kind))
    ends = (lower, upper, held.min, held.max, 2**53, 2**59, 0, 50)
    values = sorted({v + d for v in ends for d in (-1, 0, 1) if held.min <= v + d <= held.max})
    steps = (upper - lower) // step + 1
    attribute = Bins("a", ColumnType.INTEGER, Fraction(lower), Fraction(step), domain.equal_cuts(steps, 5), True)
    found, null = encode.find_steps(attribute, pa.array([*values, None], kind))
    twin = [(min(max(value, lower), upper) - lower + step // 2) // step for value in values]
    assert found[:-1].tolist() == twin
    assert null.tolist() == [False] * len(values) + [True]
    coded = encode.encode_column(attribute, pa.array(values, kind))
    assert all(attribute.cuts[c] <= place < attribute.cuts[c + 1] for c, place in zip(coded, twin, strict=True))


def test_numbers_that_floats_cannot_hold_are_coded_in_a_decimal_column_too() -> None:
    attribute = Bins("a", ColumnType.DECIMAL, Fraction(0), Fraction(1, 10), domain.equal_cuts(1001, 5), True)
    assert encode.find_steps(attribute, pa.array([2**53 + 1, -(2**62) - 1, 3]))[0].tolist() == [1000, 0, 30]


@pytest.mark.parametrize(("lower", "upper", "step"), [(-(2**62), 2**62, 2), (0, 2**64, 2**20)])
def test_bounds_beyond_64_bits_are_refused_from_the_policy(lower: int, upper: int, step: int) -> None:
    column = Column("a", ColumnType.INTEGER, bounds=Bounds(lower, upper, Fraction(step)))
    with pytest.raises(ParameterError, match="too large"):
        domain.attributes_of(TableSchema("t", "t.csv", (column,), PrivacyUnit()))
