"""Time and memory: every long attack stops when its time is up, and none builds a matrix of everybody by everybody."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from deniable.assess.evidence import Evidence, Settings, run_trials
from deniable.assess.trials import TRIALS
from deniable.attacks.composition import cross_releases, join_releases, prepare_releases
from deniable.attacks.inference import infer_secret, link_halves
from deniable.attacks.linkage import Field, Like, link_with_errors
from deniable.attacks.minimality import infer_within_classes
from deniable.attacks.nearest_records import find_nearest, scale_tables
from deniable.attacks.ratings import Knowledge, Records, draw_facts, find_by_ratings, score_records
from deniable.attacks.singling_out import single_out_people
from deniable.attacks.tokens import invert_hashes
from deniable.attacks.uniqueness import find_identifying_sets
from deniable.errors import ParameterError, Stopped

MOMENT = 1e-9


def table(rows, seed=1):
    rng = np.random.default_rng(seed)
    return pa.table({"age": rng.integers(0, 90, rows), "pay": rng.normal(size=rows), "job": rng.integers(0, 9, rows),
                     "band": [f"[{10 * n}, {10 * n + 10})" for n in rng.integers(0, 9, rows)]})  # fmt: skip


TABLE = table(200)
STARS = Records.of(*(np.random.default_rng(2).integers(0, 40, 900) for _ in range(4)))
BANDS = TABLE.select(["band"]).rename_columns(["age"])
LONG = {
    "singling out": lambda: single_out_people(TABLE, TABLE, seconds=MOMENT),
    "linkability": lambda: link_halves(TABLE, TABLE, (["age"], ["pay"]), seconds=MOMENT),
    "inference": lambda: infer_secret(TABLE, TABLE, ["age"], "job", seconds=MOMENT),
    "ratings": lambda: find_by_ratings(STARS, Knowledge(4, 1), seconds=MOMENT),
    "dictionary": lambda: invert_hashes(["00ff00ff"], ["a"], seconds=MOMENT),
    "identifying sets": lambda: find_identifying_sets(TABLE, seconds=MOMENT),
    "fuzzy linkage": lambda: link_with_errors(TABLE, TABLE, [Field("age", Like.AGE), Field("job")], seconds=MOMENT),
    "joining": lambda: join_releases(BANDS, TABLE, ["age"], seconds=MOMENT),
    "crossing": lambda: cross_releases(prepare_releases([TABLE, TABLE], ["age"]), TABLE, "job", seconds=MOMENT),
}


@pytest.mark.parametrize("name", LONG)
def test_an_attack_stops_when_its_time_is_up(name):
    with pytest.raises(Stopped, match="did not finish within 1e-09 seconds"):
        LONG[name]()


def test_worlds_that_were_not_reached_are_said_to_be_missing():
    found = infer_within_classes(np.zeros(6, np.int64), list("aabbcc"), lambda deal: True, seconds=MOMENT)
    assert not found.complete


def test_the_motivated_intruder_keeps_what_was_finished_before_the_time_was_up():
    """Seconds are for all attacks together: those that finished are told, then the run stops."""
    evidence, kept = Evidence(TABLE, ("age", "job"), original=TABLE), []
    with pytest.raises(Stopped):
        run_trials(evidence, Settings(50, seconds=MOMENT), trials=TRIALS, finished=kept.append)
    assert kept == []
    run_trials(evidence, Settings(50), ("uniqueness", "linkage"), trials=TRIALS, finished=kept.append)
    assert [made.name for made in kept] == ["uniqueness", "linkage"]


def test_no_time_at_all_is_refused():
    with pytest.raises(ParameterError, match="time limit"):
        single_out_people(TABLE, TABLE, seconds=0)


def peak(work):
    """The most bytes that numpy and Python held during some work, beyond what was there before."""
    work()  # compiles
    tracemalloc.start()
    work()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def test_the_nearest_records_need_no_matrix_of_distances():
    targets, among = scale_tables([table(1_000, 3), table(10_000, 4)], ["age", "pay", "job"])
    assert peak(lambda: find_nearest(targets, among, 2)) < 1_000 * 10_000 * 8 / 50


def test_the_scoreboard_needs_room_for_each_person_and_not_for_each_target():
    rng = np.random.default_rng(5)
    records = Records.of(rng.integers(0, 20_000, 100_000), rng.integers(0, 50, 100_000), rng.random(100_000),
                         rng.integers(0, 99, 100_000))  # fmt: skip
    facts = draw_facts(records, Knowledge(3, 0), 400)
    assert peak(lambda: score_records(records, facts)) < 20_000 * 400 * 8 / 50


def test_predicates_are_counted_without_a_matrix_of_rows_by_predicates():
    large = table(20_000, 6)
    assert peak(lambda: single_out_people(large, large, attacks=400)) < 20_000 * 4_096 * 8 / 50
