"""Serial numbers of the machine, its board and its network adapters, for the inventory.

The firmware (DMI) and the adapters (PCI vital product data, VPD) are read once: a machine is off while these parts
are replaced. Both need root.
"""

import logging
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import replace

from agents.host import deadline
from agents.probes.host.counter_files import read
from agents.probes.host.hardware import NETWORK_CLASSES, pci_devices
from kcover.faults.fault import Inventory, Nic
from kcover.machines import part_serials

log = logging.getLogger(__name__)
SECONDS = 3.0  # for all adapters; the first report waits 5 s for the inventory
MAX_NICS = 32  # as the wire format has it
MAX_VPD_BYTES = 4096
MAX_TEXT = 64  # characters of a serial number or a name
MAX_MODEL = 128
# Tags of resources in the VPD (PCI Local Bus Specification 3.0, appendix I).
NAME_TAG, READ_ONLY_TAG = 0x82, 0x90


class WithSerials:
    """An inventory with the serial numbers of this machine. ``inventory`` reads the driver and the GPUs."""

    def __init__(self, inventory: Callable[[], Inventory], *, root: pathlib.Path = pathlib.Path("/sys")) -> None:
        self.inventory = inventory
        self._root = root
        self._parts: Inventory | None = None

    def __call__(self) -> Inventory:
        found = self.inventory()
        if self._parts is None:
            try:
                self._parts = deadline.within(SECONDS, lambda: read_parts(self._root), what="serial numbers")
            except deadline.DeadlineExceeded as error:  # asked again with the next inventory
                log.warning("%s", error)
                return found
        parts = self._parts
        return replace(found, machine_serial=parts.machine_serial, board_serial=parts.board_serial, nics=parts.nics)


def read_parts(root: pathlib.Path) -> Inventory:
    """The serial numbers below ``root`` (``/sys``). Numbers that cannot be read are left out."""
    machine, board = (read(root / "class/dmi/id" / name) or "" for name in ("product_serial", "board_serial"))
    nics: dict[str, Nic] = {}
    for nic in _nics(root):
        known = nics.get(nic.serial)  # each port of an adapter is a PCI function
        names = [name for one in (known, nic) if one is not None and (name := one.name)]
        nics[nic.serial] = replace(known or nic, name=",".join(names)[:MAX_TEXT])
    return Inventory(
        machine_serial=part_serials.known(machine)[:MAX_TEXT],
        board_serial=part_serials.known(board)[:MAX_TEXT],
        nics=tuple(nics.values())[:MAX_NICS],
    )


def _nics(root: pathlib.Path) -> Iterator[Nic]:
    for folder in pci_devices(root, NETWORK_CLASSES):
        if (folder / "physfn").exists():  # a virtual function is no part
            continue
        model, serial = vital_product_data(_bytes(folder / "vpd"))
        if serial := part_serials.known(serial)[:MAX_TEXT]:
            names = (entry.name for kind in ("infiniband", "net") for entry in sorted((folder / kind).glob("*")))
            yield Nic(serial=serial, name=next(names, "")[:MAX_TEXT], pci=folder.name, model=model[:MAX_MODEL])


def vital_product_data(data: bytes) -> tuple[str, str]:
    """The name and the serial number in a device's VPD; "" where there is none."""
    name, serial, at = "", "", 0
    while at + 3 <= len(data) and data[at] & 0x80:  # small resources, of which one ends the data, lack this bit
        tag, size = data[at], int.from_bytes(data[at + 1 : at + 3], "little")
        content = data[at + 3 : at + 3 + size]
        if tag == NAME_TAG:
            name = _text(content)
        elif tag == READ_ONLY_TAG:
            serial = _keyword(content, b"SN")
        at += 3 + size
    return name, serial


def _keyword(content: bytes, wanted: bytes) -> str:
    at = 0
    while at + 3 <= len(content):
        size = content[at + 2]
        if content[at : at + 2] == wanted:
            return _text(content[at + 3 : at + 3 + size])
        at += 3 + size
    return ""


def _text(content: bytes) -> str:
    return content.decode("ascii", errors="replace").strip(" \0\r\n\t")


def _bytes(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(MAX_VPD_BYTES)
    except OSError:  # no VPD, or not root
        return b""
