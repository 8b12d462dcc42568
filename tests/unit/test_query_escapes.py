"""Texts as PostgreSQL's drivers write them: escapes, patterns, large whole numbers; each reader sees where they end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import duckdb
import psycopg
import pyarrow as pa
import pytest

from deniable.client.dbapi import number_parameters
from deniable.curator import Curator
from deniable.errors import DeniableError, QueryRefused
from deniable.policy.budget import PureDP
from deniable.policy.document import parse
from deniable.query.compile import compile_query
from deniable.query.sql.clauses import fill_parameters, tokens_of
from deniable.query.sql.lexer import UNICODE_TEXT, read_escapes, split_statements, tokenize, write_out_escapes

POLICY = parse(
    "version: 1\ndataset: d\ntables: {t: {source: t.csv, unit: row, columns: "
    "{n: {type: integer}, s: {type: text, longest: 40}}}}\nbudgets: {dataset: {epsilon: 100000000}}\n"
)
LARGE = (-(2**63) + 1, -(2**53) - 1, -(2**53), -5, 0, 2**53 + 1, 2**63 - 1)
TEXTS = ("a%b", "axb", "a\\b", "100%_", "_", "%", "", "ab", "\\%", "xa%by", "A%B", "within")
PIECES = ["\\", "\\\\", "''", "\\'", "x", "u", "U", "\\x", "\\u00", "\\U0000", "\\uD83D", "\\uDE00", "\\xc3\\xa9",
          "é", "😀", "0", "7", "41", "f", "g", "\\n", "n", "\n", "\\101", "\\1", "\\xed\\xa0\\xbd"]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    listed = [(number, text) for number in LARGE for text in TEXTS]
    return pa.table({"n": [each[0] for each in listed], "s": [each[1] for each in listed]})


@pytest.fixture(scope="module")
def curator(rows: pa.Table) -> Iterator[Curator]:
    with Curator(POLICY, sources={"t": rows}) as opened:
        yield opened


def count(curator: Curator, condition: str) -> int:
    """How many rows a condition holds for, through noise that is next to none."""
    return round(curator.query(f"SELECT COUNT(*) FROM t WHERE {condition}", epsilon=1000).scalar())


def test_random_texts_with_escapes_are_read_as_postgresql_reads_them(postgres_address: str) -> None:
    """By the parser of questions, by the scanner of the server, and as they are written for the catalogs."""
    draw, counts = random.Random(8), [0, 0]
    with psycopg.connect(postgres_address, autocommit=True) as database:
        for _ in range(2_000):
            written = "E'" + "".join(draw.choices(PIECES, k=draw.randrange(8))) + "'"
            try:
                meant = database.execute(f"SELECT {written}::text").fetchone()
            except psycopg.Error:
                meant = None
            readings = []
            for read in (
                lambda text: [token.text for token in tokens_of(f"SELECT {text}::text")],
                lambda text: [token.value for token in tokenize(f"SELECT {text}::text")],
                lambda text: [token.value for token in tokenize(write_out_escapes(f"SELECT {text}::text"))],
            ):
                try:
                    words = read(written)
                    readings.append((words[1],) if len(words) == 4 else None)  # the text may end before its last sign
                except QueryRefused:
                    readings.append(None)
            assert readings == [meant] * 3, written
            counts[meant is None] += 1
    assert min(counts) > 200


SIGNS = ["'", "''", "\\", "\\'", "E'", "$$", "$a$", "$1", '"', "--", "\n", "\r", "/*", "*/", ";", "SELECT 1", "SELECT ",
         "1", "x", "xE'", "N'", "B'", "U&'", "E ", "(", ")", ",", "::text", "$", "a$b$", "é", "$é$", "$€$", "\u00a0",
         "'\n'", "' --c\n '", "\f", "E"]  # fmt: skip


def test_random_statements_are_cut_where_postgresql_cuts_them(postgres_address: str) -> None:
    """Whether a text is one statement, several, or has an open quote or comment."""
    draw, counts = random.Random(5), {1: 0, 2: 0, 0: 0}
    with psycopg.connect(postgres_address, autocommit=True) as database:
        for _ in range(6_000):
            text = "SELECT " + "".join(draw.choices(SIGNS, k=draw.randrange(1, 9)))
            told = database.pgconn.prepare(b"", text.encode()).error_message.decode()
            expected = 1 if not told else 2 if "multiple commands" in told else 0 if "unterminated" in told else None
            if expected is None:  # a mistake of another kind
                continue
            try:
                found = min(len(split_statements(text)), 2)
            except QueryRefused as refusal:
                if UNICODE_TEXT in str(refusal):
                    continue
                found = 0
            assert found == expected, (text, told)
            counts[expected] += 1
    assert min(counts.values()) >= 3


def test_a_text_with_an_escaped_quote_ends_where_postgresql_ends_it() -> None:
    assert len(split_statements(r"SET application_name = E'\'; SELECT COUNT(*) FROM t; --'")) == 1
    assert len(split_statements(r"SET application_name = '\'; SELECT COUNT(*) FROM t")) == 2
    assert [token.value for token in tokenize("xE'a' E 'b'")] == ["xe", "a", "e", "b"]
    for open_text in (r"SELECT E'\'", r"SELECT e'a", "SELECT E'"):
        with pytest.raises(QueryRefused, match="no end"):
            tokenize(open_text)


@pytest.mark.parametrize("asked", [r"s = E'\'?'", "s = $$?b$$", "s = $x$?$x$", "/* /* ? */ ? */ TRUE", '"?" = 1'])
def test_question_marks_inside_texts_names_and_comments_are_no_parameters(asked: str) -> None:
    assert number_parameters(f"{asked} AND n = ? AND n < ?") == f"{asked} AND n = $1 AND n < $2"


def test_a_parameter_inside_a_text_with_escapes_is_none() -> None:
    filled = fill_parameters(r"SELECT COUNT(*) FROM t WHERE n IN ($1,$2) AND s <> E'\'$1x'", [5, 1])
    assert tokens_of(filled)[-1].text == "'$1x"


def test_escapes_that_stand_for_no_character_are_a_mistake() -> None:
    for body in (r"\uD83D", r"\u12", r"\xed\xa0\xbd\uDE00", r"\0", r"\U00110000"):
        with pytest.raises(ValueError):  # noqa: PT011
            read_escapes(body)


@pytest.mark.parametrize("word", ["within", "WITHIN", "contribution_bounds_per_group", "differential_privacy"])
def test_a_text_is_never_a_clause(curator: Curator, word: str) -> None:
    asked = fill_parameters("SELECT COUNT(*) FROM t WHERE s IN ($1, 'a') AND n = 0", [word])
    assert round(curator.query(asked, epsilon=1000).scalar()) == (1 if word == "within" else 0)


PATTERNS = ["a\\%b", "a%b", "a\\\\b", "%\\%\\_", "a\\%%", "%\\%", "\\a%", "%\\%%", "\\_", "%", "\\%", "%%\\%%%", "a_b"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_read_as_postgresql_reads_them(curator: Curator, rows: pa.Table, pattern: str) -> None:
    """DuckDB reads them so where the escape is named."""
    database = duckdb.connect()
    database.register("t", rows)
    (holds,) = database.execute("SELECT COUNT(*) FROM t WHERE s LIKE ? ESCAPE '\\'", [pattern]).fetchone() or (None,)
    assert count(curator, f"s LIKE '{pattern}'") == holds
    assert count(curator, f"NOT s LIKE '{pattern}' ESCAPE '\\'") == rows.num_rows - holds
    if "\\\\" not in pattern:
        other = pattern.replace("\\", "|")
        assert count(curator, f"s LIKE '{other}' ESCAPE '|'") == holds
    (plain,) = database.execute("SELECT COUNT(*) FROM t WHERE s LIKE ?", [pattern]).fetchone() or (None,)
    assert count(curator, f"s LIKE '{pattern}' ESCAPE ''") == plain


@pytest.mark.parametrize(
    ("condition", "told"),
    [("s LIKE 'a\\'", "end with its escape"), ("s ILIKE 'a\\%'", "LIKE alone"), ("s LIKE 'a\\%b%c'", "CONTAINS"),
     ("s LIKE '_\\_'", "CONTAINS"), ("s LIKE 'a' ESCAPE 'xy'", "one sign")],
)  # fmt: skip
def test_patterns_that_cannot_be_asked_are_refused_in_words(condition: str, told: str) -> None:
    with pytest.raises(QueryRefused, match=told):
        compile_query(f"SELECT COUNT(*) FROM t WHERE {condition}", POLICY.tables, PureDP(1))


@pytest.mark.parametrize("number", LARGE)
@pytest.mark.parametrize("written", ["n = {}", "n = ({})", "n = '{}'", "n IN (({}), 77)", "n BETWEEN {} AND ({})"])
def test_whole_numbers_of_64_bits_are_compared_exactly(curator: Curator, number: int, written: str) -> None:
    assert count(curator, written.format(number, number)) == len(TEXTS)


def test_whole_numbers_of_64_bits_are_parameters(curator: Curator) -> None:
    for number in LARGE:
        filled = fill_parameters("SELECT COUNT(*) FROM t WHERE n = $1", [number])
        assert round(curator.query(filled, epsilon=1000).scalar()) == len(TEXTS)
    for beyond in (2**63, -(2**63) - 1):  # a DOUBLE is equal to the last one and its neighbor
        with pytest.raises(DeniableError, match="too large"):
            curator.query(fill_parameters("SELECT COUNT(*) FROM t WHERE n = $1", [beyond]), epsilon=1)


@pytest.mark.parametrize(
    ("condition", "holds"),
    [("n IN (0.5, 9007199254740993)", 1), ("n NOT IN (-1.5, 9223372036854775807)", 6),
     ("n IN (n - n + 1, 9007199254740993)", 1), ("n = ANY (ARRAY[0.5, 9007199254740993])", 1),
     ("n IS DISTINCT FROM 9007199254740993", 6)],
)  # fmt: skip
def test_what_stands_beside_a_large_number_in_a_list_makes_it_no_less_exact(
    curator: Curator, condition: str, holds: int
) -> None:
    assert count(curator, condition) == holds * len(TEXTS)


@pytest.mark.parametrize("computed", ["ABS(n)", "n * 1", "n + 0", "GREATEST(n, 0.5)", "COALESCE(n, 0.5)",
                                      "CASE WHEN s = 'a' THEN n ELSE 0.5 END"])  # fmt: skip
def test_large_numbers_are_not_compared_with_what_is_computed_in_floating_point(computed: str) -> None:
    for condition in (f"{computed} = 9007199254740993", f"{computed} IN (1, 9007199254740993)"):
        with pytest.raises(QueryRefused, match="floating point"):
            compile_query(f"SELECT COUNT(*) FROM t WHERE {condition}", POLICY.tables, PureDP(1))


def test_a_column_may_be_called_within() -> None:
    tables = parse(
        "version: 1\ndataset: d\ntables: {t: {source: t.csv, unit: row, columns: {within: {type: integer}}}}\n"
        "budgets: {dataset: {epsilon: 1}}\n"
    ).tables
    for condition in ("within = 3", "t.within = 3 AND within < 4", "(within = 3)", "NOT within = 2"):
        assert compile_query(f"SELECT COUNT(*) FROM t WHERE {condition}", tables, PureDP(1))
    assert compile_query("SELECT COUNT(*) FROM t WHERE within = 3 WITHIN 100", tables, PureDP(1))


@pytest.mark.parametrize("text", ["U&'\\0061'", "u&'a'", "s = U&'a'", "s=U&'a'"])
def test_a_text_with_unicode_escapes_is_refused_in_words(text: str) -> None:
    with pytest.raises(QueryRefused, match=r"U&'\.\.\.' is not read\. Write the character itself"):
        compile_query(f"SELECT COUNT(*) FROM t WHERE s IN (s, {text})", POLICY.tables, PureDP(1))


def test_no_statement_runs_out_of_a_text_with_unicode_escapes() -> None:
    with pytest.raises(QueryRefused, match=r"U&'\.\.\.' is not read"):
        split_statements(r"SET application_name = U&'\'; SELECT COUNT(*) FROM t; --'")


@pytest.mark.parametrize(
    ("condition", "meant"),
    [
        (f"n = {2**53 - 1} + 2", lambda n: n == 2**53 + 1),
        (f"n IN ({2**52} * 2 + 1, -5)", lambda n: n in (2**53 + 1, -5)),
        (f"n < {2**52} * 2 + 1", lambda n: n < 2**53 + 1),
        (f"n > {2**51 - 1}.9999", lambda n: n > 2**51 - 1),
        (f"n = {10**15}.00001", lambda n: n == 10**15 + 0.5),
        (f"n IN (-{2**51 - 1}.99999, 0)", lambda n: n == 0),
        (f"n BETWEEN -{2**51}.00001 AND 0.5", lambda n: -(2**51) <= n <= 0),
        (f"n NOT IN ({2**51}.00001)", lambda n: True),
    ],
)
def test_whole_numbers_are_compared_exactly_with_what_is_written_beside_them(
    condition: str, meant: Callable[[int], bool]
) -> None:
    numbers = [*LARGE, 2**51, -(2**51), 2**51 - 1, 10**15, 2**53 - 1, 2**52]
    with Curator(POLICY, sources={"t": pa.table({"n": numbers, "s": ["x"] * len(numbers)})}) as curator:
        assert count(curator, condition) == sum(map(meant, numbers))


@pytest.mark.parametrize("condition", [f"n > {2**53 - 1}.5", f"n IN (1, -{2**52}.5)", f"n = {2**62} * 2"])
def test_numbers_that_whole_numbers_cannot_be_compared_with_exactly_are_refused(condition: str) -> None:
    with pytest.raises(QueryRefused, match=r"from 2\^52 on that is not whole|from 2\^63 on"):
        compile_query(f"SELECT COUNT(*) FROM t WHERE {condition}", POLICY.tables, PureDP(1))


@pytest.mark.parametrize(
    ("condition", "texts"),
    [
        (r"s LIKE 'a' || '\%' || 'b'", {"a%b"}),
        (r"s LIKE CONCAT('%', '\_')", {"100%_", "_"}),
        ("s LIKE '|' || '%' || '%' ESCAPE '|'", {"%"}),
        ("s LIKE 'a' || '%'", {"a%b", "axb", "a\\b", "ab"}),
        ("s LIKE s", {*TEXTS}),
    ],
)
def test_patterns_that_are_joined_mean_what_they_mean_in_one_piece(
    curator: Curator, condition: str, texts: set[str]
) -> None:
    assert count(curator, condition) == len(LARGE) * sum(each in texts for each in TEXTS)


@pytest.mark.parametrize(
    "condition",
    [
        r"s LIKE CASE WHEN n > 0 THEN '\%' ELSE 'a' END",
        "s LIKE s ESCAPE '|'",
        r"s LIKE LOWER('A\%')",
        "s LIKE 'a' || '\\'",
    ],
)
def test_escapes_in_patterns_that_are_computed_are_refused(condition: str) -> None:
    with pytest.raises(QueryRefused, match=r"written out as one text|does not end with its escape"):
        compile_query(f"SELECT COUNT(*) FROM t WHERE {condition}", POLICY.tables, PureDP(1))
