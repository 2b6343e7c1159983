"""The console as people use it: it follows by itself, works by keyboard, fits every screen, and hides from nobody."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.story.product import Product

PAGES = ("/", "/nodes/", "/nodes/?q=none-such", "/incidents/", "/rescues/", "/policies/", "/policies/heal/", "/audit/")
EDITOR = "/policies/heal/edit/"
HEALING_SECONDS = 60_000  # milliseconds, as Playwright counts


def node_names(product: Product) -> list[str]:
    """The nodes with GPUs, in the order of the list."""
    return sorted(row["name"] for row in product.get("/api/v1/nodes")["results"] if row["name"].startswith("gpu"))


def live(page: Page) -> None:
    expect(page.locator("#live-dot")).to_contain_text("Live")


def test_a_fault_is_seen_and_heals_without_a_reload(open_page: Open, product: Product):
    node = node_names(product)[0]
    overview, detail = open_page("/"), open_page(f"/nodes/sim/{node}/")
    live(overview)
    live(detail)
    overview.evaluate("window.loaded = 'once'")
    product.inject(node, 62)
    expect(overview.locator("#live").get_by_role("link", name="Xid 62").first).to_be_visible(timeout=10_000)
    expect(detail.locator(".timeline")).to_contain_text("Xid 62")
    expect(detail.locator(".timeline")).to_contain_text("Uncordon: Done", timeout=HEALING_SECONDS)
    expect(detail.locator(".facts-bar").get_by_text("Healthy", exact=True)).to_be_visible(timeout=10_000)
    assert overview.evaluate("window.loaded") == "once"

    number = product.rescue_of(node)["id"]
    rescue = open_page(f"/rescues/{number}/#step-3")
    expect(rescue.locator(".summary")).to_contain_text("is verified healthy")
    expect(rescue.locator("#step-3")).to_contain_text("the node reports a new boot")


def test_an_operator_drains_a_node_after_seeing_what_it_hits(open_page: Open, product: Product):
    node = node_names(product)[1]
    page = open_page(f"/nodes/sim/{node}/")
    page.get_by_role("link", name="Cordon", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The plan")
    dialog.get_by_role("link", name="Do nothing").click()
    expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Cordon", exact=True).click()
    dialog.get_by_label("Reason").fill("ticket 12")
    dialog.get_by_role("button", name="Cordon").click()
    page.wait_for_url("**/rescues/*/")
    expect(page.locator(".summary")).to_contain_text("anna")
    expect(page.locator("#step-1")).to_contain_text("cordoned", timeout=10_000)


def test_the_keyboard_reaches_everything(open_page: Open, product: Product):
    page = open_page("/")
    live(page)
    page.keyboard.press("g")
    page.keyboard.press("n")
    page.wait_for_url("**/nodes/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    second = page.locator("a.row-link").nth(1).inner_text()
    expect(page.locator(":focus")).to_have_text(second)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/sim/{second}/")
    page.keyboard.press("/")
    page.keyboard.type(node_names(product)[2])
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/sim/{node_names(product)[2]}/")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()


def test_the_map_is_walked_by_keys(open_page: Open, product: Product):
    page = open_page("/")
    said = page.locator("#map-said")
    page.locator("fleet-map canvas").focus()
    expect(said).to_contain_text(re.compile(r"\S+: .+ GPUs"))
    first = said.inner_text()
    page.keyboard.press("ArrowRight")
    expect(said).not_to_have_text(first)
    name = said.inner_text().split(":")[0]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/sim/{name}/")


def test_mistakes_of_a_policy_are_marked_in_its_margin(open_page: Open):
    page = open_page(EDITOR)
    text = page.locator("#text")
    text.fill(text.input_value().replace("10min", "10 minutes"))
    expect(page.locator(".gutter .wrong")).to_have_count(1)
    expect(page.locator("#problems")).to_contain_text("cannot be put in force")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_accessible(open_page: Open, product: Product, theme: str):
    broken = {}
    for path in (*PAGES, EDITOR, f"/nodes/sim/{node_names(product)[0]}/"):
        page = open_page(path, theme=theme)
        found = Axe().run(page).response["violations"]
        if found:
            broken[path] = [(one["id"], one["nodes"][0]["html"][:120]) for one in found]
        page.close()
    assert broken == {}


@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("width", [390, 3840])
def test_no_page_is_wider_than_the_screen(open_page: Open, product: Product, language: str, width: int):
    wide = []
    for path in (*PAGES, EDITOR, f"/nodes/sim/{node_names(product)[0]}/"):
        page = open_page(path, width=width, language=language)
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            wide.append(path)
        page.close()
    assert wide == []


def test_a_page_that_lost_its_server_says_so_and_catches_up(open_page: Open, product: Product):
    page = open_page("/policies/", tolerant=True)
    live(page)
    page.evaluate("window.loaded = 'once'")
    product.processes["standalone"].terminate()
    product.processes["standalone"].wait(timeout=20)
    expect(page.locator("#live-dot")).to_contain_text("Reconnecting", timeout=10_000)
    product.start_processes()
    expect(page.locator("#live-dot")).to_contain_text("Live", timeout=40_000)
    assert page.evaluate("window.loaded") == "once"


def test_the_sign_in_page_speaks_both_languages(open_page: Open):
    page = open_page("/sign-in/", signed_in=False, width=390)
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("button", name="登录")).to_be_visible()
