"""Masking keys: drawn, stored for their owner alone, derived by domain, never shown, noticed when wrong or lost."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import os
import pickle
import shlex
import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import DeniableError, KeyUnavailable, ParameterError
from deniable.masking import keys
from deniable.masking.keys import Keyring


def test_two_new_keys_differ_in_secret_and_check_value() -> None:
    one, two = keys.generate_key("people"), keys.generate_key("people")
    assert one.secret != two.secret
    assert one.check != two.check


def test_a_key_shows_its_name_and_check_value_and_never_its_secret() -> None:
    key = keys.generate_key("people")
    shown = f"{key!r} {key} {[key]}"
    assert key.check in shown
    for form in (key.secret.hex(), repr(key.secret), str(list(key.secret))):
        assert form not in shown
    with pytest.raises(KeyUnavailable, match="never serialized"):
        pickle.dumps(key)
    with pytest.raises(KeyUnavailable):
        copy.deepcopy(key)


def test_sub_keys_are_hmacs_of_purpose_and_domain_and_all_differ() -> None:
    key = keys.generate_key("people")
    expected = hmac.new(key.secret, b"deniable/1\0token\0people\0\x01", hashlib.sha256).digest()
    assert key.derive("token", "people") == expected
    pairs = [("token", "people"), ("token", "doctors"), ("shift", "people"), ("tokenp", "eople"), ("check", "people")]
    assert len({key.derive(*pair) for pair in pairs}) == len(pairs)
    with pytest.raises(ParameterError):
        key.derive("token\0", "people")


def test_a_key_file_is_for_its_owner_alone_and_comes_back_as_it_was(tmp_path: Path) -> None:
    key = keys.generate_key("people")
    path = keys.store_key(key, tmp_path / "keys" / "people.key")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Keyring(directory=path.parent).open("people").secret == key.secret


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = keys.store_key(keys.generate_key("people"), tmp_path / "people.key")
    path.chmod(mode)
    with pytest.raises(KeyUnavailable, match="read by others") as refusal:
        Keyring(directory=tmp_path).open("people")
    assert "chmod 600" in refusal.value.remedy


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    keys.store_key(keys.generate_key("people"), tmp_path / "people.key")
    before = (tmp_path / "people.key").read_bytes()
    with pytest.raises(KeyUnavailable, match="never overwritten"):
        keys.store_key(keys.generate_key("people"), tmp_path / "people.key")
    assert (tmp_path / "people.key").read_bytes() == before


def test_a_lost_key_is_explained(tmp_path: Path) -> None:
    with pytest.raises(KeyUnavailable, match="there is no key at") as refusal:
        Keyring(directory=tmp_path).open("people")
    assert refusal.value.remedy.startswith(f"Make it: `deniable key new people -o {tmp_path / 'people.key'}`.")
    assert "cannot be recovered" in refusal.value.remedy
    assert "backup" in refusal.value.remedy


@pytest.mark.parametrize("place", ["", "file:other.key", "file:a folder/it's.key", "env:PEOPLE_KEY"])
def test_the_command_that_is_printed_makes_the_key_that_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DENIABLE_KEYS", str(tmp_path / "keys"))
    ring = Keyring({"people": place} if place else {})
    with pytest.raises(KeyUnavailable) as refusal:
        ring.open("people")
    command = shlex.split(refusal.value.remedy.split("`")[1])
    assert CliRunner().invoke(app, command[1:]).exit_code == 0
    if place.startswith("env:"):
        monkeypatch.setenv("PEOPLE_KEY", (tmp_path / "keys" / "people.key").read_text())
    assert ring.open("people").name == "people"


def test_every_single_changed_character_of_a_key_file_is_noticed(tmp_path: Path) -> None:
    text = keys.encode_key(keys.generate_key("people"))
    for at, sign in enumerate(text):
        changed = text[:at] + ("A" if sign != "A" else "B") + text[at + 1 :]
        if at == len(text) - 1:  # only the end of the file may differ without meaning
            continue
        with pytest.raises(DeniableError) as refusal:
            keys.decode_key(changed, "a place")
        assert text.split("secret ")[1].strip() not in refusal.value.message


def test_keys_come_from_the_environment_and_from_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = keys.generate_key("people")
    monkeypatch.setenv("PEOPLE_KEY", keys.encode_key(key))
    script = tmp_path / "print.py"
    script.write_text(f"print({keys.encode_key(key)!r}, end='')")
    places = keys.parse_places(["people=env:PEOPLE_KEY"])
    assert Keyring(places, tmp_path).open("people").secret == key.secret
    places = keys.parse_places([f"people=command:{sys.executable} {script}"])
    assert Keyring(places, tmp_path).open("people").secret == key.secret


def test_a_failing_command_says_nothing_of_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "fail.py"
    script.write_text("import sys; print('hush-hush'); print('hush-hush', file=sys.stderr); sys.exit(1)")
    places = keys.parse_places([f"people=command:{sys.executable} {script}"])
    with pytest.raises(KeyUnavailable) as refusal:
        Keyring(places, tmp_path).open("people")
    assert "hush" not in json.dumps(refusal.value.as_dict())


def test_a_secret_pasted_where_a_place_belongs_is_not_repeated() -> None:
    with pytest.raises(ParameterError) as refusal:
        keys.parse_places(["people=c2VjcmV0IHNlY3JldA=="])
    assert "c2Vj" not in json.dumps(refusal.value.as_dict())


def test_a_file_with_another_keys_name_is_refused(tmp_path: Path) -> None:
    keys.store_key(keys.generate_key("doctors"), tmp_path / "people.key")
    with pytest.raises(KeyUnavailable, match="holds the key 'doctors'"):
        Keyring(directory=tmp_path).open("people")


@pytest.mark.parametrize("name", ["", "People", "../people", "a" * 64, "people key", "1people"])
def test_names_that_could_not_be_files_are_refused(name: str) -> None:
    with pytest.raises(ParameterError):
        keys.generate_key(name)


def test_the_first_use_is_remembered_and_another_key_is_refused_afterwards(tmp_path: Path) -> None:
    record = tmp_path / "policy.keys.json"
    one, two = keys.generate_key("people"), keys.generate_key("people")
    keys.confirm_keys([one], record)
    assert json.loads(record.read_text()) == {"people": one.check}
    keys.confirm_keys([one], record)
    with pytest.raises(KeyUnavailable, match="wrong key 'people'") as refusal:
        keys.confirm_keys([two], record)
    assert "Nothing was written" in refusal.value.remedy
    assert json.loads(record.read_text()) == {"people": one.check}


def test_replacing_a_key_keeps_the_old_one_readable(tmp_path: Path) -> None:
    old, new = keys.generate_key("people"), keys.generate_key("people")
    keys.store_key(old, tmp_path / "people.key")
    kept = keys.replace_key(new, tmp_path)
    assert Keyring(directory=tmp_path).open("people").secret == new.secret
    assert Keyring({"people": f"file:{kept}"}).open("people").secret == old.secret
    again = keys.replace_key(keys.generate_key("people"), tmp_path)
    assert again != kept
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]
