"""What agents say of themselves and their nodes, for many reports at once.

A heartbeat changes one narrow row and adds none. What a node is made of and how its checks went is written when a
report says something else than the last one did, told by digests in that row; the result of a check that stays as it
is moves its time every REFRESHED. Everything here runs in the transaction of the whole batch.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from kcover import fault, wire
from kcover_portal import doorbell
from kcover_portal.fleet.models import Agent, Cluster, Node
from kcover_portal.fleet.services import forgetting, statements

REFRESHED = 3600  # seconds; by so much a time that is shown may lag
MARK = 12  # characters by which a batch id is known again
MARKS = 8  # batches of a node that are known again without a row of their own: an agent sends one after the other
CALM = ("pass", "skipped")  # a first result that is no news


@dataclass(frozen=True, slots=True)
class Told:
    """What a report says of its node, in short: digests of the inventory ("" where it has none) and of the results
    ("" where there are none), and how many results there are."""

    inventory: str
    checks: str
    results: int


class Said(NamedTuple):
    """One report on its way in. With a ``body`` it stands for one that says what its node's last one said
    (``wire.likeness``): what that told is known, and inventory and results are in the body alone."""

    cluster: Cluster
    report: wire.Report
    told: Told
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One report, and what was known of its agent before; the agent's row is locked."""

    report: wire.Report
    told: Told
    body: bytes
    cluster: Cluster
    node: int
    boot_id: str
    version: str
    recent: str
    inventory_told: str
    checks_told: str

    def whole(self) -> wire.Report:
        """The report with its inventory and its results."""
        return wire.decode(self.body).report if self.body else self.report

    @property
    def again(self) -> bool:
        """Whether its batch is one of the last that this node sent; those with faults are known by rows."""
        return not self.report.faults and _mark(self.report.batch_id) in self.recent


def told(report: wire.Report) -> Told:
    """What a report tells of its node."""
    inventory, results = "", ""
    if report.inventory is not None:
        gpus = [(gpu.index, gpu.uuid, gpu.pci, gpu.model, gpu.serial) for gpu in report.inventory.gpus]
        inventory = _digest([report.inventory.driver, report.inventory.kernel, gpus], size=8)
    if report.checks:
        of = [(one.name, one.device, one.status, one.value, one.unit, one.message) for one in report.checks]
        results = _digest(of, size=6)
    return Told(inventory, results, len(report.checks))


def hear(reports: Sequence[Said], *, now: datetime) -> list[Heard]:
    """The reports, each of another node, with what is known of their agents, in their order; one query.

    Rows are locked in the order of the nodes, so that several writers wait for each other and never in a circle. A
    node that the cluster does not have (yet) is kept as unknown.
    """
    known = _known(reports)
    missing = [one for one in reports if _key(one) not in known]
    if missing:
        _introduce(missing, now=now)
        known |= _known(missing)
    return [
        Heard(report=one.report, told=one.told, body=one.body, cluster=one.cluster, **known[_key(one)])
        for one in reports
    ]


def note(heard: Sequence[Heard], *, repeated: Collection[int], now: datetime) -> None:
    """Notes that the agents are alive, and what is new in their reports; ``repeated``: nodes whose report is not new.

    One statement, and a few more where there is news.
    """
    seconds = now.timestamp()
    fresh = [one for one in heard if one.node not in repeated]
    inventories = {one.node: one.told.inventory for one in fresh if one.told.inventory not in ("", one.inventory_told)}
    checks = {one.node: mark for one in fresh if (mark := _checks_mark(one, seconds)) != one.checks_told}
    news = {one.node: one.whole() for one in fresh if one.node in inventories or one.node in checks}
    rows = [_row(one, repeated, inventories.get(one.node), checks.get(one.node), now=now) for one in heard]
    at = statements.moment(now)
    statements.run(
        f"""UPDATE fleet_agent SET seen_at = %s, skew = given.skew,
                boot_id = coalesce(given.boot_id, fleet_agent.boot_id),
                boot_seen_at = CASE WHEN given.boot_id IS NULL THEN fleet_agent.boot_seen_at ELSE %s END,
                version = coalesce(given.version, fleet_agent.version),
                recent = substr(coalesce(given.mark, '') || fleet_agent.recent, 1, {MARK * MARKS}),
                inventory_told = coalesce(given.inventory_told, fleet_agent.inventory_told),
                checks_told = coalesce(given.checks_told, fleet_agent.checks_told)
            FROM {_noted()} WHERE fleet_agent.node_id = given.node""",
        [at, at, statements.rows(rows)],
    )
    _keep_inventories({node: said for node in inventories if (said := news[node].inventory) is not None}, now=now)
    moved = _keep_checks({node: news[node].checks for node in checks}, now=now)
    for one, row in zip(heard, rows, strict=True):
        if "boot_id" in row or "version" in row or one.node in inventories or one.node in moved:
            doorbell.tell("node", one.node, cluster=one.cluster.name)


def asked(nodes: Collection[int], *, now: datetime) -> set[int]:
    """Those of the nodes for whose agents a command is on offer."""
    found = statements.run(
        f"""SELECT DISTINCT node_id FROM fleet_command WHERE state = 'offered' AND expires_at > %s
            AND node_id IN (SELECT node FROM {statements.given(node="bigint")})""",
        [statements.moment(now), statements.rows([{"node": node} for node in nodes])],
    )
    return {node for (node,) in found}


def _noted() -> str:
    text = dict.fromkeys(("boot_id", "version", "mark", "inventory_told", "checks_told"), "text")
    return statements.given(node="bigint", skew="double precision", **text)


def _row(
    one: Heard, repeated: Collection[int], inventory_told: str | None, checks_told: str | None, *, now: datetime
) -> dict[str, Any]:
    """What changes in the agent's row; what is left out stays as it is."""
    report = one.report
    row: dict[str, Any] = {"node": one.node, "skew": (report.sent_at - now).total_seconds()}
    if report.boot_id != one.boot_id:
        row["boot_id"] = report.boot_id
    if (version := report.agent[:40]) != one.version:
        row["version"] = version
    # Empty reports need no mark, and those with faults have a row of their own.
    if one.node not in repeated and not report.faults and (one.told.results or one.told.inventory):
        row["mark"] = _mark(report.batch_id)
    if inventory_told is not None:
        row["inventory_told"] = inventory_told
    if checks_told is not None:
        row["checks_told"] = checks_told
    return row


def _key(one: Said) -> tuple[int, str]:
    return one.cluster.pk, one.report.node


def _known(reports: Sequence[Said]) -> dict[tuple[int, str], dict[str, Any]]:
    columns = ("node", "boot_id", "version", "recent", "inventory_told", "checks_told")
    found = statements.run(
        f"""SELECT given.cluster, given.name, agent.node_id, agent.boot_id, agent.version, agent.recent,
                agent.inventory_told, agent.checks_told
            FROM {statements.given(cluster="bigint", name="text")}
            JOIN fleet_node node ON node.cluster_id = given.cluster AND node.name = given.name
            JOIN fleet_agent agent ON agent.node_id = node.id
            ORDER BY agent.node_id {statements.locked("agent")}""",
        [statements.rows([{"cluster": one.cluster.pk, "name": one.report.node} for one in reports])],
    )
    return {(cluster, name): dict(zip(columns, rest, strict=True)) for cluster, name, *rest in found}


def _introduce(reports: Sequence[Said], *, now: datetime) -> None:
    """Rows for agents that were never heard of, and for nodes that nobody knew; rare."""
    for cluster in {one.cluster.pk: one.cluster for one in reports}.values():
        names = sorted(one.report.node for one in reports if one.cluster.pk == cluster.pk)
        nodes = Node.objects.filter(cluster=cluster, name__in=names)
        known = set(nodes.values_list("name", flat=True))
        fresh = [Node(cluster=cluster, name=name, created_at=now) for name in names if name not in known]
        Node.objects.bulk_create(fresh, ignore_conflicts=True)
        agents = [Agent(node_id=pk, seen_at=now, boot_seen_at=now) for pk in nodes.values_list("pk", flat=True)]
        Agent.objects.bulk_create(agents, ignore_conflicts=True)


def _mark(batch_id: str) -> str:
    return hashlib.blake2b(batch_id.encode(), digest_size=MARK // 2).hexdigest()


def _checks_mark(one: Heard, seconds: float) -> str:
    """What the results told, and in which turn of REFRESHED; each node's turns begin at another moment."""
    if not one.told.checks:
        return one.checks_told
    turn = int((seconds + one.node * 7 % REFRESHED) // REFRESHED)
    return f"{one.told.checks}{turn & 0xFFFF:04x}"


def _digest(value: Any, *, size: int) -> str:
    return hashlib.blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=size).hexdigest()


def _keep_inventories(of: Mapping[int, fault.Inventory], *, now: datetime) -> None:
    """Keeps what the nodes are made of; a GPU that is no longer there leaves the list."""
    if not of:
        return
    nodes = [
        {"node": node, "driver": inventory.driver[:60], "kernel": inventory.kernel[:120]}
        for node, inventory in of.items()
    ]
    gpus = [
        {
            "node": node,
            "place": gpu.index,
            "uuid": gpu.uuid,
            "pci": gpu.pci or "",
            "model": gpu.model[:120],
            "serial": gpu.serial[:60],
        }
        for node, inventory in of.items()
        for gpu in inventory.gpus
    ]
    statements.run(
        f"""UPDATE fleet_node SET driver = given.driver, kernel = given.kernel
            FROM {statements.given(node="bigint", driver="text", kernel="text")} WHERE fleet_node.id = given.node""",
        [statements.rows(nodes)],
    )
    gone = statements.run(
        f"""DELETE FROM fleet_gpu WHERE node_id IN (SELECT node FROM {statements.given(node="bigint")})
            AND NOT EXISTS (SELECT 1 FROM {statements.given(node="bigint", uuid="text")}
                WHERE given.node = fleet_gpu.node_id AND given.uuid = fleet_gpu.uuid)
            RETURNING node_id, uuid, "index", pci""",
        [statements.rows([{"node": node} for node in of]), statements.rows(gpus)],
    )
    if gone:
        present = {(node, gpu.pci) for node, inventory in of.items() for gpu in inventory.gpus}
        forgetting.replaced([forgetting.Slot(*one) for one in gone], present)
    columns = {"node": "bigint", "place": "smallint", "uuid": "text", "pci": "text", "model": "text", "serial": "text"}
    statements.run(
        f"""INSERT INTO fleet_gpu (node_id, "index", uuid, pci, model, serial, seen_at)
            SELECT node, place, uuid, pci, model, serial, %s FROM {statements.given(**columns)} WHERE true
            ON CONFLICT (node_id, uuid) DO UPDATE SET "index" = excluded."index", pci = excluded.pci,
                model = excluded.model, serial = excluded.serial, seen_at = excluded.seen_at""",
        [statements.moment(now), statements.rows(gpus)],
    )


def _keep_checks(of: Mapping[int, Sequence[fault.Check]], *, now: datetime) -> set[int]:
    """Keeps the latest result of each check, and a row where its status moved; returns the nodes of which one did."""
    latest = {(node, check.name, check.device): check for node, checks in of.items() for check in checks}
    if not latest:
        return set()
    results = statements.rows(
        [
            {
                "node": node,
                "name": name,
                "device": device,
                "status": check.status,
                "value": check.value,
                "unit": check.unit,
                "message": check.message[:1000],
            }
            for (node, name, device), check in sorted(latest.items(), key=lambda item: item[0])
        ]
    )
    given = statements.given(
        node="bigint",
        name="text",
        device="text",
        status="text",
        value="double precision",
        unit="text",
        message="text",
    )
    at = statements.moment(now)
    moved = statements.run(
        f"""INSERT INTO fleet_checkchange (node_id, name, device, before, status, message, at)
            SELECT given.node, given.name, given.device, coalesce(kept.status, ''), given.status, given.message, %s
            FROM {given} LEFT JOIN fleet_checkresult kept
                ON kept.node_id = given.node AND kept.name = given.name AND kept.device = given.device
            WHERE coalesce(kept.status, '') <> given.status AND NOT (kept.status IS NULL AND given.status IN (%s, %s))
            RETURNING node_id""",
        [at, results, *CALM],
    )
    statements.run(
        f"""INSERT INTO fleet_checkresult (node_id, name, device, status, value, unit, message, seen_at, changed_at)
            SELECT node, name, device, status, value, unit, message, %s, %s FROM {given} WHERE true
            ON CONFLICT (node_id, name, device) DO UPDATE SET status = excluded.status, value = excluded.value,
                unit = excluded.unit, message = excluded.message, seen_at = excluded.seen_at,
                changed_at = CASE WHEN fleet_checkresult.status = excluded.status
                    THEN fleet_checkresult.changed_at ELSE excluded.changed_at END""",
        [at, at, results],
    )
    forgetting.beyond(sorted({node for node, _, _ in latest}))
    nodes = {node for (node,) in moved}
    forgetting.moves_beyond(nodes)
    return nodes
