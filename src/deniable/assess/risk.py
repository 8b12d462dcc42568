"""Risk: every attack that applies to a release, with what the steward has at hand, in one list of outcomes.

The motivated intruder is played by trials: each says what it needs, and what it found. Nothing here is random but by
the seed, and no outcome holds a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.assess import minimal, tokens
from deniable.assess.combining import combined
from deniable.attacks import disclosure, inference, linkability, linkage, membership, ratings, singling_out
from deniable.attacks.base import Deadline, Outcome, Progress, tell
from deniable.attacks.codes import column, dense, one
from deniable.attacks.nearest import numbers
from deniable.attacks.uniqueness import uniqueness
from deniable.kanonymity.recoding import Recoding

MOST_VALUES = 200
"""A sensitive column with more different values is not guessed by class."""
NOBODY = "rows with a formal guarantee are nobody's; compare them with --original and --control (--all)"
"""Why what is rare in a release is not counted as people found."""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What the steward gives to the test; only `release` leaves the house.

    `original` are the true rows, `control` rows of other people of the same kind, `register` what an intruder may hold
    with names, `truth` the entry of the register for each released row. `ratings` names person, item, rating and day.
    `others` are further releases of the same people; `noisy` says of the release and of each of them whether it is
    synthetic or has noise, and `knowledge` is what the intruder knows that any of them shows. `recoding` tells how a
    k-anonymous release was made.
    """

    release: pa.Table
    knows: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    unit: str | None = None
    original: pa.Table | None = None
    control: pa.Table | None = None
    register: pa.Table | None = None
    truth: NDArray[np.int64] | None = None
    ratings: tuple[str, str, str, str] | None = None
    others: tuple[pa.Table, ...] = ()
    noisy: tuple[bool, ...] = ()
    knowledge: tuple[str, ...] = ()
    recoding: Recoding | None = None

    @property
    def of_nobody(self) -> bool:
        """Whether the rows are formally private: what is rare among them finds nobody."""
        return any(self.noisy[:1])

    def lacks(self, *parts: str) -> str:
        """Which of these parts are missing, in words; empty when all are there."""
        missing = [part for part in parts if not _present(getattr(self, part))]
        return f"needs {' and '.join(_WORDS[part] for part in missing)}" if missing else ""


_WORDS = {
    "knows": "the columns an intruder knows (--knows, or quasi-identifiers of a policy)",
    "sensitive": "a sensitive column (--sensitive, or declared by a policy)",
    "original": "the original rows (--original)",
    "control": "rows of other people (--control)",
    "register": "a register with names (--register)",
    "ratings": "the columns of person, item, rating and day (--ratings)",
    "others": "another release of the same people (--with)",
}


def _present(part: Any) -> bool:
    return part is not None and (not isinstance(part, tuple) or len(part) > 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard to try: targets for each attack, the seed, and seconds for all together."""

    attacks: int = 500
    seed: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack of the test: its word in a policy, what it needs, and how it is run."""

    name: str
    lacks: Callable[[Evidence], str]
    run: Callable[[Evidence, Settings], tuple[Outcome, ...]]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of a trial: its outcomes, or why it did not apply."""

    name: str
    outcomes: tuple[Outcome, ...] = ()
    skipped: str = ""

    @property
    def exposed(self) -> float:
        """The share of people exposed beyond the control (or beyond guessing), at worst."""
        return max((outcome.excess for outcome in self.outcomes), default=0.0)


def _uniqueness(evidence: Evidence, _: Settings) -> tuple[Outcome, ...]:
    return (uniqueness(evidence.release, evidence.knows, unit=_unit(evidence)),)


def _linkage(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.register is not None
    found = linkage.linkage(
        evidence.release, evidence.register, evidence.knows, truth=evidence.truth, unit=_unit(evidence),
        seed=settings.seed, seconds=settings.seconds,
    )  # fmt: skip
    return (found,)


def _lacks_classes(evidence: Evidence) -> str:
    alone = evidence.of_nobody and evidence.original is None
    return evidence.lacks("knows", "sensitive") or (NOBODY if alone else "")


def _unit(evidence: Evidence) -> str | None:
    return evidence.unit if evidence.unit in evidence.release.column_names else None


def _ratings(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.ratings is not None
    person, item, stars, day = (column(evidence.release, name) for name in evidence.ratings)
    days = numbers(day)
    if pa.types.is_timestamp(day.type):
        days = days / {"s": 86_400, "ms": 86_400e3, "us": 86_400e6, "ns": 86_400e9}[day.type.unit]
    records = ratings.Records.of(dense(one([person])), dense(one([item])), numbers(stars), days.astype(np.int64))
    facts = (2, 4, 8)
    return ratings.curve(records, facts, targets=settings.attacks, seed=settings.seed)


def _singling_out(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    return tuple(
        singling_out.singling_out(
            evidence.original, evidence.release, control=evidence.control, columns=_shared(evidence), width=width,
            attacks=settings.attacks, seed=settings.seed, seconds=settings.seconds,
        )
        for width in (1, 3)
    )  # fmt: skip


def _linkability(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    rest = tuple(name for name in _shared(evidence) if name not in evidence.knows)
    known = tuple(name for name in evidence.knows if name in evidence.original.column_names)
    found = linkability.linkability(
        evidence.original, evidence.release, (known, rest), control=evidence.control, attacks=settings.attacks,
        seed=settings.seed, seconds=settings.seconds,
    )  # fmt: skip
    return (found,)


def _inference(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    release = evidence.release
    guessed = () if evidence.of_nobody else evidence.sensitive
    few = [name for name in guessed if len(column(release, name).unique()) <= MOST_VALUES]
    by_class = tuple(disclosure.bayesian_intruder(release, evidence.knows, name) for name in few)
    return by_class if evidence.original is None else (*by_class, *_inference_by_likeness(evidence, settings))


def _inference_by_likeness(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    return tuple(
        inference.inference(
            evidence.original, evidence.release, evidence.knows, name, control=evidence.control,
            attacks=settings.attacks, seed=settings.seed, seconds=settings.seconds,
        )
        for name in evidence.sensitive
    )  # fmt: skip


def _membership(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    assert evidence.original is not None
    assert evidence.control is not None
    generator, names = np.random.default_rng(settings.seed), _shared(evidence)
    scores = []
    for table in (evidence.original, evidence.control):
        chosen = np.sort(generator.choice(table.num_rows, min(2 * settings.attacks, table.num_rows), replace=False))
        scores.append(membership.closeness(table.take(pa.array(chosen)), evidence.release, names))
    return (membership.membership(*scores),)


def _shared(evidence: Evidence) -> tuple[str, ...]:
    """Columns that the release shares with the original, without the unit, which names nobody by itself."""
    assert evidence.original is not None
    every = [name for name in evidence.release.column_names if name in evidence.original.column_names]
    return tuple(name for name in every if name != evidence.unit)


TRIALS = (
    Trial("uniqueness", lambda e: e.lacks("knows") or (NOBODY if e.of_nobody else ""), _uniqueness),
    Trial("linkage", lambda e: e.lacks("knows", "register"), _linkage),
    Trial("inference", _lacks_classes, _inference),
    Trial("singling_out", lambda e: e.lacks("original"), _singling_out),
    Trial("linkability", lambda e: e.lacks("knows", "original") or _no_rest(e), _linkability),
    Trial("membership", lambda e: e.lacks("original", "control"), _membership),
    Trial("ratings", lambda e: e.lacks("ratings"), _ratings),
    Trial("minimality", minimal.lacks_reasons, minimal.attack_reasons),
    Trial("downcoding", minimal.lacks_ends, minimal.attack_ends),
    Trial("combining", lambda e: e.lacks("others"), combined),
    Trial("tokens", tokens.lacks, tokens.attack_tokens),
)

CONTROLLED = (
    Trial("membership", lambda e: e.lacks("original", "control"), _membership),
    Trial("singling_out", lambda e: e.lacks("original", "control"), _singling_out),
    Trial("linkability", lambda e: e.lacks("knows", "original", "control") or _no_rest(e), _linkability),
    Trial("inference", lambda e: e.lacks("knows", "sensitive", "original", "control"), _inference_by_likeness),
)
"""Membership and the three risks of WP29, each beside the same attack on people who were not in the data."""


def _no_rest(evidence: Evidence) -> str:
    rest = [name for name in _shared(evidence) if name not in evidence.knows]
    return "" if rest else "needs columns beside those the intruder knows"


def attempt(
    evidence: Evidence,
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    trials: Sequence[Trial] = TRIALS,
    done: Mapping[str, Any] | None = None,
    finished: Callable[[Attempt], None] | None = None,
    progress: Progress | None = None,
) -> tuple[Attempt, ...]:
    """Run the trials (those named, or all); those in `done` are passed over, `finished` is told of each."""
    deadline, found = Deadline(settings.seconds), []
    chosen = [trial for trial in trials if (names is None or trial.name in names) and trial.name not in (done or {})]
    for place, trial in enumerate(chosen):
        deadline.check()
        why_not = trial.lacks(evidence)
        made = Attempt(trial.name, skipped=why_not) if why_not else Attempt(trial.name, trial.run(evidence, settings))
        found.append(made)
        if finished is not None:
            finished(made)
        tell(progress, (place + 1) / len(chosen))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an attack exposes more people than the policy allows."""

    attack: str
    exposed: float
    most: float

    @property
    def failed(self) -> bool:
        """Whether the release must not leave."""
        return self.exposed > self.most


def judge(exposed: Mapping[str, float], limits: Mapping[str, Fraction]) -> tuple[Verdict, ...]:
    """The verdicts on attacks that were run and that the policy limits."""
    return tuple(Verdict(name, exposed[name], float(most)) for name, most in limits.items() if name in exposed)
