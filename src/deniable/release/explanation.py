"""A guarantee in plain language, and what an intruder can at most come to believe after the release.

Let an intruder hold a fact about a person true with probability p before the release. An epsilon-differentially private
release multiplies the odds of the two worlds by at most e^epsilon, so afterwards

    posterior <= e^epsilon p / (1 - p + e^epsilon p),

whatever else the intruder knows or will learn. The two worlds must be neighbors. When neighbors differ by *adding or
removing* a person, the fact is that the person is in the data; a fact about the person's *values* compares two worlds
with the person in both, which are two steps apart and cost 2 epsilon (and (1 + e^epsilon) delta). When neighbors differ
by *replacing* a person's values, one step covers it. With a delta, the bound can fail: releases for which it does not
hold turn up with a small probability of the order of delta, which is stated beside the bound, not hidden in it."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.policy.budget import Amount, exact
from deniable.policy.schema import Neighboring, PrivacyUnit
from deniable.release.guarantee import Guarantee, Property, to_text

_ROW = str(PrivacyUnit())
_MEANING = {
    "k-anonymity": "every combination of the quasi-identifiers is shared by at least k rows",
    "l-diversity": "every such group has at least l well-represented sensitive values",
    "t-closeness": "in every such group the sensitive values are spread almost as in the whole table, within t",
    "delta-presence": "the chance that a known person is in the table lies between the two bounds",
}

_OF_PEOPLE = {
    "k-anonymity": "every combination of the quasi-identifiers is shared by rows of at least k different people",
    "distinct-diversity": "in every such group at least l different people have l different values between them",
}


def explain_guarantee(guarantee: Guarantee) -> tuple[str, ...]:
    """Sentences that say what is promised, what is not, and what an intruder can come to believe."""
    if guarantee.properties:
        return _explain_syntactic(guarantee)
    if not guarantee.formal:
        return (
            f"No formal guarantee: {guarantee.reason}.",
            "Whoever knows other facts about a person may recognize that person's rows.",
        )
    return (*_explain_central(guarantee), *_explain_local(guarantee))


def _explain_syntactic(guarantee: Guarantee) -> tuple[str, ...]:
    promised = tuple(_explain_property(each) for each in guarantee.properties)
    return (*promised, f"No formal guarantee beyond that: {guarantee.reason}.")


def _explain_property(each: Property) -> str:
    counted = "person" in dict(each.parameters) and each.name in _OF_PEOPLE
    meaning = (_OF_PEOPLE if counted else _MEANING).get(each.name, "")
    return f"The table has {each}" + (f": {meaning}." if meaning else ".")


def _explain_central(guarantee: Guarantee) -> tuple[str, ...]:
    if guarantee.epsilon is None or guarantee.delta is None:
        return ()
    one_fact = "in some fact about a person in the data"
    if guarantee.neighbors is Neighboring.ADD_REMOVE:
        how = "whether it is in the data or not"
        facts = {"that a person is in the data": guarantee.epsilon, one_fact: 2 * guarantee.epsilon}
    else:
        how = "whatever its values are"
        facts = {one_fact: guarantee.epsilon}
    return (
        f"Protected is {guarantee.unit}, with epsilon {_show(guarantee.epsilon)} and delta {_show(guarantee.delta)}: "
        f"the release is almost equally likely {how}.",
        *_warn_of_rows(guarantee),
        *(_explain_beliefs(fact, epsilon) for fact, epsilon in facts.items()),
        *_explain_failure(guarantee),
    )


def _warn_of_rows(guarantee: Guarantee) -> tuple[str, ...]:
    return ("A person with several rows is protected less than these bounds say.",) if guarantee.unit == _ROW else ()


def _explain_local(guarantee: Guarantee) -> tuple[str, ...]:
    if guarantee.local_epsilon is None:
        return ()
    return (
        f"Each answer was randomized before it was sent, with local epsilon {_show(guarantee.local_epsilon)}: "
        "this holds even against the collector.",
        _explain_beliefs("(be it the collector) in some fact about a respondent", guarantee.local_epsilon),
    )


def _explain_beliefs(fact: str, epsilon: Fraction) -> str:
    steps = (
        f"{format_percent(float(prior))} can rise to at most {format_percent(bound_belief(prior, epsilon))}"
        for prior in PRIORS
    )
    return f"The belief of an intruder {fact}: {'; '.join(steps)}."


def _explain_failure(guarantee: Guarantee) -> tuple[str, ...]:
    if not guarantee.delta:
        return ("These bounds hold always, whatever else the intruder knows.",)
    return (
        f"These bounds can fail, with a probability of the order of delta = {_show(guarantee.delta)}; "
        "otherwise they hold whatever else the intruder knows.",
    )


def _show(amount: Fraction) -> str:
    """An exact number as people write it; one without a short form is shown rounded up, with 'at most'."""
    text = to_text(amount)
    if len(text) <= 8 and "/" not in text:
        return text
    return f"{float(amount):.3g}" if Fraction(f"{float(amount):.3g}") == amount else f"at most {_round_up(amount)}"


def _round_up(amount: Fraction) -> str:
    """Three digits, never below the amount."""
    three = Context(prec=3, rounding=ROUND_CEILING)
    return f"{float(three.divide(Decimal(amount.numerator), Decimal(amount.denominator))):.3g}"


PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def bound_belief(prior: Amount, epsilon: Amount) -> float:
    """The largest posterior belief; rounded up in the last place, so that it is never understated.

    >>> round(bound_belief(0.5, 1), 4)
    0.7311
    >>> bound_belief(0.1, 0) >= 0.1
    True
    """
    p, strength = exact(prior, "prior"), exact(epsilon, "epsilon")
    if not 0 <= p <= 1:
        raise ParameterError("a prior belief is a probability", expected="A number between 0 and 1")
    if strength < 0:
        raise ParameterError("epsilon is negative", expected="epsilon is at least 0")
    if p in (0, 1):
        return float(p)
    # e^eps p / (1 - p + e^eps p) = 1 / (1 + ((1 - p) / p) e^-eps): no overflow for any epsilon.
    bound = 1 / (1 + float((1 - p) / p) * math.exp(-float(min(strength, Fraction(10_000)))))
    return min(1.0, math.nextafter(bound * (1 + 4e-16), 2.0))


def format_percent(share: float) -> str:
    """A belief as a percentage with one decimal, rounded up; certainty is said only of certainty.

    >>> format_percent(bound_belief(0.5, 1)), format_percent(0.99999)
    ('73.2%', 'more than 99.9%')
    """
    if share >= 1:
        return "100%"
    # The tiny slack keeps a belief that is exactly 10% from being shown as 10.1% for the rounding of its last bit.
    tenths = math.ceil(share * 1000 - 1e-9)
    return "more than 99.9%" if tenths >= 1000 else f"{tenths / 10:g}%"
