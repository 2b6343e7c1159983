from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from kcover_portal.accounts.services.oidc import provider as calls
from tests.portal.accounts.browsers import Clock
from tests.portal.accounts.oidc import hostile


class SignOn:
    """A browser that signs in through the provider."""

    def __init__(self, provider: hostile.Provider) -> None:
        self.provider = provider
        self.client = Client(REMOTE_ADDR="192.0.2.7", headers={"User-Agent": "test"})

    def begin(self, target: str = "/nodes/") -> dict[str, str]:
        response = self.client.get("/sign-in/oidc/", {"next": target})
        assert response.status_code == 302, response.content
        return self.provider.authorize(response.headers["Location"])

    def finish(self, answer: dict[str, str]) -> Any:
        return self.client.get("/sign-in/oidc/callback/", answer)

    def sign_in(self, target: str = "/nodes/") -> Any:
        return self.finish(self.begin(target))

    def opens(self, path: str = "/account/") -> int:
        return self.client.get(path).status_code


def code_of(response: Any) -> str:
    """The code of the refusal that the page shows."""
    return str(response.context["code"])


@pytest.fixture
def provider(clock: Clock, settings: Any) -> Iterator[hostile.Provider]:
    calls.forget()
    with hostile.running(clock.now) as running:
        settings.KCOVER_OIDC = running.client
        yield running
    calls.forget()


@pytest.fixture
def person(provider: hostile.Provider) -> SignOn:
    return SignOn(provider)
