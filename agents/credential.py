"""A node's own credential as its agent keeps it.

A new one is stored before it is used, and the one before stays beside it, so that whatever is lost on the way the agent
has one that is good: until the new one is used, and again where the portal's database is put back to before that. None
is thrown away because it was refused: it may have been a proxy that said so.
"""

import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from agents.store import Store

log = logging.getLogger(__name__)

FILE = "credential.json"  # in the store
LIVES = timedelta(days=30)  # as the portal gives them
LONGEST = timedelta(days=366)  # from here on it is this machine's clock that is wrong
RENEWED_AT = (0.45, 0.55)  # of its life: a fleet that was installed in one hour does not come back in one
LONG_AGO = "2000-01-01T00:00:00+00:00"
ASKED_EVERY = 3600.0  # seconds between two tries to renew it; the portal wants half an hour at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """``expires_at`` as the portal wrote it; ``renew_at`` None: never. ``before``: what it was renewed from."""

    token: str
    expires_at: str | None
    renew_at: datetime | None
    before: "Credential | None" = None


class Keeper:
    """The credential in the store. Not for threads: whoever has it sees to that."""

    def __init__(
        self,
        store: Store,
        *,
        node: str,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._node, self._clock, self._monotonic = store, node, clock, monotonic
        self._asked_at = -ASKED_EVERY + monotonic()  # a clock that is set back puts no renewal off
        self._due_at = self._half_from_now()
        self._refused: set[str] = set()
        self.own = self._stored()

    def enrolled(self, answer: bytes) -> Credential:
        """Take what the portal gave for an enrolment token, which can be had again if it is lost here. Raises
        ValueError for an answer that is none."""
        own = _read(answer, now=self._clock())
        self._keep(own)
        self.own, self._due_at = own, self._half_from_now()
        return own

    def renewed(self, answer: bytes) -> bool:
        """Take what the portal gave for the own credential: only what is stored may be used, since using it ends the
        one before. Returns whether it could be. Raises ValueError for an answer that is none."""
        before = replace(self.own, before=None) if self.own else None
        own = replace(_read(answer, now=self._clock()), before=before)
        if not self._keep(own):
            return False
        self.own, self._due_at = own, self._half_from_now()
        return True

    def is_due(self) -> bool:
        """Whether it is to be renewed now; True once an hour at most.

        It is by this machine's clock, or once it was held here for half of a life: the clock may be weeks behind.
        """
        if self.own is None or self.own.renew_at is None:
            return False
        if self._clock() < self.own.renew_at and self._monotonic() < self._due_at:
            return False
        if self._monotonic() < self._asked_at + ASKED_EVERY:
            return False
        self._asked_at = self._monotonic()
        return True

    def refused(self, token: str) -> bool:
        """The portal does not take this token. Returns whether there is another one: what took its place here
        meanwhile, or the one before. Where that was refused, too, there is none; asked later, both are tried again."""
        own = self.own
        if own is None or own.token != token:
            return own is not None
        self._refused.add(token)
        if own.before is not None and own.before.token not in self._refused:
            self.own = replace(own.before, before=replace(own, before=None))
            return True
        self._refused.clear()
        return False

    def _half_from_now(self) -> float:
        return self._monotonic() + LIVES.total_seconds() * random.uniform(*RENEWED_AT)

    def _keep(self, own: Credential) -> bool:
        try:
            self._store.write(FILE, json.dumps({"node": self._node, **_encode(own)}).encode())
        except OSError as error:
            log.warning("this node's credential could not be stored: %s", error)
            return False
        return True

    def _stored(self) -> Credential | None:
        try:
            data = self._store.read(FILE)
            content = json.loads(data) if data else {}
            return _decode(content) if content.get("node") == self._node else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("this node's credential could not be read: %s", error)
            return None


def _read(answer: bytes, *, now: datetime) -> Credential:
    try:
        content = json.loads(answer)
        token, expires_at = content["token"], content.get("expires_at")
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no token: {error}") from error
    if not isinstance(token, str) or not token:
        raise ValueError("no token")
    return Credential(token=token, expires_at=expires_at, renew_at=_renew_at(expires_at, now=now))


def _renew_at(expires_at: object, *, now: datetime) -> datetime | None:
    """About half of its life before its end; None for no end, or one that cannot be read: a 401 will tell."""
    try:
        end = datetime.fromisoformat(str(expires_at))
        lives = end - now
    except (TypeError, ValueError):
        return None
    if not timedelta() < lives <= LONGEST:
        lives = LIVES
    return end - lives * (1 - random.uniform(*RENEWED_AT))


def _encode(own: Credential) -> dict[str, Any]:
    return {
        "token": own.token,
        "expires_at": own.expires_at,
        "renew_at": own.renew_at.isoformat() if own.renew_at else None,
        "before": _encode(own.before) if own.before else None,
    }


def _decode(content: Mapping[str, Any]) -> Credential:
    """Raises ValueError, KeyError, TypeError or AttributeError."""
    token, before = content["token"], content.get("before")
    if not isinstance(token, str) or not token:
        raise ValueError("no token")
    renew_at = content.get("renew_at", LONG_AGO)  # what an earlier agent stored lives for a year: not any more
    return Credential(
        token=token,
        expires_at=content.get("expires_at"),
        renew_at=datetime.fromisoformat(renew_at) if renew_at else None,
        before=_decode(before) if before else None,
    )
