"""Noise end to end, with power: the stated scale passes, 30% off fails; intervals hold as often as they say."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

import clinic
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP, Budget, PureDP
from deniable.query.compile import compile_query
from deniable.query.execute import Presentation, measure, present
from deniable.query.plan import Placed

CITIES = tuple(f"city {i:03}" for i in range(400))
"""Four hundred public keys: one execution draws four hundred independent noises."""
ROWS = [{"pid": i, "city": CITIES[i % 400], "age": 30 + i % 40} for i in range(1200)]


@pytest.fixture(scope="module")
def cities() -> DuckDBEngine:
    return clinic.engine(TABLES, visits=clinic.rows_of(ROWS))


def declared() -> tuple[clinic.TableSchema, ...]:
    from dataclasses import replace

    tables = clinic.with_unit(max_groups=3, max_rows_per_group=2)
    columns = tuple(replace(c, categories=CITIES) if c.name == "city" else c for c in clinic.COLUMNS)
    return (replace(tables[0], columns=columns), *tables[1:])


TABLES = declared()


def noise(
    sql: str, budget: Budget, engine: DuckDBEngine, place: int, rounds: int = 10
) -> tuple[Placed, NDArray[np.float64]]:
    """The noise of one measurement in every group: what was released, less what is true."""
    plan = compile_query(sql, TABLES, budget)
    node = plan.nodes[0]
    placed = node.steps[0].placed[place]
    silent = compile_query(sql, TABLES, PureDP(Fraction(9_999)))
    exact = measure(silent, engine)[node.node.name][0].values[place]
    drawn = [measure(plan, engine)[node.node.name][0].values[place] - exact for _ in range(rounds)]
    return placed, np.concatenate(drawn).astype(np.float64)


def fits(found: NDArray[np.float64], placed: Placed, factor: float) -> bool:
    """Whether noise is as large as stated, times a factor, by its mean square.

    Of 4,000 squares of Laplace noise, skewed as they are, the mean strays by six deviations less than once in ten
    million times; of Gaussian noise less often still. A scale that is 30% off is nine deviations away, or more.
    """
    if hasattr(placed.mechanism, "scale"):
        variance, kurtosis = 2 * float(placed.mechanism.scale) ** 2 * factor**2, 6.0
    else:
        variance, kurtosis = float(placed.mechanism.variance) * factor**2, 3.0
    if placed.mixed is not None or placed.sensitivity.parts > 1:  # computed from noisy parts of steps, and rounded
        squares = 1.0 if placed.mixed is None else placed.mixed.squares
        variance = variance * squares / placed.sensitivity.parts**2 + 1 / 12
    deviation = variance * math.sqrt((kurtosis - 1) / len(found))
    return abs(float(np.mean(found**2)) - variance) < 6 * deviation


CASES = [
    ("SELECT city, COUNT(*) FROM visits GROUP BY city", PureDP(Fraction(1, 2)), 0),
    ("SELECT city, SUM(age) FROM visits GROUP BY city", PureDP(Fraction(1)), 0),
    ("SELECT city, AVG(age) FROM visits GROUP BY city", PureDP(Fraction(1)), 0),
    ("SELECT city, AVG(age) FROM visits GROUP BY city", PureDP(Fraction(1)), 1),
    (
        "SELECT city, COUNT(DISTINCT pid), SUM(age), COUNT(*), AVG(delta) FROM visits GROUP BY city",
        ApproxDP(Fraction(1, 2), Fraction(1, 10**5)),
        1,
    ),
]


@pytest.mark.parametrize(("sql", "budget", "place"), CASES)
def test_noise_has_the_stated_scale_and_no_other(sql: str, budget: Budget, place: int, cities: DuckDBEngine) -> None:
    placed, found = noise(sql, budget, cities, place)
    assert fits(found, placed, 1.0)
    assert not fits(found, placed, 1.3)
    assert not fits(found, placed, 0.7)
    assert abs(found.mean()) < 5.5 * found.std() / math.sqrt(len(found)), "noise is unbiased"


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("aggregate", ["COUNT(*)", "SUM(age)", "AVG(age)", "VARIANCE(age)", "STDDEV(age)"])
def test_intervals_hold_as_often_as_they_say(aggregate: str, confidence: float, cities: DuckDBEngine) -> None:
    """The truth lies outside no more often than stated; for one measurement not much less often either."""
    sql = f"SELECT city, {aggregate} AS x FROM visits GROUP BY city"
    epsilon = 1 if aggregate in ("COUNT(*)", "SUM(age)") else 20
    plan = compile_query(sql, TABLES, PureDP(Fraction(epsilon)))
    node = plan.nodes[0]
    exact = {r["city"]: r["x"] for r in truth(aggregate)}
    held = total = 0
    for _ in range(3):
        shown = present(plan, measure(plan, cities), cities, Presentation(confidence)).to_pylist()
        held += sum(r["x_low"] - 1e-9 <= exact[r["city"]] <= r["x_high"] + 1e-9 for r in shown)
        total += len(shown)
    slack = 5.2 * math.sqrt(confidence * (1 - confidence) / total)  # one side: once in ten million
    assert held / total >= confidence - slack
    if len(node.measurements) == 1:
        assert held / total <= confidence + slack + 0.05, "an interval that is far too wide says little"


def truth(aggregate: str) -> list[dict[str, float]]:
    import duckdb

    connection = duckdb.connect()
    connection.register("visits", clinic.rows_of(ROWS))
    return connection.sql(f"SELECT city, {aggregate} AS x FROM visits GROUP BY city").to_arrow_table().to_pylist()
