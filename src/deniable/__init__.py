"""deniable: a privacy curator for tables, between the people in the data and the people who ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable.client import connect as connect
    from deniable.curator import Curator as Curator
    from deniable.curator.estimators import PrivateClassifier as PrivateClassifier
    from deniable.curator.estimators import PrivateRegressor as PrivateRegressor
    from deniable.curator.query.sample_aggregate import sample_and_aggregate as sample_and_aggregate

__version__ = "0.1.0"

_LAZY = {
    "Curator": "deniable.curator",
    "PrivateClassifier": "deniable.curator.estimators",
    "PrivateRegressor": "deniable.curator.estimators",
    "connect": "deniable.client",
    "sample_and_aggregate": "deniable.curator.query.sample_aggregate",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: `import deniable` alone stays cheap."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'deniable' has no attribute '{name}'")
