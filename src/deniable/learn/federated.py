"""Rounds of federated learning: what clients that keep their rows sum together, with noise that they draw together.

A round is a public document: the declared columns, the method, the budget and the terms of the secure sum. From it
every client computes the same plan. Each adds to its exact sums a share of the noise: discrete Gaussian noise of the
plan's variance, divided by how many honest clients answer at least. Masked vectors are added by `secure_sum`; what
comes out is the plan's one noisy release over the rows of all clients, from which the model is computed as usual.

**The noise.** A sum of k discrete Gaussians of variance v is not exactly one of variance k v. Where v is at least
LEAST, the probabilities of both differ by a factor of at most e^t with t = 10 k e^(-pi^2 v) (Kairouz, Liu, Steinke
2021): below 1e-260. The charge is that of a variance smaller by SLACK, which covers it. More clients than `least` make
the noise larger, never smaller.
"""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError, PolicyError
from deniable.learn.boosting import BayesPlan, plan_bayes
from deniable.learn.features import (
    STEPS,
    Design,
    Entries,
    Fit,
    LabelsTarget,
    Number,
    NumberTarget,
    Progress,
    Target,
    build_design,
    build_feature,
    build_labels_target,
    build_target,
    encode_codes,
    encode_rows,
    encode_target,
)
from deniable.learn.linear import plan_linear
from deniable.learn.model import (
    LearnedModel,
    feature_from_plain,
    feature_to_plain,
    target_from_plain,
    target_to_plain,
)
from deniable.learn.secure_sum import Terms
from deniable.learn.structure import plan_components
from deniable.policy.budget import ZCDP, ApproxDP, Budget, read_rational
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema
from deniable.release import Guarantee, Technique

FORM = "deniable federated round 2"
METHODS = ("means", "histogram", "linear", "bayes", "pca")
LEAST = 64
"""The least variance of one client's share of the noise."""
SLACK = Fraction(1, 10**9)
MOST_SCALE = 1 << 20
BINS = 16


@dataclass(frozen=True, slots=True)
class SumsPlan:
    """The sum of the rows' entries, released once: means of numbers and shares of values, or of bins in a histogram.

    **Guarantee.** One release of the Gaussian mechanism; a row's entries have squared length of at most
    blocks STEPS^2. **Utility.** A mean errs by the noise's deviation divided by the number of rows.
    """

    design: Design
    mechanism: GaussianMechanism

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(
        self,
        entries: Entries,
        truth: NDArray[np.int64],  # noqa: ARG002  nothing is predicted
        entropy: Entropy = SYSTEM,
        progress: Progress | None = None,  # noqa: ARG002  one pass
    ) -> Fit:
        """Sum, add noise, divide by the noisy count."""
        noisy = np.asarray(self.mechanism.release(entries.sum(axis=0, dtype=np.int64), entropy), np.float64) / STEPS
        rows, noise = max(1.0, float(noisy[0])), math.sqrt(float(self.mechanism.variance)) / STEPS
        means = np.clip(noisy / rows, -1.0, 1.0)
        # The variance of an entry is at most 1: that is the sample's part.
        errors = np.sqrt(noise**2 * (1 + means**2) / rows**2 + 1 / rows)
        return Fit(means, np.minimum(errors, 2.0), rows)


@dataclass(frozen=True, slots=True)
class Round:
    """All that clients and server agree on: public."""

    name: str
    method: str
    table: str
    design: Design
    target: Target | None
    budget: Budget
    unit: str | None
    """The column that tells units apart; None where each row is one."""
    rows: int
    """The most rows of one unit; twice as many where units are replaced."""
    clients: int
    least: int
    colluding: int = 0
    """So many clients may tell the server their share of the noise: the others' is enough without it."""
    count: int | None = None

    @property
    def plan(self) -> Any:
        """The method's plan, as if all rows were in one place; each has one release."""
        if self.method == "linear" and isinstance(self.target, NumberTarget):
            return plan_linear(self.design, self.target, self.budget, self.rows, finest=STEPS)
        if self.method == "bayes" and isinstance(self.target, LabelsTarget):
            return plan_bayes(self.design, self.target, self.budget, self.rows)
        if self.method == "pca":
            return plan_components(self.design, self.count, self.budget, self.rows)
        made = self.design.cut(BINS) if self.method == "histogram" else self.design
        squared = Fraction(self.rows**2 * made.blocks * STEPS**2)
        return SumsPlan(made, GaussianMechanism.within(self.budget, sensitivity_squared=squared))

    @property
    def scale(self) -> int:
        """What vectors are multiplied by, so that a client's share of the noise has at least the variance LEAST."""
        variance, found = self.plan.mechanism.variance, 1
        while variance * found**2 < LEAST * self.honest and found < MOST_SCALE:
            found *= 2
        return found

    @property
    def honest(self) -> int:
        """How many shares of the noise are in the sum at least, and unknown to the server."""
        return self.least - self.colluding

    @property
    def share(self) -> int:
        """The variance of one client's noise, of vectors that are multiplied by the scale."""
        needed = self.plan.mechanism.variance * self.scale**2 / (self.honest * (1 - SLACK))
        return int(max(LEAST, math.ceil(needed)))

    @property
    def event(self) -> GaussianEvent:
        """What each client charges: its people are in one sum, with the noise of the fewest clients."""
        squared = self.plan.mechanism.sensitivity_squared * self.scale**2
        return GaussianEvent(self.share * self.honest * (1 - SLACK), squared)

    @property
    def guarantee(self) -> Guarantee:
        """What is claimed of the result, for the people of each client."""
        unit = (
            PrivacyUnit() if self.unit is None else PrivacyUnit(self.unit, max_groups=1, max_rows_per_group=self.rows)
        )
        return Guarantee.differential(Technique.DP_MODEL, unit, self.budget, Neighboring.ADD_REMOVE)

    @property
    def terms(self) -> Terms:
        """The terms of the secure sum."""
        length = len(collect(self.plan, _no_rows(self.plan)))
        return Terms(self.name, self.clients, self.least, 2 * self.clients // 3 + 1, length)


class _Collected(Exception):
    """Ends a fit once its vector is known."""


@dataclass(frozen=True, slots=True, eq=False)
class _Collector:
    """In place of a mechanism: keeps the exact vector and ends the fit."""

    found: list[NDArray[np.int64]]
    variance: Fraction = Fraction(1)

    def release(self, values: Any, entropy: Entropy) -> Any:  # noqa: ARG002  nothing is drawn
        self.found.append(np.asarray(values, np.int64).ravel())
        raise _Collected


@dataclass(frozen=True, slots=True, eq=False)
class _Released:
    """In place of a mechanism: what was released already."""

    values: NDArray[np.float64]
    variance: Fraction

    def release(self, values: Any, entropy: Entropy) -> Any:  # noqa: ARG002  there are no rows here
        return self.values


Encoded = tuple[Any, NDArray[np.int64]]


def encode_for(plan: Any, target: Target | None, rows: pa.Table) -> Encoded:
    """Rows as a plan takes them."""
    encode = encode_codes if isinstance(plan, BayesPlan) else encode_rows
    if target is None:
        return encode(plan.design, rows), np.zeros(rows.num_rows, np.int64)
    wanted, known = encode_target(target, rows)
    return encode(plan.design, rows)[known], wanted[known]


def _no_rows(plan: Any) -> Encoded:
    width = plan.design.blocks if isinstance(plan, BayesPlan) else plan.design.width
    return np.zeros((0, width), np.int32 if isinstance(plan, BayesPlan) else np.int16), np.zeros(0, np.int64)


def collect(plan: Any, encoded: Encoded) -> NDArray[np.int64]:
    """The exact vector that a plan of one release would add noise to."""
    kept: list[NDArray[np.int64]] = []
    try:
        replace(plan, mechanism=_Collector(kept)).fit(*encoded)
    except _Collected:
        return kept[0]
    raise ParameterError("the method has more than one release", expected=f"One of {', '.join(METHODS)}")


def add_share(what: Round, rows: pa.Table, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """A client's vector: its exact sums with its share of the noise. The only deed here that sees rows."""
    plan = what.plan
    exact = collect(plan, encode_for(plan, what.target, rows)) * what.scale
    squared = plan.mechanism.sensitivity_squared * what.scale**2
    return np.asarray(GaussianMechanism(Fraction(what.share), squared).release(exact, entropy), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Mean:
    """The mean of a number, or the share of a value or bin, with one standard deviation."""

    entry: str
    mean: float
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """What a round tells: a model, or means; and of how many clients."""

    clients: int
    rows: float
    means: tuple[Mean, ...] = ()
    model: LearnedModel | None = None


def conclude(what: Round, total: NDArray[np.int64], clients: int) -> RoundResult:
    """The model or the means from the noisy sum of so many clients."""
    plan, scale = what.plan, what.scale
    released = _Released(total / scale, Fraction(what.share * clients, scale**2))
    fit = replace(plan, mechanism=released).fit(*_no_rows(plan))
    if isinstance(plan, SumsPlan):
        return RoundResult(clients, fit.rows, _tell_means(plan.design, fit))
    errors = None if fit.errors is None else tuple(fit.errors.tolist())
    goal: Any = plan.target if what.target is None else what.target
    model = LearnedModel(
        what.method, what.table, plan.design, goal, tuple(fit.coefficients.tolist()), errors, fit.rows, what.guarantee,
        what.event, fit.shares,
    )  # fmt: skip
    return RoundResult(clients, fit.rows, model=model)


def _tell_means(design: Design, fit: Fit) -> tuple[Mean, ...]:
    from deniable.learn.model import list_scales

    assert fit.errors is not None
    scales, are_shares = list_scales(design, "kmeans"), [False]
    for each in design.features:
        are_shares += [not isinstance(each, Number), *([True] * (each.size - 1))]
    # Noise takes a share below 0 or above 1: the nearest share is told.
    values = np.where(are_shares, np.clip(fit.coefficients, 0.0, 1.0), fit.coefficients)
    listed = zip(design.entries, values, fit.errors, scales, strict=True)
    return tuple(
        Mean(name, float(start + value * by), float(error * by)) for name, value, error, (start, by) in listed
    )[1:]


def plan_round(
    table: TableSchema,
    unit: PrivacyUnit,
    method: str,
    budget: Budget,
    *,
    clients: int,
    least: int,
    features: tuple[str, ...] | None = None,
    target: str | None = None,
    colluding: int = 0,
    count: int | None = None,
) -> Round:
    """The round of a method over a declared table; every refusal is made here."""
    if method not in METHODS:
        raise ParameterError(f"there is no federated method '{method}'", expected=f"One of {', '.join(METHODS)}")
    if (target is None) == (method in ("linear", "bayes")):
        raise ParameterError(
            f"{method} {'needs a' if target is None else 'has no'} target",
            remedy="State a target" if target is None else "Leave target out",
        )
    goal: Target | None = None
    if count is not None and method != "pca":
        raise ParameterError(f"{method} takes no count", expected="How many components, for pca", remedy="Leave it out")
    if target is not None:
        goal = build_labels_target(table, target, "linear") if method == "bayes" else build_target(table, target)
        if method == "linear" and not isinstance(goal, NumberTarget):
            raise ParameterError(f"'{target}' is not a bounded number", remedy="Use bayes for listed values")
    if not 0 <= colluding < least:
        raise ParameterError("colluding is not smaller than least", expected="colluding is from 0 to below least")
    rows = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    name = secrets.token_hex(16)
    made = Round(
        name, method, table.name, build_design(table, features, target), goal, budget, unit.column, rows, clients,
        least, colluding, count,
    )  # fmt: skip
    _ = made.terms  # which refuses what cannot be summed
    return made


def check_table(what: Round, table: TableSchema, unit: PrivacyUnit) -> None:
    """Refuse a table that does not declare the round's columns as the round does, or whose units have more rows."""
    declared = [build_feature(_require_column(table, each.name), table) for each in what.design.features]
    same = declared == list(what.design.features)
    if isinstance(what.target, NumberTarget | LabelsTarget):
        same = same and build_feature(_require_column(table, what.target.name), table) == what.target.column
    if not same:
        raise PolicyError(
            f"the policy declares the columns of '{table.name}' otherwise than the round",
            expected="The same types, categories, bounds and nulls in all policies of the round",
        )
    rows = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    if rows > what.rows:
        raise PolicyError(
            f"a unit of '{table.name}' may have {rows} rows, and the round allows {what.rows}",
            remedy="Declare fewer rows of a unit, or plan the round with this policy",
        )


def _require_column(table: TableSchema, name: str) -> Any:
    found = table.column(name)
    if found is None:
        raise PolicyError(f"the table '{table.name}' declares no column '{name}' of the round")
    return found


PLAIN = ("name", "method", "table", "unit", "rows", "clients", "least", "colluding", "count")


# a dictionary: the round's file, which `read_round` reads back
def round_to_plain(what: Round) -> dict[str, Any]:
    """A round as plain values."""
    amounts = [name for name in ("epsilon", "delta", "rho") if hasattr(what.budget, name)]
    return {
        "form": FORM,
        **{name: getattr(what, name) for name in PLAIN},
        "features": [feature_to_plain(each) for each in what.design.features],
        "target": None if what.target is None else target_to_plain(what.target),
        "budget": {name: str(getattr(what.budget, name)) for name in amounts},
    }


def read_round(text: str | bytes) -> Round:
    """The round that a document stands for; anything else is refused."""
    try:
        held = json.loads(text)
        if held["form"] != FORM or held["method"] not in METHODS:
            raise ValueError
        design = Design(tuple(feature_from_plain(each) for each in held["features"]))
        target = None if held["target"] is None else target_from_plain(held["target"])
        amounts = {name: read_rational(value) for name, value in held["budget"].items()}
        budget: Budget = ZCDP(**amounts) if "rho" in amounts else ApproxDP(**amounts)
        numbers = {name: held[name] for name in ("rows", "clients", "least", "colluding")}
        if not all(type(value) is int and value >= 0 for value in numbers.values()) or numbers["rows"] < 1:
            raise ValueError
        names = isinstance(held["name"], str) and len(held["name"]) == 32 and isinstance(held["table"], str)
        if not (names and isinstance(held["unit"], str | None)):
            raise ValueError
        made = Round(
            held["name"],
            held["method"],
            held["table"],
            design,
            target,
            budget,
            held["unit"],
            count=held["count"],
            **numbers,
        )
        _ = made.terms, made.event
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError, ParameterError):
        raise DataError("this is not a federated round", remedy="Plan one: deniable federate plan") from None
    return made
