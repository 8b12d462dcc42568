"""Curator: the policy, the engine and the ledger in one hand; each journey is a few lines and no arithmetic."""

from __future__ import annotations


class Curator:
    """Stands between the respondents and the analysts."""
