"""Text files in whatever encoding, as UTF-8 for the engine.

A byte-order mark decides; without one, UTF-8 is expected. No other encoding is guessed: every byte sequence is valid
Latin-1, so a guess would be right by luck and would change names silently. What is declared is transcoded once, block
by block, into the engine's private folder.
"""

from __future__ import annotations

import codecs
import gzip
import tempfile
from pathlib import Path
from typing import BinaryIO

from deniable.errors import DataError, Place
from deniable.policy.schema import find_codec
from deniable.storage import storage_errors

BLOCK = 1 << 20
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def as_utf8(path: Path, declared: str | None, scratch: Path) -> Path:
    """The path itself when it is plain UTF-8 (or not yet known not to be), else a transcoded copy under `scratch`."""
    encoding = _resolve_codec(declared) if declared else _detect_encoding(path)
    if encoding in ("utf-8", "utf-8-sig") and not _is_gzip(path):
        return path
    # A folder of its own lets the copy keep its name, which is what refusals call it by.
    copy = Path(tempfile.mkdtemp(dir=scratch)) / path.name.removesuffix(".gz")
    with _open(path) as source, storage_errors(copy), copy.open("xb") as target:
        _transcode(source, target, encoding, path.name)
    return copy


def refuse_encoding(path: Path, line: int) -> DataError:
    """The refusal for bytes that are not UTF-8 in a file that declared nothing else."""
    return DataError(
        f"line {line} of '{path.name}' is not valid UTF-8",
        remedy="Declare the file's encoding, for example cp1252: with --encoding, or as csv: {encoding: cp1252} in the "
        "policy's table",
        place=Place(path.name, line),
    )


def _resolve_codec(name: str) -> str:
    known = find_codec(name)
    if known is None:
        raise DataError(
            f"there is no encoding '{name}'", expected="An encoding is named as in utf-8, latin-1, cp1252, utf-16"
        )
    return known


def _detect_encoding(path: Path) -> str:
    with _open(path) as file:
        start = file.read(512)
    for mark, encoding in _MARKS:
        if start.startswith(mark):
            return encoding
    if b"\0" in start:
        raise DataError(
            f"'{path.name}' is not a text file in UTF-8: its start has zero bytes",
            remedy="If it is UTF-16 without a byte-order mark, declare encoding utf-16-le or utf-16-be",
        )
    return "utf-8"


def _transcode(source: BinaryIO, target: BinaryIO, encoding: str, name: str) -> None:
    decoder = codecs.getincrementaldecoder(encoding)()
    line = 1
    try:
        while block := source.read(BLOCK):
            text = decoder.decode(block)
            target.write(text.encode("utf-8"))
            line += text.count("\n")
        target.write(decoder.decode(b"", final=True).encode("utf-8"))
    except UnicodeError:
        raise DataError(f"'{name}' is not {encoding} after line {line}", remedy="Declare another encoding") from None


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _open(path: Path) -> BinaryIO:
    return gzip.open(path, "rb") if _is_gzip(path) else path.open("rb")  # type: ignore[return-value]
