"""The last day of a policy is over at one moment for every machine: midnight in UTC, wherever the machine stands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import pytest

from deniable.curator import scope, survey
from deniable.curator.anonymize.request import Order
from deniable.curator.anonymize.run import anonymize
from deniable.curator.mask.run import mask, request_for
from deniable.errors import AccessRefused
from deniable.policy.document import parse

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: row
    columns:
      zip: {role: quasi-identifier, categories: [a, b]}
expires: 2026-06-01
"""

LAST_MINUTE = datetime(2026, 6, 1, 23, 59, tzinfo=UTC)
FIRST_MINUTE_AFTER = datetime(2026, 6, 2, 0, 1, tzinfo=UTC)


@pytest.fixture(params=["Pacific/Honolulu", "UTC", "Asia/Tokyo"])
def somewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as there:
        there.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


def clock(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    class Fixed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return moment.astimezone(tz)

    monkeypatch.setattr(scope, "datetime", Fixed)


@pytest.mark.usefixtures("somewhere")
def test_a_policy_is_in_force_to_the_end_of_its_last_day_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = parse(POLICY)
    clock(monkeypatch, LAST_MINUTE)
    assert scope.refuse_expired(policy) is policy
    clock(monkeypatch, FIRST_MINUTE_AFTER)
    with pytest.raises(AccessRefused, match="expired on 2026-06-01"):
        scope.refuse_expired(policy)


WORKFLOWS: dict[str, Callable[[Path], object]] = {
    "mask": lambda folder: mask(
        request_for(folder / "policy.yaml", str(folder / "visits.csv"), None, folder / "out.csv")
    ),
    "anonymize": lambda folder: anonymize(Order(folder / "visits.csv", folder / "out.csv", folder / "policy.yaml")),
    "randomize": lambda folder: survey.randomize(
        str(folder / "visits.csv"), folder / "policy.yaml", folder / "out.csv", 1
    ),
}


@pytest.mark.usefixtures("somewhere")
@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_workflow_with_a_policy_refuses_after_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "visits.csv").write_text("zip\na\nb\n")
    clock(monkeypatch, FIRST_MINUTE_AFTER)
    with pytest.raises(AccessRefused, match="expired"):
        WORKFLOWS[name](tmp_path)
    assert not (tmp_path / "out.csv").exists()
