"""Tasks of an operator from the home page, each with a bound on clicks. Others are beside what they are about:

a policy that reboots after approval (``test_policies``), an answer (``test_needs``), maintenance of a rack
(``test_forms``), reports (``test_reports``), a pause (``test_console``), a cluster (``test_set_up``), a channel
(``test_notifications``).
"""

import csv
import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import clicks, live, settled
from tests.story.product import Product

UNCOVERED = 94  # no rule of the policy heal lists it


def test_a_broken_node_is_found_and_its_page_shows_why_no_action_runs(
    open_page: Open, product: Product, take_node: TakeNode
) -> None:
    node, page = take_node(), open_page("/")
    product.inject(node, UNCOVERED)
    card = page.locator("li.need", has_text=node)
    for text in (f"Xid {UNCOVERED}", f"No rule covers Xid {UNCOVERED}.", "Usual remedy:"):
        expect(card).to_contain_text(text)
    assert clicks(page) == 0
    settled(page)
    card.get_by_role("link", name=re.compile("not handled yet")).click()
    expect(page.get_by_role("heading", name="What it means")).to_be_visible()
    page.get_by_role("link", name=node).first.click()
    why = page.get_by_role("region", name="Why is this node not healing?")
    expect(why).to_contain_text(f"No rule covers Xid {UNCOVERED}.")
    assert clicks(page) <= 2
    expect(page.get_by_role("heading", name="Workloads")).to_be_visible()
    expect(page.get_by_role("heading", name="Rules for this node").locator("..")).to_contain_text("heal#1")


def test_past_and_waiting_actions_are_two_clicks_away(open_page: Open, product: Product, take_node: TakeNode) -> None:
    node, page = take_node(), open_page("/")
    settled(page)
    product.inject(node, 62)
    number = product.wait_rescue(node, "succeeded")["id"]
    expect(page.locator("#healed")).to_contain_text(node)
    page.get_by_role("link", name="Rescues", exact=True).click()
    settled(page)
    page.get_by_role("link", name=f"#{number}", exact=True).click()
    expect(page.locator(".summary")).to_contain_text("verified healthy")
    expect(page.locator("#step-1")).to_contain_text("Cordoned.")
    assert clicks(page) <= 2


def choose(page: Page, names: list[str], action: str) -> None:
    for name in names:
        page.get_by_role("checkbox", name=name, exact=True).check()
    page.locator("#picked").get_by_role("button", name=action, exact=True).click()
    dialog = page.get_by_role("dialog")
    for name in names:
        expect(dialog).to_contain_text(name)
    dialog.get_by_label("Reason").press_sequentially("ticket 14")
    dialog.get_by_role("button", name=f"{action}: {len(names)}").click()
    expect(dialog).to_contain_text("Result")
    expect(dialog.get_by_role("link", name=re.compile(rf"^{action} requested: rescue \d+$"))).to_have_count(len(names))


def test_nodes_are_cordoned_with_a_preview_and_given_back(
    open_page: Open, product: Product, take_node: TakeNode
) -> None:
    names, page = [take_node(), take_node()], open_page("/")
    live(page)
    page.get_by_role("link", name="Nodes", exact=True).first.click()
    settled(page)
    choose(page, names, "Cordon")
    assert clicks(page) <= len(names) + 3  # the page, each node, the action, the confirmation
    for name in names:
        product.wait(lambda name=name: product.get(f"/api/v1/nodes/sim/{name}")["cordoned"], "the cordon")
    page.goto(f"{product.url}/nodes/")
    settled(page)
    before = clicks(page)
    choose(page, names, "Release")
    assert clicks(page) - before <= len(names) + 2
    for name in names:
        product.wait(lambda name=name: not product.get(f"/api/v1/nodes/sim/{name}")["cordoned"], "the release")


def test_every_rescue_of_a_node_in_30_days_is_exported(open_page: Open, product: Product, take_node: TakeNode) -> None:
    node = take_node()
    product.inject(node, 62)
    product.wait_rescue(node, "succeeded")
    page = open_page("/")
    live(page)
    page.get_by_role("link", name="Rescues", exact=True).click()
    expect(page.get_by_role("heading", name="Rescues", exact=True)).to_be_visible()
    page.get_by_role("search", name="Filters").get_by_role("searchbox", name="Search").focus()
    page.keyboard.type(node)
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=f"Remove the filter Search: {node}")).to_be_visible()
    page.get_by_role("link", name="30 d", exact=True).click()
    expect(page.get_by_role("link", name=re.compile("Remove the filter Since"))).to_be_visible()
    page.get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    [row] = csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines())
    assert (row["node"], row["state"], row["verified"]) == (node, "succeeded", "true")
    assert clicks(page) <= 4


def test_one_crashed_job_is_one_row_of_the_incident_list(
    open_page: Open, product: Product, take_node: TakeNode
) -> None:
    names = [take_node(), take_node()]
    for name in names:
        product.inject(name, 43)
    page = open_page("/")
    live(page)
    page.get_by_role("link", name="Incidents", exact=True).first.click()
    expect(page.get_by_role("heading", name="Incidents", exact=True)).to_be_visible()
    page.get_by_role("link", name="By fault", exact=True).click()
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="Xid 43", exact=True))
    expect(row).to_have_count(1)
    expect(row.locator("td[data-label=Incidents]")).to_have_text(re.compile("[2-9]|[1-9][0-9]"))
    row.get_by_role("link", name="Xid 43", exact=True).click()
    for name in names:
        expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible()
    assert clicks(page) <= 3
