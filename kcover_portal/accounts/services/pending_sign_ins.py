"""A sign-in whose password was correct and whose second factor is due.

The session of the browser is not signed in meanwhile: no page, request or socket accepts it. It gets a new key here,
and again when the person is signed in, so that a key that somebody planted in the browser is worth nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from django.contrib.sessions.backends.base import SessionBase
from django.utils.crypto import constant_time_compare

from kcover_portal.accounts.models import User

SIGN_IN_LIFETIME = timedelta(minutes=10)
KEY = "pending_sign_in"
NOTHING: Mapping[str, Any] = MappingProxyType({})


def begin(
    session: SessionBase, user: User, *, target: str, now: datetime, sign_on: Mapping[str, Any] = NOTHING
) -> None:
    """Notes in a fresh session that the person gave the password, or came from the identity provider.

    ``target``: where to go after the sign-in. ``sign_on``: what the session keeps of a single sign-on.
    """
    session.flush()
    session[KEY] = {
        "user": user.pk,
        "hash": user.get_session_auth_hash(),
        "at": now.timestamp(),
        "target": target,
        "sign_on": dict(sign_on),
    }


def person(session: SessionBase, *, now: datetime) -> User | None:
    """Returns the person whose factor is due; None after SIGN_IN_LIFETIME, a change of password or a disabling."""
    pending = session.get(KEY)
    if not isinstance(pending, dict) or not 0 <= now.timestamp() - pending["at"] <= SIGN_IN_LIFETIME.total_seconds():
        return None
    user = User.objects.filter(pk=pending["user"], is_active=True).first()
    if user is None or not constant_time_compare(pending["hash"], user.get_session_auth_hash()):
        return None
    return user


def target(session: SessionBase) -> str:
    """Returns the address that follows the sign-in."""
    return str(session.get(KEY, {}).get("target", ""))


def sign_on(session: SessionBase) -> Mapping[str, Any]:
    """The facts about a single sign-on that the session keeps; empty after a password."""
    return dict(session.get(KEY, {}).get("sign_on", {}))
