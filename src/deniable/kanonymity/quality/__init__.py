"""Quality measures: what a release costs those who will use it. Lower is better for all of them."""

from dataclasses import replace

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.quality.cells import CellMeasure as CellMeasure
from deniable.kanonymity.quality.cells import Loss as Loss
from deniable.kanonymity.quality.cells import Mean as Mean
from deniable.kanonymity.quality.cells import NonUniformEntropy as NonUniformEntropy
from deniable.kanonymity.quality.cells import NormalizedCertaintyPenalty as NormalizedCertaintyPenalty
from deniable.kanonymity.quality.cells import Precision as Precision
from deniable.kanonymity.quality.partitions import AverageClassSize as AverageClassSize
from deniable.kanonymity.quality.partitions import Discernibility as Discernibility
from deniable.kanonymity.quality.partitions import Divergence as Divergence
from deniable.kanonymity.quality.partitions import PartitionMeasure as PartitionMeasure

Measure = CellMeasure | PartitionMeasure

MEASURES = (
    Loss(),
    Loss(mean=Mean.GEOMETRIC),
    Precision(),
    NormalizedCertaintyPenalty(),
    NonUniformEntropy(),
    Discernibility(),
    AverageClassSize(),
    Divergence(),
)
"""Every measure, by the name that `str` gives it."""


def measure(name: str, weights: dict[str, float] | None = None) -> Measure:
    """The measure of that name, with weights for columns where it adds up over cells."""
    for known in MEASURES:
        if str(known) == name:
            if not weights:
                return known
            if hasattr(known, "weights"):
                return replace(known, weights=weights)  # type: ignore[arg-type]
            raise ParameterError(f"The measure '{name}' knows no columns", remedy="Leave out the weights")
    names = [str(known) for known in MEASURES]
    raise ParameterError(
        f"There is no quality measure '{name}'", expected=f"One of {', '.join(names)}", remedy=nearest(name, names)
    )
