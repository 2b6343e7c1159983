"""``python -m bench.report_rows NODES [DAYS]``: fills the configured database with the history of a fleet.

Each node has three episodes of faults a year (1 % of the nodes have 45), and each episode opens a rescue with its
steps and its audit log entries. Some rescues wait for an approval, fail, or leave the node isolated.
"""

import random
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta

import django

django.setup()

from django.db import transaction  # noqa: E402
from django.utils import timezone  # noqa: E402

from kcover_portal.fleet.models import Cluster, Node  # noqa: E402
from kcover_portal.incidents.models import Incident, Occurrence  # noqa: E402
from kcover_portal.ledger.models import Entry  # noqa: E402
from kcover_portal.rescue.models import Rescue, Step  # noqa: E402

CLUSTERS, POOLS, GPUS = 3, 4, 8
CODES = ("79", "48", "62", "63", "64", "74", "94", "95", "119", "145")
PLAN = ("cordon", "drain", "reboot", "ready", "verify", "uncordon")
EPISODES, LEMON_SHARE, LEMON_EPISODES = 3, 0.01, 45  # a year
BATCH = 2000
MINUTE = timedelta(minutes=1)


@transaction.atomic
def fill(nodes: int, days: int) -> None:
    """Adds the nodes and their history until now."""
    now, chance = timezone.now(), random.Random(1)
    began = now - timedelta(days=days)
    clusters = [
        Cluster.objects.create(name=f"report-{index}", created_at=began, watched_at=now, gpu_hour_price="2.5")
        for index in range(CLUSTERS)
    ]
    made = Node.objects.bulk_create(
        Node(
            cluster=clusters[number % CLUSTERS],
            name=f"r{number:05}",
            uid=str(uuid.UUID(int=number)),
            in_cluster=True,
            pool=f"pool-{number % POOLS}",
            gpus=GPUS,
            ready=True,
            created_at=began,
        )
        for number in range(nodes)
    )
    incidents, rescues = [], []
    for node in made:
        rate = LEMON_EPISODES if chance.random() < LEMON_SHARE else EPISODES
        for _ in range(round(chance.expovariate(1) * rate * days / 365)):
            opened = began + chance.random() * (now - began)
            rescue = _rescue(node, opened, now=now, chance=chance)
            rescues.append(rescue)
            incidents += [_incident(node, rescue, chance) for _ in range(chance.choice((1, 1, 2, 4)))]
            if rescue.state != "running" and rescue.outcome != "healed":
                rescues.append(_release(rescue, chance))
    rescues = _without_overlaps(rescues)
    kept = {id(rescue) for rescue in rescues}
    pairs = [(incident, rescue) for incident, rescue in incidents if id(rescue) in kept]
    Rescue.objects.bulk_create(rescues, batch_size=BATCH)
    Incident.objects.bulk_create((incident for incident, _ in pairs), batch_size=BATCH)
    Rescue.incidents.through.objects.bulk_create(
        (Rescue.incidents.through(incident=incident, rescue=rescue) for incident, rescue in pairs), batch_size=BATCH
    )
    Occurrence.objects.bulk_create((_occurrence(incident) for incident, _ in pairs), batch_size=BATCH)
    Step.objects.bulk_create((step for rescue in rescues for step in _steps(rescue, chance)), batch_size=BATCH)
    entries = (entry for rescue in rescues for entry in _entries(rescue))
    Entry.objects.bulk_create(_numbered(entries), batch_size=BATCH)
    print(f"{len(made)} nodes, {len(pairs)} incidents, {len(rescues)} rescues, {Entry.objects.count()} entries")


def _rescue(node: Node, opened: datetime, *, now: datetime, chance: random.Random) -> Rescue:
    took = chance.lognormvariate(2.5, 1) * MINUTE
    closed = opened + took if opened + took < now else None
    state, outcome = chance.choices(
        (("succeeded", "healed"), ("succeeded", "isolated"), ("failed", ""), ("cancelled", "recovered")), (80, 6, 8, 6)
    )[0]
    return Rescue(
        cluster=node.cluster,
        node=node,
        origin="policy",
        requested_by="policy gpu",
        requester_kind="policy",
        fault_kind="xid",
        fault_code=chance.choice(CODES),
        policy=chance.choice(("gpu", "memory", "base")),
        plan_hash="",
        state=state if closed else "running",
        outcome=outcome if closed else "",
        verified=True if outcome == "healed" and closed else None,
        gate=1 if chance.random() < 0.15 else None,
        opened_at=opened,
        closed_at=closed,
    )


def _release(rescue: Rescue, chance: random.Random) -> Rescue:
    """A person returns the node, a day or so later."""
    assert rescue.closed_at is not None
    opened = rescue.closed_at + chance.expovariate(1) * timedelta(days=1)
    return Rescue(
        cluster=rescue.cluster,
        node=rescue.node,
        origin="manual",
        requested_by="user:ann",
        requester_kind="person",
        plan_hash="",
        state="succeeded",
        outcome="done",
        opened_at=opened,
        closed_at=opened + MINUTE,
    )


def _without_overlaps(rescues: list[Rescue]) -> list[Rescue]:
    """A node has one open rescue at a time."""
    found: list[Rescue] = []
    for rescue in sorted(rescues, key=lambda one: (one.node_id, one.opened_at)):
        last = found[-1] if found and found[-1].node_id == rescue.node_id else None
        if last is None or (last.closed_at is not None and last.closed_at < rescue.opened_at):
            found.append(rescue)
    return found


def _incident(node: Node, rescue: Rescue, chance: random.Random) -> tuple[Incident, Rescue]:
    gpu = chance.randrange(GPUS)
    closed = rescue.closed_at if rescue.outcome in ("healed", "recovered") else None
    if closed is None and rescue.closed_at is not None:
        closed = rescue.closed_at + chance.expovariate(1 / 48) * timedelta(hours=1)
    incident = Incident(
        cluster=node.cluster,
        node=node,
        kind="xid",
        code=f"{rescue.fault_code}",
        device=f"0000:{gpu:02x}:{chance.randrange(10**6):06}",
        severity=chance.choice(("fatal", "fatal", "degraded", "warning")),
        count=1,
        opened_at=rescue.opened_at - chance.random() * 20 * timedelta(seconds=1),
        last_at=rescue.opened_at,
        closed_at=closed if closed and closed < timezone.now() else None,
    )
    incident.state = "closed" if incident.closed_at else "open"
    return incident, rescue


def _occurrence(incident: Incident) -> Occurrence:
    seen = incident.opened_at - timedelta(seconds=2)
    return Occurrence(incident=incident, node=incident.node, source="kmsg", seen_at=seen, at=incident.opened_at)


def _steps(rescue: Rescue, chance: random.Random) -> Iterator[Step]:
    """Steps one after the other; a rescue that failed did so at its reboot, and one that isolates has only a cordon."""
    end = rescue.closed_at or rescue.opened_at + 9 * MINUTE
    length = (end - rescue.opened_at) / (len(PLAN) + 1)
    plan = PLAN[:1] if rescue.outcome == "isolated" else PLAN
    if rescue.origin == "manual":
        plan = ("release",)
    for index, name in enumerate(plan):
        started = rescue.opened_at + (index + 1) * length
        failed = rescue.state == "failed" and name == "reboot"
        yield Step(
            rescue=rescue,
            index=index,
            name=name,
            state="failed" if failed else "done",
            attempts=1,
            started_at=started,
            finished_at=started + length,
            because={"code": "cordoned", "params": {}},
        )
        if failed or (rescue.closed_at is None and index == 1):
            return


def _entries(rescue: Rescue) -> Iterator[Entry]:
    """Two dozen entries of each rescue, as the engine writes them; those of an approval among them."""
    verbs = ["rescue.opened", *(f"{name}.{phase}" for name in PLAN for phase in ("begun", "done")), *["step.done"] * 6]
    if rescue.gate is not None:
        verbs[3:3] = ["rescue.held", "rescue.approved"]
    end = rescue.closed_at or timezone.now()
    length = (end - rescue.opened_at) / len(verbs)
    for number, verb in enumerate(verbs):
        yield Entry(
            cluster=rescue.cluster.name,
            at=rescue.opened_at + number * length,
            actor="rescue",
            verb=verb,
            subject=f"rescue {rescue.pk}",
            node=rescue.node.name,
            rescue=rescue.pk,
            data={"step": 1, "because": {"code": "cordoned", "params": {}}},
        )


def _numbered(entries: Iterator[Entry]) -> Iterator[Entry]:
    for sequence, entry in enumerate(entries, start=1_000_000):
        entry.sequence, entry.digest = sequence, f"{sequence:064x}"
        yield entry


if __name__ == "__main__":
    fill(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 730)
