"""Reading policies: what is in force, as rows and as rules."""

import logging
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import MD5
from django.utils.module_loading import import_string

from kcover.decisions import match
from kcover.policy import document
from kcover_portal.policies.models import Policy, Revision

log = logging.getLogger(__name__)

_Key = tuple[tuple[int, int, str], ...]
_cached: tuple[_Key, tuple[match.Candidate, ...]] = ((), ())

RESCUE, STANDBY = Policy.Kind.RESCUE.value, Policy.Kind.STANDBY.value


def policies(kind: str = RESCUE) -> QuerySet[Policy]:
    """The policies of a kind that are in force, by name."""
    return Policy.objects.filter(kind=kind, revision__gt=0).order_by("name")


def in_force(kind: str = RESCUE) -> QuerySet[Revision]:
    """The revision in force of every policy of a kind, by the policy's name."""
    rows = Revision.objects.filter(policy__kind=kind, policy__revision__gt=0, number=F("policy__revision"))
    return rows.select_related("policy").order_by("policy__name")


def archived(kind: str = RESCUE) -> QuerySet[Revision]:
    """The newest revision of every policy of a kind that was taken out of force, by the policy's name."""
    newest = Revision.objects.filter(policy=OuterRef("policy")).order_by("-number").values("number")[:1]
    rows = Revision.objects.filter(policy__kind=kind, policy__revision=0, number=Subquery(newest))
    return rows.select_related("policy").order_by("policy__name")


def revision(policy: Policy) -> Revision | None:
    """The policy's revision in force, or None when it was taken out of force."""
    return policy.revisions.filter(number=policy.revision).first()


def channels() -> frozenset[str]:
    """The names of the channels that a rule's ``notify`` may use.

    The app that keeps them is above the policies, so its function is named in the settings and not imported.
    """
    return frozenset(import_string(settings.KCOVER_CHANNELS)())


def candidates() -> tuple[match.Candidate, ...]:
    """Every rule in force, as the kernel matches it.

    One query tells whether the rules kept from last time still hold; only then are they read again. A revision that
    this version cannot read (made by a newer one) is left out and logged: it must not stop every other
    policy.
    """
    global _cached
    key: _Key = tuple(in_force().annotate(sum=MD5("text")).values_list("pk", "policy_id", "sum"))
    if key != _cached[0]:
        _cached = (key, tuple(_read()))
    return _cached[1]


def _read() -> Iterator[match.Candidate]:
    for row in in_force():
        policy = _understood(row)
        if not isinstance(policy, document.Policy):
            continue
        for rule in policy.rules:
            yield match.Candidate(
                policy=row.policy.name, revision=row.number, created_at=row.policy.created_at, rule=rule
            )


def standby_rules() -> tuple[document.StandbyRule, ...]:
    """The rules of the WarmStandbyPolicy in force, in its order; none where there is no such policy."""
    for row in in_force(STANDBY):
        policy = _understood(row)
        if isinstance(policy, document.StandbyPolicy):
            return policy.matches
    return ()


def _understood(row: Revision) -> document.Policy | document.StandbyPolicy | None:
    try:
        return document.read(row.document)
    except document.PolicyInvalid as error:
        log.error("policy %s revision %s cannot be read and is ignored: %s", row.policy.name, row.number, error)
        return None


def effective(
    *,
    kind: str,
    code: str,
    labels: Mapping[str, str],
    cause: int | None = None,
    fatal: bool | None = None,
    seen_within: Mapping[int, int] | None = None,
) -> tuple[match.Candidate | None, tuple[match.Tried, ...]]:
    """The active rule that matches such a fault on a node with these labels, and every rule evaluated before it."""
    return match.match(
        candidates(), kind=kind, code=code, cause=cause, labels=labels, fatal=fatal, seen_within=seen_within
    )
