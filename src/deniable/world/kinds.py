"""The kinds of worlds there are: their names, what is in them, and how many people they are made for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

MOST_PEOPLE = 10_000_000  # identifiers are unique up to here


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of world. The tables are made by the module of its name, which is loaded when first needed."""

    name: str
    summary: str
    tables: tuple[str, ...]
    reference: tuple[str, ...]
    usual: int  # people, where nobody says how many
    chunk: int  # people made at a time

    def batches(self, people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
        """The tables in pieces, for worlds larger than memory."""
        made: Iterator[dict[str, pa.Table]] = self._load_module().batches(people, seed)
        return made

    def lists(self) -> dict[str, pa.Table]:
        """The small public lists beside the tables, the same for every seed and size."""
        listed: dict[str, pa.Table] = self._load_module().reference()
        return listed

    def _load_module(self) -> Any:
        return import_module(f"deniable.world.{self.name}")


KINDS = (
    Kind(
        "hospital",
        "a town's voter roll and a year of visits to its hospital, with a governor to be found",
        ("voters", "visits", "truth"),
        ("diagnoses",),
        54_000,
        1 << 16,
    ),
    Kind(
        "salaries",
        "the payroll of a university: job, department, sex, hire date, pay",
        ("salaries",),
        (),
        5_469,
        1 << 16,
    ),
    Kind("survey", "answers that people give only if they can deny them", ("survey",), (), 20_000, 1 << 16),
    Kind("ratings", "films rated by viewers, with days and long tails", ("ratings",), ("films",), 20_000, 1 << 12),
    Kind("taxi", "taxi rides with places and times, busy and lone", ("rides",), ("hotspots",), 20_000, 1 << 15),
    Kind(
        "county",
        "people by block, friendships, calls to a help line, a poll: for censuses, networks, streams and weights",
        ("people", "friends", "calls", "poll"),
        ("blocks",),
        20_000,
        1 << 15,
    ),
)


def find_kind(name: str) -> Kind:
    """The kind of that name."""
    for known in KINDS:
        if known.name == name:
            return known
    names = [known.name for known in KINDS]
    raise ParameterError(
        f"There is no world '{name}'", expected=f"Known worlds: {', '.join(names)}", remedy=nearest(name, names)
    )


def check_size(people: int, seed: int) -> None:
    """Refuse sizes and seeds that cannot be."""
    if not 0 <= people <= MOST_PEOPLE:
        raise ParameterError(f"A world of {people} people", expected=f"From 0 to {MOST_PEOPLE:,}")
    if not 0 <= seed < 1 << 63:
        raise ParameterError(f"The seed {seed}", expected="A whole number from 0 to 2**63 - 1")
