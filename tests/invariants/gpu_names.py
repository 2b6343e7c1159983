"""The GPUs of the walk's nodes by each of their names: slot, UUID, number, part."""

import random
from typing import Final

from kcover.faults.device import NONE, Device, named, unit_of
from kcover.faults.fault import Gpu, Inventory

PCI: Final = ("0000:4e:00", "0000:4f:00")  # of the GPUs that fail and that may be isolated
OWN: Final = ("slot", "uuid", "number", "all", "link", "link by number")  # of one GPU
EVERY: Final = (*OWN, "none", "switch")


def uuid_of(pci: str, machine: int) -> str:
    """The UUID of the GPU in this slot of a machine; another machine has other GPUs."""
    return f"GPU-{pci[5:7]}-{machine}"


def inventory(machine: int) -> Inventory:
    """What the agent of the machine tells of its GPUs."""
    gpus = (Gpu(index=number, uuid=uuid_of(pci, machine), pci=pci, model="H100") for number, pci in enumerate(PCI))
    return Inventory(driver="550", kernel="6.1", gpus=tuple(gpus))


def device(pci: str, machine: int, name: str, chance: random.Random) -> Device:
    """The GPU by one of its names; or no device, or the switch that has the number of the GPU."""
    number, uuid = PCI.index(pci), uuid_of(pci, machine)
    unit = unit_of("gpu", chance.choice(("{}", "GPU{}", "nvidia{}")).format(number))
    return {
        "slot": named(pci=pci),
        "uuid": named(uuid=uuid),
        "number": named(unit=unit),
        "all": named(pci=pci, uuid=uuid, unit=unit),
        "link": named(pci=pci, part="link 1"),
        "link by number": named(unit=unit, part="link 1"),
        "switch": named(unit=f"nvswitch {number}"),
        "none": NONE,
    }[name]


def owner_of(name: str) -> str:
    """The slot of the GPU that a device's key names; the key without its part of another device; "" of the node."""
    for number, pci in enumerate(PCI):
        if name.startswith((pci, f"GPU-{pci[5:7]}-", f"gpu {number}")):
            return pci
    return " ".join(name.split()[:2])
