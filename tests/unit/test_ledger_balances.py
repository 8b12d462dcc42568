"""The balance that is shown is the balance that is enforced, whatever mix of charges came before.

Under zCDP a charge fits if one of two filters holds, so what is left depends on what is asked: a pure question, or
another. What is shown fits if it is asked in the unit that is shown, and a little more is refused.
"""

from __future__ import annotations

import json
import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator import Curator
from deniable.curator.governance import reports
from deniable.dp.accounting import ComposedEvent, Event, GaussianEvent, LaplaceEvent, PureEvent, ThresholdEvent
from deniable.errors import BudgetExceeded
from deniable.governance.grants import Asker
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.budget_tree import Node, build_event, charge_nodes, name_least, say_least
from deniable.policy.access import Accounting, Analyst, Budgets, Purpose
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, round_amount, shorten_left

LITTLE = Fraction(1, 10**9)


def draw_limit(draw: random.Random, accounting: str) -> Budget:
    epsilon, delta = Fraction(draw.randrange(5, 120), 10), Fraction(1, 10 ** draw.randrange(5, 9))
    if accounting == "zcdp" and draw.random() < 0.25:
        return ZCDP(epsilon / 10, delta)
    return PureDP(epsilon) if accounting == "pure" and draw.random() < 0.5 else ApproxDP(epsilon, delta)


def draw_ledger(draw: random.Random, accounting: str) -> Ledger:
    limits = [draw_limit(draw, accounting) for _ in range(3)]
    analyst = Analyst("ana", ("care",), limits[2] if draw.random() < 0.7 else None)
    purpose = Purpose("care", limits[1] if draw.random() < 0.7 else None)
    return Ledger("clinic", Budgets(limits[0], Accounting(accounting), (purpose,), (analyst,)))


def draw_charge(draw: random.Random, accounting: str) -> Event:
    amount, kind = Fraction(draw.randrange(1, 60), draw.choice((20, 100, 700))), draw.random()
    if kind < 0.65 or (accounting == "pure" and kind < 0.85):
        return PureEvent(amount) if kind < 0.4 else LaplaceEvent(1 / amount)
    if kind < 0.85:
        return GaussianEvent(variance=50 / amount)
    return ComposedEvent((PureEvent(amount / 10), ThresholdEvent(Fraction(1, 10**9))))


def ask_for(shown: Budget, accounting: str, more: Fraction = Fraction(0)) -> Event:
    """An event that costs what is shown, in its unit, and so much more."""
    if isinstance(shown, ZCDP):
        return build_event("zcdp", shown.rho + more, shown.delta)
    return build_event("pure", shown.epsilon + more, shown.delta if accounting == "pure" else Fraction(0))


def check_shown(ledger: Ledger, accounting: str) -> str:
    """What is left on the path of ana fits, and a little more does not; says in which unit it is told."""
    path = ("care", "ana")
    shown = ledger.find_remaining(*path)
    assert shown is not None
    amount = shown.rho if isinstance(shown, ZCDP) else shown.epsilon
    if amount:
        assert ledger.fits(ask_for(shown, accounting), *path)
    assert not ledger.fits(ask_for(shown, accounting, LITTLE), *path)
    told = re.sub(r"^[0-9]+% of epsilon [0-9.]+ ", "", say_least(ledger.balance(*path), shown))
    for left, of, unit, number in re.findall(r"([0-9.e-]+) of (\w+) [0-9.e-]+|(rho|epsilon|delta) ([0-9.e-]+)", told):
        check_said(ledger, accounting, of or unit, left or number)
    check_named(ledger, accounting, name_least(ledger.balance(*path), shown))
    return "rho" if isinstance(shown, ZCDP) else "epsilon"


def check_named(ledger: Ledger, accounting: str, named: dict[str, str] | None) -> None:
    """All that is named in JSON fits, rho together with its delta, and a little more of each does not."""
    assert named is not None
    assert set(named) == ({"epsilon", "rho", "delta"} if accounting == "zcdp" else {"epsilon", "delta"})
    for unit, number in named.items():
        check_said(ledger, accounting, unit, number)
    if accounting == "zcdp" and (named["rho"] != "0" or named["delta"] != "0"):
        assert ledger.fits(build_event("zcdp", Fraction(named["rho"]), Fraction(named["delta"])), "care", "ana")


def check_said(ledger: Ledger, accounting: str, unit: str, number: str) -> None:
    """A number as it is said, in four digits or more: it fits, and the next such number does not."""
    said = Fraction(number)
    if unit == "delta":
        assert not said or ledger.fits(ThresholdEvent(said), "care", "ana"), (unit, number)
        assert not ledger.fits(ThresholdEvent(said * Fraction(1002, 1000) + LITTLE**2), "care", "ana"), (unit, number)
        return
    event = (lambda amount: build_event("zcdp", amount, Fraction(0))) if unit == "rho" else PureEvent
    assert not said or ledger.fits(event(said), "care", "ana"), (unit, number)
    assert not ledger.fits(event(said * Fraction(1002, 1000) + LITTLE), "care", "ana"), (unit, number)


@pytest.mark.parametrize("accounting", ["zcdp", "pure"])
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 600), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_what_is_shown_fits_and_a_little_more_does_not(accounting: str, seeds: range) -> None:
    units = set()
    for seed in seeds:
        draw = random.Random(f"{accounting} {seed}")
        ledger = draw_ledger(draw, accounting)
        units.add(check_shown(ledger, accounting))
        for _ in range(draw.randrange(1, 12)):
            try:
                receipt = ledger.charge(
                    Posting(Act.CHARGE, draw_charge(draw, accounting), purpose="care", analyst="ana")
                )
            except BudgetExceeded:
                continue
            assert receipt.remaining == ledger.find_remaining("care", "ana")
            units.add(check_shown(ledger, accounting))
    assert units == ({"rho", "epsilon"} if accounting == "zcdp" else {"epsilon"}), "each unit was told at some time"


def test_the_proportion_of_an_account_in_rho_is_not_what_fits() -> None:
    """The broken twin: half of the rho that is left was told as half of the epsilon; no question of that fits."""
    limit = ApproxDP(Fraction(10), Fraction(1, 10**6))
    ledger = Ledger("clinic", Budgets(limit, accounting=Accounting.ZCDP))
    whole = ledger.balance()[0].kinds
    assert whole is not None
    ledger.charge(Posting(Act.CHARGE, GaussianEvent(variance=1 / whole.rho)))
    assert not ledger.fits(PureEvent(Fraction("4.99")))
    kinds = ledger.balance()[0].kinds
    assert kinds is not None
    assert ledger.fits(PureEvent(kinds.epsilon))
    assert f"a pure question of epsilon {round_amount(kinds.epsilon)}" in say_least(
        ledger.balance(), ledger.find_remaining()
    )


def test_what_is_left_after_pure_questions_is_told_in_the_epsilon_of_the_policy() -> None:
    """Of epsilon 10 a question of 0.1 left "1.473 of rho 1.478": the rhos leave a little more of the limit."""
    limit = ApproxDP(Fraction(10), Fraction(1, 10**6))
    ledger = Ledger("clinic", Budgets(limit, accounting=Accounting.ZCDP))
    for number in range(1, 40):
        ledger.charge(Posting(Act.CHARGE, PureEvent(Fraction(1, 10))))
        left = round_amount(limit.epsilon - Fraction(number, 10))
        assert say_least(ledger.balance(), ledger.find_remaining()).startswith(
            f"{left} of epsilon 10 (pure questions; "
        )
        [plain] = reports.state_plainly(ledger.balance())
        assert (plain.unit, plain.limit, plain.left) == ("epsilon", 10, float(limit.epsilon - Fraction(number, 10)))
    ledger.charge(Posting(Act.CHARGE, GaussianEvent(variance=Fraction(10))))
    assert reports.state_plainly(ledger.balance())[0].unit == "rho"
    told = say_least(ledger.balance(), ledger.find_remaining())
    assert re.fullmatch(r"83% of epsilon 10 \([0-9.]+ of rho 1\.478 with delta 5e-07; or a pure .*\)", told), told
    assert shorten_left(told) == "83% of epsilon 10"


@pytest.mark.parametrize("epsilon", ["0.5", "1", "5", "10", "100", "100000"])
@pytest.mark.parametrize("delta", ["1e-9", "1e-3"])
def test_a_question_that_is_not_pure_is_never_told_in_the_epsilon_of_the_limit(epsilon: str, delta: str) -> None:
    """Of epsilon 100 one of rho 0.01 was told as "spent epsilon 40": the limit less the largest pure question left."""
    limit = ApproxDP(Fraction(epsilon), Fraction(delta))
    ledger = Ledger("clinic", Budgets(limit, accounting=Accounting.ZCDP))
    ledger.charge(Posting(Act.CHARGE, GaussianEvent(variance=max(5000 / limit.epsilon**2, Fraction(1, 2)))))
    [balance] = ledger.balance()
    assert isinstance(balance.tell_spent(), ZCDP)
    assert reports.state_plainly(ledger.balance())[0].unit == "rho"
    pure = Ledger("clinic", Budgets(limit, accounting=Accounting.ZCDP))
    pure.charge(Posting(Act.CHARGE, PureEvent(limit.epsilon / 8)))
    [balance] = pure.balance()
    assert balance.tell_spent() in (PureDP(limit.epsilon / 8), balance.spent)


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns: {pid: {type: integer, role: identifier}, city: {type: text}}
budgets:
  dataset: {epsilon: 1, delta: 1e-6, accounting: zcdp}
  purposes: {care: {epsilon: 1, delta: 1e-6}}
  analysts: {ana: {purposes: [care], epsilon: 1, delta: 1e-6}}
"""


def test_a_refusal_says_which_kind_of_question_fits(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "visits.csv").write_text("pid,city\n" + "".join(f"{n},Ulm\n" for n in range(40)))
    ana, count = Asker("ana", "care"), "SELECT COUNT(*) AS n FROM visits WHERE pid > {}"
    keyed = "SELECT city, COUNT(*) AS n FROM visits GROUP BY city"
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query(count.format(1), epsilon="0.3", who=ana)
        assert curator.context.speak_for(ana).state_left() == "0.7 of epsilon 1 (pure questions; rho 0 for others)"
        with pytest.raises(BudgetExceeded) as refused:
            curator.query(keyed, epsilon="0.1", delta="1e-7", who=ana)
        assert "Only a pure question, one without a delta, of at most epsilon 0.7 fits" in str(refused.value)
        curator.query(count.format(2), epsilon="0.7", who=ana)
        with pytest.raises(BudgetExceeded, match="The budget is used up"):
            curator.query(keyed, epsilon="0.1", delta="1e-7", who=ana)


def test_a_refusal_is_in_the_unit_that_was_asked_and_its_advice_fits(tmp_path: Path) -> None:
    """The dataset has 4, the purpose 2 and ana 1: what she is told is what she may ask."""
    wide = POLICY.replace("dataset: {epsilon: 1", "dataset: {epsilon: 4").replace(
        "care: {epsilon: 1", "care: {epsilon: 2"
    )
    (tmp_path / "policy.yaml").write_text(wide)
    (tmp_path / "visits.csv").write_text("pid,city\n" + "".join(f"{n},Ulm\n" for n in range(40)))
    ana, count = Asker("ana", "care"), "SELECT COUNT(*) AS n FROM visits WHERE pid > {}"
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query(count.format(1), epsilon="0.5", who=ana)
        for asked in ({"rho": "0.1"}, {"rho": 5}, {"epsilon": "0.6"}, {"epsilon": 50}):
            with pytest.raises(BudgetExceeded, match=r"at most epsilon 0\.5") as refused:
                curator.query(count.format(2), who=ana, **asked)
            ((unit, amount),) = asked.items()
            assert refused.value.happened.startswith(f"asked {unit} {amount}, and 0.5 of epsilon 1 ")
            assert refused.value.happened.endswith("(analyst 'ana')")
            told = refused.value.fields
            assert told["unit"] == unit
            assert told["asked"] == float(amount), "asked and remaining are in one unit"
            assert told["remaining"] == (0.5 if unit == "epsilon" else 0.0)
        curator.query(count.format(2), epsilon="0.5", who=ana)


def test_a_refusal_names_the_limit_with_least_so_that_its_advice_fits() -> None:
    """A purpose had more left than its analyst, and what was advised for it was refused next."""
    nodes = [Node(name, name, PureDP(Fraction(limit))) for name, limit in (("data", 3), ("care", 2), ("ana", 1))]
    with pytest.raises(BudgetExceeded, match=r"remaining 1 \(ana\). Ask for at most epsilon 1\."):
        charge_nodes("pure", nodes, {}, PureEvent(Fraction(5)))


def test_a_refusal_tells_the_delta_that_is_left(tmp_path: Path) -> None:
    """A delta that was used up was never named: rho was told to fit, and no such question did."""
    (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 1,", "epsilon: 4,"))
    (tmp_path / "visits.csv").write_text("pid,city\n" + "".join(f"{n},Ulm\n" for n in range(40)))
    keyed = "SELECT city, COUNT(*) AS n FROM visits WHERE pid > {} GROUP BY city"
    with Curator.open(tmp_path / "policy.yaml") as curator:
        curator.query(keyed.format(1), epsilon="0.1", delta="1e-7")
        with pytest.raises(BudgetExceeded, match="delta of at most 4e-07"):
            curator.query(keyed.format(2), epsilon="0.1", delta="5e-7")
        curator.query(keyed.format(2), epsilon="0.1", delta="4e-7")
        with pytest.raises(BudgetExceeded, match="no delta: that is used up"):
            curator.query(keyed.format(3), epsilon="0.1", delta="1e-9")


def test_every_surface_tells_all_that_is_enforced(tmp_path: Path) -> None:
    """JSON named one kind with a delta of 0, and `ledger show` an epsilon where no other question fitted."""
    (tmp_path / "policy.yaml").write_text(POLICY.replace("epsilon: 1,", "epsilon: 4,"))
    (tmp_path / "visits.csv").write_text("pid,city\n" + "".join(f"{n},Ulm\n" for n in range(40)))
    ana, count = Asker("ana", "care"), "SELECT COUNT(*) AS n FROM visits WHERE pid > {}"
    with Curator.open(tmp_path / "policy.yaml") as curator:
        fresh = curator.explain(count.format(0), epsilon="0.1", who=ana)["remaining"]
        assert (fresh["epsilon"], fresh["delta"]) == ("4", "5e-07")
        first = curator.query(count.format(1), epsilon="1.5", who=ana).release.details
        assert first["remaining"] == {"epsilon": "2.5", "rho": "0", "delta": "0"}
        assert first["left"] == "2.5 of epsilon 4 (pure questions; rho 0 for others)"
        nodes = reports.balance(curator.context.speak_for(ana))
        for told in (*nodes, reports.budgets(curator.context).standing):
            assert (told.remaining, told.left) == (first["remaining"], first["left"])
        [plain] = reports.state_plainly(curator.ledger.balance())
        assert (plain.unit, plain.left, plain.beside) == ("epsilon", 2.5, "pure questions; rho 0 for others")
    words = ["ledger", "show", "--policy", str(tmp_path / "policy.yaml")]
    assert f"remaining  {first['left']}" in CliRunner().invoke(app, words).output
    assert json.loads(CliRunner().invoke(app, [*words, "--json"]).output)["standing"]["remaining"] == first["remaining"]
