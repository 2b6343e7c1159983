"""Conditions that stand since before a boot of their node.

Their time lies before the boot, so a rescue would end healed beside them. After the boot the feed reports each of them
again, in doubt, so that a rescue waits for its end. Such a report alone never counts: the monitor may have died. If the
monitor states the condition again in the boot, which a later heartbeat shows, it counts when the doubt is over.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from kcover.decisions.boots import Boot
from kcover.sources import conditions, settings
from kcover.sources.observation import Observation
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.queries.boots import boots_of
from kcover_portal.incidents import queries as incidents
from kcover_portal.kube import port
from kcover_portal.sources.models import Source

HEARD_WITHIN: Final = timedelta(hours=1)  # of a boot: what is stated again later was judged by somebody meanwhile


@dataclass(frozen=True, slots=True)
class _InBoot:
    """What a node has shown since its boot: the first heartbeat of each condition, and what need not be told again."""

    boot: str
    first: dict[str, datetime | None] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)


class StandingConditions:
    """Follows the nodes of one cluster. Costs queries only for a condition that was not judged in its boot."""

    def __init__(self) -> None:
        self._nodes: dict[str, _InBoot] = {}

    def told_again(
        self, source: Source, nodes: Iterable[port.Node], rows: Sequence[conditions.ConditionRule], *, now: datetime
    ) -> list[Observation]:
        """The conditions that outlasted a reboot: once after the boot, and once when their monitor has stated them."""
        faults = {(row.type, row.status) for row in rows}
        waiting: dict[str, list[Observation]] = {}
        for node in nodes:
            if node.boot_id and any((one.type, one.status) in faults for one in node.stated):
                waiting[node.name] = self._waiting(node, rows, now=now)
        return self._judge(source, {name: told for name, told in waiting.items() if told}, now=now)

    def _waiting(
        self, node: port.Node, rows: Sequence[conditions.ConditionRule], *, now: datetime
    ) -> list[Observation]:
        """The reports about a node that are due, if its conditions began before the boot."""
        shown = self._nodes.get(node.name)
        if shown is None or shown.boot != node.boot_id:
            shown = self._nodes[node.name] = _InBoot(node.boot_id)
        beats = {one.type: one.heartbeat for one in node.stated}
        found = []
        for one in conditions.standing(node.name, node.stated, rows, now=now):
            beat = beats[one.path]
            is_heard = beat is not None and beat != shown.first.setdefault(one.key, beat)
            key = f"{one.key} {'heard' if is_heard else 'stands'} in boot {node.boot_id}"
            if key not in shown.done:
                found.append(replace(one, key=key, unheard=not is_heard))
        return found

    def _judge(
        self, source: Source, waiting: Mapping[str, Sequence[Observation]], *, now: datetime
    ) -> list[Observation]:
        if not waiting:
            return []
        due: list[Observation] = []
        for row in Node.objects.filter(cluster=source.cluster, name__in=list(waiting)).select_related("agent"):
            shown, boots = self._nodes[row.name], boots_of(row).boots
            if boots and boots[0].id == shown.boot:  # else the row is behind, or the agent ahead: it is shown again
                shown.done.update(one.key for one in waiting[row.name])
                due += (one for one in waiting[row.name] if _outlasts(one, boots[0], now=now))
        if not due:
            return []
        names = {one.node for one in due}
        open_now = {(name, code) for name, code, _ in incidents.open_codes(source.cluster, names, "condition")}
        dismissed = incidents.dismissed_codes(source.cluster, names, "condition")
        about = [(one, (one.node, str(one.code))) for one in due]
        return [one for one, of in about if of in open_now or not (one.unheard or of in dismissed)]


def _outlasts(one: Observation, boot: Boot, *, now: datetime) -> bool:
    """Returns whether the condition began before the boot, which began so lately that nobody has judged it since."""
    if boot.since is None or one.earliest is None:
        return False  # the first boot that the portal knows
    lately = settings.UNTIMED if one.unheard else HEARD_WITHIN
    return one.earliest < (boot.after or boot.since) and now - boot.since < lately
