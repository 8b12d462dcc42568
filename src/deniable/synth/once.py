"""Methods that choose once: measure every column, score every pair, choose cliques, measure them, estimate.

`mst` and `correlated` are of this kind: they differ in their shares and in how they choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from deniable.dp.accounting import ComposedEvent
from deniable.dp.samplers import Entropy
from deniable.synth.choose import Chosen, Problem
from deniable.synth.collapse import collapse
from deniable.synth.description import Description
from deniable.synth.domain import Domain
from deniable.synth.estimate import estimate
from deniable.synth.independent import independent
from deniable.synth.marginal import Codes
from deniable.synth.measuring import measured_cliques, measured_columns, scored_pairs
from deniable.synth.terms import Terms


@dataclass(frozen=True, slots=True)
class ChoosesOnce:
    """A method with its shares for columns and for scores; what is left goes to the chosen cliques."""

    name: str
    columns: float
    scores: float
    choose: Callable[[Problem], Chosen]

    def __call__(self, codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
        """Describe a table."""
        if len(domain) == 1:
            return replace(independent(codes, domain, terms, entropy), method=self.name)
        spend, left = terms.spend, 1.0 - self.columns - self.scores
        one_way = measured_columns(codes, domain, spend, self.columns, entropy)
        collapsed = collapse(domain, one_way)
        problem, scored = scored_pairs(codes, collapsed, one_way, spend, self.scores, left, entropy)
        chosen = self.choose(problem)
        cliques = measured_cliques(codes, collapsed, domain, chosen, spend, left, entropy)
        event = ComposedEvent((*(m.event for m in one_way), scored, *(m.event for m in cliques)))
        estimates = estimate(collapsed, one_way, cliques)
        return Description(
            self.name, domain, collapsed, tuple(one_way), tuple(cliques), estimates, event, chosen.reason
        )
