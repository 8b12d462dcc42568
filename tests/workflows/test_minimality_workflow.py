"""Minimality and downcoding against releases of our own making, from the command line."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.attacks.minimality import assume_class_shares, infer_within_classes, read_interval_ends
from deniable.cli.main import app
from deniable.kanonymity.local_recoding import write_local
from deniable.kanonymity.models import KAnonymity
from deniable.kanonymity.request import Request, prepare
from deniable.kanonymity.search.mondrian import mondrian
from deniable.policy.schema import Spec


def run(*words):
    done = CliRunner().invoke(app, [*map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def attack(*words):
    made = json.loads(run("attack", *words, "--all", "--attacks", 100, "--json"))["attacks"]
    return {one["attack"]: one for one in made}


WARD = pa.table({"ward": ["a", "a", "b", "b", "b"], "illness": ["hiv", "hiv", "flu", "cold", "gout"]})


def released(folder, table, *words):
    pq.write_table(table, folder / "rows.parquet")
    run("anonymize", folder / "rows.parquet", "-o", folder / "out.parquet", *words)
    return folder / "out.parquet", folder / "rows.parquet"


def test_a_starred_ward_tells_who_made_it_necessary(tmp_path):
    """Ward a has two people and ward b three. Had the two illnesses that are the same been anywhere but in ward a, both
    wards would be diverse, and nothing would have been hidden: so both of ward a have it."""
    out, rows = released(tmp_path, WARD, "--qi", "ward", "--sensitive", "illness", "--k", 2, "--l", "illness=2")
    assert set(pq.read_table(out)["ward"].to_pylist()) == {"*"}
    (found,) = attack(out, "--original", rows, "--knows", "ward", "--sensitive", "illness")["minimality"]["outcomes"]
    assert found["exposed"]["successes"] == 2
    assert found["control"]["successes"] == 0
    assert found["figures"] == {"worlds": 6, "tried": 60}  # 5!/2! ways to deal, of which 3! give both to ward a
    assert found["warnings"][0].startswith("only 5 people")


def test_a_release_that_needed_no_generalization_tells_nothing_more(tmp_path):
    mixed = WARD.set_column(1, "illness", pa.array(["hiv", "flu", "hiv", "cold", "gout"]))
    out, rows = released(tmp_path, mixed, "--qi", "ward", "--sensitive", "illness", "--k", 2, "--l", "illness=2")
    (found,) = attack(out, "--original", rows, "--knows", "ward", "--sensitive", "illness")["minimality"]["outcomes"]
    assert found["exposed"]["successes"] == found["control"]["successes"] == 0


def test_a_larger_release_is_generalized_because_of_many_classes_and_tells_no_one(tmp_path):
    rng = np.random.default_rng(3)
    size = 300
    table = pa.table({"age": rng.integers(20, 80, size), "ward": rng.choice(list("abcd"), size),
                      "illness": rng.choice(["flu", "cold", "gout", "hiv"], size)})  # fmt: skip
    out, rows = released(tmp_path, table, "--qi", "age,ward", "--sensitive", "illness", "--k", 3, "--l", "illness=2",
                         "--hierarchy", "age=intervals:5,10,20")  # fmt: skip
    made = attack(out, "--original", rows, "--knows", "age,ward", "--sensitive", "illness")
    (found,) = made["minimality"]["outcomes"]
    assert found["exposed"]["successes"] == found["control"]["successes"]
    assert "sampled" in found["warnings"][0]
    assert "lowest to the highest" in made["downcoding"]["skipped"]  # brackets set beforehand have no informative ends


def test_k_alone_and_a_file_without_its_recoding_are_not_tried_and_say_why(tmp_path):
    out, rows = released(tmp_path, WARD, "--qi", "ward", "--sensitive", "illness", "--k", 2)
    told = attack(out, "--original", rows, "--knows", "ward", "--sensitive", "illness")["minimality"]
    assert "k alone does not look at secrets" in told["skipped"]
    told = attack(rows, "--original", rows, "--knows", "ward", "--sensitive", "illness")["minimality"]
    assert "recoding" in told["skipped"]


def test_the_ends_of_mondrians_intervals_are_somebodys_exact_values(tmp_path):
    rng = np.random.default_rng(4)
    table = pa.table({"age": rng.integers(18, 95, 400), "height": np.round(rng.normal(170, 12, 400)),
                      "illness": rng.choice(["flu", "cold"], 400)})  # fmt: skip
    out, rows = released(
        tmp_path, table, "--qi", "age,height", "--sensitive", "illness", "--k", 5, "--method", "mondrian"
    )
    (found,) = attack(out, "--original", rows, "--knows", "age,height", "--sensitive", "illness")["downcoding"][
        "outcomes"
    ]
    assert found["precision"]["share"] == 1
    assert found["exposed"]["share"] > 0.2  # 2 of 5 to 9 rows a class
    assert found["baseline"]["share"] < 0.2
    made = json.loads(CliRunner().invoke(
        app, ["attack", str(out), "--original", str(rows), "--knows", "age,height", "--all", "--json",
              "--most", "downcoding=0.05", "--attacks", "50"]).stdout)  # fmt: skip
    assert made["failed"]


def test_every_world_behind_a_mondrian_class_has_both_ends_by_brute_force():
    """Four people of ages 21 to 26 as one class, beside another: whichever ages give this release have both ends."""

    def make(ages):
        table = pa.table({"age": [*ages, 60, 60, 61, 61]})
        wide = {"age": Spec("intervals", {"widths": (1000,)})}  # no bracket that a class could fill by accident
        prepared = prepare(table, Request(("age",), (KAnonymity(3),)), wide)
        return sorted(write_local(table, prepared, mondrian(prepared))["age"].to_pylist())

    true = (21, 22, 22, 26)
    shown = make(true)
    assert shown[:4] == ["[21, 26]"] * 4
    worlds = [ages for ages in itertools.combinations_with_replacement(range(20, 28), 4) if make(ages) == shown]
    assert len(worlds) > 5
    assert all({21, 26} <= set(ages) for ages in worlds)
    outcome = read_interval_ends(pa.table({"age": shown[:4]}), pa.table({"age": true}), ["age"])
    assert (outcome.attack.successes, outcome.attack.trials, outcome.precision.share) == (2, 4, 1)


def test_ends_that_nobody_has_are_not_called_right():
    outcome = read_interval_ends(pa.table({"age": ["[20, 29]"] * 3}), pa.table({"age": [20, 25, 26]}), ["age"])
    assert (outcome.attack.successes, outcome.precision.successes, outcome.precision.trials) == (1, 1, 2)


def test_beliefs_without_a_reason_are_those_of_the_class():
    classes, values = np.array([0, 0, 1, 1, 1]), ["x", "y", "x", "x", "z"]
    free = infer_within_classes(classes, values, lambda deal: True)
    assert free.complete
    assert free.worlds == 2 * 3
    for one, other in zip(free.share, assume_class_shares(classes, values).share, strict=True):
        assert one == pytest.approx(other)
    some = infer_within_classes(classes, values, lambda deal: deal[0] == "x", most=5, seed=1)
    assert not some.complete
    assert some.share[0] in ({"x": 1.0}, {})
