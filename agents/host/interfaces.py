"""The network interfaces of this network namespace that carry data: hardware, and those that Multus adds."""

import fcntl
import pathlib
import re
import socket
import struct
from collections.abc import Callable, Collection, Iterable, Mapping

SIOCGIFADDR = 0x8915  # of linux/sockios.h: the IPv4 address of an interface
MULTUS_NAME = re.compile(r"net[0-9]+(-[0-9]+)?")
DEVICES = pathlib.Path("/sys/class/net")


def data_addresses(
    *,
    without: Collection[str],
    devices: pathlib.Path = DEVICES,
    address_of: Callable[[str], str] | None = None,
    names: Callable[[], Iterable[str]] | None = None,
) -> Mapping[str, str]:
    """IPv4 addresses by interface name, sorted. ``without``: addresses of the management plane, whose interfaces are
    left out. Bridges, tunnels and virtual pairs of the host are no data interfaces."""
    found = {}
    for name in sorted((names or _names)()):
        if MULTUS_NAME.fullmatch(name) or (devices / name / "device").exists():
            address = (address_of or _address)(name)
            if address and address not in without:
                found[name] = address
    return found


def _names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _address(name: str) -> str:
    """The IPv4 address; "" if the interface has none, or has gone."""
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])
