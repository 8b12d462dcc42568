"""Modules of torch with Opacus: what one person can move, what is refused, whose claim is charged, and what leaves."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

pytestmark = pytest.mark.filterwarnings("ignore")  # torch and Opacus warn about themselves
torch = pytest.importorskip("torch", reason="the extra ml is not installed: `make test-ml` installs it")
pytest.importorskip("opacus", reason="the extra ml is not installed: `make test-ml` installs it")

from deniable import Curator, PrivateClassifier  # noqa: E402
from deniable.dp.accounting import cheap_epsilon  # noqa: E402
from deniable.errors import (  # noqa: E402
    BudgetExceeded,
    ExecutionFailed,
    IntegrityError,
    InternalError,
    ParameterError,
)
from deniable.learn import torch_module  # noqa: E402
from deniable.learn.features import STEPS, encode_rows, encode_target, encode_units  # noqa: E402
from deniable.learn.model import load_model  # noqa: E402
from deniable.learn.torch_module import UNIT, TorchPlan, claim_by_opacus  # noqa: E402
from deniable.learn.training import Planned, Task, plan_training, train_model  # noqa: E402
from deniable.policy.budget import ZCDP, ApproxDP  # noqa: E402
from deniable.policy.document import parse  # noqa: E402
from deniable.policy.schema import Neighboring, PrivacyUnit  # noqa: E402
from deniable.release import verify  # noqa: E402
from learning import PERSON, ROW, UNITS, Records, people, rows_of, table  # noqa: E402

nn = torch.nn
BUDGET = ApproxDP(1, "1e-6")
FEATURES = ("age", "sex", "town")
POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns:
      pid: {role: identifier, type: integer}
      age: {type: integer, between: [0, 100]}
      sex: {categories: [F, M]}
      town: {categories: [Ada, Brin, Cole], nullable: false}
      ill: {type: boolean, role: sensitive}
budgets:
  dataset: {epsilon: 3, delta: 1e-5, accounting: zcdp}
"""


def _make(inputs: int, outputs: int) -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, outputs))


def _plan(target: str = "ill", unit: PrivacyUnit = ROW, budget: Any = BUDGET, **own: Any) -> Planned:
    features = tuple(name for name in FEATURES if name != target)
    return plan_training(table(unit), unit, Task(target, features, **{"module": _make, "turns": 4} | own), budget)


def _gradient(what: Planned, units: list[Records]) -> np.ndarray:
    """The exact sum that a turn gives to the mechanism, everyone being in the sample."""
    plan = what.plan
    assert isinstance(plan, TorchPlan)
    rows = rows_of([record | {"pid": place} for place, unit in enumerate(units) for record in unit])
    wanted, known = encode_target(what.target, rows)
    held, persons = encode_rows(what.design, rows)[known], encode_units(rows, "pid")[known]
    return plan.sum_gradients(plan.place_weights(), held, wanted[known], persons)


PLANS = {
    (target, clip): _plan(target, PERSON, clip=clip, rate=1)
    for target in ("ill", "charge", "town")
    for clip in ("1/10", 64)
}


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("case", PLANS, ids=str)
@settings(deadline=None, max_examples=8)
@given(units=UNITS)
def test_no_person_moves_a_turn_farther_than_the_clip(case: Any, alone: bool, units: list[Records]) -> None:
    what = PLANS[case]
    plan = what.plan
    assert isinstance(plan, TorchPlan)
    what = replace(what, plan=replace(plan, alone=alone, together=2 if alone else plan.together))
    whole = _gradient(what, units)
    for place in range(len(units)):
        without = [unit for other, unit in enumerate(units) if other != place]
        moved = whole - _gradient(what, without)
        assert sum(int(each) ** 2 for each in moved) <= plan.settings.most**2 == plan.mechanism.sensitivity_squared


def test_a_module_without_its_clip_is_caught_by_that_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    what = _plan(clip="1/1000", rate=1)
    plan: Any = what.plan
    person: Records = [{"age": 100, "sex": "F", "town": "Ada", "ill": False}]
    assert 0.9 * plan.settings.most < np.linalg.norm(_gradient(what, [person])) <= plan.settings.most
    monkeypatch.setattr(torch_module, "clip_persons", lambda found, *_: np.rint(found * UNIT).astype(np.int64))
    assert np.linalg.norm(_gradient(what, [person])) > plan.settings.most


def test_the_sum_of_gradients_is_that_of_the_loss() -> None:
    what = _plan(clip=64, rate=1)
    plan, rows = what.plan, people(50)
    assert isinstance(plan, TorchPlan)
    entries, truth = encode_rows(what.design, rows), encode_target(what.target, rows)[0]
    found = plan.sum_gradients(plan.place_weights(), entries, truth, np.arange(50)) / UNIT
    network = plan.module.load(plan.place_weights()).double()
    told = network(torch.from_numpy(entries[:, 1:] / STEPS))[:, 0]
    (nn.functional.softplus(told) - torch.from_numpy(truth) * told).sum().backward()
    wanted = np.concatenate([each.grad.numpy().ravel() for each in network.parameters()])
    assert found == pytest.approx(wanted, abs=1e-4)


def test_a_row_has_one_gradient_wherever_it_stands_and_alone() -> None:
    what = _plan("town", rate=1)
    plan, rows = what.plan, people(700)
    assert isinstance(plan, TorchPlan)
    entries, truth = encode_rows(what.design, rows), encode_target(what.target, rows)[0]
    given = (plan.place_weights(), entries, truth, np.arange(700))
    whole = plan.sum_gradients(*given)
    assert not plan.alone
    assert plan.together == 256
    order = np.random.default_rng(0).permutation(700)
    assert (plan.sum_gradients(given[0], entries[order], truth[order], np.arange(700)) == whole).all()
    apart = replace(plan, alone=True, together=1).sum_gradients(*given)
    assert np.abs(apart - whole).max() < 700 * 16  # other kernels may round the last bits of a gradient otherwise


@pytest.mark.parametrize(
    "budget", [BUDGET, ApproxDP("0.1", "1e-6"), ApproxDP(4, "1e-5"), ZCDP("0.05", "1e-8")], ids=str
)
@pytest.mark.parametrize("rate", ["1/100", "1/10", 1])
def test_what_is_charged_is_no_less_than_opacus_claims(budget: Any, rate: Any) -> None:
    what = _plan(budget=budget, rate=rate, turns=100)
    plan, told = what.plan, what.guarantee
    assert isinstance(plan, TorchPlan)
    assert told.epsilon is not None
    assert 0.5 * float(told.epsilon) < plan.module.claimed <= 1.02 * float(told.epsilon)
    if isinstance(budget, ApproxDP):
        assert cheap_epsilon(plan.event, budget.delta) <= budget.epsilon  # type: ignore[operator]


@pytest.mark.parametrize("rate", ["1/10", 1])
def test_noise_that_opacus_prices_higher_is_refused(rate: Any) -> None:
    plan: Any = _plan(rate=rate, turns=100).plan
    claim_by_opacus(plan, 1.0, 1e-6)
    less = replace(plan, mechanism=replace(plan.mechanism, variance=plan.mechanism.variance * 8 / 10))
    with pytest.raises(InternalError, match="larger epsilon"):
        claim_by_opacus(less, 1.0, 1e-6)


def test_a_loader_that_takes_everyone_at_the_price_of_samples_would_be_refused() -> None:
    plan: Any = _plan(rate="1/10", turns=100).plan
    with pytest.raises(InternalError, match="larger epsilon"):
        claim_by_opacus(replace(plan, settings=replace(plan.settings, rate=1)), 1.0, 1e-6)


class Mixing(nn.Module):  # type: ignore[misc, name-defined]
    """A layer that takes away the mean of the rows: Opacus does not know it, and lets it pass."""

    def forward(self, rows: Any) -> Any:
        return rows - rows.mean(dim=0)


class Remembering(nn.Module):  # type: ignore[misc, name-defined]
    """A layer that keeps what it saw."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(inputs))
        self.line = nn.Linear(inputs, 1)

    def forward(self, rows: Any) -> Any:
        self.seen = rows.detach().sum(dim=0)
        return self.line(rows)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (lambda i, o: nn.Sequential(nn.Linear(i, 4), nn.BatchNorm1d(4), nn.Linear(4, o)), "Opacus refuses"),
        (lambda i, o: nn.Sequential(nn.Linear(i, 4), nn.Dropout(0.5), nn.Linear(4, o)), "another gradient"),
        (lambda i, o: nn.Sequential(nn.Linear(i, 4), nn.Tanh(), Mixing(), nn.Linear(4, o)), "another gradient"),
        (lambda i, o: nn.Linear(i, o + 1), "returns the shape"),
        (lambda i, o: nn.Linear(i + 1, o), "failed on two rows"),
        (lambda i, o: nn.Tanh(), "0 parameters"),
        (lambda i, o: "a module", "none of torch"),
    ],
)
def test_a_module_that_cannot_be_private_or_does_not_fit_is_refused_before_the_charge(
    module: Any, message: str
) -> None:
    with _curator() as curator:
        with pytest.raises(ParameterError, match=message):
            curator.train("visits", "ill", features=["age"], module=module, epsilon=1)
        assert curator.ledger.head() is None


@pytest.mark.parametrize(
    ("own", "unit"), [({"rate": "1/10"}, replace(ROW, neighboring=Neighboring.REPLACE)), ({"hidden": 3}, ROW)]
)
def test_settings_without_a_price_or_a_use_are_refused(own: dict[str, Any], unit: PrivacyUnit) -> None:
    with pytest.raises(ParameterError):
        _plan(unit=unit, **own)


def test_what_leaves_has_the_buffers_that_the_module_came_with() -> None:
    given = Remembering(_plan(rate=1).design.width - 1)
    before = [each.clone() for each in given.parameters()]
    what = _plan(module=given, rate=1)
    model = train_model(what, people(300))
    assert (model.build_network().seen == 0).all()
    assert (given.seen == 0).all()
    assert all((old == new).all() for old, new in zip(before, given.parameters(), strict=True))
    assert not any(hasattr(each, "grad_sample") or each.grad is not None for each in given.parameters())
    assert any((old != new).any() for old, new in zip(before, model.build_network().parameters(), strict=True))


def test_what_bends_is_learned() -> None:
    rows = people(6000)
    what = _plan(budget=ApproxDP(4, "1e-6"), turns=60, rate="1/20", learning_rate=0.1)
    model = train_model(what, rows)
    truth = encode_target(what.target, rows)[0]
    assert ((model.predict(rows) > 0.5) == truth).mean() > 0.8
    effects = {each.feature: each.coefficient for each in model.coefficient_table()}
    assert effects["age = 100"] > 1 > -1 > effects["age = 0"]


def _curator(**rest: Any) -> Curator:
    return Curator(parse(POLICY), sources={"visits": people(400)}, **rest)


def test_the_charge_is_written_before_the_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret of the data")

    with _curator() as curator:
        with pytest.raises(BudgetExceeded):
            curator.train("visits", "ill", module=_make, epsilon=50)
        assert curator.ledger.head() is None
        with monkeypatch.context() as broken:
            broken.setattr(torch_module, "clip_persons", fail)
            with pytest.raises(ExecutionFailed) as refusal:
                curator.train("visits", "ill", module=_make, epsilon=1, turns=2)
        assert "secret" not in str(refusal.value)
        assert curator.remaining() != _curator().remaining()


def test_a_model_file_has_weights_and_no_code_and_the_statement_says_whose_claim_it_is(tmp_path: Path) -> None:
    out = tmp_path / "net.json"
    with _curator() as curator:
        trained = curator.train("visits", "ill", features=["age"], module=_make, epsilon=1, turns=3, out=out)
    details = verify(out).body["details"]
    assert details["opacus_epsilon"] == pytest.approx(trained.model.module.claimed)  # type: ignore[union-attr]
    assert "floating point" in details["arithmetic"]
    rows, read = people(9), load_model(out)
    with pytest.raises(ParameterError, match="not its code"):
        read.predict(rows)
    with pytest.raises(ParameterError, match="not of this module"):
        read.attach(nn.Linear(3, 1))
    attached = read.attach(_make(len(read.design.entries) - 1, 1))
    assert attached.predict(rows) == pytest.approx(trained.predict(rows))
    for name, value in (("shapes", [["a", [3]]]), ("shapes", [["a", [-1]]]), ("claimed", "x")):
        plain = json.loads(out.read_text())
        plain["module"][name] = value
        out.write_text(json.dumps(plain))
        with pytest.raises(IntegrityError):
            load_model(out)


def test_an_estimator_takes_a_module(tmp_path: Path) -> None:
    rows = people(400).select(["pid", "age", "ill"])
    fitted = PrivateClassifier(
        parse(POLICY),
        "visits",
        "ill",
        features=["age"],
        module=_make,
        epsilon=1,
        turns=3,
        ledger=tmp_path / "ledger.db",
    ).fit(rows)
    assert fitted.predict_proba(rows).shape == (400, 2)
    assert isinstance(fitted.trained_.module, nn.Module)
