"""The steward's laboratories in a real Chromium: lattice, attack, models, surveys; progress, stopping, axe, frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

FIND_MARKS_OUTSIDE = """() => {
  const found = document.documentElement.scrollWidth > innerWidth + 1 ? ["the page is wider than the screen"] : [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const mark of svg.querySelectorAll("text, rect, path, line, circle")) {
      const box = mark.getBoundingClientRect();
      const inside = box.left >= frame.left - 2 && box.right <= frame.right + 2
        && box.top >= frame.top - 2 && box.bottom <= frame.bottom + 2;
      if (!inside && box.width + box.height > 0) found.push(`${mark.tagName} ${mark.textContent}`);
      if (mark.tagName === "text" && mark.textContent.includes("…")) found.push(`cut: ${mark.textContent}`);
    }
  }
  return found;
}"""
LABS = ("lattice",)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Callable[..., Any]) -> Iterator[Any]:
    """One server for all tests here."""
    with serving_clinic(tmp_path_factory.mktemp("labs")) as served:
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
        with httpx.Client(base_url=up.steward, cookies={"deniable_steward": up.tokens[who]}) as other:
            for path in ("/labs", *(f"/labs/{name}" for name in LABS)):
                assert other.get(path).status_code == 403, path
                assert "<form" not in other.get(path).text.partition("<main")[2], path
    assert httpx.get(up.http + "/labs", cookies={"deniable_analyst": up.tokens["ana"]}).status_code == 404
    with httpx.Client(base_url=up.steward, cookies={"deniable_steward": up.tokens["steward"]}) as steward:
        for name in LABS:
            shown = steward.post(f"/labs/{name}", data={"table": "people"}, headers={"origin": "https://evil.example"})
            assert shown.status_code == 403, name
            assert steward.post(f"/labs/{name}", data={"table": "towns"}).status_code == 200, "refused on the page"
        assert steward.get("/labs/runs/nothing").status_code == 404


def test_a_lattice_is_read_and_clicked_without_scripts(visit):
    page = visit("steward", "/labs/lattice", scripts=False)
    page.get_by_role("button", name="Check every combination").click()
    page.wait_for_selector(".lattice")
    page.locator(".node.failing").first.click()
    assert "fails" in page.inner_text(".node-detail")
    page.get_by_text("The numbers as a table").first.click()
    assert page.locator(".report table").first.is_visible()
