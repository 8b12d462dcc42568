"""Who may ask, for what purpose, how much, and until when: the budget tree and release settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from deniable.policy.budget import Budget
from deniable.policy.schema import Frozen, Spec


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
    """Why somebody asks; an allowance inside the dataset's, renewed each period if one is given."""

    name: str
    allowance: Budget
    every: Period | None = None


@dataclass(frozen=True, slots=True)
class Analyst:
    """Somebody who asks: the purposes granted, the allowance inside each, and what may be seen.

    `columns` may be named; of tables that have a column of `rows`, only rows with one of its values are counted.
    """

    name: str
    purposes: tuple[str, ...]
    allowance: Budget
    columns: tuple[str, ...] | None = None
    rows: Mapping[str, tuple[str, ...]] = field(default_factory=Frozen)


@dataclass(frozen=True, slots=True)
class Budgets:
    """The tree: the dataset contains its purposes, which contain their analysts."""

    dataset: Budget
    accounting: Accounting = Accounting.PURE
    purposes: tuple[Purpose, ...] = ()
    analysts: tuple[Analyst, ...] = ()


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
    """What the intruder is taken to know, and the share of people each attack may expose at most."""

    knows: tuple[str, ...] | None = None
    most: Mapping[str, Fraction] = field(default_factory=Frozen)


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


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where a masking key is kept: `kind` is file, env or command; the key itself is never in a policy."""

    name: str
    kind: str
    at: tuple[str, ...]
