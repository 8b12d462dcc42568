"""Masking keys: drawn from the operating system, named, never shown, and checked before anything is written.

A key is 32 secret bytes with a name. Each use derives its own sub-key by HMAC-SHA-256 over a purpose and a domain (the
expand step of HKDF, RFC 5869). The *check value* of a key, 40 bits derived under a purpose of its own, is public: it
tells whether two uses had the same key, and gives no help in finding it.

A key never travels in the arguments of a process: its source is a *place* (`file:PATH`, `env:VARIABLE`,
`command:PROGRAM ...`), and only the place is ever named in errors. Check values already seen are remembered in a small
public file, so that a wrong key is noticed before any output and not when the joins come out empty."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
import re
import secrets
import shlex
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from deniable.errors import KeyUnavailable, ParameterError, StorageError
from deniable.storage import give_name, is_open_to_others

SECRET_BYTES = 32
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
HEADERS = {1: "deniable-key-1", 2: "deniable-key-2"}
NORMALIZED = 2
"""From this version of keys on, identifiers are compared without regard to case, spaces and Unicode forms."""

LOST = (
    "A lost key cannot be recovered: releases made with it stay valid and joinable with each other, but nothing new "
    "can be joined to them and a vault sealed with it stays closed. Restore the key from a backup. Without one, move "
    "the old file away, make a new key with `deniable key new` and release all tables again"
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Key:
    """A named secret. It refuses to be printed, compared or pickled, so that it cannot wander off by accident."""

    name: str
    secret: bytes = field(repr=False)
    version: int = NORMALIZED

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.secret) != SECRET_BYTES:
            raise KeyUnavailable(f"key '{self.name}' does not have {SECRET_BYTES} bytes", remedy=LOST)

    def __repr__(self) -> str:
        return f"Key({self.name!r}, check={self.check!r})"

    def __reduce__(self) -> NoReturn:
        raise KeyUnavailable(f"key '{self.name}' is never serialized", expected="It is read again from its source")

    @property
    def check(self) -> str:
        """The public check value: ten hexadecimal digits."""
        return self.derive("check", self.name).hex()[:10]

    @property
    def normalize(self) -> str:
        """How values are compared under this key unless a policy says: keys of version 1 compare them as they are, so
        that what is masked today still joins what was masked with them before.
        """
        return "text" if self.version >= NORMALIZED else "exact"

    def derive(self, purpose: str, domain: str) -> bytes:
        """The sub-key for one purpose in one domain.

        Lengths are fixed by a NUL between the parts, which neither may contain, so no two pairs share a message.
        """
        if "\0" in purpose + domain:
            raise ParameterError("a purpose or a domain of a key contains a NUL character", expected="Text without one")
        message = f"deniable/1\0{purpose}\0{domain}\0\x01".encode()
        return hmac.digest(self.secret, message, hashlib.sha256)


def generate_key(name: str) -> Key:
    """A new key from the operating system's entropy."""
    return Key(name, secrets.token_bytes(SECRET_BYTES))


def check_name(name: str) -> str:
    """The name itself if it may name a key (and so a file), else a refusal."""
    if not NAME.fullmatch(name):
        raise ParameterError(
            "this is not a name for a key",
            expected="Lower-case letters, digits, '-' and '_', beginning with a letter, at most 63",
        )
    return name


def encode_key(key: Key) -> str:
    """The text of a key file: header, name, check value, secret; one line each."""
    return (
        f"{HEADERS[key.version]}\nname {key.name}\ncheck {key.check}\nsecret {base64.b64encode(key.secret).decode()}\n"
    )


def decode_key(text: str, source: str) -> Key:
    """The key that a text holds; a text that was cut or edited is noticed by its check value.

    `source` names where the text came from; no part of the text itself is ever quoted.
    """
    lines = text.split("\n")
    fields = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
    versions = {header: version for version, header in HEADERS.items()}
    if lines[0] not in versions or not {"name", "check", "secret"} <= set(fields):
        raise KeyUnavailable(
            f"{source} does not hold a key of deniable",
            remedy="Name the file of a key, or make one under another name: `deniable key new NAME -o FILE`",
        )
    key = Key(fields["name"], _decode_secret(fields["secret"], source), versions[lines[0]])
    if not hmac.compare_digest(key.check, fields["check"]):
        raise KeyUnavailable(f"the key in {source} is damaged: its check value does not fit its secret", remedy=LOST)
    return key


def require_key(key: Key, expected: str, where: str) -> None:
    """Refuse a key other than the one whose check value was recorded."""
    if not hmac.compare_digest(key.check, expected):
        raise KeyUnavailable(
            f"wrong key '{key.name}': its check value is {key.check}",
            expected=f"{where} was made with a key whose check value is {expected}",
            remedy="Give the key that was used before, or start afresh where that is recorded. Nothing was written",
            key=key.name,
        )


def _decode_secret(text: str, source: str) -> bytes:
    try:
        secret = base64.b64decode(text, validate=True)
    except binascii.Error:
        secret = b""
    if not secret or base64.b64encode(secret).decode() != text:  # the last character has bits that mean nothing
        raise KeyUnavailable(f"the key in {source} is damaged: its secret is not base64", remedy=LOST)
    return secret


SUFFIX = ".key"
OWNER_ONLY = 0o600
COMMAND_SECONDS = 60
MAX_KEY_TEXT = 4096


def find_key_directory() -> Path:
    """The directory of key files: $DENIABLE_KEYS, or ~/.deniable/keys. It is never a folder of releases."""
    given = os.environ.get("DENIABLE_KEYS")
    return Path(given) if given else Path.home() / ".deniable" / "keys"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Names of keys and the places they are read from; unnamed ones are files of the key directory."""

    places: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=find_key_directory)

    def place(self, name: str) -> str:
        """Where the key of that name is read from."""
        return self.places.get(name, f"file:{self.directory / (check_name(name) + SUFFIX)}")

    def open(self, name: str) -> Key:
        """Read one key, and see that it is the one named."""
        place = self.place(name)
        key = decode_key(_read_place(place, self._tell_making(name, place)), place)
        if key.name != name:
            raise KeyUnavailable(
                f"{place} holds the key '{key.name}', and '{name}' was asked for",
                remedy=f"Name the right place: --key {name}=file:PATH",
            )
        return key

    def _tell_making(self, name: str, place: str) -> str:
        """The command that makes the key of that name where it is looked for."""
        kind, _, path = place.partition(":")
        out = kind == "file" and Path(path) != find_key_directory() / (name + SUFFIX)
        return shlex.join(["deniable", "key", "new", name, *(["-o", path] if out else [])])


def parse_places(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=file:PATH`, `NAME=env:VARIABLE` or `NAME=command:PROGRAM ...` as a mapping of names to places."""
    places = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or place.split(":", 1)[0] not in _READERS:
            # The text is not quoted: somebody may have pasted a secret.
            raise ParameterError(
                "a place of a key was not understood",
                expected="NAME=file:PATH, NAME=env:VARIABLE or NAME=command:PROGRAM; never the key itself",
            )
        places[check_name(name)] = place
    return places


def store_key(key: Key, path: Path) -> Path:
    """Write a key to a new file that only its owner can read; an existing file is never overwritten."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    except FileExistsError:
        raise KeyUnavailable(
            f"{path} exists already, and a key is never overwritten",
            remedy=f"Choose another place, or `deniable key rotate {key.name}`",
        ) from None
    except OSError as failure:
        raise StorageError(
            f"{path} cannot be written: {failure.strerror}", remedy="Name a folder that can be written"
        ) from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(encode_key(key))
        file.flush()
        os.fsync(file.fileno())
    return path


def replace_key(new: Key, directory: Path) -> Path:
    """Put a new key in the place of the one of its name, which is kept beside it as NAME.1.key, NAME.2.key ...

    The old key gets its second name before the new key takes its place, so at no moment is either lost.
    """
    path = directory / (new.name + SUFFIX)
    number = 1 + sum(1 for _ in directory.glob(f"{new.name}.*{SUFFIX}"))
    kept = directory / f"{new.name}.{number}{SUFFIX}"
    fresh = store_key(new, directory / f".{new.name}.{os.getpid()}.new")
    give_name(path, kept)
    os.replace(fresh, path)
    return kept


def _read_place(place: str, making: str) -> str:
    kind, _, rest = place.partition(":")
    return _READERS[kind](rest, making)


def _read_file(path: str, making: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        make = f"Make it: `{making}`. If it was made before, put its backup there: a lost key cannot be recovered"
        raise KeyUnavailable(f"there is no key at {path}", remedy=make) from None
    except OSError as failure:
        raise KeyUnavailable(f"the key at {path} cannot be read: {failure.strerror}", remedy=LOST) from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if is_open_to_others(status):
            raise KeyUnavailable(
                f"{path} can be read by others (mode {stat.S_IMODE(status.st_mode):04o})",
                expected="A key file belongs to its owner alone (mode 0600)",
                remedy=f"`chmod 600 {path}`, and rotate the key if others may have read it",
            )
        return file.read(MAX_KEY_TEXT).decode("ascii", errors="replace")


def _read_environment(variable: str, making: str) -> str:
    text = os.environ.get(variable)
    if text is None:
        raise KeyUnavailable(
            f"the environment variable {variable} is not set",
            expected="The text of a key file in it",
            remedy=f"If there is no key yet, make a file with `{making}` and put its text there. {LOST}",
        )
    return text.replace("\\n", "\n")


def _read_command(command: str, _making: str) -> str:
    program = shlex.split(command, posix=os.name == "posix")  # elsewhere a backslash is part of a path
    try:
        # Its error output is dropped: a secret store may print what it was asked to hide.
        done = subprocess.run(  # noqa: S603  the steward's own command, without a shell
            program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=COMMAND_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError) as failure:
        raise KeyUnavailable(
            f"the command for the key did not succeed ({type(failure).__name__})",
            remedy="Run it by hand to see why; its output is not shown here because it may hold the key",
        ) from None
    return done.stdout[:MAX_KEY_TEXT].decode("ascii", errors="replace")


_READERS = {"file": _read_file, "env": _read_environment, "command": _read_command}


def read_checks(path: Path) -> dict[str, str]:
    """The check values remembered in a file (none if it is not there yet)."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise StorageError(f"{path} is not a record of check values", remedy="Restore it, or remove it") from None


NEXT = "/next"  # behind a name: the check value of the key that a rotation puts in its place


def find_expected(known: Mapping[str, str], key: Key) -> str | None:
    """The check value that a key of this name must have, if one is remembered; a rotation may have put a new one."""
    return key.check if known.get(key.name + NEXT) == key.check else known.get(key.name)


def confirm_keys(used: Iterable[Key], path: Path) -> None:
    """Refuse a key that differs from the one remembered under its name, then remember the new names."""
    known = read_checks(path)
    for key in used:
        expected = find_expected(known, key)
        if expected is not None:
            require_key(key, expected, str(path))
        if known.get(key.name + NEXT) == key.check:
            del known[key.name + NEXT]
        known[key.name] = key.check
    remember_checks(known, path)


def remember_checks(checks: Mapping[str, str], path: Path) -> None:
    """Write the record of check values, whole or not at all."""
    if checks == read_checks(path):
        return
    text = json.dumps(dict(sorted(checks.items())), indent=2) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as failure:
        raise StorageError(
            f"{path} cannot be written: {failure.strerror}", remedy="Name a folder that can be written"
        ) from None
