"""Every word of the reference is understood, and every function of the allow-list is in the reference."""

from __future__ import annotations

import re
from fractions import Fraction

import pytest

import clinic
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP
from deniable.query.algebra.functions import AGGREGATE_FORMS, FUNCTION_FORMS, FUNCTIONS
from deniable.query.compile import compile_query

NAMES = {"x": "age", "y": "delta", "t": "note", "d": "day", "c": "insured"}
BUDGET = ApproxDP(Fraction(1), Fraction(1, 10**6))


def written(form: str) -> str:
    """A form with columns of the clinic in the place of its letters; quoted texts stay."""
    return re.sub(r"('[^']*')|\b([xytdc])\b", lambda m: m[1] or NAMES[m[2]], form)


def test_every_function_has_a_form() -> None:
    assert set(FUNCTION_FORMS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", sorted(FUNCTION_FORMS))
def test_every_form_is_understood_as_its_function(name: str) -> None:
    plan = compile_query(f"SELECT COUNT({written(FUNCTION_FORMS[name])}) FROM visits", clinic.TABLES, BUDGET)
    assert f"name='{name}'" in repr(plan.relation)


@pytest.mark.parametrize("form", [form for form, _, _ in AGGREGATE_FORMS])
def test_every_aggregate_is_understood(form: str) -> None:
    assert not compile_query(f"SELECT {written(form)} FROM visits", clinic.TABLES, BUDGET).free


@pytest.mark.parametrize("form", ["REPLACE(note, 'A')", "REPLACE(note, 'A', )", "SUBSTRING(note)"])
def test_a_function_with_too_few_arguments_is_refused(form: str) -> None:
    with pytest.raises(QueryRefused, match="arguments, not"):
        compile_query(f"SELECT COUNT({form}) FROM visits", clinic.TABLES, BUDGET)


@pytest.mark.parametrize(
    "form", ["MAX()", "SUM()", "AVG()", "MEDIAN()", "COUNT(ABS())", "COUNT(UPPER())", "QUANTILE()"]
)
def test_empty_parentheses_are_refused(form: str) -> None:
    with pytest.raises(QueryRefused):
        compile_query(f"SELECT {form} FROM visits", clinic.TABLES, BUDGET)
