"""Looking for a row that keeps all truths has an end, whatever the truths are."""

from __future__ import annotations

import random

import pytest

from deniable.policy import truths as truths_module
from deniable.policy.schema import Column, ColumnType, Spec
from deniable.policy.truths import Effort, SearchTooLong, describe_contradiction, find_contradiction


def draw_hard(columns: int, count: int, seed: int) -> tuple[list[Column], list[Spec]]:
    """Combinations of three columns of yes and no that are impossible, about as many as there may be."""
    draw = random.Random(seed)
    listed = [Column(f"x{n}", ColumnType.BOOLEAN, nullable=False) for n in range(columns)]
    made = [
        Spec("impossible", {"when": {f"x{n}": draw.random() < 0.5 for n in draw.sample(range(columns), 3)}})
        for _ in range(count)
    ]
    return listed, made


@pytest.mark.parametrize(("columns", "count"), [(20, 86), (30, 129), (80, 344)])
@pytest.mark.parametrize("doubtful", [True, False])
def test_the_search_judges_so_many_trees_and_no_more(
    columns: int, count: int, doubtful: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, judge = [0], truths_module.judge

    def counted(*args: object) -> int:
        judged[0] += 1
        return judge(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(truths_module, "MOST_WORK", 20_000)
    monkeypatch.setattr(truths_module, "judge", counted)
    listed, made = draw_hard(columns, count, 0)
    words = describe_contradiction(made, listed, doubtful=doubtful)
    assert judged[0] < 40 * 20_000, "each tree is judged with its parts, and a few searches follow one another"
    assert words == "" or words.startswith(("no row can keep", "the search was given up"))


def test_truths_that_are_given_up_are_accepted_in_a_policy_and_refused_before_rows_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(truths_module, "MOST_WORK", 2_000)
    listed, made = draw_hard(80, 344, 1)
    assert describe_contradiction(made, listed) == ""
    said = describe_contradiction(made, listed, doubtful=False)
    assert said.startswith("the search was given up before a row was found that keeps these truths together")
    assert len(find_contradiction(made, listed, doubtful=False)) > 300, "none is left out without having been looked at"


def test_easy_contradictions_are_still_named_with_no_more_than_it_takes() -> None:
    listed, made = draw_hard(40, 60, 2)
    against = [Spec("holds", {"condition": "x0 = true"}), Spec("holds", {"condition": "x0 = false"})]
    assert find_contradiction(made, listed) == ()
    assert find_contradiction([*against, *made[:20]], listed) == tuple(against)


def test_an_effort_ends() -> None:
    effort = Effort(2)
    effort.spend(5)
    with pytest.raises(SearchTooLong):
        effort.spend(1)
