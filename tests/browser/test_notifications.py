"""Notifications as an admin sets them up: a channel, a test that arrives, a route, and the messages of a pause,
live.
"""

import contextlib
from collections.abc import Iterator

import pytest
from playwright.sync_api import Error, Page, Route, expect

from tests.browser.conftest import Open
from tests.browser.pages import clicks, live, violations
from tests.portal.notify.receiver import Receiver
from tests.story.product import Product

SECRET = "a secret of some length"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET)
    yield made
    made.stop()


def test_a_channel_is_made_and_tested_and_receives_the_events_of_its_route(
    open_page: Open, product: Product, receiver: Receiver
):
    page = open_page("/notifications/")
    live(page)
    page.get_by_text("New channel").click()
    page.get_by_role("link", name="Signed webhook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("on-call")
    dialog.get_by_label("Address").fill(receiver.url)
    dialog.get_by_label("Secret").fill(SECRET)
    dialog.get_by_label("Batch for (s)").fill("0")
    dialog.get_by_label("Minimum interval (s)").fill("0")
    found = violations(page)
    with page.expect_navigation():
        dialog.get_by_role("button", name="Create").click()
    live(page)
    card = page.get_by_role("region", name="on-call")
    expect(card).to_contain_text("Nothing sent yet")

    with refresh_that_hangs(page), page.expect_navigation():
        card.get_by_role("button", name="Send a test").click()
    expect(card).to_contain_text("Working")
    assert clicks(page) <= 6  # the menu, the kind, two fields, Create, Send a test
    expect(page.locator("table.rows")).to_contain_text("Answered HTTP 200.")
    assert [one["test"] for one in receiver.asked] == [True]

    card.get_by_role("link", name="Add a route").click()
    expect(dialog.get_by_label("Channel")).to_have_value("on-call")
    expect(dialog.get_by_label("Automation paused")).to_be_checked()
    found += violations(page)
    with page.expect_navigation():
        dialog.get_by_role("button", name="Add").click()
    live(page)
    expect(card).to_contain_text("Automation paused")

    assert product.post("/api/v1/pause", {"reason": "fire drill", "cluster": "sim"})[0] == 200
    try:
        expect(page.locator("table.rows")).to_contain_text("Automation paused")
        expect(page.locator("table.rows tbody tr").first).to_contain_text("Sent")
    finally:
        product.post("/api/v1/resume", {"reason": "over", "cluster": "sim"})
    assert receiver.asked[1]["lines"][0].endswith("fire drill")
    assert receiver.signed == [True, True]
    page.locator("table.rows summary").first.click()
    found += violations(page)
    assert found == []


@contextlib.contextmanager
def refresh_that_hangs(page: Page) -> Iterator[None]:
    """Fetches the page's region again, with more news waiting. The answer does not come before the end of the block:
    what is clicked meanwhile must not queue behind it."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.headers.get("hx-request"):
            held.append(route)
        else:
            route.continue_()

    page.route("**/notifications/", hold)
    with page.expect_request(lambda request: "hx-request" in request.headers):
        for _ in range(3):
            page.evaluate("htmx.trigger('#live', 'refresh')")
    yield
    page.unroute("**/notifications/", hold)
    for route in held:
        with contextlib.suppress(Error):  # those of the page that was left
            route.continue_()
