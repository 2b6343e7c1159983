"""A real Chromium in front of the whole product; a page fails the test on any error or request to another host."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import migrated
from tests.portal.rescue.world import HEAL
from tests.story import product as products

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
NODES = 7
expect.set_options(timeout=60_000)  # a busy machine is no failure
Open = Callable[..., Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Chromium. It ends with these tests: Playwright keeps an event loop running, which asynchronous tests refuse."""
    found = CHROMIUM if CHROMIUM.exists() else None
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=ARGUMENTS) as made:
        yield made


@pytest.fixture(scope="package")  # other tests follow in this worker
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[products.Product]:
    """The product with a few simulated nodes whose agents report, and a policy that heals."""
    migrated_file = migrated.sqlite_file(tmp_path_factory)
    with products.on_sqlite(tmp_path_factory.mktemp("browser"), migrated_file=migrated_file) as made:
        made.set_up(nodes=NODES, policies=HEAL)
        made.wait(lambda: len(made.get("/api/v1/gpus")["results"]) >= NODES * 8, "the agents to report")
        yield made


@pytest.fixture(scope="package")
def session(browser: Browser, product: products.Product) -> list[Any]:
    """The cookies of one sign-in, shared by all contexts."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{product.url}/sign-in/")
    page.get_by_label("User").fill("anna")
    page.get_by_label("Password").fill(products.PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Overview").wait_for()
    cookies = list(context.cookies())
    context.close()
    return cookies


@pytest.fixture
def open_page(browser: Browser, product: products.Product, session: list[Any]) -> Iterator[Open]:
    """Opens a page of the console: ``open_page("/nodes/", theme="dark", width=390, language="zh-hans")``.

    At the end every page must have been without console errors, CSP reports and requests to anywhere else;
    ``tolerant``: a page that will lose its server may complain.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []
    host = urlsplit(product.url).netloc

    def open_one(
        path: str,
        *,
        theme: Any = "light",
        width: int = 1440,
        language: str = "en",
        signed_in: bool = True,
        tolerant: bool = False,
    ) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        context.set_default_timeout(90_000)
        contexts.append(context)
        context.add_cookies([{"name": "django_language", "value": language, "url": product.url}])
        if signed_in:
            context.add_cookies([one for one in session if one["name"] == "sessionid"])
        page = context.new_page()
        page.on("request", lambda asked: _check_origin(asked.url, host, faults))
        if tolerant:
            page.goto(product.url + path)
            return page
        page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
        page.on("console", lambda said: faults.append(f"{page.url}: {said.text}") if said.type == "error" else None)
        page.goto(product.url + path)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert faults == []


def _check_origin(url: str, host: str, faults: list[str]) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("data", "blob") and parts.netloc != host:
        faults.append(f"a request left the server: {url}")
