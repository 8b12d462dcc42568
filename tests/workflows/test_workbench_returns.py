"""The workbench when people leave a page and come back, reload it, enter two servers, or follow a link of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

DEFAULT = "SELECT COUNT(*) AS n FROM people"
TYPED = "SELECT sex, COUNT(*) AS typed FROM people GROUP BY sex"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, serving_clinic: Callable[..., Any]) -> Iterator[Any]:
    """One server for all tests here."""
    with serving_clinic(tmp_path_factory.mktemp("returns")) as served:
        yield served


def write(page: Any, text: str, cell: int = 0) -> None:
    """Type a text into an editor in place of what stands there."""
    page.wait_for_selector("html[data-ready=yes]")
    page.locator(".cm-content").nth(cell).click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def leave_and_return(page: Any, link: str) -> None:
    """Go to another page by the menu, and back by the browser's button."""
    page.get_by_role("navigation").get_by_role("link", name=link).click()
    page.wait_for_load_state("networkidle")
    page.go_back()
    page.wait_for_selector("html[data-ready=yes]")
    page.wait_for_load_state("networkidle")


def read_editor(page: Any) -> str:
    """The text that an editor shows."""
    return "\n".join(page.locator(".cm-line").all_inner_texts()).strip()


def test_after_going_back_the_question_that_is_shown_is_the_one_that_is_priced_and_asked(visit):
    page = visit("ana")
    write(page, TYPED)
    page.fill("#epsilon", "0.5")
    leave_and_return(page, "History")
    assert read_editor(page) == page.input_value("textarea[name=sql]") == TYPED
    page.wait_for_selector(".price:has-text('this takes 0.5')")
    with page.expect_request("**/ask/answer") as asked:
        page.locator("button[value=ask]").click()
    assert asked.value.post_data_json["sql"] == TYPED


def test_after_going_back_the_policy_that_is_shown_is_the_one_that_is_saved(visit, up):
    file, page = up.folder / "policy.yaml", visit("steward", "/policy")
    kept = file.read_text()
    changed = kept.replace("ben: {purposes: [care], epsilon: 10}", "ben: {purposes: [care], epsilon: 9}")
    write(page, changed)
    page.wait_for_selector("#verdict:has-text('No mistake')")
    leave_and_return(page, "Ledger")
    page.wait_for_selector("#verdict:has-text('No mistake')")
    shown = page.evaluate("document.querySelector('.editor').shadowRoot.querySelector('.cm-content').innerText")
    assert "[care], epsilon: 9}" in shown
    page.get_by_role("button", name="Save").click()
    assert "Saved" in page.inner_text("main")
    assert file.read_text() == changed
    file.write_text(kept)


def test_what_an_editor_shows_is_sent_whatever_the_hidden_field_holds(visit):
    page = visit("ana")
    write(page, TYPED)
    page.evaluate("document.querySelector('textarea[name=sql]').value = 'SELECT 1'")
    with page.expect_request("**/ask/preview") as asked:
        page.fill("#epsilon", "0.4")
    assert asked.value.post_data_json["sql"] == TYPED
    assert page.evaluate("new FormData(document.querySelector('.cell form')).get('sql')") == TYPED


def test_questions_and_their_answers_are_there_again_when_their_asker_comes_back(visit, up):
    page = visit("ana")
    write(page, TYPED)
    with page.expect_response("**/ask/answer"):
        page.locator("button[value=ask]").click()
    page.wait_for_selector(".answer table")
    answered = page.inner_text(".answer table")
    page.click("#add")
    write(page, "SELECT COUNT(*) AS second FROM people", 1)
    page.locator("[name=epsilon]").nth(1).fill("0.25")
    charges = len(list(up.curator.context.ledger.entries(acts=("charge",))))
    for come_back in (lambda: leave_and_return(page, "Tables"), page.reload,
                      lambda: page.goto(up.http + "/history") and page.click("nav >> text=Ask")):  # fmt: skip
        come_back()
        page.wait_for_selector("html[data-ready=yes]")
        page.wait_for_selector(".answer table")
        assert page.locator(".cell").count() == 2
        assert page.inner_text(".answer table") == answered
        assert page.locator(".cm-content").nth(1).inner_text().strip() == "SELECT COUNT(*) AS second FROM people"
        assert page.locator("[name=epsilon]").nth(1).input_value() == "0.25"
    assert len(list(up.curator.context.ledger.entries(acts=("charge",)))) == charges, "coming back asks nothing"
    release = page.evaluate("JSON.parse(Object.values(sessionStorage)[0])[0].release")
    with httpx.Client(base_url=up.http, cookies=up.session("ben")) as ben:
        assert ben.get("/ask/kept", params={"release": release}).status_code == 404, "it is another person's"
    page.get_by_role("button", name="Leave").click()
    page.get_by_role("heading", name="Enter with your token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    page.fill("#token", up.tokens["ben"])
    page.get_by_role("button", name="Enter").click()
    page.wait_for_selector("html[data-ready=yes]")
    assert read_editor(page) == DEFAULT


def test_the_privacy_plan_of_one_question_leaves_the_others_where_they_are(visit):
    page = visit("ana")
    write(page, TYPED)
    page.click("#add")
    write(page, DEFAULT, 1)
    page.locator("button[value=explain]").first.click()
    page.wait_for_selector("pre[aria-label='Privacy plan']")
    assert page.locator(".cell").count() == 2
    assert "discrete Laplace" in page.locator(".cell").first.inner_text()


def test_sessions_at_two_servers_of_one_host_leave_each_other_alone(chromium, up, tmp_path, serving_clinic):
    with serving_clinic(tmp_path) as second:
        context = chromium.new_context()
        page = context.new_page()
        doors = [(each, door, who) for each in (up, second) for door, who in (("http", "ana"), ("steward", "steward"))]
        for each, door, who in doors:
            page.goto(getattr(each, door))
            page.fill("#token", each.tokens[who])
            page.get_by_role("button", name="Enter").click()
            page.get_by_role("navigation").wait_for()
        for each, door, who in doors:
            page.goto(getattr(each, door))
            assert page.inner_text(".who") == who
        context.close()


def test_a_link_for_a_purpose_of_others_shows_its_questions_for_a_purpose_of_ones_own(up):
    with httpx.Client(base_url=up.http, cookies=up.session("ben")) as ben:
        shown = ben.get("/", params={"sql": TYPED, "purpose": "research"})
    assert shown.status_code == 200
    assert TYPED in shown.text
    assert "which you do not have. Its questions are shown for" in shown.text


def test_a_page_that_a_form_showed_is_loaded_again_as_the_page_it_belongs_to(up):
    headers = {"accept": "text/html,*/*"}
    for port, path, page in ((up.http, "/ask", "/"), (up.http, "/enter", "/"), (up.steward, "/requests/x/preview",
                             "/requests"), (up.steward, "/people/report", "/people")):  # fmt: skip
        shown = httpx.get(port + path, headers=headers)
        assert (shown.status_code, shown.headers["location"]) == (303, page), path


def test_a_refusal_has_one_look_with_the_reason_below_its_heading_and_the_menu_of_the_role(visit, up):
    page = visit("auditor", "/policy")
    menu = page.locator("nav a").all_inner_texts()
    assert menu == ["Overview", "Approvals", "Budgets", "Ledger", "Incidents", "Estate"]
    assert page.locator("h1 + [role=alert]").inner_text().startswith("The policy is edited by the steward")
    assert visit("ana", "/answers/none/csv").locator("nav a").count() == 5
    with httpx.Client(base_url=up.steward, cookies=up.session("auditor")) as auditor:
        for path in ("/", "/requests", "/budgets", "/ledger", "/incidents", "/estate"):
            assert auditor.get(path).status_code == 200, path


def test_every_declared_category_of_a_column_can_be_seen(serve, clinic_policy):
    listed = ", ".join(["F", "M", *(f"other{number}" for number in range(31))])
    with serve(clinic_policy.replace("categories: [F, M]", f"categories: [{listed}]")) as served:
        shown = httpx.get(served.http + "/tables", cookies=served.session("ana")).text
    assert "<summary>3 more</summary>other28, other29, other30</details>" in shown
