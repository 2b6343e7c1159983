"""Labels of series and alerts that name a node, a device and an Xid."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kcover import reasons
from kcover.faults import weight
from kcover.faults.device import UUID, Device, named, part_of, unit_of
from kcover.faults.xid import MAX_CODE
from kcover.sources import observation
from kcover.sources.observation import Unreadable

_OWN: Final = ("node", "kubernetes_node", "node_name", "nodename", "Hostname")
# Prometheus renames the label of a series to exported_X where the target that it scraped has an X of its own.
EXPORTED: Final = "exported_"
NODE_LABELS: Final = (*(f"{EXPORTED}{name}" for name in _OWN), *_OWN)
XID_LABELS: Final = ("xid", "err_code", "xid_code", "xid_error", "error_code", "xiderror", "code")
_OF_GPU: Final = "error_code"  # of any program, unless the alert is about a GPU
_OF_XID: Final = "code"  # of anything, unless the name of the alert or of the metric says that it is about Xids
_PCI: Final = (
    "pci_bus_id",
    "pcibusid",
    "pci_address",
    "pci",
    "bdf",
    "bus_id",
    "gpu_bus_id",
    "pcie_bus_id",
    "pcie_bus_info",
)
_UUID: Final = ("uuid", "gpu_uuid", "accelerator_id")
# A label and what its value numbers or names; the first one that an item has counts.
_UNITS: Final = (
    *(("gpu", "gpu"), ("gpu_id", "gpu"), ("gpuid", "gpu"), ("gpu_index", "gpu"), ("gpuindex", "gpu")),
    *(("minor_number", "minor"), ("nvswitch", "nvswitch"), ("nvswitch_id", "nvswitch")),
    *(("nic", "nic"), ("hca", "nic"), ("ib_device", "nic"), ("interface", "nic"), ("device", "device")),
    *(("deviceid", "device"), ("device_id", "device")),  # of Autopilot, of MetaX; what it counts differs
)
_PARTS: Final = (
    ("gpu_i_id", "mig"),
    ("gpu_instance_id", "mig"),
    ("nvlink", "link"),
    ("link", "link"),
    ("port", "port"),
)
# The name of a pod of a DaemonSet ends in five of the characters that Kubernetes draws from.
_EXPORTERS_POD: Final = re.compile(r"exporter.*-[bcdfghjklmnpqrstvwxz2456789]{5}$")
_ADAPTER: Final = re.compile(r"(?:mlx[45]|ib|rdma|roce|eth|en[opsx]|bnxt|irdma|hfi|efa|bond)[A-Za-z0-9_.-]*")


def node(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The node that the first of these labels names, without a port (``gpu-1:9400``). Raises Unreadable.

    dcgm-exporter gives its own pod's name as ``Hostname`` where nobody tells it the node; then another label counts.
    """
    given = [name for name in names if labels.get(name)]
    if not given:
        raise Unreadable("labels", reasons.of("alert_node_missing", labels=", ".join(names)))
    name = next((name for name in given if not _EXPORTERS_POD.search(labels[name])), given[0])
    try:
        return observation.node({name: labels[name]}, name)
    except Unreadable as error:
        raise Unreadable(f"labels/{error.path}", error.reason) from error


def first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The value of the first of these labels that is set, else ""."""
    return next((labels[name] for name in names if labels.get(name)), "")


def device(labels: Mapping[str, str]) -> Device:
    """The device that the labels name, in whatever case their names are written."""
    given = {name.lower(): value.strip() for name, value in labels.items() if value.strip()}
    given |= {name.removeprefix(EXPORTED): value for name, value in given.items() if name.startswith(EXPORTED)}
    units = [(kind, given[label]) for label, kind in _UNITS if label in given]
    uuid, pci = first(given, _UUID), first(given, _PCI)
    unit = ""
    for kind, value in units:
        if UUID.fullmatch(value):
            uuid = uuid or value
        elif observation.pci(value):
            pci = pci or value
        elif not unit:
            is_nic = kind == "device" and _ADAPTER.fullmatch(value) is not None
            unit = unit_of("nic" if is_nic else kind, value)
    has_ports = unit.startswith(("nic ", "nvswitch "))
    parts = [part_of(kind, given[label]) for label, kind in _PARTS if label in given and (kind != "port" or has_ports)]
    return named(pci=pci, uuid=uuid, unit=unit, part=" ".join(dict.fromkeys(part for part in parts if part)))


def xid(labels: Mapping[str, str], *texts: str) -> int | None:
    """The Xid that a label names, else the name of the alert or, in plain words, one of these texts.

    None: none, or several.
    """
    return weight.only(xids(labels, *texts))


def xids(labels: Mapping[str, str], *texts: str) -> frozenset[int]:
    """All Xids that a label names, else the name of the alert or, in plain words, these texts."""
    given = {name.lower(): value.strip() for name, value in labels.items()}
    is_of_xid = any("xid" in given.get(name, "").lower() for name in ("alertname", "__name__"))
    is_of_gpu = is_of_xid or bool(device(labels)) or any("xid" in text.lower() for text in texts)
    left_out = {name for name, counts in ((_OF_GPU, is_of_gpu), (_OF_XID, is_of_xid)) if not counts}
    for name in XID_LABELS:
        value = given.get(name, "") if name not in left_out else ""
        if re.fullmatch(r"[0-9]{1,10}", value) and 0 < int(value) <= MAX_CODE:
            return frozenset({int(value)})
        if codes := weight.named_xids(value):
            return codes
    return weight.named_xids(given.get("alertname", "")) or weight.named_xids(*texts)
