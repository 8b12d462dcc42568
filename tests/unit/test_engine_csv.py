"""CSV files as they come: dialects, encodings, safe types, and lines that do not fit, told by number only."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from deniable.engines import BadRows, CsvDialect
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.duckdb.csv import find_spelling
from deniable.errors import DataError
from deniable.policy.schema import THOUSANDS, Column, ColumnType, DateOrder, TableSchema


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DuckDBEngine]:
    with DuckDBEngine(root=tmp_path, threads=2) as opened:
        yield opened


def attach(engine: DuckDBEngine, folder: Path, content: str | bytes, *columns: Column, **dialect: object) -> None:
    data = content.encode() if isinstance(content, str) else content
    (folder / "t.csv").write_bytes(data)
    schema = TableSchema("t", "t.csv", columns) if columns else None
    engine.attach("t", "t.csv", schema, csv=CsvDialect(**dialect))  # type: ignore[arg-type]


def rows(engine: DuckDBEngine) -> list[list[object]]:
    return [list(row.values()) for row in engine.run("SELECT * FROM t").to_pylist()]


def types(engine: DuckDBEngine) -> list[str]:
    return [field.type.value for field in engine.describe("t")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_out(engine: DuckDBEngine, tmp_path: Path, delimiter: str) -> None:
    lines = [["name", "age"], ["ann", "31"], ["bob", "45"]]
    attach(engine, tmp_path, "".join(delimiter.join(line) + "\n" for line in lines))
    assert rows(engine) == [["ann", 31], ["bob", 45]]


@pytest.mark.parametrize("quote", ['"', "'"])
@pytest.mark.parametrize("before", [0, 3000])
def test_the_quote_is_found_out_wherever_it_first_stands(
    engine: DuckDBEngine, tmp_path: Path, quote: str, before: int
) -> None:
    attach(engine, tmp_path, "name,age\n" + "ann,31\n" * before + f"{quote}bob, jr{quote},45\n" * 5 + "eve,50\n")
    assert rows(engine)[before:] == [["bob, jr", 45]] * 5 + [["eve", 50]]


def test_a_line_longer_than_is_searched_for_quotes_is_read(
    engine: DuckDBEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.engines.duckdb.csv.LONGEST", 8)
    attach(engine, tmp_path, "name,age\n" + "ann or ann,31\n" * 3 + "'bob, jr',45\n" * 5)
    assert rows(engine)[2:4] == [["ann or ann", 31], ["bob, jr", 45]]


def test_delimiter_quote_and_null_can_be_declared(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "a:b\n'x:y':NA\nz:3\n", delimiter=":", quote="'", null="NA")
    assert rows(engine) == [["x:y", None], ["z", 3]]


def test_a_delimiter_may_have_several_characters(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "1::a::5\n2::b::7\n", delimiter="::", header=False)
    assert rows(engine) == [[1, "a", 5], [2, "b", 7]]
    assert [field.name for field in engine.describe("t")] == ["column_1", "column_2", "column_3"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_either_line_ending_is_read(engine: DuckDBEngine, tmp_path: Path, ending: str) -> None:
    attach(engine, tmp_path, ending.join(["a,b", "1,x", "2,y", ""]))
    assert rows(engine) == [[1, "x"], [2, "y"]]


def test_a_file_without_final_line_break_keeps_its_last_row(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "a,b\n1,x\n2,y")
    assert rows(engine)[-1] == [2, "y"]


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (["02138", "02139"], "text"),  # ZIP codes
        (["+4711", "12"], "text"),  # phone numbers
        (["12345678901234567890", "1"], "text"),  # account numbers, longer than any exact number
        (["1.7", "2"], "decimal"),
        (["1e3", "2.5"], "decimal"),
        (["01.5", "2"], "text"),
        (["7", "-3", "0"], "integer"),
        (["9223372036854775807", "1"], "integer"),
        (["2020-02-29", "1999-12-31"], "date"),
        (["2021-02-29", "1999-12-31"], "text"),  # no such day
        (["03/04/2020", "05/06/2020"], "text"),  # nobody can say which is the month
        (["2020-01-01 10:00", "2020-01-01T10:00:00.5"], "datetime"),
        (["true", "false"], "boolean"),
        (["1", "0"], "integer"),
        (["yes", "no"], "text"),
        (["", ""], "text"),
        (["nan", "1.5"], "text"),
    ],
)
def test_types_are_inferred_without_losing_anything(
    engine: DuckDBEngine, tmp_path: Path, values: list[str], type: str
) -> None:
    attach(engine, tmp_path, "k,v\n" + "".join(f"a,{value}\n" for value in values))
    assert types(engine) == ["text", type]


def test_the_last_row_decides_as_much_as_the_first(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "k,v\n" + "a,1\n" * 50_000 + "a,007\n")
    assert types(engine) == ["text", "text"]
    assert engine.run("SELECT v FROM t WHERE v LIKE '00%'").num_rows == 1


def test_a_table_of_very_many_columns_is_typed_as_its_columns_are(engine: DuckDBEngine, tmp_path: Path) -> None:
    """Conditions for each of 500 columns took 5 GB and 17 seconds."""
    kinds = [["1", "2"], ["1.5", "2"], ["x", "1"], ["true", "false"], ["2020-01-01", "2020-02-30"], ["", ""],
             ["2020-01-01", "2020-01-02"], ["007", "8"], ["2020-01-01 10:00:00", "2020-01-01 11:00:00"]]  # fmt: skip
    names = [f"c{i}" for i in range(450)]
    lines = [",".join(kinds[i % 9][row] for i in range(450)) for row in (0, 1)]
    attach(engine, tmp_path, "\n".join([",".join(names), *lines, ""]))
    wide, found = types(engine), rows(engine)
    attach(engine, tmp_path, "\n".join([",".join(names[:9]), *(",".join(line.split(",")[:9]) for line in lines), ""]))
    assert wide == types(engine) * 50
    assert found == [row * 50 for row in rows(engine)]
    declared = tuple(Column(name, ColumnType.INTEGER) for name in names)
    with pytest.raises(DataError, match=r"1 values? of column 'c1'"):
        attach(engine, tmp_path, "\n".join([",".join(names), *lines, ""]), *declared)


def test_an_empty_text_is_not_a_null(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, 'a,b\n"",1\n,2\nx,3\n')
    assert rows(engine) == [["", 1], [None, 2], ["x", 3]]


def test_names_that_are_double_or_missing_are_numbered(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "id,Id,,straße\n1,2,3,x\n")
    assert [field.name for field in engine.describe("t")] == ["id", "Id_2", "column_3", "straße"]


def test_a_header_alone_is_an_empty_table(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "name,age\n", Column("name"), Column("age", ColumnType.INTEGER))
    assert (engine.count("t"), types(engine)) == (0, ["text", "integer"])


def test_an_empty_file_is_refused(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no header line"):
        attach(engine, tmp_path, "")


def test_a_first_line_that_looks_like_data_is_not_taken_for_names(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="header: true") as refusal:
        attach(engine, tmp_path, "4711,31\n4712,45\n")
    assert "4711" not in str(refusal.value)
    attach(engine, tmp_path, "4711,31\n4712,45\n", header=False)
    assert engine.count("t") == 2


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_a_byte_order_mark_decides_the_encoding(engine: DuckDBEngine, tmp_path: Path, encoding: str) -> None:
    attach(engine, tmp_path, "name,age\nZoë,31\n".encode(encoding))
    assert engine.run("SELECT name, age FROM t").to_pylist() == [{"name": "Zoë", "age": 31}]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16-le", "utf-16-be", "shift_jis"])
def test_a_declared_encoding_is_read(engine: DuckDBEngine, tmp_path: Path, encoding: str) -> None:
    name = "山田" if encoding == "shift_jis" else "Zoë"
    attach(engine, tmp_path, f"name,age\n{name},31\n".encode(encoding), encoding=encoding)
    assert rows(engine) == [[name, 31]]


def test_bytes_that_are_not_utf8_are_refused_with_their_line(engine: DuckDBEngine, tmp_path: Path) -> None:
    content = b"name,age\n" + b"ann,31\n" * 30_000 + "Zoë,5\n".encode("latin-1")
    with pytest.raises(DataError, match=r"line 30002 of 't.csv' is not valid UTF-8") as refusal:
        attach(engine, tmp_path, content)
    assert refusal.value.place is not None
    assert refusal.value.place.line == 30_002
    with pytest.raises(DataError, match="UTF-8"):  # skipping is for lines; a wrong encoding is about all of them
        attach(engine, tmp_path, content, bad_rows=BadRows.SKIP)


def test_utf16_without_a_mark_is_refused_with_the_remedy(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="utf-16-le or utf-16-be"):
        attach(engine, tmp_path, "name,age\nann,31\n".encode("utf-16-le"))


def test_an_unknown_or_wrong_encoding_is_refused(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no encoding 'latin-99'"):
        attach(engine, tmp_path, "a\n1\n", encoding="latin-99")
    with pytest.raises(DataError, match="not ascii after line"):
        attach(engine, tmp_path, "a\nZoë\n", encoding="ascii")


def test_a_packed_file_is_read(engine: DuckDBEngine, tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"a,b\n1,x\n"))
    engine.attach("t", "t.csv.gz")
    assert rows(engine) == [[1, "x"]]


BAD = 'name,age\nann,31\n"two\nlines",40\nbob\ncarl,50,secret\ndora,secret\n'


def test_lines_that_cannot_be_read_are_refused_by_their_numbers(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 lines of 't.csv' cannot be read") as refusal:
        attach(engine, tmp_path, BAD)
    message = str(refusal.value)
    assert "5" in message.split("at line")[1]
    assert "6" in message.split("at line")[1]
    assert "secret" not in message
    assert refusal.value.__cause__ is None


def test_a_value_that_the_delimiter_splits_is_told_with_how_to_name_another(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    content = "share\n12,5%\n3,5%\n"
    with pytest.raises(DataError, match="too many fields") as refusal:
        attach(engine, tmp_path, content)
    assert 'csv: {delimiter: ";"}' in refusal.value.remedy
    attach(engine, tmp_path, content, delimiter=";")
    assert rows(engine) == [["12,5%"], ["3,5%"]]


def test_values_that_do_not_fit_are_refused_by_their_lines(engine: DuckDBEngine, tmp_path: Path) -> None:
    content = 'name,age\n"two\nlines",40\ndora,secret\nemma,1.5\nfay,007\n'
    with pytest.raises(DataError, match=r"2 values of column 'age' .* at line 4, 5") as refusal:
        attach(engine, tmp_path, content, Column("name"), Column("age", ColumnType.INTEGER))
    assert "secret" not in str(refusal.value)


def test_what_is_skipped_is_told(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, BAD, Column("name"), Column("age", ColumnType.INTEGER), bad_rows=BadRows.SKIP)
    assert rows(engine) == [["ann", 31], ["two\nlines", 40], ["dora", None]]
    assert engine.count("t") == 3
    assert engine.notes("t") == (
        "2 lines of 't.csv' left out: line 5, 6",
        "1 value of column 'age' read as null",
    )


def test_a_quote_that_never_closes_is_refused(engine: DuckDBEngine, tmp_path: Path) -> None:
    with pytest.raises(DataError) as refusal:
        attach(engine, tmp_path, 'a,b\n1,2\n3,"secret\n' + "5,6\n" * 10)
    assert "secret" not in str(refusal.value)


def test_a_folder_is_one_table(engine: DuckDBEngine, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for number in range(3):
        (tmp_path / "parts" / f"{number}.csv").write_text(f"a,b\n{number},x\n")
    engine.attach("t", "parts")
    assert rows(engine) == [[0, "x"], [1, "x"], [2, "x"]]
    (tmp_path / "parts" / "3.csv").write_text("a,c\n3,x\n")
    with pytest.raises(DataError, match="another header"):
        engine.attach("t", "parts/*.csv")


def test_an_empty_field_is_missing_beside_the_word_for_what_is_missing(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, 'a,b\nx,1\nNA,2\n,3\n"",4\n"NA",5\n', null="NA")
    assert engine.run("SELECT a FROM t ORDER BY b")["a"].to_pylist() == ["x", None, None, "", "NA"]


def test_a_file_that_changes_after_attaching_fails_without_showing_itself(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "a,b\n1,2\n")
    (tmp_path / "t.csv").write_text("a,b\n1,2,secret\n")
    with pytest.raises(DataError, match="too many fields at line 2") as refusal:
        engine.run("SELECT * FROM t")
    assert "secret" not in str(refusal.value)


def test_a_quote_that_is_never_closed_is_refused_even_where_bad_rows_are_left_out(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    """It takes all later rows into one field: half a file was left out, and the rest was released as if it were all."""
    good = "".join(f"{i},abc\n" for i in range(500))
    columns = Column("id", ColumnType.INTEGER), Column("note")
    layout = {"delimiter": ",", "quote": '"', "bad_rows": BadRows.SKIP}
    with pytest.raises(DataError, match="a quote that is not closed"):
        attach(engine, tmp_path, "id,note\n" + good + '7,"abc\n' + good, *columns, **layout)
    attach(engine, tmp_path, "id,note\n" + good + "7,a,b,c\n" + good, *columns, **layout)
    assert engine.count("t") == 1000


@pytest.mark.parametrize("declared", [ColumnType.INTEGER, ColumnType.DECIMAL])
def test_a_number_that_is_none_is_null_whatever_the_declared_type(
    declared: ColumnType, engine: DuckDBEngine, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = pa.table({"x": pa.array([1.0, float("nan"), 3.0], pa.float64())})
    pq.write_table(held, tmp_path / "x.parquet")
    schema = TableSchema("x", "x.parquet", (Column("x", declared),))
    for source in ("x.parquet", held):
        engine.attach("x", source, schema)
        assert engine.run("SELECT sum(x) AS s, count(x) AS n FROM x").to_pylist() == [{"s": 4, "n": 2}]


def test_a_time_beyond_all_times_is_refused_when_the_file_is_attached(engine: DuckDBEngine, tmp_path: Path) -> None:
    """Every question failed after its charge, even a count."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = TableSchema("x", "x.parquet", (Column("id", ColumnType.INTEGER), Column("at", ColumnType.DATETIME)))
    for last, fits in ((1_600_000_000_000, True), (9_224_318_015_999_999, False)):
        held = pa.table({"id": [1, 2], "at": pa.array([0, last], pa.timestamp("ms"))})
        pq.write_table(held, tmp_path / "x.parquet")
        if fits:
            engine.attach("x", "x.parquet", schema)
        else:
            with pytest.raises(DataError):
                engine.attach("x", "x.parquet", schema)


def test_a_column_that_begins_with_a_thousand_gaps_has_the_type_of_its_values(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    late = "".join(f"{n},\n" for n in range(3_000)) + "3000,7\n"
    attach(engine, tmp_path, "id,score\n" + late)
    assert types(engine) == ["integer", "integer"]


def test_an_escape_that_first_occurs_after_thousands_of_lines_is_found_out(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    plain = "".join(f'"n{n}","x"\n' for n in range(6_000))
    attach(engine, tmp_path, '"name","note"\n' + plain + '"ann","said \\"yes\\", twice"\n' * 50)
    assert rows(engine)[-1] == ["ann", 'said "yes", twice']


def test_names_of_columns_that_are_not_utf8_are_refused_with_the_option_that_helps(
    engine: DuckDBEngine, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"line 1 of 't\.csv' is not valid UTF-8.*--encoding"):
        attach(engine, tmp_path, "âge,sexe\n31,F\n45,M\n".encode("latin-1"))
    attach(engine, tmp_path, "âge,sexe\n31,F\n45,M\n".encode("latin-1"), encoding="latin-1")
    assert [field.name for field in engine.describe("t")] == ["âge", "sexe"]


@pytest.mark.parametrize("ordered", [False, True])
def test_texts_that_stand_in_a_dictionary_are_written_safely_too(
    engine: DuckDBEngine, tmp_path: Path, ordered: bool
) -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2, 0]), ["=1+1", "a", "'=1+1"], ordered=ordered)
    engine.write(pa.table({"s": texts, "n": pa.array(range(5))}), tmp_path / "o.csv")
    with (tmp_path / "o.csv").open(newline="") as file:
        assert [row[0] for row in csv.reader(file)] == ["s", "'=1+1", "a", "", "''=1+1", "'=1+1"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_names_without_rows_are_a_header_though_one_of_them_could_be_a_truth_value(
    engine: DuckDBEngine, tmp_path: Path, end: str
) -> None:
    attach(engine, tmp_path, f"d,e,f,t{end}")
    assert [field.name for field in engine.describe("t")] == ["d", "e", "f", "t"]
    assert engine.run("SELECT * FROM t").num_rows == 0
    for rows in (f"Ann,2020{end}", "a,f\nb,t\nc,f\n"):
        with pytest.raises(DataError, match="looks like data"):
            attach(engine, tmp_path, rows)


def spell(number: Decimal, decimal: str, thousands: str | None) -> str:
    """A number as people of a country write it: the twin of what the engine reads."""
    return f"{number:,}".replace(",", "T").replace(".", decimal).replace("T", thousands or "")


@pytest.mark.parametrize("thousands", [None, *THOUSANDS])
@pytest.mark.parametrize("decimal", [".", ","])
def test_numbers_are_read_as_they_are_spelled(
    engine: DuckDBEngine, tmp_path: Path, decimal: str, thousands: str | None
) -> None:
    if decimal == thousands:
        pytest.skip("one sign cannot be both")
    random = Random(7)
    numbers = [Decimal(random.randint(-(10**9), 10**9)) / 100 for _ in range(500)] + [Decimal("0"), Decimal("-0.5")]
    lines = [f"{place};{spell(number, decimal, thousands)}\n" for place, number in enumerate(numbers)]
    content = "id;fee\n" + "".join(lines)
    for declared in ((), (Column("id", ColumnType.INTEGER), Column("fee", ColumnType.DECIMAL))):
        attach(engine, tmp_path, content, *declared, delimiter=";", decimal=decimal, thousands=thousands)
        assert types(engine) == ["integer", "decimal"]
        assert [row[1] for row in rows(engine)] == [float(number) for number in numbers]


@pytest.mark.parametrize("order", [DateOrder.DAY_FIRST, DateOrder.MONTH_FIRST])
@pytest.mark.parametrize("sign", [".", "/", "-"])
@pytest.mark.parametrize("padded", [True, False])
def test_dates_are_read_in_their_order(
    engine: DuckDBEngine, tmp_path: Path, order: DateOrder, sign: str, padded: bool
) -> None:
    if sign == "." and order is DateOrder.MONTH_FIRST:
        pytest.skip("with points, the day is first")
    days = [date(1899, 12, 31) + timedelta(days=97 * place) for place in range(600)]
    two = [(day.day, day.month) if order is DateOrder.DAY_FIRST else (day.month, day.day) for day in days]
    width = 2 if padded else 1
    texts = [f"{a:0{width}}{sign}{b:0{width}}{sign}{day.year}" for (a, b), day in zip(two, days, strict=True)]
    content = "seen,at\n" + "".join(f"{text},{text} 07:05:03.5\n" for text in texts)
    for declared in ((), (Column("seen", ColumnType.DATE), Column("at", ColumnType.DATETIME))):
        attach(engine, tmp_path, content, *declared, dates=order)
        assert types(engine) == ["date", "datetime"]
        found = rows(engine)
        assert [row[0] for row in found] == days
        assert [row[1] for row in found] == [datetime.combine(day, time(7, 5, 3, 500_000)) for day in days]


@pytest.mark.parametrize(
    ("kind", "dialect", "bad"),
    [
        (ColumnType.DECIMAL, {"decimal": ","}, "1.5"),
        (ColumnType.DECIMAL, {"decimal": ",", "thousands": "."}, "1.5"),
        (ColumnType.DECIMAL, {"decimal": ",", "thousands": "."}, "12.34,5"),
        (ColumnType.DECIMAL, {"thousands": ","}, "1,5"),
        (ColumnType.DECIMAL, {}, "1,5"),
        (ColumnType.DATE, {"dates": DateOrder.DAY_FIRST}, "12/31/2024"),
        (ColumnType.DATE, {"dates": DateOrder.MONTH_FIRST}, "31/12/2024"),
        (ColumnType.DATE, {"dates": DateOrder.DAY_FIRST}, "31.12.24"),
        (ColumnType.DATE, {"dates": DateOrder.DAY_FIRST}, "31.02.2024"),
        (ColumnType.DATE, {}, "30.12.2024"),
        (ColumnType.DECIMAL, {"decimal": ",", "thousands": "."}, "0.125"),
        (ColumnType.INTEGER, {"decimal": ",", "thousands": "."}, "012.345"),
        (ColumnType.DECIMAL, {"thousands": ","}, "0,125"),
        (ColumnType.DATE, {"dates": DateOrder.DAY_FIRST}, "30/12/24"),
        (ColumnType.DATE, {"dates": DateOrder.MONTH_FIRST}, "1/2/24"),
        (ColumnType.DATE, {"dates": DateOrder.MONTH_FIRST}, "03.04.2024"),
        (ColumnType.DATE, {}, "30-12-24"),
        (ColumnType.DATETIME, {"dates": DateOrder.MONTH_FIRST}, "12/30/2024 02:30 PM"),
        (ColumnType.DATETIME, {}, "2024-12-30 02:30:00 PM"),
        (ColumnType.DATETIME, {}, "2024-12-30 14:30 Uhr"),
    ],
)
def test_what_is_spelled_in_another_way_is_refused_by_its_line_and_no_value_is_shown(
    engine: DuckDBEngine, tmp_path: Path, kind: ColumnType, dialect: dict[str, Any], bad: str
) -> None:
    with pytest.raises(DataError, match="line 3") as refused:
        attach(engine, tmp_path, f"id;x\n1;\n2;{bad}\n", Column("x", kind), delimiter=";", **dialect)
    assert bad not in str(refused.value)
    assert ("31.12.2024" if kind in (ColumnType.DATE, ColumnType.DATETIME) else "12,50") in str(refused.value)


def test_a_spelling_changes_no_text(engine: DuckDBEngine, tmp_path: Path) -> None:
    content = "note;when\n1.234,50 a;31.12.2024 x\n2,5;1.1.2024\n"
    attach(engine, tmp_path, content, delimiter=";", decimal=",", thousands=".", dates=DateOrder.DAY_FIRST)
    assert rows(engine) == [["1.234,50 a", "31.12.2024 x"], ["2,5", "1.1.2024"]]


@pytest.mark.parametrize(
    ("columns", "pointed", "expected"),
    [
        ({"fee": ["12,50", "3"]}, [], {"decimal": ","}),
        ({"fee": ["1.234,50", "3"]}, [], {"decimal": ",", "thousands": "."}),
        ({"fee": ["1,234.50"]}, [], {"decimal": ".", "thousands": ","}),
        ({"fee": ["1'234.50"]}, [], {"decimal": ".", "thousands": "'"}),
        ({"fee": ["1 234,50"], "weight": ["71,5"]}, [], {"decimal": ",", "thousands": " "}),
        ({"fee": ["12,50"], "weight": ["71.5"]}, ["weight"], {}),  # here decimals have points: these are something else
        ({"fee": ["1.234,50"], "people": ["1.500", "2.345"]}, ["people"], {"decimal": ",", "thousands": "."}),
        ({"fee": ["12,5"], "people": ["1.500", "2.345"]}, ["people"], {"decimal": ",", "thousands": "."}),
        ({"people": ["1.500", "2.345"]}, ["people"], "people"),
        ({"people": ["1'234"]}, [], {"decimal": ".", "thousands": "'"}),
        ({"people": ["1 234", "12"]}, [], {"decimal": ".", "thousands": " "}),
        ({"fee": ["1,234"]}, [], "fee"),
        ({"address": ["192.168.100.200", "192.168.100.201"]}, [], "address"),
        ({"phone": ["612 345 678", "612 345 679"]}, [], "phone"),
        ({"fee": ["0,125"]}, [], {"decimal": ","}),
        ({"fee": ["1,2,3", "4"]}, [], {}),
        ({"choice": ["1,2", "3", "2,4"]}, [], "choice"),
        ({"seen": ["31.12.2024", "1.2.2024"]}, [], {"dates": DateOrder.DAY_FIRST}),
        ({"seen": ["03.04.2024"]}, [], {"dates": DateOrder.DAY_FIRST}),
        ({"seen": ["12/31/2024 10:15"]}, [], {"dates": DateOrder.MONTH_FIRST}),
        ({"seen": ["03/04/2024"], "born": ["31/12/1970"]}, [], {"dates": DateOrder.DAY_FIRST}),
        ({"seen": ["03/04/2024"]}, [], "seen"),
        ({"seen": ["13/04/2024"], "born": ["04/13/1970"]}, [], "seen"),
        ({"seen": ["31/12/24", "01/02/24"]}, [], "seen"),
        ({"seen": ["31/12/2024", "12/31/2024"]}, [], "seen"),
        ({"phone": ["079 123 45 67"], "zip": ["02138"], "empty": []}, [], {}),
    ],
)
def test_a_spelling_is_suggested_only_where_it_is_the_only_one(
    columns: dict[str, list[str]], pointed: list[str], expected: dict[str, Any] | str
) -> None:
    longest = max(map(len, columns.values()))
    rows = pa.table({name: pa.array([*v, *[None] * (longest - len(v))], pa.string()) for name, v in columns.items()})
    found, doubtful = find_spelling(rows, pointed)
    if isinstance(expected, str):
        assert not found
        assert len(doubtful) == 1
        assert f"'{expected}'" in doubtful[0]
    else:
        assert found == expected
        assert not doubtful


def test_values_that_may_be_choices_are_doubtful_beside_true_decimals() -> None:
    rows = pa.table({"fee": ["12,50", "3"], "choice": ["1,2", "3"]})
    found, doubtful = find_spelling(rows)
    assert found == {"decimal": ","}
    assert len(doubtful) == 1
    assert "lists of choices" in doubtful[0]


@pytest.mark.parametrize("first", ["sep=;", "sep=,\r", "SEP=;", "\ufeffsep=;", '"sep=;"', "sep=\t", "sep="])
@pytest.mark.parametrize("given", [{}, {"delimiter": ";"}, {"header": False}])
def test_excels_line_about_the_delimiter_is_refused(
    engine: DuckDBEngine, tmp_path: Path, first: str, given: dict[str, Any]
) -> None:
    with pytest.raises(DataError, match="tells Excel the delimiter"):
        attach(engine, tmp_path, f"{first}\na;b\n1;x\n2;y\n", **given)


def test_columns_with_such_names_are_read(engine: DuckDBEngine, tmp_path: Path) -> None:
    attach(engine, tmp_path, "sep=x;sep\n1;2\n")
    assert [field.name for field in engine.describe("t")] == ["sep=x", "sep"]
