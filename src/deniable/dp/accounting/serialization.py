"""Events as plain dictionaries: for the ledger, which must read them again, and in the form of Google's DP events.

Rationals are written as text ("1/3"), so that nothing is rounded on the way to a file and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from deniable.dp.accounting.analytic_gaussian import SMOOTHING
from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    PureEvent,
    RandomizedEvent,
    SampledGaussianEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
    UnsupportedEvent,
)
from deniable.errors import ParameterError, nearest
from deniable.policy.budget import read_rational

NAMES: dict[str, type[Event]] = {
    "no-op": NoOpEvent,
    "non-private": NonPrivateEvent,
    "unsupported": UnsupportedEvent,
    "laplace": LaplaceEvent,
    "gaussian": GaussianEvent,
    "sampled-gaussian": SampledGaussianEvent,
    "selection": SelectionEvent,
    "pure": PureEvent,
    "randomized": RandomizedEvent,
    "threshold": ThresholdEvent,
    "composed": ComposedEvent,
    "parallel": ParallelEvent,
    "self-composed": SelfComposedEvent,
}
_WORDS = {kind: word for word, kind in NAMES.items()}
LARGEST = 500
"""An epsilon above this is no protection, and beyond what floating-point accountants can take."""
MOST_ODDS = Fraction(10) ** 300


def to_dict(event: Event) -> dict[str, object]:
    """An event as a dictionary of JSON values.

    >>> to_dict(LaplaceEvent(10, 1))
    {'kind': 'laplace', 'scale': '10', 'sensitivity': '1'}
    """
    fields = {name: _write_value(getattr(event, name)) for name in type(event).__dataclass_fields__}
    return {"kind": _WORDS[type(event)], **fields}


def from_dict(form: Mapping[str, object]) -> Event:
    """The event that a dictionary describes; refuses unknown words, missing and extra fields."""
    word = form.get("kind") if isinstance(form, Mapping) else None
    if not isinstance(word, str) or word not in NAMES:
        raise ParameterError(
            "an event has no known name", expected=f"one of {', '.join(NAMES)}", remedy=nearest(str(word), NAMES)
        )
    kind = NAMES[word]
    given = {name: value for name, value in form.items() if name != "kind"}
    if given.keys() != kind.__dataclass_fields__.keys():
        wanted = ", ".join(kind.__dataclass_fields__) or "none"
        raise ParameterError(f"the fields of a '{word}' event are not its own", expected=f"Fields: {wanted}")
    fields: dict[str, Any] = {name: _READERS[name](value) for name, value in given.items()}
    return kind(**fields)


# a dictionary: the form of another library, with other fields for each class
def to_google(event: Event) -> dict[str, object]:
    """An event in the form of Google's dp_accounting events: `class_name` and fields, nested.

    What that family lacks is exported as something no better: continuous Gaussian noise that dominates the discrete
    (see `analytic_gaussian`), discrete Laplace noise with the loss of a randomized response for a pure event,
    `UnsupportedDpEvent` for a threshold or a parallel event.
    """
    match event:
        case NoOpEvent():
            return _google("NoOpDpEvent")
        case NonPrivateEvent():
            return _google("NonPrivateDpEvent")
        case LaplaceEvent(scale, sensitivity):
            rate = float(1 / scale)
            return _google("DiscreteLaplaceDpEvent", noise_parameter=rate, sensitivity=math.ceil(sensitivity))
        case GaussianEvent(variance, squared) if squared > 0 and variance > SMOOTHING:
            return _google("GaussianDpEvent", noise_multiplier=math.sqrt((variance - SMOOTHING) / squared))
        case SampledGaussianEvent() if event.variance > SMOOTHING:
            once = to_google(GaussianEvent(event.variance, event.sensitivity_squared))
            drawn = _google("PoissonSampledDpEvent", sampling_probability=float(event.rate), event=once)
            return _google("SelfComposedDpEvent", event=drawn, count=event.count)
        case GaussianEvent():
            return _google("ZCDpEvent", rho=float(event.rho), xi=0.0)
        case ComposedEvent(events):
            return _google("ComposedDpEvent", events=[to_google(part) for part in events])
        case SelfComposedEvent(inner, count):
            return _google("SelfComposedDpEvent", event=to_google(inner), count=count)
        case _:
            return _google_pure(event)


def _google_pure(event: Event) -> dict[str, object]:
    """What is only known to be epsilon-DP, as discrete Laplace noise of rate epsilon on a number of sensitivity 1.

    Any epsilon-DP mechanism is a post-processing of the binary randomized response of the same epsilon (Kairouz, Oh,
    Viswanath 2015), but the PLD accountant takes that event under replacement only. This noise has the same privacy
    loss exactly: P(k) / P(k - 1) is e^epsilon for every k <= 0 and e^-epsilon for every k >= 1, and P(k <= 0) is
    1 / (1 + e^-epsilon). So the loss is +-epsilon with the odds of the randomized response, and nothing is lost.
    """
    match event:
        case RandomizedEvent(odds):
            epsilon = math.log(odds) if odds < MOST_ODDS else math.inf
        case PureEvent(amount) | SelectionEvent(amount, _):
            epsilon = float(amount) if amount < LARGEST else math.inf
        case _:
            return _google("UnsupportedDpEvent")
    if epsilon > LARGEST:
        return _google("NonPrivateDpEvent")
    # Rounding to a float must not make the event cheaper.
    rate = math.nextafter(math.nextafter(epsilon, math.inf), math.inf) if epsilon else 0.0
    return _google("DiscreteLaplaceDpEvent", noise_parameter=rate, sensitivity=1) if rate else _google("NoOpDpEvent")


def _google(name: str, **fields: object) -> dict[str, object]:
    return {"module_name": "dp_accounting.dp_event", "class_name": name, **fields}


def _write_value(value: object) -> object:
    if isinstance(value, tuple):
        return [to_dict(part) for part in value]
    if isinstance(value, Fraction):
        return str(value)
    return value if isinstance(value, str | int | bool) else to_dict(value)  # type: ignore[arg-type]


def _read_events(value: object) -> tuple[Event, ...]:
    if not isinstance(value, list | tuple):
        raise ParameterError("the parts of an event are not a list")
    forms = [repr(part) for part in value]
    read = {form: from_dict(part) for form, part in dict(zip(forms, value, strict=True)).items()}
    return tuple(read[form] for form in forms)  # of equal parts, such as those of many sums, one was read


def _read_flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ParameterError("bounded_range is neither true nor false")
    return value


def _read_count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError("a count of an event is not a whole number")
    return value


def _read_event(value: object) -> Event:
    return from_dict(value)  # type: ignore[arg-type]


_READERS: dict[str, Callable[[object], object]] = {
    **dict.fromkeys(
        ("scale", "sensitivity", "variance", "sensitivity_squared", "epsilon", "odds", "delta", "rate", "ratio"),
        read_rational,
    ),
    "events": _read_events,
    "event": _read_event,
    "count": _read_count,
    "bounded_range": _read_flag,
    "reason": str,
}
