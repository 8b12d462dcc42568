"""Types only: every value as likely as any other, and nothing measured. It costs nothing, and says nothing.

Good for trying a pipeline before any budget is spent. The number of records is not known either: a model of this kind
stands for `RECORDS` of them unless more are asked for.
"""

from __future__ import annotations

import numpy as np

from deniable.dp.accounting import NoOpEvent
from deniable.dp.samplers import Entropy
from deniable.synth.collapse import Collapsed
from deniable.synth.description import Description
from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Codes
from deniable.synth.terms import Terms

RECORDS = 1000.0


def uniform(codes: Codes, domain: Domain, terms: Terms, entropy: Entropy) -> Description:
    """Describe a table without looking at it."""
    del codes, terms, entropy
    columns = tuple(np.full(size, RECORDS / size) for size in domain.sizes)
    collapsed = Collapsed(domain, tuple(np.arange(size, dtype=np.int32) for size in domain.sizes))
    reason = "types only: nothing was measured, every value is as likely as any other"
    return Description("random", domain, collapsed, (), (), Estimates(RECORDS, columns, {}), NoOpEvent(), reason)
