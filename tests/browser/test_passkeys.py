"""Passkeys in Chromium with a virtual authenticator, an app, an invitation, and the sign-in page on a phone."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyotp
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.pages import in_both_themes, violations
from tests.story import product as products
from tests.story.product import Product

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def origin(product: Product) -> str:
    """Passkeys need a host name: an IP address is none."""
    return product.url.replace("127.0.0.1", "localhost")


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport=PHONE)
    made.set_default_timeout(90_000)
    yield made
    made.close()


@pytest.fixture
def device(context: BrowserContext) -> tuple[Page, Any, str]:
    """A page, its CDP session and the id of its authenticator."""
    page = context.new_page()
    cdp = context.new_cdp_session(page)
    cdp.send("WebAuthn.enable")
    made = cdp.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    return page, cdp, made["authenticatorId"]


def sign_in(page: Page, origin: str, name: str) -> None:
    page.goto(f"{origin}/sign-in/")
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(products.PASSWORD)
    with page.expect_response(lambda answer: answer.request.method == "POST") as answered:
        page.get_by_role("button", name="Sign in", exact=True).click()
    assert answered.value.status == 302


def asked_for_factor(page: Page, origin: str) -> None:
    """Waits for the address and a field of the page, not for the load of all that belongs to it."""
    expect(page).to_have_url(f"{origin}/sign-in/factor/")
    expect(page.get_by_text("Second factor of")).to_be_visible()


def make_user(product: Product, folder: Path, name: str, role: str) -> None:
    path = folder / "password"
    path.write_text(products.PASSWORD, encoding="utf-8")
    product.manage("user", "create", name, "--role", role, "--password-file", str(path))


def look(name: str, page: Page) -> None:
    """Keeps a picture for people in the folder that TEST_PICTURES names."""
    if folder := os.environ.get("TEST_PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)


def sign_out(page: Page) -> None:
    """Forgets the session. A request that is on its way could bring its cookies back, and the next form be refused."""
    page.wait_for_load_state("networkidle")
    page.goto("about:blank")  # an open page would reload itself, and abort the next navigation
    page.context.clear_cookies()


def add_passkey(page: Page, origin: str) -> None:
    page.goto(f"{origin}/account/second-factor/")
    page.get_by_label("Name").fill("phone")
    page.get_by_role("button", name="Create a passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes").first).to_be_visible()


def test_a_passkey_signs_in_alone_and_as_second_factor(
    device: tuple[Page, Any, str], origin: str, product: Product, tmp_path: Path
):
    page, cdp, authenticator = device
    make_user(product, tmp_path, "kim", "admin")
    sign_in(page, origin, "kim")
    page.get_by_role("heading", name="Overview").wait_for()
    add_passkey(page, origin)
    held = cdp.send("WebAuthn.getCredentials", {"authenticatorId": authenticator})["credentials"]
    assert [one["isResidentCredential"] for one in held] == [True]

    sign_out(page)
    page.goto(f"{origin}/sign-in/?next=/nodes/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{origin}/nodes/")  # the page of the sign-in ends in `?next=/nodes/`

    sign_out(page)
    sign_in(page, origin, "kim")
    asked_for_factor(page, origin)
    page.get_by_role("button", name="Use a passkey").click()
    page.get_by_role("heading", name="Overview").wait_for()


@pytest.mark.usefixtures("_guards_kept")
def test_a_dialog_asks_for_the_factor_and_goes_on_with_the_act(
    device: tuple[Page, Any, str], origin: str, product: Product, tmp_path: Path
):
    page, _cdp, _authenticator = device
    make_user(product, tmp_path, "mo", "admin")
    sign_in(page, origin, "mo")
    page.get_by_role("heading", name="Overview").wait_for()
    page.set_viewport_size({"width": 1440, "height": 900})
    add_passkey(page, origin)
    page.goto(f"{origin}/safety/")
    page.locator("a[href='/safety/sim/guards/expiry/']").first.click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=expiry]").fill("2 d")
    dialog.get_by_label("Reason").fill("tuned")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_contain_text("Confirm that it is you")
    look("confirm-dialog", page)
    dialog.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    acts = product.get("/api/v1/audit?verb=cluster.guards")["results"]
    assert "user:mo" in [act["actor"] for act in acts]


def test_a_cancelled_passkey_is_reported(device: tuple[Page, Any, str], origin: str):
    page, cdp, authenticator = device
    page.goto(f"{origin}/sign-in/")
    cdp.send("WebAuthn.removeVirtualAuthenticator", {"authenticatorId": authenticator})
    page.evaluate("() => { navigator.credentials.get = () => Promise.reject(new DOMException('', 'NotAllowedError')) }")
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("alert")).to_contain_text("did not use a passkey")
    expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_enabled()


def test_an_app_is_added_by_its_key_and_signs_in(
    context: BrowserContext, origin: str, product: Product, tmp_path: Path
):
    page = context.new_page()
    make_user(product, tmp_path, "ola", "operator")
    sign_in(page, origin, "ola")
    page.get_by_role("heading", name="Overview").wait_for()
    page.goto(f"{origin}/account/second-factor/")
    expect(page.locator(".qr svg")).to_be_visible()
    look("setup-phone", page)
    page.get_by_text("Enter the key by hand").click()
    seed = page.locator(".code code").inner_text()
    page.get_by_role("textbox", name="Code").fill(pyotp.TOTP(seed).at(datetime.now(UTC), counter_offset=-1))
    page.get_by_role("button", name="Add the app").click()
    expect(page.get_by_role("heading", name="Recovery codes").first).to_be_visible()
    look("recovery-codes", page)
    sign_out(page)
    sign_in(page, origin, "ola")
    asked_for_factor(page, origin)
    assert violations(page) == []
    page.get_by_role("textbox", name="Code").fill(pyotp.TOTP(seed).now())
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Overview").wait_for()


def test_an_invited_person_chooses_the_password_and_the_token_leaves_the_address(
    context: BrowserContext, origin: str, product: Product
):
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    printed = product.manage("user", "invite", "pat", "--role", "viewer")
    path = printed[printed.index("/invitation/") :].split()[0]
    token = path.partition("#")[2]
    page.goto(origin + path)
    page.get_by_label("New password").fill("a password of pat's own")
    assert token not in page.url
    assert violations(page) == []
    page.get_by_role("button", name="Store the password").click()
    page.wait_for_url("**/sign-in/")
    assert not [url for url in asked if token in url.partition("#")[0]]
    page.get_by_label("User").fill("pat")
    page.get_by_label("Password").fill("a password of pat's own")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("heading", name="Overview").wait_for()


def test_the_sign_in_page_fits_a_phone(context: BrowserContext, origin: str):
    page = context.new_page()
    page.goto(f"{origin}/sign-in/")
    expect(page.get_by_role("button", name="Sign in with a passkey")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for theme in in_both_themes(page):
        assert violations(page) == []
        look(f"sign-in-{theme}", page)
