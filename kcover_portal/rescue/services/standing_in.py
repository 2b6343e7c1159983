"""Promises of standbys that no rescue will keep: given back, outside any rescue, with the same guards and records."""

import logging
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet import services as fleet_services
from kcover_portal.kube import port
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.actions import handing_over, turns
from kcover_portal.rescue.actions.context import brief
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.queries import standbys

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)  # kept where something failed: until it runs out nothing is tried again
NAME = "standbys"


def tidy(*, clock: Callable[[], datetime]) -> int:
    """Gives back what is left over, by one worker at a time; returns how many.

    A rescue that ends before its standby was put into service (cancelled, or healed first) leaves a promise behind.
    """
    holder, now = str(uuid.uuid4()), clock()
    rows = list(standbys.left_over())
    if not rows or not fleet_services.lead(NAME, holder=holder, until=now + LEASE, now=now):
        return 0
    given_back = [_give_back(row, clock=clock) for row in rows]
    if False not in given_back:
        fleet_services.resign(NAME, holder=holder, now=clock())
    return given_back.count(True)


def _give_back(assignment: Assignment, *, clock: Callable[[], datetime]) -> bool | None:
    """One patch on the spare, and its row; False where the cluster, or a guard, does not let it happen now, and None
    where somebody is at work on the spare, which takes a moment."""
    spare, because = assignment.spare, f"rescue {assignment.rescue_id} ended without it"
    if fleet.mode_now(spare.cluster)[0] in fleet.SILENT:
        return False

    def note(verb: str, **data: object) -> None:
        ledger.write(
            spare.cluster.name,
            actor="system",
            verb=f"give_back.{verb}",
            subject=f"node {spare.name}",
            node=spare.name,
            now=clock(),
            data={"assignment": assignment.pk, **data},
        )

    back = handing_over.given_back(assignment)
    try:
        with turns.taken(spare, clock=clock) as turn:
            note("begun", because=because)
            try:
                kube = fleet.connect(spare.cluster)
                changed = kube.apply_node(spare.name, back, expect=lambda _node: turn.stay(now=clock()))
            except (port.KubeError, turns.Busy) as error:
                note("failed", error=str(error), kind=type(error).__name__)
                raise
            note("done", **brief(changed))
    except port.NotFound:
        pass  # there is nothing to give back
    except turns.Busy as other:
        log.info("%s: standby %s is not given back yet: %s", spare.cluster.name, spare.name, other)
        return None
    except port.KubeError as error:
        log.warning("%s: standby %s is not given back yet: %s", spare.cluster.name, spare.name, error)
        return False
    handing_over.note_given_back(assignment, because=because, now=clock())
    return True
