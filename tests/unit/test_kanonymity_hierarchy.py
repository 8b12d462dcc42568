from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.builders.categories import Order, Prefix, Redact, build_groups, parse_tree, read_tree
from deniable.kanonymity.builders.numbers import (
    Brackets,
    Coordinates,
    Dates,
    Geohash,
    Intervals,
    Quantiles,
    Rounding,
    TailCoded,
    encode_geohash,
)
from deniable.kanonymity.builders.specs import BUILDERS, draft_column, freeze_spec, make_builder, resolve_spec
from deniable.kanonymity.encoding import encode_column
from deniable.kanonymity.hierarchy import Hierarchy, from_rows
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.schema import Column, Spec


def labels(built: Hierarchy, leaf: str) -> tuple[str | None, ...]:
    return next(row for row in built.rows() if row[0] == leaf)


def test_the_age_brackets_of_health_statistics_are_there_out_of_the_box() -> None:
    built = Brackets().hierarchy("age", pa.array([14, 15, 23, 69, 70, 101]))
    assert labels(built, "14") == ("14", "[0, 15)", "*")
    assert labels(built, "15") == ("15", "[15, 24)", "*")
    assert labels(built, "69")[1] == "[55, 70)"
    assert labels(built, "101")[1] == "[70, inf)"


def test_equal_intervals_nest_and_start_where_they_are_told() -> None:
    built = Intervals((5, 10), start=2).hierarchy("x", pa.array([2, 6, 7, 11, -1]))
    assert labels(built, "6") == ("6", "[2, 7)", "[2, 12)", "*")
    assert labels(built, "-1") == ("-1", "[-3, 2)", "[-8, 2)", "*")


def test_widths_that_do_not_divide_each_other_are_refused_with_the_group_they_split() -> None:
    with pytest.raises(ParameterError, match="level 2 splits a group of level 1"):
        Intervals((5, 7)).hierarchy("x", pa.array(range(30)))


def test_quantile_edges_give_groups_of_about_one_size_and_freeze_as_brackets() -> None:
    values = pa.array(np.arange(100))
    built = Quantiles((4, 2)).hierarchy("x", values)
    assert np.bincount(built.levels[1].groups).max() <= 26
    kept = freeze_spec(Spec("intervals", {"quantiles": (4, 2)}), built, values)
    again = make_builder(kept).hierarchy("x", pa.array([0, 99]))
    assert kept.kind == "brackets"
    assert again.height == built.height


def test_rounding_keeps_numbers() -> None:
    assert labels(Rounding((10, 100)).hierarchy("x", pa.array([17, 234])), "234") == ("234", "230", "200", "*")


def test_redaction_pads_and_hides_from_either_side() -> None:
    assert labels(Redact().hierarchy("zip", pa.array(["02139"])), "02139")[1:3] == ("0213*", "021**")
    assert labels(Redact("left").hierarchy("zip", pa.array(["02139"])), "02139")[1] == "*2139"
    assert labels(Redact(keep=3).hierarchy("zip", pa.array(["02139"])), "02139") == ("02139", "0213*", "021**", "*")


def test_prefixes_shorten() -> None:
    assert labels(Prefix((3, 1)).hierarchy("icd", pa.array(["E11.9"])), "E11.9") == ("E11.9", "E11", "E", "*")


def test_dates_become_coarser_along_the_calendar_or_along_the_clock() -> None:
    built = Dates(("month", "quarter", "year", "decade")).hierarchy("d", pa.array([date(1987, 5, 17)]))
    assert labels(built, "1987-05-17") == ("1987-05-17", "1987-05", "1987-Q2", "1987", "1980s", "*")
    moment = pa.array([datetime(2024, 1, 15, 8, 30)])
    clock = next(iter(Dates(("hour", "part_of_day")).hierarchy("t", moment).rows()))
    assert clock[1:3] == ("2024-01-15 08h", "2024-01-15 morning")
    rhythm = next(iter(Dates(("weekday",)).hierarchy("t", moment).rows()))
    assert rhythm[1] == "Monday"
    assert next(iter(Dates(("month", "season")).hierarchy("t", moment).rows()))[1:3] == ("January", "winter")


def test_weeks_that_reach_into_two_months_are_cut_so_that_they_nest() -> None:
    built = Dates(("week", "month")).hierarchy("d", pa.array([date(2024, 1, 31), date(2024, 2, 1)]))
    assert [row[1] for row in built.rows()] == ["2024-W05 in 2024-01", "2024-W05 in 2024-02"]
    assert Dates(("week",)).hierarchy("d", pa.array([date(2024, 1, 31)])).levels[1].labels == ("2024-W05",)


def test_parts_of_a_date_in_the_wrong_order_are_refused_with_the_group_they_split() -> None:
    with pytest.raises(ParameterError, match="level 2 splits a group of level 1"):
        Dates(("year", "month")).hierarchy("d", pa.array([date(2024, 1, 31), date(2024, 2, 1)]))


def test_calendar_words_and_cycles_are_not_mixed() -> None:
    with pytest.raises(ParameterError, match="'year' belongs to the calendar"):
        Dates(("weekday", "year"))


def test_trees_read_from_arx_files_yaml_nesting_and_groups(tmp_path: Path) -> None:
    file = tmp_path / "drug.csv"
    file.write_text("Advil 200;Advil;ibuprofen;*\nNurofen 400;Nurofen;ibuprofen;*\nTylenol;Tylenol;paracetamol;*\n")
    built = read_tree(file).hierarchy("drug", pa.array([]))
    assert labels(built, "Advil 200") == ("Advil 200", "Advil", "ibuprofen", "*")
    inline = parse_tree({"any": {"north": ["Oslo", "Bergen"], "south": ["Rome"]}}).hierarchy("city", pa.array([]))
    assert labels(inline, "Oslo") == ("Oslo", "north", "any")
    assert labels(build_groups([["a", "b"], ["c"]]).hierarchy("x", pa.array([])), "b") == ("b", "{a, b}", "*")


def test_groups_by_order_follow_the_declared_categories() -> None:
    column = Column("grade", categories=("low", "mid", "high", "top"), hierarchy=Spec("order", {"sizes": (2,)}))
    spec = resolve_spec(column, {})
    assert spec is not None
    assert labels(make_builder(spec).hierarchy("grade", pa.array(["top"])), "mid") == ("mid", "low to mid", "*")
    assert labels(Order((2,)).hierarchy("n", pa.array([3, 1, 2])), "3") == ("3", "3", "*")


def test_coordinates_are_cut_downwards_also_below_zero_and_despite_binary_fractions() -> None:
    built = Coordinates((2, 1)).hierarchy("lat", pa.array([0.29, -0.291]))
    assert labels(built, "0.29")[1:3] == ("0.29", "0.2")
    assert labels(built, "-0.291")[1:3] == ("-0.30", "-0.3")


def test_geohashes_are_those_of_the_published_example_and_shorten() -> None:
    assert encode_geohash(np.array([57.64911]), np.array([10.40744]), 11) == ["u4pruydqqvj"]
    assert labels(Geohash((5, 3)).hierarchy("g", pa.array(["u4pruyd"])), "u4pruyd") == ("u4pruyd", "u4pru", "u4p", "*")


def test_top_and_bottom_coding_merges_the_tails_and_opens_the_groups_that_hold_them() -> None:
    coded = TailCoded(Intervals((10, 50)), bottom=5, top=88)
    built = coded.hierarchy("age", pa.array([1, 3, 55, 84, 88, 93, 97]))
    assert labels_of(built) == [
        ("<= 5", "(-inf, 10)", "(-inf, 50)", "*"),
        ("<= 5", "(-inf, 10)", "(-inf, 50)", "*"),
        ("55", "[50, 60)", "[50, inf)", "*"),
        ("84", "[80, inf)", "[50, inf)", "*"),
        (">= 88", "[80, inf)", "[50, inf)", "*"),
        (">= 88", "[80, inf)", "[50, inf)", "*"),
        (">= 88", "[80, inf)", "[50, inf)", "*"),
    ]


def test_coded_tails_have_the_same_levels_whatever_values_come() -> None:
    coded = TailCoded(Intervals((10, 50)), top=88)
    for values in ([1, 2], [90, 99], [88], []):
        assert coded.hierarchy("age", pa.array(values, pa.int64())).height == 4


def labels_of(built: Hierarchy) -> list[tuple[str | None, ...]]:
    return list(built.rows())


def test_a_file_that_is_no_tree_is_refused_with_the_rows(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="one leaf stands in rows 1 and 3"):
        from_rows("x", [("a", "A"), ("b", "A"), ("a", "B")])
    with pytest.raises(ParameterError, match="level 2 splits the group 'A' of level 1"):
        from_rows("x", [("a", "A", "1"), ("b", "A", "2")])
    with pytest.raises(ParameterError, match="Row 2 of the hierarchy of 'x' has 1 fields"):
        from_rows("x", [("a", "A"), ("b",)])
    empty = tmp_path / "e.csv"
    empty.write_text("\n")
    with pytest.raises(DataError, match="is empty"):
        read_tree(empty)
    with pytest.raises(DataError, match="no hierarchy file"):
        read_tree(tmp_path / "absent.csv")
    (tmp_path / "latin.csv").write_bytes(b"caf\xe9;*\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_tree(tmp_path / "latin.csv")


def test_values_that_are_no_leaves_are_refused_and_never_shown() -> None:
    tree = from_rows("city", [("Oslo", "N"), ("Rome", "S")])
    column = pa.chunked_array([["Oslo", "Secret", "Rome", "Hidden"]])
    with pytest.raises(DataError, match=r"^Values of column 'city' are not among the leaves") as e:
        encode_column("city", column, tree)
    assert "Secret" not in str(e.value)


def test_a_missing_value_is_a_leaf_of_its_own_until_a_level_says_nothing() -> None:
    coded_column = encode_column(
        "city", pa.chunked_array([["Oslo", None]]), from_rows("city", [("Oslo", "N"), ("Rome", "S")])
    )
    built = coded_column.hierarchy
    assert list(built.rows())[-1] == (None, None, "*")
    assert coded_column.codes.tolist() == [0, 2]


def test_nan_counts_as_missing() -> None:
    assert encode_column("x", pa.chunked_array([[1.5, float("nan"), None]]), None).hierarchy.leaves[-1] is None


def test_text_in_a_hierarchy_of_numbers_is_refused_without_showing_it() -> None:
    with pytest.raises(DataError, match="not numbers") as e:
        Intervals((5,)).hierarchy("age", pa.array(["12", "secret"]))
    assert "secret" not in str(e.value)


def test_drafts_follow_type_and_shape() -> None:
    table = pa.table(
        {
            "zip": [f"{n:05}" for n in range(20)],
            "age": list(range(20, 100, 4)),
            "born": [date(1950 + n, 1, 1) for n in range(20)],
            "sex": ["F", "M"] * 10,
        }
    )
    drafted = {name: draft_column(table[name].combine_chunks()) for name in table.column_names}
    assert [drafted[name].kind for name in table.column_names] == ["redact", "intervals", "dates", "withhold"]
    for name, spec in drafted.items():
        assert encode_column(name, table[name], spec).hierarchy.levels[-1].size == 1


def test_every_kind_of_the_policy_grammar_has_a_builder() -> None:
    known = {kind for kind, _ in BUILDERS}
    assert {kind.name for kind in HIERARCHIES.kinds} - {"like"} <= known


@pytest.mark.parametrize("values", [pa.array([], pa.int64()), pa.array([7])])
def test_columns_without_or_with_one_value_have_hierarchies(values: pa.Array) -> None:
    assert Intervals((5,)).hierarchy("x", values).size == len(values)
    assert encode_column("x", pa.chunked_array([values]), None).codes.tolist() == [0] * len(values)


def test_unknown_kinds_name_the_nearest() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'redact'"):
        make_builder(Spec("redcat", {}))


@pytest.mark.parametrize(
    ("values", "kind"),
    [(range(1, 10), "withhold"), (range(5), "withhold"), (range(20, 30), "intervals"), ((1, 50, 99), "intervals")],
)
def test_whole_numbers_that_count_through_kinds_are_no_amounts(values: Sequence[int], kind: str) -> None:
    drafted = draft_column(pa.array(values))
    assert drafted.kind == kind
    assert all(width >= 1 for width in drafted.options.get("widths", ()))  # type: ignore[attr-defined]


def test_codes_are_cut_where_they_have_one_form_and_dates_of_several_forms_are_not() -> None:
    days = [f"{day:02}" for day in range(1, 29)]
    one = pa.array([f"{day}/03/2021" for day in days])
    same_length = pa.array([f"{day}/03/2021" for day in days] + [f"2021-03-{day}" for day in days])
    several = pa.array([f"{day}.3.21" for day in days] + [f"2021-03-{day}" for day in days] + ["3 May 2021"])
    codes = pa.array([f"K{n}" for n in range(200)])
    kinds = [draft_column(values).kind for values in (one, same_length, several, codes)]
    assert kinds == ["redact", "withhold", "withhold", "prefix"]


def test_a_bottom_that_is_not_below_its_top_is_refused_wherever_each_comes_from() -> None:
    for kind, options in (("intervals", {"widths": (10,)}), ("rounding", {"to": (10,)}), ("withhold", {})):
        for bottom in (5, 25):
            with pytest.raises(ParameterError, match="bottom of a hierarchy is not below"):
                make_builder(Spec(kind, {**options, "top": 5, "bottom": bottom}))


def test_an_empty_label_is_refused_and_an_empty_leaf_is_not(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text("a;;*\nb;B;*\n")
    with pytest.raises(ParameterError, match="has an empty label above the leaf"):
        read_tree(tmp_path / "tree.csv").hierarchy("g", pa.array(["a", "b"]))
    assert from_rows("g", [("", "B"), ("b", "B")]).size == 2
