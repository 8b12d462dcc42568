"""Which protocol for which question: the least variance among those whose message fits, with the reason in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from deniable.errors import Infeasible, ParameterError
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.likelihood_ratio import check_epsilon
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import NumericProtocol, Scale, worst_variance
from deniable.localdp.protocol import FrequencyProtocol, check_domain, message_bytes
from deniable.policy.budget import Amount

Maker = Callable[[int, Amount], FrequencyProtocol]

CANDIDATES: tuple[tuple[str, int, Maker], ...] = (
    # name, largest domain for which both ends stay fast, constructor; ties go to the earlier one
    ("k-ary", 1 << 30, Direct.calibrate),
    ("subset selection", 1 << 12, Subset.calibrate),
    ("optimized unary", 1 << 16, Unary.calibrate),
    ("optimized local hashing", 1 << 17, LocalHashing.calibrate),
    ("hadamard", 1 << 26, Hadamard.calibrate),
)
NUMERIC: tuple[tuple[str, Callable[[Scale, Amount], NumericProtocol]], ...] = (
    ("duchi", Duchi.calibrate),
    ("hybrid", Hybrid.calibrate),
    ("piecewise", Window.piecewise),
    ("laplace", BoundedLaplace.calibrate),
)


@dataclass(frozen=True, slots=True)
class Contender:
    """A protocol as it would do: bytes of one message, and the standard error of a rare answer's share."""

    name: str
    protocol: FrequencyProtocol
    bytes: int
    variance: float
    error: float
    fits: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The protocol chosen, why, and all contenders in order of their error."""

    name: str
    protocol: FrequencyProtocol
    reason: str
    contenders: tuple[Contender, ...]


def choose(domain: int, epsilon: Amount, n: int, bytes: int = 256) -> Choice:
    """The frequency protocol of least variance whose message has at most `bytes` bytes, for n respondents.

    >>> choose(domain=4, epsilon=1, n=10_000).name
    'k-ary'
    """
    check_domain(domain)
    if n < 1 or bytes < 1:
        raise ParameterError(f"{n} respondents and {bytes} bytes", expected="At least one of each")
    contenders = sorted(
        (_rate_protocol(name, make(domain, epsilon), n, bytes) for name, most, make in CANDIDATES if domain <= most),
        key=lambda contender: contender.variance,
    )
    fitting = [contender for contender in contenders if contender.fits]
    if not fitting:
        raise Infeasible(f"No protocol fits in {bytes} bytes", remedy=f"Allow {min(c.bytes for c in contenders)} bytes")
    best = fitting[0]
    reason = _explain_choice(best, contenders, domain, float(check_epsilon(epsilon)))
    return Choice(best.name, best.protocol, reason, tuple(contenders))


def _rate_protocol(name: str, protocol: FrequencyProtocol, n: int, limit: int) -> Contender:
    length, variance = message_bytes(protocol.layout), protocol.variance()
    return Contender(name, protocol, length, variance, math.sqrt(variance / n), length <= limit)


def _explain_choice(best: Contender, contenders: list[Contender], domain: int, epsilon: float) -> str:
    """Why this one: the rule of thumb for it, what it beats, and what did not fit."""
    border = 3 * math.exp(epsilon) + 2
    rules = {
        "k-ary": f"{domain} answers are {'fewer' if domain < border else 'not fewer'} than 3 e^eps + 2 = {border:.1f}",
        "subset selection": f"sets of answers waste least when {domain} answers exceed 3 e^eps + 2 = {border:.1f}",
        "optimized unary": "its error does not grow with the number of answers, and a bit for each still fits",
        "optimized local hashing": "its error does not grow with the number of answers, in a few bytes",
        "hadamard": f"at epsilon {epsilon:g} a few bits of a Hadamard row carry nearly all there is to send",
    }
    others = [contender for contender in contenders if contender is not best]
    unfit = [f"{c.name} would need {c.bytes} bytes" for c in others if not c.fits and c.variance < best.variance]
    beaten = next((f"{c.name} errs {c.error / best.error:.2f} times as much" for c in others if c.fits), "")
    return "; ".join(part for part in (rules[best.name], beaten, *unfit) if part)


def choose_numeric(scale: Scale, epsilon: Amount) -> tuple[str, NumericProtocol]:
    """The protocol of least worst variance for a mean."""
    made = [(name, make(scale, epsilon)) for name, make in NUMERIC]
    return min(made, key=lambda pair: worst_variance(pair[1]))
