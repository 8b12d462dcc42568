"""Masking end to end by the command line: scan, draft, key, mask, join, kill and resume, rotate, reveal."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from deniable import world
from deniable.cli.main import main
from deniable.masking import keys, streaming
from deniable.release import verify

POLICY = """
version: 1
dataset: clinic
tables:
  patients:
    source: patients.csv
    unit: {column: id}
    columns:
      id: {role: identifier, mask: {token: {key: people}}}
      name: {role: identifier, mask: {codebook: {vault: names.vault, key: people}}}
      phone: {role: identifier, mask: {format_preserving: {key: people}}}
      born: {type: date, role: quasi-identifier, mask: {generalize: year}}
  visits:
    source: visits.parquet
    unit: {column: patient}
    columns:
      patient: {role: identifier, mask: {token: {key: people}}}
      day: {type: date, role: quasi-identifier, mask: {shift_dates: {key: people}}}
      note: {role: sensitive, mask: scrub}
"""
PEOPLE = 500


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tables that join, a policy, and a key in a folder of its own."""
    monkeypatch.setenv("DENIABLE_KEYS", str(tmp_path / "keys"))
    ids = range(PEOPLE)
    patients = pa.table(
        {
            "id": pa.array(ids),
            "name": [f"Person {i % 100}" for i in ids],
            "phone": [f"202-555-{i:04d}" for i in ids],
            "born": pa.array([1000 + i for i in ids], pa.int32()).cast(pa.date32()),
            "undeclared": ["do not release" for _ in ids],
        }
    )
    csv.write_csv(patients, tmp_path / "patients.csv")
    visits = pa.table(
        {
            "patient": [str(i % (PEOPLE + 50)) for i in range(2000)],  # some visits belong to nobody in patients
            "day": pa.array([18000 + i for i in range(2000)], pa.int32()).cast(pa.date32()),
            "note": [f"call 202-224-{i:04d}" for i in range(2000)],
        }
    )
    pq.write_table(visits, tmp_path / "visits.parquet")
    (tmp_path / "clinic.yaml").write_text(POLICY)
    keys.store_key(keys.generate_key("people"), tmp_path / "keys" / "people.key")
    return tmp_path


@dataclass
class Done:
    """What a run of the program left: its exit code and what it said."""

    returncode: int
    stdout: str
    stderr: str


def run(*words: str | Path, stdin: str | bytes = "") -> Done:
    """The program as the command line starts it, in this process (starting a new one costs seconds)."""
    said, complained = io.StringIO(), io.StringIO()
    before = sys.argv, sys.stdin
    given = stdin if isinstance(stdin, bytes) else stdin.encode()
    sys.argv, sys.stdin = ["deniable", *map(str, words)], io.TextIOWrapper(io.BytesIO(given), encoding="utf-8")
    try:
        with redirect_stdout(said), redirect_stderr(complained):
            main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv, sys.stdin = before
    return Done(code, said.getvalue(), complained.getvalue())


def masked(folder: Path, *more: str) -> dict[str, Any]:
    done = run("mask", "--policy", folder / "clinic.yaml", "-o", folder / "out", "--json", "--keep-order", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_all_tables_of_a_policy_are_masked_join_as_before_and_say_what_remains(clinic: Path) -> None:
    (clinic / "out").mkdir()
    report = masked(clinic)
    patients = pq.read_table(clinic / "out" / "patients.parquet")
    visits = pq.read_table(clinic / "out" / "visits.parquet")
    assert patients.schema.names == ["id", "name", "phone", "born"]
    assert report["tables"]["patients"]["withheld"] == ["undeclared"]
    assert len(set(patients["id"].to_pylist())) == PEOPLE
    assert len(set(patients["name"].to_pylist())) == 100
    assert all(phone[3] == phone[7] == "-" for phone in patients["phone"].to_pylist())
    assert set(visits["note"].to_pylist()) == {"call [phone]"}
    known = set(patients["id"].to_pylist())
    assert sum(one in known for one in visits["patient"].to_pylist()) == sum(i % 550 < 500 for i in range(2000))
    (join,) = report["joins"]
    assert join["shared_before"] == join["shared_after"] == PEOPLE
    statement = verify(clinic / "out" / "patients.parquet")
    assert statement.words[0].startswith("No formal guarantee")
    assert "single out" in statement.words[0]
    assert any("linking" in attack or "token" in attack for attack in statement.body["details"]["remaining_attacks"])
    assert not list((clinic / "out").glob(".*"))


def test_masking_again_gives_the_same_tokens_and_another_key_is_refused_before_any_output(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    first = pq.read_table(clinic / "out" / "patients.parquet")
    masked(clinic)
    assert pq.read_table(clinic / "out" / "patients.parquet").equals(first)
    (clinic / "keys" / "people.key").unlink()
    keys.store_key(keys.generate_key("people"), clinic / "keys" / "people.key")
    before = (clinic / "out" / "patients.parquet").stat().st_mtime_ns
    refused = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out")
    assert refused.returncode == 2
    assert "wrong key 'people'" in refused.stderr
    assert (clinic / "out" / "patients.parquet").stat().st_mtime_ns == before
    other = run("mask", clinic / "visits.parquet", "--policy", clinic / "clinic.yaml", "-o", clinic / "new.parquet")
    assert other.returncode == 2
    assert not (clinic / "new.parquet").exists()


def test_a_lost_key_is_explained_and_nothing_is_written(clinic: Path) -> None:
    (clinic / "keys" / "people.key").unlink()
    (clinic / "out").mkdir()
    refused = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out", "--json")
    assert refused.returncode == 2
    said = json.loads(refused.stdout)
    assert said["error"] == "key"
    assert "cannot be recovered" in said["remedy"]
    assert not list((clinic / "out").iterdir())


def test_no_secret_is_in_any_output_statement_or_journal(clinic: Path) -> None:
    (clinic / "out").mkdir()
    secret = keys.Keyring(directory=clinic / "keys").open("people").secret
    text = (clinic / "keys" / "people.key").read_text().split("secret ")[1].strip()
    done = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out")
    checked = run("key", "check", "people", "--policy", clinic / "clinic.yaml")
    said = done.stdout + done.stderr + checked.stdout + checked.stderr
    written = b"".join(path.read_bytes() for path in clinic.rglob("*") if path.is_file() and "keys/" not in str(path))
    for form in (text, secret.hex()):
        assert form not in said
        assert form.encode() not in written
    assert secret not in written
    assert "the one used with this policy before" in checked.stdout


SLOW = """
import sys, time
from deniable.masking import streaming
streaming.PART_ROWS = 100
real = streaming._mask_part
def slow(*args):
    time.sleep(0.15)
    return real(*args)
streaming._mask_part = slow
from deniable.cli.main import main
main()
"""


def _killed(clinic: Path, target: Path) -> list[str]:
    """Start masking, kill the process without warning in the middle, and say which parts it left."""
    words = ["mask", str(clinic / "visits.parquet"), "--policy", str(clinic / "clinic.yaml"), "-o", str(target)]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    work = target.with_name(f".{target.name}.work")
    deadline = time.monotonic() + 120
    while len(list(work.glob("0*.arrow"))) < 4 and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return sorted(path.name for path in work.glob("0*.arrow"))


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_killed_run_leaves_nothing_under_the_final_name_and_goes_on_where_it_was(
    clinic: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = clinic / f"out{suffix}"
    left = _killed(clinic, target)
    assert 4 <= len(left) < 20
    assert not target.exists()
    assert not target.with_name(target.name + ".release.json").exists()
    work = target.with_name(f".{target.name}.work")
    again: list[int] = []
    real = streaming._mask_part
    monkeypatch.setattr(streaming, "PART_ROWS", 100)
    monkeypatch.setattr(streaming, "_mask_part", lambda *args: again.append(args[3]) or real(*args))
    done = run("mask", clinic / "visits.parquet", "--policy", clinic / "clinic.yaml", "-o", target)
    assert done.returncode == 0, done.stderr
    assert len(again) == 20 - len(left)
    assert 0 not in again
    assert not work.exists()
    run("mask", clinic / "visits.parquet", "--policy", clinic / "clinic.yaml", "-o", clinic / f"whole{suffix}")
    read = pq.read_table if suffix == ".parquet" else csv.read_csv
    resumed, whole = (sorted(read(path).to_pylist(), key=str) for path in (target, clinic / f"whole{suffix}"))
    assert resumed == whole  # no row twice: the order is the one in which the work began
    verify(target)


def test_resuming_with_another_key_is_refused_and_fresh_starts_over(
    clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = clinic / "out.parquet"
    _killed(clinic, target)
    (clinic / "keys" / "people.key").unlink()
    keys.store_key(keys.generate_key("people"), clinic / "keys" / "people.key")
    (clinic / "clinic.keys.json").unlink()
    monkeypatch.setattr(streaming, "PART_ROWS", 100)
    words = ["mask", clinic / "visits.parquet", "--policy", clinic / "clinic.yaml", "-o", target]
    refused = run(*words)
    assert refused.returncode == 2
    assert "begun with another one" in refused.stderr
    assert not target.exists()
    fresh = run(*words, "--fresh")
    assert fresh.returncode == 0, fresh.stderr
    assert pq.read_table(target).num_rows == 2000


def test_rotating_a_key_maps_old_tokens_to_new_ones_and_seals_the_vault_anew(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    old = pq.read_table(clinic / "out" / "patients.parquet")
    done = run("key", "rotate", "people", "--policy", clinic / "clinic.yaml", "--map", clinic / "map.parquet", "--json")
    assert done.returncode == 0, done.stdout
    report = json.loads(done.stdout)
    assert report["check"] != report["old_check"]
    assert (clinic / "map.parquet").stat().st_mode & 0o077 == 0
    masked(clinic)
    new = pq.read_table(clinic / "out" / "patients.parquet")
    rows = pq.read_table(clinic / "map.parquet").to_pylist()
    mapped = {(row["table"], row["column"], row["old_token"]): row["new_token"] for row in rows}
    for before, after in zip(old.to_pylist(), new.to_pylist(), strict=True):
        assert mapped["patients", "id", before["id"]] == after["id"]
        assert mapped["patients", "phone", before["phone"]] == after["phone"]
        assert before["name"] == after["name"]  # codebook tokens do not depend on the key
    assert not set(old["id"].to_pylist()) & set(new["id"].to_pylist())


def test_a_vault_reveals_its_tokens_to_whoever_has_the_key_alone_and_the_ledger_knows(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    tokens = pq.read_table(clinic / "out" / "patients.parquet")["name"].to_pylist()[:3]
    words = ["vault", "reveal", clinic / "names.vault", "--policy", clinic / "clinic.yaml", "--by", "ana", "--name"]
    shown = run(*words, "people", stdin="\n".join(tokens))
    assert shown.stdout.splitlines() == ["Person 0", "Person 1", "Person 2"]
    counted = run("vault", "show", clinic / "names.vault", "--name", "people", "--json")
    assert json.loads(counted.stdout)["values"] == {"people": 100}
    run("key", "new", "thief", "-o", clinic / "thief.key")
    wrong = run(*words, "thief", "--key", f"thief=file:{clinic}/thief.key")
    assert wrong.returncode == 2
    assert "wrong key" in wrong.stderr
    listed = run("ledger", "export", "--policy", clinic / "clinic.yaml", "--form", "jsonl").stdout.splitlines()
    acts = [json.loads(line) for line in listed]
    (entry,) = [act for act in acts if act["act"] == "reveal"]
    assert (entry["analyst"], entry["details"]["tokens"], entry["details"]["vault"]) == ("ana", 3, "names.vault")
    assert "Person" not in str(entry)


def test_a_vault_is_opened_under_its_own_policy_alone_and_odd_bytes_are_refused(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    (clinic / "copy.vault").write_bytes((clinic / "names.vault").read_bytes())
    tries = (("copy.vault", b"a\n", "masked with this vault"), ("names.vault", b"\xff\xfe\n", "not UTF-8"))
    for vault, tokens, expected in tries:
        words = ["vault", "reveal", clinic / vault, "--policy", clinic / "clinic.yaml", "--name", "people"]
        refused = run(*words, stdin=tokens)
        assert refused.returncode == 2
        assert expected in refused.stderr


def test_a_lost_vault_is_refused_and_not_begun_anew(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    released = (clinic / "out" / "patients.parquet").read_bytes()
    for path in clinic.glob("names.vault*"):
        path.unlink()
    words = ["mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out"]
    refused = run(*words)
    assert refused.returncode == 2
    assert "is not the one that was used" in refused.stderr
    assert not (clinic / "names.vault").exists()
    assert (clinic / "out" / "patients.parquet").read_bytes() == released
    known = json.loads((clinic / "clinic.keys.json").read_text())
    (clinic / "clinic.keys.json").write_text(json.dumps({k: v for k, v in known.items() if "vault" not in k}))
    assert run(*words).returncode == 0


def test_one_key_shifts_dates_within_one_bound_in_all_tables_and_releases(clinic: Path) -> None:
    (clinic / "out").mkdir()
    masked(clinic)
    policy = POLICY.replace("shift_dates: {key: people}", "shift_dates: {key: people, days: 30}")
    (clinic / "clinic.yaml").write_text(policy)
    refused = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out")
    assert refused.returncode == 2
    assert "days: 365" in refused.stderr


@pytest.mark.parametrize("moment", ["replace_key", "finish"])
def test_a_rotation_that_is_killed_leaves_key_and_vault_that_fit(
    clinic: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deniable.curator.mask import keys as workflow

    (clinic / "out").mkdir()
    masked(clinic)
    before = pq.read_table(clinic / "out" / "patients.parquet")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(keys, "replace_key", die) if moment == "replace_key" else patched.setattr(
            workflow, "_finish", die
        )
        patched.setattr(workflow, "_cancel", lambda *_: None)  # a killed process cleans nothing up
        with pytest.raises(KeyboardInterrupt):
            workflow.rotate("people", clinic / "clinic.yaml", clinic / "map.parquet")
    masked(clinic)
    after = pq.read_table(clinic / "out" / "patients.parquet")
    assert after["name"].equals(before["name"])
    assert after["id"].equals(before["id"]) == (moment == "replace_key")
    done = run("key", "rotate", "people", "--policy", clinic / "clinic.yaml", "--map", clinic / "map.parquet")
    assert done.returncode == 0, done.stderr
    masked(clinic)
    assert pq.read_table(clinic / "out" / "patients.parquet")["name"].equals(before["name"])


def test_spellings_of_one_person_join_after_masking_and_placeholders_are_told(clinic: Path) -> None:
    visits = pa.table({
        "patient": [" 7", "7 ", "7", "8"],
        "day": pa.array([18000, 2932896, -25567, 18000], pa.int32()).cast(pa.date32()),  # 9999-12-31 and 1900-01-01
        "note": ["a", "b", "c", "d"],
    })  # fmt: skip
    pq.write_table(visits, clinic / "visits.parquet")
    (clinic / "out").mkdir()
    done = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out")
    assert done.returncode == 0, done.stderr
    assert "2 rows of day hold a placeholder" in done.stdout
    people = set(pq.read_table(clinic / "out" / "patients.parquet")["id"].to_pylist())
    out = pq.read_table(clinic / "out" / "visits.parquet")
    assert set(out["patient"].to_pylist()) <= people
    assert len(set(out["patient"].to_pylist())) == 2
    assert {"9999-12-31", "1900-01-01"} <= {str(day) for day in out["day"].to_pylist()}


def test_a_csv_file_holds_no_cell_that_a_spreadsheet_would_run(clinic: Path) -> None:
    notes = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "-5", "-", "plain"]
    rows = {"patient": [str(i) for i in range(8)], "day": pa.array([18000] * 8, pa.int32()).cast(pa.date32())}
    pq.write_table(pa.table(rows | {"note": notes}), clinic / "visits.parquet")
    words = ("mask", clinic / "visits.parquet", "--policy", clinic / "clinic.yaml", "--keep-order")
    run(*words, "-o", clinic / "out.csv")
    written = csv.read_csv(clinic / "out.csv", convert_options=csv.ConvertOptions(column_types={"note": pa.string()}))
    assert written["note"].to_pylist() == [f"'{note}" for note in notes[:5]] + ["-5", "-", "plain"]
    run(*words, "-o", clinic / "out.parquet")
    assert pq.read_table(clinic / "out.parquet")["note"].to_pylist() == notes


def test_scan_finds_drafts_and_its_draft_can_be_masked_with(clinic: Path) -> None:
    done = run(
        "scan", clinic / "patients.csv", "--draft", clinic / "draft.yaml", "--save", clinic / "scan.json", "--json"
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert json.loads((clinic / "scan.json").read_text()) == report
    kinds = {one["column"]: one["kind"] for one in report["findings"]}
    assert kinds["phone"] == "telephone"
    assert kinds["born"] == "birth date"
    assert kinds["id"] == "record id"
    assert [line["category"] for line in report["safe_harbor"]] == list("ABCDEFGHIJKLMNOPQR")
    assert "202-555" not in done.stdout
    released = run("mask", clinic / "patients.csv", "--policy", clinic / "draft.yaml", "-o", clinic / "out.csv")
    assert released.returncode == 0, released.stderr
    out = csv.read_csv(clinic / "out.csv")
    assert not set(out["phone"].to_pylist()) & {f"202-555-{i:04d}" for i in range(PEOPLE)}


HOSPITAL = """
version: 1
dataset: hospital
tables:
  visits:
    source: visits.parquet
    unit: {column: patient_id}
    columns:
      patient_id: {role: identifier, mask: {codebook: {vault: patients.vault, key: people}}}
      medical_record_number: {role: insensitive}
      phone: {role: insensitive}
      email: {role: insensitive}
      ssn: {role: insensitive}
      zip: {role: quasi-identifier}
      birth_date: {type: date, role: quasi-identifier}
      sex: {role: quasi-identifier}
      admission: {type: date, role: quasi-identifier}
      discharge: {type: date, role: quasi-identifier}
      diagnosis: {role: sensitive}
      note: {role: sensitive}
"""


def test_safe_harbor_handles_every_category_found_in_a_generated_hospital(clinic: Path) -> None:
    folder = clinic / "hospital"
    world.write("hospital", 2000, 3, folder)
    (folder / "safe.yaml").write_text(HOSPITAL)
    words = ["--policy", folder / "safe.yaml", "--mode", "safe-harbor", "-o", folder / "out.parquet", "--json"]
    done = run("mask", folder / "visits.parquet", *words)
    assert done.returncode == 0, done.stdout
    lines = {line["category"]: line for line in json.loads(done.stdout)["safe_harbor"]}
    assert len(lines) == 18
    assert {line["status"] for line in lines.values()} == {"handled", "not found"}
    assert {letter for letter, line in lines.items() if line["status"] == "handled"} == set("BCDFGHR")
    before = pq.read_table(folder / "visits.parquet")
    after = pq.read_table(folder / "out.parquet")
    for name in ("phone", "email", "ssn", "medical_record_number", "note"):
        assert set(after[name].drop_null().to_pylist()) <= {"***"}
    assert {len(area) for area in after["zip"].drop_null().to_pylist()} == {3}
    assert after["birth_date"].type == after["admission"].type == pa.int32()
    released = {value for name in ("patient_id", "zip") for value in after[name].to_pylist()}
    assert not released & {value for name in ("patient_id", "zip") for value in before[name].to_pylist()}
    assert "Safe Harbor" in verify(folder / "out.parquet").words[0]


def test_safe_harbor_refuses_tokens_that_are_derived_from_the_persons_data(clinic: Path) -> None:
    refused = run(
        "mask",
        clinic / "patients.csv",
        "--policy",
        clinic / "clinic.yaml",
        "--mode",
        "safe-harbor",
        "-o",
        clinic / "o.csv",
    )
    assert refused.returncode == 2
    assert "Safe Harbor does not allow the mask 'token'" in refused.stderr
    assert not (clinic / "o.csv").exists()


def test_an_expired_policy_releases_nothing(clinic: Path) -> None:
    (clinic / "clinic.yaml").write_text(POLICY + "expires: 2020-01-01\n")
    (clinic / "out").mkdir()
    refused = run("mask", "--policy", clinic / "clinic.yaml", "-o", clinic / "out")
    assert refused.returncode == 2
    assert "expired" in refused.stderr
    assert not list((clinic / "out").iterdir())


def test_a_release_of_a_policy_without_budgets_is_remembered_and_signed_by_a_key_that_stays(clinic: Path) -> None:
    (clinic / "out").mkdir()
    assert "budgets" not in (clinic / "clinic.yaml").read_text()
    keys = set()
    for _ in range(2):
        masked(clinic)
        statement = json.loads((clinic / "out" / "patients.parquet.release.json").read_text())
        keys.add(statement["signature"]["key"])
    assert len(keys) == 1
    listed = run("ledger", "export", "--policy", clinic / "clinic.yaml", "--form", "jsonl").stdout.splitlines()
    published = [act for act in map(json.loads, listed) if act["act"] == "publish"]
    assert {act["details"]["key"] for act in published} == keys
