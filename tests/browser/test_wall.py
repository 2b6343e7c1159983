"""The wallboard on a screen: opened by a link, without a person, without scrolling."""

from playwright.sync_api import expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import violations
from tests.story.product import Product

CUT_OFF = """[...document.querySelectorAll("html, #live, .wall-panel, .wall-foot p")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1).length"""


def test_an_admin_makes_a_wall_link_and_a_screen_shows_a_fault_by_itself(
    open_page: Open, product: Product, take_node: TakeNode
):
    admin = open_page("/access/tokens/new/")
    admin.get_by_label("Kind").select_option("wall")
    admin.get_by_role("button", name="Create token").click()
    link = admin.locator("code", has_text="/wall/#kcw_").inner_text()
    page = open_page(link.removeprefix(product.url), signed_in=False)
    expect(page.locator(".wall-tiles")).to_be_visible()
    assert page.url == f"{product.url}/wall/"
    page.set_viewport_size({"width": 1920, "height": 1080})
    page.evaluate("window.loaded = 'once'")
    node = take_node()
    product.inject(node, 62)
    expect(page.locator("#live").get_by_text(node).first).to_be_visible(timeout=90_000)
    assert page.evaluate("window.loaded") == "once"
    assert page.evaluate(CUT_OFF) == 0
    assert violations(page) == []
    page.goto(product.url + "/nodes/")
    page.wait_for_url("**/sign-in/**")
