"""Steering: what a person may do to a rescue under way, each by one conditional move: of two, one finds it made."""

from datetime import datetime

from django.db import transaction

from kcover_portal import doorbell
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents import services as incidents
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.rescue.services import approving, opening, withdrawing
from kcover_portal.rescue.services.opening import Refused


def cancel(rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None) -> Rescue:
    """Ends an open rescue; the node stays isolated if it was (release it to take it back). Raises Refused."""
    _check_plan(rescue, plan_hash)
    because = f"cancelled by {actor}: {reason}" if reason else f"cancelled by {actor}"
    if not opening.end(rescue, state="cancelled", because=because, actor=actor, now=now):
        raise Refused(f"rescue {rescue.pk} has ended already")
    rescue.refresh_from_db()
    return rescue


def retry(
    rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None, step: int | None = None
) -> Rescue:
    """Runs the step that a held rescue stopped at once more, from its beginning. Raises Refused, also where it stopped
    at another step than ``step`` by now."""
    return _go_on(rescue, "retry", actor=actor, reason=reason, now=now, plan_hash=plan_hash, seen=step)


def skip(
    rescue: Rescue, *, actor: str, reason: str, now: datetime, plan_hash: str | None = None, step: int | None = None
) -> Rescue:
    """Goes on without the step that a held rescue stopped at; on record as this person's doing. Raises Refused, as
    ``retry`` does."""
    return _go_on(rescue, "skip", actor=actor, reason=reason, now=now, plan_hash=plan_hash, seen=step)


def _go_on(
    rescue: Rescue, verb: str, *, actor: str, reason: str, now: datetime, plan_hash: str | None, seen: int | None
) -> Rescue:
    with transaction.atomic(), ledger.last():
        # Locked before it is looked at: since the page was shown it may have gone on and stopped somewhere else.
        row = Rescue.objects.select_for_update(of=("self",), no_key=True).get(pk=rescue.pk)
        _check_plan(row, plan_hash)
        step = queries.current_step(row)
        if step is None or step.state != Step.State.FAILED:
            raise Refused(f"rescue {rescue.pk} is not held at a step: there is nothing to {verb}")
        if seen is not None and step.index != seen:
            raise Refused(f"rescue {rescue.pk} stands at step {step.index + 1} ({step.name}) by now: look at it again")
        moved = Rescue.objects.filter(pk=rescue.pk, state=Rescue.State.HELD).update(
            state=Rescue.State.RUNNING, hold="", due_at=now, because="", needs_human=False
        )
        if not moved:
            raise Refused(f"rescue {rescue.pk} is not held (any more)")
        withdrawn = ""
        if verb == "retry":
            # A fresh start of the step: its own time, its own request; what was asked before stays in the ledger.
            Step.objects.filter(pk=step.pk).update(
                state=Step.State.WAITING,
                started_at=now,
                finished_at=None,
                failures=0,
                # The boot that was to end stays known: if it ended meanwhile, nothing is rebooted a second time.
                progress={
                    "retry": int(step.progress.get("retry", 0)) + 1,
                    **{key: step.progress[key] for key in ("boot_id", "jobs") if key in step.progress},
                },
            )
        else:
            because = f"skipped by {actor}: {reason}"
            Step.objects.filter(pk=step.pk).update(state=Step.State.SKIPPED, finished_at=now, because=because[:1000])
            approving.skipped(row, step)
            withdrawn = withdrawing.call_back(rescue, step=step, because="its step was skipped", now=now)
            if step.name == "verify":  # the person vouches for the node instead
                about = list(incident_queries.open_on(rescue.node).values_list("pk", flat=True))
                incidents.close(about, because=f"{actor} skipped the proof: {reason}", actor=actor, now=now, before=now)
        _ledger(rescue, f"step.{verb}", actor=actor, reason=reason, now=now, step=step.name, withdrawn=withdrawn)
        doorbell.ring("rescue.run", rescue.pk)
        doorbell.tell("rescue", rescue.pk, cluster=rescue.cluster.name)
    rescue.refresh_from_db()
    return rescue


def _check_plan(rescue: Rescue, plan_hash: str | None) -> None:
    if plan_hash is not None and plan_hash != rescue.plan_hash:
        raise Refused("the plan is not the one you saw: look at it again")


def _ledger(rescue: Rescue, verb: str, *, actor: str, reason: str, now: datetime, step: str, withdrawn: str) -> None:
    more = {"withdrawn": withdrawn} if withdrawn else {}
    ledger.write(
        rescue.cluster.name,
        actor=actor,
        verb=verb,
        subject=f"rescue {rescue.pk}",
        node=rescue.node.name,
        rescue=rescue.pk,
        now=now,
        data={"reason": reason, "step": step, "plan_hash": rescue.plan_hash, **more},
    )
