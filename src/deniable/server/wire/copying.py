"""COPY (question) TO STDOUT: an answer as lines of text or CSV, as PostgreSQL writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deniable.server.wire import values as v
from deniable.server.wire.codec import ResultColumn
from deniable.server.wire.lexing import Kind, Statement, statements
from deniable.server.wire.refusals import WireRefusal

_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"})


@dataclass(frozen=True, slots=True)
class Copying:
    """A question to be copied out, and the form of its lines."""

    question: Statement
    csv: bool = False
    header: bool = False
    delimiter: str = ""


def copied_by(statement: Statement) -> Copying:
    """What COPY (question) TO STDOUT asks for; nothing is ever copied in, and no table as it is."""
    if statement.words[1:2] != ("(",):
        raise WireRefusal("0A000", "only the answer to a question can be copied", "Write: COPY (SELECT ...) TO STDOUT")
    end = _closing(statement)
    inner = statements(statement.text[statement.tokens[1].end : statement.tokens[end].start])
    rest = statement.words[end + 1 :]
    if len(inner) != 1 or rest[:2] != ("to", "stdout"):
        raise WireRefusal("0A000", "an answer can be copied to the client only", "Write: COPY (SELECT ...) TO STDOUT")
    return _formed(inner[0], statement, end + 3)


def _closing(statement: Statement) -> int:
    depth = 0
    for place, token in enumerate(statement.tokens):
        depth += (token.text == "(") - (token.text == ")") if token.kind is Kind.SIGN else 0
        if depth == 0 and place > 0:
            return place
    raise WireRefusal("42601", "a bracket is not closed")


def _formed(question: Statement, statement: Statement, start: int) -> Copying:
    """The form, in the present spelling `(FORMAT csv, HEADER)` and in the old one `CSV HEADER`."""
    tokens = [token for token in statement.tokens[start:] if token.text not in ("(", ")", ",")]
    words = [token.value for token in tokens]
    if "binary" in words:
        raise WireRefusal("0A000", "binary copies are not supported", "Copy as text or as CSV")
    unknown = set(words) - {"with", "format", "csv", "text", "header", "true", "on", "false", "off", "delimiter", "as"}
    marks = [token.value for token in tokens if token.kind is Kind.STRING]
    if unknown - set(marks) or len(marks) > 1 or any(len(mark) != 1 or mark in '\n\r\\"' for mark in marks):
        raise WireRefusal("0A000", "this option of COPY is not supported", "There are FORMAT, HEADER and DELIMITER")
    at = words.index("header") if "header" in words else -1
    header = at >= 0 and words[at + 1 : at + 2] not in (["false"], ["off"])
    return Copying(question, "csv" in words, header, marks[0] if marks else "")


def lines(copying: Copying, columns: Sequence[ResultColumn], rows: Sequence[Sequence[Any]]) -> tuple[bytes, ...]:
    """The answer as lines, with a heading if one is wanted."""
    mark = copying.delimiter or ("," if copying.csv else "\t")
    write = [v.encoder(column.oid, False) for column in columns]
    cells = _csv if copying.csv else _text
    table: list[list[bytes | None]] = [[column.name.encode() for column in columns]] if copying.header else []
    table += [[each(value) for each, value in zip(write, row, strict=True)] for row in rows]
    return tuple(mark.join(cells(cell, mark) for cell in row).encode() + b"\n" for row in table)


def _text(cell: bytes | None, mark: str) -> str:
    if cell is None:
        return "\\N"
    written = cell.decode("utf-8").translate(_ESCAPES)
    return written if mark == "\t" else written.replace(mark, f"\\{mark}")


def _csv(cell: bytes | None, mark: str) -> str:
    """Null is nothing, an empty text is quoted, so that the two are told apart."""
    if cell is None:
        return ""
    written = cell.decode("utf-8")
    quoted = not written or any(each in written for each in (mark, '"', "\n", "\r")) or written == "\\."
    return '"' + written.replace('"', '""') + '"' if quoted else written
