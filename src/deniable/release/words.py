"""A guarantee in plain words, for the people in the data and for those who decide about them."""

from __future__ import annotations

from fractions import Fraction

from deniable.policy.unit import Neighboring, PrivacyUnit
from deniable.release.belief import PRIORS, belief, percent
from deniable.release.guarantee import Guarantee, Property
from deniable.release.provenance import written

_ROW = str(PrivacyUnit())
_MEANING = {
    "k-anonymity": "every combination of the quasi-identifiers is shared by at least k rows",
    "l-diversity": "every such group has at least l well-represented sensitive values",
    "t-closeness": "in every such group the sensitive values are spread almost as in the whole table, within t",
    "delta-presence": "the chance that a known person is in the table lies between the two bounds",
}


def in_words(guarantee: Guarantee) -> tuple[str, ...]:
    """Sentences that say what is promised, what is not, and what an intruder can come to believe."""
    if guarantee.properties:
        return _syntactic(guarantee)
    if not guarantee.formal:
        return (
            f"No formal guarantee: {guarantee.reason}.",
            "Whoever knows other facts about a person may recognize that person's rows.",
        )
    return (*_central(guarantee), *_local(guarantee))


def _syntactic(guarantee: Guarantee) -> tuple[str, ...]:
    promised = tuple(_property(each) for each in guarantee.properties)
    return (*promised, f"No formal guarantee beyond that: {guarantee.reason}.")


def _property(each: Property) -> str:
    meaning = _MEANING.get(each.name, "")
    return f"The table has {each}" + (f": {meaning}." if meaning else ".")


def _central(guarantee: Guarantee) -> tuple[str, ...]:
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
        f"Protected is {guarantee.unit}, with epsilon {_short(guarantee.epsilon)} and delta {_short(guarantee.delta)}: "
        f"the release is almost equally likely {how}.",
        *_rows(guarantee),
        *(_beliefs(fact, epsilon) for fact, epsilon in facts.items()),
        *_failure(guarantee),
    )


def _rows(guarantee: Guarantee) -> tuple[str, ...]:
    return ("A person with several rows is protected less than these bounds say.",) if guarantee.unit == _ROW else ()


def _local(guarantee: Guarantee) -> tuple[str, ...]:
    if guarantee.local_epsilon is None:
        return ()
    return (
        f"Each answer was randomized before it was sent, with local epsilon {_short(guarantee.local_epsilon)}: "
        "this holds even against the collector.",
        _beliefs("(be it the collector) in some fact about a respondent", guarantee.local_epsilon),
    )


def _beliefs(fact: str, epsilon: Fraction) -> str:
    steps = (f"{percent(float(prior))} can rise to at most {percent(belief(prior, epsilon))}" for prior in PRIORS)
    return f"The belief of an intruder {fact}: {'; '.join(steps)}."


def _failure(guarantee: Guarantee) -> tuple[str, ...]:
    if not guarantee.delta:
        return ("These bounds hold always, whatever else the intruder knows.",)
    return (
        f"These bounds can fail, with a probability of the order of delta = {_short(guarantee.delta)}; "
        "otherwise they hold whatever else the intruder knows.",
    )


def _short(amount: Fraction) -> str:
    """An exact number as people write it; one without a short form is shown rounded up, with 'at most'."""
    text = written(amount)
    if len(text) <= 8:
        return text
    return f"{float(amount):.3g}" if Fraction(f"{float(amount):.3g}") == amount else f"at most {_up(amount)}"


def _up(amount: Fraction) -> str:
    shown = f"{float(amount):.3g}"
    return shown if Fraction(shown) >= amount else f"{float(amount) * 1.005:.3g}"
