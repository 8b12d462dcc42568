"""Replace-one neighbors of quantiles: where everybody is in one group, a replaced unit's values are exchanged there."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import clinic
from deniable.errors import InternalError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.schema import Neighboring
from deniable.query import double_entry
from deniable.query.compile import compile_query


@pytest.mark.parametrize(("budget", "halves"), [(PureDP(1), True), (ZCDP(Fraction(1, 10)), False)], ids=str)
def test_a_replaced_unit_is_exchanged_where_everybody_is_in_one_group(budget: Any, halves: bool) -> None:
    """There a far quantile needs half as much noise for epsilon; with groups a unit may leave one and enter another."""
    tables = clinic.with_unit(neighboring=Neighboring.REPLACE, max_groups=1)

    def mechanism(sql: str) -> Any:
        plan = compile_query(sql, tables, budget)
        return plan.nodes[0].steps[0].placed[0].mechanism

    assert mechanism("SELECT QUANTILE(age, 0.9) FROM visits").exchanged
    assert mechanism("SELECT MEDIAN(age) FROM visits").exchanged is halves
    assert not mechanism("SELECT sex, QUANTILE(age, 0.9) FROM visits GROUP BY sex").exchanged
    assert not mechanism("SELECT QUANTILE(age, [0.25, 0.5, 0.75]) FROM visits").exchanged


def test_double_entry_refuses_an_exchange_between_groups() -> None:

    tables = clinic.with_unit(neighboring=Neighboring.REPLACE, max_groups=1)
    plan = compile_query("SELECT sex, QUANTILE(age, 0.9) FROM visits GROUP BY sex", tables, PureDP(1))
    node, step = plan.nodes[0], plan.nodes[0].steps[0]
    placed = replace(step.placed[0], mechanism=replace(step.placed[0].mechanism, exchanged=True))
    broken = replace(plan, nodes=(replace(node, steps=(replace(step, placed=(placed,)),)),))
    with pytest.raises(InternalError):
        double_entry.check(broken)


COLUMNS = "SUM(age), SUM(charge), SUM(age * age), SUM(charge * charge), SUM(age * charge), COUNT(age), COUNT(charge)"


@pytest.mark.parametrize("epsilon", ["1/1000", "0.027124", "1/3", "499.9999999", "500", "500.0000001", "1000"])
@pytest.mark.parametrize("delta", ["1e-3", "1/3000", "1e-9"])
@pytest.mark.parametrize("groups", [1, 500])
def test_every_question_has_a_price_at_the_border(epsilon: str, delta: str, groups: int) -> None:
    """Where noise that was made for a limit is priced a hair above it, the next best noise is taken: nothing fails."""
    asked = ApproxDP(Fraction(epsilon), Fraction(delta))
    for named in ("COUNT(*)", f"COUNT(*), {COLUMNS}"):
        plan = compile_query(
            f"SELECT sex, {named} FROM visits GROUP BY sex", clinic.with_unit(max_groups=groups), asked
        )
        double_entry.check(plan)
        assert plan.cost is not None
        assert plan.cost.epsilon <= asked.epsilon  # type: ignore[union-attr]
