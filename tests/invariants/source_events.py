"""Sources beside the agents: each tells of faults that happened, late, out of order, twice, and under several names.

They also weigh them: as a fault of the node, of a program, of the monitor, or as information; and they tell of ends.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kcover.faults.device import Device
from kcover.faults.weight import Weight, of_xid
from kcover.sources import settings
from kcover.sources.observation import Observation, ObservationBatch
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.sources import services
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake
from tests.invariants import gpu_names, told_faults
from tests.invariants.observed_cluster import must
from tests.invariants.testbed import Bed
from tests.invariants.walk_cluster import Happened

TELLING: Final = tuple(kind for kind in settings.KINDS if kind != "performance")  # that one tells of jobs only
LATEST = timedelta(minutes=5)
UNSEEN = 999  # in no catalog, and no rule names it
READ_EVERY = {"prometheus": 30.0, "gpud": 60.0}  # seconds; their values have no time of their own
# The kind, code and check of those that tell of ends; others tell of Xids.
CHECKS = {
    "alertmanager": ("alert", "GpuLost", "GpuLost"),
    "cloudevents": ("health", "GpuWatch/lost", "GpuWatch"),
    "conditions": ("condition", "GpuXid=True", "GpuXid=True"),
    "gpud": ("gpud", "xid", "xid"),
}
# Others quote lines of the kernel.
NAMES: Final = {
    **dict.fromkeys(("alertmanager", "cloudevents", "prometheus"), gpu_names.EVERY),
    "gpud": ("slot", "uuid", "none"),
    "conditions": ("none",),
}
LOGGED: Final = ("slot", "slot", "none")
WEIGHTS: Final = (*(Weight.NODE,) * 4, Weight.PROGRAM, Weight.MONITOR, Weight.INFO)


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
    return row or services.SOURCES.make(
        Source(name=kind, kind=kind, cluster=cluster), {"url": url}, actor="user:ann", now=now
    )


def tell(bed: Bed, chance: random.Random) -> None:
    """A source reports faults of the last minutes, whatever the node has done since; the newest ones first or last.

    Or it reports what no agent sees, or that something is over.
    """
    what = chance.choice(("late", "late", "late", "unseen", "end"))
    if what == "end":
        _tell_end(bed, chance)
        return
    kind = chance.choice(TELLING if what == "late" else tuple(CHECKS))
    some = _lately(bed, chance) if what == "late" else _unseen(bed, chance)
    told = [_told(kind, one, chance, number=number, now=bed.now) for number, one in enumerate(some)]
    fresh = _take(bed, kind, [seen for one in told for seen in one.observations]) if told else ()
    for row in fresh:
        boot = bed.boot(row.node.name)
        mine = [one.happened for one in told if one.happened.node == row.node.name]
        over = bool(mine) and all(one.boot != boot for one in mine)
        must(not (over and row.boot_id == boot), 55, f"{kind} told of {mine}, which counts in boot {boot}")


def _take(bed: Bed, kind: str, seen: Sequence[Observation]) -> list[Occurrence]:
    """The portal takes this from the source of the kind; returns the occurrences that it adds."""
    source, before = of_kind(bed.cluster, kind, now=bed.now), told_faults.Before.now()
    intake.take(source, ObservationBatch(observations=tuple(seen)), now=bed.now)
    fresh = list(Occurrence.objects.filter(pk__gt=before.occurrence).select_related("node", "incident"))
    inventories = {name: at for name, (machine, at) in bed.inventories.items() if machine == bed.machines[name]}
    uuids = {
        name: frozenset(gpu_names.uuid_of(pci, one) for pci in gpu_names.PCI) for name, one in bed.machines.items()
    }
    bed.told.follow(before, source.name, seen, fresh, inventories=inventories, uuids=uuids)
    return fresh


def _lately(bed: Bed, chance: random.Random) -> list[Happened]:
    lately = [one for one in bed.happened if bed.now - one.at <= LATEST and bed.there(one.node)]
    return [chance.choice(lately) for _ in range(chance.choice((1, 1, 3)))] if lately else []


def _unseen(bed: Bed, chance: random.Random) -> list[Happened]:
    """Both GPUs of a node fail, and its agent does not see it."""
    name = chance.choice(bed.names)
    if not bed.there(name):
        return []
    boot, machine = bed.boot(name), bed.machines[name]
    return [Happened(bed.now, name, boot, UNSEEN, pci, machine) for pci in gpu_names.PCI]


def _tell_end(bed: Bed, chance: random.Random) -> None:
    """A source says that its check has passed for a GPU of a node, which may be another one than it told of."""
    kinds = {kind: source for source, (kind, _, _) in CHECKS.items()}
    rows = list(Incident.objects.filter(state="open", kind__in=kinds).order_by("pk").values_list("kind", "node__name"))
    rows = [(kind, name) for kind, name in rows if bed.there(name)]
    if not rows:
        return
    fault, name = chance.choice(rows)
    kind, pci = kinds[fault], chance.choice(gpu_names.PCI)
    seen = gpu_names.device(pci, bed.machines[name], chance.choice(NAMES[kind]), chance)
    late = chance.choice((0.0, 0.0, chance.uniform(0, LATEST.total_seconds()))) if kind not in READ_EVERY else 0.0
    end = Observation(
        path="",
        key=f"{kind} {bed.now.isoformat()} end",
        node=name,
        kind=fault,
        code=CHECKS[kind][1],
        check=CHECKS[kind][2],
        series=_series(kind, name, seen),
        device=seen,
        message=told_faults.message(_about(pci, seen), told_faults.OVER),
        healthy=True,
        seen_at=bed.now - timedelta(seconds=late),
    )
    _take(bed, kind, [end])


def _told(kind: str, one: Happened, chance: random.Random, *, number: int, now: datetime) -> Told:
    """The fault once or twice, as a source of this kind names, weighs and dates it."""
    slow = settings.DELAY_SECONDS.get(kind, 0)
    error = chance.uniform(-settings.CLOCK_ERROR_SECONDS, settings.CLOCK_ERROR_SECONDS)
    seen_at = one.at + timedelta(seconds=error + chance.uniform(0, slow))
    earliest = None
    if kind in READ_EVERY:
        seen_at, earliest = now, one.at - timedelta(seconds=chance.uniform(0, READ_EVERY[kind]))
    fault, code, check = CHECKS.get(kind, ("xid", one.code, ""))
    observations = []
    for time in range(chance.choice((1, 2))):
        name, weight = chance.choice(NAMES.get(kind, LOGGED)), of_xid(one.code)
        if weight is Weight.NODE:
            weight = chance.choice(WEIGHTS)
        seen = gpu_names.device(one.pci, one.machine, name, chance)
        observations.append(
            Observation(
                path="",
                key=f"{kind} {now.isoformat()} {number} {time}",
                node=one.node,
                kind=fault,
                code=code,
                check=check,
                series=_series(kind, one.node, seen),
                device=seen,
                message=told_faults.message(_about(one.pci, seen), weight),
                weight=weight,
                alias=one.code if fault != "xid" else None,
                severity="info" if weight in (Weight.MONITOR, Weight.INFO) else "fatal",
                seen_at=seen_at,
                earliest=earliest,
            )
        )
    return Told(one, tuple(observations))


def _series(kind: str, node: str, seen: Device) -> str:
    """The labels of an alert; each name of a GPU is a series."""
    return f"{node} {seen.key}" if kind == "alertmanager" else ""


def _about(pci: str, seen: Device) -> str:
    """The device that is meant; "" if none is named."""
    if not seen:
        return ""
    return seen.unit if seen.unit.startswith("nvswitch") else pci


def condition(bed: Bed, chance: random.Random) -> None:
    """A monitor states its condition of a node, or the watch starts again."""
    name, error = chance.choice(bed.names), chance.uniform(-1, 1) * settings.CLOCK_ERROR_SECONDS
    what = chance.choice(("begin", "begin", "again", "again", "end", "watch"))
    if what == "watch":
        bed.monitors.begin_watch()
    elif bed.there(name):
        bed.monitors.state(name, "False" if what == "end" else "True", again=what == "again", error=error)
    bed.monitors.look()
