"""The mathematics of the lessons, as the browser runs it, against the same computed here by other means."""

from __future__ import annotations

import itertools
import json
import math
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")
SCRIPT = (files("deniable.reports.lessons") / "static" / "mathematics.js").read_text(encoding="utf-8")


def run(body: str) -> Any:
    """What a function body gives, run beside the lessons' mathematics."""
    program = f"{SCRIPT}\nconst m = mathematics;\nconsole.log(JSON.stringify((() => {{{body}}})()));"
    done = subprocess.run([str(NODE), "-e", program], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


DESIGNS = {"coins": (3 / 4, 1 / 4, 3), "envelopes": (2 / 3, 1 / 3, 2), "die": (5 / 6, 1 / 6, 5)}


def test_each_design_has_the_chances_and_the_epsilon_that_the_lesson_tells():
    told = run("return Object.entries(m.DESIGNS).map(([name, d]) => [name, d.yes, d.no, m.epsilonOf(d)]);")
    assert {name: (yes, no) for name, yes, no, _ in told} == {name: (yes, no) for name, (yes, no, _) in DESIGNS.items()}
    for name, _, _, epsilon in told:
        assert epsilon == pytest.approx(math.log(DESIGNS[name][2]))


def test_answers_are_said_with_the_stated_chances():
    draws = 40_000
    seen = run(f"""m.seed(5); const seen = {{}};
      for (const name of Object.keys(m.DESIGNS)) for (const truth of [true, false]) {{
        let yes = 0;
        for (let i = 0; i < {draws}; i += 1) yes += m.respond(name, truth).said;
        seen[`${{name}} ${{truth}}`] = yes;
      }} return seen;""")
    for name, (yes, no, _) in DESIGNS.items():
        for truth, chance in (("true", yes), ("false", no)):
            deviation = math.sqrt(draws * chance * (1 - chance))
            assert abs(seen[f"{name} {truth}"] - draws * chance) < 5 * deviation  # the seed is fixed


def test_the_estimate_of_the_share_is_unbiased():
    runs, people, share = 4000, 100, 0.2
    found = run(f"""m.seed(6); const found = {{}};
      for (const [name, design] of Object.entries(m.DESIGNS)) {{ found[name] = [];
        const ask = () => m.estimateShare(design, m.askClass(name, {people}, {share}), {people}).share;
        for (let i = 0; i < {runs}; i += 1) found[name].push(ask());
      }} return found;""")
    for name, (yes, no, _) in DESIGNS.items():
        variance = (share * yes * (1 - yes) + (1 - share) * no * (1 - no)) / people / (yes - no) ** 2
        assert abs(np.mean(found[name]) - share) < 5 * math.sqrt(variance / runs)
        assert np.var(found[name]) == pytest.approx(variance, rel=0.12)


def test_the_worked_figures_of_randomized_response_are_reproduced():
    two, three = run(
        "return [[m.DESIGNS.coins, 35, 100], [m.DESIGNS.envelopes, 120, 300]].map((e) => m.estimateShare(...e).share);"
    )
    assert two == pytest.approx(2 * 0.35 - 0.5)
    assert three == pytest.approx(0.2)


def test_the_interval_of_a_share_is_wilsons():
    from scipy.stats import binomtest

    for yes, people in ((0, 10), (11, 30), (120, 300), (50, 50)):
        low, high = run(f"return m.findInterval({yes}, {people});")
        exact = binomtest(yes, people).proportion_ci(method="wilson")
        assert (low, high) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_laplace_noise_has_the_law_of_laplace():
    from scipy.stats import kstest, laplace

    drawn = np.array(run("m.seed(7); return Array.from({length: 20000}, () => m.drawLaplace(2));"))
    assert kstest(drawn, laplace(scale=2).cdf).pvalue > 1e-3  # the seed is fixed
    assert kstest(drawn, laplace(scale=2.2).cdf).pvalue < 1e-6


def test_no_attacker_of_the_game_beats_the_bound_and_a_broken_program_does():
    rows = run(
        """m.seed(8); const play = (e) => m.playGames(e, 50000);
        return [0.2, 0.5, 1, 2].map((e) => [e, play(e), m.boundOfGame(e), play(3 * e)]);"""
    )
    for epsilon, won, bound, broken in rows:
        assert bound == pytest.approx(math.exp(epsilon) / (1 + math.exp(epsilon)))
        assert won < bound
        assert won == pytest.approx(1 - math.exp(-epsilon / 2) / 2, abs=0.012)
        assert broken > bound + 0.01


def test_readers_of_two_newspapers_stay_under_the_bound():
    rows = run("m.seed(9); return [0.1, 0.5, 1].map((e) => [e, m.readNewspapers(e, 50000)]);")
    for epsilon, right in rows:
        assert 0.5 < right < math.exp(epsilon) / (1 + math.exp(epsilon))
    assert run("return m.readNewspapers(Infinity, 1000);") == 1


def fits_all(women: tuple[int, ...], men: tuple[int, ...]) -> bool:
    everybody = np.array([*women, *men])
    adults = everybody[everybody >= 18]
    return bool(
        np.mean(women) == 28 and np.median(women) == 36 and np.mean(men) == 44 and np.median(everybody) == 38
        and len(adults) == 4 and adults.mean() == 41
    )  # fmt: skip


def test_the_solver_of_the_block_finds_the_one_solution_that_brute_force_finds():
    found = run(
        """const solve = (n) => { const { count, blocks } = m.solveBlock(n); return [count, blocks.slice(0, 20)]; };
        return [0, 1, 2, 3, 4, 5].map(solve);"""
    )
    assert [count for count, _ in found[:4]] == [
        math.comb(93, 3) * math.comb(92, 2),
        sum(a + b + c == 84 for a, b, c in itertools.combinations_with_replacement(range(91), 3)) * math.comb(92, 2),
        13 * math.comb(92, 2),
        13 * 45,
    ]
    women = [(a, 36, 48 - a) for a in range(13)]
    men = [(a, 88 - a) for a in range(45)]
    assert (
        [[list(w), list(m)] for w in women for m in men if fits_all(w, m)] == found[5][1] == [[[8, 36, 40], [38, 50]]]
    )
    assert found[4][0] == sum(sorted((*w, *m))[2] == 38 for w in women for m in men) == 17
    assert run("return m.checkBlock([40, 8, 36], [50, 38]);") == [True] * 5
    assert run("return m.checkBlock([40, 9, 36], [50, 38]);") == [False, True, True, True, True]


def test_whoever_follows_from_sums_is_who_linear_algebra_says():
    generator = np.random.default_rng(3)
    cases = [generator.integers(0, 2, (rows, 5)).tolist() for rows in (1, 2, 3, 4, 5) for _ in range(12)]
    told = run(f"return {json.dumps(cases)}.map((questions) => m.findDetermined(questions, 5));")
    for questions, found in zip(cases, told, strict=True):
        rank = np.linalg.matrix_rank(questions)
        unit = np.eye(5)
        assert found == [p for p in range(5) if np.linalg.matrix_rank([*questions, unit[p]]) == rank]


def test_two_releases_give_dougs_43():
    values = "[24, 35, 41, 43, 44, 48, 50]"
    assert run(f"return m.subtractReleases({values}, 4, 3);") == {"from": 3, "to": 4, "mean": 43}
    assert run(f"return [4, 3].map((cut) => m.mean({values}.slice(0, cut)));") == pytest.approx([35.75, 100 / 3])
    assert run(f"return m.subtractReleases({values}, 3, 3);") is None


def test_classes_of_the_cohort_have_the_known_k_and_l():
    rows = (
        '[[50,3,"low"],[50,3,"low"],[50,3,"low"],[40,4,"high"],[40,4,"medium"]].map(([a, s, c]) => ({a, s, c, all: 1}))'
    )
    apart, joined = run(
        f"""const measure = (by) => {{ const found = m.measureClasses({rows}, by, "c"); return [found.k, found.l]; }};
        return [["a", "s"], ["all"]].map(measure);"""
    )
    assert apart == [2, 1]
    assert joined == [5, 3]


def test_the_errors_of_local_and_central_counts_are_as_told():
    central, local = run("""m.seed(10); const runs = 4000;
      const ways = [() => m.countCentrally(1, 40), () => m.countLocally(1, 200, 40)];
      return ways.map((ask) => Array.from({ length: runs }, ask));""")
    told = run("return [m.centralError(1), m.localError(1, 200), m.localError(1, 10000)];")
    assert told[2] == pytest.approx(95.9, abs=0.1)
    for found, error in ((central, told[0]), (local, told[1])):
        assert np.mean(found) == pytest.approx(40, abs=5 * error / math.sqrt(4000))
        assert np.std(found) == pytest.approx(error, rel=0.1)


def test_a_viewer_is_found_exactly_when_nobody_else_fits():
    told = run("""const viewers = m.makeRatings(60, 30, m.makeSeeded(1));
      const knows = { known: 3, wrong: 1, days: 14, rare: false };
      const clues = viewers.map((each, at) => m.learnRatings(each, knows, m.makeSeeded(at)));
      const fit = clues.map((each) => m.findViewers(viewers, each, knows));
      const list = (viewer) => [...viewer].map(([film, { stars, day }]) => [film, stars, day]);
      return { viewers: viewers.map(list), clues, fit };""")
    for clues, fit in zip(told["clues"], told["fit"], strict=True):
        matches = [
            sum(
                any(f == c["film"] and s == c["stars"] and abs(d - c["day"]) <= 14 for f, s, d in viewer) for c in clues
            )
            for viewer in told["viewers"]
        ]
        assert fit == [at for at, count in enumerate(matches) if count >= 2]


def test_synthetic_counts_are_drawn_by_the_noisy_ones_and_none_is_lost():
    made, far = run(
        "m.seed(11); const made = m.drawRows([1, 0, 3], 40000); return [made, m.totalVariation([1, 0, 3], made)];"
    )
    assert sum(made) == 40_000
    assert made[1] == 0
    assert made[2] == pytest.approx(30_000, abs=5 * math.sqrt(7500))
    assert far == pytest.approx(abs(made[0] / 40_000 - 0.25))
