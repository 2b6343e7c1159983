"""Reading policies: what is in force, as rows and as rules."""

import logging

from django.db.models import F, QuerySet
from django.db.models.functions import MD5

from kcover.policy import document, matching
from kcover_portal.policies.models import Policy, Revision

log = logging.getLogger(__name__)

_Key = tuple[tuple[int, int, str], ...]
_cached: tuple[_Key, tuple[matching.Candidate, ...]] = ((), ())


def policies() -> QuerySet[Policy]:
    """The policies in force, by name."""
    return Policy.objects.filter(revision__gt=0).order_by("name")


def in_force() -> QuerySet[Revision]:
    """The revision in force of every policy, by the policy's name."""
    rows = Revision.objects.filter(policy__revision__gt=0, number=F("policy__revision"))
    return rows.select_related("policy").order_by("policy__name")


def revision(policy: Policy) -> Revision | None:
    """The policy's revision in force, or None when it was deleted."""
    return policy.revisions.filter(number=policy.revision).first()


def candidates() -> tuple[matching.Candidate, ...]:
    """Every rule in force, as the kernel matches it.

    One query tells whether the rules kept from last time still hold; only then are they read again. A revision that
    this version cannot read (made by a newer one) is left out and logged: it must not stop every other policy.
    """
    global _cached
    key: _Key = tuple(in_force().annotate(sum=MD5("text")).values_list("pk", "policy_id", "sum"))
    if key != _cached[0]:
        _cached = (key, tuple(_read()))
    return _cached[1]


def _read() -> list[matching.Candidate]:
    read = []
    for row in in_force():
        try:
            rules = document.read(row.document).rules
        except document.PolicyInvalid as error:
            log.error("policy %s revision %s cannot be read and is left out: %s", row.policy.name, row.number, error)
            continue
        read += [
            matching.Candidate(policy=row.policy.name, revision=row.number, created_at=row.policy.created_at, rule=rule)
            for rule in rules
        ]
    return read
