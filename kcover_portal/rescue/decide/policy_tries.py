"""Tries of policies as jobs: workers decide the incidents in slices, so that no web request waits and each slice is
bounded.

A slice holds a lease on the row and one of two places of the portal. If its worker dies, another one goes on with the
incidents that are left. Nothing is applied.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from kcover import reasons
from kcover.decisions import decide as core, match
from kcover_portal.incidents.models import Incident
from kcover_portal.lib import doorbell
from kcover_portal.policies import services as policies
from kcover_portal.policies.models import PolicyTry, PolicyTryResult
from kcover_portal.rescue.decide import backtest
from kcover_portal.rescue.decide.past_guards import Replay
from kcover_portal.rescue.models import Rescue
from kcover_portal.runtime.services import claims, concurrency_limits, retention

log = logging.getLogger(__name__)

MAX_INCIDENTS = 1000  # the newest ones of a try
MAX_OPEN = 20  # tries of everybody
SLICE_SECONDS = 5.0
CHUNK_INCIDENTS = 20  # incidents between two writes of progress
LEASE_TIME = timedelta(seconds=60)
MAX_SLICES = 3  # begun without progress: each lost its worker
MAX_DURATION = timedelta(minutes=15)  # of the work, without the wait for a place

Clock = Callable[[], datetime]


class TryRefused(reasons.ExplainedError):
    """No further try is accepted now. ``retry_after``: seconds."""

    def __init__(self, reason: reasons.Reason, *, retry_after: int) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


def begin(text: str, incidents: Iterable[int], *, owner: str, past: bool, now: datetime) -> PolicyTry:
    """Stores a try of a valid text on the incidents with these ids, the newest first. Raises TryRefused."""
    found = list(incidents)
    with transaction.atomic():
        opened = PolicyTry.objects.filter(state__in=PolicyTry.OPEN)
        if own := opened.filter(owner=owner).first():
            raise TryRefused(reasons.of("try_own_open", number=str(own.pk)), retry_after=5)
        if opened.count() >= MAX_OPEN:
            wait = reasons.span(timedelta(seconds=30))
            raise TryRefused(reasons.of("tries_full", most=MAX_OPEN, wait=wait), retry_after=30)
        try:
            with transaction.atomic():
                row = PolicyTry.objects.create(
                    text=text,
                    owner=owner,
                    past=past,
                    pending=found[:MAX_INCIDENTS] if past else found[:MAX_INCIDENTS][::-1],  # the last one is next
                    total=min(len(found), MAX_INCIDENTS),
                    truncated=len(found) > MAX_INCIDENTS,
                    requested_at=now,
                )
        except IntegrityError as error:  # a request of the same person at the same moment
            raise TryRefused(reasons.of("try_own_open", number="?"), retry_after=5) from error
        doorbell.ring("rescue.advance_try", row.pk)
    return row


def cancel(row: PolicyTry, *, now: datetime) -> None:
    """Ends the try; a worker stops at its next write of progress. Without effect on a try that has ended."""
    _end(row.pk, PolicyTry.State.CANCELLED, None, now=now)


def due(*, now: datetime) -> list[int]:
    """Returns the tries that wait for a worker or whose worker is lost, the oldest first."""
    return list(_free(now).filter(state__in=PolicyTry.OPEN).order_by("pk").values_list("pk", flat=True))


def prune(*, now: datetime) -> None:
    """Deletes old tries."""
    PolicyTry.objects.filter(ended_at__lt=retention.before(PolicyTry, now=now)).delete()


def advance(pk: int, *, clock: Clock) -> None:
    """Does one slice of a try, unless another worker does, it has ended, or both places are taken."""
    try:
        with concurrency_limits.held(concurrency_limits.TRIES, f"try:{pk}"):
            _slice(pk, holder=secrets.token_hex(16), clock=clock)
    except concurrency_limits.Busy:
        return  # the next round finds it


def _slice(pk: int, *, holder: str, clock: Clock) -> None:
    now = clock()
    if (
        not _free(now)
        .filter(pk=pk, state__in=PolicyTry.OPEN)
        .update(state=PolicyTry.State.RUNNING, holder=holder, lease_until=now + LEASE_TIME)
    ):
        return
    row = PolicyTry.objects.get(pk=pk)
    row.begun_at = row.begun_at or now
    PolicyTry.objects.filter(pk=pk, holder=holder).update(slices=row.slices + 1, begun_at=row.begun_at)
    if row.slices >= MAX_SLICES:
        _end(pk, PolicyTry.State.FAILED, reasons.of("try_interrupted", count=str(MAX_SLICES)), now=now)
        return
    try:
        rules = policies.draft(row.text)
    except policies.InvalidPolicies:
        _end(pk, PolicyTry.State.FAILED, reasons.of("try_invalid_now"), now=now)
        return
    if _work(row, rules, holder=holder, clock=clock):
        doorbell.ring("rescue.advance_try", pk)


def _work(row: PolicyTry, rules: tuple[match.Candidate, ...], *, holder: str, clock: Clock) -> bool:
    """Decides incidents until the slice or the try is over. Returns whether incidents are left."""
    left: list[int] = row.pending
    past = _replays(row) if row.past else None
    began_at = row.begun_at or clock()
    until = time.monotonic() + SLICE_SECONDS
    while left and time.monotonic() < until:
        now = clock()
        if now - began_at > MAX_DURATION:
            reason = reasons.of("try_too_long", most=reasons.span(MAX_DURATION))
            _end(row.pk, PolicyTry.State.FAILED, reason, now=now)
            return False
        results = _decide(row, rules, left[: -CHUNK_INCIDENTS - 1 : -1], past=past, until=until, now=now)
        left = left[: len(left) - results[0]]
        if not _store(row, left, results[1], holder=holder, now=clock()):
            return False  # cancelled, or another worker has it
    if not left:
        _end(row.pk, PolicyTry.State.DONE, None, now=clock())
        return False
    PolicyTry.objects.filter(pk=row.pk, holder=holder).update(lease_until=None)
    return True


def _replays(row: PolicyTry) -> backtest.Replays:
    """What both sets of rules have isolated in earlier slices."""
    replays = Replay(), Replay()
    results = list(row.results.order_by("incident"))
    incidents = Incident.objects.in_bulk([one.incident for one in results])
    for result in results:
        incident = incidents.get(result.incident)
        at = datetime.fromisoformat(result.data.get("at") or result.data["opened_at"])
        for replay, decision in zip(replays, (result.data["before"], result.data["after"]), strict=True):
            if incident is not None:
                named = {name: decision[name] for name in ("answer", "rule", "steps")}
                replay.add(incident, **named, at=at)
    return replays


def _decide(
    row: PolicyTry,
    rules: tuple[match.Candidate, ...],
    ids: list[int],
    *,
    past: backtest.Replays | None,
    until: float,
    now: datetime,
) -> tuple[int, list[PolicyTryResult]]:
    """Decides at least one of the incidents. Returns how many were looked at, and the results."""
    found = Incident.objects.select_related("node__cluster", "cluster").in_bulk(ids)
    results: list[PolicyTryResult] = []
    for number, pk in enumerate(ids, start=1):
        incident = found.get(pk)
        for trial in backtest.run(rules, [incident] if incident else [], now=now, past=past):
            data = _data(trial)
            cluster = trial.incident.cluster_id
            results.append(PolicyTryResult(tried=row, incident=pk, cluster=cluster, data=data))
        if time.monotonic() >= until:
            return number, results
    return len(ids), results


def _store(row: PolicyTry, left: list[int], results: list[PolicyTryResult], *, holder: str, now: datetime) -> bool:
    """Writes the progress if the try is still open and this worker's. Returns whether it is."""
    with transaction.atomic():
        mine = PolicyTry.objects.filter(pk=row.pk, holder=holder, state=PolicyTry.State.RUNNING)
        if not mine.update(pending=left, slices=0, lease_until=now + LEASE_TIME):
            return False
        PolicyTryResult.objects.bulk_create(results, ignore_conflicts=True)
    return True


def _data(trial: backtest.Backtest) -> dict[str, Any]:
    incident = trial.incident
    rescue = Rescue.objects.filter(incidents=incident).order_by("-pk").first()
    return {
        "cluster": incident.cluster.name,
        "node": trial.node.name,
        "kind": incident.kind,
        "code": incident.code,
        "opened_at": incident.opened_at.isoformat(),
        "at": trial.at.isoformat(),
        "changed": trial.changed,
        "before": _decision(trial.before),
        "after": _decision(trial.after),
        "rescue": {"id": rescue.pk, "state": rescue.state, "rule": rescue.rule} if rescue is not None else None,
    }


def _decision(decision: core.Decision) -> dict[str, Any]:
    return {
        "answer": decision.answer,
        "mode": decision.mode,
        "rule": decision.rule,
        "reasons": [reason.to_json() for reason in decision.because],
        "steps": [step.name for step in decision.steps],
    }


def _end(pk: int, state: str, reason: reasons.Reason | None, *, now: datetime) -> None:
    because = reason.to_json() if reason is not None else {}
    rows = PolicyTry.objects.filter(pk=pk, state__in=PolicyTry.OPEN)
    rows.update(state=state, because=because, ended_at=now, lease_until=None, holder="", pending=[])


def _free(now: datetime) -> Any:
    return PolicyTry.objects.filter(claims.free(now=now))
