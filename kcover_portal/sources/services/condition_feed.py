"""Conditions of nodes, as the watch shows them."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kcover import reasons
from kcover.sources import conditions
from kcover.sources.observation import Observation, ObservationBatch, is_of_check
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import storable_values
from kcover_portal.incidents import queries as incidents
from kcover_portal.kube import port
from kcover_portal.sources import queries
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import source_settings
from kcover_portal.sources.services.intake import take
from kcover_portal.sources.services.standing_conditions import StandingConditions

log = logging.getLogger(__name__)

SETTINGS_READ_EVERY = timedelta(seconds=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Since when each type and status of a machine's conditions has been shown without a break."""

    uid: str
    since: dict[tuple[str, str], datetime]


class ConditionFeed:
    """Turns the conditions of one cluster's nodes into incidents, and ends those that have cleared.

    A node whose conditions are as they were costs nothing: heartbeats repeat them all the time. Nodes with a condition
    that has not lasted long enough are read again until it has.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._source: Source | None = None
        self._read_at: datetime | None = None
        self._is_broken = False
        self._shown: dict[str, tuple[str, tuple[conditions.Condition, ...]]] = {}  # with the boot
        self._waiting: dict[str, port.Node] = {}
        self._standing: dict[str, _Standing] = {}
        self._since_before = StandingConditions()

    def feed(self, nodes: Sequence[port.Node], *, now: datetime) -> None:
        """Takes the conditions of nodes. A failure is stored on the source and never stops the watch."""
        try:
            self._feed(nodes, now=now)
            if self._is_broken and self._source is not None:
                source_settings.note_error(self._source, None, now=now)
                self._is_broken = False
        except Exception as error:  # the watch of nodes goes on without this source
            log.exception("cluster %s: the conditions of nodes could not be taken", self._cluster.name)
            self._shown.clear()
            self._since_before = StandingConditions()
            self._is_broken = True
            if self._source is not None:
                problem = reasons.of("source_broken", problem=storable_values.error_text(error))
                source_settings.note_error(self._source, problem, now=now)

    def _feed(self, nodes: Sequence[port.Node], *, now: datetime) -> None:
        source = self._current(now=now)
        if source is None:
            return
        table = conditions.rows_of(source.settings)
        named = {row.type for row in table}
        changed = {**self._waiting}
        started: dict[str, port.Node] = {}  # those whose conditions of an earlier boot may be gone
        for node in nodes:
            stated = tuple(one for one in node.stated if one.type in named)
            if self._shown.get(node.name) != (node.boot_id, stated):
                if self._is_same_object(node):
                    started[node.name] = node
                changed[node.name] = replace(node, stated=self._with_standing(node, stated, now=now))
                self._shown[node.name] = node.boot_id, stated
        seen: list[Observation] = []
        for node in changed.values():
            seen += conditions.read(node.name, node.stated, table, now=now)
            if conditions.is_waiting(node.stated, table, now=now):
                self._waiting[node.name] = node
            else:
                self._waiting.pop(node.name, None)
        seen += self._since_before.told_again(source, nodes, table, now=now)
        if of_consequence := self._of_consequence(seen, started, named, now=now):
            take(source, ObservationBatch(observations=of_consequence), now=now)

    def _with_standing(
        self, node: port.Node, stated: Sequence[conditions.Condition], *, now: datetime
    ) -> tuple[conditions.Condition, ...]:
        """The conditions with the time since when the machine has shown their status.

        Some writers set ``lastTransitionTime`` at each change of the reason, though the status is the same. A node
        whose clock is ahead tells a time to come: then it stands since now.
        """
        before = self._standing.get(node.name)
        since: dict[tuple[str, str], datetime] = {}
        if before is not None and before.uid == node.uid:
            since = before.since
        found = tuple(
            replace(one, stands=min(one.since, now, since.get((one.type, one.status), now))) if one.since else one
            for one in stated
        )
        standing = {(one.type, one.status): one.stands for one in found if one.stands is not None}
        self._standing[node.name] = _Standing(uid=node.uid, since=standing)
        return found

    def _current(self, *, now: datetime) -> Source | None:
        """The source's row, read every SETTINGS_READ_EVERY; None while it is off."""
        if self._read_at is None or now - self._read_at >= SETTINGS_READ_EVERY:
            source = queries.watched(self._cluster, Source.Kind.CONDITIONS)
            if source is None or self._source is None or source.settings != self._source.settings:
                self._shown.clear()  # another table: every node is read again
                self._waiting.clear()
                self._standing.clear()
                self._since_before = StandingConditions()
            self._source, self._read_at = source, now
        return self._source

    def _is_same_object(self, node: port.Node) -> bool:
        """Returns whether the conditions of the node are those that it had: a new object has none at first."""
        before = self._standing.get(node.name)
        return before is None or before.uid == node.uid

    def _of_consequence(
        self, seen: Sequence[Observation], started: Mapping[str, port.Node], named: Collection[str], *, now: datetime
    ) -> tuple[Observation, ...]:
        """The faults, and the passes that may end an open incident.

        A condition of an earlier boot that the node does not show any more has passed: GKE removes its condition when
        the machine has started again, and never sets it to False. ``named``: the types that the source reads.
        """
        asked = {one.node for one in seen if one.healthy}.union(started)
        open_now = incidents.open_codes(self._cluster, asked, "condition") if asked else set()
        by_node: dict[str, list[str]] = {}
        gone: dict[str, Observation] = {}
        for name, code, boot_id in open_now:
            by_node.setdefault(name, []).append(code)
            node, kind = started.get(name), code.partition("=")[0]
            if node is not None and boot_id not in ("", node.boot_id) and kind in named and not _shows(node, kind):
                one = conditions.removed(name, code, boot_id=node.boot_id, now=now)
                gone[one.key] = one
        told = (
            one
            for one in seen
            if not one.healthy or any(is_of_check(code, one.check) for code in by_node.get(one.node, ()))
        )
        return (*told, *gone.values())


def _shows(node: port.Node, kind: str) -> bool:
    """Returns whether the node has the condition. One without a boot has no status of its kubelet yet."""
    return not node.boot_id or any(one.type == kind for one in node.stated)
