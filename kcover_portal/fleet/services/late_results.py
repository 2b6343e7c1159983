"""Answers that come too late: nothing waits for them any more, and what agents say became of it is kept all the same.

A command that nobody answered in time may have been obeyed, and one that was withdrawn may have been fetched by then.
"""

import uuid
from datetime import datetime

from django.db.models import Q

from kcover import audit
from kcover.faults import fault
from kcover_portal.fleet.models import Command, Node
from kcover_portal.ledger import services as ledger

WITHDRAWN = "withdrawn: "  # how the message of a command begins that was taken off the offer


def note(node: Node, command: uuid.UUID, result: fault.CommandResult, *, now: datetime) -> None:
    """Says with a command of this node that was closed without an answer what its agent answered; the first time only.

    What a rescue had asked for is in its ledger, too. Part of the caller's transaction, under ``ledger.last``.
    """
    rows = Command.objects.filter(
        Q(message="") | Q(message__startswith=WITHDRAWN), pk=command, node=node, state=Command.State.EXPIRED, output={}
    )
    row = rows.first()
    if row is None:
        return
    before = f"{row.message}; the agent had it already" if row.message else "no answer in time; it came later"
    said = f"{before}: {result.status} {result.message}".strip()
    if not rows.update(message=said[:1000], output={**result.output, "late": result.status}):
        return
    if row.requester_kind == Command.Requester.RESCUE:
        assert row.requester_id is not None
        act = audit.CommandAnsweredLate(
            rescue=row.requester_id,
            node=node.name,
            command=str(row.pk),
            kind=row.kind,
            key=row.key,
            status=result.status,
            message=result.message[:1000],
            withdrawn=bool(row.message),
        )
        ledger.record(node.cluster.name, act, actor=f"agent:{node.name}"[: ledger.MAX_ACTOR], now=now)
