"""Publishes, rolls back and disables policies. Revisions are immutable, and a text is applied completely or not at all.

A new text becomes a revision only if its content differs from the active revision.
"""

from datetime import datetime
from http import HTTPStatus

from django.db import IntegrityError, transaction
from django.db.models import Max, Q

from kcover import audit, reasons
from kcover.reasons import Reason
from kcover.values import masked_addresses
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import services as ledger
from kcover_portal.lib import doorbell
from kcover_portal.lib.errors import Refused
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy, Revision
from kcover_portal.policies.services.validation import InvalidPolicies, ParsedPolicy, parse
from kcover_portal.policies.services.yaml_reader import Problem

Key = tuple[str, str]  # kind and name


class Conflict(Refused):
    """The active revision is not the one that the author edited."""

    status = HTTPStatus.PRECONDITION_FAILED


class NotFound(Refused, LookupError):
    """The policy or revision does not exist."""

    status = HTTPStatus.NOT_FOUND


def apply(
    text: str | bytes,
    *,
    author: str,
    reason: str,
    because: Reason | None = None,
    now: datetime,
    name: str | None = None,
    kind: str = queries.RESCUE,
    expected: int | None = None,
    of: Cluster | None = None,
) -> list[Policy]:
    """Publishes all policies of the text, or none; returns them in the text's order, changed or not.

    ``reason``: a person's own words; ``because``: the portal's reason. ``of``: the cluster that keeps them as objects;
    None for the portal's own policies. ``name``: the text must contain only this policy (of this ``kind``).
    ``expected``: the number that the active revision must have (0: not active). Without one, the portal's own policy
    takes the place of an object's.
    Raises InvalidPolicies, or Conflict if the active revision differs.
    """
    validated = parse(text)
    if validated.problems:
        raise InvalidPolicies(validated.problems)
    keys = [policy.key for policy in validated.policies]
    if name is not None and keys != [(kind, name)]:
        found = ", ".join(f"{other} {policy}" if other != kind else policy for other, policy in keys)
        others = reasons.of("other_policies", policy=name, found=found)
        raise InvalidPolicies((Problem(1, 1, "metadata.name", others),))
    return put(
        validated.policies,
        author=author,
        reason=reason,
        because=because,
        now=now,
        expected=expected,
        of=of,
        takes_over=of is None and not expected,
    )


def rollback(
    name: str,
    number: int,
    *,
    author: str,
    reason: str,
    now: datetime,
    kind: str = queries.RESCUE,
    expected: int | None = None,
) -> Policy:
    """Publishes an earlier revision's text as a new revision, also for a disabled policy.

    Raises NotFound, Conflict, or InvalidPolicies if the reason is missing or this version no longer supports the text.
    """
    old = Revision.objects.filter(policy__kind=kind, policy__name=name, number=number).select_related("policy").first()
    if old is None:
        raise NotFound(reasons.of("revision_unknown", policy=name, revision=number))
    if not reason.strip():
        raise InvalidPolicies((Problem(1, 1, "reason", reasons.of("rollback_reason")),))
    if old.policy.revision == number:
        raise Conflict(reasons.of("revision_already_active", policy=name, revision=number))
    validated = parse(old.text)
    if validated.problems:
        raise InvalidPolicies(validated.problems)
    back = reasons.of("policy_rolled_back", revision=number)
    return put(validated.policies, author=author, reason=reason, because=back, now=now, expected=expected, always=True)[
        0
    ]


def delete(
    name: str,
    *,
    author: str,
    reason: str = "",
    because: Reason | None = None,
    now: datetime,
    kind: str = queries.RESCUE,
    expected: int | None = None,
    of: Cluster | None = None,
) -> None:
    """Disables a policy. ``of``: the cluster that keeps it as an object; None for one of the portal's own.

    Its revisions are kept, and rescues in progress continue with their copied plans. Raises NotFound or Conflict.
    """
    with transaction.atomic():
        row = Policy.objects.select_for_update().filter(kind=kind, name=name, revision__gt=0).first()
        if row is None:
            raise NotFound(reasons.of("policy_unknown", policy=name))
        _own(row, of)
        if expected is not None:
            _expect(row, expected)
        words = reasons.of("quoted_text", text=reason[:500]) if reason else None
        _disable(row, author=author, reason=reason, because=because, why=reasons.both(words, because), now=now)


def _disable(row: Policy, *, author: str, reason: str = "", because: Reason | None, why: Reason, now: datetime) -> None:
    previous, row.revision = row.revision, 0
    row.archived_at, row.archived_by = now, author
    row.archived_because = why.to_json() if why.parts else {}
    row.save(update_fields=["revision", "archived_at", "archived_by", "archived_because"])
    entry = audit.PolicyDeleted(
        policy=row.name, standby=_is_standby(row), revision=previous, reason=reason, because=because
    )
    ledger.record("", entry, actor=author, now=now)
    doorbell.publish("policy", row.pk)
    doorbell.ring("rescue.sweep")


def put(
    parsed: tuple[ParsedPolicy, ...],
    *,
    author: str,
    reason: str = "",
    because: Reason | None,
    now: datetime,
    expected: int | None = None,
    always: bool = False,
    of: Cluster | None = None,
    takes_over: bool = False,
) -> list[Policy]:
    """Publishes policies that were parsed without problems; see ``apply``.

    ``always``: also if nothing differs. ``takes_over``: in the place of policies that clusters keep as objects.
    """
    keys = [policy.key for policy in parsed]
    try:
        with transaction.atomic():
            if takes_over:
                _take_over(keys, author=author, now=now)
            rows = _locked(keys, now=now, of=of)
            if expected is not None:
                _expect(rows[keys[0]], expected)
            for policy in parsed:
                _revise(rows[policy.key], policy, author=author, reason=reason, because=because, now=now, always=always)
    except IntegrityError as error:
        raise Conflict(reasons.of("standby_policy_published")) from error
    return [rows[key] for key in keys]


def _take_over(keys: list[Key], *, author: str, now: datetime) -> None:
    """Disables objects' policies that have the names of new policies of the portal, or the place of its standby policy.

    Whoever may create objects could keep both from the portal. Their objects are told at the next look.
    """
    wanted = Q(kind=queries.STANDBY) if any(kind == queries.STANDBY for kind, _ in keys) else Q()
    for kind, name in keys:
        wanted |= Q(kind=kind, name=name)
    objects = Policy.objects.filter(wanted, revision__gt=0, cluster__isnull=False)
    for row in objects.select_for_update(of=("self",)).select_related("cluster").order_by("kind", "name"):
        cluster = row.cluster.name if row.cluster is not None else ""
        because = reasons.of("policy_taken_over", policy=row.name, cluster=cluster)
        _disable(row, author=author, because=because, why=because, now=now)


def _locked(keys: list[Key], *, now: datetime, of: Cluster | None) -> dict[Key, Policy]:
    """Returns the policies' rows, created if missing, and locked in one order to avoid deadlocks between authors.

    Raises Conflict if one of them belongs to somebody else.
    """
    for kind, name in sorted(keys):
        Policy.objects.get_or_create(kind=kind, name=name, defaults={"created_at": now, "cluster": of})
    names = [name for _, name in keys]
    rows = Policy.objects.select_for_update(of=("self",)).filter(name__in=names).order_by("kind", "name")
    found = {(row.kind, row.name): row for row in rows}
    for key in keys:
        row = found[key]
        if not row.revision and row.cluster_id != (
            of.pk if of is not None else None
        ):  # it is deleted: the name is free
            row.cluster = of
            row.save(update_fields=["cluster"])
        _own(row, of)
    return found


def _own(row: Policy, of: Cluster | None) -> None:
    """Raises Conflict if the policy belongs to a cluster and the portal would change it, or the other way round."""
    if row.cluster_id == (of.pk if of is not None else None):
        return
    if row.cluster is not None:
        raise Conflict(reasons.of("policy_is_object", policy=row.name, cluster=row.cluster.name))
    raise Conflict(reasons.of("policy_object_name", policy=row.name))


def _expect(row: Policy, expected: int) -> None:
    if row.revision != expected:
        edited = reasons.of("revision_named", revision=expected) if expected else reasons.of("no_revision_yet")
        active = reasons.of("revision_is_active", revision=row.revision) if row.revision else None
        present = active or reasons.of("policy_is_inactive")
        raise Conflict(reasons.of("revision_changed", policy=row.name, edited=edited, present=present))


def _revise(
    row: Policy,
    parsed: ParsedPolicy,
    *,
    author: str,
    reason: str,
    because: Reason | None,
    now: datetime,
    always: bool,
) -> None:
    """Adds a revision and activates it; unless ``always``, only if its content differs."""
    current = row.revisions.filter(number=row.revision).first()
    if current is not None and current.document == parsed.document and not always:
        return
    newest = row.revisions.aggregate(newest=Max("number"))["newest"] or 0
    row.revisions.create(
        number=newest + 1,
        text=parsed.text,
        document=parsed.document,
        author=author,
        reason=reason[:500],
        because=because.to_json() if because else {},
        at=now,
    )
    row.revision, row.archived_at, row.archived_by, row.archived_because = newest + 1, None, "", {}
    row.save(update_fields=["revision", "archived_at", "archived_by", "archived_because"])
    entry = audit.PolicyApplied(
        policy=row.name,
        standby=_is_standby(row),
        revision=row.revision,
        reason=reason,
        because=because,
        document=masked_addresses.mask(parsed.document),
    )
    ledger.record("", entry, actor=author, now=now)
    doorbell.publish("policy", row.pk)
    doorbell.ring("rescue.sweep")


def _is_standby(row: Policy) -> bool:
    return bool(row.kind != queries.RESCUE)
