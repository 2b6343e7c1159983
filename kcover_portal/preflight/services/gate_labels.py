"""The preflight gate: kept with each verdict, and written to nodes as a label in clusters that enable it.

The label follows the rows; nothing is written if the node already has it or carries ``kcover.io/exclude=true``. A label
that no longer holds is removed, also after the setting was switched off. A failed write is recorded and tried again.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kcover import audit
from kcover.decisions import guards
from kcover.preflight import gate
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger
from kcover_portal.preflight import queries
from kcover_portal.preflight.models import PairPlan, PreflightGate

log = logging.getLogger(__name__)

MAX_NODES_PER_ROUND = 20  # of each cluster
ACTOR = "system"


def keep(plan: PairPlan, passed: Mapping[str, bool], nodes: Mapping[str, Node], *, now: datetime) -> None:
    """Keeps a plan's result for each tested node: whether it passed. Called in the transaction of the verdict."""
    PreflightGate.objects.bulk_create(
        (
            PreflightGate(node=nodes[name], plan=plan, node_uid=nodes[name].uid, passed_at=now if good else None)
            for name, good in passed.items()
        ),
        update_conflicts=True,
        unique_fields=["node"],
        update_fields=["plan", "node_uid", "passed_at"],
    )


def write(cluster: Cluster, *, clock: Callable[[], datetime]) -> int:
    """One round: writes at most MAX_NODES_PER_ROUND labels that differ, and returns their number."""
    written = 0
    for node, wanted in _wanted(cluster, now=clock())[:MAX_NODES_PER_ROUND]:
        if fleet.mode_now(cluster)[0] in fleet.MODES_WITHOUT_WRITES:
            break
        try:
            written += _write(cluster, node, wanted, clock=clock)
        except port.Unavailable as error:
            log.info("cluster %s: labels are postponed: %s", cluster.name, error)
            break
        except port.KubeError as error:
            log.warning("cluster %s: %s is not labelled: %s", cluster.name, node.name, error)
    return written


def _wanted(cluster: Cluster, *, now: datetime) -> list[tuple[Node, str | None]]:
    """The nodes whose label, as last seen by the watch, is not the wanted one; None: they are to have none."""
    found = []
    for node in queries.gates(Node.objects.filter(cluster=cluster, in_cluster=True)):
        if node.labels.get(guards.EXCLUDE_LABEL) == "true":
            continue
        row = queries.gate_row(node)
        wanted = gate.label(queries.gate_of(node, now=now)) if cluster.preflight_labels else None
        ours = wanted is not None or bool(row and row.label)
        if ours and node.labels.get(gate.LABEL) != wanted:
            found.append((node, wanted))
    return found


def _write(cluster: Cluster, node: Node, wanted: str | None, *, clock: Callable[[], datetime]) -> bool:
    def change(live: port.Node) -> port.NodeChange:
        if live.labels.get(guards.EXCLUDE_LABEL) == "true":
            return port.NodeChange()
        return port.NodeChange(labels={gate.LABEL: wanted})

    call: dict[str, Any] = {
        "call": audit.Call.PREFLIGHT_LABEL,
        "target": f"node {node.name}",
        "node": node.name,
    }
    if wanted is not None:  # so that it is known as ours, whenever this process dies
        PreflightGate.objects.update_or_create(
            node=node, defaults={"label": wanted}, create_defaults={"label": wanted, "node_uid": node.uid}
        )
    shown = f"{gate.LABEL}={wanted}" if wanted else f"{gate.LABEL}-"
    _note(cluster, audit.ClusterCallBegun(wanted=audit.NodePatch(label=shown), **call), now=clock())
    try:
        before, after = fleet.connect(cluster).apply_node(node.name, change)
    except port.KubeError as error:
        failed = audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **call)
        _note(cluster, failed, now=clock())
        raise
    patched = audit.LabelsPatched(before=_shown(before), after=_shown(after))
    _note(cluster, audit.ClusterCallDone(answer=patched, **call), now=clock())
    if wanted is None and gate.LABEL not in after.labels:
        PreflightGate.objects.filter(node=node).update(label="")
    return before.labels != after.labels


def _shown(node: port.Node) -> dict[str, str | None]:
    return {gate.LABEL: node.labels.get(gate.LABEL)}


def _note(cluster: Cluster, act: audit.ClusterCall, *, now: datetime) -> None:
    ledger.record(cluster.name, act, actor=ACTOR, now=now)
