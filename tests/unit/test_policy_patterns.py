"""Regular expressions of a policy: those that can explode, and templates that do not fit, are refused as it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deniable.errors import ParameterError, PolicyError
from deniable.masking import replacement, text_search
from deniable.policy.check.patterns import find_explosion, find_template_mistake
from deniable.policy.document import parse
from deniable.policy.layout.masks import PRESETS

EXPLODING = [
    r"(a+)+$",
    r"(a|aa)+$",
    r"(\w+\s?)*$",
    r"(a*)*b",
    r"([a-zA-Z]+)*@",
    r"(.*,)*x",
    r"^(\d+-?)+$",
    r"(x+x+)+y",
    r"(?:ab|ab)*c",
    r"(?i)(?:ab|AB)*c",
    r"((a{1,9}){1,9})x",
    r"(?=(a+)+b)c",
    r"(a?b?)*c",
    r"(?:\d\d|\d)*-",
    r"(?:\w|\d\w)*-",
]
HARMLESS = [
    r"\d{3}-\d{2}-(\d{4})",
    r"^\s*(\S+).*$",
    r"(\w+)@(\w+\.)+com",
    r"([A-Z][a-z]*\s)+x",
    r"(a|b)*c",
    r"^(.*), (.*)$",
    r"(?:,\s*\w+)*",
    r"\b(?:Dr|Mr|Mrs)\.? [A-Z]\w+",
    r"(?:[a-z]+-)*[a-z]+",
    r"(?<=x)\d+",
    r"x{2,100}",
    r"(?:\w|é)+$",  # one set of characters for Python
]


@pytest.mark.parametrize("expression", EXPLODING)
def test_an_expression_that_can_explode_is_refused_with_its_line(expression: str, tmp_path: Path) -> None:
    assert find_explosion(expression) is not None
    with pytest.raises(PolicyError) as refused:
        _policy(expression, "x", tmp_path)
    assert "explode" in refused.value.mistakes[0].message
    with pytest.raises(ParameterError, match="cannot be used"):
        replacement.Rewrite(expression, "x")


@pytest.mark.parametrize("expression", HARMLESS)
def test_an_expression_that_cannot_explode_is_let_through(expression: str, tmp_path: Path) -> None:
    assert find_explosion(expression) is None
    assert _policy(expression, "x", tmp_path).table("t").column("a") is not None


def test_no_expression_of_our_own_can_explode() -> None:
    searched = [(one.pattern, one.left, one.right) for one in text_search.FINDERS]
    ours = [pattern.pattern for patterns in searched for pattern in patterns if pattern is not None]
    presets = [preset.find for preset in PRESETS]
    assert [one for one in [*ours, *presets] if find_explosion(one)] == []


def test_a_template_that_names_a_missing_group_is_refused_when_the_policy_is_read(tmp_path: Path) -> None:
    assert find_template_mistake("a(b)", r"\1") is None
    for put in (r"\9", r"\g<name>", "\\"):
        assert find_template_mistake("a(b)", put) is not None
        with pytest.raises(PolicyError) as refused:
            _policy("a(b)", put, tmp_path)
        assert "'put' does not fit 'find'" in refused.value.mistakes[0].message
        with pytest.raises(ParameterError, match="cannot be used"):
            replacement.Rewrite("a(b)", put)


def _policy(find: str, put: str, folder: Path):  # type: ignore[no-untyped-def]
    quoted = [re.sub("'", "''", text) for text in (find, put)]
    mask = f"{{regex: {{find: '{quoted[0]}', put: '{quoted[1]}'}}}}"
    columns = f"      a: {{role: identifier, mask: {mask}}}"
    table = f"  t:\n    source: t.csv\n    unit: row\n    columns:\n{columns}\n"
    return parse(f"version: 1\ndataset: d\ntables:\n{table}", folder=folder)
