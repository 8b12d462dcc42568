"""Releases of rows through the server: requested, approved, made in the background, downloaded by who asked alone."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import deniable
from deniable.cli.main import app
from deniable.errors import AccessRefused, DeniableError


@pytest.fixture
def served(serve, clinic_policy: str) -> Iterator[Any]:
    """A server whose policy says how identifiers are masked, and can price Gaussian noise."""
    masked = clinic_policy.replace("id: {role: identifier}", "id: {role: identifier, mask: redact}")
    with serve(policy=masked.replace("accounting: pure", "delta: 1e-5, accounting: zcdp")) as up:
        yield up


def steward(served: Any) -> httpx.Client:
    return httpx.Client(
        base_url=served.steward, timeout=120, headers={"authorization": f"Bearer {served.tokens['steward']}"}
    )


def until(status: str, connection: Any, identity: str) -> dict[str, Any]:
    """The request, once it stands as expected; making a release takes as long as it takes."""
    for _ in range(1200):
        found = next(each for each in connection.requests() if each["id"] == identity)
        if found["status"] == status:
            return found
        time.sleep(0.1)
    raise AssertionError(f"the request is still {found['status']}")


def test_an_approved_release_is_made_and_goes_to_the_one_who_asked(served, tmp_path: Path):
    ana = deniable.connect(served.http, served.tokens["ana"], timeout=120)
    filed = ana.request("mask", ["people"])
    with pytest.raises(AccessRefused, match="pending"):
        ana.download(filed["id"], "people", tmp_path / "early.parquet")
    with steward(served) as client:
        assert client.post(f"/v1/requests/{filed['id']}/approve", json={"reason": "fine"}).status_code == 200
    made = until("released", ana, filed["id"])
    file = ana.download(filed["id"], "people", tmp_path / "downloaded.parquet")
    rows = pq.read_table(file)
    assert rows.num_rows == 300
    assert "p7" not in rows.column("id").to_pylist()
    assert made["release"] in {each["release"] for each in ana.register()["releases"]}
    ben = deniable.connect(served.http, served.tokens["ben"], timeout=120)
    for wanted in (filed["id"], "nothing", "../../people"):
        with pytest.raises(DeniableError):
            ben.download(wanted, "people", tmp_path / "stolen.parquet")
    with pytest.raises(DeniableError, match="no such file"):
        ana.download(filed["id"], "towns", tmp_path / "other.parquet")
    assert not (tmp_path / "stolen.parquet").exists()
    assert not (tmp_path / "early.parquet").exists()


def test_a_synthetic_release_is_charged_to_the_one_who_asked(served, tmp_path: Path):
    ana = deniable.connect(served.http, served.tokens["ana"], timeout=120)
    filed = ana.request("synthesize", ["people"], epsilon="2", delta="0.000001")
    with steward(served) as client:
        client.post(f"/v1/requests/{filed['id']}/approve", json={"reason": "fine"})
    made = until("released", ana, filed["id"])
    assert any(each["release"] == made["release"] for each in ana.releases())
    assert pq.read_table(ana.download(filed["id"], "people", tmp_path / "p.parquet")).num_rows > 0


def test_where_two_must_approve_nothing_is_begun_after_the_first(serve, clinic_policy: str):
    from deniable.curator.governance import requests
    from deniable.governance.grants import Role

    masked = clinic_policy.replace("id: {role: identifier}", "id: {role: identifier, mask: redact}")
    with serve(policy=masked.replace("research: {epsilon: 50000}", "research: {epsilon: 50000, approvals: 2}")) as up:
        ana = deniable.connect(up.http, up.tokens["ana"], timeout=120)
        filed = ana.request("mask", ["people"])
        second, _ = requests.issue(up.curator.context, "sue", Role.STEWARD)
        decided = []
        for token in (up.tokens["steward"], up.tokens["steward"], second):
            path, header = f"{up.steward}/v1/requests/{filed['id']}/approve", {"authorization": f"Bearer {token}"}
            decided.append(httpx.post(path, json={"reason": "fine"}, headers=header, timeout=120))
            if token != second:
                assert not up.log, "nothing was begun, here or elsewhere"
        assert [each.status_code for each in decided] == [200, 403, 200]
        assert decided[0].json()["status"] == "pending"
        until("released", ana, filed["id"])
        deadline = time.monotonic() + 60
        while not any("was fulfilled" in line for line in up.log) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [line for line in up.log if filed["id"] in line] == [f"request {filed['id']} was fulfilled"]


def test_of_those_who_decide_over_http_at_one_moment_one_is_told_yes_and_that_is_what_happens(served):
    """Eight stewards approve or decline each of a few requests at once: one word stands, and nobody else is told so.

    What was approved can be declined until it is made: then both are told yes, and the second word stands.
    """
    ana = deniable.connect(served.http, served.tokens["ana"], timeout=120)
    words, approved = ("approve", "decline") * 4, 0
    with ThreadPoolExecutor(len(words)) as pool, steward(served) as client:
        for _ in range(4):
            filed, start = ana.request("mask", ["people"]), Barrier(len(words))

            def decide(word: str, identity: str = filed["id"], start: Barrier = start) -> int:
                start.wait()
                return client.post(f"/v1/requests/{identity}/{word}", json={"reason": word}).status_code

            told = list(pool.map(decide, words))
            yes = [word for word, status in zip(words, told, strict=True) if status == 200]
            assert sorted(yes) in (["approve"], ["decline"], ["approve", "decline"]), told
            assert set(told) <= {200, 400, 403}
            until("released" if yes == ["approve"] else "declined", ana, filed["id"])
            approved += yes == ["approve"]
    assert len(list(served.curator.ledger.entries(acts=("fulfill",)))) == approved
    assert len(list(served.folder.glob("policy.releases/*/people.parquet"))) == approved


def test_a_declined_request_is_never_made(served):
    ana = deniable.connect(served.http, served.tokens["ana"], timeout=120)
    filed = ana.request("mask", ["people"])
    with steward(served) as client:
        client.post(f"/v1/requests/{filed['id']}/decline", json={"reason": "no"})
    assert until("declined", ana, filed["id"])["reason"] == "no"
    assert not (served.folder / "policy.releases" / filed["id"]).exists()


def test_the_stewards_door_can_be_a_socket_that_only_its_owner_opens(serve, tmp_path: Path):
    place = tmp_path / "steward.sock"
    with serve(steward=str(place)) as served:
        assert served.steward == f"unix:{place}"
        assert place.stat().st_mode & 0o777 == 0o600
        transport = httpx.HTTPTransport(uds=str(place))
        header = {"authorization": f"Bearer {served.tokens['steward']}"}
        with httpx.Client(transport=transport, base_url="http://localhost", headers=header, timeout=120) as client:
            assert client.get("/v1/verify").json()["entries"] >= 4
            issued = client.post("/v1/tokens", json={"name": "cyd", "purposes": ["care"]})
            assert issued.status_code == 201
            assert client.get("/v1/tokens", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert httpx.get(f"{served.http}/v1/tokens", timeout=120).status_code == 404, "not on the analysts' port"


def die(*_: object, **__: object) -> None:
    """End the work of a thread as the end of its process does: nothing is noted."""
    raise KeyboardInterrupt


DEATHS = {
    "before it began": "deniable.curator.governance.fulfill.fulfill_once",
    "after the charge": "deniable.curator.charge.store_answer",
    "after the files": "deniable.curator.governance.requests.mark_fulfilled",
}


@pytest.fixture(params=["sqlite", "postgresql"])
def again(request: pytest.FixtureRequest, serve: Any, clinic_policy: str, tmp_path: Path) -> Any:
    """A function that starts a server, each time over the same ledger."""
    name, kept = f"clinic{uuid.uuid4().hex[:8]}", request.param == "postgresql"
    policy = clinic_policy.replace("id: {role: identifier}", "id: {role: identifier, mask: redact}")
    policy = policy.replace("accounting: pure", "delta: 1e-5, accounting: zcdp").replace("clinic", name)
    ledger = request.getfixturevalue("postgres_address") if kept else str(tmp_path / "ledger.sqlite")
    return lambda: serve(policy=policy, ledger=ledger)


@pytest.mark.quick_cases(3)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("death", DEATHS)
def test_what_a_server_left_unmade_is_made_once_under_its_charge_by_those_that_start_later(
    again: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: str
) -> None:
    died = Event()
    with again() as up, monkeypatch.context() as patch, steward(up) as client:
        patch.setattr(DEATHS[death], lambda *_, **__: (died.set(), die()))
        filed = deniable.connect(up.http, up.tokens["ana"], timeout=120).request(
            "synthesize", ["people"], epsilon="2", delta="0.000001"
        )
        assert client.post(f"/v1/requests/{filed['id']}/approve", json={"reason": "fine"}).status_code == 200
        assert died.wait(120)
    with again() as one, again() as other:
        ana = deniable.connect(one.http, one.tokens["ana"], timeout=120)
        until("released", ana, filed["id"])
        entries = [(entry.act, entry.request) for entry in one.curator.ledger.entries()]
        assert [request for act, request in entries if act == "charge"] == [f"fulfill {filed['id']} people"]
        assert [act for act, _ in entries].count("fulfill") == 1
        for up in (one, other):
            rows = deniable.connect(up.http, up.tokens["ana"], timeout=120)
            assert pq.read_table(rows.download(filed["id"], "people", tmp_path / "p.parquet")).num_rows > 0
    assert [line for up in (one, other) for line in up.log].count(f"request {filed['id']} was fulfilled") == 1
    with again() as later:
        assert not later.log, "nothing is left to be made"


def test_a_release_that_the_steward_makes_elsewhere_is_downloaded_as_it_was_published(
    again: Any, tmp_path: Path
) -> None:
    from deniable.curator.governance import requests
    from deniable.curator.governance.fulfill import fulfill

    with again() as up:
        ana = deniable.connect(up.http, up.tokens["ana"], timeout=120)
        filed = ana.request("mask", ["people"])
        requests.decide(up.curator.context, filed["id"], True, "fine")
    with again() as up:
        ana = deniable.connect(up.http, up.tokens["ana"], timeout=120)
        assert not up.log, "what was approved beside a server is the steward's to make"
        fulfill(up.folder / "policy.yaml", up.ledger, filed["id"], tmp_path / "elsewhere")
        until("released", ana, filed["id"])
        assert pq.read_table(ana.download(filed["id"], "people", tmp_path / "p.parquet")).num_rows == 300
        assert (tmp_path / "p.parquet").read_bytes() == (tmp_path / "elsewhere" / "people.parquet").read_bytes()
        for change in (lambda file: file.write_bytes((up.folder / "people.parquet").read_bytes()), Path.unlink):
            change(tmp_path / "elsewhere" / "people.parquet")
            with pytest.raises(DeniableError, match=r"this server does not have its file.*Ask the steward"):
                ana.download(filed["id"], "people", tmp_path / "other.parquet")
        assert not (tmp_path / "other.parquet").exists()


def approve(up: Any, technique: str, **asked: str) -> str:
    """File a request at a server, and approve it there."""
    filed = deniable.connect(up.http, up.tokens["ana"], timeout=120).request(technique, ["people"], **asked)
    with steward(up) as client:
        assert client.post(f"/v1/requests/{filed['id']}/approve", json={"reason": "fine"}).status_code == 200
    return str(filed["id"])


def wait_for_failure(up: Any, identity: str) -> str:
    with steward(up) as client:
        for _ in range(1200):
            listed = client.get("/v1/requests").json()["requests"]
            if told := next(each for each in listed if each["id"] == identity).get("failed"):
                return str(told)
            time.sleep(0.1)
    raise AssertionError("nothing failed")


def test_what_failed_is_tried_again_when_a_server_starts_and_the_steward_is_told_why(
    again: Any, tmp_path: Path
) -> None:
    rows = tmp_path / "people.parquet"
    with again() as up:
        kept = rows.read_bytes()
        rows.write_bytes(b"no parquet")
        identity = approve(up, "synthesize", epsilon="2", delta="0.000001")
        assert "people.parquet" in wait_for_failure(up, identity), "the steward is told which file it is"
        command = next(line for line in up.log if "Try by hand" in line).partition("Try by hand: ")[2]
        assert CliRunner().invoke(app, command.split()[1:]).exit_code == 1, "the rows are as they were"
    rows.write_bytes(kept)
    with again() as up:
        until("released", deniable.connect(up.http, up.tokens["ana"], timeout=120), identity)


def test_a_charge_is_told_whatever_keeps_a_release_from_being_made(
    again: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died, told = Event(), "its request was charged before: entry"
    with again() as up, monkeypatch.context() as patch:
        patch.setattr(DEATHS["after the charge"], lambda *_, **__: (died.set(), die()))
        identity = approve(up, "synthesize", epsilon="2", delta="0.000001")
        assert died.wait(120)
        with pytest.raises(AccessRefused, match=f"is approved.*{told}"):
            deniable.connect(up.http, up.tokens["ana"], timeout=120).download(
                identity, "people", tmp_path / "p.parquet"
            )
    shutil.rmtree(tmp_path / "policy.releases")
    (tmp_path / "policy.releases").write_text("a file stands there")
    with again() as up:
        assert told in wait_for_failure(up, identity)
        mine = deniable.connect(up.http, up.tokens["ana"], timeout=120).requests()
        assert told in next(each for each in mine if each["id"] == identity)["failed"]


def test_a_server_elsewhere_names_what_another_began_and_makes_it_when_the_steward_says_so(
    serve: Any,
    serving_clinic: Any,
    clinic_policy: str,
    tmp_path: Path,
    postgres_address: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two hosts without a shared disk, of which the first does not come back."""
    policy = clinic_policy.replace("id: {role: identifier}", "id: {role: identifier, mask: redact}")
    policy = policy.replace("clinic", f"clinic{uuid.uuid4().hex[:8]}")
    died, other = Event(), tmp_path / "other"
    with serve(policy=policy, ledger=postgres_address) as up, monkeypatch.context() as patch:
        patch.setattr(DEATHS["after the files"], lambda *_, **__: (died.set(), die()))
        identity = approve(up, "mask")
        assert died.wait(120)
    other.mkdir()
    for name in ("policy.yaml", "people.parquet", "towns.csv"):
        shutil.copy(tmp_path / name, other / name)
    with serving_clinic(other, policy, ledger=postgres_address) as up:
        for _ in range(1200):
            if up.log:
                break
            time.sleep(0.1)
        assert f"begun in '{tmp_path / 'policy.releases' / identity}'" in up.log[0]
        assert up.log[0].endswith("--take-over")
        with steward(up) as client:
            assert client.post(f"/v1/requests/{identity}/make").json()["status"] == "released"
            assert client.post(f"/v1/requests/{identity}/make").status_code == 403
        ana = deniable.connect(up.http, up.tokens["ana"], timeout=120)
        assert pq.read_table(ana.download(identity, "people", tmp_path / "p.parquet")).num_rows == 300
    with serve(policy=policy, ledger=postgres_address) as up:  # the first host comes back, with its file
        assert (tmp_path / "policy.releases" / identity / "people.parquet").exists()
        ana = deniable.connect(up.http, up.tokens["ana"], timeout=120)
        first = (tmp_path / "policy.releases" / identity / "people.parquet").read_bytes()
        assert ana.download(identity, "people", tmp_path / "q.parquet").read_bytes() != first


def test_two_hosts_with_the_same_paths_do_not_make_one_release_at_one_moment(
    serve: Any, clinic_policy: str, tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their disks are not shared, and so is no lock on them: the database tells them apart."""
    from deniable.curator.governance import requests
    from deniable.curator.governance.fulfill import fulfill_once

    policy = clinic_policy.replace("id: {role: identifier}", "id: {role: identifier, mask: redact}")
    policy = policy.replace("clinic", f"clinic{uuid.uuid4().hex[:8]}")
    close, made = requests.mark_fulfilled, []

    def look(*given: Any, **more: Any) -> Any:
        shutil.move(tmp_path / "policy.releases", tmp_path / "the disk of the first host")
        made.append(fulfill_once(tmp_path / "policy.yaml", postgres_address, given[1]))
        shutil.rmtree(tmp_path / "policy.releases", ignore_errors=True)
        shutil.move(tmp_path / "the disk of the first host", tmp_path / "policy.releases")
        return close(*given, **more)

    with serve(policy=policy, ledger=postgres_address) as up:
        monkeypatch.setattr(requests, "mark_fulfilled", look)
        until("released", deniable.connect(up.http, up.tokens["ana"], timeout=120), approve(up, "mask"))
        assert made == [False]
        assert len(list(up.curator.ledger.entries(acts=("publish",)))) == 1
