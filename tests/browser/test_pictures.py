"""Pictures of every page for people to look at: ``make pictures`` writes them into the folder of TEST_PICTURES."""

import os
import re
from pathlib import Path

import pytest

from tests.browser.conftest import Ask, Open, TakeNode
from tests.browser.test_pages import PAGES
from tests.story.product import Product

SETTLE_MILLISECONDS = 800
# Light, dark, a phone, and Chinese.
LOOKS: dict[str, dict[str, object]] = {
    "light": {},
    "dark": {"theme": "dark"},
    "phone": {"width": 390},
    "zh": {"language": "zh-hans"},
}

pytestmark = pytest.mark.skipif("TEST_PICTURES" not in os.environ, reason="TEST_PICTURES: a folder for the pictures")


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_has_its_picture(
    open_page: Open, product: Product, ask: Ask, take_node: TakeNode, look: str
) -> None:
    [(node, rescue)] = ask(1).items()
    product.inject(take_node(), 94)
    folder = Path(os.environ["TEST_PICTURES"])
    folder.mkdir(parents=True, exist_ok=True)
    page = open_page("/", tolerant=True, **LOOKS[look])
    paths = (*PAGES, "/api/docs/", "/wall/", "/sign-in/", f"/rescues/{rescue}/", f"/nodes/sim/{node}/")
    for path in paths:
        page.goto(product.url + path)
        page.wait_for_load_state("load" if page.locator("#live-dot").count() else "networkidle")
        page.wait_for_timeout(SETTLE_MILLISECONDS)  # parts that a page fetches, and the drawing of charts
        name = re.sub(r"[^a-z0-9]+", "-", path).strip("-") or "home"
        page.screenshot(path=folder / f"{name}-{look}.png", full_page=True)
        assert (folder / f"{name}-{look}.png").stat().st_size > 0
