"""What is claimed of a release, and where it came from: unit, relation, epsilon, delta; policy, data, time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Self

from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, Budget, exact
from deniable.policy.schema import Neighboring


class Technique(StrEnum):
    """How the release was made."""

    MASKING = "masking"
    K_ANONYMITY = "k-anonymity"
    DP_QUERY = "differentially private query"
    DP_SYNTHETIC = "differentially private synthesis"
    DP_MODEL = "differentially private model"
    LOCAL_DP = "local differential privacy"


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the released table itself, such as k-anonymity with k = 5, with its parameters as written."""

    name: str
    parameters: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        given = ", ".join(f"{name} = {value}" for name, value in self.parameters)
        return f"{self.name} ({given})" if given else self.name


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The claim. Build it with `none`, `syntactic`, `differential` or `local`, which fill what belongs together.

    `epsilon` and `delta` hold against everyone who sees the release; `local_epsilon` against the collector as well.
    `rho` is kept beside them when the accounting was zero-concentrated. `reason` says why nothing formal is claimed.
    """

    technique: Technique
    unit: str
    neighbors: Neighboring | None = None
    epsilon: Fraction | None = None
    delta: Fraction | None = None
    rho: Fraction | None = None
    local_epsilon: Fraction | None = None
    properties: tuple[Property, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        _require_non_negative(epsilon=self.epsilon, delta=self.delta, rho=self.rho, local_epsilon=self.local_epsilon)
        if self.delta is not None and self.delta >= 1:
            raise ParameterError("a guarantee with delta 1 or more says nothing", expected="delta is below 1")
        if self.formal and (self.unit == "" or self.neighbors is None):
            raise ParameterError("a formal guarantee names its unit and its neighboring relation")
        if (self.epsilon is None) != (self.delta is None):
            raise ParameterError("a guarantee states epsilon and delta together")
        if not self.formal and not self.reason:
            raise ParameterError("a release without formal guarantee says why there is none")

    @property
    def formal(self) -> bool:
        """Whether the claim holds against any intruder, whatever else is known."""
        return self.epsilon is not None or self.local_epsilon is not None

    @classmethod
    def none(cls, technique: Technique, reason: str, unit: str = "") -> Self:
        """No formal guarantee, and why."""
        return cls(technique, str(unit), reason=reason)

    @classmethod
    def syntactic(cls, properties: tuple[Property, ...], unit: str = "one row") -> Self:
        """Properties of the released table: they hold for the columns they name, and against no other knowledge."""
        if not properties:
            raise ParameterError("a syntactic guarantee names at least one property")
        reason = "the properties describe the released table, and do not bound what other knowledge adds to it"
        return cls(Technique.K_ANONYMITY, str(unit), properties=tuple(properties), reason=reason)

    @classmethod
    def differential(
        cls,
        technique: Technique,
        unit: object,
        budget: Budget,
        neighbors: Neighboring = Neighboring.ADD_REMOVE,
        *,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
    ) -> Self:
        """Central differential privacy; a zCDP budget comes with the epsilon and delta it was converted to."""
        if isinstance(budget, ZCDP):
            if epsilon is None or delta is None:
                raise ParameterError("a zCDP guarantee also states the epsilon and delta it implies")
            pair = exact(epsilon, "epsilon"), exact(delta, "delta")
            return cls(technique, str(unit), neighbors, *pair, rho=budget.rho)
        if epsilon is not None or delta is not None:
            raise ParameterError("epsilon and delta are already in the budget")
        return cls(technique, str(unit), neighbors, budget.epsilon, budget.delta)

    @classmethod
    def local(cls, unit: object, epsilon: Amount, *, shuffled: Budget | None = None) -> Self:
        """Local differential privacy of each answer; `shuffled` is the central guarantee after shuffling."""
        strength = exact(epsilon, "epsilon")
        if shuffled is None:
            return cls(Technique.LOCAL_DP, str(unit), Neighboring.REPLACE, local_epsilon=strength)
        if isinstance(shuffled, ZCDP):
            raise ParameterError("the guarantee after shuffling is stated as epsilon and delta")
        pair = shuffled.epsilon, shuffled.delta
        return cls(Technique.LOCAL_DP, str(unit), Neighboring.REPLACE, *pair, local_epsilon=strength)


def _require_non_negative(**amounts: Fraction | None) -> None:
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            raise ParameterError(f"{name} is negative", expected=f"{name} is at least 0")


Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


def _read_version() -> str:
    # The package that this is part of was loaded before it; it imports the curator, which no foundation may import.
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a release came from; `data_versions` has one version for each table that was read.

    A private table's version is its epoch, or a digest under a key that its steward keeps: a digest without a key would
    let whoever can guess all rows but one try every value of the last. `epoch` is that of the dataset, if it has one.
    """

    policy_hash: str | None
    data_versions: Mapping[str, str]
    parameters: Mapping[str, object] = field(default_factory=dict)
    code_version: str = field(default_factory=lambda: f"deniable {_read_version()}")
    time: datetime = field(default_factory=_now)
    epoch: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", to_plain(self.parameters))
        object.__setattr__(self, "data_versions", dict(self.data_versions))
        if self.time.tzinfo is None:
            raise ParameterError("the time of a release has no time zone", remedy="Use datetime.now(UTC)")


def to_plain(value: object, name: str = "parameters") -> Plain:
    """A value as JSON holds it; exact numbers become texts, and whatever is not plain is refused by its type.

    >>> to_plain({"epsilon": Fraction(1, 2), "columns": ("zip", "sex")})
    {'epsilon': '0.5', 'columns': ['zip', 'sex']}
    """
    match value:
        case None | bool() | int() | str():
            return str(value) if isinstance(value, str) else value
        case float():
            return _require_finite(value, name)
        case Fraction() | Decimal():
            return to_text(Fraction(value))
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return [to_plain(item, name) for item in value]
        case Mapping():
            return {str(key): to_plain(item, f"{name}.{key}") for key, item in value.items()}
        case _:
            raise ParameterError(
                f"{name} is a {type(value).__name__}, which could hold rows",
                expected="A release is described by texts, numbers, lists and mappings only",
            )


def to_text(amount: Fraction) -> str:
    """An exact number as text: as a decimal where that ends, else as a quotient.

    >>> to_text(Fraction(1, 8)), to_text(Fraction(1, 3)), to_text(Fraction("1e-9")), to_text(Fraction(5))
    ('0.125', '1/3', '0.000000001', '5')
    """
    rest, places = amount.denominator, 0
    for prime in (2, 5):
        count = 0
        while rest % prime == 0:
            rest, count = rest // prime, count + 1
        places = max(places, count)
    if rest != 1 or places > 30:
        return str(amount)
    return (
        f"{Decimal(amount.numerator * 10**places // amount.denominator).scaleb(-places):f}" if places else str(amount)
    )


def _require_finite(value: float, name: str) -> float:
    if value != value or value in (float("inf"), float("-inf")):
        raise ParameterError(f"{name} is not a finite number")
    return value
