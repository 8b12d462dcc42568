"""What the samplers accept, refuse and return at the edges of their domains."""

import ast
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deniable.dp.samplers as samplers
from deniable.dp.samplers import (
    bernoulli,
    bernoulli_exp,
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    geometric,
    permutation,
    permute_and_flip,
    salt,
    uniform_below,
)
from deniable.dp.samplers.entropy import CHUNK, FEW, draw_in_chunks
from deniable.errors import ParameterError
from seeded import SeededEntropy

HALF = Fraction(1, 2)
DRAWS: dict[str, Callable[[int], Any]] = {
    "uniform_below": lambda size: uniform_below(10, size),
    "bernoulli": lambda size: bernoulli(HALF, size),
    "bernoulli_exp": lambda size: bernoulli_exp(HALF, size),
    "geometric": lambda size: geometric(HALF, size),
    "discrete_laplace": lambda size: discrete_laplace(HALF, size),
    "discrete_gaussian": lambda size: discrete_gaussian(HALF, size),
    "large discrete_gaussian": lambda size: discrete_gaussian(10**6, size),
    "exponential_choice": lambda size: exponential_choice([0, 1, 2], HALF, size),
    "permute_and_flip": lambda size: permute_and_flip([0, 1, 2], HALF, size),
}
SIZES = [0, 1, FEW - 1, FEW, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 5]


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("size", SIZES)
def test_exactly_as_many_integers_come_back_as_were_asked_for(draw: Callable[[int], Any], size: int) -> None:
    drawn = draw(size)
    assert drawn.shape == (size,)
    assert drawn.dtype in (np.dtype(np.int64), np.dtype(np.bool_))


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("size", [-1, 1.0, "3", None, True, 1 << 41])
def test_a_size_that_counts_nothing_is_refused(draw: Callable[[Any], Any], size: object) -> None:
    with pytest.raises(ParameterError, match="size"):
        draw(size)


@pytest.mark.parametrize("scale", [0, -1, Fraction(-1, 2), 1 << 53, 0.5, "1", None, True, float("nan"), float("inf")])
def test_a_scale_that_is_not_an_exact_positive_number_is_refused(scale: Any) -> None:
    for draw in (geometric, discrete_laplace):
        with pytest.raises(ParameterError):
            draw(scale, 1)
    with pytest.raises(ParameterError):
        discrete_gaussian(scale if scale != 1 << 53 else 1 << 105, 1)


def test_a_float_is_refused_with_the_way_out() -> None:
    with pytest.raises(ParameterError, match="Fraction"):
        discrete_laplace(0.1, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [-1, 2, Fraction(3, 2), 0.5, None])
def test_a_probability_outside_its_interval_is_refused(p: Any) -> None:
    with pytest.raises(ParameterError):
        bernoulli(p, 1)


def test_other_parameters_outside_their_domains_are_refused() -> None:
    refused: list[Callable[[], object]] = [
        lambda: bernoulli_exp(Fraction(-1), 1),
        lambda: uniform_below(0, 1),
        lambda: uniform_below(-3, 1),
        lambda: uniform_below((1 << 63) + 1, 1),
        lambda: permutation(-1),
        lambda: salt(-1),
        lambda: exponential_choice([], 1),
        lambda: exponential_choice([0.5], 1),
        lambda: exponential_choice([0, 1], -1),
        lambda: exponential_choice([0, 1], 1, widths=[1]),
        lambda: exponential_choice([0, 1], 1, widths=[0, 0]),
        lambda: exponential_choice([0, 1], 1, widths=[1, -1]),
        lambda: exponential_choice([0, 1], 1, widths=[2**62, 2**62]),
        lambda: exponential_choice([-(2**62), 2**62], 1),
        lambda: permute_and_flip([], 1),
        lambda: bernoulli_exp_each([-1], 1),
    ]
    for call in refused:
        with pytest.raises(ParameterError):
            call()


def test_certain_coins_are_certain() -> None:
    assert bernoulli(1, 1000).all()
    assert not bernoulli(0, 200_000).any()
    assert bernoulli_exp(0, 1000).all()
    assert not bernoulli_exp(10**9, 200_000).any()
    assert bernoulli_exp_each(np.zeros(1000, dtype=np.int64), 10**9).all()
    assert bernoulli_exp_each([5] * 10, 0).all()


@pytest.mark.parametrize("size", [5, 1000])
def test_the_smallest_and_largest_scales_work(size: int) -> None:
    assert not discrete_laplace(Fraction(1, 1000), size).any()
    assert not discrete_gaussian(Fraction(1, 10**6), size).any()
    for scale in (10**9, 1 << 52):
        assert 0 < np.abs(discrete_laplace(scale, size)).max() < 100 * scale
        assert 0 < geometric(scale, size).max() < 100 * scale
    for sigma in (10**9, (1 << 32) - 1):
        assert 0 < np.abs(discrete_gaussian(sigma**2, size)).max() < 20 * sigma


def test_a_sigma_beyond_64_bit_blocks_is_still_drawn_exactly() -> None:
    sigma = 1 << 40
    drawn = discrete_gaussian(sigma**2, 300)
    assert sigma // 2 < drawn.std() < 2 * sigma


@pytest.mark.parametrize("size", [5, 1000])
def test_rationals_with_hundreds_of_digits_do_not_overflow(size: int) -> None:
    awkward = Fraction(10**200 + 1, 10**199 + 7)  # about 10
    assert np.abs(discrete_laplace(awkward, size)).max() < 1000
    assert np.abs(discrete_gaussian(awkward**2, size)).max() < 200
    assert bernoulli(Fraction(10**200 - 1, 10**200), size).all()
    assert exponential_choice([0, 5], awkward, size).max() == 0
    assert permute_and_flip([0, 50], awkward, size).max() == 0


def test_rationals_with_hundreds_of_digits_give_the_noise_of_their_short_neighbor() -> None:
    near_ten = Fraction(10**200 + 1, 10**199)
    draw = lambda scale: discrete_laplace(scale, 1000, entropy=SeededEntropy(3)).tolist()  # noqa: E731
    assert draw(near_ten) == draw(Fraction(10))
    draw = lambda sigma: discrete_gaussian(sigma**2, 1000, entropy=SeededEntropy(3)).tolist()  # noqa: E731
    assert draw(1000 * near_ten) == draw(Fraction(10_000))


def test_uniform_integers_reach_the_whole_range_of_64_bits() -> None:
    drawn = uniform_below(1 << 63, 1000)
    assert drawn.min() >= 0
    assert drawn.max() > 1 << 62


def test_a_permutation_holds_every_position_once() -> None:
    for n in (0, 1, 2, 1000):
        assert sorted(permutation(n).tolist()) == list(range(n))


def test_a_permutation_with_tied_keys_is_drawn_again() -> None:
    class TiedFirst:
        asked = 0

        def take(self, count: int) -> bytes:
            self.asked += 1
            return bytes(count) if self.asked == 1 else bytes(range(count, 0, -1))

    source = TiedFirst()
    permutation(4, entropy=source)
    assert source.asked == 2


def test_candidates_of_no_width_are_never_chosen_even_when_they_are_the_best() -> None:
    drawn = exponential_choice([0, 10**6, 10**6 + 1], 1, 1000, widths=[0, 1, 1])
    assert set(drawn.tolist()) == {1, 2}


def test_shifting_all_costs_changes_nothing() -> None:
    draw = lambda costs: exponential_choice(costs, HALF, 500, entropy=SeededEntropy(5)).tolist()  # noqa: E731
    assert draw([0, 1, 3]) == draw([-7, -6, -4])


def test_pieces_that_fall_short_are_topped_up() -> None:
    asked: list[int] = []

    def half(count: int) -> np.ndarray:
        asked.append(count)
        return np.full((count + 1) // 2, len(asked), dtype=np.int64)

    answer = draw_in_chunks(5, half)
    assert asked == [5, 2, 1]
    assert answer.tolist() == [1, 1, 1, 2, 3]


def test_memory_beyond_the_answer_stays_within_a_few_chunks() -> None:
    discrete_gaussian(10**8, 1000)  # tables are made once
    tracemalloc.start()
    discrete_gaussian(10**8, 2_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2_000_000 + 20 * 8 * CHUNK


def test_two_calls_share_no_entropy() -> None:
    assert salt(16) != salt(16)
    assert len(salt(0)) == 0
    assert not np.array_equal(discrete_laplace(100, 300), discrete_laplace(100, 300))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_does_not_repeat_the_noise_of_its_parent() -> None:
    program = (
        "import os, sys\n"
        "from deniable.dp.samplers import discrete_laplace\n"
        "discrete_laplace(10**9, 3), discrete_laplace(10**9, 300)\n"
        "child = os.fork()\n"
        "print(discrete_laplace(10**9, 3).tolist(), discrete_laplace(10**9, 300).tolist(), flush=True)\n"
        "child and os.waitpid(child, 0)\n"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    parent, child = shown.splitlines()
    assert not set(re.findall(r"-?\d+", parent)) & set(re.findall(r"-?\d+", child))


def test_seeded_entropy_repeats_itself_and_depends_on_its_seed() -> None:
    draw = lambda seed: discrete_laplace(100, 300, entropy=SeededEntropy(seed)).tolist()  # noqa: E731
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def modules() -> list[Path]:
    return sorted(Path(samplers.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.stem)
def test_no_floating_point_lies_between_entropy_and_noise(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div))
        assert not (isinstance(node, ast.Name) and node.id in {"float", "round"})
        assert not (isinstance(node, ast.Attribute) and node.attr.startswith(("float", "random", "mean", "exp", "log")))
        if isinstance(node, ast.ImportFrom) and node.module == "math":
            assert [alias.name for alias in node.names] == ["isqrt"]
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= {"numpy", "os"}
