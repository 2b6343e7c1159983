"""The devices of a health event's impacted entities, which are pairs of a type and a value.

NVSentinel names a GPU by up to three entities (``GPU`` its index, ``PCI``, ``GPU_UUID``). For a switch it adds the link
(``NVLINK``) and the GPU at its other end. Its monitors: github.com/NVIDIA/NVSentinel, health-monitors.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kcover.faults.device import UUID, Device, named, part_of, unit_of
from kcover.sources import observation

_GPU: Final = ("GPU", "GPU_ID", "GPU_INDEX")
_UUIDS: Final = ("GPU_UUID", "GPU-UUID", "UUID")
_PCIS: Final = ("PCI", "PCI_BUS_ID", "PCI_ADDRESS")
_PARTS: Final = {
    **dict.fromkeys(("NVLINK", "LINK"), "link"),
    **dict.fromkeys(("NICPORT", "NIC_PORT", "PORT"), "port"),
    **dict.fromkeys(("GPU_INSTANCE", "GPU_I", "MIG", "MIG_INSTANCE"), "mig"),
}
_OWNERS: Final = {"NVSWITCH": "nvswitch", "NIC": "nic", "HCA": "nic"}  # a GPU beside one is only at its other end
# Of a device, or of none; the last ones are the node as a whole, whatever its name.
_DETAIL: Final = re.compile(
    r"REG[0-9]+|GPC|TPC|SM|CHANNEL|PID|PROCESS|CONTAINER|POD|ALL|(?:[^ ]*/)?(?:[A-Z]*_?NODE|HOST(?:NAME)?|MACHINE)"
)


def devices(entities: Sequence[tuple[str, str]]) -> list[Device]:
    """The devices, each once; [] if no entity names one. The types are in capitals.

    Each part of a device is a device. Which of several devices has which of several parts is not told.
    """
    owners = [(kind, value) for kind, value in entities if kind in _OWNERS]
    if owners:
        slots = [value for kind, value in entities if kind in _PCIS]
        paired = zip(owners, slots, strict=True) if len(slots) == len(owners) else ((owner, "") for owner in owners)
        found = [_owner(kind, value, slot) for (kind, value), slot in paired]
    else:
        found = _gpus(entities)
    if not found:
        others = (one for one in entities if one[0] not in _PARTS and not _DETAIL.fullmatch(one[0]))
        found = [named(unit=unit_of(kind, value)) for kind, value in others]
    known = list(dict.fromkeys(device for device in found if device))
    said = (part_of(_PARTS[kind], value) for kind, value in entities if kind in _PARTS)
    parts = list(dict.fromkeys(part for part in said if part))
    if not known:  # a part of an unknown device is no other part
        return [named(unit=part) for part in parts]
    if not parts or len(known) > 1 < len(parts):
        return known
    return [replace(device, part=part) for device in known for part in parts]


def _owner(kind: str, value: str, slot: str) -> Device:
    unit = "" if observation.pci(value) else unit_of(_OWNERS[kind], value)
    return named(pci=slot or value, unit=unit)


def _gpus(entities: Sequence[tuple[str, str]]) -> list[Device]:
    """The GPUs. As many values of each type are one GPU after the other; else each value stands for itself."""
    units: list[str] = []
    slots: list[str] = []
    uuids: list[str] = []
    for kind, value in entities:
        if kind in (*_GPU, *_UUIDS, *_PCIS):
            if UUID.fullmatch(value):
                uuids.append(value)
            elif observation.pci(value):
                slots.append(value)
            elif kind in _GPU:
                units.append(unit_of("gpu", value))
    if len({len(values) for values in (units, slots, uuids) if values}) > 1:
        rows = [(unit, "", "") for unit in units]
        rows += [("", slot, "") for slot in slots]
        rows += [("", "", uuid) for uuid in uuids]
    else:
        rows = list(itertools.zip_longest(units, slots, uuids, fillvalue=""))
    return [named(unit=unit, pci=slot, uuid=uuid) for unit, slot, uuid in rows]
