"""Before anybody is asked: what each question sends, what it costs, and how precise it will be.

The same facts in plain words are what a respondent reads: what leaves the device, and how deniable it is."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, sqrt
from typing import Any

from deniable.localdp.frequency.randomized_response import CoinDesign, Direct
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.likelihood_ratio import epsilon_of
from deniable.localdp.numeric.scale import worst_variance
from deniable.localdp.protocol import message_bytes
from deniable.localdp.survey.definition import Question

LOOSE = 4


@dataclass(frozen=True, slots=True)
class Forecast:
    """A question before its survey: protocol, epsilon asked and achieved, message, and a typical error."""

    question: str
    type: str
    protocol: str
    epsilon: float
    achieved: float
    bytes: int
    error: float
    error_of: str
    leaves: str
    deniable: str
    caution: str = ""


def forecast(question: Question, respondents: int) -> Forecast:
    """What to expect of a question with so many respondents: one standard error, noise and luck together."""
    error, of = _forecast_error(question, max(respondents, 1))
    return Forecast(
        question.name,
        question.type,
        question.parts[0].name,
        float(question.epsilon),
        sum(epsilon_achieved(part) for part in question.parts),
        sum(message_bytes(part.layout) for part in question.parts),
        error,
        of,
        describe_message(question),
        describe_deniability(question),
        _warn_about(question, max(respondents, 1)),
    )


def _warn_about(question: Question, respondents: int) -> str:
    """What a steward should think about before asking."""
    if question.epsilon > LOOSE:
        return f"epsilon {float(question.epsilon):.3g} lets a single response say a good deal; {LOOSE} or less is usual"
    if isinstance(question.parts[0], PrefixTree):
        least = question.parts[0].least_share(respondents)
        return f"unlisted words are found from a share of about {min(least, 1):.0%} on" + " (nobody's)" * (least > 1)
    return ""


def _forecast_error(question: Question, respondents: int) -> tuple[float, str]:
    part = question.parts[0]
    if question.scale is not None:
        width = float(question.scale.upper - question.scale.lower)
        # A spread of a quarter of the range stands for the people's own differences.
        return width * sqrt((worst_variance(part) + 1 / 16) / respondents), f"mean {question.unit}".strip()
    if question.type == "word":
        return sqrt(part.variance() / respondents), "share of a word"
    share = 1 / max(len(question.options), 2)
    return sqrt((part.variance(share) + share * (1 - share)) / respondents), "share of an answer"


def odds_of(part: Any) -> float:
    """How much one response can change anybody's odds about the answer."""
    return float(part.odds) if hasattr(part, "odds") else exp(part.epsilon)


def epsilon_achieved(part: Any) -> float:
    """The epsilon that a part's exact probabilities really give."""
    return epsilon_of(part.odds) if hasattr(part, "odds") else float(part.epsilon)


def describe_message(question: Question) -> str:
    """One or two sentences about the randomizing of a question."""
    part = question.parts[0]
    if isinstance(part, CoinDesign):
        return f"Your device {_describe_coins(part)}. Only that reply is sent."
    if isinstance(part, Direct):
        return _describe_direct(part, question)
    if question.type == "number":
        spread = worst_variance(part) ** 0.5 * float(part.scale.upper - part.scale.lower)
        unit = f" {question.unit}" if question.unit else ""
        return f"Your device sends a number so noisy that it is typically {spread:,.0f}{unit} off when read alone."
    if question.type == "word":
        told = "a beginning of the word, drawn by chance," if isinstance(part, PrefixTree) else "the word"
        return f"Your device scrambles {told} into one bit of a fingerprint, and flips that bit at random."
    return "Your device sends a random set of options that holds your answer a little more often than others."


def describe_deniability(question: Question) -> str:
    """One sentence about what an onlooker can learn from what was sent."""
    odds = 1.0
    for part in question.parts:
        odds *= odds_of(part)
    each = f" ({_times(odds_of(question.parts[0]))} for any one option)" if question.type == "several" else ""
    left_out = " Leaving the question out is sent in the same way." if question.hides_unanswered else ""
    return (
        f"Whoever sees what was sent can change their odds about your answer by at most {_times(odds)}{each}, "
        f"whatever else they know. Any answer could have led to it.{left_out}"
    )


def _describe_direct(part: Direct, question: Question) -> str:
    share = _percent(part.p)
    if question.type == "several":
        return f"For each option your device sends the truth with {share} probability, and otherwise the opposite."
    if part.domain == 2:
        return f"Your device sends your answer with {share} probability, and otherwise the opposite one."
    return f"Your device sends your answer with {share} probability, and otherwise another option, drawn at random."


def _describe_coins(design: CoinDesign) -> str:
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
