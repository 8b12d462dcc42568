"""The workbench over a table whose names and texts are as odd as a policy lets them be."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app

LONG = "a" * 120
TURNED = "paid\u202etxt"
POLICY = f"""\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {{column: id, max_groups: 1, max_rows_per_group: 1}}
    columns:
      id: {{role: identifier}}
      sex: {{role: quasi-identifier, categories: [F, M]}}
      age: {{role: quasi-identifier, type: integer, between: [0, 100]}}
      seen: {{role: insensitive, type: date, between: [2025-01-01, 2025-12-31], mask: {{redact: {{}}}}}}
      note: {{role: sensitive}}
  odd:
    source: odd.csv
    unit: {{column: __proto__, max_groups: 1, max_rows_per_group: 1}}
    columns:
      __proto__: {{role: identifier, mask: redact}}
      constructor: {{role: quasi-identifier, categories: [constructor, other]}}
      "o'hara; DROP--": {{role: sensitive, categories: ["it's", b]}}
      {LONG}: {{role: quasi-identifier, categories: [{LONG}, {"b" * 120}]}}
  {"t" * 120}: {{source: towns.csv, public: true}}
budgets:
  dataset: {{epsilon: 100, delta: 1e-3, accounting: zcdp}}
  purposes:
    research: {{epsilon: 60, delta: 1e-4}}
    care: {{epsilon: 2, delta: 1e-5, terms: "Only for {"x" * 90}."}}
    archive: {{epsilon: 3, delta: 1e-5, every: month}}
  analysts:
    ana: {{purposes: [research], epsilon: 20, delta: 1e-5}}
    ben: {{purposes: [care], epsilon: 2, delta: 1e-6}}
release:
  anonymize: {{k: 2, suppress: 1}}
expires: 2099-12-31
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Callable[..., Any]) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("hostile")
    rows = "".join(
        f"p{i},{('constructor', 'other')[i % 2]},{('it' + chr(39) + 's', 'b')[i % 2]},{LONG}\n" for i in range(60)
    )
    (folder / "odd.csv").write_text(f"__proto__,constructor,o'hara; DROP--,{LONG}\n" + rows)
    with serving_clinic(folder, POLICY) as served:
        yield served


def client(up: Any, who: str) -> httpx.Client:
    """Somebody's session at the pages."""
    port = up.steward if who == "steward" else up.http
    return httpx.Client(base_url=port, cookies=up.session(who), timeout=60, follow_redirects=True)


def file_request(up: Any, table: str, technique: str, **more: str) -> tuple[str, str]:
    """File a request on the analyst's page: its id, and what the approvals then say of it."""
    with client(up, "ana") as ana, client(up, "steward") as steward:
        sent = {"table": table, "technique": technique, "purpose": "research", **more}
        assert 'role="alert"' not in ana.post("/requests", data=sent).text
        shown = steward.get("/requests").text
    article = shown.partition('<article class="request pending"')[2].partition("</article>")[0]
    return re.findall(r'id="request-([^"]+)"', article)[0], article


def list_failed(up: Any, who: str) -> dict[str, str]:
    """Why requests were approved and not made, as the HTTP API tells it."""
    port = up.steward if who == "steward" else up.http
    told = httpx.get(f"{port}/v1/requests", headers={"authorization": f"Bearer {up.tokens[who]}"}).json()
    return {each["id"]: each["failed"] for each in told["requests"] if "failed" in each}


def approve(up: Any, identity: str) -> str:
    with client(up, "steward") as steward:
        return steward.post(f"/requests/{identity}/approve", data={"reason": "fine"}).text


def wait_for(up: Any, identity: str, *statuses: str) -> Any:
    from deniable.curator.governance import reports

    context = up.curator.context
    for _ in range(600):
        found = next(each for each in reports.requests(context) if each.id == identity)
        if found.status in statuses or (found.failed and "failed" in statuses):
            return found
        time.sleep(0.1)
    raise AssertionError(f"the request is still {found.status}")


@pytest.mark.parametrize(
    ("table", "technique", "more"),
    [("people", "anonymize", {}), ("odd", "anonymize", {}), ("odd", "mask", {}),
     ("people", "synthesize", {"epsilon": "1", "delta": "1e-6", "k": "5"})],
)  # fmt: skip
def test_the_columns_named_before_the_approval_are_those_of_the_file_that_the_analyst_loads(
    up, tmp_path, table, technique, more
):
    identity, article = file_request(up, table, technique, **more)
    named = re.findall(r"<dt>Columns that leave</dt><dd>[^:]*: (.*?)</dd>", article)[0]
    approve(up, identity)
    wait_for(up, identity, "released")
    with client(up, "ana") as ana:
        link = re.findall(rf'href="(/requests/{identity}/rows[^"]*)"', ana.get("/requests").text)[0]
        (tmp_path / "rows.parquet").write_bytes(ana.get(link).content)
    assert named.replace("&#39;", "'").split(", ") == pq.read_schema(tmp_path / "rows.parquet").names
    with client(up, "ben") as ben:
        assert ben.get(link).status_code == 404


def test_a_release_that_fails_after_its_approval_is_told_to_the_steward_and_to_who_asked(up):
    rows = up.folder / "people.parquet"
    identity, _ = file_request(up, "people", "anonymize", justification=TURNED)
    kept = rows.read_bytes()
    rows.write_bytes(b"no parquet")
    try:
        approve(up, identity)
        wait_for(up, identity, "failed")
        with client(up, "steward") as steward, client(up, "ana") as ana:
            assert "Approved, and not made:" in steward.get("/requests").text
            assert identity in steward.get("/incidents").text
            own = ana.get("/requests").text
            assert "Approved, and not made yet:" in own
            assert str(up.folder) not in own
            assert "Make it here" not in own
    finally:
        rows.write_bytes(kept)
    told, known = (list_failed(up, who)[identity] for who in ("ana", "steward"))
    place = ["-p", str(up.folder / "policy.yaml"), "--ledger", str(up.folder / "ledger.sqlite")]
    printed = CliRunner().invoke(app, ["requests", *place]).output
    assert "deniable cannot answer now" in told
    assert "people.parquet" not in told, "who asks learns of no file of the server"
    assert "people.parquet" in known
    assert f"approved, and not made: {known[:30]}" in " ".join(printed.split())
    with client(up, "steward") as steward:
        again = steward.post(f"/requests/{identity}/again").text
        assert "Approved, and not made:" not in again
        assert "\u202e" not in again
        assert r"paid\u202etxt" in again, "controls that turn the order of letters are written out"
    assert wait_for(up, identity, "released").release
    assert identity not in list_failed(up, "steward")


def test_nothing_is_approved_while_the_file_is_another_policy_than_the_one_that_is_served(up):
    identity, _ = file_request(up, "people", "anonymize")
    file = up.folder / "policy.yaml"
    kept = file.read_text()
    file.write_text(kept.replace("epsilon: 60", "epsilon: 59"))
    try:
        shown = approve(up, identity)
    finally:
        file.write_text(kept)
    assert "changed after the server was started" in shown
    assert wait_for(up, identity, "pending").status == "pending"
    approve(up, identity)
    assert wait_for(up, identity, "released").release


def test_budgets_list_every_purpose_also_one_that_nobody_has(up):
    with client(up, "steward") as steward:
        shown = steward.get("/budgets").text.partition("<h2>Purposes</h2>")[2].partition("<h2>")[0]
    rows = [re.sub("<[^>]+>", "|", each) for each in re.findall("<tr>(.*?)</tr>", shown)[1:]]
    assert [each.strip("|").split("|")[0] for each in rows] == ["research", "care", "archive"]
    assert "3 of 3 left" in rows[2]
    assert "nobody yet" in rows[2]
    assert rows[0].endswith("|ana||") or "|ana|" in rows[0]


def test_evidence_is_shown_where_the_name_of_a_column_is_also_a_value(up):
    with client(up, "steward") as steward:
        shown = steward.get("/policy/evidence/odd")
    assert shown.status_code == 200
    assert "<code>constructor</code>" in shown.text


def test_links_keep_the_delta_and_the_purpose_of_each_question(up, visit):
    asked = [("sql", "SELECT COUNT(*) AS n FROM people"), ("epsilon", "0.25"), ("delta", "1e-7"),
             ("purpose", "research"), ("sql", "SELECT COUNT(*) AS m FROM people"), ("epsilon", "0.5"), ("delta", ""),
             ("purpose", "research")]  # fmt: skip
    page = visit("ana", "/?" + urlencode(asked))
    page.wait_for_selector("html[data-ready=yes]")
    assert [each.input_value() for each in page.locator("#cells [name=delta]").all()] == ["1e-7", ""]
    page.locator("#cells [name=delta]").nth(1).fill("1e-8")
    link = page.get_attribute("#permalink", "href")
    assert "delta=1e-7" in link
    assert "delta=1e-8" in link
    with page.expect_response("**/ask/answer"):
        page.locator("button[value=ask]").first.click()
    page.locator(".answer table").first.wait_for()
    copied = page.locator(".elsewhere pre").all_text_contents()
    assert len(copied) == 4
    assert all("1e-7" in each for each in copied), copied


def test_names_are_completed_and_clicked_with_the_quotes_that_they_need(visit):
    page = visit("ana")
    page.wait_for_selector("html[data-ready=yes]")
    page.wait_for_load_state("networkidle")
    page.get_by_role("button", name="sex", exact=True).click()
    assert page.locator(".cm-content").inner_text().endswith(" sex"), "a first click writes at the end"
    for typed, wanted in (
        ("SELECT COUNT(*) FROM odd WHERE o", '"o\'hara; DROP--"'),
        ('SELECT COUNT(*) FROM odd WHERE "o', '"o\'hara; DROP--"'),
        ("SELECT COUNT(*) FROM odd WHERE \"o'hara; DROP--\" = 'i", "'it''s"),
        ("SELECT COUNT(*) FROM people WHERE sex = 'F' AND ag", "age"),
    ):
        page.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.insert_text(typed[:-1])
        page.keyboard.type(typed[-1])
        page.wait_for_selector(".cm-tooltip-autocomplete li[aria-selected]")
        page.wait_for_timeout(120)  # an editor takes no completion in the moment in which its list opens
        page.keyboard.press("Enter")
        page.wait_for_selector(".cm-tooltip-autocomplete", state="detached")
        assert page.locator(".cm-content").inner_text().endswith(wanted), typed


def test_a_refusal_stands_once_on_the_page(visit):
    page = visit("ana")
    page.wait_for_selector("html[data-ready=yes]")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("SELECT COUNT(*) FROM people WHERE nope = 1")
    page.wait_for_selector(".mistake:not([hidden])")
    with page.expect_response("**/ask/answer"), page.expect_response("**/ask/preview"):
        page.locator("button[value=ask]").first.click()
    page.wait_for_selector(".answer [role=alert]")
    page.wait_for_selector(".mistake", state="hidden")
    assert page.inner_text("main").count("There is no column 'nope'") == 1


ANALYST = ("/", "/tables", "/history", "/requests", "/register", "/nowhere")
STEWARD = ("/", "/requests", "/budgets", "/policy", "/policy/evidence/odd", "/tokens", "/people", "/ledger",
           "/incidents", "/estate", "/labs", "/labs/lattice?table=odd", "/labs/tradeoff?table=odd",
           "/labs/attack?table=odd", "/labs/synthetic?table=odd", "/labs/model?table=odd", "/labs/survey",
           "/start")  # fmt: skip
FIND_WIDE = """() => [document.documentElement, ...document.querySelectorAll("main *")]
  .filter((each) => !each.closest("svg, .scroll *, .visually-hidden") || each.matches(".scroll"))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 || each === document.documentElement
    && each.scrollWidth > innerWidth).map((each) => `${each.tagName}.${each.className} ${each.textContent.trim()}`)"""
FIND_WIDE_TABLES = """() => [...document.querySelectorAll("main table")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.innerText)"""


VIEWS = ((360, "screen"), (700, "print"), (1200, "screen"))


def find_wide(page: Any) -> dict[tuple[int, str], list[str]]:
    """What is wider than each view of a page that was loaded once, at the width of a phone."""
    found = {}
    for width, media in VIEWS:
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(media=media)
        found[width, media] = page.evaluate(FIND_WIDE)
        if media == "print":
            found[width, media] += page.evaluate(FIND_WIDE_TABLES)
    page.set_viewport_size({"width": VIEWS[0][0], "height": 800})
    page.emulate_media(media="screen")
    return {view: wide for view, wide in found.items() if wide}


def test_long_names_make_no_page_wider_than_the_view(visit, up):
    question = {"sql": f"SELECT {LONG}, COUNT(*) AS n FROM odd GROUP BY {LONG}", "epsilon": "0.1"}
    found = {}
    for who, port, paths in (
        ("ana", up.http, ANALYST),
        ("ben", up.http, ("/terms",)),
        ("steward", up.steward, STEWARD),
    ):
        page = visit(who, width=VIEWS[0][0])
        for path in paths:
            page.goto(port + path)
            found[who, path] = find_wide(page)
    page = visit("ana", "/?" + urlencode(question), width=VIEWS[0][0])
    page.wait_for_selector("html[data-ready=yes]")
    with page.expect_response("**/ask/answer"):
        page.locator("button[value=ask]").click()
    page.locator(".answer table").wait_for()
    found["ana", "answer"] = find_wide(page)
    assert {place: wide for place, wide in found.items() if wide} == {}


FIND_STACKED = """() => [...document.querySelectorAll("main th, main td")].filter((each) => each.checkVisibility())
  .filter((cell) => {
    const text = document.createRange();
    text.selectNodeContents(cell);
    const lines = new Set([...text.getClientRects()].map((box) => Math.round(box.top / 6)));
    return lines.size > cell.innerText.trim().split(/\\s+|(?<=-)/).length
      || text.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1;
  }).map((cell) => cell.innerText)"""


def test_on_a_phone_no_name_in_a_table_is_broken_and_no_cell_covers_the_next(visit, up):
    short = {
        "ana": ("/tables", "/history"),
        "steward": ("/budgets", "/policy/evidence/people", "/incidents", "/ledger"),
    }
    found = {}
    for who, paths in short.items():
        page = visit(who, width=390)
        for path in paths:
            page.goto((up.http if who == "ana" else up.steward) + path)
            found[path] = [each for each in page.evaluate(FIND_STACKED) if max(map(len, each.split())) < 100]
    assert {path: stacked for path, stacked in found.items() if stacked} == {}


def test_a_policy_that_protects_less_is_said_to_protect_less(up):
    text = (up.folder / "policy.yaml").read_text().replace("k: 2,", "k: 5,")
    with client(up, "steward") as steward:
        stricter = steward.post("/policy", data={"text": text, "deed": "compare"}).text
        masks = steward.post("/policy", data={"text": text.replace(", mask: redact", ""), "deed": "compare"}).text
    assert "It would protect more in one point." in stricter
    assert "It would protect less:" in masks
    assert re.search("It would protect less:</p><ul><li>[^<]*__proto__", masks)
