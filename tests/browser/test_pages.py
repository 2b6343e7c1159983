"""Every page and every dialog: rules of accessibility in both themes, and windows of every width."""

import re
from collections.abc import Sequence

from playwright.sync_api import Page, expect

from tests.browser.conftest import Ask, Open
from tests.browser.pages import TARGET_SIZE, in_both_themes, live, node_names, violations, violations_in_both_themes
from tests.share import in_share
from tests.story.product import Product

SHARES = 4  # a run has a quarter of the pages; the commit chooses which
PAGES = (
    *("/", "/nodes/", "/nodes/?q=none-such", "/incidents/", "/occurrences/", "/decisions/"),
    *("/incidents/log/", "/rescues/", "/approvals/", "/policies/", "/policies/heal/", "/policy-tries/new/"),
    *("/policies/winners/", "/incidents/?group=fault", "/incidents/?group=job"),
    *("/safety/", "/standbys/", "/checks/", "/preflight/", "/notifications/", "/jobs/", "/reports/"),
    *("/repairs/", "/parts/", "/checks/validations/", "/preflight/plans/"),
    *("/sources/", "/policy-packs/", "/audit/", "/audit/sinks/", "/system/", "/access/", "/account/"),
    *("/clusters/new/", "/clusters/sim/next/", "/map/"),
    "/policies/heal/edit/",
)
COLOUR_RULES = ["color-contrast", "link-in-text-block"]  # those that depend on the theme, and that take longest
OTHER_RULES = {**{rule: {"enabled": False} for rule in COLOUR_RULES}, **TARGET_SIZE}


def of_this_run(paths: Sequence[str]) -> list[str]:
    """The share of the pages that this run looks at."""
    return [path for number, path in enumerate(paths) if in_share(number, shares=SHARES)]


def too_wide(page: Page, widths: tuple[int, ...]) -> list[tuple[str, int]]:
    """The widths of the window in which one must scroll sideways, each with the page's address."""
    found = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("new Promise((laid_out) => requestAnimationFrame(() => setTimeout(laid_out)))")
        if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append((page.url, width))
    return found


def test_every_page_is_accessible_and_fits_every_screen(open_page: Open, product: Product, ask: Ask):
    """Each page is loaded once; it follows the window's width and the system's theme by itself.

    The frame, most of every page, has its colours judged on the first page only.
    """
    [(node, rescue)] = ask(1).items()
    page = open_page("/")
    broken = [(page.url, *one) for one in violations_in_both_themes(page, runOnly=COLOUR_RULES)]
    wide = []
    for path in of_this_run((*PAGES, f"/rescues/{rescue}/", f"/nodes/sim/{node}/")):
        page.goto(product.url + path)
        wide += too_wide(page, (390, 3840, 1440))
        broken += [(path, *one) for one in violations(page, rules=OTHER_RULES)]
        for theme in in_both_themes(page):
            broken += [(f"{path} {theme}", *one) for one in violations(page, "main", runOnly=COLOUR_RULES)]
    assert wide == []
    assert broken == []


def test_every_page_fits_a_screen_in_chinese(open_page: Open, product: Product):
    page = open_page("/", language="zh-hans")
    wide = []
    for path in of_this_run((*PAGES, f"/nodes/sim/{node_names(product)[0]}/")):
        page.goto(product.url + path)
        wide += too_wide(page, (390, 1440))
    assert wide == []


def test_every_dialog_is_accessible(open_page: Open, product: Product):
    page = open_page("/nodes/?q=gpu")
    live(page)
    page.keyboard.press("Control+k")
    page.keyboard.type(node_names(product)[0])
    expect(page.get_by_role("option", name=node_names(product)[0])).to_be_visible()
    found = violations_in_both_themes(page)
    page.keyboard.press("Escape")
    page.locator("[data-pick-all]").click()
    page.locator("#picked").get_by_role("button", name="Drain").click()
    expect(page.get_by_role("dialog")).to_contain_text(re.compile(r"Drain \d+ nodes"))
    found += violations_in_both_themes(page)
    page.keyboard.press("Escape")
    page.locator(".export summary").click()
    found += violations_in_both_themes(page)
    assert found == []
