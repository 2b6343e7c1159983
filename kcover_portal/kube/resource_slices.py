"""The devices that DRA drivers publish for a node, read from its ResourceSlices.

NVIDIA's driver (NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go) names a GPU by ``uuid`` and
``pcieBusID``, and a MIG device by ``parentUUID`` and the same ``pcieBusID``. Kubernetes has the standard attribute
``resource.kubernetes.io/pciBusID``. ``pcieRoot`` is the root complex, which several devices share: it identifies none.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from kcover_portal.kube import port
from kcover_portal.kube.wire import base

UUIDS: Final = ("uuid",)
PARENTS: Final = ("parentUUID",)
PCI_ADDRESSES: Final = ("pciBusID", "pcieBusID", "pciAddress", "pciAddr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device of a pool. ``parent``: the UUID of the GPU that it is a part of. "": unknown."""

    driver: str
    pool: str
    name: str
    uuid: str = ""
    parent: str = ""
    pci: str = ""


class Attribute(base.Struct, frozen=True):
    """DeviceAttribute; other types than strings name no device."""

    string: str | None = None


class Basic(base.Struct, frozen=True):
    """BasicDevice of v1beta1."""

    attributes: dict[str, Attribute] | None = None


class DeviceSpec(base.Struct, frozen=True):
    """resource.k8s.io Device; v1beta1 has the attributes in ``basic``."""

    name: str = ""
    attributes: dict[str, Attribute] | None = None
    basic: Basic | None = None


class Pool(base.Struct, frozen=True):
    """ResourcePool; its generation counts its changes."""

    name: str = ""
    generation: int = 0


class SliceSpec(base.Struct, frozen=True):
    """ResourceSliceSpec."""

    driver: str = ""
    pool: Pool = Pool()
    devices: list[DeviceSpec] | None = None


def devices(slices: Iterable[port.CustomObject]) -> list[Device]:
    """The devices of each pool's newest generation: slices of an older one are about to be deleted.

    A slice that cannot be decoded has no devices.
    """
    read = [spec for one in slices if (spec := _read(one)) is not None]
    newest: dict[tuple[str, str], int] = {}
    for spec in read:
        key = (spec.driver, spec.pool.name)
        newest[key] = max(spec.pool.generation, newest.get(key, 0))
    return [
        _device(spec, found)
        for spec in read
        if spec.pool.generation == newest[spec.driver, spec.pool.name]
        for found in spec.devices or ()
    ]


def _read(one: port.CustomObject) -> SliceSpec | None:
    try:
        return msgspec.json.decode(one.raw_spec, type=SliceSpec)
    except (msgspec.DecodeError, RecursionError):
        return None


def _device(spec: SliceSpec, found: DeviceSpec) -> Device:
    given = found.attributes or (found.basic.attributes if found.basic else None) or {}
    return Device(
        driver=spec.driver,
        pool=spec.pool.name,
        name=found.name,
        uuid=_text(given, UUIDS),
        parent=_text(given, PARENTS),
        pci=_text(given, PCI_ADDRESSES),
    )


def _text(given: Mapping[str, Attribute], names: tuple[str, ...]) -> str:
    """The first of these attributes, whatever domain qualifies its name."""
    plain = {name.rpartition("/")[2]: value.string for name, value in given.items() if value.string}
    return next((found for name in names if (found := plain.get(name))), "")
