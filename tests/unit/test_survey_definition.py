"""Survey files: every mistake with its line, every part of a good one where it belongs."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import pytest

from deniable.errors import PolicyError
from deniable.localdp.likelihood_ratio import is_within_epsilon
from deniable.localdp.survey.definition import parse_survey, read_survey
from deniable.localdp.survey.forecast import describe_deniability, describe_message, forecast

GOOD = """\
survey: ward
title: A ward survey
epsilon: 4
questions:
  smoker: {ask: Do you smoke?, type: yes-no, method: two-coins}
  ward: {ask: Which ward?, type: choice, options: [A, B, C], epsilon: 1}
  hours: {ask: Hours slept?, type: number, between: [0, 12], step: 0.5, unit: hours}
  uses: {ask: Which of these?, type: several, options: [x, y]}
  drug: {ask: Which drug?, type: word, words: [Aspirin, ibuprofen], epsilon: 0.5}
"""


def test_a_good_survey_shares_its_epsilon_and_knows_its_protocols():
    survey = parse_survey(GOOD)
    by_name = {question.name: question for question in survey.questions}
    assert by_name["ward"].epsilon == 1
    assert by_name["hours"].epsilon == by_name["uses"].epsilon
    assert survey.epsilon == 4
    assert by_name["smoker"].parts[0].odds == 3
    assert len(by_name["uses"].parts) == 2
    assert by_name["drug"].words == ("aspirin", "ibuprofen")
    assert by_name["hours"].scale.steps == 24


def test_the_identity_changes_with_anything_a_response_depends_on():
    assert parse_survey(GOOD).identity == parse_survey(GOOD + "\n# a remark\n").identity
    assert parse_survey(GOOD).identity != parse_survey(GOOD.replace("[A, B, C]", "[A, C, B]")).identity
    assert parse_survey(GOOD).identity != parse_survey(GOOD.replace("epsilon: 1}", "epsilon: 1.5}")).identity


@pytest.mark.parametrize(
    ("change", "by", "line", "words"),
    [
        ("type: yes-no", "type: yesno", 5, "yes-no"),
        ("options: [A, B, C], ", "", 6, "lacks 'options'"),
        ("between: [0, 12]", "between: [12, 0]", 7, ""),
        ("step: 0.5", "step: 0.7", 7, "does not divide"),
        ("ask: Which ward?", "asks: Which ward?", 6, "Did you mean 'ask'"),
        ("method: two-coins", "method: laplace", 5, "Known for it"),
        ("words: [Aspirin, ibuprofen]", "options: [a, b]", 9, "belongs to type"),
        ("epsilon: 1}", "epsilon: -1}", 6, ""),
        ("epsilon: 1}", "epsilon: lots}", 6, ""),
        ("epsilon: 4", "epsilon: 2", 5, "left without any epsilon"),
        ("options: [x, y]", "options: [x, x]", 8, ""),
        ("survey: ward", "survey: Ward One", 1, ""),
    ],
)
def test_a_mistake_is_shown_with_its_line(change, by, line, words):
    with pytest.raises(PolicyError) as refusal:
        parse_survey(GOOD.replace(change, by))
    places = [mistake.place.line for mistake in refusal.value.mistakes]
    assert line in places
    assert words in " ".join(mistake.message for mistake in refusal.value.mistakes)


def test_several_mistakes_come_together():
    with pytest.raises(PolicyError) as refusal:
        parse_survey(GOOD.replace("options: [A, B, C], ", "").replace("step: 0.5", "step: 0.7"))
    assert len(refusal.value.mistakes) == 2


@pytest.mark.parametrize("text", ["", "[]", "just text", "survey: x", "questions: {}", "\x00", "a: &a [*a]"])
def test_what_is_no_survey_is_refused_not_crashed_on(text):
    with pytest.raises(PolicyError):
        parse_survey(text)


HIDING = GOOD.replace(", method: two-coins", "") + "unanswered: randomized\n"


def test_where_leaving_a_question_out_is_hidden_it_is_one_of_the_answers_at_the_same_epsilon():
    survey = parse_survey(HIDING)
    asked = {question.name: question for question in survey.questions}
    assert asked["smoker"].options == ("no", "yes", "no answer")
    assert asked["ward"].parts[0].domain == 4
    assert len(asked["uses"].parts) == 3
    assert [part.name for part in asked["hours"].parts] == [asked["hours"].parts[0].name, "k-ary"]
    assert asked["drug"].parts == parse_survey(GOOD).question("drug").parts
    for question in survey.questions:
        assert is_within_epsilon(prod((part.odds for part in question.parts), start=Fraction(1)), question.epsilon)
        assert "Leaving the question out" in describe_deniability(question)
    assert {"unanswered"} == set(asked["ward"].describe()) - set(parse_survey(GOOD).question("ward").describe())


@pytest.mark.parametrize(
    ("change", "by", "line", "words"),
    [
        ("type: yes-no", "type: yes-no, method: two-coins", 5, "'no answer' is an option of its own"),
        ("[A, B, C]", "[A, B, no answer]", 6, "'no answer' is an option of its own"),
        ("unit: hours", "unit: hours, wanted: distribution", 7, "not told apart"),
    ],
)
def test_what_cannot_hide_that_it_was_left_out_is_a_mistake(change, by, line, words):
    with pytest.raises(PolicyError) as refusal:
        parse_survey(HIDING.replace(change, by))
    assert [mistake.place.line for mistake in refusal.value.mistakes] == [line]
    assert words in refusal.value.mistakes[0].message


def test_a_word_question_without_a_list_finds_words_and_says_from_which_share_on():
    def drug(more: str) -> Any:
        return parse_survey(GOOD.replace("words: [Aspirin, ibuprofen]", more)).question("drug")

    found, longer, both = drug("help: Any"), drug("longest: 20, letters: ABCÄÖ"), drug("words: [fig], longest: 6")
    assert [question.parts[0].name for question in (found, longer, both)] == ["prefix-tree"] * 3
    assert longer.parts[0].alphabet == "abcäö"
    assert longer.parts[0].longest >= 20
    assert both.words == ("fig",)
    assert "found from a share of about" in forecast(found, 100_000).caution
    assert forecast(found, 100_000).error < forecast(found, 1000).error


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(PolicyError, match="cannot be read"):
        read_survey(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes("title: Größe".encode("latin-1"))
    with pytest.raises(PolicyError, match="UTF-8"):
        read_survey(tmp_path / "latin.yaml")


def test_every_type_and_method_is_told_in_plain_words():
    survey = parse_survey(GOOD)
    told = {
        question.name: describe_message(question) + " " + describe_deniability(question)
        for question in survey.questions
    }
    assert "tells the truth in 2 of 4 cases" in told["smoker"]
    assert "factor of 3.0" in told["smoker"]
    assert "47.5%" not in told["ward"]
    assert "probability" in told["ward"]
    assert "hours off" in told["hours"]
    assert "for any one option" in told["uses"]
    for method in ("k-ary", "unary", "hashing", "hadamard", "subset"):
        question = parse_survey(GOOD.replace("epsilon: 1}", f"epsilon: 1, method: {method}}}")).question("ward")
        assert describe_message(question)
        assert "factor of 2.7" in describe_deniability(question)
    laplace = parse_survey(GOOD.replace("unit: hours}", "unit: hours, method: laplace}")).question("hours")
    assert laplace.parts[0].claimed == laplace.epsilon


def test_the_forecast_states_what_is_achieved_and_cautions_when_epsilon_is_loose():
    survey = parse_survey(GOOD)
    ahead = [forecast(question, 400) for question in survey.questions]
    assert all(one.achieved <= one.epsilon + 1e-12 for one in ahead)
    assert all(one.achieved > one.epsilon * 0.999 for one in ahead)
    assert not any(one.caution for one in ahead)
    loose = parse_survey(GOOD.replace("epsilon: 4", "epsilon: 9").replace("epsilon: 1}", "epsilon: 6}"))
    assert forecast(loose.question("ward"), 400).caution
    assert forecast(survey.question("ward"), 1600).error == pytest.approx(ahead[1].error / 2)
    assert sum((question.epsilon for question in survey.questions), Fraction(0)) == survey.epsilon
