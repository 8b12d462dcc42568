"""Who may ask, for what purpose, how much, and until when: the budget tree, and how it is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from deniable.policy.budget import ZCDP, Budget, PureDP, budget, format_number
from deniable.policy.schema import Frozen, Spec, fold_lookalikes

if TYPE_CHECKING:
    from deniable.policy.check.tree_checker import Section
    from deniable.policy.yaml_tree import Mistakes


class Accounting(StrEnum):
    """How the dataset's total is composed."""

    PURE = "pure"
    ZCDP = "zcdp"
    PLD = "pld"


class Period(StrEnum):
    """How often a purpose's allowance is renewed."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


@dataclass(frozen=True, slots=True)
class Purpose:
    """Why somebody asks; an allowance inside the dataset's, renewed each period if one is given.

    `approvals` is how many different stewards approve a release of rows, `justify` whether its request says what it is
    needed for, `terms` what an analyst acknowledges before asking.
    """

    name: str
    allowance: Budget
    every: Period | None = None
    approvals: int = 1
    justify: bool = False
    terms: str = ""


RESERVED_NAMES = ("steward", "auditor", "analyst")
"""Roles: entries of the ledger tell the steward by that name, so no asker may have it."""


@dataclass(frozen=True, slots=True)
class Analyst:
    """Somebody who asks: the purposes granted, the allowance inside each, and what may be seen.

    `columns` may be named; of tables that have a column of `rows`, only rows with one of its values are counted.
    `until` is the last day of the grant. A group has `members`, who ask by their own names and share all of this.
    """

    name: str
    purposes: tuple[str, ...]
    allowance: Budget
    columns: tuple[str, ...] | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=Frozen)
    until: date | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Budgets:
    """The tree: the dataset contains its purposes, which contain their analysts."""

    dataset: Budget
    accounting: Accounting = Accounting.PURE
    purposes: tuple[Purpose, ...] = ()
    analysts: tuple[Analyst, ...] = ()
    _named: Mapping[str, Analyst] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        named: dict[str, Analyst] = {}
        for each in self.analysts:
            for name in (each.name, *each.members):
                named.setdefault(name, each)
        object.__setattr__(self, "_named", named)  # looked up for every charge, and there may be thousands

    def find_analyst(self, name: str) -> Analyst | None:
        """The entry of somebody: their own, or that of their group."""
        return self._named.get(name)

    def find_purpose(self, name: str) -> Purpose | None:
        """The purpose of that name."""
        return next((each for each in self.purposes if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Epochs:
    """What begins a new epoch of the data, beside the steward's word: the calendar, or the text of a public file.

    `copies` is a folder for the private files as they were when the epoch began.
    """

    every: Period | None = None
    manifest: str | None = None
    copies: str | None = None


@dataclass(frozen=True, slots=True)
class Anonymize:
    """The privacy models a k-anonymous release must meet, by column where they concern one.

    `second_release` is what happens to a release that with an earlier one shows groups under k: warn or refuse.
    """

    k: int = 5
    l: Mapping[str, Fraction] = field(default_factory=Frozen)  # noqa: E741  the field's own letter
    t: Mapping[str, Fraction] = field(default_factory=Frozen)
    suppress: Fraction = Fraction(0)
    models: tuple[Spec, ...] = ()
    second_release: str = "warn"


@dataclass(frozen=True, slots=True)
class Minimize:
    """What a record-level release is cut down to before anything else: a sample of units, and named columns."""

    sample: Fraction = Fraction(1)
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class AttackLimits:
    """What the intruder is taken to know, the share of people each attack may expose, and who stands for more."""

    knows: tuple[str, ...] | None = None
    most: Mapping[str, Fraction] = field(default_factory=Frozen)
    accepted_by: str | None = None


@dataclass(frozen=True, slots=True)
class JointLimit:
    """The share of people that all released columns together may single out, and who stands for more than that."""

    most: Fraction
    accepted_by: str | None = None


@dataclass(frozen=True, slots=True)
class Synthesize:
    """What synthetic rows are for: lists of columns of one table that they should get right together."""

    workload: tuple[tuple[str, ...], ...] = ()

    def select_workload(self, columns: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """The lists whose columns are all among these.

        >>> Synthesize((("age", "sex"), ("sex", "ward"))).select_workload(["age", "sex"])
        (('age', 'sex'),)
        """
        known = set(columns)
        return tuple(names for names in self.workload if known.issuperset(names))


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """Defaults for releases that the command line or a request may tighten.

    `truths` are public facts that synthetic rows keep: Specs of kind determines, impossible, order or sum.
    """

    anonymize: Anonymize | None = None
    minimize: Minimize | None = None
    attack: AttackLimits | None = None
    truths: tuple[Spec, ...] = ()
    synthesize: Synthesize = Synthesize()
    joint: JointLimit | None = None


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a masking key is kept: `kind` is file, env or command; the key itself is never in a policy."""

    name: str
    kind: str
    at: tuple[str, ...]


def build_budgets(entry: Section, mistakes: Mistakes) -> Budgets | None:
    """The tree, or None if the dataset's own budget is absent or refused."""
    total = entry.section("dataset")
    if not _has_amount(total):
        return None
    dataset = _allowance(total, PureDP(Fraction(0)))
    accounting = _choose_accounting(total, dataset, mistakes)
    purposes = {
        name: _purpose(name, s, dataset, mistakes) for name, s in _sections(entry, "purposes") if _has_amount(s)
    }
    analysts = [_analyst(name, s, dataset, purposes, mistakes) for name, s in _sections(entry, "analysts")]
    _check_members(entry, analysts, mistakes)
    return Budgets(dataset, accounting, tuple(purposes.values()), tuple(analysts))


def check_stewards(entry: Section, budgets: Budgets | None, mistakes: Mistakes) -> tuple[str, ...]:
    """The people who decide; refuses a role, a purpose or a group as one, and two names that look alike."""
    names: tuple[str, ...] = entry.get("stewards", ())
    listed = budgets or Budgets(PureDP(Fraction(0)))
    others = {fold_lookalikes(role): "a role" for role in RESERVED_NAMES}
    others |= {fold_lookalikes(each.name): "a purpose" for each in listed.purposes}
    others |= {fold_lookalikes(each.name): "a group" for each in listed.analysts if each.members}
    for name in names:
        plain = fold_lookalikes(name)
        if plain in others:
            happened = f"'{name}' is the name of {others[plain]}, or looks like it, and of no steward"
            mistakes.add(entry.place_of("stewards"), happened, "The name of a person, unlike all others")
        others[plain] = f"the steward '{name}'"
    return names


def build_epochs(entry: Section, mistakes: Mistakes) -> Epochs | None:
    """What the policy says of epochs, if it says anything."""
    every, manifest, copies = (entry.get(name, None) for name in ("every", "manifest", "copies"))
    if every is not None and manifest is not None:
        mistakes.add(entry.place_of("manifest"), "both a calendar and a manifest", "Expected: one of the two")
    if every is None and manifest is None and copies is None:
        return None
    return Epochs(None if every is None else Period(every), manifest, copies)


def _sections(entry: Section, name: str) -> list[tuple[str, Section]]:
    inner = entry.section(name)
    return [(each, inner.section(each)) for each in inner]


def _has_amount(entry: Section) -> bool:
    return "epsilon" in entry or "rho" in entry


def _allowance(entry: Section, whole: Budget) -> Budget:
    """The amount that an entry states; delta is the containing budget's if left out."""
    delta = entry.get("delta", whole.delta)
    if "rho" in entry and "epsilon" not in entry:
        return budget(rho=entry.get("rho", 0), delta=delta)
    return budget(epsilon=entry.get("epsilon", 0), delta=delta)


def _choose_accounting(entry: Section, dataset: Budget, mistakes: Mistakes) -> Accounting:
    zero_concentrated = isinstance(dataset, ZCDP)
    default = Accounting.ZCDP if zero_concentrated else Accounting.PURE
    chosen = Accounting(entry.get("accounting", default))
    if zero_concentrated and chosen is not Accounting.ZCDP:
        place = entry.place_of("accounting")
        mistakes.add(place, f"a budget in rho with {chosen} accounting", "Expected: accounting: zcdp, or epsilon")
    if not zero_concentrated and chosen is not Accounting.PURE and dataset.delta == 0 and not entry.was_given("delta"):
        place, expected = entry.place_of("accounting"), "A small delta, such as delta: 1e-6"
        mistakes.add(place, f"{chosen} accounting of an epsilon needs a delta", expected)
    return chosen


def _purpose(name: str, entry: Section, dataset: Budget, mistakes: Mistakes) -> Purpose:
    allowance = _allowance(entry, dataset)
    _check_inside(f"purpose '{name}'", allowance, entry, "the dataset", dataset, mistakes)
    every = entry.get("every", None)
    demands = (entry.get("approvals", 1), entry.get("justify", False), entry.get("terms", ""))
    return Purpose(name, allowance, None if every is None else Period(every), *demands)


def _analyst(name: str, entry: Section, dataset: Budget, purposes: dict[str, Purpose], mistakes: Mistakes) -> Analyst:
    granted: tuple[str, ...] = entry.get("purposes", ())
    if name.strip().casefold() in RESERVED_NAMES:
        mistakes.add(entry.place, f"'{name}' is the name of a role, and of no analyst", "Give the analyst another name")
    allowance = _allowance(entry, dataset) if _has_amount(entry) else dataset
    if _has_amount(entry):
        _check_inside(f"analyst '{name}'", allowance, entry, "the dataset", dataset, mistakes)
        for purpose in (purposes[p] for p in granted if p in purposes):
            _check_inside(
                f"analyst '{name}'", allowance, entry, f"purpose '{purpose.name}'", purpose.allowance, mistakes
            )
    if "epsilon" in entry and "rho" in entry:
        mistakes.add(entry.place_of("rho"), f"analyst '{name}' has epsilon and rho", "Expected: one of the two")
    seen = (entry.get("columns", None), entry.get("rows", Frozen()))
    return Analyst(name, granted, allowance, *seen, entry.get("until", None), entry.get("members", ()))


def _check_members(entry: Section, analysts: Iterable[Analyst], mistakes: Mistakes) -> None:
    """Refuse somebody who stands twice, whose limits would be unclear, and roles as members of a group."""
    listed = entry.section("analysts")
    taken = {each.name for each in analysts}
    for group in (each for each in analysts if each.members):
        place = listed.section(group.name).place_of("members")
        for name in group.members:
            if name in taken:
                mistakes.add(place, f"'{name}' stands twice among the analysts and the members of groups", "Once")
            if name.strip().casefold() in RESERVED_NAMES:
                mistakes.add(place, f"'{name}' is the name of a role, and of no analyst", "The name of a person")
            taken.add(name)


def _check_inside(what: str, part: Budget, entry: Section, container: str, whole: Budget, mistakes: Mistakes) -> None:
    """No component of a part is larger than that of the whole which contains it."""
    if isinstance(part, ZCDP) != isinstance(whole, ZCDP):
        place = entry.place_of("rho" if "rho" in entry else "epsilon")
        mistakes.add(
            place, f"{what} and {container} state different kinds of budget", "Epsilon in both, or rho in both"
        )
        return
    amounts = [("rho", part.rho, whole.rho)] if isinstance(part, ZCDP) and isinstance(whole, ZCDP) else []
    if not isinstance(part, ZCDP) and not isinstance(whole, ZCDP):
        amounts = [("epsilon", part.epsilon, whole.epsilon)]
    for name, asked, allowed in [*amounts, ("delta", part.delta, whole.delta)]:
        if asked > allowed:
            place = entry.place_of(name) if name in entry else entry.place
            happened = f"{what} has {name} {format_number(asked)}, more than {container} that contains it"
            mistakes.add(place, happened, f"At most {format_number(allowed)}")
