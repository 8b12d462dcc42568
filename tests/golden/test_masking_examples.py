"""The worked examples of masking, by their names."""

from __future__ import annotations

import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.masking import keys, pseudonyms, replacement
from deniable.masking.plan import MaskContext, build_mask
from deniable.policy.schema import Spec, TableSchema

EXAMPLES = [
    ("first_and_last_letter", "Joseph", "J****h"),
    ("first_name", "Joseph Jefferson Mansfield", "Joseph"),
    ("last_four", "123-45-6789", "xxx-xx-6789"),
    ("first_six", "4111 1111 1111 1111", "411111xxxxxxxxxx"),
    ("street", "1600 Pennsylvania Avenue", "Pennsylvania Avenue"),
    ("street", "Hauptstraße 12a", "Hauptstraße"),
]


@pytest.mark.parametrize(("name", "before", "after"), EXAMPLES)
def test_regular_expressions_keep_what_they_are_named_for(name: str, before: str, after: str) -> None:
    assert replacement.make_preset(name).apply(pa.array([before])).to_pylist() == [after]


@pytest.mark.parametrize("name", ["last_four", "first_six", "first_and_last_letter", "street"])
def test_what_an_expression_does_not_fit_is_redacted_and_not_passed_through(name: str) -> None:
    assert replacement.make_preset(name).apply(pa.array(["?"])).to_pylist() == ["***"]


def test_same_input_same_token_one_input_one_output_and_counts_kept() -> None:
    people = ["ann", "bob", "ann", "cy", "ann"]
    masked = pseudonyms.make_token_mask(keys.generate_key("people"), "people").apply(pa.array(people)).to_pylist()
    assert [masked.count(token) for token in masked] == [people.count(name) for name in people]
    assert len(set(masked)) == len(set(people))


def test_an_unsalted_hash_is_refused() -> None:
    context = MaskContext(lambda name: keys.generate_key(name), __import__("pathlib").Path())
    with pytest.raises(ParameterError, match="dictionary of guesses"):
        build_mask(Spec("hash"), TableSchema("t", "t.csv", ()), "ssn", context)
