"""Reports as a manager uses them: recovery, trend and lemons, found from the home page."""

import re

from playwright.sync_api import expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import clicks, violations
from tests.story.product import Product


def test_recovery_trend_and_lemons_are_one_click_from_home(open_page: Open, product: Product, take_node: TakeNode):
    node = take_node()
    product.inject(node, 62)
    product.wait_rescue(node, "succeeded")
    page = open_page("/")
    page.get_by_role("link", name="Reports", exact=True).click()
    expect(page.get_by_role("heading", name="Reports", exact=True)).to_be_visible()
    assert clicks(page) == 1
    xid = page.locator("tr", has_text="Xid 62").filter(has=page.locator("td[data-label=Fault]"))
    expect(xid.locator("td[data-label='Median time to recovery']")).to_contain_text(re.compile(r"\d"))
    # Half of all faults: "–" while fewer than that have recovered, and other tests leave faults to people.
    report = product.get("/api/v1/reports/reliability")["period"]
    said = "–" if report["recovery_median_seconds"] is None else re.compile(r"\d")
    expect(page.locator("#figure-recovery strong")).to_have_text(said)
    expect(page.locator("xid-trend canvas").first).to_be_visible()
    expect(page.get_by_role("heading", name="Lemons: nodes that fail repeatedly")).to_be_visible()
    page.locator("#twin-faults summary").press("Enter")
    expect(page.locator("#twin-faults")).to_contain_text("Xid 62")
    page.get_by_label("Group by").select_option("pool")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**by=pool**")
    with page.expect_download() as saved:
        page.get_by_role("link", name="CSV: Faults and rescues").click()
    assert saved.value.path().read_text().startswith("key,faults,")
    page.emulate_media(media="print")
    expect(page.locator(".side")).to_be_hidden()
    page.emulate_media(media="screen")
    assert violations(page) == []
