"""Accounting: events describe what was run, accountants price them, calibration turns a budget into a scale.

No number here is ever rounded in favor of the one who asks: epsilons, deltas and scales round up, allowances round
down, and sums that decide a refusal are exact rationals. Nothing here draws randomness or sees a value of the data.
"""

from deniable.dp.accounting.calibration import calibrate_gaussian, calibrate_laplace, epsilon_of
from deniable.dp.accounting.composition import cheap_epsilon, keeps_limit
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
    build_randomized_event,
)
from deniable.dp.accounting.pld import ACCOUNTING, Accountant, PLDAccountant, accountant_for
from deniable.dp.accounting.pure import PureAccountant, pure_cost
from deniable.dp.accounting.serialization import from_dict, to_dict, to_google
from deniable.dp.accounting.zcdp import ZCDPAccountant, epsilon_of_zcdp, rho_within, zcdp_cost, zcdp_within

__all__ = [
    "ACCOUNTING",
    "Accountant",
    "ComposedEvent",
    "Event",
    "GaussianEvent",
    "LaplaceEvent",
    "NoOpEvent",
    "NonPrivateEvent",
    "PLDAccountant",
    "ParallelEvent",
    "PureAccountant",
    "PureEvent",
    "RandomizedEvent",
    "SampledGaussianEvent",
    "SelectionEvent",
    "SelfComposedEvent",
    "ThresholdEvent",
    "UnsupportedEvent",
    "ZCDPAccountant",
    "accountant_for",
    "build_randomized_event",
    "calibrate_gaussian",
    "calibrate_laplace",
    "cheap_epsilon",
    "epsilon_of",
    "epsilon_of_zcdp",
    "from_dict",
    "keeps_limit",
    "pure_cost",
    "rho_within",
    "to_dict",
    "to_google",
    "zcdp_cost",
    "zcdp_within",
]
