"""Whatever is done to a policy, it becomes a Policy or a PolicyError, and never anything else."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from deniable.errors import PolicyError
from deniable.policy.document import Policy, parse
from deniable.policy.grammar import Amount, Choice, Either, Flag, Kinds, ListOf, Named, Record, Shape, Whole
from deniable.policy.layout.policy_file import POLICY

SEED = """\
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: id, max_groups: 5, max_rows_per_group: 2}
    columns:
      id: {role: identifier, mask: {token: {key: people}}}
      zip: &zip {role: quasi-identifier, hierarchy: {redact: right}}
      work: {<<: *zip}
      born: {type: date, between: [1910-01-01, 2026-12-31], hierarchy: {dates: [month, year]}}
      sex: {categories: [F, M]}
      charge: {type: decimal, between: [0, 250000], step: 0.01}
      town: {hierarchy: {tree: {inline: {any: {north: [Oslo], south: [Rome]}}}}}
budgets:
  dataset: {epsilon: 10, delta: 1e-6, accounting: zcdp}
  purposes: {research: {epsilon: 4, every: month}}
  analysts: {ana: {purposes: [research], epsilon: 1, columns: [sex]}}
release:
  anonymize: {k: 5, l: {sex: 2}, models: [{average_risk: 0.1}]}
  truths: [{impossible: {when: {sex: M}}}, {order: [zip, work]}]
keys: {people: {env: KEY}}
expires: 2027-12-31
"""
SCRAPS = [
    "{", "}", "[", "]", ":", ",", "-", "&a ", "*a", "*zip", "<<: ", "!", "|", ">", "#", "'", '"', "\t", "\n", "  ",
    "? ", "null", "~", "1e999", "-1", "0", "02138", ".inf", ".nan", "2020-02-30", "9" * 80, "true", "NO", "\x00",
    "\u2028", "é", "redact", "token", "like", "row", "file", "column", "%", "---\n", "[]", "{}", "''", "1" * 5000,
    "..", "/", "\ufeff",
]  # fmt: skip


def outcome(text: str) -> Policy | PolicyError:
    try:
        found: Policy | PolicyError = parse(text)
    except PolicyError as refused:
        found = refused
    if isinstance(found, PolicyError):
        assert found.mistakes
        assert all(mistake.place and mistake.place.line >= 1 for mistake in found.mistakes)
        assert isinstance(found.as_dict(), dict)
    else:
        assert found.hash == parse(text).hash
    return found


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = SEED
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 30))
        text = text[:at] + draw(st.sampled_from(SCRAPS)) + text[at + length :]
    return text


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_a_mutated_policy_is_a_policy_or_a_policy_error(text: str) -> None:
    outcome(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
@example("a: !!binary x")
@example("? ")
@example("!!set {a, b}")
@example("%YAML 9.9\n---\na: 1")
@example("%TAG ! tag:x,2000:\n--- !a b")
@example("a: 2020-99-99T99:99:99Z")
@example("\ud800")
def test_any_text_is_a_policy_or_a_policy_error(text: str) -> None:
    outcome(text)


def written(shape: Shape, chance: random.Random, depth: int = 0) -> str:
    """YAML for a shape, right in most places and wrong in some: values that reach the later checks."""
    if chance.random() < 0.03:
        return chance.choice(["null", "[]", "{}", "x", "-1", "''", "[1, 1]", "{a: {b: c}}", "0.3"])
    match shape:
        case Record():
            return "{" + ", ".join(_field(shape, chance, depth)) + "}"
        case Named(item):
            names = chance.sample(["a", "b", "c", "d", "research"], chance.randint(0, 3))
            return "{" + ", ".join(f"{name}: {written(item, chance, depth + 1)}" for name in names) + "}"
        case ListOf(item, least=least):
            return (
                "[" + ", ".join(written(item, chance, depth + 1) for _ in range(max(least, chance.randint(0, 2)))) + "]"
            )
        case Either(shapes):
            return written(chance.choice(shapes), chance, depth)
        case Kinds(kinds=kinds):
            kind = chance.choice(kinds)
            return f"{{{kind.name}: {written(kind.record, chance, depth + 1)}}}"
        case Choice(words):
            return f"'{chance.choice(words)}'"
        case Whole() | Amount():
            return chance.choice(["1", "2", "5", "0.5", "1e-6"])
        case Flag():
            return chance.choice(["true", "false"])
    return chance.choice(["a", "b", "research", "1", "2", "2020-01-01", "2021-01-01", "'x'"])


def _field(shape: Record, chance: random.Random, depth: int) -> list[str]:
    chosen = [f for f in shape.fields if f.required or (depth < 9 and chance.random() < 0.6)]
    return [f"{f.name}: {written(f.shape, chance, depth + 1)}" for f in chosen]


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_a_policy_drawn_from_the_grammar_is_a_policy_or_a_policy_error(seed: int) -> None:
    outcome(written(POLICY, random.Random(seed)))


def test_the_seed_of_the_mutations_is_a_policy() -> None:
    assert isinstance(outcome(SEED), Policy)
