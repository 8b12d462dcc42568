"""Regular expressions of a policy: those that can explode, and templates that do not fit, are refused as it is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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
MANY = [
    "(?i)(\u017fs|ss)+!",
    "(?i)(?:\u212ax|kx)*!",
    "(?i)(?:[a-s]x|\u017fx)*!",
    "a{1,60}" * 5,
    "a{1,60}" * 5 + "!",
    "^" + "a{1,60}" * 6 + "!",
    "a?" * 30 + "a" * 30,
    "(?:ab)?" * 24 + "(?:ab){24}c",
    r"\w{1,40}\d{1,40}\w{1,40}\d{1,40}-",
]
CUBIC = [
    r".*.*x",
    r"\d+\d+a",
    r".*,.*,",
    r"\s*(\w+)\s*\w+,",
    r"^.*,.*,.*x$",
    r".{0,500}.{0,500}x",
    r"(?m)^(.*),(.*)x",
    r"(\w+) ?(\w+)@",
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
    r"\d+-",
    r".*foo.*",
    r"(.*)foo(.*)",
    r"\d{1,5}\d{1,5}x",
    r"^(\w+) ?(\w+)@",
    r"(?:\w|é)+$",  # one set of characters for Python
]


@pytest.mark.parametrize("expression", EXPLODING + CUBIC)
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


@pytest.mark.parametrize("expression", [r".*.*x", r"\d+\d+a", r"^.*,.*,.*x$", r"\d+-", r"^(.*), (.*)$", r".*foo.*"])
def test_what_is_refused_grows_faster_than_with_the_square_of_the_length(expression: str) -> None:
    tree = [(op, value) for op, value in re._parser.parse(expression)]  # type: ignore[attr-defined]
    work = [_count_tries(tree, expression, text * times) for text in ("1", ",", ", ") for times in (12, 24)]
    growth = max(more / less for less, more in zip(work[::2], work[1::2], strict=True))
    assert (growth > 5.5) == (find_explosion(expression) is not None)  # doubled, a square is 4 and a cube 8


def _count_tries(tree: list[tuple[object, object]], expression: str, text: str) -> int:
    """How often a search that backtracks tries a part of an expression on a text in which it finds nothing."""
    tries = 0

    def match(at: int, part: int) -> bool:
        nonlocal tries
        tries += 1
        if part == len(tree):
            return True
        op, value = tree[part]
        return any(match(end, part + 1) for end in _list_ends(str(op), value, text, at))

    starts = range(1) if expression.startswith("^") else range(len(text) + 1)
    any(match(start, 0) for start in starts)
    return tries


def _list_ends(op: str, value: Any, text: str, at: int) -> list[int]:
    """Where a part of an expression can end that begins here, the longest first."""
    if op == "AT":
        return [at] if (at == 0 if "BEGINNING" in str(value) else at == len(text)) else []
    if op == "SUBPATTERN":
        op, value = str(value[3][0][0]), value[3][0][1]
    least, most, inner = value if op == "MAX_REPEAT" else (1, 1, [(op, value)])
    kind, wanted = inner[0]
    end = at
    while end < len(text) and end - at < most and (str(kind) == "ANY" or _reads(str(kind), wanted, text[end])):
        end += 1
    return list(range(end, at + least - 1, -1))


def _reads(kind: str, wanted: Any, sign: str) -> bool:
    return sign == chr(wanted) if kind == "LITERAL" else sign.isdigit()  # the classes here are digits


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


@pytest.mark.parametrize("expression", MANY)
def test_an_expression_that_reads_a_text_in_very_many_ways_is_refused(expression: str) -> None:
    assert find_explosion(expression) is not None


@pytest.mark.parametrize(
    "expression",
    [
        r"a{1,60}b{1,60}c{1,60}d{1,60}e{1,60}",
        r"\d{1,20}\.\d{1,20}",
        "(?i)(?:sb|sa)+!",
        "a?" * 8 + "!",
        r"(?:\w{1,30} ){1,8}x",
    ],
)
def test_an_expression_of_bounded_repetitions_that_differ_is_taken(expression: str) -> None:
    assert find_explosion(expression) is None
