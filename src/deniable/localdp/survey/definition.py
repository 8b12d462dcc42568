"""A survey as its steward writes it: questions, types and epsilons in one YAML file, each mistake with its line.

The grammar says which keys stand where and what they mean; a checked file becomes a frozen `Survey` whose every
question has its protocols."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

from deniable.errors import DeniableError, ParameterError, PolicyError
from deniable.localdp import serialization
from deniable.localdp.client import NO_ANSWER, normalize
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, three_envelopes, two_coins
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.heavy_hitters import LETTERS, PrefixTree
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Window
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.protocol_choice import choose, choose_numeric
from deniable.policy.check.tree_checker import Checker, Section
from deniable.policy.grammar import Amount, Choice, Field, ListOf, Named, Record, Text, Whole
from deniable.policy.yaml_tree import MOST_BYTES, Mistakes, parse_tree

ANSWERED = Fraction(1, 4)
"""The part of a number's epsilon that tells whether there is one, where that is hidden."""
EXPECTED_RESPONDENTS = 1000  # only for choosing among protocols; their order does not depend on it
NEEDS = {"choice": "options", "several": "options", "number": "between"}
BELONGS = {
    "options": ("choice", "several"),
    "between": ("number",),
    "step": ("number",),
    "words": ("word",),
    "letters": ("word",),
    "longest": ("word",),
}
COINS: dict[str, tuple[Callable[[], Any], Fraction]] = {
    "two-coins": (two_coins, Fraction(3)),
    "three-envelopes": (three_envelopes, Fraction(2)),
}
CATEGORICAL: dict[str, Callable[[int, Fraction], Any]] = {
    "k-ary": Direct.calibrate,
    "unary": Unary.calibrate,
    "hashing": LocalHashing.calibrate,
    "hadamard": Hadamard.calibrate,
    "subset": Subset.calibrate,
}


@dataclass(frozen=True, slots=True)
class Question:
    """One question and the protocols, one for each part of its answer, that randomize it."""

    name: str
    ask: str
    type: str
    epsilon: Fraction
    parts: tuple[Any, ...]
    options: tuple[str, ...] = ()
    scale: Scale | None = None
    unit: str = ""
    wanted: str = "mean"
    words: tuple[str, ...] = ()
    help: str = ""
    hides_unanswered: bool = False
    """Whether a question that is left out is responded to as if that were an answer."""

    # a dictionary: JSON that clients read, with other fields for each type of question
    def describe(self) -> dict[str, Any]:
        """The question as clients read it."""
        shown: dict[str, Any] = {"name": self.name, "ask": self.ask, "type": self.type, "help": self.help}
        shown |= {"epsilon": float(self.epsilon), "parts": [serialization.recipe(part) for part in self.parts]}
        if self.scale:
            ends = {"lower": float(self.scale.lower), "upper": float(self.scale.upper)}
            shown |= ends | {"steps": self.scale.steps, "step": float(self.scale.step), "unit": self.unit}
        shown |= {"unanswered": "randomized"} if self.hides_unanswered else {}
        return shown | ({"options": list(self.options)} if self.options else {})


@dataclass(frozen=True, slots=True)
class Survey:
    """A checked survey. `identity` changes whenever anything changes that a response depends on."""

    name: str
    title: str
    questions: tuple[Question, ...]
    about: str = ""
    contact: str = ""
    invited: bool = False
    most_answers: int = 3
    period: str = ""

    @property
    def epsilon(self) -> Fraction:
        """What one respondent's answers tell together: epsilons of questions add up."""
        return sum((question.epsilon for question in self.questions), Fraction(0))

    @property
    def identity(self) -> str:
        """The name and a digest of the questions with their exact recipes."""
        asked = [question.describe() for question in self.questions]
        digest = sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        return f"{self.name}-{digest[:12]}"

    # a dictionary: JSON that clients read
    def describe(self) -> dict[str, Any]:
        """The survey as clients read it."""
        return {
            "format": serialization.FORMAT,
            "survey": self.identity,
            "title": self.title,
            "about": self.about,
            "contact": self.contact,
            "invited": self.invited,
            "epsilon": float(self.epsilon),
            "period": self.period,
            "most_answers": self.most_answers,
            "questions": [question.describe() for question in self.questions],
        }

    def question(self, name: str) -> Question | None:
        """The question of that name, or None."""
        return next((question for question in self.questions if question.name == name), None)


def read_survey(path: Path) -> Survey:
    """The survey in a file."""
    try:
        raw = path.read_bytes()[: MOST_BYTES + 1]
        return parse_survey(raw.decode("utf-8-sig"), str(path))
    except OSError as failure:
        raise PolicyError(f"the survey '{path}' cannot be read: {failure.strerror}") from None
    except UnicodeDecodeError:
        raise PolicyError(f"the survey '{path}' is not UTF-8", remedy="Save it as UTF-8 text") from None


def parse_survey(text: str, source: str = "survey") -> Survey:
    """The survey in a text, or one PolicyError that lists every mistake with its line."""
    mistakes = Mistakes(source)
    root = parse_tree(text, mistakes)
    found = Checker(mistakes).check(SURVEY, root, "the survey") if root is not None else None
    mistakes.check()
    entry = Section(found)
    named = entry.section("questions")
    shares = _split_epsilon(entry, named, mistakes)
    mistakes.check()
    hides = entry.get("unanswered", "seen") == "randomized"
    questions = tuple(_build_question(name, named.section(name), shares[name], hides, mistakes) for name in named)
    mistakes.check()
    return Survey(
        entry.get("survey", ""),
        entry.get("title", ""),
        tuple(question for question in questions if question is not None),
        entry.get("about", ""),
        entry.get("contact", ""),
        entry.get("respondents", "anyone") == "invited",
        entry.get("most_answers", 3),
        entry.get("period", ""),
    )


def _split_epsilon(entry: Section, named: Section, mistakes: Mistakes) -> dict[str, Fraction]:
    """Each question's own epsilon, and even parts of what is left of the survey's for the others."""
    own = {name: named.section(name).get("epsilon", None) for name in named}
    for name in named:
        method = named.section(name).get("method", "")
        if method in COINS:  # a design by hand brings its epsilon along, rounded up: ln 3 and ln 2
            own[name] = Fraction(1099, 1000) if method == "two-coins" else Fraction(694, 1000)
    open_ = [name for name, epsilon in own.items() if epsilon is None]
    if not open_:
        return {name: epsilon for name, epsilon in own.items() if epsilon is not None}
    total = entry.get("epsilon", None)
    left = (total or Fraction(0)) - sum((epsilon for epsilon in own.values() if epsilon is not None), Fraction(0))
    if total is None or left <= 0:
        trouble = "have no epsilon" if total is None else "are left without any epsilon"
        mistakes.add(named.place, f"questions {', '.join(open_)} {trouble}", "An epsilon for each, or a larger total")
        return {}
    return {name: epsilon if epsilon is not None else left / len(open_) for name, epsilon in own.items()}


def _build_question(name: str, entry: Section, epsilon: Fraction, hides: bool, mistakes: Mistakes) -> Question | None:
    kind = entry.get("type", "")
    if not _check_question(name, kind, entry, mistakes):
        return None
    try:
        ends = entry.get("between", ())
        scale = Scale.between(ends[0], ends[1], entry.get("step", 1)) if kind == "number" else None
        options = _list_options(kind, entry, hides)
        parts = _build_parts(kind, entry, options, scale, epsilon, hides)
    except DeniableError as refusal:
        mistakes.add(entry.place, f"question '{name}': {refusal.happened}", refusal.expected, refusal.remedy)
        return None
    return Question(
        name,
        entry.get("ask", ""),
        kind,
        epsilon,
        parts,
        options,
        scale,
        entry.get("unit", ""),
        entry.get("wanted", "mean"),
        tuple(dict.fromkeys(normalize(word) for word in entry.get("words", ()))),
        entry.get("help", ""),
        hides,
    )


def _list_options(kind: str, entry: Section, hides: bool) -> tuple[str, ...]:
    """The answers to choose from; where leaving a question out is hidden, that is one of them."""
    options: tuple[str, ...] = ("no", "yes") if kind == "yes-no" else entry.get("options", ())
    if not hides or not options:
        return options
    if entry.get("method", "best") in COINS or NO_ANSWER in options:
        raise ParameterError(f"'{NO_ANSWER}' is an option of its own", expected="Another method, or option")
    return (*options, NO_ANSWER)


def _check_question(name: str, kind: str, entry: Section, mistakes: Mistakes) -> bool:
    """Whether a question has what its type needs, and nothing that belongs to another type."""
    before = len(mistakes.found)
    if kind in NEEDS and NEEDS[kind] not in entry:
        mistakes.add(entry.place, f"question '{name}' lacks '{NEEDS[kind]}'", f"A question of type {kind} needs it")
    for key, kinds in BELONGS.items():
        if key in entry and kind not in kinds:
            only = f"That belongs to type {' or '.join(kinds)}"
            mistakes.add(entry.place_of(key), f"question '{name}' of type {kind} has '{key}'", only)
    method = entry.get("method", "best")
    allowed = {
        "yes-no": ("best", "k-ary", *COINS),
        "choice": ("best", *CATEGORICAL),
        "number": ("best", "laplace"),
    }.get(kind, ("best",))
    if method not in allowed:
        known = f"Known for it: {', '.join(allowed)}"
        mistakes.add(entry.place_of("method"), f"question '{name}' of type {kind} has method {method}", known)
    return len(mistakes.found) == before


def _build_parts(
    kind: str, entry: Section, options: tuple[str, ...], scale: Scale | None, epsilon: Fraction, hides: bool
) -> tuple[Any, ...]:
    """The protocols of a question: one for each option where several may be chosen, else one.

    A number has no place for "no answer": where that is hidden, a second protocol tells whether there is one.
    """
    method = entry.get("method", "best")
    if kind == "several":
        return tuple(Direct.calibrate(2, epsilon / len(options)) for _ in options)
    if kind == "word" and "words" in entry and "longest" not in entry and "letters" not in entry:
        return (HadamardSketch.calibrate(epsilon),)
    if kind == "word":
        letters = "".join(dict.fromkeys(entry.get("letters", LETTERS).lower()))  # words are looked up in lower case
        return (PrefixTree.calibrate(epsilon, letters, entry.get("longest", 12)),)
    if scale is not None and hides:
        if entry.get("wanted", "mean") == "distribution":
            raise ParameterError("its distribution is not told apart from 'no answer'", expected="A mean, or a choice")
        told = epsilon * ANSWERED
        return (_build_numeric(scale, method, "mean", epsilon - told), Direct.calibrate(2, told))
    if scale is not None:
        return (_build_numeric(scale, method, entry.get("wanted", "mean"), epsilon),)
    if method in COINS:
        return (COINS[method][0](),)
    make = CATEGORICAL.get(method)
    return (make(len(options), epsilon) if make else choose(len(options), epsilon, EXPECTED_RESPONDENTS).protocol,)


def _build_numeric(scale: Scale, method: str, wanted: str, epsilon: Fraction) -> Any:
    if method == "laplace":
        return BoundedLaplace.calibrate(scale, epsilon)
    return Window.square_wave(scale, epsilon) if wanted == "distribution" else choose_numeric(scale, epsilon)[1]


NAME = Text("a short name", pattern="[a-z][a-z0-9-]{0,39}")
EPSILON = Amount(above=Fraction(0), most=Fraction(10))
TYPES = ("yes-no", "choice", "several", "number", "word")
METHODS = ("best", "two-coins", "three-envelopes", "k-ary", "unary", "hashing", "hadamard", "subset", "laplace")
SENTENCE = Text("a sentence")

QUESTION = Record(
    "question",
    (
        Field("ask", SENTENCE, "the question as the respondent reads it", required=True),
        Field("type", Choice(TYPES), "what kind of answer it takes", required=True),
        Field("help", SENTENCE, "a remark under the question"),
        Field("options", ListOf(Text("an option"), least=2, most=256, distinct=True), "the answers to choose from"),
        Field("between", ListOf(Amount(), least=2, most=2, order="up"), "lowest and highest number"),
        Field("step", Amount(above=Fraction(0)), "numbers are rounded to multiples of it", default="1"),
        Field("unit", Text("a unit"), "what the number counts, such as hours"),
        Field("wanted", Choice(("mean", "distribution")), "what will be estimated of a number", default="mean"),
        Field("words", ListOf(Text("a word"), least=1, most=100_000, distinct=True), "words to look for"),
        Field("letters", Text("letters"), "letters of words to be found", default="a to z, space and hyphen"),
        Field("longest", Whole(1, 60), "letters of the longest word to be found", default="12, without `words`"),
        Field("epsilon", EPSILON, "privacy loss of this question", default="an even part of the survey's"),
        Field("method", Choice(METHODS), "how the answer is randomized", default="best"),
    ),
)

SURVEY = Record(
    "survey",
    (
        Field("survey", NAME, "the survey's short name", required=True),
        Field("title", SENTENCE, "the heading of the page", required=True),
        Field("about", SENTENCE, "who asks, and what for"),
        Field("contact", SENTENCE, "whom to ask about the survey"),
        Field("respondents", Choice(("anyone", "invited")), "who may answer", default="anyone"),
        Field("epsilon", EPSILON, "privacy loss of the whole survey, shared by questions without their own"),
        Field("most_answers", Whole(1, 100), "how often a device answers one question, at most", default="3"),
        Field(
            "unanswered", Choice(("seen", "randomized")), "whether a question left out is seen to be", default="seen"
        ),
        Field("period", Text("a period"), "the name of this round, such as 2026-05"),
        Field("questions", Named(QUESTION, declares="question", least=1), "the questions by name", required=True),
    ),
)
