"""Curator: the application layer. Each workflow goes from a request to a release, in a module or folder of its own."""

from deniable.curator.curator import Curator as Curator

__all__ = ["Curator"]
