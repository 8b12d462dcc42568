"""Make the pictures of README from the demo: `python docs/pictures.py DEMO_JSON STORY_HTML`.

    deniable demo --out demo-output --json > demo.json
    python docs/pictures.py demo.json demo-output/story.html

The plot is the demo's own, as SVG (extra `plots`); the picture shows its page in a browser (playwright, chromium).
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from deniable.reports.demo import build_demo_page
from deniable.reports.plots import render_svg

ASSETS = Path(__file__).parent / "assets"


def draw_plot(chapters: list[dict[str, object]]) -> str:
    """How many people an intruder names in each kind of rows, as SVG."""
    chosen = next(each for each in chapters if each["title"] == "The intruder comes back")
    section = build_demo_page("demo", [chosen]).sections[0]
    return render_svg(next(block.spec for block in section.blocks if hasattr(block, "spec")), width=560)


def take_picture(page: Path, out: Path) -> None:
    """The chapter on who can be found, as a small picture."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1000, "height": 640})
        shown.goto(page.resolve().as_uri())
        shown.get_by_role("heading", name="He is no exception").evaluate("heading => heading.scrollIntoView()")
        shown.wait_for_timeout(1500)
        shown.screenshot(path=out, type="jpeg", quality=70)
        browser.close()


def main(told: str, story: str) -> None:
    """Write both."""
    ASSETS.mkdir(exist_ok=True)
    chapters = json.loads(Path(told).read_text(encoding="utf-8"))
    (ASSETS / "demo-plot.svg").write_text(draw_plot(chapters), encoding="utf-8")
    take_picture(Path(story), ASSETS / "demo-page.jpg")


if __name__ == "__main__":
    main(*sys.argv[1:])
