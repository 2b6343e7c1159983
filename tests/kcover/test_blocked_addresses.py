"""Addresses that the portal never calls for others."""

from ipaddress import ip_address

import pytest

from kcover.values import blocked_addresses


@pytest.mark.parametrize(
    "text",
    [
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:c1::a9fe:a9fe",
        "192.0.0.192",
        "100.100.100.200",
        "168.63.129.16",
        "169.254.169.254",
        "fe80::1",
        "127.0.0.1",
        "127.8.9.10",
        "::1",
        "::",
        "0.0.0.0",
        "0.1.2.3",
        "255.255.255.255",
        "224.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:169.254.169.254",
        "::169.254.169.254",
        "64:ff9b::169.254.169.254",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2002:a9fe:a9fe::1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:5601:5601",  # Teredo: the client is 169.254.169.254, each bit inverted
        "2001:db8::5efe:169.254.169.254",
        "2001:db8::200:5efe:127.0.0.1",
    ],
)
def test_blocked(text: str) -> None:
    assert blocked_addresses.is_blocked(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.5",
        "192.168.1.1",
        "172.16.0.1",
        "1.1.1.1",
        "fd12:3456::1",
        "2606:4700::1",
        "64:ff9b::1.1.1.1",
        "2002:101:101::1",
    ],
)
def test_other_addresses_are_not_blocked(text: str) -> None:
    assert not blocked_addresses.is_blocked(ip_address(text))


@pytest.mark.parametrize(
    ("text", "usual"), [("[::0001]", "::1"), ("LocalHost", "localhost"), ("127.0.0.1", "127.0.0.1")]
)
def test_the_usual_spelling(text: str, usual: str) -> None:
    assert blocked_addresses.canonical(text) == usual
