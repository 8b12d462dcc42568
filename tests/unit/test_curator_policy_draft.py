"""A draft states types, and roles where the evidence is strong; it shows values only when asked, in marked comments."""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.curator.policy.draft import MARK, decide_role, draft, draft_table, is_code, save, yaml_word
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import DataError, ParameterError, PolicyError
from deniable.masking.detectors import profile_columns
from deniable.masking.identifiers import judge
from deniable.policy.document import parse
from deniable.policy.schema import ColumnType, PrivacyUnit, Role, make_dialect

ROWS = 40


@pytest.fixture(scope="module")
def visits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic")
    table = pa.table(
        {
            "patient_id": [f"p{i // 2}" for i in range(ROWS)],
            "Full Name": [f"Person {i}" for i in range(ROWS)],
            "contact": [f"someone{i % 7}@example.org" for i in range(ROWS)],
            "zip": ["02138" if i % 2 else "02139" for i in range(ROWS)],
            "birthDate": pa.array([3000 + i for i in range(ROWS)], pa.date32()),
            "age": list(range(20, 20 + ROWS)),
            "sex": ["F" if i % 2 else "M" for i in range(ROWS)],
            "country": ["NO" if i % 2 else "SE" for i in range(ROWS)],
            "charge": [12.5 * i for i in range(ROWS)],
            "ward_id": [1] * ROWS,
            "note": ["a long sentence about somebody, repeated for all of them"] * ROWS,
            "flag": [None, True] * (ROWS // 2),
        }
    )
    pq.write_table(table, folder / "visits.parquet")
    return folder / "visits.parquet"


@pytest.fixture(scope="module")
def text(visits: Path) -> str:
    return draft(str(visits), visits.parent)


@pytest.fixture(scope="module")
def shown(visits: Path) -> str:
    return draft(str(visits), visits.parent, show_values=True)


def test_a_draft_is_a_valid_policy(text: str, visits: Path) -> None:
    policy = parse(text, folder=visits.parent)
    table = policy.table("visits")
    assert table.source == "visits.parquet"
    assert table.unit == PrivacyUnit("patient_id")
    roles = {column.name: column.role for column in table.columns}
    assert roles == {
        "patient_id": Role.IDENTIFIER,
        "Full Name": Role.IDENTIFIER,
        "contact": Role.IDENTIFIER,
        "zip": Role.QUASI_IDENTIFIER,
        "birthDate": Role.QUASI_IDENTIFIER,
        "age": Role.QUASI_IDENTIFIER,
        "sex": Role.QUASI_IDENTIFIER,
        "country": Role.QUASI_IDENTIFIER,
        "charge": Role.SENSITIVE,
        "ward_id": Role.UNDECIDED,
        "note": Role.UNDECIDED,
        "flag": Role.UNDECIDED,
    }
    types = {column.name: column.type for column in table.columns}
    assert types["birthDate"] is ColumnType.DATE
    assert types["charge"] is ColumnType.DECIMAL
    assert types["zip"] is ColumnType.TEXT


VALUES = ("487.5", "02138", "Person 1", "example.org", "[20, 59]", "SE", "sentence", "1978")


def test_no_value_of_the_data_is_in_a_draft(text: str) -> None:
    assert not any(value in text for value in VALUES)
    assert MARK not in text
    assert all(column.bounds is None and column.categories is None for column in parse(text).table("visits").columns)


def test_values_are_shown_when_asked_for_and_marked(shown: str) -> None:
    comments = [line for line in shown.splitlines() if line.lstrip().startswith("#")]
    assert any("between: [0.0, 487.5]" in line and line.endswith(MARK) for line in comments)
    assert any("between: [20, 59]" in line and line.endswith(MARK) for line in comments)
    assert any('categories: ["NO", SE]' in line and line.endswith(MARK) for line in comments)
    declared = [line for line in shown.splitlines() if not line.lstrip().startswith("#")]
    assert not any(value in line for value in VALUES for line in declared)
    assert "Person 1" not in shown
    assert "example.org" not in shown


def test_values_that_are_taken_over_are_refused_until_their_mark_is_deleted(shown: str, visits: Path) -> None:
    taken = shown
    for word in ("between", "categories", "step", "nullable"):
        taken = taken.replace(f"        # {word}:", f"        {word}:")
    with pytest.raises(PolicyError) as caught:
        parse(taken, folder=visits.parent)
    assert {mistake.happened for mistake in caught.value.mistakes} == {
        "a declaration is still marked as read from the data"
    }
    policy = parse(taken.replace(MARK, ""), folder=visits.parent)
    assert policy.table("visits").column("country").categories == ("NO", "SE")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "content", ["a,b\n", "a\n1\n", "id,id\n1,2\n", '"a: b","# c"\n1,2\n', "yes,null,02138\n1,2,3\n", "é,日本\n1,2\n"]
)
def test_odd_tables_give_valid_drafts(tmp_path: Path, content: str) -> None:
    (tmp_path / "01 odd-table.csv").write_text(content)
    policy = parse(draft(str(tmp_path / "01 odd-table.csv"), tmp_path), folder=tmp_path)
    assert len(policy.tables[0].columns) == content.split("\n")[0].count(",") + 1


def test_a_missing_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file"):
        draft(str(tmp_path / "nowhere.csv"))


def test_a_draft_replaces_a_file_only_when_told_to(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    save("one", path)
    with pytest.raises(ParameterError, match="--force"):
        save("two", path)
    assert path.read_text() == "one"
    save("two", path, replace_it=True)
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o077 == 0


def decide(name: str, values: list[object] | pa.Array, times: int = 1) -> Role:
    """The role that a column of these values, each so many times, is drafted with."""
    column = pa.array(values) if isinstance(values, list) else values
    rows = pa.table({name: pa.concat_arrays([column] * times)})
    (profile,) = profile_columns(rows)
    return decide_role(profile, judge(profile))[0]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("SSN", Role.IDENTIFIER),
        ("customerPhone", Role.IDENTIFIER),
        ("last name", Role.IDENTIFIER),
        ("patient_nbr", Role.IDENTIFIER),
        ("home_zip_code", Role.QUASI_IDENTIFIER),
        ("date_of_birth", Role.QUASI_IDENTIFIER),
        ("marital-status", Role.QUASI_IDENTIFIER),
        ("salary-class", Role.SENSITIVE),
        ("diagnosis", Role.SENSITIVE),
        ("stage", Role.UNDECIDED),
        ("paid", Role.UNDECIDED),
    ],
)
def test_names_are_clues(name: str, role: Role) -> None:
    assert decide(name, [f"{chr(97 + i % 26)}{chr(97 + i // 26)}{'x' * (i % 5)}" for i in range(60)], 4) is role


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ([f"someone{i}@example.org" for i in range(40)], Role.IDENTIFIER),
        ([f"({200 + i}) 555-01{i:02}" for i in range(40)], Role.IDENTIFIER),
        ([f"{i} Main Street" for i in range(1, 41)], Role.IDENTIFIER),
        (["Mary Smith", "John Jones", "Linda Brown", "James Davis", "Susan Miller"] * 8, Role.UNDECIDED),
        ([f"{n} {s}" for n in ("Mary", "John", "Linda", "Sue") for s in ("Smith", "Jones", "Fox")], Role.IDENTIFIER),
        ([f"0213{i}" for i in range(10)] * 4, Role.QUASI_IDENTIFIER),
        (["London", "Paris", "Berlin", "Madrid", "Rome", "Vienna", "Chicago", "Boston", "Houston", "Tokyo"] * 4,
         Role.QUASI_IDENTIFIER),
        (["Male", "Female"] * 20, Role.QUASI_IDENTIFIER),
        ([f"{250 + i}.{i % 9}" if i % 3 else f"V{10 + i}" for i in range(60)], Role.SENSITIVE),
        ([1000 + 7 * i for i in range(60)], Role.IDENTIFIER),
        ([i % 9 for i in range(60)], Role.UNDECIDED),
        ([1.5 * i for i in range(60)], Role.UNDECIDED),
        (["No", "Steady", "Up"] * 20, Role.UNDECIDED),
        (["No"] * 60, Role.UNDECIDED),
        ([None] * 60, Role.UNDECIDED),
    ],
)  # fmt: skip
def test_values_are_clues_where_the_header_says_nothing(values: list[object], role: Role) -> None:
    assert decide("x", values) is role


def make_population() -> list[int]:
    """Ages of a population: as many at each age up to 60, fewer and fewer until 94."""
    return [age for age in range(95) for _ in range(12 if age <= 60 else max(1, (95 - age) // 3))]


@pytest.mark.parametrize("name", ["PXQAB", "v_risp_07", "person_attr"])
def test_ages_are_found_from_values_under_a_name_that_nobody_knows(name: str) -> None:
    assert decide(name, make_population()) is Role.QUASI_IDENTIFIER


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("PXQAB", list(range(100)) * 12),  # as even as codes and shares are
        ("PXQAB", [8 + i % 20 for i in range(900)] + list(range(81))),  # most lie closer together than ages do
        ("num_medications", make_population()),
        ("recode", make_population()),
    ],
)
def test_numbers_that_may_be_something_else_than_ages_are_undecided(name: str, values: list[object]) -> None:
    assert decide(name, values) is Role.UNDECIDED


def test_a_draft_never_calls_a_column_insensitive(text: str) -> None:
    assert "insensitive" not in text


def test_a_code_of_few_values_is_no_identifier_though_its_name_says_id() -> None:
    assert decide("admission_type_id", list(range(8)), 100) is Role.UNDECIDED
    assert decide("patient_id", [f"p{i}" for i in range(300)], 2) is Role.IDENTIFIER


def test_codes_are_told_from_quantities() -> None:
    rows = pa.table(
        {
            "RAC1P": [1 + i % 9 for i in range(200)],
            "PUMA": [f"0{100 + i}" for i in range(200)],
            "EDU": ["N", *(str(i % 12) for i in range(199))],
            "wage": [137 * i for i in range(200)],
            "rate": [0.5 * (i % 4) for i in range(200)],
        }
    )
    assert {p.name: is_code(p) for p in profile_columns(rows)} == {
        "RAC1P": True, "PUMA": True, "EDU": True, "wage": False, "rate": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["a b", "NO", "02138", "", "it's", 'say "x"', "a: b", "#x", "-", "ünï", "tab\there", "1e5"]
)
def test_words_survive_yaml(text: str) -> None:
    columns = f"a: {{categories: [{yaml_word(text)}]}}"
    found = parse(f"{{version: 1, dataset: d, tables: {{t: {{source: t.csv, unit: row, columns: {{{columns}}}}}}}}}")
    assert found.table("t").columns[0].categories == (text,)


def test_columns_that_single_people_out_together_are_told(tmp_path: Path) -> None:
    lines = [f"{i % 20},{i // 20},{i % 3}" for i in range(400)]
    (tmp_path / "t.csv").write_text("a,b,c\n" + "\n".join(lines) + "\n")
    text = draft(str(tmp_path / "t.csv"))
    assert "role: undecided  # 20 different numbers that may be codes; with b it singles out 100% of the rows" in text


def test_a_draft_limits_what_all_columns_single_out(text: str) -> None:
    joint = parse(text).release.joint
    assert joint is not None
    assert joint.accepted_by is None


@pytest.mark.slow
def test_a_table_of_five_thousand_columns_is_drafted_within_a_gigabyte(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(5000)]
    rows = [",".join(str((i * j) % 11) for i in range(5000)) for j in range(20)]
    (tmp_path / "wide.csv").write_text(",".join(names) + "\n" + "\n".join(rows) + "\n")
    program = (
        "import resource; from deniable.curator.policy.draft import draft; text = draft('wide.csv'); "
        "print(text.count('role:'), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    columns, kilobytes = map(int, done.stdout.split())
    assert columns == 5000
    assert kilobytes < 1_000_000


REAL = Path(__file__).parents[3] / "shared" / "data"
IDENTIFIERS = {
    "adult/adult.csv": set(),
    "census_kdd/census_income_kdd_1994_1995.parquet": set(),
    "diabetes130/diabetic_data.parquet": {"encounter_id", "patient_nbr"},
    "nist_acs/national/national2019.csv": set(),
    "officials/congress-terms.csv": {"bioguide", "firstname", "middlename", "lastname"},
}
AGES = {"age", "AGEP"}


def _load_bench() -> Any:
    """The script that holds the right role of each column of the real tables."""
    spec = importlib.util.spec_from_file_location("bench_columns", Path(__file__).parents[2] / "bench" / "columns.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


def test_a_role_that_is_not_the_right_one_counts_as_wrong_and_an_open_one_does_not() -> None:
    bench, name = _load_bench(), "officials/congress-terms.csv"
    roles = {"lastname": Role.IDENTIFIER, "party": Role.SENSITIVE, "state": Role.UNDECIDED}
    assert bench.list_wrong(name, roles) == []
    wrong = {"lastname": Role.QUASI_IDENTIFIER, "party": Role.INSENSITIVE, "congress": Role.SENSITIVE}
    assert bench.list_wrong(name, wrong) == list(wrong)


@pytest.mark.quick_cases(2)
@pytest.mark.skipif(not REAL.exists(), reason="the real tables are not here")
@pytest.mark.parametrize("name", IDENTIFIERS)
def test_drafts_of_real_tables_leave_no_fact_about_people_undetected_and_show_no_value(name: str) -> None:
    encoding = "latin-1" if name.startswith("officials") else None
    text = draft(str(REAL / name), encoding=encoding)
    columns = parse(text, folder=REAL).tables[0].columns
    assert {c.name for c in columns if c.role is Role.IDENTIFIER} == IDENTIFIERS[name]
    assert {c.role for c in columns if c.name in AGES} == {Role.QUASI_IDENTIFIER}
    assert not [c.name for c in columns if c.role is Role.INSENSITIVE]
    wrong = _load_bench().list_wrong(name, {c.name: c.role for c in columns})
    assert len(wrong) <= 0.05 * len(columns), wrong
    with DuckDBEngine() as engine:
        engine.attach("t", REAL / name, csv=make_dialect(encoding))
        rows = engine.run("SELECT * FROM t LIMIT 5000")
    ours = " ".join((*rows.column_names, *rows.column_names, "values that are codes, numbers, dates, words or names"))
    texts = [rows[f.name].unique().to_pylist() for f in rows.schema if pa.types.is_string(f.type)]
    values = {value for column in texts for value in column if value and len(value) > 3 and value not in ours}
    assert not [value for value in values if re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", text)]


def _write_people(path: Path, header: str, number: Callable[[int], object], people: int = 130, rows: int = 400) -> Path:
    """Rows of people: their number, a place, a sex, a year of birth, and something that differs from row to row."""
    draw = random.Random(5)
    facts = [
        (draw.choice((10115, 20095, 80331, 50667)), draw.choice("mf"), draw.randint(1940, 2005)) for _ in range(people)
    ]
    numbers = [number(i) for i in range(people)]
    lines = [header]
    for _ in range(rows):
        who = draw.randrange(people)
        lines.append(",".join(map(str, (numbers[who], *facts[who], draw.choice("ABCD"), draw.randint(100, 5000)))))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "number", "people", "rows"),
    [
        ("member,zip,sex,birth_year,finding,amount", lambda i: i + 1, 130, 400),
        ("kunde,plz,geschlecht,jahrgang,befund,betrag", lambda i: 1000 + 37 * i, 130, 400),
        ("c1,c2,c3,c4,c5,c6", lambda i: 100_003 + 7919 * i % 800_000, 130, 400),
        ("ref,plz,geschlecht,jahrgang,befund,betrag", lambda i: f"M-{1000 + i * 31 % 9000}", 40, 120),
        ("jasen,postinumero,sukupuoli,vuosi,x,summa", lambda i: 4000 + 13 * i, 12, 40),
        ("userId,zip,sex,birth_year,finding,amount", lambda i: i, 15, 600),
        ("k1,plz,geschlecht,jahrgang,befund,betrag", lambda i: f"{1000 + 7 * i}.0", 130, 400),
        ("Patientennummer,c2,c3,c4,c5,betrag", lambda i: f"{1000 + 7 * i}.00", 130, 400),
        ("k1,c2,sex,birth_year,c5,amount", lambda i: f"{i * 37 % 9999:05d}", 130, 400),  # as postal codes are written
    ],
)
def test_people_are_told_apart_by_what_their_rows_have_in_common(
    tmp_path: Path, header: str, number: Callable[[int], object], people: int, rows: int
) -> None:
    made = draft_table(str(_write_people(tmp_path / "rows.csv", header, number, people, rows)))
    assert made.unit == header.split(",")[0]
    roles = {column.name: column.role for column in made.columns}
    assert (roles[made.unit] is Role.IDENTIFIER) is made.unit_sure
    assert header.startswith("c1") or roles[header.split(",")[5]] is not Role.IDENTIFIER  # an amount names nobody


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.decimal128(22, 2), pa.decimal256(40, 0)])
def test_whole_numbers_are_codes_in_whichever_type_they_stand(tmp_path: Path, kind: pa.DataType) -> None:
    draw = random.Random(4)
    who = [draw.randrange(130) for _ in range(400)]
    facts = [(draw.choice("mf"), draw.randint(20, 90)) for _ in range(130)]
    rows = pa.table(
        {
            "konto": pa.array([None if n == 7 else 1000 + 7 * n for n in who], pa.int64()).cast(kind),
            "sex": [facts[n][0] for n in who],
            "age": [facts[n][1] for n in who],
        }
    )
    pq.write_table(rows, tmp_path / "rows.parquet")
    made = draft_table(str(tmp_path / "rows.parquet"))
    assert (made.unit, made.unit_sure) == ("konto", True)


@pytest.mark.parametrize("known", [True, False])
def test_what_is_measured_does_not_stand_for_people_where_something_fits_better(tmp_path: Path, known: bool) -> None:
    """Forty wearers have thirty rows each, and their homes are mostly in one place; beats are of ninety values."""
    draw = random.Random(9)
    codes = [f"{draw.randrange(256):02x}:{draw.randrange(256):02x}:{draw.randrange(256):02x}" for _ in range(40)]
    homes = [draw.choice(("02138", "02139", "02140", "02141", "02142")) for _ in range(40)]
    rows = []
    for _ in range(1200):
        n = draw.randrange(40)
        home = homes[n] if draw.random() < 0.9 else "02138"
        rows.append(f"{codes[n]},{home},{draw.randrange(50, 140)},{draw.choice(('rest', 'walk'))}")
    header = "wearer,zip,bpm,activity" if known else "q,zip,q2,activity"
    (tmp_path / "beats.csv").write_text("\n".join([header, *rows]) + "\n")
    made = draft_table(str(tmp_path / "beats.csv"))
    assert (made.unit, made.unit_sure) == (header.split(",")[0], known)


def test_a_number_that_nothing_speaks_for_is_suspected_and_said_to_be(tmp_path: Path) -> None:
    draw = random.Random(2)
    lines = [f"{1000 + draw.randrange(130)},{draw.choice('ABCDE')},{draw.choice('XYZ')}" for _ in range(400)]
    (tmp_path / "events.csv").write_text("xx,item,place_code\n" + "\n".join(lines) + "\n")
    made = draft_table(str(tmp_path / "events.csv"))
    assert (made.unit, made.unit_sure) == ("xx", False)
    assert "unit: {column: xx}  # suspected, confirm:" in draft(str(tmp_path / "events.csv"))


def test_rows_of_different_people_are_no_person_though_a_number_repeats(tmp_path: Path) -> None:
    draw = random.Random(3)
    lines = [
        f"{draw.randint(1, 150)},{draw.choice('mf')},{draw.randint(1940, 2005)},{draw.randint(100, 1500)}"
        for _ in range(400)
    ]
    (tmp_path / "visits.csv").write_text("ward,sex,birth_year,betrag\n" + "\n".join(lines) + "\n")
    made = draft_table(str(tmp_path / "visits.csv"))
    assert made.unit is None
    assert {column.role for column in made.columns if column.name == "betrag"} == {Role.UNDECIDED}


def test_of_orders_and_customers_the_customers_are_the_people(tmp_path: Path) -> None:
    draw = random.Random(4)
    lines = []
    for order in range(500):
        who = random.Random(order * 7 % 120)
        fact = f"{1000 + order * 7 % 120},{who.choice(('10115', '20095'))},{who.choice('mf')},{who.randint(1940, 2005)}"
        lines += [f"{900_000 + order},{fact},{draw.choice('ABCDEFGH')}" for _ in range(3)]
    (tmp_path / "orders.csv").write_text("order_no,kunde,zip,sex,birth_year,item\n" + "\n".join(lines) + "\n")
    assert draft_table(str(tmp_path / "orders.csv")).unit == "kunde"


def _write_born(
    path: Path, number: Callable[[int], object] | None, people: int, each: int, facts: str = "birth,zip,sex"
) -> Path:
    """Rows of people, `each` on average, with an exact birth date, an age, a place and a sex; numbered or not."""
    draw = random.Random(people)
    who = [
        {
            "birth": f"{draw.randint(1935, 2004)}-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}",
            "age": draw.randint(20, 90),
            "zip": f"0{draw.randint(2130, 2159)}",
            "sex": draw.choice("FM"),
        }
        for _ in range(people)
    ]
    names = facts.split(",")
    lines = [",".join([*(["c0"] if number else []), *names, "hr"])]
    for _ in range(people * each):
        n = draw.randrange(people)
        cells = [*([number(n)] if number else []), *(who[n][name] for name in names), draw.randint(50, 150)]
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("number", "people"),
    [
        (lambda i: i + 1, 3),
        (lambda i: i + 1, 15),
        (lambda i: i + 1, 19),
        (lambda i: f"S{i:02d}", 40),  # as diagnoses are written
        (lambda i: f"K{i:02d}", 90),
        (lambda i: f"{i % 8 + 1}.{i // 8 + 1:03d}", 60),  # site and subject
        (lambda i: f"{2130 + i:05d}", 40),  # as postal codes are
    ],
)
def test_values_whose_rows_agree_in_birth_place_and_sex_are_people_whatever_they_look_like(
    tmp_path: Path, number: Callable[[int], object], people: int
) -> None:
    made = draft_table(str(_write_born(tmp_path / "rows.csv", number, people, 30)))
    assert (made.unit, made.unit_sure) == ("c0", True)
    assert {column.role for column in made.columns if column.name == "c0"} == {Role.IDENTIFIER}


@pytest.mark.parametrize(
    ("facts", "people", "each", "unit"),
    [
        ("birth,zip,sex", 60, 25, "birth"),
        ("birth,zip,sex", 3000, 5, "birth"),  # some are born on one day
        ("age,zip,sex", 60, 25, "zip"),  # an age changes
        ("birth,zip,sex", 1, 40, "birth"),
        ("birth,zip,sex", 3000, 1, None),
        ("age,zip,sex", 3000, 1, None),
        ("age,sex", 60, 25, None),
    ],
)
def test_facts_that_repeat_together_beyond_chance_are_counted_in_place_of_rows(
    tmp_path: Path, facts: str, people: int, each: int, unit: str | None
) -> None:
    rows = _write_born(tmp_path / "rows.csv", None, people, each, facts)
    if people > 60 and each == 1:  # nobody twice
        head, *lines = rows.read_text().splitlines()
        rows.write_text("\n".join([head, *{line.rsplit(",", 1)[0]: line for line in lines}.values()]) + "\n")
    made = draft_table(str(rows))
    assert made.unit == unit
    assert made.unit is None or not made.unit_sure
    if unit == "birth" and people > 1:
        text = draft(str(rows))
        assert "birth:\n        type: date\n        role: identifier  # the unit" in text


def _write_unnamed(path: Path, header: str, facts: str, people: int, each: int) -> Path:
    """Rows of people under any names of columns, shuffled, with a diagnosis and an amount of each visit."""
    draw = random.Random(people)
    who = []
    for _ in range(people):
        year, month, day = draw.randint(1935, 2003), draw.randint(1, 12), draw.randint(1, 28)
        fact = {"date": f"{year}-{month:02d}-{day:02d}", "written": f"{day:02d}.{month:02d}.{year}", "year": year}
        fact |= {
            "age": 2024 - year,
            "decade": (2024 - year) // 10,
            "sex": draw.choice("mw"),
            "code": draw.randint(1, 2),
        }
        fact |= {
            "plz": draw.randint(10115, 10124),
            "town": "Ort " + draw.choice("ABCDEFGHIJ"),
            "job": draw.choice("abcdefg"),
        }
        who.append(fact)
    rows = [one for one in who for _ in range(draw.randint(1, 2 * each - 1))]
    draw.shuffle(rows)
    lines = [
        ",".join([*(str(one[name]) for name in facts.split(",")), draw.choice(("flu", "gout")), f"{draw.random():.3f}"])
        for one in rows
    ]
    path.write_text("\n".join([f"{header},c8,c9", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "facts", "people", "each", "unit"),
    [
        ("c2,c3,c4", "date,sex,plz", 150, 3, "c2"),
        ("geboren,geschlecht,c4", "date,sex,town", 150, 3, "geboren"),
        ("c2,c3,c4", "written,sex,town", 150, 3, "c2"),
        ("c2,c3", "date,sex", 150, 3, "c2"),
        ("c2,c3,c4", "date,code,plz", 150, 3, "c2"),  # nobody knows that 1 and 2 are sexes
        ("birth_year,sex,c4,c5", "year,sex,town,job", 60, 10, "birth_year"),
        ("age,sex,c4,c5", "age,sex,plz,job", 60, 10, "age"),
        ("age,sex,c4", "age,sex,plz", 150, 3, "age"),
        ("alter,geschlecht,c4", "age,sex,town", 150, 3, "alter"),
        ("age,sex,c4", "age,sex,plz", 150, 1, None),
        ("age,sex,c4", "age,sex,town", 5000, 1, None),
        ("c2,c3,c4", "date,sex,plz", 9000, 1, None),
        ("c2,c3,c4", "date,age,decade", 9000, 1, None),  # both follow from the date
        ("c2,c3,c4,c5", "date,age,decade,sex", 2000, 1, None),
        ("age,sex,c4,c5", "age,sex,plz,job", 600, 1, None),
        ("birth_year,sex,c4,c5", "year,sex,town,job", 5000, 1, None),
    ],
)
def test_people_repeat_where_rows_agree_beyond_chance_whatever_columns_are_called(
    tmp_path: Path, header: str, facts: str, people: int, each: int, unit: str | None
) -> None:
    made = draft_table(str(_write_unnamed(tmp_path / "rows.csv", header, facts, people, each)))
    assert made.unit == unit
    assert unit is None or not made.unit_sure


def test_codes_like_diagnoses_whose_rows_have_one_sex_are_suspected_and_drafted_as_the_unit(tmp_path: Path) -> None:
    made = draft_table(str(_write_born(tmp_path / "rows.csv", lambda i: f"S{i:02d}", 40, 40, "sex")))
    assert (made.unit, made.unit_sure) == ("c0", False)
    text = draft(str(tmp_path / "rows.csv"))
    assert "c0:\n        type: text\n        role: identifier" in text


def _write_clinic(path: Path, born: str = "{day:02}.{month:02}.19{year}") -> Path:
    lines = []
    for n in range(300):
        day = born.format(day=n % 28 + 1, month=n % 12 + 1, year=40 + n % 60)
        lines.append(f"P{n % 90};{day};{n % 7 + 1}.{100 + n},50;{60 + n % 30},{n % 10}\n")
    path.write_text("Patient;Geboren;Kosten;Gewicht\n" + "".join(lines), encoding="utf-8")
    return path


def test_a_draft_says_how_a_file_spells_numbers_and_dates_and_the_policy_reads_it_so(tmp_path: Path) -> None:
    source = _write_clinic(tmp_path / "clinic.csv")
    text = draft(str(source), tmp_path)
    assert '    csv: {decimal: ",", thousands: ".", dates: day-first}  # confirm' in text
    policy = parse(text, folder=tmp_path)
    with DuckDBEngine(root=tmp_path) as engine:
        engine.attach("clinic", "clinic.csv", policy.table("clinic"))
        row = engine.run("SELECT * FROM clinic LIMIT 1").to_pylist()[0]
    assert row == {"Patient": "P0", "Geboren": date(1940, 1, 1), "Kosten": 1100.5, "Gewicht": 60.0}


def test_a_draft_leaves_dates_that_can_be_read_in_two_ways_to_the_steward(tmp_path: Path) -> None:
    source = tmp_path / "clinic.csv"
    source.write_text("Patient;Geboren\n" + "".join(f"P{n};0{n % 9 + 1}/0{n % 7 + 1}/19{40 + n}\n" for n in range(50)))
    text = draft(str(source), tmp_path)
    assert "dates: day-first} or month-first" in text
    assert "type: date" not in text


def test_a_frame_that_is_a_file_reads_decimal_commas(tmp_path: Path) -> None:
    curator = Curator.from_frame(
        str(_write_clinic(tmp_path / "clinic.csv")),
        unit="Patient",
        budget=100,
        bounds={"Gewicht": (0, 200)},
        max_rows=10,
    )
    mean = curator.query("SELECT AVG(Gewicht) AS mean FROM clinic", epsilon=50).scalar()
    assert 70 < mean < 80


def test_a_spelling_that_no_column_of_the_whole_file_has_is_not_drafted(tmp_path: Path) -> None:
    source = tmp_path / "clinic.csv"
    source.write_text("Patient;Geboren\n" + "".join(f"P{n};31.02.19{40 + n}\n" for n in range(50)))
    assert "csv:" not in draft(str(source), tmp_path)
