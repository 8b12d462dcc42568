"""Usefulness for a target: how well a classifier does that learns from the released table.

Naive Bayes on the cells as they are, cross-validated: it needs no numbers, trains in one pass, and loses what
generalization loses. The accuracy is told beside that on the original table and that of always saying the commonest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.encode import column_of, distinct
from deniable.kanonymity.hierarchy import Codes

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Usefulness:
    """Accuracy of predicting the target from the original, from the release, and without looking."""

    original: float
    released: float
    commonest: float

    @property
    def kept(self) -> float:
        """The share of what the original adds to guessing that the release still adds; 1 when nothing was to gain."""
        gain = self.original - self.commonest
        return (self.released - self.commonest) / gain if gain > 1e-12 else 1.0


def usefulness(original: pa.Table, released: pa.Table, target: str, columns: tuple[str, ...]) -> Usefulness:
    """Compare a release with its original, for predicting a target from these columns."""
    columns = tuple(name for name in columns if name != target)
    if not columns:
        raise ParameterError("Nothing is left to predict the target from", expected="A column besides the target")
    there = tuple(name for name in columns if name in released.column_names)
    truth = _coded(original, target)[0]
    commonest = float(np.bincount(truth).max(initial=0) / max(len(truth), 1))
    return Usefulness(accuracy(original, target, columns), accuracy(released, target, there), commonest)


def accuracy(table: pa.Table, target: str, columns: tuple[str, ...]) -> float:
    """The share of rows whose target a naive Bayes classifier predicts, over five folds."""
    if table.num_rows < FOLDS:
        raise DataError(f"The table has {table.num_rows} rows", expected=f"At least {FOLDS} to learn and to test")
    truth, answers = _coded(table, target)
    features = [_coded(table, name) for name in columns]
    fold = np.random.default_rng(0).permutation(table.num_rows) % FOLDS  # which rows test which: no privacy in it
    right = 0
    for number in range(FOLDS):
        train, test = fold != number, fold == number
        right += int((_predict(features, truth, answers, train, test) == truth[test]).sum())
    return right / int(table.num_rows)


def _predict(
    features: list[tuple[Codes, int]], truth: Codes, answers: int, train: NDArray[np.bool_], test: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The most probable answer, with one added to each count."""
    prior = np.bincount(truth[train], minlength=answers) + 1.0
    score = np.log(prior)[None, :] + np.zeros((int(test.sum()), 1))
    for codes, size in features:
        joint = np.bincount(truth[train] * size + codes[train], minlength=answers * size).reshape(answers, size) + 1.0
        score += np.log(joint / joint.sum(axis=1, keepdims=True)).T[codes[test]]
    best: NDArray[np.int64] = np.argmax(score, axis=1)
    return best


def _coded(table: pa.Table, name: str) -> tuple[Codes, int]:
    values, positions = distinct(column_of(table, name))
    return np.where(positions < 0, len(values), positions).astype(np.int64), len(values) + 1
