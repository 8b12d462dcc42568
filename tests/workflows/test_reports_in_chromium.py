"""A page with every kind of block and plot, and odd numbers in them, in a real Chromium: drawn, whole, and readable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import combinations
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
    Paragraph,
    Plot,
    Section,
    Table,
    Tone,
)
from deniable.reports.page import write
from deniable.reports.places import build_places_page
from deniable.reports.stream import build_network_page, build_stream_page, build_tabulation_page
from deniable.reports.synthesis import compare_associations

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
      const shown = mark.getAttribute("opacity") !== "0";  // names that do not fit beside others are hidden
      if (!inside && shown && box.width + box.height > 0) found.push(`${mark.tagName} ${mark.textContent}`);
    }
  }
  return found;
}"""
FIND_TOUCHING = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const shown = [...svg.querySelectorAll("text")].filter((each) => each.getAttribute("opacity") !== "0");
  const boxes = shown.map((each) => [each.textContent, each.getBoundingClientRect()]).filter(([, box]) => box.width);
  return boxes.flatMap(([one, a], at) => boxes.slice(at + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 3
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
  ).map(([two]) => `${one} | ${two}`));
})"""
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


SECRET = {"cost": {"epsilon": "1"}, "confidence": 0.95, "notes": ["A note."], "hides": "One node with all its edges."}
AREAS = [f"S1 / a county with a long name {n:02}" for n in range(30)]


def build_published_pages() -> dict[str, Page]:
    """The pages of what is published: a stream, a tabulation, networks, a map, flows, and associations compared."""
    days = [date(2026, 1, 1) + timedelta(7 * n) for n in range(50)]
    value = {"question": "calls", "value": 9.5, "low": -3.0, "high": 22.0}
    rows = [{**value, "span": span, "group": {"kind": kind}, "last": str(day)}
            for span in ("period", "total") for day in days for kind in ("water", "road")]  # fmt: skip
    stream = {"stream": "weekly", "closed": 50, "periods": 52, "next_day": "2027-01-01", "epsilon": 1.0,
              "delta": 1e-7, "protects": "Everybody.", "confidence": 0.95, "rows": rows}  # fmt: skip
    parts = {"noise_deviation": 5.2, "sample_deviation": 7.1}
    totals = [{"level": "county", "area": name, "total": 90, "low": 75.7, "high": 109.6, **parts} for name in AREAS]
    totals += [{"level": "block", "area": f"b{n}", "total": 3, "low": 0.0, "high": 12.0, **parts} for n in range(512)]
    errors = [{"level": "block", "least": least, "most": least * 10 or 0, "areas": 9, "total_error": 4.1,
               "total_bias": -0.2, "cell_error": 1.2} for least in (0, 1, 10, 100)]  # fmt: skip
    levels = [{"level": "all", "areas": 1, "total_deviation": 0.0, "cell_deviation": 7.9, "sample_deviation": 54.8,
               "exact": "total"}]  # fmt: skip
    census = {"tabulation": "census", "total": 3000, "areas": 512, "cells": 6, "epsilon": 2.7, "delta": 1e-9,
              "confidence": 0.95, "protects": "Everybody.", "notes": ["A note."], "levels": levels, "errors": errors,
              "totals": totals}  # fmt: skip
    ends = {"edges_low": 2632, "edges_high": 3032, "density": 0.00246936, "density_low": 0.002, "density_high": 0.003}
    mixing = [{"group": one, "with": two, "edges": 2832, **ends} for one, two in (("F", "F"), ("F", "M"), ("M", "M"))]
    box = {"south": 45.0, "west": -100.0, "north": 45.1, "east": -99.9, "count": 12.0}
    places = {"table": "rides", "cost": {"epsilon": "1"}, "protects": "Everybody.", "notes": [], "confidence": 0.95,
              "regions": [[0.0] * 4] * 8, "cells": 2, "totals": [{"count": 24.0}], "rows_of_a_person": 5}  # fmt: skip
    where = {f"{end}_{axis}": 45.123456 for end in ("origin", "destination") for axis in ("latitude", "longitude")}
    flows = [{"origin": one, "destination": two, **where, "count": one * 100 - two, "count_low": 0, "count_high": 900,
              "deviation": 10.093} for one in range(8) for two in range(8)]  # fmt: skip
    names = [f"a_column_of_many_words_{n}" for n in range(12)]
    pairs = [{"first": one, "second": two, "real": 0.9, "synthetic": 0.1} for one, two in combinations(names, 2)]
    return {
        "stream": build_stream_page(stream),
        "census": build_tabulation_page(census),
        "mixing": build_network_page({**SECRET, "statistic": "mixing", "rows": mixing}),
        "edges": build_network_page({**SECRET, "statistic": "edges", "rows": [{"edges": 2832, **ends}]}),
        "map": build_places_page({**places, "kind": "map"}, [box, box | {"west": -99.9, "east": -99.8}], [box]),
        "flows": build_places_page({**places, "kind": "flows"}, [box], flows),
        "associations": Page("Associations", (compare_associations(pairs),)),
    }


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), pytest.param(1280, "light", marks=pytest.mark.slow)])
def test_pages_of_published_numbers_are_whole_and_fit_for_everybody(
    width: int, scheme: str, browser: Any, tmp_path: Path
) -> None:
    page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    told = {}
    for name, built in build_published_pages().items():
        page.goto(write(built, tmp_path / f"{name}.html").as_uri())
        page.wait_for_function(
            "() => [...document.querySelectorAll('figure.vega')].every((each) => each.dataset.drawn)"
        )
        assert page.evaluate(FIND_MARKS_OUTSIDE) == [], name
        assert page.evaluate(FIND_TOUCHING) == [], name
        assert "…" not in "".join(page.locator("svg text").all_text_contents()), name
        page.evaluate(AXE)
        assert page.evaluate(FIND_VIOLATIONS) == [], name
        told[name] = page.inner_text("main")
        assert "_low" not in told[name], "intervals are told in words"
    assert complaints == []
    assert "512 of level block" in told["census"], "a level of many areas is in the file, not on the page"
    assert "b500" not in told["census"]
    assert "2,632 to 3,032" in told["mixing"]
    assert "2,832" in told["edges"].split("What is hidden")[0], "the one number stands at a glance"
    page.context.close()


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


INHERITED = ("__proto__", "constructor", "toString", "hasOwnProperty", "valueOf", "other")


def draw_inherited() -> dict[str, Plot]:
    """Each plot with names and values that every object of JavaScript has already, as fields and as values."""
    odd = [{"constructor": name, "toString": 0.1 * place, "valueOf": 0.05, "hasOwnProperty": 0.7}
           for place, name in enumerate(INHERITED, 1)]  # fmt: skip
    band = {"low": "valueOf", "high": "hasOwnProperty", "alt": "Names"}
    lines = [{"x": n, "y": n * n, "__proto__": name} for name in INHERITED for n in range(4)]
    cells = [{"__proto__": one, "constructor": two, "toString": 0.5} for one in INHERITED for two in INHERITED]
    return {
        "bars": Plot(plots.draw_bars(odd, category="constructor", value="toString", **band)),
        "series": Plot(plots.draw_bars(lines, category="x", value="y", series="__proto__", alt="Names")),
        "lines": Plot(plots.draw_lines(lines, x="x", y="y", series="__proto__", alt="Names")),
        "heatmap": Plot(plots.draw_heatmap(cells, x="__proto__", y="constructor", value="toString", alt="Names")),
        "scatter": Plot(plots.draw_scatter(lines, x="x", y="y", series="__proto__", alt="Names")),
        "histogram": Plot(plots.draw_histogram(lines, bin="x", count="y", series="__proto__", alt="Names")),
    }


def test_names_that_every_object_inherits_are_drawn_like_others(browser: Any, tmp_path: Path) -> None:
    drawn = draw_inherited()
    page = browser.new_context(viewport={"width": 900, "height": 900}).new_page()
    complaints: list[str] = []
    page.on("console", lambda told: complaints.append(told.text) if told.type in ("error", "warning") else None)
    page.goto(write(Page("Names", (Section("All", tuple(drawn.values())),)), tmp_path / "names.html").as_uri())
    page.locator("figure[data-drawn]").nth(len(drawn) - 1).wait_for()
    assert complaints == []
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []
    shown = {
        name: [text.strip() for text in figure.locator("svg text").all_text_contents()]
        for name, figure in zip(drawn, page.locator("figure.vega").all(), strict=True)
    }
    assert [(name, each) for name, texts in shown.items() for each in INHERITED if each not in texts] == []
    count = """each => [...each.querySelectorAll(".mark-rect path, .mark-symbol path")].filter(
        (mark) => mark.closest("[role=graphics-object]") && !mark.closest(".role-legend")).length"""
    widths = """each => [...each.querySelectorAll(".role-mark.mark-rect path")].map((mark) => mark.getBBox().width)"""
    figures = dict(zip(drawn, page.locator("figure.vega").all(), strict=True))
    bars = figures["bars"].evaluate(widths)
    assert len(bars) == len(INHERITED)
    assert bars == sorted(bars), "each bar is as long as its own number"
    assert figures["heatmap"].evaluate(count) == len(INHERITED) ** 2
    assert figures["scatter"].evaluate(count) == 4 * len(INHERITED)
    page.context.close()


@pytest.mark.parametrize(("width", "media"), [(360, "screen"), (700, "print")])
def test_long_names_make_no_report_wider_than_the_view(width: int, media: str, browser: Any, tmp_path: Path) -> None:
    long = "a" * 120
    rows = [{long: long, "n": 3}, {long: "b" * 120, "n": 4}]
    blocks = (
        Paragraph(long), Callout(long, Tone.WARNING, long), KeyFigures((KeyFigure(long, long, long),)),
        Table.of(rows, long, search=long), Commands((long,), long),
        Plot(plots.draw_bars(rows, category=long, value="n", alt=long), long),
    )  # fmt: skip
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.emulate_media(media=media)
    page.goto(write(Page(long, (Section(long, blocks), Section(long, ())), long), tmp_path / "long.html").as_uri())
    page.locator("figure[data-drawn]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if media == "print":
        assert page.evaluate(FIND_WIDE_TABLES) == []
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []
    page.context.close()


FIND_WIDE_TABLES = """() => [...document.querySelectorAll("main table")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.innerText)"""
