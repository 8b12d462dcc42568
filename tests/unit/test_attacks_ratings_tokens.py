"""The ratings scoreboard and attacks on tokens: small cases by hand, real ones where they are at hand."""

import hashlib
import hmac
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable import world
from deniable.assess.evidence import Evidence, Settings
from deniable.assess.trials import try_tokens
from deniable.attacks.ratings import Facts, Knowledge, Records, draw_facts, find_by_ratings, score_records, sweep_facts
from deniable.attacks.tokens import guess_by_frequency, invert_hashes, invert_projection, match_tokens
from deniable.errors import ParameterError, Stopped

MOVIETWEETINGS = Path(__file__).parents[2].parent / "shared" / "data" / "movietweetings" / "ratings_100K.dat"


def records(people=300, each=20, films=2000, seed=1):
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), each)
    film = np.concatenate([rng.choice(films, each, replace=False) for _ in range(people)])
    film = np.unique(film, return_inverse=True)[1]
    return Records.of(person, film, rng.integers(1, 6, len(film)).astype(float), rng.integers(0, 1000, len(film)))


def test_a_scoreboard_of_three_records_by_hand():
    person, film = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
    board = Records.of(person, film, np.array([5.0, 3, 5, 1, 3]), np.array([10, 20, 300, 20, 21]))
    facts = Facts(np.array([0]), np.array([[0, 1]]), np.array([[5, 3]], np.float32), np.array([[11, 20]]))
    found = score_records(board, facts, needed=2, days=14)
    assert found.best.tolist() == [0]
    assert found.absent_lead.tolist() == [0]  # nobody else agrees with both facts
    loose = score_records(board, facts, needed=1, days=14)
    assert loose.best.tolist() == [0]
    assert loose.absent_lead[0] > 0  # person 2 agrees with the second


def test_eight_facts_of_which_two_are_wrong_name_nearly_everybody_and_nobody_falsely():
    outcome = find_by_ratings(records(), Knowledge(8, 2, 14), targets=200)
    assert outcome.attack.share > 0.98
    assert outcome.precision.share == 1
    assert outcome.control.share < 0.02


def test_the_plain_score_is_published_beside_the_stronger_intruder_and_each_says_what_it_assumes():
    board = viewers(500)
    strong, plain = (find_by_ratings(board, Knowledge(6, 4, 14), targets=150, plain=way) for way in (False, True))
    assert plain.attack.share < strong.attack.share
    assert "plain score" in plain.sentence
    assert "how many are wrong" in strong.sentence
    assert plain.figures["assumes"] != strong.figures["assumes"]


def test_the_plain_score_is_the_published_formula():
    """Scores of three records computed by hand from Narayanan and Shmatikov's formula; no fact is too far off."""
    person, film = np.array([0, 0, 1, 1, 2]), np.array([0, 1, 0, 1, 1])
    stars, days = np.array([5.0, 3, 5, 1, 3]), np.array([10, 20, 300, 20, 21])
    facts = Facts(np.array([2]), np.array([[0, 1]]), np.array([[5, 3]], np.float32), np.array([[11, 20]]))
    found = score_records(Records.of(person, film, stars, days), facts, needed=1, days=2**31, stars=np.inf)
    weight, known = 1 / np.log([3, 4]), {0: (5, 11), 1: (3, 20)}
    scores = np.zeros(3)
    for who, what, rated, when in zip(person, film, stars, days, strict=True):
        apart, late = abs(rated - known[what][0]), abs(when - known[what][1])
        scores[who] += weight[what] * (np.exp(-apart / 1.5) + np.exp(-late / 30))
    first, second = np.sort(scores)[::-1][:2]
    assert found.best.tolist() == [int(scores.argmax())]
    assert found.lead[0] == pytest.approx((first - second) / scores.std(), rel=1e-5)


def test_random_records_do_not_match_facts_from_elsewhere():
    facts = draw_facts(records(seed=2), Knowledge(8, 2, 14), 200)
    strangers = records(seed=9)
    kept = facts.item < strangers.items
    facts = Facts(np.full(len(facts.target), -1), np.where(kept, facts.item, -1), facts.rating, facts.day)
    board = score_records(strangers, facts, needed=6, days=14)
    assert (board.best >= 0).mean() < 0.02


def viewers(people: int) -> Records:
    """The ratings of a generated world."""
    made = world.make("ratings", people)["ratings"]
    day = made["day"].cast(pa.int32()).to_numpy().astype(np.int64)
    person = np.unique(made["viewer_id"].to_numpy(), return_inverse=True)[1]
    film = np.unique(made["film_id"].to_numpy(), return_inverse=True)[1]
    return Records.of(person, film, made["rating"].to_numpy().astype(float), day)


def test_more_facts_identify_more():
    board = viewers(500)
    shares = [outcome.attack.share for outcome in sweep_facts(board, [1, 2, 8], targets=150)]
    assert shares[0] < shares[1] <= shares[2]
    assert shares[2] > 0.95


def test_generated_viewers_are_identified_by_eight_ratings_with_two_wrong():
    outcome = find_by_ratings(viewers(2000), Knowledge(8, 2, 14), targets=300)
    assert outcome.attack.share >= 0.98
    assert outcome.precision.share == 1


if MOVIETWEETINGS.exists():  # real ratings, where they are beside the project

    def test_movietweetings_is_identified_by_eight_ratings_with_two_wrong():
        raw = np.array([line.split("::") for line in MOVIETWEETINGS.read_text().split()], dtype=np.int64)
        person, film = (np.unique(raw[:, place], return_inverse=True)[1] for place in (0, 1))
        board = Records.of(person, film, raw[:, 2].astype(float), raw[:, 3] // 86_400)
        assert board.people == 16_554
        outcome = find_by_ratings(board, Knowledge(8, 2, 14), targets=1000)
        assert outcome.attack.share >= 0.98
        assert outcome.precision.share == 1


def test_what_cannot_be_known_is_refused():
    with pytest.raises(ParameterError):
        Knowledge(2, 3)
    with pytest.raises(ParameterError):
        Records.of(np.zeros(2, int), np.zeros(1, int), np.zeros(2), np.zeros(2, int))
    with pytest.raises(Stopped):
        find_by_ratings(records(), targets=300, seconds=1e-9)


def test_an_empty_table_of_ratings_has_no_targets():
    empty = Records.of(*(np.zeros(0, int) for _ in range(4)))
    assert find_by_ratings(empty).attack.trials == 0


PHONES = [f"555-{number:04}" for number in range(2000)]


@pytest.mark.parametrize(("name", "length"), [("md5", 32), ("sha256", 64), ("sha256", 16), ("blake2b", 40)])
def test_unsalted_hashes_fall_to_a_dictionary_whole_or_shortened(name, length):
    tokens = [hashlib.new(name, phone.encode()).hexdigest()[:length] for phone in PHONES[500:600]]
    outcome = invert_hashes(tokens, PHONES, truth=PHONES[500:600])
    assert outcome.attack.share == 1
    assert outcome.figures["hashes"] == [name]


def test_salted_and_keyed_tokens_hold_against_a_dictionary():
    salted = [hashlib.sha256(b"salt" + phone.encode()).hexdigest() for phone in PHONES[:100]]
    keyed = [hmac.new(b"key", phone.encode(), "sha256").hexdigest() for phone in PHONES[:100]]
    for tokens in (salted, keyed):
        outcome = invert_hashes([*tokens, None], PHONES)
        assert outcome.attack.successes == 0
        assert "leaked key" in outcome.trusted[0]


def test_frequencies_by_hand():
    assert guess_by_frequency(np.array([0, 1, 1, 2, 2, 2]), np.array([5, 5, 5, 6, 7, 7]))[[2, 1, 0]].tolist() == [
        5,
        7,
        6,
    ]


def skewed(rng, size):
    return rng.choice(20, size, p=np.arange(20, 0, -1) ** 2 / (np.arange(20, 0, -1) ** 2).sum())


def test_a_codebook_falls_to_counting_and_fresh_tokens_hold():
    rng = np.random.default_rng(1)
    secret, known = skewed(rng, 20_000), skewed(rng, 20_000)
    codebook = rng.permutation(20)
    clear, public = pa.chunked_array([secret]), pa.chunked_array([known])
    outcome = match_tokens(pa.chunked_array([codebook[secret]]), public, clear)
    assert outcome.attack.share > 0.9
    fresh = match_tokens(pa.chunked_array([rng.permutation(20_000)]), public, clear)
    assert fresh.attack.share < 0.1


def test_what_stands_beside_a_token_tells_equally_frequent_values_apart():
    rng = np.random.default_rng(2)
    secret, known = rng.integers(0, 12, 3000), rng.integers(0, 12, 3000)
    beside, public = (value * 2 + (rng.random(3000) < 0.3) for value in (secret, known))
    tokens = pa.chunked_array([rng.permutation(12)[secret]])
    clear, plain = pa.chunked_array([secret]), pa.chunked_array([known])
    assert match_tokens(tokens, plain, clear).attack.share < 0.5
    assert match_tokens(tokens, plain, clear, beside=(beside, public)).attack.share == 1


def tokens_of(original, token_column, order, beside=()):
    """A release in another order whose column is replaced by tokens, one for each value."""
    rng = np.random.default_rng(3)
    names = {value: f"t{code}" for value, code in zip(
        original[token_column].unique().to_pylist(), rng.permutation(10_000).tolist(), strict=False)}  # fmt: skip
    hidden = pa.array([names[value] for value in original[token_column].to_pylist()])
    whole = original.set_column(original.column_names.index(token_column), token_column, hidden)
    return whole.select([token_column, *beside]).take(pa.array(order))


def found_by_counting(release, original):
    outcomes = try_tokens(Evidence(release, original=original), Settings())
    return next(one.attack.successes for one in outcomes if one.name.startswith("counting"))


def test_unique_ids_in_a_shuffled_release_are_found_by_chance_alone():
    """300 ids that occur once each are one tie: of all ways to call them, one is right on average."""
    original = pa.table({"id": [f"id{n}" for n in range(300)], "age": np.arange(300)})
    order = np.random.default_rng(1).permutation(300)
    for beside in ((), ("age",)):
        for chosen in (order, np.arange(300)):
            assert found_by_counting(tokens_of(original, "id", chosen, beside), original) == 1


def test_towns_with_distinct_counts_are_all_found_in_whatever_order_the_rows_are():
    town = [f"town{n}" for n in range(20) for _ in range(10 * (n + 1))]
    original = pa.table({"town": town, "sex": np.random.default_rng(2).integers(0, 2, 2100)})
    for order in (np.random.default_rng(1).permutation(2100), np.arange(2100)):
        for beside in ((), ("sex",)):
            assert found_by_counting(tokens_of(original, "town", order, beside), original) == 2100


@pytest.mark.parametrize(("tied", "expected"), [(0, 300), (2, 299), (5, 296), (300, 1)])
def test_people_who_are_alike_in_all_that_is_shown_count_by_chance_and_the_others_in_full(tied, expected):
    """Of g people who are alike one is named rightly on average, whoever else is in the table."""
    age = np.where(np.arange(300) < tied, 0, np.arange(300))
    original = pa.table({"id": [f"id{n}" for n in range(300)], "age": age})
    release = tokens_of(original, "id", np.random.default_rng(1).permutation(300), ("age",))
    outcomes = try_tokens(Evidence(release, ("age",), original=original, knowledge=("age",)), Settings())
    beside = next(one for one in outcomes if one.name.endswith("beside others"))
    assert beside.attack.successes == expected
    assert any(f"{tied} rows are like others" in one for one in beside.trusted) == (tied > 0)


def test_a_token_that_is_missing_leaves_the_other_rows_as_they_are():
    original = pa.table({"id": [f"id{n}" for n in range(40)], "age": np.arange(40)})
    release = tokens_of(original, "id", np.random.default_rng(1).permutation(40), ("age",))
    names = [None if place < 10 else name for place, name in enumerate(release["id"].to_pylist())]
    release = release.set_column(0, "id", pa.array(names))
    outcomes = try_tokens(Evidence(release, ("age",), original=original, knowledge=("age",)), Settings())
    beside = next(one for one in outcomes if one.name.endswith("beside others"))
    assert (beside.attack.successes, beside.attack.trials) == (30, 30)


def test_as_many_unique_ids_as_a_table_has_rows_are_scored_without_comparing_all_pairs():
    """Pairs of 60,000 tokens and values that occur once each would not fit into memory."""
    original = pa.table({"id": [f"id{n}" for n in range(60_000)], "sex": np.arange(60_000) % 2})
    hidden = pa.table({"id": [f"t{n * 7 % 60_000}" for n in range(60_000)], "sex": np.arange(60_000) % 2})
    release = hidden.take(pa.array(np.random.default_rng(1).permutation(60_000)))
    assert found_by_counting(release, original) == 1


def test_ties_count_by_chance_as_trying_every_order_of_them_would():
    """Brute force over all orders of equal counts, on six tokens and another table's counts."""
    rng = np.random.default_rng(7)
    for _ in range(20):
        secret, known = rng.integers(0, 4, 12), rng.integers(0, 4, 12)
        scores = []
        for ours, theirs in product(permutations(range(4)), repeat=2):
            one, other = np.bincount(secret, minlength=4), np.bincount(known, minlength=4)
            ranked = sorted((t for t in range(4) if one[t]), key=lambda t: (-one[t], ours[t]))
            values = sorted((v for v in range(4) if other[v]), key=lambda v: (-other[v], theirs[v]))
            scores.append(sum(int(one[t]) for t, v in zip(ranked, values, strict=False) if t == v))
        found = match_tokens(*(pa.chunked_array([part]) for part in (secret + 9, known, secret)))
        assert found.attack.successes == pytest.approx(np.mean(scores), abs=0.5 + 1e-9)


def project(people, columns, dimensions, seed=4):
    """True values in ranges of their own, and a secret affine map of them."""
    rng = np.random.default_rng(seed)
    truth = rng.random((people, columns)) * rng.integers(1, 1000, columns) + rng.integers(-50, 50, columns)
    return truth, truth @ rng.normal(size=(columns, dimensions)) + rng.normal(size=dimensions)


@pytest.mark.parametrize(("known", "least", "most"), [(6, 1.0, 1.0), (5, 0.0, 0.3), (12, 1.0, 1.0)])
def test_one_known_person_more_than_columns_undoes_a_projection_of_full_dimension(known, least, most):
    truth, released = project(300, 5, 5)
    found = invert_projection(released, truth, np.arange(300) < known)
    assert found.figures["needed"] == 6
    assert least <= found.attack.share <= most
    assert found.attack.trials == 300 - known
    assert bool(found.warnings) == (known < 6)


def test_a_projection_to_fewer_dimensions_tells_hardly_anybody_whole():
    truth, released = project(400, 6, 3)
    found = invert_projection(released, truth, np.arange(400) < 20)
    assert found.attack.share < 0.1


def test_columns_that_were_not_projected_are_left_out_of_the_guess():
    truth, released = project(300, 4, 4)
    beside = np.random.default_rng(1).random((300, 1)) * 1e6
    found = invert_projection(released, np.hstack([truth, beside]), np.arange(300) < 12)
    assert (found.figures["columns"], found.attack.share) == (4, 1.0)
