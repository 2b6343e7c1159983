"""Decisions of people on the console: an approval on a phone, an approval link, a changed guard."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.test_console import live, node_names
from tests.story.product import Product

ASK = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask-first}
spec: {rules: [{priority: 99, mode: approve, errorCode: ["92"], actions: [{name: cordon}, {name: drain}]}]}
"""


@pytest.fixture
def asked(product: Product) -> int:
    """A rescue that waits for approval; its key."""
    path = product.folder / "ask.yaml"
    path.write_text(ASK, encoding="utf-8")
    product.manage("policy", "apply", "-f", str(path))
    node = node_names(product)[6]  # those before it are cordoned and healed by other tests
    product.inject(node, 92)
    return int(product.wait_rescue(node, "held")["id"])


def settled(page: Page) -> None:
    """Live, and past the first resync, which draws the region anew under the pointer."""
    live(page)
    page.wait_for_load_state("networkidle")


def test_a_question_is_answered_on_a_phone_and_whoever_looks_is_told(open_page: Open, product: Product, asked: int):
    phone, desk = open_page("/approvals/", width=390), open_page("/approvals/", theme="dark")
    settled(phone)
    settled(desk)
    card = phone.locator(f"#question-{asked}")
    expect(card).to_contain_text("If unanswered, the request expires and the node is left as it is.")
    expect(card).to_contain_text(re.compile("evicted"))
    found = Axe().run(phone).response["violations"] + Axe().run(desk).response["violations"]

    desk.locator(f"#question-{asked}").get_by_role("link", name="Create approval link").click()
    dialog = desk.get_by_role("dialog")
    dialog.get_by_role("button", name="Create link").click()
    expect(dialog).to_contain_text("/approve/")
    link = dialog.locator("pre").inner_text().strip()
    found += Axe().run(desk).response["violations"]

    desk.goto(f"{product.url}/approvals/")
    settled(desk)
    desk.locator(f"#question-{asked}").get_by_role("link", name="Approve").click()
    expect(desk.get_by_role("dialog")).to_contain_text("needs approval")

    stranger = open_page(link.removeprefix(product.url), signed_in=False, width=390)
    found += Axe().run(stranger).response["violations"]
    stranger.get_by_label("Reason").fill("not now")
    stranger.get_by_role("button", name="Deny").click()
    expect(stranger.get_by_role("heading", name="You denied this request")).to_be_visible()

    expect(desk.get_by_role("dialog")).to_contain_text("This request was already answered")
    expect(card).to_be_hidden()
    expect(phone.locator("#live")).to_contain_text("not now")
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_guard_is_changed_where_its_count_is(open_page: Open, theme: str):
    page = open_page("/safety/", theme=theme)
    settled(page)
    page.get_by_role("link", name="Change Breaker for sim").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Time window")).to_have_value(re.compile("min"))
    assert Axe().run(page).response["violations"] == []
    dialog.get_by_label("Reason").fill("test")
    dialog.get_by_label("Enabled").check()
    dialog.get_by_label("Time window").fill("7 min")
    dialog.get_by_role("button", name="Save").click()
    expect(page.locator("#live")).to_contain_text("isolated within 7 min")
