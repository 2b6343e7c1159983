"""Sources beside the agents: each tells of faults that happened, late, out of order and twice."""

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.faults import device
from kcover.sources import settings
from kcover.sources.observation import Observation, Reading
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Occurrence
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake
from tests.invariants.observed_cluster import must
from tests.invariants.testbed import Bed
from tests.invariants.walk_cluster import Happened

LATEST = timedelta(minutes=5)
READ_EVERY = {"prometheus": 30.0, "gpud": 60.0}  # seconds; their values have no time of their own
CODES = {"alertmanager": ("alert", "GpuLost"), "conditions": ("condition", "GpuXid=True"), "gpud": ("gpud", "xid")}


@dataclass(frozen=True, slots=True)
class Told:
    """The reports of one fault by a source."""

    happened: Happened
    observations: tuple[Observation, ...]


def of_kind(cluster: Cluster, kind: str, *, now: datetime) -> Source:
    """The cluster's source of this kind."""
    if kind in settings.WATCHED:
        services.make_watched_sources(now)
        return Source.objects.get(cluster=cluster, kind=kind)
    row = Source.objects.filter(cluster=cluster, kind=kind).first()
    url = "http://source" if kind in settings.ADDRESSED else ""
    return row or services.make_source(kind, kind, cluster, url=url, given={}, actor="user:ann", now=now)


def tell(bed: Bed, chance: random.Random) -> None:
    """A source reports faults of the last minutes, whatever the node has done since; the newest ones first or last."""
    lately = [one for one in bed.happened if bed.now - one.at <= LATEST and bed.there(one.node)]
    if not lately:
        return
    kind = chance.choice(settings.KINDS)
    source = of_kind(bed.cluster, kind, now=bed.now)
    some = [chance.choice(lately) for _ in range(chance.choice((1, 1, 3)))]
    told = [_told(kind, one, chance, number=number, now=bed.now) for number, one in enumerate(some)]
    known = set(Occurrence.objects.values_list("pk", flat=True))
    reading = Reading(observations=tuple(seen for one in told for seen in one.observations))
    intake.take(source, reading, now=bed.now)
    fresh = Occurrence.objects.exclude(pk__in=known).select_related("node")
    for row in fresh:
        boot = bed.boot(row.node.name)
        mine = [one.happened for one in told if one.happened.node == row.node.name]
        over = bool(mine) and all(one.boot != boot for one in mine)
        must(not (over and row.boot_id == boot), 55, f"{kind} told of {mine}, which counts in boot {boot}")


def _told(kind: str, one: Happened, chance: random.Random, *, number: int, now: datetime) -> Told:
    """The fault once or twice, as a source of this kind dates it."""
    slow = settings.DELAY_SECONDS.get(kind, 0)
    error = chance.uniform(-settings.CLOCK_ERROR_SECONDS, settings.CLOCK_ERROR_SECONDS)
    seen_at = one.at + timedelta(seconds=error + chance.uniform(0, slow))
    earliest = None
    if kind in READ_EVERY:
        seen_at, earliest = now, one.at - timedelta(seconds=chance.uniform(0, READ_EVERY[kind]))
    fault, code = CODES.get(kind, ("xid", one.code))
    observations = tuple(
        Observation(
            path="",
            key=f"{kind} {now.isoformat()} {number} {time}",
            node=one.node,
            kind=fault,
            code=code,
            device=device.named(pci=one.pci),
            alias=one.code if fault != "xid" else None,
            severity="fatal",
            seen_at=seen_at,
            earliest=earliest,
        )
        for time in range(chance.choice((1, 2)))
    )
    return Told(one, observations)
