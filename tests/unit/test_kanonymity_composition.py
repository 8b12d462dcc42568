"""Two releases together, and rows added to a release."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.kanonymity.anonymize import anonymize, recode_table
from deniable.kanonymity.composition import compose, find_atoms, infer_means
from deniable.kanonymity.models import Closeness, DistinctDiversity, KAnonymity
from deniable.kanonymity.request import Request
from deniable.kanonymity.risk import examine
from deniable.kanonymity.update import recode_shown_rows, update_recoding
from deniable.policy.schema import Spec

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=25)


@settings(max_examples=150, deadline=None)
@given(pairs=PAIRS)
def test_atoms_are_determined_exactly_where_linear_algebra_says_so(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    made = find_atoms(first, second)
    equations = np.zeros((10, len(made.sizes)))
    for n, (a, b) in enumerate(zip(made.first, made.second, strict=True)):
        equations[a, n] = equations[5 + b, n] = 1.0
    rank = np.linalg.matrix_rank(equations)
    for n in range(len(made.sizes)):
        unit = np.zeros((1, len(made.sizes)))
        unit[0, n] = 1.0
        follows = np.linalg.matrix_rank(np.vstack([equations, unit])) == rank
        assert made.determined[n] == follows


@settings(max_examples=80, deadline=None)
@given(pairs=PAIRS)
def test_inferred_means_are_those_of_the_atoms(pairs: list[tuple[int, int]]) -> None:
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    values = np.random.default_rng(0).normal(size=len(pairs))
    means = [np.bincount(c, values, 5) / np.maximum(np.bincount(c, minlength=5), 1) for c in (first, second)]
    inferred = infer_means(first, second, *means)
    made = find_atoms(first, second)
    true = np.bincount(made.atom_of, values) / made.sizes
    known = made.determined[made.atom_of]
    assert np.isnan(inferred[~known]).all()
    assert np.allclose(inferred[known], true[made.atom_of][known])


def test_a_value_that_only_both_classes_have_becomes_certain() -> None:
    first, second = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    illness = np.array([0, 1, 1, 0])
    together = compose(first, second, 2, {"illness": illness})
    assert (together.k, together.atoms, together.exposed) == (1, 4, 4)
    assert together.certain == (("illness", 0),)
    sharper = compose(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), 2, {"illness": np.array([0, 1, 2, 0])})
    assert dict(sharper.certain)["illness"] == 2  # persons 1 and 4: {0, 1} meets {0, 2} in 0 alone


def test_the_same_release_twice_tells_nothing_new() -> None:
    classes = np.array([0, 0, 0, 1, 1, 1])
    together = compose(classes, classes, 3)
    assert (together.k, together.exposed, together.singled_out) == (3, 0, 0)


def test_people_who_are_in_one_release_only_are_left_out() -> None:
    together = compose(np.array([0, 0, -1]), np.array([0, 0, 0]), 2)
    assert (together.k, together.atoms) == (2, 1)
    with pytest.raises(ParameterError, match="different numbers"):
        compose(np.array([0]), np.array([0, 1]), 2)


LEVELS = {"age": Spec("intervals", {"widths": (10, 20, 40)})}


def people(ages: list[int], illness: list[str] | None = None) -> pa.Table:
    return pa.table({"age": ages, "illness": illness or ["flu", "cold"] * (len(ages) // 2) + ["flu"] * (len(ages) % 2)})


OLD = people([21, 22, 23, 24, 31, 32, 33, 34])
MODELS = (KAnonymity(3), DistinctDiversity("illness", 2))


def released() -> object:
    return anonymize(OLD, Request(("age",), MODELS, ("illness",)), LEVELS).recoding


def test_new_rows_that_meet_the_models_by_themselves_are_shown() -> None:
    recoding = released()
    new = people([25, 26, 27, 41])
    judged = update_recoding(recoding, new, MODELS)  # type: ignore[arg-type]
    assert (judged.shown, judged.waiting, judged.grown_classes, judged.new_classes) == (3, 1, 1, 0)
    assert recode_shown_rows(recoding, new, judged)["age"].to_pylist() == ["[20, 30)"] * 3  # type: ignore[arg-type]
    assert sum(judged.recoding.classes.sizes) == 11


def test_a_new_class_begins_when_enough_rows_of_it_arrive() -> None:
    judged = update_recoding(released(), people([71, 72, 73, 74]), MODELS)  # type: ignore[arg-type]
    assert (judged.new_classes, judged.shown) == (1, 4)
    again = update_recoding(judged.recoding, people([75, 76, 77]), MODELS)
    assert (again.new_classes, again.grown_classes) == (0, 1)


def test_too_few_new_rows_wait_even_in_a_large_class_since_both_versions_show_them_apart() -> None:
    judged = update_recoding(released(), people([25, 26]), MODELS)  # type: ignore[arg-type]
    assert (judged.shown, judged.waiting) == (0, 2)
    assert judged.search_again  # nothing may be suppressed in this release


def test_new_rows_without_diversity_wait() -> None:
    judged = update_recoding(released(), people([25, 26, 27], ["flu"] * 3), MODELS)  # type: ignore[arg-type]
    assert judged.shown == 0


def test_a_class_far_from_the_changed_table_is_reported_as_broken() -> None:
    models = (KAnonymity(2), Closeness("illness", 0.3))
    recoding = anonymize(OLD, Request(("age",), models, ("illness",)), LEVELS).recoding
    flood = people([25] * 200, ["rash"] * 200)
    judged = update_recoding(recoding, flood, models)
    assert judged.broken > 0
    assert judged.search_again


def test_updates_agree_with_recoding_everything() -> None:
    chance = np.random.default_rng(3)
    old, new = (people(chance.integers(20, 60, n).tolist()) for n in (200, 120))
    recoding = anonymize(old, Request(("age",), (KAnonymity(3),), ("illness",), suppress=0.05), LEVELS).recoding
    judged = update_recoding(recoding, new, (KAnonymity(3),))
    both = pa.concat_tables(
        [recode_table(old, recoding).cast(SCHEMA), recode_shown_rows(recoding, new, judged).cast(SCHEMA)]
    )
    assert examine(both, ("age",)).k >= 3
    held = judged.recoding.classes
    counts = {labels[0]: size for labels, size in zip(held.tuples, held.sizes, strict=True)}
    written = both.group_by("age").aggregate([("age", "count")]).to_pylist()
    assert counts == {row["age"]: row["age_count"] for row in written}


SCHEMA = pa.schema({"age": pa.string(), "illness": pa.string()})


def test_an_update_without_rows_changes_nothing() -> None:
    recoding = released()
    judged = update_recoding(recoding, OLD.slice(0, 0), MODELS)  # type: ignore[arg-type]
    assert (judged.rows, judged.shown, judged.broken) == (0, 0, 0)
