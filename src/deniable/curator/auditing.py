"""The journey of an audit: a mechanism of ours plays the distinguishing game, and its claim is tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def audit(
    mechanism: str,
    epsilon: str,
    delta: str = "0",
    *,
    spends: str | None = None,
    runs: int = 20_000,
    confidence: float = 0.999,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Any]:
    """Audit a mechanism at the epsilon claimed of it; `spends` makes a broken twin, which spends more than claimed."""
    from deniable.assess.auditing import Claim, audited
    from deniable.policy.budget import exact

    spent = None if spends is None else exact(spends, "spends")
    claim = Claim(mechanism, exact(epsilon, "epsilon"), exact(delta, "delta"), spent, runs, confidence)
    return audited(claim, progress)
