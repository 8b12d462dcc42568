"""The page of the motivated-intruder test, and the plot of the distinguishing game."""

from dataclasses import asdict
from fractions import Fraction

from deniable.attacks.dp_audit import play_distinguishing_game
from deniable.attacks.outcome import Outcome, Rate
from deniable.dp.samplers import discrete_laplace
from deniable.reports.attacks import build_exposure_page, list_all_rates, plot_game
from deniable.reports.page import render
from seeded import SeededEntropy


def found(*outcomes: Outcome, failed: bool = False) -> dict:
    attempts = [{"attack": "linkage", "exposed": 0.5, "skipped": "", "outcomes": [one.as_dict() for one in outcomes]}]
    attempts.append({"attack": "ratings", "exposed": 0.0, "skipped": "needs ratings", "outcomes": []})
    return {"subject": "visits", "knows": ["zip"], "attacks": attempts, "verdicts": [], "untried": [],
            "failed": failed}  # fmt: skip


def test_the_worst_attack_leads_the_page():
    mild = Outcome("uniqueness", "Knowing little", Rate(1, 100), 0.0)
    bad = Outcome("linkage", "Holding a register", Rate(87, 100), 0.01, Rate(1, 100), Rate(87, 90))
    page = render(build_exposure_page(found(mild, bad)))
    assert "Holding a register exposes 870 of 1,000" in page
    assert "right when a claim is made" in page
    assert "needs ratings" in page


def test_two_outcomes_of_one_attack_are_two_bars_and_none_is_above_one():
    same = [Outcome("same class", f"Guessing {name}", Rate(90, 100), 0.1) for name in ("diagnosis", "procedure")]
    rates = list_all_rates([one.as_dict() for one in same])
    assert {row["attack"] for row in rates} == {"Guessing diagnosis", "Guessing procedure"}


def test_a_page_without_attacks_says_that_nothing_is_known():
    assert "nothing is known about the risk" in render(build_exposure_page(found()))


def test_the_game_is_drawn_beside_its_bound():
    def noise(value: int, seed: int):
        return lambda runs: value + discrete_laplace(Fraction(1), runs, entropy=SeededEntropy(seed))

    game = play_distinguishing_game(noise(0, 1), noise(1, 2), epsilon=1)
    plot = plot_game([asdict(point) for point in game.points], f"epsilon {game.epsilon:g}")
    assert {row["who"] for row in plot.spec["data"]["values"]} == {"best attacker", "bound of the claim", "a coin"}
    assert "epsilon 1" in plot.caption
