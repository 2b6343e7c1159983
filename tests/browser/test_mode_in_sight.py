"""The mode of the automation stays in sight: nobody reads a green "Live" above a portal that does nothing."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.pages import live, settled, violations_in_both_themes
from tests.story.product import Product, call


@pytest.mark.parametrize("width", [1280, 390])
def test_a_scrolled_page_still_shows_that_automation_is_paused(open_page: Open, product: Product, width: int):
    assert product.post("/api/v1/pause", {"reason": "fire drill", "cluster": "sim"})[0] == 200
    try:
        page = open_page("/nodes/", width=width)
        settled(page)
        banner, strip = page.locator("#banner"), page.locator("#mode-strip")
        expect(strip).to_contain_text("Paused")
        expect(banner).to_be_hidden()
        page.locator("table.rows tbody tr").last.scroll_into_view_if_needed()
        expect(page.locator("table.rows tbody tr").last).to_be_in_viewport()
        assert page.evaluate("window.scrollY") > 0
        expect(strip).to_be_in_viewport(ratio=1)
        strip.click()
        expect(banner.get_by_text("fire drill")).to_be_in_viewport()
    finally:
        product.post("/api/v1/resume", {"reason": "over", "cluster": "sim"})
    expect(strip).to_contain_text("Enforcing")  # without loading the page again
    expect(strip).to_be_in_viewport(ratio=1)
    assert strip.evaluate("(strip) => strip.offsetHeight") <= 24
    expect(banner).to_be_visible()  # a refresh does not close what somebody reads
    banner.get_by_role("link", name="Safety").click()
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


def test_a_phone_shows_every_statement_of_the_strip_whole_in_two_lines(open_page: Open, product: Product):
    now = datetime.now(UTC)
    end = now + timedelta(hours=1)
    given = {"cluster": "sim", "starts_at": now.isoformat(), "ends_at": end.isoformat(), "reason": "new power"}
    windows = [product.post("/api/v1/maintenance", given | more) for more in ({}, {})]
    assert [status for status, _ in windows] == [201, 201], windows
    try:
        page = open_page("/nodes/", width=390)
        settled(page)
        strip = page.locator("#mode-strip")
        expect(strip).to_contain_text("Maintenance")
        assert strip.evaluate("(strip) => strip.offsetHeight") <= 40
        lines = page.locator(".mode-signs")
        assert lines.evaluate("(lines) => lines.scrollWidth <= lines.clientWidth")
        assert lines.evaluate("(lines) => lines.scrollHeight <= lines.clientHeight")
        strip.click()
        expect(page.locator("#banner")).to_contain_text("Maintenance of the whole cluster")
        assert violations_in_both_themes(page) == []
    finally:
        for _, window in windows:
            call("DELETE", f"{product.url}/api/v1/maintenance/{window['id']}", token=product.token)
