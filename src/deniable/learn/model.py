"""LearnedModel: what was learned, as data that anyone may hold: coefficients, features, guarantee. Never code, no row.

The file is JSON. Reading it runs nothing, and what is not a model of ours is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.accounting import Event, from_dict, to_dict
from deniable.errors import DataError, DeniableError, IntegrityError, ParameterError
from deniable.learn.features import (
    CHUNK,
    COMPONENT,
    GROUP,
    MOST_BINS,
    MOST_KNOTS,
    MOST_PARTS,
    STEPS,
    Bins,
    ClassTarget,
    Design,
    Feature,
    Knots,
    Labels,
    LabelsTarget,
    Number,
    Numbers,
    NumberTarget,
    Structure,
    Target,
    encode_rows,
    encode_target,
)
from deniable.learn.perceptron import compute_outputs, count_hidden
from deniable.learn.torch_module import ARITHMETIC, TorchModule, read_module
from deniable.policy.budget import read_rational
from deniable.policy.schema import Bounds, Column, ColumnType, Neighboring, TableSchema
from deniable.release import Guarantee, Technique
from deniable.release.guarantee import to_text
from deniable.release.record import Record, SparseRecord
from deniable.storage import write_whole

FORM = "deniable learned model 1"
MOST = 1e100
"""The size that no number of a model file reaches."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearSummary(Record):
    """What a model of a number says of itself."""

    method: str
    target: str
    features: list[str]
    estimated_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class LogisticSummary(Record):
    """What a model of a value against all others says of itself."""

    method: str
    target: str
    positive: str | int | bool
    features: list[str]
    estimated_rows: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TorchSummary(SparseRecord):
    """What a module of torch says of itself."""

    method: str
    target: str
    positive: str | int | bool | None = None
    features: list[str]
    estimated_rows: int
    module: str
    opacus_epsilon: float
    """What Opacus' accountant claims for the turns; the guarantee is ours, and not smaller."""
    arithmetic: str


@dataclass(frozen=True, slots=True, eq=False)
class StructureSummary(Record):
    """What a model of groups or components says of itself."""

    method: str
    target: str
    shares: list[float]
    """Of the rows in each group, or of the variance along each component."""
    features: list[str]
    estimated_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Coefficient(Record):
    """A coefficient with its standard error, where it has one."""

    feature: str
    coefficient: float
    error: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Effect(Record):
    """What one value of a column, or one more unit of it, adds."""

    column: str
    ordered: bool
    """Whether the values of the column have an order."""
    value: str
    of: str
    """The value of the target that it speaks of, where there are several."""
    effect: float
    error: float | None


METHODS = {
    "linear": NumberTarget,
    "poisson": NumberTarget,
    "logistic": ClassTarget,
    "boosted": ClassTarget | NumberTarget,
    "mlp": ClassTarget | NumberTarget | LabelsTarget,
    "torch": ClassTarget | NumberTarget | LabelsTarget,
    "kmeans": Structure,
    "pca": Structure,
} | dict.fromkeys(("bayes", "multinomial"), LabelsTarget)
"""The methods that a model file may name, and the targets that each can have."""
NETWORKS = ("mlp", "torch")


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """A trained model; a coefficient and (where the method has them) a standard error for each entry of the design.

    A model of all values of a column has so many coefficients for each of the values, one value after the other; so
    has one of groups (their centers) and of components (their loadings, after the mean that is taken away). A
    perceptron has those of each hidden unit, one unit after the other, and then those of each output, its level first.
    """

    method: str
    table: str
    design: Design
    target: Target
    coefficients: tuple[float, ...]
    errors: tuple[float, ...] | None
    rows: float
    """How many rows it learned from, with noise."""
    guarantee: Guarantee
    event: Event
    shares: tuple[float, ...] | None = None
    """Of a structure: of the rows in each group, or of the variance along each component, with noise. Of a perceptron:
    of the rows that have each entry."""
    module: TorchModule | None = None
    """The module of torch whose parameters the coefficients are."""

    def attach(self, network: Any) -> LearnedModel:
        """The model with its module of torch, which a model file does not have."""
        given = read_module(network)
        if self.module is None or given.shapes != self.module.shapes:
            raise ParameterError(
                "the model's weights are not of this module",
                expected="A module whose parameters have the same names and shapes",
            )
        return replace(self, module=replace(self.module, network=given.network))

    def build_network(self) -> Any:
        """The module of torch with the weights that were learned."""
        if self.module is None:
            raise ParameterError(f"a model of {self.method} has no module of torch", remedy="Use predict")
        return self.module.load(np.array(self.coefficients)).eval()

    @property
    def parts(self) -> tuple[str, ...]:
        """What there are coefficients of, one after the other; one without a name where there is one target."""
        if isinstance(self.target, Structure):
            return self.target.parts
        return tuple(map(str, self.target.column.labels)) if isinstance(self.target, LabelsTarget) else ("",)

    def predict(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """What the model tells of each row: the probability of the positive value, or the number, within its bounds.

        A number is an estimate of the mean of such rows. Of boosted and mlp only the mean over all rows and the stretch
        are fitted to that; where clipping cuts long residuals, a single group's mean may be missed (see their plans).
        A module of torch and a boosted model with a smaller clip tell too little of a rare value.

        For a model of all values, a column of probabilities for each of them; of groups, which one is nearest, from 0;
        of components, a column of coordinates for each.
        """
        if self.method == "kmeans":
            return np.asarray(self.measure_distances(rows).argmin(axis=1), np.float64)
        pieces = [encode_rows(self.design, rows.slice(at, CHUNK)) for at in range(0, max(rows.num_rows, 1), CHUNK)]
        found = np.concatenate([self._apply_weights(piece / STEPS) for piece in pieces])
        if isinstance(self.target, Structure):
            return np.asarray(found)
        if isinstance(self.target, ClassTarget):
            return np.asarray(1 / (1 + np.exp(-np.clip(found, -700, 700))))
        if isinstance(self.target, LabelsTarget):
            powers = np.exp(found - found.max(axis=1, keepdims=True))
            return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        column = self.target.column
        found = np.exp(np.minimum(found, 700)) if self.method == "poisson" else found
        return np.asarray(np.clip(found, float(column.lower), float(column.upper)))

    def _apply_weights(self, held: Numbers) -> Numbers:
        """What comes out for rows of entries: a number for each, or a column for each value or component."""
        weights = np.array(self.coefficients)
        if self.method in NETWORKS:
            found = (
                compute_outputs(weights, held, len(self.parts))
                if self.module is None
                else self.module.run(weights, held[:, 1:])
            )
            if isinstance(self.target, NumberTarget):
                found = float(self.target.column.middle) + found * float(self.target.column.half)
            return found if isinstance(self.target, LabelsTarget) else found[:, 0]
        if isinstance(self.target, LabelsTarget | Structure):
            weights = weights.reshape(-1, self.design.width).T
        return np.asarray(held @ weights)

    def list_weights(self) -> Numbers:
        """The coefficients; of a perceptron, what each entry adds for a row that is else the average of all rows.

        The average is that of the noisy counts; its own output stands in place of the intercept.
        """
        if self.method not in NETWORKS or self.shares is None:
            return np.array(self.coefficients)
        average, owners = np.array(self.shares), self.design.owners
        rows = np.where(owners == owners[:, None], np.eye(self.design.width), average)
        found = self._apply_weights(np.vstack([average, rows[1:]])).reshape(self.design.width, -1)
        found[1:] -= found[0]
        return np.asarray(found.T.ravel())

    def measure_distances(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """The squared distance of each row from each center of a group, in units of the entries."""
        centers = np.array(self.coefficients).reshape(-1, self.design.width)
        pieces = []
        for at in range(0, max(rows.num_rows, 1), CHUNK):
            held = encode_rows(self.design, rows.slice(at, CHUNK)) / STEPS
            pieces.append((held**2).sum(axis=1)[:, None] - 2 * held @ centers.T + (centers**2).sum(axis=1))
        return np.asarray(np.maximum(np.concatenate(pieces), 0.0))

    def _measure_residuals(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """The squared distance of each row from its group's center, or from what its components say of it."""
        if self.method == "kmeans":
            return np.asarray(self.measure_distances(rows).min(axis=1))
        weights = np.array(self.coefficients).reshape(-1, self.design.width)
        axes, held = weights[:, 1:], encode_rows(self.design, rows)[:, 1:] / STEPS
        # The mean along the axes alone is known; what lies beside them is measured from 0.
        middle = -weights[:, 0] @ axes
        return np.asarray(((held - middle - (held - middle) @ axes.T @ axes) ** 2).sum(axis=1))

    def losses(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """The loss of each row that has a target (logarithmic, or squared), NaN for the others: low where it fits.

        Of a structure, the squared distance of each row from what the model says of it.
        """
        if isinstance(self.target, Structure):
            return self._measure_residuals(rows)
        guess, (known, has) = self.predict(rows), encode_target(self.target, rows)
        if isinstance(self.target, NumberTarget):
            return np.where(has, (guess - convert_to_units(self.target, known)) ** 2, np.nan)
        if isinstance(self.target, LabelsTarget):
            right = guess[np.arange(len(known)), known]
        else:
            right = np.where(known == 1, guess, 1 - guess)
        return np.where(has, -np.log(np.maximum(right, 1e-300)), np.nan)

    @property
    def schema(self) -> TableSchema:
        """The columns that a table needs to be predicted from, as they were declared."""
        return TableSchema(self.table, "", tuple(_to_column(each) for each in self.design.features))

    def summarize(self) -> LinearSummary | LogisticSummary | StructureSummary | TorchSummary:
        """What a model says of itself: public."""
        features, rows = [each.name for each in self.design.features], round(self.rows)
        if self.module is not None:
            return TorchSummary(
                method=self.method, target=self.target.name, positive=getattr(self.target, "positive", None),
                features=features, estimated_rows=rows, module=self.module.text, opacus_epsilon=self.module.claimed,
                arithmetic=ARITHMETIC,
            )  # fmt: skip
        if isinstance(self.target, Structure):
            return StructureSummary(self.method, self.target.name, list(self.shares or ()), features, rows)
        if isinstance(self.target, ClassTarget):
            return LogisticSummary(self.method, self.target.name, self.target.positive, features, rows)
        return LinearSummary(self.method, self.target.name, features, rows)

    def coefficient_table(self) -> list[Coefficient]:
        """Each coefficient with its error: of a number by its own unit, of a value by being it.

        The center of a group is in the units of the columns (days since 1970 for dates, shares of the group for
        values); loadings of components are those of entries from -1 to 1.
        """
        scales = list_scales(self.design, self.method) * len(self.parts)
        names = [f"{part}: {entry}" if part else entry for part in self.parts for entry in self.design.entries]
        errors = self.errors or (None,) * len(scales)
        listed = zip(names, self.list_weights().tolist(), errors, scales, strict=True)
        return [
            Coefficient(name, start + value * by, None if error is None else error * by)
            for name, value, error, (start, by) in listed
        ]

    def list_effects(self) -> list[Effect]:
        """The coefficients but for the intercept, by column."""
        places = [(part, int(block), entry) for part in self.parts for block, entry in self._list_places()]
        listed = zip(places, self.coefficient_table(), strict=True)
        return [self._describe_effect(*place, told) for place, told in listed if place[1]]

    def _list_places(self) -> list[tuple[int, str]]:
        return list(zip(self.design.owners, self.design.entries, strict=True))

    def _describe_effect(self, of: str, block: int, entry: str, told: Coefficient) -> Effect:
        each = self.design.features[block - 1]
        plain = {"kmeans": "mean", "pca": "loading"}.get(self.method, "one unit more")
        value = entry.removeprefix(each.name).removeprefix(" =").strip() or plain
        return Effect(each.name, isinstance(each, Bins | Knots), value, of, told.coefficient, told.error)


def convert_to_units(target: NumberTarget, steps: NDArray[np.int64]) -> Numbers:
    """Steps of a target as values of its column."""
    return np.asarray(float(target.column.middle) + steps * (float(target.column.half) / STEPS), np.float64)


def list_scales(design: Design, method: str) -> list[tuple[float, float]]:
    """What each coefficient is multiplied by, and what is added, to be in the units of its column.

    A slope is for one unit of it, a center one of its values; a loading stays as it is.
    """
    found = [(0.0, 1.0)]
    for each in design.features:
        first = (0.0, 1.0)
        if isinstance(each, Number) and method != "pca":
            center = method == "kmeans"
            first = (float(each.middle), float(each.half)) if center else (0.0, 1 / float(each.half))
        found += [first, *([(0.0, 1.0)] * (each.size - 1))]
    return found


def _to_column(each: Feature) -> Column:
    each = each.number if isinstance(each, Bins | Knots) else each
    if isinstance(each, Labels):
        return Column(each.name, each.type, nullable=each.nullable, categories=each.labels)
    return Column(each.name, each.type, nullable=each.nullable, bounds=Bounds(each.lower, each.upper))


def save_model(model: LearnedModel, path: str | Path) -> None:
    """Write a model file, whole or not at all."""
    write_whole(Path(path), (json.dumps(to_plain(model), indent=1, allow_nan=False) + "\n").encode())


def load_model(path: str | Path) -> LearnedModel:
    """Read a model file; anything that is not one is refused."""
    path = Path(path)
    try:
        return from_plain(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"there is no file '{path.name}'", remedy="Name a model that was written before") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
            DeniableError):  # fmt: skip
        raise IntegrityError(
            f"'{path.name}' is not a learned model of ours, or was changed", remedy="Train the model again"
        ) from None


# a dictionary: the model's file, which `from_plain` reads back
def to_plain(model: LearnedModel) -> dict[str, Any]:
    """A model as plain values."""
    return {
        "form": FORM,
        "method": model.method,
        "table": model.table,
        "features": [feature_to_plain(each) for each in model.design.features],
        "target": target_to_plain(model.target),
        "entries": list(model.design.entries),
        "coefficients": list(model.coefficients),
        "errors": None if model.errors is None else list(model.errors),
        "rows": model.rows,
        "guarantee": _guarantee_to_plain(model.guarantee),
        "event": to_dict(model.event),
        **({} if model.shares is None else {"shares": list(model.shares)}),
        **({} if model.module is None else {"module": _module_to_plain(model.module)}),
    }


def _module_to_plain(module: TorchModule) -> dict[str, Any]:
    return {"text": module.text, "shapes": [[name, list(shape)] for name, shape in module.shapes],
            "claimed": module.claimed}  # fmt: skip


def _module_from_plain(held: dict[str, Any]) -> TorchModule:
    shapes = tuple((str(name), tuple(int(size) for size in shape)) for name, shape in held["shapes"])
    if any(size < 1 for _, shape in shapes for size in shape):
        raise ValueError
    return TorchModule(str(held["text"]), shapes, *_require_finite([held["claimed"]], 1))


def target_to_plain(target: Target) -> dict[str, Any]:
    """A target as plain values."""
    if isinstance(target, Structure):
        return {"kind": target.name, "count": target.count}
    positive = {"positive": target.positive} if isinstance(target, ClassTarget) else {}
    return feature_to_plain(target.column) | positive


def from_plain(held: dict[str, Any]) -> LearnedModel:
    """The model that plain values stand for."""
    if held["form"] != FORM:
        raise ValueError
    made = Design(tuple(feature_from_plain(entry) for entry in held["features"]))
    if list(made.entries) != held["entries"]:
        raise ValueError
    target = target_from_plain(held["target"])
    if not isinstance(target, METHODS[held["method"]]):
        raise ValueError
    parts, shares, module = 1, None, None
    if isinstance(target, Structure):
        if target.name != {"kmeans": GROUP, "pca": COMPONENT}[held["method"]]:
            raise ValueError
        parts, shares = target.count, _require_finite(held["shares"], target.count)
    elif isinstance(target, LabelsTarget):
        parts = len(target.column.labels)
    count = made.width * parts
    if held["method"] == "mlp":
        count, shares = len(held["coefficients"]), _require_finite(held["shares"], made.width)
        count_hidden(count, made.width, parts)
    elif held["method"] == "torch":
        module, shares = _module_from_plain(held["module"]), _require_finite(held["shares"], made.width)
        count = module.count
    coefficients, errors = _require_finite(held["coefficients"], count), held["errors"]
    return LearnedModel(
        held["method"],
        str(held["table"]),
        made,
        target,
        coefficients,
        None if errors is None else _require_finite(errors, count),
        max(1.0, *_require_finite([held["rows"]], 1)),
        _guarantee_from_plain(held["guarantee"]),
        from_dict(held["event"]),
        shares,
        module,
    )


LABELS = {ColumnType.TEXT: str, ColumnType.INTEGER: int, ColumnType.BOOLEAN: bool}
"""What the listed values of a column are."""


def _require_text(text: object) -> None:
    if not isinstance(text, str):
        raise ValueError
    text.encode()  # raises for half a sign


def target_from_plain(held: dict[str, Any]) -> Target:
    """The target that plain values stand for."""
    if held["kind"] in (GROUP, COMPONENT):
        if type(held["count"]) is not int or not 1 <= held["count"] <= MOST_PARTS:
            raise ValueError
        return Structure(held["kind"], held["count"])
    column = feature_from_plain(held)
    if isinstance(column, Number):
        return NumberTarget(column)
    if not isinstance(column, Labels):
        raise ValueError
    if "positive" not in held:
        return LabelsTarget(column)
    if type(held["positive"]) is not LABELS[column.type] or held["positive"] not in column.labels:
        raise ValueError
    return ClassTarget(column, held["positive"])


def _require_finite(values: list[Any], count: int) -> tuple[float, ...]:
    """So many numbers of a size that sums and products of them keep finite."""
    if len(values) != count or not all(type(value) in (int, float) and abs(value) < MOST for value in values):
        raise ValueError
    return tuple(float(value) for value in values)


def feature_to_plain(each: Feature) -> dict[str, Any]:
    """A feature as plain values."""
    if isinstance(each, Bins):
        return {**feature_to_plain(each.number), "kind": "bins", "count": each.count, "width": str(each.width)}
    if isinstance(each, Knots):
        return {**feature_to_plain(each.number), "kind": "knots", "count": each.count}
    common = {"name": each.name, "type": each.type.value, "nullable": each.nullable}
    if isinstance(each, Labels):
        return {"kind": "labels", **common, "labels": list(each.labels)}
    return {"kind": "number", **common, "lower": str(each.lower), "upper": str(each.upper)}


def feature_from_plain(entry: dict[str, Any]) -> Feature:
    """The feature that plain values stand for."""
    name, kind, nullable = entry["name"], ColumnType(entry["type"]), bool(entry["nullable"])
    _require_text(name)
    if entry["kind"] == "labels":
        labels = tuple(entry["labels"])
        if len(set(labels)) != len(labels) or any(type(label) is not LABELS.get(kind) for label in labels):
            raise ValueError
        for label in labels:
            _require_text(str(label))
        return Labels(name, kind, labels, nullable)
    number = Number(name, kind, read_rational(entry["lower"]), read_rational(entry["upper"]), nullable)
    if not -MOST < number.lower <= number.upper < MOST:
        raise ValueError
    if entry["kind"] == "bins" and 1 <= int(entry["count"]) <= MOST_BINS:
        width = read_rational(entry["width"])
        if 0 < width < MOST:
            return Bins(number, int(entry["count"]), width)
    if entry["kind"] == "knots" and 1 <= int(entry["count"]) <= MOST_KNOTS:
        return Knots(number, int(entry["count"]))
    if entry["kind"] != "number":
        raise ValueError
    return number


_AMOUNTS = ("epsilon", "delta", "rho")


def _guarantee_to_plain(guarantee: Guarantee) -> dict[str, Any]:
    amounts = {name: getattr(guarantee, name) for name in _AMOUNTS}
    return {"unit": guarantee.unit, "neighbors": str(guarantee.neighbors)} | {
        name: None if amount is None else to_text(amount) for name, amount in amounts.items()
    }


def _guarantee_from_plain(held: dict[str, Any]) -> Guarantee:
    epsilon, delta, rho = (None if held[name] is None else read_rational(held[name]) for name in _AMOUNTS)
    return Guarantee(Technique.DP_MODEL, str(held["unit"]), Neighboring(held["neighbors"]), epsilon, delta, rho)
