"""How long each page of the workbench takes to its first view in Chromium, on loopback, and how many bytes it loads.

    python bench/first_view.py

Prints one line a page: milliseconds to the first contentful paint, CPU milliseconds of the browser's main thread, and
bytes. Ends with 1 where a page takes a second or more, or loads a megabyte or more.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ANALYST = ("/", "/tables", "/history", "/requests", "/register")
STEWARD = ("/", "/requests", "/budgets", "/policy", "/policy/evidence/visits", "/tokens", "/people", "/ledger",
           "/incidents", "/estate", "/labs", "/labs/lattice", "/labs/tradeoff", "/labs/attack", "/labs/synthetic",
           "/labs/model", "/labs/survey", "/start")  # fmt: skip
PORTS = (9480, 9481)
MOST_SECONDS, MOST_BYTES = 1.0, 1_000_000
VIEWS = 3
"""Each page is viewed so often, and the fastest view counts: other work on the machine slows the others."""
POLICY = """\
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: patient, max_groups: 1, max_rows_per_group: 1}
    columns:
      patient: {role: identifier}
      sex: {role: quasi-identifier, categories: [F, M]}
      age: {role: quasi-identifier, type: integer, between: [0, 100]}
      diagnosis: {role: sensitive, categories: [flu, asthma, burn]}
budgets:
  dataset: {epsilon: 10}
  purposes: {research: {epsilon: 10}}
  analysts: {ana: {purposes: [research], epsilon: 10}}
expires: 2099-12-31
"""
READ = """() => {
  const entries = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return [paint ? paint.startTime : 1e9,  // not painted yet: another view counts
    entries.reduce((sum, each) => sum + each.decodedBodySize, 0)];
}"""


def main() -> int:
    """Serve a small table and look at every page, with an empty cache each."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        with (place / "visits.csv").open("w") as file:
            rows = csv.writer(file)
            rows.writerow(["patient", "sex", "age", "diagnosis"])
            rows.writerows([f"p{i}", "FM"[i % 2], i % 90, ("flu", "asthma", "burn")[i % 3]] for i in range(1000))
        (place / "policy.yaml").write_text(POLICY)
        command = [sys.executable, "-m", "deniable"]
        tokens = {
            role: _issue([*command, "token", "new", name, "--role", role, "--json", *more], place)
            for role, name, more in (("analyst", "ana", ("--purpose", "research")), ("steward", "helen", ()))
        }
        serve = [*command, "serve", "policy.yaml", "--port", str(PORTS[0]), "--steward", f"127.0.0.1:{PORTS[1]}",
                 "--postgres", "0"]  # fmt: skip
        server = subprocess.Popen(serve, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return _look(tokens)
        finally:
            server.terminate()
            server.wait(30)


def _issue(command: list[str], place: Path) -> str:
    said = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    return str(json.loads(said.stdout)["token"])


def _look(tokens: dict[str, str]) -> int:
    slow = 0
    with sync_playwright() as driver:
        found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        print(f"{'page':34} {'paint ms':>9} {'CPU ms':>8} {'bytes':>10}")
        for role, port, paths in (("analyst", PORTS[0], ANALYST), ("steward", PORTS[1], STEWARD)):
            base = f"http://127.0.0.1:{port}"
            for path in paths:
                views = [_measure(browser, base, path, f"deniable_{role}", tokens[role]) for _ in range(VIEWS)]
                paint, spent, size = min(views)
                slow += paint >= 1000 * MOST_SECONDS or size >= MOST_BYTES
                print(f"{role + ' ' + path:34} {paint:9.0f} {spent:8.0f} {size:10,}", flush=True)
        browser.close()
    print(f"{slow} pages take {MOST_SECONDS:g} s or {MOST_BYTES:,} bytes or more")
    return 1 if slow else 0


def _measure(browser: Any, base: str, path: str, cookie: str, token: str) -> tuple[float, float, int]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.add_cookies([{"name": cookie, "value": token, "url": base}])
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    for _ in range(200):
        try:
            page.goto(base + path)
            break
        except Exception:  # the server is still starting
            time.sleep(0.1)
    page.wait_for_load_state("networkidle")
    told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    paint, size = page.evaluate(READ)
    context.close()
    return paint, 1000 * told["TaskDuration"], size


if __name__ == "__main__":
    sys.exit(main())
