"""The check ``pvc``: a claim of storage is made, waited for until it is bound, and deleted; once for a whole run.

It is about the cluster's storage and not about a node, so it is no fault of any, and every node of the run is told the
same result. What it is at stands in the run's row: the storage class from the start, the claim before it is made and
until it is known to be gone.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from kcover_portal.fleet import queries
from kcover_portal.fleet.models import CheckRun
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

CHECK = "pvc"
BOUND_WITHIN = timedelta(seconds=90)  # Autopilot waits 30 s, then 60 s more


def planned(storage_class: str) -> dict[str, Any]:
    """What a run's row knows before the claim is made; "" is the cluster's default class."""
    return {"class": storage_class} if storage_class else {}


def look(run: CheckRun, *, now: datetime) -> None:
    """Takes the check one step on, and keeps in the run what came of it; nothing where it is over or not asked for."""
    if CHECK not in run.checks or is_over(run):
        return
    mode, _ = queries.mode_now(run.cluster)
    if "since" not in run.storage:
        if mode in queries.SILENT:
            why = f"the cluster is in mode {mode}: nothing is written to it"
            _keep(run, {**run.storage, "status": "skipped", "message": why})
            return
        if not _keep(run, {**run.storage, "since": now.isoformat()}):
            return  # somebody else has begun it in this moment
    waited = now - datetime.fromisoformat(run.storage["since"])
    try:
        state = queries.connect(run.cluster).claim_state(run.cluster.job_namespace, name_of(run))
        if not state.exists and waited < BOUND_WITHIN and mode not in queries.SILENT:
            state = _make(run, now=now)
    except port.KubeError as error:
        if waited >= BOUND_WITHIN or not isinstance(error, port.Unavailable):
            _end(run, "error", f"there was no claim to look at: {error}", now=now)
        return
    name = run.storage.get("class", "")
    if state.bound:
        _end(run, "pass", f"bound after {waited.total_seconds():.0f} s{name and f' by class {name}'}", now=now)
    elif waited >= BOUND_WITHIN:
        late = f"not bound within {BOUND_WITHIN.total_seconds():.0f} s but {state.phase or 'gone'}"
        asked = f"is there a class {name}, for ReadWriteMany," if name else "is there a class for ReadWriteMany"
        _end(run, "fail", f"{late}: {asked} that does not wait for a pod?", now=now)


def is_over(run: CheckRun) -> bool:
    """Whether there is a result."""
    return "status" in run.storage


def result(run: CheckRun) -> dict[str, Any]:
    """The result, as a turn keeps it."""
    return {
        "name": CHECK,
        "status": run.storage["status"],
        "device": "",
        "value": None,
        "unit": "",
        "message": run.storage["message"],
    }


def name_of(run: CheckRun) -> str:
    """The claim's name: the same however often it is asked for."""
    return f"kcover-check-{run.pk}"


def drop(run: CheckRun, *, now: datetime) -> None:
    """Deletes the claim of a run that was begun, whatever came of it. A cluster that does not answer, or to which
    nothing is written in its mode, keeps it: the label ``kcover.io/check-run`` finds what is left."""
    if "since" not in run.storage:
        return
    mode, _ = queries.mode_now(run.cluster)
    if mode in queries.SILENT:
        why = f"the cluster is in mode {mode}: nothing is written to it, and its claim {name_of(run)} stays"
        _note(run, "pvc.delete.failed", now=now, data={"error": why})
        return
    try:
        queries.connect(run.cluster).delete_claim(run.cluster.job_namespace, name_of(run))
    except port.KubeError as error:
        log.warning("%s: its claim %s was not deleted: %s", run, name_of(run), error)
        _note(run, "pvc.delete.failed", now=now, data={"error": str(error)})
    else:
        _note(run, "pvc.delete.done", now=now, data={})


def _make(run: CheckRun, *, now: datetime) -> port.ClaimState:
    """Has the claim made; asking twice makes one. Raises port.KubeError after noting it."""
    spec = port.ClaimSpec(
        name=name_of(run),
        namespace=run.cluster.job_namespace,
        storage_class=run.storage.get("class", ""),
        labels={"kcover.io/check-run": str(run.pk)},
    )
    asked = {"namespace": spec.namespace, "claim": spec.name, "class": spec.storage_class}
    _note(run, "pvc.create.begun", now=now, data=asked)
    try:
        state = queries.connect(run.cluster).ensure_claim(spec)
    except port.KubeError as error:
        _note(run, "pvc.create.failed", now=now, data={"error": str(error), "kind": type(error).__name__})
        raise
    _note(run, "pvc.create.done", now=now, data={"claim": spec.name, "phase": state.phase})
    return state


def _end(run: CheckRun, status: str, message: str, *, now: datetime) -> None:
    drop(run, now=now)
    _keep(run, {**run.storage, "status": status, "message": message[:1000]})


def _keep(run: CheckRun, storage: dict[str, Any]) -> bool:
    """Writes it unless somebody else has written meanwhile."""
    kept = CheckRun.objects.filter(pk=run.pk, storage=run.storage).update(storage=storage)
    run.storage = storage
    return bool(kept)


def _note(run: CheckRun, verb: str, *, now: datetime, data: dict[str, Any]) -> None:
    ledger.write(run.cluster.name, actor="system", verb=verb, subject=f"check run {run.pk}", now=now, data=data)
