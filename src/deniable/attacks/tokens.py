"""Masks undone: unsalted hashes fall to a dictionary, deterministic tokens to counting, projections to known people.

Salted and keyed tokens hold; a projection to fewer dimensions tells no value exactly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.codes import Codes, encode_column
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError

HASHES: Mapping[str, Callable[[bytes], str]] = {
    name: (lambda data, name=name: hashlib.new(name, data, usedforsecurity=False).hexdigest())  # type: ignore[misc]
    for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "blake2b", "blake2s")
}
SPELLINGS: tuple[Callable[[str], str], ...] = (str, str.lower, str.upper, str.strip)
SHORTEST = 8
MOST_ASSIGNED = 2_000


def invert_hashes(
    tokens: Sequence[str | None],
    guesses: Iterable[str],
    *,
    truth: Sequence[str | None] | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Hash every value that could be there, and look the tokens up.

    **Scenario.** A column was replaced by hashes without a salt or key; the intruder lists what could be in it (all
    telephone numbers, all names) and wants the values back.
    **Method.** Common hashes of every guess in a few spellings, compared with whole or shortened tokens.
    **Outcome.** Tokens inverted (rightly, with `truth`), and by which hash. Nothing found proves nothing about a weak
    key or salt that leaked.
    """
    wanted = {token.lower() for token in tokens if token and len(token) >= SHORTEST}
    lengths = sorted({len(token) for token in wanted})
    found: dict[str, tuple[str, str]] = {}
    deadline, listed = Deadline(seconds), list(dict.fromkeys(guesses))
    for number, guess in enumerate(listed):
        if number % 1024 == 0:
            deadline.check()
            tell(progress, number / len(listed))
        for token, how in _hash_guess(guess, lengths):
            if token in wanted:
                found.setdefault(token, (guess, how))
    return _dictionary_outcome(tokens, found, truth, len(listed))


def _hash_guess(guess: str, lengths: Sequence[int]) -> Iterable[tuple[str, str]]:
    for spelled in dict.fromkeys(spelling(guess) for spelling in SPELLINGS):
        data = spelled.encode()
        for name, digest in HASHES.items():
            whole = digest(data)
            for length in lengths:
                if length <= len(whole):
                    yield whole[:length], name


def _dictionary_outcome(
    tokens: Sequence[str | None],
    found: Mapping[str, tuple[str, str]],
    truth: Sequence[str | None] | None,
    guesses: int,
) -> Outcome:
    present = [(place, token) for place, token in enumerate(tokens) if token]
    hits = [(place, found[token.lower()][0]) for place, token in present if token.lower() in found]
    right = len(hits) if truth is None else sum(truth[place] == guess for place, guess in hits)
    ways = sorted({how for _, how in found.values()})
    return Outcome(
        "tokens", "Hashing every possible value", Rate(right, len(present)), 1 / guesses if guesses else 0.0,
        precision=Rate(right, len(hits)), figures={"guesses": guesses, "hashes": ways},
        warnings=() if ways else ("no token is an unsalted hash of a guess; a leaked key or salt would change that",),
    )  # fmt: skip


def guess_by_frequency(tokens: Codes, known: Codes) -> NDArray[np.int64]:
    """For each token the value of the same rank: the likeliest assignment when only counts are known."""
    ours, theirs = np.bincount(tokens), np.bincount(known)
    ranked, values = np.argsort(-ours, kind="stable"), np.argsort(-theirs, kind="stable")
    guess = np.full(len(ours), -1, np.int64)
    count = min(len(ranked), len(values))
    guess[ranked[:count]] = values[:count]
    return guess


def guess_by_cooccurrence(tokens: Codes, beside: Codes, known: Codes, known_beside: Codes) -> NDArray[np.int64]:
    """For each token a value, all different, such that what stands beside them is likeliest (an assignment problem)."""
    kinds, values = int(tokens.max(initial=-1)) + 1, int(known.max(initial=-1)) + 1
    if max(kinds, values) > MOST_ASSIGNED:
        raise ParameterError(f"{max(kinds, values)} different values", expected=f"At most {MOST_ASSIGNED:,}")
    width = int(max(beside.max(initial=0), known_beside.max(initial=0))) + 1
    ours, theirs = np.zeros((kinds, width)), np.full((values, width), 0.1)  # a tenth of a person keeps logs finite
    np.add.at(ours, (tokens, beside), 1)
    np.add.at(theirs, (known, known_beside), 1)
    likelihood = ours @ np.log(theirs / theirs.sum()).T
    rows, columns = solvers.load_optimize().linear_sum_assignment(likelihood, maximize=True)
    guess = np.full(kinds, -1, np.int64)
    guess[rows] = columns
    return guess


def match_tokens(
    tokens: pa.ChunkedArray,
    known: pa.ChunkedArray,
    truth: pa.ChunkedArray,
    *,
    beside: tuple[Codes, Codes] | None = None,
    aligned: bool = True,
) -> Outcome:
    """Match deterministic tokens to values by how often they occur, and beside what.

    **Scenario.** Equal values have equal tokens (a codebook, a keyed hash). The intruder has another table of the same
    kind of people in clear text and wants the value behind every token.
    **Method.** Ranks of counts; with `beside`, a column that both tables show, the likeliest assignment of all tokens.
    **Outcome.** Rows whose value is found; the baseline calls everybody by the commonest value. Where counts are equal
    the intruder has to guess, so a tie of g counts as one in g. `truth` has the value of each row; where its rows are
    not `aligned` with the tokens, a token is taken to stand for one of the values that occur as often as it does.
    Tokens drawn afresh for every row hold.
    """
    hidden = encode_column([tokens])
    both = encode_column([known, truth])
    plain, true = np.split(both, [len(known)])
    if len(hidden) != len(true):
        raise ParameterError("The truth is not one value for each token")
    token, value, weight = _pair_by_row(hidden, true) if aligned else _pair_by_count(hidden, true)
    if beside is None:
        chance = _chance_by_rank(hidden, plain, token, value)
    else:
        chance = (_guess_in_any_order(hidden, beside[0], plain, beside[1])[token] == value).astype(np.float64)
    rows = len(hidden)
    right = round(float((weight * chance).sum()))
    base = Rate(int((true == np.bincount(plain).argmax()).sum()), rows) if rows and len(plain) else 0.0
    how = "Counting tokens" if beside is None else "Counting tokens and what stands beside them"
    return Outcome("tokens", how, Rate(right, rows), base, figures={"tokens": int(hidden.max(initial=-1)) + 1})


Pairs = tuple[Codes, Codes, NDArray[np.float64]]
"""Tokens with values that they stand for, and how many rows each pair has, in expectation."""


def _pair_by_row(tokens: Codes, values: Codes) -> Pairs:
    pairs, rows = np.unique(np.column_stack([tokens, values]), axis=0, return_counts=True)
    return pairs[:, 0], pairs[:, 1], rows.astype(np.float64)


def _pair_by_count(tokens: Codes, values: Codes) -> Pairs:
    """Each token with every value that occurs as often: it stands for one of them, all equally likely."""
    ours, theirs = np.bincount(tokens), np.bincount(values)
    alike = np.bincount(theirs, minlength=int(ours.max(initial=0)) + 1)
    order = np.argsort(theirs, kind="stable")
    first = np.searchsorted(theirs[order], ours)
    many = alike[ours]
    token = np.repeat(np.arange(len(ours)), many)
    place = np.arange(len(token)) - np.repeat(np.cumsum(many) - many, many)
    return token, order[np.repeat(first, many) + place], (ours / np.maximum(many, 1))[token]


def _chance_by_rank(tokens: Codes, known: Codes, token: Codes, value: Codes) -> NDArray[np.float64]:
    """How likely each token is given each value, when ranks of counts are matched and ties are broken by chance."""
    (low, high), (start, end) = (_find_ranks(np.bincount(codes)) for codes in (tokens, known))
    inside = value < len(start)
    at = np.where(inside, value, 0)
    if not len(start):
        return np.zeros(len(token))
    shared = np.minimum(high[token], end[at]) - np.maximum(low[token], start[at])
    spread = (high - low)[token] * (end - start)[at]
    return np.asarray(np.where(inside, np.maximum(shared, 0) / np.maximum(spread, 1), 0.0))


def _find_ranks(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks that each may have by its count, from and to: equal counts share theirs; a count of 0 has none."""
    ordered = np.sort(-counts)
    low, high = np.searchsorted(ordered, -counts), np.searchsorted(ordered, -counts, side="right")
    return np.where(counts > 0, low, 0), np.where(counts > 0, high, 0)


def _guess_in_any_order(tokens: Codes, beside: Codes, known: Codes, known_beside: Codes) -> NDArray[np.int64]:
    """The likeliest assignment; tokens and values are shuffled first, so that ties are broken by chance."""
    generator = np.random.default_rng(0)
    new, shown = (generator.permutation(int(codes.max(initial=-1)) + 1) for codes in (tokens, known))
    guess = guess_by_cooccurrence(new[tokens], beside, shown[known], known_beside)
    back = np.append(np.argsort(shown), -1)
    return np.asarray(back[guess][new])


NEAR = 0.05
"""A value is found when the guess is within this share of the column's range."""
VANISHING = 1e-6
Numbers = NDArray[np.float64]


def invert_projection(released: Numbers, truth: Numbers, known: NDArray[np.bool_]) -> Outcome:
    """Undo a random projection with the true values of a few people.

    **Scenario.** Numeric columns were replaced by secret random combinations of them. The intruder knows the true
    values of some people and which rows are theirs, and wants everybody else's; success is a person all of whose values
    are guessed within a twentieth of their range.
    **Method.** The combinations are linear, so known people give the matrix by least squares, and its inverse (of least
    change from the known people's mean, where fewer dimensions came out) gives the others.
    **Outcome.** People found among those who were not known; the baseline guesses the known people's mean. `needed` is
    how many known people determine the matrix.
    """
    columns, people = truth.shape[1], int((~known).sum())
    scenario = f"Knowing {int(known.sum())} people's true values of projected columns"
    figures = {"needed": columns + 1, "known": int(known.sum()), "columns": columns, "dimensions": released.shape[1]}
    few = () if known.sum() > columns else ("fewer people are known than determine the matrix",)
    if not people or not known.any():
        return Outcome("projection", scenario, Rate(0, people), 0.0, figures=figures, warnings=few)
    middle, spread = truth[known].mean(axis=0), np.maximum(truth[known].std(axis=0), VANISHING)
    offset = released[known].mean(axis=0)
    matrix = np.linalg.lstsq((truth[known] - middle) / spread, released[known] - offset, rcond=None)[0]
    weight = np.linalg.norm(matrix, axis=1)
    used = weight > VANISHING * weight.max(initial=0.0)  # a column that does not come out was not projected
    guessed = middle[used] + (released[~known] - offset) @ np.linalg.pinv(matrix[used], rcond=VANISHING) * spread[used]
    reach, secret = np.ptp(truth[:, used], axis=0), truth[~known][:, used]
    right, blind = (int(_is_near(guess, secret, reach).sum()) for guess in (guessed, middle[used]))
    figures["columns"] = int(used.sum())
    return Outcome("projection", scenario, Rate(right, people), Rate(blind, people), figures=figures, warnings=few)


def _is_near(guessed: Numbers, truth: Numbers, reach: Numbers) -> NDArray[np.bool_]:
    return np.asarray((np.abs(guessed - truth) <= NEAR * reach).all(axis=1))
