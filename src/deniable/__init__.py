"""deniable: a privacy curator for tables, between the people in the data and the people who ask.

`Curator.from_frame(table, unit="patient_id", budget=1)` for a table at hand, `Curator.open("policy.yaml")` for a policy
file, `connect(url, token)` for a server. `dir(deniable)` lists what is public; each name has its own help.
"""

from __future__ import annotations

import warnings

TYPE_CHECKING = False  # `typing` takes longer than all else here, and Control-C is not heard in words until then

# What NumPy says of numbers it cannot hold would tell of one row, and nobody has paid for that.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"deniable\.")

if TYPE_CHECKING:
    from typing import Any

    from deniable import errors as errors
    from deniable.client import connect as connect
    from deniable.client import connect_async as connect_async
    from deniable.client.notebook import load_ipython_extension as load_ipython_extension
    from deniable.curator import Curator as Curator
    from deniable.curator.estimators import PrivateClassifier as PrivateClassifier
    from deniable.curator.estimators import PrivateKMeans as PrivateKMeans
    from deniable.curator.estimators import PrivatePCA as PrivatePCA
    from deniable.curator.estimators import PrivateRegressor as PrivateRegressor
    from deniable.curator.query.sample_aggregate import sample_and_aggregate as sample_and_aggregate
    from deniable.governance.grants import Asker as Asker
    from deniable.query.builder import col as col
    from deniable.query.builder import count as count
    from deniable.query.builder import count_distinct as count_distinct
    from deniable.query.builder import mean as mean
    from deniable.query.builder import median as median
    from deniable.query.builder import quantile as quantile
    from deniable.query.builder import sum as sum

__version__ = "0.2.0"

_LAZY = {
    "Asker": "deniable.governance.grants",
    "Curator": "deniable.curator",
    "PrivateClassifier": "deniable.curator.estimators",
    "PrivateKMeans": "deniable.curator.estimators",
    "PrivatePCA": "deniable.curator.estimators",
    "PrivateRegressor": "deniable.curator.estimators",
    "col": "deniable.query.builder",
    "connect": "deniable.client",
    "connect_async": "deniable.client",
    "count": "deniable.query.builder",
    "count_distinct": "deniable.query.builder",
    "load_ipython_extension": "deniable.client.notebook",
    "mean": "deniable.query.builder",
    "median": "deniable.query.builder",
    "quantile": "deniable.query.builder",
    "sample_and_aggregate": "deniable.curator.query.sample_aggregate",
    "sum": "deniable.query.builder",
}

__all__ = [
    "Asker",
    "Curator",
    "PrivateClassifier",
    "PrivateKMeans",
    "PrivatePCA",
    "PrivateRegressor",
    "__version__",
    "col",
    "connect",
    "connect_async",
    "count",
    "count_distinct",
    "errors",
    "load_ipython_extension",
    "mean",
    "median",
    "quantile",
    "sample_and_aggregate",
    "sum",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: `import deniable` alone stays cheap."""
    from importlib import import_module

    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "errors":
        return import_module("deniable.errors")
    raise AttributeError(f"module 'deniable' has no attribute '{name}'")


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
