"""Every column by itself: the whole budget goes into one-way counts, and rows are drawn column by column."""

from __future__ import annotations

from deniable.dp.accounting import ComposedEvent
from deniable.dp.samplers import Entropy
from deniable.synth.collapse import collapse
from deniable.synth.description import Description
from deniable.synth.domain import Domain
from deniable.synth.estimate import estimate
from deniable.synth.marginal import Codes
from deniable.synth.measuring import measured_columns
from deniable.synth.terms import Terms


def independent(codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
    """Measure every column and nothing else."""
    one_way = measured_columns(codes, domain, terms.spend, 1.0, entropy)
    collapsed = collapse(domain, one_way)
    event = ComposedEvent(tuple(marginal.event for marginal in one_way))
    estimates = estimate(collapsed, one_way, [])
    return Description("independent", domain, collapsed, tuple(one_way), (), estimates, event, "every column by itself")
