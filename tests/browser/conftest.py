"""A real Chromium in front of the whole product; a page fails the test on any error or request to another host."""

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import migrated
from tests.browser.pages import ARGUMENTS, CHROMIUM, COUNT_CLICKS, COUNT_REFRESHES, node_names
from tests.portal.rescue.world import HEAL
from tests.share import in_share, leave_out
from tests.story import product as products

FOLDER = Path(__file__).parent
SHARES = 4  # a run has a quarter of the tests; those of test_pages.py choose a share of the pages instead
NODES = 30
ASK = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: ask-first}
spec: {rules: [{priority: 99, mode: approve, errorCode: ["92"], actions: [{name: cordon}, {name: drain}]}]}
"""
OVER = {"reason": "the test is over"}
expect.set_options(timeout=60_000)  # a busy machine is no failure
Open = Callable[..., Page]
TakeNode = Callable[[], str]
Ask = Callable[[int], dict[str, int]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests of this run: the commit chooses which. `make verify` has all."""
    leave_out(config, items, lambda item: item.path.is_relative_to(FOLDER) and not _is_in_share(item))


def _is_in_share(item: pytest.Item) -> bool:
    """The number of a test is made of its name, so that it is the same whatever else was chosen."""
    return item.path.name == "test_pages.py" or in_share(zlib.crc32(item.name.encode()), shares=SHARES)


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
        made.wait(lambda: len(made.get("/api/v1/gpus?page_size=1000")["results"]) >= NODES * 8, "the agents to report")
        yield made


@pytest.fixture(scope="package")
def unused(product: products.Product) -> list[str]:
    """The nodes that no test has hurt or cordoned yet; without standbys, which are cordoned from the start."""
    rows = product.get("/api/v1/nodes?page_size=1000")["results"]
    cordoned = {row["name"] for row in rows if row["cordoned"]}
    return [name for name in node_names(product) if name not in cordoned]


@pytest.fixture
def take_node(product: products.Product, unused: list[str]) -> Iterator[TakeNode]:
    """Gives a healthy node to this test alone: what people cordoned or refused to heal is left to people.

    At the end nothing asks about the node any more, its faults are closed, and it takes work.
    """
    taken: list[str] = []

    def take() -> str:
        assert unused, "more nodes are taken than there are: raise NODES"
        taken.append(unused.pop(0))
        return taken[-1]

    yield take
    for node in taken:
        rescue = product.rescue_of(node)
        if rescue and rescue["state"] == "held":
            product.post(f"/api/v1/rescues/{rescue['id']}/cancel", OVER)
        for incident in product.get(f"/api/v1/incidents?node={node}&state=open")["results"]:
            product.post(f"/api/v1/incidents/{incident['id']}/close", OVER)
        if product.get(f"/api/v1/nodes/sim/{node}")["cordoned"]:  # a cluster without room evicts no more pods
            product.post(f"/api/v1/nodes/sim/{node}/release", OVER)


@pytest.fixture
def ask(product: products.Product, take_node: TakeNode) -> Iterator[Ask]:
    """Makes requests for approval by one cause: ``ask(2)`` returns the rescue's key by node."""
    path = product.folder / "ask.yaml"
    path.write_text(ASK, encoding="utf-8")
    product.manage("policy", "apply", "-f", str(path))

    def made(number: int) -> dict[str, int]:
        nodes = [take_node() for _ in range(number)]
        for node in nodes:
            product.inject(node, 92)
        return {node: int(product.wait_rescue(node, "held")["id"]) for node in nodes}

    yield made
    product.manage("policy", "delete", "ask-first")


@pytest.fixture
def _policy_kept(product: products.Product) -> Iterator[None]:
    """The policy heal is as before after the test."""
    yield
    product.manage("policy", "apply", "-f", str(product.folder / "policies.yaml"))


@pytest.fixture
def _guards_kept(product: products.Product) -> Iterator[None]:
    """The guards are as before after the test."""
    before = json.loads(product.manage("cluster", "guards", "sim"))
    yield
    product.manage("cluster", "guards", "sim", "--set", json.dumps(before))


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
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=theme, reduced_motion="reduce"
        )
        context.set_default_timeout(90_000)
        context.add_init_script(COUNT_REFRESHES + COUNT_CLICKS)
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
