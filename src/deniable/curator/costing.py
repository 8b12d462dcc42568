"""What a requested release would cost and risk: the page that a steward decides by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError, nearest
from deniable.policy.roles import Role as ColumnRole

if TYPE_CHECKING:
    from deniable.curator.hall import Curator

TECHNIQUES = ("mask", "anonymize", "synthesize")


def cost(technique: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The price of a release in budget, before it is decided."""
    if technique not in TECHNIQUES:
        expected, remedy = f"One of {', '.join(TECHNIQUES)}", nearest(technique, TECHNIQUES)
        raise ParameterError(f"there is no release by '{technique}'", expected=expected, remedy=remedy)
    return _cost(technique, parameters)


def risk(curator: Curator, tables: tuple[str, ...]) -> dict[str, Any]:
    """How many rows the quasi-identifiers of each table single out as it is now. For the steward's eyes only."""
    return {name: _singled_out(curator, name) for name in tables}


def _cost(technique: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    from deniable.policy.budget import budget
    from deniable.query.explain import described

    if technique != "synthesize":
        return {"guarantee": "none: it is recorded as non-private, and no budget bounds it"}
    if "epsilon" not in parameters and "rho" not in parameters:
        raise ParameterError("a synthetic release needs a budget", remedy="State epsilon, and delta if wanted")
    stated = budget(parameters.get("epsilon"), parameters.get("delta", 0), parameters.get("rho"))
    return dict(described(stated))


def _singled_out(curator: Curator, name: str) -> dict[str, Any]:
    from deniable.assess.uniqueness import uniqueness

    table = curator.policy.table(name)
    quasi = tuple(column.name for column in table.with_role(ColumnRole.QUASI_IDENTIFIER))
    if table.public or not quasi:
        return {"columns": [], "per_thousand": 0}
    found = uniqueness(curator.tables.attach(name), name, quasi)
    return {"columns": list(quasi), "rows": found.rows, "alone": found.alone, "per_thousand": found.per_thousand}
