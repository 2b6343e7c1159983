"""The parts of an agent's reports that the database holds, in the form in which the agent sends them."""

import json
from datetime import datetime
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from kcover_portal.fleet.models import Hardware, Node

GPU = ("index", "uuid", "pci", "model", "serial")
CHECK = ("name", "device", "status", "value", "unit", "message")
AGENT = ("version", "boot_id", "boot_seen_at", "skew")


def of(node: Node) -> tuple[datetime, str] | None:
    """Returns when the last report arrived, and the stored parts as JSON; None if no agent has reported.

    ``node`` is read with its agent. The inventory and the check results come with a report only when they change, so
    each has a time of its own. Three queries, whatever the number of GPUs and checks.
    """
    agent = getattr(node, "agent", None)
    if agent is None:
        return None
    hardware = Hardware.objects.filter(node=node).first()
    parts: dict[str, Any] = {
        "node": node.name,
        "received_at": agent.seen_at,
        "agent": {name: getattr(agent, name) for name in AGENT},
        "inventory": {
            "changed_at": hardware.changed_at if hardware else None,
            "driver": node.driver,
            "kernel": node.kernel,
            "machine_serial": hardware.machine_serial if hardware else "",
            "board_serial": hardware.board_serial if hardware else "",
            "gpus": list(node.devices.values(*GPU, "seen_at")),
            "nics": hardware.nics if hardware else [],
        },
        "checks": list(node.checks.values(*CHECK, "seen_at", "changed_at")),
    }
    return agent.seen_at, json.dumps(parts, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
