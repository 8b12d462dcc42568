"""The committed reference pages say what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from deniable.policy.grammar import Field
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.layout.masks import MASKS

DOCS = Path(__file__).parents[2] / "docs"


def _generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = _generate()


@pytest.mark.parametrize("name", sorted(GENERATE.PAGES))
def test_a_reference_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert committed == GENERATE.PAGES[name](), "run: make docs"


def test_the_policy_page_has_every_mask_and_hierarchy_with_every_option() -> None:
    page = GENERATE.policy_page()
    for kind in (*MASKS.kinds, *HIERARCHIES.kinds):
        assert f"### {kind.name}\n" in page
        assert all(f"| `{option.name}` |" in page for option in kind.fields)


def test_every_meaning_is_given() -> None:
    def fields(kinds: object) -> list[Field]:
        return [field for kind in kinds.kinds for field in kind.fields]  # type: ignore[attr-defined]

    assert all(field.meaning for field in [*fields(MASKS), *fields(HIERARCHIES)])
