"""Totals of a stream add up only where a person is in one group."""

from __future__ import annotations

import pytest

import clinic
from deniable.curator import Curator
from deniable.errors import QueryRefused
from deniable.policy.document import parse

STREAM = """
version: 1
dataset: c
tables:
  visits:
    source: visits.parquet
    unit: {{column: pid, max_groups: {groups}, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer}}
      day: {{type: date, between: [2020-01-01, 2020-12-31]}}
      sex: {{categories: [F, M]}}
budgets: {{dataset: {{epsilon: 2, delta: 1e-5, accounting: zcdp}}}}
stream:
  daily:
    table: visits
    time: day
    every: day
    start: 2020-01-01
    periods: 5
    epsilon: 1
    delta: 1e-6
    max_periods: 1
    questions:
      people: {{count: people, by: [sex], levels: true}}
"""


@pytest.mark.parametrize(("groups", "refused"), [(1, False), (2, True)])
def test_totals_are_refused_where_a_person_may_be_in_several_groups(groups: int, refused: bool) -> None:
    rows = clinic.people(60).select(["pid", "day", "sex"])
    with Curator(parse(STREAM.format(groups=groups)), sources={"visits": rows}) as curator:
        if refused:
            with pytest.raises(QueryRefused, match="one person may be in several of its groups"):
                curator.explain_publish("daily")
        else:
            assert curator.explain_publish("daily") is not None
