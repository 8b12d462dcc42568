"""A k-anonymous release before the ledger is told of it: everything that can be wrong in what was asked is found here.

Hierarchies are built, weights and models are laid beside the columns, files that are named are read. Nothing leaves and
nothing is written, so a mistake leaves the ledger and the folder as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from deniable.curator.anonymize import releases
from deniable.curator.anonymize.output import Work
from deniable.curator.anonymize.request import (
    COUNT,
    TABLE,
    find_protected,
    population_of,
    rows_to_release,
    statement,
)
from deniable.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.kanonymity.microaggregation import Aggregated
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Prepared


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ready:
    """What a release is made from: rows, or their counts by the columns that matter, and the problem they pose."""

    rows: pa.Table
    before: tuple[Recoding | None, ...] = ()
    """Earlier releases of the table."""
    prepared: Prepared | None = None
    population: pa.Table | None = None
    aggregated: Aggregated | None = None


def rehearse(work: Work, table: str) -> Ready:
    """Make ready what was asked, or refuse it; `table` is the name under which releases are remembered."""
    if work.context is not None:
        work.context.admit()
    before = releases.find_earlier(work.context, table, work.order)
    if work.order.method == "microaggregate":
        return replace(_aggregate(work), before=before)
    _refuse_weights(work)
    found = _count_rows(work) if work.order.method == "optimal" else _read_rows(work)
    return replace(found, before=before)


def _refuse_weights(work: Work) -> None:
    """Refuse weights of columns that are not generalized, also where the method weighs none."""
    from deniable.errors import nearest

    known = work.request.quasi_identifiers
    for name, weight in work.order.weights.items():
        if name not in known:
            expected = nearest(name, known) or "A quasi-identifier"
            raise ParameterError(f"A weight is given for '{name}'", expected=expected)
        if not weight >= 0:
            raise ParameterError(f"The weight of '{name}' is {weight}", expected="Weights are 0 or more")
    if known and sum(work.order.weights.get(name, 1.0) for name in known) <= 0:
        raise ParameterError("All weights are 0", expected="At least one column with a weight above 0")


def _count_rows(work: Work) -> Ready:
    """The rows counted by what they are judged by, which is enough to search one level for each column."""
    from deniable.kanonymity.request import prepare

    engine, request = work.engine, work.request
    population = population_of(engine, work.order, request)
    people = () if request.person is None else (request.person,)
    named = tuple(dict.fromkeys((*request.quasi_identifiers, *request.sensitive, *people)))
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    prepared = prepare(counted, request, work.roles.hierarchies, population=population, counts=COUNT)
    return Ready(counted, prepared=prepared, population=population)


def _read_rows(work: Work) -> Ready:
    from deniable.kanonymity.request import prepare

    table = _read_table(work)
    population = population_of(work.engine, work.order, work.request)
    prepared = prepare(table, work.request, work.roles.hierarchies, population=population)
    return Ready(table, prepared=prepared, population=population)


def _read_table(work: Work) -> pa.Table:
    person = find_protected(work.engine, work.order, work.roles, work.person)
    return work.engine.run(rows_to_release(work.roles, work.engine, person=person))


def _aggregate(work: Work) -> Ready:
    """Numbers replaced by the means of groups of k."""
    from deniable.kanonymity.microaggregation import microaggregate
    from deniable.kanonymity.models import KAnonymity

    first, *others = work.request.models
    if others or not isinstance(first, KAnonymity):
        asked = ", ".join(str(each) for each in work.request.models if not isinstance(each, KAnonymity))
        raise ParameterError(f"Microaggregation makes groups of k rows, and knows no other model; {asked} is asked too",
                             remedy="Leave the other models out, or use --method mondrian")  # fmt: skip
    if first.person is not None:
        rows = "Leave --person out" if work.order.person is not None else "Count rows with --count-rows"
        raise ParameterError("Microaggregation makes groups of k rows, and k is to be counted in people",
                             expected="Rows are counted, or another method",
                             remedy=f"{rows}, or use --method mondrian")  # fmt: skip
    table = _read_table(work)
    return Ready(table, aggregated=microaggregate(table, work.request.quasi_identifiers, first.k))
