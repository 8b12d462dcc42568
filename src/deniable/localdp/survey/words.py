"""What a respondent is told, in plain words: what leaves the device, and how deniable it is."""

from __future__ import annotations

from fractions import Fraction
from math import exp
from typing import Any

from deniable.localdp.coins import CoinDesign
from deniable.localdp.direct import Direct
from deniable.localdp.numeric.scale import worst_variance
from deniable.localdp.odds import epsilon_of
from deniable.localdp.survey.definition import Question


def odds_of(part: Any) -> float:
    """How much one response can change anybody's odds about the answer."""
    return float(part.odds) if hasattr(part, "odds") else exp(part.epsilon)


def epsilon_achieved(part: Any) -> float:
    """The epsilon that a part's exact probabilities really give."""
    return epsilon_of(part.odds) if hasattr(part, "odds") else float(part.epsilon)


def what_leaves(question: Question) -> str:
    """One or two sentences about the randomizing of a question."""
    part = question.parts[0]
    if isinstance(part, CoinDesign):
        return f"Your device {_instructions(part)}. Only that reply is sent."
    if isinstance(part, Direct):
        return _kept(part, question)
    if question.type == "number":
        spread = worst_variance(part) ** 0.5 * float(part.scale.upper - part.scale.lower)
        unit = f" {question.unit}" if question.unit else ""
        return f"Your device sends a number so noisy that it is typically {spread:,.0f}{unit} off when read alone."
    if question.type == "word":
        return "Your device scrambles the word into one bit of a fingerprint, and flips that bit at random."
    return "Your device sends a random set of options that holds your answer a little more often than others."


def how_deniable(question: Question) -> str:
    """One sentence about what an onlooker can learn from what was sent."""
    odds = 1.0
    for part in question.parts:
        odds *= odds_of(part)
    each = f" ({_times(odds_of(question.parts[0]))} for any one option)" if len(question.parts) > 1 else ""
    return (
        f"Whoever sees what was sent can change their odds about your answer by at most {_times(odds)}{each}, "
        "whatever else they know. Any answer could have led to it."
    )


def _kept(part: Direct, question: Question) -> str:
    share = _percent(part.p)
    if question.type == "several":
        return f"For each option your device sends the truth with {share} probability, and otherwise the opposite."
    if part.domain == 2:
        return f"Your device sends your answer with {share} probability, and otherwise the opposite one."
    return f"Your device sends your answer with {share} probability, and otherwise another option, drawn at random."


def _instructions(design: CoinDesign) -> str:
    phrases = {"truth": "tells the truth", "yes": "says yes", "no": "says no", "opposite": "says the opposite"}
    told = [
        f"{phrases[word]} in {design.instructions.count(word)} of {len(design.instructions)} cases"
        for word in dict.fromkeys(design.instructions)
    ]
    return "draws lots: it " + ", ".join(told[:-1]) + " and " + told[-1]


def _percent(share: Fraction) -> str:
    return f"{float(share):.0%}"


def _times(odds: float) -> str:
    return f"a factor of {odds:.1f}" if odds < 100 else f"a factor of {odds:,.0f}"
