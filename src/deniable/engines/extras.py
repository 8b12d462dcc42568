"""Which optional engines are installed: asked here, so that a missing one is refused with the extra's name."""

from __future__ import annotations

from importlib.util import find_spec

from deniable.errors import MissingExtra

EXTRAS = {"psycopg": "postgres", "pyspark": "spark"}
"""The import name of each optional driver, and the extra of this package that brings it."""


def installed(module: str) -> bool:
    """Whether a driver can be imported; nothing is imported to find out."""
    return find_spec(module) is not None


def require(module: str) -> None:
    """Refuse, naming the extra, when a driver is not installed."""
    if not installed(module):
        extra = EXTRAS[module]
        raise MissingExtra(
            f"this source needs '{module}', which is not installed",
            remedy=f"Install it with: pip install 'deniable[{extra}]'",
            extra=extra,
        )
