"""Figures of privacy as they are told: in every form at least what is true, and hardly more."""

from __future__ import annotations

import re
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deniable import Curator
from deniable.dp.accounting import epsilon_of_zcdp
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.policy.document import parse
from deniable.policy.schema import PrivacyUnit
from deniable.query.explain import describe_budget
from deniable.release import Guarantee, Technique, explain_guarantee

AMOUNTS = st.fractions(min_value=Fraction(1, 10**7), max_value=600, max_denominator=10**15) | st.integers(
    1, 10**13
).map(lambda digits: Fraction(digits, 10**12))
HAIR = Fraction(1, 10**18)


@settings(max_examples=300, deadline=None)
@given(AMOUNTS)
@example(Fraction(1, 3))
@example(1 + HAIR)
@example(Fraction("2.14") + HAIR)
@example(Fraction("0.999999999"))
@example(Fraction("9.995"))
def test_a_cost_in_decimal_figures_is_rounded_up_in_its_last_digit(amount: Fraction) -> None:
    """Six digits: a unit of the last one is a hundred thousandth of the amount at most."""
    for budget, name in (
        (PureDP(amount), "epsilon"),
        (ZCDP(amount), "rho"),
        (ApproxDP(Fraction(1), amount / 601), "delta"),
    ):
        told = Fraction(describe_budget(budget)[name])
        truth = amount / 601 if name == "delta" else amount
        assert truth <= told <= truth * (1 + Fraction(1, 10**5))


@settings(max_examples=300, deadline=None)
@given(AMOUNTS)
@example(1 + HAIR)
@example(Fraction("2.14") + HAIR)
@example(Fraction("2.14193892839"))
@example(Fraction("9.996"))
@example(Fraction(1, 1920))
@example(Fraction(1, 3))
def test_an_epsilon_in_words_is_never_less_than_the_claim(amount: Fraction) -> None:
    guarantee = Guarantee.differential(Technique.DP_QUERY, PrivacyUnit(), PureDP(amount))
    told = re.search(r"with epsilon (at most )?([0-9.e+-]+) and", explain_guarantee(guarantee)[0])
    assert told is not None
    assert amount <= Fraction(told[2]) <= amount * (1 + Fraction(11, 1000))
    assert told[1] or Fraction(told[2]) == amount


POLICY = """
version: 1
dataset: d
tables: {t: {source: t.csv, unit: row, columns: {a: {}}}}
budgets: {dataset: {rho: 1, delta: 1e-6}}
"""


@pytest.mark.parametrize(("rho", "delta"), [("1/50", "0"), ("3/70", "0"), ("1/33", "1e-7")])
def test_a_released_rho_claims_the_epsilon_that_is_proven_at_the_delta_shown(rho: str, delta: str) -> None:
    """The conversion itself is rounded up in its twelfth digit, which its own tests show."""
    keyed = delta != "0"
    sql = "SELECT a, COUNT(*) FROM t GROUP BY a" if keyed else "SELECT COUNT(*) FROM t"
    with Curator(parse(POLICY), sources={"t": pa.table({"a": ["x"] * 90})}) as curator:
        claim = curator.query(sql, rho=rho, delta=delta).release.guarantee
    spent = Fraction(delta)
    assert claim.rho is not None
    assert claim.epsilon is not None
    assert claim.delta == Fraction("1e-9") + spent
    assert Fraction(rho) * (1 - Fraction(1, 10**6)) <= claim.rho <= Fraction(rho)
    assert claim.epsilon == epsilon_of_zcdp(claim.rho, claim.delta - spent)
