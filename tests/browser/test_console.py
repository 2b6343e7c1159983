"""The console as people use it: live updates, keyboard, screen sizes, and accessibility."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open, TakeNode
from tests.browser.pages import TARGET_SIZE, clicks, live, node_names, violations_in_both_themes
from tests.story.product import Product

HEALING_MILLISECONDS = 120_000
# Notes whether htmx replaces the region with the next answer. A press lasts three seconds at most; until an answer that
# is late it is held on to.
WATCH_THE_SWAP = """
document.addEventListener("htmx:beforeOnLoad", () => dispatchEvent(new Event("pointerdown")), { once: true });
document.addEventListener("htmx:beforeSwap", ({ detail }) => (window.swaps = detail.shouldSwap), { once: true });
"""


def test_a_fault_is_seen_and_heals_without_a_reload(open_page: Open, product: Product, take_node: TakeNode):
    node = take_node()
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
    expect(overview.locator("#healed")).to_contain_text(node)

    number = product.rescue_of(node)["id"]
    rescue = open_page(f"/rescues/{number}/#step-3")
    expect(rescue.locator(".summary")).to_contain_text("verified healthy")
    expect(rescue.locator("#step-3")).to_contain_text("The node rebooted (boot")


def test_an_operator_drains_a_node_after_a_preview(open_page: Open, take_node: TakeNode):
    node = take_node()
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


def test_rows_are_chosen_by_key_kept_while_the_list_lives_and_acted_on_together(open_page: Open, take_node: TakeNode):
    page = open_page("/nodes/?q=gpu")
    live(page)
    chosen = [take_node(), take_node()]
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
    expect(dialog.get_by_role("link", name=re.compile(r"^Cordon requested: rescue \d+$"))).to_have_count(2)
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


def test_the_map_is_grouped_filtered_zoomed_and_walked_by_keys(open_page: Open, product: Product):
    page = open_page("/")
    said = page.locator("#map-said")
    canvas = page.locator("fleet-map canvas")
    page.route(re.compile(r"by=rack"), lambda _: None)
    with page.expect_request(re.compile(r"by=rack")):
        page.get_by_label("Group by").select_option("rack")
    # The focus comes before the answer: nothing of the grouping before is said.
    canvas.focus()
    page.unroute(re.compile(r"by=rack"))  # lets the held request go on
    expect(said).to_contain_text(re.compile(r"\S+: .+ GPUs · rack-01"))
    first = said.inner_text()
    page.keyboard.press("ArrowRight")
    expect(said).not_to_have_text(first)
    name = said.inner_text().split(":")[0]
    page.get_by_label("Highlight nodes").fill(name)
    expect(page.locator("#map-match")).to_contain_text("1 of ")
    canvas.focus()
    page.keyboard.press("End")
    page.keyboard.press("+")
    expect(said).to_contain_text(f"{name}: ")
    expect(page).to_have_url(re.compile(rf"\?by=rack&find={name}&zoom=12$"))
    page.reload()
    expect(page.locator("#map-match")).to_contain_text("1 of ")
    expect(page.get_by_label("Group by")).to_have_value("rack")
    page.get_by_text("Show as table").last.click()
    row = page.locator("#map-twin tbody").last.get_by_role("row")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("rack-01")
    assert not violations_in_both_themes(page, rules=TARGET_SIZE)
    canvas.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/sim/{name}/")


def test_mistakes_of_a_policy_are_marked_in_its_margin(open_page: Open):
    page = open_page("/policies/heal/edit/")
    text = page.locator("#text").evaluate("area => area.value")
    wrong = text.replace("10min", "10 nights")
    page.locator(".cm-content").evaluate("content => content.focus()")
    # The text comes before the editor hears what is selected. It must not leave that to Chromium, which adds styles.
    page.evaluate("addEventListener('selectionchange', (event) => event.stopImmediatePropagation(), true)")
    page.locator(".cm-content").fill(wrong)
    expect(page.locator("#text")).to_have_value(wrong)
    expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    expect(page.locator("#problems")).to_contain_text("Fix it to publish.")


def test_a_page_that_lost_its_server_shows_it_and_catches_up(open_page: Open, product: Product):
    page = open_page("/policies/", tolerant=True)
    live(page)
    page.evaluate("window.loaded = 'once'")
    product.processes["standalone"].terminate()
    product.processes["standalone"].wait(timeout=60)
    expect(page.locator("#live-dot")).to_contain_text("Reconnecting")
    product.start_processes()
    expect(page.locator("#live-dot")).to_contain_text("Live", timeout=90_000)
    assert page.evaluate("window.loaded") == "once"


def resume(page: Page) -> None:
    page.locator("#pause-all").get_by_role("link", name="Resume").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("the test is over")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator("#mode-strip")).not_to_contain_text("Paused")


@pytest.fixture
def _automation_kept(open_page: Open) -> Iterator[None]:
    """Automation runs again after the test."""
    yield
    page = open_page("/nodes/")
    if "Paused" in page.locator("#mode-strip").inner_text():
        resume(page)


@pytest.mark.usefixtures("_automation_kept")  # the click may be carried out, with only its answer lost
def test_a_page_of_a_hanging_server_shows_that_it_is_not_live(open_page: Open, product: Product):
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
    expect(page.locator("#live-dot")).to_contain_text("Live", timeout=90_000)


@pytest.mark.usefixtures("_automation_kept")
def test_one_click_pauses_and_the_reason_is_given_afterwards(open_page: Open):
    page = open_page("/rescues/")
    page.get_by_role("button", name="Pause everything").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Automation is paused")
    assert clicks(page) == 1
    assert "Paused" in open_page("/nodes/").locator("#mode-strip").inner_text()
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
