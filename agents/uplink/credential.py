"""The credential of a node, as its agent stores it.

A new credential is stored before it is used, and the previous one is kept with it. Whatever is lost on the way, the
agent has one that works: the previous one until the new one is used, and again if the portal's database is restored to
an earlier state. A credential that is refused is not deleted, because a proxy may have refused it.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from agents.host.store import Store

log = logging.getLogger(__name__)

CREDENTIAL_FILE = "credential.json"  # in the store
LIFETIME = timedelta(days=30)  # of a credential, as the portal issues it
MAX_LIFETIME = timedelta(days=366)  # a longer one means that this machine's clock is wrong
RENEWAL_SHARE = (
    0.45,
    0.55,
)  # of the lifetime; random, so that a fleet installed within an hour does not renew within one
RENEWAL_RETRY_SECONDS = 3600.0  # between two attempts to renew; the portal allows one every half hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """``expires_at``: as the portal wrote it. ``renew_at`` None: never renew. ``previous``: the one it replaces."""

    token: str
    expires_at: str | None
    renew_at: datetime | None
    previous: "Credential | None" = None


class CredentialStore:
    """The credential in the store. Not thread-safe; the caller locks."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._node, self._clock, self._monotonic = store, node, clock, monotonic
        self._renewal_tried_at = (
            -RENEWAL_RETRY_SECONDS + monotonic()
        )  # monotonic: setting the clock back must not postpone a renewal
        self._renew_after = self._half_lifetime_from_now()
        self._rejected: set[str] = set()
        self.own = self._load()

    def store_enrolled(self, answer: bytes) -> Credential:
        """Take the portal's answer to an enrolment; if it is lost, the node can enrol again. Raises ValueError for an
        invalid answer."""
        own = _parse(answer, now=self._clock())
        self._write(own)
        self.own, self._renew_after = own, self._half_lifetime_from_now()
        return own

    def store_renewed(self, answer: bytes) -> bool:
        """Take the portal's answer to a renewal. Return whether the new credential may be used.

        It may be used only if it could be stored, because using it invalidates the previous one. Raises ValueError for
        an invalid answer.
        """
        previous = replace(self.own, previous=None) if self.own else None
        own = replace(_parse(answer, now=self._clock()), previous=previous)
        if not self._write(own):
            return False
        self.own, self._renew_after = own, self._half_lifetime_from_now()
        return True

    def is_renewal_due(self) -> bool:
        """Return whether to renew the credential now; True at most once an hour.

        It is due by this machine's clock, or once it was held for half of its lifetime, because the clock may be weeks
        behind.
        """
        if self.own is None or self.own.renew_at is None:
            return False
        if self._clock() < self.own.renew_at and self._monotonic() < self._renew_after:
            return False
        if self._monotonic() < self._renewal_tried_at + RENEWAL_RETRY_SECONDS:
            return False
        self._renewal_tried_at = self._monotonic()
        return True

    def reject(self, token: str) -> bool:
        """Handle a token that the portal refused.

        Return whether there is another one to try: a newer one, or the previous one.

        If the previous one was refused too, there is none; the next call starts over with both.
        """
        own = self.own
        if own is None or own.token != token:
            return own is not None
        self._rejected.add(token)
        if own.previous is not None and own.previous.token not in self._rejected:
            self.own = replace(own.previous, previous=replace(own, previous=None))
            return True
        self._rejected.clear()
        return False

    def _half_lifetime_from_now(self) -> float:
        return self._monotonic() + LIFETIME.total_seconds() * random.uniform(*RENEWAL_SHARE)  # nosec B311

    def _write(self, own: Credential) -> bool:
        try:
            self._store.write(CREDENTIAL_FILE, json.dumps({"node": self._node, **_encode(own)}).encode())
        except OSError as error:
            log.warning("could not store the credential of this node: %s", error)
            return False
        return True

    def _load(self) -> Credential | None:
        try:
            data = self._store.read(CREDENTIAL_FILE)
            content = json.loads(data) if data else {}
            return _decode(content) if content.get("node") == self._node else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("could not read the credential of this node: %s", error)
            return None


def _parse(answer: bytes, *, now: datetime) -> Credential:
    try:
        content = json.loads(answer)
        token, expires_at = content["token"], content.get("expires_at")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no token: {error}") from error
    if not isinstance(token, str) or not token:
        raise ValueError("no token")
    return Credential(token=token, expires_at=expires_at, renew_at=_renew_at(expires_at, now=now))


def _renew_at(expires_at: object, *, now: datetime) -> datetime | None:
    """The middle of its lifetime. None if the end is missing or unreadable; a 401 then shows that it has ended."""
    try:
        end = datetime.fromisoformat(str(expires_at))
        lifetime = end - now
    except (TypeError, ValueError):
        return None
    if not timedelta() < lifetime <= MAX_LIFETIME:
        lifetime = LIFETIME
    return end - lifetime * (1 - random.uniform(*RENEWAL_SHARE))  # nosec B311


def _encode(own: Credential) -> dict[str, Any]:
    return {
        "token": own.token,
        "expires_at": own.expires_at,
        "renew_at": own.renew_at.isoformat() if own.renew_at else None,
        "before": _encode(own.previous) if own.previous else None,
    }


def _decode(content: Mapping[str, Any]) -> Credential:
    """Decode a stored credential. Raises ValueError, KeyError, TypeError or AttributeError."""
    token, previous = content["token"], content.get("before")
    if not isinstance(token, str) or not token:
        raise ValueError("no token")
    renew_at = content["renew_at"]
    return Credential(
        token=token,
        expires_at=content.get("expires_at"),
        renew_at=datetime.fromisoformat(renew_at) if renew_at else None,
        previous=_decode(previous) if previous else None,
    )
