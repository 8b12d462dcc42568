"""The layout of a survey file: which keys stand where, and what they mean."""

from __future__ import annotations

from fractions import Fraction

from deniable.policy.grammar import Amount, Choice, Field, ListOf, Named, Record, Text, Whole

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
        Field("most_answers", Whole(1, 100), "different answers a device gives to one question", default="3"),
        Field("period", Text("a period"), "the name of this round, such as 2026-05; each has its own allowance"),
        Field("allowance", EPSILON, "the most a device tells in one period", default="the survey's epsilon"),
        Field("questions", Named(QUESTION, declares="question", least=1), "the questions by name", required=True),
    ),
)
