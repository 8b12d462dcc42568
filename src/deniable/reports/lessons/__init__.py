"""Lessons with toys, as static pages: each is one file that opens from a disk, without a server or a network.

A lesson is a fragment of HTML and a script in the folder `pages`; here they are put into whole pages with the style of
the reports. Under a page's content security policy only its own script and style run, by their hash, and nothing can be
fetched. What a toy computes, it computes in the browser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import escape, unescape
from importlib.resources import files
from pathlib import Path

from deniable.errors import InternalError
from deniable.reports.page import hash_script, read_static, write_text

LESSONS = (
    "coins",
    "laplace",
    "game",
    "averaging",
    "governor",
    "ratings",
    "homogeneity",
    "releases",
    "newspapers",
    "block",
    "auditing",
    "synthetic",
    "trust",
)
"""The lessons in the order in which they are best taught."""
SHARED = ("mathematics.js", "toy.js")
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:"
CLASS_PAGES = ("join", "class")
"""Pages that need the server of `deniable learn --serve`: the phones', and the teacher's."""


def write_lessons(folder: Path) -> list[Path]:
    """Write every page into a folder; the first is the one to open."""
    return [write_text(text, folder / name) for name, text in build_pages().items()]


def build_pages(served: bool = False) -> Mapping[str, str]:
    """Every page by the name of its file, the list of lessons first; `served` adds those for a class with phones."""
    pages = {"index.html": _build_page("index", _list_lessons(served)), "teacher.html": _build_page("teacher", "")}
    pages |= {f"{name}.html": _build_page(name, _link_neighbors(name)) for name in LESSONS}
    if served:
        pages |= {f"{name}.html": _build_page(name, "", fetches="; connect-src 'self'") for name in CLASS_PAGES}
    return pages


def list_titles() -> Mapping[str, str]:
    """The titles of the lessons by name."""
    return {name: read_title(name) for name in LESSONS}


def read_title(name: str) -> str:
    """A page's heading as text."""
    found = re.search(r"<h1>(.*?)</h1>", _read(f"pages/{name}.html"), re.DOTALL)
    if found is None:
        raise InternalError(f"The lesson '{name}' has no heading")
    return unescape(found[1])


def read_commands(name: str) -> str:
    """The commands of a lesson, as they are typed."""
    found = re.search(
        r'<section class="command">.*?<pre><code>(.*?)</code></pre>', _read(f"pages/{name}.html"), re.DOTALL
    )
    if found is None:
        raise InternalError(f"The lesson '{name}' has no command")
    return unescape(found[1])


def _build_page(name: str, below: str, fetches: str = "") -> str:
    script = _join_scripts(name)
    style = read_static("page.css") + read_static("blocks.css") + _read("static/lessons.css")
    allowed = f"'sha256-{hash_script(script)}'" if script else "'none'"
    policy = f"{NOTHING_ELSE}; style-src 'sha256-{hash_script(style)}'; script-src {allowed}{fetches}"
    silent = "<noscript><p>The toy of this page needs JavaScript; the texts do not.</p></noscript>" if script else ""
    body = _read(f"pages/{name}.html").replace("<pre>", '<pre tabindex="0">')  # wide lines scroll, by keys too
    home = "" if name in ("index", "join") else '<p class="top"><a href="index.html">All lessons</a></p>'
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape(read_title(name))}</title>",
            f"<style>{style}</style></head><body>",
            '<a class="skip" href="#main">Skip to the text</a>',
            f"<header>{home}</header>",
            f'<main id="main">{silent}{body}{below}</main>',
            "<footer><p>Lessons of deniable. All people here are made up.</p></footer>",
            f"<script>{script}</script>" if script else "",
            "</body></html>\n",
        )
    )


def _join_scripts(name: str) -> str:
    own = files(__name__) / "pages" / f"{name}.js"
    if not own.is_file():
        return ""
    script = "\n".join(('"use strict";', *(_read(f"static/{each}") for each in SHARED), own.read_text("utf-8")))
    if "</script" in script:
        raise InternalError(f"The script of '{name}' would end its element")
    return script


def _list_lessons(served: bool) -> str:
    rows = "".join(
        f'<li><a href="{name}.html">{escape(title)}</a><p>{_read_question(name)}</p></li>'
        for name, title in list_titles().items()
    )
    phones = '<p><a href="class.html">Ask your class with phones</a></p>' if served else ""
    return f'{phones}<ol class="list">{rows}</ol>'


def _read_question(name: str) -> str:
    found = re.search(r'<p class="question">(.*?)</p>', _read(f"pages/{name}.html"), re.DOTALL)
    return found[1] if found else ""


def _link_neighbors(name: str) -> str:
    place = LESSONS.index(name)
    back, on = LESSONS[place - 1] if place else None, LESSONS[place + 1] if place + 1 < len(LESSONS) else None
    links = [f'<a href="{each}.html">{word}: {escape(read_title(each))}</a>' for each, word in
             ((back, "Before"), (on, "Next")) if each]  # fmt: skip
    return f'<nav class="turn" aria-label="Other lessons">{"".join(links)}</nav>'


@cache
def _read(name: str) -> str:
    return (files(__name__) / name).read_text(encoding="utf-8")
