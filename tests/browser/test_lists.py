"""Lists in a browser: filters, saved views, the palette, and the way back, without a mouse where people use keys."""

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.pages import live, settled
from tests.browser.test_console import node_names
from tests.story.product import Product

TARGETS = {"rules": {"target-size": {"enabled": True}}}


def test_a_list_is_filtered_saved_as_a_view_and_found_again(open_page: Open, product: Product):
    page = open_page("/nodes/?bogus=1", theme="dark")
    expect(page.get_by_role("alert")).to_contain_text("bogus=1")
    page.get_by_role("search", name="Filters").get_by_label("State", exact=True).select_option("healthy")
    page.wait_for_url("**/nodes/?**status=healthy**")
    chip = page.get_by_role("link", name="Remove the filter State: Healthy")
    expect(chip).to_be_visible()
    page.get_by_text("Columns", exact=True).first.focus()
    page.keyboard.press("Enter")
    page.locator(".columns-menu").get_by_label("Driver", exact=True).check()
    page.get_by_role("button", name="Show").press("Enter")
    expect(page.get_by_role("columnheader", name="Driver")).to_be_visible()
    live(page)  # its scripts hear keys now
    page.get_by_role("link", name="Save view").press("Enter")
    page.get_by_role("dialog").get_by_label("Name").fill("Well ones")
    page.get_by_role("dialog").get_by_role("button", name="Save").press("Enter")
    tab = page.get_by_role("navigation", name="Saved views").get_by_role("link", name="Well ones")
    expect(tab).to_have_attribute("aria-current", "page")
    assert Axe().run(page, options=TARGETS).response["violations"] == []
    chip.press("Enter")
    expect(chip).to_have_count(0)
    tab.press("Enter")
    expect(chip).to_be_visible()

    live(page)
    page.keyboard.press("Control+k")
    page.keyboard.type("xid 79")
    expect(page.get_by_role("option", name="Xid 79")).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/incidents/?kind=xid&code=79")


def test_back_keeps_the_place_and_the_selection(open_page: Open, product: Product):
    page = open_page("/nodes/?sort=name", width=390)  # in the usual order a node that other tests break moves up
    names = node_names(product)
    settled(page)
    page.get_by_role("checkbox", name=names[1], exact=True).check()
    page.get_by_role("link", name=names[-1]).scroll_into_view_if_needed()
    place = page.evaluate("scrollY")
    assert place > 200
    page.get_by_role("link", name=names[-1]).click()
    page.wait_for_url(f"**/{names[-1]}/")
    page.go_back()
    expect(page.get_by_role("checkbox", name=names[1], exact=True)).to_be_checked()
    expect(page.locator("#picked")).to_be_visible()
    expect(page.get_by_role("link", name=names[-1])).to_be_in_viewport()  # rows above it may have grown meanwhile
