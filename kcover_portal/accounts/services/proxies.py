"""The address of the client behind trusted proxies (``KCOVER_TRUSTED_PROXIES``)."""

import functools
import ipaddress
import logging
from collections.abc import Iterable

from django.conf import settings
from django.http import HttpRequest

log = logging.getLogger(__name__)

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(request: HttpRequest) -> str:
    """Returns the address of the client; "" if it is unknown."""
    return nearest_untrusted(request.META.get("REMOTE_ADDR", ""), request.headers.get("X-Forwarded-For", ""))


def nearest_untrusted(peer: str, forwarded_for: str) -> str:
    """Returns the nearest address that is not a trusted proxy; "" if the peer has none, as with a Unix socket.

    ``peer`` is the other end of the connection, ``forwarded_for`` the header X-Forwarded-For. Each proxy appends the
    address of its own client, so the list is read from its end. A client can write only its beginning.
    """
    address = parse(peer)
    if address is None:
        return ""
    if forwarded_for and not _is_trusted(address):
        _warn_of_proxy(str(address))
    for hop in reversed(forwarded_for.split(",")):
        previous = parse(hop)
        if previous is None or not _is_trusted(address):
            break
        address = previous
    return str(address)


def is_trusted(peer: str) -> bool:
    """Returns whether the other end of a connection is a trusted proxy."""
    address = parse(peer)
    return address is not None and _is_trusted(address)


def is_within(address: str, networks: Iterable[Network | str], *, if_unknown: bool) -> bool:
    """Returns whether the address is in one of the networks; ``if_unknown`` for a Unix socket."""
    parsed = parse(address)
    if parsed is None:
        return if_unknown
    return any(parsed in ipaddress.ip_network(network) for network in networks)


def parse(text: str) -> Address | None:
    """Parses 192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80; None for anything else."""
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_trusted(address: Address) -> bool:
    return any(address in proxies for proxies in settings.KCOVER_TRUSTED_PROXIES)


@functools.lru_cache(maxsize=16)  # once for each proxy and process
def _warn_of_proxy(address: str) -> None:
    log.warning(
        "%s sends X-Forwarded-For and is not in KCOVER_TRUSTED_PROXIES; if it is your proxy, add it, because the"
        " portal counts the failed sign-ins of all its clients as one",
        address,
    )
