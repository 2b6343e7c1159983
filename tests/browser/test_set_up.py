"""Set-up by page, and the page of the REST API."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.pages import TARGET_SIZE, clicks, settled, violations, violations_in_both_themes
from tests.story.product import Product


@pytest.fixture
def _without_west(product: Product) -> Iterator[None]:
    """The cluster west, the same simulator once more, is gone after the test."""
    yield
    product.manage("cluster", "remove", "west", "--yes")


@pytest.mark.usefixtures("_without_west")
def test_a_cluster_is_tested_and_added_in_four_clicks(open_page: Open, product: Product) -> None:
    page = open_page("/")
    settled(page)
    page.get_by_role("link", name="System", exact=True).first.click()
    page.wait_for_url("**/system/")
    settled(page)  # else the region is drawn anew between the press and the release, which is clicked again
    page.get_by_role("link", name="Add a cluster").click()
    page.get_by_label("Name").fill("west")
    page.get_by_label("Kubeconfig").fill((product.folder / "kubeconfig").read_text(encoding="utf-8"))
    page.get_by_role("button", name="Test the access").click()
    result = page.locator("#cluster-access")
    expect(result).to_contain_text("features have all their rights")
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []
    result.get_by_role("button", name="Add the cluster").click()
    page.wait_for_url("**/clusters/west/next/")
    expect(page.get_by_role("heading", name="west is registered")).to_contain_text("Shadow")
    assert clicks(page) <= 4
    assert violations(page, rules=TARGET_SIZE) == []

    page.get_by_role("link", name="Create an agent token").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Cluster", exact=True)).to_have_value("west")
    dialog.get_by_role("button", name="Create token").click()
    expect(dialog).to_contain_text("--set cluster=west")


def opened(page: Page) -> Page:
    page.locator("#operations-tag-nodes").click()
    page.locator("#operations-nodes-v1_nodes_list .opblock-summary-control").click()
    expect(page.locator(".try-out__btn")).to_be_visible()
    return page


def test_the_api_page_is_accessible_in_the_theme_of_the_console(open_page: Open) -> None:
    page = opened(open_page("/api/docs/"))
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    assert violations(page, rules=TARGET_SIZE) == []
    phone = opened(open_page("/api/docs/", width=390, language="zh-hans"))
    expect(phone.locator("#places")).to_contain_text("节点")
    expect(phone.locator("#operations-nodes-v1_nodes_list")).to_contain_text("最早的在前")
    expect(phone.get_by_role("button", name="试用")).to_be_visible()
    assert not phone.evaluate("document.documentElement.scrollWidth > innerWidth")


def test_operations_are_found_by_method_path_and_words_of_their_summary(open_page: Open) -> None:
    page = open_page("/api/docs/?q=no-such-thing")
    field, found = page.get_by_label("Find operations"), page.locator("#operations-found")
    expect(found).to_contain_text("No operation has “no-such-thing”")
    expect(page.locator(".opblock-tag")).to_have_count(0)
    field.fill("post /NODES/{cluster} cordon")
    expect(found).to_contain_text(re.compile(r"^1 of \d+ operations$"))
    field.press("Enter")  # leads to the first operation, and the next one opens it
    expect(page.locator("#operations-nodes-nodes_act .opblock-summary-control")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Try it out")).to_be_visible()
    assert violations_in_both_themes(page, rules=TARGET_SIZE) == []
    field.fill("get lemon")
    expect(page.locator(".opblock")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"\?q=get\+lemon"))
    field.fill("")
    expect(page.locator(".opblock")).to_have_count(0)
    expect(page.locator(".opblock-tag").first).to_be_visible()
