"""Guarantees of every technique, what they say in plain words, and the bound on belief behind the words."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP, budget
from deniable.policy.schema import Neighboring, PrivacyUnit
from deniable.release import Guarantee, Property, Provenance, Release, Technique, bound_belief, explain_guarantee
from deniable.release.explanation import format_percent
from deniable.release.guarantee import to_plain, to_text

PURE = Guarantee.differential(Technique.DP_QUERY, PrivacyUnit("patient_id"), budget(1))
EVERY = {
    "masking": Guarantee.none(Technique.MASKING, "names were replaced by tokens"),
    "k-anonymity": Guarantee.syntactic(
        (Property("k-anonymity", (("k", "5"),)), Property("l-diversity", (("l", "3"), ("column", "diagnosis"))))
    ),
    "query": PURE,
    "synthesis": Guarantee.differential(
        Technique.DP_SYNTHETIC, PrivacyUnit(), ZCDP(Fraction(1, 2)), epsilon=3.1, delta="1e-6"
    ),
    "model": Guarantee.differential(Technique.DP_MODEL, PrivacyUnit(), ApproxDP(2, "1e-6"), Neighboring.REPLACE),  # type: ignore[arg-type]
    "local": Guarantee.local("one answer", 3),
    "shuffled": Guarantee.local("one answer", 3, shuffled=budget("0.4", "1e-6")),
}


@pytest.mark.parametrize("name", EVERY)
def test_every_technique_says_in_words_what_it_promises(name: str) -> None:
    words = " ".join(explain_guarantee(EVERY[name]))
    assert EVERY[name].formal == ("The belief of an intruder" in words)
    assert ("No formal guarantee" in words) == (not EVERY[name].formal)


def test_masking_says_why_nothing_is_promised() -> None:
    assert explain_guarantee(EVERY["masking"])[0] == "No formal guarantee: names were replaced by tokens."


def test_a_k_anonymous_table_claims_its_properties_and_no_more() -> None:
    words = explain_guarantee(EVERY["k-anonymity"])
    assert words[0].startswith("The table has k-anonymity (k = 5): every combination")
    assert "l-diversity (l = 3, column = diagnosis)" in words[1]
    assert words[-1].startswith("No formal guarantee beyond that")


def test_epsilon_1_in_the_words_of_belief() -> None:
    words = " ".join(explain_guarantee(PURE))
    # e / (99 + e) = 0.02672, e / (9 + e) = 0.23197, e / (1 + e) = 0.73106; with e^2 for facts about values.
    assert "1% can rise to at most 2.7%; 10% can rise to at most 23.2%; 50% can rise to at most 73.2%" in words
    assert "1% can rise to at most 7%; 10% can rise to at most 45.1%; 50% can rise to at most 88.1%" in words
    assert "all rows of one patient_id" in words
    assert "hold always" in words


def test_delta_stands_beside_the_bounds() -> None:
    assert "delta = 0.000001" in " ".join(explain_guarantee(EVERY["model"]))


def test_a_row_as_unit_warns_of_people_with_several_rows() -> None:
    assert "several rows" in " ".join(explain_guarantee(EVERY["model"]))
    assert "several rows" not in " ".join(explain_guarantee(PURE))


def test_replacing_neighbors_need_one_step_for_a_fact() -> None:
    words = [line for line in explain_guarantee(EVERY["model"]) if "belief" in line]
    assert len(words) == 1
    assert format_percent(bound_belief(Fraction(1, 2), 2)) in words[0]


def test_local_privacy_holds_against_the_collector_too() -> None:
    words = " ".join(explain_guarantee(EVERY["shuffled"]))
    assert "local epsilon 3: this holds even against the collector" in words
    assert "epsilon 0.4 and delta 0.000001" in words


def test_an_epsilon_without_short_form_is_rounded_up() -> None:
    guarantee = Guarantee.differential(Technique.DP_QUERY, "one row", PureDP(Fraction(1_000_003, 3_000_001)))
    assert "epsilon at most 0.33" in explain_guarantee(guarantee)[0]
    assert float(explain_guarantee(guarantee)[0].split("at most ")[1].split(" ")[0]) >= 1_000_003 / 3_000_001


@given(
    prior=st.fractions(min_value=0, max_value=1, max_denominator=10**6),
    epsilon=st.fractions(min_value=0, max_value=50, max_denominator=10**6),
)
def test_the_bound_is_the_formula_and_never_below_it(prior: Fraction, epsilon: Fraction) -> None:
    from decimal import Decimal, localcontext

    with localcontext() as exactly:
        exactly.prec = 60
        odds = (Decimal(epsilon.numerator) / epsilon.denominator).exp()
        p = Decimal(prior.numerator) / prior.denominator
        formula = odds * p / (1 - p + odds * p)
        found = Decimal(bound_belief(prior, epsilon))
        assert formula - Decimal("1e-50") <= found <= formula + Decimal("1e-12")


@given(st.floats(0, 1))
def test_a_shown_belief_is_never_understated(share: float) -> None:
    shown = format_percent(share)
    if not shown.startswith("more"):
        assert float(shown.rstrip("%")) >= share * 100 - 1e-7


def test_extremes_of_belief() -> None:
    assert bound_belief(0, 5) == 0
    assert bound_belief(1, 0) == 1
    assert bound_belief("1e-9", 1_000_000) == 1
    assert math.isclose(bound_belief(0.5, 0), 0.5)
    assert format_percent(0.1) == "10%"


@pytest.mark.parametrize(("prior", "epsilon"), [(1.1, 1), (-0.1, 1), (0.5, -1), (float("nan"), 1), (0.5, "much")])
def test_beliefs_that_make_no_sense_are_refused(prior: float, epsilon: object) -> None:
    with pytest.raises(ParameterError):
        bound_belief(prior, epsilon)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Guarantee(Technique.MASKING, ""),
        lambda: Guarantee.none(Technique.MASKING, ""),
        lambda: Guarantee.syntactic(()),
        lambda: Guarantee(Technique.DP_QUERY, "one row", None, Fraction(1), Fraction(0)),
        lambda: Guarantee(Technique.DP_QUERY, "", Neighboring.REPLACE, Fraction(1), Fraction(0)),
        lambda: Guarantee(Technique.DP_QUERY, "one row", Neighboring.REPLACE, Fraction(1)),
        lambda: Guarantee(Technique.DP_QUERY, "one row", Neighboring.REPLACE, Fraction(-1), Fraction(0)),
        lambda: Guarantee(Technique.DP_QUERY, "one row", Neighboring.REPLACE, Fraction(1), Fraction(1)),
        lambda: Guarantee.differential(Technique.DP_QUERY, "one row", ZCDP(Fraction(1))),
        lambda: Guarantee.differential(Technique.DP_QUERY, "one row", budget(1), epsilon=2, delta=0),
        lambda: Guarantee.local("one answer", 1, shuffled=ZCDP(Fraction(1))),
    ],
)
def test_a_claim_that_is_not_whole_cannot_be_made(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ParameterError):
        make()


def test_nothing_that_could_hold_rows_gets_into_a_statement() -> None:
    for rows in (pa.table({"x": [1]}), pa.array([1]), b"bytes", {1, 2}, object()):
        with pytest.raises(ParameterError, match="could hold rows"):
            Provenance(None, {}, {"nested": [{"rows": rows}]})
        with pytest.raises(ParameterError, match="could hold rows"):
            Release(pa.table({}), PURE, Provenance(None, {}), {"rows": rows})
    with pytest.raises(ParameterError, match="not a finite number"):
        Provenance(None, {}, {"scale": math.inf})


def test_a_printed_release_shows_no_rows() -> None:
    release = Release(pa.table({"x": ["secret"]}), PURE, Provenance(None, {}))
    assert "secret" not in repr(release)


def test_a_time_without_zone_is_refused() -> None:
    with pytest.raises(ParameterError, match="time zone"):
        Provenance(None, {}, time=datetime(2026, 1, 1))
    assert Provenance(None, {}).time.tzinfo is UTC


@given(st.fractions())
def test_exact_numbers_are_written_exactly(amount: Fraction) -> None:
    assert Fraction(to_text(amount)) == amount
    assert to_plain(amount) == to_text(amount)
