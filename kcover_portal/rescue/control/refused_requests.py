"""Record requests that were refused: who requested what for which node, and why it was refused.

A repeated request with the same answer adds no entry for a while, so that a program that repeats a request all day does
not fill the audit log.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from kcover import audit
from kcover_portal.fleet.models import Node
from kcover_portal.ledger import queries as ledger_queries, services as ledger
from kcover_portal.rescue.lifecycle import create

REPEAT_AFTER = timedelta(minutes=10)  # the same request of the same requester with the same answer
ENTRIES_SEARCHED = 200  # of the node, for an earlier refusal
SYSTEM = "system"  # the portal's own attempts are not requests


@contextlib.contextmanager
def on_record(
    node: Node,
    *,
    actor: str,
    asked: Sequence[str],
    now: datetime,
    reason: str = "",
    override: Sequence[str] = (),
    xid: int | None = None,
) -> Iterator[None]:
    """Records a RescueRefused that is raised inside and re-raises it. Wrap it around the transaction of the request.

    ``asked``: the names of the steps. ``reason``, ``override``, ``xid``: other facts of the request.
    """
    try:
        yield
    except create.RescueRefused as refusal:
        if actor != SYSTEM:
            act = audit.RequestRefused(
                node=node.name,
                requested=tuple(asked),
                because=refusal.reason,
                reason=reason,
                override=tuple(override),
                xid=xid,
            )
            _note(node, act, actor=actor, now=now)
        raise


def _note(node: Node, act: audit.RequestRefused, *, actor: str, now: datetime) -> None:
    with transaction.atomic():
        # If two run concurrently, the second sees the first one's entry.
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)
        if not _is_recorded(node, act, actor=actor, now=now):
            ledger.record(node.cluster.name, act, actor=actor, now=now)


def _is_recorded(node: Node, act: audit.RequestRefused, *, actor: str, now: datetime) -> bool:
    """Returns whether the same request of the same actor was refused for the same reason a moment ago."""
    for entry in ledger_queries.timeline(node.cluster.name, node=node.name)[:ENTRIES_SEARCHED]:
        if (entry.verb, entry.actor) != (act.verb, actor) or now - entry.at >= REPEAT_AFTER:
            continue
        before = audit.RequestRefused.of_entry(entry)
        if (before.requested, before.because) == (act.requested, act.because):
            return True
    return False
