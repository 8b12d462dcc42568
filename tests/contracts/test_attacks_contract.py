"""Every attack passes three self-tests: a raw copy is found, random data are not, a DP release stays under its bound.

For an epsilon-DP release no attack succeeds on somebody more than e^epsilon times as often as it would have, had that
person stayed away; the control (or the baseline) measures the latter.
"""

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from counting_service import answer_exactly, draw_groups
from deniable.attacks.aggregates.differencing import attack_by_differencing
from deniable.attacks.aggregates.reconstruction import reconstruct
from deniable.attacks.class_disclosure import guess_from_class
from deniable.attacks.composition import cross_releases, join_releases, prepare_releases
from deniable.attacks.inference import infer_secret, link_halves
from deniable.attacks.linkage import Field, Like, link_register, link_with_errors
from deniable.attacks.membership import claim_membership, score_closeness
from deniable.attacks.minimality import read_interval_ends
from deniable.attacks.networks import attack_graph
from deniable.attacks.outcome import Outcome, Rate
from deniable.attacks.ratings import Facts, Knowledge, Records, draw_facts, score_records
from deniable.attacks.singling_out import single_out_people
from deniable.attacks.tokens import invert_hashes, match_tokens
from deniable.attacks.uniqueness import measure_uniqueness
from deniable.dp.samplers import bernoulli, discrete_laplace
from seeded import SeededEntropy

EPSILON = 1
SIZE, AGES, TOWNS, SECRETS = 500, 80, 25, 6


def people(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "age": rng.integers(0, AGES, SIZE),
            "town": rng.integers(0, TOWNS, SIZE),
            "job": [f"job {j}" for j in rng.integers(0, 30, SIZE)],
            "pay": rng.normal(50_000, 9_000, SIZE),
            "secret": [f"s{s}" for s in rng.integers(0, SECRETS, SIZE)],
        }
    )


IN, OUT = people(1), people(2)
KNOWS = ["age", "town", "job"]


def noisy_synthesis(seed: int) -> pa.Table:
    """Rows drawn from an epsilon-DP histogram of age by secret, everything else at random."""
    ages, secrets = IN["age"].to_numpy(), np.array([int(s[1:]) for s in IN["secret"].to_pylist()])
    counts = np.bincount(ages * SECRETS + secrets, minlength=AGES * SECRETS)
    noisy = counts + discrete_laplace(Fraction(1, EPSILON), AGES * SECRETS, entropy=SeededEntropy(seed))
    weights = np.maximum(noisy, 0) / np.maximum(noisy, 0).sum()
    rng = np.random.default_rng(seed)
    cells = rng.choice(AGES * SECRETS, SIZE, p=weights)
    rows = people(seed + 100)
    rows = rows.set_column(0, "age", pa.array(cells // SECRETS))
    return rows.set_column(4, "secret", pa.array([f"s{cell % SECRETS}" for cell in cells]))


RELEASES = {"raw": IN, "random": people(3), "dp": noisy_synthesis(4)}


def by_ratings(kind: str) -> Outcome:
    rng = np.random.default_rng(1)
    person = np.repeat(np.arange(200), 15)
    film = np.concatenate([rng.choice(400, 15, replace=False) for _ in range(200)])
    stars, day = rng.integers(1, 6, len(film)).astype(float), rng.integers(0, 900, len(film))
    facts = draw_facts(Records.of(person, film, stars, day), Knowledge(6, 1, 14), 150)
    if kind == "random":
        stars, day, film = rng.permutation(stars), rng.permutation(day), rng.permutation(film)
    if kind == "dp":  # everybody's films are replaced unless a coin with odds e^epsilon : 1 for all 15 of them falls so
        keep = bernoulli(Fraction(1, 400), len(film), entropy=SeededEntropy(1))
        film = np.where(keep, film, rng.integers(0, 400, len(film)))
    board = score_records(
        Records.of(person, film, stars, day), Facts(facts.target, facts.item, facts.rating, facts.day), needed=5
    )
    right = (board.best == facts.target) & (board.lead >= 1.5)
    absent = Rate(int((board.absent_lead >= 1.5).sum()), len(right))
    return Outcome("ratings", "s", Rate(int(right.sum()), len(right)), 1 / 200, absent)


def by_reconstruction(kind: str) -> Outcome:
    secret = np.random.default_rng(5).random(50) < 0.5
    groups = draw_groups(400, 50, 6)
    answers = {
        "raw": lambda: answer_exactly(secret)(groups),
        "random": lambda: answer_exactly(np.random.default_rng(8).random(50) < 0.5)(groups),
        "dp": lambda: (
            answer_exactly(secret)(groups) + discrete_laplace(Fraction(400, EPSILON), 400, entropy=SeededEntropy(6))
        ),
    }[kind]()
    return reconstruct(groups, answers, secret)


def by_differencing(kind: str) -> Outcome:
    secret = np.random.default_rng(5).integers(0, 50, 40).astype(float)
    groups = draw_groups(60, 40, 6)
    answers = {
        "raw": lambda: groups @ secret,
        "random": lambda: groups @ np.random.default_rng(9).integers(0, 50, 40).astype(float),
        "dp": lambda: groups @ secret + discrete_laplace(Fraction(60 * 50), 60, entropy=SeededEntropy(7)),
    }[kind]()
    return attack_by_differencing(groups, answers, secret=secret)


def by_tokens(kind: str) -> Outcome:
    rng = np.random.default_rng(2)
    share = np.arange(15, 0, -1) ** 2 / (np.arange(15, 0, -1) ** 2).sum()
    secret, known = rng.choice(15, 4000, p=share), rng.choice(15, 4000, p=share)
    tokens = {"raw": secret + 100, "random": rng.permutation(4000), "dp": rng.integers(0, 15, 4000)}[kind]
    return match_tokens(*(pa.chunked_array([part]) for part in (tokens, known, secret)))


def by_dictionary(kind: str) -> Outcome:
    import hashlib

    names = [f"name {n}" for n in range(300)]
    salt = {"raw": b"", "random": b"x", "dp": b"y"}[kind]
    return invert_hashes([hashlib.sha256(salt + name.encode()).hexdigest() for name in names[:100]], names)


def by_classes(kind: str) -> Outcome:
    """Raw: every class has one value. Random and DP: large classes, with values of no or little bearing."""
    rng = np.random.default_rng(4)
    classes = np.arange(600) // (6 if kind == "raw" else 200)
    of_class, blind = rng.integers(0, 5, 100)[classes], rng.integers(0, 5, 600)
    kept = bernoulli(Fraction(1, 5), 600, entropy=SeededEntropy(3))
    values = {"raw": of_class, "random": blind, "dp": np.where(kept, of_class, blind)}[kind]
    return guess_from_class(pa.table({"class": classes, "ill": values}), ["class"], "ill")


def by_crossing(kind: str) -> Outcome:
    rng = np.random.default_rng(4)
    secret = rng.integers(0, 300, 600)
    one, two = (
        (np.arange(600) // 6, np.arange(600) % 100) if kind == "raw" else (np.zeros(600, int), np.arange(600) % 2)
    )
    secret = secret if kind != "dp" else rng.integers(0, 4, 600)
    people = pa.table({"zone": one, "shift": two, "secret": secret})
    releases = [people.select(["zone", "secret"]), people.select(["shift", "secret"])]
    return cross_releases(prepare_releases(releases, ["zone", "shift"]), people, "secret")[0]


def by_joining(kind: str) -> Outcome:
    return join_releases(RELEASES[kind], IN, KNOWS, truth=np.arange(SIZE))


ATTACKS: dict[str, Callable[[str], Outcome]] = {
    "linkage": lambda kind: link_register(RELEASES[kind], IN, KNOWS, truth=np.arange(SIZE)),
    "fuzzy linkage": lambda kind: link_with_errors(
        RELEASES[kind], IN, [Field("age", Like.AGE), Field("town"), Field("job", Like.NAME)], truth=np.arange(SIZE)
    ),
    "singling out": lambda kind: single_out_people(IN, RELEASES[kind], control=OUT, attacks=200),
    "linkability": lambda kind: link_halves(
        IN, RELEASES[kind], (["age", "town", "job"], ["pay", "secret"]), control=OUT
    ),
    "inference": lambda kind: infer_secret(IN, RELEASES[kind], KNOWS, "secret", control=OUT),
    "membership": lambda kind: claim_membership(
        score_closeness(IN, RELEASES[kind]), score_closeness(OUT, RELEASES[kind])
    ),
    "ratings": by_ratings,
    "reconstruction": by_reconstruction,
    "differencing": by_differencing,
    "token counts": by_tokens,
    "token dictionary": by_dictionary,
    "same class": by_classes,
    "crossed releases": by_crossing,
    "joined releases": by_joining,
}


def floor(outcome: Outcome) -> float:
    """What would succeed without the release: the upper end of the control, or of guessing."""
    control = outcome.control.interval.high if outcome.control is not None else 0.0
    base = outcome.baseline.interval.high if isinstance(outcome.baseline, Rate) else outcome.baseline
    return max(control, base)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_raw_copy_is_found_nearly_always(name):
    assert ATTACKS[name]("raw").attack.share >= 0.85


@pytest.mark.parametrize("name", ATTACKS)
def test_random_data_give_no_more_than_the_baseline(name):
    outcome = ATTACKS[name]("random")
    assert outcome.attack.interval.low <= floor(outcome) + 0.01


@pytest.mark.parametrize("name", ATTACKS)
def test_a_dp_release_stays_under_its_bound(name):
    outcome = ATTACKS[name]("dp")
    assert outcome.attack.interval.low <= min(1.0, math.exp(EPSILON) * floor(outcome)) + 0.01


@pytest.mark.parametrize("name", ATTACKS)
def test_the_same_seed_gives_the_same_outcome(name):
    assert ATTACKS[name]("random").as_dict() == ATTACKS[name]("random").as_dict()


def by_uniqueness() -> Outcome:
    return measure_uniqueness(pa.table({"sex": ["F", "M", "M"]}), ["sex"])


def by_half_a_dictionary() -> Outcome:
    """Half of the tokens are plain hashes of yes or no, the others are keyed."""
    tokens = [hashlib.sha256(salt + word).hexdigest() for salt in (b"", b"key") for word in (b"yes", b"no") * 10]
    return invert_hashes(tokens, ["yes", "no"])


def by_ends_of_intervals() -> Outcome:
    """A class of ten people with three ages, of which the least and the greatest are written."""
    release = pa.table({"age": ["[30, 32]"] * 10})
    return read_interval_ends(release, pa.table({"age": [30, *[31] * 8, 32]}), ["age"])


FEW: dict[str, tuple[Callable[[], Outcome], float]] = {
    "uniqueness": (by_uniqueness, 1 / 3),
    "token dictionary": (by_half_a_dictionary, 0.5),
    "downcoding": (by_ends_of_intervals, 0.2),
}


@pytest.mark.parametrize("name", FEW)
def test_whoever_is_surely_known_counts_in_full_however_well_everybody_is_guessed(name):
    """Each of these is right whenever it claims; guesses about everybody are as often right as it claims at all."""
    attack, exposed = FEW[name]
    outcome = attack()
    assert outcome.attack.share == pytest.approx(exposed)
    assert outcome.excess == pytest.approx(exposed)


def test_edges_that_are_read_off_count_in_full_in_a_dense_network():
    """Most pairs are joined, so a guess is right more often than edges are learned; those learned are all true."""
    rarer = 0
    for seed in range(8):
        pairs = np.argwhere(np.triu(np.random.default_rng(seed).random((9, 9)) < 0.8, 1))
        outcome = attack_graph(pa.table({"a": pairs[:, 0], "b": pairs[:, 1]}), ("a", "b"))[-1]
        assert outcome.precision.successes == outcome.precision.trials
        assert outcome.excess == pytest.approx(outcome.attack.share)
        rarer += 0 < outcome.attack.share < outcome.baseline
    assert rarer > 0


def test_linkage_with_errors_takes_names_by_chance_off_once():
    """Without a truth, what a shuffled register would have claimed is taken off the claims, and not once more."""
    fields = [Field("age", Like.AGE), Field("town"), Field("job", Like.NAME)]
    outcome = link_with_errors(IN.slice(0, 300), IN.slice(0, 300), fields)
    assert outcome.control.successes <= outcome.figures["claimed"] / 100
    assert outcome.excess == pytest.approx(outcome.attack.share, abs=0.02)
