"""A slip in a policy does not publish people: it is refused, or needs the steward's word, or is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator.curator import Curator
from deniable.curator.mask.run import mask, request_for
from deniable.curator.policy.check import accept_policy, check_policy
from deniable.errors import AccessRefused, PolicyError
from deniable.policy.document import Policy, parse, read
from deniable.policy.schema import Role

CLINIC = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: pid, max_groups: 2, max_rows_per_group: 3}
    columns:
      pid: {type: integer, role: identifier, mask: redact}
      age: {type: integer, role: quasi-identifier, between: [0, 110], nullable: false}
      ward: {role: insensitive, categories: [a, b]}
      illness: {role: sensitive}
budgets:
  dataset: {epsilon: 1, delta: 1e-6, accounting: zcdp}
  purposes: {research: {epsilon: 1}}
  analysts: {ana: {purposes: [research], columns: [age, ward], rows: {ward: [a]}}}
release:
  anonymize: {k: 5, l: {illness: 3}, t: {illness: 0.3}, second_release: refuse}
  minimize: {sample: 0.5, columns: [age, ward]}
  attack: {knows: [age, ward], most: {uniqueness: 0.01}}
  joint: {most: 0.05}
expires: 2090-01-01
"""
ROWS = "pid,age,ward,illness\n" + "".join(f"{i // 2},{20 + i},{'ab'[i % 2]},i{i % 4}\n" for i in range(40))


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    (tmp_path / "visits.csv").write_text(ROWS)
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    return tmp_path / "clinic.yaml"


def refused(text: str, folder: Path = Path()) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse(text, folder=folder)
    return [mistake.message for mistake in caught.value.mistakes]


def slip(old: str, new: str) -> str:
    assert CLINIC.count(old) == 1
    return CLINIC.replace(old, new)


PUBLIC_TWIN = "  copy: {source: SOURCE, public: true}\nbudgets:"


@pytest.mark.parametrize("written", ["visits.csv", "./visits.csv", "sub/../visits.csv", "ABSOLUTE", "link.csv"])
def test_a_private_source_is_not_declared_as_public_too(clinic: Path, written: str) -> None:
    (clinic.parent / "sub").mkdir()
    (clinic.parent / "link.csv").symlink_to(clinic.parent / "visits.csv")
    source = written.replace("ABSOLUTE", str(clinic.parent / "visits.csv"))
    text = slip("budgets:", PUBLIC_TWIN.replace("SOURCE", source))
    assert "its source is that of the private table 'visits'" in refused(text, clinic.parent)[0]


@pytest.mark.parametrize("written", ["twin.csv", "folder", "folder/*.csv"])
def test_a_copy_of_a_private_file_is_not_opened_as_public(clinic: Path, written: str) -> None:
    (clinic.parent / "twin.csv").write_text(ROWS)
    (clinic.parent / "folder").mkdir()
    (clinic.parent / "folder" / "other.csv").write_text(ROWS)
    clinic.write_text(slip("budgets:", PUBLIC_TWIN.replace("SOURCE", f'"{written}"')))
    with pytest.raises(PolicyError, match="'copy' holds the rows of the private table 'visits'"):
        Curator(read(clinic))


def test_another_public_file_is_opened(clinic: Path) -> None:
    (clinic.parent / "twin.csv").write_text(ROWS.replace("20,", "21,"))
    clinic.write_text(slip("budgets:", PUBLIC_TWIN.replace("SOURCE", "twin.csv")))
    with Curator(read(clinic)) as curator:
        assert any(table.public for table in curator.policy.tables)


def test_a_public_table_has_no_columns_of_people() -> None:
    text = slip("unit: {column: pid, max_groups: 2, max_rows_per_group: 3}", "public: true")
    assert "'visits' is public, and its column 'pid' is declared as identifier" in refused(text)[0]


@pytest.mark.parametrize("role", ["insensitive", "sensitive"])
def test_the_column_that_tells_people_apart_is_no_plain_one(role: str) -> None:
    text = slip("role: identifier, mask: redact", f"role: {role}")
    assert f"'pid' tells people apart, and is declared as {role}" in refused(text)[0]


def test_a_unit_column_without_a_word_is_not_written_as_it_is(clinic: Path) -> None:
    text = slip("pid: {type: integer, role: identifier, mask: redact}", "pid: {}")
    attack = "  attack: {knows: [age, ward], most: {uniqueness: 0.01}}\n"
    for line in ("  minimize: {sample: 0.5, columns: [age, ward]}\n", attack, "  joint: {most: 0.05}\n"):
        text = text.replace(line, "")
    clinic.write_text(text)
    out = clinic.parent / "masked.csv"
    mask(request_for(clinic, None, "visits", out))
    assert out.read_text().splitlines()[0].replace('"', "") == "age,ward,illness"


def test_a_column_without_a_role_is_undecided_and_withheld(clinic: Path) -> None:
    text = slip("ward: {role: insensitive, categories: [a, b]}", "ward: {categories: [a, b]}")
    policy = parse(text)
    ward = policy.table("visits").column("ward")
    assert ward is not None
    assert ward.role is Role.UNDECIDED
    assert policy.table("visits").released_columns == ("pid", "age", "illness")
    clinic.write_text(text)
    assert any("withheld from releases of rows: ward" in note for note in check_policy(clinic).notes)
    with pytest.raises(AccessRefused, match="'ward' of 'visits' is undecided"):
        mask(request_for(clinic, None, "visits", clinic.parent / "m.csv", columns=["ward"]))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("delta: 1e-6", "delta: 0.9", "'delta' is `0.9`"),
        ("k: 5", "k: 1", "'k' is `1`"),
        ("l: {illness: 3}", "l: {illness: 1}", "'illness' is `1`"),
        ("epsilon: 1, delta", "epsilon: E5, delta", "'epsilon' is `E5`"),
        ("illness: {role: sensitive}", "illness: {between: [0, 1]}  # read from the data: x", "read from the data"),
        ("ward: {role", '"wa\\u200brd": {role', r"invisible characters: wa\u200brd"),
        ("  visits:", "  ../visits:", "a table's name holds a slash"),
        ("  visits:", '  "c:\\\\visits":', "a table's name holds a slash"),
        ("  visits:", "  pg_class:", "one of PostgreSQL's catalogs"),
        ("  visits:", f"  {'v' * 151}:", "too long for the files"),
        ("ward: {role", '".ward": {role', "begins with a dot"),
        ("ward: {role", '" ward": {role', "read from files: 'ward'"),
        ("ward: {role", '"wa\\u0301rd": {role', "read from files: 'wárd'"),
        ("categories: [a, b]", 'categories: [a, "\\ud83d"]', "half of a surrogate pair"),
        ("ward: {role", '"\\ude42": {role', "half of a surrogate pair"),
        ("categories: [a, b]", "type: integer, categories: [1, -9223372036854775808]", "more than 64 bits"),
    ],
)
def test_what_protects_nobody_is_a_mistake(old: str, new: str, message: str) -> None:
    assert any(message in words for words in refused(slip(old, new)))


def test_a_policy_written_by_a_json_library_holds_the_same_characters() -> None:
    """JSON writes a character beyond U+FFFF as two escapes; engines refuse a text with halves of one."""
    policy = parse(slip("categories: [a, b]", f"categories: {json.dumps(['🙂', 'é', 'a🙂b'])}"))
    ward = policy.table("visits").column("ward")
    assert ward is not None
    assert ward.categories == ("🙂", "é", "a🙂b")


def test_a_constant_that_looks_like_a_number_is_text() -> None:
    policy = parse(slip("mask: redact", "mask: {constant: E11}"))
    pid = policy.table("visits").column("pid")
    assert pid is not None
    assert pid.mask is not None
    assert pid.mask.options["value"] == "E11"


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("{epsilon: 1, delta: 1e-6, accounting: zcdp}", "{epsilon: 50, delta: 1e-6, accounting: zcdp}", "much-loss"),
        ("delta: 1e-6", "delta: 0.05", "large-delta"),
        ("expires: 2090-01-01", "expires: 2020-01-01", "expired"),
    ],
)
def test_what_protects_little_needs_the_stewards_word(clinic: Path, old: str, new: str, name: str) -> None:
    assert not check_policy(clinic).is_open
    clinic.write_text(slip(old, new))
    found = check_policy(clinic)
    assert list(found.doubts) == [name]
    assert found.is_open
    if name != "expired":
        clinic.write_text(slip(old, new) + f"accepts: [{name}]\n")
        assert not check_policy(clinic).is_open


def test_much_loss_in_rho_is_doubted_too(clinic: Path) -> None:
    clinic.write_text(CLINIC[: CLINIC.index("budgets:")] + "budgets: {dataset: {rho: 5000}}\n")
    assert "rho is 5000" in check_policy(clinic).doubts["much-loss"]


LOOSENED = [
    ("unit: {column: pid, max_groups: 2, max_rows_per_group: 3}", "unit: row", "it protected all rows of one pid"),
    ("role: identifier, mask: redact", "role: quasi-identifier, mask: redact", "identifier became quasi-identifier"),
    ("role: identifier, mask: redact", "role: identifier", "the mask redact was dropped"),
    ("illness: {role: sensitive}", "illness: {role: insensitive}", "sensitive became insensitive"),
    ("{epsilon: 1, delta: 1e-6, accounting: zcdp}", "{epsilon: 2, delta: 1e-6, accounting: zcdp}", "epsilon 1 with"),
    (", rows: {ward: [a]}", "", "rows by ward: the list was dropped"),
    ("columns: [age, ward], rows", "rows", "analyst ana: columns: the list was dropped"),
    ("k: 5", "k: 4", "k 5 became 4"),
    ("l: {illness: 3}, ", "", "l of illness: 3 was dropped"),
    ("t: {illness: 0.3}", "t: {illness: 0.4}", "t of illness: 0.3 became 0.4"),
    (", second_release: refuse", "", "a second release is no longer refused"),
    ("sample: 0.5, ", "", "sample 0.5 became 1"),
    (", columns: [age, ward]}\n  attack", "}\n  attack", "minimize: columns: the list was dropped"),
    ("knows: [age, ward]", "knows: [age]", "no longer taken to know ward"),
    (", most: {uniqueness: 0.01}", "", "uniqueness: 0.01 was dropped"),
    ("most: {uniqueness: 0.01}}", "most: {uniqueness: 0.01}, accepted_by: Bo}", "attack: Bo accepts releases beyond"),
    ("  joint: {most: 0.05}\n", "", "joint: most 0.05 was dropped"),
    ("expires: 2090-01-01\n", "", "2090-01-01 became never"),
    ("k: 5", "k: 5, suppress: 0.4", "suppress 0 became 0.4"),
]


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize(("old", "new", "message"), LOOSENED)
def test_what_protects_less_than_the_accepted_policy_is_shown_and_refused(
    clinic: Path, old: str, new: str, message: str
) -> None:
    assert accept_policy(clinic, "A. Steward") == ()
    assert isinstance(read(clinic), Policy)
    clinic.write_text(slip(old, new))
    found = check_policy(clinic)
    assert found.is_open
    assert any(message in words for words in found.loosened), found.loosened
    with pytest.raises(PolicyError, match="protects less than the policy that was accepted last") as caught:
        read(clinic)
    assert any(message in mistake.message for mistake in caught.value.mistakes)
    assert accept_policy(clinic, "A. Steward") == tuple(found.loosened)
    assert isinstance(read(clinic), Policy)


def test_an_intruder_who_knew_every_column_and_now_knows_one_is_less_protection(clinic: Path) -> None:
    clinic.write_text(slip("knows: [age, ward], ", ""))
    accept_policy(clinic, "A. Steward")
    clinic.write_text(slip("knows: [age, ward]", "knows: [age]"))
    assert any("taken to know age alone" in words for words in check_policy(clinic).loosened)


BESIDE = """  again:
    source: visits.csv
    unit: row
    columns: {illness: {role: insensitive}}
budgets:"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("budgets:", BESIDE, "again: a new table"),
        ("  visits:\n", "  renamed:\n", "renamed: a new table"),
        (
            "role: identifier, mask: redact",
            "role: identifier, mask: shuffle",
            "the mask redact became another shuffle",
        ),
    ],
)
def test_the_accepted_policy_is_not_passed_by_another_name_or_a_table_beside_it(
    clinic: Path, old: str, new: str, message: str
) -> None:
    accept_policy(clinic, "A. Steward")
    clinic.write_text(CLINIC.replace(old, new, 1))
    with pytest.raises(PolicyError) as caught:
        read(clinic)
    assert any(message in mistake.message for mistake in caught.value.mistakes)


def test_an_accepted_policy_belongs_to_its_rows_and_not_to_the_name_of_its_file(clinic: Path) -> None:
    accept_policy(clinic, "A. Steward")
    assert {path.name for path in clinic.parent.iterdir()} >= {clinic.name}
    assert not list(clinic.parent.glob("*accepted*"))
    weaker = slip("k: 5", "k: 3")
    copied = clinic.with_name("copied.yaml")
    copied.write_text(weaker)
    with pytest.raises(PolicyError, match="protects less"):
        read(copied)
    elsewhere = clinic.parent / "elsewhere"
    elsewhere.mkdir()
    moved = elsewhere / "policy.yaml"
    moved.write_text(
        weaker.replace("source: visits.csv", "source: ../visits.csv").replace("dataset: clinic", "dataset: other")
    )
    with pytest.raises(PolicyError, match="protects less"):
        read(moved)
    copied.write_text(CLINIC)
    assert isinstance(read(copied), Policy)
    copied.write_text(weaker)
    accept_policy(copied, "A. Steward")
    assert isinstance(read(copied), Policy)
    assert isinstance(read(clinic), Policy)


@pytest.mark.parametrize("ledger_first", [True, False])
def test_a_state_that_was_removed_forgets_nothing_that_a_ledger_remembers(clinic: Path, ledger_first: bool) -> None:
    """A policy that was accepted is noted in the ledger then, or when it is first opened with one."""
    ledger, kept = clinic.with_suffix(".ledger.sqlite"), Path(os.environ["DENIABLE_STATE"]) / "accepted.json"
    if ledger_first:
        Curator(read(clinic), ledger=ledger).close()
    accept_policy(clinic, "A. Steward")
    with Curator(read(clinic), ledger=ledger) as curator:
        curator.record("mask")  # a ledger begins with its first entry, and notes the policy then
    with Curator(read(clinic), ledger=ledger) as curator:
        (entry,) = curator.context.ledger.entries(0, ("accept",))
        assert (entry.analyst, entry.details["policy"]) == ("A. Steward", curator.context.policy.hash)
    clinic.write_text(slip("k: 5", "k: 6"))
    Curator(read(clinic), ledger=ledger).close()  # it protects more, and can be compared
    kept.unlink()
    for change in ("k: 4", "k: 6"):  # whether it protects more or less cannot be told any more
        clinic.write_text(slip("k: 5", change))
        with pytest.raises(PolicyError, match="whether this one protects less cannot be told"):
            Curator(read(clinic), ledger=ledger)
    clinic.write_text(CLINIC)
    Curator(read(clinic), ledger=ledger).close()
    clinic.write_text(slip("k: 5", "k: 4"))
    accept_policy(clinic, "B. Steward")
    Curator(read(clinic), ledger=ledger).close()


def test_an_accepted_policy_that_was_edited_in_the_state_is_refused(clinic: Path) -> None:
    accept_policy(clinic, "A. Steward")
    kept = Path(os.environ["DENIABLE_STATE"]) / "accepted.json"
    kept.write_text(kept.read_text().replace("k: 5", "k: 2"))
    clinic.write_text(slip("k: 5", "k: 2"))
    with pytest.raises(PolicyError, match="was changed"):
        read(clinic)


def test_an_identifier_that_was_withheld_does_not_leave_by_a_mask_alone(clinic: Path) -> None:
    bare = slip("role: identifier, mask: redact", "role: identifier")
    clinic.write_text(bare)
    accept_policy(clinic, "A. Steward")
    clinic.write_text(CLINIC.replace("role: identifier, mask: redact", "role: identifier, mask: shuffle"))
    with pytest.raises(PolicyError) as caught:
        read(clinic)
    assert any("it was withheld, and now leaves" in mistake.message for mistake in caught.value.mistakes)


@pytest.mark.parametrize(("old", "new", "_"), LOOSENED)
def test_the_way_back_is_tighter_and_needs_no_word(clinic: Path, old: str, new: str, _: str) -> None:
    clinic.write_text(slip(old, new))
    accept_policy(clinic, "A. Steward")
    clinic.write_text(CLINIC)
    expected = ["visits: it protected one row, and now all rows of one pid"] if new == "unit: row" else []
    assert check_policy(clinic).loosened == expected


def test_the_rows_are_compared_with_the_policy_for_the_steward(clinic: Path) -> None:
    assert check_policy(clinic).data is None
    assert check_policy(clinic, data=True).data == []
    rows = ROWS + ",30,a,i1\n" + "7,,a,i1\n" * 3 + "8,300,zz,i1\n" * 6
    (clinic.parent / "visits.csv").write_text(rows)
    found = {(one.column, one.serious): one for one in check_policy(clinic, data=True).data or ()}
    assert {place: round(one.share * 50) for place, one in found.items()} == {
        ("pid", True): 1,
        ("age", True): 3,
        ("age", False): 6,
        ("ward", False): 6,
    }
    assert not any("300" in one.words or "zz" in one.words for one in found.values())


def test_ids_that_repeat_are_told_where_each_row_is_taken_for_a_person(clinic: Path) -> None:
    clinic.write_text(slip("unit: {column: pid, max_groups: 2, max_rows_per_group: 3}", "unit: row"))
    assert any("pid may repeat" in note for note in check_policy(clinic).notes)
    (found,) = check_policy(clinic, data=True).data or ()
    assert found.serious
    assert found.share == 0.5


def test_dates_and_categories_in_quotes_are_compared_too(tmp_path: Path) -> None:
    rows = pa.table({"day": pa.array([0, 10_000, 20_000], pa.date32()), "who": ["it's", "it's", None]})
    pq.write_table(rows, tmp_path / "t.parquet")
    (tmp_path / "p.yaml").write_text(
        "{version: 1, dataset: d, tables: {t: {source: t.parquet, unit: row, columns: {"
        'day: {type: date, between: [1970-01-01, 2000-01-01]}, who: {categories: ["it\'s"]}}}}}'
    )
    (found,) = check_policy(tmp_path / "p.yaml", data=True).data or ()
    assert (found.column, round(found.share, 2)) == ("day", 0.33)


@pytest.mark.parametrize(
    ("mask", "leaves"),
    [
        ("redact", True),
        ("{token: {key: k}}", True),
        ("scrub", False),
        ('{regex: {find: "^Q", put: x}}', False),
        ("shuffle", False),
    ],
)
def test_a_mask_that_leaves_something_of_a_value_decides_nothing_by_itself(mask: str, leaves: bool) -> None:
    """Rounded to a cent a charge left as it was, and a pattern that fits nothing let every name out."""
    text = CLINIC.replace("illness: {role: sensitive}", f"illness: {{role: sensitive}}\n      note: {{mask: {mask}}}")
    text += "keys: {k: {env: K}}\n"
    (table,) = (each for each in parse(text).tables if each.name == "visits")
    assert ("note" in table.released_columns) == leaves


def test_people_in_a_public_table_are_told_from_its_rows(clinic: Path) -> None:
    folder = clinic.parent
    lines = (folder / "visits.csv").read_text().splitlines()
    (folder / "wards.csv").write_text("ward,beds\na,10\nb,20\nc,30\n")
    (folder / "shuffled.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]) + "\n")
    staff = "".join(f"{n},nurse{n}@clinic.example\n" for n in range(30))
    (folder / "staff.csv").write_text("number,reach\n" + staff)
    public = "".join(f"  {name}: {{source: {name}.csv, public: true}}\n" for name in ("wards", "shuffled", "staff"))
    clinic.write_text(CLINIC.replace("budgets:", f"{public}budgets:", 1))
    found = {one.table: one for one in check_policy(clinic, data=True).data or ()}
    assert set(found) == {"shuffled", "staff"}
    assert "one row of the private table 'visits'" in found["shuffled"].words
    assert "e-mail" in found["staff"].words
    assert all(one.serious for one in found.values())


HIERARCHY = """
version: 1
dataset: d
tables:
  t:
    source: t.csv
    unit: row
    columns:
      x:
        type: %s
        role: quasi-identifier
        hierarchy: %s
"""


@pytest.mark.parametrize("kind", ["intervals: {widths: [10]", "brackets: {edges: [0, 10]", "rounding: {to: [10]"])
@pytest.mark.parametrize("ends", ["top: 5, bottom: 25", "bottom: 5, top: 5"])
def test_a_bottom_that_is_not_below_its_top_is_refused_with_its_line(kind: str, ends: str) -> None:
    with pytest.raises(PolicyError, match="the bottom is not below the top") as caught:
        parse(HIERARCHY % ("integer", f"{{{kind}, {ends}}}}}"))
    assert [mistake.place.line for mistake in caught.value.mistakes] == [12]
    parse(HIERARCHY % ("integer", f"{{{kind}, bottom: 5, top: 25}}}}"))


def test_a_tree_with_an_empty_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tree.csv").write_text("a;B;*\nb;;*\n")
    message = "file 'tree.csv', entry 2: a level above the leaf is empty"
    assert message in refused(HIERARCHY % ("text", "{tree: {file: tree.csv}}"), tmp_path)[0]
    inline = "{tree: {inline: {any: {'': [a, b], C: [c]}}}}"
    assert "a group of the tree has no label" in refused(HIERARCHY % ("text", inline))[0]
    (tmp_path / "tree.csv").write_text(";B;*\nb;B;*\n")  # an empty text is a value
    parse(HIERARCHY % ("text", "{tree: {file: tree.csv}}"), folder=tmp_path)
