"""The columns of a node's row that the cluster shows, as the database can store them."""

from typing import Any

from kcover.nodes import marks
from kcover.sources import hosts
from kcover_portal.fleet import queries
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import storable_values
from kcover_portal.kube import port

WIDTHS = {column.name: column.max_length for column in Node._meta.fields if column.max_length}

MAX_HOST = 253  # characters


def shown(node: port.Node) -> dict[str, Any]:
    """The columns of a listed node, without those that depend on its row or its cluster."""
    labels = storable_values.json_value(dict(node.labels))
    return {
        "uid": text("uid", node.uid),
        "in_cluster": True,
        "model": text("model", labels.get(queries.MODEL_LABEL, "")),
        "labels": labels,
        "taints": storable_values.json_value(
            [{"key": t.key, "value": t.value, "effect": t.effect} for t in node.taints]
        ),
        "conditions": storable_values.json_value(dict(node.conditions)),
        "marks": _marks(node),
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "ready_since": node.ready_since,
        "boot_id": text("boot_id", node.boot_id),
        "system_uuid": text("system_uuid", node.system_uuid),
        "provider_id": text("provider_id", node.provider_id),
        "gpus": min(max(node.gpus, 0), storable_values.MAX_INTEGER),
        "unallocatable": min(max(node.unallocatable, 0), storable_values.MAX_INTEGER),
        "runtime": text("runtime", node.runtime),
        "kubelet": text("kubelet", node.kubelet),
        "address": text("address", node.internal_ip),
        "addresses": storable_values.json_value([hosts.host(address[:MAX_HOST]) for address in node.addresses]),
        "gone_at": None,
    }


def text(column: str, value: str) -> str:
    """The value as the column can store it."""
    return storable_values.text(value, WIDTHS[column])


def _marks(node: port.Node) -> dict[str, Any]:
    """The node's marks; empty if they are nested deeper than any that the portal wrote."""
    try:
        stored: dict[str, Any] = storable_values.json_value(marks.parse(node.annotations.get(marks.ANNOTATION, "")))
    except ValueError:
        return {}
    return stored
