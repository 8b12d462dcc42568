"""Words of a statement, as PostgreSQL's scanner sees them: enough to tell statements apart, and never to rewrite data.

What a question means is decided by the parser beside it. Here a statement is only cut from its neighbors and
recognized (SET, SHOW, BEGIN, a question about the catalog), and its parameters are found, for which texts, quoted names
and comments must be seen for what they are; so is what `E'...'` stands for."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain, islice

from deniable.errors import ParameterError, QueryRefused

LONGEST, MOST_TOKENS = 100_000, 20_000
"""Characters and tokens of what is sent at once."""
MOST_STATEMENTS = 100


class Kind(StrEnum):
    """What a token is."""

    WORD = "word"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    PARAMETER = "parameter"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its kind, its text as written, and where it starts."""

    kind: Kind
    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.start + len(self.text)

    @property
    def value(self) -> str:
        """A word in lower case, a name or a string without its quotes, anything else as written."""
        match self.kind:
            case Kind.WORD:
                return self.text.lower()
            case Kind.NAME:
                return self.text[1:-1].replace('""', '"')
            case Kind.STRING if self.text.startswith("$"):
                mark = self.text[: self.text.index("$", 1) + 1]
                return self.text[len(mark) : -len(mark)]
            case Kind.STRING if self.text[0] in "eE":
                try:
                    return read_escapes(*_split_text(self.text))
                except ValueError:
                    raise QueryRefused(BAD_ESCAPE, remedy=WITHOUT_ESCAPE) from None
            case Kind.STRING:
                return "".join(_split_text(self.text)).replace("''", "'")
            case _:
                return self.text


# Order matters: a comment before a sign, a dollar quote before a parameter. No alternative can match in two ways, so
# the scan takes time linear in the text.
_LETTER = r"[A-Za-z_\x80-\U0010ffff]"  # each character beyond ASCII is one to PostgreSQL, also a blank
_GAP = r"(?:[ \t\f\v]|--[^\n\r]*)*+[\n\r](?:[ \t\n\r\f\v]|--[^\n\r]*[\n\r])*+"
"""Between two parts of one text: a line's end at least."""
_PLAIN, _ESCAPED = r"((?:[^']|'')*+)'", r"((?:[^'\\]|''|\\.)*+)'"
"""A part of a text after its quote."""
_TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\n\r\f\v]+|--[^\n\r]*)
  | (?P<comment>/\*)
  | (?P<string>[eE]'{_ESCAPED}(?:{_GAP}'{_ESCAPED})*+|'{_PLAIN}(?:{_GAP}'{_PLAIN})*+)
  | (?P<name>"(?:[^"]|"")*+")
  | (?P<dollar>\$(?:{_LETTER}(?:{_LETTER}|[0-9])*)?\$)
  | (?P<parameter>\$[0-9]+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<word>{_LETTER}(?:{_LETTER}|[0-9$])*)
  | (?P<sign>::|<=|>=|<>|!=|!~~\*?|!~\*?|~~\*?|~\*|\|\||=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PARTS = {False: re.compile(_PLAIN), True: re.compile(_ESCAPED, re.DOTALL)}
_BETWEEN = re.compile(f"{_GAP}'")
_KINDS = {
    "string": Kind.STRING,
    "name": Kind.NAME,
    "parameter": Kind.PARAMETER,
    "number": Kind.NUMBER,
    "word": Kind.WORD,
    "sign": Kind.SIGN,
}


def tokenize(text: str) -> tuple[Token, ...]:
    """The tokens of a text, without spaces and comments.

    >>> [token.value for token in tokenize("SELECT 'a''b' /* c */ AS \\"N\\"")]
    ['select', "a'b", 'as', 'N']
    """
    if len(text) > LONGEST:
        raise QueryRefused(f"the statement has more than {LONGEST} characters")
    found = tuple(islice(_scan(text), MOST_TOKENS + 1))
    if len(found) > MOST_TOKENS:
        raise QueryRefused(f"the statement has more than {MOST_TOKENS} words and signs", remedy="Ask in parts")
    return found


def _scan(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None  # the last alternative takes any character
        group, end = str(found.lastgroup), found.end()
        if group == "comment":
            end = _skip_comment(text, at)
        elif group == "dollar":
            closing = text.find(found.group(), end)
            if closing < 0:
                raise QueryRefused("a quoted text has no end", remedy="Check quotes and brackets")
            end = closing + len(found.group())
            yield Token(Kind.STRING, text[at:end], at)
        elif group != "space":
            open_escape = group == "word" and found.group() in ("e", "E") and text[end : end + 1] == "'"
            open_escape |= group == "string" and _BETWEEN.match(text, end) is not None
            if group == "word" and found.group() in ("u", "U") and text[end : end + 2] in ("&'", '&"'):
                raise QueryRefused(UNICODE_TEXT, remedy=WITHOUT_ESCAPE)
            if open_escape or (group == "sign" and text[at] in "'\""):
                raise QueryRefused("a quoted text has no end", remedy="Check quotes and brackets")
            yield Token(_KINDS[group], text[at:end], at)
        at = end


UNICODE_TEXT = "U&'...' is not read"
BAD_ESCAPE, WITHOUT_ESCAPE = "an escape in E'...' is not a character", "Write the character itself"
_ESCAPE = re.compile(
    r"''|\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|(.)", re.DOTALL
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _split_text(text: str) -> list[str]:
    """The parts of a quoted text: on a line of its own, a further one continues it."""
    parts, escaped = [], text[0] in "eE"
    at = 2 if escaped else 1
    while True:
        part = _PARTS[escaped].match(text, at)
        assert part is not None
        parts.append(part[1])
        gap = _BETWEEN.match(text, part.end())
        if gap is None:
            return parts
        at = gap.end()


def read_escapes(*bodies: str) -> str:
    r"""The text that `E'body'` stands for, or its parts together, by PostgreSQL's rules; ValueError where it is none.

    >>> read_escapes(r"it\'s \101")
    "it's A"
    """
    found, held = [], bytearray()  # bytes that were written one by one are one character together
    for each in chain.from_iterable(map(_ESCAPE.finditer, bodies)):
        octal, byte, short, long, sign, plain = each.groups()
        number = int(octal, 8) & 255 if octal else int(byte or short or long or "1", 16)
        if sign in ("u", "U") or not number or number > sys.maxunicode:
            raise ValueError(BAD_ESCAPE)
        if octal or byte:
            held.append(number)
            continue
        found += [held.decode(), chr(number) if short or long else _CONTROLS.get(sign, sign) or plain or "'"]
        held.clear()
    # A pair of surrogates is one character, half of one is none.
    return "".join([*found, held.decode()]).encode("utf-16", "surrogatepass").decode("utf-16")


def write_out_escapes(text: str) -> str:
    """The statement with `E'...'` as plain texts: parsers have other rules for them than PostgreSQL."""
    pieces, end = [], 0
    for token in tokenize(text):
        if token.kind is Kind.STRING and token.text[0] in "eE":
            pieces += [text[end : token.start], "'" + token.value.replace("'", "''") + "'"]
            end = token.end
    return "".join([*pieces, text[end:]])


MOST_MEMBERS = 1000
_MEMBER = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,{}"\\]+))\s*(,|$)')


def parse_array(text: str) -> list[str | None]:
    """The members of an array of one dimension that is written as a text, as drivers of PostgreSQL do.

    >>> parse_array('{1,NULL,"a, b"}')
    ['1', None, 'a, b']
    """
    stripped, at = text.strip(), 0
    if stripped[:1] != "{" or stripped[-1:] != "}":
        raise ValueError
    found: list[str | None] = []
    body = stripped[1:-1]
    more = bool(body.strip())
    while more:
        member = _MEMBER.match(body, at)
        if member is None or (member.group(2) or "x").isspace():
            raise ValueError  # also where a comma has nothing after it
        if len(found) >= MOST_MEMBERS:
            raise ParameterError(f"a list has at most {MOST_MEMBERS} members")
        quoted, bare, at, more = member.group(1), member.group(2), member.end(), member.group(3) == ","
        written = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else bare.strip()
        found.append(None if quoted is None and written.upper() == "NULL" else written)
    return found


_COMMENT_MARK = re.compile(r"/\*|\*/")


def _skip_comment(text: str, at: int) -> int:
    """The offset after a comment; PostgreSQL's comments nest."""
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return mark.end()
    raise QueryRefused("a comment has no end", remedy="Close it with */")


@dataclass(frozen=True)
class Statement:
    """One statement of a text: where it starts there, its text, and its tokens with offsets in that text."""

    text: str
    start: int
    tokens: tuple[Token, ...]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The values of its tokens; strings keep their quotes, so that they cannot be taken for words."""
        return tuple(token.text if token.kind is Kind.STRING else token.value for token in self.tokens)

    def starts(self, *words: str) -> bool:
        """Whether it begins with these words."""
        return self.words[: len(words)] == words


def split_statements(text: str) -> tuple[Statement, ...]:
    """The statements of a text, cut at semicolons; empty ones are left out.

    >>> [part.text for part in split_statements("SET x = 1; SELECT ';' ;")]
    ['SET x = 1', "SELECT ';'"]
    """
    found: list[Statement] = []
    run: list[Token] = []
    for token in (*tokenize(text), Token(Kind.SIGN, ";", len(text))):
        if token.text != ";" or token.kind is not Kind.SIGN:
            run.append(token)
        elif run:
            found.append(_cut_statement(text, run))
            run = []
    if len(found) > MOST_STATEMENTS:
        raise QueryRefused(f"more than {MOST_STATEMENTS} statements at once", remedy="Send them one after the other")
    return tuple(found)


def _cut_statement(text: str, run: list[Token]) -> Statement:
    start = run[0].start
    moved = tuple(Token(token.kind, token.text, token.start - start) for token in run) if start else tuple(run)
    return Statement(text[start : run[-1].end], start, moved)
