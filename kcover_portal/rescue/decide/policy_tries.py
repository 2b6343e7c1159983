"""Tries of policies as jobs: workers decide the incidents in slices, two at a time in the portal.

Nothing is applied.
"""

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Final

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
from kcover_portal.runtime.services import concurrency_limits, retention, slices

MAX_INCIDENTS = 1000  # the newest ones of a try
MAX_OPEN = 20  # tries of everybody
CHUNK_INCIDENTS = 20  # incidents between two writes of progress
MAX_DURATION = timedelta(minutes=15)  # of the work, without the wait for a place


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
        doorbell.ring(WORK.task, row.pk)
    return row


def cancel(row: PolicyTry, *, now: datetime) -> None:
    """Ends the try; a worker stops at its next write of progress. Without effect on a try that has ended."""
    WORK.end(row.pk, PolicyTry.State.CANCELLED, now=now)


def prune(*, now: datetime) -> None:
    """Deletes old tries."""
    PolicyTry.objects.filter(ended_at__lt=retention.before(PolicyTry, now=now)).delete()


def _work(row: PolicyTry, until: float, clock: slices.Clock) -> Iterator[slices.Progress]:
    begun_at = row.begun_at or clock()
    try:
        rules = policies.draft(row.text)
    except policies.InvalidPolicies as error:
        raise slices.Failed(reasons.of("try_invalid_now")) from error
    past = _replays(row) if row.past else None
    while row.pending:
        now = clock()
        if now - begun_at > MAX_DURATION:
            raise slices.Failed(reasons.of("try_too_long", most=reasons.span(MAX_DURATION)))
        ids = row.pending[: -CHUNK_INCIDENTS - 1 : -1]
        decided, results = _decide(row, rules, ids, past=past, until=until, now=now)
        yield {"pending": row.pending[: len(row.pending) - decided], "begun_at": begun_at}, results


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


WORK: Final = slices.SlicedWork(
    model=PolicyTry,
    work=_work,
    limit=concurrency_limits.TRIES,
    task="rescue.advance_try",
    interrupted=reasons.of("try_interrupted", count=str(slices.MAX_SLICES)),
)
due, advance = WORK.due, WORK.advance
