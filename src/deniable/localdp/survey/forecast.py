"""Before anybody is asked: what each question sends, what it costs, and how precise it will be."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from deniable.localdp.layout import message_bytes
from deniable.localdp.numeric.scale import worst_variance
from deniable.localdp.survey.definition import Question
from deniable.localdp.survey.words import epsilon_achieved, how_deniable, what_leaves

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
    error, of = _error(question, max(respondents, 1))
    return Forecast(
        question.name,
        question.type,
        question.parts[0].name,
        float(question.epsilon),
        sum(epsilon_achieved(part) for part in question.parts),
        sum(message_bytes(part.layout) for part in question.parts),
        error,
        of,
        what_leaves(question),
        how_deniable(question),
        _caution(question),
    )


def _caution(question: Question) -> str:
    """What a steward should think about before asking."""
    if question.epsilon > LOOSE:
        return f"epsilon {float(question.epsilon):.3g} lets a single response say a good deal; {LOOSE} or less is usual"
    return ""


def _error(question: Question, respondents: int) -> tuple[float, str]:
    part = question.parts[0]
    if question.scale is not None:
        width = float(question.scale.upper - question.scale.lower)
        # A spread of a quarter of the range stands for the people's own differences.
        return width * sqrt((worst_variance(part) + 1 / 16) / respondents), f"mean {question.unit}".strip()
    if question.type == "word":
        return sqrt(part.variance() / respondents), "share of a word"
    share = 1 / max(len(question.options), 2)
    return sqrt((part.variance(share) + share * (1 - share)) / respondents), "share of an answer"
