"""Generated tables for benchmarks: the shape of the real ones, the same every time, with columns that hang together."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def generated(tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("generated", BENCH / "_generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.REAL, module.MADE = tmp_path / "none", tmp_path / "made"
    return module


def test_the_coded_table_has_the_shape_that_its_domain_says(generated: ModuleType) -> None:
    folder = generated.find_data("adult14")
    sizes = json.loads((folder / "adult-domain.json").read_text())
    codes = np.loadtxt(folder / "adult.csv", delimiter=",", skiprows=1, dtype=int)
    assert codes.shape == (48_842, len(sizes))
    assert (codes.max(axis=0) < list(sizes.values())).all()
    assert "generated" in generated.say_source("adult14")
    assert generated.find_data("adult14") == folder


def test_columns_hang_together_and_a_seed_gives_the_same_rows(generated: ModuleType) -> None:
    first, again = (generated.draw_codes({"a": 4, "b": 4}, 20_000, seed=3) for _ in range(2))
    assert all((first[name] == again[name]).all() for name in first)
    joint = np.histogram2d(first["a"], first["b"], bins=4)[0] / 20_000
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert np.abs(joint - apart).sum() / 2 > 0.03
