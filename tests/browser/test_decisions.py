"""Decisions of people on the console: an approval on a phone, an approval link, a changed guard."""

import re

import pytest
from playwright.sync_api import Route, expect

from tests.browser.conftest import Ask, Open
from tests.browser.pages import settled, violations, violations_in_both_themes
from tests.story.product import Product


def test_an_answer_on_a_phone_is_shown_on_another_screen(open_page: Open, product: Product, ask: Ask):
    [asked] = ask(1).values()
    phone, desk = open_page("/approvals/", width=390), open_page("/approvals/", theme="dark")
    settled(phone)
    settled(desk)
    card = phone.locator(f"#question-{asked}")
    expect(card).to_contain_text("If it is denied or unanswered, no other step runs. The node stays isolated until")
    expect(card).to_contain_text(re.compile("evicted"))
    found = violations(phone) + violations(desk)

    desk.locator(f"#question-{asked}").get_by_role("link", name="Create approval link").click()
    dialog = desk.get_by_role("dialog")
    dialog.get_by_role("button", name="Create link").click()
    expect(dialog).to_contain_text("/approve/")
    link = dialog.locator("pre").inner_text().strip()
    found += violations(desk)

    desk.goto(f"{product.url}/approvals/")
    settled(desk)
    desk.locator(f"#question-{asked}").get_by_role("link", name="Approve").click()
    expect(desk.get_by_role("dialog")).to_contain_text("needs approval")

    stranger = open_page(link.removeprefix(product.url), signed_in=False, width=390)
    found += violations(stranger)
    stranger.get_by_label("Reason").fill("not now")
    stranger.get_by_role("button", name="Deny").click()
    expect(stranger.get_by_role("heading", name="You denied this request")).to_be_visible()

    expect(desk.get_by_role("dialog")).to_contain_text("Someone answered this request")
    expect(card).to_be_hidden()
    expect(phone.locator("#live")).to_contain_text("not now")
    assert found == []


def test_an_approval_waits_for_the_pods_that_it_evicts(open_page: Open, ask: Ask):
    [asked] = ask(1).values()
    page = open_page("/approvals/")
    settled(page)
    card, dialog = page.locator(f"#question-{asked}"), page.get_by_role("dialog")
    held: list[Route] = []
    is_held = True

    def hold(route: Route) -> None:
        if is_held:
            held.append(route)
        else:
            route.continue_()

    page.route(f"**/approvals/{asked}/pods/", hold)
    card.get_by_role("link", name="Approve", exact=True).click()
    button = dialog.get_by_role("button", name="Approve", exact=True)
    expect(button).to_be_disabled()
    expect(dialog).to_contain_text("Loading the node's pods")
    is_held = False
    for route in held:
        route.continue_()
    expect(button).to_be_enabled()
    expect(dialog).to_contain_text("evicted")
    dialog.get_by_role("link", name="Cancel", exact=True).click()
    card.get_by_role("link", name="Deny", exact=True).click()
    expect(dialog).to_contain_text(re.compile("keeps? running on the node"))


def test_an_approval_does_not_wait_for_pods_that_do_not_come(open_page: Open, ask: Ask):
    [asked] = ask(1).values()
    page = open_page("/approvals/", tolerant=True)
    settled(page)
    page.route(f"**/approvals/{asked}/pods/", lambda route: route.abort())
    page.locator(f"#question-{asked}").get_by_role("link", name="Approve", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The node's pods are unknown")
    expect(dialog.get_by_role("button", name="Approve", exact=True)).to_be_enabled()


@pytest.mark.usefixtures("_guards_kept")
def test_a_guard_is_changed_where_its_count_is(open_page: Open):
    page = open_page("/safety/")
    settled(page)
    page.get_by_role("link", name="Change Breaker for sim").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Time window")).to_have_value(re.compile("min"))
    assert violations_in_both_themes(page) == []
    dialog.get_by_label("Reason").fill("test")
    dialog.get_by_label("Enabled").check()
    dialog.get_by_label("Time window").fill("7 min")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#live")).to_contain_text("isolated within 7 min")
