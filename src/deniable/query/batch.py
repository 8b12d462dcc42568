"""A batch of questions as one workload: what is measured for all of them together, and how each answer follows.

**Joining.** Questions over the same rows with the same bounds on contributions become one question without WHERE and
GROUP BY: each of their aggregates carries its WHERE as a condition, and once more for each public group the condition
that a row is in it. What is made of that is decided by `joint`, as for the aggregates of any question. Each question
finds its own numbers among those that were measured, and is finished from them as from its own.

**Bounds.** A question by groups counts up to max_groups times max_rows_per_group rows of a person, one without groups
up to max_rows_per_group. Joined, the largest of these is the bound on a person's rows over all cells together.

**Shares.** A batch of k different questions has k equal shares of the budget; questions that are joined have theirs
together. They are joined only where no number of theirs gets more noise than it has when its question is asked alone
with its share. What is left is measured alone, each question with its own share. The parts are composed by adding up.

This module sees no data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product

import numpy as np

from deniable.errors import InternalError, QueryRefused
from deniable.policy.budget import Budget, split
from deniable.policy.schema import Bounding
from deniable.query.algebra.expression import (
    ColumnRef,
    Expression,
    Kind,
    Value,
    columns_of,
    count_after,
    substitute,
)
from deniable.query.algebra.functions import join_tests, test_key
from deniable.query.algebra.relation import (
    MOST_JOINED_WORK,
    MOST_WORK,
    Field,
    Measured,
    NoisyAggregate,
    Relation,
    Scan,
    Transform,
    bound_work,
    scan_table,
)
from deniable.query.algebra.relation import MOST_TERMS as MOST_WRITTEN
from deniable.query.canonical import arrange, restore
from deniable.query.compile import plan_relation
from deniable.query.double_entry import count_enforced_groups
from deniable.query.execute import Noisy, NoisyResults, Reader, read_public_keys
from deniable.query.joint import MOST_PARTS, NUMBER, is_joinable
from deniable.query.keys import MOST_TERMS, Listed, PublicKeys
from deniable.query.measurements import Recipe
from deniable.query.plan import GROUPS, IN_ALL, IN_EACH, Placed, QueryPlan, Step
from deniable.query.sql.binder import find_fan_out
from deniable.query.sql.clauses import Clauses

Bounds = tuple[tuple[str, str], ...]
Key = tuple[Value, ...]
PLAIN_KEYS = (Kind.INTEGER, Kind.TEXT, Kind.BOOLEAN, Kind.DATE)
"""Kinds of keys that are the same in a question, in a policy and in what an engine gives."""
EQUAL = 1e-9
"""What rounding may do to a deviation."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of a batch: its plan where it is asked alone with an equal share, and the bounds that it states."""

    plan: QueryPlan
    bounds: Bounds = ()
    weighted: bool = False
    """Whether it divides its budget by weights of its own."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A question over the rows that it shares with others: nothing is chosen or grouped yet."""

    base: Relation
    keys: tuple[Expression, ...]
    aggregates: tuple[NoisyAggregate, ...]
    condition: Expression | None

    @property
    def subjects(self) -> frozenset[str]:
        """The columns that decide which of its numbers a row counts for."""
        tests = [*self.keys, *(each.condition for each in self.aggregates), self.condition]
        return frozenset().union(*(columns_of(each) for each in tests if each is not None))

    @property
    def values(self) -> frozenset[str]:
        """The columns that it adds up."""
        return frozenset().union(*(columns_of(each.argument) for each in self.aggregates if each.argument is not None))


Steps = tuple[Mapping[Key, tuple[int, ...]], ...]
"""For each grouping set and each of its groups, the places of its measurements in the joint release."""


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What is measured at once, for one question of a batch or for several."""

    plan: QueryPlan
    share: Fraction
    """The part of the batch's budget that it costs."""
    questions: Mapping[int, Steps | None]
    """By their places in the batch, the questions that follow from it; None where it is the question itself."""
    alone: str = ""
    """Why it is measured alone; empty where several questions are joined."""


def plan_batch(questions: Sequence[Question], asked: Budget, pure: bool = False) -> tuple[BatchPart, ...]:
    """The parts of a batch in an order that does not depend on that of the questions."""
    same: dict[str, list[int]] = {}
    for place in sorted(range(len(questions)), key=lambda i: questions[i].plan.canonical):
        same.setdefault(questions[place].plan.canonical, []).append(place)
    paid = [places for places in same.values() if not questions[places[0]].plan.free]
    batch = _Batch(questions, asked, pure, len(paid))
    parts = [
        BatchPart(questions[places[0]].plan, Fraction(0), dict.fromkeys(places), "it costs nothing")
        for places in same.values()
        if questions[places[0]].plan.free
    ]
    waiting: dict[tuple[Relation, Bounds], Group] = {}
    for places in paid:
        found = batch.spread(places[0])
        if isinstance(found, str):
            parts.append(batch.leave_alone(places, found))
        else:
            waiting.setdefault((found.base, questions[places[0]].bounds), []).append((places, found))
    for group in waiting.values():
        parts += batch.join_best(group)
    return tuple(sorted(parts, key=lambda part: part.plan.canonical))


Group = list[tuple[list[int], Spread]]
"""Different questions over the same rows: the places of each in the batch, and what it asks."""
Joined = tuple[BatchPart, float]
MOST_NUMBERS = 2_000
"""Numbers of questions that are joined, over all their groups."""
PLAN_SECONDS = 30
"""How long it may take to find which questions are joined, over all that is tried."""
MOST_TRIED = 300
"""Numbers of all questions together that are joined on trial, beyond the first ways of joining."""


def _may_gain(left: Group, right: Group) -> bool:
    """Whether some look at the columns of others: conditions on different columns are measured as well apart."""
    seen, asked = ({name for _, each in side for name in each.subjects} for side in (left, right))
    return bool(seen & asked) or not seen or not asked


def count_paid(plans: Iterable[QueryPlan]) -> int:
    """How many different questions of a batch cost something: each of them has one share."""
    return len({plan.canonical for plan in plans if not plan.free})


@dataclass(frozen=True, slots=True)
class _Batch:
    questions: Sequence[Question]
    asked: Budget
    pure: bool
    count: int
    clock: Clauses = field(default_factory=lambda: Clauses("a batch", seconds=PLAN_SECONDS))
    spreads: dict[int, Spread | str] = field(default_factory=dict)
    """Questions as they were spread before: a question is tried with several others."""

    def spread(self, place: int) -> Spread | str:
        if place not in self.spreads:
            self.spreads[place] = spread_question(self.questions[place])
        return self.spreads[place]

    def leave_alone(self, places: list[int], why: str) -> BatchPart:
        return BatchPart(self.questions[places[0]].plan, Fraction(1, self.count), dict.fromkeys(places), why)

    def join_best(self, group: Group) -> list[BatchPart]:
        """All questions of a group joined; or where that errs more, those that go well together."""
        if len(group) == 1:
            why = "it is the only one" if self.count == 1 else "no other question is over the same rows and bounds"
            return [self.leave_alone(group[0][0], why)]
        whole = self._try_join(group)
        joined = [(group, whole)] if whole is not None else self._join_some(group)
        why = "joined with others, it would not err less than alone"
        return [made[0] if made is not None else self.leave_alone(members[0][0], why) for members, made in joined]

    def _join_some(self, group: Group) -> list[tuple[Group, Joined | None]]:
        """Questions of the same columns first; then each with those before it, where that makes errors less."""
        alike: dict[tuple[frozenset[str], frozenset[str]], Group] = {}
        for each in group:
            alike.setdefault((each[1].subjects, each[1].values), []).append(each)
        starts: list[tuple[Group, Joined | None]] = []
        for cluster in alike.values():
            made = self._try_join(cluster) if 1 < len(cluster) < len(group) else None
            starts += [(cluster, made)] if made is not None else [([each], None) for each in cluster]
        found: list[tuple[Group, Joined | None]] = []
        left = MOST_TRIED  # numbers and no time: the same batch is always joined in the same way
        for cluster, alone in starts:
            best: tuple[float, int, Group, Joined] | None = None
            for place, (members, made) in enumerate(found):
                asked = sum(_count_numbers(self.questions[places[0]].plan) for places, _ in members + cluster)
                if asked > left or not _may_gain(members, cluster):
                    continue
                left -= asked
                both = self._try_join(members + cluster)
                if both is not None:
                    gain = both[1] - sum(each[1] for each in (made, alone) if each is not None)
                    if gain < -EQUAL and (best is None or gain < best[0]):
                        best = (gain, place, members + cluster, both)
            if best is None:
                found.append((cluster, alone))
            else:
                found[best[1]] = best[2:]
        return found

    def _try_join(self, group: Group) -> Joined | None:
        """A part for some questions, and the sum of logarithms of what their deviations are multiplied by."""
        self.clock.refuse_late()
        if sum(_count_numbers(self.questions[places[0]].plan) for places, _ in group) > MOST_NUMBERS:
            return None
        plans = {place: self.questions[place] for places, _ in group for place in places}
        spreads = {place: self.spread(place) for place in plans}
        node, cells = _build_node({place: each for place, each in spreads.items() if isinstance(each, Spread)}, plans)
        if len(cells) < len(plans) or _is_costly(node):
            return None
        share = Fraction(len(group), self.count)
        options = _bound_together(list(plans.values()))
        text = ";\n".join(dict.fromkeys(question.plan.text for question in plans.values()))
        part = split(self.asked, (share, 1 - share))[0] if share < 1 else self.asked
        # The time is that of the batch: a few joined questions may take longer than one question does.
        clauses = replace(self.clock, text=text, options=options, pure=self.pure)
        try:
            plan = plan_relation(text, node, clauses, part)
        except QueryRefused:
            clauses.refuse_late()  # how a batch is joined must not depend on how long that took
            return None
        found = {place: _place_steps(plans[place].plan, cells[place], plan) for place in plans}
        steps = {place: each for place, each in found.items() if each is not None}
        if len(steps) < len(found):
            return None
        gain = 0.0
        for places, _ in group:
            each = _compare_noise(plans[places[0]].plan, steps[places[0]], plan)
            if each is None:
                return None
            gain += each
        return (BatchPart(plan, share, steps), gain) if gain < -EQUAL else None


def spread_question(question: Question) -> Spread | str:
    """A question written over the rows below its row-wise steps; or why it is not joined with others."""
    plan = question.plan
    if len(plan.nodes) != 1:
        return "it measures in several steps"
    node = plan.nodes[0]
    if question.weighted:
        return "it has weights of its own"
    if not all(is_joinable(each) for each in node.measurements):
        return "only COUNT, SUM, AVG and VARIANCE are measured together"
    if plan.unit is not None and plan.unit.bounding is Bounding.SCALE:
        return "contributions are scaled (bounding: scale)"
    if any(not _is_listed(node.node, step) for step in node.steps):
        return f"its groups are not listed in the policy, or are more than {MOST_PARTS}"
    return _write_over_base(node.node) or "its expressions are too long"


def _count_numbers(plan: QueryPlan) -> int:
    (node,) = plan.nodes
    keys = [step.keys for step in node.steps]
    return len(node.recipes) * sum((each.cells or 1) if isinstance(each, PublicKeys) else 1 for each in keys)


def _is_listed(node: Measured, step: Step) -> bool:
    if not isinstance(step.keys, PublicKeys) or not all(isinstance(part, Listed) for part in step.keys.parts):
        return False
    plain = all(node.keys[place][1].facts.kind in PLAIN_KEYS for place in step.places)
    return plain and (step.keys.cells or 0) <= MOST_PARTS


def _write_over_base(node: Measured) -> Spread | None:
    """The keys, aggregates and conditions of a node over the fields below all row-wise transformations."""
    relation, tests = node.input, list[Expression]()
    keys = [each for _, each in node.keys]
    wanted = [each for _, each in node.aggregates]

    def rewrite(fields: dict[str, Expression]) -> None:
        nonlocal tests, keys, wanted
        tests, keys = [substitute(each, fields) for each in tests], [substitute(each, fields) for each in keys]
        wanted = [
            replace(each, argument=each.argument and substitute(each.argument, fields),
                    condition=each.condition and substitute(each.condition, fields)) for each in wanted
        ]  # fmt: skip

    while isinstance(relation, Transform):
        fields = dict(relation.projections)
        every = [*tests, *keys, *(e for each in wanted for e in (each.argument, each.condition) if e is not None)]
        if sum(count_after(each, fields) for each in every) > MOST_TERMS:
            return None
        rewrite(fields)
        # A predicate stands below the projections of its own transformation.
        tests += [relation.predicate] if relation.predicate is not None else []
        relation = relation.input
    if isinstance(relation, Scan):
        named = scan_table(relation.table, relation.table.name, relation.owners)
        both = zip(relation.fields, named.fields, strict=True)
        rewrite({old.name: ColumnRef(new.name, old.facts) for old, new in both})
        relation = named
    return Spread(relation, tuple(keys), tuple(wanted), join_tests(tests))


Cells = list[dict[Key, range]]
"""For each grouping set and each of its groups, the aggregates of the joint node that are its own."""


def _build_node(spreads: Mapping[int, Spread], questions: Mapping[int, Question]) -> tuple[Measured, dict[int, Cells]]:
    """One node without groups for several questions, and where the aggregates of each are in it."""
    made: list[NoisyAggregate] = []
    cells: dict[int, Cells] = {}
    for place, spread in spreads.items():
        cells[place] = []
        for step in questions[place].plan.nodes[0].steps:
            assert isinstance(step.keys, PublicKeys)
            values = {part.place: part.values for part in step.keys.parts if isinstance(part, Listed)}
            groups: dict[Key, range] = {}
            for key in product(*(values[each] for each in step.places)):
                tests = [test_key(spread.keys[each], value) for each, value in zip(step.places, key, strict=True)]
                groups[key] = range(len(made), len(made) + len(spread.aggregates))
                within = join_tests([spread.condition, *tests])
                made += [replace(each, condition=join_tests([within, each.condition])) for each in spread.aggregates]
            cells[place].append(groups)
    base = next(iter(spreads.values())).base
    named = tuple((f"a{i}", each) for i, each in enumerate(made))
    return Measured(base, (), ((),), named, tuple(Field(name, NUMBER) for name, _ in named), "m0"), cells


def _is_costly(node: Measured) -> bool:
    """Whether one row could take longer than a question may; see `relation`."""
    work, terms = bound_work(node)
    return terms > MOST_WRITTEN or work > MOST_WORK or work * find_fan_out(node)[1] > MOST_JOINED_WORK


def _bound_together(questions: Sequence[Question]) -> dict[str, str]:
    """The bounds of a joint question: those that its questions state, or the largest number of rows they count."""
    options = dict(questions[0].bounds)
    steps = [step for question in questions for step in question.plan.nodes[0].steps]
    if any(step.limits.by_row or step.limits.in_all for step in steps):
        return options
    most = max((count_enforced_groups(step) or 1) * (step.limits.rows or 1) for step in steps)
    if most == max(step.limits.rows or 1 for step in steps):
        return options
    kept = {name: value for name, value in options.items() if name not in (GROUPS, IN_EACH)}
    return {**kept, IN_ALL: str(most)}


def _place_steps(question: QueryPlan, cells: Cells, joint: QueryPlan) -> Steps | None:
    """For each group of a question, where its measurements are in the joint release; None where one is not there."""
    own, all_recipes = question.nodes[0], joint.nodes[0].recipes
    count = len(own.measurements)
    found = []
    for groups in cells:
        placed: dict[Key, tuple[int, ...]] = {}
        for key, mine in groups.items():
            places = [-1] * count
            for recipe, other in zip(own.recipes, (all_recipes[i] for i in mine), strict=True):
                if _strip_places(recipe) != _strip_places(other):
                    return None
                for at, where in zip(recipe.places, other.places, strict=True):
                    places[at] = where
            if -1 in places:
                return None
            placed[key] = tuple(places)
        found.append(placed)
    return tuple(found)


def _strip_places(recipe: Recipe) -> Recipe:
    return replace(recipe, places=(), column=0)


def _compare_noise(question: QueryPlan, steps: Steps, joint: QueryPlan) -> float | None:
    """The mean logarithm of what the deviations of a question are multiplied by; None where one of them grows."""
    given, found = joint.nodes[0].steps[0].placed, []
    for step, groups in zip(question.nodes[0].steps, steps, strict=True):
        for places in groups.values():
            for alone, place in zip(step.placed, places, strict=True):
                now = given[place].deviation
                if now > alone.deviation * (1 + EQUAL):
                    return None
                found += [math.log(now / alone.deviation)] if now and alone.deviation else []
    return sum(found) / max(len(found), 1)


# -- from what was measured to answers ---------------------------------------------------------------------------------


def show_plan(question: QueryPlan, place: int, part: BatchPart, cost: Budget) -> QueryPlan:
    """A question's plan as it is shown: with the noise that its numbers have, at the price of the whole batch.

    Of the groups of one grouping set, the one with the largest error stands for all.
    """
    steps = part.questions[place]
    if steps is None:
        shared = tuple(replace(node, steps=tuple(_share(step, part.share) for step in node.steps))
                       for node in question.nodes)  # fmt: skip
        return question if question.free else replace(question, nodes=shared, cost=cost)
    joint, node = part.plan.nodes[0].steps[0], question.nodes[0]
    made = []
    for step, groups in zip(node.steps, steps, strict=True):
        worst = [max((joint.placed[places[i]] for places in groups.values()), key=lambda each: each.deviation)
                 for i in range(len(step.placed))]  # fmt: skip
        placed = tuple(_restate(own, far, part.share) for own, far in zip(step.placed, worst, strict=True))
        made.append(replace(step, limits=joint.limits, placed=placed, joints=()))
    return replace(question, nodes=(replace(node, steps=tuple(made)),), cost=cost)


def _share(step: Step, share: Fraction) -> Step:
    """A step with its shares of the batch's budget instead of its own."""
    placed = tuple(replace(each, share=each.share * share) for each in step.placed)
    return replace(step, placed=placed, threshold_share=step.threshold_share * share)


def _restate(own: Placed, far: Placed, share: Fraction) -> Placed:
    return replace(far, column=own.column, measurement=own.measurement, share=far.share * share)


def read_answer(
    question: QueryPlan, place: int, part: BatchPart, measured: NoisyResults, reader: Reader
) -> NoisyResults:
    """The measurements of one question from those of its part; the reader is asked for public keys alone."""
    steps = part.questions[place]
    if steps is None:
        return restore(question, arrange(part.plan, measured))
    (joint,), node = measured[part.plan.nodes[0].node.name], question.nodes[0]
    found = []
    for step, groups in zip(node.steps, steps, strict=True):
        keys = read_public_keys(step, reader)
        names = [f"k{each}" for each in step.places]
        listed = zip(*(keys.column(name).to_pylist() for name in names), strict=True) if names else [()]
        places = [groups.get(key) for key in listed]
        if any(each is None for each in places):
            raise InternalError("a group of a batch was not measured")
        values = tuple(
            np.array([joint.values[each[i]][0] for each in places if each is not None], dtype=np.int64)
            for i in range(len(step.placed))
        )
        found.append(Noisy(keys, values))
    return {node.node.name: tuple(found)}
