"""One question as one workload: our error beside that of the best published mechanism, and one answer in many words.

At a pure epsilon of 1 and one row a person. Published mechanisms: for counts, HDMM's optimized p-Identity strategy
(McKenna, Miklau, Hay, Machanavajjhala 2018) and unions of them, found anew by L-BFGS; for an average, the K-norm
mechanism (Hardt and Talwar 2010; Awan and Slavkovic 2018), which for a sum and a count is Laplace noise on the two
distances to the bounds, so that its error is known in closed form. Errors are root mean squares over all numbers of a
question, ours measured over many releases.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
from _query_tables import bar
from numpy.typing import NDArray

from deniable.policy.budget import PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.batch import Question, plan_batch
from deniable.query.compile import compile_query
from deniable.query.joint import apply_strategy, reconstruct, solve_block
from deniable.query.plan import Joint

ONE = PureDP(Fraction(1))
CITIES = ("Ada", "Brin", "Cole", "Dorn", "Egg", "Fen", "Gill", "Hall")
TABLE = TableSchema(
    "visits",
    "",
    (
        Column("pid", ColumnType.INTEGER),
        Column("sex", categories=("F", "M")),
        Column("insured", ColumnType.BOOLEAN),
        Column("age", ColumnType.INTEGER, nullable=False, bounds=Bounds(0, 100)),
        Column("city", nullable=False, categories=CITIES),
    ),
    PrivacyUnit(),
)
RELEASES = 4000
WORDINGS = Path(__file__).parent / "sql_questions" / "wordings.sql"
PREFIXES = [f"COUNT(*) FILTER (WHERE age <= {i})" for i in range(64)]
PIVOTS = [f"SUM(CASE WHEN city = '{city}' THEN 1 ELSE 0 END)" for city in CITIES[:3]]
TILES = [
    *(f"COUNT(*) FILTER (WHERE age < {6 * i + 6})" for i in range(16)),
    *(f"COUNT(*) FILTER (WHERE age >= {6 * i} AND age < {6 * i + 6})" for i in range(16)),
    *(f"COUNT(*) FILTER (WHERE city = '{city}')" for city in CITIES),
]
"""A dashboard over one table: a running total, a histogram and a breakdown, as 40 numbers."""


def plan_joint(items: list[str]) -> tuple[Joint, list[float]]:
    """The joint release of a question, and the deviation that each of its numbers is promised."""
    step = compile_query(f"SELECT {', '.join(items)} FROM visits", (TABLE,), ONE).nodes[0].steps[0]
    (joint,) = step.joints
    return joint, [placed.deviation for placed in step.placed]


def measure_errors(joint: Joint) -> list[float]:
    """The root mean square error of each number over many releases of cells that hold anything."""
    exact = np.tile(np.arange(len(joint.block.parts), dtype=np.int64) * 1000, (RELEASES, 1))
    measured, taken = apply_strategy(exact, joint.strategy.matrix), solve_block(joint.block, joint.strategy)
    noisy = joint.mechanism.release(measured.ravel()).reshape(measured.shape)
    truth = measured[0] @ taken.T / joint.sensitivity.parts
    found = np.stack(reconstruct(noisy, taken, joint.sensitivity.parts), axis=1)
    return [float(each) for each in np.sqrt(np.mean((found - truth) ** 2, axis=0))]


def root_mean_square(errors: list[float]) -> float:
    """Over all numbers of a question."""
    return math.sqrt(sum(error**2 for error in errors) / len(errors))


def optimize_strategy(workload: NDArray[np.float64], starts: tuple[int, ...] = (2, 4)) -> float:
    """The error of HDMM's p-Identity strategy: each cell, and p rows of any weights, columns scaled to one norm."""
    from scipy.optimize import minimize

    cells, wanted = workload.shape[1], workload.T @ workload

    def evaluate(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        matrix = np.vstack([np.eye(cells), weights.reshape(-1, cells)])
        norms = matrix.sum(axis=0)
        scaled = matrix / norms
        inner = np.linalg.inv(scaled.T @ scaled)
        slope = -2 * scaled @ (inner @ wanted @ inner)
        whole = slope / norms - (slope * matrix).sum(axis=0) / norms**2
        return float(np.trace(inner @ wanted)), whole[cells:].ravel()

    found = []
    for rows in starts:
        start = np.random.default_rng(rows).random(rows * cells)
        made = minimize(evaluate, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * start.size,
                        options={"maxiter": 120})  # fmt: skip
        found.append(float(made.fun))
    return math.sqrt(2 * min(found) / len(workload))


def find_published(workload: NDArray[np.float64], groups: tuple[int, ...]) -> float:
    """The error of HDMM: of one strategy for all, or of the union of one for each group of conditions (OPT+).

    Each of the union has the part of epsilon that makes the sum of errors E / part^2 least: parts as E^(1/3).
    """
    whole = optimize_strategy(workload)
    totals = []
    for group in sorted(set(groups)):
        rows = workload[np.array(groups) == group]
        cells = np.unique(rows[:, rows.any(axis=0)], axis=1)
        totals.append(optimize_strategy(cells) ** 2 * len(rows))
    together = sum(total ** (1 / 3) for total in totals) ** 3
    return min(whole, math.sqrt(together / len(workload)))


def compare_counts(name: str, items: list[str]) -> None:
    """Our error beside that of the optimized strategy over the same cells."""
    joint, promised = plan_joint(items)
    ours = root_mean_square(measure_errors(joint))
    best = find_published(np.array(joint.block.workload, dtype=np.float64), joint.block.cells.groups)
    alone = math.sqrt(2) * len(items)
    print(f"{name}: RMSE {ours:.2f} (promised {root_mean_square(promised):.2f}) by {joint.strategy.words}, "
          f"p-Identity {best:.2f}, one by one {alone:.1f}")  # fmt: skip
    bar(f"{name}, times the best published error", ours / best, 1.2)


def compare_batch() -> None:
    """The same 40 tiles as 40 questions handed in together, beside the one question that has them as columns."""
    texts = [f"SELECT COUNT(*) FROM visits WHERE {tile[len('COUNT(*) FILTER (WHERE ') : -1]}" for tile in TILES]
    share = PureDP(Fraction(1, len(texts)))
    alone = [compile_query(text, (TABLE,), share) for text in texts]
    parts = plan_batch([Question(plan) for plan in alone], ONE)
    errors = {}
    for part in parts:
        (step,) = part.plan.nodes[0].steps
        (joint,) = step.joints
        measured = dict(zip(joint.block.places, measure_errors(joint), strict=True))
        for place, steps in part.questions.items():
            assert steps is not None
            errors[place] = measured[steps[0][()][0]]
    ours = root_mean_square(list(errors.values()))
    single = root_mean_square(measure_errors(plan_joint(TILES)[0]))
    apart = root_mean_square([plan.nodes[0].steps[0].placed[0].deviation for plan in alone])
    print(f"40 questions handed in together: RMSE {ours:.2f}, as one question {single:.2f}, one by one {apart:.1f}")
    bar("a batch of 40 questions, times the error of one question with 40 columns", ours / single, 1.05)


def compare_average() -> None:
    """The sum and the count that an average is made of, each beside the K-norm mechanism."""
    joint, _ = plan_joint(["AVG(age)"])
    total, rows = measure_errors(joint)
    print(f"AVG: the sum about the middle errs by {total:.1f}, the count by {rows:.2f}; K-norm 100 and 2; "
          "with half of epsilon each 141.4 and 2.83")  # fmt: skip
    bar("AVG, times the best published error", max(total / 100, rows / 2), 1.2)


def count_wordings() -> None:
    """One question in the words of ten tools."""
    texts = re.findall(r"^-- .*\n(.*);$", WORDINGS.read_text(encoding="utf-8"), re.MULTILINE)
    keys = {compile_query(text, (TABLE,), ONE).canonical for text in texts}
    print(f"{len(texts)} wordings of one question: {len(keys)} different measurements")
    bar("answers and charges of one question in 30 wordings", len(keys), 1)


def compare_prices() -> None:
    """Equal parts of one question at epsilon 1 and delta 1e-6: would privacy loss distributions allow less noise?

    Laplace noise whose epsilons are added up and Gaussian noise by the analytic curve, which is exact for several parts
    as for one, beside Laplace noise that is composed by privacy loss distributions (Google's library).
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as losses
    except ImportError:
        print("prices of several parts: needs pip install 'deniable[pld]'")
        return
    from deniable.dp.accounting import calibrate_gaussian, rho_within
    from deniable.policy.budget import ApproxDP

    worst, delta = 1.0, 1e-6
    for parts in (2, 3, 5, 10, 20):
        low, high = 1 / parts, 1.0
        for _ in range(16):
            middle = (low + high) / 2
            each = losses.from_laplace_mechanism(1 / middle, value_discretization_interval=1e-4)
            fits = each.self_compose(parts).get_epsilon_for_delta(delta) <= 1
            low, high = (middle, high) if fits else (low, middle)
        # In steps of a thousandth, so that what discrete noise costs beside the continuous one is not seen.
        gaussian = math.sqrt(calibrate_gaussian(ApproxDP(1, "1e-6"), sensitivity=1000) * parts) / 1000
        added, composed = math.sqrt(2) * parts, math.sqrt(2) / low
        worst = max(worst, min(added, gaussian) / composed)
        print(f"{parts} parts at epsilon 1, delta 1e-6: deviation {added:.2f} with Laplace noise, {gaussian:.2f} with "
              f"Gaussian noise, {composed:.2f} with Laplace noise by privacy loss distributions")  # fmt: skip
    exactly = math.sqrt(calibrate_gaussian(ApproxDP(1, "1e-6"), sensitivity=1000)) / 1000
    by_rho = math.sqrt(1 / (2 * rho_within(Fraction(1), Fraction(1, 10**6))))
    print(f"Gaussian noise by rho, times that by the exact curve: {by_rho / exactly:.3f}")
    bar("our noise, times that by privacy loss distributions", worst, 1.01)


def workloads() -> None:
    """All of it."""
    compare_counts("64 prefixes", PREFIXES)
    compare_counts("3-way pivot", PIVOTS)
    compare_counts("dashboard of 40 tiles", TILES)
    compare_batch()
    compare_average()
    count_wordings()
    compare_prices()
