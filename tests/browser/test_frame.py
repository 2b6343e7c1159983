"""The frame of all pages: the navigation of a phone."""

from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.pages import live, violations_in_both_themes

GROUPS = ["Operate", "Fleet", "Configure", "Admin"]


def test_a_phone_has_the_first_places_in_a_bar_and_all_in_a_sheet(open_page: Open):
    page = open_page("/parts/", width=390)
    live(page)
    places, more = page.locator("#places a:visible"), page.get_by_role("button", name="More")
    expect(places).to_have_count(4)
    expect(page.locator(".nav-title:visible")).to_have_count(0)
    more.click()
    expect(more).to_have_attribute("aria-expanded", "true")
    expect(page.locator(".nav-title:visible")).to_have_text(GROUPS)
    for place in (places.first, places.last):
        expect(place).to_be_in_viewport()
    assert violations_in_both_themes(page, context=".side") == []
    page.keyboard.press("Escape")
    expect(places).to_have_count(4)
    expect(more).to_be_focused()
    more.click()
    page.get_by_role("link", name="Standbys").click()
    expect(page.get_by_role("heading", name="Standbys", level=1)).to_be_visible()
    expect(places).to_have_count(4)
