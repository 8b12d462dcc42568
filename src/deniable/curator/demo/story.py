"""The frame of the story: a stage with the town on it, and the chapters in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deniable.curator.hall import Curator

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one chapter has to say: sentences, figures worth a table, and bars worth a plot."""

    title: str
    sentences: tuple[str, ...]
    table: tuple[Row, ...] = ()
    people: tuple[int, str] | None = None
    """So many of 1,000 people, and what they are."""
    commands: tuple[str, ...] = ()
    """How to do it yourself."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: the folder of the town, its size, and the curator of its hospital."""

    folder: Path
    people: int
    curator: Curator = field(repr=False)


Scene = Callable[[Stage], Chapter]


def scenes() -> tuple[Scene, ...]:
    """The chapters in the order in which they are told."""
    from deniable.curator.demo import coins, exposure, protections, questions

    return (
        exposure.linkage,
        exposure.uniqueness,
        protections.masked,
        protections.anonymized,
        questions.price,
        questions.answer,
        questions.averaging,
        protections.synthetic,
        coins.coins,
    )


def tell(folder: Path, people: int, progress: Callable[[float], None] | None = None) -> Iterator[Chapter]:
    """Make the town and tell the story, chapter by chapter."""
    from deniable.curator.demo import town

    yield town.made(folder, people, progress)
    with Curator.open(folder / "policy.yaml") as curator:
        stage = Stage(folder, people, curator)
        for scene in scenes():
            yield scene(stage)
