"""The people of a request for approval: who requested it, how many take part, and whose approval must not count."""

from datetime import datetime

from kcover import actors
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.rescue.models import Rescue


def is_requester(rescue: Rescue, actor: str) -> bool:
    """Returns whether the person requested the rescue, or counts as the requester."""
    return actor in (rescue.requested_by, *rescue.requesters)


def needs_two_people(rescue: Rescue) -> bool:
    """Returns whether two people take part: two must approve, or one person must approve what another requested."""
    return rescue.approvers > 1 or any(actors.is_user(name) for name in rescue.requesters)


def who_may_not_any_more(rescue: Rescue, *, since: datetime) -> str | None:
    """Returns the requester, or somebody who approved the request since then, who has lost the role or the account."""
    given = rescue.approvals.filter(step=rescue.gate or 0, plan_hash=rescue.plan_hash, at__gte=since, approved=True)
    people = [(by, Verb.APPROVE) for by in given.order_by("pk").values_list("by", flat=True)]
    people += [(by, Verb.REPAIR) for by in (rescue.requested_by, *rescue.requesters[:1])]
    return next((by for by, verb in people if accounts.has_lost(by, verb, rescue.node)), None)
