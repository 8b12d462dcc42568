"""What is released, what is claimed of it, and where it came from.

A Release is rows (or a written file) with a Guarantee and a Provenance. Written to disk, it has a statement beside it,
`NAME.release.json`, which names the file's digest: whoever receives both can check that neither was changed."""

from __future__ import annotations

from deniable.release.explanation import PRIORS, bound_belief, explain_guarantee
from deniable.release.guarantee import Guarantee, Property, Provenance, Technique
from deniable.release.release import Release, Statement, Writer, seal, statement_path, verify, write_release

__all__ = [
    "PRIORS",
    "Guarantee",
    "Property",
    "Provenance",
    "Release",
    "Statement",
    "Technique",
    "Writer",
    "bound_belief",
    "explain_guarantee",
    "seal",
    "statement_path",
    "verify",
    "write_release",
]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
