"""What tests do with an open page of the console: wait until it stands still, and ask axe what is wrong with it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page, expect

from tests.story.product import Product

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
THEMES = ("light", "dark")
TARGET_SIZE = {"target-size": {"enabled": True}}
# Counts how often the page has drawn its live region anew (``Open`` puts it into every page).
COUNT_REFRESHES = """
window.refreshes = 0;
addEventListener("htmx:afterSettle", ({ detail }) => (window.refreshes += detail.target.id === "live"));
"""
# Counts what a person presses in this tab, over all pages (``Open`` puts it into every page).
COUNT_CLICKS = """
addEventListener("pointerdown", () => (sessionStorage.clicks = 1 + Number(sessionStorage.clicks ?? 0)), true);
"""
# Only the broken rules leave the browser: axe lists every element of the page for each rule.
RUN = """([context, options]) => axe.run(context ?? document, { resultTypes: ["violations"], ...options }).then(
  ({ violations }) => violations.map(({ id, nodes }) => [id, nodes[0].html.slice(0, 160)]))"""


def node_names(product: Product) -> list[str]:
    """The nodes with GPUs, in the order of the list."""
    return sorted(row["name"] for row in product.get("/api/v1/nodes")["results"] if row["name"].startswith("gpu"))


def live(page: Page) -> None:
    """Waits for the page's live link."""
    expect(page.locator("#live-dot")).to_contain_text("Live")


def clicks(page: Page) -> int:
    """How often somebody has clicked in this tab, over all pages; choices of a select do not count."""
    return int(page.evaluate("Number(sessionStorage.clicks ?? 0)"))


def settled(page: Page) -> None:
    """Waits until the page is live and past the first resync, which draws the region anew under the pointer."""
    live(page)
    page.wait_for_function("() => window.refreshes > 0")


def violations(page: Page, context: str | None = None, **options: Any) -> list[tuple[str, str]]:
    """The broken rules of accessibility, each with its first element. ``context``: only within this selector."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    return [(rule, element) for rule, element in page.evaluate(RUN, [context, options])]


def in_both_themes(page: Page) -> Iterator[str]:
    """The page in light, then in dark; it follows the system's theme by itself."""
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type]
        expect(page.locator("html")).to_have_attribute("data-bs-theme", theme)
        yield theme


def violations_in_both_themes(page: Page, **options: Any) -> list[tuple[str, str]]:
    """The broken rules of ``violations`` in light and in dark."""
    return [one for _theme in in_both_themes(page) for one in violations(page, **options)]
