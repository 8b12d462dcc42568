"""The steward's laboratories in a real Chromium: lattice, attack, models, surveys; progress, stopping, axe, frames."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "layouts"

FIND_MARKS_OUTSIDE = """() => {
  const found = document.documentElement.scrollWidth > innerWidth + 1 ? ["the page is wider than the screen"] : [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const mark of svg.querySelectorAll("text, rect, path, line, circle")) {
      const box = mark.getBoundingClientRect();
      const inside = box.left >= frame.left - 2 && box.right <= frame.right + 2
        && box.top >= frame.top - 2 && box.bottom <= frame.bottom + 2;
      if (!inside && box.width + box.height > 0) found.push(`${mark.tagName} ${mark.textContent}`);
      const numbers = svg.closest("figure")?.querySelector("details")?.textContent ?? "";
      if (mark.textContent.endsWith("…") && !numbers.includes(mark.textContent)) found.push(`cut: ${mark.textContent}`);
    }
  }
  return found;
}"""
POLICY = """\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns:
      id: {role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
      seen: {role: insensitive, type: date, between: [2025-01-01, 2025-12-31]}
      note: {role: sensitive}
  towns: {source: towns.csv, public: true}
budgets:
  dataset: {epsilon: 100, delta: 1e-3, accounting: zcdp}
  purposes:
    research: {epsilon: 60, delta: 1e-4}
    care: {epsilon: 10, delta: 1e-4}
  analysts:
    ana: {purposes: [research], epsilon: 20, delta: 1e-4}
    ben: {purposes: [care], epsilon: 10, delta: 1e-4}
expires: 2099-12-31
"""
LABS = ("lattice", "tradeoff", "attack", "synthetic", "model")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Callable[..., Any]) -> Iterator[Any]:
    """One server for all tests here."""
    with serving_clinic(tmp_path_factory.mktemp("labs"), POLICY) as served:
        yield served


def wait_for_plots(page: Any) -> None:
    """Wait until every plot of the page is drawn."""
    page.wait_for_function("() => [...document.querySelectorAll('figure.vega')].every((each) => each.dataset.drawn)")


def check_look(page: Any, find_violations: Callable[[Any], list[str]]) -> None:
    """Axe finds nothing, and no mark lies outside its frame or is cut."""
    wait_for_plots(page)
    assert find_violations(page) == []
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []


def test_a_node_of_the_lattice_is_clicked_and_shows_why_it_fails(visit, find_violations):
    page = visit("steward", "/labs/lattice")
    page.fill("#k", "3")
    page.get_by_role("button", name="Check every combination").click()
    page.wait_for_selector(".lattice")
    assert page.locator(".node.chosen").count() == 1
    assert page.locator(".node[aria-current]").get_attribute("class").startswith("node chosen")
    check_look(page, find_violations)
    page.locator(".node[aria-label^='Levels 0, 0:']").click()
    page.wait_for_url("**levels=0-0**")
    assert "emptied" in page.locator(".node[aria-current]").get_attribute("class"), "most rows are alone there"
    assert "most rows would be left out" in page.locator(".node[aria-current]").get_attribute("aria-label")
    assert page.locator(".node.emptied.acceptable, .node.emptied.chosen").count() == 0
    told = page.inner_text(".node-detail")
    assert "fails" in told
    assert re.search(r"3-anonymity.*: \d+ classes break it, with \d+ rows", told)
    assert page.locator("table.compare del").count() == 0, "level 0 changes nothing"
    page.locator(".node.acceptable, .node.chosen").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "levels=0-0#" not in url)
    assert page.locator("table.compare ins").count() > 0
    assert page.evaluate("document.activeElement.id !== 'main'")


def test_laboratories_are_the_stewards_and_forms_of_other_sites_are_refused(up):
    for who in ("auditor",):
        with httpx.Client(base_url=up.steward, cookies=up.session(who)) as other:
            for path in ("/labs", *(f"/labs/{name}" for name in LABS)):
                assert other.get(path).status_code == 403, path
                assert "<form" not in other.get(path).text.partition("<main")[2], path
    assert httpx.get(up.http + "/labs", cookies=up.session("ana")).status_code == 404
    with httpx.Client(base_url=up.steward, cookies=up.session("steward")) as steward:
        for name in LABS:
            shown = steward.post(f"/labs/{name}", data={"table": "people"}, headers={"origin": "https://evil.example"})
            assert shown.status_code == 403, name
            assert steward.post(f"/labs/{name}", data={"table": "towns"}).status_code == 200, "refused on the page"
        assert steward.get("/labs/runs/nothing").status_code == 404


@pytest.mark.slow
def test_a_lattice_is_read_and_clicked_without_scripts(visit):
    page = visit("steward", "/labs/lattice", scripts=False)
    page.get_by_role("button", name="Check every combination").click()
    page.wait_for_selector(".lattice")
    page.locator(".node.failing").first.click()
    assert "fails" in page.inner_text(".node-detail")
    page.get_by_text("The numbers as a table").first.click()
    assert page.locator(".report table").first.is_visible()


def test_an_attack_is_watched_and_a_thousand_people_are_drawn(visit, find_violations):
    page = visit("steward", "/labs/attack", width=390, scheme="dark")
    page.fill("#targets", "50")
    page.get_by_role("button", name="Attack", exact=True).click()
    page.wait_for_selector(".report")
    check_look(page, find_violations)
    assert "exposed of 1,000" in page.inner_text(".figures")
    assert page.locator(".plot [class*=crowd_] path").count() == 1000
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    check_look(page, find_violations)
    assert page.locator(".plot svg").first.bounding_box()["width"] < 700, "people stand close together"
    assert page.locator("figure:has([class*=crowd_]) .role-axis").count() == 0, "people have no axis"
    assert "deniable attack" in page.text_content("pre[aria-label=Command]")


@pytest.mark.slow
def test_an_attack_is_stopped_and_says_so(visit):
    page = visit("steward", "/labs/attack")
    page.fill("#targets", "5000")
    page.check("[name=everything]")
    page.get_by_role("button", name="Attack", exact=True).click()
    page.get_by_role("button", name="Stop").click()
    page.wait_for_selector("[role=alert]")
    assert "stopped on the page" in page.inner_text("[role=alert]")
    assert page.input_value("#targets") == "5000", "what was asked stands on the form again"


def test_a_survey_goes_from_its_form_to_results_of_two_phones(visit, chromium, find_violations):
    page = visit("steward", "/labs/survey")
    page.fill("#survey", "staff")
    page.fill("#title", "<b>Staff</b>")
    page.fill("#ask-1", "Were you harassed?")
    page.fill("#ask-2", "Where do you work?")
    page.select_option("#type-2", "choice")
    page.fill("#answers-2", "Emergency")
    page.get_by_role("button", name="See it as respondents will").click()
    assert "options" in page.inner_text("[role=alert]"), "one answer is no choice"
    page.fill("#answers-2", "Emergency, Maternity")
    page.get_by_role("button", name="See it as respondents will").click()
    assert "Your device sends your answer with 73% probability" in page.inner_text("main")
    page.get_by_role("button", name="Open it for answers").click()
    link = page.get_attribute("#link", "href")
    assert page.locator("figure.code svg path").count() == 2, "a QR code for phones: a light ground, and dark squares"
    for answer in ("Yes", "No"):
        context = chromium.new_context(viewport={"width": 390, "height": 800})
        phone = context.new_page()
        phone.goto(link)
        phone.get_by_label(answer, exact=True).check()
        phone.get_by_label("Maternity").check()
        phone.get_by_role("button", name="Scramble my answers").click()
        phone.get_by_role("button", name="Send the scrambled answers").click()
        phone.wait_for_selector("#thanks:not([hidden])")
        context.close()
    page.wait_for_selector("#responses:has-text('2 people have answered')")
    check_look(page, find_violations)
    assert re.search(r"\d\d:\d\d\s+2", page.inner_text("#minutes"))
    page.get_by_role("button", name="Close the survey").click()
    page.get_by_role("button", name="Open it for answers").wait_for()
    with pytest.raises(httpx.TransportError):
        httpx.get(link.partition("#")[0])
    assert "2 people have answered" in page.inner_text("#responses"), "what was answered is kept"


WRITTEN = """\
survey: written  # by hand
title: Written by hand
questions:
  weight: {ask: What do you weigh?, type: number, between: [20, 250.5], step: 0.5, epsilon: 1}
  drugs: {ask: Which drugs?, type: several, options: [none, some], epsilon: 1}
  fruit: {ask: Which fruit?, type: word, epsilon: 2}
"""


def test_a_survey_that_was_written_by_hand_is_shown_as_respondents_see_it(visit, up):
    (up.folder / "written.survey.yaml").write_text(WRITTEN)
    text = visit("steward", "/labs/survey/written").inner_text("main")
    assert {"What do you weigh?", "a number from 20 to 250.5", "none some", "a word"} <= set(text.splitlines())


FINDINGS = """\
-- there_are_two_sexes: Both sexes are among the people.
SELECT COUNT(DISTINCT sex) = 2 FROM people
-- people_have_an_age: The mean age is above 0.
SELECT AVG(age) FROM people
"""


def keep_screenshot(page: Any, name: str) -> None:
    """With DENIABLE_SHOTS a screenshot is kept there."""
    if os.environ.get("DENIABLE_SHOTS"):
        page.screenshot(path=str(Path(os.environ["DENIABLE_SHOTS"]) / f"{name}.png"), full_page=True)


@pytest.mark.slow
@pytest.mark.parametrize(("lab", "button"), [("synthetic", "Charge and make it"), ("model", "Charge and train it")])
def test_a_model_is_made_for_a_stated_charge_and_shown_beside_the_real_rows(visit, up, find_violations, lab, button):
    page = visit("steward", f"/labs/{lab}")
    assert "This charges the budget of the dataset" in page.inner_text("form.stack >> nth=-1")
    if lab == "model":
        page.select_option("#target", "age")
    page.fill("#epsilon", "2000")
    page.get_by_role("button", name=button).click()
    page.wait_for_selector("[role=alert]")
    assert "Nothing was charged" in page.inner_text("[role=alert]")
    left = up.curator.context.ledger.balance()[0].remaining
    page.fill("#epsilon", "5")
    page.get_by_role("button", name=button).click()
    page.wait_for_selector(".report")
    check_look(page, find_violations)
    assert "Do not pass this on" in page.inner_text(".report")
    assert up.curator.context.ledger.balance()[0].remaining != left
    assert list(up.curator.ledger.entries(acts=("charge",)))[-1].details["by"] == "steward", "the name of the token"
    (up.folder / "findings.sql").write_text(FINDINGS)
    page.goto(f"{up.steward}/labs/{lab}")
    left = up.curator.context.ledger.balance()[0].remaining
    if lab == "model":
        page.select_option("#target", "age")
    page.fill("#epsilon", "5.0")
    page.get_by_role("button", name=button).click()
    assert "An equal model was made, and charged" in page.inner_text("[role=alert]")
    assert not page.is_checked("[name=again]")
    assert up.curator.context.ledger.balance()[0].remaining == left, "asked again before a second charge"
    page.goto(f"{up.steward}/labs/{lab}")
    if lab == "synthetic":
        page.fill("#regress", "age ~ sex")
        page.select_option("#findings", "findings.sql")
        page.check("[name=scores]")
    page.get_by_role("button", name=re.compile("^Look at it")).click()
    page.wait_for_selector(".report", timeout=120_000)
    check_look(page, find_violations)
    assert up.curator.context.ledger.balance()[0].remaining == left, "looking is free"
    if lab == "synthetic":
        text = page.inner_text(".report")
        assert "2 of 2 findings are kept" in text
        assert {"Associations", "A regression on both", "Standard scores"} <= set(
            page.locator(".report h2").all_inner_texts()
        )
        assert "--findings" in page.locator("pre").last.text_content()
    keep_screenshot(page, f"look-{lab}")


@pytest.mark.slow
def test_risk_and_utility_are_drawn_for_each_model_and_technique(visit, find_violations):
    page = visit("steward", "/labs/tradeoff")
    page.get_by_role("button", name="Try them all").click()
    page.wait_for_selector(".report", timeout=120_000)
    check_look(page, find_violations)
    for width in (768, 390):  # names of techniques are long
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        check_look(page, find_violations)
    headings = page.locator(".report h2").all_inner_texts()
    assert headings[0].startswith("k:")
    assert headings[-1] == "Techniques"
    page.get_by_text("The numbers as a table").last.click()
    assert "as it is" in page.inner_text(".report section:last-child table")


FIND_CUT_TABLES = """() => [...document.querySelectorAll(".wide, .scroll")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => getComputedStyle(each).backgroundAttachment)"""


def test_tables_of_a_report_use_the_width_there_is_and_show_where_they_go_on(chromium, tmp_path, find_violations):
    from deniable.reports.demo import build_register_page
    from deniable.reports.page import write

    row = {"technique": "differentially private query", "tables": ["visits"], "unit": "all rows of one patient_id",
           "guarantee": "epsilon 0.5, delta 1e-6 for each patient", "epsilon": 0.5, "asker": "ana"}  # fmt: skip
    releases = [row | {"date": f"2026-01-0{n}", "release": "0123456789abcdef" * 4} for n in (1, 2, 3)]
    standing = {"charged": 3, "without_guarantee": 0, "spent": None}
    told = {"dataset": "clinic", "head": "0", "standing": standing, "releases": releases}
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto(write(build_register_page(told), tmp_path / "register.html").as_uri())
    assert page.evaluate(FIND_CUT_TABLES) == [], "there is room for all of it"
    for width in (1280, 768, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.reload()
        check_look(page, find_violations)
    assert page.evaluate(FIND_CUT_TABLES) == ["local, local, scroll, scroll, scroll"], "a shadow at its edge"
    page.close()


DESCRIBE_LAYOUT = """() => {
  const wide = document.documentElement.clientWidth;
  const shown = [...document.querySelectorAll("h1, h2, h3, table, figure, form, input, select, .card, .figures")]
    .filter((each) => each.type !== "hidden" && each.checkVisibility());
  return shown.map((each) => {
    const box = each.getBoundingClientRect(), heading = /^H[123]$/.test(each.tagName);
    return [each.tagName.toLowerCase(), heading ? each.innerText : each.id, box.left / wide, box.width / wide];
  });
}"""
LAYOUTS = {"labs": "/labs", "lattice-form": "/labs/lattice", "attack-form": "/labs/attack",
           "survey-form": "/labs/survey", "overview": "/", "budgets": "/budgets", "tokens": "/tokens"}  # fmt: skip
TOLERANCE = 0.03
"""Of the width: fonts of other machines move words inside blocks by less, and no block."""


def compare_layout(page: Any, name: str) -> None:
    """The blocks of a page are those that are kept, in their order, and stand where they stood.

    With DENIABLE_SHOTS a screenshot is kept there; with DENIABLE_LAYOUTS=write what is seen is kept from now on.
    """
    keep_screenshot(page, name)
    seen = [[tag, words, round(left, 3), round(width, 3)] for tag, words, left, width in page.evaluate(DESCRIBE_LAYOUT)]
    if os.environ.get("DENIABLE_LAYOUTS") == "write":
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.json").write_text("[\n" + ",\n".join(map(json.dumps, seen)) + "\n]\n")
    kept = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [each[:2] for each in seen] == [each[:2] for each in kept], name
    blocks = [(one, two) for one, two in zip(seen, kept, strict=True) if one[0] not in ("h1", "h2", "h3")]
    moved = [(one, two) for one, two in blocks if abs(one[2] - two[2]) > TOLERANCE or abs(one[3] - two[3]) > TOLERANCE]
    assert moved == [], name


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_look_as_they_did(chromium, serve, width):
    with serve() as served:
        context = chromium.new_context(viewport={"width": width, "height": 900})
        [(cookie, token)] = served.session("steward").items()
        context.add_cookies([{"name": cookie, "value": token, "url": served.steward}])
        page = context.new_page()
        for name, path in LAYOUTS.items():
            page.goto(served.steward + path)
            compare_layout(page, f"{name}-{width}")
        page.goto(served.steward + "/labs/lattice")
        page.get_by_role("button", name="Check every combination").click()
        page.wait_for_selector(".lattice")
        wait_for_plots(page)
        compare_layout(page, f"lattice-{width}")
        context.close()
