"""Names of hosts that other systems have for a node: its name, with a port or a domain, or one of its addresses."""

import ipaddress
import re
from collections.abc import Collection
from typing import Final

_PORT: Final = re.compile(r":[0-9]{1,5}$")
_BRACKETS: Final = re.compile(r"\[([0-9A-Za-z:.%_-]{2,80})\](?::[0-9]{1,5})?")

_INSIDE: Final = re.compile(r"\.(?:svc|pod)(?:\.|$)")


def host(value: str) -> str:
    """The host in ``gpu-1:9400``, ``10.0.0.7:9100``, ``[fd00::1]:9100`` or ``GPU-1.example.``, in one spelling."""
    bracketed = _BRACKETS.fullmatch(value)
    if address := ip(bracketed[1] if bracketed else value):
        return address
    name = _PORT.sub("", value)
    return ip(name) or name.lower().removesuffix(".")


def ip(value: str) -> str:
    """The IP address in its shortest spelling, without a zone; "" if the text is none, or one of each host."""
    found = _parsed(value)
    return "" if found is None or _is_of_all(found) else str(found)


def _parsed(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(value.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _is_of_all(found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return found.is_loopback or found.is_unspecified or found.is_link_local


def fits(told: str, *, name: str, addresses: Collection[str]) -> bool:
    """Return whether a host (in the spelling of ``host``) is the node with this name and these addresses.

    A name with a domain is a node's whose name is the same without it, and the other way round. Two domains that differ
    are of two machines. A name in a cluster's own domain is of a service or a pod, whatever its first part is.
    """
    address = _parsed(told)
    if address is not None and _is_of_all(address):
        return False
    if told in {host(one) for one in addresses}:
        return True
    if address is not None or ip(name) or _INSIDE.search(told):
        return False
    return told.startswith(f"{name}.") or name.startswith(f"{told}.")
