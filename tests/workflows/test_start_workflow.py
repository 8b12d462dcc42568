"""`deniable start`: from a table to a release, in a conversation, by answers or unasked; no row is written besides."""

from __future__ import annotations

import csv
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from deniable.cli.main import app
from deniable.curator import start
from deniable.curator.governance.reports import verify_file
from deniable.curator.governance.steward import read_ledger
from deniable.curator.policy import compose
from deniable.curator.policy.check import check_policy
from deniable.errors import DataError, Infeasible, IntegrityError, ParameterError, StorageError
from deniable.policy.document import read
from forked_commands import program

CANARY = re.compile(r"Zebedee\d+|QX\d{5}|secret \d+ of the note|Atlantis|Zoster")


def write_people(path: Path, rows: int, seed: int = 1) -> Path:
    """A table of made people, each with a name, a card and a note that nobody else has; one stands out in all."""
    draw = random.Random(seed)
    lines = ["name,card,age,sex,region,diagnosis,ward,stay,note"]
    for i in range(rows):
        kept = f"{draw.randint(20, 79)},{draw.choice('FM')},{draw.choice(['north', 'south'])},{draw.choice('ABCD')}9"
        kept = "101,F,Atlantis,Zoster" if i == 17 else kept
        stay = f"{draw.choice(['red', 'blue', 'green'])},{draw.randint(0, 39)}"
        lines.append(f"Zebedee{i},QX{i:05},{kept},{stay},secret {i} of the note that was written about somebody")
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: object, typed: str = "") -> Result:
    """One run in this process, with lines that are typed."""
    return CliRunner().invoke(app, [str(word) for word in words], input=typed, catch_exceptions=True)


def read_columns(path: str) -> list[str]:
    """The columns of a released CSV file."""
    with Path(path).open(newline="") as file:
        return next(csv.reader(file))


def find_canaries(folder: Path) -> list[str]:
    """Files of a folder in which something of one person is written."""
    return [
        path.name for path in folder.rglob("*") if path.is_file() and CANARY.search(path.read_bytes().decode("latin-1"))
    ]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small table in a folder where commands are given; names are relative to it. Few guesses are tried."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(start, "ATTACKS", 60)
    write_people(tmp_path / "people.csv", 300)
    return Path("people.csv")


def test_unasked_it_releases_rows_that_are_certified_attacked_and_of_nobody(table: Path) -> None:
    done = run("start", table, "--yes", "--json")
    assert done.exit_code == 0, done.output
    told, folder = json.loads(done.stdout), Path("people-release")
    assert (told["technique"], told["recipient"]) == ("k-anonymity", "public")
    assert told["after"]["failed"] is False
    assert told["after"]["exposed"]["uniqueness"] <= told["after"]["limits"]["uniqueness"]
    assert {v["attack"] for v in told["after"]["verdicts"]} >= {"uniqueness"}
    assert told["before"]["exposed"]["uniqueness"] > 0
    assert verify_file(folder / "release.csv").unchanged
    assert read_columns("people-release/release.csv") == ["age", "sex", "region", "diagnosis"]
    assert read(folder / "policy.yaml").release.anonymize.k == 10  # type: ignore[union-attr]
    assert not check_policy(folder / "policy.yaml", data=True).is_open
    assert find_canaries(folder) == []
    assert "First release" in (folder / "report.html").read_text()


def test_a_second_run_makes_nothing_anew_until_the_table_is_changed(table: Path) -> None:
    assert run("start", table, "--yes").exit_code == 0
    first = Path("people-release/release.csv").read_bytes()
    again = run("start", table, "--yes")
    assert again.exit_code == 0
    assert "The release was made already" in again.output
    assert Path("people-release/release.csv").read_bytes() == first
    write_people(table, 350, seed=2)
    changed = run("start", table, "--yes")
    assert changed.exit_code == 0
    assert "The table was changed since the last run" in changed.output
    assert "made already" not in changed.output
    assert Path("people-release/release.csv").read_bytes() != first


CONVERSATION = "researcher\nresearchers\n\n\nage=quasi identifier\n\nrest\n4\n1\n10%\n40%\n\n"


def test_a_conversation_explains_asks_again_and_takes_what_is_typed(table: Path) -> None:
    done = run("start", table, "--out", "talk", typed=CONVERSATION)
    assert done.exit_code == 0, done.output
    for screen in ("What is in people.csv", "Who is exposed", "Decision 1: Who will receive it?",
                   "Did you mean 'researchers'?", "Did you mean 'quasi-identifier'?", "What will leave",
                   "Attacking what was released", "What is promised of it", "The same by hand"):  # fmt: skip
        assert screen in done.output
    assert "Withheld: ward, stay, note" in done.output
    assert CANARY.search(done.output) is None
    kept = Path("talk/decisions.yaml").read_text()
    assert '"researchers"' in kept
    assert "k: 4\n" in kept
    assert "suppress: 0.1\n" in kept


def test_a_conversation_that_ends_goes_on_where_it_was(table: Path) -> None:
    broken = run("start", table, "--out", "talk", typed="researchers\nk-anonymity\n")
    assert broken.exit_code == 2
    assert "Go on with:\n  deniable start people.csv --out talk" in broken.output
    assert not Path("talk/release.csv").exists()
    assert not Path("talk/policy.yaml").exists()
    refused = run("start", table, "--out", "talk", typed="\n\nrest\n\n\n\n\nno\n")
    assert refused.exit_code == 2
    assert "Who will receive it?" not in refused.output
    assert "Decision 1: Who is a person?" in refused.output
    assert not Path("talk/release.csv").exists()
    done = run("start", table, "--out", "talk", typed="\n")
    assert done.exit_code == 0, done.output
    assert "Decision" not in done.output
    assert Path("talk/release.csv").exists()


def test_a_terminal_that_is_killed_loses_no_decision(table: Path) -> None:
    command = [sys.executable, "-c", "from deniable.cli.main import main; main()", "start", str(table), "--out", "tty"]
    ours, theirs = pty.openpty()
    running = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    seen = read_until(ours, "Decision 1:")
    os.write(ours, b"researchers\n")
    read_until(ours, "Decision 2:")
    os.write(ours, b"\n")
    read_until(ours, "Decision 3:")
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    os.close(ours)
    assert "What is in people.csv" in seen
    assert Path("tty/decisions.yaml").read_text().count("\n") == 3
    Path("tty/.decisions.yaml.0123456789ab.part").write_text("what a killed process was writing")
    done = run("start", table, "--out", "tty", "--yes")
    assert done.exit_code == 0, done.output
    assert not list(Path("tty").glob(".*.part"))
    assert '"researchers"' in Path("tty/decisions.yaml").read_text()
    assert "Attacking the table as it stands" not in done.output


def read_until(terminal: int, words: str) -> str:
    """What a terminal shows, until some words are there and it waits for an answer."""
    shown, patience = b"", time.monotonic() + 300
    while words.encode() not in shown or not shown.endswith(b"> "):
        assert time.monotonic() < patience, shown.decode()
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 4096)
    return shown.decode()


SYNTHETIC = """
recipient: public
technique: synthetic
unit: row
roles: {name: identifier, card: identifier, diagnosis: sensitive, region: quasi-identifier, stay: insensitive}
values: {sex: {categories: [F, M]}, age: 0 to 120, region: learn, diagnosis: learn, stay: learn}
epsilon: 6
"""


@pytest.fixture
def large(table: Path) -> Path:
    """A table in which many people share values, so that those rise above the noise."""
    return write_people(table, 6000)


def test_synthetic_rows_have_values_that_were_declared_or_learned_with_noise(large: Path) -> None:
    Path("answers.yaml").write_text(SYNTHETIC)
    done = run("start", large, "--answers", "answers.yaml", "--yes", "--out", "made", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["after"]["failed"] is False
    assert {one["attack"] for one in told["after"]["verdicts"]} == {"membership", "linkability"}
    columns = {column.name: column for column in read("made/policy.yaml").tables[0].columns}
    assert columns["region"].categories == ("north", "south")
    assert columns["diagnosis"].categories == ("A9", "B9", "C9", "D9")
    assert columns["ward"].categories is None
    assert str(columns["stay"].bounds.upper) in ("32", "64")  # type: ignore[union-attr]
    assert read_columns("made/release.csv") == ["age", "sex", "region", "diagnosis", "stay"]
    assert 5000 < told["release"]["released"] < 7000
    assert find_canaries(Path("made")) == []
    spent = [step["command"] for step in told["commands"] if "--epsilon" in step["command"]]
    assert len(spent) == 4
    steps = {one["command"].split()[1]: one for one in reversed(told["commands"])}
    paste([steps[word] for word in ("query", "bounds", "synthesize", "release")], Path("made"))


@pytest.mark.parametrize(("recipient", "name"), [("analysts", "answers.csv"), ("developers", "release.csv")])
def test_answers_and_rows_that_look_real_leave_with_their_guarantee(large: Path, recipient: str, name: str) -> None:
    Path("answers.json").write_text(json.dumps({"recipient": recipient, "values": {"sex": {"categories": ["F", "M"]}}}))
    done = run("start", large, "--answers", "answers.json", "--yes", "--out", "given", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert verify_file(Path("given") / name).unchanged
    assert any("epsilon" in sentence for sentence in told["release"]["words"])
    assert find_canaries(Path("given")) == []
    if recipient == "analysts":
        assert told["after"]["audit"]["failed"] is False
        assert read_columns("given/answers.csv") == ["sex", "n", "n_low", "n_high"]


def test_developers_may_have_masked_rows_that_look_real(large: Path) -> None:
    Path("answers.yaml").write_text("recipient: developers\ntechnique: masked\nrisk: 30%\n")
    done = run("start", large, "--answers", "answers.yaml", "--yes", "--out", "given", "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    told = json.loads(done.stdout)
    assert verify_file(Path("given/release.csv")).unchanged
    assert told["release"]["joint"]["together"] <= 0.3
    told_of_people = re.compile(r"Zebedee\d+|QX\d{5}|secret \d+ of the note")
    assert not [path for path in Path("given").rglob("*.*") if told_of_people.search(path.read_text("latin-1"))]
    assert told["files"]["people.key"].startswith("for the steward alone")
    steps = {one["command"].split()[1]: one for one in told["commands"]}
    paste([steps[word] for word in ("mask", "release")], Path("given"))


def test_a_table_that_was_changed_is_asked_anew_within_the_same_budget(table: Path) -> None:
    Path("answers.yaml").write_text("recipient: analysts\nunit: row\nvalues: {sex: {categories: [F, M]}}\n")
    for rows in (300, 3000):
        write_people(table, rows)
        done = run("start", table, "--answers", "answers.yaml", "--yes", "--out", "asked")
        assert done.exit_code == 0, done.output
        with Path("asked/answers.csv").open(newline="") as file:
            counted = sum(float(line["n"]) for line in csv.DictReader(file))
        assert abs(counted - rows) < 0.4 * rows
    with read_ledger(Path("asked/policy.yaml"), None) as ledger:
        assert len([entry for entry in ledger.entries() if entry.act == "charge"]) == 2


def test_every_command_that_is_printed_works_when_it_is_pasted(table: Path) -> None:
    Path("answers.yaml").write_text("recipient: researchers\n")
    done = run("start", table, "--answers", "answers.yaml", "--yes", "--out", "my release", "--json")
    assert done.exit_code == 0, done.output
    paste(json.loads(done.stdout)["commands"], Path("my release"))
    assert find_canaries(Path("my release")) == []


def paste(commands: list[dict[str, str]], folder: Path) -> None:
    """Run commands in a shell, as they are printed; what they would write anew is removed first."""
    for path in folder.glob("release.*"):
        path.unlink()
    script = "set -e\n" + "\n".join(one["command"] for one in commands) + "\n"
    path = f"{program().parent}:{os.environ['PATH']}"
    ran = subprocess.run(["/bin/sh", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert list(folder.glob("release.*.release.json"))


def test_columns_that_single_out_too_many_together_are_left_out_and_told(table: Path) -> None:
    rows = [f"{i % 2},{'FM'[i % 2]},{i * 37 % 1009},{i % 3}" for i in range(600)]
    table.write_text("region,sex,salary,income\n" + "\n".join(rows) + "\n")
    done = run("start", table, "--yes", "--out", "cut")
    assert done.exit_code == 0, done.output
    assert "Which column shall be left out? salary." in done.output
    assert read_columns("cut/release.csv") == ["region", "sex", "income"]
    decided = Path("cut/decisions.yaml").read_text()
    assert '"salary": "sensitive"' in decided, "what was decided stands"
    why = "All released columns together single out"
    assert f'left_out:\n  "salary": "{why}' in decided
    assert f"salary does not leave. {why}" in done.output
    assert "# left out: with it all released columns together" in Path("cut/policy.yaml").read_text()
    page = Path("cut/report.html").read_text()
    assert f"left out: {why}" in page
    assert "Nothing leaves of salary" in page
    again = run("start", table, "--yes", "--out", "cut")
    assert "The release was made already, by these decisions" in again.output, again.output


DECIDED = """
{recipient: public, technique: k-anonymity, unit: row, k: 10, l: 2, suppress: 5%, risk: 5%,
 roles: {region: quasi-identifier, sex: quasi-identifier, salary: sensitive, income: sensitive}}
"""


def test_whoever_talks_chooses_the_column_that_is_left_out(table: Path) -> None:
    rows = [f"{i % 2},{'FM'[i % 2]},{i * 37 % 1009},{i % 3}" for i in range(600)]
    table.write_text("region,sex,salary,income\n" + "\n".join(rows) + "\n")
    Path("answers.yaml").write_text(DECIDED)
    done = run("start", table, "--answers", "answers.yaml", "--out", "own", typed="yes\nwages\n\n")
    assert done.exit_code == 0, (done.output, done.exception)
    for words in ("Release it now?\nEnter releases; anything else stops here", "Which column shall be left out?",
                  "Recommended: salary. Without it fewest people stand", "'wages' is none of them."):  # fmt: skip
        assert words in done.output
    assert read_columns("own/release.csv") == ["region", "sex", "income"]


def test_a_wide_table_of_which_nobody_knows_a_column_is_told_in_few_lines(table: Path) -> None:
    names = [f"m{i}" for i in range(60)]
    lines = [",".join(str((i * 31 + j * j) % 97 / 10) for j in range(60)) for i in range(120)]
    table.write_text("\n".join([",".join(names), *lines]) + "\n")
    unasked = run("start", table, "--out", "wide", "--yes")
    assert type(unasked.exception) is Infeasible
    assert unasked.output.count("to an intruder? undecided") == 12
    assert "... and so on for every other column" in unasked.output
    assert "What will leave" in unasked.output
    assert "No column.\nWithheld: m0, m1" in unasked.output
    Path("wide/decisions.yaml").unlink()
    done = run("start", table, "--out", "wide", typed="")
    assert "... and 20 more columns" in done.output
    assert "No column was found that others would know" in done.output
    assert "Broken off. What was decided is kept in" in done.output


def test_people_with_several_rows_are_counted_as_people(table: Path) -> None:
    rows = [f"p{i // 2:04},{20 + i // 2 % 3},{'FM'[i // 2 % 2]},{'ABC'[i % 3]}9" for i in range(200)]
    table.write_text("patient_id,age,sex,diagnosis\n" + "\n".join(rows) + "\n")
    Path("answers.yaml").write_text("recipient: researchers\nrisk: 90%\n")
    done = run("start", table, "--yes", "--answers", "answers.yaml", "--out", "people", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["decisions"]["unit"] == "patient_id"
    assert "5-anonymity, counted in people" in told["release"]["models"]
    skipped = {made["attack"]: made["skipped"] for made in told["after"]["attacks"]}
    assert "counted in rows" in skipped["minimality"]


def test_people_with_several_rows_are_counted_though_nothing_is_called_an_id(table: Path) -> None:
    """A class of ten rows that are one person's hides nobody."""
    facts = [(20 + i * 7 % 60, "FM"[i * 5 % 11 % 2], ("north", "south", "west")[i * 3 % 7 % 3]) for i in range(130)]
    rows = [(4000 + i, *facts[i], "ABC"[(i + j) % 3]) for i in range(130) for j in range(1 + i % 5)]
    lines = [f"{who},{age},{sex},{region},{finding}9" for who, age, sex, region, finding in rows]
    table.write_text("kunde,age,sex,region,diagnosis\n" + "\n".join(lines) + "\n")
    Path("answers.yaml").write_text("recipient: researchers\nrisk: 90%\n")
    done = run("start", table, "--yes", "--answers", "answers.yaml", "--out", "people", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["decisions"]["unit"] == "kunde"
    assert "5-anonymity, counted in people" in told["release"]["models"]


@pytest.mark.parametrize(
    ("number", "facts", "unit"),
    [
        (lambda i: f"{i},", "birth,zip,sex", "code"),
        (lambda i: f"S{i:02d},", "sex", "code"),  # as diagnoses are written
        (lambda i: "", "birth,zip,sex", "birth"),
    ],
)
def test_no_person_with_many_rows_is_released_as_they_are(
    table: Path, number: Callable[[int], str], facts: str, unit: str
) -> None:
    """Rows alone would be ten of one person, with the exact birth, place and sex of that person."""
    draw = random.Random(2)
    people = [
        {"birth": f"{1940 + i}-0{1 + i % 9}-{10 + i % 18}", "zip": f"0{2130 + i % 20}", "sex": draw.choice("FM")}
        for i in range(40)
    ]
    lines = [",".join([*(["code"] if number(0) else []), facts, "hr"])]
    for _ in range(1000):
        i = draw.randrange(40)
        cells = ",".join(people[i][name] for name in facts.split(","))
        lines.append(f"{number(i)}{cells},{draw.randint(50, 150)}")
    table.write_text("\n".join(lines) + "\n")
    done = run("start", table, "--yes", "--out", "people", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["decisions"]["unit"] == unit
    assert "10-anonymity, counted in people" in told["release"]["models"]
    assert unit not in read_columns("people/release.csv")
    insisted = run("start", table, "--yes", "--out", "rows", "--unit", "row", "--json")
    assert json.loads(insisted.stdout)["decisions"]["unit"] == "row"


def test_a_view_of_a_database_is_released_like_a_file(table: Path) -> None:
    import duckdb

    with duckdb.connect("clinic.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT * FROM 'people.csv'")
        connection.execute("CREATE VIEW visits AS SELECT age, sex, region, diagnosis FROM people")
        connection.execute("CREATE VIEW elsewhere AS SELECT * FROM 'people.csv'")
        connection.execute("CREATE VIEW failing AS SELECT age, CAST(sex AS INTEGER) AS sex FROM people")
    done = run("start", "duckdb:clinic.duckdb#visits", "--yes")
    assert done.exit_code == 0, done.output
    assert pq.read_table("visits-release/release.parquet").column_names == ["age", "sex", "region", "diagnosis"]
    for view in ("elsewhere", "failing"):
        refused = run("start", f"clinic.duckdb#{view}", "--yes")
        assert isinstance(refused.exception, DataError)
        assert "the view of 'clinic.duckdb' cannot be read" in str(refused.exception)


WIDE = (
    ",".join(f"c{i}" for i in range(200))
    + "\n"
    + "\n".join(",".join(str(i * j % 5) for i in range(200)) for j in range(12))
)


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        ("age,sex\n", DataError, "no rows"),
        ("name,age\nAda,36\n", Infeasible, "there is 1 row to release."),
        ("36,Ada,F\n37,Bob,M\n38,Cid,F", DataError, "Names of columns on the first line"),
        ("Ada,Bern,F\nBob,Oslo,M\nCid,Rome,F", DataError, "Names of columns on the first line. Write them there"),
        ("code\n" + "\n".join(f"k{i}" for i in range(300)), Infeasible, "no column is a quasi-identifier"),
        (WIDE, Infeasible, "no column is a quasi-identifier"),
        ("age\u200b,sex\n36,F\n37,M", DataError, "column 1 is empty or holds invisible characters: 'age\\u200b'"),
        ("age,sex\u2060\n36,F\n37,M", DataError, "column 2 is empty or holds invisible characters: 'sex\\u2060'"),
    ],
)
def test_a_table_that_cannot_be_released_is_refused_in_plain_words(
    table: Path, content: str, kind: type[Exception], said: str
) -> None:
    table.write_text(content + "\n")
    done = run("start", table, "--yes", "--out", "odd")
    assert type(done.exception) is kind
    assert said in str(done.exception)
    assert "Ada" not in str(done.exception) + done.output
    assert not list(Path().glob("odd/release*"))


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"sex\n" + b"F\nM\n" * 50, ()),
        (b"age,sex,diagnosis\n" + b",,\n" * 40 + b"30,F,\n" * 40, ()),
        (b"age,city\n" + "31,Zürich\n32,Genève\n".encode("latin-1") * 40, ("--encoding", "latin-1")),
        (b'"age","a, b","it\'s ""x""",yes\n' + b"30,1,2,3\n40,2,1,3\n" * 40, ()),
    ],
)
def test_odd_tables_are_released(table: Path, content: bytes, options: tuple[str, ...]) -> None:
    table.write_bytes(content)
    done = run("start", table, "--yes", "--out", "odd", *options)
    made = list(Path("odd").glob("release.*.release.json"))
    assert done.exit_code == 0, (done.output, done.exception)
    assert made


def test_a_release_that_an_attack_passes_a_limit_of_is_removed_and_not_tried_until_one_passes(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = start.attack_after

    def attack_well(*words: Any) -> Any:
        found = real(*words)
        return replace(found, after={**found.after, "failed": True})

    monkeypatch.setattr(start, "attack_after", attack_well)
    done = run("start", table, "--yes", "--out", "odd")
    assert done.exit_code == 2
    assert "the release was removed" in done.output
    assert "What is promised of it" not in done.output
    assert "deniable anonymize" not in done.output
    assert not list(Path("odd").glob("release*"))
    monkeypatch.setattr(start, "attack_after", real)
    again = run("start", table, "--yes", "--out", "odd")
    assert type(again.exception) is Infeasible
    assert not list(Path("odd").glob("release*"))
    decisions = Path("odd/decisions.yaml")
    decisions.write_text(re.sub(r"(?m)^k: \d+", "k: 20", decisions.read_text()))
    mended = run("start", table, "--yes", "--out", "odd")
    assert mended.exit_code == 0, (mended.output, mended.exception)


def test_rows_that_are_refused_before_they_leave_are_not_tried_until_they_pass(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = compose._write_limits

    def limit_strictly(_decided: object) -> Iterator[str]:
        yield "  attack: {knows: [ward, stay, diagnosis], most: {uniqueness: 0.001}}"

    monkeypatch.setattr(compose, "_write_limits", limit_strictly)
    Path("answers.yaml").write_text("roles: {stay: insensitive, ward: insensitive}\n")
    refused = run("start", table, "--yes", "--out", "odd", "--answers", "answers.yaml")
    assert type(refused.exception) is Infeasible
    assert "the rows were attacked, and do not leave" in str(refused.exception)
    assert not list(Path("odd").glob("release*"))
    monkeypatch.setattr(compose, "_write_limits", limited)
    again = run("start", table, "--yes", "--out", "odd")
    assert type(again.exception) is Infeasible
    assert "was attacked, passed a limit and was removed" in str(again.exception)


def test_what_was_refused_is_refused_by_hand_too(table: Path) -> None:
    table.write_text("sex,age\n" + ",\n" * 50)
    refused = run("start", table, "--yes", "--out", "odd")
    by_hand = run("anonymize", "-p", "odd/policy.yaml", "--table", "people", "-o", "odd/release.csv")
    assert str(refused.exception) == str(by_hand.exception)
    assert "uniqueness is limited, and could not be measured" in str(by_hand.exception)
    assert not list(Path("odd").glob("*release*"))


def test_a_release_that_was_changed_since_is_refused_when_it_is_looked_at_again(table: Path) -> None:
    assert run("start", table, "--yes", "--out", "odd").exit_code == 0
    (release,) = [path for path in Path("odd").glob("release.*") if path.suffix == ".csv"]
    release.write_text(release.read_text() + release.read_text().splitlines()[1] + "\n")
    assert type(run("start", table, "--yes", "--out", "odd").exception) is IntegrityError


def test_a_file_that_is_not_utf8_is_refused_with_the_option_that_helps(table: Path) -> None:
    table.write_bytes("age,city\n31,Zürich\n".encode("latin-1"))
    done = run("start", table, "--yes")
    assert isinstance(done.exception, DataError)
    assert "encoding" in str(done.exception)


def test_a_file_that_is_gone_is_refused_and_its_decisions_stay(table: Path) -> None:
    run("start", table, "--out", "talk", typed="researchers\n")
    kept = Path("talk/decisions.yaml").read_text()
    table.unlink()
    gone = run("start", table, "--out", "talk", typed="\n")
    assert isinstance(gone.exception, DataError)
    assert Path("talk/decisions.yaml").read_text() == kept


def test_a_wrong_answer_file_and_a_policy_of_others_are_refused(table: Path) -> None:
    Path("answers.yaml").write_text("recipiant: public\n")
    wrong = run("start", table, "--answers", "answers.yaml", "--yes")
    assert isinstance(wrong.exception, ParameterError)
    assert "Did you mean 'recipient'?" in str(wrong.exception)
    Path("mine").mkdir()
    Path("mine/policy.yaml").write_text("version: 1\n")
    assert isinstance(run("start", table, "--out", "answers.yaml", "--yes").exception, StorageError)
    theirs = run("start", table, "--out", "mine", "--yes")
    assert isinstance(theirs.exception, ParameterError)
    assert Path("mine/policy.yaml").read_text() == "version: 1\n"
