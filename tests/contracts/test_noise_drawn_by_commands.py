"""Commands that release, seen while they run: the ledger's file, what lies beside the output, and the draws.

A synthesis is charged with one Gaussian for all that it may measure, before any row is read; what it did measure is in
the model beside the rows. So here the draws are compared with the model, and the model with the charge; and a replay on
a neighbor must write the same bytes. Randomized tables and surveys charge no budget: their epsilon follows from what
each record draws.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent, from_dict
from deniable.ledger import Entry
from deniable.ledger.ledger import open_ledger
from deniable.localdp.client import randomize as respond
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import GRID, Unary
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.likelihood_ratio import is_within_epsilon
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale
from deniable.localdp.serialization import PROTOCOLS, recipe
from deniable.policy.document import read
from deniable.synth.methods import METHODS
from noise_spy import (
    Spy,
    Tape,
    additive_noise,
    check_noise_was_added,
    drawn_noise,
    flatten,
    share_of_claim,
    watch_noise,
)

MOST = 3
POLICY = f"""
version: 1
dataset: clinic
tables:
  patients:
    source: patients.parquet
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{role: identifier, type: integer}}
      sex: {{categories: [F, M], nullable: false}}
  visits:
    source: visits.parquet
    unit: {{column: pid, max_groups: 1, max_rows_per_group: {MOST}}}
    parent: patients
    sequence: day
    columns:
      pid:   {{role: identifier, type: integer}}
      ward:  {{role: quasi-identifier, nullable: false, categories: [a, b, c, d], hierarchy: {{order: [2]}}}}
      blood: {{role: sensitive, nullable: false, categories: [x, y]}}
      ill:   {{role: sensitive, nullable: false, type: boolean}}
      day:   {{role: sensitive, nullable: false, type: integer, between: [0, 999]}}
      note:  {{nullable: false}}
budgets: {{dataset: {{rho: 1000000, delta: 0.1}}}}
"""
BOUNDING = "deniable.synth.describe.render_bounded_select"


def _write_town(folder: Path, stranger: bool) -> Path:
    """Three hundred patients of up to three visits, and perhaps one more, with five."""
    folder.mkdir()
    (folder / "policy.yaml").write_text(POLICY)
    known = np.repeat(np.arange(300), 1 + np.arange(300) % 3)
    pid = np.concatenate([known, np.full(5 * stranger, 999)])
    ward = np.concatenate([np.random.default_rng(4).integers(0, 3, known.size), np.zeros(5 * stranger, int)])
    day = (37 * pid + 11 * np.arange(pid.size)) % 1000
    columns = {"pid": pid, "ward": ["abc"[w] for w in ward], "blood": ["xy"[w % 2] for w in ward], "ill": ward == 1}
    pq.write_table(pa.table(columns | {"day": day, "note": [f"{w}-ok" for w in ward]}), folder / "visits.parquet")
    who = np.unique(pid)
    pq.write_table(pa.table({"pid": who, "sex": ["FM"[p % 2] for p in who]}), folder / "patients.parquet")
    return folder


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two neighboring towns: the second has one patient more."""
    folder = tmp_path_factory.mktemp("towns")
    return _write_town(folder / "here", False), _write_town(folder / "there", True)


def _run(folder: Path, *words: str, tape: Tape | None = None) -> Spy:
    with watch_noise(tape) as spy:
        done = CliRunner().invoke(app, [*words, "-p", str(folder / "policy.yaml"), "--ledger", str(folder / "l.db")])
    assert done.exit_code == 0, done.output
    return spy


def _last_entry(folder: Path) -> Entry:
    ledger = open_ledger(folder / "l.db", read(folder / "policy.yaml"), writable=False)
    try:
        return list(ledger.entries(acts=("charge", "release")))[-1]
    finally:
        ledger.close()


def _model_event(path: Path) -> Event:
    """All that a model file says was measured."""
    held = json.loads(path.read_text())
    parts = [held["people"], held["rows"]] if "people" in held else [held]
    return ComposedEvent(tuple(from_dict(part["event"]) for part in parts))


SYNTHESES = {
    **{name: ("--method", name) for name in METHODS},
    "a workload": ("--workload", "ward,blood,ill"),
    "people with their rows": ("--linked",),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", SYNTHESES)
def test_synthetic_rows_cost_what_was_drawn_and_are_the_same_of_neighbors(name: str, towns: tuple[Path, Path]) -> None:
    spies, made = [], []
    for folder in towns:
        (folder / "made").mkdir(exist_ok=True)
        out = folder / "made" / f"{name.replace(' ', '-')}.parquet"
        budget = () if name == "random" else ("--epsilon", "2", "--delta", "1e-6")
        tape = spies[0].recorded() if spies else None
        spies.append(_run(folder, "synthesize", "visits", *budget, *SYNTHESES[name], "--rows", "40", "-o", str(out),
                          tape=tape))  # fmt: skip
        made.append((pq.read_table(out).to_pylist(), out.with_name(out.name + ".model.json").read_text()))
    assert made[0] == made[1], "with the same noisy answers other rows were written"
    spy, again = spies
    assert {by for by, _ in spy.salts} == {BOUNDING}
    assert not again.draws
    _check_charge(towns[0], spy, _model_event(towns[0] / "made" / f"{name.replace(' ', '-')}.parquet.model.json"))
    shares = [share_of_claim(a, b) for a, b in zip(spy.measured, again.measured, strict=True)]
    assert max(shares, default=0) == (0 if name == "random" else 1)


def _check_charge(folder: Path, spy: Spy, bill: Event) -> None:
    """Draws are those of the model's bill, and that is worth no more than the ledger's one Gaussian."""
    events = flatten(bill)
    assert additive_noise(events) == drawn_noise(spy.draws)
    check_noise_was_added(spy)
    charged = flatten(from_dict(_last_entry(folder).event))
    worth = sum(event.sensitivity_squared / event.variance for event in events)
    assert worth <= sum(event.sensitivity_squared / event.variance for event in charged)
    assert all(isinstance(event, GaussianEvent) for event in (*events, *charged))
    assert bool(charged) == bool(events)


def test_describing_alone_is_charged_and_drawn_alike(towns: tuple[Path, Path]) -> None:
    out = towns[0] / "described.json"
    spy = _run(towns[0], "describe", "visits", "--rho", "1/10", "-o", str(out))
    _check_charge(towns[0], spy, _model_event(out))


def test_generating_draws_nothing_and_reads_no_row(towns: tuple[Path, Path]) -> None:
    model = towns[0] / "alone.json"
    _run(towns[0], "describe", "visits", "--rho", "1/10", "-o", str(model))
    with watch_noise() as spy:
        done = CliRunner().invoke(app, ["generate", str(model), "--rows", "9", "-o", str(towns[0] / "nine.csv")])
    assert done.exit_code == 0
    assert not spy.draws
    assert not spy.salts


def test_a_trained_model_is_charged_as_it_drew(towns: tuple[Path, Path]) -> None:
    spy = _run(towns[0], "train", "visits", "--target", "day", "--epsilon", "1", "-o", str(towns[0] / "day.json"))
    assert additive_noise(flatten(from_dict(_last_entry(towns[0]).event))) == drawn_noise(spy.draws)
    check_noise_was_added(spy)
    assert {by for by, _ in spy.salts} == {BOUNDING}


def test_a_randomized_table_spends_the_epsilon_that_the_ledger_names_on_every_row(towns: tuple[Path, Path]) -> None:
    """Categories by k-ary response, whose odds are in its one draw; numbers by noise of their whole range."""
    rows = pq.read_table(towns[0] / "visits.parquet").num_rows
    columns = ("-c", "ward", "-c", "blood", "-c", "day")
    spy = _run(towns[0], "randomize", "--table", "visits", "-e", "3", *columns, "-o", str(towns[0] / "told.parquet"))
    entry = _last_entry(towns[0])
    assert entry.details["local_epsilon"] == str(3 * MOST)  # all the rows that a patient may have
    assert not spy.measured
    assert {by for by, _ in spy.salts} == {BOUNDING}
    # Before each answer, a category for rows that have none: drawn for all rows, so that it tells nothing of any.
    assert [draw.size for draw in spy.draws[:5]] == [rows] * 5
    spare_ward, ward, spare_blood, blood, day = spy.draws[:5]
    assert (spare_ward.parameter, spare_blood.parameter) == (4, 2)
    assert (ward.sampler, blood.sampler, day.sampler) == ("uniform_below", "uniform_below", "discrete_laplace")
    # One epsilon each: of k answers the true one has `odds` parts of the draw, and the others one part each.
    for draw, answers in ((ward, 4), (blood, 2)):
        assert draw.parameter == Direct.calibrate(answers, 1).draws[0]
        assert is_within_epsilon(Direct.calibrate(answers, 1).odds, 1)
    assert 999 / day.parameter == 1


SCALE = Scale.between(0, 60)
WORDS = ("fig", "plum", "pear", "quince", "fig")
PEOPLE = np.array([0, 3, 1, 2, 0])
HYBRID = Hybrid(Duchi(SCALE, Fraction(3)), Window(SCALE, 12, 5, Fraction(3)), 30000)
SKETCH = HadamardSketch(5, 8, Fraction(3))
BITS = "deniable.localdp.frequency.unary._draw_bytes"
"""Strings of biased bits have a sampler of their own, which reads entropy itself."""


def _uniform(*bounds: int) -> list[tuple[str, Any, int]]:
    return [("uniform_below", Fraction(bound), PEOPLE.size) for bound in bounds]


LOCAL: dict[str, tuple[Any, Any, list[tuple[str, Any, int]], bool]] = {
    # The protocol, the answers, what is drawn for all of them, and whether bits are drawn beside it.
    "coins": (two_coins(), PEOPLE % 2, _uniform(len(two_coins().instructions)), False),
    "k-ary": (Direct(4, Fraction(7, 2)), PEOPLE, _uniform(7 + 3 * 2), False),
    "unary": (Unary.calibrate(4, 1), PEOPLE, _uniform(GRID), True),
    "hashing": (LocalHashing(4, 3, Fraction(5, 2)), PEOPLE, _uniform(1 << 32, 5 + 2 * 2), False),
    "hadamard": (Hadamard(4, 2, Fraction(3)), PEOPLE, _uniform(3 + 3, 4, 3), False),
    "subset": (Subset(4, 2, Fraction(3)), PEOPLE, _uniform(2 * 3 + 2, 3, 2), False),
    "rappor": (Rappor.calibrate(2, width=8, hashes=1, cohorts=2), WORDS, _uniform(2), True),
    "count-mean-sketch": (CountMeanSketch.calibrate(2, hashes=3, width=8), WORDS, _uniform(3), True),
    "hadamard-sketch": (SKETCH, WORDS, _uniform(5, 8, 4), False),
    # Two levels and one turn that counts; the turn is drawn for everybody alike.
    "prefix-tree": (PrefixTree(ascii_lowercase, 4, 2, 1, SKETCH), WORDS, _uniform(3, 5, 8, 4), False),
    "laplace": (BoundedLaplace.calibrate(SCALE, 2), PEOPLE, [("discrete_laplace", Fraction(30), PEOPLE.size)], False),
    "duchi": (Duchi(SCALE, Fraction(3)), PEOPLE, _uniform(60, 4), False),
    "window": (Window(SCALE, 12, 5, Fraction(3)), PEOPLE, _uniform(60, 5 * 3 + 12), False),
    # Both arms are drawn for everybody, so that time does not tell which was taken.
    "hybrid": (HYBRID, PEOPLE, _uniform(GRID, 60, 4, 60, 5 * 3 + 12), False),
}


@pytest.mark.parametrize("name", LOCAL)
def test_a_local_randomizer_draws_for_every_answer_and_with_its_own_odds(name: str) -> None:
    protocol, answers, expected, bits = LOCAL[name]
    with watch_noise() as spy:
        protocol.randomize(answers)
    assert [(draw.sampler, draw.parameter, draw.size) for draw in spy.draws] == expected
    assert {by for by, _ in spy.salts} == ({BITS} if bits else set())


def test_every_protocol_is_among_the_cases() -> None:
    assert {protocol.name for protocol in PROTOCOLS} == set(LOCAL)


UNIFORM = [name for name, case in LOCAL.items() if not case[3] and name not in ("laplace", "hybrid")]


@pytest.mark.parametrize("name", UNIFORM)
def test_the_client_on_a_respondents_device_draws_the_same(name: str) -> None:
    protocol, answers, expected, _ = LOCAL[name]
    for answer in answers:
        drawn: list[int] = []
        respond(recipe(protocol), answer if isinstance(answer, str) else int(answer), _note(drawn))
        assert drawn == [int(bound) for _, bound, _ in expected]


def _note(drawn: list[int]) -> Callable[[int], int]:
    def draw(bound: int) -> int:
        drawn.append(bound)
        return bound - 1

    return draw
