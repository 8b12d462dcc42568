"""Where keys live: files that only their owner can read, environment variables, or a command that prints one.

A key never travels in the arguments of a process: a source is a *place* (`file:PATH`, `env:VARIABLE`,
`command:PROGRAM ...`), and only the place is ever named in errors. Check values already seen are remembered in a
small public file, so that a wrong key is noticed before any output and not when the joins come out empty.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deniable.errors import KeyUnavailable, ParameterError, StorageError
from deniable.masking import keys
from deniable.masking.keys import Key

SUFFIX = ".key"
OWNER_ONLY = 0o600
COMMAND_SECONDS = 60
MAX_KEY_TEXT = 4096


def home() -> Path:
    """The directory of key files: $DENIABLE_KEYS, or ~/.deniable/keys. It is never a folder of releases."""
    given = os.environ.get("DENIABLE_KEYS")
    return Path(given) if given else Path.home() / ".deniable" / "keys"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Names of keys and the places they are read from; unnamed ones are files of the key directory."""

    places: Mapping[str, str] = field(default_factory=dict)
    directory: Path = field(default_factory=home)

    def place(self, name: str) -> str:
        """Where the key of that name is read from."""
        return self.places.get(name, f"file:{self.directory / (keys.check_name(name) + SUFFIX)}")

    def open(self, name: str) -> Key:
        """Read one key, and see that it is the one named."""
        place = self.place(name)
        key = keys.decode(_read(place), place)
        if key.name != name:
            raise KeyUnavailable(
                f"{place} holds the key '{key.name}', and '{name}' was asked for",
                remedy="Name the right place: --key NAME=file:PATH",
            )
        return key


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
        places[keys.check_name(name)] = place
    return places


def store(key: Key, path: Path) -> Path:
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
        raise StorageError(f"{path} cannot be written: {failure.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(keys.encode(key))
        file.flush()
        os.fsync(file.fileno())
    return path


def replace(new: Key, directory: Path) -> Path:
    """Put a new key in the place of the one of its name, which is kept beside it as NAME.1.key, NAME.2.key ...

    The old key is linked to its new name before the new key takes its place, so at no moment is either lost.
    """
    path = directory / (new.name + SUFFIX)
    number = 1 + sum(1 for _ in directory.glob(f"{new.name}.*{SUFFIX}"))
    kept = directory / f"{new.name}.{number}{SUFFIX}"
    fresh = store(new, directory / f".{new.name}.{os.getpid()}.new")
    os.link(path, kept)
    os.replace(fresh, path)
    return kept


def _read(place: str) -> str:
    kind, _, rest = place.partition(":")
    return _READERS[kind](rest)


def _read_file(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as failure:
        raise KeyUnavailable(f"there is no readable key at {path}: {failure.strerror}", remedy=keys.LOST) from None
    with os.fdopen(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise KeyUnavailable(
                f"{path} can be read by others (mode {mode:04o})",
                expected="A key file belongs to its owner alone (mode 0600)",
                remedy=f"`chmod 600 {path}`, and rotate the key if others may have read it",
            )
        return file.read(MAX_KEY_TEXT).decode("ascii", errors="replace")


def _read_environment(variable: str) -> str:
    text = os.environ.get(variable)
    if text is None:
        raise KeyUnavailable(f"the environment variable {variable} is not set", remedy=keys.LOST)
    return text.replace("\\n", "\n")


def _read_command(command: str) -> str:
    program = shlex.split(command)
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


def known_checks(path: Path) -> dict[str, str]:
    """The check values remembered in a file (none if it is not there yet)."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise StorageError(f"{path} is not a record of check values", remedy="Restore it, or remove it") from None


def confirm(used: Iterable[Key], path: Path) -> None:
    """Refuse a key that differs from the one remembered under its name, then remember the new names."""
    known = known_checks(path)
    for key in used:
        if key.name in known:
            keys.require(key, known[key.name], str(path))
        known[key.name] = key.check
    remember(known, path)


def remember(checks: Mapping[str, str], path: Path) -> None:
    """Write the record of check values, whole or not at all."""
    if checks == known_checks(path):
        return
    text = json.dumps(dict(sorted(checks.items())), indent=2) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)
    except OSError as failure:
        raise StorageError(f"{path} cannot be written: {failure.strerror}") from None
