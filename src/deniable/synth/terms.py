"""Terms: what a method is given beside the records. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass

from deniable.synth.areas import Areas
from deniable.synth.domain import Clique
from deniable.synth.spending import Spending


@dataclass(frozen=True, slots=True)
class Terms:
    """What may be spent, which columns somebody wants to see together, and which column is a place among places."""

    spend: Spending
    workload: tuple[Clique, ...] = ()
    """Cliques that the user's findings are about; a method may measure others as well."""
    areas: Areas | None = None
    """How the values of one column lie in one another, for methods that keep areas."""
