"""The whole survey in a real Chromium, on a phone-sized screen: what leaves is randomized, and only that leaves."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable.curator.survey import open_service
from deniable.curator.survey import read_results as survey_results
from deniable.localdp import client, serialization
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.numeric.mechanisms import Duchi, Window
from deniable.localdp.numeric.scale import Scale

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
uvicorn = pytest.importorskip("uvicorn", reason="the server extra is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed (Debian: apt-get install chromium)", allow_module_level=True)

SURVEY = """\
survey: clinic
title: Staff survey
about: Asked by the clinic, to plan support.
questions:
  harassed: {ask: Were you harassed at work?, type: yes-no, method: two-coins}
  ward: {ask: Where do you work?, type: choice, options: [Emergency, Maternity, Laboratory], epsilon: 2}
  uses: {ask: Which did you use?, type: several, options: [Sleeping pills, Alcohol], epsilon: 2}
  hours: {ask: How long did you sleep?, type: number, between: [0, 12], step: 0.5, unit: hours, epsilon: 2}
  drug: {ask: Which drug?, type: word, words: [aspirin], epsilon: 2}
"""
# A generator any language can repeat stands in for the platform's entropy, so that both clients can be compared.
SEEDED = """(seed) => {
  let state = BigInt(seed);
  crypto.getRandomValues = (bytes) => {
    for (let i = 0; i < bytes.length; i += 1) {
      state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
      bytes[i] = Number(state >> 56n);
    }
    return bytes;
  };
}"""


def seeded_draw(seed: int) -> client.Draw:
    """The same bytes as SEEDED gives."""
    state = seed

    def take(count: int) -> bytes:
        nonlocal state
        out = bytearray()
        for _ in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
            out.append(state >> 56)
        return bytes(out)

    return lambda bound: client.system_draw(bound, take)


@pytest.fixture(scope="module")
def survey_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("survey") / "clinic.yaml"
    file.write_text(SURVEY)
    return file


@pytest.fixture(scope="module")
def address(survey_file: Path) -> Iterator[str]:
    yield from serve(survey_file)


@pytest.fixture(scope="module")
def hiding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the same survey, in which questions that are left out are randomized too."""
    file = tmp_path_factory.mktemp("hiding") / "clinic.yaml"
    file.write_text(SURVEY.replace(", method: two-coins", ", epsilon: 1").replace("words: [aspirin], ", "")
                    + "unanswered: randomized\n")  # fmt: skip
    yield from serve(file)


def serve(survey_file: Path) -> Iterator[str]:
    """A survey's address while it is served."""
    from deniable.server.survey import build_app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = uvicorn.Config(build_app(open_service(survey_file)), port=port, log_level="error", access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield opened
        opened.close()


@pytest.fixture
def phone(browser: Any) -> Iterator[Any]:
    """A page on a small phone that notes every request and every complaint."""
    context = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    page = context.new_page()
    page.requests, page.complaints = [], []
    page.on("request", lambda request: page.requests.append((request.method, request.url, request.post_data or "")))
    page.on("console", lambda told: page.complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda failure: page.complaints.append(str(failure)))
    yield page
    context.close()


def visit(page: Any, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready=yes]")


def answer_all(page: Any, harassed: str = "no") -> None:
    page.check(f"input[name=harassed][value={harassed}]")
    page.check("input[name=ward][value=Maternity]")
    page.check("input[name=uses][value=Alcohol]")
    page.locator("input[type=range]").fill("6.5")
    page.locator("input[type=text]").fill("Aspirin")
    page.click("#questions button")
    page.wait_for_selector("#review:not([hidden])")


def sent_body(page: Any) -> dict[str, Any]:
    page.click("#send")
    page.wait_for_selector("#thanks:not([hidden])")
    return json.loads(next(body for method, url, body in page.requests if url.endswith("/responses")))


def test_a_respondent_answers_and_only_randomized_responses_travel(phone, address, survey_file):
    before = open_service(survey_file).store.count()
    visit(phone, address)
    answer_all(phone)
    shown = json.loads(phone.inner_text("#message") or phone.text_content("#message"))
    body = sent_body(phone)
    assert body["responses"] == shown["responses"]  # what was shown is what was sent
    assert open_service(survey_file).store.count() == before + 1
    assert set(body) == {"format", "survey", "ticket", "responses"}
    everything = " ".join(f"{url} {data}" for _, url, data in phone.requests).lower()
    for truth in ("maternity", "alcohol", "6.5", "aspirin", "harassed=", '"no"', '"yes"'):
        assert truth not in everything
    assert all(url.startswith((address, "data:")) for _, url, _ in phone.requests)
    assert phone.complaints == []


def test_the_browser_sends_exactly_what_the_python_client_would_with_the_same_entropy(phone, address):
    phone.add_init_script(f"({SEEDED})('77')")
    visit(phone, address)
    answer_all(phone)
    sent = sent_body(phone)["responses"]
    survey, draw = client.Survey.fetch(address), seeded_draw(77)
    answers = {"harassed": "no", "ward": "Maternity", "uses": ["Alcohol"], "hours": 6.5, "drug": "Aspirin"}
    assert sent == survey.responses(answers, client.Memory(), draw)


def test_a_question_left_out_is_sent_like_an_answer_where_that_is_hidden(phone, hiding):
    phone.add_init_script(f"({SEEDED})('78')")
    visit(phone, hiding)
    phone.check("input[name=ward][value=Maternity]")
    phone.click("#questions button")
    phone.wait_for_selector("#review:not([hidden])")
    assert phone.text_content("#skipped") == ""
    assert phone.text_content("#pairs").count("no answer") >= 4
    sent = sent_body(phone)["responses"]
    survey, draw = client.Survey.fetch(hiding), seeded_draw(78)
    assert sent == survey.responses({"ward": "Maternity"}, client.Memory(), draw)
    assert set(sent) == {"harassed", "ward", "uses", "hours", "drug"}
    assert phone.complaints == []


def test_when_the_lots_say_yes_both_truths_send_the_same_message(browser, address):
    # The responses to both answers are drawn, no first; draws below 4 decide: 2 is the instruction "yes" for either.
    seed = next(s for s in range(5000) if [(draw := seeded_draw(s))(4), draw(4)] == [2, 2])
    bodies = []
    for truth in ("yes", "no"):
        context = browser.new_context()
        page = context.new_page()
        page.requests = []
        page.on("request", lambda r, page=page: page.requests.append((r.method, r.url, r.post_data or "")))
        page.add_init_script(f"({SEEDED})('{seed}')")
        visit(page, address)
        answer_all(page, harassed=truth)
        bodies.append(sent_body(page)["responses"])
        context.close()
    assert bodies[0] == bodies[1]
    assert bodies[0]["harassed"] == [[1]]


def answer_ward(page: Any, ward: str = "Maternity") -> dict[str, Any]:
    page.requests.clear()
    page.check(f"input[name=ward][value={ward}]")
    page.click("#questions button")
    page.wait_for_selector("#review:not([hidden])")
    return sent_body(page)["responses"]


def test_answering_again_on_the_same_device_sends_the_same_responses_and_stores_no_answer(phone, address):
    visit(phone, address)
    first = answer_ward(phone)
    assert "4 skipped" in phone.text_content("#skipped")
    kept = phone.evaluate("JSON.stringify(localStorage)")
    visit(phone, address)
    assert answer_ward(phone) == first
    assert "Maternity" not in kept
    (question,) = json.loads(json.loads(kept)["deniable"])["questions"].values()
    (drawn,) = question["drawn"].values()
    assert set(drawn) == {"told", "responses"}
    assert len(drawn["responses"]) == 3  # the responses to all answers, none of them marked


def test_a_correction_before_sending_costs_nothing_and_cannot_be_used_to_draw_again(phone, address):
    visit(phone, address)
    answer_all(phone, harassed="no")
    first = phone.text_content("#message")
    phone.click("#back")
    for _ in range(3):
        phone.check("input[name=harassed][value=yes]")
        phone.click("#questions button")
        phone.wait_for_selector("#review:not([hidden])")
        phone.click("#back")
    phone.check("input[name=harassed][value=no]")
    phone.click("#questions button")
    phone.wait_for_selector("#review:not([hidden])")
    assert phone.text_content("#message") == first
    assert phone.evaluate("Object.keys(localStorage).length") == 0  # nothing was told yet
    sent_body(phone)
    assert phone.evaluate("Object.keys(localStorage).length") == 1


def test_a_device_that_has_told_enough_says_so_and_sends_nothing(phone, address):
    visit(phone, address)
    answer_all(phone, harassed="no")
    sent_body(phone)
    phone.requests.clear()
    visit(phone, address)
    phone.check("input[name=harassed][value=yes]")  # 9.1 of 10 were told: this month's allowance is spent
    phone.click("#questions button")
    assert "this device has told 9.10 of 10 in this month" in phone.text_content("#hint")
    assert not any(method == "POST" for method, _, _ in phone.requests)


def test_the_page_fits_a_small_phone_and_has_large_targets(phone, address):
    visit(phone, address)
    width = "document.documentElement.scrollWidth"
    assert phone.evaluate(width) <= 360
    heights = phone.eval_on_selector_all(".options label, button", "all => all.map(e => e.offsetHeight).filter(h => h)")
    assert min(heights) >= 44
    answer_all(phone)
    assert phone.evaluate(width) <= 360


def test_the_shared_vectors_pass_in_the_browser(phone, address):
    visit(phone, address)
    passed = phone.evaluate(
        """async () => {
          const client = await import("/sdk/client.mjs");
          const document = await (await fetch("/sdk/vectors.json")).json();
          let passed = 0;
          for (const { recipe, answer, entropy, response } of document.vectors) {
            const bytes = entropy.match(/../g).map((pair) => parseInt(pair, 16));
            let at = 0;
            const take = (count) => bytes.slice(at, (at += count));
            const found = client.randomize(recipe, answer, client.drawFrom(take));
            if (JSON.stringify(found) === JSON.stringify(response) && at === bytes.length) passed += 1;
          }
          return [passed, document.vectors.length];
        }"""
    )
    assert passed[0] == passed[1] > 50


SCALE = Scale.between(0, 6)
DISTRIBUTIONS = {
    "coins": (two_coins(), 1),
    "k-ary": (Direct.calibrate(5, 1), 3),
    "unary": (Unary.calibrate(3, 1), 1),
    "hadamard": (Hadamard.calibrate(6, 1), 4),
    "subset": (Subset.calibrate(6, 1), 2),
    "duchi": (Duchi.calibrate(SCALE, 1), 2),
    "window": (Window.piecewise(SCALE, 1, places=8), 5),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_browsers_distribution_matches_the_proven_probabilities(name, phone, address):
    protocol, answer = DISTRIBUTIONS[name]
    visit(phone, address)
    draws = 20_000
    seen = phone.evaluate(
        """async ([recipe, answer, draws]) => {
          const { randomize } = await import("/sdk/client.mjs");
          const seen = {};
          for (let i = 0; i < draws; i += 1) {
            const key = JSON.stringify(randomize(recipe, answer));
            seen[key] = (seen[key] ?? 0) + 1;
          }
          return seen;
        }""",
        [serialization.recipe(protocol), answer, draws],
    )
    right = _statistic(seen, protocol, answer, draws)
    cells = len(list(protocol.likelihoods(answer)))
    limit = cells + 5 * (2 * cells) ** 0.5 + 10  # five standard deviations of chi-square above its mean
    assert right < limit
    wrong = _statistic(seen, protocol, (answer + 1) % 2 if name == "coins" else (answer + 1) % 3, draws)
    assert wrong > limit  # the same draws do not pass for another answer


def _statistic(seen: dict[str, int], protocol: Any, answer: int, draws: int) -> float:
    expected = {_key(outcome, protocol): float(p) * draws for outcome, p in protocol.likelihoods(answer)}
    assert set(seen) <= set(expected)
    return sum((seen.get(key, 0) - mean) ** 2 / mean for key, mean in expected.items())


def _key(outcome: tuple[Any, ...], protocol: Any) -> str:
    if protocol.name == "unary":
        return json.dumps([f"{sum(bit << place for place, bit in enumerate(outcome[0])):02x}"])
    return json.dumps([list(part) if isinstance(part, tuple) else part for part in outcome], separators=(",", ":"))


def test_the_results_of_browser_responses_can_be_read(phone, address, survey_file):
    visit(phone, address)
    answer_all(phone)
    sent_body(phone)
    told = survey_results(survey_file)
    assert told.results.responses >= 1
    assert {found.question for found in told.results.findings} == {"harassed", "ward", "uses", "hours", "drug"}


def lying(page: Any, change: Any) -> None:
    """Let the server send another survey than it should."""

    def answer(route: Any) -> None:
        description = json.loads(route.fetch().body())
        change(description)
        route.fulfill(body=json.dumps(description), content_type="application/json")

    page.route("**/survey.json", answer)


def test_a_survey_whose_recipe_tells_more_than_it_says_is_refused(phone, address):
    def change(description: dict[str, Any]) -> None:
        description["questions"][1]["parts"][0]["odds"] = [10**9, 1]

    lying(phone, change)
    visit(phone, address)
    assert "but a recipe tells 20.7" in phone.text_content("#refusal")
    assert phone.is_disabled("#questions button")
    assert phone.locator("#questions input:enabled").count() == 0


def test_another_survey_than_the_link_was_made_for_is_refused(phone, address, survey_file):
    from deniable.curator.survey import page_of

    link = f"{address}/#{page_of(open_service(survey_file)).pin}"
    visit(phone, link)
    assert phone.text_content("#refusal") == ""
    phone.goto("about:blank")
    lying(phone, lambda description: description.update(title="Another"))
    visit(phone, link)
    assert "another survey than the one your link was made for" in phone.text_content("#refusal")
    assert not any(method == "POST" for method, _, _ in phone.requests)


def test_a_page_whose_files_were_changed_does_not_run(phone, address):
    def answer(route: Any) -> None:
        route.fulfill(body=route.fetch().text() + "\n// one comment more", content_type="text/javascript")

    phone.route("**/sdk/client.mjs", answer)
    phone.goto(address)
    phone.wait_for_load_state("networkidle")
    assert phone.get_attribute("html", "data-ready") is None
    assert any("integrity" in told for told in phone.complaints)


def test_an_invited_respondent_answers_once_and_the_invitation_leaves_the_address_bar(phone, tmp_path):
    from deniable.curator.survey import invite
    from deniable.server.survey import build_app

    file = tmp_path / "invited.yaml"
    file.write_text(SURVEY + "respondents: invited\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(build_app(open_service(file)), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        (link,) = invite(file, 1, f"http://127.0.0.1:{port}")
        visit(phone, link)
        assert link.rsplit(".", 1)[1] not in phone.evaluate("location.href")
        answer_ward(phone)
        assert open_service(file).store.count() == 1
        assert json.loads(phone.evaluate("localStorage.deniable"))["tickets"] == {}
        phone.goto("about:blank")
        visit(phone, link)  # the ticket is gone: the invitation was used
        assert "ask for another invitation" in phone.text_content("#refusal")
    finally:
        server.should_exit = True
        thread.join()
