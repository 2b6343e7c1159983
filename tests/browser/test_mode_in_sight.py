"""The mode of the automation stays in sight: nobody reads a green "Live" above a portal that does nothing."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.pages import live, settled
from tests.story.product import Product


@pytest.mark.parametrize("width", [1280, 390])
def test_a_scrolled_page_still_shows_that_automation_is_paused(open_page: Open, product: Product, width: int):
    assert product.post("/api/v1/pause", {"reason": "fire drill", "cluster": "sim"})[0] == 200
    try:
        page = open_page("/nodes/", width=width)
        settled(page)
        banner, strip = page.locator("#banner"), page.locator("#mode-strip")
        expect(strip).to_contain_text("Paused")
        expect(banner).to_contain_text("fire drill")
        page.locator("table.rows tbody tr").last.scroll_into_view_if_needed()
        expect(page.locator("table.rows tbody tr").last).to_be_in_viewport()
        assert page.evaluate("window.scrollY") > 0
        expect(banner.get_by_text("fire drill")).to_be_in_viewport()
        expect(strip).to_be_in_viewport(ratio=1)
    finally:
        product.post("/api/v1/resume", {"reason": "over", "cluster": "sim"})
    expect(strip).to_contain_text("Enforcing")  # without loading the page again
    expect(strip).to_be_in_viewport(ratio=1)
    assert strip.evaluate("(strip) => strip.offsetHeight") == 24
    strip.click()
    expect(page).to_have_url(re.compile("/safety/$"))


def test_a_page_of_which_nothing_else_is_refreshed_shows_the_mode_of_now(open_page: Open, product: Product):
    """Somebody writes a policy for an hour. Meanwhile automation is paused and resumed. The focus stays."""
    page = open_page("/policies/edit/")
    live(page)
    strip, pause = page.locator("#mode-strip"), page.locator("#pause-everything")
    expect(strip).to_contain_text("Enforcing")
    page.get_by_label("Reason").fill("half a sentence")
    pause.focus()
    assert product.post("/api/v1/pause", {"reason": "fire drill", "cluster": "sim"})[0] == 200
    try:
        expect(strip).to_contain_text("Paused")
        expect(pause).to_be_focused()
    finally:
        product.post("/api/v1/resume", {"reason": "over", "cluster": "sim"})
    expect(strip).to_contain_text("Enforcing")
    assert page.get_by_label("Reason").input_value() == "half a sentence"
