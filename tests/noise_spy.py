"""What really ran: every draw of noise, and every value that noise was added to, noted while it happens.

Prices are written from plans. The spy stands where the plans are carried out: at the samplers (which law, of which
scale, how many numbers, for whom) and at the mechanisms (which exact values went in, what came out). It changes no
draw. Entropy that is taken outside of a sampler is noted as a salt.

A run can be replayed: each mechanism then gives what it gave the first time, whatever its values are, and salts are the
same. So two neighbors can be compared: given the same noisy answers a technique must do the same, show the same, and
differ in its exact values by no more than its mechanisms were made for (record and replay).
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.dp import samplers
from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent, LaplaceEvent, NoOpEvent, SelfComposedEvent
from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from deniable.dp.samplers.entropy import SystemEntropy
from deniable.query.techniques.watch import Watch

SAMPLERS = tuple(name for name in samplers.__all__ if name != "salt" and inspect.isfunction(getattr(samplers, name)))
PARAMETERS = ("scale", "sigma_squared", "unit", "gamma", "p", "bound")
"""What the samplers call the number that decides their law."""
MEASURING = {
    LaplaceMechanism: "release",
    GaussianMechanism: "release",
    ExponentialMechanism: "release",
    NoisyMaxMechanism: "release",
    QuantileMechanism: "release_groups",
    AboveThreshold: "release",
    Watch: "compare",
}
"""Where exact values meet noise: each of them gives one noisy answer."""


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One call of a sampler: its law, how many numbers came, and who asked for them."""

    sampler: str
    parameter: Fraction | None
    size: int
    by: str
    noise: Any


@dataclass(slots=True, eq=False)
class Measurement:
    """One noisy answer: the mechanism, the exact values it was given, what it gave back, and what it drew."""

    mechanism: Any
    values: tuple[Any, ...]
    by: str
    output: Any = None
    draws: list[Draw] = field(default_factory=list)

    @property
    def entries(self) -> list[int]:
        """The exact values, where they are one vector."""
        return [int(value) for value in np.atleast_1d(self.values[0]).tolist()]


@dataclass(frozen=True, slots=True)
class Tape:
    """What a run gave, to be given again."""

    measured: tuple[Measurement, ...]
    salts: tuple[bytes, ...]


@dataclass(slots=True)
class Spy:
    """All that was seen, in order."""

    draws: list[Draw] = field(default_factory=list)
    """All draws of samplers, whether in a mechanism or not."""
    measured: list[Measurement] = field(default_factory=list)
    thresholds: list[Measurement] = field(default_factory=list)
    """Private keys: the counts that went in, and the positions and counts that came out."""
    salts: list[tuple[str, bytes]] = field(default_factory=list)
    tape: Tape | None = None
    _open: list[Measurement] = field(default_factory=list)
    _inside: int = 0

    @property
    def loose(self) -> list[Draw]:
        """Draws that no mechanism made."""
        kept = {id(draw) for measured in self.measured for draw in measured.draws}
        return [draw for draw in self.draws if id(draw) not in kept]

    def recorded(self) -> Tape:
        """The run as a tape."""
        return Tape(tuple(self.measured), tuple(salt for _, salt in self.salts))

    def note_draw(self, name: str, original: Callable[..., Any], args: Any, rest: Any) -> Any:
        """Call a sampler; note it unless another sampler called it."""
        self._inside += 1
        try:
            noise = original(*args, **rest)
        finally:
            self._inside -= 1
        if not self._inside:
            told = inspect.signature(original).bind(*args, **rest).arguments
            parameter = next((Fraction(told[p]) for p in PARAMETERS if p in told), None)
            draw = Draw(name, parameter, int(np.size(noise)), _find_caller(), noise)
            self.draws.append(draw)
            if self._open:
                self._open[-1].draws.append(draw)
        return noise

    def note_measurement(self, mechanism: Any, values: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        """Run a mechanism, or give what is on the tape; note the values either way."""
        found = Measurement(mechanism, tuple(np.array(value) for value in values), _find_caller())
        place = len(self.measured)
        self.measured.append(found)
        if self.tape is not None and place < len(self.tape.measured):
            found.output = self._replay(found, self.tape.measured[place])
            return found.output
        self._open.append(found)
        try:
            found.output = run()
        finally:
            self._open.pop()
        return found.output

    def note_salt(self, count: int, take: Callable[[int], bytes]) -> bytes:
        """Bytes of the system's entropy: a sampler's own, or a salt, which is the same on a tape."""
        if self._inside:
            return take(count)
        place, held = len(self.salts), self.tape.salts if self.tape is not None else ()
        known = held[place][:count] if place < len(held) else b""
        given = known + take(count - len(known))
        self.salts.append((_find_caller(), given))
        return given

    def _replay(self, now: Measurement, then: Measurement) -> Any:
        """The output of a tape, if the same mechanism is asked in the same place."""
        assert now.mechanism == then.mechanism, "given the same noisy answers, another mechanism was run"
        assert now.by == then.by, "given the same noisy answers, something else was measured"
        return then.output.copy() if isinstance(then.output, np.ndarray) else then.output


@contextmanager
def watch_noise(tape: Tape | None = None) -> Iterator[Spy]:
    """See every draw and every measurement of this process; with a tape, give again what is on it."""
    spy = Spy(tape=tape)
    originals = {name: getattr(samplers, name) for name in SAMPLERS}
    watched = {name: _watch_sampler(spy, name, original) for name, original in originals.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name in SAMPLERS:
            _swap(originals[name], watched[name])
        take = SystemEntropy.take
        patch.setattr(SystemEntropy, "take", lambda self, count: spy.note_salt(count, lambda n: take(self, n)))
        for kind, method in MEASURING.items():
            patch.setattr(kind, method, _watch_mechanism(spy, getattr(kind, method)))
        patch.setattr(KeyThreshold, "release", _watch_threshold(spy, KeyThreshold.release))
        try:
            yield spy
        finally:
            for name in SAMPLERS:
                _swap(watched[name], originals[name])


def _swap(old: Callable[..., Any], new: Callable[..., Any]) -> None:
    for module, attribute in _find_names(old):
        setattr(module, attribute, new)


def put_twin(patch: pytest.MonkeyPatch, honest: Callable[..., Any], twin: Callable[..., Any]) -> None:
    """Put a broken twin for a function under every name that any module of the product has for it."""
    for module, attribute in _find_names(honest):
        patch.setattr(module, attribute, twin)


def _find_names(function: Callable[..., Any]) -> list[tuple[Any, str]]:
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == "deniable"]
    return [(module, key) for module in modules for key, value in list(vars(module).items()) if value is function]


def _watch_sampler(spy: Spy, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **rest: spy.note_draw(name, original, args, rest)


def _watch_mechanism(spy: Spy, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(self: Any, *args: Any, **rest: Any) -> Any:
        values = tuple(arg for arg in args if not hasattr(arg, "take") or isinstance(arg, np.ndarray))
        if not isinstance(self, Watch):
            return spy.note_measurement(self, values, lambda: original(self, *args, **rest))
        self.passed = spy.note_measurement(self.plan.mechanism, values, lambda: original(self, *args, **rest))
        return self.passed

    return watched


def _watch_threshold(spy: Spy, original: Callable[..., Any]) -> Callable[..., Any]:
    def watched(self: KeyThreshold, values: Any, *rest: Any) -> Any:
        before = len(spy.measured)
        output = original(self, values, *rest)
        found = Measurement(self, (np.array(values),), _find_caller(), output)
        assert [each.mechanism for each in spy.measured[before:]] == [self.noise], "keys had no noise of their own"
        spy.thresholds.append(found)
        return output

    return watched


def _find_caller() -> str:
    """The nearest function of the product outside of samplers and mechanisms."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("deniable") and not module.startswith("deniable.dp"):
            return f"{module}.{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "a test"


def flatten(event: Event) -> list[Event]:
    """The single events of a bill, each as often as it is paid for."""
    match event:
        case NoOpEvent():
            return []
        case ComposedEvent(events):
            return [single for part in events for single in flatten(part)]
        case SelfComposedEvent(part, count):
            return flatten(part) * count
        case _:
            return [event]


def additive_noise(events: Sequence[Event]) -> Counter[tuple[str, Fraction]]:
    """The draws that a bill speaks of: which law, of which scale, how often."""
    laplace = [("discrete_laplace", event.scale) for event in events if isinstance(event, LaplaceEvent)]
    gaussian = [("discrete_gaussian", event.variance) for event in events if isinstance(event, GaussianEvent)]
    return Counter([*laplace, *gaussian])


def drawn_noise(draws: Sequence[Draw]) -> Counter[tuple[str, Fraction]]:
    """The draws that were made, in the same words; any other law is among them and matches no event."""
    return Counter((draw.sampler, draw.parameter or Fraction(0)) for draw in draws)


def check_noise_was_added(spy: Spy) -> None:
    """Every number that left an additive mechanism is its exact value and one number of its one draw."""
    for found in spy.measured:
        if isinstance(found.mechanism, LaplaceMechanism | GaussianMechanism):
            (draw,) = found.draws
            noise = [int(each) for each in draw.noise.tolist()]
            assert draw.size == len(found.entries)
            assert [int(out) for out in np.asarray(found.output).tolist()] == [
                value + each for value, each in zip(found.entries, noise, strict=True)
            ]


def share_of_claim(now: Measurement, then: Measurement) -> Fraction:
    """How much of its claimed sensitivity a measurement moved between two neighbors: 1 is all of it."""
    if isinstance(now.mechanism, QuantileMechanism):
        return _share_of_rows(now, then)
    moves = [a - b for a, b in zip(now.entries, then.entries, strict=True)]
    match now.mechanism:
        case LaplaceMechanism(_, sensitivity):
            return sum(map(abs, moves)) / sensitivity
        case GaussianMechanism(_, squared):
            return sum(move * move for move in moves) / squared
        case ExponentialMechanism(_, sensitivity, monotonic) | NoisyMaxMechanism(_, sensitivity, monotonic):
            assert not monotonic or all(move >= 0 for move in moves) or all(move <= 0 for move in moves)
            return max(map(abs, moves), default=0) / sensitivity
        case AboveThreshold() as sparse:
            return max(map(abs, moves), default=0) / sparse.sensitivity
    raise AssertionError(f"a mechanism that nobody compares: {now.mechanism}")


def _share_of_rows(now: Measurement, then: Measurement) -> Fraction:
    """The most values that were added to or taken from one group, against those that a choice is made for."""
    changed: Counter[int] = Counter()
    for sign, found in ((1, now), (-1, then)):
        for value, times, group in zip(*(column.tolist() for column in found.values[:3]), strict=True):
            changed[group, value] += sign * times
    by_group: Counter[int] = Counter()
    for (group, _), times in changed.items():
        by_group[group] += abs(times)
    return Fraction(max(by_group.values(), default=0), now.mechanism.rows_per_unit)
