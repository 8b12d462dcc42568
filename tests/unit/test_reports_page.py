"""The page: self-contained, escaped, accessible, and drawn by a real browser where one is installed."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import stat
import subprocess
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from deniable.errors import ParameterError, StorageError
from deniable.kanonymity.recoding import name_level
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
from deniable.reports.demo import build_register_page
from deniable.reports.page import MOST_TWIN_ROWS, render, write
from deniable.reports.tradeoffs import build_lattice_page, build_training_page, draw_sizes, plot_lattice

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)> & \"quoted\" 'text'"
ROWS = [{"kind": "attack", "rate": 0.8}, {"kind": "control", "rate": 0.1}]


def one_plot(rows: list[dict[str, object]] | None = None) -> Plot:
    return Plot(
        plots.draw_bars(ROWS if rows is None else rows, category="kind", value="rate", alt="Attack beats control")
    )


def page_of(*blocks: object, **rest: str) -> Page:
    return Page("A report", (Section("Findings", blocks),), **rest)  # type: ignore[arg-type]


class Reader(HTMLParser):
    """Collects what a browser would act on: elements with attributes, and the text of each script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_no_element_points_outside_the_page() -> None:
    reader = Reader(render(page_of(one_plot(), Paragraph("Text"))))
    for _tag, attributes in reader.elements:
        for name in ("src", "href", "srcset", "data", "action", "poster"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not {"link", "iframe", "object", "embed", "base", "img"} & {tag for tag, _ in reader.elements}
    assert "@import" not in render(page_of())
    assert "url(" not in render(page_of())


def test_the_security_policy_allows_exactly_the_scripts_of_the_page() -> None:
    html = render(page_of(one_plot()))
    policy = next(m["content"] for m in Reader(html).having("meta") if m.get("http-equiv"))
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r'<script(?: type="module")?>(.*?)</script>', html, flags=re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy


def test_a_page_without_plots_carries_no_script() -> None:
    html = render(page_of(Paragraph("Words only")))
    assert Reader(html).having("script") == []
    assert len(html) < 20_000


def test_everything_a_caller_passes_is_escaped() -> None:
    rows = [{EVIL: EVIL, "rate": 1}]
    blocks = (
        Paragraph(EVIL),
        KeyFigures((KeyFigure(EVIL, EVIL, EVIL),)),
        Callout(EVIL, Tone.DANGER, EVIL),
        Commands((EVIL,), EVIL),
        Table((EVIL,), ((EVIL,),), EVIL),
        Plot(plots.draw_bars(rows, category=EVIL, value="rate", alt=EVIL, title=EVIL), EVIL),
    )
    html = render(Page(EVIL, (Section(EVIL, blocks), Section(EVIL, ())), EVIL, EVIL, EVIL))
    reader = Reader(html)
    assert reader.having("img") == []
    assert [s.get("type") for s in reader.having("script")] == ["application/json", None, "module"]
    assert all("onerror" not in attributes for _, attributes in reader.elements)
    assert "alert(1)</script>" not in html


def test_every_plot_has_alt_text_and_a_table_twin() -> None:
    html = render(page_of(one_plot()))
    drawing = next(d for d in Reader(html).having("div") if d.get("role") == "img")
    assert drawing["aria-label"] == "Attack beats control"
    twin = html[html.index("<details") : html.index("</details>")]
    assert "<td>attack</td>" in twin
    assert '<td class="number">0.8</td>' in twin


def test_a_plot_without_alt_text_is_refused() -> None:
    with pytest.raises(ParameterError, match="alt text"):
        Plot({"data": {"values": []}, "mark": "bar"})


def test_a_long_twin_is_cut_and_says_so() -> None:
    rows: list[dict[str, object]] = [{"kind": str(n), "rate": n} for n in range(MOST_TWIN_ROWS + 7)]
    html = render(page_of(one_plot(rows)))
    assert "7 more rows are not shown" in html
    assert html.count("<tr>") == MOST_TWIN_ROWS + 1


def test_empty_data_is_said_in_words() -> None:
    html = render(page_of(one_plot([]), Table(("a",), ())))
    assert "Nothing to draw: there are no rows." in html
    assert '<p class="empty">No rows.</p>' in html
    assert render(Page("Nothing", ())).startswith("<!doctype html>")


def test_a_ragged_table_is_refused_with_its_row() -> None:
    with pytest.raises(ParameterError, match="Row 2 of a table has 1 cells"):
        Table(("a", "b"), ((1, 2), (3,)))


def test_numbers_are_set_for_reading() -> None:
    html = render(page_of(Table(("count", "share", "known"), ((1234567, 0.125, True), (1, None, None)))))
    assert '<td class="number">1,234,567</td>' in html
    assert '<td class="number">0.125</td>' in html
    assert "<td>yes</td>" in html


def test_writing_leaves_the_whole_page_or_the_old_one(tmp_path: Path) -> None:
    target = write(page_of(Paragraph("Zürich")), tmp_path / "deep" / "report.html")
    assert "Zürich" in target.read_text(encoding="utf-8")
    assert [entry.name for entry in target.parent.iterdir()] == ["report.html"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600, "as a release: its owner's alone"
    target.chmod(0o644)
    assert stat.S_IMODE(write(page_of(Paragraph("again")), target).stat().st_mode) == 0o600


def test_a_place_that_cannot_be_written_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not be written"):
        write(page_of(), tmp_path / "file" / "report.html")


def test_licenses_stand_beside_the_vendored_scripts() -> None:
    import deniable.reports.page as page_module

    static = Path(page_module.__file__).parent / "static"
    for script in ("vega.min.js", "vega-lite.min.js", "vega-interpreter.js"):
        assert (static / script).stat().st_size > 5_000
        named = script.removesuffix(".js").removesuffix(".min")
        assert "Redistribution and use" in (static / f"LICENSE-{named}.txt").read_text()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_every_plot_under_the_security_policy(tmp_path: Path) -> None:
    drawn = (
        one_plot(),
        Plot(plots.draw_lines(ROWS, x="kind", y="rate", alt="A line")),
        Plot(plots.draw_heatmap(ROWS, x="kind", y="kind", value="rate", alt="A heat map")),
        Plot(plots.draw_people(3, label="singled out", alt="3 of 1,000")),
    )
    target = write(page_of(*drawn), tmp_path / "report.html")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
    command = [str(CHROMIUM), *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000"]
    run = subprocess.run([*command, "--dump-dom", target.as_uri()], capture_output=True, text=True, timeout=120)
    assert run.stdout.count('data-drawn="yes"') == len(drawn)
    assert run.stdout.count("<svg") == len(drawn)


def test_a_table_with_a_search_box_carries_its_script_by_hash_and_a_page_without_one_carries_none() -> None:
    table = Table(("zip", "rows"), (("60901", 7),), search=EVIL)
    html = render(page_of(table))
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", html)
    assert "<script" not in render(page_of(Table(("zip", "rows"), (("60901", 7),))))


def test_a_plot_of_zeros_is_told_in_words_with_its_table() -> None:
    html = render(page_of(one_plot([{"kind": "linkage", "rate": 0}])))
    assert "Every value is 0, so there is nothing to draw." in html
    assert "<td>linkage</td>" in html
    assert '<div class="plot"' not in html


def test_tables_of_one_name_are_told_apart_and_no_header_is_empty() -> None:
    table = Table(("", "value"), (("a", 1),), "Facts")
    html = render(page_of(table, table))
    labels = [each["aria-label"] for each in Reader(html).having("div") if each.get("role") == "region"]
    assert labels == ["Facts", "Facts, table 2"]
    assert '<th scope="col"></th>' not in html


RELEASE: dict[str, Any] = {
    "rows": 20, "released": 18, "suppressed": 2, "classes": 3, "models": ["5-anonymity"], "words": ["Promised."],
    "loss": 0.25, "levels": {"born": 2, "zip": 1, "age": 1, "sex": 0, "town": 2}, "measured": {"k": 5}, "lattice": [],
    "risk": {when: {"prosecutor": {"at_risk": share}} for when, share in (("before", 0.9), ("after", 0.0))},
}  # fmt: skip
RECODING = {
    "columns": [
        {"name": "born", "levels": 5, "hierarchy": {"dates": {"levels": ["month", "decade", "century"]}}},
        {"name": "zip", "levels": 6, "hierarchy": {"redact": {"from": "right", "width": 5}}},
        {"name": "age", "levels": 4, "hierarchy": {"intervals": {"widths": [10, 20]}}},
        {"name": "sex", "levels": 2, "hierarchy": {"withhold": {}}},
        {"name": "town", "levels": 3, "hierarchy": {"tree": {}}},
    ],
    "classes": {"tuples": [["1960s", "6950*", "[30, 40)", "F", "*"]] * 3, "sizes": [5, 6, 7]},
}


def test_nodes_that_leave_out_most_rows_are_marked_and_groups_of_an_order_are_no_steps() -> None:
    point = {"cost": 0.2, "base": 0.2, "risk": 0.1, "levels": {"age": 1}, "chosen": False, "acceptable": False}
    points = [point | {"suppressed": out} for out in (0, 10, 11, 20)]
    points.append(point | {"suppressed": 11, "acceptable": True})
    kinds = [row["node"] for row in plot_lattice(points, 20)["data"]["values"]]
    assert kinds == ["acceptable", *["fails a model"] * 2, *["fails, and most rows would be left out"] * 2]


@pytest.mark.parametrize(
    ("level", "hierarchy", "words"),
    [
        (1, {"order": {"sizes": [2]}}, "in groups of 2"),
        (2, {"intervals": {"widths": (Fraction(5), Fraction(10))}}, "in steps of 10"),
        (1, {"intervals": {"quantiles": (4,)}}, "in 4 groups of as many rows"),
        (1, {"rounding": {"to": (Decimal("0.5"),)}}, "rounded down to multiples of 0.5"),
        (1, {"standard": {"levels": ("part_of_day",)}}, "by part of day"),
        (1, {"standard": {"levels": ("5", "10")}}, "in steps of 5"),
        (2, {"prefix": {"lengths": [4, 2]}}, "the first 2 characters"),
        (0, {"withhold": {}}, "as it is"),
        (3, {"dates": {"levels": ["year"]}}, "not at all"),
        (2, {"tree": {"rows": ()}}, "level 2 of 3"),
    ],
)
def test_a_level_is_told_by_the_name_or_number_that_its_hierarchy_gives_it(
    level: int, hierarchy: dict[str, Any], words: str
) -> None:
    assert name_level(level, {"levels": 4, "hierarchy": hierarchy}) == words


def test_a_k_anonymous_release_names_its_levels_and_shows_how_large_its_classes_are() -> None:
    html = render(build_lattice_page(RELEASE, recoding=RECODING))
    for words in ("by decade", "1 of 5 characters hidden", "in steps of 10", "as it is", "not at all"):
        assert f"<td>{words}</td>" in html
    assert "How large the classes are" in html
    assert "Utility against risk" not in html  # nothing was checked: no empty chart
    assert "How large the classes are" not in render(build_lattice_page(RELEASE))


@pytest.mark.parametrize(
    ("sizes", "bars"),
    [
        ([5, 5, 7, 9], ["5", "6", "7", "8", "9"]),
        ([64, 72], [str(size) for size in range(64, 73)]),
        ([5, 6, 40], ["5 to 9", "10 to 19", "20 to 39", "40"]),
    ],
)
def test_an_axis_of_sizes_leaves_none_out_between_two_of_them(sizes: list[int], bars: list[str]) -> None:
    rows = draw_sizes(sizes).spec["data"]["values"]
    assert [row["rows alike"] for row in rows] == bars
    assert sum(row["rows"] for row in rows) == sum(sizes)


def test_a_table_in_a_fold_is_closed_until_it_is_opened_and_printed_where_it_is_short() -> None:
    html = render(Page("P", (Section("S", (Table(("a",), ((1,),), fold="All <of> them"),)),)))
    assert '<details class="short"><summary>All &lt;of&gt; them</summary><div class="wide"' in html


def test_a_model_that_is_worse_than_the_mean_is_called_so() -> None:
    view = {"target": "y", "method": "linear", "epsilon": "1", "delta": "0", "estimated_rows": 9, "features": ["x"],
            "unit": "row", "effects": []}  # fmt: skip
    worse, better = (
        render(build_training_page(view | {"evaluation": {"rows": 9, "error": 2.0, "r_squared": r}}))
        for r in (-0.98, 0.5)
    )
    assert "worse than always saying the mean" in worse
    assert "worse than always saying the mean" not in better
    assert "0 is no better than always saying the mean" in better


def test_the_register_tells_the_share_of_the_budget_and_draws_it_over_several_days() -> None:
    amounts = {"limit": {"epsilon": "10"}, "spent": {"rho": "0.5"}, "remaining": {"rho": "1.5"}}
    standing = amounts | {"charged": 2, "without_guarantee": 0}
    releases = [
        {"release": f"r{n}", "date": f"2026-01-0{n}", "technique": "query", "tables": ["t"], "epsilon": 0.5}
        for n in (1, 2)
    ]
    told = {"dataset": "d", "head": "h", "standing": standing, "releases": releases}
    html = render(build_register_page(told))
    assert '<dd class="value">25.0%</dd>' in html
    assert "the budget is epsilon 10" in html
    assert "rho" not in html.partition("<main>")[2].partition("</main>")[0], "one unit, and a plain one"
    assert html.count('class="vega"') == 1
    assert 'class="vega"' not in render(build_register_page(told | {"releases": releases[:1]}))
