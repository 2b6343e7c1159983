"""Names of hosts that other systems have for a node: its name, with a port or a domain, or one of its addresses."""

import ipaddress
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
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


class Hosts:
    """Finds the nodes that a host (in the spelling of ``host``) may be. Built once for all hosts of a report.

    A name with a domain is a node's whose name is the same without it, and the other way round. Two domains that differ
    are of two machines. A name in a cluster's own domain is of a service or a pod, whatever its first part is.
    """

    def __init__(self, nodes: Iterable[tuple[str, Collection[str]]]) -> None:
        """``nodes``: the name of each, and its addresses and host names in the spelling of ``host``."""
        self._names: set[str] = set()
        self._full: dict[str, list[str]] = {}  # the names with a domain that the node itself has
        self._by_address: defaultdict[str, list[str]] = defaultdict(list)
        self._by_beginning: defaultdict[str, list[str]] = defaultdict(list)
        for name, addresses in nodes:
            for one in addresses:
                self._by_address[one].append(name)
            self._full[name] = [one for one in addresses if one.startswith(f"{name}.")]
            if not (name[:1].isdigit() and ip(name)):
                self._names.add(name)
                for beginning in _beginnings(name):
                    self._by_beginning[beginning].append(name)

    def find(self, told: str) -> list[str]:
        """Return the names of the nodes, sorted; empty for an address that each host has."""
        address = _parsed(told)
        if address is not None and _is_of_all(address):
            return []
        found = set(self._by_address.get(told, ()))
        if address is None and not _INSIDE.search(told):
            found.update(one for one in _beginnings(told) if one in self._names and self._may_be(one, told))
            found.update(self._by_beginning.get(told, ()))
        return sorted(found)

    def _may_be(self, node: str, told: str) -> bool:
        """Returns whether a name with a domain may be the node's, by the domains that the cluster has for it."""
        full = self._full[node]
        return not full or any(is_same_name(told, one) for one in full)


def is_same_name(one: str, other: str) -> bool:
    """Return whether two names of hosts are the same, or one is the other without (a part of) its domain."""
    return _is_beginning(one, other) or _is_beginning(other, one)


def _is_beginning(name: str, of: str) -> bool:
    return of == name or of.startswith(f"{name}.")


def _beginnings(name: str) -> Iterator[str]:
    """``gpu-1`` and ``gpu-1.east`` of ``gpu-1.east.example``."""
    at = name.find(".")
    while at > 0:
        yield name[:at]
        at = name.find(".", at + 1)
