"""Conditions that stand since before a boot, and that their writers have told again in it.

A rescue would otherwise end healed beside a condition that still stands: its time is that of the boot before. The time
of the last heartbeat shows that the writer lives. Without a later one nothing is told, so that a writer that has died
reboots no node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kcover.sources import conditions, settings
from kcover.sources.observation import Observation
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.queries.boots import NodeBoots, boots_of
from kcover_portal.kube import port
from kcover_portal.sources.models import Source
from kcover_portal.sources.services.intake import MAX_AGE


class Outlasting:
    """Follows the nodes of one cluster. Costs queries only for a condition that was not judged in its boot."""

    def __init__(self) -> None:
        self._judged: dict[str, tuple[str, set[str]]] = {}  # by node: its boot, and the keys of what was judged in it

    def told_again(
        self, source: Source, nodes: Iterable[port.Node], rows: Sequence[conditions.ConditionRule], *, now: datetime
    ) -> list[Observation]:
        """The conditions that outlasted a reboot, once for each boot, by the time of their heartbeat."""
        faults = {(row.type, row.status) for row in rows}
        waiting: dict[str, list[Observation]] = {}
        for node in nodes:
            if node.boot_id and any((one.type, one.status) in faults for one in node.stated):
                waiting[node.name] = self._unjudged(node, rows, now=now)
        return self._judge(source, {name: told for name, told in waiting.items() if told}, now=now)

    def _unjudged(
        self, node: port.Node, rows: Sequence[conditions.ConditionRule], *, now: datetime
    ) -> list[Observation]:
        if self._judged.get(node.name, ("", set()))[0] != node.boot_id:
            self._judged[node.name] = node.boot_id, set()
        _, judged = self._judged[node.name]
        told = conditions.read_again(node.name, node.stated, rows, now=now)
        named = [replace(one, key=f"{one.key} boot {node.boot_id}") for one in told]
        return [one for one in named if one.key not in judged]

    def _judge(
        self, source: Source, waiting: Mapping[str, Sequence[Observation]], *, now: datetime
    ) -> list[Observation]:
        found = []
        rows = Node.objects.filter(cluster=source.cluster, name__in=list(waiting)).select_related("agent")
        for row in rows if waiting else ():
            boot_id, judged = self._judged[row.name]
            boots = boots_of(row)
            if not boots.boots or boots.boots[0].id != boot_id:
                continue  # the row is behind, or the agent is ahead of the watch: the next heartbeat comes
            for one in waiting[row.name]:
                outlasts = _outlasts(source, one, boots, now=now)
                if outlasts is not None:
                    judged.add(one.key)
                if outlasts:
                    found.append(one)
        return found


def _outlasts(source: Source, one: Observation, boots: NodeBoots, *, now: datetime) -> bool | None:
    """Returns whether the condition began before the boot and was told in it; None until its writer has said so."""
    boot = boots.boots[0]
    if boot.since is None or now - boot.since > MAX_AGE:
        return False  # the first boot that the portal knows, or one whose conditions somebody has judged since
    if one.earliest is None or one.earliest >= (boot.after or boot.since):
        return False
    told_at = one.seen_at or one.earliest
    ahead = max(abs(boots.clock_ahead), told_at - now)
    is_of_boot = told_at - ahead - settings.doubt(source.kind, source.settings) >= boot.since
    return True if is_of_boot else None  # None: the heartbeat may be of the boot before
