"""An approved request is made as it was approved: no more, no looser, for the same analyst, charged as priced."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator import Curator
from deniable.curator.governance import fulfill as workflow
from deniable.curator.governance import requests
from deniable.curator.governance.fulfill import fulfill
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, ParameterError, StorageError
from deniable.governance.grants import Asker, Role
from deniable.storage import lock_folder

ANA = Asker("ana", "research", Role.ANALYST)
TABLE = """
  {name}:
    source: {name}.csv
    unit: {{column: id, max_groups: 2, max_rows_per_group: 1}}
    columns:
      id: {{type: integer, role: identifier, mask: redact}}
      sex: {{role: quasi-identifier, categories: [F, M]}}
      town: {{role: quasi-identifier, categories: [a, b, c]}}
      diag: {{role: sensitive, categories: [x, y, z]}}
"""
BUDGETS = """
budgets:
  dataset: {epsilon: 5, delta: 0.01, accounting: zcdp}
  purposes: {research: {epsilon: 3, delta: 0.001}}
"""
ANALYSTS = "  analysts: {ana: {purposes: [research], epsilon: 3, delta: 0.001, columns: [sex, town]}}\n"
RELEASE = "release:\n  anonymize: {k: 2, suppress: 1}\n"
ASKED = {"epsilon": "0.5", "delta": "1e-6"}


def write_policy(at: Path, analysts: str = ANALYSTS) -> None:
    tables = "".join(TABLE.format(name=name) for name in ("visits", "stays"))
    (at / "policy.yaml").write_text(f"version: 1\ndataset: clinic\ntables:{tables}{BUDGETS}{analysts}{RELEASE}")


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DENIABLE_LEDGER", raising=False)
    rows = "".join(f"{i},{'FM'[i % 2]},{'abc'[i % 3]},{'xyz'[i % 3]}\n" for i in range(300))
    for name in ("visits", "stays"):
        (tmp_path / f"{name}.csv").write_text("id,sex,town,diag\n" + rows)
    write_policy(tmp_path)
    return tmp_path


def opened() -> Curator:
    return Curator.open("policy.yaml", ledger="policy.ledger.sqlite")


def ask(technique: str, parameters: dict[str, Any] | None = None, *tables: str, approve: bool = True) -> Any:
    with opened() as curator:
        made = requests.ask(curator.context.speak_for(ANA), technique, tables or ("visits",), parameters)
        return requests.decide(curator.context, made.id, True, "a test") if approve else made


def make(identity: str, out: str = "out", **more: Any) -> Any:
    return fulfill(Path("policy.yaml"), None, identity, Path(out), **more)


def entries(*acts: str) -> list[Any]:
    with opened() as curator:
        return list(curator.ledger.entries(acts=acts or ("charge", "release")))


def names_in(file: str) -> set[str]:
    return set(pq.read_schema(file).names)


def test_a_larger_k_is_kept(at: Path) -> None:
    make(ask("anonymize", {"k": 80}).id)
    stated = json.loads(Path("out/visits.parquet.release.json").read_text())
    assert "80" in json.dumps(stated)
    rows = pq.read_table("out/visits.parquet").to_pylist()
    groups = [tuple(sorted(row.items())) for row in rows]
    assert min(groups.count(each) for each in set(groups)) >= 80


@pytest.mark.parametrize(
    ("technique", "further"), [("mask", {}), ("anonymize", {}), ("synthesize", ASKED)], ids=lambda each: str(each)
)
def test_fewer_columns_are_kept(at: Path, technique: str, further: dict[str, str]) -> None:
    make(ask(technique, {"columns": ["sex"], **further}).id)
    assert names_in("out/visits.parquet") == {"sex"}


@pytest.mark.parametrize(
    ("technique", "parameters", "refused"),
    [
        ("mask", {"bogus": 1}, ParameterError),
        ("anonymize", {"bogus": 1}, ParameterError),
        ("synthesize", {**ASKED, "bogus": 1}, ParameterError),
        ("mask", {"k": 3}, ParameterError),
        ("mask", {"columns": ["nope"]}, ParameterError),
        ("mask", {"columns": "sex"}, ParameterError),
        ("mask", {"columns": []}, ParameterError),
        ("mask", {"columns": ["sex", "diag"]}, AccessRefused),
        ("anonymize", {"columns": ["diag"]}, AccessRefused),
        ("synthesize", {**ASKED, "columns": ["diag"]}, AccessRefused),
        ("mask", {"mode": "lenient"}, ParameterError),
        ("anonymize", {"k": 1}, AccessRefused),
        ("anonymize", {"k": "many"}, ParameterError),
        ("anonymize", {"l": {"diag": 2}}, AccessRefused),
        ("anonymize", {"l": 2}, ParameterError),
        ("synthesize", {}, ParameterError),
        ("synthesize", {"epsilon": "1"}, ParameterError),
    ],
)
def test_what_may_not_be_asked_is_refused_when_it_is_asked(
    at: Path, technique: str, parameters: dict[str, Any], refused: type[DeniableError]
) -> None:
    with pytest.raises(refused):
        ask(technique, parameters)
    assert entries("request") == []


@pytest.mark.parametrize("analysts", ["", "  analysts: {ben: {purposes: [research], epsilon: 1, delta: 0.001}}\n"])
@pytest.mark.parametrize("technique", ["mask", "anonymize", "synthesize"])
def test_an_analyst_who_is_no_longer_listed_receives_nothing(at: Path, analysts: str, technique: str) -> None:
    asked = ask(technique, ASKED if technique == "synthesize" else None)
    write_policy(at, analysts)
    with pytest.raises(AccessRefused, match="analyst 'ana'"):
        make(asked.id)
    assert entries() == []
    assert not (at / "out" / "visits.parquet").exists()


def test_where_the_policy_never_listed_analysts_a_request_is_made(at: Path) -> None:
    write_policy(at, "")
    assert make(ask("mask").id).status == "released"


def test_a_request_is_tied_to_its_own_release(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steward releases the same table while the request is being fulfilled."""
    making = workflow.FULFILLMENTS["mask"]

    def make_and_release(context: Any, *rest: Any) -> None:
        making(context, *rest)
        with opened() as curator:
            curator.anonymize("stays", "other.parquet")
            curator.anonymize("visits", "other2.parquet")

    asked = ask("mask")
    monkeypatch.setitem(workflow.FULFILLMENTS, "mask", make_and_release)
    done = make(asked.id)
    own = [entry for entry in entries() if entry.technique == "masking"]
    assert [entry.release for entry in own] == [done.release]
    assert len(entries()) == 3


def test_each_table_of_a_synthetic_request_is_in_its_price(at: Path) -> None:
    asked = ask("synthesize", ASKED, "visits", "stays")
    assert asked.cost == {"epsilon": "1", "delta": "2e-06"}
    done = make(asked.id)
    assert done.release.split() == [entry.release for entry in entries("charge")]
    assert len(entries("charge")) == 2


def test_tables_that_do_not_fit_together_are_refused_before_the_first_charge(at: Path) -> None:
    with pytest.raises(BudgetExceeded, match="purpose 'research'"):
        ask("synthesize", {"rho": "0.2"}, "visits", "stays", approve=False)
    asked = ask("synthesize", {"rho": "0.15"}, "visits", "stays")
    make(ask("synthesize", {"rho": "0.1"}).id, "before")
    with pytest.raises(BudgetExceeded, match="2 tables"):
        make(asked.id)
    assert len(entries("charge")) == 1


@pytest.mark.parametrize("ledger", ["file", "postgres"])
def test_what_cannot_be_made_is_refused_when_it_is_filed_and_again_when_it_is_approved(
    at: Path, request: pytest.FixtureRequest, ledger: str
) -> None:
    place = "policy.ledger.sqlite" if ledger == "file" else request.getfixturevalue("postgres_address")
    whole = Path("policy.yaml").read_text().replace("dataset: clinic", f"dataset: filed_{ledger}")
    Path("policy.yaml").write_text(whole)
    with Curator.open("policy.yaml", ledger=place) as curator:
        context = curator.context.speak_for(ANA)
        made = requests.ask(context, "synthesize", ["visits"], ASKED)
        for technique, parameters, words in (
            ("synthesize", {"epsilon": "1e59", "delta": "1e-6"}, "above 10,000"),
            ("synthesize", {"epsilon": "9e3", "delta": "1e-6"}, "asked rho"),
            ("anonymize", {"k": 2_000_000}, "rows of 'visits' are read"),
        ):
            with pytest.raises(DeniableError, match=words):
                requests.ask(context, technique, ["visits"], parameters)
    pure = whole.replace("accounting: zcdp", "accounting: pure").replace("rho:", "epsilon:")
    assert pure != whole
    Path("policy.yaml").write_text(pure)
    with Curator.open("policy.yaml", ledger=place) as curator:
        for asked in (ASKED, {"epsilon": 1}, {"epsilon": 1, "delta": "1e-6"}, {"rho": "1/10"}):
            with pytest.raises(
                ParameterError, match=r"pure accounting cannot price.*budgets: dataset: {accounting: zcdp"
            ):
                requests.ask(curator.context.speak_for(ANA), "synthesize", ["visits"], asked)
        with pytest.raises(ParameterError, match="pure accounting cannot price"):
            requests.decide(curator.context, made.id, True, "fine")
        assert [entry.act for entry in curator.ledger.entries()] == ["request"]


def test_a_k_that_protects_nobody_is_not_filed_and_a_larger_one_is_shown(at: Path) -> None:
    Path("policy.yaml").write_text(Path("policy.yaml").read_text().replace(RELEASE, ""))
    words = ["request", "anonymize", "visits", "--analyst", "ana", "--purpose", "research"]
    refused = CliRunner().invoke(app, [*words, "--k", "1"])
    assert "in a class of one row nobody is hidden" in str(refused.exception)
    assert "asked: columns sex, k 7" in CliRunner().invoke(app, [*words, "--k", "7", "--columns", "sex"]).output
    assert CliRunner().invoke(app, [*words[:-4], "--analyst", "ana", "--purpose", "research"]).exit_code == 0
    shown = CliRunner().invoke(app, ["requests"]).output
    assert "asked: columns sex, k 7" in shown
    assert "asked: as the policy says" in shown
    assert shown.count("  risk: ") == 2


@pytest.mark.parametrize("technique", ["mask", "anonymize"])
def test_a_release_that_is_not_made_again_says_so(at: Path, technique: str) -> None:
    asked = ask(technique)
    make(asked.id)
    shutil.rmtree("out")
    with pytest.raises(AccessRefused, match="file a new request") as refused:
        make(asked.id)
    assert "--out" not in str(refused.value)


def test_a_second_try_charges_only_what_was_not_charged(at: Path) -> None:
    """The second table cannot be written at first."""
    asked = ask("synthesize", ASKED, "visits", "stays")
    (at / "out" / "stays.parquet").mkdir(parents=True)
    with pytest.raises(StorageError):
        make(asked.id)
    first = (at / "out" / "visits.parquet").read_bytes()
    before = len(entries("charge"))
    (at / "out" / "stays.parquet").rmdir()
    assert make(asked.id).status == "released"
    assert len(entries("charge")) == 2 >= before
    assert (at / "out" / "visits.parquet").read_bytes() == first


def test_what_was_written_once_is_not_measured_again_into_another_folder(at: Path) -> None:
    asked = ask("synthesize", ASKED, "visits", "stays")
    (at / "out" / "stays.parquet").mkdir(parents=True)
    with pytest.raises(StorageError):
        make(asked.id)
    with pytest.raises(AccessRefused, match="begun in another folder"):
        make(asked.id, "elsewhere")
    assert not (at / "elsewhere").exists(), "a folder with a lock was left behind"
    (at / "there").mkdir()
    with pytest.raises(AccessRefused, match="begun in another folder"):
        make(asked.id, "there")
    assert list((at / "there").iterdir()) == []


@pytest.mark.parametrize("technique", ["mask", "anonymize", "synthesize"])
def test_a_column_that_is_named_twice_is_refused_when_it_is_asked_for(at: Path, technique: str) -> None:
    more = ASKED if technique == "synthesize" else {}
    with pytest.raises(ParameterError, match="column 'sex' is named twice"):
        ask(technique, {"columns": ["sex", "sex"], **more})
    assert not (at / "policy.ledger.sqlite").exists()
    with opened() as curator:
        for columns in (("sex", "sex"), ("sex", "town", "sex")):
            for allow in (curator.context.scope.columns_to_release, curator.context.scope.columns_to_describe):
                with pytest.raises(ParameterError, match="named twice"):
                    allow("visits", columns)


def test_what_failed_after_a_charge_says_that_it_stands(at: Path) -> None:
    asked = ask("synthesize", ASKED, "visits", "stays")
    (at / "out" / "stays.parquet").mkdir(parents=True)
    with pytest.raises(StorageError) as refused:
        make(asked.id)
    charged = len(entries("charge")) > 0
    assert refused.value.as_dict()["charged"] is charged
    assert ("The charge stands" in str(refused.value)) is charged


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("technique", ["mask", "anonymize", "synthesize"])
def test_of_several_who_make_one_request_at_once_one_does(at: Path, technique: str) -> None:
    """Under one charge noise is drawn once, whatever folders are named and whoever was first."""
    asked = ask(technique, ASKED if technique == "synthesize" else None)
    commands = [[sys.executable, "-m", "deniable", "fulfill", asked.id, "-o", name] for name in ("one", "two", "one")]
    running = [subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for each in commands]
    told = [(each.communicate()[0].decode(), each.returncode) for each in running]
    assert sorted(code for _, code in told) == [0, 2, 2], told
    assert len(list(at.glob("*/visits.parquet"))) == 1
    assert len(entries("charge")) == (technique == "synthesize")
    assert len(entries("fulfill")) == 1
    assert len(entries("publish")) <= 1


def test_the_folder_is_held_until_the_request_is_closed(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that waits for the folder finds the request closed, and makes nothing again."""
    asked, close, held = ask("mask"), requests.mark_fulfilled, []

    def look(*given: Any, **more: Any) -> Any:
        with pytest.raises(StorageError, match="another process works"), lock_folder(at / "out", "it"):
            pass
        held.append(True)
        return close(*given, **more)

    monkeypatch.setattr(requests, "mark_fulfilled", look)
    make(asked.id)
    assert held == [True]


def refuse(*_: Any, **__: Any) -> None:
    raise StorageError("the disk is full")


def test_a_killed_try_is_not_begun_in_another_folder(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask("synthesize", ASKED)

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deniable.curator.governance.requests.mark_fulfilled", stop)
        with pytest.raises(KeyboardInterrupt):
            make(asked.id)
    told = r"This call charged nothing; its request was charged before: entry \d+, epsilon \S+, "
    with pytest.raises(AccessRefused, match=f"begun in another folder.*{told}"):
        make(asked.id, "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr("deniable.curator.governance.fulfill._claim_folder", refuse)
        with pytest.raises(StorageError, match=told):
            make(asked.id)
    assert not (at / "elsewhere" / "visits.parquet").exists()
    assert make(asked.id).status == "released"
    assert len(entries("charge")) == 1


@pytest.mark.parametrize("finished", [True, False])
def test_a_synthetic_release_whose_folder_was_deleted_is_made_again_under_the_first_charge(
    at: Path, monkeypatch: pytest.MonkeyPatch, finished: bool
) -> None:
    asked = ask("synthesize", ASKED, "visits", "stays")
    if finished:
        make(asked.id)
    else:

        def stop(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("deniable.curator.governance.requests.mark_fulfilled", stop)
            with pytest.raises(KeyboardInterrupt):
                make(asked.id)
    seen = {path.name: path.read_bytes() for path in (at / "out").glob("*.parquet")}
    shutil.rmtree(at / "out")
    if finished:
        with pytest.raises(AccessRefused, match="fulfilled already"):
            make(asked.id, "elsewhere")
    else:
        with pytest.raises(AccessRefused, match="begun in another folder"):
            make(asked.id, "elsewhere")
    (at / "visits.csv").write_text("id,sex,town,diag\n" + "9,F,a,x\n" * 300)
    assert make(asked.id).status == "released"
    assert {path.name: path.read_bytes() for path in (at / "out").glob("*.parquet")} == seen
    assert len(entries("charge")) == 2
    assert len(entries("fulfill")) == 1
    with pytest.raises(AccessRefused, match="fulfilled already"):
        make(asked.id)


@pytest.mark.parametrize("technique", ["mask", "anonymize"])
def test_rows_that_were_released_are_not_released_again_from_a_deleted_folder(at: Path, technique: str) -> None:
    asked = ask(technique)
    make(asked.id)
    shutil.rmtree(at / "out")
    with pytest.raises(AccessRefused, match="file a new request"):
        make(asked.id)
    assert not (at / "out").exists()


@pytest.mark.parametrize("killed_at", ["save", "publish_file"])
def test_a_try_that_was_stopped_leaves_no_file_and_goes_on_under_its_charge(
    at: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    """Rows without their model or their statement are taken away again; what was charged is not charged twice."""
    from deniable.curator.synthesize import run
    from deniable.synth import model

    where = model if killed_at == "save" else run
    shown: dict[str, bytes] = {}

    def stop(*_: Any, **__: Any) -> None:
        shown.update({path.name: path.read_bytes() for path in (at / "out").glob("*") if path.is_file()})
        raise KeyboardInterrupt

    asked = ask("synthesize", ASKED)
    with monkeypatch.context() as patch:
        patch.setattr(where, killed_at, stop)
        with pytest.raises(KeyboardInterrupt):
            make(asked.id)
    assert not list((at / "out").glob("visits*"))
    with opened() as curator:
        curator.new_epoch("data came meanwhile")
    assert make(asked.id).status == "released"
    assert {path.name for path in (at / "out").glob("visits*")} >= {"visits.parquet", "visits.parquet.release.json"}
    # Somebody may have seen the rows: no noise is drawn anew.
    assert shown["visits.parquet"] == (at / "out" / "visits.parquet").read_bytes()
    assert len(entries("charge")) == 1


def test_the_command_states_columns_and_k(at: Path) -> None:
    words = ["request", "anonymize", "visits", "--analyst", "ana", "--purpose", "research", "--json"]
    done = CliRunner().invoke(app, [*words, "--k", "60", "--columns", "sex"])
    assert json.loads(done.output)["parameters"] == {"k": 60, "columns": ["sex"]}


SECRET = {"l": {"diag": 2}}, {"t": {"diag": "0.9"}}, {"sensitive": ("diag",)}, {"target": "diag"}


@pytest.mark.parametrize("asked", SECRET, ids=str)
def test_an_analyst_asks_nothing_about_a_column_of_others(at: Path, asked: dict[str, Any]) -> None:
    with opened() as curator, pytest.raises(AccessRefused, match="'diag' is not among those"):
        curator.anonymize("visits", "one.parquet", k=2, suppress=1, who=ANA, **asked)
    assert not (at / "one.parquet").exists()
    assert entries() == []


def test_an_analysts_release_leaves_no_counts_beside_it(at: Path) -> None:
    with opened() as curator:
        curator.anonymize("visits", "all.parquet", l={"diag": 1})
        release = curator.anonymize("visits", "one.parquet", k=2, who=ANA)
    assert (at / "all.parquet.recoding.json").exists()
    assert not (at / "one.parquet.recoding.json").exists()
    assert release.details["earlier_releases"] == 1
    assert "composition" not in release.details
    assert "diag" not in json.dumps({name: value for name, value in release.details.items() if name != "models"})


def make_until_it_is_closed(identity: str, monkeypatch: pytest.MonkeyPatch, out: str = "out") -> None:
    """End a try as the end of its process does, when everything is made and published."""

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deniable.curator.governance.requests.mark_fulfilled", stop)
        with pytest.raises(KeyboardInterrupt):
            make(identity, out)


@pytest.mark.parametrize("technique", ["mask", "anonymize", "synthesize"])
def test_what_a_dead_server_began_is_taken_over_and_only_the_last_file_counts(
    at: Path, monkeypatch: pytest.MonkeyPatch, technique: str
) -> None:
    asked = ask(technique, ASKED if technique == "synthesize" else None)
    make_until_it_is_closed(asked.id, monkeypatch, "one")
    with pytest.raises(AccessRefused, match=r"begun in another folder.*--take-over"):
        make(asked.id, "two")
    assert f"begun in: {at / 'one'}" in CliRunner().invoke(app, ["requests"]).output
    assert make(asked.id, "two", take_over=True).status == "released"
    assert len(entries()) == 1
    files = [at / name / "visits.parquet" for name in ("one", "two")]
    with opened() as curator:
        found = workflow.find_release_file(curator.context, Path("policy.yaml"), "ana", asked.id, "visits")
        assert found == files[1]
        if technique == "synthesize":
            assert files[0].read_bytes() == files[1].read_bytes(), "noise was drawn once"
            return
        for ending in ("", ".release.json"):  # two hosts may have the same path, each with files of its own
            shutil.copy(f"{files[0]}{ending}", f"{files[1]}{ending}")
        with pytest.raises(DeniableError, match="this server does not have its file"):
            workflow.find_release_file(curator.context, Path("policy.yaml"), "ana", asked.id, "visits")


def test_what_is_approved_and_cannot_be_made_is_declined(at: Path) -> None:
    asked = ask("mask")
    write_policy(at, ANALYSTS.replace("columns: [sex, town]", "columns: [sex]"))
    with pytest.raises(AccessRefused, match=r"policy was changed.*decline"):
        make(asked.id)
    with opened() as curator:
        declined = requests.decide(curator.context, asked.id, False, "the policy is another one")
        assert (declined.status, declined.reason) == ("declined", "the policy is another one")
        for approved in (True, False):
            with pytest.raises(ParameterError, match="is declined already"):
                requests.decide(curator.context, asked.id, approved, "again")
    with pytest.raises(AccessRefused, match="is declined"):
        make(asked.id)
    assert not entries()


def test_of_a_decline_and_a_release_at_one_moment_the_first_counts(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ask("mask")
    act = requests._act

    def make_first(*given: Any, **more: Any) -> Any:
        monkeypatch.setattr(requests, "_act", act)
        make(asked.id)
        return act(*given, **more)

    monkeypatch.setattr(requests, "_act", make_first)
    with opened() as curator, pytest.raises(AccessRefused, match=r"somebody else was first.*is released"):
        requests.decide(curator.context, asked.id, False, "not after all")
    with opened() as curator:
        assert requests.find_request(curator.context, asked.id).status == "released"


def test_nothing_is_approved_that_the_policy_as_it_is_now_does_not_allow(at: Path) -> None:
    waiting, care = ask("mask", approve=False), "purposes: {care: {epsilon: 3, delta: 0.001}, research:"
    for analysts, why in (
        ("", "no longer lists analyst 'ana'"),
        (ANALYSTS.replace("[research]", "[care]"), "research"),
    ):
        write_policy(at, analysts)
        text = (at / "policy.yaml").read_text()
        (at / "policy.yaml").write_text(text.replace("purposes: {research:", care))
        with opened() as curator, pytest.raises(AccessRefused, match=why):
            requests.decide(curator.context, waiting.id, True, "a test")
    write_policy(at)
    text = (at / "policy.yaml").read_text()
    (at / "policy.yaml").write_text(text.replace("research: {", "research: {approvals: 2, "))
    with opened() as curator, pytest.raises(AccessRefused, match="its purpose demands more now"):
        requests.decide(curator.context, waiting.id, True, "a test")
    with opened() as curator:
        assert requests.find_request(curator.context, waiting.id).is_pending


def test_requests_are_equal_however_their_numbers_and_columns_are_written(at: Path) -> None:
    spelled = [ask("synthesize", {**ASKED, "epsilon": each}, approve=False).id for each in (0.5, "0.5", "5e-1", "0.50")]
    named = [ask("mask", {"columns": each}, approve=False).id for each in (["sex", "town"], ["town", "sex"])]
    assert (len(set(spelled)), len(set(named))) == (1, 1)
    assert ask("mask", {"columns": ["sex"]}, approve=False).id not in named
    assert len(entries("request")) == 3


def test_of_requests_at_one_moment_so_many_wait_as_may_wait(at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All have seen that two more may wait before one of them is filed."""
    names = [f"{1 + i / 100:g}" for i in range(26)]
    for epsilon in names[:18]:
        ask("synthesize", {**ASKED, "epsilon": epsilon}, approve=False)
    barrier, compute, told = threading.Barrier(8), requests.digest, []

    def wait(*given: Any) -> Any:
        barrier.wait(60)
        return compute(*given)

    monkeypatch.setattr(requests, "digest", wait)

    def file(epsilon: str) -> None:
        try:
            told.append(ask("synthesize", {**ASKED, "epsilon": epsilon}, approve=False).id)
        except ParameterError as refusal:
            told.append(refusal.message)

    threads = [threading.Thread(target=file, args=(each,)) for each in names[18:]]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    refused = [each for each in told if "20 requests of yours wait for a decision" in each]
    assert len(refused) == 6
    monkeypatch.setattr(requests, "digest", compute)
    with opened() as curator:
        waiting = [each for each in curator.context.state.requests().values() if each.is_pending]
        assert len(waiting) == 20
        requests.decide(curator.context, waiting[0].id, False, "too many")
    missing = next(each for each in names if each not in {str(one.parameters["epsilon"]) for one in waiting})
    assert ask("synthesize", {**ASKED, "epsilon": missing}, approve=False).is_pending, (
        "it may be filed once one is decided"
    )
    with pytest.raises(ParameterError, match="20 requests of yours"):
        ask("mask", approve=False)


def test_a_printed_command_has_the_address_of_the_ledger_and_no_password() -> None:
    address = "postgresql://me:s3cret@db.example.org:5433/clinic?sslmode=verify-full&password=s3cret&SSLPassword=s3cret"
    told = workflow.say_command(Path("policy.yaml"), address, "5f0c1a")
    assert "s3cret" not in told
    assert told.endswith("--ledger 'postgresql://me@db.example.org:5433/clinic?sslmode=verify-full'")
    assert "--ledger" not in workflow.say_command(Path("policy.yaml"), "policy.ledger.sqlite", "5f0c1a")
    assert workflow.say_command(Path("policy.yaml"), "my ledger.sqlite", "5f0c1a").endswith(
        "--ledger 'my ledger.sqlite'"
    )
