"""A page with every kind of block and plot, and odd numbers in them, in a real Chromium: drawn, whole, and readable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from deniable.reports import plots
from deniable.reports.blocks import (
    Callout,
    Commands,
    KeyFigure,
    KeyFigures,
    Page,
    Plot,
    Section,
    Table,
    Tone,
)
from deniable.reports.page import write

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if CHROMIUM is None:
    pytest.skip("no Chromium is installed (Debian: apt-get install chromium)", allow_module_level=True)

AXE = (Path(__file__).parents[1] / "data" / "axe" / "axe.min.js").read_text(encoding="utf-8")
FIND_VIOLATIONS = """async () => (await axe.run(document)).violations
  .map((found) => `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.target).join(", ")}`)"""
FIND_MARKS_OUTSIDE = """() => {
  const found = document.documentElement.scrollWidth > innerWidth + 1 ? ["the page is wider than the screen"] : [];
  for (const svg of document.querySelectorAll("svg")) {
    const frame = svg.getBoundingClientRect();
    for (const mark of svg.querySelectorAll("text, rect, path, line")) {
      const box = mark.getBoundingClientRect();
      const inside = box.left >= frame.left - 2 && box.right <= frame.right + 2
        && box.top >= frame.top - 2 && box.bottom <= frame.bottom + 2;
      if (!inside && box.width + box.height > 0) found.push(`${mark.tagName} ${mark.textContent}`);
    }
  }
  return found;
}"""
LONG = "women_are_more_frequent_in_the_staff_than_in_the_faculty"
LINKAGE = "linkage with a register, errors allowed"
RATES: list[dict[str, object]] = [
    {"attack": LINKAGE, "who": "people in the data", "share": 0.4, "low": 0.3, "high": 0.5},
    {"attack": LINKAGE, "who": "people who were held out of the data", "share": 0.1, "low": None, "high": 0.2},
    {"attack": "membership", "who": "people in the data", "share": 0.02, "low": 0.01, "high": None},
    {"attack": "membership", "who": "people who were held out of the data", "share": 0.0, "low": 0.0, "high": 0.04},
]


def draw_everything() -> tuple[Plot, ...]:
    band = {"low": "low", "high": "high", "alt": "Rates"}
    counts = [{"known": n, "people": 17_000 * n} for n in (1, 2, 3)]
    days = [{"day": date(2026, 1, 1) + timedelta(30 * n), "epsilon": 0.5 * n} for n in range(5)]
    cells = [{"finding": name, "epsilon": e, "kept": 0.5} for name in (LONG, "other") for e in ("1", "4")]
    return (
        Plot(plots.draw_bars(RATES, category="attack", value="share", series="who", form=plots.PERCENT, **band)),
        Plot(plots.draw_lines(counts, x="known", y="people", alt="Counts")),
        Plot(plots.draw_lines(days, x="day", y="epsilon", alt="Over time")),
        Plot(plots.draw_lines(RATES[:1], x="share", y="high", alt="Asked", log_x=True, asked=0.3, form=plots.PERCENT)),
        Plot(plots.draw_heatmap(cells, x="epsilon", y="finding", value="kept", alt="Cells", form=".0%")),
        Plot(plots.draw_scatter(counts, x="known", y="people", alt="Points", diagonal=True)),
        Plot(plots.draw_histogram(counts, bin="known", count="people", alt="A histogram")),
        Plot(plots.draw_people(13, label="are singled out", alt="13 of 1,000")),
    )


def build_page() -> Page:
    table = Table(("", "as stated"), (("file", "x.parquet"), ("rows", 5)))
    wide = Table(tuple(f"column {n}" for n in range(14)), (tuple(range(10**6, 10**6 + 14)),), search="Search")
    words = tuple(Callout("Words.", tone) for tone in Tone)
    figures = KeyFigures((KeyFigure("87%", "of residents", "a remark"), KeyFigure("1,000,000", "rows")))
    zero = Plot(plots.draw_bars([{"a": "x", "n": 0}], category="a", value="n", alt="Nothing"), "Nobody")
    more = (Commands(("deniable demo",), "Type:"), table, table, wide, zero)
    return Page(
        "Everything", (Section("Words", (figures, *words, *more)), Section("Plots", draw_everything())), "A lead."
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield opened
        opened.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_block_and_plot_is_whole_and_fit_for_everybody(
    width: int, scheme: str, browser: Any, tmp_path: Path
) -> None:
    target = write(build_page(), tmp_path / "everything.html")
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.on("pageerror", lambda failure: complaints.append(str(failure)))
    page.goto(target.as_uri())
    drawn = len(draw_everything())
    page.locator("figure[data-drawn]").nth(drawn - 1).wait_for()
    assert complaints == []
    assert page.locator("figure[data-drawn=yes] svg").count() == drawn
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []
    page.evaluate(AXE)
    assert page.evaluate(FIND_VIOLATIONS) == []
    labels = page.locator("figure.vega").nth(1).locator(".role-axis-label text").all_text_contents()
    assert {"1", "2", "3"} <= set(labels)  # counts, not 1.0, 1.5
    assert not any("." in label for label in labels)
    assert "…" not in "".join(page.locator("svg text").all_text_contents())
    page.context.close()
