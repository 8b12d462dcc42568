"""The exact laws of both client files: every draw of the Python and of the JavaScript randomizers is followed.

Uniform draws are enumerated, so probabilities are fractions, compared for equality with the stated ones. Laplace noise
takes coins of bias exp(-a/b), which is no fraction: the coin is proven by its own draws, term by term of its series,
and the noise built on it as a polynomial in t = exp(-1/n), whose factors are fractions again.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from importlib.resources import files
from itertools import product
from math import factorial, gcd, log
from pathlib import Path
from typing import Any

import pytest

from deniable.localdp import client, serialization
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, three_envelopes, two_coins, warner
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor, hash_strings
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.likelihood_ratio import epsilon_of, is_within_epsilon, odds_below
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.survey.service import TicketSigner

CLIENT = Path(str(files("deniable.localdp"))) / "client.mjs"
Job = dict[str, Any]
Run = Callable[[list[Job]], list[Any]]
Courses = dict[str, dict[str, int]]
Law = dict[str, Fraction]
Polynomial = dict[int, Fraction]


# ---- the two client files, asked the same things


class Fork(Exception):
    """The course ends before the randomizer does: the choices, each with a divisor and factors of its probability."""


class Ended(Exception):
    """A course that is not followed to its end."""


def follow(
    run: Callable[..., Any], fixed: dict[str, int] | None = None, restart: int = 0, most: int = 1000, **_: object
) -> Courses:
    """The Python twin of `follow` in courses.mjs: all courses, by their response and the form of their probability."""
    seen: Courses = {}
    waiting: list[tuple[tuple[Any, ...], int, tuple[str, ...]]] = [((), 1, ())]
    while waiting:
        values, divisor, factors = waiting.pop()
        taken, starts = list(values), 0

        def decide(choices: Callable[[], list[Any]], taken: list[Any] = taken, depth: int = len(values)) -> Any:
            if taken:
                return taken.pop(0)
            if depth >= most:
                raise Ended("open")
            raise Fork(choices())

        def draw(bound: int, decide: Callable[..., Any] = decide) -> int:
            nonlocal starts
            if fixed and str(bound) in fixed:
                return fixed[str(bound)]
            starts += bound == restart
            if bound == restart and starts > 1:
                raise Ended("again")
            return decide(lambda: [(value, bound, ()) for value in range(bound)])

        def coin(a: int, b: int, _: object = None, decide: Callable[..., Any] = decide) -> bool:
            both = [(True, 1, (f"+{a}/{b}",)), (False, 1, (f"-{a}/{b}",))]
            return decide(lambda: both if a else [(True, 1, ())])

        try:
            response = compact(run(draw, coin))
        except Fork as fork:
            waiting += [((*values, v), divisor * d, (*factors, *more)) for v, d, more in fork.args[0]]
            continue
        except Ended as end:
            response = str(end)
        chance = " ".join([str(divisor), *sorted(factors)])
        counts = seen.setdefault(response, {})
        counts[chance] = counts.get(chance, 0) + 1
    return seen


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def sweep(run: Callable[..., Any], at: int) -> dict[str, int]:
    """How often each response comes when one draw takes every value and all others are 0."""
    seen: dict[str, int] = {}
    value, bound = 0, 1
    while value < bound:
        step = -1

        def draw(given: int, value: int = value) -> int:
            nonlocal step, bound
            step += 1
            bound = given if step == at else bound
            return value if step == at else 0

        response = compact(run(draw))
        seen[response] = seen.get(response, 0) + 1
        value += 1
    return seen


def words(bound: int) -> dict[str, int]:
    """Every word of as many bytes as a bound takes: how often each number is drawn, and how often it is drawn again."""
    counts, again, word, whole = [0] * bound, 0, 0, 1
    while word < whole:
        asked = 0

        def take(count: int, word: int = word) -> bytes:
            nonlocal asked, whole
            asked, whole = asked + 1, 256**count
            if asked > 1:
                raise Ended("again")
            return word.to_bytes(count, "big")

        try:
            counts[client.system_draw(bound, take)] += 1
        except Ended:
            again += 1
        word += 1
    return {"least": min(counts), "most": max(counts), "again": again}


def remember(path: Path, most: int | None, allowance: float | None, told: list[Any]) -> Any:
    """What a memory says to answers in turn: a response, or "refused"; and what it has counted as told."""
    limits = {name: limit for name, limit in (("most_answers", most), ("allowance", allowance)) if limit is not None}
    heard: list[Any] = []
    for question, answer, recipe, period in told:
        memory = client.Memory(str(path), **limits, name_period=lambda period=period: period)  # type: ignore[arg-type]
        heard.append(or_refused(lambda memory=memory, q=question, r=recipe, a=answer: memory.response(q, r, a)))
    return {"heard": heard, "spent": client.Memory(str(path)).state["spent"], "stored": json.loads(path.read_text())}


def or_refused(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except client.Refused:
        return "refused"


def answer(questions: list[dict[str, Any]], given: Any, period: str) -> Any:
    """One answer to questions of surveys in turn: how many responses to the last, and what was counted as told."""
    memory = client.Memory(name_period=lambda: period)
    for question in questions:
        survey = client.Survey({"survey": "s", "period": "the server's", "questions": [question]})
        told = survey.responses({question["name"]: given}, memory)[question["name"]]
    return {"responses": len(told), "spent": memory.state["spent"]}


def perform(job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    recipe, value = job.get("recipe", {}), job.get("answer")
    with monkeypatch.context() as patched:
        patched.setattr(client, "GRID", job.get("grid", client.GRID))
        match job["kind"]:
            case "law":
                return follow(lambda draw, _: client.randomize(recipe, value, draw), **job)
            case "report":
                return follow(lambda draw, _: client.rappor_report(recipe, value, draw), **job)
            case "coin":
                return follow(lambda draw, _: client._flip_exponential_coin(*value, draw), **job)
            case "symbolic":

                def run(draw: Callable[[int], int], coin: Callable[..., bool]) -> Any:
                    patched.setattr(client, "_flip_exponential_coin", coin)
                    return client.randomize(recipe, value, draw)

                return follow(run, **job)
            case "sweep":
                return sweep(lambda draw: client.randomize(recipe, value, draw), job["at"])
            case "words":
                return words(job["bound"])
            case "memory":
                return remember(folder / job["name"], job.get("most"), job.get("allowance"), job["told"])
            case "survey":
                return or_refused(
                    lambda: answer(job.get("questions", [job.get("question")]), job["given"], job["period"])
                )
            case "loss":
                return or_refused(lambda: client.privacy_loss(recipe))
            case "word":
                return client.normalize(value)
            case "encode":
                named = {"nan": float("nan"), "inf": float("inf")}.get(job.get("said", ""), value)
                return or_refused(lambda: client.encode(job["question"], named))
            case "pin":
                return client.pin(value.encode())
            case "tickets":
                memory, moduli = client.Memory(), [int(modulus, 16) for modulus in job["moduli"]]
                taken = [memory.ticket("x", modulus)[0].hex() for modulus in moduli]
                memory.forget_ticket("x", moduli[0])
                return [*taken, memory.ticket("x", moduli[0])[0].hex()]
            case "blind":
                ticket = bytes.fromhex(value), job["secret"], int(job["modulus"], 16), 65537
                return or_refused(lambda: f"{client.blind(*ticket):x}")
            case "serial":
                return f"{client.encode_serial(bytes.fromhex(value), job['bits']):x}"
            case "given":
                return or_refused(lambda: len(client.randomize(recipe, value)))
            case unknown:
                raise LookupError(unknown)


def perform_in_node(jobs: list[Job]) -> list[Any]:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node is not installed")
    command = [node, str(Path(__file__).with_name("courses.mjs")), str(CLIENT)]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=["python", "javascript"])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Ask one of the two client files."""
    if request.param == "javascript":
        return perform_in_node
    return lambda jobs: [perform(job, tmp_path, monkeypatch) for job in jobs]


def law_of(courses: Courses) -> Law:
    """Courses without symbols as probabilities."""
    return {
        response: sum((Fraction(count, int(chance)) for chance, count in counts.items()), Fraction(0))
        for response, counts in courses.items()
    }


def ratio_of(laws: list[Law]) -> Fraction:
    """The largest ratio of one response's probability under two answers."""
    responses = set().union(*laws)
    return max(max(law[r] for law in laws) / min(law[r] for law in laws) for r in responses)


# ---- randomizers that draw whole numbers only


ODDS = odds_below(1, grid=100)  # 271/100: within e, with few enough draws to follow
SCALE = Scale.between(0, 4)
WHOLE: dict[str, tuple[Any, Any]] = {
    "two coins": (two_coins(), range(2)),
    "three envelopes": (three_envelopes(), range(2)),
    "Warner's design": (warner(5, 3), range(2)),
    "k-ary": (Direct(5, ODDS), range(5)),
    "hadamard of one block": (Hadamard(3, 1, Fraction(5, 2)), range(3)),
    "hadamard of two blocks": (Hadamard(5, 2, Fraction(5, 2)), range(5)),
    "hadamard of four blocks": (Hadamard(4, 4, Fraction(2)), range(4)),
    "subset of one": (Subset(3, 1, Fraction(5, 2)), range(3)),
    "subset of two": (Subset(4, 2, Fraction(3, 2)), range(4)),
    "subset of all but one": (Subset(4, 3, Fraction(5, 2)), range(4)),
    "duchi": (Duchi(SCALE, ODDS), range(5)),
    "window": (Window(SCALE, 5, 2, Fraction(5, 2)), range(5)),
    "window wider than its places": (Window(SCALE, 3, 4, Fraction(5, 2)), range(5)),
    "hadamard sketch": (HadamardSketch(2, 4, Fraction(5, 2)), ("fig", "plum", "pear")),
}


def stated(protocol: Any, given: Any) -> Law:
    law: Law = {}
    for outcome, likelihood in protocol.likelihoods(given):
        response = compact([list(part) if isinstance(part, tuple) else part for part in outcome])
        law[response] = law.get(response, Fraction(0)) + likelihood
    return law


@pytest.mark.parametrize("name", WHOLE)
def test_every_draw_of_a_client_gives_the_stated_law_and_keeps_to_its_odds(name: str, run: Run) -> None:
    protocol, answers = WHOLE[name]
    recipe = serialization.recipe(protocol)
    laws = [law_of(each) for each in run([{"kind": "law", "recipe": recipe, "answer": a} for a in answers])]
    assert laws == [stated(protocol, a) for a in answers]
    assert all(sum(law.values()) == 1 for law in laws)
    assert ratio_of(laws) == protocol.odds
    assert is_within_epsilon(ratio_of(laws), "1.0987" if name == "two coins" else 1)  # two coins have ln 3 = 1.0986...


@pytest.mark.parametrize("seed", [0, 1, 77, 1 << 31, (1 << 32) - 1])
def test_local_hashing_is_k_ary_on_the_buckets_of_each_seed(seed: int, run: Run) -> None:
    protocol = LocalHashing(6, 3, ODDS)
    recipe, fixed = serialization.recipe(protocol), {str(1 << 32): seed}
    jobs = [{"kind": "law", "recipe": recipe, "answer": a, "fixed": fixed} for a in range(6)]
    laws = [law_of(each) for each in run(jobs)]
    seeds = range(seed, seed + 1)
    expected = [{compact([s, b]): p * 2**32 for (s, b), p in protocol.likelihoods(a, seeds)} for a in range(6)]
    assert laws == expected
    assert ratio_of(laws) in (1, ODDS)  # a seed that hashes all answers alike tells nothing


# ---- randomizers that draw one bit at a time, first on a grid of four, then on their own


def string_of(bits: tuple[int, ...]) -> str:
    packed = bytearray(-(-len(bits) // 8))
    for place, bit in enumerate(bits):
        packed[place // 8] |= bit << place % 8
    return packed.hex()


def bit_law(head: list[Any], ones: list[Fraction]) -> Law:
    """Independent bits, each 1 with its own probability, after some fixed fields."""
    law: Law = {}
    for bits in product((0, 1), repeat=len(ones)):
        chance = Fraction(1)
        for bit, one in zip(bits, ones, strict=True):
            chance *= one if bit else 1 - one
        law[compact([*head, string_of(bits)])] = chance
    return {response: chance for response, chance in law.items() if chance}


@pytest.mark.parametrize(("keep", "flip"), [(2, 1), (3, 1), (3, 2)])
def test_every_draw_of_unary_bits(keep: int, flip: int, run: Run) -> None:
    recipe = {"protocol": "unary", "domain": 3, "keep": keep, "flip": flip}
    laws = [law_of(each) for each in run([{"kind": "law", "grid": 4, "recipe": recipe, "answer": a} for a in range(3)])]
    p, q = Fraction(keep, 4), Fraction(flip, 4)
    assert laws == [bit_law([], [p if place == a else q for place in range(3)]) for a in range(3)]
    assert ratio_of(laws) == p * (1 - q) / (q * (1 - p))


WORDS = ("fig", "plum", "quince")


def test_every_draw_of_a_permanent_rappor_response_and_of_its_reports(run: Run) -> None:
    recipe = {"protocol": "rappor", "width": 4, "hashes": 2, "cohorts": 2, "flip": 1, "one": 3, "zero": 1}
    jobs: list[Job] = [{"kind": "law", "grid": 4, "recipe": recipe, "answer": word} for word in WORDS]
    *laws, report = (law_of(each) for each in run([*jobs, report_job(recipe)]))
    expected = []
    for word in WORDS:
        places = hash_strings([word], 4, 4)[0].tolist()
        whole: Law = {}
        for cohort in range(2):
            true = set(places[2 * cohort : 2 * cohort + 2])
            part = bit_law([cohort], [Fraction(3 if place in true else 1, 4) for place in range(4)])
            whole |= {response: chance / 2 for response, chance in part.items()}
        expected.append(whole)
    assert laws == expected
    assert ratio_of(laws) <= Fraction(3) ** 4
    assert report == bit_law([1], [Fraction(3, 4), Fraction(1, 4), Fraction(3, 4), Fraction(1, 4)])


def report_job(recipe: dict[str, Any]) -> Job:
    return {"kind": "report", "grid": 4, "recipe": recipe, "answer": [1, string_of((1, 0, 1, 0))]}


def test_every_draw_of_the_count_mean_sketch(run: Run) -> None:
    recipe = {"protocol": "count-mean-sketch", "hashes": 2, "width": 4, "flip": 1}
    laws = [
        law_of(each) for each in run([{"kind": "law", "grid": 4, "recipe": recipe, "answer": word} for word in WORDS])
    ]
    for word, law in zip(WORDS, laws, strict=True):
        expected: Law = {}
        for function, true in enumerate(hash_strings([word], 2, 4)[0].tolist()):
            row = bit_law([function], [Fraction(3 if place == true else 1, 4) for place in range(4)])
            expected |= {response: chance / 2 for response, chance in row.items()}
        assert law == expected
    assert ratio_of(laws) <= Fraction(9)


def test_every_draw_of_the_prefix_tree(run: Run) -> None:
    """Its oracle writes the prefixes down by hand: two letters a level, then twice the whole word."""
    sketch = HadamardSketch(2, 4, Fraction(3, 2))
    recipe = serialization.recipe(PrefixTree("figé", 4, 2, 2, sketch))
    told = {"fig": ("fi", "fig\0"), "figures": ("fi", "fig\ufffd"), "": ("\0\0", "\0\0\0\0"),
            "\u00e9x\U0001d11ei": ("\u00e9\ufffd", "\u00e9\ufffd\ufffdi")}  # fmt: skip
    laws = [law_of(each) for each in run([{"kind": "law", "recipe": recipe, "answer": word} for word in told])]
    for (prefix, whole), law in zip(told.values(), laws, strict=True):
        expected: Law = {}
        for turn, text in enumerate((prefix, whole, whole, whole)):
            for outcome, chance in sketch.likelihoods(text):
                expected[compact([turn, *outcome])] = chance / 4
        assert law == expected
    assert ratio_of(laws) == Fraction(3, 2)


def test_every_draw_of_the_hybrid(run: Run) -> None:
    bit, window = Duchi(SCALE, Fraction(5, 2)), Window(SCALE, 3, 2, Fraction(5, 2))
    arms = {"bit": serialization.recipe(bit), "window": serialization.recipe(window)}
    recipe = {"protocol": "hybrid", "window_turns": 1, **arms}
    jobs = [{"kind": "law", "grid": 4, "recipe": recipe, "answer": a} for a in range(5)]
    laws = [law_of(each) for each in run(jobs)]
    for position, law in enumerate(laws):
        expected = {compact([0, value]): p * Fraction(3, 4) for (value,), p in bit.likelihoods(position)}
        expected |= {compact([1, cell]): p / 4 for (cell,), p in window.likelihoods(position)}
        assert law == expected
    assert ratio_of(laws) == Fraction(5, 2)


BITS: dict[str, tuple[dict[str, Any], Any, int, dict[str, int]]] = {
    "the answer's bit": (
        {"protocol": "unary", "domain": 2, "keep": 40000, "flip": 17000}, 0, 0, {'["03"]': 40000, '["02"]': 25536},
    ),
    "another bit": (
        {"protocol": "unary", "domain": 2, "keep": 40000, "flip": 17000}, 0, 1, {'["03"]': 17000, '["01"]': 48536},
    ),
    "the hybrid's arm": (
        {
            "protocol": "hybrid", "window_turns": 20000,
            "bit": serialization.recipe(Duchi(SCALE, Fraction(2))),
            "window": serialization.recipe(Window(SCALE, 3, 2, Fraction(2))),
        },
        0, 0, {"[1,0]": 20000, "[0,0]": 45536},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BITS)
def test_one_draw_on_the_real_grid_takes_all_of_its_values_in_the_stated_shares(name: str, run: Run) -> None:
    recipe, given, at, expected = BITS[name]
    assert run([{"kind": "sweep", "recipe": recipe, "answer": given, "at": at}]) == [expected]


# ---- uniform numbers from bytes


def test_every_word_once_gives_every_number_below_a_bound_equally_often(run: Run) -> None:
    bounds = [*range(1, 261), 300, 512, 40_000, 65_535, 65_536]
    for bound, found in zip(bounds, run([{"kind": "words", "bound": bound} for bound in bounds]), strict=True):
        size = 1 if bound == 1 else 256 if bound <= 256 else 65_536
        assert found == {"least": size // bound, "most": size // bound, "again": size % bound}, bound


# ---- Laplace noise


@pytest.mark.parametrize("gamma", [Fraction(0), Fraction(1, 3), Fraction(2, 3), Fraction(3, 4), Fraction(1)])
def test_the_exponential_coin_has_its_series_term_by_term(gamma: Fraction, run: Run) -> None:
    """It ends at turn k with probability g^(k-1)/(k-1)! - g^k/k!, heads where k is odd: together exp(-g)."""
    turns = 7
    job = {"kind": "coin", "answer": [gamma.numerator, gamma.denominator], "most": turns}
    law = law_of(run([job])[0])
    ends = [gamma ** (k - 1) / factorial(k - 1) - gamma**k / factorial(k) for k in range(1, turns + 1)]
    expected = {"true": sum(ends[::2]), "false": sum(ends[1::2]), "open": gamma**turns / factorial(turns)}
    assert law == {response: chance for response, chance in expected.items() if chance}


def times(one: Polynomial, other: Polynomial) -> Polynomial:
    product_: Polynomial = {}
    for (i, a), (j, b) in product(one.items(), other.items()):
        product_[i + j] = product_.get(i + j, Fraction(0)) + a * b
    return product_


def plus(*added: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for polynomial in added:
        for power, factor in polynomial.items():
            total[power] = total.get(power, Fraction(0)) + factor
    return {power: factor for power, factor in total.items() if factor}


def polynomial_of(counts: dict[str, int], n: int) -> Polynomial:
    """Courses as a polynomial in t = exp(-1/n)."""
    terms = []
    for chance, count in counts.items():
        divisor, *factors = chance.split()
        term: Polynomial = {0: Fraction(count, int(divisor))}
        for factor in factors:
            power = int(Fraction(factor[1:]) * n)
            term = times(term, {power: Fraction(1)} if factor[0] == "+" else {0: Fraction(1), power: Fraction(-1)})
        terms.append(term)
    return plus(*terms)


PERIODS = 5
LAPLACE = [(1, "1"), (3, "1"), (3, "2"), (1, "3"), (5, "1/2"), (4, "3/2"), (12, "4"), (5, "5")]


def noise_of(run: Run, steps: int, claimed: Fraction, given: int, clamped: bool = False) -> tuple[Courses, int, int]:
    """One attempt at a Laplace response, up to PERIODS whole periods; and its scale as the fraction n / d."""
    common = gcd(steps * claimed.denominator, claimed.numerator)
    n, d = steps * claimed.denominator // common, claimed.numerator // common
    recipe = serialization.recipe(BoundedLaplace(Scale.between(0, steps), claimed, clamped))
    # Of an attempt's decisions one draws below n, two are coins, one is the sign, and each period is a coin.
    job = {"kind": "symbolic", "recipe": recipe, "answer": given, "restart": n, "most": 4 + PERIODS}
    return run([job])[0], n, d


@pytest.mark.parametrize(("steps", "epsilon"), LAPLACE)
def test_laplace_responses_fall_by_exactly_one_power_for_each_step_from_the_answer(
    steps: int, epsilon: str, run: Run
) -> None:
    """P(answer + x) = c t^(d |x|) with one c for all x, zero among them: the law of scale n/d, and no other.

    Two answers are at most `steps` apart, and t^(-d steps) = exp(d steps / n) is e^epsilon.
    """
    claimed = Fraction(epsilon)
    given = steps // 2
    courses, n, d = noise_of(run, steps, claimed, given)
    assert n != 2, "the sign's bound could not be told from a new attempt's"
    assert Fraction(d * steps, n) == claimed
    weights = {response: polynomial_of(counts, n) for response, counts in courses.items()}
    assert plus(*weights.values()) == {0: Fraction(1)}
    center = given + BoundedLaplace(Scale.between(0, steps), claimed).reach
    half = times({0: Fraction(1, 2 * n)}, {0: Fraction(1), n: Fraction(-1)})
    zero = plus(times(half, {j: Fraction(1) for j in range(d)}))
    reached = (n * (PERIODS + 1)) // d  # sizes below this are reached in full
    assert reached >= 2
    for x in range(-reached + 1, reached):
        assert weights[compact([center + x])] == times(zero, {d * abs(x): Fraction(1)}), x


@pytest.mark.parametrize("given", [0, 1, 3])
def test_clamped_laplace_responses_are_the_others_held_at_the_ends(given: int, run: Run) -> None:
    claimed, steps = Fraction(2), 3
    free, n, _ = noise_of(run, steps, claimed, given)
    clamped, _, _ = noise_of(run, steps, claimed, given, clamped=True)
    reach = BoundedLaplace(Scale.between(0, steps), claimed).reach
    held: dict[str, list[Polynomial]] = {}
    for response, counts in free.items():
        ended = response in ("again", "open")
        at = response if ended else compact([min(max(json.loads(response)[0] - reach, 0), steps)])
        held.setdefault(at, []).append(polynomial_of(counts, n))
    assert {at: polynomial_of(counts, n) for at, counts in clamped.items()} == {
        at: plus(*parts) for at, parts in held.items()
    }


# ---- what a device remembers and counts


def costing(epsilon: Fraction | str | int, steps: int = 99) -> dict[str, Any]:
    """A recipe over steps + 1 answers whose epsilon is exactly this."""
    exact = Fraction(epsilon)
    scale = {"lower": [0, 1], "upper": [steps, 1], "steps": steps}
    return {"protocol": "laplace", "scale": scale, "claimed": [exact.numerator, exact.denominator], "clamped": False}


COINS = {"protocol": "coins", "instructions": ["truth", "truth", "yes", "no"]}


def test_a_question_is_answered_as_often_as_allowed_and_no_more(run: Run) -> None:
    ways = [0, 1, 0, 2, 3, 4, 1]
    told = [["q", way, costing(1), "may"] for way in ways]
    jobs = [{"kind": "memory", "name": f"{most}.json", "most": most, "told": told} for most in (1, 2, 3, None)]
    everything = run(jobs)
    for most, found in zip((1, 2, 3, 7), everything, strict=True):
        assert [each != "refused" for each in found["heard"]] == [turn < most for turn in range(7)], most
        assert found["spent"] == {"may": float(most)}
    assert everything[2]["heard"][0] == everything[2]["heard"][2]  # the same answer has the same response


def test_another_question_is_counted_by_itself(run: Run) -> None:
    told = [["a", 0, costing(1), ""], ["b", 1, costing(1), ""], ["a", 1, costing(1), ""]]
    (found,) = run([{"kind": "memory", "name": "two.json", "most": 1, "told": told}])
    assert [each == "refused" for each in found["heard"]] == [False, False, True]


def test_once_every_response_was_told_a_question_costs_nothing_more(run: Run) -> None:
    answers = [0, 0, 1, 0, 1, 1, 0]
    told = [["q", each, COINS, "may"] for each in answers]
    (found,) = run([{"kind": "memory", "name": "coins.json", "most": 2, "told": told}])
    assert "refused" not in found["heard"]
    assert found["spent"]["may"] == pytest.approx(2 * log(3))
    assert len({(given, json.dumps(heard)) for given, heard in zip(answers, found["heard"], strict=True)}) == 2


def test_what_is_told_is_counted_to_the_last_of_the_allowance_and_by_the_device_s_own_period(run: Run) -> None:
    told = [
        ["a", 0, costing("3/4"), "may"], ["b", 0, costing("3/4"), "may"], ["c", 0, costing("1/2"), "may"],
        ["d", 0, costing("1/4"), "may"], ["e", 0, costing("1/4"), "june"], ["f", 0, costing(2), "june"],
        ["f", 0, costing("7/4"), "june"],
    ]  # fmt: skip
    (found,) = run([{"kind": "memory", "name": "three.json", "allowance": 2.0, "told": told}])
    # may: 0.75, 1.5, 2.0 which is all, and nothing more; june: 0.25, too much, the rest.
    assert [each == "refused" for each in found["heard"]] == [False, False, False, True, False, True, False]
    assert found["spent"] == {"may": 2.0, "june": 2.0}


def test_what_a_device_stores_is_the_same_whichever_answer_was_given(run: Run) -> None:
    """The responses to all answers are drawn in one order, so that only chance differs; no answer is marked."""
    for recipe, given in ((COINS, (0, 1)), (costing(1, 12), (0, 7, 12))):
        jobs = [
            {"kind": "memory", "name": f"{recipe['protocol']}{each}.json", "told": [["q", each, recipe, "may"]]}
            for each in given
        ]
        stored = [found["stored"]["questions"]["q"] for found in run(jobs)]
        for one in stored:
            (drawn,) = one["drawn"].values()
            assert (one["times"], drawn["told"], len(drawn["responses"])) == (1, 1, max(given) + 1)


def test_a_question_of_several_parts_costs_what_its_recipes_tell(run: Run) -> None:
    part = {"protocol": "k-ary", "domain": 2, "odds": [3, 1]}
    several = {"name": "q", "type": "several", "epsilon": 4.4, "options": ["x", "y", "z", "w"], "parts": [part] * 4}
    one = {"name": "q", "type": "choice", "epsilon": 2.0, "options": ["x", "y"], "parts": [part]}
    jobs = [
        {"kind": "survey", "question": several, "given": ["x", "w"], "period": "may"},
        {"kind": "survey", "question": one, "given": "y", "period": "june"},
    ]
    found = run(jobs)
    assert [each["responses"] for each in found] == [4, 1]
    assert found[0]["spent"] == {"may": pytest.approx(4 * log(3))}
    assert found[1]["spent"] == {"june": pytest.approx(log(3))}


@pytest.mark.parametrize(
    "change", [{"ask": "Another?"}, {"options": ["u", "v"]}, {"options": ["y", "x"]}, {"epsilon": 3}]
)
def test_what_was_drawn_for_one_question_is_no_answer_to_another_of_its_name(run: Run, change: dict[str, Any]) -> None:
    """A server that words a question anew under one name would else learn the table of responses, then every answer."""
    part = {"protocol": "k-ary", "domain": 2, "odds": [3, 1]}
    first = {"name": "q", "ask": "Smoker?", "type": "choice", "epsilon": 2.0, "options": ["x", "y"], "parts": [part]}
    other = first | change
    given = "x" if "x" in other["options"] else "u"
    asked = [first | {"ask": f"Number {i}?", "options": other["options"]} for i in range(5)] + [other] * 5
    job = {"kind": "survey", "questions": asked, "given": given, "period": "may"}
    (found,) = run([job])
    # Five others are told once each; the last, which has two responses, no more than twice.
    assert found["spent"] == {"may": pytest.approx(7 * log(3))}


# ---- a client believes nobody


SCALE_OF_FIVE = Scale.between(0, 5)
PROTOCOLS: dict[str, Any] = {
    "coins": two_coins(),
    "k-ary": Direct.calibrate(5, 1),
    "unary": Unary.calibrate(4, 1),
    "symmetric unary": Unary.symmetric(4, 2),
    "hashing": LocalHashing.calibrate(6, 1),
    "hadamard": Hadamard.calibrate(6, 1),
    "subset": Subset.calibrate(6, 1),
    "rappor": Rappor.calibrate(2, width=8, hashes=2, cohorts=2),
    "count mean sketch": CountMeanSketch.calibrate(1, hashes=3, width=4),
    "hadamard sketch": HadamardSketch.calibrate(1, hashes=5, width=8),
    "prefix tree": PrefixTree("figplum", 6, 3, 2, HadamardSketch.calibrate(1, hashes=5, width=8)),
    "duchi": Duchi.calibrate(SCALE_OF_FIVE, 1),
    "window": Window.piecewise(SCALE_OF_FIVE, 1, places=12),
    "hybrid": Hybrid(Duchi.calibrate(SCALE_OF_FIVE, 1), Window.piecewise(SCALE_OF_FIVE, 2, places=9), 26000),
    "hybrid without windows": Hybrid(Duchi.calibrate(SCALE_OF_FIVE, 1), Window.piecewise(SCALE_OF_FIVE, 2), 0),
}


def test_both_clients_compute_the_epsilon_that_enumeration_counts(run: Run) -> None:
    """The oracle is the largest ratio of likelihoods, which tests elsewhere find by walking through every response."""
    jobs = [{"kind": "loss", "recipe": serialization.recipe(protocol)} for protocol in PROTOCOLS.values()]
    jobs.append({"kind": "loss", "recipe": costing("3/4")})
    without_windows = epsilon_of(PROTOCOLS["hybrid without windows"].bit.odds)
    stated = [epsilon_of(protocol.odds) for protocol in PROTOCOLS.values()]
    assert run(jobs) == pytest.approx([*stated[:-1], without_windows, 0.75])


LIES: dict[str, dict[str, Any]] = {
    "odds without noise": {"protocol": "k-ary", "domain": 4, "odds": [10**9, 1]},
    "odds that favor lies": {"protocol": "k-ary", "domain": 4, "odds": [1, 10**9]},
    "bits that are kept": {"protocol": "unary", "domain": 4, "keep": 65535, "flip": 1},
    "a hybrid whose window is open": {
        **serialization.recipe(Hybrid.calibrate(SCALE_OF_FIVE, 1)),
        "window": {**serialization.recipe(Window.piecewise(SCALE_OF_FIVE, 1)), "odds": [10**9, 1]},
    },
    "noise of no size": costing(1000),
}
BROKEN: dict[str, dict[str, Any]] = {
    "unknown": {"protocol": "clear"},
    "a method of every object": {"protocol": "constructor"},
    "no odds": {"protocol": "k-ary", "domain": 4},
    "odds of nothing": {"protocol": "k-ary", "domain": 4, "odds": [3, 0]},
    "negative odds": {"protocol": "k-ary", "domain": 4, "odds": [-3, -1]},
    "a fraction for odds": {"protocol": "k-ary", "domain": 4, "odds": [2.5, 1]},
    "coins that prove": {"protocol": "coins", "instructions": ["truth", "yes"]},
    "coins of truth": {"protocol": "coins", "instructions": ["truth"]},
    "bits without noise": {"protocol": "unary", "domain": 4, "keep": 65536, "flip": 0},
    "a sketch without noise": {"protocol": "count-mean-sketch", "hashes": 3, "width": 8, "flip": 0},
    "a tree of another sketch": {
        **serialization.recipe(PrefixTree.calibrate(1)),
        "sketch": serialization.recipe(CountMeanSketch.calibrate(1)),
    },
    "a tree in a tree": {
        **serialization.recipe(PrefixTree.calibrate(1)),
        "sketch": serialization.recipe(PrefixTree.calibrate(1)),
    },
    "a tree of uneven steps": {**serialization.recipe(PrefixTree.calibrate(1)), "longest": 11},
    "scales that differ": {
        **serialization.recipe(Hybrid.calibrate(SCALE_OF_FIVE, 1)),
        "window": serialization.recipe(Window.piecewise(Scale.between(0, 9), 1)),
    },
}


def test_a_recipe_that_tells_more_than_the_survey_says_is_refused_by_both_clients(run: Run) -> None:
    jobs = []
    for recipe in LIES.values():
        question = {"name": "q", "type": "choice", "epsilon": 0.01, "options": ["a", "b"], "parts": [recipe]}
        jobs.append({"kind": "survey", "question": question, "given": "a", "period": "may"})
    assert run(jobs) == ["refused"] * len(LIES)
    assert all(loss > 5 for loss in run([{"kind": "loss", "recipe": recipe} for recipe in LIES.values()]))


def test_a_recipe_that_says_its_epsilon_truly_is_refused_where_the_device_s_own_allowance_ends(run: Run) -> None:
    question = {
        "name": "q",
        "type": "choice",
        "epsilon": 30,
        "options": ["a", "b"],
        "parts": [LIES["odds without noise"]],
    }
    assert run([{"kind": "survey", "question": question, "given": "a", "period": "may"}]) == ["refused"]


def test_a_recipe_that_is_broken_or_would_prove_the_answer_is_refused_by_both_clients(run: Run) -> None:
    jobs = [{"kind": "loss", "recipe": recipe} for recipe in BROKEN.values()]
    assert run(jobs) == ["refused"] * len(BROKEN)


def test_an_answer_that_the_noise_would_not_cover_is_refused_by_both_clients(run: Run) -> None:
    """A question that has more options, or more steps, than its recipe would send the truth."""
    recipes = [PROTOCOLS[name] for name in ("k-ary", "coins", "duchi", "window", "hybrid")]
    outside = [(serialization.recipe(each), getattr(each, "domain", 6)) for each in recipes]
    given = [*outside, (costing(1), 100), (costing(1), -1), (serialization.recipe(PROTOCOLS["hadamard sketch"]), 3)]
    assert run([{"kind": "given", "recipe": recipe, "answer": each} for recipe, each in given]) == ["refused"] * len(
        given
    )


TYPED = [
    "Aspirin", "  aspirin\t", "\uff21\uff53\uff50irin", "ASPIRIN\u3000forte", "\ufb01g", "STRASSE", "Straße",
    "Ολυμπος", "ΟΔΟΣ", "İstanbul", "e\u0301te\u0301", "a\x85b", "\ufeffx", "", "a\u2028b", "half\ud800", "💊 Pill",
]  # fmt: skip


def test_words_are_normalized_alike_by_both_clients(run: Run) -> None:
    found = run([{"kind": "word", "answer": word} for word in TYPED])
    assert found == [client.normalize(word) for word in TYPED]
    assert found[:4] == ["aspirin", "aspirin", "aspirin", "aspirin forte"]
    assert all(client.normalize(word) == word for word in found)


HOURS = {"name": "hours", "type": "number", "lower": 0, "upper": 80, "steps": 80}
NUMBERS: dict[str, Any] = {"38": [38], " 7.5 ": [8], "+1e1": [10], "-3": [0], ".5": [1], "1e999": [80], "0012": [12]}
NO_NUMBERS = [
    "many",
    "",
    " ",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "1,5",
    "--1",
    "38 hours",
    None,
    True,
    [],
    [5],
    {},
    "\u0663",
]


def test_both_clients_read_the_same_numbers_and_refuse_the_same_answers(run: Run) -> None:
    """A raw error of the language would be neither an answer nor a refusal, and would differ between the two."""
    asked = [*NUMBERS, 38, 7.5, 1e308, -2, *NO_NUMBERS]
    jobs: list[Job] = [{"kind": "encode", "question": HOURS, "answer": answer} for answer in asked]
    jobs += [{"kind": "encode", "question": HOURS, "said": said} for said in ("nan", "inf")]
    word = {"name": "word", "type": "word"}
    jobs += [{"kind": "encode", "question": word, "answer": answer} for answer in (" Fig", 5, None, ["fig"], True)]
    expected = [*NUMBERS.values(), [38], [8], [80], [0], *["refused"] * len(NO_NUMBERS), "refused", [80]]
    assert run(jobs) == [*expected, ["fig"], *["refused"] * 4]


def hiding(kind: str, **rest: Any) -> dict[str, Any]:
    return {"name": "q", "type": kind, "unanswered": "randomized", **rest}


def test_both_clients_encode_a_question_left_out_as_an_answer_of_its_own(run: Run) -> None:
    options = ["a", "b", "no answer"]
    questions = [hiding("choice", options=options), hiding("several", options=options), hiding("word"),
                 {**HOURS, "unanswered": "randomized"}]  # fmt: skip
    jobs: list[Job] = [{"kind": "encode", "question": question, "answer": None} for question in questions]
    jobs += [{"kind": "encode", "question": questions[3], "answer": 38}]
    jobs += [{"kind": "encode", "question": hiding("choice", options=["a", "b"]), "answer": None}]
    assert run(jobs) == [[2], [0, 0, 1], [""], [40, 0], [38, 1], "refused"]


def test_both_clients_refuse_a_survey_that_cannot_hide_what_it_says_it_hides(run: Run) -> None:
    coin, three = ({"protocol": "k-ary", "domain": size, "odds": [2, 1]} for size in (2, 3))
    place = serialization.recipe(Duchi(Scale.between(0, 80), Fraction(2)))
    number = {**HOURS, "unanswered": "randomized", "epsilon": 2.0}
    asked = [
        hiding("choice", options=["a", "b", "no answer"], parts=[three], epsilon=1.0),
        hiding("choice", options=["a", "b", "c"], parts=[three], epsilon=1.0),
        hiding("several", options=["a", "b"], parts=[coin, coin], epsilon=2.0),
        number | {"parts": [place, coin]},
        number | {"parts": [place]},
        number | {"parts": [place, three]},
    ]
    given = ["a", "a", ["a"], 3, 3, 3]
    jobs = [{"kind": "survey", "question": q, "given": g, "period": "may"} for q, g in zip(asked, given, strict=True)]
    assert [each if each == "refused" else each["responses"] for each in run(jobs)] == [
        1, "refused", "refused", 2, "refused", "refused"
    ]  # fmt: skip


def test_both_clients_pin_a_survey_and_encode_a_serial_alike(run: Run) -> None:
    texts = ["", "{}", '{"title":"Größe"}']
    serials = [bytes(32).hex(), bytes(range(32)).hex()]
    assert run([{"kind": "pin", "answer": text} for text in texts]) == [client.pin(text.encode()) for text in texts]
    jobs = [
        {"kind": "serial", "answer": serial, "bits": bits} for serial in serials for bits in (2048, 2049, 3071, 4096)
    ]
    expected = [f"{client.encode_serial(bytes.fromhex(job['answer']), job['bits']):x}" for job in jobs]
    assert run(jobs) == expected


def test_tickets_are_the_blind_signatures_of_the_standard(run: Run) -> None:
    """The published numbers of RFC 9474: what is signed in either client, each step of the Python one, the server."""
    vector = json.loads(Path(__file__).with_name("rfc9474.json").read_text(encoding="utf-8"))
    p, q, inverse, blinded, blind, signature = (
        int(vector[name], 16) for name in ("p", "q", "inv", "blinded_msg", "blind_sig", "sig")
    )
    modulus, serial = p * q, bytes.fromhex(vector["msg"])
    encoded = pow(signature, 65537, modulus)
    assert run([{"kind": "serial", "answer": vector["msg"], "bits": modulus.bit_length()}]) == [f"{encoded:x}"]
    secret = pow(inverse, -1, modulus)
    assert client.blind(serial, secret, modulus, 65537) == blinded
    assert client.unblind(serial, secret, blind, modulus, 65537) == signature
    assert TicketSigner(p, q).sign(blinded) == blind


def test_a_key_whose_factors_would_mark_a_ticket_is_refused(run: Run) -> None:
    """A factor that a serial shares with the key stays in its blinded ticket, whatever the secret: it joins them."""
    small = 3 * 5 * 7 * 11 * 13
    modulus = small * ((1 << 2047) // small | 1)
    serials = [bytes([number]) * 32 for number in range(30)]
    jobs = [{"kind": "blind", "answer": each.hex(), "secret": 17, "modulus": f"{modulus:x}"} for each in serials]
    common = [gcd(client.encode_serial(each, modulus.bit_length()), modulus) for each in serials]
    assert [said == "refused" for said in run(jobs)] == [factor > 1 for factor in common]
    assert 1 < sum(factor > 1 for factor in common) < 30


def test_an_invitation_has_another_serial_under_another_key(run: Run) -> None:
    """One serial behind one secret under two keys: whoever holds both keys computes whose invitation it was."""
    (first, other, again, after) = run([{"kind": "tickets", "moduli": ["a" * 512, "b" * 512, "a" * 512]}])[0]
    assert first == again, "a response that was not received is sent again with its ticket"
    assert len({first, other, after}) == 3
