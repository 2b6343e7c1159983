"""Ends sessions and notes their use."""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from kcover import audit
from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Session, User
from kcover_portal.accounts.services import session_store
from kcover_portal.ledger import services as ledger

log = logging.getLogger(__name__)

USE_NOTE_INTERVAL = timedelta(minutes=1)


def touch(session: session_store.SessionStore, *, now: datetime) -> None:
    """Notes that the person uses the session, at most once a minute. Costs nothing for a session that was not read."""
    if session.seen_at is None or not session.stored_key or session.seen_at > now - USE_NOTE_INTERVAL:
        return
    Session.objects.filter(session_key=session.stored_key).update(seen_at=now)
    session.seen_at = now


def end(sessions: Iterable[Session], user: User, *, actor: str, now: datetime, reason: str = "") -> int:
    """Ends these sessions of the user, on record. Returns how many there still were."""
    keys = [session.session_key for session in sessions]
    with transaction.atomic():
        count, _ = user.sessions.filter(session_key__in=keys).delete()
        if count:
            act = audit.SessionsEnded(user=user.username, count=count, reason=reason)
            ledger.record("", act, actor=actor, now=now)
            log.info("%s: user %s, count %d, by %s", act.verb, user.username, count, actor)
    return count


def forget(user: User, *, keep: str = "") -> None:
    """Deletes the user's sessions, except that of the browser with the key ``keep``, as part of another act."""
    user.sessions.exclude(session_key=Session.digest_of(keep)).delete()


def prune(*, now: datetime) -> None:
    """Deletes the sessions that have ended."""
    Session.objects.filter(Q(expire_date__lte=now) | Q(seen_at__lte=now - queries.idle_limit())).delete()
