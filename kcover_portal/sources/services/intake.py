"""Takes observations of a source: repetitions and unknown nodes are sorted out, the rest becomes incidents.

Everything of one request is one transaction, so that a request that fails can be sent again. Only if the database
refuses an item, what is beside it is stored in smaller parts.
"""

import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DataError, transaction

from kcover import reasons
from kcover.faults import device
from kcover.sources import hosts, maintenance_notices, settings
from kcover.sources.observation import Observation, ObservationBatch, Rejected
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.fleet.services import bulk_sql, storable_values
from kcover_portal.incidents import services as incidents
from kcover_portal.lib import doorbell
from kcover_portal.runtime.services import retention
from kcover_portal.sources.models import Source, TakenEvent, ToldSeries
from kcover_portal.sources.services import source_faults, told_series

log = logging.getLogger(__name__)

MAX_NAMED = 5  # nodes in a reason
UNSTORABLE = (DataError, UnicodeEncodeError, OverflowError)  # by a value; after any other error the sender repeats all


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeResult:
    """How many items of a request were taken, how many were repetitions, and which were left out.

    ``stored``: how many were not known before, also those without a consequence.
    """

    accepted: int = 0
    stored: int = 0
    duplicates: int = 0
    rejected: tuple[Rejected, ...] = field(default_factory=tuple)


def take(
    source: Source, batch: ObservationBatch, *, counted_until: datetime | None = None, now: datetime
) -> IntakeResult:
    """Stores what a source says. When this returns, everything accepted is durable.

    ``counted_until``: what is older has been read before, so that its unknown nodes are not counted again. The readers
    let nothing through that cannot be stored. If the database refuses an item nevertheless, that one is rejected.
    """
    try:
        return _take(source, batch, counted_until=counted_until, now=now)
    except UNSTORABLE as error:
        if not batch.observations:
            raise
        problem = storable_values.error_text(error).splitlines()[0]
    first, rest = _parts(source, batch, problem)
    taken = [take(source, part, counted_until=counted_until, now=now) for part in (first, rest)]
    return IntakeResult(
        accepted=sum(one.accepted for one in taken),
        stored=sum(one.stored for one in taken),
        duplicates=sum(one.duplicates for one in taken),
        rejected=tuple(item for one in taken for item in one.rejected),
    )


def _parts(source: Source, batch: ObservationBatch, problem: str) -> tuple[ObservationBatch, ObservationBatch]:
    """The halves of a batch that the database refused; a single observation becomes a rejected one."""
    seen = batch.observations
    if len(seen) > 1:
        half = len(seen) // 2
        return replace(batch, observations=seen[:half]), ObservationBatch(observations=seen[half:])
    log.error("source %s: the item %s cannot be stored: %s", source.name, seen[0].path, problem)
    refused = Rejected(seen[0].path, reasons.of("source_item_refused", problem=problem))
    return replace(batch, observations=()), ObservationBatch(rejected=(refused,))


@transaction.atomic
def _take(source: Source, batch: ObservationBatch, *, counted_until: datetime | None, now: datetime) -> IntakeResult:
    batch = _with_nodes(source.cluster, batch)
    told_of, several = nodes_told_of(source.cluster, batch)
    nodes = {node.name: node for node in told_of.values()}
    rejected = [*batch.rejected]
    known = []
    for one in batch.observations:
        node = told_of.get(one.node)
        if node is not None and not _is_of_earlier_host(one, node):
            known.append(one if one.node == node.name else replace(one, node=node.name))
        elif counted_until is None or one.seen_at is None or one.seen_at > counted_until:
            rejected.append(Rejected(one.path, _refusal(source.cluster, one, node, several.get(one.node, ()))))
    fresh = _fresh(source, [*(one.key for one in known), *batch.ignored], now=now)
    by_digest = {_digest(one.key): one for one in reversed(known)}  # of equal ones the first
    sent_first = [one for digest, one in reversed(by_digest.items()) if digest in fresh]
    new = told_series.without_repeats(source, sent_first)
    of_peers = len(sent_first) - len(new)
    repeated = [one for digest, one in by_digest.items() if digest not in fresh]
    again = told_series.fire_again(source, repeated, sent_first, now=now)
    new += again
    told = told_series.tell(source, new, nodes, now=now)
    faults, passed = _split(source, new, nodes, told, now=now)
    if faults or passed:
        incidents.ingest_observed(source.name, faults, passed, now=now)
    sent = len(known) + len(batch.ignored)
    accepted = len(fresh) + sum(1 for one in again if _digest(one.key) not in fresh) - of_peers
    taken = IntakeResult(accepted=accepted, stored=len(fresh), duplicates=sent - accepted, rejected=tuple(rejected))
    _note(source, taken, new, now=now)
    return taken


def _with_nodes(cluster: Cluster, batch: ObservationBatch) -> ObservationBatch:
    """The batch with the names of nodes that are known by their machine; of other machines nothing is stored."""
    machines = {one.machine for one in batch.observations if one.machine}
    if not machines:
        return batch
    rows = Node.objects.filter(cluster=cluster, in_cluster=True).exclude(provider_id="").order_by("name")
    names = defaultdict[str, list[str]](list)
    for name, provider in rows.values_list("name", "provider_id"):
        names[provider.rpartition("/")[2]].append(name)
    found, foreign, rejected = [], [], []
    for one in batch.observations:
        fitting = names.get(one.machine, []) if one.machine else [one.node]
        if len(fitting) == 1:
            found.append(replace(one, node=fitting[0]))
        elif not fitting:
            foreign.append(one.key)
        else:  # a node states its machine itself
            rejected.append(Rejected(one.path, _ambiguous(cluster, one.machine, fitting)))
    return replace(
        batch,
        observations=tuple(found),
        ignored=(*batch.ignored, *foreign),
        rejected=(*batch.rejected, *rejected),
    )


def nodes_told_of(cluster: Cluster, batch: ObservationBatch) -> tuple[dict[str, Node], dict[str, list[str]]]:
    """The nodes by their names or the hosts in the batch, and the names of the nodes that a host fits if several.

    Only a host that is no node's name costs another query.
    """
    told = {one.node for one in batch.observations}
    nodes = incidents.known_nodes(cluster, told) if told else {}
    found = incidents.nodes_of_hosts(cluster, told - nodes.keys()) if told - nodes.keys() else {}
    names = {host: fitting[0] for host, fitting in found.items() if len(fitting) == 1}
    if names:
        by_name = nodes | incidents.known_nodes(cluster, set(names.values()) - nodes.keys())
        nodes |= {host: by_name[name] for host, name in names.items() if name in by_name}
    return nodes, {host: fitting for host, fitting in found.items() if len(fitting) > 1}


def _is_of_earlier_host(one: Observation, node: Node) -> bool:
    """Returns whether an address is meant that another machine may have had at the time of the report.

    An end is taken: it ends nothing that is later than itself.
    """
    after = node.machine_after  # None: the machine was there before the portal
    if one.healthy or after is None or one.seen_at is None or one.seen_at >= after:
        return False
    return not hosts.is_same_name(one.node, node.name)


def _refusal(cluster: Cluster, one: Observation, node: Node | None, fitting: Sequence[str]) -> reasons.Reason:
    """Why the report is of no node. ``node``: the one that has its address now; ``fitting``: those that it fits."""
    if node is not None and node.machine_after is not None:
        since = reasons.moment(node.machine_since or node.machine_after)
        return reasons.of("source_address_earlier", cluster=cluster.name, host=one.node, node=node.name, since=since)
    if not fitting:
        return reasons.of("source_node_unknown", cluster=cluster.name, node=one.node)
    return _ambiguous(cluster, one.node, fitting)


def _ambiguous(cluster: Cluster, told: str, fitting: Sequence[str]) -> reasons.Reason:
    names = reasons.named(fitting, most=MAX_NAMED)
    return reasons.of("source_node_ambiguous", cluster=cluster.name, node=told, nodes=names)


def is_taken(source: Source, key: str) -> bool:
    """Returns whether the source has sent the event of this identity lately."""
    return TakenEvent.objects.filter(source=source, digest=_digest(key)).exists()


def _fresh(source: Source, keys: Sequence[str], *, now: datetime) -> set[str]:
    """Stores the identities of events; returns the digests of those that are new."""
    digests = sorted({_digest(key) for key in keys})
    if not digests:
        return set()
    found = bulk_sql.run(
        f"""INSERT INTO sources_takenevent (source_id, digest, at)
            SELECT %s, digest, %s FROM {bulk_sql.given(digest="text")} WHERE true
            ON CONFLICT DO NOTHING RETURNING digest""",  # nosec B608
        [source.pk, bulk_sql.moment(now), bulk_sql.rows([{"digest": digest} for digest in digests])],
    )
    return {digest for (digest,) in found}


def _digest(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def _split(
    source: Source, seen: Sequence[Observation], nodes: dict[str, Node], told: told_series.Told, *, now: datetime
) -> tuple[list[tuple[Node, incidents.SourceFault]], list[tuple[Node, incidents.PassedCheck]]]:
    """The faults that are not over, and the checks that have passed, in the order of the source's own times.

    Within one request a later pass ends an earlier fault, whatever their order.
    """
    ordered = sorted(seen, key=lambda one: one.seen_at or now)
    passes = [one for one in ordered if one.healthy]
    ahead = _ahead(source, seen, now=now)
    faults = [
        (nodes[one.node], source_faults.fault_of(source, one, ahead=ahead[_clock(source, one)], now=now))
        for one in ordered
        if not one.healthy
        and not _is_history(source, one, now=now)
        and not told.is_over(one, nodes[one.node])
        and not any(_ends(later, one, now=now) for later in passes if later.node == one.node)
    ]
    passed = [
        (
            nodes[one.node],
            incidents.PassedCheck(
                node=one.node,
                kind=one.kind,
                check=one.check,
                device=one.device,
                still=told.still_fire(one, nodes[one.node]),
                at=one.seen_at,
                is_of_series=bool(one.series),
            ),
        )
        for one in passes
        if not (one.kind == "alert" and not nodes[one.node].ready)  # its series may have vanished: held_passes
    ]
    return faults, passed


def _is_history(source: Source, one: Observation, *, now: datetime) -> bool:
    """A state, and a notice of work to come, may have begun long ago. An event is a moment."""
    is_notice = (one.kind, one.code) == (maintenance_notices.KIND, maintenance_notices.CODE)  # none of what is past
    is_state = source.kind in (Source.Kind.ALERTMANAGER, Source.Kind.CONDITIONS) or is_notice
    return not is_state and one.seen_at is not None and _is_old(source, one.seen_at, now=now)


def _is_old(source: Source, at: datetime, *, now: datetime) -> bool:
    return now - at > timedelta(seconds=source.settings.get("max_age", source_faults.MAX_AGE.total_seconds()))


def _ends(passed: Observation, one: Observation, *, now: datetime) -> bool:
    if (passed.kind, passed.check) != (one.kind, one.check) or (passed.seen_at or now) < (one.seen_at or now):
        return False
    if passed.series or one.series:
        return passed.series == one.series
    return device.covers(passed.device.names, one.device.names)


def _clock(source: Source, one: Observation) -> str:
    """Whose clock the times are of: the node's, by its name, or that of the rule that an alert comes from.

    Several Prometheus and other programs send to one Alertmanager.
    """
    return one.node if source.kind in settings.NODE_CLOCKS else one.check


def _ahead(source: Source, seen: Sequence[Observation], *, now: datetime) -> dict[str, timedelta]:
    """By how much each clock is ahead of the portal's at least: what has happened has no time in the future."""
    found: dict[str, timedelta] = {}
    for one in seen:
        clock, ahead = _clock(source, one), (one.seen_at or now) - now
        found[clock] = max(ahead, found.get(clock, timedelta()))
    return found


def _note(source: Source, taken: IntakeResult, new: Sequence[Observation], *, now: datetime) -> None:
    """Counts on the source's row, and stores the last error.

    The columns about the delay change only for the newest event: events may be sent in any order, as a backfill is.
    """
    at = bulk_sql.moment(now)
    times = [min(one.seen_at, now) for one in new if one.seen_at and not _is_old(source, one.seen_at, now=now)]
    columns = ["last_contact_at = %s, accepted = accepted + %s, duplicates = duplicates + %s, rejected = rejected + %s"]
    values: list[Any] = [at, taken.accepted, taken.duplicates, len(taken.rejected)]
    if taken.accepted:
        columns.append("event_at = %s")
        values.append(at)
    if times:
        newest = bulk_sql.moment(max(times))
        columns += (f"{column} = CASE WHEN newest_at > %s THEN {column} ELSE %s END" for column in ("lag", "newest_at"))
        values += [newest, (now - max(times)).total_seconds(), newest, newest]
    bulk_sql.run(f"UPDATE sources_source SET {', '.join(columns)} WHERE id = %s", [*values, source.pk])  # nosec B608
    if taken.rejected:
        Source.objects.filter(pk=source.pk).update(error=taken.rejected[-1].reason.to_json(), error_at=now)
    doorbell.publish("source", source.pk)


def prune(*, now: datetime) -> int:
    """Forgets events whose repetition nobody expects any more, and series of long ago; returns how many."""
    return sum(
        retention.delete(model.objects.filter(at__lt=retention.before(model, now=now)))
        for model in (TakenEvent, ToldSeries)
    )
