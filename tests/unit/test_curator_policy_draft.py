"""A draft states types and suspected roles, and keeps what it read from the data in marked comments."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator.policy.draft import MARK, ColumnProfile, RoleGuess, draft, guess_role, save, yaml_word
from deniable.errors import DataError, ParameterError
from deniable.policy.document import parse
from deniable.policy.schema import ColumnType, PrivacyUnit, Role

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
        "ward_id": Role.IDENTIFIER,
        "note": Role.SENSITIVE,
        "flag": Role.INSENSITIVE,
    }
    types = {column.name: column.type for column in table.columns}
    assert types["birthDate"] is ColumnType.DATE
    assert types["charge"] is ColumnType.DECIMAL
    assert types["zip"] is ColumnType.TEXT


def test_nothing_read_from_the_data_is_declared(text: str, visits: Path) -> None:
    assert all(column.bounds is None and column.categories is None for column in parse(text).table("visits").columns)
    declared = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for value in ("487.5", "02138", "Person 1", "example.org", "[20, 59]", "SE"):
        assert not any(value in line for line in declared)


def test_what_is_read_from_the_data_is_marked(text: str) -> None:
    comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    assert any("between: [0.0, 487.5]" in line and line.endswith(MARK) for line in comments)
    assert any("between: [20, 59]" in line and line.endswith(MARK) for line in comments)
    assert any('categories: ["NO", SE]' in line and line.endswith(MARK) for line in comments)
    assert "Person 1" not in text
    assert "example.org" not in text


def test_suggestions_can_be_left_out(visits: Path) -> None:
    text = draft(str(visits), suggest=False)
    assert not any(line.lstrip().startswith(("# between", "# categories")) for line in text.splitlines())


def test_a_suggestion_that_is_taken_over_is_valid(text: str, visits: Path) -> None:
    taken = text.replace("        # between", "        between").replace("        # categories", "        categories")
    taken = taken.replace("        # step", "        step")
    policy = parse(taken, folder=visits.parent)
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


def profile(name: str, type_: ColumnType = ColumnType.TEXT, distinct: int = 500, **shapes: float) -> ColumnProfile:
    return ColumnProfile(name, type_, 1000, 1000, distinct, 5.0, {"e-mail address": 0.0} | shapes)


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
        ("stage", Role.INSENSITIVE),
        ("paid", Role.INSENSITIVE),
    ],
)
def test_names_are_clues(name: str, role: Role) -> None:
    assert guess_role(profile(name)).role is role


def test_values_and_counts_are_clues_where_names_say_nothing() -> None:
    assert guess_role(profile("x", **{"e-mail address": 0.95})).role is Role.IDENTIFIER
    assert guess_role(profile("x", distinct=990)).role is Role.IDENTIFIER
    assert guess_role(profile("x", distinct=900)).role is Role.INSENSITIVE
    assert guess_role(profile("x", ColumnType.DECIMAL, distinct=1000)).role is Role.INSENSITIVE
    assert guess_role(profile("x", ColumnType.DATE)).role is Role.QUASI_IDENTIFIER


def test_a_code_of_few_values_is_no_identifier_though_its_name_says_id() -> None:
    assert guess_role(profile("admission_type_id", ColumnType.INTEGER, distinct=8)).role is Role.INSENSITIVE
    assert isinstance(guess_role(profile("patient_id", distinct=600)), RoleGuess)


@pytest.mark.parametrize(
    "text", ["a b", "NO", "02138", "", "it's", 'say "x"', "a: b", "#x", "-", "ünï", "tab\there", "1e5"]
)
def test_words_survive_yaml(text: str) -> None:
    columns = f"a: {{categories: [{yaml_word(text)}]}}"
    found = parse(f"{{version: 1, dataset: d, tables: {{t: {{source: t.csv, unit: row, columns: {{{columns}}}}}}}}}")
    assert found.table("t").columns[0].categories == (text,)


@pytest.mark.parametrize(("distinct", "told"), [(1000, True), (900, False)])
def test_a_number_that_nearly_every_row_has_alone_is_said_to_find_the_row(distinct: int, told: bool) -> None:
    found = guess_role(ColumnProfile("charge", ColumnType.DECIMAL, 1000, 1000, distinct, 5.0, {}))
    assert found.role is Role.SENSITIVE
    assert ("finds the row" in found.reason) is told
