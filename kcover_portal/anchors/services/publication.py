"""Publishes signed heads, and pauses automation if the database lacks a head that an anchor has."""

import logging
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import transaction

from kcover import audit, reasons
from kcover_portal.anchors import queries, senders, signed_heads
from kcover_portal.anchors.models import Divergence, Publication
from kcover_portal.anchors.services import lease_publication
from kcover_portal.anchors.signed_heads import SignedHeads
from kcover_portal.fleet import queries as fleet, services as fleet_services
from kcover_portal.incidents import services as incidents
from kcover_portal.ledger import services as ledger, signatures

log = logging.getLogger(__name__)

KEY = "key"  # the place of Publication whose problem is an unusable signing key
VANISHED = "anchor file"  # the place of Publication whose problem is that the file was removed
VANISHED_FOR = timedelta(days=1)  # how long that alarm stays
ACTOR = "system"
INCIDENT_CODE = "diverged"  # of a cluster's incident of kind ledger


def publish(*, now: datetime) -> SignedHeads:
    """Compares the database with the newest anchor, then signs and publishes the heads of all chains.

    A place that fails does not stop the others. Without a usable key the heads are published unsigned, and the problem
    is shown.
    """
    compare(now=now)
    _watch_anchor(now=now)
    heads = SignedHeads(at=now, heads=queries.heads())
    try:
        heads = heads.signed()
    except signatures.SigningKeyUnusable as error:
        _note(KEY, error.reason, now=now)
    else:
        _note(KEY, None, now=now)
    places = senders.configured()
    for place, send in places.items():
        try:
            send(heads)
        except senders.PublishError as error:
            _note(place, error.reason, now=now)
        else:
            _note(place, None, now=now)
    leases = lease_publication.publish(lease_publication.clusters(), heads, partial(_contradicts, now=now))
    for place, problem in leases.items():
        _note(place, problem, now=now)
    Publication.objects.exclude(place__in=(KEY, VANISHED, *places, *leases)).delete()
    return heads


def _contradicts(anchor: SignedHeads, *, now: datetime) -> bool:
    """Returns whether the database lacks what the anchor says, and no person has seen that yet."""
    found = list(queries.contradictions([anchor]))
    return bool(found) and _diverged(anchor, found, now=now)


def _watch_anchor(*, now: datetime) -> None:
    """Raises an alarm for a day if the anchor file is gone: without it ``compare`` finds nothing."""
    Publication.objects.filter(place=VANISHED, published_at__lte=now - VANISHED_FOR).delete()
    path = settings.KCOVER_ANCHOR
    if path is None or not Publication.objects.filter(place="file", published_at__isnull=False).exists():
        return
    try:
        if path.is_dir() or path.stat().st_size:
            return
    except FileNotFoundError:
        pass
    except OSError:
        return  # the place itself tells that it cannot be written
    reason = reasons.of("anchor_vanished", path=str(path), at=reasons.moment(now))
    log.error("%s", reason)
    Publication.objects.update_or_create(place=VANISHED, defaults={"published_at": now, "problem": reason.to_json()})


def compare(*, now: datetime) -> list[queries.Contradiction]:
    """Compares the database with the newest signed heads of the anchor file.

    If the database lacks some of them, it was restored or rewritten. Then all automation is paused, each cluster gets
    an incident, and the audit log an entry: once for each anchor. A person looks, and resumes.
    """
    path = settings.KCOVER_ANCHOR
    if path is None:
        return []
    try:
        anchor = signed_heads.newest(path, signatures.public_keys())
    except (signed_heads.AnchorUnreadable, signatures.SigningKeyUnusable) as error:
        log.error("the anchor cannot be compared: %s", error)
        return []
    found = list(queries.contradictions([anchor])) if anchor is not None else []
    if anchor is not None and found:
        _diverged(anchor, found, now=now)
    return found


@transaction.atomic
def _diverged(anchor: SignedHeads, found: list[queries.Contradiction], *, now: datetime) -> bool:
    """Pauses automation; returns False if it did so for this anchor before."""
    because = tuple(each.because for each in found)
    _, new = Divergence.objects.get_or_create(
        anchor=anchor.fingerprint(),
        defaults={"anchored_at": anchor.at, "at": now, "because": [reason.to_json() for reason in because]},
    )
    if not new:
        return False
    summary = reasons.of("database_diverged", at=reasons.moment(anchor.at))
    log.error("automation is paused: %s %s", summary, " ".join(map(str, because)))
    fleet_services.pause(cluster=None, reason=str(summary), actor=ACTOR, now=now)
    own = {each.cluster: each.because for each in reversed(found)}
    for cluster in fleet.clusters():
        reason = reasons.both(summary, own.get(cluster.name))
        incidents.keep_cluster_incident(cluster, kind="ledger", code=INCIDENT_CODE, because=reason, now=now)
    act = audit.DatabaseDiverged(anchored_at=anchor.at, because=because)
    ledger.record(queries.INSTALLATION, act, actor=ACTOR, now=now)
    return True


def _note(place: str, problem: reasons.Reason | None, *, now: datetime) -> None:
    fields = {"problem": problem.to_json() if problem else {}, **({} if problem else {"published_at": now})}
    if problem is not None:
        log.error("signed heads of the audit log: %s: %s", place, problem)
    Publication.objects.update_or_create(place=place, defaults=fields)
