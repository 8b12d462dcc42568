"""Word lists: common given names, surnames, cities, countries, states. Each file names its source at its top."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

STREET_WORDS = (
    "street", "st", "avenue", "ave", "road", "rd", "boulevard", "blvd", "lane", "ln", "drive", "dr", "court", "ct",
    "place", "pl", "square", "sq", "highway", "hwy", "parkway", "pkwy", "terrace", "way", "circle", "plaza", "building",
    "bldg", "suite", "ste", "floor", "room", "apartment", "apt", "box", "house", "office", "straße", "rue", "calle",
    "via",
)  # fmt: skip


@cache
def load_words(name: str) -> tuple[str, ...]:
    """The entries of one list, in its order."""
    text = files(__name__).joinpath(f"{name}.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def fold_words(name: str) -> frozenset[str]:
    """The entries of one list in lower case, for looking words up."""
    if name == "states":
        return frozenset(part.lower() for line in load_words(name) for part in line.split(" ", 1))
    return frozenset(word.lower() for word in load_words(name))


@cache
def fold_world(letter: str) -> frozenset[str]:
    """The given names (g), surnames (s) or places (c) of the list that spans many countries, in lower case."""
    lines = (line.split() for line in load_words("world"))
    return frozenset(word.lower() for first, *rest in lines if first == letter for word in rest)
