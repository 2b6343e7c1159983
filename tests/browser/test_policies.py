"""Policies in the browser: from a fault code to a published rule that was tried, and back."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Open
from tests.browser.pages import violations

EDIT = "/policies/heal/edit/"
RULE = "**/policies/rule/"


def text_of(page: Page) -> str:
    return page.locator("#text").evaluate("area => area.value")


@pytest.mark.usefixtures("_policy_kept")
def test_a_reboot_after_approval_is_written_tried_published_and_rolled_back(open_page: Open):
    """Seven clicks besides the form: from the home page to a published rule for Xid 79, and back."""
    page = open_page("/")
    clicks = 0

    def click(role: str, name: str) -> None:
        nonlocal clicks
        clicks += 1
        page.get_by_role(role, name=name).first.click()  # type: ignore[arg-type]

    click("link", "Policies")
    click("link", "heal")
    click("link", "Edit")
    content = page.locator(".cm-content")
    expect(content).to_be_visible()
    late: list[Route] = []  # the answer that fills the form comes after somebody began to fill it
    page.route(RULE, lambda route: late.append(route))
    with page.expect_request(RULE):
        page.locator("#rule-card summary").click()
    page.get_by_label("Xid", exact=True).first.fill("48, 62, 64, 79")
    page.get_by_label("Approval", exact=True).select_option("1")
    with page.expect_response(RULE):
        late[0].continue_()
    page.unroute(RULE)
    click("button", "Change the rule in the text")
    expect(content).to_contain_text("approval: {required: true}")
    expect(page.locator("#problems")).to_contain_text("needs apiVersion: kcover.io/v1")
    assert '"79"' in text_of(page)
    content.evaluate("content => content.focus()")
    page.keyboard.press("Control+Home")
    page.keyboard.press("Shift+End")
    page.keyboard.type("apiVersion: kcover.io/v1")
    page.keyboard.press("Escape")
    expect(page.locator("#problems")).to_contain_text("Valid: 1 policy.")
    page.get_by_label("Try it on").select_option("now")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#try")).to_contain_text("Done")
    page.get_by_label("Reason").fill("a person decides about 79")
    expect(page.locator("#effect p:not([hx-get])")).to_be_visible()  # it counted what would change
    click("button", "Publish and enforce")
    page.wait_for_url("**/policies/heal/")
    expect(page.locator(".yaml")).to_contain_text("approval: {required: true}")
    click("link", "Roll back to this revision")
    page.get_by_role("dialog").get_by_label("Reason").fill("as it was")
    clicks += 1
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    expect(page.locator(".yaml")).not_to_contain_text("approval")
    assert clicks <= 7


def test_the_editor_completes_explains_and_warns_before_unpublished_text_is_left(open_page: Open):
    page = open_page(EDIT)
    content = page.locator(".cm-content")
    content.evaluate("content => content.focus()")
    page.keyboard.press("Control+End")
    page.keyboard.type("    - priority: 5\nerrorCode: [7")
    option = page.locator(".cm-tooltip-autocomplete li", has_text="79")
    expect(option).to_contain_text("no longer reachable")
    option.click()
    page.keyboard.type("]\nmode: sh")
    page.locator(".cm-tooltip-autocomplete li", has_text="shadow").click()
    assert text_of(page).endswith('- priority: 5\n      errorCode: ["79"]\n      mode: shadow')
    page.locator(".yaml-string", has_text="79").last.hover()
    expect(page.locator(".yaml-help")).to_contain_text("Cordon, drain and reboot")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")  # leaves the text
    assert not content.evaluate("content => content.contains(document.activeElement)")
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.get_by_role("link", name="Nodes").first.click()
    expect(page.locator(".cm-content")).to_be_visible()
    assert asked == ["beforeunload"]
    page.get_by_role("link", name="Discard").click()
    page.wait_for_url("**/policies/heal/")
    assert asked == ["beforeunload"]


def test_the_workbench_is_accessible(open_page: Open):
    page = open_page(EDIT)
    expect(page.locator(".cm-content")).to_be_visible()
    page.locator("#rule-card summary").click()
    page.get_by_label("Drain").check()
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert violations(page, "main") == []
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    assert violations(page, "main") == []
