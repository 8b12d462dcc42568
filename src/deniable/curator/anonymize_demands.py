"""What a k-anonymous release must meet: the policy's demands, which a command may tighten and never loosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from deniable.errors import AccessRefused
from deniable.policy.access import Anonymize
from deniable.policy.document import Policy
from deniable.policy.schema import Spec


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked on the command line or by a caller; None and empty leave it to the policy."""

    k: int | None = None
    l: Mapping[str, Fraction] = field(default_factory=dict)  # noqa: E741  the field's own letter
    t: Mapping[str, Fraction] = field(default_factory=dict)
    models: tuple[Spec, ...] = ()
    suppress: Fraction | None = None


def demands(policy: Policy | None, asked: Asked) -> Anonymize:
    """Both together. The share of rows that may go is replaced: leaving out more rows shows less of people.

    >>> demands(None, Asked(k=3)).k
    3
    """
    least = (policy.release.anonymize if policy else None) or Anonymize(k=1 if asked.k else 5)
    _refuse_looser("k", asked.k, least.k)
    for column, number in least.l.items():
        _refuse_looser(f"l of '{column}'", asked.l.get(column), number)
    for column, number in least.t.items():
        _refuse_looser(f"t of '{column}'", asked.t.get(column), number, sign=-1)
    return Anonymize(
        least.k if asked.k is None else asked.k,
        {**least.l, **asked.l},
        {**least.t, **asked.t},
        least.suppress if asked.suppress is None else asked.suppress,
        tuple(dict.fromkeys((*least.models, *asked.models))),
        least.second_release,
    )


def _refuse_looser(what: str, asked: Fraction | int | None, least: Fraction | int, sign: int = 1) -> None:
    if asked is not None and sign * asked < sign * least:
        bound = "at least" if sign > 0 else "at most"
        raise AccessRefused(
            f"{what} is asked to be {float(asked):g}, and the policy says {float(least):g}",
            expected=f"{what} is {bound} {float(least):g}",
            remedy="Ask for no less than the policy",
        )
