"""The address that a failed sign-in counts for: the client's, and never one that the client forges."""

import logging
from typing import Any

import pytest

from kcover_portal.accounts.services import proxies
from kcover_portal.asgi import proxy
from kcover_portal.config import env
from tests.portal.accounts.browsers import Browser, Clock


@pytest.fixture(autouse=True)
def _trusted(settings: Any) -> None:
    settings.KCOVER_TRUSTED_PROXIES = env.read({"KCOVER_TRUSTED_PROXIES": "127.0.0.1, ::1, 10.0.0.0/8"})[
        "KCOVER_TRUSTED_PROXIES"
    ]
    proxies._warn_of_proxy.cache_clear()


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),  # not a trusted proxy
        ("10.0.0.5", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.5", "198.51.100.1, 203.0.113.9", "203.0.113.9"),  # the first is the client's invention
        ("127.0.0.1", "198.51.100.1, 203.0.113.9,10.0.0.5", "203.0.113.9"),
        ("10.0.0.5", "10.0.0.7", "10.0.0.7"),
        ("10.0.0.5", "nonsense", "10.0.0.5"),
        ("10.0.0.5", "203.0.113.9, nonsense", "10.0.0.5"),
        ("10.0.0.5", "", "10.0.0.5"),
        ("::1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("::ffff:10.0.0.5", "203.0.113.9:80", "203.0.113.9"),
        ("fe80::1%eth0", "", "fe80::1"),
        ("", "203.0.113.9", ""),
    ],
)
def test_the_nearest_address_that_is_not_a_proxy_counts(peer: str, forwarded: str, client: str) -> None:
    assert proxies.nearest_untrusted(peer, forwarded) == client


def test_a_proxy_that_is_not_trusted_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        proxies.nearest_untrusted("192.0.2.1", "203.0.113.9")
    proxies.nearest_untrusted("10.0.0.5", "203.0.113.9")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "192.0.2.1" in caplog.text
    assert "KCOVER_TRUSTED_PROXIES" in caplog.text


@pytest.mark.django_db
@pytest.mark.parametrize(("peer", "limited"), [("192.0.2.1", True), ("10.0.0.5", False)])
def test_the_throttle_believes_the_header_of_trusted_proxies_only(peer: str, limited: bool, clock: Clock) -> None:
    answers = {
        Browser(peer, **{"X-Forwarded-For": f"203.0.113.{number}"}).sign_in("anna", "x").status_code
        for number in range(8)
    }
    assert answers == ({200, 429} if limited else {200})


@pytest.mark.parametrize(
    ("headers", "sent"),
    [([], "192.0.2.1"), ([(b"x-forwarded-for", b"198.51.100.1")], "198.51.100.1, 192.0.2.1")],
)
def test_live_appends_the_client_address_to_the_header(headers: list[tuple[bytes, bytes]], sent: str) -> None:
    scope = {"headers": headers, "client": ("192.0.2.1", 4711)}
    assert dict(proxy._onward(scope))["x-forwarded-for"] == sent


@pytest.mark.parametrize("text", ["10.0.0.1/8", "proxy.example.com", "10.0.0.0/33", "127.0.0.1 ::1"])
def test_an_invalid_address_or_network_is_refused(text: str) -> None:
    with pytest.raises(env.SettingsInvalid, match="KCOVER_TRUSTED_PROXIES"):
        env.read({"KCOVER_TRUSTED_PROXIES": text})


def test_no_proxy_at_all_can_be_trusted() -> None:
    assert env.read({"KCOVER_TRUSTED_PROXIES": "none"})["KCOVER_TRUSTED_PROXIES"] == []
