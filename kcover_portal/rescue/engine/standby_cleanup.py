"""Give back standbys that are reserved for rescues that no longer need them, with the usual guards and records."""

import logging
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from kcover import audit, reasons
from kcover_portal.config import log_context
from kcover_portal.fleet import queries as fleet
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.queries import standbys
from kcover_portal.rescue.step import call_answers, errors, node_lock
from kcover_portal.rescue.step.marks import standby_marks
from kcover_portal.runtime.services import leases

log = logging.getLogger(__name__)

LEASE_TIME = timedelta(seconds=60)  # kept after a failure, so that nothing is tried again until it expires
NAME = "standbys"


def tidy(*, clock: Callable[[], datetime]) -> int:
    """Gives back standbys that are not needed any more, one worker at a time. Returns how many.

    A rescue that ends before its standby was put into service (cancelled, or healed first) leaves a reservation behind.
    """
    holder, now = str(uuid.uuid4()), clock()
    rows = list(standbys.left_over())
    if not rows or not leases.acquire(NAME, holder=holder, until=now + LEASE_TIME, now=now):
        return 0
    given_back = []
    for row in rows:
        with log_context.bound(cluster=row.spare.cluster.name, node=row.spare.name):
            given_back.append(_give_back(row, clock=clock))
    if False not in given_back:
        leases.release(NAME, holder=holder, now=clock())
    return given_back.count(True)


def _give_back(assignment: Assignment, *, clock: Callable[[], datetime]) -> bool | None:
    """Reverts the standby in one patch, and closes its row.

    Returns False if the cluster or a guard does not allow it now, None if another call about the standby is under way.
    """
    spare, because = assignment.spare, reasons.of("standby_unused", rescue=str(assignment.rescue_id))
    if fleet.mode_now(spare.cluster)[0] in fleet.MODES_WITHOUT_WRITES:
        return False

    call: dict[str, Any] = {"call": audit.Call.GIVE_BACK, "target": f"node {spare.name}", "node": spare.name}

    def note(act: audit.ClusterCall) -> None:
        ledger.record(spare.cluster.name, act, actor="system", now=clock())

    back = standby_marks.given_back(assignment)
    try:
        with node_lock.acquire(spare, clock=clock) as lock:
            wanted = audit.StandbyChange(assignment=assignment.pk, because=because)
            note(audit.ClusterCallBegun(wanted=wanted, **call))
            try:
                kube = fleet.connect(spare.cluster)
                changed = kube.apply_node(spare.name, back, expect=lambda _node: lock.renew(now=clock()))
            except (port.KubeError, node_lock.Busy) as error:
                note(audit.ClusterCallFailed(because=errors.reason_of(error), held_back=False, **call))
                raise
            note(audit.ClusterCallDone(answer=call_answers.of(changed), **call))
    except port.NotFound:
        pass  # there is nothing to give back
    except node_lock.Busy as other:
        log.info("%s: standby %s is not given back yet: %s", spare.cluster.name, spare.name, other)
        return None
    except port.KubeError as error:
        log.warning("%s: standby %s is not given back yet: %s", spare.cluster.name, spare.name, error)
        return False
    standby_marks.note_given_back(assignment, because=because, now=clock())
    return True
