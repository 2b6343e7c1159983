"""The networks by which failed attempts of a client are counted."""

import ipaddress

from kcover_portal.accounts.services import proxies

IPV6_PREFIX = 64  # bits; a provider gives each customer at least such a network, so single addresses mean nothing
WIDER_PREFIXES = {"subnet": 56, "site": 48}  # bits, by the kind of network


def network(address: str) -> str:
    """Returns what failures are counted by: the IPv4 address, or the /64 network of an IPv6 address."""
    parsed = proxies.parse(address)
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((parsed, IPV6_PREFIX), strict=False))
    return address


def wider_networks(address: str) -> dict[str, str]:
    """The networks around that of an IPv6 address, by their kind: a provider gives one customer up to a /48."""
    parsed = proxies.parse(address)
    if not isinstance(parsed, ipaddress.IPv6Address):
        return {}
    return {kind: str(ipaddress.ip_network((parsed, bits), strict=False)) for kind, bits in WIDER_PREFIXES.items()}
