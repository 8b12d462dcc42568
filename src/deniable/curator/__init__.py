"""Curator: the application layer. Each workflow goes from a request to a release, in a module or folder of its own.

The class is imported when it is asked for: a workflow that needs no policy then does not load what reads one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deniable.curator.curator import Curator as Curator

__all__ = ["Curator"]


def __getattr__(name: str) -> object:
    if name != "Curator":
        raise AttributeError(f"module 'deniable.curator' has no attribute '{name}'")
    from deniable.curator.curator import Curator

    return Curator


def __dir__() -> list[str]:
    """What is public."""
    return __all__
