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
        claimed=len(hits),
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


Keys = tuple[Codes, Codes]
"""A number for the row of each token and for each true value: rows with the same one may be the same person's."""


def match_tokens(
    tokens: pa.ChunkedArray,
    known: pa.ChunkedArray,
    truth: pa.ChunkedArray,
    *,
    beside: tuple[Codes, Codes] | None = None,
    keys: Keys | None = None,
) -> Outcome:
    """Match deterministic tokens to values by how often they occur, and beside what.

    **Scenario.** Equal values have equal tokens (a codebook, a keyed hash). The intruder has another table of the same
    kind of people in clear text and wants the value behind every token.
    **Method.** Ranks of counts; with `beside`, a column that both tables show, the likeliest assignment of all tokens.
    **Outcome.** Rows whose value is found; the baseline calls everybody by the commonest value. Where counts are equal
    the intruder has to guess, so a tie of g counts as one in g. `truth` has the true values, row by row; or else `keys`
    tell whose they may be, and of several each counts by its chance: of values that occur as often as the token, where
    there are such. Tokens drawn afresh for every row hold.
    """
    hidden = encode_column([tokens])
    both = encode_column([known, truth])
    plain, true = np.split(both, [len(known)])
    if keys is None and len(hidden) != len(true):
        raise ParameterError("The truth is not one value for each token")
    rows = (np.arange(len(hidden)), np.arange(len(true))) if keys is None else keys
    chosen = _part_by_count(rows, hidden, true)
    if beside is None:
        right = _expect_by_rank(hidden, plain, true, chosen)
    else:
        guess = _guess_in_any_order(hidden, beside[0], plain, beside[1])
        right = _expect_guessed(guess[hidden], true, chosen)
    base = Rate(int((true == np.bincount(plain).argmax()).sum()), len(true)) if len(true) and len(plain) else 0.0
    how = "Counting tokens" if beside is None else "Counting tokens and what stands beside them"
    figures = {"tokens": int(hidden.max(initial=-1)) + 1}
    return Outcome("tokens", how, Rate(round(right), len(hidden)), base, figures=figures)


def _part_by_count(keys: Keys, tokens: Codes, values: Codes) -> Keys:
    """Keys with how often the token, or the value, occurs: a token stands for a value that occurs as often.

    Where tokens were drawn afresh they do not, and the keys are left as they are.
    """
    counts = [np.bincount(codes)[codes] for codes in (tokens, values)]
    joined = np.column_stack([np.concatenate(keys), np.concatenate(counts)])
    finer = np.unique(joined, axis=0, return_inverse=True)[1].reshape(-1)
    ours, theirs = np.split(finer, [len(tokens)])
    return (ours, theirs) if np.array_equal(np.sort(ours), np.sort(theirs)) else keys


def _expect_guessed(guessed: Codes, values: Codes, keys: Keys) -> float:
    """How many guesses, one a row, are right: each by the share of its value among those that the row may have."""
    width = int(max(values.max(initial=0), guessed.max(initial=0))) + 2
    held, times = np.unique(keys[1] * width + values, return_counts=True)
    wanted = keys[0] * width + np.where(guessed < 0, width - 1, guessed)
    place = np.searchsorted(held, wanted).clip(0, max(0, len(held) - 1))
    found = np.where(held[place] == wanted, times[place], 0) if len(held) else np.zeros(len(wanted))
    many = np.bincount(keys[1], minlength=int(keys[0].max(initial=0)) + 1)
    return float((found / np.maximum(many[keys[0]], 1)).sum())


def _expect_by_rank(tokens: Codes, known: Codes, values: Codes, keys: Keys) -> float:
    """How many rows are right when ranks of counts are matched and ties are broken by chance.

    All tokens that occur equally often have the same chance, and so have all values: they are counted together.
    """
    size = int(max(values.max(initial=-1), known.max(initial=-1))) + 1
    counts = np.bincount(tokens), np.bincount(known, minlength=size)
    token, ours = _count_kinds(keys[0], counts[0][tokens])
    value, theirs = _count_kinds(keys[1], counts[1][values])
    one, other = _join_keys(token[:, 0], value[:, 0])
    many = np.bincount(keys[1])[token[one, 0]]
    weight = ours[one] * theirs[other] / np.maximum(many, 1)
    (low, high), (start, end) = (_find_ranks(each) for each in counts)
    first = [np.unique(each, return_index=True) for each in counts]
    at, to = (kinds[np.searchsorted(count, part[:, 1])] for (count, kinds), part in zip(first, (token, value),
                                                                                      strict=True))  # fmt: skip
    at, to = at[one], to[other]
    shared = np.minimum(high[at], end[to]) - np.maximum(low[at], start[to])
    spread = (high - low)[at] * (end - start)[to]
    return float((weight * np.maximum(shared, 0) / np.maximum(spread, 1)).sum())


def _count_kinds(keys: Codes, counts: Codes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each key with each count that its rows have, and how many of them have it."""
    found, times = np.unique(np.column_stack([keys, counts]), axis=0, return_counts=True)
    return found, times


def _join_keys(ours: Codes, theirs: Codes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of all pairs of equal keys; both sides are sorted."""
    first, last = np.searchsorted(theirs, ours), np.searchsorted(theirs, ours, side="right")
    many = last - first
    one = np.repeat(np.arange(len(ours)), many)
    return one, np.arange(len(one)) - np.repeat(np.cumsum(many) - many, many) + first[one]


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
