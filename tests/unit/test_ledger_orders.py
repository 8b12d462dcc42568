"""Backups, losses, ledgers that are begun anew or restored, here or elsewhere, in every order: whatever was spent or
withdrawn once binds the ledger that goes on, and beside one that is there none is restored or begun anew."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import closing
from dataclasses import replace
from datetime import date
from email.message import Message
from itertools import product
from pathlib import Path
from threading import Event
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from deniable.client.connection import _read_refusal
from deniable.curator import Curator
from deniable.curator.charge import Job, charge, guarantee_of
from deniable.curator.governance import losses, steward, withdrawals
from deniable.dp.accounting import GaussianEvent
from deniable.errors import (
    AccessRefused,
    Cancelled,
    DeniableError,
    ExecutionFailed,
    IntegrityError,
    ParameterError,
    QueryRefused,
)
from deniable.governance.withdrawals import list_people
from deniable.ledger.export import export
from deniable.ledger.loss import read_loss
from deniable.policy.budget import Budget, budget
from deniable.release import Technique

POLICY = """
version: 1
dataset: {dataset}
tables:
  visits:
    source: visits.csv
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer, role: identifier, mask: redact}}
      sex: {{role: quasi-identifier, categories: [F, M]}}
budgets: {{dataset: {{epsilon: 40}}}}
"""
HERE, ELSEWHERE = "here", "elsewhere"
FIRST = [*product(("anew", "old"), (HERE, ELSEWHERE))]
SECOND = [*product(("anew", "old", "new"), (HERE, ELSEWHERE))]
QUICK = [
    (("anew", HERE), ("old", ELSEWHERE)),
    (("old", ELSEWHERE), ("anew", HERE)),
    (("anew", ELSEWHERE), ("new", HERE)),
]


class Case:
    """One set of rows, the ledgers that held its budget, and the truth of what was asked and who withdrew."""

    def __init__(self, folder: Path, address: str | None = None) -> None:
        self.folder, self.policy = folder, folder / "policy.yaml"
        self.dataset, self.base = f"orders{abs(hash(str(folder))) % 10**9}", address
        here = None if address is None else urlsplit(address)._replace(path=f"/{self.dataset}").geturl()
        self.places = {HERE: here or str(folder / "policy.ledger.sqlite"), ELSEWHERE: str(folder / "other.sqlite")}
        self.at, self.spent, self.withdrawn, self.lost = HERE, 0, set[str](), 0
        (folder / "visits.csv").write_text("pid,sex\n" + "".join(f"{n},{'FM'[n % 2]}\n" for n in range(40)))
        self.policy.write_text(POLICY.format(dataset=self.dataset))
        if address is not None:
            self._run(f"CREATE DATABASE {self.dataset}")

    def _run(self, *statements: str) -> None:
        import psycopg

        with closing(psycopg.connect(str(self.base), autocommit=True)) as database:
            for sql in statements:
                database.execute(sql)

    def open(self) -> Curator:
        return Curator.open(self.policy, ledger=self.places[self.at])

    def use(self) -> None:
        """Ask two questions, one of them in the name of a person who withdraws then."""
        with self.open() as curator:
            for _ in range(2):
                curator.query(f"SELECT COUNT(*) AS n FROM visits WHERE pid > {self.spent}", epsilon=1)
                self.spent += 1
            person = str(len(self.withdrawn))
            withdrawals.withdraw(curator.context, "pid", person)
            self.withdrawn.add(person)

    def back_up(self, name: str) -> None:
        steward.back_up(self.policy, self.places[self.at], self.folder / name)

    def lose(self) -> None:
        self.lost += 1
        if self.base is not None and self.at == HERE:
            self._run(f"DROP DATABASE {self.dataset} WITH (FORCE)", f"CREATE DATABASE {self.dataset}")
        moved = self.folder / f"lost{self.lost}"
        moved.mkdir()
        for path in self.folder.glob(f"{Path(self.places[self.at]).stem}.*sqlite*"):
            path.rename(moved / path.name)

    def recover(self, how: str, where: str, *, lost: bool = True) -> None:
        """Begin a ledger anew at a place, or restore a backup there."""
        if how == "anew":
            steward.separate(self.policy, self.places[where], "sam", "a disk broke", lost=True)
        else:
            words = {"lost": True, "by": "sam", "reason": "a disk broke"} if lost else {}
            steward.restore(self.policy, self.places[where], self.folder / how, **words)  # type: ignore[arg-type]
        self.at = where

    def refuse_all(self) -> None:
        """While the ledger is there, no other is begun or restored, and no file of one is left behind."""
        files = self._list_files()
        for how, where in SECOND:
            if how in ("anew", *files):
                for lost in (True, False):
                    with pytest.raises((AccessRefused, ParameterError, IntegrityError)):
                        self.recover(how, where, lost=lost)
        assert self._list_files() == files

    def _list_files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if not path.name.endswith(("-wal", "-shm")))

    def settle(self) -> None:
        """Settle a loss with as little as is accepted; then the ledger knows all that was spent, and who withdrew."""
        with self.open() as curator:
            loss = read_loss(next(curator.ledger.entries(curator.ledger.find_lost() - 1)))
            proven = losses.describe_proven("pure", loss).removeprefix("--epsilon ")
            people, _ = list_people(curator.ledger, curator.context.store)
            for least, entered in ((0, False), (0, True), (int(proven or 0), True)):
                for person in self.withdrawn if entered else ():
                    withdrawals.withdraw(curator.context, "pid", person)
                try:
                    losses.settle(curator.context, "sam", "x", spent=(least, None, None), entered=True)
                    break
                except ParameterError:
                    continue
            assert len(people) == len(self.withdrawn) or entered, "a withdrawal was forgotten"
        with self.open() as curator:
            assert not curator.ledger.find_lost()
            assert curator.ledger.find_spent()[1].cost.amount >= self.spent, "what was spent is given again"


def _go_through(case: Case, steps: list[tuple[str, str]]) -> None:
    case.use()
    case.back_up("old")
    case.use()
    for how, where in steps:
        case.lose()
        if how != "anew":
            with pytest.raises((AccessRefused, IntegrityError)):
                case.recover(how, where, lost=False)
        case.recover(how, where)
        case.settle()
        case.use()
        case.refuse_all()
        if not (case.folder / "new").exists():
            case.back_up("new")
            case.use()


ORDERS = [
    pytest.param(first, second, marks=() if (first, second) in QUICK else pytest.mark.slow, id="-".join(first + second))
    for first, second in product(FIRST, SECOND)
]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("first", "second"), ORDERS)
def test_what_was_spent_or_withdrawn_binds_each_ledger_that_follows(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    last = ("old", HERE if second[1] == ELSEWHERE else ELSEWHERE)
    _go_through(Case(tmp_path), [first, second, last])


@pytest.mark.parametrize(
    ("first", "second"),
    [QUICK[0], *(pytest.param(*each, marks=pytest.mark.slow) for each in product(FIRST, SECOND) if each != QUICK[0])],
)
def test_what_was_spent_or_withdrawn_in_postgresql_binds_each_ledger_that_follows(
    tmp_path: Path,
    postgres_address: str,
    monkeypatch: pytest.MonkeyPatch,
    first: tuple[str, str],
    second: tuple[str, str],
) -> None:
    for name, value in (
        ("PGUSER", urlsplit(postgres_address).username),
        ("PGPASSWORD", urlsplit(postgres_address).password),
    ):
        monkeypatch.setenv(name, value or "")
    _go_through(Case(tmp_path, postgres_address), [first, second])


def test_a_backup_of_other_rows_is_bound_by_the_ledger_whose_place_it_takes(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    case, other = Case(tmp_path), Case(tmp_path / "b")
    (tmp_path / "b" / "visits.csv").write_text("pid,sex\n" + "".join(f"{n * 7 + 900},M\n" for n in range(40)))
    other.policy.write_text(case.policy.read_text())
    other.use()
    other.back_up("../old")
    other.lose()
    for _ in range(3):
        case.use()
    case.lose()
    with pytest.raises(IntegrityError, match="when it was last used"):
        case.recover("old", ELSEWHERE, lost=False)
    case.recover("old", ELSEWHERE)
    case.settle()
    case.refuse_all()


def test_two_ledgers_that_the_steward_let_be_apart_both_go_on_and_are_both_restored(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.use()
    study = str(tmp_path / "study.sqlite")
    steward.separate(case.policy, study, "sam", "the sum is kept by hand")
    with Curator.open(case.policy, ledger=study) as curator:
        curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1)
    case.use()
    for number, (place, there) in enumerate(((study, case.places[HERE]), (case.places[HERE], study))):
        backup = tmp_path / f"{Path(place).stem} backup"
        steward.back_up(case.policy, place, backup)
        with Curator.open(case.policy, ledger=place) as curator:
            curator.query("SELECT COUNT(*) AS n FROM visits WHERE pid > 11", epsilon=3)
            before = curator.ledger.find_spent()[1].cost.amount
        with pytest.raises(DeniableError):  # the ledger of which it was taken is there
            steward.restore(case.policy, str(tmp_path / "third.sqlite"), backup, lost=True, by="sam", reason="x")
        for path in tmp_path.glob(f"{Path(place).stem}.*sqlite*"):
            path.unlink()
        moved = place if place == study else str(tmp_path / "moved.sqlite")
        told = steward.restore(case.policy, moved, backup, lost=True, by="sam", reason="a disk broke").loss
        assert told is not None
        assert told.proven == "--epsilon 3"
        steward.settle(case.policy, moved, "sam", "by the record", spent=(3, None, None), entered=True)
        for ledger in (moved, there):
            with Curator.open(case.policy, ledger=ledger) as curator:
                curator.query(f"SELECT COUNT(*) AS n FROM visits WHERE pid > {20 + number}", epsilon=1)
                assert ledger == there or curator.ledger.find_spent()[1].cost.amount == before + 1


def test_a_backup_put_at_the_place_of_a_ledger_that_is_apart_is_bound_by_its_own(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.use()
    case.back_up("old")
    case.use()
    steward.separate(case.policy, case.places[ELSEWHERE], "sam", "the sum is kept by hand")
    for at in (ELSEWHERE, HERE):
        case.at = at
        case.lose()
    case.recover("old", ELSEWHERE)
    case.settle()


STREAM = """
stream:
  daily: {table: visits, time: day, every: week, start: 2026-01-05, periods: 3, epsilon: 1, max_periods: 1,
    questions: {n: {count: rows}}}
"""


@pytest.fixture
def streamed(tmp_path: Path) -> Case:
    """A case with a stream of which one period is published."""
    case = Case(tmp_path)
    days = "".join(f"{n},{'FM'[n % 2]},2026-01-{5 + n % 20:02}\n" for n in range(40))
    (tmp_path / "visits.csv").write_text(f"pid,sex,day\n{days}")
    declared = "      day: {type: date, role: insensitive, between: [2026-01-01, 2026-12-31]}\nbudgets:"
    case.policy.write_text(case.policy.read_text().replace("budgets:", declared) + STREAM)
    with case.open() as curator:
        curator.publish("daily", until=date(2026, 1, 11))
    return case


def test_no_period_of_a_stream_is_measured_again_after_a_loss(streamed: Case) -> None:
    streamed.back_up("old")
    with streamed.open() as curator:
        curator.publish("daily")
    streamed.lose()
    with pytest.raises(IntegrityError):  # the record knows of values that the backup has not
        streamed.recover("old", HERE, lost=False)
    assert not (streamed.folder / "policy.ledger.sqlite").exists(), "what is refused leaves no file"
    streamed.recover("old", HERE)
    steward.settle(streamed.policy, None, "sam", "x", spent=(0, None, None), entered=True)
    with streamed.open() as curator, pytest.raises(AccessRefused, match="would have other noise now"):
        curator.publish("daily")
    with streamed.open() as curator:
        assert curator.query("SELECT COUNT(*) AS n FROM visits", epsilon=1).receipt is not None


def test_no_question_is_measured_again_after_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, asked = Case(tmp_path), "SELECT COUNT(*) AS n FROM visits"
    with case.open() as curator, monkeypatch.context() as patch:
        patch.setattr("deniable.curator.charge.store_answer", _stop)  # killed after its charge
        with pytest.raises(KeyboardInterrupt):
            curator.query(asked, epsilon=1, request="r")
    case.back_up("old")
    with case.open() as curator:
        curator.query(asked, epsilon=1, request="r")
    case.lose()
    case.recover("old", HERE)
    steward.settle(case.policy, None, "sam", "x", spent=(0, None, None), entered=True)
    with case.open() as curator:
        with pytest.raises(AccessRefused, match="would have other noise now"):
            curator.query(asked, epsilon=1, request="r")
        assert not curator.query(asked, epsilon=1, request="s").repeated


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_refusal_tells_what_was_charged_before_under_its_request(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(tmp_path, request.getfixturevalue("postgres_address") if kind == "postgres" else None)
    asked, taken_back = "SELECT COUNT(*) AS n FROM visits", Event()
    taken_back.set()
    with case.open() as curator:
        with monkeypatch.context() as patch:
            patch.setattr("deniable.curator.charge.store_answer", _stop)  # killed after its charge
            with pytest.raises(KeyboardInterrupt):
                curator.query(asked, epsilon=1, request="r")
        head = curator.ledger.head()
        assert head is not None
        before = f"entry {head.sequence}, epsilon 1, {head.time:%Y-%m-%d %H:%M:%S} UTC"
        told = f"This call charged nothing; its request was charged before: {before}."
        refused = (
            (Cancelled, lambda: curator.query(asked, epsilon=1, request="r", stop=taken_back)),
            (AccessRefused, lambda: curator.query(f"{asked} WHERE pid > 3", epsilon=1, request="r")),
            (QueryRefused, lambda: curator.query("SELECT pid FROM visits", epsilon=1, request="r")),
            (DeniableError, lambda: curator.query_batch(["SELECT pid FROM visits"], epsilon=1, request="r")),
            (ParameterError, lambda: curator.query(asked, epsilon=1, request="r", confidence=2)),
        )
        for error, ask in refused:
            with pytest.raises(error, match=re.escape(told)) as refusal:
                ask()
            assert refusal.value.as_dict()["charged"] is False
            assert refusal.value.as_dict()["charged_before"] == before
            response = io.BytesIO(json.dumps(refusal.value.as_dict()).encode())
            over_http = _read_refusal(HTTPError("http://127.0.0.1/", 403, "", Message(), response))
            assert over_http.charged == told, "Python's client tells the same"
        with monkeypatch.context() as patch:
            patch.setattr("deniable.query.execute.measure", _fail)
            for again in ("r", "", "s"):  # another id of the same asker goes on under the same charge
                with pytest.raises(
                    ExecutionFailed, match=re.escape(f"could not be completed. Tell the steward. {told}")
                ):
                    curator.query(asked, epsilon=1, request=again)
        with pytest.raises(Cancelled, match="Nothing was charged") as refusal:
            curator.query(asked, epsilon=1, request="t", stop=taken_back)
        assert "charged_before" not in refusal.value.as_dict()
        assert [entry.act for entry in curator.ledger.entries() if entry.act == "charge"] == ["charge"]


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError


def test_a_ledger_is_read_after_the_term_of_a_policy_with_a_stream_is_over(streamed: Case) -> None:
    text = streamed.policy.read_text()
    streamed.policy.write_text(f"{text}expires: 2020-01-01\n")
    assert steward.purge(streamed.policy, None) > 1
    assert steward.verify(streamed.policy, None, None, None).entries == 3
    streamed.policy.write_text(text)
    with streamed.open() as curator:
        withdrawals.withdraw(curator.context, "pid", "3")
        with pytest.raises(DeniableError, match="cannot be drawn again"):
            curator.publish("daily")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("asked", [budget(1, "1e-6"), budget(rho="0.01")], ids=["epsilon", "rho"])
def test_a_charge_is_told_at_the_delta_that_its_release_claims(
    kind: str, asked: Budget, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    case = Case(tmp_path, request.getfixturevalue("postgres_address") if kind == "postgres" else None)
    limit = "dataset: {epsilon: 40, delta: 1e-4, accounting: zcdp}"
    case.policy.write_text(case.policy.read_text().replace("dataset: {epsilon: 40}", limit))
    with case.open() as curator:
        unit = curator.policy.table("visits").unit
        job = Job(Technique.DP_QUERY, "how many?", GaussianEvent(100), unit, ("visits",), cost=asked)
        charge(curator.context, job, request="r")
        claimed = guarantee_of(Technique.DP_QUERY, unit, asked)
        epsilon, delta = claimed.epsilon, claimed.delta
        assert epsilon is not None
        assert delta is not None
        with pytest.raises(AccessRefused, match="another question") as refusal:
            charge(curator.context, replace(job, text="how much?"), request="r")
        told = refusal.value.as_dict()["charged_before"]
        assert f", epsilon {float(epsilon):.6g}, delta {float(delta):.6g}, rho 0.005, " in told
        [row] = csv.DictReader("".join(export(curator.ledger.entries(acts=("charge",)), "csv")).splitlines())
        assert (row["epsilon"], row["delta"], row["rho"]) == (f"{float(epsilon):.12g}", f"{float(delta):.12g}", "0.005")
        [entry] = curator.register()["releases"]
        assert (entry["epsilon"], entry["delta"]) == pytest.approx((float(epsilon), float(delta)))
