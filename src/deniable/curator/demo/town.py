"""Chapter one: a town is made, and its hospital's policy is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deniable.curator import policies
from deniable.curator.demo.story import Chapter
from deniable.curator.worldmaking import make


def made(folder: Path, people: int, progress: Callable[[float], None] | None) -> Chapter:
    """The town and its policy."""
    told = make("hospital", people, None, folder, progress)
    checked = policies.check(folder / "policy.yaml")
    rows = told["rows"]
    assert isinstance(rows, dict)
    protects = next(table["protects"] for table in checked["tables"] if table["name"] == "visits")
    return Chapter(
        "A town and its hospital",
        (
            f"A town of {people:,} voters is generated; nobody in it exists.",
            f"Its hospital recorded {rows['visits']:,} visits, without names. Its voter roll has names and is public.",
            f"One policy file says what is protected: {protects}; the whole budget is {checked['budgets']['dataset']}.",
        ),
        commands=(f"deniable world make hospital --people {people} -o town", "deniable policy check town/policy.yaml"),
    )
