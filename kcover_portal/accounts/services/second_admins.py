"""Changes that wait for a second admin, with what accounts know about both: the doors ask nothing about people."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Verb
from kcover_portal.accounts.queries import Principal
from kcover_portal.fleet.models import Cluster, PendingChange
from kcover_portal.fleet.services import pending_changes


def request(
    cluster: Cluster | None, kind: str, changes: Mapping[str, Any], *, who: Principal, reason: str, now: datetime
) -> PendingChange:
    """Stores a change, see ``pending_changes.request``, with everybody who counts as the requester."""
    actor, requesters = queries.actor(who), queries.counted_as(who, at=now)
    return pending_changes.request(cluster, kind, changes, actor=actor, requesters=requesters, reason=reason, now=now)


def confirm(change: PendingChange, *, who: Principal, now: datetime) -> PendingChange:
    """Carries out the change in the name of the admin. Raises ChangeRefused, see ``pending_changes.confirm``."""
    return pending_changes.confirm(
        change,
        actor=queries.actor(who),
        names=queries.counted_as(who, at=now),
        requester_is_gone=queries.has_lost(change.requested_by, Verb.CONFIGURE, change.cluster),
        now=now,
    )
