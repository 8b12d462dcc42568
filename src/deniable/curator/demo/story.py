"""The frame of the story: a stage with the town on it, and the chapters in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from deniable.curator.hall import Curator

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Chapter:
    """What one chapter has to say: sentences, figures worth a table, and those worth a plot."""

    title: str
    sentences: tuple[str, ...]
    table: tuple[Row, ...] = ()
    people: tuple[int, str] | None = None
    """So many of 1,000 people, and what they are."""
    bars: tuple[str, ...] = ()
    """Columns of the table that make bars on the page: their names, their lengths, and perhaps low and high ends."""
    commands: tuple[str, ...] = ()
    """How to do it yourself."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the story plays: the folder of the town, its size, its hospital's ledger and curator."""

    folder: Path
    people: int
    ledger: Path
    curator: Curator = field(repr=False)


Scene = Callable[[Stage], Chapter]


def scenes() -> tuple[Scene, ...]:
    """The chapters in the order in which they are told."""
    from deniable.curator.demo.coins import coins
    from deniable.curator.demo.exposure import linkage, uniqueness
    from deniable.curator.demo.protections import anonymized, masked, synthetic
    from deniable.curator.demo.questions import answer, averaging, price
    from deniable.curator.demo.record import attacked, ledger

    return (
        linkage,
        uniqueness,
        masked,
        anonymized,
        price,
        answer,
        averaging,
        synthetic,
        attacked,
        ledger,
        coins,
    )


def tell(folder: Path, people: int, progress: Callable[[float], None] | None = None) -> Iterator[Chapter]:
    """Make the town and tell the story, chapter by chapter."""
    from deniable.curator.demo.town import made

    yield made(folder, people, progress)
    ledger = _fresh_ledger(folder)
    with Curator.open(folder / "policy.yaml", ledger=ledger) as curator:
        stage = Stage(folder, people, ledger, curator)
        for scene in scenes():
            yield scene(stage)


def _fresh_ledger(folder: Path) -> Path:
    """The story's own ledger. A new town is nobody yet: what an earlier telling spent on another town is not kept."""
    ledger = folder / "story.ledger.sqlite"
    for left in folder.glob(ledger.name + "*"):
        left.unlink()
    return ledger
