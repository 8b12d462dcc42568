"""The only source of randomness: exact, integer-only noise from the operating system's entropy, vectorized.

Every sampler follows its law exactly: between the entropy and the noise there are only integers, and wherever a random
number has to be compared with an irrational one, both are revealed digit by digit until the comparison is certain.
Parameters are integers or Fractions, answers are numpy arrays of int64 or bool, and `entropy` defaults to the operating
system's. Nothing is kept between calls, except tables that depend on the public scale alone."""

from deniable.dp.samplers.bernoulli import bernoulli, bernoulli_exp, bernoulli_exp_each
from deniable.dp.samplers.choice import (
    exponential_choice,
    exponential_choice_groups,
    permute_and_flip,
    permute_and_flip_rows,
)
from deniable.dp.samplers.entropy import SYSTEM, Entropy, SystemEntropy, salt
from deniable.dp.samplers.gaussian import discrete_gaussian
from deniable.dp.samplers.laplace import discrete_laplace, geometric
from deniable.dp.samplers.uniform import permutation, uniform_below, uniform_below_each

__all__ = [
    "SYSTEM",
    "Entropy",
    "SystemEntropy",
    "bernoulli",
    "bernoulli_exp",
    "bernoulli_exp_each",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_choice",
    "exponential_choice_groups",
    "geometric",
    "permutation",
    "permute_and_flip",
    "permute_and_flip_rows",
    "salt",
    "uniform_below",
    "uniform_below_each",
]
