"""Words that nobody listed beforehand: a prefix tree, grown level by level and counted by others.

Each respondent draws a turn at random and tells one prefix of their word, through a Hadamard sketch with the whole
epsilon. The collector extends only prefixes that stand clear of the noise (the prefix extending method of Wang, Li, Jha
2019). Whole words are counted by respondents who took no part in the search: that a word was found because noise was in
its favor does not make its count, nor its interval, wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.protocol import Frequencies, Layout, Outcome, Responses, Whole
from deniable.policy.budget import Amount

END = "\x00"  # fills words up to the full length, so that a short word ends somewhere in the tree
OTHER = "\ufffd"  # stands for every character outside the alphabet
LETTERS = "abcdefghijklmnopqrstuvwxyz -"
LONGEST = 64
HASHES = 64
MOST_ENDINGS = 1 << 15
MOST_PREFIXES = 64
FALSE_FINDS = 0.05


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The plan both ends share: letters, the longest word, how many letters a level adds, and the sketch.

    **Guarantee**: epsilon-local DP (replace one word): a respondent speaks once, in a turn drawn without looking at the
    word.
    **Utility**: finds words of a share above about `least_share`; one survey in twenty names a prefix that nobody has.
    Longer words are cut; characters outside the alphabet are told as one that stands for all of them.
    **Runtime**: up to 32,768 endings for each prefix kept.
    """

    name: ClassVar[str] = "prefix-tree"
    alphabet: str
    longest: int
    step: int
    counting: int
    sketch: HadamardSketch

    def __post_init__(self) -> None:
        letters = set(self.alphabet)
        if letters & {END, OTHER} or len(letters) != len(self.alphabet) or not letters:
            raise ParameterError("the alphabet repeats a letter, or is none", expected="Distinct letters")
        if not (1 <= self.step <= self.longest <= LONGEST) or self.longest % self.step:
            raise ParameterError(f"steps of {self.step} to {self.longest} letters", expected=f"A divisor, to {LONGEST}")
        if not 1 <= self.counting <= LONGEST:
            raise ParameterError(f"{self.counting} turns count words", expected=f"1 to {LONGEST}")

    @classmethod
    def calibrate(cls, epsilon: Amount, alphabet: str = LETTERS, longest: int = 12) -> PrefixTree:
        """A tree whose every response keeps to epsilon: as few levels as can be searched, a third of turns count."""
        step = max(1, min(longest, int(math.log(MOST_ENDINGS) / math.log(len(alphabet) + 2))))
        levels = -(-longest // step)
        return cls(alphabet, levels * step, step, max(1, levels // 2), HadamardSketch.calibrate(epsilon, HASHES))

    @property
    def levels(self) -> int:
        """How many levels the tree has."""
        return self.longest // self.step

    @property
    def turns(self) -> int:
        """Searching turns, one a level, and those that count whole words."""
        return self.levels + self.counting

    @property
    def odds(self) -> Fraction:
        """The odds of one response: the turn does not depend on the word."""
        return self.sketch.odds

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: turn, function, coefficient, flip."""
        return (self.turns, *self.sketch.draws)

    @property
    def layout(self) -> Layout:
        """The turn, and the sketch of the prefix that it asks for."""
        return (Whole("turn", self.turns), *self.sketch.layout)

    def cut(self, word: str, turn: int) -> str:
        """The prefix of a word that a turn tells: the whole of it where words are counted."""
        known = set(self.alphabet)
        letters = "".join(letter if letter in known else OTHER for letter in word[: self.longest])
        return letters.ljust(self.longest, END)[: min(turn + 1, self.levels) * self.step]

    def randomize(self, words: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A turn and a sketch of its prefix for each word."""
        turns = uniform_below(self.turns, len(words), entropy=entropy)
        told = [self.cut(word, turn) for word, turn in zip(words, turns.tolist(), strict=True)]
        return (turns, *self.sketch.randomize(told, entropy))

    def likelihoods(self, word: str) -> Iterator[tuple[Outcome, Fraction]]:
        """Every turn and response with its probability."""
        for turn in range(self.turns):
            for outcome, likelihood in self.sketch.likelihoods(self.cut(word, turn)):
                yield (turn, *outcome), likelihood / self.turns

    def variance(self) -> float:
        """Variance per respondent of the estimated count of a word, before collisions of frequent ones."""
        return self.sketch.variance() * self.turns / self.counting

    def least_share(self, respondents: int, false_finds: float = FALSE_FINDS) -> float:
        """The share of people from which on a word is likely to be found."""
        searching = max(respondents / self.turns, 1)
        reach = self._reach(len(self._list_endings("")), false_finds)
        return (reach + 1) * math.sqrt(self.sketch.variance() / searching)

    def discover(self, responses: Responses, false_finds: float = FALSE_FINDS) -> tuple[str, ...]:
        """The words whose every prefix stands clear of the noise, most frequent first, by the searching turns."""
        if len(responses[0]) == 0:
            raise DataError("there are no responses", remedy="Collect responses first")
        kept = [""]
        for level in range(self.levels):
            kept = self._extend(kept, _take(responses, responses[0] == level), false_finds)
        return tuple(word.rstrip(END) for word in kept)

    def count(self, responses: Responses, words: Sequence[str]) -> Frequencies:
        """Unbiased counts of words among the respondents whose turn it was to count."""
        told = _take(responses, responses[0] >= self.levels)
        whole = [self.cut(word, self.levels) for word in words]
        return self.sketch.estimate(self.sketch.tally(told), len(told[0]), whole)

    def _extend(self, prefixes: list[str], told: Responses, false_finds: float) -> list[str]:
        """The extensions of prefixes that are told more often than noise explains.

        What noise adds is a sum of bounded terms, so that Hoeffding's bound holds for any number of respondents.
        """
        candidates = [prefix + ending for prefix in prefixes for ending in self._list_endings(prefix)]
        if not candidates or len(told[0]) == 0:
            return []
        found = self.sketch.estimate(self.sketch.tally(told), len(told[0]), candidates)
        clear = found.counts - self._reach(len(candidates), false_finds) * found.errors
        order = np.argsort(-found.counts, kind="stable")[:MOST_PREFIXES]
        return [candidates[i] for i in order.tolist() if clear[i] > 0]

    def _reach(self, candidates: int, false_finds: float) -> float:
        return math.sqrt(2 * math.log(candidates * self.levels / false_finds))

    def _list_endings(self, prefix: str) -> list[str]:
        """What may follow: letters until the end mark, and nothing but end marks after it."""
        if prefix.endswith(END):
            return [END * self.step]
        endings = ("".join(letters) for letters in product(self.alphabet + OTHER + END, repeat=self.step))
        return [ending for ending in endings if END not in ending.rstrip(END)]


def _take(responses: Responses, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Responses:
    """The sketches of some respondents, without their turns."""
    return tuple(column[chosen] for column in responses[1:])
