"""The workbench in a real Chromium: asking, dragging epsilon, running out of budget, policies, approvals, axe, CSP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from deniable.query import execute

FIND_MARKS_OUTSIDE = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text, rect, line, circle")].filter((mark) => {
    const box = mark.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
      || box.bottom > frame.bottom + 1;
  }).map((mark) => `${mark.tagName} ${mark.textContent}`);
})"""
HOSTILE = "<img src=x onerror=alert(1)>"
GROUPS = "SELECT sex, COUNT(*) AS n, AVG(age) AS mean_age FROM people GROUP BY sex"
POLICY = f"""\
version: 1
dataset: clinic
tables:
  people:
    source: people.parquet
    unit: {{column: id, max_groups: 1, max_rows_per_group: 1}}
    columns:
      id: {{role: identifier, mask: redact}}
      sex: {{role: quasi-identifier, categories: [F, M, "{HOSTILE}"]}}
      age: {{role: quasi-identifier, type: integer, between: [0, 100]}}
      seen: {{role: insensitive, type: date, between: [2025-01-01, 2025-12-31]}}
      note: {{role: sensitive}}
  "{HOSTILE}":
    source: towns.csv
    public: true
budgets:
  dataset: {{epsilon: 100, accounting: pure}}
  purposes:
    research: {{epsilon: 60, approvals: 2}}
    care: {{epsilon: 2}}
  analysts:
    ana: {{purposes: [research], epsilon: 20}}
    ben: {{purposes: [care], epsilon: 2}}
expires: 2099-12-31
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Callable[..., Any]) -> Iterator[Any]:
    """One server for all tests here, with a second steward."""
    from deniable.curator.governance import requests
    from deniable.governance.grants import Role

    with serving_clinic(tmp_path_factory.mktemp("bench"), POLICY) as served:
        served.tokens["second"], _ = requests.issue(served.curator.context, "helen", Role.STEWARD)
        yield served


def write(page: Any, sql: str, epsilon: str = "", cell: int = 0) -> None:
    """Type a question and wait until it is priced, or its mistake is shown."""
    section = page.locator(".cell").nth(cell)
    page.wait_for_selector("html[data-ready=yes]")
    section.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(sql)
    with page.expect_response("**/ask/preview"):
        if epsilon:
            section.locator("[name=epsilon]").fill(epsilon)


def ask(page: Any, cell: int = 0) -> str:
    """Ask, and give what is shown then."""
    section = page.locator(".cell").nth(cell)
    with page.expect_response("**/ask/answer"):
        section.locator("button[value=ask]").click()
    section.locator("progress").wait_for(state="hidden")
    return str(section.locator(".answer").inner_text())


def test_a_question_is_priced_as_it_is_typed_and_its_mistake_is_underlined_where_it_is(visit):
    page = visit("ana")
    write(page, "SELECT sex, COUNT(*) AS n FROM people WHERE sx = 'F' GROUP BY sex")
    page.wait_for_selector(".cm-lintRange-error")
    assert page.locator(".cm-lintRange-error").inner_text() == "sx"
    assert "There is no column 'sx'" in page.inner_text(".mistake")
    with page.expect_response("**/ask/preview"):
        page.get_by_role("button", name="Use 'sex'").click()
    page.wait_for_selector(".mistake", state="hidden")
    assert page.input_value("#sql") == "SELECT sex, COUNT(*) AS n FROM people WHERE sex = 'F' GROUP BY sex"
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    assert page.inner_text(".cm-placeholder").startswith("Write a question")
    write(page, GROUPS, "0.5")
    page.wait_for_selector(".price:has-text('this takes 0.5')")
    assert re.search(
        r"^Budget of analyst 'ana': [\d.]+ of 20 left; this takes 0\.5; about \d+ like it fit\.$",
        page.inner_text(".price"),
    )
    count, mean = page.locator(".errors li").all_inner_texts()
    assert count == "COUNT(*) ± 10"
    assert re.match(r"AVG\(age\) at most ± [\d.,]+ over [\d,]+ rows, ± [\d.,]+ over [\d,]+ rows; how many", mean)
    assert page.locator(".mistake").is_hidden()


def test_the_handle_of_the_curve_is_dragged_and_moved_by_keys(visit):
    page = visit("ana")
    write(page, GROUPS, "0.1")
    handle = page.locator(".handle")
    page.wait_for_selector(".legend:has-text('AVG(age)')")
    count, mean = page.locator(".legend .key").all_inner_texts()
    assert count == "COUNT(*): number of rows"
    assert re.fullmatch(r"AVG\(age\) over 1,?0+ rows", mean), "the error of the mean, and not of its parts"
    before = page.inner_text(".errors")
    box, svg = handle.bounding_box(), page.locator(".plot svg").bounding_box()
    page.mouse.move(box["x"] + 11, box["y"] + 11)
    page.mouse.down()
    page.mouse.move(svg["x"] + svg["width"] * 0.68, box["y"], steps=4)
    with page.expect_response("**/ask/preview"):
        page.mouse.up()
    dragged = float(page.input_value("#epsilon"))
    assert 0.8 < dragged < 1.3
    page.wait_for_function("before => document.querySelector('.errors').innerText !== before", arg=before)
    handle.focus()
    page.keyboard.press("ArrowLeft")
    assert float(page.input_value("#epsilon")) < dragged
    assert handle.get_attribute("aria-valuetext").startswith(f"epsilon {page.input_value('#epsilon')}, error about")
    page.keyboard.press("Home")
    assert page.input_value("#epsilon") == "0.01"


def test_an_answer_is_sorted_loaded_as_files_and_free_when_repeated(visit, tmp_path):
    page = visit("ana")
    write(page, GROUPS, "2")
    first = ask(page)
    assert "Charged: epsilon 2" in first
    assert "±" in first
    assert page.locator(".answer svg circle.value").count() == 6
    assert page.evaluate(FIND_MARKS_OUTSIDE) == []
    heading = page.get_by_role("button", name="n", exact=True)
    heading.click()
    assert page.locator(".answer th[aria-sort=ascending]").count() == 1
    shown = [
        float(each)
        for each in page.eval_on_selector_all(".answer tbody tr", "all => all.map(r => r.cells[1].dataset.sort)")
    ]
    assert shown == sorted(shown)
    for form in ("CSV", "Parquet", "Arrow"):
        with page.expect_download() as loading:
            page.get_by_role("link", name=form, exact=True).click()
        loading.value.save_as(tmp_path / form)
    assert pq.read_table(tmp_path / "Parquet").column_names[:2] == ["sex", "n"]
    assert (tmp_path / "CSV").read_text().startswith("sex,n,")
    assert "free repeat" in ask(page)
    link = page.get_attribute("#permalink", "href")
    page.goto(page.url.rstrip("/") + link)
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator(".cm-content").inner_text().strip() == GROUPS
    assert page.locator(".answer table").count() == 0, "a link asks nothing"


def test_several_questions_stand_on_one_page_and_end_when_the_budget_is_out(visit, find_violations):
    page = visit("ben")
    write(page, "SELECT COUNT(*) AS n FROM people", "1.5")
    assert "Charged" in ask(page)
    page.click("#add")
    write(page, "SELECT COUNT(*) AS m FROM people WHERE age < 50", "1.5", cell=1)
    second = page.locator(".cell").nth(1)
    second.locator(".price.over").wait_for()
    assert "0.5 of 2 left; this takes more than that" in second.locator(".price").inner_text()
    assert "The budget does not allow this" in ask(page, cell=1)
    assert "0.5 of 2 left" in page.inner_text("#balance")
    write(page, "SELECT COUNT(*) AS m FROM people WHERE age < 50", "0.5", cell=1)
    second.locator(".price:has-text('the last one that fits')").wait_for()
    assert "Charged" in ask(page, cell=1)
    assert find_violations(page) == []


def test_a_repeat_is_announced_as_free_when_the_budget_is_out(visit):
    page = visit("ben")
    write(page, "SELECT COUNT(*) AS n FROM people", "1.5")
    page.locator(".price:has-text('this is free')").wait_for()
    assert page.locator(".price.over").count() == 0
    assert "free repeat" in ask(page)


def test_a_question_that_runs_is_cancelled_and_the_page_says_what_was_charged(visit, monkeypatch):
    slow, endless = "SELECT COUNT(*) AS n FROM people WHERE age > 77", "range(1000000) a, range(1000000) b"
    real = execute.measure

    def measure(plan: Any, engine: Any, **rest: Any) -> Any:
        return (
            engine.run(f"SELECT sum(a.range * b.range % 7) FROM {endless}")
            if plan.text == slow
            else real(plan, engine, **rest)
        )

    monkeypatch.setattr(execute, "measure", measure)
    page = visit("ana")
    write(page, slow, "0.1")
    page.locator("button[value=ask]").click()
    cancel = page.get_by_role("button", name="Cancel")
    cancel.wait_for()
    page.wait_for_selector("progress:not([hidden])")
    with page.expect_response("**/ask/answer"):
        cancel.click()
    told = page.locator(".answer [role=alert]")
    told.wait_for()
    assert "charged" in told.inner_text()
    cancel.wait_for(state="hidden")
    assert page.locator("button[value=ask]").is_enabled()


def test_psql_is_shown_with_the_port_of_this_server(visit, up):
    page = visit("ana")
    write(page, "SELECT COUNT(*) AS n FROM people", "0.11")
    ask(page)
    page.get_by_text("Ask the same in Python, psql, R, curl").click()
    assert f"-p {up.postgres} " in page.inner_text("pre[aria-label=psql]")


def test_tables_columns_categories_and_functions_are_completed(visit):
    page = visit("ana")
    page.wait_for_selector("html[data-ready=yes]")
    page.wait_for_load_state("networkidle")
    for typed, wanted in (("SELECT MED", "MEDIAN(x)"), ("SELECT a", "age"), ("SELECT COUNT(*) FROM peo", "people"),
                          ("SELECT COUNT(*) FROM people WHERE sex = '", "F")):  # fmt: skip
        page.locator(".cm-content").click()
        page.keyboard.press("Control+A")
        page.keyboard.type(typed)
        # The list of what was typed before may still be there for a moment.
        page.locator(".cm-completionLabel").filter(has_text=re.compile(f"^{re.escape(wanted)}$")).first.wait_for()
        page.keyboard.press("Escape")
    page.get_by_role("button", name="seen", exact=True).click()
    assert "seen" in page.locator(".cm-content").inner_text()


def test_names_values_comments_and_refusals_cannot_become_markup(visit, up):
    page = visit(
        "ana",
        "/?" + "sql=SELECT%20COUNT(*)%20FROM%20people%20--%20%3C%2Ftextarea%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    )
    page.wait_for_selector("html[data-ready=yes]")
    write(page, f'SELECT sex AS "{HOSTILE}", COUNT(*) AS n FROM people GROUP BY sex /* {HOSTILE} */', "0.3")
    assert HOSTILE in ask(page)
    write(page, f'SELECT COUNT(*) FROM "{HOSTILE}<script>alert(1)</script>"', "0.2")
    page.wait_for_selector(".mistake:not([hidden])")
    for path in ("/tables", "/history", "/requests", "/register"):
        page.goto(up.http + path)
        assert page.locator("main img").count() == 0, path
        assert page.locator("main script").count() == 0, path
    assert HOSTILE in visit("ana", "/tables").inner_text("main")


def test_forms_and_scripts_of_other_sites_are_refused(up):
    question = {"sql": "SELECT COUNT(*) FROM people", "epsilon": "1"}
    analyst = httpx.Client(base_url=up.http, cookies=up.session("ana"))
    steward = httpx.Client(base_url=up.steward, cookies=up.session("steward"))
    with analyst, steward:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            for path in ("/ask/answer", "/ask/preview", "/ask/curve", "/ask/cancel"):
                assert analyst.post(path, json=question, headers=headers).status_code == 403, path
            for path in ("/ask", "/requests", "/terms", "/leave"):
                assert analyst.post(path, data=question, headers=headers).status_code == 403, path
            for path in ("/policy", "/tokens", "/people/withdraw", "/start", "/requests/x/approve", "/first/x"):
                assert steward.post(path, data={}, headers=headers).status_code == 403, path
            assert steward.post("/policy/check", json={"text": ""}, headers=headers).status_code == 403
        assert analyst.post("/ask/answer", data=question).status_code == 415
        analyst.cookies.clear()
        assert analyst.post("/ask/answer", json=question).status_code == 401


def test_a_mistake_in_the_policy_is_underlined_and_what_is_mended_is_saved(visit, up, find_violations):
    file, page = up.folder / "policy.yaml", visit("steward", "/policy")
    page.wait_for_selector("html[data-ready=yes]")
    kept = file.read_text()
    changed = kept.replace("role: insensitive", "role: insensative")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(changed)
    page.wait_for_selector("#verdict:has-text('1 mistake')")
    assert re.search(r"Line \d+: .*insensative", page.inner_text("#verdict"))
    assert page.locator(".cm-lintRange-error").inner_text() == "insensative"
    assert find_violations(page) == []
    page.get_by_role("button", name="Save").click()
    assert file.read_text() == kept, "a policy with a mistake is not written"
    page.wait_for_selector("html[data-ready=yes]")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(kept.replace("ben: {purposes: [care], epsilon: 2}", "ben: {purposes: [care], epsilon: 1}")
                              .replace("role: insensitive", "role: quasi-identifier"))  # fmt: skip
    page.wait_for_selector("#verdict:has-text('No mistake')")
    page.get_by_role("button", name="What would change").click()
    told = page.inner_text("aside")
    assert "The limit of analyst 'ben' would be epsilon 1, and is epsilon 2." in told
    assert re.search(
        r"[\d,]+ of 300 rows would be the only ones with their values of sex, age, seen; 100 are now", told
    )
    page.get_by_role("button", name="Save").click()
    assert "Saved" in page.inner_text("main")
    assert "epsilon: 1}" in file.read_text()
    file.write_text(kept)


def test_a_policy_from_afar_cannot_name_other_files_of_the_machine(visit, up):
    file, page = up.folder / "policy.yaml", visit("steward", "/policy", scripts=False)
    page.fill("#text", file.read_text().replace("source: towns.csv", "source: /etc/passwd"))
    page.click("button[value=save]")
    assert "outside the policy's folder" in page.inner_text("[role=alert]")
    assert "/etc/passwd" not in file.read_text()


def test_a_request_is_approved_by_a_second_person(visit):
    analyst = visit("ana", "/requests")
    analyst.select_option("#technique", "anonymize")
    assert analyst.is_visible("#k")
    assert not any(analyst.is_visible(field) for field in ("#epsilon", "#delta", "#mode")), "those of other kinds"
    analyst.fill("#k", "many")
    analyst.get_by_text("none chosen: all that may leave").click()
    analyst.check("input[name=column][value=sex]")
    analyst.fill("#justification", "a study of admissions")
    analyst.get_by_role("button", name="Send the request").click()
    assert analyst.inner_text("[role=alert]").startswith("k is not a whole number. How many people look alike at least")
    assert analyst.is_checked("input[name=table][value=people]")
    assert analyst.is_checked("input[name=column][value=sex]")
    assert analyst.input_value("#justification") == "a study of admissions", "what was filled in stands there again"
    analyst.fill("#k", "5")
    analyst.get_by_role("button", name="Send the request").click()
    assert "pending" in analyst.inner_text(".request")
    assert re.search(r"Asked [\d-]+ [\d:]+ UTC, number \w+; .*k: 5", analyst.inner_text(".request"))
    first = visit("steward", "/requests")
    told = first.inner_text(".request")
    assert "100 of 300 people are the only ones" in told
    assert "people: sex" in told
    first.get_by_role("button", name="See what would leave, and attack it").click()
    assert "Attack on the table before release" in first.inner_text(".request")
    assert "Attack on the rows that would leave" in first.inner_text(".what-leaves"), "before and after stand together"
    assert "(sex) exposes no one" in first.inner_text(".what-leaves ul li >> nth=0")
    assert "300 rows in 2 classes of rows alike; the smallest has 100." in first.inner_text(".what-leaves")
    assert first.locator(".what-leaves table.compare tbody tr").count() > 3
    first.fill(".request [name=reason]", "looks right")
    first.get_by_role("button", name="Approve").click()
    assert "1 of 2: steward" in first.inner_text(".request")
    first.fill(".request [name=reason]", "again")
    first.get_by_role("button", name="Approve").click()
    assert "1 of 2: steward (“looks right”)" in first.inner_text(".request"), "the same person counts once"
    second = visit("second", "/requests")
    second.get_by_role("button", name="Attack the table as it stands").click()
    assert "people:" in second.inner_text("dd:has-text('people:') >> nth=-1")
    second.fill(".request [name=reason]", "agreed")
    second.get_by_role("button", name="Approve").click()
    assert re.search("approved|fulfilled", second.inner_text(".request .status"))
    assert "2 of 2: steward (“looks right”); helen (“agreed”)" in second.inner_text(".request")


def test_a_request_asks_for_what_its_kind_has_and_keeps_what_was_chosen(visit):
    page = visit("ana", "/requests")
    page.uncheck("input[name=table]")
    page.select_option("#technique", "synthesize")
    assert page.is_visible("#epsilon")
    assert not page.is_visible("#k")
    page.fill("#epsilon", "1")
    page.get_by_role("button", name="Send the request").click()
    assert page.inner_text("[role=alert]") == "No table is chosen. Choose at least one."
    assert not page.is_checked("input[name=table]")
    assert page.input_value("#epsilon") == "1"
    assert page.is_visible("#epsilon")


def test_a_steward_who_is_no_analyst_is_told_so_before_a_question(up, chromium):
    context = chromium.new_context()
    session = up.session("second", "analyst")
    context.add_cookies([{"name": name, "value": value, "url": up.http} for name, value in session.items()])
    page = context.new_page()
    page.goto(up.http)
    assert "cannot ask here: the policy has no analyst 'helen'" in page.inner_text("main [role=status]")
    assert page.locator("[role=alert]").count() == 0
    assert page.locator("[name=sql]").count() == 0
    page.goto(up.http + "/requests")
    assert "A request is made with the token of an analyst" in page.inner_text("main")
    assert page.locator("main form").count() == 0
    page.request.post(up.http + "/requests", form={"technique": "mask", "table": "people"})
    page.goto(up.http + "/requests")
    assert page.locator("article.request").count() == 0, "nothing was filed"
    context.close()


def test_masked_rows_are_shown_and_attacked_before_they_are_approved(visit, find_violations):
    analyst = visit("ana", "/requests")
    analyst.select_option("#technique", "mask")
    analyst.get_by_role("button", name="Send the request").click()
    page = visit("steward", "/requests")
    page.get_by_role("button", name="See what would leave, and attack it").first.click()
    told = page.inner_text(".what-leaves")
    assert "id: masked by redact" in told
    assert re.search(
        r"masked now with keys that are forgotten:\s+Knowing the columns of one person \(sex, age\) exposes", told
    )
    assert page.inner_text(".what-leaves table.compare del >> nth=0").startswith("p"), "the steward sees real rows"
    assert page.inner_text(".what-leaves table.compare ins >> nth=0") == "***"
    assert "#request-" in page.url, "the result is what is looked at after the page is loaded"
    assert find_violations(page) == []
    page.fill(".request [name=reason]", "not needed")
    page.get_by_role("button", name="Decline").first.click()
    assert "Declined: not needed" in page.inner_text(".request")


def test_people_withdraw_and_tokens_are_paused_on_the_stewards_pages(visit, up):
    page = visit("steward", "/people")
    page.fill("#value", "p7")
    page.get_by_role("button", name="Leave out from now on").click()
    assert "Left out from now on" in page.inner_text("[role=status]")
    [reference] = re.findall(r"the person whose id you named, reference (\w{8})\.", page.inner_text("[role=status]"))
    for value, same in (("p7", True), ("p8", False)):
        page.fill("#value", value)
        page.get_by_role("button", name="What was done with the rows").click()
        told = page.inner_text("[role=status]")
        assert (f"reference {reference}." in told) is same, "two people are told apart, and nobody is named"
        assert value not in page.content()
        assert "deniable withdraw" not in told
    assert "withdrew" in page.inner_text("table")
    assert "p7" not in page.inner_text("main")
    page.goto(up.steward + "/tokens")
    page.fill("#name", HOSTILE)
    page.check("input[value=care]")
    page.get_by_role("button", name="Give out a token").click()
    assert "name" in page.inner_text("[role=alert]")
    assert (page.input_value("#name"), page.is_checked("input[value=care]")) == (HOSTILE, True)
    page.fill("#name", "carl")
    page.uncheck("input[value=care]")
    page.get_by_role("button", name="Give out a token").click()
    assert "No purpose is chosen. Choose what the analyst may ask for." in page.inner_text("[role=alert]")
    assert page.input_value("#name") == "carl"
    page.check("input[value=care]")
    page.get_by_role("button", name="Give out a token").click()
    assert "deniable_" in page.inner_text(".token")
    assert "The policy lists no analyst carl: every question" in page.inner_text(".refusal")
    rows = {row.partition("\n")[0].split()[0]: row for row in page.locator("tbody tr").all_inner_texts()}
    assert "not since this server started" in rows["carl"]
    assert re.search(r"\d\d:\d\d.*\d\d:\d\d", rows["steward"]), "given out, and last used"
    page.get_by_role("button", name="Pause the token of carl").click()
    assert "paused" in page.locator("tbody tr").first.inner_text()
    page.goto(up.steward + "/ledger")
    assert "The chain holds" in page.inner_text("main")


ANALYST_PAGES = ("/", "/tables", "/history", "/requests", "/register", "/terms")
STEWARD_PAGES = ("/", "/requests", "/budgets", "/policy", "/policy/evidence/people", "/tokens", "/people", "/ledger",
                 "/incidents", "/estate", "/labs", "/labs/lattice", "/labs/tradeoff", "/labs/attack", "/labs/synthetic",
                 "/labs/model", "/labs/survey", "/start")  # fmt: skip


def check_pages(
    visit: Any, up: Any, find_violations: Any, analyst: tuple[str, ...], steward: tuple[str, ...], **looks: Any
) -> None:
    """Pages pass axe, are no wider than their window, and load less than a megabyte."""
    for who, port, paths in (("ana", up.http, analyst), ("steward", up.steward, steward)):
        page = visit(who, **looks)
        for path in paths:
            page.goto(port + path)
            page.wait_for_load_state("networkidle")
            assert find_violations(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            entries = "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
            assert 500 < page.evaluate(f"{entries}.reduce((sum, each) => sum + each.decodedBodySize, 0)") < 1e6, path


def test_pages_pass_axe_fit_a_phone_in_the_dark_and_are_small(visit, up, find_violations):
    check_pages(visit, up, find_violations, ("/", "/tables"), ("/requests", "/policy"), width=390, scheme="dark")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_passes_axe_in_every_size_and_color(visit, up, find_violations, width, scheme):
    check_pages(visit, up, find_violations, ANALYST_PAGES, STEWARD_PAGES, width=width, scheme=scheme)


def test_pages_are_read_and_questions_asked_without_scripts(visit):
    page = visit("ana", scripts=False)
    assert "What is left" in page.inner_text("aside")
    page.fill("#sql", GROUPS)
    page.fill("#epsilon", "9")
    page.click("button[value=ask]")
    assert "Charged: epsilon 9" in page.inner_text(".answer")
    assert page.locator(".answer svg").count() == 2
    page.click("button[value=explain]")
    assert "discrete Laplace" in page.inner_text("pre[aria-label='Privacy plan']")


def test_what_is_printed_has_the_question_the_answer_and_the_whole_policy_and_no_button(visit):
    page = visit("ana")
    write(page, GROUPS, "0.7")
    ask(page)
    page.emulate_media(media="print")
    assert page.locator("pre.printed").inner_text() == GROUPS
    assert page.locator(".answer table").is_visible()
    for hidden in (".editor", "textarea", "button[value=ask]", "#add", "nav", "details.schema"):
        assert not page.locator(hidden).first.is_visible(), hidden
    steward = visit("steward", "/policy")
    steward.wait_for_selector("html[data-ready=yes]")
    steward.emulate_media(media="print")
    assert "expires: 2099-12-31" in steward.inner_text("pre.printed")
    assert not steward.get_by_role("button", name="Save").is_visible()
    assert steward.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_register_is_public_and_keeps_the_way_back_for_whoever_has_entered(visit, up):
    assert visit("ana", "/register").locator("nav a[aria-current]").inner_text() == "Register"
    assert "<nav" not in httpx.get(up.http + "/register").text
    nobody = dict.fromkeys(up.session("ana"), "deniable_nobody")
    assert "<nav" not in httpx.get(up.http + "/register", cookies=nobody).text


def test_budgets_over_time_name_purposes_and_analysts_and_the_ledger_its_costs(visit, up):
    from deniable.governance.grants import Asker

    asked = "SELECT COUNT(*) AS over_time FROM people WHERE age > 92"
    up.curator.query(asked, epsilon="0.3", who=Asker("ana", "research"))
    page = visit("steward", "/budgets")
    keys = page.locator("main figure").nth(0).locator("title").all_text_contents()
    assert any(": research, " in each for each in keys)
    page.get_by_text("The numbers as a table").click()
    heads = page.locator("details th[scope=col]").all_inner_texts()
    assert {"Day", "In all", "research", "ana"} <= set(heads)
    page.goto(up.steward + "/ledger")
    assert "0.3" in page.locator("tr", has_text="charge").first.inner_text()


def test_the_first_link_makes_a_steward_once_and_lays_no_mark_outside_its_frame(chromium, serve, find_violations):
    with serve(has_steward=False) as fresh:
        context = chromium.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
        page = context.new_page()
        page.goto(fresh.link)
        assert find_violations(page) == []
        page.get_by_role("button").click()
        page.get_by_role("heading", name="Overview").wait_for()
        assert page.locator("nav a").count() > 5
        other = chromium.new_context().new_page()
        other.goto(fresh.link)
        assert "This link was used" in other.inner_text("[role=alert]")
        fresh.curator.query("SELECT COUNT(*) AS n FROM people", epsilon="2")
        page.goto(fresh.steward + "/budgets")
        assert page.evaluate(FIND_MARKS_OUTSIDE) == []
        other.context.close()
        context.close()


def test_an_address_without_a_page_is_a_page_for_browsers_and_json_for_programs(visit, up, find_violations):
    page = visit("ana", "/nowhere", width=390, scheme="dark")
    assert page.inner_text("h1") == "There is nothing at this address"
    assert page.locator("nav a").count() == 5, "who has entered keeps the way to the other pages"
    assert find_violations(page) == []
    for port in (up.http, up.steward):
        shown = httpx.get(port + "/nowhere", headers={"accept": "text/html,*/*"})
        assert (shown.status_code, "<h1>" in shown.text, "<nav" in shown.text) == (404, True, False)
        for path in ("/nowhere", "/enter"):
            assert httpx.get(port + path).json()["charged"] is False
        assert httpx.get(port + "/v1/nowhere", headers={"accept": "text/html"}).json()["error"] == "missing"


def test_nothing_but_the_entry_is_there_without_a_token_and_who_enters_comes_to_the_page(up):
    link = "/history?from=a%26b"
    with httpx.Client(base_url=up.http) as browser:
        assert browser.get("/").status_code == 200
        for path in ("/answers/r1/csv", "/requests/x/rows?table=people", link):
            shown = browser.get(path)
            assert shown.status_code == 401, "no program takes it for the file"
            assert "Enter with your token" in shown.text
        assert 'name="to" value="/history?from=a%26b"' in shown.text
        wrong = browser.post("/enter", data={"token": up.tokens["auditor"], "to": link})
        assert wrong.status_code == 403
        assert "This is the token of an auditor, who has no page here." in wrong.text
        assert not browser.cookies
        entered = browser.post("/enter", data={"token": up.tokens["ana"], "to": link})
        assert (entered.status_code, entered.headers["location"]) == (303, link)
        elsewhere = browser.post("/enter", data={"token": up.tokens["ana"], "to": "//evil.example/"})
        assert elsewhere.headers["location"] == "/"


def test_an_auditor_looks_and_changes_nothing(up):
    with httpx.Client(base_url=up.steward, cookies=up.session("auditor")) as auditor:
        for path in ("/", "/requests", "/budgets", "/ledger", "/incidents", "/estate"):
            shown = auditor.get(path)
            assert shown.status_code == 200, path
            assert "<form" not in shown.text.partition("<main")[2], path
        for path in ("/policy", "/tokens", "/people", "/start"):
            shown = auditor.get(path)
            assert shown.status_code == 403, path
            assert 'role="alert"' in shown.text
            assert "<form" not in shown.text.partition("<main")[2], path


def test_what_an_assistant_asked_is_marked_in_the_history(visit, up):
    from deniable.curator.charge import ChargeWatch, watch_charges
    from deniable.governance.grants import Asker
    from deniable.server.service import ASSISTANT

    sql = "SELECT COUNT(*) AS by_assistant FROM people WHERE age > 91"
    with watch_charges(ChargeWatch(by=ASSISTANT)):
        up.curator.query(sql, epsilon="0.1", who=Asker("ana", "research"))
    page = visit("ana", "/history")
    assert "your assistant" in page.locator("tr", has_text="by_assistant").inner_text()


@pytest.mark.slow
def test_a_table_goes_from_the_first_look_to_its_report_on_the_stewards_page(visit, up, find_violations):
    import csv

    with (up.folder / "visits.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["patient", "sex", "birth_year", "ward", "diagnosis", "wage"])
        for i in range(400):
            known = [f"p{i}", "FM"[i % 2], 1940 + i % 60, ("east", "west")[i % 2]]
            rows.writerow([*known, ("flu", "asthma", "burn")[i % 3], 1000 + i])
    page = visit("steward", "/start")
    page.select_option("#file", "visits.csv")
    page.get_by_role("button", name="Look at it").click()
    page.get_by_role("heading", name="Who will receive it?").wait_for(timeout=60_000)
    assert find_violations(page) == []
    page.check("input[value=researchers]")
    page.get_by_role("button", name="Decide", exact=True).click()
    page.get_by_role("button", name="Take what is recommended for all that is left").click()
    page.get_by_role("heading", name="What will leave").wait_for()
    assert find_violations(page) == []
    assert "as it is" in page.inner_text("tr:has-text('wage')")
    page.get_by_role("button", name="Release it").click()
    page.get_by_role("heading", name="Which column shall be left out?").wait_for(timeout=90_000)
    assert not list((up.folder / "visits-release").glob("release.*")), "nothing leaves that was not announced"
    assert page.locator("input[value=wage]").is_checked()
    page.get_by_role("button", name="Decide", exact=True).click()
    assert "left out All released columns together" in page.inner_text("tr:has-text('wage')")
    announced = page.locator("tbody tr:not(:has(.badge.bad)) th").all_inner_texts()
    page.get_by_role("button", name="Release it").click()
    page.get_by_role("heading", name="What is promised of it").wait_for(timeout=90_000)
    with (up.folder / "visits-release" / "release.csv").open() as file:
        assert next(csv.reader(file)) == announced
    assert "left out" in page.inner_text("tr:has-text('wage')")
    assert "Every limit of the policy is met" in page.inner_text("main")
    assert find_violations(page) == []
    assert (up.folder / "visits-release" / "report.html").exists()
    page.get_by_role("link", name="The whole report").click()
    page.wait_for_load_state("networkidle")
    assert page.locator("h1").count() == 1
