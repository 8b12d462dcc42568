"""The plots: valid Vega-Lite by the reference compiler, honest about odd values, and refusing what cannot be drawn."""

from __future__ import annotations

import json
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.errors import MissingExtra, ParameterError
from deniable.reports import plots

ODD = "a.b[0] 'x' \"y\" \\z"
ROWS: list[dict[str, object]] = [
    {"name": "first", "x": 1, "y": 2.5, "low": 2, "high": 3, "group": "a", "day": date(2026, 1, 1)},
    {"name": "second", "x": 2, "y": 3.5, "low": 3, "high": 4, "group": "b", "day": date(2026, 1, 2)},
]
BAND = {"low": "low", "high": "high"}


def every_plot(rows: list[dict[str, object]]) -> dict[str, dict[str, Any]]:
    alt = "What it shows"
    return {
        "bars": plots.draw_bars(rows, category="name", value="y", alt=alt),
        "bars with whiskers": plots.draw_bars(rows, category="name", value="y", series="group", alt=alt, **BAND),
        "upright bars": plots.draw_bars(rows, category="name", value="y", alt=alt, horizontal=False, **BAND),
        "lines": plots.draw_lines(rows, x="x", y="y", series="group", alt=alt, **BAND),
        "lines over days": plots.draw_lines(rows, x="day", y="y", alt=alt),
        "lines on log axes": plots.draw_lines(rows, x="x", y="y", alt=alt, log_x=True, log_y=True),
        "heatmap": plots.draw_heatmap(rows, x="name", y="group", value="y", form=".1f", alt=alt),
        "scatter": plots.draw_scatter(rows, x="x", y="y", series="group", alt=alt),
        "scatter with diagonal": plots.draw_scatter(rows, x="x", y="y", alt=alt, diagonal=True),
        "histogram": plots.draw_histogram(rows, bin="name", count="y", series="group", alt=alt),
        "people": plots.draw_people(13, label="are singled out", alt=alt),
    }


@pytest.mark.parametrize("kind", every_plot(ROWS))
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []], ids=["two rows", "one row", "no rows"])
def test_every_plot_is_valid_vega_lite(kind: str, rows: list[dict[str, object]]) -> None:
    pytest.importorskip("vl_convert", reason="the extra 'plots' is not installed")
    assert plots.render_svg(every_plot(rows)[kind]).startswith("<svg")


@pytest.mark.parametrize("kind", every_plot(ROWS))
def test_every_plot_is_plain_json_with_its_alt_text(kind: str) -> None:
    spec = every_plot(ROWS)[kind]
    assert json.loads(json.dumps(spec, allow_nan=False)) == spec
    assert spec["description"] == "What it shows"


def test_a_drawn_bar_is_as_long_as_its_number() -> None:
    vl_convert = pytest.importorskip("vl_convert", reason="the extra 'plots' is not installed")
    rows = [{"name": "half", "y": 50}, {"name": "whole", "y": 100}]
    spec = plots.draw_bars(rows, category="name", value="y", alt="Two bars") | {"width": 400}
    svg = vl_convert.vegalite_to_svg(json.dumps(spec))
    assert "half; y: 50" in svg or "name: half" in svg
    widths = sorted(_bar_widths(svg))
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.02)


def _bar_widths(svg: str) -> list[float]:
    import re

    bars = re.findall(r'aria-roledescription="bar" d="M0,0h([\d.]+)a([\d.]+)', svg)
    found = [float(straight) + float(corner) for straight, corner in bars]
    return found or [float(w) for w in re.findall(r'aria-roledescription="bar" d="M[\d.,-]+h([\d.]+)', svg)]


def test_names_with_dots_brackets_and_quotes_are_fields_not_paths() -> None:
    pytest.importorskip("vl_convert", reason="the extra 'plots' is not installed")
    rows = [{ODD: "p", "value.of": 3}, {ODD: "q", "value.of": 4}]
    assert "value.of: 4" in plots.render_svg(plots.draw_bars(rows, category=ODD, value="value.of", alt="Odd names"))
    assert plots.render_svg(plots.draw_heatmap(rows, x=ODD, y=ODD, value="value.of", alt="Odd names")).startswith(
        "<svg"
    )


def test_values_that_json_does_not_know_become_plain_ones() -> None:
    values = [Decimal("1.5"), Fraction(1, 4), np.int64(7), np.float64("nan"), float("inf"), None, True]
    spec = plots.draw_bars(
        [{"k": str(n), "v": v} for n, v in enumerate(values)], category="k", value="v", alt="Odd values"
    )
    assert [row["v"] for row in spec["data"]["values"]] == [1.5, 0.25, 7, None, None, None, True]


def test_only_the_fields_that_are_drawn_enter_the_page() -> None:
    rows = [{"name": "a", "y": 1, "secret": "not drawn"}]
    assert "not drawn" not in json.dumps(plots.draw_bars(rows, category="name", value="y", alt="One bar"))


def test_an_unknown_field_is_refused_with_the_nearest_word() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'group'"):
        plots.draw_bars(ROWS, category="groop", value="y", alt="A typo")


@pytest.mark.parametrize("alt", ["", "  "])
def test_a_plot_needs_alt_text(alt: str) -> None:
    with pytest.raises(ParameterError, match="alt text"):
        plots.draw_people(1, label="x", alt=alt)


@pytest.mark.parametrize(("marked", "of"), [(-1, 10), (11, 10), (0, 0), (1, 2001)])
def test_a_crowd_that_cannot_be_is_refused(marked: int, of: int) -> None:
    with pytest.raises(ParameterError, match="cannot be drawn"):
        plots.draw_people(marked, label="x", alt="A crowd", of=of)


def test_as_many_people_are_colored_as_were_marked() -> None:
    pytest.importorskip("vl_convert", reason="the extra 'plots' is not installed")
    from deniable.reports.page import OTHER, QUIET

    svg = plots.render_svg(plots.draw_people(13, label="x", alt="A crowd"))
    assert svg.count(f'fill="{OTHER}"') == 13
    assert svg.count(f'fill="{QUIET}"') == 987


def test_a_png_is_a_png_and_an_odd_scale_is_refused() -> None:
    pytest.importorskip("vl_convert", reason="the extra 'plots' is not installed")
    spec = plots.draw_bars(ROWS, category="name", value="y", alt="Bars")
    assert plots.render_png(spec, scale=1).startswith(b"\x89PNG")
    with pytest.raises(ParameterError, match="scale"):
        plots.render_png(spec, scale=0)


def test_without_the_extra_the_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(MissingExtra, match=r"deniable\[plots\]"):
        plots.render_svg(plots.draw_people(1, label="x", alt="A crowd"))


def test_an_axis_of_counts_has_whole_numbers_and_one_of_shares_percentages() -> None:
    counts = plots.draw_lines([{"known": 1, "people": 3}], x="known", y="people", alt="Counts")
    assert counts["encoding"]["x"]["axis"]["tickMinStep"] == 1
    assert counts["layer"][0]["encoding"]["y"]["axis"]["format"] == ",d"
    shares = plots.draw_bars(ROWS, category="name", value="y", alt="Shares", form=plots.PERCENT)
    assert shares["encoding"]["x"]["axis"]["format"] == "~%"
    assert "format" not in plots.draw_bars(ROWS, category="name", value="y", alt="Bars")["encoding"]["x"]["axis"]


def test_an_axis_of_few_days_names_days_and_no_hours() -> None:
    few, many = ([{"day": date(2026, 1, day), "y": day} for day in days] for days in ((1, 3), (1, 28)))
    axis = plots.draw_lines(few, x="day", y="y", alt="Days")["encoding"]["x"]["axis"]
    assert [named["date"] for named in axis["values"]] == [1, 3]
    assert "%d" in axis["format"].replace("-", "")
    assert "values" not in plots.draw_lines(many, x="day", y="y", alt="Days")["encoding"]["x"]["axis"]


def test_a_plot_of_zeros_is_marked_and_one_of_numbers_is_not() -> None:
    zeros = [{"name": "a", "y": 0.0}, {"name": "b", "y": None}]
    assert plots.draw_bars(zeros, category="name", value="y", alt="Zeros")["usermeta"] == {"zero": True}
    assert "usermeta" not in plots.draw_bars(ROWS, category="name", value="y", alt="Bars")
    assert "usermeta" not in plots.draw_bars([], category="name", value="y", alt="None")


def test_an_end_that_is_open_has_an_arrow_and_closed_ends_have_none() -> None:
    rows = [{"name": "a", "y": 2.0, "low": None, "high": 3.0}, {"name": "b", "y": 2.0, "low": 1.0, "high": 3.0}]
    layers = plots.draw_bars(rows, category="name", value="y", alt="Bars", **BAND)["layer"]
    assert [layer["mark"].get("shape") for layer in layers] == [None, None, "triangle-left"]
    assert len(plots.draw_bars(ROWS, category="name", value="y", alt="Bars", **BAND)["layer"]) == 2


def test_rings_of_several_series_are_seen_where_they_lie_on_each_other() -> None:
    rows = [{"x": 1, "y": 0, "made": made} for made in ("as it is", "k-anonymous", "synthetic")]
    spec = plots.draw_scatter(rows, x="x", y="y", series="made", alt="Points", rings=True)
    assert len(set(spec["encoding"]["shape"]["scale"]["range"])) == len(rows)
    assert "size" not in spec["encoding"], "a size would mean something"
    assert not spec["mark"]["filled"]


def read_scale(spec: dict[str, Any], channel: str) -> dict[str, str]:
    """What each name of a series is drawn with."""
    scale = spec["encoding"][channel]["scale"]
    return dict(zip(scale["domain"], scale["range"], strict=True))


def test_one_meaning_has_one_color_and_shape_whatever_else_is_drawn_and_in_which_order() -> None:
    orders = (("chosen", "fails a model", "acceptable"), ("acceptable", "other", "chosen", "fails a model"))
    drawn = [
        plots.draw_scatter([{"x": 1, "y": 1, "node": word} for word in words], x="x", y="y", series="node", alt="Nodes")
        for words in orders
    ]
    for channel in ("color", "shape"):
        first, second = (read_scale(spec, channel) for spec in drawn)
        assert all(second[word] == first[word] for word in orders[0])
        assert len({*second.values()}) == len(orders[1]), "a name without a meaning takes what is free"
    bars = [
        plots.draw_bars([{"v": 1, "n": 1, "of": word} for word in words], category="v", value="n", series="of", alt="B")
        for words in (("real", "synthetic"), ("synthetic", "control", "real"))
    ]
    first, second = (read_scale(spec, "color") for spec in bars)
    assert {word: second[word] for word in first} == first
    lines = plots.draw_lines([{"x": 1, "y": 1, "of": n} for n in (1, 2)], x="x", y="y", series="of", alt="Lines")
    one, two = lines["layer"][-1]["encoding"]["strokeDash"]["scale"]["range"]
    assert one != two, "colors are not alone"


@pytest.mark.parametrize(
    ("values", "form", "zero"),
    [((0.955, 1.0), plots.PERCENT, True), ((7, 10), "", False), ((3, 10), "", True), ((-5, 5), "", True)],
)
def test_an_axis_begins_at_0_or_says_that_it_does_not(values: tuple[float, ...], form: str, zero: bool) -> None:
    rows = [{"x": place, "y": value} for place, value in enumerate(values)]
    lines = plots.draw_lines(rows, x="x", y="y", alt="Lines", form=form)["layer"][0]["encoding"]["y"]
    points = plots.draw_scatter(rows, x="x", y="y", alt="Points", form=form)["encoding"]["y"]
    for axis in (lines, points):
        assert axis["scale"]["zero"] is zero
        assert ("(axis does not begin at 0)" in axis["title"]) is not zero


def test_shares_of_a_survey_are_drawn_between_nothing_and_everybody_and_what_noise_puts_beyond_is_said() -> None:
    from deniable.reports.survey import build_survey_page

    shares = [{"answer": "yes", "share": -0.58, "low": -1.2, "high": 0.1, "consistent": 0.0},
              {"answer": "no", "share": 1.58, "low": 0.9, "high": 2.2, "consistent": 1.0}]  # fmt: skip
    found = {"ask": "Well?", "responses": 5, "epsilon": 1.0, "mean": None, "unit": "", "shares": shares}
    told = {"title": "S", "survey": "s", "responses": 5, "local_epsilon": 1.0, "amplified": None, "confidence": 0.95,
            "findings": [found]}  # fmt: skip
    plot = build_survey_page(told).sections[1].blocks[0]
    assert [(row["share"], row["low"], row["high"]) for row in plot.spec["data"]["values"]] == [
        (0, 0, 0.1), (1, 0.9, 1)]  # fmt: skip
    assert plot.spec["encoding"]["x"]["scale"]["domain"] == [0, 1]
    assert "below 0% or above 100% is drawn at the end of the axis" in plot.caption
    assert -0.58 in plot.table.rows[0], "the table has the numbers as they are"
    shares[:] = [{"answer": "yes", "share": 0.4, "low": 0.3, "high": 0.5, "consistent": 0.4}]
    assert build_survey_page(told).sections[1].blocks[0].caption == "Estimated shares with 95% intervals"
    told["amplified"] = {"epsilon": 2.0, "delta": 1e-8, "method": "none: too few respondents for this epsilon"}
    figure = build_survey_page(told).sections[0].blocks[0].figures[-1]
    assert (figure.value, figure.label) == ("the same", "for the shuffled batch"), "no number that says nothing new"


def test_an_axis_of_long_numbers_on_both_sides_of_nothing_has_room_for_the_zero() -> None:
    def count(*values: float) -> int:
        rows = [{"name": str(place), "effect": value} for place, value in enumerate(values)]
        spec = plots.draw_bars(rows, category="name", value="effect", alt="effects")
        return int(spec["encoding"]["x"]["axis"]["tickCount"])

    assert (count(-300000.0, 250000.0), count(100000.0, 250000.0), count(-3.0, 2.0)) == (3, 5, 5)
