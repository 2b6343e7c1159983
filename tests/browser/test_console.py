"""The console as people use it: live updates, keyboard, screen sizes, and accessibility."""

import os
import re
import signal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.story.product import Product

PAGES = (
    *("/", "/nodes/", "/nodes/?q=none-such", "/incidents/", "/occurrences/", "/decisions/"),
    *("/incidents/log/", "/rescues/", "/approvals/", "/policies/", "/policies/heal/", "/policy-tries/new/"),
    *("/safety/", "/standbys/", "/checks/", "/preflight/", "/notifications/", "/jobs/"),
    *("/sources/", "/policy-packs/", "/audit/", "/audit/sinks/", "/system/", "/access/", "/account/"),
)
EDITOR = "/policies/heal/edit/"
HEALING_MILLISECONDS = 120_000
# Notes whether htmx replaces the region with the next answer. A press lasts three seconds at most; until an answer that
# is late it is held on to.
WATCH_THE_SWAP = """
document.addEventListener("htmx:beforeOnLoad", () => dispatchEvent(new Event("pointerdown")), { once: true });
document.addEventListener("htmx:beforeSwap", ({ detail }) => (window.swaps = detail.shouldSwap), { once: true });
"""
COLOR_RULES = {"runOnly": ["color-contrast", "link-in-text-block"]}  # the rules that depend on the theme


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
    expect(overview.locator("#live").get_by_role("link", name="Xid 62").first).to_be_visible()
    expect(detail.locator(".timeline")).to_contain_text("Xid 62")
    expect(detail.locator(".timeline")).to_contain_text("Uncordon: Done", timeout=HEALING_MILLISECONDS)
    state_and_health = detail.locator(".facts-bar").get_by_text("Healthy", exact=True)
    expect(state_and_health).to_have_count(2)
    assert overview.evaluate("window.loaded") == "once"

    number = product.rescue_of(node)["id"]
    rescue = open_page(f"/rescues/{number}/#step-3")
    expect(rescue.locator(".summary")).to_contain_text("verified healthy")
    expect(rescue.locator("#step-3")).to_contain_text("The node reports a new boot")


def test_an_operator_drains_a_node_after_seeing_what_it_hits(open_page: Open, product: Product):
    node = node_names(product)[1]
    page = open_page(f"/nodes/sim/{node}/")
    page.get_by_role("link", name="Cordon", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The plan")
    dialog.get_by_role("link", name="Cancel", exact=True).click()
    expect(dialog).to_be_hidden()
    page.get_by_role("link", name="Cordon", exact=True).click()
    dialog.get_by_label("Reason").fill("ticket 12")
    dialog.get_by_role("button", name="Cordon").click()
    page.wait_for_url("**/rescues/*/")
    expect(page.locator(".summary")).to_contain_text("anna")
    expect(page.locator("#step-1")).to_contain_text("Cordoned.")


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


def test_the_palette_goes_to_pages_and_nodes_and_opens_acts(open_page: Open, product: Product):
    page = open_page("/")
    live(page)
    palette = page.get_by_role("dialog", name="Command palette")
    page.keyboard.press("Control+k")
    page.keyboard.type("audit")
    expect(palette.get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    page.wait_for_url("**/audit/")
    live(page)
    node = node_names(product)[3]
    page.keyboard.press("Control+k")
    page.keyboard.type(node)
    expect(palette.get_by_role("option", name=node)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/sim/{node}/")
    page.keyboard.press("Control+k")
    page.keyboard.type("pause")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Reason")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_rows_are_chosen_by_key_kept_while_the_list_lives_and_acted_on_together(open_page: Open, product: Product):
    page = open_page("/nodes/?q=gpu")
    live(page)
    chosen = node_names(product)[4:6]
    for name in chosen:
        page.get_by_role("link", name=name).focus()
        page.keyboard.press("x")
    bar = page.locator("#picked")
    expect(bar).to_contain_text("2 selected")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-target") == "live"):
        page.evaluate("htmx.trigger('#live', 'refresh')")
    expect(page.get_by_role("checkbox", name=chosen[0])).to_be_checked()
    bar.get_by_role("button", name="Cordon", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cordon 2 nodes")
    for name in chosen:
        expect(dialog).to_contain_text(name)
    dialog.get_by_role("button", name="Cordon: 2").click()  # the browser itself asks for the reason
    dialog.get_by_label("Reason").fill("ticket 14")
    dialog.get_by_role("button", name="Cordon: 2").click()
    expect(dialog).to_contain_text("Result")
    expect(dialog.get_by_role("link", name=re.compile("^rescue"))).to_have_count(2)
    expect(bar).to_be_hidden()


def test_a_list_is_downloaded_as_it_was_filtered(open_page: Open, product: Product):
    page = open_page(f"/nodes/?q={node_names(product)[5]}")
    page.get_by_text("Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert re.fullmatch(r"kcover-nodes-\d{4}-\d\d-\d\d\.csv", download.value.suggested_filename)
    header, row = download.value.path().read_text(encoding="utf-8").splitlines()
    assert header.startswith("id,cluster,name,")
    assert node_names(product)[5] in row


def test_a_pasted_log_is_read(open_page: Open):
    page = open_page("/incidents/log/")
    page.get_by_label("Kernel log").fill("[ 1.0] NVRM: Xid (PCI:0000:4e:00): 62, pid=1, name=a, 2027")
    page.get_by_role("button", name="Analyse", exact=True).click()
    expect(page.get_by_role("heading", name="1 fault")).to_be_visible()
    expect(page.get_by_role("link", name="heal#1")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_dialog_is_accessible(open_page: Open, product: Product, theme: str):
    page = open_page("/nodes/?q=gpu", theme=theme)
    live(page)
    page.keyboard.press("Control+k")
    page.keyboard.type(node_names(product)[0])
    expect(page.get_by_role("option", name=node_names(product)[0])).to_be_visible()
    found = Axe().run(page).response["violations"]
    page.keyboard.press("Escape")
    page.locator("[data-pick-all]").click()
    page.locator("#picked").get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"Drain \d+ nodes"))
    found += Axe().run(page).response["violations"]
    page.keyboard.press("Escape")
    page.locator(".export summary").click()
    found += Axe().run(page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:120]) for one in found] == []


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
    expect(page.locator("#problems")).to_contain_text("Fix it to publish.")


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_every_page_is_accessible_and_fits_every_screen(open_page: Open, product: Product, language: str):
    """Each page is loaded once; it follows the window's width and the system's theme by itself."""
    page = open_page("/", language=language)
    wide, broken = [], []
    for path in (*PAGES, EDITOR, f"/nodes/sim/{node_names(product)[0]}/"):
        page.goto(product.url + path)
        for width in (390, 3840, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("new Promise((laid_out) => requestAnimationFrame(() => setTimeout(laid_out)))")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append((path, width))
        for theme, rules in (("light", None), ("dark", COLOR_RULES)) if language == "en" else ():
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # no colours on their way to others
            expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
            found = Axe().run(page, options=rules).response["violations"]
            broken += [(path, theme, one["id"], one["nodes"][0]["html"][:120]) for one in found]
    assert wide == []
    assert broken == []


def test_a_page_that_lost_its_server_says_so_and_catches_up(open_page: Open, product: Product):
    page = open_page("/policies/", tolerant=True)
    live(page)
    page.evaluate("window.loaded = 'once'")
    product.processes["standalone"].terminate()
    product.processes["standalone"].wait(timeout=60)
    expect(page.locator("#live-dot")).to_contain_text("Reconnecting")
    product.start_processes()
    expect(page.locator("#live-dot")).to_contain_text("Live")
    assert page.evaluate("window.loaded") == "once"


def resume(page: Page) -> None:
    page.locator("#banner").get_by_role("link", name="Resume").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the test is over")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator("#banner")).not_to_contain_text("Paused")


def test_a_server_that_hangs_is_not_live_and_a_click_says_that_nothing_answers(open_page: Open, product: Product):
    page = open_page("/nodes/", tolerant=True)
    live(page)
    group = product.processes["standalone"].pid
    os.killpg(group, signal.SIGSTOP)
    try:
        page.get_by_role("button", name="Pause everything").click()
        expect(page.locator("#live-dot")).to_contain_text("Reconnecting")
        expect(page.locator("#toast")).to_contain_text("does not answer")
    finally:
        os.killpg(group, signal.SIGCONT)
    expect(page.locator("#live-dot")).to_contain_text("Live")
    page.goto(f"{product.url}/nodes/")
    if "Paused" in page.locator("#banner").inner_text():  # the click was carried out, only its answer was lost
        resume(page)


def test_one_click_pauses_and_the_reason_follows(open_page: Open, product: Product):
    page = open_page("/rescues/")
    page.get_by_role("button", name="Pause everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Automation is paused")
    assert "Paused" in open_page("/nodes/").locator("#banner").inner_text()
    dialog.get_by_label("Reason").fill("smoke in hall 2")
    dialog.get_by_role("button", name="Save the reason").click()
    expect(page.locator("#banner")).to_contain_text("smoke in hall 2")
    expect(page.get_by_role("button", name="Pause everything")).to_have_count(0)
    resume(page)
    expect(page.get_by_role("button", name="Pause everything")).to_be_visible()


def test_the_sign_in_page_speaks_both_languages(open_page: Open):
    page = open_page("/sign-in/", signed_in=False, width=390)
    page.get_by_role("button", name="简体中文").click()
    expect(page.get_by_role("button", name="登录", exact=True)).to_be_visible()


def test_a_region_is_not_replaced_under_a_pressed_button(open_page: Open):
    page = open_page("/nodes/")
    live(page)
    row = page.locator("#live table.rows tbody tr").first
    row.hover()
    page.mouse.down()
    row.evaluate("(row) => (row.dataset.mark = 'first')")
    page.evaluate(WATCH_THE_SWAP)
    page.evaluate("htmx.trigger('#live', 'refresh')")
    page.wait_for_function("() => 'swaps' in window")
    assert page.evaluate("window.swaps") is False
    assert row.get_attribute("data-mark") == "first"
    page.evaluate("document.querySelector('#live table.rows').addEventListener('click', (e) => e.stopPropagation())")
    page.mouse.up()
    expect(row).not_to_have_attribute("data-mark", "first")
