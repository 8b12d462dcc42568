"""Mechanisms: random maps on integers, each with its price, its sensitivity and its accuracy.

They see numbers, never tables. Every one is a frozen value whose fields are public parameters; the data is an argument
of `release` alone. Values are integers, counted in a public step, because sums of floats understate sensitivity.
"""

from deniable.dp.mechanisms.mechanism import GaussianMechanism, Integers, LaplaceMechanism, Mechanism
from deniable.dp.mechanisms.quantile import QuantileMechanism
from deniable.dp.mechanisms.selection import ExponentialMechanism, LadderMechanism, NoisyMaxMechanism
from deniable.dp.mechanisms.sparse_vector import AboveThreshold
from deniable.dp.mechanisms.threshold import KeyThreshold

__all__ = [
    "AboveThreshold",
    "ExponentialMechanism",
    "GaussianMechanism",
    "Integers",
    "KeyThreshold",
    "LadderMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "NoisyMaxMechanism",
    "QuantileMechanism",
]
