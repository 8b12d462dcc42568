"""What a newcomer tries in a policy file, and the words that help."""

from __future__ import annotations

import pytest

from deniable.errors import PolicyError
from deniable.policy.document import parse

HEAD = "version: 1\ndataset: d\n"


def told(text: str) -> str:
    with pytest.raises(PolicyError) as caught:
        parse(text)
    return "\n".join(mistake.message for mistake in caught.value.mistakes)


def with_column(entry: str, rest: str = "") -> str:
    return f"{HEAD}tables: {{t: {{source: t.csv, unit: row, columns: {{a: {entry}}}}}}}\n{rest}"


@pytest.mark.parametrize(
    ("text", "helps"),
    [
        ("", "Draft one with: deniable policy init TABLE"),
        ("people.csv", "Expected: entries such as version, dataset, tables"),
        (HEAD, "the policy lacks 'tables'"),
        (HEAD + "tables: {t: {source: t.csv}}", "Say unit: row if each row is another person"),
        (
            HEAD + "tables: {t: {source: t.csv, unit: patient_id, columns: {patient_id: {}}}}",
            "row, edge, node or the keys of unit",
        ),
        (HEAD + "tables: {t: {source: t.csv, unit: row, columns: [a, b]}}", "Expected: entries, each under its name"),
        (HEAD + "tables:\n\tt: {}", "Indent with spaces"),
        (with_column("{type: string}"), "one of integer, decimal, text"),
        (with_column("{type: float}"), "one of integer, decimal, text"),
        (with_column("{role: PII}"), "identifier, quasi-identifier, sensitive, insensitive"),
        (with_column("{role: Quasi Identifier}"), "Did you mean 'quasi-identifier'?"),
        (with_column("{between: [0, 10]}"), "type: integer, decimal, date or datetime"),
        (with_column("{type: decimal, between: [0, 10]}"), "Such as step: 0.01"),
        (with_column("{type: integer, between: [0, '10']}"), "Take the quotes away"),
        (with_column("{type: decimal, between: [0, 10%], step: 1}"), "0.05 for 5%"),
        (with_column("{type: date, between: [01/02/2020, 2021-01-01]}"), "YYYY-MM-DD"),
        (with_column("{nullable: no}"), "Write false"),
        (with_column("{categories: F}"), "Write [F]"),
        (with_column("{mask: hash}"), "Known: redact, nullify"),
        (with_column("{mask: token}"), "Such as {token: {key: people}}"),
        (with_column("{hierarchy: {zip: right}}"), "Known: intervals, brackets, redact"),
        (with_column("{type: integer, hierarchy: {redact: right}}"), "It is for text"),
        (with_column("{}", "budget: {epsilon: 1}"), "Did you mean 'budgets'?"),
        (with_column("{}", "budgets: {epsilon: 1}"), "budgets"),
        (with_column("{}", "budgets: {dataset: {epsilon: one}}"), "a number, above 0"),
        (with_column("{}", "expires: never"), "a day as YYYY-MM-DD"),
        (with_column("{}", "release: {anonymize: 5}"), "Expected: entries such as k, l, t"),
        (with_column("{}", "keys: {people: 'hunter2hunter2'}"), "Expected: entries such as file, env, command"),
    ],
)
def test_a_newcomer_is_told_what_helps(text: str, helps: str) -> None:
    assert helps in told(text)


def test_a_key_written_into_the_policy_is_refused_and_never_repeated() -> None:
    for entry in ("hunter2hunter2", "{secret: hunter2hunter2}", "[hunter2hunter2]"):
        assert "hunter2" not in told(with_column("{}", f"keys: {{people: {entry}}}"))
    assert "hunter2" not in told(f"{HEAD}tables: {{t: {{source: 'postgresql://a:hunter2@h/d', public: true}}}}")


def test_all_mistakes_come_in_the_order_of_the_file() -> None:
    text = with_column("{rol: x, type: int}", "expires: never\n")
    with pytest.raises(PolicyError) as caught:
        parse(text)
    places = [(m.place.line, m.place.column) for m in caught.value.mistakes if m.place]
    assert len(places) == 3
    assert places == sorted(places)


def test_a_python_traceback_shows_every_mistake() -> None:
    with pytest.raises(PolicyError) as caught:
        parse(with_column("{rol: x}"))
    assert "Did you mean 'role'?" in str(caught.value)
