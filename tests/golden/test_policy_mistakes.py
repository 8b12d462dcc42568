"""Bad policies beside the messages they must give: each NAME.yaml in `policies` with its NAME.txt."""

from __future__ import annotations

from pathlib import Path

import pytest

from deniable.errors import PolicyError
from deniable.policy.document import read

FOLDER = Path(__file__).parent / "policies"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def messages(name: str) -> str:
    with pytest.raises(PolicyError) as caught:
        read(FOLDER / f"{name}.yaml")
    return str(caught.value).replace("\n  ", "\n").replace(f"{FOLDER}/", "") + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_policy_gives_all_its_messages_at_once(name: str) -> None:
    assert messages(name) == (FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_mistake_has_a_line_inside_the_file(name: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read(FOLDER / f"{name}.yaml")
    lines = (FOLDER / f"{name}.yaml").read_text().count("\n") + 1
    assert caught.value.mistakes
    assert all(mistake.place and 1 <= mistake.place.line <= lines for mistake in caught.value.mistakes)
