"""PrivateClassifier, PrivateRegressor, PrivateKMeans, PrivatePCA: scikit-learn's manner, the curator's ledger.

`fit` charges the budget before it looks at a row, as `Curator.train` does; features, bounds and the person to protect
come from the policy. What `predict` does costs nothing. Nothing here needs scikit-learn, and its tools (`clone`,
pipelines, grids of parameters) take these estimators: but each fit is charged, so a search over a grid pays for every
point and every fold.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from deniable.errors import DataError, ParameterError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from deniable.curator.curator import Curator
    from deniable.curator.train import Trained
    from deniable.learn.model import LearnedModel
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema


class PrivateEstimator:
    """What all estimators share: parameters, charging, and rows of any library.

    `policy` is a file or a policy at hand, `table` and `target` are names in it. Charges go to the ledger beside the
    file unless `ledger` names another; a policy at hand needs one. The other parameters are those of `Curator.train`.
    """

    def __init__(
        self,
        policy: str | Path | Policy,
        table: str,
        target: str,
        *,
        features: list[str] | None = None,
        method: str = "auto",
        positive: str | None = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        penalty: float | None = None,
        turns: int | None = None,
        clip: Any = None,
        hidden: int | None = None,
        rate: Any = None,
        learning_rate: float | None = None,
        module: Any = None,
        ledger: str | Path | None = None,
    ) -> None:
        # Every argument is kept as it was given: that is what `clone` of scikit-learn relies on.
        self.policy, self.table, self.target, self.features = policy, table, target, features
        self.method, self.positive, self.epsilon, self.delta, self.rho = method, positive, epsilon, delta, rho
        self.penalty, self.turns, self.clip, self.ledger = penalty, turns, clip, ledger
        self.hidden, self.rate, self.learning_rate, self.module = hidden, rate, learning_rate, module

    # a dictionary: what scikit-learn asks for
    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002  there is nothing deeper
        """The parameters by name."""
        return {name: getattr(self, name) for name in _list_parameters(type(self))}

    def set_params(self, **changes: Any) -> Self:
        """Change parameters by name; one that is not there is refused."""
        for name, value in changes.items():
            if name not in _list_parameters(type(self)):
                raise ParameterError(
                    f"there is no parameter '{name}'", expected=f"One of {', '.join(_list_parameters(type(self)))}"
                )
            setattr(self, name, value)
        return self

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: N803  scikit-learn's name
        """Learn within the budget: from the policy's own source, or from rows at hand (pandas, Polars, Arrow, NumPy).

        `y` is the target where it is not a column of the rows, which need the column of the policy's unit, if any.
        """
        policy = self._read_policy()
        table = next((each for each in policy.tables if each.name == self.table), None)
        self._check_target(table)
        sources = None if X is None else {self.table: self._fill_columns(self._build_rows(X, y), table)}
        with self._open_curator(sources) as curator:
            self.trained_: Trained = curator.train(self.table, **self._list_settings())
        self.model_: LearnedModel = self.trained_.model
        self.feature_names_in_ = [each.name for each in self.model_.design.features]
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _read_policy(self) -> Policy:
        from deniable.policy.document import read

        if isinstance(self.policy, str | Path):
            return read(self.policy)
        if self.ledger is None:
            # In memory, charges would end with this fit, and the next one would know nothing of them.
            raise ParameterError(
                "a policy at hand has no ledger beside it", remedy="Name a ledger, or give the policy's file"
            )
        return self.policy

    def _fill_columns(self, rows: pa.Table, table: TableSchema | None) -> pa.Table:
        """Rows with nulls in declared columns that are not named here: users of scikit-learn leave them out."""
        import pyarrow as pa

        if table is None or self.features is None:
            return rows
        needed = {*self.features, getattr(self, "target", None), table.unit.column if table.unit is not None else None}
        for name in table.names:
            if name not in needed and name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
        return rows

    def _open_curator(self, sources: dict[str, pa.Table] | None) -> Curator:
        from deniable.curator.curator import BESIDE, Curator

        if not isinstance(self.policy, str | Path):
            return Curator(self.policy, sources=sources, ledger=self.ledger)
        return Curator.open(self.policy, sources=sources, ledger=BESIDE if self.ledger is None else self.ledger)

    def _list_settings(self) -> dict[str, Any]:
        left_out = ("policy", "table", "ledger")
        return {name: value for name, value in self.get_params().items() if name not in left_out}

    def _check_target(self, table: TableSchema | None) -> None:
        """Refuse a target that this estimator is not for; a column that is not there is refused by the training."""
        column = None if table is None else table.column(self.target)
        if column is None or (column.categories is None and column.bounds is not None) == self._numeric:
            return
        other = "PrivateClassifier" if self._numeric else "PrivateRegressor"
        kind = "listed values" if self._numeric else "a bounded number"
        raise ParameterError(f"the target '{self.target}' has {kind}", remedy=f"Use {other}")

    def _build_rows(self, rows: Any, target: Any = None) -> pa.Table:
        """Rows as an Arrow table, with the target as one more column where it comes apart."""
        import numpy as np
        import pyarrow as pa

        from deniable.engines.sources import as_arrow

        table = self._name_columns(rows) if isinstance(rows, np.ndarray) else as_arrow(rows)
        table = table.read_all() if isinstance(table, pa.RecordBatchReader) else table
        if target is None:
            return table
        if self.target in table.column_names:
            raise DataError(f"the rows have a column '{self.target}', and it was given apart", remedy="Give it once")
        values = target if isinstance(target, pa.Array | pa.ChunkedArray) else self._read_values(self.target, target)
        if len(values) != table.num_rows:
            raise DataError("the rows and the targets are not equally many", remedy="Give one target for each row")
        return table.append_column(self.target, values)

    def _read_values(self, name: str, values: Any) -> pa.Array:
        """Values of any library; what pandas writes for a missing one (None, NaN, NaT, NA) is null."""
        import numpy as np
        import pyarrow as pa

        try:
            return pa.array(np.asarray(values), from_pandas=True)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
            # The library's words would quote a value.
            raise DataError(
                f"the values of '{name}' are not of one type",
                expected="Numbers alone, texts alone, dates alone, or booleans alone; missing ones are None or NaN",
                remedy="Convert them; nothing was charged",
            ) from None

    def _name_columns(self, rows: NDArray[Any]) -> pa.Table:
        """An array has no names of its own: its columns are the features, in the order in which these were named."""
        import pyarrow as pa

        names = self.features or getattr(self, "feature_names_in_", None)
        if names is None or rows.ndim != 2 or rows.shape[1] != len(names):
            raise DataError(
                "the columns of an array have no names", remedy="Name as many features, or give a frame with names"
            )
        return pa.table({name: self._read_values(name, rows[:, place]) for place, name in enumerate(names)})

    def _predict(self, rows: Any) -> NDArray[np.float64]:
        self._require_fitted()
        return self.model_.predict(self._build_rows(rows))

    def _require_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise ParameterError("the estimator has not been fitted", remedy="Call fit first; it is charged")

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` has been called."""
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may know: a kind of estimator that takes names, categories and nulls."""
        utils = import_module("sklearn.utils")  # only scikit-learn asks, so it is there
        several = getattr(self, "method", None) in ("multinomial", "bayes", "mlp", "torch")
        kind = self._estimator_type
        return utils.Tags(
            estimator_type=kind or None,
            target_tags=utils.TargetTags(required=False),
            classifier_tags=utils.ClassifierTags(multi_class=several) if kind == "classifier" else None,
            regressor_tags=utils.RegressorTags() if kind == "regressor" else None,
            transformer_tags=utils.TransformerTags() if hasattr(self, "transform") else None,
            input_tags=utils.InputTags(categorical=True, string=True, allow_nan=True),
            non_deterministic=True,
        )

    def __repr__(self) -> str:
        """The estimator with the parameters that differ from their defaults."""
        defaults = {name: each.default for name, each in signature(type(self)).parameters.items()}
        given = (f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name])
        return f"{type(self).__name__}({', '.join(given)})"

    _numeric = False
    _estimator_type = ""


class PrivateClassifier(PrivateEstimator):
    """A model of one value against all others; or of all values, by multinomial, bayes and mlp.

    >>> PrivateClassifier("policy.yaml", "visits", "ill", epsilon=1).fit()          # doctest: +SKIP
    """

    _numeric, _estimator_type = False, "classifier"

    @property
    def classes_(self) -> NDArray[Any]:
        """All values; or the other value (`other`, where there are several) and the positive one."""
        import numpy as np

        from deniable.learn.features import LabelsTarget

        target: Any = self.model_.target
        if isinstance(target, LabelsTarget):
            return np.array(target.column.labels)
        others = [label for label in target.column.labels if label != target.positive]
        return np.array([others[0] if len(others) == 1 else "other", target.positive])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The probability of each of `classes_`."""
        import numpy as np

        found = self._predict(X)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """The more probable of `classes_`."""
        import numpy as np

        likely = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likely])

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """The share of rows that are told rightly: a figure about real rows, without noise, for the steward."""
        import numpy as np

        told, truth, positive = self.predict(X), np.asarray(y), self.classes_[1]
        right = (told == positive) == (truth == positive) if self._tells_one() else told == truth
        return float(right.mean())

    def _tells_one(self) -> bool:
        from deniable.learn.features import ClassTarget

        return isinstance(self.model_.target, ClassTarget)


class PrivateRegressor(PrivateEstimator):
    """A model of a bounded number.

    >>> PrivateRegressor("policy.yaml", "visits", "charge", epsilon=1).fit()        # doctest: +SKIP
    """

    _numeric, _estimator_type = True, "regressor"

    def predict(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The predicted number, within its bounds; see `LearnedModel.predict` for what it estimates."""
        return self._predict(X)

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """The coefficient of determination: a figure about real rows, without noise, for the steward."""
        import numpy as np

        truth = np.asarray(y, np.float64)
        left, whole = ((truth - guess) ** 2 for guess in (self.predict(X), truth.mean()))
        return float(1 - left.sum() / whole.sum())


class _PrivateStructure(PrivateEstimator):
    """What the estimators without a target share."""

    def __init__(self, policy: str | Path | Policy, table: str, **rest: Any) -> None:
        self.policy, self.table = policy, table
        self.features, self.epsilon, self.delta, self.rho = (
            rest[name] for name in ("features", "epsilon", "delta", "rho")
        )
        self.ledger = rest["ledger"]

    def fit(self, X: Any = None, y: Any = None) -> Self:  # noqa: ARG002, N803  scikit-learn passes a target to all
        """Learn within the budget: from the policy's own source, or from rows at hand."""
        return super().fit(X)

    def _check_target(self, table: TableSchema | None) -> None:
        """There is none."""

    def _read_parts(self) -> NDArray[np.float64]:
        import numpy as np

        self._require_fitted()
        return np.array(self.model_.coefficients).reshape(-1, self.model_.design.width)


class PrivateKMeans(_PrivateStructure):
    """Groups of rows that are alike.

    >>> PrivateKMeans("policy.yaml", "visits", n_clusters=4, epsilon=1).fit()       # doctest: +SKIP
    """

    _estimator_type = "clusterer"

    def __init__(
        self,
        policy: str | Path | Policy,
        table: str,
        *,
        n_clusters: int = 8,
        features: list[str] | None = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        turns: int | None = None,
        ledger: str | Path | None = None,
    ) -> None:
        super().__init__(policy, table, features=features, epsilon=epsilon, delta=delta, rho=rho, ledger=ledger)
        self.n_clusters, self.turns = n_clusters, turns

    def _list_settings(self) -> dict[str, Any]:
        rest = super()._list_settings()
        return rest | {"count": rest.pop("n_clusters"), "method": "kmeans"}

    @property
    def cluster_centers_(self) -> NDArray[np.float64]:
        """The center of each group, in units of the entries (`trained_.release.rows` has those of the columns)."""
        return self._read_parts()[:, 1:]

    def predict(self, X: Any) -> NDArray[np.int64]:  # noqa: N803
        """The group of each row, from 0."""
        import numpy as np

        return self._predict(X).astype(np.int64)

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The distance of each row from each center."""
        import numpy as np

        self._require_fitted()
        return np.sqrt(self.model_.measure_distances(self._build_rows(X)))

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """The sum of squared distances from the nearest centers, below 0: about real rows, for the steward."""
        self._require_fitted()
        return -float(self.model_.losses(self._build_rows(X)).sum())


class PrivatePCA(_PrivateStructure):
    """The directions in which the columns vary most, each scaled from -1 to 1 between its bounds.

    >>> PrivatePCA("policy.yaml", "visits", n_components=2, epsilon=1).fit()        # doctest: +SKIP
    """

    def __init__(
        self,
        policy: str | Path | Policy,
        table: str,
        *,
        n_components: int = 2,
        features: list[str] | None = None,
        epsilon: Any = None,
        delta: Any = None,
        rho: Any = None,
        ledger: str | Path | None = None,
    ) -> None:
        super().__init__(policy, table, features=features, epsilon=epsilon, delta=delta, rho=rho, ledger=ledger)
        self.n_components = n_components

    def _list_settings(self) -> dict[str, Any]:
        rest = super()._list_settings()
        return rest | {"count": rest.pop("n_components"), "method": "pca"}

    @property
    def components_(self) -> NDArray[np.float64]:
        """The loadings of each component."""
        return self._read_parts()[:, 1:]

    @property
    def explained_variance_ratio_(self) -> NDArray[np.float64]:
        """The share of the variance along each component, with noise."""
        import numpy as np

        self._require_fitted()
        return np.array(self.model_.shares)

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """The coordinates of each row."""
        return self._predict(X)


def _list_parameters(kind: type[PrivateEstimator]) -> list[str]:
    return list(signature(kind).parameters)
