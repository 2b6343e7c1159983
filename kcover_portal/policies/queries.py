"""Reading policies: what is in force, as rows and as rules."""

import logging
from collections.abc import Iterator, Mapping

from django.conf import settings
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import MD5
from django.utils.module_loading import import_string

from kcover import plan
from kcover.policy import document, matching
from kcover_portal.policies.models import Policy, Revision

log = logging.getLogger(__name__)

_Key = tuple[tuple[int, int, str], ...]
_cached: tuple[_Key, tuple[matching.Candidate, ...]] = ((), ())

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


def steps() -> frozenset[str]:
    """The names of the steps that this installation can run.

    The engine stands above the policies, so its table is named in the settings and not imported.
    """
    return frozenset(import_string(settings.KCOVER_STEPS))


def channels() -> frozenset[str]:
    """The names of the channels that a rule's ``notify`` may use; like the engine, they stand above the policies."""
    return frozenset(import_string(settings.KCOVER_CHANNELS)())


def candidates() -> tuple[matching.Candidate, ...]:
    """Every rule in force, as the kernel matches it.

    One query tells whether the rules kept from last time still hold; only then are they read again. A revision that
    this version cannot read or carry out (made by a newer one) is left out and logged: it must not stop every other
    policy.
    """
    global _cached
    key: _Key = tuple(in_force().annotate(sum=MD5("text")).values_list("pk", "policy_id", "sum"))
    if key != _cached[0]:
        _cached = (key, tuple(_read()))
    return _cached[1]


def _read() -> Iterator[matching.Candidate]:
    able = steps()
    for row in in_force():
        policy = _understood(row)
        if not isinstance(policy, document.Policy):
            continue
        for rule in policy.rules:
            if beyond := plan.beyond(rule, steps=able):
                log.error("policy %s rule %s is left out: %s", policy.name, rule.index + 1, beyond[0].message)
                continue
            yield matching.Candidate(
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
        log.error("policy %s revision %s cannot be read and is left out: %s", row.policy.name, row.number, error)
        return None


def effective(
    *,
    kind: str,
    code: str,
    labels: Mapping[str, str],
    cause: int | None = None,
    fatal: bool | None = None,
    seen_within: Mapping[int, int] | None = None,
) -> tuple[matching.Candidate | None, tuple[matching.Tried, ...]]:
    """The rule in force that such a fault on a node with these labels would meet, and every rule asked before it."""
    return matching.match(
        candidates(), kind=kind, code=code, cause=cause, labels=labels, fatal=fatal, seen_within=seen_within
    )
