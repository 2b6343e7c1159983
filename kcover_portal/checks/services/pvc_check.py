"""The check ``pvc``: creates a PersistentVolumeClaim, waits until it is bound, and deletes it; once per run.

It tests the cluster's storage, not a node. So it never makes a fault, and every node of the run shows the same result.
Its state is stored in the run's row: the storage class from the start, the claim from before its creation until its
deletion is known.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from kcover import audit, reasons
from kcover_portal.checks.models import CheckRun
from kcover_portal.checks.services import node_checks
from kcover_portal.fleet import queries
from kcover_portal.kube import port, reasons as kube_reasons
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

CREATE, DELETE = audit.Call.PVC_CREATE, audit.Call.PVC_DELETE

CHECK = "pvc"
BIND_TIMEOUT = timedelta(seconds=90)  # Autopilot waits 30 s, then 60 s more


def planned(storage_class: str) -> dict[str, Any]:
    """The initial value of ``CheckRun.storage``; class "" is the cluster's default."""
    return {"class": storage_class} if storage_class else {}


def advance(run: CheckRun, *, now: datetime) -> None:
    """Takes the check one step further and stores its state in the run. Does nothing if it is over or not requested."""
    if CHECK not in run.checks or is_over(run):
        return
    mode, _ = queries.mode_now(run.cluster)
    if "since" not in run.storage:
        if mode in queries.MODES_WITHOUT_WRITES:
            why = reasons.of("claim_not_written", mode=reasons.of(f"mode_{mode}"))
            _keep(run, {**run.storage, "status": "skipped", **node_checks.explained(why)})
            return
        if not _keep(run, {**run.storage, "since": now.isoformat()}):
            return  # another worker has just begun it
    waited = now - datetime.fromisoformat(run.storage["since"])
    try:
        state = queries.connect(run.cluster).claim_state(run.cluster.job_namespace, name_of(run))
        if not state.exists and waited < BIND_TIMEOUT and mode not in queries.MODES_WITHOUT_WRITES:
            state = _make(run, now=now)
    except port.KubeError as error:
        if waited >= BIND_TIMEOUT or not isinstance(error, port.Unavailable):
            _end(run, "error", reasons.of("claim_unreadable", error=str(error)[:900]), now=now)
        return
    if state.bound:
        _end(run, "pass", _of_class(run, "claim_bound", seconds=round(waited.total_seconds())), now=now)
    elif waited >= BIND_TIMEOUT:
        phase = state.phase or reasons.of("claim_gone")
        late = _of_class(run, "claim_not_bound", seconds=round(BIND_TIMEOUT.total_seconds()), phase=phase)
        _end(run, "fail", late, now=now)


def _of_class(run: CheckRun, code: str, **params: reasons.Value) -> reasons.Reason:
    """The reason with this code, or the one that names the storage class if the run has one."""
    name = run.storage.get("class", "")
    return reasons.of(f"{code}_by_class", storage_class=name, **params) if name else reasons.of(code, **params)


def is_over(run: CheckRun) -> bool:
    """Returns whether there is a result."""
    return "status" in run.storage


def result(run: CheckRun) -> dict[str, Any]:
    """The result, as ``CheckTarget.results`` stores it."""
    return {
        "name": CHECK,
        "status": run.storage["status"],
        "device": "",
        "value": None,
        "unit": "",
        "message": run.storage["message"],
        node_checks.BECAUSE: run.storage[node_checks.BECAUSE],
    }


def name_of(run: CheckRun) -> str:
    """The claim's name; fixed per run, so that a repeated request finds the same claim."""
    return f"kcover-check-{run.pk}"


def drop(run: CheckRun, *, now: datetime) -> None:
    """Deletes the claim of a run, if it was begun.

    The claim stays if the cluster does not answer or its mode forbids writes. The label ``kcover.io/check-run`` finds
    claims that were left behind.
    """
    if "since" not in run.storage:
        return
    mode, _ = queries.mode_now(run.cluster)
    if mode in queries.MODES_WITHOUT_WRITES:
        stays = reasons.of("claim_stays", mode=reasons.of(f"mode_{mode}"), claim=name_of(run))
        _note(run, audit.ClusterCallFailed(because=stays, held_back=True, **_call(run, DELETE)), now=now)
        return
    try:
        queries.connect(run.cluster).delete_claim(run.cluster.job_namespace, name_of(run))
    except port.KubeError as error:
        log.warning("%s: its claim %s was not deleted: %s", run, name_of(run), error)
        failed = audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **_call(run, DELETE))
        _note(run, failed, now=now)
    else:
        _note(run, audit.ClusterCallDone(**_call(run, DELETE)), now=now)


def _make(run: CheckRun, *, now: datetime) -> port.ClaimState:
    """Creates the claim, or finds the one that exists. Raises port.KubeError after recording it."""
    spec = port.ClaimSpec(
        name=name_of(run),
        namespace=run.cluster.job_namespace,
        storage_class=run.storage.get("class", ""),
        labels={"kcover.io/check-run": str(run.pk)},
    )
    wanted = audit.StorageClaim(namespace=spec.namespace, claim=spec.name, storage_class=spec.storage_class or "")
    _note(run, audit.ClusterCallBegun(wanted=wanted, **_call(run, CREATE)), now=now)
    try:
        state = queries.connect(run.cluster).ensure_claim(spec)
    except port.KubeError as error:
        failed = audit.ClusterCallFailed(because=kube_reasons.of(error), held_back=False, **_call(run, CREATE))
        _note(run, failed, now=now)
        raise
    claim = audit.ClaimMade(claim=spec.name, phase=state.phase)
    _note(run, audit.ClusterCallDone(answer=claim, **_call(run, CREATE)), now=now)
    return state


def _end(run: CheckRun, status: str, why: reasons.Reason, *, now: datetime) -> None:
    drop(run, now=now)
    _keep(run, {**run.storage, "status": status, **node_checks.explained(why)})


def _keep(run: CheckRun, storage: dict[str, Any]) -> bool:
    """Stores the state unless another worker has changed it meanwhile. Returns whether it was stored."""
    kept = CheckRun.objects.filter(pk=run.pk, storage=run.storage).update(storage=storage)
    run.storage = storage
    return bool(kept)


def _call(run: CheckRun, call: audit.Call) -> dict[str, Any]:
    """The fields that every entry about a call for the run has."""
    claim = f"{run.cluster.job_namespace}/{name_of(run)}"
    return {"call": call, "target": f"claim {claim}", "check_run": run.pk}


def _note(run: CheckRun, act: audit.ClusterCall, *, now: datetime) -> None:
    ledger.record(run.cluster.name, act, actor="system", now=now)
