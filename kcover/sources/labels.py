"""Labels of series and alerts that name a node and a GPU."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kcover import reasons
from kcover.sources import observation
from kcover.sources.observation import Unreadable

NODE_LABELS: Final = ("node", "kubernetes_node", "node_name", "nodename", "Hostname", "exported_node")
PCI_LABELS: Final = ("pci_bus_id", "pciBusId", "pci")
UUID_LABELS: Final = ("UUID", "gpu_uuid", "uuid")
_PORT: Final = re.compile(r":[0-9]{1,5}$")


def node(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The node that the first of these labels names, without a port (``gpu-1:9400``). Raises Unreadable."""
    for name in names:
        if value := labels.get(name):
            try:
                return observation.node({name: _PORT.sub("", value)}, name)
            except Unreadable as error:
                raise Unreadable(f"labels/{error.path}", error.reason) from error
    raise Unreadable("labels", reasons.of("alert_node_missing", labels=", ".join(names)))


def first(labels: Mapping[str, str], names: Sequence[str]) -> str:
    """The value of the first of these labels that is set, else ""."""
    return next((labels[name] for name in names if labels.get(name)), "")


def device(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """The slot and the UUID of the GPU, each None if no label gives it."""
    uuid = first(labels, UUID_LABELS)
    return observation.pci(first(labels, PCI_LABELS)), uuid[:96] if uuid.startswith("GPU-") else None
