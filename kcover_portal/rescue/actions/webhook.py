"""webhook: another system is told, or is given the node until it calls back.

Without a wait it is told only: a few tries, and the plan goes on whatever came of them. With one the node is its own
from the moment of the call: the portal does nothing on it until the callback, an operator, or the end of the wait, when
a person is asked (invariant 10). The call is stored before it is made; one whose end nobody knows counts as made, and
is not repeated: a repair that is ordered twice is worse than one that is waited for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from kcover_portal import outgoing
from kcover_portal.rescue.actions import marking
from kcover_portal.rescue.actions.context import Context, HeldBack
from kcover_portal.rescue.actions.drivers import agent
from kcover_portal.rescue.actions.outcome import Done, Given, Hold, Outcome, Wait

SECONDS = 15.0  # for one call; the lease is longer
BACK_OFF = (1.0, 5.0, 15.0, 60.0)  # between tries: five in all
POLL_SECONDS = 30.0  # a callback that crosses our own answer is found by then
LATER = (408, 425, 429, 503)  # it was not taken, and may be another time
DELIVERY = "X-Kcover-Delivery"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of one call. ``unclear``: it may have been taken. ``later``: it was not, and may be another time."""

    taken: bool
    unclear: bool
    later: bool
    said: str


def run(context: Context) -> Outcome:
    """Calls, or looks for the callback."""
    wait = context.step.args.get("wait_seconds")
    if wait is None:
        return _tell(context)
    if context.step.progress.get("given_at"):
        return _given(context, timedelta(seconds=wait))
    return _give(context, timedelta(seconds=wait))


def _tell(context: Context) -> Outcome:
    """One try to tell. Telling twice is no harm: the delivery's name is the same."""
    marking.expect_isolated(context)
    context.check_guards(destructive=False)
    tries = int(context.step.progress.get("tries", 0))
    if tries > len(BACK_OFF):
        return Done(f"{_host(context)} was not told")
    context.remember(tries=tries + 1)
    reply = _call(context, until=None)
    if reply.taken:
        return Done(f"{_host(context)} was told")
    if (reply.later or reply.unclear) and tries < len(BACK_OFF):
        return Wait(BACK_OFF[tries], reply.said)
    return Done(f"{_host(context)} was not told: {reply.said}")


def _give(context: Context, wait: timedelta) -> Outcome:
    """The call that gives the node away."""
    marking.expect_isolated(context)
    if not context.cluster.decision_secret:
        return Hold("the cluster has no decision secret, and nobody could prove a callback: set one, then retry")
    context.check_guards(destructive=False)
    tries = int(context.step.progress.get("tries", 0)) + 1
    context.remember(tries=tries, given_at=context.now.isoformat())
    try:
        reply = _call(context, until=context.now + wait)
    except HeldBack:  # before the call
        _remember(context, given_at=None)
        raise
    if reply.taken or reply.unclear:
        return _given(context, wait, reply.said)
    if _called_back(context):
        return _given(context, wait)  # whoever answered no for it, it did take it
    _remember(context, given_at=None)
    if reply.later and tries <= len(BACK_OFF):
        return Wait(BACK_OFF[tries - 1], reply.said)
    return Hold(f"the node could not be given to {_host(context)}: {reply.said}")


def _given(context: Context, wait: timedelta, said: str = "") -> Outcome:
    """While the node is the other system's, the cluster is not even looked at."""
    called_back = _called_back(context)
    if called_back:
        words = f": {called_back['message']}" if called_back.get("message") else ""
        if called_back["outcome"] == "done":
            return Done(f"{_host(context)} gave the node back{words}")
        return Hold(f"{_host(context)} could not mend the node{words}")
    until = datetime.fromisoformat(context.step.progress["given_at"]) + wait
    left = (until - context.now).total_seconds()
    if left <= 0:
        return Hold(f"{_host(context)} did not call back in time")
    doubt = f"; {said}" if said else ""
    return Given(min(left, POLL_SECONDS), f"given to {_host(context)} until {until:%Y-%m-%d %H:%M:%S UTC}{doubt}")


def _called_back(context: Context) -> dict[str, Any]:
    """The callback, by the row as it is now: it may have come while the call was under way."""
    context.step.refresh_from_db(fields=["progress"])
    found: dict[str, Any] = context.step.progress.get("callback") or {}
    return found


def _remember(context: Context, **progress: Any) -> None:
    """As ``context.remember``, without overwriting a callback."""
    with transaction.atomic():
        context.renew()  # a callback takes this row's lock, too
        context.step.refresh_from_db(fields=["progress"])
        context.remember(**progress)


def _call(context: Context, *, until: datetime | None) -> Reply:
    """One signed POST, on record before and after like a write to the cluster."""
    key = agent.key_of(context, "webhook")
    replies: list[Reply] = []

    def call() -> str:
        replies.append(_post(context, key=key, until=until))
        return replies[0].said or "taken"

    context.write("webhook", call, subject=f"host {_host(context)}", data={"delivery": key})
    return replies[0]


def _post(context: Context, *, key: str, until: datetime | None) -> Reply:
    try:
        reply = outgoing.send(
            context.step.args["url"],
            _document(context, key=key, until=until),
            secret=context.cluster.decision_secret,
            seconds=SECONDS,
            headers={DELIVERY: key},
            most=0,
        )
    except outgoing.Silent as silence:
        return Reply(taken=False, unclear=silence.arrived, later=not silence.arrived, said=str(silence))
    if 200 <= reply.status < 300:
        return Reply(taken=True, unclear=False, later=False, said="")
    later = reply.status in LATER
    said = f"{_host(context)} answers {reply.status}"
    return Reply(taken=False, unclear=reply.status >= 500 and not later, later=later, said=said)


def _document(context: Context, *, key: str, until: datetime | None) -> dict[str, Any]:
    """What the other system is told."""
    rescue = context.rescue
    back = f"{settings.KCOVER_PUBLIC_URL}/api/v1/rescues/{rescue.pk}/callback" if until else None
    return {
        "version": VERSION,
        "delivery": key,
        "sent_at": context.now.isoformat(),
        "cluster": context.cluster.name,
        "node": context.node.name,
        "rescue": rescue.pk,
        "code": rescue.code,
        "rule": rescue.rule,
        "plan_hash": rescue.plan_hash,
        "step": context.step.index,
        "steps": _steps(context),
        "callback": back,
        "until": until.isoformat() if until else None,
    }


def _steps(context: Context) -> Sequence[dict[str, Any]]:
    """The plan and how far it is; other systems' addresses may hold secrets and stay out."""
    return [
        {"index": one.index, "name": one.name, "state": one.state, "because": one.because}
        for one in context.rescue.steps.order_by("index")
    ]


def _host(context: Context) -> str:
    return urlsplit(context.step.args["url"]).hostname or ""
