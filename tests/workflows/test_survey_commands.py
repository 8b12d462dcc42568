"""`deniable survey` from the command line: check, invite, results, and what a newcomer gets wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import pytest

from deniable.curator.survey import open_service, page_of
from deniable.localdp import client
from deniable.localdp.serialization import FORMAT
from deniable.localdp.survey.service import digest_invitation
from deniable.localdp.survey.store import CHECK, FIRST_PLACES, HEAD, KEY

EVERY_TYPE = """\
survey: every
title: Every type
questions:
  yes: {ask: A?, type: yes-no, epsilon: 1}
  one: {ask: B?, type: choice, options: [a, b, c], epsilon: 1}
  many: {ask: B?, type: choice, options: [o1, o2, o3, o4, o5, o6, o7, o8, o9, o10, o11, o12], epsilon: 1}
  several: {ask: C?, type: several, options: [a, b], epsilon: 1}
  mean: {ask: D?, type: number, between: [0, 12], epsilon: 1}
  spread: {ask: D?, type: number, between: [0, 12], wanted: distribution, epsilon: 1}
  listed: {ask: E?, type: word, words: [aspirin, ibuprofen], epsilon: 1}
  found: {ask: E?, type: word, longest: 4, letters: ab, epsilon: 1}
"""
ANSWERS = {"yes": "yes", "one": "a", "many": "o3", "several": ["a"], "mean": 7, "spread": 7, "listed": "aspirin",
           "found": "ab"}  # fmt: skip
SURVEY = """\
survey: ward
title: Ward survey
questions:
  smoker: {ask: Do you smoke?, type: yes-no, method: two-coins}
  hours: {ask: Hours slept?, type: number, between: [0, 12], unit: hours, wanted: distribution, epsilon: 2}
  drug: {ask: Which drug?, type: word, words: [aspirin, ibuprofen], epsilon: 2}
"""


def answer(path: Path, people: list[dict[str, object]]) -> Path:
    """Let people answer a survey."""
    service = open_service(path)
    survey, batch = client.Survey(service.survey.describe()), []
    for answers in people:
        told = survey.responses(answers, client.Memory(allowance=100))
        ticket = os.urandom(32).hex()
        body = {"format": FORMAT, "survey": service.survey.identity, "ticket": ticket, "responses": told}
        batch.append(service.check(json.dumps(body).encode()))
    assert all(service.store.add(batch))
    service.store.close()
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A survey that 1,500 people have answered."""
    path = tmp_path_factory.mktemp("survey") / "ward.yaml"
    path.write_text(SURVEY)
    smoker = ["yes", "no", "no", "no", "no"]
    return answer(path, [{"smoker": smoker[p % 5], "hours": 5 + p % 4, "drug": "aspirin"} for p in range(1500)])


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run `deniable survey ...` in this process, through the same entry point as the command line."""
    from deniable.cli.main import main

    def command(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["deniable", "survey", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Done(int(ended.value.code or 0), told.out, told.err)

    return command


def test_the_command_is_installed_and_explains_itself():
    command = [sys.executable, "-c", "from deniable.cli.main import main; main()", "survey", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("check", "serve", "invite", "results"))


def test_check_tells_costs_and_words(file, run):
    done = run("check", str(file), "--respondents", "400", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [row["question"] for row in told["questions"]] == ["smoker", "hours", "drug"]
    assert all(row["achieved"] <= row["epsilon"] for row in told["questions"])
    assert "two" not in told["questions"][0]["protocol"]
    assert "tells the truth in 2 of 4 cases" in run("check", str(file)).stdout.replace("\n", " ")


def test_check_says_when_no_device_would_answer_everything(run, tmp_path):
    file = tmp_path / "long.yaml"
    file.write_text(SURVEY.replace("epsilon: 2", "epsilon: 6"))
    done = run("check", str(file))
    assert "nobody can answer all of these questions" in done.stdout.replace("\n", " ")
    file.write_text(SURVEY)
    assert "nobody" not in run("check", str(file)).stdout


def test_joint_tables_and_earlier_rounds_are_told(file, run):
    done = run("results", str(file), "--before", str(file.with_suffix(".responses")), "--of", "hours", "--json")
    (contrast,) = json.loads(done.stdout)["contrasts"]
    assert contrast["between"] == ["now", "before"]
    assert contrast["difference"] == 0
    assert run("results", str(file), "--joint", "smoker,hours").returncode == 2


def test_results_are_estimated_printed_and_drawn(file, run, tmp_path):
    page = tmp_path / "results.html"
    done = run("results", str(file), "-o", str(page), "--confidence", "0.9999999", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["responses"] == 1500
    found = {one["question"]: one for one in told["findings"]}
    yes = next(share for share in found["smoker"]["shares"] if share["answer"] == "yes")
    assert yes["low"] <= 0.2 <= yes["high"]
    assert found["hours"]["mean"]["interval"][0] <= 6.5 <= found["hours"]["mean"]["interval"][1]
    aspirin = next(share for share in found["drug"]["shares"] if share["answer"] == "aspirin")
    assert aspirin["low"] <= 1 <= aspirin["high"]
    assert told["amplified"]["epsilon"] <= told["local_epsilon"]
    text = page.read_text()
    assert "Ward survey" in text
    assert "Do you smoke?" in text


def test_groups_are_compared(file, run):
    done = run("results", str(file), "--by", "smoker", "--of", "hours", "--json")
    assert done.returncode == 0, done.stderr
    (contrast,) = json.loads(done.stdout)["contrasts"]
    assert contrast["between"] == ["no", "yes"]
    assert contrast["low"] < contrast["high"]


def test_invitations_are_links_that_pin_the_survey_and_each_have_an_invitation(run, tmp_path):
    file = tmp_path / "ward.yaml"
    file.write_text(SURVEY + "respondents: invited\n")
    done = run("invite", str(file), "--count", "5", "--address", "https://survey.example", "--json")
    links = json.loads(done.stdout)
    service = open_service(file)
    start = f"https://survey.example/#{page_of(service).pin}."
    assert all(link.startswith(start) for link in links)
    assert len({link.removeprefix(start) for link in links}) == 5
    key = bytes.fromhex(service.store.facts["invitations"])
    assert all(digest_invitation(key, service.survey.identity, link.removeprefix(start)) for link in links)


def test_a_survey_for_anyone_has_no_invitations(file, run):
    done = run("invite", str(file), "--count", "5")
    assert done.returncode == 2
    assert "anyone may answer" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "absent.yaml"), "cannot be read"),
        (("results", "{file}", "--store", "absent"), "no store"),
        (("results", "{file}", "--by", "smoker"), "Both --by and --of"),
        (("results", "{file}", "--by", "smokes", "--of", "hours"), "Did you mean 'smoker'"),
        (("results", "{file}", "--by", "hours", "--of", "smoker"), "does not form groups"),
        (("results", "{file}", "--confidence", "2"), "confidence"),
    ],
)
def test_what_a_newcomer_gets_wrong_is_told_with_exit_code_2(file, run, arguments, words):
    done = run(*(str(file) if part == "{file}" else part for part in arguments))
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")


def test_results_are_recorded_once_in_the_ledger_of_a_policy_beside_what_budgets_bound(file, run, tmp_path):
    from deniable.curator.governance import steward

    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\ndataset: staff\ntables: {}\nbudgets: {dataset: {epsilon: 1}}\n")
    (tmp_path / "towns.csv").write_text("town\nCambridge\n")
    policy.write_text(policy.read_text().replace("{}", "{towns: {source: towns.csv, public: true}}", 1))
    for _ in range(2):
        done = run("results", str(file), "--policy", str(policy), "--json")
        assert done.returncode == 0, done.stderr
    told = steward.register(policy, None)
    assert [each["guarantee"] for each in told["releases"]] == ["local differential privacy"]
    assert told["releases"][0]["epsilon"] == pytest.approx(json.loads(done.stdout)["local_epsilon"], rel=1e-5)
    assert told["standing"]["local"] == 1
    assert told["standing"]["charged"] == 0


def refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is no number of JSON")


@pytest.mark.parametrize(("people", "unanswered"), [(0, "seen"), (1, "seen"), (1, "randomized"), (3, "randomized")])
def test_every_number_that_results_tell_is_finite_however_few_answered(run, tmp_path, people, unanswered):
    file, page = tmp_path / "every.yaml", tmp_path / "page.html"
    text = EVERY_TYPE.replace(", wanted: distribution", "") if unanswered == "randomized" else EVERY_TYPE
    file.write_text(text + f"unanswered: {unanswered}\n" if unanswered == "randomized" else text)
    answer(file, [ANSWERS] * people)
    store = str(file.with_suffix(".responses"))
    orders = [[], ["--joint", "yes,one,many"], *(["--of", name, "--before", store] for name in ANSWERS)]
    orders += [["--by", "yes", "--of", name] for name in ANSWERS]
    told = 0
    for order in orders:
        done = run("results", str(file), *order, *([] if order else ["-o", str(page)]), "--json")
        assert done.returncode in (0, 2), done.stderr
        json.loads(done.stdout, parse_constant=refuse_constant)
        told += done.returncode == 0
    assert told >= (1 if people == 0 else 8)
    assert not {"nan", "inf"} & set(re.findall(r"[a-z]+", run("results", str(file)).stdout.lower()))


@pytest.mark.parametrize("totals", ["0,0", "inf,1", "nan,1", "1e308,1e308", "-1,2"])
def test_totals_that_are_no_sizes_of_groups_are_refused(file, run, totals):
    done = run("results", str(file), "--by", "smoker", "--of", "smoker", "--totals", totals)
    assert done.returncode == 2
    done = run("results", str(file), "--by", "smoker", "--of", "hours", "--totals", totals)
    assert done.returncode == 2


def test_a_record_that_was_changed_on_the_disk_is_told_and_the_rest_is_counted(run, tmp_path):
    file, page = tmp_path / "ward.yaml", tmp_path / "page.html"
    file.write_text(SURVEY)
    answer(file, [{"smoker": "yes", "hours": 6, "drug": "aspirin"}] * 4)
    store = file.with_suffix(".responses")
    whole = (store / "responses").read_bytes()
    size = len(whole) // (FIRST_PLACES + 2)  # the first place and the last hold no record
    first, second = [at for at in range(size, len(whole) - size, size) if any(whole[at : at + size])][:2]
    changed = bytearray(whole)
    changed[first + HEAD] ^= 1
    forged = bytearray(whole[second + CHECK : second + size])  # with a checksum of its own, but such as nobody sends
    forged[KEY : HEAD - CHECK + 7] = (7).to_bytes(4, "big") + b'{"q":1}'
    changed[second : second + size] = blake2b(forged, digest_size=CHECK).digest() + forged
    (store / "responses").write_bytes(changed)
    done = run("results", str(file), "-o", str(page), "--json")
    told = json.loads(done.stdout)
    assert (told["responses"], told["damaged"]) == (2, 2)
    words = "2 stored records are damaged and not counted"
    assert words in told["damage"]
    assert words in page.read_text()
    assert words in run("results", str(file)).stdout.replace("\n", " ")
    assert (
        json.loads(run("results", str(file), "--of", "hours", "--before", str(store), "--json").stdout)["damaged"] == 4
    )


def test_answers_of_which_several_may_be_given_are_compared_between_groups(run, tmp_path):
    file = tmp_path / "every.yaml"
    file.write_text(EVERY_TYPE)
    answer(file, [ANSWERS | {"yes": said, "several": ["a" if said == "yes" else "b"]} for said in ("yes", "no") * 200])
    done = run("results", str(file), "--by", "yes", "--of", "several", "--confidence", "0.99999", "--json")
    first, second = json.loads(done.stdout)["contrasts"]
    assert (first["answer"], second["answer"]) == ("a", "b")
    assert first["low"] <= -1 <= first["high"]
    assert second["low"] <= 1 <= second["high"]
