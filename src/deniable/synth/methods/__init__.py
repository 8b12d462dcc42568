"""The methods that describe a coded table, by name: interchangeable functions from records to a description.

Everything a method measures is Gaussian and priced as one Gaussian (`GaussianBudget`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth.domain import Areas, Clique, Domain
from deniable.synth.marginal import GaussianBudget, Records
from deniable.synth.measure import MethodSettings
from deniable.synth.methods.auto import auto
from deniable.synth.methods.hierarchical import hierarchical
from deniable.synth.methods.published import correlated, independent, mst, mwem, uniform
from deniable.synth.model import Description


@dataclass(frozen=True, slots=True)
class Method:
    """A way to describe a table: its name, what it does in a few words, and the function."""

    name: str
    summary: str
    run: Callable[[Records, Domain, MethodSettings, Entropy], Description]
    free: bool = False
    """Whether it looks at no record, and so costs nothing."""
    areas: bool = False
    """Whether it needs a column whose values lie in one another."""


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("random", "types only: nothing is measured, and it costs nothing", uniform, free=True),
        Method("independent", "every column by itself", independent),
        Method("correlated", "a Bayesian network of degree two (PrivBayes)", correlated),
        Method("mst", "a maximum spanning tree of pairs", mst),
        Method("mwem", "the cliques of a workload that are worst answered, one after another (MWEM-PGM)", mwem),
        Method("hierarchical", "areas in areas, from coarse to fine, that add up", hierarchical, areas=True),
        Method("auto", "as many pairs and cliques of three as bring more than their noise costs", auto),
    )
}


def run_method(
    codes: Records,
    domain: Domain,
    method: Method,
    spend: GaussianBudget,
    entropy: Entropy = SYSTEM,
    *,
    workload: tuple[Clique, ...] = (),
    areas: Areas | None = None,
) -> Description:
    """Describe a coded table by a method; nothing else of this package sees its records."""
    return method.run(codes, domain, MethodSettings(spend, workload, areas), entropy)
