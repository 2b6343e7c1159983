"""The chance that a part has a fault in the next 28 days, from its own faults and those of the fleet."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Final

from django.db.models import QuerySet

from kcover.machines import parts, risk
from kcover.machines.parts import Kind
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident

PRIORS: Final[Mapping[str, risk.Prior]] = {Kind.GPU: risk.GPU, Kind.BOARD: risk.NODE, Kind.MACHINE: risk.NODE}
MAX_HISTORIES: Final = 5000  # parts of the fleet that are looked at, so that a page of a large fleet needs no minute
RELEARN_AFTER: Final = timedelta(minutes=10)
_lock = Lock()
_learned: dict[risk.Prior, tuple[datetime, risk.Learned]] = {}


def of(kind: str, faults: Sequence[datetime], *, now: datetime) -> risk.Risk | None:
    """The risk of a part with these faults; None for a kind without public data. ``faults``: in any order."""
    prior = PRIORS.get(kind)
    return risk.of_part(_of_fleet(prior, now=now), sorted(faults), now=now) if prior else None


def forget() -> None:
    """Drops what was learned. For tests, whose databases have nothing in common."""
    with _lock:
        _learned.clear()


def _of_fleet(prior: risk.Prior, *, now: datetime) -> risk.Learned:
    with _lock:
        at, learned = _learned.get(prior, (None, None))
    if learned is None or at is None or not at <= now < at + RELEARN_AFTER:
        learned = risk.learn(prior, _gpus(now) if prior is risk.GPU else _nodes(now), now=now)
        with _lock:
            _learned[prior] = now, learned
    return learned


def _nodes(now: datetime) -> list[risk.History]:
    nodes = dict(Node.objects.order_by("pk").values_list("pk", "created_at")[:MAX_HISTORIES])
    faults: dict[int, list[datetime]] = defaultdict(list)
    for node, at in _grave(now).values_list("node", "opened_at"):
        faults[node].append(at)
    return [risk.History(since, faults.get(node, ())) for node, since in nodes.items()]


def _gpus(now: datetime) -> list[risk.History]:
    gpus = dict(Gpu.objects.order_by("pk").values_list("uuid", "node__created_at")[:MAX_HISTORIES])
    faults: dict[str, list[datetime]] = defaultdict(list)
    for uuid, at in _grave(now).exclude(gpu_uuid="").values_list("gpu_uuid", "opened_at"):
        faults[uuid].append(at)
    return [risk.History(since, faults.get(uuid, ())) for uuid, since in gpus.items()]


def _grave(now: datetime) -> QuerySet[Incident]:
    rows = Incident.objects.filter(
        drill=False, is_user_fault=False, severity__in=parts.GRAVE, node__isnull=False, opened_at__gte=now - risk.LEARNS
    )
    return rows.order_by("opened_at")
