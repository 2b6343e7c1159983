"""``python -m bench.fleet_rows NODES``: fills the configured database up to NODES nodes, with history."""

import random
import sys
import uuid
from datetime import timedelta

import django

django.setup()

from django.db import connection, transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from kcover_portal.fleet.models import Agent, Cluster, Gpu, Node  # noqa: E402
from kcover_portal.incidents.models import Incident, Occurrence  # noqa: E402
from kcover_portal.rescue.models import Decision, Rescue, Step  # noqa: E402

GPUS = 8
NODES_OF_A_RACK = 8
FAULTY_NODE_INTERVAL = 50  # one node in 50 has faults
CLOSED_INCIDENTS = 10  # of each faulty node
PLAN = ("cordon", "drain", "reboot", "ready", "verify", "uncordon")
XIDS = (48, 62, 64, 79, 94, 119)
BATCH_SIZE = 2000


@transaction.atomic
def fill(total: int) -> None:
    """Adds nodes until there are ``total``."""
    now = timezone.now()
    cluster, _ = Cluster.objects.get_or_create(name="big", defaults={"created_at": now, "watched_at": now})
    Cluster.objects.filter(pk=cluster.pk).update(watched_at=now)
    before = Node.objects.count()
    nodes = Node.objects.bulk_create(
        (
            Node(
                cluster=cluster,
                name=f"gpu-{number:05}",
                uid=str(uuid.uuid4()),
                in_cluster=True,
                pool=f"pool-{number % 12}",
                model="NVIDIA-H100-80GB-HBM3",
                labels={f"example.com/label-{index}": f"value-{index}" for index in range(30)}
                | {"topology.kubernetes.io/rack": f"rack-{number // NODES_OF_A_RACK}"},
                conditions={"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False"},
                ready=True,
                ready_since=now - timedelta(days=9),
                boot_id=str(uuid.uuid4()),
                gpus=GPUS,
                kubelet="v1.33.1",
                address=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}",
                driver="580.65.06",
                kernel="6.8.0",
                created_at=now,
                synced_at=now,
            )
            for number in range(before, total)
        ),
        batch_size=BATCH_SIZE,
    )
    Agent.objects.bulk_create(
        (Agent(node=node, seen_at=now, boot_id=node.boot_id, boot_seen_at=now, version="1.0.0") for node in nodes),
        batch_size=BATCH_SIZE,
    )
    Gpu.objects.bulk_create(
        (
            Gpu(
                node=node,
                index=index,
                uuid=f"GPU-{uuid.uuid4()}",
                pci=f"0000:{0x18 + index * 16:02x}:00",
                model="NVIDIA H100 80GB HBM3",
                serial=f"16{index}{node.pk:09}",
                seen_at=now,
            )
            for node in nodes
            for index in range(GPUS)
        ),
        batch_size=BATCH_SIZE,
    )
    for node in nodes[::FAULTY_NODE_INTERVAL]:
        _history(node)
    Agent.objects.update(seen_at=now)  # so that no agent is silent because writing the rows took long


def _history(node: Node) -> None:
    """Closed incidents, one open incident, a decision and an open rescue."""
    now, draw = timezone.now(), random.Random(node.name)
    incidents = Incident.objects.bulk_create(
        Incident(
            cluster=node.cluster,
            node=node,
            kind="xid",
            code=str(draw.choice(XIDS)),
            device=f"0000:{draw.randrange(256):02x}:{draw.randrange(32):02x}",
            state="closed" if number else "open",
            severity="critical",
            count=draw.randrange(1, 50),
            message="NVRM: Xid (PCI:0000:4e:00): 62, a line as the driver prints it",
            boot_id=node.boot_id,
            opened_at=now - timedelta(hours=number + 1),
            last_at=now - timedelta(hours=number),
            closed_at=now - timedelta(hours=number - 1) if number else None,
        )
        for number in range(CLOSED_INCIDENTS + 1)
    )
    Occurrence.objects.bulk_create(
        Occurrence(
            incident=incident,
            node=node,
            boot_id=node.boot_id,
            source="kmsg",
            message=incident.message,
            at=incident.opened_at,
        )
        for incident in incidents
        for _ in range(3)
    )
    decision = Decision.objects.create(
        cluster=node.cluster,
        node=node,
        incident=incidents[0],
        answer="rescue",
        mode="enforce",
        rule="heal#1",
        policy="heal",
        at=now,
        last_at=now,
    )
    rescue = Rescue.objects.create(
        cluster=node.cluster,
        node=node,
        decision=decision,
        origin=Rescue.Origin.POLICY,
        requested_by="policy:heal#1",
        requester_kind=Rescue.Requester.POLICY,
        fault_kind="xid",
        fault_code=incidents[0].code,
        rule="heal#1",
        plan_hash="0" * 64,
        state=Rescue.State.WAITING,
        because={"code": "booted_not_ready", "params": {}},
        opened_at=now,
        due_at=now + timedelta(days=1),
    )
    rescue.incidents.set(incidents[:1])
    Step.objects.bulk_create(
        Step(
            rescue=rescue,
            index=index,
            name=name,
            state=("done", "done", "done", "waiting", "pending", "pending")[index],
            attempts=int(index < 4),
            started_at=now if index < 4 else None,
            finished_at=now if index < 3 else None,
        )
        for index, name in enumerate(PLAN)
    )


fill(int(sys.argv[1]))
with connection.cursor() as cursor:
    cursor.execute("ANALYZE")
