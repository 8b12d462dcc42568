"""Figures of a prediction, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.assess.utility import score_classification, score_regression


def test_four_probabilities_by_hand() -> None:
    found = score_classification(
        np.array([True, False, True, False]), np.array([0.9, 0.6, 0.6, 0.1]), np.array([False, False, True])
    )
    assert found is not None
    assert (found.rows, found.accuracy, found.majority) == (4, 0.75, 0.5)
    assert found.area == pytest.approx(3.5 / 4)  # of four pairs three are in order, and one is tied


def test_one_class_has_no_area_and_no_rows_have_no_figures() -> None:
    found = score_classification(np.array([True]), np.array([0.9]), np.array([], np.bool_))
    assert found is not None
    assert found.area is None
    nothing = np.array([], np.float64)
    assert score_classification(nothing.astype(np.bool_), nothing, nothing.astype(np.bool_)) is None
    assert score_regression(nothing, nothing, nothing) is None


def test_numbers_by_hand() -> None:
    found = score_regression(np.array([1.0, 3.0]), np.array([1.0, 2.0]), np.array([0.0, 2.0]))
    assert found is not None
    assert found.error == pytest.approx(0.5**0.5)
    assert found.mean_error == pytest.approx(2**0.5)  # the mean of the rows learned from is 1
    assert found.r_squared == pytest.approx(0.5)
    constant = score_regression(np.array([2.0, 2.0]), np.array([2.0, 2.0]), np.array([2.0]))
    assert constant is not None
    assert constant.r_squared is None
