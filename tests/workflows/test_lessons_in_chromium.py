"""Every lesson in a real Chromium, from a disk: its toy is used, nothing is fetched, and anybody can read it."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deniable.reports.lessons import LESSONS, write_lessons
from deniable.server.classroom import ClassServer, start_server

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed (Debian: apt-get install chromium)", allow_module_level=True)

AXE = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text(encoding="utf-8")
FIND_VIOLATIONS = """async () => (await axe.run(document)).violations
  .map((found) => `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.target).join(", ")}`)"""
FIND_MARKS_OUTSIDE = """() => {
  const found = document.documentElement.scrollWidth > innerWidth + 1 ? ["the page is wider than the screen"] : [];
  for (const each of document.querySelectorAll(".command pre")) {
    if (each.scrollWidth > each.clientWidth + 1) found.push(`cut: ${each.textContent}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const mark of svg.querySelectorAll("text, rect, circle, path, line")) {
      const box = mark.getBoundingClientRect();
      const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1
        && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
      if (!inside && box.width + box.height > 0) found.push(`${mark.tagName} ${mark.textContent}`);
    }
  }
  return found;
}"""
PHONE = {"viewport": {"width": 390, "height": 800}, "color_scheme": "dark"}
DESKTOP = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def lessons(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lessons")
    write_lessons(folder)
    return folder


def open_page(browser: Any, address: str, **options: Any) -> Any:
    """A page that notes every complaint, also of the content security policy, and every address that it asks for."""
    page = browser.new_context(**options).new_page()
    page.complaints, page.addresses = [], []
    page.on("console", lambda told: page.complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda failure: page.complaints.append(str(failure)))
    page.on("request", lambda request: page.addresses.append(request.url))
    page.goto(address)
    return page


def check_page(page: Any) -> None:
    """No complaint, no mark outside its frame, nothing that axe finds."""
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []
    page.evaluate(AXE)
    assert page.evaluate(FIND_VIOLATIONS) == []
    assert page.complaints == []


def press(*names: str) -> Callable[[Any], None]:
    return lambda page: [page.click(f"#{name}") for name in names] and None


def solve_block(page: Any) -> None:
    for place, age in enumerate((8, 36, 40, 38, 50)):
        page.locator("#ages input").nth(place).fill(str(age))
    page.locator("#printed").fill("5")
    page.click("#solve")


def coarsen(page: Any) -> None:
    page.select_option("#age", "10")
    page.select_option("#code", "2")


def ask_for_all_and_all_but_one(page: Any) -> None:
    for name in ("Ann", "Bo", "Cy"):
        page.check(f"input[value={name}]")
    page.click("#ask")
    page.uncheck("input[value=Bo]")
    page.click("#ask")


USES: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "coins": (press("answer-yes", "ask", "ask-many"), "#class", r"200 classes: the estimates are .*%"),
    "laplace": (press("ask", "ask-many"), "#told", r"101 asked"),
    "game": (press("with", "broken", "best"), "#told", r"The promise is refuted"),
    "averaging": (press("ask-many", "reveal"), "#secret", r"The secret was \d+"),
    "governor": (press("birth", "sex", "zip"), "#told", r"treated for heart failure"),
    "ratings": (press("one", "all"), "#told", r"finds \d+ of 500 viewers"),
    "homogeneity": (coarsen, "#told", r"k = 3, l = 1, 4 classes. For 3 of 12 people"),
    "releases": (press("subtract"), "#told", r"Together they give away Doug: 43\.00"),
    "newspapers": (press("print", "many"), "#told", r"100.0% of 2,000 readers"),
    "block": (solve_block, "#solved", r"women of 8, 36, 40 and men of 38, 50"),
    "auditing": (ask_for_all_and_all_but_one, "#told", r"Refused: .* betray Bo"),
    "synthetic": (press("make"), "#told", r"\d+ rows of nobody were drawn"),
    "trust": (press("ask"), "#told", r"The truth is 200"),
}


def test_every_lesson_is_used_here() -> None:
    assert tuple(USES) == LESSONS


@pytest.mark.parametrize("name", LESSONS)
def test_the_toy_of_a_lesson_works_on_a_phone_in_the_dark(name: str, browser: Any, lessons: Path) -> None:
    act, place, expected = USES[name]
    page = open_page(browser, (lessons / f"{name}.html").as_uri(), **PHONE)
    act(page)
    assert re.search(expected, page.inner_text(place))
    check_page(page)
    assert all(address.startswith("file:") for address in page.addresses)
    page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["index", "teacher", *LESSONS])
def test_every_page_is_fit_for_everybody(name: str, width: int, scheme: str, browser: Any, lessons: Path) -> None:
    size = {"width": width, "height": 900}
    page = open_page(browser, (lessons / f"{name}.html").as_uri(), viewport=size, color_scheme=scheme)
    if name in USES:
        USES[name][0](page)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    check_page(page)
    page.context.close()


def test_the_first_page_leads_to_every_lesson_and_both_pages_for_reading_are_clean(browser: Any, lessons: Path) -> None:
    page = open_page(browser, (lessons / "index.html").as_uri(), **DESKTOP)
    links = page.eval_on_selector_all("main a", "all => all.map((link) => link.getAttribute('href'))")
    assert set(links) == {f"{name}.html" for name in (*LESSONS, "teacher")}
    check_page(page)
    page.goto((lessons / "teacher.html").as_uri())
    check_page(page)
    page.context.close()


def test_a_toy_is_worked_with_keys_alone(browser: Any, lessons: Path) -> None:
    page = open_page(browser, (lessons / "laplace.html").as_uri(), **DESKTOP)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the text"
    page.focus("#epsilon")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#epsilon", "aria-valuetext") == "0.63"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "1 asked" in page.inner_text("#told")
    page.context.close()


@pytest.fixture
def server() -> Iterator[ClassServer]:
    with start_server("127.0.0.1", 0) as opened:
        thread = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


EVIL = "<img src=x onerror=alert(1)>Did you?"


def test_a_class_answers_with_phones_and_only_randomized_bits_travel(browser: Any, server: ClassServer) -> None:
    teacher = open_page(browser, f"{server.place}/class.html#{server.classroom.key}", **DESKTOP)
    teacher.fill("#question", EVIL)
    teacher.click("#open")
    teacher.locator("#told", has_text="Round 1, open").wait_for()
    phones = [open_page(browser, f"{server.place}/", **PHONE) for _ in range(2)]
    for phone in phones:
        posted: list[str] = []
        phone.on("request", lambda request, posted=posted: posted.append(request.post_data or ""))
        phone.wait_for_selector("#yes:visible")
        assert phone.inner_text("#question") == EVIL  # as text: no element came of it
        phone.click("#yes")
        phone.locator("#told", has_text="Your phone sent").wait_for()
        said = "YES" in phone.inner_text("#told").split("sent:")[1]
        assert next(body for body in posted if "answer" in body).endswith(f'"answer":{int(said)}}}')
        kept = phone.evaluate("localStorage.getItem('deniable-class')")
        assert "truth" not in kept
        check_page(phone)
    teacher.locator("#told", has_text="2 answers").wait_for()
    check_page(teacher)
    teacher.click("#open")  # the same question once more
    phones[0].wait_for_selector("#no:visible")
    first = phones[0].evaluate("Object.values(JSON.parse(localStorage.getItem('deniable-class')).told)[0]")
    phones[0].click("#no")
    phones[0].locator("#told", has_text="the same again").wait_for()
    assert ("YES" in phones[0].inner_text("#told")) == first
    assert phones[0].inner_text("#spent") == "You have told epsilon 1.10 in this class so far."
    for page in (teacher, *phones):
        assert page.complaints == []
        assert all(address.startswith(server.place) for address in page.addresses)
        page.context.close()


def test_commands_of_a_lesson_are_copied_by_a_button(browser, lessons):
    from deniable.reports.lessons import read_commands

    page = open_page(browser, (lessons / "laplace.html").as_uri(), **PHONE)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name=re.compile("^(Copied|Selected)")).wait_for()
    copied = page.evaluate("navigator.clipboard?.readText() ?? String(window.getSelection())")
    assert copied.strip() == read_commands("laplace").strip()
    check_page(page)
