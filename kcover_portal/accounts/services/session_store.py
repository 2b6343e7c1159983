"""The session engine (``SESSION_ENGINE``): sessions in the database that know their user and end when idle or too old.

The browser has the key, and the database only its digest: who reads the database or a backup opens no session.

A session ends ``SESSION_COOKIE_AGE`` after the sign-in, and after ``KCOVER_SESSION_IDLE_MINUTES`` without a request of
the person (``sessions.touch``).
"""

from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db
from django.db.models import QuerySet
from django.utils import timezone

from kcover_portal.accounts import queries
from kcover_portal.accounts.models import Session

MAX_BROWSER = 200  # characters of a User-Agent header


class SessionStore(db.SessionStore):
    """Django's sessions in the database, with an idle limit and an end that no request moves."""

    created_at: datetime | None = None
    seen_at: datetime | None = None  # None until the session was read or written

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create(self) -> None:
        """A new key is a new session: at a sign-in, and after a change of the own password."""
        self.created_at = self.seen_at = None
        super().create()

    async def acreate(self) -> None:
        self.created_at = self.seen_at = None
        await super().acreate()

    @property
    def stored_key(self) -> str:
        """The ``session_key`` of the session's row; "" of one that was not stored yet."""
        return Session.digest_of(self.session_key) if self.session_key else ""

    def exists(self, session_key: str) -> bool:
        return super().exists(Session.digest_of(session_key))

    async def aexists(self, session_key: str) -> bool:
        return await super().aexists(Session.digest_of(session_key))

    def delete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            super().delete(Session.digest_of(key))

    async def adelete(self, session_key: str | None = None) -> None:
        if key := session_key or self.session_key:
            await super().adelete(Session.digest_of(key))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return self.create_model_instance(data)

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        now = timezone.now()
        self.created_at, self.seen_at = self.created_at or now, self.seen_at or now
        session = cast("Session", super().create_model_instance(data))
        session.session_key = self.stored_key
        session.expire_date = self.created_at + timedelta(seconds=settings.SESSION_COOKIE_AGE)
        session.created_at, session.seen_at = self.created_at, self.seen_at
        session.user_id = int(data[SESSION_KEY]) if SESSION_KEY in data else None
        session.identity_id, session.provider_session = data.get("identity"), str(data.get("sid", ""))
        session.address, session.browser = str(data.get("address", "")), str(data.get("browser", ""))[:MAX_BROWSER]
        return session

    def _get_session_from_db(self) -> Session | None:
        return self._fresh(self._rows().first())

    async def _aget_session_from_db(self) -> Session | None:
        return self._fresh(await self._rows().afirst())

    def _rows(self) -> QuerySet[Session]:
        return Session.objects.filter(session_key=self.stored_key, expire_date__gt=timezone.now())

    def _fresh(self, session: Session | None) -> Session | None:
        if session is None or session.seen_at <= timezone.now() - queries.idle_limit():
            self._session_key = None
            return None
        self.created_at, self.seen_at = session.created_at, session.seen_at
        return session
