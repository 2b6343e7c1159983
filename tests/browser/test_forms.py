"""Forms that need a script: an approval link, a dialog with checkboxes, and a try beside the policy."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import Open


def test_an_approval_link_leaves_the_address_and_is_checked(open_page: Open):
    page = open_page("/approve/#not-a-token", signed_in=False, tolerant=True)
    expect(page.get_by_role("heading", name="Invalid link")).to_be_visible()
    assert page.url.endswith("/approve/")
    assert page.evaluate("history.length") <= 3  # the address with the token was replaced
    open_page("/approve/", signed_in=False).get_by_label("Approval link").wait_for()


def test_a_role_is_created_in_a_dialog_by_its_labels(open_page: Open):
    page = open_page("/access/", width=390, theme="dark")
    page.get_by_role("link", name="New role", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("night-shift")
    dialog.get_by_label("Pause automation").check()
    assert Axe().run(page).violations_count == 0
    dialog.get_by_role("button", name="Create role").click()
    row = page.get_by_role("row").filter(has=page.get_by_text("night-shift", exact=True))
    expect(row).to_contain_text("pause")
    row.get_by_role("link", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("night-shift", exact=True)).to_have_count(0)


def test_a_policy_is_tried_beside_its_text(open_page: Open):
    page = open_page("/policies/heal/edit/")
    expect(page.get_by_label("Node", exact=True)).to_be_hidden()
    page.get_by_label("Try it on").select_option("now")
    expect(page.get_by_label("Days")).to_be_hidden()
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#try")).to_contain_text("Done")
    assert page.url.endswith("/policies/heal/edit/")
    assert Axe().run(page).violations_count == 0
