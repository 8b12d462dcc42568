"""The one hall: every journey from a policy and a table to a Release goes through here, one file a journey."""

from deniable.curator.curator import Curator as Curator

__all__ = ["Curator"]
