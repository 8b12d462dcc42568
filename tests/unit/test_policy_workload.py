"""A workload in the policy: which columns synthetic rows should get right together."""

from __future__ import annotations

import re

import pytest

from deniable.errors import PolicyError
from deniable.policy.access import Synthesize
from deniable.policy.document import Policy, parse

TEXT = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: patient_id, max_rows_per_group: 2}
    columns:
      patient_id: {role: identifier}
      sex: {categories: [F, M]}
      payer: {categories: [private, public]}
      charge: {type: decimal, between: [0, 1000], step: 1}
  wards:
    source: wards.csv
    unit: row
    columns:
      ward: {categories: [A, B]}
      beds: {type: integer, between: [0, 50]}
release:
  synthesize:
    workload: WORKLOAD
"""


def _parsed(workload: str) -> Policy:
    return parse(TEXT.replace("WORKLOAD", workload))


def test_lists_of_columns_are_kept_in_their_order() -> None:
    held = _parsed("[[sex, payer, charge], [ward, beds]]").release.synthesize
    assert held == Synthesize((("sex", "payer", "charge"), ("ward", "beds")))


def test_a_table_is_asked_for_the_lists_whose_columns_it_has() -> None:
    held = _parsed("[[sex, payer], [ward, beds]]").release.synthesize
    assert held.select_workload(("patient_id", "sex", "payer", "charge")) == (("sex", "payer"),)
    assert held.select_workload(("sex",)) == ()


def test_a_policy_without_a_workload_keeps_its_hash_and_asks_for_nothing() -> None:
    plain = parse(TEXT[: TEXT.index("release:")])
    assert plain.release.synthesize.workload == ()
    assert parse(TEXT[: TEXT.index("  synthesize:")].replace("release:", "release: {}")).hash == plain.hash
    assert _parsed("[[sex, payer]]").hash != plain.hash


@pytest.mark.parametrize(
    ("workload", "happened"),
    [
        ("[[sex, pyer]]", r"'pyer' is not a column of any table.*Did you mean 'payer'"),
        ("[[sex, ward]]", "sex, ward are not columns of one table"),
        ("[[visits.sex, payer]]", "are not columns of one table"),
        ("[[sex]]", "at least 2"),
        ("[sex, payer]", "a list"),
        ("[[sex, sex]]", "'sex' stands twice"),
        ("[[patient_id, sex]]", "'patient_id' is an identifier, which synthetic rows make anew"),
        ("{sex: payer}", "a list"),
        ("[]", "empty list"),
    ],
)
def test_what_is_no_workload_is_refused_with_its_line_and_what_was_meant(workload: str, happened: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        _parsed(workload)
    told = "\n".join(mistake.message for mistake in refusal.value.mistakes)
    assert told.startswith("policy:21:")
    assert re.search(happened, told, re.DOTALL), told


def test_another_word_is_refused_with_the_nearest() -> None:
    with pytest.raises(PolicyError) as refusal:
        parse(TEXT.replace("workload: WORKLOAD", "worklod: [[sex, payer]]"))
    assert "workload" in refusal.value.mistakes[0].message
