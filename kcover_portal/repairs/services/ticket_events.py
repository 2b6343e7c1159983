"""What ticket systems are told about repairs: the topic ``tickets`` of the audit stream's sinks.

The fields are those of NVIDIA's requirement BFX02 for clouds: dates of opening, update and close, a stable hardware id,
the kind of part, a description, the action, the ticket, and the date since which the node is in service. Each event is
a snapshot, so that a receiver needs no earlier one.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db.models import Max

from kcover import audit
from kcover.audit import codec
from kcover.values import masked_addresses
from kcover_portal.audit_stream.queries import topics, vendors
from kcover_portal.audit_stream.queries.topics import Record
from kcover_portal.fleet import queries as fleet
from kcover_portal.repairs.models import Repair, TicketEvent

TOPIC = topics.TICKETS


def append(row: Repair, act: audit.RepairAct, *, actor: str, reason: str, now: datetime) -> None:
    """Stores the event of an act in its cluster's order.

    The caller has just appended the act to the audit log: it holds the chain's lock until its transaction ends. So
    numbers have no gaps and become visible in their order.
    """
    numbers = TicketEvent.objects.filter(cluster=row.cluster.name).aggregate(last=Max("number"))
    TicketEvent.objects.create(
        cluster=row.cluster.name,
        number=(numbers["last"] or 0) + 1,
        repair=row.pk,
        at=now,
        document=masked_addresses.mask(
            {
                "event": _event(act),
                "actor": actor,
                "reason": reason,
                vendors.FORMER: _former_vendor(act),
                **_snapshot(row, now=now),
            }
        ),
    )


def _event(act: audit.RepairAct) -> str:
    if isinstance(act, audit.RepairOpened):
        return "open"
    return "close" if isinstance(act, audit.RepairMoved) and act.state == audit.RepairMove.CLOSED else "update"


def _former_vendor(act: audit.RepairAct) -> str:
    """The vendor from which the act took the repair; "" if its vendor stays."""
    changed: Mapping[str, audit.Change] = getattr(act, "changed", {})
    return str(changed["vendor"].before) if "vendor" in changed else ""


def _snapshot(row: Repair, *, now: datetime) -> dict[str, Any]:
    rack = fleet.topology_of(row.node).get("rack", "") if row.node is not None else ""
    place = "/".join(filter(None, (row.cluster.name, row.node_name, row.part_kind, row.part_slot)))
    own = row.machine_serial if row.part_kind == "node" else row.part_serial
    dates = {name: codec.encode(getattr(row, name)) for name in ("in_repair_at", "returned_at", "closed_at", "due")}
    dates |= {"opened_at": codec.encode(row.reported_at), "updated_at": codec.encode(now)}
    since = (row.node.machine_since or row.node.created_at) if row.node is not None else None
    return {
        "repair": row.pk,
        "state": str(row.state),
        "ticket": row.ticket,
        "hardware_id": f"{row.part_kind}:{own}" if own else place,
        "part": {"kind": row.part_kind, "serial": row.part_serial, "slot": row.part_slot},
        "removed_serial": row.removed_serial,
        "action": row.action,
        "machine": {
            "serial": row.machine_serial,
            "cluster": row.cluster.name,
            "node": row.node_name,
            "rack": rack,
            "handover_at": codec.encode(since),
        },
        "vendor": row.vendor,
        "queue": row.queue,
        "assignee": row.assignee,
        "opened_because": [str(reason) for reason in row.reasons],
        **dates,
    }


def _heads() -> dict[str, int]:
    rows = TicketEvent.objects.order_by().values_list("cluster").annotate(last=Max("number"))
    return dict(rows)


def _read(cluster: str, after: int, most: int) -> list[Record]:
    rows = TicketEvent.objects.filter(cluster=cluster, number__gt=after).order_by("number")[:most]
    return [Record(topic=TOPIC, part=row.cluster, number=row.number, at=row.at, document=row.document) for row in rows]


def register() -> None:
    """Offers the events to sinks."""
    topics.register(topics.Topic(name=TOPIC, heads=_heads, read=_read))
