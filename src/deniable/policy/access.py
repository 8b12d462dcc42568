"""Who may ask, for what purpose, how much, and until when: the budget tree and release settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from deniable.policy.budget import Budget


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
    """Somebody who asks: the purposes granted, the allowance inside each, and the columns that may be named."""

    name: str
    purposes: tuple[str, ...]
    allowance: Budget
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Budgets:
    """The tree: the dataset contains its purposes, which contain their analysts."""

    dataset: Budget
    accounting: Accounting = Accounting.PURE
    purposes: tuple[Purpose, ...] = ()
    analysts: tuple[Analyst, ...] = ()


@dataclass(frozen=True, slots=True)
class Anonymize:
    """The privacy models a k-anonymous release must meet, by column where they concern one."""

    k: int = 5
    l: Mapping[str, Fraction] = field(default_factory=dict)  # noqa: E741  the field's own letter
    t: Mapping[str, Fraction] = field(default_factory=dict)
    suppress: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Minimize:
    """What a record-level release is cut down to before anything else: a sample of units, and named columns."""

    sample: Fraction = Fraction(1)
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ReleaseSettings:
    """Defaults for releases that the command line or a request may tighten."""

    anonymize: Anonymize | None = None
    minimize: Minimize | None = None
