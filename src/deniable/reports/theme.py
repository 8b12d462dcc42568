"""The theme: one calm palette and one Vega-Lite configuration, for pages, notebooks and paper alike.

The colors of categories are the 'bright' qualitative scheme of Paul Tol (Colour Schemes, SRON technical note
EPS/TN/09-002, 2021), which stays distinct under the common color blindnesses; all of them are middle tones, so that
they carry on white and on near-black. Colors of text, grid and axes are set here for images and overridden by the
page's style sheet, which knows whether the reader has light, dark or paper.
"""

from __future__ import annotations

from typing import Any

PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
MAIN, OTHER = PALETTE[0], PALETTE[1]
QUIET = "#c3ccd5"  # the many who are not marked, in a crowd of people icons
RAMP = ("#e3edf7", "#9dbfe0", "#4477aa", "#173a5e")  # from little to much, one hue, lightness falling steadily

INK, SOFT, LINE, GRID = "#1c2733", "#55636f", "#d9e0e7", "#e6ebf0"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


def build_config() -> dict[str, Any]:
    """The Vega-Lite configuration each plot carries: a fresh dict, so that a caller may change its copy."""
    return {
        "background": None,
        "font": FONT,
        "padding": {"left": 2, "right": 6, "top": 6, "bottom": 2},
        "view": {"stroke": None},
        "axis": {
            "labelColor": SOFT,
            "titleColor": INK,
            "gridColor": GRID,
            "domainColor": LINE,
            "tickColor": LINE,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 600,
            "titlePadding": 8,
            "labelPadding": 5,
            "labelLimit": 220,
        },
        "axisX": {"labelFlush": False},
        "scale": {"bandPaddingInner": 0.25},
        "axisBand": {"grid": False, "domain": False, "ticks": False},
        "legend": {
            "orient": "top",
            "title": None,
            "labelColor": SOFT,
            "titleColor": INK,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "symbolType": "circle",
        },
        "range": {"category": list(PALETTE), "heatmap": list(RAMP), "ramp": list(RAMP)},
        "bar": {"color": MAIN, "cornerRadiusEnd": 2},
        "line": {"color": MAIN, "strokeWidth": 2.2},
        "point": {"color": MAIN},
        "text": {"color": INK, "fontSize": 12},
    }
