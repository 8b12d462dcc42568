"""The committed reference pages say what the code says."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from deniable.policy.access import Accounting
from deniable.policy.grammar import Field
from deniable.policy.layout.hierarchies import HIERARCHIES
from deniable.policy.layout.masks import MASKS
from deniable.policy.schema import Bounding, Neighboring, Role

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


def test_the_glossary_has_every_role_bounding_and_relation_and_no_word_twice() -> None:
    page = (DOCS / "reference" / "glossary.md").read_text(encoding="utf-8")
    for value in (*Role, *Bounding, *Neighboring, *Accounting):
        assert f"`{value}`" in page, value
    rows = [line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if line.startswith("| ")]
    words = [word.strip() for row in rows if row != "word" for word in row.split(",")]
    assert len(words) == len(set(words)) > 80


def test_the_policy_page_has_every_mask_and_hierarchy_with_every_option() -> None:
    page = GENERATE.policy_page()
    for kind in (*MASKS.kinds, *HIERARCHIES.kinds):
        assert f"### {kind.name}\n" in page
        assert all(f"| `{option.name}` |" in page for option in kind.fields)


def test_every_meaning_is_given() -> None:
    def fields(kinds: object) -> list[Field]:
        return [field for kind in kinds.kinds for field in kind.fields]  # type: ignore[attr-defined]

    assert all(field.meaning for field in [*fields(MASKS), *fields(HIERARCHIES)])


def list_commands(command: object, path: str = "") -> Iterator[str]:
    if not hasattr(command, "commands"):
        yield path
        return
    for name, inner in command.commands.items():
        yield from list_commands(inner, f"{path} {name}".strip())


def test_every_verb_is_there_in_python_and_at_the_command_line_or_has_a_reason() -> None:
    from typer.main import get_command

    from deniable import Curator
    from deniable.cli.main import app
    from deniable.client import Connection
    from deniable.curator.governance import steward

    commands = set(list_commands(get_command(app)))
    for what, python, cli, http in GENERATE.VERBS:
        holder, _, name = python.partition(".")
        holders = {"Curator": Curator, "steward": steward, "Connection": Connection}
        assert python.startswith("none: ") or callable(getattr(holders[holder], name, None)), python
        command = cli.partition(" --")[0]
        assert command in commands or cli.startswith("none: "), cli
        assert http.startswith(("GET /", "POST /", "DELETE /", "none: ")) or "`" in http, what
    told = {cli.partition(" --")[0] for _, _, cli, _ in GENERATE.VERBS}
    assert commands <= told, "a command that the table does not have"


def test_every_method_of_a_curator_is_in_the_table_or_goes_with_one_that_is() -> None:
    from deniable import Curator

    listed = {python.partition(".")[2] for _, python, _, _ in GENERATE.VERBS}
    # What explains or completes a verb, and what every object of a connection has.
    beside = {"policy", "ledger", "epoch", "remaining", "close", "interrupt", "record", "total_between"}
    methods = {name for name in dir(Curator) if not name.startswith(("_", "explain_"))}
    assert methods <= listed | beside
    explained = {name.removeprefix("explain_") for name in dir(Curator) if name.startswith("explain_")}
    assert all(name in listed or f"query_{name}" in listed for name in explained)


def test_every_path_of_the_table_is_one_of_the_server_and_every_one_of_the_server_is_there() -> None:
    from deniable.server.http import analyst_api, steward_api

    served = {
        f"{operation.method} {operation.path}"
        for module in (analyst_api, steward_api)
        for operation in module.OPERATIONS
    }
    named = [http for _, _, _, http in GENERATE.VERBS if http.startswith(("GET ", "POST ", "DELETE "))]
    assert len(named) > 10
    assert not [http for http in named if http not in served]
    assert served - {*named, "GET /health", "GET /ready"} == set(), "a path that the table does not have"


def test_the_python_page_has_every_public_method_with_its_help() -> None:
    from deniable import Curator

    page = GENERATE.python_page()
    for name in (name for name in dir(Curator) if not name.startswith("_")):
        assert f"### Curator.{name}\n" in page
