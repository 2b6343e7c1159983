"""Stores results that arrive after their command expired or was withdrawn.

Nothing waits for them any more. But the agent may have executed a command that it did not answer in time, or may have
fetched it before it was withdrawn.
"""

import uuid
from datetime import datetime

from kcover import audit, reasons
from kcover.faults import fault
from kcover_portal.fleet.models import Command, Node
from kcover_portal.ledger import services as ledger


def note(node: Node, command: uuid.UUID, result: fault.CommandResult, *, now: datetime) -> bool:
    """Adds a late result to a closed command of this node; returns whether it did. Only the first one counts.

    If a rescue requested the command, the result is also in the audit log. Runs in the caller's transaction, under
    ``ledger.last``.
    """
    rows = Command.objects.filter(pk=command, node=node, state=Command.State.EXPIRED, message="", output={})
    row = rows.first()
    if row is None:
        return False
    answer, withdrawn = reasons.state(result.status, result.message[:1000]), reasons.kept(row.because)
    late = reasons.of("answered_late", answer=answer)
    if withdrawn is not None:
        late = reasons.of("answered_after_withdrawal", withdrawn=withdrawn, answer=answer)
    if not rows.update(because=late.to_json(), output={**result.output, "late": result.status}):
        return False
    if row.requester_kind == Command.Requester.RESCUE:
        assert row.requester_id is not None
        entry = audit.CommandAnsweredLate(
            rescue=row.requester_id,
            node=node.name,
            command=str(row.pk),
            kind=row.kind,
            key=row.key,
            status=result.status,
            message=result.message[:1000],
            withdrawn=withdrawn is not None,
        )
        ledger.record(node.cluster.name, entry, actor=f"agent:{node.name}"[: ledger.MAX_ACTOR_CHARACTERS], now=now)
    return True
