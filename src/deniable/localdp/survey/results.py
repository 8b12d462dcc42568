"""What a survey found: estimates with intervals for every question, and the privacy that was kept."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError, nearest
from deniable.localdp import serialization
from deniable.localdp.client import NO_ANSWER
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.numeric.distribution import estimate_with_intervals
from deniable.localdp.numeric.mechanisms import Window
from deniable.localdp.numeric.scale import Mean, MeanAmong, mean_among, mean_of
from deniable.localdp.postprocessing import Difference, assess_differences, norm_sub, vary_shares
from deniable.localdp.protocol import (
    Frequencies,
    Responses,
    estimate_from_support,
    join_frequencies,
    normal_quantile,
    student_quantile,
)
from deniable.localdp.shuffle_model import Amplified, amplify
from deniable.localdp.survey.definition import Question, Survey

Body = dict[str, list[Any]]
MOST_BINS, FEW_BINS = 20, 5
USUAL = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """The estimated share of one answer: unbiased with its interval, and made consistent with the others."""

    answer: str
    share: float
    low: float
    high: float
    consistent: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was found on one question. A number has a mean, and a distribution where that was wanted."""

    question: str
    ask: str
    type: str
    epsilon: float
    responses: int
    shares: tuple[Share, ...] = ()
    mean: Mean | MeanAmong | None = None
    unit: str = ""
    moved_by_one: float | None = None
    """How far one hostile respondent among these moves a share, or the mean, at most."""
    overturned_by: int | None = None
    """How many hostile respondents could put another answer first, or move the mean out of its interval."""


@dataclass(frozen=True, slots=True)
class Results:
    """The findings of a survey, with the local epsilon and what a shuffled batch makes of it centrally."""

    survey: str
    title: str
    responses: int
    confidence: float
    local_epsilon: float
    amplified: Amplified | None
    findings: tuple[Found, ...]
    damaged: int = 0
    """How many records of the store were left out, since they are not whole or nobody can have sent them."""


def estimate_results(
    survey: Survey, bodies: Iterable[str], confidence: float = 0.95, delta: float = 1e-8, damaged: int = 0
) -> Results:
    """Estimates from all stored responses."""
    read = [json.loads(body) for body in bodies]
    findings = tuple(estimate_question(question, read, confidence) for question in survey.questions)
    local = float(survey.epsilon)
    amplified = amplify(local, len(read), delta) if read else None
    return Results(survey.identity, survey.title, len(read), confidence, local, amplified, findings, damaged)


def estimate_question(question: Question, bodies: list[Body], confidence: float) -> Found:
    """What the responses to one question say."""
    told = [body[question.name] for body in bodies if question.name in body]
    start = (question.name, question.ask, question.type, float(question.epsilon), len(told))
    if not told:
        return Found(*start)
    if question.scale is not None:
        return _estimate_number(question, told, start, confidence)
    if question.type == "word":
        return _estimate_words(question, told, start, confidence)
    counts, exclusive = _estimate_frequencies(question, told), question.type != "several"
    return _describe_shares(start, question.options, counts, confidence, exclusive)


def _estimate_words(
    question: Question, told: list[list[Any]], start: tuple[str, str, str, float, int], confidence: float
) -> Found:
    """Words that were listed, and those that were found; who left a word out gave the empty one."""
    protocol, columns = question.parts[0], _parse_columns(question, told, 0)
    discovered = protocol.discover(columns) if isinstance(protocol, PrefixTree) else ()
    words = [word for word in dict.fromkeys((*question.words, *discovered)) if word]
    words += [""] if question.hides_unanswered else []
    counts = count_words(question, told, words)
    if not words or counts.responses == 0:
        return Found(*start)
    labels = tuple(word or NO_ANSWER for word in words)
    return _describe_shares(start, labels, counts, confidence, exclusive=False)


def count_words(question: Question, told: list[list[Any]], words: Sequence[str]) -> Frequencies:
    """How many gave each of these words, of those whose turn it was to say."""
    protocol, columns = question.parts[0], _parse_columns(question, told, 0)
    if isinstance(protocol, PrefixTree):
        return protocol.count(columns, words)
    return protocol.estimate(protocol.tally(columns), len(told), words)  # type: ignore[no-any-return]


def _describe_shares(
    start: tuple[str, str, str, float, int],
    labels: tuple[str, ...],
    counts: Frequencies,
    confidence: float,
    exclusive: bool,
) -> Found:
    shares = _build_shares(labels, counts, confidence, exclusive)
    moved, n = counts.influence / counts.responses, counts.responses
    ordered = sorted((share.share for share in shares), reverse=True)
    # One respondent who leaves the first answer for the second moves both.
    lead = (ordered[0] - ordered[1]) / (2 * moved) if exclusive and len(ordered) > 1 else math.nan
    return Found(*start, shares=shares, moved_by_one=moved, overturned_by=_count_hostile(lead, n))


def _count_hostile(needed: float, responses: int) -> int | None:
    """The fewest hostile respondents that can do it; None where it is not known."""
    return min(math.floor(needed) + 1, responses) if math.isfinite(needed) else None


def _parse_columns(question: Question, told: list[list[Any]], part: int) -> Responses:
    return serialization.from_json(question.parts[part].layout, [parts[part] for parts in told])


def _estimate_frequencies(question: Question, told: list[list[Any]]) -> Frequencies:
    """How many gave each answer; of several that may be given, each has a part of its own, with no and yes."""
    if question.type == "word":
        return count_words(question, told, question.words)
    if question.type == "several":
        each = [(part, part.tally(_parse_columns(question, told, at))) for at, part in enumerate(question.parts)]
        return join_frequencies([estimate_from_support(f[1:], len(told), part.p, part.q) for part, f in each])
    protocol, columns = question.parts[0], _parse_columns(question, told, 0)
    return protocol.estimate(protocol.tally(columns), len(told))  # type: ignore[no-any-return]


def _build_shares(
    labels: tuple[str, ...], counts: Frequencies, confidence: float, exclusive: bool = True
) -> tuple[Share, ...]:
    """Shares with intervals for the population that respondents stand for: noise and luck of the draw together."""
    low, high = (end / counts.responses for end in counts.interval(confidence, population=True))
    consistent = norm_sub(counts.shares, 1.0) if exclusive else np.clip(counts.shares, 0, 1)
    columns = zip(labels, counts.shares, low, high, consistent, strict=True)
    return tuple(Share(name, *(float(value) for value in row)) for name, *row in columns)


def _estimate_number(
    question: Question, told: list[list[Any]], start: tuple[str, str, str, float, int], confidence: float
) -> Found:
    protocol, columns = question.parts[0], _parse_columns(question, told, 0)
    mean, shares = _estimate_mean(question, told), tuple[Share, ...]()
    if question.wanted == "distribution" and isinstance(protocol, Window):
        shares = _estimate_bins(protocol, columns, confidence)
    reach = (mean.interval(confidence)[1] - mean.value) / mean.influence
    hostile = _count_hostile(reach, mean.responses)
    rest: dict[str, Any] = {"moved_by_one": mean.influence, "overturned_by": hostile}
    return Found(*start, shares=shares, mean=mean, unit=question.unit, **rest)


def _estimate_mean(question: Question, told: list[list[Any]]) -> Mean | MeanAmong:
    """The mean of those who answered, whether or not it can be seen who did."""
    everybody = mean_of(question.parts[0], _parse_columns(question, told, 0))
    if question.scale is None or not question.hides_unanswered:
        return everybody
    part = question.parts[1]
    return mean_among(everybody, question.scale, int(part.tally(_parse_columns(question, told, 1))[1]), float(part.p))


def _estimate_bins(protocol: Window, columns: Responses, confidence: float) -> tuple[Share, ...]:
    """The distribution in equal parts of the scale, with bootstrap intervals."""
    steps = protocol.scale.steps
    bins = max((count for count in range(2, MOST_BINS + 1) if steps % count == 0), default=min(MOST_BINS, steps))
    bins = bins if bins >= FEW_BINS or steps < FEW_BINS else min(MOST_BINS, steps)
    shares, low, high = estimate_with_intervals(protocol, columns, bins, confidence)
    ends = protocol.scale.value_of(np.arange(bins + 1) * steps / bins)
    labels = [f"{start:g} to {end:g}" for start, end in pairwise(ends.tolist())]
    rows = zip(labels, shares.tolist(), low.tolist(), high.tolist(), strict=True)
    return tuple(Share(label, share, lower, upper, share) for label, share, lower, upper in rows)


@dataclass(frozen=True, slots=True)
class Contrast:
    """How a question's answer differs between two groups, or between two rounds."""

    question: str
    answer: str
    between: tuple[str, str]
    difference: Difference


def contrast_groups(survey: Survey, bodies: Iterable[str], by: str, of: str) -> tuple[Contrast, ...]:
    """Compare the answers to one question between the first two groups that another question forms.

    Groups are known only by what respondents reported, which is itself randomized. What that mixes is taken apart, so
    the difference is that of the true groups (see `_take_groups_apart`).
    """
    grouping, outcome = (_find_question(survey, name) for name in (by, of))
    if not _forms_groups(grouping):
        raise ParameterError(f"'{by}' does not form groups", expected="A yes-no or choice question randomized k-ary")
    weights = np.zeros(len(grouping.options))
    weights[:2] = 1, -1
    labels, found, variances = _weigh_groups(grouping, outcome, bodies, weights)
    differences, between = assess_differences(found, variances), (grouping.options[0], grouping.options[1])
    return tuple(Contrast(outcome.name, a, between, d) for a, d in zip(labels, differences, strict=True))


def _forms_groups(question: Question) -> bool:
    return len(question.parts) == 1 and question.parts[0].name in ("k-ary", "coins")


def _weigh_groups(
    grouping: Question, outcome: Question, bodies: Iterable[str], weights: NDArray[np.float64]
) -> tuple[tuple[str, ...], NDArray[np.float64], NDArray[np.float64]]:
    """A weighted sum over the true groups of what each answers: labels, values and their variances."""
    groups: list[list[Body]] = [[] for _ in grouping.options]
    for body in map(json.loads, bodies):
        if grouping.name in body and outcome.name in body:
            groups[body[grouping.name][0][0]].append(body[outcome.name])
    if not all(groups):
        raise DataError("a group has no responses", remedy="Join groups, or collect more responses")
    labels, seen, variances = _estimate_each(outcome, groups)
    law = np.zeros((len(groups), len(groups)))
    for truth in range(len(groups)):
        for (said,), chance in grouping.parts[0].likelihoods(truth):
            law[said, truth] = float(chance)
    return labels, *_take_groups_apart(law, np.array([len(each) for each in groups]), seen, variances, weights)


def _estimate_each(outcome: Question, groups: list[Any]) -> tuple[tuple[str, ...], Any, Any]:
    """The mean, or the share of each answer, in each of several groups, with variances: noise and luck of the draw."""
    if outcome.scale is not None:
        means = [_estimate_mean(outcome, group) for group in groups]
        # By the interval, which covers from a few respondents on, and not by the spread that these few show.
        ends = [mean.interval(USUAL) for mean in means]
        errors = np.array([[(high - low) / 2 / normal_quantile(USUAL)] for low, high in ends])
        return ("mean",), np.array([[mean.value] for mean in means]), errors**2
    if outcome.type == "word" and not outcome.words:
        raise ParameterError(f"'{outcome.name}' lists no words to compare", remedy="Write them into `words`")
    labels = outcome.words if outcome.type == "word" else outcome.options
    found = [_estimate_frequencies(outcome, group) for group in groups]
    shares, spread = (np.array([of(each)[: len(labels)] for each in found]) for of in (lambda f: f.shares, vary_shares))
    return tuple(labels), shares, spread


def _take_groups_apart(
    law: NDArray[np.float64],
    counts: NDArray[np.int64],
    seen: NDArray[np.float64],
    variances: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values of the true groups, weighted and summed, from those of the groups that were reported.

    Whoever reports r belongs to g with the chance P(g | r) = size(g) law(r | g) / P(r), so that what is seen of r is
    the mean of what is true, weighted by these chances; the system is solved. The sizes follow from the numbers of
    reports in the same way. The variance has a part from what was seen and one from the sizes, to first order.
    """
    total = int(counts.sum())

    def solve(reported: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sizes = np.maximum(np.linalg.solve(law, reported), 1 / (total + len(counts)))
        mixed = law * sizes / (law @ sizes)[:, None]
        pull = np.linalg.solve(mixed.T, weights)
        return pull, pull @ seen

    reported = counts / total
    pull, found = solve(reported)
    step = 1e-6
    slopes = np.array([(solve(reported + step * unit)[1] - found) / step for unit in np.eye(len(counts))])
    luck = (np.diag(reported) - np.outer(reported, reported)) / total
    return found, pull**2 @ variances + np.einsum("ra,rs,sa->a", slopes, luck, slopes)


def _compare_groups(
    outcome: Question, first: list[Body], second: list[Body], between: tuple[str, str]
) -> tuple[Contrast, ...]:
    told = [[body[outcome.name] for body in group] for group in (first, second)]
    labels, seen, variances = _estimate_each(outcome, told)
    differences = assess_differences(seen[0] - seen[1], variances[0] + variances[1])
    return tuple(Contrast(outcome.name, a, between, d) for a, d in zip(labels, differences, strict=True))


def contrast_waves(survey: Survey, now: Iterable[str], before: Iterable[str], of: str) -> tuple[Contrast, ...]:
    """Compare the answers to one question between this round of a survey and an earlier one."""
    outcome = _find_question(survey, of)
    rounds = [[body for body in map(json.loads, bodies) if of in body] for bodies in (now, before)]
    if not all(rounds):
        raise DataError("there are not two rounds to compare", remedy="Collect responses in both")
    return _compare_groups(outcome, rounds[0], rounds[1], ("now", "before"))


@dataclass(frozen=True, slots=True)
class JointShare:
    """The estimated share of people who gave one combination of answers, with its interval."""

    answers: tuple[str, ...]
    share: float
    low: float
    high: float


def estimate_joint(
    survey: Survey, bodies: Iterable[str], names: Sequence[str], confidence: float = 0.95
) -> tuple[JointShare, ...]:
    """The shares of all combinations of the answers to two or three questions.

    Each response is read as a vector whose expectation is 1 at the true answer and 0 elsewhere. Questions are
    randomized independently, so the product of a respondent's readings has the expectation of the combination. The
    interval holds all shares from which the mean product is not too far, noise and luck of the draw together: unlike
    one from the products' own deviation, it covers as often as it says where a combination is rare.
    """
    questions = [_find_question(survey, name) for name in names]
    if not 2 <= len(set(names)) == len(names) <= 3 or any(not q.options or len(q.parts) > 1 for q in questions):
        raise ParameterError("these questions have no joint table", expected="Two or three yes-no or choice questions")
    told = [body for body in map(json.loads, bodies) if all(name in body for name in names)]
    if len(told) < 2:
        raise DataError("there are no responses to all of these questions", remedy="Collect more responses")
    readings = [_read_answers(question, told) for question in questions]
    letters = "abc"[: len(names)]
    products = np.einsum(",".join(f"n{letter}" for letter in letters) + f"->n{letters}", *readings)
    mean, moments = products.mean(axis=0), [_find_moments(question) for question in questions]
    ends = _score_means(mean, *_combine_moments(moments), student_quantile(confidence, len(told) - 1), len(told))
    found = np.stack((mean, *ends), axis=-1)
    cells = product(*(question.options for question in questions))
    return tuple(
        JointShare(cell, *(float(each) for each in row)) for cell, row in zip(cells, found.reshape(-1, 3), strict=True)
    )


Moments = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The mean squares of a reading where the answer is the respondent's own, and where it is not; for each answer."""


def _find_moments(question: Question) -> Moments:
    """From the law of the randomizer alone: the variance of one respondent's reading, and the square of its mean."""
    protocol = question.parts[0]
    miss, match = (np.full(len(question.options), protocol.variance(share)) for share in (0.0, 1.0))
    if protocol.name == "coins":  # its variance is that of a yes; who says no is read as 1 less that
        miss[0], match[0] = match[0], miss[0]
    if protocol.name == "hadamard":  # another answer of the same block is read with squares as large as the own one
        miss = match + 1
    return match + 1, miss


def _combine_moments(parts: Sequence[Moments]) -> Moments:
    """The mean squares of a product of readings: of its own combination, and the most that any other has."""
    own, apart = np.ones(()), np.ones(())
    for place, (match, miss) in enumerate(parts):
        both = np.maximum(np.multiply.outer(own, miss), np.multiply.outer(apart, np.maximum(match, miss)))
        apart = np.multiply.outer(own, miss) if place == 0 else both
        own = np.multiply.outer(own, match)
    return own, apart


def _score_means(
    mean: NDArray[np.float64], own: NDArray[np.float64], apart: NDArray[np.float64], reach: float, count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least and greatest share s with (mean - s)^2 <= reach^2 (s own + (1 - s) apart - s^2) / count."""
    weight = reach**2 / count
    linear, square = 2 * mean + weight * (own - apart), 1 + weight
    root = np.sqrt(np.maximum(linear**2 - 4 * square * (mean**2 - weight * apart), 0))
    return (linear - root) / (2 * square), (linear + root) / (2 * square)


def estimate_weighted(
    survey: Survey, bodies: Iterable[str], of: str, by: str, totals: Sequence[float], confidence: float = 0.95
) -> tuple[JointShare, ...]:
    """The shares of the answers to one question, weighted so that the groups of another have their known totals.

    Respondents may be more of one group than the population is. The share is the sum over groups of the known part of
    the group times the share within it, both from the unbiased joint table; the error is to first order.
    """
    outcome, groups = _find_question(survey, of), _find_question(survey, by)
    known = np.asarray(totals, dtype=np.float64)
    if of == by or any(not q.options or len(q.parts) > 1 for q in (outcome, groups)):
        raise ParameterError("these questions cannot be weighted", expected="Two yes-no or choice questions")
    whole = float(sum(known.tolist()))
    if known.shape != (len(groups.options),) or not (known >= 0).all() or not 0 < whole < math.inf:
        raise ParameterError(
            "the totals do not fit the groups", expected=f"One for each of {', '.join(groups.options)}"
        )
    if _forms_groups(groups):
        labels, values, variances = _weigh_groups(groups, outcome, bodies, known / whole)
        spread = normal_quantile(confidence) * np.sqrt(variances)
        rows = zip(labels, values.tolist(), (values - spread).tolist(), (values + spread).tolist(), strict=True)
        return tuple(JointShare((answer,), *row) for answer, *row in rows)
    told = [body for body in map(json.loads, bodies) if of in body and by in body]
    if len(told) < 2:
        raise DataError("there are no responses to both questions", remedy="Collect more responses")
    within, answers = _read_answers(groups, told), _read_answers(outcome, told)
    sizes = within.mean(axis=0)
    if (sizes[known > 0] <= 0).any():
        raise DataError("a group with a known total has too few responses", remedy="Join groups, or collect more")
    parts = np.divide(known / whole, sizes, out=np.zeros_like(known), where=known > 0)
    shares = np.einsum("ng,na->ga", within, answers) / len(told) / np.where(sizes > 0, sizes, 1)[:, None]
    found = (known / whole) @ shares
    pulls = (within * parts) @ np.ones((len(parts), 1)) * answers - (within * parts) @ shares
    reach = student_quantile(confidence, len(told) - 1) * pulls.std(axis=0, ddof=1) / math.sqrt(len(told))
    rows = zip(outcome.options, found.tolist(), (found - reach).tolist(), (found + reach).tolist(), strict=True)
    return tuple(JointShare((answer,), *row) for answer, *row in rows)


def _read_answers(question: Question, told: list[Body]) -> NDArray[np.float64]:
    """For each respondent and answer a number whose expectation is 1 for the true answer and 0 for the others."""
    protocol, columns = question.parts[0], _parse_columns(question, [body[question.name] for body in told], 0)
    read: dict[bytes, NDArray[np.float64]] = {}
    keys = [b"".join(column[at].tobytes() for column in columns) for at in range(len(told))]
    for at, key in enumerate(keys):
        if key not in read:  # many respondents sent the same
            read[key] = protocol.estimate(protocol.tally(tuple(column[at : at + 1] for column in columns)), 1).counts
    return np.stack([read[key] for key in keys])


def _find_question(survey: Survey, name: str) -> Question:
    question = survey.question(name)
    if question is None:
        names = [question.name for question in survey.questions]
        raise ParameterError(
            f"the survey has no question '{name}'",
            expected=f"It has: {', '.join(names)}",
            remedy=nearest(name, names),
        )
    return question
