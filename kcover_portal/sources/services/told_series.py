"""What a sending source has told of each series, so that reports may arrive in any order.

A series is one alert with its labels, or one check of a device. Its pass stays known after nothing was open to be
closed: an older fault that arrives later is over. Times are the source's own. Of alerts it is also known which series
still fire, so that the end of one is not the end of another about the same device.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from django.db.models import F, Q

from kcover.faults.device import Device, covers
from kcover.sources.observation import Observation
from kcover_portal.fleet.models import Node
from kcover_portal.fleet.services import bulk_sql
from kcover_portal.sources.models import Source, ToldSeries

SENDING: Final = (Source.Kind.ALERTMANAGER, Source.Kind.CLOUDEVENTS)
PEERS_WITHIN: Final = timedelta(seconds=60)  # in which equal Prometheus see the same alert begin
FIRES_AGAIN_AFTER: Final = timedelta(minutes=10)  # longer than a message that was overtaken is under way
FIRES: Final = Q(fault_at__isnull=False) & (Q(passed_at=None) | Q(fault_at__gt=F("passed_at")))  # no end is known
ENDED: Final = Q(passed_at__isnull=False) & (Q(fault_at=None) | Q(fault_at__lte=F("passed_at")))


@dataclass(frozen=True, slots=True)
class Told:
    """The known starts and ends of the series in one request, with those that the request tells."""

    rows: Sequence[ToldSeries] = ()

    def is_over(self, one: Observation, node: Node) -> bool:
        """Returns whether the source has told before that the fault, or a later one, has passed."""
        if one.seen_at is None:
            return False
        digest = _digest(one)
        return any(
            row.passed_at is not None and row.passed_at >= one.seen_at and _is_about(row, one, node, digest)
            for row in self.rows
        )

    def still_fire(self, passed: Observation, node: Node) -> tuple[Device, ...]:
        """The devices about which other series of the alert still fire."""
        digest = _digest(passed)
        return tuple(
            device_of(row)
            for row in self.rows
            if passed.series
            and (row.node_id, row.kind, row.check_name) == (node.pk, passed.kind, passed.check)
            and row.digest != digest
            and row.fault_at is not None
            and (row.passed_at is None or row.fault_at > row.passed_at)
        )


def tell(source: Source, seen: Sequence[Observation], nodes: Mapping[str, Node], *, now: datetime) -> Told:
    """Stores what these observations tell, and returns what is known of their series.

    Costs nothing for sources that the portal reads itself: they have an order of their own.
    """
    if source.kind not in SENDING or not seen:
        return Told()
    if kept := [one for one in seen if one.healthy or one.series]:
        _store(source, kept, nodes, now=now)
    if not any(one.series or not one.healthy for one in seen):
        return Told()
    series = [_digest(one) for one in seen if one.series and not one.healthy]
    events = [one for one in seen if not one.series and not one.healthy]
    ended = [one for one in seen if one.series and one.healthy]
    passes = Q(digest__in=series) | _of_checks(events, nodes)
    wanted = (Q(passed_at__isnull=False) & passes) | (FIRES & _of_checks(ended, nodes))
    return Told(list(ToldSeries.objects.filter(wanted, source=source)))


def without_repeats(source: Source, seen: Sequence[Observation]) -> list[Observation]:
    """The observations without alerts that were told by another Prometheus of a pair, and still fire.

    Such a one has another start. One that begins later, although no end was told, is a new one: the end was lost. One
    that names another Xid than before is new, too.
    """
    digests = [_digest(one) for one in seen if one.series and not one.healthy and one.seen_at is not None]
    if source.kind not in SENDING or not digests:
        return list(seen)
    rows = ToldSeries.objects.filter(FIRES, source=source, digest__in=digests)
    told = {digest: (began, xid) for digest, began, xid in rows.order_by().values_list("digest", "fault_at", "xid")}
    found = []
    for one in seen:
        if one.series and not one.healthy and one.seen_at is not None:
            began, xid = told.get(_digest(one), (None, None))
            is_same = one.alias is None or xid in (None, one.alias)
            if began is not None and is_same and one.seen_at <= began + PEERS_WITHIN:
                if xid is None:  # of an older portal, which did not keep it
                    rows.filter(digest=_digest(one)).update(xid=one.alias or 0)
                continue
            told[_digest(one)] = one.seen_at, one.alias or 0
        found.append(one)
    return found


def fire_again(
    source: Source, repeated: Sequence[Observation], fresh: Sequence[Observation], *, now: datetime
) -> list[Observation]:
    """The alerts that fire although their end was told a while ago, by the time at which that was told.

    Alertmanager ends an alert of which it hears nothing. If Prometheus then sends it again, it has its first start. One
    that names another Xid by then is ``fresh``.
    """
    firing = {_digest(one): one for one in (*fresh, *repeated) if one.series and not one.healthy}
    if source.kind not in SENDING or not firing:
        return []
    rows = ToldSeries.objects.filter(ENDED, source=source, digest__in=list(firing), at__lt=now - FIRES_AGAIN_AFTER)
    told = {_digest(one) for one in repeated}
    again = [row for row in rows.order_by("pk") if row.digest in told or row.fault_at == firing[row.digest].seen_at]
    return [replace(firing[row.digest], seen_at=row.at) for row in again]


def _of_checks(seen: Iterable[Observation], nodes: Mapping[str, Node]) -> Q:
    """The series of these checks on these nodes, and of some more where several checks are of several nodes."""
    told = [(nodes[one.node].pk, one.kind, one.check) for one in seen]
    pks, kinds, checks = ({each[part] for each in told} for part in range(3))
    return Q(node__in=pks, kind__in=kinds, check_name__in=checks)


def _is_about(row: ToldSeries, one: Observation, node: Node, digest: str) -> bool:
    if one.series:
        return row.digest == digest
    same = (row.node_id, row.kind, row.check_name) == (node.pk, one.kind, one.check)
    return same and covers(device_of(row).names, one.device.names)


def _digest(one: Observation) -> str:
    identity = ("series", one.node, one.series) if one.series else (one.node, one.kind, one.check, one.device.key)
    return hashlib.blake2b("\n".join(identity).encode(), digest_size=16).hexdigest()


def device_of(row: ToldSeries) -> Device:
    """The device that the series is about."""
    slot, uuid, unit, part = row.device
    return Device(slot=slot, uuid=uuid, unit=unit, part=part)


def _store(source: Source, seen: Iterable[Observation], nodes: Mapping[str, Node], *, now: datetime) -> None:
    """Keeps the latest time of a fault and of a pass of each series, in one statement."""
    given: dict[str, dict[str, object]] = {}
    for one in sorted(seen, key=lambda one: one.seen_at or now):
        row = given.setdefault(_digest(one), {"digest": _digest(one), "node": nodes[one.node].pk, "kind": one.kind})
        device = one.device
        row |= {"check_name": one.check, "device": [device.slot, device.uuid, device.unit, device.part]}
        # A clock that is ahead must not hide the faults that follow.
        row["passed_at" if one.healthy else "fault_at"] = bulk_sql.moment(min(one.seen_at or now, now))
        if not one.healthy:
            row["xid"] = one.alias or 0
    latest = ", ".join(
        f"{column} = CASE WHEN excluded.{column} IS NULL OR sources_toldseries.{column} > excluded.{column}"
        f" THEN sources_toldseries.{column} ELSE excluded.{column} END"
        for column in ("fault_at", "passed_at")
    )
    columns = {"digest": "text", "node": "bigint", "kind": "text", "check_name": "text", "device": "jsonb"}
    columns["xid"] = "bigint"
    columns |= dict.fromkeys(("fault_at", "passed_at"), "timestamptz")
    empty = {"fault_at": None, "passed_at": None, "xid": None}
    bulk_sql.run(
        f"""INSERT INTO sources_toldseries
                (source_id, digest, node_id, kind, check_name, device, xid, fault_at, passed_at, at)
            SELECT %s, digest, node, kind, check_name, device, xid, fault_at, passed_at, %s
            FROM {bulk_sql.given(**columns)} WHERE true
            ON CONFLICT (source_id, digest) DO UPDATE SET {latest}, device = excluded.device, at = excluded.at,
                xid = coalesce(excluded.xid, sources_toldseries.xid)""",  # nosec B608
        [source.pk, bulk_sql.moment(now), bulk_sql.rows([{**empty, **given[digest]} for digest in sorted(given)])],
    )
