"""The journeys of a survey: check its file, open its desk, invite, and read the results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.telling import LOCAL
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.localdp.survey.desk import Desk
    from deniable.localdp.survey.results import Contrast, Results

MOST_INVITATIONS = 1_000_000


def check(file: Path, respondents: int = 1000) -> dict[str, Any]:
    """What a survey will ask, send and find with so many respondents; or every mistake with its line."""
    from deniable.localdp.survey.definition import read
    from deniable.localdp.survey.forecast import forecast

    survey = read(file)
    questions = [asdict(forecast(question, respondents)) for question in survey.questions]
    whole = {"survey": survey.identity, "title": survey.title, "epsilon": float(survey.epsilon)}
    return whole | {"respondents": respondents, "invited": survey.invited, "questions": questions}


def default_store(file: Path) -> Path:
    """Where responses rest unless told otherwise: beside the survey file."""
    return file.with_suffix(".responses.sqlite")


def open_desk(file: Path, store: str | None = None) -> Desk:
    """The desk of a survey over its store."""
    from deniable.localdp.survey.definition import read
    from deniable.localdp.survey.desk import open_desk as opened

    return opened(read(file), store or default_store(file))


def invite(file: Path, count: int, address: str, store: str | None = None) -> list[str]:
    """Links for so many invited people; each lets one response in."""
    if not 1 <= count <= MOST_INVITATIONS:
        raise ParameterError(f"{count} invitations", expected=f"1 to {MOST_INVITATIONS}")
    desk = open_desk(file, store)
    links = [f"{address.rstrip('/')}/#{ticket}" for ticket in desk.invitations(count)]
    desk.store.close()
    return links


@dataclass(frozen=True, slots=True)
class Told:
    """The results of a survey and, where asked for, the differences between groups."""

    results: Results
    contrasts: tuple[Contrast, ...] = ()


def results(
    file: Path, store: str | None = None, confidence: float = 0.95, by: str | None = None, of: str | None = None
) -> Told:
    """Estimates with intervals from all stored responses."""
    from deniable.localdp.survey.definition import read
    from deniable.localdp.survey.desk import open_store
    from deniable.localdp.survey.results import contrast
    from deniable.localdp.survey.results import results as estimated

    if (by is None) != (of is None):
        raise ParameterError("a comparison needs two questions", expected="Both --by and --of")
    survey = read(file)
    kept = open_store(store or default_store(file), survey, writable=False)
    bodies = list(kept.bodies())
    kept.close()
    found = estimated(survey, bodies, confidence)
    return Told(found, contrast(survey, bodies, by, of) if by and of else ())


def record_results(told: Told, file: Path, policy: Path, ledger: str | None = None) -> Receipt:
    """Write to a ledger that results leave: under local privacy, shown beside what budgets bound.

    The same survey with as many responses is recorded once, however often its results are looked at.
    """
    from deniable.curator.offices import office
    from deniable.localdp.survey.definition import read

    survey, found = read(file), told.results
    request = f"survey {survey.identity} {found.responses}"
    facts: dict[str, Any] = {LOCAL: str(survey.epsilon), "survey": survey.identity, "responses": found.responses}
    with office(policy, ledger) as curator:
        return curator.record("local differential privacy", unit="one response", request=request,
                              question=request, **facts)  # fmt: skip


def page_of(desk: Desk) -> dict[str, Any]:
    """What the survey's page shows: the description that clients get, with words on privacy for each question."""
    from deniable.localdp.survey.words import how_deniable, what_leaves

    described = desk.survey.described()
    for shown, question in zip(described["questions"], desk.survey.questions, strict=True):
        shown |= {"leaves": what_leaves(question), "deniable": how_deniable(question)}
    return described


def client_file(name: str) -> bytes:
    """A client file (client.py, client.mjs, vectors.json) as it is handed to other developers."""
    from importlib.resources import files

    return files("deniable.localdp").joinpath(name).read_bytes()
