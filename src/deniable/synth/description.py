"""Description: what was learned of a coded table. Public, whatever the method; the model file keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from deniable.dp.accounting import Event
from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Marginal
from deniable.synth.residuals import Residuals, over_joined

FITTED = frozenset({"hierarchical"})
"""Methods whose tables were fitted to one another before they are told: their errors are no longer independent."""


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """What was learned of a coded table: public. The event is what it cost."""

    method: str
    domain: Domain
    collapsed: Collapsed
    one_way: tuple[Marginal, ...]
    cliques: tuple[Marginal, ...]
    """Of two columns or more, over the collapsed domain."""
    estimates: Estimates
    event: Event
    reason: str = ""
    """Why these cliques."""

    @property
    def residuals(self) -> Residuals | None:
        """All that was measured over joined values, joined; none where its errors are not independent."""
        fitted = self.method in FITTED
        return None if fitted else over_joined(self.collapsed, self.one_way, self.cliques)
