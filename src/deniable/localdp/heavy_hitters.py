"""Heavy hitters among strings nobody listed beforehand: a prefix tree grown level by level.

Respondents are assigned to the levels of the tree at random; each tells, through a Hadamard sketch with the whole
epsilon, the prefix of its level. The collector extends only prefixes that stand clear of the noise (the prefix
extending method of Wang, Li, Jha 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from statistics import NormalDist

import numpy as np

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError
from deniable.localdp.attributes import scale_up
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.protocol import Responses
from deniable.policy.budget import Amount

END = "\x00"  # fills strings up to the full length, so that a short string ends somewhere in the tree
MOST_CANDIDATES = 1 << 20


@dataclass(frozen=True, slots=True)
class Hitter:
    """A frequent string, its estimated count among all respondents, and the standard error."""

    string: str
    count: float
    error: float


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """The plan both ends share: an alphabet, the longest string, how many characters a level adds, and the sketch.

    **Guarantee**: epsilon-local DP (replace one string): a respondent speaks once, on a level drawn at random.
    **Utility**: finds strings held by more than about z sqrt(levels * variance * n) people, z the quantile that keeps
    false finds to one in twenty; longer strings are cut, characters outside the alphabet end them.
    **Runtime**: alphabet^step candidates for each prefix kept.
    """

    alphabet: str
    longest: int
    step: int
    sketch: HadamardSketch

    def __post_init__(self) -> None:
        if END in self.alphabet or len(set(self.alphabet)) != len(self.alphabet) or not self.alphabet:
            raise ParameterError("the alphabet repeats a character or holds the end mark", expected="Distinct letters")
        if not (1 <= self.step <= self.longest <= 64) or self.longest % self.step:
            raise ParameterError(f"steps of {self.step} to {self.longest} characters", expected="A divisor, up to 64")

    @classmethod
    def calibrate(cls, epsilon: Amount, alphabet: str, longest: int, step: int = 1) -> PrefixTree:
        """A tree whose every report keeps to epsilon."""
        return cls(alphabet, longest, step, HadamardSketch.calibrate(epsilon))

    @property
    def levels(self) -> int:
        """How many levels the tree has."""
        return self.longest // self.step

    @property
    def odds(self) -> Fraction:
        """The odds of one report."""
        return self.sketch.odds

    def pad(self, string: str) -> str:
        """The string as the tree sees it: up to the first foreign character, cut or filled to the full length."""
        known = set(self.alphabet)
        foreign = next((place for place, letter in enumerate(string) if letter not in known), len(string))
        return string[:foreign][: self.longest].ljust(self.longest, END)

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> tuple[Responses, ...]:
        """For each level the reports of those who drew it."""
        drawn = uniform_below(self.levels, len(strings), entropy=entropy)
        who = (np.flatnonzero(drawn == level).tolist() for level in range(self.levels))
        return tuple(self._level([strings[i] for i in part], level, entropy) for level, part in enumerate(who))

    def _level(self, strings: Sequence[str], level: int, entropy: Entropy) -> Responses:
        length = (level + 1) * self.step
        return self.sketch.randomize([self.pad(string)[:length] for string in strings], entropy)

    def heavy_hitters(self, responses: Sequence[Responses], false_finds: float = 0.05) -> list[Hitter]:
        """The strings that stand clear of the noise, most frequent first."""
        n = sum(len(level[0]) for level in responses)
        if n == 0:
            raise DataError("there are no responses", remedy="Collect responses first")
        kept = [Hitter("", float(n), 0.0)]
        for level in responses:
            kept = self._extend([hitter.string for hitter in kept], level, n, false_finds / self.levels)
        return [Hitter(hitter.string.rstrip(END), hitter.count, hitter.error) for hitter in kept]

    def _extend(self, prefixes: list[str], level: Responses, n: int, false_finds: float) -> list[Hitter]:
        """The extensions of prefixes whose count is above what noise alone reaches once in 1 / false_finds trees."""
        candidates = [prefix + ending for prefix in prefixes for ending in self._endings(prefix)]
        if not candidates or len(level[0]) == 0:
            return []
        if len(candidates) > MOST_CANDIDATES:
            raise ParameterError("the tree grows too wide", remedy="Use a smaller step or alphabet")
        counts = scale_up(self.sketch.estimate(self.sketch.tally(level), len(level[0]), candidates), n)
        clear = NormalDist().inv_cdf(1 - false_finds / len(candidates)) * counts.errors
        found = [
            Hitter(candidates[i], float(counts.counts[i]), float(counts.errors[i]))
            for i in np.flatnonzero(counts.counts > clear)
        ]
        return sorted(found, key=lambda hitter: -hitter.count)

    def _endings(self, prefix: str) -> list[str]:
        """What may follow: letters until the end mark, and nothing but end marks after it."""
        if prefix.endswith(END):
            return [END * self.step]
        endings = ("".join(letters) for letters in product(self.alphabet + END, repeat=self.step))
        return [ending for ending in endings if END not in ending.rstrip(END)]
