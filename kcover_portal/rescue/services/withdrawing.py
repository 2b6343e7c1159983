"""Withdrawing: what a rescue asked for and nobody wants any more is called back, at once and until it is so.

At once: as soon as no other call about the node is under way (``actions.turns``). Where that is the very call that asks
for it, and hangs, or its worker died in it, this may take as long as a lease.

A reboot is asked for by a command to the node's agent or by a job. A command is a row: it goes off the offer in the
transaction that ends the rescue or skips the step. A job is on the cluster: in that same transaction the step's row is
given a due date, and whoever claims it looks for the job and deletes it; so no crash and no API server that is away
loses it. It looks twice, since a call of the rescue's worker may still be under way when a person ends the rescue.

What an agent has fetched, or a job's pod has begun, cannot be called back, and the record says so.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from kcover_portal import doorbell
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet import services as fleet_services
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions import turns
from kcover_portal.rescue.actions.drivers import agent, job
from kcover_portal.rescue.models import Rescue, Step

log = logging.getLogger(__name__)

HELD_SECONDS = 5.0  # between looks while everything is paused, or in shadow mode: nothing is written then
TURN_SECONDS = 0.5  # between looks while another call about the node is under way
BACK_OFF = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
CANNOT_RECALL = ("reboot", "reset_gpu")  # kinds of commands that do harm where the agent has fetched them


def call_back(rescue: Rescue, *, now: datetime, because: str, step: Step | None = None) -> str:
    """Has called back what the rescue, or one step of it, asked for and has not got; returns what the record is to say.

    Part of the caller's transaction, which has just ended the rescue or the step: no worker asks for anything after it.
    """
    suffix = "" if step is None else f"{step.index}-"
    prefixes = [f"{verb}-{rescue.pk}-{suffix}" for verb in agent.VERBS]
    withdrawn = fleet_services.withdraw_commands(prefixes, because=because, now=now)
    words = [f"agent command {pk}" for pk, kind in withdrawn if kind in CANNOT_RECALL]
    rows = rescue.steps.all() if step is None else rescue.steps.filter(pk=step.pk)
    words += [f"job {place}" for row in _wanting(rows) for place in _schedule(row, now=now)]
    if not words:
        return ""
    return f"{', '.join(words)} withdrawn; what the node had begun by then cannot be called back"


def withdraw(step_id: int, *, clock: Callable[[], datetime]) -> None:
    """Deletes the jobs of a step that is due for it; does nothing where it is not, or somebody else is at it."""
    now = clock()
    if not Step.objects.filter(pk=step_id, withdraw_at__lte=now).update(withdraw_at=now + turns.LEASE):
        return
    step = Step.objects.select_related("rescue__node", "rescue__cluster").get(pk=step_id)
    mode, reason = fleet.mode_now(step.rescue.cluster)
    if mode in fleet.SILENT:
        held = f"{mode}{': ' + reason if reason else ''}"
        _again(step, seconds=HELD_SECONDS, because=f"its request is not withdrawn yet: {held}", failed=False, now=now)
        return
    try:
        found = [_delete(step, place, clock=clock) for place in job.asked_for(step.progress)]
    except turns.Busy as other:
        because = f"its request is not withdrawn yet: {other}"
        _again(step, seconds=TURN_SECONDS, because=because, failed=False, now=clock())
        return
    except port.KubeError as error:
        if isinstance(error, port.Refused) and clock() > _until(step) + timedelta(seconds=job.DEADLINE_SECONDS):
            because = f"its request could not be withdrawn, and has ended by its own deadline: {error}"
            _write(step, withdraw_at=None, withdrawal={**_withdrawal(step), "done": True}, because=because)
            return
        log.warning("%s: %s is not withdrawn yet: %s", step.rescue.cluster.name, step.rescue, error)
        failures = int(_withdrawal(step).get("failures", 0))
        seconds = BACK_OFF[min(failures, len(BACK_OFF) - 1)]
        because = f"its request is not withdrawn yet: {error}"
        _again(step, seconds=seconds, because=because, failed=True, now=clock())
        return
    _note_withdrawn(step, [said for said in found if said], now=clock())


def _wanting(steps: QuerySet[Step]) -> list[Step]:
    """Those of these steps that asked, or may have asked, for a job which nobody has withdrawn yet."""
    unsettled = steps.filter(name="reboot").exclude(state__in=("done", "pending"))
    return [row for row in unsettled if job.asked_for(row.progress) and not _withdrawal(row).get("done")]


def _schedule(step: Step, *, now: datetime) -> list[str]:
    """Makes the step due for withdrawal; returns its jobs by namespace and name."""
    # Until then a call that was under way when the rescue was ended may yet create the job.
    until = (now + turns.LEASE).isoformat()
    Step.objects.filter(pk=step.pk).update(
        withdraw_at=now, progress={**step.progress, "withdrawal": {"until": until, "failures": 0}}
    )
    doorbell.ring("rescue.withdraw", step.pk)
    return job.asked_for(step.progress)


def _delete(step: Step, place: str, *, clock: Callable[[], datetime]) -> str:
    """Deletes one job; says what became of it, "" where it is not there. Raises turns.Busy, and the port's errors."""
    kube = fleet.connect(step.rescue.cluster)
    namespace, _, name = place.partition("/")
    found = kube.job_state(namespace, name)
    if not found.exists:
        return ""
    said = "had run already" if found.succeeded else "was deleted"
    with turns.taken(step.rescue.node, clock=clock) as turn:
        _note(step, place, "begun", now=clock())
        try:
            turn.stay(now=clock())
            kube.delete_job(namespace, name)
        except (port.KubeError, turns.Busy) as error:
            _note(step, place, "failed", now=clock(), error=str(error), kind=type(error).__name__)
            raise
        _note(step, place, "done", now=clock(), answer=said)
    return f"job {place} {said}"


def _note_withdrawn(step: Step, deleted: list[str], *, now: datetime) -> None:
    """Notes that the jobs are gone; the last look is the one after which nobody can create them any more."""
    withdrawal, until = _withdrawal(step), _until(step)
    said = [*withdrawal.get("said", ()), *deleted]
    _write(
        step,
        withdraw_at=None if now >= until else until,
        withdrawal={**withdrawal, "said": said, "done": now >= until},
        because=f"its request was withdrawn: {'; '.join(said) or 'no job was there'}",
    )


def _again(step: Step, *, seconds: float, because: str, failed: bool, now: datetime) -> None:
    withdrawal = _withdrawal(step)
    failures = int(withdrawal.get("failures", 0)) + (1 if failed else 0)
    at = now + timedelta(seconds=seconds)
    _write(step, withdraw_at=at, withdrawal={**withdrawal, "failures": failures}, because=because)


def _write(step: Step, *, withdraw_at: datetime | None, withdrawal: dict[str, Any], because: str) -> None:
    Step.objects.filter(pk=step.pk).exclude(withdraw_at=None).update(
        withdraw_at=withdraw_at, progress={**step.progress, "withdrawal": withdrawal}, because=because[:1000]
    )
    doorbell.tell("rescue", step.rescue_id, cluster=step.rescue.cluster.name)


def _until(step: Step) -> datetime:
    """Until when a call that makes the job may be under way."""
    return datetime.fromisoformat(_withdrawal(step)["until"])


def _withdrawal(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = step.progress.get("withdrawal") or {}
    return found


def _note(step: Step, place: str, end: str, *, now: datetime, **data: object) -> None:
    rescue = step.rescue
    ledger.write(
        rescue.cluster.name,
        actor="system",
        verb=f"withdraw.{end}",
        subject=f"job {place}",
        node=rescue.node.name,
        rescue=rescue.pk,
        now=now,
        data={"step": step.name, **data},
    )
