"""One self-contained HTML page from frozen sections: it opens without a network, on a phone, in the dark, on paper.

Everything that is not markup of this module is escaped. The page carries a content security policy under which nothing
can be fetched and only the scripts written here run (by their hash); plots are drawn by the vendored Vega in
interpreted mode, and each has alt text and a table with the same numbers. Tables may have a search box."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from deniable.errors import InternalError
from deniable.outputs import replace_files
from deniable.policy.yaml_tree import reveal_controls
from deniable.reports.blocks import Block, Callout, Commands, KeyFigures, Page, Paragraph, Plot, Section, Table
from deniable.storage import storage_errors, write_whole

PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#999999")
MAIN, OTHER = PALETTE[0], PALETTE[1]
MEANINGS = {
    "chosen": ("#117733", "diamond"),
    "acceptable": ("#3d9a5b", "circle"),
    "fails a model": ("#ee6677", "cross"),
    "fails, and most rows would be left out": ("#999999", "square"),
    "detail lost": ("#4477aa", "circle"),
    "mean chance to find a person": ("#ee6677", "cross"),
    "real": ("#999999", "square"),
    "synthetic": ("#4477aa", "circle"),
    "before": ("#999999", "square"),
    "after": ("#4477aa", "circle"),
    "as it is": ("#999999", "square"),
}
"""Words that are drawn alike on every page: their color and their shape; as in the lattice, green is what holds."""
QUIET = "#c3ccd5"  # the many who are not marked, in a crowd of people icons
RAMP = ("#e3edf7", "#9dbfe0", "#4477aa", "#173a5e")  # from little to much, one hue, lightness falling steadily

INK, SOFT, LINE, GRID = "#1c2733", "#55636f", "#d9e0e7", "#e6ebf0"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', sans-serif"


# a dictionary: JSON in the words of Vega-Lite
def build_config() -> dict[str, Any]:
    """The Vega-Lite configuration each plot carries: a fresh dict, so that a caller may change its copy."""
    return {
        "background": None,
        "font": FONT,
        "padding": {"left": 2, "right": 8, "top": 6, "bottom": 2},
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
            "labelLimit": 300,
        },
        "range": {"category": list(PALETTE), "heatmap": list(RAMP), "ramp": list(RAMP)},
        "bar": {"color": MAIN, "cornerRadiusEnd": 2},
        "line": {"color": MAIN, "strokeWidth": 2.2},
        "point": {"color": MAIN},
        "text": {"color": INK, "fontSize": 12},
    }


NOTHING_FETCHED = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
MOST_PRINTED_ROWS = 40  # a longer twin is printed only if the reader has opened it
MOST_TWIN_ROWS = 500  # a longer twin serves nobody; the specification in the page still holds every row


def render(page: Page) -> str:
    """The page as one HTML text."""
    blocks = [block for section in page.sections for block in section.blocks]
    scripts = _load_scripts() if any(isinstance(block, Plot) for block in blocks) else ()
    if any(isinstance(block, Table) and block.search for block in blocks):
        scripts = (*scripts, ("", read_static("search.js")))
    named = tuple((f"section-{number}", section) for number, section in enumerate(page.sections, start=1))
    return "\n".join(
        (
            "<!doctype html>",
            f'<html lang="{escape(page.language)}">',
            _render_head(page.title, tuple(script for _, script in scripts)),
            "<body>",
            _render_header(page, named),
            "<main>",
            _tell_tables_apart("\n".join(_render_section(anchor, section) for anchor, section in named)),
            "</main>",
            f"<footer><p>{_escape(page.foot or 'Made by deniable.')}</p></footer>",
            *(f"<script{kind}>{script}</script>" for kind, script in scripts),
            "</body></html>",
            "",
        )
    )


def render_sections(page: Page) -> str:
    """The sections alone, for a page with a head of its own, which serves the scripts of `load_scripts`."""
    named = [(f"section-{number}", section) for number, section in enumerate(page.sections, start=1)]
    return _tell_tables_apart("\n".join(_render_section(anchor, section) for anchor, section in named))


def load_scripts() -> dict[str, str]:
    """The scripts that draw plots and search tables, by the names of the files that a server gives them."""
    (_, library), (_, own) = _load_scripts()
    return {"vega.js": library, "plots.js": own, "search.js": read_static("search.js")}


def write(page: Page, path: Path) -> Path:
    """Write the page under its name at once: a reader sees the old page or the whole new one.

    Only a page is replaced: nothing that may hold data is lost to a name that was mistaken. A page may tell of people:
    as a release, it is its owner's alone to read until somebody else is given it.
    """
    _make_folder(path)
    with replace_files(pages=[path]):
        write_whole(path, render(page).encode())
    return path


def write_text(text: str, path: Path) -> Path:
    """Write a finished page that tells of nobody under its name, whole or not at all, for all to read."""
    _make_folder(path)
    write_whole(path, text.encode(), 0o666)
    return path


def _make_folder(path: Path) -> None:
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)


def _render_head(title: str, scripts: tuple[str, ...]) -> str:
    allowed = " ".join(f"'sha256-{hash_script(script)}'" for script in scripts) or "'none'"
    policy = f"{NOTHING_FETCHED}; script-src {allowed}"
    return "\n".join(
        (
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{_escape(title)}</title>",
            f"<style>{read_static('page.css')}{read_static('blocks.css')}</style>",
            "</head>",
        )
    )


def _render_header(page: Page, named: tuple[tuple[str, Section], ...]) -> str:
    lead = f"<p>{_escape(page.lead)}</p>" if page.lead else ""
    links = "".join(f'<li><a href="#{anchor}">{_escape(section.heading)}</a></li>' for anchor, section in named)
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(named) > 1 else ""
    return f"<header><h1>{_escape(page.title)}</h1>{lead}{contents}</header>"


def _render_section(anchor: str, section: Section) -> str:
    body = "\n".join(_render_block(block) for block in section.blocks)
    return f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{_escape(section.heading)}</h2>\n{body}\n</section>'


def _tell_tables_apart(html: str) -> str:
    """Number tables of one name: in a screen reader's list of regions each has a name of its own."""
    seen: Counter[str] = Counter()

    def name(found: re.Match[str]) -> str:
        seen[found[2]] += 1
        return f"{found[1]}{found[2]}{f', table {seen[found[2]]}' if seen[found[2]] > 1 else ''}{found[3]}"

    return re.sub(r'(<div class="wide" role="region" tabindex="0" aria-label=")([^"]*)(")', name, html)


def _render_block(block: Block) -> str:
    if isinstance(block, Paragraph):
        return _render_paragraphs(block.text)
    if isinstance(block, KeyFigures):
        return _render_key_figures(block)
    if isinstance(block, Table):
        return _render_table(block)
    if isinstance(block, Callout):
        return _render_callout(block)
    if isinstance(block, Commands):
        return _render_commands(block)
    return _render_plot(block)


def _render_paragraphs(text: str) -> str:
    return "".join(f"<p>{_escape(part)}</p>" for part in re.split(r"\n\s*\n", text.strip()) if part)


def _render_key_figures(block: KeyFigures) -> str:
    def one(value: str, label: str, remark: str) -> str:
        told = f'<dd class="remark">{_escape(remark)}</dd>' if remark else ""
        return f'<div><dt>{_escape(label)}</dt><dd class="value">{_escape(value)}</dd>{told}</div>'

    return f'<dl class="figures">{"".join(one(f.value, f.label, f.remark) for f in block.figures)}</dl>'


def _render_callout(block: Callout) -> str:
    title = block.title or block.tone.value.capitalize()
    body = f'<p class="title">{_escape(title)}</p>{_render_paragraphs(block.text)}'
    return f'<aside class="callout {block.tone.value}">{body}</aside>'


def _render_commands(block: Commands) -> str:
    lead = f'<p class="lead">{_escape(block.lead)}</p>' if block.lead else ""
    return f"{lead}<pre><code>{_escape(chr(10).join(block.lines))}</code></pre>"


def _render_table(table: Table) -> str:
    if not table.rows:
        return f'<p class="empty">{_escape(table.caption + ": no" if table.caption else "No")} rows.</p>'
    kinds = [' class="number"' if _is_numeric(table, place) else "" for place in range(len(table.columns))]
    caption = f"<caption>{_escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(
        f'<th scope="col"{kind}>{_escape(name)}</th>' if name else "<td></td>"
        for name, kind in zip(table.columns, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{_render_cell(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in table.rows
    )
    label = escape(table.caption or "Table", quote=True)
    drawn = (
        f'<div class="wide" role="region" tabindex="0" aria-label="{label}"><table>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    drawn = _add_search(drawn, table.search) if table.search else drawn
    short = ' class="short"' if len(table.rows) <= MOST_PRINTED_ROWS else ""
    return f"<details{short}><summary>{_escape(table.fold)}</summary>{drawn}</details>" if table.fold else drawn


def _add_search(drawn: str, label: str) -> str:
    """A table under a search box; without scripts the box stays hidden and every row is shown."""
    box = f"<label><span>{_escape(label)}</span><input type='search' autocomplete='off' spellcheck='false'></label>"
    return f'<div class="search"><p class="box">{box}<output aria-live="polite"></output></p>{drawn}</div>'


def _render_plot(plot: Plot) -> str:
    caption = f"<figcaption>{_escape(plot.caption)}</figcaption>" if plot.caption else ""
    twin, told = plot.twin, _escape(str(plot.spec["description"]))
    if not twin.rows:
        return f'<figure>{caption}<p class="empty">Nothing to draw: there are no rows.</p></figure>'
    if plot.spec.get("usermeta", {}).get("zero"):
        words = '<p class="empty">Every value is 0, so there is nothing to draw.</p>'
        return f"<figure>{caption}{words}{_render_table(twin)}</figure>"
    more = len(twin.rows) - MOST_TWIN_ROWS
    cut = Table(twin.columns, twin.rows[:MOST_TWIN_ROWS], twin.caption)
    note = f'<p class="more">{more:,} more rows are not shown.</p>' if more > 0 else ""
    short = ' class="short"' if len(twin.rows) <= MOST_PRINTED_ROWS else ""
    return (
        f'<figure class="vega">{caption}<div class="plot" role="img" aria-label="{told}"></div>'
        f"<noscript><p>{told}</p></noscript>"
        f"<details{short}><summary>The numbers as a table</summary>{_render_table(cut)}{note}</details>"
        f'<script type="application/json">{_encode_json(plot.spec)}</script></figure>'
    )


def _is_numeric(table: Table, place: int) -> bool:
    cells = [row[place] for row in table.rows if row[place] is not None]
    return bool(cells) and all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)


def _render_cell(cell: object) -> str:
    """A cell as people read it: thousands apart, floats to six figures, an absent value as a dash."""
    if cell is None:
        return '<span aria-label="no value">–</span>'  # noqa: RUF001 - a dash is meant
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return f"{cell:,.6g}" if abs(cell) < 1e6 else f"{cell:,.0f}"
    return _escape(str(cell))


def _escape(text: str) -> str:
    return escape(reveal_controls(text), quote=True)


def _encode_json(spec: object) -> str:
    """JSON that cannot end the script element it stands in, nor hold a number that JSON does not know."""
    text = json.dumps(spec, ensure_ascii=False, allow_nan=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def hash_script(script: str) -> str:
    """The hash by which a content security policy allows a script or a style."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def read_static(name: str) -> str:
    """A file of the pages' own: style, script, or vendored library."""
    return (files("deniable.reports") / "static" / name).read_text(encoding="utf-8")


@cache
def _load_scripts() -> tuple[tuple[str, str], ...]:
    """The scripts of a page with plots, as (attributes, text): Vega, Vega-Lite, then the interpreter with our own."""
    library = "\n".join(
        re.sub(r"^//# sourceMappingURL=.*$", "", read_static(name), flags=re.MULTILINE)
        for name in ("vega.min.js", "vega-lite.min.js")
    )
    # The interpreter is published as a module importing one other: inside a page both are already at hand.
    interpreter, changed = re.subn(
        r"^import (\{.*\}) from 'vega-util';$", r"const \1 = vega;", read_static("vega-interpreter.js"), flags=re.M
    )
    interpreter, named = re.subn(r"^export \{ (\w+) as (\w+) \};$", r"const \2 = \1;", interpreter, flags=re.M)
    own = re.sub(r"^//# sourceMappingURL=.*$", "", interpreter, flags=re.M) + "\n" + read_static("draw.js")
    if changed != 1 or named != 1 or "</script" in library + own:
        raise InternalError("The vendored drawing scripts are not those this page knows how to place")
    return ("", library), (' type="module"', own)
