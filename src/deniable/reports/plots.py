"""From rows to Vega-Lite specifications: plain dicts, one for page, notebook and paper; and as SVG and PNG.

Rows are lists of plain dicts that somebody else computed; a plot names which fields it shows. Every plot needs `alt`, a
sentence that tells what the drawing shows to whoever cannot see it; it becomes the specification's `description`.
Nothing is aggregated, binned or smoothed here. Pictures are made by vl-convert (the extra `plots`), offline."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import Any

from deniable.errors import MissingExtra, ParameterError, nearest
from deniable.reports import page

Row = Mapping[str, object]
Spec = dict[str, Any]

PERCENT = "~%"
"""A d3 format: shares as percentages, with as many digits as they need."""
WHOLE: Spec = {"tickMinStep": 1, "format": ",d"}
DAYS: Spec = {"grid": False, "labelOverlap": True, "labelSeparation": 8, "labelBound": True}
MOST_TICKS = 8
MOST_NUMBERED = 8
"""Heat maps of more columns than this have shades without numbers."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # names the grammar; it is never fetched
INHERITED = frozenset(
    ("__proto__", "constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString",
     "toString", "valueOf", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__")
)  # fmt: skip
"""What every plain object of JavaScript has before anything is put into it."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 2])
STROKES: Spec = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolSize": 400, "symbolOpacity": 1}
PERSON = (
    "M-.38-.58A.38.38 0 1 1 .38-.58A.38.38 0 1 1-.38-.58ZM-.7 1V.45Q-.7-.08-.2-.08H.2Q.7-.08.7.45V1Z"  # head, shoulders
)


def draw_bars(
    rows: Sequence[Row],
    *,
    category: str,
    value: str,
    alt: str,
    low: str | None = None,
    high: str | None = None,
    series: str | None = None,
    title: str = "",
    form: str = "",
    horizontal: bool = True,
    limits: tuple[float, float] | None = None,
) -> Spec:
    """Bars in the order of the rows, side by side where `series` is given, with whiskers from `low` to `high`.

    `form` is a d3 format of the value axis, such as PERCENT, and `limits` are its ends. An end that is missing is open:
    its whisker has an arrow.
    """
    kept = _keep_fields(rows, category, value, low, high, series)
    across, along = ("y", "x") if horizontal else ("x", "y")
    encoding: Spec = {
        across: _nominal(category, "" if horizontal else None),
        along: _quantitative(kept, value, title or value, zero=True, form=form),
        "tooltip": _show_fields(category, series, value, low, high),
    }
    if limits is not None:
        encoding[along]["scale"] |= {"domain": list(limits)}
    if series:
        encoding |= {f"{across}Offset": {"field": _path(series), "sort": None}, "color": _color(kept, series)}
    layers: list[Spec] = [{"mark": {"type": "bar"}, "encoding": {}}]
    if low and high:
        layers += _whiskers(kept, value, low, high, along)
    steps = _distinct(rows, category) * (_distinct(rows, series) if series else 1)
    height = {"height": max(60, 26 * steps + (14 * steps if series is None else 6 * steps))} if horizontal else {}
    return _begin_plot(kept, alt, value) | height | {"encoding": encoding, "layer": layers}


def draw_lines(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    alt: str,
    low: str | None = None,
    high: str | None = None,
    series: str | None = None,
    title: str = "",
    form: str = "",
    log_x: bool = False,
    log_y: bool = False,
    asked: float | None = None,
) -> Spec:
    """Lines through the rows, one for each series, each with a band from `low` to `high`; dates make a time axis.

    `asked` is a value to reach, drawn as a dashed line across.
    """
    kept = _keep_fields(rows, x, y, low, high, series)
    color = {"color": _color(kept, series) | {"legend": STROKES}} if series else {}
    dash = {"strokeDash": _dash(kept, series)} if series else {}
    across = _axis(rows, x) | ({"scale": {"type": "log", "nice": False}} if log_x else {})
    if log_x and 0 < _distinct(rows, x) <= MOST_TICKS:  # the values that were tried say more than powers of ten
        across["axis"] = {"grid": False, "values": sorted({row[_safe(x)] for row in kept} - {None}, key=str)}
    zero, told = (False, "") if log_y else _begin_axis(kept, form, y, low, high)
    along = _quantitative(kept, y, f"{title or y}{told}", zero=zero, log=log_y, form=form)
    layers: list[Spec] = []
    if low and high:
        band = along | {"field": _path(low)}
        layers.append(
            {"mark": {"type": "area", "opacity": 0.22}, "encoding": {"y": band, "y2": {"field": _path(high)}}}
        )
    mark = {"type": "line", "point": {"size": 36, "filled": True}}
    layers.append({"mark": mark, "encoding": {"y": along, "tooltip": _show_fields(x, series, y, low, high)} | dash})
    base = _begin_plot(kept, alt, y)
    drawn = base | {"encoding": {"x": across} | color, "layer": layers}
    if asked is None:
        return drawn
    level = {"mark": {"type": "rule", "color": page.PALETTE[1], "strokeDash": [6, 4], "strokeWidth": 1.6,
                      "aria": False},
             "encoding": {"y": {"datum": asked}}}  # fmt: skip
    return base | {"layer": [{"encoding": {"x": across} | color, "layer": layers}, level]}


def draw_heatmap(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    value: str,
    alt: str,
    form: str = "",
    limits: tuple[float, float] | None = None,
) -> Spec:
    """Cells shaded from little to much, each with its number; `form` is a d3 format such as '.0%' or ',d'.

    Where there are too many columns for numbers on a phone, their names stand upright and the shades have a legend.
    """
    kept = _keep_fields(rows, x, y, value)
    numbers = [cell for row in kept if isinstance(cell := row[_safe(value)], int | float)]
    low, high = limits or ((min(numbers), max(numbers)) if numbers else (0.0, 1.0))
    shade = {"field": _path(value), "type": "quantitative", "scale": {"domain": [low, high], "range": list(page.RAMP)}}
    dark = {"condition": {"test": f"{_datum(value)} > {low + 0.5 * (high - low)!r}", "value": "white"}}
    many = _distinct(rows, x) > MOST_NUMBERED
    scale = {"orient": "bottom", "direction": "horizontal", "title": None, "gradientLength": 160} if many else None
    layers: list[Spec] = [
        {"mark": {"type": "rect", "cornerRadius": 2}, "encoding": {"color": shade | {"legend": scale}}},
        {
            "mark": {"type": "text"},
            "encoding": {"text": _format_field(value, form), "color": dark | {"value": page.INK}},
        },
    ][: 1 if many else 2]
    touching = {"paddingInner": 0.02, "paddingOuter": 0}
    names: Spec = {"orient": "top", "labelAngle": -90 if many else 0, "labelLimit": 190 if many else 90}
    encoding = {
        "x": _nominal(x, x) | {"axis": names, "scale": touching},
        "y": _nominal(y, None) | {"axis": {"labelAngle": 0, "labelLimit": 330}, "scale": touching},
        "tooltip": [_show_field(x), _show_field(y), _format_field(value, form) | {"title": _safe(value)}],
    }
    height = max(60, 34 * _distinct(rows, y))
    return _begin_plot(kept, alt) | {"height": height, "encoding": encoding, "layer": layers}


def draw_map(cells: Sequence[Row], *, alt: str, stretch: float = 1.0) -> Spec:
    """Cells of a map, each with its edges and its count, shaded from little to much by the root of the count.

    `stretch` is how much longer a degree of latitude is than one of longitude there.
    """
    edges = ("west", "east", "south", "north")
    kept = _keep_fields(cells, *edges, "count")
    shades = [math.sqrt(max(0.0, float(str(row["count"])))) for row in kept]
    shown = [row | {"shade": shade} for row, shade in zip(kept, shades, strict=True)]
    most = max(shades, default=1.0)
    west, east, south, north = (
        [float(str(row[edge])) for row in kept] or [0.0, 1.0] for edge in edges
    )  # fmt: skip
    spans = ([min(west), max(east)], [min(south), max(north)])
    wide, high = (span[1] - span[0] for span in spans)
    axes: Spec = {
        axis: {"field": low, "type": "quantitative", "title": title, "scale": {"domain": span, "nice": False},
               "axis": {"grid": False, "format": ".2f"}}
        for axis, low, title, span in (("x", "west", "longitude", spans[0]), ("y", "south", "latitude", spans[1]))
    }  # fmt: skip
    color = {"field": "shade", "type": "quantitative", "legend": None,
             "scale": {"domain": [0, most or 1.0], "range": list(page.RAMP)}}  # fmt: skip
    encoding = axes | {
        "x2": {"field": "east"},
        "y2": {"field": "north"},
        "color": color,
        "tooltip": [_show_field(name) for name in ("south", "west")] + [_format_field("count", ",.0f")],
    }
    ratio = high * stretch / wide if wide else 1.0
    height = round(min(640, max(160, 600 * ratio)))
    return _begin_plot(shown, alt) | {"height": height, "name": "map", "mark": {"type": "rect"}, "encoding": encoding}


def draw_scatter(
    rows: Sequence[Row],
    *,
    x: str,
    y: str,
    alt: str,
    series: str | None = None,
    diagonal: bool = False,
    form: str = "",
    rings: bool = False,
) -> Spec:
    """One point a row; `diagonal` draws the line on which both axes agree, for true against released.

    Each series has a shape of its own. With `rings`, for few points that may lie on each other, shapes are outlines.
    """
    kept = _keep_fields(rows, x, y, series)
    begins = {field: (False, "") if diagonal else _begin_axis(kept, form, field) for field in (x, y)}
    encoding: Spec = {
        axis: _quantitative(kept, field, f"{field}{begins[field][1]}", zero=begins[field][0], form=form)
        for axis, field in (("x", x), ("y", y))
    } | {"tooltip": _show_fields(x, y, series)}
    encoding |= {"color": _color(kept, series), "shape": _shape(kept, series)} if series else {}
    points: Spec = {"mark": {"type": "point", "filled": True, "opacity": 0.85, "size": 64}, "encoding": encoding}
    if rings and series:
        points["mark"] = {"type": "point", "filled": False, "opacity": 1, "strokeWidth": 2.5, "size": 220}
        # Outlines at an edge stay inside the frame.
        for axis in ("x", "y"):
            encoding[axis]["scale"] = encoding[axis]["scale"] | {"padding": 16}
        encoding["color"] = encoding["color"] | {"legend": {"symbolStrokeWidth": 2.5, "symbolFillColor": "transparent"}}
    if not diagonal:
        return _begin_plot(kept, alt) | points
    ends = [cell for row in kept for field in (x, y) if isinstance(cell := row[_safe(field)], int | float)]
    corners = [{_safe(x): end, _safe(y): end} for end in ((min(ends), max(ends)) if ends else ())]
    agree: Spec = {
        "data": {"values": corners},
        "mark": {"type": "line", "color": page.PALETTE[-1], "strokeDash": [5, 4], "strokeWidth": 1.3, "point": False},
        "encoding": {axis: encoding[axis] for axis in ("x", "y")},
    }
    return _begin_plot(kept, alt) | {"layer": [agree, points]}


def draw_histogram(
    rows: Sequence[Row], *, bin: str, count: str, alt: str, series: str | None = None, title: str = ""
) -> Spec:
    """Counts by bin, already binned by the caller and in the order of the rows; series stand side by side."""
    kept = _keep_fields(rows, bin, count, series)
    encoding: Spec = {
        "x": _nominal(bin, bin),
        "y": _quantitative(kept, count, title or count, zero=True),
        "tooltip": _show_fields(bin, series, count),
    }
    if series:
        encoding |= {"xOffset": {"field": _path(series), "sort": None}, "color": _color(kept, series)}
    return _begin_plot(kept, alt, count) | {"mark": {"type": "bar"}, "encoding": encoding}


def draw_people(marked: int, *, label: str, alt: str, of: int = 1000) -> Spec:
    """A crowd in which `marked` of `of` people are colored: what a rate means, in persons."""
    if not 0 <= marked <= of or not 1 <= of <= 2000:
        happened = f"A crowd of {of} people with {marked} marked cannot be drawn"
        raise ParameterError(happened, expected="0 <= marked <= of <= 2000, and of >= 1")
    columns = 40 if of > 200 else 20
    hidden = {"axis": None, "type": "quantitative", "scale": {"zero": False, "nice": False, "padding": 8}}
    return {
        "$schema": SCHEMA,
        "description": _require_alt(alt),
        "usermeta": {"rows": [{"people": label, "number": marked, "of": of}]},
        "config": page.build_config(),
        "data": {"sequence": {"start": 0, "stop": of, "as": "n"}},
        "transform": [
            {"calculate": f"datum.n % {columns}", "as": "column"},
            {"calculate": f"floor(datum.n / {columns})", "as": "row"},
        ],
        "name": "crowd",
        "width": "container",
        "height": 15 * math.ceil(of / columns) + 16,
        "mark": {"type": "point", "shape": PERSON, "filled": True, "opacity": 1, "size": 120, "strokeWidth": 0},
        "encoding": {
            "x": {"field": "column"} | hidden,
            "y": {"field": "row"} | hidden | {"scale": {"reverse": True, "zero": False, "nice": False, "padding": 8}},
            "color": {
                "condition": {"test": f"datum.n < {marked}", "value": page.OTHER},
                "value": page.QUIET,
            },
        },
    }


def _begin_plot(rows: list[dict[str, object]], alt: str, value: str = "") -> Spec:
    """What every plot of rows begins with; one whose values are all 0 is marked, and is told in words instead."""
    nothing = {"usermeta": {"zero": True}} if value and rows and not any(row[_safe(value)] for row in rows) else {}
    common = {"width": "container", "height": 280, "autosize": {"type": "fit-x", "contains": "padding"}}
    return {
        "$schema": SCHEMA,
        "description": _require_alt(alt),
        "config": page.build_config(),
        "data": {"values": rows},
        **nothing,
    } | common


def _require_alt(text: str) -> str:
    if not text.strip():
        raise ParameterError("A plot has no alt text", expected="a sentence that tells what the drawing shows")
    return text.strip()


def _keep_fields(rows: Sequence[Row], *fields: str | None) -> list[dict[str, object]]:
    """The named fields of the rows as JSON values; a field that no row has is a mistake of the caller."""
    wanted = [field for field in fields if field]
    for field in wanted:
        if rows and not any(field in row for row in rows):
            known = sorted({name for row in rows for name in row})
            raise ParameterError(f"No row has a field '{field}'", remedy=nearest(field, known))
    return [{_safe(field): _plain(row.get(field)) for field in wanted} for row in rows]


def _plain(value: object) -> object:
    """A JSON value: whatever is not finite becomes null, and is not drawn."""
    if isinstance(value, str):
        return _shield(value)
    if isinstance(value, bool | int) or value is None:
        return value
    if isinstance(value, Decimal | Fraction | float):
        number = float(value)
        return number if math.isfinite(number) else None
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if hasattr(value, "item"):  # a numpy scalar
        return _plain(value.item())
    return _shield(str(value))


def _path(field: str) -> str:
    """Vega-Lite reads dots and brackets in a field's name as paths, unless they are escaped."""
    return "".join("\\" + letter if letter in ".[]" else letter for letter in _safe(field))


def _safe(name: str) -> str:
    """Vega-Lite builds expressions around names without quoting all they may hold: look-alikes cannot end a string."""
    marks = {ord("'"): "\u2019", ord('"'): "\u201d", ord("\\"): "\u2216", ord("\n"): " ", ord("\r"): " "}
    return _shield(name.translate(marks))


def _shield(text: str) -> str:
    """Vega keeps names and values as keys of plain objects, which inherit some: a space before them makes others."""
    return f" {text}" if text in INHERITED else text


def _distinct(rows: Sequence[Row], field: str) -> int:
    return len({str(row.get(field)) for row in rows})


def _datum(field: str) -> str:
    return f"datum['{_safe(field)}']"


def _nominal(field: str, title: str | None) -> Spec:
    named = {"field": _path(field), "type": "nominal", "sort": None, "title": _safe(title or "") or None}
    return named | {"axis": {"labelAngle": 0, "labelOverlap": True}}


def _quantitative(
    rows: list[dict[str, object]], field: str, title: str, *, zero: bool, log: bool = False, form: str = ""
) -> Spec:
    """An axis of numbers; one of counts has whole numbers only."""
    scale: Spec = {"type": "log"} if log else {"zero": zero}
    axis: Spec = {"grid": False} if log else {"tickCount": _count_ticks(rows, _safe(field))}
    axis |= {"format": form} if form else WHOLE if _are_counts(rows, _safe(field)) and not log else {}
    return {"field": _path(field), "type": "quantitative", "title": _safe(title), "scale": scale, "axis": axis}


LONG_NUMBER = 10_000


def _count_ticks(rows: Sequence[Row], field: str) -> int:
    """How many numbers an axis has: few where long ones stand on both sides of 0, which would be dropped for room."""
    values = [value for row in rows if isinstance(value := row.get(field), int | float)]
    both = min(values, default=0) < 0 < max(values, default=0)
    return 3 if both and max(map(abs, values)) >= LONG_NUMBER else 5


def _are_counts(rows: Sequence[Row], field: str) -> bool:
    values = [row.get(field) for row in rows if row.get(field) is not None]
    return bool(values) and all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _axis(rows: Sequence[Row], field: str) -> Spec:
    """The across axis of lines: time for dates, numbers for numbers, and the order of the rows for words."""
    values = [row.get(field) for row in rows if row.get(field) is not None]
    if values and all(isinstance(value, date) for value in values):
        return {"field": _path(field), "type": "temporal", "title": _safe(field), "axis": DAYS | _name_days(values)}
    if values and any(isinstance(value, str) for value in values):
        return _nominal(field, field)
    return {
        "field": _path(field),
        "type": "quantitative",
        "title": _safe(field),
        "axis": {"grid": False, "tickCount": 6} | (WHOLE if _are_counts(rows, field) else {}),
        "scale": {"zero": False},
    }


def _name_days(values: Sequence[object]) -> Spec:
    """Few days are named themselves: an axis would put hours between them."""
    days = sorted({day for day in values if isinstance(day, date) and not isinstance(day, datetime)})
    if not days or (days[-1] - days[0]).days > MOST_TICKS:
        return {}
    named = [{"year": day.year, "month": day.month, "date": day.day} for day in days]
    return {"values": named, "format": "%-d %b %Y"}


def _begin_axis(rows: list[dict[str, object]], form: str, *fields: str | None) -> tuple[bool, str]:
    """Whether an axis begins at 0, and what its title says if not: shares do, and what is not far from 0."""
    cells = [row[_safe(field)] for field in fields if field for row in rows]
    numbers = [float(cell) for cell in cells if isinstance(cell, int | float)]
    near = not numbers or min(numbers) <= 0 <= max(numbers) or 2 * min(map(abs, numbers)) <= max(map(abs, numbers))
    zero = near or form == PERCENT
    return zero, "" if zero else " (axis does not begin at 0)"


def _names(rows: list[dict[str, object]], series: str) -> list[Any]:
    return list(dict.fromkeys(row[_safe(series)] for row in rows if row[_safe(series)] is not None))


def _color(rows: list[dict[str, object]], series: str) -> Spec:
    """A color for each name: one meaning has one color on every page, and all others take those that are free."""
    scale = {"scale": _assign(_names(rows, series), 0, page.PALETTE)}
    legend = {"legend": {"symbolOpacity": 1, "symbolStrokeWidth": 0}}
    return {"field": _path(series), "type": "nominal", "sort": None} | scale | legend


def _shape(rows: list[dict[str, object]], series: str) -> Spec:
    """A shape for each name, so that colors are not alone in telling series apart."""
    scale = _assign(_names(rows, series), 1, SHAPES)
    return {"field": _path(series), "type": "nominal", "sort": None, "scale": scale}


def _dash(rows: list[dict[str, object]], series: str) -> Spec:
    """A line of its own for each name, so that colors are not alone in telling series apart."""
    names = _names(rows, series)
    scale = {"domain": names, "range": [DASHES[place % len(DASHES)] for place in range(len(names))]}
    return {"field": _path(series), "type": "nominal", "sort": None, "scale": scale}


def _assign(names: list[Any], part: int, offered: Sequence[str]) -> Spec:
    """A scale from names to what they mean, or to the next of what is offered and means nothing here."""
    known = {name: page.MEANINGS[name][part] for name in names if name in page.MEANINGS}
    free = [each for each in offered if each not in known.values()] or list(offered)
    others = [name for name in names if name not in known]
    given = known | {name: free[place % len(free)] for place, name in enumerate(others)}
    return {"domain": names, "range": [given[name] for name in names]}


def _show_field(field: str) -> Spec:
    return {"field": _path(field), "title": _safe(field)}


def _show_fields(*fields: str | None) -> list[Spec]:
    return [_show_field(field) for field in fields if field]


def _format_field(field: str, form: str) -> Spec:
    return {"field": _path(field), "type": "quantitative"} | ({"format": form} if form else {})


def _whiskers(rows: list[dict[str, object]], value: str, low: str, high: str, along: str) -> list[Spec]:
    """A thin line from low to high over each bar, and an arrow at an end that is open."""
    ends = {along: {"field": "whisker_from", "type": "quantitative"}, f"{along}2": {"field": "whisker_to"}}
    known = [
        {"calculate": f"{_datum(end)} == null ? {_datum(value)} : {_datum(end)}", "as": f"whisker_{name}"}
        for end, name in ((low, "from"), (high, "to"))
    ]
    closed = {"filter": f"{_datum(low)} != null || {_datum(high)} != null"}
    color = {"color": {"value": page.INK}}
    mark = {"type": "rule", "strokeWidth": 1.6, "color": page.INK}
    layers: list[Spec] = [{"name": "whisker", "transform": [closed, *known], "mark": mark, "encoding": ends | color}]
    for end, other, shape in ((low, high, ("left", "down")), (high, low, ("right", "up"))):
        if any(row[_safe(end)] is None and row[_safe(other)] is not None for row in rows):
            arrow = {"type": "point", "filled": True, "size": 60, "opacity": 1,
                     "shape": f"triangle-{shape[0] if along == 'x' else shape[1]}"}  # fmt: skip
            here = {"filter": f"{_datum(end)} == null && {_datum(other)} != null"}
            place = {along: {"field": _path(value), "type": "quantitative"}}
            layers.append(
                {"name": f"whisker_{shape[0]}", "transform": [here], "mark": arrow, "encoding": place | color}
            )
    return layers


WIDTH = 640  # pixels, where a plot would otherwise fill whatever holds it


def render_svg(spec: dict[str, Any], *, width: int = WIDTH) -> str:
    """The plot as one SVG text."""
    return str(_import_converter().vegalite_to_svg(_fix_width(spec, width), allowed_base_urls=[]))


def render_png(spec: dict[str, Any], *, width: int = WIDTH, scale: float = 2.0) -> bytes:
    """The plot as PNG on white; `scale` 2 suits screens and print."""
    if not 0 < scale <= 10:
        raise ParameterError(f"A scale of {scale} for a picture", expected="a number above 0, at most 10")
    filled = json.loads(_fix_width(spec, width))
    filled["config"] = filled.get("config", {}) | {"background": "white"}
    return bytes(_import_converter().vegalite_to_png(json.dumps(filled), scale=scale, allowed_base_urls=[]))


def _fix_width(spec: dict[str, Any], width: int) -> str:
    """A picture has no container: it gets a width of its own."""
    fixed = (
        {"width": width, "autosize": {"type": "fit", "contains": "padding"}}
        if "layer" not in spec
        else {"width": width}
    )
    return json.dumps({key: part for key, part in spec.items() if key != "autosize"} | fixed)


def _import_converter() -> Any:
    try:
        import vl_convert
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            "Drawing a plot as a picture needs vl-convert-python, which is not installed",
            remedy="Install it with: pip install 'deniable[plots]'",
            charge="",
        ) from missing
    return vl_convert
