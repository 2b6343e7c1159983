"""The page of a node: its last 30 days by keyboard; and a token whose dialog waits for the first report."""

import re

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import live, settled
from tests.story.product import Product

RULES = {"rules": {"target-size": {"enabled": True}}}


def wait_told(product: Product, node: str, times: int) -> None:
    """Waits until the portal knows of a fault this often: one that it hears of after the test is a fault of the next.

    The agent tells the repeats of one fault together, 5 s after the first.
    """

    def told() -> bool:
        rows = product.get(f"/api/v1/events?node={node}")["results"]
        return sum(row["count"] for row in rows) >= times

    product.wait(told, f"{times} faults of {node}")


def test_a_fault_is_a_mark_in_the_strip_of_its_node(open_page: Open, product: Product, take_node: TakeNode):
    node = take_node()
    product.inject(node, 62)
    product.wait_rescue(node, "succeeded")
    cluster = product.get(f"/api/v1/nodes?q={node}")["results"][0]["cluster"]
    for theme, width, language in (("light", 1440, "en"), ("dark", 390, "zh-hans")):
        page = open_page(f"/nodes/{cluster}/{node}/", theme=theme, width=width, language=language)
        expect(page.locator("[data-strip] a.strip-mark").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert Axe().run(page, options=RULES).response["violations"] == []
    page = open_page(f"/nodes/{cluster}/{node}/", theme="dark")
    page.emulate_media(media="print")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light")
    expect(page.locator(".side")).to_be_hidden()
    expect(page.get_by_text("rule evaluated").first).to_be_visible()  # a repeat after 5 s is decided again
    expect(page.locator("#strip-table table")).to_be_visible()
    page.emulate_media(media="screen")
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "dark")
    marks = page.locator("[data-strip] a.strip-mark")
    marks.first.focus()
    expect(page.locator("#strip-said")).to_contain_text("Rescues: Rescue")
    page.keyboard.press("End")
    expect(page.locator("#strip-said")).to_contain_text("Faults: Xid 62")
    page.locator("#strip-table summary").press("Enter")
    expect(page.locator("#strip-table")).to_contain_text("Out of service: Isolated by the portal")
    marks.last.press("Enter")
    page.wait_for_url("**/incidents/**")


def test_the_acts_follow_the_state_of_the_node_and_keep_the_focus(
    open_page: Open, product: Product, take_node: TakeNode
):
    node = take_node()
    page = open_page(f"/nodes/sim/{node}/")
    live(page)
    acts, dialog = page.locator("#node-acts"), page.get_by_role("dialog")
    cordon, uncordon, drain = (
        acts.get_by_role("link", name=name, exact=True) for name in ("Cordon", "Uncordon", "Drain")
    )
    expect(uncordon).to_be_hidden()
    drain.click()
    expect(dialog).to_contain_text("The plan")
    assert product.post(f"/api/v1/nodes/sim/{node}/cordon", {"reason": "ticket 7"})[0] < 300
    expect(uncordon).to_be_attached()  # below the dialog, which stays
    expect(dialog).to_contain_text("The plan")
    page.keyboard.press("Escape")
    expect(drain).to_be_focused()  # the dialog was opened from there
    uncordon.focus()
    assert product.post(f"/api/v1/nodes/sim/{node}/uncordon", {"reason": "over"})[0] < 300
    expect(cordon).to_be_visible()
    expect(uncordon).to_be_hidden()
    expect(acts.get_by_role("link").first).to_be_focused()  # the act that had the focus does not apply any more


def test_a_dialog_gives_the_focus_back_to_an_act_that_was_refreshed_below_it(
    open_page: Open, product: Product, take_node: TakeNode
):
    node = take_node()
    product.inject(node, 94)
    of_node = f"/api/v1/incidents?node={node}"
    incident = product.wait(lambda: product.get(of_node)["results"], "the incident")[0]["id"]
    page = open_page(f"/incidents/{incident}/")
    live(page)
    dialog = page.get_by_role("dialog")
    for name in ("Cordon", "Add a note"):
        page.get_by_role("link", name=name, exact=True).click()
        expect(dialog).to_be_visible()
        with page.expect_response(f"**/incidents/{incident}/"):
            product.inject(node, 94)
        page.keyboard.press("Escape")
        expect(page.get_by_role("link", name=name, exact=True)).to_be_focused()
    wait_told(product, node, 3)


def test_the_dialog_of_an_enrolment_token_has_the_command_and_waits(open_page: Open, product: Product):
    page = open_page("/access/")
    page.get_by_role("link", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Kind").select_option("agent")
    dialog.get_by_label("Cluster", exact=True).select_option(index=1)
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog.get_by_text("kubectl -n kcover-system create secret generic kcover-agent-token")).to_be_visible()
    with page.expect_response("**/reports/") as polled:
        pass
    assert polled.value.status == 204
    expect(dialog.get_by_text("Waiting for the first report")).to_be_visible()
    assert Axe().run(page, options=RULES).response["violations"] == []


def test_a_refresh_of_the_page_safety_leaves_the_focus_on_its_link(
    open_page: Open, product: Product, take_node: TakeNode
):
    node, page = take_node(), open_page("/safety/")
    live(page)
    link = page.get_by_role("link", name=re.compile("^Change Storm"))
    link.focus()
    with page.expect_response("**/safety/"):
        product.inject(node, 94)
    settled(page)
    expect(link).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    with page.expect_response("**/safety/"):
        product.inject(node, 94)
    settled(page)
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(link).to_be_focused()
    wait_told(product, node, 2)
