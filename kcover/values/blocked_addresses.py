"""IP addresses that the portal never calls for others: this machine, metadata services, and forms that hide them."""

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

# Metadata services that are not link-local: Alibaba, Azure, Oracle (192.0.0.192, in the network below), AWS over IPv6
# (metadata, DNS, time and EKS Pod Identity in one network), Google over IPv6, Oracle over IPv6.
METADATA: Final = tuple(
    map(
        ip_network,
        ("100.100.100.200", "168.63.129.16", "fd00:ec2::/32", "fd20:ce::254", "fd00:c1::a9fe:a9fe"),
    )
)
# "This network" (RFC 791), IETF protocol assignments (RFC 6890), reserved (RFC 1112), local NAT64 (RFC 8215), whose
# embedded IPv4 address cannot be found without knowing the prefix, and IPv6's discard prefix (RFC 6666).
SPECIAL: Final = tuple(map(ip_network, ("0.0.0.0/8", "192.0.0.0/24", "240.0.0.0/4", "64:ff9b:1::/48", "100::/64")))
# Prefixes before an IPv4 address: compatible and mapped (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052).
EMBEDDING: Final = tuple(map(IPv6Network, ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
ISATAP: Final = (0x00005EFE, 0x02005EFE)  # bits 64 to 95 of an address whose last 32 bits are an IPv4 address


def is_blocked(address: Address) -> bool:
    """Returns whether the address, or an IPv4 address inside of it, must not be called."""
    return any(_is_blocked(each) for each in (address, *_embedded(address)))


def _is_blocked(address: Address) -> bool:
    special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    return special or any(address in network for network in (*METADATA, *SPECIAL))


def _embedded(address: Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that a gateway or the kernel may take out of an IPv6 address."""
    if isinstance(address, IPv4Address):
        return
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in EMBEDDING) and int(address) > 1:
        yield last
    if (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        yield last
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


def canonical(text: str) -> str:
    """Returns the usual spelling of an IP address; other texts in lower case."""
    try:
        return str(ip_address(text.strip("[]")))
    except ValueError:
        return text.lower()
