"""A first release is decided by questions: what is recommended makes a valid policy, which withholds the rest."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable.attacks.uniqueness import measure_uniqueness, sweep_knowledge
from deniable.curator import start
from deniable.curator.policy import compose, decisions
from deniable.curator.policy.decisions import (
    RECIPIENTS,
    SUITED,
    Decisions,
    merge_decisions,
    next_question,
    read_answers,
    recommend_all,
    take_answer,
)
from deniable.curator.policy.draft import Draft, Drafted
from deniable.errors import DeniableError, ParameterError
from deniable.policy.document import parse
from deniable.policy.schema import ColumnType, PrivacyUnit, Role

COLUMNS = (
    Drafted("patient", ColumnType.TEXT, Role.IDENTIFIER, "record id", shape="words", distinct=4_000),
    Drafted("age", ColumnType.INTEGER, Role.QUASI_IDENTIFIER, "age", hierarchy="{standard: ages}", shape="numbers",
            distinct=80, commonest=0.03),
    Drafted("sex", ColumnType.TEXT, Role.QUASI_IDENTIFIER, "its name", shape="2 different words", distinct=2,
            commonest=0.5),
    Drafted("diagnosis", ColumnType.TEXT, Role.SENSITIVE, "its name", shape="words", distinct=90, commonest=0.2),
    Drafted("hiv", ColumnType.TEXT, Role.SENSITIVE, "its name", shape="2 different words", distinct=2, commonest=0.99),
    Drafted("seen", ColumnType.DATE, Role.IDENTIFIER, "its name", shape="values", distinct=300),
    Drafted("charge", ColumnType.DECIMAL, Role.UNDECIDED, "numbers", shape="numbers", distinct=900, commonest=0.01),
    Drafted("ward, wing", ColumnType.TEXT, Role.UNDECIDED, "3 different words", shape="3 different words", distinct=3,
            commonest=0.4),
)  # fmt: skip
TABLE = Draft("visits", "../visits.csv", None, "patient", 9_000, COLUMNS)


def decide(made: Draft = TABLE, **given: object) -> Decisions:
    """All decisions: those given, and what is recommended."""
    return recommend_all(made, read_answers(made, given))


@pytest.mark.parametrize("recipient", RECIPIENTS)
def test_what_is_recommended_makes_a_valid_policy_for_every_recipient(recipient: str) -> None:
    decided = decide(recipient=recipient)
    policy = parse(compose.write_policy(TABLE, decided))
    table = policy.table("visits")
    assert next_question(TABLE, decided) is None
    assert decided.technique == SUITED[recipient][0]
    assert {c.name for c in table.columns if c.role is Role.UNDECIDED} == {"charge", "ward, wing"}
    assert all(column.categories is None and column.mask is None for column in table.columns)
    if decided.technique == "k-anonymity":
        assert policy.budgets is None
        assert (policy.release.anonymize.k, dict(policy.release.anonymize.l)) == (5, {"diagnosis": 2})  # type: ignore[union-attr]
        assert table.unit == PrivacyUnit("patient")
    else:
        assert policy.budgets is not None
        assert table.unit == PrivacyUnit("patient", 2, 2)
        assert table.column("age").bounds is not None  # type: ignore[union-attr]


def test_every_question_states_a_reason_and_a_recommended_answer_that_it_takes() -> None:
    for recipient, suited in SUITED.items():
        for technique in suited:
            decided, asked = read_answers(TABLE, {"recipient": recipient, "technique": technique}), []
            while (question := next_question(TABLE, decided)) is not None:
                assert question.reason.endswith(".")
                assert question.recommended
                asked.append(question.key)
                decided = take_answer(TABLE, decided, question, "")
            assert len(set(asked)) == len(asked)
            assert "roles.charge" in asked


def test_a_secret_that_few_have_is_kept_from_gathering_in_a_class() -> None:
    """Nearly nobody has it, so several values cannot be asked of each class; its share can."""
    decided = decide(recipient="researchers", technique="k-anonymity")
    assert decided.l == 2
    asked = parse(compose.write_policy(TABLE, decided)).release.anonymize
    assert asked is not None
    assert (dict(asked.l), dict(asked.t)) == ({"diagnosis": 2}, {"diagnosis": Fraction(2, 5), "hiv": Fraction(1, 5)})
    alone = replace(TABLE, columns=tuple(c for c in TABLE.columns if c.name != "diagnosis"))
    only = decide(alone, recipient="researchers", technique="k-anonymity")
    told = parse(compose.write_policy(alone, only)).release.anonymize
    assert told is not None
    assert dict(told.t) == {"hiv": Fraction(1, 5)}
    open_one = next_question(TABLE, replace(decided, l=None))
    assert open_one is not None
    assert open_one.about[0].startswith("diagnosis is skewed: 20% of the rows have one of its 90 values, and a group")
    assert open_one.about[1].startswith("hiv is skewed: 99% of the rows have one of its 2 values, so that few groups")
    assert all("rare value is common" in told for told in open_one.about)


@pytest.mark.parametrize(
    ("commonest", "distinct", "t"),
    [(0.5, 2, None), (0.74, 2, None), (0.75, 2, 0.2), (0.12, 13, 0.44), (0.11, 90, None), (0.12, 12, None),
     (0.32, 16, 0.34), (0.5, 3, 0.25), (0.9, 9, 0.2), (0.95, 2, 0.2), (1.0, 1, None), (0.0, 0, None)],
)  # fmt: skip
def test_closeness_is_asked_of_secrets_of_which_one_value_is_common_and_no_other_as_much(
    commonest: float, distinct: int, t: float | None
) -> None:
    columns = tuple(replace(c, commonest=commonest, distinct=distinct) if c.name == "diagnosis" else c for c in COLUMNS)
    made = replace(TABLE, columns=columns)
    decided = decide(made, recipient="researchers", technique="k-anonymity")
    asked = parse(compose.write_policy(made, decided)).release.anonymize
    assert asked is not None
    assert asked.t.get("diagnosis") == (None if t is None else Fraction(str(t)))
    nothing = parse(compose.write_policy(made, replace(decided, l=1))).release.anonymize
    assert nothing is not None
    assert not nothing.t


def test_few_rows_are_not_recommended_to_be_synthetic() -> None:
    assert decide(replace(TABLE, rows=900)).technique == "k-anonymity"
    assert decide(TABLE).technique == "synthetic"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"recipiant": "public"}, "Did you mean 'recipient'?"),
        ({"recipient": "researcher"}, "Did you mean 'researchers'?"),
        ({"technique": "k-anonimity"}, "Did you mean 'k-anonymity'?"),
        ({"recipient": "analysts", "technique": "synthetic"}, "One of queries"),
        ({"unit": "patiant"}, "Did you mean 'patient'?"),
        ({"roles": {"diagnose": "sensitive"}}, "Did you mean 'diagnosis'?"),
        ({"roles": {"age": "quasi identifier"}}, "Did you mean 'quasi-identifier'?"),
        ({"roles": "age"}, "not a list of columns"),
        ({"values": {"sexx": "learn"}}, "Did you mean 'sex'?"),
        ({"k": "1"}, "A whole number, 2 or more"),
        ({"epsilon": "100"}, "at most 10"),
        ({"suppress": "200%"}, "A share such as"),
        ({"risk": "much"}, "A share such as"),
        ({"values": {"age": {"between": [9, 3]}}}, "do not rise"),
        ({"values": {"sex": {"between": [1, 2]}}}, "holds text"),
        ({"values": {"sex": {"any": [1, 2]}}}, "learn, none"),
        ({"values": {"age": {"between": ["young", "old"]}}}, "LOW to HIGH"),
        ({"values": {"charge": {"categories": [1, 2]}}}, "LOW to HIGH"),
        ({"values": {"seen": "learn"}}, "dates, which are not learned"),
    ],
)
def test_wrong_answers_are_refused_with_what_would_be_right(given: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=re.escape(said)):
        read_answers(TABLE, given)


def test_roles_are_changed_and_the_rest_is_withheld_in_one_answer() -> None:
    decided = read_answers(TABLE, {"recipient": "researchers", "technique": "k-anonymity", "unit": "row"})
    question = next_question(TABLE, decided)
    assert question is not None
    assert question.key == "roles"
    decided = take_answer(TABLE, decided, question, "age=sensitive, hiv=identifier")
    assert (decided.roles["age"], decided.roles["hiv"], decided.roles["sex"]) == (
        "sensitive", "identifier", "quasi-identifier")  # fmt: skip
    question = next_question(TABLE, decided)
    assert question is not None
    assert question.key == "roles.charge"
    decided = take_answer(TABLE, decided, question, "rest")
    assert decided.roles["charge"] == decided.roles["ward, wing"] == "undecided"
    following = next_question(TABLE, decided)
    assert following is not None
    assert following.key == "k"


def test_what_is_recommended_leaves_what_was_answered() -> None:
    given = {"age": "sensitive", "diagnosis": "undecided", "charge": "insensitive"}
    decided = decide(recipient="researchers", roles=given, k="3", suppress="1%", values={"sex": "none"})
    assert {name: decided.roles[name] for name in given} == given
    assert (decided.k, decided.suppress, decided.values["sex"]) == (3, 0.01, "none")


def test_values_are_typed_as_bounds_or_as_a_list() -> None:
    decided = decide(recipient="public", values={"age": "18 to 90", "sex": "F, M, X"})
    assert decided.values["age"] == {"between": [18, 90]}
    assert decided.values["sex"] == {"categories": ["F", "M", "X"]}
    table = parse(compose.write_policy(TABLE, decided)).table("visits")
    assert table.column("sex").categories == ("F", "M", "X")  # type: ignore[union-attr]


def test_learned_values_are_in_the_policy_and_what_did_not_rise_above_the_noise_is_not() -> None:
    decided = decide(recipient="public")
    learned = {"sex": {"categories": ["F", "M"]}, "diagnosis": {}, "hiv": {"categories": ["no", "yes"]}}
    table = parse(compose.write_policy(TABLE, decided, learned)).table("visits")
    assert table.column("hiv").categories == ("no", "yes")  # type: ignore[union-attr]
    assert table.column("diagnosis").categories is None  # type: ignore[union-attr]
    assert compose.list_drawn(TABLE, decided, learned) == ("age", "sex", "diagnosis", "hiv")
    number = decide(recipient="public", roles={"charge": "sensitive"})
    assert "charge" not in compose.list_drawn(TABLE, number, {**learned, "charge": {}})
    assert "charge" in compose.list_drawn(TABLE, number, {**learned, "charge": {"between": [0.0, 512.0]}})


def test_attacks_are_limited_only_where_they_can_be_tried() -> None:
    decided, learned = decide(recipient="public"), {"sex": {"categories": ["F", "M"]}}
    assert compose.list_attacks(TABLE, decided, learned) == ["membership"]
    assert compose.list_attacks(TABLE, decided, {"hiv": {"categories": ["no", "yes"]}}) == ["membership", "linkability"]
    assert compose.list_attacks(replace(TABLE, rows=300), decided, learned) == []


def test_decisions_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    names = ("yes", "# x", "a: b", 'it\'s "q"', "é,日本", "02138", "null")
    odd = replace(TABLE, columns=tuple(replace(COLUMNS[2], name=name) for name in names), unit=None)
    given = {
        "recipient": "public",
        "roles": dict.fromkeys(names, "sensitive"),
        "values": {"yes": {"categories": ["NO", "x, y"]}},
    }
    decided = decide(odd, **given)
    (tmp_path / "d.yaml").write_text(compose.write_decisions(decided, ("a head",)))
    assert start.read_decisions(odd, tmp_path / "d.yaml") == decided
    fewer = replace(odd, columns=odd.columns[:2])
    with pytest.raises(ParameterError, match="there is no column"):
        start.read_decisions(fewer, tmp_path / "d.yaml")
    still = start.read_decisions(fewer, tmp_path / "d.yaml", known_only=True)
    assert set(still.roles) == {"yes", "# x"}


def test_answers_go_before_what_was_kept() -> None:
    kept = decide(recipient="researchers", roles={"charge": "sensitive"}, k="7")
    merged = merge_decisions(kept, read_answers(TABLE, {"recipient": "analysts", "roles": {"hiv": "identifier"}}))
    assert (merged.recipient, merged.technique, merged.k) == ("analysts", "queries", 7)
    assert (merged.roles["charge"], merged.roles["hiv"]) == ("sensitive", "identifier")


def test_commands_are_one_line_a_shell_reads_as_it_was_meant(tmp_path: Path) -> None:
    made = replace(TABLE, columns=(*COLUMNS[1:5], replace(COLUMNS[2], name='it\'s "x"', role=Role.SENSITIVE)))
    decided = decide(made, recipient="public", unit="row")
    place = start.Place("my visits.csv", tmp_path / "an out")
    found = start.Findings(learned={"sex": {"categories": ["F", "M"]}}, release={"attack": {}})
    for step in start.list_steps(place, made, decided, found):
        assert "\n" not in step.command
        assert tuple(shlex.split(step.command)) == ("deniable", *step.words)


def test_what_commands_cannot_name_is_withheld_from_synthetic_rows() -> None:
    decided = decide(recipient="public", roles={"ward, wing": "insensitive"})
    assert "ward, wing" not in decisions.list_released(TABLE, decided)
    assert compose.describe_change(COLUMNS[7], decided)[1] == "withheld"
    kept = decide(recipient="researchers", roles={"ward, wing": "insensitive"})
    assert "ward, wing" in decisions.list_released(TABLE, kept)


def test_nothing_that_could_leave_is_refused_before_anything_is_read() -> None:
    nobody = dict.fromkeys((column.name for column in COLUMNS), "undecided")
    for recipient in RECIPIENTS:
        with pytest.raises(DeniableError, match="no column"):
            start.refuse_nothing(TABLE, decide(recipient=recipient, roles=nobody))
        start.refuse_nothing(TABLE, decide(recipient=recipient))


@pytest.mark.parametrize(("rows", "people"), [(0, None), (1, None), (400, None), (400, 50)])
def test_the_sweep_of_knowledge_agrees_with_uniqueness_of_every_choice(rows: int, people: int | None) -> None:
    from itertools import combinations

    generator = np.random.default_rng(rows)
    table = pa.table({name: generator.integers(0, 5, rows) for name in "abcd"} | {"u": generator.integers(0, 50, rows)})
    unit = "u" if people else None
    for chosen, rate in sweep_knowledge(table, tuple("abcd"), unit=unit):
        every = [measure_uniqueness(table, some, unit=unit).attack for some in combinations("abcd", len(chosen))]
        assert rate == max(every, key=lambda one: one.share)
        assert rate == measure_uniqueness(table, chosen, unit=unit).attack


@pytest.mark.parametrize(("missing", "asked"), [(0.0, True), (0.85, False)])
def test_an_l_that_is_asked_stands_in_the_policy_and_one_that_cannot_be_is_not_asked(
    missing: float, asked: bool
) -> None:
    """Rows without a secret are no more diverse than those that share one."""
    kept = [replace(column, missing=missing) if column.name == "diagnosis" else column for column in COLUMNS]
    made = replace(TABLE, columns=tuple(kept))
    decided = decide(made, recipient="public", technique="k-anonymity")
    release = parse(compose.write_policy(made, decided)).release.anonymize
    assert release is not None
    assert (decided.l is not None) is asked
    assert bool(release.l) is asked
    assert set(release.t) == {"diagnosis", "hiv"}
    told = next_question(made, replace(decided, **{"l" if asked else "k": None}))
    assert told is not None
    assert [line.split()[0] for line in told.about] == ["diagnosis", "hiv"]


def test_a_limit_is_asked_for_in_the_words_and_figures_of_the_policy() -> None:
    decided = decide(recipient="researchers")
    question = next_question(TABLE, replace(decided, risk=None))
    release = parse(compose.write_policy(TABLE, decided)).release
    assert question is not None
    assert release.joint is not None
    assert release.attack is not None
    assert (question.title, question.recommended) == (
        "Which share of people may all released columns together single out?",
        f"{float(release.joint.most):.0%}",
    )
    (most,) = set(release.attack.most.values())
    assert f"never more than {float(most):.0%}" in question.about[0]


def test_what_is_said_of_a_column_before_is_what_the_policy_says() -> None:
    """A hierarchy that is not declared would be drafted when rows are released, and be another than was shown."""
    decided = decide(recipient="researchers", technique="k-anonymity", roles={"charge": "quasi-identifier"})
    table = parse(compose.write_policy(TABLE, decided)).table("visits")
    told = {column.name: compose.describe_change(column, decided)[1] for column in COLUMNS}
    declared = {column.name: column.hierarchy for column in table.columns if column.role is Role.QUASI_IDENTIFIER}
    assert {name: spec.kind for name, spec in declared.items() if spec} == {
        "age": "standard", "sex": "withhold", "charge": "rounding"
    }  # fmt: skip
    ending = "withheld whole: as little as k asks"
    assert {name: told[name] for name in declared} == {
        "age": f"as it is, or coarser, step by step, {ending}",
        "sex": f"as it is, or {ending}",
        "charge": "as it is, or " + "".join(f"rounded down to multiples of {10**i}, " for i in range(4)) + ending,
    }


def test_what_became_of_a_column_is_told_by_the_name_of_its_level_and_what_is_lost_or_left_out_is_said() -> None:
    decided = decide(recipient="researchers", technique="k-anonymity")
    dates = {"levels": 5, "hierarchy": {"dates": {"levels": ["month", "year", "decade"]}}}
    told = {at: compose.describe_change(COLUMNS[1], decided, None, dates | {"level": at})[1] for at in (0, 3, 4)}
    assert told == {0: "as it is", 3: "generalized by decade", 4: "lost whole: every value is withheld"}
    left = replace(decided, left_out={COLUMNS[1].name: "too many."})
    assert compose.describe_change(COLUMNS[1], left, None, dates | {"level": 0})[1] == "left out: too many."
    assert decisions.role_of(COLUMNS[1], left) is Role.UNDECIDED, "the policy withholds it"
    assert left.roles == decided.roles
