"""Evidence: what the steward gives to the motivated-intruder test, made ready for attacks; and how trials are run.

Whether a linked name is right is read from a table that maps released rows to the register. How often a predicate
singles somebody out, or a nearest record is near, depends on how many people there are: on sides of one size an
intruder who learned nothing about anybody does equally well on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import (
    count_equal_codes,
    draw_places,
    encode_column,
    encode_combinations,
    pack_codes,
    require_column,
)
from deniable.attacks.outcome import Deadline, Outcome, Progress, tell
from deniable.errors import DataError, pluralize

if TYPE_CHECKING:
    from deniable.attacks.traces import Resolution
    from deniable.kanonymity.recoding import Recoding

Places = NDArray[np.int64]
COUNT = "count"
"""The column that says, in a released map, how many rows a cell stands for."""
NOBODY = "rows with a formal guarantee are nobody's; compare them with --original and --control (--all)"
"""Why what is rare in a release is not counted as people found."""
NEEDS = "needs "
"""How the reason begins why an attack lacked something; other reasons say that it does not apply."""
NEEDS_RECODING = f"{NEEDS}a k-anonymous release with its recoding beside it, and the original rows (--original)"
"""Why minimality was not tried where rows were not generalized by one recoding."""
BEYOND_CHANCE = 5.0
"""So many standard deviations are no chance."""
FEWEST_SHARED = 5
"""So few rows of a control may be those of the original by chance, where its rows are all different."""


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
    """What the steward gives to the test; only `release` leaves.

    `original` are the true rows, `control` rows of other people of the same kind, `register` what an intruder may hold
    with names, `truth` the entry of the register for each released row. `ratings` names person, item, rating and day,
    `trace` person, latitude, longitude and time, which an intruder knows to the `resolutions`, `edges` two ends.
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
    trace: tuple[str, ...] | None = None
    resolutions: tuple[Resolution, ...] = ()
    edges: tuple[str, ...] | None = None

    @property
    def of_nobody(self) -> bool:
        """Whether the rows are formally private: what is rare among them finds nobody."""
        return any(self.noisy[:1])

    def lacks(self, *parts: str) -> str:
        """Which of these parts are missing, in words; empty when all are there."""
        missing = [part for part in parts if not _is_present(getattr(self, part))]
        if missing:
            return f"{NEEDS}{' and '.join(_WORDS[part] for part in missing)}"
        empty = [part for part in parts if part in _EMPTY and self._is_empty(getattr(self, part))]
        return f"{NEEDS}{' and '.join(_EMPTY[part] for part in empty)}" if empty else ""

    def _is_empty(self, names: Sequence[str]) -> bool:
        """Whether all values of these columns are missing from the release, so that there is nothing to measure."""
        there = [name for name in names if name in self.release.column_names]
        rows = self.release.num_rows
        return bool(there) and rows > 0 and all(self.release[name].null_count == rows for name in there)


_WORDS = {
    "knows": "the columns an intruder knows (--knows, or quasi-identifiers of a policy)",
    "sensitive": "a sensitive column (--sensitive, or declared by a policy)",
    "original": "the original rows (--original)",
    "control": "rows of other people (--control)",
    "register": "a register with names (--register)",
    "ratings": "the columns of person, item, rating and day (--ratings)",
    "trace": "the columns of person, latitude, longitude and, if there is one, time (--trace)",
    "edges": "the columns of the two ends of each edge (--edges)",
    "others": "another release of the same people (--with)",
}
_EMPTY = {
    "knows": "values of the columns an intruder knows: all of them are missing",
    "sensitive": "values of the sensitive columns: all of them are missing",
}


def _is_present(part: Any) -> bool:
    return part is not None and (not isinstance(part, tuple) or len(part) > 0)


@dataclass(frozen=True, slots=True)
class Settings:
    """How hard to try: targets for each attack, the seed, and seconds for all together."""

    attacks: int = 500
    seed: int = 0
    seconds: float | None = None
    beyond_chance: bool = False
    """Whether only what beats its control beyond chance counts as exposed."""


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
    beyond_chance: bool = False

    @property
    def exposed(self) -> float:
        """The share of people exposed beyond the control (or beyond guessing), at worst."""
        counted = (one for one in self.outcomes if one.beats_control or not self.beyond_chance)
        return max((outcome.excess for outcome in counted), default=0.0)


def run_trials(
    evidence: Evidence,
    settings: Settings,
    names: Sequence[str] | None = None,
    *,
    trials: Sequence[Trial],
    done: Mapping[str, Any] | None = None,
    finished: Callable[[Attempt], None] | None = None,
    progress: Progress | None = None,
) -> tuple[Attempt, ...]:
    """Run the trials (those named, or all); those in `done` are passed over, `finished` is called for each."""
    deadline, found = Deadline(settings.seconds), []
    chosen = [trial for trial in trials if (names is None or trial.name in names) and trial.name not in (done or {})]
    for place, trial in enumerate(chosen):
        deadline.check()
        why_not = trial.lacks(evidence)
        outcomes = () if why_not else trial.run(evidence, settings)
        made = Attempt(trial.name, outcomes, why_not, settings.beyond_chance)
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


EVERY = "every"
"""In place of an attack's name: the limit of each attack that is run."""


def spread_limit(limits: Mapping[str, Fraction], exposed: Iterable[str]) -> dict[str, Fraction]:
    """Limits by attack, with that of every attack laid on all that were run; where none was run it stays unmet."""
    named = {name: most for name, most in limits.items() if name != EVERY}
    if EVERY not in limits or not (run := list(exposed)):
        return dict(limits)
    return named | {name: min(limits[EVERY], named.get(name, limits[EVERY])) for name in run}


def is_wanting(attempt: Mapping[str, Any]) -> bool:
    """Whether an attempt, as plain values, gave no figure for want of something; not where it does not apply."""
    return not attempt["outcomes"] and (not attempt["skipped"] or attempt["skipped"].startswith(NEEDS))


OF_STATISTICS = ("reconstruction", "tables", "differencing", "auditing")
"""The attacks on published statistics and on logs of questions."""


def sort_unmeasured(
    attempts: Iterable[Mapping[str, Any]], limits: Iterable[str], required: Iterable[str]
) -> tuple[list[str], dict[str, str]]:
    """Of limited attacks without a figure those whose limit is not met, and those that do not apply, with the reason.

    A limit that must be judged (`required`), or whose attack lacked something, is not met. Where there is nothing that
    an attack could find, or it attacks other things than those given, its limit holds, and that is told: a policy is
    for tables, logs and statistics alike.
    """
    tried = {one["attack"]: one for one in sorted(attempts, key=lambda one: bool(one["outcomes"]))}
    unknown = [name for name in limits if name not in tried or not tried[name]["outcomes"]]
    unmet = [name for name in unknown if name in required or (name in tried and is_wanting(tried[name]))]
    other = "it attacks published statistics and logs of questions"
    reasons = {name: other if name in OF_STATISTICS else "it is not tried on what was given" for name in unknown}
    reasons |= {name: tried[name]["skipped"] for name in unknown if name in tried}
    return unmet, {name: reasons[name] for name in unknown if name not in unmet}


def needs_more_evidence(why: str) -> bool:
    """Whether an attack lacked what does not stand in rows and policy: the steward may give it to a later one."""
    return any(_WORDS[part] in why for part in ("control", "register", "ratings", "trace", "edges", "others")) or (
        why == NEEDS_RECODING
    )


def refuse_shared_people(original: pa.Table, control: pa.Table, columns: Sequence[str], unit: str | None) -> None:
    """Refuse a control that holds people of the original: an attack does as well on them, so nothing would show."""
    both = [name for name in original.column_names if name in control.column_names and name != unit]
    if any(_has_shared_rows(original, control, names) for names in (both, [n for n in both if n in columns]) if names):
        raise DataError(
            "The control (--control) has rows of the original (--original), more than chance explains",
            expected="Rows of other people of the same kind",
            remedy="Leave the people of the original out of the control",
            charge="",
        )


def _has_shared_rows(original: pa.Table, control: pa.Table, names: Sequence[str]) -> bool:
    """Whether more rows of the control have a twin in the original than rows of the original have among themselves."""
    ours, theirs = encode_combinations([original, control], names, missing=True)
    if not len(ours) or not len(theirs):
        return False
    twins, found = int((count_equal_codes(ours) > 1).sum()), int(np.isin(theirs, ours).sum())
    share = (twins + found) / (len(ours) + len(theirs))
    spread = np.sqrt(share * (1 - share) * (1 / len(ours) + 1 / len(theirs)))
    beyond = found / len(theirs) - twins / len(ours)
    return bool(beyond > BEYOND_CHANCE * spread and found > FEWEST_SHARED)


def match_true_entries(release: pa.Table, register: pa.Table, truth: pa.Table) -> Places:
    """For each released row its entry in the register, -1 where it has none.

    The truth has one column that the release has too, and one that the register has.
    """
    ours = [name for name in truth.column_names if name in release.column_names]
    theirs = [name for name in truth.column_names if name in register.column_names and name not in ours]
    if len(ours) != 1 or len(theirs) != 1:
        raise DataError(
            "The truth does not map released rows to the register",
            expected="One column that the release has, and one that the register has",
            remedy="Name the two columns as the release and the register name them",
            charge="",
        )
    released, left = np.split(encode_column([release[ours[0]], truth[ours[0]]]), [release.num_rows])
    registered, right = np.split(encode_column([register[theirs[0]], truth[theirs[0]]]), [register.num_rows])
    entry_of = _make_lookup(registered, np.arange(len(registered)))
    target = _make_lookup(left, entry_of(right))
    return target(released)


def _make_lookup(keys: Places, values: Places) -> Callable[[Places], Places]:
    """A function from keys to values; -1 for a key that is not there."""
    size = int(keys.max(initial=-1)) + 1
    table = np.full(size + 1, -1, np.int64)
    table[keys] = values

    def find(wanted: Places) -> Places:
        known = (wanted >= 0) & (wanted < size)
        return np.asarray(np.where(known, table[np.where(known, wanted, size)], -1))

    return find


def equalize_sides(seen: pa.Table, others: pa.Table, names: Sequence[str], seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """The named columns of equally many rows of both, taken at random from the larger."""
    size, generator = min(seen.num_rows, others.num_rows), np.random.default_rng(seed)
    return _sample_columns(seen, names, size, generator), _sample_columns(others, names, size, generator)


def _sample_columns(rows: pa.Table, names: Sequence[str], size: int, generator: np.random.Generator) -> pa.Table:
    shown = pa.table({name: require_column(rows, name) for name in names})
    return shown.take(pa.array(draw_places(shown, names, size, generator)))


def find_row_keys(
    release: pa.Table, truth: pa.Table, hidden: Sequence[str]
) -> tuple[tuple[Places, Places], tuple[str, ...]]:
    """A number for each released and each original row, equal where they may be one person's; and what is not told.

    Rows are in the same order where everything shown is the same row by row; otherwise rows may be one person's that
    are alike in all that both tables show in clear: in columns other than the `hidden` ones.
    """
    shown = [name for name in release.column_names if name in truth.column_names and name not in hidden]
    codes = {name: encode_combinations([release, truth], [name], missing=True) for name in shown}
    clear = [name for name, (ours, theirs) in codes.items() if _hold_the_same_values(ours, theirs)]
    rows = release.num_rows
    together = encode_combinations([release, truth], clear, missing=True) if clear else [np.zeros(0, np.int64)]
    ours, theirs = np.split(pack_codes(np.concatenate(together)), [rows])
    if not clear or not _hold_the_same_values(ours, theirs):
        nobody = np.zeros(rows, np.int64)
        return (nobody, nobody), ("no column tells whose row is whose: scored by how often values occur",)
    different = len(np.unique(ours))
    sorted_by_it = np.count_nonzero(np.diff(ours)) + 1 == different  # then equal columns do not show equal rows
    if (ours == theirs).all() and (different == rows or not sorted_by_it):
        return (np.arange(rows), np.arange(rows)), ()
    tied = int((np.bincount(ours)[ours] > 1).sum())
    told = f"{pluralize(tied, 'row is', 'rows are')} like others in all that is shown: counted by chance among them"
    return (ours, theirs), (told,) if tied else ()


def _hold_the_same_values(ours: Places, theirs: Places) -> bool:
    return bool((np.sort(ours.reshape(-1)) == np.sort(theirs.reshape(-1))).all())
