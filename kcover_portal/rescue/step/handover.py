"""Hand a node to another system by one signed POST, and wait for its callback.

The other system has the node from the time of the call. The portal does nothing on the node until the callback, until
an operator takes it over, or until the wait ends and a person is asked (invariant 10). The call is stored before it is
made. A call with an unknown result counts as made and is not repeated: waiting in vain is better than a second repair
order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from kcover import audit, reasons
from kcover.actions import webhook as core
from kcover_portal.encryption import SecretUnreadable
from kcover_portal.lib import outgoing
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.rescue.step.context import Context, HeldBack
from kcover_portal.rescue.step.drivers import agent
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, HandedOver, Hold, Outcome, Wait

CALL_TIMEOUT_SECONDS = 15.0  # for one call; the lease is longer
BACKOFF_SECONDS = (1.0, 5.0, 15.0, 60.0)  # between attempts: five in all
POLL_SECONDS = 30.0  # covers a callback that arrives during the call
LATER = (408, 425, 429, 503)  # not accepted now; another attempt may succeed
DELIVERY = "X-Kcover-Delivery"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The result of one call. ``unclear``: it may have been accepted. ``later``: not accepted, but may be later."""

    taken: bool
    unclear: bool
    later: bool
    reason: reasons.Reason


def hand_over(context: Context, wait: timedelta) -> Outcome:
    """Makes the call that hands the node over."""
    node_marks.expect_isolated(context)
    try:
        if not context.cluster.decision_secret:
            return Hold(reasons.of("no_callback_secret"))
    except SecretUnreadable as unreadable:
        return Hold(unreadable.reason)
    context.check_guards(destructive=False)
    recheck_guards.storm(context.rescue, now=context.now)
    tries = context.step.progress_as(core.Progress).tries + 1
    context.remember(tries=tries, given_at=context.now)
    try:
        reply = call(context, until=context.now + wait)
    except HeldBack:  # before the call
        _remember(context, given_at=None)
        raise
    if reply.taken or reply.unclear:
        return handed_over(context, wait, None if reply.taken else reply.reason)
    if _callback(context):
        return handed_over(context, wait)  # the callback proves that the system has the node
    _remember(context, given_at=None)
    if reply.later and tries <= len(BACKOFF_SECONDS):
        return Wait(BACKOFF_SECONDS[tries - 1], reply.reason)
    return Hold(named("handover_failed", context, why=reply.reason))


def handed_over(context: Context, wait: timedelta, doubt: reasons.Reason | None = None) -> Outcome:
    """The outcome while the other system has the node; the cluster is not even read."""
    called_back = _callback(context)
    if called_back:
        done, message = called_back["outcome"] == "done", called_back.get("message", "")
        code, also = "handed_back" if done else "not_repaired", {"message": message} if message else {}
        because = named(f"{code}_because" if message else code, context, **also)
        return Done(because) if done else Hold(because)
    until = (context.step.progress_as(core.Progress).given_at or context.now) + wait
    left = (until - context.now).total_seconds()
    if left <= 0:
        return Hold(named("callback_timeout", context))
    given = named("handed_over", context, until=reasons.moment(until))
    return HandedOver(min(left, POLL_SECONDS), reasons.both(given, doubt))


def _callback(context: Context) -> Mapping[str, str]:
    """The callback, read again from the row, because it may have arrived during the call."""
    context.step.refresh_from_db(fields=["progress"])
    return context.step.progress_as(core.Progress).callback or {}


def _remember(context: Context, **progress: Any) -> None:
    """``context.remember`` without overwriting a callback."""
    with transaction.atomic():
        context.renew()  # a callback takes this row's lock as well
        context.step.refresh_from_db(fields=["progress"])
        context.remember(**progress)


def call(context: Context, *, until: datetime | None) -> Reply:
    """One signed POST, recorded before and after like a write to the cluster. ``until``: when the handover ends."""
    key = agent.key_of(context.step)
    replies: list[Reply] = []

    def post() -> audit.WebhookAnswer:
        replies.append(_post(context, key=key, until=until))
        return audit.WebhookAnswer(taken=replies[0].taken, because=replies[0].reason)

    delivery = audit.WebhookDelivery(delivery=key)
    context.write(audit.Call.WEBHOOK, post, target=f"host {_host(context)}", wanted=delivery)
    return replies[0]


def _post(context: Context, *, key: str, until: datetime | None) -> Reply:
    try:
        reply = outgoing.send(
            context.step.args_as(core.Args).url,
            _document(context, key=key, until=until),
            secret=context.cluster.decision_secret,
            seconds=CALL_TIMEOUT_SECONDS,
            headers={DELIVERY: key},
            most=0,
        )
    except SecretUnreadable as unreadable:
        return Reply(taken=False, unclear=False, later=False, reason=unreadable.reason)
    except outgoing.NoResponse as silence:
        failed = reasons.of("host_unreachable", error=silence.reason)
        return Reply(taken=False, unclear=silence.arrived, later=not silence.arrived, reason=failed)
    answered = named("host_answered", context, status=str(reply.status))
    if 200 <= reply.status < 300:
        return Reply(taken=True, unclear=False, later=False, reason=answered)
    later = reply.status in LATER
    return Reply(taken=False, unclear=reply.status >= 500 and not later, later=later, reason=answered)


def _document(context: Context, *, key: str, until: datetime | None) -> dict[str, Any]:
    """The body of the call."""
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
    """The plan and its progress. Arguments stay out: the addresses of other systems may hold secrets."""
    return [
        {"index": step.index, "name": step.name, "state": step.state, "because": reasons.text(step.because)}
        for step in context.steps
    ]


def named(code: str, context: Context, **params: reasons.Value) -> reasons.Reason:
    """The reason with the host of the other system."""
    return reasons.of(code, host=_host(context), **params)


def _host(context: Context) -> str:
    return urlsplit(context.step.args_as(core.Args).url).hostname or ""
