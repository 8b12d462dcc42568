"""The JSON Schema agrees with the checks where it can say anything at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from deniable.policy.document import parse
from deniable.policy.grammar import Kinds
from deniable.policy.json_schema import build_json_schema
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.layout.masks import MASKS
from deniable.policy.layout.policy_file import POLICY
from deniable.policy.layout.release import MODELS, TRUTHS

SCHEMA = build_json_schema(POLICY)
GOLDEN = Path(__file__).parents[1] / "golden" / "policies"
HEAD = "version: 1\ndataset: d\n"
NAMES = (
    *("zip", "city", "sex", "diagnosis", "admitted", "discharged"),
    *("room", "drugs", "charge", "height", "weight", "ward"),
)


def loaded(text: str) -> Any:
    """What an editor sees: YAML's own types, days as text."""
    yaml = YAML(typ="safe", pure=True)
    yaml.constructor.add_constructor("tag:yaml.org,2002:timestamp", lambda c, node: c.construct_scalar(node))
    return yaml.load(text)


def valid(text: str) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(loaded(text))


def test_the_schema_is_itself_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def _with(columns: str, rest: str = "") -> str:
    return f"{HEAD}tables: {{t: {{source: t.csv, unit: row, columns: {{{columns}}}}}}}\n{rest}"


@pytest.mark.parametrize(
    ("grammar", "key"), [(MASKS, "mask"), (HIERARCHIES, "hierarchy")], ids=["masks", "hierarchies"]
)
def test_every_example_of_the_grammar_parses_and_fits_the_schema(grammar: Kinds, key: str) -> None:
    others = ", ".join(f"{name}: {{type: decimal}}" for name in (*NAMES, "patient_id"))
    for kind in grammar.kinds:
        type_ = kind.types[0] if kind.types else "text"
        text = _with(
            f"home_zip: {{hierarchy: {{redact: right}}}}, x: {{type: {type_}, {key}: {kind.example}}}, {others}"
        )
        spec = getattr(parse(text).table("t").column("x"), key)
        assert spec.kind == (kind.name if kind.name != "like" else "redact")
        assert valid(text), kind.name


@pytest.mark.parametrize(("grammar", "where"), [(MODELS, "anonymize: {models: [%s]}"), (TRUTHS, "truths: [%s]")])
def test_every_example_of_a_promise_parses_and_fits_the_schema(grammar: Kinds, where: str) -> None:
    typed = {"age": "{type: integer}", "married": "{type: boolean}"}
    typed |= dict.fromkeys(("room", "drugs", "charge"), "{type: decimal}")
    typed |= dict.fromkeys(("admitted", "discharged"), "{type: date}")
    columns = ", ".join(f"{name}: {typed.get(name, '{}')}" for name in dict.fromkeys((*NAMES, *typed)))
    for kind in grammar.kinds:
        text = _with(columns, "release: {" + where % kind.example + "}")
        parse(text)
        assert valid(text), kind.name


@pytest.mark.parametrize("name", ["names", "protection", "kinds", "numbers"])
def test_the_schema_refuses_what_is_wrong_in_shape(name: str) -> None:
    assert not valid((GOLDEN / f"{name}.yaml").read_text())


@pytest.mark.parametrize(
    "text",
    [
        _with("a: {type: int}"),
        _with("a: {rol: sensitive}"),
        _with("a: {mask: tokn}"),
        _with("a: {mask: {token: {}}}"),
        _with("a: {}", "budgets: {dataset: {epsilon: 0}}"),
        _with("a: {}", "budgets: {dataset: {epsilon: 1, rho: 1}}"),
        HEAD,
    ],
)
def test_the_schema_and_the_check_refuse_alike(text: str) -> None:
    assert not valid(text)
    with pytest.raises(Exception, match="mistake"):
        parse(text)
