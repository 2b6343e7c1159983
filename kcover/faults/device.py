"""The device that a fault is about, in one form, however its source names it.

A source names a device by its PCI slot, its UUID, or by what it is and its number (``gpu 3``, ``nvswitch 3``,
``nic mlx5_0``); a part of it (``link 17``, ``port 1``, ``mig 7``) is a device of its own. Two devices are the same if
they share a name. A number is joined to the slot and the UUID of the node's inventory where exactly one GPU fits.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from kcover.faults import xid

UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,64}", re.IGNORECASE)
_BARE_UUID: Final = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")  # as some exporters cut it
_WORD: Final = re.compile(r"[A-Za-z0-9/][A-Za-z0-9_.:/@-]{0,63}")
_PART: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")
# DCGM's index; that of /dev/nvidia3 is a minor number.
_GPU_FILE: Final = re.compile(r"(?:nvidia|[Gg][Pp][Uu][ _-]?)([0-9]{1,4})")
_OF_GPU: Final = re.compile(r"gpu|dev(?:ice)?|minor", re.IGNORECASE)  # kinds whose values may be names of GPUs
_SWITCH_FILE: Final = re.compile(r"(?:/dev/)?nvidia-nvswitch([0-9]{1,4})")
_NUMBER: Final = re.compile(r"[0-9]{1,4}")
_NO_NAMES: Final = frozenset(("all", "any", "n/a", "na", "none", "null", "unknown"))  # what monitors write without one
_MOST_NAME, _MOST_PART = 72, 54  # characters; a key must fit into 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a node, by all names that are known of it; without any it is the node as a whole.

    ``slot``: its PCI slot (``0000:4e:00``). ``unit``: what it is and its number or name (``gpu 3``). ``part``: the part
    of it (``link 17``), "" for the whole device.
    """

    slot: str = ""
    uuid: str = ""
    unit: str = ""
    part: str = ""

    def __bool__(self) -> bool:
        return bool(self.slot or self.uuid or self.unit)

    @property
    def key(self) -> str:
        """The name that tells it from the other devices of its node; "" for the node as a whole.

        The slot comes first, so that a replaced GPU keeps its incident.
        """
        name = self.slot or self.uuid or self.unit
        return f"{name} {self.part}" if name and self.part else name

    @property
    def names(self) -> frozenset[str]:
        """Every name of it."""
        known = (name for name in (self.slot, self.uuid, self.unit) if name)
        return frozenset(f"{name} {self.part}" if self.part else name for name in known)

    @property
    def whole(self) -> "Device":
        """The device that this is a part of."""
        return replace(self, part="")


NONE: Final = Device()


def named(*, pci: str = "", uuid: str = "", unit: str = "", part: str = "") -> Device:
    """The device of a source's own words; a word that names no device counts as absent.

    A MIG device is a part of its GPU if the GPU is named, too.
    """
    slot = xid.slot(pci.strip().lower().removeprefix("pci:")) or ""
    uuid, unit, part = uuid.strip(), _short(unit, _MOST_NAME), _short(part, _MOST_PART)
    if _BARE_UUID.fullmatch(uuid):
        uuid = f"GPU-{uuid}"
    if not UUID.fullmatch(uuid):
        return Device(slot=slot, unit=unit, part=part)
    kind, _, rest = uuid.partition("-")
    spelled = f"{kind.upper()}-{rest if rest.upper().startswith('GPU-') else rest.lower()}"  # as the drivers print it
    if kind.upper() == "GPU":
        return Device(slot=slot, uuid=spelled, unit=unit, part=part)
    if slot or unit:
        return Device(slot=slot, unit=unit, part=part or _short(spelled, _MOST_PART))
    return Device(unit=spelled, part=part)


def _short(name: str, most: int) -> str:
    """The name; a longer one is cut, with a digest so that two of them stay apart."""
    if len(name) <= most:
        return name
    return f"{name[: most - 9]}~{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"


def unit_of(kind: str, value: str) -> str:
    """``gpu 3`` for the kind ``GPU`` and the value ``3`` or ``nvidia3``; "" for a value that is no name."""
    value = value.strip()
    if value.lower() in _NO_NAMES:
        return ""
    if _OF_GPU.search(kind) and (file := _GPU_FILE.fullmatch(value)):
        return f"gpu {int(file[1])}"
    if file := _SWITCH_FILE.fullmatch(value):
        return f"nvswitch {int(file[1])}"
    number = re.sub(rf"^{re.escape(kind)}[ _-]?(?=[0-9]{{1,4}}$)", "", value, flags=re.IGNORECASE)
    if _NUMBER.fullmatch(number):
        return f"{kind.lower()} {int(number)}"
    return f"{kind.lower()} {value}" if _WORD.fullmatch(value) else ""


def part_of(kind: str, value: str) -> str:
    """``link 17`` for the kind ``link`` and the value ``17``; "" for a value that is no name."""
    value = value.strip()
    return unit_of(kind, value) if _PART.fullmatch(value) else ""


@dataclass(frozen=True, slots=True)
class Known:
    """A GPU of the node's inventory."""

    index: int
    uuid: str
    slot: str


def joined(device: Device, inventory: Iterable[Known]) -> Device:
    """The device with the names that the inventory has for it, where exactly one GPU fits.

    A printed slot or UUID outweighs a number: the number of a source may count otherwise.
    """
    found = list(inventory)
    for same in (
        [gpu for gpu in found if device.slot and gpu.slot == device.slot],
        [gpu for gpu in found if device.uuid and gpu.uuid == device.uuid],
        [gpu for gpu in found if not (device.slot or device.uuid) and f"gpu {gpu.index}" == device.unit],
    ):
        if len(same) == 1:
            [gpu] = same
            unit = f"gpu {gpu.index}"
            return replace(device, slot=device.slot or gpu.slot, uuid=device.uuid or gpu.uuid, unit=unit)
    return device


def covers(passed: Collection[str], names: Iterable[str]) -> bool:
    """Return whether what is said of the devices ``passed`` holds for the device of these names.

    A pass without devices holds for all. A pass of a device holds for its parts, that of a part for no other.
    """
    if not passed:
        return True
    return any(name == one or name.startswith(f"{one} ") for name in names if name for one in passed)
