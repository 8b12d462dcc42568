"""Our audit on a tabulation: the sound one stays under its claim; its broken twins are caught.

The twins: one level has too little noise, one level is not charged, exact numbers that were said to be private,
a sample that is known, a survey whose noise is made for people who stand for one person each, and one whose spread is
measured beside the total and not charged."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.assess.mechanism_audit import Claim, Subject, audit_subject
from deniable.curator.query.hierarchy import write_question
from deniable.dp.accounting.analytic_gaussian import ratio_within
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.geography.spine import Cells, Spine, find_variance, plan_noise
from deniable.geography.survey import draw_sample, find_inner
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query import execute as execution
from deniable.query.compile import compile_query
from deniable.query.plan import QueryPlan
from seeded import SeededEntropy

EPSILON, DELTA = Fraction(2), Fraction(1, 100)
TREE = Spine.of(("state", "town"), [["a", "a", "b"], ["a1", "a2", "b1"]])
CELLS = Cells(("sex",), (("F", "M"),))
MARGINS = [((), Fraction(1)), (("sex",), Fraction(1))]
OTHERS = ((0, 0), (1, 1), (2, 0))
Person = tuple[int, int]
"""A town and a sex."""


def count(design: Any, people: tuple[Person, ...], level: int, mapped: Any) -> Any:
    up, size = TREE.find_ancestors(level), int(mapped.max()) + 1
    exact = np.zeros(TREE.sizes[level] * size, np.int64)
    for town, sex in people:
        exact[up[town] * size + mapped[sex]] += 1
    return exact


def make_subject(twin: str, first: tuple[Person, ...], second: tuple[Person, ...]) -> Subject:
    """Everything that is measured of two tables, as the score by which the two are best told apart."""
    budget, replaced = ApproxDP(EPSILON, DELTA), len(first) == len(second)
    design = plan_noise(budget, TREE, CELLS, MARGINS, None, reach=1, replaced=replaced)
    entropy = SeededEntropy(5)

    def choose_noise(level: int, margin: int) -> Any:
        noises = design.noises[level]
        assert noises is not None
        if twin == "little noise in towns" and level == 2:
            return GaussianMechanism(noises[margin].event.variance / 16)
        if twin == "states not charged" and level == 1:  # as much noise as the whole budget pays for, beside the others
            return GaussianMechanism(ratio_within(EPSILON, DELTA) or Fraction(1))
        return noises[margin]

    def run(people: tuple[Person, ...], runs: int) -> Any:
        score = np.zeros(runs)
        for level in range(TREE.depth):
            for margin, mapped in enumerate(design.maps):
                noise = choose_noise(level, margin)
                away = count(design, second, level, mapped) - count(design, first, level, mapped)
                exact = count(design, people, level, mapped)
                shown = noise.release(np.tile(exact, runs), entropy).reshape(runs, -1)
                score += shown @ away / find_variance(noise)
        if "exact" in twin:
            totals = count(design, people, 1, CELLS.map_margin(()))
            return np.column_stack([score, np.tile(totals, (runs, 1))])
        return score[:, None]

    return Subject(twin, run, ((first, second),))


@pytest.mark.parametrize(
    ("twin", "first", "second", "broken"),
    [
        ("sound", OTHERS, (*OTHERS, (0, 0)), False),
        ("exact totals", (*OTHERS, (0, 0)), (*OTHERS, (1, 1)), False),
        ("little noise in towns", OTHERS, (*OTHERS, (0, 0)), True),
        ("states not charged", OTHERS, (*OTHERS, (0, 0)), True),
        ("exact totals, said to be private", (*OTHERS, (0, 0)), (*OTHERS, (2, 0)), True),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_tabulation_is_caught_and_the_sound_one_is_not(
    twin: str, first: tuple[Person, ...], second: tuple[Person, ...], broken: bool
) -> None:
    found = audit_subject(make_subject(twin, first, second), Claim("tabulation", EPSILON, DELTA, runs=12_000))
    assert found.failed is broken, found.audit["sentence"]


@pytest.mark.parametrize(("secret", "broken"), [(True, False), (False, True)], ids=["secret sample", "known sample"])
def test_a_sample_saves_noise_only_where_it_is_secret(secret: bool, broken: bool) -> None:
    """The twin knows who was taken: everybody is counted, with the noise that a secret sample of one in 4 may have."""
    claimed, weight, entropy = Fraction(1), 4, SeededEntropy(6)
    noise = LaplaceMechanism.within(PureDP(find_inner(claimed, weight)), 1)

    def run(people: int, runs: int) -> Any:
        taken = draw_sample(people * runs, weight, entropy) if secret else np.ones(people * runs, bool)
        return noise.release(taken.reshape(runs, people).sum(axis=1), entropy)[:, None]

    found = audit_subject(Subject("a sample", run, ((3, 4),)), Claim("tabulation", claimed, Fraction(0), runs=12_000))
    assert found.failed is broken, found.audit["sentence"]


SURVEYED = [{"pid": i, "works": i % 2, "weight": 20} for i in range(4)]
"""Each of them stands for twenty people."""


COLUMNS = {"pid": None, "works": Bounds(0, 1), "weight": Bounds(1, 20)}
SURVEY = TableSchema(
    "survey", "survey.parquet",
    tuple(Column(name, ColumnType.INTEGER, bounds=bounds) for name, bounds in COLUMNS.items()),
    PrivacyUnit("pid", 1, 1),
)  # fmt: skip


class NoNoise:
    """A mechanism that keeps the whole number that noise would be added to."""

    def release(self, values: Any, entropy: Any) -> Any:
        (self.kept,) = values
        return np.asarray(values)


def add_up(plan: QueryPlan, people: list[dict[str, int]]) -> list[int]:
    """The exact sums, in parts of the steps of the plan."""
    (node,) = plan.nodes
    bare = [NoNoise() for _ in node.steps[0].placed]
    placed = tuple(replace(each, mechanism=none) for each, none in zip(node.steps[0].placed, bare, strict=True))
    shown = replace(plan, nodes=(replace(node, steps=(replace(node.steps[0], placed=placed),)),))
    execution.measure(shown, clinic.engine((SURVEY,), survey=pa.Table.from_pylist(people)))
    return [int(each.kept) for each in bare]


@pytest.mark.parametrize(
    ("twin", "less", "broken"),
    [("sound", 1, False), ("the weights are forgotten", 20, True), ("the spread is not charged", 2, True)],
)
def test_a_weighted_survey_whose_noise_forgets_the_weights_or_the_spread_is_caught(
    twin: str, less: int, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without a person who works and stands for twenty: total and spread move as far as can be."""
    monkeypatch.setattr(execution, "check", lambda plan: None)  # the second entry would refuse a plan without noise
    claimed, entropy = PureDP(Fraction(2)), SeededEntropy(9)
    plan = compile_query(write_question("survey", "works", weight="weight"), (SURVEY,), claimed)
    made = [each.mechanism for each in plan.nodes[0].steps[0].placed]
    noises = [replace(each, scale=each.scale / less) for each in made if isinstance(each, LaplaceMechanism)]
    worker = {"pid": 9, "works": 1, "weight": 20}
    pair = (add_up(plan, SURVEYED), add_up(plan, [*SURVEYED, worker]))
    moved = [(b - a) / float(noise.sensitivity) for a, b, noise in zip(*pair, made, strict=True)]  # type: ignore[arg-type]
    assert moved == [1.0, 1.0]

    def run(exact: list[int], runs: int) -> Any:
        shown = [noise.release(np.full(runs, each), entropy) for noise, each in zip(noises, exact, strict=True)]
        return np.column_stack([(each - first) / float(noise.scale)
                                for each, first, noise in zip(shown, pair[0], noises, strict=True)])  # fmt: skip

    found = audit_subject(Subject(twin, run, (pair,)), Claim("weighted", claimed.epsilon, runs=12_000))
    assert found.failed is broken, found.audit["sentence"]
