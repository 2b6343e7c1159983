"""Every page and every dialog: rules of accessibility in both themes, and windows of every width."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OVER, Ask, Open, TakeNode
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
PHONE, DESK = 390, 1440  # pixels of the window's width
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


def primary_acts(page: Page) -> int:
    """How many buttons look like the one act of the page. A card may have one of its own, a dialog too."""
    return int(
        page.evaluate(
            """[...document.querySelectorAll("#main .btn-primary")].filter(
              (one) => one.checkVisibility() && !one.closest("article, .card, .need")).length"""
        )
    )


@pytest.fixture
def pages_of_one(product: Product, ask: Ask, take_node: TakeNode) -> Iterator[list[str]]:
    """The pages of one record: node, rescue, incident, repair, part, validation, preflight run."""
    [(node, rescue)] = ask(1).items()
    [incident] = product.get(f"/api/v1/incidents?node={node}&state=open")["results"]
    repair = _made(product, "repairs", {"machine": {"cluster": "sim", "node": node}, "reason": "a fan is loud"})
    validation = _made(product, "validations", {"cluster": "sim", "nodes": [take_node()], "profile": "light"})
    part = product.wait(lambda: product.get("/api/v1/parts?page_size=1")["results"], "a part")[0]["id"]
    batch = {"batch_idx": 0, "pair": ["10.0.0.1", "10.0.0.2"], "self_ip": "10.0.0.1", "status": "ok"}
    report = {"workload_size": 2, "workload": "job", "node_name": node, "batches": [batch]}
    run = product.post("/api/v1/preflight/reports", {"namespace": "ml", "workload_uid": "u1", "report": report})[1]
    yield [
        *(f"/nodes/sim/{node}/", f"/rescues/{rescue}/", f"/incidents/{incident['id']}/", f"/repairs/{repair}/"),
        *(f"/parts/{part}/", f"/checks/validations/{validation}/", f"/preflight/{run['run']}/"),
    ]
    for verb in ("refuse", "close"):
        product.post(f"/api/v1/repairs/{repair}/{verb}", OVER)


def _made(product: Product, what: str, body: dict[str, Any]) -> int:
    status, answer = product.post(f"/api/v1/{what}", body)
    assert status in (201, 202), answer
    return int(answer["id"])


def test_every_page_is_accessible_and_fits_every_screen(open_page: Open, product: Product, pages_of_one: list[str]):
    """Each page is loaded once; it follows the window's width and the system's theme by itself.

    The frame, most of every page, has its colours judged on the first page only: as on a desk and as on a phone.
    """
    page = open_page("/")
    broken, wide, crowded = [], [], []
    for width in (PHONE, DESK):
        page.set_viewport_size({"width": width, "height": 900})
        broken += [(page.url, width, *one) for one in violations_in_both_themes(page, runOnly=COLOUR_RULES)]
    for path in of_this_run((*PAGES, *pages_of_one)):
        page.goto(product.url + path)
        wide += too_wide(page, (3840, PHONE))
        broken += [(path, PHONE, *one) for one in violations(page, rules=OTHER_RULES)]
        wide += too_wide(page, (DESK,))
        broken += [(path, DESK, *one) for one in violations(page, rules=OTHER_RULES)]
        for theme in in_both_themes(page):
            broken += [(path, theme, *one) for one in violations(page, "main", runOnly=COLOUR_RULES)]
        crowded += [path] * (primary_acts(page) > 1)
    assert (wide, broken, crowded) == ([], [], [])


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
