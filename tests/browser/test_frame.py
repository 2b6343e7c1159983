"""The frame of all pages: the navigation and the palette on a phone, and the time zone of a person."""

import re
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.pages import live, node_names, violations_in_both_themes
from tests.story.product import Product, call

GROUPS = ["Operate", "Fleet", "Configure", "Admin"]


def test_a_phone_has_the_first_places_in_a_bar_and_all_in_a_sheet(open_page: Open):
    page = open_page("/parts/", width=390)
    live(page)
    places, more = page.locator("#places a:visible"), page.get_by_role("button", name="More", exact=True)
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


def test_the_palette_of_a_phone_opens_the_preview_of_a_written_act(open_page: Open, product: Product):
    node = node_names(product)[3]
    before = product.rescue_of(node)
    page = open_page("/", width=390)
    live(page)
    page.get_by_role("button", name="Command palette").click()
    palette = page.get_by_role("dialog", name="Command palette")
    page.keyboard.type(f"drain {node}")
    expect(palette.get_by_role("option", name=f"Drain {node}")).to_have_attribute("aria-selected", "true")
    assert violations_in_both_themes(page) == []
    page.keyboard.press("Enter")
    expect(palette).to_be_hidden()
    preview = page.get_by_role("dialog", name=f"Drain {node}")
    expect(preview).to_contain_text("The plan")
    preview.get_by_role("link", name="Cancel").click()
    expect(preview).to_be_hidden()
    page.get_by_role("button", name="Command palette").click()
    page.keyboard.type("maintenance")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Schedule maintenance")).to_be_visible()
    assert product.rescue_of(node) == before


def choose_zone(page: Page, zone: str) -> None:
    card = page.get_by_role("region", name="Time zone")
    card.get_by_label("Show times in").select_option(zone)
    card.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Your account")).to_be_visible()


def test_times_in_sentences_are_in_the_zone_of_the_person(open_page: Open, product: Product):
    node, now = node_names(product)[3], datetime.now(UTC).replace(microsecond=0)
    end = now + timedelta(hours=2)
    window = {"cluster": "sim", "node": node, "starts_at": now.isoformat(), "ends_at": end.isoformat()}
    status, made = product.post("/api/v1/maintenance", {**window, "reason": "new switches"})
    assert status == 201, made
    page = open_page("/account/")
    try:
        choose_zone(page, "Pacific/Kiritimati")
        page.goto(f"{product.url}/nodes/sim/{node}/drain/")
        held = page.locator(".note-warning").filter(has_text="Currently blocked by:")
        expect(held).to_contain_text("new switches")
        time = held.locator("time")
        expect(time).to_have_attribute("datetime", f"{end:%Y-%m-%dT%H:%M:%S}Z")
        expect(time).to_have_attribute("title", re.compile(r"GMT\+14"))
        expect(time).to_contain_text(f"{end + timedelta(hours=14):%H:%M:%S}")
        expect(held).not_to_contain_text("UTC")
    finally:
        call("DELETE", f"{product.url}/api/v1/maintenance/{made['id']}", token=product.token)
        page.goto(f"{product.url}/account/")
        choose_zone(page, "")
