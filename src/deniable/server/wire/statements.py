"""Statements of a session: what each is, which columns it will give, and carrying it out.

    SET, SHOW, RESET      settings of the session           BEGIN, COMMIT, SAVEPOINT ...   of settings, see `session`
    EXPLAIN SELECT ...    the privacy plan; nothing runs    questions about the catalog    declared metadata
    PREPARE, DECLARE ...  see `prepared_statements`         COPY (SELECT ...) TO STDOUT    an answer as text or CSV
    anything else         a question: charged, and answered with noise

Nothing is ever undone: a charge stands, whatever a transaction says. Nothing is ever copied in."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeVar

from deniable.curator.query import metadata
from deniable.errors import DeniableError
from deniable.governance.grants import Action, Grant
from deniable.query.sql.lexer import Kind, Statement, split_statements
from deniable.server.formats import render_plan
from deniable.server.service import Question, Service
from deniable.server.wire import prepared_statements
from deniable.server.wire import values as v
from deniable.server.wire.catalog_queries import CatalogEngine, asks_for_columns, drop_emptiness, is_catalog_question
from deniable.server.wire.catalog_tables import list_column_types
from deniable.server.wire.codec import ResultColumn, Rows, StatementResult, TableRows, WireRefusal
from deniable.server.wire.prepared_statements import Prepared, PreparedStatements
from deniable.server.wire.settings import Settings, parse_assignment

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.query.sql.catalogs import Rewritten


Result = TypeVar("Result")
SHORT = 1000
"""Characters of a text that is read at once."""
_TAGS = {
    "begin": "BEGIN", "start": "START TRANSACTION", "commit": "COMMIT", "end": "COMMIT", "rollback": "ROLLBACK",
    "abort": "ROLLBACK", "savepoint": "SAVEPOINT", "release": "RELEASE", "discard": "DISCARD ALL",
    "listen": "LISTEN", "unlisten": "UNLISTEN",
}  # fmt: skip
"""Statements that change nothing but the settings of the session, with the tag that tools wait for."""
_QUESTION_WORDS = frozenset({"select", "with", "values", "table", "(", "show", "explain"})
_CHANGES = """
    alter analyze call checkpoint cluster comment create delete do drop grant import insert lock merge notify reassign
    refresh reindex revoke security truncate update vacuum
"""
_CHANGING_WORDS = frozenset(_CHANGES.split())
_ROWLESS_WORDS = _CHANGING_WORDS.union(
    _TAGS, ("set", "reset", "prepare", "deallocate", "declare", "move", "close", "copy")
)


class StatementRunner:
    """The statements of one session."""

    def __init__(
        self, service: Service, catalogs: CatalogEngine, grant: Grant, settings: Settings, process: int
    ) -> None:
        self._service = service
        self._catalog_engine = catalogs
        self._grant = grant
        self._process = process
        self._questions = 0
        self._asked = ""
        """The name by which the question that runs can be taken back: its request id, where it has one."""
        self.asking = False
        """Whether the statement that runs is a question to the tables, which may be charged."""
        self.settings = settings
        self.statements = PreparedStatements()

    @cached_property
    def column_types(self) -> dict[str, int]:
        """The types of the columns that the asker may name, by name; one that has several types is left out."""
        who = self._service.authorize(self._grant, Action.EXPLAIN, self.settings.get("deniable.purpose"))
        found: dict[str, set[int]] = {}
        catalog = list_column_types()
        for table in metadata.schema(self._service.look_as(self._grant, who)):
            for column in table.columns:
                found.setdefault(column.column, set()).add(v.OID_OF_KIND[column.type])
        return {name: next(iter(kinds)) for name, kinds in (catalog | found).items() if len(kinds) == 1}

    async def split(self, sql: str) -> tuple[Statement, ...]:
        """The statements of a text; a long one is read in its asker's turn, so that others need not wait for it."""
        return await self.take_turn(len(sql), partial(_split_words, sql))

    async def take_turn(self, length: int, work: Callable[[], Result]) -> Result:
        """Do some work on a text: at once where it is short, else in its asker's turn."""
        return work() if length <= SHORT else await self._service.run_for(self._grant, work)

    async def columns(self, statement: Statement, values: Sequence[Any]) -> tuple[ResultColumn, ...] | None:
        """The columns that a statement will give, or None where it gives no rows. Nothing is charged."""
        await self._service.confirm(self._grant)
        word = statement.words[0]
        if word in _ROWLESS_WORDS:
            return None
        if word == "show":
            return self._show_setting(statement)[0]
        if word == "execute":
            return await self.columns(*self._resolve_execute(statement))
        if word == "fetch":
            portal = self.statements.portal(prepared_statements.parse_fetch(statement)[0])
            return portal.columns or await self.columns(_question_of(portal.prepared), portal.values)
        if word == "explain":
            return (ResultColumn("QUERY PLAN", v.TEXT),)
        if is_catalog_question(statement) and (found := await self._try_catalog(statement, values, rows=False)):
            return found.columns
        columns = await self._service.columns(self._grant, await self._build_question(statement, values))
        return tuple(_describe_column(column.name, column.kind) for column in columns)

    async def run(self, statement: Statement, values: Sequence[Any]) -> StatementResult:
        """Carry a statement out, if the session's token still counts."""
        self.asking = False
        await self._service.confirm(self._grant)
        word = statement.words[0]
        if word in _TAGS:
            if statement.starts("discard", "all"):
                self.settings.reset("all")
            return StatementResult(_choose_tag(statement))
        if word in ("set", "reset"):
            return self._change_setting(statement)
        if word == "show":
            columns, rows = self._show_setting(statement)
            return StatementResult("SHOW", columns, rows)
        if word in ("prepare", "deallocate", "declare", "close"):
            return await self._change_names(word, statement, values)
        if word == "execute":
            return await self.run(*self._resolve_execute(statement))
        if word in ("fetch", "move"):
            return await self._fetch(word, *prepared_statements.parse_fetch(statement))
        if word == "copy":
            return await self._copy_out(parse_copy(statement), values)
        if word == "explain":
            return await self._explain_question(statement, values)
        if is_catalog_question(statement) and (found := await self._try_catalog(statement, values)):
            return found
        if word in _CHANGING_WORDS:
            raise WireRefusal(
                "25006", f"{word.upper()} is not taken: nothing can be changed, locked or maintained here",
                "Ask with SELECT; rows and tables are the steward's",
            )  # fmt: skip
        return await self._answer_question(statement, values)

    async def _try_catalog(
        self, statement: Statement, values: Sequence[Any], *, rows: bool = True
    ) -> StatementResult | None:
        """What the catalog says; None where a question without rows uses words of questions about people."""
        try:
            found = await self._ask_catalog(statement, values, rows=rows)
        except WireRefusal as refusal:
            if refusal.sqlstate != "0A000" or not asks_for_columns(statement):
                raise
            return None
        return await self._describe_alike(statement, values, found) if asks_for_columns(statement) else found

    async def _describe_alike(
        self, statement: Statement, values: Sequence[Any], found: StatementResult
    ) -> StatementResult:
        """What the catalog says of a question without rows, with the types that the question has with rows."""
        try:
            question = await self._build_question(statement, values, drop_emptiness(statement))
            told = await self._service.columns(self._grant, question)
        except (DeniableError, WireRefusal):  # it is none that could be asked, such as one for rows as they are
            return found
        import pyarrow as pa

        columns = tuple(_describe_column(each.name, each.kind) for each in told)
        if found.columns is None or len(columns) != len(found.columns) or not isinstance(found.rows, TableRows):
            return found
        kinds = [_ARROW_OF_KIND[each.kind] for each in told]
        table = found.rows.table
        arrays = [each.cast(kind, safe=False) for each, kind in zip(table.columns, kinds, strict=True)]
        return replace(found, columns=columns, rows=TableRows(pa.table(arrays, [each.name for each in columns])))

    async def _change_names(self, word: str, statement: Statement, values: Sequence[Any]) -> StatementResult:
        """Put something under a name of the session, or take it away."""
        length = len(statement.text)
        match word:
            case "prepare":
                name, prepared = await self.take_turn(length, partial(prepared_statements.parse_prepare, statement))
                _question_of(prepared)
                self.statements.prepare(name, prepared)
                return StatementResult("PREPARE")
            case "declare":
                name, portal = await self.take_turn(
                    length, partial(prepared_statements.parse_declare, statement, values)
                )
                _question_of(portal.prepared)
                self.statements.open(name, portal)
                return StatementResult("DECLARE CURSOR")
            case "close":
                return StatementResult(self.statements.close(statement))
            case _:
                return StatementResult(self.statements.deallocate(statement))

    def _resolve_execute(self, statement: Statement) -> tuple[Statement, tuple[Any, ...]]:
        """The statement that EXECUTE names, and its values."""
        name, given = prepared_statements.parse_execute(statement)
        prepared = self.statements.statement(name)
        if len(given) != len(prepared.oids):
            raise WireRefusal("42601", f"the prepared statement takes {len(prepared.oids)} values, not {len(given)}")
        typed = (
            v.decode_value(value.encode(), oid, False, place) if isinstance(value, str) else value
            for place, (value, oid) in enumerate(zip(given, prepared.oids, strict=True), start=1)
        )
        return _question_of(prepared), tuple(typed)

    async def _fetch(self, word: str, name: str, most: int | None) -> StatementResult:
        """The next rows of a cursor; its question is asked when rows are first taken."""
        portal, charged = self.statements.portal(name), False
        whole = portal.outcome
        if whole is None:
            self.statements.refuse_rows()
            try:
                whole = await self.run(_question_of(portal.prepared), portal.values)
            except Exception:
                self.statements.portals.pop(name, None)  # elsewhere DECLARE would have failed, and left none
                raise
            portal.keep(whole)
            charged = whole.charged
        rows = portal.take(most)
        tag, moved = f"{word.upper()} {len(rows)}", word == "move"
        return StatementResult(tag, None if moved else whole.columns, () if moved else rows, charged=charged)

    async def _copy_out(self, copying: CopyRequest, values: Sequence[Any]) -> StatementResult:
        """An answer as lines of text."""
        whole = await self.run(_require_question(copying.question), values)
        if whole.columns is None:
            raise WireRefusal("42601", "only what gives rows can be copied")
        copied = format_copy_lines(copying, whole.columns, whole.rows)
        binary = copying.form == "binary"
        return replace(whole, tag=f"COPY {len(whole.rows)}", rows=(), copied=copied, binary=binary)

    async def recall_charge(self, failure: Exception) -> None:
        """Let a refusal say what was charged before under the request id that is set."""
        await self._service.recall_charge(self._grant, self.settings.get("deniable.request"), failure)

    def cancel(self) -> None:
        """Stop the question that waits or runs."""
        if self.asking:
            self._service.cancel(self._grant, self._asked)

    async def _build_question(self, statement: Statement, values: Sequence[Any], sql: str | None = None) -> Question:
        """A statement as a question, with its values inside its text."""
        length = len(statement.text) + sum(len(each) if isinstance(each, str | list) else 1 for each in values)
        build = partial(self._state_question, statement, values, sql)
        return await self.take_turn(length, build)

    def _state_question(self, statement: Statement, values: Sequence[Any], sql: str | None) -> Question:
        get = self.settings.get
        # A statement that states its own budget is not refused for the session's, which is only the default.
        inside = ("with", "differential_privacy") in pairwise(statement.words)
        asked = statement if sql is None else split_statements(sql)[0]
        if (local := prepared_statements.drop_catalog(asked, self._service.dataset)) != asked.text:
            asked = split_statements(local)[0]
        text, plain = prepared_statements.expand_arrays(asked, values) if values else (asked.text, ())
        if any(isinstance(each, list) for each in plain):
            raise WireRefusal("22023", "a list of values stands in = ANY ($1) and <> ALL ($1) alone")
        return Question(
            sql=metadata.fill_parameters(text, plain) if plain else text,
            epsilon=None if inside else get("deniable.epsilon") or None,
            delta="0" if inside else get("deniable.delta") or "0",
            rho=None if inside else get("deniable.rho") or None,
            purpose=get("deniable.purpose"),
            request=get("deniable.request"),
            confidence=_parse_confidence(get("deniable.confidence")),
            intervals=self.settings.on("deniable.intervals"),
            nonnegative=self.settings.on("deniable.nonnegative"),
        )

    async def _answer_question(self, statement: Statement, values: Sequence[Any]) -> StatementResult:
        question = await self._build_question(statement, values)
        self._questions, self.asking = self._questions + 1, True
        self._asked = question.request or f"session {self._process} question {self._questions}"
        answer = await self._service.answer(self._grant, question, self._asked)
        self.settings.forget("deniable.request")
        rows, charged = TableRows(answer.rows), answer.receipt is not None
        return StatementResult(f"SELECT {len(rows)}", describe_columns(answer.rows), rows, charged=charged)

    async def _explain_question(self, statement: Statement, values: Sequence[Any]) -> StatementResult:
        place = 1
        options: tuple[str, ...] = ()
        if statement.words[1:2] == ("(",):
            place = statement.words.index(")") + 1 if ")" in statement.words else len(statement.words)
            options = statement.words[2 : place - 1]
        if place >= len(statement.tokens):
            raise WireRefusal("42601", "EXPLAIN needs a question", "Write: EXPLAIN SELECT COUNT(*) FROM ...")
        inner = statement.text[statement.tokens[place].start :]
        told = await self._service.explain(self._grant, await self._build_question(statement, values, inner))
        lines = [json.dumps(told.to_dict(), default=str)] if "json" in options else render_plan(told)
        return StatementResult("EXPLAIN", (ResultColumn("QUERY PLAN", v.TEXT),), [(line,) for line in lines])

    def _change_setting(self, statement: Statement) -> StatementResult:
        if statement.words[0] == "reset":
            name, value = "".join(statement.words[1:]), "default"
        else:
            name, value = parse_assignment(statement)
        if value.lower() == "default":
            self.settings.reset(name)
        else:
            self.settings.put(name, value, local=statement.words[1:2] == ("local",))
        return StatementResult(statement.words[0].upper())

    def _show_setting(self, statement: Statement) -> tuple[tuple[ResultColumn, ...], list[tuple[Any, ...]]]:
        name = "".join(token.value for token in statement.tokens[1:])
        if name == "all":
            columns = tuple(ResultColumn(each, v.TEXT) for each in ("name", "setting", "description"))
            return columns, list(self.settings.list_all())
        name = {"transactionisolationlevel": "transaction_isolation", "timezone": "TimeZone"}.get(name, name)
        return (ResultColumn(name, v.TEXT),), [(self.settings.get(name),)]

    async def _ask_catalog(self, statement: Statement, values: Sequence[Any], rows: bool = True) -> StatementResult:
        purpose = self.settings.get("deniable.purpose")
        who = self._service.authorize(self._grant, Action.EXPLAIN, purpose)
        settings = {name: value for name, value, _ in self.settings.list_all()}

        def work() -> tuple[pa.Table, Rewritten]:
            filled = _fill_values(statement, values)
            return self._catalog_engine.ask(filled, self._grant.name, self._process, settings, who, rows)

        found, asked = await self._service.run_for(self._grant, work)
        for each in asked.assignments if rows and found.num_rows else ():
            self.settings.put(each.name, each.value, local=each.local)
        kinds = (v.JSON if place in asked.json else v.choose_oid(str(f.type)) for place, f in enumerate(found.schema))
        columns = tuple(_build_column(name, oid) for name, oid in zip(found.column_names, kinds, strict=True))
        return StatementResult(f"SELECT {found.num_rows}", columns, TableRows(found))


def _split_words(sql: str) -> tuple[Statement, ...]:
    """The statements of a text, and their words with them."""
    found = split_statements(sql)
    for each in found:
        _ = each.words  # kept once it was worked out
    return found


def _question_of(prepared: Prepared) -> Statement:
    return _require_question(prepared.statement)


def _require_question(statement: Statement | None) -> Statement:
    """A statement that gives rows of its own; one that names others could name itself."""
    if statement is None or statement.words[0] not in _QUESTION_WORDS:
        raise WireRefusal("0A000", "only a question can be prepared, declared or copied")
    return statement


def _parse_confidence(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WireRefusal("22023", "deniable.confidence is not a number", "SET deniable.confidence = 0.95") from None


def _choose_tag(statement: Statement) -> str:
    if statement.words[0] == "discard":
        return " ".join(statement.words[:2]).upper()
    return _TAGS[statement.words[0]]


def _describe_column(name: str, kind: str) -> ResultColumn:
    return _build_column(name, v.OID_OF_KIND[kind])


def _build_column(name: str, oid: int) -> ResultColumn:
    return ResultColumn(name, oid, v.SIZES.get(oid, -1))


def _fill_values(statement: Statement, values: Sequence[Any]) -> Statement:
    """The statement with its parameters filled in."""
    if not values:
        return statement
    text, filled = prepared_statements.expand_arrays(statement, values)
    write = v.choose_encoder(v.ARRAY_OF[v.TEXT], False)
    plain = tuple((write(each) or b"").decode() if isinstance(each, list) else each for each in filled)
    return split_statements(metadata.fill_parameters(text, plain))[0]


def describe_columns(table: pa.Table) -> tuple[ResultColumn, ...]:
    """The columns of a table: numbers, truths and days as such, everything else as text."""
    return tuple(
        _describe_column(field.name, _ARROW_KINDS.get(str(field.type).split("[")[0], "text")) for field in table.schema
    )


_ARROW_KINDS = {
    "bool": "boolean",
    "double": "decimal",
    "float": "decimal",
    "date32": "date",
    "timestamp": "datetime",
} | {f"{sign}int{size}": "integer" for sign in ("", "u") for size in (8, 16, 32, 64)}


_ARROW_OF_KIND = {
    "boolean": "bool",
    "date": "date32",
    "datetime": "timestamp[us]",
    "decimal": "float64",
    "integer": "int64",
    "text": "string",
}


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"})


COPY_WORDS = frozenset(
    ("with", "format", "csv", "text", "binary", "header", "true", "on", "false", "off", "delimiter", "as")
)
BINARY_START = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
BINARY_END = struct.pack("!h", -1)


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A question to be copied out, and the form of its lines."""

    question: Statement
    form: str = "text"
    header: bool = False
    delimiter: str = ""


def parse_copy(statement: Statement) -> CopyRequest:
    """What COPY (question) TO STDOUT asks for; nothing is ever copied in, and no table as it is."""
    if statement.words[1:2] != ("(",):
        raise WireRefusal("0A000", "only the answer to a question can be copied", "Write: COPY (SELECT ...) TO STDOUT")
    end = _find_closing_bracket(statement)
    inner = split_statements(statement.text[statement.tokens[1].end : statement.tokens[end].start])
    rest = statement.words[end + 1 :]
    if len(inner) != 1 or rest[:2] != ("to", "stdout"):
        raise WireRefusal("0A000", "an answer can be copied to the client only", "Write: COPY (SELECT ...) TO STDOUT")
    return _parse_copy_options(inner[0], statement, end + 3)


def _find_closing_bracket(statement: Statement) -> int:
    depth = 0
    for place, token in enumerate(statement.tokens):
        depth += (token.text == "(") - (token.text == ")") if token.kind is Kind.SIGN else 0
        if depth == 0 and place > 0:
            return place
    raise WireRefusal("42601", "a bracket is not closed")


def _parse_copy_options(question: Statement, statement: Statement, start: int) -> CopyRequest:
    """The form, in the present spelling `(FORMAT csv, HEADER)` and in the old one `CSV HEADER`."""
    tokens = [token for token in statement.tokens[start:] if token.text not in ("(", ")", ",")]
    words = [token.value for token in tokens]
    unknown = set(words) - COPY_WORDS
    quoted = [place for place, token in enumerate(tokens) if token.kind is Kind.STRING]
    marks = [words[place] for place in quoted if words[max(place - 1, 0)] != "format"]  # FORMAT 'csv' names the form
    if unknown - set(marks) or len(marks) > 1 or any(len(mark) != 1 or mark in '\n\r\\"' for mark in marks):
        raise WireRefusal("0A000", "this option of COPY is not supported", "There are FORMAT, HEADER and DELIMITER")
    at = words.index("header") if "header" in words else -1
    header = at >= 0 and words[at + 1 : at + 2] not in (["false"], ["off"])
    form = next((each for each in ("csv", "binary") if each in words), "text")
    if form == "binary" and (header or marks):
        raise WireRefusal("42601", "a binary copy has neither a header nor a delimiter")
    return CopyRequest(question, form, header, marks[0] if marks else "")


def format_copy_lines(copying: CopyRequest, columns: Sequence[ResultColumn], rows: Rows) -> Iterator[bytes]:
    """The answer as lines, with a heading if one is wanted; or as PostgreSQL's binary rows; made one by one."""
    binary, csv = copying.form == "binary", copying.form == "csv"
    mark = copying.delimiter or ("," if csv else "\t")
    write = [v.choose_encoder(column.oid, binary) for column in columns]
    table = ([each(value) for each, value in zip(write, row, strict=True)] for row in rows)
    if binary:
        lines = chain(map(_pack_row, table), (BINARY_END,))
        yield BINARY_START + next(lines)  # clients expect the first row behind the heading, in one message
        yield from lines
        return
    cells = _format_csv_cell if csv else _format_text_cell
    heading: list[list[bytes | None]] = [[column.name.encode() for column in columns]] if copying.header else []
    for row in chain(heading, table):
        yield mark.join(cells(cell, mark) for cell in row).encode() + b"\n"


def _pack_row(cells: Sequence[bytes | None]) -> bytes:
    """A row in binary: how many cells, and each with its length before it, which is -1 for null."""
    lengths = (struct.pack("!i", -1 if cell is None else len(cell)) + (cell or b"") for cell in cells)
    return struct.pack("!h", len(cells)) + b"".join(lengths)


def _format_text_cell(cell: bytes | None, mark: str) -> str:
    if cell is None:
        return "\\N"
    written = cell.decode("utf-8").translate(_ESCAPES)
    return written if mark == "\t" else written.replace(mark, f"\\{mark}")


def _format_csv_cell(cell: bytes | None, mark: str) -> str:
    """Null is nothing, an empty text is quoted, so that the two are told apart."""
    if cell is None:
        return ""
    written = cell.decode("utf-8")
    quoted = not written or any(each in written for each in (mark, '"', "\n", "\r")) or written == "\\."
    return '"' + written.replace('"', '""') + '"' if quoted else written
