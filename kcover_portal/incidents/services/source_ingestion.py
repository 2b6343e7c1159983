"""Ingestion of what sources report. Like agents' reports, it ends in ``record_faults``; it says nothing about agents.

A source is not an agent: its reports neither count as heartbeats nor change what is known about a boot.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from kcover import reasons
from kcover.faults import device, fault
from kcover.faults.device import NONE, Device, Known
from kcover.sources.hosts import Hosts
from kcover.sources.observation import is_of_check
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.incidents.services import (
    doubtful_states,
    flapping_faults,
    inventory,
    late_reports,
    overflow,
    record_faults,
    told_checks,
)
from kcover_portal.incidents.services.fault_columns import Identity, identity_of
from kcover_portal.incidents.services.source_fault import SourceFault
from kcover_portal.ledger import services as ledger
from kcover_portal.lib.prepared import Prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedCheck:
    """A source reports that a check of a node has passed.

    It ends what the same source opened for the check: incidents of ``kind`` whose code is ``check`` or begins with
    ``check/``, on ``device`` (none: all), but not on the devices ``still`` about which the
    source reports it in another way. ``at``: by the source's clock; a later fault stays open. ``is_of_series``: it ends
    one alert that had fired before, so that an incident of an older portal, which stored no such device, may be of it.
    """

    node: str
    kind: str
    check: str
    device: Device = NONE
    still: tuple[Device, ...] = ()
    at: datetime | None = None
    is_of_series: bool = False


@dataclass(frozen=True, slots=True)
class _NamedCheck:
    """A passed check with every name of its devices. ``whole``: of the device that its own is a part of."""

    passed: PassedCheck
    names: frozenset[str]
    whole: frozenset[str]
    still: frozenset[str]


def _open(*about: Q, **of: Any) -> QuerySet[Incident]:
    return Incident.objects.filter(*about, **of, state=Incident.State.OPEN).order_by("pk")


def _listed(**named: Any) -> QuerySet[Node]:
    return Node.objects.filter(in_cluster=True, **named).select_related("agent")


_LISTED = Prepared(
    lambda cluster, name: _listed(cluster=cluster, name=name),
    cluster=int,
    name=str,
)
_SEVERAL = ~Q(told_checks=[])  # checks tell the fault, of any kind
_OPEN = Prepared(
    lambda node, kind: _open(Q(kind=kind) | _SEVERAL, node=node),
    node=int,
    kind=str,
)


def known_nodes(cluster: Cluster, names: Collection[str]) -> dict[str, Node]:
    """The nodes of these names that the cluster lists, with their agents."""
    if len(names) == 1:  # as in most requests
        [name] = names
        rows = _LISTED.rows(cluster=cluster.pk, name=name)
    else:
        rows = list(_listed(cluster=cluster, name__in=list(names)))
    for node in rows:
        node.cluster = cluster
    return {node.name: node for node in rows}


def nodes_of_hosts(cluster: Cluster, hosts: Collection[str]) -> dict[str, list[str]]:
    """The names of the nodes that each of these hosts may be, by their addresses, domains or short names.

    One query and one pass over the nodes of the cluster, however many hosts there are.
    """
    rows = Node.objects.filter(cluster=cluster, in_cluster=True).order_by()
    known = Hosts(rows.values_list("name", "addresses"))
    return {told: known.find(told) for told in hosts}


def ingest_observed(
    witness: str,
    faults: Sequence[tuple[Node, SourceFault]],
    passed: Sequence[tuple[Node, PassedCheck]],
    *,
    now: datetime,
) -> None:
    """Stores what a source observed, in one transaction. ``witness``: the name of the source.

    The nodes are those of ``known_nodes``. The caller leaves out what it has stored before.
    """
    with transaction.atomic(savepoint=False), ledger.last():
        by_node: dict[int, list[SourceFault]] = {}
        nodes = {node.pk: node for node, _ in (*faults, *passed)}
        for node, seen in faults:
            by_node.setdefault(node.pk, []).append(seen)
        for pk in sorted(by_node):  # incidents are locked in the order of their nodes
            node = nodes[pk]
            located = inventory.located(node, by_node[pk])
            for boot_id, told in late_reports.by_boot(node, located, now=now).items():
                for together in _in_turns(told):
                    record_faults.keep_faults(node, together, boot_id=boot_id, now=now)
        for node, one in passed:
            doubtful_states.end(node, witness, kind=one.kind, check=one.check, device=one.device, still=one.still)
        if passed:
            _close(passed, witness=witness, now=now)


def _in_turns(seen: Iterable[SourceFault]) -> Iterable[list[SourceFault]]:
    """The faults in turns: those of one turn cannot be two names of one fault, which would share an incident.

    Faults of one code have a turn for each device, in their order, because a device has several names. What has a
    second name, or may be that name, has a turn of its own: a component of gpud may report several Xids at once, and
    each joins its own incident. Those beyond the bound of a report are together.
    """
    groups: dict[tuple[Identity, str], list[SourceFault]] = {}
    for one in seen:
        groups.setdefault((identity_of(one), one.alias), []).append(one)
    turns = list(groups.values())
    rounds: list[list[SourceFault]] = []
    of_code: Counter[tuple[str, int | str]] = Counter()
    alone = []
    for alike in turns[: overflow.MAX_FAULTS_PER_REPORT]:
        first = alike[0]
        if first.alias or first.kind in fault.NUMERIC_KINDS:
            alone.append(alike)
            continue
        number = of_code[first.kind, first.code]
        of_code[first.kind, first.code] += 1
        if number == len(rounds):
            rounds.append([])
        rounds[number] += alike
    yield from rounds
    yield from alone
    if rest := [one for alike in turns[overflow.MAX_FAULTS_PER_REPORT :] for one in alike]:
        yield rest


def _close(passed: Sequence[tuple[Node, PassedCheck]], *, witness: str, now: datetime) -> None:
    """Closes the incidents whose checks have all passed, of which only sources have told.

    A source alone ends a fault by the check that told it, unless it was told again since.
    """
    nodes = {node.pk: node for node, _ in passed}
    by_node: dict[int, list[Incident]] = {}
    for row in _open_incidents(set(nodes), {one.kind for _, one in passed}):
        if row.node_id is not None and any(
            node.pk == row.node_id and (_is_about(one, row) or _is_awaited(one, row, witness)) for node, one in passed
        ):
            by_node.setdefault(row.node_id, []).append(row)
    for pk, rows in by_node.items():
        told = [one for node, one in passed if node.pk == pk]
        known = inventory.known_gpus(nodes[pk]) if any(one.device or one.still for one in told) else []
        checks = [_named_check(one, known) for one in told]
        exact = {row.pk: check for row in rows if (check := _first(checks, row, _covers))}
        others = [check for check in checks if check not in exact.values()]
        for row in rows:
            check = exact.get(row.pk) or _first(others, row, _covers_old)
            if ended := _end_of(row, check, checks, witness=witness, now=now):
                because = reasons.of("source_reports_healthy", source=witness, check=ended.check)
                flapping_faults.close_unless_flapping(row, because=because, actor=f"source:{witness}", now=now)


def _end_of(
    row: Incident, check: _NamedCheck | None, checks: Sequence[_NamedCheck], *, witness: str, now: datetime
) -> PassedCheck | None:
    """What ends the fault; None if it stands. ``check``: the incident's own, if that alone told it."""
    about = [
        one.passed
        for one in checks
        if (_is_about(one.passed, row) or _is_awaited(one.passed, row, witness)) and _covers(one, row)
    ]
    if check is None and not about:
        return None
    witnesses = set(row.occurrences.order_by().values_list("witness", flat=True).distinct())
    if "" in witnesses:  # no source ends what an agent told
        return None
    if row.told_checks or witnesses != {witness}:
        ended = [told_checks.Ended(witness, one.kind, one.check, one.at) for one in about]
        return about[-1] if about and told_checks.end(row, ended, witnesses=witnesses, now=now) else None
    return check.passed if check is not None and not _is_newer(row, check.passed) else None


def _named_check(passed: PassedCheck, known: Sequence[Known]) -> _NamedCheck:
    still = frozenset[str]().union(*({one.key, *inventory.names_of(one, known)} for one in passed.still))
    names, whole = inventory.names_of(passed.device, known), inventory.names_of(passed.device.whole, known)
    return _NamedCheck(passed, names, whole, still)


def _first(
    checks: Iterable[_NamedCheck], row: Incident, covers: Callable[[_NamedCheck, Incident], bool]
) -> _NamedCheck | None:
    return next((check for check in checks if _is_about(check.passed, row) and covers(check, row)), None)


def _open_incidents(nodes: set[int], kinds: set[str]) -> Iterable[Incident]:
    if len(nodes) == len(kinds) == 1:  # as in most requests
        return _OPEN.rows(node=min(nodes), kind=min(kinds))
    return _open(Q(kind__in=kinds) | _SEVERAL, node__in=nodes)


def _is_about(passed: PassedCheck, row: Incident) -> bool:
    return passed.kind == row.kind and is_of_check(row.code, passed.check)


def _is_awaited(passed: PassedCheck, row: Incident, witness: str) -> bool:
    ended = told_checks.Ended(witness, passed.kind, passed.check, passed.at)
    return told_checks.is_awaited(row, ended)


def _covers(check: _NamedCheck, row: Incident) -> bool:
    return row.device not in check.still and device.covers(check.names, (row.device, row.gpu_uuid))


def _covers_old(check: _NamedCheck, row: Incident) -> bool:
    """Returns whether the alert that ended is the only one of an incident whose device an older portal named otherwise.

    It is none of those that have incidents of their own, and no other series of it still fires.
    """
    if not check.passed.is_of_series or check.passed.still or row.count != 1:
        return False
    named = not row.device or row.device.lower() in {name.lower() for name in check.whole}
    return named and not row.occurrences.exclude(earliest_at=None).exists()


def _is_newer(row: Incident, passed: PassedCheck) -> bool:
    """Returns whether the source reported the fault again after it reported the pass; both times are its own.

    A pass from after the fault's arrival is later, whatever its time says: a clock that was ahead, and was put right,
    must not keep it open for ever.
    """
    if passed.at is None:
        return False
    return Occurrence.objects.filter(incident=row, seen_at__gt=passed.at, at__gte=passed.at).exists()
