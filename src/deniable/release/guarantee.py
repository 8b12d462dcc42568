"""Guarantee: what is claimed of a release, for whom, against whom; or plainly that nothing formal is claimed.

One shape fits every technique. Masking claims nothing formal and says why. k-anonymity and its kin claim *properties*
of the released table, which say nothing of other knowledge. Differential privacy claims epsilon and delta for a unit
and a neighboring relation. Local privacy claims a local epsilon, which holds even against the collector, and, where
answers were shuffled, a smaller central one against everybody else.
"""

from __future__ import annotations

from dataclasses import dataclass
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
