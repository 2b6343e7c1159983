"""What sources told about which GPU, and with which weight, held against the portal's incidents (4, 6, 42).

The message of each report carries what is true, so that it reaches the incident whatever name its device has.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.db.models import Q

from kcover.faults import fault
from kcover.faults.weight import Weight
from kcover.sources.observation import Observation
from kcover_portal.fleet.models import Node
from kcover_portal.incidents.models import Incident, Occurrence
from tests.invariants import gpu_names
from tests.invariants.observed_cluster import must

OVER: Final = "over"  # in place of a weight: an all-clear


@dataclass(frozen=True, slots=True)
class Before:
    """The state before a report."""

    occurrence: int
    incident: int
    open: Collection[int]
    doubts: Mapping[int, tuple[str, str]]  # the node and the device of each state in doubt

    @classmethod
    def now(cls) -> "Before":
        """The present state."""
        doubts = Occurrence.objects.exclude(doubt_until=None).values_list("pk", "node__name", "doubt")
        return cls(
            occurrence=Occurrence.objects.order_by("-pk").values_list("pk", flat=True).first() or 0,
            incident=Incident.objects.order_by("-pk").values_list("pk", flat=True).first() or 0,
            open=list(Incident.objects.order_by().filter(_standing()).values_list("pk", flat=True)),
            doubts={pk: (node, doubt["device"]) for pk, node, doubt in doubts},
        )


def _is_newer(times: Iterable[tuple[datetime, datetime]], passed: datetime) -> bool:
    """Returns whether a fault is newer than an all-clear. One that arrived before it is older, whatever its time says.

    ``times``: when each report says that the fault happened, and when it came.
    """
    return any(happened > passed and came >= passed for happened, came in times)


def _standing() -> Q:
    """Incidents that nobody has told the end of."""
    return Q(state=Incident.State.OPEN, ended_at=None, node__isnull=False)


def message(about: str, weight: str) -> str:
    """What is true of a report. ``about``: the GPU or the other device that it names; "" if it names none."""
    return f"{about} {weight}"


class ToldFaults:
    """Follows the incidents that sources told of."""

    def __init__(self) -> None:
        self._about: dict[int, set[str]] = {}  # the devices that reports of the incident named
        self._of_node: set[int] = set()  # incidents that a report called a fault of the node
        self._clears: dict[tuple[str, str], list[Observation]] = {}  # the all-clears about a node by a source

    def follow(
        self,
        before: Before,
        witness: str,
        told: Sequence[Observation],
        fresh: Sequence[Occurrence],
        *,
        inventories: Mapping[str, datetime],
        uuids: Mapping[str, frozenset[str]],
    ) -> None:
        """After the source ``witness`` told this.

        ``inventories``: when agents described the present machines. ``uuids``: of the GPUs of these machines; a late
        report may name a GPU of a machine that has gone, which no inventory has.
        """
        for row in fresh:
            about, _, weight = row.message.rpartition(" ")
            must(weight != OVER, 4, f"the all-clear {row.message} is a fault of {row.incident}")
            named = self._about.setdefault(row.incident_id, set())
            if weight == Weight.NODE:
                self._of_node.add(row.incident_id)
            if about and row.incident.state == Incident.State.OPEN:
                named.add(about)
                owner = gpu_names.owner_of(row.incident.device)
                must(named == {about} == {owner}, 6, f"{row.incident} of {owner} was told of {named}")
                is_new = row.incident_id > before.incident and about in gpu_names.PCI
                if is_new and _is_here(row.incident, uuids[row.node.name]) and _is_described(row.node, inventories):
                    must(row.incident.device.startswith(about), 6, f"{about} is {row.incident.device}, its slot known")
        passed = [one for one in told if one.healthy]
        for one in passed:
            self._clears.setdefault((one.node, witness), []).append(one)
        self._check_ends(before, witness, passed)

    def _check_ends(self, before: Before, witness: str, passed: Sequence[Observation]) -> None:
        """Only sources reported what has ended, and each of them has reported its all-clear."""
        standing = Incident.objects.order_by().filter(_standing(), pk__in=before.open)
        ended = set(before.open) - set(standing.values_list("pk", flat=True))
        for row in Incident.objects.filter(pk__in=ended).select_related("node") if ended else ():
            assert row.node is not None
            seen = list(row.occurrences.values_list("witness", "seen_at", "at"))
            witnesses = {one for one, _, _ in seen}
            about = [
                one for one in passed if one.node == row.node.name and (len(witnesses) > 1 or one.kind == row.kind)
            ]
            mine = [one for one in about if _is_of(one, row.device)]
            must(mine, 4, f"{row} of {row.device} ended by {about}")
            must(witness in witnesses, 4, f"{witness} ended {row}, of which only {witnesses} told")
            for one in witnesses:
                clears = [passed for passed in self._clears.get((row.node.name, one), ()) if _is_of(passed, row.device)]
                times = [(happened, came) for by, happened, came in seen if by == one and happened is not None]
                in_time = any(clear.seen_at is None or not _is_newer(times, clear.seen_at) for clear in clears)
                must(in_time, 4, f"{row} was told of {times} by {one}, and ended by {clears}")
        if not before.doubts:
            return
        left = set(
            Occurrence.objects.filter(pk__in=before.doubts, doubt_until__isnull=False).values_list("pk", flat=True)
        )
        for pk in before.doubts.keys() - left:
            node, device = before.doubts[pk]
            over = any(one.node == node and _is_of(one, device) for one in passed)
            must(over, 4, f"the doubt about {device} of {node} ended by {passed}")

    def check_cause(self, incident: Incident) -> None:
        """Before a rescue for the incident: a report without a number counts by its weight."""
        if incident.pk in self._about and incident.kind not in fault.NUMERIC_KINDS:
            must(incident.pk in self._of_node, 42, f"{incident} has a rescue, and nobody called it a fault of the node")


def _is_of(passed: Observation, device: str) -> bool:
    """Returns whether the all-clear is about this device; one that names no device is about all."""
    return not passed.device or gpu_names.owner_of(device) in ("", passed.message.rpartition(" ")[0])


def _is_here(incident: Incident, uuids: Collection[str]) -> bool:
    """Returns whether the incident names no GPU of another machine."""
    named = {*incident.device.split()[:1], incident.gpu_uuid}
    return all(name in uuids for name in named if name.startswith("GPU-"))


def _is_described(node: Node, inventories: Mapping[str, datetime]) -> bool:
    """Returns whether the agent described the machine since the portal has known it."""
    at = inventories.get(node.name)
    return at is not None and (node.machine_since is None or at >= node.machine_since)
