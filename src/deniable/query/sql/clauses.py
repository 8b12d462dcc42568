"""The clauses that no SQL dialect parses for us: what an analyst says about budget and accuracy inside the statement.

    EXPLAIN SELECT ...
    SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 1, delta = 1e-6, max_groups_contributed = 2) ...
    SELECT AVG(q, contribution_bounds_per_group => (0, 100)) ...
    SELECT ... WITHIN 100 CONFIDENCE 0.95          SELECT ... WITHIN 5% OF 20000
    SELECT ... CONTRIBUTION AUTO SHARE 0.2         SELECT ... CONTRIBUTION (max_rows_per_group = 2)

Each is cut out of the text and replaced by blanks, so that positions in what remains are positions in what was typed.

**Parameters**: `$1`, `$2` stand for values that the asker sends beside the text. A value becomes a literal of its own
type, and a literal is exactly one operand: after filling in, the text is read again by the tokenizer that the parser
uses, and its tokens must be those of the statement with those of each literal in the place of its parameter. So no
value can become anything but a value, whatever characters it holds.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import sqlglot
import sqlglot.parser
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from deniable.errors import InternalError, MissingExtra, ParameterError, Place, QueryRefused, nearest
from deniable.policy.budget import exact
from deniable.query.builder import drop_zone
from deniable.query.sql import lexer

BOUNDS = ("max_groups_contributed", "max_rows_per_group", "max_rows_contributed")
IN_POLICIES = {"max_groups": BOUNDS[0], "max_rows": BOUNDS[2]}
"""What policies call a bound, and what a question calls it."""
OPTIONS = (
    "epsilon",
    "delta",
    "rho",
    *BOUNDS,
    "privacy_unit_column",
    "group_selection_strategy",
    "weights",
    "bias_share",
)
LONGEST = 100_000
COMPILE_SECONDS = 5
LESS_DEEP = "Nest functions less deeply"
MOST_STEPS, STEPS_BETWEEN = 30_000, 500
"""Parts of a statement that are read, each as often as it is read; and after how many the time is looked at."""


@dataclass(frozen=True, slots=True)
class Within:
    """An accuracy asked for: absolute, or a share of a public size, with a confidence."""

    error: Fraction
    relative_to: Fraction | None = None
    confidence: Fraction = Fraction(95, 100)
    relative: bool = False


@dataclass(frozen=True, slots=True)
class Auto:
    """CONTRIBUTION AUTO: the share of the budget that finding bounds takes, and the part of the text it is."""

    share: Fraction
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Clauses:
    """What was cut out of a statement, and the statement without it."""

    text: str
    explain: bool = False
    options: dict[str, str] = field(default_factory=dict)
    within: Within | None = None
    per_group: dict[int, tuple[Fraction, Fraction]] = field(default_factory=dict)
    """By the offset at which the aggregate's name starts."""
    tokens: tuple[Token, ...] | None = field(default=None, repr=False, compare=False)
    """The statement in tokens, where nothing was cut out of it."""
    started: float = field(default_factory=time.thread_time, repr=False, compare=False)
    """The thread's CPU time when compiling began."""
    auto: Auto | None = None
    """Where bounds on contributions are to be found."""
    pure: bool = field(default=False, compare=False)
    """Whether only noise with a price in pure epsilon may be chosen."""

    seconds: int | None = field(default=None, repr=False, compare=False)
    """How long compiling may take; None for the time of one question."""

    steps: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    def count_step(self) -> None:
        """Refuse when parts were read too often: where one is read twice, that doubles with each level around it."""
        step = next(self.steps)
        if step >= MOST_STEPS:
            raise QueryRefused(f"the statement takes more than {MOST_STEPS:,} steps to read", remedy=LESS_DEEP)
        if step % STEPS_BETWEEN == 0:
            self.refuse_late()

    def refuse_late(self) -> None:
        """Refuse when compiling has taken too long; it sees no rows, so this tells of none."""
        seconds = COMPILE_SECONDS if self.seconds is None else self.seconds
        if time.thread_time() - self.started > seconds:
            raise QueryRefused(
                f"compiling takes more than {seconds} seconds of computing",
                remedy="Ask for fewer grouping sets, steps, aggregates or questions at once",
            )


def refuse_depth() -> QueryRefused:
    """The refusal of a statement for which Python's stack is too short."""
    return QueryRefused("the statement is nested too deeply", remedy="Ask in several questions")


def place_at(text: str, offset: int) -> Place:
    """Line and column of an offset in a statement."""
    line = text.count("\n", 0, offset) + 1
    return Place("query", line, offset - (text.rfind("\n", 0, offset) + 1) + 1)


def refuse(text: str, offset: int, happened: str, **rest: str) -> QueryRefused:
    """A refusal that points into the statement."""
    return QueryRefused(happened, place=place_at(text, offset), **rest)


class _Parser(DuckDB.Parser):  # type: ignore[misc]  # the parser has no types here
    """DuckDB's parser, but for DECIMAL without digits: it has all of its places, as in PostgreSQL, and not three."""

    TYPE_CONVERTERS: ClassVar[dict[Any, Any]] = {
        kind: form for kind, form in DuckDB.Parser.TYPE_CONVERTERS.items() if kind is not exp.DataType.Type.DECIMAL
    }


def refuse_compiled_build() -> None:
    """Refuse sqlglot's compiled build: its parser cannot be extended, as the one above and those of dialects are."""
    if not str(sqlglot.parser.__file__).endswith(".py"):
        raise MissingExtra(
            "the compiled build of the SQL parser (sqlglotc) is installed, and its parser cannot be extended",
            expected="The plain build, sqlglot",
            remedy="Run 'pip uninstall sqlglotc'",
        )


def parse_tokens(tokens: list[Token], text: str) -> list[exp.Expression | None]:
    """The statements that a text holds, from its tokens."""
    refuse_compiled_build()
    found: list[exp.Expression | None] = _Parser(dialect=DuckDB()).parse(tokens, text)
    return found


def tokens_of(text: str) -> list[Token]:
    """The statement in tokens, or a refusal when it is not even that."""
    if not isinstance(text, str):
        raise QueryRefused("the statement is not text", expected="One SELECT statement as text")
    if len(text) > LONGEST:
        raise QueryRefused(f"the statement has more than {LONGEST} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise QueryRefused("the statement has half of a surrogate pair, which is not a character") from None
    try:
        tokens = list(sqlglot.tokenize(text, read="duckdb"))
    except (SqlglotError, RecursionError):
        raise QueryRefused("the statement cannot be read as SQL", remedy="Check quotes and brackets") from None
    kinds = [token.token_type for token in tokens]
    for place, kind in enumerate(kinds):
        if kind is TokenType.BYTE_STRING:
            if any(each in _TEXTS for each in (*kinds[max(place - 1, 0) : place], *kinds[place + 1 : place + 2])):
                raise refuse(text, tokens[place].start, "two texts stand side by side", remedy="Join them with ||")
            tokens[place] = _read_escaped(text, tokens[place])
        elif kind is TokenType.AMP and _UNICODE_TEXT.match(text, max(tokens[place].start - 1, 0)):
            raise refuse(text, tokens[place].start - 1, lexer.UNICODE_TEXT, remedy=lexer.WITHOUT_ESCAPE)
    return tokens


_TEXTS = (TokenType.STRING, TokenType.BYTE_STRING)
_UNICODE_TEXT = re.compile(r"""\b[uU]&['"]""")


def _read_escaped(text: str, token: Token) -> Token:
    """`E'...'` as the text that it stands for: so drivers write a text that holds a backslash."""
    try:
        meant = lexer.read_escapes(text[token.start + 2 : token.end])
    except ValueError:
        raise refuse(text, token.start, lexer.BAD_ESCAPE, remedy=lexer.WITHOUT_ESCAPE) from None
    return Token(TokenType.STRING, meant, token.line, token.col, token.start, token.end, token.comments)


def split_statements(text: str) -> list[str]:
    """The statements of a text, between semicolons that are outside of quotes and comments.

    >>> split_statements("SELECT ';' AS a; -- and; then\\nSELECT 2;")
    ["SELECT ';' AS a", 'SELECT 2']
    """
    found: list[str] = []
    begin: int | None = None
    tokens = tokens_of(text)
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.SEMICOLON:
            begin = None
            continue
        begin = token.start if begin is None else begin
        if place + 1 == len(tokens) or tokens[place + 1].token_type is TokenType.SEMICOLON:
            found.append(text[begin : token.end + 1])
    return found


def cut_clauses(text: str) -> Clauses:
    """Separate deniable's own clauses from the SQL around them."""
    typed, tokens = text, tokens_of(text)
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        text = _blank_out(text, tokens[-1].start, tokens[-1].end)
        tokens.pop()
    if not tokens:
        raise QueryRefused("the statement is empty", expected="A SELECT statement")
    explain = tokens[0].text.upper() == "EXPLAIN"
    if explain:
        # The tokenizer takes what follows EXPLAIN for one text, so the rest is read again.
        text = _blank_out(text, tokens[0].start, tokens[0].end)
        tokens = tokens_of(text)
        if not tokens:
            raise QueryRefused("there is nothing to explain", expected="A SELECT statement after EXPLAIN")
    _refuse_empty_items(text, tokens)
    text, tokens, auto, bounds = _cut_contribution(text, tokens)
    text, tokens, within = _cut_within(text, tokens)
    if auto is None and not bounds:  # the two stand in either order
        text, tokens, auto, bounds = _cut_contribution(text, tokens)
    text, options = _cut_options(text, tokens)
    if both := sorted(bounds.keys() & options.keys()):
        raise QueryRefused(f"'{both[0]}' is stated twice", remedy="State it in OPTIONS or after CONTRIBUTION")
    text, per_group = _cut_per_group(text, tokens)
    plain = tuple(tokens) if text == typed else None
    return Clauses(text, explain, {**options, **bounds}, within, per_group, plain, auto=auto)


def _blank_out(text: str, start: int, end: int) -> str:
    kept = "".join("\n" if char == "\n" else " " for char in text[start : end + 1])
    return text[:start] + kept + text[end + 1 :]


BEFORE_LISTS = ("SELECT", "FROM", "WHERE", "BY", "DISTINCT", "VALUES", "(")
BEFORE_BRACKETS = ("IN", "BY", "ROLLUP", "CUBE", "SETS", "VALUES", "USING", "OPTIONS", "OVER", "GROUP", ",", "(")


def _refuse_empty_items(text: str, tokens: list[Token]) -> None:
    """Refuse a comma with nothing before it, or with nothing after it among arguments: the parser passes them over.

    One at the end of a list of columns or values is how DuckDB and BigQuery have it, and is read so.
    """
    openings: list[int] = []
    for i, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            openings.append(i)
        elif token.token_type is TokenType.R_PAREN:
            opening = openings.pop() if openings else 0
            called = opening and _last_word(tokens[opening - 1]) not in BEFORE_BRACKETS
            called = called and _last_word(tokens[opening + 1]) not in ("SELECT", "WITH")
            if called and tokens[i - 1].token_type is TokenType.COMMA:
                raise refuse(text, tokens[i - 1].start, "nothing stands after this comma", remedy="Leave the comma out")
        elif i and token.token_type is tokens[i - 1].token_type is TokenType.COMMA:
            raise refuse(text, token.start, "two commas stand side by side", remedy="Leave one out")
        elif token.token_type is TokenType.COMMA and (not i or _last_word(tokens[i - 1]) in BEFORE_LISTS):
            raise refuse(text, token.start, "nothing stands before this comma", remedy="Leave the comma out")


def _last_word(token: Token) -> str:
    """The word of a token; the last where it has several, as ORDER BY has. A text or a quoted name is none."""
    quoted = token.end - token.start + 1 != len(token.text)
    return "" if quoted else token.text.upper().rpartition(" ")[2]


def _may_hold(text: str, word: str) -> bool:
    """Whether one of the tokens may be this word: most statements have no clause of ours, and are not searched."""
    return word in text.upper()


def _parse_number(text: str, token: Token, name: str) -> Fraction:
    try:
        number = exact(token.text, name)
    except ParameterError:
        raise refuse(text, token.start, f"{name} is not a number of at least 0") from None
    if abs(number) > 10**30:
        raise refuse(text, token.start, f"{name} is too large", expected="A number up to 1e30")
    return number


def _cut_within(text: str, tokens: list[Token]) -> tuple[str, list[Token], Within | None]:
    """The trailing WITHIN clause. (WITHIN GROUP belongs to SQL and is left alone.)"""
    if not _may_hold(text, "WITHIN"):
        return text, tokens, None
    words = [_last_word(token) for token in tokens]
    spots = [i for i, word in enumerate(words) if word == "WITHIN" and i and words[i - 1] not in NOT_BEFORE_CLAUSES]
    if not spots or spots[-1] + 1 >= len(tokens) or tokens[spots[-1] + 1].text.upper() == "GROUP":
        return text, tokens, None
    start = spots[-1]
    stated = tokens[start + 1 :]
    error = _parse_number(text, stated[0], "the error after WITHIN")
    relative = len(stated) > 1 and stated[1].text == "%"
    rest = stated[2:] if relative else stated[1:]
    said: dict[str, Fraction] = {}
    while rest:
        word = rest[0].text.upper()
        if word not in ("OF", "CONFIDENCE") or len(rest) < 2 or word in said:
            raise refuse(text, rest[0].start, "the WITHIN clause has an unexpected word",
                         expected="WITHIN 100, WITHIN 5% OF 20000, each with CONFIDENCE 0.95 if wanted")  # fmt: skip
        said[word] = _parse_number(text, rest[1], word)
        rest = rest[2:]
    confidence = said.get("CONFIDENCE", Fraction(95, 100))
    if not 0 < confidence < 1 or error <= 0:
        raise refuse(text, stated[0].start, "the WITHIN clause needs a positive error and a confidence between 0 and 1")
    text = _blank_out(text, tokens[start].start, stated[-1].end)
    return text, tokens[:start], Within(error, said.get("OF"), confidence, relative)


CONTRIBUTION = "CONTRIBUTION AUTO, CONTRIBUTION AUTO SHARE 0.2, or CONTRIBUTION (max_rows_per_group = 2)"
AUTO_SHARE = Fraction(1, 10)
"""The part of a question's budget that finding bounds takes, where nothing else is said."""


NOT_BEFORE_CLAUSES = ("SELECT", "FROM", "JOIN", "WHERE", "AND", "OR", "NOT", "BY", "AS", "ON", "CASE", ",", ".", "(")
"""After these words CONTRIBUTION and WITHIN are names: of a column, a table or a function."""


def _cut_contribution(text: str, tokens: list[Token]) -> tuple[str, list[Token], Auto | None, dict[str, str]]:
    """The trailing CONTRIBUTION clause: bounds that are to be found, or are stated."""
    if not _may_hold(text, "CONTRIBUTION"):
        return text, tokens, None, {}
    start = _find_contribution(tokens)
    if start is None:
        _refuse_comma_before_contribution(text, tokens)
        return text, tokens, None, {}
    at, end, stated = tokens[start].start, tokens[-1].end, tokens[start + 1].token_type is TokenType.L_PAREN
    closing = find_closing(tokens, start + 1) if stated else start + 1
    after = [token.text.upper() for token in tokens[closing + 1 :]]
    if any(
        _last_word(token) == "WITHIN" for token in tokens[closing + 1 :]
    ):  # it is cut first, and then this one is the last
        return text, tokens, None, {}
    if after and (stated or after[0].split()[0] in AFTER_CONTRIBUTION):
        clause = text[at : tokens[closing].end + 1]
        raise refuse(text, at, "CONTRIBUTION stands at the end of a question, and more comes after it",
                     remedy=f"Write {text[tokens[closing + 1].start : end + 1]} {clause}")  # fmt: skip
    if stated:
        bounds = _parse_pairs(text, tokens[start + 2 : -1])
        if not bounds or any(name not in BOUNDS for name in bounds):
            raise refuse(text, at, "CONTRIBUTION takes bounds alone", expected=CONTRIBUTION)
        return _blank_out(text, at, end), tokens[:start], None, bounds
    share = _parse_share(text, tokens[start + 2 :]) if after else AUTO_SHARE
    return _blank_out(text, at, end), tokens[:start], Auto(share, at, end + 1), {}


AFTER_CONTRIBUTION = ("WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "UNION")


def _find_contribution(tokens: list[Token]) -> int | None:
    """Where the last word CONTRIBUTION is that begins a clause, outside of brackets."""
    depth, found = 0, None
    words = [_last_word(token) for token in tokens]
    for i, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if word == "CONTRIBUTION" and depth == 0 and i and words[i - 1] not in NOT_BEFORE_CLAUSES:
            named = words[i + 1 : i + 2] == ["("] and (words[i + 2 : i + 3] == [")"] or words[i + 3 : i + 4] == ["="])
            found = i if named or words[i + 1 : i + 2] == ["AUTO"] else found
    return found


def _refuse_comma_before_contribution(text: str, tokens: list[Token]) -> None:
    """Refuse a comma between a question and its last clause, after which CONTRIBUTION would be taken for a name."""
    words = [_last_word(token) for token in tokens]
    for i in range(1, len(words) - 1):
        if words[i] == "CONTRIBUTION" and words[i - 1] == ",":
            rest = words[i + 1 :]
            auto = rest[0] == "AUTO" and (len(rest) == 1 or rest[1] in ("SHARE", "WITHIN"))
            stated = rest[0] == "(" and rest[1:2] != [")"] and rest[2:3] == ["="]
            if auto or stated:
                raise refuse(text, tokens[i - 1].start, "a comma stands before CONTRIBUTION, which is a clause",
                             expected=CONTRIBUTION, remedy="Leave the comma out")  # fmt: skip


def _parse_share(text: str, tokens: list[Token]) -> Fraction:
    """SHARE and a number between 0 and 1."""
    written = text[tokens[1].start : tokens[-1].end + 1].replace(" ", "") if len(tokens) > 1 else ""
    number = re.fullmatch(r"\d*\.?\d+(?:e-?\d+)?", written, re.IGNORECASE)
    if tokens[0].text.upper() == "SHARE" and number and 0 < (share := exact(written, "the share")) < 1:
        return share
    quotient = re.fullmatch(r"(\d*\.?\d+)(?:(%)|/([1-9]\d*))", written)
    meant = 0.2
    if quotient:
        meant = float(quotient[1]) / (100 if quotient[2] else int(quotient[3]))
    raise refuse(text, tokens[0].start, "the share of CONTRIBUTION AUTO is not a number between 0 and 1",
                 remedy=f"Write CONTRIBUTION AUTO SHARE {meant if 0 < meant < 1 else 0.2:.3g}")  # fmt: skip


def find_closing(tokens: list[Token], opening: int) -> int:
    """The bracket that closes the one at a place; -1 where none does."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += (tokens[i].token_type is TokenType.L_PAREN) - (tokens[i].token_type is TokenType.R_PAREN)
        if depth == 0:
            return i
    return -1


def _cut_options(text: str, tokens: list[Token]) -> tuple[str, dict[str, str]]:
    """WITH DIFFERENTIAL_PRIVACY OPTIONS (name = value, ...), as BigQuery writes it."""
    if not _may_hold(text, "DIFFERENTIAL_PRIVACY"):
        return text, {}
    words = [_last_word(token) for token in tokens]
    spots = [i for i, word in enumerate(words) if word == "DIFFERENTIAL_PRIVACY" and i and words[i - 1] == "WITH"]
    if not spots:
        return text, {}
    spot = spots[0]
    if len(spots) > 1:
        raise refuse(text, tokens[spots[1]].start, "DIFFERENTIAL_PRIVACY is stated twice", expected="It is stated once")
    end, options = spot, {}
    if words[spot + 1 : spot + 2] == ["OPTIONS"]:
        end = find_closing(tokens, spot + 2) if words[spot + 2 : spot + 3] == ["("] else -1
        if end < 0:
            raise refuse(text, tokens[spot + 1].start, "OPTIONS has no closed bracket after it")
        options = _parse_pairs(text, tokens[spot + 3 : end])
    return _blank_out(text, tokens[spot - 1].start, tokens[end].end), options


def _parse_pairs(text: str, tokens: list[Token]) -> dict[str, str]:
    found: dict[str, str] = {}
    i = 0
    while i < len(tokens):
        name = tokens[i].text.lower()
        if name not in OPTIONS:
            meant = nearest(name, OPTIONS) if name not in IN_POLICIES else f"Did you mean '{IN_POLICIES[name]}'?"
            raise refuse(text, tokens[i].start, f"the option '{name}' is not known",
                         expected="Known are " + ", ".join(OPTIONS), remedy=meant)  # fmt: skip
        if name in found or i + 2 >= len(tokens) or tokens[i + 1].text != "=":
            raise refuse(text, tokens[i].start, f"the option '{name}' is written twice or has no value")
        found[name], i = _parse_value(tokens, i + 2)
        if i < len(tokens):
            if tokens[i].text != ",":
                raise refuse(text, tokens[i].start, "a comma is missing between two options")
            i += 1
    return found


def _parse_value(tokens: list[Token], start: int) -> tuple[str, int]:
    """One word, a signed number, or a bracketed list with its brackets taken off; and where it ends."""
    if tokens[start].token_type is TokenType.L_PAREN and (end := find_closing(tokens, start)) > 0:
        return "".join(token.text for token in tokens[start + 1 : end]), end + 1
    if tokens[start].text == "-" and start + 1 < len(tokens):
        return "-" + tokens[start + 1].text, start + 2
    return tokens[start].text, start + 1


BOUNDED_PER_GROUP = frozenset(
    {"SUM", "AVG", "MEAN", "VARIANCE", "VAR_SAMP", "VAR_POP", "STDDEV", "STDDEV_SAMP", "STDDEV_POP"}
)
"""The aggregates that clamp what a person adds to a group."""


def _cut_per_group(text: str, tokens: list[Token]) -> tuple[str, dict[int, tuple[Fraction, Fraction]]]:
    """`, contribution_bounds_per_group => (low, high)` inside an aggregate's brackets."""
    found: dict[int, tuple[Fraction, Fraction]] = {}
    callers: list[int] = []
    for i, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            callers.append(i - 1)
        elif token.token_type is TokenType.R_PAREN and callers:
            callers.pop()
        elif _last_word(token) == "CONTRIBUTION_BOUNDS_PER_GROUP" and callers:
            end = find_closing(tokens, i + 2) if i + 2 < len(tokens) else -1
            numbers = _parse_bounds(tokens[i + 3 : end]) if end > 0 and tokens[i + 1].text == "=>" else None
            if numbers is None or tokens[i - 1].text != ",":
                raise refuse(text, token.start, "contribution_bounds_per_group is not written as it should be",
                             expected="The lower bound, then the upper: SUM(x, contribution_bounds_per_group => "
                             "(0, 100))")  # fmt: skip
            name, first = (tokens[callers[-1] + step] for step in (0, 2))
            if callers[-1] < 0 or name.text.upper() not in BOUNDED_PER_GROUP or first.text.upper() == "DISTINCT":
                raise refuse(text, token.start, "contribution_bounds_per_group has no meaning here",
                             expected=f"Inside {', '.join(sorted(BOUNDED_PER_GROUP))}, after the value")  # fmt: skip
            if name.start in found:
                raise refuse(text, token.start, "contribution_bounds_per_group stands twice in one aggregate",
                             remedy="State it once")  # fmt: skip
            found[name.start] = numbers
            text = _blank_out(text, tokens[i - 1].start, tokens[end].end)
    return text, found


def _parse_bounds(tokens: list[Token]) -> tuple[Fraction, Fraction] | None:
    written = "".join(token.text for token in tokens).split(",")
    if len(written) != 2:
        return None
    try:
        low, high = exact(written[0], "bound"), exact(written[1], "bound")
    except ParameterError:
        return None
    return (low, high) if low <= high else None


Value = str | int | float | bool | Decimal | date | datetime | None

MOST_VALUES = 1000
"""Parameters of one statement."""


def fill_parameters(text: str, values: Sequence[Value]) -> str:
    """The statement with its parameters replaced by literals.

    >>> fill_parameters("SELECT COUNT(*) FROM t WHERE name = $1 AND age > $2", ["O'Hara", 30])
    "SELECT COUNT(*) FROM t WHERE name = 'O''Hara' AND age > 30"
    """
    if len(values) > MOST_VALUES:
        raise ParameterError(f"a statement has at most {MOST_VALUES} parameters")
    literals = [render_literal(value) for value in values]
    pieces, expected, end = [], [], 0
    text, found = _read_parameters(text)
    i = 0
    while i < len(found):
        number = _parameter_number(found, i)
        if number is None:
            expected.append(_token_key(found[i]))
            i += 1
            continue
        if not 1 <= number <= len(literals):
            raise refuse(text, found[i].start, f"there is no parameter ${number}", expected=f"{len(values)} were given")
        pieces += [text[end : found[i].start], literals[number - 1]]
        expected += [_token_key(token) for token in tokens_of(literals[number - 1])]
        end = found[i + 1].end + 1
        i += 2
    whole = "".join([*pieces, text[end:]])
    if [_token_key(token) for token in tokens_of(whole)] != expected:
        raise InternalError("a parameter did not stay one value; nothing was run")
    return whole


def _read_parameters(text: str) -> tuple[str, list[Token]]:
    """A statement in tokens; `$1,$2`, which looks like a quote of dollars, is read with a space after each number."""
    try:
        return text, tokens_of(text)
    except QueryRefused:
        ends = [token.end for token in lexer.tokenize(text) if token.kind is lexer.Kind.PARAMETER]
        spaced = " ".join(text[start:end] for start, end in itertools.pairwise([0, *ends, len(text)]))
        return spaced, tokens_of(spaced)


def count_parameters(text: str) -> int:
    """The highest number of a parameter in a statement."""
    _, found = _read_parameters(text)
    return max((number for i in range(len(found)) if (number := _parameter_number(found, i)) is not None), default=0)


def render_literal(value: Value) -> str:
    """A value as one operand of SQL; negative numbers are in brackets, so that no sign can meet another."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float() | Decimal():
            return _render_number(value)
        case datetime():
            return f"TIMESTAMP '{drop_zone(value).isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            if "\0" in value:
                raise ParameterError("a text parameter has a zero character")
            return "'" + value.replace("'", "''") + "'"


def _render_number(value: int | float | Decimal) -> str:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > 40:
        raise ParameterError("a number parameter is not finite, or too large or too small to be written out")
    written = f"{number:f}"
    return f"({written})" if number.is_signed() else written  # minus zero is signed too


def _parameter_number(found: list[Token], i: int) -> int | None:
    """The number of a parameter that starts at this token: a dollar sign and, right after it, digits."""
    if found[i].token_type is not TokenType.PARAMETER or i + 1 >= len(found):
        return None
    following = found[i + 1]
    adjacent = following.start == found[i].end + 1
    digits = following.token_type is TokenType.NUMBER and following.text.isdigit() and len(following.text) < 6
    return int(following.text) if adjacent and digits else None


def _token_key(token: Token) -> tuple[TokenType, str]:
    return token.token_type, token.text
