"""A new person signs in through a real identity provider in Chromium, and an administrator chooses a first pack."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from kcover_portal.console.consumers import CLOSE_CODE_SIGNED_OUT
from tests import migrated, oidc_provider
from tests.story import product as products


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[products.Product, oidc_provider.Provider]]:
    """The product with the clusters sim and other, beside a provider where mei is in the group gpu-viewers."""
    folder: Path = tmp_path_factory.mktemp("sign-on")
    migrated_file = migrated.sqlite_file(tmp_path_factory)
    with (
        products.on_sqlite(folder, migrated_file=migrated_file) as made,
        oidc_provider.Provider(made.url) as provider,
    ):
        (folder / "client-secret").write_text(oidc_provider.SECRET, encoding="utf-8")
        made.environment |= {
            "KCOVER_PUBLIC_URL": made.url,
            "KCOVER_OIDC_ISSUER": provider.url,
            "KCOVER_OIDC_CLIENT_ID": oidc_provider.CLIENT,
            "KCOVER_OIDC_CLIENT_SECRET_FILE": str(folder / "client-secret"),
            "KCOVER_OIDC_LABEL": "Sign in with Example",
        }
        made.set_up(nodes=2, agents=False)
        made.manage_all(
            [
                ["cluster", "add", "other", "--kubeconfig", str(folder / "kubeconfig")],
                ["group", "set", "gpu-viewers", "--role", "viewer", "--cluster", "sim"],
            ]
        )
        provider.put_person("mei", ["gpu-viewers", "choir"])
        yield made, provider


def sign_in_at_provider(page: Page, name: str) -> None:
    page.get_by_role("link", name="Sign in with Example").click()
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(oidc_provider.PASSWORD)
    page.get_by_role("button", name="Continue").click()


# The page's live link learns of the end of the session while the answer to "sign out" is on its way.
LINK_ENDS_FIRST = f"""
  const links = [];
  window.WebSocket = class extends WebSocket {{
    constructor(...given) {{
      super(...given);
      links.push(this);
    }}
  }};
  addEventListener("submit", () => setTimeout(() => links[0].onclose({{ code: {CLOSE_CODE_SIGNED_OUT} }}), 100));
"""


def answer_late(route: Route) -> None:
    time.sleep(0.5)
    route.continue_()


def test_a_person_sees_the_cluster_of_their_group(
    browser: Browser, installation: tuple[products.Product, oidc_provider.Provider]
) -> None:
    portal, _provider = installation
    with closing(browser.new_context(viewport={"width": 1440, "height": 900})) as context:
        page = context.new_page()
        page.goto(f"{portal.url}/nodes/")
        sign_in_at_provider(page, "mei")
        page.wait_for_url(f"{portal.url}/nodes/")
        expect(page.locator('a[href^="/nodes/sim/"]').first).to_be_visible()
        assert page.locator('a[href^="/nodes/other/"]').count() == 0
        refused = page.goto(f"{portal.url}/access/")
        assert refused is not None
        assert refused.status == 403
        page.goto(f"{portal.url}/account/")
        expect(page.get_by_text("this session")).to_be_visible()
        context.clear_cookies(name="kcover_oidc")
        page.add_init_script(LINK_ENDS_FIRST)
        page.goto(f"{portal.url}/nodes/")
        page.route("**/sign-out/", answer_late)
        page.locator('form[action="/sign-out/"] button').first.dispatch_event("click")
        page.wait_for_url(f"{portal.url}/sign-in/")
        expect(page.get_by_role("link", name="Sign in with Example")).to_be_visible()


def test_a_person_without_groups_sees_that_the_account_has_no_role(
    browser: Browser, installation: tuple[products.Product, oidc_provider.Provider]
) -> None:
    portal, provider = installation
    provider.put_person("lee", [])
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"{portal.url}/sign-in/")
        sign_in_at_provider(page, "lee")
        expect(page.get_by_text("Your account has no role yet")).to_be_visible()


def test_an_old_answer_is_explained(
    browser: Browser, installation: tuple[products.Product, oidc_provider.Provider]
) -> None:
    portal, _provider = installation
    with closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"{portal.url}/sign-in/oidc/callback/?code=x&state=y")
        expect(page.locator('[data-code="oidc_state_missing"]')).to_be_visible()
        page.get_by_role("link", name="Back to sign-in").click()
        expect(page.get_by_label("Password")).to_be_visible()


def test_the_first_sign_in_of_an_administrator_installs_a_first_pack(
    browser: Browser, installation: tuple[products.Product, oidc_provider.Provider]
) -> None:
    """This installation has no policy, as a portal at its first start."""
    portal, _provider = installation
    with closing(browser.new_context(viewport={"width": 1440, "height": 900})) as context:
        page, errors = context.new_page(), list[str]()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{portal.url}/sign-in/")
        page.get_by_label("User").fill("anna")
        page.get_by_label("Password").fill(products.PASSWORD)
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url(f"{portal.url}/policy-packs/first/")
        expect(page.get_by_role("radio", name="nvidia")).to_be_checked()
        expect(page.locator("#first-mode-shadow")).to_be_checked()
        page.get_by_role("radio", name="kce").check()
        page.get_by_role("button", name="Install").click()
        page.wait_for_url(f"{portal.url}/policies/")
        expect(page.get_by_role("link", name="kce-global", exact=True)).to_be_visible()
        assert errors == []
