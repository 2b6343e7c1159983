"""X-Forwarded-Proto counts only where a trusted proxy says it."""

from typing import Any

import pytest
from django.test import Client

from kcover_portal.asgi import proxy
from kcover_portal.config import env


@pytest.fixture(autouse=True)
def _trusted(settings: Any) -> None:
    settings.KCOVER_TRUSTED_PROXIES = env.read({"KCOVER_TRUSTED_PROXIES": "10.0.0.0/8"})["KCOVER_TRUSTED_PROXIES"]
    settings.SECURE_SSL_REDIRECT = True


@pytest.mark.django_db
@pytest.mark.parametrize(("peer", "status"), [("10.0.0.5", 200), ("192.0.2.1", 301)])
def test_only_the_scheme_from_a_trusted_proxy_counts(peer: str, status: int) -> None:
    said = {"HTTP_X_FORWARDED_PROTO": "https", "REMOTE_ADDR": peer}
    assert Client().get("/sign-in/", **said).status_code == status  # type: ignore[arg-type]


@pytest.mark.parametrize(("peer", "passed"), [("10.0.0.5", True), ("192.0.2.1", False)])
def test_the_front_process_forwards_the_scheme_of_trusted_proxies_only(peer: str, passed: bool) -> None:
    scope = {"headers": [(b"x-forwarded-proto", b"https")], "client": (peer, 1)}
    assert (("x-forwarded-proto", "https") in proxy._onward(scope)) is passed
